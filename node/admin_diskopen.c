/*
 * admin_diskopen: a disk is opened again: as it is, when it is not open or has
 * failed (retry), or with an index made anew from its log (rebuild).
 *
 * The rest of the node goes on meanwhile.  One that is open is closed first; by
 * then the commands of one that failed in service have their answers (-ENODEV
 * at the latest), its objects have let go of it, and what they had acknowledged
 * is in its log.  When it is open, objects that wait for it are taken again
 * under the sessions that they have.
 */
#define LOG_ROOM LOG_NODE
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "node/admin_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

struct reopen {
	struct admin_req *r;
	struct uuid id;
	char path[256];
	unsigned flags; /* NODE_OPEN_* */
	struct env_timer tick;
	unsigned percent; /* seen last */
	uint64_t step_ns; /* since then: closing, or at @percent */
	/* of a rebuild */
	struct lsom_checkpoint checkpoint;
	bool writes; /* the index, which was made: @checkpoint is on its way */
	unsigned components;
};

/* ---- both ---- */

static bool rebuilds(const struct reopen *ctx)
{
	return ctx->flags & NODE_OPEN_REBUILD;
}

static void reopen_closed(struct node_disk *d, int status, void *arg);
static void reopen_opened(struct node_disk *d, int status, void *arg);

/*
 * True: it hangs, and the request was answered; what is on its way to it ends the
 * request when that comes back.
 */
static bool rebuild_late(struct reopen *ctx, struct node_disk *d)
{
	if (!ctx->writes || d == NULL ||
	    node__disk_silent_ns(d) < ADMIN__HANGS_NS)
		return false;
	admin__why(
		ctx->r, -EBUSY,
		"It is written when it answers; if basaltd ends before that: "
		"repeat it.",
		"disk %s: the index was rebuilt, but it does not answer",
		ctx->path);
	admin__refuse_early(ctx->r);
	return true;
}

/*
 * True: it hangs, and the request ended.  A rebuild reads all of the disk: how
 * long it may take for one percent is not known.
 */
static bool reopen_late(struct reopen *ctx, struct node_disk *d)
{
	char word[NODE_DISK_WORD_MAX], fix[sizeof(ctx->r->fix)];
	bool opening = d != NULL && d->done == reopen_opened;
	unsigned percent = opening ? d->open.percent : 0;
	bool silent = opening && node__disk_silent_ns(d) >= ADMIN__HANGS_NS;

	if (percent != ctx->percent)
		ctx->step_ns = env_now(ctx->r->node->env);
	ctx->percent = percent;
	if (d == NULL || (!opening && d->done != reopen_closed) ||
	    (opening && rebuilds(ctx) && !silent) ||
	    env_now(ctx->r->node->env) - ctx->step_ns < ADMIN__HANGS_NS)
		return false;
	d->done = NULL;
	if (opening)
		snprintf(fix, sizeof(fix),
			 "It is %s when it answers; basalt disk list shows it.",
			 rebuilds(ctx) ? "rebuilt" : "opened");
	else
		snprintf(fix, sizeof(fix),
			 "It is closed when it answers; then: basalt disk %s "
			 "%s",
			 rebuilds(ctx) ? "rebuild" : "retry",
			 node__disk_word(d, word));
	admin__why(ctx->r, -EBUSY, fix, "disk %s does not answer", d->path);
	admin__refuse(ctx->r);
	return true;
}

static void on_tick(struct env_timer *timer)
{
	struct reopen *ctx = container_of(timer, struct reopen, tick);
	struct node_disk *d = node__disk_find(ctx->r->node, &ctx->id);
	bool closing = d == NULL || d->state == NODE_DISK_CLOSING;

	if (reopen_late(ctx, d) || rebuild_late(ctx, d))
		return;
	admin__progress(ctx->r, closing ? 0 : d->open.percent,
			closing		? "closing the disk"
			: rebuilds(ctx) ? "rebuilding the index from the log"
					: "opening the disk");
	env_timer_start(ctx->r->node->env, &ctx->tick, SEC);
}

/* The request ends, with what admin__why() set. */
static void reopen_refuse(struct reopen *ctx)
{
	env_timer_stop(ctx->r->node->env, &ctx->tick);
	admin__refuse(ctx->r);
}

static void reopen_removed(struct reopen *ctx)
{
	admin__why(ctx->r, -ENOENT, "basalt disk list shows what there is.",
		   "disk %s was removed meanwhile", ctx->path);
	reopen_refuse(ctx);
}

/* True: the node is going down, and the request ended with it. */
static bool reopen_stopping(struct reopen *ctx)
{
	if (ctx->r->node->state != NODE_UP)
		env_timer_stop(ctx->r->node->env, &ctx->tick);
	return admin__stopping(ctx->r);
}

