/*
 * iSER connections that move to other shards, which run in their threads, on a
 * fake device.  The session's side is the test's own: it moves a connection
 * behind its login, answers NOP-Outs, and of a command fetches the data and puts
 * it back.  It checks that every call comes on the right thread, in order.
 *
 * limit: 120 s
 */
#define LOG_ROOM LOG_ISER
#include "iser/iser_int.h"
#include "tests/lib/fake_rdma.h"
#include "tests/lib/must.h"
#include "tests/lib/seeds.h"
#include "tests/unit/iser_message.h"

#include <arpa/inet.h>
#include <time.h>

#define SHARDS 3u
#define READ_KEY 7u
#define WRITE_KEY 8u
#define ECHO_MAX (256u << 10)
#define WINDOW 16u

static struct test_shard ts;
static struct env *envs[SHARDS];
static struct iser *iser;

/* ---- the session's side ---- */

/* When it ends the connection by itself. */
enum end {
	END_NEVER,
	END_AT_ONCE, /* detach() has just returned */
	END_BEFORE, /* before the turn that detaches */
	END_LEAVING, /* between that and detached() */
	END_ATTACHED, /* attach() has just returned */
	END_ENABLED, /* and the response is queued */
	END_ARRIVED, /* a turn later */
	END_COUNT
};

/* What the next connection shall do. */
static struct plan {
	unsigned to;
	enum end end;
	bool gate; /* stay between detach and attach until gate_open() */
	bool keeps; /* immediate data */
} plan;

struct iscsi_conn {
	struct dm_conn *dm;
	struct plan plan;
	struct env_task task;
	pthread_t thread; /* whose it is */
	bool away, full, lost, terminated;
	bool waits; /* for the answers to the login, to be gone */
	unsigned sends; /* of the login */
	uint32_t next_sn;
	struct dm_send response;
	struct sgl *kept[64];
	unsigned kept_count;
};

static pthread_t front_thread; /* the test's */
static atomic_uint accepted, detached, arrived, lost, closed;
static atomic_uint pdus_on[SHARDS];
static _Atomic(struct iscsi_conn *) gated;

static void mine(const struct iscsi_conn *c)
{
	assert(!c->away);
	assert(pthread_equal(c->thread, pthread_self()));
}

static void end_it(struct iscsi_conn *c)
{
	mine(c);
	if (c->terminated)
		return;
	c->terminated = true;
	c->dm->ops->terminate(c->dm);
}

static void on_end_task(struct env_task *task)
{
	end_it(container_of(task, struct iscsi_conn, task));
}

/* As one of the answers of the login. */
static void on_login_sent(struct dm_send *send, int status)
{
	struct iscsi_conn *c = (struct iscsi_conn *)send->data;

	mine(c);
	c->sends--;
	free(send);
	if (status == 0 && c->sends == 0 && c->waits && !c->terminated &&
	    !c->lost) {
		c->waits = false;
		c->dm->ops->detach(c->dm);
	}
}

static void on_sent(struct dm_send *send, int status)
{
}

static void go_on(struct iscsi_conn *c)
{
	const struct dm_keys keys = { .window = WINDOW };

	if (c->plan.end == END_ATTACHED) {
		end_it(c);
		return;
	}
	if (c->dm->ops->notice_keys(c->dm, &keys) < 0 || c->lost) {
		end_it(c);
		return;
	}
	c->full = true;
	c->response.bhs[0] = ISCSI_OP_LOGIN_RSP;
	c->response.cb = on_sent;
	c->dm->ops->enable(c->dm, &c->response);
	if (c->plan.end == END_ENABLED)
		end_it(c);
	if (c->plan.end == END_ARRIVED) {
		c->task.cb = on_end_task;
		env_defer(c->dm->env, &c->task);
	}
}

static void on_handed_over(struct env_task *task)
{
	struct iscsi_conn *c = container_of(task, struct iscsi_conn, task);

	c->thread = pthread_self();
	c->away = false;
	c->dm->ops->attach(c->dm, envs[c->plan.to]);
	atomic_fetch_add(&arrived, 1);
	go_on(c);
}

