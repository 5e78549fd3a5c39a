/*
 * Members of a directory over a bad network and disks that lose what was not
 * written: hundreds of seeds, and then the same with each rule of raft.md, 5,
 * switched off, which some seed must notice.
 */
#include "base/log.h"
#include "tests/lib/test.h"
#include "tests/unit/cmmds_world.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* What a random run does to its members. */
static void trouble(struct world *w)
{
	unsigned a = (unsigned)world_random(w, w->count);
	unsigned b = (unsigned)world_random(w, w->count);
	struct world_node *n = &w->nodes[a];

	switch (world_random(w, 10)) {
	case 0:
	case 1:
		if (n->shell == NULL)
			break;
		world_node_down(n, world_random(w, 8) == 0);
		timer_heap_start(&w->timers, &n->up,
				 w->now_ns + MSEC + world_random(w, SEC));
		break;
	case 2: /* the leader, at its worst moment */
		n = world_leader(w);
		if (n == NULL)
			break;
		world_submit(w, n);
		world_run(w, w->now_ns + world_random(w, 3 * MSEC));
		world_node_down(n, false);
		timer_heap_start(&w->timers, &n->up,
				 w->now_ns + MSEC + world_random(w, SEC));
		break;
	case 3:
	case 4:
		world_part(w, a, b);
		break;
	case 5: /* alone */
		for (unsigned i = 0; i < w->count; i++)
			if (i != a)
				world_part(w, a, i);
		break;
	case 6: /* one way only */
		w->parted[a][b] = a != b;
		break;
	case 7:
		n->slow_ns = world_random(w, 2) ? 400 * MSEC : 0;
		break;
	case 8:
		world_network(w, (unsigned)world_random(w, 20),
			      (unsigned)world_random(w, 20),
			      world_random(w, 900) * MSEC);
		break;
	default:
		world_heal(w);
	}
}

static bool caught_up(const struct world *w, uint64_t index)
{
	for (unsigned i = 0; i < w->count; i++)
		if (w->nodes[i].applied < index)
			return false;
	return true;
}

/* A good network again: something new is applied on every member. */
static void recover(struct world *w)
{
	uint64_t end = w->now_ns + 30 * SEC, before, fresh = 0;

	world_heal(w);
	world_network(w, 0, 0, 0);
	for (unsigned i = 0; i < w->count; i++) {
		w->nodes[i].slow_ns = 0;
		if (w->nodes[i].shell == NULL && w->nodes[i].work == NULL)
			world_node_up(&w->nodes[i]);
	}
	before = w->chain_last;
	while (w->wrong[0] == '\0' && w->now_ns < end) {
		struct world_node *n = world_leader(w);

		if (n != NULL && w->now_ns > end - 25 * SEC)
			world_submit(w, n);
		world_run(w, w->now_ns + 50 * MSEC);
		if (fresh == 0 && w->chain_last > before + 8)
			fresh = w->chain_last;
		if (fresh != 0 && caught_up(w, fresh))
			return;
	}
	world_wrong(w, "no recovery: applied %llu %llu %llu of %llu",
		    (unsigned long long)w->nodes[0].applied,
		    (unsigned long long)w->nodes[1].applied,
		    (unsigned long long)w->nodes[2].applied,
		    (unsigned long long)w->chain_last);
}

struct totals {
	uint64_t events, applied, crashes, installs, compactions, dropped,
		elections;
};

static void one_seed(struct world *w, uint64_t seed, const char *roles,
		     uint64_t rules_off, struct totals *totals)
{
	/* Kinds of bad weather, so that each lasts long enough to matter. */
	static const struct {
		uint64_t delay_ms, slow_ms, seconds, calm;
		unsigned percent;
	} kinds[] = {
		{ 50, 0, 10, 30, 2 }, /* some of all */
		{ 900, 0, 10, 120, 15 }, /* late and out of order */
		{ 20, 400, 30, 12, 2 }, /* slow disks, many crashes */
		{ 100, 5, 10, 10, 5 }, /* much of all */
	};
	unsigned kind = seed % 4;
	uint64_t end;

	world_init(w, seed, roles, rules_off);
	world_network(w, kinds[kind].percent, kinds[kind].percent,
		      kinds[kind].delay_ms * MSEC);
	for (unsigned i = 0; i < w->count; i++)
		w->nodes[i].slow_ns = kinds[kind].slow_ms * MSEC;
	end = w->now_ns + kinds[kind].seconds * SEC;
	while (w->wrong[0] == '\0' && w->now_ns < end) {
		unsigned i = (unsigned)world_random(w, w->count);

		world_run(w, w->now_ns + world_random(w, 20 * MSEC));
		/* Whoever thinks it leads, and often all of them. */
		for (unsigned n = 0; n < w->count; n++)
			if (w->nodes[n].shell != NULL &&
			    (n == i || world_random(w, 2) == 0) &&
			    shell__leading(w->nodes[n].shell))
				world_submit(w, &w->nodes[n]);
		if (world_random(w, kinds[kind].calm) == 0)
			trouble(w);
	}
	if (w->wrong[0] == '\0')
		recover(w);
	totals->events += w->events;
	totals->applied += w->chain_last;
	totals->crashes += w->crashes;
	totals->installs += w->installs;
	totals->compactions += w->compactions;
	totals->dropped += w->images_dropped;
	totals->elections += w->elections;
	world_fini(w);
}

