/*
 * owner_io: how the owner reads and writes blocks.
 *
 * A read: fetch whole blocks from the components under a shared lock, check the
 * session, hand out the slice that was asked for (g5).  A write, under an
 * exclusive lock (g2): fetch what it covers in part, merge to whole blocks,
 * compute the CRC of each block once, take space credits, give each record the
 * next lsn of its group, PREP them all; when all are durable the write is
 * decided and acknowledged, if the session is still valid.  COMMIT travels with
 * whatever goes to the component next, or with a 1 ms timer.
 *
 * Failures.  lsom answers "busy": the part waits and is sent again.  A record
 * that was refused and not logged is aborted on the spot: nobody has it.  One
 * whose fate is unknown (the disk failed) kills its group until the next
 * takeover, as its lsn can never be decided in this epoch.
 */
#define LOG_ROOM LOG_DOM
#include "dom/dom_int.h"

#include "base/crc.h"
#include "base/log.h"
#include "base/stats.h"

#include <assert.h>
#include <stdlib.h>

#define RETRY_NS (1 * MSEC)
#define DECIDED_NS (1 * MSEC)
#define MAP_STEPS_MAX 64u
#define MAP_ITEMS 256u

static void op_merge(struct dom__op *op);
static void op_prep(struct dom__op *op);
static void op_part_settled(struct dom__op *op);
static void part_submit(struct dom__part *part);
static void fetch_part_submit(struct dom__part *part);

/* Parts are contiguous: a record per leaf, at most this many (g3, R44). */
#define ATOMIC_PARTS_MAX (LSOM_PARTICIPANTS_MAX / 2)

/* ---- waiting for lsom ---- */

static void retry_fired(struct env_timer *timer)
{
	struct dom__owner *owner =
		container_of(timer, struct dom__owner, retry_timer);

	owner->retry_armed = false;
	dom__retries_run(owner);
}

static void part_retry(struct dom__part *part)
{
	struct dom__owner *owner = part->op->owner;

	part->retrying = true;
	TAILQ_INSERT_TAIL(&owner->retries, part, link);
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
		if (part->fetch != NULL)
			fetch_part_submit(part);
		else
			part_submit(part);
		if (end)
			break;
	}
}

static bool op_expired(const struct dom__op *op)
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
		uint64_t bad = status == -EBADMSG ?
				       object_offset(f, part,
						     part->read.read.bad_offset) :
				       0;

		if (f->status == 0 || status != -EBADMSG ||
		    bad < f->bad_offset)
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
	fetch_part_end(container_of(req, struct dom__part, read), status);
}

