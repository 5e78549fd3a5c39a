/* PERSISTENT RESERVE IN and OUT, RESERVE and RELEASE: what is parsed and told. */
#include "base/util.h"
#include "iscsi/scsi_int.h"
#include "tests/lib/scsi_rig.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>

#define GOOD 0u
#define CONFLICT RIG_STATUS(SCSI_RESERVATION_CONFLICT)
#define KEY0 0x1111222233334444ull
#define KEY1 0x5555666677778888ull

enum { REGISTER, RESERVE, RELEASE, CLEAR, PREEMPT, ABORT, IGNORE, MOVE };

static unsigned pr_list(struct rig *r, unsigned n, unsigned sa, unsigned type,
			const uint8_t *list, size_t len)
{
	uint8_t cdb[16] = { 0x5f, (uint8_t)sa, (uint8_t)type };

	put_be32(cdb + 5, (uint32_t)len);
	return rig_do(r, n, cdb, list, len, NULL, 0);
}

static unsigned pr(struct rig *r, unsigned n, unsigned sa, unsigned type,
		   uint64_t key, uint64_t sa_key)
{
	uint8_t list[24] = { 0 };

	put_be64(list, key);
	put_be64(list + 8, sa_key);
	return pr_list(r, n, sa, type, list, 24);
}

static void pr_in(struct rig *r, unsigned sa, uint8_t *d, uint16_t alloc)
{
	uint8_t cdb[16] = { 0x5e, (uint8_t)sa };

	put_be16(cdb + 7, alloc);
	CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, d, alloc), GOOD);
}

/* Who may do what under each type, registered or not. */
TEST(scsi_reserve, access)
{
	static const struct {
		uint8_t type;
		bool reg_read, reg_write, read, write;
	} t[] = {
		{ 1, true, false, true, false },
		{ 3, false, false, false, false },
		{ 5, true, true, true, false },
		{ 6, true, true, false, false },
		{ 7, true, true, true, false },
		{ 8, true, true, false, false },
	};
	struct rig *r = rig_open(512);
	uint8_t d[64];

	for (unsigned i = 0; i < ARRAY_LEN(t); i++) {
		CHECK_EQ(pr(r, 0, IGNORE, 0, 0, KEY0), GOOD);
		CHECK_EQ(pr(r, 1, REGISTER, 0, 0, KEY1), GOOD);
		CHECK_EQ(pr(r, 0, RESERVE, t[i].type, KEY0, 0), GOOD);
		pr_in(r, 1, d, 64);
		CHECK_EQ(rig_got, 24);
		CHECK_EQ(d[21], t[i].type);
		CHECK_EQ(get_be64(d + 8), t[i].type >= 7 ? 0 : KEY0);
		CHECK_EQ(rig_write(r, 0, 0, 1, 7), GOOD);
		CHECK_EQ(rig_read(r, 1, 0, 1, 7),
			 t[i].reg_read ? GOOD : CONFLICT);
		CHECK_EQ(rig_write(r, 1, 0, 1, 7),
			 t[i].reg_write ? GOOD : CONFLICT);
		CHECK_EQ(pr(r, 1, REGISTER, 0, KEY1, 0), GOOD);
		CHECK_EQ(rig_read(r, 1, 0, 1, 7), t[i].read ? GOOD : CONFLICT);
		CHECK_EQ(rig_write(r, 1, 0, 1, 7),
			 t[i].write ? GOOD : CONFLICT);
		CHECK_EQ(rig_tur(r, 1), GOOD);
		/* START STOP UNIT: START; STOP; to a power condition */
		CHECK_EQ(rig_do(r, 1, CDB(0x1b, 0, 0, 0, 0x01), NULL, 0, NULL,
				0),
			 GOOD);
		CHECK_EQ(rig_do(r, 1, CDB(0x1b, 0, 0, 0, 0x00), NULL, 0, NULL,
				0),
			 CONFLICT);
		CHECK_EQ(rig_do(r, 1, CDB(0x1b, 0, 0, 0, 0x11), NULL, 0, NULL,
				0),
			 CONFLICT);
		CHECK_EQ(rig_do(r, 1, CDB(0x42), NULL, 0, NULL, 0), CONFLICT);
		/* What is supported is told to who may read; ports to all. */
		CHECK_EQ(rig_do(r, 1, CDB(0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 0, 64),
				NULL, 0, d, 64),
			 t[i].read ? GOOD : CONFLICT);
		CHECK_EQ(rig_do(r, 1, CDB(0xa3, 0x0d, 0, 0, 0, 0, 0, 0, 0, 4),
				NULL, 0, d, 4),
			 t[i].read ? GOOD : CONFLICT);
		CHECK_EQ(rig_do(r, 1, CDB(0x37, 0, 0, 0, 0, 0, 0, 0, 8), NULL,
				0, d, 8),
			 t[i].read ? GOOD : CONFLICT);
		CHECK_EQ(rig_do(r, 1, CDB(0xb7, 0, 0, 0, 0, 0, 0, 0, 0, 8),
				NULL, 0, d, 8),
			 t[i].read ? GOOD : CONFLICT);
		CHECK_EQ(rig_do(r, 1, CDB(0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 64),
				NULL, 0, d, 64),
			 GOOD);
		CHECK_EQ(pr(r, 0, RELEASE, t[i].type, KEY0, 0), GOOD);
		CHECK_EQ(pr(r, 0, REGISTER, 0, KEY0, 0), GOOD);
	}
	rig_close(r);
}

