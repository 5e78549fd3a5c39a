/*
 * owner_write: from bytes to records (g2).
 *
 * Under an exclusive lock, with what is covered in part fetched already: merge
 * to whole blocks, compute the CRC of each block once, take space credits, give
 * each record the next lsn of its group, PREP them all.  owner_decide.c takes
 * it from there.
 */
#include "dom/dom_int.h"

#include "base/crc.h"
#include "base/stats.h"

#include <assert.h>
#include <stdlib.h>

/* Parts are contiguous: a record per leaf, at most this many (g3, R44). */
#define ATOMIC_PARTS_MAX (LSOM_PARTICIPANTS_MAX / 2)

static void op_prep(struct dom__op *op);

/* ---- merging and planning ---- */

static void pages_there(struct page_waiter *waiter)
{
	struct dom__op *op = container_of(waiter, struct dom__op, pages);

	op->pages_waiting = false;
	op->stage = DOM__RUNNING;
	dom__op_run(op);
}

/*
 * No pages to merge into.  Commands that wait for them with what they fetched
 * in hand would wait for each other: drop it, and fetch it again once there are
 * pages for both.  The range stays locked, so it is read as it was.
 */
static void pages_wait(struct dom__op *op, size_t wanted)
{
	for (unsigned i = 0; i < ARRAY_LEN(op->fetch); i++)
		wanted += op->fetch[i].len / DOM_BLOCK;
	dom__op_reset(op);
	op->stage = DOM__WAITING;
	op->pages_waiting = true;
	op->pages = (struct page_waiter){ .cb = pages_there };
	page_wait(op->owner->dom->env->pages, PAGE_RMW, wanted, &op->pages);
}

/* The bytes of part @index, in the order of its component. */
static int part_gather(struct dom__op *op, unsigned index)
{
	struct page_cache *pages = op->owner->dom->env->pages;
	struct dom__part *part = &op->plan.parts[index];
	struct sgl *whole = NULL;
	struct sgl *few[32], **slices = few;
	unsigned n = op->plan.frags_count, made = 0;
	uint64_t at = 0;
	int rv = 0;

	if (n == 1) {
		part->sgl = sgl_get(op->out);
		return 0;
	}
	if (n > ARRAY_LEN(few)) {
		slices = malloc(n * sizeof(*slices));
		if (slices == NULL)
			return -ENOMEM;
	}
	for (unsigned i = 0; i < n && rv == 0; i++) {
		const struct dom__frag *frag = &op->plan.frags[i];

		if (frag->part == index) {
			slices[made] = sgl_slice(op->out, at, frag->len);
			if (slices[made] == NULL)
				rv = -ENOMEM;
			else
				made++;
		}
		at += frag->len;
	}
	if (rv == 0) {
		whole = made == 1 ? sgl_get(slices[0])
				  : sgl_join(pages, slices, made);
		if (whole == NULL)
			rv = -ENOMEM;
	}
	part->sgl = whole;
	while (made-- > 0)
		sgl_put(slices[made]);
	if (slices != few)
		free(slices);
	return rv;
}

/*
 * The one place where the CRC of a block is computed.  A component on this node
 * gets these very pages and does not compute it again; it checks what it reads.
 */
static void part_crcs(struct dom__part *part, uint32_t *crcs)
{
	const struct sgl_piece *piece = part->sgl->pieces;
	const unsigned n = part->sgl->pieces_count;
	const struct page *last = NULL;

	part->crcs = crcs;
	for (unsigned i = 0; i < n; i++, piece++) {
		assert(piece->offset == 0);
		assert(piece->len == DOM_BLOCK);
		if (i > 0 && piece->page == last)
			crcs[i] = crcs[i - 1]; /* WRITE SAME */
		else if (piece->page == page_zero())
			crcs[i] = CRC32C_ZERO_PAGE;
		else
			crcs[i] = crc32c(piece->page->data, DOM_BLOCK);
		last = piece->page;
	}
}

static int plan_write(struct dom__op *op)
{
	uint64_t start = ROUND_DOWN(op->offset, (uint64_t)DOM_BLOCK);

	assert(op->out != NULL);
	return dom__plan_make(&op->plan, op->owner->tree, start,
			      op->out->len_bytes);
}

