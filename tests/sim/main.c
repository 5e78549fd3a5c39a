/*
 * main: options, a process a seed, and what is printed.
 *
 *	sim --seeds A-B [--ops N] [--mode comp|node] [--apart] [--scrub]
 *	    [--full] [--rough] [--trim] [--disable-rule R27]
 *	sim --trace SEED
 *	sim --rules [--seeds A-B]
 *	sim --list-rules
 *
 * --apart: in mode comp the blocks lie far from each other, so that there are
 * more pages of the index than its memory holds.  --scrub: there the disk is
 * scrubbed again and again, and where nothing rots that finds nothing.  --full: there
 * the blocks lie apart, too, and the index finds no space at times.  --rough: in mode node
 * clients give up early or cancel, some of their writes are ORWRITEs, and the
 * object grows and shrinks meanwhile.  --trim, beside these: free space is given back
 * to disks, which make anything of it.
 *
 * A seed runs in a process of its own: a crash of a room, an assert or a hang
 * is a failure of that seed and of no other, and a power cut may leave memory
 * behind.  Every 16th seed runs twice, and the hashes of its events must agree.
 */
#include "tests/sim/sim.h"

#include "base/log.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOBS_MAX 16u
#define SEED_SECONDS 60u

struct job {
	pid_t pid;
	int out;
	uint64_t seed;
	bool again; /* the second run, for the hash */
	char text[8192];
	size_t len;
};

struct options {
	struct sim_config config;
	uint64_t first, last;
	unsigned mode, jobs;
	bool quiet, keep_going;
};

struct result {
	uint64_t failed_seed, run, failures;
	bool failed;
	char text[8192];
};

static unsigned mode_of(const struct options *o, uint64_t seed)
{
	static const unsigned modes[] = { MODE_COMP, MODE_NODE };
	unsigned n = 0, i, have[2];

	for (i = 0; i < 2; i++)
		if (o->mode & modes[i])
			have[n++] = modes[i];
	return have[seed % n];
}

/* Never returns. */
static void seed_run(const struct options *o, uint64_t seed)
{
	struct sim *sim = calloc(1, sizeof(*sim));
	unsigned mode = mode_of(o, seed);

	if (sim == NULL)
		abort();
	alarm(SEED_SECONDS);
	if (!o->config.trace)
		(void)log_level_set("all", "error");
	else
		(void)log_level_set("all", "debug");
	sim_init(sim, &o->config, seed);
	if (mode == MODE_COMP)
		comp_run(sim);
	else
		node_run(sim);
	printf("hash %016llx: %llu events, %u cuts, %u restarts, %u "
	       "operations, "
	       "%.1f s\n",
	       (unsigned long long)sim->hash, (unsigned long long)sim->events,
	       sim->cuts, sim->restarts,
	       sim->history ? history_ops(sim->history) : 0,
	       (double)sim->now_ns / 1e9);
	fflush(stdout);
	_Exit(0);
}

static void job_start(struct job *job, const struct options *o, uint64_t seed,
		      bool again)
{
	int fds[2];

	if (pipe(fds) < 0)
		abort();
	fflush(stdout);
	job->seed = seed;
	job->again = again;
	job->len = 0;
	job->pid = fork();
	if (job->pid < 0)
		abort();
	if (job->pid == 0) {
		dup2(fds[1], STDOUT_FILENO);
		dup2(fds[1], STDERR_FILENO);
		close(fds[0]);
		close(fds[1]);
		seed_run(o, seed);
	}
	close(fds[1]);
	job->out = fds[0];
}

