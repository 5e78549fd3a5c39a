/*
 * health: objects of this node whose data is lost, and what is lost of them.
 *
 *  - gone: the directory names a component that its disk does not have, or
 *    whose disk was removed with what it held: the object cannot be opened;
 *  - lossy: the component is there, but not all that it acknowledged;
 *  - newer: the component is there, but the directory does not know its object,
 *    or knows an older layout of it: gc.c and takeover.c leave it alone, until
 *    somebody decides (stray.c).
 *
 * Each shard knows its own objects, so the check, which the first shard runs,
 * takes what the others found when they last looked, and has them look again.
 * They do so after each takeover, too, but for a small part of the time only: with
 * thousands of objects, of which many are opened at once, it takes long.  A look
 * goes on in parts, a turn of the loop each; for the first shard it does so where
 * that is asked for before the check.
 */
#include "dom/dom_int.h"

#include <stdio.h>

/* Between two looks, for each that was looked at: many times what it takes. */
#define LOOK_PAUSE_NS 5000u

/* What a look found is told for so long, to who had asked for it. */
#define LOOK_FRESH_NS (5 * SEC)

static void lost_add(struct dom__lost *lost, unsigned count,
		     const struct uuid *oid)
{
	lost->count += count;
	if (count > 0)
		lost->oid = *oid;
}

static void comp_look(struct lsom_comp *comp, void *arg)
{
	const struct lsom_comp_meta *meta = lsom_comp_meta(comp);
	struct dom__loss *loss = arg;
	bool known;

	loss->looked_at++;
	if (!dom__mine(loss->dom, &meta->oid))
		return;
	if (dom__stray(loss->dom, meta, &known))
		lost_add(&loss->newer, 1, &meta->oid);
	if (meta->damaged == 0)
		return;
	loss->damaged = true;
	lost_add(&loss->lossy, 1, &meta->oid);
}

/* Components below @node whose disk is gone, or is there without them. */
static unsigned gone_count(struct dom *dom, const Directory__TreeNode *node)
{
	struct lsom_comp *comp;
	struct dom__disk *disk;
	struct uuid id, cid;
	unsigned count = 0;

	if (node == NULL)
		return 0;
	for (size_t i = 0; i < node->n_children; i++)
		count += gone_count(dom, node->children[i]);
	if (node->leaf == NULL || !node->leaf->created ||
	    !dom__uuid_of(&node->leaf->disk, &id) ||
	    !dom__uuid_of(&node->leaf->cid, &cid))
		return count;
	if (cmmds_get(dom->cmmds, CMMDS_DISK, id.b, sizeof(id.b)) == NULL)
		return count + 1; /* removed by force */
	disk = dom__disk_find(dom, &id);
	if (disk == NULL || disk->removing || !disk->healthy)
		return count;
	comp = lsom_comp_get(disk->lsom, &cid);
	if (comp == NULL)
		return count + 1;
	lsom_comp_put(comp);
	return count;
}

static void object_look(struct dom *dom, struct dom__data_look *l,
			const struct cmmds_entry *entry)
{
	const Directory__Object *object = (const void *)entry->message;
	const struct dom__owner *owner;
	struct uuid oid;

	assert(entry->key_len <= sizeof(l->object.b));
	memcpy(l->object.b, entry->key, entry->key_len);
	l->object_len = entry->key_len;
	l->found.looked_at++;
	if (object == NULL || object->deleted ||
	    !dom__uuid_of(&object->oid, &oid) || !dom__mine(dom, &oid))
		return;
	lost_add(&l->found.gone, gone_count(dom, object->tree), &oid);
	owner = dom__owner_find(dom, &oid);
	if (owner != NULL && owner->lossy)
		lost_add(&l->found.lossy, l->found.lossy.count == 0, &oid);
}

/* Up to @max of them.  True: there are more. */
static bool look_part(struct dom *dom, struct dom__data_look *l, unsigned max)
{
	const struct cmmds_entry *entry;

	if (l->afresh)
		*l = (struct dom__data_look){ .found.dom = dom };
	if (!l->objects) {
		l->objects =
			!dom__walk(dom, &l->walk, max, comp_look, &l->found);
		return true;
	}
	entry = cmmds_behind(dom->cmmds, CMMDS_OBJECT, l->object.b,
			     l->object_len);
	for (; entry != NULL && max > 0; max--) {
		object_look(dom, l, entry);
		entry = cmmds_next(dom->cmmds, CMMDS_OBJECT, entry);
	}
	return entry != NULL;
}

/* All of it now. */
static void loss_find(struct dom *dom, struct dom__loss *loss)
{
	struct dom__data_look l = { .afresh = true };

	while (look_part(dom, &l, UINT_MAX))
		;
	*loss = l.found;
}

/* ---- between shards ---- */

