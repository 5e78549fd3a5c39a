/* clom: placement is what the policy says, or says why not. */
#include "tests/lib/test.h"

#include "dom/dom_int.h"

#include <errno.h>

static unsigned ids;

static void id_make(void *arg, struct uuid *out)
{
	memset(out, 0, sizeof(*out));
	out->b[0] = (uint8_t)++ids;
	out->b[1] = (uint8_t)(ids >> 8);
	out->b[15] = 1;
}

static struct clom_disk disks[3] = {
	{ .disk = { { 1 } },
	  .fault_domain = "n",
	  .usable_bytes = 100 << 20,
	  .healthy = true },
	{ .disk = { { 2 } },
	  .fault_domain = "n",
	  .usable_bytes = 300 << 20,
	  .healthy = true },
	{ .disk = { { 3 } },
	  .fault_domain = "n",
	  .usable_bytes = 200 << 20,
	  .healthy = true },
};
static const struct clom_snapshot snapshot = { disks, 3 };

static int place(const Directory__Policy *policy, uint64_t size,
		 Directory__TreeNode **out, bool *forced, char *why)
{
	struct clom_request request = { .policy = policy,
					.size_bytes = size,
					.leg_bytes = 64 << 20,
					.csn = 1,
					.uuid_make = id_make };

	return clom_place(&snapshot, &request, out, forced, why, 256);
}

TEST(dom_clom, placed_and_refused)
{
	Directory__Policy p = DIRECTORY__POLICY__INIT;
	Directory__TreeNode *tree;
	Directory__Object object = DIRECTORY__OBJECT__INIT;
	char why[256];
	bool forced;

	/* The emptiest disk. */
	CHECK_EQ(place(NULL, 10 << 20, &tree, &forced, why), 0);
	CHECK_EQ(tree->leaf->disk.data[0], 2);
	CHECK(!forced);
	directory__tree_node__free_unpacked(tree, NULL);

	p.stripe_width = 2;
	CHECK_EQ(place(&p, 10 << 20, &tree, &forced, why), 0);
	CHECK_EQ(tree->n_children, 2);
	CHECK_EQ(tree->children[0]->leaf->disk.data[0], 2);
	CHECK_EQ(tree->children[1]->leaf->disk.data[0], 3);
	object.tree = tree;
	CHECK(clom_compliant(&object, &p, why, sizeof(why)));
	CHECK_EQ(clom_health(&object), CLOM_HEALTHY);
	tree->children[1]->leaf->state = DIRECTORY__LEAF__STATE__STALE;
	CHECK_EQ(clom_health(&object), CLOM_UNAVAILABLE);
	directory__tree_node__free_unpacked(tree, NULL);

	p.stripe_width = 4;
	CHECK_EQ(place(&p, 10 << 20, &tree, &forced, why), -ENXIO);
	CHECK_STR(why, "stripe width 4 needs 4 disks, 3 found");
	p.stripe_width = 1;
	p.failures_to_tolerate = 1;
	CHECK_EQ(place(&p, 10 << 20, &tree, &forced, why), -ENXIO);
	CHECK_STR(why, "failures to tolerate 1 needs 3 fault domains, 1 found");
	p.force_provision = true;
	CHECK_EQ(place(&p, 10 << 20, &tree, &forced, why), 0);
	CHECK(forced);
	object.tree = tree;
	CHECK(!clom_compliant(&object, &p, why, sizeof(why)));
	directory__tree_node__free_unpacked(tree, NULL);

	p.failures_to_tolerate = 0;
	p.reserve_percent = 100;
	CHECK_EQ(place(&p, 700 << 20, &tree, &forced, why), -ENOSPC);
}

/* Sizes up and down over leg edges always make a tree that maps. */
TEST(dom_clom, resizing)
{
	static const uint64_t sizes[] = { 10 << 20,	    70 << 20, 65 << 20,
					  200 << 20,	    4096,     64 << 20,
					  (64 << 20) + 512, 3 << 20 };
	Directory__Policy p = DIRECTORY__POLICY__INIT;

	for (unsigned width = 1; width <= 3; width++) {
		Directory__TreeNode *tree, *next;
		char why[256] = "";
		bool forced;

		p.stripe_width = width;
		CHECK_EQ(place(&p, 1 << 20, &tree, &forced, why), 0);
		for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
			struct clom_request request = { .policy = &p,
							.size_bytes = sizes[i],
							.leg_bytes = 64 << 20,
							.csn = 2,
							.uuid_make = id_make };
			struct dom__tree *mapped;

			CHECK_EQ(clom__resize(&snapshot, &request, tree, &next,
					      why, sizeof(why)),
				 0);
			directory__tree_node__free_unpacked(tree, NULL);
			tree = next;
			CHECK_EQ(tree->size_bytes, ROUND_UP(sizes[i], 4096));
			CHECK_EQ(dom__tree_make(tree, sizes[i], &mapped, why,
						sizeof(why)),
				 0);
			dom__tree_free(mapped);
		}
		directory__tree_node__free_unpacked(tree, NULL);
	}
}
