/*
 * recover: from what lies on a disk to what was acknowledged.
 *
 * All of it runs on a worker, before the disk serves, in a straight line:
 *
 *  1. know every segment's header, by the index or by reading it; load the
 *     checkpoint, if the index has one;
 *  2. drop what the cleaner did and no checkpoint covers (undo.c); of the
 *     generations that were not closed, find each head's contiguous run of
 *     batches (run.c): what is missing is damage, or the torn tail;
 *  3. replay the records that the checkpoint does not cover: first states and
 *     deletions, then decisions, then data, then holes.  Taken in these passes the order of
 *     segments does not matter, as versions decide and not arrival;
 *  4. close the open segments with summaries, erase the headers of those that
 *     nothing counts in, then make the next generation durable: it bars what was
 *     dropped.  What is cleaned is erased as ever, by the disk that runs.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/recover_int.h"

#include "base/crc.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static int read_now(struct lsom_disk *disk, void *buf, size_t len,
		    uint64_t offset)
{
	int rv;

	lsom__dev_asked(disk);
	rv = env_dev_read_now(disk->env, disk->dev, buf, len, offset);
	lsom__dev_answered(disk);
	return rv;
}

static bool device_answers(struct lsom_disk *disk)
{
	struct lsom__super s;
	int rv;

	lsom__dev_asked(disk);
	rv = lsom__super_read(disk->env, disk->dev, true, &s, NULL);
	lsom__dev_answered(disk);
	return rv == 0;
}

/*
 * -ENODATA: it is lost.  What a device fails to read that was away for a moment is
 * not: it is asked again, once it was seen to be there, and must still be there.
 */
static int block_read(const struct lsom__recovery *rec, void *buf,
		      uint64_t offset)
{
	struct lsom_disk *disk = rec->disk;
	int rv = read_now(disk, buf, LSOM_BLOCK, offset);

	if (rv != -EIO || !rec->lose_unreadable || !device_answers(disk))
		return rv;
	rv = read_now(disk, buf, LSOM_BLOCK, offset);
	return rv == -EIO && device_answers(disk) ? -ENODATA : rv;
}

/* Block by block: those that are lost hold nothing of ours. */
static int blocks_read(struct lsom__recovery *rec, uint64_t place,
		       uint32_t blocks, uint8_t *buf)
{
	uint32_t i, lost = 0;
	int rv;

	for (i = 0; i < blocks; i++, buf += LSOM_BLOCK) {
		rv = block_read(rec, buf, (place + i) * LSOM_BLOCK);
		if (rv == -ENODATA) {
			memset(buf, 0xff, LSOM_BLOCK); /* not as if unused */
			lost++;
		} else if (rv < 0) {
			return rv;
		}
	}
	if (lost > 0)
		log_warn("disk %s: %u block%s from %llu on cannot be read",
			 rec->disk->path, lost, lost == 1 ? "" : "s",
			 (unsigned long long)place);
	return 0;
}

int lsom__recovery_read(struct lsom__recovery *rec, uint32_t segment,
			uint32_t block, uint32_t blocks, void *buf)
{
	struct lsom_disk *disk = rec->disk;
	uint64_t place = lsom__place(disk, segment, block);
	size_t len = (size_t)blocks * LSOM_BLOCK;
	int rv;

	if (!lsom__ahead_take(&rec->ahead, place * LSOM_BLOCK, len, buf, &rv))
		rv = read_now(disk, buf, len, place * LSOM_BLOCK);
	if (rv == -ENODATA || (rv == -EIO && rec->lose_unreadable))
		rv = blocks_read(rec, place, blocks, buf);
	return rv;
}

static const struct lsom__segment_header *
header_of(const struct lsom__recovery *rec, uint32_t segment)
{
	return &rec->headers[segment];
}

/* ---- reading one segment ---- */

/* The frames of a closed segment.  -ENODATA: it has no summary. */
static int summary_read(struct lsom__recovery *rec, uint32_t segment,
			struct lsom__frames *out)
{
	const struct lsom__segment_header *h = header_of(rec, segment);
	uint32_t all = rec->disk->segment_blocks, blocks;
	struct lsom__summary_header s;
	int rv;

