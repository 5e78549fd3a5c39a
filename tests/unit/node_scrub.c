/*
 * Which disk is read through of itself, and when; what is kept of that.  The
 * directory, the disks and the clock are these tests'.
 */
#include "base/util.h"
#include "node/node_int.h"
#include "tests/lib/memenv.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DAY (24 * 3600 * SEC)
#define DISKS 3u

static struct memenv me;
static struct node node;
static struct config config;
static struct node_disk *disks[DISKS];
static Directory__Disk listed[DISKS];
static struct cmmds_entry entries[DISKS];
static bool failed[DISKS];
static Directory__Cluster cluster;
static struct cmmds_entry cluster_entry = { .message = &cluster.base };

static struct lsom_scrub *running; /* of any disk */
static lsom_scrub_cb running_cb;
static unsigned begun; /* scrubs */
static int propose_status; /* of the next one */
static unsigned proposed;
static unsigned propose_busy; /* so many find a full queue */

/* ---- the rooms ---- */

const struct cmmds_entry *__wrap_cmmds_get(struct cmmds *cmmds,
					   enum cmmds_kind kind,
					   const void *key, size_t len);
int __wrap_cmmds_propose(struct cmmds *cmmds, struct cmmds_command *cmd,
			 uint64_t deadline_ns, cmmds_command_cb cb);
void __wrap_cmmds_put(struct cmmds_command *cmd, enum cmmds_kind kind,
		      const void *key, size_t len, uint64_t expect,
		      const ProtobufCMessage *message);
int __wrap_lsom_scrub(struct lsom_disk *disk, struct lsom_scrub *req,
		      lsom_scrub_cb cb);
void __wrap_lsom_scrub_cancel(struct lsom_scrub *req);
void __wrap_lsom_disk_info(const struct lsom_disk *disk,
			   struct lsom_disk_info *out);
struct env *__wrap_shard_env(struct shards *shards, unsigned shard);

const struct cmmds_entry *__wrap_cmmds_get(struct cmmds *cmmds,
					   enum cmmds_kind kind,
					   const void *key, size_t len)
{
	if (kind == CMMDS_CLUSTER)
		return &cluster_entry;
	for (unsigned i = 0; i < DISKS; i++)
		if (kind == CMMDS_DISK && memcmp(disks[i]->id.b, key, len) == 0)
			return entries[i].message != NULL ? &entries[i] : NULL;
	return NULL;
}

static cmmds_command_cb propose_cb;
static struct cmmds_command *propose_cmd;
static struct env_task propose_task;
static Directory__Disk put;
static unsigned put_disk;

void __wrap_cmmds_put(struct cmmds_command *cmd, enum cmmds_kind kind,
		      const void *key, size_t len, uint64_t expect,
		      const ProtobufCMessage *message)
{
	CHECK_EQ(kind, CMMDS_DISK);
	put = *(const Directory__Disk *)message;
	for (put_disk = 0; memcmp(disks[put_disk]->id.b, key, len) != 0;)
		put_disk++;
}

static void answer(struct env_task *task)
{
	int status = propose_status;

	propose_status = 0;
	if (status == 0)
		listed[put_disk] = put;
	propose_cb(propose_cmd, status);
}

int __wrap_cmmds_propose(struct cmmds *cmmds, struct cmmds_command *cmd,
			 uint64_t deadline_ns, cmmds_command_cb cb)
{
	proposed++;
	if (propose_busy > 0) {
		propose_busy--;
		return -EBUSY;
	}
	propose_cb = cb;
	propose_cmd = cmd;
	propose_task.cb = answer;
	env_post(&me.loop.env, &propose_task);
	return 0;
}

int __wrap_lsom_scrub(struct lsom_disk *disk, struct lsom_scrub *req,
		      lsom_scrub_cb cb)
{
	CHECK(running == NULL);
	begun++;
	running = req;
	running_cb = cb;
	return 0;
}

/* It ends with its status, as the disk has it. */
static void scrub_end(int status)
{
	struct lsom_scrub *req = running;

	running = NULL;
	running_cb(req, status);
	while (vloop_task_turn(&me.loop))
		;
}

void __wrap_lsom_scrub_cancel(struct lsom_scrub *req)
{
	CHECK(req == running);
	running = NULL;
	running_cb(req, -ECANCELED);
}

void __wrap_lsom_disk_info(const struct lsom_disk *disk,
			   struct lsom_disk_info *out)
{
	memset(out, 0, sizeof(*out));
	out->state = LSOM_DISK_ONLINE;
	for (unsigned i = 0; i < DISKS; i++)
		if (disk == disks[i]->disk && failed[i])
			out->state = LSOM_DISK_FAILED;
}

