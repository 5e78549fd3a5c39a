/* Commands on blocks, over the fake dom: ranges, data, faults. */
#include "base/stats.h"
#include "base/util.h"
#include "iscsi/scsi_int.h"
#include "tests/lib/scsi_rig.h"
#include "tests/lib/test.h"

#include <stdio.h>

#define GOOD 0u
#define INVALID_CDB RIG_SENSE(5, 0x24, 0)
#define RANGE RIG_SENSE(5, 0x21, 0)

static const uint32_t sizes[] = { 512, 4096 };

static void cdb_of(uint8_t *cdb, uint8_t op, uint64_t lba, uint32_t blocks)
{
	struct scsi_common common;
	const struct scsi_op *o;

	scsi_common_init(&common);
	o = scsi__op_find(&common, op, 0);
	memset(cdb, 0, 16);
	cdb[0] = op;
	switch (o != NULL ? o->len : 16) {
	case 10:
		put_be32(cdb + 2, (uint32_t)lba);
		put_be16(cdb + 7, (uint16_t)blocks);
		break;
	case 12:
		put_be32(cdb + 2, (uint32_t)lba);
		put_be32(cdb + 6, blocks);
		break;
	case 16:
		put_be64(cdb + 2, lba);
		put_be32(cdb + 10, blocks);
		break;
	}
}

/* Every size of CDB writes and reads the same blocks. */
TEST(scsi_block, round_trip)
{
	static const uint8_t writes[] = { 0x2a, 0xaa, 0x8a, 0x2e, 0xae, 0x8e };
	static const uint8_t reads[] = { 0x28, 0xa8, 0x88 };
	uint8_t out[4096 * 9], in[4096 * 9], cdb[16];

	for (unsigned s = 0; s < 2; s++) {
		struct rig *r = rig_open(sizes[s]);
		size_t len = 9 * r->block;

		for (unsigned i = 0; i < ARRAY_LEN(writes); i++) {
			for (size_t j = 0; j < len; j++)
				out[j] = (uint8_t)(j / 7 + i * 31);
			cdb_of(cdb, writes[i], 3 + i, 9);
			CHECK_EQ(rig_do(r, 0, cdb, out, len, NULL, 0), GOOD);
			cdb_of(cdb, reads[i % 3], 3 + i, 9);
			CHECK_EQ(rig_do(r, 1, cdb, NULL, 0, in, len), GOOD);
			CHECK_EQ(rig_got, len);
			CHECK_EQ(memcmp(in, out, len), 0);
		}
		rig_close(r);
	}
}

/* RARC asks for nothing without a rebuild assist mode; its neighbours do. */
TEST(scsi_block, rebuild_assist)
{
	static const uint8_t reads[] = { 0x28, 0xa8, 0x88 };
	struct rig *r = rig_open(512);
	uint8_t buf[512], cdb[16];

	for (unsigned i = 0; i < ARRAY_LEN(reads); i++) {
		cdb_of(cdb, reads[i], 0, 1);
		cdb[1] = 0x04;
		CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, buf, 512), GOOD);
		cdb[1] = 0x06;
		CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, buf, 512), INVALID_CDB);
		/* What is ignored is not in the usage map. */
		CHECK_EQ(rig_do(r, 0,
				CDB(0xa3, 0x0c, 1, reads[i], 0, 0, 0, 0, 0, 64),
				NULL, 0, buf, 64),
			 GOOD);
		CHECK_EQ(buf[4 + 1], 0x18);
	}
	cdb_of(cdb, 0x8a, 0, 1);
	cdb[1] = 0x04;
	CHECK_EQ(rig_do(r, 0, cdb, buf, 512, NULL, 0), INVALID_CDB);
	rig_close(r);
}

/* The six-byte forms: length 0 is 256, addresses have 21 bits. */
TEST(scsi_block, six_bytes)
{
	struct rig *r = rig_open(512);
	uint8_t *buf = malloc(256 * 512);

	memset(buf, 0x5a, 256 * 512);
	CHECK_EQ(rig_do(r, 0, CDB(0x0a, 0, 1, 0, 0), buf, 256 * 512, NULL, 0),
		 GOOD);
	CHECK_EQ(rig_read(r, 0, 256, 256, 0x5a), GOOD);
	CHECK_EQ(rig_do(r, 0, CDB(0x08, 0x1f, 0xff, 0xff, 1), NULL, 0, buf,
			512),
		 RANGE);
	CHECK_EQ(rig_do(r, 0, CDB(0x08, 0x20, 0, 0, 1), NULL, 0, buf, 512),
		 INVALID_CDB);
	free(buf);
	rig_close(r);
}

