/* Proposals at their limits: full, late, asked again, cut off, built wrongly. */
#include "base/log.h"
#include "tests/lib/test.h"
#include "tests/unit/cmmds_world.h"

struct face {
	struct world w;
	struct cmmds_open open;
	struct cmmds *cmmds;
	struct cmmds_command cmds[CMMDS_PROPOSALS_MAX + 1];
	unsigned answers, good;
	int status, closed_with;
	bool done, closed;
};

static void opened(struct cmmds_open *req, int status)
{
	struct face *f = req->data;

	f->status = status;
	f->cmmds = req->opened;
}

static void face_open(struct face *f)
{
	struct cmmds_config config = {
		.env = &f->w.nodes[0].env,
		.path = "world",
		.incarnation = 1,
		.found = true,
	};

	log_level_set("all", "error");
	memset(f, 0, sizeof(*f));
	world_init(&f->w, 9, "X", 0);
	f->open.data = f;
	f->status = 1;
	CHECK_EQ(cmmds_open(&config, &f->open, opened), 0);
	world_run(&f->w, f->w.now_ns + SEC);
	CHECK_EQ(f->status, 0);
}

static void face_close(struct face *f)
{
	cmmds_close(f->cmmds, world_on_closed, &f->closed);
	world_run(&f->w, f->w.now_ns + 60 * SEC);
	CHECK(f->closed);
	world_fini(&f->w);
}

static void answered(struct cmmds_command *cmd, int status)
{
	struct face *f = cmd->data;

	f->answers++;
	f->good += status == 0;
	f->status = status;
}

static void build(struct face *f, struct cmmds_command *cmd, unsigned i)
{
	Directory__Policy p = DIRECTORY__POLICY__INIT;
	char name[16];

	snprintf(name, sizeof(name), "p%u", i);
	p.name = name;
	cmd->data = f;
	cmmds_command_init(cmd);
	cmmds_put(cmd, CMMDS_POLICY, name, strlen(name), 0, &p.base);
}

TEST(cmmds_propose, bounded_queue)
{
	static struct face f;

	face_open(&f);
	for (unsigned i = 0; i < CMMDS_PROPOSALS_MAX; i++) {
		build(&f, &f.cmds[i], i);
		CHECK_EQ(cmmds_propose(f.cmmds, &f.cmds[i], 0, answered), 0);
	}
	build(&f, &f.cmds[CMMDS_PROPOSALS_MAX], 999);
	CHECK_EQ(cmmds_propose(f.cmmds, &f.cmds[CMMDS_PROPOSALS_MAX], 0,
			       answered),
		 -EBUSY);
	CHECK_EQ(f.answers, 0);
	world_run(&f.w, f.w.now_ns + SEC);
	CHECK_EQ(f.good, CMMDS_PROPOSALS_MAX);
	/* And now there is room, for the same one. */
	CHECK_EQ(cmmds_propose(f.cmmds, &f.cmds[CMMDS_PROPOSALS_MAX], 0,
			       answered),
		 0);
	world_run(&f.w, f.w.now_ns + SEC);
	CHECK_EQ(f.good, CMMDS_PROPOSALS_MAX + 1);
	for (unsigned i = 0; i <= CMMDS_PROPOSALS_MAX; i++)
		cmmds_command_fini(&f.cmds[i]);
	face_close(&f);
}

static void barrier_done(struct cmmds_barrier *bar, int status)
{
	*(int *)bar->data = status;
}

