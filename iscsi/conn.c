/*
 * conn: one connection: accepted, logged in, and in the end closed.
 *
 * The happy path: iscsi_conn_accept() admits it within the limits, Login PDUs
 * go through login.c, the final one makes a session (session.c), which takes
 * what comes from then on.  A connection ends in iscsi__conn_end(), whatever
 * the reason: its session ends with it, the datamover closes, and the memory goes
 * when neither the datamover nor task management refers to it any more.
 */
#define LOG_ROOM LOG_ISCSI
#include "iscsi/iscsi_int.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>

/* ---- replies ---- */

/* Who need not prove a thing has no memory kept for what it does not fetch. */
static bool too_much(const struct iscsi_conn *conn, size_t len)
{
	return conn->session != NULL && conn->session->discovery &&
	       conn->reply_bytes > 0 &&
	       conn->reply_bytes + len > ISCSI_DISCOVERY_BYTES_MAX;
}

/*
 * A PDU of our own with a copy of @len bytes of @data; NULL if memory is out,
 * or this session's share of it, and then the connection has ended.
 */
struct reply *iscsi__reply_new(struct iscsi_conn *conn, uint8_t opcode,
			       uint32_t itt, const void *data, size_t len)
{
	struct reply *reply;

	if (too_much(conn, len)) {
		iscsi__conn_end(conn, "discovery does not fetch its answers");
		return NULL;
	}
	reply = calloc(1, sizeof(*reply) + len);
	if (reply == NULL) {
		iscsi__conn_end(conn, "no memory for an answer");
		return NULL;
	}
	reply->conn = conn;
	reply->send.bhs[0] = opcode;
	reply->send.bhs[1] = ISCSI_FINAL;
	put_be32(reply->send.bhs + 16, itt);
	if (len > 0) {
		if (data != NULL)
			memcpy(reply->data, data, len);
		reply->send.data = reply->data;
		reply->send.data_len = (uint32_t)len;
	}
	TAILQ_INSERT_TAIL(&conn->replies, reply, link);
	conn->replies_count++;
	conn->reply_bytes += len;
	return reply;
}

static void conn_maybe_free(struct iscsi_conn *conn);

static void count_down(unsigned *count)
{
	assert(*count > 0);
	--*count;
}

void iscsi__reply_free(struct reply *reply)
{
	struct iscsi_conn *conn = reply->conn;

	TAILQ_REMOVE(&conn->replies, reply, link);
	assert(conn->replies_count > 0);
	conn->replies_count--;
	conn->reply_bytes -= reply->send.data_len;
	if (reply->immediate)
		conn->immediates--;
	if (reply->counted && reply->sending)
		count_down(&conn->session->responding_count);
	else if (reply->counted)
		iscsi__in_flight_less(conn->session);
	free(reply);
	if (conn->state == CONN_MOVE)
		iscsi__conn_leave(conn);
	else
		conn_maybe_free(conn);
}

static void on_reply_sent(struct dm_send *send, int status)
{
	struct reply *reply = container_of(send, struct reply, send);
	struct iscsi_conn *conn = reply->conn;
	bool last = reply->last;

	if (last && iscsi__conn_up(conn)) {
		conn->state = CONN_CLOSING;
		iscsi__conn_end(conn, NULL);
	}
	iscsi__reply_free(reply); /* may free the connection */
}

/*
 * Nothing more is taken.  The last answer may wait behind others: it has a time of
 * its own, not what was left of another.
 */
static void close_behind(struct iscsi_conn *conn)
{
	if (conn->state == CONN_CLOSING)
		return;
	conn->state = CONN_CLOSING;
	env_timer_start(conn->iscsi->env, &conn->timer,
			conn->iscsi->config.login_ms * MSEC);
}

/* Queue it; from here on its place in the StatSN order is fixed. */
void iscsi__reply_send(struct reply *reply)
{
	struct iscsi_conn *conn = reply->conn;

	assert(!reply->sending);
	if (!iscsi__conn_up(conn)) {
		iscsi__reply_free(reply);
		return;
	}
	reply->sending = true;
	if (reply->counted) {
		/* Answered: what leaves with it must not close the window. */
		iscsi__in_flight_less(conn->session);
		conn->session->responding_count++;
	}
	reply->send.cb = on_reply_sent;
	put_be32(reply->send.bhs + 24, conn->statsn);
	if (!reply->no_statsn)
		conn->statsn++;
	if (reply->last)
		close_behind(conn);
	conn->dm->ops->send_control(conn->dm, &reply->send);
}

