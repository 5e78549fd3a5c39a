/*
 * raft_receive: messages on their way in.
 *
 * Frames are decoded and checked (R12), then mended or dropped where the core
 * would be wrong about them (R4, R6, R7, R8, R13), then fed one by one.
 */
#define LOG_ROOM LOG_CMMDS
#include "base/log.h"
#include "cmmds/raft_shell_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* The core takes the payload; the array of entries stays ours. */
static int feed(struct raft_shell *shell, struct raft_message *msg)
{
	struct raft_event event = { .type = RAFT_RECEIVE };

	event.receive.message = msg;
	return shell__step(shell, &event);
}

/* ---- APPEND_ENTRIES (R6) ---- */

/*
 * A second CHANGE proves that the one before it was committed: let the core
 * know before it takes the second, or a rollback goes one too far.
 */
static int confirm_earlier_change(struct raft_shell *shell,
				  const struct raft_append_entries *a)
{
	uint64_t pending = shell->raft.configuration_uncommitted_index;

	if (!shell__rule(shell, RULE_R6) || a->n_entries == 0 ||
	    a->entries[0].type != RAFT_CHANGE || pending == 0 ||
	    pending > a->prev_log_index ||
	    a->term < raft_current_term(&shell->raft) ||
	    shell__term_of(shell, a->prev_log_index) != a->prev_log_term ||
	    shell__log_at(&shell->log, pending) == NULL)
		return 0;
	return shell__configuration(shell, pending);
}

/* Entries [from, to) of @whole as a message of their own. */
static void part(const struct raft_message *whole, unsigned from, unsigned to,
		 struct raft_message *out)
{
	const struct raft_append_entries *a = &whole->append_entries;
	struct raft_append_entries *p = &out->append_entries;
	size_t bytes = 0;
	uint8_t *at;

	*out = *whole;
	p->n_entries = to - from;
	p->entries = cmmds__alloc(p->n_entries * sizeof(*p->entries));
	if (from > 0) {
		p->prev_log_index = a->prev_log_index + from;
		p->prev_log_term = a->entries[from - 1].term;
	}
	for (unsigned i = from; i < to; i++)
		bytes += ROUND_UP(a->entries[i].buf.len, 8) + 8;
	at = raft_malloc(bytes);
	if (at == NULL)
		abort();
	for (unsigned i = from; i < to; i++) {
		struct raft_entry *e = &p->entries[i - from];

		*e = a->entries[i];
		e->batch = i == from ? at : p->entries[0].batch;
		e->buf.base = at;
		memcpy(at, a->entries[i].buf.base, e->buf.len);
		at += ROUND_UP(e->buf.len, 8) + 8;
	}
}

static bool accepted(struct raft_shell *shell,
		     const struct raft_append_entries *p)
{
	return shell__term_of(shell, p->prev_log_index + p->n_entries) ==
	       p->entries[p->n_entries - 1].term;
}

/*
 * The core takes an entry that it has trimmed from its log for one that it
 * never had, and appends it anew, over what was committed (R13): a late or
 * repeated append that begins below our snapshot does that.  What lies below a
 * snapshot is committed, and so the same in the log of every leader: begin with
 * the snapshot.  Returns how many entries fall away.
 */
static unsigned skip_trimmed(struct raft_shell *shell,
			     const struct raft_append_entries *a)
{
	if (a->prev_log_index >= shell->snapshot.index || shell->installing ||
	    !shell__rule(shell, RULE_R13))
		return 0;
	return (unsigned)MIN((uint64_t)a->n_entries,
			     shell->snapshot.index - a->prev_log_index);
}

/* An append of which we hold all, as its answer shall say. */
static void feed_snapshot_held(struct raft_shell *shell,
			       const struct raft_message *msg)
{
	struct raft_message held = *msg;

	held.append_entries.prev_log_index = shell->snapshot.index;
	held.append_entries.prev_log_term = shell->snapshot.term;
	held.append_entries.entries = NULL;
	held.append_entries.n_entries = 0;
	feed(shell, &held);
}

