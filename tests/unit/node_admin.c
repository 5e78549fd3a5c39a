/*
 * Commands of the admin service, as far as they go before a room is asked; the
 * directory and dom are what these tests make of them.
 */
#include "base/util.h"
#include "node/admin_int.h"
#include "tests/lib/fail_alloc.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	unsigned puts[CMMDS_KINDS]; /* of the last command */
	unsigned seals, seal_fails; /* which one, from 1; 0: none */
	unsigned dups, dup_fails; /* of strdup(), likewise */
	struct dom_create *create; /* that dom was asked for */
	/* So many calls of dom are busy, and then, from the first map on. */
	unsigned busy, busy_next;
	struct dom_object_open *open;
	struct dom_io *map;
	struct env_timer later;
	bool hangs; /* dom takes what it is asked, and does not answer */
	int wants; /* what the directory lacks */
	/* Its queue is full so many times, then it takes a change. */
	unsigned proposals_busy;
	struct cmmds_command *proposed;
	cmmds_command_cb proposed_cb;
	bool settled; /* it has one, or the command was answered */
	/* The virtual disk v is a LUN of so many targets; and there is t. */
	unsigned exports;
	int opened; /* less what was closed */
	int status;
	bool unknown;
	char error[512], fix[400];
	char what[512]; /* was done */
} is;

static struct node node;
static struct config config;
static struct test_shard ts;

/* ---- the rooms ---- */

const struct cmmds_entry *__wrap_cmmds_get(struct cmmds *cmmds,
					   enum cmmds_kind kind,
					   const void *key, size_t key_len);
const struct cmmds_entry *__wrap_cmmds_behind(struct cmmds *cmmds,
					      enum cmmds_kind kind,
					      const void *key, size_t key_len);
unsigned __wrap_cmmds_count(const struct cmmds *cmmds, enum cmmds_kind kind);
const struct cmmds_entry *__wrap_cmmds_of(struct cmmds *cmmds,
					  enum cmmds_kind kind,
					  const void *what, size_t len,
					  const struct cmmds_entry *after);
const struct cmmds_entry *__wrap_cmmds_under(struct cmmds *cmmds,
					     const char *target,
					     const struct cmmds_entry *after);
const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after);
void __wrap_cmmds_put(struct cmmds_command *cmd, enum cmmds_kind kind,
		      const void *key, size_t key_len, uint64_t expect,
		      const ProtobufCMessage *message);
void __wrap_cmmds_audit(struct cmmds_command *cmd, const char *who,
			const char *fmt, ...);
void __wrap_cmmds_info(struct cmmds *cmmds, struct cmmds_info *out);
int __wrap_cmmds_propose(struct cmmds *cmmds, struct cmmds_command *cmd,
			 unsigned timeout_ms, cmmds_command_cb cb);
const Directory__VDisk *__wrap_cmmds_vdisk(struct cmmds *cmmds,
					   const char *name);
const Directory__Target *__wrap_cmmds_target(struct cmmds *cmmds,
					     const char *name);
const Directory__Policy *__wrap_cmmds_policy(struct cmmds *cmmds,
					     const char *name);
const Directory__Object *__wrap_cmmds_object(struct cmmds *cmmds,
					     const struct uuid *oid);
int __wrap_dom_create(struct dom *dom, struct dom_create *req,
		      dom_create_cb cb);
int __wrap_dom_object_open(struct dom *dom, struct dom_object_open *req,
			   const struct uuid *oid, dom_object_open_cb cb);
void __wrap_dom_object_close(struct dom_object *object);
void __wrap_dom_space(struct dom *dom, struct dom_space *req,
		      void (*cb)(struct dom_space *req, int status));
uint64_t __wrap_dom_object_size(const struct dom_object *object);
int __wrap_dom_map(struct dom_object *object, struct dom_io *io,
		   uint64_t offset, uint64_t len, dom_io_cb cb);
int __real_node__secret_seal(const uint8_t key[NODE_KEY_LEN],
			     const uint8_t nonce[12], const char *context,
			     const uint8_t *secret, size_t len, uint8_t **out,
			     size_t *out_len);
