/*
 * datamover_tcp: iSCSI over TCP (RFC 7143 section 4), the first datamover.
 *
 * Here: listening, a connection's life, and the calls down.  uv_poll tells when
 * the socket has something; tcp_rx.c and tcp_tx.c do it with recvmsg and
 * sendmsg of their own, as libuv's streams would cost a copy or a second read.
 *
 * Whatever goes wrong is told once, through dm_up.lost(); the session then
 * calls terminate(), and after dm_up.closed() nothing is left.
 *
 * A connection moves to another shard as a descriptor: its poll handle is closed
 * on the old loop and opened anew on the other.  What was read and not looked at
 * goes along in the buffer.
 */
#define LOG_ROOM LOG_ISCSI
#include "base/descriptors.h"
#include "iscsi/tcp_int.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

_Static_assert(sizeof(struct tcp_send) <= sizeof(((struct dm_send *)0)->impl),
	       "what waits to be sent fits its place");
_Static_assert(sizeof(struct tcp_data) <= sizeof(((struct dm_data *)0)->impl),
	       "what moves data fits its place");

struct dm_tcp_listener {
	struct iscsi *iscsi;
	struct env *env;
	uv_poll_t poll;
	/* Out of descriptors: accept again @retry_ns after it failed. */
	struct env_timer retry;
	uint64_t retry_ns; /* 0: it does not fail */
	int fd;
	unsigned portal, pdu_ms;
	char name[ADDRESS_TEXT]; /* the portal's */
	void (*cb)(void *arg);
	void *arg;
};

static const struct dm_ops tcp_ops;

/* ---- life ---- */

/* libuv says that there is an error, and not which. */
static int error_of(const struct tcp_conn *conn, int status)
{
	int error = 0;
	socklen_t len = sizeof(error);

	if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 ||
	    error == 0)
		return -status;
	return error;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct tcp_conn *conn = poll->data;

	shard_wake(conn->dm.env);
	if (status < 0) {
		iscsi__tcp_failed(conn, error_of(conn, status));
		return;
	}
	if (events & UV_WRITABLE)
		iscsi__tcp_flush(conn);
	if (events & (UV_READABLE | UV_DISCONNECT) && tcp_alive(conn))
		iscsi__tcp_receive(conn);
}

/* Ask for the events that are wanted now. */
void iscsi__tcp_poll(struct tcp_conn *conn)
{
	int events = 0;

	if (conn->handle != HANDLE_OPEN)
		return;
	if (!conn->lost && conn->rx != RX_LATER)
		events |= UV_READABLE;
	if (!conn->lost && conn->want_write)
		events |= UV_WRITABLE;
	if (events == conn->events)
		return;
	conn->events = events;
	if (events == 0)
		uv_poll_stop(&conn->poll);
	else
		uv_poll_start(&conn->poll, events, on_poll);
}

void iscsi__tcp_lost(struct tcp_conn *conn, int status, const char *why)
{
	if (conn->lost || conn->closing)
		return;
	conn->lost = true;
	iscsi__tcp_poll(conn);
	conn->dm.up->lost(conn->dm.owner, status, why);
}

/* The socket does not go on: most often that is the initiator's doing. */
void iscsi__tcp_failed(struct tcp_conn *conn, int error)
{
	const char *why = "its socket failed";

	if (error == ECONNRESET || error == EPIPE)
		why = "the initiator hung up";
	else if (error == ETIMEDOUT)
		why = "the initiator acknowledges nothing";
	else if (error == EHOSTUNREACH || error == ENETUNREACH)
		why = "the initiator cannot be reached";
	iscsi__tcp_lost(conn, -error, why);
}

/*
 * The rest of a PDU is due pdu_ms after its first byte, whatever trickles in;
 * the peer must take something from a full send queue within TCP_SEND_MS.  One
 * timer serves both, runs only while one of them is due, and is never stopped
 * for progress: it looks when it fires.
 */
static void on_timer(struct env_timer *timer)
{
	struct tcp_conn *conn = container_of(timer, struct tcp_conn, timer);
	uint64_t now = env_now(conn->dm.env);

	conn->timer_on = false;
	if (!tcp_alive(conn))
		return;
	if (conn->pdu_since_ns != 0 &&
	    now - conn->pdu_since_ns >= conn->pdu_ms * MSEC) {
		iscsi__tcp_lost(conn, -ETIMEDOUT, "the rest of a PDU is late");
		return;
	}
	if (conn->tx_since_ns != 0 &&
	    now - conn->tx_since_ns >= TCP_SEND_MS * MSEC) {
		iscsi__tcp_lost(conn, -ETIMEDOUT,
				"the initiator reads nothing");
		return;
	}
	if (conn->rx == RX_LATER && now >= conn->dm.later_ns)
		iscsi__tcp_land_again(conn);
	iscsi__tcp_timer(conn);
}