	rv = lsom__recovery_read(rec, segment, all - 1, 1, rec->buf);
	if (rv < 0)
		return rv;
	blocks = lsom__summary_blocks(rec->buf, h, all);
	if (blocks == 0)
		return -ENODATA;
	rv = lsom__recovery_read(rec, segment, all - blocks, blocks, rec->buf);
	if (rv < 0)
		return rv;
	rv = lsom__summary_take(rec->buf, blocks, h, all, &s);
	if (rv < 0)
		return rv;
	out->closed = true;
	out->last_batch = s.last_batch;
	out->used = s.used_blocks;
	out->bytes = s.bytes;
	out->mem = malloc(MAX(s.bytes, 1u));
	if (out->mem == NULL)
		return -ENOMEM;
	memcpy(out->mem, rec->buf + sizeof(s), s.bytes);
	return 0;
}

/* The segment in which the head of @segment went on, or LSOM__NONE. */
static uint32_t segment_after(const struct lsom__recovery *rec,
			      uint32_t segment)
{
	const struct lsom__segment_header *h = header_of(rec, segment), *n;
	uint32_t i, next = LSOM__NONE;

	for (i = 0; i < rec->disk->super.segments; i++) {
		n = header_of(rec, i);
		if (n->sequence > h->sequence && n->head == h->head &&
		    n->generation == h->generation &&
		    (next == LSOM__NONE ||
		     n->sequence < header_of(rec, next)->sequence))
			next = i;
	}
	return next;
}

/*
 * A segment that was closed, its summary rotten: the batches are still there.
 * What recovery kept of them then it keeps again, as it goes by the same bytes;
 * and what the head's next segment says was before it was there, too.
 */
static int closed_scan(struct lsom__recovery *rec, uint32_t segment,
		       struct lsom__frames *out)
{
	const struct lsom__segment_header *h = header_of(rec, segment);
	struct lsom__run run = { .generation = h->generation,
				 .head = h->head,
				 .expected = h->first_batch };
	uint32_t next = segment_after(rec, segment);
	struct lsom__frames after = { 0 };
	uint64_t until = 0;
	int rv;

	log_warn("disk %s: segment %u: its summary is damaged; its batches "
		 "are read one by one: if there are more of these, replace "
		 "the disk",
		 rec->disk->path, segment);
	rv = lsom__segment_scan(rec, segment, out);
	if (rv == 0 && next != LSOM__NONE) {
		until = header_of(rec, next)->first_batch;
		rv = lsom__frames_before(rec, next, &after);
	}
	if (rv == 0 && after.before != NULL &&
	    after.before->segment_sequence == h->sequence)
		rv = lsom__frames_echo(out, after.before);
	run.durable = MAX(out->durable_prefix, MAX(until, 1ull) - 1);
	if (rv == 0)
		rv = lsom__run_segment(rec, &run, segment, out);
	if (rv == 0 && next != LSOM__NONE)
		rv = lsom__run_tail(rec, &run, segment, out, until, &after);
	lsom__frames_fini(&after);
	return rv == 0 && out->bytes == 0 ? -ENODATA : rv;
}

/*
 * They stay until the recovery ends, and are its summary from then on: what they do
 * not have is missed once.
 */
static int frames_keep(struct lsom__recovery *rec, uint32_t segment,
		       struct lsom__frames *f)
{
	struct lsom__frames *copy = malloc(sizeof(*copy));

	if (copy == NULL)
		return -ENOMEM;
	*copy = *f;
	rec->open[segment] = copy;
	f->borrowed = true;
	return 0;
}

int lsom__frames_read(struct lsom__recovery *rec, uint32_t segment,
		      struct lsom__frames *out)
{
	const struct lsom__segment_header *h = header_of(rec, segment);
	int rv;

	memset(out, 0, sizeof(*out));
	if (rec->open[segment] != NULL) {
		*out = *rec->open[segment];
		out->borrowed = true;
		return 0;
	}
	rv = summary_read(rec, segment, out);
	if (h->generation <= rec->disk->super.generation_closed) {
		if (rv == -EUCLEAN || (rv == -ENODATA && h->version >= 2)) {
			rv = closed_scan(rec, segment, out);
			if (rv == 0)
				rv = frames_keep(rec, segment, out);
		}
	} else if (rv == -EUCLEAN || rv == -ENODATA) {
		rv = lsom__segment_scan(rec, segment, out);
	}
	if (rv < 0)
		lsom__frames_fini(out);
	/* Of a device's error the opening ends, and who asked for it hears. */
	if (rv < 0 && rv != -ENODATA && rv != -ENOMEM)
		snprintf(rec->disk->failure, sizeof(rec->disk->failure),
			 "reading the records of segment %u: %s: try again; if "
			 "it stays so, replace the disk",
			 segment, err_text(rv));
	return rv;
}