int __wrap_node__secret_seal(const uint8_t key[NODE_KEY_LEN],
			     const uint8_t nonce[12], const char *context,
			     const uint8_t *secret, size_t len, uint8_t **out,
			     size_t *out_len);
void __wrap_admin__reply(struct admin_req *r, Admin__Response *response);
void __wrap_admin__reply_packed(struct admin_req *r, int result, uint8_t *bytes,
				size_t len);
void __wrap_iscsi_session_each(struct iscsi *iscsi,
			       void (*cb)(const struct iscsi_session_info *info,
					  void *arg),
			       void *arg);
int __wrap_iscsi_session_drop(struct iscsi *iscsi, uint64_t id);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);

char *__wrap_strdup(const char *text)
{
	return ++is.dups == is.dup_fails ? NULL : __real_strdup(text);
}

int __wrap_iscsi_session_drop(struct iscsi *iscsi, uint64_t id)
{
	return 0;
}

/* There are none. */
void __wrap_iscsi_session_each(struct iscsi *iscsi,
			       void (*cb)(const struct iscsi_session_info *info,
					  void *arg),
			       void *arg)
{
}

const struct cmmds_entry *__wrap_cmmds_get(struct cmmds *cmmds,
					   enum cmmds_kind kind,
					   const void *key, size_t key_len)
{
	static const struct cmmds_entry any = { .revision = 7 };

	return is.exports > 0 ? &any : NULL;
}

const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after)
{
	return NULL;
}

const struct cmmds_entry *__wrap_cmmds_behind(struct cmmds *cmmds,
					      enum cmmds_kind kind,
					      const void *key, size_t key_len)
{
	return NULL;
}

unsigned __wrap_cmmds_count(const struct cmmds *cmmds, enum cmmds_kind kind)
{
	return 0;
}

const struct cmmds_entry *__wrap_cmmds_under(struct cmmds *cmmds,
					     const char *target,
					     const struct cmmds_entry *after)
{
	return NULL;
}

const struct cmmds_entry *__wrap_cmmds_of(struct cmmds *cmmds,
					  enum cmmds_kind kind,
					  const void *what, size_t len,
					  const struct cmmds_entry *after)
{
	static Directory__Lun lun = DIRECTORY__LUN__INIT;
	static struct cmmds_entry entry = { .message = &lun.base };
	static unsigned told;

	lun.target = "other";
	lun.vdisk = "v";
	told = after == NULL ? 0 : told;
	return kind == CMMDS_LUN && told++ < is.exports ? &entry : NULL;
}

void __wrap_cmmds_put(struct cmmds_command *cmd, enum cmmds_kind kind,
		      const void *key, size_t key_len, uint64_t expect,
		      const ProtobufCMessage *message)
{
	is.puts[kind]++;
}

void __wrap_cmmds_audit(struct cmmds_command *cmd, const char *who,
			const char *fmt, ...)
{
}

void __wrap_cmmds_info(struct cmmds *cmmds, struct cmmds_info *out)
{
	memset(out, 0, sizeof(*out));
	out->wants = is.wants;
}

int __wrap_cmmds_propose(struct cmmds *cmmds, struct cmmds_command *cmd,
			 unsigned timeout_ms, cmmds_command_cb cb)
{
	if (is.proposals_busy > 0) {
		is.proposals_busy--;
		return -EBUSY;
	}
	is.proposed = cmd;
	is.proposed_cb = cb;
	is.settled = true;
	return 0;
}

const Directory__VDisk *__wrap_cmmds_vdisk(struct cmmds *cmmds,
					   const char *name)
{
	static Directory__VDisk v = DIRECTORY__VDISK__INIT;

	v.name = "v";
	return is.exports > 0 ? &v : NULL;
}

const Directory__Target *__wrap_cmmds_target(struct cmmds *cmmds,
					     const char *name)
{
	static Directory__Target t = DIRECTORY__TARGET__INIT;

	t.name = "t";
	return is.exports > 0 ? &t : NULL;
}

