/*
 * Which headers an opening reads: few of a large disk, and all that may not be
 * what the index says.
 */
#include "lsom/recover_int.h"
#include "tests/unit/lsom_rig.h"

#include "tests/lib/memkv.h"

#include <time.h>

#define RUN 48u /* blocks of a write: a tiny segment has room for one */
#define SUPERS 2u
#define FEW 48u /* reads; of free ones a window, and what was open */

static int opening(struct fixture *f)
{
	f->sim.reads_alone = f->sim.reads_together = 0;
	return disk_open(f, false);
}

static uint64_t reads(const struct fixture *f)
{
	return f->sim.reads_alone + f->sim.reads_together;
}

/*
 * Headers that lie, each of a generation of its own, make an opening look at each
 * of them, not at all of them for each.
 */
TEST(headers, each_of_another_generation)
{
	const uint32_t n = 100000;
	struct fixture *f = fixture_open(9);
	struct lsom_disk *disk = calloc(1, sizeof(*disk));
	struct lsom__recovery rec = { .disk = disk };
	clock_t since;

	disk->lsom = f->lsom;
	disk->super.segments = n;
	rec.headers = calloc(n, sizeof(*rec.headers));
	rec.order = calloc(n, sizeof(*rec.order));
	rec.open = calloc(n, sizeof(*rec.open));
	rec.void_segment = malloc(n);
	memset(rec.void_segment, true, n); /* so that none is read */
	for (uint32_t i = 0; i < n; i++) {
		rec.headers[i].sequence = i + 1;
		rec.headers[i].generation = 1 + i * 7919ull % n;
		rec.headers[i].head = LSOM__HEAD_GUEST;
	}
	since = clock();
	CHECK_EQ(lsom__runs_find(&rec), 0);
	CHECK(clock() - since < 5 * CLOCKS_PER_SEC);
	CHECK_EQ(rec.order_count, n);
	for (uint32_t i = 0; i < n; i++)
		CHECK_EQ(rec.headers[rec.order[i]].generation, i + 1);
	free(rec.void_segment);
	free(rec.open);
	free(rec.order);
	free(rec.headers);
	free(disk);
	fixture_close(f);
}

/* ---- how many ---- */

/* A segment each, of which little is used. */
static void segments_use(struct fixture *f, uint64_t from, uint64_t to)
{
	struct lsom__head *head = &f->disk->heads[LSOM__HEAD_GUEST];
	struct lsom_comp *comp = comp_of(f, 1);
	uint32_t segment;
	uint64_t i;

	for (i = from; i < to; i++) {
		CHECK_EQ(put(f, comp, i, 1, LSN(1, i + 1), i + 1), 0);
		segment = head->segment;
		head->segment = LSOM__NONE;
		lsom__segment_close(f->disk, segment);
	}
	lsom_comp_put(comp);
}

static void used_check(struct fixture *f, uint64_t count)
{
	struct lsom_decided d = { .stable_lsn = LSN(1, count) };
	struct lsom_comp *comp = comp_of(f, 1);
	uint64_t i;

	CHECK(comp != NULL);
	lsom_decided(comp, &d);
	for (i = 0; i < count; i++)
		CHECK_EQ(get(f, comp, i, i + 1), 1);
	lsom_comp_put(comp);
}

/* 4096 segments on a raw device, which had other contents before. */
TEST(headers, few_of_many)
{
	const uint32_t n = 4096;
	struct fixture *f =
		fixture_of(1, (1u << 20) + (uint64_t)n * LSOM__SEGMENT_TINY,
			   LSOM__SEGMENT_TINY);
	uint64_t place, records;
	uint32_t i;

	CHECK_EQ(f->disk->super.segments, n);
	f->disk->info.block_device = true; /* nothing is zeroed */
	CHECK_EQ(create(f, 1, 1u << 20), 0);
	segments_use(f, 0, 3000);
	for (i = 3100; i < n; i++) {
		place = lsom__place(f->disk, i, 0) * LSOM_BLOCK;
		f->sim.disk.now[place] = f->sim.disk.durable[place] = 7;
	}
	disk_close(f);
	CHECK_EQ(opening(f), 0);
	CHECK(reads(f) < SUPERS + FEW);
	f->disk->info.block_device = true;
	used_check(f, 3000);

	/* What was taken since the last checkpoint, and its summaries. */
	checkpoint_make(f);
	segments_use(f, 3000, 3200);
	records = f->disk->checkpoint_number;
	sim_env_cut(&f->sim);
	disk_close(f);
	sim_env_restore(&f->sim);
	CHECK_EQ(opening(f), 0);
	CHECK(f->disk->position.number <= records);
	CHECK(f->disk->recovered_records > 0);
	CHECK(reads(f) < n);
	used_check(f, 3200);
	fixture_close(f);
}

