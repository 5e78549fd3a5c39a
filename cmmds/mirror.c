/*
 * mirror: the directory on another shard.
 *
 * The directory posts every change to its mirrors before it answers the command
 * that made it; what one shard posts to another arrives in order, so a mirror has
 * what was answered.  Commands and barriers go the other way as they are: while
 * one is out, its memory is the directory's.
 *
 * "here" is the mirror's shard, "there" the directory's.
 */
#include "cmmds/cmmds_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define TIMEOUT_NS (10 * SEC)
#define AGAIN_NS (10 * MSEC)

static const bool mirrored[CMMDS_KINDS] = {
	[CMMDS_CLUSTER] = true, [CMMDS_NODE] = true,
	[CMMDS_DISK] = true,	[CMMDS_POLICY] = true,
	[CMMDS_OBJECT] = true,	[CMMDS_RESERVATION] = true,
};

/* ---- changes ---- */

struct note {
	struct env_task task;
	struct cmmds *mirror;
	enum cmmds_kind kind;
	uint64_t revision;
	bool gone;
	void *key, *value;
	size_t key_len, value_len;
};

static void here_note(struct env_task *task)
{
	struct note *n = container_of(task, struct note, task);
	struct cmmds *mirror = n->mirror;
	struct cmmds_change change = { .kind = n->kind };
	struct state_entry *old = (struct state_entry *)state__find(
		&mirror->state, n->kind, n->key, n->key_len);
	struct state_entry *new;

	if (old != NULL) {
		tree__remove(&mirror->state, old);
		change.old_entry = &old->pub;
	}
	if (!n->gone) {
		ProtobufCMessage *message =
			protobuf_c_message_unpack(rules__descriptor(n->kind),
						  &cmmds__allocator,
						  n->value_len, n->value);

		assert(message != NULL); /* it was unpacked there already */
		new = tree__entry_make(n->kind, n->key, n->key_len, n->revision,
				       n->value, n->value_len, message);
		tree__insert(&mirror->state, new);
		change.new_entry = &new->pub;
	}
	mirror->state.revision = MAX(mirror->state.revision, n->revision);
	subscribe__deliver(mirror, &change);
	tree__entry_free(old);
	free(n->key);
	free(n->value);
	free(n);
}

static void there_note(struct cmmds *mirror, const struct cmmds_entry *e,
		       bool gone)
{
	struct note *n = cmmds__alloc(sizeof(*n));

	n->task.cb = here_note;
	n->mirror = mirror;
	n->kind = e->kind;
	n->revision = e->revision;
	n->gone = gone;
	n->key = cmmds__copy(e->key, e->key_len);
	n->key_len = e->key_len;
	n->value = cmmds__copy(e->value, e->value_len);
	n->value_len = e->value_len;
	env_post(mirror->env, &n->task);
}

void mirror__tell(struct cmmds *home, const struct cmmds_change *change)
{
	const struct cmmds_entry *e =
		change->new_entry ? change->new_entry : change->old_entry;
	struct cmmds *mirror;

	if (home->home != NULL || !mirrored[change->kind])
		return;
	TAILQ_FOREACH (mirror, &home->mirrors, link)
		there_note(mirror, e, change->new_entry == NULL);
}

/* ---- commands and barriers ---- */

struct hop {
	struct env_task task;
	struct cmmds *mirror;
	struct cmmds_command *cmd;
	cmmds_command_cb command_cb;
	struct cmmds_barrier *barrier;
	cmmds_barrier_cb barrier_cb;
	unsigned timeout_ms;
	uint64_t patience_ns;
	struct env_timer timer; /* there: the directory was busy */
	int status;
};

static void here_answer(struct env_task *task)
{
	struct hop hop = *container_of(task, struct hop, task);

	free(container_of(task, struct hop, task));
	assert(hop.mirror->hops > 0);
	hop.mirror->hops--;
	if (hop.cmd != NULL) {
		hop.cmd->cmmds = hop.mirror;
		hop.command_cb(hop.cmd, hop.status);
	} else {
		hop.barrier_cb(hop.barrier, hop.status);
	}
}

static void there_answer(struct hop *hop, int status)
{
	hop->status = status;
	hop->task.cb = here_answer;
	env_post(hop->mirror->env, &hop->task);
}

static void there_applied(struct cmmds_command *cmd, int status)
{
	there_answer(cmd->hop, status);
}

static void there_reached(struct cmmds_barrier *req, int status)
{
	there_answer(req->hop, status);
}

