/*
 * iSER connections on a fake device, below real sessions over a fake dom: login,
 * data both ways, faults at every step, and that nothing stays behind.
 */
#include "iscsi/iscsi_int.h"
#include "tests/unit/iser_initiator.h"

#include <sys/resource.h>
#include <unistd.h>

TEST(iser_conn, login)
{
	fixture();
	up();
	CHECK_EQ(fake_peer_depth(peer), 4);
	CHECK_EQ(get_be32(fake_peer_private(peer)), 0x80000000);
	end();
}

TEST(iser_conn, depths)
{
	fixture();
	dial(0xc0, 255);
	CHECK_EQ(fake_peer_depth(peer), 16); /* the device's */
	CHECK_EQ(get_be32(fake_peer_private(peer)), 0xc0000000);
	login_as("ImmediateData=No"); /* as libiscsi 1.19 wants it */
	fake_peer_disconnect(peer);
	turns();
	dial(0xc0, 0); /* it serves no RDMA READ */
	CHECK_EQ(fake_peer_state(peer), FAKE_REFUSED);
	LIST_FIRST(&iser->devices)->rdma->attr.max_qp_init_rd_atom = 64;
	dial(0xc0, 255);
	CHECK_EQ(fake_peer_depth(peer), TX_READS_MAX);
	end();
}

TEST(iser_conn, write_immediate)
{
	fixture();
	ready();
	write_send(8, 16, 8192, 3);
	good(KEY);
	read_back(8, 16, 3);
	/* 4 KiB with its STag invalid: all of it came along */
	write_send(8, 8, 4096, 5);
	good(KEY);
	read_back(8, 8, 5);
	end();
}

TEST(iser_conn, write_fetched)
{
	static const uint32_t sizes[] = { 1,   7,   8,	  16,	17,
					  128, 255, 2048, 5000, 8000 };

	fixture();
	ready();
	for (unsigned i = 0; i < ARRAY_LEN(sizes); i++) {
		uint32_t bytes = sizes[i] * 512;

		write_send(3, sizes[i], 0, 10 + i);
		good(KEY);
		read_back(3, sizes[i], 10 + i);
		write_send(64, sizes[i], MIN(8192, bytes), 20 + i);
		good(KEY);
		read_back(64, sizes[i], 20 + i);
	}
	CHECK(fake_peer_reads_max(peer) <= 4);
	end();
}

static uint64_t copied(void)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < COPIED_REASONS; i++)
		sum += counter_value(&copied_bytes[i]);
	return sum;
}

/* Nothing is copied where it lies right. */
TEST(iser_conn, no_copies)
{
	static const struct {
		uint32_t lba, blocks, immediate;
	} right[] = {
		{ 0, 8, 4096 },	     { 0, 16, 8192 },	{ 0, 2048, 0 },
		{ 1024, 128, 8192 }, { 8, 2048, 8192 }, { 8, 2048, 4096 },
		{ 16, 17, 8192 }, /* ends within a block */
	};
	uint64_t before;

	fixture();
	ready();
	before = copied();
	for (unsigned i = 0; i < ARRAY_LEN(right); i++) {
		write_send(right[i].lba, right[i].blocks, right[i].immediate,
			   i);
		good(KEY);
		read_back(right[i].lba, right[i].blocks, i);
	}
	CHECK_EQ(copied(), before);

	/* What came with the command lies elsewhere than the rest wants it. */
	write_send(1, 128, 8192, 1);
	good(KEY);
	read_back(1, 128, 1);
	CHECK_EQ(copied(), before + 8192);
	write_send(8, 128, 6144, 2);
	good(KEY);
	read_back(8, 128, 2);
	CHECK_EQ(copied(), before + 8192 + 6144);
	end();
}

/* Text that lies in two pages, which are no neighbours. */
TEST(iser_conn, text_in_two_pages)
{
	static const char behind[] = "X-com.example.behind=1";
	struct fake_message *answer;
	struct message *m;

	fixture();
	hoard_all();
	/* Every other page is free. */
	for (unsigned i = 0; i < hoard_count; i += 2) {
		sgl_put(hoard[i]);
		hoard[i] = NULL;
	}
	dial(0x80, 4);
	m = login_message("");
	/* NULs between pairs are passed over. */
	memset(m->bytes + m->len, 0, 6000);
	m->len = ISER_FIXED_LEN + 6000;
	memcpy(m->bytes + m->len, behind, sizeof(behind));
	m->len += sizeof(behind);
	put_be24(m->bytes + 28 + 5, (uint32_t)(m->len - ISER_FIXED_LEN));
	CHECK(give(m));
	answer = receive();
	CHECK(answer != NULL);
	CHECK(has_text(answer, "X-com.example.behind=NotUnderstood"));
	free(answer);
	hoard_keep(0);
	end();
}

/* One READ at a time, one piece of memory each: iWARP. */
TEST(iser_conn, iwarp)
{
	fixture_with((struct fake_rdma_config){
		.iwarp = true, .sge_read = 1, .no_srq = true });
	dial(0x80, 1);
	login();
	CHECK(give(command(0, 0)));
	free(receive());
	write_send(0, 2048, 0, 4);
	good(KEY);
	read_back(0, 2048, 4);
	CHECK_EQ(fake_peer_reads_max(peer), 1);
	end();
}

static unsigned login_status(void)
{
	struct fake_message *m;
	unsigned status;

	CHECK(give(login_message("")));
	m = receive();
	CHECK(m != NULL);
	status = get_be16(m->bytes + 28 + 36);
	free(m);
	return status;
}

/*
 * There a message without a receive is the end: nobody takes those of others,
 * and who could not have all that his window needs is not let in.
 */
