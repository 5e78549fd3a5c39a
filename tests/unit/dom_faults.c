/*
 * What goes wrong around an owner: disks that wait, fail and fill up, fences;
 * cancelling and deadlines in every state.
 */
#include "tests/unit/dom_rig.h"

#include "base/stats.h"
#include "cmmds/cmmds_int.h"
#include "lsom/lsom_int.h"

#include <fcntl.h>
#include <sys/uio.h>

/* ---- waiting ---- */

/* Nothing is acknowledged, or read, before it is durable. */
TEST(dom_faults, ack_waits_for_the_disk)
{
	struct fixture *f = fixture_open();
	struct req w = { 0 }, r = { 0 };

	object_make(f, 2);
	faults.hold[0] = faults.hold[1] = true;
	write_start(f, &w, EDGE, buf_b, SPAN, 0);
	r.io.data = &r;
	CHECK_EQ(dom_read(f->object, &r.io, EDGE, SPAN, on_req), 0);
	UNTIL(f, faults.held_count >= 2);
	nap(f, 50 * MSEC);
	CHECK(!w.done);
	CHECK(!r.done); /* the range is locked */
	faults_release();
	CHECK_EQ(req_wait(f, &w), 0);
	CHECK_EQ(req_wait(f, &r), 0);
	sgl_read(r.io.sgl, 0, got, SPAN);
	sgl_put(r.io.sgl);
	CHECK(all_is(got, SPAN, 0x5a));
	fixture_close(f);
}

/* One of two disks has it: that is not enough. */
TEST(dom_faults, ack_waits_for_every_disk)
{
	for (unsigned i = 0; i < DISKS; i++) {
		struct fixture *f = fixture_open();
		const struct dom__op *op;
		struct req w = { 0 };

		object_make(f, 2);
		faults.hold[i] = true;
		write_start(f, &w, EDGE, buf_b, SPAN, i ? DOM_ATOMIC : 0);
		op = w.io.impl[0];
		UNTIL(f, op->parts_left == 1);
		nap(f, 10 * MSEC);
		CHECK(!w.done);
		faults_release();
		CHECK_EQ(req_wait(f, &w), 0);
		fixture_close(f);
	}
}

/*
 * The session ends while the disk has the data: what was written and what was
 * read may be another owner's by now, so neither is answered (g2.3, R18).
 */
TEST(dom_faults, no_answer_without_a_session)
{
	struct fixture *f = fixture_open();

	object_make(f, 1);
	for (unsigned i = 0; i < 4; i++) {
		struct req r = { .io.data = &r };

		faults.hold[0] = true;
		if (i == 0)
			write_start(f, &r, 0, buf_b, B, 0);
		else if (i == 1)
			compare_start(f, &r, B, buf_a, buf_b, B);
		nap(f, 20 * MSEC);
		CHECK(!r.done);
		f->cmmds->failed = true;
		CHECK(!cmmds_session_valid(f->cmmds));
		if (i == 2)
			CHECK_EQ(dom_read(f->object, &r.io, 0, B, on_req), 0);
		else if (i == 3)
			compare_start(f, &r, 2 * B, buf_b, buf_a, B);
		faults_release();
		CHECK_EQ(req_wait(f, &r), -ENXIO);
		f->cmmds->failed = false;
		CHECK_EQ(do_read(f, 0, got, 3 * B), 0);
		CHECK(all_is(got, B, 0x5a));
	}
	fixture_close(f);
}

/* The decided set goes with every read; without it an old block shows (R36). */
TEST(dom_faults, read_after_ack)
{
	for (unsigned off = 0; off < 2; off++) {
		struct fixture *f = fixture_new();
		unsigned stale = 0;

		f->rules_off = off ? 1ull << 36 : 0;
		start(f, true);
		object_make(f, 1);
		for (unsigned i = 0; i < 20; i++) {
			memset(buf_b, (int)i, B);
			CHECK_EQ(do_write(f, 0, buf_b, B, 0, 0), 0);
			CHECK_EQ(do_read(f, 0, got, B), 0);
			stale += memcmp(got, buf_b, B) != 0;
		}
		CHECK_EQ(stale > 0, off);
		fixture_close(f);
	}
}

/* Busy is no failure, also where lsom says so behind a load of its index. */
TEST(dom_faults, a_read_waits_for_memory)
{
	static struct sgl *eaten[100000];
	struct fixture *f = fixture_open();
	struct req r = { 0 }, w = { 0 };
	unsigned n = 0;

	object_make(f, 1);
	stop(f);
	start(f, false); /* nothing of the index is in memory */
	CHECK_EQ(object_open(f), 0);
	for (unsigned class = PAGE_RMW; class <= PAGE_FRONT; class ++)
		while (n < ARRAY_LEN(eaten) &&
		       sgl_new(f->ts.env->pages, class, B, 0, &eaten[n]) == 0)
			n++;
	CHECK(n < ARRAY_LEN(eaten));
	r.io.data = &r;
	CHECK_EQ(dom_read(f->object, &r.io, 0, MB, on_req), 0);
	sgl_put(eaten[--n]); /* of the front end */
	write_start(f, &w, MB + 512, buf_b, 512, 0);
	nap(f, 50 * MSEC);
	CHECK(!r.done);
	CHECK(!w.done);
	while (n > 0)
		sgl_put(eaten[--n]);
	CHECK_EQ(req_wait(f, &r), 0);
	sgl_read(r.io.sgl, 0, got, MB);
	sgl_put(r.io.sgl);
	CHECK(all_is(got, MB, 0xa5));
	CHECK_EQ(req_wait(f, &w), 0);
	CHECK_EQ(do_read(f, MB, got, B), 0);
	CHECK(all_is(got, 512, 0xa5));
	CHECK(all_is(got + 512, 512, 0x5a));
	fixture_close(f);
}

/* Disks have as many reads on their way as they take, or not any more. */
static void reads_full(struct fixture *f, bool on)
{
	for (unsigned i = 0; i < DISKS; i++) {
		if (on)
			f->disks[i]->reads += LSOM__READS_MAX;
		else
			f->disks[i]->reads -= LSOM__READS_MAX;
	}
}

/* Busy is no answer to what is mapped, unless nobody waits for it any more. */
TEST(dom_faults, a_map_waits_for_a_busy_disk)
{
	struct fixture *f = fixture_open();
	struct req map = { .io.data = &map }, late = { .io.data = &late };

	object_make(f, 1);
	reads_full(f, true);
	late.io.deadline_ns = env_now(f->ts.env) + 300 * MSEC;
	CHECK_EQ(dom_map(f->object, &map.io, 0, SIZE, on_req), 0);
	CHECK_EQ(dom_map(f->object, &late.io, 0, SIZE, on_req), 0);
	CHECK_EQ(req_wait(f, &late), -ETIMEDOUT);
	UNTIL(f, owner_of(f)->ops_count == 1);
	CHECK(!map.done);
	reads_full(f, false);
	CHECK_EQ(req_wait(f, &map), 0);
	CHECK(map.io.mapped);
	CHECK_EQ(map.io.mapped_len, 2 * MB);
	fixture_close(f);
}

