/*
 * gc: what nobody refers to any more (g6.11).
 *
 * A component whose object is deleted, or no longer names it with this cinc, is
 * deleted, after a barrier: the local copy of the directory is a hint until then
 * (R22).  A deleted object's entry is erased when none of its components is left;
 * one on a disk that is away keeps it, so that the disk finds the tombstone when
 * it comes back (R25).
 *
 * The entry is there before the first component and until the last one is gone.
 * So a component without one, or that has seen a newer layout than the entry's,
 * was not left over: the directory is an older one, put back from a backup, or
 * the disk is.  It stays, and health tells of it.
 */
#define LOG_ROOM LOG_DOM
#include "dom/dom_int.h"

#include "base/log.h"

#include <stdlib.h>

#define BATCH 64u
#define RETRY_NS (1 * SEC)

struct victim {
	struct dom__disk *disk;
	struct uuid cid;
};

struct dom__gc {
	struct dom *dom;
	bool busy, again;
	bool retry; /* somebody was too busy, or did not answer */
	struct env_timer timer;
	struct env_task task;
	struct cmmds_barrier barrier;
	struct victim victims[BATCH];
	unsigned victims_count, at;
	struct dom__disk *looking;
	struct dom__cm *cm;
	struct lsom_meta meta;
	struct cmmds_command cmd;
};

static void gc_barrier_done(struct cmmds_barrier *barrier, int status);

static void gc_task(struct env_task *task)
{
	struct dom__gc *gc = container_of(task, struct dom__gc, task);

	if (gc->busy)
		return;
	if (gc->dom->closing) {
		dom__kick(gc->dom); /* it may wait for this very task */
		return;
	}
	gc->again = false;
	gc->retry = false;
	if (cmmds_barrier(gc->dom->cmmds, &gc->barrier, gc_barrier_done) == 0)
		gc->busy = true;
}

static void gc_timer(struct env_timer *timer)
{
	dom__gc_kick(container_of(timer, struct dom__gc, timer)->dom);
}

int dom__gc_open(struct dom *dom)
{
	dom->gc = calloc(1, sizeof(*dom->gc));
	if (dom->gc == NULL)
		return -ENOMEM;
	dom->gc->dom = dom;
	dom->gc->task.cb = gc_task;
	dom->gc->timer.cb = gc_timer;
	return 0;
}

void dom__gc_close(struct dom *dom)
{
	env_timer_stop(dom->env, &dom->gc->timer);
	free(dom->gc);
	dom->gc = NULL;
}

bool dom__gc_idle(const struct dom *dom)
{
	return !dom->gc->busy && !dom->gc->task.queued;
}

void dom__gc_kick(struct dom *dom)
{
	struct dom__gc *gc = dom->gc;

	if (gc->busy)
		gc->again = true;
	else
		env_defer(dom->env, &gc->task);
}

static void gc_end(struct dom__gc *gc)
{
	gc->busy = false;
	if (gc->again)
		env_defer(gc->dom->env, &gc->task);
	else if (gc->retry)
		env_timer_start(gc->dom->env, &gc->timer, RETRY_NS);
	dom__kick(gc->dom);
}

static const Directory__Leaf *leaf_named(const Directory__TreeNode *node,
					 const struct uuid *cid)
{
	const Directory__Leaf *found = NULL;
	struct uuid id;

	if (node == NULL)
		return NULL;
	if (node->leaf != NULL && dom__uuid_of(&node->leaf->cid, &id) &&
	    uuid_equal(&id, cid))
		return node->leaf;
	for (size_t i = 0; i < node->n_children && found == NULL; i++)
		found = leaf_named(node->children[i], cid);
	return found;
}

/* Has the directory let go of the component? */
static bool unneeded(const Directory__Object *object,
		     const struct lsom_comp_meta *meta)
{
	const Directory__Leaf *leaf;

	if (object == NULL)
		return false;
	if (object->deleted)
		return true;
	leaf = leaf_named(object->tree, &meta->cid);
	if (leaf != NULL && leaf->cinc == meta->cinc)
		return false;
	return meta->csn_seen <= object->csn;
}

static void look_at(struct lsom_comp *comp, void *arg)
{
	struct dom__gc *gc = arg;
	const struct lsom_comp_meta *meta = lsom_comp_meta(comp);
	const Directory__Object *object =
		cmmds_object(gc->dom->cmmds, &meta->oid);
	const struct dom__owner *owner = dom__owner_find(gc->dom, &meta->oid);

	if (!dom__mine(gc->dom, &meta->oid) || !unneeded(object, meta))
		return;
	/* An owner that has not let go yet kicks us when it does. */
	if (owner != NULL && owner->leaves > 0)
		return;
	if (gc->victims_count == BATCH) {
		gc->again = true;
		return;
	}
	gc->victims[gc->victims_count++] =
		(struct victim){ .disk = gc->looking, .cid = meta->cid };
}

static void tombstones(struct dom__gc *gc);
static void victim_next(struct dom__gc *gc);

static void victim_gone(struct lsom_meta *meta, int status)
{
	struct dom__gc *gc = container_of(meta, struct dom__gc, meta);
	char cid[UUID_TEXT_LEN];

	uuid_format(&gc->victims[gc->at].cid, cid);
	gc->retry |= status == -ETIMEDOUT; /* a disk of another shard */
	if (status < 0)
		log_warn("component %s cannot be deleted: %s", cid,
			 err_text(status));
	else
		log_info("component %s is no longer needed: deleted", cid);
	dom__cm_put(gc->cm);
	gc->cm = NULL;
	gc->at++;
	victim_next(gc);
}