const Directory__Policy *__wrap_cmmds_policy(struct cmmds *cmmds,
					     const char *name)
{
	return NULL;
}

const Directory__Object *__wrap_cmmds_object(struct cmmds *cmmds,
					     const struct uuid *oid)
{
	return NULL;
}

int __wrap_dom_create(struct dom *dom, struct dom_create *req, dom_create_cb cb)
{
	is.create = req;
	req->cb = cb;
	return 0;
}

/* Every other call that is busy says so later. */
static void on_later(struct env_timer *timer)
{
	struct dom_object_open *req = is.open;
	struct dom_io *io = is.map;
	int status = 0;

	if (is.busy > 0) {
		is.busy--;
		status = -EBUSY;
	}
	is.open = NULL;
	is.map = NULL;
	if (req != NULL) {
		is.opened += status == 0;
		req->object = (void *)&is; /* any but NULL */
		req->cb(req, status);
		return;
	}
	io->mapped_len = 4096;
	io->mapped = false;
	io->cb(io, status);
}

static int later(void)
{
	if (is.busy > 0 && is.busy % 2 == 0) {
		is.busy--;
		return -EBUSY;
	}
	is.later.cb = on_later;
	if (!is.hangs)
		env_timer_start(ts.env, &is.later, MSEC);
	return 0;
}

int __wrap_dom_object_open(struct dom *dom, struct dom_object_open *req,
			   const struct uuid *oid, dom_object_open_cb cb)
{
	req->cb = cb;
	is.open = req;
	return later();
}

/* Not counted. */
void __wrap_dom_space(struct dom *dom, struct dom_space *req,
		      void (*cb)(struct dom_space *req, int status))
{
	cb(req, -ENODATA);
}

void __wrap_dom_object_close(struct dom_object *object)
{
	is.opened--;
}

uint64_t __wrap_dom_object_size(const struct dom_object *object)
{
	return 8192;
}

int __wrap_dom_map(struct dom_object *object, struct dom_io *io,
		   uint64_t offset, uint64_t len, dom_io_cb cb)
{
	CHECK_EQ(offset + len, 8192);
	io->cb = cb;
	is.map = io;
	if (is.busy == 0)
		is.busy = is.busy_next;
	is.busy_next = 0;
	return later();
}

int __wrap_node__secret_seal(const uint8_t key[NODE_KEY_LEN],
			     const uint8_t nonce[12], const char *context,
			     const uint8_t *secret, size_t len, uint8_t **out,
			     size_t *out_len)
{
	if (++is.seals == is.seal_fails)
		return -ENOMEM;
	return __real_node__secret_seal(key, nonce, context, secret, len, out,
					out_len);
}

void __wrap_admin__reply(struct admin_req *r, Admin__Response *response)
{
	is.settled = true;
	is.status = response->status;
	is.unknown = response->unknown;
	snprintf(is.error, sizeof(is.error), "%s", response->error);
	snprintf(is.fix, sizeof(is.fix), "%s", response->fix);
	if (response->result_case == ADMIN__RESPONSE__RESULT_OK)
		snprintf(is.what, sizeof(is.what), "%s", response->ok->what);
}

void __wrap_admin__reply_packed(struct admin_req *r, int result, uint8_t *bytes,
				size_t len)
{
	is.settled = true;
	is.status = 0;
	free(bytes);
}

static void open_it(void)
{
	memset(&node, 0, sizeof(node));
	memset(&is, 0, sizeof(is));
	test_memory_open(&ts);
	strcpy(config.name, "n1");
	node.config = &config;
	node.env = ts.env;
	node.state = NODE_UP;
	TAILQ_INIT(&node.disks);
	node__parts_open(&node);
}

/* ---- vdisk create ---- */

static char *allowed[] = { "iqn.2026-01.test:a", "iqn.2026-01.test:b" };

