/*
 * What the cleaner carries on, and what comes meanwhile: aborts, commits, deletions.
 */
#include "lsom/cleaner_int.h"
#include "tests/unit/lsom_rig.h"

/* The cleaner is to leave all segments alone but this one. */
static void leave(struct fixture *f, uint32_t but)
{
	for (uint32_t i = 0; i < f->disk->super.segments; i++)
		f->disk->segments[i].unreadable = i != but;
}

/* Component 2 writes; a segment holds 200 blocks.  All are left alone. */
static void fill_some(struct fixture *f, uint64_t first, uint64_t n)
{
	struct lsom_comp *comp = comp_of(f, 2);

	CHECK_EQ(put(f, comp, first, n, comp->decided.stable_lsn + 1, 1), 0);
	lsom_comp_put(comp);
	leave(f, LSOM__NONE);
}

/* It works on @segment, of which it cannot read place @lost; 0: it can. */
static void clean(struct fixture *f, uint32_t segment, uint64_t lost)
{
	f->sim.lost_at = lost * LSOM_BLOCK;
	f->sim.lost_bytes = lost != 0 ? LSOM_BLOCK : 0;
	leave(f, segment);
	while (f->disk->segments[segment].state != LSOM__SEG_CLOSED)
		CHECK(sim_env_turn(&f->sim));
	lsom__cleaner_kick(f->disk);
	while (f->disk->cleaner->step.queued || !f->disk->cleaner->settled)
		CHECK(sim_env_turn(&f->sim));
	CHECK_EQ(f->disk->segments[segment].unread, lost != 0);
	f->sim.lost_at = f->sim.lost_bytes = 0;
	leave(f, LSOM__NONE);
}

/*
 * The segment with what an abort bars cannot be emptied, and has nothing that tells
 * of the abort; the one before it could not either, and had.  The abort stays.
 */
TEST(carry, an_abort_outlives_victims_that_are_left)
{
	struct fixture *f = fixture_open(42);
	const uint32_t *open = &f->disk->heads[LSOM__HEAD_GUEST].segment;
	const struct lsom_decided d = { .stable_lsn = LSN(1, 6) };
	const struct lsom_comp_meta none = { 0 };
	struct lsom_comp *comp;
	uint32_t barred, told;
	unsigned i;

	CHECK_EQ(create(f, 1, 64), 0);
	CHECK_EQ(create(f, 2, 1u << 20), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, 1, LSN(1, 5), 5), 0);
	fill_some(f, 0, 200);
	barred = *open;
	fill_some(f, 200, 200);
	told = *open;
	CHECK(told != barred);
	CHECK_EQ(decide(f, comp, LSN(1, 5), false), 0);
	lsom__cleaner_kick(f->disk); /* it learns what lies before */
	while (f->disk->cleaner->step.queued)
		CHECK(sim_env_turn(&f->sim));
	lsom_decided(comp, &d);
	for (i = 2; f->disk->segments_free > 5; i++)
		fill_some(f, i * 200, 200);
	CHECK_EQ(update(f, comp, LSOM_CONFIG, none), 0);
	clean(f, told, 0);
	checkpoint_make(f);
	while (f->disk->segments[told].state != LSOM__SEG_FREE)
		CHECK(sim_env_turn(&f->sim));
	/* Written again it has what is newer than the state that was moved, */
	fill_some(f, 400, 60);
	CHECK_EQ(*open, told);
	CHECK_EQ(update(f, comp, LSOM_CONFIG, none), 0);
	/* and more than is moved at a time. */
	for (i = 0; i < 70; i++)
		fill_some(f, 460 + i, 1);
	fill_some(f, 600, 200);
	CHECK(*open != told);
	clean(f, told, lsom__place(f->disk, told, 20));
	clean(f, barred, lsom__place(f->disk, barred, 20));
	CHECK(lsom__aborted(comp, LSN(1, 5), 1));
	lsom_comp_put(comp);
	fixture_close(f);
}

