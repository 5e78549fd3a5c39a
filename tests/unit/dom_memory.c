/* What finds no memory is said to be that, and does not stay undone. */
#include "tests/unit/dom_rig.h"

#include "tests/lib/fail_alloc.h"

/* An object whose component is there, and nobody has it open. */
static struct fixture *object_left(void)
{
	struct fixture *f = fixture_open();

	object_make(f, 1);
	dom_object_close(f->object);
	f->object = NULL;
	while (owner_of(f) != NULL)
		nap(f, 100 * MSEC);
	return f;
}

/* Not that its component is lost. */
TEST(dom_memory, none_to_open_a_component)
{
	struct fixture *f = object_left();
	unsigned n = 1;

	fail_size = sizeof(struct dom__cm);
	for (fail_at = n; object_open(f) < 0; fail_at = ++n) {
		CHECK_EQ(fail_at, 0);
		CHECK_EQ(f->status, -ENOMEM);
	}
	CHECK(n > 2); /* one was the component's */
	fail_at = 0;
	CHECK_EQ(do_read(f, 0, got, 2 * MB), 0);
	CHECK(all_is(got, 2 * MB, 0xa5));
	fixture_close(f);
}

/* What clom looks at, and how many components there are. */
static void look(struct fixture *f, uint64_t promised[DISKS],
		 unsigned components[DISKS])
{
	struct dom__look l;

	CHECK_EQ(dom__look(f->dom, &f->oid, &l), 0);
	CHECK_EQ(l.clom.disks_count, DISKS);
	for (unsigned i = 0; i < DISKS; i++) {
		struct uuid id = uuid_of(100 + i);

		components[i] = 0;
		dom_disk_components(f->dom, &id, &components[i]);
		for (unsigned k = 0; k < DISKS; k++)
			if (uuid_equal(&l.disks[k].disk, &id))
				promised[i] = l.disks[k].promised_bytes;
	}
	free(l.disks);
}

/* Nor to count what the directory has on the disks: they count when they come. */
TEST(dom_memory, none_to_count_by_disk)
{
	struct fixture *f = object_left();
	uint64_t promised[DISKS], again[DISKS];
	unsigned components[DISKS], components_again[DISKS];

	look(f, promised, components);
	CHECK_EQ(promised[0] + promised[1], SIZE);
	CHECK_EQ(components[0] + components[1], 1);
	fail_size = sizeof(struct dom__placed) + sizeof(unsigned);
	for (unsigned n = 1; n <= 2; n++) {
		stop(f);
		fail_at = n;
		start(f, false);
		/* The first is of the object; without it none else is. */
		CHECK_EQ(f->dom->placed_lost, n == 1);
		fail_at = 0;
		if (n == 2)
			continue;
		look(f, again, components_again);
		CHECK(memcmp(promised, again, sizeof(again)) == 0);
		CHECK(memcmp(components, components_again,
			     sizeof(components)) == 0);
	}
	fail_size = 0;
	fixture_close(f);
}

/* It is not gone by that: it is tried again, and the entry goes behind it. */
TEST(dom_memory, none_to_delete_a_component)
{
	struct fixture *f = object_left();

	fail_size = sizeof(struct dom__cm);
	fail_at = 1;
	object_delete(f);
	UNTIL(f, cmmds_object(f->cmmds, &f->oid) == NULL);
	CHECK_EQ(fail_at, 0);
	fixture_close(f);
}

/*
 * One that is fenced, and then finds nobody who serves: to try later is said only
 * where nothing of it may be there already.
 */
TEST(dom_memory, none_to_take_over_again)
{
	struct fixture *f = fixture_open();

	object_make(f, 2);
	fail_size = sizeof(struct dom__cm);
	for (unsigned i = 0; i < 2; i++) {
		struct req w = { 0 }, r = { .io.data = &r };

		owner_of(f)->peers[i].cm->promised_oepoch++;
		write_start(f, &w, EDGE, buf_b, SPAN, DOM_ATOMIC);
		CHECK_EQ(dom_read(f->object, &r.io, 0, SIZE / 2, on_req), 0);
		fail_at = 1;
		CHECK_EQ(req_wait(f, &w), -ETIMEDOUT);
		CHECK_EQ(fail_at, 0);
		CHECK_EQ(req_wait(f, &r), -ENOMEM);
		CHECK_EQ(do_read(f, EDGE, got, SPAN), 0);
		CHECK(all_is(got, SPAN, 0xa5) || all_is(got, SPAN, 0x5a));
		CHECK_EQ(do_write(f, 0, buf_a, 2 * MB, 0, 0), 0);
	}
	fixture_close(f);
}
