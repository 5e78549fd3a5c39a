/*
 * Lists of the admin service over a directory of many entries: what they say, and
 * that they look at each entry a few times, not once for each line.
 */
#include "base/util.h"
#include "node/admin_int.h"
#include "tests/lib/fail_alloc.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>

enum { N = 1000 };

/* Virtual disk n is LUN 0 of target n, and LUN 1 to 3 of target 0. */
enum { LUNS = N + 3 };

static struct {
	struct cmmds_entry vdisk[N], target[N], lun[LUNS];
	Directory__VDisk v[N];
	Directory__Target t[N];
	Directory__Lun l[LUNS];
	char name[N][16], iqn[N][32];
	uint8_t oid[N][16];
	unsigned looks, walks; /* at entries, through the sessions */
	struct {
		void (*cb)(void *arg, int status,
			   const struct object_space *space);
		void *arg;
	} ask[N];
	unsigned asks;
	bool deaf; /* no memory to ask with */
	unsigned lines, spaces;
	bool done;
	int status;
} is;

static struct node node;
static struct config config; /* no portals */

const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after);
const Directory__VDisk *__wrap_cmmds_vdisk(struct cmmds *cmmds,
					   const char *name);
const Directory__Target *__wrap_cmmds_target(struct cmmds *cmmds,
					     const char *name);
const Directory__Object *__wrap_cmmds_object(struct cmmds *cmmds,
					     const struct uuid *oid);
void __wrap_iscsi_session_each(struct iscsi *iscsi,
			       void (*cb)(const struct iscsi_session_info *info,
					  void *arg),
			       void *arg);
unsigned __wrap_iscsi_object_sessions(struct iscsi *iscsi,
				      const struct uuid *object);
void __wrap_iscsi_usage_each(struct iscsi *iscsi,
			     void (*cb)(const struct iscsi_usage *usage,
					void *arg),
			     void *arg);
int __wrap_admin__space_ask(struct node *n, const struct uuid *oid,
			    void (*cb)(void *arg, int status,
				       const struct object_space *space),
			    void *arg);
void __wrap_admin__reply(struct admin_req *r, Admin__Response *response);

void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);

void *__wrap_realloc(void *p, size_t size)
{
	return alloc_fails(0) ? NULL : __real_realloc(p, size);
}

/* ---- the directory ---- */

static void fill(void)
{
	memset(&is, 0, sizeof(is));
	for (unsigned n = 0; n < N; n++) {
		snprintf(is.name[n], sizeof(is.name[n]), "d%04u", n);
		snprintf(is.iqn[n], sizeof(is.iqn[n]), "iqn.test:%04u", n);
		put_be32(is.oid[n], n);
		directory__vdisk__init(&is.v[n]);
		is.v[n].name = is.name[n];
		is.v[n].oid.data = is.oid[n];
		is.v[n].oid.len = sizeof(is.oid[n]);
		directory__target__init(&is.t[n]);
		is.t[n].name = is.name[n];
		is.t[n].iqn = is.iqn[n];
		is.vdisk[n].message = &is.v[n].base;
		is.target[n].message = &is.t[n].base;
	}
	for (unsigned i = 0; i < LUNS; i++) {
		bool first = i < 4; /* of target 0 */

		directory__lun__init(&is.l[i]);
		is.l[i].target = is.name[first ? 0 : i - 3];
		is.l[i].lun = first ? i : 0;
		is.l[i].vdisk = is.name[first ? i * 300 : i - 3];
		is.lun[i].message = &is.l[i].base;
	}
	node.state = NODE_UP;
	node.config = &config;
}

const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after)
{
	const struct cmmds_entry *list = kind == CMMDS_VDISK	? is.vdisk
					 : kind == CMMDS_TARGET ? is.target
								: is.lun;
	size_t count = kind == CMMDS_LUN ? LUNS : N;

	is.looks++;
	if (after == NULL)
		return list;
	return after + 1 < list + count ? after + 1 : NULL;
}

