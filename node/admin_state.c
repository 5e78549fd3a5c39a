/* admin_state: the cluster, and what is only looked at. */
#include "base/err.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/util.h"
#include "node/admin_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- cluster init ---- */

static void on_init(void *arg, int status, const char *why)
{
	struct admin_req *r = arg;
	char *notes[] = { "Next: basalt disk add PATH" };
	char what[160];

	r->unknown = why == NULL;
	if (r->unknown)
		admin__why(r, status,
			   "basaltd goes on with it: look at the disk under "
			   "data_dir, then give the command again: nothing is "
			   "founded twice.",
			   "whether cluster %s is founded is not known: the "
			   "directory does not answer",
			   r->msg->cluster_init->name);
	else if (status < 0)
		admin__why(r, status, "The daemon's log says more.",
			   "the cluster cannot be founded: %s", why);
	if (status < 0) {
		admin__refuse(r);
		return;
	}
	snprintf(what, sizeof(what), "cluster %s founded; node %s is in it",
		 r->msg->cluster_init->name, r->node->config->name);
	admin__done(r, what, notes, 1, "", "");
}

void admin__cluster_init(struct admin_req *r)
{
	const Admin__ClusterInit *m = r->msg->cluster_init;
	int rv;

	if (admin__name_check(r, "cluster", m->name, false) < 0) {
		admin__refuse(r);
		return;
	}
	rv = node__cluster_init(r->node, m->name, r->who, on_init, r);
	if (rv == 0)
		return;
	if (rv == -EEXIST)
		admin__why(r, rv, "basalt cluster status shows it.",
			   "node %s is in cluster %s already",
			   r->node->config->name, r->node->cluster_name);
	else if (rv == -EBUSY && r->node->state == NODE_STARTING &&
		 r->node->founding)
		admin__why(r, rv,
			   "basalt cluster status and basalt health tell how "
			   "it is.",
			   "cluster %s is being founded on node %s",
			   r->node->cluster_name, r->node->config->name);
	else if (rv == -EBUSY)
		admin__why(r, rv, "Try again in a moment.",
			   "node %s is starting or stopping",
			   r->node->config->name);
	else
		admin__why(r, rv, "The daemon's log says more.",
			   "the cluster key cannot be stored in %s: %s",
			   r->node->config->data_dir, err_text(rv));
	admin__refuse(r);
}

/* ---- cluster status ---- */

struct status_answer {
	Admin__ClusterStatus m;
	Admin__Space space;
	char id[UUID_TEXT_LEN], node_id[UUID_TEXT_LEN], compliance[64];
	char portals[32][ADDRESS_TEXT];
	char *portal_list[32];
};

static void count_one(const struct iscsi_session_info *info, void *arg)
{
	*(unsigned *)arg += 1;
}

void admin__space_sum(struct node *node, struct admin_space *out)
{
	struct lsom_disk_info info;
	struct node_disk *d;

	memset(out, 0, sizeof(*out));
	TAILQ_FOREACH (d, &node->disks, link) {
		if (d->state != NODE_DISK_ONLINE)
			continue;
		lsom_disk_info(d->disk, &info);
		if (info.state == LSOM_DISK_FAILED || admin__disk_pending(d))
			continue;
		out->disks++;
		out->raw_bytes += info.raw_bytes;
		out->used_bytes += info.used_bytes;
		out->kept_bytes += info.kept_bytes;
		out->usable_bytes += info.usable_bytes;
	}
	dom_provisioned(node->dom, &out->provisioned_bytes,
			&out->reserved_bytes);
}

static void status_space(struct node *node, struct status_answer *a)
{
	struct admin_space sum;
	uint64_t taken;

	admin__space_sum(node, &sum);
	taken = sum.used_bytes + sum.kept_bytes;
	a->m.disks_online = sum.disks;
	a->space.raw_bytes = sum.raw_bytes;
	a->space.used_bytes = sum.used_bytes;
	a->space.kept_bytes = sum.kept_bytes;
	a->space.reserved_bytes = sum.reserved_bytes;
	a->m.provisioned_bytes = sum.provisioned_bytes;
	a->m.usable_bytes = sum.usable_bytes;
	a->space.free_bytes = sum.usable_bytes - MIN(sum.usable_bytes, taken);
}

static void status_objects(const struct node_looked *looked,
			   struct status_answer *a)
{
	a->m.vdisks = looked->vdisks;
	a->m.vdisks_unavailable = looked->unavailable;
	a->m.vdisks_noncompliant = looked->noncompliant;
	if (a->m.vdisks_noncompliant == 0)
		strcpy(a->compliance, "compliant");
	else
		snprintf(a->compliance, sizeof(a->compliance),
			 "%u of %u not compliant", a->m.vdisks_noncompliant,
			 a->m.vdisks);
}