/* Each step of sealing, and each copy, fails once: nothing is asked of dom. */
TEST(node_admin, a_disk_is_made_with_its_export_or_not_at_all)
{
	uint8_t secrets[2][16] = { "first-secret-16", "other-secret-16" };
	Admin__Access access = ADMIN__ACCESS__INIT;
	Admin__VdiskCreate create = ADMIN__VDISK_CREATE__INIT;
	Admin__Request msg = ADMIN__REQUEST__INIT;
	struct cmmds_command cmd;
	unsigned made = 0, step = 0;

	access.allow = allowed;
	access.n_allow = ARRAY_LEN(allowed);
	access.chap_user = "joe";
	access.chap_secret = (ProtobufCBinaryData){ 16, secrets[0] };
	access.mutual_user = "us";
	access.mutual_secret = (ProtobufCBinaryData){ 16, secrets[1] };
	create.name = "v";
	create.size_bytes = 1 << 20;
	create.export = true;
	create.access = &access;
	msg.command_case = ADMIN__REQUEST__COMMAND_VDISK_CREATE;
	msg.vdisk_create = &create;
	while (made < 2) {
		struct admin_req r = { .node = &node, .msg = &msg };

		CHECK(++step < 20);
		open_it();
		if (made == 0)
			is.seal_fails = step;
		else
			is.dup_fails = step;
		admin__vdisk_create(&r);
		if (is.create == NULL) {
			CHECK_EQ(is.status, -ENOMEM);
			CHECK(strstr(is.error, made == 0 ? "cannot be sealed"
							 : "no memory"));
		} else {
			memset(&cmd, 0, sizeof(cmd));
			memset(is.puts, 0, sizeof(is.puts));
			is.create->commit(is.create, &cmd);
			CHECK_EQ(is.puts[CMMDS_VDISK], 1);
			CHECK_EQ(is.puts[CMMDS_TARGET], 1);
			CHECK_EQ(is.puts[CMMDS_LUN], 1);
			CHECK((made == 0 ? is.seals : is.dups) < step);
			step = 0;
			made++;
			is.create->cb(is.create, -ECANCELED);
			CHECK(is.status < 0);
		}
		free(r.ctx);
		test_shard_close(&ts);
	}
}

/* What changes the directory is not begun while that has no space. */
TEST(node_admin, nothing_begins_without_space)
{
	Admin__VdiskCreate create = ADMIN__VDISK_CREATE__INIT;
	Admin__DiskScrub scrub = ADMIN__DISK_SCRUB__INIT;
	Admin__Request msg = ADMIN__REQUEST__INIT;
	struct admin_req r = { .node = &node, .msg = &msg };

	create.name = "v";
	create.size_bytes = 1 << 20;
	msg.command_case = ADMIN__REQUEST__COMMAND_VDISK_CREATE;
	msg.vdisk_create = &create;
	open_it();
	is.wants = -ENOSPC;
	admin__dispatch(&r);
	CHECK_EQ(is.status, -ENOSPC);
	CHECK(is.create == NULL);
	CHECK(strstr(is.fix, "free space there, then repeat") != NULL);
	is.wants = -EMFILE;
	admin__dispatch(&r);
	CHECK_EQ(is.status, -EMFILE);
	CHECK(strstr(is.fix, "--nofile=") != NULL);
	CHECK(strstr(is.fix, "then repeat") != NULL);
	/* Nor what turns out to change it later. */
	scrub.every = true;
	scrub.days = 7;
	msg.command_case = ADMIN__REQUEST__COMMAND_DISK_SCRUB;
	msg.disk_scrub = &scrub;
	is.status = 0;
	admin__dispatch(&r);
	CHECK_EQ(is.status, -EMFILE);
	test_shard_close(&ts);
}

