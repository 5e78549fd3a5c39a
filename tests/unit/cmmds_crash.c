/*
 * What the directory's store has acknowledged is there after kill -9 (real
 * RocksDB, a process of its own), after a crash between any two batches (a table
 * in memory), and after a write that failed; and after the latter nothing more
 * is answered.
 */
#include "base/log.h"
#include "tests/lib/test.h"
#include "tests/unit/cmmds_world.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- kill -9 ---- */

#define SLOTS 16u
#define LIVES 25u

/* What was told to the outside, over all lives of the process. */
struct told {
	uint64_t value[SLOTS]; /* acknowledged */
	/* In flight when a life ended: there or not, until one is acknowledged. */
	uint64_t maybe[LIVES];
	uint64_t next;
};

struct life {
	struct test_shard ts;
	struct cmmds_open open;
	struct cmmds *cmmds;
	struct cmmds_command cmd;
	const struct told *told;
	uint64_t next;
	int pipe, status;
	bool done;
};

static void life_opened(struct cmmds_open *req, int status)
{
	struct life *l = req->data;

	l->cmmds = req->opened;
	l->status = status;
	l->done = true;
}

static int life_open(struct life *l, const char *path, bool found)
{
	struct cmmds_config config = {
		.env = l->ts.env,
		.path = path,
		.incarnation = l->next + 1,
		.found = found,
		.snapshot_bytes = 3000,
	};

	memset(config.node.b, 7, sizeof(config.node.b));
	l->done = false;
	l->open.data = l;
	if (cmmds_open(&config, &l->open, life_opened) != 0)
		_exit(9);
	test_run(&l->ts, &l->done);
	return l->status;
}

static bool in_flight(const struct told *told, uint64_t value)
{
	for (unsigned i = 0; i < LIVES; i++)
		if (told->maybe[i] == value)
			return true;
	return false;
}

/* Every value acknowledged is there, or one that was asked for after it. */
static void life_check(struct life *l)
{
	char name[16];

	for (unsigned i = 0; i < SLOTS; i++) {
		const Directory__Policy *p;
		uint64_t has;

		snprintf(name, sizeof(name), "p%u", i);
		p = cmmds_policy(l->cmmds, name);
		has = p != NULL ? p->iops_limit : 0;
		if (has < l->told->value[i])
			_exit(3);
		if (has != l->told->value[i] && !in_flight(l->told, has))
			_exit(4);
	}
}

static void life_put(struct life *l);

static void life_acked(struct cmmds_command *cmd, int status)
{
	struct life *l = cmd->data;

	if (status != 0 ||
	    write(l->pipe, &l->next, sizeof(l->next)) != sizeof(l->next))
		_exit(6);
	cmmds_command_fini(cmd);
	life_put(l);
}

static void life_put(struct life *l)
{
	Directory__Policy p = DIRECTORY__POLICY__INIT;
	char name[16];

	l->next++;
	snprintf(name, sizeof(name), "p%u", (unsigned)(l->next % SLOTS));
	p.name = name;
	p.iops_limit = l->next;
	l->cmd.data = l;
	cmmds_command_init(&l->cmd);
	cmmds_put(&l->cmd, CMMDS_POLICY, name, strlen(name), CMMDS_ANY,
		  &p.base);
	if (cmmds_propose(l->cmmds, &l->cmd, 0, life_acked) != 0)
		_exit(7);
}

/* The life of one process: open, compare, write until it is killed. */
static void live(const char *path, const struct told *told, int fd)
{
	struct life *l = cmmds__alloc(sizeof(*l));
	int rv;

	l->told = told;
	l->pipe = fd;
	l->next = told->next;
	test_shard_open(&l->ts);
	rv = life_open(l, path, false);
	if (rv == -ENOENT && told->value[1] == 0) /* not even founded */
		rv = life_open(l, path, true);
	if (rv != 0)
		_exit(8);
	life_check(l);
	l->done = false;
	life_put(l);
	test_run(&l->ts, &l->done);
}

