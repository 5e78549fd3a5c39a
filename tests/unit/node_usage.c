/*
 * What each virtual disk does, as `basalt vdisk stats` tells it; the directory
 * and what iscsi has counted are what these tests make of them.
 */
#include "base/util.h"
#include "node/admin_int.h"
#include "tests/lib/fail_alloc.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DISKS 3u

static struct node node;
static struct config config;
static struct test_shard ts;

/* The directory: as many of them as there are now. */
static unsigned disks;
static Directory__VDisk vdisk[DISKS];
static struct cmmds_entry entry[DISKS];
/* Each is in a target of its name. */
static Directory__Lun lun[DISKS];
static struct cmmds_entry lun_entry[DISKS];
static Directory__Target target[DISKS];
static uint8_t oid[DISKS][sizeof(struct uuid)];
static char *const names[DISKS] = { "a", "b", "c" };
/* And their objects, as iscsi counts: a's id is the greatest. */
static struct iscsi_usage counted[DISKS];

/* An answer: nobody has looked at it before. */
static struct {
	bool done;
	int status;
	char error[512];
	unsigned seconds, count;
	uint64_t elapsed_ns;
	struct {
		char name[8];
		unsigned sessions;
		uint64_t reads, read_ns, read_bytes;
		uint64_t writes, write_ns, written_bytes;
		uint64_t unmaps, failed;
	} of[DISKS];
} said;

static bool measuring; /* for some seconds, since how it was is known */

/* ---- the rooms ---- */

const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after);
const struct cmmds_entry *__wrap_cmmds_behind(struct cmmds *cmmds,
					      enum cmmds_kind kind,
					      const void *key, size_t key_len);
const struct cmmds_entry *__wrap_cmmds_get(struct cmmds *cmmds,
					   enum cmmds_kind kind,
					   const void *key, size_t key_len);
const struct cmmds_entry *__wrap_cmmds_of(struct cmmds *cmmds,
					  enum cmmds_kind kind,
					  const void *what, size_t len,
					  const struct cmmds_entry *after);
bool __wrap_iscsi_usage_of(struct iscsi *iscsi, const struct uuid *object,
			   struct iscsi_usage *out);
const Directory__Target *__wrap_cmmds_target(struct cmmds *cmmds,
					     const char *name);
void __wrap_iscsi_session_each(struct iscsi *iscsi,
			       void (*cb)(const struct iscsi_session_info *info,
					  void *arg),
			       void *arg);
void __wrap_admin__reply(struct admin_req *r, Admin__Response *response);
void __wrap_admin__reply_packed(struct admin_req *r, int result, uint8_t *bytes,
				size_t len);
void *__real_realloc(void *at, size_t size);
void *__wrap_realloc(void *at, size_t size);
void __wrap_admin__progress(struct admin_req *r, unsigned percent,
			    const char *doing);

void *__wrap_realloc(void *at, size_t size)
{
	return alloc_fails(0) ? NULL : __real_realloc(at, size);
}

const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after)
{
	size_t i = after == NULL ? 0 : (size_t)(after - entry) + 1;

	CHECK_EQ(kind, CMMDS_VDISK);
	return i < disks ? &entry[i] : NULL;
}

const struct cmmds_entry *__wrap_cmmds_behind(struct cmmds *cmmds,
					      enum cmmds_kind kind,
					      const void *key, size_t key_len)
{
	CHECK_EQ(key_len, 0); /* they are few: all are seen in one part */
	return __wrap_cmmds_next(cmmds, kind, NULL);
}

const struct cmmds_entry *__wrap_cmmds_get(struct cmmds *cmmds,
					   enum cmmds_kind kind,
					   const void *key, size_t key_len)
{
	for (unsigned i = 0; i < disks; i++)
		if (key_len == 1 && memcmp(names[i], key, key_len) == 0)
			return &entry[i];
	return NULL;
}