/* One more; a few over a connection's life are no reason to end it. */
static bool too_many(struct tally *tally, unsigned max, uint64_t now)
{
	if (now - tally->since_ns >= ISCSI_TALLY_SECONDS * SEC) {
		tally->since_ns = now;
		tally->count = 0;
	}
	return ++tally->count > max;
}

/* Reject the PDU whose header is at @bhs (11.17). */
void iscsi__reject(struct iscsi_conn *conn, const uint8_t *bhs,
		   enum iscsi_reject reason)
{
	struct reply *reply;

	if (!iscsi__conn_up(conn))
		return;
	if (too_many(&conn->rejects, ISCSI_REJECTS_MAX,
		     env_now(conn->iscsi->env))) {
		iscsi__conn_end(conn, "too many bad PDUs");
		return;
	}
	counter_add(&iscsi__rejects, 1);
	reply = iscsi__reply_new(conn, ISCSI_OP_REJECT, ISCSI_NO_TAG, bhs,
				 ISCSI_BHS_LEN);
	if (reply == NULL)
		return;
	reply->send.bhs[2] = (uint8_t)reason;
	reply->last = reason == REJECT_DATA_DIGEST;
	iscsi__reply_send(reply);
}

/*
 * What lies outside of the window and the like is ignored silently (4.2.2.1).
 * TCP holds up whom it concerns alone; over RDMA each took one of the receives
 * that all connections share.
 */
void iscsi__conn_ignored(struct iscsi_conn *conn)
{
	if (conn->dm->ops->rdma && too_many(&conn->ignored, ISCSI_IGNORED_MAX,
					    env_now(conn->iscsi->env)))
		iscsi__conn_end(conn, "too many PDUs that are to be ignored");
}

/* ---- the end ---- */

void iscsi__conn_name(const struct iscsi_conn *conn, char *buf, size_t room)
{
	const struct iscsi_session *s = conn->session;
	char peer[INET6_ADDRSTRLEN + 16] = "?";

	if (conn->dm != NULL)
		iscsi__portal_text(NULL, &conn->dm->peer, peer, sizeof(peer));
	snprintf(buf, room, "%s (%s)",
		 s != NULL	       ? s->initiator
		 : conn->login != NULL ? conn->login->initiator
				       : "",
		 peer);
}

static void conn_maybe_free(struct iscsi_conn *conn)
{
	struct iscsi *iscsi = conn->iscsi;

	if (conn->dm != NULL || conn->replies_count > 0)
		return;
	if (conn->session != NULL) {
		conn->session->conn = NULL;
		iscsi__session_kick(conn->session);
	}
	TAILQ_REMOVE(&iscsi->conns, conn, link);
	iscsi->conns_count--;
	counter_add(&iscsi__conns, UINT64_MAX); /* one less */
	if (iscsi__is_front(iscsi)) {
		iscsi__portal_put(conn->portal);
		free(conn);
	} else {
		iscsi__conn_return(conn);
	}
	iscsi__maybe_closed(iscsi);
}

/* Close the transport; tasks and the session are the caller's matter. */
void iscsi__conn_terminate(struct iscsi_conn *conn)
{
	struct reply *reply, *next;

	if (!iscsi__conn_up(conn))
		return;
	conn->state = CONN_TERMINATED;
	env_timer_stop(conn->iscsi->env, &conn->timer);
	iscsi__login_free(conn->login);
	conn->login = NULL;
	iscsi__text_reset(&conn->text);
	sgl_put(conn->landing_held);
	conn->landing_held = NULL;
	if (conn->landing != NULL)
		iscsi__task_landed(conn->landing);
	/* A logout that waits for its tasks has nobody to tell. */
	for (reply = TAILQ_FIRST(&conn->replies); reply != NULL; reply = next) {
		next = TAILQ_NEXT(reply, link);
		if (!reply->sending && !reply->tmf_pending)
			iscsi__reply_free(reply);
	}
	conn->dm->ops->terminate(conn->dm);
}

