/* The directory as a state machine: every rule, dedupe, snapshots, hashes. */
#include "tests/unit/cmmds_dir.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(cmmds_state, compare_and_set)
{
	struct dir d = { 0 };

	state__init(&d.s);
	CHECK_EQ(put_policy(&d, "a", 0), 0);
	CHECK_EQ(d.s.revision, 1);
	CHECK_EQ(put_policy(&d, "a", 0), -EEXIST);
	CHECK_EQ(put_policy(&d, "b", 1), -ENOENT);
	CHECK_EQ(put_policy(&d, "a", 1), 0);
	CHECK_EQ(put_policy(&d, "a", 1), -EAGAIN);
	CHECK_EQ(put_policy(&d, "a", CMMDS_ANY), 0);
	CHECK_EQ(d.s.revision, 3);
	CHECK_EQ(erase(&d, CMMDS_POLICY, "a", 1, 1), -EAGAIN);
	CHECK_EQ(erase(&d, CMMDS_POLICY, "a", 1, 3), 0);
	CHECK_EQ(d.s.counts[CMMDS_POLICY], 0);
	CHECK_EQ(d.s.entries_hash, 0);
	state__fini(&d.s);
}

/* Neighbours are those that a search finds, whatever came and went. */
TEST(cmmds_state, in_order)
{
	struct dir d = { 0 };
	uint64_t x = 1;

	state__init(&d.s);
	for (unsigned i = 0; i < 600; i++) {
		const struct state_entry *e, *next, *prev = NULL;
		char name[16];

		x = tree__mix(x + i);
		snprintf(name, sizeof(name), "p%u", (unsigned)(x % 64));
		if (x >> 32 & 1)
			CHECK_EQ(put_policy(&d, name, CMMDS_ANY), 0);
		else
			CHECK_EQ(erase(&d, CMMDS_POLICY, name, strlen(name),
				       CMMDS_ANY),
				 0);
		CHECK_EQ(put_policy(&d, "not a name", CMMDS_ANY), -EINVAL);
		for (e = state__above(&d.s, CMMDS_POLICY, NULL, 0); e != NULL;
		     prev = e, e = next) {
			next = state__above(&d.s, CMMDS_POLICY, e->pub.key,
					    e->pub.key_len);
			CHECK(state__next(e) == next);
			CHECK(e->prev == prev);
		}
	}
	CHECK(d.s.counts[CMMDS_POLICY] > 8);
	state__fini(&d.s);
}

/* All changes or none, and the trees as they were. */
TEST(cmmds_state, all_or_none)
{
	struct dir d = { 0 };
	struct cmmds_command cmd = { 0 };
	Directory__Policy p = DIRECTORY__POLICY__INIT;
	uint64_t hash;

	state__init(&d.s);
	CHECK_EQ(put_policy(&d, "a", 0), 0);
	hash = d.s.entries_hash;
	cmmds_command_init(&cmd);
	p.name = "b";
	cmmds_put(&cmd, CMMDS_POLICY, "b", 1, 0, &p.base);
	cmmds_erase(&cmd, CMMDS_POLICY, "a", 1, 1);
	cmmds_expect(&cmd, CMMDS_POLICY, "c", 1, 7);
	CHECK_EQ(apply(&d, &cmd), -ENOENT);
	CHECK_EQ(d.s.counts[CMMDS_POLICY], 1);
	CHECK(d.s.entries_hash == hash);
	CHECK_EQ(d.s.revision, 1);
	cmmds_command_fini(&cmd);
	state__fini(&d.s);
}

TEST(cmmds_state, applied_once)
{
	struct dir d = { 0 };
	struct cmmds_command cmd = { 0 };
	Directory__Policy p = DIRECTORY__POLICY__INIT;

	state__init(&d.s);
	p.name = "a";
	cmmds_command_init(&cmd);
	cmmds_put(&cmd, CMMDS_POLICY, "a", 1, CMMDS_ANY, &p.base);
	CHECK_EQ(apply_as(&d, &cmd, 1, 3, 10), 0);
	CHECK_EQ(apply_as(&d, &cmd, 1, 3, 10), 0);
	CHECK_EQ(d.s.revision, 1);
	/* Out of order inside the window is applied; once. */
	CHECK_EQ(apply_as(&d, &cmd, 1, 3, 9), 0);
	CHECK_EQ(apply_as(&d, &cmd, 1, 3, 9), 0);
	CHECK_EQ(d.s.revision, 2);
	CHECK_EQ(apply_as(&d, &cmd, 1, 3, 10 + CMMDS_WINDOW), 0);
	CHECK_EQ(apply_as(&d, &cmd, 1, 3, 10), -ESTALE);
	CHECK_EQ(apply_as(&d, &cmd, 1, 2, 1000), -ESTALE);
	CHECK_EQ(apply_as(&d, &cmd, 2, 1, 1), 0);
	CHECK_EQ(apply_as(&d, &cmd, 1, 4, 1), 0);
	CHECK_EQ(d.s.revision, 5);
	cmmds_command_fini(&cmd);
	state__fini(&d.s);
}

