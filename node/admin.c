/*
 * admin: the service on run_dir/basalt.sock.
 *
 * A connection carries one request at a time; what a request may cost is known
 * before anything is allocated for it.  Who asks is what the kernel says about
 * the peer.  A peer that stops reading, or sends half a request, is cut off; a
 * peer that leaves while its request runs changes nothing about the request.
 * When there are as many as are taken, one that asks nothing gives way; where
 * none does, root still has a few places of its own.
 */
#define LOG_ROOM LOG_NODE
#include "base/log.h"
#include "base/util.h"
#include "node/admin_int.h"
#include "node/frame.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNS_MAX 64u
#define ROOT_CONNS 4u /* beyond them */
/*
 * In ten parts, of which one passes in a turn of the loop, however late that is: it
 * is the peer's time, not that of a daemon that stood still or had much to do.
 */
#define PARTS 10u
#define HALF_NS (10 * SEC) /* for the rest of a frame, and to read an answer */
#define IDLE_NS (300 * SEC) /* between requests */
#define NAMED_NS (2 * SEC) /* for who a peer is; then it is his number */
#define NAMING_MAX 16u /* workers that may wait for that: half of them */
#define STUCK_NS SEC /* between looks whether the directory waits */

struct admin {
	struct node *node;
	struct admin_socket *socket; /* NULL: it is closed */
	/* Of those that ask nothing, who does so for longest comes first. */
	TAILQ_HEAD(, admin_conn) conns;
	TAILQ_HEAD(, admin_req) running;
	unsigned conns_count;
	unsigned naming; /* workers that ask who a peer is */
	bool closing;
	struct env_timer stuck_timer;
	void (*cb)(void *arg);
	void *arg;
	struct log_limit full_limit;
};

struct admin_conn {
	struct admin *admin;
	uv_pipe_t pipe;
	struct env_timer timer;
	uint64_t part_ns;
	unsigned parts; /* that are left */
	struct env_work work; /* who the peer is: name services may block */
	uid_t uid;
	pid_t pid;
	char who[64];
	char named[USERNAME_LEN]; /* who the worker has found; "": nobody */
	uint8_t head[FRAME_HEADER];
	uint8_t *body;
	uint32_t have, body_len;
	struct admin_req *req;
	unsigned writes;
	bool turned_away; /* it ends with its answer */
	bool naming; /* it is not read yet */
	bool closing, working, closed;
	TAILQ_ENTRY(admin_conn) link;
};

struct outgoing {
	uv_write_t write;
	struct admin_conn *conn;
	bool last;
	uint8_t *rest; /* what is sent behind them; free()d */
	uint8_t bytes[];
};

static void conn_close(struct admin_conn *conn);
static void conn_read(struct admin_conn *conn);
static void admin_close_go_on(struct admin *admin);

/* ---- answers ---- */

static void conn_limit(struct admin_conn *conn, uint64_t limit_ns)
{
	conn->parts = PARTS;
	conn->part_ns = limit_ns / PARTS;
	env_timer_start(conn->admin->node->env, &conn->timer, conn->part_ns);
}

static void on_written(uv_write_t *write, int status)
{
	struct outgoing *out = (struct outgoing *)write;
	struct admin_conn *conn = out->conn;
	bool last = out->last;

	shard_wake(conn->admin->node->env);
	free(out->rest);
	free(out);
	conn->writes--;
	if (conn->closing)
		return;
	if (status < 0)
		conn_close(conn);
	else if (last)
		conn_read(conn);
}

/* A result that is packed already. */
struct packed {
	int result; /* its field's number */
	const uint8_t *head; /* what is short of it, before the bytes */
	size_t head_len;
	uint8_t *bytes; /* taken */
	size_t len;
};

#define TAG_MAX 20u

static size_t varint_put(uint8_t *out, uint64_t n)
{
	size_t len = 0;

	for (; n > 0x7f; n >>= 7)
		out[len++] = (uint8_t)(n | 0x80);
	out[len++] = (uint8_t)n;
	return len;
}

