/*
 * cleaner: makes free segments out of used ones.
 *
 * When free segments run low it takes a victim, reads its summary, and for each
 * record asks whether something still needs it: blocks that the index or the
 * table points to are read and appended at the cleaner's own head; a component
 * with metadata in it gets its whole state written again; holes and tombs are
 * carried while older data lies anywhere on the disk.  A move names its source
 * and takes effect only if the index still points there when it is durable.
 *
 * Then nothing needs the victim.  It is free once a checkpoint that began after
 * that is flushed and the segment before it in its head is closed (reuse.c),
 * whether or not the summary of the segment that its blocks moved to is written.
 * That is enough, also for an index made from the log alone: a move counts when
 * its batch is durable and all before it of its head are, so after a power cut
 * recovery, which reads an open segment by its batch headers, finds it in the
 * head's run; and before recovery makes the next generation durable it writes the
 * summary that is missing.  A later rebuild reads that one.  What says that such a
 * batch is no torn tail, should it rot, must not go with the index: headers of
 * segments do (format.h, covered).
 *
 * What it takes while few segments are free it owes: see undo.c.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/cleaner_int.h"

#include "base/err.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

#define RETRY_NS (20 * MSEC)
#define PAUSE_NS SEC /* before the same victim is tried again */
#define DOUBLINGS_MAX 12u /* of the pause: 68 minutes */
#define WALKS_MAX 4u
#define FRUITLESS_MAX 16u
#define AHEAD_MAX 16u /* segments cleaned in one go beyond the low mark */
#define RECORDS_A_TURN 1024u

static struct counter cleaned_total = {
	.name = "basalt_lsom_segments_cleaned_total",
	.help = "Segments emptied by the cleaner",
};

void lsom__cleaner_step_soon(struct lsom__cleaner *c)
{
	env_defer(c->disk->env, &c->step);
}

/* ---- one victim ---- */

/* All that is ready goes into the log, in one turn. */
static void ready_append(struct lsom__cleaner *c)
{
	struct lsom__op *op;

	while ((op = STAILQ_FIRST(&c->ready)) != NULL) {
		STAILQ_REMOVE_HEAD(&c->ready, link);
		lsom__log_append(c->disk, LSOM__HEAD_CLEANER, op);
	}
}

static void retry_later(struct lsom__cleaner *c)
{
	if (!c->retrying)
		env_timer_start(c->disk->env, &c->retry, RETRY_NS);
	c->retrying = true;
}

static void retry_run(struct env_timer *timer)
{
	struct lsom__cleaner *c =
		container_of(timer, struct lsom__cleaner, retry);

	c->retrying = false;
	lsom__cleaner_step_soon(c);
}

/* Do those that are free, and will be, come to less than what is reserved? */
static bool owes(const struct lsom_disk *disk)
{
	return disk->segments_free + disk->segments_cleaned < LSOM__RESERVED;
}

/*
 * Does cleaning make room?  Where it only moves full segments about, heads do
 * not wait for it for ever (log.c), nor does it go on by itself.
 */
static void gain_note(struct lsom__cleaner *c)
{
	struct lsom_disk *disk = c->disk;
	uint32_t head = disk->heads[LSOM__HEAD_CLEANER].segment;
	uint64_t room =
		(uint64_t)(disk->segments_free + disk->segments_cleaned) *
		disk->segment_blocks;

	if (head != LSOM__NONE)
		room += disk->segment_blocks - disk->segments[head].used;
	if (room > disk->room_best) {
		disk->room_best = room;
		disk->ticks_stalled = 0;
		c->fruitless = 0;
	} else {
		c->fruitless++;
	}
}

static void victim_leave(struct lsom__cleaner *c)
{
	c->disk->segments[c->victim].cleaning = false;
	lsom__segment_emptied(c->disk, c->victim);
	free(c->buf);
	c->buf = NULL;
	c->phase = CLEAN_IDLE;
	c->victim = LSOM__NONE;
}

