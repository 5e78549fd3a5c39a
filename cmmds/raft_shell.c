/*
 * raft_shell: the event loop around raft_step().
 *
 * One event in, one step, its update handled whole in the order that safety
 * asks for (raft.md, 4): term and vote queued, entries into our log and queued,
 * an install queued, messages into the outbox; then state and commit index are
 * looked at, and what became possible is done by settle(): entries applied,
 * snapshots taken, the timer armed.  Steps never nest.
 *
 * The core leaves much to its shell; R1 to R13 here, in raft_start.c,
 * raft_receive.c and raft_outbox.c are the rules of raft.md, 5.  A store that
 * fails a write, or a step that fails, is the end: nothing is sent, applied or
 * answered after it.
 */
#define LOG_ROOM LOG_CMMDS
#include "base/log.h"
#include "cmmds/raft_shell_int.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void shell__fail(struct raft_shell *shell, int status, const char *fmt, ...)
{
	char why[256];
	va_list ap;

	if (shell->failed)
		return;
	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	shell->failed = true;
	shell->ready = false;
	env_timer_stop(shell->env, &shell->timer);
	log_error("the directory stops: %s: %s", why, err_text(status));
	shell->ops->failed(shell->arg, status, why);
}

uint64_t shell__term_of(struct raft_shell *shell, uint64_t index)
{
	const struct log_entry *e = shell__log_at(&shell->log, index);

	if (e != NULL)
		return e->term;
	return index == shell->snapshot.index ? shell->snapshot.term : 0;
}

static uint64_t now_ms(struct raft_shell *shell)
{
	shell->now_ms = MAX(shell->now_ms, env_now(shell->env) / MSEC);
	return shell->now_ms;
}

/* ---- the update ---- */

/* What was written from @from on is no longer what the log holds (R3). */
void shell__clip_writes(struct raft_shell *shell, uint64_t from)
{
	struct shell_write *w;

	if (!shell__rule(shell, RULE_R3))
		return;
	TAILQ_FOREACH (w, &shell->writes, link)
		w->last = MIN(w->last, from - 1);
	shell->reported = MIN(shell->reported, from - 1);
}

static void free_payloads(struct raft_entry *batch, unsigned n)
{
	void *last = NULL;

	for (unsigned i = 0; i < n; i++) {
		if (batch[i].batch == last)
			continue;
		last = batch[i].batch;
		raft_free(last);
	}
}

static void update_entries(struct raft_shell *shell, uint64_t index,
			   struct raft_entry *batch, unsigned n)
{
	struct log_entry *list = cmmds__alloc(n * sizeof(*list));
	struct shell_write *w = cmmds__alloc(sizeof(*w));
	uint64_t ticket;

	assert(index > shell->applied);
	if (index <= shell__log_last(&shell->log)) {
		shell__log_truncate(&shell->log, index);
		shell__clip_writes(shell, index);
	}
	assert(index == shell__log_last(&shell->log) + 1);
	for (unsigned i = 0; i < n; i++) {
		list[i].term = batch[i].term;
		list[i].type = (uint8_t)batch[i].type;
		list[i].len = (uint32_t)batch[i].buf.len;
		list[i].data = batch[i].buf.base;
	}
	ticket = store__append(shell->store, index, list, n);
	for (unsigned i = 0; i < n; i++) {
		list[i].data = cmmds__copy(list[i].data, list[i].len);
		list[i].ticket = ticket;
		shell__log_push(&shell->log, &list[i]);
	}
	free(list);
	free_payloads(batch, n);
	w->ticket = ticket;
	w->last = index + n - 1;
	TAILQ_INSERT_TAIL(&shell->writes, w, link);
}

static void note_state(struct raft_shell *shell)
{
	unsigned short state = (unsigned short)raft_state(&shell->raft);

	/* The commit index of the core can go back (R5); ours does not. */
	if (raft_commit_index(&shell->raft) > shell->commit ||
	    !shell__rule(shell, RULE_R5))
		shell->commit = raft_commit_index(&shell->raft);
	if (state == shell->state)
		return;
	log_debug("raft: %s in term %llu", raft_state_name(state),
		  (unsigned long long)raft_current_term(&shell->raft));
	shell->state = state;
	if (shell->ready) {
		shell->ready = false;
		shell->ops->leading(shell->arg, false);
	}
}