/* End it, and its session with it.  @why NULL: as agreed with the peer. */
void iscsi__conn_end(struct iscsi_conn *conn, const char *why)
{
	char name[ISCSI_NAME_MAX + 80];

	if (!iscsi__conn_up(conn))
		return;
	if (why != NULL) {
		counter_add(&iscsi__conns_lost, 1);
		/* Of another session the log has its end. */
		if ((conn->session == NULL || conn->session->discovery) &&
		    log_allowed(&conn->iscsi->limit,
				env_now(conn->iscsi->env))) {
			iscsi__conn_name(conn, name, sizeof(name));
			log_info("%s: connection closed: %s", name, why);
		}
	}
	if (conn->session != NULL)
		iscsi__session_end(conn->session, why);
	else
		iscsi__conn_terminate(conn);
}

/* ---- login ---- */

static void login_answer(struct iscsi_conn *conn, const struct login_answer *a,
			 uint16_t tsih, bool enable)
{
	struct login *l = conn->login;
	struct reply *reply;

	reply = iscsi__reply_new(conn, ISCSI_OP_LOGIN_RSP, l->itt, l->answer,
				 a->text_len);
	if (reply == NULL)
		return;
	reply->send.bhs[1] = a->flags;
	memcpy(reply->send.bhs + 8, l->isid, 6);
	put_be16(reply->send.bhs + 14, tsih);
	reply->send.bhs[36] = a->status_class;
	reply->send.bhs[37] = a->status_detail;
	if (a->status_class != 0) {
		iscsi__refused_login(conn, (unsigned)a->status_class << 8 |
						   a->status_detail);
		reply->last = true;
		if (log_allowed(&conn->iscsi->limit,
				env_now(conn->iscsi->env))) {
			char name[ISCSI_NAME_MAX + 80];

			iscsi__conn_name(conn, name, sizeof(name));
			log_info("%s: login to %s refused: %02x%02x", name,
				 l->target_name[0] ? l->target_name
						   : "(nothing)",
				 a->status_class, a->status_detail);
		}
	}
	if (!enable) {
		iscsi__reply_send(reply);
		return;
	}
	reply->sending = true;
	reply->send.cb = on_reply_sent;
	put_be32(reply->send.bhs + 24, conn->statsn++);
	conn->dm->ops->enable(conn->dm, &reply->send);
}

static void login_refuse(struct iscsi_conn *conn, unsigned status)
{
	struct login_answer a = {
		.status_class = (uint8_t)(status >> 8),
		.status_detail = (uint8_t)status,
	};

	login_answer(conn, &a, conn->login->tsih, false);
}

/* What there is too little of is another thing for who looks after it. */
static void login_refuse_lacking(struct iscsi_conn *conn, int lacks)
{
	conn->login->lacks = lacks;
	login_refuse(conn, 0x0302);
}

static bool same_nexus(const struct iscsi_conn *a, const struct iscsi_conn *b)
{
	const struct login *x = a->login, *y = b->login;

	return x != NULL && y != NULL && !x->discovery && !y->discovery &&
	       a->portal->tpgt == b->portal->tpgt &&
	       memcmp(x->isid, y->isid, 6) == 0 &&
	       strcmp(x->initiator, y->initiator) == 0 &&
	       strcmp(x->target_name, y->target_name) == 0;
}

static bool another_waits(struct iscsi_conn *conn)
{
	struct iscsi_conn *other;

	TAILQ_FOREACH (other, &conn->iscsi->conns, link)
		if (other != conn && other->state == CONN_WAIT &&
		    same_nexus(conn, other))
			return true;
	return false;
}