/* A disk that stalls: unknown at the deadline, and applied once all the same. */
TEST(cmmds_propose, late_and_again)
{
	static struct face f;
	struct cmmds_barrier bar = { 0 };
	struct cmmds_info info;
	int barrier = 1;

	face_open(&f);
	f.w.nodes[0].slow_ns = 3600 * SEC;
	build(&f, &f.cmds[0], 0);
	CHECK_EQ(cmmds_propose(f.cmmds, &f.cmds[0], 50, answered), 0);
	bar.data = &barrier;
	CHECK_EQ(cmmds_barrier(f.cmmds, &bar, barrier_done), 0);
	world_run(&f.w, f.w.now_ns + SEC);
	CHECK_EQ(f.answers, 1);
	CHECK_EQ(f.status, -ETIMEDOUT);
	CHECK(f.cmds[0].why[0] != '\0');
	/* What is being written is pending as what gathers is. */
	CHECK(store__pending_bytes(f.cmmds->store_open.store) > 0);
	CHECK_EQ(barrier, 1);
	world_run(&f.w, f.w.now_ns + 10 * SEC);
	CHECK_EQ(barrier, -ETIMEDOUT);
	f.w.nodes[0].slow_ns = 0;
	CHECK_EQ(cmmds_propose_again(&f.cmds[0], 0, answered), 0);
	timer_heap_start(&f.w.timers, &f.w.nodes[0].work_timer, f.w.now_ns);
	world_run(&f.w, f.w.now_ns + SEC);
	CHECK_EQ(f.answers, 2);
	CHECK_EQ(f.status, 0);
	cmmds_info(f.cmmds, &info);
	CHECK_EQ(info.revision, 1);
	CHECK_EQ(f.cmds[0].revision, 1);
	CHECK(cmmds_policy(f.cmmds, "p0") != NULL);
	cmmds_command_fini(&f.cmds[0]);
	face_close(&f);
}

static void on_health(const struct health_check *check,
		      const struct health_result *result, void *arg)
{
	if (strcmp(check->name, "directory-size") == 0)
		*(struct health_result *)arg = *result;
}

/* An image that cannot be taken is told: the log is not trimmed any more. */
TEST(cmmds_propose, health_of_the_size)
{
	static struct face f;
	struct health_result told = { .level = HEALTH_BAD };

	face_open(&f);
	health_each(on_health, &told);
	CHECK_EQ(told.level, HEALTH_OK);
	f.cmmds->shell->snapshot_status = -EMSGSIZE;
	health_each(on_health, &told);
	CHECK_EQ(told.level, HEALTH_BAD);
	CHECK(strstr(told.cause, "256 MiB") != NULL);
	CHECK(told.fix[0] != '\0');
	face_close(&f);
}

static void on_store_health(const struct health_check *check,
			    const struct health_result *result, void *arg)
{
	if (strcmp(check->name, "directory-store") == 0)
		*(struct health_result *)arg = *result;
}

/* A store that hangs is told for as long as it does. */
TEST(cmmds_propose, health_of_a_silent_store)
{
	static struct face f;
	struct health_result told = { .level = HEALTH_BAD };

	face_open(&f);
	f.w.nodes[0].slow_ns = 3600 * SEC;
	build(&f, &f.cmds[0], 0);
	CHECK_EQ(cmmds_propose(f.cmmds, &f.cmds[0], 0, answered), 0);
	world_run(&f.w, f.w.now_ns + 9 * SEC);
	health_each(on_store_health, &told);
	CHECK_EQ(told.level, HEALTH_OK);
	world_run(&f.w, f.w.now_ns + SEC);
	health_each(on_store_health, &told);
	CHECK_EQ(told.level, HEALTH_BAD);
	CHECK(strstr(told.cause, "has not answered for 10 s") != NULL);
	CHECK(strstr(told.fix, "data_dir") != NULL);
	f.w.nodes[0].slow_ns = 0;
	timer_heap_start(&f.w.timers, &f.w.nodes[0].work_timer, f.w.now_ns);
	world_run(&f.w, f.w.now_ns + SEC);
	health_each(on_store_health, &told);
	CHECK_EQ(told.level, HEALTH_OK);
	cmmds_command_fini(&f.cmds[0]);
	face_close(&f);
}

/* Lines of @said, with @words. */
static unsigned lines_with(FILE *said, const char *words)
{
	char line[512];
	unsigned n = 0;

	rewind(said);
	while (fgets(line, sizeof(line), said) != NULL)
		n += strstr(line, words) != NULL;
	return n;
}

