/*
 * owner: the life of an object's owner on this node.
 *
 *	DOWN -> TAKING (takeover.c) -> READY -> RELEASING -> DOWN
 *
 * Whatever needs quiet (a resize, a disk that leaves, a deletion, a fence that
 * refused us) sets `hold`: new operations are parked, running ones finish, and
 * the step that finds nothing running goes on.  Parked operations start when the
 * owner is READY again, or fail with the reason why it cannot be.  An unused
 * owner lingers a little, so that a login does not cost two commits.
 */
#define LOG_ROOM LOG_DOM
#include "dom/dom_int.h"

#include "base/log.h"
#include "base/stats.h"

#include <assert.h>
#include <stdlib.h>

#define LINGER_NS (2 * SEC)
#define AGAIN_NS (1 * SEC)

/* The hash modulo the shards says on which one the object is: not that again. */
static struct dom__owner **bucket(struct dom *dom, const struct uuid *oid)
{
	return &dom->owners_by_id[(uuid_hash(oid) >> 32) % DOM__BUCKETS];
}

struct dom__owner *dom__owner_find(struct dom *dom, const struct uuid *oid)
{
	struct dom__owner *owner = *bucket(dom, oid);

	while (owner != NULL && !uuid_equal(&owner->oid, oid))
		owner = owner->chain;
	return owner;
}

static void owner_insert(struct dom__owner *owner)
{
	struct dom__owner **at = bucket(owner->dom, &owner->oid);

	owner->chain = *at;
	*at = owner;
	TAILQ_INSERT_TAIL(&owner->dom->owners, owner, link);
}

static void owner_remove(struct dom__owner *owner)
{
	struct dom__owner **at = bucket(owner->dom, &owner->oid);

	while (*at != owner)
		at = &(*at)->chain;
	*at = owner->chain;
	TAILQ_REMOVE(&owner->dom->owners, owner, link);
}

static void step(struct env_task *task);

/* The watch that @skip others stand before; NULL: there are no more. */
static struct dom_watch *watch_nth(struct dom__owner *owner, unsigned skip)
{
	struct dom_object *object;
	struct dom_watch *watch;

	TAILQ_FOREACH (object, &owner->objects, link)
		TAILQ_FOREACH (watch, &object->watches, link)
			if (skip-- == 0)
				return watch;
	return NULL;
}

static void events_run(struct env_task *task)
{
	struct dom__owner *owner =
		container_of(task, struct dom__owner, event_task);

	/*
	 * A callback may close its handle or watch others, so each event goes
	 * to everybody who is there by then, found afresh by counting.
	 */
	while (owner->events != 0) {
		enum dom_event event = __builtin_ctz(owner->events);
		struct dom_watch *watch;
		unsigned skip = 0;

		owner->events &= owner->events - 1;
		while ((watch = watch_nth(owner, skip++)) != NULL)
			watch->cb(watch, event);
	}
}

struct dom__owner *dom__owner_get(struct dom *dom, const struct uuid *oid)
{
	struct dom__owner *owner = dom__owner_find(dom, oid);

	if (owner == NULL) {
		owner = calloc(1, sizeof(*owner));
		if (owner == NULL)
			return NULL;
		owner->dom = dom;
		owner->oid = *oid;
		owner->step_task.cb = step;
		owner->event_task.cb = events_run;
		dom__locks_init(&owner->locks);
		TAILQ_INIT(&owner->ops);
		TAILQ_INIT(&owner->parked);
		TAILQ_INIT(&owner->window);
		TAILQ_INIT(&owner->retries);
		TAILQ_INIT(&owner->pr_queue);
		TAILQ_INIT(&owner->nexuses);
		TAILQ_INIT(&owner->objects);
		TAILQ_INIT(&owner->opens);
		TAILQ_INIT(&owner->op_pool);
		TAILQ_INIT(&owner->throttled);
		dom__reservation_init(&owner->reservation);
		owner_insert(owner);
	}
	owner->handles++;
	return owner;
}

static void linger_fired(struct env_timer *timer)
{
	struct dom__owner *owner =
		container_of(timer, struct dom__owner, linger_timer);

	owner->linger = false;
	dom__owner_step(owner);
}

