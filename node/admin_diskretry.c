/*
 * admin_diskretry: a disk that is not open, or that has failed, is opened again.
 *
 * The rest of the node goes on meanwhile.  One that failed in service is closed
 * first: by then its commands have their answers (-ENODEV at the latest), its
 * objects have let go of it, and what they had acknowledged is in its log.
 * When it is open, objects that wait for it are taken again under the sessions
 * that they have.
 */
#define LOG_ROOM LOG_NODE
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "node/admin_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

struct disk_retry {
	struct admin_req *r;
	struct uuid id;
	char path[256];
	struct env_timer tick;
};

static void on_tick(struct env_timer *timer)
{
	struct disk_retry *ctx = container_of(timer, struct disk_retry, tick);
	const struct node_disk *d = node__disk_find(ctx->r->node, &ctx->id);
	bool opening = d != NULL && d->state == NODE_DISK_OPENING;

	admin__progress(ctx->r, opening ? d->open.percent : 0,
			opening ? "opening the disk" : "closing the disk");
	env_timer_start(ctx->r->node->env, &ctx->tick, SEC);
}

static void tick_start(struct disk_retry *ctx)
{
	ctx->tick.cb = on_tick;
	env_timer_start(ctx->r->node->env, &ctx->tick, SEC);
}

/* The request goes on, or it ends with the node.  @ctx may be gone: false. */
static bool tick_stop(struct disk_retry *ctx)
{
	env_timer_stop(ctx->r->node->env, &ctx->tick);
	return !admin__stopping(ctx->r);
}

static void retry_opened(struct node_disk *d, int status, void *arg)
{
	struct disk_retry *ctx = arg;
	struct admin_req *r = ctx->r;
	struct lsom_disk_info info;
	char fix[sizeof(r->fix)];

	if (!tick_stop(ctx))
		return;
	if (status < 0) {
		assert(d->state == NODE_DISK_FAILED);
		node__disk_fix(d, fix, sizeof(fix));
		admin__why(r, status, fix, "disk %s cannot be opened: %s",
			   d->path, d->why);
		admin__refuse(r);
		return;
	}
	lsom_disk_info(d->disk, &info);
	log_info("disk %s: in service again for %s", d->path, r->who);
	admin__ok(r, "disk %s is in service again, %u components", d->path,
		  info.components);
}

static void retry_start(struct disk_retry *ctx)
{
	struct admin_req *r = ctx->r;
	int rv = node__disk_open(r->node, &ctx->id, ctx->path, false,
				 retry_opened, ctx);

	if (rv == 0) {
		tick_start(ctx);
		return;
	}
	admin__why(r, rv, "Try again in a moment.",
		   "disk %s cannot be opened now: %s", ctx->path, err_text(rv));
	admin__refuse(r);
}

static void retry_closed(struct node_disk *d, int status, void *arg)
{
	struct disk_retry *ctx = arg;

	if (tick_stop(ctx))
		retry_start(ctx);
}

/* 0, or why there is nothing to retry now. */
static int retry_check(struct admin_req *r, const struct node_disk *d)
{
	char fix[sizeof(r->fix)];

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
			 "basalt disk rebuild %.200s",
			 d->path);
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
	struct node_disk *d = admin__disk_named(r, r->msg->disk_retry->name);
	struct disk_retry *ctx;

	if (d == NULL || admin__disk_leaving(r, d) < 0 ||
	    retry_check(r, d) < 0) {
		admin__refuse(r);
		return;
	}
	ctx = calloc(1, sizeof(*ctx));
	assert(ctx != NULL);
	r->ctx = ctx;
	ctx->r = r;
	ctx->id = d->id;
	strcpy(ctx->path, d->path);
	if (d->state != NODE_DISK_ONLINE) {
		retry_start(ctx);
		return;
	}
	log_info("disk %s: closed, to be opened again for %s", d->path, r->who);
	tick_start(ctx);
	if (node__disk_close(d, false, retry_closed, ctx) == 0)
		return;
	env_timer_stop(r->node->env, &ctx->tick);
	admin__why(r, -EBUSY, "Try again in a moment.",
		   "disk %s is being closed", ctx->path);
	admin__refuse(r);
}