/* Each is one LUN. */
const struct cmmds_entry *__wrap_cmmds_of(struct cmmds *cmmds,
					  enum cmmds_kind kind,
					  const void *what, size_t len,
					  const struct cmmds_entry *after)
{
	CHECK_EQ(kind, CMMDS_LUN);
	return after == NULL ? &lun_entry[((const char *)what)[0] - 'a'] : NULL;
}

bool __wrap_iscsi_usage_of(struct iscsi *iscsi, const struct uuid *object,
			   struct iscsi_usage *out)
{
	for (unsigned i = 0; i < DISKS; i++)
		if (uuid_equal(&counted[i].object, object)) {
			*out = counted[i];
			return true;
		}
	return false;
}

const Directory__Target *__wrap_cmmds_target(struct cmmds *cmmds,
					     const char *name)
{
	return &target[name[0] - 'a'];
}

/* As many as the first byte of its object's id says. */
void __wrap_iscsi_session_each(struct iscsi *iscsi,
			       void (*cb)(const struct iscsi_session_info *info,
					  void *arg),
			       void *arg)
{
	for (unsigned i = 0; i < DISKS; i++) {
		struct iscsi_session_info info = { .target = target[i].iqn };

		for (unsigned n = 0; n < oid[i][0]; n++)
			cb(&info, arg);
	}
}

void __wrap_admin__reply(struct admin_req *r, Admin__Response *response)
{
	CHECK(!said.done);
	said.done = true;
	said.status = response->status;
	snprintf(said.error, sizeof(said.error), "%s", response->error);
}

void __wrap_admin__reply_packed(struct admin_req *r, int result, uint8_t *bytes,
				size_t len)
{
	unsigned failing = fail_at;
	Admin__VdiskStats *m;

	CHECK(!said.done);
	said.done = true;
	CHECK_EQ(result, ADMIN__RESPONSE__RESULT_VDISK_STATS);
	fail_at = 0;
	m = admin__vdisk_stats__unpack(NULL, len, bytes);
	CHECK(m != NULL);
	said.seconds = m->seconds;
	said.elapsed_ns = m->elapsed_ns;
	said.count = (unsigned)m->n_vdisks;
	for (unsigned i = 0; i < said.count; i++) {
		const Admin__VdiskStat *v = m->vdisks[i];

		snprintf(said.of[i].name, sizeof(said.of[i].name), "%s",
			 v->vdisk);
		said.of[i].sessions = v->sessions;
		said.of[i].reads = v->read->count;
		said.of[i].read_ns = v->read->count * v->read->mean_ns;
		said.of[i].read_bytes = v->read_bytes;
		said.of[i].writes = v->write->count;
		said.of[i].write_ns = v->write->count * v->write->mean_ns;
		said.of[i].written_bytes = v->written_bytes;
		said.of[i].unmaps = v->unmaps;
		said.of[i].failed = v->failed;
	}
	admin__vdisk_stats__free_unpacked(m, NULL);
	free(bytes);
	fail_at = failing;
}

void __wrap_admin__progress(struct admin_req *r, unsigned percent,
			    const char *doing)
{
	CHECK(r->conn != NULL && !said.done && percent < 100);
	measuring = true;
}

/* ---- a request ---- */

static Admin__VdiskStatsAsk ask;
static Admin__Request msg;
static struct admin_req req;

static void nothing(struct env_timer *timer)
{
}

static void open_it(void)
{
	struct env_timer any = { .cb = nothing };

	memset(&node, 0, sizeof(node));
	memset(counted, 0, sizeof(counted));
	test_memory_open(&ts);
	/* The loop's own room for timers is there. */
	env_timer_start(ts.env, &any, 0);
	env_timer_stop(ts.env, &any);
	strcpy(config.name, "n1");
	node.config = &config;
	node.env = ts.env;
	node.state = NODE_UP;
	node__parts_open(&node);
	TAILQ_INIT(&node.disks);
	disks = DISKS;
	for (unsigned i = 0; i < DISKS; i++) {
		struct uuid id = uuid_of(DISKS - i);

		memcpy(oid[i], id.b, sizeof(oid[i]));
		directory__vdisk__init(&vdisk[i]);
		vdisk[i].name = names[i];
		vdisk[i].size_bytes = 1 << 20;
		vdisk[i].oid = (ProtobufCBinaryData){ sizeof(oid[i]), oid[i] };
		entry[i].message = &vdisk[i].base;
		directory__target__init(&target[i]);
		target[i].name = target[i].iqn = names[i];
		directory__lun__init(&lun[i]);
		lun[i].target = lun[i].vdisk = names[i];
		lun_entry[i].message = &lun[i].base;
		counted[i].object = id;
	}
}

