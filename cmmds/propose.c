/*
 * propose: commands and barriers on their way through the log.
 *
 * All that is proposed in a turn of the loop is submitted together at its end:
 * one append, one sync.  A command is answered when an entry with its (client,
 * incarnation, sequence) is applied, whoever's term carried it.  If something
 * else was applied at its index it is lost for certain and submitted again:
 * being applied twice is what its request id prevents.  Losing leadership
 * decides nothing; only the deadline does, with "unknown".
 */
#include "cmmds/cmmds_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define TIMEOUT_MS 10000u
#define SUBMIT_MAX 64u
#define SUBMIT_BYTES_MAX (4u << 20)
#define PENDING_BYTES_MAX (32u << 20)

/* ---- deadlines ---- */

static void deadline_arm(struct cmmds *cmmds)
{
	uint64_t due = UINT64_MAX, now = env_now(cmmds->env);
	struct cmmds_command *cmd;
	struct cmmds_barrier *bar;

	TAILQ_FOREACH (cmd, &cmmds->commands, link)
		due = MIN(due, cmd->deadline_ns);
	/* There may be many, but all wait equally long: the first is due. */
	bar = TAILQ_FIRST(&cmmds->barriers);
	if (bar != NULL)
		due = MIN(due, bar->deadline_ns);
	if (due == UINT64_MAX)
		env_timer_stop(cmmds->env, &cmmds->deadline);
	else
		env_timer_start(cmmds->env, &cmmds->deadline,
				due > now ? due - now : 0);
}

static void command_finish(struct cmmds *cmmds, struct cmmds_command *cmd,
			   int status)
{
	TAILQ_REMOVE(&cmmds->commands, cmd, link);
	assert(cmmds->commands_count > 0);
	cmmds->commands_count--;
	free(cmd->packed);
	cmd->packed = NULL;
	cmd->cb(cmd, status);
}

static void barrier_finish(struct cmmds *cmmds, struct cmmds_barrier *bar,
			   int status)
{
	TAILQ_REMOVE(&cmmds->barriers, bar, link);
	bar->cb(bar, status);
}

/* A callback may change the lists: search afresh after each. */
static bool expire_one(struct cmmds *cmmds)
{
	uint64_t now = env_now(cmmds->env);
	struct cmmds_command *cmd;
	struct cmmds_barrier *bar;

	TAILQ_FOREACH (cmd, &cmmds->commands, link) {
		if (cmd->deadline_ns > now)
			continue;
		rules__refuse(cmd->why, "no answer in time: it may be applied "
					"or not");
		command_finish(cmmds, cmd, -ETIMEDOUT);
		return true;
	}
	TAILQ_FOREACH (bar, &cmmds->barriers, link) {
		if (bar->deadline_ns > now)
			continue;
		barrier_finish(cmmds, bar, -ETIMEDOUT);
		return true;
	}
	return false;
}

static void on_deadline(struct env_timer *timer)
{
	struct cmmds *cmmds = container_of(timer, struct cmmds, deadline);

	while (!cmmds->closing && expire_one(cmmds))
		;
	if (!cmmds->closing)
		deadline_arm(cmmds);
}

void propose__init(struct cmmds *cmmds)
{
	TAILQ_INIT(&cmmds->commands);
	TAILQ_INIT(&cmmds->barriers);
	cmmds->deadline.cb = on_deadline;
}

/* ---- asking ---- */

/* The window of the state machine must hold all that is in flight. */
static bool window_full(const struct cmmds *cmmds, uint64_t sequence)
{
	const struct cmmds_command *cmd;

	TAILQ_FOREACH (cmd, &cmmds->commands, link)
		if (cmd->message->sequence + CMMDS_WINDOW <= sequence)
			return true;
	return false;
}