static unsigned number(const char *name)
{
	return (unsigned)atoi(name + 1);
}

const Directory__VDisk *__wrap_cmmds_vdisk(struct cmmds *cmmds,
					   const char *name)
{
	return &is.v[number(name)];
}

const Directory__Target *__wrap_cmmds_target(struct cmmds *cmmds,
					     const char *name)
{
	return &is.t[number(name)];
}

const Directory__Object *__wrap_cmmds_object(struct cmmds *cmmds,
					     const struct uuid *oid)
{
	return NULL;
}

/* Two to target 0, one to target 7; and one that looks around. */
void __wrap_iscsi_session_each(struct iscsi *iscsi,
			       void (*cb)(const struct iscsi_session_info *info,
					  void *arg),
			       void *arg)
{
	static const unsigned to[] = { 7, 0, 0 };
	struct iscsi_session_info info = { .discovery = true };

	is.walks++;
	cb(&info, arg);
	for (unsigned i = 0; i < ARRAY_LEN(to); i++) {
		info = (struct iscsi_session_info){ .target = is.iqn[to[i]] };
		cb(&info, arg);
	}
}

unsigned __wrap_iscsi_object_sessions(struct iscsi *iscsi,
				      const struct uuid *object)
{
	unsigned n = get_be32(object->b);

	is.looks += N; /* it looks at each target */
	return (n == 7) + (n % 300 == 0 ? 2 : 0);
}

int __wrap_admin__space_ask(struct node *n, const struct uuid *oid,
			    void (*cb)(void *arg, int status,
				       const struct object_space *space),
			    void *arg)
{
	if (is.deaf)
		return -ENOMEM;
	CHECK(is.asks < N);
	is.ask[is.asks].cb = cb;
	is.ask[is.asks++].arg = arg;
	return 0;
}

/* Nothing was counted. */
void __wrap_iscsi_usage_each(struct iscsi *iscsi,
			     void (*cb)(const struct iscsi_usage *usage,
					void *arg),
			     void *arg)
{
}

static void asks_answer(void)
{
	static const struct object_space space;

	for (unsigned i = 0; i < is.asks; i++)
		is.ask[i].cb(is.ask[i].arg, 0, &space);
}

/* ---- what is answered ---- */

static void vdisk_check(const Admin__Vdisk *v)
{
	unsigned n = number(v->name);
	bool on_first = n % 300 == 0;

	CHECK_EQ(v->sessions, (n == 7) + (on_first ? 2 : 0));
	CHECK_EQ(v->n_luns, n == 0 || !on_first ? 1 : 2);
	CHECK_STR(v->luns[0]->target, is.name[on_first ? 0 : n]);
	CHECK_STR(v->luns[v->n_luns - 1]->target, is.name[n]);
	CHECK_STR(v->luns[0]->vdisk, v->name);
	is.spaces += v->space_known;
}

static void stat_check(const Admin__VdiskStat *v)
{
	unsigned n = number(v->vdisk);

	CHECK_EQ(v->sessions, (n == 7) + (n % 300 == 0 ? 2 : 0));
}

static void target_check(const Admin__Target *t)
{
	unsigned n = number(t->name);

	CHECK_EQ(t->sessions, n == 0 ? 2 : n == 7);
	CHECK_EQ(t->n_luns, n == 0 ? 4 : 1);
	for (unsigned i = 0; i < t->n_luns; i++) {
		CHECK_EQ(t->luns[i]->lun, i);
		CHECK_STR(t->luns[i]->target, t->name);
		CHECK_STR(t->luns[i]->iqn, t->iqn);
	}
}

