/*
 * Lists of the admin service over a directory of many entries: what they say, and
 * that they look at each entry a few times, not once for each line.
 */
#include "base/util.h"
#include "node/admin_int.h"
#include "tests/lib/fail_alloc.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 1000 };

/* Virtual disk n is LUN 0 of target n, and LUN 1 to 3 of target 0. */
enum { LUNS = N + 3 };

static struct {
	struct cmmds_entry vdisk[N], target[N], lun[LUNS], object[N];
	Directory__VDisk v[N];
	Directory__Target t[N];
	Directory__Lun l[LUNS];
	Directory__Object o[N];
	char name[N][16], iqn[N][32];
	uint8_t oid[N][16], lun_key[LUNS][16];
	bool gone[N]; /* targets that are not there */
	unsigned last, went; /* the last that was seen; of those to come */
	/* At entries one after the other, also in a turn of the loop. */
	unsigned looks, turn_looks, turn_looks_max, turns;
	uint64_t turn_ns, luns_ns;
	unsigned turn_luns, turn_luns_max; /* looks at LUNs of targets */
	void (*between)(void); /* before the looks of a turn */
	unsigned walks; /* through the sessions */
	struct {
		void (*cb)(void *arg, int status,
			   const struct object_space *space);
		void *arg;
	} ask[N];
	unsigned asks;
	bool asking;
	bool deaf; /* no memory to ask with */
	unsigned lines, spaces, answers;
	char error[100];
	bool done;
	int status;
} is;

static struct node node;
static struct config config; /* no portals */
static struct node_disk disk = { .node = &node,
				 .id = { { 9 } },
				 .state = NODE_DISK_ONLINE,
				 .path = "/dev/sdx" };
static struct test_shard ts;

const struct cmmds_entry *__wrap_cmmds_behind(struct cmmds *cmmds,
					      enum cmmds_kind kind,
					      const void *key, size_t key_len);
unsigned __wrap_cmmds_count(const struct cmmds *cmmds, enum cmmds_kind kind);
const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after);
const struct cmmds_entry *__wrap_cmmds_of(struct cmmds *cmmds,
					  enum cmmds_kind kind,
					  const void *what, size_t len,
					  const struct cmmds_entry *after);
const struct cmmds_entry *__wrap_cmmds_under(struct cmmds *cmmds,
					     const char *target,
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
bool __wrap_iscsi_usage_of(struct iscsi *iscsi, const struct uuid *object,
			   struct iscsi_usage *out);
void __wrap_lsom_disk_info(struct lsom_disk *d, struct lsom_disk_info *out);
int __wrap_admin__space_ask(struct node *n, const struct uuid *oid,
			    void (*cb)(void *arg, int status,
				       const struct object_space *space),
			    void *arg);
void __wrap_admin__progress(struct admin_req *r, unsigned percent,
			    const char *doing);
void __wrap_admin__reply(struct admin_req *r, Admin__Response *response);
void __wrap_admin__reply_packed(struct admin_req *r, int result, uint8_t *bytes,
				size_t len);

void *__real_realloc(void *p, size_t size);
void *__wrap_realloc(void *p, size_t size);

void *__wrap_realloc(void *p, size_t size)
{
	return alloc_fails(0) ? NULL : __real_realloc(p, size);
}

/* ---- the directory ---- */

static void fill(void)
{
	static Directory__Leaf leaf = DIRECTORY__LEAF__INIT;
	static Directory__TreeNode tree = DIRECTORY__TREE_NODE__INIT;

	memset(&is, 0, sizeof(is));
	leaf.disk.data = disk.id.b;
	leaf.disk.len = sizeof(disk.id.b);
	tree.leaf = &leaf;
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
		directory__object__init(&is.o[n]);
		is.o[n].oid = is.v[n].oid;
		is.o[n].tree = n == 300 ? NULL : &tree; /* where it lies */
		is.object[n].message = &is.o[n].base;
		is.object[n].key = is.oid[n];
		is.object[n].key_len = sizeof(is.oid[n]);
		is.vdisk[n].message = &is.v[n].base;
		is.target[n].message = &is.t[n].base;
		is.vdisk[n].key = is.target[n].key = (uint8_t *)is.name[n];
		is.vdisk[n].key_len = is.target[n].key_len = strlen(is.name[n]);
	}
	for (unsigned i = 0; i < LUNS; i++) {
		bool first = i < 4; /* of target 0 */

		directory__lun__init(&is.l[i]);
		is.l[i].target = is.name[first ? 0 : i - 3];
		is.l[i].lun = first ? i : 0;
		is.l[i].vdisk = is.name[first ? i * 300 : i - 3];
		is.lun[i].message = &is.l[i].base;
		is.lun[i].key = is.lun_key[i];
		is.lun[i].key_len = node__lun_key(is.l[i].target, is.l[i].lun,
						  is.lun_key[i]);
	}
	node.state = NODE_UP;
	node.config = &config;
	node__parts_open(&node);
}

