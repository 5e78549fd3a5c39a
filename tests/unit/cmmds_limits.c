/* What the directory refuses, bound by bound, and what a repeat is told. */
#include "base/crc.h"
#include "dom/dom.h"
#include "tests/unit/cmmds_dir.h"

/* ---- applied once ---- */

TEST(cmmds_limits, a_repeat_gets_the_first_answer)
{
	struct cmmds_command a = { 0 }, b = { 0 };
	Directory__Policy p = DIRECTORY__POLICY__INIT;
	struct dir d = { 0 }, again = { 0 };
	uint8_t *image;
	size_t len;

	state__init(&d.s);
	cmmds_command_init(&a);
	cmmds_command_init(&b);
	p.name = "a";
	cmmds_put(&a, CMMDS_POLICY, "a", 1, 0, &p.base);
	p.name = "b";
	cmmds_put(&b, CMMDS_POLICY, "b", 1, CMMDS_ANY, &p.base);
	CHECK_EQ(apply_as(&d, &a, 2, 3, 1), 0);
	CHECK_EQ(apply_as(&d, &a, 2, 3, 2), -EEXIST);
	CHECK_EQ(apply_as(&d, &b, 2, 3, 3), 0);
	CHECK_EQ(apply_as(&d, &a, 2, 3, 1), 0);
	CHECK_EQ(d.revision, 1);
	CHECK_EQ(d.s.revision, 2);
	/* It would hold now, but was refused once: refused it stays. */
	CHECK_EQ(erase(&d, CMMDS_POLICY, "a", 1, CMMDS_ANY), 0);
	CHECK_EQ(apply_as(&d, &a, 2, 3, 2), -EEXIST);
	CHECK_EQ(image_of(&d.s, &image, &len), 0);
	state__init(&again.s);
	CHECK_EQ(snapshot__decode(&again.s, image, len), 0);
	again.index = d.index;
	CHECK_EQ(apply_as(&again, &a, 2, 3, 2), -EEXIST);
	CHECK_EQ(apply_as(&again, &a, 2, 3, 1), 0);
	CHECK_EQ(again.revision, 1);
	free(image);
	state__fini(&again.s);
	/* What came late does not make the window younger. */
	CHECK_EQ(apply_as(&d, &b, 2, 3, 300), 0);
	CHECK_EQ(apply_as(&d, &b, 2, 3, 290), 0);
	CHECK_EQ(apply_as(&d, &b, 2, 3, 40), -ESTALE);
	CHECK_EQ(apply_as(&d, &b, 2, 3, 45), 0);
	/* A new run counts from one. */
	CHECK_EQ(apply_as(&d, &b, 2, 4, 1), 0);
	CHECK_EQ(apply_as(&d, &b, 2, 4, 2), 0);
	cmmds_command_fini(&a);
	cmmds_command_fini(&b);
	state__fini(&d.s);
}

static int apply_client(struct dir *d, unsigned client)
{
	struct cmmds_command cmd = { 0 };
	struct state_result result;
	struct uuid who = { 0 };
	uint8_t *bytes;
	size_t len;

	put_be32(who.b, client);
	cmmds_command_init(&cmd);
	cmmds_expect(&cmd, CMMDS_POLICY, "none", 4, 0);
	cmd.message->client.data = cmmds__copy(who.b, sizeof(who));
	cmd.message->client.len = sizeof(who);
	cmd.message->incarnation = 1;
	cmd.message->sequence = ++d->sequence;
	CHECK_EQ(command__pack(&cmd, &bytes, &len), 0);
	CHECK_EQ(state__apply(&d->s, ++d->index, bytes, len, &result), 0);
	CHECK_EQ(result.status == 0, result.why[0] == '\0');
	free(bytes);
	cmmds_command_fini(&cmd);
	state__result_fini(&result);
	return result.status;
}