/* LBA plus length never wraps; nothing is touched beyond the end. */
TEST(scsi_block, ranges)
{
	static const uint8_t ops[] = { 0x88, 0x8a, 0x8e, 0x8f, 0x8b,
				       0x90, 0x91, 0x93, 0x9c, 0x89 };
	static const uint64_t far[] = { 1ull << 31, 1ull << 32, 1ull << 63,
					UINT64_MAX, UINT64_MAX - 1 };
	uint8_t cdb[16], buf[2 * 4096] = { 0 };
	struct rig_cmd rc;

	for (unsigned s = 0; s < 2; s++) {
		struct rig *r = rig_open(sizes[s]);
		uint64_t end = RIG_BYTES / r->block;

		for (unsigned i = 0; i < ARRAY_LEN(ops); i++) {
			size_t len = ops[i] == 0x89 ? 2 * r->block : r->block;

			for (unsigned j = 0; j <= ARRAY_LEN(far); j++) {
				uint64_t lba =
					j < ARRAY_LEN(far) ? far[j] : end;

				cdb_of(cdb, ops[i], lba, 1);
				cdb[13] = 1;
				CHECK_EQ(rig_do(r, 0, cdb, buf, len, NULL, 0),
					 RANGE);
			}
			cdb_of(cdb, ops[i], end - 1, 1);
			cdb[13] = 1;
			CHECK_EQ(rig_do(r, 0, cdb, buf, len, NULL, 0) == RANGE,
				 0);
			cdb_of(cdb, ops[i], end + 1, 0);
			cdb[13] = 0;
			CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, NULL, 0), RANGE);
		}
		/* The first address that is none is told. */
		cdb_of(cdb, 0x88, end - 1, 2);
		rig_begin(r, &rc, 0, cdb, NULL, 0, 2 * r->block, SCSI_SIMPLE,
			  false);
		CHECK_EQ(rc.answer, RANGE);
		CHECK_EQ(get_be32(rc.cmd.sense + 3), end);
		rig_end(&rc);
		cdb_of(cdb, 0x88, end - 1, UINT32_MAX);
		CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, buf, 512), RANGE);
		/* No blocks at all, in and right behind the end. */
		cdb_of(cdb, 0x88, end, 0);
		CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, NULL, 0), GOOD);
		/* More than we take at once. */
		cdb_of(cdb, 0x88, 0, (16u << 20) / r->block + 1);
		CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, buf, 512), INVALID_CDB);
		rig_close(r);
	}
}

/* The initiator offers or takes less than the CDB says. */
TEST(scsi_block, residuals)
{
	struct rig *r = rig_open(4096);
	uint8_t buf[8192], cdb[16];
	struct rig_cmd rc;

	CHECK_EQ(rig_write(r, 0, 0, 2, 0x11), GOOD);
	memset(buf, 0x22, sizeof(buf));
	cdb_of(cdb, 0x2a, 0, 2);
	CHECK_EQ(rig_do(r, 0, cdb, buf, 512, NULL, 0), GOOD);
	cdb_of(cdb, 0x28, 0, 2);
	CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, buf, 600), GOOD);
	CHECK_EQ(rig_got, 600);
	CHECK_EQ(buf[511], 0x22);
	CHECK_EQ(buf[512], 0x11);
	/* What is verified is what was written. */
	memset(buf, 0x33, sizeof(buf));
	cdb_of(cdb, 0x2e, 0, 2);
	cdb[1] = 2;
	CHECK_EQ(rig_do(r, 0, cdb, buf, 512, NULL, 0), GOOD);
	/* Not whole sectors: said, not done.  Nothing: good, and nothing done. */
	cdb_of(cdb, 0x2a, 0, 2);
	rig_begin(r, &rc, 0, cdb, buf, 200, 0, SCSI_SIMPLE, false);
	CHECK_EQ(rc.answer, RIG_SENSE(5, 0x0e, 3));
	CHECK_EQ(rc.cmd.transfer_len, 8192); /* so the overflow is told */
	rig_end(&rc);
	CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, NULL, 0), GOOD);
	CHECK_EQ(rig_read(r, 0, 1, 1, 0x11), GOOD);
	/* A read with the W bit moves nothing and is good. */
	cdb_of(cdb, 0x28, 0, 1);
	CHECK_EQ(rig_do(r, 0, cdb, buf, 4096, NULL, 0), GOOD);
	CHECK_EQ(rig_got, 0);
	rig_close(r);
}

TEST(scsi_block, compare_and_write)
{
	struct rig *r = rig_open(512);
	uint8_t cdb[16], buf[1024 * 3];
	struct rig_cmd rc;

	memset(buf, 0, 1536);
	memset(buf + 1536, 0x77, 1536);
	cdb_of(cdb, 0x89, 5, 0);
	cdb[13] = 3;
	/* What was never written compares as zeros. */
	CHECK_EQ(rig_do(r, 0, cdb, buf, 3072, NULL, 0), GOOD);
	CHECK_EQ(rig_read(r, 1, 5, 3, 0x77), GOOD);
	/* Again: differs; the first differing byte is told. */
	memset(buf, 0x77, 1536);
	buf[1001] = 0x78;
	rig_begin(r, &rc, 0, cdb, buf, 3072, 0, SCSI_SIMPLE, false);
	CHECK(memenv_run(&r->me, &rc.done));
	CHECK_EQ(rc.answer, RIG_SENSE(0xe, 0x1d, 0));
	CHECK_EQ(rc.cmd.sense[0], 0xf0);
	CHECK_EQ(get_be32(rc.cmd.sense + 3), 1001);
	rig_end(&rc);
	/* Wrong amounts of data are refused before anything happens. */
	CHECK_EQ(rig_do(r, 0, cdb, buf, 1536, NULL, 0), INVALID_CDB);
	CHECK_EQ(rig_do(r, 0, cdb, buf, 2560, NULL, 0), INVALID_CDB);
	cdb[13] = 2;
	CHECK_EQ(rig_do(r, 0, cdb, buf, 3072, NULL, 0), INVALID_CDB);
	CHECK_EQ(rig_read(r, 1, 5, 3, 0x77), GOOD);
	cdb[13] = 0;
	CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, NULL, 0), GOOD);
	rig_close(r);
}