static unsigned number(const char *name)
{
	return (unsigned)atoi(name + 1);
}

static struct cmmds_entry *list_of(enum cmmds_kind kind, size_t *count)
{
	*count = kind == CMMDS_LUN ? LUNS : N;
	return kind == CMMDS_VDISK    ? is.vdisk
	       : kind == CMMDS_OBJECT ? is.object
	       : kind == CMMDS_TARGET ? is.target
				      : is.lun;
}

/* The clock stands still during a turn. */
static void look_count(void)
{
	if (node.env != NULL && env_now(node.env) != is.turn_ns) {
		is.turn_ns = env_now(node.env);
		is.turn_looks = 0;
		is.turns++;
		if (is.between != NULL)
			is.between();
	}
	is.looks++;
	is.turn_looks++;
	is.turn_looks_max = MAX(is.turn_looks_max, is.turn_looks);
}

/* The first there is from entry @i on that is behind @key, or NULL: any. */
static const struct cmmds_entry *entry_from(enum cmmds_kind kind, size_t i,
					    const void *key, size_t len)
{
	size_t count;
	const struct cmmds_entry *list = list_of(kind, &count), *e;

	for (; i < count; i++) {
		size_t n = MIN(len, list[i].key_len);
		int c = n > 0 ? memcmp(list[i].key, key, n) : 0;

		e = &list[i];
		if ((kind != CMMDS_TARGET || !is.gone[i]) &&
		    (key == NULL || c > 0 || (c == 0 && e->key_len > len)))
			return e;
	}
	return NULL;
}

const struct cmmds_entry *__wrap_cmmds_behind(struct cmmds *cmmds,
					      enum cmmds_kind kind,
					      const void *key, size_t key_len)
{
	if (kind != CMMDS_OBJECT)
		is.last = key_len > 0 ? number(key) : 0;
	look_count();
	return entry_from(kind, 0, key, key_len);
}

const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after)
{
	size_t count;
	const struct cmmds_entry *list = list_of(kind, &count);

	look_count();
	return entry_from(kind, after ? (size_t)(after - list) + 1 : 0, NULL,
			  0);
}

unsigned __wrap_cmmds_count(const struct cmmds *cmmds, enum cmmds_kind kind)
{
	size_t count;

	list_of(kind, &count);
	return (unsigned)count;
}

/* These find them without a look at others. */
static const struct cmmds_entry *lun_next(const char *target, const char *vdisk,
					  const struct cmmds_entry *after)
{
	size_t i = after ? (size_t)(after - is.lun) + 1 : 0;

	for (; i < LUNS; i++)
		if ((target == NULL || strcmp(is.l[i].target, target) == 0) &&
		    (vdisk == NULL || strcmp(is.l[i].vdisk, vdisk) == 0))
			return &is.lun[i];
	return NULL;
}

const struct cmmds_entry *__wrap_cmmds_of(struct cmmds *cmmds,
					  enum cmmds_kind kind,
					  const void *what, size_t len,
					  const struct cmmds_entry *after)
{
	if (kind == CMMDS_VDISK)
		return &is.vdisk[get_be32(what)];
	CHECK_EQ(kind, CMMDS_LUN);
	return lun_next(NULL, what, after);
}

