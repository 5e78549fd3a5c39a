/*
 * Any one block of the log rots, of a history that is known: every block that
 * was acknowledged reads as it is or answers -EBADMSG, and that only where its
 * data rotted.  Never as it was before, and never as zeros.  More than one
 * block: what cannot be known is refused, until it is written again.
 */
#include "tests/unit/lsom_rig.h"

#include "tests/lib/memkv.h"

#define SEGMENT LSOM__SEGMENT_TINY
#define SEGMENTS 26u
#define BYTES ((1u << 20) + SEGMENTS * SEGMENT)
#define BLOCKS 900u /* from 640 on nothing is ever written */
#define FULL 48u /* of a write: a segment has room for one */
#define STEP 5u /* places to try of a log that is long */
#define LAST 639u /* written last; the tail of the log may be torn */

/* What is on the disk and in the index, and what it should read as. */
struct history {
	struct fixture f;
	uint8_t *image;
	struct kv *store;
	uint64_t seeds[BLOCKS]; /* 0: zeros */
	uint64_t lsn; /* counts writes */
	uint64_t stable; /* the last one */
	uint64_t last_header; /* of the last batch */
	bool cut;
};

static void tiny_open(struct fixture *f, uint64_t seed)
{
	struct lsom_config config = { .page_cache_bytes = 80000 };
	struct lsom_format format = { .path = "disk", .tiny = true };

	lsom__segment_checks = true;
	sim_env_init(&f->sim, BYTES, seed);
	f->cluster = uuid_of(200);
	config.env = &f->sim.loop.env;
	CHECK_EQ(lsom_open(&config, &f->lsom), 0);
	format.disk = uuid_of(100);
	format.cluster = f->cluster;
	format.segment_bytes = SEGMENT;
	CHECK_EQ(lsom_disk_format(&f->sim.loop.env, &format), 0);
	CHECK_EQ(disk_open(f, false), 0);
}

static void power_off(struct fixture *f)
{
	sim_env_cut(&f->sim);
	if (f->disk != NULL)
		disk_close(f);
	sim_env_restore(&f->sim);
}

static void history_put(struct history *h, struct lsom_comp *comp,
			uint64_t first, uint64_t n, unsigned epoch, bool hole)
{
	uint64_t seed = hole ? 0 : h->lsn + 1, i;

	h->stable = LSN(epoch, ++h->lsn);
	CHECK_EQ(put(&h->f, comp, first, n, h->stable, seed), 0);
	for (i = first; i < first + n; i++)
		h->seeds[i] = seed;
}

static void history_work(struct history *h, struct lsom_comp *comp,
			 unsigned writes)
{
	struct sim_env *sim = &h->f.sim;
	uint64_t first, n;
	unsigned i;

	for (i = 0; i < writes; i++) {
		n = 1 + sim_env_random(sim, i % 4 == 0 ? 20 : 2);
		first = sim_env_random(sim, LAST - n);
		history_put(h, comp, first, n, 1, i % 11 == 5);
		if (i == writes / 2)
			checkpoint_make(&h->f);
	}
}

static void entry_get(struct lsom_comp *comp, uint64_t block,
		      struct lsom__entry *e)
{
	struct lsom__page *page;

	page = lsom__page_find(comp, block / LSOM__PAGE_SLOTS);
	memset(e, 0, sizeof(*e));
	if (page != NULL)
		lsom__slots_get(&page->slots, block % LSOM__PAGE_SLOTS, e);
}

static void history_restore(struct history *h)
{
	struct sim_env *sim = &h->f.sim;

	memcpy(sim->disk.durable, h->image, BYTES);
	memcpy(sim->disk.now, h->image, BYTES);
	wb_store_load(&sim->store, (struct memkv *)h->store);
	sim->lost_bytes = 0;
}

static struct lsom_comp *reopen(struct history *h, bool rebuild)
{
	struct lsom_decided d = { .stable_lsn = h->stable };
	struct lsom_comp *comp;