static void status_up(struct node *node, struct status_answer *a)
{
	const struct cmmds_entry *e;
	struct cmmds_info info;

	cmmds_info(node->cmmds, &info);
	uuid_format(&node->cluster, a->id);
	a->m.name = node->cluster_name;
	a->m.id = a->id;
	a->m.leader = info.leader;
	a->m.voters = info.voters;
	a->m.directory_revision = info.revision;
	a->m.nodes = cmmds_count(node->cmmds, CMMDS_NODE);
	a->m.disks = cmmds_count(node->cmmds, CMMDS_DISK);
	a->m.scrub_days = node__scrub_days(node);
	a->m.targets = cmmds_count(node->cmmds, CMMDS_TARGET);
	e = cmmds_get(node->cmmds, CMMDS_CLUSTER, "", 0);
	if (e != NULL)
		a->m.feature_level =
			((const Directory__Cluster *)e->message)->feature_level;
	iscsi_session_each(node->iscsi, count_one, &a->m.sessions);
	status_space(node, a);
	status_objects(&node->looked, a);
	a->m.compliance = a->compliance;
	a->m.n_portals =
		admin__portals(node, false, a->portals, ARRAY_LEN(a->portals));
	for (size_t i = 0; i < a->m.n_portals; i++)
		a->portal_list[i] = a->portals[i];
	a->m.portals = a->portal_list;
}

static void status_answer(struct admin_req *r)
{
	static const char *const states[] = { "starting", "none", "up",
					      "stopping", "stopping" };
	struct node *node = r->node;
	struct status_answer *a = calloc(1, sizeof(*a));
	Admin__Response response = ADMIN__RESPONSE__INIT;

	if (a == NULL) {
		admin__no_memory(r);
		return;
	}
	admin__cluster_status__init(&a->m);
	admin__space__init(&a->space);
	uuid_format(&node->identity.id, a->node_id);
	a->m.state = (char *)states[node->state];
	a->m.node = (char *)node->config->name;
	a->m.node_id = a->node_id;
	a->m.version = BASALT_VERSION;
	a->m.uptime_seconds = (env_now(node->env) - node->started_ns) / SEC;
	a->m.space = &a->space;
	if (node->state == NODE_UP)
		status_up(node, a);
	a->m.health = (char *)health_level_name(node__health_worst());
	response.result_case = ADMIN__RESPONSE__RESULT_CLUSTER_STATUS;
	response.cluster_status = &a->m;
	admin__reply(r, &response);
	free(a);
}

/* What all virtual disks and targets come to is found first. */
struct looking {
	struct node_look look;
	struct admin_req *r;
	void (*answer)(struct admin_req *r);
};

static void on_look(struct node_look *look)
{
	struct looking *l = container_of(look, struct looking, look);

	l->answer(l->r);
}

static void look_first(struct admin_req *r, void (*answer)(struct admin_req *r))
{
	struct looking *l = r->ctx = calloc(1, sizeof(*l));

	if (l == NULL) {
		admin__no_memory(r);
		return;
	}
	l->r = r;
	l->answer = answer;
	node__look(r->node, &l->look, on_look);
}

void admin__cluster_status(struct admin_req *r)
{
	look_first(r, status_answer);
}

/* ---- sessions ---- */

struct session_answer {
	Admin__Session *items;
	char (*texts)[3][300]; /* initiator, alias, target */
	char (*addresses)[3][64];
	size_t count, room;
	uint64_t now_ns;
};

static void session_add(const struct iscsi_session_info *info, void *arg)
{
	struct session_answer *a = arg;
	Admin__Session *s;

	if (a->count == a->room)
		return;
	s = &a->items[a->count];
	admin__session__init(s);
	/* What @info points to is good during this call only. */
	snprintf(a->texts[a->count][0], 300, "%s",
		 info->initiator ? info->initiator : "");
	snprintf(a->texts[a->count][1], 300, "%s",
		 info->alias ? info->alias : "");
	snprintf(a->texts[a->count][2], 300, "%s",
		 info->target ? info->target : "");
	snprintf(a->addresses[a->count][0], 64, "%s", info->peer);
	snprintf(a->addresses[a->count][1], 64, "%s", info->local);
	snprintf(a->addresses[a->count][2], 64, "%s", info->isid);
	s->id = info->id;
	s->initiator = a->texts[a->count][0];
	s->alias = a->texts[a->count][1];
	s->target = a->texts[a->count][2];
	s->transport = (char *)(info->transport ? info->transport : "");
	s->peer = a->addresses[a->count][0];
	s->local = a->addresses[a->count][1];
	s->isid = a->addresses[a->count][2];
	s->tsih = info->tsih;
	s->discovery = info->discovery;
	s->commands = info->commands;
	s->read_bytes = info->read_bytes;
	s->written_bytes = info->written_bytes;
	s->age_seconds = (a->now_ns - MIN(a->now_ns, info->since_ns)) / SEC;
	s->in_flight = info->in_flight;
	s->shard = info->shard;
	a->count++;
}

