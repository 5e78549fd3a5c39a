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

/* It is not gone by that: it is tried again, and the entry goes behind it. */
TEST(dom_memory, none_to_delete_a_component)
{
	struct fixture *f = object_left();

	fail_size = sizeof(struct dom__cm);
	fail_at = 1;
	object_delete(f);
	for (unsigned i = 0; i < 50 && cmmds_object(f->cmmds, &f->oid); i++)
		nap(f, 100 * MSEC);
	CHECK_EQ(fail_at, 0);
	CHECK(cmmds_object(f->cmmds, &f->oid) == NULL);
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