static void up_detached(struct iscsi_conn *c)
{
	mine(c);
	assert(!c->terminated);
	c->away = true;
	atomic_fetch_add(&detached, 1);
	c->task.cb = on_handed_over;
	if (c->plan.gate)
		atomic_store(&gated, c);
	else
		env_post(envs[c->plan.to], &c->task);
}

static void gate_open(void)
{
	struct iscsi_conn *c = atomic_exchange(&gated, NULL);

	env_post(envs[c->plan.to], &c->task);
}

static void move(struct iscsi_conn *c)
{
	c->task.cb = on_end_task;
	if (c->plan.end == END_BEFORE)
		env_defer(c->dm->env, &c->task);
	if (c->sends > 0) {
		c->waits = true;
		return;
	}
	c->dm->ops->detach(c->dm);
	if (c->plan.end == END_AT_ONCE)
		end_it(c);
	if (c->plan.end == END_LEAVING)
		env_defer(c->dm->env, &c->task);
}

static void on_login(struct iscsi_conn *c, const struct dm_pdu *pdu)
{
	struct dm_send *send;

	if (pdu->bhs[1] & 0x80) {
		move(c);
		return;
	}
	send = must(calloc(1, sizeof(*send)));
	send->bhs[0] = ISCSI_OP_LOGIN_RSP;
	send->data = c;
	send->cb = on_login_sent;
	c->sends++;
	c->dm->ops->send_control(c->dm, send);
}

/* A command, and a NOP-Out without the data. */
struct echo {
	struct iscsi_conn *c;
	struct dm_data get, put;
	struct dm_send send;
	struct dm_stags stags;
	struct sgl *sgl;
};

static void echo_end(struct echo *e)
{
	sgl_put(e->sgl);
	free(e);
}

static void on_echoed(struct dm_send *send, int status)
{
	struct echo *e = container_of(send, struct echo, send);

	mine(e->c);
	echo_end(e);
}

static void on_put(struct dm_data *data, int status)
{
	mine(container_of(data, struct echo, put)->c);
}

static void on_got(struct dm_data *data, int status)
{
	struct echo *e = container_of(data, struct echo, get);

	mine(e->c);
	if (status != 0 || e->c->terminated) {
		echo_end(e);
		return;
	}
	e->put = (struct dm_data){ .stags = &e->stags,
				   .sgl = e->sgl,
				   .len = e->get.len,
				   .itt = e->get.itt,
				   .response = &e->send,
				   .cb = on_put };
	e->c->dm->ops->put_data(e->c->dm, &e->put);
}

static void echo(struct iscsi_conn *c, const struct dm_pdu *pdu)
{
	uint32_t len = get_be32(pdu->bhs + 20);
	struct echo *e = must(calloc(1, sizeof(*e)));

	e->c = c;
	e->send.cb = on_echoed;
	memcpy(e->send.bhs + 16, pdu->bhs + 16, 4);
	e->send.bhs[0] = (pdu->bhs[0] & ISCSI_OP_MASK) == ISCSI_OP_COMMAND
				 ? ISCSI_OP_RESPONSE
				 : ISCSI_OP_NOP_IN;
	if (pdu->stags == NULL || !pdu->stags->write_valid ||
	    sgl_new(c->dm->env->pages, PAGE_FRONT, len, 0, &e->sgl) < 0) {
		c->dm->ops->send_control(c->dm, &e->send);
		return;
	}
	e->stags = *pdu->stags;
	e->stags.immediate_len = 0;
	e->get = (struct dm_data){ .stags = &e->stags,
				   .sgl = e->sgl,
				   .len = len,
				   .itt = get_be32(pdu->bhs + 16),
				   .cb = on_got };
	c->dm->ops->get_data(c->dm, &e->get);
}

static void up_control(struct iscsi_conn *c, const struct dm_pdu *pdu)
{
	mine(c);
	assert(!c->terminated && !c->lost);
	assert(get_be32(pdu->bhs + 24) == c->next_sn);
	c->next_sn++;
	atomic_fetch_add(&pdus_on[c->dm->env->shard], 1);
	if ((pdu->bhs[0] & ISCSI_OP_MASK) == ISCSI_OP_LOGIN) {
		assert(!c->full);
		on_login(c, pdu);
		return;
	}
	assert(c->full);
	if (c->plan.keeps && pdu->sgl != NULL)
		c->kept[c->kept_count++] = sgl_get(pdu->sgl);
	if ((pdu->bhs[0] & ISCSI_OP_MASK) == ISCSI_OP_LOGOUT) {
		struct echo *e = must(calloc(1, sizeof(*e)));

		e->c = c;
		e->send.bhs[0] = ISCSI_OP_LOGOUT_RSP;
		e->send.cb = on_echoed;
		c->dm->ops->send_control(c->dm, &e->send);
		c->task.cb = on_end_task;
		env_defer(c->dm->env, &c->task);
		return;
	}
	echo(c, pdu);
}

