/*
 * run: which batches of a head count.
 *
 * A head's batches are numbered, and what was acknowledged lies before the first
 * one that is missing, unless the medium lost it.  So a missing batch is damage
 * iff something knew it durable: a later batch of the generation (its
 * durable_prefix), a summary, or the checkpoint.  Then a record LOST takes its
 * place, and the run goes on.  Otherwise it is a torn tail, and what follows it
 * was never acknowledged (R27).
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/recover_int.h"

#include "base/crc.h"
#include "base/fletcher.h"
#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

/*
 * 1: all data of the frame is there; 0: it is not; or -errno.  Blocks that the
 * cleaner moved are not held against their own CRC: one that rotted before is
 * moved as it is.
 */
static int frame_whole(struct lsom__recovery *rec, uint32_t segment,
		       const struct lsom__frame *f, const uint8_t *records)
{
	const struct lsom__data_record *d;
	struct fletcher sums = { 0 };
	uint32_t crc = 0; /* of a version that had no sums */
	unsigned i;
	uint64_t k;
	int rv;

	for (i = 0; i < f->records; i++, records += d->r.len) {
		d = (const void *)records;
		if (d->r.type != LSOM__R_DATA || d->r.flags & LSOM__F_HOLE)
			continue;
		rv = lsom__recovery_read(rec, segment, d->data,
					 (uint32_t)d->blocks, rec->buf);
		if (rv < 0)
			return rv;
		for (k = 0; k < d->blocks && !(d->r.flags & LSOM__F_MOVED); k++)
			if (crc32c(rec->buf + k * LSOM_BLOCK, LSOM_BLOCK) !=
			    lsom__record_crcs(d)[k])
				return 0;
		if (f->version >= 3)
			fletcher_add(&sums, rec->buf, d->blocks * LSOM_BLOCK);
		else
			crc = crc32_more(crc, rec->buf, d->blocks * LSOM_BLOCK);
	}
	return (f->version >= 3 ? fletcher_end(&sums) : crc) == f->data_crc;
}

/* ---- damage ---- */

/* Batches from the expected one up to @last are lost. */
static void damage_note(struct lsom__recovery *rec, const struct lsom__run *run,
			uint32_t segment, uint64_t last)
{
	bool covered = lsom__covered(rec, segment, last);

	log_error("disk %s: log generation %llu, head %u: batches %llu to "
		  "%llu are damaged; %s",
		  rec->disk->path, (unsigned long long)run->generation,
		  run->head, (unsigned long long)run->expected,
		  (unsigned long long)last,
		  covered ? "the index has what was in them"
			  : "components on this disk lost blocks");
	if (!covered)
		rec->damaged = true;
	rec->batches_lost += last - run->expected + 1;
	/* The cleaner cannot prove a segment empty by its records. */
	rec->disk->super.damaged = 1;
}

/*
 * Put a record LOST in front of byte @at of @f for the batches up to @last.  Its
 * key is filled in when all keys are known.  0 or -ENOMEM.
 */
static int lost_insert(struct lsom__recovery *rec, uint32_t segment,
		       struct lsom__frames *f, size_t at, uint64_t last)
{
	struct lsom__record r = {
		.type = LSOM__R_LOST,
		.len = sizeof(r),
		.component = UINT64_MAX,
	};
	struct lsom__frame frame = {
		.batch = last,
		.records_bytes = sizeof(r),
		.records = 1,
	};
	const size_t len = sizeof(frame) + sizeof(r);
	uint8_t *p = realloc(f->mem, f->bytes + len);

	if (p == NULL)
		return -ENOMEM;
	f->mem = p;
	memmove(p + at + len, p + at, f->bytes - at);
	memcpy(p + at, &frame, sizeof(frame));
	memcpy(p + at + sizeof(frame), &r, sizeof(r));
	f->bytes += len;
	rec->disk->segments[segment].has_meta = true;
	return 0;
}

/* Is the gap before @segment one that the cleaner made, taking segments? */
static bool gap_is_reuse(const struct lsom__recovery *rec,
			 const struct lsom__run *run, uint32_t segment)
{
	const struct lsom__head_position *p =
		&rec->disk->position.heads[run->head];

	/* With an index: taken only when its flushed position covers them all. */
	if (rec->disk->position.number > 0 && p->generation == run->generation)
		return rec->headers[segment].first_batch <= p->batch;
	return rec->disk->position.number == 0 && !rec->front_lost[segment];
}