TEST(scsi_reserve, keys_and_status)
{
	struct rig *r = rig_open(512);
	uint8_t d[512], *second;
	uint32_t generation;

	CHECK_EQ(pr(r, 0, REGISTER, 0, KEY0, KEY0), CONFLICT);
	CHECK_EQ(pr(r, 0, REGISTER, 0, 0, KEY0), GOOD);
	CHECK_EQ(pr(r, 1, REGISTER, 0, 0, KEY1), GOOD);
	pr_in(r, 0, d, 512);
	CHECK_EQ(rig_got, 24);
	generation = get_be32(d);
	CHECK_EQ(get_be32(d + 4), 16);
	CHECK_EQ(get_be64(d + 16), KEY1);
	pr_in(r, 0, d, 10); /* the length is the full one, cut or not */
	CHECK_EQ(rig_got, 10);
	CHECK_EQ(get_be32(d + 4), 16);
	CHECK_EQ(pr(r, 0, RESERVE, 5, KEY0, 0), GOOD);
	CHECK_EQ(pr(r, 1, RESERVE, 5, KEY1, 0), CONFLICT);
	CHECK_EQ(pr(r, 0, RELEASE, 6, KEY0, 0), RIG_SENSE(5, 0x26, 4));
	pr_in(r, 3, d, 512);
	CHECK_EQ(get_be32(d), generation);
	CHECK_EQ(get_be32(d + 4) + 8, rig_got);
	CHECK_EQ(d[8 + 12], 1);
	CHECK_EQ(d[8 + 13], 5);
	CHECK_EQ(d[8 + 24], 0x45);
	CHECK_STR((char *)d + 8 + 28, r->nexus[0].dom.initiator_port);
	second = d + 8 + 24 + get_be32(d + 8 + 20); /* who holds nothing */
	CHECK_EQ(get_be64(second), KEY1);
	CHECK_EQ(get_be16(second + 12), 0);
	CHECK_EQ(get_be16(d + 8 + 18), 1); /* by which port */
	CHECK_EQ(get_be16(second + 18), 2);
	pr_in(r, 2, d, 8);
	CHECK_EQ(get_be16(d), 8);
	CHECK_EQ(d[2], 0x0d); /* SPEC_I_PT, ALL_TG_PT, kept over a restart */
	CHECK_EQ(d[3], 0x80);
	CHECK_EQ(get_be16(d + 4), 0xea01); /* all six types */
	/* RESERVE of old meets registrations. */
	CHECK_EQ(rig_do(r, 0, CDB(0x16), NULL, 0, NULL, 0), CONFLICT);
	CHECK_EQ(pr(r, 0, CLEAR, 0, KEY0, 0), GOOD);
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x2a, 3));
	pr_in(r, 0, d, 512);
	CHECK_EQ(get_be32(d), generation + 1);
	CHECK_EQ(rig_got, 8);
	rig_close(r);
}