/* What goes before @len bytes of a field, as protobuf has it. */
static size_t tag_put(uint8_t *out, int field, size_t len)
{
	size_t at = varint_put(out, (uint64_t)field << 3 | 2);

	return at + varint_put(out + at, len);
}

/* @response, which has no result, with that of @packed. */
static void send_packed(struct admin_conn *conn, Admin__Response *response,
			const struct packed *packed)
{
	size_t own = admin__response__get_packed_size(response);
	size_t head_len = packed->head_len, tag_len = 0, len;
	uint8_t tag[TAG_MAX];
	struct outgoing *out;
	uv_buf_t buf[2];

	if (packed->result != 0)
		tag_len = tag_put(tag, packed->result, head_len + packed->len);
	len = own + tag_len + head_len + packed->len;
	if (len > FRAME_RESPONSE_MAX) {
		Admin__Response sorry = ADMIN__RESPONSE__INIT;

		free(packed->bytes);
		sorry.done = true;
		sorry.status = -EMSGSIZE;
		sorry.error = ADMIN_TOO_LONG;
		sorry.fix = ADMIN_TOO_LONG_FIX;
		send_packed(conn, &sorry, &(struct packed){ 0 });
		return;
	}
	out = malloc(sizeof(*out) + FRAME_HEADER + own + tag_len + head_len);
	if (out == NULL) {
		free(packed->bytes);
		conn_close(conn);
		return;
	}
	out->conn = conn;
	out->last = response->done;
	out->rest = packed->bytes;
	frame_put(out->bytes, (uint32_t)len);
	admin__response__pack(response, out->bytes + FRAME_HEADER);
	memcpy(out->bytes + FRAME_HEADER + own, tag, tag_len);
	if (head_len > 0)
		memcpy(out->bytes + FRAME_HEADER + own + tag_len, packed->head,
		       head_len);
	buf[0] = uv_buf_init((char *)out->bytes,
			     (unsigned)(FRAME_HEADER + len - packed->len));
	buf[1] = uv_buf_init((char *)out->rest, (unsigned)packed->len);
	conn_limit(conn, HALF_NS);
	conn->writes++;
	if (uv_write(&out->write, (uv_stream_t *)&conn->pipe, buf,
		     packed->len > 0 ? 2 : 1, on_written) < 0) {
		conn->writes--;
		free(out->rest);
		free(out);
		conn_close(conn);
	}
}

static void send_response(struct admin_conn *conn, Admin__Response *response)
{
	send_packed(conn, response, &(struct packed){ 0 });
}

static void req_free(struct admin_req *r)
{
	struct admin *admin = r->node->admin;

	TAILQ_REMOVE(&admin->running, r, link);
	/* Requests carry secrets. */
	switch (r->msg->command_case) {
	case ADMIN__REQUEST__COMMAND_VDISK_CREATE:
	case ADMIN__REQUEST__COMMAND_TARGET_CREATE:
	case ADMIN__REQUEST__COMMAND_TARGET_SET: {
		Admin__Access *a =
			r->msg->command_case ==
					ADMIN__REQUEST__COMMAND_VDISK_CREATE
				? r->msg->vdisk_create->access
			: r->msg->command_case ==
					ADMIN__REQUEST__COMMAND_TARGET_CREATE
				? r->msg->target_create->access
				: r->msg->target_set->access;

		if (a != NULL && a->chap_secret.len > 0)
			node__wipe(a->chap_secret.data, a->chap_secret.len);
		if (a != NULL && a->mutual_secret.len > 0)
			node__wipe(a->mutual_secret.data, a->mutual_secret.len);
		break;
	}
	default:
		break;
	}
	if (r->over != NULL)
		r->over(r);
	admin__request__free_unpacked(r->msg, NULL);
	free(r->ctx);
	free(r);
	if (TAILQ_EMPTY(&admin->running))
		env_timer_stop(admin->node->env, &admin->stuck_timer);
	if (admin->closing)
		admin_close_go_on(admin);
}