TEST(scsi_block, verify)
{
	struct rig *r = rig_open(512);
	uint8_t buf[2048], cdb[16];

	CHECK_EQ(rig_write(r, 0, 8, 4, 0x42), GOOD);
	memset(buf, 0x42, sizeof(buf));
	cdb_of(cdb, 0x2f, 8, 4);
	CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, NULL, 0), GOOD);
	cdb[1] = 2; /* compare all */
	CHECK_EQ(rig_do(r, 0, cdb, buf, 2048, NULL, 0), GOOD);
	cdb[1] = 6; /* compare each with one block */
	CHECK_EQ(rig_do(r, 0, cdb, buf, 512, NULL, 0), GOOD);
	buf[511]++;
	CHECK_EQ(rig_do(r, 0, cdb, buf, 512, NULL, 0), RIG_SENSE(0xe, 0x1d, 0));
	cdb[1] = 2;
	CHECK_EQ(rig_do(r, 0, cdb, buf, 2048, NULL, 0),
		 RIG_SENSE(0xe, 0x1d, 0));
	cdb[1] = 4;
	CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, NULL, 0), INVALID_CDB);
	cdb[1] = 0x22; /* protection */
	CHECK_EQ(rig_do(r, 0, cdb, buf, 2048, NULL, 0), INVALID_CDB);
	/* The medium is read: a bad checksum is found. */
	fake_dom_fault(r->dom, (struct fake_fault){ .ops = FAKE_READ,
						    .times = 1,
						    .status = -EBADMSG,
						    .bad_offset = 9 * 512 });
	cdb[1] = 0;
	CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, NULL, 0), RIG_SENSE(3, 0x11, 0));
	/* And so it is after a write. */
	fake_dom_fault(r->dom, (struct fake_fault){ .ops = FAKE_READ,
						    .times = 1,
						    .status = -EBADMSG,
						    .bad_offset = 9 * 512 });
	cdb_of(cdb, 0x2e, 8, 4);
	CHECK_EQ(rig_do(r, 0, cdb, buf, 2048, NULL, 0), RIG_SENSE(3, 0x11, 0));
	rig_close(r);
}

/* What is long goes in steps: each is compared with its part of the data. */
TEST(scsi_block, verify_in_steps)
{
	enum { BLOCKS = 400 };
	static uint8_t buf[BLOCKS * 512];
	struct rig *r = rig_open(512);
	struct rig_cmd rc;
	uint8_t cdb[16];

	for (unsigned i = 0; i < sizeof(buf); i++)
		buf[i] = (uint8_t)(i / 512 + i);
	cdb_of(cdb, 0x2e, 8, BLOCKS);
	cdb[1] = 2;
	CHECK_EQ(rig_do(r, 0, cdb, buf, sizeof(buf), NULL, 0), GOOD);
	cdb[0] = 0x2f;
	CHECK_EQ(rig_do(r, 0, cdb, buf, sizeof(buf), NULL, 0), GOOD);
	buf[BLOCKS * 512 - 3]++;
	rig_begin(r, &rc, 0, cdb, buf, sizeof(buf), 0, SCSI_SIMPLE, false);
	CHECK(memenv_run(&r->me, &rc.done));
	CHECK_EQ(rc.answer, RIG_SENSE(0xe, 0x1d, 0));
	CHECK_EQ(rc.cmd.sense[0], 0xf0); /* INFORMATION: where it differs */
	CHECK_EQ(get_be32(rc.cmd.sense + 3), BLOCKS * 512 - 3);
	rig_end(&rc);
	rig_close(r);
}