TEST(cmmds_limits, clients)
{
	struct dir d = { 0 };

	state__init(&d.s);
	for (unsigned i = 0; i < CMMDS_CLIENTS_MAX; i++)
		CHECK_EQ(apply_client(&d, i), 0);
	CHECK_EQ(apply_client(&d, CMMDS_CLIENTS_MAX), -EINVAL);
	CHECK_EQ(d.s.clients_count, CMMDS_CLIENTS_MAX);
	for (unsigned i = 0; i < CMMDS_CLIENTS_MAX; i += 100)
		CHECK_EQ(apply_client(&d, i), 0);
	CHECK_EQ(d.s.revision, 0); /* a look changes nothing */
	state__fini(&d.s);
}

/* ---- one command ---- */

TEST(cmmds_limits, one_change_of_an_entry)
{
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;
	Directory__Owner owner = DIRECTORY__OWNER__INIT;
	Directory__Policy p = DIRECTORY__POLICY__INIT;
	struct cmmds_command cmd = { 0 };
	struct uuid cid = id(10), host = id(1);
	struct dir d;
	struct mirror m;
	uint32_t before;

	begin(&d, &m, 2);
	cmmds_command_init(&cmd);
	p.name = "a";
	cmmds_put(&cmd, CMMDS_POLICY, "a", 1, CMMDS_ANY, &p.base);
	cmmds_put(&cmd, CMMDS_POLICY, "a", 1, CMMDS_ANY, &p.base);
	CHECK_EQ(apply(&d, &cmd), -EINVAL);
	CHECK_EQ(d.s.counts[CMMDS_POLICY], 0);
	owner.node = BYTES(host);
	owner.incarnation = 5;
	op.op = GRANT;
	op.oid = BYTES(m.oid);
	op.expect_csn = m.object.csn;
	op.owner = &owner;
	cmmds_put(&cmd, CMMDS_OBJECT, m.oid.b, 16, CMMDS_ANY, &m.object.base);
	cmmds_object_op(&cmd, &op);
	CHECK_EQ(apply(&d, &cmd), -EINVAL);
	before = object(&d, &m.oid)->oepoch;
	CHECK_EQ(op_owner(&d, GRANT, 1, 5), 0);
	/* An owner's epoch that is over fences, though csn is the same. */
	op.op = EXCLUDE;
	op.cid = BYTES(cid);
	op.owner = NULL;
	op.expect_oepoch = before;
	op.expect_csn = object(&d, &m.oid)->csn;
	cmmds_object_op(&cmd, &op);
	CHECK_EQ(apply(&d, &cmd), -EAGAIN);
	/* Two steps of one leaf at once. */
	op.expect_oepoch = object(&d, &m.oid)->oepoch;
	cmmds_object_op(&cmd, &op);
	op.op = SET_SYNC;
	cmmds_object_op(&cmd, &op);
	CHECK_EQ(apply(&d, &cmd), -EINVAL);
	CHECK_EQ(object(&d, &m.oid)->tree->children[0]->leaf->state,
		 DIRECTORY__LEAF__STATE__ACTIVE);
	cmmds_command_fini(&cmd);
	state__fini(&d.s);
}

TEST(cmmds_limits, an_expectation_changes_nothing)
{
	struct cmmds_command cmd = { 0 };
	struct dir d = { 0 };
	uint64_t hash;

	state__init(&d.s);
	CHECK_EQ(put_policy(&d, "a", 0), 0);
	hash = d.s.entries_hash;
	cmmds_command_init(&cmd);
	cmmds_expect(&cmd, CMMDS_POLICY, "a", 1, 1);
	cmmds_expect(&cmd, CMMDS_POLICY, "b", 1, 0);
	CHECK_EQ(apply(&d, &cmd), 0);
	CHECK_EQ(d.s.revision, 1);
	CHECK(d.s.entries_hash == hash);
	cmmds_expect(&cmd, CMMDS_POLICY, "a", 1, 2);
	CHECK_EQ(apply(&d, &cmd), -EAGAIN);
	cmmds_command_fini(&cmd);
	state__fini(&d.s);
}

