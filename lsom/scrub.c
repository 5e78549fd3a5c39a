/*
 * scrub: reads what a disk holds, to find what has rotted while nobody read it.
 *
 * Segment by segment, in their order on the disk, so that a spinning one does not
 * seek: the summary says which block should have which checksum, and the index is
 * only asked about those that do not.  One I/O at a time; while others use the disk
 * it rests as long as it has read.  Where the summary is no good the batches are
 * looked for one by one, as in a recovery, on a worker.
 *
 * A block that nothing points to may be bad as it likes.  What is being emptied or
 * written meanwhile is looked at as it was found; the reference that a read holds
 * bars reuse.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/recover_int.h"

#include "base/crc.h"
#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

#define CHUNK_BLOCKS 64u /* of one read */
#define SEGMENTS_A_TURN 8192u
#define RECORDS_A_TURN 2048u
#define REST_NS MSEC /* at least, beside others */
#define RETRY_NS (100 * MSEC) /* short of memory */

enum scrub_phase {
	SCRUB_SEGMENT, /* look for the next one */
	SCRUB_FOOTER,
	SCRUB_SUMMARY,
	SCRUB_SCAN, /* for its batches */
	SCRUB_RECORDS, /* of it: which block should be what */
	SCRUB_DATA,
	SCRUB_SUSPECTS, /* does anything point there? */
};

struct lsom__scrub {
	struct lsom_disk *disk;
	struct lsom_scrub *req;
	struct env_task step;
	struct env_timer rest;
	struct env_io io;
	struct iovec iov;
	enum scrub_phase phase;
	bool waits; /* for a read, a page or the timer */
	uint64_t since_ns; /* of the read */
	uint64_t live, done; /* blocks: of all, and of segments behind us */
	uint32_t segment;
	bool held; /* a reference to it */
	bool again; /* its summary could not be read at first */
	struct lsom__segment_header header;
	struct lsom__rescan scan;

	uint8_t *buf; /* its summary; or a copy of its frames */
	uint32_t buf_blocks;
	const uint8_t *frames;
	size_t at, bytes, record_end; /* in @frames */
	struct lsom__frame frame;
	uint32_t *crcs; /* of each block of the segment */
	uint32_t *known; /* a bit each: whether that counts */

	uint8_t *data; /* CHUNK_BLOCKS */
	uint32_t block, blocks; /* of the read */
	uint32_t alone_end; /* up to here block by block: one is bad */
	uint32_t suspects[CHUNK_BLOCKS];
	unsigned suspects_count, suspects_done;
	bool unread[CHUNK_BLOCKS]; /* the device gave nothing at all */
	struct lsom__range range;
	struct lsom__data_record record; /* that the suspect is of */
};

static void step_soon(struct lsom__scrub *c)
{
	env_defer(c->disk->env, &c->step);
}

static void rest(struct lsom__scrub *c, uint64_t ns)
{
	c->waits = true;
	env_timer_start(c->disk->env, &c->rest, ns);
}

static void rest_over(struct env_timer *timer)
{
	struct lsom__scrub *c = container_of(timer, struct lsom__scrub, rest);

	c->waits = false;
	step_soon(c);
}

static void segment_leave(struct lsom__scrub *c)
{
	if (c->held) {
		c->done += c->disk->segments[c->segment].live;
		lsom__segment_read_put(c->disk, c->segment);
	}
	c->held = false;
	free(c->buf);
	c->buf = NULL;
	c->phase = SCRUB_SEGMENT;
	c->req->percent =
		(unsigned)(MIN(c->done, c->live) * 100 / MAX(c->live, 1u));
}

static void scrub_free(struct lsom__scrub *c)
{
	free(c->buf);
	free(c->crcs);
	free(c->known);
	free(c->data);
	free(c);
}

static void finish(struct lsom__scrub *c, int status)
{
	struct lsom_disk *disk = c->disk;
	struct lsom_scrub *req = c->req;

	segment_leave(c);
	disk->scrub = NULL;
	assert(disk->works > 0);
	disk->works--;
	scrub_free(c);
	lsom__disk_changed(disk);
	if (status == 0)
		req->percent = 100;
	req->cb(req, status);
}

/* ---- reading ---- */

/* Guests come first: a disk that they use is theirs half of the time. */
static bool others_at_work(const struct lsom_disk *disk)
{
	return disk->reads > 0 || !lsom__log_idle(disk) ||
	       !lsom__cleaner_idle(disk) || disk->checkpoint != NULL;
}

