/*
 * qos: the limit of commands a second that a policy sets (iops_limit).
 *
 * It is the owner's, as several front ends share an object.  A bucket holds a
 * tenth of a second's tokens, one at least, and each READ, WRITE, UNMAP,
 * COMPARE AND WRITE and ORWRITE of a nexus takes one; commands of this node
 * itself and those that move no data pass.  A command without a token waits in
 * order of admission: its deadline and dom_cancel() end it as any other that
 * was not started, and it counts among the DOM_OPS_MAX admitted.
 */
#include "dom/dom_int.h"

#define BURST_NS (SEC / 10)

uint64_t dom__qos_take(struct dom__qos *qos, uint64_t now_ns)
{
	uint64_t cost, burst, full;

	if (qos->limit == 0)
		return 0;
	cost = MAX(SEC / qos->limit, 1ull);
	burst = MAX(BURST_NS, cost);
	full = MAX(qos->full_ns, now_ns) + cost;
	if (full - now_ns > burst)
		return full - now_ns - burst;
	qos->full_ns = full;
	return 0;
}

static void limit_set(struct dom__owner *owner, uint64_t limit)
{
	if (owner->qos.limit == limit)
		return;
	/* A bucket starts full: what the old limit had spent is forgotten. */
	owner->qos = (struct dom__qos){ .limit = limit };
	if (owner->qos_armed) /* those who wait ask anew */
		env_timer_start(owner->dom->env, &owner->qos_timer, 0);
}

void dom__qos_load(struct dom__owner *owner)
{
	struct cmmds *cmmds = owner->dom->cmmds;
	const Directory__Object *object = cmmds_object(cmmds, &owner->oid);
	const Directory__Policy *policy = NULL;

	if (object != NULL && object->policy[0] != '\0')
		policy = cmmds_policy(cmmds, object->policy);
	limit_set(owner, policy ? policy->iops_limit : 0);
}

static void qos_wait(struct dom__owner *owner, uint64_t wait_ns);

static void qos_fired(struct env_timer *timer)
{
	struct dom__owner *owner =
		container_of(timer, struct dom__owner, qos_timer);
	struct dom__op *op;

	owner->qos_armed = false;
	while ((op = TAILQ_FIRST(&owner->throttled)) != NULL) {
		uint64_t wait = 0;

		if (owner->state == DOM__READY && !owner->hold)
			wait = dom__qos_take(&owner->qos,
					     env_now(owner->dom->env));
		if (wait > 0) {
			qos_wait(owner, wait);
			return;
		}
		TAILQ_REMOVE(&owner->throttled, op, wait_link);
		if (owner->state == DOM__READY && !owner->hold)
			dom__op_start(op);
		else
			dom__op_park(op);
	}
}

static void qos_wait(struct dom__owner *owner, uint64_t wait_ns)
{
	if (owner->qos_armed)
		return;
	owner->qos_armed = true;
	owner->qos_timer.cb = qos_fired;
	env_timer_start(owner->dom->env, &owner->qos_timer, wait_ns);
}

bool dom__qos_passes(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;
	uint64_t wait;

	if (owner->qos.limit == 0 && TAILQ_EMPTY(&owner->throttled))
		return true;
	if (op->generation == 0 || op->kind == DOM__MAP ||
	    op->kind == DOM__RESERVE)
		return true;
	wait = TAILQ_EMPTY(&owner->throttled)
		       ? dom__qos_take(&owner->qos, env_now(owner->dom->env))
		       : 1;
	if (wait == 0)
		return true;
	op->stage = DOM__THROTTLED;
	TAILQ_INSERT_TAIL(&owner->throttled, op, wait_link);
	qos_wait(owner, wait);
	return false;
}

void dom__qos_stop(struct dom__owner *owner)
{
	if (owner->qos_armed)
		env_timer_stop(owner->dom->env, &owner->qos_timer);
	owner->qos_armed = false;
}