/* Something in it is not settled, or cannot be read: others meanwhile. */
static void victim_later(struct lsom__cleaner *c)
{
	struct lsom__segment *seg = &c->disk->segments[c->victim];

	lsom__carry_none(c);
	if (c->unread && seg->unread < DOUBLINGS_MAX)
		seg->unread++;
	lsom__segment_shun(c->disk, seg,
			   env_now(c->disk->env) + (PAUSE_NS << seg->unread));
	victim_leave(c);
}

static void victim_stays(struct lsom__cleaner *c, const char *what, int status)
{
	struct lsom_disk *disk = c->disk;

	if (disk->segments[c->victim].unread == 0 && !c->unread)
		log_error("disk %s: cleaning segment %u: %s of it: %s; it "
			  "stays as it is, and is tried again",
			  disk->path, c->victim, what, err_text(status));
	c->abandon = c->unread = true;
}

void lsom__victim_unread(struct lsom__cleaner *c, const char *what, int status)
{
	victim_stays(c, what, status);
	lsom__media_error(c->disk);
}

static void walk_begin(struct lsom__cleaner *c)
{
	c->at = c->record_end = 0;
	c->block = 0;
	c->walk_moves = 0;
	c->phase = CLEAN_RECORDS;
}

static void walks_begin(struct lsom__cleaner *c)
{
	c->walks = 0;
	c->looking = true;
	walk_begin(c);
}

/*
 * A walk has ended and all its moves are durable.  If blocks count as live all
 * the same, it is walked again: every place that anything can point to is named
 * by a record, so a walk that finds nothing to move proves the count wrong.  It
 * is too high, never too low, where the power went while a changed index page
 * was being read: what the change replaced was not known yet.
 */
static void victim_done(struct lsom__cleaner *c)
{
	struct lsom_disk *disk = c->disk;
	struct lsom__segment *seg = &disk->segments[c->victim];

	if (disk->state == LSOM_DISK_FAILED) {
		victim_leave(c);
		return;
	}
	assert(seg->state == LSOM__SEG_CLOSED);
	assert(seg->sequence == c->header.sequence);
	if (!c->abandon && seg->live > 0 &&
	    (c->walks == 0 || c->walk_moves > 0) && c->walks < WALKS_MAX) {
		c->walks++;
		walk_begin(c);
		return;
	}
	if (c->abandon ||
	    (seg->live > 0 && (c->walk_moves > 0 || disk->super.damaged))) {
		/*
		 * Where a batch was lost in mid-log its records may be missing
		 * while the index still has its blocks: a walk proves nothing.
		 */
		victim_later(c);
		return;
	}
	if (seg->live > 0)
		lsom__segment_live(disk, lsom__place(disk, c->victim, 0),
				   -(int64_t)seg->live);
	lsom__segment_cleaned(disk, c->victim);
	counter_add(&cleaned_total, 1);
	gain_note(c);
	if (disk->checkpoint_waits && !owes(disk))
		lsom__checkpoint_start(disk);
	victim_leave(c);
}

static void summary_here(struct env_io *io, int64_t res)
{
	struct lsom__cleaner *c = container_of(io, struct lsom__cleaner, io);
	const struct lsom__segment *seg = &c->disk->segments[c->victim];
	struct lsom__summary_header s;
	int rv = res < 0 ? (int)res : 0;

	c->busy = false;
	c->header = (struct lsom__segment_header){
		.disk = c->disk->super.disk,
		.sequence = seg->sequence,
		.generation = seg->generation,
		.head = seg->head,
	};
	if (rv == 0 && c->phase == CLEAN_READ_FOOTER) {
		c->blocks = lsom__summary_blocks(c->buf, &c->header,
						 c->disk->segment_blocks);
		if (c->blocks == 0)
			rv = -EUCLEAN;
		c->phase = CLEAN_READ_SUMMARY;
	} else if (rv == 0) {
		rv = lsom__summary_take(c->buf, c->blocks, &c->header,
					c->disk->segment_blocks, &s);
		if (rv == 0) {
			c->frames = c->buf + sizeof(s);
			c->bytes = s.bytes;
			walks_begin(c);
		}
	}
	if (rv < 0) {
		lsom__media_error(c->disk);
		c->phase = CLEAN_SCAN;
	}
	lsom__cleaner_step_soon(c);
}