static void read_over(struct lsom__scrub *c)
{
	uint64_t took = env_now(c->disk->env) - c->since_ns;

	c->waits = false;
	if (others_at_work(c->disk))
		rest(c, MAX(took, REST_NS));
	else
		step_soon(c);
}

static void read_start(struct lsom__scrub *c, void *mem, uint32_t block,
		       uint32_t blocks, void (*cb)(struct env_io *, int64_t))
{
	c->waits = true;
	c->since_ns = env_now(c->disk->env);
	c->iov = (struct iovec){ mem, (size_t)blocks * LSOM_BLOCK };
	c->io.cb = cb;
	env_dev_readv(c->disk->env, c->disk->dev, &c->io, &c->iov, 1,
		      lsom__place(c->disk, c->segment, block) * LSOM_BLOCK);
}

/* ---- what a segment should hold ---- */

static void segment_unread(struct lsom__scrub *c, const char *how_much)
{
	if (c->req->segments_unread < LSOM_SCRUB_BAD_MAX)
		log_error("disk %s: scrub: %s what lies in segment %u is not "
			  "looked at",
			  c->disk->path, how_much, c->segment);
	c->req->segments_unread++;
}

static void records_begin(struct lsom__scrub *c)
{
	uint32_t all = c->disk->segment_blocks;

	memset(c->known, 0, DIV_UP(all, 32u) * sizeof(*c->known));
	c->at = c->record_end = 0;
	c->block = c->alone_end = 0;
	c->suspects_count = c->suspects_done = 0;
	c->phase = SCRUB_RECORDS;
}

static void scan_done(struct lsom__rescan *scan)
{
	struct lsom__scrub *c = container_of(scan, struct lsom__scrub, scan);

	if (scan->status == -ENOMEM) {
		lsom__rescan_fini(scan);
		rest(c, RETRY_NS);
		return;
	}
	if (scan->status == 0 && scan->found.bytes > 0) {
		if (!scan->whole)
			segment_unread(c, "some of");
		free(c->buf);
		c->frames = c->buf = lsom__rescan_take(scan, &c->bytes);
		records_begin(c);
	} else {
		if (c->disk->state != LSOM_DISK_FAILED)
			segment_unread(c, "all of");
		segment_leave(c);
	}
	lsom__rescan_fini(scan);
	read_over(c);
}

/* 0, or -ENOMEM: it takes as much as the segment has. */
static int scan_start(struct lsom__scrub *c)
{
	int rv;

	c->scan.cb = scan_done;
	c->since_ns = env_now(c->disk->env);
	rv = lsom__rescan_start(&c->scan, c->disk, c->segment);
	c->waits = rv == 0;
	return rv;
}

/* It was read twice: no chance. */
static void summary_bad(struct lsom__scrub *c)
{
	lsom__media_error(c->disk);
	log_warn("disk %s: scrub: the summary of segment %u is damaged: its "
		 "batches are read one by one",
		 c->disk->path, c->segment);
}

static void summary_here(struct env_io *io, int64_t res)
{
	struct lsom__scrub *c = container_of(io, struct lsom__scrub, io);
	uint32_t all = c->disk->segment_blocks;
	struct lsom__summary_header s;
	int rv = res < 0 ? (int)res : 0;

	if (rv == 0 && c->phase == SCRUB_FOOTER) {
		c->buf_blocks = lsom__summary_blocks(c->buf, &c->header, all);
		if (c->buf_blocks == 0)
			rv = -EUCLEAN;
		c->phase = SCRUB_SUMMARY;
	} else if (rv == 0) {
		rv = lsom__summary_take(c->buf, c->buf_blocks, &c->header, all,
					&s);
		if (rv == 0) {
			c->frames = c->buf + sizeof(s);
			c->bytes = s.bytes;
			records_begin(c);
		}
	}
	if (rv < 0) {
		/* It may be chance. */
		c->phase = c->again ? SCRUB_SCAN : SCRUB_FOOTER;
		if (c->again)
			summary_bad(c);
		c->again = true;
	}
	read_over(c);
}

