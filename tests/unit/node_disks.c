/*
 * In which order shards get a disk, and what is known of one that is closed; the
 * rooms below are these tests'.
 */
#include "base/util.h"
#include "node/node_int.h"
#include "tests/lib/fail_alloc.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHARDS 3u

static struct {
	unsigned shards[SHARDS]; /* in the order in which they got it */
	unsigned count;
	unsigned retried; /* units: how many shards had it then */
	struct uuid id;
	uint64_t silent_ns, heard_ns;
	bool opened, stopped;
	struct cmmds_entry *listed; /* the only disk of the directory */
} is;

static struct node node;
static struct test_shard ts;

/* ---- the rooms ---- */

const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after);
void __wrap_cmmds_subscribe(struct cmmds *cmmds,
			    struct cmmds_subscription *sub);
void __wrap_dom_disk_add(struct dom *dom, struct lsom_disk *disk);
void __wrap_dom_disk_remove(struct dom *dom, struct lsom_disk *disk,
			    void (*cb)(void *arg), void *arg);
void __wrap_dom_disk_components(struct dom *dom, const struct uuid *disk,
				unsigned *counts);
int __wrap_lsom_disk_attach(struct lsom *lsom, struct lsom_disk *home,
			    unsigned part, unsigned parts,
			    struct lsom_attach *req,
			    void (*cb)(struct lsom_attach *req, int status));
void __wrap_lsom_disk_info(const struct lsom_disk *disk,
			   struct lsom_disk_info *out);
int __wrap_lsom_disk_open(struct lsom *lsom, struct lsom_disk_open *req,
			  lsom_disk_open_cb cb);
void __wrap_lsom_disk_watch(struct lsom_disk *disk,
			    struct lsom_disk_watch *watch);
void __wrap_iscsi_units_retry(struct iscsi *iscsi);
void __wrap_node__datadir_ask(struct node *n);
int __wrap_node__disk_locate(struct env *env, const struct uuid *cluster,
			     const struct uuid *id, const char *path, char *out,
			     size_t len, char *why, size_t why_len);
void __wrap_node__scrubs_look(struct node *n);
void __wrap_node__serve_if_ready(struct node *n);

const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after)
{
	return after == NULL ? is.listed : NULL;
}

void __wrap_cmmds_subscribe(struct cmmds *cmmds, struct cmmds_subscription *sub)
{
}

void __wrap_dom_disk_add(struct dom *dom, struct lsom_disk *disk)
{
	for (unsigned i = 0; i < SHARDS; i++)
		if (node.doms[i] == dom)
			is.shards[is.count++] = i;
}

void __wrap_iscsi_units_retry(struct iscsi *iscsi)
{
	is.retried = is.count;
}

/* It hangs. */
void __wrap_dom_disk_remove(struct dom *dom, struct lsom_disk *disk,
			    void (*cb)(void *arg), void *arg)
{
}

void __wrap_dom_disk_components(struct dom *dom, const struct uuid *disk,
				unsigned *counts)
{
}

int __wrap_lsom_disk_attach(struct lsom *lsom, struct lsom_disk *home,
			    unsigned part, unsigned parts,
			    struct lsom_attach *req,
			    void (*cb)(struct lsom_attach *req, int status))
{
	req->attached = home;
	cb(req, 0);
	return 0;
}

void __wrap_lsom_disk_info(const struct lsom_disk *disk,
			   struct lsom_disk_info *out)
{
	memset(out, 0, sizeof(*out));
	out->state = LSOM_DISK_ONLINE;
	out->disk = is.id;
	out->silent_ns = is.silent_ns;
}

int __wrap_lsom_disk_open(struct lsom *lsom, struct lsom_disk_open *req,
			  lsom_disk_open_cb cb)
{
	req->opened = (struct lsom_disk *)&is;
	cb(req, 0);
	return 0;
}

void __wrap_lsom_disk_watch(struct lsom_disk *disk,
			    struct lsom_disk_watch *watch)
{
}

int __wrap_node__disk_locate(struct env *env, const struct uuid *cluster,
			     const struct uuid *id, const char *path, char *out,
			     size_t len, char *why, size_t why_len)
{
	snprintf(out, len, "%s", path);
	return 0;
}

void __wrap_node__datadir_ask(struct node *n)
{
}

void __wrap_node__scrubs_look(struct node *n)
{
}

void __wrap_node__serve_if_ready(struct node *n)
{
}

static void on_open(struct node_disk *disk, int status, void *arg)
{
	CHECK_EQ(status, 0);
	is.opened = true;
}

static void begin(unsigned shards)
{
	static const struct config config = { .data_dir = "/nowhere" };
	static char doms[SHARDS];

	test_shards_open(&ts, shards, 64u << 20);
	node.config = &config;
	node.env = ts.env;
	node.shards = ts.shards;
	node.state = NODE_UP;
	TAILQ_INIT(&node.disks);
	for (unsigned i = 0; i < SHARDS; i++)
		node.doms[i] = (struct dom *)&doms[i];
}

