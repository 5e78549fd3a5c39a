/*
 * Commands of the admin service, as far as they go before a room is asked; the
 * directory and dom are what these tests make of them.
 */
#include "base/util.h"
#include "node/admin_int.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	unsigned puts[CMMDS_KINDS]; /* of the last command */
	unsigned seals, seal_fails; /* which one, from 1; 0: none */
	struct dom_create *create; /* that dom was asked for */
	int status;
	char error[512], fix[400];
} is;

static struct node node;
static struct config config;
static struct test_shard ts;

/* ---- the rooms ---- */

const struct cmmds_entry *__wrap_cmmds_get(struct cmmds *cmmds,
					   enum cmmds_kind kind,
					   const void *key, size_t key_len);
const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after);
void __wrap_cmmds_put(struct cmmds_command *cmd, enum cmmds_kind kind,
		      const void *key, size_t key_len, uint64_t expect,
		      const ProtobufCMessage *message);
void __wrap_cmmds_audit(struct cmmds_command *cmd, const char *who,
			const char *fmt, ...);
const Directory__VDisk *__wrap_cmmds_vdisk(struct cmmds *cmmds,
					   const char *name);
const Directory__Target *__wrap_cmmds_target(struct cmmds *cmmds,
					     const char *name);
const Directory__Policy *__wrap_cmmds_policy(struct cmmds *cmmds,
					     const char *name);
int __wrap_dom_create(struct dom *dom, struct dom_create *req,
		      dom_create_cb cb);
int __real_node__secret_seal(const uint8_t key[NODE_KEY_LEN],
			     const uint8_t nonce[12], const char *context,
			     const uint8_t *secret, size_t len, uint8_t **out,
			     size_t *out_len);
int __wrap_node__secret_seal(const uint8_t key[NODE_KEY_LEN],
			     const uint8_t nonce[12], const char *context,
			     const uint8_t *secret, size_t len, uint8_t **out,
			     size_t *out_len);
void __wrap_admin__reply(struct admin_req *r, Admin__Response *response);

const struct cmmds_entry *__wrap_cmmds_get(struct cmmds *cmmds,
					   enum cmmds_kind kind,
					   const void *key, size_t key_len)
{
	return NULL;
}

const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after)
{
	return NULL;
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

const Directory__VDisk *__wrap_cmmds_vdisk(struct cmmds *cmmds,
					   const char *name)
{
	return NULL;
}

const Directory__Target *__wrap_cmmds_target(struct cmmds *cmmds,
					     const char *name)
{
	return NULL;
}

const Directory__Policy *__wrap_cmmds_policy(struct cmmds *cmmds,
					     const char *name)
{
	return NULL;
}

int __wrap_dom_create(struct dom *dom, struct dom_create *req, dom_create_cb cb)
{
	is.create = req;
	req->cb = cb;
	return 0;
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
	is.status = response->status;
	snprintf(is.error, sizeof(is.error), "%s", response->error);
	snprintf(is.fix, sizeof(is.fix), "%s", response->fix);
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
}

/* ---- vdisk create ---- */

/* Each step of sealing fails once: then nothing is asked of dom. */
TEST(node_admin, a_disk_is_made_with_its_export_or_not_at_all)
{
	uint8_t secrets[2][16] = { "first-secret-16", "other-secret-16" };
	Admin__Access access = ADMIN__ACCESS__INIT;
	Admin__VdiskCreate create = ADMIN__VDISK_CREATE__INIT;
	Admin__Request msg = ADMIN__REQUEST__INIT;
	struct cmmds_command cmd;
	bool made = false;

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
	for (unsigned fails = 1; !made; fails++) {
		struct admin_req r = { .node = &node, .msg = &msg };

		CHECK(fails < 10);
		open_it();
		is.seal_fails = fails;
		admin__vdisk_create(&r);
		if (is.create == NULL) {
			CHECK_EQ(is.status, -ENOMEM);
			CHECK(strstr(is.error, "cannot be sealed") != NULL);
		} else {
			memset(&cmd, 0, sizeof(cmd));
			memset(is.puts, 0, sizeof(is.puts));
			is.create->commit(is.create, &cmd);
			CHECK_EQ(is.puts[CMMDS_VDISK], 1);
			CHECK_EQ(is.puts[CMMDS_TARGET], 1);
			CHECK_EQ(is.puts[CMMDS_LUN], 1);
			made = is.seals < fails;
			is.create->cb(is.create, -ECANCELED);
			CHECK(is.status < 0);
		}
		free(r.ctx);
		test_shard_close(&ts);
	}
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