static int summary_get(struct lsom__scrub *c)
{
	uint32_t blocks = c->phase == SCRUB_FOOTER ? 1 : c->buf_blocks;

	free(c->buf);
	c->buf = aligned_alloc(LSOM_BLOCK, (size_t)blocks * LSOM_BLOCK);
	if (c->buf == NULL)
		return -ENOMEM;
	read_start(c, c->buf, c->disk->segment_blocks - blocks, blocks,
		   summary_here);
	return 0;
}

/* One that is written has no summary yet: what will be in it, if durable. */
static int frames_copy(struct lsom__scrub *c)
{
	const struct lsom__segment *seg = &c->disk->segments[c->segment];
	uint64_t durable = c->disk->heads[seg->head].durable_prefix;
	struct lsom__frame frame;
	size_t at = 0;

	while (at < seg->frames_bytes) {
		memcpy(&frame, seg->frames + at, sizeof(frame));
		if (frame.batch > durable)
			break;
		at += sizeof(frame) + frame.records_bytes;
	}
	free(c->buf);
	c->buf = malloc(MAX(at, 1u));
	if (c->buf == NULL)
		return -ENOMEM;
	if (at > 0)
		memcpy(c->buf, seg->frames, at);
	c->frames = c->buf;
	c->bytes = at;
	records_begin(c);
	return 0;
}

static bool holds_data(const struct lsom__segment *seg)
{
	return (seg->state == LSOM__SEG_OPEN ||
		seg->state == LSOM__SEG_CLOSING ||
		seg->state == LSOM__SEG_CLOSED) &&
	       seg->live > 0 && !seg->set_back;
}

/* 0: there is one.  -ENOENT: no more.  -EAGAIN: not in this turn. */
static int segment_next(struct lsom__scrub *c)
{
	struct lsom_disk *disk = c->disk;
	const struct lsom__segment *seg;
	unsigned n = 0;

	for (; ++c->segment < disk->super.segments; n++) {
		seg = &disk->segments[c->segment];
		if (!holds_data(seg)) {
			if (n == SEGMENTS_A_TURN)
				return -EAGAIN;
			continue;
		}
		lsom__segment_read_get(disk, c->segment);
		c->held = true;
		c->again = false;
		c->header = lsom__segment_header_of(disk, c->segment);
		c->phase = SCRUB_FOOTER;
		return 0;
	}
	return -ENOENT;
}

static void record_note(struct lsom__scrub *c, const struct lsom__record *r)
{
	const struct lsom__data_record *d = (const void *)r;
	const struct lsom_comp *comp;

	if (r->type != LSOM__R_DATA || r->flags & LSOM__F_HOLE)
		return;
	comp = lsom__comp_by_key(c->disk, r->component);
	if (comp == NULL || comp->deleted)
		return;
	memcpy(c->crcs + d->data, lsom__record_crcs(d),
	       d->blocks * sizeof(*c->crcs));
	lsom__bits_set(c->known, d->data, (unsigned)d->blocks);
}

/* The next record, or NULL: there is none. */
static const struct lsom__record *record_next(struct lsom__scrub *c)
{
	const struct lsom__record *r;

	while (c->at == c->record_end) {
		if (c->at == c->bytes)
			return NULL;
		memcpy(&c->frame, c->frames + c->at, sizeof(c->frame));
		c->at += sizeof(c->frame);
		c->record_end = c->at + c->frame.records_bytes;
	}
	r = (const void *)(c->frames + c->at);
	c->at += r->len;
	return r;
}

static int records_step(struct lsom__scrub *c)
{
	const struct lsom__record *r;

	for (unsigned n = 0; n < RECORDS_A_TURN; n++) {
		r = record_next(c);
		if (r == NULL) {
			c->phase = SCRUB_DATA;
			return 0;
		}
		record_note(c, r);
	}
	return -EAGAIN;
}

/* ---- blocks ---- */

static void suspect_add(struct lsom__scrub *c, uint32_t block, bool unread)
{
	assert(c->suspects_count < CHUNK_BLOCKS);
	c->unread[c->suspects_count] = unread;
	c->suspects[c->suspects_count++] = block;
}

static bool matches(const struct lsom__scrub *c, uint32_t i)
{
	return crc32c(c->data + (size_t)i * LSOM_BLOCK, LSOM_BLOCK) ==
	       c->crcs[c->block + i];
}