static void there_ask(struct hop *hop);

static void there_again(struct env_timer *timer)
{
	there_ask(container_of(timer, struct hop, timer));
}

static void there_ask(struct hop *hop)
{
	struct cmmds *home = hop->mirror->home;
	struct cmmds_command *cmd = hop->cmd;
	int rv;

	if (cmd == NULL) {
		hop->barrier->hop = hop;
		rv = cmmds_barrier(home, hop->barrier, there_reached);
	} else if (cmd->message->sequence == 0) {
		cmd->hop = hop;
		rv = cmmds_propose(home, cmd, hop->timeout_ms, there_applied);
	} else {
		cmd->hop = hop;
		cmd->cmmds = home;
		rv = cmmds_propose_again(cmd, hop->timeout_ms, there_applied);
	}
	if (rv == -EBUSY && env_now(home->env) < hop->patience_ns) {
		hop->timer.cb = there_again;
		env_timer_start(home->env, &hop->timer, AGAIN_NS);
	} else if (rv != 0) {
		there_answer(hop, rv == -EBUSY ? -ETIMEDOUT : rv);
	}
}

static void there_asked(struct env_task *task)
{
	there_ask(container_of(task, struct hop, task));
}

static void hop_send(struct cmmds *mirror, struct hop *hop)
{
	hop->mirror = mirror;
	hop->patience_ns = env_now(mirror->env) + TIMEOUT_NS;
	hop->task.cb = there_asked;
	mirror->hops++;
	env_post(mirror->home->env, &hop->task);
}

int mirror__propose(struct cmmds *mirror, struct cmmds_command *cmd,
		    unsigned timeout_ms, cmmds_command_cb cb)
{
	struct hop *hop;

	if (mirror->hops >= CMMDS_PROPOSALS_MAX)
		return -EBUSY;
	hop = cmmds__alloc(sizeof(*hop));
	hop->cmd = cmd;
	hop->command_cb = cb;
	hop->timeout_ms = timeout_ms;
	hop_send(mirror, hop);
	return 0;
}

int mirror__barrier(struct cmmds *mirror, struct cmmds_barrier *req,
		    cmmds_barrier_cb cb)
{
	struct hop *hop = cmmds__alloc(sizeof(*hop));

	hop->barrier = req;
	hop->barrier_cb = cb;
	hop_send(mirror, hop);
	return 0;
}

/* ---- opening and closing ---- */

static void here_turn(struct env_task *task)
{
	subscribe__prime(container_of(task, struct cmmds, task));
}

struct cmmds *cmmds_mirror_open(struct cmmds *home, struct env *env)
{
	struct cmmds *mirror = cmmds__alloc(sizeof(*mirror));

	assert(home->home == NULL && home->opening == NULL);
	mirror->env = env;
	mirror->home = home;
	mirror->config = home->config;
	mirror->task.cb = here_turn;
	TAILQ_INIT(&mirror->subscriptions);
	TAILQ_INIT(&mirror->mirrors);
	state__init(&mirror->state);
	TAILQ_INSERT_TAIL(&home->mirrors, mirror, link);
	for (int kind = 1; kind < CMMDS_KINDS; kind++) {
		const struct cmmds_entry *e = NULL;

		while (mirrored[kind] &&
		       (e = cmmds_next(home, (enum cmmds_kind)kind, e)) != NULL)
			there_note(mirror, e, false);
	}
	return mirror;
}

static void there_closed(struct env_task *task)
{
	struct cmmds *mirror = container_of(task, struct cmmds, close_task);
	void (*cb)(void *arg) = mirror->close_cb;
	void *arg = mirror->close_arg;

	free(mirror);
	cb(arg);
}

static void here_close(struct env_task *task)
{
	struct cmmds *mirror = container_of(task, struct cmmds, close_task);

	assert(mirror->hops == 0);
	subscribe__fini(mirror);
	if (mirror->task.queued) { /* it names the mirror: behind it */
		env_post(mirror->env, task);
		return;
	}
	state__fini(&mirror->state);
	task->cb = there_closed;
	env_post(mirror->home->env, task);
}

void cmmds_mirror_close(struct cmmds *mirror, void (*cb)(void *arg), void *arg)
{
	TAILQ_REMOVE(&mirror->home->mirrors, mirror, link);
	mirror->close_cb = cb;
	mirror->close_arg = arg;
	mirror->close_task.cb = here_close;
	env_post(mirror->env, &mirror->close_task);
}