static void victim_next(struct dom__gc *gc)
{
	for (; gc->at < gc->victims_count; gc->at++) {
		struct victim *v = &gc->victims[gc->at];
		struct dom__disk *disk;
		int rv;

		TAILQ_FOREACH (disk, &gc->dom->disks, link) {
			if (disk == v->disk)
				break;
		}
		if (disk == NULL || disk->removing || gc->dom->closing)
			continue;
		gc->cm = dom__cm_get(disk, &v->cid);
		if (gc->cm == NULL)
			continue;
		gc->meta = (struct lsom_meta){
			.op = LSOM_DELETE, .meta = *lsom_comp_meta(gc->cm->comp)
		};
		rv = lsom_comp_update(gc->cm->comp, &gc->meta, victim_gone);
		if (rv == 0)
			return;
		gc->retry |= rv == -EBUSY;
		dom__cm_put(gc->cm);
		gc->cm = NULL;
	}
	tombstones(gc);
}

static bool leaves_gone(struct dom *dom, const Directory__TreeNode *node)
{
	struct dom__disk *disk;
	struct uuid id, cid;
	struct lsom_comp *comp;

	if (node == NULL)
		return true;
	for (size_t i = 0; i < node->n_children; i++) {
		if (!leaves_gone(dom, node->children[i]))
			return false;
	}
	if (node->leaf == NULL || !dom__uuid_of(&node->leaf->disk, &id) ||
	    !dom__uuid_of(&node->leaf->cid, &cid))
		return true;
	if (cmmds_get(dom->cmmds, CMMDS_DISK, id.b, sizeof(id.b)) == NULL)
		return true; /* removed for good */
	disk = dom__disk_find(dom, &id);
	if (disk == NULL || disk->removing)
		return false;
	comp = lsom_comp_get(disk->lsom, &cid);
	if (comp != NULL)
		lsom_comp_put(comp);
	return comp == NULL;
}

struct search {
	const struct uuid *oid;
	bool found;
};

static void search_at(struct lsom_comp *comp, void *arg)
{
	struct search *search = arg;

	search->found |= uuid_equal(&lsom_comp_meta(comp)->oid, search->oid);
}

/*
 * Nor is there one that a resize cut off, and that was not deleted yet.  The
 * entry says no more where these were, so every disk of this node is asked.
 */
static bool comps_gone(struct dom *dom, const struct uuid *oid)
{
	struct search search = { .oid = oid };
	const struct cmmds_entry *e = NULL;
	struct dom__disk *disk;
	struct uuid id, node;

	while ((e = cmmds_next(dom->cmmds, CMMDS_DISK, e)) != NULL) {
		const Directory__Disk *m = (const void *)e->message;

		if (m == NULL || !dom__uuid_of(&m->uuid, &id) ||
		    !dom__uuid_of(&m->node, &node) ||
		    !uuid_equal(&node, &dom->node))
			continue;
		disk = dom__disk_find(dom, &id);
		if (disk == NULL || disk->removing || !disk->healthy)
			return false;
		lsom_comp_each(disk->lsom, search_at, &search);
	}
	return !search.found;
}

static void tombstone_gone(struct cmmds_command *cmd, int status)
{
	struct dom__gc *gc = container_of(cmd, struct dom__gc, cmd);

	cmmds_command_fini(cmd);
	gc->retry |= status == -ETIMEDOUT;
	if (status < 0 && status != -EAGAIN) {
		log_warn("a deleted object's entry stays: %s",
			 err_text(status));
		gc_end(gc);
		return;
	}
	tombstones(gc);
}

static void tombstones(struct dom__gc *gc)
{
	struct dom *dom = gc->dom;
	const struct cmmds_entry *entry = NULL, *reservation;

	while (!dom->closing &&
	       (entry = cmmds_next(dom->cmmds, CMMDS_OBJECT, entry)) != NULL) {
		const Directory__Object *object = (const void *)entry->message;

		struct uuid oid;

		if (object == NULL || !object->deleted ||
		    !dom__uuid_of(&object->oid, &oid) ||
		    !dom__mine(dom, &oid) || !leaves_gone(dom, object->tree) ||
		    !comps_gone(dom, &oid))
			continue;
		reservation = cmmds_get(dom->cmmds, CMMDS_RESERVATION,
					entry->key, entry->key_len);
		cmmds_command_init(&gc->cmd);
		if (reservation != NULL)
			cmmds_erase(&gc->cmd, CMMDS_RESERVATION, entry->key,
				    entry->key_len, reservation->revision);
		cmmds_erase(&gc->cmd, CMMDS_OBJECT, entry->key, entry->key_len,
			    entry->revision);
		if (cmmds_propose(dom->cmmds, &gc->cmd, 0, tombstone_gone) == 0)
			return;
		cmmds_command_fini(&gc->cmd);
		gc->retry = true;
		break;
	}
	gc_end(gc);
}

static void gc_barrier_done(struct cmmds_barrier *barrier, int status)
{
	struct dom__gc *gc = container_of(barrier, struct dom__gc, barrier);

	gc->victims_count = 0;
	gc->at = 0;
	gc->retry = status == -ETIMEDOUT;
	if (status < 0 || gc->dom->closing) {
		gc_end(gc);
		return;
	}
	TAILQ_FOREACH (gc->looking, &gc->dom->disks, link) {
		/* A failed one deletes nothing: a batch of it is for ever. */
		if (!gc->looking->removing && gc->looking->healthy)
			lsom_comp_each(gc->looking->lsom, look_at, gc);
	}
	victim_next(gc);
}
