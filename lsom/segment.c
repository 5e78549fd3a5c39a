/*
 * segment: who uses which part of the disk.
 *
 * A free segment is taken by a head, filled batch by batch, closed by its
 * summary, and in the end cleaned: nothing in it is needed.  When a flushed index
 * covers every record that emptied it, the segment before it in its head is closed,
 * too, and no read holds it, its header is erased (erase.c), and it may be taken
 * again.  The oldest contents are overwritten first, so that records which only bar
 * older data (aborts, holes, tombs) can be dropped soon.
 *
 * A file's segments are written with zeros once before use, ahead of need and
 * in the background: writing into unwritten extents takes twice as long.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/lsom_int.h"

#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

/* Zeroed segments to have at hand. */
#define ZERO_AHEAD 4u
#define ZERO_CHUNK_BLOCKS 64u
#define CLOSE_AGAIN_NS (5 * SEC)

void lsom__segment_changed(struct lsom_disk *disk, struct lsom__segment *seg)
{
	if (seg->dirty)
		return;
	seg->dirty = true;
	disk->changed_count++;
	TAILQ_INSERT_TAIL(&disk->changed, seg, change);
}

void lsom__segment_shun(struct lsom_disk *disk, struct lsom__segment *seg,
			uint64_t until_ns)
{
	if (until_ns == UINT64_MAX)
		seg->unreadable = true;
	else
		seg->retry_ns = until_ns;
	disk->shunned_ns = MAX(disk->shunned_ns, until_ns);
}

uint32_t lsom__segment_take(struct lsom_disk *disk, uint16_t head)
{
	struct lsom__segment *seg;
	uint32_t best;

	if (disk->segments_free == 0 ||
	    (head == LSOM__HEAD_GUEST && disk->segments_free <= LSOM__RESERVED))
		return LSOM__NONE;
	best = lsom__free_take(disk);
	if (best == LSOM__NONE)
		return LSOM__NONE; /* zeroed, given back or, damaged, read */
	seg = &disk->segments[best];
	assert(seg->state == LSOM__SEG_FREE);
	assert(seg->reads == 0);
	assert(seg->frames == NULL);
	disk->segments_free--;
	if (head == LSOM__HEAD_GUEST) {
		disk->room_best = 0;
		disk->ticks_stalled = 0;
	}
	disk->live_blocks -= seg->live;
	seg->state = LSOM__SEG_OPEN;
	if (seg->set_back)
		disk->segments_set_back--;
	seg->unreadable = seg->set_back = seg->trimmed = false;
	seg->unread = 0;
	seg->retry_ns = 0;
	seg->head = (uint8_t)head;
	seg->version = LSOM__LOG_VERSION;
	seg->header_stored = false;
	lsom__segment_opened(disk, seg);
	seg->generation = disk->super.generation;
	seg->index_number = disk->flushed_number;
	seg->first_batch = disk->heads[head].batch_next;
	seg->before = disk->heads[head].left;
	seg->last_batch = 0;
	seg->live = 0;
	seg->used = 1;
	seg->headers = 0;
	seg->inflight = 0;
	seg->has_meta = seg->has_holes = false;
	lsom__segment_changed(disk, seg);
	lsom__zero_kick(disk);
	lsom__disk_changed(disk);
	return best;
}

void lsom__segment_count(struct lsom_disk *disk, uint32_t segment,
			 int64_t blocks)
{
	struct lsom__segment *seg;

	if (segment == LSOM__NONE)
		return;
	seg = &disk->segments[segment];
	/* A count may be too large after a crash, never too small. */
	if (blocks < 0 && (uint64_t)-blocks > seg->live)
		blocks = -(int64_t)seg->live;
	seg->live = (uint32_t)((int64_t)seg->live + blocks);
	disk->live_blocks = (uint64_t)((int64_t)disk->live_blocks + blocks);
	lsom__segment_changed(disk, seg);
	if (seg->live == 0)
		lsom__segment_emptied(disk, segment);
}

void lsom__segment_read_get(struct lsom_disk *disk, uint32_t segment)
{
	assert(segment != LSOM__NONE);
	disk->segments[segment].reads++;
}