/*
 * Its summary is no good.  All of its batches say what that said, so with all of
 * them it is emptied as any other; with one missing nobody knows what is needed.
 */
static void scan_here(struct lsom__rescan *scan)
{
	struct lsom__cleaner *c =
		container_of(scan, struct lsom__cleaner, scan);
	struct lsom_disk *disk = c->disk;
	int rv = scan->status;

	c->busy = false;
	if (rv == 0 && !scan->whole)
		rv = -EUCLEAN;
	if (rv < 0) {
		victim_stays(c, "the summary and the batches", rv);
		victim_later(c);
	} else {
		if (disk->segments[c->victim].unread == 0)
			log_warn("disk %s: the summary of segment %u is "
				 "damaged: it is cleaned by its batches",
				 disk->path, c->victim);
		c->unread = true; /* should it stay: not again soon */
		free(c->buf);
		c->frames = c->buf = lsom__rescan_take(scan, &c->bytes);
		walks_begin(c);
	}
	lsom__rescan_fini(scan);
	lsom__cleaner_step_soon(c);
}

static int scan_get(struct lsom__cleaner *c)
{
	int rv;

	c->scan.cb = scan_here;
	rv = lsom__rescan_start(&c->scan, c->disk, c->victim);
	c->busy = rv == 0;
	return rv;
}

static int summary_get(struct lsom__cleaner *c, uint32_t blocks)
{
	free(c->buf);
	c->iov.iov_len = (size_t)blocks * LSOM_BLOCK;
	c->buf = aligned_alloc(LSOM_BLOCK, c->iov.iov_len);
	if (c->buf == NULL)
		return -ENOMEM;
	c->iov.iov_base = c->buf;
	c->busy = true;
	c->io.cb = summary_here;
	env_dev_readv(c->disk->env, c->disk->dev, &c->io, &c->iov, 1,
		      lsom__place(c->disk, c->victim,
				  c->disk->segment_blocks - blocks) *
			      LSOM_BLOCK);
	return 0;
}

static int records_step(struct lsom__cleaner *c)
{
	const struct lsom__record *r;
	unsigned n = 0;
	int rv;

	for (;;) {
		if (c->abandon)
			return -EINPROGRESS;
		if (n++ == RECORDS_A_TURN) { /* guests have their turn, too */
			lsom__cleaner_step_soon(c);
			return -EAGAIN;
		}
		if (c->at == c->bytes) {
			if (!c->looking)
				return 0;
			c->looking = false;
			walk_begin(c);
			continue;
		}
		if (c->at == c->record_end) {
			memcpy(&c->frame, c->frames + c->at, sizeof(c->frame));
			c->at += sizeof(c->frame);
			c->record_end = c->at + c->frame.records_bytes;
			continue;
		}
		r = (const void *)(c->frames + c->at);
		rv = c->looking ? lsom__carry_look(c, r)
				: lsom__carry_record(c, r);
		if (rv < 0)
			return rv;
		c->at += r->len;
		c->block = 0;
	}
}

/* ---- the loop ---- */

/* Is there room for what is live in the victim, its headers, its metadata? */
static bool victim_fits(const struct lsom__cleaner *c)
{
	const struct lsom_disk *disk = c->disk;
	uint32_t head = disk->heads[LSOM__HEAD_CLEANER].segment;
	uint64_t all = disk->segment_blocks;
	uint64_t live = disk->segments[c->victim].live;
	uint64_t room = (uint64_t)disk->segments_free * (all - 1);

	if (head != LSOM__NONE)
		room += all - disk->segments[head].used;
	return lsom__victim_cost(disk, live) <= room;
}

