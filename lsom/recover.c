/*
 * recover: from what lies on a disk to what was acknowledged.
 *
 * All of it runs on a worker, before the disk serves, in a straight line:
 *
 *  1. read every segment's header; load the checkpoint, if the index has one;
 *  2. drop what the cleaner did and no checkpoint covers (undo.c); of the
 *     generations that were not closed, find each head's contiguous run
 *     of batches.  A missing batch n is media damage iff some batch of the
 *     generation knew it durable (durable_prefix >= n): it is skipped and the
 *     disk marked.  Otherwise it is a torn tail, never acknowledged, and
 *     everything behind it is dropped (R27);
 *  3. replay the records that the checkpoint does not cover: first states and
 *     deletions, then decisions, then data, then holes.  Taken in these passes the order of
 *     segments does not matter, as versions decide and not arrival;
 *  4. close the open segments with summaries, erase the headers of those that
 *     are free, then make the next generation durable: it bars what was dropped.
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

int lsom__recovery_read(struct lsom__recovery *rec, uint32_t segment,
			uint32_t block, uint32_t blocks, void *buf)
{
	struct lsom_disk *disk = rec->disk;

	return env_dev_read_now(disk->env, disk->dev, buf,
				(size_t)blocks * LSOM_BLOCK,
				lsom__place(disk, segment, block) * LSOM_BLOCK);
}

static const struct lsom__segment_header *header_of(struct lsom__recovery *rec,
						    uint32_t segment)
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
	rv = lsom__summary_decode(rec->buf, blocks, h, &s);
	if (rv < 0)
		return rv;
	rv = lsom__frames_check(rec->buf + sizeof(s), s.bytes, all);
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

static int frame_add(struct lsom__frames *f, const struct lsom__batch_header *b,
		     const void *records)
{
	struct lsom__frame frame = {
		.batch = b->batch,
		.pos = b->pos,
		.records_bytes = b->records_bytes,
		.records = b->records,
		.block = b->block,
		.data_crc = b->data_crc,
	};
	size_t need = f->bytes + sizeof(frame) + b->records_bytes;
	uint8_t *p = realloc(f->mem, need);

	if (p == NULL)
		return -ENOMEM;
	f->mem = p;
	memcpy(p + f->bytes, &frame, sizeof(frame));
	memcpy(p + f->bytes + sizeof(frame), records, b->records_bytes);
	f->bytes = need;
	f->last_batch = b->batch;
	f->used = b->block + b->header_blocks + b->data_blocks;
	f->durable_prefix = MAX(f->durable_prefix, b->durable_prefix);
	return 0;
}

/*
 * The frames of a segment without a summary: the whole of it is read, and every
 * batch in it found, also behind one that is damaged.
 */
static int segment_scan(struct lsom__recovery *rec, uint32_t segment,
			struct lsom__frames *out)
{
	const struct lsom__segment_header *h = header_of(rec, segment);
	uint32_t all = rec->disk->segment_blocks, at = 1;
	struct lsom__batch_header b;
	const uint8_t *p;
	int rv = lsom__recovery_read(rec, segment, 0, all, rec->buf);

	if (rv < 0)
		return rv;
	while (at < all) {
		p = rec->buf + (size_t)at * LSOM_BLOCK;
		rv = lsom__batch_decode(p, (size_t)(all - at) * LSOM_BLOCK, h,
					at, all, &b);
		if (rv < 0 || b.batch <= out->last_batch) {
			at++;
			continue;
		}
		rv = frame_add(out, &b, p + sizeof(b));
		if (rv < 0)
			return rv;
		at += b.header_blocks + b.data_blocks;
	}
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
	if (rv == -EUCLEAN) {
		/* Closed, its summary rotten: the batches are still there. */
		log_warn("disk %s: segment %u: its summary is damaged; its "
			 "batches are read one by one",
			 rec->disk->path, segment);
		rv = segment_scan(rec, segment, out);
	} else if (rv == -ENODATA &&
		   h->generation > rec->disk->super.generation_closed) {
		rv = segment_scan(rec, segment, out);
		out->scanned = true;
	}
	if (rv < 0)
		lsom__frames_fini(out);
	return rv;
}

