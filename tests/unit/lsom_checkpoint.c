/* A checkpoint of many pages: put together over turns, while things change. */
#include "lsom/cleaner_int.h"
#include "tests/unit/lsom_rig.h"

#define PAGES 1000u
#define TURN 256u /* as checkpoint.c has it */

struct asked {
	struct lsom_checkpoint req;
	bool done;
	int status;
};

static void checkpointed(struct lsom_checkpoint *req, int status)
{
	struct asked *a = container_of(req, struct asked, req);

	a->status = status;
	a->done = true;
}

/* @pages pages of component @n, a block in each, none in the store. */
static struct lsom_comp *pages_make(struct fixture *f, unsigned n,
				    unsigned pages)
{
	struct lsom_comp *comp;

	CHECK_EQ(create(f, n, (uint64_t)PAGES * LSOM__PAGE_SLOTS), 0);
	comp = comp_of(f, n);
	for (uint64_t i = 0; i < pages; i++) {
		CHECK_EQ(put(f, comp, i * LSOM__PAGE_SLOTS, 1, LSN(1, i + 1),
			     1),
			 0);
		/* Only when it is asked for. */
		env_timer_stop(f->disk->env, &f->disk->checkpoint_timer);
	}
	return comp;
}

/* Ask for a checkpoint of these pages; the first turn of it has been. */
static void fill_begin(struct fixture *f, struct asked *a)
{
	size_t before = f->disk->dirty_count;
	uint64_t number = f->disk->checkpoint_number;

	CHECK(before > 3 * TURN);
	CHECK(f->disk->checkpoint == NULL);
	CHECK_EQ(lsom_checkpoint(f->disk, &a->req, checkpointed), 0);
	while (f->disk->checkpoint == NULL)
		CHECK(sim_env_turn(&f->sim));
	CHECK_EQ(f->disk->dirty_count, before - TURN);
	CHECK_EQ(f->disk->checkpoint_number, number);
}

static struct fixture *many_open(uint64_t seed)
{
	struct fixture *f = fixture_of(seed, 512u << 20, 4u << 20);

	f->lsom->pages_max = 64 * TURN;
	return f;
}

static void cut_and_check(struct fixture *f, uint64_t changed, uint64_t seed)
{
	struct lsom_comp *comp;

	CHECK_EQ(power_cut(f), 0);
	comp = comp_of(f, 1);
	for (uint64_t i = 0; i < PAGES; i++)
		CHECK_EQ(get(f, comp, i * LSOM__PAGE_SLOTS,
			     i == changed ? seed : 1),
			 1);
	CHECK_EQ(get(f, comp, 1, 1), 0);
	lsom_comp_put(comp);
}

/* Others have their turn, and what they change is in it, or in the next. */
TEST(checkpoint, turns_of_others)
{
	struct fixture *f = many_open(1);
	struct asked a = { .status = PENDING };
	struct lsom_comp *comp = pages_make(f, 1, PAGES);
	struct lsom_decided d = { .stable_lsn = LSN(1, PAGES + 1) };
	struct call c = { .f = f };
	unsigned turns = 1;
	size_t before;

	fill_begin(f, &a);
	/* Its page is in the batch already. */
	lsom_decided(comp, &d);
	CHECK_EQ(write_start(&c, comp, LSOM_RCOPY, 0, 1, LSN(1, PAGES + 1), 2),
		 0);
	while (f->disk->dirty_count > 0) {
		before = f->disk->dirty_count;
		CHECK(sim_env_turn(&f->sim));
		CHECK(before <= f->disk->dirty_count + TURN);
		turns += f->disk->dirty_count < before;
	}
	CHECK(turns > PAGES / TURN);
	CHECK(sim_env_run(&f->sim, &c.done));
	CHECK_EQ(c.status, 0);
	CHECK(sim_env_run(&f->sim, &a.done));
	CHECK_EQ(a.status, 0);
	lsom_comp_put(comp);
	cut_and_check(f, 0, 2);
	fixture_close(f);
}