/* Part of what it asks for is an answer, when the next disk is busy. */
TEST(dom_faults, a_map_ends_before_a_busy_disk)
{
	struct fixture *f = fixture_open();
	struct req map = { .io.data = &map };
	struct uuid first = uuid_of(100);
	struct dom__owner *owner;
	unsigned leaf, disk;

	object_make(f, 2);
	owner = owner_of(f);
	leaf = dom__tree_map(owner->tree, MB, B).leaf;
	disk = !uuid_equal(&owner->peers[leaf].leaf->disk, &first);
	f->disks[disk]->reads += LSOM__READS_MAX;
	CHECK_EQ(dom_map(f->object, &map.io, 0, SIZE, on_req), 0);
	CHECK_EQ(req_wait(f, &map), 0);
	CHECK(map.io.mapped);
	CHECK_EQ(map.io.mapped_len, MB);
	f->disks[disk]->reads -= LSOM__READS_MAX;
	fixture_close(f);
}

/* More than memory has for all: they wait, but not for each other. */
TEST(dom_faults, many_merges_share_memory)
{
	enum { COUNT = 20 };
	static struct sgl *eaten[1000];
	struct fixture *f = fixture_open();
	static struct req r[COUNT];
	unsigned n = 0, done = 0;

	memset(r, 0, sizeof(r));
	object_make(f, 1);
	for (unsigned i = 2; i < COUNT; i++)
		CHECK_EQ(do_write(f, i * (uint64_t)MB, buf_a, MB, 0, 0), 0);
	for (unsigned i = 0; i < COUNT; i++) {
		struct sgl *bits = bytes_sgl(f, buf_b, MB, 0);

		r[i].io.data = &r[i];
		r[i].count = &done;
		r[i].io.sgl = bits;
	}
	while (n < ARRAY_LEN(eaten) &&
	       sgl_new(f->ts.env->pages, PAGE_RMW, MB, 0, &eaten[n]) == 0)
		n++;
	CHECK(n > COUNT);
	/* Enough to fetch for each of them, not to merge as well. */
	for (unsigned i = 0; i < COUNT; i++)
		sgl_put(eaten[--n]);
	for (unsigned i = 0; i < COUNT; i++) {
		struct sgl *bits = r[i].io.sgl;

		r[i].io.sgl = NULL;
		CHECK_EQ(dom_or_write(f->object, &r[i].io, i * (uint64_t)MB,
				      bits, on_req),
			 0);
		sgl_put(bits);
	}
	for (unsigned i = 0; i < 6000 && done < COUNT; i++)
		nap(f, 10 * MSEC);
	CHECK_EQ(done, COUNT);
	while (n > 0)
		sgl_put(eaten[--n]);
	for (unsigned i = 0; i < COUNT; i++) {
		CHECK_EQ(r[i].status, 0);
		CHECK_EQ(do_read(f, i * (uint64_t)MB, got, MB), 0);
		CHECK(all_is(got, MB, 0xff));
	}
	fixture_close(f);
}

TEST(dom_faults, cancel_and_deadline)
{
	struct fixture *f = fixture_open();
	struct req run = { 0 }, lock = { 0 }, late = { 0 }, slow = { 0 };
	const struct dom__op *op;
	struct dom_object *first;

	object_make(f, 1);
	first = f->object;
	faults.hold[0] = faults.hold[1] = true;
	write_start(f, &run, 0, buf_b, B, 0);
	op = run.io.impl[0]; /* it has one without asking for it */
	CHECK(op->deadline_ns <= env_now(f->ts.env) + DOM_DEADLINE_NS);
	write_start(f, &lock, 0, buf_a, B, 0);
	late.io.deadline_ns = env_now(f->ts.env) + 300 * MSEC;
	write_start(f, &late, 0, buf_a, B, 0);
	nap(f, 20 * MSEC);
	dom_cancel(&run.io); /* executing: it finishes */
	dom_cancel(&lock.io);
	CHECK(!lock.done); /* never inside the call */
	CHECK_EQ(req_wait(f, &lock), -ECANCELED);
	CHECK(!run.done);
	CHECK_EQ(req_wait(f, &late), -ETIMEDOUT);
	/* One that executes is answered at its deadline, and ends behind. */
	CHECK_EQ(object_open(f), 0);
	slow.io.deadline_ns = env_now(f->ts.env) + 2 * SEC;
	write_start(f, &slow, 8 * B, buf_b, B, 0);
	CHECK_EQ(req_wait(f, &slow), -ETIMEDOUT);
	dom_object_close(f->object); /* nothing of ours is in flight */
	f->object = first;
	CHECK(!run.done);
	faults_release();
	CHECK_EQ(req_wait(f, &run), 0);
	CHECK_EQ(do_read(f, 0, got, 16 * B), 0);
	CHECK(all_is(got, B, 0x5a));
	CHECK(all_is(got + 8 * B, B, 0x5a));
	fixture_close(f);
}

static unsigned window_waits(struct fixture *f)
{
	const struct dom__op *op;
	unsigned n = 0;

	TAILQ_FOREACH (op, &owner_of(f)->window, wait_link)
		n++;
	return n;
}

/* More records than a group's window takes: some wait, and can be cancelled. */
TEST(dom_faults, full_window)
{
	struct fixture *f = fixture_open();
	static struct req reqs[500];
	unsigned done = 0, cancelled = 0;
	struct dom__op *op;

	memset(reqs, 0, sizeof(reqs));
	object_make(f, 1);
	for (unsigned i = 0; i < ARRAY_LEN(reqs); i++) {
		reqs[i].io.data = &reqs[i];
		reqs[i].count = &done;
		reqs[i].io.deadline_ns = env_now(f->ts.env) + 100 * SEC;
		/* Three records: a block, a hole, a block. */
		CHECK_EQ(dom_unmap(f->object, &reqs[i].io,
				   (uint64_t)i * 4 * B + 512, 3 * B - 1024,
				   on_req),
			 0);
	}
	faults.hold[0] = faults.hold[1] = true;
	UNTIL(f, window_waits(f) > 100);
	CHECK_EQ(dom__group_room(&owner_of(f)->groups[0]) / 3, 0);
	for (unsigned i = 0; i < ARRAY_LEN(reqs); i++) {
		op = reqs[i].io.impl[0];
		if (op != NULL && op->stage == DOM__WAITING && i % 2) {
			dom_cancel(&reqs[i].io);
			cancelled++;
		}
	}
	UNTIL(f, done >= cancelled);
	nap(f, 20 * MSEC);
	CHECK_EQ(done, cancelled);
	faults_release();
	for (unsigned i = 0; i < ARRAY_LEN(reqs); i++) {
		req_wait(f, &reqs[i]);
		CHECK(reqs[i].status == 0 || reqs[i].status == -ECANCELED);
		cancelled -= reqs[i].status != 0;
	}
	CHECK_EQ(cancelled, 0);
	CHECK_EQ(dom__group_room(&owner_of(f)->groups[0]), LSOM_WINDOW);
	fixture_close(f);
}

