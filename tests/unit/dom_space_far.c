/* The tests of dom_space.c on three shards: disks and objects are elsewhere. */
#define RIG_SHARDS 3u
/* NOLINTNEXTLINE(bugprone-suspicious-include): its tests, once more */
#include "tests/unit/dom_space.c"

#include "lsom/lsom_int.h"
#include "tests/lib/fail_alloc.h"
#include "tests/unit/dom_late.h"

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

	TAILQ_FOREACH (comp, &home->disks[home->disk]->comps, link) {
		comp->counted = LSOM__COUNT_NONE;
		lsom__count_look(comp);
	}
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

/* ---- a disk's home is between its counts ---- */

static _Atomic enum { PASS, WAIT, WAIT_FREED, WAITS } between;
static struct lsom_disk *between_on;

int __real_lsom__index_apply(struct lsom_comp *comp, uint64_t block,
			     unsigned count, const struct lsom__entry *entry,
			     const uint32_t *crcs, enum lsom__apply how,
			     uint64_t source);
int __wrap_lsom__index_apply(struct lsom_comp *comp, uint64_t block,
			     unsigned count, const struct lsom__entry *entry,
			     const uint32_t *crcs, enum lsom__apply how,
			     uint64_t source);
void __real_lsom__segment_count(struct lsom_disk *disk, uint32_t segment,
				int64_t blocks);
void __wrap_lsom__segment_count(struct lsom_disk *disk, uint32_t segment,
				int64_t blocks);
int __real_lsom_credit_take(struct lsom_comp *comp, uint64_t blocks);
int __wrap_lsom_credit_take(struct lsom_comp *comp, uint64_t blocks);

int __wrap_lsom__index_apply(struct lsom_comp *comp, uint64_t block,
			     unsigned count, const struct lsom__entry *entry,
			     const uint32_t *crcs, enum lsom__apply how,
			     uint64_t source)
{
	int rv = __real_lsom__index_apply(comp, block, count, entry, crcs, how,
					  source);

	/* A cleaner moves blocks meanwhile, and the other disk's is the object's. */
	if (between == WAIT && comp->disk == between_on &&
	    how == LSOM__APPLY_NEWER)
		between = WAITS;
	while (between == WAITS && comp->disk == between_on)
		usleep(1000);
	return rv;
}

void __wrap_lsom__segment_count(struct lsom_disk *disk, uint32_t segment,
				int64_t blocks)
{
	__real_lsom__segment_count(disk, segment, blocks);
	if (between == WAIT_FREED && blocks < 0 && disk == between_on)
		between = WAITS;
	while (between == WAITS && disk == between_on)
		usleep(1000);
}

int __wrap_lsom_credit_take(struct lsom_comp *comp, uint64_t blocks)
{
	int rv = __real_lsom_credit_take(comp, blocks);

	if (between == WAITS)
		between = PASS;
	return rv;
}

/*
 * A thin object that takes all but @room of disk 1 and is not at home there; what
 * it would write next on that disk.
 */
static uint64_t thin_filled(struct fixture *f, uint64_t *room)
{
	uint64_t at = 0;
	unsigned n = 50, first;
	struct uuid oid;
	int rv;

	do
		oid = uuid_of(++n);
	while (dom__of(f->dom, &oid)->part != rig_home(f, 0)->part);
	reserve_put(f, "thin", 2, 0);
	CHECK_EQ(object_next(f, n, 1024 * MB, "thin"), 0);
	*room = free_on(f, 1);
	memset(buf_b, 1, MB);
	CHECK_EQ(do_write(f, 0, buf_b, MB, 0, 0), 0);
	first = free_on(f, 1) < *room;
	while ((rv = do_write(f, at, buf_b, MB, 0, 0)) == 0)
		at += MB;
	CHECK_EQ(rv, -ENOSPC);
	nap(f, 100 * MSEC); /* all decided */
	*room = free_on(f, 1);
	CHECK(*room >= 2 * B && *room < MB);
	return at + ((first + at / MB) % 2 == 1 ? 0 : MB);
}

/*
 * What a decision puts into the index stands beside what was undecided for a
 * moment, and nobody is told then that the disk is full.
 */
