/*
 * iser_tx: the send queue: long answers of a login, tasks that share a list, what
 * waits for whom, and the last word.
 */
#include "iscsi/iscsi_int.h"
#include "tests/unit/iser_initiator.h"

#define UNKNOWN_KEYS 8u

static const char *unknown(char which, unsigned i, const char *value)
{
	static char pair[64];

	snprintf(pair, sizeof(pair), "X-com.example.nobody-knows-%c%u=%s",
		 which, i, value);
	return pair;
}

/* A Login Request, of one login all of them, whose answer fits no slot. */
static void login_part(char which, uint8_t flags)
{
	struct message *m = login_message("");
	uint32_t len = (uint32_t)(m->len - ISER_FIXED_LEN);

	if (which != '0') /* the keys have been sent */
		m->len = ISER_FIXED_LEN + (len = 0);
	for (unsigned i = 0; i < UNKNOWN_KEYS; i++) {
		const char *pair = unknown(which, i, "1");
		size_t n = strlen(pair) + 1;

		memcpy(m->bytes + m->len, pair, n);
		m->len += n;
		len += (uint32_t)n;
	}
	m->bytes[28 + 1] = flags;
	put_be24(m->bytes + 28 + 5, len);
	put_be32(m->bytes + 28 + 16, 1);
	CHECK(give(m));
}

static void login_answer(char which)
{
	struct fake_message *m = receive();

	CHECK(m != NULL);
	CHECK_EQ(m->bytes[28], ISCSI_OP_LOGIN_RSP);
	CHECK_EQ(get_be16(m->bytes + 28 + 36), 0);
	CHECK(m->len > ISER_FIXED_LEN + TX_SLOT_DATA);
	for (unsigned i = 0; i < UNKNOWN_KEYS; i++)
		CHECK(has_text(m, unknown(which, i, "NotUnderstood")));
	free(m);
}

/*
 * An initiator that fetches nothing asks on: each answer is its own.  The first
 * one, which asks for the rest of a text, is short.
 */
TEST(iser_tx, long_answers)
{
	struct iser_conn *conn;
	struct fake_message *m;

	fixture();
	dial(0x80, 4);
	conn = TAILQ_FIRST(&iser->conns);
	fake_peer_hold(peer, true);
	login_part('0', ISCSI_CONTINUE | 0x04);
	login_part('a', 0x04);
	login_part('b', 0x04);
	CHECK_EQ(conn->tx.sends_out, 2);
	fake_peer_let(peer, 1);
	m = receive();
	CHECK(m != NULL);
	CHECK_EQ(m->len, ISER_FIXED_LEN);
	free(m);
	CHECK_EQ(conn->tx.sends_out, 1); /* its pages are in use */
	login_part('c', 0x87);
	fake_peer_hold(peer, false);
	login_answer('a');
	login_answer('b');
	login_answer('c');
	end();
}

/* The next message's tag lies in the same list as that of the last one. */
static void tag_beside(void)
{
	unsigned list = iscsi_itt_bucket(itt);

	while (iscsi_itt_bucket(++itt) != list)
		;
	itt--;
}

/* A task ends while its data is fetched; that of its neighbour is fetched on. */
TEST(iser_tx, abort_leaves_the_neighbour)
{
	static uint8_t data[64 << 10];
	struct fake_message *answer;
	uint32_t first, second;
	struct message *m;

	fixture();
	ready();
	pattern(data, sizeof(data), 5);
	fake_peer_hold(peer, true);
	write_send(0, 128, 0, 4);
	first = itt;
	tag_beside();
	m = command(0x20, sizeof(data));
	rw10(m, 0x2a, 1024, sizeof(data) / 512);
	put_be32(m->bytes + 4, KEY + 1);
	put_be64(m->bytes + 8, BASE + 4096);
	fake_peer_expose(peer, KEY + 1, data, sizeof(data));
	CHECK(give(m));
	second = itt;
	CHECK_EQ(iscsi_itt_bucket(first), iscsi_itt_bucket(second));
	m = message(ISCSI_OP_TMF | ISCSI_IMMEDIATE, ISCSI_FINAL | 1);
	put_be32(m->bytes + 28 + 20, first);
	put_be32(m->bytes + 28 + 32, cmdsn - 2);
	CHECK(give(m));
	fake_peer_hold(peer, false);
	for (unsigned i = 0; i < 2; i++) {
		bool tmf;

		answer = receive();
		CHECK(answer != NULL);
		tmf = answer->bytes[28] == ISCSI_OP_TMF_RSP;
		CHECK_EQ(get_be32(answer->bytes + 28 + 16),
			 tmf ? second + 1 : second);
		CHECK_EQ(answer->bytes[28 + (tmf ? 2 : 3)], 0);
		free(answer);
	}
	read_back(1024, sizeof(data) / 512, 5);
	end();
}

