/*
 * Space that is promised to a component: others are told that the disk is full
 * before they have it, its own writes find it, whatever was unmapped, cut off or
 * opened again between, and what is mapped is counted right.
 */
#include "tests/unit/lsom_rig.h"

#define RUN 64u
#define BIG (1u << 20) /* blocks: more than the disk has */

struct disk {
	struct fixture *f;
	struct lsom_comp *thin, *own; /* 1 and 2 */
	uint64_t lsn, usable;
};

static void comps_get(struct disk *d)
{
	struct lsom_disk_info info;

	lsom_disk_info(d->f->disk, &info);
	d->usable = info.usable_bytes / LSOM_BLOCK;
	d->thin = comp_of(d->f, 1);
	d->own = comp_of(d->f, 2);
	CHECK(d->thin != NULL && d->own != NULL);
}

static void comps_put(struct disk *d)
{
	lsom_comp_put(d->thin);
	lsom_comp_put(d->own);
}

/* A disk with a thin component, and one of @blocks. */
static void disk_begin(struct disk *d, uint64_t blocks)
{
	*d = (struct disk){ .f = fixture_open(31), .lsn = 1 };
	CHECK_EQ(create(d->f, 1, BIG), 0);
	CHECK_EQ(create(d->f, 2, blocks), 0);
	comps_get(d);
}

static void disk_end(struct disk *d)
{
	comps_put(d);
	fixture_close(d->f);
}

static int write_at(struct disk *d, struct lsom_comp *comp, uint64_t first,
		    uint64_t n, uint64_t seed)
{
	return put(d->f, comp, first, n, LSN(1, d->lsn++), seed);
}

/* Write @comp from @from on until it is refused; how many blocks it got. */
static uint64_t write_up(struct disk *d, struct lsom_comp *comp, uint64_t from,
			 uint64_t seed)
{
	uint64_t n = 0, run = RUN;
	int rv;

	while (run > 0) {
		if (from + n + run > comp->meta.size_bytes / LSOM_BLOCK)
			rv = -ERANGE;
		else
			rv = write_at(d, comp, from + n, run, seed);
		CHECK(rv == 0 || rv == -ENOSPC || rv == -ERANGE);
		if (rv == 0)
			n += run;
		else
			run /= 2;
	}
	return n;
}

static void whole_check(struct disk *d, struct lsom_comp *comp, uint64_t blocks,
			uint64_t seed)
{
	for (uint64_t i = 0; i < blocks; i++)
		CHECK_EQ(get(d->f, comp, i, seed), 1);
}

static uint64_t kept(const struct disk *d)
{
	struct lsom_disk_info info;

	lsom_disk_info(d->f->disk, &info);
	return info.kept_bytes / LSOM_BLOCK;
}

/* Let everything end that is on its way. */
static void settle(struct disk *d)
{
	while (sim_env_turn(&d->f->sim) && d->f->disk->works > 0)
		;
}

/* ---- who is told that the disk is full ---- */

TEST(reserve, others_are_told_full)
{
	struct disk d;
	uint64_t n;

	disk_begin(&d, 2048);
	lsom_comp_reserve(d.own, 2048 * LSOM_BLOCK);
	CHECK_EQ(kept(&d), 2048);
	n = write_up(&d, d.thin, 0, 1);
	CHECK_EQ(n, d.usable - 2048);
	/* All of it, to the last block. */
	CHECK_EQ(write_up(&d, d.own, 0, 2), 2048);
	CHECK_EQ(kept(&d), 0);
	CHECK_EQ(write_at(&d, d.thin, n, 1, 1), -ENOSPC);
	whole_check(&d, d.own, 2048, 2);
	whole_check(&d, d.thin, n, 1);
	disk_end(&d);
}