void iscsi__tcp_timer(struct tcp_conn *conn)
{
	uint64_t now = env_now(conn->dm.env), due = UINT64_MAX;

	if (conn->timer_on || !tcp_alive(conn))
		return;
	if (conn->pdu_since_ns != 0)
		due = conn->pdu_since_ns + conn->pdu_ms * MSEC;
	if (conn->tx_since_ns != 0)
		due = MIN(due, conn->tx_since_ns + TCP_SEND_MS * MSEC);
	if (conn->rx == RX_LATER)
		due = MIN(due, conn->dm.later_ns);
	if (due == UINT64_MAX)
		return;
	conn->timer_on = true;
	env_timer_start(conn->dm.env, &conn->timer,
			due > now ? due - now : MSEC);
}

static void cancelled_finish(struct tcp_conn *conn)
{
	struct tx_item *item;

	while ((item = TAILQ_FIRST(&conn->cancelled)) != NULL) {
		TAILQ_REMOVE(&conn->cancelled, item, link);
		iscsi__tcp_finish(item, -ECANCELED);
	}
}

/* What calls down left for the end of the turn. */
static void on_turn(struct env_task *task)
{
	struct tcp_conn *conn = container_of(task, struct tcp_conn, turn);

	cancelled_finish(conn);
	if (tcp_alive(conn))
		iscsi__tcp_flush(conn);
}

static void gets_cancel(struct tcp_conn *conn)
{
	for (unsigned i = 0; i < ISCSI_ITT_BUCKETS; i++) {
		struct tcp_data *td;

		while ((td = TAILQ_FIRST(&conn->gets[i])) != NULL) {
			iscsi__tcp_get_remove(conn, dm_data_of(td));
			iscsi__tcp_finish(&td->item, -ECANCELED);
		}
	}
}

static void end_finish(struct tcp_conn *conn)
{
	/* Callbacks may queue something more: nothing of it will leave. */
	do {
		iscsi__tcp_tx_cancel(conn);
		gets_cancel(conn);
		cancelled_finish(conn);
	} while (!TAILQ_EMPTY(&conn->queue) || conn->gets_count > 0);
	conn->dm.up->closed(conn->dm.owner);
	iscsi__tcp_rx_fini(conn);
	free(conn);
}

/* The session's side detaches when it waits for nothing, and starts nothing. */
static void idle_assert(const struct tcp_conn *conn)
{
	assert(TAILQ_EMPTY(&conn->queue));
	assert(TAILQ_EMPTY(&conn->cancelled));
	assert(conn->slots_count == 0);
	assert(conn->gets_count == 0);
}

/* The loop has nothing of it any more: the end, or on to another loop. */
static void on_off(struct env_task *task)
{
	struct tcp_conn *conn = container_of(task, struct tcp_conn, turn);

	if (conn->closing) {
		end_finish(conn);
		return;
	}
	idle_assert(conn);
	/* From here on it may be in another thread's hands. */
	conn->dm.up->detached(conn->dm.owner);
}

static void on_close(uv_handle_t *handle)
{
	struct tcp_conn *conn = handle->data;

	shard_wake(conn->dm.env);
	conn->handle = HANDLE_CLOSED;
	conn->turn.cb = on_off;
	if (!conn->turn.queued) /* else when its turn comes */
		on_off(&conn->turn);
}

static void handle_close(struct tcp_conn *conn)
{
	conn->handle = HANDLE_CLOSING;
	uv_poll_stop(&conn->poll);
	uv_close((uv_handle_t *)&conn->poll, on_close);
}

static void tcp_terminate(struct dm_conn *dm)
{
	struct tcp_conn *conn = tcp_of(dm);
	char sink[4096];

	if (conn->closing)
		return;
	conn->closing = true;
	env_timer_stop(dm->env, &conn->timer);
	if (conn->handle == HANDLE_OPEN) {
		handle_close(conn);
	} else if (conn->handle == HANDLE_CLOSED) {
		conn->turn.cb = on_off;
		env_defer(dm->env, &conn->turn);
	} /* else on_close() is on its way */
	/*
	 * Closing over unread bytes resets the connection, and the last answer
	 * could be lost with it: read a little first.
	 */
	shutdown(conn->fd, SHUT_WR);
	for (unsigned i = 0; i < 16; i++)
		if (recv(conn->fd, sink, sizeof(sink), MSG_DONTWAIT) <= 0)
			break;
	close(conn->fd);
	conn->fd = -1;
}