/* A session is gone at once; that the directory cannot note it is another thing. */
TEST(node_admin, a_session_is_dropped_whatever_the_directory_does)
{
	Admin__SessionDrop drop = ADMIN__SESSION_DROP__INIT;
	Admin__Request msg = ADMIN__REQUEST__INIT;
	static const char done[] = "session 5 dropped;";

	drop.id = 5;
	msg.command_case = ADMIN__REQUEST__COMMAND_SESSION_DROP;
	msg.session_drop = &drop;
	for (unsigned how = 0; how < 3; how++) {
		struct admin_req r = { .node = &node, .msg = &msg };

		open_it();
		is.status = 1;
		is.wants = how == 1 ? -ENOSPC : 0;
		admin__dispatch(&r);
		CHECK(how == 1 || !r.changes);
		if (how != 1) /* the directory fails, or does its part */
			is.proposed_cb(is.proposed, how == 0 ? 0 : -EIO);
		CHECK_EQ(is.status, 0);
		CHECK(!is.unknown);
		CHECK(strncmp(is.what, done, strlen(done)) == 0);
		CHECK_EQ(strstr(is.what, "events may not tell") != NULL,
			 how != 0);
		test_shard_close(&ts);
	}
}

/* Its object is ready when basaltd stops: then it is there. */
TEST(node_admin, what_was_made_is_answered_so_at_the_end)
{
	Admin__VdiskCreate create = ADMIN__VDISK_CREATE__INIT;
	Admin__Request msg = ADMIN__REQUEST__INIT;
	struct admin_req r = { .node = &node, .msg = &msg };

	open_it();
	create.name = "v";
	create.size_bytes = 1 << 20;
	create.export = true;
	msg.command_case = ADMIN__REQUEST__COMMAND_VDISK_CREATE;
	msg.vdisk_create = &create;
	admin__vdisk_create(&r);
	CHECK(is.create != NULL);
	node.state = NODE_STOPPING;
	is.status = -1;
	is.create->cb(is.create, 0);
	CHECK_EQ(is.status, 0);
	free(r.ctx);
	test_shard_close(&ts);
}

/* Its disks are closed while its object is made: it may be there, or not. */
TEST(node_admin, nobody_knows_what_is_cut_off_by_the_end)
{
	Admin__VdiskCreate create = ADMIN__VDISK_CREATE__INIT;
	Admin__Request msg = ADMIN__REQUEST__INIT;
	struct admin_req r = { .node = &node, .msg = &msg };

	open_it();
	create.name = "v";
	create.size_bytes = 1 << 20;
	msg.command_case = ADMIN__REQUEST__COMMAND_VDISK_CREATE;
	msg.vdisk_create = &create;
	admin__vdisk_create(&r);
	CHECK(is.create != NULL);
	node.state = NODE_STOPPING;
	is.create->cb(is.create, -ENXIO);
	CHECK_EQ(is.status, -ESHUTDOWN);
	CHECK(is.unknown);
	CHECK(strstr(is.error, "shutting down"));
	free(r.ctx);
	test_shard_close(&ts);
}

/* ---- no memory ---- */

/* The command is refused, and what it had is freed; the daemon goes on. */
static void none_for(void (*handle)(struct admin_req *r),
		     const Admin__Request *msg, unsigned least)
{
	unsigned refused = 0;

	for (unsigned n = 1;; n++) {
		struct admin_req r = { .node = &node,
				       .msg = (Admin__Request *)msg,
				       .conn = (void *)&node };

		open_it();
		is.status = 1;
		fail_at = n;
		handle(&r);
		if (is.create == NULL)
			test_run(&ts, &is.settled);
		refused += fail_at == 0;
		CHECK(fail_at > 0 || is.status == -ENOMEM);
		if (is.create != NULL) /* under way */
			is.create->cb(is.create, -ECANCELED);
		if (r.over != NULL)
			r.over(&r);
		free(r.ctx);
		test_shard_close(&ts);
		if (fail_at > 0)
			break;
	}
	fail_at = 0;
	CHECK(refused >= least);
}

TEST(node_admin, without_memory_a_command_is_refused)
{
	Admin__VdiskCreate create = ADMIN__VDISK_CREATE__INIT;
	Admin__Request msg = ADMIN__REQUEST__INIT;

	none_for(admin__disk_list, &msg, 3);
	none_for(admin__policy_list, &msg, 1);
	none_for(admin__target_list, &msg, 1);
	none_for(admin__vdisk_list, &msg, 1);
	none_for(admin__health, &msg, 2);
	create.name = "v";
	create.size_bytes = 1 << 20;
	create.export = true;
	msg.vdisk_create = &create;
	none_for(admin__vdisk_create, &msg, 2);
}

