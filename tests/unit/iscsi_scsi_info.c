/* What a unit says of itself: INQUIRY, mode and log pages, reports. */
#include "base/util.h"
#include "iscsi/scsi_int.h"
#include "tests/lib/scsi_rig.h"
#include "tests/lib/test.h"

#include <stdlib.h>

#define GOOD 0u
#define INVALID_CDB RIG_SENSE(5, 0x24, 0)

static unsigned inquiry(struct rig *r, int page, void *in, uint16_t alloc)
{
	uint8_t cdb[16] = { 0x12 };

	if (page >= 0) {
		cdb[1] = 1;
		cdb[2] = (uint8_t)page;
	}
	put_be16(cdb + 3, alloc);
	return rig_do(r, 0, cdb, NULL, 0, in, alloc);
}

TEST(scsi_info, standard_inquiry)
{
	/* SAM-5, SPC-4, SBC-3, iSCSI */
	static const uint16_t versions[] = { 0xa0, 0x460, 0x4c0, 0x960 };
	struct rig *r = rig_open(512);
	uint8_t d[512];

	CHECK_EQ(inquiry(r, -1, d, 512), GOOD);
	CHECK_EQ(rig_got, (size_t)d[4] + 5);
	CHECK_EQ(d[0], 0);
	CHECK_EQ(d[1], 0); /* not removable */
	CHECK_EQ(d[2], 6);
	CHECK_EQ(d[3], 0x12); /* HISUP: hosts ask for LUNs beyond 7 */
	CHECK_EQ(d[5], 0x18); /* implicit ALUA, copies, no protection */
	CHECK_EQ(d[6], 0x10);
	CHECK_EQ(d[7], 0x02); /* CMDQUE: hosts queue */
	for (unsigned i = 0; i < 4; i++)
		CHECK_EQ(get_be16(d + 58 + 2 * i), versions[i]);
	CHECK_EQ(memcmp(d + 8, "BASALT  VIRTUAL-DISK    ", 24), 0);
	CHECK_EQ(inquiry(r, -1, d, 5), GOOD);
	CHECK_EQ(rig_got, 5);
	CHECK_EQ(inquiry(r, -1, d, 0), GOOD);
	CHECK_EQ(rig_do(r, 0, CDB(0x12, 0, 0x83, 0, 9), NULL, 0, d, 9),
		 INVALID_CDB);
	CHECK_EQ(rig_do(r, 0, CDB(0x12, 2, 0, 0, 9), NULL, 0, d, 9),
		 INVALID_CDB);
	rig_close(r);
}

/* Every page that is listed can be read, at any length, and no other. */
TEST(scsi_info, vpd_pages)
{
	struct rig *r = rig_open(512);
	uint8_t list[256], d[4096], cut[4096];

	CHECK_EQ(inquiry(r, 0, list, 255), GOOD);
	for (unsigned page = 0; page < 256; page++) {
		bool listed = memchr(list + 4, (int)page, list[3]) != NULL;

		CHECK_EQ(inquiry(r, (int)page, d, 4096),
			 listed ? GOOD : INVALID_CDB);
		if (!listed)
			continue;
		CHECK_EQ(d[1], page);
		CHECK_EQ(rig_got, get_be16(d + 2) + 4u);
		CHECK_EQ(inquiry(r, (int)page, cut, 7), GOOD);
		CHECK_EQ(memcmp(cut, d, MIN(rig_got, 7)), 0);
	}
	for (unsigned i = 5; i < 4u + list[3]; i++)
		CHECK(list[i] > list[i - 1]);
	rig_close(r);
}

/*
 * The unit's own names are the same for every nexus; those of the port are not,
 * its relative number and its name.
 */