TEST(cmmds_state, grant_and_release)
{
	struct dir d;
	struct mirror m;

	begin(&d, &m, 2);
	CHECK_EQ(op_owner(&d, GRANT, 1, 4), -EINVAL); /* a ghost */
	CHECK_EQ(op_owner(&d, GRANT, 1, 5), 0);
	CHECK_EQ(object(&d, &m.oid)->oepoch, 1);
	CHECK_EQ(object(&d, &m.oid)->csn, 1);
	CHECK_EQ(op_owner(&d, GRANT, 2, 8), -EINVAL); /* a live owner */
	CHECK_EQ(op_owner(&d, GRANT, 1, 5), -EINVAL);
	CHECK_EQ(op_owner(&d, RELEASE, 2, 8), -EINVAL);
	/* The owner restarts: another incarnation, another epoch (R33). */
	CHECK_EQ(put_node(&d, 1, 6, 1), 0);
	CHECK_EQ(op_owner(&d, RELEASE, 1, 6), -EINVAL);
	CHECK_EQ(op_owner(&d, GRANT, 1, 6), 0);
	CHECK_EQ(object(&d, &m.oid)->oepoch, 2);
	/* Its session ends: another node may. */
	CHECK_EQ(put_node(&d, 1, 6, 0), 0);
	CHECK_EQ(op_owner(&d, GRANT, 2, 8), 0);
	CHECK_EQ(op_owner(&d, RELEASE, 2, 8), 0);
	CHECK(object(&d, &m.oid)->owner == NULL);
	CHECK_EQ(op_leaf(&d, EXCLUDE, 10, 0), -EINVAL); /* nobody's */
	CHECK_EQ(put_node(&d, 1, 5, 1), -EINVAL); /* incarnations rise */
	state__fini(&d.s);
}

static int op_accept(struct dir *d, uint32_t oepoch, uint64_t csn)
{
	struct cmmds_command cmd = { 0 };
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;
	struct uuid oid = id(99);
	int rv;

	op.op = DIRECTORY__OBJECT_COMMAND__OP__ACCEPT;
	op.oid = BYTES(oid);
	op.expect_oepoch = object(d, &oid)->oepoch;
	op.expect_csn = object(d, &oid)->csn;
	op.oepoch = oepoch;
	op.csn = csn;
	cmmds_command_init(&cmd);
	cmmds_object_op(&cmd, &op);
	rv = apply(d, &cmd);
	cmmds_command_fini(&cmd);
	return rv;
}

TEST(cmmds_state, accept_raises_what_was_seen)
{
	struct dir d;
	struct mirror m;

	begin(&d, &m, 2);
	CHECK_EQ(op_owner(&d, GRANT, 1, 5), 0);
	CHECK_EQ(op_accept(&d, 9, 9), -EINVAL); /* a live owner */
	CHECK_EQ(put_node(&d, 1, 6, 1), 0);
	CHECK_EQ(op_accept(&d, 9, 2), -EINVAL); /* any command does that */
	CHECK_EQ(op_accept(&d, 9, UINT64_MAX), -EINVAL);
	CHECK_EQ(op_accept(&d, 0xffffff, 9), -EINVAL);
	CHECK_EQ(object(&d, &m.oid)->csn, 1);
	CHECK_EQ(op_accept(&d, 9, 9), 0);
	CHECK_EQ(object(&d, &m.oid)->csn, 9);
	CHECK_EQ(object(&d, &m.oid)->oepoch, 9);
	CHECK(object(&d, &m.oid)->owner == NULL);
	CHECK_EQ(op_accept(&d, 3, 11), 0); /* it never falls */
	CHECK_EQ(object(&d, &m.oid)->oepoch, 9);
	CHECK_EQ(op_owner(&d, GRANT, 1, 6), 0);
	CHECK_EQ(object(&d, &m.oid)->oepoch, 10);
	state__fini(&d.s);
}