TEST(iser_conn, iwarp_receives)
{
	struct iser_conn *conn;

	fixture_with((struct fake_rdma_config){ .iwarp = true, .sge_read = 1 });
	dial(0x80, 4);
	conn = TAILQ_FIRST(&iser->conns);
	CHECK(conn->own_recvq);
	hoard_all();
	CHECK_EQ(login_status(), 0x0302);
	/* Not even for those of the login. */
	for (unsigned free = 0; free < 16; free++) {
		hoard_keep(hoard_count - free);
		dial(0x80, 4);
		if (fake_peer_state(peer) == FAKE_UP)
			CHECK_EQ(login_status(), 0x0302);
		else
			CHECK_EQ(fake_peer_state(peer), FAKE_REFUSED);
		fake_peer_disconnect(peer);
		turns();
		hoard_all();
	}
	hoard_keep(0);
	dial(0x80, 4);
	conn = TAILQ_FIRST(&iser->conns);
	CHECK_EQ(login_status(), 0);
	CHECK_EQ(conn->recvq->posted, conn->receives);
	end();
}

/* Everything that came, and how many commands it may send behind the last. */
static unsigned window_left(void)
{
	struct fake_message *m;
	uint32_t max = cmdsn;

	while ((m = receive()) != NULL) {
		max = get_be32(m->bytes + 28 + 32);
		free(m);
	}
	return max + 1 - cmdsn;
}

/*
 * Nor does it end there when memory runs out afterwards, while data that came in
 * receives is kept: each command that it may send finds one.
 */
TEST(iser_conn, iwarp_receives_without_memory)
{
	static uint8_t data[8192];
	struct message *m;

	fixture_with((struct fake_rdma_config){ .iwarp = true, .sge_read = 1 });
	ready();
	hoard_all();
	fake_dom_hold(dom, true);
	fake_dom_stubborn(dom, true);
	for (unsigned round = 0; round < 3; round++) {
		m = message(ISCSI_OP_NOP_OUT | ISCSI_IMMEDIATE, ISCSI_FINAL);
		put_be32(m->bytes + 28 + 20, ISCSI_NO_TAG);
		CHECK(give(m));
		for (unsigned left = window_left(); left > 0; left--) {
			m = command(0x20, sizeof(data));
			m->bytes[0] = 0x10; /* nothing is left to fetch */
			rw10(m, 0x2a, 16 * left, 16);
			message_data(m, data, sizeof(data));
			CHECK(give(m));
		}
		m = message(ISCSI_OP_TMF | ISCSI_IMMEDIATE, ISCSI_FINAL | 2);
		put_be32(m->bytes + 28 + 20, ISCSI_NO_TAG);
		CHECK(give(m)); /* abort task set */
	}
	CHECK_EQ(fake_peer_state(peer), FAKE_UP);
	hoard_keep(0);
	fake_dom_hold(dom, false);
	(void)window_left();
	write_send(8, 16, 8192, 3);
	good(KEY);
	read_back(8, 16, 3);
	end();
}

TEST(iser_conn, no_invalidation_without_leave)
{
	struct fake_message *m;

	fixture();
	dial(0xc0, 4);
	login_as("ImmediateData=No");
	CHECK(give(command(0, 0)));
	free(receive());
	write_send(0, 64, 0, 4);
	m = receive();
	CHECK(m != NULL);
	CHECK_EQ(m->invalidated, 0);
	free(m);
	end();
}

/* Nor by a device that cannot: the initiator is told so. */
TEST(iser_conn, no_invalidation_by_the_device)
{
	fixture();
	LIST_FIRST(&iser->devices)->rdma->attr.device_cap_flags = 0;
	ready();
	CHECK_EQ(get_be32(fake_peer_private(peer)), 0xc0000000);
	write_send(0, 64, 0, 4);
	good(0);
	end();
}

/* Initiators have 128 receives, whatever the window is elsewhere. */
TEST(iser_conn, window_that_leaves_receives)
{
	struct message *m;
	struct fake_message *answer;

	fixture();
	ready();
	m = message(ISCSI_OP_NOP_OUT | ISCSI_IMMEDIATE, ISCSI_FINAL);
	put_be32(m->bytes + 28 + 20, ISCSI_NO_TAG);
	CHECK(give(m));
	answer = receive();
	CHECK(answer != NULL);
	CHECK_EQ(answer->bytes[28], ISCSI_OP_NOP_IN);
	CHECK_EQ(get_be32(answer->bytes + 28 + 32) -
			 get_be32(answer->bytes + 28 + 28) + 1,
		 ISER_WINDOW_MAX);
	CHECK_EQ(TAILQ_FIRST(&iser->conns)->receives,
		 ISER_WINDOW_MAX + RECV_SPARE);
	free(answer);
	end();
}

/*
 * Many are answered at once: whichever of the answers it has seen, it sends no
 * more commands than it has receives for.
 */
TEST(iser_conn, answers_at_once_leave_receives)
{
	uint32_t first;
	unsigned answered = 0;
	struct fake_message *m;

	fixture();
	ready();
	first = cmdsn;
	for (unsigned i = 0; i < ISER_WINDOW_MAX; i++) {
		const struct message *tur = command(0, 0);

		CHECK(fake_peer_send(peer, tur->bytes, tur->len));
	}
	while ((m = receive()) != NULL) {
		uint32_t out;

		answered++;
		out = get_be32(m->bytes + 28 + 32) + 1 - (first + answered);
		CHECK(out <= ISER_WINDOW_MAX);
		if (answered == ISER_WINDOW_MAX) /* and all of those */
			CHECK_EQ(out, ISER_WINDOW_MAX);
		free(m);
	}
	CHECK_EQ(answered, ISER_WINDOW_MAX);
	end();
}

