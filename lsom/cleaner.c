/*
 * cleaner: makes free segments out of used ones.
 *
 * When free segments run low it takes a victim, reads its summary, and for each
 * record asks whether something still needs it: blocks that the index or the
 * table points to are read and appended at the cleaner's own head; a component
 * with metadata in it gets its whole state written again; holes and tombs are
 * carried while older data lies anywhere on the disk.  A move names its source
 * and takes effect only if the index still points there when it is durable.
 *
 * Then nothing needs the victim.  It is free once a checkpoint that began after
 * that is flushed, whether or not the summary of the segment that its blocks
 * moved to is written.  That is enough, also for an index made from the log
 * alone: a move counts when its batch is durable and all before it of its head
 * are, so after a power cut recovery, which reads an open segment by its batch
 * headers, finds it in the head's run; and before recovery makes the next
 * generation durable it writes the summary that is missing.  A later rebuild
 * reads that one.
 *
 * Moves take their place in the pipeline, bounded, so that a victim full of
 * small records is not one round trip each.  They are appended together when all
 * of them are read: in one batch they share a header, and on a tight disk headers
 * are what decides whether a victim fits into less than what it gives back.
 *
 * What it takes while few segments are free it owes: see undo.c.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/lsom_int.h"

#include "base/err.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

#define MOVES_MAX 64u
#define MOVE_BLOCKS_MAX 1024u /* in flight */
#define RETRY_NS (20 * MSEC)
#define WALKS_MAX 4u
#define FRUITLESS_MAX 16u

static struct counter cleaned_total = {
	.name = "basalt_lsom_segments_cleaned_total",
	.help = "Segments emptied by the cleaner",
};
static struct counter moved_total = {
	.name = "basalt_lsom_blocks_moved_total",
	.help = "Blocks moved by the cleaner",
};

enum phase { IDLE, READ_FOOTER, READ_SUMMARY, RECORDS, STATES, SETTLE };

struct lsom__cleaner {
	struct lsom_disk *disk;
	enum phase phase;
	bool busy; /* a read or a page load is on its way */
	bool abandon; /* this victim cannot be emptied now */
	bool settled; /* it looked for a victim, and there is none to take */
	unsigned fruitless; /* victims since the last that made room */
	unsigned walks, walk_moves; /* of this victim; begun in this walk */
	uint32_t victim;
	struct env_task step;
	struct env_timer retry;
	bool retrying;
	struct env_io io;
	struct iovec iov;
	uint8_t *buf;
	uint32_t blocks;
	/* the cursor: frames [at, bytes), records [record_at, record_end) */
	const uint8_t *frames;
	size_t at, bytes, record_end;
	struct lsom__frame frame;
	uint64_t block; /* within the record: where to go on */
	struct lsom__range range;
	bool ranged; /* the pages of the present record are pinned */
	unsigned moves, move_blocks, reading;
	struct lsom__ops ready; /* to be appended together */
	struct lsom__segment_header header;
};

/* One run of live blocks, or a hole, on its way to its new place. */
struct move {
	struct lsom__cleaner *cleaner;
	struct env_io io;
	struct iovec iov[LSOM_WRITE_MAX / LSOM_BLOCK];
	struct lsom__op *op;
	struct lsom__page *pages[2];
	unsigned pages_count;
	uint32_t blocks;
	uint64_t source;
	bool prep;
};

/* ---- moving ---- */

static void step_soon(struct lsom__cleaner *c)
{
	env_defer(c->disk->env, &c->step);
}

static void move_free(struct move *m)
{
	struct lsom__cleaner *c = m->cleaner;

	while (m->pages_count > 0)
		m->pages[--m->pages_count]->pins--;
	assert(c->moves > 0);
	c->moves--;
	c->move_blocks -= m->blocks;
	free(m);
	step_soon(c);
}

/* The prepared version went to its new place, or its blocks did meanwhile. */
static bool prep_moved(struct lsom__op *op, const struct lsom__data_record *d)
{
	struct lsom__prep *p =
		lsom__prep_same(op->comp, d->r.lsn, d->first, d->blocks);

	if (p == NULL || p->place != d->source)
		return false;
	lsom__prep_remove(op->comp, p);
	p->place = op->place;
	lsom__prep_insert(op->comp, p);
	return true;
}

