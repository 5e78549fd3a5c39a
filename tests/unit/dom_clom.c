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
					.reserved_bytes =
						clom_reserved(policy, size),
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

	/* One of the object's shard is worth a tenth of its space, not more. */
	disks[2].near = true;
	CHECK_EQ(place(NULL, 10 << 20, &tree, &forced, why), 0);
	CHECK_EQ(tree->leaf->disk.data[0], 2);
	directory__tree_node__free_unpacked(tree, NULL);
	disks[1].used_bytes = 81 << 20;
	CHECK_EQ(place(NULL, 10 << 20, &tree, &forced, why), 0);
	CHECK_EQ(tree->leaf->disk.data[0], 3);
	directory__tree_node__free_unpacked(tree, NULL);
	disks[1].used_bytes = 0;
	disks[2].near = false;

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

/* All disks are in order, and have as many components as there can be. */
TEST(dom_clom, crowded)
{
	Directory__TreeNode *tree;
	char why[256];
	bool forced;

	for (unsigned i = 0; i < 3; i++)
		disks[i].components = 9000;
	CHECK_EQ(place(NULL, 10 << 20, &tree, &forced, why), -ENXIO);
	CHECK(strstr(why, "has 9000 components, the most") != NULL);
	for (unsigned i = 0; i < 3; i++)
		disks[i].healthy = false;
	CHECK_EQ(place(NULL, 10 << 20, &tree, &forced, why), -ENXIO);
	CHECK(strstr(why, "'basalt disk list' shows why") != NULL);
	for (unsigned i = 0; i < 3; i++) {
		disks[i].components = 0;
		disks[i].healthy = true;
	}
}

static unsigned disk_for(uint64_t size)
{
	Directory__TreeNode *tree;
	char why[256];
	unsigned disk;
	bool forced;

	CHECK_EQ(place(NULL, size, &tree, &forced, why), 0);
	disk = tree->leaf->disk.data[0];
	directory__tree_node__free_unpacked(tree, NULL);
	return disk;
}

/* What is promised counts as what is written does; then what is there at all. */
TEST(dom_clom, thin_ones_are_spread)
{
	disks[1].promised_bytes = 190 << 20;
	CHECK_EQ(disk_for(10 << 20), 2); /* 300 + 110 of 2, 200 + 200 of 3 */
	disks[1].promised_bytes = 210 << 20;
	CHECK_EQ(disk_for(10 << 20), 3);
	/* No better for being written. */
	disks[1].used_bytes = 150 << 20;
	disks[1].kept_bytes = 50 << 20;
	CHECK_EQ(disk_for(10 << 20), 3);
	/* More may be promised than there is: the least so of all. */
	disks[0].promised_bytes = 1000 << 20;
	disks[1].promised_bytes = 2000ull << 20;
	disks[2].promised_bytes = 3000ull << 20;
	CHECK_EQ(disk_for(10 << 20), 1);
	for (unsigned i = 0; i < 3; i++)
		disks[i].promised_bytes = 0;
	disks[1].used_bytes = disks[1].kept_bytes = 0;
	/* All alike: the fewest components. */
	disks[1].usable_bytes = disks[0].usable_bytes = disks[2].usable_bytes;
	disks[0].components = disks[2].components = 2;
	CHECK_EQ(disk_for(10 << 20), 2);
	disks[1].components = 3;
	CHECK_EQ(disk_for(10 << 20), 1);
	for (unsigned i = 0; i < 3; i++)
		disks[i].components = 0;
	disks[0].usable_bytes = 100 << 20;
	disks[1].usable_bytes = 300 << 20;
}

