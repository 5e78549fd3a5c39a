/*
 * iSER connections that move to other shards: the way itself, and what becomes
 * of them when they, or the session, end on it.
 */
#include "tests/unit/iser_move_rig.h"

#include "tests/lib/seeds.h"

/* With what came behind the login, and with data either way. */
TEST(iser_move, moves)
{
	for (unsigned srq = 0; srq < 2; srq++) {
		begin_with((struct fake_rdma_config){ .says_last_wqe = true,
						      .no_srq = srq });
		for (unsigned to = 0; to < SHARDS; to++) {
			struct fake_peer *peer;

			plan.to = to;
			peer = dial();
			login_send(peer);
			for (unsigned i = 0; i < 3; i++)
				CHECK(give(peer, ISCSI_OP_NOP_OUT, 0x80));
			receive(peer, ISCSI_OP_LOGIN_RSP);
			for (unsigned i = 0; i < 3; i++)
				receive(peer, ISCSI_OP_NOP_IN);
			echo_check(peer, 4096);
			echo_check(peer, ECHO_MAX);
			CHECK_EQ(arrived, to + 1);
			CHECK_EQ(pdus_on[to], to == 0 ? 6 : 5);
			CHECK_EQ(lost, to);
			hang_up(peer);
		}
		CHECK_EQ(pdus_on[0], 6 + 2);
		CHECK_EQ(detached, SHARDS);
		end();
	}
}

/* Answers of the login are on their way: it moves behind the last of them. */
TEST(iser_move, moves_behind_an_answer)
{
	struct fake_peer *peer;

	begin();
	peer = dial();
	fake_peer_hold(peer, true);
	CHECK(give(peer, ISCSI_OP_LOGIN | ISCSI_IMMEDIATE, 0));
	turns();
	login_send(peer);
	turns();
	CHECK_EQ(detached, 0);
	fake_peer_hold(peer, false);
	receive(peer, ISCSI_OP_LOGIN_RSP);
	receive(peer, ISCSI_OP_LOGIN_RSP);
	echo_check(peer, 8192);
	CHECK_EQ(detached, 1);
	CHECK_EQ(pdus_on[0], 2);
	CHECK_EQ(pdus_on[1], 1);
	hang_up(peer);
	end();
}

/* The session ends it on its way. */
TEST(iser_move, terminated)
{
	for (unsigned no_srq = 0; no_srq < 2; no_srq++)
		for (unsigned how = 1; how < 2 * END_COUNT; how++) {
			struct fake_peer *peer;

			if (how % END_COUNT == END_NEVER)
				continue;
			begin_with((struct fake_rdma_config){
				.says_last_wqe = true, .no_srq = no_srq });
			plan.to = how / END_COUNT * 2;
			plan.end = how % END_COUNT;
			peer = dial();
			login_send(peer);
			CHECK(give(peer, ISCSI_OP_NOP_OUT, 0x80));
			UNTIL(closed == 1);
			CHECK_EQ(detached, plan.end > END_LEAVING);
			CHECK_EQ(lost, 0);
			CHECK_EQ(fake_peer_state(peer), FAKE_DOWN);
			fake_peer_free(peer);
			end();
		}
}

/* The device takes its time, and nobody watches for it any more. */
TEST(iser_move, terminated_and_slow)
{
	static const enum end ends[] = { END_LEAVING, END_ATTACHED,
					 END_ENABLED };

	for (unsigned i = 0; i < ARRAY_LEN(ends); i++) {
		struct fake_peer *peer;
		uint64_t from;

		begin();
		plan.end = ends[i];
		peer = dial();
		fake_peer_freeze(peer, true);
		from = uv_hrtime();
		login_send(peer);
		/* Behind five seconds nobody waits for it any more. */
		for (unsigned n = 0; n < 10 && uv_hrtime() - from < SEC; n++)
			turns();
		CHECK_EQ(closed, 0);
		fake_peer_freeze(peer, false);
		UNTIL(closed == 1);
		fake_peer_free(peer);
		end();
	}
}

/* What the device told as it left counts where it stays, as it ends there. */
TEST(iser_move, terminated_behind_an_event)
{
	static const enum end ends[] = { END_AT_ONCE, END_LEAVING };

	for (unsigned i = 0; i < ARRAY_LEN(ends); i++) {
		struct fake_peer *peer;

		begin_with((struct fake_rdma_config){ 0 });
		/* It was seen to tell, and is waited for. */
		LIST_FIRST(&iser->devices)->says_last_wqe = true;
		plan.told = true;
		plan.end = ends[i];
		peer = dial();
		login_send(peer);
		UNTIL(closed == 1);
		fake_peer_free(peer);
		end(); /* all of it came back */
	}
}

