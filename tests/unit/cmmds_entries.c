/* What an entry of each kind may hold: a good one, and every way to spoil it. */
#include "cmmds/cmmds_int.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static uint8_t one[16] = { 1 }, two[16] = { 2 };
static char long_text[1100];

#define ID(b) ((ProtobufCBinaryData){ 16, b })

static int check(enum cmmds_kind kind, const void *key, size_t len,
		 const void *old, const void *m)
{
	char why[128] = "";
	int rv = rules__entry(kind, key, len, old, m, why);

	CHECK(rv == 0 || rv == -EINVAL);
	CHECK((rv == 0) == (why[0] == '\0'));
	return rv;
}

/* @change spoils a copy of @good. */
#define BAD(kind, key, len, good, ...)                                         \
	do {                                                                   \
		__typeof__(good) m = good;                                     \
		__VA_ARGS__;                                                   \
		CHECK_EQ(check(kind, key, len, NULL, &m), -EINVAL);            \
	} while (0)

TEST(cmmds_entries, cluster_and_node)
{
	Directory__Portal portal = DIRECTORY__PORTAL__INIT;
	Directory__Portal *portals[65] = { &portal };
	Directory__Cluster c = DIRECTORY__CLUSTER__INIT, c2;
	Directory__Node n = DIRECTORY__NODE__INIT, n2;

	c.uuid = ID(one);
	c.name = "c";
	c.feature_level = 2;
	CHECK_EQ(check(CMMDS_CLUSTER, "", 0, NULL, &c), 0);
	BAD(CMMDS_CLUSTER, "x", 1, c, (void)0);
	BAD(CMMDS_CLUSTER, "", 0, c, m.uuid.len = 15);
	BAD(CMMDS_CLUSTER, "", 0, c, m.name = "");
	BAD(CMMDS_CLUSTER, "", 0, c, m.name = "-c");
	BAD(CMMDS_CLUSTER, "", 0, c, m.name = long_text);
	c2 = c;
	c2.uuid = ID(two);
	CHECK_EQ(check(CMMDS_CLUSTER, "", 0, &c, &c2), -EINVAL);
	c2 = c;
	c2.feature_level = 1;
	CHECK_EQ(check(CMMDS_CLUSTER, "", 0, &c, &c2), -EINVAL);

	n.uuid = ID(one);
	n.name = "n";
	n.address = "a";
	n.incarnation = 5;
	CHECK_EQ(check(CMMDS_NODE, one, 16, NULL, &n), 0);
	BAD(CMMDS_NODE, two, 16, n, (void)0);
	BAD(CMMDS_NODE, one, 15, n, (void)0);
	BAD(CMMDS_NODE, one, 16, n, m.name = "a\nb");
	BAD(CMMDS_NODE, one, 16, n, m.address = long_text);
	portal.address = "a";
	n.portals = portals;
	n.n_portals = 1;
	CHECK_EQ(check(CMMDS_NODE, one, 16, NULL, &n), 0);
	BAD(CMMDS_NODE, one, 16, n, m.n_portals = 65);
	portal.transport = 3;
	BAD(CMMDS_NODE, one, 16, n, (void)0);
	portal.transport = DIRECTORY__PORTAL__TRANSPORT__TCP;
	portal.address = "";
	BAD(CMMDS_NODE, one, 16, n, (void)0);
	portal.address = "a";
	n2 = n;
	n2.incarnation = 4;
	CHECK_EQ(check(CMMDS_NODE, one, 16, &n, &n2), -EINVAL);
}

