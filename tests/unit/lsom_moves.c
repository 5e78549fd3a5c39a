/*
 * What the cleaner moves while it changes: holes and what they bar, undecided
 * versions, components that are deleted.
 */
#include "tests/unit/lsom_rig.h"

#include "lsom/cleaner_int.h"

/* Component 1 begins with a hole in an index made from the log, too. */
static void hole_lasts(struct fixture *f)
{
	struct lsom_comp *comp;

	disk_close(f);
	CHECK_EQ(disk_open(f, true), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(get(f, comp, 0, 5), 0);
	lsom_comp_put(comp);
}

/* Where the entry of @block says that its hole is; 0: there is no such entry. */
static uint64_t hole_place(const struct lsom_comp *comp, uint64_t block)
{
	const struct lsom__page *page =
		lsom__page_find(comp, block / LSOM__PAGE_SLOTS);
	struct lsom__entry e;

	if (page == NULL)
		return 0;
	lsom__slots_get(&page->slots, block % LSOM__PAGE_SLOTS, &e);
	return e.kind == LSOM__E_HOLE ? e.place : 0;
}

/*
 * What a hole replaced may be gone with its segment.  An index made from the log
 * alone has the entry all the same while a peer may need it, and only then.
 */
TEST(moves, a_rebuild_keeps_a_hole_whose_data_is_gone)
{
	struct fixture *f = fixture_of(9, 8u << 20, LSOM__SEGMENT_TINY);
	struct lsom_decided d = { .stable_lsn = LSN(1, 3) };
	struct lsom_comp *comp, *busy, *cold;
	struct lsom__head *head = &f->disk->heads[LSOM__HEAD_GUEST];
	uint32_t data, hole;
	uint64_t sequence, place;
	unsigned i, n = 0;

	CHECK_EQ(create(f, 1, 64), 0);
	CHECK_EQ(create(f, 2, 64), 0);
	CHECK_EQ(create(f, 3, 64), 0);
	comp = comp_of(f, 1);
	busy = comp_of(f, 2);
	cold = comp_of(f, 3);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, 1, LSN(1, 1), 5), 0);
	data = head->segment;
	while (head->segment == data || head->segment == LSOM__NONE)
		CHECK_EQ(put(f, busy, 0, 16, LSN(1, ++n), 6), 0);
	hole = head->segment;
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, 1, LSN(1, 2), 0), 0);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 8, 1, LSN(1, 3), 0), 0);
	lsom_decided(comp, &d);
	CHECK_EQ(put(f, cold, 0, 36, LSN(1, 1), 7), 0);
	place = hole_place(comp, 0);
	CHECK_EQ(lsom__segment_of(f->disk, place), hole);
	/* Until what it replaced lies nowhere any more. */
	sequence = f->disk->segments[data].sequence;
	for (i = 0; f->disk->segments[data].sequence == sequence; i++) {
		CHECK(i < 1000);
		CHECK_EQ(put(f, busy, i % 4 * 16, 16, LSN(1, ++n), 6), 0);
	}
	CHECK_EQ(hole_place(comp, 0), place);
	for (i = 0; i < 2; i++) {
		lsom_comp_put(comp);
		lsom_comp_put(busy);
		lsom_comp_put(cold);
		disk_close(f);
		CHECK_EQ(disk_open(f, true), 0);
		comp = comp_of(f, 1);
		busy = comp_of(f, 2);
		cold = comp_of(f, 3);
		CHECK_EQ(hole_place(comp, 0), i == 0 ? place : 0);
		CHECK_EQ(get(f, cold, 35, 7), 1);
		/* Nobody needs it any more. */
		d.hole_floor = d.stable_lsn;
		lsom_decided(comp, &d);
		CHECK_EQ(put(f, comp, 40, 1, LSN(1, 4 + i), 0), 0);
	}
	lsom_comp_put(comp);
	lsom_comp_put(busy);
	lsom_comp_put(cold);
	fixture_close(f);
}