/* The memory of an aborted write stays until the device let go of it. */
TEST(iser_conn, abort_while_fetching)
{
	struct message *m;
	struct fake_message *answer;
	size_t used;

	fixture();
	ready();
	fake_peer_hold(peer, true);
	used = arena_used(ts.arena, PAGE_FRONT);
	write_send(0, 2048, 0, 4);
	CHECK(arena_used(ts.arena, PAGE_FRONT) >= used + 256);
	m = message(ISCSI_OP_TMF | ISCSI_IMMEDIATE, ISCSI_FINAL | 1);
	put_be32(m->bytes + 28 + 20, itt - 1); /* abort task */
	put_be32(m->bytes + 28 + 32, cmdsn - 1);
	CHECK(give(m));
	CHECK(arena_used(ts.arena, PAGE_FRONT) >= used + 256);
	fake_peer_hold(peer, false);
	answer = receive();
	CHECK(answer != NULL);
	CHECK_EQ(answer->bytes[28], ISCSI_OP_TMF_RSP);
	CHECK_EQ(answer->bytes[28 + 2], 0);
	free(answer);
	CHECK(receive() == NULL); /* no response to the write */
	CHECK_EQ(arena_used(ts.arena, PAGE_FRONT), used);
	read_blocks(0, 8);
	for (unsigned i = 0; i < 4096; i++)
		CHECK_EQ(memory[i], 0); /* it was never written */
	end();
}

/*
 * Another initiator's reset aborts a write whose data is being fetched: the
 * answer, which gives the memory back, leaves behind the last READ.
 */
TEST(iser_conn, reset_while_fetching)
{
	struct fake_peer *first;
	struct fake_message *answer;
	uint32_t write_itt;
	struct message *m;

	fixture();
	ready();
	fake_peer_hold(peer, true);
	write_send(0, 2048, 0, 4);
	write_itt = itt;
	first = peer;
	peer = NULL;
	dial(0x80, 4);
	m = login_message("");
	put_be32(m->bytes + 28 + 8, 0x00023d01); /* a port of its own */
	CHECK(give(m));
	free(receive());
	m = message(ISCSI_OP_TMF | ISCSI_IMMEDIATE, ISCSI_FINAL | 5);
	put_be32(m->bytes + 28 + 20, ISCSI_NO_TAG);
	CHECK(give(m));
	fake_peer_hold(first, false);
	turns();
	answer = fake_peer_receive(first);
	CHECK(answer != NULL);
	CHECK_EQ(answer->bytes[28], ISCSI_OP_RESPONSE);
	CHECK_EQ(answer->bytes[28 + 3], 0x40); /* TASK ABORTED */
	CHECK_EQ(get_be32(answer->bytes + 28 + 16), write_itt);
	CHECK_EQ(answer->invalidated, KEY);
	free(answer);
	answer = receive();
	CHECK(answer != NULL);
	CHECK_EQ(answer->bytes[28], ISCSI_OP_TMF_RSP);
	CHECK_EQ(answer->bytes[28 + 2], 0);
	free(answer);
	CHECK_EQ(fake_peer_state(first), FAKE_UP);
	fake_peer_disconnect(first);
	turns();
	fake_peer_free(first);
	end();
}

/* The initiator goes while its data is being fetched, or sent. */
TEST(iser_conn, vanishes)
{
	for (unsigned step = 0; step < 5; step++) {
		fixture();
		dial(0x80, 4);
		if (step > 0)
			login();
		fake_peer_hold(peer, step > 1);
		if (step == 2)
			write_send(0, 2048, 8192, 4);
		if (step == 3) {
			struct message *m = command(0x40, 1 << 20);

			rw10(m, 0x28, 0, 2048);
			CHECK(give(m));
		}
		if (step == 4)
			CHECK(give(command(0, 0)));
		fake_peer_disconnect(peer);
		turns();
		end();
	}
}

/* It posts no receives, and has the device try for ever. */
TEST(iser_conn, receives_nothing)
{
	struct fake_message *m;
	struct iser_conn *conn;

	fixture();
	ready();
	conn = TAILQ_FIRST(&iser->conns);
	/* What was completed meanwhile is no reason, nor is a silent one. */
	CHECK(env_timer_active(&conn->timer));
	env_timer_stop(ts.env, &conn->timer);
	conn->timer.cb(&conn->timer);
	CHECK(!env_timer_active(&conn->timer));
	CHECK(give(command(0, 0)));
	m = receive();
	CHECK(m != NULL && env_timer_active(&conn->timer));
	free(m);
	fake_peer_hold(peer, true);
	CHECK(give(command(0, 0)));
	turns();
	for (unsigned i = 0; i < 2; i++) {
		CHECK_EQ(fake_peer_state(peer), FAKE_UP);
		CHECK(env_timer_active(&conn->timer));
		env_timer_stop(ts.env, &conn->timer);
		conn->timer.cb(&conn->timer);
	}
	turns();
	CHECK_EQ(fake_peer_state(peer), FAKE_DOWN);
	end();
}

static void time_out(struct iser_conn *conn)
{
	CHECK(env_timer_active(&conn->timer));
	env_timer_stop(ts.env, &conn->timer);
	conn->timer.cb(&conn->timer);
}

/*
 * It was the loop that stood still, and the time was up before the completions
 * were seen: neither the initiator nor, at the end, the device is blamed for it.
 */
TEST(iser_conn, late_look)
{
	uint64_t undrained = counter_value(&iser__undrained);
	struct iser_conn *conn;

	fixture();
	ready();
	conn = TAILQ_FIRST(&iser->conns);
	fake_peer_hold(peer, true);
	CHECK(give(command(0, 0)));
	time_out(conn); /* what was posted before was completed since */
	fake_peer_hold(peer, false);
	time_out(conn);
	good(0);
	CHECK_EQ(fake_peer_state(peer), FAKE_UP);

	fake_peer_freeze(peer, true);
	CHECK(give(command(0, 0)));
	CHECK_EQ(iscsi_portal_drop(iscsi, 1, NULL), 0);
	turns();
	CHECK(conn->closing);
	fake_peer_freeze(peer, false);
	time_out(conn);
	turns();
	CHECK_EQ(counter_value(&iser__conns), 0);
	CHECK_EQ(counter_value(&iser__undrained), undrained);
	end();
}

