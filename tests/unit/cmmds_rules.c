/*
 * The rules of raft.md, 5, one by one: the situation each was made for, with the
 * rule, and, in a process of its own, without it.
 */
#include "base/log.h"
#include "tests/lib/test.h"
#include "tests/unit/cmmds_world.h"

#include <sys/wait.h>
#include <unistd.h>

typedef void (*scenario_fn)(struct world *w, uint64_t off);

/* With the rule all is well; without it that must show, if @shows. */
static void rule(scenario_fn scenario, enum shell_rule off, bool shows)
{
	static struct world w;
	int status;
	pid_t pid;

	log_level_set("all", "error");
	scenario(&w, 0);
	if (w.wrong[0] != '\0')
		print_error("%s\n", w.wrong);
	CHECK(w.wrong[0] == '\0');
	world_fini(&w);
	pid = fork();
	if (pid == 0) {
		world_orphan();
		if (freopen("/dev/null", "w", stderr) == NULL)
			_exit(2);
		alarm(20);
		scenario(&w, 1ull << off);
		_exit(w.wrong[0] == '\0' ? 0 : 1);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK(!WIFEXITED(status) || WEXITSTATUS(status) < 2);
	if (shows)
		CHECK(WIFSIGNALED(status) || WEXITSTATUS(status) == 1);
}

/* A frame from @from, delivered now. */
static void hand(struct world *w, unsigned from, unsigned to,
		 const struct raft_message *msg)
{
	struct codec_buf frame = { 0 };

	codec__message_encode(msg, NULL, NULL, &frame);
	if (shell__receive(w->nodes[to].shell, w->nodes[from].id,
			   w->nodes[from].address, frame.data, frame.len) != 0)
		world_wrong(w, "a frame is refused");
	free(frame.data);
	world_check(&w->nodes[to]);
}

static void hand_caught(struct world *w, unsigned from, unsigned to)
{
	if (w->caught == NULL) {
		world_wrong(w, "nothing was caught");
		return;
	}
	if (shell__receive(w->nodes[to].shell, w->nodes[from].id,
			   w->nodes[from].address, w->caught,
			   w->caught_len) != 0)
		world_wrong(w, "a caught frame is refused");
	world_check(&w->nodes[to]);
}

static void submit(struct world *w, unsigned count)
{
	while (count-- > 0 && w->wrong[0] == '\0') {
		struct world_node *n = world_leader(w);

		if (n == NULL) {
			world_wrong(w, "no leader");
			return;
		}
		world_submit(w, n);
		world_run(w, w->now_ns + 10 * MSEC);
	}
}

/* Within @seconds something new is applied everywhere. */
static void works(struct world *w, unsigned seconds)
{
	uint64_t end = w->now_ns + seconds * SEC, last = w->chain_last;

	while (w->wrong[0] == '\0' && w->now_ns < end) {
		struct world_node *n = world_leader(w);
		unsigned behind = 0;

		if (n != NULL)
			world_submit(w, n);
		world_run(w, w->now_ns + 20 * MSEC);
		for (unsigned i = 0; i < w->count; i++)
			behind += w->nodes[i].shell != NULL &&
				  w->nodes[i].applied <= last;
		if (behind == 0)
			return;
	}
	world_wrong(w, "it does not go on: %llu %llu %llu of %llu",
		    (unsigned long long)w->nodes[0].applied,
		    (unsigned long long)w->nodes[1].applied,
		    (unsigned long long)w->nodes[2].applied,
		    (unsigned long long)w->chain_last);
}

static unsigned leader(struct world *w)
{
	struct world_node *n;

	for (unsigned i = 0; i < 100; i++) {
		n = world_leader(w);
		if (n != NULL)
			return (unsigned)(n->id - 1);
		world_run(w, w->now_ns + 100 * MSEC);
	}
	world_wrong(w, "no leader");
	return 0;
}

/* ---- R13: a late append that begins below what was trimmed ---- */

static bool tap_from_start(struct world *w, unsigned from, unsigned to,
			   const uint8_t *frame, size_t len)
{
	if (frame[4] != RAFT_APPEND_ENTRIES || get_le64(frame + 14) != 0 ||
	    get_le32(frame + 38) < 2 || len <= w->caught_len)
		return true;
	free(w->caught);
	w->caught = cmmds__copy(frame, len);
	w->caught_len = len;
	return true;
}

static void late_append(struct world *w, uint64_t off)
{
	struct raft_shell *s;

	world_init(w, 5, "VS", off);
	w->snapshot_bytes = 1u << 20; /* of the leader */
	w->tap = tap_from_start;
	world_part(w, 0, 1);
	world_run(w, w->now_ns + 2 * SEC);
	world_node_down(&w->nodes[1], true);
	submit(w, 60);
	w->snapshot_bytes = 2000; /* of the standby */
	world_node_up(&w->nodes[1]);
	world_heal(w);
	works(w, 5);
	world_run(w, w->now_ns + SEC);
	s = w->nodes[1].shell;
	if (s->log.first == 1 || s->snapshot.index == 0)
		world_wrong(w, "nothing was trimmed");
	/* It begins below the log and ends below the snapshot, or above. */
	hand_caught(w, 0, 1);
	hand_caught(w, 0, 1);
	works(w, 5);
}

TEST(cmmds_rules, r13_append_below_the_log)
{
	rule(late_append, RULE_R13, true);
}

/* ---- R7: a rejection from before the match ---- */

static void stale_rejection(struct world *w, uint64_t off)
{
	struct raft_message m = { .type = RAFT_APPEND_ENTRIES_RESULT };
	unsigned l, f;
	raft_index match = 0;

	world_init(w, 11, "VVV", off);
	w->snapshot_bytes = 1u << 20;
	l = leader(w);
	f = (l + 1) % 3;
	submit(w, 10);
	world_run(w, w->now_ns + SEC);
	/* Silent for long enough that it is probed. */
	world_part(w, l, f);
	submit(w, 20);
	world_run(w, w->now_ns + 1200 * MSEC);
	if (raft_match_index(&w->nodes[l].shell->raft, f + 1, &match) != 0 ||
	    match == 0)
		world_wrong(w, "no match");
	m.append_entries_result.version = 2;
	m.append_entries_result.term =
		raft_current_term(&w->nodes[l].shell->raft);
	m.append_entries_result.rejected = match;
	m.append_entries_result.last_log_index = match - 1;
	hand(w, f, l, &m);
	world_heal(w);
	works(w, 3);
}

TEST(cmmds_rules, r7_stale_rejection)
{
	rule(stale_rejection, RULE_R7, true);
}

/* ---- R8a: votes for nobody ---- */

static void odd_votes(struct world *w, uint64_t off)
{
	struct raft_message m = { .type = RAFT_REQUEST_VOTE_RESULT };
	unsigned l;

	world_init(w, 3, "VVV", off);
	l = leader(w);
	m.request_vote_result.version = 2;
	m.request_vote_result.vote_granted = true;
	for (unsigned i = 0; i < 3; i++) {
		m.request_vote_result.term =
			raft_current_term(&w->nodes[i].shell->raft);
		for (unsigned pre = 0; pre < 2; pre++) {
			m.request_vote_result.pre_vote = pre;
			hand(w, (i + 1) % 3, i, &m);
		}
	}
	if (leader(w) != l)
		world_wrong(w, "another leader");
	works(w, 5);
}

TEST(cmmds_rules, r8a_votes_when_not_asked)
{
	rule(odd_votes, RULE_R8A, false);
}

/* ---- R8b: the best log has the lowest term ---- */

static void term_ahead(struct world *w, uint64_t off)
{
	struct raft_message m = { .type = RAFT_REQUEST_VOTE };
	unsigned best, ahead, dead;

	world_init(w, 17, "VVV", off);
	best = leader(w);
	ahead = (best + 1) % 3;
	dead = (best + 2) % 3;
	submit(w, 5);
	world_run(w, w->now_ns + SEC);
	world_node_down(&w->nodes[dead], true);
	world_part(w, best, ahead);
	for (unsigned i = 0; i < 3; i++) {
		world_submit(w, &w->nodes[best]);
		world_run(w, w->now_ns + 20 * MSEC);
	}
	/* As a candidate that is gone now left it. */
	m.request_vote.version = 2;
	m.request_vote.term =
		raft_current_term(&w->nodes[ahead].shell->raft) + 5;
	m.request_vote.candidate_id = dead + 1;
	m.request_vote.last_log_index = 1;
	m.request_vote.last_log_term = 1;
	m.request_vote.disrupt_leader = true;
	hand(w, dead, ahead, &m);
	world_run(w, w->now_ns + 3 * SEC);
	world_heal(w);
	world_run(w, w->now_ns + 10 * SEC);
	works(w, 5);
}

TEST(cmmds_rules, r8b_best_log_lowest_term)
{
	rule(term_ahead, RULE_R8B, true);
}

/* ---- R4: one install at a time ---- */

static bool tap_install(struct world *w, unsigned from, unsigned to,
			const uint8_t *frame, size_t len)
{
	if (frame[4] != RAFT_INSTALL_SNAPSHOT || w->caught != NULL)
		return true;
	w->caught = cmmds__copy(frame, len);
	w->caught_len = len;
	return false;
}

static void two_installs(struct world *w, uint64_t off)
{
	unsigned l, f;

	world_init(w, 23, "VVV", off);
	w->snapshot_bytes = 1000;
	w->tap = tap_install;
	l = leader(w);
	f = (l + 1) % 3;
	world_node_down(&w->nodes[f], true);
	submit(w, 200);
	world_node_up(&w->nodes[f]);
	for (unsigned i = 0; i < 100 && w->caught == NULL; i++)
		world_run(w, w->now_ns + 50 * MSEC);
	/* A second one while the first is being written; then a late one. */
	hand_caught(w, l, f);
	if (!w->nodes[f].shell->installing)
		world_wrong(w, "it does not install");
	hand_caught(w, l, f);
	world_run(w, w->now_ns + MSEC);
	works(w, 10);
	hand_caught(w, l, f);
	works(w, 5);
}

/* Without it the core leaks the second, which only a leak check sees. */
TEST(cmmds_rules, r4_one_install_at_a_time)
{
	rule(two_installs, RULE_R4, false);
}

/* A crash while an install is being written leaves the old or the new. */
TEST(cmmds_rules, crash_during_install)
{
	static struct world w;

	log_level_set("all", "error");
	for (unsigned seed = 1; seed <= 20; seed++) {
		unsigned l, f;

		world_init(&w, seed, "VVV", 0);
		w.snapshot_bytes = 1000;
		w.tap = tap_install;
		l = leader(&w);
		f = (l + 1) % 3;
		world_node_down(&w.nodes[f], true);
		submit(&w, 100);
		world_node_up(&w.nodes[f]);
		for (unsigned i = 0; i < 100 && w.caught == NULL; i++)
			world_run(&w, w.now_ns + 50 * MSEC);
		hand_caught(&w, l, f);
		world_run(&w, w.now_ns + world_random(&w, 3 * MSEC));
		world_node_down(&w.nodes[f], false);
		world_node_up(&w.nodes[f]);
		/* The leader gives a lost install 30 s. */
		works(&w, 40);
		if (w.wrong[0] != '\0')
			print_error("seed %u: %s\n", seed, w.wrong);
		CHECK(w.wrong[0] == '\0');
		world_fini(&w);
	}
}

/* Frames that are nobody's, or broken, change nothing. */
TEST(cmmds_rules, bad_frames)
{
	static struct world w;
	uint8_t bytes[64] = { 0 };
	struct raft_shell *s;
	uint64_t term;

	world_init(&w, 2, "VVV", 0);
	leader(&w);
	s = w.nodes[0].shell;
	term = raft_current_term(&s->raft);
	CHECK_EQ(shell__receive(s, 2, w.nodes[1].address, bytes, 64), -EPROTO);
	CHECK_EQ(shell__receive(s, 2, w.nodes[1].address, bytes, 0), -EPROTO);
	w.caught = NULL;
	{
		struct raft_message m = { .type = RAFT_TIMEOUT_NOW };
		struct codec_buf frame = { 0 };

		m.timeout_now.term = term;
		codec__message_encode(&m, NULL, NULL, &frame);
		CHECK_EQ(shell__receive(s, 0, "", frame.data, frame.len),
			 -EPROTO);
		CHECK_EQ(shell__receive(s, 1, "", frame.data, frame.len),
			 -EPROTO);
		free(frame.data);
	}
	CHECK_EQ(raft_current_term(&s->raft), term);
	works(&w, 5);
	CHECK(w.wrong[0] == '\0');
	world_fini(&w);
}

/* What cannot leave yet is held up to a bound, and the rest is lost. */
TEST(cmmds_rules, outbox_is_bounded)
{
	static struct world w;
	struct raft_shell *s;
	struct raft_message m = { .type = RAFT_REQUEST_VOTE_RESULT };
	uint64_t term_ticket;

	log_level_set("all", "error");
	world_init(&w, 31, "VVV", 0);
	s = w.nodes[leader(&w)].shell;
	m.request_vote_result.term = raft_current_term(&s->raft);
	m.server_id = w.nodes[1].id;
	m.server_address = w.nodes[1].address;
	term_ticket = s->term_ticket;
	s->term_ticket = UINT64_MAX; /* a write that takes its time */
	for (unsigned i = 0; i < SHELL_OUTBOX_MAX + 10; i++)
		shell__outbox_add(s, &m, 1);
	CHECK_EQ(s->outbox_count, SHELL_OUTBOX_MAX);
	shell__outbox_clear(s);
	CHECK_EQ(s->outbox_count, 0);
	CHECK_EQ(s->outbox_bytes, 0);
	s->term_ticket = term_ticket;
	works(&w, 10);
	CHECK(w.wrong[0] == '\0');
	world_fini(&w);
}

/* Entries too large for any to be kept behind a snapshot: none is lost. */
TEST(cmmds_rules, nothing_kept_behind_a_snapshot)
{
	static struct world w;

	log_level_set("all", "error");
	for (unsigned seed = 1; seed <= 10; seed++) {
		world_init(&w, seed, seed % 2 ? "V" : "VVV", 0);
		w.snapshot_bytes = 64;
		for (unsigned i = 0; i < w.count; i++)
			world_node_down(&w.nodes[i], true);
		for (unsigned i = 0; i < w.count; i++)
			world_node_up(&w.nodes[i]);
		leader(&w);
		for (unsigned round = 0; round < 20; round++) {
			struct world_node *n = &w.nodes[leader(&w)];

			for (unsigned i = 0; i < 4; i++) {
				world_submit(&w, n);
				world_run(&w, w.now_ns + MSEC);
			}
			world_run(&w, w.now_ns + world_random(&w, 20 * MSEC));
			for (unsigned i = 0; i < w.count; i++)
				world_node_down(&w.nodes[i], false);
			for (unsigned i = 0; i < w.count; i++)
				world_node_up(&w.nodes[i]);
		}
		leader(&w);
		if (w.wrong[0] != '\0')
			print_error("seed %u: %s\n", seed, w.wrong);
		CHECK(w.wrong[0] == '\0');
		CHECK(w.compactions > 0);
		world_fini(&w);
	}
}

/* Without an image the log stays; the next try waits for as much log again. */
TEST(cmmds_rules, no_image)
{
	static struct world w;
	struct shell_info info;
	unsigned n;

	log_level_set("all", "error");
	world_init(&w, 37, "V", 0);
	n = leader(&w);
	w.no_image = true;
	w.snapshot_bytes = 1000;
	world_node_down(&w.nodes[n], true);
	world_node_up(&w.nodes[n]);
	leader(&w);
	submit(&w, 100);
	shell__info(w.nodes[n].shell, &info);
	CHECK_EQ(info.snapshot_status, -EMSGSIZE);
	CHECK_EQ(info.snapshot_index, 0);
	CHECK_EQ(info.first, 1);
	CHECK(w.no_images > 1);
	CHECK(w.no_images <= info.log_bytes * 5 / w.snapshot_bytes);
	w.no_image = false;
	submit(&w, 100);
	shell__info(w.nodes[n].shell, &info);
	CHECK_EQ(info.snapshot_status, 0);
	CHECK(info.snapshot_index > 0);
	CHECK(w.wrong[0] == '\0');
	world_fini(&w);
}
