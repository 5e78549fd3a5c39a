/* PDU shapes: additional headers, numbering, residuals. */
#include "iscsi/iscsi_int.h"
#include "tests/lib/test.h"

static uint8_t cdb[SCSI_CDB_MAX];
static unsigned cdb_len;
static bool bidi;

static int ahs(const void *bytes, unsigned len)
{
	cdb_len = 16;
	return iscsi__ahs_parse(bytes, len, cdb, &cdb_len, &bidi);
}

TEST(iscsi_pdu, ahs_extended_cdb)
{
	const uint8_t good[] = { 0, 5, 1, 0, 0xa, 0xb, 0xc, 0xd };

	CHECK_EQ(ahs(good, sizeof(good)), 0);
	CHECK_EQ(cdb_len, 20);
	CHECK_EQ(cdb[16], 0xa);
	CHECK_EQ(cdb[19], 0xd);
	CHECK(!bidi);
}

TEST(iscsi_pdu, ahs_longest_cdb)
{
	uint8_t longest[252] = { 0, 245, 1, 0 };

	CHECK_EQ(ahs(longest, 248), 0);
	CHECK_EQ(cdb_len, 260);
	longest[1] = 246; /* one byte more than a CDB may have */
	CHECK_EQ(ahs(longest, 252), -EPROTO);
}

TEST(iscsi_pdu, ahs_bidirectional)
{
	const uint8_t both[] = {
		0, 5, 2, 0, 0, 0, 2, 0, 0, 2, 1, 0, 9, 0, 0, 0
	};

	CHECK_EQ(ahs(both, 8), 0);
	CHECK(bidi);
	CHECK_EQ(ahs(both, 16), 0);
	CHECK_EQ(cdb_len, 17);
}

TEST(iscsi_pdu, ahs_malformed)
{
	const uint8_t zero[] = { 0, 0, 1, 0 };
	const uint8_t past[] = { 0, 9, 1, 0, 0, 0, 0, 0 };
	const uint8_t cut[] = { 0, 5 };
	const uint8_t twice[] = {
		0, 2, 1, 0, 1, 0, 0, 0, 0, 2, 1, 0, 1, 0, 0, 0
	};
	const uint8_t alien[] = { 0, 1, 7, 0 };
	const uint8_t huge[] = { 0xff, 0xff, 1, 0, 0, 0, 0, 0 };

	CHECK_EQ(ahs(zero, sizeof(zero)), -EPROTO);
	CHECK_EQ(ahs(past, sizeof(past)), -EPROTO);
	CHECK_EQ(ahs(cut, sizeof(cut)), -EPROTO);
	CHECK_EQ(ahs(twice, sizeof(twice)), -EPROTO);
	CHECK_EQ(ahs(alien, sizeof(alien)), -EPROTO);
	CHECK_EQ(ahs(huge, sizeof(huge)), -EPROTO);
}

TEST(iscsi_pdu, serial_numbers_wrap)
{
	CHECK(sn_lt(0xffffffff, 0));
	CHECK(sn_lt(0xfffffff0, 5));
	CHECK(!sn_lt(5, 0xfffffff0));
	CHECK(sn_le(7, 7));
}

TEST(iscsi_pdu, cmdsn_window)
{
	CHECK_EQ(iscsi__cmdsn_place(10, 10, 20), 0);
	CHECK_EQ(iscsi__cmdsn_place(11, 10, 20), 1);
	CHECK_EQ(iscsi__cmdsn_place(20, 10, 20), 1);
	CHECK_EQ(iscsi__cmdsn_place(21, 10, 20), -1);
	CHECK_EQ(iscsi__cmdsn_place(9, 10, 20), -1);
	/* over the wrap */
	CHECK_EQ(iscsi__cmdsn_place(0xffffffff, 0xffffffff, 3), 0);
	CHECK_EQ(iscsi__cmdsn_place(2, 0xffffffff, 3), 1);
	CHECK_EQ(iscsi__cmdsn_place(4, 0xffffffff, 3), -1);
	/* a closed window takes nothing, the next one neither */
	CHECK_EQ(iscsi__cmdsn_place(10, 10, 9), -1);
	/* nor does one that is closed, or nearly, what lies half the numbers off */
	CHECK_EQ(iscsi__cmdsn_place(10 + (1u << 31), 10, 9), -1);
	CHECK_EQ(iscsi__cmdsn_place(10 + (1u << 31), 10, 10), -1);
	CHECK_EQ(iscsi__cmdsn_place(9 + (1u << 31), 10, 8), -1);
}

/* Whichever byte an initiator counts in, few of its tags share a bucket. */
TEST(iscsi_pdu, tags_spread)
{
	for (unsigned shift = 0; shift <= 24; shift += 8) {
		unsigned in[ISCSI_ITT_BUCKETS] = { 0 };

		for (uint32_t i = 0; i < 128; i++) {
			unsigned b = iscsi_itt_bucket(0x80u | i << shift);

			CHECK(b < ISCSI_ITT_BUCKETS);
			in[b]++;
			CHECK(in[b] <= 5);
		}
	}
}

static uint32_t count;

static uint8_t residual(enum scsi_dir expect, uint32_t edtl, enum scsi_dir dir,
			uint64_t wanted, uint64_t moved)
{
	return iscsi__residual(expect, edtl, dir, wanted, moved, &count);
}

TEST(iscsi_pdu, residuals)
{
	/* exact */
	CHECK_EQ(residual(SCSI_DIR_IN, 512, SCSI_DIR_IN, 512, 512), 0);
	CHECK_EQ(count, 0);
	/* READ of a block with no room, with too little, with too much */
	CHECK_EQ(residual(SCSI_DIR_IN, 0, SCSI_DIR_IN, 512, 0),
		 ISCSI_RESIDUAL_O);
	CHECK_EQ(count, 512);
	CHECK_EQ(residual(SCSI_DIR_IN, 200, SCSI_DIR_IN, 512, 200),
		 ISCSI_RESIDUAL_O);
	CHECK_EQ(count, 312);
	CHECK_EQ(residual(SCSI_DIR_IN, 10000, SCSI_DIR_IN, 512, 512),
		 ISCSI_RESIDUAL_U);
	CHECK_EQ(count, 9488);
	/* a write that is short */
	CHECK_EQ(residual(SCSI_DIR_OUT, 512, SCSI_DIR_OUT, 1024, 0),
		 ISCSI_RESIDUAL_O);
	CHECK_EQ(count, 512);
	/* CHECK CONDITION: nothing moved */
	CHECK_EQ(residual(SCSI_DIR_IN, 4096, SCSI_DIR_NONE, 0, 0),
		 ISCSI_RESIDUAL_U);
	CHECK_EQ(count, 4096);
	/* a read sent as a write */
	CHECK_EQ(residual(SCSI_DIR_OUT, 512, SCSI_DIR_IN, 512, 0),
		 ISCSI_RESIDUAL_U);
	CHECK_EQ(count, 512);
	CHECK_EQ(residual(SCSI_DIR_OUT, 0, SCSI_DIR_IN, 512, 0), 0);
	CHECK_EQ(count, 0);
	/* a length without a direction does not count */
	CHECK_EQ(residual(SCSI_DIR_NONE, 4096, SCSI_DIR_NONE, 0, 0), 0);
	/* more than a field holds */
	CHECK_EQ(residual(SCSI_DIR_IN, 0, SCSI_DIR_IN, 1ull << 40, 0),
		 ISCSI_RESIDUAL_O);
	CHECK_EQ(count, UINT32_MAX);
}