void admin__reply_early(struct admin_req *r, Admin__Response *response)
{
	struct admin_conn *conn = r->conn;

	response->done = true;
	r->conn = NULL;
	if (conn == NULL)
		return;
	conn->req = NULL;
	send_response(conn, response);
}

void admin__reply(struct admin_req *r, Admin__Response *response)
{
	admin__reply_early(r, response);
	req_free(r);
}

static void reply_packed(struct admin_req *r, const struct packed *packed)
{
	Admin__Response response = ADMIN__RESPONSE__INIT;
	struct admin_conn *conn = r->conn;

	response.done = true;
	r->conn = NULL;
	if (conn != NULL) {
		conn->req = NULL;
		send_packed(conn, &response, packed);
	} else {
		free(packed->bytes);
	}
	req_free(r);
}

void admin__reply_packed(struct admin_req *r, int result, uint8_t *bytes,
			 size_t len)
{
	reply_packed(r, &(struct packed){
				.result = result, .bytes = bytes, .len = len });
}

void admin__reply_text(struct admin_req *r, int result,
		       const ProtobufCMessage *rest, int field, char *text)
{
	size_t len = protobuf_c_message_get_packed_size(rest);
	uint8_t *head = malloc(len + TAG_MAX);
	struct packed packed = { .result = result,
				 .head = head,
				 .bytes = (uint8_t *)text,
				 .len = strlen(text) };

	if (head == NULL) {
		free(text);
		admin__no_memory(r);
		return;
	}
	packed.head_len = protobuf_c_message_pack(rest, head);
	packed.head_len += tag_put(head + len, field, packed.len);
	reply_packed(r, &packed);
	free(head);
}

void admin__progress(struct admin_req *r, unsigned percent, const char *doing)
{
	Admin__Response response = ADMIN__RESPONSE__INIT;

	if (r->conn == NULL || r->conn->writes > 0)
		return;
	response.percent = percent;
	response.doing = (char *)doing;
	send_response(r->conn, &response);
}

/* ---- requests ---- */

bool admin__another(const struct admin_req *r,
		    bool (*same)(const struct admin_req *r,
				 const struct admin_req *other))
{
	const struct admin_req *other;

	TAILQ_FOREACH (other, &r->node->admin->running, link)
		if (other != r && same(r, other))
			return true;
	return false;
}

static void conn_protest(struct admin_conn *conn, int status, const char *error,
			 const char *fix)
{
	Admin__Response response = ADMIN__RESPONSE__INIT;

	response.done = true;
	response.status = status;
	response.error = (char *)error;
	response.fix = (char *)fix;
	send_response(conn, &response);
}

/* Who waits for a change that waits for space, or the like, is not left to wait. */
static void on_stuck_timer(struct env_timer *timer)
{
	struct admin *admin = container_of(timer, struct admin, stuck_timer);
	int wants = admin->node->cmmds != NULL
			    ? admin__directory_wants(admin->node)
			    : 0;
	struct admin_req *r;

	TAILQ_FOREACH (r, &admin->running, link)
		if (wants != 0 && r->changes && r->conn != NULL)
			admin__stuck_early(r, wants);
	env_timer_start(admin->node->env, timer, STUCK_NS);
}

#define USE_OURS "Use the basalt that came with this basaltd."

static void conn_request(struct admin_conn *conn)
{
	struct admin *admin = conn->admin;
	struct admin_req *r = calloc(1, sizeof(*r));
	Admin__Request *msg = NULL;

	uv_read_stop((uv_stream_t *)&conn->pipe);
	env_timer_stop(admin->node->env, &conn->timer);
	if (r != NULL)
		msg = admin__request__unpack(NULL, conn->body_len, conn->body);
	if (conn->body != NULL)
		node__wipe(conn->body, conn->body_len);
	free(conn->body);
	conn->body = NULL;
	conn->have = conn->body_len = 0;
	if (r == NULL) {
		conn_protest(conn, -ENOMEM, "no memory for the request",
			     "Try again in a moment.");
		return;
	}
	if (msg == NULL) {
		free(r);
		conn_protest(conn, -EPROTO, "the request cannot be understood",
			     USE_OURS);
		return;
	}
	r->node = admin->node;
	r->msg = msg;
	r->conn = conn;
	strcpy(r->who, conn->who);
	conn->req = r;
	TAILQ_INSERT_TAIL(&admin->running, r, link);
	if (!env_timer_active(&admin->stuck_timer))
		env_timer_start(admin->node->env, &admin->stuck_timer,
				STUCK_NS);
	admin__dispatch(r);
}