bool lsom__cleaner_owes(const struct lsom_disk *disk)
{
	/* With none free it cannot go on: what it has must do. */
	return owes(disk) && !disk->cleaner->settled &&
	       disk->segments_free > 0 && lsom__rule(disk, LSOM_OFF_UNDO);
}

/* Nothing is under way: what was aborted or deleted lies before here. */
static void bars_settle(struct lsom_disk *disk)
{
	struct lsom_comp *comp;

	TAILQ_FOREACH (comp, &disk->aborting, abort_link)
		lsom__aborts_settle(comp, disk->pos_next);
	lsom__tombs_settle(disk);
}

static bool victim_wanted(struct lsom__cleaner *c)
{
	struct lsom_disk *disk = c->disk;
	uint32_t low = lsom__victim_low_mark(disk);
	uint32_t ahead = MIN(low / 4, AHEAD_MAX);
	unsigned waiting;
	bool aborts, dead;

	/* A closing disk is cleaned only as far as what waits needs it. */
	if (disk->state == LSOM_DISK_FAILED ||
	    disk->state == LSOM_DISK_OPENING ||
	    (disk->closing && lsom__log_idle(disk)))
		return false;
	lsom__segments_release(disk);
	waiting = disk->segments_cleaned - disk->segments_held;
	aborts = lsom__victim_aborts(disk);
	dead = lsom__victim_for_trim(disk);
	if (disk->segments_free >= low && !aborts && !dead)
		return false;
	if (c->fruitless >= FRUITLESS_MAX && lsom__log_idle(disk) &&
	    disk->room_best > 0 && !aborts && !dead)
		return false;
	/*
	 * What is cleaned becomes free with the next checkpoint, which writes
	 * every changed page: not for a few segments only.
	 */
	if (waiting > 0 && disk->checkpoint == NULL &&
	    (waiting >= MAX(4u, ahead) || disk->segments_free <= 3))
		lsom__checkpoint_start(disk);
	/* A victim needs a segment to move into before it gives one back. */
	if ((disk->segments_free <= 1 && waiting > 0 && !owes(disk)) ||
	    (disk->segments_free + waiting >= low + MAX(2u, ahead) && !aborts &&
	     !dead)) {
		if (disk->checkpoint == NULL)
			lsom__checkpoint_start(disk);
		return false;
	}
	return true;
}

/* Take a victim if one is wanted.  False: nothing to do, or not in this turn. */
static bool victim_take(struct lsom__cleaner *c)
{
	struct lsom_disk *disk = c->disk;

	assert(c->moves == 0);
	bars_settle(disk);
	if (!victim_wanted(c)) {
		c->pick.next = 0;
		return false;
	}
	if (!lsom__victim_pick(disk, &c->pick)) {
		c->picking = true;
		lsom__cleaner_step_soon(c);
		return false;
	}
	c->victim = c->pick.best;
	if (c->pick.policy == LSOM__PICK_DEAD)
		disk->trim.dead -=
			c->victim == LSOM__NONE ? disk->trim.dead : 1;
	if (c->victim == LSOM__NONE) {
		if (disk->segments_cleaned > disk->segments_held &&
		    disk->checkpoint == NULL)
			lsom__checkpoint_start(disk);
		/* Only worth it while a head stands. */
		if (!lsom__log_idle(disk))
			retry_later(c);
		return false;
	}
	if (!victim_fits(c)) {
		c->victim = LSOM__NONE;
		retry_later(c);
		return false;
	}
	c->oldest = lsom__segments_oldest(disk, c->victim);
	disk->segments[c->victim].cleaning = true;
	c->abandon = c->unread = c->settled = false;
	c->phase = CLEAN_READ_FOOTER;
	return true;
}

