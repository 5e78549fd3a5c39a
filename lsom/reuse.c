/*
 * reuse: which segments may be taken, and which soon will be.
 *
 * A disk has up to 131,072 segments, and this is asked at each step of the
 * cleaner: so what is looked for is kept in order.  A list has all that anything
 * lies in, as they were taken: the oldest first.  A heap has the free ones that
 * something is left in, the oldest contents on top; those that were never used
 * lie behind a mark that only moves up.  Of those in use two lists are kept: what
 * lost its last live block since somebody looked, and what is cleaned and waits
 * for a checkpoint, in the order in which it was.
 *
 * An opening counts on the order in which free ones are taken: headers.c.
 *
 * Other files change a segment's state and say so here; segment.c has the rules.
 */
#include "lsom/lsom_int.h"

#include "base/util.h"

#include <stdlib.h>

static uint32_t index_of(const struct lsom_disk *disk,
			 const struct lsom__segment *seg)
{
	return (uint32_t)(seg - disk->segments);
}

/* ---- in order of age ---- */

/* Is anything in it that counts, or did? */
static bool aged(const struct lsom__segment *seg)
{
	return seg->sequence != 0 && seg->open_pos != UINT64_MAX;
}

void lsom__segment_opened(struct lsom_disk *disk, struct lsom__segment *seg)
{
	if (aged(seg))
		TAILQ_REMOVE(&disk->aged, seg, age);
	seg->sequence = disk->sequence_next++;
	seg->open_pos = disk->pos_next;
	TAILQ_INSERT_TAIL(&disk->aged, seg, age);
}

uint64_t lsom__segments_oldest(const struct lsom_disk *disk, uint32_t except)
{
	const struct lsom__segment *seg = TAILQ_FIRST(&disk->aged);

	if (seg != NULL && index_of(disk, seg) == except)
		seg = TAILQ_NEXT(seg, age);
	return seg != NULL ? seg->open_pos : UINT64_MAX;
}

static int by_age(const void *a, const void *b, void *arg)
{
	const struct lsom_disk *disk = arg;
	uint64_t x = disk->segments[*(const uint32_t *)a].open_pos;
	uint64_t y = disk->segments[*(const uint32_t *)b].open_pos;

	return x < y ? -1 : x > y;
}

/* @list has room for all of them. */
static void aged_sort(struct lsom_disk *disk, uint32_t *list)
{
	uint32_t count = 0, i;

	TAILQ_INIT(&disk->aged);
	for (i = 0; i < disk->super.segments; i++)
		if (aged(&disk->segments[i]))
			list[count++] = i;
	qsort_r(list, count, sizeof(*list), by_age, disk);
	for (i = 0; i < count; i++)
		TAILQ_INSERT_TAIL(&disk->aged, &disk->segments[list[i]], age);
}

/* ---- free ones with something old in them ---- */

static bool older(const struct lsom_disk *disk, uint32_t a, uint32_t b)
{
	return disk->segments[a].sequence < disk->segments[b].sequence;
}

static void heap_add(struct lsom_disk *disk, uint32_t segment)
{
	uint32_t *heap = disk->free_heap, at = disk->free_used++, up;

	for (; at > 0; at = up) {
		up = (at - 1) / 2;
		if (!older(disk, segment, heap[up]))
			break;
		heap[at] = heap[up];
	}
	heap[at] = segment;
}

static uint32_t heap_take(struct lsom_disk *disk)
{
	uint32_t *heap = disk->free_heap, top = heap[0], at = 0, down;
	uint32_t last = heap[--disk->free_used];

	for (; (down = 2 * at + 1) < disk->free_used; at = down) {
		if (down + 1 < disk->free_used &&
		    older(disk, heap[down + 1], heap[down]))
			down++;
		if (!older(disk, heap[down], last))
			break;
		heap[at] = heap[down];
	}
	heap[at] = last;
	return top;
}

/* Passed over is one that is given back, or read: after damage only. */
static uint32_t used_take(struct lsom_disk *disk)
{
	uint32_t segment, next;

	if (disk->free_used == 0)
		return LSOM__NONE;
	segment = heap_take(disk);
	if (disk->segments[segment].reads == 0)
		return segment;
	next = used_take(disk);
	heap_add(disk, segment);
	return next;
}

/* ---- never used ones ---- */

static bool unused(const struct lsom_disk *disk, uint32_t segment)
{
	const struct lsom__segment *seg = &disk->segments[segment];

	return seg->state == LSOM__SEG_FREE && seg->sequence == 0;
}

/* Not the one that is being zeroed. */
static uint32_t unused_take(struct lsom_disk *disk)
{
	uint32_t i;

	while (disk->unused_from < disk->super.segments &&
	       !unused(disk, disk->unused_from))
		disk->unused_from++;
	for (i = disk->unused_from; i < disk->super.segments; i++)
		if (unused(disk, i) && disk->segments[i].reads == 0 &&
		    !(disk->zero_busy && i == disk->super.zeroed))
			return i;
	return LSOM__NONE;
}