static void reopen_done(struct reopen *ctx)
{
	struct admin_req *r = ctx->r;

	env_timer_stop(r->node->env, &ctx->tick);
	if (rebuilds(ctx)) {
		log_info("disk %s: index rebuilt from the log for %s",
			 ctx->path, r->who);
		admin__ok(r,
			  "disk %s: index rebuilt from the log, %u component%s",
			  ctx->path, ctx->components,
			  ctx->components == 1 ? "" : "s");
		return;
	}
	log_info("disk %s: in service again for %s", ctx->path, r->who);
	admin__ok(r, "disk %s is in service again, %u component%s", ctx->path,
		  ctx->components, ctx->components == 1 ? "" : "s");
}

/* Until here a crash would leave an index that is not whole. */
static void rebuild_durable(struct lsom_checkpoint *req, int status)
{
	struct reopen *ctx = req->data;

	if (reopen_stopping(ctx))
		return;
	if (status == 0) {
		reopen_done(ctx);
		return;
	}
	admin__why(ctx->r, status, "basalt disk list tells its state.",
		   "disk %s: the index was rebuilt, but cannot be written: %s",
		   ctx->path, err_text(status));
	reopen_refuse(ctx);
}

static void reopen_opened(struct node_disk *d, int status, void *arg)
{
	struct reopen *ctx = arg;
	struct admin_req *r = ctx->r;
	struct lsom_disk_info info;
	char fix[sizeof(r->fix)] = "";
	int rv;

	if (reopen_stopping(ctx))
		return;
	if (status < 0 && d->erase) {
		reopen_removed(ctx);
		return;
	}
	if (status < 0) {
		assert(d->state == NODE_DISK_FAILED);
		/* Not what has just failed. */
		if (!rebuilds(ctx) || status != -EUCLEAN)
			node__disk_fix(d, fix, sizeof(fix));
		admin__why(r, status, fix, "disk %s cannot be %s: %s", d->path,
			   rebuilds(ctx) ? "rebuilt from its log" : "opened",
			   d->why);
		reopen_refuse(ctx);
		return;
	}
	lsom_disk_info(d->disk, &info);
	ctx->components = info.components;
	if (!rebuilds(ctx)) {
		reopen_done(ctx);
		return;
	}
	ctx->checkpoint.data = ctx;
	ctx->writes = true;
	rv = lsom_checkpoint(d->disk, &ctx->checkpoint, rebuild_durable);
	if (rv < 0)
		rebuild_durable(&ctx->checkpoint, rv);
}

static void reopen_open(struct reopen *ctx)
{
	int rv = node__disk_open(ctx->r->node, &ctx->id, ctx->path, ctx->flags,
				 reopen_opened, ctx);

	ctx->step_ns = env_now(ctx->r->node->env);
	if (rv == 0)
		return;
	if (rv == -ENOENT) {
		reopen_removed(ctx);
		return;
	}
	admin__why(ctx->r, rv, "Try again in a moment.",
		   "disk %s cannot be %s now: %s", ctx->path,
		   rebuilds(ctx) ? "rebuilt" : "opened", err_text(rv));
	reopen_refuse(ctx);
}

static void reopen_closed(struct node_disk *d, int status, void *arg)
{
	struct reopen *ctx = arg;

	if (reopen_stopping(ctx))
		return;
	if (d->erase)
		reopen_removed(ctx);
	else
		reopen_open(ctx);
}

/* The command was checked: close @d if it is open, then open it. */
static void reopen(struct admin_req *r, struct node_disk *d, unsigned flags)
{
	struct reopen *ctx = calloc(1, sizeof(*ctx));

	if (ctx == NULL) {
		admin__no_memory(r);
		return;
	}
	r->ctx = ctx;
	ctx->r = r;
	ctx->id = d->id;
	ctx->flags = flags;
	strcpy(ctx->path, d->path);
	ctx->tick.cb = on_tick;
	ctx->step_ns = env_now(r->node->env);
	env_timer_start(r->node->env, &ctx->tick, SEC);
	if (flags & NODE_OPEN_LOSE_UNREADABLE)
		log_warn("disk %s: what cannot be read of it counts as lost, "
			 "for %s",
			 d->path, r->who);
	if (d->state != NODE_DISK_ONLINE) {
		reopen_open(ctx);
		return;
	}
	log_info("disk %s: closed, to be %s for %s", d->path,
		 rebuilds(ctx) ? "rebuilt" : "opened again", r->who);
	if (node__disk_close(d, false, reopen_closed, ctx) == 0)
		return;
	admin__why(r, -EBUSY, "Try again in a moment.",
		   "disk %s is being closed", ctx->path);
	reopen_refuse(ctx);
}

/* ---- one whose removal was cut off stays ---- */

struct keep {
	struct uuid id;
	char path[sizeof(((struct node_disk *)0)->path)];
};

