/*
 * write: PREP, RPREP, RCOPY and REPAIR, COMMIT and ABORT of a component.
 *
 * A request is checked, becomes a record of the log, and is applied when that
 * is durable: a prepared version goes into the table of undecided ones, a copy
 * straight into the index.  A guest's write needs space that is free for
 * guests; everything else draws on the disk's reserve.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/view_int.h"

#include "base/crc.h"
#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

/* ---- when it is durable ---- */

static int prep_arrived(struct lsom__op *op, const struct lsom__data_record *d,
			struct lsom__prep *prep)
{
	struct lsom_comp *comp = op->comp;

	if (lsom__rule(comp->disk, LSOM_OFF_BARRED) &&
	    lsom__abort_meets(comp, d->r.lsn, d->r.member_csn)) {
		lsom__prep_free(prep); /* but it lies in the log */
		return -ESTALE;
	}
	if (lsom__rule(comp->disk, LSOM_OFF_DEDUPE) &&
	    lsom__prep_same(comp, d->r.lsn, d->first, d->blocks) != NULL) {
		lsom__prep_free(prep); /* a repeat: the first one counts */
		return 0;
	}
	prep->place = op->place;
	prep->pos = op->pos;
	lsom__prep_insert(comp, prep);
	if (lsom__committed(comp, d->r.lsn) ||
	    !lsom__rule(comp->disk, LSOM_OFF_UNDECIDED))
		lsom__prep_commit(comp, prep);
	return 0;
}

static int write_arrived(struct lsom__op *op)
{
	const struct lsom__data_record *d = (void *)op->record;
	struct lsom__prep *prep = (void *)(uintptr_t)op->extra;
	struct lsom_comp *comp = op->comp;

	if (comp->deleted) {
		lsom__prep_free(prep);
		return -ENOENT;
	}
	comp->meta.max_lsn = MAX(comp->meta.max_lsn, d->r.lsn);
	lsom__comp_dirty(comp);
	if (prep != NULL)
		return prep_arrived(op, d, prep);
	lsom__range_apply(comp, d->first, d->blocks, op->place,
			  lsom__record_crcs(d), d->r.flags & LSOM__F_HOLE,
			  d->r.member_csn, d->r.lsn,
			  d->r.flags & LSOM__F_REPAIR ? LSOM__APPLY_REPAIR
						      : LSOM__APPLY_NEWER,
			  0);
	comp->meta.max_committed = MAX(comp->meta.max_committed, d->r.lsn);
	return 0;
}

/* Whole pages of the index that @d empties. */
static size_t hole_pages(const struct lsom__data_record *d)
{
	return d->r.flags & LSOM__F_HOLE ? d->blocks / LSOM__PAGE_SLOTS : 0;
}

static void write_apply(struct lsom__op *op, int status)
{
	struct lsom_write *req = op->req;
	struct lsom__range *range = req->impl;
	struct lsom_disk *disk = op->disk;
	size_t holes = hole_pages((void *)op->record);

	assert(disk->holes_queued >= holes);
	disk->holes_queued -= holes;
	lsom__transit_begin(disk);
	if (status == 0)
		status = write_arrived(op);
	else
		lsom__prep_free((void *)(uintptr_t)op->extra);
	lsom__credits_drop(op->comp, op->blocks); /* live blocks now */
	lsom__transit_end(disk);
	if (range != NULL) {
		lsom__range_unpin(range);
		free(range);
	}
	lsom__op_free(op);
	req->cb(req, status);
}

static void answer(struct lsom__op *op, int status)
{
	struct lsom_write *req = op->req;

	lsom__op_free(op);
	req->cb(req, status);
}

/* ---- when it comes ---- */

static int write_check(const struct lsom_comp *comp,
		       const struct lsom_write *req)
{
	bool hole = req->flags & LSOM_W_HOLE;
	bool checked = req->flags & LSOM_W_CHECKED;
	uint64_t blocks = req->len / LSOM_BLOCK;
	const struct sgl_piece *piece, *end;
	const uint32_t *crc = req->crcs;

	if (req->offset % LSOM_BLOCK || req->len % LSOM_BLOCK ||
	    req->len == 0 || req->kind > LSOM_REPAIR || req->lsn == 0 ||
	    (req->flags & ~(LSOM_W_HOLE | LSOM_W_ATOMIC | LSOM_W_CHECKED)) ||
	    (hole && checked) ||
	    req->participants_count > LSOM_PARTICIPANTS_MAX)
		return -EINVAL;
	if (req->len > comp->meta.size_bytes ||
	    req->offset > comp->meta.size_bytes - req->len)
		return -ERANGE;
	if (hole)
		return req->sgl == NULL && req->kind != LSOM_REPAIR ? 0
								    : -EINVAL;
	if (req->sgl == NULL || req->crcs == NULL ||
	    req->sgl->len_bytes != req->len)
		return -EINVAL;
	if (req->len > LSOM_WRITE_MAX || blocks > comp->disk->record_blocks_max)
		return -EMSGSIZE;
	if (req->sgl->pieces_count != blocks)
		return -EINVAL;
	piece = req->sgl->pieces;
	for (end = piece + blocks; piece < end; piece++, crc++) {
		if (piece->offset != 0 || piece->len != LSOM_BLOCK)
			return -EINVAL;
		if (!checked && crc32c(piece->page->data, LSOM_BLOCK) != *crc)
			return -EBADMSG;
	}
	return 0;
}

