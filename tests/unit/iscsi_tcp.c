/*
 * The TCP datamover on the wire: framing in every cut, digests, Data-In and R2T,
 * deadlines.  The initiator is a socket in the same thread.
 */
#include "base/crc.h"
#include "iscsi/tcp_int.h"
#include "tests/unit/iscsi_target.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_storage bound;

/* What came in and was not looked at yet. */
struct client {
	int fd;
	uint8_t isid;
	bool hd, dd;
	uint32_t cmdsn, itt;
	uint8_t in[8 << 20];
	size_t start, end;
	bool eof;
};
static struct client cl;

struct pdu {
	uint8_t bhs[ISCSI_BHS_LEN];
	uint8_t *data;
	uint32_t len;
};

/* Run the target's loop for about @ms. */
static void run(unsigned ms)
{
	uint64_t end = uv_hrtime() + ms * MSEC;

	do {
		shard_step(ts.env, MSEC);
	} while (uv_hrtime() < end);
}

static void fixture(struct iscsi_config config)
{
	struct sockaddr_in lo = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	target_open(config);
	CHECK_EQ(iscsi_portal_listen(iscsi, 1, (struct sockaddr *)&lo, 1), 0);
	CHECK_EQ(iscsi_portal_listen(iscsi, 1, (struct sockaddr *)&lo, 1),
		 -EEXIST);
	CHECK_EQ(iscsi_portal_address(iscsi, 1, &bound), 0);
	CHECK_EQ(iscsi_portal_listen(iscsi, 2, (struct sockaddr *)&bound, 1),
		 -EADDRINUSE);
	target_fill();
	run(2);
}

static void end(void)
{
	if (cl.fd >= 0)
		close(cl.fd);
	iscsi_end();
	dom_end();
}

static void dial(void)
{
	int one = 1;

	cl.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	cl.start = cl.end = 0;
	cl.eof = cl.hd = cl.dd = false;
	cl.cmdsn = 1;
	CHECK_EQ(connect(cl.fd, (struct sockaddr *)&bound,
			 sizeof(struct sockaddr_in)),
		 0);
	setsockopt(cl.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

static void pull(void)
{
	for (;;) {
		ssize_t n = recv(cl.fd, cl.in + cl.end, sizeof(cl.in) - cl.end,
				 MSG_DONTWAIT);

		if (n > 0) {
			cl.end += (size_t)n;
			continue;
		}
		if (n == 0 || errno == ECONNRESET)
			cl.eof = true;
		return;
	}
}

/* Bytes to the target, in pieces of @step with a turn between them. */
static void put_bytes(const uint8_t *bytes, size_t len, size_t step)
{
	while (len > 0) {
		ssize_t n = send(cl.fd, bytes, MIN(step, len),
				 MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno != EAGAIN)
			return;
		if (n > 0) {
			bytes += n;
			len -= (size_t)n;
		}
		if (len > 0)
			shard_step(ts.env, 0);
	}
}

static size_t frame(uint8_t *out, const uint8_t *bhs, const void *data,
		    uint32_t len)
{
	uint32_t pad = ROUND_UP(len, 4u) - len;
	size_t n = ISCSI_BHS_LEN;

	memcpy(out, bhs, n);
	put_be24(out + 5, len);
	if (cl.hd) {
		put_le32(out + n, crc32c(out, ISCSI_BHS_LEN));
		n += 4;
	}
	if (len > 0) {
		memcpy(out + n, data, len);
		memset(out + n + len, 0, pad);
		if (cl.dd)
			put_le32(out + n + len + pad,
				 crc32c(out + n, len + pad));
		n += len + pad + (cl.dd ? 4 : 0);
	}
	return n;
}

static uint8_t wire[4 << 20];

static void put_pdu(const uint8_t *bhs, const void *data, uint32_t len,
		    size_t step)
{
	put_bytes(wire, frame(wire, bhs, data, len), step);
}

/* The next PDU, its digests checked; false if none comes. */
static bool get_pdu(struct pdu *pdu)
{
	for (unsigned i = 0; i < 60000; i++) {
		size_t have = cl.end - cl.start, need = ISCSI_BHS_LEN;
		const uint8_t *p = cl.in + cl.start;

		if (have >= need) {
			uint32_t len = get_be24(p + 5);
			uint32_t pad = ROUND_UP(len, 4u) - len;
			size_t at = ISCSI_BHS_LEN + (cl.hd ? 4 : 0);

			need = at + len + pad + (cl.dd && len ? 4 : 0);
			if (have >= need) {
				memcpy(pdu->bhs, p, ISCSI_BHS_LEN);
				pdu->data = cl.in + cl.start + at;
				pdu->len = len;
				if (cl.hd)
					CHECK_EQ(get_le32(p + 48),
						 crc32c(p, 48));
				if (cl.dd && len > 0)
					CHECK_EQ(get_le32(p + at + len + pad),
						 crc32c(p + at, len + pad));
				cl.start += need;
				return true;
			}
		}
		if (cl.eof)
			return false;
		run(1);
		pull();
	}
	return false;
}

static bool hung_up(void)
{
	for (unsigned i = 0; i < 60000 && !cl.eof; i++) {
		run(1);
		cl.start = cl.end = 0;
		pull();
	}
	return cl.eof;
}

static void login(const char *more, size_t more_len)
{
	static const char names[] =
		"InitiatorName=" WHO "\0TargetName=" IQN "\0";
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x43, 0x87 };
	char text[1024];
	struct pdu pdu;

	dial();
	memcpy(text, names, sizeof(names) - 1);
	memcpy(text + sizeof(names) - 1, more, more_len);
	bhs[8] = 0x80;
	bhs[13] = cl.isid;
	put_be32(bhs + 16, 1);
	put_be32(bhs + 24, cl.cmdsn);
	put_pdu(bhs, text, (uint32_t)(sizeof(names) - 1 + more_len), 4096);
	CHECK(get_pdu(&pdu));
	CHECK_EQ(pdu.bhs[0], ISCSI_OP_LOGIN_RSP);
	CHECK_EQ(get_be16(pdu.bhs + 36), 0);
	CHECK_EQ(pdu.bhs[1], 0x87);
	CHECK(get_be16(pdu.bhs + 14) != 0); /* TSIH */
}
#define LOGIN(more) login(more, sizeof(more) - 1)

static uint32_t command(uint8_t flags, uint32_t edtl, uint8_t opcode,
			uint32_t lba, uint16_t blocks, const void *data,
			uint32_t len, size_t step)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_COMMAND, flags };

	put_be32(bhs + 16, ++cl.itt);
	put_be32(bhs + 20, edtl);
	put_be32(bhs + 24, cl.cmdsn++);
	bhs[32] = opcode;
	put_be32(bhs + 34, lba);
	put_be16(bhs + 39, blocks);
	put_pdu(bhs, data, len, step);
	return cl.itt;
}