static struct node_disk *add(unsigned n)
{
	memset(&is, 0, sizeof(is));
	is.id.b[0] = (uint8_t)n;
	CHECK_EQ(node__disk_open(&node, &is.id, "/disk", 0, on_open, NULL), 0);
	test_run(&ts, &is.opened);
	return node__disk_find(&node, &is.id);
}

static void end(void)
{
	struct node_disk *d, *next;

	test_shard_close(&ts);
	TAILQ_FOREACH_SAFE (d, &node.disks, link, next) {
		free(d->seats);
		free(d);
	}
}

/*
 * The first shard places by what is reserved there, which the others tell the
 * disk's home, one way: it comes last, and the home before it.
 */
TEST(node_disks, who_places_comes_last)
{
	begin(SHARDS);
	for (unsigned n = 0; n < SHARDS; n++) {
		unsigned home = add(n + 1)->shard;

		CHECK_EQ(home, (n + 1) % SHARDS);
		CHECK_EQ(is.count, SHARDS);
		CHECK_EQ(is.retried, SHARDS); /* each finds the disk */
		CHECK_EQ(is.shards[SHARDS - 1], 0);
		CHECK(home == 0 || is.shards[SHARDS - 2] == home);
	}
	end();
}

static uint64_t heard(const struct env *env)
{
	return is.stopped ? is.heard_ns : env_now(env);
}

static void later(uint64_t ns)
{
	node.env->now_ns += ns;
}

/* The process stands still for @ns, and goes on. */
static void stop(uint64_t ns)
{
	is.heard_ns = env_now(node.env);
	is.stopped = true;
	later(ns);
}

/*
 * The process stood still: what a disk had not answered by then it has not answered
 * behind it, and the stop itself does not count before it is known what came.
 */
TEST(node_disks, silent_over_a_stop)
{
	struct env_ops stops;
	struct node_disk *d;
	const struct env_ops *ops;

	begin(1);
	ops = node.env->ops;
	stops = *ops;
	stops.heard_ns = heard;
	d = add(1);
	node.env->ops = &stops;
	d->state = NODE_DISK_OPENING;
	d->open.asked = 1;
	CHECK_EQ(node__disk_silent_ns(d), 0);
	later(2 * SEC);
	CHECK_EQ(node__disk_silent_ns(d), 2 * SEC);
	stop(7 * SEC);
	CHECK_EQ(node__disk_silent_ns(d), 2 * SEC);
	later(SEC);
	CHECK_EQ(node__disk_silent_ns(d), 2 * SEC);
	is.stopped = false;
	CHECK_EQ(node__disk_silent_ns(d), 10 * SEC);
	stop(SEC);
	d->open.answers++;
	CHECK_EQ(node__disk_silent_ns(d), 0);
	is.stopped = false;
	later(SEC);
	CHECK_EQ(node__disk_silent_ns(d), SEC);
	d->state = NODE_DISK_ONLINE;

	/* One that hangs is closed behind it. */
	is.silent_ns = LSOM_SILENT_NS;
	stop(7 * SEC);
	CHECK_EQ(node__disk_silent_ns(d), LSOM_SILENT_NS);
	CHECK_EQ(node__disk_close(d, false, NULL, NULL), 0);
	later(SEC);
	CHECK_EQ(node__disk_silent_ns(d), LSOM_SILENT_NS);
	is.stopped = false;
	CHECK_EQ(node__disk_silent_ns(d), LSOM_SILENT_NS + SEC);
	node.env->ops = ops;
	end();
}

/* It is not forgotten until the next start. */
TEST(node_disks, no_memory_when_it_came)
{
	Directory__Disk disk = DIRECTORY__DISK__INIT;
	struct cmmds_entry entry = { .message = &disk.base };

	begin(1);
	memset(&is, 0, sizeof(is));
	is.id.b[0] = 1;
	is.listed = &entry;
	disk.uuid.data = is.id.b;
	disk.uuid.len = sizeof(is.id.b);
	disk.node.data = node.identity.id.b;
	disk.node.len = sizeof(node.identity.id.b);
	disk.path = "/disk";
	node.swept = true;
	fail_size = sizeof(struct node_disk);
	fail_all = true;
	node__disks_start(&node);
	fail_all = false;
	CHECK(node__disk_find(&node, &is.id) == NULL);
	env_timer_start(node.env, &node.disks_look, 0);
	for (unsigned i = 0; i < 1000 && is.count == 0; i++)
		shard_step(node.env, 10 * MSEC);
	CHECK(node__disk_find(&node, &is.id) != NULL);
	CHECK_EQ(is.count, 1);
	env_timer_stop(node.env, &node.disks_look);
	end();
}