/* Is it there, and not about to be voided by an ATTACH? */
static bool prep_held(const struct lsom_comp *comp,
		      const struct lsom_write *req)
{
	const struct lsom__prep *p =
		lsom__prep_same(comp, req->lsn, req->offset / LSOM_BLOCK,
				req->len / LSOM_BLOCK);

	return p != NULL && p->member_csn >= comp->session;
}

/* What is known already answers a PREP: 1, or go on: 0, or -errno. */
static int prep_check(struct lsom_comp *comp, const struct lsom_write *req)
{
	bool dedupe = lsom__rule(comp->disk, LSOM_OFF_DEDUPE);
	bool barred = lsom__rule(comp->disk, LSOM_OFF_BARRED);

	/* It would be logged behind the ATTACH, which voids what is before it. */
	if (req->member_csn < comp->session)
		return -ESTALE;
	if (dedupe && prep_held(comp, req))
		return 1; /* R26 */
	if (barred && lsom__aborted(comp, req->lsn, req->member_csn))
		return -ESTALE;
	if (req->kind != LSOM_PREP)
		return 0;
	if (barred && req->lsn <= comp->decided.stable_lsn)
		return -ESTALE; /* R41 */
	if (!dedupe || !barred)
		return 0;
	return lsom__decided(&comp->decided, req->lsn) ? 1 : 0;
}

static struct lsom__op *write_record(struct lsom_comp *comp,
				     const struct lsom_write *req)
{
	uint64_t blocks = req->len / LSOM_BLOCK;
	unsigned parts = lsom__rule(comp->disk, LSOM_OFF_PARTS)
				 ? req->participants_count
				 : 0;
	struct lsom__data_record *d;
	struct lsom__op *op;
	uint16_t flags = 0;

	if (req->flags & LSOM_W_HOLE)
		flags |= LSOM__F_HOLE;
	if (req->flags & LSOM_W_ATOMIC)
		flags |= LSOM__F_ATOMIC;
	if (req->kind == LSOM_RCOPY || req->kind == LSOM_REPAIR)
		flags |= LSOM__F_COMMITTED;
	if (req->kind == LSOM_REPAIR)
		flags |= LSOM__F_REPAIR;
	op = lsom__op_new(comp->disk, comp, LSOM__R_DATA,
			  lsom__data_record_len(flags, blocks, parts));
	if (op == NULL)
		return NULL;
	d = (void *)op->record;
	d->r.flags = flags;
	d->r.lsn = req->lsn;
	d->r.member_csn = req->member_csn;
	d->first = req->offset / LSOM_BLOCK;
	d->blocks = blocks;
	d->parts = (uint16_t)parts;
	if (!(flags & LSOM__F_HOLE))
		memcpy(d + 1, req->crcs, blocks * sizeof(*req->crcs));
	if (parts > 0)
		memcpy((void *)(uintptr_t)lsom__record_parts(d),
		       req->participants, parts * sizeof(struct uuid));
	if (!(flags & LSOM__F_COMMITTED)) {
		op->extra = (uintptr_t)lsom__prep_new(d, 0, 0);
		if (op->extra == 0) {
			lsom__op_free(op);
			return NULL;
		}
	}
	if (req->sgl != NULL) {
		op->sgl = sgl_get(req->sgl);
		op->blocks = (uint32_t)blocks;
	}
	return op;
}

/*
 * A repair looks at the entry it replaces, so its page comes first.  Also one that
 * is not there yet: made meanwhile, it may have gone to the store again.
 */
struct repair {
	struct lsom__range range;
	struct lsom__op *op;
};

static void repair_ready(struct lsom__range *range, int status)
{
	struct lsom__op *op = container_of(range, struct repair, range)->op;
	struct lsom_disk *disk = op->disk;

	disk->works--;
	if (status < 0) {
		op->apply(op, status);
		return;
	}
	lsom__log_append(disk, LSOM__HEAD_GUEST, op);
}