/* An index of an earlier version has no headers: they are read this once. */
TEST(headers, of_an_earlier_version)
{
	struct fixture *f = fixture_of(2, 128u << 20, LSOM__SEGMENT_TINY);
	uint32_t n = f->disk->super.segments;
	struct kv_batch batch;
	unsigned i;

	CHECK_EQ(create(f, 1, 1u << 20), 0);
	segments_use(f, 0, 300);
	disk_close(f);
	for (i = 0; i < 2; i++) {
		CHECK_EQ(opening(f), 0);
		CHECK(reads(f) < SUPERS + FEW);
		/* As it would have left the superblock, and the index. */
		f->disk->super.index_flushed = 0;
		kv_batch_init(&batch);
		kv_batch_delete_range(&batch, kv_slice("H", 1),
				      kv_slice("I", 1));
		if (i == 1) {
			CHECK_EQ(kv_apply(f->disk->kv, &batch), 0);
			CHECK_EQ(kv_flush(f->disk->kv), 0);
		}
		kv_batch_fini(&batch);
		CHECK_EQ(lsom__super_write_now(f->disk), 0);
		sim_env_cut(&f->sim);
		disk_close(f);
		sim_env_restore(&f->sim);
		CHECK_EQ(opening(f), 0);
		CHECK(reads(f) >= n);
		used_check(f, 300);
		disk_close(f);
	}
	CHECK_EQ(opening(f), 0);
	CHECK(reads(f) < SUPERS + FEW);
	used_check(f, 300);
	fixture_close(f);
}

static uint64_t features(const struct fixture *f)
{
	struct lsom__super super[2];
	unsigned i;

	for (i = 0; i < 2; i++)
		CHECK_EQ(lsom__super_decode(f->sim.disk.now +
						    i * LSOM__SUPER_GAP,
					    &super[i]),
			 0);
	return super[super[1].sequence > super[0].sequence].incompat;
}

/*
 * What an opening writes first tells an earlier version to leave the disk alone:
 * of the next thing it may not know what it is.
 */
TEST(headers, features_come_first)
{
	struct fixture *f = fixture_of(4, 128u << 20, LSOM__SEGMENT_TINY);
	struct lsom_comp *comp;
	unsigned i;

	CHECK_EQ(create(f, 1, 1u << 20), 0);
	segments_use(f, 0, 300);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 300, 1, LSN(1, 301), 301), 0);
	lsom_comp_put(comp); /* in a segment that gets its summary then */
	for (i = 0; i < 2; i++) {
		f->disk->super.incompat = 0;
		CHECK_EQ(lsom__super_write_now(f->disk), 0);
	}
	sim_env_cut(&f->sim);
	disk_close(f);
	sim_env_restore(&f->sim);
	CHECK_EQ(features(f), 0);
	f->sim.fail_write = 2;
	CHECK_EQ(opening(f), -EIO);
	CHECK_EQ(features(f), LSOM__INCOMPAT);
	CHECK_EQ(opening(f), 0);
	used_check(f, 301);
	fixture_close(f);
}

/* A superblock that is not whole may have said something else. */
TEST(headers, all_without_a_superblock)
{
	struct fixture *f = fixture_of(3, 128u << 20, LSOM__SEGMENT_TINY);
	uint32_t n = f->disk->super.segments, i;

	CHECK_EQ(create(f, 1, 1u << 20), 0);
	segments_use(f, 0, 300);
	for (i = 0; i < 2; i++) {
		disk_close(f);
		f->sim.disk.now[i * LSOM__SUPER_GAP + 200] ^= 1;
		CHECK_EQ(opening(f), 0);
		CHECK(reads(f) >= n);
		used_check(f, 300);
	}
	fixture_close(f);
}

/* ---- what may not be believed ---- */

/* Random blocks, over and over, so that the cleaner works; @seeds: what is where. */
static void overwrite(struct fixture *f, uint64_t *seeds, uint64_t blocks,
		      unsigned writes, uint64_t *lsn)
{
	struct lsom_comp *comp = comp_of(f, 1);
	uint64_t at, i;

	for (; writes > 0; writes--) {
		at = sim_env_random(&f->sim, blocks / RUN) * RUN;
		++*lsn;
		CHECK_EQ(put(f, comp, at, RUN, LSN(1, *lsn), *lsn), 0);
		for (i = at; i < at + RUN; i++)
			seeds[i] = *lsn;
	}
	lsom_comp_put(comp);
}

static void seeds_check(struct fixture *f, const uint64_t *seeds,
			uint64_t blocks, uint64_t lsn)
{
	struct lsom_decided d = { .stable_lsn = LSN(1, lsn) };
	struct lsom_comp *comp = comp_of(f, 1);
	uint64_t i;

	CHECK(comp != NULL);
	lsom_decided(comp, &d);
	for (i = 0; i < blocks; i += 5)
		CHECK_EQ(get(f, comp, i, seeds[i]), seeds[i] != 0);
	lsom_comp_put(comp);
}