static void lost_put(struct dom__lost_shared *to, const struct dom__lost *lost)
{
	atomic_store(&to->oid[0], get_le64(lost->oid.b));
	atomic_store(&to->oid[1], get_le64(lost->oid.b + 8));
	atomic_store(&to->count, lost->count);
}

static void lost_get(struct dom__lost_shared *from, struct dom__lost *lost)
{
	struct uuid oid;

	put_le64(oid.b, atomic_load(&from->oid[0]));
	put_le64(oid.b + 8, atomic_load(&from->oid[1]));
	lost_add(lost, atomic_load(&from->count), &oid);
}

static void look(struct dom *dom);

/* Who asked before it began is told of its end. */
static void looks_end(struct dom *dom)
{
	struct dom_data_look *req;
	bool more = false;

	TAILQ_FOREACH (req, &dom->looks, link) {
		req->ready = !req->waits;
		req->waits = false;
		more |= !req->ready;
	}
	if (more)
		look(dom);
again:
	TAILQ_FOREACH (req, &dom->looks, link) {
		if (!req->ready)
			continue;
		TAILQ_REMOVE(&dom->looks, req, link);
		req->cb(req);
		goto again;
	}
}

static void look_end(struct dom *dom)
{
	struct dom__loss *loss = &dom->looked;

	*loss = dom->look.found;
	dom->looking = false;
	dom->looked_ns = env_now(dom->env);
	dom->look_next_ns =
		env_now(dom->env) + (uint64_t)loss->looked_at * LOOK_PAUSE_NS;
	lost_put(&dom->lossy, &loss->lossy);
	lost_put(&dom->gone, &loss->gone);
	lost_put(&dom->newer, &loss->newer);
	atomic_store(&dom->damaged, loss->damaged);
	atomic_store(&dom->look_asked, false);
	looks_end(dom);
}

static void on_look_part(struct env_timer *timer)
{
	struct dom *dom = container_of(timer, struct dom, look_part_timer);

	if (look_part(dom, &dom->look, DOM__PART))
		env_timer_start(dom->env, timer, ENV_NEXT_TURN_NS);
	else
		look_end(dom);
}

static void look(struct dom *dom)
{
	assert(!dom->looking);
	dom->looking = true;
	dom->look.afresh = true;
	dom->look_part_timer.cb = on_look_part;
	env_timer_start(dom->env, &dom->look_part_timer, ENV_NEXT_TURN_NS);
}

void dom_data_look(struct dom *dom, struct dom_data_look *req,
		   void (*cb)(struct dom_data_look *req))
{
	assert(dom->part == 0);
	req->cb = cb;
	req->ready = false;
	req->waits = dom->looking;
	TAILQ_INSERT_TAIL(&dom->looks, req, link);
	if (!dom->looking)
		look(dom);
}

void dom_data_look_drop(struct dom *dom, struct dom_data_look *req)
{
	TAILQ_REMOVE(&dom->looks, req, link);
}

static void look_late(struct env_timer *timer)
{
	struct dom *dom = container_of(timer, struct dom, look_timer);

	dom->look_waits = false;
	look(dom);
}

static void look_soon(struct env_task *task)
{
	struct dom *dom = container_of(task, struct dom, look_task);
	uint64_t now_ns = env_now(dom->env);

	if (now_ns >= dom->look_next_ns || dom->closing) {
		look(dom);
		return;
	}
	dom->look_waits = true;
	dom->look_timer.cb = look_late;
	env_timer_start(dom->env, &dom->look_timer, dom->look_next_ns - now_ns);
}

void dom__health_look(struct dom *dom)
{
	if (dom->part == 0)
		return; /* the check looks, or who asks before it */
	if (!atomic_exchange(&dom->look_asked, true)) {
		dom->look_task.cb = look_soon;
		env_post(dom->env, &dom->look_task);
	}
}

static void loss_of_other(struct dom *dom, struct dom__loss *loss)
{
	lost_get(&dom->lossy, &loss->lossy);
	lost_get(&dom->gone, &loss->gone);
	lost_get(&dom->newer, &loss->newer);
	loss->damaged |= atomic_load(&dom->damaged);
	dom__health_look(dom);
}

/* ---- the check ---- */

#define WHOSE_MAX 128u

/* An object as people know it: by the name of its virtual disk, if it has one. */
static const Directory__VDisk *whose(struct dom *dom, const struct uuid *oid,
				     char out[WHOSE_MAX])
{
	const struct cmmds_entry *e =
		cmmds_of(dom->cmmds, CMMDS_VDISK, oid->b, sizeof(oid->b), NULL);
	const Directory__VDisk *v = e != NULL ? (const void *)e->message : NULL;
	char id[UUID_TEXT_LEN];

	uuid_format(oid, id);
	if (v != NULL)
		snprintf(out, WHOSE_MAX, "virtual disk %.63s (object %s)",
			 v->name, id);
	else
		snprintf(out, WHOSE_MAX, "object %s", id);
	return v;
}