TEST(scsi_block, orwrite_and_atomic)
{
	struct rig *r = rig_open(512);
	uint8_t buf[4096], cdb[16];

	CHECK_EQ(rig_write(r, 0, 0, 8, 0x0f), GOOD);
	memset(buf, 0xf0, sizeof(buf));
	cdb_of(cdb, 0x8b, 0, 8);
	CHECK_EQ(rig_do(r, 0, cdb, buf, 4096, NULL, 0), GOOD);
	CHECK_EQ(rig_read(r, 0, 0, 8, 0xff), GOOD);
	cdb_of(cdb, 0x8b, 0, 0);
	CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, NULL, 0), GOOD);
	CHECK_EQ(rig_read(r, 0, 0, 8, 0xff), GOOD);
	memset(cdb, 0, 16);
	cdb[0] = 0x9c;
	put_be16(cdb + 12, 8);
	CHECK_EQ(rig_do(r, 0, cdb, buf, 4096, NULL, 0), GOOD);
	CHECK_EQ(rig_read(r, 0, 0, 8, 0xf0), GOOD);
	/* It, and no other write, is one that dom shall do as a whole. */
	fake_dom_fault(r->dom, (struct fake_fault){ .ops = FAKE_ATOMIC,
						    .times = 1,
						    .status = -ENOSPC });
	CHECK_EQ(rig_write(r, 0, 0, 8, 0xf0), GOOD);
	CHECK_EQ(rig_do(r, 0, cdb, buf, 4096, NULL, 0), RIG_SENSE(7, 0x27, 7));
	put_be16(cdb + 10, 4); /* boundary */
	CHECK_EQ(rig_do(r, 0, cdb, buf, 4096, NULL, 0), INVALID_CDB);
	put_be16(cdb + 10, 0);
	put_be16(cdb + 12, (1 << 20) / 512 + 1);
	CHECK_EQ(rig_do(r, 0, cdb, buf, 4096, NULL, 0), INVALID_CDB);
	rig_close(r);
}

/* What we say that a command takes is what it takes, and no block more. */
TEST(scsi_block, limits_that_are_told)
{
	uint8_t *buf = calloc(2, 1u << 20);

	for (unsigned s = 0; s < 2; s++) {
		struct rig *r = rig_open(sizes[s]);
		uint8_t b0[64], usage[32], cdb[16] = { 0x9c };
		uint32_t most;

		CHECK_EQ(rig_do(r, 0, CDB(0x12, 1, 0xb0, 0, 64), NULL, 0, b0,
				64),
			 GOOD);
		most = get_be32(b0 + 44);
		put_be16(cdb + 12, (uint16_t)most);
		CHECK_EQ(rig_do(r, 0, cdb, buf, (size_t)most * r->block, NULL,
				0),
			 GOOD);
		put_be16(cdb + 12, (uint16_t)(most + 1));
		CHECK_EQ(rig_do(r, 0, cdb, buf, (size_t)(most + 1) * r->block,
				NULL, 0),
			 INVALID_CDB);
		memset(cdb, 0, sizeof(cdb));
		cdb[0] = 0x89;
		cdb[13] = b0[5];
		CHECK_EQ(rig_do(r, 0, cdb, buf, 2 * (size_t)b0[5] * r->block,
				NULL, 0),
			 GOOD);
		/* ORWRITE has no field of its own: the map of its CDB has. */
		most = (1u << 20) / r->block;
		cdb_of(cdb, 0x8b, 0, most);
		CHECK_EQ(rig_do(r, 0, cdb, buf, 1u << 20, NULL, 0), GOOD);
		cdb_of(cdb, 0x8b, 0, most + 1);
		CHECK_EQ(rig_do(r, 0, cdb, buf, (1u << 20) + r->block, NULL, 0),
			 INVALID_CDB);
		CHECK_EQ(rig_do(r, 0,
				CDB(0xa3, 0x0c, 1, 0x8b, 0, 0, 0, 0, 0, 32),
				NULL, 0, usage, 32),
			 GOOD);
		CHECK_EQ(get_be32(usage + 4 + 10), (1u << 20) / 512 * 2 - 1);
		rig_close(r);
	}
	free(buf);
}

/* The status that GET LBA STATUS has for @lba. */
static unsigned status_of(struct rig *r, uint64_t lba)
{
	uint8_t cdb[16], in[24];

	cdb_of(cdb, 0x9e, lba, 24);
	cdb[1] = 0x12;
	CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, in, 24), GOOD);
	return in[20] & 0x0f;
}

