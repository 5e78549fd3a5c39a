/*
 * stray: components that are newer than the directory, and what an administrator
 * may do about them.
 *
 * gc.c and takeover.c let them alone, as a directory that was put back from a
 * backup must not destroy what it does not know.  A newer copy of it is the good
 * way out.  Where there is none:
 *
 *  - the directory has no entry for the object: nothing says how its components
 *    lie, so all that can be done is to delete them (drop, by gc.c);
 *  - it has one, but with an older layout: the object can be opened with that,
 *    once its csn is above what the components have seen (accept; the directory's
 *    ACCEPT also raises oepoch above what they promised, so that no takeover in
 *    vain goes before).
 *
 * Accepting is safe where the older layout shows nothing as the object's bytes
 * that a newer one would not have.  Every group is a single component here, and a
 * layout changes by RESIZE alone, which keeps the first leg.  Each takeover seals
 * all components of the layout of its time with one csn.  So the components that
 * the older one names, with their cinc (R13), their member_csn (R6) and one
 * csn_seen, are all in the newest, too, and hold the last that was written to
 * their range:
 *
 *  - it grew since: what lies behind the older end is cut off by the takeover
 *    that follows (takeover_fit.c), and gc deletes components that were added;
 *  - it shrank since: a component is missing, or smaller, or was not collected
 *    yet and has seen less than the others.  What was cut off would come back as
 *    zeros, or as it was long ago, so that is refused;
 *  - it did both: another component is where one was cut off, so it is the same;
 *    what was cut off a component that grew again reads as zeros, as it did
 *    before.
 *
 * In a mirror it would not be so: a leaf that the older layout calls ACTIVE may
 * have been excluded since, and miss acknowledged writes.  dom__tree_make()
 * refuses such layouts; whoever teaches it mirrors has to refuse them here.
 */
#include "dom/dom_int.h"

#include <stdio.h>
#include <stdlib.h>

#define WALK_NS (2 * SEC) /* for a shard's components, together */
#define ITEMS_MAX 256u

bool dom__stray(const struct dom *dom, const struct lsom_comp_meta *meta,
		bool *known)
{
	const Directory__Object *object = cmmds_object(dom->cmmds, &meta->oid);

	*known = object != NULL;
	return object == NULL ||
	       (!object->deleted && meta->csn_seen > object->csn);
}

/* ---- the list: shard by shard, as each knows its own objects ---- */

struct walk {
	struct dom_strays *req;
	struct dom *dom; /* of the shard that is asked */
	unsigned part, at;
	uint64_t end_ns, offset;
	int status;
	struct dom__walk walk;
	struct dom__cm *cm;
	struct lsom_scan scan;
	struct lsom_version items[ITEMS_MAX];
	struct env_task task;
	struct env_timer timer;
};

static void walk_here(struct env_task *task);

static void walk_home(struct walk *w)
{
	w->dom->jobs--;
	dom__kick(w->dom);
	w->part++;
	w->task.cb = walk_here;
	env_post(w->req->dom->env, &w->task);
}

static void walk_add(struct lsom_comp *comp, void *arg)
{
	const struct lsom_comp_meta *meta = lsom_comp_meta(comp);
	struct walk *w = arg;
	struct dom_strays *req = w->req;
	struct dom_stray *items;
	bool known;

	if (w->status < 0 || !dom__mine(w->dom, &meta->oid) ||
	    !(uuid_is_zero(&req->oid) || uuid_equal(&req->oid, &meta->oid)) ||
	    !dom__stray(w->dom, meta, &known))
		return;
	/* Room doubles: it is the power of two at or above the count. */
	if ((req->count & (req->count - 1)) == 0) {
		items = realloc(req->items, (req->count ? req->count * 2 : 1) *
						    sizeof(*items));
		if (items == NULL) {
			w->status = -ENOMEM;
			return;
		}
		req->items = items;
	}
	req->items[req->count++] = (struct dom_stray){
		.oid = meta->oid,
		.cid = meta->cid,
		.disk = w->walk.disk->id,
		.size_bytes = meta->size_bytes,
		.known = known,
	};
}

/* What is not counted is taken for used, as far as the disk's use allows. */
static void walk_counted(struct walk *w)
{
	struct dom_stray *stray = &w->req->items[w->at++];
	struct lsom_disk_info info;

	stray->used_exact = w->offset == stray->size_bytes;
	if (!stray->used_exact) {
		lsom_disk_info(w->cm->disk->lsom, &info);
		stray->used_bytes += stray->size_bytes - w->offset;
		stray->used_bytes = MIN(stray->used_bytes, info.used_bytes);
	}
	dom__cm_put(w->cm);
	w->cm = NULL;
}

static void walk_next(struct walk *w);

static void walk_scanned(struct lsom_scan *scan, int status)
{
	struct walk *w = container_of(scan, struct walk, scan);
	struct dom_stray *stray = &w->req->items[w->at];

	if (status < 0) {
		walk_counted(w);
		walk_next(w);
		return;
	}
	for (unsigned i = 0; i < scan->items_count; i++)
		if (!scan->items[i].hole)
			stray->used_bytes += DOM_BLOCK;
	w->offset = scan->next;
	walk_next(w);
}

