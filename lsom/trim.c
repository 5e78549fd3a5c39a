/*
 * trim: what is free is given back to a device that takes it (discard, TRIM).
 *
 * A thin device has that space for others then, and a flash one need not copy what
 * nobody will read.  Of a free segment all goes but its header: that says, durably
 * since before it was free (erase.c), that nothing in it counts, and is what an
 * opening reads.  A reference bars that the segment is taken meanwhile.
 *
 * One at a time, up to ten a second, over and over what became free since.  Nothing is
 * asked where little is free: that would soon be written again.  Where much is, the
 * cleaner rests, which would find that of other segments nothing is needed (of a
 * deleted disk, say): each time around it is told how many look so.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/lsom_int.h"

#include "base/err.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/util.h"

#include <errno.h>

#define PAUSE_NS (100 * MSEC)
#define TRIM_LOOK 1024u /* segments in a turn */
/* More than undo.c counts on, and one that waits for the device. */
#define TRIM_FREE_LEAST (2 * LSOM__RESERVED + 2)

static struct counter trimmed_total = {
	.name = "basalt_lsom_discarded_bytes_total",
	.help = "Free space given back to devices",
};

void lsom__trim_init(void)
{
	counter_register(&trimmed_total);
}

static uint64_t pause_ns(const struct lsom_disk *disk)
{
	return MIN(disk->lsom->config.discard_ns, PAUSE_NS);
}

static bool wanted(const struct lsom__segment *seg)
{
	return seg->state == LSOM__SEG_FREE && !seg->trimmed && seg->reads == 0;
}

static uint64_t trim_offset(const struct lsom_disk *disk, uint32_t segment)
{
	return lsom__place(disk, segment, 1) * LSOM_BLOCK;
}

static uint64_t trim_bytes(const struct lsom_disk *disk)
{
	return (uint64_t)(disk->segment_blocks - 1) * LSOM_BLOCK;
}

static void trim_work(struct env_work *work)
{
	struct lsom__trim *t = container_of(work, struct lsom__trim, work);
	struct lsom_disk *disk = container_of(t, struct lsom_disk, trim);

	t->status = env_dev_discard_now(disk->env, disk->dev,
					trim_offset(disk, t->segment),
					trim_bytes(disk));
}

static void trim_done(struct env_work *work)
{
	struct lsom__trim *t = container_of(work, struct lsom__trim, work);
	struct lsom_disk *disk = container_of(t, struct lsom_disk, trim);
	struct lsom__segment *seg = &disk->segments[t->segment];

	assert(seg->state == LSOM__SEG_FREE);
	assert(disk->works > 0);
	disk->works--;
	lsom__segment_read_put(disk, t->segment);
	if (t->status == 0) {
		seg->trimmed = true;
		counter_add(&trimmed_total, trim_bytes(disk));
		env_timer_start(disk->env, &t->timer, pause_ns(disk));
	} else if (disk->state != LSOM_DISK_FAILED) {
		log_warn("disk %s: giving free space back (discard): %s; no "
			 "more of it until the disk is opened again",
			 disk->path, lsom__device_text(t->status));
	}
	lsom__log_kick(disk); /* this one may be taken now */
	lsom__disk_changed(disk);
}

static void trim_begin(struct lsom_disk *disk, uint32_t segment)
{
	struct lsom__trim *t = &disk->trim;

	t->segment = segment;
	t->work.work = trim_work;
	t->work.done = trim_done;
	lsom__segment_read_get(disk, segment);
	disk->works++;
	env_work(disk->env, t->lane, &t->work);
}

/* The next that is wanted, of some; LSOM__NONE: there is none among them. */
static uint32_t next_wanted(struct lsom_disk *disk)
{
	struct lsom__trim *t = &disk->trim;
	uint32_t end = MIN(disk->super.segments, t->at + TRIM_LOOK);

	while (t->at < end) {
		uint32_t segment = t->at++;
		const struct lsom__segment *seg = &disk->segments[segment];

		if (wanted(seg))
			return segment;
		t->seen += lsom__victim_dead(seg);
	}
	return LSOM__NONE;
}

/* All were looked at. */
static void turn_end(struct lsom_disk *disk)
{
	struct lsom__trim *t = &disk->trim;

	t->dead = t->seen;
	t->seen = t->at = 0;
	if (t->dead > 0)
		lsom__cleaner_kick(disk);
	/* What is cleaned is free with the next one, and a disk that rests has none. */
	if (disk->segments_cleaned > disk->segments_held &&
	    disk->checkpoint == NULL)
		lsom__checkpoint_start(disk);
}

static void trim_step(struct env_timer *timer)
{
	struct lsom__trim *t = container_of(timer, struct lsom__trim, timer);
	struct lsom_disk *disk = container_of(t, struct lsom_disk, trim);
	uint64_t next_ns = ENV_NEXT_TURN_NS;
	uint32_t segment;

	if (disk->closing || disk->state == LSOM_DISK_FAILED)
		return;
	if (disk->segments_free >= TRIM_FREE_LEAST) {
		segment = next_wanted(disk);
		if (segment != LSOM__NONE) {
			trim_begin(disk, segment);
			return;
		}
	} else {
		t->at = disk->super.segments;
	}
	if (t->at == disk->super.segments) {
		turn_end(disk);
		next_ns = disk->lsom->config.discard_ns;
	}
	env_timer_start(disk->env, timer, next_ns);
}

void lsom__trim_start(struct lsom_disk *disk)
{
	struct lsom__trim *t = &disk->trim;
	int rv;

	/* Somebody may still look for what a damaged one has lost. */
	if (disk->lsom->config.discard_ns == 0 || disk->super.damaged)
		return;
	if (!disk->info.can_discard) {
		log_info("disk %s: takes no discards: what is free in it is "
			 "not given back",
			 disk->path);
		return;
	}
	rv = env_lane_open(disk->env, "lsom-trim", &t->lane);
	if (rv < 0) {
		log_warn("disk %s: what is free in it is not given back: a "
			 "thread for that: %s",
			 disk->path, err_text(rv));
		return;
	}
	t->timer.cb = trim_step;
	env_timer_start(disk->env, &t->timer, disk->lsom->config.discard_ns);
}

void lsom__trim_stop(struct lsom_disk *disk)
{
	env_timer_stop(disk->env, &disk->trim.timer);
	if (disk->trim.lane != NULL)
		env_lane_close(disk->env, disk->trim.lane);
	disk->trim.lane = NULL;
}
