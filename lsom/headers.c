/*
 * headers: what each segment is, when a disk is opened.
 *
 * A disk has up to 131,072 of them, and a header each would be minutes of seeks.
 * So the index tells, too, as far as it can be believed: lsom__headers_load().
 * What that leaves to be read is what was open or just cleaned, and of the free
 * segments those that were taken since.  As free ones are taken in one order
 * (reuse.c), these come first in it, but for some that were left out: their
 * first batch was never durable, for one.
 *
 * A segment whose header cannot be read is not free for that: what it was is
 * also told by its summary, by its first batches, and by the index.  Only if none
 * of them knows it, it holds nothing that could be found again.  On a disk that
 * had other contents before, most are like that.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/recover_int.h"

#include "base/err.h"
#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

/*
 * Segments whose first batches are searched: a disk that had other contents
 * before may have them all.
 */
#define SEARCHES_MAX 64u
/*
 * Free segments that are passed over in their turn, or left as they were: a
 * first batch of each slot of a head may be lost with the power, one segment was
 * being zeroed, or given back; and, after damage only, some were being read.
 */
#define LEFT_OUT_MAX 32u
static_assert(LEFT_OUT_MAX > LSOM__HEADS * (LSOM__BATCHES + 1) + 8,
	      "what may be left out, and some more");

/* From the summary: the header, but for the number of its first batch. */
static int from_summary(struct lsom__recovery *rec, uint32_t segment,
			struct lsom__segment_header *h)
{
	uint32_t all = rec->disk->segment_blocks;
	struct lsom__summary_footer f;
	struct lsom__summary_header s;
	struct lsom__frame first;
	int rv = lsom__recovery_read(rec, segment, all - 1, 1, rec->buf);

	if (rv < 0)
		return rv;
	memcpy(&f, rec->buf + LSOM_BLOCK - sizeof(f), sizeof(f));
	if (f.magic != LSOM__SUMMARY_MAGIC || f.blocks == 0 || f.blocks >= all)
		return -ENODATA;
	rv = lsom__recovery_read(rec, segment, all - f.blocks, f.blocks,
				 rec->buf);
	if (rv < 0)
		return rv;
	memcpy(&s, rec->buf, sizeof(s));
	h->disk = rec->disk->super.disk;
	h->sequence = s.segment_sequence;
	h->generation = s.generation;
	h->head = s.head;
	h->version = s.version;
	if (s.head >= LSOM__HEADS || s.segment_sequence != f.segment_sequence ||
	    lsom__summary_take(rec->buf, f.blocks, h, all, &s) < 0 ||
	    s.bytes < sizeof(first))
		return -ENODATA;
	memcpy(&first, rec->buf + sizeof(s), sizeof(first));
	h->first_batch = first.batch;
	h->open_pos = first.pos;
	return 0;
}

/* If a batch begins at @block, which is @at: the segment's header by it. */
static int batch_at(struct lsom__recovery *rec, const uint8_t *at,
		    uint32_t block, uint32_t room,
		    struct lsom__segment_header *h,
		    struct lsom__batch_header *b)
{
	memcpy(b, at, sizeof(*b));
	h->disk = rec->disk->super.disk;
	h->sequence = b->segment_sequence;
	h->generation = b->generation;
	h->head = b->head;
	h->version = b->version;
	if (b->head >= LSOM__HEADS || b->segment_sequence == 0 ||
	    b->generation == 0 ||
	    lsom__batch_decode(at, (size_t)room * LSOM_BLOCK, h, block,
			       rec->disk->segment_blocks, b) < 0)
		return -ENODATA;
	h->first_batch = b->batch;
	h->open_pos = b->pos;
	return 0;
}

static int from_first_batch(struct lsom__recovery *rec, uint32_t segment,
			    struct lsom__segment_header *h)
{
	uint32_t room =
		MIN(LSOM__HEADER_BLOCKS_MAX, rec->disk->segment_blocks - 1);
	struct lsom__batch_header b;
	int rv = lsom__recovery_read(rec, segment, 1, room, rec->buf);

	return rv < 0 ? rv : batch_at(rec, rec->buf, 1, room, h, &b);
}

/*
 * From the first batch that can be read behind one that cannot: it repeats what
 * that was.  More in front of it, and what was in them is lost.
 */