static void receive_append(struct raft_shell *shell, struct raft_message *msg)
{
	struct raft_append_entries *a = &msg->append_entries;
	unsigned n = a->n_entries, from = skip_trimmed(shell, a);

	if (n > 0 && from == n)
		feed_snapshot_held(shell, msg);
	if (n == 0) {
		feed(shell, msg);
		return;
	}
	/* One CHANGE a message, and first in it. */
	while (from < n && !shell->failed) {
		struct raft_message piece;
		unsigned to = from + 1;
		bool taken;

		while (to < n && (a->entries[to].type != RAFT_CHANGE ||
				  !shell__rule(shell, RULE_R6)))
			to++;
		part(msg, from, to, &piece);
		if (confirm_earlier_change(shell, &piece.append_entries) ||
		    shell->failed) {
			codec__message_fini(&piece);
			break;
		}
		feed(shell, &piece); /* the payload is the core's now */
		taken = !shell->failed &&
			accepted(shell, &piece.append_entries);
		free(piece.append_entries.entries);
		if (!taken)
			break;
		from = to;
	}
	codec__message_fini(msg);
}

/* ---- votes (R8) ---- */

/*
 * A member that finds itself no voter in its own configuration refuses to vote,
 * though it may be the missing voter of a newer one.  Let the core see a copy
 * with us as voter for this one step (R8d).
 */
static void receive_vote(struct raft_shell *shell, struct raft_message *msg)
{
	struct raft *r = &shell->raft;
	struct raft_configuration saved = r->configuration, copy;
	const struct raft_server *us = codec__conf_find(&saved, r->id);

	if (shell->state != RAFT_FOLLOWER || !shell__rule(shell, RULE_R8D) ||
	    (us != NULL && us->role == RAFT_VOTER)) {
		feed(shell, msg);
		return;
	}
	/* A non-voter never forgets its leader by itself. */
	if (env_now(shell->env) / MSEC >=
	    r->election_timer_start + r->election_timeout)
		msg->request_vote.disrupt_leader = true;
	raft_configuration_init(&copy);
	for (unsigned i = 0; i < saved.n; i++)
		if (saved.servers[i].id != r->id &&
		    raft_configuration_add(&copy, saved.servers[i].id,
					   saved.servers[i].address,
					   saved.servers[i].role) != 0)
			abort(); /* memory */
	if (raft_configuration_add(&copy, r->id, r->address, RAFT_VOTER) != 0)
		abort(); /* memory */
	r->configuration = copy;
	feed(shell, msg);
	assert(r->configuration.servers == copy.servers);
	r->configuration = saved;
	raft_configuration_close(&copy);
}

/* ---- results ---- */

/*
 * A rejection that arrives after the entry it speaks of was matched: the core
 * would fall back to it and never send again (R7).
 */
static bool stale_rejection(struct raft_shell *shell,
			    const struct raft_message *msg)
{
	const struct raft_append_entries_result *res =
		&msg->append_entries_result;
	raft_index match = 0;

	return shell->state == RAFT_LEADER && res->rejected != 0 &&
	       res->term == raft_current_term(&shell->raft) &&
	       raft_match_index(&shell->raft, msg->server_id, &match) == 0 &&
	       res->rejected <= match;
}

static void receive(struct raft_shell *shell, struct raft_message *msg)
{
	switch (msg->type) {
	case RAFT_APPEND_ENTRIES:
		receive_append(shell, msg);
		return;
	case RAFT_APPEND_ENTRIES_RESULT:
		if (!shell__rule(shell, RULE_R7) ||
		    !stale_rejection(shell, msg))
			feed(shell, msg);
		return;
	case RAFT_REQUEST_VOTE:
		receive_vote(shell, msg);
		return;
	case RAFT_REQUEST_VOTE_RESULT:
		/* The core reads a candidate's fields unchecked (R8a). */
		if (shell->state == RAFT_CANDIDATE ||
		    !shell__rule(shell, RULE_R8A))
			feed(shell, msg);
		return;
	case RAFT_INSTALL_SNAPSHOT:
		/* One at a time (R4). */
		if (shell->installing && shell__rule(shell, RULE_R4))
			codec__message_fini(msg);
		else
			feed(shell, msg);
		return;
	case RAFT_TIMEOUT_NOW:
		feed(shell, msg);
		return;
	}
}

int shell__receive(struct raft_shell *shell, uint64_t from, const char *address,
		   const uint8_t *frame, size_t len)
{
	struct raft_message msg;
	int rv;

	if (shell->failed || shell->closing || !shell->started)
		return -ESHUTDOWN;
	rv = codec__message_decode(frame, len, &msg);
	if (rv != 0)
		return rv;
	if (from == 0 || from == shell->raft.id) {
		codec__message_fini(&msg);
		return -EPROTO;
	}
	msg.server_id = from;
	msg.server_address = address;
	receive(shell, &msg);
	shell__settle_soon(shell);
	return 0;
}