/* Who reads the log later sees when it began, and when it was over. */
TEST(cmmds_propose, log_of_a_silent_store)
{
	static struct face f;
	FILE *said = tmpfile();
	int saved = dup(STDERR_FILENO);

	face_open(&f);
	log_level_set("cmmds", "info");
	CHECK(said != NULL && saved >= 0);
	CHECK(dup2(fileno(said), STDERR_FILENO) >= 0);
	build(&f, &f.cmds[0], 0);
	CHECK_EQ(cmmds_propose(f.cmmds, &f.cmds[0], 0, answered), 0);
	world_run(&f.w, f.w.now_ns);
	CHECK(f.w.nodes[0].work != NULL);
	timer_heap_start(&f.w.timers, &f.w.nodes[0].work_timer,
			 f.w.now_ns + 60 * SEC);
	world_run(&f.w, f.w.now_ns + 9 * SEC);
	CHECK_EQ(lines_with(said, "has not answered"), 0);
	world_run(&f.w, f.w.now_ns + 50 * SEC);
	CHECK_EQ(lines_with(said, "has not answered for 10 s"), 1);
	CHECK_EQ(lines_with(said, "data_dir"), 1);
	world_run(&f.w, f.w.now_ns + 60 * SEC);
	CHECK_EQ(lines_with(said, "answers again, after 60 s"), 1);
	CHECK_EQ(lines_with(said, "has not answered"), 1);
	log_level_set("cmmds", "error");
	cmmds_command_fini(&f.cmds[0]);
	face_close(&f);
	CHECK(dup2(saved, STDERR_FILENO) >= 0);
	close(saved);
	fclose(said);
}

/* With another voter, leading is no lease: that one may lead by now. */
TEST(cmmds_propose, session_of_several_voters)
{
	static struct face f;

	face_open(&f);
	CHECK(cmmds_session_valid(f.cmmds));
	CHECK_EQ(raft_configuration_add(&f.cmmds->shell->conf, 99, "other",
					RAFT_VOTER),
		 0);
	CHECK(!cmmds_session_valid(f.cmmds));
	face_close(&f);
}

/* An entry that is not ours answers nothing; one in our place sends us again. */
TEST(cmmds_propose, what_is_applied_in_its_place)
{
	static struct face f;
	struct cmmds_barrier bar = { 0 };
	struct state_result other = { .incarnation = 1 };
	struct cmmds_command *cmd = &f.cmds[0];
	int barrier = 1;

	face_open(&f);
	f.w.nodes[0].slow_ns = 3600 * SEC;
	build(&f, cmd, 0);
	CHECK_EQ(cmmds_propose(f.cmmds, cmd, 0, answered), 0);
	bar.data = &barrier;
	CHECK_EQ(cmmds_barrier(f.cmmds, &bar, barrier_done), 0);
	world_run(&f.w, f.w.now_ns + MSEC);
	CHECK(cmd->index != 0);
	CHECK_EQ(bar.index, cmd->index);
	/* Another node's, an earlier run's, another request of ours. */
	other.sequence = cmd->message->sequence;
	other.client.b[0] = 1;
	propose__applied(f.cmmds, 1, 1, &other);
	other.client.b[0] = 0;
	other.incarnation = 0;
	propose__applied(f.cmmds, 1, 1, &other);
	other.incarnation = 1;
	other.sequence++;
	propose__applied(f.cmmds, 1, 1, &other);
	CHECK_EQ(f.answers, 0);
	CHECK(cmd->index != 0);
	propose__applied(f.cmmds, cmd->index, bar.term + 1, &other);
	CHECK_EQ(f.answers, 0);
	CHECK_EQ(barrier, 1);
	CHECK_EQ(cmd->index, 0);
	CHECK_EQ(bar.index, 0);
	world_run(&f.w, f.w.now_ns + MSEC);
	CHECK(cmd->index != 0);
	propose__again(f.cmmds);
	CHECK_EQ(cmd->index, 0);
	CHECK_EQ(bar.index, 0);
	f.w.nodes[0].slow_ns = 0;
	timer_heap_start(&f.w.timers, &f.w.nodes[0].work_timer, f.w.now_ns);
	world_run(&f.w, f.w.now_ns + SEC);
	CHECK_EQ(f.answers, 1);
	CHECK_EQ(f.good, 1);
	CHECK_EQ(barrier, 0);
	CHECK_EQ(cmd->revision, 1);
	cmmds_command_fini(cmd);
	face_close(&f);
}

