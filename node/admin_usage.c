/*
 * admin_usage: what initiators do with each virtual disk, in some seconds or
 * since it is exported; and how commands that look on let time pass.
 */
#define LOG_ROOM LOG_NODE
#include "base/util.h"
#include "node/admin_int.h"

#include <errno.h>
#include <stdlib.h>

/* ---- time passes ---- */

#define SECONDS_MAX 3600u

static void on_tick(struct env_timer *timer)
{
	struct admin_watch *w = container_of(timer, struct admin_watch, tick);

	if (admin__stopping(w->r))
		return;
	if (w->r->conn == NULL) {
		admin__why(w->r, -ECANCELED, NULL, "nobody waits for it");
		admin__refuse(w->r);
		return;
	}
	if (w->passed == w->seconds) {
		w->cb(w);
		return;
	}
	admin__progress(w->r, 100 * w->passed / w->seconds, "measuring");
	w->passed++;
	env_timer_start(w->r->node->env, timer, SEC);
}

int admin__watch_check(struct admin_req *r, unsigned seconds)
{
	if (seconds <= SECONDS_MAX)
		return 0;
	return admin__why(r, -EINVAL, NULL, "%u seconds: at most %u", seconds,
			  SECONDS_MAX);
}

void admin__watch(struct admin_watch *watch, struct admin_req *r,
		  unsigned seconds, void (*cb)(struct admin_watch *watch))
{
	watch->r = r;
	watch->seconds = seconds;
	watch->cb = cb;
	watch->tick.cb = on_tick;
	if (seconds == 0)
		cb(watch);
	else
		on_tick(&watch->tick);
}

/* ---- virtual disks ---- */

struct usage_ctx {
	struct admin_watch watch;
	struct admin_req *r;
	char name[CMMDS_KEY_MAX + 1]; /* "": all */
	uint64_t since_ns;
	size_t count; /* 0: since they are exported */
	struct iscsi_usage then[]; /* by object */
};

static int by_object(const void *a, const void *b)
{
	const struct iscsi_usage *x = a, *y = b;

	return memcmp(&x->object, &y->object, sizeof(struct uuid));
}

/* What came since @then; all of it if it was counted anew meanwhile. */
static void gain(struct iscsi_usage *now, const struct iscsi_usage *then)
{
	if (then == NULL || now->since_ns != then->since_ns)
		return;
	histogram_gain(&now->reads, &then->reads);
	histogram_gain(&now->writes, &then->writes);
	now->read_bytes -= then->read_bytes;
	now->written_bytes -= then->written_bytes;
	now->unmaps -= then->unmaps;
	now->failed -= then->failed;
}

struct stat_answer {
	Admin__VdiskStat m;
	Admin__Times read, write;
};

static void times_fill(Admin__Times *out, const struct histogram_value *v)
{
	admin__times__init(out);
	out->count = v->count;
	out->mean_ns = v->count > 0 ? v->sum_ns / v->count : 0;
	out->p50_ns = histogram_quantile(v, 500);
	out->p99_ns = histogram_quantile(v, 990);
	out->p999_ns = histogram_quantile(v, 999);
	out->max_ns = histogram_quantile(v, 1000);
}

static void stat_fill(const struct admin_index *index,
		      const struct node_usage *u, struct stat_answer *out)
{
	Admin__VdiskStat *m = &out->m;

	admin__vdisk_stat__init(m);
	times_fill(&out->read, &u->usage.reads);
	times_fill(&out->write, &u->usage.writes);
	m->vdisk = u->vdisk->name;
	m->read = &out->read;
	m->write = &out->write;
	m->read_bytes = u->usage.read_bytes;
	m->written_bytes = u->usage.written_bytes;
	m->unmaps = u->usage.unmaps;
	m->failed = u->usage.failed;
	m->sessions = admin__index_used(index, u->vdisk->name);
}

static uint64_t work_ns(const struct node_usage *u)
{
	return u->usage.reads.sum_ns + u->usage.writes.sum_ns;
}

/* The busiest first; else by name. */
static int by_work(const void *a, const void *b)
{
	const struct node_usage *x = a, *y = b;

	if (work_ns(x) != work_ns(y))
		return work_ns(x) < work_ns(y) ? 1 : -1;
	return strcmp(x->vdisk->name, y->vdisk->name);
}