static void ready(void)
{
	struct iscsi_session *s;
	struct pdu pdu;

	for (unsigned i = 0; i < 2; i++) {
		/* Its window is whole, as of one that has been at work. */
		s = TAILQ_FIRST(&iscsi->sessions);
		s->window = s->window_max;
		command(0x80, 0, 0, 0, 0, NULL, 0, 4096);
		CHECK(get_pdu(&pdu));
		CHECK_EQ(pdu.bhs[0], ISCSI_OP_RESPONSE);
	}
	CHECK_EQ(pdu.bhs[3], 0);
}

static uint8_t pattern[1 << 20];

static void fill(unsigned seed)
{
	for (size_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = (uint8_t)(i * 7 + i / 4096 + seed);
}

/* Write @len bytes at @lba, answering R2Ts in Data-Out of @chunk, cut at @step. */
static void write_all(uint32_t lba, uint32_t len, uint32_t immediate,
		      uint32_t chunk, size_t step)
{
	struct pdu pdu;

	command(0xa0, len, 0x2a, lba, (uint16_t)(len / 512), pattern, immediate,
		step);
	for (;;) {
		uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_DATA_OUT };
		uint32_t at, left, sn = 0;

		CHECK(get_pdu(&pdu));
		CHECK_EQ(get_be32(pdu.bhs + 16), cl.itt);
		if (pdu.bhs[0] == ISCSI_OP_RESPONSE)
			break;
		CHECK_EQ(pdu.bhs[0], ISCSI_OP_R2T);
		memcpy(bhs + 8, pdu.bhs + 8, 16); /* LUN, ITT, TTT */
		at = get_be32(pdu.bhs + 40);
		left = get_be32(pdu.bhs + 44);
		while (left > 0) {
			uint32_t n = MIN(left, chunk);

			bhs[1] = n == left ? 0x80 : 0;
			put_be32(bhs + 36, sn++);
			put_be32(bhs + 40, at);
			put_pdu(bhs, pattern + at, n, step);
			at += n;
			left -= n;
		}
	}
	CHECK_EQ(pdu.bhs[3], 0);
	CHECK_EQ(pdu.bhs[1], 0x80); /* no residual */
}

/* Read it back, looking at each Data-In. */
static void read_all(uint32_t lba, uint32_t len, uint32_t max_data,
		     uint32_t max_burst)
{
	uint32_t at = 0, sn = 0;
	struct pdu pdu;

	command(0xc0, len, 0x28, lba, (uint16_t)(len / 512), NULL, 0, 4096);
	while (at < len) {
		CHECK(get_pdu(&pdu));
		CHECK_EQ(pdu.bhs[0], ISCSI_OP_DATA_IN);
		CHECK_EQ(get_be32(pdu.bhs + 36), sn++);
		CHECK_EQ(get_be32(pdu.bhs + 40), at);
		CHECK(pdu.len <= max_data);
		CHECK_EQ(memcmp(pdu.data, pattern + at, pdu.len), 0);
		at += pdu.len;
		/* F ends a burst; S comes with the last one only */
		CHECK_EQ(pdu.bhs[1] & 0x80,
			 at % max_burst == 0 || at == len ? 0x80 : 0);
		CHECK_EQ(pdu.bhs[1] & 1, at == len);
	}
	CHECK_EQ(pdu.bhs[3], 0);
}

#define KEYS                                                                   \
	"InitialR2T=Yes\0ImmediateData=Yes\0MaxBurstLength=65536\0"            \
	"FirstBurstLength=8192\0MaxOutstandingR2T=2\0"                         \
	"MaxRecvDataSegmentLength=24000\0"
#define DIGESTS "HeaderDigest=CRC32C\0DataDigest=CRC32C\0"

static void write_and_read(void)
{
	static const struct {
		uint32_t len, immediate, chunk;
		size_t step;
	} rounds[] = {
		{ 512, 512, 512, 4096 },
		{ 512, 512, 512, 1 },
		{ 4096, 0, 4096, 7 },
		{ 65536, 8192, 8192, 65536 },
		{ 262144, 8192, 65536, 1000000 },
		{ 262144, 0, 65536, 5003 },
		{ 131072, 8189, 16383, 1000000 },
		{ 524288, 8192, 30001, 777 },
	};

	for (unsigned i = 0; i < ARRAY_LEN(rounds); i++) {
		fill(i);
		write_all(i, rounds[i].len, rounds[i].immediate,
			  rounds[i].chunk, rounds[i].step);
		read_all(i, rounds[i].len, 24000, 65536);
	}
}

/* The last Data-In brings status and residual with it (11.7.4). */
TEST(iscsi_tcp, residual_of_a_read)
{
	struct pdu pdu;

	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS);
	ready();
	for (unsigned blocks = 1; blocks <= 3; blocks++) {
		command(0xc0, 1024, 0x28, 0, (uint16_t)blocks, NULL, 0, 4096);
		CHECK(get_pdu(&pdu));
		CHECK_EQ(pdu.bhs[0], ISCSI_OP_DATA_IN);
		CHECK_EQ(pdu.len, MIN(blocks, 2) * 512);
		CHECK_EQ(pdu.bhs[1], 0x81 | (blocks == 1   ? ISCSI_RESIDUAL_U
					     : blocks == 3 ? ISCSI_RESIDUAL_O
							   : 0));
		CHECK_EQ(get_be32(pdu.bhs + 44), blocks == 2 ? 0 : 512);
	}
	end();
}

TEST(iscsi_tcp, framing_in_every_cut)
{
	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS);
	ready();
	write_and_read();
	end();
}

