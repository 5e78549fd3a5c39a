/*
 * What is proposed to the directory and not answered in time, and applied after
 * all: whoever gave up finds what there is.
 */
#include "tests/unit/dom_late.h"
#include "tests/unit/dom_rig.h"

#define TURNS 16u

/* Some turns after its begin the directory hangs, until it is *@done. */
static void hang(struct fixture *f, unsigned turns, const bool *done)
{
	for (unsigned i = 0; i < turns && !*done; i++)
		shard_step(f->ts.env, 100 * MSEC);
	faults.hold_directory = true;
	for (unsigned i = 0; i < 10000 && !*done; i++) {
		times_out(f);
		nap(f, MSEC);
	}
	CHECK(*done);
}

/* All that was asked of it is applied. */
static void go_on(struct fixture *f)
{
	struct cmmds_barrier barrier = { .data = f };

	directory_release();
	CHECK_EQ(cmmds_barrier(f->cmmds, &barrier, on_barrier), 0);
	CHECK_EQ(wait_for(f), 0);
}

/* Its next command is not answered in time, twice, and then it is. */
static void asked_again(struct fixture *f, const bool *done)
{
	while (TAILQ_EMPTY(&f->cmmds->commands))
		nap(f, MSEC);
	times_out(f);
	times_out(f);
	CHECK(!*done);
	directory_release();
	run(done);
}

/* It serves what the directory has of it. */
static void object_sound(struct fixture *f)
{
	const Directory__Object *object;

	if (f->object == NULL)
		CHECK_EQ(object_open(f), 0);
	if (owner_of(f)->again_armed) /* at once */
		env_timer_start(f->ts.env, &owner_of(f)->again_timer, 0);
	CHECK_EQ(do_read(f, 0, got, B), 0);
	object = cmmds_object(f->cmmds, &f->oid);
	CHECK_EQ(owner_of(f)->oepoch, object->oepoch);
	CHECK_EQ(owner_of(f)->csn, object->csn);
	CHECK_EQ(dom_object_size(f->object), object->size_bytes);
}

static void object_shut(struct fixture *f)
{
	if (f->object != NULL)
		dom_object_close(f->object);
	f->object = NULL;
}

static void gone_wait(struct fixture *f)
{
	struct lsom_disk_info info;

	for (unsigned i = 0; i < 6000 && cmmds_object(f->cmmds, &f->oid); i++)
		nap(f, 10 * MSEC);
	CHECK(cmmds_object(f->cmmds, &f->oid) == NULL);
	for (unsigned i = 0; i < DISKS; i++) {
		lsom_disk_info(f->disks[i], &info);
		CHECK_EQ(info.components, 0);
	}
}

/* ---- creates ---- */

struct creation {
	struct dom_create req;
	bool done;
	int status;
};

static void on_creation(struct dom_create *req, int status)
{
	struct creation *c = req->data;

	c->done = true;
	c->status = status;
}

static void creation_start(struct fixture *f, struct creation *c)
{
	*c = (struct creation){ .req = { .data = c,
					 .oid = f->oid,
					 .size_bytes = SIZE,
					 .policy = "p" } };
	CHECK_EQ(dom_create(f->dom, &c->req, on_creation), 0);
}

/* It is there and can be used, or it is not and can be created. */
TEST(dom_unknown, created)
{
	struct fixture *f = fixture_open();
	struct creation c;

	policy_put(f, 2, 0);
	f->oid = uuid_of(9);
	for (unsigned turns = 0; turns < TURNS; turns++) {
		creation_start(f, &c);
		hang(f, turns, &c.done);
		CHECK(c.status == 0 || c.status == -ETIMEDOUT ||
		      c.status == -ENXIO);
		CHECK(turns > 0 || c.status == -ETIMEDOUT);
		go_on(f);
		CHECK(cmmds_object(f->cmmds, &f->oid) != NULL);
		CHECK_EQ(create(f, SIZE, "p"), -EEXIST);
		object_sound(f);
		CHECK_EQ(do_write(f, MB - B, buf_b, 2 * B, 0, 0), 0);
		object_shut(f);
		object_delete(f);
		gone_wait(f);
	}
	fixture_close(f);
}

/* ---- deletions ---- */