/* What no builder of ours makes: a member's bytes are not trusted either. */
TEST(cmmds_limits, larger_than_a_builder_makes)
{
	Directory__Policy p = DIRECTORY__POLICY__INIT;
	struct cmmds_command cmd = { 0 };
	struct state_result result;
	Directory__Command *m;
	struct uuid who = id(1);
	struct dir d = { 0 };
	uint8_t *bytes;
	size_t len;

	state__init(&d.s);
	cmmds_command_init(&cmd);
	p.name = "a";
	cmmds_put(&cmd, CMMDS_POLICY, "a", 1, 0, &p.base);
	m = cmd.message;
	free(m->changes[0]->value.data);
	m->changes[0]->value.data = cmmds__alloc(CMMDS_VALUE_MAX + 1);
	m->changes[0]->value.len = CMMDS_VALUE_MAX + 1;
	CHECK_EQ(apply(&d, &cmd), -EMSGSIZE);
	cmmds_put(&cmd, CMMDS_POLICY, "a", 1, 0, &p.base);
	m = cmd.message;
	free(m->changes[0]->key.data);
	m->changes[0]->key.data = cmmds__alloc(CMMDS_KEY_MAX + 1);
	m->changes[0]->key.len = CMMDS_KEY_MAX + 1;
	CHECK_EQ(apply(&d, &cmd), -EMSGSIZE);
	/* One change too many, each sound. */
	for (unsigned i = 0; i < CMMDS_CHANGES_MAX; i++)
		cmmds_expect(&cmd, CMMDS_POLICY, "a", 1, 0);
	m = cmd.message;
	m->changes = realloc(m->changes, (m->n_changes + 1) * sizeof(void *));
	m->changes[m->n_changes] = cmmds__alloc(sizeof(Directory__Change));
	directory__change__init(m->changes[m->n_changes]);
	m->changes[m->n_changes]->kind = CMMDS_POLICY;
	m->changes[m->n_changes++]->any = true;
	CHECK_EQ(apply(&d, &cmd), -EMSGSIZE);
	cmmds_audit(&cmd, "admin", "what");
	free(cmd.message->audit->who);
	cmd.message->audit->who = cmmds__alloc(257);
	memset(cmd.message->audit->who, 'a', 256);
	CHECK_EQ(apply(&d, &cmd), -EINVAL);
	CHECK_EQ(d.s.counts[CMMDS_EVENT], 0);
	/* More bytes than a command may have; and a request without a number. */
	cmmds_put(&cmd, CMMDS_POLICY, "a", 1, 0, &p.base);
	m = cmd.message;
	m->client.data = cmmds__copy(who.b, sizeof(who));
	m->client.len = sizeof(who);
	m->incarnation = 1;
	for (int turn = 0; turn < 2; turn++) {
		m->sequence = turn == 0 ? 1000 : 0;
		CHECK_EQ(command__pack(&cmd, &bytes, &len), 0);
		if (turn == 0) { /* an unknown field of 1 MiB */
			static const uint8_t head[] = { 0x9a, 0x06, 0x80, 0x80,
							0x40 };

			bytes = realloc(bytes, len + sizeof(head) + (1 << 20));
			memcpy(bytes + len, head, sizeof(head));
			memset(bytes + len + sizeof(head), 0, 1 << 20);
			len += sizeof(head) + (1 << 20);
		}
		CHECK_EQ(state__apply(&d.s, ++d.index, bytes, len, &result), 0);
		CHECK_EQ(result.status, -EPROTO);
		state__result_fini(&result);
		free(bytes);
	}
	CHECK_EQ(d.s.counts[CMMDS_POLICY], 0);
	cmmds_command_fini(&cmd);
	state__fini(&d.s);
}