TEST(dom_space_far, room_while_the_counts_change)
{
	struct fixture *f = fixture_open();
	uint64_t room, at = thin_filled(f, &room);

	between_on = rig_home(f, 1)->disks[1];
	between = WAIT;
	CHECK_EQ(do_write(f, at, buf_b, B, 0, 0), 0);
	while (between == WAIT)
		nap(f, MSEC / 4);
	CHECK_EQ(do_write(f, at + B, buf_b, room - B, 0, 0), 0);
	CHECK_EQ(between, PASS);
	CHECK_EQ(free_on(f, 1), 0);
	fixture_close(f);
}

/* What is unmapped is kept for its object before anybody else may have it. */
TEST(dom_space_far, no_room_while_the_counts_change)
{
	struct fixture *f = fixture_open();
	struct dom_object *thick, *thin;
	struct dom_io io = { .data = f };
	uint64_t room, at;

	reserve_put(f, "thick", 2, 100);
	CHECK_EQ(object_next(f, 50, 4 * MB, "thick"), 0);
	CHECK_EQ(write_up(f, 0, 2), 4 * MB);
	thick = f->object;
	f->object = NULL;
	at = thin_filled(f, &room);
	CHECK_EQ(do_write(f, at, buf_b, room, 0, 0), 0);
	CHECK_EQ(free_on(f, 1), 0);
	nap(f, 100 * MSEC);
	thin = f->object;

	between_on = rig_home(f, 1)->disks[1];
	between = WAIT_FREED;
	CHECK_EQ(dom_unmap(thick, &io, 0, 2 * MB, on_io), 0);
	CHECK_EQ(wait_for(f), 0);
	while (between == WAIT_FREED)
		nap(f, MSEC / 4);
	CHECK_EQ(do_write(f, at + room, buf_b, B, 0, 0), -ENOSPC);
	CHECK_EQ(between, PASS);
	f->object = thick;
	CHECK_EQ(write_up(f, 0, 3), 4 * MB);
	dom_object_close(thin);
	fixture_close(f);
}

/* ---- a disk is too busy to be told what is decided ---- */

static _Atomic unsigned busy;

int __real_lsom_decide(struct lsom_comp *comp, struct lsom_decide *req,
		       lsom_decide_cb cb);
int __wrap_lsom_decide(struct lsom_comp *comp, struct lsom_decide *req,
		       lsom_decide_cb cb);

int __wrap_lsom_decide(struct lsom_comp *comp, struct lsom_decide *req,
		       lsom_decide_cb cb)
{
	if (busy == 0 || comp->far == NULL || !req->commit)
		return __real_lsom_decide(comp, req, cb);
	busy--;
	return -EBUSY;
}

/* It is not full by that: what an UNMAP gave back is there once it has heard. */
TEST(dom_space_far, room_behind_a_busy_disk)
{
	struct fixture *f = fixture_open();
	struct dom_io io = { .data = f };
	uint64_t room, at = thin_filled(f, &room);

	CHECK_EQ(do_write(f, at, buf_b, room, 0, 0), 0);
	CHECK_EQ(free_on(f, 1), 0);
	for (unsigned n = 1; n <= 4; n++) {
		nap(f, 100 * MSEC);
		CHECK_EQ(dom_unmap(f->object, &io, at, room, on_io), 0);
		CHECK_EQ(wait_for(f), 0);
		busy = n;
		CHECK_EQ(do_write(f, at, buf_b, room, 0, 0), 0);
		busy = 0;
	}
	fixture_close(f);
}

/* ---- there is no memory to tell a disk's home what is decided ---- */

static uint64_t used_on_both(struct fixture *f)
{
	struct lsom_disk_info info[DISKS];

	for (unsigned i = 0; i < DISKS; i++)
		lsom_disk_info(f->disks[i], &info[i]);
	return info[0].used_bytes + info[1].used_bytes;
}

static _Atomic unsigned memory_left; /* as @fail_at is on the object's shard */

/* For a note as it is sent. */
static void memory_goes(struct rig_shard *shard)
{
	fail_size = sizeof(struct env_task) + sizeof(struct lsom_comp *) +
		    sizeof(struct lsom_decided);
	fail_at = 1;
	rig_back(shard, 0);
}