/* A page that came with a commit, after the pins, may have gone again. */
static bool pages_there(const struct lsom_comp *comp, uint64_t first,
			uint64_t blocks)
{
	uint64_t n = first / LSOM__PAGE_SLOTS;
	const struct lsom__page *page;

	for (; n <= (first + blocks - 1) / LSOM__PAGE_SLOTS; n++) {
		page = lsom__page_find(comp, n);
		if (page == NULL ? lsom__page_exists(comp, n) : !page->loaded)
			return false;
	}
	return true;
}

static void move_apply(struct lsom__op *op, int status)
{
	const struct lsom__data_record *d = (void *)op->record;
	struct move *m = op->req;

	if (status < 0)
		m->cleaner->abandon = true;
	else if (op->comp->deleted || (m->prep && prep_moved(op, d)))
		;
	else if (!pages_there(op->comp, d->first, d->blocks))
		m->cleaner->abandon = true; /* moved again, another time */
	else
		lsom__range_apply(op->comp, d->first, d->blocks, op->place,
				  lsom__record_crcs(d),
				  d->r.flags & LSOM__F_HOLE, d->r.member_csn,
				  d->r.lsn, LSOM__APPLY_MOVE, d->source);
	counter_add(&moved_total, op->blocks);
	lsom__op_free(op);
	move_free(m);
}

static void move_read(struct env_io *io, int64_t res)
{
	struct move *m = container_of(io, struct move, io);
	struct lsom__cleaner *c = m->cleaner;

	lsom__segment_read_put(c->disk, m->source);
	assert(c->reading > 0);
	c->reading--;
	if (res < 0) {
		/* It stays where it is, and so does its segment. */
		log_error("disk %s: cleaning segment %u: %s", c->disk->path,
			  c->victim, err_text((int)res));
		c->abandon = true;
		c->disk->segments[c->victim].unreadable = true;
		lsom__op_free(m->op);
		move_free(m);
		return;
	}
	/*
	 * A block that does not match its CRC is moved as it is: a reader finds
	 * it out, and a repair replaces it.
	 */
	STAILQ_INSERT_TAIL(&c->ready, m->op, link);
	if (c->reading == 0)
		step_soon(c);
}

/*
 * Move blocks [first, first + blocks) of record @d, or, if @whole, the record.
 * 0, or -EBUSY / -ENOMEM: not now.
 */