void lsom__frames_fini(struct lsom__frames *f)
{
	if (!f->borrowed)
		free(f->mem);
	f->mem = NULL;
}

/* ---- 2: the run of a head ---- */

/* Every block of the frame's records is what its CRC says. */
static bool frame_whole(struct lsom__recovery *rec, uint32_t segment,
			const struct lsom__frame *f, const uint8_t *records)
{
	const struct lsom__data_record *d;
	uint32_t crc = 0;
	unsigned i;
	uint64_t k;

	for (i = 0; i < f->records; i++, records += d->r.len) {
		d = (const void *)records;
		if (d->r.type != LSOM__R_DATA || d->r.flags & LSOM__F_HOLE)
			continue;
		if (lsom__recovery_read(rec, segment, d->data,
					(uint32_t)d->blocks, rec->buf) < 0)
			return false;
		for (k = 0; k < d->blocks; k++)
			if (crc32c(rec->buf + k * LSOM_BLOCK, LSOM_BLOCK) !=
			    lsom__record_crcs(d)[k])
				return false;
		crc = crc32_more(crc, rec->buf, (size_t)d->blocks * LSOM_BLOCK);
	}
	return crc == f->data_crc;
}

struct run {
	uint64_t generation, expected, durable;
	uint16_t head;
	bool ended;
};

static void damage(struct lsom__recovery *rec, const struct run *run,
		   uint64_t batch)
{
	log_error("disk %s: log generation %llu, head %u: batches %llu to "
		  "%llu are damaged; components on this disk lost blocks",
		  rec->disk->path, (unsigned long long)run->generation,
		  run->head, (unsigned long long)run->expected,
		  (unsigned long long)batch - 1);
	rec->damaged = true;
	rec->disk->super.damaged = 1;
}

/*
 * Is the gap before @batch, at which @segment begins, one that the cleaner made,
 * taking segments?
 */
static bool gap_is_reuse(const struct lsom__recovery *rec,
			 const struct run *run, uint32_t segment,
			 uint64_t batch, bool first_of_segment)
{
	const struct lsom__head_position *p =
		&rec->disk->position.heads[run->head];

	if (!first_of_segment)
		return false;
	/* With an index: taken only when its flushed position covers them. */
	if (rec->disk->position.number > 0 && p->generation == run->generation)
		return run->expected < p->batch;
	/* Without: whole segments, so none of this one. */
	return rec->disk->position.number == 0 &&
	       batch == rec->headers[segment].first_batch;
}

/* Keep of an open segment's frames what belongs to the run. */
static void run_segment(struct lsom__recovery *rec, struct run *run,
			uint32_t segment, struct lsom__frames *f)
{
	size_t at = 0, kept = 0, len;
	struct lsom__frame frame;
	bool first = true;

	f->last_batch = 0;
	for (; at < f->bytes && !run->ended; at += len) {
		memcpy(&frame, f->mem + at, sizeof(frame));
		len = sizeof(frame) + frame.records_bytes;
		if (frame.batch > run->expected) {
			if (run->expected > run->durable &&
			    lsom__rule(rec->disk, LSOM_OFF_TAIL)) {
				run->ended = true;
				break;
			}
			if (!gap_is_reuse(rec, run, segment, frame.batch,
					  first))
				damage(rec, run, frame.batch);
		}
		/* Known durable by a later batch, or checked now. */
		if (frame.batch > run->durable &&
		    lsom__rule(rec->disk, LSOM_OFF_TAIL) &&
		    !frame_whole(rec, segment, &frame,
				 f->mem + at + sizeof(frame))) {
			run->ended = true;
			break;
		}
		memmove(f->mem + kept, f->mem + at, len);
		kept += len;
		run->expected = frame.batch + 1;
		f->last_batch = frame.batch;
		first = false;
	}
	f->bytes = kept;
}

static int by_sequence(const void *a, const void *b, void *arg)
{
	const struct lsom__recovery *rec = arg;
	uint64_t x = rec->headers[*(const uint32_t *)a].sequence;
	uint64_t y = rec->headers[*(const uint32_t *)b].sequence;

	return x < y ? -1 : x > y;
}