TEST(scsi_info, identification)
{
	struct rig *r = rig_open(512);
	uint8_t a[512], b[512], cdb[16] = { 0x12, 1, 0x83, 1, 0 };
	size_t at;

	CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, a, 256), GOOD);
	CHECK_EQ(rig_do(r, 1, cdb, NULL, 0, b, 256), GOOD);
	CHECK_EQ(a[5] & 0xf, 3);
	CHECK_EQ(a[8] >> 4, 3); /* NAA 3 */
	for (at = 4; at < rig_got; at += 4 + a[at + 3]) {
		size_t len = 4 + (size_t)a[at + 3];
		bool port = (a[at + 1] & 0x3f) == 0x14 ||
			    (a[at + 1] & 0x3f) == 0x18;

		CHECK_EQ(memcmp(a + at, b + at, len) != 0, port);
	}
	CHECK_EQ(at, rig_got);
	rig_close(r);
}

/* VPD 88 has the same names. */
TEST(scsi_info, ports_by_name)
{
	static const char name[] = "iqn.2026-11.test:disk,t,0x000";
	struct rig *r = rig_open(512);
	uint8_t d[512];
	size_t at = 4;

	CHECK_EQ(inquiry(r, 0x88, d, 512), GOOD);
	for (unsigned port = 1; port <= 2; port++) {
		const char *text = (const char *)d + at + 16;

		CHECK_EQ(get_be16(d + at + 2), port);
		CHECK_EQ(strlen(text), sizeof(name));
		CHECK_EQ(memcmp(text, name, sizeof(name) - 1), 0);
		CHECK_EQ(text[sizeof(name) - 1], '0' + (int)port);
		at += 12 + (size_t)get_be16(d + at + 10);
	}
	CHECK_EQ(at, rig_got);
	rig_close(r);
}

/* VPD 88 is INQUIRY data: where it changes, all hear of it, and once. */
TEST(scsi_info, ports_change)
{
	static const uint16_t ports[] = { 1, 2, 5 };
	struct rig *r = rig_open(512);
	uint8_t d[512];

	scsi_target_ports(r->target, ports, ports, 2);
	CHECK_EQ(rig_tur(r, 0), GOOD); /* as they were */
	scsi_target_ports(r->target, ports, ports, 3);
	CHECK_EQ(inquiry(r, 0x88, d, 512), GOOD);
	CHECK_EQ(get_be16(d + rig_got - get_be16(d + 14) - 12 + 2), 5);
	for (unsigned n = 0; n < 2; n++) {
		CHECK_EQ(rig_tur(r, n), RIG_SENSE(6, 0x3f, 3));
		CHECK_EQ(rig_tur(r, n), GOOD);
	}
	rig_login(r, 2);
	CHECK_EQ(rig_tur(r, 2), RIG_SENSE(6, 0x29, 0));
	CHECK_EQ(rig_tur(r, 2), GOOD); /* it came after that */
	scsi_target_ports(r->target, ports + 1, ports, 2);
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x3f, 3));
	scsi_target_ports(r->target, ports + 1, ports + 1, 2);
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x3f, 3)); /* a tag: a name */
	CHECK_EQ(rig_tur(r, 1), GOOD);
	rig_close(r);
}