/* PREEMPT AND ABORT ends the victim's tasks before it is answered. */
TEST(scsi_reserve, preempt_and_abort)
{
	static const uint8_t data[512] = { 0x3c };
	struct rig *r = rig_open(512);
	struct rig_cmd victim, own;

	CHECK_EQ(pr(r, 0, REGISTER, 0, 0, KEY0), GOOD);
	CHECK_EQ(pr(r, 1, REGISTER, 0, 0, KEY1), GOOD);
	CHECK_EQ(pr(r, 1, RESERVE, 5, KEY1, 0), GOOD);
	rig_begin(r, &victim, 1, CDB(0x2a, 0, 0, 0, 0, 0, 0, 0, 1), data, 512,
		  0, SCSI_SIMPLE, true);
	rig_begin(r, &own, 0, CDB(0x2a, 0, 0, 0, 0, 0, 0, 0, 1), data, 512, 0,
		  SCSI_SIMPLE, true);
	CHECK_EQ(pr(r, 0, ABORT, 6, KEY0, KEY1), GOOD);
	CHECK(victim.done);
	CHECK_EQ(victim.answer, RIG_STATUS(SCSI_TASK_ABORTED));
	CHECK(!own.done);
	rig_execute(&own, data, 512);
	CHECK(memenv_run(&r->me, &own.done));
	CHECK_EQ(own.answer, GOOD);
	rig_end(&own);
	rig_end(&victim);
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x2a, 5));
	CHECK_EQ(rig_write(r, 1, 0, 1, 1), CONFLICT);
	CHECK_EQ(pr(r, 0, PREEMPT, 6, KEY0, 0), RIG_SENSE(5, 0x26, 0));
	CHECK_EQ(pr(r, 0, PREEMPT, 6, KEY0, 99), CONFLICT);
	/* Who has the key, too, is none of its victims. */
	CHECK_EQ(pr(r, 1, REGISTER, 0, 0, KEY0), GOOD);
	rig_begin(r, &victim, 1, CDB(0x2a, 0, 0, 0, 0, 0, 0, 0, 1), data, 512,
		  0, SCSI_SIMPLE, true);
	rig_begin(r, &own, 0, CDB(0x2a, 0, 0, 0, 0, 0, 0, 0, 1), data, 512, 0,
		  SCSI_SIMPLE, true);
	CHECK_EQ(pr(r, 0, ABORT, 6, KEY0, KEY0), GOOD);
	CHECK_EQ(victim.answer, RIG_STATUS(SCSI_TASK_ABORTED));
	CHECK(!own.done);
	rig_execute(&own, data, 512);
	CHECK(memenv_run(&r->me, &own.done));
	CHECK_EQ(own.answer, GOOD);
	rig_end(&own);
	rig_end(&victim);
	rig_close(r);
}

/* Of a reservation that all hold: the key of nobody stands for all others. */
TEST(scsi_reserve, preempt_and_abort_of_all)
{
	static const uint8_t data[512] = { 0x3c };
	struct rig *r = rig_open(512);
	struct rig_cmd victim;

	CHECK_EQ(pr(r, 0, REGISTER, 0, 0, KEY0), GOOD);
	CHECK_EQ(pr(r, 1, REGISTER, 0, 0, KEY1), GOOD);
	CHECK_EQ(pr(r, 1, RESERVE, 7, KEY1, 0), GOOD);
	rig_begin(r, &victim, 1, CDB(0x2a, 0, 0, 0, 0, 0, 0, 0, 1), data, 512,
		  0, SCSI_SIMPLE, true);
	CHECK_EQ(pr(r, 0, ABORT, 7, KEY0, 0), GOOD);
	CHECK(victim.done);
	CHECK_EQ(victim.answer, RIG_STATUS(SCSI_TASK_ABORTED));
	rig_end(&victim);
	rig_close(r);
}