	CHECK_EQ(disk_open(&h->f, rebuild), 0);
	comp = comp_of(&h->f, 1);
	CHECK(comp != NULL);
	lsom_decided(comp, &d);
	return comp;
}

/* Write it, stop as told, and remember everything. */
static struct history *history_make(uint64_t seed, unsigned writes, bool cut)
{
	struct history *h = calloc(1, sizeof(*h));
	struct fixture *f = &h->f;
	struct lsom_comp *comp;

	tiny_open(f, seed);
	h->cut = cut;
	CHECK_EQ(create(f, 1, BLOCKS), 0);
	CHECK_EQ(create(f, 2, 64), 0);
	comp = comp_of(f, 2);
	CHECK_EQ(put(f, comp, 0, 8, LSN(1, 1), 7), 0);
	CHECK_EQ(update(f, comp, LSOM_DELETE, (struct lsom_comp_meta){ 0 }), 0);
	lsom_comp_put(comp);
	comp = comp_of(f, 1);
	history_work(h, comp, writes);
	history_put(h, comp, LAST, 1, 1, false);
	lsom_comp_put(comp);
	if (cut) {
		power_off(f);
	} else {
		/* Twice: so the generation of what was written is closed. */
		disk_close(f);
		CHECK_EQ(disk_open(f, false), 0);
		disk_close(f);
		sim_env_cut(&f->sim);
		sim_env_restore(&f->sim);
	}
	h->image = malloc(BYTES);
	memcpy(h->image, f->sim.disk.durable, BYTES);
	h->store = memkv_clone((struct memkv *)f->sim.store.flushed,
			       f->sim.store.merge);
	return h;
}

static void history_free(struct history *h)
{
	kv_close(h->store);
	free(h->image);
	lsom_close(h->f.lsom);
	sim_env_fini(&h->f.sim);
	free(h);
}

static void rot(struct history *h, uint64_t place, unsigned byte)
{
	struct sim_env *sim = &h->f.sim;
	uint64_t at = place * LSOM_BLOCK + byte;

	sim->disk.now[at] ^= 4;
	sim->disk.durable[at] ^= 4;
}

/* Did @block, as it should read, lie at @place before that rotted? */
static bool lay_at(const struct history *h, unsigned block, uint64_t place)
{
	uint8_t want[LSOM_BLOCK];

	fill(want, block, h->seeds[block]);
	return memcmp(want, h->image + place * LSOM_BLOCK, LSOM_BLOCK) == 0;
}

/* The number of blocks lost.  @place: which rotted; 0: any may be lost. */
static unsigned history_check(struct history *h, struct lsom_comp *comp,
			      uint64_t place)
{
	unsigned i, lost = 0;
	int rv;

	for (i = 0; i < BLOCKS; i++) {
		rv = get(&h->f, comp, i, h->seeds[i]);
		if (rv == (h->seeds[i] != 0))
			continue;
		if (i == LAST && h->cut && rv == 0)
			continue; /* a torn tail looks the same */
		if ((rv == -EBADMSG || (rv == -EIO && place != 0)) &&
		    (place == 0 || lay_at(h, i, place))) {
			lost++;
			continue;
		}
		print_error("place %llu rotted: block %u, %s %d\n",
			    (unsigned long long)place, i,
			    h->seeds[i] ? "data:" : "zeros:", rv);
		fail();
	}
	return lost;
}

static bool block_used(const struct history *h, uint64_t place)
{
	const uint8_t *p = h->image + place * LSOM_BLOCK;

	return p[0] != 0 || memcmp(p, p + 1, LSOM_BLOCK - 1) != 0;
}

/* Races do not depend on the block: for the slow search a sample is enough. */
#ifdef __SANITIZE_THREAD__
#define EVERY 13u
#else
#define EVERY 1u
#endif

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