/* Both sizes of blocks: what is counted in them is the same in bytes. */
TEST(scsi_info, limits)
{
	static const uint32_t sizes[] = { 512, 4096 };

	for (unsigned i = 0; i < ARRAY_LEN(sizes); i++) {
		struct rig *r = rig_open(sizes[i]);
		uint32_t block = sizes[i];
		uint8_t d[512];

		CHECK_EQ(inquiry(r, 0xb0, d, 512), GOOD);
		CHECK_EQ(rig_got, 64); /* less is of an older SBC */
		CHECK_EQ(d[4], 1); /* WSNZ */
		CHECK_EQ(get_be16(d + 6) * block, 4096);
		CHECK_EQ(get_be32(d + 8) * block, 16u << 20);
		/* Linux ignores one that is no multiple of a physical block. */
		CHECK_EQ(get_be32(d + 12) * block % 4096, 0);
		CHECK(get_be32(d + 12) <= get_be32(d + 8));
		CHECK_EQ(get_be32(d + 24), 256);
		/* ESXi reclaims by itself up to a granularity of 1 MiB. */
		CHECK_EQ(get_be32(d + 28) * block, 4096);
		CHECK_EQ(get_be32(d + 32), 0x80000000);
		CHECK(get_be64(d + 36) * block >= 4u << 20);
		/* No alignment, no granularity, no boundary of atomic writes. */
		for (unsigned at = 48; at < 64; at++)
			CHECK_EQ(d[at], 0);

		CHECK_EQ(inquiry(r, 0xb1, d, 512), GOOD);
		CHECK_EQ(rig_got, 64);
		CHECK_EQ(get_be16(d + 4), 1); /* does not rotate */
		CHECK_EQ(d[7], 0x40); /* after an erase reads are good */
		CHECK_EQ(inquiry(r, 0x86, d, 512), GOOD);
		CHECK_EQ(rig_got, 64);
		CHECK_EQ(d[5], 0x07); /* all task attributes */
		CHECK_EQ(d[6], 0); /* no volatile cache */
		CHECK_EQ(d[7], 1); /* LUICLR */
		CHECK_EQ(d[13], SCSI_SENSE_MAX);
		/* What says that holes read as zeros says so twice. */
		CHECK_EQ(inquiry(r, 0xb2, d, 512), GOOD);
		CHECK_EQ(rig_got, 8);
		CHECK_EQ(d[5], 0xe4); /* LBPU LBPWS LBPWS10 LBPRZ, no anchor */
		CHECK_EQ(d[6], 2); /* thin */
		CHECK_EQ(rig_do(r, 0, CDB(0x9e, 0x10, [13] = 32), NULL, 0, d,
				512),
			 GOOD);
		CHECK_EQ(rig_got, 32);
		CHECK_EQ(get_be64(d), RIG_BYTES / block - 1);
		CHECK_EQ(get_be32(d + 8), block);
		CHECK_EQ(d[12], 0); /* no protection information */
		CHECK_EQ(block << d[13], 4096);
		CHECK_EQ(get_be16(d + 14), 0xc000); /* LBPME LBPRZ, aligned */
		CHECK_EQ(rig_do(r, 0, CDB(0x9e, 0x10, [13] = 12), NULL, 0, d,
				512),
			 GOOD);
		CHECK_EQ(rig_got, 12);
		rig_close(r);
	}
}

/* More than READ CAPACITY(10) can tell: hosts ask for the longer one. */
TEST(scsi_info, capacity_beyond_ten)
{
	static const uint64_t last[] = { UINT32_MAX - 1, UINT32_MAX,
					 UINT32_MAX + 1ull };
	struct rig *r = rig_open(512);
	uint8_t d[64];

	for (unsigned i = 0; i < ARRAY_LEN(last); i++) {
		fake_dom_resize(r->dom, &r->oid, (last[i] + 1) * 512);
		CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x2a, 9));
		CHECK_EQ(rig_do(r, 0, CDB(0x25), NULL, 0, d, 8), GOOD);
		CHECK_EQ(get_be32(d), MIN(last[i], UINT32_MAX));
		CHECK_EQ(rig_do(r, 0, CDB(0x9e, 0x10, [13] = 32), NULL, 0, d,
				32),
			 GOOD);
		CHECK_EQ(get_be64(d), last[i]);
		/* The block descriptor says "more", too. */
		CHECK_EQ(rig_do(r, 0, CDB(0x1a, 0, 8, 0, 64), NULL, 0, d, 64),
			 GOOD);
		CHECK_EQ(get_be32(d + 4), MIN(last[i] + 1, UINT32_MAX));
	}
	rig_close(r);
}

