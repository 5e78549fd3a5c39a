/* raft_shell_int: the shell's own state, for raft_shell.c and its parts. */
#ifndef BASALT_CMMDS_RAFT_SHELL_INT_H
#define BASALT_CMMDS_RAFT_SHELL_INT_H

#include "cmmds/cmmds_int.h"

/* The log in memory: what the core believes we hold. */
struct shell_log {
	uint64_t first; /* index of at[head]; last + 1 when empty */
	struct log_entry *at;
	size_t head, count, room;
	size_t dead; /* before at[head]: dropped, and to be freed */
	uint64_t bytes;
};

/* A log write in flight; clipped when what it wrote is truncated (R3). */
struct shell_write {
	uint64_t ticket, last;
	TAILQ_ENTRY(shell_write) link;
};
TAILQ_HEAD(shell_writes, shell_write);

/* A message waiting for what must be durable before it leaves. */
struct shell_message {
	uint64_t after; /* ticket */
	raft_id to;
	char *address;
	struct codec_buf frame;
	TAILQ_ENTRY(shell_message) link;
};
TAILQ_HEAD(shell_outbox, shell_message);

#define SHELL_OUTBOX_MAX 4096u
#define SHELL_OUTBOX_BYTES_MAX (64u << 20)
#define SHELL_TRAILING_MAX 1024u
#define SHELL_FREED_MAX 2048u /* entries of the log, in one turn */
#define SHELL_ENTRY_OVERHEAD 32u /* bytes, for how much log a snapshot saves */

struct raft_shell {
	struct env *env;
	uint64_t rules_off;
	struct raft_store *store;
	const struct shell_ops *ops;
	void *arg;
	unsigned snapshot_bytes;

	struct raft raft;
	bool started, failed, closing, stepping, settling;
	bool only_voter; /* as it was opened */
	uint64_t now_ms; /* never goes back */

	struct shell_log log;
	struct log_snapshot snapshot; /* newest; index 0: none */
	uint64_t bytes_since_snapshot;
	int snapshot_status; /* of the last try to take one */

	uint64_t commit, applied, reported;
	struct raft_configuration conf; /* as of @applied */
	uint64_t conf_index;
	uint64_t conf_fed; /* newest CONFIGURATION event (R6) */

	unsigned short state; /* raft_state() after the last step */
	bool ready; /* leading, own-term entry applied (R1) */
	uint64_t term_ticket; /* of the last term write */
	uint64_t start_ticket; /* START waits for it (R2) */
	uint64_t timeout_ms; /* of the last TIMEOUT step (R9) */

	struct shell_writes writes;
	struct shell_outbox outbox;
	size_t outbox_count, outbox_bytes;

	/* An install (R4) and a snapshot of our own on their way to the disk. */
	bool installing, compacting;
	bool taking; /* our own is being made */
	uint64_t install_ticket, compact_ticket;
	struct raft_snapshot_metadata install_meta;
	struct log_snapshot install, compact;
	unsigned compact_trailing;

	struct env_timer timer;
	struct env_timer parts; /* of long work, one a turn */
	struct env_task task; /* settle later */
	void (*close_cb)(void *arg);
	void *close_arg;
};

/* Does rule @n hold?  Always in the daemon; tests switch rules off singly. */
static inline bool shell__rule(const struct raft_shell *shell,
			       enum shell_rule n)
{
	return (shell->rules_off >> n & 1) == 0;
}

struct log_entry *shell__log_at(struct shell_log *log, uint64_t index);
uint64_t shell__log_last(const struct shell_log *log);
void shell__log_push(struct shell_log *log, const struct log_entry *entry);
void shell__log_truncate(struct shell_log *log, uint64_t from);
/* What is dropped is freed by and by: shell__log_free_some(), true: it all is. */
void shell__log_drop_before(struct shell_log *log, uint64_t first);
bool shell__log_free_some(struct shell_log *log, unsigned max);
void shell__log_reset(struct shell_log *log, uint64_t first);

/* One step, its update handled whole.  Non-zero: refused, or the end. */
int shell__step(struct raft_shell *shell, struct raft_event *event);
void shell__settle(struct raft_shell *shell);
void shell__settle_soon(struct raft_shell *shell);
void shell__fail(struct raft_shell *shell, int status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Term of the log entry at @index, the snapshot's included; 0: unknown. */
uint64_t shell__term_of(struct raft_shell *shell, uint64_t index);
int shell__configuration(struct raft_shell *shell, uint64_t index);

/* What was written from @from on is no longer what the log holds (R3). */
void shell__clip_writes(struct raft_shell *shell, uint64_t from);
void shell__on_timer(struct env_timer *timer);
void shell__on_settle(struct env_task *task);

/* raft_snapshot.c */
void shell__on_parts(struct env_timer *timer);
void shell__snapshot_if_due(struct raft_shell *shell);
void shell__snapshot_done(struct raft_shell *shell);
void shell__install_begin(struct raft_shell *shell, struct raft_update *up);
void shell__install_done(struct raft_shell *shell);

/* raft_outbox.c */
void shell__outbox_add(struct raft_shell *shell,
		       const struct raft_message *batch, unsigned n);
void shell__outbox_flush(struct raft_shell *shell);
void shell__outbox_clear(struct raft_shell *shell);

#endif