static int from_later_batch(struct lsom__recovery *rec, uint32_t segment,
			    struct lsom__segment_header *h)
{
	const uint32_t batch = LSOM__HEADER_BLOCKS_MAX + LSOM__BATCH_BLOCKS;
	uint32_t all = rec->disk->segment_blocks, at;
	uint32_t room = MIN(2 * batch, all - 1);
	const struct lsom__echo *echo;
	struct lsom__batch_header b;
	int rv;

	if (rec->headers_searched == SEARCHES_MAX)
		return -ENODATA;
	rec->headers_searched++;
	rv = lsom__recovery_read(rec, segment, 1, room, rec->buf);
	if (rv < 0)
		return rv;
	for (at = 1; at <= room; at++)
		if (batch_at(rec, rec->buf + (size_t)(at - 1) * LSOM_BLOCK, at,
			     room + 1 - at, h, &b) == 0)
			break;
	if (at > room)
		return -ENODATA;
	echo = lsom__batch_echo(rec->buf + (size_t)(at - 1) * LSOM_BLOCK, &b,
				all);
	if (echo != NULL && echo->segment_sequence == h->sequence &&
	    echo->frame.block == 1) {
		h->first_batch = echo->frame.batch;
		h->open_pos = echo->frame.pos;
	} else {
		rec->front_lost[segment] = true;
	}
	return 0;
}

static bool all_zero(const uint8_t *block)
{
	return block[0] == 0 && memcmp(block, block + 1, LSOM_BLOCK - 1) == 0;
}

/* The first batch tells nothing either. */
static int from_behind(struct lsom__recovery *rec, uint32_t segment,
		       struct lsom__segment_header *h)
{
	struct lsom__segment_header summary = { 0 };
	int rv = from_later_batch(rec, segment, h), by_summary;

	if (rv < 0)
		memset(h, 0, sizeof(*h));
	by_summary = from_summary(rec, segment, &summary);
	if (by_summary == 0 && summary.sequence >= h->sequence) {
		*h = summary;
		rec->front_lost[segment] = false;
		return 0;
	}
	return rv < 0 && by_summary < 0 && by_summary != -ENODATA ? by_summary
								  : rv;
}

/* 0: @h is the header, or there never was one.  Else nothing can be read. */
static int header_find(struct lsom__recovery *rec, uint32_t segment, int status,
		       struct lsom__segment_header *h)
{
	struct lsom_disk *disk = rec->disk;
	int rv;

	memset(h, 0, sizeof(*h));
	if (status == 0 && all_zero(rec->buf))
		return 0;
	/* The newer of the two: a summary may be of an earlier life. */
	rv = from_first_batch(rec, segment, h);
	if (rv < 0)
		rv = from_behind(rec, segment, h);
	if (rv < 0) {
		memset(h, 0, sizeof(*h));
		if (status < 0 && rv != -ENODATA)
			return status; /* the device, not one block of it */
	}
	if (!lsom__segment_counts_valid(h))
		memset(h, 0, sizeof(*h));
	rec->header_lost[segment] = rec->headers_lost = true;
	if (h->sequence != 0)
		log_error("disk %s: the header of segment %u is damaged: what "
			  "it holds is known all the same",
			  disk->path, segment);
	else
		rec->headers_unknown++;
	return 0;
}

static void covered_note(struct lsom__recovery *rec,
			 const struct lsom__segment_header *h)
{
	uint64_t *covered = rec->covered;

	if (h->generation < rec->covered_generation)
		return;
	if (h->generation > rec->covered_generation)
		memset(covered, 0, sizeof(rec->covered));
	rec->covered_generation = h->generation;
	covered[LSOM__HEAD_CLEANER] =
		MAX(covered[LSOM__HEAD_CLEANER], h->covered);
	covered[LSOM__HEAD_GUEST] =
		MAX(covered[LSOM__HEAD_GUEST], h->covered_guest);
}

static int header_read(struct lsom__recovery *rec, uint32_t segment)
{
	struct lsom__segment_header *h = &rec->headers[segment];
	int rv = lsom__recovery_read(rec, segment, 0, 1, rec->buf);

	if (rv < 0 || lsom__segment_header_decode(
			      rec->buf, &rec->disk->super.disk, segment, h) < 0)
		return header_find(rec, segment, rv, h);
	return 0;
}

