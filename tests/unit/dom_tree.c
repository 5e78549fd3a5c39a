/* tree and plan: every byte of an object lies in exactly one place. */
#include "tests/lib/test.h"

#include "dom/dom_int.h"

#include <errno.h>
#include <stdlib.h>

static Directory__TreeNode *node(Directory__TreeNode__Type type, uint64_t size,
				 size_t children)
{
	Directory__TreeNode *n = calloc(1, sizeof(*n));

	directory__tree_node__init(n);
	n->type = type;
	n->size_bytes = size;
	if (children > 0)
		n->children = calloc(children, sizeof(*n->children));
	n->n_children = children;
	return n;
}

static Directory__TreeNode *leaf(uint64_t size, unsigned id)
{
	Directory__TreeNode *n =
		node(DIRECTORY__TREE_NODE__TYPE__COMPONENT, size, 0);
	ProtobufCBinaryData *ids[3];

	n->leaf = calloc(1, sizeof(*n->leaf));
	directory__leaf__init(n->leaf);
	ids[0] = &n->leaf->cid;
	ids[1] = &n->leaf->node;
	ids[2] = &n->leaf->disk;
	for (unsigned i = 0; i < 3; i++) {
		ids[i]->data = calloc(1, 16);
		ids[i]->data[0] = (uint8_t)id;
		ids[i]->len = 16;
	}
	return n;
}

static Directory__TreeNode *stripe(uint64_t size, unsigned width, uint32_t unit,
				   unsigned id)
{
	Directory__TreeNode *n =
		node(DIRECTORY__TREE_NODE__TYPE__RAID0, size, width);
	uint64_t row = (uint64_t)unit * width;

	n->stripe_unit_bytes = unit;
	for (unsigned i = 0; i < width; i++)
		n->children[i] = leaf((size + row - 1) / row * unit, id + i);
	return n;
}

/* Each block of the object is mapped once, and spread says the same. */
static void check_once(Directory__TreeNode *root)
{
	struct dom__extent out[16];
	struct dom__tree *tree;
	uint8_t *seen[16];
	char why[160];
	uint64_t size = root->size_bytes;

	CHECK_EQ(dom__tree_make(root, size, &tree, why, sizeof(why)), 0);
	for (unsigned i = 0; i < dom__tree_leaves_count(tree); i++)
		seen[i] = calloc(1, dom__tree_leaf(tree, i)->size_bytes /
					    DOM_BLOCK);
	for (uint64_t at = 0; at < size; at += DOM_BLOCK) {
		struct dom__extent e = dom__tree_map(tree, at, DOM_BLOCK);
		uint64_t back = e.offset;

		CHECK_EQ(e.len, DOM_BLOCK);
		CHECK(clom_offset(root, &dom__tree_leaf(tree, e.leaf)->cid,
				  &back));
		CHECK_EQ(back, at);
		CHECK_EQ(e.offset % DOM_BLOCK, 0);
		CHECK(e.offset + e.len <=
		      dom__tree_leaf(tree, e.leaf)->size_bytes);
		CHECK_EQ(seen[e.leaf][e.offset / DOM_BLOCK]++, 0);
	}
	for (unsigned n = 0; n < 200; n++) {
		uint64_t a = (uint64_t)rand() % (size / DOM_BLOCK) * DOM_BLOCK;
		uint64_t len =
			(1 + (uint64_t)rand() % ((size - a) / DOM_BLOCK)) *
			DOM_BLOCK;
		unsigned count = dom__tree_spread(tree, a, len, out);
		uint64_t sum = 0, at = 0;
		struct dom__plan plan;

		for (unsigned i = 0; i < count; i++)
			sum += out[i].len;
		CHECK_EQ(sum, len);
		while (at < len) {
			struct dom__extent e =
				dom__tree_map(tree, a + at, len - at);
			bool in = false;

			for (unsigned i = 0; i < count; i++)
				in = in || (out[i].leaf == e.leaf &&
					    e.offset >= out[i].offset &&
					    e.offset + e.len <=
						    out[i].offset + out[i].len);
			CHECK(in);
			at += e.len;
		}
		CHECK_EQ(dom__plan_make(&plan, tree, a, len), 0);
		sum = 0;
		for (unsigned i = 0; i < plan.parts_count; i++) {
			CHECK(plan.parts[i].len <= LSOM_WRITE_MAX);
			sum += plan.parts[i].len;
		}
		CHECK_EQ(sum, len);
		at = 0;
		for (unsigned i = 0; i < plan.frags_count; i++) {
			const struct dom__frag *f = &plan.frags[i];
			struct dom__extent e = dom__tree_map(tree, a + at, 1);

			CHECK_EQ(e.leaf, plan.parts[f->part].leaf);
			CHECK_EQ(e.offset,
				 plan.parts[f->part].offset + f->offset);
			at += f->len;
		}
		CHECK_EQ(at, len);
		dom__plan_fini(&plan);
	}
	for (unsigned i = 0; i < dom__tree_leaves_count(tree); i++)
		free(seen[i]);
	dom__tree_free(tree);
	directory__tree_node__free_unpacked(root, NULL);
}

