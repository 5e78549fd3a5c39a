/*
 * carry: what of a victim's record is still needed, and goes on.
 *
 * Blocks that the index or the table points to; holes and the tombs of deleted
 * components while older data lies anywhere on the disk; for metadata the whole
 * state of its component, written again.
 */
#include "lsom/cleaner_int.h"

#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

void lsom__carry_unpin(struct lsom__cleaner *c)
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
		lsom__carry_unpin(c);
	return rv;
}

void lsom__carry_ready(struct lsom__range *range, int status)
{
	struct lsom__cleaner *c =
		container_of(range, struct lsom__cleaner, range);

	c->busy = false;
	c->ranged = true;
	if (status < 0) {
		lsom__carry_unpin(c);
		c->abandon = true;
	}
	lsom__cleaner_step_soon(c);
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
		if (lsom__moves_full(c))
			return -EAGAIN;
		rv = lsom__move_start(c, comp, d, d->first, d->blocks, true, 0);
		if (rv == 0)
			lsom__carry_unpin(c);
		return rv;
	}
	while (d->first + c->block < end) {
		if (lsom__moves_full(c))
			return -EAGAIN;
		n = 0;
		while (d->first + c->block + n < end &&
		       n < MAX(c->disk->segment_blocks / 16, 8u) &&
		       lsom__entry_here(comp, d->first + c->block + n,
					place + c->block + n, LSOM__E_RAW))
			n++;
		if (n > 0) {
			rv = lsom__move_start(c, comp, d, d->first + c->block,
					      n, false, 0);
			if (rv < 0)
				return rv;
		}
		c->block += MAX(n, 1u);
	}
	lsom__carry_unpin(c);
	return 0;
}

/* Is what the hole bars known to lie before its orig_pos? */
static bool hole_told(const struct lsom__data_record *d)
{
	return d->r.flags & LSOM__F_MOVED && d->r.orig_pos != LSOM__POS_LATER;
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
	       !hole_told(d) || c->oldest < d->r.orig_pos;
}

/* Where it is moved next, what it bars is in the log: no copy comes any more. */
static uint64_t hole_pos(const struct lsom_comp *comp,
			 const struct lsom__data_record *d)
{
	if (d->r.lsn > comp->decided.hole_floor)
		return LSOM__POS_LATER;
	return hole_told(d) ? d->r.orig_pos : comp->disk->pos_next;
}

/*
 * A hole is told to be behind all that it bars where it is first moved after no
 * leaf can be sent a copy of that any more.  So what was begun to be moved before
 * the hole was decided is to be in the log by then.
 */
static bool hole_waits(const struct lsom__cleaner *c,
		       const struct lsom_comp *comp,
		       const struct lsom__data_record *d, uint64_t first,
		       uint64_t blocks)
{
	return d->r.lsn <= comp->decided.hole_floor && !hole_told(d) &&
	       lsom__moves_of(c, comp, first, blocks);
}