/* What was built wrongly stays so in the command that takes it over. */
TEST(cmmds_limits, taken_with_its_fault)
{
	struct cmmds_command from = { 0 }, to = { 0 };
	uint8_t *bytes, key[CMMDS_KEY_MAX + 1] = { 0 };
	size_t len;

	cmmds_command_init(&from);
	cmmds_command_init(&to);
	cmmds_expect(&from, CMMDS_POLICY, key, sizeof(key), 0);
	cmmds_command_take(&to, &from);
	CHECK_EQ(command__pack(&to, &bytes, &len), -EMSGSIZE);
	CHECK(to.why[0] != '\0');
	cmmds_command_fini(&from);
	cmmds_command_fini(&to);
}

/* ---- what stays, and what goes with what ---- */

TEST(cmmds_limits, what_is_never_erased)
{
	Directory__Cluster c = DIRECTORY__CLUSTER__INIT;
	struct cmmds_command cmd = { 0 };
	struct uuid u = id(3);
	struct dir d = { 0 };
	uint8_t key[8];

	state__init(&d.s);
	c.uuid = BYTES(u);
	c.name = "c";
	CHECK_EQ(put(&d, CMMDS_CLUSTER, "", 0, 0, &c), 0);
	CHECK_EQ(erase(&d, CMMDS_CLUSTER, "", 0, CMMDS_ANY), -EINVAL);
	cmmds_command_init(&cmd);
	cmmds_audit(&cmd, "admin", "what");
	CHECK_EQ(apply(&d, &cmd), 0);
	put_be64(key, 1);
	CHECK_EQ(erase(&d, CMMDS_EVENT, key, 8, CMMDS_ANY), -EINVAL);
	CHECK_EQ(d.s.counts[CMMDS_EVENT], 1);
	cmmds_command_fini(&cmd);
	state__fini(&d.s);
}

TEST(cmmds_limits, reservations_go_with_their_object)
{
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;
	Directory__Reservation r = DIRECTORY__RESERVATION__INIT;
	struct uuid other = id(98);
	struct dir d;
	struct mirror m;

	begin(&d, &m, 1);
	r.oid = BYTES(other);
	CHECK_EQ(put(&d, CMMDS_RESERVATION, other.b, 16, 0, &r), -EINVAL);
	r.oid = BYTES(m.oid);
	CHECK_EQ(put(&d, CMMDS_RESERVATION, m.oid.b, 16, 0, &r), 0);
	op.op = DIRECTORY__OBJECT_COMMAND__OP__DELETE;
	CHECK_EQ(op_apply(&d, &op), 0);
	CHECK_EQ(erase(&d, CMMDS_OBJECT, m.oid.b, 16, CMMDS_ANY), 0);
	CHECK_EQ(d.s.counts[CMMDS_RESERVATION], 0);
	state__fini(&d.s);
}

/* What dom admits fits into an entry, be the names as long as they can be. */
TEST(cmmds_limits, registrations_fit)
{
	Directory__Reservation r = DIRECTORY__RESERVATION__INIT;
	Directory__Registration reg = DIRECTORY__REGISTRATION__INIT;
	Directory__Registration *all[DOM_REGISTRATIONS_MAX];
	char port[256] = { 0 };
	struct dir d;
	struct mirror m;

	begin(&d, &m, 1);
	memset(port, 'p', sizeof(port) - 1);
	reg.initiator_port = port;
	reg.target_port = UINT32_MAX;
	reg.key = UINT64_MAX;
	reg.all_target_ports = true;
	for (unsigned i = 0; i < DOM_REGISTRATIONS_MAX; i++)
		all[i] = &reg;
	r.oid = BYTES(m.oid);
	r.registrations = all;
	r.n_registrations = DOM_REGISTRATIONS_MAX;
	CHECK_EQ(put(&d, CMMDS_RESERVATION, m.oid.b, 16, 0, &r), 0);
	state__fini(&d.s);
}