static int move_start(struct lsom__cleaner *c, struct lsom_comp *comp,
		      const struct lsom__data_record *d, uint64_t first,
		      uint64_t blocks, bool prep, bool hole)
{
	struct lsom_disk *disk = c->disk;
	uint16_t flags = (d->r.flags & (LSOM__F_ATOMIC | LSOM__F_REPAIR)) |
			 LSOM__F_MOVED | (hole ? LSOM__F_HOLE : 0) |
			 (prep ? 0 : LSOM__F_COMMITTED);
	unsigned parts = prep ? d->parts : 0, i;
	struct lsom__data_record *out;
	struct move *m = calloc(1, sizeof(*m));
	struct lsom__op *op = NULL;
	int rv = -ENOMEM;

	if (m != NULL)
		op = lsom__op_new(disk, comp, LSOM__R_DATA,
				  lsom__data_record_len(flags, blocks, parts));
	if (op == NULL)
		goto err;
	if (!hole) {
		rv = sgl_new(disk->env->pages, PAGE_LOG, blocks * LSOM_BLOCK, 0,
			     &op->sgl);
		if (rv < 0)
			goto err;
		op->blocks = (uint32_t)blocks;
	}
	out = (void *)op->record;
	out->r.flags = flags;
	out->r.lsn = d->r.lsn;
	out->r.member_csn = d->r.member_csn;
	out->r.orig_pos = hole ? (d->r.flags & LSOM__F_MOVED ? d->r.orig_pos
							     : disk->pos_next)
			       : c->frame.pos;
	out->first = first;
	out->blocks = blocks;
	out->parts = (uint16_t)parts;
	out->source = lsom__place(
		disk, c->victim,
		hole ? c->frame.block : d->data + (uint32_t)(first - d->first));
	if (!hole)
		memcpy(out + 1, lsom__record_crcs(d) + (first - d->first),
		       blocks * sizeof(uint32_t));
	memcpy((void *)(uintptr_t)lsom__record_parts(out),
	       lsom__record_parts(d), parts * sizeof(struct uuid));
	m->cleaner = c;
	m->op = op;
	m->source = out->source;
	m->prep = prep;
	m->blocks = (uint32_t)op->blocks;
	for (i = 0; i < c->range.pages_count; i++) {
		m->pages[m->pages_count++] = c->range.pages[i];
		c->range.pages[i]->pins++;
	}
	op->req = m;
	op->apply = move_apply;
	c->moves++;
	c->walk_moves++;
	c->move_blocks += m->blocks;
	if (hole) {
		STAILQ_INSERT_TAIL(&c->ready, op, link);
		return 0;
	}
	c->reading++;
	m->io.cb = move_read;
	lsom__segment_read_get(disk, m->source);
	i = sgl_iov(op->sgl, 0, blocks * LSOM_BLOCK, m->iov, ARRAY_LEN(m->iov),
		    NULL);
	env_dev_readv(disk->env, disk->dev, &m->io, m->iov, i,
		      m->source * LSOM_BLOCK);
	return 0;

err:
	if (op != NULL)
		lsom__op_free(op);
	free(m);
	return rv;
}

/* ---- records ---- */

static bool entry_here(struct lsom_comp *comp, uint64_t block, uint64_t place,
		       uint8_t kind)
{
	struct lsom__page *page =
		lsom__page_find(comp, block / LSOM__PAGE_SLOTS);
	struct lsom__entry e;

	if (page == NULL || page->gone)
		return false;
	lsom__slots_get(&page->slots, block % LSOM__PAGE_SLOTS, &e);
	return e.kind == kind && e.place == place;
}

static void pages_unpin(struct lsom__cleaner *c)
{
	lsom__range_unpin(&c->range);
	lsom__comp_unref(c->range.comp);
	c->ranged = false;
}

/*
 * Pin the pages of up to 256 blocks from @first on, and the component, which
 * may be deleted and reaped meanwhile.  As lsom__range_load.
 */
static int pages_pin(struct lsom__cleaner *c, struct lsom_comp *comp,
		     uint64_t first, uint64_t blocks)
{
	int rv;

	if (c->ranged)
		return 0;
	c->range.comp = comp;
	c->range.first = c->range.next = first;
	c->range.blocks = blocks;
	c->range.pages_count = 0;
	lsom__comp_ref(comp);
	rv = lsom__range_load(&c->range);
	if (rv == 0)
		c->ranged = true;
	else if (rv == -EAGAIN)
		c->busy = true;
	else
		pages_unpin(c);
	return rv;
}

static void pages_ready(struct lsom__range *range, int status)
{
	struct lsom__cleaner *c =
		container_of(range, struct lsom__cleaner, range);

	c->busy = false;
	c->ranged = true;
	if (status < 0) {
		pages_unpin(c);
		c->abandon = true;
	}
	step_soon(c);
}

static bool pipeline_full(const struct lsom__cleaner *c)
{
	return c->moves >= MOVES_MAX || c->move_blocks >= MOVE_BLOCKS_MAX;
}