/* What a collection asked for comes to nothing: there is another one. */
/* Somebody else deletes it before its components are made: it says so. */
TEST(dom_unknown, deleted_while_it_is_made)
{
	struct fixture *f = fixture_open();
	unsigned gone = 0;
	struct creation c;

	policy_put(f, 2, 0);
	f->oid = uuid_of(9);
	for (unsigned turns = 0; turns < 4 * TURNS; turns++) {
		creation_start(f, &c);
		while (cmmds_object(f->cmmds, &f->oid) == NULL)
			shard_step(f->ts.env, MSEC);
		for (unsigned i = 0; i < turns && !c.done; i++)
			shard_step(f->ts.env, MSEC);
		while (!object_deleted(f))
			; /* it has changed meanwhile */
		run(&c.done);
		CHECK(c.status == 0 || c.status == -ENOENT);
		if (c.status == -ENOENT)
			CHECK_STR(c.req.why,
				  "it was deleted while it was being made");
		gone += c.status == -ENOENT;
		gone_wait(f);
	}
	CHECK(gone > 0);
	fixture_close(f);
}

TEST(dom_unknown, deleted)
{
	struct fixture *f = fixture_open();

	policy_put(f, 2, 0);
	f->oid = uuid_of(9);
	for (unsigned turns = 0; turns < TURNS / 2; turns++) {
		CHECK_EQ(create(f, SIZE, "p"), 0);
		if (turns % 2) { /* nobody owns it */
			stop(f);
			start(f, false);
		}
		object_delete(f);
		for (unsigned i = 0; i < turns / 2; i++)
			shard_step(f->ts.env, 10 * MSEC);
		faults.hold_directory = true;
		while (!dom__gc_idle(f->dom)) {
			times_out(f);
			nap(f, MSEC);
		}
		go_on(f);
		gone_wait(f);
	}
	fixture_close(f);
}

/* ---- resizes ---- */

/* A write behind the smaller size comes before that is known: it is none. */
static void resize_unknown(struct fixture *f, unsigned turns, uint64_t size)
{
	uint64_t old = dom_object_size(f->object), end = MAX(old, size) - B;
	struct resize r;
	struct req w = { 0 };
	bool written = old > size;

	resize_start(f, &r, size, false);
	hang(f, turns, &r.done);
	CHECK(r.status == 0 || r.status == -ETIMEDOUT || r.status == -ENXIO);
	CHECK(turns > 0 || r.status == -ETIMEDOUT);
	if (written && dom_object_size(f->object) == old)
		write_start(f, &w, end, buf_b, B, 0);
	else
		written = false;
	/* What goes before the next takeover is not answered, either. */
	for (unsigned i = 0; i < 2 && r.status == -ETIMEDOUT; i++)
		times_out(f);
	go_on(f);
	object_sound(f);
	if (written)
		CHECK_EQ(req_wait(f, &w), -ERANGE);
	CHECK_EQ(dom_object_size(f->object), size);
	CHECK_EQ(do_read(f, 0, got, 2 * MB), 0);
	CHECK(all_is(got, 2 * MB, 0xa5));
	stop(f);
	start(f, false);
	object_sound(f);
	CHECK_EQ(do_read(f, 0, got, 2 * MB), 0);
	CHECK(all_is(got, 2 * MB, 0xa5));
}

TEST(dom_unknown, resized)
{
	struct fixture *f = fixture_open();

	object_make(f, 2);
	for (unsigned turns = 0; turns < TURNS; turns++) {
		resize_unknown(f, turns, (turns + 2ull) * SIZE);
		resize_unknown(f, turns, (turns + 1ull) * SIZE / 2);
	}
	fixture_close(f);
}

static void creation_of(struct fixture *f, struct creation *c, unsigned n,
			uint64_t size)
{
	*c = (struct creation){ .req = { .data = c,
					 .oid = uuid_of(n),
					 .size_bytes = size,
					 .policy = "thick" } };
	CHECK_EQ(dom_create(f->dom, &c->req, on_creation), 0);
}