/* No cache, no power conditions, tasks that others abort are told. */
TEST(scsi_info, modes_by_default)
{
	struct rig *r = rig_open(512);
	uint8_t d[64], mask[64], byte[64];

	CHECK_EQ(rig_do(r, 0, CDB(0x1a, 8, 0x08, 0, 64), NULL, 0, d, 64), GOOD);
	CHECK_EQ(rig_got, 24);
	CHECK_EQ(d[4 + 1], 0x12);
	CHECK_EQ(d[4 + 2], 0); /* WCE: writes are durable, nothing to flush */
	/* None of it can be changed: a cache that hosts turn on is none. */
	CHECK_EQ(rig_do(r, 0, CDB(0x1a, 8, 0x48, 0, 64), NULL, 0, mask, 64),
		 GOOD);
	for (unsigned i = 6; i < 24; i++)
		CHECK_EQ(mask[i], 0);
	CHECK_EQ(rig_do(r, 0, CDB(0x1a, 8, 0x0a, 0, 64), NULL, 0, d, 64), GOOD);
	CHECK_EQ(get_be32(d + 4 + 2), 0x00100040); /* no QERR; TAS */
	CHECK_EQ(get_be16(d + 4 + 8), 0xffff);
	CHECK_EQ(rig_do(r, 0, CDB(0x1a, 8, 0x4a, 0, 64), NULL, 0, mask, 64),
		 GOOD);
	CHECK_EQ(get_be32(mask + 4 + 2), 0x04000840); /* D_SENSE SWP TAS */
	/* The defaults are told, whatever is set. */
	d[0] = d[2] = 0;
	d[4 + 2] = 0x04;
	d[4 + 4] = 0x08;
	d[4 + 5] = 0;
	CHECK_EQ(rig_do(r, 0, CDB(0x15, 0x10, 0, 0, 16), d, 16, NULL, 0), GOOD);
	CHECK_EQ(rig_do(r, 0, CDB(0x1a, 8, 0x0a, 0, 64), NULL, 0, byte, 64),
		 GOOD);
	CHECK_EQ(memcmp(byte + 4, d + 4, 12), 0);
	CHECK_EQ(rig_do(r, 0, CDB(0x1a, 8, 0x8a, 0, 64), NULL, 0, byte, 64),
		 GOOD);
	CHECK_EQ(get_be32(byte + 4 + 2), 0x00100040);
	rig_close(r);
}

static unsigned sense6(struct rig *r, uint8_t page, uint8_t sub, uint8_t *d)
{
	return rig_do(r, 0, CDB(0x1a, 8, page, sub, 255), NULL, 0, d, 255);
}

TEST(scsi_info, mode_pages)
{
	struct rig *r = rig_open(4096);
	uint8_t all[256], d[256], ten[256];
	size_t len, at;
	unsigned pages = 0;

	CHECK_EQ(sense6(r, 0x3f, 0xff, all), GOOD);
	len = rig_got;
	CHECK_EQ(len, all[0] + 1u);
	CHECK_EQ(all[2], 0x10); /* DPOFUA, writable */
	/* Each page by itself is what it is among all. */
	for (at = 4; at < len; pages++) {
		bool spf = (all[at] & 0x40) != 0;
		size_t n = spf ? 4u + get_be16(all + at + 2) : 2u + all[at + 1];

		CHECK_EQ(sense6(r, all[at] & 0x3f, spf ? all[at + 1] : 0, d),
			 GOOD);
		CHECK_EQ(rig_got, 4 + n);
		CHECK_EQ(memcmp(d + 4, all + at, n), 0);
		at += n;
	}
	CHECK_EQ(pages, 8);
	CHECK_EQ(sense6(r, 0x3f, 0x01, d), INVALID_CDB);
	CHECK_EQ(sense6(r, 0x05, 0, d), INVALID_CDB);
	CHECK_EQ(sense6(r, 0xca, 0, d), RIG_SENSE(5, 0x39, 0)); /* saved */
	/* With a block descriptor, and in the ten-byte form. */
	CHECK_EQ(rig_do(r, 0, CDB(0x1a, 0, 8, 0, 255), NULL, 0, d, 255), GOOD);
	CHECK_EQ(d[3], 8);
	CHECK_EQ(get_be32(d + 4), RIG_BYTES / 4096);
	CHECK_EQ(get_be24(d + 9), 4096);
	CHECK_EQ(rig_do(r, 0, CDB(0x5a, 8, 8, 0, 0, 0, 0, 0, 255), NULL, 0, ten,
			255),
		 GOOD);
	CHECK_EQ(get_be16(ten) + 2u, rig_got);
	CHECK_EQ(memcmp(ten + 8, d + 12, 20), 0);
	rig_close(r);
}

