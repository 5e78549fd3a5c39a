/*
 * A scrub of a disk finds each block that has rotted and is needed, no other, and
 * is in nobody's way.
 */
#include "tests/unit/lsom_history.h"

struct scrub {
	struct lsom_scrub req;
	bool done;
	int status;
};

static void scrubbed(struct lsom_scrub *req, int status)
{
	struct scrub *c = container_of(req, struct scrub, req);

	c->status = status;
	c->done = true;
}

static struct scrub *scrub_begin(struct fixture *f)
{
	struct scrub *c = calloc(1, sizeof(*c));

	CHECK_EQ(lsom_scrub(f->disk, &c->req, scrubbed), 0);
	return c;
}

/* To its end, which is @status. */
static void scrub_end(struct fixture *f, struct scrub *c, int status)
{
	CHECK(sim_env_run(&f->sim, &c->done));
	CHECK_EQ(c->status, status);
	CHECK(status < 0 || c->req.percent == 100);
}

static struct scrub *scrub_make(struct fixture *f)
{
	struct scrub *c = scrub_begin(f);

	scrub_end(f, c, 0);
	return c;
}

/* How many blocks it finds, with nothing else wrong. */
static uint64_t scrub_bad(struct fixture *f)
{
	struct scrub *c = scrub_make(f);
	uint64_t n = c->req.bad_count;

	CHECK_EQ(c->req.segments_unread, 0);
	free(c);
	return n;
}

/* ---- each block of a log ---- */

/* It tells of those, and only those, that a reader would miss. */
static unsigned place_check(struct history *h, struct lsom_comp *comp,
			    uint64_t place)
{
	unsigned lost = history_check(h, comp, place);
	struct scrub *c = scrub_make(&h->f);
	struct uuid cid = uuid_of(1);

	if (c->req.segments_unread > 0) {
		CHECK(c->req.bad_count <= lost);
	} else {
		CHECK_EQ(c->req.bad_count, lost);
	}
	for (unsigned i = 0; i < c->req.bad_count; i++) {
		unsigned block = (unsigned)(c->req.bad[i].offset / LSOM_BLOCK);

		CHECK(uuid_equal(&c->req.bad[i].cid, &cid));
		CHECK(block < BLOCKS && lay_at(h, block, place));
	}
	free(c);
	return lost;
}

static void every_block(struct history *h, unsigned step)
{
	uint64_t place = LSOM__DATA_START / LSOM_BLOCK;
	unsigned found = 0;

	for (; place < BYTES / LSOM_BLOCK; place += step) {
		struct lsom_comp *comp;

		if (!block_used(h, place))
			continue;
		history_restore(h);
		rot(h, place, 100);
		comp = reopen(h, false);
		found += place_check(h, comp, place);
		lsom_comp_put(comp);
		power_off(&h->f);
	}
	CHECK(found > 3);
	history_free(h);
}

TEST(scrub, any_block_after_a_clean_stop)
{
	every_block(history_make(1, 60, false), EVERY);
}

TEST(scrub, any_block_after_a_power_cut)
{
	every_block(history_make(2, 60, true), EVERY);
}

TEST(scrub, some_block_of_a_cleaned_log)
{
	every_block(history_make(3, 1200, true), STEP * EVERY);
}

/* ---- in service ---- */

static void rot_now(struct fixture *f, struct lsom_comp *comp, uint64_t block)
{
	struct lsom__entry e;

	entry_get(comp, block, &e);
	CHECK_EQ(e.kind, LSOM__E_RAW);
	f->sim.disk.now[e.place * LSOM_BLOCK] ^= 1;
}