static int run_find(struct lsom__recovery *rec, uint64_t generation,
		    uint16_t head)
{
	const struct lsom__head_position *p = &rec->disk->position.heads[head];
	struct run run = { .generation = generation,
			   .head = head,
			   .expected = 1 };
	struct lsom_disk *disk = rec->disk;
	struct lsom__frames *f;
	uint32_t i, seg;
	int rv;

	/*
	 * What a flushed index covers was durable.  Without this a head that
	 * rests, its earlier segments cleaned and taken by the other one, would
	 * look like a torn tail from its first batch on.
	 */
	if (disk->position.number > 0 && p->generation == generation)
		run.durable = p->batch - 1;
	for (i = 0; i < rec->order_count; i++) {
		seg = rec->order[i];
		if (rec->headers[seg].generation != generation ||
		    rec->headers[seg].head != head || rec->void_segment[seg])
			continue;
		f = calloc(1, sizeof(*f));
		if (f == NULL)
			return -ENOMEM;
		rv = lsom__frames_read(rec, seg, f);
		if (rv < 0) {
			free(f);
			return rv;
		}
		rec->open[seg] = f;
		lsom__frames_undo(rec, seg, f);
		/* A summary is written when all before it is durable. */
		if (lsom__rule(disk, LSOM_OFF_DURABLE_PREFIX))
			run.durable =
				MAX(run.durable, f->closed ? f->last_batch
							   : f->durable_prefix);
	}
	for (i = 0; i < rec->order_count; i++) {
		seg = rec->order[i];
		if (rec->headers[seg].generation != generation ||
		    rec->headers[seg].head != head || rec->void_segment[seg])
			continue;
		run_segment(rec, &run, seg, rec->open[seg]);
		if (rec->open[seg]->bytes == 0) {
			/* Nothing of it counts, and never will. */
			disk->segments[seg].open_pos = UINT64_MAX;
			rec->void_segment[seg] = true;
		}
	}
	return 0;
}

static int runs_find(struct lsom__recovery *rec)
{
	struct lsom_disk *disk = rec->disk;
	uint64_t g;
	unsigned h;
	uint32_t i;
	int rv;

	for (i = 0; i < disk->super.segments; i++)
		if (rec->headers[i].sequence != 0)
			rec->order[rec->order_count++] = i;
	qsort_r(rec->order, rec->order_count, sizeof(*rec->order), by_sequence,
		rec);
	lsom__segments_undo(rec);
	for (g = disk->super.generation_closed + 1; g <= disk->super.generation;
	     g++)
		for (h = 0; h < LSOM__HEADS; h++) {
			rv = run_find(rec, g, (uint16_t)h);
			if (rv < 0)
				return rv;
		}
	return 0;
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

static bool segment_covered(const struct lsom__recovery *rec, uint32_t segment)
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

static int segments_replay(struct lsom__recovery *rec, unsigned pass)
{
	struct lsom_disk *disk = rec->disk;
	struct lsom__frames f;
	uint32_t i, seg;
	int rv;

	for (i = 0; i < rec->order_count; i++) {
		seg = rec->order[i];
		if (rec->void_segment[seg] || segment_covered(rec, seg))
			continue;
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
		.version = LSOM__VERSION,
		.used_blocks = f->used,
	};
	struct lsom__summary_footer end = { LSOM__SUMMARY_MAGIC, blocks,
					    h->sequence };

	memset(rec->buf, 0, bytes);
	memcpy(rec->buf, &s, sizeof(s));
	memcpy(rec->buf + sizeof(s), f->mem, f->bytes);
	memcpy(rec->buf + bytes - sizeof(end), &end, sizeof(end));
	lsom__summary_seal(rec->buf, blocks);
	return env_dev_write_now(
		rec->disk->env, rec->disk->dev, rec->buf, bytes,
		lsom__place(rec->disk, segment,
			    rec->disk->segment_blocks - blocks) *
			LSOM_BLOCK,
		ENV_DURABLE);
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
		seg->dirty = true;
	} else if (seg->state == LSOM__SEG_CLEANED &&
		   seg->cleaned_number < disk->flushed_number) {
		seg->state = LSOM__SEG_FREE;
	}
	if (seg->state == LSOM__SEG_FREE)
		disk->segments_free++;
	else if (seg->state == LSOM__SEG_CLEANED)
		disk->segments_cleaned++;
}