/* What the cleaner appends of one block. */
static struct {
	const struct lsom_comp *comp;
	bool data;
	uint64_t data_pos; /* its copy has no smaller position than that */
	uint64_t bars_pos; /* the hole is told to be behind all before that */
} watched;

void __real_lsom__log_append(struct lsom_disk *disk, unsigned id,
			     struct lsom__op *op);
void __wrap_lsom__log_append(struct lsom_disk *disk, unsigned id,
			     struct lsom__op *op);

void __wrap_lsom__log_append(struct lsom_disk *disk, unsigned id,
			     struct lsom__op *op)
{
	const struct lsom__data_record *d = (const void *)op->record;

	if (id != LSOM__HEAD_CLEANER || op->comp == NULL ||
	    op->comp != watched.comp || d->r.type != LSOM__R_DATA ||
	    d->first != 0) {
		;
	} else if (d->r.flags & LSOM__F_HOLE) {
		watched.bars_pos = d->r.orig_pos;
	} else {
		watched.data = true;
		watched.data_pos = disk->pos_next;
	}
	__real_lsom__log_append(disk, id, op);
}

static void holes_put(struct fixture *f, struct lsom_comp *comp, uint64_t first,
		      unsigned n, uint64_t *lsn)
{
	struct lsom_decided d = { 0 };
	struct call *c = calloc(n, sizeof(*c));
	unsigned i;

	CHECK(c != NULL);
	for (i = 0; i < n; i++) {
		c[i].f = f;
		CHECK_EQ(write_start(&c[i], comp, LSOM_PREP, first + i, 1,
				     LSN(1, ++*lsn), 0),
			 0);
	}
	for (i = 0; i < n; i++)
		CHECK_EQ(finish(&c[i], 0), 0);
	free(c);
	d.stable_lsn = LSN(1, *lsn);
	lsom_decided(comp, &d);
}

/*
 * Write something else by @w, until @segment is being cleaned and has data to move.
 * Then the last of the writes is under way.
 */
static void clean_until(struct call *w, struct lsom_comp *busy,
			uint32_t segment, uint64_t *lsn)
{
	struct fixture *f = w->f;
	const struct lsom__cleaner *c = f->disk->cleaner;
	struct lsom_decided d = { 0 };
	bool there = false;

	for (unsigned i = 0; !there; i++) {
		CHECK(i < 2000);
		CHECK_EQ(write_start(w, busy, LSOM_PREP, i % 4 * 16, 16,
				     LSN(1, ++*lsn), 6),
			 0);
		while (!w->done && !there) {
			CHECK(sim_env_turn(&f->sim));
			there = c->victim == segment &&
				c->phase == CLEAN_RECORDS && c->moves > 0;
		}
		if (!there) {
			d.stable_lsn = d.hole_floor = LSN(1, *lsn);
			lsom_decided(busy, &d);
		}
	}
}

/*
 * A block is on its way to a new place when it is unmapped, and its hole lies in
 * the same victim.  The hole bars the copy that is on its way: it is told to be
 * behind it, or would be dropped before it, and an index made from the log had the
 * old data again.
 */
TEST(moves, a_hole_is_behind_a_copy_that_was_on_its_way)
{
	struct fixture *f = fixture_open(12);
	struct lsom_comp *comp, *busy;
	struct lsom_decided d = { 0 };
	struct call w = { .f = f };
	uint64_t lsn = 1, n = 0;
	uint32_t segment;

	CHECK_EQ(create(f, 1, 4096), 0);
	CHECK_EQ(create(f, 2, 64), 0);
	comp = comp_of(f, 1);
	busy = comp_of(f, 2);
	CHECK_EQ(put(f, comp, 0, 1, LSN(1, lsn), 5), 0);
	segment = f->disk->heads[LSOM__HEAD_GUEST].segment;
	/* More records than the cleaner looks at in a turn. */
	for (unsigned i = 0; i < 11; i++)
		holes_put(f, comp, 1024 + i * 100, 100, &lsn);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, 1, LSN(1, ++lsn), 0), 0);
	CHECK_EQ(f->disk->heads[LSOM__HEAD_GUEST].segment, segment);
	watched.comp = comp;
	clean_until(&w, busy, segment, &n);
	CHECK(!watched.data);
	d.stable_lsn = d.hole_floor = LSN(1, lsn);
	lsom_decided(comp, &d);
	while (watched.bars_pos == 0)
		CHECK(sim_env_turn(&f->sim));
	CHECK(watched.data);
	CHECK(watched.bars_pos > watched.data_pos);
	CHECK_EQ(finish(&w, 0), 0);
	CHECK_EQ(get(f, comp, 0, 5), 0);
	watched.comp = NULL;
	lsom_comp_put(comp);
	lsom_comp_put(busy);
	hole_lasts(f);
	fixture_close(f);
}