static uint64_t read_told(int fd, struct told *told, uint64_t random)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint64_t value, count = 0, kill_at = random % 60;
	int left = (int)(random >> 32) % 250 + 20;

	/*
	 * After so many answers or so long after one, whichever is first; in
	 * one life of four maybe before it is open.
	 */
	bool early = random >> 62 == 0;

	while (count < kill_at) {
		if (poll(&p, 1, count > 0 || early ? left : 60000) <= 0 ||
		    read(fd, &value, sizeof(value)) != sizeof(value))
			break;
		told->value[value % SLOTS] = value;
		told->next = value;
		count++;
	}
	return count;
}

TEST(cmmds_crash, kill_nine)
{
	struct told told = { 0 };
	uint64_t random = 20, acked = 0, value;
	char *dir = test_dir(), path[600];

	snprintf(path, sizeof(path), "%s/directory", dir);
	for (unsigned round = 0; round < LIVES; round++) {
		int fds[2], status;
		pid_t pid;

		CHECK_EQ(pipe(fds), 0);
		pid = fork();
		if (pid == 0) {
			close(fds[0]);
			log_level_set("all", "error");
			live(path, &told, fds[1]);
			_exit(10);
		}
		close(fds[1]);
		acked += read_told(fds[0], &told, random_next(&random));
		kill(pid, SIGKILL);
		/* What it told before it died counts. */
		while (read(fds[0], &value, sizeof(value)) == sizeof(value)) {
			told.value[value % SLOTS] = value;
			told.next = value;
			acked++;
		}
		told.next++; /* this one was in flight */
		told.maybe[round] = told.next;
		close(fds[0]);
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status))
			CHECK_EQ(WEXITSTATUS(status), 0);
	}
	print_message("# %llu acknowledged over %u kills\n",
		      (unsigned long long)acked, LIVES);
	CHECK(acked > 50);
	free(dir);
}

/* ---- between two batches ---- */

TEST(cmmds_crash, between_batches)
{
	static struct world w;
	uint64_t crashes = 0, applied = 0;

	log_level_set("cmmds", "error");
	for (unsigned seed = 1; seed <= 60; seed++) {
		struct world_node *n = &w.nodes[0];

		world_init(&w, seed, "V", 0);
		for (unsigned i = 0; i < 40 && w.wrong[0] == '\0'; i++) {
			uint64_t end = w.now_ns + 200 * MSEC;
			uint64_t before = w.chain_last;

			while (w.now_ns < end && world_random(&w, 30) != 0) {
				world_run(&w, w.now_ns + world_random(
								 &w, 2 * MSEC));
				if (n->shell != NULL)
					world_submit(&w, n);
			}
			world_node_down(n, world_random(&w, 10) == 0);
			before = w.chain_last;
			if (n->work == NULL)
				world_node_up(n);
			world_run(&w, w.now_ns + 100 * MSEC);
			if (n->applied < before)
				world_wrong(&w, "applied %llu, then %llu",
					    (unsigned long long)before,
					    (unsigned long long)n->applied);
		}
		crashes += w.crashes;
		applied += w.chain_last;
		if (w.wrong[0] != '\0')
			print_error("seed %u: %s\n", seed, w.wrong);
		CHECK(w.wrong[0] == '\0');
		world_fini(&w);
	}
	print_message("# %llu crashes, %llu entries\n",
		      (unsigned long long)crashes, (unsigned long long)applied);
	CHECK(crashes > 1000);
}

/* ---- a write that fails ---- */

struct failing {
	struct world w;
	struct cmmds_open open;
	struct cmmds_command cmds[8];
	unsigned answers, acked, failed;
	bool opened, closed, quiet;
	int open_status;
	uint64_t at;
};

static void f_opened(struct cmmds_open *req, int status)
{
	struct failing *f = req->data;

	f->open_status = status;
	f->opened = true;
}