/* Something happens while nobody has it: it is told where it arrives. */
TEST(iser_move, lost_on_the_way)
{
	for (unsigned how = 0; how < 5; how++) {
		struct fake_peer *peer;

		begin();
		plan.gate = true;
		peer = dial();
		login_send(peer);
		UNTIL(atomic_load(&gated) != NULL);
		if (how == 0)
			fake_peer_disconnect(peer);
		if (how == 1)
			fake_peer_async(peer, IBV_EVENT_QP_FATAL);
		if (how == 2)
			fake_peer_async(peer, IBV_EVENT_CQ_ERR);
		if (how == 3)
			fake_rdma_remove();
		if (how == 4)
			fake_peer_async(peer, IBV_EVENT_COMM_EST);
		turns();
		CHECK_EQ(lost + closed, 0);
		gate_open();
		UNTIL(arrived == 1);
		if (how == 4) {
			receive(peer, ISCSI_OP_LOGIN_RSP);
			fake_peer_disconnect(peer);
		}
		UNTIL(closed == 1);
		CHECK_EQ(lost, 1);
		fake_peer_free(peer);
		end();
	}
}

/* In the turns between detach() and detached(). */
TEST(iser_move, lost_while_it_leaves)
{
	for (unsigned how = 0; how < 4; how++)
		for (unsigned step = 0; step < 6; step++) {
			struct fake_peer *peer;

			begin();
			peer = dial();
			login_send(peer);
			for (unsigned i = 0; i < step; i++)
				shard_step(ts.env, 0);
			if (how == 0)
				fake_peer_disconnect(peer);
			if (how == 1)
				fake_peer_async(peer, IBV_EVENT_QP_FATAL);
			if (how == 2)
				fake_rdma_remove();
			if (how == 3)
				fake_rdma_break(true);
			UNTIL(closed == 1);
			CHECK_EQ(lost, 1);
			fake_peer_free(peer);
			end();
		}
}

static struct recvq *shared(void)
{
	return LIST_FIRST(&iser->devices)->recvq;
}

static unsigned posted(bool *all)
{
	struct recvq *q = shared();
	unsigned n;

	pthread_mutex_lock(&q->lock);
	n = q->posted;
	if (all != NULL)
		*all = n == q->wanted;
	pthread_mutex_unlock(&q->lock);
	return n;
}

/* Immediate data that is kept takes the pages of a receive with it. */
static void data_send(struct fake_peer *peer)
{
	static const uint8_t data[8192] = { 1 };
	struct message m;

	message_init(&m, ISCSI_OP_COMMAND, ISCSI_FINAL | 0x20, ++itt, sn);
	put_be32(m.bytes + 28 + 20, sizeof(data));
	message_data(&m, data, sizeof(data));
	CHECK(fake_peer_send(peer, m.bytes, m.len));
	sn++;
	receive(peer, ISCSI_OP_RESPONSE);
}

/* Memory is short, and a share that has none may have it posted at home. */
TEST(iser_move, receives_without_memory)
{
	static struct sgl *hoard[16384];
	struct fake_peer *one, *two;
	unsigned count = 0, before;
	bool all;

	begin();
	plan.keeps = true;
	one = up(1);
	two = up(2);
	before = posted(&all);
	CHECK(all);
	CHECK_EQ(before, 2 * (WINDOW + RECV_SPARE));
	while (sgl_new(ts.env->pages, PAGE_FRONT, PAGE_BYTES, 0,
		       &hoard[count]) == 0)
		count++;
	for (unsigned i = 0; i < before - 4; i++) {
		sn = i / 2 + 2;
		data_send(i % 2 == 0 ? one : two);
	}
	CHECK(posted(&all) < before);
	CHECK(!all);
	while (count > 0)
		sgl_put(hoard[--count]);
	UNTIL((posted(&all), all));
	CHECK_EQ(posted(NULL), before);
	sn = (before - 4) / 2 + 2;
	echo_check(one, 4096);
	hang_up(one);
	hang_up(two);
	end();
}

/* Its own queue waits for memory as it leaves, and is filled where it arrives. */
TEST(iser_move, own_receives_without_memory)
{
	static struct sgl *hoard[16384];
	/* What is sent from, a page of heads, and those of one receive. */
	const unsigned keep = TX_SLOT_PAGES + TX_BIG_PAGES + 1 + RECV_PAGES;

	for (unsigned late = 0; late < 2; late++) {
		struct fake_peer *peer;
		unsigned count = 0;

		begin_with((struct fake_rdma_config){ .no_srq = true });
		plan.gate = true;
		while (sgl_new(ts.env->pages, PAGE_FRONT, PAGE_BYTES, 0,
			       &hoard[count]) == 0)
			count++;
		for (unsigned i = 0; i < keep; i++)
			sgl_put(hoard[--count]);
		peer = dial();
		CHECK_EQ(fake_peer_state(peer), FAKE_UP);
		CHECK_EQ(counter_value(&iser__receives_posted), 1);
		login_send(peer);
		UNTIL(atomic_load(&gated) != NULL);
		if (late) {
			gate_open();
			UNTIL(arrived == 1);
			turns();
		}
		while (count > 0)
			sgl_put(hoard[--count]);
		turns();
		if (!late)
			gate_open();
		UNTIL(counter_value(&iser__receives_posted) ==
		      WINDOW + RECV_SPARE);
		receive(peer, ISCSI_OP_LOGIN_RSP);
		echo_check(peer, 4096);
		hang_up(peer);
		end();
	}
}