static int repair_start(struct lsom_write *req, struct lsom__op *op)
{
	struct repair *r = calloc(1, sizeof(*r));
	int rv;

	if (r == NULL)
		return -ENOMEM;
	r->op = op;
	r->range.comp = op->comp;
	r->range.first = r->range.next = req->offset / LSOM_BLOCK;
	r->range.blocks = req->len / LSOM_BLOCK;
	r->range.make = true;
	r->range.cb = repair_ready;
	req->impl = &r->range;
	op->disk->works++;
	rv = lsom__range_load(&r->range);
	if (rv == 0)
		repair_ready(&r->range, 0);
	if (rv == 0 || rv == -EAGAIN)
		return 0;
	op->disk->works--;
	lsom__range_unpin(&r->range);
	free(r);
	return rv;
}

/* Credit for @blocks that it did not bring: what is no guest's gets it always. */
static int credit_more(struct lsom_comp *comp, const struct lsom_write *req,
		       uint64_t blocks)
{
	if (blocks == 0)
		return 0;
	if (req->kind == LSOM_PREP)
		return lsom__space_take(comp, blocks);
	lsom__credits_add(comp, blocks);
	return 0;
}

/*
 * An UNMAP is a few bytes of log, and empties pages of the index by the thousand,
 * each of which is read, kept and written: a guest's large one waits until those
 * of the ones before it are on their way to the store.  What the store itself waits
 * for may take long; then memory has to hold them.  By what is undecided nobody is
 * held up: it may be decided by the one that waits.
 */
static bool holes_wait(struct lsom_disk *disk, const struct lsom_write *req)
{
	size_t most = MAX(disk->lsom->pages_max / 4, LSOM__HOLES_PAGES);

	if (req->kind != LSOM_PREP || !(req->flags & LSOM_W_HOLE) ||
	    req->len / LSOM_BLOCK < LSOM__PAGE_SLOTS || disk->kv == NULL ||
	    disk->index_wants != 0 || disk->checkpoint_starved ||
	    disk->holes_dirty + disk->holes_queued < most)
		return false;
	if (disk->holes_dirty > 0 && disk->checkpoint == NULL)
		lsom__checkpoint_start(disk);
	return true;
}

int lsom_write(struct lsom_comp *comp, struct lsom_write *req, lsom_write_cb cb)
{
	struct lsom_disk *disk = comp->disk;
	uint64_t need = req->flags & LSOM_W_HOLE ? 0 : req->len / LSOM_BLOCK;
	uint64_t brought = MIN(MIN(req->credits, comp->credits), need);
	struct lsom__op *op;
	int rv = lsom__state_of(disk);

	if (rv == 0 && comp->deleted)
		rv = -ENOENT;
	if (rv == 0 && comp->far != NULL)
		return lsom__view_write(comp, req, cb);
	if (rv == 0)
		rv = write_check(comp, req);
	if (rv < 0)
		return rv;
	if (lsom__log_busy(disk, (unsigned)need) ||
	    comp->preps_count >= LSOM__PREPS_MAX || holes_wait(disk, req))
		return -EBUSY;
	if (req->decided != NULL)
		lsom__decided_take(comp, req->decided);
	rv = 0;
	if (req->kind == LSOM_PREP || req->kind == LSOM_RPREP)
		rv = prep_check(comp, req);
	if (rv == 0)
		rv = credit_more(comp, req, need - brought);
	if (rv == -EBUSY)
		return rv;
	op = write_record(comp, req);
	if (op == NULL) {
		if (rv == 0)
			lsom__credits_drop(comp, need - brought);
		return -ENOMEM;
	}

	req->comp = comp;
	req->cb = cb;
	req->impl = NULL;
	op->req = req;
	/* Credit becomes blocks on their way, and those live blocks. */
	comp->credits -= brought;
	if (rv != 0) {
		lsom__credits_drop(comp, brought);
		lsom__prep_free((void *)(uintptr_t)op->extra);
		op->apply = answer;
		op->status = MIN(rv, 0);
		lsom__later(op);
		return 0;
	}
	op->apply = write_apply;
	assert(op->blocks == need);
	if (req->kind == LSOM_REPAIR) {
		rv = repair_start(req, op);
		if (rv < 0) {
			lsom__credits_drop(comp, op->blocks);
			lsom__op_free(op);
		}
		return rv;
	}
	disk->holes_queued += hole_pages((void *)op->record);
	lsom__log_append(disk, LSOM__HEAD_GUEST, op);
	return 0;
}

/* ---- COMMIT and ABORT ---- */

static int commit_arrived(struct lsom_comp *comp, uint64_t lsn)
{
	struct lsom__prep *p;
	int rv = lsom__committed_add(comp, lsn);

	while (rv == 0 && (p = lsom__prep_find(comp, lsn)) != NULL)
		lsom__prep_commit(comp, p);
	return rv;
}

static int abort_arrived(struct lsom_comp *comp, uint64_t lsn)
{
	struct lsom__prep *p;
	int rv = lsom__abort_add(comp, lsn, comp->meta.member_csn);

	while (rv == 0 && (p = lsom__prep_find(comp, lsn)) != NULL) {
		rv = lsom__abort_add(comp, lsn, p->member_csn);
		if (rv == 0)
			lsom__prep_drop(comp, p);
	}
	return rv;
}

