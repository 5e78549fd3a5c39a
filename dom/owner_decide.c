/*
 * owner_decide: when all records of a command are settled, so is the command.
 *
 * All durable: the write is decided and acknowledged, if the session is still
 * valid.  COMMIT travels with whatever goes to the component next, or with a
 * 1 ms timer.
 *
 * Failures.  A record that was refused and not logged is aborted on the spot:
 * nobody has it.  One whose fate is unknown (the disk failed) kills its group
 * until the next takeover, as its lsn can never be decided in this epoch.
 */
#define LOG_ROOM LOG_DOM
#include "dom/dom_int.h"

#include "base/log.h"

#include <assert.h>

#define DECIDED_NS (1 * MSEC)

static void decided_fired(struct env_timer *timer)
{
	struct dom__owner *owner =
		container_of(timer, struct dom__owner, decided_timer);

	owner->decided_armed = false;
	dom__decided_push(owner);
}

static void decided_later(struct dom__owner *owner)
{
	if (owner->decided_armed)
		return;
	owner->decided_armed = true;
	owner->decided_timer.cb = decided_fired;
	env_timer_start(owner->dom->env, &owner->decided_timer, DECIDED_NS);
}

/* The lazy COMMIT, when no other message carried it. */
void dom__decided_push(struct dom__owner *owner)
{
	for (unsigned i = 0; i < owner->leaves; i++) {
		struct dom__group *g = &owner->groups[i];
		struct dom__peer *peer = &owner->peers[i];

		if (!g->dirty || peer->cm == NULL)
			continue;
		g->dirty = dom__cm_decided(peer->cm, &peer->fence,
					   &g->decided) < 0;
		if (g->dirty)
			decided_later(owner);
	}
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

	if (g->dead == 0 && status == -ESTALE)
		g->dead = status; /* fenced: the next epoch goes on */
	if (g->dead == 0) {
		uuid_format(&owner->peers[leaf].leaf->cid, cid);
		log_error("component %s takes no more writes: %s", cid,
			  err_text(status));
		g->dead = status;
	}
}

/*
 * Every group of an atomic command is rid of it: only now may stable_lsn pass
 * its lsns.  Earlier, a takeover that finds one of its records would take the
 * stable_lsn of another group for a commit of the whole (R44).
 */
static void op_undone(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;

	if (--op->parts_left > 0)
		return;
	/* The disks are well, only not in time: the next epoch decides it. */
	if (op->undo_status == -EBUSY || op->undo_status == -ETIMEDOUT ||
	    op->undo_status == -ENOSPC || op->undo_status == -ENOMEM) {
		op->undo_status = -ESTALE;
		dom__owner_lost(owner);
	}
	for (unsigned i = 0; i < op->plan.parts_count; i++) {
		struct dom__part *part = &op->plan.parts[i];

		/* One that cannot be undone: no group gets past it. */
		if (op->undo_status < 0)
			group_kill(owner, part->leaf, op->undo_status);
		else
			dom__group_abort(&owner->groups[part->leaf], part->lsn);
	}
	decided_later(owner);
	dom__op_finish(op, op->status);
}

static void part_undone(struct dom__cm_decide *req, int status)
{
	struct dom__part *part = container_of(req, struct dom__part, decide);

	if (status < 0)
		part->op->undo_status = status;
	op_undone(part->op);
}

void dom__part_undo(struct dom__part *part)
{
	struct dom__op *op = part->op;
	struct dom__peer *peer = &op->owner->peers[part->leaf];
	int rv;

	part->decide.decide =
		(struct lsom_decide){ .commit = false, .lsn = part->lsn };
	rv = dom__cm_decide(peer->cm, &peer->fence, &part->decide, part_undone);
	/* Its answer is due all the same; tries end with the disk's patience */
	if (rv == -EBUSY && !(dom__op_expired(op) && op->io == NULL))
		dom__part_retry(part);
	else if (rv < 0)
		part_undone(&part->decide, rv);
}

/*
 * An atomic command that not every group could log: ABORT it durably where it
 * is, before the error is reported (g4).
 */
static void op_undo(struct dom__op *op)
{
	op->parts_left = 1;
	op->undo_status = 0;
	for (unsigned i = 0; i < op->plan.parts_count; i++) {
		struct dom__part *part = &op->plan.parts[i];

		if (!part->durable && !not_logged(part->status))
			op->undo_status = part->status;
		if (!part->durable)
			continue;
		op->parts_left++;
		part->undo = true;
		dom__part_undo(part);
	}
	op_undone(op);
}

/* A record's fate is known; with the last one the command's is (g2.3). */
void dom__op_part_settled(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;
	bool atomic = dom__op_atomic(op) && op->plan.parts_count > 1;
	int status = 0;

	assert(op->parts_left > 0);
	if (--op->parts_left > 0)
		return;
	dom__credits_drop(op);
	for (unsigned i = 0; i < op->plan.parts_count; i++) {
		struct dom__part *part = &op->plan.parts[i];

		if (!part->durable &&
		    (status == 0 || !not_logged(part->status)))
			status = part->status;
	}
	/* lsom's word for a bad payload is not a bad medium. */
	op->status = status == -EBADMSG || status == -EINVAL || status == -EBUSY
			     ? -EIO
			     : status;
	if (status < 0 && atomic) {
		op_undo(op);
		return;
	}
	for (unsigned i = 0; i < op->plan.parts_count; i++) {
		struct dom__part *part = &op->plan.parts[i];
		struct dom__group *g = &owner->groups[part->leaf];

		if (part->durable)
			dom__group_commit(g, part->lsn);
		else if (not_logged(part->status))
			dom__group_abort(g, part->lsn);
		else
			group_kill(owner, part->leaf, part->status);
	}
	status = op->status;
	decided_later(owner);
	if (status == 0 && !dom__session_valid(op))
		status = -ENXIO;
	dom__op_finish(op, status);
}