/*
 * The initiator takes nothing of what it reads: the send queue fills up, but for
 * the place of the request that says when the device has let go of all others.
 */
TEST(iser_conn, send_queue_is_full_at_the_end)
{
	uint64_t undrained = counter_value(&iser__undrained);
	struct iser_conn *conn;

	fixture();
	LIST_FIRST(&iser->devices)->rdma->attr.max_qp_wr = 32;
	ready();
	conn = TAILQ_FIRST(&iser->conns);
	fake_peer_freeze(peer, true);
	for (unsigned i = 0; i < 8; i++) {
		struct message *m = command(0x40, 4 << 20);

		rw10(m, 0x28, 0, 8192);
		CHECK(give(m));
	}
	CHECK_EQ(conn->tx.tail - conn->tx.head, 32 - 1);
	CHECK_EQ(iscsi_portal_drop(iscsi, 1, NULL), 0);
	turns();
	CHECK(conn->closing && conn->tx.marker);
	fake_peer_freeze(peer, false);
	fake_peer_disconnect(peer);
	turns();
	CHECK_EQ(counter_value(&iser__conns), 0);
	CHECK_EQ(counter_value(&iser__undrained), undrained);
	end();
}

/* Initiators have room for that much data of a PDU, whatever they ask for. */
TEST(iser_conn, echo_fits_the_initiators_receive)
{
	static const uint32_t sizes[] = { ISER_SEND_DATA_MAX - 1,
					  ISER_SEND_DATA_MAX,
					  ISER_SEND_DATA_MAX + 1, 8192 };
	static uint8_t data[8192];

	fixture();
	ready();
	pattern(data, sizeof(data), 3);
	for (unsigned i = 0; i < ARRAY_LEN(sizes); i++) {
		uint32_t len = MIN(sizes[i], ISER_SEND_DATA_MAX);
		struct message *m = message(ISCSI_OP_NOP_OUT | ISCSI_IMMEDIATE,
					    ISCSI_FINAL);
		struct fake_message *answer;

		put_be32(m->bytes + 28 + 20, ISCSI_NO_TAG);
		message_data(m, data, sizes[i]);
		CHECK(give(m));
		answer = receive();
		CHECK(answer != NULL);
		CHECK_EQ(answer->bytes[28], ISCSI_OP_NOP_IN);
		CHECK_EQ(get_be24(answer->bytes + 28 + 5), len);
		CHECK_EQ(answer->len, ISER_FIXED_LEN + len);
		assert_memory_equal(answer->bytes + ISER_FIXED_LEN, data, len);
		free(answer);
	}
	end();
}

static void logout(void)
{
	struct fake_message *m;

	CHECK(give(message(ISCSI_OP_LOGOUT | ISCSI_IMMEDIATE, ISCSI_FINAL)));
	m = receive();
	CHECK(m != NULL);
	CHECK_EQ(m->bytes[28], ISCSI_OP_LOGOUT_RSP);
	free(m);
}

/* The initiator hangs up, not the target; it keeps nothing from anybody. */
TEST(iser_conn, logout)
{
	fixture();
	ready();
	logout();
	while (counter_value(&iser__conns) > 0)
		turns();
	CHECK_EQ(fake_peer_state(peer), FAKE_UP);
	CHECK(!fake_peer_send(peer, "", 0)); /* nobody is there any more */
	fake_peer_disconnect(peer);
	turns();
	CHECK_EQ(iser->leaving_count, 0);
	end();
}

/* It does so before the device tells that the answer to its logout went. */
TEST(iser_conn, logout_and_gone_at_once)
{
	uint64_t lost, ended;

	fixture();
	ready();
	lost = counter_value(&iser__lost);
	ended = counter_value(&iscsi__conns_lost);
	fake_peer_hold(peer, true);
	CHECK(give(message(ISCSI_OP_LOGOUT | ISCSI_IMMEDIATE, ISCSI_FINAL)));
	fake_peer_disconnect(peer);
	while (counter_value(&iser__conns) > 0)
		turns();
	CHECK_EQ(counter_value(&iser__lost), lost);
	CHECK_EQ(counter_value(&iscsi__conns_lost), ended);
	end();
}

/* With iWARP its queue pair ends before the connection manager tells of it. */
TEST(iser_conn, logout_and_its_queue_pair_ends)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	uint64_t lost, ended;

	fixture_with((struct fake_rdma_config){
		.iwarp = true, .sge_read = 1, .receives_first = true });
	ready();
	lost = counter_value(&iser__lost);
	ended = counter_value(&iscsi__conns_lost);
	fake_peer_hold(peer, true);
	CHECK(give(message(ISCSI_OP_LOGOUT | ISCSI_IMMEDIATE, ISCSI_FINAL)));
	turns();
	CHECK(TAILQ_FIRST(&iser->conns)->goodbye);
	CHECK_EQ(ibv_modify_qp(TAILQ_FIRST(&iser->conns)->qp, &attr,
			       IBV_QP_STATE),
		 0);
	turns();
	fake_peer_disconnect(peer);
	while (counter_value(&iser__conns) > 0)
		turns();
	CHECK_EQ(counter_value(&iser__lost), lost);
	CHECK_EQ(counter_value(&iscsi__conns_lost), ended);
	end();
}

/* The device has a word on it when nobody waits for that any more. */
TEST(iser_conn, event_behind_its_end)
{
	struct iser_conn *conn;

	fixture_with((struct fake_rdma_config){ 0 });
	ready();
	conn = TAILQ_FIRST(&iser->conns);
	fake_peer_disconnect(peer);
	while (conn->last_waits == 0)
		shard_step(ts.env, 0);
	env_timer_stop(ts.env, &conn->timer);
	conn->last_waits = 1;
	conn->timer.cb(&conn->timer);
	CHECK(conn->finishing);
	fake_peer_async(peer, IBV_EVENT_QP_LAST_WQE_REACHED);
	while (counter_value(&iser__conns) > 0)
		shard_step(ts.env, 0);
	CHECK(TAILQ_EMPTY(&iser->hot));
	end();
}

