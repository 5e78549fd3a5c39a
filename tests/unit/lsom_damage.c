/*
 * Any one block of the log rots, of a history that is known: every block that
 * was acknowledged reads as it is or answers -EBADMSG, and that only where its
 * data rotted.  Never as it was before, and never as zeros.
 */
#include "tests/unit/lsom_history.h"

/* Every block of the log, one after the other; also when it is rebuilt. */
static void every_block(struct history *h)
{
	uint64_t place, first = LSOM__DATA_START / LSOM_BLOCK;
	struct lsom_comp *comp;
	unsigned way;

	for (place = first; place < BYTES / LSOM_BLOCK; place += EVERY) {
		if (!block_used(h, place))
			continue;
		for (way = 0; way < 3; way++) {
			history_restore(h);
			/* The last bytes are those of a summary's footer. */
			rot(h, place, way < 2 ? 100 : LSOM_BLOCK - 4);
			comp = reopen(h, way > 0);
			(void)history_check(h, comp, place);
			lsom_comp_put(comp);
			power_off(&h->f);
		}
	}
}

TEST(damage, any_block_after_a_clean_stop)
{
	struct history *h = history_make(1, 60, false);

	every_block(h);
	history_free(h);
}

TEST(damage, any_block_after_a_power_cut)
{
	struct history *h = history_make(2, 60, true);

	every_block(h);
	history_free(h);
}

/* The cleaner moved most of it, and segments were used several times. */
TEST(damage, some_block_of_a_cleaned_log)
{
	struct history *h = history_make(3, 1200, true);
	uint64_t place, first = LSOM__DATA_START / LSOM_BLOCK;
	struct lsom_comp *comp;

	for (place = first; place < BYTES / LSOM_BLOCK; place += STEP) {
		if (!block_used(h, place))
			continue;
		history_restore(h);
		rot(h, place, 100);
		comp = reopen(h, place % 2 == 1);
		(void)history_check(h, comp, place);
		lsom_comp_put(comp);
		power_off(&h->f);
	}
	history_free(h);
}

/* Other data that has the same CRC32C: the polynomial is added to a word. */
static void stale_put(uint8_t *data)
{
	uint64_t word;

	memcpy(&word, data + 512, sizeof(word));
	word ^= 1 | 0x82f63b78ull << 1;
	memcpy(data + 512, &word, sizeof(word));
}

/*
 * The last batch as @version writes it, then with data of before in its place:
 * in the one case it is there after a power cut, in the other it never was.
 */
static void tail_of(struct history *h, uint16_t version)
{
	uint64_t at = header_find(h, 0) * LSOM_BLOCK;
	struct lsom__batch_header *b = (void *)(h->image + at);
	uint8_t *data = h->image + at + (size_t)b->header_blocks * LSOM_BLOCK;
	uint32_t crc = crc32c(data, LSOM_BLOCK);
	struct lsom_comp *comp;

	CHECK_EQ(b->data_blocks, 1);
	CHECK_EQ(b->version, LSOM__LOG_VERSION);
	if (version < LSOM__LOG_VERSION) {
		b->version = version;
		b->data_crc = crc32_more(0, data, LSOM_BLOCK);
		lsom__batch_seal(b, b->header_blocks,
				 b->header_blocks * LSOM_BLOCK);
	}
	for (unsigned stale = 0; stale < 2; stale++) {
		if (stale)
			stale_put(data);
		CHECK_EQ(crc32c(data, LSOM_BLOCK), crc);
		history_restore(h);
		comp = reopen(h, false);
		CHECK_EQ(get(&h->f, comp, LAST, h->seeds[LAST]), !stale);
		lsom_comp_put(comp);
		power_off(&h->f);
	}
}

/* Data of another time is told even where its CRC32C is the same. */
TEST(damage, tail_of_this_version_and_the_one_before)
{
	for (uint16_t version = 2; version <= LSOM__LOG_VERSION; version++) {
		struct history *h = history_make(8, 14, true);

		tail_of(h, version);
		history_free(h);
	}
}