/* Nor does an op beside it in the command take it back. */
TEST(cmmds_state, accept_beside_another)
{
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;
	struct cmmds_command cmd = { 0 };
	struct mirror m;
	struct dir d;

	begin(&d, &m, 2);
	cmmds_command_init(&cmd);
	op.op = DIRECTORY__OBJECT_COMMAND__OP__ACCEPT;
	op.oid = BYTES(m.oid);
	op.expect_csn = 1;
	op.csn = 9;
	cmmds_object_op(&cmd, &op);
	op.op = CREATED;
	op.cid = BYTES(m.cid[0]);
	cmmds_object_op(&cmd, &op);
	CHECK_EQ(apply(&d, &cmd), 0);
	CHECK_EQ(object(&d, &m.oid)->csn, 9);
	CHECK(object(&d, &m.oid)->tree->children[0]->leaf->created);
	cmmds_command_fini(&cmd);
	state__fini(&d.s);
}

/* A new one that could not be: a witness alone, a csn that cannot rise. */
TEST(cmmds_state, objects_that_cannot_be)
{
	struct mirror m;
	struct dir d;

	begin(&d, &m, 2);
	m.oid = id(98);
	m.object.csn = UINT64_MAX;
	CHECK_EQ(put(&d, CMMDS_OBJECT, m.oid.b, sizeof(m.oid), 0, &m.object),
		 -EINVAL);
	m.object.csn = 1;
	m.node[0].type = DIRECTORY__TREE_NODE__TYPE__WITNESS;
	m.object.tree = &m.node[0];
	CHECK_EQ(put(&d, CMMDS_OBJECT, m.oid.b, sizeof(m.oid), 0, &m.object),
		 -EINVAL);
	m.object.tree = &m.root;
	CHECK_EQ(put(&d, CMMDS_OBJECT, m.oid.b, sizeof(m.oid), 0, &m.object),
		 0);
	state__fini(&d.s);
}

TEST(cmmds_state, leaf_states)
{
	struct dir d;
	struct mirror m;
	const Directory__Leaf *leaf;
	uint64_t lsn = 1ull << 40 | 7;

	begin(&d, &m, 2);
	CHECK_EQ(op_owner(&d, GRANT, 1, 5), 0);
	CHECK_EQ(op_leaf(&d, CREATED, 10, 0), 0);
	CHECK_EQ(op_leaf(&d, SET_SYNC, 10, 0), -EINVAL);
	CHECK_EQ(op_leaf(&d, SET_ACTIVE, 10, 0), -EINVAL);
	CHECK_EQ(op_leaf(&d, EXCLUDE, 77, 0), -EINVAL);
	CHECK_EQ(op_leaf(&d, EXCLUDE, 10, 2ull << 40), -EINVAL);
	CHECK_EQ(op_leaf(&d, EXCLUDE, 10, lsn), 0);
	leaf = object(&d, &m.oid)->tree->children[0]->leaf;
	CHECK_EQ(leaf->state, DIRECTORY__LEAF__STATE__STALE);
	CHECK_EQ(leaf->stale_lsn, lsn);
	CHECK_EQ(leaf->member_csn, object(&d, &m.oid)->csn);
	/* The last full copy stays. */
	CHECK_EQ(op_leaf(&d, EXCLUDE, 11, lsn), -EINVAL);
	CHECK_EQ(op_leaf(&d, EXCLUDE, 10, lsn + 1), -EINVAL);
	CHECK_EQ(op_leaf(&d, SET_ACTIVE, 10, 0), -EINVAL);
	CHECK_EQ(op_leaf(&d, SET_SYNC, 10, 0), 0);
	leaf = object(&d, &m.oid)->tree->children[0]->leaf;
	CHECK_EQ(leaf->stale_lsn, lsn);
	CHECK_EQ(leaf->member_csn, object(&d, &m.oid)->csn);
	/* A SYNC leaf fails: its stale_lsn does not rise (R39). */
	CHECK_EQ(op_leaf(&d, EXCLUDE, 10, lsn + 1), -EINVAL);
	CHECK_EQ(op_leaf(&d, EXCLUDE, 10, lsn), 0);
	CHECK_EQ(op_leaf(&d, SET_SYNC, 10, 0), 0);
	CHECK_EQ(op_leaf(&d, SET_ACTIVE, 10, 0), 0);
	leaf = object(&d, &m.oid)->tree->children[0]->leaf;
	CHECK_EQ(leaf->state, DIRECTORY__LEAF__STATE__ACTIVE);
	CHECK_EQ(leaf->stale_lsn, 0);
	CHECK_EQ(leaf->member_csn, object(&d, &m.oid)->csn - 1);
	state__fini(&d.s);
}