/* One that does not ends with the room. */
TEST(iser_conn, logout_and_stay)
{
	fixture();
	ready();
	logout();
	while (counter_value(&iser__conns) > 0)
		turns();
	CHECK_EQ(iser->leaving_count, 1);
	end();
}

/* Nor are more of them kept than that. */
TEST(iser_conn, many_stay)
{
	for (unsigned kept = 255; kept <= 256; kept++) {
		fixture();
		ready();
		iser->leaving_count = kept;
		logout();
		while (counter_value(&iser__conns) > 0)
			turns();
		CHECK_EQ(iser->leaving_count, 256);
		iser->leaving_count -= kept;
		end();
	}
}

/* An STag is of one buffer; a command with two has none that can go. */
TEST(iser_conn, no_invalidation_of_two)
{
	struct fake_message *answer;
	struct message *m;

	fixture();
	ready();
	m = command(0x60, 512);
	rw10(m, 0x2a, 0, 1);
	CHECK(give(m));
	answer = receive();
	CHECK(answer != NULL);
	CHECK_EQ(answer->bytes[28 + 3], 2); /* bidirectional: none is known */
	CHECK_EQ(answer->invalidated, 0);
	free(answer);
	end();
}

/*
 * A wrong key costs the connection, and nothing else: nothing is written, though
 * a write that has begun could not be called back any more.
 */
TEST(iser_conn, wrong_key)
{
	struct message *m;

	fixture();
	ready();
	write_send(0, 128, 0, 7);
	good(KEY);
	/* What lies in memory that is used again is another's data. */
	write_send(256, 128, 0, 9);
	good(KEY);
	fake_dom_stubborn(dom, true);
	m = command(0x20, 1 << 16);
	rw10(m, 0x2a, 0, 128);
	put_be32(m->bytes + 4, 3);
	CHECK(give(m));
	CHECK_EQ(fake_peer_state(peer), FAKE_DOWN);
	turns();
	ready();
	read_back(0, 128, 7);
	fake_peer_error(peer);
	m = command(0x40, 512);
	rw10(m, 0x28, 0, 1);
	CHECK(give(m));
	CHECK_EQ(fake_peer_state(peer), FAKE_DOWN);
	end();
}

static void (*const bad[])(struct message *m);

static void bad_opcode(struct message *m)
{
	m->bytes[0] = 0x20; /* a Hello */
}

static void bad_short(struct message *m)
{
	m->len = 20;
}

static void bad_length(struct message *m)
{
	put_be24(m->bytes + 28 + 5, 4000);
}

static void bad_ahs(struct message *m)
{
	m->bytes[28] = ISCSI_OP_NOP_OUT;
	m->bytes[28 + 4] = 1;
	m->len += 4;
}

static void bad_long(struct message *m)
{
	m->len = sizeof(m->bytes);
}

/* It fits into the receive behind the header, and into no pages. */
static void bad_data(struct message *m)
{
	static const uint8_t data[2 * PAGE_BYTES + 8];

	m->bytes[28] = ISCSI_OP_NOP_OUT | ISCSI_IMMEDIATE;
	message_data(m, data, sizeof(data));
}

static void bad_stag(struct message *m)
{
	m->bytes[28 + 1] = ISCSI_FINAL | 0x40;
	put_be32(m->bytes + 28 + 20, 512);
}

static void bad_data_out(struct message *m)
{
	m->bytes[28] = ISCSI_OP_DATA_OUT;
	put_be32(m->bytes + 28 + 20, 5);
}

static void bad_login(struct message *m)
{
	m->bytes[28] = 0x43; /* after the login: rejected, it goes on */
}

static void (*const bad[])(struct message *m) = {
	bad_opcode, bad_short, bad_length,   bad_ahs,	bad_long,
	bad_data,   bad_stag,  bad_data_out, bad_login,
};

TEST(iser_conn, malformed)
{
	fixture();
	for (unsigned i = 0; i < ARRAY_LEN(bad); i++) {
		struct message *m;

		ready();
		m = command(0, 0);
		bad[i](m);
		CHECK(give(m));
		CHECK_EQ(fake_peer_state(peer),
			 bad[i] == bad_login ? FAKE_UP : FAKE_DOWN);
	}
	end();
}

/* Up to @max times, while it is connected; how many. */
static unsigned flood(const struct message *m, unsigned max)
{
	unsigned sent = 0;

	while (sent < max && fake_peer_state(peer) == FAKE_UP) {
		if (fake_peer_send(peer, m->bytes, m->len))
			sent++;
		else
			shard_step(ts.env, MSEC / 10);
	}
	turns();
	return sent;
}

static struct message *outside_of_the_window(void)
{
	ready();
	cmdsn += 1u << 30;
	return message(ISCSI_OP_COMMAND, ISCSI_FINAL);
}

static struct message *held_twice(void)
{
	ready();
	cmdsn++;
	CHECK(give(command(0, 0)));
	cmdsn--;
	return message(ISCSI_OP_COMMAND, ISCSI_FINAL);
}

static struct message *nop_without_a_tag(void)
{
	ready();
	itt = ISCSI_NO_TAG - 1;
	return message(ISCSI_OP_NOP_OUT | ISCSI_IMMEDIATE, ISCSI_FINAL);
}

static struct message *data_of_no_command(void)
{
	struct message *m;

	ready();
	m = message(ISCSI_OP_DATA_OUT, ISCSI_FINAL);
	put_be32(m->bytes + 28 + 20, ISCSI_NO_TAG);
	return m;
}

