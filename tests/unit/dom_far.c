/*
 * Whatever an object does for a handle on its owner's shard, it does for one on
 * another: the tests of dom_object.c, on three shards.
 */
#define RIG_SHARDS 3u
/* NOLINTNEXTLINE(bugprone-suspicious-include): its tests, once more */
#include "tests/unit/dom_object.c"

#include <limits.h>
#include <stdatomic.h>

static void on_far_event(struct dom_watch *watch, enum dom_event event)
{
	*(unsigned *)watch->data |= 1u << event;
}

/* Whoever was told of a change of the reservation can see it at once. */
TEST(dom_far, a_change_is_seen_when_it_is_answered)
{
	struct fixture *f = fixture_open();
	struct dom_nexus a = { .initiator_port = "iqn.a,i,0x1",
			       .target_port = 1 };
	struct dom_nexus b = { .initiator_port = "iqn.b,i,0x2",
			       .target_port = 1 };
	struct dom_object *other;
	unsigned events = 0;
	struct dom_watch watch = { .data = &events, .cb = on_far_event };

	object_make(f, 1);
	CHECK(f->object->far != NULL);
	other = f->object;
	CHECK_EQ(object_open(f), 0);
	CHECK(f->object != other);
	dom_object_watch(other, &watch);
	dom_nexus_open(f->object, &a);
	dom_nexus_open(other, &b);
	for (unsigned i = 0; i < 50; i++) {
		CHECK_EQ(reserve(f, &a,
				 (struct dom_pr){ .action = DOM_SPC2_RESERVE }),
			 0);
		CHECK(!dom_access_allowed(other, &b, DOM_ACCESS_READ));
		CHECK(dom_access_allowed(f->object, &a, DOM_ACCESS_READ));
		CHECK_EQ(reserve(f, &a,
				 (struct dom_pr){ .action = DOM_SPC2_RELEASE }),
			 0);
		CHECK(dom_access_allowed(other, &b, DOM_ACCESS_READ));
	}
	CHECK_EQ(reserve(f, &a, (struct dom_pr){ .action = DOM_SPC2_RESERVE }),
		 0);
	nexus_close(f, &a);
	/* A reservation of this kind ends with its nexus. */
	CHECK(dom_access_allowed(other, &b, DOM_ACCESS_READ));
	CHECK(events & 1u << DOM_RESERVATION);
	dom_object_unwatch(other, &watch);
	dom_nexus_close(other, &b, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	dom_object_close(other);
	fixture_close(f);
}

/* The disks have another congestion than they had, as that shard sees it. */
static void rig_congestion_moves(struct rig_shard *s)
{
	struct dom__disk *disk;

	TAILQ_FOREACH (disk, &s->dom->disks, link) {
		disk->congestion ^= 1; /* what lsom says is another one */
		dom__disk_look(disk);
	}
	rig_back(s, 0);
}

/* Nothing is posted for those that have nothing under way: there may be many. */
TEST(dom_far, idle_ones_do_not_hear_of_congestion)
{
	struct fixture *f = fixture_open();
	struct rig_shard *there;
	unsigned events = 0;
	struct dom_watch watch = { .data = &events, .cb = on_far_event };

	object_make(f, 1);
	CHECK(f->object->far != NULL);
	there = &f->shards[uuid_hash(&f->oid) % RIG_SHARDS];
	nap(f, 100 * MSEC); /* what the write before has still to tell */
	dom_object_watch(f->object, &watch);
	for (unsigned i = 0; i < 20; i++)
		rig_do(there, rig_congestion_moves);
	nap(f, 10 * MSEC);
	CHECK_EQ(events, 0);
	CHECK_EQ(do_write(f, 0, buf_b, B, 0, 0), 0);
	UNTIL(f, events == 1u << DOM_CONGESTION);
	dom_object_unwatch(f->object, &watch);
	fixture_close(f);
}

struct listener {
	struct dom_watch watch;
	struct dom_object *object;
	struct dom_nexus *nexus, cause;
	unsigned heard, in_time; /* the latter: when the change was answered */
};

static void on_owed(struct dom_watch *watch, enum dom_event event)
{
	struct listener *l = watch->data;

	if (event == DOM_RESERVATION)
		l->heard |= dom_nexus_attention(l->object, l->nexus);
}

static void on_cause(struct dom_io *io, int status)
{
	struct listener *l = container_of(io->nexus, struct listener, cause);

	l->in_time = l->heard;
	on_io(io, status);
}

/* And what others are owed for it they have by then. */
TEST(dom_far, an_attention_is_there_when_its_cause_is_answered)
{
	struct fixture *f = fixture_open();
	struct dom_nexus b = { .initiator_port = "iqn.b,i,0x2",
			       .target_port = 1 };
	struct listener l = { .watch.cb = on_owed,
			      .nexus = &b,
			      .cause = { .initiator_port = "iqn.a,i,0x1",
					 .target_port = 1 } };

	object_make(f, 1);
	CHECK(f->object->far != NULL);
	l.watch.data = &l;
	l.object = f->object;
	dom_object_watch(f->object, &l.watch);
	dom_nexus_open(f->object, &l.cause);
	dom_nexus_open(f->object, &b);
	for (unsigned i = 0; i < 50; i++) {
		struct dom_pr pr = { .action = DOM_PR_REGISTER,
				     .service_action_key = 1 };
		struct dom_io io = { .data = f, .nexus = &l.cause };

		CHECK_EQ(reserve(f, &l.cause, pr), 0);
		CHECK_EQ(reserve(f, &b, pr), 0);
		l.heard = 0;
		pr = (struct dom_pr){ .action = DOM_PR_CLEAR, .key = 1 };
		CHECK_EQ(dom_reserve(f->object, &io, &pr, on_cause), 0);
		CHECK_EQ(wait_for(f), 0);
		CHECK_EQ(l.in_time, DOM_UA_RESERVATION_PREEMPTED);
	}
	dom_object_unwatch(f->object, &l.watch);
	nexus_close(f, &b);
	nexus_close(f, &l.cause);
	fixture_close(f);
}

/*
 * The end of a nexus that held nothing is no news: were every handle told of each,
 * many that end at once would keep the owner's shard from all else.
 */
TEST(dom_far, a_nexus_ends_quietly)
{
	struct fixture *f = fixture_open();
	struct dom_nexus a = { .initiator_port = "iqn.a,i,0x1",
			       .target_port = 1 };
	struct dom__far_state *heard;
	unsigned events = 0;
	struct dom_watch watch = { .data = &events, .cb = on_far_event };

	object_make(f, 1);
	heard = &f->object->far->state;
	dom_nexus_open(f->object, &a);
	CHECK_EQ(reserve(f, &a, (struct dom_pr){ .action = DOM_SPC2_RESERVE }),
		 0);
	heard->size_bytes++; /* until it is told again */
	nexus_close(f, &a);
	CHECK(heard->size_bytes % B == 0);
	dom_object_watch(f->object, &watch);
	do { /* a disk's congestion is told when it likes, and says so */
		if (events != 0)
			heard->size_bytes -= heard->size_bytes % B;
		events = 0;
		dom_nexus_open(f->object, &a);
		heard->size_bytes++;
		nexus_close(f, &a);
	} while (events != 0);
	CHECK(heard->size_bytes % B == 1);
	heard->size_bytes--;
	dom_object_unwatch(f->object, &watch);
	fixture_close(f);
}

/* A command of a nexus that is closing is nobody's; a cancel is answered once. */
TEST(dom_far, late_commands_and_cancels)
{
	enum { N = 200 };
	static struct req reqs[N];
	struct fixture *f = fixture_open();
	struct dom_nexus a = { .initiator_port = "iqn.a,i,0x1",
			       .target_port = 1 };
	struct dom_io late = { .nexus = &a };

	object_make(f, 2);
	memset(reqs, 0, sizeof(reqs));
	dom_nexus_open(f->object, &a);
	for (unsigned i = 0; i < N; i++) {
		reqs[i].io.nexus = &a;
		write_start(f, &reqs[i], (uint64_t)(i % 8) * B, buf_b, B, 0);
		if (i % 3 == 0)
			dom_cancel(&reqs[i].io);
		if (i % 6 == 0)
			dom_cancel(&reqs[i].io); /* twice */
	}
	dom_nexus_close(f->object, &a, on_done, f);
	CHECK_EQ(dom_read(f->object, &late, 0, B, on_io), -ECANCELED);
	CHECK_EQ(wait_for(f), 0);
	for (unsigned i = 0; i < N; i++) {
		CHECK(reqs[i].done); /* none is left behind the closing */
		CHECK(reqs[i].status == 0 || reqs[i].status == -ECANCELED);
	}
	CHECK_EQ(do_read(f, 0, got, 8 * B), 0);
	for (unsigned i = 0; i < 8; i++)
		CHECK(all_is(got + i * B, B, 0xa5) ||
		      all_is(got + i * B, B, 0x5a));
	fixture_close(f);
}

static struct rig_shard *owners_shard(struct fixture *f)
{
	return &f->shards[uuid_hash(&f->oid) % RIG_SHARDS];
}

static atomic_uint ops_there;

static void ops_look(struct env_task *task)
{
	struct rig_shard *s = container_of(task, struct rig_shard, task);

	atomic_store(&ops_there,
		     dom__owner_find(s->dom, &s->f->oid)->ops_count);
}

/* Its shard is done with it; here nothing goes on meanwhile. */
static void ends_there(struct fixture *f)
{
	struct rig_shard *s = owners_shard(f);
	unsigned count;

	s->task.cb = ops_look;
	do {
		usleep(1000);
		atomic_store(&ops_there, UINT_MAX);
		env_post(s->env, &s->task);
		while ((count = atomic_load(&ops_there)) == UINT_MAX)
			usleep(100);
	} while (count > 0);
}

/* Cancelled when its answer is on its way here already: it is answered once. */
TEST(dom_far, cancelled_behind_its_end)
{
	struct fixture *f = fixture_open();

	object_make(f, 1);
	for (unsigned i = 0; i < 10; i++) {
		struct req w = { 0 };

		write_start(f, &w, 0, buf_b, B, 0);
		ends_there(f);
		dom_cancel(&w.io);
		CHECK_EQ(req_wait(f, &w), 0);
		nap(f, MSEC);
	}
	fixture_close(f);
}

static void lose(struct rig_shard *s)
{
	struct dom__owner *owner = dom__owner_find(s->dom, &s->f->oid);

	owner->lossy = true;
	dom__owner_lost(owner);
	rig_back(s, 0);
}

/* What a takeover found is known to the handle before anything is answered. */
TEST(dom_far, told_of_what_was_lost)
{
	struct fixture *f = fixture_open();

	object_make(f, 1);
	CHECK(!dom_object_lossy(f->object));
	rig_do(owners_shard(f), lose);
	CHECK_EQ(do_read(f, 0, got, B), 0);
	CHECK(dom_object_lossy(f->object));
	fixture_close(f);
}

static uint64_t limit_there;

static void limit_look(struct rig_shard *s)
{
	limit_there = dom__owner_find(s->dom, &s->f->oid)->qos.limit;
	rig_back(s, 0);
}

/* The shard of the object hears of it by itself. */
static bool limit_is(struct fixture *f, uint64_t limit)
{
	rig_do(owners_shard(f), limit_look);
	return limit_there == limit;
}

static unsigned flags_there;

static void flags_look(struct rig_shard *s)
{
	const struct dom__owner *owner = dom__owner_find(s->dom, &s->f->oid);

	flags_there = TAILQ_LAST(&owner->throttled, dom__op_list)->flags;
	rig_back(s, 0);
}

/* One that waits there waits as it was sent, and is answered at its deadline. */
TEST(dom_far, deadline)
{
	struct fixture *f = fixture_open();
	Directory__Policy p = DIRECTORY__POLICY__INIT;
	struct dom_nexus a = { .initiator_port = "iqn.a,i,0x1" };
	struct req first = { .io.nexus = &a }, late = { .io.nexus = &a };
	struct req atomic = { .io.nexus = &a };
	/* A second each: it is not its turn yet. */
	static struct req before[60];

	object_make(f, 1);
	p.name = "p";
	p.stripe_width = 1;
	p.iops_limit = 1;
	entry_put(f, CMMDS_POLICY, "p", 1, &p.base);
	UNTIL(f, limit_is(f, 1));
	dom_nexus_open(f->object, &a);
	write_start(f, &first, 0, buf_b, B, 0);
	CHECK_EQ(req_wait(f, &first), 0);
	memset(before, 0, sizeof(before));
	for (unsigned i = 0; i < ARRAY_LEN(before); i++) {
		before[i].io.nexus = &a;
		before[i].io.deadline_ns = env_now(f->ts.env) + 600 * SEC;
		write_start(f, &before[i], B, buf_a, B, 0);
	}
	write_start(f, &atomic, B, buf_a, B, DOM_ATOMIC);
	rig_do(owners_shard(f), flags_look);
	CHECK_EQ(flags_there, DOM_ATOMIC);
	dom_cancel(&atomic.io);
	CHECK_EQ(req_wait(f, &atomic), -ECANCELED);
	late.io.deadline_ns = env_now(f->ts.env) + SEC / 2;
	write_start(f, &late, 0, buf_a, B, 0);
	CHECK_EQ(req_wait(f, &late), -ETIMEDOUT);
	CHECK(!before[ARRAY_LEN(before) - 1].done); /* they have more time */
	for (unsigned i = 0; i < ARRAY_LEN(before); i++)
		if (!before[i].done)
			dom_cancel(&before[i].io);
	for (unsigned i = 0; i < ARRAY_LEN(before); i++)
		(void)req_wait(f, &before[i]);
	nexus_close(f, &a);
	CHECK_EQ(do_read(f, 0, got, B), 0);
	CHECK(all_is(got, B, 0x5a));
	fixture_close(f);
}

/* One that was never opened has nothing there to be closed. */
TEST(dom_far, a_nexus_that_never_opened)
{
	struct fixture *f = fixture_open();
	struct dom_nexus a = { .initiator_port = "iqn.a,i,0x1" };
	struct dom_nexus b = { .initiator_port = "iqn.b,i,0x1" };

	object_make(f, 1);
	dom_nexus_open(f->object, &b);
	nexus_close(f, &a);
	CHECK_EQ(nexus_write(f, &b), 0);
	nexus_close(f, &b);
	fixture_close(f);
}

static void with_policy(struct dom_resize *req, struct cmmds_command *cmd)
{
	Directory__Policy p = DIRECTORY__POLICY__INIT;

	p.name = "with";
	p.stripe_width = 1;
	cmmds_put(cmd, CMMDS_POLICY, "with", 4, CMMDS_MUST_NOT_EXIST, &p.base);
}

/* What the caller adds is stored with the size, or neither is. */
TEST(dom_far, resized_with_what_is_added)
{
	struct fixture *f = fixture_open();
	struct dom_resize req = { .data = f, .commit = with_policy };

	object_make(f, 1);
	req.oid = f->oid;
	for (unsigned i = 2; i < 4; i++) {
		req.size_bytes = i * (uint64_t)SIZE;
		CHECK_EQ(dom_resize(f->dom, &req, on_resized), 0);
		CHECK_EQ(wait_for(f) == 0, i == 2);
		CHECK_EQ(req.stored, i == 2);
		CHECK(cmmds_policy(f->cmmds, "with") != NULL);
		CHECK_EQ(cmmds_object(f->cmmds, &f->oid)->size_bytes, 2 * SIZE);
	}
	fixture_close(f);
}

/* Who takes a size back does so of one that cannot be opened with it. */
TEST(dom_far, not_taken_back_while_it_is_open)
{
	struct fixture *f = fixture_open();
	struct dom_resize req = { .data = f,
				  .size_bytes = SIZE / 2,
				  .undo = true };

	object_make(f, 1);
	req.oid = f->oid;
	CHECK_EQ(dom_resize(f->dom, &req, on_resized), 0);
	CHECK_EQ(wait_for(f), -EALREADY);
	CHECK(!req.stored);
	CHECK_EQ(cmmds_object(f->cmmds, &f->oid)->size_bytes, SIZE);
	fixture_close(f);
}