/* Three records on the disk of every other stripe: a block, a hole, a block. */
static void records_start(struct fixture *f, struct req *req, unsigned disk,
			  unsigned i)
{
	uint64_t stripe = dom_object_stripe_bytes(f->object);
	uint64_t at = (uint64_t)i * 4 * B;

	req->io.data = req;
	CHECK_EQ(
		dom_unmap(f->object, &req->io,
			  (at / stripe * 2 + disk) * stripe + at % stripe + 512,
			  3 * B - 1024, on_req),
		0);
}

/* What disk @i was given goes to it; the other one's waits on. */
static void disk_goes_on(struct fixture *f, unsigned i)
{
	unsigned n = 0;

	faults.hold[i] = false;
	for (unsigned k = 0; k < faults.held_count; k++) {
		struct rig_held *h = &faults.held[k];

		if (h->dev == f->disks[i]->dev)
			faults.real->dev_writev(h->dev, h->io, h->iov, h->n,
						h->offset, h->flags);
		else
			faults.held[n++] = *h;
	}
	faults.held_count = n;
}

/* What waits for a component does not hold up what waits for another one. */
TEST(dom_faults, full_windows_of_two_groups)
{
	struct fixture *f = fixture_open();
	static struct req reqs[2][LSOM_WINDOW / 3 + 10];
	const unsigned n = ARRAY_LEN(reqs[0]);
	unsigned done[2] = { 0 };

	memset(reqs, 0, sizeof(reqs));
	object_make(f, 2);
	faults.hold[0] = faults.hold[1] = true;
	for (unsigned d = 0; d < 2; d++)
		for (unsigned i = 0; i < n; i++) {
			reqs[d][i].count = &done[d];
			records_start(f, &reqs[d][i], d, i);
		}
	UNTIL(f, !TAILQ_EMPTY(&owner_of(f)->window));
	nap(f, 300 * MSEC);
	disk_goes_on(f, 1);
	for (unsigned i = 0; i < n; i++)
		CHECK_EQ(req_wait(f, &reqs[1][i]), 0);
	CHECK(done[0] == 0 && !TAILQ_EMPTY(&owner_of(f)->window));
	faults_release();
	for (unsigned i = 0; i < n; i++)
		CHECK_EQ(req_wait(f, &reqs[0][i]), 0);
	CHECK_EQ(done[0], n);
	CHECK(TAILQ_EMPTY(&owner_of(f)->window));
	fixture_close(f);
}

/* Writes of more bytes than that find no space yet; 0: all have it. */
static uint64_t short_bytes;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
int __real_lsom_credit_take(struct lsom_comp *comp, uint64_t blocks);
int __wrap_lsom_credit_take(struct lsom_comp *comp, uint64_t blocks);