/* ---- reading ---- */

static void on_alloc(uv_handle_t *handle, size_t hint, uv_buf_t *buf)
{
	struct admin_conn *conn = handle->data;

	if (conn->have < FRAME_HEADER)
		*buf = uv_buf_init((char *)conn->head + conn->have,
				   FRAME_HEADER - conn->have);
	else
		*buf = uv_buf_init(
			(char *)conn->body + (conn->have - FRAME_HEADER),
			conn->body_len - (conn->have - FRAME_HEADER));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
	struct admin_conn *conn = stream->data;
	char why[160];
	int rv;

	shard_wake(conn->admin->node->env);
	if (n == 0)
		return;
	if (n < 0) {
		conn_close(conn);
		return;
	}
	/* From its first byte, however it trickles in. */
	if (conn->have == 0)
		conn_limit(conn, HALF_NS);
	conn->have += (uint32_t)n;
	if (conn->have == FRAME_HEADER) {
		rv = frame_get(conn->head, FRAME_REQUEST_MAX, &conn->body_len,
			       why, sizeof(why));
		if (rv == 0 && conn->body_len > 0) {
			conn->body = malloc(conn->body_len);
			if (conn->body == NULL)
				rv = -ENOMEM;
		}
		if (rv < 0) {
			/* Where the next frame begins is not known. */
			uv_read_stop(stream);
			if (rv == -EPROTO || rv == -ENOMEM)
				conn_close(conn);
			else
				conn_protest(conn, rv, why, USE_OURS);
			return;
		}
	}
	if (conn->have == FRAME_HEADER + conn->body_len)
		conn_request(conn);
}

static void conn_read(struct admin_conn *conn)
{
	struct admin *admin = conn->admin;

	/* A broken frame was answered, or one too many. */
	if (conn->have > 0 || conn->turned_away || admin->closing) {
		conn_close(conn);
		return;
	}
	/* It asks nothing from now on: others have done so for longer. */
	TAILQ_REMOVE(&admin->conns, conn, link);
	TAILQ_INSERT_TAIL(&admin->conns, conn, link);
	conn_limit(conn, IDLE_NS);
	if (uv_read_start((uv_stream_t *)&conn->pipe, on_alloc, on_read) < 0)
		conn_close(conn);
}

/* ---- connections ---- */

static void conn_free(struct admin_conn *conn)
{
	struct admin *admin = conn->admin;

	TAILQ_REMOVE(&admin->conns, conn, link);
	admin->conns_count--;
	if (conn->body != NULL)
		node__wipe(conn->body, conn->body_len);
	free(conn->body);
	free(conn);
	if (admin->closing)
		admin_close_go_on(admin);
}

static void on_conn_closed(uv_handle_t *handle)
{
	struct admin_conn *conn = handle->data;

	conn->closed = true;
	if (!conn->working)
		conn_free(conn);
}

static void conn_close(struct admin_conn *conn)
{
	if (conn->closing)
		return;
	conn->closing = true;
	if (conn->req != NULL)
		conn->req->conn = NULL;
	conn->req = NULL;
	env_timer_stop(conn->admin->node->env, &conn->timer);
	uv_close((uv_handle_t *)&conn->pipe, on_conn_closed);
}

static void conn_named(struct admin_conn *conn)
{
	conn->naming = false;
	conn_read(conn);
}

static void on_conn_timer(struct env_timer *timer)
{
	struct admin_conn *conn = container_of(timer, struct admin_conn, timer);

	/* A request that runs has its own limits; its peer only has to read. */
	if (conn->req != NULL && conn->writes == 0)
		return;
	if (--conn->parts > 0)
		env_timer_start(conn->admin->node->env, timer, conn->part_ns);
	else if (conn->naming)
		conn_named(conn);
	else
		conn_close(conn);
}

