/* Which segments may be taken: what is kept in order says what a walk would. */
#include "tests/unit/lsom_rig.h"

/* ---- the order, of a disk that is nothing but its table of segments ---- */

enum { N = 40 };

static struct lsom_disk *table_new(struct lsom *lsom)
{
	struct lsom_disk *disk = calloc(1, sizeof(*disk));
	unsigned i;

	CHECK(disk != NULL);
	lsom->config.rules_off = LSOM_OFF_REUSE;
	disk->lsom = lsom;
	disk->state = LSOM_DISK_OPENING; /* nobody is told of changes */
	disk->closing = true; /* nothing is zeroed */
	disk->segment_blocks = 64;
	disk->super.segments = N;
	disk->super.data_start = 2 * LSOM_BLOCK;
	disk->sequence_next = 1;
	disk->segments = calloc(N, sizeof(*disk->segments));
	disk->free_heap = calloc(N, sizeof(*disk->free_heap));
	CHECK(disk->segments != NULL && disk->free_heap != NULL);
	TAILQ_INIT(&disk->comps);
	TAILQ_INIT(&disk->changed);
	for (i = 0; i < LSOM__HEADS; i++)
		STAILQ_INIT(&disk->heads[i].queue);
	disk->segments_free = N;
	lsom__segments_sort(disk);
	return disk;
}

static bool zeroed(const struct lsom_disk *disk, uint32_t i)
{
	return i < disk->super.zeroed || disk->segments[i].sequence != 0;
}

static bool take_before(const struct lsom_disk *disk, uint32_t a, uint32_t b)
{
	const struct lsom__segment *sa = &disk->segments[a];
	const struct lsom__segment *sb = &disk->segments[b];

	if (zeroed(disk, a) != zeroed(disk, b))
		return zeroed(disk, a);
	if ((sa->sequence != 0) != (sb->sequence != 0))
		return sa->sequence != 0;
	return sa->sequence < sb->sequence;
}

static uint32_t best_of(const struct lsom_disk *disk)
{
	uint32_t best = LSOM__NONE, i;

	for (i = 0; i < N; i++)
		if (disk->segments[i].state == LSOM__SEG_FREE &&
		    disk->segments[i].reads == 0 &&
		    !(disk->zero_busy && i == disk->super.zeroed) &&
		    (best == LSOM__NONE || take_before(disk, i, best)))
			best = i;
	return best;
}

static uint64_t draw(uint64_t *seed, uint64_t n)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (*seed >> 33) % n;
}

/* What lies there longest, also if one is left out. */
static void oldest_check(const struct lsom_disk *disk)
{
	const struct lsom__segment *seg;
	uint32_t first = LSOM__NONE, i;
	uint64_t oldest = UINT64_MAX, next = UINT64_MAX;

	for (i = 0; i < disk->super.segments; i++) {
		seg = &disk->segments[i];
		if (seg->sequence == 0 || seg->open_pos > next)
			continue;
		if (first == LSOM__NONE || seg->open_pos < oldest) {
			next = oldest;
			oldest = seg->open_pos;
			first = i;
		} else {
			next = seg->open_pos;
		}
	}
	CHECK_EQ(lsom__segments_oldest(disk, LSOM__NONE), oldest);
	if (oldest < next)
		CHECK_EQ(lsom__segments_oldest(disk, first), next);
}