/* Also where the segment has no summary yet. */
TEST(scrub, what_was_written_just_now)
{
	struct fixture *f = fixture_open(1);
	struct lsom_comp *comp;
	struct scrub *c;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	for (unsigned i = 0; i < 3; i++)
		CHECK_EQ(put(f, comp, i * 100, 100, LSN(1, i + 1), i + 1), 0);
	CHECK_EQ(scrub_bad(f), 0);
	rot_now(f, comp, 7);
	rot_now(f, comp, 8);
	rot_now(f, comp, 205);
	c = scrub_make(f);
	CHECK_EQ(c->req.bad_count, 3);
	CHECK_EQ(c->req.bad[0].offset, 7 * LSOM_BLOCK);
	CHECK_EQ(c->req.bad[1].offset, 8 * LSOM_BLOCK);
	CHECK_EQ(c->req.bad[2].offset, 205 * LSOM_BLOCK);
	CHECK_EQ(f->disk->media_errors, 3);
	free(c);
	/* Written over, unmapped, gone: nobody reads it any more. */
	CHECK_EQ(put(f, comp, 7, 1, LSN(1, 4), 9), 0);
	CHECK_EQ(put(f, comp, 8, 1, LSN(1, 5), 0), 0);
	CHECK_EQ(scrub_bad(f), 1);
	CHECK_EQ(update(f, comp, LSOM_DELETE, (struct lsom_comp_meta){ 0 }), 0);
	CHECK_EQ(scrub_bad(f), 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

/*
 * What is on its way is not there yet, and is not looked at: else it would be bad
 * where it came behind the read, and counted before that is judged.
 */
TEST(scrub, what_is_on_its_way)
{
	bool over = false;

	for (unsigned turns = 0; !over; turns++) {
		struct fixture *f = fixture_open(8);
		struct call c = { .f = f };
		struct lsom_comp *comp;
		struct scrub *s;
		struct env_io *io;

		CHECK_EQ(create(f, 1, 64), 0);
		comp = comp_of(f, 1);
		CHECK_EQ(put(f, comp, 0, 4, LSN(1, 1), 1), 0);
		CHECK_EQ(write_start(&c, comp, LSOM_RCOPY, 8, 4, LSN(1, 2), 2),
			 0);
		io = head_hold(f, LSOM__HEAD_GUEST);
		s = scrub_begin(f);
		for (unsigned i = 0; i < turns && !s->done; i++)
			CHECK(sim_env_turn(&f->sim));
		over = s->done;
		f->sim.ios[f->sim.ios_count++] = io;
		CHECK_EQ(finish(&c, 0), 0);
		scrub_end(f, s, 0);
		CHECK_EQ(s->req.bad_count, 0);
		free(s);
		lsom_comp_put(comp);
		fixture_close(f);
	}
}

/* A version may be committed yet. */
TEST(scrub, what_is_not_decided)
{
	struct fixture *f = fixture_open(2);
	const struct lsom__prep *p;
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, 64, LSN(1, 1), 1), 0);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 10, 4, LSN(1, 2), 2), 0);
	p = TAILQ_FIRST(&comp->preps);
	CHECK(p != NULL);
	f->sim.disk.now[(p->place + 3) * LSOM_BLOCK] ^= 1;
	CHECK_EQ(scrub_bad(f), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* One read that fails may be chance; the sector that stays lost is not. */
TEST(scrub, a_read_that_fails)
{
	struct fixture *f = fixture_open(3);
	struct lsom__entry e;
	struct lsom_comp *comp;
	struct scrub *c;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, 200, LSN(1, 1), 1), 0);
	for (unsigned n = 1; n < 4; n++) {
		f->sim.fail_read = n;
		CHECK_EQ(scrub_bad(f), 0);
		CHECK_EQ(f->sim.fail_read, 0);
	}
	entry_get(comp, 77, &e);
	f->sim.lost_at = e.place * LSOM_BLOCK;
	f->sim.lost_bytes = 512;
	c = scrub_make(f);
	CHECK_EQ(c->req.bad_count, 1);
	CHECK_EQ(c->req.bad[0].offset, 77 * LSOM_BLOCK);
	free(c);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* The request for the last block of @segment, taken off the disk. */
static struct env_io *last_hold(struct fixture *f, uint32_t segment)
{
	uint64_t at = (lsom__place(f->disk, segment + 1, 0) - 1) * LSOM_BLOCK;
	struct sim_env *sim = &f->sim;

	for (;;) {
		for (size_t i = 0; i < sim->ios_count; i++) {
			struct env_io *io = sim->ios[i];

			if (io->op != WB_READ || io->offset != at)
				continue;
			sim->ios[i] = sim->ios[--sim->ios_count];
			return io;
		}
		CHECK(sim_env_turn(sim));
	}
}

/* Of one that is emptied meanwhile: what was begun to be read of it goes. */
TEST(scrub, a_read_that_fails_of_what_is_cleaned)
{
	struct fixture *f = fixture_of(10, BYTES, SEGMENT);
	const struct lsom__segment *seg;
	struct lsom__entry e;
	struct lsom_comp *comp;
	struct env_io *io;
	struct scrub *c;

	CHECK_EQ(create(f, 1, BLOCKS), 0);
	comp = comp_of(f, 1);
	for (uint64_t i = 0; i < 4; i++)
		CHECK_EQ(put_kind(f, comp, LSOM_RCOPY, i * FULL, FULL,
				  LSN(1, i + 1), i + 1),
			 0);
	entry_get(comp, FULL, &e);
	seg = &f->disk->segments[lsom__segment_of(f->disk, e.place)];
	c = scrub_begin(f);
	io = last_hold(f, lsom__segment_of(f->disk, e.place));
	CHECK_EQ(put_kind(f, comp, LSOM_RCOPY, FULL, FULL, LSN(1, 9), 9), 0);
	checkpoint_make(f);
	CHECK_EQ(seg->state, LSOM__SEG_CLEANED);
	f->sim.fail_read = 1;
	f->sim.ios[f->sim.ios_count++] = io;
	scrub_end(f, c, 0);
	CHECK_EQ(f->sim.fail_read, 0);
	CHECK_EQ(c->req.bad_count, 0);
	CHECK_EQ(c->req.segments_unread, 0);
	free(c);
	lsom_comp_put(comp);
	fixture_close(f);
}