/* Data of 16 KiB and more lands where it belongs; less is copied once. */
TEST(iscsi_tcp, no_copies_of_large_data)
{
	struct counter *copied = &copied_bytes[COPIED_RECEIVE];
	uint64_t before;

	fixture((struct iscsi_config){ 0 });
	LOGIN("InitialR2T=Yes\0ImmediateData=Yes\0MaxBurstLength=65536\0"
	      "FirstBurstLength=65536\0" DIGESTS);
	cl.hd = cl.dd = true;
	ready();
	fill(1);
	for (unsigned i = 0; i < 8; i++) {
		before = counter_value(copied);
		write_all(i, 262144, 0, 65536, 1000000);
		write_all(i, 65536, 65536, 65536, 1000000);
		write_all(i, 262144, 16384, 16384, 5003);
		CHECK_EQ(counter_value(copied), before);
		write_all(i, 4096, 4096, 4096, 4096);
		CHECK(counter_value(copied) - before <= 4096);
		read_all(i, 262144, 8192, 65536);
	}
	for (unsigned i = 0; i < 2 * TCP_ALONE_PDUS; i++)
		write_all(i, 4096, 4096, 4096, 4096);
	before = counter_value(copied);
	write_all(3, 4096, 4096, 4096, 4096);
	CHECK(counter_value(copied) - before <= 4096);
	/* Asked for: it is known before it comes. */
	before = counter_value(copied);
	write_all(3, 262144, 0, 65536, 1000000);
	CHECK_EQ(counter_value(copied), before);
	end();
}

TEST(iscsi_tcp, with_digests)
{
	uint8_t ping[ISCSI_BHS_LEN] = { 0x40 | ISCSI_OP_NOP_OUT, 0x80 };
	struct pdu pdu;

	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS DIGESTS);
	cl.hd = cl.dd = true;
	ready();
	write_and_read();
	/* Padding counts, too. */
	for (uint32_t len = 1; len <= 4; len++) {
		put_be32(ping + 16, ++cl.itt);
		put_be32(ping + 20, ISCSI_NO_TAG);
		put_pdu(ping, pattern, len, 4096);
		CHECK(get_pdu(&pdu));
		CHECK_EQ(pdu.bhs[0], ISCSI_OP_NOP_IN);
		CHECK_EQ(pdu.len, len);
	}
	end();
}

/* Either of the two, alone. */
TEST(iscsi_tcp, one_digest_of_two)
{
	fixture((struct iscsi_config){ 0 });
	fill(5);
	for (unsigned hd = 0; hd < 2; hd++) {
		if (hd)
			LOGIN(KEYS "HeaderDigest=CRC32C\0DataDigest=None\0");
		else
			LOGIN(KEYS "HeaderDigest=None\0DataDigest=CRC32C\0");
		cl.hd = hd;
		cl.dd = !hd;
		ready();
		write_all(0, 131072, 8189, 16383, 1000000);
		read_all(0, 131072, 24000, 65536);
		close(cl.fd);
	}
	cl.fd = -1;
	end();
}

/* A digest that is wrong: rejected and hung up; nothing was written. */
/* Which PDU has a bad digest, and which one of it. */
enum bad_digest { OF_HEADER, OF_IMMEDIATE, OF_DATA_OUT };

static void bad_digest(enum bad_digest which)
{
	uint8_t write[ISCSI_BHS_LEN] = { ISCSI_OP_COMMAND, 0xa0 };
	uint8_t out[ISCSI_BHS_LEN] = { ISCSI_OP_DATA_OUT, 0x80 };
	bool asked = which == OF_DATA_OUT;
	struct pdu pdu;
	size_t n;

	LOGIN(KEYS DIGESTS);
	cl.hd = cl.dd = true;
	ready();
	put_be32(write + 16, 77);
	put_be32(write + 20, 4096);
	put_be32(write + 24, cl.cmdsn);
	write[32] = 0x2a;
	write[40] = 8;
	n = frame(wire, write, pattern + 9000, asked ? 0 : 4096);
	if (asked) {
		put_bytes(wire, n, n);
		CHECK(get_pdu(&pdu));
		CHECK_EQ(pdu.bhs[0], ISCSI_OP_R2T);
		memcpy(out + 8, pdu.bhs + 8, 16);
		n = frame(wire, out, pattern + 9000, 4096);
	}
	wire[which == OF_HEADER ? ISCSI_BHS_LEN : n - 1] ^= 1;
	put_bytes(wire, n, n);
	if (which != OF_HEADER) { /* else there is no telling what it was */
		CHECK(get_pdu(&pdu));
		CHECK_EQ(pdu.bhs[0], ISCSI_OP_REJECT);
		CHECK_EQ(pdu.bhs[2], REJECT_DATA_DIGEST);
		CHECK_EQ(pdu.len, 48);
	}
	CHECK(hung_up());
	close(cl.fd);
}

/* Nothing that came with it is written. */
TEST(iscsi_tcp, bad_digests)
{
	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS);
	ready();
	fill(3);
	write_all(0, 4096, 4096, 4096, 4096);
	close(cl.fd);
	for (unsigned which = OF_HEADER; which <= OF_DATA_OUT; which++) {
		bad_digest(which);
		LOGIN(KEYS);
		ready();
		read_all(0, 4096, 24000, 65536);
		close(cl.fd);
	}
	cl.fd = -1;
	end();
}

/* A digest proves a header, and does not make its lengths right. */
TEST(iscsi_tcp, lengths_with_digests)
{
	static const uint8_t lengths[][4] = {
		{ 0, 4, 0, 1 }, /* a byte more than we take */
		{ 1, 0, 0, 0 }, /* an AHS, and no SCSI Command */
	};

	fixture((struct iscsi_config){ .max_recv_data = 262144,
				       .pdu_ms = 3600000 });
	for (unsigned i = 0; i < ARRAY_LEN(lengths); i++) {
		uint8_t bhs[ISCSI_BHS_LEN + 8] = { 0x40 | ISCSI_OP_NOP_OUT,
						   0x80 };
		size_t n = ISCSI_BHS_LEN + 4u * lengths[i][0];

		LOGIN(KEYS DIGESTS);
		cl.hd = cl.dd = true;
		ready();
		memcpy(bhs + 4, lengths[i], 4);
		put_be32(bhs + 16, ++cl.itt);
		put_le32(bhs + n, crc32c(bhs, n));
		put_bytes(bhs, n + 4, n + 4);
		CHECK(hung_up());
		close(cl.fd);
	}
	cl.fd = -1;
	end();
}