/* Take one; or zero one more; or empty one; or read one. */
static void table_step(struct lsom_disk *disk, uint64_t *seed)
{
	uint32_t i = (uint32_t)draw(seed, N), want, n = 0;
	struct lsom__segment *seg = &disk->segments[i];

	switch (draw(seed, 4)) {
	case 0:
	case 1:
		want = best_of(disk);
		CHECK_EQ(lsom__segment_take(disk, LSOM__HEAD_CLEANER), want);
		if (want == LSOM__NONE)
			return;
		seg = &disk->segments[want];
		CHECK_EQ(seg->state, LSOM__SEG_OPEN);
		seg->state = LSOM__SEG_CLOSED;
		lsom__segment_count(disk, want, 10);
		disk->pos_next += 1 + draw(seed, 3);
		break;
	case 2:
		disk->super.zeroed =
			MIN(disk->super.zeroed + (uint32_t)draw(seed, 2), N);
		disk->zero_busy =
			disk->super.zeroed < N && draw(seed, 2) &&
			disk->segments[disk->super.zeroed].sequence == 0;
		seg->reads = seg->reads == 0 && draw(seed, 8) == 0;
		break;
	case 3:
		if (seg->state == LSOM__SEG_CLOSED)
			lsom__segment_count(disk, i, -(int64_t)seg->live);
		lsom__segments_release(disk);
		CHECK(seg->state == LSOM__SEG_FREE ||
		      seg->state == LSOM__SEG_CLEANED);
		CHECK(seg->state == LSOM__SEG_FREE || seg->reads > 0);
		break;
	}
	for (i = 0; i < N; i++)
		n += disk->segments[i].state == LSOM__SEG_FREE &&
		     zeroed(disk, i);
	CHECK_EQ(lsom__free_zeroed(disk, 4), MIN(n, 4u));
	oldest_check(disk);
}

TEST(reuse, the_oldest_contents_are_taken_first)
{
	struct lsom_disk *disk;
	struct lsom lsom = { 0 };
	uint64_t seed;
	unsigned i;

	lsom__segment_checks = false;
	for (seed = 1; seed <= 20; seed++) {
		uint64_t draws = seed;

		disk = table_new(&lsom);
		for (i = 0; i < 3000; i++)
			table_step(disk, &draws);
		free(disk->free_heap);
		free(disk->segments);
		free(disk);
	}
}

/* ---- the victim, of a large disk ---- */

enum { LARGE = 20000 };

static struct lsom_disk *large_new(struct sim_env *sim)
{
	struct lsom_disk *disk = calloc(1, sizeof(*disk));

	CHECK(disk != NULL);
	disk->env = &sim->loop.env;
	disk->segment_blocks = 1024;
	disk->super.segments = LARGE;
	disk->segments_free = 100;
	disk->sequence_next = LARGE + 1;
	disk->segments = calloc(LARGE, sizeof(*disk->segments));
	CHECK(disk->segments != NULL);
	TAILQ_INIT(&disk->comps);
	for (uint32_t i = 0; i < LARGE; i++)
		disk->segments[i] = (struct lsom__segment){
			.state = LSOM__SEG_CLOSED,
			.sequence = i + 1,
			.live = 900,
		};
	return disk;
}

/* In turns, each of some of them. */
static uint32_t picked(struct lsom_disk *disk, struct lsom__pick *pick)
{
	unsigned turns = 1;
	uint32_t from = pick->next;

	while (!lsom__victim_pick(disk, pick)) {
		CHECK(turns++ < 10);
		CHECK(pick->next > from && pick->next - from < LARGE / 2);
		from = pick->next;
	}
	return pick->best;
}

TEST(reuse, a_victim_is_picked_in_turns)
{
	struct lsom__pick pick = { 0 };
	struct lsom_disk *disk;
	struct sim_env sim;

	sim_env_init(&sim, 1u << 20, 1);
	disk = large_new(&sim);
	CHECK_EQ(picked(disk, &pick), 0); /* the oldest of equals */
	disk->segments[LARGE - 5000].live = 10;
	CHECK_EQ(picked(disk, &pick), LARGE - 5000);
	/* What is the best one changes its state before the end. */
	disk->segments[7].live = 10;
	CHECK(!lsom__victim_pick(disk, &pick));
	CHECK_EQ(pick.best, 7);
	disk->segments[7].state = LSOM__SEG_CLEANED;
	while (pick.next > 0)
		CHECK(!lsom__victim_pick(disk, &pick));
	CHECK_EQ(picked(disk, &pick), LARGE - 5000);
	/* So does what counts: a pick ends as it began. */
	disk->segments[1].live = 800;
	CHECK(!lsom__victim_pick(disk, &pick));
	disk->segments_free = 3;
	CHECK_EQ(picked(disk, &pick), LARGE - 5000);
	disk->segments[LARGE - 1].live = 9;
	CHECK_EQ(picked(disk, &pick), LARGE - 1);
	free(disk->segments);
	free(disk);
	sim_env_fini(&sim);
}

