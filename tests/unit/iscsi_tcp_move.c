/*
 * A TCP connection moves from shard to shard: all that the initiator sends goes
 * up once, in order, on the thread of the shard where the connection is, and the
 * end of it too.  The session's side is a fake: it moves as the PDUs tell it.
 *
 * (seeds and how to repeat one: seeds.h)
 */
#include "base/crc.h"
#include "iscsi/tcp_int.h"
#include "tests/lib/must.h"
#include "tests/lib/seeds.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#define SHARDS 3u
#define PDU_MS 20000u
#define NOP 0x40 /* in either phase; a Login would have to be one */
#define RESPONSE 0x87 /* the second byte of the final one */

/* What a PDU asks of the session's side. */
enum ask {
	NOTHING,
	MOVE, /* in dm_up.control() */
	REPLY_AND_MOVE, /* in the reply's callback */
	MOVE_AND_ENABLE, /* into full feature phase behind it */
	BYE, /* a reply: it was the last one */
};

/* ---- the session's side ---- */

struct side {
	struct iscsi_conn conn; /* what the datamover knows; not used */
	struct dm_conn *dm;
	unsigned at, to; /* shards */
	uint32_t next; /* the number that the next PDU has */
	enum ask ask;
	bool sending, due; /* the reply; what was asked for comes after it */
	bool detaching, moving, attaching,
		terminating; /* a call, or since it */
	bool digests, direct;
	struct dm_send reply;
	uint32_t replies;
	int reply_status;
	unsigned moves, detached, lost, closed;
	int status;
	const char *why;
	uint64_t pdu_since_ns; /* what it has to be after the move */
	struct env_task hop, parked, kill, gone;
	uv_poll_t blocker;
	bool is_parked, done; /* for the test's thread */
};

/* What a test wants of it, other than what the PDUs say. */
struct plan {
	bool park; /* detached: wait for the test's thread */
	bool block; /* the new loop does not take the descriptor */
	bool end; /* detached: it ends where it is */
	unsigned pdu_ms;
	void (*moving)(struct side *s); /* behind detach() */
	void (*arrived)(struct side *s); /* behind attach() */
};

static struct test_shard ts;
static struct plan plan;
static struct side sides[32]; /* to be looked at behind the end, too */
static unsigned sides_count;
static struct dm_tcp_listener *listener;
static struct sockaddr_storage bound;
static _Thread_local unsigned here;

/* Of tcp_rx.c, which is linked without the rest of the room. */
struct counter iscsi__discarded;

static struct side *side_of(struct iscsi_conn *conn)
{
	return container_of(conn, struct side, conn);
}

/* Nothing goes up but from the loop of the shard where it is. */
static void up_need(const struct side *s)
{
	NEED(here == s->at);
	NEED(s->dm->env == shard_env(ts.shards, here));
	NEED(!s->detaching);
	NEED(!s->attaching);
	NEED(s->closed == 0);
}

static void side_terminate(struct side *s)
{
	s->terminating = true;
	s->dm->ops->terminate(s->dm);
	NEED(s->closed == 0);
}

static void side_move(struct side *s)
{
	s->moving = s->detaching = true;
	s->pdu_since_ns = tcp_of(s->dm)->pdu_since_ns;
	s->dm->ops->detach(s->dm);
	s->detaching = false;
	NEED(s->detached == 0);
	if (plan.moving != NULL)
		plan.moving(s);
}

static void side_act(struct side *s);

static void on_reply(struct dm_send *send, int status)
{
	struct side *s = container_of(send, struct side, reply);

	up_need(s);
	NEED(s->sending);
	s->sending = false;
	s->reply_status = status;
	if (status != 0)
		return;
	if (s->due)
		side_act(s);
	else if (s->ask == REPLY_AND_MOVE)
		side_move(s);
}

static void reply_init(struct side *s, uint8_t flags)
{
	NEED(!s->sending);
	s->sending = true;
	memset(&s->reply, 0, sizeof(s->reply));
	s->reply.bhs[0] = ISCSI_OP_LOGIN_RSP;
	s->reply.bhs[1] = flags;
	s->reply.bhs[2] = (uint8_t)s->ask;
	put_be32(s->reply.bhs + 16, s->replies++);
	s->reply.cb = on_reply;
}