void admin__session_list(struct admin_req *r)
{
	struct session_answer a = { .now_ns = env_now(r->node->env) };
	Admin__Response response = ADMIN__RESPONSE__INIT;
	Admin__Sessions sessions = ADMIN__SESSIONS__INIT;
	Admin__Session **list;
	unsigned n = 0;

	iscsi_session_each(r->node->iscsi, count_one, &n);
	a.room = n;
	a.items = calloc(n + 1, sizeof(*a.items));
	a.texts = calloc(n + 1, sizeof(*a.texts));
	a.addresses = calloc(n + 1, sizeof(*a.addresses));
	list = calloc(n + 1, sizeof(*list));
	if (!a.items || !a.texts || !a.addresses || !list) {
		admin__no_memory(r);
		goto done;
	}
	iscsi_session_each(r->node->iscsi, session_add, &a);
	for (size_t i = 0; i < a.count; i++)
		list[i] = &a.items[i];
	sessions.sessions = list;
	sessions.n_sessions = a.count;
	sessions.shards = shards_count(r->node->shards);
	response.result_case = ADMIN__RESPONSE__RESULT_SESSIONS;
	response.sessions = &sessions;
	admin__reply(r, &response);
done:
	free(a.items);
	free(a.texts);
	free(a.addresses);
	free(list);
}

static int drop_build(struct admin_req *r, struct cmmds_command *cmd)
{
	uint64_t id = r->msg->session_drop->id;

	/* Nobody is told that it waits for the directory: it is done. */
	r->changes = false;
	cmmds_audit(cmd, r->who, "session %llu dropped",
		    (unsigned long long)id);
	return 0;
}

static void drop_answer(struct admin_req *r, const char *but)
{
	unsigned long long id = r->msg->session_drop->id;

	admin__ok(r, "session %llu dropped; its initiator may log in again%s",
		  id, but);
}

static void drop_applied(struct admin_req *r)
{
	drop_answer(r, "");
}

/* Its session is gone, whatever becomes of the line about it. */
static void drop_failed(struct admin_req *r)
{
	char but[360];

	snprintf(but, sizeof(but), "; basalt events may not tell: %.300s",
		 r->error);
	drop_answer(r, but);
}

void admin__session_drop(struct admin_req *r)
{
	unsigned long long id = r->msg->session_drop->id;

	if (iscsi_session_drop(r->node->iscsi, id) < 0) {
		admin__why(r, -ENOENT, "basalt session list shows them.",
			   "there is no session %llu", id);
		admin__refuse(r);
		return;
	}
	r->failed = drop_failed;
	admin__change(r, drop_build, drop_applied);
}

/* ---- health ---- */

struct health_answer {
	Admin__HealthCheck items[64];
	Admin__HealthCheck *list[64];
	struct health_result results[64];
	size_t count;
	enum health_level worst;
};

static void health_add(const struct health_check *check,
		       const struct health_result *result, void *arg)
{
	struct health_answer *a = arg;
	Admin__HealthCheck *c;

	a->worst = MAX(a->worst, result->level);
	if (a->count == ARRAY_LEN(a->items))
		return;
	c = &a->items[a->count];
	admin__health_check__init(c);
	a->results[a->count] = *result;
	c->name = (char *)check->name;
	c->level = (char *)health_level_name(result->level);
	c->cause = a->results[a->count].cause;
	c->fix = a->results[a->count].fix;
	a->list[a->count++] = c;
}

static void health_answer(struct admin_req *r)
{
	struct health_answer *a = calloc(1, sizeof(*a));
	Admin__Response response = ADMIN__RESPONSE__INIT;
	Admin__Healths healths = ADMIN__HEALTHS__INIT;

	/* Its checks are gone: that is not well. */
	if (r->node->state == NODE_STOPPING) {
		free(a);
		admin__stopping(r);
		return;
	}
	if (a == NULL) {
		admin__no_memory(r);
		return;
	}
	health_each(health_add, a);
	healths.checks = a->list;
	healths.n_checks = a->count;
	healths.worst = (char *)health_level_name(a->worst);
	response.result_case = ADMIN__RESPONSE__RESULT_HEALTH;
	response.health = &healths;
	admin__reply(r, &response);
	free(a);
}

void admin__health(struct admin_req *r)
{
	look_first(r, health_answer);
}

/* ---- metrics ---- */

struct metric_answer {
	Admin__Metric *items;
	Admin__Metric **list;
	size_t count, room;
};

