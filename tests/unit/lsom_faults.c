/*
 * Faults of a disk, one at a time: writes, reads and flushes that fail, an index
 * without room, a disk that is full.  Every request is answered, and what was
 * acknowledged is there.
 */
#include "tests/unit/lsom_rig.h"

#include "lsom/cleaner_int.h"

static void turns(struct fixture *f, unsigned n)
{
	while (n-- > 0 && sim_env_turn(&f->sim))
		;
}

/* ---- zeroing ---- */

/*
 * Writes that are faster than zeroing take segments that were not zeroed, but
 * never the one a zero write is on its way to: the simulated disk ends the
 * program if two writes meet.
 */
TEST(faults, zeroing_is_slower_than_writing)
{
	struct fixture *f = fixture_open(1);
	struct lsom_comp *comp;
	unsigned i;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	f->sim.hold_plain = true;
	for (i = 0; i < 40; i++)
		CHECK_EQ(put(f, comp, i * 64, 64, LSN(1, i + 1), i + 1), 0);
	f->sim.hold_plain = false;
	turns(f, 2000);
	for (i = 0; i < 40 * 64; i++)
		CHECK_EQ(get(f, comp, i, i / 64 + 1), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* ---- requests that fail ---- */

static unsigned answered(const struct call *calls, unsigned n)
{
	unsigned i, count = 0;

	for (i = 0; i < n; i++)
		count += calls[i].done;
	return count;
}

/* Write with several on their way until all are answered. */
static void many(struct fixture *f, struct lsom_comp *comp, struct call *calls,
		 uint64_t lsn)
{
	unsigned i;

	for (i = 0; i < FLIGHTS; i++) {
		calls[i].f = f;
		calls[i].status =
			write_start(&calls[i], comp, LSOM_PREP, i * 40,
				    1 + i % 40, LSN(1, lsn + i), lsn + i);
		if (calls[i].status < 0)
			calls[i].done = true;
		else
			calls[i].status = PENDING;
		turns(f, i % 3);
	}
	for (i = 0; i < 100000 && answered(calls, FLIGHTS) < FLIGHTS; i++)
		CHECK(sim_env_turn(&f->sim));
	CHECK_EQ(answered(calls, FLIGHTS), FLIGHTS);
}

/* What was acknowledged is there. */
static void acked_check(struct fixture *f, struct lsom_comp *comp,
			const struct call *calls)
{
	unsigned i, k;

	for (i = 0; i < FLIGHTS; i++)
		for (k = 0; calls[i].status == 0 && k <= i % 40; k++)
			CHECK_EQ(get(f, comp, i * 40 + k, calls[i].seed), 1);
}

static void failed_check(struct fixture *f, struct lsom_comp *comp)
{
	struct call c = { .f = f };
	struct lsom_disk_info info;

	lsom_disk_info(f->disk, &info);
	CHECK_EQ(info.state, LSOM_DISK_FAILED);
	CHECK(info.failure[0] != '\0');
	CHECK_EQ(put(f, comp, 0, 1, LSN(1, 999), 1), -ENODEV);
	CHECK_EQ(get(f, comp, 0, 1), -ENODEV);
	CHECK_EQ(update(f, comp, LSOM_SEAL, *lsom_comp_meta(comp)), -ENODEV);
	CHECK_EQ(lsom_decide(comp, &c.d, NULL), -ENODEV);
	CHECK_EQ(lsom_credit_take(comp, 1), -ENODEV);
}

TEST(faults, any_write_of_the_log_fails)
{
	struct lsom_decided d = { .stable_lsn = LSN(1, 500) };
	struct call *calls = calloc(FLIGHTS, sizeof(*calls));
	struct lsom_comp *comp;
	struct fixture *f;
	unsigned n, i, bad;

	for (n = 1; n < 20; n++) {
		f = fixture_open(n);
		CHECK_EQ(create(f, 1, 8192), 0);
		comp = comp_of(f, 1);
		f->sim.fail_write = n;
		memset(calls, 0, FLIGHTS * sizeof(*calls));
		many(f, comp, calls, 100);
		if (f->sim.fail_write != 0) { /* so many were not needed */
			lsom_comp_put(comp);
			fixture_close(f);
			break;
		}
		for (i = bad = 0; i < FLIGHTS; i++) {
			CHECK(calls[i].status == 0 || calls[i].status == -EIO ||
			      calls[i].status == -ENODEV ||
			      calls[i].status == -EBUSY);
			bad += calls[i].status == -EIO;
		}
		failed_check(f, comp);
		lsom_comp_put(comp);
		disk_close(f);
		CHECK_EQ(disk_open(f, n % 2), 0);
		comp = comp_of(f, 1);
		lsom_decided(comp, &d);
		acked_check(f, comp, calls);
		lsom_comp_put(comp);
		fixture_close(f);
	}
	CHECK(n > 3);
	free(calls);
}

static void checkpointed(struct lsom_checkpoint *req, int status)
{
	struct fixture *f = req->data;

	f->status = status;
	f->done = true;
}

static int checkpoint(struct fixture *f)
{
	struct lsom_checkpoint req = { .data = f };
	int rv;

	f->done = false;
	rv = lsom_checkpoint(f->disk, &req, checkpointed);
	if (rv < 0)
		return rv;
	CHECK(sim_env_run(&f->sim, &f->done));
	return f->status;
}

/* Left to itself a disk puts into its index what changed last. */
static void rest_check(struct fixture *f)
{
	CHECK(f->disk->dirty_count > 0);
	while (sim_env_turn(&f->sim))
		;
	CHECK(lsom__checkpoint_idle(f->disk));
}

TEST(faults, nothing_stays_out_of_the_index)
{
	struct fixture *f = fixture_open(7);
	struct lsom_decided d = { .stable_lsn = LSN(1, 1) };
	struct lsom_checkpoint req = { .data = f };
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	/* Versions decided after the last batch. */
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, 40, LSN(1, 1), 1), 0);
	CHECK_EQ(checkpoint(f), 0);
	lsom_decided(comp, &d);
	rest_check(f);
	/* And while a checkpoint runs, which has begun without them. */
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 40, 9, LSN(1, 2), 2), 0);
	f->done = false;
	CHECK_EQ(lsom_checkpoint(f->disk, &req, checkpointed), 0);
	while (f->disk->checkpoint == NULL)
		CHECK(sim_env_turn(&f->sim));
	d.stable_lsn = LSN(1, 2);
	lsom_decided(comp, &d);
	rest_check(f);
	CHECK(f->done);
	lsom_comp_put(comp);
	fixture_close(f);
}