/* Where the header of the @nth last batch of the guest's head is. */
static uint64_t header_find(const struct history *h, unsigned nth)
{
	uint64_t place = LSOM__DATA_START / LSOM_BLOCK, places[8] = { 0 };
	const struct lsom__batch_header *b;
	uint64_t last = 0;

	for (; place < BYTES / LSOM_BLOCK; place++) {
		b = (const void *)(h->image + place * LSOM_BLOCK);
		if (b->magic != LSOM__BATCH_MAGIC ||
		    b->head != LSOM__HEAD_GUEST)
			continue;
		last = MAX(last, b->batch);
		places[b->batch % 8] = place;
	}
	place = places[(last - nth) % 8];
	b = (const void *)(h->image + place * LSOM_BLOCK);
	CHECK_EQ(b->batch, last - nth);
	return place;
}

static void header_rot(struct history *h, unsigned nth)
{
	rot(h, header_find(h, nth), 100);
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

/* The header of the last batch that the cleaner wrote. */
static uint64_t cleaner_last(const struct history *h)
{
	uint64_t place = LSOM__DATA_START / LSOM_BLOCK, found = 0, last = 0;
	const struct lsom__batch_header *b;

	for (; place < BYTES / LSOM_BLOCK; place++) {
		b = (const void *)(h->image + place * LSOM_BLOCK);
		if (b->magic != LSOM__BATCH_MAGIC || b->batch <= last ||
		    b->head != LSOM__HEAD_CLEANER)
			continue;
		last = b->batch;
		found = place;
	}
	CHECK(found > 0);
	return found;
}

/*
 * The last batch of the cleaner, after a power cut that takes the index, too: it
 * has no summary and no batch after it.  Its data came from segments that are
 * used again, so it is no torn tail.  Where its header rots, too much may be
 * refused, as nobody knows what was in it; nothing is as it was before.
 */
TEST(damage, last_batch_of_the_cleaner)
{
	struct history *h = history_make(6, 1200, true);
	uint64_t place = cleaner_last(h), i;
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
	history_free(h);
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
 * A read of an opening fails, and the next time it does not: that is no reason
 * to take what was acknowledged for a torn tail.
 */
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

TEST(damage, a_read_fails_once)
{
	struct history *h = history_make(2, 60, true);
	struct lsom_comp *comp;
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
			comp = reopen(h, way > 0);
			CHECK_EQ(history_check(h, comp, 0), 0);
			lsom_comp_put(comp);
			power_off(&h->f);
		}
	}
	CHECK(whole > 0);
	history_free(h);
}

/* One superblock is enough, also the older one. */
TEST(damage, a_superblock)
{
	struct history *h = history_make(4, 40, true);
	struct lsom_comp *comp;
	unsigned i;

	for (i = 0; i < 4; i++) {
		history_restore(h);
		rot(h, i / 2 * LSOM__SUPER_GAP / LSOM_BLOCK, 100);
		comp = reopen(h, i % 2 == 1);
		CHECK_EQ(history_check(h, comp, 0), 0);
		lsom_comp_put(comp);
		power_off(&h->f);
	}
	for (i = 0; i < 4; i++) {
		history_restore(h);
		h->f.sim.lost_at = i / 2 * LSOM__SUPER_GAP;
		h->f.sim.lost_bytes = 512;
		comp = reopen(h, i % 2 == 1);
		CHECK_EQ(history_check(h, comp, 0), 0);
		lsom_comp_put(comp);
		power_off(&h->f);
	}
	history_free(h);
}

/* ---- more than one block ---- */

static void scanned(struct lsom_scan *req, int status)
{
	struct call *c = req->data;

	c->status = status;
	c->done = true;
}

static unsigned scan_count(struct history *h, struct lsom_comp *comp)
{
	static struct lsom_version items[BLOCKS];
	struct call c = { .f = &h->f };
	struct lsom_scan req = { .data = &c,
				 .len = BLOCKS * LSOM_BLOCK,
				 .items = items,
				 .items_max = BLOCKS };
	unsigned i, n = 0;

	CHECK_EQ(finish(&c, lsom_scan(comp, &req, scanned)), 0);
	CHECK_EQ(req.next, req.len);
	for (i = 0; i < req.items_count; i++)
		n += !items[i].hole;
	return n;
}