/* 0: the record is done.  -EAGAIN: come back.  Else: abandon. */
static int data_step(struct lsom__cleaner *c, struct lsom_comp *comp,
		     const struct lsom__data_record *d)
{
	uint64_t place = lsom__place(c->disk, c->victim, d->data);
	uint64_t end = d->first + d->blocks, n;
	struct lsom__prep *p;
	int rv = pages_pin(c, comp, d->first, d->blocks);

	if (rv < 0)
		return rv;
	p = lsom__prep_same(comp, d->r.lsn, d->first, d->blocks);
	if (p != NULL && p->place == place) {
		if (pipeline_full(c))
			return -EAGAIN;
		rv = move_start(c, comp, d, d->first, d->blocks, true, false);
		if (rv == 0)
			pages_unpin(c);
		return rv;
	}
	while (d->first + c->block < end) {
		if (pipeline_full(c))
			return -EAGAIN;
		n = 0;
		while (d->first + c->block + n < end &&
		       n < MAX(c->disk->segment_blocks / 16, 8u) &&
		       entry_here(comp, d->first + c->block + n,
				  place + c->block + n, LSOM__E_RAW))
			n++;
		if (n > 0) {
			rv = move_start(c, comp, d, d->first + c->block, n,
					false, false);
			if (rv < 0)
				return rv;
		}
		c->block += MAX(n, 1u);
	}
	pages_unpin(c);
	return 0;
}

/* Does a hole still bar something, here or at a peer? */
static bool hole_needed(const struct lsom__cleaner *c,
			const struct lsom_comp *comp,
			const struct lsom__data_record *d)
{
	if (!lsom__rule(c->disk, LSOM_OFF_HOLES))
		return false;
	return d->r.lsn > comp->decided.hole_floor ||
	       comp->meta.damaged != 0 || /* not lost, for it is newer */
	       !(d->r.flags & LSOM__F_MOVED) ||
	       lsom__segments_oldest(c->disk, c->victim) < d->r.orig_pos;
}

static int hole_page(struct lsom__cleaner *c, struct lsom_comp *comp,
		     const struct lsom__data_record *d, uint64_t end)
{
	uint64_t place = lsom__place(c->disk, c->victim, c->frame.block);
	struct lsom__entry e = { .lsn = d->r.lsn,
				 .member_csn = d->r.member_csn };
	bool needed = hole_needed(c, comp, d);
	uint64_t at = d->first + c->block, n, i;
	int rv;

	while (at < end) {
		if (pipeline_full(c))
			return -EAGAIN;
		for (n = 0; at + n < end; n++)
			if (!entry_here(comp, at + n, place, LSOM__E_HOLE))
				break;
		for (i = 0; i < n && !needed; i++)
			(void)lsom__index_apply(comp, at + i, &e,
						LSOM__APPLY_DROP, place);
		if (n > 0 && needed) {
			rv = move_start(c, comp, d, at, n, false, true);
			if (rv < 0)
				return rv;
		}
		at += MAX(n, 1u);
		c->block = at - d->first;
	}
	return 0;
}

static int hole_step(struct lsom__cleaner *c, struct lsom_comp *comp,
		     const struct lsom__data_record *d)
{
	uint64_t end = d->first + d->blocks, at, number, stop;
	int rv;

	if (lsom__prep_same(comp, d->r.lsn, d->first, d->blocks) != NULL)
		return -EINPROGRESS; /* undecided: another time */
	while (d->first + c->block < end) {
		at = d->first + c->block;
		number = lsom__page_next(comp, at / LSOM__PAGE_SLOTS);
		if (number == UINT64_MAX || number * LSOM__PAGE_SLOTS >= end)
			return 0;
		at = MAX(at, number * LSOM__PAGE_SLOTS);
		stop = MIN(end, (number + 1) * LSOM__PAGE_SLOTS);
		c->block = at - d->first;
		rv = pages_pin(c, comp, at, stop - at);
		if (rv == 0)
			rv = hole_page(c, comp, d, stop);
		if (rv < 0)
			return rv;
		pages_unpin(c);
	}
	return 0;
}

static void tomb_applied(struct lsom__op *op, int status)
{
	struct lsom__cleaner *c = op->req;

	c->abandon |= status < 0;
	lsom__op_free(op);
	c->moves--;
	step_soon(c);
}