/*
 * A Data-Out that is not what its R2T asked for: one out of sequence costs the
 * command, anything else the connection; neither writes anything.
 */
TEST(iscsi_tcp, data_out_outside_of_its_r2t)
{
	static const struct {
		uint8_t flags, lun;
		uint32_t sn, offset, len;
		bool answered;
	} bad[] = {
		{ 0x80, 0, 0, 4096, 4096, false }, /* a half is left out */
		{ 0x00, 0, 0, 4096, 4096, false },
		{ 0x80, 0, 0, 0, 8196, false }, /* more than was asked for */
		{ 0x00, 0, 0, 0, 8196, false }, /* and more is to come */
		{ 0x80, 0, 0, 0, 4096, false }, /* F ahead of the end */
		{ 0x00, 0, 0, 0, 8192, false }, /* the end without F */
		{ 0x80, 1, 0, 0, 8192, false }, /* of another unit */
		{ 0x80, 0, 1, 0, 8192, true }, /* one was lost */
		{ 0x80, 0, UINT32_MAX, 0, 8192, true },
	};

	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS);
	ready();
	fill(5);
	write_all(0, 8192, 0, 8192, 65536);
	for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
		uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_DATA_OUT,
					       bad[i].flags };
		struct pdu pdu;

		fill(6);
		command(0xa0, 8192, 0x2a, 0, 16, NULL, 0, 4096);
		CHECK(get_pdu(&pdu));
		CHECK_EQ(pdu.bhs[0], ISCSI_OP_R2T);
		memcpy(bhs + 8, pdu.bhs + 8, 16);
		bhs[9] = bad[i].lun;
		put_be32(bhs + 36, bad[i].sn);
		put_be32(bhs + 40, bad[i].offset);
		put_pdu(bhs, pattern, bad[i].len, 65536);
		if (bad[i].answered) {
			CHECK(get_pdu(&pdu));
			CHECK_EQ(pdu.bhs[0], ISCSI_OP_RESPONSE);
			CHECK_EQ(pdu.bhs[3], SCSI_CHECK_CONDITION);
		} else {
			CHECK(hung_up());
			close(cl.fd);
			LOGIN(KEYS);
			ready();
		}
		fill(5);
		read_all(0, 8192, 24000, 65536);
	}
	end();
}

/*
 * An R2T takes no StatSN: it tells the one that the next response will have
 * from where it stands in the queue, though more is queued before it leaves,
 * and whatever the number is.
 */
TEST(iscsi_tcp, statsn_of_an_r2t)
{
	uint8_t write[ISCSI_BHS_LEN] = { ISCSI_OP_COMMAND, 0xa0 };
	uint8_t ping[ISCSI_BHS_LEN] = { 0x40 | ISCSI_OP_NOP_OUT, 0x80 };
	struct pdu pdu;
	size_t n;

	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS);
	ready();
	for (uint32_t statsn = UINT32_MAX; statsn != 2; statsn++) {
		TAILQ_FIRST(&iscsi->conns)->statsn = statsn;
		put_be32(write + 16, ++cl.itt);
		put_be32(write + 20, 512);
		put_be32(write + 24, cl.cmdsn++);
		write[32] = 0x2a;
		write[40] = 1;
		put_be32(ping + 16, ++cl.itt);
		put_be32(ping + 20, ISCSI_NO_TAG);
		n = frame(wire, write, NULL, 0);
		n += frame(wire + n, ping, NULL, 0);
		put_bytes(wire, n, n);
		CHECK(get_pdu(&pdu));
		CHECK_EQ(pdu.bhs[0], ISCSI_OP_R2T);
		CHECK_EQ(get_be32(pdu.bhs + 24), statsn);
		CHECK(get_pdu(&pdu));
		CHECK_EQ(pdu.bhs[0], ISCSI_OP_NOP_IN);
		CHECK_EQ(get_be32(pdu.bhs + 24), statsn);
	}
	end();
}

/*
 * Data for tasks that were aborted comes now and then over a long life: only a
 * peer that sends nothing else is told to go.
 */
static void on_put(struct dm_data *data, int status)
{
	sgl_put(data->sgl);
}

static void on_response(struct dm_send *send, int status)
{
}

/* Data-In is cut as it leaves, by what the initiator takes then. */
TEST(iscsi_tcp, expdatasn_counts_what_left)
{
	static const uint8_t sense[2];
	struct dm_send response = { .bhs = { ISCSI_OP_RESPONSE, 0x80 },
				    .data = sense,
				    .data_len = sizeof(sense),
				    .cb = on_response };
	struct dm_data data = { .len = 65536,
				.response = &response,
				.cb = on_put };
	struct iscsi_conn *conn;
	struct dm_keys keys;
	struct pdu pdu;
	unsigned n = 0;

	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS);
	ready();
	conn = TAILQ_FIRST(&iscsi->conns);
	iscsi__dm_keys(conn, &conn->session->keys, &keys);
	CHECK_EQ(keys.max_send_data_len, 24000);
	CHECK_EQ(sgl_new(ts.env->pages, PAGE_FRONT, data.len, 0, &data.sgl), 0);
	conn->dm->ops->put_data(conn->dm, &data);
	keys.max_send_data_len = 8192;
	CHECK_EQ(conn->dm->ops->notice_keys(conn->dm, &keys), 0);
	for (;;) {
		CHECK(get_pdu(&pdu));
		if (pdu.bhs[0] != ISCSI_OP_DATA_IN)
			break;
		CHECK_EQ(get_be32(pdu.bhs + 36), n++);
	}
	CHECK_EQ(pdu.bhs[0], ISCSI_OP_RESPONSE);
	CHECK_EQ(n, 8);
	CHECK_EQ(get_be32(pdu.bhs + 36), n);
	end();
}

TEST(iscsi_tcp, data_out_of_no_task)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_DATA_OUT, 0x80 };

	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS);
	ready();
	put_be32(bhs + 16, 0x1234);
	put_be32(bhs + 20, 0x5678);
	for (unsigned i = 0; i < 4 * TCP_STRAY_MAX; i++) {
		put_pdu(bhs, pattern, 512, 4096);
		if (i % 1000 == 999)
			write_all(0, 16384, 0, 8192, 65536);
	}
	CHECK(!cl.eof);
	for (unsigned i = 0; i <= TCP_STRAY_MAX; i++)
		put_pdu(bhs, pattern, 512, 4096);
	CHECK(hung_up());
	end();
}