static void fetch_part_submit(struct dom__part *part)
{
	struct dom__op *op = part->op;
	struct dom__owner *owner = op->owner;
	struct dom__peer *peer = &owner->peers[part->leaf];
	struct dom__group *group = &owner->groups[part->leaf];
	int rv;

	if (op_expired(op) && op->io == NULL) {
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
	rv = dom__cm_read(peer->cm, &peer->fence, &part->read,
			  fetch_part_done);
	if (rv == -EBUSY)
		part_retry(part);
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

/* Fetch what @op must read first; op_fetched() or op_merge() follows. */
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
			op_merge(op);
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

static bool session_valid(struct dom__op *op)
{
	if (cmmds_session_valid(op->owner->dom->cmmds))
		return true;
	dom__owner_lost(op->owner);
	return false;
}

static void read_end(struct dom__op *op)
{
	struct dom__fetch *f = &op->fetch[0];

	/* With the data in hand: a deposed owner must not answer (R18). */
	if (!session_valid(op)) {
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

	if (old == NULL) {
		dom__op_finish(op, -ENOMEM);
		return false;
	}
	at = sgl_compare(old, op->compare);
	sgl_put(old);
	if (at < 0)
		return true;
	if (!session_valid(op)) {
		dom__op_finish(op, -ENXIO);
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
	op_merge(op);
}

/* ---- merging and planning ---- */

static void pages_there(struct page_waiter *waiter)
{
	struct dom__op *op = container_of(waiter, struct dom__op, pages);

	op->pages_waiting = false;
	op->stage = DOM__RUNNING;
	op_merge(op);
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
		whole = made == 1 ? sgl_get(slices[0]) :
				    sgl_join(pages, slices, made);
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

/* The one place where the CRC of a block is computed; lsom checks it. */
static void part_crcs(struct dom__part *part, uint32_t *crcs)
{
	const struct page *last = NULL;

	part->crcs = crcs;
	for (unsigned i = 0; i < part->sgl->pieces_count; i++) {
		const struct sgl_piece *piece = &part->sgl->pieces[i];

		assert(piece->offset == 0);
		assert(piece->len == DOM_BLOCK);
		if (piece->page == last)
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
			i < n ? dom__tree_map(owner->tree, edges[i],
					      DOM_BLOCK) :
				runs[i - n];

		memset(part, 0, sizeof(*part));
		part->leaf = run.leaf;
		part->offset = run.offset;
		part->len = run.len;
		part->hole = i >= n;
		if (i < n)
			op->plan.frags[i] = (struct dom__frag){
				.part = i, .len = DOM_BLOCK
			};
	}
	op->plan.parts_count = n + holes;
	op->plan.frags_count = n;
out:
	free(runs);
	return rv;
}

static bool op_atomic(const struct dom__op *op)
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
	if (op_atomic(op) && op->plan.parts_count > ATOMIC_PARTS_MAX)
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

static void op_merge(struct dom__op *op)
{
	struct page_cache *pages = op->owner->dom->env->pages;
	size_t wanted = 0;
	int rv = dom__merge(op, &wanted);

	if (rv == -EBUSY) {
		op->stage = DOM__WAITING;
		op->pages_waiting = true;
		op->pages = (struct page_waiter){ .cb = pages_there };
		page_wait(pages, PAGE_RMW, wanted, &op->pages);
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

void dom__window_kick(struct dom__owner *owner)
{
	struct dom__op *op;

	while ((op = TAILQ_FIRST(&owner->window)) != NULL) {
		if (!window_has_room(op))
			return;
		TAILQ_REMOVE(&owner->window, op, wait_link);
		op->window_waiting = false;
		op->stage = DOM__RUNNING;
		op_prep(op);
	}
}

static void credits_drop(struct dom__op *op)
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
			credits_drop(op);
			return rv;
		}
		part->credit = true;
	}
	return 0;
}

static void op_prep(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;
	unsigned n = op->plan.parts_count;
	int rv = 0;

	assert(n > 0);
	for (unsigned i = 0; i < n && rv == 0; i++)
		rv = owner->groups[op->plan.parts[i].leaf].dead;
	if (rv < 0) {
		dom__op_finish(op, rv);
		return;
	}
	if (!window_has_room(op)) {
		op->stage = DOM__WAITING;
		op->window_waiting = true;
		TAILQ_INSERT_TAIL(&owner->window, op, wait_link);
		return;
	}
	rv = credits_take(op);
	if (rv < 0) {
		dom__op_finish(op, rv);
		return;
	}
	for (unsigned i = 0; i < n; i++)
		op->plan.parts[i].lsn = dom__group_issue(
			&owner->groups[op->plan.parts[i].leaf]);
	/* A part may end at once: hold the last count until all are sent. */
	op->parts_left = n + 1;
	for (unsigned i = 0; i < n; i++)
		part_submit(&op->plan.parts[i]);
	op_part_settled(op);
}

/*
 * Who takes part in an atomic command, as takeover needs it: per record two
 * ids, the component and {lsn, first block, blocks}.  lsom only keeps them.
 */
static unsigned participants_of(const struct dom__op *op, struct uuid *out)
{
	unsigned n = 0;

	if (!op_atomic(op) || op->plan.parts_count < 2 ||
	    !dom__rule(op->owner->dom, 44))
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

static void part_submit(struct dom__part *part)
{
	struct dom__op *op = part->op;
	struct dom__owner *owner = op->owner;
	struct dom__peer *peer = &owner->peers[part->leaf];
	struct dom__group *group = &owner->groups[part->leaf];
	struct uuid participants[LSOM_PARTICIPANTS_MAX];
	unsigned n = participants_of(op, participants);
	int rv;

	if (op_expired(op) && op->io == NULL) {
		part_end(part, -ETIMEDOUT);
		return;
	}
	part->stable_sent = group->decided.stable_lsn;
	part->write.write = (struct lsom_write){
		.kind = LSOM_PREP,
		.flags = (part->hole ? LSOM_W_HOLE : 0) |
			 (n > 0 ? LSOM_W_ATOMIC : 0),
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
	};
	rv = dom__cm_write(peer->cm, &peer->fence, &part->write, part_done);
	if (rv == 0) {
		part->credit = false; /* the record has it now */
		group->dirty = false;
	} else if (rv == -EBUSY) {
		part_retry(part);
	} else {
		part_end(part, rv);
	}
}

static void part_end(struct dom__part *part, int status)
{
	struct dom__op *op = part->op;

	part->status = status;
	part->durable = status == 0;
	if (status == 0)
		dom__group_recorded(&op->owner->groups[part->leaf],
				    part->stable_sent);
	op_part_settled(op);
}

/* ---- deciding ---- */

static void decided_fired(struct env_timer *timer)
{
	struct dom__owner *owner =
		container_of(timer, struct dom__owner, decided_timer);

	owner->decided_armed = false;
	dom__decided_push(owner);
}

/* The lazy COMMIT, when no other message carried it. */
void dom__decided_push(struct dom__owner *owner)
{
	for (unsigned i = 0; i < owner->leaves; i++) {
		struct dom__group *g = &owner->groups[i];

		if (g->dirty && owner->peers[i].cm != NULL) {
			dom__cm_decided(owner->peers[i].cm,
					&owner->peers[i].fence, &g->decided);
			g->dirty = false;
		}
	}
}

static void decided_later(struct dom__owner *owner)
{
	if (owner->decided_armed)
		return;
	owner->decided_armed = true;
	owner->decided_timer.cb = decided_fired;
	env_timer_start(owner->dom->env, &owner->decided_timer, DECIDED_NS);
}

/* Was the record refused, so that surely nobody has it? */
static bool not_logged(int status)
{
	return status == -EBADMSG || status == -ENOSPC || status == -EINVAL ||
	       status == -ETIMEDOUT || status == -EBUSY || status == -ENOMEM;
}

static void group_kill(struct dom__owner *owner, unsigned leaf, int status)
{
	struct dom__group *g = &owner->groups[leaf];
	char cid[UUID_TEXT_LEN];

	if (g->dead == 0) {
		uuid_format(&owner->peers[leaf].leaf->cid, cid);
		log_error("component %s takes no more writes: %s", cid,
			  err_text(status));
		g->dead = status;
	}
}

static void op_undone(struct dom__op *op)
{
	if (--op->parts_left == 0) {
		decided_later(op->owner);
		dom__op_finish(op, op->status);
	}
}

static void part_undone(struct dom__cm_decide *req, int status)
{
	struct dom__part *part = container_of(req, struct dom__part, decide);
	struct dom__owner *owner = part->op->owner;

	if (status == 0)
		dom__group_abort(&owner->groups[part->leaf], part->lsn);
	else
		group_kill(owner, part->leaf, status);
	op_undone(part->op);
}

/*
 * An atomic command that not every group could log: ABORT it durably where it
 * is, before the error is reported (g4).
 */
static void op_undo(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;

	op->parts_left = 1;
	for (unsigned i = 0; i < op->plan.parts_count; i++) {
		struct dom__part *part = &op->plan.parts[i];
		struct dom__peer *peer = &owner->peers[part->leaf];
		int rv;

		if (!part->durable)
			continue;
		op->parts_left++;
		part->decide.decide =
			(struct lsom_decide){ .commit = false,
					      .lsn = part->lsn };
		rv = dom__cm_decide(peer->cm, &peer->fence, &part->decide,
				    part_undone);
		if (rv < 0)
			part_undone(&part->decide, rv);
	}
	op_undone(op);
}

/* A record's fate is known; with the last one the command's is (g2.3). */
static void op_part_settled(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;
	bool atomic = op_atomic(op) && op->plan.parts_count > 1;
	int status = 0;

	assert(op->parts_left > 0);
	if (--op->parts_left > 0)
		return;
	credits_drop(op);
	for (unsigned i = 0; i < op->plan.parts_count; i++) {
		struct dom__part *part = &op->plan.parts[i];

		if (!part->durable && (status == 0 || !not_logged(part->status)))
			status = part->status;
	}
	for (unsigned i = 0; i < op->plan.parts_count; i++) {
		struct dom__part *part = &op->plan.parts[i];
		struct dom__group *g = &owner->groups[part->leaf];

		if (!part->durable && not_logged(part->status))
			dom__group_abort(g, part->lsn);
		else if (!part->durable)
			group_kill(owner, part->leaf, part->status);
		else if (status == 0 || !atomic)
			dom__group_commit(g, part->lsn);
	}
	/* lsom's word for a bad payload is not a bad medium. */
	if (status == -EBADMSG || status == -EINVAL || status == -EBUSY)
		status = -EIO;
	op->status = status;
	if (status < 0 && atomic) {
		op_undo(op);
		return;
	}
	decided_later(owner);
	if (status == 0 && !session_valid(op))
		status = -ENXIO;
	dom__op_finish(op, status);
}

/* ---- GET LBA STATUS ---- */

static void map_step(struct dom__op *op);

static void map_end(struct dom__op *op, int status)
{
	if (status == 0 && op->io != NULL) {
		op->io->mapped = op->map_mapped;
		op->io->mapped_len = MIN(op->map_len, op->len);
	}
	dom__op_finish(op, status);
}

/* How far the blocks from @start on are alike, and in which way. */
static uint64_t run_of(const struct lsom_scan *scan, uint64_t start,
		       bool *mapped)
{
	uint64_t at = start;

	*mapped = scan->items_count > 0 && scan->items[0].offset == start &&
		  !scan->items[0].hole;
	for (unsigned i = 0; i < scan->items_count; i++) {
		const struct lsom_version *v = &scan->items[i];

		if (*mapped) {
			if (v->hole || v->offset != at)
				return at - start;
			at += DOM_BLOCK;
		} else if (!v->hole) {
			return v->offset - start;
		}
	}
	return *mapped ? at - start : scan->next - start;
}

static void map_scanned(struct dom__cm_scan *req, int status)
{
	struct dom__op *op = container_of(req, struct dom__op, scan);
	uint64_t start = op->scan.scan.offset, run;
	uint64_t skip = op->map_len == 0 ? op->offset % DOM_BLOCK : 0;
	bool mapped;

	if (status < 0) {
		map_end(op, status);
		return;
	}
	run = run_of(&op->scan.scan, start, &mapped);
	if (op->map_len == 0)
		op->map_mapped = mapped;
	if (run == 0 || mapped != op->map_mapped) {
		if (op->map_len == 0) /* at least the block itself */
			op->map_len = DOM_BLOCK - skip;
		map_end(op, 0);
		return;
	}
	op->map_len += run - skip;
	if (run < op->map_run && op->scan.scan.next - start >= op->map_run &&
	    op->scan.scan.items_count < MAP_ITEMS) {
		map_end(op, 0); /* the run ended inside what was scanned */
		return;
	}
	if (op->map_len >= op->len || ++op->map_steps == MAP_STEPS_MAX) {
		map_end(op, 0);
		return;
	}
	map_step(op);
}

static void map_step(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;
	uint64_t at = ROUND_DOWN(op->offset + op->map_len, (uint64_t)DOM_BLOCK);
	uint64_t end = ROUND_UP(op->offset + op->len, (uint64_t)DOM_BLOCK);
	struct dom__extent run = dom__tree_map(owner->tree, at, end - at);
	struct dom__peer *peer = &owner->peers[run.leaf];
	int rv;

	/* A scan shows what is committed: say what is. */
	dom__cm_decided(peer->cm, &peer->fence, &owner->groups[run.leaf].decided);
	op->map_run = run.len;
	op->scan.scan = (struct lsom_scan){
		.offset = run.offset,
		.len = run.len,
		.items = op->versions,
		.items_max = MAP_ITEMS,
	};
	rv = dom__cm_scan(peer->cm, &peer->fence, &op->scan, map_scanned);
	if (rv < 0)
		map_end(op, rv == -EBUSY && op->map_len > 0 ? 0 : rv);
}

/* ---- the way in and out ---- */

/* The range is locked and the reservation lets it pass. */
void dom__op_run(struct dom__op *op)
{
	if (op->kind == DOM__MAP) {
		op->versions = malloc(MAP_ITEMS * sizeof(*op->versions));
		if (op->versions == NULL)
			dom__op_finish(op, -ENOMEM);
		else
			map_step(op);
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
	for (unsigned i = 0; i < 2; i++) {
		plan_drop(&op->fetch[i].plan);
		sgl_put(op->fetch[i].sgl);
		memset(&op->fetch[i], 0, sizeof(op->fetch[i]));
	}
	plan_drop(&op->plan);
	memset(&op->plan, 0, sizeof(op->plan));
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
}