uint32_t lsom__free_zeroed(const struct lsom_disk *disk, uint32_t max)
{
	uint32_t n = disk->free_used, i;

	for (i = disk->unused_from; i < disk->super.zeroed && n < max; i++)
		n += unused(disk, i);
	return MIN(n, max);
}

uint32_t lsom__free_take(struct lsom_disk *disk)
{
	uint32_t segment = used_take(disk);

	return segment != LSOM__NONE ? segment : unused_take(disk);
}

void lsom__free_add(struct lsom_disk *disk, uint32_t segment)
{
	if (disk->segments[segment].sequence != 0)
		heap_add(disk, segment);
}

/* ---- what is emptied, and what is cleaned ---- */

/*
 * Is nothing of it needed?  Not the one that is being walked: freed and taken
 * again, it would hold other records when the walk ends.
 */
static bool empty(const struct lsom__segment *seg)
{
	return seg->state == LSOM__SEG_CLOSED && !seg->cleaning &&
	       seg->live == 0 && !seg->has_meta && !seg->has_holes;
}

void lsom__segment_emptied(struct lsom_disk *disk, uint32_t segment)
{
	struct lsom__segment *seg = &disk->segments[segment];

	if (!empty(seg) || seg->listed)
		return;
	seg->listed = true;
	TAILQ_INSERT_TAIL(&disk->emptied, seg, link);
}

void lsom__cleaned_add(struct lsom_disk *disk, uint32_t segment)
{
	struct lsom__segment *seg = &disk->segments[segment];

	assert(!seg->listed);
	seg->listed = true;
	TAILQ_INSERT_TAIL(&disk->cleaned, seg, link);
}

void lsom__cleaned_remove(struct lsom_disk *disk, uint32_t segment)
{
	struct lsom__segment *seg = &disk->segments[segment];

	assert(seg->listed);
	seg->listed = false;
	TAILQ_REMOVE(&disk->cleaned, seg, link);
}

/*
 * Its first batch repeats the last one of the segment before it in its head, and its
 * header says that there is no other behind that: nothing else does while that one
 * has no summary.  (Taken again, it is a later one.)
 */
static bool follows_unclosed(const struct lsom_disk *disk,
			     const struct lsom__segment *seg)
{
	const struct lsom__segment *before;

	if (seg->before == LSOM__NONE)
		return false;
	before = &disk->segments[seg->before];
	return before->state == LSOM__SEG_CLOSING &&
	       before->sequence < seg->sequence;
}

/*
 * Those that are held, by the segment before or by a read, no checkpoint frees: the
 * cleaner, which would begin one for them, does not count them.
 */
void lsom__segments_release(struct lsom_disk *disk)
{
	bool wait = lsom__rule(disk, LSOM_OFF_REUSE);
	struct lsom__segment *seg, *next;

	while ((seg = TAILQ_FIRST(&disk->emptied)) != NULL) {
		TAILQ_REMOVE(&disk->emptied, seg, link);
		seg->listed = false;
		if (empty(seg))
			lsom__segment_cleaned(disk, index_of(disk, seg));
	}
	disk->segments_held = 0;
	TAILQ_FOREACH_SAFE (seg, &disk->cleaned, link, next) {
		if (wait && (seg->cleaned_number >= disk->flushed_number ||
			     disk->erases == LSOM__ERASES))
			break;
		if (seg->reads > 0 || follows_unclosed(disk, seg)) {
			disk->segments_held++;
			continue;
		}
		if (wait)
			lsom__segment_erase(disk, index_of(disk, seg));
		else
			lsom__segment_freed(disk, index_of(disk, seg));
	}
}

void lsom__segments_sort(struct lsom_disk *disk)
{
	struct lsom__segment *seg;
	uint32_t i;

	aged_sort(disk, disk->free_heap); /* which is made below */
	disk->free_used = disk->unused_from = 0;
	TAILQ_INIT(&disk->emptied);
	TAILQ_INIT(&disk->cleaned);
	for (i = 0; i < disk->super.segments; i++) {
		seg = &disk->segments[i];
		seg->listed = false;
		seg->before = LSOM__NONE; /* all are closed */
		if (seg->state == LSOM__SEG_FREE) {
			lsom__free_add(disk, i);
		} else if (seg->state == LSOM__SEG_CLEANED) {
			/* The index that says so is flushed. */
			seg->cleaned_number =
				MIN(seg->cleaned_number, disk->flushed_number);
			lsom__cleaned_add(disk, i);
		} else {
			lsom__segment_emptied(disk, i);
		}
	}
}