TEST(scsi_block, write_same)
{
	uint8_t block[2 * 4096], cdb[16];

	for (unsigned s = 0; s < 2; s++) {
		struct rig *r = rig_open(sizes[s]);
		uint32_t max = scsi__write_same_max(r->block);

		/* More than one step, from an odd block on. */
		memset(block, 0x99, sizeof(block));
		cdb_of(cdb, 0x93, 3, (9u << 20) / r->block);
		CHECK_EQ(rig_do(r, 0, cdb, block, r->block, NULL, 0), GOOD);
		CHECK_EQ(rig_read(r, 0, 3, 64, 0x99), GOOD);
		CHECK_EQ(rig_read(r, 0, 2 + (9u << 20) / r->block, 1, 0x99),
			 GOOD);
		CHECK_EQ(rig_read(r, 0, 0, 3, 0), GOOD);
		CHECK_EQ(rig_read(r, 0, 3 + (9u << 20) / r->block, 1, 0), GOOD);
		/* UNMAP of something that does not read as zeros: written. */
		cdb[1] = 8;
		put_be32(cdb + 10, 16);
		CHECK_EQ(rig_do(r, 0, cdb, block, r->block, NULL, 0), GOOD);
		CHECK_EQ(rig_read(r, 0, 3, 16, 0x99), GOOD);
		memset(block, 0, sizeof(block));
		CHECK_EQ(rig_do(r, 0, cdb, block, r->block, NULL, 0), GOOD);
		CHECK_EQ(rig_read(r, 0, 3, 16, 0), GOOD);
		/* Zeros are written, if it is not said that they need not. */
		cdb_of(cdb, 0x93, 64, 16);
		CHECK_EQ(rig_do(r, 0, cdb, block, r->block, NULL, 0), GOOD);
		CHECK_EQ(status_of(r, 64), 0);
		cdb[1] = 8;
		CHECK_EQ(rig_do(r, 0, cdb, block, r->block, NULL, 0), GOOD);
		CHECK_EQ(status_of(r, 64), 1);
		cdb_of(cdb, 0x93, 3, 16);
		/* NDOB: no data, zeros. */
		cdb[1] = 1;
		put_be32(cdb + 10, 32);
		CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, NULL, 0), GOOD);
		CHECK_EQ(rig_read(r, 0, 3, 32, 0), GOOD);
		CHECK_EQ(rig_do(r, 0, cdb, block, r->block, NULL, 0),
			 INVALID_CDB);
		/* ANCHOR, no blocks, too many, too much data. */
		cdb[1] = 0x10;
		CHECK_EQ(rig_do(r, 0, cdb, block, r->block, NULL, 0),
			 INVALID_CDB);
		cdb[1] = 0x18;
		CHECK_EQ(rig_do(r, 0, cdb, block, r->block, NULL, 0),
			 INVALID_CDB);
		cdb_of(cdb, 0x93, 3, 0);
		CHECK_EQ(rig_do(r, 0, cdb, block, r->block, NULL, 0),
			 INVALID_CDB);
		cdb_of(cdb, 0x93, 0, max + 1);
		CHECK(rig_do(r, 0, cdb, block, r->block, NULL, 0) != GOOD);
		cdb_of(cdb, 0x93, 3, 4);
		CHECK_EQ(rig_do(r, 0, cdb, block, r->block - 1, NULL, 0),
			 INVALID_CDB);
		CHECK_EQ(rig_do(r, 0, cdb, block, 2 * r->block, NULL, 0),
			 INVALID_CDB);
		CHECK_EQ(rig_do(r, 0, CDB(0x41, 1, 0, 0, 0, 0, 0, 0, 1), block,
				r->block, NULL, 0),
			 INVALID_CDB); /* (10) has no NDOB */
		rig_close(r);
	}
}

static size_t unmap_list(uint8_t *p, unsigned n, const uint64_t *lba,
			 const uint32_t *blocks)
{
	memset(p, 0, 8);
	put_be16(p, (uint16_t)(6 + 16 * n));
	put_be16(p + 2, (uint16_t)(16 * n));
	for (unsigned i = 0; i < n; i++) {
		memset(p + 8 + 16 * i, 0, 16);
		put_be64(p + 8 + 16 * i, lba[i]);
		put_be32(p + 16 + 16 * i, blocks[i]);
	}
	return 8 + 16 * n;
}

static unsigned do_unmap(struct rig *r, const uint8_t *list, size_t len)
{
	uint8_t cdb[16] = { 0x42 };

	put_be16(cdb + 7, (uint16_t)len);
	return rig_do(r, 0, cdb, list, len, NULL, 0);
}

/* GET LBA STATUS at @lba, room for one descriptor: where that begins. */
static uint64_t status_first(struct rig *r, uint64_t lba)
{
	uint8_t cdb[16], in[24];

	cdb_of(cdb, 0x9e, lba, 24);
	cdb[1] = 0x12;
	CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, in, 24), GOOD);
	CHECK_EQ(rig_got, 24);
	return get_be64(in + 8);
}

struct timed {
	const char *stage;
	uint64_t count;
};

static void on_times(struct histogram *histogram, void *arg)
{
	struct timed *timed = arg;
	struct histogram_value value;

	histogram_read(histogram, &value);
	if (strcmp(histogram->stage, timed->stage) == 0)
		timed->count = value.count;
}

/* How many times of each stage of a command there are by now. */
static void times_count(uint64_t out[4])
{
	static const char *const stages[] = { "read", "read data", "write",
					      "write data" };

	for (unsigned i = 0; i < ARRAY_LEN(stages); i++) {
		struct timed timed = { .stage = stages[i] };

		histogram_each(on_times, &timed);
		out[i] = timed.count;
	}
}

#define TIMES(before, ...)                                                     \
	do {                                                                   \
		uint64_t now[4], more[] = { __VA_ARGS__ };                     \
                                                                               \
		times_count(now);                                              \
		for (unsigned i = 0; i < 4; i++)                               \
			CHECK_EQ(now[i] - (before)[i], more[i]);               \
	} while (0)