TEST(cmmds_state, object_compare_and_set)
{
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;
	struct cmmds_command cmd = { 0 };
	struct dir d;
	struct mirror m;

	begin(&d, &m, 1);
	op.op = DIRECTORY__OBJECT_COMMAND__OP__DELETE;
	op.oid = BYTES(m.oid);
	op.expect_csn = 2;
	cmmds_command_init(&cmd);
	cmmds_object_op(&cmd, &op);
	CHECK_EQ(apply(&d, &cmd), -EAGAIN);
	op.expect_csn = 1;
	cmmds_object_op(&cmd, &op);
	CHECK_EQ(erase(&d, CMMDS_OBJECT, m.oid.b, 16, CMMDS_ANY), -EINVAL);
	CHECK_EQ(apply(&d, &cmd), 0);
	CHECK(object(&d, &m.oid)->deleted);
	CHECK_EQ(op_leaf(&d, CREATED, 10, 0), -EINVAL);
	CHECK_EQ(erase(&d, CMMDS_OBJECT, m.oid.b, 16, CMMDS_ANY), 0);
	cmmds_command_fini(&cmd);
	state__fini(&d.s);
}

static int resize(struct dir *d, struct mirror *m, Directory__TreeNode *tree,
		  uint64_t size)
{
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;
	struct cmmds_command cmd = { 0 };
	int rv;

	op.op = DIRECTORY__OBJECT_COMMAND__OP__RESIZE;
	op.oid = BYTES(m->oid);
	op.expect_oepoch = object(d, &m->oid)->oepoch;
	op.expect_csn = object(d, &m->oid)->csn;
	op.tree = tree;
	op.size_bytes = size;
	cmmds_command_init(&cmd);
	cmmds_object_op(&cmd, &op);
	rv = apply(d, &cmd);
	cmmds_command_fini(&cmd);
	return rv;
}

/* What is reserved changes with the size, if the command says so. */
TEST(cmmds_state, resize_reserves)
{
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;
	struct cmmds_command cmd;
	struct dir d;
	struct mirror m;

	begin(&d, &m, 1);
	op.op = DIRECTORY__OBJECT_COMMAND__OP__RESIZE;
	op.oid = BYTES(m.oid);
	op.tree = &m.root;
	op.size_bytes = m.root.size_bytes;
	for (uint64_t i = 1; i < 5; i++) {
		int want = i == 2 ? -EINVAL : 0;

		op.expect_csn = object(&d, &m.oid)->csn;
		/* 1, too much, as by an earlier version: not told, none */
		op.reserved_set = i != 3;
		op.reserved_bytes = i == 2 ? op.size_bytes + 1 : i % 4;
		cmmds_command_init(&cmd);
		cmmds_object_op(&cmd, &op);
		CHECK_EQ(apply(&d, &cmd), want);
		cmmds_command_fini(&cmd);
		CHECK_EQ(object(&d, &m.oid)->reserved_bytes, i < 4 ? 1 : 0);
	}
	state__fini(&d.s);
}

TEST(cmmds_state, resize_keeps_the_layout)
{
	Directory__TreeNode concat = DIRECTORY__TREE_NODE__INIT, more;
	Directory__TreeNode *parts[2];
	Directory__Leaf leaf;
	struct uuid cid = id(50);
	struct dir d;
	struct mirror m;

	begin(&d, &m, 2);
	/* In place. */
	m.root.size_bytes = m.node[0].size_bytes = m.node[1].size_bytes = 2
									  << 20;
	CHECK_EQ(resize(&d, &m, &m.root, 3 << 20), -EINVAL);
	CHECK_EQ(resize(&d, &m, &m.root, 2 << 20), 0);
	CHECK_EQ(object(&d, &m.oid)->csn, 2);
	/* Another leaf in an old one's place loses what it held (R31). */
	m.leaf[0].cid = BYTES(cid);
	CHECK_EQ(resize(&d, &m, &m.root, 2 << 20), -EINVAL);
	m.leaf[0].cid = BYTES(m.cid[0]);
	/* Appended. */
	leaf = m.leaf[0];
	leaf.cid = BYTES(cid);
	more = m.node[0];
	more.leaf = &leaf;
	parts[0] = &m.root;
	parts[1] = &more;
	concat.type = DIRECTORY__TREE_NODE__TYPE__CONCAT;
	concat.size_bytes = 4 << 20;
	concat.children = parts;
	concat.n_children = 2;
	CHECK_EQ(resize(&d, &m, &concat, 4 << 20), 0);
	CHECK_EQ(object(&d, &m.oid)->tree->children[1]->leaf->member_csn, 3);
	parts[0] = &more;
	parts[1] = &m.root;
	CHECK_EQ(resize(&d, &m, &concat, 4 << 20), -EINVAL);
	state__fini(&d.s);
}

