/*
 * A disk begins to hang: who opens an object of it, makes one on it, gives one
 * another size or reserves it is answered all the same, and what it was to be comes
 * to be once the disk is back.
 */
#include "tests/unit/dom_rig.h"

#include "cmmds/cmmds_int.h"

/* From now on the disks take nothing more; who waits for them is in a hurry. */
static void hang(void)
{
	faults.hurry = true;
	faults.hold[0] = faults.hold[1] = true;
}

static void back(void)
{
	faults_release();
	faults.hurry = false;
}

static void close_and_forget(struct fixture *f)
{
	dom_object_close(f->object);
	f->object = NULL;
	UNTIL(f, owner_of(f) == NULL);
}

static void holds(struct fixture *f, size_t len, uint8_t byte)
{
	CHECK_EQ(do_read(f, 0, got, len), 0);
	CHECK(all_is(got, len, byte));
}

/*
 * Found with Linux and two LUNs of one target on two disks: its session did not
 * come back while one of the disks hung.  A nexus ends once its command has been
 * answered; who comes to the place then, reading or writing, waits for it.
 */
TEST(dom_hang, whose_nexus_ends)
{
	for (unsigned i = 0; i < 3; i++) {
		struct fixture *f = fixture_open();
		struct dom_nexus old = { .initiator_port = "iqn.a,i,0x1" };
		struct dom_nexus new = old;
		struct req w = { .io.nexus = &old }, r = { .io.nexus = &new };
		struct req again = { .io.nexus = &new };

		object_make(f, 1);
		dom_nexus_open(f->object, &old);
		CHECK_EQ(do_write(f, 0, buf_a, 4 * B, 0, 0), 0);
		faults.hold[0] = faults.hold[1] = true;
		w.io.deadline_ns = env_now(f->ts.env) + SEC;
		write_start(f, &w, 0, buf_b, 2 * B, 0);
		UNTIL(f, faults.held_count > 0);
		if (i == 0) /* or it ends when it was answered already */
			dom_nexus_close(f->object, &old, on_done, f);
		nap(f, 50 * MSEC);
		CHECK(!f->done || w.done); /* who stood still meanwhile? */
		CHECK_EQ(req_wait(f, &w), -ETIMEDOUT);
		if (i > 0)
			dom_nexus_close(f->object, &old, on_done, f);
		UNTIL(f, f->done);
		CHECK_EQ(wait_for(f), 0);
		CHECK_EQ(old.generation, 0);
		CHECK(faults.held_count > 0);
		if (i == 2) { /* nor does its handle stay */
			dom_object_close(f->object);
			f->object = NULL;
			nap(f, 50 * MSEC);
			faults_release();
			CHECK_EQ(object_open(f), 0);
			holds(f, 2 * B, 0x5a);
			fixture_close(f);
			continue;
		}
		dom_nexus_open(f->object, &new);
		r.io.data = &r;
		CHECK_EQ(dom_read(f->object, &r.io, 0, 4 * B, on_req), 0);
		memset(got, 0x33, B);
		write_start(f, &again, 0, got, B, 0);
		nap(f, 50 * MSEC);
		CHECK(!r.done && !again.done);
		faults_release();
		CHECK_EQ(req_wait(f, &r), 0);
		sgl_read(r.io.sgl, 0, got, 4 * B);
		sgl_put(r.io.sgl);
		CHECK(all_is(got, 2 * B, 0x5a));
		CHECK(!all_is(got + 2 * B, B, 0x5a));
		CHECK_EQ(req_wait(f, &again), 0);
		holds(f, B, 0x33);
		dom_nexus_close(f->object, &new, on_done, f);
		CHECK_EQ(wait_for(f), 0);
		fixture_close(f);
	}
}

static int reserve_in_time(struct fixture *f, struct dom_nexus *nexus,
			   const struct dom_pr *pr)
{
	struct req r = { .io = { .data = &r, .nexus = nexus } };

	r.io.deadline_ns = env_now(f->ts.env) + 2 * SEC;
	CHECK_EQ(dom_reserve(f->object, &r.io, pr, on_req), 0);
	return req_wait(f, &r);
}

/*
 * A change of the reservation that nobody waits for any more is none that the next
 * one waits for: what does not hang is fenced.
 */