/*
 * A copy for a component that is being filled comes behind the hole that bars it,
 * after the cleaner has moved that.  The hole is needed until the copy is gone, too:
 * without it an index made from the log had the old data again.
 */
TEST(moves, a_hole_is_behind_a_copy_that_comes_after_it)
{
	struct fixture *f = fixture_of(14, 8u << 20, LSOM__SEGMENT_TINY);
	struct lsom_decided d = { .stable_lsn = LSN(1, 5) };
	struct lsom_comp_meta m = { .state_seen = LSOM_SYNC };
	struct lsom_comp *comp, *busy, *cold;
	struct lsom__head *head = &f->disk->heads[LSOM__HEAD_GUEST];
	struct call c[3] = { { .f = f }, { .f = f }, { .f = f } };
	uint64_t n = 0, at, place, sequence;
	uint32_t copy;
	unsigned i;

	CHECK_EQ(create(f, 1, 64), 0);
	CHECK_EQ(create(f, 2, 512), 0);
	CHECK_EQ(create(f, 3, 64), 0);
	comp = comp_of(f, 1);
	busy = comp_of(f, 2);
	cold = comp_of(f, 3);
	CHECK_EQ(update(f, comp, LSOM_CONFIG, m), 0);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, 1, LSN(1, 5), 0), 0);
	lsom_decided(comp, &d);
	place = hole_place(comp, 0);
	for (i = 0; hole_place(comp, 0) == place; i++) {
		CHECK(i < 1000);
		CHECK_EQ(put(f, busy, i % 4 * 16, 16, LSN(1, ++n), 6), 0);
	}
	/* It fills a segment with others that nobody moves. */
	while (f->disk->segments[head->segment].used < 16)
		CHECK_EQ(put(f, busy, 0, 16, LSN(1, ++n), 6), 0);
	CHECK_EQ(write_start(&c[0], cold, LSOM_RCOPY, 0, 56, LSN(1, 1), 7), 0);
	CHECK_EQ(write_start(&c[1], comp, LSOM_RCOPY, 0, 1, LSN(1, 3), 5), 0);
	CHECK_EQ(write_start(&c[2], cold, LSOM_RCOPY, 56, 3, LSN(1, 1), 7), 0);
	for (i = 0; i < 3; i++)
		CHECK_EQ(finish(&c[i], 0), 0);
	copy = head->segment;
	sequence = f->disk->segments[copy].sequence;
	CHECK_EQ(get(f, comp, 0, 5), 0);
	m.state_seen = LSOM_ACTIVE;
	CHECK_EQ(update(f, comp, LSOM_CONFIG, m), 0);
	d.hole_floor = d.stable_lsn;
	lsom_decided(comp, &d);
	/* The cleaner sees it again, and what it lay in is gone. */
	for (i = 0; i < 3000; i++) {
		at = sim_env_random(&f->sim, 32);
		CHECK_EQ(put(f, busy, at * 16, 16, LSN(1, ++n), 6), 0);
	}
	CHECK_EQ(f->disk->segments[copy].sequence, sequence);
	lsom_comp_put(comp);
	lsom_comp_put(busy);
	lsom_comp_put(cold);
	hole_lasts(f);
	fixture_close(f);
}