/* Nothing points at what is not there. */
TEST(cmmds_state, references)
{
	Directory__VDisk v = DIRECTORY__VDISK__INIT;
	Directory__Target t = DIRECTORY__TARGET__INIT;
	Directory__Lun l = DIRECTORY__LUN__INIT;
	struct dir d;
	struct mirror m;

	begin(&d, &m, 1);
	v.name = "v";
	v.oid = BYTES(m.oid);
	v.size_bytes = 1 << 20;
	v.block_bytes = 512;
	v.policy = "gold";
	CHECK_EQ(put(&d, CMMDS_VDISK, "v", 1, 0, &v), -EINVAL);
	CHECK_EQ(put_policy(&d, "gold", 0), 0);
	v.block_bytes = 1024;
	CHECK_EQ(put(&d, CMMDS_VDISK, "v", 1, 0, &v), -EINVAL);
	v.block_bytes = 4096;
	CHECK_EQ(put(&d, CMMDS_VDISK, "v", 1, 0, &v), 0);
	CHECK_EQ(erase(&d, CMMDS_POLICY, "gold", 4, CMMDS_ANY), -EINVAL);
	l.target = "t";
	l.lun = 3;
	l.vdisk = "v";
	CHECK_EQ(put(&d, CMMDS_LUN, "t\0\0\3", 4, 0, &l), -EINVAL);
	t.name = "t";
	t.iqn = "iqn.2026-11.internal.basalt:T";
	CHECK_EQ(put(&d, CMMDS_TARGET, "t", 1, 0, &t), -EINVAL);
	t.iqn = "iqn.2026-11.internal.basalt:t";
	CHECK_EQ(put(&d, CMMDS_TARGET, "t", 1, 0, &t), 0);
	CHECK_EQ(put(&d, CMMDS_LUN, "t\0\0\4", 4, 0, &l), -EINVAL);
	CHECK_EQ(put(&d, CMMDS_LUN, "t\0\0\3", 4, 0, &l), 0);
	CHECK_EQ(erase(&d, CMMDS_VDISK, "v", 1, CMMDS_ANY), -EINVAL);
	CHECK_EQ(erase(&d, CMMDS_TARGET, "t", 1, CMMDS_ANY), -EINVAL);
	CHECK_EQ(erase(&d, CMMDS_LUN, "t\0\0\3", 4, CMMDS_ANY), 0);
	CHECK_EQ(erase(&d, CMMDS_TARGET, "t", 1, CMMDS_ANY), 0);
	CHECK_EQ(erase(&d, CMMDS_VDISK, "v", 1, CMMDS_ANY), 0);
	state__fini(&d.s);
}

/* Is what a search by belonging finds what a walk over all LUNs does? */
static void luns_agree(const struct cmmds_state *s, const char *name,
		       bool vdisk)
{
	const struct state_entry *e = state__above(s, CMMDS_LUN, NULL, 0);
	const struct state_entry *found = NULL;

	do {
		const Directory__Lun *l;

		found = vdisk ? state__of(s, CMMDS_LUN, name, 2, found)
			      : state__under(s, name, found);
		for (; e != NULL && e != found; e = state__next(e)) {
			l = (const void *)e->pub.message;
			CHECK(strcmp(vdisk ? l->vdisk : l->target, name) != 0);
		}
		CHECK(e == found);
		if (e != NULL)
			e = state__next(e);
	} while (found != NULL);
}