static int enqueue(struct cmmds *cmmds, struct cmmds_command *cmd,
		   unsigned timeout_ms, cmmds_command_cb cb)
{
	uint8_t *packed;
	size_t len;
	int rv;

	if (cmmds->closing)
		return -ESHUTDOWN;
	if (cmmds->failed)
		return -EIO;
	if (cmmds->commands_count == CMMDS_PROPOSALS_MAX ||
	    store__pending_bytes(cmmds->store_open.store) > PENDING_BYTES_MAX)
		return -EBUSY;
	rv = command__pack(cmd, &packed, &len);
	if (rv != 0)
		return rv;
	cmd->cmmds = cmmds;
	cmd->cb = cb;
	cmd->deadline_ns = env_now(cmmds->env) +
			   (timeout_ms ? timeout_ms : TIMEOUT_MS) * MSEC;
	cmd->packed = packed;
	cmd->packed_len = len;
	cmd->index = 0;
	TAILQ_INSERT_TAIL(&cmmds->commands, cmd, link);
	cmmds->commands_count++;
	deadline_arm(cmmds);
	cmmds__turn_end_soon(cmmds);
	return 0;
}

int cmmds_propose(struct cmmds *cmmds, struct cmmds_command *cmd,
		  unsigned timeout_ms, cmmds_command_cb cb)
{
	Directory__Command *m = cmd->message;
	int rv;

	assert(m != NULL && m->sequence == 0);
	if (cmmds->home != NULL)
		return mirror__propose(cmmds, cmd, timeout_ms, cb);
	if (window_full(cmmds, cmmds->sequence + 1))
		return -EBUSY;
	if (m->client.data == NULL) {
		m->client.data = cmmds__copy(cmmds->config.node.b,
					     sizeof(cmmds->config.node.b));
		m->client.len = sizeof(cmmds->config.node.b);
		m->incarnation = cmmds->config.incarnation;
	}
	if (m->audit != NULL)
		m->audit->wall_ns = env_wall_ns(cmmds->env);
	m->sequence = cmmds->sequence + 1;
	rv = enqueue(cmmds, cmd, timeout_ms, cb);
	if (rv == 0)
		cmmds->sequence++;
	else
		m->sequence = 0;
	return rv;
}

int cmmds_propose_again(struct cmmds_command *cmd, unsigned timeout_ms,
			cmmds_command_cb cb)
{
	assert(cmd->cmmds != NULL);
	if (cmd->cmmds->home != NULL)
		return mirror__propose(cmd->cmmds, cmd, timeout_ms, cb);
	assert(cmd->message->sequence != 0);
	assert(cmd->packed == NULL);
	return enqueue(cmd->cmmds, cmd, timeout_ms, cb);
}

int cmmds_barrier(struct cmmds *cmmds, struct cmmds_barrier *req,
		  cmmds_barrier_cb cb)
{
	if (cmmds->home != NULL)
		return mirror__barrier(cmmds, req, cb);
	if (cmmds->closing)
		return -ESHUTDOWN;
	if (cmmds->failed)
		return -EIO;
	req->cmmds = cmmds;
	req->cb = cb;
	req->deadline_ns = env_now(cmmds->env) + TIMEOUT_MS * MSEC;
	req->index = req->term = 0;
	TAILQ_INSERT_TAIL(&cmmds->barriers, req, link);
	deadline_arm(cmmds);
	cmmds__turn_end_soon(cmmds);
	return 0;
}

/* ---- submitting ---- */

/* Gives the last index, 0 if nothing was submitted. */
static uint64_t submit_some(struct cmmds *cmmds, uint64_t *term)
{
	struct shell_submit list[SUBMIT_MAX];
	struct cmmds_command *cmds[SUBMIT_MAX], *cmd;
	unsigned count = 0;
	uint64_t index;
	size_t bytes = 0;

	TAILQ_FOREACH (cmd, &cmmds->commands, link) {
		if (cmd->index != 0)
			continue;
		if (count == SUBMIT_MAX || bytes > SUBMIT_BYTES_MAX)
			break;
		list[count].data = cmd->packed;
		list[count].len = cmd->packed_len;
		bytes += cmd->packed_len;
		cmds[count++] = cmd;
	}
	if (count == 0 ||
	    shell__submit(cmmds->shell, list, count, &index, term) != 0)
		return 0;
	for (unsigned i = 0; i < count; i++)
		cmds[i]->index = index + i;
	return index + count - 1;
}