/* ---- to another shard ---- */

static void tcp_detach(struct dm_conn *dm)
{
	struct tcp_conn *conn = tcp_of(dm);

	assert(tcp_alive(conn));
	idle_assert(conn);
	assert(conn->sgl == NULL); /* an sgl stays on its shard */
	env_timer_stop(dm->env, &conn->timer);
	conn->timer_on = false;
	conn->tx_since_ns = 0;
	handle_close(conn);
}

/* What came meanwhile: in the buffer, in the socket, or the end of it. */
static void on_attached(struct env_task *task)
{
	struct tcp_conn *conn = container_of(task, struct tcp_conn, turn);

	conn->turn.cb = on_turn;
	if (conn->handle == HANDLE_CLOSED) {
		iscsi__tcp_lost(conn, conn->attach_status,
				"its new shard cannot poll it");
		return;
	}
	on_turn(task);
	if (tcp_alive(conn))
		iscsi__tcp_receive(conn);
}

static void tcp_attach(struct dm_conn *dm, struct env *to)
{
	struct tcp_conn *conn = tcp_of(dm);

	assert(conn->handle == HANDLE_CLOSED);
	assert(!conn->closing);
	assert(!conn->turn.queued);
	dm->env = to;
	conn->attach_status =
		uv_poll_init(shard_loop(to), &conn->poll, conn->fd);
	if (conn->attach_status == 0) {
		conn->handle = HANDLE_OPEN;
		conn->events = 0;
		iscsi__tcp_poll(conn);
		iscsi__tcp_timer(conn);
	}
	conn->turn.cb = on_attached;
	env_defer(to, &conn->turn);
}

/* ---- the calls down ---- */

static void item_queue(struct tcp_conn *conn, struct tx_item *item,
		       enum tx_kind kind, void *owner)
{
	item->kind = (uint8_t)kind;
	item->owner = owner;
	item->header_digest = conn->header_digest;
	item->data_digest = conn->data_digest;
	item->queued = true;
	TAILQ_INSERT_TAIL(&conn->queue, item, link);
	if (!conn->closing) /* else end_finish() comes round to it */
		env_defer(conn->dm.env, &conn->turn);
}

static void item_cancel(struct tcp_conn *conn, struct tx_item *item)
{
	TAILQ_INSERT_TAIL(&conn->cancelled, item, link);
	if (!conn->closing)
		env_defer(conn->dm.env, &conn->turn);
}

static void tcp_send_control(struct dm_conn *dm, struct dm_send *send)
{
	struct tcp_send *ts = (struct tcp_send *)send->impl;

	item_queue(tcp_of(dm), &ts->item, TX_SEND, send);
}

static void tcp_put_data(struct dm_conn *dm, struct dm_data *data)
{
	struct tcp_conn *conn = tcp_of(dm);
	struct tcp_data *td = tcp_data_of(data);
	struct dm_send *rsp = data->response;

	assert(data->len > 0);
	data->conn = dm;
	td->done = 0;
	td->sn = data->sn;
	item_queue(conn, &td->item, TX_PUT, data);
	if (rsp != NULL && !iscsi__tcp_collapses(data))
		tcp_send_control(dm, rsp);
}

static void tcp_get_data(struct dm_conn *dm, struct dm_data *data)
{
	struct tcp_conn *conn = tcp_of(dm);
	struct tcp_data *td = tcp_data_of(data);
	uint8_t *bhs = td->r2t;

	assert(data->len > 0 && data->len <= conn->keys.max_burst);
	data->conn = dm;
	td->done = 0;
	td->sn = 0;
	do {
		conn->ttt_last++;
	} while (conn->ttt_last == ISCSI_NO_TAG);
	td->ttt = conn->ttt_last;
	memset(bhs, 0, ISCSI_BHS_LEN);
	bhs[0] = ISCSI_OP_R2T;
	bhs[1] = ISCSI_FINAL;
	put_be64(bhs + 8, data->lun);
	put_be32(bhs + 16, data->itt);
	put_be32(bhs + 20, td->ttt);
	put_be32(bhs + 36, data->sn);
	put_be32(bhs + 40, data->task_offset);
	put_be32(bhs + 44, (uint32_t)data->len);
	dm->up->stamp(dm->owner,
		      bhs); /* StatSN: as of its place in the queue */
	TAILQ_INSERT_TAIL(&conn->gets[iscsi_itt_bucket(data->itt)], td, bucket);
	conn->gets_count++;
	if (data->len >= TCP_DIRECT_MIN)
		conn->alone = TCP_ALONE_PDUS;
	item_queue(conn, &td->item, TX_R2T, data);
}

