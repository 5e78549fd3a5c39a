/* cmmds_dir: a directory's state machine and commands on it, for its tests. */
#ifndef BASALT_TESTS_CMMDS_DIR_H
#define BASALT_TESTS_CMMDS_DIR_H

#include "cmmds/cmmds_int.h"
#include "tests/lib/test.h"
#include "tests/unit/cmmds_image.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct dir {
	struct cmmds_state s;
	uint64_t index, sequence;
	uint64_t revision; /* as the last command was answered */
	char why[128];
};

static inline struct uuid id(uint8_t n)
{
	struct uuid u;

	memset(u.b, n, sizeof(u.b));
	return u;
}

#define BYTES(u) ((ProtobufCBinaryData){ sizeof((u).b), (u).b })

static inline int apply_as(struct dir *d, struct cmmds_command *cmd,
			   uint8_t client, uint64_t incarnation,
			   uint64_t sequence)
{
	struct state_result result;
	struct uuid who = id(client);
	uint8_t *bytes;
	size_t len;

	if (cmd->message->client.data == NULL)
		cmd->message->client.data = malloc(sizeof(who));
	memcpy(cmd->message->client.data, who.b, sizeof(who));
	cmd->message->client.len = sizeof(who);
	cmd->message->incarnation = incarnation;
	cmd->message->sequence = sequence;
	CHECK_EQ(command__pack(cmd, &bytes, &len), 0);
	CHECK_EQ(state__apply(&d->s, ++d->index, bytes, len, &result), 0);
	free(bytes);
	d->revision = result.revision;
	snprintf(d->why, sizeof(d->why), "%s", result.why);
	if (result.status != 0) {
		CHECK_EQ(result.count, 0);
		CHECK(result.why[0] != '\0');
	}
	state__result_fini(&result);
	return result.status;
}

static inline int apply(struct dir *d, struct cmmds_command *cmd)
{
	int rv = apply_as(d, cmd, 1, 1, ++d->sequence);

	cmmds_command_fini(cmd);
	cmmds_command_init(cmd);
	return rv;
}

static inline int put(struct dir *d, enum cmmds_kind kind, const void *key,
		      size_t len, uint64_t expect, const void *message)
{
	struct cmmds_command cmd = { 0 };
	int rv;

	cmmds_command_init(&cmd);
	cmmds_put(&cmd, kind, key, len, expect, message);
	rv = apply(d, &cmd);
	cmmds_command_fini(&cmd);
	return rv;
}

static inline int erase(struct dir *d, enum cmmds_kind kind, const void *key,
			size_t len, uint64_t expect)
{
	struct cmmds_command cmd = { 0 };
	int rv;

	cmmds_command_init(&cmd);
	cmmds_erase(&cmd, kind, key, len, expect);
	rv = apply(d, &cmd);
	cmmds_command_fini(&cmd);
	return rv;
}

static inline int put_policy(struct dir *d, const char *name, uint64_t expect)
{
	Directory__Policy p = DIRECTORY__POLICY__INIT;

	p.name = (char *)name;
	return put(d, CMMDS_POLICY, name, strlen(name), expect, &p);
}

/* Node n in this incarnation, with a session or without. */
static inline int put_node(struct dir *d, uint8_t n, uint64_t incarnation,
			   uint64_t session)
{
	Directory__Node m = DIRECTORY__NODE__INIT;
	struct uuid u = id(n);

	m.uuid = BYTES(u);
	m.name = "n";
	m.address = "a";
	m.incarnation = incarnation;
	m.session = session;
	return put(d, CMMDS_NODE, u.b, sizeof(u), CMMDS_ANY, &m);
}

/* A mirror of leaves 10.. on disks 20.., 1 MiB. */
struct mirror {
	Directory__Leaf leaf[4];
	Directory__TreeNode node[4], root, *children[4];
	struct uuid cid[4], disk[4], host, oid;
	Directory__Object object;
};

