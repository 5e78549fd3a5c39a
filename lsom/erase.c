/*
 * erase: a segment that becomes free says so on the disk.
 *
 * Its header is replaced, durably, by one of no head: from then on nothing in
 * it counts, whatever becomes of the index.  So an index made from the log
 * alone knows what is free, and what the cleaner's moves name as their source
 * either lies there whole or is known to be gone (undo.c).
 *
 * The header keeps the segment's sequence and has the checkpoint that was
 * flushed when it became free: an older index still points into it, and is
 * refused.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/recover_int.h"

#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

struct erase {
	struct env_io io;
	struct iovec iov;
	struct lsom_disk *disk;
	uint32_t segment;
};

static void header_make(const struct lsom_disk *disk, uint32_t segment,
			void *block)
{
	struct lsom__segment_header h = lsom__segment_header_of(disk, segment);

	assert(h.sequence != 0);
	h.generation = disk->super.generation;
	h.index_number = disk->flushed_number;
	h.first_batch = 0;
	h.head = LSOM__HEAD_NONE;
	h.version = LSOM__LOG_VERSION;
	h.covered = disk->flushed_covered[LSOM__HEAD_CLEANER];
	h.covered_guest = disk->flushed_covered[LSOM__HEAD_GUEST];
	memset(block, 0, LSOM_BLOCK);
	memcpy(block, &h, sizeof(h));
	lsom__segment_header_seal(block);
}

static void erase_done(struct env_io *io, int64_t res)
{
	struct erase *e = container_of(io, struct erase, io);
	struct lsom_disk *disk = e->disk;
	struct lsom__segment *seg = &disk->segments[e->segment];

	assert(seg->state == LSOM__SEG_CLEANED);
	assert(seg->erasing);
	assert(disk->works > 0);
	disk->works--;
	assert(disk->erases > 0);
	disk->erases--;
	seg->erasing = false;
	if (res < 0)
		lsom__disk_fail(disk, "erasing a segment's header", (int)res);
	else
		lsom__segment_freed(disk, e->segment);
	free(e->iov.iov_base);
	free(e);
	lsom__segments_release(disk); /* the next one */
	lsom__disk_changed(disk);
}

void lsom__segment_erase(struct lsom_disk *disk, uint32_t segment)
{
	struct lsom__segment *seg = &disk->segments[segment];
	struct erase *e;

	assert(!seg->erasing);
	assert(disk->erases < LSOM__ERASES);
	if (disk->state == LSOM_DISK_FAILED)
		return;
	e = calloc(1, sizeof(*e));
	if (e == NULL)
		return; /* the next release tries again */
	e->iov.iov_len = LSOM_BLOCK;
	e->iov.iov_base = aligned_alloc(LSOM_BLOCK, LSOM_BLOCK);
	if (e->iov.iov_base == NULL) {
		free(e);
		return;
	}
	header_make(disk, segment, e->iov.iov_base);
	lsom__cleaned_remove(disk, segment);
	seg->erasing = true;
	disk->erases++;
	disk->works++;
	e->disk = disk;
	e->segment = segment;
	e->io.cb = erase_done;
	env_dev_writev(disk->env, disk->dev, &e->io, &e->iov, 1,
		       lsom__place(disk, segment, 0) * LSOM_BLOCK, ENV_DURABLE);
}

int lsom__segment_erase_now(struct lsom__recovery *rec, uint32_t segment)
{
	struct lsom_disk *disk = rec->disk;
	int rv;

	header_make(disk, segment, rec->buf);
	lsom__dev_asked(disk);
	rv = env_dev_write_now(disk->env, disk->dev, rec->buf, LSOM_BLOCK,
			       lsom__place(disk, segment, 0) * LSOM_BLOCK,
			       ENV_DURABLE);
	lsom__dev_answered(disk);
	return rv;
}