static void memory_look(struct rig_shard *shard)
{
	memory_left = fail_at;
	rig_back(shard, 0);
}

/* It is told once there is some, though nothing else is said to the disk. */
TEST(dom_space_far, decided_without_memory)
{
	struct fixture *f = fixture_open();
	struct dom_io io = { .data = f };
	struct rig_shard *there;

	reserve_put(f, "thin", 2, 0);
	CHECK_EQ(object_next(f, 50, 16 * MB, "thin"), 0);
	there = &f->shards[uuid_hash(&f->oid) % RIG_SHARDS];
	CHECK_EQ(do_write(f, 0, buf_b, 2 * MB, 0, 0), 0);
	UNTIL(f, used_on_both(f) == 2 * MB);
	nap(f, 100 * MSEC); /* it was told */
	rig_do(there, memory_goes);
	CHECK_EQ(dom_unmap(f->object, &io, 0, 2 * MB, on_io), 0);
	CHECK_EQ(wait_for(f), 0);
	UNTIL(f, used_on_both(f) == 0);
	rig_do(there, memory_look);
	CHECK_EQ(memory_left, 0);
	fixture_close(f);
}

/* For every note; and again there is some. */
static void memory_ends(struct rig_shard *shard)
{
	fail_size = sizeof(struct env_task) + sizeof(struct lsom_comp *) +
		    sizeof(struct lsom_decided);
	fail_all = true;
	rig_back(shard, 0);
}

static void memory_comes(struct rig_shard *shard)
{
	fail_all = false;
	fail_size = 0;
	rig_back(shard, 0);
}

/* Its stripe units that lie on the disk of a shard other than its own: the first. */
static uint64_t unit_far(struct fixture *f)
{
	const Directory__Object *object = cmmds_object(f->cmmds, &f->oid);
	const Directory__Leaf *leaf = object->tree->children[0]->leaf;
	const struct uuid first = uuid_of(100);
	unsigned disk = memcmp(leaf->disk.data, first.b, sizeof(first.b)) != 0;

	return rig_home(f, disk)->part == uuid_hash(&f->oid) % RIG_SHARDS ? MB
									  : 0;
}

/* What was written is not said to be unmapped, nor cut off, for want of memory. */
TEST(dom_space_far, written_and_not_told)
{
	struct fixture *f = fixture_open();
	struct dom_io io = { .data = f };
	struct rig_shard *there;
	struct two one;
	uint64_t at;

	reserve_put(f, "thin", 2, 0);
	CHECK_EQ(object_next(f, 50, 16 * MB, "thin"), 0);
	there = &f->shards[uuid_hash(&f->oid) % RIG_SHARDS];
	at = 8 * MB + unit_far(f);
	memset(buf_b, 7, MB);
	rig_do(there, memory_ends);
	CHECK_EQ(do_write(f, at, buf_b, MB, 0, 0), 0);
	CHECK_EQ(dom_map(f->object, &io, at, MB, on_io), 0);
	CHECK_EQ(wait_for(f), -ENOMEM);
	keep_begin(f, &one, 4 * MB);
	run(&one.done);
	CHECK_EQ(one.status, -ENOMEM);
	CHECK(strstr(one.resize.why, "cannot be read now") != NULL);
	rig_do(there, memory_comes);
	CHECK_EQ(dom_map(f->object, &io, at, MB, on_io), 0);
	CHECK_EQ(wait_for(f), 0);
	CHECK(io.mapped && io.mapped_len == MB);
	keep_begin(f, &one, 4 * MB);
	run(&one.done);
	CHECK_EQ(one.status, -ENOTEMPTY);
	CHECK_EQ(do_read(f, at, got, MB), 0);
	CHECK(all_is(got, MB, 7));
	fixture_close(f);
}

/* ---- a disk of another shard is busy ---- */

static void log_busy(struct rig_shard *home)
{
	home->disks[home->disk]->heads[LSOM__HEAD_GUEST].queued +=
		LSOM__OPS_MAX;
	rig_back(home, 0);
}

static void log_goes_on(struct rig_shard *home)
{
	home->disks[home->disk]->heads[LSOM__HEAD_GUEST].queued -=
		LSOM__OPS_MAX;
	rig_back(home, 0);
}

