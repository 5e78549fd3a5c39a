/*
 * owner_pr: nexuses, and carrying out reservations at the owner (h6).
 *
 * One change at a time: apply it to a copy (reservation.c), store the copy by
 * compare-and-set, only then make it ours, tell the nexuses, and answer once
 * every operation that was let in under the older state has ended (I17).  A
 * change whose outcome is unknown is asked for again until it is known; its
 * asker is answered at its deadline, the next change waits.
 *
 * An SPC-2 reservation ends with its nexus, or by a reset, at once and in memory:
 * the next command of another initiator may be here before the directory could
 * store it.  What the directory still has of it, or has yet to store, nobody takes
 * up: see spc2_check(), and spc2_void and orphaned where its ports are a nexus.
 */
#define LOG_ROOM LOG_DOM
#include "dom/dom_int.h"

#include "base/log.h"

#include <assert.h>
#include <stdlib.h>

#define RELOADS_MAX 8u

struct dom__pr_job {
	struct dom__owner *owner;
	struct dom__op *op; /* NULL: it was answered at its deadline */
	struct dom_pr pr;
	struct dom__pr_who who;
	struct dom_reservation next;
	struct dom__pr_effects effects;
	struct cmmds_command cmd;
	struct env_timer timer; /* the directory was busy */
	bool proposed, adopted;
	bool orphaned; /* its SPC-2 reservation ended before it was one */
	unsigned reloads;
};

static void job_next(struct dom__owner *owner);
static void job_apply(struct dom__pr_job *job);

/* ---- SPC-2 ---- */

static void spc2_end(struct dom__owner *owner)
{
	owner->reservation.spc2_holder[0] = '\0';
	owner->reservation.spc2_target_port = 0;
	owner->spc2_void = true;
	dom__owner_event(owner, DOM_RESERVATION);
}

/* Does @nexus hold it, or (NULL) anybody? */
static bool spc2_is_of(const struct dom_reservation *r,
		       const struct dom_nexus *nexus)
{
	if (nexus == NULL)
		return r->spc2_holder[0] != '\0';
	return dom_spc2_holds(r, nexus->initiator_port, nexus->target_port);
}

/* Is its holder none of @owner's nexuses? */
static bool spc2_orphaned(const struct dom__owner *owner,
			  const struct dom_reservation *r)
{
	const struct dom_nexus *nexus;

	if (r->spc2_holder[0] == '\0')
		return false;
	TAILQ_FOREACH (nexus, &owner->nexuses, link)
		if (spc2_is_of(r, nexus))
			return false;
	return true;
}

/*
 * A holder without a nexus is none: it was lost while its reservation was on the
 * way to the directory, or the directory has not heard of it.  True: it was one.
 */
static bool spc2_check(struct dom__owner *owner)
{
	if (!spc2_orphaned(owner, &owner->reservation))
		return false;
	spc2_end(owner);
	return true;
}

/*
 * The directory is not waited for: neither to end what is held, nor for what it has
 * yet to store, which was asked for before.
 */
static void spc2_reset(struct dom__owner *owner, const struct dom_nexus *nexus)
{
	if (spc2_is_of(&owner->reservation, nexus))
		spc2_end(owner);
	if (owner->pr_job != NULL && spc2_is_of(&owner->pr_job->next, nexus))
		owner->pr_job->orphaned = true;
}

/* ---- loading ---- */

/* @nexuses_lost: another daemon's life ended, so did its SPC-2 reservation. */
int dom__pr_load(struct dom__owner *owner, bool nexuses_lost)
{
	const struct cmmds_entry *entry =
		cmmds_get(owner->dom->cmmds, CMMDS_RESERVATION, owner->oid.b,
			  sizeof(owner->oid.b));
	const Directory__Reservation *msg;
	int rv;

	if (entry == NULL) {
		dom__reservation_fini(&owner->reservation);
		owner->reservation_revision = CMMDS_MUST_NOT_EXIST;
		owner->reservation_swp = false;
		owner->spc2_void = false;
		return 0;
	}
	msg = (const Directory__Reservation *)entry->message;
	if (msg == NULL)
		return -EUCLEAN;
	rv = dom__reservation_unpack(&owner->reservation, msg);
	if (rv < 0)
		return rv;
	owner->reservation_revision = entry->revision;
	owner->reservation_swp = msg->swp;
	if (nexuses_lost || owner->spc2_void)
		spc2_end(owner);
	(void)spc2_check(owner);
	return 0;
}

