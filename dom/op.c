/*
 * op: the life of one operation at its owner.
 *
 * submit -> (parked while nobody serves) -> waits for its range -> runs (op.c
 * hands it to owner_io.c or owner_pr.c) -> finish -> its callback, last.  An
 * operation is the owner's; the caller's dom_io is only told.  So a deadline can
 * answer the caller while the operation completes behind it: a write that was
 * PREPped is never un-written (g2.5).
 */
#include "dom/dom_int.h"

#include "base/stats.h"

#include <assert.h>
#include <stdlib.h>

#define POOL_MAX 64u
#define RETRIES_MAX 8u
#define TICK_NS (250 * MSEC)

/* Returns NULL when the owner has all it may admit, or without memory. */
struct dom__op *dom__op_new(struct dom__owner *owner)
{
	struct dom__op *op = TAILQ_FIRST(&owner->op_pool);

	if (owner->ops_count >= DOM_OPS_MAX)
		return NULL;
	if (op != NULL) {
		TAILQ_REMOVE(&owner->op_pool, op, link);
		owner->op_pool_count--;
	} else {
		op = calloc(1, sizeof(*op));
		if (op == NULL)
			return NULL;
	}
	/* The rest is as dom__op_reset() left it. */
	memset(op, 0, offsetof(struct dom__op, scan));
	op->owner = owner;
	return op;
}

static void op_free(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;

	if (owner->op_pool_count < POOL_MAX) {
		TAILQ_INSERT_HEAD(&owner->op_pool, op, link);
		owner->op_pool_count++;
	} else {
		free(op);
	}
}

void dom__op_pool_free(struct dom__owner *owner)
{
	struct dom__op *op;

	while ((op = TAILQ_FIRST(&owner->op_pool)) != NULL) {
		TAILQ_REMOVE(&owner->op_pool, op, link);
		free(op);
	}
	owner->op_pool_count = 0;
}

/* ---- ending ---- */

static void op_complete(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;
	struct dom_io *io = op->io;
	int status = op->status;

	if (io != NULL) {
		io->impl[0] = NULL;
		if (status == 0 && op->kind == DOM__READ) {
			io->sgl = op->out;
			op->out = NULL;
		}
	}
	dom__op_reset(op);
	sgl_put(op->sgl);
	sgl_put(op->compare);
	TAILQ_REMOVE(&owner->ops, op, link);
	if (--owner->ops_count == 0)
		TAILQ_REMOVE(&owner->dom->busy, owner, busy_link);
	if (op->object != NULL)
		op->object->ops--;
	if (op->counted) {
		assert(owner->running > 0);
		owner->running--;
	}
	if (op->locked)
		dom__range_unlock(&owner->locks, &op->range);
	op_free(op);
	if (!TAILQ_EMPTY(&owner->window))
		dom__window_kick(owner);
	dom__pr_op_ended(owner);
	dom__nexus_op_ended(owner);
	if (owner->hold || owner->state != DOM__READY)
		dom__owner_step(owner);
	if (io != NULL)
		io->cb(io, status); /* may free it, or close the object */
}

static void op_task(struct env_task *task)
{
	op_complete(container_of(task, struct dom__op, task));
}

static void op_end_later(struct dom__op *op, int status)
{
	assert(op->stage != DOM__ENDING);
	op->stage = DOM__ENDING;
	op->status = status;
	op->task.cb = op_task;
	env_defer(op->owner->dom->env, &op->task);
}

/* In order of admission: one that started already goes before later ones. */
void dom__op_park(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;
	struct dom__op *before;

	op->stage = DOM__PARKED;
	TAILQ_FOREACH_REVERSE(before, &owner->parked, dom__op_list, wait_link)
	{
		if (before->order < op->order)
			break;
	}
	if (before != NULL)
		TAILQ_INSERT_AFTER(&owner->parked, before, op, wait_link);
	else
		TAILQ_INSERT_HEAD(&owner->parked, op, wait_link);
	dom__owner_step(owner);
}

/*
 * Fenced: another epoch has begun.  Nothing was answered, so the same command
 * is carried out again under the next one.  What it prepared is by then rolled
 * forward or back as a whole, and no later command on its range has run, as
 * parked ones keep their order.  So a write is overwritten by itself, an
 * ORWRITE finds its bits set, and compare_passes() knows a COMPARE AND WRITE
 * that meets its own effect.
 */