static void side_reply(struct side *s)
{
	reply_init(s, 0);
	s->dm->ops->send_control(s->dm, &s->reply);
}

static void side_act(struct side *s)
{
	s->due = false;
	if (s->ask == REPLY_AND_MOVE || s->ask == BYE)
		side_reply(s);
	else
		side_move(s);
}

static void side_enable(struct side *s)
{
	struct dm_keys keys = {
		.header_digest = s->digests,
		.data_digest = s->digests,
		.max_send_data_len = 8192,
		.max_recv_data_len = 65536,
		.max_burst = 65536,
		.first_burst = 65536,
		.max_outstanding_r2t = 1,
		.window = 32,
	};

	s->ask = NOTHING;
	NEED(s->dm->ops->notice_keys(s->dm, &keys) == 0);
	reply_init(s, RESPONSE);
	s->dm->ops->enable(s->dm, &s->reply);
}

/* The test holds the descriptor on this loop while it is to arrive there. */
static void block(struct side *s)
{
	NEED(uv_poll_init(shard_loop(shard_env(ts.shards, here)), &s->blocker,
			  tcp_of(s->dm)->fd) == 0);
	NEED(uv_poll_start(&s->blocker, UV_WRITABLE, NULL) == 0);
}

static void unblock(struct side *s)
{
	uv_poll_stop(&s->blocker);
	uv_close((uv_handle_t *)&s->blocker, NULL);
}

static void side_arrive(struct side *s)
{
	struct tcp_conn *tcp = tcp_of(s->dm);
	struct env *env = shard_env(ts.shards, here);

	NEED(s->detached == 1);
	s->detached = 0;
	NEED(here == s->to);
	s->at = s->to;
	s->attaching = true;
	if (plan.block)
		block(s);
	s->dm->ops->attach(s->dm, env);
	if (plan.block)
		unblock(s);
	s->attaching = s->moving = false;
	s->moves++;
	NEED(tcp->pdu_since_ns == s->pdu_since_ns);
	NEED(tcp->timer_on == (s->pdu_since_ns != 0));
	NEED(!tcp->timer_on ||
	     tcp->timer.due_ns == s->pdu_since_ns + tcp->pdu_ms * MSEC);
	if (s->ask == MOVE_AND_ENABLE)
		side_enable(s);
	if (plan.arrived != NULL)
		plan.arrived(s);
}

static void on_hop(struct env_task *task)
{
	side_arrive(container_of(task, struct side, hop));
}

static void on_parked(struct env_task *task)
{
	container_of(task, struct side, parked)->is_parked = true;
}

static void on_kill(struct env_task *task)
{
	side_terminate(container_of(task, struct side, kill));
}

static void on_gone(struct env_task *task)
{
	container_of(task, struct side, gone)->done = true;
}

static struct sgl *up_land(struct iscsi_conn *conn, const struct dm_pdu *pdu,
			   size_t *sgl_offset)
{
	return NULL;
}

static void up_stamp(struct iscsi_conn *conn, uint8_t *bhs)
{
	up_need(side_of(conn));
	NEED(!side_of(conn)->moving);
}

static uint8_t byte_of(uint32_t number, uint32_t i)
{
	return (uint8_t)(number * 31 + i * 7 + i / 256);
}

static void up_control(struct iscsi_conn *conn, const struct dm_pdu *pdu)
{
	struct side *s = side_of(conn);
	enum ask ask = pdu->bhs[40];

	up_need(s);
	NEED(!s->moving);
	NEED(!s->terminating);
	NEED(s->lost == 0);
	NEED(!pdu->data_digest_bad);
	NEED(get_be32(pdu->bhs + 16) == s->next);
	for (uint32_t i = 0; i < pdu->data_len; i++)
		NEED(pdu->data[i] == byte_of(s->next, i));
	s->next++;
	/* With a reply on its way only what cannot be left out is done, later. */
	if (ask == NOTHING || (s->sending && ask < MOVE_AND_ENABLE))
		return;
	s->ask = ask;
	s->to = pdu->bhs[41];
	s->direct = pdu->bhs[42] != 0 && s->to == s->at;
	s->digests = pdu->bhs[43] != 0;
	if (s->sending)
		s->due = true;
	else
		side_act(s);
}