/*
 * Of the states of a component the newest counts, also where the cleaner moved it
 * and an older one still lies where it was (I2).
 */
TEST(carry, a_state_that_is_moved_is_the_newest)
{
	struct fixture *f = fixture_open(48);
	const uint32_t *open = &f->disk->heads[LSOM__HEAD_GUEST].segment;
	struct lsom_comp_meta meta = { .promised_oepoch = 2 };
	struct lsom_comp *comp;
	uint32_t first, victim;
	uint64_t i = 0;

	CHECK_EQ(create(f, 1, 64), 0);
	CHECK_EQ(create(f, 2, 1u << 20), 0);
	comp = comp_of(f, 1);
	first = *open;
	while (*open == first)
		fill_some(f, i++ * 200, 200);
	CHECK_EQ(update(f, comp, LSOM_SEAL, meta), 0);
	victim = *open;
	while (*open == victim || f->disk->segments_free > 5)
		fill_some(f, i++ * 200, 200);
	checkpoint_make(f);
	clean(f, victim, 0);
	checkpoint_make(f);
	while (f->disk->segments[victim].state == LSOM__SEG_CLEANED)
		CHECK(sim_env_turn(&f->sim));
	CHECK_EQ(f->disk->segments[victim].state, LSOM__SEG_FREE);
	CHECK_EQ(f->disk->segments[first].state, LSOM__SEG_CLOSED);
	lsom_comp_put(comp);
	disk_close(f);
	CHECK_EQ(disk_open(f, true), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(lsom_comp_meta(comp)->promised_oepoch, 2);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* ---- what comes between a move and its end ---- */

static struct env_io *cleaner_hold(struct fixture *f)
{
	return head_hold(f, LSOM__HEAD_CLEANER);
}

static void cleaner_go_on(struct fixture *f, struct env_io *io)
{
	f->sim.ios[f->sim.ios_count++] = io;
	while (f->disk->cleaner->step.queued || !f->disk->cleaner->settled)
		CHECK(sim_env_turn(&f->sim));
	leave(f, LSOM__NONE);
}

/* Fill the disk, so that there is something to clean; then make page 0 go. */
static void cleaning_needed(struct fixture *f, const struct lsom_comp *comp)
{
	struct lsom_comp *other = comp_of(f, 2);
	uint64_t i;

	for (i = 2; f->disk->segments_free > 5; i++)
		fill_some(f, i * 200, 200);
	checkpoint_make(f);
	while (i-- > 2 && lsom__page_find(comp, 0) != NULL)
		CHECK_EQ(get(f, other, i * 200, 1), 1);
	CHECK(lsom__page_find(comp, 0) == NULL);
	lsom_comp_put(other);
}

/*
 * The state of a component is moved while an ABORT is on its way, which it does not
 * have.  So that is needed from where it lies, and goes on with it: else an index that
 * is made from the log alone has the aborted version.
 */
TEST(carry, an_abort_behind_a_state_that_is_moved)
{
	struct fixture *f = fixture_open(46);
	const uint32_t *open = &f->disk->heads[LSOM__HEAD_GUEST].segment;
	const struct lsom_decided d = { .stable_lsn = LSN(1, 6) };
	struct call c = { .f = f };
	struct lsom_comp *comp;
	uint32_t victim, told;
	struct env_io *io;
	uint64_t i = 2;

	CHECK_EQ(create(f, 1, 64), 0);
	CHECK_EQ(create(f, 2, 1u << 20), 0);
	comp = comp_of(f, 1);
	victim = *open;
	while (*open == victim)
		fill_some(f, i++ * 200, 200);
	CHECK_EQ(put(f, comp, 0, 1, LSN(1, 1), 1), 0);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, 1, LSN(1, 5), 5), 0);
	while (f->disk->segments_free > 5)
		fill_some(f, i++ * 200, 200);
	checkpoint_make(f);
	c.d.lsn = LSN(1, 5);
	CHECK_EQ(lsom_decide(comp, &c.d, decide_done), 0);
	io = head_hold(f, LSOM__HEAD_GUEST);
	told = *open;
	clean(f, victim, 0);
	CHECK(f->disk->segments[victim].state != LSOM__SEG_CLOSED);
	CHECK(!c.done);
	f->sim.ios[f->sim.ios_count++] = io;
	CHECK_EQ(finish(&c, 0), 0);
	lsom_decided(comp, &d);
	while (*open == told || f->disk->segments_free > 5)
		fill_some(f, i++ * 200, 200);
	clean(f, told, 0);
	checkpoint_make(f);
	while (f->disk->segments[told].state == LSOM__SEG_CLEANED)
		CHECK(sim_env_turn(&f->sim));
	CHECK_EQ(f->disk->segments[told].state, LSOM__SEG_FREE);
	lsom_comp_put(comp);
	disk_close(f);
	CHECK_EQ(disk_open(f, true), 0);
	comp = comp_of(f, 1);
	lsom_decided(comp, &d);
	CHECK_EQ(get(f, comp, 0, 1), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* The cleaner moves a prepared block of @comp, and is held before it has it. */
static struct env_io *prep_held(struct fixture *f, struct lsom_comp *comp,
				uint32_t *victim)
{
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, 1, LSN(1, 5), 5), 0);
	*victim = f->disk->heads[LSOM__HEAD_GUEST].segment;
	fill_some(f, 0, 200);
	fill_some(f, 200, 200);
	cleaning_needed(f, comp);
	CHECK_EQ(f->disk->segments[*victim].state, LSOM__SEG_CLOSED);
	leave(f, *victim);
	lsom__cleaner_kick(f->disk);
	return cleaner_hold(f);
}