/* A create or a resize, and two creates; there is room for two of that size. */
static void reserve_unknown(struct fixture *f, bool grow)
{
	Directory__Policy policy = DIRECTORY__POLICY__INIT;
	struct lsom_disk_info info[DISKS];
	struct creation c[3];
	struct resize r = { 0 };
	uint64_t size;

	policy.name = "thick";
	policy.stripe_width = 1;
	policy.reserve_percent = 100;
	entry_put(f, CMMDS_POLICY, "thick", 5, &policy.base);
	lsom_disk_info(f->disks[0], &info[0]);
	size = ROUND_DOWN(info[0].usable_bytes - info[0].used_bytes, MB) -
	       8 * MB;
	f->oid = uuid_of(50);
	if (grow) {
		CHECK_EQ(create(f, MB, "thick"), 0);
		/* On the other disk, so that the first one has more room. */
		f->oid = uuid_of(53);
		CHECK_EQ(create(f, 8 * MB, "thick"), 0);
		f->oid = uuid_of(50);
		resize_start(f, &r, size, false);
	} else {
		creation_of(f, &c[0], 50, size);
	}
	creation_of(f, &c[1], 51, size);
	hang(f, 0, grow ? &r.done : &c[0].done);
	CHECK_EQ(grow ? r.status : c[0].status, -ETIMEDOUT);
	creation_of(f, &c[2], 52, size);
	times_out(f);
	CHECK(!c[1].done && !c[2].done);
	go_on(f);
	run(&c[1].done);
	run(&c[2].done);
	CHECK_EQ(c[1].status, 0);
	CHECK_EQ(c[2].status, -ENOSPC);
	object_sound(f);
	for (unsigned i = 0; i < DISKS; i++) {
		lsom_disk_info(f->disks[i], &info[i]);
		CHECK(info[i].kept_bytes >= size);
		CHECK_EQ(info[i].uncovered_bytes, 0);
	}
}

/* Who comes next goes by what it reserved, once that is known. */
TEST(dom_unknown, reserves_what_it_reserved)
{
	for (unsigned i = 0; i < 2; i++) {
		struct fixture *f = fixture_open();

		reserve_unknown(f, i);
		fixture_close(f);
	}
}

/* They have waited as long as they may. */
static void turns_run_out(struct fixture *f)
{
	struct dom_turn *turn;

	TAILQ_FOREACH (turn, &f->dom->turns, link)
		turn->until_ns = 0;
	env_timer_start(f->ts.env, &f->dom->turn_timer, 0);
}

static void on_promised(struct dom_promise *req, int status)
{
	struct creation *c = req->data;

	c->done = true;
	c->status = status;
}

/*
 * Who waits for the end of what a directory that hangs may have taken is refused
 * after a while, and takes none of what may be reserved.
 */
TEST(dom_unknown, waited_for_no_longer)
{
	struct fixture *f = fixture_open();
	Directory__Policy policy = DIRECTORY__POLICY__INIT;
	struct dom_promise promise = { 0 };
	struct lsom_disk_info info;
	struct creation c[4], p = { 0 };
	struct resize r;
	uint64_t size;

	policy.name = "thick";
	policy.stripe_width = 1;
	policy.reserve_percent = 100;
	entry_put(f, CMMDS_POLICY, "thick", 5, &policy.base);
	f->oid = uuid_of(49);
	CHECK_EQ(create(f, MB, "thick"), 0);
	lsom_disk_info(f->disks[0], &info);
	size = ROUND_DOWN(info.usable_bytes - info.used_bytes, MB) - 8 * MB;
	creation_of(f, &c[0], 50, size);
	creation_of(f, &c[1], 51, size);
	resize_start(f, &r, size, false);
	promise = (struct dom_promise){ .data = &p,
					.oid = f->oid,
					.reserved_bytes = size };
	CHECK_EQ(dom_promise(f->dom, &promise, on_promised), 0);
	hang(f, 0, &c[0].done);
	CHECK_EQ(c[0].status, -ETIMEDOUT);
	turns_run_out(f);
	UNTIL(f, c[1].done && r.done && p.done);
	CHECK(c[1].status == -EBUSY && r.status == -EBUSY);
	CHECK_EQ(p.status, -EBUSY);
	CHECK(strstr(c[1].req.why, "has not come to its end") != NULL);
	CHECK_STR(r.req.why, c[1].req.why);
	CHECK_STR(promise.why, c[1].req.why);
	creation_of(f, &c[2], 52, size);
	turns_run_out(f);
	run(&c[2].done);
	CHECK_EQ(c[2].status, -EBUSY);
	/* It is still unknown: nobody looks. */
	creation_of(f, &c[3], 53, size);
	creation_of(f, &c[1], 54, size);
	go_on(f);
	run(&c[1].done);
	CHECK_EQ(c[3].status, 0);
	CHECK_EQ(c[1].status, -ENOSPC);
	f->oid = uuid_of(50);
	object_sound(f);
	fixture_close(f);
}