/* The store does not have it, nor is it on its way there: nobody could load it. */
TEST(checkpoint, a_page_stays_until_it_is_on_its_way)
{
	struct fixture *f = many_open(2);
	struct asked a = { .status = PENDING };
	struct lsom_comp *comp = pages_make(f, 1, PAGES);

	fill_begin(f, &a);
	f->lsom->pages_max = 1;
	for (unsigned i = 0; i < PAGES / 64 + 1; i++)
		lsom__pages_evict(f->disk);
	CHECK_EQ(f->disk->pages_count, PAGES);
	CHECK_EQ(get(f, comp, 0, 1), 1);
	CHECK(sim_env_run(&f->sim, &a.done));
	CHECK_EQ(a.status, 0);
	for (unsigned i = 0; i < PAGES / 64 + 1; i++)
		lsom__pages_evict(f->disk);
	CHECK(f->disk->pages_count < PAGES);
	lsom_comp_put(comp);
	cut_and_check(f, PAGES, 0);
	fixture_close(f);
}

/* Its pages are in the batch, and are taken out of the store behind that. */
TEST(checkpoint, a_component_is_deleted)
{
	struct fixture *f = many_open(3);
	struct asked a = { .status = PENDING };
	struct lsom_comp *gone = pages_make(f, 2, PAGES / 2);
	struct lsom_comp *comp = pages_make(f, 1, PAGES);

	fill_begin(f, &a);
	CHECK_EQ(update(f, gone, LSOM_DELETE, *lsom_comp_meta(gone)), 0);
	CHECK(sim_env_run(&f->sim, &a.done));
	CHECK_EQ(a.status, 0);
	lsom_comp_put(gone);
	lsom_comp_put(comp);
	cut_and_check(f, PAGES, 0);
	CHECK(comp_of(f, 2) == NULL);
	while (sim_env_turn(&f->sim))
		;
	CHECK_EQ(create(f, 2, PAGES), 0);
	gone = comp_of(f, 2);
	CHECK_EQ(get(f, gone, 0, 1), 0);
	lsom_comp_put(gone);
	fixture_close(f);
}

static bool key_count(void *arg, struct kv_slice key, struct kv_slice value)
{
	(void)key;
	(void)value;
	++*(unsigned *)arg;
	return true;
}

static unsigned keys(const struct fixture *f, char tag)
{
	const char to = (char)(tag + 1);
	unsigned n = 0;

	CHECK_EQ(kv_scan(f->disk->kv, kv_slice(&tag, 1), kv_slice(&to, 1),
			 key_count, &n),
		 0);
	return n;
}