/* ---- a disk at work ---- */

static bool listed(struct lsom__segments *list, const struct lsom__segment *s)
{
	const struct lsom__segment *seg;

	TAILQ_FOREACH (seg, list, link)
		if (seg == s)
			return true;
	return false;
}

static bool heaped(const struct lsom_disk *disk, uint32_t segment)
{
	uint32_t i, n = 0;

	for (i = 0; i < disk->free_used; i++)
		n += disk->free_heap[i] == segment;
	CHECK(n <= 1);
	return n == 1;
}

/* Nothing that a walk would find is forgotten. */
static void sets_check(struct lsom_disk *disk)
{
	struct lsom__segment *seg, *last = NULL;
	uint32_t i, changed = 0;

	TAILQ_FOREACH (seg, &disk->changed, change) {
		CHECK(seg->dirty);
		changed++;
	}
	for (i = 0; i < disk->super.segments; i++) {
		seg = &disk->segments[i];
		changed -= seg->dirty;
		CHECK_EQ(heaped(disk, i),
			 seg->state == LSOM__SEG_FREE && seg->sequence != 0);
		CHECK_EQ(listed(&disk->cleaned, seg),
			 seg->state == LSOM__SEG_CLEANED && !seg->erasing);
		if (seg->state == LSOM__SEG_CLOSED && !seg->cleaning &&
		    seg->live == 0 && !seg->has_meta && !seg->has_holes)
			CHECK(listed(&disk->emptied, seg));
	}
	CHECK_EQ(changed, 0);
	oldest_check(disk);
	TAILQ_FOREACH (seg, &disk->cleaned, link) {
		CHECK(last == NULL ||
		      last->cleaned_number <= seg->cleaned_number);
		last = seg;
	}
}

TEST(reuse, no_segment_is_forgotten)
{
	struct fixture *f = fixture_open(3);
	struct lsom_comp *comp;
	unsigned i, k, cleaned = 0;

	CHECK_EQ(create(f, 1, 8192), 0);
	for (i = 0; i < 600; i++) {
		comp = comp_of(f, 1);
		CHECK_EQ(put(f, comp, i % 23 * 256, 240 - i % 3,
			     LSN(1, 2 * i + 1), i + 1),
			 0);
		if (i % 50 == 7) /* a hole now and then */
			CHECK_EQ(put(f, comp, i % 23 * 256, 64,
				     LSN(1, 2 * i + 2), 0),
				 0);
		for (k = 0; k < 40; k++) {
			sets_check(f->disk);
			cleaned += !TAILQ_EMPTY(&f->disk->cleaned);
			if (!sim_env_turn(&f->sim))
				break;
		}
		lsom_comp_put(comp);
		if (i % 200 == 199) {
			if (i == 399) {
				CHECK_EQ(power_cut(f), 0);
			} else {
				disk_close(f);
				CHECK_EQ(disk_open(f, i == 199), 0);
			}
			sets_check(f->disk);
		}
	}
	CHECK(cleaned > 0);
	fixture_close(f);
}

/* The read that is on its way, taken off the disk. */
static struct env_io *read_hold(struct sim_env *sim)
{
	for (size_t i = 0; i < sim->ios_count; i++) {
		struct env_io *io = sim->ios[i];

		if (io->op != WB_READ)
			continue;
		sim->ios[i] = sim->ios[--sim->ios_count];
		return io;
	}
	fail();
	return NULL;
}

/* False: it does not. */
static bool rests(struct sim_env *sim)
{
	unsigned n = 0;

	while (n < 20000 && sim_env_turn(sim))
		n++;
	return n < 20000;
}

/* Copies that fill a segment: it is not worth cleaning. */
static void segment_write(struct fixture *f, struct lsom_comp *comp,
			  uint64_t first, uint64_t lsn)
{
	struct call c[2] = { { .f = f }, { .f = f } };

	CHECK_EQ(write_start(&c[0], comp, LSOM_RCOPY, first, 48, LSN(1, lsn),
			     lsn),
		 0);
	CHECK_EQ(write_start(&c[1], comp, LSOM_RCOPY, first + 48, 12,
			     LSN(1, lsn), lsn),
		 0);
	CHECK_EQ(finish(&c[0], 0), 0);
	CHECK_EQ(finish(&c[1], 0), 0);
}

