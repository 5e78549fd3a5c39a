/*
 * read: committed blocks, each checked against its CRC, and the scan.
 *
 * A read takes its pages of the index, then the places of its blocks, holds a
 * reference on their segments, and reads straight into the pages that its
 * caller gets.  Places that are near each other are one I/O: what lies between
 * them, blocks that were overwritten since and headers of batches, is read along
 * and forgotten.  A block that does not match is looked up once more: if its
 * entry points elsewhere by now, that is read.
 * A block that may have been in a lost batch is as bad as one that rotted.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/view_int.h"

#include "base/crc.h"
#include "base/log.h"
#include "base/spare.h"
#include "base/stats.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

static struct counter crc_errors_total = {
	.name = "basalt_lsom_crc_errors_total",
	.help = "Blocks read whose checksum did not match",
};

static struct counter media_errors_total = {
	.name = "basalt_lsom_media_errors_total",
	.help = "Reads that a disk failed, and blocks that did not match",
};

void lsom__read_init(void)
{
	counter_register(&crc_errors_total);
	counter_register(&media_errors_total);
}

void lsom__media_error(struct lsom_disk *disk)
{
	disk->media_errors++;
	counter_add(&media_errors_total, 1);
}

struct part {
	struct env_io io;
	struct read *read;
	uint32_t segment;
	SLIST_HEAD(, lsom__sink) sinks; /* what lies between is read there */
};

struct read {
	struct lsom__range range;
	struct lsom_read *req;
	struct lsom_comp *comp;
	struct env_task start;
	unsigned blocks, parts_left, parts_count;
	unsigned lost; /* the first block that may be; or @blocks */
	int status;
	bool again;
	bool joined; /* a part has what was not asked for */
	bool alone; /* parts have only what was */
	uint64_t sent[LSOM_WRITE_MAX / LSOM_BLOCK / 64]; /* a bit a block */
	struct lsom__log_wait wait; /* of one that failed */
	struct lsom__slot *slots; /* places and checksums */
	struct iovec *iov; /* of all parts */
	struct part *parts;
};

/* One piece of memory; the arrays hold what @blocks blocks may need. */
static size_t read_bytes(size_t blocks)
{
	/* Between two blocks there may be one iovec that is not theirs. */
	return sizeof(struct read) +
	       blocks * (sizeof(struct part) + sizeof(struct lsom__slot) +
			 2 * sizeof(struct iovec));
}

static struct read *read_new(size_t blocks)
{
	struct read *r = spare_take(read_bytes(blocks));

	if (r == NULL)
		return NULL;
	memset(r, 0, sizeof(*r));
	r->parts = (struct part *)(r + 1);
	r->slots = (struct lsom__slot *)(r->parts + blocks);
	r->iov = (struct iovec *)(r->slots + blocks);
	r->blocks = (unsigned)blocks;
	return r;
}

static void read_free(struct read *r)
{
	spare_give(r, read_bytes(r->blocks));
}

static void read_finish(struct read *r, int status)
{
	struct lsom_comp *comp = r->comp;
	struct lsom_read *req = r->req;

	if (status < 0 && req->sgl != NULL) {
		sgl_put(req->sgl);
		req->sgl = NULL;
	}
	/* It may be that very failure: nothing to blame a block for. */
	if (status < 0 && comp->disk->state == LSOM_DISK_FAILED)
		status = -ENODEV;
	lsom__range_unpin(&r->range);
	read_free(r);
	assert(comp->disk->reads > 0);
	comp->disk->reads--;
	lsom__disk_changed(comp->disk);
	req->cb(req, status);
	lsom__comp_unref(comp);
}

/*
 * Where a component lost some, or the disk has segments that are not what they
 * were: is one of @n blocks of @page (or NULL) among them?
 */
static void lost_find(struct read *r, const struct lsom__page *page,
		      uint64_t block, unsigned n)
{
	struct lsom__entry e = { 0 };

	for (; n > 0 && r->lost == r->blocks; block++, n--) {
		if (page != NULL)
			lsom__slots_get(&page->slots, block % LSOM__PAGE_SLOTS,
					&e);
		if (lsom__entry_lost(r->comp, &e) ||
		    (e.kind == LSOM__E_RAW &&
		     lsom__segment_set_back(r->comp->disk, e.place)))
			r->lost = (unsigned)(block - r->range.first);
	}
}

