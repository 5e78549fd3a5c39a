/*
 * owner_io: how the owner reads, and the way in and out of an operation.
 *
 * A read: fetch whole blocks from the components under a shared lock, check the
 * session, hand out the slice that was asked for (g5).  Commands that change
 * bytes fetch what they need first and go on in owner_write.c.
 *
 * lsom answers "busy": the part waits and is sent again.
 */
#include "dom/dom_int.h"

#include "base/err.h"

#include <assert.h>
#include <stdlib.h>

#define RETRY_NS (1 * MSEC)

static void fetch_part_submit(struct dom__part *part);

/* ---- waiting for lsom ---- */

static void retry_fired(struct env_timer *timer)
{
	struct dom__owner *owner =
		container_of(timer, struct dom__owner, retry_timer);

	owner->retry_armed = false;
	dom__retries_run(owner);
	dom__window_kick(owner);
}

void dom__part_retry(struct dom__part *part)
{
	struct dom__owner *owner = part->op->owner;

	part->retrying = true;
	TAILQ_INSERT_TAIL(&owner->retries, part, link);
	dom__retry_later(owner);
}

void dom__retry_later(struct dom__owner *owner)
{
	if (!owner->retry_armed) {
		owner->retry_armed = true;
		owner->retry_timer.cb = retry_fired;
		env_timer_start(owner->dom->env, &owner->retry_timer, RETRY_NS);
	}
}

void dom__retries_run(struct dom__owner *owner)
{
	struct dom__part *part, *last = TAILQ_LAST(&owner->retries, dom__parts);

	/* What is refused again goes behind @last and waits for the timer. */
	while (last != NULL && (part = TAILQ_FIRST(&owner->retries)) != NULL) {
		bool end = part == last;

		TAILQ_REMOVE(&owner->retries, part, link);
		part->retrying = false;
		if (part->op->kind == DOM__MAP)
			dom__map_step(part->op);
		else if (part->fetch != NULL)
			fetch_part_submit(part);
		else if (part->undo)
			dom__part_undo(part);
		else
			dom__part_submit(part);
		if (end)
			break;
	}
}

bool dom__op_expired(const struct dom__op *op)
{
	return op->deadline_ns <= env_now(op->owner->dom->env);
}

/* ---- fetching ---- */

static void op_fetched(struct dom__op *op);

/* Where in the object byte @offset of the component of @part lies. */
static uint64_t object_offset(const struct dom__fetch *f,
			      const struct dom__part *part, uint64_t offset)
{
	uint64_t at = f->offset;
	unsigned index = (unsigned)(part - f->plan.parts);

	for (unsigned i = 0; i < f->plan.frags_count; i++) {
		const struct dom__frag *frag = &f->plan.frags[i];
		uint64_t start = part->offset + frag->offset;

		if (frag->part == index && offset >= start &&
		    offset - start < frag->len)
			return at + (offset - start);
		at += frag->len;
	}
	return f->offset;
}

/* Put the parts together in the object's order. */
static int fetch_join(struct dom__fetch *f)
{
	struct page_cache *pages = f->op->owner->dom->env->pages;
	struct sgl *few[32], **slices = few;
	unsigned n = f->plan.frags_count, made = 0;
	int rv = 0;

	if (n == 1) {
		f->sgl = sgl_get(f->plan.parts[0].sgl);
		return 0;
	}
	if (n > ARRAY_LEN(few)) {
		slices = malloc(n * sizeof(*slices));
		if (slices == NULL)
			return -ENOMEM;
	}
	for (; made < n; made++) {
		const struct dom__frag *frag = &f->plan.frags[made];

		slices[made] = sgl_slice(f->plan.parts[frag->part].sgl,
					 frag->offset, frag->len);
		if (slices[made] == NULL)
			break;
	}
	if (made == n)
		f->sgl = sgl_join(pages, slices, n);
	if (f->sgl == NULL)
		rv = -ENOMEM;
	while (made-- > 0)
		sgl_put(slices[made]);
	if (slices != few)
		free(slices);
	return rv;
}