static unsigned select6(struct rig *r, const uint8_t *list, size_t len)
{
	uint8_t cdb[16] = { 0x15, 0x10, 0, 0, (uint8_t)len };

	return rig_do(r, 0, cdb, list, len, NULL, 0);
}

/* The byte of the CDB that the sense data points to. */
static unsigned pointer_of(struct rig *r, const uint8_t cdb[16])
{
	struct rig_cmd rc;
	unsigned at;

	rig_begin(r, &rc, 0, cdb, NULL, 0, 64, SCSI_SIMPLE, false);
	CHECK_EQ(rc.answer, INVALID_CDB);
	CHECK_EQ(rc.cmd.sense[15] & 0xc0, 0xc0);
	at = get_be16(rc.cmd.sense + 16);
	rig_end(&rc);
	return at;
}

/* No such page, or no such subpage of one that is there. */
TEST(scsi_info, points_to_the_page_or_its_subpage)
{
	struct rig *r = rig_open(512);

	CHECK_EQ(pointer_of(r, CDB(0x1a, 0, 0x05, 0, 64)), 2);
	CHECK_EQ(pointer_of(r, CDB(0x1a, 0, 0x05, 1, 64)), 2);
	CHECK_EQ(pointer_of(r, CDB(0x1a, 0, 0x0a, 2, 64)), 3);
	CHECK_EQ(pointer_of(r, CDB(0x1a, 0, 0x3f, 1, 64)), 3);
	CHECK_EQ(pointer_of(r, CDB(0x4d, 0, 0x55, 0, 0, 0, 0, 0, 64)), 2);
	CHECK_EQ(pointer_of(r, CDB(0x4d, 0, 0x55, 1, 0, 0, 0, 0, 64)), 2);
	CHECK_EQ(pointer_of(r, CDB(0x4d, 0, 0x4c, 1, 0, 0, 0, 0, 64)), 3);
	rig_close(r);
}

/* Four bytes of INFORMATION, or none: half a number is a wrong one. */
TEST(scsi_info, sense_formats)
{
	static const uint64_t infos[] = { 0, UINT32_MAX, 1ull << 32,
					  UINT64_MAX };
	uint8_t d[SCSI_SENSE_MAX];

	for (unsigned i = 0; i < ARRAY_LEN(infos); i++) {
		CHECK_EQ(scsi__sense_format(d, false, SENSE_MISCOMPARE,
					    &infos[i], NULL),
			 18);
		CHECK_EQ(d[0], i < 2 ? 0xf0 : 0x70);
		CHECK_EQ(get_be32(d + 3), i < 2 ? infos[i] : 0);
		CHECK_EQ(scsi__sense_format(d, true, SENSE_MISCOMPARE,
					    &infos[i], NULL),
			 20);
		CHECK_EQ(d[0], 0x72);
		CHECK_EQ(d[10], 0x80);
		CHECK_EQ(get_be64(d + 12), infos[i]);
	}
}

