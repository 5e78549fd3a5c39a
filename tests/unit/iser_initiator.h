/*
 * iser_initiator: one initiator on the rig, its connection, commands and memory.
 * Included by test files; it is part of each.
 */
#ifndef BASALT_TESTS_UNIT_ISER_INITIATOR_H
#define BASALT_TESTS_UNIT_ISER_INITIATOR_H

#include "iscsi/iscsi_int.h"
#include "tests/unit/iser_rig.h"

#define KEY 7u
#define BASE (4096ull * KEY)

static struct fake_peer *peer;
static uint32_t itt, cmdsn;
static uint8_t memory[4 << 20];

static inline void fixture(void)
{
	fixture_with((struct fake_rdma_config){ .says_last_wqe = true });
}

/* All of it comes down, and every page is home: the arena asserts that. */
static inline void end(void)
{
	rooms_close();
	if (peer != NULL)
		fake_peer_free(peer);
	peer = NULL;
	rooms_fini();
}

/* ---- the initiator ---- */

static inline struct message *message(uint8_t opcode, uint8_t flags)
{
	static struct message m;

	message_init(&m, opcode, flags, ++itt, cmdsn);
	return &m;
}

static inline bool give(const struct message *m)
{
	bool sent = fake_peer_send(peer, m->bytes, m->len);

	turns();
	return sent;
}

/* The next message; its BHS is at bytes + 28. */
static inline struct fake_message *receive(void)
{
	struct fake_message *m;

	turns();
	m = fake_peer_receive(peer);
	if (m != NULL)
		CHECK_EQ(m->bytes[0], 0x10);
	return m;
}

static inline void dial(uint8_t flags, unsigned reads)
{
	const uint8_t private[4] = { flags };

	if (peer != NULL) {
		fake_peer_disconnect(peer);
		turns();
		fake_peer_free(peer);
	}
	peer = fake_peer_connect(private, sizeof(private), reads);
	turns();
}

static inline struct message *login_message(const char *more)
{
	char text[8192];
	int n = snprintf(text, sizeof(text), ISER_LOGIN_TEXT "%s",
			 ISER_LOGIN_ZEROS, more);
	struct message *m;

	cmdsn = 1;
	m = message(0x43, 0x87);
	put_be32(m->bytes + 28 + 8, 0x00023d00);
	message_data(m, text, (size_t)n + (more[0] != '\0'));
	return m;
}

static inline bool has_text(const struct fake_message *m, const char *pair)
{
	const char *at = (const char *)m->bytes + ISER_FIXED_LEN;
	const char *stop = (const char *)m->bytes + m->len;

	for (; at < stop; at += strlen(at) + 1)
		if (strcmp(at, pair) == 0)
			return true;
	return false;
}

static inline void login_as(const char *immediate)
{
	struct fake_message *m;

	CHECK(give(login_message("")));
	m = receive();
	CHECK(m != NULL);
	CHECK_EQ(m->bytes[28], 0x23);
	CHECK_EQ(m->bytes[29], 0x87);
	CHECK_EQ(get_be16(m->bytes + 28 + 36), 0);
	CHECK(has_text(m, "RDMAExtensions=Yes"));
	CHECK(has_text(m, "InitialR2T=Yes"));
	CHECK(has_text(m, immediate));
	CHECK(has_text(m, "TargetRecvDataSegmentLength=8192"));
	free(m);
}

static inline void login(void)
{
	login_as("ImmediateData=Yes");
}

static inline void up(void)
{
	dial(0x80, 4);
	CHECK_EQ(fake_peer_state(peer), FAKE_UP);
	login();
}

static inline struct message *command(uint8_t flags, uint32_t edtl)
{
	struct message *m = message(ISCSI_OP_COMMAND, flags | ISCSI_FINAL);

	cmdsn++;
	put_be32(m->bytes + 28 + 20, edtl);
	if (flags & 0x20) {
		m->bytes[0] |= 0x08;
		put_be32(m->bytes + 4, KEY);
		put_be64(m->bytes + 8, BASE);
	}
	if (flags & 0x40) {
		m->bytes[0] |= 0x04;
		put_be32(m->bytes + 16, KEY);
		put_be64(m->bytes + 20, BASE);
	}
	return m;
}

/* Write @blocks at @lba, @imm bytes of them with the command. */
static inline void write_send(uint32_t lba, uint32_t blocks, uint32_t imm,
			      unsigned seed)
{
	size_t len = (size_t)blocks * 512;
	struct message *m = command(0x20, (uint32_t)len);
	static uint8_t data[sizeof(memory)];

	pattern(data, len, seed);
	rw10(m, 0x2a, lba, blocks);
	message_data(m, data, imm);
	/* Its address lies behind what goes with the command. */
	memcpy(memory, data + imm, len - imm);
	fake_peer_expose(peer, KEY, memory, len - imm);
	CHECK(give(m));
}

/* The response to the last command: GOOD, and @invalidated. */
static inline void good(uint32_t invalidated)
{
	struct fake_message *m = receive();

	CHECK(m != NULL);
	CHECK_EQ(m->bytes[28], 0x21);
	CHECK_EQ(m->bytes[28 + 3], 0);
	CHECK_EQ(get_be32(m->bytes + 28 + 16), itt);
	CHECK_EQ(get_be32(m->bytes + 28 + 36), 0); /* ExpDataSN */
	CHECK_EQ(m->invalidated, invalidated);
	free(m);
}

static inline void read_blocks(uint32_t lba, uint32_t blocks)
{
	size_t len = (size_t)blocks * 512;
	struct message *m = command(0x40, (uint32_t)len);

	memset(memory, 0xee, len);
	rw10(m, 0x28, lba, blocks);
	fake_peer_expose(peer, KEY, memory, len);
	CHECK(give(m));
	good(KEY);
}

static inline void read_back(uint32_t lba, uint32_t blocks, unsigned seed)
{
	static uint8_t data[sizeof(memory)];

	pattern(data, (size_t)blocks * 512, seed);
	read_blocks(lba, blocks);
	assert_memory_equal(memory, data, (size_t)blocks * 512);
}

/*
 * The attention of a fresh session is in the way of the first command, and its window
 * is as of one that has been at work: whole.
 */
static inline void ready(void)
{
	struct fake_message *m;
	struct iscsi_session *s;

	up();
	s = TAILQ_FIRST(&iser->conns)->dm.owner->session;
	s->window = s->window_max;
	CHECK(give(command(0, 0)));
	m = receive();
	CHECK(m != NULL);
	free(m);
	CHECK(give(command(0, 0)));
	good(0);
}

#endif
