/*
 * count: how many blocks of a component are mapped.
 *
 * The count follows each change of the index.  A checkpoint stores it: exact, or
 * where pages were overlays (index.c) as the least it can be, for what they had
 * replaced was not known.  An index of an earlier version has no count.  So what
 * is not exact is counted when somebody is promised space by it, or asked for it:
 * one component of a disk at a time, page by page behind everything else.
 *
 * What changes meanwhile is seen once: a page behind the count's position is
 * counted as it changes, one before it when the count comes there.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/view_int.h"

#include "base/log.h"
#include "base/util.h"

#include <errno.h>

#define PAGES_PER_TURN 64u

void lsom__comp_mapped(struct lsom_comp *comp, uint64_t number, int n)
{
	if (comp->disk->counting == comp && number < comp->count_next)
		comp->count_sum += n;
	lsom__comp_dirty(comp);
	/* There was more than the least: what is used is not below zero. */
	if (comp->counted == LSOM__COUNT_LEAST)
		n = (int)MAX((int64_t)n, -comp->mapped);
	comp->mapped += n;
	lsom__comp_used(comp, n);
}

void lsom__comp_unsure(struct lsom_comp *comp)
{
	if (comp->counted == LSOM__COUNT_EXACT)
		comp->counted = LSOM__COUNT_LEAST;
	if (comp->disk->counting == comp)
		comp->count_next = comp->count_sum = 0; /* anew */
	lsom__count_look(comp);
	lsom__comp_mapped(comp, 0, -1);
}

uint64_t lsom__count_stored(const struct lsom_comp *comp, bool *exact)
{
	int64_t n = comp->mapped - (int64_t)comp->unknown;

	*exact = comp->counted == LSOM__COUNT_EXACT && comp->unknown == 0;
	return comp->counted == LSOM__COUNT_NONE ? 0
						 : (uint64_t)MAX(n, (int64_t)0);
}

void lsom__count_load(struct lsom_comp *comp, enum lsom__count counted,
		      uint64_t mapped)
{
	/* Not more than that: what is used must not come out below zero. */
	if (counted == LSOM__COUNT_NONE)
		mapped = comp->meta.size_bytes / LSOM_BLOCK;
	comp->counted = counted;
	comp->mapped = (int64_t)mapped;
	lsom__comp_used(comp, (int64_t)mapped);
}

static void count_end(struct lsom__op *op, int status)
{
	struct lsom_comp *comp = op->comp;
	struct lsom_disk *disk = comp->disk;
	int64_t diff = comp->count_sum - comp->mapped;

	disk->counting = NULL;
	if (status == 0) {
		comp->mapped += diff;
		lsom__comp_used(comp, diff);
		comp->counted = LSOM__COUNT_EXACT;
		lsom__comp_dirty(comp);
		lsom__promise_set(comp);
	}
	lsom__op_free(op);
	if (status == 0 || status == -ENOENT)
		lsom__count_kick(disk);
	else
		lsom__checkpoint_arm(disk); /* whose end tries again */
}

static int page_count(const struct lsom__page *page)
{
	struct lsom__entry e;
	unsigned i;
	int n = 0;

	for (i = 0; i < LSOM__PAGE_SLOTS && !page->gone; i++) {
		lsom__slots_get(&page->slots, i, &e);
		n += e.kind == LSOM__E_RAW;
	}
	return n;
}

static void count_step(struct lsom__op *op, int status)
{
	struct lsom_comp *comp = op->comp;
	struct lsom__page *page;
	unsigned n = PAGES_PER_TURN;

	if (status == 0)
		status = comp->deleted ? -ENOENT : lsom__state_of(comp->disk);
	while (status == 0 && n-- > 0) {
		comp->count_next = lsom__page_next(comp, comp->count_next);
		if (comp->count_next == UINT64_MAX) {
			count_end(op, 0);
			return;
		}
		status = lsom__page_want(comp, comp->count_next, &page,
					 &comp->count_wait);
		if (status == -EAGAIN) {
			comp->count_op = op;
			comp->disk->works++;
			return;
		}
		if (status < 0)
			break;
		comp->count_sum += page_count(page);
		comp->count_next++;
	}
	if (status < 0)
		count_end(op, status);
	else
		lsom__later(op);
}

static void count_wake(struct lsom__page_wait *wait, int status)
{
	struct lsom_comp *comp =
		container_of(wait, struct lsom_comp, count_wait);

	comp->disk->works--;
	count_step(comp->count_op, status);
}

static bool count_wanted(const struct lsom_comp *comp)
{
	return (comp->reserved > 0 || comp->count_asked) && comp->linked &&
	       !comp->deleted && comp->counted != LSOM__COUNT_EXACT;
}

void lsom__count_look(struct lsom_comp *comp)
{
	if (comp->count_due || !count_wanted(comp))
		return;
	comp->count_due = true;
	TAILQ_INSERT_TAIL(&comp->disk->counts, comp, count_link);
}

void lsom__count_leave(struct lsom_comp *comp)
{
	if (!comp->count_due)
		return;
	comp->count_due = false;
	TAILQ_REMOVE(&comp->disk->counts, comp, count_link);
}

/* Those that need not be counted any more leave the list here only. */
void lsom__count_kick(struct lsom_disk *disk)
{
	struct lsom_comp *comp;
	struct lsom__op *op;

	if (disk->counting != NULL || lsom__state_of(disk) < 0)
		return;
	while ((comp = TAILQ_FIRST(&disk->counts)) != NULL &&
	       !count_wanted(comp))
		lsom__count_leave(comp);
	if (comp == NULL)
		return;
	op = lsom__op_new(disk, comp, LSOM__R_STABLE,
			  sizeof(struct lsom__record));
	if (op == NULL) {
		lsom__checkpoint_arm(disk);
		return;
	}
	disk->counting = comp;
	comp->count_next = 0;
	comp->count_sum = 0;
	comp->count_wait.cb = count_wake;
	op->apply = count_step;
	lsom__later(op);
}