/* An old request asked again holds the window open: no newer one past it. */
TEST(cmmds_propose, window_of_requests)
{
	static struct face f;
	struct cmmds_command *cmd = &f.cmds[1];

	face_open(&f);
	build(&f, &f.cmds[0], 0);
	CHECK_EQ(cmmds_propose(f.cmmds, &f.cmds[0], 0, answered), 0);
	world_run(&f.w, f.w.now_ns + SEC);
	for (unsigned i = 1; i < CMMDS_WINDOW; i++) {
		build(&f, cmd, i);
		CHECK_EQ(cmmds_propose(f.cmmds, cmd, 0, answered), 0);
		world_run(&f.w, f.w.now_ns + SEC);
		cmmds_command_fini(cmd);
	}
	CHECK_EQ(f.good, CMMDS_WINDOW);
	CHECK_EQ(cmmds_propose_again(&f.cmds[0], 0, answered), 0);
	build(&f, cmd, CMMDS_WINDOW);
	CHECK_EQ(cmmds_propose(f.cmmds, cmd, 0, answered), -EBUSY);
	world_run(&f.w, f.w.now_ns + SEC);
	CHECK_EQ(f.good, CMMDS_WINDOW + 1);
	CHECK_EQ(f.cmds[0].revision, 1);
	CHECK_EQ(cmmds_propose(f.cmmds, cmd, 0, answered), 0);
	world_run(&f.w, f.w.now_ns + SEC);
	CHECK_EQ(f.good, CMMDS_WINDOW + 2);
	cmmds_command_fini(&f.cmds[0]);
	cmmds_command_fini(cmd);
	face_close(&f);
}

/* Commands that a slow disk has not taken yet: no more of them than so much. */
TEST(cmmds_propose, bounded_bytes)
{
	static struct face f;
	static char big[200 << 10];
	Directory__Task t = DIRECTORY__TASK__INIT;
	struct uuid who = { .b = { 1 } };
	unsigned count = 0;
	int rv = 0;

	face_open(&f);
	memset(big, 'x', sizeof(big) - 1);
	t.uuid.data = who.b;
	t.uuid.len = sizeof(who.b);
	t.verb = "verb";
	t.note = big; /* refused when it is applied: its bytes count here */
	f.w.nodes[0].slow_ns = 3600 * SEC;
	while (rv == 0 && count < CMMDS_PROPOSALS_MAX) {
		struct cmmds_command *cmd = &f.cmds[count];

		cmd->data = &f;
		cmmds_command_init(cmd);
		for (unsigned i = 0; i < 4; i++)
			cmmds_put(cmd, CMMDS_TASK, &i, sizeof(i), 0, &t.base);
		rv = cmmds_propose(f.cmmds, cmd, 0, answered);
		count += rv == 0;
		world_run(&f.w, f.w.now_ns + 10000);
	}
	CHECK_EQ(rv, -EBUSY);
	CHECK(count < 48); /* of 0.8 MB each; 32 MiB, and what overshoots */
	cmmds_command_fini(&f.cmds[count]);
	f.w.nodes[0].slow_ns = 0;
	timer_heap_start(&f.w.timers, &f.w.nodes[0].work_timer, f.w.now_ns);
	world_run(&f.w, f.w.now_ns + 5 * SEC);
	CHECK_EQ(f.answers, count);
	while (count-- > 0)
		cmmds_command_fini(&f.cmds[count]);
	face_close(&f);
}

/* A large snapshot on its way to a slow disk is no reason to refuse a command. */
TEST(cmmds_propose, beside_a_large_snapshot)
{
	static struct face f;
	struct log_snapshot snap = { .index = 1, .term = 1, .conf_index = 1 };
	struct raft_store *store;

	face_open(&f);
	store = f.cmmds->store_open.store;
	snap.conf = cmmds__alloc(1);
	snap.conf_len = 1;
	snap.len = 40u << 20;
	snap.data = cmmds__alloc(snap.len);
	f.w.nodes[0].slow_ns = SEC;
	for (unsigned i = 0; i < 2; i++) {
		store__compact(store, &snap, 1);
		build(&f, &f.cmds[i], i);
		CHECK_EQ(cmmds_propose(f.cmmds, &f.cmds[i], 0, answered), 0);
		CHECK(store__pending_bytes(store) < 1u << 20);
		world_run(&f.w, f.w.now_ns + MSEC); /* being written */
	}
	CHECK(f.answers < 2);
	CHECK(store__pending_bytes(store) > 0);
	world_run(&f.w, f.w.now_ns + 10 * SEC);
	CHECK_EQ(f.good, 2);
	CHECK_EQ(store__pending_bytes(store), 0);
	codec__snapshot_fini(&snap);
	for (unsigned i = 0; i < 2; i++)
		cmmds_command_fini(&f.cmds[i]);
	face_close(&f);
}