/* What belongs to a virtual disk, or a target, is found, whatever came and went. */
TEST(cmmds_state, belongings)
{
	char vdisk[3] = "v0", target[3] = "t0", iqn[4] = "iq0";
	Directory__VDisk v = DIRECTORY__VDISK__INIT;
	Directory__Target t = DIRECTORY__TARGET__INIT;
	Directory__Lun l = DIRECTORY__LUN__INIT;
	uint64_t x = 1;
	struct mirror m;
	struct dir d;

	begin(&d, &m, 1);
	v.name = l.vdisk = vdisk;
	v.oid = BYTES(m.oid);
	v.size_bytes = 4096;
	v.block_bytes = 512;
	t.name = l.target = target;
	t.iqn = iqn;
	for (unsigned i = 0; i < 8; i++) {
		vdisk[1] = target[1] = iqn[2] = (char)('0' + i);
		CHECK_EQ(put(&d, CMMDS_VDISK, vdisk, 2, 0, &v), 0);
		CHECK_EQ(put(&d, CMMDS_TARGET, target, 2, 0, &t), 0);
		CHECK(&state__of(&d.s, CMMDS_TARGET, iqn, 3, NULL)->pub ==
		      &state__find(&d.s, CMMDS_TARGET, target, 2)->pub);
	}
	for (unsigned i = 0; i < 1000; i++) {
		uint8_t key[5] = "t0";

		x = tree__mix(x + i);
		vdisk[1] = (char)('0' + x % 8);
		target[1] = (char)('0' + (x >> 8) % 8);
		l.lun = (x >> 16) % 8;
		key[1] = (uint8_t)target[1];
		key[4] = (uint8_t)l.lun;
		if (x >> 32 & 1)
			CHECK_EQ(put(&d, CMMDS_LUN, key, 5, CMMDS_ANY, &l), 0);
		else
			CHECK_EQ(erase(&d, CMMDS_LUN, key, 5, CMMDS_ANY), 0);
		luns_agree(&d.s, vdisk, true);
		luns_agree(&d.s, target, false);
	}
	CHECK(d.s.counts[CMMDS_LUN] > 8);
	state__fini(&d.s);
}

/* A disk goes when it is empty, or was given up before. */
TEST(cmmds_state, disk_with_components)
{
	Directory__Disk disk = DIRECTORY__DISK__INIT;
	struct dir d;
	struct mirror m;

	begin(&d, &m, 2);
	disk.uuid = BYTES(m.disk[0]);
	disk.node = BYTES(m.host);
	disk.path = "/dev/x";
	CHECK_EQ(put(&d, CMMDS_DISK, m.disk[0].b, 16, 0, &disk), 0);
	CHECK_EQ(erase(&d, CMMDS_NODE, m.host.b, 16, CMMDS_ANY), -EINVAL);
	CHECK_EQ(erase(&d, CMMDS_DISK, m.disk[0].b, 16, CMMDS_ANY), -EINVAL);
	disk.removing = true;
	CHECK_EQ(put(&d, CMMDS_DISK, m.disk[0].b, 16, CMMDS_ANY, &disk), 0);
	CHECK_EQ(erase(&d, CMMDS_DISK, m.disk[0].b, 16, CMMDS_ANY), 0);
	CHECK_EQ(erase(&d, CMMDS_NODE, m.host.b, 16, CMMDS_ANY), 0);
	state__fini(&d.s);
}

TEST(cmmds_state, events_are_bounded)
{
	struct cmmds_command cmd = { 0 };
	struct dir d = { 0 };
	uint8_t key[8];

	state__init(&d.s);
	cmmds_command_init(&cmd);
	for (unsigned i = 0; i < CMMDS_EVENTS_MAX + 7; i++) {
		cmmds_audit(&cmd, "admin", "change %u", i);
		CHECK_EQ(apply(&d, &cmd), 0);
	}
	CHECK_EQ(d.s.counts[CMMDS_EVENT], CMMDS_EVENTS_MAX);
	put_be64(key, 7);
	CHECK(state__find(&d.s, CMMDS_EVENT, key, 8) == NULL);
	put_be64(key, 8);
	CHECK(state__find(&d.s, CMMDS_EVENT, key, 8) != NULL);
	cmmds_command_fini(&cmd);
	state__fini(&d.s);
}