/* Nor is one that first has to look whether there is data, or for space. */
TEST(node_admin, without_memory_nothing_is_asked)
{
	struct uuid oid = uuid_of(1);

	open_it();
	fail_at = 1;
	CHECK_EQ(admin__data_check(&node, &oid, 0, 1, NULL, NULL), -ENOMEM);
	fail_at = 1;
	CHECK_EQ(admin__space_ask(&node, &oid, NULL, NULL), -ENOMEM);
	CHECK_EQ(fail_at, 0);
	test_shard_close(&ts);
}

/* ---- lun add ---- */

/* In more targets than one command can change it could not be renamed. */
TEST(node_admin, a_disk_is_in_so_many_targets)
{
	Admin__LunAdd add = ADMIN__LUN_ADD__INIT;
	Admin__Request msg = ADMIN__REQUEST__INIT;

	add.target = "t";
	add.vdisk = "v";
	msg.command_case = ADMIN__REQUEST__COMMAND_LUN_ADD;
	msg.lun_add = &add;
	for (unsigned n = 999; n <= 1000; n++) {
		struct admin_req r = { .node = &node, .msg = &msg };

		open_it();
		is.exports = n;
		admin__lun_add(&r);
		CHECK_EQ(is.puts[CMMDS_LUN], n < 1000);
		if (n == 1000) {
			CHECK_EQ(is.status, -ERANGE);
			CHECK_STR(is.error, "v is in 1000 targets, the most "
					    "there can be");
		}
		if (is.proposed != NULL)
			cmmds_command_fini(is.proposed);
		free(r.ctx);
		test_shard_close(&ts);
	}
}

/* ---- is data there? ---- */

struct asked {
	bool done;
	int result;
};

static void on_checked(void *arg, int result)
{
	struct asked *a = arg;

	a->result = result;
	a->done = true;
}

/* How it ends where so many calls are busy. */
static int check(unsigned busy, unsigned busy_next)
{
	struct uuid oid = uuid_of(1);
	struct asked a = { false, 1 };

	open_it();
	is.busy = busy;
	is.busy_next = busy_next;
	CHECK_EQ(admin__data_check(&node, &oid, 0, 1 << 20, on_checked, &a), 0);
	CHECK(!a.done);
	test_run(&ts, &a.done);
	CHECK_EQ(is.opened, 0);
	test_shard_close(&ts);
	return a.result;
}

TEST(node_admin, what_is_busy_for_a_moment_is_asked_again)
{
	CHECK_EQ(check(0, 0), 0);
	CHECK_EQ(check(3, 4), 0);
	CHECK_EQ(check(4, 3), 0);
	CHECK_EQ(check(1000, 0), -EBUSY);
	CHECK_EQ(check(0, 1000), -EBUSY);
}

/* ---- a directory with a full queue ---- */

static int nothing_build(struct admin_req *r, struct cmmds_command *cmd)
{
	return 0;
}

static void applied(struct admin_req *r)
{
	Admin__Response response = ADMIN__RESPONSE__INIT;

	__wrap_admin__reply(r, &response);
}

/* The answer to a change that finds the queue full @busy times. */
static int change_busy(unsigned busy, bool stops)
{
	struct admin_req r = { .node = &node };

	open_it();
	is.status = 1;
	is.proposals_busy = busy;
	admin__change(&r, nothing_build, applied);
	if (stops)
		node.state = NODE_STOPPING;
	test_run(&ts, &is.settled);
	if (is.proposed != NULL)
		is.proposed_cb(is.proposed, 0);
	CHECK(!env_timer_active(&r.busy_timer));
	test_shard_close(&ts);
	return is.status;
}