void __wrap_admin__reply(struct admin_req *r, Admin__Response *response)
{
	is.status = response->status;
	if (response->status < 0) {
		is.lines = 0;
	} else if (response->result_case == ADMIN__RESPONSE__RESULT_VDISKS) {
		is.lines = (unsigned)response->vdisks->n_vdisks;
		for (unsigned i = 0; i < is.lines; i++)
			vdisk_check(response->vdisks->vdisks[i]);
	} else if (response->result_case ==
		   ADMIN__RESPONSE__RESULT_VDISK_STATS) {
		is.lines = (unsigned)response->vdisk_stats->n_vdisks;
		for (unsigned i = 0; i < is.lines; i++)
			stat_check(response->vdisk_stats->vdisks[i]);
	} else if (response->result_case == ADMIN__RESPONSE__RESULT_SESSIONS) {
		is.lines = (unsigned)response->sessions->n_sessions;
	} else {
		is.lines = (unsigned)response->targets->n_targets;
		for (unsigned i = 0; i < is.lines; i++)
			target_check(response->targets->targets[i]);
	}
	is.done = true;
}

TEST(node_lists, targets)
{
	struct admin_req r = { .node = &node };

	fill();
	admin__target_list(&r);
	CHECK(is.done);
	CHECK_EQ(is.lines, N);
	CHECK(is.looks < 10 * N);
	CHECK(is.walks < 10);
}

static void vdisks_list(void)
{
	struct test_shard ts;
	struct admin_req r = { .node = &node };

	test_memory_open(&ts);
	node.env = ts.env;
	admin__vdisk_list(&r);
	asks_answer();
	CHECK(is.done);
	CHECK_EQ(is.lines, N);
	CHECK(is.looks < 10 * N);
	CHECK(is.walks < 10);
	free(r.ctx);
	test_shard_close(&ts);
}

TEST(node_lists, virtual_disks)
{
	fill();
	vdisks_list();
	CHECK_EQ(is.spaces, N);
	/* Their space cannot be asked for: the rest is told. */
	fill();
	is.deaf = true;
	vdisks_list();
	CHECK_EQ(is.spaces, 0);
}

TEST(node_lists, what_virtual_disks_do)
{
	Admin__VdiskStatsAsk ask = ADMIN__VDISK_STATS_ASK__INIT;
	Admin__Request msg = ADMIN__REQUEST__INIT;
	struct admin_req r = { .node = &node, .msg = &msg };
	struct test_shard ts;

	fill();
	test_memory_open(&ts);
	node.env = ts.env;
	msg.vdisk_stats = &ask;
	admin__vdisk_stats(&r);
	CHECK(is.done);
	CHECK_EQ(is.lines, N);
	CHECK(is.looks < 10 * N);
	CHECK(is.walks < 10);
	free(r.ctx);
	test_shard_close(&ts);
}

/* Nothing is told by halves. */
TEST(node_lists, without_memory)
{
	unsigned refused = 0;

	for (unsigned n = 1; is.status < 0 || n == 1; n++) {
		struct admin_req r = { .node = &node };

		fill();
		fail_at = n;
		admin__target_list(&r);
		CHECK(is.done);
		CHECK_EQ(is.status, fail_at == 0 ? -ENOMEM : 0);
		CHECK_EQ(is.lines, fail_at == 0 ? 0 : N);
		refused += fail_at == 0;
		/* Those of the lines are alike. */
		if (n == 20)
			n = N;
	}
	fail_at = 0;
	CHECK(refused > N);
}

TEST(node_lists, sessions_without_memory)
{
	struct admin_req r = { .node = &node };
	struct test_shard ts;
	unsigned refused = 0;

	fill();
	test_shard_open(&ts);
	node.env = ts.env;
	node.shards = ts.shards;
	do {
		fail_at = ++refused;
		is.done = false;
		admin__session_list(&r);
		CHECK(is.done);
		CHECK_EQ(is.status, fail_at == 0 ? -ENOMEM : 0);
		CHECK_EQ(is.lines, fail_at == 0 ? 0 : 4);
	} while (is.status < 0);
	fail_at = 0;
	CHECK_EQ(refused, 5);
	node.shards = NULL;
	test_shard_close(&ts);
}