static int tcp_notice_keys(struct dm_conn *dm, const struct dm_keys *keys)
{
	struct tcp_conn *conn = tcp_of(dm);
	uint8_t *buf;

	if (!conn->full) {
		buf = realloc(conn->buf, TCP_FULL_BUF);
		if (buf == NULL)
			return -ENOMEM;
		conn->buf = buf;
		conn->room = TCP_FULL_BUF;
	}
	conn->keys = *keys;
	return 0;
}

static void tcp_enable(struct dm_conn *dm, struct dm_send *response)
{
	struct tcp_conn *conn = tcp_of(dm);

	/* The response itself carries no digests; all that follows does. */
	tcp_send_control(dm, response);
	conn->header_digest = conn->keys.header_digest;
	conn->data_digest = conn->keys.data_digest;
	conn->full = true;
	conn->alone = TCP_ALONE_PDUS; /* until it is seen what comes */
}

static void tcp_task_done(struct dm_conn *dm, uint32_t itt)
{
	struct tcp_conn *conn = tcp_of(dm);
	struct tcp_data *td, *next;

	if (conn->gets_count == 0)
		return;
	for (td = TAILQ_FIRST(&conn->gets[iscsi_itt_bucket(itt)]); td != NULL;
	     td = next) {
		next = TAILQ_NEXT(td, bucket);
		if (dm_data_of(td)->itt != itt)
			continue;
		iscsi__tcp_get_remove(conn, dm_data_of(td));
		item_cancel(conn, &td->item);
	}
}

static void tcp_land_again(struct dm_conn *dm)
{
	struct tcp_conn *conn = tcp_of(dm);

	if (tcp_alive(conn) && conn->rx == RX_LATER)
		iscsi__tcp_land_again(conn);
}

static const struct dm_ops tcp_ops = {
	.name = "tcp",
	.send_control = tcp_send_control,
	.put_data = tcp_put_data,
	.get_data = tcp_get_data,
	.notice_keys = tcp_notice_keys,
	.enable = tcp_enable,
	.task_done = tcp_task_done,
	.land_again = tcp_land_again,
	.terminate = tcp_terminate,
	.detach = tcp_detach,
	.attach = tcp_attach,
};

/* ---- listening ---- */

static void set_option(int fd, int level, int name, int value)
{
	/* Each of these only makes things better: failure is no error. */
	(void)setsockopt(fd, level, name, &value, sizeof(value));
}

static struct tcp_conn *conn_new(struct dm_tcp_listener *l, int fd,
				 const struct sockaddr_storage *peer)
{
	struct tcp_conn *conn = calloc(1, sizeof(*conn));
	socklen_t len = sizeof(conn->dm.local);

	if (conn == NULL)
		return NULL;
	conn->buf = malloc(TCP_LOGIN_BUF);
	if (conn->buf == NULL ||
	    uv_poll_init(shard_loop(l->env), &conn->poll, fd) < 0) {
		free(conn->buf);
		free(conn);
		return NULL;
	}
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, TCP_SEND_MS);
	conn->handle = HANDLE_OPEN;
	conn->fd = fd;
	conn->room = TCP_LOGIN_BUF;
	conn->pdu_ms = l->pdu_ms;
	conn->poll.data = conn;
	conn->turn.cb = on_turn;
	conn->timer.cb = on_timer;
	TAILQ_INIT(&conn->queue);
	TAILQ_INIT(&conn->cancelled);
	for (unsigned i = 0; i < ISCSI_ITT_BUCKETS; i++)
		TAILQ_INIT(&conn->gets[i]);
	conn->dm.ops = &tcp_ops;
	conn->dm.up = &iscsi_dm_up;
	conn->dm.env = l->env;
	conn->dm.peer = *peer;
	(void)getsockname(fd, (struct sockaddr *)&conn->dm.local, &len);
	return conn;
}

static void on_refused(uv_handle_t *handle)
{
	struct tcp_conn *conn = handle->data;

	close(conn->fd);
	free(conn->buf);
	free(conn);
}

static void on_accept(uv_poll_t *poll, int status, int events);