static void f_failed(void *arg, int status, const char *why)
{
	struct failing *f = arg;

	CHECK_EQ(status, f->w.nodes[0].wants != 0 ? f->w.nodes[0].wants : -EIO);
	CHECK(why[0] != '\0');
	/* Other shards ask this one. */
	CHECK(!atomic_load(&f->open.opened->session));
	f->failed++;
}

static int f_open(struct failing *f, bool found)
{
	struct cmmds_config config = {
		.env = &f->w.nodes[0].env,
		.path = "world",
		.incarnation = ++f->at,
		.found = found,
		.snapshot_bytes = 600,
		.failed = f_failed,
		.failed_arg = f,
	};

	f->opened = false;
	f->open.data = f;
	CHECK_EQ(cmmds_open(&config, &f->open, f_opened), 0);
	world_run(&f->w, f->w.now_ns + 2 * SEC);
	CHECK(f->opened);
	return f->open_status;
}

static void f_answer(struct cmmds_command *cmd, int status)
{
	struct failing *f = cmd->data;

	f->answers++;
	/* Nothing is acknowledged once the store has failed. */
	CHECK(status == 0 || status == -EIO);
	if (status == 0) {
		CHECK_EQ(f->failed, 0);
		CHECK(cmmds_session_valid(f->open.opened));
		f->acked++;
	} else {
		CHECK(!cmmds_session_valid(f->open.opened));
	}
}

static int f_put(struct failing *f, unsigned i)
{
	Directory__Policy p = DIRECTORY__POLICY__INIT;
	struct cmmds_command *cmd = &f->cmds[i];
	char name[16];
	int rv;

	snprintf(name, sizeof(name), "p%u", i);
	p.name = name;
	cmd->data = f;
	cmmds_command_init(cmd);
	cmmds_put(cmd, CMMDS_POLICY, name, strlen(name), 0, &p.base);
	rv = cmmds_propose(f->open.opened, cmd, 0, f_answer);
	/* Every other one gathers while the one before is being written. */
	if (rv == 0)
		world_run(&f->w, f->w.now_ns + (i % 2 ? 100 * MSEC : 50000));
	return rv;
}

static void f_close(struct failing *f)
{
	f->closed = false;
	cmmds_close(f->open.opened, world_on_closed, &f->closed);
	world_run(&f->w, f->w.now_ns + SEC);
	CHECK(f->closed);
}

/* Fail the Nth write, for every N: opening, commands, a snapshot. */
TEST(cmmds_crash, failed_write)
{
	static struct failing f;
	unsigned failed_open = 0, failed_later = 0;
	char name[16];

	log_level_set("all", "error");
	if (freopen("/dev/null", "w", stderr) == NULL) /* it is told, often */
		fail();
	for (unsigned nth = 1; nth <= 14; nth++) {
		unsigned proposed = 0, acked;
		int rv;

		memset(&f, 0, sizeof(f));
		world_init(&f.w, nth, "X", 0);
		f.w.nodes[0].fail_write = nth;
		rv = f_open(&f, true);
		if (rv != 0) {
			CHECK_EQ(rv, -EIO);
			CHECK(f.open.why[0] != '\0');
			failed_open++;
			/* Founded or not: one of both opens. */
			rv = f_open(&f, false);
			if (rv == -ENOENT)
				rv = f_open(&f, true);
			CHECK_EQ(rv, 0);
			f_close(&f);
			world_fini(&f.w);
			continue;
		}
		while (proposed < 8 && f_put(&f, proposed) == 0)
			proposed++;
		world_run(&f.w, f.w.now_ns + SEC);
		CHECK_EQ(f.answers, proposed);
		CHECK(f.w.wrong[0] == '\0');
		for (unsigned i = 0; i <= MIN(proposed, 7u); i++)
			cmmds_command_fini(&f.cmds[i]);
		acked = f.acked;
		if (f.failed > 0) {
			struct cmmds_barrier bar = { 0 };

			failed_later++;
			CHECK_EQ(f.failed, 1);
			CHECK(!cmmds_session_valid(f.open.opened));
			CHECK_EQ(cmmds_barrier(f.open.opened, &bar, NULL),
				 -EIO);
			/* It is told once. */
			cmmds__turn_end_soon(f.open.opened);
			world_run(&f.w, f.w.now_ns + MSEC);
			CHECK_EQ(f.failed, 1);
		} else {
			CHECK_EQ(acked, 8);
		}
		f_close(&f);
		f.failed = 0;
		f.w.nodes[0].fail_write = 0;
		CHECK_EQ(f_open(&f, false), 0);
		for (unsigned i = 0; i < acked; i++) {
			snprintf(name, sizeof(name), "p%u", i);
			CHECK(cmmds_policy(f.open.opened, name) != NULL);
		}
		f_close(&f);
		CHECK(f.w.wrong[0] == '\0');
		world_fini(&f.w);
	}
	CHECK(failed_open >= 2);
	CHECK(failed_later >= 5);
}