/*
 * A barrier is answered when an entry submitted after it was asked for is
 * applied: any of this turn's commands, or one entry made for all barriers.
 */
static void submit_barriers(struct cmmds *cmmds, uint64_t index, uint64_t term)
{
	struct cmmds_barrier *bar;

	TAILQ_FOREACH (bar, &cmmds->barriers, link) {
		if (bar->index != 0)
			continue;
		if (index == 0 &&
		    shell__submit(cmmds->shell, NULL, 0, &index, &term) != 0)
			return;
		bar->index = index;
		bar->term = term;
	}
}

void propose__flush(struct cmmds *cmmds)
{
	uint64_t index = 0, term = 0, last;

	if (!shell__leading(cmmds->shell))
		return;
	while ((last = submit_some(cmmds, &term)) != 0)
		index = last;
	if (shell__leading(cmmds->shell))
		submit_barriers(cmmds, index, term);
}

void propose__again(struct cmmds *cmmds)
{
	struct cmmds_command *cmd;
	struct cmmds_barrier *bar;

	TAILQ_FOREACH (cmd, &cmmds->commands, link)
		cmd->index = 0;
	TAILQ_FOREACH (bar, &cmmds->barriers, link)
		bar->index = 0;
	cmmds__turn_end_soon(cmmds);
}

/* ---- answers ---- */

static struct cmmds_command *find_command(struct cmmds *cmmds,
					  const struct state_result *result)
{
	struct cmmds_command *cmd;

	if (result == NULL || result->sequence == 0 ||
	    result->incarnation != cmmds->config.incarnation ||
	    !uuid_equal(&result->client, &cmmds->config.node))
		return NULL;
	TAILQ_FOREACH (cmd, &cmmds->commands, link)
		if (cmd->message->sequence == result->sequence)
			return cmd;
	return NULL;
}

static struct cmmds_barrier *find_barrier(struct cmmds *cmmds, uint64_t index)
{
	struct cmmds_barrier *bar;

	TAILQ_FOREACH (bar, &cmmds->barriers, link)
		if (bar->index == index)
			return bar;
	return NULL;
}

void propose__applied(struct cmmds *cmmds, uint64_t index, uint64_t term,
		      const struct state_result *result)
{
	struct cmmds_command *cmd = find_command(cmmds, result), *lost;
	struct cmmds_barrier *bar;

	/* Another entry took its place: again, under the same request id. */
	TAILQ_FOREACH (lost, &cmmds->commands, link) {
		if (lost == cmd || lost->index != index)
			continue;
		lost->index = 0;
		cmmds__turn_end_soon(cmmds);
	}
	if (cmd != NULL) {
		cmd->revision = result->revision;
		snprintf(cmd->why, sizeof(cmd->why), "%s", result->why);
		command_finish(cmmds, cmd, result->status);
	}
	while ((bar = find_barrier(cmmds, index)) != NULL) {
		if (bar->term == term) {
			barrier_finish(cmmds, bar, 0);
		} else {
			bar->index = 0;
			cmmds__turn_end_soon(cmmds);
		}
	}
}

void propose__fail_all(struct cmmds *cmmds, int status)
{
	struct cmmds_command *cmd;
	struct cmmds_barrier *bar;

	while ((cmd = TAILQ_FIRST(&cmmds->commands)) != NULL)
		command_finish(cmmds, cmd, status);
	while ((bar = TAILQ_FIRST(&cmmds->barriers)) != NULL)
		barrier_finish(cmmds, bar, status);
	env_timer_stop(cmmds->env, &cmmds->deadline);
}