void lsom__frames_fini(struct lsom__frames *f)
{
	if (!f->borrowed) {
		free(f->mem);
		free(f->before);
	}
	f->mem = NULL;
	f->before = NULL;
}

/* ---- 3: replay ---- */

bool lsom__covered(const struct lsom__recovery *rec, uint32_t segment,
		   uint64_t batch)
{
	const struct lsom__head_position *p =
		&rec->disk->position.heads[rec->headers[segment].head];
	uint64_t g = rec->headers[segment].generation;

	if (rec->disk->position.number == 0)
		return false;
	return g < p->generation || (g == p->generation && batch < p->batch);
}

bool lsom__segment_covered(const struct lsom__recovery *rec, uint32_t segment)
{
	const struct lsom__head_position *p =
		&rec->disk->position.heads[rec->headers[segment].head];
	uint64_t g = rec->headers[segment].generation;

	if (rec->disk->position.number == 0)
		return false;
	return g < p->generation ||
	       (g == p->generation &&
		rec->headers[segment].sequence < p->sequence);
}

static int frames_replay(struct lsom__recovery *rec, uint32_t segment,
			 const struct lsom__frames *f, unsigned pass)
{
	struct lsom__segment *seg = &rec->disk->segments[segment];
	const struct lsom__record *r;
	struct lsom__frame frame;
	size_t at = 0, end;
	bool skip;
	int rv;

	while (at < f->bytes) {
		memcpy(&frame, f->mem + at, sizeof(frame));
		at += sizeof(frame);
		end = at + frame.records_bytes;
		rec->disk->pos_next = MAX(rec->disk->pos_next, frame.pos + 1);
		skip = lsom__covered(rec, segment, frame.batch) ||
		       lsom__undone(rec, segment, frame.batch);
		for (; at < end; at += r->len) {
			r = (const void *)(f->mem + at);
			if (r->type != LSOM__R_DATA)
				seg->has_meta = true;
			else if (r->flags & LSOM__F_HOLE)
				seg->has_holes = true;
			if (skip)
				continue;
			rv = lsom__record_replay(rec, segment, &frame, r, pass);
			if (rv < 0)
				return rv;
			rec->records++;
		}
	}
	return 0;
}

/* Is there anything in it that the checkpoint does not cover? */
static bool replayed(const struct lsom__recovery *rec, uint32_t segment)
{
	return !rec->void_segment[segment] &&
	       !lsom__segment_covered(rec, segment);
}

static void replay_plan(struct lsom__recovery *rec)
{
	uint32_t i, seg;

	lsom__ahead_plan(&rec->ahead);
	for (i = 0; i < rec->order_count; i++) {
		seg = rec->order[i];
		if (replayed(rec, seg) && rec->open[seg] == NULL)
			lsom__ahead_add(&rec->ahead, seg);
	}
}

static int segments_replay(struct lsom__recovery *rec, unsigned pass)
{
	/* Percent before each pass: all read the log, the data takes the time. */
	static const unsigned done[LSOM__PASSES + 1] = { LSOM__HEADERS_PERCENT,
							 15, 20, 90, 100 };
	struct lsom_disk *disk = rec->disk;
	struct lsom__frames f;
	uint32_t i, seg;
	int rv;

	replay_plan(rec);
	for (i = 0; i < rec->order_count; i++) {
		seg = rec->order[i];
		*rec->percent = done[pass] + (done[pass + 1] - done[pass]) *
						     (uint64_t)i /
						     rec->order_count;
		if (!replayed(rec, seg))
			continue;
		if (rec->open[seg] == NULL)
			lsom__ahead_next(rec);
		rv = lsom__frames_read(rec, seg, &f);
		if (rv == -ENODATA) {
			/* Of a closed generation, never closed: void. */
			rec->void_segment[seg] = true;
			disk->segments[seg].open_pos = UINT64_MAX;
			continue;
		}
		if (rv < 0)
			return rv;
		disk->segments[seg].last_batch = f.last_batch;
		disk->segments[seg].used = f.used;
		rv = frames_replay(rec, seg, &f, pass);
		lsom__frames_fini(&f);
		if (rv < 0)
			return rv;
	}
	return 0;
}

/* ---- 4: closing ---- */