/*
 * A prepared version is decided while it is moved, and the page that it was entered
 * in has gone to the store when the move ends.  It stays where it is, until it is
 * moved as what it is now.
 */
TEST(carry, a_move_ends_behind_its_commit)
{
	struct fixture *f = fixture_open(43);
	struct lsom_comp *comp, *other;
	struct env_io *io;
	uint32_t victim;
	uint64_t i;

	CHECK_EQ(create(f, 1, 64), 0);
	CHECK_EQ(create(f, 2, 1u << 20), 0);
	comp = comp_of(f, 1);
	other = comp_of(f, 2);
	io = prep_held(f, comp, &victim);
	lsom_decided(comp, &(struct lsom_decided){ .stable_lsn = LSN(1, 5) });
	CHECK(lsom__page_find(comp, 0) != NULL);
	checkpoint_make(f);
	for (i = 3; i < 30 && lsom__page_find(comp, 0) != NULL; i++)
		CHECK_EQ(get(f, other, i * 200, 1), 1);
	CHECK(lsom__page_find(comp, 0) == NULL);
	cleaner_go_on(f, io);
	CHECK_EQ(f->disk->segments[victim].state, LSOM__SEG_CLOSED);
	CHECK_EQ(get(f, comp, 0, 5), 1);
	f->sim.loop.env.now_ns += 10 * SEC;
	clean(f, victim, 0);
	CHECK(f->disk->segments[victim].state != LSOM__SEG_CLOSED);
	CHECK_EQ(get(f, comp, 0, 5), 1);
	lsom_comp_put(comp);
	lsom_comp_put(other);
	fixture_close(f);
}

/*
 * A prepared version is voided while it is moved, and comes anew with the session
 * that does that.  Its blocks are where that one was written.
 */