static struct message *behind_a_logout(void)
{
	ready();
	fake_dom_hold(dom, true);
	write_send(0, 8, 4096, 1); /* which the answer waits for */
	CHECK(give(message(ISCSI_OP_LOGOUT | ISCSI_IMMEDIATE, ISCSI_FINAL)));
	return command(0, 0);
}

static struct message *behind_a_refusal(void)
{
	struct message *m;

	dial(0x80, 4);
	fake_peer_hold(peer, true); /* it does not fetch the answer */
	m = message(ISCSI_OP_LOGIN | ISCSI_IMMEDIATE, 0x87);
	CHECK(give(m));
	return m;
}

/* What is dropped without an answer takes receives: not for ever. */
TEST(iser_conn, too_many_ignored)
{
	struct message *(*const kinds[])(void) = {
		outside_of_the_window, held_twice,	nop_without_a_tag,
		data_of_no_command,    behind_a_logout, behind_a_refusal,
	};

	for (unsigned i = 0; i < ARRAY_LEN(kinds); i++) {
		struct message *m;

		fixture();
		/* What ends a connection is not that it takes too long. */
		iscsi->config.login_ms = 3600 * 1000;
		m = kinds[i]();
		CHECK_EQ(flood(m, ISCSI_IGNORED_MAX), ISCSI_IGNORED_MAX);
		CHECK_EQ(fake_peer_state(peer), FAKE_UP);
		flood(m, 1);
		CHECK_EQ(fake_peer_state(peer), FAKE_DOWN);
		fake_dom_hold(dom, false);
		fake_peer_hold(peer, false);
		end();
	}
}

/* A write of 8 KiB, @imm bytes of it behind an AHS of @len bytes. */
static void write_behind_ahs(uint8_t type, unsigned len, unsigned body,
			     uint32_t imm, unsigned seed)
{
	struct message *m = command(0x20, 8192);
	static uint8_t data[8192];

	pattern(data, sizeof(data), seed);
	rw10(m, 0x2a, 16, 16);
	m->bytes[28 + 4] = (uint8_t)(len / 4);
	put_be16(m->bytes + m->len, (uint16_t)body);
	m->bytes[m->len + 2] = type;
	m->len += len;
	message_data(m, data, imm);
	memcpy(memory, data + imm, sizeof(data) - imm);
	fake_peer_expose(peer, KEY, memory, sizeof(data));
	CHECK(give(m));
}

/* An AHS in front of immediate data that fills the receive, or nearly. */
TEST(iser_conn, ahs_with_data)
{
	struct fake_message *m;

	fixture();
	ready();
	for (uint32_t imm = 8192; imm >= 8176; imm -= 4) {
		/* The read length of a command that reads, too: no matter. */
		write_behind_ahs(2, 8, 5, imm, imm);
		good(KEY);
		read_back(16, 16, imm);
	}
	/* A type that nobody knows. */
	write_behind_ahs(0x3f, 256, 253, 8192, 1);
	m = receive();
	CHECK(m != NULL);
	CHECK_EQ(m->bytes[28], ISCSI_OP_REJECT);
	free(m);
	read_back(16, 16, 8176);
	end();
}

/* Until the first answer has arrived one PDU is on its way. */
TEST(iser_conn, one_answer_first)
{
	struct fake_message *m;
	unsigned count = 0;

	fixture();
	up();
	fake_peer_hold(peer, true);
	for (unsigned i = 0; i < 5; i++)
		CHECK(give(command(0, 0)));
	CHECK_EQ(TAILQ_FIRST(&iser->conns)->tx.sends_out, 1);
	fake_peer_hold(peer, false);
	turns();
	while ((m = receive()) != NULL) {
		count++;
		free(m);
	}
	CHECK_EQ(count, 5);
	CHECK(!TAILQ_FIRST(&iser->conns)->tx.solo);
	end();
}

/* Every call of set-up fails once; then it works. */
TEST(iser_conn, faults_of_setup)
{
	for (unsigned srq = 0; srq < 2; srq++) {
		unsigned nth = 0, calls;

		do {
			fixture_with((struct fake_rdma_config){
				.says_last_wqe = true, .no_srq = srq });
			fake_rdma_fail(++nth);
			dial(0x80, 4);
			calls = fake_rdma_calls();
			fake_rdma_fail(0);
			wait_ms(1);
			CHECK(fake_peer_state(peer) != FAKE_ASKED);
			CHECK_EQ(counter_value(&iscsi__conns),
				 fake_peer_state(peer) == FAKE_UP);
			ready();
			end();
		} while (nth <= calls);
		CHECK(nth > 4);
	}
}

/* All initiators come back at once: others get their turn in between. */
TEST(iser_conn, crowd)
{
	const uint8_t private[4] = { 0x80 };
	struct fake_peer *peers[24];
	unsigned before = 0;

	fixture();
	for (unsigned i = 0; i < ARRAY_LEN(peers); i++)
		peers[i] = fake_peer_connect(private, sizeof(private), 4);
	while (iser->conns_count < ARRAY_LEN(peers)) {
		shard_step(ts.env, MSEC / 10);
		CHECK(iser->conns_count <= before + 8);
		before = iser->conns_count;
	}
	turns();
	for (unsigned i = 0; i < ARRAY_LEN(peers); i++) {
		CHECK_EQ(fake_peer_state(peers[i]), FAKE_UP);
		fake_peer_disconnect(peers[i]);
	}
	turns();
	for (unsigned i = 0; i < ARRAY_LEN(peers); i++)
		fake_peer_free(peers[i]);
	CHECK_EQ(counter_value(&iser__conns), 0);
	end();
}