/* What is decided, and who is deleted, would come back with an index. */
TEST(checkpoint, what_is_over_leaves_the_store)
{
	struct fixture *f = fixture_open(9);
	const struct lsom_comp_meta none = { 0 };
	struct lsom_comp *comp, *gone;

	CHECK_EQ(create(f, 1, 64), 0);
	CHECK_EQ(create(f, 2, 64), 0);
	comp = comp_of(f, 1);
	gone = comp_of(f, 2);
	CHECK_EQ(put(f, comp, 0, 1, LSN(1, 1), 1), 0);
	CHECK_EQ(put(f, gone, 0, 1, LSN(1, 1), 1), 0);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 1, 1, LSN(1, 5), 5), 0);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 2, 1, LSN(1, 6), 6), 0);
	CHECK_EQ(put_kind(f, gone, LSOM_PREP, 2, 1, LSN(1, 6), 6), 0);
	checkpoint_make(f);
	CHECK_EQ(keys(f, 'C'), 2);
	CHECK_EQ(keys(f, 'B'), 2);
	CHECK_EQ(keys(f, 'P'), 2);
	CHECK_EQ(keys(f, 'U'), 3);
	CHECK_EQ(decide(f, comp, LSN(1, 5), false), 0);
	CHECK_EQ(update(f, gone, LSOM_DELETE, none), 0);
	lsom_comp_put(gone);
	checkpoint_make(f);
	checkpoint_make(f);
	CHECK_EQ(keys(f, 'C'), 1);
	CHECK_EQ(keys(f, 'B'), 1);
	CHECK_EQ(keys(f, 'P'), 1);
	CHECK_EQ(keys(f, 'U'), 1);
	CHECK_EQ(keys(f, 'T'), 1);
	CHECK_EQ(decide(f, comp, LSN(1, 6), true), 0);
	checkpoint_make(f);
	CHECK_EQ(keys(f, 'U'), 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

/*
 * A component that is deleted goes over more than one checkpoint, and the power in
 * between: its pages that are gone are not looked for.
 */
TEST(checkpoint, a_component_is_half_gone)
{
	struct fixture *f = many_open(10);
	const struct lsom_comp_meta none = { 0 };
	struct lsom_comp *gone = pages_make(f, 1, PAGES);
	uint64_t number;

	checkpoint_make(f);
	number = f->disk->flushed_number;
	f->lsom->pages_max = PAGES / 2;
	CHECK_EQ(update(f, gone, LSOM_DELETE, none), 0);
	while (f->disk->flushed_number == number)
		CHECK(sim_env_turn(&f->sim));
	CHECK(gone->deleted && !gone->reaped);
	lsom_comp_put(gone);
	CHECK(keys(f, 'P') > 0 && keys(f, 'P') < PAGES);
	CHECK_EQ(power_cut(f), 0);
	CHECK(comp_of(f, 1) == NULL);
	while (sim_env_turn(&f->sim))
		;
	CHECK_EQ(f->disk->state, LSOM_DISK_ONLINE);
	CHECK_EQ(keys(f, 'P'), 0);
	CHECK_EQ(f->disk->live_blocks, 0);
	fixture_close(f);
}

static unsigned comps_dirty(const struct fixture *f)
{
	const struct lsom_comp *comp;
	unsigned n = 0;

	TAILQ_FOREACH (comp, &f->disk->comps, link)
		n += comp->dirty;
	return n;
}

/* As many deleted pages as a turn released, at most. */
static unsigned reaped_most(struct fixture *f, const struct lsom_comp *gone)
{
	unsigned most = 0, n;
	uint64_t before;

	while (!gone->reaped) {
		before = gone->reap_next;
		CHECK(sim_env_turn(&f->sim));
		n = (unsigned)(gone->reap_next - before);
		most = MAX(most, gone->reap_next == UINT64_MAX ? 0 : n);
	}
	return most;
}

/* What it had in memory is let go some pages at a time, too. */
TEST(checkpoint, a_large_component_is_deleted)
{
	struct fixture *f = many_open(12);
	const struct lsom_comp_meta none = { 0 };
	struct asked a = { .status = PENDING };
	struct lsom_comp *gone = pages_make(f, 1, PAGES);

	CHECK_EQ(update(f, gone, LSOM_DELETE, none), 0);
	CHECK(gone->deleted && !gone->reaped);
	CHECK(gone->reap_next <= 64);
	CHECK(reaped_most(f, gone) <= 64);
	CHECK(TAILQ_EMPTY(&f->disk->reaps));
	CHECK_EQ(lsom_checkpoint(f->disk, &a.req, checkpointed), 0);
	CHECK(sim_env_run(&f->sim, &a.done));
	CHECK_EQ(a.status, 0);
	lsom_comp_put(gone);
	CHECK_EQ(power_cut(f), 0);
	CHECK(comp_of(f, 1) == NULL);
	fixture_close(f);
}

/* One that is gone, and that somebody holds still, is dropped once. */
TEST(checkpoint, a_deleted_component_is_dropped_once)
{
	struct fixture *f = many_open(14);
	const struct lsom_comp_meta none = { 0 };
	struct lsom_comp *gone = pages_make(f, 1, 1);

	CHECK_EQ(update(f, gone, LSOM_DELETE, none), 0);
	for (unsigned n = 0; n < 2; n++) {
		struct asked a = { .status = PENDING };

		CHECK_EQ(lsom_checkpoint(f->disk, &a.req, checkpointed), 0);
		CHECK(sim_env_run(&f->sim, &a.done));
		CHECK_EQ(a.status, 0);
		CHECK(gone->reaped && !gone->linked);
		CHECK_EQ(gone->refs, 1);
		lsom__comp_dirty(gone);
	}
	lsom_comp_put(gone);
	fixture_close(f);
}

/* What is left of it then goes with the next opening. */
TEST(checkpoint, a_large_component_is_deleted_and_the_disk_closed)
{
	struct fixture *f = many_open(13);
	const struct lsom_comp_meta none = { 0 };
	struct lsom_comp *gone = pages_make(f, 1, PAGES);

	CHECK_EQ(update(f, gone, LSOM_DELETE, none), 0);
	CHECK(gone->deleted && !gone->reaped);
	CHECK(f->disk->reap_task.queued);
	lsom_comp_put(gone);
	disk_close(f);
	CHECK_EQ(disk_open(f, false), 0);
	CHECK(comp_of(f, 1) == NULL);
	while (sim_env_turn(&f->sim))
		;
	CHECK(TAILQ_EMPTY(&f->disk->comps));
	CHECK_EQ(f->disk->live_blocks, 0);
	fixture_close(f);
}

/*
 * So it is with components, each with what is undecided of it; one that is in the
 * batch already, and is decided then, is in it once more.
 */
TEST(checkpoint, components_take_turns)
{
	enum { COMPS = 100, SOME = 8 };
	struct fixture *f = fixture_open(8);
	const struct lsom_decided d = { .stable_lsn = LSN(1, 5) };
	const struct lsom_comp_meta none = { 0 };
	struct asked a = { .status = PENDING };
	unsigned n, before, turns = 0;
	struct lsom_comp *comp, *gone;
	uint64_t number;

	f->lsom->pages_max = 64 * SOME;
	for (n = 1; n <= COMPS; n++) {
		CHECK_EQ(create(f, n, 64), 0);
		env_timer_stop(f->disk->env, &f->disk->checkpoint_timer);
	}
	comp = comp_of(f, 1);
	gone = comp_of(f, 2);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, 1, LSN(1, 5), 5), 0);
	for (n = 0; n < SOME; n++) {
		CHECK_EQ(put_kind(f, comp, LSOM_PREP, 1 + n, 1, LSN(1, 6 + n),
				  6),
			 0);
		env_timer_stop(f->disk->env, &f->disk->checkpoint_timer);
	}
	CHECK_EQ(update(f, gone, LSOM_DELETE, none), 0);
	CHECK_EQ(comps_dirty(f), COMPS);
	number = f->disk->checkpoint_number;
	CHECK_EQ(lsom_checkpoint(f->disk, &a.req, checkpointed), 0);
	while (f->disk->checkpoint == NULL)
		CHECK(sim_env_turn(&f->sim));
	/* It is first, and fills that turn. */
	CHECK(!comp->dirty);
	CHECK_EQ(comps_dirty(f), COMPS - 1);
	lsom_decided(comp, &d);
	while (f->disk->checkpoint_number == number) {
		before = comps_dirty(f);
		CHECK(sim_env_turn(&f->sim));
		CHECK(before <= comps_dirty(f) + 2 * SOME);
		turns += comps_dirty(f) < before;
	}
	CHECK(turns >= COMPS / SOME);
	CHECK_EQ(comps_dirty(f), 0);
	CHECK(sim_env_run(&f->sim, &a.done));
	CHECK_EQ(a.status, 0);
	lsom_comp_put(gone);
	lsom_comp_put(comp);
	CHECK_EQ(power_cut(f), 0);
	CHECK_EQ(f->disk->comps_count, COMPS - 1);
	CHECK(comp_of(f, 2) == NULL);
	comp = comp_of(f, 1);
	CHECK_EQ(get(f, comp, 0, 5), 1);
	CHECK_EQ(comp->preps_count, SOME);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* Who waits for it hears of it. */