/* What a newer program says in an event is kept, or refused, never unreadable. */
TEST(cmmds_state, event_as_large_as_an_entry)
{
	struct cmmds_command cmd = { 0 };
	ProtobufCMessageUnknownField more = { .tag = 99 };
	struct cmmds_state again;
	struct dir d = { 0 };
	uint8_t *image;
	size_t len;

	state__init(&d.s);
	state__init(&again);
	more.wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED;
	for (unsigned size = 8; size <= CMMDS_VALUE_MAX; size *= 2) {
		Directory__Event *audit;

		cmmds_command_init(&cmd);
		cmmds_audit(&cmd, "admin", "something new");
		audit = cmd.message->audit;
		more.len = 3 + size;
		more.data = calloc(1, more.len);
		memcpy(more.data,
		       (uint8_t[]){ 0x80 | (size & 0x7f),
				    0x80 | (size >> 7 & 0x7f),
				    (uint8_t)(size >> 14) },
		       3);
		audit->base.unknown_fields = calloc(1, sizeof(more));
		audit->base.unknown_fields[0] = more;
		audit->base.n_unknown_fields = 1;
		CHECK_EQ(apply(&d, &cmd),
			 size < CMMDS_VALUE_MAX ? 0 : -EMSGSIZE);
		cmmds_command_fini(&cmd);
	}
	CHECK_EQ(image_of(&d.s, &image, &len), 0);
	CHECK_EQ(snapshot__decode(&again, image, len), 0);
	free(image);
	state__fini(&again);
	state__fini(&d.s);
}

/*
 * An image that is made in parts is of the moment at which it began, whatever is
 * made, changed, removed and made anew meanwhile, before and behind the place
 * that it has come to; the next one is of its own moment.
 */
TEST(cmmds_state, snapshot_in_parts)
{
	struct dir d;
	struct mirror m;
	uint64_t x = 7;
	char name[16];

	begin(&d, &m, 2); /* of kinds before and behind */
	for (unsigned round = 0; round < 12; round++) {
		uint8_t *want, *got;
		size_t want_len, got_len;
		unsigned parts = 0;
		uint64_t hash;

		/* Several parts' worth, one of them less each time. */
		for (unsigned i = round * 200; i < 4000; i++) {
			snprintf(name, sizeof(name), "p%u", i * 2);
			if (state__find(&d.s, CMMDS_POLICY, name,
					strlen(name)) == NULL)
				CHECK_EQ(put_policy(&d, name, 0), 0);
		}
		CHECK_EQ(image_of(&d.s, &want, &want_len), 0);
		CHECK_EQ(snapshot__begin(&d.s), 0);
		while (!snapshot__more(&d.s, &got, &got_len)) {
			parts++;
			for (unsigned i = 0; i < 300; i++) {
				x = tree__mix(x + i);
				snprintf(name, sizeof(name), "p%u",
					 (unsigned)(x % 8200));
				CHECK_EQ(x >> 32 & 1 ? put_policy(&d, name,
								  CMMDS_ANY)
						     : erase(&d, CMMDS_POLICY,
							     name, strlen(name),
							     CMMDS_ANY),
					 0);
				/* What is taken back was never there. */
				CHECK_EQ(put_policy(&d, "not a name",
						    CMMDS_ANY),
					 -EINVAL);
			}
			hash = state__hash(&d.s);
		}
		CHECK(parts >= 2);
		CHECK_EQ(got_len, want_len);
		CHECK_EQ(memcmp(got, want, want_len), 0);
		CHECK(state__hash(&d.s) == hash);
		free(got);
		free(want);
	}
	/* One that is let go leaves nothing behind, nor one that its state is. */
	CHECK_EQ(snapshot__begin(&d.s), 0);
	CHECK_EQ(erase(&d, CMMDS_POLICY, "p7998", 5, CMMDS_ANY), 0);
	snapshot__drop(&d.s);
	snapshot__drop(&d.s);
	CHECK_EQ(put_policy(&d, "p7998", CMMDS_ANY), 0);
	CHECK_EQ(snapshot__begin(&d.s), 0);
	CHECK_EQ(erase(&d, CMMDS_POLICY, "p7998", 5, CMMDS_ANY), 0);
	state__fini(&d.s);
}

TEST(cmmds_state, snapshot_round_trip)
{
	struct cmmds_state copy;
	uint8_t *image, *again;
	size_t len, again_len;
	struct dir d;
	struct mirror m;

	begin(&d, &m, 2);
	CHECK_EQ(op_owner(&d, GRANT, 1, 5), 0);
	for (int i = 0; i < 300; i++)
		put_policy(&d, i & 1 ? "x" : "y", CMMDS_ANY);
	CHECK_EQ(image_of(&d.s, &image, &len), 0);
	state__init(&copy);
	CHECK_EQ(snapshot__decode(&copy, image, len), 0);
	CHECK(state__hash(&copy) == state__hash(&d.s));
	CHECK_EQ(copy.applied_index, d.s.applied_index);
	CHECK_EQ(image_of(&copy, &again, &again_len), 0);
	CHECK_EQ(again_len, len);
	CHECK_EQ(memcmp(image, again, len), 0);
	state__fini(&copy);
	/* Damage anywhere is seen; a newer version is told apart. */
	for (size_t i = 0; i < len; i += 37) {
		image[i] ^= 0x10;
		state__init(&copy);
		CHECK(snapshot__decode(&copy, image, len) < 0);
		state__fini(&copy);
		image[i] ^= 0x10;
	}
	image[8]++;
	state__init(&copy);
	CHECK_EQ(snapshot__decode(&copy, image, len), -EMEDIUMTYPE);
	state__fini(&copy);
	free(image);
	free(again);
	state__fini(&d.s);
}