/* An answer waits for fetches of its own task, and for nobody else's. */
TEST(iser_tx, no_fence_for_the_neighbour)
{
	struct fake_message *answer;
	uint32_t other;

	fixture();
	ready();
	fake_peer_hold(peer, true);
	write_send(0, 128, 0, 4);
	tag_beside();
	CHECK(give(command(0, 0)));
	other = itt;
	fake_peer_hold(peer, false);
	answer = receive();
	CHECK(answer != NULL);
	CHECK_EQ(get_be32(answer->bytes + 28 + 16), other);
	CHECK(!answer->fenced);
	free(answer);
	answer = receive();
	CHECK(answer != NULL);
	free(answer);
	end();
}

/*
 * Software iWARP completes an answer before a READ that was posted in front of it:
 * that data is not there yet for all that.
 */
TEST(iser_tx, answer_before_the_read)
{
	struct fake_message *answer;
	uint32_t write;

	fixture_with((struct fake_rdma_config){
		.iwarp = true, .siw = true, .sge_read = 1 });
	ready();
	write_send(0, 128, 0, 4);
	good(KEY);
	fake_peer_hold_reads(peer, true);
	write_send(0, 128, 0, 5);
	write = itt;
	tag_beside();
	for (unsigned i = 0; i < 3; i++) {
		CHECK(give(command(0, 0)));
		answer = receive();
		CHECK(answer != NULL);
		CHECK_EQ(get_be32(answer->bytes + 28 + 16), itt);
		free(answer);
	}
	CHECK(receive() == NULL); /* nothing of the write is known */
	fake_peer_hold_reads(peer, false);
	answer = receive();
	CHECK(answer != NULL);
	CHECK_EQ(get_be32(answer->bytes + 28 + 16), write);
	CHECK_EQ(answer->bytes[28 + 3], 0);
	free(answer);
	read_back(0, 128, 5);
	end();
}

/*
 * And what is posted to it once its queue pair is in error never comes back: when
 * all that was posted before did, that is the end, and not after a time.
 */
TEST(iser_tx, marker_that_does_not_come_back)
{
	uint64_t undrained, from;

	fixture_with((struct fake_rdma_config){
		.iwarp = true, .siw = true, .sge_read = 1 });
	ready();
	undrained = counter_value(&iser__undrained);
	fake_peer_hold_reads(peer, true);
	write_send(0, 128, 0, 4);
	from = env_now(iser->env);
	fake_peer_disconnect(peer);
	while (iser->conns_count > 0)
		turns();
	CHECK(env_now(iser->env) - from < SEC);
	CHECK_EQ(counter_value(&iser__undrained), undrained);
	end();
}

/* What was posted behind an error is lost there: that is not waited for, either. */
TEST(iser_tx, posted_behind_an_error)
{
	uint64_t undrained, from;
	struct message *m;

	fixture_with((struct fake_rdma_config){
		.iwarp = true, .siw = true, .sge_read = 1 });
	ready();
	undrained = counter_value(&iser__undrained);
	from = env_now(iser->env);
	fake_peer_error(peer);
	m = command(0x40, 2 << 20); /* more than is posted at once */
	rw10(m, 0x28, 0, 4096);
	CHECK(give(m));
	while (iser->conns_count > 0)
		turns();
	CHECK(env_now(iser->env) - from < 2 * SEC);
	CHECK_EQ(counter_value(&iser__undrained), undrained + 1);
	end();
}

/* Whose logout was refused has not said goodbye: it is told of the end. */
TEST(iser_tx, refused_logout)
{
	struct fake_message *answer;

	fixture();
	ready();
	CHECK(give(
		message(ISCSI_OP_LOGOUT | ISCSI_IMMEDIATE, ISCSI_FINAL | 2)));
	answer = receive();
	CHECK(answer != NULL);
	CHECK_EQ(answer->bytes[28], ISCSI_OP_LOGOUT_RSP);
	CHECK_EQ(answer->bytes[28 + 2], 2); /* no recovery of connections */
	free(answer);
	CHECK_EQ(iscsi_portal_drop(iscsi, 1, NULL), 0);
	turns();
	CHECK_EQ(fake_peer_state(peer), FAKE_DOWN);
	end();
}

/* The initiator hung up before its answer had left: its id stays for nobody. */
TEST(iser_tx, logout_and_gone)
{
	struct message *m;

	fixture();
	ready();
	fake_peer_hold(peer, true);
	m = message(ISCSI_OP_LOGOUT | ISCSI_IMMEDIATE, ISCSI_FINAL);
	CHECK(give(m));
	CHECK(TAILQ_FIRST(&iser->conns)->goodbye);
	fake_peer_disconnect(peer);
	while (counter_value(&iser__conns) > 0)
		turns();
	CHECK_EQ(iser->leaving_count, 0);
	end();
}