/* Without a page to send from none is accepted, and the log says what it lacks. */
TEST(iser_conn, refused_without_memory)
{
	static struct page *pages[1 << 16];
	int saved = dup(STDERR_FILENO), ends[2];
	char line[400] = "";
	size_t n = 0;

	fixture();
	while (pages_alloc(ts.env->pages, PAGE_FRONT, 1, &pages[n]) == 0)
		n++;
	CHECK_EQ(pipe(ends), 0);
	CHECK(dup2(ends[1], STDERR_FILENO) >= 0);
	dial(0x80, 4);
	CHECK(dup2(saved, STDERR_FILENO) >= 0);
	close(saved);
	close(ends[1]);
	CHECK(read(ends[0], line, sizeof(line) - 1) > 0);
	close(ends[0]);
	CHECK_EQ(fake_peer_state(peer), FAKE_REFUSED);
	CHECK(strstr(line, "RDMA connection refused: no memory") != NULL);
	pages_put(ts.env->pages, pages, n);
	turns();
	end();
}

/* Nothing is made for one more than there may be. */
TEST(iser_conn, refused)
{
	struct fake_peer *peers[32];

	fixture();
	/* The bound of logins lets in another when they were silent for a while. */
	iscsi->config.connections_max = ARRAY_LEN(peers);
	iscsi->config.logins_per_source = ARRAY_LEN(peers) + 1;
	for (unsigned i = 0; i < ARRAY_LEN(peers); i++) {
		peer = NULL;
		dial(0x80, 4);
		CHECK_EQ(fake_peer_state(peer), FAKE_UP);
		peers[i] = peer;
	}
	peer = NULL;
	fake_rdma_fail(0);
	dial(0x80, 4);
	CHECK_EQ(fake_peer_state(peer), FAKE_REFUSED);
	CHECK_EQ(fake_rdma_calls(), 0);
	CHECK_EQ(iser->conns_count, ARRAY_LEN(peers));
	for (unsigned i = 0; i < ARRAY_LEN(peers); i++) {
		fake_peer_disconnect(peers[i]);
		turns();
		fake_peer_free(peers[i]);
	}
	end();
}

/* Nor where the descriptors that others need begin. */
TEST(iser_conn, descriptors_are_left_to_others)
{
	struct fake_peer *peers[20], *refused;
	struct rlimit was, few;
	unsigned n = 0;
	int next;

	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
	fixture();
	next = dup(0);
	close(next);
	few = was;
	few.rlim_cur = ((rlim_t)next + 8) / 3 * 4;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
	do {
		CHECK(n < ARRAY_LEN(peers));
		peer = NULL;
		dial(0x80, 4);
		peers[n++] = peer;
	} while (fake_peer_state(peer) == FAKE_UP);
	refused = peers[--n];
	CHECK_EQ(fake_peer_state(refused), FAKE_REFUSED);
	CHECK(n > 0);
	next = dup(0);
	close(next);
	CHECK_EQ(next, few.rlim_cur / 4 * 3);
	/* When one has gone there is place for one. */
	fake_peer_disconnect(peers[0]);
	turns();
	fake_peer_free(peers[0]);
	peer = NULL;
	dial(0x80, 4);
	CHECK_EQ(fake_peer_state(peer), FAKE_UP);
	peers[0] = peer;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &was), 0);
	for (unsigned i = 0; i < n; i++) {
		fake_peer_disconnect(peers[i]);
		turns();
		fake_peer_free(peers[i]);
	}
	peer = refused;
	end();
}

TEST(iser_conn, posts_fail)
{
	fixture();
	ready();
	fake_rdma_fail_posts(true);
	CHECK(give(command(0, 0)));
	CHECK_EQ(fake_peer_state(peer), FAKE_DOWN);
	wait_ms(3);
	fake_rdma_fail_posts(false);
	ready();
	end();
}

/*
 * A queue pair in error takes nothing, as some devices' do not: receives of the
 * shared queue are waited for all the same.
 */
TEST(iser_conn, posts_fail_in_error)
{
	for (unsigned says = 0; says < 2; says++) {
		uint64_t undrained = counter_value(&iser__undrained), ns;

		fixture_with(
			(struct fake_rdma_config){ .says_last_wqe = says });
		ready();
		fake_rdma_fail_posts(true);
		ns = env_now(ts.env);
		fake_peer_disconnect(peer);
		while (counter_value(&iser__conns) > 0)
			turns();
		ns = env_now(ts.env) - ns;
		CHECK(says ? ns < 4 * SEC : ns >= 25 * MSEC);
		CHECK_EQ(counter_value(&iser__undrained), undrained);
		fake_rdma_fail_posts(false);
		end();
	}
}

/* No shared receive queue can be made: each connection has its own. */
TEST(iser_conn, shared_receives_are_gone)
{
	fixture_with((struct fake_rdma_config){ .srqs_gone = true });
	ready();
	write_send(8, 16, 8192, 3);
	good(KEY);
	read_back(8, 16, 3);
	end();
}

/* The device's completion queues are short: so are the others of a connection. */
TEST(iser_conn, short_completion_queues)
{
	for (unsigned own = 0; own < 2; own++) {
		fixture_with(
			(struct fake_rdma_config){ .cqe = 300, .no_srq = own });
		ready();
		write_send(8, 16, 8192, 3);
		good(KEY);
		read_back(8, 16, 3);
		end();
	}
}

/* Logs in as often as it is let, each time as somebody else; how often. */
static unsigned log_in_all(struct fake_peer **peers, unsigned max)
{
	struct fake_message *answer;
	unsigned n = 0, status = 0;

	for (; n < max && status == 0; n++) {
		struct message *m;

		peer = NULL;
		dial(0x80, 4);
		peers[n] = peer;
		m = login_message("");
		put_be32(m->bytes + 28 + 8, 0x00023d00 + n);
		CHECK(give(m));
		answer = receive();
		CHECK(answer != NULL);
		status = get_be16(answer->bytes + 28 + 36);
		free(answer);
	}
	CHECK_EQ(status, 0x0302);
	return n - 1;
}