/* A deleted component is barred while data older than its end is there. */
static int tomb_step(struct lsom__cleaner *c, uint64_t key)
{
	struct lsom_disk *disk = c->disk;
	struct lsom__tomb *t;
	struct lsom__op *op;

	TAILQ_FOREACH (t, &disk->tombs, link)
		if (t->key == key)
			break;
	if (t == NULL)
		return 0;
	if (lsom__comp_by_key(disk, key) == NULL &&
	    lsom__segments_oldest(disk, c->victim) >= t->pos) {
		TAILQ_REMOVE(&disk->tombs, t, link);
		disk->tombs_dirty = true;
		free(t);
		return 0;
	}
	op = lsom__op_new(disk, NULL, LSOM__R_DELETE,
			  sizeof(struct lsom__record));
	if (op == NULL)
		return -ENOMEM;
	((struct lsom__record *)(void *)op->record)->component = key;
	((struct lsom__record *)(void *)op->record)->orig_pos = t->pos;
	op->req = c;
	op->apply = tomb_applied;
	c->moves++;
	STAILQ_INSERT_TAIL(&c->ready, op, link);
	return 0;
}

static int record_step(struct lsom__cleaner *c, const struct lsom__record *r)
{
	struct lsom_comp *comp = lsom__comp_by_key(c->disk, r->component);

	if (r->type == LSOM__R_LOST) {
		/* What was in it is not known: it stays as it is. */
		c->disk->segments[c->victim].unreadable = true;
		return -EINPROGRESS;
	}
	if (r->type != LSOM__R_DATA && c->walks > 0)
		return 0; /* carried by the first walk */
	if (r->type == LSOM__R_DELETE)
		return tomb_step(c, r->component);
	if (c->ranged && (c->range.comp != comp || comp->deleted))
		pages_unpin(c); /* deleted since its pages were pinned */
	if (comp == NULL)
		return 0;
	if (comp->deleted) /* its blocks are counted until it is reaped */
		return comp->reaped ? 0 : -EINPROGRESS;
	if (r->type == LSOM__R_DATA)
		return r->flags & LSOM__F_HOLE
			       ? hole_step(c, comp, (const void *)r)
			       : data_step(c, comp, (const void *)r);
	if (comp->state_pos <= c->frame.pos)
		comp->carry = true;
	return 0;
}

/* ---- states ---- */

static void state_applied(struct lsom__op *op, int status)
{
	struct lsom__cleaner *c = op->req;

	if (status == 0)
		op->comp->state_pos = MAX(op->comp->state_pos, op->extra);
	c->abandon |= status < 0;
	lsom__op_free(op);
	c->moves--;
	step_soon(c);
}

static int states_step(struct lsom__cleaner *c)
{
	uint64_t oldest = lsom__segments_oldest(c->disk, c->victim);
	struct lsom_comp *comp;
	struct lsom__op *op;

	TAILQ_FOREACH (comp, &c->disk->comps, link) {
		if (!comp->carry || comp->deleted || !comp->created)
			continue;
		if (!lsom__rule(c->disk, LSOM_OFF_CARRY)) {
			comp->carry = false;
			continue;
		}
		lsom__aborts_prune(comp, oldest);
		op = lsom__state_op(comp, &comp->meta, comp->meta_sequence);
		if (op == NULL)
			return -ENOMEM;
		comp->carry = false;
		op->req = c;
		op->apply = state_applied;
		op->extra = lsom__log_applied_pos(c->disk);
		c->moves++;
		STAILQ_INSERT_TAIL(&c->ready, op, link);
	}
	return 0;
}

/* ---- one victim ---- */

/* All that is ready goes into the log, in one turn. */
static void ready_append(struct lsom__cleaner *c)
{
	struct lsom__op *op;

	while ((op = STAILQ_FIRST(&c->ready)) != NULL) {
		STAILQ_REMOVE_HEAD(&c->ready, link);
		lsom__log_append(c->disk, LSOM__HEAD_CLEANER, op);
	}
}

static void retry_later(struct lsom__cleaner *c)
{
	if (!c->retrying)
		env_timer_start(c->disk->env, &c->retry, RETRY_NS);
	c->retrying = true;
}

static void retry_run(struct env_timer *timer)
{
	struct lsom__cleaner *c =
		container_of(timer, struct lsom__cleaner, retry);

	c->retrying = false;
	step_soon(c);
}