/* What it was not given keeps its memory no longer than somebody waits for it. */
TEST(dom_space_far, given_up_before_a_busy_disk)
{
	struct fixture *f = fixture_open();
	struct req late = { 0 }, other = { 0 };
	struct rig_shard *home;
	uint64_t at;
	size_t used;

	reserve_put(f, "thin", 2, 0);
	CHECK_EQ(object_next(f, 50, 16 * MB, "thin"), 0);
	at = unit_far(f);
	/* The home that is not the object's shard, nor the test's. */
	home = &f->shards[3 - uuid_hash(&f->oid) % RIG_SHARDS];
	home->disk = home->part - 1;
	CHECK(rig_home(f, home->disk) == home);
	CHECK_EQ(do_write(f, at, buf_b, MB, 0, 0), 0);
	nap(f, 100 * MSEC);
	used = arena_used(f->ts.arena, PAGE_FRONT);
	rig_do(home, log_busy);
	late.io.deadline_ns = env_now(f->ts.env) + SEC / 2;
	other.io.deadline_ns = env_now(f->ts.env) + 600 * SEC;
	write_start(f, &late, at, buf_a, MB, 0);
	write_start(f, &other, at + 2 * MB, buf_a, B, 0);
	CHECK_EQ(req_wait(f, &late), -ETIMEDOUT);
	UNTIL(f, arena_used(f->ts.arena, PAGE_FRONT) < used + MB / B);
	CHECK(!other.done);
	rig_do(home, log_goes_on);
	CHECK_EQ(req_wait(f, &other), 0);
	fixture_close(f);
}

/* ---- a disk's home is slow to hear what is reserved ---- */

static struct stall {
	atomic_bool waits, go;
	struct env_task task;
} stalls[RIG_SHARDS];

static void stalled(struct env_task *task)
{
	struct stall *stall = container_of(task, struct stall, task);

	stall->waits = true;
	while (!stall->go)
		usleep(1000);
}

static void shard_stall(struct rig_shard *s)
{
	struct stall *stall = &stalls[s->part];

	stall->waits = stall->go = false;
	stall->task.cb = stalled;
	env_post(s->env, &stall->task);
	while (!stall->waits)
		usleep(1000);
}

static void shard_go(struct rig_shard *s)
{
	stalls[s->part].go = true;
}

/* An object from @n on whose shard is not @home, nor the test's own. */
static unsigned object_not_of(struct fixture *f, const struct rig_shard *home,
			      unsigned n)
{
	for (;; n++) {
		struct uuid oid = uuid_of(n);
		unsigned part = dom__of(f->dom, &oid)->part;

		if (part != 0 && part != home->part)
			return n;
	}
}

/* What was promised last is on its way to the disk: nobody looks before. */
TEST(dom_space_far, promised_and_not_heard_of)
{
	struct fixture *f = fixture_open();
	uint64_t room = two_on_one_disk(f);
	struct rig_shard *home = rig_home(f, free_on(f, 0) < free_on(f, 1));
	unsigned n = object_not_of(f, home, 53);
	struct promise p;
	struct two one;

	reserve_put(f, "thin", 1, 0);
	CHECK_EQ(object_next(f, n, room, "thin"), 0);
	CHECK_EQ(promised(f, &p, n, room), 0);
	shard_stall(home);
	reserved_put(f, n, room);
	dom_promise_end(&p.req);
	create_begin(f, &one, object_not_of(f, home, n + 1), room);
	nap(f, 200 * MSEC);
	shard_go(home);
	run(&one.done);
	CHECK_EQ(one.status, -ENOSPC);
	fixture_close(f);
}

/* What its shard counted belongs to a layout that may be another one by then. */
TEST(dom_space_far, promised_and_changed_meanwhile)
{
	struct fixture *f = fixture_open();
	struct rig_shard *there;
	struct promise p;

	reserve_put(f, "thin", 1, 0);
	CHECK_EQ(object_next(f, 50, 4 * MB, "thin"), 0);
	there = &f->shards[uuid_hash(&f->oid) % RIG_SHARDS];
	CHECK_EQ(promised(f, &p, 50, MB), 0);
	dom_promise_end(&p.req);
	UNTIL(f, TAILQ_EMPTY(&f->dom->turns));
	shard_stall(there);
	promise_begin(f, &p, 50, 2 * MB);
	reserved_put(f, 50, MB); /* it hears of that later */
	shard_go(there);
	run(&p.done);
	CHECK_EQ(p.status, -EAGAIN);
	CHECK_STR(p.req.why, "it has just been changed");
	CHECK_EQ(promised(f, &p, 50, 2 * MB), 0);
	dom_promise_end(&p.req);
	fixture_close(f);
}