TEST(scsi_info, mode_select)
{
	struct rig *r = rig_open(512);
	uint8_t list[64] = { 0 }, d[256];
	struct rig_cmd rc;

	CHECK_EQ(sense6(r, 0x0a, 0, d), GOOD);
	memcpy(list + 4, d + 4, 12);
	CHECK_EQ(select6(r, list, 16), GOOD); /* as it is */
	CHECK_EQ(rig_tur(r, 1), GOOD);
	list[6] |= 0x04; /* D_SENSE */
	list[8] |= 0x08; /* SWP */
	CHECK_EQ(select6(r, list, 16), GOOD);
	CHECK_EQ(rig_tur(r, 0), GOOD);
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x2a, 1));
	rig_begin(r, &rc, 0, CDB(0x2a, 0, 0, 0, 0, 0, 0, 0, 1), list, 512, 0,
		  SCSI_SIMPLE, false);
	CHECK_EQ(rc.answer, RIG_SENSE(7, 0x27, 2));
	CHECK_EQ(rc.cmd.sense[0], 0x72);
	rig_end(&rc);
	CHECK_EQ(sense6(r, 0x3f, 0, d), GOOD);
	CHECK_EQ(d[2], 0x90);
	/* A reset brings the defaults back. */
	CHECK_EQ(rig_tmf(r, 0, SCSI_LUN_RESET, 0), 0);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x29, 3));
	CHECK_EQ(rig_write(r, 0, 0, 1, 1), GOOD);

	/* What cannot be changed, what is cut off, what lies. */
	list[6] = list[8] = 0;
	list[7] = 0x20;
	CHECK_EQ(select6(r, list, 16), RIG_SENSE(5, 0x26, 0));
	list[7] = 0x10;
	CHECK_EQ(select6(r, list, 15), RIG_SENSE(5, 0x1a, 0));
	CHECK_EQ(select6(r, list, 5), RIG_SENSE(5, 0x1a, 0));
	CHECK_EQ(select6(r, list, 3), RIG_SENSE(5, 0x1a, 0));
	CHECK_EQ(select6(r, list, 4), GOOD);
	CHECK_EQ(select6(r, list, 0), GOOD);
	list[5] = 9;
	CHECK_EQ(select6(r, list, 16), RIG_SENSE(5, 0x26, 0));
	list[5] = 10;
	list[4] = 0x3e;
	CHECK_EQ(select6(r, list, 16), RIG_SENSE(5, 0x26, 0));
	list[3] = 7;
	CHECK_EQ(select6(r, list, 16), RIG_SENSE(5, 0x26, 0));
	list[3] = 8;
	CHECK_EQ(select6(r, list, 8), RIG_SENSE(5, 0x1a, 0));
	CHECK_EQ(rig_do(r, 0, CDB(0x15, 0x11, 0, 0, 0), NULL, 0, NULL, 0),
		 INVALID_CDB);
	rig_close(r);
}

TEST(scsi_info, logs)
{
	struct rig *r = rig_open(512);
	uint8_t list[64], d[64];

	CHECK_EQ(rig_do(r, 0, CDB(0x4d, 0, 0x40, 0, 0, 0, 0, 0, 64), NULL, 0,
			list, 64),
		 GOOD);
	for (unsigned i = 0; i < list[3]; i++) {
		uint8_t cdb[16] = { 0x4d, 0, 0x40 | list[4 + i], 0, 0, 0, 0,
				    0,	  64 };

		CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, d, 64), GOOD);
		CHECK_EQ(d[0], list[4 + i]);
		CHECK_EQ(rig_got, get_be16(d + 2) + 4u);
	}
	CHECK_EQ(rig_do(r, 0, CDB(0x4d, 0, 0x55, 0, 0, 0, 0, 0, 64), NULL, 0, d,
			64),
		 INVALID_CDB);
	CHECK_EQ(rig_do(r, 0, CDB(0x4d, 0, 0x4c, 0, 0, 9, 9, 0, 64), NULL, 0, d,
			64),
		 INVALID_CDB);
	CHECK_EQ(rig_do(r, 0, CDB(0x4c, 2, 0x40), NULL, 0, NULL, 0), GOOD);
	CHECK_EQ(rig_do(r, 0, CDB(0x4c, 0, 0x40, 0, 0, 0, 0, 0, 4), d, 4, NULL,
			0),
		 INVALID_CDB);
	rig_close(r);
}