/* Of a write there are two: its data's is no other command's. */
TEST(scsi_block, times)
{
	struct rig *r = rig_open(512);
	uint8_t list[8 + 16] = { 0 };
	uint64_t before[4];
	size_t len = unmap_list(list, 1, (uint64_t[]){ 8 }, (uint32_t[]){ 8 });

	scsi__stats_register();
	times_count(before);
	CHECK_EQ(rig_write(r, 0, 0, 16, 0x33), GOOD);
	TIMES(before, 0, 0, 1, 1);
	CHECK_EQ(rig_read(r, 0, 0, 8, 0x33), GOOD);
	TIMES(before, 1, 1, 1, 1);
	CHECK_EQ(do_unmap(r, list, len), GOOD);
	TIMES(before, 1, 1, 1, 1);
	rig_close(r);
}

/* What an object's initiators did: those that moved nothing as well. */
TEST(scsi_block, usage)
{
	static const struct {
		int status;
		bool failed;
	} t[] = {
		{ -EPERM, false }, { -EBUSY, true },	 { -EBADMSG, true },
		{ -ENXIO, true },  { -ETIMEDOUT, true },
	};
	struct rig *r = rig_open(512);
	uint8_t list[8 + 16] = { 0 };
	size_t len = unmap_list(list, 1, (uint64_t[]){ 8 }, (uint32_t[]){ 8 });
	struct histogram_value reads, writes;
	const struct scsi_usage *u = r->usage;
	uint64_t failed = 0;

	CHECK_EQ(rig_write(r, 0, 0, 16, 0x33), GOOD);
	CHECK_EQ(rig_write(r, 1, 16, 1, 0x33), GOOD);
	CHECK_EQ(rig_read(r, 0, 0, 8, 0x33), GOOD);
	CHECK_EQ(do_unmap(r, list, len), GOOD);
	CHECK_EQ(rig_tur(r, 0), GOOD);
	/* Answered before it began: what was asked for is not there. */
	CHECK_EQ(rig_read(r, 0, RIG_BYTES / 512, 1, 0), RANGE);
	CHECK_EQ(u->written_bytes, 17 * 512);
	CHECK_EQ(u->read_bytes, 8 * 512);
	CHECK_EQ(u->unmaps, 1);
	CHECK_EQ(u->failed, 0);

	for (unsigned i = 0; i < ARRAY_LEN(t); i++) {
		fake_dom_fault(r->dom,
			       (struct fake_fault){ .ops = FAKE_ANY,
						    .times = 1,
						    .status = t[i].status });
		CHECK(rig_read(r, 0, 0, 8, 0) != GOOD);
		failed += t[i].failed;
		CHECK_EQ(u->failed, failed);
	}
	histogram_of_read(&u->reads, &reads);
	histogram_of_read(&u->writes, &writes);
	CHECK_EQ(reads.count, 1 + ARRAY_LEN(t));
	CHECK_EQ(writes.count, 2);
	CHECK_EQ(u->read_bytes, 8 * 512);
	rig_close(r);
}