/* An object from @n on whose shard is @part. */
static unsigned object_of(struct fixture *f, unsigned part, unsigned n)
{
	for (;; n++) {
		struct uuid oid = uuid_of(n);

		if (dom__of(f->dom, &oid)->part == part)
			return n;
	}
}

/*
 * Nobody knew what the directory made of a growth; it took it, and the object's
 * shard has yet to hear of that, and the disk of what is reserved.  Shards are
 * passed by in their order: the disk's home comes first here.
 */
TEST(dom_space_far, grown_and_not_heard_of)
{
	struct fixture *f = fixture_open();
	struct rig_shard *home = rig_home(f, 0), *there = &f->shards[2];
	uint64_t room = ROUND_DOWN(free_on(f, 0), MB);
	unsigned n = object_of(f, there->part, 50);
	struct two one, next;

	CHECK_EQ(home->part, 1);
	reserve_put(f, "thick", 1, 100);
	CHECK_EQ(object_next(f, n, room, "thick"), 0);
	CHECK(free_on(f, 1) < MB); /* it is near */
	n = object_of(f, there->part, n + 1);
	CHECK_EQ(object_next(f, n, MB, "thick"), 0);
	faults.hold_directory = true;
	resize_begin(f, &one, n, room - 8 * MB);
	while (!one.done) {
		times_out(f);
		nap(f, MSEC);
	}
	CHECK_EQ(one.status, -ETIMEDOUT);
	shard_stall(there);
	directory_release();
	nap(f, 200 * MSEC);
	shard_stall(home);
	create_begin(f, &next, object_of(f, there->part, n + 1), 16 * MB);
	shard_go(there);
	nap(f, 200 * MSEC);
	shard_go(home);
	run(&next.done);
	CHECK_EQ(next.status, -ENOSPC);
	CHECK(free_on(f, 0) < 16 * MB);
	fixture_close(f);
}

/* ---- the directory does not answer, and the shards are closed ---- */

static struct env_timer late;

/* Not before the first shard's dom is closed. */
static void answers_late(struct env_timer *timer)
{
	if (faults.f->doms[0] == NULL) {
		directory_release();
		return;
	}
	no_time_left(faults.f);
	env_timer_start(faults.env, timer, 10 * MSEC);
}

/* All is closed, and only then does the directory answer. */
static void closed_unanswered(struct fixture *f)
{
	late = (struct env_timer){ .cb = answers_late };
	env_timer_start(f->ts.env, &late, 0);
	fixture_close(f);
	CHECK(!faults.hold_directory);
}

/* Who grew an object of another shard has a turn on the first one only. */
TEST(dom_space_far, closed_before_a_resize_is_known)
{
	struct fixture *f = fixture_open();
	struct two one;

	reserve_put(f, "thick", 1, 100);
	CHECK_EQ(object_next(f, 50, MB, "thick"), 0);
	faults.hold_directory = true;
	resize_begin(f, &one, 50, 4 * MB);
	while (!one.done) {
		times_out(f);
		nap(f, MSEC);
	}
	CHECK_EQ(one.status, -ETIMEDOUT);
	closed_unanswered(f);
}

/* The shard that asks the directory for it is closed behind the first one. */
TEST(dom_space_far, closed_before_a_promise_is_known)
{
	struct fixture *f = fixture_open();
	struct promise p;

	reserve_put(f, "thin", 1, 0);
	CHECK_EQ(object_next(f, 50, 4 * MB, "thin"), 0);
	CHECK(f->object->far != NULL);
	CHECK_EQ(promised(f, &p, 50, MB), 0);
	faults.hold_directory = true;
	dom_promise_end(&p.req);
	closed_unanswered(f);
}