static int f_wants(struct failing *f)
{
	struct cmmds_info info;

	cmmds_info(f->open.opened, &info);
	CHECK_EQ(f->failed, 0);
	CHECK(cmmds_session_valid(f->open.opened));
	return info.wants;
}

static void f_late(struct cmmds_command *cmd, int status)
{
	struct failing *f = cmd->data;

	CHECK(status == 0 || status == -ETIMEDOUT || status == -ESHUTDOWN);
	f->answers++;
	f->acked += status == 0;
	cmmds_command_fini(cmd);
}

static void f_propose(struct failing *f, unsigned i)
{
	Directory__Policy p = DIRECTORY__POLICY__INIT;
	struct cmmds_command *cmd = &f->cmds[i];
	char name[16];

	snprintf(name, sizeof(name), "p%u", i);
	p.name = name;
	cmd->data = f;
	cmmds_command_init(cmd);
	cmmds_put(cmd, CMMDS_POLICY, name, strlen(name), 0, &p.base);
	CHECK_EQ(cmmds_propose(f->open.opened, cmd, 0, f_late), 0);
	world_run(&f->w, f->w.now_ns + MSEC);
}

static unsigned f_policies(struct failing *f)
{
	const struct cmmds_entry *e = NULL;
	unsigned n = 0;

	while ((e = cmmds_next(f->open.opened, CMMDS_POLICY, e)) != NULL)
		n++;
	CHECK_EQ(cmmds_count(f->open.opened, CMMDS_POLICY), n);
	return n;
}

/* Changes wait for space or the like, and are made once when there is some. */
static void wants_case(int wants)
{
	static struct failing f;

	log_level_set("all", "error");
	for (unsigned seed = 1; seed <= 16; seed++) {
		memset(&f, 0, sizeof(f));
		world_init(&f.w, seed, "X", 0);
		CHECK_EQ(f_open(&f, true), 0);
		f_propose(&f, 0);
		world_run(&f.w, f.w.now_ns + SEC);
		CHECK_EQ(f.acked, 1);
		CHECK_EQ(f_wants(&f), 0);
		f.w.nodes[0].wants = wants;
		for (unsigned i = 1; i < 4; i++)
			f_propose(&f, i);
		world_run(&f.w, f.w.now_ns + 12 * SEC);
		CHECK_EQ(f_wants(&f), wants);
		CHECK_EQ(f.answers, 4);
		CHECK_EQ(f.acked, 1);
		f_propose(&f, 4);
		f.w.nodes[0].wants = 0;
		world_run(&f.w, f.w.now_ns + 6 * SEC);
		CHECK_EQ(f_wants(&f), 0);
		CHECK_EQ(f.acked, 2);
		CHECK_EQ(f_policies(&f), 5);
		/* Nobody waits for it at the end. */
		f.w.nodes[0].wants = wants;
		f_propose(&f, 5);
		world_run(&f.w, f.w.now_ns + seed * 500 * MSEC);
		CHECK_EQ(f_wants(&f), wants);
		f_close(&f);
		CHECK_EQ(f.answers, 6);
		CHECK_EQ(f_open(&f, false), wants);
		f.w.nodes[0].wants = 0;
		CHECK_EQ(f_open(&f, false), 0);
		CHECK(f_policies(&f) >= 5);
		f_close(&f);
		CHECK(f.w.wrong[0] == '\0');
		world_fini(&f.w);
	}
}

