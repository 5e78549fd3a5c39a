/*
 * gc: what nobody refers to any more (g6.11).
 *
 * A component whose object is deleted, or no longer names it with this cinc, is
 * deleted, after a barrier: the local copy of the directory is a hint until then
 * (R22).  A deleted object's entry is erased when none of its components is left
 * and no owner may be making one; one on a disk that is away keeps it, so that
 * the disk finds the tombstone when it comes back (R25).
 *
 * The entry is there before the first component and until the last one is gone.
 * So a component without one, or that has seen a newer layout than the entry's,
 * was not left over: the directory is an older one, put back from a backup, or
 * the disk is.  It stays, and health tells of it; where there is no entry, until
 * an administrator says that it shall go (a drop).  That is asked for behind the
 * barrier, too, and once more before each deletion: an entry that is there by
 * then keeps what is left.
 *
 * Who changes an object, or lets go of it, has it looked at; all of them and all
 * components are, when a disk comes or goes.  One of which something is to go
 * stays suspected until nothing is.
 *
 * A run begins a batch of deletions on each disk that has none under way, and
 * does not wait for them: one that hangs keeps nobody else's space.  The last
 * of a batch has the next run begin.
 */
#define LOG_ROOM LOG_DOM
#include "dom/dom_int.h"

#include "base/log.h"

#include <stdlib.h>

#define BATCH 64u
#define DROP_FAILURES_MAX 64u
#define RETRY_NS (1 * SEC)
#define BUCKETS 1024u

/* An object of which something may have to go. */
struct suspect {
	struct uuid oid;
	bool more; /* it is for the next run, too */
	TAILQ_ENTRY(suspect) link;
	struct suspect *chain; /* of its bucket */
};

struct victim {
	struct uuid cid;
	struct dom_drop *drop; /* NULL: the directory let it go */
};

struct deletion {
	struct dom__gc *gc;
	struct dom__disk *disk;
	struct dom__cm *cm;
	struct dom_drop *drop;
	struct lsom_meta meta;
	TAILQ_ENTRY(deletion) link;
};

TAILQ_HEAD(drops, dom_drop);

struct dom__gc {
	struct dom *dom;
	bool busy, again;
	bool retry; /* somebody was too busy, or did not answer */
	bool all; /* everything is to be looked at */
	bool walked; /* in this run it was */
	TAILQ_HEAD(, suspect) suspects;
	struct suspect *suspects_by_id[BUCKETS];
	struct suspect *at; /* the one that is looked at */
	struct env_timer timer;
	struct env_task task;
	struct env_timer part_timer;
	struct dom__walk walk; /* for suspects, over components; then over */
	struct uuid object; /* objects: the last one */
	size_t object_len; /* 0: none yet */
	struct cmmds_barrier barrier;
	struct victim victims[BATCH]; /* of the disk that is looked at */
	unsigned victims_count, room;
	struct dom__disk *looking;
	TAILQ_HEAD(, deletion) deletions; /* on all disks */
	struct cmmds_command cmd;
	uint64_t drops_count;
	struct drops drops; /* those `taken` belong to the run */
};

static void gc_barrier_done(struct cmmds_barrier *barrier, int status);

/* ---- suspects ---- */

static struct suspect **bucket(struct dom__gc *gc, const struct uuid *oid)
{
	return &gc->suspects_by_id[uuid_hash(oid) / BUCKETS % BUCKETS];
}

/* 0, or -ENOMEM: everything will be looked at instead. */
static int suspect_add(struct dom__gc *gc, const struct uuid *oid)
{
	struct suspect *s = *bucket(gc, oid);

	while (s != NULL && !uuid_equal(&s->oid, oid))
		s = s->chain;
	if (s == NULL) {
		s = calloc(1, sizeof(*s));
		if (s == NULL) {
			gc->all = gc->retry = true;
			return -ENOMEM;
		}
		s->oid = *oid;
		s->chain = *bucket(gc, oid);
		*bucket(gc, oid) = s;
		TAILQ_INSERT_TAIL(&gc->suspects, s, link);
	}
	s->more = true;
	return 0;
}