/* TransportIDs: SPEC_I_PT and REGISTER AND MOVE, whole and broken. */
TEST(scsi_reserve, transport_ids)
{
	static const char port[] = "iqn.2026-11.test:host1,i,0x00023d000001";
	struct rig *r = rig_open(512);
	uint8_t list[256] = { 0 }, d[512];
	size_t len = 28 + 4 + 40;

	put_be64(list + 8, KEY0);
	list[20] = 0x0c; /* SPEC_I_PT, ALL_TG_PT */
	put_be32(list + 24, 44);
	list[28] = 0x45;
	put_be16(list + 30, 40);
	memcpy(list + 32, port, sizeof(port));
	CHECK_EQ(pr_list(r, 0, IGNORE, 0, list, len), RIG_SENSE(5, 0x26, 0));
	CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, len - 1),
		 RIG_SENSE(5, 0x1a, 0));
	for (size_t i = 28; i < 72; i += 3) { /* one byte wrong */
		uint8_t was = list[i];

		list[i] ^= 0x80;
		CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, len) == GOOD &&
				 i < 32,
			 false);
		CHECK(pr(r, 0, IGNORE, 0, 0, KEY0) == GOOD);
		CHECK(pr(r, 0, CLEAR, 0, KEY0, 0) == GOOD);
		list[i] = was;
		rig_tur(r, 1);
	}
	CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, len), GOOD);
	/* Nobody is registered along with others twice. */
	CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, len), CONFLICT);
	CHECK_EQ(pr(r, 0, IGNORE, 0, 0, 0), GOOD);
	CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, len), RIG_SENSE(5, 0x26, 0));
	CHECK_EQ(pr(r, 1, CLEAR, 0, KEY0, 0), GOOD);
	CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, len), GOOD);
	pr_in(r, 3, d, 512);
	CHECK_EQ(d[8 + 12], 2);
	pr_in(r, 0, d, 512);
	CHECK_EQ(rig_got, 24);
	CHECK_EQ(pr(r, 1, RESERVE, 3, KEY0, 0), GOOD);
	CHECK_EQ(rig_read(r, 0, 0, 1, 0), CONFLICT);
	CHECK_EQ(pr(r, 1, CLEAR, 0, KEY0, 0), GOOD);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x2a, 3));

	/* The reservation moves to another port. */
	CHECK_EQ(pr(r, 0, REGISTER, 0, 0, KEY0), GOOD);
	memset(list, 0, 28);
	memmove(list + 24, list + 28, 44);
	put_be64(list, KEY0);
	put_be64(list + 8, KEY1);
	list[17] = 2; /* UNREG */
	put_be16(list + 18, 9);
	put_be32(list + 20, 44);
	CHECK_EQ(pr_list(r, 0, MOVE, 0, list, 68), RIG_SENSE(5, 0x26, 0));
	put_be16(list + 18, 2);
	CHECK_EQ(pr_list(r, 0, MOVE, 0, list, 60), RIG_SENSE(5, 0x1a, 0));
	/* There is none to move. */
	CHECK_EQ(pr_list(r, 0, MOVE, 0, list, 68), RIG_SENSE(5, 0x24, 0));
	CHECK_EQ(pr(r, 0, RESERVE, 1, KEY0, 0), GOOD);
	/* One's own initiator port, by whatever port of the target. */
	memcpy(list + 28, r->nexus[0].dom.initiator_port, sizeof(port));
	CHECK_EQ(pr_list(r, 0, MOVE, 0, list, 68), RIG_SENSE(5, 0x26, 0));
	memcpy(list + 28, port, sizeof(port));
	CHECK_EQ(pr_list(r, 0, MOVE, 0, list, 68), GOOD);
	CHECK_EQ(rig_write(r, 0, 0, 1, 1), CONFLICT);
	CHECK_EQ(rig_write(r, 1, 0, 1, 1), GOOD);
	rig_close(r);
}

