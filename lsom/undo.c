/*
 * undo: what the cleaner did and no checkpoint covers is dropped.
 *
 * A victim is used again only when a flushed checkpoint covers the moves that
 * emptied it.  So what an uncovered batch of the cleaner's head holds, moved
 * blocks, states and tombs carried forward, lies at its source as well, and the
 * index that is flushed points there.  A recovery that drops such batches loses
 * nothing, and the segments they lie in are free again.
 *
 * That is what keeps a disk alive that is full and whose lives are short.  With
 * R = LSOM__RESERVED segments, "left" being the free segments that a recovery
 * would find if the power went now:
 *
 *	left >= R, at any time.
 *
 * - A guest's head takes a free segment only if R remain (segment.c).
 * - The cleaner's head takes any; until a checkpoint covers it, a recovery frees
 *   it, so left is the same.
 * - A checkpoint makes what the cleaner took last, and frees what it emptied.
 *   One that would leave less than R waits until the cleaner has emptied as much
 *   as it took (lsom__cleaner_owes).
 * - A recovery takes no segment: open ones are closed in place.  What it finds
 *   cleaned and covered counts as free: its header is erased, and it is.
 *
 * So each life begins with R free segments for the cleaner, some of which it has
 * to erase first, however many were cut short before it, and the first that lasts long enough to empty a victim
 * and flush a checkpoint gets ahead.  It can: what guests may fill leaves at least
 * R more segments' worth of room (usable_blocks(), 6 segments at least), so some
 * closed segment is less than full, and one free segment is enough to hold what
 * is live in it (victim_fits).  What takes the room away, segments that the
 * device cannot read any more, ends in -ENOSPC (log.c).
 *
 * What an uncovered batch is, is told by the position of the flushed checkpoint.
 * Without one, by the headers: each has the checkpoint that was flushed when its
 * segment was taken, or erased.  If none has a later one than a segment of the
 * cleaner, nothing that it copied was erased, so nothing was overwritten.
 */
#include "lsom/recover_int.h"

#include "base/util.h"

bool lsom__undone(const struct lsom__recovery *rec, uint32_t segment,
		  uint64_t batch)
{
	const struct lsom__segment_header *h = &rec->headers[segment];

	if (h->head != LSOM__HEAD_CLEANER ||
	    !lsom__rule(rec->disk, LSOM_OFF_UNDO))
		return false;
	if (rec->disk->position.number > 0)
		return !lsom__covered(rec, segment, batch);
	return !rec->headers_lost && h->index_number >= rec->index_number;
}

void lsom__frames_undo(const struct lsom__recovery *rec, uint32_t segment,
		       struct lsom__frames *f)
{
	struct lsom__frame frame;
	size_t at = 0;

	while (at < f->bytes) {
		memcpy(&frame, f->mem + at, sizeof(frame));
		if (lsom__undone(rec, segment, frame.batch))
			break;
		at += sizeof(frame) + frame.records_bytes;
	}
	f->bytes = at;
}

void lsom__segments_undo(struct lsom__recovery *rec)
{
	uint32_t i, seg;

	for (i = 0; i < rec->order_count; i++) {
		seg = rec->order[i];
		if (!lsom__undone(rec, seg, rec->headers[seg].first_batch))
			continue;
		rec->void_segment[seg] = true;
		rec->disk->segments[seg].open_pos = UINT64_MAX;
	}
}