void lsom__segment_read_put(struct lsom_disk *disk, uint32_t segment)
{
	struct lsom__segment *seg = &disk->segments[segment];

	assert(seg->reads > 0);
	/* What waited for that is freed with the next release. */
	if (--seg->reads == 0 && seg->state == LSOM__SEG_CLEANED)
		lsom__cleaner_kick(disk);
}

struct lsom__segment_header
lsom__segment_header_of(const struct lsom_disk *disk, uint32_t segment)
{
	const struct lsom__segment *seg = &disk->segments[segment];

	return (struct lsom__segment_header){
		.magic = LSOM__SEGMENT_MAGIC,
		.disk = disk->super.disk,
		.sequence = seg->sequence,
		.generation = seg->generation,
		.open_pos = MIN(seg->open_pos, disk->pos_next),
		.index_number = seg->index_number,
		.first_batch = seg->first_batch,
		.segment = segment,
		.head = seg->head,
		.version = seg->version,
	};
}

/* ---- summaries ---- */

int lsom__segment_frame_room(struct lsom__segment *seg, uint32_t records_bytes)
{
	uint32_t need = seg->frames_bytes +
			(uint32_t)sizeof(struct lsom__frame) + records_bytes;
	uint32_t room = seg->frames_room;
	uint8_t *p;

	if (need > room) {
		room = MAX(need, MAX(room * 2, 4096u));
		p = realloc(seg->frames, room);
		if (p == NULL)
			return -ENOMEM;
		seg->frames = p;
		seg->frames_room = room;
	}
	return 0;
}

void lsom__segment_frame(struct lsom__segment *seg,
			 const struct lsom__frame *frame, const void *records)
{
	uint8_t *p = seg->frames + seg->frames_bytes;

	seg->frames_bytes += (uint32_t)sizeof(*frame) + frame->records_bytes;
	assert(seg->frames_bytes <= seg->frames_room);
	memcpy(p, frame, sizeof(*frame));
	memcpy(p + sizeof(*frame), records, frame->records_bytes);
}

uint32_t lsom__summary_need(uint64_t frames_bytes)
{
	return (uint32_t)DIV_UP(frames_bytes +
					sizeof(struct lsom__summary_header) +
					sizeof(struct lsom__summary_footer),
				(uint64_t)LSOM_BLOCK);
}

struct summary {
	struct env_io io;
	struct iovec iov;
	struct lsom_disk *disk;
	uint32_t segment;
};

static void summary_done(struct env_io *io, int64_t res)
{
	struct summary *s = container_of(io, struct summary, io);
	struct lsom_disk *disk = s->disk;
	struct lsom__segment *seg = &disk->segments[s->segment];

	assert(seg->state == LSOM__SEG_CLOSING);
	assert(disk->works > 0);
	disk->works--;
	if (res < 0) {
		lsom__disk_fail(disk, "writing a segment summary", (int)res);
	} else {
		free(seg->frames);
		seg->frames = NULL;
		seg->frames_bytes = seg->frames_room = 0;
		seg->state = LSOM__SEG_CLOSED;
		lsom__segment_changed(disk, seg);
		lsom__segment_emptied(disk, s->segment);
		lsom__segments_release(disk); /* the next one of its head */
	}
	free(s->iov.iov_base);
	free(s);
	lsom__disk_changed(disk);
	lsom__cleaner_kick(disk);
}