static void suspect_free(struct dom__gc *gc, struct suspect *s)
{
	struct suspect **place = bucket(gc, &s->oid);

	while (*place != s)
		place = &(*place)->chain;
	*place = s->chain;
	TAILQ_REMOVE(&gc->suspects, s, link);
	free(s);
}

/* ---- drops ---- */

static void drop_fail(struct dom_drop *drop, int status)
{
	if (drop->status == 0)
		drop->status = status;
}

static void drop_end(struct dom__gc *gc, struct dom_drop *drop)
{
	env_timer_stop(gc->dom->env, &drop->late);
	TAILQ_REMOVE(&gc->drops, drop, link);
	dom__dropped(drop);
}

/* Nothing has come of it for long: a disk hangs.  What was begun may be done yet. */
static void drop_late(struct env_timer *timer)
{
	struct dom_drop *drop = container_of(timer, struct dom_drop, late);
	struct dom__gc *gc = drop->there->gc;
	struct deletion *d;

	TAILQ_FOREACH (d, &gc->deletions, link)
		if (d->drop == drop)
			d->drop = NULL;
	drop_fail(drop, -ETIMEDOUT);
	drop_end(gc, drop);
}

static void drop_wait(struct dom_drop *drop)
{
	drop->late.cb = drop_late;
	env_timer_start(drop->there->env, &drop->late, DOM__OPEN_NS);
}

static void run_soon(struct dom__gc *gc)
{
	if (gc->busy)
		gc->again = true;
	else
		env_defer(gc->dom->env, &gc->task);
}

/* The drops of this run are done, but those of which something is left to do. */
static void drops_end(struct dom__gc *gc, int status)
{
	struct dom_drop *drop, *next;

	TAILQ_FOREACH_SAFE (drop, &gc->drops, link, next) {
		if (!drop->taken)
			continue;
		if (status < 0) {
			drop_fail(drop, status);
			drop->more = false;
		}
		if (drop->deleting > 0 || drop->more)
			continue;
		drop_end(gc, drop);
	}
}

static void drops_take(struct dom__gc *gc)
{
	struct dom_drop *drop;

	TAILQ_FOREACH (drop, &gc->drops, link) {
		drop->taken = true;
		drop->more = false;
		drop->picked = drop->deleting > 0;
		if (suspect_add(gc, &drop->oid) < 0)
			drop_fail(drop, -ENOMEM);
	}
}

static struct dom_drop *drop_of(struct dom__gc *gc, const struct uuid *oid)
{
	struct dom_drop *drop;

	TAILQ_FOREACH (drop, &gc->drops, link) {
		if (drop->taken && uuid_equal(&drop->oid, oid))
			return drop;
	}
	return NULL;
}

static void drops_check(struct dom__gc *gc)
{
	struct dom_drop *drop;

	TAILQ_FOREACH (drop, &gc->drops, link) {
		if (drop->taken &&
		    cmmds_object(gc->dom->cmmds, &drop->oid) != NULL)
			drop_fail(drop, -EEXIST);
	}
}

static void drop_failed_on(struct dom_drop *drop, struct dom__disk *disk,
			   int status)
{
	drop_fail(drop, status);
	drop->failures++;
	disk->drop_refused = drop->number;
}

/* Where a deletion of it failed it is not tried again. */
static bool drop_refused(const struct dom_drop *drop,
			 const struct dom__disk *disk)
{
	return drop->failures >= DROP_FAILURES_MAX ||
	       (drop->failures > 0 && disk->drop_refused == drop->number);
}

void dom__gc_drop(struct dom *dom, struct dom_drop *drop)
{
	drop->number = ++dom->gc->drops_count;
	drop_wait(drop);
	TAILQ_INSERT_TAIL(&dom->gc->drops, drop, link);
	run_soon(dom->gc);
}