/* Bytes that are no command, or nested too deep, or of another version. */
TEST(cmmds_state, bad_bytes)
{
	struct state_result result;
	struct cmmds_command cmd = { 0 };
	struct dir d = { 0 };
	uint8_t bytes[4096], *packed;
	size_t len = 0;

	state__init(&d.s);
	memset(bytes, 0xff, sizeof(bytes));
	CHECK_EQ(state__apply(&d.s, 1, bytes, 100, &result), 0);
	CHECK_EQ(result.status, -EPROTO);
	state__result_fini(&result);
	/* objects(6).tree(8).children(2).children(2)... */
	for (int depth = 0; depth < 500; depth++) {
		size_t inner = 2 * (499 - depth) * 2;

		bytes[len++] = depth == 0   ? 6 << 3 | 2
			       : depth == 1 ? 8 << 3 | 2
					    : 2 << 3 | 2;
		bytes[len++] = (uint8_t)(0x80 | (inner & 0x7f));
		bytes[len++] = (uint8_t)(inner >> 7 & 0x7f);
		bytes[len - 2] |= 0x80;
	}
	CHECK_EQ(state__apply(&d.s, 2, bytes, len, &result), 0);
	CHECK_EQ(result.status, -EPROTO);
	state__result_fini(&result);
	cmmds_command_init(&cmd);
	cmd.message->version = 2;
	CHECK_EQ(command__pack(&cmd, &packed, &len), 0);
	CHECK_EQ(state__apply(&d.s, 3, packed, len, &result), -EMEDIUMTYPE);
	free(packed);
	cmmds_command_fini(&cmd);
	state__fini(&d.s);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

/* The C library's own allocator, whose allocation number @memory_left fails. */
void *__libc_malloc(size_t len);
void *__libc_calloc(size_t count, size_t len);
static long memory_left = -1;

static bool memory_gone(void)
{
	return memory_left >= 0 && memory_left-- == 0;
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
void *malloc(size_t len)
{
	return memory_gone() ? NULL : __libc_malloc(len);
}

/* NOLINTNEXTLINE(readability-inconsistent-declaration-parameter-name) */
void *calloc(size_t count, size_t len)
{
	return memory_gone() ? NULL : __libc_calloc(count, len);
}

/*
 * No memory is the end, never an answer: what one member refuses for want of it
 * the others apply, and so does this one when it reads its log again.
 */
TEST(cmmds_state, no_memory_is_no_refusal)
{
	Directory__Policy p = DIRECTORY__POLICY__INIT;
	struct cmmds_command cmd = { 0 };
	struct state_result result;
	struct uuid who = id(1);
	unsigned ends = 0;
	uint8_t *bytes;
	int status = 1;
	size_t len;

	p.name = "gold";
	cmmds_command_init(&cmd);
	cmmds_put(&cmd, CMMDS_POLICY, "gold", 4, 0, &p.base);
	cmmds_audit(&cmd, "admin", "policy gold");
	cmd.message->client.data = malloc(sizeof(who));
	memcpy(cmd.message->client.data, who.b, sizeof(who));
	cmd.message->client.len = sizeof(who);
	cmd.message->sequence = 1;
	CHECK_EQ(command__pack(&cmd, &bytes, &len), 0);
	cmmds_command_fini(&cmd);
	for (long n = 0; status != 0; n++) {
		pid_t pid = fork();

		if (pid == 0) {
			struct dir d;

			signal(SIGABRT, SIG_DFL);
			state__init(&d.s);
			memory_left = n;
			if (state__apply(&d.s, 1, bytes, len, &result) != 0 ||
			    result.status != 0)
				_exit(2);
			_exit(memory_left >= 0 ? 0 : 3);
		}
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK(status == 0 ||
		      (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT));
		ends += status != 0;
	}
	CHECK(ends > 10);
	free(bytes);
}
#endif