/*
 * Those that are cleaned and read are free when the reads end, and not before: while
 * that takes its time no checkpoint comes for them.
 */
TEST(reuse, cleaned_segments_that_are_read)
{
	enum { READS = 2, EACH = 60 };
	struct fixture *f = fixture_of(9, (1u << 20) + 26 * LSOM__SEGMENT_TINY,
				       LSOM__SEGMENT_TINY);
	const struct lsom__segment *seg[READS];
	struct call c[READS] = { { 0 } };
	struct env_io *io[READS];
	struct lsom_comp *comp;
	uint64_t lsn, place, i;

	CHECK_EQ(create(f, 1, 2048), 0);
	comp = comp_of(f, 1);
	for (lsn = 1; f->disk->segments_free > 5; lsn++)
		segment_write(f, comp, lsn * EACH, lsn);
	CHECK(rests(&f->sim));
	for (i = 0; i < READS; i++) {
		c[i].f = f;
		c[i].r.offset = (i + 5) * EACH * LSOM_BLOCK;
		c[i].r.len = LSOM_BLOCK;
		c[i].r.class = PAGE_FRONT;
		CHECK_EQ(lsom_read(comp, &c[i].r, read_done), 0);
		io[i] = read_hold(&f->sim);
		place = io[i]->offset / LSOM_BLOCK;
		seg[i] = &f->disk->segments[lsom__segment_of(f->disk, place)];
		segment_write(f, comp, (i + 5) * EACH, lsn++);
	}
	CHECK(rests(&f->sim));
	for (i = 0; i < READS; i++) {
		CHECK_EQ(seg[i]->state, LSOM__SEG_CLEANED);
		f->sim.ios[f->sim.ios_count++] = io[i];
		CHECK_EQ(finish(&c[i], 0), 0);
		sgl_put(c[i].r.sgl);
		CHECK(rests(&f->sim));
		CHECK_EQ(seg[i]->state, LSOM__SEG_FREE);
	}
	lsom_comp_put(comp);
	fixture_close(f);
}

/* Is nothing on its way to the disk but what erases a segment's header? */
static bool erases(const struct fixture *f)
{
	uint32_t i;

	for (i = 0; i < f->disk->super.segments; i++)
		if (f->disk->segments[i].erasing)
			return f->sim.ios_count == 1;
	return false;
}

/* A segment that cannot be erased is not free: the disk stops. */
TEST(reuse, an_erasure_fails)
{
	struct lsom_decided d = { 0 };
	struct fixture *f = fixture_open(4);
	struct lsom_comp *comp;
	struct lsom_disk_info info;
	uint32_t before;
	unsigned i = 0;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	while (!erases(f)) {
		CHECK(i < 400);
		i++;
		CHECK_EQ(put(f, comp, 0, 240, LSN(1, i), i), 0);
		while (!erases(f) && sim_env_turn(&f->sim))
			;
	}
	before = f->disk->segments_free;
	f->sim.fail_write = 1;
	while (f->sim.fail_write != 0)
		CHECK(sim_env_turn(&f->sim));
	CHECK_EQ(f->disk->segments_free, before);
	lsom_disk_info(f->disk, &info);
	CHECK_EQ(info.state, LSOM_DISK_FAILED);
	lsom_comp_put(comp);
	disk_close(f);
	CHECK_EQ(disk_open(f, false), 0);
	comp = comp_of(f, 1);
	d.stable_lsn = LSN(1, i);
	lsom_decided(comp, &d);
	CHECK_EQ(get(f, comp, 239, i), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

static unsigned erases_count(const struct lsom_disk *disk)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < disk->super.segments; i++)
		n += disk->segments[i].erasing;
	return n;
}