/* Into full feature phase: the older session, if there was one, is gone. */
static void login_complete(struct iscsi_conn *conn)
{
	struct login *l = conn->login;
	struct login_answer a = { .flags = l->final_flags,
				  .final = true,
				  .text_len = l->final_len };
	struct dm_keys keys;
	uint16_t tsih;
	int rv;

	rv = iscsi__session_open(conn, l->tsih);
	if (rv == -ENOENT && !iscsi__is_front(conn->iscsi))
		rv = -EAGAIN; /* it was here a moment ago */
	if (rv == -ENOMEM) {
		login_refuse_lacking(conn, rv);
		return;
	}
	if (rv < 0) {
		login_refuse(conn, rv == -ENOENT   ? 0x0203
				   : rv == -EAGAIN ? 0x0301
				   : rv == -EACCES ? 0x0202
						   : 0x0201);
		return;
	}
	iscsi__dm_keys(conn, &conn->session->keys, &keys);
	rv = conn->dm->ops->notice_keys(conn->dm, &keys);
	if (!iscsi__conn_up(conn)) /* it was lost over that */
		return;
	if (rv < 0) {
		login_refuse_lacking(conn, rv);
		return;
	}
	tsih = conn->session->tsih;
	conn->state = CONN_FULL;
	login_answer(conn, &a, tsih, true);
	if (!iscsi__conn_up(conn))
		return;
	iscsi__login_free(l);
	conn->login = NULL;
	counter_add(&iscsi__logins, 1);
	conn->heard_ns = env_now(conn->iscsi->env);
	iscsi__session_idle(conn);
}

/* Discovery needs no secret: the oldest makes room for whoever comes. */
static bool discovery_end(struct iscsi *iscsi)
{
	struct iscsi_session *s;

	TAILQ_FOREACH (s, &iscsi->sessions, link)
		if (s->discovery && !s->ending) {
			iscsi__session_end(s, "too many sessions");
			return true;
		}
	return false;
}

static bool same_source(const struct sockaddr_storage *a,
			const struct sockaddr_storage *b)
{
	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET6)
		return memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
			      &((const struct sockaddr_in6 *)b)->sin6_addr,
			      16) == 0;
	return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
	       ((const struct sockaddr_in *)b)->sin_addr.s_addr;
}

/* By its name or its address: who takes another of one keeps the other. */
static bool same_initiator(const struct iscsi_conn *conn, const char *name,
			   const struct sockaddr_storage *peer)
{
	return strcmp(conn->login->initiator, name) == 0 ||
	       same_source(&conn->dm->peer, peer);
}

/* Sessions that the initiator on @conn has, or is to have in a moment. */
static unsigned sessions_of(const struct iscsi_conn *conn)
{
	const struct session_entry *e;
	const struct iscsi_conn *other;
	unsigned n = 0;

	TAILQ_FOREACH (e, &conn->iscsi->entries, link)
		n += !e->discovery &&
		     same_initiator(conn, e->initiator, &e->peer);
	TAILQ_FOREACH (other, &conn->iscsi->conns, link)
		n += other->state == CONN_MOVE &&
		     same_initiator(conn, other->login->initiator,
				    &other->dm->peer);
	return n;
}

/*
 * In the front: is there room for one more session, of any shard?  An initiator
 * has as many as are left to all others, or what a host wants in any case: one
 * that is broken, or means ill, does not keep the others out.
 */
static bool room_make(const struct iscsi_conn *conn)
{
	struct iscsi *front = conn->iscsi;
	unsigned n = front->sessions_count + front->guests_count;
	unsigned max = front->config.sessions_max;
	const struct iscsi_conn *other;

	TAILQ_FOREACH (other, &front->conns, link)
		n += other->state == CONN_MOVE;
	if (!conn->login->discovery &&
	    sessions_of(conn) >=
		    MAX(max - MIN(n, max), ISCSI_INITIATOR_SESSIONS))
		return false;
	return n < max || discovery_end(front);
}

/*
 * The front's part: refused, or on its way to the shard that its target has as
 * home.  False: it stays, and goes on.
 */
static bool login_elsewhere(struct iscsi_conn *conn)
{
	struct iscsi_target *t =
		iscsi__target_find(conn->iscsi, conn->login->target_name);

	if (t == NULL)
		return false;
	if (iscsi__target_moves(t)) {
		login_refuse(conn, 0x0301);
		return true;
	}
	if (t->home == 0)
		return false;
	if (iscsi__entry_of(conn) != NULL || room_make(conn))
		iscsi__conn_leave(conn);
	else
		login_refuse_lacking(conn, -EBUSY);
	return true;
}

/*
 * The peer has proved who it is and asks for full feature phase: now, and not
 * before, an older session of the same nexus may be thrown out (6.3.5).
 */