static void *summary_encode(const struct lsom_disk *disk,
			    const struct lsom__segment *seg, uint32_t blocks)
{
	size_t bytes = (size_t)blocks * LSOM_BLOCK;
	uint8_t *buf = aligned_alloc(LSOM_BLOCK, bytes);
	struct lsom__summary_header *h = (void *)buf;
	size_t filled = sizeof(*h) + seg->frames_bytes;
	struct lsom__summary_footer f = { LSOM__SUMMARY_MAGIC, blocks,
					  seg->sequence };

	if (buf == NULL)
		return NULL;
	memset(h, 0, sizeof(*h));
	memset(buf + filled, 0, bytes - filled);
	h->magic = LSOM__SUMMARY_MAGIC;
	h->disk = disk->super.disk;
	h->segment_sequence = seg->sequence;
	h->generation = seg->generation;
	h->last_batch = seg->last_batch;
	h->blocks = blocks;
	h->bytes = seg->frames_bytes;
	h->head = seg->head;
	h->version = LSOM__LOG_VERSION;
	h->used_blocks = seg->used;
	if (seg->frames_bytes > 0)
		memcpy(h + 1, seg->frames, seg->frames_bytes);
	memcpy(buf + bytes - sizeof(f), &f, sizeof(f));
	lsom__summary_seal(buf, blocks);
	return buf;
}

/* There is no memory for its summary: without one it cannot be cleaned. */
static void close_later(struct lsom_disk *disk, struct lsom__segment *seg)
{
	assert(!seg->listed);
	seg->listed = true;
	TAILQ_INSERT_TAIL(&disk->unclosed, seg, link);
	env_timer_start(disk->env, &disk->unclosed_timer, CLOSE_AGAIN_NS);
}

void lsom__segments_close_again(struct env_timer *timer)
{
	struct lsom_disk *disk =
		container_of(timer, struct lsom_disk, unclosed_timer);
	struct lsom__segments again = TAILQ_HEAD_INITIALIZER(again);
	struct lsom__segment *seg;

	TAILQ_CONCAT(&again, &disk->unclosed, link);
	while ((seg = TAILQ_FIRST(&again)) != NULL) {
		TAILQ_REMOVE(&again, seg, link);
		seg->listed = false;
		lsom__segment_close(disk, (uint32_t)(seg - disk->segments));
	}
	lsom__disk_changed(disk);
}

void lsom__segment_close(struct lsom_disk *disk, uint32_t segment)
{
	struct lsom__segment *seg = &disk->segments[segment];
	uint32_t blocks = lsom__summary_need(seg->frames_bytes);
	struct summary *s;

	assert(seg->state == LSOM__SEG_OPEN || seg->state == LSOM__SEG_CLOSING);
	seg->state = LSOM__SEG_CLOSING;
	if (seg->inflight > 0 || disk->state == LSOM_DISK_FAILED)
		return;
	assert(seg->used + blocks <= disk->segment_blocks);
	s = calloc(1, sizeof(*s));
	if (s == NULL) {
		close_later(disk, seg);
		return;
	}
	s->iov.iov_len = (size_t)blocks * LSOM_BLOCK;
	s->iov.iov_base = summary_encode(disk, seg, blocks);
	if (s->iov.iov_base == NULL) {
		free(s);
		close_later(disk, seg);
		return;
	}
	s->disk = disk;
	s->segment = segment;
	s->io.cb = summary_done;
	disk->works++;
	env_dev_writev(disk->env, disk->dev, &s->io, &s->iov, 1,
		       lsom__place(disk, segment,
				   disk->segment_blocks - blocks) *
			       LSOM_BLOCK,
		       ENV_DURABLE);
}

/* ---- reuse ---- */

bool lsom__segment_checks;

static bool page_needs(const struct lsom_disk *disk,
		       const struct lsom__page *page, uint32_t segment)
{
	struct lsom__entry e;
	unsigned i;

	if (page == NULL || page->gone)
		return false;
	for (i = 0; i < LSOM__PAGE_SLOTS; i++) {
		lsom__slots_get(&page->slots, i, &e);
		if (e.kind == LSOM__E_RAW &&
		    lsom__segment_of(disk, e.place) == segment)
			return true;
	}
	return false;
}

static bool comp_needs(const struct lsom_comp *comp, uint32_t segment)
{
	const struct lsom__prep *p;
	size_t i, j;

	TAILQ_FOREACH (p, &comp->preps, link)
		if (lsom__segment_of(comp->disk, p->place) == segment)
			return true;
	for (i = 0; i < comp->dirs_count; i++)
		for (j = 0; comp->dirs[i] != NULL && j < LSOM__DIR_PAGES; j++)
			if (page_needs(comp->disk, comp->dirs[i][j], segment))
				return true;
	return false;
}