static void up_lost(struct iscsi_conn *conn, int status, const char *why)
{
	struct side *s = side_of(conn);

	up_need(s);
	NEED(!s->moving);
	NEED(!s->terminating);
	NEED(status < 0);
	NEED(s->lost++ == 0);
	s->status = status;
	s->why = why;
	side_terminate(s);
}

static void up_detached(struct iscsi_conn *conn)
{
	struct side *s = side_of(conn);
	struct tcp_conn *tcp = tcp_of(s->dm);

	up_need(s);
	NEED(s->moving);
	NEED(!s->terminating);
	NEED(s->detached++ == 0);
	NEED(!env_timer_active(&tcp->timer));
	if (plan.park)
		env_post(ts.env, &s->parked);
	else if (plan.end)
		side_terminate(s);
	else if (s->direct)
		side_arrive(s);
	else
		env_post(shard_env(ts.shards, s->to), &s->hop);
}

static void up_closed(struct iscsi_conn *conn)
{
	struct side *s = side_of(conn);

	up_need(s);
	NEED(s->terminating);
	NEED(!s->sending);
	s->closed++;
	env_post(ts.env, &s->gone);
}

const struct dm_up iscsi_dm_up = {
	.land = up_land,
	.stamp = up_stamp,
	.control = up_control,
	.lost = up_lost,
	.detached = up_detached,
	.closed = up_closed,
};

struct iscsi_conn *iscsi_conn_accept(struct iscsi *iscsi, struct dm_conn *dm,
				     unsigned portal)
{
	struct side *s = &sides[sides_count++];

	NEED(sides_count <= ARRAY_LEN(sides));
	memset(s, 0, sizeof(*s));
	s->dm = dm;
	s->reply_status = 1;
	s->hop.cb = on_hop;
	s->parked.cb = on_parked;
	s->kill.cb = on_kill;
	s->gone.cb = on_gone;
	return &s->conn;
}

/* ---- the shards ---- */

static struct env_task names[SHARDS];

static void on_name(struct env_task *task)
{
	here = (unsigned)(task - names);
}

static void fixture(struct plan wanted)
{
	struct sockaddr_in lo = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	plan = wanted;
	sides_count = 0;
	test_shards_open(&ts, SHARDS, 8u << 20);
	for (unsigned i = 0; i < SHARDS; i++) {
		names[i].cb = on_name;
		env_post(shard_env(ts.shards, i), &names[i]);
	}
	CHECK_EQ(dm_tcp_listen(NULL, ts.env, (struct sockaddr *)&lo, 1,
			       plan.pdu_ms != 0 ? plan.pdu_ms : PDU_MS, &bound,
			       &listener),
		 0);
}

static void on_done(void *arg)
{
	*(bool *)arg = true;
}

static unsigned fds_count(void)
{
	DIR *dir = must(opendir("/proc/self/fd"));
	unsigned n = 0;

	while (readdir(dir) != NULL)
		n++;
	closedir(dir);
	return n;
}

static void end(void)
{
	static unsigned fds; /* libuv leaves some open, once */
	bool done = false;

	dm_tcp_unlisten(listener, on_done, &done);
	test_run(&ts, &done);
	test_shard_close(&ts);
	if (fds == 0)
		fds = fds_count();
	CHECK_EQ(fds_count(), fds);
}

/* ---- the initiator's ---- */

struct client {
	int fd;
	struct side *side;
	uint8_t out[256 << 10], in[4096];
	size_t len, sent, in_len;
	size_t limit; /* no further before the final response is there */
	uint32_t number, replies;
	bool digests; /* in full feature phase */
	bool hd_out, hd_in; /* in what is made and in what comes, now */
	bool bye, eof;
};

