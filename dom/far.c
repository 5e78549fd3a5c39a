/*
 * far: a handle on an object whose owner is on another shard.
 *
 * There, at the owner, the handle has one of its own; what the calls of dom.h
 * tell without waiting (size, reservation, congestion) is kept here as it was
 * last heard.  It is sent with each event, after a takeover, and before a change
 * of the reservation is answered: what one shard posts to another arrives in
 * order, so whoever was told of a change can see it.  A nexus has a shadow there,
 * opened before its first command and closed behind its last.
 *
 * A function's name says where it runs: here, the handle's shard, or there.
 */
#define LOG_ROOM LOG_DOM
#include "dom/dom_int.h"

#include <assert.h>
#include <stdlib.h>

/* Bookkeeping of these sizes not being there is not survivable. */
static void *need(size_t len)
{
	void *p = calloc(1, len);

	if (p == NULL)
		abort();
	return p;
}

bool dom__mine(const struct dom *dom, const struct uuid *oid)
{
	return dom->parts == 1 || uuid_hash(oid) % dom->parts == dom->part;
}

struct dom *dom__part(struct dom *dom, unsigned part)
{
	return part == dom->part ? dom : dom->all[part];
}

struct dom *dom__of(struct dom *dom, const struct uuid *oid)
{
	return dom__part(dom, (unsigned)(uuid_hash(oid) % dom->parts));
}

/* ---- what is told ---- */

struct note {
	struct env_task task;
	struct dom__far *far;
	struct dom__far_state state;
	unsigned events, attentions_count;
	struct attention {
		uint64_t generation;
		unsigned bits;
	} attentions[];
};

static void state_fini(struct dom__far_state *state)
{
	dom__reservation_fini(&state->reservation);
	free(state->disks);
}

static void there_state(struct dom__far *far, struct dom__far_state *out)
{
	const struct dom__owner *owner = far->real->owner;

	out->size_bytes = owner->size_bytes;
	out->stripe_bytes = dom_object_stripe_bytes(far->real);
	out->congestion = dom_object_congestion(far->real);
	out->lossy = owner->lossy;
	out->kept_bytes = dom__owner_kept(owner);
	dom__reservation_init(&out->reservation);
	if (dom__reservation_copy(&out->reservation, &owner->reservation) < 0)
		abort();
	out->disks = need((owner->leaves + 1) * sizeof(*out->disks));
	out->disks_count = owner->leaves;
	for (unsigned i = 0; i < owner->leaves; i++)
		out->disks[i] = owner->peers[i].leaf->disk;
}

bool dom__far_uses_disk(const struct dom__far *far,
			const struct dom__disk *disk)
{
	for (unsigned i = 0; i < far->state.disks_count; i++) {
		if (uuid_equal(&far->state.disks[i], &disk->id))
			return true;
	}
	return false;
}

/* A callback may close the handle or watch others: count afresh after each. */
static void here_event(struct dom__far *far, enum dom_event event)
{
	unsigned done = 0;

	while (!far->closing) {
		struct dom_watch *watch;
		unsigned n = 0;

		TAILQ_FOREACH (watch, &far->object.watches, link) {
			if (n++ == done)
				break;
		}
		if (watch == NULL)
			return;
		done++;
		watch->cb(watch, event);
	}
}

static void here_note(struct env_task *task)
{
	struct note *note = container_of(task, struct note, task);
	struct dom__far *far = note->far;
	unsigned events = note->events;

	state_fini(&far->state);
	far->state = note->state;
	for (unsigned i = 0; i < note->attentions_count; i++) {
		struct dom__far_nexus *n = dom__far_nexus_find(
			far, note->attentions[i].generation);

		if (n != NULL)
			n->nexus->attention |= note->attentions[i].bits;
	}
	free(note);
	for (unsigned event = 0; events != 0; event++, events >>= 1) {
		if (events & 1)
			here_event(far, event);
	}
}