int __wrap_lsom_credit_take(struct lsom_comp *comp, uint64_t blocks)
{
	if (short_bytes != 0 && blocks * B > short_bytes)
		return -EBUSY;
	return __real_lsom_credit_take(comp, blocks);
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* Who waits for space is not overtaken by those who could do with less. */
TEST(dom_faults, space_in_order)
{
	struct fixture *f = fixture_open();
	struct req large = { 0 }, small[4] = { 0 };
	unsigned done = 0;

	object_make(f, 1);
	short_bytes = B;
	write_start(f, &large, 0, buf_b, 2 * B, 0);
	for (unsigned i = 0; i < ARRAY_LEN(small); i++) {
		small[i].count = &done;
		write_start(f, &small[i], MB + i * B, buf_b, B, 0);
	}
	nap(f, 100 * MSEC);
	CHECK(!large.done);
	CHECK_EQ(done, 0);
	CHECK_EQ(window_waits(f), 1 + ARRAY_LEN(small));
	/* It is given up: they go on. */
	dom_cancel(&large.io);
	CHECK_EQ(req_wait(f, &large), -ECANCELED);
	for (unsigned i = 0; i < ARRAY_LEN(small); i++)
		CHECK_EQ(req_wait(f, &small[i]), 0);
	CHECK_EQ(done, ARRAY_LEN(small));
	short_bytes = 0;
	CHECK_EQ(do_write(f, 0, buf_b, 2 * B, 0, 0), 0);
	fixture_close(f);
}

/* ---- what a leaf has recorded ---- */

struct vouched {
	struct fixture *f;
	struct req req;
	uint64_t told_lsn; /* when it was answered */
};

/* A record does not vouch for what its own message said, which is behind it. */
static void on_vouched(struct dom_io *io, int status)
{
	struct vouched *v = io->data;
	const struct dom__owner *owner = owner_of(v->f);
	const struct lsom_comp_meta *meta =
		lsom_comp_meta(owner->peers[0].cm->comp);

	CHECK_EQ(status, 0);
	v->told_lsn = owner->groups[0].decided.g_all;
	CHECK(v->told_lsn <= meta->stable_lsn);
	v->req.done = true;
}

static void vouched_start(struct vouched *v, struct fixture *f, uint64_t at)
{
	struct sgl *sgl = bytes_sgl(f, buf_b, B, 0);

	*v = (struct vouched){ .f = f, .req.io.data = v };
	CHECK_EQ(dom_write(f->object, &v->req.io, at, sgl, 0, on_vouched), 0);
	sgl_put(sgl);
}

/* What every leaf is said to have recorded (I12) each of them has. */
TEST(dom_faults, recorded_by_the_leaf)
{
	struct fixture *f = fixture_open();
	struct vouched v[8];
	uint64_t first;

	object_make(f, 1);
	first = owner_of(f)->groups[0].decided.g_all;
	for (unsigned n = 0; n < 32; n++) {
		for (unsigned i = 0; i <= n % ARRAY_LEN(v); i++)
			vouched_start(&v[i], f, i * (uint64_t)B);
		for (unsigned i = 0; i <= n % ARRAY_LEN(v); i++)
			run(&v[i].req.done);
	}
	CHECK(v[0].told_lsn > first);
	fixture_close(f);
}

/* ---- failing ---- */

/* The log of disk @i takes no more requests, or does again. */
static void busy(struct fixture *f, unsigned i, bool on)
{
	struct lsom__head *head = &f->disks[i]->heads[LSOM__HEAD_GUEST];

	if (on)
		head->queued += LSOM__OPS_MAX;
	else
		head->queued -= LSOM__OPS_MAX;
}

/*
 * Half of an atomic command is durable, the other half found no room in time, and
 * the first cannot be taken back for the same reason: what was the object's goes
 * on being it, once the logs are less busy.
 */
TEST(dom_faults, an_undo_that_finds_a_busy_log)
{
	struct fixture *f = fixture_open();
	struct dom__op *op;
	struct req w = { 0 };

	object_make(f, 2);
	busy(f, 1, true);
	w.io.deadline_ns = env_now(f->ts.env) + 100 * SEC;
	write_start(f, &w, EDGE, buf_b, SPAN, DOM_ATOMIC);
	op = w.io.impl[0];
	UNTIL(f, op->parts_left == 1);
	busy(f, 0, true);
	op->deadline_ns = 1; /* long ago */
	CHECK_EQ(req_wait(f, &w), -ETIMEDOUT);
	/* Nobody waits for it any more, so it does not wait either. */
	UNTIL(f, owner_of(f)->running == 0);
	busy(f, 0, false);
	busy(f, 1, false);
	CHECK_EQ(do_read(f, EDGE, got, SPAN), 0);
	CHECK(all_is(got, SPAN, 0xa5));
	CHECK_EQ(do_write(f, EDGE, buf_b, SPAN, 0, DOM_ATOMIC), 0);
	CHECK_EQ(do_read(f, EDGE, got, SPAN), 0);
	CHECK(all_is(got, SPAN, 0x5a));
	fixture_close(f);
}

/* What decisions are told, later; 0: they are made. */
static int decide_status;
static struct lsom_decide *undecided;
static lsom_decide_cb undecided_cb;

static void undecided_task(struct env_task *task)
{
	undecided_cb(undecided, decide_status);
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
int __real_lsom_decide(struct lsom_comp *comp, struct lsom_decide *req,
		       lsom_decide_cb cb);
int __wrap_lsom_decide(struct lsom_comp *comp, struct lsom_decide *req,
		       lsom_decide_cb cb);

int __wrap_lsom_decide(struct lsom_comp *comp, struct lsom_decide *req,
		       lsom_decide_cb cb)
{
	static struct env_task task = { .cb = undecided_task };

	if (decide_status == 0)
		return __real_lsom_decide(comp, req, cb);
	CHECK(!task.queued);
	undecided = req;
	undecided_cb = cb;
	env_defer(faults.env, &task);
	return 0;
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* So it is whatever keeps a disk that is well from taking it back in time. */
TEST(dom_faults, an_undo_that_is_refused)
{
	const int refusals[] = { -EBUSY, -ETIMEDOUT, -ENOSPC, -ENOMEM };

	for (unsigned i = 0; i < ARRAY_LEN(refusals); i++) {
		struct fixture *f = fixture_open();
		struct dom__op *op;
		struct req w = { 0 };

		object_make(f, 2);
		nap(f, 20 * MSEC);
		busy(f, 1, true);
		w.io.deadline_ns = env_now(f->ts.env) + 100 * SEC;
		write_start(f, &w, EDGE, buf_b, SPAN, DOM_ATOMIC);
		op = w.io.impl[0];
		UNTIL(f, op->parts_left == 1);
		decide_status = refusals[i];
		op->deadline_ns = 1; /* long ago */
		CHECK_EQ(req_wait(f, &w), -ETIMEDOUT);
		UNTIL(f, owner_of(f)->running == 0);
		decide_status = 0;
		busy(f, 1, false);
		CHECK_EQ(do_read(f, EDGE, got, SPAN), 0);
		CHECK(all_is(got, SPAN, 0xa5));
		CHECK_EQ(do_write(f, EDGE, buf_b, SPAN, 0, DOM_ATOMIC), 0);
		fixture_close(f);
	}
}

/* A record that got in has its own credit, and leaves that of others alone. */
TEST(dom_faults, credit_of_one_that_waits)
{
	struct fixture *f = fixture_open();
	struct req waits = { 0 }, goes = { 0 };
	struct uuid first = uuid_of(100);
	struct lsom_comp *comp;
	unsigned disk;

	object_make(f, 1);
	comp = owner_of(f)->peers[0].cm->comp;
	disk = !uuid_equal(&owner_of(f)->peers[0].leaf->disk, &first);
	busy(f, disk, true);
	write_start(f, &waits, 0, buf_b, 16 * B, 0);
	busy(f, disk, false);
	write_start(f, &goes, MB, buf_b, 16 * B, 0);
	busy(f, disk, true);
	CHECK_EQ(comp->credits, 16);
	CHECK_EQ(req_wait(f, &goes), 0);
	CHECK(!waits.done);
	CHECK_EQ(comp->credits, 16);
	busy(f, disk, false);
	CHECK_EQ(req_wait(f, &waits), 0);
	CHECK_EQ(comp->credits, 0);
	fixture_close(f);
}

/* The record for this component finds no memory. */
static struct lsom_comp *no_memory_for;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
int __real_lsom_write(struct lsom_comp *comp, struct lsom_write *req,
		      lsom_write_cb cb);
int __wrap_lsom_write(struct lsom_comp *comp, struct lsom_write *req,
		      lsom_write_cb cb);

int __wrap_lsom_write(struct lsom_comp *comp, struct lsom_write *req,
		      lsom_write_cb cb)
{
	if (comp == no_memory_for)
		return -ENOMEM;
	return __real_lsom_write(comp, req, cb);
}
/* NOLINTEND(bugprone-reserved-identifier) */

/*
 * One record was refused, the other's disk failed: that is told, as it may be there,
 * and a host would send a refused one again.
 */
TEST(dom_faults, the_worse_of_two_failures)
{
	for (unsigned i = 0; i < 2; i++) {
		struct fixture *f = fixture_open();
		struct uuid first = uuid_of(100);
		int rv;

		object_make(f, 2);
		no_memory_for = owner_of(f)->peers[i].cm->comp;
		faults.fail[!uuid_equal(&owner_of(f)->peers[!i].leaf->disk,
					&first)] = true;
		rv = do_write(f, EDGE, buf_b, SPAN, 0, 0);
		CHECK(rv == -EIO || rv == -ENODEV);
		no_memory_for = NULL;
		fixture_close(f);
	}
}

static bool held_on(struct fixture *f, unsigned i)
{
	for (unsigned k = 0; k < faults.held_count; k++)
		if (faults.held[k].dev == f->disks[i]->dev)
			return true;
	return false;
}

/* What disk @i was given fails, though its file may have it by then. */
static void disk_lies(struct fixture *f, unsigned i, bool reached)
{
	char path[300];
	int fd;

	snprintf(path, sizeof(path), "%s/disk", f->dirs[i]);
	fd = open(path, O_WRONLY);
	CHECK(fd >= 0);
	for (unsigned k = 0; k < faults.held_count; k++) {
		struct rig_held *h = &faults.held[k];

		if (h->dev != f->disks[i]->dev)
			continue;
		if (reached)
			CHECK(pwritev(fd, h->iov, (int)h->n, (off_t)h->offset) >
			      0);
		h->offset = 1ull << 60;
	}
	CHECK_EQ(fsync(fd), 0);
	close(fd);
	faults.fail[i] = true;
	disk_goes_on(f, i);
}

/*
 * An atomic command whose half on disk @bad fails, and another write on the other
 * disk; then the next life.
 */
static void half_fails(struct fixture *f, unsigned bad, bool reached,
		       bool first)
{
	struct uuid disk = uuid_of(100 + bad);
	struct req w = { 0 };
	uint8_t block[B], seen;
	struct dom__op *op;
	uint64_t at;
	int wrote, read;

	CHECK_EQ(do_write(f, 0, buf_a, 2 * MB, 0, 0), 0);
	/* Of the half that is on the other disk. */
	at = uuid_equal(&owner_of(f)->peers[0].leaf->disk, &disk) ? SPAN / 2
								  : 0;
	faults.hold[0] = faults.hold[1] = true;
	if (first)
		compare_start(f, &w, EDGE, buf_a, buf_b, SPAN);
	else
		write_start(f, &w, EDGE, buf_b, SPAN, DOM_ATOMIC);
	while (!held_on(f, 0) || !held_on(f, 1))
		nap(f, MSEC);
	op = w.io.impl[0];
	if (first)
		disk_lies(f, bad, reached);
	else
		disk_goes_on(f, !bad);
	while (op->parts_left > 1)
		nap(f, MSEC);
	CHECK(!w.done);
	if (first)
		disk_goes_on(f, !bad);
	else
		disk_lies(f, bad, reached);
	CHECK(req_wait(f, &w) < 0);
	memset(block, 0x33, B);
	wrote = do_write(f, EDGE + at, block, B, 0, 0);
	read = do_read(f, EDGE + at + B, block, B);
	seen = block[0];
	stop(f);
	start(f, false);
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(do_read(f, EDGE, got, SPAN), 0);
	if (wrote == 0)
		CHECK(all_is(got + at, B, 0x33));
	if (read == 0)
		CHECK_EQ(got[at + B], seen);
	memcpy(got + at, got + at + B, B);
	CHECK(all_is(got, SPAN, 0xa5) || all_is(got, SPAN, 0x5a));
}

/*
 * Its fate is not known on one of two disks: it is there whole or not at all,
 * whatever is written until the next life.
 */
TEST(dom_faults, half_of_an_atomic_command_fails)
{
	struct fixture *f = fixture_open();

	object_make(f, 2);
	for (unsigned i = 0; i < 8; i++)
		half_fails(f, i % 2, i / 2 % 2, i / 4);
	fixture_close(f);
}

/* A disk fails a write: bounded answers; the object next door goes on. */
TEST(dom_faults, disk_fails)
{
	struct fixture *f = fixture_open();
	struct dom_object *objects[2];
	struct uuid oids[2];
	unsigned bad = 2;
	int rv;

	for (unsigned i = 0; i < 2; i++) {
		f->oid = uuid_of(20 + i);
		CHECK_EQ(create(f, SIZE, ""), 0);
		CHECK_EQ(object_open(f), 0);
		objects[i] = f->object;
		oids[i] = f->oid;
		for (unsigned k = 0; k < 8; k++)
			CHECK_EQ(do_write(f, k * MB, buf_a, MB, 0, 0), 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		struct uuid disk = uuid_of(100);

		if (uuid_equal(&dom__owner_find(f->dom, &oids[i])
					->peers[0]
					.leaf->disk,
			       &disk))
			bad = i;
	}
	CHECK(bad < 2);
	faults.fail[0] = true;
	f->object = objects[bad];
	rv = do_write(f, 0, buf_b, B, 0, 0);
	CHECK(rv == -EIO || rv == -ENODEV || rv == -ENXIO);
	for (unsigned i = 0; i < 3; i++) {
		rv = do_write(f, i * B, buf_b, B, 0, 0);
		CHECK(rv == -EIO || rv == -ENODEV || rv == -ENXIO);
	}
	f->object = objects[!bad];
	CHECK_EQ(do_write(f, 0, buf_b, B, 0, 0), 0);
	CHECK_EQ(do_read(f, 0, got, B), 0);
	faults.fail[0] = false;
	dom_object_close(objects[bad]);
	fixture_close(f);
}

/* Full is an answer, loses nothing, and UNMAP gives room again. */
TEST(dom_faults, full_disk)
{
	struct fixture *f = fixture_open();
	uint64_t at, end = 0;
	int rv = 0;

	f->oid = uuid_of(9);
	fill(buf_b, MB);
	CHECK_EQ(create(f, 512ull * MB, ""), 0);
	CHECK_EQ(object_open(f), 0);
	for (at = 0; at < 512ull * MB && rv == 0; at += MB) {
		rv = do_write(f, at, buf_b, MB, 0, 0);
		if (rv == 0)
			end = at + MB;
	}
	CHECK_EQ(rv, -ENOSPC);
	CHECK(end > 16 * MB);
	for (at = 0; at < end; at += MB) {
		CHECK_EQ(do_read(f, at, got, MB), 0);
		CHECK(memcmp(got, buf_b, MB) == 0);
	}
	for (at = 0; at < end / 2; at += MB) {
		struct req r = { .io.data = &r };

		CHECK_EQ(dom_unmap(f->object, &r.io, at, MB, on_req), 0);
		CHECK_EQ(req_wait(f, &r), 0);
	}
	for (unsigned i = 0; i < 3000; i++) {
		rv = do_write(f, 0, buf_b, MB, 0, 0);
		if (rv != -ENOSPC)
			break;
		nap(f, 20 * MSEC);
	}
	CHECK_EQ(rv, 0);
	CHECK_EQ(do_read(f, end - MB, got, MB), 0);
	CHECK(memcmp(got, buf_b, MB) == 0);
	fixture_close(f);
}

/* ---- fences ---- */

/* As another owner's SEAL would do it. */
static void fence_off(struct fixture *f, unsigned leaf)
{
	owner_of(f)->peers[leaf].cm->promised_oepoch++;
}

static void fenced_write(struct fixture *f, unsigned leaf, unsigned flags)
{
	struct histogram_value before, after;
	struct req w = { 0 };
	uint32_t oepoch = owner_of(f)->oepoch;

	fence_off(f, leaf);
	histogram_read(&dom__waits, &before);
	write_start(f, &w, EDGE, buf_b, SPAN, flags);
	CHECK_EQ(req_wait(f, &w), 0);
	histogram_read(&dom__waits, &after);
	CHECK_EQ(after.count - before.count, 1); /* as it ran first */
	CHECK(owner_of(f)->oepoch > oepoch);
	CHECK_EQ(do_read(f, EDGE, got, SPAN), 0);
	CHECK(all_is(got, SPAN, 0x5a));
}

/* Fenced commands run again in the next epoch, those that compare as well. */
TEST(dom_faults, fenced_commands_run_again)
{
	struct fixture *f = fixture_open();
	uint32_t oepoch;

	object_make(f, 2);
	for (unsigned i = 0; i < 4; i++) {
		CHECK_EQ(do_write(f, 0, buf_a, 2 * MB, 0, 0), 0);
		fenced_write(f, i % 2, i / 2 ? DOM_ATOMIC : 0);
	}
	CHECK_EQ(do_write(f, 0, buf_a, 2 * MB, 0, 0), 0);
	for (unsigned leaf = 0; leaf < 2; leaf++) {
		struct req c = { 0 }, miss = { 0 }, o = { .io.data = &o };
		struct sgl *bits = bytes_sgl(f, buf_b, SPAN, 0);

		oepoch = owner_of(f)->oepoch;
		fence_off(f, leaf);
		compare_start(f, &c, EDGE, buf_a, buf_b, SPAN);
		CHECK_EQ(req_wait(f, &c), 0);
		CHECK(owner_of(f)->oepoch > oepoch);
		CHECK_EQ(do_read(f, EDGE, got, SPAN), 0);
		CHECK(all_is(got, SPAN, 0x5a));
		fence_off(f, leaf);
		compare_start(f, &miss, EDGE, buf_a, buf_a, SPAN);
		CHECK_EQ(req_wait(f, &miss), -EILSEQ);
		CHECK_EQ(miss.io.miscompare, 0);
		CHECK_EQ(do_write(f, 0, buf_a, 2 * MB, 0, 0), 0);
		fence_off(f, leaf);
		CHECK_EQ(dom_or_write(f->object, &o.io, EDGE, bits, on_req), 0);
		sgl_put(bits);
		CHECK_EQ(req_wait(f, &o), 0);
		CHECK_EQ(do_read(f, EDGE, got, SPAN), 0);
		CHECK(all_is(got, SPAN, 0xff));
		CHECK_EQ(do_write(f, 0, buf_a, 2 * MB, 0, 0), 0);
	}
	/* A read is fenced too: a deposed owner must not answer (R18). */
	oepoch = owner_of(f)->oepoch;
	fence_off(f, 0);
	CHECK_EQ(do_read(f, 0, got, 2 * MB), 0);
	CHECK(owner_of(f)->oepoch > oepoch);
	fixture_close(f);
}

/* A reservation that waits for a command goes on when that one is fenced. */
TEST(dom_faults, reserving_behind_a_fenced_command)
{
	static struct sgl *eaten[100000];
	struct fixture *f = fixture_open();
	unsigned n = 0;
	struct dom_nexus nexus = { .initiator_port = "iqn.a,i,0x1",
				   .target_port = 1 };
	struct dom_pr pr = { .action = DOM_SPC2_RESERVE };
	struct req w = { 0 }, p = { .io.data = &p, .io.nexus = &nexus };

	object_make(f, 1);
	dom_nexus_open(f->object, &nexus);
	w.io.nexus = &nexus;
	w.io.deadline_ns = p.io.deadline_ns = env_now(f->ts.env) + 60 * SEC;
	while (n < ARRAY_LEN(eaten) &&
	       sgl_new(f->ts.env->pages, PAGE_RMW, B, 0, &eaten[n]) == 0)
		n++;
	write_start(f, &w, 512, buf_b, 512, 0);
	CHECK_EQ(dom_reserve(f->object, &p.io, &pr, on_req), 0);
	nap(f, 100 * MSEC);
	CHECK(!p.done);
	owner_of(f)->groups[0].dead = -ESTALE;
	while (n > 0)
		sgl_put(eaten[--n]);
	CHECK_EQ(req_wait(f, &p), 0);
	CHECK_EQ(req_wait(f, &w), 0);
	dom_nexus_close(f->object, &nexus, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	fixture_close(f);
}

/* A write that one leaf has, and that the other refuses once they are released. */
static void write_half_fenced(struct fixture *f, struct req *w)
{
	faults.hold[0] = faults.hold[1] = true;
	fence_off(f, 1);
	write_start(f, w, EDGE, buf_b, SPAN, 0);
	UNTIL(f, faults.held_count > 0);
}

/*
 * What a fenced command had prepared is rolled forward, and by then a reservation
 * bars it: it does not run again, nor is its host told that it never ran.
 */
TEST(dom_faults, reserved_by_another_when_it_runs_again)
{
	struct fixture *f = fixture_open();
	struct dom_nexus a = { .initiator_port = "iqn.a,i,0x1" };
	struct dom_nexus b = { .initiator_port = "iqn.b,i,0x1" };
	struct dom_pr pr = { .action = DOM_SPC2_RESERVE };
	struct req w = { .io.nexus = &a };
	struct req p = { .io = { .data = &p, .nexus = &b } };
	uint64_t epoch;
	unsigned changed = 0;

	object_make(f, 2);
	dom_nexus_open(f->object, &a);
	dom_nexus_open(f->object, &b);
	write_half_fenced(f, &w);
	epoch = owner_of(f)->pr_epoch;
	CHECK_EQ(dom_reserve(f->object, &p.io, &pr, on_req), 0);
	UNTIL(f, owner_of(f)->pr_epoch > epoch);
	CHECK(!p.done && !w.done);
	faults_release();
	CHECK_EQ(req_wait(f, &p), 0);
	CHECK_EQ(req_wait(f, &w), -ETIMEDOUT);
	CHECK_EQ(do_read(f, EDGE, got, SPAN), 0);
	for (unsigned i = 0; i < SPAN; i += B)
		changed += all_is(got + i, B, 0x5a);
	CHECK_EQ(changed, SPAN / 2 / B);
	/* What was not there yet is refused as ever. */
	w = (struct req){ .io.nexus = &a };
	write_start(f, &w, EDGE, buf_b, SPAN, 0);
	CHECK_EQ(req_wait(f, &w), -EPERM);
	dom_nexus_close(f->object, &a, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	dom_nexus_close(f->object, &b, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	fixture_close(f);
}

/* So it is of one that lies behind the end by then, in part. */
TEST(dom_faults, cut_when_it_runs_again)
{
	struct fixture *f = fixture_open();
	struct req w = { 0 };
	struct resize r;

	object_make(f, 2);
	write_half_fenced(f, &w);
	resize_start(f, &r, MB, false);
	UNTIL(f, owner_of(f)->resize != NULL);
	faults_release();
	run(&r.done);
	CHECK_EQ(r.status, 0);
	CHECK_EQ(req_wait(f, &w), -ETIMEDOUT);
	CHECK_EQ(do_read(f, EDGE, got, SPAN / 2), 0);
	CHECK(all_is(got, SPAN / 2, 0x5a) || all_is(got, SPAN / 2, 0xa5));
	fixture_close(f);
}

/*
 * One that PREEMPT AND ABORT found running is fenced: it is not carried out under
 * the next epoch, which begins behind the answer (I17).
 */
TEST(dom_faults, aborted_and_fenced)
{
	struct fixture *f = fixture_open();
	struct dom_nexus a = { .initiator_port = "iqn.a,i,0x1",
			       .target_port = 1 };
	struct dom_nexus b = { .initiator_port = "iqn.b,i,0x2",
			       .target_port = 1 };
	struct dom_pr pr = { .action = DOM_PR_REGISTER,
			     .service_action_key = 1 };
	struct req w = { .io.nexus = &a };
	struct req p = { .io.data = &p, .io.nexus = &a };
	uint64_t epoch;

	object_make(f, 1);
	dom_nexus_open(f->object, &a);
	dom_nexus_open(f->object, &b);
	CHECK_EQ(dom_reserve(f->object, &p.io, &pr, on_req), 0);
	CHECK_EQ(req_wait(f, &p), 0);
	p = (struct req){ .io.data = &p, .io.nexus = &b };
	pr.service_action_key = 2;
	CHECK_EQ(dom_reserve(f->object, &p.io, &pr, on_req), 0);
	CHECK_EQ(req_wait(f, &p), 0);
	faults.hold_reads[0] = faults.hold_reads[1] = true;
	write_start(f, &w, 512, buf_b, 512, 0); /* reads its block */
	UNTIL(f, faults.held_count > 0);
	epoch = owner_of(f)->pr_epoch;
	p = (struct req){ .io.data = &p, .io.nexus = &b };
	pr = (struct dom_pr){ .action = DOM_PR_PREEMPT_AND_ABORT,
			      .key = 2,
			      .service_action_key = 1 };
	CHECK_EQ(dom_reserve(f->object, &p.io, &pr, on_req), 0);
	UNTIL(f, owner_of(f)->pr_epoch > epoch);
	CHECK(!p.done && !w.done);
	owner_of(f)->groups[0].dead = -ESTALE;
	faults_release();
	CHECK_EQ(req_wait(f, &p), 0);
	CHECK_EQ(req_wait(f, &w), -ECANCELED);
	CHECK_EQ(do_read(f, 0, got, B), 0);
	CHECK(all_is(got, B, 0xa5));
	dom_nexus_close(f->object, &a, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	dom_nexus_close(f->object, &b, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	fixture_close(f);
}

/*
 * One that had begun is fenced when another, which came later, is parked already:
 * it goes before that one all the same, as it may have left something.
 */
TEST(dom_faults, fenced_commands_keep_their_order)
{
	static struct sgl *eaten[100000];
	struct fixture *f = fixture_open();
	struct req first = { 0 }, second = { 0 };
	unsigned n = 0;

	object_make(f, 1);
	while (n < ARRAY_LEN(eaten) &&
	       sgl_new(f->ts.env->pages, PAGE_RMW, B, 0, &eaten[n]) == 0)
		n++;
	write_start(f, &first, 512, buf_b, 512, 0); /* wants such a page */
	nap(f, 10 * MSEC);
	CHECK(!first.done);
	dom__owner_lost(owner_of(f));
	memset(got, 0x33, B);
	write_start(f, &second, 0, got, B, 0);
	CHECK(!TAILQ_EMPTY(&owner_of(f)->parked));
	owner_of(f)->groups[0].dead = -ESTALE;
	while (n > 0)
		sgl_put(eaten[--n]);
	CHECK_EQ(req_wait(f, &first), 0);
	CHECK_EQ(req_wait(f, &second), 0);
	CHECK_EQ(do_read(f, 0, got, B), 0);
	CHECK(all_is(got, B, 0x33));
	fixture_close(f);
}

/* A change waits for what was let in before it, not for what came since. */
TEST(dom_faults, reserving_behind_older_commands_only)
{
	struct fixture *f = fixture_open();
	struct dom_nexus nexus = { .initiator_port = "iqn.a,i,0x1",
				   .target_port = 1 };
	struct dom_pr pr = { .action = DOM_SPC2_RESERVE };
	struct req older = { 0 }, newer = { 0 };
	struct req p = { .io.data = &p, .io.nexus = &nexus };
	uint64_t epoch;
	unsigned n;

	object_make(f, 1);
	dom_nexus_open(f->object, &nexus);
	faults.hold[0] = faults.hold[1] = true;
	write_start(f, &older, 0, buf_b, B, 0);
	UNTIL(f, faults.held_count > 0);
	nap(f, 20 * MSEC);
	n = faults.held_count;
	epoch = owner_of(f)->pr_epoch;
	CHECK_EQ(dom_reserve(f->object, &p.io, &pr, on_req), 0);
	UNTIL(f, owner_of(f)->pr_epoch > epoch); /* the directory has it */
	nap(f, 20 * MSEC);
	CHECK(!p.done);
	newer.io.nexus = &nexus;
	write_start(f, &newer, 8 * B, buf_b, B, 0);
	nap(f, 20 * MSEC);
	for (unsigned i = 0; i < n; i++)
		faults.real->dev_writev(faults.held[i].dev, faults.held[i].io,
					faults.held[i].iov, faults.held[i].n,
					faults.held[i].offset,
					faults.held[i].flags);
	faults.held_count -= n;
	memmove(&faults.held[0], &faults.held[n],
		faults.held_count * sizeof(faults.held[0]));
	CHECK_EQ(req_wait(f, &p), 0);
	CHECK(older.done);
	CHECK(!newer.done);
	faults_release();
	CHECK_EQ(req_wait(f, &newer), 0);
	dom_nexus_close(f->object, &nexus, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	fixture_close(f);
}

/* In the end: to try later, unless something of it may be there already. */
TEST(dom_faults, fenced_too_often)
{
	static struct sgl *eaten[100000];
	struct fixture *f = fixture_open();

	object_make(f, 1);
	for (unsigned i = 0; i < 2; i++) {
		struct req w = { 0 };
		struct dom__op *op;
		unsigned n = 0;

		while (n < ARRAY_LEN(eaten) &&
		       sgl_new(f->ts.env->pages, PAGE_RMW, B, 0, &eaten[n]) ==
			       0)
			n++;
		write_start(f, &w, 512, buf_b, 512, 0); /* wants such a page */
		nap(f, 10 * MSEC);
		CHECK(!w.done);
		op = w.io.impl[0];
		op->retries = 8; /* as many as there are */
		op->prepared = i > 0;
		owner_of(f)->groups[0].dead = -ESTALE;
		while (n > 0)
			sgl_put(eaten[--n]);
		CHECK_EQ(req_wait(f, &w), i > 0 ? -ETIMEDOUT : -ENXIO);
		CHECK_EQ(do_read(f, 0, got, B), 0);
	}
	fixture_close(f);
}

/* Whether anything is written behind a new end is asked until it is known. */
TEST(dom_faults, a_look_behind_the_end_is_fenced_or_waits)
{
	struct fixture *f = fixture_open();
	struct resize r;

	object_make(f, 1);
	for (unsigned i = 0; i < 4; i++) {
		uint32_t oepoch = owner_of(f)->oepoch;

		if (i % 2 == 0)
			fence_off(f, 0);
		else
			reads_full(f, true);
		resize_start(f, &r, i < 2 ? MB : 2 * MB, true);
		if (i % 2 != 0) {
			nap(f, 50 * MSEC);
			CHECK(!r.done);
			reads_full(f, false);
		}
		run(&r.done);
		CHECK_EQ(r.status, i < 2 ? -ENOTEMPTY : 0);
		CHECK(i % 2 != 0 || owner_of(f)->oepoch > oepoch);
		CHECK_EQ(do_read(f, 0, got, 2 * MB), 0);
		CHECK(all_is(got, 2 * MB, 0xa5));
		if (i == 2)
			CHECK_EQ(resize_to(f, SIZE), 0);
	}
	fixture_close(f);
}

/* ---- the component manager's own door ---- */

struct knock {
	struct dom__cm_read read;
	bool done;
	int status;
};

static void on_knock(struct dom__cm_read *req, int status)
{
	struct knock *k = container_of(req, struct knock, read);

	k->done = true;
	k->status = status;
	if (status == 0)
		sgl_put(req->read.sgl);
}

static int knock(struct dom__cm *cm, struct dom__fence fence)
{
	struct knock k = { .read.read = { .len = B, .class = PAGE_FRONT } };
	int rv = dom__cm_read(cm, &fence, &k.read, on_knock);

	if (rv < 0)
		return rv;
	run(&k.done);
	return k.status;
}

static bool sealed_done;
static int sealed_status;

static void on_sealed(struct dom__cm_meta *req, int status)
{
	sealed_done = true;
	sealed_status = status;
}

/* cinc, epoch and membership must all be the component's own (R1, R6, R13). */
TEST(dom_fence, wrong_by_one)
{
	const unsigned rules[] = { 13, 1, 1, 6, 6, 42 };
	struct fixture *f = fixture_open();
	struct dom__peer *peer;
	struct dom__fence good;
	struct dom__cm_meta meta;
	struct dom__leaf leaf;

	object_make(f, 1);
	peer = &owner_of(f)->peers[0];
	good = peer->fence;
	CHECK_EQ(knock(peer->cm, good), 0);
	for (unsigned i = 0; i < ARRAY_LEN(rules); i++) {
		struct dom__fence bad = good;

		bad.cinc += i == 0;
		bad.oepoch += i == 1;
		bad.oepoch -= i == 2;
		bad.member_csn += i == 3;
		bad.member_csn -= i == 4;
		peer->cm->barred = i == 5;
		CHECK_EQ(knock(peer->cm, bad), -ESTALE);
		f->dom->rules_off = 1ull << rules[i];
		CHECK_EQ(knock(peer->cm, bad), 0);
		f->dom->rules_off = 0;
		peer->cm->barred = false;
	}
	/* A SEAL bars the older epoch at once, and never goes back. */
	leaf = *peer->leaf;
	leaf.cinc++;
	CHECK_EQ(dom__cm_seal(peer->cm, &meta, &leaf, good.oepoch + 1, 0,
			      on_sealed),
		 -ESTALE);
	leaf.cinc--;
	CHECK_EQ(dom__cm_seal(peer->cm, &meta, &leaf, good.oepoch - 1, 0,
			      on_sealed),
		 -ESTALE);
	CHECK_EQ(dom__cm_seal(peer->cm, &meta, &leaf, good.oepoch + 1, 0,
			      on_sealed),
		 0);
	CHECK_EQ(knock(peer->cm, good), -ESTALE);
	run(&sealed_done);
	CHECK_EQ(sealed_status, 0);
	CHECK_EQ(lsom_comp_meta(peer->cm->comp)->promised_oepoch,
		 good.oepoch + 1);
	good.oepoch++;
	CHECK_EQ(knock(peer->cm, good), 0);
	/* The owner finds out, and takes the next epoch. */
	CHECK_EQ(do_write(f, 0, buf_b, B, 0, 0), 0);
	fixture_close(f);
}

static int seal(struct dom__cm *cm, const struct dom__leaf *leaf,
		uint64_t oepoch)
{
	struct dom__cm_meta meta;
	int rv;

	sealed_done = false;
	rv = dom__cm_seal(cm, &meta, leaf, oepoch, 0, on_sealed);
	if (rv < 0)
		return rv;
	run(&sealed_done);
	return sealed_status;
}

/* A SEAL that names it ACTIVE counts with the membership it has (R42). */
TEST(dom_fence, active_by_another_membership)
{
	struct fixture *f = fixture_open();
	struct lsom_comp_meta sync = { .state_seen = LSOM_SYNC };
	struct dom__cm_meta meta;
	struct dom__peer *peer;
	struct dom__fence good;
	struct dom__leaf leaf;

	object_make(f, 1);
	peer = &owner_of(f)->peers[0];
	good = peer->fence;
	leaf = *peer->leaf;
	sealed_done = false;
	CHECK_EQ(dom__cm_update(peer->cm, &good, &meta, LSOM_CONFIG, &sync,
				on_sealed),
		 0);
	run(&sealed_done);
	CHECK_EQ(sealed_status, 0);
	peer->cm->barred = true; /* as when it is opened */
	leaf.member_csn++;
	CHECK_EQ(seal(peer->cm, &leaf, ++good.oepoch), 0);
	CHECK_EQ(lsom_comp_meta(peer->cm->comp)->state_seen, LSOM_SYNC);
	CHECK_EQ(knock(peer->cm, good), -ESTALE);
	leaf.member_csn--;
	CHECK_EQ(seal(peer->cm, &leaf, ++good.oepoch), 0);
	CHECK_EQ(lsom_comp_meta(peer->cm->comp)->state_seen, LSOM_ACTIVE);
	CHECK_EQ(knock(peer->cm, good), 0);
	fixture_close(f);
}

/* A SEAL is answered when what was let in before is settled (g1.3). */
TEST(dom_fence, seal_waits_for_what_was_accepted)
{
	struct fixture *f = fixture_open();
	struct dom__cm_meta meta;
	struct dom__peer *peer;
	struct req w = { 0 };

	object_make(f, 1);
	peer = &owner_of(f)->peers[0];
	faults.hold[0] = faults.hold[1] = true;
	write_start(f, &w, 0, buf_b, B, 0);
	nap(f, 10 * MSEC);
	sealed_done = false;
	CHECK_EQ(dom__cm_seal(peer->cm, &meta, peer->leaf,
			      peer->fence.oepoch + 1, 0, on_sealed),
		 0);
	nap(f, 50 * MSEC);
	CHECK(!sealed_done);
	CHECK_EQ(peer->cm->in_flight, 1);
	CHECK(peer->cm->seal != NULL);
	faults_release();
	run(&sealed_done);
	CHECK_EQ(sealed_status, 0);
	CHECK_EQ(req_wait(f, &w), 0);
	CHECK_EQ(do_read(f, 0, got, B), 0);
	CHECK(all_is(got, B, 0x5a));
	fixture_close(f);
}
