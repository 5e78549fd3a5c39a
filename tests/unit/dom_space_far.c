/* The tests of dom_space.c on three shards: disks and objects are elsewhere. */
#define RIG_SHARDS 3u
/* NOLINTNEXTLINE(bugprone-suspicious-include): its tests, once more */
#include "tests/unit/dom_space.c"

/* What is kept for an object of another shard is told when it was asked. */
TEST(dom_space_far, kept_is_heard)
{
	struct fixture *f = fixture_open();

	reserve_put(f, "thick", 2, 100);
	CHECK_EQ(object_next(f, 50, 16 * MB, "thick"), 0);
	CHECK(f->object->far != NULL);
	CHECK_EQ(dom_object_kept(f->object), 16 * MB);
	CHECK_EQ(do_write(f, 0, buf_a, MB, 0, 0), 0);
	(void)dom_object_kept(f->object); /* asks */
	nap(f, 50 * MSEC);
	CHECK_EQ(dom_object_kept(f->object), 15 * MB);
	fixture_close(f);
}
