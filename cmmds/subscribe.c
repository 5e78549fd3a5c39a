/*
 * subscribe: the directory pushed to those who act on it.
 *
 * A new subscription is primed at the end of the turn, with what is there then,
 * and hears every change from that moment on.  Nothing is applied while a
 * callback runs, as applying happens only in the shell's own turns, so entries
 * hold still; but callbacks may subscribe and unsubscribe whom they like.
 */
#include "cmmds/cmmds_int.h"

#include <assert.h>

void cmmds_subscribe(struct cmmds *cmmds, struct cmmds_subscription *sub)
{
	sub->cmmds = cmmds;
	sub->primed = false;
	TAILQ_INSERT_TAIL(&cmmds->subscriptions, sub, link);
	cmmds->unprimed = true;
	cmmds__turn_end_soon(cmmds);
}

void cmmds_unsubscribe(struct cmmds_subscription *sub)
{
	struct cmmds *cmmds = sub->cmmds;

	if (cmmds == NULL)
		return; /* the directory was closed first */
	if (cmmds->next == sub)
		cmmds->next = TAILQ_NEXT(sub, link);
	if (cmmds->priming == sub)
		cmmds->priming = NULL;
	TAILQ_REMOVE(&cmmds->subscriptions, sub, link);
	sub->cmmds = NULL;
}

static void prime_one(struct cmmds *cmmds, struct cmmds_subscription *sub)
{
	struct cmmds_change change = { .kind = sub->kind };
	const struct state_entry *e =
		state__above(&cmmds->state, sub->kind, NULL, 0);

	sub->primed = true;
	cmmds->priming = sub;
	for (; e != NULL && cmmds->priming == sub; e = state__next(e)) {
		change.new_entry = &e->pub;
		sub->cb(sub, &change);
	}
	cmmds->priming = NULL;
}

void subscribe__prime(struct cmmds *cmmds)
{
	struct cmmds_subscription *sub;

	while (cmmds->unprimed) {
		TAILQ_FOREACH (sub, &cmmds->subscriptions, link)
			if (!sub->primed)
				break;
		if (sub != NULL)
			prime_one(cmmds, sub);
		else
			cmmds->unprimed = false;
	}
}

void subscribe__deliver(struct cmmds *cmmds, const struct cmmds_change *change)
{
	struct cmmds_subscription *sub = TAILQ_FIRST(&cmmds->subscriptions);

	for (; sub != NULL; sub = cmmds->next) {
		cmmds->next = TAILQ_NEXT(sub, link);
		if (sub->primed && sub->kind == change->kind)
			sub->cb(sub, change);
	}
	cmmds->next = NULL;
	mirror__tell(cmmds, change);
}

static int entry_order(const struct state_entry *a, const struct state_entry *b)
{
	int c;

	if (a == NULL || b == NULL)
		return a == NULL ? 1 : -1;
	c = memcmp(a->pub.key, b->pub.key, MIN(a->pub.key_len, b->pub.key_len));
	if (c != 0)
		return c;
	return a->pub.key_len < b->pub.key_len
		       ? -1
		       : a->pub.key_len > b->pub.key_len;
}

static void replaced_kind(struct cmmds *cmmds, const struct cmmds_state *old,
			  enum cmmds_kind kind)
{
	const struct state_entry *a = state__above(old, kind, NULL, 0);
	const struct state_entry *b =
		state__above(&cmmds->state, kind, NULL, 0);

	while (a != NULL || b != NULL) {
		struct cmmds_change change = { .kind = kind };
		int order = entry_order(a, b);

		if (order <= 0) {
			assert(a != NULL); /* the one that is, comes first */
			change.old_entry = &a->pub;
			a = state__next(a);
		}
		if (order >= 0) {
			assert(b != NULL);
			change.new_entry = &b->pub;
			b = state__next(b);
		}
		if (order != 0 ||
		    change.old_entry->revision != change.new_entry->revision)
			subscribe__deliver(cmmds, &change);
	}
}

void subscribe__replaced(struct cmmds *cmmds, const struct cmmds_state *old)
{
	for (int kind = 1; kind < CMMDS_KINDS; kind++)
		replaced_kind(cmmds, old, kind);
}

void subscribe__fini(struct cmmds *cmmds)
{
	struct cmmds_subscription *sub;

	while ((sub = TAILQ_FIRST(&cmmds->subscriptions)) != NULL)
		cmmds_unsubscribe(sub);
}