static void asked(char *name, unsigned seconds)
{
	memset(&said, 0, sizeof(said));
	measuring = false;
	admin__vdisk_stats_ask__init(&ask);
	admin__request__init(&msg);
	ask.name = name;
	ask.seconds = seconds;
	msg.command_case = ADMIN__REQUEST__COMMAND_VDISK_STATS;
	msg.vdisk_stats = &ask;
	req = (struct admin_req){ .node = &node, .msg = &msg };
	req.conn = (void *)&req; /* any but NULL */
	admin__vdisk_stats(&req);
}

/* How it is then is known. */
static void looked(void)
{
	test_run(&ts, &measuring);
	CHECK(!said.done);
}

static void answered(void)
{
	test_run(&ts, &said.done);
	if (req.over != NULL)
		req.over(&req);
	free(req.ctx);
}

static void add(struct histogram_value *v, unsigned count, uint64_t each_ns)
{
	v->count += count;
	v->sum_ns += count * each_ns;
	v->bucket[0] += count;
}

/* Of the times only what is known exactly: a mean that has no rest. */
static void check(unsigned i, const char *name, const struct iscsi_usage *want)
{
	CHECK_STR(said.of[i].name, name);
	CHECK_EQ(said.of[i].sessions, want->object.b[0]);
	CHECK_EQ(said.of[i].reads, want->reads.count);
	CHECK_EQ(said.of[i].read_ns, want->reads.sum_ns);
	CHECK_EQ(said.of[i].read_bytes, want->read_bytes);
	CHECK_EQ(said.of[i].writes, want->writes.count);
	CHECK_EQ(said.of[i].write_ns, want->writes.sum_ns);
	CHECK_EQ(said.of[i].written_bytes, want->written_bytes);
	CHECK_EQ(said.of[i].unmaps, want->unmaps);
	CHECK_EQ(said.of[i].failed, want->failed);
}

/* ---- the tests ---- */

/* What came in the time, each disk's its own, and the busiest first. */
TEST(node_usage, in_some_seconds)
{
	struct iscsi_usage b = { .object = uuid_of(2) };
	struct iscsi_usage c = { .object = uuid_of(1) };
	const struct iscsi_usage a = { .object = uuid_of(3) };

	open_it();
	for (unsigned i = 0; i < DISKS; i++) {
		add(&counted[i].reads, 100, 900);
		add(&counted[i].writes, 50, 900);
		counted[i].read_bytes = 100 << 20;
		counted[i].written_bytes = 50 << 20;
		counted[i].unmaps = 7;
		counted[i].failed = 5;
	}
	asked("", 2);
	looked();
	add(&b.reads, 2, 1000);
	b.read_bytes = 8192;
	b.failed = 1;
	add(&c.reads, 1, 1000);
	add(&c.writes, 4, 2000);
	c.read_bytes = 512;
	c.written_bytes = 16384;
	c.unmaps = 3;
	add(&counted[1].reads, 2, 1000);
	counted[1].read_bytes += b.read_bytes;
	counted[1].failed += b.failed;
	add(&counted[2].reads, 1, 1000);
	add(&counted[2].writes, 4, 2000);
	counted[2].read_bytes += c.read_bytes;
	counted[2].written_bytes += c.written_bytes;
	counted[2].unmaps += c.unmaps;
	answered();
	CHECK_EQ(said.status, 0);
	CHECK_EQ(said.seconds, 2);
	CHECK(said.elapsed_ns >= 2 * SEC && said.elapsed_ns < 2 * SEC + MSEC);
	CHECK_EQ(said.count, 3);
	check(0, "c", &c);
	check(1, "b", &b);
	check(2, "a", &a);
	test_shard_close(&ts);
}

