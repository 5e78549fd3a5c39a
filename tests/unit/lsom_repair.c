/*
 * A block that rots is repaired, more than once, while the cleaner moves it about:
 * the last repair is the one that is read, also by an index made from the log.
 */
#include "tests/unit/lsom_rig.h"

#define SEGMENT LSOM__SEGMENT_TINY
#define BYTES ((1u << 20) + 26u * SEGMENT)
#define COLD 9u /* the block that rots, and is not written again */
#define HOT 64u /* from here on others are, all the time */
#define HOT_BLOCKS 600u

struct rig {
	struct fixture *f;
	struct lsom_comp *comp;
	uint64_t lsn;
};

static uint64_t place_of(struct rig *r)
{
	struct lsom__page *page;
	struct lsom__entry e;

	CHECK(get(r->f, r->comp, COLD, 1) != 0); /* its page is there */
	page = lsom__page_find(r->comp, COLD / LSOM__PAGE_SLOTS);
	CHECK(page != NULL && page->loaded);
	lsom__slots_get(&page->slots, COLD % LSOM__PAGE_SLOTS, &e);
	CHECK_EQ(e.kind, LSOM__E_RAW);
	return e.place;
}

static const struct lsom__segment *segment_of(struct rig *r, uint64_t place)
{
	uint32_t segment = lsom__segment_of(r->f->disk, place);

	CHECK(segment != LSOM__NONE);
	return &r->f->disk->segments[segment];
}

static void rot(struct rig *r)
{
	uint64_t at = place_of(r) * LSOM_BLOCK + 100;

	r->f->sim.disk.now[at] ^= 4;
	r->f->sim.disk.durable[at] ^= 4;
	CHECK_EQ(get(r->f, r->comp, COLD, 1), -EBADMSG);
}

static void repair(struct rig *r)
{
	CHECK_EQ(put_kind(r->f, r->comp, LSOM_REPAIR, COLD, 1, LSN(1, 1), 1),
		 0);
	CHECK_EQ(get(r->f, r->comp, COLD, 1), 1);
}

static void work(struct rig *r)
{
	uint64_t first = HOT + sim_env_random(&r->f->sim, HOT_BLOCKS);

	r->lsn++;
	CHECK_EQ(put(r->f, r->comp, first, 4, LSN(1, r->lsn), r->lsn), 0);
}

/* Work until the cleaner has moved the block. */
static void move(struct rig *r)
{
	uint64_t before = place_of(r), now;
	unsigned i = 0;

	do {
		CHECK(i++ < 20000);
		work(r);
		now = place_of(r);
	} while (now == before);
	CHECK_EQ(segment_of(r, now)->head, LSOM__HEAD_CLEANER);
}

/* Would what the guest writes next stand before the block in a replay? */
static bool stands_behind(struct rig *r)
{
	const struct lsom__head *head = &r->f->disk->heads[LSOM__HEAD_GUEST];
	const struct lsom__segment *seg;

	if (head->segment == LSOM__NONE)
		return false;
	seg = &r->f->disk->segments[head->segment];
	return seg->sequence < segment_of(r, place_of(r))->sequence &&
	       seg->used + 16 < r->f->disk->segment_blocks;
}

static void again(struct rig *r, bool rebuild)
{
	lsom_comp_put(r->comp);
	disk_close(r->f);
	CHECK_EQ(disk_open(r->f, rebuild), 0);
	r->comp = comp_of(r->f, 1);
	CHECK_EQ(get(r->f, r->comp, COLD, 1), 1);
}

/* @moves of the first repair, at least; then it rots, and there is a second. */
static void repaired_twice(uint64_t seed, unsigned moves)
{
	struct rig r = { .f = fixture_of(seed, BYTES, SEGMENT), .lsn = 1 };
	unsigned n = 0;

	CHECK_EQ(create(r.f, 1, 1024), 0);
	r.comp = comp_of(r.f, 1);
	CHECK_EQ(put(r.f, r.comp, COLD, 1, LSN(1, 1), 1), 0);
	rot(&r);
	repair(&r);
	do
		move(&r);
	while (++n < moves || !stands_behind(&r));
	rot(&r);
	repair(&r);
	again(&r, true);
	/* The second one moves as well, and there is a third. */
	do
		move(&r);
	while (!stands_behind(&r));
	again(&r, true);
	rot(&r);
	repair(&r);
	again(&r, true);
	lsom_comp_put(r.comp);
	fixture_close(r.f);
}