/* ---- one change ---- */

bool dom__pr_idle(const struct dom__owner *owner)
{
	return owner->pr_job == NULL;
}

static void job_free(struct dom__pr_job *job)
{
	struct dom__owner *owner = job->owner;

	owner->pr_job = NULL;
	dom__reservation_fini(&job->next);
	free(job);
	dom__owner_step(owner);
	job_next(owner);
}

static void job_end(struct dom__pr_job *job, int status)
{
	struct dom__op *op = job->op;

	job_free(job);
	if (op != NULL)
		dom__op_finish(op, status);
}

static void effect_apply(struct dom__owner *owner,
			 const struct dom__pr_effect *e)
{
	struct dom_nexus *nexus;
	struct dom__op *op;

	TAILQ_FOREACH (nexus, &owner->nexuses, link) {
		if (strcmp(nexus->initiator_port, e->initiator_port) != 0 ||
		    (!e->all_target_ports &&
		     nexus->target_port != e->target_port))
			continue;
		nexus->attention |= e->attention;
		if (!e->abort)
			continue;
		/* Cancelling only defers the end: the list stays whole. */
		TAILQ_FOREACH (op, &owner->ops, link) {
			if (op->generation != nexus->generation)
				continue;
			op->aborted = true;
			if (dom__op_stoppable(op))
				dom__op_cancel(op, -ECANCELED);
		}
	}
}

/* Does anything run that was let in under an older reservation? */
static bool older_runs(const struct dom__owner *owner)
{
	const struct dom__op *op;

	TAILQ_FOREACH (op, &owner->ops, link) {
		if (op->kind != DOM__RESERVE &&
		    op->pr_epoch < owner->pr_epoch &&
		    (op->stage == DOM__RUNNING || op->stage == DOM__WAITING))
			return true;
	}
	return false;
}

/* It is so: to be answered once what was let in before has ended. */
static void job_settle(struct dom__pr_job *job)
{
	job->adopted = true;
	if (job->op == NULL || !older_runs(job->owner))
		job_end(job, 0);
}

static void job_adopt(struct dom__pr_job *job)
{
	struct dom__owner *owner = job->owner;
	const struct cmmds_entry *entry =
		cmmds_get(owner->dom->cmmds, CMMDS_RESERVATION, owner->oid.b,
			  sizeof(owner->oid.b));

	if (entry != NULL)
		owner->reservation_revision = entry->revision;
	dom__reservation_fini(&owner->reservation);
	owner->reservation = job->next;
	dom__reservation_init(&job->next);
	owner->spc2_void = false; /* the directory has what we have */
	if (job->orphaned)
		spc2_end(owner);
	(void)spc2_check(owner);
	owner->pr_epoch++;
	for (unsigned i = 0; i < job->effects.count; i++)
		effect_apply(owner, &job->effects.items[i]);
	dom__owner_event(owner, DOM_RESERVATION);
	job_settle(job);
}

/* An operation ended: a change may be waiting for it. */
void dom__pr_op_ended(struct dom__owner *owner)
{
	struct dom__pr_job *job = owner->pr_job;

	if (job != NULL && job->adopted && !older_runs(owner))
		job_end(job, 0);
}

static void job_propose(struct dom__pr_job *job);

static void job_stored(struct cmmds_command *cmd, int status)
{
	struct dom__pr_job *job = container_of(cmd, struct dom__pr_job, cmd);
	struct dom__owner *owner = job->owner;

	if (status == -ETIMEDOUT) {
		job_propose(job);
		return;
	}
	cmmds_command_fini(cmd);
	job->proposed = false;
	if (status == 0) {
		job_adopt(job);
		return;
	}
	if ((status == -EAGAIN || status == -EEXIST || status == -ENOENT) &&
	    job->reloads++ < RELOADS_MAX &&
	    cmmds_object(owner->dom->cmmds, &owner->oid) != NULL &&
	    dom__pr_load(owner, false) == 0) {
		/* Somebody else's change came first: decide anew. */
		if (job->op != NULL) {
			job_apply(job);
			return;
		}
	}
	log_warn("a reservation could not be stored: %s", err_text(status));
	job_end(job, -ENXIO);
}

static void job_again(struct env_timer *timer)
{
	job_propose(container_of(timer, struct dom__pr_job, timer));
}