/*
 * What the index covers is there, wherever it was: the run goes on behind it.
 * So what is missing then is a torn tail, if nothing knew it durable.
 */
static void run_covered(const struct lsom__recovery *rec, struct lsom__run *run,
			uint32_t segment)
{
	const struct lsom__head_position *p =
		&rec->disk->position.heads[run->head];

	if (rec->disk->position.number > 0 &&
	    p->generation == run->generation &&
	    rec->headers[segment].first_batch > p->batch)
		run->expected = MAX(run->expected, p->batch);
}

/* What is missing before @segment, up to its first batch, was in another one. */
static void gap_before(struct lsom__recovery *rec, struct lsom__run *run,
		       uint32_t segment)
{
	uint64_t first_batch = rec->headers[segment].first_batch;

	if (run->expected >= first_batch)
		return;
	if (!gap_is_reuse(rec, run, segment))
		damage_note(rec, run, segment, first_batch - 1);
	run->expected = first_batch;
}

/* Does this frame stand for batches that are known to be lost? */
static bool frame_lost(const struct lsom__frame *frame, const uint8_t *records)
{
	return frame->records > 0 &&
	       ((const struct lsom__record *)(const void *)records)->type ==
		       LSOM__R_LOST;
}

/* ---- one segment ---- */

int lsom__run_segment(struct lsom__recovery *rec, struct lsom__run *run,
		      uint32_t segment, struct lsom__frames *f)
{
	uint64_t first_batch = rec->headers[segment].first_batch;
	bool tail = lsom__rule(rec->disk, LSOM_OFF_TAIL);
	struct lsom__frame frame;
	size_t at = 0, len;
	int rv;

	f->last_batch = 0;
	run_covered(rec, run, segment);
	for (; at < f->bytes && !run->ended; at += len) {
		memcpy(&frame, f->mem + at, sizeof(frame));
		len = sizeof(frame) + frame.records_bytes;
		if (frame_lost(&frame, f->mem + at + sizeof(frame))) {
			run->expected = MAX(run->expected, frame.batch + 1);
			f->last_batch = frame.batch;
			continue;
		}
		if (frame.batch > run->expected && tail &&
		    run->expected > run->durable)
			break;
		if (run->expected < first_batch && first_batch <= frame.batch) {
			gap_before(rec, run, segment);
			len = 0; /* from there on it may be a torn tail */
			continue;
		}
		if (frame.batch > run->expected) {
			damage_note(rec, run, segment, frame.batch - 1);
			rv = lost_insert(rec, segment, f, at, frame.batch - 1);
			if (rv < 0)
				return rv;
			run->expected = frame.batch;
			len = 0; /* it is next */
			at += sizeof(frame) + sizeof(struct lsom__record);
			continue;
		}
		/* Known durable by something later, or checked now. */
		if (frame.batch > run->durable && tail) {
			rv = frame_whole(rec, segment, &frame,
					 f->mem + at + sizeof(frame));
			if (rv < 0)
				return rv;
			if (rv == 0)
				break;
		}
		run->expected = frame.batch + 1;
		f->last_batch = frame.batch;
	}
	if (at < f->bytes)
		run->ended = true;
	f->bytes = at;
	return 0;
}

int lsom__run_tail(struct lsom__recovery *rec, struct lsom__run *run,
		   uint32_t segment, struct lsom__frames *f,
		   uint64_t next_first, const struct lsom__frames *next)
{
	const struct lsom__segment_header *h = &rec->headers[segment];
	uint64_t last = MIN(run->durable, next_first - 1);
	int rv;

	if (f->closed || run->ended || run->expected > last ||
	    last < h->first_batch || lsom__undone(rec, segment, run->expected))
		return 0;
	/* A segment between the two was cleaned and taken: this one is whole. */
	if (next != NULL && next->before != NULL &&
	    next->before->segment_sequence != h->sequence)
		return 0;
	damage_note(rec, run, segment, last);
	rv = lost_insert(rec, segment, f, f->bytes, last);
	if (rv < 0)
		return rv;
	run->expected = last + 1;
	f->last_batch = last;
	return 0;
}