/* There is nothing to take: a checkpoint that waited for it need not any more. */
static void settle(struct lsom__cleaner *c)
{
	c->settled = true;
	if (c->disk->checkpoint_waits)
		lsom__checkpoint_start(c->disk);
	lsom__disk_changed(c->disk);
}

static void cleaner_step(struct env_task *task)
{
	struct lsom__cleaner *c =
		container_of(task, struct lsom__cleaner, step);
	bool stop = c->disk->state == LSOM_DISK_FAILED;
	int rv = 0;

	if (c->busy)
		return;
	c->picking = false;
	if (c->phase == CLEAN_IDLE && (stop || !victim_take(c))) {
		if (!c->picking)
			settle(c);
		return;
	}
	if (stop)
		c->abandon = true;
	if (stop && c->phase < CLEAN_RECORDS) {
		victim_leave(c);
		lsom__cleaner_step_soon(c); /* who waits for it goes on */
	} else if (c->phase == CLEAN_READ_FOOTER)
		rv = summary_get(c, 1);
	else if (c->phase == CLEAN_READ_SUMMARY)
		rv = summary_get(c, c->blocks);
	else if (c->phase == CLEAN_SCAN)
		rv = scan_get(c);
	else if (c->phase == CLEAN_RECORDS) {
		c->draining = false;
		rv = records_step(c);
		if (rv == -EINPROGRESS)
			c->abandon = true;
		if (rv == 0 || c->abandon)
			c->phase = CLEAN_STATES;
	}
	if (c->phase == CLEAN_STATES) {
		if (c->ranged)
			lsom__carry_unpin(c);
		rv = c->abandon ? 0 : lsom__carry_states(c);
		if (rv == 0)
			c->phase = CLEAN_SETTLE;
	}
	if (c->reading == 0 &&
	    (c->phase != CLEAN_RECORDS || lsom__moves_full(c) || c->draining ||
	     rv == -ENOMEM || rv == -EBUSY))
		ready_append(c);
	if (c->phase == CLEAN_SETTLE && c->moves == 0) {
		victim_done(c);
		lsom__cleaner_step_soon(c);
	}
	/* Short of memory or pages: moves that end come here, or the timer. */
	if ((rv == -ENOMEM || rv == -EBUSY) && !stop)
		retry_later(c);
	lsom__disk_changed(c->disk);
}

int lsom__cleaner_init(struct lsom_disk *disk)
{
	struct lsom__cleaner *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return -ENOMEM;
	counter_register(&cleaned_total);
	lsom__moves_counted();
	c->disk = disk;
	c->settled = true;
	STAILQ_INIT(&c->ready);
	TAILQ_INIT(&c->under_way);
	c->victim = LSOM__NONE;
	c->step.cb = cleaner_step;
	c->retry.cb = retry_run;
	c->range.cb = lsom__carry_ready;
	disk->cleaner = c;
	return 0;
}

void lsom__cleaner_stop(struct lsom_disk *disk)
{
	env_timer_stop(disk->env, &disk->cleaner->retry);
}

void lsom__cleaner_fini(struct lsom_disk *disk)
{
	if (disk->cleaner == NULL)
		return;
	assert(disk->cleaner->moves == 0);
	free(disk->cleaner->buf);
	free(disk->cleaner);
	disk->cleaner = NULL;
}

void lsom__cleaner_kick(struct lsom_disk *disk)
{
	if (disk->state != LSOM_DISK_OPENING && !disk->closed)
		lsom__cleaner_step_soon(disk->cleaner);
}

bool lsom__cleaner_idle(const struct lsom_disk *disk)
{
	const struct lsom__cleaner *c = disk->cleaner;

	return c->phase == CLEAN_IDLE && !c->busy && c->moves == 0 &&
	       !c->step.queued;
}