/* Names are alike in any case; one without a port is all that are logged in. */
TEST(scsi_reserve, transport_ids_of_devices)
{
	struct rig *r = rig_open(512);
	uint8_t list[72] = { [20] = 0x0d, [27] = 44 }, d[8];
	struct scsi_nexus *twin = &r->nexus[2];

	/* SPEC_I_PT, ALL_TG_PT, APTPL */
	put_be64(list + 8, KEY0);
	put_be16(list + 30, 40);
	list[28] = 0x45;
	memcpy(list + 32, "iqn.2026-11.TEST:host1,i,0x00023D000001", 40);
	CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, 72), GOOD);
	CHECK_EQ(pr(r, 1, RESERVE, 1, KEY0, 0), GOOD);
	pr_in(r, 2, d, 8);
	CHECK_EQ(d[3], 0x81); /* APTPL was asked for */
	CHECK_EQ(pr(r, 1, CLEAR, 0, KEY0, 0), GOOD);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x2a, 3));

	list[28] = 0x05;
	memset(list + 32, 0, 40);
	memcpy(list + 32, "iqn.2026-11.TEST:host1", 22);
	CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, 72), GOOD);
	CHECK_EQ(pr(r, 1, RESERVE, 1, KEY0, 0), GOOD);
	CHECK_EQ(pr(r, 1, CLEAR, 0, KEY0, 0), GOOD);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x2a, 3));
	/* At another port of the target, too: it is one initiator port. */
	memset(twin, 0, sizeof(*twin));
	twin->dom = r->nexus[1].dom;
	twin->dom.target_port = 1;
	scsi_nexus_open(r->target, twin, true);
	r->open[2] = true;
	CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, 72), GOOD);
	pr_in(r, 0, d, 8);
	CHECK_EQ(get_be32(d + 4), 16);
	CHECK_EQ(pr(r, 0, CLEAR, 0, KEY0, 0), GOOD);
	list[32 + 21] = '7'; /* nobody's */
	CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, 72), RIG_SENSE(5, 0x26, 0));
	rig_close(r);
}

/* A short name is filled up with zeros, to 20 bytes at least (SPC-4 7.6.4.6). */
TEST(scsi_reserve, transport_ids_of_short_names)
{
	static const char name[] =
		"iqn.2026-11.t:a"; /* 16 bytes with its end */
	struct rig *r = rig_open(512);
	uint8_t list[28 + 4 + 16 + 4 + 20] = { [20] = 0x08 }; /* SPEC_I_PT */
	struct scsi_nexus *shorter = &r->nexus[2];

	memset(shorter, 0, sizeof(*shorter));
	shorter->dom = r->nexus[1].dom;
	snprintf(shorter->dom.initiator_port,
		 sizeof(shorter->dom.initiator_port), "%s,i,0x00023d000003",
		 name);
	scsi_nexus_open(r->target, shorter, true);
	r->open[2] = true;
	put_be64(list + 8, KEY0);
	list[28] = list[48] = 0x05;
	memcpy(list + 32, name, sizeof(name));
	memcpy(list + 52, name, sizeof(name));
	put_be16(list + 50, 20);
	put_be16(list + 30, 16);
	put_be32(list + 24, 44);
	CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, 72), RIG_SENSE(5, 0x26, 0));
	memmove(list + 28, list + 48, 24);
	put_be32(list + 24, 24);
	CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, 52), GOOD);
	rig_close(r);
}

