/*
 * shrink: may a component become smaller?
 *
 * Only if nothing behind the new end is mapped.  Its caller unmaps that first,
 * with an lsn, because a hole with a version is what bars older data: in a
 * replay, in an index made from the log alone, and when the component grows
 * again.  So the entries behind the end stay as they are, and the size is one
 * more field of the state.
 */
#include "lsom/lsom_int.h"

#include "base/util.h"

#include <errno.h>

#define PAGES_PER_TURN 64u

static void shrink_end(struct lsom__op *op, int status)
{
	void (*cb)(struct lsom_comp * comp, int status) = op->req;
	struct lsom_comp *comp = op->comp;

	lsom__comp_ref(comp);
	lsom__op_free(op);
	cb(comp, status);
	lsom__comp_unref(comp);
}

static bool page_mapped(const struct lsom__page *page, uint64_t from)
{
	struct lsom__entry e;
	unsigned i;

	for (i = 0; i < LSOM__PAGE_SLOTS && !page->gone; i++) {
		lsom__slots_get(&page->slots, i, &e);
		if (e.kind == LSOM__E_RAW &&
		    page->number * LSOM__PAGE_SLOTS + i >= from)
			return true;
	}
	return false;
}

/* What is prepared may be committed later. */
static bool preps_mapped(const struct lsom_comp *comp, uint64_t from)
{
	const struct lsom__prep *p;

	TAILQ_FOREACH (p, &comp->preps, link)
		if (!(p->flags & LSOM__F_HOLE) && p->first + p->blocks > from)
			return true;
	return false;
}

/* op->place: the new end; op->pos: where to go on. */
static void shrink_step(struct lsom__op *op, int status)
{
	struct lsom_comp *comp = op->comp;
	struct lsom__page *page;
	unsigned n = PAGES_PER_TURN;
	uint64_t number;

	if (status == 0 && comp->disk->state == LSOM_DISK_FAILED)
		status = -ENODEV;
	if (status == 0 && preps_mapped(comp, op->place))
		status = -EOPNOTSUPP;
	while (status == 0 && n-- > 0) {
		number = lsom__page_next(comp, op->pos);
		if (number == UINT64_MAX) {
			shrink_end(op, 0);
			return;
		}
		op->pos = number;
		status = lsom__page_want(comp, number, &page,
					 &comp->shrink_wait);
		if (status == -EAGAIN) {
			comp->shrink = op;
			comp->disk->works++;
			return;
		}
		if (status == 0 && page_mapped(page, op->place))
			status = -EOPNOTSUPP;
		op->pos++;
	}
	if (status < 0)
		shrink_end(op, status);
	else
		lsom__later(op);
}

static void shrink_wake(struct lsom__page_wait *wait, int status)
{
	struct lsom_comp *comp =
		container_of(wait, struct lsom_comp, shrink_wait);

	comp->disk->works--;
	shrink_step(comp->shrink, status);
}

int lsom__comp_shrink(struct lsom_comp *comp, uint64_t blocks,
		      void (*cb)(struct lsom_comp *comp, int status))
{
	struct lsom__op *op = lsom__op_new(comp->disk, comp, LSOM__R_STABLE,
					   sizeof(struct lsom__record));

	if (op == NULL)
		return -ENOMEM;
	comp->shrink_wait.cb = shrink_wake;
	op->req = cb;
	op->place = blocks;
	op->pos = blocks / LSOM__PAGE_SLOTS;
	op->apply = shrink_step;
	lsom__later(op);
	return 0;
}