/* Write and unmap some of it under the next epoch, as an owner after a restart. */
static void heal(struct history *h, struct lsom_comp *comp, unsigned epoch)
{
	struct lsom_comp_meta m = *lsom_comp_meta(comp);
	unsigned first = epoch * 40, i;

	m.promised_oepoch = epoch;
	CHECK_EQ(update(&h->f, comp, LSOM_SEAL, m), 0);
	for (i = first; i < first + 40; i++) {
		history_put(h, comp, i, 1, epoch, i >= first + 20);
		CHECK_EQ(get(&h->f, comp, i, h->seeds[i]), h->seeds[i] != 0);
	}
	/* Also where there is no page of the index yet. */
	first = 760 + epoch * 10;
	history_put(h, comp, first, 10, epoch, true);
	CHECK_EQ(get(&h->f, comp, first, 0), 0);
}

/* Write what was written before, over and over, until the cleaner has worked. */
static void history_overwrite(struct history *h, struct lsom_comp *comp,
			      unsigned epoch)
{
	struct lsom__entry e;
	unsigned i;

	for (i = 0; i < 1000; i++)
		history_put(h, comp, 80 + i % 20, 1, epoch, false);
	entry_get(comp, 80 + (i - 1) % 20, &e);
	h->last_header = e.place - 1;
}

/* Behind what a batch's header says there is nothing of an older one. */
TEST(damage, headers_end_in_zeros)
{
	struct fixture *f = fixture_open(7);
	const uint8_t *disk = f->sim.disk.durable, *end;
	const struct lsom__batch_header *b;
	const struct lsom__echo *echo;
	struct lsom_comp *comp;
	unsigned headers = 0;
	size_t used;

	CHECK_EQ(create(f, 1, 4096), 0);
	comp = comp_of(f, 1);
	/* Long ones, then short ones from the same memory. */
	for (unsigned i = 0; i < 4 * LSOM__BATCHES; i++)
		CHECK_EQ(put(f, comp, i, i < LSOM__BATCHES ? 200 : 1,
			     LSN(1, i + 1), i + 1),
			 0);
	for (size_t at = 0; at < (64u << 20); at += LSOM_BLOCK) {
		b = (const void *)(disk + at);
		if (b->magic != LSOM__BATCH_MAGIC)
			continue;
		used = sizeof(*b) + b->records_bytes;
		echo = (const void *)(disk + at + used);
		used += sizeof(*echo) + echo->frame.records_bytes;
		end = disk + at + (size_t)b->header_blocks * LSOM_BLOCK;
		for (const uint8_t *p = disk + at + used; p < end; p++)
			CHECK_EQ(*p, 0);
		headers++;
	}
	CHECK(headers > 4 * LSOM__BATCHES);
	lsom_comp_put(comp);
	fixture_close(f);
}

/*
 * A header and its echo.  What was in the batch is not known, so nothing older
 * than the loss is shown; what is written again is there, whatever follows: a
 * restart, a checkpoint, cleaning, an index made from the log alone.
 */
TEST(damage, header_and_echo)
{
	unsigned way, epoch, lost, healed, holes;
	struct lsom_comp *comp;
	struct history *h;

	for (way = 0; way < 2; way++) {
		h = history_make(5, 14, true);
		header_rot(h, 3);
		header_rot(h, 2);
		healed = holes = 0;
		for (epoch = 2; epoch < 10; epoch++) {
			comp = reopen(h, epoch % 4 == 2 * way);
			CHECK_EQ(lsom_comp_meta(comp)->damaged, 1);
			lost = history_check(h, comp, 0);
			CHECK_EQ(lost, BLOCKS - healed);
			CHECK_EQ(scan_count(h, comp), BLOCKS - holes);
			heal(h, comp, epoch);
			healed += 50;
			holes += 30;
			if (epoch % 3 == 0)
				history_overwrite(h, comp, epoch);
			lsom_comp_put(comp);
			if (epoch % 2 == 0)
				disk_close(&h->f);
			else
				power_off(&h->f);
		}
		history_free(h);
	}
}