static int hole_page(struct lsom__cleaner *c, struct lsom_comp *comp,
		     const struct lsom__data_record *d, uint64_t end)
{
	uint64_t place = lsom__place(c->disk, c->victim, c->frame.block);
	struct lsom__entry e = { .lsn = d->r.lsn,
				 .member_csn = d->r.member_csn };
	bool needed = hole_needed(c, comp, d);
	uint64_t at = d->first + c->block, n;
	int rv;

	while (at < end) {
		if (lsom__moves_full(c))
			return -EAGAIN;
		for (n = 0; at + n < end; n++)
			if (!lsom__entry_here(comp, at + n, place,
					      LSOM__E_HOLE))
				break;
		if (n > 0 && !needed)
			(void)lsom__index_apply(comp, at, (unsigned)n, &e, NULL,
						LSOM__APPLY_DROP, place);
		if (n > 0 && needed) {
			c->draining = hole_waits(c, comp, d, at, n);
			if (c->draining)
				return -EAGAIN;
			rv = lsom__move_start(c, comp, d, at, n, false,
					      hole_pos(comp, d));
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
	const struct lsom__prep *p =
		lsom__prep_same(comp, d->r.lsn, d->first, d->blocks);
	int rv;

	if (p != NULL &&
	    p->place != lsom__place(c->disk, c->victim, c->frame.block))
		return 0;
	if (p != NULL && lsom__moves_full(c))
		return -EAGAIN;
	if (p != NULL)
		return lsom__move_start(c, comp, d, d->first, d->blocks, true,
					LSOM__POS_LATER);
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
		lsom__carry_unpin(c);
	}
	return 0;
}

static void tomb_applied(struct lsom__op *op, int status)
{
	struct lsom__cleaner *c = op->req;

	c->abandon |= status < 0;
	lsom__op_free(op);
	c->moves--;
	lsom__cleaner_step_soon(c);
}

/* A deleted component is barred while data older than its end is there. */
static int tomb_step(struct lsom__cleaner *c, uint64_t key)
{
	struct lsom_disk *disk = c->disk;
	struct lsom__tomb *t = lsom__tomb_find(disk, key);
	struct lsom__op *op;

	if (t == NULL)
		return 0;
	if (c->oldest >= t->pos) {
		lsom__tomb_drop(disk, t);
		return 0;
	}
	if (lsom__moves_full(c))
		return -EAGAIN;
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

int lsom__carry_look(struct lsom__cleaner *c, const struct lsom__record *r)
{
	const struct lsom_comp *comp;

	if (r->type == LSOM__R_LOST) {
		/* What was in it is not known: it stays as it is. */
		lsom__segment_shun(c->disk, &c->disk->segments[c->victim],
				   UINT64_MAX);
		return -EINPROGRESS;
	}
	if (r->type == LSOM__R_DELETE)
		return 0;
	comp = lsom__comp_by_key(c->disk, r->component);
	/* Its blocks are counted until it is reaped. */
	return comp != NULL && comp->deleted && !comp->reaped ? -EINPROGRESS
							      : 0;
}

int lsom__carry_record(struct lsom__cleaner *c, const struct lsom__record *r)
{
	struct lsom_comp *comp = lsom__comp_by_key(c->disk, r->component);
	int rv = lsom__carry_look(c, r);

	if (rv < 0)
		return rv;
	if (r->type != LSOM__R_DATA && c->walks > 0)
		return 0; /* carried by the first walk */
	if (r->type == LSOM__R_DELETE)
		return tomb_step(c, r->component);
	if (c->ranged && c->range.comp != comp)
		lsom__carry_unpin(c); /* deleted since its pages were pinned */
	if (comp == NULL || comp->deleted)
		return 0;
	if (r->type == LSOM__R_DATA)
		return r->flags & LSOM__F_HOLE
			       ? hole_step(c, comp, (const void *)r)
			       : data_step(c, comp, (const void *)r);
	if (comp->state_pos <= c->frame.pos)
		lsom__comp_carry(comp);
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
	lsom__cleaner_step_soon(c);
}

void lsom__carry_none(struct lsom__cleaner *c)
{
	struct lsom_comp *comp;

	while ((comp = TAILQ_FIRST(&c->disk->carries)) != NULL)
		lsom__comp_carried(comp);
}

int lsom__carry_states(struct lsom__cleaner *c)
{
	uint64_t oldest = lsom__segments_oldest(c->disk, c->victim);
	struct lsom_comp *comp, *next;
	struct lsom__op *op;

	TAILQ_FOREACH_SAFE (comp, &c->disk->carries, carry_link, next) {
		if (comp->deleted || !comp->created)
			continue;
		if (!lsom__rule(c->disk, LSOM_OFF_CARRY)) {
			lsom__comp_carried(comp);
			continue;
		}
		lsom__aborts_prune(comp, oldest);
		op = lsom__state_op(comp, &comp->meta, comp->meta_sequence);
		if (op == NULL)
			return -ENOMEM;
		lsom__comp_carried(comp);
		op->req = c;
		op->apply = state_applied;
		op->extra = lsom__log_applied_pos(c->disk);
		c->moves++;
		STAILQ_INSERT_TAIL(&c->ready, op, link);
	}
	return 0;
}