TEST(repair, the_later_one_lasts_when_the_first_has_moved)
{
	for (uint64_t seed = 1; seed <= 3; seed++)
		repaired_twice(seed, 1);
}

TEST(repair, the_later_one_lasts_when_the_first_has_moved_often)
{
	repaired_twice(4, 3);
}

/*
 * A repair of two blocks, of which the first has no page of the index.  While it is
 * on its way one is made, written and, with a small cache, let go again.
 */
static bool page_comes_and_goes(uint64_t seed)
{
	struct fixture *f = fixture_open(seed);
	const uint64_t first = LSOM__PAGE_SLOTS - 1;
	struct lsom_decided d = { .stable_lsn = LSN(1, 2) };
	struct call c = { .f = f }, p = { .f = f };
	struct lsom_checkpoint req = { .data = &p };
	struct lsom__page *page;
	struct lsom_comp *comp;
	bool clean = false;

	CHECK_EQ(create(f, 1, 2 * LSOM__PAGE_SLOTS), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, first + 1, 1, LSN(1, 1), 5), 0);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, 1, LSN(1, 2), 6), 0);
	checkpoint_make(f);
	CHECK_EQ(write_start(&c, comp, LSOM_REPAIR, first, 2, LSN(1, 1), 5), 0);
	lsom_decided(comp, &d);
	CHECK_EQ(lsom_checkpoint(f->disk, &req, checkpoint_made), 0);
	while (!c.done) {
		CHECK(sim_env_turn(&f->sim));
		page = lsom__page_find(comp, 0);
		clean = clean || page == NULL || (!page->is_dirty && !c.done);
		f->lsom->pages_max = 0;
		lsom__pages_evict(f->disk);
		f->lsom->pages_max = 16;
	}
	CHECK_EQ(finish(&c, 0), 0);
	CHECK_EQ(finish(&p, 0), 0);
	CHECK_EQ(get(f, comp, 0, 6), 1);
	CHECK_EQ(get(f, comp, first, 5), 0);
	CHECK_EQ(get(f, comp, first + 1, 5), 1);
	lsom_comp_put(comp);
	fixture_close(f);
	return clean;
}

TEST(repair, of_a_block_whose_page_comes_and_goes)
{
	unsigned clean = 0;

	for (uint64_t seed = 1; seed <= 20; seed++)
		clean += page_comes_and_goes(seed);
	CHECK(clean > 0);
}

/* What was read from a peer may be of before: it repairs what it is, and no other. */
TEST(repair, of_another_version)
{
	struct fixture *f = fixture_open(7);
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	write_csn = 2;
	CHECK_EQ(put(f, comp, 0, 1, LSN(1, 2), 5), 0);
	write_csn = 1;
	CHECK_EQ(put(f, comp, 1, 1, LSN(1, 3), 5), 0);
	/* Of an earlier session, of an earlier write. */
	CHECK_EQ(put_kind(f, comp, LSOM_REPAIR, 0, 1, LSN(1, 2), 6), 0);
	CHECK_EQ(put_kind(f, comp, LSOM_REPAIR, 1, 1, LSN(1, 1), 6), 0);
	for (unsigned way = 0; way < 3; way++) {
		CHECK_EQ(get(f, comp, 0, 5), 1);
		CHECK_EQ(get(f, comp, 1, 5), 1);
		lsom_comp_put(comp);
		if (way == 1) {
			disk_close(f);
			CHECK_EQ(disk_open(f, true), 0);
		} else {
			CHECK_EQ(power_cut(f), 0);
		}
		comp = comp_of(f, 1);
	}
	lsom_comp_put(comp);
	fixture_close(f);
}