static bool op_again(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;

	dom__owner_lost(owner);
	if (op->io == NULL || op->aborted || op->retries == RETRIES_MAX)
		return false;
	op->retries++;
	dom__op_reset(op);
	if (op->counted)
		owner->running--;
	op->counted = false;
	if (op->locked)
		dom__range_unlock(&owner->locks, &op->range);
	op->locked = false;
	dom__op_park(op);
	/* Who waits for it to end must not keep the owner from coming to rest. */
	if (!TAILQ_EMPTY(&owner->window))
		dom__window_kick(owner);
	dom__pr_op_ended(owner);
	return true;
}

/* The end of a running operation, from its own completions. */
void dom__op_finish(struct dom__op *op, int status)
{
	if (status == -ESTALE) {
		if (op_again(op))
			return;
		/* Try later; but what may be in a log may come yet. */
		status = op->aborted	? -ECANCELED
			 : op->prepared ? -ETIMEDOUT
					: -ENXIO;
	}
	if (op->sync) {
		op_end_later(op, status);
		return;
	}
	op->stage = DOM__ENDING;
	op->status = status;
	op_complete(op);
}

/* ---- starting ---- */

bool dom__op_allowed(const struct dom__op *op)
{
	const struct dom_nexus *nexus = op->io ? op->io->nexus : NULL;
	enum dom_access access = op->kind == DOM__READ || op->kind == DOM__MAP
					 ? DOM_ACCESS_READ
					 : DOM_ACCESS_WRITE;
	struct dom__pr_who who;

	if (nexus == NULL)
		return true;
	who = (struct dom__pr_who){ nexus->initiator_port, nexus->target_port };
	return dom__reservation_allows(&op->owner->reservation, &who, access);
}

/* One that was fenced may have been rolled forward: it is not said to be refused. */
static int refusal(const struct dom__op *op, int status)
{
	return op->prepared ? -ETIMEDOUT : status;
}

static void op_granted(struct dom__op *op)
{
	op->stage = DOM__RUNNING;
	op->sync = true;
	op->pr_epoch = op->owner->pr_epoch;
	if (op->since_ns != 0)
		histogram_add(&dom__waits,
			      env_now(op->owner->dom->env) - op->since_ns);
	op->since_ns = 0; /* once, also if it is fenced and runs again */
	if (op->io == NULL) {
		dom__op_finish(op, -ETIMEDOUT); /* nobody waits for it */
	} else if (!dom__op_allowed(op)) {
		counter_add(&dom__conflicts, 1);
		dom__op_finish(op, refusal(op, -EPERM));
	} else {
		dom__op_run(op);
	}
	op->sync = false;
}

static void range_granted(struct dom__range *range)
{
	struct dom__op *op = container_of(range, struct dom__op, range);

	if (op->stage == DOM__LOCKING)
		op_granted(op);
	/* else it was cancelled, and unlocks when it completes */
}

void dom__op_start(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;

	/* The object may have shrunk while it waited. */
	if (op->kind != DOM__RESERVE && !op->tail &&
	    op->offset + op->len > owner->size_bytes) {
		op_end_later(op, refusal(op, -ERANGE));
		return;
	}
	op->stage = DOM__LOCKING;
	op->counted = true;
	owner->running++;
	if (op->kind == DOM__RESERVE) {
		dom__pr_start(op);
		return;
	}
	op->range = (struct dom__range){
		.start = ROUND_DOWN(op->offset, (uint64_t)DOM_BLOCK),
		.end = ROUND_UP(op->offset + op->len, (uint64_t)DOM_BLOCK),
		.exclusive = op->kind != DOM__READ && op->kind != DOM__MAP,
		.cb = range_granted,
	};
	if (!op->range.exclusive && !dom__rule(owner->dom, 17)) {
		op_granted(op);
		return;
	}
	op->locked = true;
	if (dom__range_lock(&owner->locks, &op->range))
		op_granted(op);
}

static void op_admit(struct dom__op *op)
{
	if (dom__qos_passes(op))
		dom__op_start(op);
}