/* Every call that is made to move it fails once; then it works. */
TEST(iser_move, faults)
{
	unsigned nth = 0, calls;

	do {
		struct fake_peer *peer;

		begin();
		peer = dial();
		fake_rdma_fail(++nth);
		login_send(peer);
		UNTIL(arrived == 1);
		calls = fake_rdma_calls();
		fake_rdma_fail(0);
		if (nth <= calls) {
			UNTIL(closed == 1);
			CHECK_EQ(lost, 1);
			fake_peer_free(peer);
			peer = up(1);
		} else {
			receive(peer, ISCSI_OP_LOGIN_RSP);
		}
		echo_check(peer, 4096);
		hang_up(peer);
		end();
	} while (nth <= calls);
	CHECK(nth > 2);
}

/* Its window's receives are counted over all shards. */
TEST(iser_move, own_receives_are_bounded)
{
	struct fake_peer *peers[64];
	unsigned n = 0;

	begin_with((struct fake_rdma_config){ .no_srq = true });
	for (; n < ARRAY_LEN(peers) && closed == 0; n++) {
		plan.to = n % SHARDS;
		peers[n] = dial();
		login_send(peers[n]);
		UNTIL(closed == 1 || arrived == n + 1);
		turns();
	}
	CHECK(n > SHARDS && n < ARRAY_LEN(peers));
	/* One that is refused has them for a moment. */
	UNTIL(iser__recvq_pages(iser->receives) <= arena_pages(ts.arena) / 4);
	for (unsigned i = 0; i < n; i++)
		fake_peer_disconnect(peers[i]);
	UNTIL(closed == n);
	for (unsigned i = 0; i < n; i++)
		fake_peer_free(peers[i]);
	UNTIL(iser->receives == 0); /* behind closed() */
	end();
}

/* ---- at random ---- */

#define PEERS 6u

static void random_step(struct fake_peer **peers)
{
	static const enum ibv_event_type kinds[] = { IBV_EVENT_QP_FATAL,
						     IBV_EVENT_COMM_EST,
						     IBV_EVENT_CQ_ERR,
						     IBV_EVENT_COMM_EST };
	unsigned i = below(PEERS);
	const uint8_t private[4] = { 0x80 };
	struct message m;

	if (peers[i] == NULL) {
		plan = (struct plan){ .to = below(SHARDS),
				      .end = one_in(3) ? below(END_COUNT)
						       : END_NEVER };
		peers[i] = fake_peer_connect(private, sizeof(private), 4);
		while (fake_peer_state(peers[i]) == FAKE_ASKED)
			shard_step(ts.env, 0);
		message_init(&m, ISCSI_OP_LOGIN | ISCSI_IMMEDIATE, 0x87, 1, 1);
		(void)fake_peer_send(peers[i], m.bytes, m.len);
		message_init(&m, ISCSI_OP_NOP_OUT, 0x80, 2, 2);
		(void)fake_peer_send(peers[i], m.bytes, m.len);
		return;
	}
	switch (below(10)) {
	case 0:
		fake_peer_disconnect(peers[i]);
		break;
	case 1:
		fake_peer_async(peers[i], kinds[below(ARRAY_LEN(kinds))]);
		break;
	case 2:
		fake_peer_hold(peers[i], one_in(2));
		break;
	default:
		shard_step(ts.env, below(100) * USEC);
	}
}

static void one(void)
{
	struct fake_peer *all[200] = { NULL }, *peers[PEERS] = { NULL };
	unsigned count = 0;

	begin_with((struct fake_rdma_config){ .says_last_wqe = !one_in(4),
					      .no_srq = one_in(3) });
	for (unsigned n = 0; n < 300 && count < ARRAY_LEN(all); n++) {
		random_step(peers);
		for (unsigned i = 0; i < PEERS; i++)
			if (peers[i] != NULL && one_in(20) &&
			    fake_peer_state(peers[i]) != FAKE_UP) {
				all[count++] = peers[i];
				peers[i] = NULL;
			}
	}
	if (one_in(4))
		fake_rdma_remove();
	for (unsigned i = 0; i < PEERS; i++)
		if (peers[i] != NULL) {
			fake_peer_hold(peers[i], false);
			fake_peer_disconnect(peers[i]);
		}
	for (unsigned i = 0; i < count; i++)
		fake_peer_hold(all[i], false);
	UNTIL(closed == accepted);
	UNTIL(iser->conns_count == 0);
	end();
	for (unsigned i = 0; i < count; i++)
		fake_peer_free(all[i]);
	for (unsigned i = 0; i < PEERS; i++)
		if (peers[i] != NULL)
			fake_peer_free(peers[i]);
}

TEST(iser_move, at_random)
{
	log_level_set("iser", "error");
	seeds_run(20, 2000, one);
}
