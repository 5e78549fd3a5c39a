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
		uint64_t taken;

		if (!dom__object_uses_disk(object, disk))
			continue;
		dom__disk_look(disk);
		*used_bytes += disk->used_bytes;
		taken = disk->used_bytes + disk->kept_bytes;
		if (disk->usable_bytes > taken)
			*free_bytes += disk->usable_bytes - taken;
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