TEST(scsi_block, unmap)
{
	struct rig *r = rig_open(512);
	uint64_t lba[] = { 8, 100, 60 }, far[] = { 0, RIG_BYTES / 512 };
	uint32_t blocks[] = { 16, 0, 3 }, one[] = { 8, 1 };
	uint32_t big[] = { 1u << 20, 1u << 20, 1 }, all[9];
	uint64_t from[9] = { 0 };
	uint8_t list[8 + 16 * 300] = { 0 }, in[24 + 16], cdb[16];
	size_t len;

	CHECK_EQ(rig_write(r, 0, 0, 128, 0x33), GOOD);
	len = unmap_list(list, 3, lba, blocks);
	CHECK_EQ(do_unmap(r, list, len), GOOD);
	CHECK_EQ(rig_read(r, 0, 0, 8, 0x33), GOOD);
	CHECK_EQ(rig_read(r, 0, 8, 16, 0), GOOD);
	CHECK_EQ(rig_read(r, 0, 24, 36, 0x33), GOOD);
	CHECK_EQ(rig_read(r, 0, 60, 3, 0), GOOD); /* part of 4 KiB */
	CHECK_EQ(rig_read(r, 0, 63, 65, 0x33), GOOD);

	/* LBA status sees what became a hole: exactly [8, 24). */
	cdb_of(cdb, 0x9e, 0, 40);
	cdb[1] = 0x12;
	CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, in, 40), GOOD);
	CHECK_EQ(rig_got, 40);
	CHECK_EQ(get_be64(in + 8), 0);
	CHECK_EQ(get_be32(in + 16), 8);
	CHECK_EQ(in[20], 0);
	CHECK_EQ(get_be64(in + 24), 8);
	CHECK_EQ(get_be32(in + 32), 16);
	CHECK_EQ(in[36], 1);

	/* It begins where it is asked to, inside of a physical block too. */
	CHECK_EQ(status_first(r, 10), 10);
	CHECK_EQ(status_first(r, 61), 61);
	CHECK_EQ(status_first(r, 33), 33);
	CHECK_EQ(status_first(r, 24), 24);
	/* But for what libiscsi's suite wants: behind a hole. */
	CHECK_EQ(status_first(r, 25), 32);

	/* One bad range and nothing happens at all. */
	len = unmap_list(list, 2, far, one);
	CHECK_EQ(do_unmap(r, list, len), RANGE);
	CHECK_EQ(rig_read(r, 0, 0, 8, 0x33), GOOD);
	len = unmap_list(list, 3, (uint64_t[]){ 0, 0, 0 }, big);
	CHECK(do_unmap(r, list, len) != GOOD);
	CHECK_EQ(rig_read(r, 0, 0, 8, 0x33), GOOD);

	/* Blocks are counted over all ranges, however they overlap. */
	for (unsigned i = 0; i < ARRAY_LEN(all); i++)
		all[i] = RIG_BYTES / 512;
	CHECK_EQ(scsi__unmap_max(512), 8 * all[0]);
	len = unmap_list(list, 9, from, all);
	CHECK_EQ(do_unmap(r, list, len), RIG_SENSE(5, 0x26, 0));
	CHECK_EQ(rig_read(r, 0, 0, 8, 0x33), GOOD);
	len = unmap_list(list, 8, from, all);
	CHECK_EQ(do_unmap(r, list, len), GOOD);
	CHECK_EQ(rig_read(r, 0, 0, 128, 0), GOOD);

	/* Lists that lie, or are cut. */
	memset(list, 0, sizeof(list));
	CHECK_EQ(do_unmap(r, list, 7), RIG_SENSE(5, 0x1a, 0));
	CHECK_EQ(do_unmap(r, list, 8), GOOD);
	put_be16(list + 2, 0xffff);
	CHECK_EQ(do_unmap(r, list, 8), GOOD);
	CHECK_EQ(do_unmap(r, list, 20), GOOD);
	CHECK_EQ(do_unmap(r, list, 8 + 16 * 257), RIG_SENSE(5, 0x26, 0));
	/* Of a range that is cut nothing is believed. */
	CHECK_EQ(rig_write(r, 0, 0, 8, 0x33), GOOD);
	unmap_list(list, 1, (uint64_t[]){ 0 }, (uint32_t[]){ 8 });
	CHECK_EQ(do_unmap(r, list, 8 + 15), GOOD);
	CHECK_EQ(rig_read(r, 0, 0, 8, 0x33), GOOD);
	CHECK_EQ(do_unmap(r, list, 8 + 16), GOOD);
	CHECK_EQ(rig_read(r, 0, 0, 8, 0), GOOD);
	CHECK_EQ(rig_do(r, 0, CDB(0x42), NULL, 0, NULL, 0), GOOD);
	CHECK_EQ(rig_do(r, 0, CDB(0x42, 1), NULL, 0, NULL, 0), INVALID_CDB);
	rig_close(r);
}

/* Which block it is, as the host counts them. */
TEST(scsi_block, a_bad_block_is_named)
{
	for (unsigned s = 0; s < ARRAY_LEN(sizes); s++) {
		struct rig *r = rig_open(sizes[s]);
		struct rig_cmd rc;
		uint8_t cdb[16];

		cdb_of(cdb, 0x28, 2, 8);
		fake_dom_fault(r->dom, (struct fake_fault){
					       .ops = FAKE_READ,
					       .times = 1,
					       .status = -EBADMSG,
					       .bad_offset = 5 * sizes[s] });
		rig_begin(r, &rc, 0, cdb, NULL, 0, 8 * sizes[s], SCSI_SIMPLE,
			  false);
		CHECK(memenv_run(&r->me, &rc.done));
		CHECK_EQ(rc.answer, RIG_SENSE(3, 0x11, 0));
		CHECK_EQ(rc.cmd.sense[0], 0xf0);
		CHECK_EQ(get_be32(rc.cmd.sense + 3), 5);
		rig_end(&rc);
		rig_close(r);
	}
}

/* A descriptor has 32 bits for its length: a longer hole is in several. */
TEST(scsi_block, status_of_a_large_hole)
{
	static const uint8_t cdb[16] = { 0x9e, 0x12, [13] = 8 + 3 * 16 };
	struct rig *r = rig_open(512);
	uint64_t next = 0, blocks = 10ull << 30; /* 5 TiB */
	uint8_t in[8 + 3 * 16];

	CHECK_EQ(rig_lun(r, 1, blocks * 512, false), 0);
	r->lun = 1;
	while (rig_tur(r, 0) != GOOD)
		;
	CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, in, sizeof(in)), GOOD);
	CHECK_EQ(rig_got, sizeof(in));
	for (unsigned i = 8; i < sizeof(in); i += 16) {
		CHECK_EQ(get_be64(in + i), next);
		CHECK_EQ(in[i + 12], 1);
		next += get_be32(in + i + 8);
	}
	CHECK_EQ(next, blocks);
	r->lun = 0;
	rig_close(r);
}