/* As long as a UNMAP is not decided it is carried on, as its data would be. */
TEST(moves, holes_that_are_not_decided_pin_nothing)
{
	enum { HOLES = 1000 };
	struct fixture *f = fixture_of(15, 8u << 20, LSOM__SEGMENT_TINY);
	struct lsom_decided d = { .stable_lsn = LSN(1, 1 + HOLES) };
	const uint64_t blocks = 1u << 24; /* of which nearly none is there */
	struct lsom_comp *comp[2];
	unsigned i, n, way;

	for (n = 0; n < 2; n++) {
		CHECK_EQ(create(f, 1 + n, blocks), 0);
		comp[n] = comp_of(f, 1 + n);
		CHECK_EQ(put(f, comp[n], 0, 2, LSN(1, 1), 5), 0);
	}
	/* A batch each, and together more than the disk has room for. */
	for (i = 0; i < HOLES; i++)
		for (n = 0; n < 2; n++)
			CHECK_EQ(put_kind(f, comp[n], LSOM_PREP, i % 2,
					  i < 2 ? blocks - 1 : 1, LSN(1, 2 + i),
					  0),
				 0);
	CHECK_EQ(update(f, comp[0], LSOM_SEAL,
			(struct lsom_comp_meta){ .promised_oepoch = 2 }),
		 0);
	lsom_decided(comp[0], &d);
	for (way = 0; way < 4; way++) {
		CHECK_EQ(comp[0]->preps_count, 0);
		CHECK_EQ(comp[1]->preps_count, HOLES);
		for (i = 0; i < 2; i++) {
			CHECK_EQ(get(f, comp[0], i, 5), 0);
			CHECK_EQ(get(f, comp[1], i, 5), 1);
		}
		for (n = 0; n < 2; n++)
			lsom_comp_put(comp[n]);
		if (way == 0)
			checkpoint_make(f);
		if (way < 2) {
			CHECK_EQ(power_cut(f), 0);
		} else {
			disk_close(f);
			CHECK_EQ(disk_open(f, way == 3), 0);
		}
		comp[0] = comp_of(f, 1);
		comp[1] = comp_of(f, 2);
	}
	CHECK_EQ(comp[1]->preps_count, HOLES);
	/* The log alone may not have what was decided. */
	for (n = 0; n < 2; n++) {
		lsom_decided(comp[n], &d);
		CHECK_EQ(comp[n]->preps_count, 0);
		for (i = 0; i < 2; i++)
			CHECK_EQ(get(f, comp[n], i, 5), 0);
	}
	CHECK(f->disk->pages_count <= f->lsom->pages_max);
	for (n = 0; n < 2; n++)
		lsom_comp_put(comp[n]);
	fixture_close(f);
}

/* The cleaner moves blocks of a component, and that is the last of it. */
static bool deleted_while_moved(uint64_t seed)
{
	struct fixture *f = fixture_of(seed, 8u << 20, LSOM__SEGMENT_TINY);
	struct call c = { .f = f };
	struct lsom_comp *comp, *busy;
	uint64_t n = 0;
	bool late;

	CHECK_EQ(create(f, 1, 512), 0);
	CHECK_EQ(create(f, 2, 64), 0);
	comp = comp_of(f, 1);
	busy = comp_of(f, 2);
	for (unsigned i = 0; f->disk->cleaner->reading == 0; i++) {
		CHECK(i < 1000);
		if (i < 128)
			CHECK_EQ(put(f, comp, i * 4, 1, LSN(1, i + 1), 5), 0);
		CHECK_EQ(put(f, busy, i % 4 * 16, 16, LSN(1, ++n), 6), 0);
	}
	c.m.op = LSOM_DELETE;
	CHECK_EQ(lsom_comp_update(comp, &c.m, meta_done), 0);
	lsom_comp_put(comp);
	CHECK(sim_env_run(&f->sim, &c.done));
	checkpoint_make(f);
	late = f->disk->cleaner->moves > 0;
	lsom_comp_put(busy);
	fixture_close(f);
	return late;
}

TEST(moves, a_component_deleted_while_it_is_moved)
{
	unsigned late = 0;

	for (uint64_t seed = 1; seed <= 40; seed++)
		late += deleted_while_moved(seed);
	CHECK(late > 0);
}