/* ---- takeovers ---- */

struct opening {
	struct dom_object_open req;
	bool done;
	int status;
};

static void on_opening(struct dom_object_open *req, int status)
{
	struct opening *o = req->data;

	o->done = true;
	o->status = status;
}

TEST(dom_unknown, taken_over)
{
	struct fixture *f = fixture_open();

	object_make(f, 2);
	for (unsigned turns = 0; turns < TURNS; turns++) {
		struct opening o = { .req.data = &o };

		stop(f);
		start(f, false);
		CHECK_EQ(dom_object_open(f->dom, &o.req, &f->oid, on_opening),
			 0);
		hang(f, turns, &o.done);
		CHECK(o.status == 0 || o.status == -ENXIO);
		CHECK(turns > 0 || o.status == -ENXIO);
		f->object = o.req.object;
		go_on(f);
		object_sound(f);
		CHECK_EQ(do_read(f, 0, got, 2 * MB), 0);
		CHECK(all_is(got, 2 * MB, 0xa5));
		CHECK_EQ(do_write(f, 0, buf_a, 2 * MB, 0, 0), 0);
	}
	fixture_close(f);
}

/* ---- reservations, marks ---- */

/* Of a new object. */
static void nexuses_open(struct fixture *f, struct dom_nexus *a,
			 struct dom_nexus *b)
{
	object_make(f, 1);
	dom_nexus_open(f->object, a);
	dom_nexus_open(f->object, b);
}

/* The directory does not store it before go_on(). */
static void reserve_late(struct fixture *f, struct req *req, struct dom_pr *pr)
{
	faults.hold_directory = true;
	req->io.deadline_ns = env_now(f->ts.env) + 2 * SEC;
	CHECK_EQ(dom_reserve(f->object, &req->io, pr, on_req), 0);
}

static void nexus_end(struct fixture *f, struct dom_nexus *nexus)
{
	dom_nexus_close(f->object, nexus, on_done, f);
	CHECK_EQ(wait_for(f), 0);
}

/* The asker is told at its deadline; what comes next finds it as it is then. */
TEST(dom_unknown, reserved)
{
	struct fixture *f = fixture_open();
	struct dom_nexus a = { .initiator_port = "iqn.a,i,0x1" };
	struct dom_nexus b = { .initiator_port = "iqn.b,i,0x1" };
	struct dom_pr pr = { .action = DOM_PR_REGISTER,
			     .service_action_key = 1 };
	struct dom_pr hold = { .action = DOM_PR_RESERVE, .key = 1, .type = 1 };
	struct req p = { .io = { .data = &p, .nexus = &a } };
	struct req q = { .io = { .data = &q, .nexus = &a } };
	struct req w = { .io = { .nexus = &b } };
	const struct dom_reservation *res;

	nexuses_open(f, &a, &b);
	reserve_late(f, &p, &pr);
	CHECK_EQ(dom_reserve(f->object, &q.io, &hold, on_req), 0);
	for (unsigned i = 0; i < 10; i++)
		times_out(f);
	CHECK_EQ(req_wait(f, &p), -ETIMEDOUT);
	for (unsigned i = 0; i < 10; i++)
		times_out(f);
	CHECK(!q.done);
	res = dom_reservation(f->object);
	CHECK_EQ(res->registrations_count, 0);
	go_on(f);
	CHECK_EQ(req_wait(f, &q), 0);
	res = dom_reservation(f->object);
	CHECK_EQ(res->registrations_count, 1);
	CHECK(res->held);
	write_start(f, &w, 0, buf_b, B, 0);
	CHECK_EQ(req_wait(f, &w), -EPERM);
	nexus_end(f, &a);
	nexus_end(f, &b);
	stop(f);
	start(f, false);
	CHECK_EQ(object_open(f), 0);
	res = dom_reservation(f->object);
	CHECK_EQ(res->registrations_count, 1);
	CHECK(res->held);
	fixture_close(f);
}