/*
 * A batch that ends behind a checkpoint asks for the next one.  A disk that has
 * nothing to write to its index closes that at once, and nobody is to come for
 * it meanwhile.
 */
TEST(faults, no_checkpoint_comes_while_the_index_is_closed)
{
	struct lsom_disk_close closing;
	struct call c = { .status = 0 };
	struct lsom_comp *comp;
	struct fixture *f;
	unsigned seed = 0, armed = 0;
	int rv;

	while (armed == 0) {
		CHECK(seed++ < 50);
		f = fixture_open(seed);
		CHECK_EQ(create(f, 1, 8192), 0);
		comp = comp_of(f, 1);
		c.f = f;
		rv = write_start(&c, comp, LSOM_PREP, 0, 40, LSN(1, 1), 1);
		CHECK_EQ(rv, 0);
		turns(f, 1); /* it is on its way */
		CHECK_EQ(checkpoint(f), 0);
		CHECK_EQ(finish(&c, rv), 0);
		lsom_comp_put(comp);
		armed = env_timer_active(&f->disk->checkpoint_timer) &&
			lsom__checkpoint_idle(f->disk);
		closing = (struct lsom_disk_close){ .data = f };
		f->done = false;
		CHECK_EQ(lsom_disk_close(f->disk, &closing, closed), 0);
		while (!f->disk->closed)
			CHECK(sim_env_turn(&f->sim));
		CHECK(!env_timer_active(&f->disk->checkpoint_timer));
		CHECK(sim_env_run(&f->sim, &f->done));
		CHECK_EQ(disk_open(f, false), 0);
		fixture_close(f);
	}
}

/*
 * A checkpoint waits for the cleaner, which is about to look at it, when the
 * disk could close: the disk waits, too.
 */
TEST(faults, a_checkpoint_waits_while_the_disk_closes)
{
	struct fixture *f = fixture_open(6);
	struct lsom_checkpoint req = { .data = f };
	struct lsom_disk_close closing = { .data = f };
	struct lsom_disk *disk = f->disk;
	uint32_t free_now;

	while (!disk->cleaner->settled || disk->works > 0 ||
	       disk->checkpoint != NULL || disk->watch_task.queued)
		CHECK(sim_env_turn(&f->sim));
	CHECK(lsom__checkpoint_idle(disk));
	/* As if a victim had been left, with less free than is reserved. */
	disk->cleaner->settled = false;
	free_now = disk->segments_free;
	disk->segments_free = 1;
	f->done = false;
	CHECK_EQ(lsom_checkpoint(disk, &req, checkpointed), 0);
	while (!disk->checkpoint_waits)
		CHECK(sim_env_turn(&f->sim));
	disk->segments_free = free_now;
	CHECK_EQ(lsom_disk_close(disk, &closing, closed), 0);
	lsom__cleaner_kick(disk); /* behind the close's own step */
	while (!f->done) {
		CHECK(!disk->closed);
		CHECK(sim_env_turn(&f->sim));
	}
	f->done = false;
	CHECK(sim_env_run(&f->sim, &f->done));
	CHECK_EQ(disk_open(f, false), 0);
	fixture_close(f);
}