TEST(dom_tree, every_byte_once)
{
	Directory__TreeNode *concat;

	srand(7);
	check_once(leaf(4 << 20, 1));
	check_once(stripe(4 << 20, 3, 16384, 1));
	check_once(stripe((4 << 20) + 4096, 4, 65536, 1));
	check_once(stripe(8 << 20, 2, 1 << 20, 1));
	concat = node(DIRECTORY__TREE_NODE__TYPE__CONCAT, 11 << 20, 3);
	concat->children[0] = stripe(4 << 20, 3, 8192, 1);
	concat->children[1] = leaf(3 << 20, 5);
	concat->children[2] = stripe(4 << 20, 2, 4096, 6);
	check_once(concat);
}

/* Not only where all of it is: what lies deeper is counted, too. */
TEST(dom_tree, too_deep_is_refused)
{
	Directory__TreeNode *root, *n;
	struct dom__tree *tree;
	char why[160];

	for (unsigned depth = 7; depth <= 8; depth++) {
		n = leaf(1 << 20, 1);
		for (unsigned i = 1; i < depth; i++) {
			root = node(DIRECTORY__TREE_NODE__TYPE__CONCAT, 1 << 20,
				    1);
			root->children[0] = n;
			n = root;
		}
		root = node(DIRECTORY__TREE_NODE__TYPE__CONCAT, 2 << 20, 2);
		root->children[0] = leaf(1 << 20, 2);
		root->children[1] = n;
		if (depth == 7) {
			check_once(root);
			continue;
		}
		CHECK_EQ(dom__tree_make(root, 2 << 20, &tree, why, sizeof(why)),
			 -EUCLEAN);
		directory__tree_node__free_unpacked(root, NULL);
	}
}

TEST(dom_tree, nonsense_is_refused)
{
	struct dom__tree *tree;
	char why[160];
	Directory__TreeNode *n = stripe(1 << 20, 2, 1000, 1);

	CHECK_EQ(dom__tree_make(NULL, 1, &tree, why, sizeof(why)), -EUCLEAN);
	CHECK_EQ(dom__tree_make(n, 1 << 20, &tree, why, sizeof(why)), -EUCLEAN);
	n->stripe_unit_bytes = 4096;
	CHECK_EQ(dom__tree_make(n, 2 << 20, &tree, why, sizeof(why)), -EUCLEAN);
	n->children[1]->size_bytes = 4096;
	CHECK_EQ(dom__tree_make(n, 1 << 20, &tree, why, sizeof(why)), -EUCLEAN);
	n->type = DIRECTORY__TREE_NODE__TYPE__RAID1;
	CHECK_EQ(dom__tree_make(n, 1 << 20, &tree, why, sizeof(why)),
		 -EOPNOTSUPP);
	directory__tree_node__free_unpacked(n, NULL);
	n = leaf(4096, 1);
	n->leaf->cid.len = 3;
	CHECK_EQ(dom__tree_make(n, 4096, &tree, why, sizeof(why)), -EUCLEAN);
	directory__tree_node__free_unpacked(n, NULL);
}