/*
 * The last header rots, and the checkpoint has what was in it.  Nothing is lost,
 * until the index is, too: then that batch is missed.
 */
TEST(damage, last_header_under_a_checkpoint)
{
	struct history *h = history_make(6, 20, true);
	struct lsom_comp *comp;
	unsigned round;

	history_restore(h);
	comp = reopen(h, false);
	history_overwrite(h, comp, 2);
	checkpoint_make(&h->f);
	lsom_comp_put(comp);
	power_off(&h->f);
	memcpy(h->image, h->f.sim.disk.durable, BYTES);
	h->cut = false;
	rot(h, h->last_header, 100);
	for (round = 0; round < 3; round++) {
		comp = reopen(h, round == 2);
		CHECK_EQ(history_check(h, comp, 0) > 0, round == 2);
		lsom_comp_put(comp);
		if (round == 0)
			disk_close(&h->f);
		else
			power_off(&h->f);
	}
	history_free(h);
}

/* The disk is @image again, its index as it is. */
static void set_back(struct history *h, const uint8_t *image)
{
	memcpy(h->f.sim.disk.durable, image, BYTES);
	memcpy(h->f.sim.disk.now, image, BYTES);
}

static const char *damage_of(struct fixture *f)
{
	static struct lsom_disk_info info;

	lsom_disk_info(f->disk, &info);
	return info.damage;
}

/*
 * A copy of the disk from before its last opening, or the disk set back to that:
 * it is refused, with all that it has, until somebody says to take it as it is.
 */
TEST(damage, older_copy_is_refused)
{
	uint64_t seeds[BLOCKS], seeds_newer[BLOCKS];
	struct history *h = history_make(7, 20, true);
	uint8_t *newer = malloc(BYTES);
	struct lsom_comp *comp;
	unsigned i;

	history_restore(h);
	memcpy(seeds, h->seeds, sizeof(seeds));
	comp = reopen(h, false);
	CHECK_STR(damage_of(&h->f), "");
	history_overwrite(h, comp, 2);
	checkpoint_make(&h->f);
	lsom_comp_put(comp);
	power_off(&h->f);
	memcpy(newer, h->f.sim.disk.durable, BYTES);
	memcpy(seeds_newer, h->seeds, sizeof(h->seeds));
	set_back(h, h->image);
	CHECK_EQ(disk_open(&h->f, false), -ESTALE);
	CHECK_EQ(memcmp(h->image, h->f.sim.disk.now, BYTES), 0);
	memcpy(h->seeds, seeds, sizeof(seeds));
	comp = reopen(h, true);
	CHECK_EQ(history_check(h, comp, 0), 0);
	history_overwrite(h, comp, 2); /* as many batches as the disk itself */
	for (i = 0; i < 10; i++) { /* and more checkpoints */
		history_put(h, comp, 80, 1, 2, false);
		checkpoint_make(&h->f);
	}
	CHECK_EQ(history_check(h, comp, 0), 0);
	lsom_comp_put(comp);
	power_off(&h->f);
	/* Now the disk itself, and the copy's index. */
	set_back(h, newer);
	CHECK_EQ(disk_open(&h->f, false), -EUCLEAN);
	memcpy(h->seeds, seeds_newer, sizeof(seeds_newer));
	comp = reopen(h, true);
	CHECK_EQ(history_check(h, comp, 0), 0);
	lsom_comp_put(comp);
	disk_close(&h->f);
	comp = reopen(h, false);
	CHECK_EQ(history_check(h, comp, 0), 0);
	lsom_comp_put(comp);
	disk_close(&h->f);
	free(newer);
	history_free(h);
}