static int keep_build(struct admin_req *r, struct cmmds_command *cmd)
{
	const struct keep *keep = r->ctx;
	const struct cmmds_entry *e = cmmds_get(r->node->cmmds, CMMDS_DISK,
						keep->id.b, sizeof(keep->id.b));
	Directory__Disk m;

	if (e == NULL)
		return admin__why(r, -ENOENT, "basalt disk list shows them.",
				  "disk %s was removed meanwhile", keep->path);
	m = *(const Directory__Disk *)e->message;
	m.removing = false;
	cmmds_put(cmd, CMMDS_DISK, keep->id.b, sizeof(keep->id.b), e->revision,
		  &m.base);
	cmmds_audit(cmd, r->who, "removal of disk %s of node %s called off",
		    keep->path, r->node->config->name);
	return 0;
}

static void keep_applied(struct admin_req *r)
{
	const struct keep *keep = r->ctx;

	admin__ok(r,
		  "disk %s stays: its removal, which was cut off, is called "
		  "off",
		  keep->path);
}

/* Nothing of it is gone yet; new data is placed on it again. */
static void keep(struct admin_req *r, const struct node_disk *d)
{
	struct keep *ctx = calloc(1, sizeof(*ctx));

	if (ctx == NULL) {
		admin__no_memory(r);
		return;
	}
	r->ctx = ctx;
	ctx->id = d->id;
	strcpy(ctx->path, d->path);
	admin__change(r, keep_build, keep_applied);
}

/* ---- retry ---- */

/* True, and why: what opens or closes it waits for the disk. */
static bool refuse_hanging(struct admin_req *r, struct node_disk *d)
{
	uint64_t silent = node__disk_silent_ns(d);
	char text[NODE_SILENT_MAX], fix[sizeof(r->fix)];

	if ((d->state != NODE_DISK_OPENING && d->state != NODE_DISK_CLOSING) ||
	    silent < LSOM_SILENT_NS)
		return false;
	node__silent_tell(d, silent, text);
	node__silent_fix(d, fix, sizeof(fix));
	admin__why(r, -EBUSY, fix, "disk %s is being %s, and %s", d->path,
		   d->state == NODE_DISK_OPENING ? "opened" : "closed",
		   text + strlen("it "));
	return true;
}

/* True: it is in service, and would not come to be closed. */
static bool is_silent(struct admin_req *r, const struct node_disk *d)
{
	struct lsom_disk_info info;

	if (d->state != NODE_DISK_ONLINE)
		return false;
	lsom_disk_info(d->disk, &info);
	if (info.silent_ns < LSOM_SILENT_NS)
		return false;
	admin__why(r, -EBUSY, NODE_SILENT_FIX, "disk %s does not answer",
		   d->path);
	return true;
}

/* 0, or why there is nothing to retry now. */
static int retry_check(struct admin_req *r, struct node_disk *d)
{
	char fix[sizeof(r->fix)], word[NODE_DISK_WORD_MAX];

	if (refuse_hanging(r, d) ||
	    (!node__disk_has_failed(d) && is_silent(r, d)))
		return -EBUSY;
	switch (d->state) {
	case NODE_DISK_OPENING:
		return admin__why(r, -EBUSY,
				  "Wait; basalt disk list shows how far it is.",
				  "disk %s is being opened already", d->path);
	case NODE_DISK_CLOSING:
		return admin__why(r, -EBUSY, "Try again in a moment.",
				  "disk %s is being closed", d->path);
	case NODE_DISK_ONLINE:
		if (node__disk_has_failed(d))
			return 0;
		snprintf(fix, sizeof(fix),
			 "Nothing is to be done.  If its index is in doubt: "
			 "basalt disk rebuild %s",
			 node__disk_word(d, word));
		return admin__why(r, -EBUSY, fix, "disk %s is in service",
				  d->path);
	case NODE_DISK_FAILED:
	case NODE_DISK_CLOSED:
		break;
	}
	return 0;
}

void admin__disk_retry(struct admin_req *r)
{
	const Admin__DiskRetry *m = r->msg->disk_retry;
	struct node_disk *d = admin__disk_named(r, m->name);

	if (d == NULL || admin__disk_leaving(r, d) < 0)
		admin__refuse(r);
	else if (d->state == NODE_DISK_ONLINE && !node__disk_has_failed(d) &&
		 admin__disk_half_removed(d))
		keep(r, d);
	else if (retry_check(r, d) < 0)
		admin__refuse(r);
	else
		reopen(r, d,
		       m->lose_unreadable ? NODE_OPEN_LOSE_UNREADABLE : 0);
}

/* ---- rebuild ---- */

