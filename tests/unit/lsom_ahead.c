/*
 * What an opening reads ahead: nothing waits alone, and nothing is decided
 * otherwise than if it had been read when it was wanted, wherever in a window
 * it lies.
 */
#include "lsom/recover_int.h"
#include "tests/unit/lsom_rig.h"

#define RUN 48u /* blocks of a write: a segment has room for one */
#define SUPERS 2u

/* 508 segments: the headers are a window and most of another. */
static struct fixture *many_open(uint64_t seed)
{
	struct fixture *f = fixture_of(seed, 128u << 20, LSOM__SEGMENT_TINY);

	CHECK(f->disk->super.segments > LSOM__AHEAD);
	CHECK(f->disk->super.segments < 2 * LSOM__AHEAD);
	CHECK_EQ(create(f, 1, 1u << 20), 0);
	return f;
}

/* Writes of one segment each. */
static void fill_segments(struct fixture *f, uint64_t from, uint64_t to)
{
	struct lsom_comp *comp = comp_of(f, 1);
	uint64_t i;

	for (i = from; i < to; i++)
		CHECK_EQ(put(f, comp, i * RUN, RUN, LSN(1, i + 1), i + 1), 0);
	lsom_comp_put(comp);
}

static void all_there(struct fixture *f, uint64_t count)
{
	struct lsom_decided d = { .stable_lsn = LSN(1, count) };
	struct lsom_comp *comp = comp_of(f, 1);
	uint64_t i;

	CHECK(comp != NULL);
	lsom_decided(comp, &d);
	for (i = 0; i < count * RUN; i += 17)
		CHECK_EQ(get(f, comp, i, i / RUN + 1), 1);
	CHECK_EQ(get(f, comp, count * RUN, 0), 0);
	CHECK(!lsom_comp_meta(comp)->damaged);
	lsom_comp_put(comp);
}

/* One superblock is not whole: of the index no header is believed. */
static void super_rot(struct fixture *f)
{
	f->sim.disk.now[200] ^= 1;
	f->sim.disk.durable[200] ^= 1;
}

static void reads_reset(struct fixture *f)
{
	f->sim.reads_alone = f->sim.reads_together = 0;
}

/*
 * Headers and summaries lie in windows: none is read alone, and none in vain.  Of
 * what the index has one summary is read, of the segment that was written last.
 */
TEST(ahead, nothing_is_read_alone)
{
	struct fixture *f = many_open(31);
	uint32_t n = f->disk->super.segments;

	fill_segments(f, 0, 380);
	disk_close(f);
	super_rot(f);
	reads_reset(f);
	CHECK_EQ(disk_open(f, false), 0);
	CHECK_EQ(f->sim.reads_alone, SUPERS);
	CHECK_EQ(f->sim.reads_together, n + 2);
	all_there(f, 380);

	/* Last block and summary, in four passes. */
	disk_close(f);
	reads_reset(f);
	CHECK_EQ(disk_open(f, true), 0);
	CHECK_EQ(f->sim.reads_alone, SUPERS);
	CHECK_EQ(f->sim.reads_together, n + 8 * 380);
	all_there(f, 380);
	fixture_close(f);
}

/* A power cut: only what no checkpoint covers is read, however much there is. */
TEST(ahead, after_a_power_cut)
{
	struct fixture *f = many_open(32);
	uint32_t n = f->disk->super.segments;

	fill_segments(f, 0, 380);
	reads_reset(f);
	sim_env_cut(&f->sim);
	disk_close(f);
	sim_env_restore(&f->sim);
	super_rot(f);
	CHECK_EQ(disk_open(f, false), 0);
	CHECK(f->sim.reads_alone < SUPERS + 20);
	CHECK(f->sim.reads_together > n + 2);
	CHECK(f->sim.reads_together < n + 380 / 2);
	all_there(f, 380);
	fixture_close(f);
}

/* Nothing but the headers, and one segment in use. */
TEST(ahead, one_segment_in_use)
{
	struct fixture *f = many_open(33);
	unsigned i;

	fill_segments(f, 0, 1);
	for (i = 0; i < 3; i++) {
		if (i == 1) {
			disk_close(f);
			CHECK_EQ(disk_open(f, true), 0);
		} else {
			CHECK_EQ(power_cut(f), 0);
		}
		all_there(f, 1);
	}
	fixture_close(f);
}

/* The first and the last of windows, one in the middle, and the last of all. */
static const uint32_t edges[] = { 0, 1, 100, 255, 256, 257, 379 };