/* ---- a run ---- */

static void gc_task(struct env_task *task)
{
	struct dom__gc *gc = container_of(task, struct dom__gc, task);
	int rv;

	if (gc->busy)
		return;
	drops_take(gc);
	if (gc->dom->closing) {
		drops_end(gc, -ESHUTDOWN);
		dom__kick(gc->dom); /* it may wait for this very task */
		return;
	}
	gc->again = false;
	gc->retry = false;
	gc->walked = false;
	rv = cmmds_barrier(gc->dom->cmmds, &gc->barrier, gc_barrier_done);
	if (rv == 0)
		gc->busy = true;
	else
		drops_end(gc, rv);
}

static void gc_timer(struct env_timer *timer)
{
	run_soon(container_of(timer, struct dom__gc, timer));
}

int dom__gc_open(struct dom *dom)
{
	dom->gc = calloc(1, sizeof(*dom->gc));
	if (dom->gc == NULL)
		return -ENOMEM;
	dom->gc->dom = dom;
	TAILQ_INIT(&dom->gc->suspects);
	TAILQ_INIT(&dom->gc->drops);
	TAILQ_INIT(&dom->gc->deletions);
	dom->gc->task.cb = gc_task;
	dom->gc->timer.cb = gc_timer;
	return 0;
}

void dom__gc_close(struct dom *dom)
{
	struct suspect *s;

	env_timer_stop(dom->env, &dom->gc->timer);
	while ((s = TAILQ_FIRST(&dom->gc->suspects)) != NULL)
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): off the list */
		suspect_free(dom->gc, s);
	free(dom->gc);
	dom->gc = NULL;
}

bool dom__gc_idle(const struct dom *dom)
{
	return !dom->gc->busy && !dom->gc->task.queued &&
	       TAILQ_EMPTY(&dom->gc->deletions);
}

void dom__gc_kick(struct dom *dom)
{
	dom->gc->all = true;
	run_soon(dom->gc);
}

void dom__gc_look(struct dom *dom, const struct uuid *oid)
{
	suspect_add(dom->gc, oid);
	run_soon(dom->gc);
}