int shell__step(struct raft_shell *shell, struct raft_event *event)
{
	struct raft_update up = { 0 };
	int rv;

	assert(!shell->stepping && !shell->failed);
	shell->stepping = true;
	event->time = now_ms(shell);
	event->capacity = 0;
	rv = raft_step(&shell->raft, event, &up);
	if (rv != 0) {
		shell->stepping = false;
		if (event->type == RAFT_SUBMIT && rv == RAFT_NOTLEADER)
			return -EAGAIN;
		shell__fail(shell, -EIO, "raft refuses event %d: %s",
			    (int)event->type, raft_strerror(rv));
		return -EIO;
	}
	if (up.flags & (RAFT_UPDATE_CURRENT_TERM | RAFT_UPDATE_VOTED_FOR))
		shell->term_ticket =
			store__term(shell->store,
				    raft_current_term(&shell->raft),
				    raft_voted_for(&shell->raft));
	if (up.flags & RAFT_UPDATE_ENTRIES)
		update_entries(shell, up.entries.index, up.entries.batch,
			       up.entries.n);
	if (up.flags & RAFT_UPDATE_SNAPSHOT)
		shell__install_begin(shell, &up);
	if (up.flags & RAFT_UPDATE_MESSAGES)
		shell__outbox_add(shell, up.messages.batch, up.messages.n);
	shell->stepping = false;
	shell__outbox_flush(shell);
	note_state(shell);
	return 0;
}

/* ---- what an update made possible ---- */

int shell__configuration(struct raft_shell *shell, uint64_t index)
{
	const struct log_entry *e = shell__log_at(&shell->log, index);
	struct raft_event event = { .type = RAFT_CONFIGURATION };

	if (index <= shell->conf_fed)
		return 0;
	assert(e != NULL && e->type == RAFT_CHANGE);
	if (codec__conf_decode(e->data, e->len, &event.configuration.conf)) {
		shell__fail(shell, -EUCLEAN, "configuration at index %llu",
			    (unsigned long long)index);
		return -EUCLEAN;
	}
	event.configuration.index = index;
	shell->conf_fed = index;
	return shell__step(shell, &event);
}

static int apply_change(struct raft_shell *shell, uint64_t index,
			const struct log_entry *e)
{
	struct raft_configuration conf;

	if (codec__conf_decode(e->data, e->len, &conf) != 0) {
		shell__fail(shell, -EUCLEAN, "configuration at index %llu",
			    (unsigned long long)index);
		return -EUCLEAN;
	}
	raft_configuration_close(&shell->conf);
	shell->conf = conf;
	shell->conf_index = index;
	return shell__configuration(shell, index);
}

static bool apply_one(struct raft_shell *shell)
{
	uint64_t index = shell->applied + 1, term;
	const struct log_entry *e;
	bool change;
	int rv;

	if (shell->failed || shell->installing || index > shell->commit)
		return false;
	e = shell__log_at(&shell->log, index);
	if (e == NULL)
		return false;
	term = e->term;
	change = e->type == RAFT_CHANGE;
	shell->applied = index;
	shell->bytes_since_snapshot += e->len + SHELL_ENTRY_OVERHEAD;
	rv = shell->ops->apply(shell->arg, index, term, e->type, e->data,
			       e->len);
	/* What it called may have made the log grow, and so move. */
	if (rv == 0 && change)
		rv = apply_change(shell, index,
				  shell__log_at(&shell->log, index));
	if (rv != 0) {
		shell__fail(shell, rv, "entry %llu cannot be applied",
			    (unsigned long long)index);
		return false;
	}
	if (shell->state == RAFT_LEADER && !shell->ready &&
	    term == raft_current_term(&shell->raft)) {
		shell->ready = true;
		shell->ops->leading(shell->arg, true);
	}
	return true;
}

static int submit(struct raft_shell *shell, const struct shell_submit *list,
		  unsigned count)
{
	unsigned n = count ? count : 1;
	struct raft_event event = { .type = RAFT_SUBMIT };
	struct raft_entry *entries = cmmds__alloc(n * sizeof(*entries));
	size_t bytes = 8;
	uint8_t *at;
	int rv;

	for (unsigned i = 0; i < count; i++)
		bytes += ROUND_UP(list[i].len, 8);
	at = raft_malloc(bytes);
	if (at == NULL)
		abort();
	memset(at, 0, bytes);
	for (unsigned i = 0; i < n; i++) {
		entries[i].term = raft_current_term(&shell->raft);
		entries[i].type = count ? RAFT_COMMAND : RAFT_BARRIER;
		entries[i].batch = i == 0 ? at : entries[0].batch;
		entries[i].buf.base = at;
		entries[i].buf.len = count ? list[i].len : 8;
		if (count > 0) {
			memcpy(at, list[i].data, list[i].len);
			at += ROUND_UP(list[i].len, 8);
		}
	}
	event.submit.entries = entries;
	event.submit.n = n;
	rv = shell__step(shell, &event);
	if (rv == -EAGAIN)
		raft_free(entries[0].batch);
	free(entries);
	return rv;
}