/* The header of the last batch of @head. */
static uint64_t head_last(const struct history *h, unsigned head)
{
	uint64_t place = LSOM__DATA_START / LSOM_BLOCK, found = 0, last = 0;
	const struct lsom__batch_header *b;

	for (; place < BYTES / LSOM_BLOCK; place++) {
		b = (const void *)(h->image + place * LSOM_BLOCK);
		if (b->magic != LSOM__BATCH_MAGIC || b->batch <= last ||
		    b->head != head)
			continue;
		last = b->batch;
		found = place;
	}
	CHECK(found > 0);
	return found;
}

/* Do headers say that the batch of header @b is covered? */
static bool batch_covered(const struct history *h,
			  const struct lsom__batch_header *b)
{
	uint64_t place = LSOM__DATA_START / LSOM_BLOCK, covered = 0;
	const struct lsom__segment_header *s;

	for (; place < BYTES / LSOM_BLOCK; place++) {
		s = (const void *)(h->image + place * LSOM_BLOCK);
		if (s->magic != LSOM__SEGMENT_MAGIC ||
		    s->generation != b->generation)
			continue;
		covered = MAX(covered, b->head == LSOM__HEAD_CLEANER
					       ? s->covered
					       : s->covered_guest);
	}
	return b->batch <= covered;
}

/*
 * The last batch of the cleaner, after a power cut that takes the index, too: it
 * has no summary and no batch after it.  Its data came from segments that are
 * used again, so it is no torn tail.  Where its header rots, too much may be
 * refused, as nobody knows what was in it; nothing is as it was before.
 */
static void last_of_cleaner(struct history *h)
{
	uint64_t place = head_last(h, LSOM__HEAD_CLEANER), i;
	const struct lsom__batch_header *b =
		(const void *)(h->image + place * LSOM_BLOCK);
	struct lsom_comp *comp;

	CHECK(b->data_blocks > 1);
	for (i = 0; i < b->header_blocks + b->data_blocks; i++) {
		history_restore(h);
		rot(h, place + i, 100);
		comp = reopen(h, true);
		(void)history_check(h, comp,
				    i < b->header_blocks ? 0 : place + i);
		lsom_comp_put(comp);
		power_off(&h->f);
	}
}

TEST(damage, last_batch_of_the_cleaner)
{
	const struct lsom__batch_header *b;
	unsigned seen[2] = { 0 }; /* of those that are not, and are */
	struct history *h;
	bool covered;

	/* What nothing was used again for lies where it came from, too. */
	for (uint64_t seed = 6; seen[0] == 0 || seen[1] == 0; seed++) {
		h = history_make(seed, 1200, true);
		b = (const void *)(h->image + head_last(h, LSOM__HEAD_CLEANER) *
						      LSOM_BLOCK);
		covered = batch_covered(h, b);
		if (seen[covered]++ == 0)
			last_of_cleaner(h);
		history_free(h);
		CHECK(seed < 50);
	}
}

/* The same of the guests' head, which rests while the cleaner goes on. */
TEST(damage, last_batch_of_guests)
{
	const struct lsom__batch_header *b = NULL;
	struct history *h = NULL;
	struct lsom_comp *comp;
	uint64_t place = 0, i;
	int rv;

	history_rests = true;
	for (uint64_t seed = 1; b == NULL || !batch_covered(h, b); seed++) {
		CHECK(seed < 50);
		if (h != NULL)
			history_free(h);
		h = history_make(seed, 1200, true);
		place = head_last(h, LSOM__HEAD_GUEST);
		b = (const void *)(h->image + place * LSOM_BLOCK);
	}
	history_rests = false;
	for (i = 0; i < b->header_blocks + b->data_blocks; i++) {
		history_restore(h);
		rot(h, place + i, 100);
		comp = reopen(h, true);
		(void)history_check(h, comp,
				    i < b->header_blocks ? 0 : place + i);
		/* It is no torn tail. */
		rv = get(&h->f, comp, LAST, h->seeds[LAST]);
		CHECK(rv == 1 || rv == -EBADMSG);
		lsom_comp_put(comp);
		power_off(&h->f);
	}
	history_free(h);
}

