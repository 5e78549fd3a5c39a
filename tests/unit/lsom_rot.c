/*
 * Blocks of a log that rot, one at a time: what is lost is reported as lost, and
 * what lies there twice is not lost.
 */
#include "tests/unit/lsom_rig.h"

static uint64_t entry_place(struct lsom_comp *comp, uint64_t block)
{
	struct lsom__page *page =
		lsom__page_find(comp, block / LSOM__PAGE_SLOTS);
	struct lsom__entry e;

	CHECK(page != NULL && page->loaded);
	lsom__slots_get(&page->slots, block % LSOM__PAGE_SLOTS, &e);
	CHECK_EQ(e.kind, LSOM__E_RAW);
	return e.place;
}

static void rot(struct fixture *f, uint64_t place)
{
	uint64_t i = place * LSOM_BLOCK;

	f->sim.disk.now[i + 100] ^= 4;
	memcpy(f->sim.disk.durable + i, f->sim.disk.now + i, LSOM_BLOCK);
}

TEST(rot, one_block_rots)
{
	struct fixture *f = fixture_open(7);
	struct lsom_comp *comp;
	unsigned round;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, 64, LSN(1, 1), 1), 0);
	rot(f, entry_place(comp, 9));
	CHECK_EQ(get(f, comp, 9, 1), -EBADMSG);
	CHECK_EQ(get(f, comp, 8, 1), 1);
	CHECK_EQ(get(f, comp, 10, 1), 1);
	/* A repair has the same lsn; one with another is no repair. */
	CHECK_EQ(put_kind(f, comp, LSOM_REPAIR, 9, 1, LSN(1, 2), 1), 0);
	CHECK_EQ(get(f, comp, 9, 1), -EBADMSG);
	CHECK_EQ(put_kind(f, comp, LSOM_REPAIR, 9, 1, LSN(1, 1), 1), 0);
	CHECK_EQ(get(f, comp, 9, 1), 1);
	for (round = 0; round < 2; round++) {
		lsom_comp_put(comp);
		disk_close(f);
		CHECK_EQ(disk_open(f, round == 1), 0);
		comp = comp_of(f, 1);
		CHECK_EQ(get(f, comp, 9, 1), 1);
		CHECK_EQ(get(f, comp, 10, 1), 1);
		CHECK(!lsom_comp_meta(comp)->damaged);
	}
	lsom_comp_put(comp);
	fixture_close(f);
}

static uint64_t used_blocks(struct fixture *f)
{
	struct lsom_disk_info info;

	lsom_disk_info(f->disk, &info);
	return info.used_bytes / LSOM_BLOCK;
}

static uint64_t run_seed(uint64_t block)
{
	if (block < 230 || block >= 272)
		return 0;
	return block < 240 ? 1 : block < 250 || block >= 258 ? 3 : 4;
}

/* All of it in one read: holes, blocks of three writes, and two pages. */
static void run_check(struct fixture *f, struct lsom_comp *comp)
{
	struct call c = { .f = f };
	uint8_t want[LSOM_BLOCK];
	const void *data;

	c.r.offset = 220 * LSOM_BLOCK;
	c.r.len = 60 * LSOM_BLOCK;
	c.r.class = PAGE_FRONT;
	c.r.crcs = c.crcs;
	CHECK_EQ(finish(&c, lsom_read(comp, &c.r, read_done)), 0);
	for (uint64_t i = 0; i < 60; i++) {
		memset(want, 0, sizeof(want));
		if (run_seed(220 + i) > 0)
			fill(want, 220 + i, run_seed(220 + i));
		data = c.r.sgl->pieces[i].page->data;
		CHECK_EQ(memcmp(want, data, LSOM_BLOCK), 0);
		CHECK_EQ(c.crcs[i], crc32c(want, LSOM_BLOCK));
	}
	sgl_put(c.r.sgl);
}