/* True, and why: the log alone would bring back what was overwritten since. */
static bool rebuild_loses(struct admin_req *r, const struct node_disk *d)
{
	struct lsom_disk_info info;

	if (node__disk_is_older(d)) {
		admin__why(r, -EPERM,
			   "Put the disk itself back: basaltd looks for it; if "
			   "it is lost, repeat it with --force.",
			   "disk %s: %s; what was written since would be gone "
			   "unnoticed",
			   d->path, d->why);
		return true;
	}
	if (d->state != NODE_DISK_ONLINE)
		return false;
	lsom_disk_info(d->disk, &info);
	if (info.damage[0] == '\0')
		return false;
	admin__why(
		r, -EPERM,
		"Write again what cannot be read; or repeat it with --force.",
		"disk %s: when it was opened, %s; that reads as an error "
		"now and would read as it was earlier",
		d->path, info.damage);
	return true;
}

/* NULL: it is refused. */
static struct node_disk *rebuild_check(struct admin_req *r)
{
	const Admin__DiskRebuild *m = r->msg->disk_rebuild;
	struct node_disk *d = admin__disk_named(r, m->disk);

	if (d != NULL && admin__disk_leaving(r, d) == 0 && !is_silent(r, d) &&
	    !refuse_hanging(r, d) && (m->force || !rebuild_loses(r, d)))
		return d;
	admin__refuse(r);
	return NULL;
}

static void rebuild(struct admin_req *r, struct node_disk *d)
{
	bool lose = r->msg->disk_rebuild->lose_unreadable;

	reopen(r, d,
	       NODE_OPEN_REBUILD | (lose ? NODE_OPEN_LOSE_UNREADABLE : 0));
}

/* Sessions that would see the disk go: those of each object that is there. */
struct sessions {
	struct admin_req *r;
	struct uuid disk;
	struct admin_index index;
	struct node_parts parts;
	struct node_walk walk;
	unsigned count;
};

static bool sessions_of(const struct cmmds_entry *e, void *arg)
{
	const Directory__Object *o = (void *)e->message;
	struct sessions *s = arg;
	struct uuid oid;

	if (o->deleted || o->oid.len != sizeof(oid) ||
	    !node__tree_uses(o->tree, &s->disk))
		return true;
	memcpy(oid.b, o->oid.data, sizeof(oid));
	e = node__vdisk_of(s->r->node, &oid);
	if (e != NULL)
		s->count += admin__index_used(
			&s->index,
			((const Directory__VDisk *)e->message)->name);
	return true;
}

static void sessions_over(struct admin_req *r)
{
	admin__index_close(&((struct sessions *)r->ctx)->index);
}

static void rebuild_begin(struct admin_req *r, struct node_disk *d);

/* Of @disk; by now its path may be another one's. */
static void sessions_counted(struct admin_req *r, const struct uuid *disk,
			     unsigned sessions)
{
	struct node_disk *d = rebuild_check(r);

	if (d == NULL)
		return;
	if (!uuid_equal(&d->id, disk)) {
		rebuild_begin(r, d);
		return;
	}
	if (sessions == 0) {
		rebuild(r, d);
		return;
	}
	admin__why(r, -EBUSY,
		   "It goes out of service for the rebuild: log the "
		   "initiators out, or repeat it with --force.",
		   "disk %s is in use by %u session%s", d->path, sessions,
		   sessions == 1 ? "" : "s");
	admin__refuse(r);
}

static bool sessions_part(struct node_parts *parts, unsigned max)
{
	struct sessions *s = container_of(parts, struct sessions, parts);
	struct admin_req *r = s->r;
	int rv = node__walk(r->node, &s->walk, CMMDS_OBJECT, max, sessions_of,
			    s);
	struct uuid disk = s->disk;
	unsigned count = s->count;

	if (rv > 0)
		return true;
	if (rv < 0) {
		admin__stopping(r);
		return false;
	}
	sessions_over(r);
	r->over = NULL;
	r->ctx = NULL;
	free(s);
	sessions_counted(r, &disk, count);
	return false;
}

static void sessions_count(struct admin_req *r, const struct node_disk *d)
{
	struct sessions *s = calloc(1, sizeof(*s));

	if (s == NULL) {
		admin__no_memory(r);
		return;
	}
	r->ctx = s;
	r->over = sessions_over;
	s->r = r;
	s->disk = d->id;
	admin__index_open(&s->index, r->node);
	if (s->index.no_memory) {
		admin__no_memory(r);
		return;
	}
	s->parts.part = sessions_part;
	node__parts_start(r->node, &s->parts);
}

static void rebuild_begin(struct admin_req *r, struct node_disk *d)
{
	if (d->state == NODE_DISK_ONLINE && !r->msg->disk_rebuild->force)
		sessions_count(r, d);
	else
		rebuild(r, d);
}

void admin__disk_rebuild(struct admin_req *r)
{
	struct node_disk *d = rebuild_check(r);

	if (d != NULL)
		rebuild_begin(r, d);
}