/* Once; or each time, which is counted. */
static bool no_memory, never_memory;
static unsigned refused;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
	if (!no_memory && !never_memory)
		return __real_calloc(n, size);
	no_memory = false;
	refused++;
	return NULL;
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* The last checkpoint finds no memory: it comes again, and the disk closes. */
TEST(faults, closed_without_memory_for_a_checkpoint)
{
	struct fixture *f = fixture_open(6);
	struct lsom_disk_close closing = { .data = f };
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, 64, LSN(1, 1), 1), 0);
	lsom_comp_put(comp);
	f->done = false;
	CHECK_EQ(lsom_disk_close(f->disk, &closing, closed), 0);
	while (!f->disk->checkpoint_task.queued)
		CHECK(sim_env_turn(&f->sim));
	/* As one that just ran has left it. */
	env_timer_stop(f->disk->env, &f->disk->checkpoint_timer);
	no_memory = true;
	CHECK(sim_env_run(&f->sim, &f->done));
	CHECK(!no_memory);
	CHECK_EQ(disk_open(f, false), 0);
	CHECK_EQ(f->disk->recovered_records, 0);
	comp = comp_of(f, 1);
	CHECK_EQ(get(f, comp, 63, 1), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* Where there is none for long, it is tried now and then, and others have turns. */
TEST(faults, closed_without_memory_for_long)
{
	struct fixture *f = fixture_open(6);
	struct lsom_disk_close closing = { .data = f };
	const struct env *env = &f->sim.loop.env;
	struct lsom_comp *comp;
	unsigned n = 0;
	uint64_t end;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, 64, LSN(1, 1), 1), 0);
	lsom_comp_put(comp);
	f->done = false;
	CHECK_EQ(lsom_disk_close(f->disk, &closing, closed), 0);
	while (!f->disk->checkpoint_task.queued)
		CHECK(sim_env_turn(&f->sim));
	never_memory = true;
	refused = 0;
	end = env_now(env) + 60 * SEC;
	while (env_now(env) < end && n++ < 10000)
		CHECK(sim_env_turn(&f->sim));
	never_memory = false;
	CHECK(env_now(env) >= end);
	CHECK(refused > 1 && refused < 20);
	CHECK(!f->done);
	CHECK(sim_env_run(&f->sim, &f->done));
	CHECK_EQ(disk_open(f, false), 0);
	CHECK_EQ(f->disk->recovered_records, 0);
	comp = comp_of(f, 1);
	CHECK_EQ(get(f, comp, 63, 1), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

static void checkpoint_answered(struct lsom_checkpoint *req, int status)
{
	struct call *c = req->data;

	c->status = status;
	c->done = true;
}

/* Who asked for a checkpoint of a disk with nothing changed has an answer. */
TEST(faults, asked_without_memory_for_a_checkpoint)
{
	struct fixture *f = fixture_open(7);
	struct lsom_disk_close closing = { .data = f };
	struct call c = { .f = f };
	struct lsom_checkpoint req = { .data = &c };

	CHECK_EQ(finish(&c,
			lsom_checkpoint(f->disk, &req, checkpoint_answered)),
		 0);
	CHECK(lsom__checkpoint_idle(f->disk));
	c.done = f->done = false;
	CHECK_EQ(lsom_checkpoint(f->disk, &req, checkpoint_answered), 0);
	CHECK_EQ(lsom_disk_close(f->disk, &closing, closed), 0);
	no_memory = true;
	while (no_memory)
		CHECK(sim_env_turn(&f->sim));
	lsom__disk_changed(f->disk); /* whatever it was */
	CHECK(sim_env_run(&f->sim, &f->done));
	CHECK(c.done);
	CHECK_EQ(c.status, 0);
	CHECK_EQ(disk_open(f, false), 0);
	fixture_close(f);
}

TEST(faults, flush_of_the_index_fails)
{
	struct fixture *f = fixture_open(3);
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, 64, LSN(1, 1), 1), 0);
	CHECK_EQ(put(f, comp, 64, 64, LSN(1, 2), 2), 0);
	f->sim.fail_flush = 1;
	CHECK(checkpoint(f) < 0);
	failed_check(f, comp);
	CHECK_EQ(checkpoint(f), -ENODEV);
	lsom_comp_put(comp);
	CHECK_EQ(power_cut(f), 0);
	comp = comp_of(f, 1);
	lsom_decided(comp, &(struct lsom_decided){ .stable_lsn = LSN(1, 2) });
	CHECK_EQ(get(f, comp, 3, 1), 1);
	CHECK_EQ(get(f, comp, 70, 2), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* ---- no room where the index is, or no descriptor, or no memory ---- */

static const int wants[] = { -ENOSPC, -EDQUOT, -EMFILE, -ENFILE, -ENOMEM };

enum { FULL_PAGES = 48 }; /* more than the cache holds */

static void pages_write(struct fixture *f, struct lsom_comp *comp, unsigned lsn)
{
	for (unsigned i = 0; i < FULL_PAGES; i++)
		CHECK_EQ(put(f, comp, (uint64_t)i * LSOM__PAGE_SLOTS, 1,
			     LSN(1, lsn + i), lsn + i),
			 0);
	lsom_decided(comp,
		     &(struct lsom_decided){
			     .stable_lsn = LSN(1, lsn + FULL_PAGES - 1) });
}

static void pages_check(struct fixture *f, struct lsom_comp *comp, unsigned lsn)
{
	lsom_decided(comp,
		     &(struct lsom_decided){
			     .stable_lsn = LSN(1, lsn + FULL_PAGES - 1) });
	for (unsigned i = 0; i < FULL_PAGES; i++)
		CHECK_EQ(get(f, comp, (uint64_t)i * LSOM__PAGE_SLOTS, lsn + i),
			 1);
}

/* A block of each page that is written once, for the checkpoint that waits. */
enum { ONCE = 5, ONCE_LSN = 150 };

static void once_check(struct fixture *f, struct lsom_comp *comp)
{
	for (unsigned i = 0; i < FULL_PAGES; i++)
		CHECK_EQ(get(f, comp, (uint64_t)i * LSOM__PAGE_SLOTS + ONCE,
			     ONCE_LSN + i),
			 1);
}

/* Written twice; the index has the first of it, and a checkpoint is refused. */
static struct lsom_comp *index_filled(struct fixture *f, int *status, int why,
				      struct call *c,
				      struct lsom_checkpoint *req)
{
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, (uint64_t)FULL_PAGES * LSOM__PAGE_SLOTS), 0);
	comp = comp_of(f, 1);
	pages_write(f, comp, 1);
	pages_check(f, comp, 1);
	CHECK_EQ(checkpoint(f), 0);
	pages_write(f, comp, 101);
	for (unsigned i = 0; i < FULL_PAGES; i++)
		CHECK_EQ(put(f, comp, (uint64_t)i * LSOM__PAGE_SLOTS + ONCE, 1,
			     LSN(1, ONCE_LSN + i), ONCE_LSN + i),
			 0);
	pages_check(f, comp, 101);
	*status = why;
	*c = (struct call){ .f = f };
	req->data = c;
	CHECK_EQ(lsom_checkpoint(f->disk, req, checkpoint_answered), 0);
	while (f->disk->index_wants == 0)
		CHECK(sim_env_turn(&f->sim));
	return comp;
}