struct env *__wrap_shard_env(struct shards *shards, unsigned shard)
{
	return &me.loop.env;
}

/* ---- a node with some disks ---- */

static void fixture(void)
{
	memenv_init(&me, NULL, 0);
	me.loop.env.now_ns = 1000 * DAY; /* the wall's, too */
	memset(&node, 0, sizeof(node));
	node.config = &config;
	strcpy(config.name, "n");
	node.env = &me.loop.env;
	node.state = NODE_UP;
	TAILQ_INIT(&node.disks);
	running = NULL;
	begun = proposed = 0;
	propose_status = 0;
	for (unsigned i = 0; i < DISKS; i++) {
		struct node_disk *d = disks[i] = calloc(1, sizeof(*d));

		d->node = &node;
		d->id = uuid_of(i + 1);
		d->disk = d->home = (struct lsom_disk *)&listed[i];
		d->state = NODE_DISK_ONLINE;
		snprintf(d->path, sizeof(d->path), "disk%u", i);
		TAILQ_INSERT_TAIL(&node.disks, d, link);
		directory__disk__init(&listed[i]);
		listed[i].added_wall_ns = (900 - 10 * i) * DAY;
		entries[i].message = &listed[i].base;
		failed[i] = false;
	}
}

static void end(void)
{
	if (running != NULL)
		scrub_end(-ESHUTDOWN);
	for (unsigned i = 0; i < DISKS; i++) {
		free(disks[i]->scrub);
		free(disks[i]);
	}
	memenv_fini(&me);
}

/* So much time passes, in which it is looked now and then. */
static void pass(uint64_t ns)
{
	for (unsigned i = 0; i < 8; i++) {
		me.loop.env.now_ns += ns / 8;
		node__scrubs_look(&node);
		while (vloop_task_turn(&me.loop))
			;
	}
}

static bool runs(unsigned disk)
{
	return node__scrub_runs(disks[disk]) &&
	       running == &disks[disk]->scrub->req;
}

/* ---- tests ---- */

TEST(scrub, is_due_after_a_month)
{
	const uint64_t added = 1000 * DAY;

	CHECK(!node__scrub_due(30, added, 0, added));
	CHECK(!node__scrub_due(30, added, 0, added + 30 * DAY - 1));
	CHECK(node__scrub_due(30, added, 0, added + 30 * DAY));
	/* From the last one on. */
	CHECK(!node__scrub_due(30, added, added + 40 * DAY, added + 60 * DAY));
	CHECK(node__scrub_due(30, added, added + 40 * DAY, added + 70 * DAY));
}

/* A clock that was ahead when the disk was added does not bar it for years. */
TEST(scrub, is_due_whatever_the_clock_was)
{
	CHECK(node__scrub_due(30, 9000 * DAY, 0, 1000 * DAY));
	CHECK(node__scrub_due(30, 1000 * DAY, 9000 * DAY, 1001 * DAY));
	CHECK(!node__scrub_due(30, 9000 * DAY, 1000 * DAY, 1001 * DAY));
	/* By an earlier version: not known. */
	CHECK(node__scrub_due(30, 0, 0, 1000 * DAY));
}

/* One at a time, the one that waits longest first; then none for a month. */
TEST(scrub, of_itself)
{
	fixture();
	listed[1].scrubbed_wall_ns = 950 * DAY;
	listed[2].scrubbed_wall_ns = 940 * DAY;
	pass(3000 * SEC); /* a daemon that has just begun */
	CHECK_EQ(begun, 0);
	pass(1000 * SEC);
	CHECK(runs(0)); /* never before */
	pass(DAY);
	CHECK_EQ(begun, 1);
	running->bad_count = 2;
	scrub_end(0);
	CHECK(listed[0].scrubbed_wall_ns >= 1001 * DAY);
	CHECK_EQ(listed[0].scrubbed_bad, 2);
	pass(80 * SEC);
	CHECK(runs(2));
	scrub_end(0);
	pass(80 * SEC);
	CHECK(runs(1));
	scrub_end(0);
	CHECK_EQ(proposed, 3);
	pass(29 * DAY);
	CHECK_EQ(begun, 3);
	pass(2 * DAY);
	CHECK(runs(0));
	end();
}