static int decision_arrived(struct lsom_comp *comp,
			    const struct lsom__record *r)
{
	int rv;

	do
		rv = r->type == LSOM__R_COMMIT ? commit_arrived(comp, r->lsn)
					       : abort_arrived(comp, r->lsn);
	while (rv == -ENOMEM && lsom__page_shed(comp->disk));
	return rv;
}

static void decide_apply(struct lsom__op *op, int status)
{
	const struct lsom__record *r = (void *)op->record;
	struct lsom_decide *req = op->req;
	struct lsom_comp *comp = op->comp;

	if (status == 0 && comp->deleted)
		status = -ENOENT;
	if (status == 0)
		status = decision_arrived(comp, r);
	if (status == -ENOMEM) /* durable, and not followed */
		lsom__disk_fail(comp->disk, "out of memory", status);
	lsom__op_free(op);
	req->cb(req, status);
}

static void decide_answer(struct lsom__op *op, int status)
{
	struct lsom_decide *req = op->req;

	lsom__op_free(op);
	req->cb(req, status);
}

/* 1: it is so already.  0: to be recorded. */
static int decide_check(struct lsom_comp *comp, const struct lsom_decide *req)
{
	bool aborted = lsom__aborted(comp, req->lsn, comp->meta.member_csn) ||
		       lsom__aborted(comp, req->lsn, 0);
	bool committed = !aborted && lsom__committed(comp, req->lsn);

	if (req->lsn == 0)
		return -EINVAL;
	if (req->commit) {
		if (aborted && lsom__prep_find(comp, req->lsn) == NULL)
			return -EINVAL;
		return committed ? 1 : 0;
	}
	if (committed)
		return -EINVAL;
	if (aborted && lsom__prep_find(comp, req->lsn) == NULL)
		return 1;
	return comp->aborts_count >= LSOM__ABORTS_MAX / 2 ? -EBUSY : 0;
}

int lsom_decide(struct lsom_comp *comp, struct lsom_decide *req,
		lsom_decide_cb cb)
{
	struct lsom_disk *disk = comp->disk;
	struct lsom__op *op;
	int rv = lsom__state_of(disk);

	if (rv < 0)
		return rv;
	if (comp->deleted)
		return -ENOENT;
	if (comp->far != NULL)
		return lsom__view_decide(comp, req, cb);
	if (lsom__log_busy(disk, 0))
		return -EBUSY;
	rv = decide_check(comp, req);
	if (rv == -EBUSY) {
		lsom__aborts_full(comp);
		return rv;
	}
	op = lsom__op_new(disk, comp,
			  req->commit ? LSOM__R_COMMIT : LSOM__R_ABORT,
			  sizeof(struct lsom__record));
	if (op == NULL)
		return -ENOMEM;
	((struct lsom__record *)(void *)op->record)->lsn = req->lsn;
	((struct lsom__record *)(void *)op->record)->member_csn =
		comp->meta.member_csn;
	req->comp = comp;
	req->cb = cb;
	op->req = req;
	op->apply = rv == 0 ? decide_apply : decide_answer;
	op->status = MIN(rv, 0);
	if (rv == 0)
		lsom__log_append(disk, LSOM__HEAD_GUEST, op);
	else
		lsom__later(op);
	return 0;
}

int lsom_decided(struct lsom_comp *comp, const struct lsom_decided *decided)
{
	if (comp->deleted)
		return 0;
	if (comp->far != NULL)
		return lsom__view_decided(comp, decided);
	lsom__decided_take(comp, decided);
	return 0;
}

void lsom_undecided_each(struct lsom_comp *comp,
			 void (*cb)(const struct lsom_undecided *u, void *arg),
			 void *arg)
{
	struct lsom__prep *p, *next;
	struct lsom_undecided u;
	const struct lsom__list *list = comp->far ? comp->far->list : NULL;

	for (unsigned i = 0; list != NULL && i < list->count; i++)
		cb(&list->items[i], arg);
	TAILQ_FOREACH_SAFE (p, &comp->preps, link, next) {
		u = (struct lsom_undecided){
			.lsn = p->lsn,
			.member_csn = p->member_csn,
			.offset = p->first * LSOM_BLOCK,
			.len = p->blocks * LSOM_BLOCK,
			.flags =
				(p->flags & LSOM__F_HOLE ? LSOM_W_HOLE : 0) |
				(p->flags & LSOM__F_ATOMIC ? LSOM_W_ATOMIC : 0),
			.crcs = p->crcs,
			.participants = p->parts,
			.participants_count = p->parts_count,
		};
		cb(&u, arg);
	}
}