/* A chunk that is not good is read again, block by block: it may be chance. */
static void data_here(struct env_io *io, int64_t res)
{
	struct lsom__scrub *c = container_of(io, struct lsom__scrub, io);
	const bool alone = c->block < c->alone_end;
	bool good = res >= 0;

	for (uint32_t i = 0; good && i < c->blocks; i++)
		good = !lsom__bit(c->known, c->block + i) || matches(c, i);
	if (good || alone) {
		if (!good)
			suspect_add(c, c->block, res < 0);
		c->req->read_blocks += c->blocks;
		c->block += c->blocks;
	} else {
		c->alone_end = c->block + c->blocks;
	}
	if (c->suspects_count > 0 && c->block >= c->alone_end)
		c->phase = SCRUB_SUSPECTS;
	read_over(c);
}

/* Where the known ones begin at or behind @block, and where they end. */
static uint32_t run_find(struct lsom__scrub *c, uint32_t max)
{
	uint32_t all = c->disk->segment_blocks, end, n;

	while (c->block < all && !lsom__bit(c->known, c->block))
		c->block++;
	for (n = 0, end = c->block; n < max && c->block + n < all; n++)
		if (lsom__bit(c->known, c->block + n))
			end = c->block + n + 1;
	return end - c->block;
}

static void data_step(struct lsom__scrub *c)
{
	const bool alone = c->block < c->alone_end;

	c->blocks = run_find(c, alone ? 1 : CHUNK_BLOCKS);
	if (alone && c->block >= c->alone_end) {
		/* The rest of that chunk does not count. */
		if (c->suspects_count > 0)
			c->phase = SCRUB_SUSPECTS;
		step_soon(c);
	} else if (c->blocks == 0) {
		segment_leave(c);
		step_soon(c);
	} else {
		read_start(c, c->data, c->block, c->blocks, data_here);
	}
}

/* ---- those that are not what was written ---- */

static bool record_find(struct lsom__scrub *c, uint32_t block)
{
	const struct lsom__data_record *d;
	const struct lsom__record *r;

	c->at = c->record_end = 0;
	while ((r = record_next(c)) != NULL) {
		d = (const void *)r;
		if (r->type == LSOM__R_DATA && !(r->flags & LSOM__F_HOLE) &&
		    d->data <= block && block - d->data < d->blocks) {
			memcpy(&c->record, d, sizeof(c->record));
			return true;
		}
	}
	return false;
}

/* Pages of it are pinned: is the block, or an undecided version, there? */
static bool is_needed(const struct lsom__scrub *c, struct lsom_comp *comp,
		      uint32_t block)
{
	const struct lsom__data_record *d = &c->record;
	const struct lsom__prep *p =
		lsom__prep_same(comp, d->r.lsn, d->first, d->blocks);

	if (comp->deleted)
		return false;
	return lsom__entry_here(comp, d->first + (block - d->data),
				lsom__place(c->disk, c->segment, block),
				LSOM__E_RAW) ||
	       (p != NULL &&
		p->place == lsom__place(c->disk, c->segment, d->data));
}

static void bad_tell(struct lsom__scrub *c, const struct lsom_comp *comp,
		     uint64_t offset, bool unread)
{
	struct lsom_scrub *req = c->req;
	char oid[UUID_TEXT_LEN];

	lsom__media_error(c->disk);
	if (req->bad_count < LSOM_SCRUB_BAD_MAX) {
		req->bad[req->bad_count] = (struct lsom_scrub_bad){
			.oid = comp->meta.oid,
			.cid = comp->meta.cid,
			.offset = offset,
		};
		uuid_format(&comp->meta.oid, oid);
		log_error("disk %s: scrub: object %s: the block at %llu of its "
			  "component %s",
			  c->disk->path, oid, (unsigned long long)offset,
			  unread ? "cannot be read"
				 : "is not what was written");
	}
	req->bad_count++;
}

static void suspect_done(struct lsom__scrub *c)
{
	const unsigned i = c->suspects_done++;
	struct lsom_comp *comp = c->range.comp;
	const uint32_t block = c->suspects[i];

	if (is_needed(c, comp, block))
		bad_tell(c, comp,
			 (c->record.first + (block - c->record.data)) *
				 LSOM_BLOCK,
			 c->unread[i]);
}

static void suspect_put(struct lsom__scrub *c)
{
	lsom__range_unpin(&c->range);
	lsom__comp_unref(c->range.comp);
	c->range.comp = NULL;
}

