/*
 * rescan: what a closed segment holds, while the disk serves, though its summary
 * is no good: the batches tell, each of itself and the one before, as they tell a
 * recovery (scan.c).  It is read as a whole, on a worker.
 */
#include "lsom/recover_int.h"

#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

/* What lies behind its last batch was torn when the power went: none of it. */
static void frames_cut(struct lsom__rescan *s)
{
	const struct lsom__segment *seg = &s->disk->segments[s->segment];
	struct lsom__frame frame;
	size_t at = 0;
	uint64_t n = 0;

	while (at < s->found.bytes) {
		memcpy(&frame, s->found.mem + at, sizeof(frame));
		if (frame.batch > seg->last_batch)
			break;
		at += sizeof(frame) + frame.records_bytes;
		n++;
	}
	s->found.bytes = at;
	/* Each is found once at most. */
	s->whole = n > 0 && n == seg->last_batch - seg->first_batch + 1;
}

static void scan_work(struct env_work *work)
{
	struct lsom__rescan *s = container_of(work, struct lsom__rescan, work);

	s->status = lsom__segment_scan(&s->rec, s->segment, &s->found);
	/* As large as a segment: that takes its time, too. */
	free(s->rec.buf);
	s->rec.buf = NULL;
}

static void scan_done(struct env_work *work)
{
	struct lsom__rescan *s = container_of(work, struct lsom__rescan, work);

	if (s->status == 0)
		frames_cut(s);
	s->cb(s);
}

int lsom__rescan_start(struct lsom__rescan *s, struct lsom_disk *disk,
		       uint32_t segment)
{
	memset(&s->rec, 0, sizeof(s->rec));
	memset(&s->found, 0, sizeof(s->found));
	s->disk = disk;
	s->segment = segment;
	s->whole = false;
	s->rec.disk = disk;
	s->rec.headers = calloc(disk->super.segments, sizeof(*s->rec.headers));
	s->rec.buf = aligned_alloc(LSOM_BLOCK, disk->super.segment_bytes);
	if (s->rec.headers == NULL || s->rec.buf == NULL) {
		lsom__rescan_fini(s);
		return -ENOMEM;
	}
	s->rec.headers[segment] = lsom__segment_header_of(disk, segment);
	s->work.work = scan_work;
	s->work.done = scan_done;
	env_work(disk->env, NULL, &s->work);
	return 0;
}

void *lsom__rescan_take(struct lsom__rescan *s, size_t *bytes)
{
	void *mem = s->found.mem;

	*bytes = s->found.bytes;
	s->found.mem = NULL;
	return mem;
}

void lsom__rescan_fini(struct lsom__rescan *s)
{
	free(s->rec.headers);
	free(s->rec.buf);
	lsom__frames_fini(&s->found);
	memset(&s->rec, 0, sizeof(s->rec));
	memset(&s->found, 0, sizeof(s->found));
}