/* Our own and a leader's in one batch: the leader's is the newer. */
TEST(cmmds_propose, two_snapshots_at_once)
{
	static struct face f;
	uint8_t byte = 0;
	struct log_snapshot ours = { .index = 1, .term = 1, .conf_index = 1 };
	struct log_snapshot leaders, got = { 0 };
	struct raft_configuration conf;
	struct codec_buf bytes = { 0 };
	struct raft_store *store;
	uint64_t ticket;
	void *value;
	size_t len;

	face_open(&f);
	store = f.cmmds->store_open.store;
	raft_configuration_init(&conf);
	CHECK_EQ(raft_configuration_add(&conf, 7, "a", RAFT_VOTER), 0);
	codec__conf_encode(&conf, &bytes);
	raft_configuration_close(&conf);
	ours.conf = bytes.data;
	ours.conf_len = bytes.len;
	ours.data = &byte;
	ours.len = 1;
	leaders = ours;
	leaders.index = 900;
	store__compact(store, &ours, 1);
	ticket = store__install(store, &leaders);
	world_run(&f.w, f.w.now_ns + 5 * SEC);
	CHECK(store__durable(store) >= ticket);
	CHECK_EQ(kv_get(f.w.nodes[0].table, kv_slice("s", 1), &value, &len), 0);
	CHECK_EQ(codec__snapshot_decode(value, len, &got), 0);
	CHECK_EQ(got.index, 900);
	codec__snapshot_fini(&got);
	free(value);
	free(bytes.data);
	face_close(&f);
}

TEST(cmmds_propose, closed_in_flight)
{
	static struct face f;
	struct cmmds_barrier bar = { 0 };
	int barrier = 1;

	face_open(&f);
	build(&f, &f.cmds[0], 0);
	build(&f, &f.cmds[1], 1);
	CHECK_EQ(cmmds_propose(f.cmmds, &f.cmds[0], 0, answered), 0);
	bar.data = &barrier;
	CHECK_EQ(cmmds_barrier(f.cmmds, &bar, barrier_done), 0);
	cmmds_close(f.cmmds, world_on_closed, &f.closed);
	CHECK_EQ(cmmds_propose(f.cmmds, &f.cmds[1], 0, answered), -ESHUTDOWN);
	CHECK_EQ(cmmds_barrier(f.cmmds, &bar, barrier_done), -ESHUTDOWN);
	CHECK(!cmmds_session_valid(f.cmmds));
	CHECK_EQ(f.answers, 0); /* later, never inside */
	world_run(&f.w, f.w.now_ns + SEC);
	CHECK(f.closed);
	CHECK_EQ(f.answers, 1);
	CHECK_EQ(f.status, -ESHUTDOWN);
	CHECK_EQ(barrier, -ESHUTDOWN);
	cmmds_command_fini(&f.cmds[0]);
	cmmds_command_fini(&f.cmds[1]);
	world_fini(&f.w);
}

static void backed_up(struct cmmds_backup *req, int status)
{
	CHECK_EQ(*(int *)req->data, 1);
	*(int *)req->data = status;
}

/* A copy that has not begun ends with what the store does. */
TEST(cmmds_propose, backup_that_does_not_begin)
{
	static struct face f;
	static const struct {
		int wants; /* in the end; or it is closed */
		int status;
	} cases[] = { { -ENOSPC, -ENOSPC }, { 0, -ESHUTDOWN } };

	for (unsigned i = 0; i < ARRAY_LEN(cases); i++) {
		int status = 1;
		struct cmmds_backup req = { .data = &status, .path = "copy" };

		face_open(&f);
		/* Of what is still being written it would have nothing. */
		f.w.nodes[0].slow_ns = 3600 * SEC;
		build(&f, &f.cmds[0], 0);
		CHECK_EQ(cmmds_propose(f.cmmds, &f.cmds[0], 0, answered), 0);
		world_run(&f.w, f.w.now_ns + SEC);
		CHECK_EQ(cmmds_backup(f.cmmds, &req, backed_up), 0);
		CHECK_EQ(cmmds_backup(f.cmmds, &req, backed_up), -EBUSY);
		world_run(&f.w, f.w.now_ns + SEC);
		CHECK_EQ(status, 1);
		f.w.nodes[0].wants = cases[i].wants;
		f.w.nodes[0].slow_ns = 0;
		if (cases[i].wants == 0)
			cmmds_close(f.cmmds, world_on_closed, &f.closed);
		timer_heap_start(&f.w.timers, &f.w.nodes[0].work_timer,
				 f.w.now_ns);
		world_run(&f.w, f.w.now_ns + SEC);
		CHECK_EQ(status, cases[i].status);
		if (cases[i].wants == 0) {
			CHECK(f.closed);
			cmmds_command_fini(&f.cmds[0]);
			world_fini(&f.w);
			continue;
		}
		CHECK_EQ(cmmds_backup(f.cmmds, &req, backed_up),
			 cases[i].wants);
		f.w.nodes[0].wants = 0;
		face_close(&f);
		cmmds_command_fini(&f.cmds[0]);
		CHECK(f.answers > 0);
	}
}