TEST(checkpoint, the_disk_fails_meanwhile)
{
	struct fixture *f = many_open(4);
	struct asked a = { .status = PENDING };
	struct lsom_comp *comp = pages_make(f, 1, PAGES);

	fill_begin(f, &a);
	lsom__disk_fail(f->disk, "test", -EIO);
	CHECK(sim_env_run(&f->sim, &a.done));
	CHECK_EQ(a.status, -ENODEV);
	lsom_comp_put(comp);
	disk_close(f);
	CHECK_EQ(disk_open(f, false), 0);
	fixture_close(f);
}

/* And it does not wait for a victim that cannot be read any more. */
TEST(checkpoint, the_disk_fails_while_it_waits_for_the_cleaner)
{
	struct fixture *f = many_open(6);
	struct asked a = { .status = PENDING };
	struct lsom_comp *comp = pages_make(f, 1, PAGES);
	const uint32_t had = f->disk->segments_free;

	fill_begin(f, &a);
	f->disk->segments_free = LSOM__RESERVED - 1;
	lsom__cleaner_kick(f->disk);
	while (!f->disk->checkpoint_waits)
		CHECK(sim_env_turn(&f->sim));
	CHECK(f->disk->checkpoint != NULL);
	CHECK(f->disk->cleaner->busy);
	CHECK_EQ(f->disk->cleaner->phase, CLEAN_READ_FOOTER);
	f->disk->segments_free = had;
	lsom__disk_fail(f->disk, "test", -EIO);
	f->sim.fail_read = 1;
	CHECK(sim_env_run(&f->sim, &a.done));
	CHECK_EQ(a.status, -ENODEV);
	lsom_comp_put(comp);
	disk_close(f);
	CHECK_EQ(f->sim.fail_read, 0);
	CHECK_EQ(disk_open(f, false), 0);
	fixture_close(f);
}

