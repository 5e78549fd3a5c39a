/*
 * A disk that is nearly full: lives too short to clean anything do not use it
 * up, what a checkpoint has not covered is not overwritten, and where nothing
 * can be cleaned any more every request gets an answer all the same.  And the
 * memory that a rebuild takes does not grow with the disk.
 */
#include "tests/unit/lsom_rig.h"

#include "lsom/cleaner_int.h"

#define RUN 64u

/* Pending: a cut answers it. */
static void update_start(struct call *c, struct lsom_comp *comp,
			 uint64_t oepoch)
{
	memset(c, 0, sizeof(*c));
	c->m.op = LSOM_SEAL;
	c->m.meta.promised_oepoch = oepoch;
	c->done = lsom_comp_update(comp, &c->m, meta_done) < 0;
}

static void turns(struct fixture *f, uint64_t n)
{
	while (n-- > 0 && sim_env_turn(&f->sim))
		;
}

/* Write all that guests may, and then all of it again in another order. */
static uint64_t fill_up(struct fixture *f, struct lsom_comp *comp,
			uint64_t *lsn)
{
	struct lsom_disk_info info;
	uint64_t blocks, i, at;

	lsom_disk_info(f->disk, &info);
	blocks = ROUND_DOWN(info.usable_bytes / LSOM_BLOCK - RUN, RUN);
	for (i = 0; i < blocks; i += RUN)
		CHECK_EQ(put(f, comp, i, RUN, LSN(1, (*lsn)++), i + 1), 0);
	for (i = 0; i < blocks / 8; i++) {
		at = i * 7919 % blocks;
		CHECK_EQ(put(f, comp, at, 1, LSN(1, (*lsn)++),
			     at / RUN * RUN + 1),
			 0);
	}
	return blocks;
}

static void all_there(struct fixture *f, struct lsom_comp *comp, uint64_t from,
		      uint64_t blocks)
{
	for (uint64_t i = from; i < blocks; i += 5)
		CHECK_EQ(get(f, comp, i, i / RUN * RUN + 1), 1);
}

static void short_life(struct fixture *f, uint64_t oepoch, bool rebuild)
{
	struct lsom_comp *comp = comp_of(f, 1);
	struct call c;

	CHECK(comp != NULL);
	update_start(&c, comp, oepoch);
	c.f = f;
	turns(f, sim_env_random(&f->sim, 120));
	sim_env_cut(&f->sim);
	CHECK(sim_env_run(&f->sim, &c.done));
	lsom_comp_put(comp);
	disk_close(f);
	sim_env_restore(&f->sim);
	/* A rebuild that was cut short is told to be done again. */
	if (disk_open(f, rebuild) == -EUCLEAN)
		CHECK_EQ(disk_open(f, true), 0);
	CHECK_EQ(f->status, 0);
}