/* What to say if the present seed ends in an abort. */
static char now_line[96];

static void on_abort(int signum)
{
	if (write(2, now_line, strlen(now_line)) < 0)
		_exit(2);
	signal(SIGABRT, SIG_DFL);
}

static const char *env_or(const char *name, const char * or)
{
	const char *v = getenv(name);

	return v != NULL ? v : or ;
}

static void seeds(const char *roles, unsigned from, unsigned count)
{
	static struct world w;
	struct totals t = { 0 };
	unsigned bad = 0;

	from = (unsigned)atoi(env_or("SEED", "0")) ?: from;
	count = (unsigned)atoi(env_or("SEEDS", "0")) ?: count;
	log_level_set("cmmds", "error");
	signal(SIGABRT, on_abort);
	for (unsigned i = from; i < from + count; i++) {
		snprintf(now_line, sizeof(now_line), "# aborted: %s seed %u\n",
			 roles, i);
		one_seed(&w, i, roles, 0, &t);
		if (w.wrong[0] != '\0') {
			print_error("%s seed %u: %s\n", roles, i, w.wrong);
			bad++;
		}
	}
	signal(SIGABRT, SIG_DFL);
	print_message("# %s: %u seeds, %llu events, %llu applied, %llu "
		      "crashes, %llu installs sent, %llu snapshots, %llu "
		      "dropped, %llu elections\n",
		      roles, count, (unsigned long long)t.events,
		      (unsigned long long)t.applied,
		      (unsigned long long)t.crashes,
		      (unsigned long long)t.installs,
		      (unsigned long long)t.compactions,
		      (unsigned long long)t.dropped,
		      (unsigned long long)t.elections);
	CHECK_EQ(bad, 0);
	CHECK(t.installs > 0);
	CHECK(t.crashes > 0);
	CHECK(t.elections > count);
	if (count >= 150)
		CHECK(t.dropped > 0);
}

TEST(cmmds_net, three_voters)
{
	seeds("VVV", 1, 150);
}

TEST(cmmds_net, one_voter_two_standbys)
{
	seeds("VSS", 1000, 80);
}

TEST(cmmds_net, five_voters)
{
	seeds("VVVVV", 2000, 20);
}

/* ---- each rule switched off ---- */

struct rule {
	enum shell_rule rule;
	const char *name, *roles;
	unsigned seeds;
	bool must; /* be noticed by one of them */
};

/* In a process of its own, as a broken rule may end in an assertion. */
static unsigned noticed(const struct rule *r, char *how, size_t how_len)
{
	unsigned at = 0;
	int fds[2], status;
	ssize_t len;
	pid_t pid;

	how[0] = '\0';
	if (pipe(fds) != 0)
		fail();
	pid = fork();
	if (pid == 0) {
		static struct world w;
		struct totals t;
		struct {
			unsigned seed;
			char why[200];
		} told;

		world_orphan();
		if (freopen("/dev/null", "w", stderr) == NULL)
			_exit(2);
		for (unsigned i = 1; i <= r->seeds; i++) {
			memset(&told, 0, sizeof(told));
			told.seed = i;
			snprintf(told.why, sizeof(told.why), "aborts");
			alarm(20);
			one_seed(&w, i, r->roles, 1ull << r->rule, &t);
			if (w.wrong[0] == '\0')
				continue;
			snprintf(told.why, sizeof(told.why), "%.150s", w.wrong);
			len = write(fds[1], &told, sizeof(told));
			_exit(len == sizeof(told) ? 1 : 2);
		}
		_exit(0);
	}
	close(fds[1]);
	{
		struct {
			unsigned seed;
			char why[200];
		} told;

		len = read(fds[0], &told, sizeof(told));
		if (len == sizeof(told)) {
			at = told.seed;
			snprintf(how, how_len, "seed %u: %s", at, told.why);
		}
	}
	close(fds[0]);
	if (waitpid(pid, &status, 0) != pid)
		fail();
	if (WIFSIGNALED(status)) {
		at = 1;
		snprintf(how, how_len, "%s", strsignal(WTERMSIG(status)));
	} else if (WEXITSTATUS(status) == 2) {
		fail();
	}
	return at;
}

static const struct rule rules[] = {
	{ RULE_TERM_FIRST, "term before messages", "VVV", 600, true },
	{ RULE_R1, "R1 own-term entry", "VVV", 100, true },
	{ RULE_R2, "R2 a single voter's term", "VSS", 200, true },
	{ RULE_R3, "R3 stale completions", "VVV", 600, true },
	{ RULE_R5, "R5 commit only rises", "VVV", 600, true },
	{ RULE_R7, "R7 stale rejections", "VVV", 600, false },
	{ RULE_R8B, "R8b pre-vote and term", "VVVVV", 200, false },
	{ RULE_R13, "R13 append below the log", "VSS", 600, false },
};

TEST(cmmds_net, rules_off)
{
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		char how[256];
		unsigned at = noticed(&rules[i], how, sizeof(how));

		print_message("# %-26s %s\n", rules[i].name,
			      at ? how : "not noticed here");
		if (rules[i].must)
			CHECK(at > 0);
	}
}