/* @why: for that; 0: it does not. */
static void is_waiting(struct fixture *f, int why)
{
	struct lsom_disk_info info;

	lsom_disk_info(f->disk, &info);
	CHECK_EQ(info.state, LSOM_DISK_ONLINE);
	CHECK_EQ(info.index_wants, why == -EDQUOT ? -ENOSPC : why);
	CHECK_EQ(info.congestion[LSOM_CONGESTION_INDEX] == 255, why < 0);
}

/* The disk serves all that it has, takes more, and goes on when there is. */
static void full_then_room(struct fixture *f, int *status, int why)
{
	struct lsom_checkpoint req;
	struct lsom_comp *comp;
	struct call c;

	comp = index_filled(f, status, why, &c, &req);
	for (unsigned i = 0; i < 20; i++) {
		f->sim.loop.env.now_ns += 6 * SEC;
		timers_due(&f->sim);
		pages_check(f, comp, 101);
		CHECK(!c.done);
		is_waiting(f, why);
	}
	pages_write(f, comp, 201);
	pages_check(f, comp, 201);
	*status = 0;
	CHECK(sim_env_run(&f->sim, &c.done));
	CHECK_EQ(c.status, 0);
	CHECK_EQ(checkpoint(f), 0);
	is_waiting(f, 0);
	CHECK(f->disk->pages_count < FULL_PAGES);
	CHECK_EQ(f->sim.reopened, why != -ENOSPC);
	pages_check(f, comp, 201);
	once_check(f, comp);
	lsom_comp_put(comp);
	CHECK_EQ(power_cut(f), 0);
	CHECK_EQ(f->disk->recovered_records, 0);
	comp = comp_of(f, 1);
	pages_check(f, comp, 201);
	once_check(f, comp);
	lsom_comp_put(comp);
}

TEST(faults, no_room_for_the_index_is_waited_for)
{
	struct fixture *f;

	for (unsigned i = 0; i < ARRAY_LEN(wants); i++) {
		f = fixture_open(31);
		full_then_room(f, &f->sim.apply_status, wants[i]);
		fixture_close(f);
		f = fixture_open(32);
		full_then_room(f, &f->sim.flush_status, wants[i]);
		fixture_close(f);
	}
}

/* Not for ever; and a disk that is closed does not wait. */
static void full_to_the_end(struct fixture *f, int *status, int why,
			    bool closing)
{
	struct lsom_disk_close req = { .data = f };
	struct lsom_checkpoint wanted;
	struct lsom_disk_info info;
	struct lsom_comp *comp;
	struct call c;
	uint64_t since;

	comp = index_filled(f, status, why, &c, &wanted);
	since = env_now(f->disk->env);
	if (closing) {
		f->done = false;
		lsom_comp_put(comp);
		CHECK_EQ(lsom_disk_close(f->disk, &req, closed), 0);
		CHECK(sim_env_run(&f->sim, &f->done));
		CHECK(env_now(&f->sim.loop.env) - since < 10 * SEC);
	} else {
		(void)sim_env_run(&f->sim, &c.done); /* ten minutes */
		CHECK(sim_env_run(&f->sim, &c.done));
		CHECK(env_now(f->disk->env) - since > 600 * SEC);
		failed_check(f, comp);
		lsom_disk_info(f->disk, &info);
		CHECK_EQ(info.index_wants, why == -EDQUOT ? -ENOSPC : why);
		lsom_comp_put(comp);
		disk_close(f);
	}
	CHECK(c.done);
	CHECK(c.status < 0);
	*status = 0;
	CHECK_EQ(disk_open(f, false), 0);
	comp = comp_of(f, 1);
	pages_check(f, comp, 101);
	lsom_comp_put(comp);
}

TEST(faults, no_room_for_the_index_is_not_waited_for_for_ever)
{
	struct fixture *f;

	for (unsigned i = 0; i < 4 * ARRAY_LEN(wants); i++) {
		f = fixture_open(33 + i);
		full_to_the_end(
			f, i % 2 ? &f->sim.apply_status : &f->sim.flush_status,
			wants[i / 4], i / 2 % 2);
		fixture_close(f);
	}
}