/* An object under a virtual disk is neither deleted nor made too small. */
TEST(cmmds_limits, an_object_in_use)
{
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;
	Directory__VDisk v = DIRECTORY__VDISK__INIT;
	Directory__Target t = DIRECTORY__TARGET__INIT;
	Directory__Object put_deleted;
	struct dir d;
	struct mirror m;

	begin(&d, &m, 1);
	v.name = "v";
	v.oid = BYTES(m.oid);
	v.block_bytes = 512;
	v.size_bytes = (1 << 20) + 512;
	CHECK_EQ(put(&d, CMMDS_VDISK, "v", 1, 0, &v), -EINVAL);
	v.size_bytes = 1 << 20;
	CHECK_EQ(put(&d, CMMDS_VDISK, "v", 1, 0, &v), 0);
	op.op = DIRECTORY__OBJECT_COMMAND__OP__DELETE;
	CHECK_EQ(op_apply(&d, &op), -EINVAL);
	CHECK(!object(&d, &m.oid)->deleted);
	op.op = DIRECTORY__OBJECT_COMMAND__OP__RESIZE;
	op.tree = &m.root;
	op.size_bytes = (1 << 20) - 4096;
	CHECK_EQ(op_apply(&d, &op), -EINVAL);
	put_deleted = m.object;
	put_deleted.csn = object(&d, &m.oid)->csn;
	put_deleted.deleted = true;
	CHECK_EQ(put(&d, CMMDS_OBJECT, m.oid.b, 16, CMMDS_ANY, &put_deleted),
		 -EINVAL);
	CHECK_EQ(erase(&d, CMMDS_VDISK, "v", 1, CMMDS_ANY), 0);
	CHECK_EQ(put(&d, CMMDS_OBJECT, m.oid.b, 16, CMMDS_ANY, &put_deleted),
		 -EINVAL);
	/* Nor is its tree changed by a put. */
	put_deleted.deleted = false;
	m.leaf[0].disk = BYTES(m.disk[1]);
	m.disk[1] = id(77);
	CHECK_EQ(put(&d, CMMDS_OBJECT, m.oid.b, 16, CMMDS_ANY, &put_deleted),
		 -EINVAL);
	m.leaf[0].disk = BYTES(m.disk[0]);
	CHECK_EQ(put(&d, CMMDS_OBJECT, m.oid.b, 16, CMMDS_ANY, &put_deleted),
		 0);
	CHECK_EQ(op_apply(&d, &op), 0);
	op.op = DIRECTORY__OBJECT_COMMAND__OP__DELETE;
	op.tree = NULL;
	CHECK_EQ(op_apply(&d, &op), 0);
	v.size_bytes = 1 << 19;
	CHECK_EQ(put(&d, CMMDS_VDISK, "v", 1, 0, &v), -EINVAL);
	/* One iSCSI name, one target. */
	t.name = "t";
	t.iqn = "iqn.2026-11.internal.basalt:t";
	CHECK_EQ(put(&d, CMMDS_TARGET, "t", 1, 0, &t), 0);
	t.name = "u";
	CHECK_EQ(put(&d, CMMDS_TARGET, "u", 1, 0, &t), -EINVAL);
	state__fini(&d.s);
}

/* ---- objects ---- */

TEST(cmmds_limits, the_last_epoch)
{
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;
	struct dir d;
	struct mirror m;

	begin(&d, &m, 1);
	op.op = DIRECTORY__OBJECT_COMMAND__OP__ACCEPT;
	op.oepoch = 0xfffffe;
	op.csn = 100;
	CHECK_EQ(op_apply(&d, &op), 0);
	CHECK_EQ(op_owner(&d, GRANT, 1, 5), 0);
	CHECK_EQ(object(&d, &m.oid)->oepoch, 0xffffff); /* 24 bits of an lsn */
	CHECK_EQ(op_owner(&d, RELEASE, 1, 5), 0);
	CHECK_EQ(op_owner(&d, GRANT, 1, 5), -EINVAL);
	CHECK_EQ(object(&d, &m.oid)->oepoch, 0xffffff);
	state__fini(&d.s);
}

