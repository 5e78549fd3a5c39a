/*
 * admin_request: a request on its way: which handler it goes to, how it changes
 * the directory, how it is refused.
 *
 * A change is built from what the directory holds now and proposed with the
 * revisions it was built on; if somebody was faster it is built again, so that
 * the answer is always about the newest state.
 */
#define LOG_ROOM LOG_NODE
#include "base/err.h"
#include "base/kv.h"
#include "base/log.h"
#include "base/util.h"
#include "node/admin_int.h"
#include "node/names.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

int admin__why(struct admin_req *r, int status, const char *fix,
	       const char *fmt, ...)
{
	va_list ap;

	assert(status < 0);
	r->status = status;
	snprintf(r->fix, sizeof(r->fix), "%s", fix);
	va_start(ap, fmt);
	vsnprintf(r->error, sizeof(r->error), fmt, ap);
	va_end(ap);
	return status;
}

static void refusal_fill(struct admin_req *r, Admin__Response *response)
{
	assert(r->status < 0);
	admin__response__init(response);
	response->status = r->status;
	response->error = r->error;
	response->fix = r->fix;
	response->unknown = r->unknown;
	log_debug("refused for %s: %s", r->who, r->error);
}

void admin__refuse(struct admin_req *r)
{
	Admin__Response response;

	refusal_fill(r, &response);
	admin__reply(r, &response);
}

void admin__refuse_early(struct admin_req *r)
{
	Admin__Response response;

	refusal_fill(r, &response);
	admin__reply_early(r, &response);
}

void admin__no_memory(struct admin_req *r)
{
	admin__why(r, -ENOMEM, "Try again in a moment.",
		   "there is no memory for the command");
	admin__refuse(r);
}

void admin__done(struct admin_req *r, const char *what, char **notes,
		 size_t notes_count, const char *id, const char *iqn)
{
	Admin__Response response = ADMIN__RESPONSE__INIT;
	Admin__Done done = ADMIN__DONE__INIT;

	done.what = (char *)what;
	done.notes = notes;
	done.n_notes = notes_count;
	done.id = (char *)id;
	done.iqn = (char *)iqn;
	response.result_case = ADMIN__RESPONSE__RESULT_OK;
	response.ok = &done;
	admin__reply(r, &response);
}