static void lose(struct fixture *f, uint32_t segment, uint32_t block)
{
	f->sim.lost_at = LSOM__DATA_START +
			 (uint64_t)segment * LSOM__SEGMENT_TINY +
			 (uint64_t)block * LSOM_BLOCK;
	f->sim.lost_bytes = LSOM_BLOCK;
}

/*
 * A header that cannot be read costs that segment's, whatever was read with it:
 * the medium lost it, or the read failed once.
 */
TEST(ahead, a_header_in_a_window)
{
	struct fixture *f = many_open(34);
	uint32_t last = f->disk->super.segments - 1;
	char text[80];
	unsigned i, way;

	fill_segments(f, 0, 380);
	for (i = 0; i < ARRAY_LEN(edges); i++)
		for (way = 0; way < 4; way++) {
			disk_close(f);
			super_rot(f);
			if (way % 2 == 0) {
				lose(f, edges[i], 0);
			} else {
				f->sim.fail_read = SUPERS + edges[i] + 1;
			}
			snprintf(text, sizeof(text),
				 "the header of segment %u is damaged: what it "
				 "holds is known",
				 edges[i]);
			CHECK_EQ(open_saying(f, way > 1, text), 1);
			CHECK_EQ(f->sim.fail_read, 0);
			f->sim.lost_bytes = 0;
			all_there(f, 380);
		}
	/* One that was never used has nothing to lose. */
	disk_close(f);
	super_rot(f);
	lose(f, last, 0);
	CHECK_EQ(open_saying(f, false, ": 1 segment has no header of ours"), 1);
	f->sim.lost_bytes = 0;
	all_there(f, 380);
	fixture_close(f);
}

/* What the index has is not asked for; without it the summaries are. */
TEST(ahead, a_last_block_in_a_window)
{
	struct fixture *f = many_open(35);
	char text[80];
	unsigned i;

	fill_segments(f, 0, 380);
	disk_close(f);
	CHECK_EQ(disk_open(f, false), 0);
	for (i = 0; i < ARRAY_LEN(edges); i++) {
		disk_close(f);
		lose(f, edges[i], LSOM__SEGMENT_TINY / LSOM_BLOCK - 1);
		snprintf(text, sizeof(text),
			 "segment %u: its summary is damaged", edges[i]);
		CHECK(open_saying(f, true, text) > 0);
		f->sim.lost_bytes = 0;
		all_there(f, 380);
	}
	fixture_close(f);
}

/* Where the error of one read ends an opening, it does wherever that one is. */
TEST(ahead, a_read_in_a_window_fails)
{
	/* With the index, which leaves little to read; without it. */
	static const unsigned reads[] = { 1, 2, 1, 2, 255, 256, 257, 258, 380 };
	struct fixture *f = many_open(36);
	uint32_t n = f->disk->super.segments;
	unsigned i;

	fill_segments(f, 0, 380);
	sim_env_cut(&f->sim);
	disk_close(f);
	sim_env_restore(&f->sim);
	super_rot(f);
	for (i = 0; i < ARRAY_LEN(reads); i++) {
		f->sim.fail_read = SUPERS + n + reads[i];
		CHECK_EQ(disk_open(f, i >= 2), -EIO);
		CHECK_EQ(f->sim.fail_read, 0);
	}
	CHECK_EQ(disk_open(f, true), 0);
	all_there(f, 380);
	fixture_close(f);
}

/* Who waits for an opening sees it go on, from the headers on. */
TEST(ahead, headers_are_progress)
{
	struct fixture *f = many_open(37);
	struct lsom_disk_open req = {
		.data = f,
		.path = "disk",
		.index_path = "index",
		.cluster = f->cluster,
	};
	uint32_t n = f->disk->super.segments;

	fill_segments(f, 0, 2);
	disk_close(f);
	super_rot(f);
	f->sim.fail_read = SUPERS + n + 1; /* the first that is no header */
	f->done = false;
	CHECK_EQ(lsom_disk_open(f->lsom, &req, opened), 0);
	CHECK(sim_env_run(&f->sim, &f->done));
	CHECK_EQ(f->status, -EIO);
	CHECK_EQ(req.percent, LSOM__HEADERS_PERCENT - 1);
	CHECK(strstr(req.why, "the records of segment ") != NULL);
	CHECK(strstr(req.why, "replace the disk") != NULL);
	CHECK_EQ(disk_open(f, false), 0);
	fixture_close(f);
}
