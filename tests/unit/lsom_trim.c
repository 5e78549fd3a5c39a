/* What is free is given back to its device: all of it, once, and nothing else. */
#include "tests/unit/lsom_rig.h"

enum { EVERY_S = 1, BLOCKS = 2048 };

struct wait {
	struct env_timer timer;
	bool done;
};

static void on_wait(struct env_timer *timer)
{
	container_of(timer, struct wait, timer)->done = true;
}

static void wait_s(struct fixture *f, unsigned seconds)
{
	struct wait w = { .timer.cb = on_wait };

	env_timer_start(&f->sim.loop.env, &w.timer, seconds * SEC);
	CHECK(sim_env_run(&f->sim, &w.done));
}

/* Opened again, on a device that takes discards, by one who wants them. */
static struct fixture *trimmed_open(uint64_t seed)
{
	struct fixture *f = fixture_open(seed);

	disk_close(f);
	f->sim.block_device = f->sim.can_discard = true;
	f->lsom->config.discard_ns = EVERY_S * SEC;
	CHECK_EQ(disk_open(f, false), 0);
	return f;
}

static struct lsom_comp *written_comp(struct fixture *f, unsigned n,
				      uint64_t seed)
{
	struct lsom_comp *comp;

	CHECK_EQ(create(f, n, BLOCKS), 0);
	comp = comp_of(f, n);
	for (uint64_t at = 0; at < BLOCKS; at += 64)
		CHECK_EQ(put(f, comp, at, 64, LSN(1, 1 + at), seed), 0);
	return comp;
}

static void unmap(struct fixture *f, struct lsom_comp *comp)
{
	for (uint64_t at = 0; at < BLOCKS; at += 64)
		CHECK_EQ(put(f, comp, at, 64, LSN(1, BLOCKS + 1 + at), 0), 0);
}

/* Of the whole disk; each is free, and no free one is left out. */
static unsigned trimmed_count(struct fixture *f)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < f->disk->super.segments; i++) {
		const struct lsom__segment *seg = &f->disk->segments[i];

		CHECK_EQ(seg->trimmed, seg->state == LSOM__SEG_FREE);
		CHECK_EQ(seg->reads, 0);
		n += seg->trimmed;
	}
	return n;
}

TEST(trim, what_is_free_once)
{
	struct fixture *f = trimmed_open(1);
	struct lsom_comp *comp = written_comp(f, 1, 5);
	unsigned first, again;

	wait_s(f, 60);
	first = trimmed_count(f);
	CHECK_EQ(f->sim.discards, first);
	CHECK_EQ(first, f->disk->segments_free);
	CHECK(first < f->disk->super.segments - 7);
	wait_s(f, 60);
	CHECK_EQ(f->sim.discards, first);
	/* Nothing but the deleted: the cleaner sees to it, though there is room. */
	unmap(f, comp);
	wait_s(f, 60);
	again = trimmed_count(f);
	CHECK_EQ(f->disk->segments_cleaned, 0);
	CHECK(again >= first + 6);
	CHECK(f->sim.discards >= again);
	CHECK_EQ(get(f, comp, 0, 5), 0);
	lsom_comp_put(comp);
	/* Nobody remembers over an opening, and nothing is lost by it. */
	disk_close(f);
	CHECK_EQ(disk_open(f, false), 0);
	f->sim.discards = 0;
	wait_s(f, 60);
	again = f->sim.discards;
	CHECK(again >= trimmed_count(f));
	wait_s(f, 600);
	CHECK_EQ(f->sim.discards, again);
	fixture_close(f);
}

/* Its header stays, and what is behind it. */
TEST(trim, and_no_more_than_that)
{
	struct fixture *f = trimmed_open(2);
	uint64_t segment_bytes = f->disk->super.segment_bytes;
	uint64_t start = f->disk->super.data_start;
	const uint64_t end =
		lsom__place(f->disk, f->disk->super.segments, 0) * LSOM_BLOCK;
	uint8_t *before;

	/* Not before what the opening has to write is there. */
	env_timer_stop(&f->sim.loop.env, &f->disk->trim.timer);
	wait_s(f, 10);
	before = malloc(f->sim.disk.bytes);
	CHECK(before != NULL);
	memcpy(before, f->sim.disk.now, f->sim.disk.bytes);
	env_timer_start(&f->sim.loop.env, &f->disk->trim.timer, SEC);
	wait_s(f, 60);
	CHECK(trimmed_count(f) > 0);
	for (uint64_t at = 0; at < f->sim.disk.bytes; at += LSOM_BLOCK) {
		bool in = at >= start && at < end &&
			  (at - start) % segment_bytes != 0;
		uint32_t segment =
			in ? (uint32_t)((at - start) / segment_bytes) : 0;

		in = in && f->disk->segments[segment].trimmed;
		CHECK_EQ(memcmp(before + at, f->sim.disk.now + at,
				LSOM_BLOCK) != 0,
			 in);
	}
	free(before);
	fixture_close(f);
}