/* Records LOST of this recovery: all keys there are may be concerned. */
static void lost_settle(struct lsom__frames *f, uint64_t key_next)
{
	struct lsom__record *r;
	struct lsom__frame frame;
	size_t at = 0;

	while (at < f->bytes) {
		memcpy(&frame, f->mem + at, sizeof(frame));
		r = (void *)(f->mem + at + sizeof(frame));
		if (frame.records > 0 && r->type == LSOM__R_LOST &&
		    r->component == UINT64_MAX)
			r->component = key_next;
		at += sizeof(frame) + frame.records_bytes;
	}
}

static int write_now(struct lsom__recovery *rec, uint32_t segment,
		     uint32_t block, uint32_t blocks)
{
	struct lsom_disk *disk = rec->disk;
	int rv;

	lsom__dev_asked(disk);
	rv = env_dev_write_now(disk->env, disk->dev, rec->buf,
			       (size_t)blocks * LSOM_BLOCK,
			       lsom__place(disk, segment, block) * LSOM_BLOCK,
			       ENV_DURABLE);
	lsom__dev_answered(disk);
	return rv;
}

/*
 * Nothing of it counts, and nothing may seem to, should the header that says so
 * rot: neither by its first batch, nor by a summary of an earlier life.
 */
static int segment_void(struct lsom__recovery *rec, uint32_t segment)
{
	int rv;

	memset(rec->buf, 0, LSOM_BLOCK);
	rv = write_now(rec, segment, rec->disk->segment_blocks - 1, 1);
	return rv < 0 ? rv : write_now(rec, segment, 1, 1);
}

static int summary_write(struct lsom__recovery *rec, uint32_t segment)
{
	const struct lsom__segment_header *h = header_of(rec, segment);
	const struct lsom__frames *f = rec->open[segment];
	uint32_t blocks = lsom__summary_need(f->bytes);
	size_t bytes = (size_t)blocks * LSOM_BLOCK;
	struct lsom__summary_header s = {
		.magic = LSOM__SUMMARY_MAGIC,
		.disk = rec->disk->super.disk,
		.segment_sequence = h->sequence,
		.generation = h->generation,
		.last_batch = f->last_batch,
		.blocks = blocks,
		.bytes = (uint32_t)f->bytes,
		.head = h->head,
		.version = LSOM__LOG_VERSION,
		.used_blocks = f->used,
	};
	struct lsom__summary_footer end = { LSOM__SUMMARY_MAGIC, blocks,
					    h->sequence };

	memset(rec->buf, 0, bytes);
	memcpy(rec->buf, &s, sizeof(s));
	memcpy(rec->buf + sizeof(s), f->mem, f->bytes);
	memcpy(rec->buf + bytes - sizeof(end), &end, sizeof(end));
	lsom__summary_seal(rec->buf, blocks);
	return write_now(rec, segment, rec->disk->segment_blocks - blocks,
			 blocks);
}

static void segment_settle(struct lsom__recovery *rec, uint32_t i)
{
	struct lsom_disk *disk = rec->disk;
	struct lsom__segment *seg = &disk->segments[i];

	if (rec->void_segment[i] ||
	    (rec->headers[i].sequence == 0 && !rec->from_table[i])) {
		disk->live_blocks -= seg->live;
		seg->state = LSOM__SEG_FREE;
		seg->live = 0;
	} else if (!rec->from_table[i]) {
		seg->state = LSOM__SEG_CLOSED;
	} else if (seg->state == LSOM__SEG_CLEANED &&
		   rec->headers[i].sequence == 0) {
		seg->state = LSOM__SEG_FREE; /* it was erased */
	}
	/* By an earlier version, its header may not be in the index yet. */
	if (seg->sequence != 0 && (!rec->from_table[i] || !seg->header_stored))
		lsom__segment_changed(disk, seg);
	if (seg->state == LSOM__SEG_FREE)
		disk->segments_free++;
	else if (seg->state == LSOM__SEG_CLEANED)
		disk->segments_cleaned++;
}

/* What the headers that are erased now tell: the generation is not closed yet. */
static uint64_t covered_of(const struct lsom__recovery *rec, unsigned head)
{
	const struct lsom_disk *disk = rec->disk;
	const struct lsom__head_position *p = &disk->position.heads[head];
	uint64_t covered = 0;

	if (rec->covered_generation == disk->super.generation)
		covered = rec->covered[head];
	if (disk->position.number > 0 &&
	    p->generation == disk->super.generation)
		covered = MAX(covered, p->batch - 1);
	return covered;
}

/*
 * Before anything is erased that the index freed, and before anything of a form
 * is written that the version before this one does not know.
 */
