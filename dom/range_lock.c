/*
 * range_lock: locks on byte ranges of one object, shared or exclusive, granted
 * in order of arrival.
 *
 * A range waits for every earlier one it conflicts with, held or not, so
 * nothing starves.  A list will do, as an owner admits at most DOM_OPS_MAX
 * operations.
 */
#include "dom/dom_int.h"

#include <assert.h>

void dom__locks_init(struct dom__locks *locks)
{
	TAILQ_INIT(&locks->queue);
	locks->waiting = 0;
}

static bool conflicts(const struct dom__range *a, const struct dom__range *b)
{
	return (a->exclusive || b->exclusive) && a->start < b->end &&
	       b->start < a->end;
}

static bool grantable(const struct dom__locks *locks,
		      const struct dom__range *range)
{
	const struct dom__range *r;

	TAILQ_FOREACH (r, &locks->queue, link) {
		if (r == range)
			return true;
		if (conflicts(r, range))
			return false;
	}
	return true;
}

/*
 * Returns true: held now.  Returns false: @range->cb runs, from an unlock, when
 * it is; unlock it before that to stop waiting.
 */
bool dom__range_lock(struct dom__locks *locks, struct dom__range *range)
{
	range->held = grantable(locks, range);
	TAILQ_INSERT_TAIL(&locks->queue, range, link);
	if (!range->held)
		locks->waiting++;
	return range->held;
}

static struct dom__range *oldest_grantable(struct dom__locks *locks)
{
	struct dom__range *r;
	unsigned left = locks->waiting;

	TAILQ_FOREACH (r, &locks->queue, link) {
		if (left == 0)
			break;
		if (r->held)
			continue;
		if (grantable(locks, r))
			return r;
		left--;
	}
	return NULL;
}

/* Also for a range that waits still: it leaves the queue. */
void dom__range_unlock(struct dom__locks *locks, struct dom__range *range)
{
	struct dom__range *waiter;

	TAILQ_REMOVE(&locks->queue, range, link);
	if (!range->held) {
		assert(locks->waiting > 0);
		locks->waiting--;
	}
	range->held = false;
	/* A callback may change the list, so search afresh after each. */
	while ((waiter = oldest_grantable(locks)) != NULL) {
		waiter->held = true;
		locks->waiting--;
		waiter->cb(waiter);
	}
}