void dom__far_tell(struct dom__far *far, unsigned events)
{
	struct dom__far_nexus *n;
	struct note *note;
	unsigned count = 0;

	TAILQ_FOREACH (n, &far->shadows, there)
		count++;
	note = need(sizeof(*note) + count * sizeof(note->attentions[0]));
	note->task.cb = here_note;
	note->far = far;
	note->events = events;
	there_state(far, &note->state);
	TAILQ_FOREACH (n, &far->shadows, there) {
		if (n->shadow.attention != 0)
			note->attentions[note->attentions_count++] =
				(struct attention){ n->generation,
						    n->shadow.attention };
		n->shadow.attention = 0; /* on its way */
	}
	/* The owner's event comes behind the answer: it may be too late. */
	if (note->attentions_count > 0)
		note->events |= 1u << DOM_RESERVATION;
	env_post(far->object.dom->env, &note->task);
}

void dom__far_tell_all(struct dom__owner *owner)
{
	struct dom_object *object;

	TAILQ_FOREACH (object, &owner->objects, link) {
		if (object->told != NULL)
			dom__far_tell(object->told, 0);
	}
}

static void there_event(struct dom_watch *watch, enum dom_event event)
{
	dom__far_tell(container_of(watch, struct dom__far, watch), 1u << event);
}

static void there_look(struct env_task *task)
{
	struct dom__far *far = container_of(task, struct dom__far, look_task);

	far->looking = false;
	dom__far_tell(far, 0);
}

uint64_t dom__far_kept(struct dom__far *far)
{
	if (!far->closing && !atomic_exchange(&far->looking, true)) {
		far->look_task.cb = there_look;
		env_post(far->dom->env, &far->look_task);
	}
	return far->state.kept_bytes;
}

/* ---- opening ---- */

static void here_opened(struct env_task *task)
{
	struct dom__far *far = container_of(task, struct dom__far, task);
	struct dom_object_open *req = far->req;
	struct dom *dom = far->object.dom;
	int status = far->status;

	req->object = status == 0 ? &far->object : NULL;
	if (status < 0) {
		free(far);
		dom->jobs--;
		dom__kick(dom);
	}
	req->cb(req, status);
}

static void there_opened(struct dom_object_open *open, int status)
{
	struct dom__far *far = open->data;

	far->status = status;
	if (status == 0) {
		far->real = open->object;
		far->real->told = far;
		far->watch.cb = there_event;
		dom_object_watch(far->real, &far->watch);
		/* Nobody looks at it before the handle is known. */
		there_state(far, &far->state);
	}
	far->task.cb = here_opened;
	env_post(far->object.dom->env, &far->task);
}

static void there_open(struct env_task *task)
{
	struct dom__far *far = container_of(task, struct dom__far, task);
	int rv;

	far->open.data = far;
	rv = dom_object_open(far->dom, &far->open, &far->object.oid,
			     there_opened);
	if (rv < 0)
		there_opened(&far->open, rv);
}

int dom__far_open(struct dom *dom, struct dom_object_open *req)
{
	struct dom__far *far = calloc(1, sizeof(*far));

	if (far == NULL)
		return -ENOMEM;
	far->object.dom = dom;
	far->object.oid = req->oid;
	far->object.far = far;
	TAILQ_INIT(&far->object.watches);
	TAILQ_INIT(&far->nexuses);
	TAILQ_INIT(&far->shadows);
	far->dom = dom__of(dom, &req->oid);
	far->req = req;
	far->task.cb = there_open;
	dom->jobs++;
	env_post(far->dom->env, &far->task);
	return 0;
}

/* ---- closing ---- */

static void here_closed(struct env_task *task)
{
	struct dom__far *far = container_of(task, struct dom__far, task);
	struct dom *dom = far->object.dom;

	state_fini(&far->state);
	free(far);
	dom->jobs--;
	dom__kick(dom);
}

