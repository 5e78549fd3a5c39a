/* What is left of an object when leaves are lost; names. */
#include "node/admin_int.h"
#include "node/names.h"
#include "tests/lib/test.h"

#define T(t) DIRECTORY__TREE_NODE__TYPE__##t

struct tree {
	Directory__TreeNode nodes[8], *children[8];
	Directory__Leaf leaves[8];
};

static bool leaf_ok(const Directory__Leaf *leaf, void *arg)
{
	return !(*(unsigned *)arg & 1u << leaf->votes);
}

/* A node of @type over @n leaves, the last ones witnesses. */
static Directory__TreeNode *grow(struct tree *t, Directory__TreeNode__Type type,
				 unsigned n, unsigned witnesses)
{
	for (unsigned i = 0; i <= n; i++) {
		directory__tree_node__init(&t->nodes[i]);
		if (i == n)
			break;
		directory__leaf__init(&t->leaves[i]);
		t->leaves[i].votes = i;
		t->nodes[i].type =
			i < n - witnesses ? T(COMPONENT) : T(WITNESS);
		t->nodes[i].size_bytes = 100;
		t->nodes[i].leaf = &t->leaves[i];
		t->children[i] = &t->nodes[i];
	}
	t->nodes[n].type = type;
	t->nodes[n].children = t->children;
	t->nodes[n].n_children = n;
	return &t->nodes[n];
}

static enum object_health health(Directory__TreeNode *tree, unsigned lost)
{
	return node__tree_health(tree, leaf_ok, &lost);
}

TEST(node_objects, losses)
{
	struct tree t;

	CHECK_EQ(health(grow(&t, T(CONCAT), 2, 0), 0), OBJECT_HEALTHY);
	CHECK_EQ(health(grow(&t, T(CONCAT), 2, 0), 2), OBJECT_UNAVAILABLE);
	CHECK_EQ(health(grow(&t, T(RAID0), 3, 0), 1), OBJECT_UNAVAILABLE);
	CHECK_EQ(health(grow(&t, T(RAID1), 2, 0), 1), OBJECT_REDUCED);
	CHECK_EQ(health(grow(&t, T(RAID1), 2, 0), 3), OBJECT_UNAVAILABLE);
	CHECK_EQ(health(grow(&t, T(RAID5), 4, 0), 8), OBJECT_REDUCED);
	CHECK_EQ(health(grow(&t, T(RAID5), 4, 0), 9), OBJECT_UNAVAILABLE);
	CHECK_EQ(health(grow(&t, T(RAID6), 6, 0), 9), OBJECT_REDUCED);
	CHECK_EQ(health(grow(&t, T(RAID6), 6, 0), 11), OBJECT_UNAVAILABLE);
}

TEST(node_objects, a_witness_is_no_copy)
{
	struct tree t;

	/* copies 0 and 1, witness 2 */
	CHECK_EQ(health(grow(&t, T(RAID1), 3, 1), 4), OBJECT_REDUCED);
	CHECK_EQ(health(grow(&t, T(RAID1), 3, 1), 1), OBJECT_REDUCED);
	CHECK_EQ(health(grow(&t, T(RAID1), 3, 1), 3), OBJECT_UNAVAILABLE);
	CHECK_EQ(node__tree_raw(grow(&t, T(RAID1), 3, 1)), 200);
}

TEST(node_objects, uses)
{
	struct uuid a = { { 1 } }, b = { { 2 } };
	struct tree t;
	Directory__TreeNode *tree = grow(&t, T(RAID1), 2, 0);

	t.leaves[1].disk.data = a.b;
	t.leaves[1].disk.len = sizeof(a.b);
	CHECK(node__tree_uses(tree, &a));
	CHECK(!node__tree_uses(tree, &b));
	CHECK(!node__tree_uses(NULL, &a));
}

TEST(node_names, what_is_a_name)
{
	char longest[65];

	CHECK(names_ok("a", true));
	CHECK(names_ok("vm-1.disk0", true));
	CHECK(names_ok("VM_1", false));
	CHECK(!names_ok("VM_1", true));
	CHECK(!names_ok("", false));
	CHECK(!names_ok("-a", false));
	CHECK(!names_ok("a/b", false));
	CHECK(!names_ok("a b", false));
	CHECK(!names_ok("a\n", false));
	memset(longest, 'a', 64);
	longest[64] = '\0';
	CHECK(!names_ok(longest, true));
	longest[63] = '\0';
	CHECK(names_ok(longest, true));
}

TEST(node_names, lun_keys_are_in_order)
{
	uint8_t a[CMMDS_KEY_MAX], b[CMMDS_KEY_MAX];

	CHECK_EQ(node__lun_key("t", 1, a), 4);
	CHECK_EQ(node__lun_key("t", 256, b), 4);
	CHECK(memcmp(a, b, 4) < 0);
	CHECK(memcmp(a, "t\0\0\1", 4) == 0);
}
