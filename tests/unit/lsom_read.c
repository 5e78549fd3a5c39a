/* What a read asks of the disk. */
#include "tests/unit/lsom_rig.h"

enum { BLOCKS = 32 };

/* The iovecs of each read in flight. */
static unsigned reads_look(const struct sim_env *sim, unsigned *iovs)
{
	unsigned reads = 0;

	for (size_t i = 0; i < sim->ios_count; i++)
		if (sim->ios[i]->op == WB_READ)
			iovs[reads++] = sim->ios[i]->iov_count;
	return reads;
}

static uint64_t media_errors(struct fixture *f)
{
	struct lsom_disk_info info;

	lsom_disk_info(f->disk, &info);
	return info.media_errors;
}

/* All blocks of @comp.  Returns how many reads of the disk that took. */
static unsigned read_all(struct fixture *f, struct lsom_comp *comp,
			 struct call *c, unsigned *iovs)
{
	unsigned reads = 0;

	*c = (struct call){ .f = f };
	c->r.len = BLOCKS * LSOM_BLOCK;
	c->r.class = PAGE_FRONT;
	CHECK_EQ(lsom_read(comp, &c->r, read_done), 0);
	while (reads == 0) { /* all are sent in one turn */
		CHECK(sim_env_turn(&f->sim));
		reads = reads_look(&f->sim, iovs);
	}
	CHECK(sim_env_run(&f->sim, &c->done));
	CHECK_EQ(c->status, 0);
	return reads;
}

static void block_check(const struct call *c, unsigned block, uint64_t seed)
{
	uint8_t want[LSOM_BLOCK] = { 0 };

	if (seed != 0)
		fill(want, block, seed);
	CHECK_EQ(memcmp(want, c->r.sgl->pieces[block].page->data, LSOM_BLOCK),
		 0);
}

/* Neighbours on the disk land in neighbours in memory: one iovec. */
TEST(lsom_read, neighbours_are_one_iovec)
{
	struct fixture *f = fixture_open(1);
	struct lsom_comp *comp;
	unsigned iovs[BLOCKS];
	struct call c;

	CHECK_EQ(create(f, 1, BLOCKS), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, BLOCKS, 1, 5), 0);
	CHECK_EQ(read_all(f, comp, &c, iovs), 1);
	CHECK_EQ(iovs[0], 1);
	for (unsigned i = 0; i < BLOCKS; i++)
		block_check(&c, i, 5);
	sgl_put(c.r.sgl);
	/* Nothing lies in the middle. */
	CHECK_EQ(put(f, comp, 20, 5, 3, 0), 0);
	CHECK_EQ(read_all(f, comp, &c, iovs), 2);
	for (unsigned i = 0; i < 2; i++)
		CHECK_EQ(iovs[i], 1);
	for (unsigned i = 0; i < BLOCKS; i++)
		block_check(&c, i, i >= 20 && i < 25 ? 0 : 5);
	sgl_put(c.r.sgl);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* One read over what was overwritten since, and another one for that. */
TEST(lsom_read, what_lies_between_is_read_along)
{
	struct fixture *f = fixture_open(2);
	uint64_t seeds[BLOCKS];
	struct lsom_comp *comp;
	unsigned iovs[BLOCKS];
	struct lsom__page *page;
	struct call c;

	CHECK_EQ(create(f, 1, BLOCKS), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, BLOCKS, 1, 5), 0);
	for (unsigned i = 0; i < BLOCKS; i++)
		seeds[i] = 5;
	/* A gap of one, of two and of three, which is too wide. */
	for (unsigned n = 1; n <= 3; n++) {
		CHECK_EQ(put(f, comp, 6 * n, n, 1 + n, 5 + n), 0);
		for (unsigned i = 6 * n; i < 7 * n; i++)
			seeds[i] = 5 + n;
	}
	/* [0, 18) without those, each of the three, and [21, 32). */
	CHECK_EQ(read_all(f, comp, &c, iovs), 5);
	for (unsigned i = 0; i < BLOCKS; i++)
		block_check(&c, i, seeds[i]);
	sgl_put(c.r.sgl);
	/* What nobody asked for cannot be read: no reader's, but the disk's. */
	CHECK_EQ(media_errors(f), 0);
	page = lsom__page_find(comp, 0);
	f->sim.lost_at =
		(lsom__slot_place(&page->slots.slot[5]) + 1) * LSOM_BLOCK;
	f->sim.lost_bytes = 512;
	(void)read_all(f, comp, &c, iovs);
	for (unsigned i = 0; i < BLOCKS; i++)
		block_check(&c, i, seeds[i]);
	sgl_put(c.r.sgl);
	CHECK_EQ(media_errors(f), 1);
	f->sim.lost_bytes = 0;
	lsom_comp_put(comp);
	fixture_close(f);
}