static void answer(struct usage_ctx *ctx, const struct node_usage *all,
		   size_t count)
{
	struct stat_answer *a = calloc(count + 1, sizeof(*a));
	Admin__VdiskStat **list = calloc(count + 1, sizeof(*list));
	Admin__Response response = ADMIN__RESPONSE__INIT;
	Admin__VdiskStats m = ADMIN__VDISK_STATS__INIT;
	struct admin_index index;

	admin__index_open(&index, ctx->r->node, ADMIN_BY_VDISK);
	if (a == NULL || list == NULL || index.no_memory) {
		admin__no_memory(ctx->r);
		goto done;
	}
	m.seconds = ctx->watch.seconds;
	if (m.seconds > 0)
		m.elapsed_ns = env_now(ctx->r->node->env) - ctx->since_ns;
	m.vdisks = list;
	for (size_t i = 0; i < count; i++) {
		if (ctx->name[0] != '\0' &&
		    strcmp(ctx->name, all[i].vdisk->name) != 0)
			continue;
		stat_fill(&index, &all[i], &a[m.n_vdisks]);
		list[m.n_vdisks] = &a[m.n_vdisks].m;
		m.n_vdisks++;
	}
	response.result_case = ADMIN__RESPONSE__RESULT_VDISK_STATS;
	response.vdisk_stats = &m;
	if (ctx->name[0] == '\0' || m.n_vdisks > 0) {
		admin__reply(ctx->r, &response);
	} else {
		admin__why(ctx->r, -ENOENT, "basalt vdisk list shows them.",
			   "virtual disk %s is not there any more", ctx->name);
		admin__refuse(ctx->r);
	}
done:
	admin__index_close(&index);
	free(list);
	free(a);
}

static void usage_end(struct admin_watch *watch)
{
	struct usage_ctx *ctx = container_of(watch, struct usage_ctx, watch);
	size_t count = 0;
	struct node_usage *all = node__usages(ctx->r->node, &count);

	if (all == NULL) {
		admin__no_memory(ctx->r);
		return;
	}
	for (size_t i = 0; i < count; i++)
		gain(&all[i].usage,
		     bsearch(&all[i].usage, ctx->then, ctx->count,
			     sizeof(ctx->then[0]), by_object));
	qsort(all, count, sizeof(*all), by_work);
	answer(ctx, all, count);
	free(all);
}

/*
 * With how it is now, if time is to pass: the directory may change meanwhile.
 * NULL: no memory.
 */
static struct usage_ctx *ctx_new(struct admin_req *r, unsigned seconds)
{
	size_t count = 0;
	struct node_usage *all = node__usages(r->node, &count);
	struct usage_ctx *ctx =
		calloc(1, sizeof(*ctx) + count * sizeof(ctx->then[0]));

	if (all == NULL || ctx == NULL) {
		free(all);
		free(ctx);
		return NULL;
	}
	ctx->r = r;
	ctx->since_ns = env_now(r->node->env);
	if (seconds > 0)
		ctx->count = count;
	for (size_t i = 0; i < ctx->count; i++)
		ctx->then[i] = all[i].usage;
	free(all);
	return ctx;
}

void admin__vdisk_stats(struct admin_req *r)
{
	const Admin__VdiskStatsAsk *m = r->msg->vdisk_stats;
	struct usage_ctx *ctx;

	if (m->name[0] != '\0' &&
	    (strlen(m->name) > CMMDS_KEY_MAX ||
	     cmmds_vdisk(r->node->cmmds, m->name) == NULL))
		admin__why(r, -ENOENT, "basalt vdisk list shows them.",
			   "there is no virtual disk %.80s", m->name);
	if (r->status < 0 || admin__watch_check(r, m->seconds) < 0) {
		admin__refuse(r);
		return;
	}
	ctx = r->ctx = ctx_new(r, m->seconds);
	if (ctx == NULL) {
		admin__no_memory(r);
		return;
	}
	strcpy(ctx->name, m->name);
	admin__watch(&ctx->watch, r, m->seconds, usage_end);
}