/* What goes is much, and who writes meanwhile does not stand behind all of it. */
TEST(reuse, erasures_take_turns)
{
	enum { BLOCKS = 8000, RUN = 32 };
	struct fixture *f = fixture_of(5, 64u << 20, LSOM__SEGMENT_TINY);
	unsigned most = 0, free_before;
	struct lsom_comp *comp;
	uint64_t i;

	CHECK_EQ(create(f, 1, BLOCKS), 0);
	comp = comp_of(f, 1);
	for (i = 0; i < BLOCKS / RUN; i++)
		CHECK_EQ(put_kind(f, comp, LSOM_RCOPY, i * RUN, RUN,
				  LSN(1, i + 1), 5),
			 0);
	free_before = f->disk->segments_free;
	CHECK_EQ(update(f, comp, LSOM_DELETE, *lsom_comp_meta(comp)), 0);
	lsom_comp_put(comp);
	do
		most = MAX(most, erases_count(f->disk));
	while (sim_env_turn(&f->sim));
	CHECK(f->disk->segments_free > free_before + 100);
	CHECK(TAILQ_EMPTY(&f->disk->cleaned));
	CHECK(most > 0);
	CHECK(most <= LSOM__ERASES);
	fixture_close(f);
}

/*
 * Of a segment with nothing live an opening knows whether there is metadata or a hole
 * in it, which are carried on before it is free: or a rebuild misses them.
 */
TEST(reuse, metadata_and_holes_over_an_opening)
{
	struct fixture *f = fixture_open(11);
	const uint32_t *open = &f->disk->heads[LSOM__HEAD_GUEST].segment;
	struct lsom_comp *comp, *other;
	uint32_t at[4];
	unsigned i;

	CHECK_EQ(create(f, 1, 64), 0);
	CHECK_EQ(create(f, 2, 256), 0);
	comp = comp_of(f, 1);
	other = comp_of(f, 2);
	CHECK_EQ(put_kind(f, comp, LSOM_RCOPY, 0, 1, LSN(1, 1), 1), 0);
	for (i = 0; i < ARRAY_LEN(at); i++) {
		CHECK_EQ(put_kind(f, other, LSOM_RCOPY, 0, 200, LSN(1, i + 1),
				  2),
			 0);
		at[i] = *open;
		if (i == 1)
			CHECK_EQ(put_kind(f, comp, LSOM_RCOPY, 0, 1, LSN(1, 2),
					  0),
				 0);
	}
	lsom_comp_put(comp);
	lsom_comp_put(other);
	disk_close(f);
	CHECK_EQ(disk_open(f, false), 0);
	checkpoint_make(f);
	for (i = 0; i < 3; i++) {
		CHECK_EQ(f->disk->segments[at[i]].live, 0);
		CHECK_EQ(f->disk->segments[at[i]].state == LSOM__SEG_CLOSED,
			 i < 2);
	}
	disk_close(f);
	CHECK_EQ(disk_open(f, true), 0);
	comp = comp_of(f, 1);
	CHECK(comp != NULL);
	CHECK_EQ(get(f, comp, 0, 1), 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

/*
 * A header says which checkpoint was flushed when its segment was taken: where all
 * that was erased has been taken again, nothing else tells that an index is older.
 */
TEST(reuse, a_header_has_the_checkpoint_of_its_time)
{
	struct fixture *f = fixture_of(12, 8u << 20, LSOM__SEGMENT_TINY);
	const uint32_t *open = &f->disk->heads[LSOM__HEAD_GUEST].segment;
	struct lsom__segment_header h;
	struct lsom_comp *comp;
	uint64_t lsn = 0, flushed;
	unsigned again = 0;
	uint32_t last;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	while (again < 100) {
		last = *open;
		flushed = f->disk->flushed_number;
		lsn++;
		CHECK_EQ(put(f, comp, lsn % 4 * 16, 16, LSN(1, lsn), 1), 0);
		if (*open == last)
			continue;
		CHECK_EQ(lsom__segment_header_decode(
				 f->sim.disk.now +
					 lsom__place(f->disk, *open, 0) *
						 LSOM_BLOCK,
				 &f->id, *open, &h),
			 0);
		CHECK(h.index_number >= flushed);
		CHECK(h.index_number <= f->disk->flushed_number);
		again += h.sequence > f->disk->super.segments;
	}
	CHECK(flushed > 1);
	lsom_comp_put(comp);
	fixture_close(f);
}