/* ---- one head ---- */

static bool of_run(const struct lsom__recovery *rec,
		   const struct lsom__run *run, uint32_t segment)
{
	return rec->headers[segment].generation == run->generation &&
	       rec->headers[segment].head == run->head &&
	       !rec->void_segment[segment];
}

/* The head's next segment behind place @i of the order, or LSOM__NONE. */
static uint32_t run_next(const struct lsom__recovery *rec,
			 const struct lsom__run *run, uint32_t i)
{
	while (++i < run->to)
		if (of_run(rec, run, rec->order[i]))
			return rec->order[i];
	return LSOM__NONE;
}

/*
 * Is nothing of the segment at place @i of the order asked?  The checkpoint has
 * all of it, and knew it closed, so its summary is durable; if that has rotted, a
 * rebuild reads the batches.  The head's last one is read all the same: on a disk
 * that was set back it is the one that was open then.
 */
static bool is_settled(const struct lsom__recovery *rec,
		       const struct lsom__run *run, uint32_t i)
{
	return rec->from_table[rec->order[i]] &&
	       lsom__segment_covered(rec, rec->order[i]) &&
	       run_next(rec, run, i) != LSOM__NONE;
}

/*
 * The records of a segment that was closed stay where they are: it would take
 * memory for all that was written since the disk was opened.
 */
static int frames_get(struct lsom__recovery *rec, struct lsom__run *run,
		      uint32_t segment, struct lsom__frames *f)
{
	size_t bytes;
	int rv;

	lsom__ahead_next(rec);
	rv = lsom__frames_read(rec, segment, f);
	if (rv < 0)
		return rv;
	bytes = f->bytes;
	lsom__frames_undo(rec, segment, f);
	/* A summary is written when all before it is durable. */
	if (lsom__rule(rec->disk, LSOM_OFF_DURABLE_PREFIX))
		run->durable = MAX(run->durable, f->closed ? f->last_batch
							   : f->durable_prefix);
	if (f->closed && f->bytes == bytes && bytes > 0 &&
	    f->last_batch <= run->durable) {
		lsom__frames_fini(f);
		f->parked = true;
	}
	return 0;
}

static void run_plan(struct lsom__recovery *rec, const struct lsom__run *run)
{
	uint32_t i;

	lsom__ahead_plan(&rec->ahead);
	for (i = run->from; i < run->to; i++)
		if (of_run(rec, run, rec->order[i]) && !is_settled(rec, run, i))
			lsom__ahead_add(&rec->ahead, rec->order[i]);
}

/* Read its segments; what each first batch tells of the one before. */
static int run_read(struct lsom__recovery *rec, struct lsom__run *run)
{
	struct lsom__frames *f, *before = NULL;
	uint32_t i, seg, last = LSOM__NONE;
	int rv;

	run_plan(rec, run);
	for (i = run->from; i < run->to; i++) {
		seg = rec->order[i];
		if (!of_run(rec, run, seg))
			continue;
		f = calloc(1, sizeof(*f));
		if (f == NULL)
			return -ENOMEM;
		rv = 0;
		if (is_settled(rec, run, i))
			f->closed = f->parked = true;
		else
			rv = frames_get(rec, run, seg, f);
		if (rv < 0) {
			free(f);
			return rv;
		}
		rec->open[seg] = f;
		if (before != NULL && !before->closed && f->before == NULL)
			rv = lsom__frames_before(rec, seg, f);
		if (rv < 0)
			return rv;
		if (before != NULL && !before->closed && f->before != NULL &&
		    f->before->segment_sequence ==
			    rec->headers[last].sequence) {
			rv = lsom__frames_echo(before, f->before);
			if (rv < 0)
				return rv;
			lsom__frames_undo(rec, last, before);
		}
		before = f;
		last = seg;
	}
	return 0;
}

/* All of it counts; of what the checkpoint covers nothing is asked. */
static void run_parked(struct lsom__recovery *rec, struct lsom__run *run,
		       uint32_t segment, const struct lsom__frames *f)
{
	if (lsom__segment_covered(rec, segment))
		return;
	run_covered(rec, run, segment);
	gap_before(rec, run, segment);
	run->expected = MAX(run->expected, f->last_batch + 1);
}

