/* iSER headers and private data. */
#include "base/util.h"
#include "iser/wire.h"
#include "tests/lib/test.h"

#include <errno.h>

static uint8_t head[ISER_FIXED_LEN];
static struct iser_message m;

/* A SCSI Command: @flags of its BHS, @edtl bytes, @imm of them with it. */
static void command(uint8_t first, uint8_t flags, uint32_t edtl, uint32_t imm)
{
	memset(head, 0, sizeof(head));
	head[0] = first;
	put_be32(head + 4, 0x11223344);
	put_be64(head + 8, 0x0102030405060708);
	put_be32(head + 16, 0x55667788);
	put_be64(head + 20, 0x1112131415161718);
	head[28] = ISCSI_OP_COMMAND;
	head[29] = flags;
	put_be24(head + 33, imm);
	put_be32(head + 48, edtl);
}

#define READ (ISCSI_FINAL | 0x40)
#define WRITE (ISCSI_FINAL | 0x20)

/* The offsets of the 28-byte header: 64-bit fields stand at 8 and at 20. */
TEST(iser_wire, stags)
{
	command(0x1c, WRITE, 65536, 8192);
	CHECK_EQ(iser__message_parse(head, ISER_FIXED_LEN + 8192, &m), 0);
	CHECK_EQ(m.stags.write, 0x11223344);
	CHECK_EQ(m.stags.write_base, 0x0102030405060708);
	CHECK_EQ(m.stags.read, 0x55667788);
	CHECK_EQ(m.stags.read_base, 0x1112131415161718);
	CHECK_EQ(m.stags.immediate_len, 8192);
	CHECK(m.stags.read_valid && m.stags.write_valid);
	CHECK(m.bhs == head + ISER_HEADER_LEN);
	CHECK_EQ(m.data_len, 8192);
	CHECK_EQ(m.ahs_len, 0);
}

TEST(iser_wire, lengths)
{
	command(0x18, WRITE, 65536, 100);
	CHECK_EQ(iser__message_parse(head, ISER_FIXED_LEN + 99, &m), -EMSGSIZE);
	CHECK_EQ(iser__message_parse(head, ISER_FIXED_LEN + 100, &m), 0);
	/* padding, up to a word */
	CHECK_EQ(iser__message_parse(head, ISER_FIXED_LEN + 103, &m), 0);
	CHECK_EQ(iser__message_parse(head, ISER_FIXED_LEN + 104, &m),
		 -EMSGSIZE);
	CHECK_EQ(iser__message_parse(head, ISER_FIXED_LEN - 1, &m), -EMSGSIZE);
	CHECK_EQ(iser__message_parse(head, 0, &m), -EMSGSIZE);
}

TEST(iser_wire, ahs)
{
	command(0x18, WRITE, 65536, 100);
	head[32] = 2;
	CHECK_EQ(iser__message_parse(head, ISER_FIXED_LEN + 100, &m),
		 -EMSGSIZE);
	CHECK_EQ(iser__message_parse(head, ISER_FIXED_LEN + 108, &m), 0);
	CHECK_EQ(m.ahs_len, 8);
	head[28] = ISCSI_OP_TEXT; /* it belongs to SCSI Commands */
	CHECK_EQ(iser__message_parse(head, ISER_FIXED_LEN + 108, &m), -EPROTO);
}

/* A command whose data could not be moved is refused at the door. */
TEST(iser_wire, stags_missing)
{
	command(0x10, READ, 512, 0);
	CHECK_EQ(iser__message_parse(head, ISER_FIXED_LEN, &m), -EPROTO);
	command(0x18, READ, 512, 0);
	CHECK_EQ(iser__message_parse(head, ISER_FIXED_LEN, &m), -EPROTO);
	command(0x14, READ, 512, 0);
	CHECK_EQ(iser__message_parse(head, ISER_FIXED_LEN, &m), 0);
	command(0x10, READ, 0, 0);
	CHECK_EQ(iser__message_parse(head, ISER_FIXED_LEN, &m), 0);
	command(0x14, WRITE, 512, 0);
	CHECK_EQ(iser__message_parse(head, ISER_FIXED_LEN, &m), -EPROTO);
	command(0x10, WRITE, 512, 511);
	CHECK_EQ(iser__message_parse(head, ISER_FIXED_LEN + 511, &m), -EPROTO);
	/* All of it came with the command: nothing is left to fetch. */
	command(0x10, WRITE, 512, 512);
	CHECK_EQ(iser__message_parse(head, ISER_FIXED_LEN + 512, &m), 0);
}

TEST(iser_wire, opcodes)
{
	for (unsigned opcode = 0; opcode < 16; opcode++) {
		command((uint8_t)(opcode << 4), ISCSI_FINAL, 0, 0);
		CHECK_EQ(iser__message_parse(head, ISER_FIXED_LEN, &m),
			 opcode == 1 ? 0 : -EPROTO);
	}
}

/* Of other PDUs the STags say nothing. */
TEST(iser_wire, not_a_command)
{
	command(0x1c, ISCSI_FINAL, 512, 0);
	head[28] = ISCSI_OP_NOP_OUT;
	CHECK_EQ(iser__message_parse(head, ISER_FIXED_LEN, &m), 0);
	CHECK(!m.stags.read_valid && !m.stags.write_valid);
}

TEST(iser_wire, our_header)
{
	uint8_t ours[ISER_HEADER_LEN], zeros[ISER_HEADER_LEN - 1] = { 0 };

	memset(ours, 0xff, sizeof(ours));
	iser__header_put(ours);
	CHECK_EQ(ours[0], 0x10);
	assert_memory_equal(ours + 1, zeros, sizeof(zeros));
}

TEST(iser_wire, private_data)
{
	const uint8_t may[] = { 0x80, 0, 0, 0 }, never[] = { 0xc0, 0, 0, 0 };
	const uint8_t zeros[56] = { 0 }, zbva[] = { 0x40 };
	uint8_t ours[ISER_CM_LEN];

	CHECK(iser__cm_invalidates(may, sizeof(may)));
	CHECK(!iser__cm_invalidates(never, sizeof(never)));
	CHECK(!iser__cm_invalidates(zbva, sizeof(zbva)));
	/* InfiniBand pads with zeros: who said nothing promised nothing. */
	CHECK(!iser__cm_invalidates(zeros, sizeof(zeros)));
	CHECK(!iser__cm_invalidates(may, 0));
	iser__cm_put(ours, true);
	CHECK_EQ(get_be32(ours), 0x80000000);
	iser__cm_put(ours, false);
	CHECK_EQ(get_be32(ours), 0xc0000000);
}
