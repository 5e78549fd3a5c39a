/*
 * space: what is reserved for an object, and how much room it has.
 *
 * The directory says what is reserved; lsom keeps it, as long as it is told so:
 * when a disk comes, and whenever an entry changes, so also once a component has
 * been made.  A tombstone has nothing reserved.
 *
 * Room for an object is what is neither used nor kept for others.  A disk is low
 * once that is DOM_LOW_SPACE_PERCENT of what it may use (dom.c watches it).
 */
#include "dom/dom_int.h"

#include <errno.h>

static void leaf_reserve(struct dom *dom, const Directory__Object *object,
			 const Directory__TreeNode *node,
			 const struct dom__disk *only)
{
	struct dom__disk *disk;
	struct lsom_comp *comp;
	struct uuid id, cid;

	if (!dom__uuid_of(&node->leaf->disk, &id) ||
	    !dom__uuid_of(&node->leaf->cid, &cid))
		return;
	disk = dom__disk_find(dom, &id);
	if (disk == NULL || disk->removing || (only != NULL && disk != only))
		return;
	comp = lsom_comp_get(disk->lsom, &cid);
	if (comp == NULL)
		return;
	if (lsom_comp_meta(comp)->cinc == node->leaf->cinc)
		lsom_comp_reserve(comp,
				  object->deleted
					  ? 0
					  : clom_share(node->size_bytes,
						       object->size_bytes,
						       object->reserved_bytes));
	lsom_comp_put(comp);
}

static void node_reserve(struct dom *dom, const Directory__Object *object,
			 const Directory__TreeNode *node,
			 const struct dom__disk *only)
{
	if (node->leaf != NULL)
		leaf_reserve(dom, object, node, only);
	for (size_t i = 0; i < node->n_children; i++)
		node_reserve(dom, object, node->children[i], only);
}

void dom__space_reserve(struct dom *dom, const Directory__Object *object,
			const struct dom__disk *disk)
{
	struct uuid oid;

	if (object->tree != NULL && dom__uuid_of(&object->oid, &oid) &&
	    dom__mine(dom, &oid))
		node_reserve(dom, object, object->tree, disk);
}

uint64_t dom__owner_kept(const struct dom__owner *owner)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < owner->leaves; i++)
		if (owner->peers[i].cm != NULL)
			sum += lsom_comp_kept(owner->peers[i].cm->comp);
	return sum;
}

uint64_t dom_object_kept(const struct dom_object *object)
{
	return object->far != NULL ? dom__far_kept(object->far)
				   : dom__owner_kept(object->owner);
}

/* What of the disk is neither used nor kept for somebody. */
static uint64_t disk_free(struct dom__disk *disk)
{
	uint64_t taken;

	dom__disk_look(disk);
	taken = disk->used_bytes + disk->kept_bytes;
	return disk->usable_bytes - MIN(taken, disk->usable_bytes);
}

/*
 * A disk holds many objects, so used is at most what this one could use.  What
 * is kept for it is its own part of what is kept there.
 */
void dom_object_space(const struct dom_object *object, uint64_t *used_bytes,
		      uint64_t *free_bytes)
{
	struct dom__disk *disk;

	*used_bytes = 0;
	*free_bytes = dom_object_kept(object);
	TAILQ_FOREACH (disk, &object->dom->disks, link) {
		if (!dom__object_uses_disk(object, disk))
			continue;
		*free_bytes += disk_free(disk);
		*used_bytes += disk->used_bytes;
	}
	*used_bytes = MIN(*used_bytes, dom_object_size(object));
}

uint64_t dom_object_low_space(const struct dom_object *object)
{
	struct dom__disk *disk;
	uint64_t sum = 0;

	TAILQ_FOREACH (disk, &object->dom->disks, link)
		if (dom__object_uses_disk(object, disk))
			sum += disk->usable_bytes / 100 * DOM_LOW_SPACE_PERCENT;
	return sum;
}

/* ---- of an object that nobody has opened ---- */

int dom__leaf_space(struct dom *dom, const Directory__Leaf *leaf,
		    uint64_t *used_bytes, uint64_t *kept_bytes)
{
	struct dom__disk *disk;
	struct lsom_comp *comp;
	struct uuid id, cid;
	int rv = -ENXIO;

	if (!dom__uuid_of(&leaf->disk, &id) || !dom__uuid_of(&leaf->cid, &cid))
		return -ENXIO;
	disk = dom__disk_find(dom, &id);
	if (disk == NULL || disk->removing)
		return -ENXIO;
	comp = lsom_comp_get(disk->lsom, &cid);
	if (comp == NULL)
		return -ENXIO;
	if (lsom_comp_meta(comp)->cinc == leaf->cinc) {
		rv = lsom_comp_used(comp, used_bytes) ? 0 : -ENODATA;
		*kept_bytes = lsom_comp_kept(comp);
	}
	lsom_comp_put(comp);
	return rv;
}

static bool tree_space(struct dom *dom, const Directory__TreeNode *node,
		       struct dom_space *out)
{
	uint64_t used, kept;

	if (node->leaf != NULL) {
		if (dom__leaf_space(dom, node->leaf, &used, &kept) < 0)
			return false;
		out->used_bytes += used;
		out->kept_bytes += kept;
		return true;
	}
	if (node->type != DIRECTORY__TREE_NODE__TYPE__CONCAT &&
	    node->type != DIRECTORY__TREE_NODE__TYPE__RAID0)
		return false; /* several have the same */
	for (size_t i = 0; i < node->n_children; i++)
		if (!tree_space(dom, node->children[i], out))
			return false;
	return true;
}

static bool tree_uses(const Directory__TreeNode *node,
		      const struct dom__disk *disk)
{
	struct uuid id;

	if (node->leaf != NULL)
		return dom__uuid_of(&node->leaf->disk, &id) &&
		       uuid_equal(&id, &disk->id);
	for (size_t i = 0; i < node->n_children; i++)
		if (tree_uses(node->children[i], disk))
			return true;
	return false;
}

/* Its shard has the views of its components. */
static int object_space(struct dom *dom, struct dom_space *out)
{
	const Directory__Object *object = cmmds_object(dom->cmmds, &out->oid);
	struct dom__disk *disk;

	if (object == NULL || object->deleted || object->tree == NULL ||
	    dom->closing || !tree_space(dom, object->tree, out))
		return -ENODATA;
	out->used_bytes = MIN(out->used_bytes, object->size_bytes);
	out->free_bytes = out->kept_bytes;
	TAILQ_FOREACH (disk, &dom->disks, link)
		if (tree_uses(object->tree, disk))
			out->free_bytes += disk_free(disk);
	return 0;
}

static void here_space(struct env_task *task)
{
	struct dom_space *req = container_of(task, struct dom_space, task);

	req->dom->jobs--;
	dom__kick(req->dom);
	req->cb(req, req->status);
}

static void there_space(struct env_task *task)
{
	struct dom_space *req = container_of(task, struct dom_space, task);

	req->status = object_space(dom__of(req->dom, &req->oid), req);
	task->cb = here_space;
	env_post(req->dom->env, task);
}

void dom_space(struct dom *dom, struct dom_space *req,
	       void (*cb)(struct dom_space *req, int status))
{
	req->used_bytes = req->free_bytes = req->kept_bytes = 0;
	req->dom = dom;
	req->cb = cb;
	req->task.cb = there_space;
	dom->jobs++;
	env_post(dom__of(dom, &req->oid)->env, &req->task);
}