static void header_rot_now(struct fixture *f, struct lsom_comp *comp,
			   uint64_t block)
{
	struct lsom__entry e;

	entry_get(comp, block, &e);
	f->sim.disk.now[(e.place - 1) * LSOM_BLOCK] ^= 1;
}

/*
 * The batches tell what should lie there, each of itself and the one before.  Where
 * not all are found, that is told.
 */
TEST(scrub, a_summary_that_rots)
{
	struct fixture *f = fixture_open(4);
	struct lsom_disk_info info;
	struct lsom_comp *comp;
	struct scrub *c;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	for (unsigned i = 0; i < 16; i++)
		CHECK_EQ(put(f, comp, i * 50, 50, LSN(1, i + 1), i + 1), 0);
	f->sim.disk.now[(lsom__place(f->disk, 0, f->disk->segment_blocks) *
			 LSOM_BLOCK) -
			1] ^= 1;
	CHECK_EQ(f->disk->segments[0].state, LSOM__SEG_CLOSED);
	CHECK_EQ(scrub_bad(f), 0);
	lsom_disk_info(f->disk, &info);
	CHECK_EQ(info.media_errors, 1);
	rot_now(f, comp, 60);
	header_rot_now(f, comp, 50);
	CHECK_EQ(scrub_bad(f), 1);
	/* So that neither it nor the next one says what was in it. */
	header_rot_now(f, comp, 100);
	c = scrub_make(f);
	CHECK_EQ(c->req.segments_unread, 1);
	CHECK_EQ(c->req.bad_count, 0);
	CHECK(c->req.read_blocks > 700);
	free(c);
	rot_now(f, comp, 20);
	rot_now(f, comp, 160);
	c = scrub_make(f);
	CHECK_EQ(c->req.segments_unread, 1);
	CHECK_EQ(c->req.bad_count, 2);
	free(c);
	/* Nothing is found any more. */
	memset(f->sim.disk.now + lsom__place(f->disk, 0, 1) * LSOM_BLOCK, 0,
	       (size_t)(f->disk->segment_blocks - 1) * LSOM_BLOCK);
	c = scrub_make(f);
	CHECK_EQ(c->req.segments_unread, 1);
	CHECK_EQ(c->req.bad_count, 0);
	free(c);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* Of what lies in @segment, is a batch behind its last one? */
static bool torn_behind(const struct fixture *f, uint32_t segment)
{
	const struct lsom__segment *seg = &f->disk->segments[segment];
	const struct lsom__batch_header *b;
	uint32_t i;

	for (i = 1; i < f->disk->segment_blocks; i++) {
		b = (const void *)(f->sim.disk.now +
				   lsom__place(f->disk, segment, i) *
					   LSOM_BLOCK);
		if (b->magic == LSOM__BATCH_MAGIC &&
		    b->segment_sequence == seg->sequence &&
		    b->batch > seg->last_batch)
			return true;
	}
	return false;
}

/* What the power cut off is no part of it, though it may be found. */
TEST(scrub, a_summary_that_rots_behind_a_torn_tail)
{
	struct call calls[6];
	unsigned found = 0, seed, i;
	struct lsom_comp *comp;
	struct fixture *f;
	struct scrub *c;

	for (seed = 50; seed < 70; seed++) {
		f = fixture_open(seed);
		CHECK_EQ(create(f, 1, 8192), 0);
		comp = comp_of(f, 1);
		CHECK_EQ(put(f, comp, 0, 50, LSN(1, 1), 1), 0);
		for (i = 0; i < ARRAY_LEN(calls); i++) {
			calls[i].f = f;
			CHECK_EQ(write_start(&calls[i], comp, LSOM_PREP,
					     i * 8ull, 4, LSN(1, i + 2), i + 2),
				 0);
			while (f->disk->heads[LSOM__HEAD_GUEST].kick.queued)
				CHECK(sim_env_turn(&f->sim));
		}
		sim_env_cut(&f->sim);
		for (i = 0; i < ARRAY_LEN(calls); i++)
			CHECK(sim_env_run(&f->sim, &calls[i].done));
		lsom_comp_put(comp);
		disk_close(f);
		sim_env_restore(&f->sim);
		CHECK_EQ(disk_open(f, false), 0);
		CHECK_EQ(f->disk->segments[0].state, LSOM__SEG_CLOSED);
		found += torn_behind(f, 0);
		f->sim.disk.now[lsom__place(f->disk, 1, 0) * LSOM_BLOCK - 1] ^=
			1;
		c = scrub_make(f);
		CHECK_EQ(c->req.bad_count, 0);
		CHECK_EQ(c->req.segments_unread, 0);
		free(c);
		fixture_close(f);
	}
	CHECK(found > 0);
}

/* Everything moves meanwhile: segments are written, cleaned and used again. */
TEST(scrub, under_writes_and_the_cleaner)
{
	struct fixture *f = fixture_of(5, 64u << 20, 1u << 20);
	struct lsom_comp *comp;
	uint64_t seeds[8192] = { 0 }, lsn = 0, first;
	unsigned rounds = 0;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	for (first = 0; first < 8192; first += 64) {
		lsn++;
		CHECK_EQ(put(f, comp, first, 64, LSN(1, lsn), lsn), 0);
		for (unsigned i = 0; i < 64; i++)
			seeds[first + i] = lsn;
	}
	for (; rounds < 4; rounds++) {
		struct scrub *c = scrub_begin(f);
		struct scrub again;

		CHECK_EQ(lsom_scrub(f->disk, &again.req, scrubbed), -EBUSY);
		while (!c->done) {
			first = sim_env_random(&f->sim, 8192 - 8);
			lsn++;
			CHECK_EQ(put(f, comp, first, 8, LSN(1, lsn), lsn), 0);
			timers_due(&f->sim);
			for (unsigned i = 0; i < 8; i++)
				seeds[first + i] = lsn;
		}
		scrub_end(f, c, 0);
		CHECK_EQ(c->req.bad_count, 0);
		CHECK_EQ(c->req.segments_unread, 0);
		CHECK(c->req.read_blocks > 4096);
		free(c);
	}
	CHECK(lsn > 2000); /* there was time for many */
	for (first = 0; first < 8192; first++)
		CHECK_EQ(get(f, comp, first, seeds[first]), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* ---- its end ---- */

static void cancel_at(struct fixture *f, unsigned turns)
{
	struct scrub *c = scrub_begin(f);

	while (turns-- > 0 && sim_env_turn(&f->sim))
		;
	if (!c->done) {
		lsom_scrub_cancel(&c->req);
		scrub_end(f, c, -ECANCELED);
	}
	free(c);
}

static void contents_make(struct fixture *f)
{
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	for (unsigned i = 0; i < 30; i++)
		CHECK_EQ(put(f, comp, i * 60, 60, LSN(1, i + 1), i + 1), 0);
	lsom_comp_put(comp);
}

TEST(scrub, is_called_off)
{
	struct fixture *f = fixture_open(6);

	contents_make(f);
	for (unsigned turns = 0; turns < 60; turns++)
		cancel_at(f, turns);
	CHECK_EQ(scrub_bad(f), 0);
	fixture_close(f);
}

TEST(scrub, of_a_disk_that_is_closed)
{
	for (unsigned turns = 0; turns < 40; turns++) {
		struct fixture *f = fixture_open(7);
		struct scrub *c, late;

		contents_make(f);
		c = scrub_begin(f);
		for (unsigned i = 0; i < turns; i++)
			(void)sim_env_turn(&f->sim);
		CHECK(!c->done);
		disk_close(f);
		CHECK(c->done);
		CHECK_EQ(c->status, -ESHUTDOWN);
		free(c);
		CHECK_EQ(disk_open(f, false), 0);
		f->disk->closing = true;
		CHECK_EQ(lsom_scrub(f->disk, &late.req, scrubbed), -ESHUTDOWN);
		f->disk->closing = false;
		fixture_close(f);
	}
}

TEST(scrub, of_a_disk_that_fails)
{
	struct fixture *f = fixture_open(8);
	struct scrub *c, late;

	contents_make(f);
	c = scrub_begin(f);
	for (unsigned i = 0; i < 10; i++)
		(void)sim_env_turn(&f->sim);
	lsom__disk_fail(f->disk, "a test", -EIO);
	scrub_end(f, c, -ENODEV);
	CHECK_EQ(lsom_scrub(f->disk, &late.req, scrubbed), -ENODEV);
	free(c);
	fixture_close(f);
}