/* What replaces its data finds room, too, as often as it comes. */
TEST(reserve, overwrite_at_full)
{
	struct disk d;

	disk_begin(&d, 2048);
	lsom_comp_reserve(d.own, 2048 * LSOM_BLOCK);
	CHECK_EQ(write_up(&d, d.thin, 0, 1), d.usable - 2048);
	CHECK_EQ(write_up(&d, d.own, 0, 2), 2048);
	for (uint64_t seed = 3; seed < 8; seed++) {
		for (uint64_t i = 0; i < 2048; i += RUN)
			CHECK_EQ(write_at(&d, d.own, i, RUN, seed), 0);
		CHECK_EQ(write_at(&d, d.thin, 0, 1, seed), -ENOSPC);
	}
	whole_check(&d, d.own, 2048, 7);
	disk_end(&d);
}

/* More of it at a time than the reserve lends: later, and never "full". */
TEST(reserve, lent_in_turn)
{
	struct disk d;
	uint64_t eighth, n = 0;
	struct lsom_decided stable;

	disk_begin(&d, 4096);
	lsom_comp_reserve(d.own, 4096 * LSOM_BLOCK);
	CHECK_EQ(write_up(&d, d.thin, 0, 1), d.usable - 4096);
	CHECK_EQ(write_up(&d, d.own, 0, 2), 4096);
	eighth = d.f->disk->reserve_blocks / 8;
	while (lsom_credit_take(d.own, 1) == 0)
		n++;
	CHECK_EQ(n, 2 * eighth);
	CHECK_EQ(lsom_credit_take(d.own, 1), -EBUSY);
	CHECK_EQ(lsom_credit_take(d.thin, 1), -ENOSPC);
	lsom_credit_return(d.own, n);

	/* Prepared versions as well, until they are decided. */
	for (n = 0; n + RUN <= 2 * eighth; n += RUN)
		CHECK_EQ(put_kind(d.f, d.own, LSOM_PREP, n, RUN,
				  LSN(1, d.lsn++), 3),
			 0);
	CHECK_EQ(put_kind(d.f, d.own, LSOM_PREP, n, RUN, LSN(1, d.lsn), 3),
		 -EBUSY);
	stable = (struct lsom_decided){ .stable_lsn = LSN(1, d.lsn - 1) };
	lsom_decided(d.own, &stable);
	CHECK_EQ(put_kind(d.f, d.own, LSOM_PREP, n, RUN, LSN(1, d.lsn++), 3),
		 0);
	disk_end(&d);
}

/* One that is promised less than its size has that, and what is left. */
TEST(reserve, a_part)
{
	struct disk d;
	uint64_t n;

	disk_begin(&d, 4096);
	lsom_comp_reserve(d.own, 1024 * LSOM_BLOCK);
	n = write_up(&d, d.thin, 0, 1);
	CHECK_EQ(n, d.usable - 1024);
	CHECK_EQ(write_up(&d, d.own, 0, 2), 1024);
	CHECK_EQ(write_at(&d, d.own, 1024, 1, 2), -ENOSPC);
	/* Room of the disk's is anybody's. */
	CHECK_EQ(write_at(&d, d.thin, 0, 100, 0), 0);
	CHECK_EQ(write_up(&d, d.own, 1024, 2), 100);
	CHECK_EQ(write_at(&d, d.thin, 0, 1, 1), -ENOSPC);
	whole_check(&d, d.own, 1124, 2);
	disk_end(&d);
}

/* It has mapped less than its promise, but more is on its way: it waits. */
TEST(reserve, on_the_way)
{
	struct disk d;

	disk_begin(&d, 4096);
	lsom_comp_reserve(d.own, 1024 * LSOM_BLOCK);
	CHECK_EQ(write_up(&d, d.thin, 0, 1), d.usable - 1024);
	CHECK_EQ(write_at(&d, d.own, 0, 64, 2), 0);
	CHECK_EQ(lsom_credit_take(d.own, 959), 0);
	CHECK_EQ(lsom_credit_take(d.own, 1), 0);
	CHECK_EQ(lsom_credit_take(d.own, 1), -EBUSY);
	CHECK_EQ(lsom_credit_take(d.own, 961), -ENOSPC); /* in any case */
	CHECK_EQ(kept(&d), 0);
	CHECK_EQ(lsom_credit_take(d.thin, 1), -ENOSPC);
	lsom_credit_return(d.own, 960);
	CHECK_EQ(kept(&d), 960);
	CHECK_EQ(lsom_credit_take(d.thin, 1), -ENOSPC);
	disk_end(&d);
}

