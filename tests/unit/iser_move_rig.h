/*
 * iser_move_rig: iSER on a fake device, and shards that run in their threads.
 * The session's side is the test's own: it moves a connection behind its login,
 * answers NOP-Outs, and of a command fetches the data and puts it back.  It
 * checks that every call comes on the right thread, in order.  Included by test
 * files; it is part of each.
 */
#ifndef BASALT_TESTS_UNIT_ISER_MOVE_RIG_H
#define BASALT_TESTS_UNIT_ISER_MOVE_RIG_H

#include "iser/iser_int.h"
#include "tests/lib/fake_rdma.h"
#include "tests/lib/must.h"
#include "tests/lib/test.h"
#include "tests/unit/iser_message.h"

#include <arpa/inet.h>

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
	bool told; /* detach() has returned: the device has its last word */
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

static inline void mine(const struct iscsi_conn *c)
{
	assert(!c->away);
	assert(pthread_equal(c->thread, pthread_self()));
}

static inline void end_it(struct iscsi_conn *c)
{
	mine(c);
	if (c->terminated)
		return;
	c->terminated = true;
	c->dm->ops->terminate(c->dm);
}

static inline void on_end_task(struct env_task *task)
{
	end_it(container_of(task, struct iscsi_conn, task));
}

/* As one of the answers of the login. */
static inline void on_login_sent(struct dm_send *send, int status)
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

static inline void on_sent(struct dm_send *send, int status)
{
}

static inline void go_on(struct iscsi_conn *c)
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

static inline void on_handed_over(struct env_task *task)
{
	struct iscsi_conn *c = container_of(task, struct iscsi_conn, task);

	c->thread = pthread_self();
	c->away = false;
	c->dm->ops->attach(c->dm, envs[c->plan.to]);
	atomic_fetch_add(&arrived, 1);
	go_on(c);
}

static inline void up_detached(struct iscsi_conn *c)
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

static inline void gate_open(void)
{
	struct iscsi_conn *c = atomic_exchange(&gated, NULL);

	env_post(envs[c->plan.to], &c->task);
}

static inline void move(struct iscsi_conn *c)
{
	c->task.cb = on_end_task;
	if (c->plan.end == END_BEFORE)
		env_defer(c->dm->env, &c->task);
	if (c->sends > 0) {
		c->waits = true;
		return;
	}
	c->dm->ops->detach(c->dm);
	if (c->plan.told)
		iser__on_async(&conn_of(c->dm)->watch,
			       IBV_EVENT_QP_LAST_WQE_REACHED);
	if (c->plan.end == END_AT_ONCE)
		end_it(c);
	if (c->plan.end == END_LEAVING)
		env_defer(c->dm->env, &c->task);
}

static inline void on_login(struct iscsi_conn *c, const struct dm_pdu *pdu)
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

static inline void echo_end(struct echo *e)
{
	sgl_put(e->sgl);
	free(e);
}

static inline void on_echoed(struct dm_send *send, int status)
{
	struct echo *e = container_of(send, struct echo, send);

	mine(e->c);
	echo_end(e);
}

static inline void on_put(struct dm_data *data, int status)
{
	mine(container_of(data, struct echo, put)->c);
}

static inline void on_got(struct dm_data *data, int status)
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

static inline void echo(struct iscsi_conn *c, const struct dm_pdu *pdu)
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

static inline void up_control(struct iscsi_conn *c, const struct dm_pdu *pdu)
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

static inline void up_stamp(struct iscsi_conn *c, uint8_t *bhs)
{
	mine(c);
}

static inline void up_lost(struct iscsi_conn *c, int status, const char *why)
{
	mine(c);
	assert(!c->lost && !c->terminated && why != NULL);
	c->lost = true;
	atomic_fetch_add(&lost, 1);
	end_it(c);
}

static inline void up_closed(struct iscsi_conn *c)
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
		uint64_t until_end = uv_hrtime() + 120 * SEC;                  \
		bool until_is = (cond);                                        \
                                                                               \
		while (!until_is && uv_hrtime() < until_end) {                 \
			shard_step(ts.env, MSEC);                              \
			until_is = (cond);                                     \
		}                                                              \
		CHECK(until_is);                                               \
	} while (0)

static inline void turns(void)
{
	for (unsigned i = 0; i < 20; i++)
		shard_step(ts.env, MSEC / 10);
}

static inline void begin_with(struct fake_rdma_config config)
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

static inline void begin(void)
{
	begin_with((struct fake_rdma_config){ .says_last_wqe = true });
}

static inline void on_closed(void *arg)
{
	*(bool *)arg = true;
}

/* Every connection has ended; nothing stays behind, and every page is home. */
static inline void end(void)
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

static inline struct fake_peer *dial(void)
{
	const uint8_t private[4] = { 0x80 };
	struct fake_peer *peer = fake_peer_connect(private, sizeof(private), 4);
	unsigned before = accepted;

	sn = 1;
	UNTIL(fake_peer_state(peer) != FAKE_ASKED);
	CHECK_EQ(accepted, before + 1);
	return peer;
}

static inline bool give(struct fake_peer *peer, uint8_t opcode, uint8_t flags)
{
	struct message m;

	message_init(&m, opcode, flags, ++itt, sn);
	if (!fake_peer_send(peer, m.bytes, m.len))
		return false;
	sn++;
	return true;
}

/* The next message must have @opcode. */
static inline void receive(struct fake_peer *peer, uint8_t opcode)
{
	struct fake_message *m = NULL;

	UNTIL((m = fake_peer_receive(peer)) != NULL);
	CHECK_EQ(m->bytes[28], opcode);
	free(m);
}

static inline void login_send(struct fake_peer *peer)
{
	CHECK(give(peer, ISCSI_OP_LOGIN | ISCSI_IMMEDIATE, 0x87));
}

static inline struct fake_peer *up(unsigned to)
{
	struct fake_peer *peer;

	plan.to = to;
	peer = dial();
	login_send(peer);
	receive(peer, ISCSI_OP_LOGIN_RSP);
	return peer;
}

/* It comes back as it went. */
static inline void echo_check(struct fake_peer *peer, uint32_t len)
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

static inline void hang_up(struct fake_peer *peer)
{
	unsigned before = closed;

	fake_peer_disconnect(peer);
	UNTIL(closed == before + 1);
	fake_peer_free(peer);
}

#endif