/* Take the read of @blocks blocks out of those in flight. */
static struct env_io *read_hold(struct sim_env *sim, unsigned blocks)
{
	struct env_io *io = NULL;

	for (size_t i = 0; i < sim->ios_count; i++) {
		if (sim->ios[i]->op != WB_READ ||
		    sim->ios[i]->len != blocks * LSOM_BLOCK)
			continue;
		io = sim->ios[i];
		sim->ios[i] = sim->ios[--sim->ios_count];
		break;
	}
	CHECK(io != NULL);
	return io;
}

/*
 * Of two reads one fails for what nobody asked for, so both are sent again.  By
 * then the block of the other one is unmapped, and its segment would be used
 * for something else.
 */
TEST(lsom_read, a_segment_stays_until_all_of_it_is_read)
{
	struct fixture *f = fixture_of(9, 8u << 20, LSOM__SEGMENT_TINY);
	struct lsom_comp *comp, *other;
	struct call c = { .f = f };
	struct env_io *held;
	uint32_t segment;
	uint64_t n = 0;

	CHECK_EQ(create(f, 1, 3), 0);
	CHECK_EQ(create(f, 2, 64), 0);
	comp = comp_of(f, 1);
	other = comp_of(f, 2);
	CHECK_EQ(put(f, comp, 2, 1, LSN(1, 1), 5), 0);
	segment = f->disk->heads[LSOM__HEAD_GUEST].segment;
	while (f->disk->sequence_next < 4)
		CHECK_EQ(put(f, other, 0, 16, LSN(1, ++n), 6), 0);
	/* Between these two lies a header. */
	CHECK_EQ(put(f, comp, 0, 1, LSN(1, 2), 5), 0);
	CHECK_EQ(put(f, comp, 1, 1, LSN(1, 3), 5), 0);
	c.r.len = 3 * LSOM_BLOCK;
	c.r.class = PAGE_FRONT;
	CHECK_EQ(lsom_read(comp, &c.r, read_done), 0);
	held = read_hold(&f->sim, 3);
	CHECK_EQ(put(f, comp, 2, 1, LSN(1, 4), 0), 0);
	for (unsigned i = 0; i < 200; i++)
		CHECK_EQ(put(f, other, i % 4 * 16, 16, LSN(1, ++n), 6), 0);
	/* Nor is it counted as free: nobody could take it. */
	CHECK_EQ(f->disk->segments[segment].state, LSOM__SEG_CLEANED);
	held->cb(held, -EIO);
	CHECK(sim_env_run(&f->sim, &c.done));
	CHECK_EQ(c.status, 0);
	for (unsigned i = 0; i < 3; i++)
		block_check(&c, i, 5);
	sgl_put(c.r.sgl);
	lsom_comp_put(other);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* What cannot be read, and what reads as something else. */
TEST(lsom_read, media_errors_are_counted)
{
	struct fixture *f = fixture_open(4);
	struct lsom_comp *comp;
	struct lsom__page *page;
	uint64_t at;

	CHECK_EQ(create(f, 1, BLOCKS), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, BLOCKS, 1, 5), 0);
	page = lsom__page_find(comp, 0);
	at = lsom__slot_place(&page->slots.slot[7]) * LSOM_BLOCK;
	CHECK_EQ(get(f, comp, 7, 5), 1);
	CHECK_EQ(media_errors(f), 0);
	f->sim.lost_at = at;
	f->sim.lost_bytes = 512;
	CHECK_EQ(get(f, comp, 7, 5), -EIO);
	CHECK_EQ(media_errors(f), 1);
	f->sim.lost_bytes = 0;
	f->sim.disk.now[at + 100] ^= 1;
	CHECK_EQ(get(f, comp, 7, 5), -EBADMSG);
	CHECK_EQ(media_errors(f), 2);
	/* Nothing else fails for it. */
	CHECK_EQ(get(f, comp, 8, 5), 1);
	CHECK_EQ(put(f, comp, 7, 1, 2, 6), 0);
	CHECK_EQ(get(f, comp, 7, 6), 1);
	CHECK_EQ(media_errors(f), 2);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* It rotted, and was repaired while the read was on its way: that counts. */
TEST(lsom_read, of_a_block_that_is_repaired_meanwhile)
{
	struct fixture *f = fixture_open(5);
	struct call c = { .f = f };
	struct lsom_comp *comp;
	struct env_io *held;

	CHECK_EQ(create(f, 1, BLOCKS), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, BLOCKS, 1, 5), 0);
	c.r.len = LSOM_BLOCK;
	c.r.class = PAGE_FRONT;
	CHECK_EQ(lsom_read(comp, &c.r, read_done), 0);
	held = read_hold(&f->sim, 1);
	CHECK_EQ(put_kind(f, comp, LSOM_REPAIR, 0, 1, 1, 5), 0);
	memset(held->iov[0].iov_base, 0xff, LSOM_BLOCK);
	held->cb(held, LSOM_BLOCK);
	CHECK(sim_env_run(&f->sim, &c.done));
	CHECK_EQ(c.status, 0);
	block_check(&c, 0, 5);
	CHECK_EQ(media_errors(f), 0);
	sgl_put(c.r.sgl);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* A read and a write on their way fail.  Was that of the read the first? */
static bool read_beside(uint64_t seed)
{
	struct fixture *f = fixture_open(seed);
	struct call r = { .f = f }, w = { .f = f };
	struct lsom_comp *comp;
	bool first;

	CHECK_EQ(create(f, 1, BLOCKS), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, BLOCKS, 1, 5), 0);
	f->sim.fail_write = f->sim.fail_read = 1;
	r.r.len = LSOM_BLOCK;
	r.r.class = PAGE_FRONT;
	CHECK_EQ(write_start(&w, comp, LSOM_PREP, 0, 1, 2, 6), 0);
	CHECK_EQ(lsom_read(comp, &r.r, read_done), 0);
	while (f->disk->media_errors == 0)
		CHECK(sim_env_turn(&f->sim));
	first = f->disk->state != LSOM_DISK_FAILED;
	CHECK(sim_env_run(&f->sim, &r.done));
	CHECK_EQ(r.status, -ENODEV);
	CHECK(w.done && w.status < 0);
	CHECK_EQ(get(f, comp, 0, 5), -ENODEV);
	lsom_comp_put(comp);
	fixture_close(f);
	return first;
}