TEST(space, short_lives)
{
	struct fixture *f = fixture_open(21);
	struct lsom_disk_info info;
	struct lsom_comp *comp;
	uint64_t lsn = 1, blocks, i;

	CHECK_EQ(create(f, 1, 1u << 20), 0);
	CHECK_EQ(create(f, 2, 1u << 20), 0);
	comp = comp_of(f, 1);
	blocks = fill_up(f, comp, &lsn);
	lsom_comp_put(comp);
	for (i = 0; i < 240; i++) {
		short_life(f, 2 + i, i % 7 == 3);
		lsom_disk_info(f->disk, &info);
		CHECK(info.segments_free + f->disk->segments_cleaned >=
		      LSOM__RESERVED);
	}
	/* One that lasts does everything. */
	comp = comp_of(f, 1);
	all_there(f, comp, 0, blocks);
	CHECK_EQ(update(f, comp, LSOM_SEAL,
			(struct lsom_comp_meta){ .promised_oepoch = 1000 }),
		 0);
	CHECK_EQ(put(f, comp, 0, RUN, LSN(1000, 1), 0), 0);
	CHECK_EQ(put(f, comp, RUN, RUN, LSN(1000, 2), RUN + 1), 0);
	lsom_comp_put(comp);
	comp = comp_of(f, 2);
	CHECK_EQ(update(f, comp, LSOM_DELETE, (struct lsom_comp_meta){ 0 }), 0);
	lsom_comp_put(comp);
	CHECK_EQ(power_cut(f), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(get(f, comp, 0, 1), 0);
	all_there(f, comp, RUN, blocks);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* ---- what the flushed index points to is not free ---- */

struct points {
	struct fixture *f;
	unsigned pages;
};

static void place_check(const struct fixture *f, uint64_t place)
{
	uint32_t i = lsom__segment_of(f->disk, place);

	CHECK(i != LSOM__NONE);
	CHECK(f->disk->segments[i].state != LSOM__SEG_FREE);
}

static bool page_check(void *arg, struct kv_slice key, struct kv_slice value)
{
	struct points *p = arg;
	struct lsom__slots slots;
	struct lsom__entry e;
	unsigned i;

	lsom__slots_init(&slots);
	CHECK_EQ(lsom__slots_decode(value.data, value.len, &slots, NULL), 0);
	for (i = 0; i < LSOM__PAGE_SLOTS; i++) {
		lsom__slots_get(&slots, i, &e);
		if (e.kind == LSOM__E_RAW)
			place_check(p->f, e.place);
	}
	lsom__slots_fini(&slots);
	p->pages++;
	return true;
}

static unsigned free_check(struct fixture *f)
{
	struct points p = { .f = f };

	CHECK_EQ(kv_scan(f->sim.store.flushed, kv_slice("P", 1),
			 kv_slice("Q", 1), page_check, &p),
		 0);
	return p.pages;
}

TEST(space, free_after_the_flush)
{
	struct fixture *f = fixture_open(22);
	uint64_t lsn = 1, blocks, i, at, freed = 0;
	struct lsom_comp *comp;
	struct call c = { .f = f };
	struct lsom_decided d;
	uint32_t before;

	CHECK_EQ(create(f, 1, 1u << 20), 0);
	comp = comp_of(f, 1);
	blocks = fill_up(f, comp, &lsn);
	for (i = 0; i < 3000; i++) {
		at = i * 7919 % (blocks - 4);
		CHECK_EQ(write_start(&c, comp, LSOM_PREP, at, 4, LSN(1, lsn),
				     i + 1),
			 0);
		while (!c.done) {
			before = f->disk->segments_free;
			CHECK(sim_env_turn(&f->sim));
			if (f->disk->segments_free > before) {
				CHECK(free_check(f) > 0);
				freed++;
			}
		}
		CHECK_EQ(c.status, 0);
		d = (struct lsom_decided){ .stable_lsn = LSN(1, lsn++) };
		lsom_decided(comp, &d);
	}
	CHECK(freed > 20);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* ---- nothing can be read, so nothing can be cleaned ---- */

TEST(space, answers_without_space)
{
	struct fixture *f = fixture_open(23);
	uint64_t lsn = 1, blocks, i;
	struct lsom_comp *comp;
	int rv = 0;

	CHECK_EQ(create(f, 1, 1u << 20), 0);
	comp = comp_of(f, 1);
	blocks = fill_up(f, comp, &lsn);
	for (i = 0; i < f->disk->super.segments; i++)
		f->disk->segments[i].unreadable = true;
	for (i = 0; i < 5000 && rv == 0; i++)
		rv = put(f, comp, i * 64 % blocks, RUN, LSN(1, lsn++), 1);
	CHECK_EQ(rv, -ENOSPC);
	CHECK_EQ(put(f, comp, 0, RUN, LSN(1, lsn++), 0), -ENOSPC);
	CHECK_EQ(update(f, comp, LSOM_SEAL,
			(struct lsom_comp_meta){ .promised_oepoch = 9 }),
		 -ENOSPC);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* Behind a minute in which the loop did not run this timer is the first to do so. */
static void stand_still(struct fixture *f, struct env_timer *timer)
{
	f->sim.loop.env.now_ns += 60 * SEC;
	env_timer_stop(&f->sim.loop.env, timer);
	timer->cb(timer);
}

/*
 * The process, or its machine, stands still while a write waits for a segment:
 * none could become free meanwhile, and so it does not count.
 */
TEST(space, a_wait_that_stood_still)
{
	struct fixture *f = fixture_open(29);
	struct lsom__head *head = &f->disk->heads[LSOM__HEAD_GUEST];
	struct env_timer *tick = &f->disk->stall_timer;
	uint64_t lsn = 1, blocks, i, stood = 0;
	struct call c = { .f = f };
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, 1u << 20), 0);
	comp = comp_of(f, 1);
	blocks = fill_up(f, comp, &lsn);
	for (i = 0; i < 3000; i++) {
		CHECK_EQ(write_start(&c, comp, LSOM_PREP, i * 7919 % blocks, 1,
				     LSN(1, lsn), 1),
			 0);
		while (!c.done) {
			if (head->segment == LSOM__NONE &&
			    env_timer_active(tick) && stood < i) {
				stand_still(f, tick);
				stood = i;
			}
			CHECK(sim_env_turn(&f->sim));
		}
		CHECK_EQ(c.status, 0);
		lsom_decided(comp, &(struct lsom_decided){
					   .stable_lsn = LSN(1, lsn++) });
	}
	CHECK(stood > 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

static uint64_t silence_ns(const struct env_dev *dev, uint64_t now_ns)
{
	return LSOM_SILENT_NS;
}

/*
 * A disk does not answer while a write waits for a segment: that there is no room
 * nobody knows.  It is written when the disk answers again.
 */
TEST(space, a_wait_for_a_disk_that_hangs)
{
	struct fixture *f = fixture_open(29);
	const struct env_ops *answers = f->sim.loop.env.ops;
	struct env_ops hangs = *answers;
	struct call c = { .f = f, .done = true };
	uint64_t lsn = 1, blocks, i, end = 0;
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, 1u << 20), 0);
	comp = comp_of(f, 1);
	blocks = fill_up(f, comp, &lsn);
	hangs.dev_silent_ns = silence_ns;
	f->sim.loop.env.ops = &hangs;
	f->sim.hold_reads = true; /* so nothing is cleaned */
	for (i = 0; c.done; i++, lsn++) {
		CHECK(i < 5000);
		CHECK_EQ(write_start(&c, comp, LSOM_PREP, i * 7919 % blocks, 1,
				     LSN(1, lsn), 1),
			 0);
		end = env_now(&f->sim.loop.env) + 120 * SEC;
		while (!c.done && env_now(&f->sim.loop.env) < end)
			CHECK(sim_env_turn(&f->sim));
		if (c.done)
			CHECK_EQ(c.status, 0);
		lsom_decided(comp, &(struct lsom_decided){
					   .stable_lsn = LSN(1, lsn) });
	}
	f->sim.loop.env.ops = answers;
	f->sim.hold_reads = false;
	CHECK_EQ(finish(&c, 0), 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

static struct env_lane *hangs_lane;
static struct env_work *hangs_work;
static const struct env_ops *hangs_not;

/* What is asked of that lane stays there. */
static void work_hangs(struct env *env, struct env_lane *lane,
		       struct env_work *work)
{
	if (lane != hangs_lane) {
		hangs_not->work(env, lane, work);
		return;
	}
	CHECK(hangs_work == NULL);
	hangs_work = work;
}

/* So it is where the index lies on a disk that does not answer. */
TEST(space, a_wait_for_an_index_that_hangs)
{
	struct fixture *f = fixture_open(29);
	struct env *env = &f->sim.loop.env;
	struct env_ops hangs = *env->ops;
	struct call c = { .f = f, .done = true };
	uint64_t lsn = 1, blocks, i, end = 0;
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, 1u << 20), 0);
	comp = comp_of(f, 1);
	blocks = fill_up(f, comp, &lsn);
	hangs_not = env->ops;
	hangs_lane = f->disk->flush_lane;
	hangs_work = NULL;
	hangs.work = work_hangs;
	env->ops = &hangs;
	for (i = 0; c.done; i++, lsn++) {
		CHECK(i < 5000);
		CHECK_EQ(write_start(&c, comp, LSOM_PREP, i * 7919 % blocks, 1,
				     LSN(1, lsn), 1),
			 0);
		end = env_now(env) + 120 * SEC;
		while (!c.done && env_now(env) < end)
			CHECK(sim_env_turn(&f->sim));
		if (c.done)
			CHECK_EQ(c.status, 0);
		lsom_decided(comp, &(struct lsom_decided){
					   .stable_lsn = LSN(1, lsn) });
	}
	env->ops = hangs_not;
	CHECK(hangs_work != NULL);
	env->ops->work(env, hangs_lane, hangs_work);
	CHECK_EQ(finish(&c, 0), 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* ---- what cannot be read now can be cleaned later ---- */

/* Write until the cleaner reads the summary of a victim; that one. */
static uint32_t victim_read(struct fixture *f, struct lsom_comp *comp,
			    struct call *c, uint64_t *lsn, uint64_t blocks)
{
	const struct lsom__cleaner *cleaner = f->disk->cleaner;
	uint64_t at;

	for (unsigned i = 0; i < 5000; i++) {
		at = *lsn * 7919 % (blocks - 4);
		CHECK_EQ(write_start(c, comp, LSOM_PREP, at, 4, LSN(1, *lsn),
				     at + 1),
			 0);
		while (!c->done) {
			if (cleaner->phase == CLEAN_READ_FOOTER &&
			    cleaner->busy)
				return cleaner->victim;
			CHECK(sim_env_turn(&f->sim));
		}
		CHECK_EQ(c->status, 0);
		lsom_decided(comp, &(struct lsom_decided){
					   .stable_lsn = LSN(1, (*lsn)++) });
	}
	fail();
	return LSOM__NONE;
}

struct alarm {
	struct env_timer timer;
	bool rang;
};

static void alarm_ring(struct env_timer *timer)
{
	container_of(timer, struct alarm, timer)->rang = true;
}

/* So much later the cleaner is asked, and has done what it does. */
static void cleaner_later(struct fixture *f, uint64_t ns)
{
	struct alarm alarm = { .timer.cb = alarm_ring };

	env_timer_start(&f->sim.loop.env, &alarm.timer, ns);
	CHECK(sim_env_run(&f->sim, &alarm.rang));
	lsom__cleaner_kick(f->disk);
	while (f->disk->cleaner->step.queued || !f->disk->cleaner->settled)
		CHECK(sim_env_turn(&f->sim));
}

/*
 * A victim that cannot be read is the last one to be tried again, after a pause
 * that doubles, and once it can be read it is emptied.
 */
TEST(space, a_victim_that_could_not_be_read)
{
	struct fixture *f = fixture_open(24);
	struct lsom__segment *seg;
	struct call c = { .f = f };
	uint64_t lsn = 1, blocks, tries, half = SEC;
	struct lsom__pick pick = { 0 };
	struct lsom_comp *comp;
	uint32_t victim, i;

	CHECK_EQ(create(f, 1, 1u << 20), 0);
	comp = comp_of(f, 1);
	blocks = fill_up(f, comp, &lsn);
	victim = victim_read(f, comp, &c, &lsn, blocks);
	seg = &f->disk->segments[victim];
	f->sim.lost_at = lsom__place(f->disk, victim, 0) * LSOM_BLOCK;
	f->sim.lost_bytes = f->disk->super.segment_bytes;
	while (!c.done || f->disk->media_errors == 0 ||
	       f->disk->cleaner->phase == CLEAN_SCAN)
		CHECK(sim_env_turn(&f->sim));
	CHECK_EQ(f->disk->media_errors, 1);
	CHECK(seg->retry_ns > env_now(&f->sim.loop.env) + half);
	seg->retry_ns = 0;
	CHECK(lsom__victim_pick(f->disk, &pick));
	CHECK(pick.best != victim);
	seg->retry_ns = env_now(&f->sim.loop.env) + 2 * half;
	for (i = 0; i < f->disk->super.segments; i++)
		f->disk->segments[i].unreadable = i != victim;
	for (tries = 2; tries < 10; tries++, half *= 2) {
		cleaner_later(f, half - 1);
		CHECK_EQ(f->disk->media_errors, tries - 1);
		cleaner_later(f, half + 1);
		CHECK_EQ(f->disk->media_errors, tries);
	}
	f->sim.lost_at = f->sim.lost_bytes = 0;
	cleaner_later(f, half);
	CHECK_EQ(seg->state, LSOM__SEG_CLOSED);
	cleaner_later(f, half);
	CHECK(seg->state != LSOM__SEG_CLOSED);
	CHECK_EQ(f->disk->media_errors, tries - 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* The header of a batch of it, some way from both ends: another one follows. */
static uint64_t mid_header(const struct fixture *f, uint32_t segment)
{
	uint64_t place =
		lsom__place(f->disk, segment, f->disk->segment_blocks / 2);
	const struct lsom__batch_header *b;

	for (;; place--) {
		CHECK(lsom__segment_of(f->disk, place) == segment);
		b = (const void *)(f->sim.disk.now + place * LSOM_BLOCK);
		if (b->magic == LSOM__BATCH_MAGIC &&
		    b->segment_sequence == f->disk->segments[segment].sequence)
			return place * LSOM_BLOCK;
	}
}

/*
 * A victim whose summary rotted is emptied by its batches, if all of them are
 * found: each tells what the one before it was.
 */
TEST(space, a_victim_whose_summary_rotted)
{
	static const unsigned ways[] = { 0, 1, 2 }; /* headers that rot */
	struct lsom_comp *comp;
	struct lsom__segment *seg;
	uint64_t lsn, blocks, sequence, at, next;
	struct fixture *f;
	uint32_t victim;

	for (unsigned i = 0; i < ARRAY_LEN(ways); i++) {
		struct call c = { 0 };

		f = fixture_open(30 + i);
		c.f = f;
		lsn = 1;
		CHECK_EQ(create(f, 1, 1u << 20), 0);
		comp = comp_of(f, 1);
		blocks = fill_up(f, comp, &lsn);
		victim = victim_read(f, comp, &c, &lsn, blocks);
		seg = &f->disk->segments[victim];
		sequence = seg->sequence;
		at = mid_header(f, victim);
		next = at +
		       LSOM_BLOCK *
			       (1 + ((const struct lsom__batch_header
					      *)(const void *)(f->sim.disk.now +
							       at))
					    ->data_blocks);
		f->sim.disk
			.now[lsom__place(f->disk, victim + 1, 0) * LSOM_BLOCK -
			     1] ^= 1;
		if (ways[i] > 0)
			f->sim.disk.now[at + 100] ^= 1;
		if (ways[i] > 1)
			f->sim.disk.now[next + 100] ^= 1;
		while (!c.done || f->disk->cleaner->victim == victim)
			CHECK(sim_env_turn(&f->sim));
		CHECK_EQ(f->disk->media_errors, 1);
		CHECK_EQ(seg->sequence == sequence &&
				 seg->state == LSOM__SEG_CLOSED,
			 ways[i] > 1);
		CHECK_EQ(f->disk->cleaner->busy && seg->cleaning, false);
		lsom_comp_put(comp);
		fixture_close(f);
	}
}

/* ---- segments full of what is no data ---- */

/* Blocks [@first, @first + 48) of @comp, written, and unmapped one by one. */
static void holes_make(struct fixture *f, struct lsom_comp *comp,
		       uint64_t first, uint64_t *lsn)
{
	struct call c[48] = { { 0 } };
	struct lsom_decided d = { 0 };

	CHECK_EQ(put(f, comp, first, ARRAY_LEN(c), LSN(1, ++*lsn), 5), 0);
	for (unsigned i = 0; i < ARRAY_LEN(c); i++) {
		c[i].f = f;
		CHECK_EQ(write_start(&c[i], comp, LSOM_PREP, first + i, 1,
				     LSN(1, ++*lsn), 0),
			 0);
	}
	for (unsigned i = 0; i < ARRAY_LEN(c); i++)
		CHECK_EQ(finish(&c[i], 0), 0);
	d.stable_lsn = d.hole_floor = LSN(1, *lsn);
	lsom_decided(comp, &d);
}

/*
 * Something old stays, so what was unmapped since stays known: segments full of it
 * have no live block, and yet nothing is to be had from them.  The others are
 * emptied, and guests write on.
 */
TEST(space, full_of_holes)
{
	enum { HOLES = 2880, RUNS = 800 / 8 };
	struct fixture *f = fixture_of(27, 8u << 20, LSOM__SEGMENT_TINY);
	uint64_t lsn = 0, n = 0, seeds[RUNS], at;
	struct lsom_comp *comp, *busy, *cold;
	unsigned i;

	CHECK_EQ(create(f, 1, HOLES), 0);
	CHECK_EQ(create(f, 2, RUNS * 8), 0);
	CHECK_EQ(create(f, 3, 64), 0);
	comp = comp_of(f, 1);
	busy = comp_of(f, 2);
	cold = comp_of(f, 3);
	CHECK_EQ(put(f, cold, 0, 48, LSN(1, 1), 7), 0);
	for (i = 0; i < HOLES; i += 48)
		holes_make(f, comp, i, &lsn);
	for (i = 0; i < 3 * RUNS; i++) {
		at = i < RUNS ? i : sim_env_random(&f->sim, RUNS);
		seeds[at] = ++n;
		CHECK_EQ(put(f, busy, at * 8, 8, LSN(1, n), n), 0);
	}
	lsom_comp_put(comp);
	lsom_comp_put(busy);
	lsom_comp_put(cold);
	CHECK_EQ(power_cut(f), 0);
	busy = comp_of(f, 2);
	lsom_decided(busy, &(struct lsom_decided){ .stable_lsn = LSN(1, n) });
	for (i = 0; i < 3 * RUNS; i++) {
		at = sim_env_random(&f->sim, RUNS);
		seeds[at] = ++n;
		CHECK_EQ(put(f, busy, at * 8, 8, LSN(1, n), n), 0);
	}
	for (at = 0; at < RUNS; at++)
		CHECK_EQ(get(f, busy, at * 8, seeds[at]), 1);
	lsom_comp_put(busy);
	comp = comp_of(f, 1);
	for (i = 0; i < HOLES; i += 7)
		CHECK_EQ(get(f, comp, i, 5), 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* ---- memory that does not grow with what was written ---- */

TEST(space, pages_keep_to_the_cache)
{
	struct fixture *f = fixture_open(25);
	struct lsom_comp *comp;
	size_t most = 0;
	uint64_t i;

	f->lsom->pages_max = 1000;
	CHECK_EQ(create(f, 1, 2u << 20), 0);
	comp = comp_of(f, 1);
	/* Never seen before, so never read: nothing but that makes room. */
	for (i = 0; i < 5000; i++) {
		CHECK_EQ(put(f, comp, i * LSOM__PAGE_SLOTS, 1, LSN(1, i + 1),
			     1),
			 0);
		most = MAX(most, f->disk->pages_count);
	}
	CHECK(most < 2 * f->lsom->pages_max);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* A few bytes of log empty thousands of pages: who unmaps waits for the store. */
TEST(space, unmaps_wait_for_the_index)
{
	enum {
		PAGES = 5000,
		MOST = LSOM__HOLES_PAGES,
		EACH = LSOM__PAGE_SLOTS
	};
	struct fixture *f = fixture_open(26);
	struct call a = { .f = f }, b = { .f = f }, c = { .f = f };
	struct lsom_decided d = { 0 };
	struct lsom_comp *comp;
	uint64_t i;
	int rv;

	f->lsom->pages_max = 1000;
	CHECK_EQ(create(f, 1, 2u << 20), 0);
	comp = comp_of(f, 1);
	for (i = 0; i < PAGES; i++)
		CHECK_EQ(put(f, comp, i * EACH, 1, LSN(1, i + 1), 1), 0);
	checkpoint_make(f);
	/* On its way to the log; then what nobody has decided is in no way. */
	CHECK_EQ(write_start(&a, comp, LSOM_PREP, 0, MOST * EACH, LSN(1, ++i),
			     0),
		 0);
	CHECK_EQ(write_start(&b, comp, LSOM_PREP, MOST * EACH, EACH,
			     LSN(1, i + 1), 0),
		 -EBUSY);
	CHECK_EQ(finish(&a, 0), 0);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, MOST * EACH,
			  (PAGES - MOST) * EACH, LSN(1, ++i), 0),
		 0);
	d.stable_lsn = d.hole_floor = LSN(1, i);
	lsom_decided(comp, &d);
	CHECK_EQ(f->disk->holes_dirty, PAGES);
	CHECK_EQ(write_start(&b, comp, LSOM_PREP, 0, EACH, LSN(1, i + 1), 0),
		 -EBUSY);
	/* Others are not held up. */
	CHECK_EQ(write_start(&a, comp, LSOM_PREP, 7, 1, LSN(1, ++i), 9), 0);
	CHECK_EQ(write_start(&c, comp, LSOM_PREP, 8, 1, LSN(1, ++i), 0), 0);
	while ((rv = write_start(&b, comp, LSOM_PREP, 0, EACH, LSN(1, i + 1),
				 0)) == -EBUSY)
		CHECK(sim_env_turn(&f->sim));
	CHECK_EQ(rv, 0);
	CHECK(f->disk->holes_dirty < MOST);
	CHECK_EQ(finish(&b, 0), 0);
	CHECK_EQ(finish(&a, 0), 0);
	CHECK_EQ(finish(&c, 0), 0);
	CHECK_EQ(f->disk->holes_queued, 0);
	checkpoint_make(f);
	CHECK_EQ(f->disk->holes_dirty, 0);
	CHECK_EQ(get(f, comp, (PAGES - 1) * EACH, 1), 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* What was more than the cache while it was dirty goes though nobody comes again. */
TEST(space, pages_go_while_the_disk_rests)
{
	enum { PAGES = 5000, EACH = LSOM__PAGE_SLOTS };
	struct fixture *f = fixture_open(27);
	struct lsom_decided d = { 0 };
	struct lsom_comp *comp;
	uint64_t i;

	f->lsom->pages_max = 1000;
	CHECK_EQ(create(f, 1, 2u << 20), 0);
	comp = comp_of(f, 1);
	for (i = 0; i < PAGES; i++)
		CHECK_EQ(put(f, comp, i * EACH, 1, LSN(1, i + 1), 1), 0);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, PAGES * EACH, LSN(1, ++i), 0),
		 0);
	d.stable_lsn = d.hole_floor = LSN(1, i);
	lsom_decided(comp, &d);
	CHECK(f->disk->pages_count >= PAGES);
	checkpoint_make(f);
	/* Some in a turn: there are others on the loop. */
	CHECK(f->disk->pages_count > 2 * f->lsom->pages_max);
	while (sim_env_turn(&f->sim))
		;
	CHECK_EQ(f->disk->pages_count, f->lsom->pages_max);
	CHECK_EQ(get(f, comp, (PAGES - 1) * EACH, 1), 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* Of what a checkpoint covers an opening reads that it is closed, not more. */
TEST(space, opening_after_much_was_written)
{
	struct fixture *f = fixture_open(26);
	struct lsom_comp *comp;
	uint64_t i, before;

	CHECK_EQ(create(f, 1, 1u << 20), 0);
	comp = comp_of(f, 1);
	for (i = 0; i < 10000; i++)
		CHECK_EQ(put(f, comp, i, 1, LSN(1, i + 1), 1), 0);
	lsom_comp_put(comp);
	disk_close(f);
	before = f->sim.read_bytes;
	CHECK_EQ(disk_open(f, false), 0);
	/* Headers and last blocks. */
	CHECK((f->sim.read_bytes - before) / LSOM_BLOCK <
	      3 * f->disk->super.segments);
	comp = comp_of(f, 1);
	for (i = 0; i < 10000; i += 7)
		CHECK_EQ(get(f, comp, i, 1), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* ---- a rebuild of more pages than the cache has ---- */

#define SPREAD_PAGES 300u /* each block in one of its own; the cache: 16 */

#define RIDER (SPREAD_PAGES * LSOM__PAGE_SLOTS)

static uint64_t spread_block(uint64_t i)
{
	return i % SPREAD_PAGES * LSOM__PAGE_SLOTS + i / SPREAD_PAGES;
}

static void spread_check(struct fixture *f, struct lsom_comp *comp)
{
	uint64_t i;

	for (i = 0; i < 8ull * SPREAD_PAGES; i++)
		CHECK_EQ(get(f, comp, spread_block(i), i % 3 == 0 ? i + 2 : 1),
			 i % SPREAD_PAGES >= SPREAD_PAGES - 40 ? 0 : 1);
}

struct rebuilt {
	struct lsom_disk_open req;
	size_t pages;
	struct fixture *f;
};

static void on_rebuilt(struct lsom_disk_open *req, int status)
{
	struct rebuilt *r = container_of(req, struct rebuilt, req);

	CHECK_EQ(status, 0);
	r->f->disk = req->opened;
	r->pages = req->opened->pages_count;
	r->f->done = true;
}

TEST(space, rebuild_in_a_small_cache)
{
	struct fixture *f = fixture_open(24);
	struct rebuilt r = { .f = f };
	struct lsom_disk_info before, after;
	struct lsom_comp *comp;
	uint64_t lsn = 1, i;

	CHECK_EQ(create(f, 1, 1u << 20), 0);
	comp = comp_of(f, 1);
	for (i = 0; i < 8ull * SPREAD_PAGES; i++)
		CHECK_EQ(put(f, comp, spread_block(i), 1, LSN(1, lsn++), 1), 0);
	for (i = 0; i < 8ull * SPREAD_PAGES; i += 3)
		CHECK_EQ(put(f, comp, spread_block(i), 1, LSN(1, lsn++), i + 2),
			 0);
	/* One record, many pages. */
	CHECK_EQ(put(f, comp, (SPREAD_PAGES - 40) * LSOM__PAGE_SLOTS,
		     40 * LSOM__PAGE_SLOTS, LSN(1, lsn++), 0),
		 0);
	/* What was decided of it is in the next record's batch. */
	CHECK_EQ(put(f, comp, RIDER, 1, LSN(1, lsn++), 1), 0);
	CHECK_EQ(put(f, comp, RIDER, 1, LSN(1, lsn++), 2), 0);
	spread_check(f, comp);
	lsom_disk_info(f->disk, &before);
	lsom_comp_put(comp);
	disk_close(f);

	r.req.path = "disk";
	r.req.index_path = "index";
	r.req.cluster = f->cluster;
	r.req.rebuild = true;
	f->done = false;
	CHECK_EQ(lsom_disk_open(f->lsom, &r.req, on_rebuilt), 0);
	CHECK(sim_env_run(&f->sim, &f->done));
	CHECK(r.pages <= f->lsom->pages_max + 1);
	CHECK_EQ(r.req.percent, 100);
	lsom_disk_info(f->disk, &after);
	/* Its second version is undecided again, beside the first. */
	CHECK_EQ(after.used_bytes, before.used_bytes + LSOM_BLOCK);
	comp = comp_of(f, 1);
	spread_check(f, comp);
	CHECK_EQ(get(f, comp, RIDER, 1), 1);
	lsom_comp_put(comp);

	/* Before its first checkpoint is there, and after it. */
	for (i = 0; i < 2; i++) {
		CHECK_EQ(i == 0 ? power_cut(f) : disk_open(f, false), 0);
		comp = comp_of(f, 1);
		spread_check(f, comp);
		lsom_comp_put(comp);
		disk_close(f);
	}
	CHECK_EQ(disk_open(f, false), 0);
	fixture_close(f);
}

/* ---- a component that is deleted ---- */

/*
 * Of a deleted component the pages go one by one, behind checkpoints.  Until they
 * are gone its blocks count where they lie, whoever is cleaned and written
 * meanwhile: what is written there next would be counted out for them.
 */
TEST(space, a_component_goes_slowly)
{
	struct fixture *f = fixture_open(26);
	struct lsom_comp *comp, *going;
	uint64_t seeds[128] = { 0 }, n = 0, at;
	struct call c = { .f = f };
	unsigned i;

	CHECK_EQ(create(f, 1, 2048), 0);
	CHECK_EQ(create(f, 2, 1u << 20), 0);
	comp = comp_of(f, 1);
	going = comp_of(f, 2);
	c.m.op = LSOM_DELETE;
	for (i = 0; i < 3000; i++) {
		at = sim_env_random(&f->sim, ARRAY_LEN(seeds));
		seeds[at] = ++n;
		CHECK_EQ(put(f, comp, at * 16, 16, LSN(1, n), n), 0);
		if (i < 1000) /* a page each */
			CHECK_EQ(put(f, going, i * 256, 1, LSN(1, i + 1), 5),
				 0);
		if (i == 1000) {
			CHECK_EQ(lsom_comp_update(going, &c.m, meta_done), 0);
			lsom_comp_put(going);
		}
	}
	CHECK(c.done);
	CHECK_EQ(c.status, 0);
	for (at = 0; at < ARRAY_LEN(seeds) * 16; at++)
		CHECK_EQ(get(f, comp, at, seeds[at / 16]), seeds[at / 16] != 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

/*
 * A disk that is nearly full: blocks of component 1, in fours, and, in all
 * segments, some of component 2, a page each.  How many that are of the first.
 */
static uint64_t fill_with_two(struct fixture *f, uint64_t free, uint64_t *lsn)
{
	struct lsom_comp *comp, *going;
	struct lsom_disk_info info;
	uint64_t blocks, at;

	CHECK_EQ(create(f, 1, 2048), 0);
	CHECK_EQ(create(f, 2, 1u << 20), 0);
	comp = comp_of(f, 1);
	going = comp_of(f, 2);
	lsom_disk_info(f->disk, &info);
	blocks = ROUND_DOWN(info.usable_bytes / LSOM_BLOCK * 3 / 4, 4u);
	for (at = 0; at < blocks; at += 4) {
		CHECK_EQ(put(f, comp, at, 4, LSN(1, ++*lsn), 5), 0);
		CHECK_EQ(put(f, going, at * 64, 1, LSN(1, *lsn), 6), 0);
	}
	while (f->disk->segments_free > free) {
		at = sim_env_random(&f->sim, blocks);
		CHECK_EQ(put(f, comp, at, 1, LSN(1, ++*lsn), 5), 0);
	}
	lsom_comp_put(comp);
	lsom_comp_put(going);
	return blocks;
}

static void second_delete(struct fixture *f)
{
	struct lsom_comp *comp = comp_of(f, 2);

	CHECK_EQ(update(f, comp, LSOM_DELETE, (struct lsom_comp_meta){ 0 }), 0);
	lsom_comp_put(comp);
}

/*
 * A component is deleted on a disk that is nearly full, and most segments have
 * something of it.  Until its pages are gone, one by one, none of these can be
 * emptied: were the others' blocks moved out of them all the same, that would
 * use the last free segments up, and with none left the cleaner never goes on.
 */
static void deleted_on_a_full_disk(uint64_t seed)
{
	struct fixture *f = fixture_of(seed, 8u << 20, LSOM__SEGMENT_TINY);
	uint64_t n = 0, at;
	uint64_t blocks = fill_with_two(f, LSOM__RESERVED + seed % 3, &n);
	struct lsom_comp *comp;

	second_delete(f);
	turns(f, seed * 40);
	disk_close(f);
	CHECK_EQ(disk_open(f, false), 0);
	comp = comp_of(f, 1);
	for (at = 0; at < blocks; at += 4)
		CHECK_EQ(put(f, comp, at, 4, LSN(1, ++n), 7), 0);
	for (at = 0; at < blocks; at += 4)
		CHECK_EQ(get(f, comp, at, 7), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

TEST(space, a_component_is_deleted_on_a_full_disk)
{
	for (uint64_t seed = 1; seed <= 40; seed++)
		deleted_on_a_full_disk(seed);
}

/* That takes a while, and what is due by then comes. */
static void time_pass(struct sim_env *sim, uint64_t ns)
{
	sim->loop.env.now_ns += ns;
	timers_due(sim);
}

/* A checkpoint for each few pages, and each takes a while: others wait for it. */
TEST(space, a_component_goes_slowly_from_a_full_disk)
{
	struct fixture *f = fixture_of(1, 8u << 20, LSOM__SEGMENT_TINY);
	uint64_t n = 0, i, number, begun;
	struct call calls[8];
	struct lsom_comp *comp;

	(void)fill_with_two(f, LSOM__RESERVED, &n);
	comp = comp_of(f, 1);
	second_delete(f);
	begun = f->sim.loop.env.now_ns;
	number = f->disk->flushed_number;
	for (i = 0; i < ARRAY_LEN(calls); i++) {
		calls[i].f = f;
		CHECK_EQ(write_start(&calls[i], comp, LSOM_PREP, i * 8, 8,
				     LSN(1, ++n), 7),
			 0);
	}
	for (i = 0; i < ARRAY_LEN(calls);) {
		CHECK(sim_env_turn(&f->sim));
		if (f->disk->flushed_number > number) {
			number = f->disk->flushed_number;
			time_pass(&f->sim, 5 * SEC);
		}
		while (i < ARRAY_LEN(calls) && calls[i].done)
			CHECK_EQ(calls[i++].status, 0);
	}
	CHECK(f->sim.loop.env.now_ns - begun > 60 * SEC);
	lsom_comp_put(comp);
	fixture_close(f);
}