/* From here on they are read again where they are wanted. */
static void parked_free(struct lsom__recovery *rec, const struct lsom__run *run)
{
	struct lsom__frames *f;
	uint32_t i;

	for (i = run->from; i < run->to; i++) {
		f = rec->open[rec->order[i]];
		if (f == NULL || !f->parked)
			continue;
		lsom__frames_fini(f);
		free(f);
		rec->open[rec->order[i]] = NULL;
	}
}

static int run_find(struct lsom__recovery *rec, struct lsom__run *run)
{
	const struct lsom__head_position *p =
		&rec->disk->position.heads[run->head];
	struct lsom_disk *disk = rec->disk;
	uint32_t i, seg, next;
	int rv;

	/*
	 * What a flushed index covers was durable.  Without this a head that
	 * rests, its earlier segments cleaned and taken by the other one, would
	 * look like a torn tail from its first batch on.
	 */
	if (disk->position.number > 0 && p->generation == run->generation)
		run->durable = p->batch - 1;
	/* The same, should the index be lost: headers tell. */
	if (run->generation == rec->covered_generation)
		run->durable = MAX(run->durable, rec->covered[run->head]);
	rv = run_read(rec, run);
	for (i = run->from; i < run->to && rv == 0; i++) {
		seg = rec->order[i];
		if (!of_run(rec, run, seg))
			continue;
		if (rec->open[seg]->parked) {
			run_parked(rec, run, seg, rec->open[seg]);
			continue;
		}
		next = run_next(rec, run, i);
		rv = lsom__run_segment(rec, run, seg, rec->open[seg]);
		if (rv == 0)
			rv = lsom__run_tail(
				rec, run, seg, rec->open[seg],
				next == LSOM__NONE
					? UINT64_MAX
					: rec->headers[next].first_batch,
				next == LSOM__NONE ? NULL : rec->open[next]);
		if (rec->open[seg]->bytes == 0) {
			/* Nothing of it counts, and never will. */
			disk->segments[seg].open_pos = UINT64_MAX;
			rec->void_segment[seg] = true;
		}
	}
	parked_free(rec, run);
	return rv;
}

/* Headers that lie may have sequences of one generation within another's. */
static int by_age(const void *a, const void *b, void *arg)
{
	const struct lsom__recovery *rec = arg;
	const struct lsom__segment_header *x =
		&rec->headers[*(const uint32_t *)a];
	const struct lsom__segment_header *y =
		&rec->headers[*(const uint32_t *)b];

	if (x->generation != y->generation)
		return x->generation < y->generation ? -1 : 1;
	return x->sequence < y->sequence ? -1 : x->sequence > y->sequence;
}

/* Where the generation ends whose first segment is at place @i of the order. */
static uint32_t generation_end(const struct lsom__recovery *rec, uint32_t i)
{
	const uint64_t g = rec->headers[rec->order[i]].generation;

	while (i < rec->order_count &&
	       rec->headers[rec->order[i]].generation == g)
		i++;
	return i;
}

int lsom__runs_find(struct lsom__recovery *rec)
{
	struct lsom_disk *disk = rec->disk;
	struct lsom__run run;
	uint32_t i, to;
	uint64_t g;
	unsigned h;
	int rv;

	for (i = 0; i < disk->super.segments; i++)
		if (rec->headers[i].sequence != 0)
			rec->order[rec->order_count++] = i;
	qsort_r(rec->order, rec->order_count, sizeof(*rec->order), by_age, rec);
	lsom__segments_undo(rec);
	/* Not one by one: a header that lies may be of any. */
	for (i = 0; i < rec->order_count; i = to) {
		g = rec->headers[rec->order[i]].generation;
		to = generation_end(rec, i);
		for (h = 0;
		     h < LSOM__HEADS && g > disk->super.generation_closed;
		     h++) {
			run = (struct lsom__run){ .generation = g,
						  .from = i,
						  .to = to,
						  .head = (uint16_t)h,
						  .expected = 1 };
			rv = run_find(rec, &run);
			if (rv < 0)
				return rv;
		}
	}
	return 0;
}