static void fetch_part_end(struct dom__part *part, int status)
{
	struct dom__fetch *f = part->fetch;
	struct dom__op *op = part->op;

	if (status == 0) {
		part->sgl = part->read.read.sgl;
	} else if (f->status == 0 || f->status == -EBADMSG) {
		/* What the device failed outright comes before a bad CRC. */
		uint64_t bad =
			status == -EBADMSG
				? object_offset(f, part,
						part->read.read.bad_offset)
				: 0;

		if (f->status == 0 || status != -EBADMSG || bad < f->bad_offset)
			f->bad_offset = bad;
		f->status = status;
	}
	if (--f->left > 0)
		return;
	if (f->status == 0)
		f->status = fetch_join(f);
	if (--op->fetches_left == 0)
		op_fetched(op);
}

static void fetch_part_done(struct dom__cm_read *req, int status)
{
	struct dom__part *part = container_of(req, struct dom__part, read);

	if (status == -EBUSY) /* behind a load of the index */
		dom__part_retry(part);
	else
		fetch_part_end(part, status);
}

static void fetch_part_submit(struct dom__part *part)
{
	struct dom__op *op = part->op;
	struct dom__owner *owner = op->owner;
	struct dom__peer *peer = &owner->peers[part->leaf];
	struct dom__group *group = &owner->groups[part->leaf];
	int rv;

	if (dom__op_expired(op) && op->io == NULL) {
		fetch_part_end(part, -ETIMEDOUT);
		return;
	}
	part->read.read = (struct lsom_read){
		.offset = part->offset,
		.len = part->len,
		.class = op->kind == DOM__READ ? PAGE_FRONT : PAGE_RMW,
		/* So that no read overtakes a lazy COMMIT (R36). */
		.decided = dom__rule(owner->dom, 36) ? &group->decided : NULL,
	};
	rv = dom__cm_read(peer->cm, &peer->fence, &part->read, fetch_part_done);
	if (rv == -EBUSY)
		dom__part_retry(part);
	else if (rv < 0)
		fetch_part_end(part, rv);
	else if (dom__rule(owner->dom, 36))
		group->dirty = false;
}

static int fetch_prepare(struct dom__op *op, unsigned i, uint64_t offset,
			 uint64_t len)
{
	struct dom__fetch *f = &op->fetch[i];
	int rv;

	f->op = op;
	f->offset = offset;
	f->len = len;
	rv = dom__plan_make(&f->plan, op->owner->tree, offset, len);
	if (rv < 0)
		return rv;
	f->used = true;
	f->left = f->plan.parts_count;
	op->fetches_left++;
	return 0;
}

static void fetch_go(struct dom__fetch *f)
{
	unsigned n = f->plan.parts_count;

	for (unsigned i = 0; i < n; i++) {
		struct dom__part *part = &f->plan.parts[i];

		part->op = f->op;
		part->fetch = f;
		fetch_part_submit(part);
	}
}

/* Fetch what @op must read first; op_fetched() or dom__op_merge() follows. */
static void op_fetch(struct dom__op *op)
{
	uint64_t start = ROUND_DOWN(op->offset, (uint64_t)DOM_BLOCK);
	uint64_t end = ROUND_UP(op->offset + op->len, (uint64_t)DOM_BLOCK);
	uint64_t edges[2];
	unsigned n;
	int rv = 0;

	if (op->kind == DOM__READ || op->kind == DOM__COMPARE ||
	    op->kind == DOM__OR) {
		rv = fetch_prepare(op, 0, start, end - start);
	} else {
		n = dom__merge_edges(op, edges);
		for (unsigned i = 0; i < n && rv == 0; i++)
			rv = fetch_prepare(op, i, edges[i], DOM_BLOCK);
		if (n == 0) {
			dom__op_merge(op);
			return;
		}
	}
	if (rv < 0) {
		dom__op_finish(op, rv);
		return;
	}
	/* A part may end at once: hold the last count until all are sent. */
	op->fetches_left++;
	for (unsigned i = 0; i < 2; i++) {
		if (op->fetch[i].used)
			fetch_go(&op->fetch[i]);
	}
	if (--op->fetches_left == 0)
		op_fetched(op);
}