static int super_follow(struct lsom_disk *disk)
{
	uint64_t flushed = disk->kv == NULL ? 0 : disk->flushed_number;
	struct lsom__super *super = &disk->super;

	if (super->index_flushed == flushed &&
	    (super->incompat & LSOM__INCOMPAT) == LSOM__INCOMPAT)
		return 0;
	super->index_flushed = flushed;
	super->incompat |= LSOM__INCOMPAT;
	return lsom__super_write_now(disk);
}

static int segments_close(struct lsom__recovery *rec)
{
	struct lsom_disk *disk = rec->disk;
	uint32_t i;
	int rv;

	for (i = 0; i < disk->super.segments; i++) {
		if (rec->void_segment[i] || rec->open[i] == NULL ||
		    rec->open[i]->closed)
			continue;
		lost_settle(rec->open[i], disk->key_next);
		rv = summary_write(rec, i);
		if (rv == 0)
			continue;
		if (rec->headers[i].generation > disk->super.generation_closed)
			return rv;
		/* One that was bad may stay so. */
		log_warn("disk %s: segment %u: its summary is damaged still: "
			 "%s",
			 disk->path, i, err_text(rv));
	}
	return 0;
}

/*
 * What is erased may have a second copy of what was last in another segment, as long
 * as that is not closed.
 */
static int log_close(struct lsom__recovery *rec)
{
	struct lsom_disk *disk = rec->disk;
	uint32_t i;
	int rv;

	for (i = 0; i < LSOM__HEADS; i++)
		disk->flushed_covered[i] = covered_of(rec, i);
	rv = super_follow(disk);
	if (rv == 0)
		rv = segments_close(rec);
	if (rv < 0)
		return rv;
	for (i = 0; i < disk->super.segments; i++) {
		rv = 0;
		if (rec->void_segment[i] && rec->headers[i].sequence != 0)
			rv = segment_void(rec, i);
		if (rv < 0)
			return rv;
		segment_settle(rec, i);
		if (disk->segments[i].state == LSOM__SEG_FREE &&
		    rec->headers[i].sequence != 0) {
			rv = lsom__segment_erase_now(rec, i);
			if (rv < 0)
				return rv;
		}
	}
	/* Of the next generation. */
	memset(disk->flushed_covered, 0, sizeof(disk->flushed_covered));
	if (lsom__rule(disk, LSOM_OFF_GENERATION)) {
		disk->super.generation_closed = disk->super.generation;
		disk->super.generation++;
	}
	return lsom__super_write_now(disk);
}

/* ---- together ---- */

static void recovery_fini(struct lsom__recovery *rec)
{
	uint32_t i;

	for (i = 0; rec->open != NULL && i < rec->disk->super.segments; i++) {
		if (rec->open[i] != NULL)
			lsom__frames_fini(rec->open[i]);
		free(rec->open[i]);
	}
	free(rec->open);
	free(rec->headers);
	free(rec->header_from);
	free(rec->order);
	free(rec->void_segment);
	free(rec->from_table);
	free(rec->header_lost);
	free(rec->front_lost);
	free(rec->buf);
	lsom__repairs_fini(rec);
	lsom__ahead_fini(&rec->ahead);
}

static int recovery_init(struct lsom__recovery *rec, struct lsom_disk *disk)
{
	uint32_t n = disk->super.segments;

	memset(rec, 0, sizeof(*rec));
	rec->disk = disk;
	rec->headers = calloc(n, sizeof(*rec->headers));
	rec->header_from = calloc(n, sizeof(*rec->header_from));
	rec->open = calloc(n, sizeof(*rec->open));
	rec->order = calloc(n, sizeof(*rec->order));
	rec->void_segment = calloc(n, sizeof(*rec->void_segment));
	rec->from_table = calloc(n, sizeof(*rec->from_table));
	rec->header_lost = calloc(n, sizeof(*rec->header_lost));
	rec->front_lost = calloc(n, sizeof(*rec->front_lost));
	rec->buf = aligned_alloc(LSOM_BLOCK, disk->super.segment_bytes);
	if (rec->headers == NULL || rec->header_from == NULL ||
	    rec->open == NULL || rec->order == NULL ||
	    rec->void_segment == NULL || rec->from_table == NULL ||
	    rec->header_lost == NULL || rec->front_lost == NULL ||
	    rec->buf == NULL)
		return -ENOMEM;
	return lsom__ahead_init(&rec->ahead, disk);
}