void dom__owner_put(struct dom__owner *owner)
{
	struct dom *dom = owner->dom;

	assert(owner->handles > 0);
	if (--owner->handles > 0)
		return;
	if (!dom->closing && !owner->deleted && owner->state == DOM__READY) {
		owner->linger = true;
		owner->linger_timer.cb = linger_fired;
		env_timer_start(dom->env, &owner->linger_timer, LINGER_NS);
	}
	dom__owner_step(owner);
}

void dom__owner_step(struct dom__owner *owner)
{
	env_defer(owner->dom->env, &owner->step_task);
}

static void late_leave(struct dom__owner *owner)
{
	TAILQ_REMOVE(&owner->dom->late, owner, late_link);
	owner->late = false;
}

static void late_some(struct env_timer *timer)
{
	struct dom *dom = container_of(timer, struct dom, late_timer);
	struct dom__owner *owner;

	for (unsigned n = 0; n < DOM__LATE_PART; n++) {
		owner = TAILQ_FIRST(&dom->late);
		if (owner == NULL)
			return;
		late_leave(owner);
		if (owner->again_armed)
			env_timer_stop(dom->env, &owner->again_timer);
		owner->again_armed = false;
		dom__owner_step(owner);
	}
	env_timer_start(dom->env, timer, DOM__LATE_NS);
}

void dom__owner_step_late(struct dom__owner *owner)
{
	struct dom *dom = owner->dom;

	if (owner->late)
		return;
	owner->late = true;
	TAILQ_INSERT_TAIL(&dom->late, owner, late_link);
	dom->late_timer.cb = late_some;
	if (!env_timer_active(&dom->late_timer))
		env_timer_start(dom->env, &dom->late_timer, ENV_NEXT_TURN_NS);
}

/* Our epoch, or our session, is over: nothing is acknowledged in it again. */
void dom__owner_lost(struct dom__owner *owner)
{
	if (owner->state == DOM__READY && !owner->restart) {
		log_warn("an owner lost its epoch %u and takes over again",
			 owner->oepoch);
		owner->restart = true;
		owner->hold = true;
	}
	dom__owner_step(owner);
}

/* What runs goes on in this epoch; what comes waits for the next one. */
void dom__owner_renew(struct dom__owner *owner)
{
	if (owner->state != DOM__READY || owner->restart)
		return;
	log_info("an owner has used its epoch %u up and begins another one",
		 owner->oepoch);
	owner->restart = true;
	owner->hold = true;
	dom__owner_step(owner);
}

void dom__owner_event(struct dom__owner *owner, enum dom_event event)
{
	owner->events |= 1u << event;
	env_defer(owner->dom->env, &owner->event_task);
}

bool dom__owner_uses_disk(const struct dom__owner *owner,
			  const struct dom__disk *disk)
{
	for (unsigned i = 0; i < owner->leaves; i++) {
		if (uuid_equal(&owner->peers[i].leaf->disk, &disk->id))
			return true;
	}
	return false;
}

const struct dom__known *dom__known_find(const struct dom__owner *owner,
					 const struct uuid *cid)
{
	for (unsigned i = 0; i < owner->known_count; i++) {
		if (uuid_equal(&owner->known[i].cid, cid))
			return &owner->known[i];
	}
	return NULL;
}

/*
 * Remember what the components said, for the next takeover to hold against them
 * (R14, R47).  Without memory for it the comparison is left out.
 */
static void known_keep(struct dom__owner *owner)
{
	struct dom__known *known = calloc(owner->leaves, sizeof(*known));

	if (known == NULL)
		return;
	for (unsigned i = 0; i < owner->leaves; i++) {
		const struct dom__group *g = &owner->groups[i];

		known[i] = (struct dom__known){
			.cid = owner->peers[i].leaf->cid,
			.oepoch = owner->oepoch,
			.recorded_lsn = g->decided.g_all,
			.durable_lsn = g->durable_lsn,
		};
	}
	free(owner->known);
	owner->known = known;
	owner->known_count = owner->leaves;
}

/* Let the components go; the reservation and the nexuses stay. */
void dom__owner_drop_leaves(struct dom__owner *owner)
{
	struct env *env = owner->dom->env;

	if (owner->state == DOM__READY && owner->leaves > 0)
		known_keep(owner);

	for (unsigned i = 0; i < owner->leaves; i++) {
		if (owner->peers[i].cm != NULL)
			dom__cm_put(owner->peers[i].cm);
	}
	free(owner->peers);
	free(owner->groups);
	dom__tree_free(owner->tree);
	owner->peers = NULL;
	owner->groups = NULL;
	owner->tree = NULL;
	owner->leaves = 0;
	if (owner->decided_armed)
		env_timer_stop(env, &owner->decided_timer);
	owner->decided_armed = false;
}