/*
 * The power goes again and again, while segments are taken, filled, cleaned,
 * erased: what the index does not tell is read.
 */
TEST(headers, after_power_cuts)
{
	const uint64_t blocks = 96 * RUN;
	uint64_t *seeds = calloc(blocks, sizeof(*seeds)), lsn = 0;
	struct fixture *f = fixture_of(4, 64u << 20, LSOM__SEGMENT_TINY);
	uint32_t n = f->disk->super.segments;
	unsigned i, few = 0;

	CHECK_EQ(create(f, 1, 1u << 20), 0);
	for (i = 0; i < 120; i++) {
		overwrite(f, seeds, blocks,
			  (unsigned)sim_env_random(&f->sim, 60), &lsn);
		if (i % 5 == 0)
			checkpoint_make(f);
		sim_env_cut(&f->sim);
		disk_close(f);
		sim_env_restore(&f->sim);
		CHECK_EQ(opening(f), 0);
		few += f->sim.reads_together < n;
		seeds_check(f, seeds, blocks, lsn);
	}
	CHECK(few > 30);
	fixture_close(f);
	free(seeds);
}

/*
 * An index from before segments of its were erased and taken again: it does not
 * know, and is not asked.
 */
TEST(headers, an_index_that_is_older)
{
	const uint64_t blocks = 96 * RUN;
	uint64_t *seeds = calloc(blocks, sizeof(*seeds)), lsn = 0;
	struct fixture *f = fixture_of(5, 64u << 20, LSOM__SEGMENT_TINY);
	struct kv *older;

	CHECK_EQ(create(f, 1, 1u << 20), 0);
	overwrite(f, seeds, blocks, 100, &lsn);
	checkpoint_make(f);
	older = memkv_clone((struct memkv *)f->sim.store.flushed,
			    f->sim.store.merge);
	overwrite(f, seeds, blocks, 600, &lsn);
	checkpoint_make(f);
	overwrite(f, seeds, blocks, 3, &lsn);
	sim_env_cut(&f->sim);
	disk_close(f);
	sim_env_restore(&f->sim);
	wb_store_load(&f->sim.store, (struct memkv *)older);
	CHECK_EQ(opening(f), -EUCLEAN);
	CHECK(reads(f) >= 252);
	CHECK_EQ(disk_open(f, true), 0);
	seeds_check(f, seeds, blocks, lsn);
	fixture_close(f);
	kv_close(older);
	free(seeds);
}

/*
 * One that is older and not too old goes on, and no checkpoint of it has a number
 * that one has that was made before: by its number an index is known as the last.
 */
TEST(headers, an_index_that_goes_on_from_an_older_one)
{
	struct fixture *f = fixture_open(6);
	struct lsom_comp *comp;
	struct kv *older;
	uint64_t number;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, 1, LSN(1, 1), 1), 0);
	checkpoint_make(f);
	older = memkv_clone((struct memkv *)f->sim.store.flushed,
			    f->sim.store.merge);
	for (unsigned i = 2; i < 4; i++) {
		CHECK_EQ(put(f, comp, i, 1, LSN(1, i), i), 0);
		checkpoint_make(f);
	}
	number = f->disk->flushed_number;
	lsom_comp_put(comp);
	sim_env_cut(&f->sim);
	disk_close(f);
	sim_env_restore(&f->sim);
	wb_store_load(&f->sim.store, (struct memkv *)older);
	CHECK_EQ(disk_open(f, false), 0);
	CHECK_EQ(f->disk->position.number, number - 2);
	comp = comp_of(f, 1);
	lsom_decided(comp, &(struct lsom_decided){ .stable_lsn = LSN(1, 3) });
	CHECK_EQ(get(f, comp, 3, 3), 1);
	lsom_comp_put(comp);
	checkpoint_make(f);
	CHECK_EQ(f->disk->flushed_number, f->disk->checkpoint_number);
	CHECK(f->disk->flushed_number > number);
	fixture_close(f);
	kv_close(older);
}

static void header_put(struct fixture *f, uint64_t at,
		       const struct lsom__segment_header *h)
{
	memset(f->sim.disk.now + at, 0, LSOM_BLOCK);
	memcpy(f->sim.disk.now + at, h, sizeof(*h));
	lsom__segment_header_seal(f->sim.disk.now + at);
	memcpy(f->sim.disk.durable + at, f->sim.disk.now + at, LSOM_BLOCK);
}