/* Sizes up and down over leg edges always make a tree that maps. */
TEST(dom_clom, resizing)
{
	static const uint64_t sizes[] = { 10 << 20,	    70 << 20, 65 << 20,
					  200 << 20,	    4096,     64 << 20,
					  (64 << 20) + 512, 3 << 20 };
	Directory__Policy p = DIRECTORY__POLICY__INIT;

	for (unsigned width = 1; width <= 3; width++) {
		Directory__Object object = DIRECTORY__OBJECT__INIT;
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

			object.tree = tree;
			object.size_bytes = tree->size_bytes;
			CHECK_EQ(clom__resize(&snapshot, &request, &object,
					      &next, why, sizeof(why)),
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

/* ---- what is reserved ---- */

TEST(dom_clom, shares)
{
	Directory__Policy p = DIRECTORY__POLICY__INIT;
	const uint64_t gib = 1ull << 30, tib = 1ull << 40;

	CHECK_EQ(clom_reserved(NULL, gib), 0);
	p.reserve_percent = 100;
	CHECK_EQ(clom_reserved(&p, gib + 512), gib + 512);
	p.reserve_percent = 30;
	CHECK_EQ(clom_reserved(&p, 1000), 300);
	CHECK_EQ(clom_share(gib, 4 * gib, 2 * gib), gib / 2);
	CHECK_EQ(clom_share(gib, gib, 1), 4096);
	CHECK_EQ(clom_share(gib, gib, 0), 0);
	/* Thick, also as an earlier version counted: bytes / 100 * 100. */
	CHECK_EQ(clom_share(gib, gib, gib / 100 * 100), gib);
	CHECK_EQ(clom_share(gib, 3 * gib, 3 * gib / 100 * 100), gib);
	/* A product of more than 64 bits. */
	CHECK_EQ(clom_share(256 * gib, 128 * tib, 64 * tib), 128 * gib);
	/* By the policy of what it grows; and the same share of what stays. */
	CHECK_EQ(clom_resized(&p, 1000, 500, 2000), 800);
	CHECK_EQ(clom_resized(&p, 1000, 500, 600), 300);
	CHECK_EQ(clom_resized(NULL, 1000, 1000, 2000), 1000);
	CHECK_EQ(clom_resized(&p, 1000, 5000, 2000), 1300);
}

/* Room on the disks together is none: each has to have it. */
TEST(dom_clom, reserved_on_each_disk)
{
	Directory__Policy p = DIRECTORY__POLICY__INIT;
	Directory__TreeNode *tree;
	char why[256];
	bool forced;

	p.reserve_percent = 100;
	/* Legs of 64 MiB: 1 + 4 + 3 of them, and not one more. */
	CHECK_EQ(place(&p, 512 << 20, &tree, &forced, why), 0);
	directory__tree_node__free_unpacked(tree, NULL);
	CHECK_EQ(place(&p, 576 << 20, &tree, &forced, why), -ENOSPC);
	CHECK_STR(why, "576M is to be reserved, and 64M of it finds no room: "
		       "disk 02000000, the best for it, has 44M left of the "
		       "600M that the disks have neither used nor reserved; "
		       "add a disk, or reserve less");
	p.reserve_percent = 50;
	CHECK_EQ(place(&p, 576 << 20, &tree, &forced, why), 0);
	directory__tree_node__free_unpacked(tree, NULL);
	/* Three columns of 52 and 62 MiB: the small disk has 60. */
	p.reserve_percent = 100;
	p.stripe_width = 3;
	disks[0].kept_bytes = 40 << 20;
	CHECK_EQ(place(&p, 150 << 20, &tree, &forced, why), 0);
	directory__tree_node__free_unpacked(tree, NULL);
	CHECK_EQ(place(&p, 180 << 20, &tree, &forced, why), -ENOSPC);
	disks[0].used_bytes = 10 << 20;
	CHECK_EQ(place(&p, 150 << 20, &tree, &forced, why), -ENOSPC);
	disks[0].used_bytes = disks[0].kept_bytes = 0;
	/* Thin goes anywhere, where others are full of promises, too. */
	for (unsigned i = 0; i < 3; i++)
		disks[i].kept_bytes = disks[i].usable_bytes;
	CHECK_EQ(place(NULL, 10 << 20, &tree, &forced, why), 0);
	directory__tree_node__free_unpacked(tree, NULL);
	for (unsigned i = 0; i < 3; i++)
		disks[i].kept_bytes = 0;
}

static int grown(const Directory__TreeNode *tree, uint64_t was,
		 uint64_t reserved, uint64_t size, char *why)
{
	Directory__Policy p = DIRECTORY__POLICY__INIT;
	Directory__Object object = DIRECTORY__OBJECT__INIT;
	Directory__TreeNode *next = NULL;
	struct clom_request request = { .policy = &p,
					.size_bytes = size,
					.leg_bytes = 64 << 20,
					.csn = 2,
					.uuid_make = id_make };
	int rv;

	p.reserve_percent = 100;
	object.tree = (Directory__TreeNode *)tree;
	object.size_bytes = was;
	object.reserved_bytes = reserved;
	request.reserved_bytes = clom_resized(&p, was, reserved, size);
	rv = clom__resize(&snapshot, &request, &object, &next, why, 256);
	if (rv == 0)
		directory__tree_node__free_unpacked(next, NULL);
	return rv;
}

/* A leg that grows stays on its disk, which must have the room. */
TEST(dom_clom, reserved_and_grown)
{
	Directory__TreeNode *tree;
	char why[256] = "";
	bool forced;

	/* On the disk of 300 MiB, where 20 of it are kept already. */
	CHECK_EQ(place(NULL, 20 << 20, &tree, &forced, why), 0);
	CHECK_EQ(tree->leaf->disk.data[0], 2);
	disks[1].used_bytes = 230 << 20;
	disks[1].kept_bytes = 20 << 20;
	CHECK_EQ(grown(tree, 20 << 20, 20 << 20, 60 << 20, why), 0);
	disks[1].used_bytes = 241 << 20;
	CHECK_EQ(grown(tree, 20 << 20, 20 << 20, 60 << 20, why), -ENOSPC);
	CHECK_STR(why, "40M more is to be reserved, and 40M of it finds no "
		       "room: disk 02000000, the best for it, has 39M left of "
		       "the 339M that the disks have neither used nor "
		       "reserved; add a disk, or reserve less");
	/* One that gets no more there grows elsewhere. */
	directory__tree_node__free_unpacked(tree, NULL);
	disks[1].used_bytes = 0;
	CHECK_EQ(place(NULL, 64 << 20, &tree, &forced, why), 0);
	disks[1].used_bytes = 280 << 20;
	CHECK_EQ(grown(tree, 64 << 20, 64 << 20, 256 << 20, why), 0);
	CHECK_EQ(grown(tree, 64 << 20, 64 << 20, 384 << 20, why), -ENOSPC);
	/* What was promised before there was room is no reason to refuse. */
	disks[1].used_bytes = 310 << 20;
	CHECK_EQ(grown(tree, 64 << 20, 64 << 20, 128 << 20, why), 0);
	directory__tree_node__free_unpacked(tree, NULL);
	disks[1].used_bytes = disks[1].kept_bytes = 0;
}

/* However large a size is: it is not taken for a small one. */
TEST(dom_clom, larger_than_all_legs)
{
	static const uint64_t sizes[] = { 513ull << 26, 1ull << 63,
					  UINT64_MAX - (64 << 20) + 1,
					  UINT64_MAX - 4095, UINT64_MAX - 511 };
	Directory__Policy wide = DIRECTORY__POLICY__INIT;
	Directory__TreeNode *tree, *none = NULL;
	char why[256];
	bool forced;

	CHECK_EQ(place(NULL, 20 << 20, &tree, &forced, why), 0);
	for (unsigned i = 0; i < ARRAY_LEN(sizes); i++) {
		why[0] = '\0';
		CHECK_EQ(place(NULL, sizes[i], &none, &forced, why), -ERANGE);
		CHECK(strstr(why, "has at most 32G") != NULL);
		why[0] = '\0';
		CHECK_EQ(grown(tree, 20 << 20, 0, sizes[i], why), -ERANGE);
		CHECK(strstr(why, "has at most 32G") != NULL);
	}
	directory__tree_node__free_unpacked(tree, NULL);
	/* Stripes are leaves, too: 341 legs of three. */
	wide.stripe_width = 3;
	CHECK_EQ(place(&wide, 342ull << 26, &none, &forced, why), -ERANGE);
	CHECK(strstr(why, "stripe width 3 ") != NULL);
	CHECK_EQ(place(&wide, 341ull << 26, &tree, &forced, why), 0);
	CHECK_EQ(tree->n_children, 341);
	directory__tree_node__free_unpacked(tree, NULL);
}