static void owner_free(struct dom__owner *owner)
{
	struct dom *dom = owner->dom;

	assert(owner->ops_count == 0);
	assert(owner->leaves == 0);
	assert(TAILQ_EMPTY(&owner->nexuses));
	if (owner->step_task.queued || owner->event_task.queued ||
	    owner->nexus_task.queued) {
		dom__owner_step(owner); /* a task still names it */
		return;
	}
	if (owner->late)
		late_leave(owner);
	env_timer_stop(dom->env, &owner->linger_timer);
	env_timer_stop(dom->env, &owner->again_timer);
	env_timer_stop(dom->env, &owner->tick_timer);
	env_timer_stop(dom->env, &owner->retry_timer);
	dom__qos_stop(owner);
	dom__op_pool_free(owner);
	free(owner->known);
	dom__reservation_fini(&owner->reservation);
	owner_remove(owner);
	free(owner);
	dom__kick(dom);
}

/* ---- opens ---- */

static void open_task(struct env_task *task)
{
	struct dom_object_open *req =
		container_of(task, struct dom_object_open, task);

	req->cb(req, req->object != NULL ? 0 : (int)(intptr_t)req->dom);
}

/* @req->dom carries the status to the task: it is not needed any more. */
static void open_end(struct dom_object_open *req, struct dom__owner *owner,
		     int status)
{
	struct dom_object *object = NULL;
	struct dom *dom = owner->dom;

	TAILQ_REMOVE(&owner->opens, req, link);
	env_timer_stop(dom->env, &req->late);
	if (status == 0) {
		object = calloc(1, sizeof(*object));
		if (object == NULL)
			status = -ENOMEM;
	}
	if (object != NULL) {
		object->dom = dom;
		object->oid = owner->oid;
		object->owner = owner; /* the open's reference goes over */
		TAILQ_INIT(&object->watches);
		TAILQ_INSERT_TAIL(&owner->objects, object, link);
	} else {
		dom__owner_put(owner);
	}
	req->object = object;
	req->dom = (void *)(intptr_t)status;
	req->task.cb = open_task;
	env_defer(dom->env, &req->task);
}

static void opens_end(struct dom__owner *owner, int status)
{
	struct dom_object_open *req;

	while ((req = TAILQ_FIRST(&owner->opens)) != NULL)
		open_end(req, owner, status);
}

/* A takeover waits for a disk as long as that hangs; who opens does not. */
static void open_late(struct env_timer *timer)
{
	struct dom_object_open *req =
		container_of(timer, struct dom_object_open, late);

	open_end(req, dom__owner_find(req->dom, &req->oid), -ETIMEDOUT);
}

void dom__owner_open(struct dom__owner *owner, struct dom_object_open *req)
{
	TAILQ_INSERT_TAIL(&owner->opens, req, link);
	req->late.cb = open_late;
	env_timer_start(owner->dom->env, &req->late, DOM__OPEN_NS);
	dom__owner_step(owner);
}

/* ---- taking and releasing ---- */

static void again_fired(struct env_timer *timer)
{
	struct dom__owner *owner =
		container_of(timer, struct dom__owner, again_timer);

	owner->again_armed = false;
	dom__owner_step(owner);
}

/* takeover.c is done: READY, or DOWN with the reason. */
void dom__takeover_done(struct dom__owner *owner, int status)
{
	struct dom *dom = owner->dom;

	/* Whatever it failed with, there is nothing more to be opened. */
	if (status < 0 && owner->deleted)
		status = -ENOENT;
	owner->restart = status == 0 && owner->renew;
	owner->renew = false;
	owner->down_status = status;
	dom__health_look(dom);
	if (status == 0) {
		env_timer_stop(dom->env, &owner->again_timer);
		owner->again_armed = false;
		owner->state = DOM__READY;
		owner->hold = owner->deleted || owner->restart ||
			      owner->resize != NULL;
		counter_add(&dom__takeovers, 1);
		dom__resize_taken(owner, 0);
		opens_end(owner, 0);
		dom__far_tell_all(owner);
		dom__op_start_parked(owner);
		dom__owner_step(owner);
		return;
	}
	owner->state = DOM__DOWN;
	dom__owner_drop_leaves(owner);
	if (status == -ENOENT)
		owner->deleted = true;
	if (owner->deleted) /* what of it was made by then */
		dom__gc_look(dom, &owner->oid);
	dom__resize_taken(owner, status);
	opens_end(owner, status);
	dom__op_fail_parked(owner, status);
	if (!owner->again_armed) {
		owner->again_armed = true;
		owner->again_timer.cb = again_fired;
		env_timer_start(dom->env, &owner->again_timer, AGAIN_NS);
	}
	dom__owner_step(owner);
}