static void on_retry(struct env_timer *timer)
{
	struct dm_tcp_listener *l =
		container_of(timer, struct dm_tcp_listener, retry);

	if (l->cb == NULL)
		uv_poll_start(&l->poll, UV_READABLE, on_accept);
}

/* Less and less often; it is said once, until all who waited were taken. */
static void accept_failed(struct dm_tcp_listener *l, int error)
{
	if (l->retry_ns == 0)
		log_warn("portal %s: accepting failed, new connections wait: "
			 "%s",
			 l->name, strerror(error));
	l->retry_ns = MIN(MAX(2 * l->retry_ns, TCP_RETRY_NS), TCP_RETRY_NS_MAX);
	uv_poll_stop(&l->poll);
	env_timer_start(l->env, &l->retry, l->retry_ns);
}

static void accept_idle(struct dm_tcp_listener *l)
{
	if (l->retry_ns != 0)
		log_info("portal %s: accepting connections again", l->name);
	l->retry_ns = 0;
}

static void on_accept(uv_poll_t *poll, int status, int events)
{
	struct dm_tcp_listener *l = poll->data;

	shard_wake(l->env);
	/* A few at a time: sessions at work come first. */
	for (unsigned i = 0; i < 16 && l->cb == NULL; i++) {
		struct sockaddr_storage peer;
		socklen_t len = sizeof(peer);
		struct tcp_conn *conn;
		int fd;

		memset(&peer, 0, sizeof(peer));
		if (!descriptors_left(l->fd)) {
			accept_failed(l, EMFILE);
			return;
		}
		fd = accept4(l->fd, (struct sockaddr *)&peer, &len,
			     SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			accept_idle(l);
			return;
		}
		if (fd < 0) {
			accept_failed(l, errno);
			return;
		}
		conn = conn_new(l, fd, &peer);
		if (conn == NULL) {
			close(fd);
			continue;
		}
		conn->dm.owner =
			iscsi_conn_accept(l->iscsi, &conn->dm, l->portal);
		if (conn->dm.owner == NULL) {
			uv_close((uv_handle_t *)&conn->poll, on_refused);
			continue;
		}
		iscsi__tcp_poll(conn);
	}
}

int dm_tcp_listen(struct iscsi *iscsi, struct env *env,
		  const struct sockaddr *address, unsigned portal,
		  unsigned pdu_ms, struct sockaddr_storage *bound,
		  struct dm_tcp_listener **out)
{
	socklen_t len = address->sa_family == AF_INET6
				? sizeof(struct sockaddr_in6)
				: sizeof(struct sockaddr_in);
	struct dm_tcp_listener *l;
	int rv;

	if (address->sa_family != AF_INET && address->sa_family != AF_INET6)
		return -EINVAL;
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return -ENOMEM;
	l->fd = socket(address->sa_family,
		       SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (l->fd < 0) {
		rv = -errno;
		goto err_free;
	}
	set_option(l->fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (address->sa_family == AF_INET6)
		set_option(l->fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
	if (bind(l->fd, address, len) < 0 || listen(l->fd, 1024) < 0) {
		rv = -errno;
		goto err_fd;
	}
	len = sizeof(*bound);
	memset(bound, 0, sizeof(*bound));
	if (getsockname(l->fd, (struct sockaddr *)bound, &len) < 0) {
		rv = -errno;
		goto err_fd;
	}
	l->iscsi = iscsi;
	l->env = env;
	l->portal = portal;
	address_text(bound, true, l->name);
	l->pdu_ms = pdu_ms;
	l->retry.cb = on_retry;
	rv = uv_poll_init(shard_loop(env), &l->poll, l->fd);
	if (rv < 0)
		goto err_fd;
	l->poll.data = l;
	uv_poll_start(&l->poll, UV_READABLE, on_accept);
	*out = l;
	return 0;

err_fd:
	close(l->fd);
err_free:
	free(l);
	return rv;
}

static void on_unlistened(uv_handle_t *handle)
{
	struct dm_tcp_listener *l = handle->data;
	void (*cb)(void *arg) = l->cb;
	void *arg = l->arg;

	shard_wake(l->env);
	close(l->fd);
	free(l);
	cb(arg);
}

void dm_tcp_unlisten(struct dm_tcp_listener *listener, void (*cb)(void *arg),
		     void *arg)
{
	assert(listener->cb == NULL);
	listener->cb = cb;
	listener->arg = arg;
	env_timer_stop(listener->env, &listener->retry);
	uv_poll_stop(&listener->poll);
	uv_close((uv_handle_t *)&listener->poll, on_unlistened);
}