/* As often as the cluster wants, or never. */
TEST(scrub, as_often_as_is_set)
{
	fixture();
	CHECK_EQ(node__scrub_days(&node), 30);
	cluster.scrub_off = true;
	CHECK_EQ(node__scrub_days(&node), 0);
	pass(10 * DAY);
	CHECK_EQ(begun, 0);
	cluster.scrub_off = false;
	cluster.scrub_days = 5;
	for (unsigned i = 0; i < DISKS; i++)
		listed[i].scrubbed_wall_ns = (i == 1 ? 1004 : 1008) * DAY;
	pass(DAY);
	CHECK(runs(1));
	scrub_end(0);
	pass(DAY);
	CHECK_EQ(begun, 1);
	pass(2 * DAY);
	CHECK_EQ(begun, 2);
	end();
	cluster = (Directory__Cluster)DIRECTORY__CLUSTER__INIT;
}

TEST(scrub, not_of_what_goes_or_is_not_there)
{
	fixture();
	failed[0] = true;
	disks[1]->leaving = true;
	listed[2].removing = true;
	pass(10 * DAY);
	CHECK_EQ(begun, 0);
	listed[2].removing = false;
	entries[2].message = NULL; /* the directory does not have it yet */
	pass(10 * DAY);
	CHECK_EQ(begun, 0);
	CHECK_EQ(node__scrub_start(disks[0], "root"), -ENODEV);
	disks[0]->state = NODE_DISK_OPENING;
	CHECK_EQ(node__scrub_start(disks[0], "root"), -ENODEV);
	end();
}

/* One that was cut off is not kept, and comes again a day later. */
TEST(scrub, that_does_not_come_to_its_end)
{
	fixture();
	entries[1].message = entries[2].message = NULL;
	pass(8000 * SEC);
	CHECK(runs(0));
	scrub_end(-ECANCELED);
	CHECK_EQ(proposed, 0);
	CHECK_EQ(listed[0].scrubbed_wall_ns, 0);
	pass(DAY - 1000 * SEC);
	CHECK_EQ(begun, 1);
	pass(2000 * SEC);
	CHECK_EQ(begun, 2);
	end();
}

/* Others change the entry meanwhile; then the disk is removed. */
TEST(scrub, its_outcome_meets_other_changes)
{
	fixture();
	CHECK_EQ(node__scrub_start(disks[1], "root"), 0);
	CHECK_EQ(node__scrub_start(disks[1], "root"), -EBUSY);
	while (vloop_task_turn(&me.loop))
		;
	CHECK(runs(1));
	running->segments_unread = 3;
	propose_status = -EAGAIN;
	scrub_end(0);
	CHECK_EQ(proposed, 2);
	CHECK_EQ(listed[1].scrubbed_unread, 3);
	CHECK_EQ(node__scrub_start(disks[1], "root"), 0);
	while (vloop_task_turn(&me.loop))
		;
	entries[1].message = NULL;
	scrub_end(0);
	CHECK_EQ(proposed, 2);
	end();
}

/* What it has found is kept once the directory takes it. */
TEST(scrub, its_outcome_waits_for_a_full_queue)
{
	fixture();
	CHECK_EQ(node__scrub_start(disks[1], "root"), 0);
	while (vloop_task_turn(&me.loop))
		;
	running->bad_count = 3;
	propose_busy = 5;
	scrub_end(0);
	CHECK_EQ(listed[1].scrubbed_bad, 0);
	CHECK_EQ(node.disks_works, 1); /* the end of the node waits for it */
	while (vloop_timer_turn(&me.loop) || vloop_task_turn(&me.loop))
		;
	CHECK_EQ(proposed, 6);
	CHECK_EQ(listed[1].scrubbed_bad, 3);
	CHECK_EQ(node.disks_works, 0);
	end();
}

/* It is called off before, while and after it runs; then another one runs. */
TEST(scrub, called_off_at_any_time)
{
	for (unsigned when = 0; when < 3; when++) {
		fixture();
		CHECK_EQ(node__scrub_start(disks[0], "root"), 0);
		if (when > 0)
			CHECK(vloop_task_turn(&me.loop));
		if (when == 2) { /* its end is on its way */
			running_cb(running, 0);
			running = NULL;
		}
		node__scrub_stop(disks[0]);
		node__scrub_stop(disks[0]);
		/* Nothing of it is on its way when the next one may begin. */
		while (node__scrub_start(disks[0], "root") == -EBUSY)
			CHECK(vloop_task_turn(&me.loop));
		while (vloop_task_turn(&me.loop))
			;
		CHECK(runs(0));
		CHECK_EQ(begun, 2);
		CHECK_EQ(proposed, when == 2);
		end();
	}
}