static void tick(struct env_timer *timer)
{
	struct dom__owner *owner =
		container_of(timer, struct dom__owner, tick_timer);

	owner->tick_armed = false;
	dom__op_expire(owner);
	dom__pr_expire(owner);
	if (owner->ops_count > 0 && !owner->tick_armed) {
		owner->tick_armed = true;
		env_timer_start(owner->dom->env, &owner->tick_timer, TICK_NS);
	}
}

/* What it missed of its disks' congestion while it had nothing to do. */
static void now_busy(struct dom__owner *owner)
{
	struct dom *dom = owner->dom;

	TAILQ_INSERT_TAIL(&dom->busy, owner, busy_link);
	if (owner->congestion_number == dom->congestion_number)
		return;
	owner->congestion_number = dom->congestion_number;
	dom__owner_event(owner, DOM_CONGESTION);
}

void dom__op_submit(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;

	TAILQ_INSERT_TAIL(&owner->ops, op, link);
	if (owner->ops_count++ == 0)
		now_busy(owner);
	op->order = ++owner->ops_order;
	op->object->ops++;
	op->io->impl[0] = op;
	if (!owner->tick_armed) {
		owner->tick_armed = true;
		owner->tick_timer.cb = tick;
		env_timer_start(owner->dom->env, &owner->tick_timer, TICK_NS);
	}
	if (owner->deleted)
		op_end_later(op, -ENOENT);
	else if (owner->state == DOM__READY && !owner->hold)
		op_admit(op);
	else
		dom__op_park(op);
}

void dom__op_start_parked(struct dom__owner *owner)
{
	struct dom__op *op;

	while (owner->state == DOM__READY && !owner->hold &&
	       (op = TAILQ_FIRST(&owner->parked)) != NULL) {
		TAILQ_REMOVE(&owner->parked, op, wait_link);
		if (op->retries > 0)
			dom__op_start(op); /* it had its token */
		else
			op_admit(op);
	}
}

void dom__op_fail_parked(struct dom__owner *owner, int status)
{
	struct dom__op *op;

	while ((op = TAILQ_FIRST(&owner->parked)) != NULL) {
		TAILQ_REMOVE(&owner->parked, op, wait_link);
		/* As in dom__op_finish(): a later takeover decides it. */
		op_end_later(op, op->prepared && status != -ENOENT ? -ETIMEDOUT
								   : status);
	}
}

/* ---- stopping ---- */

/* True while nothing of @op has reached a component that could change it. */
bool dom__op_stoppable(const struct dom__op *op)
{
	return op->stage == DOM__PARKED || op->stage == DOM__THROTTLED ||
	       op->stage == DOM__LOCKING || op->stage == DOM__WAITING;
}

void dom__op_cancel(struct dom__op *op, int status)
{
	struct dom__owner *owner = op->owner;

	assert(dom__op_stoppable(op));
	if (op->stage == DOM__PARKED)
		TAILQ_REMOVE(&owner->parked, op, wait_link);
	else if (op->stage == DOM__THROTTLED)
		TAILQ_REMOVE(&owner->throttled, op, wait_link);
	else if (op->stage == DOM__LOCKING && op->kind == DOM__RESERVE)
		dom__pr_dropped(op);
	/* What WAITING hangs on is dropped by dom__op_reset(). */
	if (op->pages_waiting)
		page_wait_stop(owner->dom->env->pages, &op->pages);
	op->pages_waiting = false;
	if (op->window_waiting)
		TAILQ_REMOVE(&owner->window, op, wait_link);
	op->window_waiting = false;
	op_end_later(op, status);
}

void dom__op_expire(struct dom__owner *owner)
{
	uint64_t now = env_now(owner->dom->env);
	struct dom__op *op;

again:
	TAILQ_FOREACH (op, &owner->ops, link) {
		struct dom_io *io = op->io;

		if (io == NULL || op->deadline_ns > now ||
		    op->stage == DOM__ENDING)
			continue;
		counter_add(&dom__timeouts, 1);
		if (dom__op_stoppable(op)) {
			dom__op_cancel(op, -ETIMEDOUT);
			goto again;
		}
		/* The caller is told; its handle may go before @op does. */
		op->io = NULL;
		op->object->ops--;
		op->object = NULL;
		io->impl[0] = NULL;
		dom__nexus_op_ended(owner); /* its end is not waited for */
		io->cb(io, -ETIMEDOUT);
		goto again;
	}
}