static inline void mirror_init(struct mirror *m, unsigned legs)
{
	m->host = id(1);
	m->oid = id(99);
	directory__tree_node__init(&m->root);
	for (unsigned i = 0; i < legs; i++) {
		m->cid[i] = id((uint8_t)(10 + i));
		m->disk[i] = id((uint8_t)(20 + i));
		directory__leaf__init(&m->leaf[i]);
		m->leaf[i].cid = BYTES(m->cid[i]);
		m->leaf[i].node = BYTES(m->host);
		m->leaf[i].disk = BYTES(m->disk[i]);
		directory__tree_node__init(&m->node[i]);
		m->node[i].leaf = &m->leaf[i];
		m->node[i].size_bytes = 1 << 20;
		m->children[i] = &m->node[i];
	}
	m->root.type = DIRECTORY__TREE_NODE__TYPE__RAID1;
	m->root.size_bytes = 1 << 20;
	m->root.children = m->children;
	m->root.n_children = legs;
	directory__object__init(&m->object);
	m->object.oid = BYTES(m->oid);
	m->object.csn = 1;
	m->object.size_bytes = 1 << 20;
	m->object.tree = &m->root;
	m->object.policy = "gold";
}

static inline const Directory__Object *object(struct dir *d,
					      const struct uuid *oid)
{
	const struct state_entry *e =
		state__find(&d->s, CMMDS_OBJECT, oid->b, sizeof(*oid));

	return e ? (const void *)e->pub.message : NULL;
}

/* @op on object 99 as it is now; the caller filled in what it is about. */
static inline int op_apply(struct dir *d, Directory__ObjectCommand *op)
{
	struct uuid oid = id(99);
	struct cmmds_command cmd = { 0 };
	int rv;

	op->oid = BYTES(oid);
	op->expect_oepoch = object(d, &oid)->oepoch;
	op->expect_csn = object(d, &oid)->csn;
	cmmds_command_init(&cmd);
	cmmds_object_op(&cmd, op);
	rv = apply(d, &cmd);
	cmmds_command_fini(&cmd);
	return rv;
}

static inline int op_owner(struct dir *d, Directory__ObjectCommand__Op what,
			   uint8_t node, uint64_t incarnation)
{
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;
	Directory__Owner owner = DIRECTORY__OWNER__INIT;
	struct uuid who = id(node);

	op.op = what;
	owner.node = BYTES(who);
	owner.incarnation = incarnation;
	op.owner = &owner;
	return op_apply(d, &op);
}

static inline int op_leaf(struct dir *d, Directory__ObjectCommand__Op what,
			  uint8_t cid, uint64_t stale_lsn)
{
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;
	struct uuid c = id(cid);

	op.op = what;
	op.cid = BYTES(c);
	op.stale_lsn = stale_lsn;
	return op_apply(d, &op);
}

#define GRANT DIRECTORY__OBJECT_COMMAND__OP__GRANT
#define RELEASE DIRECTORY__OBJECT_COMMAND__OP__RELEASE
#define EXCLUDE DIRECTORY__OBJECT_COMMAND__OP__EXCLUDE
#define SET_SYNC DIRECTORY__OBJECT_COMMAND__OP__SET_SYNC
#define SET_ACTIVE DIRECTORY__OBJECT_COMMAND__OP__SET_ACTIVE
#define CREATED DIRECTORY__OBJECT_COMMAND__OP__CREATED

static inline void begin(struct dir *d, struct mirror *m, unsigned legs)
{
	memset(d, 0, sizeof(*d));
	memset(m, 0, sizeof(*m));
	state__init(&d->s);
	mirror_init(m, legs);
	CHECK_EQ(put(d, CMMDS_OBJECT, m->oid.b, sizeof(m->oid), 0, &m->object),
		 0);
	CHECK_EQ(put_node(d, 1, 5, 1), 0);
	CHECK_EQ(put_node(d, 2, 8, 1), 0);
}

#endif