/* Do those that are free, and will be, come to less than what is reserved? */
static bool owes(const struct lsom_disk *disk)
{
	return disk->segments_free + disk->segments_cleaned < LSOM__RESERVED;
}

/*
 * Does cleaning make room?  Where it only moves full segments about, heads do
 * not wait for it for ever (log.c), nor does it go on by itself.
 */
static void gain_note(struct lsom__cleaner *c)
{
	struct lsom_disk *disk = c->disk;
	uint32_t head = disk->heads[LSOM__HEAD_CLEANER].segment;
	uint64_t room =
		(uint64_t)(disk->segments_free + disk->segments_cleaned) *
		disk->segment_blocks;

	if (head != LSOM__NONE)
		room += disk->segment_blocks - disk->segments[head].used;
	if (room > disk->room_best) {
		disk->room_best = room;
		disk->progress_ns = env_now(disk->env);
		c->fruitless = 0;
	} else {
		c->fruitless++;
	}
}

static void victim_leave(struct lsom__cleaner *c)
{
	c->disk->segments[c->victim].cleaning = false;
	free(c->buf);
	c->buf = NULL;
	c->phase = IDLE;
	c->victim = LSOM__NONE;
}

static void walk_begin(struct lsom__cleaner *c)
{
	c->at = c->record_end = 0;
	c->block = 0;
	c->walk_moves = 0;
	c->phase = RECORDS;
}

/*
 * A walk has ended and all its moves are durable.  If blocks count as live all
 * the same, it is walked again: every place that anything can point to is named
 * by a record, so a walk that finds nothing to move proves the count wrong.  It
 * is too high, never too low, where the power went while a changed index page
 * was being read: what the change replaced was not known yet.
 */
static void victim_done(struct lsom__cleaner *c)
{
	struct lsom_disk *disk = c->disk;
	struct lsom__segment *seg = &disk->segments[c->victim];

	if (disk->state == LSOM_DISK_FAILED) {
		victim_leave(c);
		return;
	}
	assert(seg->state == LSOM__SEG_CLOSED);
	assert(seg->sequence == c->header.sequence);
	if (!c->abandon && seg->live > 0 &&
	    (c->walks == 0 || c->walk_moves > 0) && c->walks < WALKS_MAX) {
		c->walks++;
		walk_begin(c);
		return;
	}
	if (c->abandon ||
	    (seg->live > 0 && (c->walk_moves > 0 || disk->super.damaged))) {
		/*
		 * Something in it is not settled: others meanwhile.  Where a
		 * batch was lost in mid-log its records may be missing while
		 * the index still has its blocks: a walk proves nothing.
		 */
		seg->retry_ns = env_now(disk->env) + 50 * RETRY_NS;
		victim_leave(c);
		return;
	}
	if (seg->live > 0)
		lsom__segment_live(disk, lsom__place(disk, c->victim, 0),
				   -(int64_t)seg->live);
	lsom__segment_cleaned(disk, c->victim);
	counter_add(&cleaned_total, 1);
	gain_note(c);
	if (disk->checkpoint_waits && !owes(disk))
		lsom__checkpoint_start(disk);
	victim_leave(c);
}

static void summary_here(struct env_io *io, int64_t res)
{
	struct lsom__cleaner *c = container_of(io, struct lsom__cleaner, io);
	const struct lsom__segment *seg = &c->disk->segments[c->victim];
	struct lsom__summary_header s;
	int rv = res < 0 ? (int)res : 0;

	c->busy = false;
	c->header = (struct lsom__segment_header){
		.disk = c->disk->super.disk,
		.sequence = seg->sequence,
		.generation = seg->generation,
		.head = seg->head,
	};
	if (rv == 0 && c->phase == READ_FOOTER) {
		c->blocks = lsom__summary_blocks(c->buf, &c->header,
						 c->disk->segment_blocks);
		if (c->blocks == 0)
			rv = -EUCLEAN;
		c->phase = READ_SUMMARY;
	} else if (rv == 0) {
		rv = lsom__summary_decode(c->buf, c->blocks, &c->header, &s);
		if (rv == 0)
			rv = lsom__frames_check(c->buf + sizeof(s), s.bytes,
						c->disk->segment_blocks);
		if (rv == 0) {
			c->frames = c->buf + sizeof(s);
			c->bytes = s.bytes;
			c->walks = 0;
			walk_begin(c);
		}
	}
	if (rv < 0) {
		log_error("disk %s: the summary of segment %u: %s; it stays "
			  "as it is",
			  c->disk->path, c->victim, err_text(rv));
		c->disk->segments[c->victim].unreadable = true;
		victim_leave(c);
	}
	step_soon(c);
}