static void login_here(struct iscsi_conn *conn)
{
	struct login *l = conn->login;
	struct iscsi_session *old = NULL;

	if (!l->discovery)
		old = iscsi__session_find(conn->iscsi, conn);
	if (l->tsih != 0 && (old == NULL || old->tsih != l->tsih)) {
		login_refuse(conn, 0x020a);
		return;
	}
	if (l->tsih != 0 && old->cid != l->cid) {
		login_refuse(conn, 0x0206); /* MaxConnections is 1 */
		return;
	}
	if (old == NULL && !another_waits(conn)) {
		/* The front has made room for who went to a share. */
		if (iscsi__is_front(conn->iscsi) && !room_make(conn))
			login_refuse_lacking(conn, -EBUSY);
		else
			login_complete(conn);
		return;
	}
	if (another_waits(conn)) { /* one at a time: come again */
		login_refuse(conn, 0x0301);
		return;
	}
	conn->state = CONN_WAIT;
	conn->reinstates = true;
	iscsi__session_end(old, "session reinstatement");
}

void iscsi__conn_login_final(struct iscsi_conn *conn)
{
	if (conn->iscsi->closing)
		login_refuse(conn, 0x0301);
	else if (conn->login->discovery || !iscsi__is_front(conn->iscsi) ||
		 !login_elsewhere(conn))
		login_here(conn);
}

/* A session is gone: whoever waited for that goes on. */
void iscsi__conn_go_on(struct iscsi *iscsi)
{
	struct iscsi_conn *conn;

again:
	TAILQ_FOREACH (conn, &iscsi->conns, link) {
		if (conn->state != CONN_WAIT ||
		    iscsi__session_find(iscsi, conn) != NULL)
			continue;
		conn->state = CONN_LOGIN;
		if (iscsi->closing)
			login_refuse(conn, 0x0301);
		else
			login_complete(conn);
		goto again;
	}
}

static void login_pdu(struct iscsi_conn *conn, const struct dm_pdu *pdu)
{
	struct login_answer a;

	if (pdu->bhs[0] != (ISCSI_IMMEDIATE | ISCSI_OP_LOGIN)) {
		if (conn->login->pdus > 0)
			login_refuse(conn, 0x020b);
		else
			iscsi__conn_end(conn, "no login came first");
		return;
	}
	iscsi__login_request(conn->login, pdu->bhs, pdu->data, pdu->data_len,
			     &a);
	if (a.status_class == 0 && a.final)
		iscsi__conn_login_final(conn);
	else
		login_answer(conn, &a, conn->login->tsih, false);
}

/* ---- calls from the datamover ---- */

static void on_timer(struct env_timer *timer)
{
	struct iscsi_conn *conn = container_of(timer, struct iscsi_conn, timer);

	switch (conn->state) {
	case CONN_FULL:
		iscsi__session_idle(conn);
		break;
	case CONN_WAIT: /* that is not the initiator's doing */
		iscsi__conn_end(conn, "its older session waits for storage");
		break;
	case CONN_CLOSING:
		iscsi__conn_end(conn, "the last answer was not fetched");
		break;
	default:
		iscsi__conn_end(conn, "the login takes too long");
		break;
	}
}

/* It has not logged in yet, or needs no secret for what it does. */
static bool proves_nothing(const struct iscsi_conn *conn)
{
	return conn->login != NULL ||
	       (conn->session != NULL && conn->session->discovery);
}

/* It is the initiator who has to say something, and it does not. */
static bool silent(const struct iscsi_conn *conn)
{
	return conn->state != CONN_MOVE && conn->state != CONN_WAIT &&
	       env_now(conn->iscsi->env) - conn->heard_ns >=
		       ISCSI_SILENT_SECONDS * SEC;
}

/*
 * Those from the address of @dm that prove nothing.  Many hosts may share it: of
 * more than there may be the one that is silent for longest makes room, so that
 * one of these hosts does not keep out the others.
 */
static unsigned half_open(struct iscsi *iscsi, const struct dm_conn *dm)
{
	struct iscsi_conn *conn, *oldest = NULL;
	unsigned n = 0;

	TAILQ_FOREACH (conn, &iscsi->conns, link) {
		if (!iscsi__conn_up(conn) || !proves_nothing(conn) ||
		    !same_source(&conn->dm->peer, &dm->peer))
			continue;
		n++;
		if (silent(conn) &&
		    (oldest == NULL || conn->heard_ns < oldest->heard_ns))
			oldest = conn;
	}
	if (n < iscsi->config.logins_per_source || oldest == NULL)
		return n;
	iscsi__conn_end(oldest, "silent, and another comes from its address");
	return n - 1;
}

