/*
 * tree: a blueprint made ready for mapping, and the mapping: byte of the object
 * -> (component, byte of it).
 *
 * CONCAT lays its children one after the other.  RAID0 deals out stripe units
 * to its children in turn; a contiguous range of the object is contiguous in
 * each child, which is why one record per component is enough for it.  A
 * blueprint comes from the directory: it is checked, not trusted.
 */
#include "dom/dom_int.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

struct node {
	Directory__TreeNode__Type type;
	uint64_t size_bytes;
	uint32_t unit_bytes;
	unsigned leaf;
	unsigned children_count;
	struct node *children;
	uint64_t *starts; /* CONCAT: where each child begins */
};

struct dom__tree {
	struct node root;
	unsigned leaves_count;
	struct dom__leaf *leaves;
};

#define DEPTH_MAX 8u

static void node_fini(struct node *node)
{
	for (unsigned i = 0; i < node->children_count; i++)
		node_fini(&node->children[i]);
	free(node->children);
	free(node->starts);
}

/* How many leaves; more than DOM_LEAVES_MAX: or deeper than DEPTH_MAX. */
static unsigned leaves_under(const Directory__TreeNode *msg, unsigned depth)
{
	unsigned n = msg->leaf != NULL;

	if (depth == DEPTH_MAX)
		return DOM_LEAVES_MAX + 1;
	for (size_t i = 0; i < msg->n_children; i++) {
		n += leaves_under(msg->children[i], depth + 1);
		if (n > DOM_LEAVES_MAX)
			return n;
	}
	return n;
}

static int leaf_make(struct dom__tree *tree, struct node *node,
		     const Directory__TreeNode *msg, char *why, size_t why_len)
{
	const Directory__Leaf *in = msg->leaf;
	struct dom__leaf *leaf = &tree->leaves[tree->leaves_count];

	if (in == NULL || msg->n_children != 0 || msg->size_bytes == 0 ||
	    !dom__uuid_of(&in->cid, &leaf->cid) ||
	    !dom__uuid_of(&in->node, &leaf->node) ||
	    !dom__uuid_of(&in->disk, &leaf->disk)) {
		snprintf(why, why_len,
			 "a component of the layout is malformed");
		return -EUCLEAN;
	}
	leaf->cinc = in->cinc;
	leaf->member_csn = in->member_csn;
	leaf->stale_lsn = in->stale_lsn;
	leaf->created = in->created;
	leaf->state = in->state == DIRECTORY__LEAF__STATE__ACTIVE ? LSOM_ACTIVE
		      : in->state == DIRECTORY__LEAF__STATE__SYNC ? LSOM_SYNC
								  : LSOM_STALE;
	leaf->size_bytes = ROUND_UP(msg->size_bytes, (uint64_t)DOM_BLOCK);
	node->leaf = tree->leaves_count++;
	return 0;
}

/* Bytes of column @column that lie below @x of a RAID0 of @width columns. */
static uint64_t column_bytes(uint64_t x, uint32_t unit, unsigned width,
			     unsigned column)
{
	uint64_t row = (uint64_t)unit * width;
	uint64_t rest = x % row;
	uint64_t before = (uint64_t)unit * column;
	uint64_t part = rest <= before ? 0 : MIN(rest - before, unit);

	return x / row * unit + part;
}

static int node_make(struct dom__tree *tree, struct node *node,
		     const Directory__TreeNode *msg, char *why, size_t why_len)
{
	uint64_t start = 0;

	node->type = msg->type;
	node->size_bytes = msg->size_bytes;
	node->unit_bytes = msg->stripe_unit_bytes;
	switch (msg->type) {
	case DIRECTORY__TREE_NODE__TYPE__COMPONENT:
		return leaf_make(tree, node, msg, why, why_len);
	case DIRECTORY__TREE_NODE__TYPE__CONCAT:
	case DIRECTORY__TREE_NODE__TYPE__RAID0:
		break;
	default:
		snprintf(why, why_len,
			 "the layout has a node of type %d, which needs "
			 "several nodes: this version runs concatenation and "
			 "striping over one node's disks",
			 (int)msg->type);
		return -EOPNOTSUPP;
	}
	if (msg->n_children == 0 || msg->leaf != NULL) {
		snprintf(why, why_len, "a node of the layout has no children");
		return -EUCLEAN;
	}
	if (msg->type == DIRECTORY__TREE_NODE__TYPE__RAID0 &&
	    (node->unit_bytes < DOM_BLOCK || node->unit_bytes % DOM_BLOCK)) {
		snprintf(why, why_len, "a stripe unit of %u bytes",
			 node->unit_bytes);
		return -EUCLEAN;
	}
	node->children = calloc(msg->n_children, sizeof(*node->children));
	node->starts = calloc(msg->n_children, sizeof(*node->starts));
	if (node->children == NULL || node->starts == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < msg->n_children; i++) {
		struct node *child = &node->children[i];
		uint64_t need;
		int rv;

		node->children_count++;
		rv = node_make(tree, child, msg->children[i], why, why_len);
		if (rv < 0)
			return rv;
		node->starts[i] = start;
		if (node->type == DIRECTORY__TREE_NODE__TYPE__CONCAT) {
			/* Edges on block edges: a block is in one child. */
			if (child->size_bytes % DOM_BLOCK &&
			    i + 1 < msg->n_children)
				goto bad_size;
			need = 0;
			if (__builtin_add_overflow(start, child->size_bytes,
						   &start))
				goto bad_size;
		} else {
			need = column_bytes(node->size_bytes, node->unit_bytes,
					    (unsigned)msg->n_children,
					    (unsigned)i);
		}
		if (child->size_bytes < need)
			goto bad_size;
	}
	if (node->type == DIRECTORY__TREE_NODE__TYPE__CONCAT &&
	    start < node->size_bytes)
		goto bad_size;
	return 0;

bad_size:
	snprintf(why, why_len, "the sizes in the layout do not add up");
	return -EUCLEAN;
}