/* One superblock that rots is not an older copy, though nothing was written. */
TEST(damage, newest_superblock_lost)
{
	struct history *h = history_make(8, 20, true);
	struct lsom_comp *comp;
	unsigned slot, round, byte;

	for (slot = 0; slot < 4; slot++) {
		byte = slot / 2 * 100; /* of the magic, or behind it */
		history_restore(h);
		for (round = 0; round < 2; round++) {
			comp = reopen(h, false);
			checkpoint_make(&h->f);
			CHECK_EQ(history_check(h, comp, 0), 0);
			lsom_comp_put(comp);
			power_off(&h->f);
			rot(h, slot % 2 * LSOM__SUPER_GAP / LSOM_BLOCK, byte);
		}
		comp = reopen(h, false);
		CHECK_EQ(history_check(h, comp, 0), 0);
		lsom_comp_put(comp);
		disk_close(&h->f);
	}
	history_free(h);
}

/*
 * Set back to an earlier hour of the same opening: nothing tells for certain, but
 * what was overwritten since is an error to read, never what it was, and the
 * disk says what happened.
 */
TEST(damage, set_back_within_an_opening)
{
	struct history *h = history_make(9, 20, true);
	uint8_t *image = malloc(BYTES);
	const struct lsom__segment *seg;
	struct lsom_comp *comp;
	unsigned i;

	history_restore(h);
	comp = reopen(h, false);
	history_overwrite(h, comp, 2);
	checkpoint_make(&h->f);
	memcpy(image, h->f.sim.disk.durable, BYTES);
	history_overwrite(h, comp, 2);
	lsom_comp_put(comp);
	disk_close(&h->f);
	set_back(h, image);
	comp = reopen(h, false);
	CHECK(strstr(damage_of(&h->f), "older copy") != NULL);
	CHECK(history_check(h, comp, 0) > 0);
	lsom_comp_put(comp);
	power_off(&h->f);
	comp = reopen(h, false); /* it stays so */
	CHECK(history_check(h, comp, 0) > 0);
	for (i = 0; i < BLOCKS; i++)
		if (get(&h->f, comp, i, h->seeds[i]) == -EBADMSG)
			history_put(h, comp, i, 1, 2, false);
	CHECK_EQ(history_check(h, comp, 0), 0);
	for (i = 0; i < 4; i++)
		checkpoint_make(&h->f);
	for (i = 0; i < SEGMENTS; i++) {
		seg = &h->f.disk->segments[i];
		CHECK(seg->live > 0 || !seg->set_back ||
		      seg->state == LSOM__SEG_FREE);
	}
	CHECK(lsom__segments_oldest(h->f.disk, LSOM__NONE) > 0);
	history_overwrite(h, comp, 2);
	CHECK_EQ(history_check(h, comp, 0), 0);
	lsom_comp_put(comp);
	disk_close(&h->f);
	comp = reopen(h, false); /* until all of it was written again */
	CHECK_STR(damage_of(&h->f), "");
	CHECK_EQ(history_check(h, comp, 0), 0);
	lsom_comp_put(comp);
	disk_close(&h->f);
	free(image);
	history_free(h);
}

/*
 * Set back by less than a segment: all headers are as they were, and only that
 * the segment was not closed yet tells it.
 */
TEST(damage, set_back_within_a_segment)
{
	struct history *h = history_make(10, 20, true);
	uint8_t *image = malloc(BYTES);
	struct lsom_comp *comp;

	history_restore(h);
	comp = reopen(h, false);
	history_put(h, comp, 0, 2, 2, false);
	checkpoint_make(&h->f);
	memcpy(image, h->f.sim.disk.durable, BYTES);
	history_put(h, comp, 1, 2, 2, false);
	lsom_comp_put(comp);
	disk_close(&h->f);
	set_back(h, image);
	comp = reopen(h, false);
	CHECK(strstr(damage_of(&h->f), "batches of the log were lost") != NULL);
	CHECK_EQ(get(&h->f, comp, 0, h->seeds[0]), 1);
	CHECK_EQ(get(&h->f, comp, 1, h->seeds[1]), -EBADMSG);
	CHECK_EQ(get(&h->f, comp, 2, h->seeds[2]), -EBADMSG);
	lsom_comp_put(comp);
	disk_close(&h->f);
	free(image);
	history_free(h);
}