/* The log's device fails meanwhile: that is why, then. */
TEST(faults, a_disk_fails_that_waits_for_room)
{
	struct fixture *f = fixture_open(37);
	struct lsom_checkpoint wanted;
	struct lsom_disk_info info;
	struct lsom_comp *comp;
	struct call c;

	comp = index_filled(f, &f->sim.flush_status, -ENOSPC, &c, &wanted);
	f->sim.fail_write = 1;
	CHECK(put(f, comp, 0, 1, LSN(1, 300), 300) < 0);
	lsom_disk_info(f->disk, &info);
	CHECK_EQ(info.state, LSOM_DISK_FAILED);
	CHECK_EQ(info.index_wants, 0);
	CHECK(sim_env_run(&f->sim, &c.done));
	CHECK(c.status < 0);
	lsom_disk_info(f->disk, &info);
	CHECK_EQ(info.index_wants, 0);
	lsom_comp_put(comp);
	f->sim.flush_status = 0;
	fixture_close(f);
}

TEST(faults, reads_fail)
{
	struct fixture *f = fixture_open(4);
	struct lsom_disk_info info;
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, 64, LSN(1, 1), 1), 0);
	f->sim.fail_read = 1;
	CHECK_EQ(get(f, comp, 5, 1), -EIO);
	CHECK_EQ(get(f, comp, 5, 1), 1);
	lsom_disk_info(f->disk, &info);
	CHECK_EQ(info.state, LSOM_DISK_ONLINE);
	lsom_comp_put(comp);
	fixture_close(f);
}

static void thirty_check(struct fixture *f)
{
	struct lsom_comp *comp = comp_of(f, 1);
	unsigned i;

	CHECK(comp != NULL);
	lsom_decided(comp, &(struct lsom_decided){ .stable_lsn = LSN(1, 30) });
	for (i = 0; i < 30 * 64; i += 13)
		CHECK_EQ(get(f, comp, i, i / 64 + 1), 1);
	CHECK(!lsom_comp_meta(comp)->damaged);
	lsom_comp_put(comp);
}

static struct env_io *flush_held;

static void flush_hold(struct env_dev *dev, struct env_io *io)
{
	flush_held = io;
}

/* What an opening reads may be no further than the cache of the device. */
TEST(faults, opening_cannot_flush)
{
	struct fixture *f = fixture_open(5);
	struct env *env = &f->sim.loop.env;
	const struct env_ops *flushes = env->ops;
	struct env_ops holds = *flushes;
	struct lsom_disk_open req = {
		.data = f,
		.path = "disk",
		.index_path = "index",
		.cluster = f->cluster,
	};

	disk_close(f);
	holds.dev_flush = flush_hold;
	env->ops = &holds;
	flush_held = NULL;
	f->done = false;
	CHECK_EQ(lsom_disk_open(f->lsom, &req, opened), 0);
	while (flush_held == NULL)
		CHECK(sim_env_turn(&f->sim));
	flush_held->cb(flush_held, -EIO);
	CHECK(sim_env_run(&f->sim, &f->done));
	env->ops = flushes;
	CHECK_EQ(f->status, -EIO);
	CHECK(strstr(req.why, "flushing it") != NULL);
	CHECK_EQ(disk_open(f, false), 0);
	fixture_close(f);
}

/*
 * Any one request of an opening fails.  It says so, or does without; the power
 * goes, too, with what recovery had written; the next opening finds everything.
 */
TEST(faults, opening_fails_anywhere)
{
	struct fixture *f = fixture_open(5);
	unsigned n, i, failed = 0;
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	for (i = 0; i < 30; i++)
		CHECK_EQ(put(f, comp, i * 64, 64, LSN(1, i + 1), i + 1), 0);
	lsom_comp_put(comp);
	sim_env_cut(&f->sim);
	disk_close(f);
	sim_env_restore(&f->sim);
	for (n = 1; n < 90; n++) {
		f->sim.fail_write = n < 10 ? n : 0;
		f->sim.fail_read = n < 10 ? 0 : n - 9;
		/* A rebuild that was cut off is to be done again. */
		failed += disk_open(f, n > 45) < 0;
		f->sim.fail_write = f->sim.fail_read = 0;
		sim_env_cut(&f->sim);
		if (f->disk != NULL)
			disk_close(f);
		sim_env_restore(&f->sim);
		if (n % 8 == 0) {
			CHECK_EQ(disk_open(f, n > 45), 0);
			thirty_check(f);
			sim_env_cut(&f->sim);
			disk_close(f);
			sim_env_restore(&f->sim);
		}
	}
	CHECK(failed > 3);
	CHECK_EQ(disk_open(f, true), 0);
	thirty_check(f);
	fixture_close(f);
}

/* What another program left on the disk is no damage of ours. */
TEST(faults, used_before_it_was_formatted)
{
	struct fixture *f = fixture_open(22);
	struct lsom_format format = { .path = "disk",
				      .segment_bytes = 1u << 20 };
	struct lsom_comp *comp;
	uint64_t i;

	disk_close(f);
	for (i = 1u << 20; i < f->sim.disk.bytes; i++)
		f->sim.disk.now[i] = f->sim.disk.durable[i] =
			(uint8_t)(i * 2654435761u >> 13);
	wb_store_fini(&f->sim.store);
	wb_store_init(&f->sim.store);
	format.disk = uuid_of(101);
	format.cluster = f->cluster;
	CHECK_EQ(lsom_disk_format(&f->sim.loop.env, &format), 0);
	CHECK_EQ(open_saying(f, false, " error "), 0);
	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, 64, LSN(1, 1), 1), 0);
	lsom_comp_put(comp);
	for (i = 0; i < 3; i++) {
		disk_close(f);
		CHECK_EQ(open_saying(f, i == 1, " error "), 0);
		comp = comp_of(f, 1);
		lsom_decided(comp,
			     &(struct lsom_decided){ .stable_lsn = LSN(1, 1) });
		CHECK_EQ(get(f, comp, 63, 1), 1);
		CHECK_EQ(get(f, comp, 64, 0), 0);
		lsom_comp_put(comp);
	}
	fixture_close(f);
}