TEST(cmmds_limits, who_releases_and_what_is_active)
{
	struct dir d;
	struct mirror m;

	begin(&d, &m, 2);
	CHECK_EQ(put_node(&d, 2, 5, 1), -EINVAL); /* it was in run 8 */
	CHECK_EQ(put_node(&d, 3, 5, 1), 0);
	CHECK_EQ(op_owner(&d, GRANT, 1, 5), 0);
	CHECK_EQ(op_owner(&d, RELEASE, 3, 5), -EINVAL);
	CHECK_EQ(op_owner(&d, RELEASE, 1, 4), -EINVAL);
	/* A component nobody made holds nothing, whatever was copied. */
	CHECK_EQ(op_leaf(&d, EXCLUDE, 10, 0), 0);
	CHECK_EQ(op_leaf(&d, SET_SYNC, 10, 0), 0);
	CHECK_EQ(op_leaf(&d, SET_ACTIVE, 10, 0), -EINVAL);
	CHECK_EQ(op_leaf(&d, CREATED, 10, 0), 0);
	CHECK_EQ(op_leaf(&d, SET_ACTIVE, 10, 0), 0);
	CHECK_EQ(op_owner(&d, RELEASE, 1, 5), 0);
	state__fini(&d.s);
}

/* What stays, but the last part, keeps its size: bytes lie where they did. */
TEST(cmmds_limits, parts_of_a_larger_object)
{
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;
	Directory__TreeNode root = DIRECTORY__TREE_NODE__INIT, *parts[3];
	struct mirror m, more[2];
	struct dir d;

	begin(&d, &m, 1);
	root.type = DIRECTORY__TREE_NODE__TYPE__CONCAT;
	root.children = parts;
	parts[0] = &m.root;
	for (unsigned i = 0; i < 2; i++) {
		memset(&more[i], 0, sizeof(more[i]));
		mirror_init(&more[i], 1);
		parts[1 + i] = &more[i].root;
	}
	root.n_children = 2;
	root.size_bytes = op.size_bytes = 2 << 20;
	op.op = DIRECTORY__OBJECT_COMMAND__OP__RESIZE;
	op.tree = &root;
	more[0].cid[0] = id(11);
	CHECK_EQ(op_apply(&d, &op), 0);
	more[0].leaf[0].member_csn = object(&d, &m.oid)->csn;
	more[1].cid[0] = id(12);
	root.n_children = 3;
	root.size_bytes = op.size_bytes = 2 << 20;
	m.root.size_bytes = m.node[0].size_bytes = 1 << 19;
	CHECK_EQ(op_apply(&d, &op), -EINVAL);
	m.root.size_bytes = m.node[0].size_bytes = 1 << 20;
	CHECK_EQ(op_apply(&d, &op), 0);
	state__fini(&d.s);
}

TEST(cmmds_limits, full_copies)
{
	static const struct {
		Directory__TreeNode__Type type;
		unsigned may_lack; /* of four */
	} cases[] = {
		{ DIRECTORY__TREE_NODE__TYPE__CONCAT, 0 },
		{ DIRECTORY__TREE_NODE__TYPE__RAID0, 0 },
		{ DIRECTORY__TREE_NODE__TYPE__RAID5, 1 },
		{ DIRECTORY__TREE_NODE__TYPE__RAID6, 2 },
		{ DIRECTORY__TREE_NODE__TYPE__RAID1, 3 },
	};
	struct mirror m;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		memset(&m, 0, sizeof(m));
		mirror_init(&m, 4);
		m.root.type = cases[i].type;
		for (unsigned lack = 0; lack <= 4; lack++) {
			CHECK_EQ(rules__tree_full(&m.root),
				 lack <= cases[i].may_lack);
			if (lack < 4)
				m.leaf[lack].state =
					DIRECTORY__LEAF__STATE__STALE;
		}
	}
}