/* After four billion of them: the tag of what comes unasked is none of theirs. */
TEST(iscsi_tcp, tags_of_r2ts_wrap)
{
	struct tcp_conn *conn;

	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS);
	ready();
	conn = tcp_of(TAILQ_FIRST(&iscsi->conns)->dm);
	conn->ttt_last = ISCSI_NO_TAG - 2;
	fill(6);
	write_all(0, 262144, 0, 65536, 1000000);
	read_all(0, 262144, 24000, 65536);
	CHECK_EQ(conn->ttt_last, 2);
	end();
}

/* A task ends while its data is awaited; its neighbour's is taken. */
TEST(iscsi_tcp, abort_leaves_the_neighbour)
{
	uint8_t tmf[ISCSI_BHS_LEN] = { 0x40 | ISCSI_OP_TMF,
				       0x80 | SCSI_ABORT_TASK };
	uint8_t out[ISCSI_BHS_LEN] = { ISCSI_OP_DATA_OUT, 0x80 };
	uint32_t first;
	struct pdu pdu;

	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS);
	ready();
	fill(7);
	first = command(0xa0, 4096, 0x2a, 64, 8, NULL, 0, 4096);
	CHECK(get_pdu(&pdu));
	while (iscsi_itt_bucket(cl.itt + 1) != iscsi_itt_bucket(first))
		cl.itt++;
	command(0xa0, 4096, 0x2a, 0, 8, NULL, 0, 4096);
	CHECK(get_pdu(&pdu));
	CHECK_EQ(pdu.bhs[0], ISCSI_OP_R2T);
	memcpy(out + 8, pdu.bhs + 8, 16);
	put_be32(tmf + 16, cl.itt + 1);
	put_be32(tmf + 20, first);
	put_be32(tmf + 32, cl.cmdsn - 2);
	put_pdu(tmf, NULL, 0, 4096);
	CHECK(get_pdu(&pdu));
	CHECK_EQ(pdu.bhs[0], ISCSI_OP_TMF_RSP);
	CHECK_EQ(pdu.bhs[2], 0);
	put_pdu(out, pattern, 4096, 4096);
	CHECK(get_pdu(&pdu));
	CHECK_EQ(pdu.bhs[0], ISCSI_OP_RESPONSE);
	CHECK_EQ(get_be32(pdu.bhs + 16), cl.itt);
	CHECK_EQ(pdu.bhs[3], 0);
	read_all(0, 4096, 24000, 65536);
	end();
}

/* Another session resets the unit while a Data-Out comes in: its rest is nobody's. */
TEST(iscsi_tcp, reset_in_the_middle_of_a_pdu)
{
	uint8_t tmf[ISCSI_BHS_LEN] = { 0x40 | ISCSI_OP_TMF,
				       0x80 | SCSI_LUN_RESET };
	uint8_t out[ISCSI_BHS_LEN] = { ISCSI_OP_DATA_OUT, 0x80 };
	static struct client first;
	struct pdu pdu;

	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS);
	ready();
	command(0xa0, 4096, 0x2a, 0, 8, NULL, 0, 4096);
	CHECK(get_pdu(&pdu));
	CHECK_EQ(pdu.bhs[0], ISCSI_OP_R2T);
	memcpy(out + 8, pdu.bhs + 8, 16);
	frame(wire, out, pattern, 4096);
	put_bytes(wire, 1000, 1000);
	run(2);
	first = cl;
	cl.isid = 1;
	LOGIN(KEYS);
	ready();
	put_be32(tmf + 16, ++cl.itt);
	put_be32(tmf + 20, ISCSI_NO_TAG);
	put_pdu(tmf, NULL, 0, 4096);
	CHECK(get_pdu(&pdu));
	CHECK_EQ(pdu.bhs[0], ISCSI_OP_TMF_RSP);
	CHECK_EQ(pdu.bhs[2], 0);
	close(cl.fd);
	cl = first;
	CHECK(get_pdu(&pdu));
	CHECK_EQ(pdu.bhs[0], ISCSI_OP_RESPONSE);
	CHECK_EQ(pdu.bhs[3], SCSI_TASK_ABORTED);
	frame(wire, out, pattern, 4096);
	put_bytes(wire + 1000, ISCSI_BHS_LEN + 4096 - 1000, 4096);
	command(0x80, 0, 0, 0, 0, NULL, 0, 4096);
	CHECK(get_pdu(&pdu));
	CHECK_EQ(pdu.bhs[3], SCSI_CHECK_CONDITION); /* it was reset */
	memset(pattern, 0, 4096);
	read_all(0, 4096, 24000, 65536); /* nothing of it was written */
	end();
}

/* A reset ends many writes whose data was asked for: it comes in small pieces. */
TEST(iscsi_tcp, data_out_of_many_that_were_reset)
{
	enum { WRITES = 20, R2TS = 2, PIECE = 512 };
	uint8_t tmf[ISCSI_BHS_LEN] = { 0x40 | ISCSI_OP_TMF,
				       0x80 | SCSI_LUN_RESET };
	static struct pdu r2ts[WRITES * R2TS];
	struct pdu pdu;

	_Static_assert(WRITES * R2TS * (65536 / PIECE) > TCP_STRAY_MAX,
		       "more than are an accident");
	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS);
	ready();
	for (unsigned i = 0; i < WRITES; i++) {
		command(0xa0, R2TS * 65536, 0x2a, 0, R2TS * 128, NULL, 0, 4096);
		for (unsigned k = 0; k < R2TS; k++) {
			CHECK(get_pdu(&r2ts[i * R2TS + k]));
			CHECK_EQ(r2ts[i * R2TS + k].bhs[0], ISCSI_OP_R2T);
		}
	}
	put_be32(tmf + 16, ++cl.itt);
	put_be32(tmf + 20, ISCSI_NO_TAG);
	put_pdu(tmf, NULL, 0, 4096);
	CHECK(get_pdu(&pdu));
	CHECK_EQ(pdu.bhs[0], ISCSI_OP_TMF_RSP);
	CHECK_EQ(pdu.bhs[2], 0);
	for (unsigned i = 0; i < WRITES * R2TS; i++) {
		uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_DATA_OUT };
		uint32_t at = get_be32(r2ts[i].bhs + 40), sn = 0;
		uint32_t end = at + get_be32(r2ts[i].bhs + 44);

		memcpy(bhs + 8, r2ts[i].bhs + 8, 16);
		for (; at < end; at += PIECE) {
			bhs[1] = at + PIECE == end ? 0x80 : 0;
			put_be32(bhs + 36, sn++);
			put_be32(bhs + 40, at);
			put_pdu(bhs, pattern, PIECE, 4096);
		}
	}
	command(0x80, 0, 0, 0, 0, NULL, 0, 4096);
	CHECK(get_pdu(&pdu));
	CHECK_EQ(pdu.bhs[3], SCSI_CHECK_CONDITION); /* it was reset */
	write_all(0, 16384, 0, 8192, 65536);
	end();
}