/* READ FULL STATUS: of two, the one that holds it, or both. */
TEST(scsi_reserve, holders)
{
	static const uint8_t types[] = { 5, 7, 8 };

	for (unsigned i = 0; i < ARRAY_LEN(types); i++) {
		struct rig *r = rig_open(512);
		uint8_t d[512], *second;

		CHECK_EQ(pr(r, 0, REGISTER, 0, 0, KEY0), GOOD);
		CHECK_EQ(pr(r, 1, REGISTER, 0, 0, KEY1), GOOD);
		CHECK_EQ(pr(r, 0, RESERVE, types[i], KEY0, 0), GOOD);
		pr_in(r, 3, d, 512);
		CHECK_EQ(get_be64(d + 8), KEY0);
		CHECK_EQ(d[8 + 12], 1);
		CHECK_EQ(d[8 + 13], types[i]);
		second = d + 8 + 24 + get_be32(d + 8 + 20);
		CHECK_EQ(get_be64(second), KEY1);
		CHECK_EQ(second[12], i > 0);
		CHECK_EQ(second[13], i > 0 ? types[i] : 0);
		rig_close(r);
	}
}

/* Longer than any name is, one more than we take, without an end, and odd. */
TEST(scsi_reserve, transport_ids_beyond_bounds)
{
	static const unsigned lengths[] = { 248, 1020, 1400 };
	struct rig *r = rig_open(512);
	uint8_t list[28 + 33 * 44] = { 0 }, d[512];

	put_be64(list + 8, KEY0);
	list[20] = 0x08; /* SPEC_I_PT */
	list[28] = 0x45;
	for (unsigned i = 0; i < ARRAY_LEN(lengths); i++) {
		put_be32(list + 24, 4 + lengths[i]);
		put_be16(list + 30, (uint16_t)lengths[i]);
		memset(list + 32, 'a', lengths[i]);
		memcpy(list + 32, "iqn.", 4);
		memcpy(list + 32 + lengths[i] - 18, ",i,0x00023d000001", 18);
		CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, 32 + lengths[i]),
			 RIG_SENSE(5, 0x26, 0));
	}
	put_be16(list + 30, 40);
	memcpy(list + 32, "iqn.2026-11.test:abcdef,i,0x00023d000001", 40);
	put_be32(list + 24, 44);
	CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, 72), RIG_SENSE(5, 0x26, 0));
	/* It says that it is longer than the list. */
	memset(list + 48, 0, 24);
	put_be16(list + 30, 24);
	put_be32(list + 24, 24);
	CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, 52), RIG_SENSE(5, 0x26, 0));
	memset(list + 48, 'a', 24);
	/* It ends, but not with a word. */
	put_be16(list + 30, 42);
	memset(list + 72, 0, 2);
	put_be32(list + 24, 46);
	CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, 74), RIG_SENSE(5, 0x26, 0));
	for (unsigned i = 0; i < 33; i++) {
		uint8_t *p = list + 28 + 44 * i;

		memset(p, 0, 44);
		p[0] = 0x45;
		put_be16(p + 2, 40);
		sprintf((char *)p + 4, "iqn.2026-11.test:x,i,0x00023d0000%02x",
			i);
	}
	put_be32(list + 24, 33 * 44);
	CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, sizeof(list)),
		 RIG_SENSE(5, 0x26, 0));
	pr_in(r, 0, d, 512);
	CHECK_EQ(rig_got, 8); /* nobody is registered */
	put_be32(list + 24, 32 * 44);
	CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, sizeof(list) - 44), GOOD);
	rig_close(r);
}

TEST(scsi_reserve, bad_fields)
{
	struct rig *r = rig_open(512);
	uint8_t list[64] = { 0 };

	for (unsigned sa = 0; sa < 32; sa++) {
		uint8_t cdb[16] = { 0x5e, (uint8_t)sa, 0, 0, 0, 0, 0, 0, 64 };

		CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, list, 64),
			 sa < 4 ? GOOD : RIG_SENSE(5, 0x24, 0));
	}
	memset(list, 0, sizeof(list));
	CHECK_EQ(pr(r, 0, REGISTER, 0, 0, KEY0), GOOD);
	for (unsigned type = 0; type < 16; type++)
		if (type != 1 && type != 3 && (type < 5 || type > 8))
			CHECK_EQ(pr(r, 0, RESERVE, type, KEY0, 0),
				 RIG_SENSE(5, 0x24, 0));
	CHECK_EQ(pr(r, 0, RESERVE, 0x11, KEY0, 0), RIG_SENSE(5, 0x24, 0));
	CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, 23), RIG_SENSE(5, 0x1a, 0));
	CHECK_EQ(pr_list(r, 0, REGISTER, 0, list, 25), RIG_SENSE(5, 0x1a, 0));
	CHECK_EQ(pr_list(r, 0, 8, 0, list, 24), RIG_SENSE(5, 0x24, 0));
	/* No room for one more. */
	fake_dom_fault(r->dom, (struct fake_fault){ .ops = FAKE_RESERVE,
						    .times = 1,
						    .status = -ENOMEM });
	CHECK_EQ(pr(r, 0, REGISTER, 0, KEY0, KEY1), RIG_SENSE(5, 0x55, 4));
	rig_close(r);
}