/* Edge blocks as zeros, all between as holes: one per component. */
static int plan_unmap(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;
	uint64_t start = ROUND_UP(op->offset, (uint64_t)DOM_BLOCK);
	uint64_t end = ROUND_DOWN(op->offset + op->len, (uint64_t)DOM_BLOCK);
	uint64_t edges[2];
	unsigned n = dom__merge_edges(op, edges), holes = 0;
	struct dom__extent *runs;
	int rv;

	runs = malloc(owner->leaves * sizeof(*runs));
	if (runs == NULL)
		return -ENOMEM;
	if (start < end)
		holes = dom__tree_spread(owner->tree, start, end - start, runs);
	rv = dom__plan_alloc(&op->plan, n + holes, n);
	if (rv < 0)
		goto out;
	for (unsigned i = 0; i < n + holes; i++) {
		struct dom__part *part = &op->plan.parts[i];
		struct dom__extent run =
			i < n ? dom__tree_map(owner->tree, edges[i], DOM_BLOCK)
			      : runs[i - n];

		dom__part_init(part, &run);
		part->hole = i >= n;
		if (i < n)
			op->plan.frags[i] =
				(struct dom__frag){ .part = i,
						    .len = DOM_BLOCK };
	}
	op->plan.parts_count = n + holes;
	op->plan.frags_count = n;
out:
	free(runs);
	return rv;
}

bool dom__op_atomic(const struct dom__op *op)
{
	return op->kind == DOM__COMPARE || op->kind == DOM__OR ||
	       (op->flags & DOM_ATOMIC) != 0;
}

static int op_plan(struct dom__op *op)
{
	size_t blocks = op->out ? op->out->len_bytes / DOM_BLOCK : 0;
	uint32_t *crcs;
	int rv;

	rv = op->kind == DOM__UNMAP ? plan_unmap(op) : plan_write(op);
	if (rv < 0)
		return rv;
	if (dom__op_atomic(op) && op->plan.parts_count > ATOMIC_PARTS_MAX)
		return -EINVAL;
	op->crcs = op->crcs_few;
	if (blocks > ARRAY_LEN(op->crcs_few)) {
		op->crcs = malloc(blocks * sizeof(*op->crcs));
		if (op->crcs == NULL)
			return -ENOMEM;
	}
	crcs = op->crcs;
	for (unsigned i = 0; i < op->plan.parts_count; i++) {
		struct dom__part *part = &op->plan.parts[i];

		part->op = op;
		if (part->hole)
			continue;
		rv = part_gather(op, i);
		if (rv < 0)
			return rv;
		part_crcs(part, crcs);
		crcs += part->len / DOM_BLOCK;
	}
	return 0;
}

void dom__op_merge(struct dom__op *op)
{
	size_t wanted = 0;
	int rv = dom__merge(op, &wanted);

	if (rv == -EBUSY) {
		pages_wait(op, wanted);
		return;
	}
	if (rv == -EINVAL)
		rv = -ENOMEM; /* more than the arena can ever give */
	if (rv == 0 && wanted > 0)
		counter_add(&dom__merges, wanted);
	if (rv == 0)
		rv = op_plan(op);
	if (rv < 0) {
		dom__op_finish(op, rv);
		return;
	}
	op_prep(op);
}

/* ---- preparing ---- */

/* Room in every window for the records this operation adds to it? */
static bool window_has_room(const struct dom__op *op)
{
	const struct dom__plan *plan = &op->plan;

	for (unsigned i = 0; i < plan->parts_count; i++) {
		const struct dom__group *g =
			&op->owner->groups[plan->parts[i].leaf];
		unsigned need = 1;

		for (unsigned k = 0; k < i; k++)
			need += plan->parts[k].leaf == plan->parts[i].leaf;
		if (dom__group_room(g) < need)
			return false;
	}
	return true;
}

/* Why a group that it adds records to takes no more; or 0. */
static int groups_dead(const struct dom__op *op)
{
	const struct dom__owner *owner = op->owner;
	int rv = 0;

	for (unsigned i = 0; i < op->plan.parts_count && rv == 0; i++)
		rv = owner->groups[op->plan.parts[i].leaf].dead;
	return rv;
}

/* Does one that waits longer want a group that @op wants, too? */
static bool groups_wanted(const struct dom__op *op)
{
	const struct dom__owner *owner = op->owner;
	bool wanted = false;

	for (unsigned i = 0; i < op->plan.parts_count && !wanted; i++)
		wanted = owner->groups[op->plan.parts[i].leaf].wanted_pass ==
			 owner->window_pass;
	return wanted;
}