TEST(cmmds_limits, trees_that_cannot_be)
{
	char why[128];
	struct mirror m = { 0 };
	uint64_t csn;

	mirror_init(&m, 4);
	CHECK_EQ(rules__tree(&m.root, why), 0);
	m.leaf[3].cid = m.leaf[0].cid;
	CHECK_EQ(rules__tree(&m.root, why), -EINVAL);
	m.leaf[3].cid = BYTES(m.cid[3]);
	/* A mirror holds what one leg does; parity holds no data. */
	m.root.size_bytes = 2 << 20;
	CHECK_EQ(rules__tree(&m.root, why), -EINVAL);
	m.root.stripe_unit_bytes = 4096;
	for (unsigned parity = 1; parity <= 2; parity++) {
		m.root.type = parity == 1 ? DIRECTORY__TREE_NODE__TYPE__RAID5
					  : DIRECTORY__TREE_NODE__TYPE__RAID6;
		m.root.size_bytes = (4 - parity) << 20;
		CHECK_EQ(rules__tree(&m.root, why), 0);
		m.root.size_bytes += 4096;
		CHECK_EQ(rules__tree(&m.root, why), -EINVAL);
	}
	/* A new object's components know of no change it has not seen. */
	mirror_init(&m, 2);
	csn = m.object.csn;
	m.leaf[1].member_csn = csn;
	CHECK_EQ(rules__object_put(NULL, &m.object, why), 0);
	m.leaf[1].member_csn = csn + 1;
	CHECK_EQ(rules__object_put(NULL, &m.object, why), -EINVAL);
}

/* ---- images ---- */

/* A whole image, its checksum right, with @change made to what it says. */
enum image_change {
	IMAGE_SOUND,
	IMAGE_VERSION,
	IMAGE_FEATURES,
	IMAGE_REVISION,
	IMAGE_TWICE,
	IMAGE_CLIENT,
	IMAGE_SEQUENCE,
	IMAGE_CHANGES,
};

static int image_try(struct dir *d, enum image_change change)
{
	struct cmmds_state state;
	Directory__Snapshot *snap;
	uint8_t *image, *made;
	size_t len;
	int rv;

	CHECK_EQ(image_of(&d->s, &image, &len), 0);
	snap = directory__snapshot__unpack(NULL, len - 28, image + 28);
	CHECK(snap != NULL && snap->n_entries == 2 && snap->n_clients > 0);
	if (change == IMAGE_VERSION)
		snap->version++;
	else if (change == IMAGE_REVISION)
		snap->entries[0]->revision = snap->revision + 1;
	else if (change == IMAGE_TWICE)
		snap->entries[1]->key.data[0] = snap->entries[0]->key.data[0];
	else if (change == IMAGE_CLIENT)
		snap->clients[0]->client.len--;
	else if (change == IMAGE_SEQUENCE)
		snap->clients[0]->sequence = 0;
	len = directory__snapshot__get_packed_size(snap);
	made = cmmds__alloc(28 + len);
	directory__snapshot__pack(snap, made + 28);
	memcpy(made, image, 24);
	if (change == IMAGE_FEATURES)
		made[12] = 1;
	put_le64(made + 16, len);
	put_le32(made + 24, crc32c_more(crc32c(made, 24), made + 28, len));
	state__init(&state);
	rv = snapshot__decode(&state, made, 28 + len);
	state__fini(&state);
	directory__snapshot__free_unpacked(snap, NULL);
	free(image);
	free(made);
	return rv;
}

TEST(cmmds_limits, images_that_cannot_be)
{
	struct dir d = { 0 };

	state__init(&d.s);
	CHECK_EQ(put_policy(&d, "a", 0), 0);
	CHECK_EQ(put_policy(&d, "b", 0), 0);
	for (int change = IMAGE_SOUND; change < IMAGE_CHANGES; change++)
		CHECK_EQ(image_try(&d, change), change == IMAGE_SOUND ? 0
						: change <= IMAGE_FEATURES
							? -EMEDIUMTYPE
							: -EUCLEAN);
	state__fini(&d.s);
}