TEST(iscsi_tcp, deadlines)
{
	/* For longer than a loop that stood still has no timers, too. */
	static const uint8_t half[ISCSI_BHS_LEN - 1] = { 0x43, 0x87 };
	bool gone = false;

	fixture((struct iscsi_config){ .pdu_ms = 60, .login_ms = 3600000 });
	dial();
	/* a byte now and then does not help: the whole PDU is due */
	for (unsigned i = 0; i < sizeof(half) && !gone; i++) {
		put_bytes(half + i, 1, 1);
		run(15);
		pull();
		gone = cl.eof;
	}
	CHECK(gone);
	close(cl.fd);
	end();
	fixture((struct iscsi_config){ .login_ms = 60 });
	dial();
	CHECK(hung_up());
	end();
}

/* A part of a burst arrives, and all else that was heard of them is long ago. */
static void part_is_a_word(void)
{
	struct iscsi_conn *conn = TAILQ_FIRST(&iscsi->conns);
	uint64_t before = conn->dm->part_ns;

	for (unsigned i = 0; i < 60000 && conn->dm->part_ns == before; i++)
		run(1);
	CHECK(conn->dm->part_ns > before);
	conn->heard_ns = 0;
	env_timer_start(ts.env, &conn->timer, 0);
	for (unsigned i = 0; i < 60000 && conn->heard_ns == 0; i++) {
		CHECK(!conn->ping_out);
		run(1);
	}
	CHECK_EQ(conn->heard_ns, conn->dm->part_ns);
	CHECK(!conn->ping_out);
}

/* Its burst takes a while: who sends it is there, and has nothing else to say. */
TEST(iscsi_tcp, a_burst_over_a_slow_link)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_DATA_OUT };
	struct pdu pdu;

	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS);
	ready();
	command(0xa0, 65536, 0x2a, 0, 128, NULL, 0, 4096);
	CHECK(get_pdu(&pdu));
	CHECK_EQ(pdu.bhs[0], ISCSI_OP_R2T);
	CHECK_EQ(get_be32(pdu.bhs + 44), 65536);
	memcpy(bhs + 8, pdu.bhs + 8, 16);
	for (uint32_t sn = 0; sn < 16; sn++) {
		bhs[1] = sn == 15 ? ISCSI_FINAL : 0;
		put_be32(bhs + 36, sn);
		put_be32(bhs + 40, sn * 4096);
		put_pdu(bhs, pattern, 4096, 4096);
		if (sn < 15)
			part_is_a_word();
	}
	CHECK(get_pdu(&pdu));
	CHECK_EQ(pdu.bhs[0], ISCSI_OP_RESPONSE);
	CHECK_EQ(pdu.bhs[3], 0);
	end();
}

/* So too who fetches what it reads: our pings wait behind that. */
TEST(iscsi_tcp, a_read_over_a_slow_link)
{
	struct tcp_conn *conn;
	int room = 200 << 10; /* less than what is asked for */

	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS);
	setsockopt(cl.fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	ready();
	for (unsigned i = 0; i < 16; i++)
		command(0xc0, 2 << 20, 0x28, 0, 4096, NULL, 0, 4096);
	conn = tcp_of(TAILQ_FIRST(&iscsi->conns)->dm);
	for (unsigned i = 0; i < 10000 && !conn->tx_full; i++)
		run(1);
	CHECK(conn->tx_full);
	CHECK_EQ(conn->dm.part_ns, 0);
	while (conn->dm.part_ns == 0 && conn->tx_since_ns != 0) {
		cl.start = cl.end = 0;
		pull();
		CHECK(!cl.eof);
		run(1);
	}
	CHECK(conn->dm.part_ns > conn->dm.owner->heard_ns);
	close(cl.fd);
	end();
}

static void ask(uint8_t opcode, uint8_t flags)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { opcode | ISCSI_IMMEDIATE,
				       ISCSI_FINAL | flags };

	put_be32(bhs + 16, ++cl.itt);
	put_be32(bhs + 20, ISCSI_NO_TAG);
	put_be32(bhs + 24, cl.cmdsn);
	put_pdu(bhs, NULL, 0, 4096);
}

static void answered(uint8_t opcode, uint32_t itt, uint8_t status)
{
	struct pdu pdu;

	CHECK(get_pdu(&pdu));
	CHECK_EQ(pdu.bhs[0], opcode);
	CHECK_EQ(get_be32(pdu.bhs + 16), itt);
	CHECK_EQ(pdu.bhs[3], status);
}

/* A PDU that brings nothing of a burst is no word of who sends that. */
TEST(iscsi_tcp, an_empty_part_of_a_burst)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_DATA_OUT };
	struct tcp_conn *conn;
	struct pdu pdu;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS);
	ready();
	itt = command(0xa0, 8192, 0x2a, 0, 16, NULL, 0, 4096);
	CHECK(get_pdu(&pdu));
	CHECK_EQ(pdu.bhs[0], ISCSI_OP_R2T);
	memcpy(bhs + 8, pdu.bhs + 8, 16);
	put_pdu(bhs, NULL, 0, 4096);
	ask(ISCSI_OP_NOP_OUT, 0);
	answered(ISCSI_OP_NOP_IN, cl.itt, 0);
	conn = tcp_of(TAILQ_FIRST(&iscsi->conns)->dm);
	CHECK_EQ(conn->dm.part_ns, 0);
	bhs[1] = ISCSI_FINAL;
	put_be32(bhs + 36, 1);
	put_pdu(bhs, pattern, 8192, 8192);
	answered(ISCSI_OP_RESPONSE, itt, 0);
	CHECK(conn->dm.part_ns > 0);
	end();
}