static void metric_add(struct counter *counter, void *arg)
{
	struct metric_answer *a = arg;
	Admin__Metric *m;

	if (a->count == a->room) {
		a->room++;
		return;
	}
	m = &a->items[a->count];
	admin__metric__init(m);
	m->name = (char *)counter->name;
	m->help = (char *)counter->help;
	m->value = counter_value(counter);
	a->list[a->count++] = m;
}

static void count_counter(struct counter *counter, void *arg)
{
	*(size_t *)arg += 1;
}

#define METRICS_TEXT 1 /* Metrics.text in proto/admin.proto */

/* Takes @text. */
static void metrics_answer(struct admin_req *r, char *text)
{
	struct metric_answer a = { 0 };
	Admin__Metrics metrics = ADMIN__METRICS__INIT;

	counter_each(count_counter, &a.room);
	a.items = calloc(a.room + 1, sizeof(*a.items));
	a.list = calloc(a.room + 1, sizeof(*a.list));
	if (a.items == NULL || a.list == NULL) {
		free(text);
		admin__no_memory(r);
		goto done;
	}
	counter_each(metric_add, &a);
	metrics.metrics = a.list;
	metrics.n_metrics = a.count;
	admin__reply_text(r, ADMIN__RESPONSE__RESULT_METRICS, &metrics.base,
			  METRICS_TEXT, text);
done:
	free(a.items);
	free(a.list);
}

struct metrics_ctx {
	struct admin_req *r;
	struct node_metrics made;
};

static void on_metrics(struct node_metrics *made, int status)
{
	struct admin_req *r = container_of(made, struct metrics_ctx, made)->r;

	if (status == -ESHUTDOWN)
		admin__stopping(r);
	else if (status < 0)
		admin__no_memory(r);
	else
		metrics_answer(r, made->text);
}

void admin__metrics(struct admin_req *r)
{
	struct metrics_ctx *ctx = r->ctx = calloc(1, sizeof(*ctx));

	if (ctx == NULL) {
		admin__no_memory(r);
		return;
	}
	ctx->r = r;
	node__metrics_make(r->node, &ctx->made, on_metrics);
}

/* ---- events ---- */

void admin__events(struct admin_req *r)
{
	static Admin__Event items[CMMDS_EVENTS_MAX];
	static Admin__Event *list[CMMDS_EVENTS_MAX];
	struct cmmds *cmmds = r->node->cmmds;
	Admin__Response response = ADMIN__RESPONSE__INIT;
	Admin__Events events = ADMIN__EVENTS__INIT;
	unsigned total = cmmds_count(cmmds, CMMDS_EVENT), skip = 0;
	unsigned wanted = r->msg->events->count;
	const struct cmmds_entry *e = NULL;
	size_t n = 0;

	if (wanted == 0 || wanted > CMMDS_EVENTS_MAX)
		wanted = CMMDS_EVENTS_MAX;
	if (total > wanted)
		skip = total - wanted;
	while ((e = cmmds_next(cmmds, CMMDS_EVENT, e)) != NULL) {
		const Directory__Event *m = (void *)e->message;

		if (skip > 0) {
			skip--;
			continue;
		}
		admin__event__init(&items[n]);
		items[n].sequence = m->sequence;
		items[n].wall_ns = m->wall_ns;
		items[n].who = m->who;
		items[n].what = m->what;
		list[n] = &items[n];
		n++;
	}
	events.events = list;
	events.n_events = n;
	response.result_case = ADMIN__RESPONSE__RESULT_EVENTS;
	response.events = &events;
	admin__reply(r, &response);
}

/* ---- log levels ---- */

void admin__log_level(struct admin_req *r)
{
	const Admin__LogLevel *m = r->msg->log_level;
	Admin__Response response = ADMIN__RESPONSE__INIT;
	Admin__LogLevels levels = ADMIN__LOG_LEVELS__INIT;
	Admin__RoomLevel items[LOG_ROOMS];
	Admin__RoomLevel *list[LOG_ROOMS];

	if ((m->room[0] != '\0' || m->level[0] != '\0') &&
	    log_level_set(m->room, m->level) < 0) {
		admin__why(r, -EINVAL,
			   "Rooms: all base lsom rdt cmmds dom iscsi iser "
			   "node; levels: error warn info debug.",
			   "log level %.40s %.40s: no such room or level",
			   m->room, m->level);
		admin__refuse(r);
		return;
	}
	for (unsigned i = 0; i < LOG_ROOMS; i++) {
		admin__room_level__init(&items[i]);
		items[i].room = (char *)log_room_name((enum log_room)i);
		items[i].level = (char *)log_level_get((enum log_room)i);
		list[i] = &items[i];
	}
	levels.rooms = list;
	levels.n_rooms = LOG_ROOMS;
	response.result_case = ADMIN__RESPONSE__RESULT_LOG_LEVELS;
	response.log_levels = &levels;
	admin__reply(r, &response);
}