/* The places, as the index has them now. */
static void slots_take(struct read *r)
{
	uint64_t block = r->range.first, end = block + r->blocks;
	struct lsom__slot *s = r->slots;
	const struct lsom__page *page;
	unsigned n;

	r->lost = r->blocks;
	for (; block < end; block += n, s += n) {
		n = (unsigned)MIN(end - block,
				  LSOM__PAGE_SLOTS - block % LSOM__PAGE_SLOTS);
		page = lsom__page_find(r->comp, block / LSOM__PAGE_SLOTS);
		if (page != NULL && page->gone)
			page = NULL;
		if (page != NULL)
			memcpy(s, &page->slots.slot[block % LSOM__PAGE_SLOTS],
			       n * sizeof(*s));
		else
			memset(s, 0, n * sizeof(*s));
		if (r->comp->meta.damaged != 0 ||
		    r->comp->disk->segments_set_back > 0)
			lost_find(r, page, block, n);
	}
}

static void part_done(struct env_io *io, int64_t res);
static void read_settled(struct lsom__log_wait *wait);

static bool has_data(const struct read *r, unsigned i)
{
	return lsom__slot_kind(&r->slots[i]) == LSOM__E_RAW;
}

static bool is_sent(const struct read *r, unsigned i)
{
	return r->sent[i / 64] >> i % 64 & 1;
}

/* The iovec after @last, which ends at @end, begins at @mem. */
static struct iovec *iov_next(struct iovec *last, const uint8_t *end, void *mem)
{
	last->iov_len = (size_t)(end - (uint8_t *)last->iov_base);
	*++last = (struct iovec){ mem, 0 };
	return last;
}

/* One of those that are free; it goes back in part_done(). */
static void *sink_take(struct part *part, struct lsom_disk *disk)
{
	struct lsom__sink *sink = SLIST_FIRST(&disk->sinks_free);

	SLIST_REMOVE_HEAD(&disk->sinks_free, link);
	SLIST_INSERT_HEAD(&part->sinks, sink, link);
	return sink->blocks;
}

/*
 * Read block @first, and with it those behind it that lie near it in its
 * segment, in their order.  @iov: room for them; returns its end.
 */
static struct iovec *part_send(struct read *r, unsigned first,
			       struct iovec *iov)
{
	const struct sgl_piece *piece = r->req->sgl->pieces;
	const struct lsom__slot *s = r->slots;
	const uint64_t gap_max =
		r->alone ? 0 : LSOM__READ_GAP * LSOM__SLOT_UNITS;
	struct part *part = &r->parts[r->parts_count++];
	struct lsom_disk *disk = r->comp->disk;
	uint64_t place = lsom__slot_place(&s[first]);
	uint32_t segment = lsom__segment_of(disk, place);
	uint64_t next = lsom__slot_where(&s[first]), gap;
	uint64_t end = next + (lsom__place(disk, segment + 1, 0) - place) *
				      LSOM__SLOT_UNITS;
	uint8_t *mem = piece[first].page->data; /* the end of @last */
	uint8_t *sink;
	struct iovec *last = iov;
	unsigned i, until = first;

	SLIST_INIT(&part->sinks);
	*last = (struct iovec){ mem, 0 };
	for (i = first; i <= until && i < r->blocks; i++) {
		gap = lsom__slot_where(&s[i]) - next;
		if (gap > gap_max || next + gap >= end || is_sent(r, i) ||
		    (gap > 0 && SLIST_EMPTY(&disk->sinks_free)))
			continue;
		if (gap > 0) {
			sink = sink_take(part, disk);
			last = iov_next(last, mem, sink);
			mem = sink + gap * 512;
			r->joined = true;
		}
		if (mem != piece[i].page->data) {
			last = iov_next(last, mem, piece[i].page->data);
			mem = piece[i].page->data;
		}
		mem += LSOM_BLOCK;
		r->sent[i / 64] |= 1ull << i % 64;
		next += gap + LSOM__SLOT_UNITS;
		until = i + 1 + LSOM__READ_GAP;
	}
	last->iov_len = (size_t)(mem - (uint8_t *)last->iov_base);
	lsom__segment_read_get(disk, segment);
	part->io.cb = part_done;
	part->read = r;
	part->segment = segment;
	r->parts_left++;
	env_dev_readv(disk->env, disk->dev, &part->io, iov,
		      (unsigned)(last - iov) + 1, place * LSOM_BLOCK);
	return last + 1;
}