/* A header that lies of its generation costs no walk through all those before. */
TEST(headers, of_a_generation_that_never_was)
{
	struct fixture *f = fixture_open(13);
	struct lsom__segment_header h = {
		.magic = LSOM__SEGMENT_MAGIC,
		.disk = f->id,
		.sequence = 1000,
		.generation = 1ull << 60,
		.open_pos = 1,
		.first_batch = 1,
		.segment = f->disk->super.segments - 1,
		.version = LSOM__LOG_VERSION,
	};
	uint64_t at = lsom__place(f->disk, h.segment, 0) * LSOM_BLOCK;
	struct lsom_decided d = { .stable_lsn = LSN(1, 1) };
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, 1, LSN(1, 1), 1), 0);
	lsom_comp_put(comp);
	disk_close(f);
	header_put(f, at, &h);
	CHECK_EQ(disk_open(f, true), 0);
	comp = comp_of(f, 1);
	lsom_decided(comp, &d);
	CHECK_EQ(get(f, comp, 0, 1), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* Nor does one wrap a count that goes on from it, and with that the superblock. */
TEST(headers, of_counts_at_their_end)
{
	struct fixture *f = fixture_open(14);
	struct lsom__segment_header h;
	unsigned i;

	for (i = 0; i < 5; i++) {
		h = (struct lsom__segment_header){
			.magic = LSOM__SEGMENT_MAGIC,
			.disk = f->id,
			.sequence = i == 0 ? UINT64_MAX : 1000,
			.generation = i == 1 ? UINT64_MAX : 1,
			.open_pos = i == 2 ? UINT64_MAX : 1,
			.index_number = i == 3 ? UINT64_MAX : 0,
			.first_batch = i == 4 ? UINT64_MAX : 1,
			.segment = f->disk->super.segments - 1,
			.version = LSOM__LOG_VERSION,
		};
		disk_close(f);
		header_put(f,
			   LSOM__DATA_START + (uint64_t)h.segment * (1u << 20),
			   &h);
		CHECK_EQ(disk_open(f, true), 0);
		CHECK(f->disk->super.generation < 100);
		CHECK(f->disk->sequence_next < 100000);
		disk_close(f);
		CHECK_EQ(disk_open(f, false), 0);
	}
	fixture_close(f);
}

/* Where the header is damaged its first batch tells, and may lie as well. */
TEST(headers, of_a_first_batch_that_lies)
{
	struct fixture *f = fixture_open(15);
	uint64_t at = lsom__place(f->disk, f->disk->super.segments - 1, 0) *
		      LSOM_BLOCK;
	struct lsom__batch_header b = {
		.magic = LSOM__BATCH_MAGIC,
		.disk = f->id,
		.generation = UINT64_MAX,
		.segment_sequence = 1000,
		.batch = 1,
		.version = LSOM__LOG_VERSION,
		.header_blocks = 1,
		.block = 1,
	};

	disk_close(f);
	memset(f->sim.disk.now + at, 0, 2 * LSOM_BLOCK);
	memset(f->sim.disk.now + at, 7, 64);
	memcpy(f->sim.disk.now + at + LSOM_BLOCK, &b, sizeof(b));
	lsom__batch_seal(f->sim.disk.now + at + LSOM_BLOCK, 1, LSOM_BLOCK);
	memcpy(f->sim.disk.durable + at, f->sim.disk.now + at, 2 * LSOM_BLOCK);
	CHECK_EQ(disk_open(f, true), 0);
	CHECK(f->disk->super.generation < 100);
	disk_close(f);
	CHECK_EQ(disk_open(f, false), 0);
	fixture_close(f);
}

/*
 * Nor is a summary looked for where its length says that it cannot be: the header
 * is what the device lost, not the disk.
 */
TEST(headers, of_a_summary_that_lies)
{
	struct fixture *f = fixture_open(16);
	uint32_t all = f->disk->segment_blocks, i;
	const uint32_t lengths[] = { 0, all, all + 1, UINT32_MAX };
	struct lsom__summary_footer foot = {
		.magic = LSOM__SUMMARY_MAGIC,
		.segment_sequence = 1000,
	};
	uint64_t at = lsom__place(f->disk, f->disk->super.segments - 1, 0) *
		      LSOM_BLOCK;
	uint64_t foot_at = at + (uint64_t)all * LSOM_BLOCK - sizeof(foot);

	f->sim.lost_at = at;
	f->sim.lost_bytes = 512;
	f->sim.lost_status = -EIO;
	for (i = 0; i < ARRAY_LEN(lengths); i++) {
		foot.blocks = lengths[i];
		disk_close(f);
		memcpy(f->sim.disk.now + foot_at, &foot, sizeof(foot));
		memcpy(f->sim.disk.durable + foot_at, &foot, sizeof(foot));
		CHECK_EQ(disk_open(f, true), 0);
	}
	fixture_close(f);
}