TEST(carry, a_move_ends_behind_an_attach)
{
	struct fixture *f = fixture_open(50);
	const struct lsom_decided d = { .stable_lsn = LSN(1, 5) };
	const struct lsom_comp_meta m = { .member_csn = 2 };
	struct lsom_comp *comp;
	struct env_io *io;
	uint32_t victim;

	CHECK_EQ(create(f, 1, 64), 0);
	CHECK_EQ(create(f, 2, 1u << 20), 0);
	comp = comp_of(f, 1);
	io = prep_held(f, comp, &victim);
	CHECK_EQ(update(f, comp, LSOM_ATTACH, m), 0);
	write_csn = 2;
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, 1, LSN(1, 5), 6), 0);
	write_csn = 1;
	cleaner_go_on(f, io);
	lsom_decided(comp, &d);
	CHECK_EQ(get(f, comp, 0, 6), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

/*
 * So it is with a hole, whose entry is of the victim then: it is moved once more,
 * or an index that is made from the log alone has what was unmapped.
 */
TEST(carry, a_hole_is_decided_while_it_is_moved)
{
	struct fixture *f = fixture_open(47);
	const uint32_t *open = &f->disk->heads[LSOM__HEAD_GUEST].segment;
	const struct lsom_decided d = { .stable_lsn = LSN(1, 5) };
	struct lsom_comp *comp;
	uint32_t old, victim;
	struct env_io *io;
	uint64_t i = 0;

	CHECK_EQ(create(f, 1, 64), 0);
	CHECK_EQ(create(f, 2, 1u << 20), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, 1, LSN(1, 1), 1), 0);
	old = *open;
	while (*open == old)
		fill_some(f, i++ * 200, 200);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, 1, LSN(1, 5), 0), 0);
	victim = *open;
	while (*open == victim || f->disk->segments_free > 5)
		fill_some(f, i++ * 200, 200);
	checkpoint_make(f);
	leave(f, victim);
	lsom__cleaner_kick(f->disk);
	io = cleaner_hold(f);
	lsom_decided(comp, &d);
	cleaner_go_on(f, io);
	CHECK_EQ(f->disk->segments[victim].state, LSOM__SEG_CLOSED);
	f->sim.loop.env.now_ns += 10 * SEC;
	clean(f, victim, 0);
	checkpoint_make(f);
	while (f->disk->segments[victim].state == LSOM__SEG_CLEANED)
		CHECK(sim_env_turn(&f->sim));
	CHECK_EQ(f->disk->segments[victim].state, LSOM__SEG_FREE);
	CHECK_EQ(get(f, comp, 0, 1), 0);
	lsom_comp_put(comp);
	disk_close(f);
	CHECK_EQ(disk_open(f, true), 0);
	comp = comp_of(f, 1);
	lsom_decided(comp, &d);
	CHECK_EQ(get(f, comp, 0, 1), 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

/*
 * On a component that is being filled a hole is moved, and then the copy comes that
 * it bars.  In an index that is made from the log alone the hole is met first, when
 * there is no page for it, and is all there is of it.
 */
TEST(carry, a_copy_behind_a_hole_that_is_moved)
{
	struct fixture *f = fixture_open(49);
	const uint32_t *open = &f->disk->heads[LSOM__HEAD_GUEST].segment;
	struct lsom_decided d = { .stable_lsn = LSN(1, 5) };
	struct lsom_comp_meta m = { .state_seen = LSOM_SYNC };
	struct lsom_comp *comp;
	uint32_t victim, last;
	uint64_t i = 0;

	CHECK_EQ(create(f, 1, 64), 0);
	CHECK_EQ(create(f, 2, 1u << 20), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(update(f, comp, LSOM_CONFIG, m), 0);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, 1, LSN(1, 5), 0), 0);
	lsom_decided(comp, &d);
	victim = *open;
	while (*open == victim || f->disk->segments_free > 5)
		fill_some(f, i++ * 200, 200);
	checkpoint_make(f);
	clean(f, victim, 0);
	checkpoint_make(f);
	while (f->disk->segments[victim].state == LSOM__SEG_CLEANED)
		CHECK(sim_env_turn(&f->sim));
	CHECK_EQ(f->disk->segments[victim].state, LSOM__SEG_FREE);
	for (last = *open; *open == last;)
		fill_some(f, i++ * 200, 200);
	CHECK_EQ(put_kind(f, comp, LSOM_RCOPY, 0, 1, LSN(1, 3), 3), 0);
	CHECK_EQ(get(f, comp, 0, 3), 0);
	d.hole_floor = d.stable_lsn;
	lsom_decided(comp, &d);
	m.state_seen = LSOM_ACTIVE;
	CHECK_EQ(update(f, comp, LSOM_CONFIG, m), 0);
	lsom_comp_put(comp);
	disk_close(f);
	CHECK_EQ(disk_open(f, true), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(get(f, comp, 0, 3), 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

/*
 * A component is deleted between two turns of the walk through one of its records.
 * The next record is another's, and its pages are looked at, not those.
 */
TEST(carry, a_deletion_in_the_middle_of_a_record)
{
	struct fixture *f = fixture_open(44);
	struct lsom_comp *comp, *gone;
	struct call c = { .f = f };
	struct lsom__entry e;
	struct env_io *io;
	uint32_t victim;

	CHECK_EQ(create(f, 1, 64), 0);
	CHECK_EQ(create(f, 2, 1u << 20), 0);
	CHECK_EQ(create(f, 3, 256), 0);
	comp = comp_of(f, 1);
	gone = comp_of(f, 3);
	CHECK_EQ(put(f, comp, 0, 1, LSN(1, 5), 5), 0);
	fill_some(f, 0, 200);
	fill_some(f, 200, 200);
	CHECK_EQ(put(f, gone, 0, 150, LSN(1, 1), 3), 0);
	victim = f->disk->heads[LSOM__HEAD_GUEST].segment;
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, 1, LSN(1, 6), 0), 0);
	lsom_decided(comp, &(struct lsom_decided){ .stable_lsn = LSN(1, 6) });
	CHECK_EQ(f->disk->heads[LSOM__HEAD_GUEST].segment, victim);
	/* So it is moved block by block. */
	for (unsigned i = 0; i < 75; i++)
		CHECK_EQ(put(f, gone, i * 2, 1, LSN(1, i + 2), 4), 0);
	cleaning_needed(f, comp);
	CHECK_EQ(get(f, gone, 1, 3), 1); /* its page is there */
	CHECK(lsom__page_find(comp, 0) == NULL);
	leave(f, victim);
	lsom__cleaner_kick(f->disk);
	io = cleaner_hold(f);
	CHECK(f->disk->cleaner->ranged && f->disk->cleaner->range.comp == gone);
	c.m.op = LSOM_DELETE;
	CHECK_EQ(finish(&c, lsom_comp_update(gone, &c.m, meta_done)), 0);
	CHECK(gone->reaped);
	lsom_comp_put(gone);
	cleaner_go_on(f, io);
	CHECK(f->disk->segments[victim].state != LSOM__SEG_CLOSED);
	CHECK_EQ(get(f, comp, 0, 0), 0);
	lsom__slots_get(&lsom__page_find(comp, 0)->slots, 0, &e);
	CHECK_EQ(e.kind, LSOM__E_HOLE);
	CHECK(lsom__segment_of(f->disk, e.place) != victim);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* Component @n comes and goes; its key. */
static uint64_t short_life(struct fixture *f, unsigned n)
{
	struct lsom_comp *comp;
	uint64_t key;

	CHECK_EQ(create(f, n, 64), 0);
	comp = comp_of(f, n);
	key = comp->key;
	CHECK_EQ(update(f, comp, LSOM_DELETE, (struct lsom_comp_meta){ 0 }), 0);
	lsom_comp_put(comp);
	return key;
}

/* Of the tombs in it as many are on their way as of anything else. */
TEST(carry, a_segment_full_of_deletions)
{
	struct fixture *f = fixture_open(52);
	const uint32_t *open = &f->disk->heads[LSOM__HEAD_GUEST].segment;
	const struct lsom__cleaner *c = f->disk->cleaner;
	uint64_t i = 0, first, last;
	unsigned lives = 0, most = 0;
	uint32_t cold, victim;

	CHECK_EQ(create(f, 2, 1u << 20), 0);
	cold = *open;
	fill_some(f, i++ * 200, 200);
	CHECK_EQ(*open, cold);
	CHECK(lsom__head_leave(&f->disk->heads[LSOM__HEAD_GUEST]));
	last = first = short_life(f, 3);
	victim = *open;
	while (f->disk->segments[victim].used < 240) {
		last = short_life(f, 4 + lives++);
	}
	CHECK_EQ(*open, victim);
	CHECK(lives > 100);
	while (f->disk->segments_free > 5)
		fill_some(f, i++ * 200, 200);
	leave(f, victim);
	lsom__cleaner_kick(f->disk);
	while (c->step.queued || !c->settled) {
		CHECK(sim_env_turn(&f->sim));
		most = MAX(most, c->moves);
	}
	CHECK(f->disk->segments[victim].state != LSOM__SEG_CLOSED);
	CHECK(most > 0 && most <= 64);
	for (; first <= last; first++)
		CHECK(lsom__tomb_find(f->disk, first) != NULL);
	leave(f, LSOM__NONE);
	fixture_close(f);
}

/* ---- a segment that is not closed yet ---- */

/*
 * The guests' last two segments: the first one's summary is on its way, the other
 * one is cleaned, and a checkpoint covers that.
 */
static struct env_io *cleaned_behind(struct fixture *f, uint32_t *first,
				     uint32_t *next)
{
	struct lsom__head *head = &f->disk->heads[LSOM__HEAD_GUEST];
	struct lsom_comp *comp = comp_of(f, 1);
	struct call c = { .f = f };
	struct env_io *io;
	unsigned i;

	for (i = 0; f->disk->segments_free > 5; i++)
		fill_some(f, i * 200, 200);
	*first = head->segment;
	CHECK_EQ(write_start(&c, comp, LSOM_RCOPY, 0, 200, LSN(1, 1), 5), 0);
	io = summary_hold(f, *first);
	CHECK_EQ(finish(&c, 0), 0);
	*next = head->segment;
	CHECK(lsom__head_leave(head));
	clean(f, *next, 0);
	checkpoint_make(f);
	/* It rests: no checkpoint would free anything. */
	for (i = 0; sim_env_turn(&f->sim); i++)
		CHECK(i < 2000);
	CHECK_EQ(f->disk->segments[*first].state, LSOM__SEG_CLOSING);
	lsom_comp_put(comp);
	return io;
}

/*
 * As long as a segment has no summary, the head's next one has the only other copy
 * of its last records, and is what tells that there are no more of them.
 */
TEST(carry, what_follows_an_unclosed_segment_is_not_erased)
{
	struct lsom_comp *comp;
	uint32_t first, next;
	struct fixture *f;
	struct env_io *io;
	unsigned cut, i;

	for (cut = 0; cut < 3; cut++) {
		f = fixture_open(49 + cut);
		CHECK_EQ(create(f, 1, 256), 0);
		CHECK_EQ(create(f, 2, 1u << 20), 0);
		io = cleaned_behind(f, &first, &next);
		CHECK_EQ(f->disk->segments[next].state, LSOM__SEG_CLEANED);
		if (cut == 0) {
			/* Also where the cleaner is at something. */
			f->disk->cleaner->busy = true;
			f->sim.ios[f->sim.ios_count++] = io;
			while (f->disk->segments[next].state != LSOM__SEG_FREE)
				CHECK(sim_env_turn(&f->sim));
			f->disk->cleaner->busy = false;
		} else {
			held_tear(f, io, 0);
			sim_env_cut(&f->sim);
		}
		for (i = cut; i < 3; i++) {
			disk_close(f);
			if (f->sim.cut)
				sim_env_restore(&f->sim);
			CHECK_EQ(disk_open(f, i % 2 == 0), 0);
			CHECK_STR(f->disk->damage, "");
			comp = comp_of(f, 1);
			CHECK_EQ(lsom_comp_meta(comp)->damaged, 0);
			CHECK_EQ(get(f, comp, 199, 5), 1);
			lsom_comp_put(comp);
		}
		fixture_close(f);
	}
}