static void parts_send(struct read *r)
{
	struct iovec *iov = r->iov;
	unsigned i;

	memset(r->sent, 0, sizeof(r->sent));
	r->joined = false;
	r->parts_count = 0;
	r->parts_left = 1; /* ours, until all are sent */
	for (i = 0; i < r->blocks; i++)
		if (has_data(r, i) && !is_sent(r, i))
			iov = part_send(r, i, iov);
	assert(iov <= r->iov + 2 * (size_t)r->blocks);
	r->parts_left--;
}

/* What the caller gets: pages for blocks with data, zeros for the others. */
static int sgl_make(struct read *r)
{
	struct page_cache *pages = r->comp->disk->env->pages;
	struct sgl_piece pieces[LSOM_WRITE_MAX / LSOM_BLOCK];
	const unsigned blocks = r->blocks;
	struct sgl *sgl, *data;
	unsigned i, n = 0;
	int rv;

	for (i = 0; i < blocks; i++)
		n += has_data(r, i);
	rv = sgl_new(pages, r->req->class, (size_t)n * LSOM_BLOCK, 0, &data);
	if (rv < 0)
		return rv == -EINVAL ? -EBUSY : rv;
	sgl = data;
	if (n < blocks) {
		for (i = n = 0; i < blocks; i++)
			pieces[i] = (struct sgl_piece){
				has_data(r, i) ? data->pieces[n++].page
					       : page_zero(),
				0, LSOM_BLOCK
			};
		sgl = sgl_of_pieces(pages, pieces, blocks);
		sgl_put(data);
		if (sgl == NULL)
			return -ENOMEM;
	}
	r->req->sgl = sgl;
	return 0;
}

/* The first block that is not what its slot says, or is lost; or r->blocks. */
static unsigned bad_find(const struct read *r)
{
	const struct sgl_piece *piece = r->req->sgl->pieces;
	const struct lsom__slot *s = r->slots;
	const unsigned n = r->lost;
	unsigned i;

	for (i = 0; i < n; i++, s++, piece++)
		if (lsom__slot_kind(s) == LSOM__E_RAW &&
		    crc32c(piece->page->data, LSOM_BLOCK) != s->crc)
			break;
	return i;
}

/* True if a bad block has moved since: then everything is read once more. */
static bool places_changed(struct read *r)
{
	struct lsom__slot old[LSOM_WRITE_MAX / LSOM_BLOCK];
	bool changed = false;
	unsigned i;

	memcpy(old, r->slots, r->blocks * sizeof(*old));
	slots_take(r);
	for (i = 0; i < r->blocks; i++) {
		if (lsom__slot_where(&r->slots[i]) != lsom__slot_where(&old[i]))
			changed = true;
		/* Pages were made for the kinds as they were. */
		if (lsom__slot_kind(&r->slots[i]) != lsom__slot_kind(&old[i])) {
			memcpy(r->slots, old, r->blocks * sizeof(*old));
			changed = false;
			break;
		}
	}
	return changed;
}

static void read_check(struct read *r)
{
	struct lsom_read *req = r->req;
	unsigned i;

	if (r->status == -EIO && r->joined) {
		/*
		 * It may have been a block that nobody asked for: no error of
		 * this read, but the disk's all the same, and counted as that.
		 */
		r->status = 0;
		r->alone = true;
		parts_send(r);
		assert(r->parts_left > 0);
		return;
	}
	i = r->status == 0 ? bad_find(r) : r->blocks;
	if (i < r->blocks) {
		if (!r->again && places_changed(r)) {
			r->again = true;
			parts_send(r);
			assert(r->parts_left > 0);
			return;
		}
		if (i < r->lost) { /* else it is known already, and old */
			counter_add(&crc_errors_total, 1);
			lsom__media_error(r->comp->disk);
		}
		req->bad_offset = req->offset + (uint64_t)i * LSOM_BLOCK;
		r->status = -EBADMSG;
	}
	/*
	 * A disk that goes fails all that is on its way, in any order.  Is it the
	 * block, or the disk?  The writes among that will tell.
	 */
	r->wait.cb = read_settled;
	if (r->status == -EIO && !lsom__log_settled(r->comp->disk, &r->wait))
		return;
	if (r->status == 0 && req->crcs != NULL)
		for (i = 0; i < r->blocks; i++)
			req->crcs[i] = has_data(r, i) ? r->slots[i].crc
						      : CRC32C_ZERO_PAGE;
	read_finish(r, r->status);
}