/* ---- a full disk ---- */

/* A CREATE that found no space is sent again while the first is answered. */
TEST(faults, create_fails_and_its_repeat_does_not)
{
	struct fixture *f = fixture_open(21);
	struct call c[2] = { { .f = f }, { .f = f } };
	uint32_t had = f->disk->segments_free;
	struct lsom_comp *comp;
	unsigned i;

	f->disk->segments_free = 0; /* heads wait, and in the end do not */
	for (i = 0; i < 2; i++) {
		c[i].m.op = LSOM_CREATE;
		c[i].m.meta.cid = uuid_of(1);
		c[i].m.meta.cinc = 7;
		c[i].m.meta.size_bytes = 64 * LSOM_BLOCK;
		CHECK_EQ(lsom_comp_create(f->disk, &c[i].m, meta_done), 0);
	}
	CHECK_EQ(finish(&c[0], 0), -ENOSPC);
	f->disk->segments_free = had;
	CHECK_EQ(finish(&c[1], 0), 0);
	comp = comp_of(f, 1);
	CHECK(comp != NULL);
	CHECK_EQ(f->disk->comps_count, 1);
	CHECK_EQ(put(f, comp, 0, 1, LSN(1, 1), 1), 0);
	CHECK_EQ(get(f, comp, 0, 1), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* Write fresh blocks from *@at on until the disk is full. */
static void fill_up(struct fixture *f, struct lsom_comp *comp, uint64_t *at,
		    uint64_t *lsn)
{
	uint64_t n = 64;
	int rv;

	do {
		n = *at % 64 == 0 ? n : 1;
		rv = put(f, comp, *at, n, LSN(1, *lsn), *at / 64 + 1);
		++*lsn;
		if (rv == 0) {
			*at += n;
			n = n == 1 && *at % 64 ? 1 : 64;
		} else if (n > 1) {
			n = 1; /* to the last block */
			rv = 0;
		}
	} while (rv == 0);
	CHECK_EQ(rv, -ENOSPC);
	turns(f, 10);
}

TEST(faults, full_disk)
{
	struct fixture *f = fixture_open(6);
	uint64_t at = 0, other_at = 0, lsn = 1, other_lsn = 1, mine, i;
	struct lsom_comp *comp, *other;
	struct lsom_disk_info info;

	CHECK_EQ(create(f, 1, 1u << 20), 0);
	CHECK_EQ(create(f, 2, 1u << 20), 0);
	comp = comp_of(f, 1);
	other = comp_of(f, 2);
	while (other_at < 2048) {
		CHECK_EQ(put(f, other, other_at, 64, LSN(1, other_lsn),
			     other_at / 64 + 1),
			 0);
		other_at += 64;
		other_lsn++;
	}
	fill_up(f, comp, &at, &lsn);
	lsom_disk_info(f->disk, &info);
	CHECK_EQ(info.state, LSOM_DISK_FULL);
	CHECK(info.used_bytes <= info.usable_bytes + (1u << 20));
	CHECK(info.congestion[LSOM_CONGESTION_ROOM] > 200);
	/* UNMAP works, and gives room. */
	CHECK_EQ(put(f, comp, 0, 1024, LSN(1, lsn++), 0), 0);
	mine = at;
	fill_up(f, comp, &at, &lsn);
	CHECK(at >= mine + 1024 - 64);
	for (i = 0; i < 1024; i += 11)
		CHECK_EQ(get(f, comp, i, 1), 0);
	/* So does DELETE. */
	CHECK_EQ(update(f, other, LSOM_DELETE, (struct lsom_comp_meta){ 0 }),
		 0);
	CHECK_EQ(get(f, other, 0, 1), -ENOENT);
	turns(f, 5000);
	mine = at;
	fill_up(f, comp, &at, &lsn);
	CHECK(at >= mine + 2048 - 64);
	lsom_comp_put(other);
	lsom_comp_put(comp);
	CHECK_EQ(power_cut(f), 0);
	CHECK(comp_of(f, 2) == NULL);
	comp = comp_of(f, 1);
	for (i = 1024; i < at; i += 7)
		CHECK_EQ(get(f, comp, i, i / 64 + 1), 1);
	/* Overwriting a full disk goes on for ever: nothing leaks. */
	for (i = 0; i < 300; i++) {
		mine = 1024 + i * 64 % ROUND_DOWN(at - 1024, 64ull);
		CHECK_EQ(put(f, comp, mine, 64, LSN(1, lsn++), 0), 0);
		CHECK_EQ(put(f, comp, mine, 64, LSN(1, lsn++), mine / 64 + 1),
			 0);
	}
	for (i = 1024; i < at; i += 7)
		CHECK_EQ(get(f, comp, i, i / 64 + 1), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* ---- a smaller size ---- */

/* What was cut off stays away: after a power cut, a rebuild, and growing. */
TEST(faults, shrink_and_grow)
{
	struct fixture *f = fixture_open(30);
	struct lsom_comp *comp;
	unsigned way, i;

	CHECK_EQ(create(f, 1, 4096), 0);
	comp = comp_of(f, 1);
	for (i = 0; i < 64; i++)
		CHECK_EQ(put(f, comp, i * 64, 64, LSN(1, i + 1), i + 1), 0);
	CHECK_EQ(update(f, comp, LSOM_RESIZE,
			(struct lsom_comp_meta){ .size_bytes =
							 1000 * LSOM_BLOCK }),
		 -EOPNOTSUPP);
	CHECK_EQ(lsom_comp_meta(comp)->size_bytes, 4096 * LSOM_BLOCK);
	/* One block is left, and then prepared only. */
	CHECK_EQ(put(f, comp, 1001, 3095, LSN(1, 70), 0), 0);
	CHECK_EQ(update(f, comp, LSOM_RESIZE,
			(struct lsom_comp_meta){ .size_bytes =
							 1000 * LSOM_BLOCK }),
		 -EOPNOTSUPP);
	CHECK_EQ(put(f, comp, 1000, 1, LSN(1, 71), 0), 0);
	CHECK_EQ(update(f, comp, LSOM_RESIZE,
			(struct lsom_comp_meta){ .size_bytes =
							 1000 * LSOM_BLOCK }),
		 0);
	CHECK_EQ(get(f, comp, 1000, 1), -ERANGE);
	CHECK_EQ(get(f, comp, 999, 16), 1);
	for (way = 0; way < 3; way++) {
		lsom_comp_put(comp);
		if (way == 0) {
			CHECK_EQ(power_cut(f), 0);
		} else {
			disk_close(f);
			CHECK_EQ(disk_open(f, way == 2), 0);
		}
		comp = comp_of(f, 1);
		CHECK_EQ(lsom_comp_meta(comp)->size_bytes, 1000 * LSOM_BLOCK);
		lsom_decided(comp, &(struct lsom_decided){
					   .stable_lsn = LSN(1, 71) });
		CHECK_EQ(get(f, comp, 999, 16), 1);
		CHECK_EQ(get(f, comp, 1000, 16), -ERANGE);
	}
	CHECK_EQ(update(f, comp, LSOM_RESIZE,
			(struct lsom_comp_meta){ .size_bytes =
							 4096 * LSOM_BLOCK }),
		 0);
	for (way = 0; way < 2; way++) {
		for (i = 1000; i < 4096; i += 3)
			CHECK_EQ(get(f, comp, i, i / 64 + 1), 0);
		lsom_comp_put(comp);
		disk_close(f);
		CHECK_EQ(disk_open(f, true), 0);
		comp = comp_of(f, 1);
	}
	lsom_comp_put(comp);
	fixture_close(f);
}

/* A hole over what was never written leaves nothing, replayed or not. */
TEST(faults, large_unmap_of_nothing)
{
	const uint64_t blocks = 1ull << 28; /* 1 TiB */
	struct fixture *f = fixture_open(31);
	struct lsom_comp *comp;
	unsigned way;

	CHECK_EQ(create(f, 1, blocks), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 5000, 2, LSN(1, 1), 1), 0);
	CHECK_EQ(put(f, comp, 0, blocks, LSN(1, 2), 0), 0);
	CHECK_EQ(put(f, comp, 9000, 2, LSN(1, 3), 3), 0);
	for (way = 0; way < 3; way++) {
		CHECK(f->disk->pages_count <= 4);
		CHECK_EQ(get(f, comp, 5000, 1), 0);
		CHECK_EQ(get(f, comp, 9000, 3), 1);
		lsom_comp_put(comp);
		if (way == 0) {
			CHECK_EQ(power_cut(f), 0);
		} else {
			disk_close(f);
			CHECK_EQ(disk_open(f, true), 0);
		}
		comp = comp_of(f, 1);
		lsom_decided(comp,
			     &(struct lsom_decided){ .stable_lsn = LSN(1, 3) });
	}
	lsom_comp_put(comp);
	fixture_close(f);
}

/* ---- superblocks ---- */

/* The one before stays whole while the next is written. */
TEST(faults, superblocks_take_turns)
{
	struct fixture *f = fixture_open(36);
	struct lsom__super s[2];
	uint64_t last = 0;
	unsigned i;

	for (i = 0; i < 6; i++) {
		if (i % 2)
			CHECK_EQ(power_cut(f), 0);
		checkpoint_make(f);
		for (unsigned k = 0; k < 2; k++)
			CHECK_EQ(lsom__super_decode(f->sim.disk.durable +
							    k * LSOM__SUPER_GAP,
						    &s[k]),
				 0);
		CHECK_EQ(MAX(s[0].sequence, s[1].sequence),
			 MIN(s[0].sequence, s[1].sequence) + 1);
		CHECK(MAX(s[0].sequence, s[1].sequence) > last);
		last = MAX(s[0].sequence, s[1].sequence);
	}
	fixture_close(f);
}

/* Which disk it is can be told from either superblock, and while it is open. */
TEST(faults, identify)
{
	struct fixture *f = fixture_open(1);
	struct env *env = &f->sim.loop.env;
	struct lsom_disk_info info;
	struct lsom_probe probe;

	for (unsigned i = 0; i < 3; i++) {
		CHECK_EQ(lsom_disk_identify(env, "disk", &probe), 0);
		CHECK(probe.ours && uuid_equal(&probe.disk, &f->id) &&
		      uuid_equal(&probe.cluster, &f->cluster));
		lsom_disk_info(f->disk, &info);
		CHECK_EQ(probe.generation, info.generation - (i == 1));
		CHECK(probe.whole);
		f->sim.lost_at = i * LSOM__SUPER_GAP;
		f->sim.lost_bytes = 512;
	}
	f->sim.lost_at = 0;
	f->sim.lost_bytes = LSOM__SUPER_GAP + 512;
	CHECK(lsom_disk_identify(env, "disk", &probe) < 0);
	CHECK(!probe.ours);
	/* Nor is it said that there is nothing. */
	CHECK_EQ(lsom_disk_probe(env, "disk", &probe), -ENODATA);
	f->sim.lost_bytes = 0;
	fixture_close(f);
}

static bool all_are(const uint8_t *buf, size_t len, uint8_t byte)
{
	return buf[0] == byte && memcmp(buf, buf + 1, len - 1) == 0;
}

/* What @magic is at @back bytes before the end is seen, and goes by formatting. */
static void end_holds(struct sim_env *sim, uint64_t back, const char *magic,
		      const char *name)
{
	const struct lsom_format fresh = { .path = "disk",
					   .disk = uuid_of(100) };
	uint64_t bytes = sim->disk.bytes, at = bytes - back, last;
	struct lsom_format format = fresh;
	struct lsom_probe probe;
	uint8_t *now = sim->disk.now;

	memset(now, 0, LSOM__DATA_START);
	memcpy(now + at, magic, strlen(magic));
	CHECK_EQ(lsom_disk_probe(&sim->loop.env, "disk", &probe), 0);
	CHECK(!probe.ours);
	CHECK_STR(probe.found, name);
	last = ROUND_DOWN(bytes, (uint64_t)sim->logical_block);
	memset(now + last - LSOM__DATA_START - 512, 7, 512); /* not others' */
	CHECK_EQ(lsom_disk_format(&sim->loop.env, &format), 0);
	CHECK(all_are(now + at, strlen(magic), 0));
	CHECK(all_are(now + last - LSOM__DATA_START - 512, 512, 7));
	memset(now + last - LSOM__DATA_START - 512, 0, 512);
}

/* Whatever its size: it need not be a multiple of 4096, nor of its own blocks. */
TEST(faults, what_others_keep_at_the_end)
{
	static const uint64_t odd[] = { 0, 512, 3584, 4096, 61440, 65024 };
	static const char md[] = "\xfc\x4e\x2b\xa9";
	const uint64_t size = 64u << 20;

	for (unsigned i = 0; i < 2 * ARRAY_LEN(odd); i++) {
		uint64_t more = odd[i / 2], block = i % 2 ? 4096 : 512;
		uint64_t tail = more % block; /* after the last block */
		struct sim_env sim;

		sim_env_init(&sim, size + more, 1);
		sim.block_device = true;
		sim.logical_block = (uint32_t)block;
		end_holds(&sim, more + (64u << 10), md, "Linux RAID");
		end_holds(&sim, 8192 + more % 4096, md, "Linux RAID");
		end_holds(&sim, tail + block, "\xde\x11\xde\x11",
			  "firmware RAID");
		end_holds(&sim, tail + 2 * block, "Intel Raid ISM",
			  "firmware RAID");
		end_holds(&sim, tail + block, "EFI PART", "the end of a GPT");
		for (unsigned k = 0; k < 3; k++) {
			const char drbd[] = { '\x83', '\x74', '\x02',
					      (char)('k' + k), '\0' };

			end_holds(&sim, 4096 + more % 4096 - 60, drbd, "DRBD");
		}
		sim_env_fini(&sim);
	}
}

/* Whose found is @name, of a device of @bytes with a disk of @ours on it. */
static void part_is(uint64_t ours, uint64_t bytes, uint64_t back,
		    const char *name)
{
	struct lsom_format format = { .path = "disk", .disk = uuid_of(100) };
	struct sim_env disk, sim;
	struct lsom_probe probe;

	sim_env_init(&disk, ours, 1);
	sim_env_init(&sim, bytes, 1);
	sim.block_device = true;
	CHECK_EQ(lsom_disk_format(&disk.loop.env, &format), 0);
	memcpy(sim.disk.now, disk.disk.now, ours);
	memcpy(sim.disk.now + bytes - back, "\xfc\x4e\x2b\xa9", 4);
	CHECK_EQ(lsom_disk_identify(&sim.loop.env, "disk", &probe), 0);
	CHECK(probe.ours && uuid_equal(&probe.disk, &format.disk));
	CHECK_STR(probe.found, name);
	sim_env_fini(&sim);
	sim_env_fini(&disk);
}

/* What has the disk may keep its own behind it; what is in front of that is ours. */
TEST(faults, a_part_of_what_has_the_disk)
{
	const uint64_t size = 64u << 20;

	part_is(size, size + 8192, 8192, "Linux RAID"); /* 1.0 */
	part_is(size, size + (64u << 10), 64u << 10, "Linux RAID"); /* 0.90 */
	part_is(size, size + (256u << 10), 8192, "Linux RAID");
	part_is(size + 4096, size + 8192, 8192, "");
	part_is(size, size, 8192, "");
}
