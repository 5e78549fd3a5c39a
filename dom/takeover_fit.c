/*
 * takeover_fit: components to the sizes their layout gives them.
 *
 * The directory accepts a new size first; what it cuts off goes only now, at the
 * takeover that follows, and at the next one if this one does not end:
 *
 *	RESIZE	a component whose size is not its leaf's
 *	trim	what lies in a component behind the object's last block: the rest
 *		of a row of stripes, or all of a component that cannot shrink,
 *		becomes holes, so that no later growth can bring it back
 *
 * Everything older is decided, so no COMMIT can come for what was cut off.
 */
#define LOG_ROOM LOG_DOM
#include "dom/dom_int.h"

#include "base/log.h"

#include <stdlib.h>

#define ITEMS_MAX 16u
#define HOLE_MAX (1ull << 30) /* bytes: work of one turn at most */

struct fit {
	struct dom__owner *owner;
	uint64_t patience_ns;
	void (*cb)(void *arg, int status);
	void *arg;
	unsigned at;
	uint64_t *used; /* bytes of each leaf that the object covers */
	struct dom__cm_scan scan;
	struct lsom_version items[ITEMS_MAX];
	struct dom__cm_write write;
	struct dom__cm_decide decide;
	struct env_timer timer;
	void (*again)(struct fit *f);
	struct env_task task;
};

static void fit_end(struct fit *f, int status)
{
	void (*cb)(void *arg, int status) = f->cb;
	void *arg = f->arg;

	if (status < 0)
		log_error("a component cannot take its size: %s",
			  err_text(status));
	free(f->used);
	free(f);
	cb(arg, status < 0 ? -ENXIO : 0);
}

static void again_fired(struct env_timer *timer)
{
	struct fit *f = container_of(timer, struct fit, timer);

	f->again(f);
}

/* A call failed at once: @again a little later if it was only busy. */
static void refused(struct fit *f, int status, void (*again)(struct fit *f))
{
	struct env *env = f->owner->dom->env;

	if (status == -EBUSY && env_now(env) < f->patience_ns) {
		f->again = again;
		f->timer.cb = again_fired;
		env_timer_start(env, &f->timer, DOM__BUSY_NS);
	} else {
		fit_end(f, status);
	}
}

static uint64_t comp_bytes(const struct fit *f)
{
	return lsom_comp_meta(f->owner->peers[f->at].cm->comp)->size_bytes;
}

/* ---- trim ---- */

static void trim(struct fit *f, uint64_t from);

static void decided(struct dom__cm_decide *req, int status)
{
	struct fit *f = container_of(req, struct fit, decide);

	if (status < 0) {
		fit_end(f, status);
		return;
	}
	dom__group_commit(&f->owner->groups[f->at], req->decide.lsn);
	trim(f, f->write.write.offset + f->write.write.len);
}

static void decide(struct fit *f)
{
	struct dom__peer *peer = &f->owner->peers[f->at];
	int rv = dom__cm_decide(peer->cm, &peer->fence, &f->decide, decided);

	if (rv < 0)
		refused(f, rv, decide);
}

static void written(struct dom__cm_write *req, int status)
{
	struct fit *f = container_of(req, struct fit, write);

	if (status < 0) {
		fit_end(f, status);
		return;
	}
	f->decide.decide =
		(struct lsom_decide){ .commit = true, .lsn = req->write.lsn };
	decide(f);
}

static void write_hole(struct fit *f)
{
	struct dom__peer *peer = &f->owner->peers[f->at];
	int rv = dom__cm_write(peer->cm, &peer->fence, &f->write, written);

	if (rv < 0)
		refused(f, rv, write_hole);
}