/* Nothing is left of the segment that has @place. */
static void segment_wipe(struct fixture *f, uint64_t place)
{
	uint64_t at = ROUND_DOWN(place * LSOM_BLOCK - LSOM__DATA_START,
				 (uint64_t)SEGMENT) +
		      LSOM__DATA_START;

	memset(f->sim.disk.now + at, 0, SEGMENT);
	memset(f->sim.disk.durable + at, 0, SEGMENT);
}

/*
 * A whole segment of the log is gone, which the index does not know yet, with the
 * only batch it had: what follows it tells that it was there, and nothing reads
 * as it was before.  At the next opening, too, until it is written again.
 */
TEST(damage, a_segment_is_lost_since_the_checkpoint)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct lsom_decided d = { .stable_lsn = LSN(1, 4) };
	struct lsom_comp *comp;
	struct lsom__entry e;
	unsigned way;

	tiny_open(f, 15);
	CHECK_EQ(create(f, 1, BLOCKS), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, FULL, LSN(1, 1), 1), 0);
	CHECK_EQ(put(f, comp, FULL, FULL, LSN(1, 2), 2), 0);
	checkpoint_make(f);
	CHECK_EQ(put(f, comp, 0, FULL, LSN(1, 3), 3), 0);
	entry_get(comp, 0, &e);
	CHECK_EQ(put(f, comp, FULL, FULL, LSN(1, 4), 4), 0);
	lsom_comp_put(comp);
	power_off(f);
	segment_wipe(f, e.place);
	for (way = 0; way < 2; way++) {
		CHECK_EQ(disk_open(f, false), 0);
		comp = comp_of(f, 1);
		lsom_decided(comp, &d);
		CHECK(lsom_comp_meta(comp)->damaged != 0);
		CHECK_EQ(get(f, comp, 0, 3), -EBADMSG);
		CHECK_EQ(get(f, comp, FULL, 4), -EBADMSG);
		CHECK_EQ(put(f, comp, 1, 1, LSN(2, way + 1), 5 + way), 0);
		CHECK_EQ(get(f, comp, 1, 5 + way), 1);
		lsom_comp_put(comp);
		power_off(f);
	}
	lsom_close(f->lsom);
	sim_env_fini(&f->sim);
	free(f);
}

/* The one that was open at the checkpoint: what came to it since nobody knows. */
TEST(damage, the_open_segment_is_lost)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct lsom_decided d = { .stable_lsn = LSN(1, 3) };
	struct lsom_comp *comp;
	struct lsom__entry e;

	tiny_open(f, 16);
	CHECK_EQ(create(f, 1, BLOCKS), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, FULL, LSN(1, 1), 1), 0);
	CHECK_EQ(put(f, comp, FULL, 16, LSN(1, 2), 2), 0);
	entry_get(comp, FULL, &e);
	checkpoint_make(f);
	CHECK_EQ(put(f, comp, 0, 1, LSN(1, 3), 3), 0);
	lsom_comp_put(comp);
	power_off(f);
	segment_wipe(f, e.place);
	CHECK_EQ(disk_open(f, false), 0);
	comp = comp_of(f, 1);
	lsom_decided(comp, &d);
	CHECK_EQ(get(f, comp, 0, 3), -EBADMSG);
	CHECK_EQ(get(f, comp, FULL, 2), -EBADMSG);
	lsom_comp_put(comp);
	power_off(f);
	lsom_close(f->lsom);
	sim_env_fini(&f->sim);
	free(f);
}

/*
 * A batch behind the torn tail is dropped, and stays dropped where the header
 * that says so rots: it is not what its segment begins with any more.
 */