TEST(trim, only_where_it_is_wanted)
{
	struct fixture *f = trimmed_open(3);

	disk_close(f);
	f->lsom->config.discard_ns = 0;
	CHECK_EQ(disk_open(f, false), 0);
	wait_s(f, 60);
	CHECK_EQ(f->sim.discards, 0);
	disk_close(f);
	f->lsom->config.discard_ns = EVERY_S * SEC;
	f->sim.can_discard = false;
	CHECK_EQ(open_saying(f, false, "takes no discards"), 1);
	wait_s(f, 60);
	CHECK_EQ(f->sim.discards, 0);
	/* Who looks for what a damaged one has lost finds what there is. */
	f->disk->super.damaged = 1;
	disk_close(f);
	f->sim.can_discard = true;
	CHECK_EQ(disk_open(f, false), 0);
	wait_s(f, 60);
	CHECK_EQ(f->sim.discards, 0);
	fixture_close(f);
}

/* A device that refuses it serves as before, and is not asked again. */
TEST(trim, refused)
{
	struct fixture *f = trimmed_open(4);
	struct lsom_comp *comp = written_comp(f, 1, 5);
	struct lsom_disk_info info;

	f->sim.discard_status = -EIO;
	wait_s(f, 60);
	f->sim.discard_status = 0;
	wait_s(f, 60);
	CHECK_EQ(f->sim.discards, 0);
	lsom_disk_info(f->disk, &info);
	CHECK_EQ(info.state, LSOM_DISK_ONLINE);
	CHECK_EQ(get(f, comp, 0, 5), 1);
	lsom_comp_put(comp);
	disk_close(f);
	CHECK_EQ(disk_open(f, false), 0);
	wait_s(f, 60);
	CHECK_EQ(f->sim.discards, trimmed_count(f));
	fixture_close(f);
}

/* The one that is with the device: free, and referenced. */
static uint32_t given_now(struct fixture *f)
{
	struct lsom_disk *disk = f->disk;

	while (disk->segments[disk->trim.segment].reads == 0)
		CHECK(sim_env_turn(&f->sim));
	return disk->trim.segment;
}

TEST(trim, not_taken_meanwhile)
{
	struct fixture *f = trimmed_open(5);
	struct lsom_disk *disk = f->disk;
	uint32_t given = given_now(f), taken[64], n = 0;

	CHECK(disk->segments_free < ARRAY_LEN(taken));
	while ((taken[n] = lsom__free_take(disk)) != LSOM__NONE) {
		CHECK(taken[n] != given);
		/* They are in no list while they are not free. */
		disk->segments[taken[n++]].state = LSOM__SEG_OPEN;
	}
	CHECK_EQ(n, disk->segments_free - 1);
	while (n > 0) {
		disk->segments[taken[--n]].state = LSOM__SEG_FREE;
		lsom__free_add(disk, taken[n]);
	}
	disk->unused_from = 0;
	wait_s(f, 60);
	CHECK_EQ(f->sim.discards, trimmed_count(f));
	fixture_close(f);
}

TEST(trim, closing_waits_for_it)
{
	struct fixture *f = trimmed_open(6);

	given_now(f);
	CHECK_EQ(f->sim.discards, 0);
	disk_close(f);
	CHECK_EQ(f->sim.discards, 1);
	CHECK_EQ(disk_open(f, false), 0);
	fixture_close(f);
}

/* What the cleaner wrote it would only write again. */
TEST(trim, whose_dead_are_cleaned)
{
	struct lsom__segment seg = { .state = LSOM__SEG_CLOSED,
				     .head = LSOM__HEAD_GUEST };

	CHECK(lsom__victim_dead(&seg));
	seg.live = 1;
	CHECK(!lsom__victim_dead(&seg));
	seg.live = 0;
	seg.head = LSOM__HEAD_CLEANER;
	CHECK(!lsom__victim_dead(&seg));
	seg.head = LSOM__HEAD_GUEST;
	seg.state = LSOM__SEG_CLEANED;
	CHECK(!lsom__victim_dead(&seg));
}

/* Where little is left that would be what is written next. */
TEST(trim, not_the_last_ones)
{
	struct fixture *f = trimmed_open(7);
	uint32_t was = f->disk->segments_free;

	f->disk->segments_free = 2 * LSOM__RESERVED + 1;
	wait_s(f, 60);
	CHECK_EQ(f->sim.discards, 0);
	f->disk->segments_free++;
	wait_s(f, 60);
	CHECK(f->sim.discards > 0);
	f->disk->segments_free = was;
	fixture_close(f);
}

/* A cut at any time of it: what was acknowledged is there. */
TEST(trim, and_the_power_goes)
{
	for (uint64_t seed = 10; seed < 20; seed++) {
		struct fixture *f = trimmed_open(seed);
		struct lsom_comp *comp = written_comp(f, 1, seed);
		struct lsom_comp *dead = written_comp(f, 2, 99);

		unmap(f, dead);
		lsom_comp_put(dead);
		checkpoint_make(f);
		checkpoint_make(f);
		f->disk->lsom->config.discard_ns = MSEC;
		for (uint64_t n = sim_env_random(&f->sim, 200); n > 0; n--)
			CHECK(sim_env_turn(&f->sim));
		lsom_comp_put(comp);
		CHECK_EQ(power_cut(f), 0);
		comp = comp_of(f, 1);
		for (uint64_t at = 0; at < BLOCKS; at += 64)
			CHECK_EQ(get(f, comp, at, seed), 1);
		lsom_comp_put(comp);
		fixture_close(f);
	}
}