static void who_work(struct env_work *work)
{
	struct admin_conn *conn = container_of(work, struct admin_conn, work);

	admin__username(conn->uid, NAMED_NS, conn->named);
}

static void who_done(struct env_work *work)
{
	struct admin_conn *conn = container_of(work, struct admin_conn, work);

	conn->working = false;
	conn->admin->naming--;
	if (conn->closed) {
		conn_free(conn);
	} else if (!conn->closing && conn->naming) {
		if (conn->named[0] != '\0')
			strcpy(conn->who, conn->named);
		conn_named(conn);
	}
}

/* A name service that hangs costs the peers their names, and the node no worker. */
static void conn_start(struct admin_conn *conn)
{
	struct admin *admin = conn->admin;

	if (conn->uid == 0)
		strcpy(conn->who, "root");
	else
		snprintf(conn->who, sizeof(conn->who), "uid %u",
			 (unsigned)conn->uid);
	if (conn->uid == 0 || admin->naming == NAMING_MAX) {
		conn_read(conn);
		return;
	}
	admin->naming++;
	conn->naming = conn->working = true;
	conn_limit(conn, NAMED_NS);
	conn->work.work = who_work;
	conn->work.done = who_done;
	env_work(admin->node->env, NULL, &conn->work);
}

/* ---- more than are taken ---- */

/*
 * Those that end of themselves in this turn of the loop are gone already; who was
 * turned away takes no place while he reads it.
 */
static unsigned conns_held(const struct admin *admin)
{
	const struct admin_conn *conn;
	unsigned n = 0;

	TAILQ_FOREACH (conn, &admin->conns, link)
		n += !conn->turned_away && (!conn->closing || conn->working);
	return n;
}

/* Its peer asks nothing, also nothing that lies there to be read. */
static bool conn_is_idle(const struct admin_conn *conn)
{
	uv_os_fd_t fd;
	int unread;

	return !conn->closing && !conn->working && conn->req == NULL &&
	       conn->writes == 0 &&
	       uv_fileno((const uv_handle_t *)&conn->pipe, &fd) == 0 &&
	       ioctl(fd, FIONREAD, &unread) == 0 && unread == 0;
}

/* Who asks nothing for longest; else who does not go on with what he asks. */
static struct admin_conn *conn_idle_oldest(const struct admin *admin)
{
	struct admin_conn *conn, *half = NULL;

	TAILQ_FOREACH (conn, &admin->conns, link) {
		if (!conn_is_idle(conn))
			continue;
		if (conn->have == 0)
			return conn;
		if (half == NULL)
			half = conn;
	}
	return half;
}

size_t admin__refusal_put(uint8_t out[ADMIN_REFUSAL_MAX], int status,
			  const char *error, const char *fix)
{
	Admin__Response response = ADMIN__RESPONSE__INIT;
	size_t len;

	response.done = true;
	response.status = status;
	response.error = (char *)error;
	response.fix = (char *)fix;
	len = admin__response__get_packed_size(&response);
	assert(FRAME_HEADER + len <= ADMIN_REFUSAL_MAX);
	frame_put(out, (uint32_t)len);
	admin__response__pack(&response, out + FRAME_HEADER);
	return FRAME_HEADER + len;
}

/*
 * What the peer may ask just now is never read, and it is told so: as much as
 * fits without waiting for it.
 */
static void conn_give_way(struct admin_conn *conn)
{
	uint8_t bytes[ADMIN_REFUSAL_MAX];
	size_t len = admin__refusal_put(
		bytes, -EBUSY,
		"others needed this connection to basaltd: nothing was done",
		"Try again.");
	uv_buf_t buf = uv_buf_init((char *)bytes, (unsigned)len);

	uv_try_write((uv_stream_t *)&conn->pipe, &buf, 1);
	conn_close(conn);
}