const struct cmmds_entry *__wrap_cmmds_under(struct cmmds *cmmds,
					     const char *target,
					     const struct cmmds_entry *after)
{
	const struct cmmds_entry *e = lun_next(target, NULL, after);

	if (is.luns_ns != is.turn_ns)
		is.turn_luns = 0;
	is.luns_ns = is.turn_ns;
	is.turn_luns += e != NULL;
	is.turn_luns_max = MAX(is.turn_luns_max, is.turn_luns);
	return e;
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

int __wrap_admin__space_ask(struct node *n, const struct uuid *oid,
			    void (*cb)(void *arg, int status,
				       const struct object_space *space),
			    void *arg)
{
	if (is.deaf)
		return -ENOMEM;
	CHECK(is.asks < N);
	is.asking = true;
	is.ask[is.asks].cb = cb;
	is.ask[is.asks++].arg = arg;
	return 0;
}

/* Nothing was counted. */
bool __wrap_iscsi_usage_of(struct iscsi *iscsi, const struct uuid *object,
			   struct iscsi_usage *out)
{
	return false;
}

/* It is in service, and nothing is wrong with it. */
void __wrap_lsom_disk_info(struct lsom_disk *d, struct lsom_disk_info *out)
{
	memset(out, 0, sizeof(*out));
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

static void lun_check(const Admin__Lun *l)
{
	CHECK_STR(l->iqn, is.iqn[number(l->target)]);
	CHECK_EQ(l->lun > 0, number(l->target) == 0 && l->vdisk[4] == '0' &&
				     strcmp(l->vdisk, "d0000") != 0);
}

#define EACH(many, line, check)                                                \
	do {                                                                   \
		is.lines = (unsigned)(many)->n_##line;                         \
		for (unsigned i = 0; i < is.lines; i++)                        \
			check((many)->line[i]);                                \
	} while (0)

void __wrap_admin__reply(struct admin_req *r, Admin__Response *response)
{
	is.status = response->status;
	snprintf(is.error, sizeof(is.error), "%s", response->error);
	is.lines = 0;
	if (response->result_case == ADMIN__RESPONSE__RESULT_SESSIONS)
		is.lines = (unsigned)response->sessions->n_sessions;
	is.done = ++is.answers > 0;
}

void __wrap_admin__progress(struct admin_req *r, unsigned percent,
			    const char *doing)
{
}

/* They are in order, and each is told of once. */
static void lines_check(const ProtobufCMessage *m, int result)
{
	const Admin__Targets *targets = (const void *)m;
	const Admin__Vdisks *vdisks = (const void *)m;

	if (result == ADMIN__RESPONSE__RESULT_VDISKS) {
		EACH(vdisks, vdisks, vdisk_check);
		for (unsigned i = 1; i < is.lines; i++)
			CHECK(strcmp(vdisks->vdisks[i - 1]->name,
				     vdisks->vdisks[i]->name) < 0);
	} else if (result == ADMIN__RESPONSE__RESULT_VDISK_STATS) {
		EACH((const Admin__VdiskStats *)m, vdisks, stat_check);
	} else if (result == ADMIN__RESPONSE__RESULT_LUNS) {
		EACH((const Admin__Luns *)m, luns, lun_check);
	} else {
		EACH(targets, targets, target_check);
		for (unsigned i = 1; i < is.lines; i++)
			CHECK(strcmp(targets->targets[i - 1]->name,
				     targets->targets[i]->name) < 0);
	}
}

void __wrap_admin__reply_packed(struct admin_req *r, int result, uint8_t *bytes,
				size_t len)
{
	const ProtobufCMessageDescriptor *kind =
		result == ADMIN__RESPONSE__RESULT_VDISKS
			? &admin__vdisks__descriptor
		: result == ADMIN__RESPONSE__RESULT_VDISK_STATS
			? &admin__vdisk_stats__descriptor
		: result == ADMIN__RESPONSE__RESULT_LUNS
			? &admin__luns__descriptor
			: &admin__targets__descriptor;
	unsigned failing = fail_at;
	ProtobufCMessage *m;

	fail_at = 0;
	m = protobuf_c_message_unpack(kind, NULL, len, bytes);
	CHECK(m != NULL);
	is.status = 0;
	is.error[0] = '\0';
	lines_check(m, result);
	is.done = ++is.answers > 0;
	protobuf_c_message_free_unpacked(m, NULL);
	free(bytes);
	fail_at = failing;
}

/* ---- requests ---- */

static Admin__LunList luns_ask = ADMIN__LUN_LIST__INIT;
static Admin__VdiskStatsAsk stats_ask = ADMIN__VDISK_STATS_ASK__INIT;
static Admin__Request msg = ADMIN__REQUEST__INIT;

static void nothing(struct env_timer *timer)
{
}

static void open_it(void)
{
	struct env_timer any = { .cb = nothing };

	fill();
	test_memory_open(&ts);
	node.env = ts.env;
	/* The loop's own room for timers is there. */
	env_timer_start(ts.env, &any, 0);
	env_timer_stop(ts.env, &any);
}

static struct admin_req ask(void)
{
	msg.lun_list = &luns_ask;
	msg.vdisk_stats = &stats_ask;
	return (struct admin_req){ .node = &node,
				   .msg = &msg,
				   .conn = (void *)&node }; /* any but NULL */
}

/* As the admin service frees it. */
static void req_free(struct admin_req *r)
{
	if (r->over != NULL)
		r->over(r);
	free(r->ctx);
}

static void close_it(void)
{
	CHECK(TAILQ_EMPTY(&node.parts));
	node.env = NULL;
	test_shard_close(&ts);
}

/* A list of @lines, of entries that were looked at a few times each. */
static void list(void (*handler)(struct admin_req *r), unsigned lines)
{
	struct admin_req r = ask();

	handler(&r);
	test_run(&ts, &is.done);
	CHECK_EQ(is.status < 0, is.error[0] != '\0');
	CHECK_EQ(is.lines, lines);
	CHECK(is.looks < 10 * N);
	CHECK(is.turn_looks_max <= NODE_PART + 1);
	CHECK(is.turns >= N / (NODE_PART + 1));
	CHECK(is.walks < 10);
	req_free(&r);
}

TEST(node_lists, targets)
{
	open_it();
	list(admin__target_list, N);
	/* Two looks at each; of what is told in a turn half are LUNs. */
	CHECK(is.turn_luns_max <= NODE_PART + 2 * 4);
	close_it();
}

/* With names so long that all targets and their LUNs are of so many bytes. */
static void long_list(size_t bytes)
{
	size_t len = bytes / N / 2;
	char *iqn = malloc(len + 1);

	CHECK(iqn != NULL);
	memset(iqn, 'x', len);
	iqn[len] = '\0';
	open_it();
	for (unsigned n = 8; n < N; n++)
		is.t[n].iqn = iqn;
	list(admin__target_list, bytes < (64 << 20) ? N : 0);
	close_it();
	free(iqn);
}

TEST(node_lists, as_long_as_the_tool_takes)
{
	long_list(63 << 20);
	CHECK_EQ(is.status, 0);
	long_list(66 << 20);
	CHECK_STR(is.error, "the answer is longer than 64 MiB");
	CHECK_EQ(is.status, -EMSGSIZE);
}

TEST(node_lists, luns)
{
	open_it();
	list(admin__lun_list, LUNS);
	close_it();
}

static void vdisks_list(void)
{
	struct admin_req r = ask();

	admin__vdisk_list(&r);
	if (!is.deaf)
		test_run(&ts, &is.asking);
	asks_answer();
	test_run(&ts, &is.done);
	CHECK_EQ(is.lines, N);
	CHECK(is.looks < 10 * N);
	CHECK(is.turn_looks_max <= NODE_PART + 1);
	CHECK(is.walks < 10);
	req_free(&r);
}

TEST(node_lists, virtual_disks)
{
	open_it();
	vdisks_list();
	CHECK_EQ(is.spaces, N);
	close_it();
	/* Their space cannot be asked for: the rest is told. */
	open_it();
	is.deaf = true;
	vdisks_list();
	CHECK_EQ(is.spaces, 0);
	close_it();
}

TEST(node_lists, what_virtual_disks_do)
{
	open_it();
	list(admin__vdisk_stats, N);
	close_it();
	/* In some time, for which it is looked before and after. */
	open_it();
	stats_ask.seconds = 1;
	list(admin__vdisk_stats, N);
	stats_ask.seconds = 0;
	close_it();
}

static Admin__DiskRebuild rebuild_ask = ADMIN__DISK_REBUILD__INIT;

static void rebuild(struct admin_req *r)
{
	rebuild_ask.disk = disk.path;
	r->msg->disk_rebuild = &rebuild_ask;
	TAILQ_INIT(&node.disks);
	TAILQ_INSERT_TAIL(&node.disks, &disk, link);
	admin__disk_rebuild(r);
}

/* Sessions have virtual disks 7, and 0, 300, 600 and 900, twice. */
TEST(node_lists, sessions_on_a_disk)
{
	open_it();
	list(rebuild, 0);
	CHECK_STR(is.error, "disk /dev/sdx is in use by 7 sessions");
	CHECK_EQ(is.status, -EBUSY);
	close_it();
	/* None that its memory would be missed for. */
	for (unsigned n = 1; n < 4; n++) {
		struct admin_req r = ask();

		open_it();
		fail_at = n;
		rebuild(&r);
		CHECK(is.done);
		CHECK_EQ(is.status, -ENOMEM);
		CHECK_EQ(fail_at, 0);
		req_free(&r);
		close_it();
	}
}

static struct node_disk empty = { .node = &node,
				  .id = { { 8 } },
				  .state = NODE_DISK_ONLINE };

static void names_change(void)
{
	if (is.turns != 3)
		return;
	strcpy(empty.path, "/dev/sdy");
	strcpy(disk.path, "/dev/sdx");
}

/* The disk that is rebuilt is the one whose sessions were counted. */
TEST(node_lists, sessions_on_another_disk)
{
	struct admin_req r = ask();

	open_it();
	strcpy(empty.path, "/dev/sdx");
	strcpy(disk.path, "/dev/sdz");
	rebuild_ask.disk = "/dev/sdx";
	r.msg->disk_rebuild = &rebuild_ask;
	TAILQ_INIT(&node.disks);
	TAILQ_INSERT_TAIL(&node.disks, &disk, link);
	TAILQ_INSERT_TAIL(&node.disks, &empty, link);
	is.between = names_change;
	admin__disk_rebuild(&r);
	test_run(&ts, &is.done);
	CHECK_EQ(is.status, -EBUSY);
	CHECK_STR(is.error, "disk /dev/sdx is in use by 7 sessions");
	req_free(&r);
	close_it();
}

/* ---- a disk that hangs ---- */

static struct {
	node_disk_cb done;
	void *arg;
	struct lsom_checkpoint *req;
	lsom_checkpoint_cb cb;
	uint64_t silent_ns;
} hang;

int __wrap_lsom_checkpoint(struct lsom_disk *d, struct lsom_checkpoint *req,
			   lsom_checkpoint_cb cb);
int __wrap_node__disk_open(struct node *n, const struct uuid *id,
			   const char *path, unsigned flags, node_disk_cb done,
			   void *arg);
uint64_t __wrap_node__disk_silent_ns(struct node_disk *d);
void __wrap_admin__reply_early(struct admin_req *r, Admin__Response *response);

int __wrap_lsom_checkpoint(struct lsom_disk *d, struct lsom_checkpoint *req,
			   lsom_checkpoint_cb cb)
{
	hang.req = req;
	hang.cb = cb;
	return 0;
}

int __wrap_node__disk_open(struct node *n, const struct uuid *id,
			   const char *path, unsigned flags, node_disk_cb done,
			   void *arg)
{
	hang.done = done;
	hang.arg = arg;
	return 0;
}

uint64_t __wrap_node__disk_silent_ns(struct node_disk *d)
{
	return hang.silent_ns;
}

void __wrap_admin__reply_early(struct admin_req *r, Admin__Response *response)
{
	r->conn = NULL;
	__wrap_admin__reply(r, response);
}

/* Who rebuilds a disk that hangs when the index is made is answered. */
TEST(node_lists, a_rebuilt_disk_hangs)
{
	struct admin_req r = ask();

	open_it();
	strcpy(disk.path, "/dev/sdx");
	disk.state = NODE_DISK_FAILED;
	rebuild(&r);
	disk.state = NODE_DISK_ONLINE;
	hang.done(&disk, 0, hang.arg);
	hang.silent_ns = ADMIN__HANGS_NS;
	test_run(&ts, &is.done);
	CHECK_EQ(is.status, -EBUSY);
	CHECK_STR(is.error, "disk /dev/sdx: the index was rebuilt, but it does "
			    "not answer");
	CHECK(r.conn == NULL);
	hang.cb(hang.req, 0);
	CHECK_EQ(is.answers, 2); /* which nobody hears */
	req_free(&r);
	hang.silent_ns = 0;
	close_it();
}

/* Several at once take turns, and a turn is none the longer. */
TEST(node_lists, at_once)
{
	struct admin_req r[] = { ask(), ask(), ask() };

	open_it();
	admin__target_list(&r[0]);
	admin__lun_list(&r[1]);
	admin__target_list(&r[2]);
	while (is.answers < ARRAY_LEN(r)) {
		is.done = false;
		test_run(&ts, &is.done);
		CHECK_EQ(is.status, 0);
		CHECK(is.lines == N || is.lines == LUNS);
	}
	CHECK(is.turn_looks_max <= NODE_PART + 1);
	for (unsigned i = 0; i < ARRAY_LEN(r); i++)
		req_free(&r[i]);
	close_it();
}

/* Between any two parts: the last that was seen goes, and so do some to come. */
static void some_go(void)
{
	is.gone[is.last] = is.last > 0;
	if (is.last + 5 < N - 1) {
		is.gone[is.last + 5] = true;
		is.went++;
	}
}

/* And here those come back that were not there at first. */
static void some_come(void)
{
	for (unsigned n = 0; n < N && is.turns > 1; n += 2)
		if (n < is.last || n > N / 2)
			is.gone[n] = false;
}

/* What is there all the time is told of, and nothing twice. */
TEST(node_lists, while_the_directory_changes)
{
	struct admin_req r = ask();

	open_it();
	is.between = some_go;
	admin__target_list(&r);
	test_run(&ts, &is.done);
	CHECK_EQ(is.status, 0);
	CHECK(is.went > 5);
	CHECK_EQ(is.lines, N - is.went);
	req_free(&r);
	close_it();

	r = ask();
	open_it();
	for (unsigned n = 0; n < N; n += 2)
		is.gone[n] = true;
	is.between = some_come;
	admin__target_list(&r);
	test_run(&ts, &is.done);
	CHECK_EQ(is.status, 0);
	CHECK_EQ(is.lines, N / 2 + N / 4 - 1);
	req_free(&r);
	close_it();
}

static struct admin_req *on_its_way;

static void peer_leaves(void)
{
	if (is.turns == 3)
		on_its_way->conn = NULL;
}

static void node_stops(void)
{
	if (is.turns == 3)
		node.state = NODE_STOPPING;
}

static void cut_off(void (*handler)(struct admin_req *r), void (*by)(void),
		    int status)
{
	struct admin_req r = ask();

	open_it();
	on_its_way = &r;
	is.between = by;
	handler(&r);
	if (handler == admin__vdisk_list && by == peer_leaves) {
		test_run(&ts, &is.asking);
		asks_answer();
	}
	test_run(&ts, &is.done);
	CHECK_EQ(is.status, status);
	CHECK_EQ(r.status, status);
	CHECK(is.looks < 4 * NODE_PART || by == peer_leaves);
	req_free(&r);
	close_it();
}

TEST(node_lists, cut_off)
{
	cut_off(admin__target_list, peer_leaves, -ECANCELED);
	cut_off(admin__lun_list, peer_leaves, -ECANCELED);
	cut_off(admin__vdisk_list, peer_leaves, -ECANCELED);
	cut_off(admin__vdisk_stats, peer_leaves, -ECANCELED);
	cut_off(admin__target_list, node_stops, -ESHUTDOWN);
	cut_off(admin__lun_list, node_stops, -ESHUTDOWN);
	cut_off(admin__vdisk_list, node_stops, -ESHUTDOWN);
	cut_off(admin__vdisk_stats, node_stops, -ESHUTDOWN);
	cut_off(rebuild, node_stops, -ESHUTDOWN);
	stats_ask.seconds = 1;
	cut_off(admin__vdisk_stats, node_stops, -ESHUTDOWN);
	stats_ask.seconds = 0;
}

/* Nothing is told by halves. */
TEST(node_lists, without_memory)
{
	unsigned refused = 0;

	is.status = -ENOMEM;
	for (unsigned n = 1; is.status < 0; n++) {
		struct admin_req r = ask();

		open_it();
		fail_at = n;
		admin__target_list(&r);
		test_run(&ts, &is.done);
		CHECK_EQ(is.status, fail_at == 0 ? -ENOMEM : 0);
		CHECK_EQ(is.lines, fail_at == 0 ? 0 : N);
		refused += fail_at == 0;
		req_free(&r);
		fail_at = 0;
		close_it();
		/* Those of the lines are alike. */
		if (n == 20)
			n = N;
	}
	CHECK(refused > N);
}

TEST(node_lists, sessions_without_memory)
{
	struct admin_req r = { .node = &node };
	struct test_shard with;
	unsigned refused = 0;

	fill();
	test_shard_open(&with);
	node.env = with.env;
	node.shards = with.shards;
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
	node.env = NULL;
	test_shard_close(&with);
}
