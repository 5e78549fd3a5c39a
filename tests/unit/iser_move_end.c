/*
 * iSER connections that have moved: events that find them, their ends, and the
 * device that goes.
 */
#include "tests/unit/iser_move_rig.h"

#include <time.h>

/* What shard 0 hears of a connection is for the shard that it is on. */
TEST(iser_move_end, events_find_it)
{
	static const enum ibv_event_type kinds[] = { IBV_EVENT_QP_FATAL,
						     IBV_EVENT_QP_ACCESS_ERR,
						     IBV_EVENT_CQ_ERR };

	begin();
	for (unsigned i = 0; i < ARRAY_LEN(kinds); i++) {
		struct fake_peer *other = up(2), *peer = up(1);

		fake_peer_async(peer, IBV_EVENT_COMM_EST);
		echo_check(peer, 4096);
		fake_peer_async(peer, kinds[i]);
		UNTIL(closed == 2 * i + 1);
		CHECK_EQ(lost, 2 * i + 1);
		fake_peer_free(peer);
		sn = 2;
		echo_check(other, 4096);
		hang_up(other);
	}
	end();
}

static struct fake_peer *hooked;

static void nap(void)
{
	const struct timespec ms50 = { .tv_nsec = 50 * 1000000 };

	(void)nanosleep(&ms50, NULL);
}

/* The other shard has ended it, while this one does nothing. */
static void closed_wait(void)
{
	for (unsigned i = 0; i < 2400 && closed == 0; i++)
		nap();
	CHECK_EQ(closed, 1);
}

/* Shard 0 has an event in its hands: the connection ends on its own shard. */
static void on_async_in_hand(bool acked)
{
	if (!pthread_equal(pthread_self(), front_thread))
		return;
	if (!acked)
		fake_peer_disconnect(hooked);
	nap();
	if (acked)
		fake_rdma_hook(NULL);
}

/* ... as far as it can until that is acknowledged, and then to the end. */
TEST(iser_move_end, event_in_hand)
{
	begin_with((struct fake_rdma_config){ .no_srq = true });
	hooked = up(1);
	fake_rdma_hook(on_async_in_hand);
	fake_peer_async(hooked, IBV_EVENT_COMM_EST);
	UNTIL(closed == 1);
	fake_rdma_hook(NULL);
	fake_peer_free(hooked);
	end();
}

/* Its device goes while it is at its end, which the front has yet to see. */
static void on_removed_in_hand(bool acked)
{
	if (!pthread_equal(pthread_self(), front_thread))
		return;
	if (!acked) {
		fake_peer_disconnect(hooked);
		nap();
		return;
	}
	closed_wait();
	fake_rdma_hook(NULL);
	CHECK_EQ(iser->conns_count, 1);
	iser__device_gone(LIST_FIRST(&iser->devices));
	fake_rdma_remove_told(hooked);
	nap();
}

TEST(iser_move_end, removed_at_its_end)
{
	begin_with((struct fake_rdma_config){ .no_srq = true });
	hooked = up(1);
	fake_rdma_hook(on_removed_in_hand);
	fake_peer_async(hooked, IBV_EVENT_COMM_EST);
	UNTIL(LIST_EMPTY(&iser->devices));
	fake_peer_free(hooked);
	end();
}

/* Or nobody has it, and goes on with it on its shard. */
static void on_cm_in_hand(bool acked)
{
	if (!pthread_equal(pthread_self(), front_thread))
		return;
	if (!acked)
		gate_open();
	nap();
	if (acked)
		fake_rdma_hook(NULL);
}

TEST(iser_move_end, cm_event_in_hand)
{
	for (unsigned fails = 0; fails < 2; fails++) {
		begin_with((struct fake_rdma_config){ .no_srq = true });
		plan.gate = true;
		hooked = dial();
		turns();
		login_send(hooked);
		UNTIL(atomic_load(&gated) != NULL);
		turns();
		if (fails) /* its id cannot leave shard 0's channel */
			fake_rdma_fail(2);
		fake_rdma_hook(on_cm_in_hand);
		fake_peer_disconnect(hooked);
		UNTIL(closed == 1);
		CHECK_EQ(lost, 1);
		fake_rdma_hook(NULL);
		fake_rdma_fail(0);
		fake_peer_free(hooked);
		end();
	}
}