static void suspect_ready(struct lsom__range *range, int status)
{
	struct lsom__scrub *c = container_of(range, struct lsom__scrub, range);

	c->waits = false;
	if (status == 0)
		suspect_done(c);
	suspect_put(c);
	/* No memory: once more.  The index does not answer: the disk has failed. */
	if (status == -ENOMEM)
		rest(c, RETRY_NS);
	else
		step_soon(c);
}

static int suspect_step(struct lsom__scrub *c)
{
	uint32_t block = c->suspects[c->suspects_done];
	struct lsom_comp *comp = NULL;
	int rv;

	if (record_find(c, block))
		comp = lsom__comp_by_key(c->disk, c->record.r.component);
	if (comp == NULL || comp->deleted) {
		c->suspects_done++;
		return 0;
	}
	c->range.comp = comp;
	c->range.first = c->range.next =
		c->record.first + (block - c->record.data);
	c->range.blocks = 1;
	c->range.pages_count = 0;
	lsom__comp_ref(comp);
	rv = lsom__range_load(&c->range);
	if (rv == -EAGAIN) {
		c->waits = true;
		return rv;
	}
	if (rv == 0)
		suspect_done(c);
	suspect_put(c);
	return rv;
}

/* ---- the loop ---- */

static int phase_step(struct lsom__scrub *c)
{
	int rv = 0;

	switch (c->phase) {
	case SCRUB_SEGMENT:
		rv = segment_next(c);
		break;
	case SCRUB_FOOTER:
		rv = c->disk->segments[c->segment].state == LSOM__SEG_CLOSED
			     ? summary_get(c)
			     : frames_copy(c);
		break;
	case SCRUB_SUMMARY:
		rv = summary_get(c);
		break;
	case SCRUB_SCAN:
		rv = scan_start(c);
		break;
	case SCRUB_RECORDS:
		rv = records_step(c);
		break;
	case SCRUB_DATA:
		data_step(c);
		return 0;
	case SCRUB_SUSPECTS:
		while (rv == 0 && c->suspects_done < c->suspects_count)
			rv = suspect_step(c);
		if (c->suspects_done == c->suspects_count) {
			c->suspects_count = c->suspects_done = 0;
			c->phase = SCRUB_DATA;
		}
		break;
	}
	if (!c->waits && rv != -ENOENT && rv != -ENOMEM)
		step_soon(c);
	return rv;
}

static void scrub_step(struct env_task *task)
{
	struct lsom__scrub *c = container_of(task, struct lsom__scrub, step);
	struct lsom_disk *disk = c->disk;
	int rv;

	if (c->waits)
		return;
	if (disk->state == LSOM_DISK_FAILED) {
		finish(c, -ENODEV);
		return;
	}
	if (disk->closing || c->req->cancelled) {
		finish(c, disk->closing ? -ESHUTDOWN : -ECANCELED);
		return;
	}
	rv = phase_step(c);
	if (rv == -ENOENT)
		finish(c, 0);
	else if (rv == -ENOMEM)
		rest(c, RETRY_NS);
}

int lsom_scrub(struct lsom_disk *disk, struct lsom_scrub *req, lsom_scrub_cb cb)
{
	uint32_t all = disk->segment_blocks;
	struct lsom__scrub *c;

	assert(disk->view == NULL);
	if (disk->closing)
		return -ESHUTDOWN;
	if (disk->state == LSOM_DISK_FAILED)
		return -ENODEV;
	if (disk->scrub != NULL)
		return -EBUSY;
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return -ENOMEM;
	c->crcs = calloc(all, sizeof(*c->crcs));
	c->known = calloc(DIV_UP(all, 32u), sizeof(*c->known));
	c->data = aligned_alloc(LSOM_BLOCK, CHUNK_BLOCKS * LSOM_BLOCK);
	if (c->crcs == NULL || c->known == NULL || c->data == NULL) {
		scrub_free(c);
		return -ENOMEM;
	}
	c->disk = disk;
	c->req = req;
	c->step.cb = scrub_step;
	c->rest.cb = rest_over;
	c->range.cb = suspect_ready;
	c->segment = UINT32_MAX; /* the next one is the first */
	c->live = disk->live_blocks;
	req->percent = 0;
	req->read_blocks = req->bad_count = 0;
	req->segments_unread = 0;
	req->cancelled = false;
	req->cb = cb;
	disk->scrub = c;
	disk->works++;
	step_soon(c);
	return 0;
}

void lsom_scrub_cancel(struct lsom_scrub *req)
{
	req->cancelled = true;
}