/* The table is sorted, found by its keys, and reported as it is used. */
TEST(scsi_info, opcodes)
{
	struct rig *r = rig_open(512);
	uint8_t *d = calloc(1, 65536), one[64];
	struct scsi_common common;
	size_t n = 0;

	scsi_common_init(&common);
	CHECK(scsi__op_find(&common, 0x02, 0) == NULL);
	CHECK(scsi__op_find(&common, 0x5e, 4) == NULL);
	CHECK(scsi__op_find(&common, 0xff, 0) == NULL);
	CHECK_EQ(rig_do(r, 0, CDB(0xa3, 0x0c, 0x80, 0, 0, 0, 0, 0, 0xff, 0xff),
			NULL, 0, d, 65535),
		 GOOD);
	CHECK_EQ(get_be32(d) + 4u, rig_got);
	for (size_t at = 4; at < rig_got; at += 20, n++) {
		const struct scsi_op *op = &scsi__ops[n];

		CHECK_EQ(d[at], op->opcode);
		CHECK_EQ(d[at + 5], op->sa >= 0 ? 3 : 2);
		CHECK_EQ(get_be16(d + at + 6), op->len);
		CHECK(scsi__op_find(&common, op->opcode, (uint8_t)op->sa) ==
		      op);
		if (n > 0)
			CHECK(op[-1].opcode < op->opcode ||
			      (op[-1].opcode == op->opcode &&
			       op[-1].sa < op->sa));
	}
	CHECK_EQ(n, scsi__ops_count);
	free(d);
	for (n = 0; n < scsi__ops_count; n++) {
		const struct scsi_op *op = &scsi__ops[n];
		uint8_t cdb[16] = { 0xa3,	0x0c, op->sa < 0 ? 1 : 2,
				    op->opcode, 0,    (uint8_t)MAX(op->sa, 0),
				    0,		0,    0,
				    64 };
		size_t got;

		CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, one, 64), GOOD);
		got = rig_got;
		CHECK_EQ(got, 4u + op->len);
		CHECK_EQ(one[1], 3);
		CHECK_EQ(one[4], op->opcode);
		cdb[2] = op->sa < 0 ? 2 : 1; /* the other form */
		CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, one, 64), INVALID_CDB);
		/* A bit that means nothing is refused. */
		memset(cdb, 0, 16);
		cdb[0] = op->opcode;
		cdb[1] = (uint8_t)MAX(op->sa, 0);
		cdb[op->len - 1] = 4; /* NACA */
		CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, NULL, 0), INVALID_CDB);
	}
	CHECK_EQ(rig_do(r, 0, CDB(0xa3, 0x0c, 3, 0x85, 0, 0, 0, 0, 0, 64), NULL,
			0, one, 64),
		 GOOD);
	CHECK_EQ(one[1], 1);
	CHECK_EQ(rig_do(r, 0, CDB(0x85), NULL, 0, NULL, 0),
		 RIG_SENSE(5, 0x20, 0));
	CHECK_EQ(rig_do(r, 0, CDB(0x9e, 0x1f), NULL, 0, NULL, 0), INVALID_CDB);
	rig_close(r);
}