/* An SPC-2 reservation is its nexus's: not that of the same ports that came since. */
TEST(dom_unknown, reserved_by_a_nexus_that_ended)
{
	struct fixture *f = fixture_open();
	struct dom_nexus a = { .initiator_port = "iqn.a,i,0x1" };
	struct dom_nexus b = { .initiator_port = "iqn.b,i,0x1" };
	struct dom_pr pr = { .action = DOM_SPC2_RESERVE };
	struct req p = { .io = { .data = &p, .nexus = &a } };
	struct req q = { .io = { .data = &q, .nexus = &a } };
	struct req w = { .io = { .nexus = &b } };

	nexuses_open(f, &a, &b);
	reserve_late(f, &p, &pr);
	CHECK_EQ(req_wait(f, &p), -ETIMEDOUT);
	nexus_end(f, &a);
	dom_nexus_open(f->object, &a);
	go_on(f);
	write_start(f, &w, 0, buf_b, B, 0);
	CHECK_EQ(req_wait(f, &w), 0);
	/* That has it when it asks itself. */
	CHECK_EQ(dom_reserve(f->object, &q.io, &pr, on_req), 0);
	CHECK_EQ(req_wait(f, &q), 0);
	w.done = false;
	write_start(f, &w, 0, buf_b, B, 0);
	CHECK_EQ(req_wait(f, &w), -EPERM);
	nexus_end(f, &a);
	nexus_end(f, &b);
	fixture_close(f);
}

/* @nexus's, or (NULL) anybody's: it does not wait for the directory. */
static void reset(struct fixture *f, struct dom_nexus *nexus)
{
	struct dom_pr pr = { .action = DOM_SPC2_RESET };
	struct req r = { .io = { .data = &r, .nexus = nexus } };

	CHECK_EQ(dom_reserve(f->object, &r.io, &pr, on_req), 0);
	CHECK_EQ(req_wait(f, &r), 0);
}

/*
 * A reset ends what the directory has yet to store, as it does what is there: of
 * whom it hits, and nothing that is asked for after it.
 */
TEST(dom_unknown, reserved_before_a_reset)
{
	struct fixture *f = fixture_open();
	struct dom_nexus a = { .initiator_port = "iqn.a,i,0x1" };
	struct dom_nexus b = { .initiator_port = "iqn.b,i,0x1" };
	struct dom_pr pr = { .action = DOM_SPC2_RESERVE };
	struct dom_nexus *hits[] = { &b, &a, NULL, NULL };

	nexuses_open(f, &a, &b);
	for (unsigned i = 0; i < ARRAY_LEN(hits); i++) {
		struct req p = { .io = { .data = &p, .nexus = &a } };
		struct req q = { .io = { .data = &q, .nexus = &a } };
		struct req r = { .io = { .data = &r } };
		struct req w = { .io = { .nexus = &b } };
		struct dom_pr all = { .action = DOM_SPC2_RESET };

		reserve_late(f, &p, &pr);
		CHECK_EQ(req_wait(f, &p), -ETIMEDOUT);
		if (i < 3) {
			reset(f, hits[i]);
		} else { /* behind one that is given up before its turn */
			CHECK_EQ(dom_reserve(f->object, &q.io, &pr, on_req), 0);
			CHECK_EQ(dom_reserve(f->object, &r.io, &all, on_req),
				 0);
			dom_cancel(&q.io);
			CHECK_EQ(req_wait(f, &r), 0);
			CHECK_EQ(req_wait(f, &q), -ECANCELED);
		}
		go_on(f);
		write_start(f, &w, 0, buf_b, B, 0);
		CHECK_EQ(req_wait(f, &w), hits[i] == &b ? -EPERM : 0);
		reset(f, &a);
		w.done = false;
		write_start(f, &w, 0, buf_b, B, 0);
		CHECK_EQ(req_wait(f, &w), 0);
		/* Who asks then has it, though the directory had more of it. */
		q.done = false;
		CHECK_EQ(dom_reserve(f->object, &q.io, &pr, on_req), 0);
		CHECK_EQ(req_wait(f, &q), 0);
		w.done = false;
		write_start(f, &w, 0, buf_b, B, 0);
		CHECK_EQ(req_wait(f, &w), -EPERM);
		reset(f, NULL);
	}
	nexus_end(f, &a);
	nexus_end(f, &b);
	fixture_close(f);
}

/*
 * The store refuses it when its asker was told already, as somebody was first:
 * what it asked with is not there any more, so nothing is tried anew.
 */