/* Who may go on where it could not before hears of it (SPC-4 5.13.11.2.3). */
TEST(scsi_reserve, released)
{
	static const uint8_t types[] = { 1, 3, 5, 6, 7, 8 };
	struct rig *r = rig_open(512);

	rig_login(r, 2); /* without a key */
	CHECK_EQ(rig_tur(r, 2), RIG_SENSE(6, 0x29, 0));
	for (unsigned i = 0; i < ARRAY_LEN(types); i++) {
		CHECK_EQ(pr(r, 0, REGISTER, 0, 0, KEY0), GOOD);
		CHECK_EQ(pr(r, 1, REGISTER, 0, 0, KEY1), GOOD);
		CHECK_EQ(pr(r, 0, RESERVE, types[i], KEY0, 0), GOOD);
		CHECK_EQ(pr(r, 0, RELEASE, types[i], KEY0, 0), GOOD);
		CHECK_EQ(rig_tur(r, 0), GOOD);
		CHECK_EQ(rig_tur(r, 1),
			 types[i] >= 5 ? RIG_SENSE(6, 0x2a, 4) : GOOD);
		CHECK_EQ(rig_tur(r, 1), GOOD);
		CHECK_EQ(rig_tur(r, 2), GOOD);
		CHECK_EQ(pr(r, 0, REGISTER, 0, KEY0, 0), GOOD);
		CHECK_EQ(pr(r, 1, REGISTER, 0, KEY1, 0), GOOD);
	}
	rig_close(r);
}

/* Where no reservation is taken over nobody looks at scope and type. */
TEST(scsi_reserve, preempt_without_a_type)
{
	struct rig *r = rig_open(512);

	for (unsigned sa = PREEMPT; sa <= ABORT; sa++) {
		CHECK_EQ(pr(r, 0, REGISTER, 0, 0, KEY0), GOOD);
		CHECK_EQ(pr(r, 1, REGISTER, 0, 0, KEY1), GOOD);
		CHECK_EQ(pr(r, 0, sa, 0, KEY0, KEY1), GOOD);
		CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x2a, 5));
		CHECK_EQ(pr(r, 0, RESERVE, 1, KEY0, 0), GOOD);
		CHECK_EQ(pr(r, 1, REGISTER, 0, 0, KEY1), GOOD);
		CHECK_EQ(pr(r, 0, sa, 0xff, KEY0, KEY1), GOOD);
		CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x2a, 5));
		/* The holder's key: now they count. */
		CHECK_EQ(pr(r, 1, REGISTER, 0, 0, KEY1), GOOD);
		CHECK_EQ(pr(r, 1, sa, 0, KEY1, KEY0), RIG_SENSE(5, 0x24, 0));
		CHECK_EQ(pr(r, 1, sa, 0x13, KEY1, KEY0), RIG_SENSE(5, 0x24, 0));
		CHECK_EQ(rig_write(r, 1, 0, 1, 1), CONFLICT);
		CHECK_EQ(pr(r, 1, sa, 3, KEY1, KEY0), GOOD);
		CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x2a, 5));
		CHECK_EQ(rig_write(r, 1, 0, 1, 1), GOOD);
		/* RELEASE compares them, at the holder. */
		CHECK_EQ(pr(r, 0, REGISTER, 0, 0, KEY0), GOOD);
		CHECK_EQ(pr(r, 0, RELEASE, 0, KEY0, 0), GOOD);
		CHECK_EQ(pr(r, 1, RELEASE, 0, KEY1, 0), RIG_SENSE(5, 0x26, 4));
		CHECK_EQ(pr(r, 1, RELEASE, 0x13, KEY1, 0),
			 RIG_SENSE(5, 0x26, 4));
		CHECK_EQ(pr(r, 1, CLEAR, 0xff, KEY1, 0), GOOD);
		CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x2a, 3));
	}
	rig_close(r);
}