/* Whichever came first: what the disk's failure took is no medium's error. */
TEST(lsom_read, of_a_disk_that_fails_meanwhile)
{
	unsigned before = 0, after = 0;

	for (uint64_t seed = 1; before < 3 || after < 3; seed++) {
		CHECK(seed < 100);
		if (read_beside(seed))
			before++;
		else
			after++;
	}
}

/* Written one after the other: headers lie between, and it is one read. */
TEST(lsom_read, headers_between)
{
	struct fixture *f = fixture_open(3);
	struct lsom_comp *comp;
	unsigned iovs[BLOCKS];
	struct call c;

	CHECK_EQ(create(f, 1, BLOCKS), 0);
	comp = comp_of(f, 1);
	for (unsigned i = 0; i < BLOCKS; i += 2)
		CHECK_EQ(put(f, comp, i, 2, 1 + i, 5 + i), 0);
	CHECK_EQ(read_all(f, comp, &c, iovs), 1);
	CHECK_EQ(iovs[0], BLOCKS - 1);
	for (unsigned i = 0; i < BLOCKS; i++)
		block_check(&c, i, 5 + i / 2 * 2);
	sgl_put(c.r.sgl);
	lsom_comp_put(comp);
	fixture_close(f);
}

static void checkpointed(struct lsom_checkpoint *req, int status)
{
	((struct call *)req->data)->status = status;
	((struct call *)req->data)->done = true;
}

static void checkpoint(struct fixture *f)
{
	struct call c = { .f = f };
	struct lsom_checkpoint req = { .data = &c };

	CHECK_EQ(finish(&c, lsom_checkpoint(f->disk, &req, checkpointed)), 0);
}

static void scanned(struct lsom_scan *req, int status)
{
	((struct call *)req->data)->status = status;
	((struct call *)req->data)->done = true;
}