static void dial(struct client *c)
{
	unsigned before = sides_count;
	int one = 1;

	memset(c, 0, sizeof(*c));
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	CHECK(c->fd >= 0);
	CHECK_EQ(connect(c->fd, (struct sockaddr *)&bound,
			 sizeof(struct sockaddr_in)),
		 0);
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	while (sides_count == before)
		shard_step(ts.env, MSEC);
	c->side = &sides[before];
}

/* One more PDU to be sent. */
static void pdu(struct client *c, enum ask ask, unsigned to, uint32_t len)
{
	uint32_t padded = ROUND_UP(len, 4u);
	uint8_t *p = c->out + c->len;

	CHECK(c->len + ISCSI_BHS_LEN + padded + 8 <= sizeof(c->out));
	memset(p, 0, ISCSI_BHS_LEN + 4 + padded);
	p[0] = NOP;
	put_be24(p + 5, len);
	put_be32(p + 16, c->number);
	p[40] = (uint8_t)ask;
	p[41] = (uint8_t)to;
	p[42] = (uint8_t)below(2);
	p[43] = c->digests;
	p += ISCSI_BHS_LEN;
	if (c->hd_out) {
		put_le32(p, crc32c(p - ISCSI_BHS_LEN, ISCSI_BHS_LEN));
		p += 4;
	}
	for (uint32_t i = 0; i < len; i++)
		p[i] = byte_of(c->number, i);
	if (c->hd_out && len > 0)
		put_le32(p + padded, crc32c(p, padded));
	p += padded + (c->hd_out && len > 0 ? 4 : 0);
	c->len = (size_t)(p - c->out);
	c->limit = c->len;
	c->number++;
}

/* Send up to @max bytes of what is left. */
static void push(struct client *c, size_t max)
{
	size_t n = MIN(max, c->limit - c->sent);
	ssize_t sent =
		send(c->fd, c->out + c->sent, n, MSG_NOSIGNAL | MSG_DONTWAIT);

	CHECK(sent >= 0 || errno == EAGAIN);
	if (sent > 0)
		c->sent += (size_t)sent;
}

/* All of it, at once. */
static void push_all(struct client *c)
{
	while (c->sent < c->limit)
		push(c, c->limit);
}

/* Replies come once and in order, too. */
static void pull(struct client *c)
{
	ssize_t n = recv(c->fd, c->in + c->in_len, sizeof(c->in) - c->in_len,
			 MSG_DONTWAIT);
	size_t need, at = 0;

	if (n == 0)
		c->eof = true;
	if (n > 0)
		c->in_len += (size_t)n;
	while (need = ISCSI_BHS_LEN + (c->hd_in ? 4 : 0),
	       c->in_len - at >= need) {
		const uint8_t *p = c->in + at;

		CHECK_EQ(p[0], ISCSI_OP_LOGIN_RSP);
		CHECK_EQ(get_be32(p + 16), c->replies);
		if (need > ISCSI_BHS_LEN)
			CHECK_EQ(get_le32(p + ISCSI_BHS_LEN),
				 crc32c(p, ISCSI_BHS_LEN));
		c->replies++;
		c->bye = p[2] == BYE;
		if (p[1] == RESPONSE) {
			c->limit = c->len;
			c->hd_in = c->digests;
		}
		at += need;
	}
	memmove(c->in, c->in + at, c->in_len - at);
	c->in_len -= at;
}

static struct client clients[24];

/* Turns of the loop until the session's side has come to @what. */
#define UNTIL(what)                                                            \
	do {                                                                   \
		uint64_t until = uv_hrtime() + 120 * SEC;                      \
		while (!(what) && uv_hrtime() < until)                         \
			shard_step(ts.env, MSEC);                              \
		CHECK(what);                                                   \
	} while (0)

/* ---- at random ---- */

