/*
 * raft_outbox: messages on their way out.
 *
 * Each is encoded at once, from the log as it is now, and leaves in order when
 * what it rests on is durable here: the last term and vote (a message must
 * never speak of a term that a crash could take back), and a CHANGE it carries
 * (R10).  Losing a message is legal, so the outbox is bounded by dropping.
 */
#include "cmmds/raft_shell_int.h"

#include <assert.h>
#include <stdlib.h>

static void message_free(struct raft_shell *shell, struct shell_message *m)
{
	TAILQ_REMOVE(&shell->outbox, m, link);
	shell->outbox_count--;
	shell->outbox_bytes -= m->frame.len;
	free(m->frame.data);
	free(m->address);
	free(m);
}

/*
 * A refused pre-vote is answered with our term if that is higher: otherwise a
 * candidate with the best log and a low term never learns it (R8b).
 */
static void mend_vote_result(struct raft_shell *shell, struct raft_message *msg)
{
	struct raft_request_vote_result *r = &msg->request_vote_result;

	if (shell__rule(shell, RULE_R8B) && r->pre_vote && !r->vote_granted)
		r->term = MAX(r->term, raft_current_term(&shell->raft));
}

/* Returns the ticket to wait for, or false if the message cannot be filled. */
static bool encode(struct raft_shell *shell, const struct raft_message *msg,
		   struct shell_message *m)
{
	struct raft_message copy = *msg;
	const struct log_entry **entries = NULL;
	bool ok = true;

	if (msg->type == RAFT_REQUEST_VOTE_RESULT) {
		mend_vote_result(shell, &copy);
	} else if (msg->type == RAFT_APPEND_ENTRIES) {
		const struct raft_append_entries *a = &msg->append_entries;

		entries = cmmds__alloc((a->n_entries + 1) * sizeof(*entries));
		for (unsigned i = 0; i < a->n_entries && ok; i++) {
			entries[i] = shell__log_at(&shell->log,
						   a->prev_log_index + 1 + i);
			ok = entries[i] != NULL;
			if (ok && entries[i]->type == RAFT_CHANGE &&
			    shell__rule(shell, RULE_R10))
				m->after = MAX(m->after, entries[i]->ticket);
		}
	} else if (msg->type == RAFT_INSTALL_SNAPSHOT) {
		ok = shell->snapshot.index != 0;
	}
	if (ok)
		codec__message_encode(&copy, entries, &shell->snapshot,
				      &m->frame);
	free(entries);
	return ok;
}

void shell__outbox_add(struct raft_shell *shell,
		       const struct raft_message *batch, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct shell_message *m;

		if (shell->outbox_count >= SHELL_OUTBOX_MAX ||
		    shell->outbox_bytes >= SHELL_OUTBOX_BYTES_MAX)
			return;
		m = cmmds__alloc(sizeof(*m));
		if (shell__rule(shell, RULE_TERM_FIRST))
			m->after = shell->term_ticket;
		if (!encode(shell, &batch[i], m)) {
			free(m->frame.data);
			free(m);
			continue;
		}
		m->to = batch[i].server_id;
		m->address = cmmds__copy(batch[i].server_address,
					 strlen(batch[i].server_address) + 1);
		TAILQ_INSERT_TAIL(&shell->outbox, m, link);
		shell->outbox_count++;
		shell->outbox_bytes += m->frame.len;
	}
}

void shell__outbox_flush(struct raft_shell *shell)
{
	struct shell_message *m;

	while ((m = TAILQ_FIRST(&shell->outbox)) != NULL) {
		/* Asked afresh after each callback: clang-tidy loses track. */
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
		if (shell->failed || m->after > store__durable(shell->store))
			break;
		shell->ops->send(shell->arg, m->to, m->address, m->frame.data,
				 m->frame.len);
		message_free(shell, m);
	}
}

void shell__outbox_clear(struct raft_shell *shell)
{
	struct shell_message *m, *next;

	TAILQ_FOREACH_SAFE (m, &shell->outbox, link, next)
		message_free(shell, m);
}