/* What dom says and what the initiator hears. */
TEST(scsi_block, faults)
{
	static const struct {
		int status;
		unsigned read, write;
	} t[] = {
		{ -EPERM, RIG_STATUS(SCSI_RESERVATION_CONFLICT),
		  RIG_STATUS(SCSI_RESERVATION_CONFLICT) },
		{ -EBUSY, RIG_STATUS(SCSI_BUSY), RIG_STATUS(SCSI_BUSY) },
		{ -ENOSPC, 0, RIG_SENSE(7, 0x27, 7) },
		{ -EROFS, 0, RIG_SENSE(7, 0x27, 0) },
		{ -EBADMSG, RIG_SENSE(3, 0x11, 0), 0 },
		{ -EIO, RIG_SENSE(3, 0x11, 0), RIG_SENSE(3, 0x0c, 0) },
		{ -ENXIO, RIG_SENSE(2, 4, 0x0a), RIG_SENSE(2, 4, 0x0a) },
		{ -ENODEV, RIG_SENSE(2, 4, 0x0a), RIG_SENSE(2, 4, 0x0a) },
		{ -ETIMEDOUT, RIG_STATUS(SCSI_BUSY), RIG_SENSE(0xb, 8, 1) },
		{ -ENOENT, RIG_SENSE(5, 0x25, 0), RIG_SENSE(5, 0x25, 0) },
		{ -EUCLEAN, RIG_SENSE(0xb, 0x44, 0), RIG_SENSE(0xb, 0x44, 0) },
	};
	struct rig *r = rig_open(512);

	for (unsigned i = 0; i < ARRAY_LEN(t); i++)
		for (unsigned once = 0; once < 2; once++) {
			struct fake_fault f = { .ops = FAKE_ANY,
						.times = 1,
						.at_once = once,
						.status = t[i].status };

			if (t[i].read != 0) {
				fake_dom_fault(r->dom, f);
				CHECK_EQ(rig_read(r, 0, 0, 8, 0), t[i].read);
			}
			if (t[i].write != 0) {
				fake_dom_fault(r->dom, f);
				CHECK_EQ(rig_write(r, 0, 0, 8, 1), t[i].write);
			}
		}
	CHECK_EQ(rig_read(r, 0, 0, 8, 0), GOOD);
	rig_close(r);
}

/* Fail the Nth call to dom of every long command: it ends, nothing leaks. */
TEST(scsi_block, every_step_fails)
{
	struct rig *r = rig_open(512);
	uint8_t block[512] = { 1 }, list[24], cdb[16], in[64];
	uint64_t lba = 0;
	uint32_t blocks = RIG_BYTES / 512;
	size_t len = unmap_list(list, 1, &lba, &blocks);

	for (unsigned n = 0; n < 8; n++)
		for (unsigned once = 0; once < 2; once++) {
			struct fake_fault f = { .ops = FAKE_ANY,
						.skip = n,
						.times = 1,
						.at_once = once,
						.status = -EIO };

			fake_dom_fault(r->dom, f);
			cdb_of(cdb, 0x93, 1, 60000);
			rig_do(r, 0, cdb, block, 512, NULL, 0);
			fake_dom_fault(r->dom, f);
			do_unmap(r, list, len);
			fake_dom_fault(r->dom, f);
			cdb_of(cdb, 0x8f, 0, 32768);
			rig_do(r, 0, cdb, NULL, 0, NULL, 0);
			fake_dom_fault(r->dom, f);
			cdb_of(cdb, 0x9e, 0, 64);
			cdb[1] = 0x12;
			rig_do(r, 0, cdb, NULL, 0, in, 64);
			fake_dom_fault(r->dom, (struct fake_fault){ 0 });
		}
	rig_close(r);
}

/*
 * Any CDB with any data is answered, once, and nothing leaks.  The opcodes are
 * those of the table, the fields random.
 */
TEST(scsi_block, random_commands)
{
	struct rig *r = rig_open(512);
	uint64_t x = 88172645463325252ull;
	uint8_t cdb[16], *buf = malloc(1 << 16);

	for (unsigned i = 0; i < 60000; i++) {
		const struct scsi_op *op = &scsi__ops[i % scsi__ops_count];
		size_t out, in;

		for (unsigned j = 0; j < 16; j++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			/* Mostly bits that mean something, and few of them. */
			cdb[j] = (uint8_t)(x & (x >> 8) & (x >> 16) &
					   (i & 1 ? 0xff : op->usage[j]));
		}
		for (unsigned j = 0; j < 64; j++)
			buf[j] = (uint8_t)(x >> j % 57);
		cdb[0] = op->opcode;
		if (op->sa >= 0)
			cdb[1] = (uint8_t)((cdb[1] & 0xe0) | op->sa);
		if (op->opcode == 0x48 && op->sa < 4)
			continue; /* takes its time; see iscsi_lun.c */
		out = (x >> 20) % 3 == 0 ? (x >> 24) % 65536 : 0;
		in = out == 0 ? (x >> 24) % 65536 : 0;
		rig_do(r, i % 2, cdb, buf, out, buf, in);
	}
	free(buf);
	rig_close(r);
}
