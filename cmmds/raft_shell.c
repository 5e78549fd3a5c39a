/*
 * raft_shell: the event loop around raft_step().
 *
 * One event in, one step, its update handled whole in the order that safety
 * asks for (raft.md, 4): term and vote queued, entries into our log and queued,
 * an install queued, messages into the outbox; then state and commit index are
 * looked at, and what became possible is done by settle(): entries applied,
 * snapshots taken, the timer armed.  Steps never nest.
 *
 * The core leaves much to its shell; R1 to R12 below and in raft_receive.c are
 * the rules of raft.md, 5.  A store that fails a write, or a step that fails,
 * is the end: nothing is sent, applied or answered after it.
 */
#define LOG_ROOM LOG_CMMDS
#include "base/log.h"
#include "cmmds/raft_shell_int.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define ENTRY_OVERHEAD 32u

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
static void clip_writes(struct raft_shell *shell, uint64_t from)
{
	struct shell_write *w;

	if (!shell__rule(shell, RULE_R3))
		return;
	TAILQ_FOREACH(w, &shell->writes, link)
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
		clip_writes(shell, index);
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

/*
 * The core has forgotten its log already.  Ours on the disk stays until the
 * write that replaces it is durable, which is right after a crash.
 */
static void update_install(struct raft_shell *shell, struct raft_update *up)
{
	struct raft_snapshot_metadata *meta = &up->snapshot.metadata;
	struct log_snapshot *snap = &shell->install;
	struct codec_buf conf = { 0 };

	assert(!shell->installing);
	assert(meta->index > shell->applied);
	codec__conf_encode(&meta->configuration, &conf);
	snap->index = meta->index;
	snap->term = meta->term;
	snap->conf_index = meta->configuration_index;
	snap->conf = conf.data;
	snap->conf_len = conf.len;
	snap->data = cmmds__copy(up->snapshot.chunk.base,
				 up->snapshot.chunk.len);
	snap->len = up->snapshot.chunk.len;
	raft_free(up->snapshot.chunk.base);
	shell->install_meta = *meta;
	shell->installing = true;
	clip_writes(shell, 1);
	shell__log_reset(&shell->log, snap->index + 1);
	shell->install_ticket = store__install(shell->store, snap);
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
		update_install(shell, &up);
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
	shell->bytes_since_snapshot += e->len + ENTRY_OVERHEAD;
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

/* ---- snapshots of our own ---- */

/* How many entries to keep behind, for members that come back soon. */
static unsigned trailing(struct raft_shell *shell)
{
	uint64_t bytes = 0, index = shell->applied;
	unsigned n = 0;

	while (n < SHELL_TRAILING_MAX) {
		const struct log_entry *e = shell__log_at(&shell->log, index);

		if (e == NULL)
			break;
		bytes += e->len + ENTRY_OVERHEAD;
		if (bytes > shell->snapshot_bytes / 4)
			break;
		index--;
		n++;
	}
	return n;
}

static bool snapshot_if_due(struct raft_shell *shell)
{
	struct log_snapshot *snap = &shell->compact;
	struct codec_buf conf = { 0 };
	int rv;

	if (shell->failed || shell->compacting || shell->installing ||
	    shell->bytes_since_snapshot < shell->snapshot_bytes ||
	    shell->applied <= shell->snapshot.index ||
	    shell->applied > shell->reported)
		return false;
	rv = shell->ops->take(shell->arg, &snap->data, &snap->len);
	if (rv != 0) {
		log_warn("no directory snapshot: %s", err_text(rv));
		shell->bytes_since_snapshot = 0;
		return false;
	}
	codec__conf_encode(&shell->conf, &conf);
	snap->index = shell->applied;
	snap->term = shell__term_of(shell, shell->applied);
	snap->conf = conf.data;
	snap->conf_len = conf.len;
	snap->conf_index = shell->conf_index;
	shell->compacting = true;
	shell->compact_trailing = trailing(shell);
	shell->compact_ticket =
		store__compact(shell->store, snap,
			       snap->index - shell->compact_trailing + 1);
	shell->bytes_since_snapshot = 0;
	return false;
}

/* Durable: the core may forget, and so do we, exactly as it does. */
static void snapshot_done(struct raft_shell *shell)
{
	struct raft_event event = { .type = RAFT_SNAPSHOT };
	struct log_snapshot *snap = &shell->compact;
	uint64_t keep = snap->index - shell->compact_trailing + 1;

	shell->compacting = false;
	/* An install began meanwhile: its snapshot is the newer one (R4). */
	if (shell->installing || snap->index <= shell->snapshot.index) {
		codec__snapshot_fini(snap);
		return;
	}
	codec__snapshot_fini(&shell->snapshot);
	shell->snapshot = *snap;
	memset(snap, 0, sizeof(*snap));
	snap = &shell->snapshot;
	log_info("directory snapshot at index %llu, %zu bytes",
		 (unsigned long long)snap->index, snap->len);
	event.snapshot.metadata.index = snap->index;
	event.snapshot.metadata.term = snap->term;
	event.snapshot.metadata.configuration_index = snap->conf_index;
	if (codec__conf_decode(snap->conf, snap->conf_len,
			       &event.snapshot.metadata.configuration) != 0)
		abort(); /* we encoded it */
	event.snapshot.trailing = shell->compact_trailing;
	shell__log_drop_before(&shell->log, keep);
	shell__step(shell, &event);
}

static void install_done(struct raft_shell *shell)
{
	struct raft_event event = { .type = RAFT_PERSISTED_SNAPSHOT };
	struct log_snapshot *snap = &shell->install;
	int rv;

	rv = shell->ops->restore(shell->arg, snap->index, snap->data,
				 snap->len);
	if (rv != 0) {
		shell__fail(shell, rv, "the snapshot received cannot be "
				       "restored");
		return;
	}
	shell->installing = false;
	shell->applied = snap->index;
	shell->commit = MAX(shell->commit, snap->index);
	shell->reported = snap->index;
	raft_configuration_close(&shell->conf);
	if (codec__conf_decode(snap->conf, snap->conf_len, &shell->conf) != 0)
		abort(); /* we encoded it */
	shell->conf_index = snap->conf_index;
	shell->conf_fed = MAX(shell->conf_fed, snap->conf_index);
	shell->bytes_since_snapshot = 0;
	codec__snapshot_fini(&shell->snapshot);
	shell->snapshot = *snap;
	memset(snap, 0, sizeof(*snap));
	event.persisted_snapshot.metadata = shell->install_meta;
	memset(&shell->install_meta, 0, sizeof(shell->install_meta));
	event.persisted_snapshot.last = true;
	shell__step(shell, &event);
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

static void on_timer(struct env_timer *timer)
{
	struct raft_shell *shell = container_of(timer, struct raft_shell,
						timer);
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
	while (!shell->failed &&
	       (own_term_entry(shell) || apply_one(shell) ||
		snapshot_if_due(shell)))
		;
	shell->settling = false;
	if (!shell->failed && !shell->closing)
		timer_arm(shell);
}

static void on_settle(struct env_task *task)
{
	struct raft_shell *shell = container_of(task, struct raft_shell, task);

	if (!shell->closing)
		shell__settle(shell);
}

void shell__settle_soon(struct raft_shell *shell)
{
	env_defer(shell->env, &shell->task);
}

/* ---- starting ---- */

static int start(struct raft_shell *shell)
{
	struct raft_event event = { .type = RAFT_START };
	struct raft_snapshot_metadata meta = { 0 };
	struct shell_log *log = &shell->log;
	struct raft_entry *entries =
		cmmds__alloc((log->count + 1) * sizeof(*entries));
	int rv;

	for (size_t i = 0; i < log->count; i++) {
		const struct log_entry *e = shell__log_at(log, log->first + i);

		entries[i].term = e->term;
		entries[i].type = e->type;
		entries[i].buf.base = e->data;
		entries[i].buf.len = e->len;
	}
	event.start.term = shell->raft.current_term;
	event.start.voted_for = shell->raft.voted_for;
	event.start.start_index = log->first;
	event.start.entries = log->count > 0 ? entries : NULL;
	event.start.n_entries = (unsigned)log->count;
	if (shell->snapshot.index != 0) {
		meta.index = shell->snapshot.index;
		meta.term = shell->snapshot.term;
		meta.configuration_index = shell->snapshot.conf_index;
		if (codec__conf_decode(shell->snapshot.conf,
				       shell->snapshot.conf_len,
				       &meta.configuration) != 0)
			abort(); /* checked when it was loaded */
		event.start.metadata = &meta;
	}
	shell->started = true;
	shell->reported = shell__log_last(log);
	rv = shell__step(shell, &event);
	free(entries);
	return rv;
}

static void on_durable(void *arg, uint64_t ticket)
{
	struct raft_shell *shell = arg;
	struct raft_event event = { .type = RAFT_PERSISTED_ENTRIES };
	struct shell_write *w;
	uint64_t last = 0;

	if (shell->failed)
		return;
	if (!shell->started) {
		if (ticket >= shell->start_ticket && start(shell) == 0)
			shell__settle(shell);
		return;
	}
	while ((w = TAILQ_FIRST(&shell->writes)) != NULL &&
	       w->ticket <= ticket) {
		last = MAX(last, w->last);
		TAILQ_REMOVE(&shell->writes, w, link);
		free(w);
	}
	shell__outbox_flush(shell);
	if (shell->compacting && shell->compact_ticket <= ticket)
		snapshot_done(shell);
	if (!shell->failed && shell->installing &&
	    shell->install_ticket <= ticket)
		install_done(shell);
	if (!shell->failed && !shell->installing && last > shell->reported) {
		shell->reported = last;
		event.persisted_entries.index = last;
		shell__step(shell, &event);
	}
	shell__settle(shell);
}

static void on_store_failed(void *arg, int status)
{
	shell__fail(arg, status, "its store failed a write");
}

/* Newest configuration of log and snapshot: are we its only voter? */
static bool only_voter(struct raft_shell *shell)
{
	struct raft_configuration conf;
	const struct raft_server *us;
	const void *bytes = shell->snapshot.conf;
	size_t len = shell->snapshot.conf_len;
	bool only;

	for (size_t i = 0; i < shell->log.count; i++) {
		const struct log_entry *e =
			shell__log_at(&shell->log, shell->log.first + i);

		if (e->type == RAFT_CHANGE) {
			bytes = e->data;
			len = e->len;
		}
	}
	if (bytes == NULL || codec__conf_decode(bytes, len, &conf) != 0)
		return false;
	us = codec__conf_find(&conf, shell->raft.id);
	only = us != NULL && us->role == RAFT_VOTER &&
	       codec__conf_voters(&conf) == 1;
	raft_configuration_close(&conf);
	return only;
}

static const struct store_ops store_ops = {
	.durable = on_durable,
	.failed = on_store_failed,
};

static int load(struct raft_shell *shell, struct store_loaded *loaded,
		char why[256])
{
	int rv;

	if (loaded->has_snapshot) {
		rv = shell->ops->restore(shell->arg, loaded->snapshot.index,
					 loaded->snapshot.data,
					 loaded->snapshot.len);
		if (rv != 0) {
			snprintf(why, 256, "the directory's snapshot is %s",
				 err_text(rv));
			return rv;
		}
		shell->snapshot = loaded->snapshot;
		memset(&loaded->snapshot, 0, sizeof(loaded->snapshot));
		shell->applied = shell->commit = shell->snapshot.index;
		shell->conf_index = shell->snapshot.conf_index;
		shell->conf_fed = shell->snapshot.conf_index;
		if (codec__conf_decode(shell->snapshot.conf,
				       shell->snapshot.conf_len,
				       &shell->conf) != 0)
			abort(); /* checked when it was loaded */
	}
	shell->log.first = loaded->first;
	for (size_t i = 0; i < loaded->count; i++)
		shell__log_push(&shell->log, &loaded->entries[i]);
	loaded->count = 0; /* the data are the log's now */
	shell->raft.current_term = loaded->term;
	shell->raft.voted_for = loaded->vote;
	return 0;
}

int shell__open(const struct shell_config *config, char why[256],
		struct raft_shell **out)
{
	struct raft_shell *shell = cmmds__alloc(sizeof(*shell));
	struct store_loaded *loaded = config->loaded;
	char address[80];
	int rv;

	shell->env = config->env;
	shell->rules_off = config->rules_off;
	shell->store = config->store;
	shell->ops = config->ops;
	shell->arg = config->arg;
	shell->snapshot_bytes = config->snapshot_bytes;
	shell->timer.cb = on_timer;
	shell->task.cb = on_settle;
	shell->now_ms = 0;
	TAILQ_INIT(&shell->writes);
	TAILQ_INIT(&shell->outbox);
	raft_configuration_init(&shell->conf);
	store__address(&loaded->format, address);
	if (raft_init(&shell->raft, NULL, NULL, loaded->format.store_id,
		      address) != 0)
		abort(); /* memory */
	shell->raft.tracer = NULL;
	raft_seed(&shell->raft, (unsigned)env_rand(shell->env));
	raft_set_election_timeout(&shell->raft, config->election_ms);
	raft_set_heartbeat_timeout(&shell->raft, config->heartbeat_ms);
	raft_set_pre_vote(&shell->raft, true);
	raft_set_max_inflight_entries(&shell->raft, 1024);
	raft_set_install_snapshot_timeout(&shell->raft, 30000);

	rv = load(shell, loaded, why);
	if (rv != 0) {
		raft_close(&shell->raft, NULL);
		raft_configuration_close(&shell->conf);
		free(shell);
		return rv;
	}
	store__start(shell->store, &store_ops, shell);
	/*
	 * The core makes a single voter leader in the term it finds.  What it
	 * sent in that term and then lost in a crash must not be replaced by
	 * something else with the same index and term, so the term rises (R2).
	 * Others write what they have, too: START always follows a write, and
	 * so comes later.
	 */
	shell->only_voter = only_voter(shell);
	if (shell->only_voter && shell__rule(shell, RULE_R2)) {
		shell->raft.current_term++;
		shell->raft.voted_for = shell->raft.id;
	}
	shell->start_ticket = shell->term_ticket =
		store__term(shell->store, shell->raft.current_term,
			    shell->raft.voted_for);
	store__loaded_fini(loaded);
	*out = shell;
	return 0;
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
		.voters = codec__conf_voters(&shell->conf),
		.only_voter = shell->only_voter,
	};
	for (unsigned i = 0; i < shell->conf.n; i++)
		out->standbys += shell->conf.servers[i].role == RAFT_STANDBY;
}

static void on_store_closed(void *arg)
{
	struct raft_shell *shell = arg;
	void (*cb)(void *cb_arg) = shell->close_cb;
	void *cb_arg = shell->close_arg;
	struct shell_write *w;

	while ((w = TAILQ_FIRST(&shell->writes)) != NULL) {
		TAILQ_REMOVE(&shell->writes, w, link);
		free(w);
	}
	shell__outbox_clear(shell);
	shell__log_reset(&shell->log, 1);
	codec__snapshot_fini(&shell->snapshot);
	codec__snapshot_fini(&shell->install);
	codec__snapshot_fini(&shell->compact);
	raft_configuration_close(&shell->install_meta.configuration);
	raft_configuration_close(&shell->conf);
	raft_close(&shell->raft, NULL);
	free(shell);
	cb(cb_arg);
}

void shell__close(struct raft_shell *shell, void (*cb)(void *arg), void *arg)
{
	assert(!shell->closing);
	shell->closing = true;
	shell->close_cb = cb;
	shell->close_arg = arg;
	env_timer_stop(shell->env, &shell->timer);
	store__close(shell->store, on_store_closed, shell);
}