TEST(cmmds_crash, no_space)
{
	wants_case(-ENOSPC);
}

TEST(cmmds_crash, no_descriptor_or_memory)
{
	wants_case(-EMFILE);
	wants_case(-ENFILE);
	wants_case(-ENOMEM);
}

/* What a start of the daemon may bring is waited for ten minutes. */
TEST(cmmds_crash, it_does_not_wait_for_ever)
{
	static struct failing f;
	struct cmmds_info info;

	log_level_set("all", "error");
	for (unsigned space = 0; space < 2; space++) {
		memset(&f, 0, sizeof(f));
		world_init(&f.w, 1, "X", 0);
		CHECK_EQ(f_open(&f, true), 0);
		/* For space it did already. */
		f.w.nodes[0].wants = -ENOSPC;
		f_propose(&f, 0);
		world_run(&f.w, f.w.now_ns + 3600 * SEC);
		CHECK_EQ(f_wants(&f), -ENOSPC);
		f.w.nodes[0].wants = space ? -ENOSPC : -EMFILE;
		world_run(&f.w, f.w.now_ns + 590 * SEC);
		CHECK_EQ(f_wants(&f), space ? -ENOSPC : -EMFILE);
		world_run(&f.w, f.w.now_ns + 30 * SEC);
		cmmds_info(f.open.opened, &info);
		CHECK_EQ(f.failed, space ? 0 : 1);
		CHECK_EQ(info.wants, space ? -ENOSPC : 0);
		CHECK_EQ(cmmds_session_valid(f.open.opened), space);
		CHECK_EQ(f.acked, 0);
		f.failed = 0;
		f.w.nodes[0].wants = 0;
		f_close(&f);
		CHECK_EQ(f_open(&f, false), 0);
		f_close(&f);
		world_fini(&f.w);
	}
}

/* A store that cannot be read is not an empty one: nothing is founded over it. */
TEST(cmmds_crash, unreadable_is_not_empty)
{
	static struct failing f;

	log_level_set("all", "error");
	memset(&f, 0, sizeof(f));
	world_init(&f.w, 3, "X", 0);
	CHECK_EQ(f_open(&f, true), 0);
	f_close(&f);
	f.w.nodes[0].fail_scan = -EUCLEAN;
	CHECK_EQ(f_open(&f, true), -EUCLEAN);
	CHECK_EQ(f_open(&f, false), -EUCLEAN);
	CHECK(strstr(f.open.why, "is damaged") != NULL);
	CHECK(strstr(f.open.why, "backup") != NULL);
	/* A disk that was away for a moment has lost nothing. */
	f.w.nodes[0].fail_scan = -EIO;
	CHECK_EQ(f_open(&f, true), -EIO);
	CHECK_EQ(f_open(&f, false), -EIO);
	CHECK(strstr(f.open.why, "is damaged") == NULL);
	CHECK(strstr(f.open.why, "the disk under data_dir") != NULL);
	/* Nor is it damaged where only this process cannot read it. */
	f.w.nodes[0].fail_scan = -EMFILE;
	CHECK_EQ(f_open(&f, true), -EMFILE);
	CHECK_EQ(f_open(&f, false), -EMFILE);
	CHECK(strstr(f.open.why, "too many open files") != NULL);
	CHECK(strstr(f.open.why, "backup") == NULL);
	f.w.nodes[0].fail_scan = 0;
	CHECK_EQ(f_open(&f, true), -EEXIST);
	CHECK_EQ(f_open(&f, false), 0);
	f_close(&f);
	world_fini(&f.w);
}