TEST(damage, a_dropped_batch_under_a_header)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct call torn = { .f = f }, whole = { .f = f };
	struct lsom_decided d = { .stable_lsn = LSN(1, 1) };
	struct lsom_comp *comp;
	struct lsom__entry e;
	uint8_t *header;
	unsigned way;
	uint64_t at;

	tiny_open(f, 17);
	CHECK_EQ(create(f, 1, BLOCKS), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, FULL, LSN(1, 1), 1), 0);
	/* On their way together, to a segment each. */
	CHECK_EQ(write_start(&torn, comp, LSOM_RCOPY, FULL, FULL, LSN(1, 2), 2),
		 0);
	CHECK_EQ(write_start(&whole, comp, LSOM_RCOPY, 0, FULL, LSN(1, 3), 3),
		 0);
	CHECK(sim_env_run(&f->sim, &torn.done));
	CHECK(sim_env_run(&f->sim, &whole.done));
	entry_get(comp, 0, &e);
	at = lsom__place(f->disk, lsom__segment_of(f->disk, e.place), 0) *
	     LSOM_BLOCK;
	header = f->sim.disk.durable + at;
	entry_get(comp, FULL, &e);
	lsom_comp_put(comp);
	power_off(f);
	segment_wipe(f, e.place);
	for (way = 0; way < 2; way++) {
		CHECK_EQ(disk_open(f, way == 1), 0);
		comp = comp_of(f, 1);
		lsom_decided(comp, &d);
		CHECK_EQ(lsom_comp_meta(comp)->damaged, 0);
		CHECK_EQ(get(f, comp, 0, 1), 1);
		CHECK_EQ(get(f, comp, FULL, 2), 0);
		lsom_comp_put(comp);
		power_off(f);
		header[100] ^= 4;
		f->sim.disk.now[at + 100] ^= 4;
	}
	lsom_close(f->lsom);
	sim_env_fini(&f->sim);
	free(f);
}

/* Other data than @data, of the same CRC32C: the polynomial makes no difference. */
static void collide(uint8_t *data)
{
	const uint32_t crc = crc32c(data, LSOM_BLOCK);
	uint64_t word;

	memcpy(&word, data + 800, sizeof(word));
	word ^= 0x82f63b78ull << 1 | 1;
	memcpy(data + 800, &word, sizeof(word));
	CHECK_EQ(crc32c(data, LSOM_BLOCK), crc);
}

/*
 * What lies in a segment that was set back is not what was written, also where
 * its CRC says so; a scan tells what the index has.  What is written again is as
 * good as ever.
 */
TEST(damage, set_back_is_not_judged_by_its_crc)
{
	struct history *h = history_make(9, 20, true);
	uint8_t *image = malloc(BYTES), *data;
	struct lsom__entry e;
	struct lsom_comp *comp;
	unsigned i, mapped, bad = 0;

	history_restore(h);
	comp = reopen(h, false);
	history_overwrite(h, comp, 2);
	checkpoint_make(&h->f);
	memcpy(image, h->f.sim.disk.durable, BYTES);
	history_overwrite(h, comp, 2);
	mapped = scan_count(h, comp);
	lsom_comp_put(comp);
	disk_close(&h->f);
	set_back(h, image);
	comp = reopen(h, false);
	CHECK(h->f.disk->segments_set_back > 0);
	CHECK_EQ(scan_count(h, comp), mapped);
	for (i = 0; i < BLOCKS; i++) {
		entry_get(comp, i, &e);
		if (e.kind != LSOM__E_RAW ||
		    !lsom__segment_set_back(h->f.disk, e.place))
			continue;
		data = h->f.sim.disk.now + e.place * LSOM_BLOCK;
		fill(data, i, h->seeds[i]);
		collide(data);
		CHECK_EQ(get(&h->f, comp, i, h->seeds[i]), -EBADMSG);
		bad++;
	}
	CHECK(bad > 0);
	for (i = 0; i < BLOCKS; i++)
		if (get(&h->f, comp, i, h->seeds[i]) == -EBADMSG)
			history_put(h, comp, i, 1, 2, false);
	CHECK_EQ(history_check(h, comp, 0), 0);
	CHECK_EQ(scan_count(h, comp), mapped);
	lsom_comp_put(comp);
	disk_close(&h->f);
	free(image);
	history_free(h);
}
