/*
 * rules_object: what may happen to an object's entry (replication.md g1, g2.3b,
 * g2.4, g6).  The caller has compared (oepoch, csn) already.
 *
 *	GRANT		owner := the asker, oepoch += 1.  Accepted iff there is no
 *			owner, or the owner's (node, incarnation) is not the one
 *			recorded as live in that node's CMMDS_NODE entry (its
 *			session is 0, its incarnation another, or there is no
 *			entry), or the owner is the asker's node in another
 *			incarnation.  So a restart needs a new GRANT (R33).  An
 *			asker whose node entry names another incarnation is a
 *			ghost of an earlier run, and refused.
 *	RELEASE		by the owner: owner := none.
 *	EXCLUDE		ACTIVE -> STALE, stale_lsn := the op's;
 *			SYNC -> STALE, STALE -> STALE: stale_lsn may fall, never
 *			rise (R39).  member_csn := the new csn.  Refused if no
 *			full copy of ACTIVE leaves would remain.
 *	SET_SYNC	STALE -> SYNC, member_csn := the new csn.
 *	SET_ACTIVE	SYNC -> ACTIVE, stale_lsn := 0, member_csn stays.
 *	CREATED		the leaf's component exists durably.
 *	RESIZE		another tree, which keeps the layout of what stays.
 *	ACCEPT		csn := the op's, which is larger; oepoch := the op's, if
 *			that is larger; owner := none.  Refused while it has a
 *			live owner.  For an entry of a backup, whose components
 *			have seen a newer one and are let alone until then; the
 *			layout stays, and dom has checked that they fit it.  A
 *			sanitize stays, but not what it was to do, as it may have
 *			ended.
 *	DELETE		a tombstone; the entry goes later by an erase.
 *
 * EXCLUDE, SET_SYNC and SET_ACTIVE need an owner: a late one of an owner that
 * released finds none, one of an earlier owner another oepoch (R5).
 */
#include "cmmds/cmmds_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define LEAVES_MAX 1024u
#define CSN_MAX (UINT64_MAX >> 1)
#define OEPOCH_MAX 0xffffffu /* 24 bits of an lsn */