static void scanned(struct dom__cm_scan *req, int status)
{
	struct fit *f = container_of(req, struct fit, scan);
	struct dom__peer *peer = &f->owner->peers[f->at];

	if (status < 0) {
		fit_end(f, status);
		return;
	}
	for (unsigned i = 0; i < req->scan.items_count; i++) {
		uint64_t offset = f->items[i].offset;

		if (f->items[i].hole)
			continue;
		f->write.write = (struct lsom_write){
			.kind = LSOM_PREP,
			.flags = LSOM_W_HOLE,
			.offset = offset,
			.len = MIN(comp_bytes(f) - offset, HOLE_MAX),
			.lsn = dom__group_issue(&f->owner->groups[f->at]),
			.member_csn = peer->fence.member_csn,
		};
		write_hole(f);
		return;
	}
	trim(f, req->scan.next);
}

static void scan(struct fit *f)
{
	struct dom__peer *peer = &f->owner->peers[f->at];
	int rv = dom__cm_scan(peer->cm, &peer->fence, &f->scan, scanned);

	if (rv < 0)
		refused(f, rv, scan);
}

static void leaf_next(struct fit *f);

/* Make holes of what is mapped at @from and behind. */
static void trim(struct fit *f, uint64_t from)
{
	uint64_t end = comp_bytes(f);

	if (from >= end) {
		f->at++;
		leaf_next(f);
		return;
	}
	f->scan.scan = (struct lsom_scan){ .offset = from,
					   .len = end - from,
					   .items = f->items,
					   .items_max = ITEMS_MAX };
	scan(f);
}

/* ---- resize ---- */

static void sized(struct dom__cm_meta *req, int status)
{
	struct dom__peer *peer = container_of(req, struct dom__peer, meta);
	struct fit *f = peer->data;

	/* A store that cannot shrink a component keeps it: with holes. */
	if (status < 0 && status != -EOPNOTSUPP)
		fit_end(f, status);
	else
		trim(f, f->used[f->at]);
}

static void leaf_next(struct fit *f)
{
	struct dom__owner *owner = f->owner;
	struct dom__peer *peer;
	struct lsom_comp_meta meta;
	int rv;

	if (f->at == owner->leaves) {
		fit_end(f, 0);
		return;
	}
	peer = &owner->peers[f->at];
	meta = *lsom_comp_meta(peer->cm->comp);
	if (meta.size_bytes == peer->leaf->size_bytes) {
		trim(f, f->used[f->at]);
		return;
	}
	meta.size_bytes = peer->leaf->size_bytes;
	peer->data = f;
	rv = dom__cm_update(peer->cm, &peer->fence, &peer->meta, LSOM_RESIZE,
			    &meta, sized);
	if (rv == -EOPNOTSUPP)
		sized(&peer->meta, rv);
	else if (rv < 0)
		refused(f, rv, leaf_next);
}

static void fit_task(struct env_task *task)
{
	leaf_next(container_of(task, struct fit, task));
}

/* @cb with 0 or -ENXIO, later; components too busy are asked until @patience. */
int dom__fit_start(struct dom__owner *owner, uint64_t patience_ns,
		   void (*cb)(void *arg, int status), void *arg)
{
	struct fit *f = calloc(1, sizeof(*f));
	struct dom__extent *runs = calloc(owner->leaves, sizeof(*runs));
	uint64_t *used = calloc(owner->leaves, sizeof(*used));
	unsigned n;

	if (f == NULL || runs == NULL || used == NULL) {
		free(f);
		free(runs);
		free(used);
		return -ENOMEM;
	}
	n = dom__tree_spread(owner->tree, 0,
			     ROUND_UP(owner->size_bytes, (uint64_t)DOM_BLOCK),
			     runs);
	for (unsigned i = 0; i < n; i++)
		used[runs[i].leaf] = runs[i].offset + runs[i].len;
	free(runs);
	f->owner = owner;
	f->patience_ns = patience_ns;
	f->cb = cb;
	f->arg = arg;
	f->used = used;
	f->task.cb = fit_task;
	env_defer(owner->dom->env, &f->task);
	return 0;
}