static void say_gone(struct dom *dom, const struct dom__loss *loss,
		     struct health_result *out)
{
	char of[WHOSE_MAX];
	const Directory__VDisk *v = whose(dom, &loss->gone.oid, of);

	snprintf(out->cause, sizeof(out->cause),
		 "components are lost: %u, one of %s, which cannot be opened; "
		 "its disk was removed by force, or lost what it had confirmed",
		 loss->gone.count, of);
	snprintf(out->fix, sizeof(out->fix),
		 "basalt vdisk delete %.63s --force, and restore it from a "
		 "backup; replace a disk that is in service and lost data",
		 v != NULL ? v->name : "NAME");
}

static void say_newer(struct dom *dom, const struct dom__loss *loss,
		      struct health_result *out)
{
	char of[WHOSE_MAX];

	whose(dom, &loss->newer.oid, of);
	snprintf(out->cause, sizeof(out->cause),
		 "the directory is older than %u component%s of %s: it "
		 "does not know the object or its last layout; was it, or a "
		 "disk, put back from a backup?",
		 loss->newer.count, loss->newer.count == 1 ? "" : "s, one", of);
	snprintf(out->fix, sizeof(out->fix),
		 "put a newer copy of data_dir's directory/ back; if there is "
		 "none: 'basalt object list --unknown' lists them, 'basalt "
		 "object drop' deletes those of an object that is not known, "
		 "'basalt object accept' opens one with its older layout");
}

static void say_lossy(struct dom *dom, const struct dom__loss *loss,
		      struct health_result *out)
{
	char of[WHOSE_MAX];

	whose(dom, &loss->lossy.oid, of);
	snprintf(out->cause, sizeof(out->cause),
		 "acknowledged writes were lost on disks of this node: %u "
		 "component%s of %s%s",
		 loss->lossy.count, loss->lossy.count == 1 ? "" : "s, one", of,
		 loss->damaged ? "; blocks that may be concerned answer medium "
				 "errors until they are written again"
			       : "");
	snprintf(out->fix, sizeof(out->fix),
		 "restore the data from a backup or write it again, on a new "
		 "virtual disk best, and check it from above (fsck, a "
		 "database's own check); replace the disk");
}

static void check_run(struct health_check *check, struct health_result *out)
{
	struct dom *dom = check->data;
	struct dom__loss loss = dom->looked;

	if (dom->looked_ns == 0 ||
	    env_now(dom->env) - dom->looked_ns >= LOOK_FRESH_NS)
		loss_find(dom, &loss);
	for (unsigned i = 1; i < dom->parts; i++)
		if (dom->all[i] != NULL)
			loss_of_other(dom->all[i], &loss);
	if (loss.gone.count == 0 && loss.lossy.count == 0 &&
	    loss.newer.count == 0)
		return;
	out->level = HEALTH_BAD;
	if (loss.newer.count > 0)
		say_newer(dom, &loss, out);
	else if (loss.gone.count > 0)
		say_gone(dom, &loss, out);
	else
		say_lossy(dom, &loss, out);
}

void dom__health_open(struct dom *dom)
{
	dom->data_check = (struct health_check){ .name = "object-data",
						 .run = check_run,
						 .data = dom };
	TAILQ_INIT(&dom->looks);
	if (dom->part == 0)
		health_register(&dom->data_check);
}

bool dom__health_idle(struct dom *dom)
{
	if (dom->look_waits) {
		env_timer_stop(dom->env, &dom->look_timer);
		look_late(&dom->look_timer);
	}
	while (dom->looking) {
		env_timer_stop(dom->env, &dom->look_part_timer);
		while (look_part(dom, &dom->look, UINT_MAX))
			;
		look_end(dom);
	}
	return !atomic_load(&dom->look_asked);
}

void dom__health_close(struct dom *dom)
{
	if (dom->part == 0)
		health_unregister(&dom->data_check);
}

/* ---- of one object ---- */

struct damaged {
	struct uuid *cids;
	unsigned count, max;
};

static void damaged_look(struct lsom_comp *comp, void *arg)
{
	const struct lsom_comp_meta *meta = lsom_comp_meta(comp);
	struct damaged *damaged = arg;

	if (meta->damaged != 0 && damaged->count < damaged->max)
		damaged->cids[damaged->count++] = meta->cid;
}

unsigned dom_damaged(struct dom *dom, const struct uuid *oid, struct uuid *cids,
		     unsigned max)
{
	struct damaged damaged = { .cids = cids, .max = max };
	struct dom__disk *disk;

	assert(dom__mine(dom, oid));
	TAILQ_FOREACH (disk, &dom->disks, link) {
		if (!disk->removing && disk->healthy)
			lsom_comp_each_of(disk->lsom, oid, damaged_look,
					  &damaged);
	}
	return damaged.count;
}

bool dom_object_lossy(const struct dom_object *object)
{
	return object->far != NULL ? object->far->state.lossy
				   : object->owner->lossy;
}