TEST(dom_hang, who_reserves)
{
	struct fixture *f = fixture_open();
	struct dom_nexus a = { .initiator_port = "iqn.a,i,0x1" };
	struct dom_nexus b = { .initiator_port = "iqn.b,i,0x1" };
	struct dom_pr pr = { .action = DOM_PR_REGISTER,
			     .service_action_key = 1 };
	struct dom_pr hold = { .action = DOM_PR_RESERVE, .key = 1, .type = 1 };
	struct req w = { .io.nexus = &a }, more = { .io.nexus = &a };

	object_make(f, 1);
	dom_nexus_open(f->object, &a);
	dom_nexus_open(f->object, &b);
	faults.hold[0] = faults.hold[1] = true;
	w.io.deadline_ns = env_now(f->ts.env) + 600 * SEC;
	write_start(f, &w, 0, buf_b, B, 0);
	UNTIL(f, faults.held_count > 0);
	CHECK_EQ(reserve_in_time(f, &b, &pr), -ETIMEDOUT);
	CHECK_EQ(reserve_in_time(f, &b, &hold), -ETIMEDOUT);
	UNTIL(f, dom_reservation(f->object)->held);
	write_start(f, &more, MB, buf_b, B, 0);
	CHECK_EQ(req_wait(f, &more), -EPERM);
	/* Nor is it said to be reserved before what was let in has ended. */
	CHECK_EQ(reserve_in_time(f, &b, &hold), -ETIMEDOUT);
	CHECK(!w.done);
	back();
	CHECK_EQ(req_wait(f, &w), 0);
	CHECK_EQ(reserve_in_time(f, &b, &hold), 0);
	dom_nexus_close(f->object, &a, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	dom_nexus_close(f->object, &b, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	fixture_close(f);
}

static const struct env_dev *silent;

static uint64_t silent_ns(const struct env_dev *dev, uint64_t now_ns)
{
	return dev == silent ? LSOM_SILENT_NS : 0;
}

/* Where the object has its component. */
static unsigned disk_of(struct fixture *f)
{
	const struct uuid second = uuid_of(101);

	return uuid_equal(&owner_of(f)->peers[0].leaf->disk, &second);
}

/* Reads of all that the object has, again and again, which all hang. */
static void reads_hang(struct fixture *f, unsigned rounds)
{
	struct req r[64];

	for (; rounds > 0; rounds--) {
		for (unsigned i = 0; i < ARRAY_LEN(r); i++) {
			r[i] = (struct req){ .io.data = &r[i] };
			r[i].io.deadline_ns = env_now(f->ts.env) + MSEC;
			CHECK_EQ(dom_read(f->object, &r[i].io, 0, 2 * MB,
					  on_req),
				 0);
		}
		for (unsigned i = 0; i < ARRAY_LEN(r); i++)
			CHECK_EQ(req_wait(f, &r[i]), -ETIMEDOUT);
	}
}

/*
 * What reads of a disk that hangs were to fill is theirs until it answers.  Their
 * hosts ask again and again, and would have all the memory there is.
 */
TEST(dom_hang, who_reads)
{
	struct fixture *f = fixture_open();
	struct dom_object *other;
	unsigned disk;

	object_make(f, 1);
	other = f->object;
	f->oid = uuid_of(10);
	CHECK_EQ(create(f, SIZE, "p"), 0); /* on the other disk */
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(do_write(f, 0, buf_a, 2 * MB, 0, 0), 0);
	disk = disk_of(f);
	faults.hold_reads[disk] = true;
	reads_hang(f, 1);
	faults.ops.dev_silent_ns = silent_ns;
	silent = faults.devs[disk];
	reads_hang(f, 4);
	dom_object_close(f->object);
	f->object = other;
	holds(f, 2 * MB, 0xa5);
	silent = NULL;
	faults_release();
	fixture_close(f);
}

/* 16 MiB from @at on, which hang. */
static void writes_hang(struct fixture *f, uint64_t at)
{
	struct req r[8];

	for (unsigned i = 0; i < ARRAY_LEN(r); i++) {
		r[i] = (struct req){ .io.deadline_ns =
					     env_now(f->ts.env) + MSEC };
		write_start(f, &r[i], at + i * 2 * MB, buf_b, 2 * MB, 0);
	}
	for (unsigned i = 0; i < ARRAY_LEN(r); i++)
		CHECK_EQ(req_wait(f, &r[i]), -ETIMEDOUT);
}

/* Nor does it take what is written any more, which has its pages, too. */
TEST(dom_hang, who_writes)
{
	struct fixture *f = fixture_open();
	size_t used;

	policy_put(f, 1, 0);
	f->oid = uuid_of(9);
	CHECK_EQ(create(f, 64 * MB, "p"), 0);
	CHECK_EQ(object_open(f), 0);
	faults.hold[0] = faults.hold[1] = true;
	writes_hang(f, 0);
	used = arena_used(f->ts.arena, PAGE_FRONT);
	CHECK_EQ(used, 16 * MB / B);
	faults.ops.dev_silent_ns = silent_ns;
	silent = faults.devs[disk_of(f)];
	for (unsigned i = 1; i < 4; i++)
		writes_hang(f, i * 16ull * MB);
	UNTIL(f, arena_used(f->ts.arena, PAGE_FRONT) <= used + 2 * MB / B);
	silent = NULL;
	back();
	memset(buf_b, 0x77, 2 * MB);
	CHECK_EQ(do_write(f, 0, buf_b, 2 * MB, 0, 0), 0);
	holds(f, 2 * MB, 0x77);
	fixture_close(f);
}

/* One is refused while another, later one still has time. */
TEST(dom_hang, who_opens)
{
	struct fixture *f = fixture_open();
	struct dom_object_open later = { .data = f };

	object_make(f, 2);
	close_and_forget(f);
	hang();
	CHECK_EQ(object_open(f), -ETIMEDOUT);
	CHECK(f->object == NULL && owner_of(f) != NULL);
	faults.hurry = false;
	CHECK_EQ(dom_object_open(f->dom, &later, &f->oid, on_opened), 0);
	nap(f, 2 * HURRY_NS);
	CHECK(!f->done);
	back();
	CHECK_EQ(wait_for(f), 0);
	holds(f, 2 * MB, 0xa5);
	fixture_close(f);
}

TEST(dom_hang, who_makes)
{
	struct fixture *f = fixture_open();

	policy_put(f, 2, 0);
	f->oid = uuid_of(9);
	hang();
	CHECK_EQ(create(f, SIZE, "p"), -ETIMEDOUT);
	CHECK(strstr(f->why, "its components cannot be made: a disk does not "
			     "answer") != NULL);
	CHECK(cmmds_object(f->cmmds, &f->oid) != NULL);
	back();
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(do_write(f, 0, buf_a, MB, 0, 0), 0);
	fixture_close(f);
}

/* Rest does not come; what waited with it goes on. */
TEST(dom_hang, who_resizes)
{
	struct fixture *f = fixture_open();
	struct resize r;
	struct req slow = { 0 }, parked = { 0 };

	object_make(f, 1);
	faults.hold[0] = faults.hold[1] = true;
	slow.io.deadline_ns = env_now(f->ts.env) + 100 * MSEC;
	write_start(f, &slow, 0, buf_b, B, 0);
	CHECK_EQ(req_wait(f, &slow), -ETIMEDOUT);
	resize_start(f, &r, SIZE + 4 * MB, true);
	UNTIL(f, owner_of(f)->resize != NULL);
	parked.io.data = &parked;
	CHECK_EQ(dom_read(f->object, &parked.io, MB, B, on_req), 0);
	nap(f, 50 * MSEC);
	CHECK(!parked.done && !r.done);
	patience_ends();
	run(&r.done);
	CHECK_EQ(r.status, -EBUSY);
	CHECK(!r.req.stored);
	CHECK(strcmp(r.req.why, "a disk of it does not answer") == 0);
	CHECK_EQ(req_wait(f, &parked), 0);
	sgl_put(parked.io.sgl);
	back();
	CHECK_EQ(resize_to(f, SIZE + 4 * MB), 0);
	CHECK_EQ(dom_object_size(f->object), SIZE + 4 * MB);
	fixture_close(f);
}

static void then_hang(struct dom_resize *req, struct cmmds_command *cmd)
{
	(void)req;
	(void)cmd;
	hang();
}

/* The directory has the size, and the takeover hangs. */
TEST(dom_hang, whose_size_is_stored)
{
	struct fixture *f = fixture_open();
	struct resize r = { 0 };

	object_make(f, 2);
	r.req = (struct dom_resize){ .data = &r,
				     .oid = f->oid,
				     .size_bytes = 2 * MB,
				     .commit = then_hang };
	CHECK_EQ(dom_resize(f->dom, &r.req, on_resize), 0);
	run(&r.done);
	CHECK_EQ(r.status, -ENXIO);
	CHECK(r.req.stored);
	CHECK(strcmp(r.req.why, "the size is stored, but the object cannot be "
				"opened: a disk of it does not answer") == 0);
	CHECK(!owner_of(f)->resizing && owner_of(f)->resize == NULL);
	/* Nor is there another size before it is open with this one. */
	resize_start(f, &r, SIZE, true);
	run(&r.done);
	CHECK_EQ(r.status, -EBUSY);
	back();
	holds(f, 2 * MB, 0xa5);
	CHECK_EQ(dom_object_size(f->object), 2 * MB);
	CHECK_EQ(resize_to(f, SIZE), 0);
	fixture_close(f);
}

/* It is the directory that does not answer: what it says in the end holds. */
TEST(dom_hang, whose_size_is_on_its_way)
{
	struct fixture *f = fixture_open();
	struct resize r;

	object_make(f, 1);
	faults.hold_directory = true;
	resize_start(f, &r, SIZE + 4 * MB, false);
	UNTIL(f, !TAILQ_EMPTY(&f->cmmds->commands));
	patience_ends();
	nap(f, 50 * MSEC);
	CHECK(!r.done);
	directory_release();
	run(&r.done);
	CHECK_EQ(r.status, 0);
	CHECK_EQ(dom_object_size(f->object), SIZE + 4 * MB);
	fixture_close(f);
}

/* What would be cut off cannot be looked at. */
TEST(dom_hang, whose_data_is_not_seen)
{
	struct fixture *f = fixture_open();
	struct resize r;

	object_make(f, 2);
	stop(f);
	start(f, false);
	CHECK_EQ(object_open(f), 0);
	faults.hurry = faults.hold_index = true;
	resize_start(f, &r, MB, true);
	run(&r.done);
	CHECK_EQ(r.status, -EBUSY);
	CHECK(owner_of(f)->running > 0);
	/* The next one does not hear what that one asked. */
	resize_start(f, &r, 2 * MB, true);
	nap(f, 50 * MSEC);
	CHECK(!r.done);
	faults.hurry = false;
	index_release();
	run(&r.done);
	CHECK_EQ(r.status, 0);
	CHECK_EQ(dom_object_size(f->object), 2 * MB);
	holds(f, 2 * MB, 0xa5);
	fixture_close(f);
}

static unsigned components_on(struct fixture *f, unsigned disk)
{
	struct lsom_disk_info info;

	lsom_disk_info(f->disks[disk], &info);
	return info.components;
}

static void gone_wait(struct fixture *f, const struct uuid *oid)
{
	UNTIL(f, cmmds_object(f->cmmds, oid) == NULL);
}

/* What is deleted of a disk that hangs waits; what is of another goes. */
TEST(dom_hang, who_deletes)
{
	struct fixture *f = fixture_open();
	const struct uuid both = uuid_of(9), one = uuid_of(20);
	unsigned there, hangs;

	object_make(f, 2); /* its components are on both disks */
	close_and_forget(f);
	policy_put(f, 1, 0);
	f->oid = one;
	CHECK_EQ(create(f, SIZE, "p"), 0);
	UNTIL(f, owner_of(f) == NULL);
	there = components_on(f, 0) == 2 ? 0 : 1;
	hangs = 1 - there;
	CHECK_EQ(components_on(f, there), 2);
	faults.hold[hangs] = true;
	f->oid = both;
	object_delete(f);
	UNTIL(f, components_on(f, there) == 1);
	CHECK_EQ(components_on(f, hangs), 1);
	f->oid = one;
	object_delete(f);
	gone_wait(f, &one);
	CHECK_EQ(components_on(f, there), 0);
	CHECK(cmmds_object(f->cmmds, &both) != NULL);
	CHECK(!dom__gc_idle(f->dom));
	faults_release();
	gone_wait(f, &both);
	CHECK_EQ(components_on(f, hangs), 0);
	fixture_close(f);
}