static void script(struct client *c)
{
	static const enum ask asks[] = { NOTHING, NOTHING, NOTHING,
					 MOVE,	  MOVE,	   MOVE,
					 MOVE,	  MOVE,	   REPLY_AND_MOVE };
	size_t barrier;

	c->digests = one_in(2);
	for (unsigned i = 0; i < 60; i++)
		pdu(c, asks[below(ARRAY_LEN(asks))], below(SHARDS),
		    one_in(4) ? below(ISCSI_LOGIN_DATA_MAX + 1) : below(200));
	pdu(c, MOVE_AND_ENABLE, below(SHARDS), below(200));
	c->hd_out = c->digests;
	barrier = c->len;
	for (unsigned i = 0; i < 20; i++)
		pdu(c, NOTHING, 0, below(4000));
	pdu(c, BYE, 0, 0);
	/* Who wants no digests does not need to wait. */
	if (c->digests)
		c->limit = barrier;
}

static void clients_run(unsigned n)
{
	uint64_t until = uv_hrtime() + 120 * SEC;
	unsigned left = n;

	while (left > 0 && uv_hrtime() < until) {
		for (unsigned i = 0; i < n; i++) {
			struct client *c = &clients[i];

			if (c->fd < 0 || one_in(2))
				continue;
			if (c->sent < c->limit)
				push(c, 1 + below(one_in(3) ? 20000 : 300));
			pull(c);
			CHECK(!c->eof);
			if (!c->bye)
				continue;
			CHECK_EQ(c->sent, c->len);
			close(c->fd);
			c->fd = -1;
			left--;
		}
		shard_step(ts.env, below(3) * 50 * USEC);
	}
	CHECK_EQ(left, 0);
}

static void random_one(void)
{
	unsigned n = ARRAY_LEN(clients), moves = 0;

	fixture((struct plan){ 0 });
	for (unsigned i = 0; i < n; i++) {
		dial(&clients[i]);
		script(&clients[i]);
	}
	clients_run(n);
	for (unsigned i = 0; i < n; i++) {
		struct side *s = clients[i].side;

		test_run(&ts, &s->done);
		CHECK_EQ(s->next, clients[i].number);
		CHECK_EQ(s->replies, clients[i].replies);
		CHECK_EQ(s->lost, 1);
		CHECK_EQ(s->status, -ECONNRESET);
		CHECK_EQ(s->closed, 1);
		moves += s->moves;
	}
	print_message("# %u moves\n", moves);
	CHECK(moves > 4 * n);
	end();
}

/* Whatever the cuts, and wherever they go: nothing is lost, nothing twice. */
TEST(iscsi_tcp_move, many_at_random)
{
	seeds_run(3, 100, random_one);
}

/* ---- one at a time ---- */

static struct client *const cl = &clients[0];

static void one_dial(struct plan wanted)
{
	fixture(wanted);
	dial(cl);
}

static void one_end(void)
{
	close(cl->fd);
	end();
}

/* It ends by itself: once, and the initiator sees the end. */
static void one_gone(unsigned at, unsigned lost)
{
	struct side *s = cl->side;

	test_run(&ts, &s->done);
	CHECK_EQ(s->at, at);
	CHECK_EQ(s->lost, lost);
	CHECK_EQ(s->closed, 1);
	UNTIL((pull(cl), cl->eof));
	one_end();
}

/* From shard 0 to shard 0, from a later task and from detached() itself. */
TEST(iscsi_tcp_move, to_the_same_shard)
{
	for (unsigned direct = 0; direct < 2; direct++) {
		one_dial((struct plan){ 0 });
		for (unsigned i = 0; i < 10; i++) {
			pdu(cl, i % 2 ? MOVE : REPLY_AND_MOVE, 0, 100);
			cl->out[cl->len - 100 - ISCSI_BHS_LEN + 42] =
				(uint8_t)direct;
			push_all(cl);
			UNTIL(cl->side->moves == i + 1);
		}
		pdu(cl, BYE, 0, 0);
		push_all(cl);
		UNTIL((pull(cl), cl->bye));
		CHECK_EQ(cl->side->next, 11);
		shutdown(cl->fd, SHUT_WR);
		one_gone(0, 1);
	}
}

/* ---- an end before it is detached ---- */

static void end_in_a_task(struct side *s)
{
	env_defer(s->dm->env, &s->kill);
}