/* A block at @lsn, with credit for it. */
static int credited_write(struct disk *d, uint64_t lsn)
{
	struct call c = { .f = d->f };

	CHECK_EQ(lsom_credit_take(d->own, 1), 0);
	CHECK_EQ(sgl_new(d->f->sim.loop.env.pages, PAGE_FRONT, LSOM_BLOCK, 0,
			 &c.w.sgl),
		 0);
	fill(c.w.sgl->pieces[0].page->data, 0, lsn);
	c.crcs[0] = sgl_crc(c.w.sgl, 0, LSOM_BLOCK);
	c.w.len = LSOM_BLOCK;
	c.w.crcs = c.crcs;
	c.w.lsn = lsn;
	c.w.member_csn = 1;
	c.w.credits = 1;
	return finish(&c, lsom_write(d->own, &c.w, written));
}

/* Credit ends with its write, also where that is answered and not logged. */
TEST(reserve, credit_of_what_is_not_logged)
{
	const struct lsom_decided all = { .stable_lsn = LSN(1, 9) };
	struct disk d;

	disk_begin(&d, 64);
	CHECK_EQ(credited_write(&d, LSN(1, 3)), 0);
	CHECK_EQ(d.own->credits, 0);
	CHECK_EQ(credited_write(&d, LSN(1, 3)), 0); /* it is held */
	CHECK_EQ(d.own->credits, 0);
	lsom_decided(d.own, &all);
	CHECK_EQ(credited_write(&d, LSN(1, 4)), -ESTALE);
	CHECK_EQ(d.own->credits, 0);
	CHECK_EQ(d.f->disk->credits, 0);
	disk_end(&d);
}

/* ---- what was given back is kept for it ---- */

TEST(reserve, unmap_then_rewrite)
{
	struct disk d;

	disk_begin(&d, 2048);
	lsom_comp_reserve(d.own, 2048 * LSOM_BLOCK);
	CHECK_EQ(write_up(&d, d.thin, 0, 1), d.usable - 2048);
	CHECK_EQ(write_up(&d, d.own, 0, 2), 2048);
	CHECK_EQ(write_at(&d, d.own, 512, 1024, 0), 0);
	settle(&d);
	CHECK_EQ(kept(&d), 1024);
	CHECK_EQ(lsom_comp_kept(d.own), 1024 * LSOM_BLOCK);
	CHECK_EQ(write_at(&d, d.thin, 0, 1, 1), -ENOSPC);
	for (uint64_t i = 512; i < 1536; i += RUN)
		CHECK_EQ(write_at(&d, d.own, i, RUN, 2), 0);
	CHECK_EQ(kept(&d), 0);
	whole_check(&d, d.own, 2048, 2);
	disk_end(&d);
}

/* A deleted component keeps nothing, nor does one that was promised less. */
TEST(reserve, let_go)
{
	struct disk d;
	uint64_t n;

	disk_begin(&d, 2048);
	lsom_comp_reserve(d.own, 2048 * LSOM_BLOCK);
	n = write_up(&d, d.thin, 0, 1);
	lsom_comp_reserve(d.own, 2000 * LSOM_BLOCK);
	CHECK_EQ(write_up(&d, d.thin, n, 1), 48);
	CHECK_EQ(update(d.f, d.own, LSOM_DELETE, (struct lsom_comp_meta){ 0 }),
		 0);
	CHECK_EQ(kept(&d), 0);
	lsom_comp_reserve(d.own, 2000 * LSOM_BLOCK);
	CHECK_EQ(kept(&d), 0);
	CHECK_EQ(write_up(&d, d.thin, n + 48, 1), 2000);
	disk_end(&d);
}

/* ---- promised when the disk was full already ---- */

