/*
 * The directory on other shards, each with its thread.  Checks there are
 * NEED()s: they end the process.
 */
#include "tests/lib/must.h"
#include "tests/lib/test.h"

#include "base/shard.h"
#include "base/util.h"
#include "cmmds/cmmds.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARDS 3u
#define COMMANDS 120u /* of each shard at once: more than may be in flight */

struct fixture {
	struct test_shard ts;
	struct cmmds *cmmds;
	struct cmmds_open open;
	int status;
	bool done;
};

struct proposal {
	struct cmmds_command cmd;
	struct user *user;
	char name[32];
};

struct user {
	struct fixture *f;
	struct env *env;
	struct cmmds *mirror;
	unsigned shard;
	struct cmmds_subscription sub;
	struct proposal proposals[COMMANDS];
	struct cmmds_barrier barrier;
	unsigned answered, heard, heard_all;
	bool wait_all; /* for everybody's policies */
	struct env_task task, end;
	bool done, closed;
};

static void on_open(struct cmmds_open *req, int status)
{
	struct fixture *f = req->data;

	f->cmmds = req->opened;
	f->status = status;
	f->done = true;
}

static void on_closed(void *arg)
{
	*(bool *)arg = true;
}

static struct fixture *fixture_open(void)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char *dir = test_dir(), path[600];
	struct cmmds_config config = { .incarnation = 1, .found = true };

	test_shards_open(&f->ts, SHARDS, 8u << 20);
	snprintf(path, sizeof(path), "%s/directory", dir);
	free(dir);
	config.env = f->ts.env;
	config.path = path;
	memset(config.node.b, 7, sizeof(config.node.b));
	f->open.data = f;
	CHECK_EQ(cmmds_open(&config, &f->open, on_open), 0);
	test_run(&f->ts, &f->done);
	CHECK_EQ(f->status, 0);
	return f;
}

static void fixture_close(struct fixture *f)
{
	f->done = false;
	cmmds_close(f->cmmds, on_closed, &f->done);
	test_run(&f->ts, &f->done);
	test_shard_close(&f->ts);
	free(f);
}

static void user_leave(struct user *u)
{
	cmmds_unsubscribe(&u->sub);
	env_post(u->f->ts.env, &u->end);
}

static void on_barrier(struct cmmds_barrier *req, int status)
{
	struct user *u = req->data;

	NEED(status == 0);
	u->heard_all = SHARDS * COMMANDS;
	if (!u->wait_all || u->heard == u->heard_all)
		user_leave(u);
}

/* What was answered is there, and was heard of before. */
static void on_applied(struct cmmds_command *cmd, int status)
{
	struct proposal *p = container_of(cmd, struct proposal, cmd);
	struct user *u = p->user;

	NEED(status == 0);
	NEED(cmmds_policy(u->mirror, p->name) != NULL);
	NEED(strcmp(cmmds_policy(u->mirror, p->name)->name, p->name) == 0);
	cmmds_command_fini(cmd);
	NEED(u->heard > u->answered);
	if (++u->answered < COMMANDS)
		return;
	u->barrier.data = u;
	NEED(cmmds_barrier(u->mirror, &u->barrier, on_barrier) == 0);
}

static void on_change(struct cmmds_subscription *sub,
		      const struct cmmds_change *change)
{
	struct user *u = sub->data;

	NEED(change->old_entry == NULL);
	NEED(change->new_entry->message != NULL);
	u->heard++;
	if (u->heard == u->heard_all)
		user_leave(u);
}

static void user_begin(struct env_task *task)
{
	struct user *u = container_of(task, struct user, task);

	NEED(cmmds_session_valid(u->mirror));
	NEED(cmmds_incarnation(u->mirror) == 1);
	u->sub = (struct cmmds_subscription){ .data = u,
					      .kind = CMMDS_POLICY,
					      .cb = on_change };
	cmmds_subscribe(u->mirror, &u->sub);
	for (unsigned i = 0; i < COMMANDS; i++) {
		struct proposal *p = &u->proposals[i];
		Directory__Policy m = DIRECTORY__POLICY__INIT;

		p->user = u;
		snprintf(p->name, sizeof(p->name), "p%u-%u", u->shard, i);
		m.name = p->name;
		m.stripe_width = 1;
		cmmds_command_init(&p->cmd);
		cmmds_put(&p->cmd, CMMDS_POLICY, p->name, strlen(p->name),
			  CMMDS_MUST_NOT_EXIST, &m.base);
		NEED(cmmds_propose(u->mirror, &p->cmd, 0, on_applied) == 0);
	}
}

static void user_end(struct env_task *task)
{
	container_of(task, struct user, end)->done = true;
}

/* Every shard changes the directory at once; each hears of all, in order. */
TEST(cmmds_mirror, all_shards_at_once)
{
	struct fixture *f = fixture_open();
	struct user *users = calloc(SHARDS, sizeof(*users));

	for (unsigned i = 0; i < SHARDS; i++) {
		struct user *u = &users[i];

		u->f = f;
		u->shard = i;
		u->wait_all = true;
		u->env = shard_env(f->ts.shards, i);
		u->mirror = cmmds_mirror_open(f->cmmds, u->env);
		u->task.cb = user_begin;
		u->end.cb = user_end;
	}
	for (unsigned i = 0; i < SHARDS; i++)
		env_post(users[i].env, &users[i].task);
	for (unsigned i = 0; i < SHARDS; i++)
		test_run(&f->ts, &users[i].done);
	for (unsigned i = 0; i < SHARDS; i++) {
		cmmds_mirror_close(users[i].mirror, on_closed,
				   &users[i].closed);
		test_run(&f->ts, &users[i].closed);
	}
	free(users);
	fixture_close(f);
}

static void late_begin(struct env_task *task)
{
	struct user *u = container_of(task, struct user, task);

	NEED(cmmds_policy(u->mirror, "p0-0") != NULL);
	u->heard_all = COMMANDS;
	u->sub = (struct cmmds_subscription){ .data = u,
					      .kind = CMMDS_POLICY,
					      .cb = on_change };
	cmmds_subscribe(u->mirror, &u->sub);
}

/* A mirror opened later begins with what is there. */
TEST(cmmds_mirror, opened_later)
{
	struct fixture *f = fixture_open();
	struct user *users = calloc(2, sizeof(*users));

	for (unsigned i = 0; i < 2; i++) {
		struct user *u = &users[i];

		u->f = f;
		u->env = shard_env(f->ts.shards, i + 1);
		u->mirror = cmmds_mirror_open(f->cmmds, u->env);
		u->task.cb = i == 0 ? user_begin : late_begin;
		u->end.cb = user_end;
		env_post(u->env, &u->task);
		test_run(&f->ts, &u->done);
		cmmds_mirror_close(u->mirror, on_closed, &u->closed);
		test_run(&f->ts, &u->closed);
	}
	free(users);
	fixture_close(f);
}