static int summary_get(struct lsom__cleaner *c, uint32_t blocks)
{
	free(c->buf);
	c->iov.iov_len = (size_t)blocks * LSOM_BLOCK;
	c->buf = aligned_alloc(LSOM_BLOCK, c->iov.iov_len);
	if (c->buf == NULL)
		return -ENOMEM;
	c->iov.iov_base = c->buf;
	c->busy = true;
	c->io.cb = summary_here;
	env_dev_readv(c->disk->env, c->disk->dev, &c->io, &c->iov, 1,
		      lsom__place(c->disk, c->victim,
				  c->disk->segment_blocks - blocks) *
			      LSOM_BLOCK);
	return 0;
}

static int records_step(struct lsom__cleaner *c)
{
	const struct lsom__record *r;
	int rv;

	for (;;) {
		if (c->abandon)
			return -EINPROGRESS;
		if (c->at == c->record_end) {
			if (c->at == c->bytes)
				return 0;
			memcpy(&c->frame, c->frames + c->at, sizeof(c->frame));
			c->at += sizeof(c->frame);
			c->record_end = c->at + c->frame.records_bytes;
			continue;
		}
		r = (const void *)(c->frames + c->at);
		rv = record_step(c, r);
		if (rv < 0)
			return rv;
		c->at += r->len;
		c->block = 0;
	}
}

/* ---- the loop ---- */

/* Is there room for what is live in the victim, its headers, its metadata? */
static bool victim_fits(const struct lsom__cleaner *c)
{
	const struct lsom_disk *disk = c->disk;
	uint32_t head = disk->heads[LSOM__HEAD_CLEANER].segment;
	uint64_t all = disk->segment_blocks;
	uint64_t live = disk->segments[c->victim].live;
	uint64_t room = (uint64_t)disk->segments_free * (all - 1);

	if (head != LSOM__NONE)
		room += all - disk->segments[head].used;
	return lsom__victim_cost(disk, live) <= room;
}

bool lsom__cleaner_owes(const struct lsom_disk *disk)
{
	/* With none free it cannot go on: what it has must do. */
	return owes(disk) && !disk->cleaner->settled &&
	       disk->segments_free > 0 && lsom__rule(disk, LSOM_OFF_UNDO);
}

/* Take a victim if one is wanted.  False: nothing to do. */
static bool victim_take(struct lsom__cleaner *c)
{
	struct lsom_disk *disk = c->disk;
	unsigned waiting;

	/* A closing disk is cleaned only as far as what waits needs it. */
	if (disk->state == LSOM_DISK_FAILED ||
	    disk->state == LSOM_DISK_OPENING ||
	    (disk->closing && lsom__log_idle(disk)))
		return false;
	lsom__segments_release(disk);
	waiting = disk->segments_cleaned;
	if (disk->segments_free >= lsom__victim_low_mark(disk) &&
	    !lsom__victim_aborts(disk))
		return false;
	if (c->fruitless >= FRUITLESS_MAX && lsom__log_idle(disk) &&
	    disk->room_best > 0 && !lsom__victim_aborts(disk))
		return false;
	/* What is cleaned becomes free with the next checkpoint. */
	if (waiting > 0 && disk->checkpoint == NULL &&
	    (waiting >= 4 || disk->segments_free <= 3))
		lsom__checkpoint_start(disk);
	/* A victim needs a segment to move into before it gives one back. */
	if ((disk->segments_free <= 1 && waiting > 0 && !owes(disk)) ||
	    (disk->segments_free + waiting >= lsom__victim_low_mark(disk) + 2 &&
	     !lsom__victim_aborts(disk))) {
		if (disk->checkpoint == NULL)
			lsom__checkpoint_start(disk);
		return false;
	}
	c->victim = lsom__victim_pick(disk);
	if (c->victim == LSOM__NONE) {
		if (waiting > 0 && disk->checkpoint == NULL)
			lsom__checkpoint_start(disk);
		/* Only worth it while a head stands. */
		if (!lsom__log_idle(disk))
			retry_later(c);
		return false;
	}
	if (!victim_fits(c)) {
		c->victim = LSOM__NONE;
		retry_later(c);
		return false;
	}
	disk->segments[c->victim].cleaning = true;
	c->abandon = c->settled = false;
	c->phase = READ_FOOTER;
	return true;
}