int dom__tree_make(const Directory__TreeNode *root, uint64_t size_bytes,
		   struct dom__tree **out, char *why, size_t why_len)
{
	struct dom__tree *tree;
	unsigned leaves;
	int rv;

	if (root == NULL || (leaves = leaves_under(root, 0)) == 0 ||
	    leaves > DOM_LEAVES_MAX) {
		snprintf(why, why_len,
			 "the layout has no components or is "
			 "too deep or too large");
		return -EUCLEAN;
	}
	if (ROUND_UP(root->size_bytes, (uint64_t)DOM_BLOCK) < size_bytes) {
		snprintf(why, why_len, "the layout is smaller than the object");
		return -EUCLEAN;
	}
	tree = calloc(1, sizeof(*tree));
	if (tree == NULL)
		return -ENOMEM;
	tree->leaves = calloc(leaves, sizeof(*tree->leaves));
	rv = tree->leaves == NULL
		     ? -ENOMEM
		     : node_make(tree, &tree->root, root, why, why_len);
	if (rv < 0) {
		dom__tree_free(tree);
		return rv;
	}
	*out = tree;
	return 0;
}

void dom__tree_free(struct dom__tree *tree)
{
	if (tree == NULL)
		return;
	node_fini(&tree->root);
	free(tree->leaves);
	free(tree);
}

unsigned dom__tree_leaves_count(const struct dom__tree *tree)
{
	return tree->leaves_count;
}

struct dom__leaf *dom__tree_leaf(struct dom__tree *tree, unsigned index)
{
	assert(index < tree->leaves_count);
	return &tree->leaves[index];
}

uint64_t dom__tree_size(const struct dom__tree *tree)
{
	return tree->root.size_bytes;
}

static uint32_t node_stripe(const struct node *node)
{
	uint32_t least = 1u << 30;

	if (node->type == DIRECTORY__TREE_NODE__TYPE__RAID0 &&
	    node->children_count > 1)
		least = node->unit_bytes;
	for (unsigned i = 0; i < node->children_count; i++)
		least = MIN(least, node_stripe(&node->children[i]));
	return least;
}

uint32_t dom__tree_stripe_bytes(const struct dom__tree *tree)
{
	return node_stripe(&tree->root);
}

static unsigned concat_child(const struct node *node, uint64_t offset)
{
	unsigned lo = 0, hi = node->children_count;

	while (hi - lo > 1) {
		unsigned mid = lo + (hi - lo) / 2;

		if (node->starts[mid] <= offset)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

struct dom__extent dom__tree_map(const struct dom__tree *tree, uint64_t offset,
				 uint64_t len)
{
	const struct node *node = &tree->root;

	while (node->type != DIRECTORY__TREE_NODE__TYPE__COMPONENT) {
		unsigned i;

		if (node->type == DIRECTORY__TREE_NODE__TYPE__CONCAT) {
			i = concat_child(node, offset);
			offset -= node->starts[i];
			/* The last child may end within a block. */
			if (i + 1 < node->children_count)
				len = MIN(len, node->children[i].size_bytes -
						       offset);
		} else {
			uint64_t unit = offset / node->unit_bytes;
			uint64_t in_unit = offset % node->unit_bytes;

			i = (unsigned)(unit % node->children_count);
			if (node->children_count > 1)
				len = MIN(len, node->unit_bytes - in_unit);
			offset =
				unit / node->children_count * node->unit_bytes +
				in_unit;
		}
		node = &node->children[i];
	}
	assert(offset < ROUND_UP(node->size_bytes, (uint64_t)DOM_BLOCK));
	return (struct dom__extent){ .leaf = node->leaf,
				     .offset = offset,
				     .len = len };
}

static unsigned node_spread(const struct node *node, uint64_t start,
			    uint64_t end, struct dom__extent *out)
{
	unsigned n = 0;

	if (start >= end)
		return 0;
	if (node->type == DIRECTORY__TREE_NODE__TYPE__COMPONENT) {
		out[0] = (struct dom__extent){ .leaf = node->leaf,
					       .offset = start,
					       .len = end - start };
		return 1;
	}
	for (unsigned i = 0; i < node->children_count; i++) {
		const struct node *child = &node->children[i];
		uint64_t from, to;

		if (node->type == DIRECTORY__TREE_NODE__TYPE__CONCAT) {
			uint64_t first = node->starts[i];
			uint64_t last = i + 1 < node->children_count
						? node->starts[i + 1]
						: UINT64_MAX;

			if (end <= first || start >= last)
				continue;
			from = MAX(start, first) - first;
			to = MIN(end, last) - first;
		} else {
			from = column_bytes(start, node->unit_bytes,
					    node->children_count, i);
			to = column_bytes(end, node->unit_bytes,
					  node->children_count, i);
		}
		n += node_spread(child, from, to, out + n);
	}
	return n;
}

unsigned dom__tree_spread(const struct dom__tree *tree, uint64_t offset,
			  uint64_t len, struct dom__extent *out)
{
	return node_spread(&tree->root, offset, offset + len, out);
}