TEST(reserve, uncovered)
{
	struct lsom_disk_info info;
	struct disk d;
	uint64_t lent;

	disk_begin(&d, 2048);
	CHECK_EQ(write_up(&d, d.thin, 0, 1), d.usable);
	lsom_comp_reserve(d.own, 2048 * LSOM_BLOCK);
	lent = d.f->disk->reserve_blocks / 8;
	lsom_disk_info(d.f->disk, &info);
	CHECK_EQ(info.uncovered_bytes, (2048 - lent) * LSOM_BLOCK);
	/* It goes on while there is room at all. */
	CHECK_EQ(write_at(&d, d.own, 0, RUN, 2), 0);
	CHECK_EQ(write_at(&d, d.thin, 0, 1024, 0), 0);
	CHECK_EQ(write_at(&d, d.thin, 0, 1, 1), -ENOSPC);
	CHECK_EQ(write_at(&d, d.own, RUN, RUN, 2), 0);
	CHECK_EQ(write_at(&d, d.thin, 1024, 1024, 0), 0);
	settle(&d);
	lsom_disk_info(d.f->disk, &info);
	CHECK_EQ(info.uncovered_bytes, 0);
	CHECK_EQ(write_up(&d, d.own, 2 * RUN, 2), 2048 - 2 * RUN);
	disk_end(&d);
}

/* ---- counts, over restarts ---- */

/* What the scan of a component finds must be what is counted. */
static void scanned(struct lsom_scan *req, int status)
{
	*(bool *)req->data = true;
	CHECK_EQ(status, 0);
}

static uint64_t mapped(struct disk *d, struct lsom_comp *comp)
{
	struct lsom_version items[256];
	struct lsom_scan s = { .items = items, .items_max = 256 };
	uint64_t end = comp->meta.size_bytes, n = 0;
	bool done;

	while (s.offset < end) {
		s.len = MIN(end - s.offset, 1024ull * LSOM_BLOCK);
		s.data = &done;
		done = false;
		CHECK_EQ(lsom_scan(comp, &s, scanned), 0);
		CHECK(sim_env_run(&d->f->sim, &done));
		for (unsigned i = 0; i < s.items_count; i++)
			n += !items[i].hole;
		s.offset = s.next;
	}
	return n;
}

static void counts_check(struct disk *d, uint64_t promise)
{
	uint64_t n = mapped(d, d->own), bytes;

	settle(d);
	CHECK(lsom_comp_used(d->own, &bytes));
	CHECK_EQ(bytes, n * LSOM_BLOCK);
	CHECK_EQ(d->own->counted, LSOM__COUNT_EXACT);
	CHECK_EQ(d->own->mapped, n);
	CHECK_EQ(kept(d), promise - MIN(promise, n));
	CHECK_EQ(d->thin->mapped, mapped(d, d->thin));
}

/* As an owner does: what is durable of the life before is committed. */
static void decide_all(struct disk *d)
{
	struct lsom_decided all = { .stable_lsn = LSN(1, d->lsn++) };

	lsom_decided(d->thin, &all);
	lsom_decided(d->own, &all);
}

static void reopen(struct disk *d, bool cut, uint64_t promise)
{
	comps_put(d);
	if (cut)
		sim_env_cut(&d->f->sim);
	disk_close(d->f);
	if (cut)
		sim_env_restore(&d->f->sim);
	CHECK_EQ(disk_open(d->f, false), 0);
	comps_get(d);
	decide_all(d);
	lsom_comp_reserve(d->own, promise * LSOM_BLOCK);
}

TEST(reserve, opened_again)
{
	struct disk d;

	disk_begin(&d, 2048);
	lsom_comp_reserve(d.own, 2048 * LSOM_BLOCK);
	CHECK_EQ(write_up(&d, d.thin, 0, 1), d.usable - 2048);
	CHECK_EQ(write_at(&d, d.own, 0, 100, 2), 0);
	for (unsigned i = 0; i < 4; i++) {
		reopen(&d, i % 2 == 0, 2048);
		counts_check(&d, 2048);
		CHECK_EQ(write_at(&d, d.thin, 0, 1, 1), -ENOSPC);
		CHECK_EQ(write_at(&d, d.own, i * 7, 100, 2), 0);
	}
	CHECK_EQ(write_up(&d, d.own, 0, 3), 2048);
	whole_check(&d, d.own, 2048, 3);
	disk_end(&d);
}