static void there_close(struct env_task *task)
{
	struct dom__far *far = container_of(task, struct dom__far, task);

	assert(TAILQ_EMPTY(&far->shadows));
	dom_object_unwatch(far->real, &far->watch);
	far->real->told = NULL;
	dom_object_close(far->real);
	task->cb = here_closed;
	env_post(far->object.dom->env, task);
}

/* Nexuses that are still closing keep it. */
static void here_close_look(struct dom__far *far)
{
	if (!far->closing || !TAILQ_EMPTY(&far->nexuses))
		return;
	far->task.cb = there_close;
	env_post(far->dom->env, &far->task);
}

void dom__far_close(struct dom__far *far)
{
	far->closing = true;
	here_close_look(far);
}

/* ---- nexuses ---- */

struct dom__far_nexus *dom__far_nexus_find(struct dom__far *far,
					   uint64_t generation)
{
	struct dom__far_nexus *n;

	if (generation == 0)
		return NULL;
	TAILQ_FOREACH (n, &far->nexuses, here) {
		if (n->generation == generation)
			return n;
	}
	return NULL;
}

static void there_nexus_open(struct env_task *task)
{
	struct dom__far_nexus *n =
		container_of(task, struct dom__far_nexus, task);

	TAILQ_INSERT_TAIL(&n->far->shadows, n, there);
	dom_nexus_open(n->far->real, &n->shadow);
}

static struct dom__far_nexus *nexus_new(struct dom__far *far,
					struct dom_nexus *nexus)
{
	struct dom__far_nexus *n = need(sizeof(*n));

	memcpy(n->shadow.initiator_port, nexus->initiator_port,
	       sizeof(n->shadow.initiator_port));
	n->shadow.target_port = nexus->target_port;
	n->nexus = nexus;
	n->far = far;
	TAILQ_INSERT_TAIL(&far->nexuses, n, here);
	return n;
}

void dom__far_nexus_open(struct dom__far *far, struct dom_nexus *nexus)
{
	struct dom__far_nexus *n = nexus_new(far, nexus);

	nexus->generation = n->generation = ++far->object.dom->generation;
	nexus->attention = 0;
	nexus->closing = false;
	n->task.cb = there_nexus_open;
	env_post(far->dom->env, &n->task);
}

static void here_nexus_closed(struct env_task *task)
{
	struct dom__far_nexus *n =
		container_of(task, struct dom__far_nexus, close);
	struct dom_nexus *nexus = n->nexus;
	struct dom__far *far = n->far;
	void (*cb)(void *arg) = nexus->cb;
	void *arg = nexus->arg;

	TAILQ_REMOVE(&far->nexuses, n, here);
	nexus->generation = 0;
	free(n);
	here_close_look(far);
	if (cb != NULL)
		cb(arg);
}

static void there_nexus_closed(void *arg)
{
	struct dom__far_nexus *n = arg;

	if (n->generation != 0)
		TAILQ_REMOVE(&n->far->shadows, n, there);
	n->close.cb = here_nexus_closed;
	env_post(n->far->object.dom->env, &n->close);
}

static void there_nexus_close(struct env_task *task)
{
	struct dom__far_nexus *n =
		container_of(task, struct dom__far_nexus, close);

	dom_nexus_close(n->far->real, &n->shadow, there_nexus_closed, n);
}

void dom__far_nexus_close(struct dom__far *far, struct dom_nexus *nexus,
			  void (*cb)(void *arg), void *arg)
{
	struct dom__far_nexus *n = dom__far_nexus_find(far, nexus->generation);

	if (n == NULL) /* it never opened: there is only the answer to give */
		n = nexus_new(far, nexus);
	nexus->closing = true;
	nexus->cb = cb;
	nexus->arg = arg;
	n->close.cb = there_nexus_close;
	env_post(far->dom->env, &n->close);
}