TEST(cmmds_entries, disk_policy_vdisk)
{
	Directory__Disk d = DIRECTORY__DISK__INIT;
	Directory__Policy p = DIRECTORY__POLICY__INIT;
	Directory__VDisk v = DIRECTORY__VDISK__INIT;

	d.uuid = d.node = ID(one);
	d.path = "/d";
	d.raw_bytes = 10;
	CHECK_EQ(check(CMMDS_DISK, one, 16, NULL, &d), 0);
	BAD(CMMDS_DISK, two, 16, d, (void)0);
	BAD(CMMDS_DISK, one, 16, d, m.node.len = 3);
	BAD(CMMDS_DISK, one, 16, d, m.path = "");
	BAD(CMMDS_DISK, one, 16, d, m.path = "/\x7f");
	BAD(CMMDS_DISK, one, 16, d, m.serial = long_text);
	BAD(CMMDS_DISK, one, 16, d, m.model = "\t");
	BAD(CMMDS_DISK, one, 16, d, m.usable_bytes = 11);

	p.name = "p";
	CHECK_EQ(check(CMMDS_POLICY, "p", 1, NULL, &p), 0);
	BAD(CMMDS_POLICY, "q", 1, p, (void)0);
	BAD(CMMDS_POLICY, "p", 1, p, m.failures_to_tolerate = 4);
	BAD(CMMDS_POLICY, "p", 1, p, m.method = 3);
	BAD(CMMDS_POLICY, "p", 1, p, m.stripe_width = 65);
	BAD(CMMDS_POLICY, "p", 1, p, m.reserve_percent = 101);

	v.name = "v";
	v.oid = ID(one);
	v.block_bytes = 512;
	v.size_bytes = 1024;
	CHECK_EQ(check(CMMDS_VDISK, "v", 1, NULL, &v), 0);
	BAD(CMMDS_VDISK, "v", 1, v, m.oid.len = 0);
	BAD(CMMDS_VDISK, "v", 1, v, m.block_bytes = 1024);
	BAD(CMMDS_VDISK, "v", 1, v, m.size_bytes = 0);
	BAD(CMMDS_VDISK, "v", 1, v, m.size_bytes = 1023);
	BAD(CMMDS_VDISK, "v", 1, v, m.name = "v v");
}

TEST(cmmds_entries, target_and_lun)
{
	Directory__Target t = DIRECTORY__TARGET__INIT;
	Directory__Lun l = DIRECTORY__LUN__INIT;
	char *allow[1100];

	for (unsigned i = 0; i < 1100; i++)
		allow[i] = "iqn.a";
	t.name = "t";
	t.iqn = "iqn.2026-11.x:t";
	t.allow = allow;
	t.n_allow = 2;
	t.chap_user = t.mutual_user = "u";
	t.chap_secret_sealed = t.mutual_secret_sealed = ID(one);
	CHECK_EQ(check(CMMDS_TARGET, "t", 1, NULL, &t), 0);
	BAD(CMMDS_TARGET, "t", 1, t, m.name = "s");
	BAD(CMMDS_TARGET, "t", 1, t, m.iqn = "");
	BAD(CMMDS_TARGET, "t", 1, t, m.iqn = "iqn. x");
	BAD(CMMDS_TARGET, "t", 1, t, m.iqn = "IQN.x");
	BAD(CMMDS_TARGET, "t", 1, t, m.iqn = long_text);
	BAD(CMMDS_TARGET, "t", 1, t, m.n_allow = 1100);
	allow[1] = "";
	BAD(CMMDS_TARGET, "t", 1, t, (void)0);
	allow[1] = "any";
	BAD(CMMDS_TARGET, "t", 1, t, m.chap_user = long_text);
	BAD(CMMDS_TARGET, "t", 1, t, m.chap_user = "");
	BAD(CMMDS_TARGET, "t", 1, t, m.chap_secret_sealed.len = 0);
	BAD(CMMDS_TARGET, "t", 1, t, m.mutual_secret_sealed.len = 0);
	BAD(CMMDS_TARGET, "t", 1, t, m.mutual_secret_sealed.len = 1025);
	BAD(CMMDS_TARGET, "t", 1, t, m.chap_user = "";
	    m.chap_secret_sealed.len = 0);
	BAD(CMMDS_TARGET, "t", 1, t, m.tpgt = 65536);

	l.target = "t";
	l.vdisk = "v";
	l.lun = 258;
	l.lun = 2;
	CHECK_EQ(check(CMMDS_LUN, "t\0\0\2", 4, NULL, &l), 0);
	BAD(CMMDS_LUN, "t\0\0\3", 4, l, (void)0);
	BAD(CMMDS_LUN, "t\0\0\2", 3, l, (void)0);
	BAD(CMMDS_LUN, "u\0\0\2", 4, l, (void)0);
	BAD(CMMDS_LUN, "t\0\0\2", 4, l, m.lun = 1u << 20);
	BAD(CMMDS_LUN, "t\0\0\2", 4, l, m.vdisk = "");
}