/* The first time, or once more for a change whose outcome is unknown. */
static void job_propose(struct dom__pr_job *job)
{
	struct dom *dom = job->owner->dom;
	int rv;

	if (job->proposed)
		rv = cmmds_propose_again(&job->cmd, 0, job_stored);
	else if (job->op->io == NULL)
		rv = -ETIMEDOUT; /* nobody waits for it */
	else
		rv = cmmds_propose(dom->cmmds, &job->cmd, 0, job_stored);
	if (rv == -EBUSY) { /* it takes so many commands at a time */
		job->timer.cb = job_again;
		env_timer_start(dom->env, &job->timer, DOM__BUSY_NS);
	} else if (rv < 0) {
		cmmds_command_fini(&job->cmd);
		job_end(job, job->proposed ? -ETIMEDOUT : rv);
	} else {
		job->proposed = true;
	}
}

static void job_apply(struct dom__pr_job *job)
{
	struct dom__owner *owner = job->owner;
	Directory__Reservation msg;
	unsigned bad = 0;
	bool changed = false;
	int rv;

	dom__reservation_fini(&job->next);
	rv = dom__reservation_copy(&job->next, &owner->reservation);
	if (rv == 0)
		rv = dom__reservation_apply(&job->next, &job->who, &job->pr,
					    &changed, &bad, &job->effects);
	if (rv < 0 || !changed) {
		if (job->op != NULL && job->op->io != NULL)
			job->op->io->bad_offset =
				bad == UINT32_MAX ? UINT64_MAX : bad;
		if (rv == 0)
			job_settle(job);
		else
			job_end(job, rv);
		return;
	}
	rv = dom__reservation_pack(&job->next, &owner->oid,
				   owner->reservation_swp, &msg);
	if (rv < 0) {
		job_end(job, rv);
		return;
	}
	cmmds_command_init(&job->cmd);
	cmmds_put(&job->cmd, CMMDS_RESERVATION, owner->oid.b,
		  sizeof(owner->oid.b), owner->reservation_revision, &msg.base);
	dom__reservation_pack_free(&msg);
	job_propose(job);
}

static struct dom__pr_job *job_new(struct dom__owner *owner)
{
	struct dom__pr_job *job = calloc(1, sizeof(*job));

	if (job == NULL)
		return NULL;
	assert(owner->pr_job == NULL);
	job->owner = owner;
	owner->pr_job = job;
	return job;
}

static void job_next(struct dom__owner *owner)
{
	struct dom__op *op;
	struct dom__pr_job *job;

	while ((op = TAILQ_FIRST(&owner->pr_queue)) != NULL &&
	       (owner->pr_job == NULL || op->pr->action == DOM_SPC2_RESET)) {
		TAILQ_REMOVE(&owner->pr_queue, op, wait_link);
		op->stage = DOM__RUNNING;
		op->sync = true;
		if (op->pr->action == DOM_SPC2_RESET) {
			spc2_reset(owner, op->io->nexus);
			dom__op_finish(op, 0);
			op->sync = false;
			continue;
		}
		job = job_new(owner);
		if (job == NULL) {
			dom__op_finish(op, -ENOMEM);
			op->sync = false;
			continue;
		}
		job->op = op;
		job->pr = *op->pr;
		if (op->io->nexus != NULL)
			job->who = (struct dom__pr_who){
				op->io->nexus->initiator_port,
				op->io->nexus->target_port
			};
		job_apply(job);
		op->sync = false;
	}
}

void dom__pr_start(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;

	TAILQ_INSERT_TAIL(&owner->pr_queue, op, wait_link);
	job_next(owner);
}

/* One that waited in the queue was given up: a reset may be the next one. */
void dom__pr_dropped(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;

	TAILQ_REMOVE(&owner->pr_queue, op, wait_link);
	job_next(owner);
}

/*
 * The asker of the change under way is answered at its deadline; its parameters
 * are not ours any more then, so a refusal of the store cannot be tried anew.  A
 * change that is ours has then nothing more to wait for: the next one waits for
 * the same operations itself.
 */
void dom__pr_expire(struct dom__owner *owner)
{
	struct dom__pr_job *job = owner->pr_job;

	if (job == NULL || job->op == NULL || job->op->io != NULL)
		return;
	if (job->adopted) {
		job_end(job, -ETIMEDOUT);
	} else if (job->proposed) {
		struct dom__op *op = job->op;

		job->op = NULL;
		dom__op_finish(op, -ETIMEDOUT);
	}
}