static void on_kill_off_loop(struct env_task *task)
{
	struct side *s = container_of(task, struct side, kill);

	NEED(tcp_of(s->dm)->handle == HANDLE_CLOSED);
	NEED(tcp_of(s->dm)->turn.queued);
	side_terminate(s);
}

/* The handle is closed, and only a turn that was queued is still to come. */
static void end_off_loop(struct side *s)
{
	s->kill.cb = on_kill_off_loop;
	env_defer(s->dm->env, &s->kill);
	env_defer(s->dm->env, &tcp_of(s->dm)->turn);
}

/* closed() instead of detached(), which asserts that it does not come. */
TEST(iscsi_tcp_move, ends_while_it_detaches)
{
	static const struct {
		enum ask ask;
		void (*moving)(struct side *s);
	} rounds[] = {
		{ MOVE, side_terminate },
		{ REPLY_AND_MOVE, side_terminate },
		{ MOVE, end_off_loop },
		{ REPLY_AND_MOVE, end_in_a_task },
	};

	for (unsigned i = 0; i < ARRAY_LEN(rounds); i++) {
		one_dial((struct plan){ .moving = rounds[i].moving });
		pdu(cl, rounds[i].ask, 1, 50);
		pdu(cl, NOTHING, 0, 50);
		push_all(cl);
		one_gone(0, 0);
		CHECK_EQ(cl->replies, rounds[i].ask == REPLY_AND_MOVE);
	}
}

/* detached() came, and nobody is to take it over any more. */
TEST(iscsi_tcp_move, ends_as_it_is_detached)
{
	one_dial((struct plan){ .end = true });
	pdu(cl, MOVE, 1, 50);
	pdu(cl, NOTHING, 0, 50);
	push_all(cl);
	one_gone(0, 0);
	CHECK_EQ(cl->side->next, 1);
}

static void turn_queued(struct side *s)
{
	env_defer(s->dm->env, &tcp_of(s->dm)->turn);
}

/* A turn that was queued runs before it is detached: not on the other shard. */
TEST(iscsi_tcp_move, with_a_turn_queued)
{
	one_dial((struct plan){ .moving = turn_queued });
	for (unsigned i = 0; i < 20; i++)
		pdu(cl, MOVE, (i + 1) % SHARDS, 50);
	pdu(cl, BYE, 0, 0);
	push_all(cl);
	UNTIL((pull(cl), cl->bye));
	shutdown(cl->fd, SHUT_WR);
	one_gone(20 % SHARDS, 1);
}

/* ---- the other end goes ---- */

static void hang_up(bool reset)
{
	struct linger now = { .l_onoff = 1 };

	if (reset)
		CHECK_EQ(setsockopt(cl->fd, SOL_SOCKET, SO_LINGER, &now,
				    sizeof(now)),
			 0);
	close(cl->fd);
}

/* Lost on the new shard, once, after what had come before. */
TEST(iscsi_tcp_move, peer_goes_meanwhile)
{
	for (unsigned reset = 0; reset < 2; reset++) {
		struct side *s;

		one_dial((struct plan){ .park = true });
		s = cl->side;
		pdu(cl, MOVE, 1, 50);
		pdu(cl, NOTHING, 0, 50);
		push_all(cl);
		test_run(&ts, &s->is_parked);
		CHECK_EQ(s->next, 1);
		pdu(cl, NOTHING, 0, 50);
		push_all(cl);
		hang_up(reset);
		for (unsigned i = 0; i < 20; i++)
			shard_step(ts.env, MSEC);
		CHECK_EQ(s->lost, 0);
		env_post(shard_env(ts.shards, 1), &s->hop);
		test_run(&ts, &s->done);
		CHECK_EQ(s->at, 1);
		CHECK_EQ(s->lost, 1);
		CHECK_EQ(s->closed, 1);
		if (reset) { /* libuv has no other word for it */
			CHECK(s->status == -ECONNRESET || s->status == -EBADF);
			CHECK(s->next >= 2);
		} else {
			CHECK_EQ(s->status, -ECONNRESET);
			CHECK_EQ(s->next, 3);
		}
		end();
	}
}