/* Opened once more all of it is there. */
static void nothing_lost(struct history *h, bool rebuild)
{
	struct lsom_comp *comp = reopen(h, rebuild);

	CHECK_EQ(history_check(h, comp, 0), 0);
	lsom_comp_put(comp);
	power_off(&h->f);
}

/* The medium lost a block, and says so. */
static void every_block_lost(struct history *h)
{
	uint64_t place, first = LSOM__DATA_START / LSOM_BLOCK;
	struct lsom_comp *comp;
	unsigned way;

	for (place = first; place < BYTES / LSOM_BLOCK; place += EVERY) {
		if (!block_used(h, place))
			continue;
		for (way = 0; way < 2; way++) {
			history_restore(h);
			h->f.sim.lost_at = place * LSOM_BLOCK;
			h->f.sim.lost_bytes = 512;
			comp = reopen(h, way > 0);
			(void)history_check(h, comp, place);
			lsom_comp_put(comp);
			power_off(&h->f);
		}
	}
}

TEST(damage, any_block_unreadable_after_a_clean_stop)
{
	struct history *h = history_make(1, 60, false);

	every_block_lost(h);
	history_free(h);
}

TEST(damage, any_block_unreadable_after_a_power_cut)
{
	struct history *h = history_make(2, 60, true);

	every_block_lost(h);
	history_free(h);
}

/*
 * The same where the device only says that it failed, when asked to take that for
 * lost.  Until then it may be the cable, and nothing is lost.
 */
static void every_block_fails(struct history *h)
{
	uint64_t place, first = LSOM__DATA_START / LSOM_BLOCK;
	struct lsom_comp *comp;
	unsigned way, refused = 0;

	h->f.sim.lost_status = -EIO;
	for (place = first; place < BYTES / LSOM_BLOCK; place += EVERY) {
		if (!block_used(h, place))
			continue;
		for (way = 0; way < 2; way++) {
			history_restore(h);
			h->f.sim.lost_at = place * LSOM_BLOCK;
			h->f.sim.lost_bytes = 512;
			if (disk_open(&h->f, way > 0) == 0) {
				power_off(&h->f);
				history_restore(h);
				continue;
			}
			CHECK_EQ(h->f.status, -EIO);
			refused++;
			h->f.lose_unreadable = true;
			comp = reopen(h, way > 0);
			h->f.lose_unreadable = false;
			(void)history_check(h, comp, place);
			lsom_comp_put(comp);
			power_off(&h->f);
		}
	}
	CHECK(refused > 0);
	h->f.sim.lost_status = 0;
}

TEST(damage, any_block_that_fails_after_a_clean_stop)
{
	struct history *h = history_make(1, 60, false);

	every_block_fails(h);
	history_free(h);
}

TEST(damage, any_block_that_fails_after_a_power_cut)
{
	struct history *h = history_make(2, 60, true);

	every_block_fails(h);
	history_free(h);
}

/*
 * Two blocks that lie side by side, as a medium loses them: a segment's header
 * and its first batch's, a block and its summary.  More may be lost then, but
 * what is lost says so.
 */
static void every_pair(struct history *h)
{
	uint64_t place, first = LSOM__DATA_START / LSOM_BLOCK;
	struct lsom_comp *comp;
	unsigned way;

	for (place = first; place + 1 < BYTES / LSOM_BLOCK; place += EVERY) {
		if (!block_used(h, place) || !block_used(h, place + 1))
			continue;
		/* The last two batches: a torn tail looks the same. */
		if (h->cut && lay_at(h, LAST, place + 2))
			continue;
		for (way = 0; way < 2; way++) {
			history_restore(h);
			rot(h, place, LSOM_BLOCK - 4);
			rot(h, place + 1, 100);
			comp = reopen(h, way > 0);
			(void)history_check(h, comp, 0);
			lsom_comp_put(comp);
			power_off(&h->f);
		}
	}
}