TEST(dom_unknown, refused_when_nobody_waits)
{
	struct fixture *f = fixture_open();
	struct dom_nexus a = { .initiator_port = "iqn.a,i,0x1" };
	const char *ports[] = { "iqn.b,i,0x1" };
	struct dom_pr pr = { .action = DOM_PR_REGISTER,
			     .service_action_key = 1,
			     .spec_i_pt = true,
			     .initiator_ports = ports,
			     .initiator_ports_count = 1 };
	struct dom_pr next = { .action = DOM_PR_REGISTER_AND_IGNORE,
			       .service_action_key = 2 };
	struct req p = { .io = { .data = &p, .nexus = &a } };
	struct req q = { .io = { .data = &q, .nexus = &a } };
	Directory__Reservation other = DIRECTORY__RESERVATION__INIT;
	struct cmmds_command cmd = { .data = f };
	const struct dom_reservation *res;

	object_make(f, 1);
	dom_nexus_open(f->object, &a);
	faults.hold_directory = true;
	other.oid.data = f->oid.b;
	other.oid.len = sizeof(f->oid.b);
	cmmds_command_init(&cmd);
	cmmds_put(&cmd, CMMDS_RESERVATION, f->oid.b, sizeof(f->oid.b),
		  CMMDS_MUST_NOT_EXIST, &other.base);
	CHECK_EQ(cmmds_propose(f->cmmds, &cmd, 0, on_command), 0);
	p.io.deadline_ns = env_now(f->ts.env) + 2 * SEC;
	CHECK_EQ(dom_reserve(f->object, &p.io, &pr, on_req), 0);
	CHECK_EQ(req_wait(f, &p), -ETIMEDOUT);
	ports[0] = NULL;
	CHECK_EQ(dom_reserve(f->object, &q.io, &next, on_req), 0);
	CHECK(!f->done);
	directory_release();
	CHECK_EQ(wait_for(f), 0);
	cmmds_command_fini(&cmd);
	CHECK_EQ(req_wait(f, &q), 0);
	res = dom_reservation(f->object);
	CHECK_EQ(res->registrations_count, 1);
	CHECK_EQ(res->registrations[0].key, 2);
	dom_nexus_close(f->object, &a, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	fixture_close(f);
}

static void on_mark(struct dom_sanitize *req, int status)
{
	struct resize *r = req->data;

	r->done = true;
	r->status = status;
}

TEST(dom_unknown, marked)
{
	struct fixture *f = fixture_open();
	const uint8_t *bytes;
	size_t len = 0;

	object_make(f, 1);
	for (unsigned i = 0; i < 2; i++) {
		struct resize r = { 0 };
		struct dom_sanitize mark = { .data = &r };

		faults.hold_directory = true;
		CHECK_EQ(dom_sanitize_mark(f->object, &mark, "mark", i ? 0 : 4,
					   on_mark),
			 0);
		hang(f, 0, &r.done);
		CHECK_EQ(r.status, -ETIMEDOUT);
		go_on(f);
		bytes = dom_sanitize_state(f->object, &len);
		CHECK(i ? bytes == NULL
			: len == 4 && memcmp(bytes, "mark", 4) == 0);
		object_sound(f);
	}
	fixture_close(f);
}

/* ---- all of them ---- */

/* Asked again it is known, and as good as at once. */
TEST(dom_unknown, answered_when_asked_again)
{
	struct fixture *f = fixture_open();
	struct opening o = { .req.data = &o };
	struct resize r, m = { 0 };
	struct dom_sanitize mark = { .data = &m };
	struct creation c;

	policy_put(f, 2, 0);
	f->oid = uuid_of(9);
	faults.hold_directory = true;
	creation_start(f, &c);
	asked_again(f, &c.done);
	CHECK_EQ(c.status, 0);
	stop(f);
	start(f, false);
	faults.hold_directory = true;
	CHECK_EQ(dom_object_open(f->dom, &o.req, &f->oid, on_opening), 0);
	asked_again(f, &o.done);
	CHECK_EQ(o.status, 0);
	f->object = o.req.object;
	faults.hold_directory = true;
	resize_start(f, &r, 2ull * SIZE, false);
	asked_again(f, &r.done);
	CHECK_EQ(r.status, 0);
	CHECK_EQ(dom_object_size(f->object), 2ull * SIZE);
	faults.hold_directory = true;
	CHECK_EQ(dom_sanitize_mark(f->object, &mark, "mark", 4, on_mark), 0);
	asked_again(f, &m.done);
	CHECK_EQ(m.status, 0);
	object_sound(f);
	fixture_close(f);
}