static bool same_id(const ProtobufCBinaryData *a, const ProtobufCBinaryData *b)
{
	return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

static bool is_id(const ProtobufCBinaryData *id)
{
	return id->len == sizeof(struct uuid);
}

static bool is_leaf(const Directory__TreeNode *node)
{
	return node->type == DIRECTORY__TREE_NODE__TYPE__COMPONENT ||
	       node->type == DIRECTORY__TREE_NODE__TYPE__WITNESS;
}

bool rules__leaves(Directory__TreeNode *node,
		   bool (*cb)(Directory__Leaf *leaf,
			      const Directory__TreeNode *node, void *arg),
		   void *arg)
{
	if (node == NULL)
		return true;
	if (is_leaf(node))
		return node->leaf == NULL || cb(node->leaf, node, arg);
	for (size_t i = 0; i < node->n_children; i++)
		if (!rules__leaves(node->children[i], cb, arg))
			return false;
	return true;
}

bool rules__tree_full(const Directory__TreeNode *node)
{
	size_t full = 0, count = 0;

	if (node->type == DIRECTORY__TREE_NODE__TYPE__COMPONENT)
		return node->leaf->state == DIRECTORY__LEAF__STATE__ACTIVE;
	for (size_t i = 0; i < node->n_children; i++) {
		if (node->children[i]->type ==
		    DIRECTORY__TREE_NODE__TYPE__WITNESS)
			continue;
		count++;
		full += rules__tree_full(node->children[i]);
	}
	switch (node->type) {
	case DIRECTORY__TREE_NODE__TYPE__CONCAT:
	case DIRECTORY__TREE_NODE__TYPE__RAID0:
		return full == count;
	case DIRECTORY__TREE_NODE__TYPE__RAID1:
		return full >= 1;
	case DIRECTORY__TREE_NODE__TYPE__RAID5:
		return full + 1 >= count;
	case DIRECTORY__TREE_NODE__TYPE__RAID6:
		return full + 2 >= count;
	default:
		return false;
	}
}

/* ---- a tree by itself ---- */

struct tree_walk {
	const Directory__Leaf *leaves[LEAVES_MAX];
	size_t count;
	char *why;
};

static int tree_leaf(const Directory__TreeNode *node, struct tree_walk *walk)
{
	const Directory__Leaf *leaf = node->leaf;

	if (leaf == NULL || node->n_children != 0)
		return rules__refuse(walk->why, "tree: a component is a leaf");
	if (!is_id(&leaf->cid) || !is_id(&leaf->node))
		return rules__refuse(walk->why, "tree: wrong id in a leaf");
	if (leaf->disk.len != 0 && !is_id(&leaf->disk))
		return rules__refuse(walk->why, "tree: wrong disk id");
	if (leaf->disk.len == 0 &&
	    node->type == DIRECTORY__TREE_NODE__TYPE__COMPONENT)
		return rules__refuse(walk->why, "tree: a component is on a "
						"disk");
	if ((unsigned)leaf->state > DIRECTORY__LEAF__STATE__STALE)
		return rules__refuse(walk->why, "tree: unknown leaf state %u",
				     (unsigned)leaf->state);
	if (leaf->state == DIRECTORY__LEAF__STATE__ACTIVE &&
	    leaf->stale_lsn != 0)
		return rules__refuse(walk->why, "tree: ACTIVE, but stale since "
						"an lsn");
	if (walk->count == LEAVES_MAX)
		return rules__refuse(walk->why, "tree: more than %u leaves",
				     LEAVES_MAX);
	walk->leaves[walk->count++] = leaf;
	return 0;
}

/* Data children, their sizes summed without wrapping, and the smallest. */
static int tree_sizes(const Directory__TreeNode *node, struct tree_walk *walk)
{
	uint64_t sum = 0, least = UINT64_MAX, size = node->size_bytes, data;
	size_t count = 0;

	for (size_t i = 0; i < node->n_children; i++) {
		const Directory__TreeNode *child = node->children[i];

		if (child->type == DIRECTORY__TREE_NODE__TYPE__WITNESS)
			continue;
		count++;
		least = MIN(least, child->size_bytes);
		if (__builtin_add_overflow(sum, child->size_bytes, &sum))
			return rules__refuse(walk->why, "tree: too large");
	}
	switch (node->type) {
	case DIRECTORY__TREE_NODE__TYPE__RAID1:
		data = least;
		break;
	case DIRECTORY__TREE_NODE__TYPE__RAID5:
		data = count < 3 ? 0 : sum - sum / count;
		break;
	case DIRECTORY__TREE_NODE__TYPE__RAID6:
		data = count < 4 ? 0 : sum - sum / count * 2;
		break;
	default:
		data = sum;
	}
	if (count == 0 || data < size)
		return rules__refuse(walk->why, "tree: its parts hold less "
						"than it says");
	return 0;
}

static int tree_node(const Directory__TreeNode *node, unsigned depth,
		     struct tree_walk *walk)
{
	int rv;

	if (depth > RULES_TREE_DEPTH_MAX)
		return rules__refuse(walk->why, "tree: deeper than %u",
				     RULES_TREE_DEPTH_MAX);
	if ((unsigned)node->type > DIRECTORY__TREE_NODE__TYPE__WITNESS)
		return rules__refuse(walk->why, "tree: unknown node type %u",
				     (unsigned)node->type);
	if (node->type != DIRECTORY__TREE_NODE__TYPE__WITNESS &&
	    (node->size_bytes == 0 || node->size_bytes % 4096 != 0))
		return rules__refuse(walk->why, "tree: sizes are positive "
						"multiples of 4096");
	if (is_leaf(node))
		return tree_leaf(node, walk);
	if (node->leaf != NULL || node->n_children == 0)
		return rules__refuse(walk->why, "tree: an inner node without "
						"children");
	if ((node->type == DIRECTORY__TREE_NODE__TYPE__RAID0 ||
	     node->type == DIRECTORY__TREE_NODE__TYPE__RAID5 ||
	     node->type == DIRECTORY__TREE_NODE__TYPE__RAID6) &&
	    (node->stripe_unit_bytes == 0 ||
	     node->stripe_unit_bytes % 4096 != 0))
		return rules__refuse(walk->why, "tree: stripe units are "
						"multiples of 4096");
	for (size_t i = 0; i < node->n_children; i++) {
		rv = tree_node(node->children[i], depth + 1, walk);
		if (rv != 0)
			return rv;
	}
	return tree_sizes(node, walk);
}

static int by_cid(const void *a, const void *b)
{
	const Directory__Leaf *const *x = a, *const *y = b;

	return memcmp((*x)->cid.data, (*y)->cid.data, sizeof(struct uuid));
}

int rules__tree(const Directory__TreeNode *tree, char why[128])
{
	struct tree_walk walk = { .why = why };
	int rv;

	if (tree == NULL)
		return rules__refuse(why, "an object has a tree");
	if (tree->type == DIRECTORY__TREE_NODE__TYPE__WITNESS)
		return rules__refuse(why, "tree: a witness holds no data");
	rv = tree_node(tree, 1, &walk);
	if (rv != 0)
		return rv;
	qsort(walk.leaves, walk.count, sizeof(walk.leaves[0]), by_cid);
	for (size_t i = 1; i < walk.count; i++)
		if (by_cid(&walk.leaves[i - 1], &walk.leaves[i]) == 0)
			return rules__refuse(why, "tree: one component twice");
	return 0;
}

/* ---- a put of the whole entry ---- */

static bool same_bytes(const ProtobufCMessage *a, const ProtobufCMessage *b)
{
	size_t len;
	uint8_t *x, *y;
	bool same;

	if (a == NULL || b == NULL)
		return a == b;
	len = protobuf_c_message_get_packed_size(a);
	if (len != protobuf_c_message_get_packed_size(b))
		return false;
	x = cmmds__alloc(len + 1);
	y = cmmds__alloc(len + 1);
	protobuf_c_message_pack(a, x);
	protobuf_c_message_pack(b, y);
	same = memcmp(x, y, len) == 0;
	free(x);
	free(y);
	return same;
}

static bool leaf_fresh(Directory__Leaf *leaf, const Directory__TreeNode *node,
		       void *arg)
{
	const uint64_t *csn = arg;

	return leaf->state == DIRECTORY__LEAF__STATE__ACTIVE &&
	       leaf->member_csn <= *csn;
}

int rules__object(const Directory__Object *object, char why[128])
{
	int rv = rules__tree(object->tree, why);

	if (rv != 0)
		return rv;
	if (object->size_bytes == 0 ||
	    object->size_bytes > object->tree->size_bytes)
		return rules__refuse(why, "object: its tree holds less than "
					  "its size");
	if (strlen(object->policy) > 63)
		return rules__refuse(why, "object: the policy's name is too "
					  "long");
	return 0;
}

/*
 * A put makes an object, or changes what no protocol hangs on: its policy,
 * forced, reserved_bytes and sanitizing.  All else goes by object commands.
 */
int rules__object_put(const Directory__Object *old,
		      const Directory__Object *object, char why[128])
{
	uint64_t csn = object->csn;
	int rv = rules__object(object, why);

	if (rv != 0)
		return rv;
	if (old == NULL) {
		if (object->oepoch != 0 || object->owner != NULL ||
		    object->deleted)
			return rules__refuse(why, "object: a new one has no "
						  "owner");
		if (csn > CSN_MAX)
			return rules__refuse(why, "object: its csn is used up");
		if (!rules__leaves(object->tree, leaf_fresh, &csn))
			return rules__refuse(why, "object: its leaves begin "
						  "ACTIVE");
		return 0;
	}
	if (old->oepoch != object->oepoch || old->csn != object->csn ||
	    old->size_bytes != object->size_bytes ||
	    old->deleted != object->deleted ||
	    !same_bytes(old->owner ? &old->owner->base : NULL,
			object->owner ? &object->owner->base : NULL) ||
	    !same_bytes(&old->tree->base, &object->tree->base))
		return rules__refuse(why, "object: owner, epochs, tree and "
					  "size change by object commands");
	return 0;
}

/* ---- the ops ---- */

static bool owner_live(const struct cmmds_state *state,
		       const Directory__Owner *owner)
{
	const struct state_entry *e = state__find(
		state, CMMDS_NODE, owner->node.data, owner->node.len);
	const Directory__Node *node = e ? (const void *)e->pub.message : NULL;

	return node != NULL && node->session != 0 &&
	       node->incarnation == owner->incarnation;
}

static void owner_set(Directory__Object *object, const Directory__Owner *owner)
{
	if (object->owner != NULL)
		directory__owner__free_unpacked(object->owner, NULL);
	object->owner = NULL;
	if (owner == NULL)
		return;
	object->owner = cmmds__alloc(sizeof(*object->owner));
	directory__owner__init(object->owner);
	object->owner->node.data =
		cmmds__copy(owner->node.data, owner->node.len);
	object->owner->node.len = owner->node.len;
	object->owner->incarnation = owner->incarnation;
}

static int op_grant(const struct cmmds_state *state, Directory__Object *object,
		    const Directory__ObjectCommand *op, char why[128])
{
	const Directory__Owner *owner = object->owner, *asker = op->owner;
	const struct state_entry *e;
	const Directory__Node *node;

	if (asker == NULL || !is_id(&asker->node))
		return rules__refuse(why, "GRANT: to whom?");
	e = state__find(state, CMMDS_NODE, asker->node.data, asker->node.len);
	node = e ? (const void *)e->pub.message : NULL;
	if (node != NULL && node->incarnation != asker->incarnation)
		return rules__refuse(why, "GRANT: the asker's run is over");
	if (owner != NULL && owner_live(state, owner) &&
	    !(same_id(&owner->node, &asker->node) &&
	      owner->incarnation != asker->incarnation))
		return rules__refuse(why, "GRANT: the object has a live "
					  "owner");
	if (object->oepoch >= OEPOCH_MAX)
		return rules__refuse(why, "GRANT: the owner epochs are used "
					  "up");
	object->oepoch++;
	owner_set(object, asker);
	return 0;
}

static int op_release(Directory__Object *object,
		      const Directory__ObjectCommand *op, char why[128])
{
	if (op->owner == NULL || object->owner == NULL ||
	    !same_id(&op->owner->node, &object->owner->node) ||
	    op->owner->incarnation != object->owner->incarnation)
		return rules__refuse(why, "RELEASE: not by the owner");
	owner_set(object, NULL);
	return 0;
}

/* @object's csn was raised by one already, as by every command. */
static int op_accept(const struct cmmds_state *state, Directory__Object *object,
		     const Directory__ObjectCommand *op, char why[128])
{
	if (object->owner != NULL && owner_live(state, object->owner))
		return rules__refuse(why, "ACCEPT: the object has a live "
					  "owner");
	if (op->csn <= object->csn || op->csn > CSN_MAX)
		return rules__refuse(why, "ACCEPT: nothing has seen that csn");
	if (op->oepoch >= OEPOCH_MAX)
		return rules__refuse(why, "ACCEPT: the owner epochs are used "
					  "up");
	object->csn = op->csn;
	object->oepoch = MAX(object->oepoch, op->oepoch);
	owner_set(object, NULL);
	free(object->sanitize.data);
	object->sanitize = (ProtobufCBinaryData){ 0 };
	return 0;
}

struct find_leaf {
	const ProtobufCBinaryData *cid;
	Directory__Leaf *leaf;
};

static bool find_leaf_cb(Directory__Leaf *leaf, const Directory__TreeNode *node,
			 void *arg)
{
	struct find_leaf *find = arg;

	if (!same_id(&leaf->cid, find->cid))
		return true;
	find->leaf = leaf;
	return false;
}

static Directory__Leaf *leaf_find(Directory__TreeNode *tree,
				  const ProtobufCBinaryData *cid)
{
	struct find_leaf find = { .cid = cid };

	rules__leaves(tree, find_leaf_cb, &find);
	return find.leaf;
}

static int op_exclude(Directory__Object *object, Directory__Leaf *leaf,
		      const Directory__ObjectCommand *op, char why[128])
{
	bool was_full = rules__tree_full(object->tree);

	if (op->stale_lsn >> 40 > object->oepoch)
		return rules__refuse(why, "EXCLUDE: stale_lsn is of no epoch "
					  "yet");
	if (leaf->state != DIRECTORY__LEAF__STATE__ACTIVE &&
	    op->stale_lsn > leaf->stale_lsn)
		return rules__refuse(why, "EXCLUDE: stale_lsn does not rise "
					  "while the leaf is not ACTIVE");
	if (leaf->state == DIRECTORY__LEAF__STATE__STALE &&
	    op->stale_lsn == leaf->stale_lsn)
		return rules__refuse(why, "EXCLUDE: the leaf is STALE already");
	leaf->state = DIRECTORY__LEAF__STATE__STALE;
	leaf->stale_lsn = op->stale_lsn;
	leaf->member_csn = object->csn;
	if (was_full && !rules__tree_full(object->tree))
		return rules__refuse(why, "EXCLUDE: no full ACTIVE copy would "
					  "remain");
	return 0;
}

static int op_leaf(Directory__Object *object,
		   const Directory__ObjectCommand *op, char why[128])
{
	Directory__Leaf *leaf = leaf_find(object->tree, &op->cid);

	if (leaf == NULL)
		return rules__refuse(why, "the object has no such component");
	if (op->op == DIRECTORY__OBJECT_COMMAND__OP__CREATED) {
		leaf->created = true;
		return 0;
	}
	if (object->owner == NULL)
		return rules__refuse(why, "only an owner changes the states of "
					  "components");
	switch (op->op) {
	case DIRECTORY__OBJECT_COMMAND__OP__EXCLUDE:
		return op_exclude(object, leaf, op, why);
	case DIRECTORY__OBJECT_COMMAND__OP__SET_SYNC:
		if (leaf->state != DIRECTORY__LEAF__STATE__STALE)
			return rules__refuse(why, "SET_SYNC: the leaf is not "
						  "STALE");
		leaf->state = DIRECTORY__LEAF__STATE__SYNC;
		leaf->member_csn = object->csn;
		return 0;
	default:
		if (leaf->state != DIRECTORY__LEAF__STATE__SYNC)
			return rules__refuse(why, "SET_ACTIVE: the leaf is not "
						  "SYNC");
		if (!leaf->created)
			return rules__refuse(why, "SET_ACTIVE: the component "
						  "was never created");
		leaf->state = DIRECTORY__LEAF__STATE__ACTIVE;
		leaf->stale_lsn = 0;
		return 0;
	}
}

/* ---- RESIZE ---- */

/*
 * Does @new lay the bytes of @old where @old did?  @last: it may have another
 * size, as nothing of the object comes after it.
 */
static bool same_layout(const Directory__TreeNode *old,
			const Directory__TreeNode *new, bool last)
{
	if (old->type != new->type || old->n_children != new->n_children ||
	    old->stripe_unit_bytes != new->stripe_unit_bytes ||
	    (!last && old->size_bytes != new->size_bytes))
		return false;
	if (is_leaf(old))
		return same_bytes(&old->leaf->base, &new->leaf->base);
	for (size_t i = 0; i < old->n_children; i++)
		if (!same_layout(
			    old->children[i], new->children[i],
			    last && (old->type !=
					     DIRECTORY__TREE_NODE__TYPE__CONCAT ||
				     i + 1 == old->n_children)))
			return false;
	return true;
}

struct fresh_part {
	Directory__TreeNode *old;
	uint64_t csn;
};

/* A leaf that is new with the part it came with: empty, and so complete. */
static bool fresh_leaf(Directory__Leaf *leaf, const Directory__TreeNode *node,
		       void *arg)
{
	struct fresh_part *fresh = arg;

	if (leaf_find(fresh->old, &leaf->cid) != NULL ||
	    leaf->state != DIRECTORY__LEAF__STATE__ACTIVE)
		return false;
	leaf->member_csn = fresh->csn;
	return true;
}

static Directory__TreeNode *tree_copy(const Directory__TreeNode *tree)
{
	size_t len = directory__tree_node__get_packed_size(tree);
	uint8_t *bytes = cmmds__alloc(len + 1);
	Directory__TreeNode *copy;

	directory__tree_node__pack(tree, bytes);
	copy = directory__tree_node__unpack(&cmmds__allocator, len, bytes);
	assert(copy != NULL);
	free(bytes);
	return copy;
}

static int op_resize(Directory__Object *object,
		     const Directory__ObjectCommand *op, char why[128])
{
	struct fresh_part fresh = { .old = object->tree, .csn = object->csn };
	Directory__TreeNode *old = object->tree, *new, **olds = &old;
	size_t olds_count = 1, shared;
	int rv = rules__tree(op->tree, why);

	if (rv != 0)
		return rv;
	if (op->size_bytes == 0 || op->size_bytes > op->tree->size_bytes)
		return rules__refuse(why, "RESIZE: the tree holds less than "
					  "the size");
	if (op->reserved_set && op->reserved_bytes > op->size_bytes)
		return rules__refuse(why, "RESIZE: more is reserved than the "
					  "size");
	new = op->tree;
	if (!same_layout(old, new, true)) {
		if (new->type != DIRECTORY__TREE_NODE__TYPE__CONCAT)
			return rules__refuse(why, "RESIZE: another layout");
		if (old->type == DIRECTORY__TREE_NODE__TYPE__CONCAT) {
			olds = old->children;
			olds_count = old->n_children;
		}
		shared = MIN(olds_count, new->n_children);
		for (size_t i = 0; i < shared; i++)
			if (!same_layout(olds[i], new->children[i],
					 i + 1 == shared))
				return rules__refuse(why, "RESIZE: another "
							  "layout");
		for (size_t i = shared; i < new->n_children; i++)
			if (!rules__leaves(new->children[i], fresh_leaf,
					   &fresh))
				return rules__refuse(why, "RESIZE: what is "
							  "added is not new");
	}
	object->size_bytes = op->size_bytes;
	if (op->reserved_set)
		object->reserved_bytes = op->reserved_bytes;
	object->tree = tree_copy(new);
	directory__tree_node__free_unpacked(old, NULL);
	return 0;
}

int rules__object_op(const struct cmmds_state *state, Directory__Object *object,
		     const Directory__ObjectCommand *op, char why[128])
{
	if (object->deleted && op->op != DIRECTORY__OBJECT_COMMAND__OP__GRANT &&
	    op->op != DIRECTORY__OBJECT_COMMAND__OP__RELEASE)
		return rules__refuse(why, "the object is deleted");
	switch (op->op) {
	case DIRECTORY__OBJECT_COMMAND__OP__GRANT:
		return op_grant(state, object, op, why);
	case DIRECTORY__OBJECT_COMMAND__OP__RELEASE:
		return op_release(object, op, why);
	case DIRECTORY__OBJECT_COMMAND__OP__EXCLUDE:
	case DIRECTORY__OBJECT_COMMAND__OP__SET_SYNC:
	case DIRECTORY__OBJECT_COMMAND__OP__SET_ACTIVE:
	case DIRECTORY__OBJECT_COMMAND__OP__CREATED:
		return op_leaf(object, op, why);
	case DIRECTORY__OBJECT_COMMAND__OP__RESIZE:
		return op_resize(object, op, why);
	case DIRECTORY__OBJECT_COMMAND__OP__ACCEPT:
		return op_accept(state, object, op, why);
	case DIRECTORY__OBJECT_COMMAND__OP__DELETE:
		object->deleted = true;
		return 0;
	default:
		return rules__refuse(why, "unknown object command %u",
				     (unsigned)op->op);
	}
}