TEST(node_usage, since_they_are_exported)
{
	open_it();
	add(&counted[1].writes, 3, 1000);
	counted[1].written_bytes = 4096;
	asked("", 0);
	answered();
	CHECK_EQ(said.count, 3);
	CHECK_EQ(said.seconds + said.elapsed_ns, 0);
	check(0, "b", &counted[1]);
	check(1, "a", &counted[0]); /* as idle as c: by name */
	check(2, "c", &counted[2]);
	asked("c", 0);
	answered();
	CHECK_EQ(said.count, 1);
	check(0, "c", &counted[2]);
	test_shard_close(&ts);
}

/* Its last target goes, and another comes: what it tells then is all new. */
TEST(node_usage, counted_anew)
{
	struct iscsi_usage now = { .object = uuid_of(3) };

	open_it();
	add(&counted[0].reads, 1, 9000);
	add(&counted[0].writes, 2, 9000);
	counted[0].read_bytes = 1 << 20;
	counted[0].written_bytes = 2 << 20;
	counted[0].since_ns = 1;
	asked("a", 1);
	/* More of them than there were, but smaller ones, and faster. */
	add(&now.reads, 2, 1000);
	add(&now.writes, 3, 1000);
	now.read_bytes = 1024;
	now.written_bytes = 1536;
	now.since_ns = 2;
	counted[0] = now;
	answered();
	CHECK_EQ(said.count, 1);
	check(0, "a", &now);
	asked("a", 1); /* it is shown no more */
	counted[0].object = uuid_of(9);
	answered();
	check(0, "a", &(struct iscsi_usage){ .object = uuid_of(3) });
	test_shard_close(&ts);
}

/* The directory changes meanwhile. */
TEST(node_usage, one_comes_and_one_goes)
{
	open_it();
	disks = 2;
	asked("", 1);
	looked();
	disks = 3;
	add(&counted[2].writes, 1, 1000);
	answered();
	CHECK_EQ(said.count, 3);
	check(0, "c", &counted[2]);
	asked("c", 1);
	disks = 2;
	answered();
	CHECK_EQ(said.status, -ENOENT);
	CHECK(strstr(said.error, "c is not there any more"));
	asked("", 1);
	looked();
	disks = 0;
	answered();
	CHECK_EQ(said.status, 0);
	CHECK_EQ(said.count, 0);
	test_shard_close(&ts);
}

TEST(node_usage, refused)
{
	char name[CMMDS_KEY_MAX + 2] = "";

	open_it();
	asked("nope", 0);
	CHECK(said.done);
	CHECK_EQ(said.status, -ENOENT);
	memset(name, 'n', sizeof(name) - 1);
	asked(name, 0);
	CHECK_EQ(said.status, -ENOENT);
	asked("a", 3601);
	CHECK(said.done);
	CHECK_EQ(said.status, -EINVAL);
	asked("a", 3600); /* nobody waits any more */
	CHECK(!said.done);
	req.conn = NULL;
	answered();
	CHECK_EQ(said.status, -ECANCELED);
	asked("a", 3600);
	node.state = NODE_STOPPING;
	answered();
	CHECK_EQ(said.status, -ESHUTDOWN);
	test_shard_close(&ts);
}

/* Each allocation fails once: it is told, and nothing is left behind. */
TEST(node_usage, without_memory)
{
	unsigned step = 0;

	do {
		open_it();
		fail_at = ++step;
		asked("", 1);
		answered();
		CHECK(fail_at > 0 || said.status == -ENOMEM);
		test_shard_close(&ts);
		CHECK(step < 20);
	} while (fail_at == 0);
	CHECK_EQ(said.status, 0);
	CHECK(step > 4);
	fail_at = 0;
}