/* Receives of their own leave room for payload, and come back. */
TEST(iser_conn, own_receives_are_bounded)
{
	struct fake_peer *peers[16];
	unsigned count;

	test_shards_open(&ts, 1, 32u << 20);
	fixture_with((struct fake_rdma_config){ .no_srq = true });
	for (unsigned round = 0; round < 2; round++) {
		count = log_in_all(peers, ARRAY_LEN(peers));
		CHECK_EQ(count, 7); /* 272 pages each */
		CHECK(iser__recvq_pages(iser->receives) <=
		      arena_pages(ts.arena) / 4);
		for (unsigned i = 0; i <= count; i++) {
			fake_peer_disconnect(peers[i]);
			turns();
			fake_peer_free(peers[i]);
		}
		wait_ms(1);
		CHECK_EQ(iser->receives, 0);
	}
	peer = NULL;
	end();
}

/* Nor is one let in that could not have those of its window. */
TEST(iser_conn, own_receives_are_too_few)
{
	fixture_with((struct fake_rdma_config){ .no_srq = true });
	LIST_FIRST(&iser->devices)->rdma->attr.max_qp_wr =
		ISER_WINDOW_MAX + RECV_SPARE - 1;
	dial(0x80, 4);
	CHECK_EQ(login_status(), 0x0302);
	LIST_FIRST(&iser->devices)->rdma->attr.max_qp_wr++;
	ready();
	end();
}

/* Those of a connection that has gone are not posted again, and keep no memory. */
TEST(iser_conn, receives_of_one_that_left)
{
	struct fake_peer *first;
	struct message *m;
	unsigned posted;
	size_t used;

	fixture();
	ready();
	first = peer;
	peer = NULL;
	dial(0x80, 4);
	m = login_message("");
	put_be32(m->bytes + 28 + 8, 0x00023d01); /* a port of its own */
	CHECK(give(m));
	free(receive());
	fake_peer_disconnect(first);
	turns();
	fake_peer_free(first);
	posted = LIST_FIRST(&iser->devices)->recvq->posted;
	used = arena_used(ts.arena, PAGE_FRONT);
	m = message(ISCSI_OP_NOP_OUT | ISCSI_IMMEDIATE, ISCSI_FINAL);
	put_be32(m->bytes + 28 + 16, ISCSI_NO_TAG);
	for (unsigned i = 0; i < 100; i++)
		CHECK(give(m));
	CHECK_EQ(LIST_FIRST(&iser->devices)->recvq->posted, posted - 100);
	CHECK_EQ(arena_used(ts.arena, PAGE_FRONT), used - 100 * RECV_PAGES);
	end();
}

/* A connection that could receive nothing is refused, not left waiting. */
TEST(iser_conn, receives_fail)
{
	for (unsigned srq = 0; srq < 2; srq++) {
		fixture_with((struct fake_rdma_config){ .says_last_wqe = true,
							.no_srq = srq });
		fake_rdma_fail_receives(true);
		dial(0x80, 4);
		CHECK_EQ(fake_peer_state(peer), FAKE_REFUSED);
		wait_ms(3);
		CHECK_EQ(counter_value(&iser__conns), 0);
		end();
	}
}

/* Nor is one kept that cannot have those of full feature phase. */
TEST(iser_conn, receives_fail_at_login)
{
	for (unsigned srq = 0; srq < 2; srq++) {
		fixture_with((struct fake_rdma_config){ .says_last_wqe = true,
							.no_srq = srq });
		dial(0x80, 4);
		fake_rdma_fail_receives(true);
		CHECK(give(login_message("")));
		wait_ms(60);
		CHECK_EQ(counter_value(&iser__conns), 0);
		end();
	}
}

/*
 * A device that never says that a queue pair uses no more receives, though it
 * did: it is counted, the connection ends, and behind the last one the shared
 * queue is made anew, as nobody knows what of it was kept.
 */
TEST(iser_conn, receives_that_do_not_come_back)
{
	struct iser_device *device;
	struct iser_conn *conn;
	struct fake_peer *first;
	uint64_t undrained;

	fixture_with((struct fake_rdma_config){ .says_last_wqe = false });
	undrained = counter_value(&iser__undrained);
	ready();
	first = peer;
	peer = NULL;
	dial(0x80, 4);
	device = LIST_FIRST(&iser->devices);
	device->says_last_wqe = true; /* it was seen to */
	for (unsigned i = 0; i < 2; i++) {
		conn = TAILQ_FIRST(&iser->conns);
		fake_peer_disconnect(i == 0 ? first : peer);
		turns();
		CHECK(TAILQ_FIRST(&iser->conns) == conn); /* it waits */
		env_timer_start(ts.env, &conn->timer, 0);
		while (counter_value(&iser__conns) > 1 - i)
			turns();
		CHECK_EQ(counter_value(&iser__undrained), undrained + i + 1);
		CHECK_EQ(device->keeps, i == 0);
	}
	fake_peer_free(first);
	CHECK_EQ(device->recvq->posted, 0);
	fake_peer_free(peer);
	peer = NULL;
	ready();
	write_send(8, 16, 8192, 3);
	good(KEY);
	read_back(8, 16, 3);
	device->says_last_wqe = false;
	end();
}

/* Nothing accumulates. */
TEST(iser_conn, cycles)
{
	uint64_t undrained = counter_value(&iser__undrained);
	size_t used = 0;

	fixture();
	for (unsigned i = 0; i < 200; i++) {
		dial(0x80, 4);
		if (i % 4 > 0)
			login();
		if (i % 4 > 1) {
			fake_peer_hold(peer, i % 8 > 4);
			write_send(i, 100, 8192 * (i % 2), i);
		}
		fake_peer_disconnect(peer);
		turns();
		if (i == 100)
			used = arena_used(ts.arena, PAGE_FRONT);
	}
	CHECK_EQ(arena_used(ts.arena, PAGE_FRONT), used);
	CHECK_EQ(counter_value(&iser__conns), 0);
	CHECK_EQ(counter_value(&iser__undrained), undrained);
	end();
}
