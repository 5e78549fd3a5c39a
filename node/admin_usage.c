/*
 * admin_usage: what initiators do with each virtual disk, in some seconds or
 * since it is exported; and how commands that look on let time pass.
 */
#define LOG_ROOM LOG_NODE
#include "base/util.h"
#include "node/admin_int.h"

#include <assert.h>
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
		admin__why(w->r, -ECANCELED, ADMIN_UNHEARD_FIX, ADMIN_UNHEARD);
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
	return admin__why(r, -EINVAL, "Give fewer with --seconds.",
			  "%u seconds: at most %u", seconds, SECONDS_MAX);
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

#define BUCKETS 4096u /* there may be as many virtual disks, and more */

struct usage_then {
	struct iscsi_usage usage;
	size_t chain; /* the next of its bucket, from 1 */
};

struct usage_line {
	uint64_t work_ns;
	size_t at, len; /* as it is packed */
};

struct usage_ctx {
	struct admin_watch watch;
	struct admin_req *r;
	char name[CMMDS_KEY_MAX + 1]; /* "": all */
	uint64_t since_ns;
	/* How it was then; nothing: since they are exported. */
	struct node_parts parts;
	struct node_walk walk;
	struct usage_then *then;
	size_t then_count, then_room;
	size_t buckets[BUCKETS]; /* by object, from 1; 0: none */
	bool no_memory;
	/* And now. */
	struct admin_list list;
	struct admin_index index;
	struct usage_line *lines;
	size_t lines_count, lines_room;
	size_t head_len; /* what is packed before them */
};

/* Room in @array of @room for one more than @count.  False: no memory. */
static bool room_for_one(void **array, size_t count, size_t *room, size_t size)
{
	size_t more = 2 * *room + 1;
	void *p;

	if (count < *room)
		return true;
	p = realloc(*array, more * size);
	if (p == NULL)
		return false;
	*array = p;
	*room = more;
	return true;
}

static bool then_add(const struct cmmds_entry *e, void *arg)
{
	struct usage_ctx *ctx = arg;
	void *array = ctx->then;
	struct usage_then *t;
	size_t *bucket;

	ctx->no_memory = !room_for_one(&array, ctx->then_count, &ctx->then_room,
				       sizeof(*t));
	ctx->then = array;
	if (ctx->no_memory)
		return false;
	t = &ctx->then[ctx->then_count++];
	node__usage(ctx->r->node, (const void *)e->message, &t->usage);
	bucket = &ctx->buckets[uuid_hash(&t->usage.object) % BUCKETS];
	t->chain = *bucket;
	*bucket = ctx->then_count;
	return true;
}

static const struct iscsi_usage *then_of(const struct usage_ctx *ctx,
					 const struct uuid *object)
{
	size_t i = ctx->buckets[uuid_hash(object) % BUCKETS];

	while (i > 0 && !uuid_equal(&ctx->then[i - 1].usage.object, object))
		i = ctx->then[i - 1].chain;
	return i > 0 ? &ctx->then[i - 1].usage : NULL;
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
		      const Directory__VDisk *v, const struct iscsi_usage *u,
		      struct stat_answer *out)
{
	Admin__VdiskStat *m = &out->m;

	admin__vdisk_stat__init(m);
	times_fill(&out->read, &u->reads);
	times_fill(&out->write, &u->writes);
	m->vdisk = v->name;
	m->read = &out->read;
	m->write = &out->write;
	m->read_bytes = u->read_bytes;
	m->written_bytes = u->written_bytes;
	m->unmaps = u->unmaps;
	m->failed = u->failed;
	m->sessions = admin__index_used(index, v->name);
}

static bool on_vdisk(struct admin_list *list, const struct cmmds_entry *e)
{
	struct usage_ctx *ctx = container_of(list, struct usage_ctx, list);
	const Directory__VDisk *v = (const Directory__VDisk *)e->message;
	Admin__VdiskStats m = ADMIN__VDISK_STATS__INIT;
	struct stat_answer stat;
	Admin__VdiskStat *one = &stat.m;
	void *array = ctx->lines;
	struct iscsi_usage now;
	size_t at = list->len;

	node__usage(ctx->r->node, v, &now);
	gain(&now, then_of(ctx, &now.object));
	stat_fill(&ctx->index, v, &now, &stat);
	m.vdisks = &one;
	m.n_vdisks = 1;
	admin__list_add(list, &m.base);
	if (!room_for_one(&array, ctx->lines_count, &ctx->lines_room,
			  sizeof(*ctx->lines)))
		list->status = -ENOMEM;
	ctx->lines = array;
	if (list->status == 0)
		ctx->lines[ctx->lines_count++] = (struct usage_line){
			.work_ns = now.reads.sum_ns + now.writes.sum_ns,
			.at = at,
			.len = list->len - at,
		};
	return true;
}