TEST(checkpoint, the_disk_closes_meanwhile)
{
	struct fixture *f = many_open(5);
	struct asked a = { .status = PENDING };
	struct lsom_comp *comp = pages_make(f, 1, PAGES);

	fill_begin(f, &a);
	lsom_comp_put(comp);
	disk_close(f);
	CHECK(a.done && a.status == 0);
	CHECK_EQ(disk_open(f, false), 0);
	CHECK_EQ(f->disk->recovered_records, 0);
	cut_and_check(f, PAGES, 0);
	fixture_close(f);
}

struct second {
	struct env_timer timer;
	bool over;
};

static void second_over(struct env_timer *timer)
{
	container_of(timer, struct second, timer)->over = true;
}

/* Checkpoints begun while for @seconds a block is written each second. */
static unsigned begun_in(struct fixture *f, struct lsom_comp *comp,
			 unsigned seconds, uint64_t *lsn)
{
	struct second second = { .timer.cb = second_over };
	uint64_t number = f->disk->checkpoint_number;

	while (seconds-- > 0) {
		++*lsn;
		CHECK_EQ(put(f, comp, *lsn % 100, 1, LSN(1, *lsn), *lsn), 0);
		second.over = false;
		env_timer_start(f->disk->env, &second.timer, SEC);
		CHECK(sim_env_run(&f->sim, &second.over));
	}
	return (unsigned)(f->disk->checkpoint_number - number);
}

/*
 * A log that goes on has one in half a minute, which is the fewer the more its
 * pages change; one that rests has it soon, and then no more of them.
 */
TEST(checkpoint, waits_for_the_log_to_rest)
{
	struct fixture *f = fixture_open(6);
	uint64_t lsn = 0, number, rest;
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, 1000), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(begun_in(f, comp, 310, &lsn), 10);
	number = f->disk->checkpoint_number;
	rest = env_now(f->disk->env);
	while (!lsom__checkpoint_idle(f->disk) || f->disk->checkpoint != NULL)
		CHECK(sim_env_turn(&f->sim));
	CHECK(env_now(f->disk->env) - rest <= 11 * SEC);
	while (sim_env_turn(&f->sim))
		;
	CHECK_EQ(f->disk->checkpoint_number, number + 1);
	lsom_comp_put(comp);
	CHECK_EQ(power_cut(f), 0);
	CHECK_EQ(f->disk->recovered_records, 0);
	fixture_close(f);
}