TEST(scsi_info, reports)
{
	struct rig *r = rig_open(512);
	uint8_t d[64];

	CHECK_EQ(rig_do(r, 0, CDB(0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 64), NULL, 0,
			d, 64),
		 GOOD);
	CHECK_EQ(get_be32(d), 16);
	CHECK_EQ(d[4], 0x80); /* preferred; active/optimized */
	CHECK_EQ(d[5], 0x8b);
	CHECK_EQ(get_be16(d + 6), SCSI_PORT_GROUP); /* one, of two ports */
	CHECK_EQ(d[11], 2);
	CHECK_EQ(get_be16(d + 14), 1);
	CHECK_EQ(get_be16(d + 18), 2);
	CHECK_EQ(rig_do(r, 0, CDB(0xa3, 0x2a, 0, 0, 0, 0, 0, 0, 0, 64), NULL, 0,
			d, 64),
		 GOOD);
	CHECK_EQ(d[4], 0x10);
	CHECK_EQ(d[5], 20); /* hosts wait so many seconds for a transition */
	CHECK_EQ(d[8], 0x80);
	CHECK_EQ(rig_do(r, 0, CDB(0xa3, 0x0d, 0x80, 0, 0, 0, 0, 0, 0, 64), NULL,
			0, d, 64),
		 GOOD);
	CHECK_EQ(rig_got, 16);
	CHECK_EQ(get_be16(d), 0xda00);
	r->nexus[0].queries = true;
	CHECK_EQ(rig_do(r, 0, CDB(0xa3, 0x0d, 0, 0, 0, 0, 0, 0, 0, 64), NULL, 0,
			d, 64),
		 GOOD);
	CHECK_EQ(rig_got, 4);
	CHECK_EQ(get_be16(d), 0xde07);
	CHECK_EQ(rig_do(r, 0, CDB(0xa3, 0x0f, 0, 0, 0, 0, 0, 0, 0, 64), NULL, 0,
			d, 64),
		 GOOD);
	CHECK_EQ(get_be16(d), 10);
	CHECK_EQ(d[2], 3); /* the clock is not set by SET TIMESTAMP */
	CHECK_EQ(rig_do(r, 0, CDB(0x37, 0, 0x1d, 0, 0, 0, 0, 0, 64), NULL, 0, d,
			64),
		 GOOD);
	CHECK_EQ(rig_got, 4);
	CHECK_EQ(d[1], 0x1d);
	CHECK_EQ(rig_do(r, 0, CDB(0x1b, 0, 0, 0, 0), NULL, 0, NULL, 0), GOOD);
	CHECK_EQ(rig_do(r, 0, CDB(0x1b, 0, 0, 0, 2), NULL, 0, NULL, 0),
		 INVALID_CDB);
	CHECK_EQ(rig_do(r, 0, CDB(0x1d, 4), NULL, 0, NULL, 0), GOOD);
	CHECK_EQ(rig_do(r, 0, CDB(0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 15), NULL, 0, d,
			15),
		 INVALID_CDB);
	CHECK_EQ(rig_do(r, 0, CDB(0x04), NULL, 0, NULL, 0), GOOD);
	CHECK_EQ(rig_do(r, 0, CDB(0x04, 0x40), NULL, 0, NULL, 0), INVALID_CDB);
	rig_close(r);
}

/* A target without a unit: a list of all has the place to ask at. */
TEST(scsi_info, no_units)
{
	struct rig *r = rig_open(512);
	uint8_t d[64];

	scsi_lun_unset(r->target, 0);
	for (uint8_t select = 0; select <= 2; select++) {
		size_t list = select == 2 ? 8 : 0;

		memset(d, 0xff, sizeof(d));
		CHECK_EQ(rig_do(r, 0,
				CDB(0xa0, 0, select, 0, 0, 0, 0, 0, 0, 64),
				NULL, 0, d, 64),
			 0);
		CHECK_EQ(rig_got, 8 + list);
		CHECK_EQ(get_be32(d), list);
		if (list > 0)
			CHECK_EQ(get_be64(d + 8), 0);
	}
	rig_close(r);
}

/* What writes is refused, and the header says so; see iscsi_scsi_every.c. */
TEST(scsi_info, read_only)
{
	static const uint8_t data[512];
	struct rig *r = rig_open(512);
	struct iscsi_lun_conf conf = { .name = "disk",
				       .block_bytes = 512,
				       .read_only = true };
	uint8_t d[32];

	conf.object = r->oid;
	CHECK_EQ(scsi_lun_set(r->target, &conf, r->usage), 0);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x2a, 1));
	CHECK_EQ(rig_do(r, 0, CDB(0x2a, 0, 0, 0, 0, 0, 0, 0, 1), data, 512,
			NULL, 0),
		 RIG_SENSE(7, 0x27, 0));
	CHECK_EQ(rig_do(r, 0, CDB(0x42), NULL, 0, NULL, 0),
		 RIG_SENSE(7, 0x27, 0));
	CHECK_EQ(rig_do(r, 0, CDB(0x48, 2), NULL, 0, NULL, 0),
		 RIG_SENSE(7, 0x27, 0));
	CHECK_EQ(rig_read(r, 0, 0, 1, 0), GOOD);
	CHECK_EQ(sense6(r, 0x0a, 0, d), GOOD);
	CHECK_EQ(d[2], 0x90);
	rig_close(r);
}