/*
 * It has to wait on, and those behind it that want its groups: how many of these
 * nobody before it wanted.
 */
static unsigned groups_want(const struct dom__op *op)
{
	const struct dom__owner *owner = op->owner;
	unsigned n = 0;

	for (unsigned i = 0; i < op->plan.parts_count; i++) {
		struct dom__group *g = &owner->groups[op->plan.parts[i].leaf];

		n += g->wanted_pass != owner->window_pass;
		g->wanted_pass = owner->window_pass;
	}
	return n;
}

/*
 * The one that waits longest for groups that nobody before it wants: a full one
 * stops nobody else (R48).
 */
static struct dom__op *window_next(struct dom__owner *owner)
{
	unsigned left = owner->leaves;
	struct dom__op *op;

	owner->window_pass++;
	TAILQ_FOREACH (op, &owner->window, wait_link) {
		/* The window of a dead group never opens again. */
		if (groups_dead(op) < 0 ||
		    (!groups_wanted(op) && window_has_room(op)))
			break;
		left -= groups_want(op);
		if (left == 0)
			return NULL; /* all are wanted, and none is dead */
	}
	return op;
}

void dom__window_kick(struct dom__owner *owner)
{
	struct dom__op *op;

	while ((op = window_next(owner)) != NULL) {
		TAILQ_REMOVE(&owner->window, op, wait_link);
		op->window_waiting = false;
		op->stage = DOM__RUNNING;
		owner->space_short = false;
		op_prep(op);
		if (owner->space_short)
			return; /* it is the first again */
	}
}

/*
 * The space is reserved for it, but older versions are in the way.  Those who
 * come later wait behind it.
 */
static void space_wait(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;

	op->stage = DOM__WAITING;
	op->window_waiting = true;
	TAILQ_INSERT_HEAD(&owner->window, op, wait_link);
	owner->space_short = true;
	dom__retry_later(owner);
}

void dom__credits_drop(struct dom__op *op)
{
	for (unsigned i = 0; i < op->plan.parts_count; i++) {
		struct dom__part *part = &op->plan.parts[i];

		if (part->credit)
			lsom_credit_return(
				op->owner->peers[part->leaf].cm->comp,
				part->len / DOM_BLOCK);
		part->credit = false;
	}
}

/* An lsn is given only with room for it on the disk (g2.0, R45). */
static int credits_take(struct dom__op *op)
{
	if (!dom__rule(op->owner->dom, 45))
		return 0;
	for (unsigned i = 0; i < op->plan.parts_count; i++) {
		struct dom__part *part = &op->plan.parts[i];
		int rv;

		if (part->hole)
			continue;
		rv = lsom_credit_take(op->owner->peers[part->leaf].cm->comp,
				      part->len / DOM_BLOCK);
		if (rv < 0) {
			dom__credits_drop(op);
			return rv;
		}
		part->credit = true;
	}
	return 0;
}

static void space_told(struct dom__op *op)
{
	if (--op->parts_left > 0)
		return;
	if (op->io == NULL)
		dom__op_finish(op, -ETIMEDOUT); /* nobody waits for it */
	else if (!op->space_told)
		space_wait(op);
	else
		op_prep(op);
}

static void part_told(struct dom__cm_decide *req, int status)
{
	space_told(container_of(req, struct dom__part, decide)->op);
}

/*
 * What was unmapped or overwritten is given back with its decision, which a disk may
 * hear of behind the answer: not before it has is it full.  A COMMIT of what is
 * decided leaves no record, and is answered behind all that was said before.
 */
static void space_tell(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;

	op->space_told = true;
	op->parts_left = 1;
	for (unsigned i = 0; i < op->plan.parts_count; i++) {
		struct dom__part *part = &op->plan.parts[i];
		struct dom__peer *peer = &owner->peers[part->leaf];
		struct dom__group *group = &owner->groups[part->leaf];
		int rv;

		dom__cm_decided(peer->cm, &peer->fence, &group->decided);
		part->decide.decide = (struct lsom_decide){
			.commit = true, .lsn = group->decided.stable_lsn
		};
		rv = dom__cm_decide(peer->cm, &peer->fence, &part->decide,
				    part_told);
		if (rv == 0)
			op->parts_left++;
		else if (rv == -EBUSY || rv == -ENOMEM)
			op->space_told = false; /* a little later */
	}
	space_told(op);
}