static void up_stamp(struct iscsi_conn *c, uint8_t *bhs)
{
	mine(c);
}

static void up_lost(struct iscsi_conn *c, int status, const char *why)
{
	mine(c);
	assert(!c->lost && !c->terminated && why != NULL);
	c->lost = true;
	atomic_fetch_add(&lost, 1);
	end_it(c);
}

static void up_closed(struct iscsi_conn *c)
{
	mine(c);
	assert(c->terminated && c->sends == 0);
	for (unsigned i = 0; i < c->kept_count; i++)
		sgl_put(c->kept[i]);
	free(c);
	atomic_fetch_add(&closed, 1);
}

const struct dm_up iscsi_dm_up = {
	.stamp = up_stamp,
	.control = up_control,
	.lost = up_lost,
	.detached = up_detached,
	.closed = up_closed,
};

struct iscsi_conn *iscsi_conn_accept(struct iscsi *iscsi, struct dm_conn *dm,
				     unsigned portal)
{
	struct iscsi_conn *c = must(calloc(1, sizeof(*c)));

	c->dm = dm;
	c->plan = plan;
	c->thread = pthread_self();
	c->next_sn = 1;
	atomic_fetch_add(&accepted, 1);
	return c;
}

/* ---- the rooms ---- */

#define UNTIL(cond)                                                            \
	do {                                                                   \
		uint64_t until_end = uv_hrtime() + 30 * SEC;                   \
		bool until_is = (cond);                                        \
                                                                               \
		while (!until_is && uv_hrtime() < until_end) {                 \
			shard_step(ts.env, MSEC);                              \
			until_is = (cond);                                     \
		}                                                              \
		CHECK(until_is);                                               \
	} while (0)

static void turns(void)
{
	for (unsigned i = 0; i < 20; i++)
		shard_step(ts.env, MSEC / 10);
}

static void begin_with(struct fake_rdma_config config)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_port = htons(3260),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	front_thread = pthread_self();
	fake_rdma_open(&config);
	test_shards_open(&ts, SHARDS, 32u << 20);
	for (unsigned i = 0; i < SHARDS; i++)
		envs[i] = shard_env(ts.shards, i);
	CHECK_EQ(iser_open(&(struct iser_config){ .env = ts.env,
						  .shards = SHARDS,
						  .envs = envs,
						  .arena = ts.arena },
			   &iser),
		 0);
	CHECK_EQ(iser_listen(iser, 1, (struct sockaddr *)&at, true), 0);
	accepted = detached = arrived = lost = closed = 0;
	for (unsigned i = 0; i < SHARDS; i++)
		pdus_on[i] = 0;
	plan = (struct plan){ .to = 1 };
}

static void begin(void)
{
	begin_with((struct fake_rdma_config){ .says_last_wqe = true });
}

static void on_closed(void *arg)
{
	*(bool *)arg = true;
}

/* Every connection has ended; nothing stays behind, and every page is home. */
static void end(void)
{
	bool done = false;

	UNTIL(closed == accepted);
	iser_close(iser, on_closed, &done);
	test_run(&ts, &done);
	fake_rdma_close();
	CHECK_EQ(counter_value(&iser__conns), 0);
	CHECK_EQ(counter_value(&iser__receives_posted), 0);
	CHECK_EQ(counter_value(&iser__undrained), 0);
	test_shard_close(&ts);
}

/* ---- the initiator ---- */

static uint32_t sn, itt;

static struct fake_peer *dial(void)
{
	const uint8_t private[4] = { 0x80 };
	struct fake_peer *peer = fake_peer_connect(private, sizeof(private), 4);
	unsigned before = accepted;