TEST(cmmds_entries, reservation_and_task)
{
	Directory__Reservation r = DIRECTORY__RESERVATION__INIT;
	Directory__Registration reg = DIRECTORY__REGISTRATION__INIT,
				*list[4096];
	Directory__Task t = DIRECTORY__TASK__INIT;

	for (unsigned i = 0; i < 4096; i++)
		list[i] = &reg;
	reg.initiator_port = "iqn.a,i,0x1";
	reg.key = 7;
	r.oid = ID(one);
	r.registrations = list;
	r.n_registrations = 2;
	r.held = true;
	r.holder = 1;
	r.type = 8;
	CHECK_EQ(check(CMMDS_RESERVATION, one, 16, NULL, &r), 0);
	BAD(CMMDS_RESERVATION, two, 16, r, (void)0);
	BAD(CMMDS_RESERVATION, one, 16, r, m.n_registrations = 4096);
	BAD(CMMDS_RESERVATION, one, 16, r, m.holder = 2);
	BAD(CMMDS_RESERVATION, one, 16, r, m.type = 9);
	BAD(CMMDS_RESERVATION, one, 16, r, m.spc2_holder = long_text);
	reg.key = 0;
	BAD(CMMDS_RESERVATION, one, 16, r, (void)0);

	t.uuid = ID(one);
	t.verb = "disk-remove";
	CHECK_EQ(check(CMMDS_TASK, one, 16, NULL, &t), 0);
	BAD(CMMDS_TASK, two, 16, t, (void)0);
	BAD(CMMDS_TASK, one, 16, t, m.verb = "");
	BAD(CMMDS_TASK, one, 16, t, m.subject = long_text);
	BAD(CMMDS_TASK, one, 16, t, m.note = "\n");
	BAD(CMMDS_TASK, one, 16, t, m.percent = 101);
	BAD(CMMDS_TASK, one, 16, t, m.node.len = 5);
	BAD(CMMDS_TASK, one, 16, t, m.node.len = 5);
	CHECK_EQ(check(CMMDS_EVENT, one, 16, NULL, &t), -EINVAL);
	CHECK_EQ(check(99, one, 16, NULL, &t), -EINVAL);
}

/* Nesting is bounded before protobuf-c recurses into it. */
TEST(cmmds_entries, depth)
{
	uint8_t bytes[512];
	size_t len = 0;

	/* Children in children: tag 2, length-delimited, from inside out. */
	for (unsigned depth = 1; depth < 60; depth++) {
		bool ok = rules__depth_ok(&directory__tree_node__descriptor,
					  bytes, len);

		CHECK_EQ(ok, depth <= RULES_DEPTH_MAX);
		memmove(bytes + 2, bytes, len);
		bytes[0] = 2 << 3 | 2;
		bytes[1] = (uint8_t)len;
		len += 2;
		if (len > 120)
			break;
	}
	/* Cut off, field 0, an unknown wire type, a varint without an end. */
	CHECK(!rules__depth_ok(&directory__tree_node__descriptor, "\x12\x05",
			       2));
	CHECK(!rules__depth_ok(&directory__tree_node__descriptor, "\x85\0abcd",
			       6));
	CHECK(!rules__depth_ok(&directory__tree_node__descriptor, "\x13", 1));
	CHECK(!rules__depth_ok(&directory__tree_node__descriptor, "\x08\xff",
			       2));
	CHECK(rules__depth_ok(&directory__tree_node__descriptor,
			      "\x09"
			      "12345678",
			      9));
	CHECK(rules__depth_ok(&directory__tree_node__descriptor,
			      "\x0d"
			      "1234",
			      5));
}

__attribute__((constructor)) static void fill(void)
{
	memset(long_text, 'a', sizeof(long_text) - 1);
}