/* A log that grows does not have to free what is dead of it first. */
TEST(cmmds_propose, log_grows_beside_what_is_dead)
{
	struct shell_log log = { .first = 1 };
	struct log_entry e = { 0 };
	uint64_t first = 1, last = 0;
	size_t most = 0;

	for (unsigned round = 0; round < 40; round++) {
		size_t dead, room;

		while (last < (round + 1) * 1000) {
			dead = log.dead;
			room = log.room;
			e.term = ++last;
			e.len = 8;
			e.data = cmmds__copy(&last, sizeof(last));
			shell__log_push(&log, &e);
			CHECK_EQ(log.dead, dead);
			CHECK(log.room == room || dead + log.count > room / 2);
		}
		first = last - round * 7;
		shell__log_drop_before(&log, first);
		for (uint64_t i = first; i <= last; i++) {
			const struct log_entry *at = shell__log_at(&log, i);

			CHECK_EQ(at->term, i);
			CHECK_EQ(memcmp(at->data, &i, sizeof(i)), 0);
		}
		CHECK(shell__log_at(&log, first - 1) == NULL);
		CHECK_EQ(shell__log_last(&log), last);
		CHECK_EQ(log.bytes, log.count * 8);
		most = MAX(most, log.dead);
		shell__log_free_some(&log, round % 5 == 3 ? 9000 : 100);
	}
	CHECK(most > SHELL_FREED_MAX);
	CHECK(log.dead > 0);
	shell__log_reset(&log, 1);
}

/* What was built wrongly is refused when it is proposed, with why. */
TEST(cmmds_propose, built_wrongly)
{
	static struct face f;
	static char big[CMMDS_VALUE_MAX + 1];
	Directory__Policy p = DIRECTORY__POLICY__INIT;
	Directory__Node n = DIRECTORY__NODE__INIT;
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;

	face_open(&f);
	memset(big, 'x', sizeof(big) - 1);
	for (unsigned i = 0; i < 6; i++) {
		struct cmmds_command *cmd = &f.cmds[0];
		int want = -EMSGSIZE;

		cmmds_command_init(cmd);
		cmd->data = &f;
		p.name = "p";
		switch (i) {
		case 0:
			cmmds_put(cmd, CMMDS_POLICY, big, 256, 0, &p.base);
			break;
		case 1:
			p.name = big;
			cmmds_put(cmd, CMMDS_POLICY, "p", 1, 0, &p.base);
			break;
		case 2:
			cmmds_put(cmd, CMMDS_POLICY, "p", 1, 0, &n.base);
			want = -EINVAL;
			break;
		case 3:
			for (unsigned k = 0; k <= CMMDS_CHANGES_MAX; k++)
				cmmds_expect(cmd, CMMDS_POLICY, "p", 1, 1);
			break;
		case 4:
			for (unsigned k = 0; k <= CMMDS_CHANGES_MAX; k++)
				cmmds_object_op(cmd, &op);
			break;
		default:
			big[CMMDS_VALUE_MAX - 100] = '\0';
			p.name = big;
			for (unsigned k = 0; k < 5; k++)
				cmmds_put(cmd, CMMDS_POLICY, "p", 1, 0,
					  &p.base);
		}
		cmmds_audit(cmd, "who", "what %s", "else");
		CHECK_EQ(cmmds_propose(f.cmmds, cmd, 0, answered), want);
		CHECK(cmd->why[0] != '\0');
		cmmds_command_fini(cmd);
	}
	CHECK_EQ(f.answers, 0);
	face_close(&f);
}