/* False: there is nothing to count, or no time. */
static bool walk_scan(struct walk *w)
{
	uint64_t size = w->req->items[w->at].size_bytes;

	if (w->offset == size || w->dom->closing || w->cm->disk->removing ||
	    env_now(w->dom->env) >= w->end_ns)
		return false;
	w->scan = (struct lsom_scan){ .offset = w->offset,
				      .len = size - w->offset,
				      .items = w->items,
				      .items_max = ITEMS_MAX };
	return lsom_scan(w->cm->comp, &w->scan, walk_scanned) == 0;
}

static bool walk_open(struct walk *w)
{
	struct dom_stray *stray = &w->req->items[w->at];
	struct dom__disk *disk = dom__disk_find(w->dom, &stray->disk);

	w->offset = 0;
	return disk != NULL && !disk->removing &&
	       dom__cm_get(disk, &stray->cid, &w->cm) == 0;
}

static void walk_go_on(struct env_timer *timer)
{
	walk_next(container_of(timer, struct walk, timer));
}

static void walk_next(struct walk *w)
{
	unsigned n = 0;

	for (; w->at < w->req->count && n < DOM__PART; n++) {
		if (w->cm == NULL && !walk_open(w)) {
			w->req->items[w->at].used_bytes =
				w->req->items[w->at].size_bytes;
			w->at++;
			continue;
		}
		if (walk_scan(w))
			return;
		walk_counted(w);
	}
	if (w->at == w->req->count) {
		walk_home(w);
		return;
	}
	w->timer.cb = walk_go_on;
	env_timer_start(w->dom->env, &w->timer, ENV_NEXT_TURN_NS);
}

static void walk_some(struct env_timer *timer)
{
	struct walk *w = container_of(timer, struct walk, timer);

	if (w->dom->closing)
		w->status = -ESHUTDOWN;
	if (w->status == 0 &&
	    dom__walk(w->dom, &w->walk, DOM__PART, walk_add, w))
		env_timer_start(w->dom->env, timer, ENV_NEXT_TURN_NS);
	else
		walk_next(w);
}

static void walk_there(struct env_task *task)
{
	struct walk *w = container_of(task, struct walk, task);

	w->dom->jobs++;
	w->end_ns = env_now(w->dom->env) + WALK_NS;
	w->walk = (struct dom__walk){ 0 };
	w->timer.cb = walk_some;
	walk_some(&w->timer);
}

static void walk_here(struct env_task *task)
{
	struct walk *w = container_of(task, struct walk, task);
	struct dom_strays *req = w->req;
	struct dom *dom = req->dom;
	int status = w->status;

	for (; w->part < dom->parts && status == 0; w->part++) {
		w->dom = dom__part(dom, w->part);
		if (w->dom == NULL)
			continue; /* coming up: it has no disks yet */
		w->task.cb = walk_there;
		env_post(w->dom->env, &w->task);
		return;
	}
	free(w);
	dom->jobs--;
	dom__kick(dom);
	req->cb(req, status);
}

int dom_strays(struct dom *dom, struct dom_strays *req, dom_strays_cb cb)
{
	struct walk *w;

	if (dom->closing)
		return -ESHUTDOWN;
	w = calloc(1, sizeof(*w));
	if (w == NULL)
		return -ENOMEM;
	req->items = NULL;
	req->count = 0;
	req->dom = dom;
	req->cb = cb;
	w->req = req;
	w->task.cb = walk_here;
	dom->jobs++;
	env_post(dom->env, &w->task);
	return 0;
}

/* ---- drop ---- */

static void drop_here(struct env_task *task)
{
	struct dom_drop *drop = container_of(task, struct dom_drop, task);
	struct dom *dom = drop->here;

	dom->jobs--;
	dom__kick(dom);
	drop->cb(drop, drop->status);
}

void dom__dropped(struct dom_drop *drop)
{
	drop->task.cb = drop_here;
	env_post(drop->here->env, &drop->task);
}

static void drop_there(struct env_task *task)
{
	struct dom_drop *drop = container_of(task, struct dom_drop, task);

	dom__gc_drop(drop->there, drop);
}

int dom_drop(struct dom *dom, struct dom_drop *req, dom_drop_cb cb)
{
	if (dom->closing)
		return -ESHUTDOWN;
	req->here = dom;
	req->there = dom__of(dom, &req->oid);
	if (req->there == NULL)
		return -EAGAIN; /* coming up: it has no disks yet */
	req->cb = cb;
	req->dropped = 0;
	req->status = 0;
	req->taken = req->more = false;
	req->deleting = req->failures = 0;
	memset(&req->late, 0, sizeof(req->late));
	req->task.cb = drop_there;
	dom->jobs++;
	env_post(req->there->env, &req->task);
	return 0;
}

/* ---- accept ---- */

static int accept_refuse(struct dom_accept *a, const struct uuid *cid,
			 const char *what)
{
	char text[UUID_TEXT_LEN];

	uuid_format(cid, text);
	snprintf(a->why, sizeof(a->why), "its component %s %s", text, what);
	return -EPERM;
}