/* ---- data that finds no memory ---- */

/* A write of 8 KiB that all come with it. */
static uint32_t small_write(uint32_t lba)
{
	return command(0xa0, 8192, 0x2a, lba, 16, pattern, 8192, 16384);
}

static bool silent(void)
{
	run(20);
	pull();
	return cl.start == cl.end && !cl.eof;
}

/* All memory is somebody else's, and @writes come at once, then a ping. */
static struct tcp_conn *writes_without_memory(unsigned writes)
{
	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS);
	ready();
	fill(5);
	hoard_all();
	for (unsigned i = 0; i < writes; i++)
		small_write(8 + 16 * i);
	ask(ISCSI_OP_NOP_OUT, 0);
	CHECK(silent());
	return tcp_of(TAILQ_FIRST(&iscsi->conns)->dm);
}

static void time_is_up(struct tcp_conn *conn)
{
	conn->put_off_ns -= TCP_LATER_NS;
	conn->dm.later_ns -= TCP_LATER_NS;
	env_timer_start(ts.env, &conn->timer, 0);
}

/* It is not read before it has some. */
TEST(iscsi_tcp, data_waits_for_memory)
{
	uint32_t itt;

	(void)writes_without_memory(1);
	itt = cl.itt;
	hoard_keep(hoard_count - 8);
	answered(ISCSI_OP_NOP_IN, itt, 0);
	answered(ISCSI_OP_RESPONSE, itt - 1, 0);
	/* Another one waits as well: nothing lies behind it for long. */
	hoard_all();
	itt = small_write(0);
	CHECK(silent());
	hoard_keep(0);
	answered(ISCSI_OP_RESPONSE, itt, 0);
	read_all(0, 8192, 24000, 65536);
	end();
}

/* For a while: a ping is answered in time, however many writes are before it. */
TEST(iscsi_tcp, data_does_not_wait_for_ever)
{
	struct tcp_conn *conn = writes_without_memory(3);
	uint32_t itt = cl.itt;

	time_is_up(conn);
	for (unsigned i = 3; i > 0; i--)
		answered(ISCSI_OP_RESPONSE, itt - i, SCSI_TASK_SET_FULL);
	answered(ISCSI_OP_NOP_IN, itt, 0);
	/* The next one has its own time. */
	itt = small_write(0);
	CHECK(silent());
	time_is_up(conn);
	answered(ISCSI_OP_RESPONSE, itt, SCSI_TASK_SET_FULL);
	hoard_keep(0);
	write_all(0, 65536, 8192, 8192, 65536);
	read_all(0, 65536, 24000, 65536);
	end();
}

/* What ends with data behind it does not wait for this, nor this for that. */
TEST(iscsi_tcp, data_does_not_wait_for_what_lies_behind_it)
{
	struct pdu pdu;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS);
	ready();
	command(0xa0, 65536, 0x2a, 0, 128, NULL, 0, 4096);
	CHECK(get_pdu(&pdu));
	CHECK_EQ(pdu.bhs[0], ISCSI_OP_R2T);
	hoard_all();
	itt = small_write(256);
	answered(ISCSI_OP_RESPONSE, itt, SCSI_TASK_SET_FULL);
	hoard_keep(0);
	end();
}

/* Others that have memory may wait for it. */
TEST(iscsi_tcp, data_of_an_ordered_command_does_not_wait)
{
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS);
	ready();
	hoard_all();
	itt = command(0xa0 | SCSI_ORDERED, 8192, 0x2a, 0, 16, pattern, 8192,
		      16384);
	answered(ISCSI_OP_RESPONSE, itt, SCSI_TASK_SET_FULL);
	hoard_keep(0);
	end();
}

/* Its session ends meanwhile: by us, by another login, with its socket, with all. */
TEST(iscsi_tcp, data_that_waits_and_the_end)
{
	for (unsigned how = 0; how < 4; how++) {
		(void)writes_without_memory(1);
		if (how == 0) {
			CHECK_EQ(iscsi_portal_drop(iscsi, 1, NULL), 0);
			CHECK(hung_up());
		} else if (how == 1) {
			close(cl.fd);
			LOGIN(KEYS);
			CHECK_EQ(iscsi->sessions_count, 1);
		} else if (how == 2) {
			struct iscsi_conn *conn = TAILQ_FIRST(&iscsi->conns);

			close(cl.fd);
			cl.fd = -1;
			time_is_up(tcp_of(conn->dm));
			for (unsigned i = 0; i < 1000 && iscsi->conns_count > 0;
			     i++)
				run(1);
			CHECK_EQ(iscsi->conns_count, 0);
		}
		iscsi_end();
		hoard_keep(0);
		end();
	}
}

/* Another initiator's reset ends the command; its data is swallowed. */
TEST(iscsi_tcp, data_that_waits_and_a_reset)
{
	uint32_t itt;
	int fd;

	(void)writes_without_memory(1);
	itt = cl.itt;
	fd = cl.fd;
	cl.isid = 1;
	LOGIN(KEYS);
	ask(ISCSI_OP_TMF, SCSI_LUN_RESET);
	answered(ISCSI_OP_TMF_RSP, cl.itt, 0);
	close(cl.fd);
	cl.isid = 0;
	cl.fd = fd;
	hoard_keep(0);
	answered(ISCSI_OP_RESPONSE, itt - 1, SCSI_TASK_ABORTED);
	answered(ISCSI_OP_NOP_IN, itt, 0);
	end();
}