/*
 * A new leader has an entry of its own term, always: the core does not see to
 * it, and without one an entry committed before could be lost (R1).
 */
static bool own_term_entry(struct raft_shell *shell)
{
	if (shell->failed || !shell__rule(shell, RULE_R1) ||
	    shell->state != RAFT_LEADER || shell->ready ||
	    shell__term_of(shell, shell__log_last(&shell->log)) ==
		    raft_current_term(&shell->raft))
		return false;
	return submit(shell, NULL, 0) == 0;
}

/* ---- time ---- */

static void timer_arm(struct raft_shell *shell)
{
	uint64_t now = now_ms(shell), due = raft_timeout(&shell->raft);
	uint64_t delay = due > now ? due - now : 0;

	/* A demoted member keeps a leader's timer in the past (R9). */
	if (delay == 0 && shell->state == RAFT_LEADER &&
	    shell__rule(shell, RULE_R9) && shell->timeout_ms == now)
		delay = shell->raft.heartbeat_timeout / 2;
	env_timer_start(shell->env, &shell->timer, delay * MSEC);
}

void shell__on_timer(struct env_timer *timer)
{
	struct raft_shell *shell =
		container_of(timer, struct raft_shell, timer);
	struct raft_event event = { .type = RAFT_TIMEOUT };

	if (shell->failed || !shell->started)
		return;
	if (raft_timeout(&shell->raft) <= now_ms(shell)) {
		if (shell->state == RAFT_CANDIDATE) {
			/* Every round begins as the first one (R8b, R8c). */
			if (shell__rule(shell, RULE_R8B))
				shell->raft.candidate_state.in_pre_vote =
					shell->raft.pre_vote;
			if (shell__rule(shell, RULE_R8C))
				shell->raft.candidate_state.disrupt_leader =
					false;
		}
		shell->timeout_ms = shell->now_ms;
		if (shell__step(shell, &event) != 0)
			return;
	}
	shell__settle(shell);
}

void shell__settle(struct raft_shell *shell)
{
	if (shell->failed || !shell->started || shell->settling)
		return;
	shell->settling = true;
	do
		shell__snapshot_if_due(shell);
	while (!shell->failed && (own_term_entry(shell) || apply_one(shell)));
	shell->settling = false;
	if (!shell->failed && !shell->closing)
		timer_arm(shell);
}

void shell__on_settle(struct env_task *task)
{
	struct raft_shell *shell = container_of(task, struct raft_shell, task);

	if (!shell->closing)
		shell__settle(shell);
}

void shell__settle_soon(struct raft_shell *shell)
{
	env_defer(shell->env, &shell->task);
}

/* ---- the rest of the face ---- */

int shell__submit(struct raft_shell *shell, const struct shell_submit *list,
		  unsigned count, uint64_t *index, uint64_t *term)
{
	int rv;

	if (shell->failed || shell->closing)
		return -ESHUTDOWN;
	/* Before the own-term entry is applied nothing is decided (R1). */
	if (!shell->ready)
		return -EAGAIN;
	*index = shell__log_last(&shell->log) + 1;
	*term = raft_current_term(&shell->raft);
	rv = submit(shell, list, count);
	shell__settle_soon(shell);
	return rv;
}

bool shell__leading(const struct raft_shell *shell)
{
	return shell->ready && !shell->failed;
}

unsigned shell__voters(const struct raft_shell *shell)
{
	return codec__conf_voters(&shell->conf);
}

void shell__info(const struct raft_shell *shell, struct shell_info *out)
{
	*out = (struct shell_info){
		.leader = shell__leading(shell),
		.failed = shell->failed,
		.id = shell->raft.id,
		.term = raft_current_term(&shell->raft),
		.commit = shell->commit,
		.applied = shell->applied,
		.first = shell->log.first,
		.last = shell__log_last(&shell->log),
		.snapshot_index = shell->snapshot.index,
		.log_bytes = shell->log.bytes,
		.voters = shell__voters(shell),
		.only_voter = shell->only_voter,
		.wants = store__wants(shell->store),
		.silent_ns = store__silent_ns(shell->store),
		.snapshot_status = shell->snapshot_status,
	};
	for (unsigned i = 0; i < shell->conf.n; i++)
		out->standbys += shell->conf.servers[i].role == RAFT_STANDBY;
}
