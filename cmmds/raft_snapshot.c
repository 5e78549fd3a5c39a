/*
 * raft_snapshot: snapshots in the shell: our own, which let the log be trimmed,
 * and a leader's, which replace the log of a member that is far behind.
 *
 * Either goes through the store's queue, and counts only when it is durable.
 * One install at a time (R4); if one begins while our own is being made or
 * written, our own is let go.
 */
#define LOG_ROOM LOG_CMMDS
#include "base/log.h"
#include "cmmds/raft_shell_int.h"

#include <assert.h>
#include <stdlib.h>

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
		bytes += e->len + SHELL_ENTRY_OVERHEAD;
		if (bytes > shell->snapshot_bytes / 4)
			break;
		index--;
		n++;
	}
	return n;
}

static void parts_go_on(struct raft_shell *shell)
{
	env_timer_start(shell->env, &shell->parts, ENV_NEXT_TURN_NS);
}

/* Half of a large image: else filling a directory would write its square. */
static uint64_t due_bytes(const struct raft_shell *shell)
{
	return MAX((uint64_t)shell->snapshot_bytes, shell->snapshot.len / 2);
}

void shell__snapshot_if_due(struct raft_shell *shell)
{
	struct log_snapshot *snap = &shell->compact;
	struct codec_buf conf = { 0 };

	if (shell->failed || shell->taking || shell->compacting ||
	    shell->installing ||
	    shell->bytes_since_snapshot < due_bytes(shell) ||
	    shell->applied <= shell->snapshot.index ||
	    shell->applied > shell->reported)
		return;
	shell->snapshot_status = shell->ops->take(shell->arg);
	shell->bytes_since_snapshot = 0; /* after a failure as after another */
	if (shell->snapshot_status != 0) {
		log_warn("no directory snapshot: %s",
			 err_text(shell->snapshot_status));
		return;
	}
	codec__conf_encode(&shell->conf, &conf);
	snap->index = shell->applied;
	snap->term = shell__term_of(shell, shell->applied);
	snap->conf = conf.data;
	snap->conf_len = conf.len;
	snap->conf_index = shell->conf_index;
	shell->compact_trailing = trailing(shell);
	shell->taking = true;
	parts_go_on(shell);
}

static void take_more(struct raft_shell *shell)
{
	struct log_snapshot *snap = &shell->compact;

	if (!shell->ops->take_more(shell->arg, &snap->data, &snap->len))
		return;
	shell->taking = false;
	shell->compacting = true;
	shell->compact_ticket = store__compact(
		shell->store, snap, snap->index - shell->compact_trailing + 1);
}

/* A leader's comes, which is newer. */
static void take_drop(struct raft_shell *shell)
{
	if (!shell->taking)
		return;
	shell->ops->take_drop(shell->arg);
	shell->taking = false;
	codec__snapshot_fini(&shell->compact);
}

/* Durable: the core may forget, and so do we, exactly as it does. */
void shell__snapshot_done(struct raft_shell *shell)
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
	parts_go_on(shell);
	shell__step(shell, &event);
}

/* Of a large directory this would take too long for one turn. */
void shell__on_parts(struct env_timer *timer)
{
	struct raft_shell *shell =
		container_of(timer, struct raft_shell, parts);
	bool all_freed;

	if (shell->failed)
		return;
	all_freed = shell__log_free_some(&shell->log, SHELL_FREED_MAX);
	if (shell->taking)
		take_more(shell);
	if (shell->taking || !all_freed)
		parts_go_on(shell);
}

/* ---- a leader's ---- */

/*
 * The core has forgotten its log already.  Ours on the disk stays until the
 * write that replaces it is durable, which is right after a crash.
 */
void shell__install_begin(struct raft_shell *shell, struct raft_update *up)
{
	struct raft_snapshot_metadata *meta = &up->snapshot.metadata;
	struct log_snapshot *snap = &shell->install;
	struct codec_buf conf = { 0 };

	assert(!shell->installing);
	assert(meta->index > shell->applied);
	take_drop(shell);
	codec__conf_encode(&meta->configuration, &conf);
	snap->index = meta->index;
	snap->term = meta->term;
	snap->conf_index = meta->configuration_index;
	snap->conf = conf.data;
	snap->conf_len = conf.len;
	snap->data =
		cmmds__copy(up->snapshot.chunk.base, up->snapshot.chunk.len);
	snap->len = up->snapshot.chunk.len;
	raft_free(up->snapshot.chunk.base);
	shell->install_meta = *meta;
	shell->installing = true;
	shell__clip_writes(shell, 1);
	shell__log_reset(&shell->log, snap->index + 1);
	shell->install_ticket = store__install(shell->store, snap);
}

void shell__install_done(struct raft_shell *shell)
{
	struct raft_event event = { .type = RAFT_PERSISTED_SNAPSHOT };
	struct log_snapshot *snap = &shell->install;
	int rv;

	rv = shell->ops->restore(shell->arg, snap->index, snap->data,
				 snap->len);
	if (rv != 0) {
		shell__fail(shell, rv,
			    "the snapshot received cannot be "
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
