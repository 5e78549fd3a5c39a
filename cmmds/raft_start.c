/*
 * raft_start: the shell from what the store holds to its first step, what it
 * hears from the store, and its end.
 *
 * Loaded state is restored and a term written before START, always (R2); the
 * core is told of entries when the write that made them durable is reported,
 * as far as no truncation has overtaken it (R3).
 */
#define LOG_ROOM LOG_CMMDS
#include "base/log.h"
#include "cmmds/raft_shell_int.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

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
	struct shell_write *w, *next;
	uint64_t last = 0;

	if (shell->failed)
		return;
	if (!shell->started) {
		if (ticket >= shell->start_ticket && start(shell) == 0)
			shell__settle(shell);
		return;
	}
	TAILQ_FOREACH_SAFE (w, &shell->writes, link, next) {
		if (w->ticket > ticket)
			break;
		last = MAX(last, w->last);
		TAILQ_REMOVE(&shell->writes, w, link);
		free(w);
	}
	shell__outbox_flush(shell);
	if (shell->compacting && shell->compact_ticket <= ticket)
		shell__snapshot_done(shell);
	if (!shell->failed && shell->installing &&
	    shell->install_ticket <= ticket)
		shell__install_done(shell);
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
	shell->timer.cb = shell__on_timer;
	shell->parts.cb = shell__on_parts;
	shell->task.cb = shell__on_settle;
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
	shell->start_ticket = shell->term_ticket = store__term(
		shell->store, shell->raft.current_term, shell->raft.voted_for);
	store__loaded_fini(loaded);
	*out = shell;
	return 0;
}

/* ---- the end ---- */

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
	env_timer_stop(shell->env, &shell->parts);
	store__close(shell->store, on_store_closed, shell);
}