struct iscsi_conn *iscsi_conn_accept(struct iscsi *iscsi, struct dm_conn *dm,
				     unsigned portal)
{
	struct iscsi_portal *p = iscsi__portal_find(iscsi, portal);
	struct iscsi_conn *conn;
	unsigned logins;

	if (p == NULL || iscsi->closing)
		return NULL;
	logins = half_open(iscsi, dm);
	if (iscsi->conns_count + iscsi->away_count >=
		    iscsi->config.connections_max ||
	    logins >= iscsi->config.logins_per_source) {
		iscsi__refused_conn(iscsi);
		if (log_allowed(&iscsi->limit, env_now(iscsi->env)))
			log_warn("portal %s: a connection refused: %u open, "
				 "%u logins from its address",
				 p->name,
				 iscsi->conns_count + iscsi->away_count,
				 logins);
		return NULL;
	}
	conn = calloc(1, sizeof(*conn));
	if (conn == NULL)
		return NULL;
	conn->login = iscsi__login_new(iscsi, p, dm->ops->rdma);
	if (conn->login == NULL) {
		free(conn);
		return NULL;
	}
	conn->login->no_immediate = dm->no_immediate;
	conn->iscsi = iscsi;
	conn->dm = dm;
	conn->portal = p;
	p->conns++;
	conn->statsn = 1;
	conn->timer.cb = on_timer;
	TAILQ_INIT(&conn->replies);
	TAILQ_INSERT_TAIL(&iscsi->conns, conn, link);
	iscsi->conns_count++;
	counter_add(&iscsi__conns, 1);
	conn->heard_ns = env_now(iscsi->env);
	conn->login_due_ns = conn->heard_ns + iscsi->config.login_ms * MSEC;
	iscsi__conn_timer_start(conn);
	return conn;
}

/* From accept to full feature phase; progress does not restart it. */
void iscsi__conn_timer_start(struct iscsi_conn *conn)
{
	struct env *env = conn->iscsi->env;
	uint64_t now = env_now(env);

	env_timer_start(env, &conn->timer,
			conn->login_due_ns > now ? conn->login_due_ns - now
						 : MSEC);
}

static struct sgl *up_land(struct iscsi_conn *conn, const struct dm_pdu *pdu,
			   size_t *sgl_offset)
{
	if (conn->state != CONN_FULL)
		return NULL;
	return iscsi__session_land(conn, pdu, sgl_offset);
}

static void up_stamp(struct iscsi_conn *conn, uint8_t *bhs)
{
	struct iscsi_session *s = conn->session;
	uint32_t exp = conn->login != NULL ? conn->login->cmdsn : 0, max = exp;

	if (s != NULL) {
		iscsi__session_max_cmdsn(s);
		exp = s->exp_cmdsn;
		max = s->max_cmdsn;
	}
	if ((bhs[0] & ISCSI_OP_MASK) == ISCSI_OP_R2T)
		put_be32(bhs + 24, conn->statsn);
	put_be32(bhs + 28, exp);
	put_be32(bhs + 32, max);
}

static void up_control(struct iscsi_conn *conn, const struct dm_pdu *pdu)
{
	conn->heard_ns = env_now(conn->iscsi->env);
	conn->ping_out = false; /* whatever it says, it is there */
	switch (conn->state) {
	case CONN_LOGIN:
		login_pdu(conn, pdu);
		break;
	case CONN_MOVE:
	case CONN_WAIT:
		iscsi__conn_end(conn, "a PDU before the login's answer");
		break;
	case CONN_FULL:
		iscsi__session_control(conn, pdu);
		break;
	case CONN_CLOSING:
		iscsi__conn_ignored(conn);
		break;
	case CONN_TERMINATED:
		break;
	}
}

static void up_lost(struct iscsi_conn *conn, int status, const char *why)
{
	iscsi__conn_end(conn, why);
}

static void up_closed(struct iscsi_conn *conn)
{
	conn->dm = NULL;
	conn_maybe_free(conn);
}

const struct dm_up iscsi_dm_up = {
	.land = up_land,
	.stamp = up_stamp,
	.control = up_control,
	.lost = up_lost,
	.detached = iscsi__conn_detached,
	.closed = up_closed,
};