/* @csn_seen: what the others have seen, or 0. */
static int accept_leaf(struct dom_accept *a, const struct dom__leaf *leaf,
		       uint64_t *csn_seen)
{
	struct dom__disk *disk = dom__disk_find(a->there, &leaf->disk);
	const struct lsom_comp_meta *meta;
	const char *what = NULL;
	struct lsom_comp *comp;

	if (leaf->state != LSOM_ACTIVE)
		return accept_refuse(a, &leaf->cid, "is not ACTIVE");
	if (disk == NULL || disk->removing || !disk->healthy)
		return accept_refuse(a, &leaf->cid,
				     "is on a disk that is not in service");
	comp = lsom_comp_get(disk->lsom, &leaf->cid);
	if (comp == NULL)
		return accept_refuse(a, &leaf->cid, "is gone");
	meta = lsom_comp_meta(comp);
	if (!uuid_equal(&meta->oid, &a->oid) || meta->cinc != leaf->cinc)
		what = "was replaced since";
	else if (meta->member_csn != leaf->member_csn)
		what = "was filled anew since";
	else if (meta->size_bytes < leaf->size_bytes)
		what = "was made smaller since: what the layout has behind "
		       "that is gone";
	else if (*csn_seen != 0 && meta->csn_seen != *csn_seen)
		what = "and the others did not take part in the same layout "
		       "last: it shrank since";
	else
		a->cut_bytes += meta->size_bytes - leaf->size_bytes;
	*csn_seen = meta->csn_seen;
	lsom_comp_put(comp);
	return what != NULL ? accept_refuse(a, &leaf->cid, what) : 0;
}

struct seen {
	struct dom_accept *a;
	const Directory__Object *object;
	uint64_t csn, oepoch;
};

static void accept_seen(struct lsom_comp *comp, void *arg)
{
	const struct lsom_comp_meta *meta = lsom_comp_meta(comp);
	struct seen *seen = arg;

	seen->csn = MAX(seen->csn, meta->csn_seen);
	seen->oepoch = MAX(seen->oepoch, meta->promised_oepoch);
	if (!dom__leaf_named(seen->object->tree, meta))
		seen->a->extra++;
}

static int accept_layout(struct dom_accept *a, const Directory__Object *object)
{
	uint64_t csn_seen = 0;
	struct dom__tree *tree;
	int rv = dom__tree_make(object->tree, object->size_bytes, &tree, a->why,
				sizeof(a->why));

	if (rv < 0)
		return rv;
	for (unsigned i = 0; i < dom__tree_leaves_count(tree) && rv == 0; i++)
		rv = accept_leaf(a, dom__tree_leaf(tree, i), &csn_seen);
	dom__tree_free(tree);
	return rv;
}

static int accept_check(struct dom_accept *a)
{
	struct dom *dom = a->there;
	const Directory__Object *object = cmmds_object(dom->cmmds, &a->oid);
	const struct dom__owner *owner = dom__owner_find(dom, &a->oid);
	struct seen seen = { .a = a, .object = object };
	struct dom__disk *disk;

	if (object == NULL || object->deleted) {
		snprintf(a->why, sizeof(a->why),
			 object == NULL ? "the directory does not know it"
					: "it is deleted");
		return -ENOENT;
	}
	TAILQ_FOREACH (disk, &dom->disks, link) {
		if (!disk->removing && disk->healthy)
			lsom_comp_each_of(disk->lsom, &a->oid, accept_seen,
					  &seen);
	}
	if (seen.csn <= object->csn || (owner != NULL && owner->leaves > 0)) {
		snprintf(a->why, sizeof(a->why),
			 "none of its components here is newer than its "
			 "layout in the directory, or it is open");
		return -EPERM;
	}
	a->expect_csn = object->csn;
	a->expect_oepoch = object->oepoch;
	a->csn = seen.csn + 1;
	a->oepoch = (uint32_t)MIN(MAX(seen.oepoch, object->oepoch), UINT32_MAX);
	return accept_layout(a, object);
}

static void accept_here(struct env_task *task)
{
	struct dom_accept *a = container_of(task, struct dom_accept, task);
	struct dom *dom = a->here;

	dom->jobs--;
	dom__kick(dom);
	a->cb(a, a->status);
}

static void accept_there(struct env_task *task)
{
	struct dom_accept *a = container_of(task, struct dom_accept, task);

	a->status = accept_check(a);
	a->task.cb = accept_here;
	env_post(a->here->env, &a->task);
}

int dom_accept_check(struct dom *dom, struct dom_accept *req, dom_accept_cb cb)
{
	if (dom->closing)
		return -ESHUTDOWN;
	req->here = dom;
	req->there = dom__of(dom, &req->oid);
	if (req->there == NULL)
		return -EAGAIN; /* coming up: it has no disks yet */
	req->cb = cb;
	req->cut_bytes = 0;
	req->extra = 0;
	req->why[0] = '\0';
	req->task.cb = accept_there;
	dom->jobs++;
	env_post(req->there->env, &req->task);
	return 0;
}