static int log_close(struct lsom__recovery *rec)
{
	struct lsom_disk *disk = rec->disk;
	uint32_t i;
	int rv;

	for (i = 0; i < disk->super.segments; i++) {
		if (rec->open[i] != NULL && !rec->open[i]->closed &&
		    !rec->void_segment[i]) {
			rv = summary_write(rec, i);
			if (rv < 0)
				return rv;
		}
		segment_settle(rec, i);
		if (disk->segments[i].state == LSOM__SEG_FREE &&
		    rec->headers[i].sequence != 0) {
			rv = lsom__segment_erase_now(rec, i);
			if (rv < 0)
				return rv;
		}
	}
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
			free(rec->open[i]->mem);
		free(rec->open[i]);
	}
	free(rec->open);
	free(rec->headers);
	free(rec->order);
	free(rec->void_segment);
	free(rec->from_table);
	free(rec->header_lost);
	free(rec->buf);
}

static int recovery_init(struct lsom__recovery *rec, struct lsom_disk *disk)
{
	uint32_t n = disk->super.segments;

	memset(rec, 0, sizeof(*rec));
	rec->disk = disk;
	rec->headers = calloc(n, sizeof(*rec->headers));
	rec->open = calloc(n, sizeof(*rec->open));
	rec->order = calloc(n, sizeof(*rec->order));
	rec->void_segment = calloc(n, sizeof(*rec->void_segment));
	rec->from_table = calloc(n, sizeof(*rec->from_table));
	rec->header_lost = calloc(n, sizeof(*rec->header_lost));
	rec->buf = aligned_alloc(LSOM_BLOCK, disk->super.segment_bytes);
	if (rec->headers == NULL || rec->open == NULL || rec->order == NULL ||
	    rec->void_segment == NULL || rec->from_table == NULL ||
	    rec->header_lost == NULL || rec->buf == NULL)
		return -ENOMEM;
	return 0;
}

static int index_check(const struct lsom__recovery *rec, char *why,
		       size_t why_len)
{
	if (rec->disk->position.number >= rec->index_number)
		return 0;
	snprintf(why, why_len,
		 "the index is older than the log (checkpoint %llu, the log "
		 "needs %llu): run 'basalt disk rebuild'",
		 (unsigned long long)rec->disk->position.number,
		 (unsigned long long)rec->index_number);
	return -EUCLEAN;
}

int lsom__recover(struct lsom_disk *disk, bool rebuild, char *why,
		  size_t why_len)
{
	struct lsom__recovery rec;
	unsigned pass;
	int rv;

	/* Without a store the log is all there is. */
	rebuild = rebuild || disk->kv == NULL;
	rv = recovery_init(&rec, disk);
	disk->recovery = &rec;
	disk->replaying = true;
	if (rv == 0)
		rv = lsom__headers_read(&rec);
	if (rv == 0 && disk->kv != NULL)
		rv = lsom__checkpoint_load(disk, &rec, rebuild, why, why_len);
	if (rv == 0 && !rebuild)
		rv = index_check(&rec, why, why_len);
	if (rebuild)
		disk->flushed_number = disk->checkpoint_number =
			MAX(disk->flushed_number, rec.index_number);
	if (rv == 0)
		rv = runs_find(&rec);
	for (pass = 0; pass < LSOM__PASSES && rv == 0; pass++) {
		rv = segments_replay(&rec, pass);
		if (rv == 0)
			rv = lsom__pass_end(&rec, pass);
	}
	if (rv == 0)
		rv = log_close(&rec);
	if (rv < 0 && why[0] == '\0')
		snprintf(why, why_len, "recovery failed: %s", err_text(rv));
	disk->recovery = NULL;
	disk->recovered_records = rec.records;
	recovery_fini(&rec);
	return rv;
}