static void gc_end(struct dom__gc *gc)
{
	struct suspect *s, *next;

	TAILQ_FOREACH_SAFE (s, &gc->suspects, link, next)
		if (!s->more)
			suspect_free(gc, s);
	gc->busy = false;
	drops_end(gc, 0);
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

bool dom__leaf_named(const Directory__TreeNode *tree,
		     const struct lsom_comp_meta *meta)
{
	const Directory__Leaf *leaf = leaf_named(tree, &meta->cid);

	return leaf != NULL && leaf->cinc == meta->cinc;
}

/* Has the directory, or @drop, let go of the component? */
static bool unneeded(const Directory__Object *object,
		     const struct dom_drop *drop,
		     const struct lsom_comp_meta *meta)
{
	if (object == NULL)
		return drop != NULL;
	if (object->deleted)
		return true;
	return !dom__leaf_named(object->tree, meta) &&
	       meta->csn_seen <= object->csn;
}

/* Has @owner, of a layout that names the component, not let go yet? */
static bool held(const struct dom__owner *owner, const struct uuid *cid)
{
	for (unsigned i = 0; owner != NULL && i < owner->leaves; i++) {
		if (uuid_equal(&owner->peers[i].leaf->cid, cid))
			return true;
	}
	return false;
}

static void suspect_at(struct lsom_comp *comp, void *arg)
{
	struct dom__gc *gc = arg;
	const struct lsom_comp_meta *meta = lsom_comp_meta(comp);

	if (dom__mine(gc->dom, &meta->oid) &&
	    unneeded(cmmds_object(gc->dom->cmmds, &meta->oid), NULL, meta))
		suspect_add(gc, &meta->oid);
}

static void suspect_deleted(struct dom__gc *gc, const struct cmmds_entry *entry)
{
	const Directory__Object *object = (const void *)entry->message;
	struct uuid oid;

	assert(entry->key_len <= sizeof(gc->object.b));
	memcpy(gc->object.b, entry->key, entry->key_len);
	gc->object_len = entry->key_len;
	if (object != NULL && object->deleted &&
	    dom__uuid_of(&object->oid, &oid) && dom__mine(gc->dom, &oid))
		suspect_add(gc, &oid);
}

/* Some of all that there are.  True: there are more. */
static bool some_suspect(struct dom__gc *gc)
{
	const struct cmmds_entry *entry;

	if (dom__walk(gc->dom, &gc->walk, DOM__PART, suspect_at, gc))
		return true;
	entry = cmmds_behind(gc->dom->cmmds, CMMDS_OBJECT, gc->object.b,
			     gc->object_len);
	for (unsigned n = 0; entry != NULL && n < DOM__PART; n++) {
		suspect_deleted(gc, entry);
		entry = cmmds_next(gc->dom->cmmds, CMMDS_OBJECT, entry);
	}
	return entry != NULL;
}

static void look_at(struct lsom_comp *comp, void *arg)
{
	struct dom__gc *gc = arg;
	const struct lsom_comp_meta *meta = lsom_comp_meta(comp);
	const Directory__Object *object =
		cmmds_object(gc->dom->cmmds, &meta->oid);
	struct dom_drop *drop = object == NULL ? drop_of(gc, &meta->oid) : NULL;

	if (!unneeded(object, drop, meta))
		return;
	gc->at->more = true;
	/* Who has not let go yet has us look when it does. */
	if (held(dom__owner_find(gc->dom, &meta->oid), &meta->cid)) {
		if (drop != NULL)
			drop_fail(drop, -EBUSY);
		return;
	}
	if (drop != NULL && drop_refused(drop, gc->looking))
		return;
	/* There is another run behind each batch, and behind each of a drop. */
	if (gc->victims_count == gc->room || (drop != NULL && drop->picked)) {
		if (drop != NULL)
			drop->more = true;
		return;
	}
	if (drop != NULL)
		drop->picked = true;
	gc->victims[gc->victims_count++] =
		(struct victim){ .cid = meta->cid, .drop = drop };
}

/* ---- deletions ---- */

static void deleted(struct lsom_meta *meta, int status)
{
	struct deletion *d = container_of(meta, struct deletion, meta);
	struct dom__gc *gc = d->gc;
	struct dom__disk *disk = d->disk;
	struct dom_drop *drop = d->drop;
	char cid[UUID_TEXT_LEN];

	uuid_format(&meta->meta.cid, cid);
	if (status < 0)
		log_warn("component %s cannot be deleted: %s", cid,
			 err_text(status));
	else
		log_info("component %s is %s: deleted", cid,
			 drop != NULL ? "given up" : "no longer needed");
	if (drop != NULL) {
		drop_wait(drop);
		drop->deleting--;
		if (status < 0)
			drop_failed_on(drop, disk, status);
		else
			drop->dropped++;
	}
	TAILQ_REMOVE(&gc->deletions, d, link);
	disk->deletions_failed |= status < 0;
	if (--disk->deleting == 0) {
		/* Of a disk of another shard; no memory; no free segment. */
		if (disk->deletions_failed && !gc->dom->closing)
			env_timer_start(gc->dom->env, &gc->timer, RETRY_NS);
		else
			run_soon(gc);
		disk->deletions_failed = false;
	}
	dom__cm_put(d->cm);
	free(d);
}

/* 0: deleted() follows. */
static int component_delete(struct dom__gc *gc, struct dom__disk *disk,
			    const struct victim *v)
{
	struct deletion *d = calloc(1, sizeof(*d));
	int rv = d != NULL ? dom__cm_get(disk, &v->cid, &d->cm) : -ENOMEM;

	if (rv < 0) {
		free(d);
		return rv;
	}
	d->gc = gc;
	d->disk = disk;
	d->drop = v->drop;
	d->meta = (struct lsom_meta){ .op = LSOM_DELETE,
				      .meta = *lsom_comp_meta(d->cm->comp) };
	rv = lsom_comp_update(d->cm->comp, &d->meta, deleted);
	if (rv < 0) {
		dom__cm_put(d->cm);
		free(d);
		return rv;
	}
	TAILQ_INSERT_TAIL(&gc->deletions, d, link);
	disk->deleting++;
	if (d->drop != NULL)
		d->drop->deleting++;
	return 0;
}

static void disk_look(struct dom__gc *gc, struct dom__disk *disk)
{
	/* A failed one deletes nothing: a batch of it is for ever. */
	if (disk->removing || !disk->healthy)
		return;
	/* While a batch is under way there is room for none. */
	gc->room = disk->deleting > 0 ? 0 : BATCH;
	gc->looking = disk;
	gc->victims_count = 0;
	TAILQ_FOREACH (gc->at, &gc->suspects, link)
		lsom_comp_each_of(disk->lsom, &gc->at->oid, look_at, gc);
	for (unsigned i = 0; i < gc->victims_count; i++) {
		const struct victim *v = &gc->victims[i];
		int rv = component_delete(gc, disk, v);

		gc->retry |= rv < 0 && rv != -ENOENT;
		if (rv < 0 && rv != -ENOENT && v->drop != NULL)
			drop_failed_on(v->drop, disk, rv);
	}
}

struct pending {
	struct dom *dom;
	bool any;
};

static void pending_at(struct lsom_comp *comp, void *arg)
{
	const struct lsom_comp_meta *meta = lsom_comp_meta(comp);
	struct pending *p = arg;

	p->any |= unneeded(cmmds_object(p->dom->cmmds, &meta->oid), NULL, meta);
}

bool dom__gc_pending(struct dom *dom)
{
	const struct dom__gc *gc = dom->gc;
	struct pending pending = { .dom = dom };
	const struct suspect *s;
	struct dom__disk *disk;

	if (gc->all || gc->busy || gc->task.queued)
		return true;
	TAILQ_FOREACH (disk, &dom->disks, link) {
		dom__disk_look(disk);
		if (disk->removing || !disk->healthy || disk->silent)
			continue;
		if (disk->deleting > 0)
			return true;
		TAILQ_FOREACH (s, &gc->suspects, link) {
			lsom_comp_each_of(disk->lsom, &s->oid, pending_at,
					  &pending);
			if (pending.any)
				return true;
		}
	}
	return false;
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

static void search_at(struct lsom_comp *comp, void *arg)
{
	*(bool *)arg = true;
}

/*
 * Nor is there one that a resize cut off, and that was not deleted yet.  The
 * entry says no more where these were, so every disk of this node is asked.
 */
static bool comps_gone(struct dom *dom, const struct uuid *oid)
{
	const struct cmmds_entry *e = NULL;
	struct dom__disk *disk;
	struct uuid id, node;
	bool found = false;

	while ((e = cmmds_next(dom->cmmds, CMMDS_DISK, e)) != NULL) {
		const Directory__Disk *m = (const void *)e->message;

		if (m == NULL || !dom__uuid_of(&m->uuid, &id) ||
		    !dom__uuid_of(&m->node, &node) ||
		    !uuid_equal(&node, &dom->node))
			continue;
		disk = dom__disk_find(dom, &id);
		if (disk == NULL || disk->removing || !disk->healthy)
			return false;
		lsom_comp_each_of(disk->lsom, oid, search_at, &found);
	}
	return !found;
}

static void tombstones(struct dom__gc *gc);

/* Those that were not come to are for the next run. */
static void tombstones_end(struct dom__gc *gc)
{
	for (; gc->at != NULL; gc->at = TAILQ_NEXT(gc->at, link))
		gc->at->more = true;
	gc_end(gc);
}

static void tombstone_gone(struct cmmds_command *cmd, int status)
{
	struct dom__gc *gc = container_of(cmd, struct dom__gc, cmd);

	cmmds_command_fini(cmd);
	gc->retry |= status == -ETIMEDOUT;
	if (status < 0 && status != -EAGAIN) {
		log_warn("a deleted object's entry stays: %s",
			 err_text(status));
		tombstones_end(gc);
		return;
	}
	tombstones(gc);
}

/* The entry of the suspect, if it may go now. */
static const struct cmmds_entry *tombstone(struct dom *dom, struct suspect *s)
{
	const struct cmmds_entry *entry =
		cmmds_get(dom->cmmds, CMMDS_OBJECT, s->oid.b, sizeof(s->oid.b));
	const Directory__Object *object =
		entry != NULL ? (const void *)entry->message : NULL;
	const struct dom__owner *owner;

	if (object == NULL || !object->deleted)
		return NULL;
	owner = dom__owner_find(dom, &s->oid);
	/* One that has not let go may be making its components. */
	if (owner != NULL && owner->leaves > 0) {
		s->more = true;
		return NULL;
	}
	return leaves_gone(dom, object->tree) && comps_gone(dom, &s->oid)
		       ? entry
		       : NULL;
}

static void tombstones(struct dom__gc *gc)
{
	struct dom *dom = gc->dom;

	for (; gc->at != NULL && !dom->closing;
	     gc->at = TAILQ_NEXT(gc->at, link)) {
		const struct cmmds_entry *entry = tombstone(dom, gc->at);

		if (entry == NULL)
			continue;
		/* Its reservation goes with it. */
		cmmds_command_init(&gc->cmd);
		cmmds_erase(&gc->cmd, CMMDS_OBJECT, entry->key, entry->key_len,
			    entry->revision);
		if (cmmds_propose(dom->cmmds, &gc->cmd, 0, tombstone_gone) == 0)
			return;
		cmmds_command_fini(&gc->cmd);
		gc->retry = true;
		break;
	}
	tombstones_end(gc);
}

/* All that may have to go is suspected. */
static void collect(struct dom__gc *gc)
{
	struct dom__disk *disk;

	drops_check(gc);
	TAILQ_FOREACH (gc->at, &gc->suspects, link)
		gc->at->more = false;
	TAILQ_FOREACH (disk, &gc->dom->disks, link)
		disk_look(gc, disk);
	gc->at = TAILQ_FIRST(&gc->suspects);
	tombstones(gc);
}

static void gc_fail(struct dom__gc *gc, int status)
{
	drops_end(gc, status);
	gc_end(gc);
}

/* The directory may have changed since the barrier: there is another one. */
static void gc_part(struct env_timer *timer)
{
	struct dom__gc *gc = container_of(timer, struct dom__gc, part_timer);
	int rv = gc->dom->closing ? -ESHUTDOWN : 0;

	if (rv == 0 && some_suspect(gc)) {
		env_timer_start(gc->dom->env, timer, ENV_NEXT_TURN_NS);
		return;
	}
	gc->walked = true;
	if (rv == 0)
		rv = cmmds_barrier(gc->dom->cmmds, &gc->barrier,
				   gc_barrier_done);
	if (rv < 0)
		gc_fail(gc, rv);
}

static void gc_barrier_done(struct cmmds_barrier *barrier, int status)
{
	struct dom__gc *gc = container_of(barrier, struct dom__gc, barrier);

	gc->retry |= status == -ETIMEDOUT;
	if (status < 0 || gc->dom->closing) {
		gc_fail(gc, status < 0 ? status : -ESHUTDOWN);
		return;
	}
	if (!gc->all || gc->walked) {
		collect(gc);
		return;
	}
	gc->all = false;
	gc->walk = (struct dom__walk){ 0 };
	gc->object_len = 0;
	gc->part_timer.cb = gc_part;
	gc_part(&gc->part_timer);
}