/* Changed pages take all there is for pages: a scan gets on all the same. */
TEST(lsom_read, a_scan_beside_changed_pages)
{
	struct fixture *f = fixture_open(4);
	const unsigned pages = 3 * (unsigned)f->lsom->pages_max;
	struct lsom_decided d = { .stable_lsn = 2ull * pages };
	struct lsom_version items[256];
	struct call c = { .f = f };
	struct lsom_scan s = {
		.data = &c,
		.len = (uint64_t)pages * LSOM__PAGE_SLOTS * LSOM_BLOCK,
		.items = items,
		.items_max = ARRAY_LEN(items),
	};
	struct lsom_comp *comp;

	CHECK(pages < s.items_max);
	CHECK_EQ(create(f, 1, s.len / LSOM_BLOCK), 0);
	comp = comp_of(f, 1);
	for (unsigned i = 0; i < pages; i++)
		CHECK_EQ(put(f, comp, i * LSOM__PAGE_SLOTS, 1, 1 + i, 5), 0);
	checkpoint(f);
	for (unsigned i = pages; i < 2 * pages; i += 2)
		CHECK_EQ(put_kind(f, comp, LSOM_PREP,
				  (i - pages) * LSOM__PAGE_SLOTS, 1, 1 + i, 6),
			 0);
	checkpoint(f);
	lsom_decided(comp, &d);
	CHECK(f->disk->dirty_count > f->lsom->pages_max);
	CHECK_EQ(lsom_scan(comp, &s, scanned), 0);
	for (unsigned turns = 0; !c.done && turns < 10000; turns++)
		CHECK(sim_env_turn(&f->sim));
	CHECK(c.done);
	CHECK_EQ(c.status, 0);
	CHECK_EQ(s.items_count, pages);
	lsom_comp_put(comp);
	fixture_close(f);
}

static unsigned reads_hanging(const struct sim_env *sim)
{
	unsigned n = 0;

	for (size_t i = 0; i < sim->ios_count; i++)
		n += sim->ios[i]->op == WB_READ;
	return n;
}

/*
 * Reads hang, and each has its page of the index: what others need of it comes and
 * goes all the same.
 */
TEST(lsom_read, a_scan_beside_reads_that_hang)
{
	enum { HANG = 80, PAGES = 240 };
	struct fixture *f = fixture_open(4);
	static struct call calls[HANG];
	static struct lsom_version items[PAGES];
	struct call c = { .f = f };
	struct lsom_scan s = {
		.data = &c,
		.len = PAGES * (uint64_t)LSOM__PAGE_SLOTS * LSOM_BLOCK,
		.items = items,
		.items_max = PAGES,
	};
	struct lsom_comp *comp;

	CHECK(f->lsom->pages_max + HANG < PAGES / 2);
	CHECK_EQ(create(f, 1, s.len / LSOM_BLOCK), 0);
	comp = comp_of(f, 1);
	for (unsigned i = 0; i < PAGES; i++)
		CHECK_EQ(put(f, comp, i * LSOM__PAGE_SLOTS, 1, 1 + i, 5), 0);
	checkpoint(f);
	f->sim.hold_reads = true;
	for (unsigned i = 0; i < HANG; i++) {
		calls[i] = (struct call){ .f = f };
		calls[i].r.offset = i * (uint64_t)LSOM__PAGE_SLOTS * LSOM_BLOCK;
		calls[i].r.len = LSOM_BLOCK;
		calls[i].r.class = PAGE_FRONT;
		CHECK_EQ(lsom_read(comp, &calls[i].r, read_done), 0);
	}
	while (reads_hanging(&f->sim) < HANG)
		CHECK(sim_env_turn(&f->sim));
	CHECK_EQ(lsom_scan(comp, &s, scanned), 0);
	CHECK(sim_env_run(&f->sim, &c.done));
	CHECK_EQ(c.status, 0);
	CHECK_EQ(s.items_count, PAGES);
	CHECK(f->disk->pages_count <= f->lsom->pages_max + HANG);
	f->sim.hold_reads = false;
	for (unsigned i = 0; i < HANG; i++) {
		CHECK(sim_env_run(&f->sim, &calls[i].done));
		CHECK_EQ(calls[i].status, 0);
		sgl_put(calls[i].r.sgl);
	}
	lsom_comp_put(comp);
	fixture_close(f);
}