/* Those that nothing else tells. */
static int unknown_read(struct lsom__recovery *rec, uint32_t *list)
{
	uint32_t count = 0, i;
	int rv = 0;

	for (i = 0; i < rec->disk->super.segments; i++)
		if (rec->header_from[i] == LSOM__HEADER_DISK)
			list[count++] = i;
	for (i = 0; i < count && rv == 0; i++) {
		*rec->percent = LSOM__HEADERS_PERCENT * (uint64_t)i / count;
		if (i % LSOM__AHEAD == 0)
			lsom__ahead_headers(rec, list + i,
					    MIN(count - i, LSOM__AHEAD));
		rv = header_read(rec, list[i]);
	}
	return rv;
}

/* As lsom__free_take() would take them. */
static int by_turn(const void *a, const void *b, void *arg)
{
	const struct lsom__recovery *rec = arg;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	uint64_t sx = rec->headers[x].sequence, sy = rec->headers[y].sequence;

	if (sx == sy)
		return x < y ? -1 : x > y;
	/* Never used: last of all. */
	return sx - 1 < sy - 1 ? -1 : 1;
}

/*
 * Of those that were free: what was taken since.  Which are found not to be so
 * were left out, or come after; so many cannot have been left out.
 */
static int taken_read(struct lsom__recovery *rec, uint32_t *list)
{
	uint32_t count = 0, same = 0, i;
	struct lsom__segment *seg;
	uint64_t sequence;
	int rv;

	for (i = 0; i < rec->disk->super.segments; i++)
		if (rec->header_from[i] == LSOM__HEADER_FREE)
			list[count++] = i;
	qsort_r(list, count, sizeof(*list), by_turn, rec);
	for (i = 0; i < count && same < LEFT_OUT_MAX; i++) {
		sequence = rec->headers[list[i]].sequence;
		if (i % LEFT_OUT_MAX == 0)
			lsom__ahead_headers(rec, list + i,
					    MIN(count - i, LEFT_OUT_MAX));
		rv = header_read(rec, list[i]);
		if (rv < 0)
			return rv;
		seg = &rec->disk->segments[list[i]];
		seg->header_stored &=
			rec->headers[list[i]].sequence == sequence;
		same += rec->headers[list[i]].sequence == sequence;
	}
	for (; i < count; i++)
		rec->headers[list[i]].head = LSOM__HEAD_NONE;
	return 0;
}

static void header_take(struct lsom__recovery *rec, uint32_t segment)
{
	struct lsom__segment_header *h = &rec->headers[segment];
	struct lsom_disk *disk = rec->disk;
	struct lsom__segment *seg = &disk->segments[segment];

	if (h->sequence == 0)
		return;
	seg->sequence = h->sequence;
	seg->generation = h->generation;
	seg->open_pos = h->open_pos;
	seg->index_number = h->index_number;
	seg->first_batch = h->first_batch;
	seg->head = (uint8_t)MIN(h->head, LSOM__HEADS - 1);
	seg->version = (uint8_t)h->version;
	disk->sequence_next = MAX(disk->sequence_next, h->sequence + 1);
	disk->pos_next = MAX(disk->pos_next, h->open_pos + 1);
	rec->index_number = MAX(rec->index_number, h->index_number);
	covered_note(rec, h);
	if (h->head == LSOM__HEAD_NONE)
		memset(h, 0, sizeof(*h)); /* erased: there is none */
}

int lsom__headers_read(struct lsom__recovery *rec)
{
	struct lsom_disk *disk = rec->disk;
	uint64_t generation = disk->super.generation;
	uint32_t i;
	int rv;

	/* The order of those in use is not known yet: there is room for a list. */
	rv = unknown_read(rec, rec->order);
	if (rv == 0)
		rv = taken_read(rec, rec->order);
	if (rv < 0)
		return rv;
	for (i = 0; i < disk->super.segments; i++) {
		generation = MAX(generation, rec->headers[i].generation);
		header_take(rec, i);
	}
	if (rec->headers_unknown > 0)
		log_warn("disk %s: %u segment%s no header of ours, and nothing "
			 "tells what is there: used before the disk was "
			 "formatted, or damaged",
			 disk->path, rec->headers_unknown,
			 rec->headers_unknown == 1 ? " has" : "s have");
	/* Durable in a superblock before the first append: that one is lost. */
	if (generation > disk->super.generation)
		log_error("disk %s: a superblock is damaged or was not "
			  "written: the log is of generation %llu, not %llu",
			  disk->path, (unsigned long long)generation,
			  (unsigned long long)disk->super.generation);
	disk->super.generation = generation;
	return 0;
}