TEST(scsi_reserve, spc2)
{
	struct rig *r = rig_open(512);
	uint8_t in[64];

	CHECK_EQ(rig_do(r, 0, CDB(0x56), NULL, 0, NULL, 0), GOOD);
	CHECK_EQ(rig_do(r, 0, CDB(0x16), NULL, 0, NULL, 0), GOOD);
	CHECK_EQ(rig_do(r, 1, CDB(0x16), NULL, 0, NULL, 0), CONFLICT);
	CHECK_EQ(rig_do(r, 1, CDB(0x17), NULL, 0, NULL, 0), GOOD);
	CHECK_EQ(rig_tur(r, 1), CONFLICT);
	CHECK_EQ(rig_read(r, 1, 0, 1, 0), CONFLICT);
	CHECK_EQ(rig_read(r, 0, 0, 1, 0), GOOD);
	/* The other kind conflicts with it, whoever asks (SPC-2 5.5.1). */
	for (unsigned n = 0; n < 2; n++) {
		for (uint8_t sa = 0; sa < 4; sa++)
			CHECK_EQ(rig_do(r, n,
					CDB(0x5e, sa, 0, 0, 0, 0, 0, 0, 64),
					NULL, 0, in, 64),
				 CONFLICT);
		CHECK_EQ(pr(r, n, RESERVE, 2, KEY1, 0), CONFLICT);
	}
	CHECK_EQ(rig_do(r, 0, CDB(0x57), NULL, 0, NULL, 0), GOOD);
	CHECK_EQ(rig_tur(r, 1), GOOD);
	rig_close(r);
}

/* An initiator port is another nexus on another port, at RESERVE as elsewhere. */
TEST(scsi_reserve, spc2_and_ports)
{
	struct rig *r = rig_open(512);
	struct scsi_nexus *twin = &r->nexus[2];

	memset(twin, 0, sizeof(*twin));
	twin->dom = r->nexus[0].dom;
	twin->dom.target_port = 2;
	scsi_nexus_open(r->target, twin, true);
	r->open[2] = true;
	CHECK_EQ(rig_tur(r, 2), RIG_SENSE(6, 0x29, 7));
	CHECK_EQ(rig_do(r, 0, CDB(0x16), NULL, 0, NULL, 0), GOOD);
	CHECK_EQ(rig_tur(r, 2), CONFLICT);
	/* A nexus that goes takes along what it holds, and no more. */
	rig_logout(r, 2);
	CHECK_EQ(rig_tur(r, 1), CONFLICT);
	twin->dom.generation = 0;
	scsi_nexus_open(r->target, twin, true);
	r->open[2] = true;
	CHECK_EQ(rig_tur(r, 2), RIG_SENSE(6, 0x29, 7));
	/* An I_T nexus reset releases what its nexus holds, and no more. */
	CHECK_EQ(rig_tmf(r, 2, SCSI_IT_NEXUS_RESET, 0), 0);
	CHECK_EQ(rig_tur(r, 2), RIG_SENSE(6, 0x29, 7));
	CHECK_EQ(rig_tur(r, 2), CONFLICT);
	CHECK_EQ(rig_tur(r, 1), CONFLICT);
	CHECK_EQ(rig_tmf(r, 0, SCSI_IT_NEXUS_RESET, 0), 0);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x29, 7));
	CHECK_EQ(rig_tur(r, 2), GOOD);
	CHECK_EQ(rig_tur(r, 1), GOOD);
	rig_close(r);
}