/* There is nothing to take: a checkpoint that waited for it need not any more. */
static void settle(struct lsom__cleaner *c)
{
	c->settled = true;
	if (c->disk->checkpoint_waits)
		lsom__checkpoint_start(c->disk);
	lsom__disk_changed(c->disk);
}

static void cleaner_step(struct env_task *task)
{
	struct lsom__cleaner *c =
		container_of(task, struct lsom__cleaner, step);
	bool stop = c->disk->state == LSOM_DISK_FAILED;
	int rv = 0;

	if (c->busy)
		return;
	if (c->phase == IDLE && (stop || !victim_take(c))) {
		settle(c);
		return;
	}
	if (stop)
		c->abandon = true;
	if (c->phase == READ_FOOTER && stop)
		victim_leave(c);
	else if (c->phase == READ_FOOTER)
		rv = summary_get(c, 1);
	else if (c->phase == READ_SUMMARY)
		rv = summary_get(c, c->blocks);
	else if (c->phase == RECORDS) {
		rv = records_step(c);
		if (rv == -EINPROGRESS)
			c->abandon = true;
		if (rv == 0 || c->abandon)
			c->phase = STATES;
	}
	if (c->phase == STATES) {
		if (c->ranged)
			pages_unpin(c);
		rv = c->abandon ? 0 : states_step(c);
		if (rv == 0)
			c->phase = SETTLE;
	}
	if (c->reading == 0 && (c->phase != RECORDS || pipeline_full(c) ||
				rv == -ENOMEM || rv == -EBUSY))
		ready_append(c);
	if (c->phase == SETTLE && c->moves == 0) {
		victim_done(c);
		step_soon(c);
	}
	/* Short of memory or pages: moves that end come here, or the timer. */
	if ((rv == -ENOMEM || rv == -EBUSY) && !stop)
		retry_later(c);
	lsom__disk_changed(c->disk);
}

int lsom__cleaner_init(struct lsom_disk *disk)
{
	struct lsom__cleaner *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return -ENOMEM;
	counter_register(&cleaned_total);
	counter_register(&moved_total);
	c->disk = disk;
	c->settled = true;
	STAILQ_INIT(&c->ready);
	c->victim = LSOM__NONE;
	c->step.cb = cleaner_step;
	c->retry.cb = retry_run;
	c->range.cb = pages_ready;
	disk->cleaner = c;
	return 0;
}

void lsom__cleaner_stop(struct lsom_disk *disk)
{
	env_timer_stop(disk->env, &disk->cleaner->retry);
}

void lsom__cleaner_fini(struct lsom_disk *disk)
{
	if (disk->cleaner == NULL)
		return;
	assert(disk->cleaner->moves == 0);
	free(disk->cleaner->buf);
	free(disk->cleaner);
	disk->cleaner = NULL;
}

void lsom__cleaner_kick(struct lsom_disk *disk)
{
	if (disk->state != LSOM_DISK_OPENING && !disk->closed)
		step_soon(disk->cleaner);
}

bool lsom__cleaner_idle(const struct lsom_disk *disk)
{
	const struct lsom__cleaner *c = disk->cleaner;

	return c->phase == IDLE && !c->busy && c->moves == 0;
}