static void released(struct cmmds_command *cmd, int status)
{
	struct dom__owner *owner =
		container_of(cmd, struct dom__owner, release);

	/*
	 * Unknown or refused: the next takeover reads the entry and releases
	 * once more if it must; nothing is served in between.
	 */
	cmmds_command_fini(cmd);
	owner->state = DOM__DOWN;
	owner->restart = false;
	owner->hold = owner->deleted;
	dom__gc_look(owner->dom, &owner->oid);
	dom__owner_step(owner);
}

static void release_start(struct dom__owner *owner)
{
	struct dom *dom = owner->dom;
	const Directory__Object *object = cmmds_object(dom->cmmds, &owner->oid);
	Directory__Owner me = DIRECTORY__OWNER__INIT;
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;
	int rv;

	/* A resize or a deletion raised csn under our epoch. */
	if (object != NULL && object->oepoch == owner->oepoch)
		owner->csn = object->csn;
	dom__decided_push(owner);
	dom__owner_drop_leaves(owner);
	owner->state = DOM__RELEASING;
	me.node.data = dom->node.b;
	me.node.len = sizeof(dom->node.b);
	me.incarnation = cmmds_incarnation(dom->cmmds);
	op.op = DIRECTORY__OBJECT_COMMAND__OP__RELEASE;
	op.oid.data = owner->oid.b;
	op.oid.len = sizeof(owner->oid.b);
	op.expect_oepoch = owner->oepoch;
	op.expect_csn = owner->csn;
	op.owner = &me;
	cmmds_command_init(&owner->release);
	cmmds_object_op(&owner->release, &op);
	rv = cmmds_propose(dom->cmmds, &owner->release, 0, released);
	if (rv < 0)
		released(&owner->release, rv);
}

static bool wanted(const struct dom__owner *owner)
{
	if (!TAILQ_EMPTY(&owner->opens))
		return true;
	/* Commands come at any rate: after a failure they wait for the timer. */
	return !owner->again_armed &&
	       (owner->handles > 0 || !TAILQ_EMPTY(&owner->parked));
}

static void step_down(struct dom__owner *owner)
{
	int rv = owner->deleted	       ? -ENOENT
		 : owner->dom->closing ? -ESHUTDOWN
				       : 0;

	if (rv < 0) { /* it is not taken again: who waits for that is told */
		opens_end(owner, rv);
		dom__op_fail_parked(owner, rv);
		dom__resize_taken(owner, rv);
	}
	if (owner->handles == 0 && owner->ops_count == 0 &&
	    dom__pr_idle(owner)) {
		owner_free(owner);
		return;
	}
	if (rv < 0 || !wanted(owner))
		return;
	owner->state = DOM__TAKING;
	owner->hold = true;
	rv = dom__takeover_start(owner);
	if (rv < 0)
		dom__takeover_done(owner, rv);
}

static void step(struct env_task *task)
{
	struct dom__owner *owner =
		container_of(task, struct dom__owner, step_task);
	bool leave;

	if (owner->state == DOM__DOWN) {
		step_down(owner);
		return;
	}
	if (owner->state != DOM__READY)
		return;
	leave = owner->restart || owner->deleted ||
		(owner->handles == 0 &&
		 (!owner->linger || owner->dom->closing));
	if (!leave && owner->resize == NULL) {
		/* It was to leave, and somebody came before it was quiet. */
		owner->hold = false;
		opens_end(owner, 0);
		dom__op_start_parked(owner);
		return;
	}
	owner->hold = true;
	if (owner->running > 0 || !dom__pr_idle(owner))
		return;
	if (!leave)
		dom__resize_quiet(owner);
	else
		release_start(owner);
}