/* Where the device says so, nobody waits for the last receives. */
TEST(iser_move_end, last_receive_is_told)
{
	unsigned waited = 0;

	begin();
	for (unsigned i = 0; i < 20; i++) {
		struct fake_peer *peer = up(1 + i % 2);
		uint64_t from = uv_hrtime();

		hang_up(peer);
		waited += uv_hrtime() - from >= 4 * SEC;
	}
	/* A machine that stalls does so now and then. */
	CHECK(waited < 5);
	end();
}

/* Its connections are on all shards, and on the way. */
TEST(iser_move_end, device_removed)
{
	for (unsigned told = 0; told < SHARDS + 2; told++) {
		struct fake_peer *peers[SHARDS + 1];
		bool gate = told % 2 == 0 && told != SHARDS;
		char why[100];

		begin();
		for (unsigned i = 0; i < SHARDS; i++)
			peers[i] = up(i);
		fake_peer_hold(peers[1], true);
		plan.gate = gate;
		plan.to = 2;
		peers[SHARDS] = dial();
		login_send(peers[SHARDS]);
		if (gate)
			UNTIL(atomic_load(&gated) != NULL);
		if (told <= SHARDS)
			fake_rdma_remove_told(peers[told]);
		else
			fake_rdma_remove();
		turns();
		if (gate) {
			UNTIL(lost == SHARDS);
			gate_open();
		}
		UNTIL(closed == SHARDS + 1);
		UNTIL(!iser_listening(iser, 1, why, sizeof(why)));
		UNTIL(iser->conns_count == 0);
		for (unsigned i = 0; i <= SHARDS; i++)
			fake_peer_free(peers[i]);
		end();
	}
}

/* A share finds that the queue takes nothing: the device ends, for everybody. */
TEST(iser_move_end, receives_fail)
{
	struct fake_peer *peers[SHARDS];

	begin();
	for (unsigned i = 0; i < SHARDS; i++)
		peers[i] = up(i);
	fake_rdma_fail_receives(true);
	sn = 2;
	CHECK(give(peers[1], ISCSI_OP_NOP_OUT, 0x80));
	UNTIL(closed == SHARDS);
	CHECK_EQ(lost, SHARDS);
	fake_rdma_fail_receives(false);
	for (unsigned i = 0; i < SHARDS; i++)
		fake_peer_free(peers[i]);
	end();
}

struct ask {
	struct env_task task;
	struct iser *share;
	atomic_bool answered;
	unsigned leavings;
};

static void on_ask(struct env_task *task)
{
	struct ask *ask = container_of(task, struct ask, task);

	ask->leavings = ask->share->leaving_count;
	atomic_store(&ask->answered, true);
}

static unsigned leavings(void)
{
	unsigned sum = 0;

	for (unsigned i = 0; i < SHARDS; i++) {
		struct ask ask = { .task.cb = on_ask,
				   .share = iser->shares[i] };

		env_post(envs[i], &ask.task);
		UNTIL(atomic_load(&ask.answered));
		sum += ask.leavings;
	}
	return sum;
}

/* It logs out on a share, and hangs up there, or not before the room closes. */
TEST(iser_move_end, logout)
{
	for (unsigned stays = 0; stays < 2; stays++) {
		struct fake_peer *peers[SHARDS];

		begin();
		for (unsigned i = 0; i < SHARDS; i++) {
			peers[i] = up(i);
			CHECK(give(peers[i], ISCSI_OP_LOGOUT | ISCSI_IMMEDIATE,
				   0x80));
			receive(peers[i], ISCSI_OP_LOGOUT_RSP);
			UNTIL(closed == i + 1);
			CHECK_EQ(fake_peer_state(peers[i]), FAKE_UP);
		}
		UNTIL(iser->conns_count == 0);
		CHECK_EQ(leavings(), SHARDS);
		if (!stays) {
			for (unsigned i = 0; i < SHARDS; i++)
				fake_peer_disconnect(peers[i]);
			UNTIL(leavings() == 0);
		}
		end();
		for (unsigned i = 0; i < SHARDS; i++)
			fake_peer_free(peers[i]);
	}
}