/* A peer that reads nothing holds up nobody, and ends without a leak. */
TEST(iscsi_tcp, peer_that_does_not_read)
{
	struct tcp_conn *conn;
	int small = 4096;

	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS);
	setsockopt(cl.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	ready();
	for (unsigned i = 0; i < 100; i++)
		command(0xc0, 1 << 20, 0x28, 0, 2048, NULL, 0, 4096);
	conn = tcp_of(TAILQ_FIRST(&iscsi->conns)->dm);
	for (unsigned i = 0; i < 10000 && !conn->tx_full; i++)
		run(1);
	/* Time goes by; the timer comes around to it. */
	CHECK(conn->tx_since_ns != 0 && env_timer_active(&conn->timer));
	conn->tx_since_ns -= TCP_SEND_MS * MSEC;
	env_timer_start(ts.env, &conn->timer, 0);
	for (unsigned i = 0; i < 10000 && !TAILQ_EMPTY(&iscsi->conns); i++)
		run(1);
	CHECK(TAILQ_EMPTY(&iscsi->conns));
	end(); /* the arena asserts that every page came home */
}

/* A host that dies is not told as a failure of ours. */
TEST(iscsi_tcp, a_reset_is_the_initiators)
{
	struct linger now = { .l_onoff = 1 };
	int saved = dup(STDERR_FILENO);
	FILE *said = tmpfile();
	char line[512];
	unsigned n = 0;

	CHECK(said != NULL && saved >= 0);
	CHECK(dup2(fileno(said), STDERR_FILENO) >= 0);
	fixture((struct iscsi_config){ 0 });
	LOGIN(KEYS);
	ready();
	CHECK_EQ(setsockopt(cl.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)),
		 0);
	close(cl.fd);
	cl.fd = -1;
	for (unsigned i = 0; i < 10000 && !TAILQ_EMPTY(&iscsi->conns); i++)
		run(1);
	end();
	CHECK(dup2(saved, STDERR_FILENO) >= 0);
	close(saved);
	rewind(said);
	while (fgets(line, sizeof(line), said) != NULL)
		n += strstr(line, "the initiator hung up") != NULL;
	fclose(said);
	CHECK_EQ(n, 1); /* and once only */
}

TEST(iscsi_tcp, discovery_in_parts)
{
	uint8_t login_bhs[ISCSI_BHS_LEN] = { 0x43, 0x87 };
	static const char names[] =
		"InitiatorName=" WHO "\0SessionType=Discovery\0"
		"MaxRecvDataSegmentLength=512\0";
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_TEXT, 0x80 };
	char iqn[64], all[16384];
	unsigned parts = 0, targets = 0;
	size_t len = 0;
	struct pdu pdu;

	fixture((struct iscsi_config){ 0 });
	for (unsigned i = 0; i < 50; i++) {
		snprintf(iqn, sizeof(iqn), IQN "%u", i);
		CHECK_EQ(iscsi_target_set(iscsi,
					  &(struct iscsi_target_conf){
						  .iqn = iqn,
						  .allow = any,
						  .allow_count = i < 40 }),
			 0);
	}
	dial();
	login_bhs[8] = 0x80;
	put_be32(login_bhs + 24, cl.cmdsn);
	put_pdu(login_bhs, names, sizeof(names) - 1, 4096);
	CHECK(get_pdu(&pdu));
	CHECK_EQ(get_be16(pdu.bhs + 36), 0);
	put_be32(bhs + 16, 5);
	put_be32(bhs + 20, ISCSI_NO_TAG);
	put_be32(bhs + 24, cl.cmdsn++);
	put_pdu(bhs, "SendTargets=All", 16, 4096);
	for (;;) {
		CHECK(get_pdu(&pdu));
		CHECK_EQ(pdu.bhs[0], ISCSI_OP_TEXT_RSP);
		CHECK(pdu.len <= 512 && len + pdu.len < sizeof(all));
		memcpy(all + len, pdu.data, pdu.len);
		len += pdu.len;
		parts++;
		if (pdu.bhs[1] & 0x80)
			break;
		/* C says that a pair is cut */
		CHECK_EQ(!!(pdu.bhs[1] & 0x40), pdu.data[pdu.len - 1] != 0);
		memcpy(bhs + 20, pdu.bhs + 20, 4);
		put_be32(bhs + 24, cl.cmdsn++);
		put_pdu(bhs, NULL, 0, 4096);
	}
	for (size_t at = 0; at < len; at += strlen(all + at) + 1)
		targets += strncmp(all + at, "TargetName=", 11) == 0;
	CHECK_EQ(targets, 41); /* those that admit nobody are not named */
	CHECK(parts > 5);
	end();
}

TEST(iscsi_tcp, not_iscsi)
{
	uint8_t header[ISCSI_BHS_LEN] = { 0x43, 0x87 };

	fixture((struct iscsi_config){ 0 });
	dial();
	put_bytes((const uint8_t *)"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"
				   "more than one header has",
		  60, 60);
	CHECK(hung_up());
	close(cl.fd);
	/* Nor is a login of more than 8 KiB: its data is not waited for. */
	dial();
	put_be24(header + 5, ISCSI_LOGIN_DATA_MAX + 1);
	put_bytes(header, sizeof(header), sizeof(header));
	CHECK(hung_up());
	end();
}

/* Descriptors are out: it is said once, however often it is tried. */
TEST(iscsi_tcp, out_of_descriptors)
{
	FILE *said = tmpfile();
	struct rlimit limit, none;
	char line[512];
	unsigned failed = 0, again = 0;
	int saved = dup(STDERR_FILENO), waiting;

	CHECK(said != NULL && saved >= 0);
	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
	fixture((struct iscsi_config){ 0 });
	dial();
	waiting = cl.fd;
	CHECK(dup2(fileno(said), STDERR_FILENO) >= 0);
	/* What is open stays so; nothing can be opened. */
	none = (struct rlimit){ .rlim_max = limit.rlim_max };
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
	for (unsigned i = 0; i < 10000 && ftell(said) == 0; i++) {
		run(1);
		CHECK_EQ(fseek(said, 0, SEEK_END), 0);
	}
	run(500); /* it goes on to try */
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
	for (unsigned i = 0; i < 10000 && TAILQ_EMPTY(&iscsi->conns); i++)
		run(1);
	login("", 0);
	CHECK(dup2(saved, STDERR_FILENO) >= 0);
	close(saved);
	close(waiting);
	rewind(said);
	while (fgets(line, sizeof(line), said) != NULL) {
		failed += strstr(line, "accepting failed") != NULL;
		again += strstr(line, "again") != NULL;
	}
	fclose(said);
	CHECK_EQ(failed, 1);
	CHECK_EQ(again, 1);
	end();
}