/* Thousands of owners that begin at once fill it, and no command fails of that. */
TEST(node_admin, a_change_waits_for_room_in_the_queue)
{
	CHECK_EQ(change_busy(0, false), 0);
	CHECK_EQ(change_busy(20, false), 0);
	CHECK_EQ(change_busy(UINT32_MAX, false), -EBUSY);
	CHECK_EQ(change_busy(UINT32_MAX, true), -ESHUTDOWN);
}

/* Then the command is answered; what dom says later is heard by nobody. */
TEST(node_admin, what_hangs_is_not_waited_for)
{
	struct uuid oid = uuid_of(1);
	struct asked a = { false, 1 };
	uint64_t begun;

	open_it();
	is.hangs = true;
	begun = env_now(ts.env);
	CHECK_EQ(admin__data_check(&node, &oid, 0, 1 << 20, on_checked, &a), 0);
	test_run(&ts, &a.done);
	CHECK_EQ(a.result, -ETIMEDOUT);
	CHECK(env_now(ts.env) - begun <= 20 * SEC);
	CHECK(is.open != NULL);
	a.done = false;
	on_later(&is.later);
	CHECK(!a.done);
	CHECK_EQ(is.opened, 0);
	test_shard_close(&ts);
}

static void on_space(void *arg, int status, const struct object_space *space)
{
	on_checked(arg, status);
}

TEST(node_admin, nor_is_space_that_nobody_has_counted)
{
	struct uuid oid = uuid_of(1);
	struct asked a = { false, 1 };

	open_it();
	is.hangs = true;
	CHECK_EQ(admin__space_ask(&node, &oid, on_space, &a), 0);
	test_run(&ts, &a.done);
	CHECK_EQ(a.result, -ETIMEDOUT);
	a.done = false;
	on_later(&is.later);
	CHECK(!a.done);
	CHECK_EQ(is.opened, 0);
	test_shard_close(&ts);
}

/* ---- disks ---- */

TEST(node_admin, of_two_disks_it_is_said_which)
{
	struct node_disk disks[3] = { 0 };
	struct admin_req r = { .node = &node };

	open_it();
	for (unsigned i = 0; i < 3; i++) {
		disks[i].node = &node;
		memset(disks[i].id.b, 0xab, sizeof(disks[i].id.b));
		disks[i].id.b[4] = (uint8_t)i;
		snprintf(disks[i].path, sizeof(disks[i].path), "/dev/sd%c",
			 i == 2 ? 'b' : 'a' + (char)i);
		TAILQ_INSERT_TAIL(&node.disks, &disks[i], link);
	}
	CHECK(admin__disk_named(&r, "/dev/sda") == &disks[0]);
	CHECK(admin__disk_named(&r, "ABABABAB-01") == &disks[1]);
	CHECK_EQ(r.status, 0);
	CHECK(admin__disk_named(&r, "abab") == NULL);
	CHECK_EQ(r.status, -EINVAL);
	CHECK_STR(r.error, "disk abab: more than one is meant");
	CHECK(strstr(r.fix, "its id") != NULL);
	CHECK(admin__disk_named(&r, "/dev/sdb") == NULL);
	CHECK_STR(r.error, "disk /dev/sdb: more than one is meant");
	CHECK(admin__disk_named(&r, "aba") == NULL);
	CHECK_EQ(r.status, -ENOENT);
	CHECK_STR(r.error, "node n1 has no disk aba");
	test_shard_close(&ts);
}

/* Its users are counted first: it may be gone then, which is no empty answer. */
TEST(node_admin, a_policy_that_is_deleted_meanwhile)
{
	Admin__Name m = ADMIN__NAME__INIT;
	Admin__Request msg = ADMIN__REQUEST__INIT;
	struct admin_req r = { .node = &node, .msg = &msg };

	open_it();
	r.conn = (void *)&node; /* any but NULL */
	m.name = "p";
	msg.policy_show = &m;
	is.exports = 1; /* it is there when it is asked for, and in no list */
	admin__policy_show(&r);
	test_run(&ts, &is.settled);
	CHECK_EQ(is.status, -ENOENT);
	CHECK_STR(is.error, "policy p was deleted meanwhile");
	free(r.ctx);
	test_shard_close(&ts);
}