/*
 * Index and log must be of the same life.  A generation is durable on the disk
 * before an index knows it, so a disk whose generation is older than the index's
 * is a copy that was made earlier, or was set back to what it was: what it would
 * serve is not what was acknowledged.  If one superblock is not whole, that may
 * have been the newest.
 */
static int index_check(const struct lsom__recovery *rec, char *why,
		       size_t why_len)
{
	const struct lsom__position *p = &rec->disk->position;
	struct lsom__super *super = &rec->disk->super;
	uint64_t seen = 0;
	unsigned i;

	if (p->number < rec->index_number) {
		snprintf(why, why_len,
			 "the index is older than the log (checkpoint %llu, "
			 "the log needs %llu): run 'basalt disk rebuild'",
			 (unsigned long long)p->number,
			 (unsigned long long)rec->index_number);
		return -EUCLEAN;
	}
	for (i = 0; p->number > 0 && i < LSOM__HEADS; i++)
		seen = MAX(seen, p->heads[i].generation);
	if (seen > super->generation && !rec->disk->super_torn) {
		snprintf(why, why_len,
			 "this is an older copy of the disk: its log is of "
			 "generation %llu, and generation %llu was in use here",
			 (unsigned long long)super->generation,
			 (unsigned long long)seen);
		return -ESTALE;
	}
	super->generation = MAX(super->generation, seen);
	return 0;
}

/* For people, while the disk is open: what this recovery did not find. */
static void damage_tell(const struct lsom__recovery *rec)
{
	struct lsom_disk *disk = rec->disk;

	if (disk->segments_set_back > 0) {
		snprintf(disk->damage, sizeof(disk->damage),
			 "%u segment%s held before the last writes: it is an "
			 "older copy of the disk, or it lost them",
			 disk->segments_set_back,
			 disk->segments_set_back == 1 ? " held what it"
						      : "s held what they");
		log_error("disk %s: %s", disk->path, disk->damage);
	} else if (rec->batches_lost > 0) {
		snprintf(disk->damage, sizeof(disk->damage),
			 "%llu batch%s of the log %s lost; %s",
			 (unsigned long long)rec->batches_lost,
			 rec->batches_lost == 1 ? "" : "es",
			 rec->batches_lost == 1 ? "was" : "were",
			 rec->damaged ? "nobody knows which blocks they had"
				      : "what they had is known, but it may be "
					"lost as well");
	}
}

int lsom__recover(struct lsom_disk *disk, struct lsom_disk_open *req)
{
	const size_t why_len = sizeof(req->why);
	bool rebuild = req->rebuild;
	char *why = req->why;
	struct lsom__recovery rec;
	unsigned pass;
	int rv;

	/* Without a store the log is all there is. */
	rebuild = rebuild || disk->kv == NULL;
	rv = recovery_init(&rec, disk);
	rec.percent = &req->percent;
	rec.lose_unreadable = req->lose_unreadable;
	disk->recovery = &rec;
	disk->replaying = true;
	if (rv == 0 && disk->kv != NULL)
		rv = lsom__index_load(disk, rebuild, why, why_len);
	if (rv == 0)
		rv = lsom__headers_load(disk, &rec, why, why_len);
	if (rv == 0)
		rv = lsom__headers_read(&rec);
	if (rv == 0)
		rv = lsom__checkpoint_load(disk, &rec, why, why_len);
	if (rv == 0 && !rebuild)
		rv = index_check(&rec, why, why_len);
	if (rebuild)
		disk->flushed_number = disk->checkpoint_number =
			MAX(disk->flushed_number, rec.index_number);
	/* No number is given twice: by it an index is known as the last one. */
	disk->checkpoint_number =
		MAX(disk->checkpoint_number, disk->super.index_flushed);
	disk->spills = disk->kv != NULL && disk->position.number == 0;
	if (rv == 0)
		rv = lsom__runs_find(&rec);
	for (pass = 0; pass < LSOM__PASSES && rv == 0; pass++) {
		rv = segments_replay(&rec, pass);
		if (rv == 0)
			rv = lsom__pass_end(&rec, pass);
	}
	if (rv == 0)
		*rec.percent = 100;
	if (rv == 0)
		rv = log_close(&rec);
	if (rv == 0)
		damage_tell(&rec);
	if (rv < 0 && why[0] == '\0')
		snprintf(why, why_len, "recovery failed: %s",
			 disk->failure[0] != '\0' ? disk->failure
						  : lsom__device_text(rv));
	disk->spills = false;
	disk->recovery = NULL;
	disk->recovered_records = rec.records;
	recovery_fini(&rec);
	return rv;
}