/* More answers than there are places to send from: each has its turn. */
TEST(iser_tx, places_to_send_from)
{
	struct fake_message *answer;
	unsigned count = 0;

	fixture();
	ready();
	fake_peer_hold(peer, true);
	for (unsigned i = 0; i < ISER_WINDOW_MAX; i++)
		CHECK(give(command(0, 0)));
	CHECK_EQ(TAILQ_FIRST(&iser->conns)->tx.sends_out, TX_SLOTS);
	fake_peer_hold(peer, false);
	while ((answer = receive()) != NULL) {
		count++;
		CHECK_EQ(get_be32(answer->bytes + 28 + 16),
			 itt - ISER_WINDOW_MAX + count);
		free(answer);
	}
	CHECK_EQ(count, ISER_WINDOW_MAX);
	end();
}

static const struct message *late;

static void send_late(void)
{
	CHECK(fake_peer_send(peer, late->bytes, late->len));
}

/*
 * A message comes between the last look at the completions and their arming,
 * which tells of later ones only.
 */
TEST(iser_tx, one_before_the_arming)
{
	struct message first;

	fixture();
	ready();
	CHECK(!TAILQ_FIRST(&iser->conns)->hot);
	first = *message(ISCSI_OP_NOP_OUT | ISCSI_IMMEDIATE, ISCSI_FINAL);
	put_be32(first.bytes + 28 + 16, ISCSI_NO_TAG); /* and no answer */
	late = command(0, 0);
	fake_rdma_before_arming(send_late);
	CHECK(give(&first));
	good(0);
	end();
}

/*
 * What all of them send together comes in by one link: each has data in flight, but
 * together no more than fills it; and who is alone has all of it.
 */
TEST(iser_tx, fetchers_share)
{
	enum { PEERS = 12, BLOCKS = 4096 };
	static struct fake_peer *peers[PEERS];
	size_t sum = 0, alone = 0;

	fixture();
	for (unsigned i = 0; i < PEERS; i++) {
		struct message *m;

		peer = NULL;
		dial(0x80, 4);
		peers[i] = peer;
		m = login_message("");
		put_be16(m->bytes + 28 + 12, (uint16_t)i); /* of its ISID */
		CHECK(give(m));
		free(receive());
		CHECK(give(command(0, 0))); /* attention */
		free(receive());
		fake_peer_hold_reads(peer, true);
		write_send(0, BLOCKS, 0, 4);
		if (i == 0)
			alone = fake_peer_reads_bytes(peer);
	}
	CHECK(alone > TX_READS_BYTES / PEERS);
	/* They have posted what they may; their share is less since. */
	for (unsigned i = 0; i < PEERS; i++) {
		fake_peer_hold_reads(peers[i], false);
		fake_peer_hold_reads(peers[i], true);
		turns();
	}
	for (unsigned i = 0; i < PEERS; i++) {
		CHECK(fake_peer_reads_bytes(peers[i]) >= TX_READS_LEAST);
		sum += fake_peer_reads_bytes(peers[i]);
	}
	CHECK(sum <= TX_READS_BYTES);
	CHECK_EQ(LIST_FIRST(&iser->devices)->fetchers, PEERS);
	for (unsigned i = 0; i < PEERS; i++) {
		fake_peer_hold_reads(peers[i], false);
		turns();
		peer = peers[i];
		free(receive());
	}
	CHECK_EQ(LIST_FIRST(&iser->devices)->fetchers, 0);
	read_back(0, BLOCKS, 4);
	for (unsigned i = 0; i + 1 < PEERS; i++) {
		fake_peer_disconnect(peers[i]);
		turns();
		fake_peer_free(peers[i]);
	}
	end();
}

/* Of many that send little at a time each has as much of it there as its share is. */
TEST(iser_tx, little_at_a_time)
{
	enum { OTHERS = 400, READS = 4 };
	static uint8_t data[4096];
	struct iser_device *device;

	fixture();
	ready();
	device = LIST_FIRST(&iser->devices);
	device->fetchers += OTHERS;
	fake_peer_hold_reads(peer, true);
	for (unsigned i = 0; i < READS + 1; i++) {
		struct message *m = command(0x20, sizeof(data));

		rw10(m, 0x2a, i * 8, 8);
		put_be32(m->bytes + 4, KEY + i);
		put_be64(m->bytes + 8, BASE + i * 4096ull);
		fake_peer_expose(peer, KEY + i, data, sizeof(data));
		CHECK(give(m));
	}
	CHECK_EQ(fake_peer_reads_bytes(peer), TX_READS_LEAST);
	CHECK_EQ(device->fetchers, OTHERS + 1);
	fake_peer_hold_reads(peer, false);
	for (unsigned i = 0; i < READS + 1; i++)
		free(receive());
	CHECK_EQ(device->fetchers, OTHERS);
	device->fetchers = 0;
	end();
}