/* ---- nexuses ---- */

struct dom_nexus *dom__nexus_find(struct dom__owner *owner, uint64_t generation)
{
	struct dom_nexus *nexus;

	if (generation == 0)
		return NULL;
	TAILQ_FOREACH (nexus, &owner->nexuses, link) {
		if (nexus->generation == generation)
			return nexus;
	}
	return NULL;
}

void dom_nexus_open(struct dom_object *object, struct dom_nexus *nexus)
{
	struct dom__owner *owner = object->owner;

	if (object->far != NULL) {
		dom__far_nexus_open(object->far, nexus);
		return;
	}
	nexus->generation = ++owner->dom->generation;
	nexus->attention = 0;
	nexus->closing = false;
	owner->handles++;
	TAILQ_INSERT_TAIL(&owner->nexuses, nexus, link);
}

static void nexus_task_run(struct dom_nexus *nexus, struct dom__owner *owner)
{
	void (*cb)(void *arg) = nexus->cb;
	void *arg = nexus->arg;

	TAILQ_REMOVE(&owner->nexuses, nexus, link);
	nexus->generation = 0;
	/*
	 * Nexus loss, SPC-2 5.5.1; its ports may be one at another unit, too.  What
	 * it asked for and was not waited for may come when they are one again.
	 */
	if (owner->pr_job != NULL && spc2_orphaned(owner, &owner->pr_job->next))
		owner->pr_job->orphaned = true;
	if (spc2_check(owner))
		dom__far_tell_all(owner); /* before it is said to be closed */
	dom__owner_put(owner);
	if (cb != NULL)
		cb(arg);
}

/*
 * One that was answered at its deadline and still runs may wait for a disk that
 * hangs, for as long as that does.  It holds its range: whatever comes later, of
 * whom ever, finds it done, as if it had been before the nexus ended.
 */
static bool left_behind(const struct dom__op *op)
{
	return op->io == NULL && op->locked && op->range.held;
}

static bool nexus_quiet(const struct dom__owner *owner,
			const struct dom_nexus *nexus)
{
	const struct dom__op *op;

	TAILQ_FOREACH (op, &owner->ops, link) {
		if (nexus->generation != 0 &&
		    op->generation == nexus->generation && !left_behind(op))
			return false;
	}
	return true;
}

static void nexuses_task(struct env_task *task)
{
	struct dom__owner *owner =
		container_of(task, struct dom__owner, nexus_task);
	struct dom_nexus *nexus;

again:
	TAILQ_FOREACH (nexus, &owner->nexuses, link) {
		if (nexus->closing && nexus_quiet(owner, nexus)) {
			nexus_task_run(nexus, owner);
			goto again;
		}
	}
}

static void nexuses_look(struct dom__owner *owner)
{
	owner->nexus_task.cb = nexuses_task;
	env_defer(owner->dom->env, &owner->nexus_task);
}

void dom__nexus_op_ended(struct dom__owner *owner)
{
	const struct dom_nexus *nexus;

	if (owner->nexuses_closing == 0)
		return;
	TAILQ_FOREACH (nexus, &owner->nexuses, link) {
		if (nexus->closing) {
			nexuses_look(owner);
			return;
		}
	}
	owner->nexuses_closing = 0;
}

void dom_nexus_close(struct dom_object *object, struct dom_nexus *nexus,
		     void (*cb)(void *arg), void *arg)
{
	struct dom__owner *owner = object->owner;
	uint64_t generation = nexus->generation;
	struct dom_nexus *own;
	struct dom__op *op;

	if (object->far != NULL) {
		dom__far_nexus_close(object->far, nexus, cb, arg);
		return;
	}
	own = dom__nexus_find(owner, generation);
	if (own == NULL) {
		/* It never opened: there is only the answer to give. */
		own = nexus;
		owner->handles++;
		TAILQ_INSERT_TAIL(&owner->nexuses, own, link);
	}
	own->closing = true;
	own->cb = cb;
	own->arg = arg;
	owner->nexuses_closing++;
	TAILQ_FOREACH (op, &owner->ops, link) {
		if (generation != 0 && op->generation == generation &&
		    dom__op_stoppable(op))
			dom__op_cancel(op, -ECANCELED);
	}
	nexuses_look(owner);
}