/* Read all it says, of which the end is kept.  True: it went well. */
static bool job_end(struct job *job)
{
	const size_t half = sizeof(job->text) / 2;
	ssize_t n;
	int status;

	for (;;) {
		if (job->len == sizeof(job->text) - 1) {
			job->len -= half;
			memmove(job->text, job->text + half, job->len);
		}
		n = read(job->out, job->text + job->len,
			 sizeof(job->text) - 1 - job->len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		job->len += (size_t)n;
	}
	job->text[job->len] = '\0';
	close(job->out);
	while (waitpid(job->pid, &status, 0) < 0 && errno == EINTR)
		;
	job->pid = 0;
	if (WIFSIGNALED(status)) {
		snprintf(job->text + job->len, sizeof(job->text) - job->len,
			 "seed %llu: ended by signal %d%s\n",
			 (unsigned long long)job->seed, WTERMSIG(status),
			 WTERMSIG(status) == SIGALRM ? " (too long)" : "");
		return false;
	}
	return WEXITSTATUS(status) == 0;
}

/* Its last line; what comes before are errors of the rooms, with times. */
static const char *hash_line(const struct job *job)
{
	const char *line = strstr(job->text, "hash ");

	return line ? line : job->text;
}

/* Run seeds until one fails or all have run; jobs in order of their seeds. */
static void seeds_run(const struct options *o, struct result *res)
{
	struct job *jobs = calloc(JOBS_MAX, sizeof(*jobs)), *job, again;
	uint64_t next = o->first, done = o->first;

	if (jobs == NULL)
		abort();
	memset(res, 0, sizeof(*res));
	while (done <= o->last) {
		while (next <= o->last && next < done + o->jobs) {
			job_start(&jobs[next % o->jobs], o, next, false);
			next++;
		}
		job = &jobs[done % o->jobs];
		if (!job_end(job))
			res->failed = true;
		if (!res->failed && done % 16 == 0 &&
		    o->config.rules_off == 0) {
			job_start(&again, o, done, true);
			if (!job_end(&again) ||
			    strcmp(hash_line(&again), hash_line(job)) != 0) {
				snprintf(res->text, sizeof(res->text),
					 "seed %llu: two runs differ:\n%.2000s"
					 "%.2000s",
					 (unsigned long long)done, job->text,
					 again.text);
				res->failed = true;
			}
		}
		res->run++;
		if (!o->quiet)
			printf("seed %llu: %s", (unsigned long long)done,
			       hash_line(job));
		if (res->failed && res->failures++ == 0) {
			res->failed_seed = done;
			if (res->text[0] == '\0')
				memcpy(res->text, job->text, sizeof(res->text));
		}
		if (res->failed && !o->keep_going)
			break;
		if (res->failed)
			printf("FAIL %s", job->text);
		res->failed = false;
		done++;
	}
	res->failed = res->failures > 0;
	for (uint64_t s = done + 1; s < next; s++)
		(void)job_end(&jobs[s % o->jobs]);
	free(jobs);
}

static int rules_table(const struct options *o)
{
	unsigned missed = 0;
	struct options one;
	struct result *res = calloc(1, sizeof(*res));
	char *line;

	if (res == NULL)
		abort();
	printf("%-15s %-8s %s\n", "rule off", "seeds", "caught by");
	for (unsigned i = 0; i < RULES; i++) {
		one = *o;
		one.config.rules_off = 1ull << i;
		one.mode = sim_rules[i].modes & o->mode;
		one.quiet = true;
		if (one.mode == 0)
			continue;
		seeds_run(&one, res);
		line = strstr(res->text, "VIOLATION: ");
		if (line == NULL)
			line = res->text;
		line[strcspn(line, "\n")] = '\0';
		if (res->failed) {
			printf("%-15s %-8llu seed %llu: %.120s\n",
			       sim_rules[i].name, (unsigned long long)res->run,
			       (unsigned long long)res->failed_seed, line);
		} else {
			printf("%-15s %-8llu NOT CAUGHT (%s)\n",
			       sim_rules[i].name, (unsigned long long)res->run,
			       sim_rules[i].what);
			missed++;
		}
		fflush(stdout);
	}
	free(res);
	return missed == 0 ? 0 : 1;
}

static int usage(void)
{
	fprintf(stderr,
		"usage: sim [--seeds A-B] [--ops N] [--mode comp|node] "
		"[--apart] [--scrub] [--full] [--rough] [--trim] "
		"[--jobs N]\n"
		"           [--trace SEED] [--disable-rule RULE] [--rules] "
		"[--list-rules] [--quiet] [--keep-going]\n");
	return 2;
}

static bool range_parse(const char *text, struct options *o)
{
	char *end;

	o->first = o->last = strtoull(text, &end, 10);
	if (*end == '-')
		o->last = strtoull(end + 1, &end, 10);
	return *end == '\0' && end != text && o->first <= o->last;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "seeds", required_argument, NULL, 's' },
		{ "ops", required_argument, NULL, 'o' },
		{ "trace", required_argument, NULL, 't' },
		{ "disable-rule", required_argument, NULL, 'd' },
		{ "mode", required_argument, NULL, 'm' },
		{ "jobs", required_argument, NULL, 'j' },
		{ "apart", no_argument, NULL, 'a' },
		{ "scrub", no_argument, NULL, 'b' },
		{ "full", no_argument, NULL, 'f' },
		{ "rough", no_argument, NULL, 'g' },
		{ "trim", no_argument, NULL, 'i' },
		{ "rules", no_argument, NULL, 'r' },
		{ "list-rules", no_argument, NULL, 'l' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "keep-going", no_argument, NULL, 'k' },
		{ NULL, 0, NULL, 0 },
	};
	struct options o = { .first = 1,
			     .last = 100,
			     .jobs = 2,
			     .mode = MODE_COMP | MODE_NODE };
	bool rules = false;
	static struct result result;
	struct result *res = &result;
	int c, rule;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 's':
			if (!range_parse(optarg, &o))
				return usage();
			break;
		case 'o':
			o.config.ops = (unsigned)atoi(optarg);
			break;
		case 't':
			if (!range_parse(optarg, &o))
				return usage();
			o.config.trace = true;
			break;
		case 'd':
			rule = sim_rule_find(optarg);
			if (rule < 0)
				return usage();
			o.config.rules_off |= 1ull << rule;
			break;
		case 'm':
			o.mode = strcmp(optarg, "comp") == 0   ? MODE_COMP
				 : strcmp(optarg, "node") == 0 ? MODE_NODE
							       : 0;
			if (o.mode == 0)
				return usage();
			break;
		case 'j':
			o.jobs = (unsigned)atoi(optarg);
			if (o.jobs == 0 || o.jobs > JOBS_MAX)
				return usage();
			break;
		case 'a':
			o.config.apart = true;
			break;
		case 'b':
			o.config.scrub = true;
			break;
		case 'f':
			o.config.full = o.config.apart = true;
			break;
		case 'g':
			o.config.rough = true;
			break;
		case 'i':
			o.config.trim = true;
			break;
		case 'r':
			rules = true;
			break;
		case 'q':
			o.quiet = true;
			break;
		case 'k':
			o.keep_going = true;
			break;
		case 'l':
			for (unsigned i = 0; i < RULES; i++)
				printf("%-15s %s\n", sim_rules[i].name,
				       sim_rules[i].what);
			return 0;
		default:
			return usage();
		}
	}
	if (optind != argc)
		return usage();
	if (o.config.trace)
		seed_run(&o, o.first);
	if (rules)
		return rules_table(&o);
	seeds_run(&o, res);
	if (res->failed) {
		printf("%s", res->text);
		printf("FAILED: seed %llu; see it with: sim %s%s--trace %llu\n",
		       (unsigned long long)res->failed_seed,
		       o.config.trim ? "--trim " : "",
		       o.config.scrub	? "--scrub --mode comp "
		       : o.config.full	? "--full --mode comp "
		       : o.config.apart ? "--apart --mode comp "
		       : o.config.rough ? "--rough --mode node "
					: "",
		       (unsigned long long)res->failed_seed);
		return 1;
	}
	printf("%llu seeds without a violation\n",
	       (unsigned long long)res->run);
	return 0;
}