static const struct lsom__segment_header *segment_at(const struct history *h,
						     uint64_t segment)
{
	return (const void *)(h->image + LSOM__DATA_START + segment * SEGMENT);
}

/* Did its head go on in another one? */
static bool has_next(const struct history *h, uint64_t segment)
{
	const struct lsom__segment_header *a = segment_at(h, segment), *b;
	uint64_t i;

	for (i = 0; i < SEGMENTS; i++) {
		b = segment_at(h, i);
		if (b->magic == LSOM__SEGMENT_MAGIC && b->head == a->head &&
		    b->generation == a->generation && b->sequence > a->sequence)
			return true;
	}
	return false;
}

/*
 * A summary, and any block of its segment.  Of the last one of a head only the
 * summary says where it ended: there a torn tail looks the same.
 */
TEST(damage, a_summary_and_any_block)
{
	struct history *h = history_make(10, 60, false);
	uint64_t place, first = LSOM__DATA_START / LSOM_BLOCK, last;
	const uint64_t all = SEGMENT / LSOM_BLOCK;
	struct lsom_comp *comp;

	for (place = first; place < BYTES / LSOM_BLOCK; place += EVERY) {
		last = first + (place - first) / all * all + all - 1;
		if (place == last || !block_used(h, place) ||
		    !block_used(h, last) || !has_next(h, (place - first) / all))
			continue;
		history_restore(h);
		rot(h, place, 100);
		rot(h, last, 100);
		comp = reopen(h, true);
		(void)history_check(h, comp, 0);
		lsom_comp_put(comp);
		power_off(&h->f);
	}
	history_free(h);
}

/* All that are closed now; how many. */
static unsigned summaries_rot(struct fixture *f)
{
	unsigned n = 0, i;

	for (i = 0; i < f->disk->super.segments; i++) {
		if (f->disk->segments[i].state != LSOM__SEG_CLOSED)
			continue;
		f->sim.disk
			.now[lsom__place(f->disk, i + 1, 0) * LSOM_BLOCK - 1] ^=
			4;
		n++;
	}
	return n;
}

/* What lies in them is moved all the same, and what it bars stays barred. */
TEST(damage, summaries_beside_the_cleaner)
{
	struct lsom_comp *comp;
	struct history *h;
	unsigned seed, way;

	for (seed = 31; seed < 37; seed++) {
		h = history_make(seed, 60, false);
		for (way = 0; way < 2; way++) {
			comp = reopen(h, way > 0);
			CHECK(summaries_rot(&h->f) > 3);
			history_work(h, comp, 600);
			CHECK_EQ(history_check(h, comp, 0), 0);
			CHECK(h->f.disk->media_errors > 3);
			(void)summaries_rot(&h->f);
			history_work(h, comp, 50);
			lsom_comp_put(comp);
			power_off(&h->f);
		}
		for (way = 0; way < 2; way++) {
			nothing_lost(h, way > 0);
		}
		history_free(h);
	}
}

TEST(damage, any_two_blocks_after_a_clean_stop)
{
	struct history *h = history_make(8, 60, false);

	every_pair(h);
	history_free(h);
}

TEST(damage, any_two_blocks_after_a_power_cut)
{
	struct history *h = history_make(9, 60, true);

	every_pair(h);
	history_free(h);
}

/*
 * A read of an opening fails, and the next time it does not: that is no reason
 * to take what was acknowledged for a torn tail.
 */
