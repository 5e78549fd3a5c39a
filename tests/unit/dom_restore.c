/*
 * A directory that was put back from a backup: the disks know more than it.
 */
#include "tests/unit/dom_rig.h"

static void copy(const char *from, const char *to)
{
	char cmd[900];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s' && cp -a '%s' '%s'", to, from,
		 to);
	CHECK_EQ(system(cmd), 0);
}

/* Between two lives: keep the directory, or put the kept one back. */
static void directory_keep(struct fixture *f)
{
	char kept[300];

	snprintf(kept, sizeof(kept), "%s.kept", f->dirs[DISKS]);
	stop(f);
	copy(f->dirs[DISKS], kept);
	start(f, false);
}

static void directory_put_back(struct fixture *f)
{
	char kept[300];

	snprintf(kept, sizeof(kept), "%s.kept", f->dirs[DISKS]);
	stop(f);
	copy(kept, f->dirs[DISKS]);
	start(f, false);
}

/* No record of an epoch answers for one of the same epoch later (R26). */
TEST(dom_restore, no_epoch_twice)
{
	struct fixture *f = fixture_open();
	uint32_t oepoch;

	object_make(f, 1);
	directory_keep(f);
	CHECK_EQ(object_open(f), 0);
	oepoch = owner_of(f)->oepoch;
	CHECK_EQ(do_write(f, 0, buf_b, B, 0, 0), 0);
	directory_put_back(f);
	for (unsigned i = 0; i < 5 && f->object == NULL; i++)
		object_open(f);
	CHECK(owner_of(f)->oepoch > oepoch);
	CHECK_EQ(do_write(f, 8 * B, buf_b, B, 0, 0), 0);
	CHECK_EQ(do_read(f, 8 * B, got, B), 0);
	CHECK(all_is(got, B, 0x5a));
	fixture_close(f);
}