/* A range of two pages of the index in which some blocks are newer, or rot. */
TEST(rot, runs_of_blocks)
{
	struct fixture *f = fixture_open(7);
	struct lsom_comp *comp;
	unsigned round;
	uint64_t i;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 230, 40, LSN(1, 1), 1), 0);
	CHECK_EQ(put(f, comp, 250, 8, LSN(1, 4), 4), 0);
	CHECK_EQ(put_kind(f, comp, LSOM_RCOPY, 240, 32, LSN(1, 3), 3), 0);
	CHECK_EQ(used_blocks(f), 42);
	for (i = 243; i < 246; i++)
		rot(f, entry_place(comp, i));
	for (i = 243; i < 246; i++)
		CHECK_EQ(get(f, comp, i, 3), -EBADMSG);
	CHECK_EQ(put_kind(f, comp, LSOM_REPAIR, 242, 20, LSN(1, 3), 3), 0);
	for (round = 0; round < 3; round++) {
		run_check(f, comp);
		CHECK_EQ(used_blocks(f), 42);
		lsom_comp_put(comp);
		disk_close(f);
		CHECK_EQ(disk_open(f, round == 1), 0);
		comp = comp_of(f, 1);
	}
	/* Holes, with the pages in memory: what is newer stays. */
	CHECK_EQ(get(f, comp, 230, 1), 1);
	CHECK_EQ(get(f, comp, 271, 3), 1);
	CHECK_EQ(put_kind(f, comp, LSOM_RCOPY, 0, 300, LSN(1, 2), 0), 0);
	CHECK_EQ(used_blocks(f), 32);
	CHECK_EQ(put(f, comp, 0, 300, LSN(1, 5), 0), 0);
	CHECK_EQ(used_blocks(f), 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

/*
 * R27: the header of a batch in the middle of the log cannot be read, and a later
 * one knew it durable.  That one has its echo, so nothing is lost; also when the
 * log alone is left, and again at the next opening.
 */
TEST(rot, batch_rots_in_mid_log)
{
	struct fixture *f = fixture_open(8);
	struct lsom_comp *comp;
	uint64_t place;
	unsigned i, round;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	for (i = 0; i < 10; i++)
		CHECK_EQ(put(f, comp, i * 16, 16, LSN(1, i + 1), i + 1), 0);
	place = entry_place(comp, 4 * 16) - 1; /* its batch's header */
	lsom_comp_put(comp);
	sim_env_cut(&f->sim);
	disk_close(f);
	sim_env_restore(&f->sim);
	rot(f, place);
	for (round = 0; round < 3; round++) {
		CHECK_EQ(disk_open(f, round == 2), 0);
		comp = comp_of(f, 1);
		CHECK(comp != NULL);
		lsom_decided(comp, &(struct lsom_decided){
					   .stable_lsn = LSN(1, 10) });
		CHECK_EQ(lsom_comp_meta(comp)->damaged, 0);
		for (i = 0; i < 10; i++)
			CHECK_EQ(get(f, comp, i * 16, i + 1), 1);
		CHECK_EQ(put(f, comp, 200, 1, LSN(1, 20 + round), 3), 0);
		lsom_comp_put(comp);
		if (round == 0)
			sim_env_cut(&f->sim);
		disk_close(f);
		sim_env_restore(&f->sim);
	}
	CHECK_EQ(disk_open(f, false), 0);
	fixture_close(f);
}

/* The same batch at the log's end was never acknowledged: no damage. */
TEST(rot, torn_tail)
{
	struct fixture *f = fixture_open(9);
	struct lsom_comp *comp;
	uint64_t place;
	unsigned i;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	for (i = 0; i < 5; i++)
		CHECK_EQ(put(f, comp, i * 16, 16, LSN(1, i + 1), i + 1), 0);
	place = entry_place(comp, 4 * 16) + 3; /* data of the last batch */
	lsom_comp_put(comp);
	sim_env_cut(&f->sim);
	disk_close(f);
	sim_env_restore(&f->sim);
	rot(f, place);
	CHECK_EQ(disk_open(f, false), 0);
	comp = comp_of(f, 1);
	CHECK(!lsom_comp_meta(comp)->damaged);
	lsom_decided(comp, &(struct lsom_decided){ .stable_lsn = LSN(1, 5) });
	for (i = 0; i < 5; i++)
		CHECK_EQ(get(f, comp, i * 16, i + 1), i != 4);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* A page that ends in its own CRC32C, as those of some programs do. */
static void self_checked(uint8_t *page, uint8_t what)
{
	uint32_t crc;

	memset(page, what, LSOM_BLOCK);
	crc = crc32c(page, LSOM_BLOCK - sizeof(crc));
	put_le32(page + LSOM_BLOCK - sizeof(crc), crc);
}

/*
 * The last batch is torn: its header is there, its data is what lay there before
 * and has the same CRC32C.  Only the other CRC tells.
 */
TEST(rot, torn_data_with_an_equal_crc)
{
	struct fixture *f = fixture_open(10);
	struct call c = { .f = f };
	struct lsom_comp *comp;
	uint8_t stale[LSOM_BLOCK];
	uint64_t place;
	int rv;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 3, 1, LSN(1, 1), 1), 0);
	c.w.kind = LSOM_PREP;
	c.w.offset = 3 * LSOM_BLOCK;
	c.w.len = LSOM_BLOCK;
	c.w.lsn = LSN(1, 2);
	c.w.member_csn = 1;
	c.w.crcs = c.crcs;
	CHECK_EQ(sgl_new(f->sim.loop.env.pages, PAGE_FRONT, LSOM_BLOCK, 0,
			 &c.w.sgl),
		 0);
	self_checked(c.w.sgl->pieces[0].page->data, 7);
	self_checked(stale, 9);
	c.crcs[0] = crc32c(c.w.sgl->pieces[0].page->data, LSOM_BLOCK);
	CHECK_EQ(crc32c(stale, LSOM_BLOCK), c.crcs[0]);
	rv = lsom_write(comp, &c.w, written);
	CHECK_EQ(finish(&c, rv), 0);
	lsom_decided(comp, &(struct lsom_decided){ .stable_lsn = LSN(1, 2) });
	place = entry_place(comp, 3);
	lsom_comp_put(comp);
	sim_env_cut(&f->sim);
	disk_close(f);
	sim_env_restore(&f->sim);
	memcpy(f->sim.disk.now + place * LSOM_BLOCK, stale, LSOM_BLOCK);
	memcpy(f->sim.disk.durable + place * LSOM_BLOCK, stale, LSOM_BLOCK);
	CHECK_EQ(disk_open(f, false), 0);
	comp = comp_of(f, 1);
	lsom_decided(comp, &(struct lsom_decided){ .stable_lsn = LSN(1, 2) });
	CHECK_EQ(get(f, comp, 3, 1), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* A segment's header, or its summary, is not all there is to it. */
TEST(rot, header_or_summary_rots)
{
	struct lsom_comp *comp;
	unsigned i, what, way;
	struct fixture *f;
	uint64_t place;

	for (what = 0; what < 2; what++)
		for (way = 0; way < 3; way++) {
			f = fixture_open(10 + what);
			CHECK_EQ(create(f, 1, 8192), 0);
			comp = comp_of(f, 1);
			for (i = 0; i < 40; i++)
				CHECK_EQ(put(f, comp, i * 16, 16, LSN(1, i + 1),
					     i + 1),
					 0);
			if (way > 0)
				checkpoint_make(f);
			place = lsom__place(
				f->disk,
				lsom__segment_of(f->disk, entry_place(comp, 0)),
				0);
			if (what == 1)
				place += f->disk->segment_blocks - 1;
			lsom_comp_put(comp);
			sim_env_cut(&f->sim);
			disk_close(f);
			sim_env_restore(&f->sim);
			rot(f, place);
			CHECK_EQ(disk_open(f, way == 2), 0);
			comp = comp_of(f, 1);
			CHECK(comp != NULL);
			lsom_decided(comp, &(struct lsom_decided){
						   .stable_lsn = LSN(1, 40) });
			for (i = 0; i < 40; i++)
				CHECK_EQ(get(f, comp, i * 16, i + 1), 1);
			lsom_comp_put(comp);
			fixture_close(f);
		}
}
