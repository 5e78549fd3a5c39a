/* The tests of dom_space.c on three shards: disks and objects are elsewhere. */
#define RIG_SHARDS 3u
/* NOLINTNEXTLINE(bugprone-suspicious-include): its tests, once more */
#include "tests/unit/dom_space.c"

#include "lsom/lsom_int.h"

/* What is kept for an object of another shard is told when it was asked. */
TEST(dom_space_far, kept_is_heard)
{
	struct fixture *f = fixture_open();

	reserve_put(f, "thick", 2, 100);
	CHECK_EQ(object_next(f, 50, 16 * MB, "thick"), 0);
	CHECK(f->object->far != NULL);
	CHECK_EQ(dom_object_kept(f->object), 16 * MB);
	CHECK_EQ(do_write(f, 0, buf_a, MB, 0, 0), 0);
	/* It tells what it knows, and asks. */
	for (unsigned i = 0; i < 6000 && dom_object_kept(f->object) != 15 * MB;
	     i++)
		nap(f, 10 * MSEC);
	CHECK_EQ(dom_object_kept(f->object), 15 * MB);
	fixture_close(f);
}

static void counts_forget(struct rig_shard *home)
{
	struct lsom_comp *comp;

	TAILQ_FOREACH (comp, &home->disks[home->disk]->comps, link)
		comp->counted = LSOM__COUNT_NONE;
	rig_back(home, 0);
}

static void checkpoint(struct rig_shard *home)
{
	lsom__checkpoint_start(home->disks[home->disk]);
	rig_back(home, 0);
}

/* Asked on one shard, counted by the disk's behind its next checkpoint. */
TEST(dom_space_far, counted_for_another_shard)
{
	struct fixture *f = fixture_open();
	struct dom_space space;
	struct uuid oid;

	counted_begin(f);
	oid = f->oid;
	stop(f);
	f->incarnation++;
	start(f, false);
	f->oid = oid;
	counted_is(f, 2 * MB - 15 * B);
	for (unsigned i = 0; i < DISKS; i++) {
		rig_home(f, i)->disk = i;
		rig_do(rig_home(f, i), counts_forget);
	}
	CHECK_EQ(space_of(f, &f->oid, &space), -ENODATA);
	for (unsigned n = 0; space_of(f, &f->oid, &space) < 0; n++) {
		for (unsigned i = 0; i < DISKS; i++) {
			rig_home(f, i)->disk = i;
			rig_do(rig_home(f, i), checkpoint);
		}
		nap(f, 50 * MSEC);
		CHECK(n < 1000);
	}
	CHECK_EQ(space.used_bytes, 2 * MB - 15 * B);
	fixture_close(f);
}