	sn = 1;
	UNTIL(fake_peer_state(peer) != FAKE_ASKED);
	CHECK_EQ(accepted, before + 1);
	return peer;
}

static bool give(struct fake_peer *peer, uint8_t opcode, uint8_t flags)
{
	struct message m;

	message_init(&m, opcode, flags, ++itt, sn);
	if (!fake_peer_send(peer, m.bytes, m.len))
		return false;
	sn++;
	return true;
}

/* The next message must have @opcode. */
static void receive(struct fake_peer *peer, uint8_t opcode)
{
	struct fake_message *m = NULL;

	UNTIL((m = fake_peer_receive(peer)) != NULL);
	CHECK_EQ(m->bytes[28], opcode);
	free(m);
}

static void login_send(struct fake_peer *peer)
{
	CHECK(give(peer, ISCSI_OP_LOGIN | ISCSI_IMMEDIATE, 0x87));
}

static struct fake_peer *up(unsigned to)
{
	struct fake_peer *peer;

	plan.to = to;
	peer = dial();
	login_send(peer);
	receive(peer, ISCSI_OP_LOGIN_RSP);
	return peer;
}

/* It comes back as it went. */
static void echo_check(struct fake_peer *peer, uint32_t len)
{
	static uint8_t there[ECHO_MAX], back[ECHO_MAX];
	struct message m;

	pattern(there, len, itt);
	memset(back, 0, len);
	fake_peer_expose(peer, WRITE_KEY, there, len);
	fake_peer_expose(peer, READ_KEY, back, len);
	message_init(&m, ISCSI_OP_COMMAND, ISCSI_FINAL | 0x60, ++itt, sn++);
	put_be32(m.bytes + 28 + 20, len);
	m.bytes[0] |= 0x0c;
	put_be32(m.bytes + 4, WRITE_KEY);
	put_be64(m.bytes + 8, 4096ull * WRITE_KEY);
	put_be32(m.bytes + 16, READ_KEY);
	put_be64(m.bytes + 20, 4096ull * READ_KEY);
	UNTIL(fake_peer_send(peer, m.bytes, m.len));
	receive(peer, ISCSI_OP_RESPONSE);
	assert_memory_equal(there, back, len);
}

static void hang_up(struct fake_peer *peer)
{
	unsigned before = closed;

	fake_peer_disconnect(peer);
	UNTIL(closed == before + 1);
	fake_peer_free(peer);
}

/* ---- tests ---- */

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

		begin();
		plan.end = ends[i];
		peer = dial();
		fake_peer_freeze(peer, true);
		login_send(peer);
		for (unsigned n = 0; n < 10; n++)
			turns();
		CHECK_EQ(closed, 0);
		fake_peer_freeze(peer, false);
		UNTIL(closed == 1);
		fake_peer_free(peer);
		end();
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

/* What shard 0 hears of a connection is for the shard that it is on. */
TEST(iser_move, events_find_it)
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
TEST(iser_move, event_in_hand)
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
	nap();
	fake_rdma_hook(NULL);
	CHECK_EQ(closed, 1);
	CHECK_EQ(iser->conns_count, 1);
	iser__device_gone(LIST_FIRST(&iser->devices));
	fake_rdma_remove_told(hooked);
	nap();
}

TEST(iser_move, removed_at_its_end)
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

TEST(iser_move, cm_event_in_hand)
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
TEST(iser_move, last_receive_is_told)
{
	begin();
	for (unsigned i = 0; i < 20; i++) {
		struct fake_peer *peer = up(1 + i % 2);
		uint64_t from = uv_hrtime();

		hang_up(peer);
		CHECK(uv_hrtime() - from < 4 * SEC);
	}
	end();
}

/* Its connections are on all shards, and on the way. */
TEST(iser_move, device_removed)
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

/* A share finds that the queue takes nothing: the device ends, for everybody. */
TEST(iser_move, receives_fail)
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
TEST(iser_move, logout)
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
	CHECK(iser__recvq_pages(iser->own_receives) <=
	      arena_pages(ts.arena) / 4);
	for (unsigned i = 0; i < n; i++)
		fake_peer_disconnect(peers[i]);
	UNTIL(closed == n);
	for (unsigned i = 0; i < n; i++)
		fake_peer_free(peers[i]);
	CHECK_EQ(iser->own_receives, 0);
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