static void read_settled(struct lsom__log_wait *wait)
{
	struct read *r = container_of(wait, struct read, wait);

	read_finish(r, r->status);
}

/*
 * All segments stay until the last part is there: what is read once more then is
 * read where the slots say.
 */
static void part_done(struct env_io *io, int64_t res)
{
	struct part *part = container_of(io, struct part, io);
	struct read *r = part->read;
	struct lsom__sink *sink;

	while ((sink = SLIST_FIRST(&part->sinks)) != NULL) {
		SLIST_REMOVE_HEAD(&part->sinks, link);
		SLIST_INSERT_HEAD(&r->comp->disk->sinks_free, sink, link);
	}
	if (res < 0) {
		lsom__media_error(r->comp->disk);
		r->status = -EIO;
	}
	assert(r->parts_left > 0);
	if (--r->parts_left > 0)
		return;
	for (unsigned i = 0; i < r->parts_count; i++)
		lsom__segment_read_put(r->comp->disk, r->parts[i].segment);
	read_check(r);
}

static void read_go(struct read *r)
{
	int rv = lsom__state_of(r->comp->disk);

	if (rv == -ESHUTDOWN)
		rv = 0; /* it was accepted before */
	if (rv == 0 && r->comp->deleted)
		rv = -ENOENT;
	if (rv == 0) {
		slots_take(r);
		rv = sgl_make(r);
	}
	if (rv < 0) {
		read_finish(r, rv);
		return;
	}
	parts_send(r);
	if (r->parts_left == 0)
		read_check(r);
}

static void read_loaded(struct lsom__range *range, int status)
{
	struct read *r = container_of(range, struct read, range);

	if (status < 0)
		read_finish(r, status);
	else
		read_go(r);
}

static void read_start(struct env_task *task)
{
	struct read *r = container_of(task, struct read, start);
	int rv = lsom__range_load(&r->range);

	if (rv != -EAGAIN)
		read_loaded(&r->range, rv);
}

/*
 * What a read is to fill is its own until the device answers.  So one that does
 * not answer gets a few only, or those who ask it again and again would have all
 * the memory that others need.
 */
static bool reads_full(const struct lsom_disk *disk)
{
	return disk->reads >= LSOM__READS_MAX ||
	       (disk->reads >= LSOM__READS_SILENT && lsom__disk_silent(disk));
}

int lsom_read(struct lsom_comp *comp, struct lsom_read *req, lsom_read_cb cb)
{
	struct lsom_disk *disk = comp->disk;
	uint64_t blocks = req->len / LSOM_BLOCK;
	struct read *r;
	int rv = lsom__state_of(disk);

	if (rv < 0)
		return rv;
	if (comp->deleted)
		return -ENOENT;
	if (comp->far != NULL)
		return lsom__view_read(comp, req, cb);
	if (req->offset % LSOM_BLOCK || req->len % LSOM_BLOCK ||
	    req->len == 0 || req->len > LSOM_WRITE_MAX)
		return -EINVAL;
	if (req->len > comp->meta.size_bytes ||
	    req->offset > comp->meta.size_bytes - req->len)
		return -ERANGE;
	if (reads_full(disk))
		return -EBUSY;
	r = read_new(blocks);
	if (r == NULL)
		return -ENOMEM;
	if (req->decided != NULL)
		lsom__decided_take(comp, req->decided);
	req->comp = comp;
	req->cb = cb;
	req->sgl = NULL;
	r->req = req;
	r->comp = comp;
	r->range.comp = comp;
	r->range.first = r->range.next = req->offset / LSOM_BLOCK;
	r->range.blocks = blocks;
	r->range.cb = read_loaded;
	r->start.cb = read_start;
	lsom__comp_ref(comp);
	disk->reads++;
	/* With its index pages there the I/O goes out in this turn. */
	rv = lsom__range_load(&r->range);
	if (rv == -EAGAIN)
		return 0;
	if (rv == 0) {
		slots_take(r);
		rv = sgl_make(r);
		if (rv == 0) {
			parts_send(r);
			if (r->parts_left > 0)
				return 0;
		}
		if (rv == 0) { /* all holes: in a turn of its own, anew */
			sgl_put(req->sgl);
			req->sgl = NULL;
			env_defer(disk->env, &r->start);
			return 0;
		}
	}
	lsom__range_unpin(&r->range);
	disk->reads--;
	lsom__comp_unref(comp);
	read_free(r);
	return rv;
}

/* ---- scan ---- */