/* The busiest first; else by name, as they were packed. */
static int by_work(const void *a, const void *b)
{
	const struct usage_line *x = a, *y = b;

	if (x->work_ns != y->work_ns)
		return x->work_ns < y->work_ns ? 1 : -1;
	return x->at < y->at ? -1 : 1;
}

static void lines_sort(struct admin_list *list)
{
	struct usage_ctx *ctx = container_of(list, struct usage_ctx, list);
	size_t len = ctx->head_len;
	uint8_t *sorted = malloc(list->len + 1);

	if (sorted == NULL) {
		list->status = -ENOMEM;
		return;
	}
	if (ctx->lines_count > 1)
		qsort(ctx->lines, ctx->lines_count, sizeof(*ctx->lines),
		      by_work);
	if (len > 0)
		memcpy(sorted, list->bytes, len);
	for (size_t i = 0; i < ctx->lines_count; i++) {
		const struct usage_line *l = &ctx->lines[i];

		memcpy(sorted + len, list->bytes + l->at, l->len);
		len += l->len;
	}
	assert(len == list->len);
	free(list->bytes);
	list->bytes = sorted;
}

static void usage_end(struct admin_watch *watch)
{
	struct usage_ctx *ctx = container_of(watch, struct usage_ctx, watch);
	struct admin_req *r = ctx->r;
	Admin__VdiskStats head = ADMIN__VDISK_STATS__INIT;
	const struct cmmds_entry *e;

	admin__index_open(&ctx->index, r->node);
	head.seconds = watch->seconds;
	if (head.seconds > 0)
		head.elapsed_ns = env_now(r->node->env) - ctx->since_ns;
	admin__list_add(&ctx->list, &head.base);
	ctx->head_len = ctx->list.len;
	if (ctx->index.no_memory)
		ctx->list.status = -ENOMEM;
	ctx->list.kind = CMMDS_VDISK;
	ctx->list.result = ADMIN__RESPONSE__RESULT_VDISK_STATS;
	ctx->list.each = on_vdisk;
	ctx->list.last = lines_sort;
	if (ctx->name[0] == '\0') {
		admin__list(r, &ctx->list);
		return;
	}
	e = cmmds_get(r->node->cmmds, CMMDS_VDISK, ctx->name,
		      strlen(ctx->name));
	if (e == NULL)
		ctx->list.status =
			admin__why(r, -ENOENT, "basalt vdisk list shows them.",
				   "virtual disk %s is not there any more",
				   ctx->name);
	admin__list_one(r, &ctx->list, e);
}

/* ---- how it is when it begins ---- */

static void usage_over(struct admin_req *r)
{
	struct usage_ctx *ctx = r->ctx;

	admin__index_close(&ctx->index);
	free(ctx->lines);
	free(ctx->then);
}

static void then_known(struct usage_ctx *ctx)
{
	if (ctx->no_memory)
		admin__no_memory(ctx->r);
	else
		admin__watch(&ctx->watch, ctx->r,
			     ctx->r->msg->vdisk_stats->seconds, usage_end);
}

static bool then_part(struct node_parts *parts, unsigned max)
{
	struct usage_ctx *ctx = container_of(parts, struct usage_ctx, parts);
	int rv = node__walk(ctx->r->node, &ctx->walk, CMMDS_VDISK, max,
			    then_add, ctx);

	if (rv > 0)
		return true;
	if (rv < 0)
		admin__stopping(ctx->r);
	else
		then_known(ctx);
	return false;
}

void admin__vdisk_stats(struct admin_req *r)
{
	const Admin__VdiskStatsAsk *m = r->msg->vdisk_stats;
	const struct cmmds_entry *e = NULL;
	struct usage_ctx *ctx;

	if (m->name[0] != '\0' && strlen(m->name) <= CMMDS_KEY_MAX)
		e = cmmds_get(r->node->cmmds, CMMDS_VDISK, m->name,
			      strlen(m->name));
	if (m->name[0] != '\0' && e == NULL)
		admin__why(r, -ENOENT, "basalt vdisk list shows them.",
			   "there is no virtual disk %.80s", m->name);
	if (r->status < 0 || admin__watch_check(r, m->seconds) < 0) {
		admin__refuse(r);
		return;
	}
	ctx = r->ctx = calloc(1, sizeof(*ctx));
	if (ctx == NULL) {
		admin__no_memory(r);
		return;
	}
	r->over = usage_over;
	ctx->r = r;
	strcpy(ctx->name, m->name);
	ctx->since_ns = env_now(r->node->env);
	ctx->parts.part = then_part;
	if (m->seconds == 0) {
		then_known(ctx);
	} else if (e != NULL) {
		then_add(e, ctx);
		then_known(ctx);
	} else {
		node__parts_start(r->node, &ctx->parts);
	}
}