void admin__ok(struct admin_req *r, const char *fmt, ...)
{
	char what[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	admin__done(r, what, NULL, 0, "", "");
}

static bool is_stopping(struct admin_req *r)
{
	if (r->node->state == NODE_UP)
		return false;
	admin__why(r, -ESHUTDOWN, "Try again once it is up.",
		   "node %s is shutting down", r->node->config->name);
	return true;
}

bool admin__stopping(struct admin_req *r)
{
	if (!is_stopping(r))
		return false;
	admin__refuse(r);
	return true;
}

int admin__directory_wants(struct node *node)
{
	struct cmmds_info info;

	cmmds_info(node->cmmds, &info);
	return info.wants;
}

/* True: nothing can be changed now, and it is said why. */
static bool is_stuck(struct admin_req *r)
{
	int wants = admin__directory_wants(r->node);
	char fix[300];

	if (wants == 0)
		return false;
	node__wanted_fix(r->node, wants, "repeat the command.", fix,
			 sizeof(fix));
	admin__why(r, wants, fix,
		   "the directory has no %s left: it takes no change now",
		   kv_wanted(wants));
	return true;
}

/* ---- changes of the directory ---- */

#define LOOK_AND_REPEAT                                                        \
	"look with the list command, and repeat this one if it was not made: " \
	"nothing is made twice."

/* Of those that meet one is made each time: as many as there are connections. */
#define ATTEMPTS_MAX 80u
#define BUSY_NS (20 * MSEC) /* until it is asked again */
#define BUSY_NS_MAX (10 * SEC)

static void change_try(struct admin_req *r);

static void change_fail(struct admin_req *r)
{
	if (r->failed != NULL)
		r->failed(r);
	else
		admin__refuse(r);
}

bool admin__unknown(struct admin_req *r, int status)
{
	char fix[sizeof(r->fix)];
	bool up = status != -EIO && status != -ESHUTDOWN;

	if (up && status != -ETIMEDOUT && status != -ESTALE)
		return false;
	r->unknown = true;
	snprintf(fix, sizeof(fix), "%s, " LOOK_AND_REPEAT,
		 up ? "Once basalt health has nothing against the directory"
		    : "Once basaltd is up again");
	admin__why(r, status, fix,
		   "whether the change was made is not known: %s",
		   status == -EIO	  ? "the directory has failed"
		   : status == -ESHUTDOWN ? "basaltd is shutting down"
					  : "the directory does not answer");
	return true;
}

/*
 * The change is not off: it may be the very one that found no space or whatever
 * @wants is, and is made when there is some.
 */
void admin__stuck_early(struct admin_req *r, int wants)
{
	Admin__Response response = ADMIN__RESPONSE__INIT;
	char error[120], fix[400];

	snprintf(error, sizeof(error),
		 "the directory has no %s left: the change waits for some",
		 kv_wanted(wants));
	node__wanted_fix(r->node, wants, LOOK_AND_REPEAT, fix, sizeof(fix));
	response.status = wants;
	response.error = error;
	response.fix = fix;
	response.unknown = true;
	admin__reply_early(r, &response);
}

static void refused_why(struct admin_req *r, int status, const char *why)
{
	admin__why(
		r, status,
		"Look what there is now, and run the command again; if it is refused again, basalt support collects what who helps needs.",
		"the directory refused the change: %s",
		why[0] != '\0' ? why : err_text(status));
}

static uint64_t directory_revision(struct admin_req *r)
{
	struct cmmds_info info;

	cmmds_info(r->node->cmmds, &info);
	return info.revision;
}

static void on_changed(struct cmmds_command *cmd, int status)
{
	struct admin_req *r = cmd->data;
	uint64_t revision = cmd->revision;
	char why[128];

	if (status == -ETIMEDOUT && r->attempts++ < 2 &&
	    cmmds_propose_again(cmd, 0, on_changed) == 0)
		return;
	snprintf(why, sizeof(why), "%s", cmd->why);
	cmmds_command_fini(cmd);
	switch (status) {
	case 0:
		log_info("request %s of %s changed the directory, revision "
			 "%llu",
			 r->id, r->who, (unsigned long long)revision);
		r->applied(r);
		return;
	case -EINVAL: /* it may be what came between that speaks against it */
		if (directory_revision(r) != r->built_on &&
		    r->attempts++ < ATTEMPTS_MAX) {
			change_try(r);
			return;
		}
		refused_why(r, status, why);
		break;
	case -EAGAIN:
	case -EEXIST:
	case -ENOENT: /* @build saw an older state, or says it better */
		if (r->attempts++ < ATTEMPTS_MAX) {
			change_try(r);
			return;
		}
		admin__why(r, -EAGAIN, "Run the command again.",
			   "the directory changes faster than this command");
		break;
	default:
		if (!admin__unknown(r, status))
			refused_why(r, status, why);
	}
	change_fail(r);
}

static void on_busy_timer(struct env_timer *timer)
{
	change_try(container_of(timer, struct admin_req, busy_timer));
}

/*
 * So many changes are under way, mostly of owners that begin: where thousands of
 * LUNs are added or served again they fill the queue for a while.  True: @r waits.
 */
static bool change_waits(struct admin_req *r)
{
	uint64_t now = env_now(r->node->env);

	if (r->busy_until_ns == 0)
		r->busy_until_ns = now + BUSY_NS_MAX;
	if (now >= r->busy_until_ns)
		return false;
	r->busy_timer.cb = on_busy_timer;
	env_timer_start(r->node->env, &r->busy_timer, BUSY_NS);
	return true;
}

static void change_try(struct admin_req *r)
{
	int rv;

	if (is_stopping(r) || is_stuck(r)) {
		change_fail(r);
		return;
	}
	cmmds_command_init(&r->command);
	r->command.data = r;
	r->built_on = directory_revision(r);
	rv = r->build(r, &r->command);
	if (rv < 0) {
		cmmds_command_fini(&r->command);
		change_fail(r);
		return;
	}
	rv = cmmds_propose(r->node->cmmds, &r->command, 0, on_changed);
	if (rv == -EBUSY && change_waits(r)) {
		cmmds_command_fini(&r->command);
		return;
	}
	r->busy_until_ns = 0;
	if (rv < 0) {
		admin__why(r, rv, "Run the command again.",
			   "the directory does not take the change now: %s",
			   r->command.why[0] ? r->command.why : err_text(rv));
		cmmds_command_fini(&r->command);
		change_fail(r);
	}
}

static void applied_ok(struct admin_req *r)
{
	admin__ok(r, "done");
}

void admin__change(struct admin_req *r,
		   int (*build)(struct admin_req *r, struct cmmds_command *cmd),
		   void (*applied)(struct admin_req *r))
{
	r->build = build;
	r->applied = applied != NULL ? applied : applied_ok;
	r->attempts = 0;
	r->changes = true;
	change_try(r);
}

/* ---- names ---- */

int admin__name_check(struct admin_req *r, const char *what, const char *name,
		      bool lower)
{
	if (names_ok(name, lower))
		return 0;
	return admin__why(r, -EINVAL,
			  lower ? "It becomes part of an iSCSI name: 1 to 63 "
				  "small letters, digits, '.' and '-', "
				  "beginning with a letter or digit."
				: "1 to 63 letters, digits, '.', '_' and '-', "
				  "beginning with a letter or digit.",
			  "'%.80s' cannot be the name of a %s", name, what);
}

/* ---- requests ---- */

struct command {
	Admin__Request__CommandCase which;
	const char *name;
	void (*handle)(struct admin_req *r);
	bool anywhere; /* also in no cluster */
	bool changes; /* the directory */
};

#define ROW(NAME, handler, anywhere, changes)                                  \
	{                                                                      \
		ADMIN__REQUEST__COMMAND_##NAME, #NAME, handler, anywhere,      \
			changes                                                \
	}
#define ANYWHERE(NAME, handler) ROW(NAME, handler, true, false)
#define COMMAND(NAME, handler) ROW(NAME, handler, false, false)
#define CHANGE(NAME, handler) ROW(NAME, handler, false, true)

static const struct command commands[] = {
	ANYWHERE(CLUSTER_INIT, admin__cluster_init),
	ANYWHERE(CLUSTER_STATUS, admin__cluster_status),
	COMMAND(CLUSTER_BACKUP, admin__cluster_backup),
	CHANGE(DISK_ADD, admin__disk_add),
	COMMAND(DISK_LIST, admin__disk_list),
	CHANGE(DISK_REMOVE, admin__disk_remove),
	COMMAND(DISK_REBUILD, admin__disk_rebuild),
	COMMAND(DISK_RETRY, admin__disk_retry),
	COMMAND(DISK_SCRUB, admin__disk_scrub),
	CHANGE(POLICY_CREATE, admin__policy_create),
	COMMAND(POLICY_LIST, admin__policy_list),
	COMMAND(POLICY_SHOW, admin__policy_show),
	CHANGE(POLICY_SET, admin__policy_set),
	CHANGE(POLICY_DELETE, admin__policy_delete),
	CHANGE(VDISK_CREATE, admin__vdisk_create),
	COMMAND(VDISK_LIST, admin__vdisk_list),
	COMMAND(VDISK_SHOW, admin__vdisk_show),
	CHANGE(VDISK_RESIZE, admin__vdisk_resize),
	CHANGE(VDISK_SET, admin__vdisk_set),
	CHANGE(VDISK_RENAME, admin__vdisk_rename),
	CHANGE(VDISK_DELETE, admin__vdisk_delete),
	CHANGE(TARGET_CREATE, admin__target_create),
	CHANGE(TARGET_SET, admin__target_set),
	COMMAND(TARGET_LIST, admin__target_list),
	COMMAND(TARGET_SHOW, admin__target_show),
	CHANGE(TARGET_DELETE, admin__target_delete),
	CHANGE(LUN_ADD, admin__lun_add),
	COMMAND(LUN_LIST, admin__lun_list),
	CHANGE(LUN_REMOVE, admin__lun_remove),
	COMMAND(SESSION_LIST, admin__session_list),
	COMMAND(SESSION_DROP, admin__session_drop),
	COMMAND(PORTAL_LIST, admin__portal_list),
	CHANGE(PORTAL_SET, admin__portal_set),
	COMMAND(OBJECT_SHOW, admin__object_show),
	COMMAND(OBJECT_LIST, admin__object_list),
	CHANGE(OBJECT_DROP, admin__object_drop),
	CHANGE(OBJECT_ACCEPT, admin__object_accept),
	ANYWHERE(HEALTH, admin__health),
	ANYWHERE(METRICS, admin__metrics),
	COMMAND(LATENCY, admin__latency),
	COMMAND(VDISK_STATS, admin__vdisk_stats),
	COMMAND(EVENTS, admin__events),
	ANYWHERE(LOG_LEVEL, admin__log_level),
};

void admin__dispatch(struct admin_req *r)
{
	const struct command *c = NULL;
	struct node *node = r->node;
	struct uuid id = { { 0 } };

	for (size_t i = 0; i < ARRAY_LEN(commands); i++)
		if (commands[i].which == r->msg->command_case)
			c = &commands[i];
	if (c == NULL) {
		admin__why(r, -EOPNOTSUPP,
			   "Use the basalt that came with this basaltd.",
			   "basaltd " BASALT_VERSION
			   " does not know this command");
		admin__refuse(r);
		return;
	}
	if (r->msg->request_id.len > 0)
		memcpy(id.b, r->msg->request_id.data,
		       MIN(r->msg->request_id.len, sizeof(id)));
	uuid_format(&id, r->id);
	log_debug("request %s of %s: %s", r->id, r->who, c->name);
	r->changes = c->changes;
	if (c->anywhere || node->state == NODE_UP) {
		/* Before it begins anything else. */
		if (c->changes && is_stuck(r))
			admin__refuse(r);
		else
			c->handle(r);
		return;
	}
	switch (node->state) {
	case NODE_ALONE:
		admin__why(r, -ENOTCONN, "basalt cluster init --name NAME",
			   "node %s is in no cluster yet", node->config->name);
		break;
	case NODE_STARTING:
		admin__why(r, -EAGAIN, "Try again in a moment.",
			   "node %s is still opening its directory",
			   node->config->name);
		break;
	default:
		admin__stopping(r);
		return;
	}
	admin__refuse(r);
}