/* ---- an end behind attach() ---- */

static void arrived_sends_and_ends(struct side *s)
{
	side_reply(s);
	side_terminate(s);
}

TEST(iscsi_tcp_move, ends_as_it_arrives)
{
	static void (*const rounds[])(struct side * s) = {
		side_terminate,
		arrived_sends_and_ends,
	};

	for (unsigned i = 0; i < 2 * ARRAY_LEN(rounds); i++) {
		one_dial((struct plan){ .arrived = rounds[i / 2] });
		pdu(cl, MOVE, i % 2, 50);
		pdu(cl, NOTHING, 0, 50);
		push_all(cl);
		one_gone(i % 2, 0);
		CHECK_EQ(cl->side->next, 1);
		CHECK_EQ(cl->side->reply_status, i / 2 ? -ECANCELED : 1);
	}
}

/* The new loop does not take it: lost there, later, or what ends it first. */
TEST(iscsi_tcp_move, new_loop_fails)
{
	one_dial((struct plan){ .block = true });
	pdu(cl, MOVE, 1, 50);
	push_all(cl);
	one_gone(1, 1);
	CHECK_EQ(cl->side->status, -EEXIST);

	one_dial((struct plan){ .block = true });
	pdu(cl, MOVE_AND_ENABLE, 2, 50);
	push_all(cl);
	one_gone(2, 1);
	CHECK_EQ(cl->side->status, -EEXIST);
	CHECK_EQ(cl->side->reply_status, -ECANCELED);

	one_dial((struct plan){ .block = true,
				.arrived = arrived_sends_and_ends });
	pdu(cl, MOVE, 1, 50);
	push_all(cl);
	one_gone(1, 0);
	CHECK_EQ(cl->side->reply_status, -ECANCELED);
}

/* ---- half a PDU ---- */

/* Half of one more PDU of @len bytes of data: its first @n bytes. */
static void push_half(size_t n, uint32_t len)
{
	size_t before = cl->len;

	pdu(cl, NOTHING, 0, len);
	CHECK(n < cl->len - before);
	cl->limit = before + n;
	push_all(cl);
}

static void late(const struct side *s)
{
	CHECK_EQ(s->status, -ETIMEDOUT);
	CHECK_STR(s->why, "the rest of a PDU is late");
}

/* It lies in the buffer behind the one that moves: its time begins there. */
TEST(iscsi_tcp_move, half_a_pdu_in_the_buffer)
{
	one_dial((struct plan){ .pdu_ms = 60 });
	pdu(cl, MOVE, 1, 50);
	push_half(20, 0);
	one_gone(1, 1);
	CHECK_EQ(cl->side->next, 1);
	late(cl->side);
}

/* All that it has for the rest of a PDU is over, once it has arrived. */
static void arrived_late(struct side *s)
{
	struct tcp_conn *tcp = tcp_of(s->dm);

	tcp->pdu_since_ns -= PDU_MS * MSEC;
	env_timer_start(s->dm->env, &tcp->timer, 0);
}

/*
 * It came before the move began, in the midst of its header or of its data: its
 * time goes on (side_arrive() looks at the timer), and the rest may still come.
 */
TEST(iscsi_tcp_move, half_a_pdu_before)
{
	for (unsigned i = 0; i < 4; i++) {
		size_t n = i % 2 ? 20 : ISCSI_BHS_LEN + 30;
		bool rest = i / 2;
		struct side *s;

		one_dial(
			(struct plan){ .arrived = rest ? NULL : arrived_late });
		s = cl->side;
		push_half(n, 100);
		UNTIL(tcp_of(s->dm)->pdu_since_ns != 0);
		s->ask = REPLY_AND_MOVE;
		s->to = 1;
		side_reply(s);
		UNTIL((pull(cl), cl->replies == 1));
		if (rest) {
			cl->limit = cl->len;
			push_all(cl);
			shutdown(cl->fd, SHUT_WR);
		}
		one_gone(1, 1);
		CHECK_EQ(s->next, rest ? 1 : 0);
		if (!rest)
			late(s);
	}
}