void lsom__segment_cleaned(struct lsom_disk *disk, uint32_t segment)
{
	struct lsom__segment *seg = &disk->segments[segment];
	const struct lsom_comp *comp;

	assert(seg->state == LSOM__SEG_CLOSED);
	assert(seg->live == 0);
	if (lsom__segment_checks)
		TAILQ_FOREACH (comp, &disk->comps, link)
			assert(!comp_needs(comp, segment));
	seg->state = LSOM__SEG_CLEANED;
	disk->segments_cleaned++;
	seg->cleaned_number = disk->checkpoint_number;
	seg->has_meta = seg->has_holes = false;
	lsom__segment_changed(disk, seg);
	lsom__cleaned_add(disk, segment);
}

void lsom__segment_freed(struct lsom_disk *disk, uint32_t segment)
{
	struct lsom__segment *seg = &disk->segments[segment];

	assert(seg->state == LSOM__SEG_CLEANED);
	assert(disk->segments_cleaned > 0);
	disk->segments_cleaned--;
	if (seg->listed)
		lsom__cleaned_remove(disk, segment);
	seg->state = LSOM__SEG_FREE;
	lsom__free_add(disk, segment);
	lsom__segment_changed(disk, seg);
	disk->segments_free++;
	lsom__log_kick(disk);
	lsom__cleaner_kick(disk);
	lsom__disk_changed(disk);
}

/* ---- zeroing ---- */

static void zero_step(struct lsom_disk *disk);

static void zero_stop(struct lsom_disk *disk)
{
	assert(disk->works > 0);
	disk->works--;
	disk->zero_busy = false;
	lsom__log_kick(disk); /* the one we were at may be taken now */
	lsom__disk_changed(disk);
}

static void zero_done(struct env_io *io, int64_t res)
{
	struct lsom_disk *disk = container_of(io, struct lsom_disk, zero_io);

	if (res < 0) {
		lsom__disk_fail(disk, "zeroing a segment", (int)res);
		zero_stop(disk);
		return;
	}
	disk->zero_at += ZERO_CHUNK_BLOCKS;
	if (disk->zero_at >= disk->segment_blocks) {
		/*
		 * The mark is durable with the next superblock.  One too low
		 * costs zeroing again; what was taken meanwhile is skipped.
		 */
		disk->zero_at = 0;
		disk->super.zeroed++;
		lsom__log_kick(disk);
	}
	zero_step(disk);
}

static void zero_step(struct lsom_disk *disk)
{
	uint32_t i, n;

	/* Segments that were taken before their turn were written already. */
	while (disk->zero_at == 0 &&
	       disk->super.zeroed < disk->super.segments &&
	       disk->segments[disk->super.zeroed].sequence != 0)
		disk->super.zeroed++;
	i = disk->super.zeroed;
	if (disk->closing || disk->state == LSOM_DISK_FAILED ||
	    i == disk->super.segments ||
	    (disk->zero_at == 0 &&
	     lsom__free_zeroed(disk, ZERO_AHEAD) == ZERO_AHEAD)) {
		zero_stop(disk);
		return;
	}
	assert(disk->segments[i].state == LSOM__SEG_FREE);
	n = MIN(ZERO_CHUNK_BLOCKS, disk->segment_blocks - disk->zero_at);
	disk->zero_io.cb = zero_done;
	env_dev_writev(disk->env, disk->dev, &disk->zero_io, disk->zero_iov, n,
		       lsom__place(disk, i, disk->zero_at) * LSOM_BLOCK, 0);
}

void lsom__zero_kick(struct lsom_disk *disk)
{
	if (disk->zero_busy || disk->info.block_device || disk->closing ||
	    disk->state == LSOM_DISK_FAILED || disk->recovery != NULL ||
	    disk->super.zeroed == disk->super.segments ||
	    lsom__free_zeroed(disk, ZERO_AHEAD) == ZERO_AHEAD)
		return;
	disk->zero_busy = true;
	disk->works++;
	zero_step(disk);
}