static void op_prep(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;
	unsigned n = op->plan.parts_count;
	int rv = groups_dead(op);

	assert(n > 0);
	if (rv < 0) {
		dom__op_finish(op, rv);
		return;
	}
	if (!window_has_room(op) ||
	    (owner->space_short && !TAILQ_EMPTY(&owner->window))) {
		op->stage = DOM__WAITING;
		op->window_waiting = true;
		TAILQ_INSERT_TAIL(&owner->window, op, wait_link);
		return;
	}
	rv = credits_take(op);
	if (rv == -EBUSY && op->io == NULL)
		rv = -ETIMEDOUT; /* nobody waits for it */
	if (rv == -EBUSY) {
		space_wait(op);
		return;
	}
	if (rv == -ENOSPC && !op->space_told) {
		space_tell(op);
		return;
	}
	if (rv < 0) {
		dom__op_finish(op, rv);
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		struct dom__part *part = &op->plan.parts[i];
		struct dom__group *group = &owner->groups[part->leaf];

		part->lsn = dom__group_issue(group);
		if (dom__group_worn(group))
			dom__owner_renew(owner);
	}
	/* A part may end at once: hold the last count until all are sent. */
	op->parts_left = n + 1;
	for (unsigned i = 0; i < n; i++)
		dom__part_submit(&op->plan.parts[i]);
	dom__op_part_settled(op);
}

/*
 * Who takes part in an atomic command, as takeover needs it: per record two
 * ids, the component and {lsn, first block, blocks}.  lsom only keeps them.
 */
static unsigned participants_of(const struct dom__op *op, struct uuid *out)
{
	unsigned n = 0;

	if (!dom__op_atomic(op) || op->plan.parts_count < 2 ||
	    !dom__rule(op->owner->dom, 16))
		return 0;
	for (unsigned i = 0; i < op->plan.parts_count; i++) {
		const struct dom__part *part = &op->plan.parts[i];

		out[n++] = op->owner->peers[part->leaf].leaf->cid;
		dom__participant_pack(&out[n++], part->lsn, part->offset,
				      part->len);
	}
	return n;
}

static void part_end(struct dom__part *part, int status);

static void part_done(struct dom__cm_write *req, int status)
{
	part_end(container_of(req, struct dom__part, write), status);
}

void dom__part_submit(struct dom__part *part)
{
	struct dom__op *op = part->op;
	struct dom__owner *owner = op->owner;
	struct dom__peer *peer = &owner->peers[part->leaf];
	struct dom__group *group = &owner->groups[part->leaf];
	struct uuid participants[LSOM_PARTICIPANTS_MAX];
	unsigned n = participants_of(op, participants);
	int rv;

	if (dom__op_expired(op) && op->io == NULL) {
		part_end(part, -ETIMEDOUT);
		return;
	}
	/*
	 * lsom records what a message says behind its record, so a record that
	 * is durable vouches for what the one before it said.
	 */
	part->stable_sent = group->told_lsn;
	part->write.write = (struct lsom_write){
		.kind = LSOM_PREP,
		.flags = (part->hole ? LSOM_W_HOLE : LSOM_W_CHECKED) |
			 (dom__op_atomic(op) && op->plan.parts_count > 1
				  ? LSOM_W_ATOMIC
				  : 0),
		.offset = part->offset,
		.len = part->len,
		.sgl = part->sgl,
		.crcs = part->crcs,
		.lsn = part->lsn,
		.member_csn = peer->fence.member_csn,
		.credits = part->credit ? part->len / DOM_BLOCK : 0,
		.decided = &group->decided,
		.participants = n > 0 ? participants : NULL,
		.participants_count = n,
		.deadline_ns = op->deadline_ns,
	};
	rv = dom__cm_write(peer->cm, &peer->fence, &part->write, part_done);
	if (rv == 0) {
		part->credit = false; /* the record has it now */
		op->prepared = true;
		group->told_lsn = group->decided.stable_lsn;
		group->dirty = false;
	} else if (rv == -EBUSY) {
		dom__part_retry(part);
	} else {
		part_end(part, rv);
	}
}

static void part_end(struct dom__part *part, int status)
{
	struct dom__op *op = part->op;

	part->status = status;
	part->durable = status == 0;
	if (status == 0) {
		struct dom__group *g = &op->owner->groups[part->leaf];

		g->durable_lsn = MAX(g->durable_lsn, part->lsn);
		dom__group_recorded(g, part->stable_sent);
	}
	dom__op_part_settled(op);
}