/* Writes all over, checkpoints between, and the power goes: or it does not. */
static void life(struct disk *d, bool cut)
{
	struct sim_env *sim = &d->f->sim;
	struct call c[8];

	for (unsigned i = 0; i < 200; i++) {
		uint64_t at = sim_env_random(sim, (1u << 16) - 8);

		CHECK_EQ(write_at(d, d->own, at, 1 + sim_env_random(sim, 4),
				  sim_env_random(sim, 3)),
			 0);
		if (i % 32 == 0)
			lsom__checkpoint_start(d->f->disk);
	}
	for (unsigned i = 0; i < 8; i++) {
		c[i].f = d->f;
		if (write_start(&c[i], d->own, LSOM_PREP,
				sim_env_random(sim, 1u << 16), 1,
				LSN(1, d->lsn++), 9) < 0)
			c[i].done = true;
	}
	for (uint64_t n = sim_env_random(sim, 60); n > 0; n--)
		sim_env_turn(sim);
	if (cut)
		sim_env_cut(sim);
	for (unsigned i = 0; i < 8; i++)
		CHECK(sim_env_run(sim, &c[i].done));
}

TEST(reserve, counted_over_cuts)
{
	struct disk d;
	unsigned least = 0;

	disk_begin(&d, 1u << 16);
	lsom_comp_reserve(d.own, 4096 * LSOM_BLOCK);
	for (unsigned i = 0; i < 40; i++) {
		life(&d, i % 3 != 0);
		comps_put(&d);
		disk_close(d.f);
		sim_env_restore(&d.f->sim);
		CHECK_EQ(disk_open(d.f, i % 10 == 9), 0);
		comps_get(&d);
		least += d.own->counted == LSOM__COUNT_LEAST;
		decide_all(&d);
		lsom_comp_reserve(d.own, 4096 * LSOM_BLOCK);
		counts_check(&d, 4096);
	}
	CHECK(least > 0);
	disk_end(&d);
}

/* An index of an earlier version: nothing is kept before it is counted. */
TEST(reserve, index_without_a_count)
{
	struct disk d;

	disk_begin(&d, 1u << 16);
	for (uint64_t i = 0; i < 1u << 16; i += 4096)
		CHECK_EQ(write_at(&d, d.own, i, 10, 2), 0);
	d.own->counted = LSOM__COUNT_NONE;
	d.own->dirty = true;
	reopen(&d, false, 1000);
	CHECK_EQ(d.own->counted, LSOM__COUNT_NONE);
	CHECK_EQ(kept(&d), 0);
	/* What changes meanwhile, before and behind it, is counted once. */
	CHECK_EQ(write_at(&d, d.own, 0, 20, 2), 0);
	CHECK_EQ(write_at(&d, d.own, 15 * 4096, 5, 0), 0);
	CHECK_EQ(write_at(&d, d.own, 7 * 4096 + 5, 10, 2), 0);
	counts_check(&d, 1000);
	CHECK_EQ(d.own->mapped, 16 * 10 + 10 - 5 + 5);
	reopen(&d, true, 1000);
	counts_check(&d, 1000);
	disk_end(&d);
}