static void conn_turn_away(struct admin_conn *conn)
{
	conn->turned_away = true;
	conn_protest(conn, -EBUSY,
		     "basaltd is busy with as many commands as it takes at "
		     "once: nothing was done",
		     "Try again in a moment.");
}

/* True: there is room for @uid, maybe made just now. */
static bool conn_room(struct admin *admin, uid_t uid)
{
	unsigned held = conns_held(admin);
	struct admin_conn *idle;
	bool room;

	if (held < CONNS_MAX)
		return true;
	idle = conn_idle_oldest(admin);
	room = idle != NULL || (uid == 0 && held < CONNS_MAX + ROOT_CONNS);
	if (log_allowed(&admin->full_limit, env_now(admin->node->env)))
		log_warn("admin socket: over %u connections, %s", CONNS_MAX,
			 idle != NULL ? "the one idle for longest is closed"
			 : room	      ? "all busy: root has another place"
				      : "all busy: one is turned away");
	if (idle != NULL)
		conn_give_way(idle);
	return room;
}

/* Who the peer is, as the kernel says. */
static int conn_peer(struct admin_conn *conn)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);
	uv_os_fd_t fd;
	int rv = uv_fileno((uv_handle_t *)&conn->pipe, &fd);

	if (rv < 0)
		return rv;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return -errno;
	conn->uid = cred.uid;
	conn->pid = cred.pid;
	return 0;
}

static void conn_take(struct admin *admin, struct admin_conn *conn, int fd)
{
	bool good, room;

	conn->admin = admin;
	conn->timer.cb = on_conn_timer;
	uv_pipe_init(shard_loop(admin->node->env), &conn->pipe, 0);
	conn->pipe.data = conn;
	good = uv_pipe_open(&conn->pipe, fd) == 0;
	if (!good)
		close(fd);
	good = good && conn_peer(conn) == 0;
	room = good && conn_room(admin, conn->uid);
	TAILQ_INSERT_TAIL(&admin->conns, conn, link);
	admin->conns_count++;
	if (!good)
		conn_close(conn);
	else if (room)
		conn_start(conn);
	else
		conn_turn_away(conn);
}

static int on_come(void *arg)
{
	struct admin *admin = arg;
	struct admin_conn *conn = calloc(1, sizeof(*conn));
	int fd = conn != NULL ? admin__socket_accept(admin->socket) : -ENOMEM;

	if (fd >= 0)
		conn_take(admin, conn, fd);
	else
		free(conn);
	return fd;
}

/* ---- opening and closing ---- */

int node__admin_open(struct node *node, struct admin **out, char *why,
		     size_t why_len)
{
	struct admin *admin = calloc(1, sizeof(*admin));
	int rv;

	if (admin == NULL)
		return -ENOMEM;
	admin->node = node;
	TAILQ_INIT(&admin->conns);
	TAILQ_INIT(&admin->running);
	admin->stuck_timer.cb = on_stuck_timer;
	rv = admin__socket_open(node->env, node->config->run_dir, on_come,
				admin, &admin->socket, why, why_len);
	if (rv < 0) {
		free(admin);
		return rv;
	}
	*out = admin;
	return 0;
}

static void admin_close_go_on(struct admin *admin)
{
	struct admin_conn *conn, *next;

	if (!TAILQ_EMPTY(&admin->running))
		return; /* each calls again when it ends */
	TAILQ_FOREACH_SAFE (conn, &admin->conns, link, next)
		if (conn->writes == 0) /* others first read their answer */
			conn_close(conn);
	if (admin->socket != NULL || admin->conns_count > 0)
		return;
	void (*cb)(void *arg) = admin->cb;
	void *arg = admin->arg;

	free(admin);
	cb(arg);
}

static void on_socket_closed(void *arg)
{
	struct admin *admin = arg;

	admin->socket = NULL;
	admin_close_go_on(admin);
}

void node__admin_close(struct admin *admin, void (*cb)(void *arg), void *arg)
{
	admin->closing = true;
	admin->cb = cb;
	admin->arg = arg;
	admin__socket_close(admin->socket, on_socket_closed);
}