TEST(damage, a_read_fails_once)
{
	struct history *h = history_make(2, 60, true);
	unsigned n, way, whole = 0;

	h->cut = false; /* its last batch is whole */
	for (n = 1; n < 120; n++) {
		for (way = 0; way < 2; way++) {
			history_restore(h);
			h->f.sim.fail_read = n;
			if (disk_open(&h->f, way > 0) == 0) {
				whole += h->f.sim.fail_read == 0;
				power_off(&h->f);
			}
			h->f.sim.fail_read = 0;
			nothing_lost(h, way > 0);
		}
	}
	CHECK(whole > 0);
	history_free(h);
}

/* Nor to lose anything, though what cannot be read may be lost: once more it can. */
TEST(damage, a_read_fails_once_and_may_be_lost)
{
	struct history *h = history_make(2, 60, true);
	struct lsom_comp *comp;
	unsigned n, way;

	h->cut = false;
	h->f.lose_unreadable = true;
	for (n = 1; n < 120; n++) {
		for (way = 0; way < 2; way++) {
			history_restore(h);
			h->f.sim.fail_read = n;
			comp = reopen(h, way > 0);
			h->f.sim.fail_read = 0;
			CHECK_EQ(history_check(h, comp, 0), 0);
			lsom_comp_put(comp);
			power_off(&h->f);
		}
	}
	history_free(h);
}

/* Where the device as a whole goes, what it does not answer is not lost. */
TEST(damage, a_device_that_goes_is_no_loss)
{
	struct history *h = history_make(2, 60, true);
	struct sim_env *sim = &h->f.sim;
	unsigned n, way, failed = 0;

	h->cut = false;
	sim->goes = true;
	for (n = 1; n < 120; n++) {
		for (way = 0; way < 2; way++) {
			history_restore(h);
			sim->fail_read = n;
			h->f.lose_unreadable = true;
			if (disk_open(&h->f, way > 0) == 0) {
				CHECK(!sim->gone);
				power_off(&h->f);
			} else {
				CHECK_EQ(h->f.status, -EIO);
				failed++;
			}
			sim->gone = h->f.lose_unreadable = false;
			sim->fail_read = 0;
			nothing_lost(h, way > 0);
		}
	}
	CHECK(failed > 100);
	history_free(h);
}

/* Nor where it is back at once, and answers what it is asked next. */
TEST(damage, a_device_that_is_away_for_a_moment)
{
	struct history *h = history_make(2, 60, true);
	struct sim_env *sim = &h->f.sim;
	unsigned n, way, reads, opened = 0;

	h->cut = false;
	sim->goes = true;
	for (n = 1; n < 120; n++) {
		for (way = 0; way < 8; way++) {
			reads = 1 + way / 2;
			history_restore(h);
			sim->fail_read = n;
			sim->back_read = reads;
			h->f.lose_unreadable = true;
			if (disk_open(&h->f, way % 2 > 0) == 0) {
				opened++;
				power_off(&h->f);
			} else {
				CHECK_EQ(h->f.status, -EIO);
			}
			sim->gone = h->f.lose_unreadable = false;
			sim->fail_read = sim->back_read = 0;
			nothing_lost(h, way % 2 > 0);
		}
	}
	CHECK(opened > 100);
	history_free(h);
}

/* One superblock is enough, also the older one. */
TEST(damage, a_superblock)
{
	struct history *h = history_make(4, 40, true);
	unsigned i;

	for (i = 0; i < 4; i++) {
		history_restore(h);
		rot(h, i / 2 * LSOM__SUPER_GAP / LSOM_BLOCK, 100);
		nothing_lost(h, i % 2 == 1);
	}
	for (i = 0; i < 8; i++) {
		history_restore(h);
		h->f.sim.lost_status = i >= 4 ? -EIO : 0;
		h->f.lose_unreadable = i >= 4;
		h->f.sim.lost_at = i % 4 / 2 * LSOM__SUPER_GAP;
		h->f.sim.lost_bytes = 512;
		nothing_lost(h, i % 2 == 1);
	}
	history_free(h);
}