struct scan {
	struct lsom__page_wait wait;
	struct env_task start;
	struct lsom_scan *req;
	struct lsom_comp *comp;
	uint64_t block, end;
};

/* Page @number, or NULL: the component has none. */
static void scan_page(struct scan *s, uint64_t number,
		      const struct lsom__page *page)
{
	struct lsom_scan *req = s->req;
	uint64_t base = number * LSOM__PAGE_SLOTS;
	struct lsom__entry e = { 0 };
	bool lost;

	while (s->block < s->end && s->block < base + LSOM__PAGE_SLOTS &&
	       req->items_count < req->items_max) {
		if (page != NULL)
			lsom__slots_get(&page->slots,
					(unsigned)(s->block - base), &e);
		lost = req->since == 0 && lsom__entry_lost(s->comp, &e);
		if ((e.kind != LSOM__E_EMPTY && e.lsn > req->since) || lost)
			req->items[req->items_count++] = (struct lsom_version){
				.offset = s->block * LSOM_BLOCK,
				.member_csn = e.member_csn,
				.lsn = e.lsn,
				.crc = e.crc,
				.hole = e.kind == LSOM__E_HOLE && !lost,
			};
		s->block++;
	}
}

static void scan_finish(struct scan *s, int status)
{
	struct lsom_scan *req = s->req;
	struct lsom_comp *comp = s->comp;

	req->next = s->block * LSOM_BLOCK;
	assert(comp->disk->reads > 0);
	comp->disk->reads--;
	free(s);
	lsom__disk_changed(comp->disk);
	req->cb(req, status);
	lsom__comp_unref(comp);
}

/* One page a turn: a scan of a large component must not hold the loop. */
static void scan_step(struct env_task *task)
{
	struct scan *s = container_of(task, struct scan, start);
	struct lsom_comp *comp = s->comp;
	struct lsom__page *page = NULL;
	uint64_t number;
	int rv;

	if (comp->deleted || comp->disk->state == LSOM_DISK_FAILED) {
		scan_finish(s, comp->deleted ? -ENOENT : -ENODEV);
		return;
	}
	if (s->block >= s->end || s->req->items_count == s->req->items_max) {
		scan_finish(s, 0);
		return;
	}
	number = s->block / LSOM__PAGE_SLOTS;
	if (comp->meta.damaged == 0 || s->req->since > 0)
		number = lsom__page_next(comp, number);
	if (number == UINT64_MAX || number * LSOM__PAGE_SLOTS >= s->end) {
		s->block = s->end;
		scan_finish(s, 0);
		return;
	}
	s->block = MAX(s->block, number * LSOM__PAGE_SLOTS);
	rv = lsom__page_want(comp, number, &page, &s->wait);
	if (rv == -EAGAIN)
		return;
	if (rv < 0 && rv != -ENOENT) {
		scan_finish(s, rv);
		return;
	}
	scan_page(s, number, page);
	env_defer(comp->disk->env, &s->start);
}

/* At once: by the next turn the page may be gone again. */
static void scan_wake(struct lsom__page_wait *wait, int status)
{
	struct scan *s = container_of(wait, struct scan, wait);

	if (status < 0)
		scan_finish(s, status);
	else
		scan_step(&s->start);
}

int lsom_scan(struct lsom_comp *comp, struct lsom_scan *req, lsom_scan_cb cb)
{
	struct lsom_disk *disk = comp->disk;
	struct scan *s;
	int rv = lsom__state_of(disk);

	if (rv < 0)
		return rv;
	if (comp->deleted)
		return -ENOENT;
	if (comp->far != NULL)
		return lsom__view_scan(comp, req, cb);
	if (req->offset % LSOM_BLOCK || req->len % LSOM_BLOCK ||
	    req->items_max == 0)
		return -EINVAL;
	if (req->len > comp->meta.size_bytes ||
	    req->offset > comp->meta.size_bytes - req->len)
		return -ERANGE;
	if (disk->reads >= LSOM__READS_MAX)
		return -EBUSY;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	req->comp = comp;
	req->cb = cb;
	req->items_count = 0;
	s->req = req;
	s->comp = comp;
	s->block = req->offset / LSOM_BLOCK;
	s->end = s->block + req->len / LSOM_BLOCK;
	s->start.cb = scan_step;
	s->wait.cb = scan_wake;
	lsom__comp_ref(comp);
	disk->reads++;
	env_defer(disk->env, &s->start);
	return 0;
}