bool dom__session_valid(struct dom__op *op)
{
	if (cmmds_session_valid(op->owner->dom->cmmds) ||
	    !dom__rule(op->owner->dom, 18))
		return true;
	dom__owner_lost(op->owner);
	return false;
}

static void read_end(struct dom__op *op)
{
	struct dom__fetch *f = &op->fetch[0];

	/* With the data in hand: a deposed owner must not answer (R18). */
	if (!dom__session_valid(op)) {
		dom__op_finish(op, -ENXIO);
		return;
	}
	if (f->len == op->len)
		op->out = sgl_get(f->sgl);
	else
		op->out = sgl_slice(f->sgl, op->offset - f->offset, op->len);
	dom__op_finish(op, op->out == NULL ? -ENOMEM : 0);
}

/* True if the old bytes are what COMPARE AND WRITE expects; else it ended. */
static bool compare_passes(struct dom__op *op)
{
	struct dom__fetch *f = &op->fetch[0];
	struct sgl *old = sgl_slice(f->sgl, op->offset - f->offset, op->len);
	int64_t at;
	bool mine;

	if (old == NULL) {
		dom__op_finish(op, -ENOMEM);
		return false;
	}
	at = sgl_compare(old, op->compare);
	/*
	 * In another epoch already, and takeover rolled what it had prepared
	 * forward: nobody else has written here since (op_again()).
	 */
	mine = at >= 0 && op->prepared && sgl_compare(old, op->sgl) < 0;
	sgl_put(old);
	if (at < 0)
		return true;
	if (!dom__session_valid(op)) {
		dom__op_finish(op, -ENXIO);
		return false;
	}
	if (mine) {
		dom__op_finish(op, 0);
		return false;
	}
	if (op->io != NULL)
		op->io->miscompare = (uint64_t)at;
	dom__op_finish(op, -EILSEQ);
	return false;
}

static void op_fetched(struct dom__op *op)
{
	for (unsigned i = 0; i < 2; i++) {
		struct dom__fetch *f = &op->fetch[i];

		if (!f->used || f->status == 0)
			continue;
		if (op->io != NULL && f->status == -EBADMSG)
			op->io->bad_offset = f->bad_offset;
		dom__op_finish(op, f->status);
		return;
	}
	if (op->kind == DOM__READ) {
		read_end(op);
		return;
	}
	if (op->kind == DOM__COMPARE && !compare_passes(op))
		return;
	dom__op_merge(op);
}

/* ---- the way in and out ---- */

/* The range is locked and the reservation lets it pass. */
void dom__op_run(struct dom__op *op)
{
	if (op->kind == DOM__MAP) {
		dom__map_start(op);
		return;
	}
	op_fetch(op);
}

static void plan_drop(struct dom__plan *plan)
{
	for (unsigned i = 0; i < plan->parts_count; i++)
		sgl_put(plan->parts[i].sgl);
	if (plan->parts != NULL)
		dom__plan_fini(plan);
}

/* Drop all that running gathered; nothing of it is in flight. */
void dom__op_reset(struct dom__op *op)
{
	for (unsigned i = 0; i < ARRAY_LEN(op->fetch); i++) {
		if (!op->fetch[i].used)
			continue;
		plan_drop(&op->fetch[i].plan);
		sgl_put(op->fetch[i].sgl);
		dom__fetch_clear(&op->fetch[i]);
	}
	plan_drop(&op->plan);
	dom__plan_clear(&op->plan);
	sgl_put(op->out);
	op->out = NULL;
	if (op->crcs != op->crcs_few)
		free(op->crcs);
	op->crcs = NULL;
	free(op->versions);
	op->versions = NULL;
	op->map_len = 0;
	op->map_steps = 0;
	op->fetches_left = 0;
	op->parts_left = 0;
	op->space_told = false;
}