/* Who asks has it counted, with nothing promised; nobody else does. */
TEST(reserve, counted_for_who_asks)
{
	struct disk d;
	uint64_t bytes;

	disk_begin(&d, 1u << 16);
	for (uint64_t i = 0; i < 1u << 16; i += 4096)
		CHECK_EQ(write_at(&d, d.own, i, 10, 2), 0);
	d.own->counted = LSOM__COUNT_NONE;
	d.own->dirty = true;
	reopen(&d, false, 0);
	(void)mapped(&d, d.thin); /* turns enough */
	settle(&d);
	CHECK_EQ(d.own->counted, LSOM__COUNT_NONE);
	CHECK(!lsom_comp_used(d.own, &bytes));
	while (!lsom_comp_used(d.own, &bytes))
		CHECK(sim_env_turn(&d.f->sim));
	CHECK_EQ(bytes, 160 * LSOM_BLOCK);
	CHECK_EQ(kept(&d), 0);
	/* It is stored with what is stored next. */
	CHECK_EQ(write_at(&d, d.own, 0, 1, 3), 0);
	decide_all(&d);
	reopen(&d, false, 0);
	CHECK(lsom_comp_used(d.own, &bytes));
	CHECK_EQ(bytes, 160 * LSOM_BLOCK);
	/* What a write replaced is not known before its page is. */
	CHECK_EQ(write_at(&d, d.own, 0, 1, 4), 0);
	decide_all(&d);
	CHECK(d.own->unknown > 0);
	CHECK(!lsom_comp_used(d.own, &bytes));
	CHECK_EQ(get(d.f, d.own, 1, 2), 1);
	while (!lsom_comp_used(d.own, &bytes))
		CHECK(sim_env_turn(&d.f->sim));
	CHECK_EQ(bytes, 160 * LSOM_BLOCK);
	disk_end(&d);
}

/*
 * After a power cut it may be known only what a component has mapped at least.
 * That it lets go of more than that must not pass for something kept for it.
 */
TEST(reserve, nothing_is_kept_without_a_promise)
{
	uint64_t bytes;
	struct disk d;

	for (unsigned deleted = 0; deleted < 2; deleted++) {
		disk_begin(&d, 1024);
		CHECK_EQ(write_at(&d, d.own, 0, 200, 2), 0);
		d.own->counted = LSOM__COUNT_LEAST;
		lsom__comp_mapped(d.own, 0, -80);
		reopen(&d, false, 0);
		CHECK_EQ(d.own->counted, LSOM__COUNT_LEAST);
		CHECK_EQ(d.own->mapped, 120);
		if (deleted)
			CHECK_EQ(update(d.f, d.own, LSOM_DELETE,
					(struct lsom_comp_meta){ 0 }),
				 0);
		else
			CHECK_EQ(write_at(&d, d.own, 0, 200, 0), 0);
		settle(&d);
		CHECK_EQ(d.f->disk->live_blocks, 0);
		CHECK_EQ(kept(&d), 0);
		if (!deleted) {
			CHECK_EQ(write_at(&d, d.own, 0, 10, 3), 0);
			while (!lsom_comp_used(d.own, &bytes))
				CHECK(sim_env_turn(&d.f->sim));
			CHECK_EQ(bytes, 10 * LSOM_BLOCK);
		}
		disk_end(&d);
	}
}

static void attached(struct lsom_attach *req, int status)
{
	*(bool *)req->data = true;
	CHECK_EQ(status, 0);
}

static void detached(struct lsom_detach *req)
{
	*(bool *)req->data = true;
}

/* On a disk that rests, too, where nothing else would begin it. */
TEST(reserve, counted_for_who_asks_on_another_shard)
{
	struct lsom_attach attach = { 0 };
	struct lsom_detach detach = { 0 };
	const struct uuid id = uuid_of(2);
	struct lsom_comp *comp;
	bool done = false;
	uint64_t bytes;
	struct disk d;

	attach.data = detach.data = &done;
	disk_begin(&d, 1u << 16);
	CHECK_EQ(write_at(&d, d.own, 0, 10, 2), 0);
	d.own->counted = LSOM__COUNT_NONE;
	d.own->dirty = true;
	reopen(&d, false, 0);
	while (sim_env_turn(&d.f->sim))
		;
	CHECK_EQ(lsom_disk_attach(d.f->lsom, d.f->disk, 0, 1, &attach,
				  attached),
		 0);
	CHECK(sim_env_run(&d.f->sim, &done));
	comp = lsom_comp_get(attach.attached, &id);
	CHECK(!lsom_comp_used(comp, &bytes));
	while (sim_env_turn(&d.f->sim))
		;
	CHECK(lsom_comp_used(comp, &bytes));
	CHECK_EQ(bytes, 10 * LSOM_BLOCK);
	lsom_comp_put(comp);
	done = false;
	lsom_disk_detach(attach.attached, &detach, detached);
	CHECK(sim_env_run(&d.f->sim, &done));
	disk_end(&d);
}
