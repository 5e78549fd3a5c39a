/*
 * session: full feature phase (RFC 7143 section 4.2): numbering, what each PDU
 * does, and how a session begins and ends.
 *
 * A PDU with a CmdSN is executed when its turn comes: outside of the window it
 * is ignored, before its turn it is held.  The window is the back-pressure: it
 * begins small, widens with the commands that find memory, is halved where one
 * does not, and is smaller while the objects below are congested.
 *
 * A session ends with its connection.  Its tasks are aborted, and only when
 * none of them touches storage any more is the nexus closed and the memory
 * freed; a login that reinstates it waits for that.
 */
#define LOG_ROOM LOG_ISCSI
#include "iscsi/iscsi_int.h"

#include <stdio.h>

/*
 * Lines about sessions coming and going: an initiator may do that as often as
 * it likes, the log gets the first few of a second.
 */
static bool log_session(struct iscsi *iscsi)
{
	uint64_t second = env_now(iscsi->env) / SEC;

	if (iscsi->log_second != second) {
		iscsi->log_second = second;
		iscsi->log_lines = 0;
	}
	return iscsi->log_lines++ < 32;
}

/* ---- begin ---- */

static bool session_matches(const struct iscsi_session *s,
			    const struct login *l, uint16_t tpgt)
{
	return !s->discovery && s->tpgt == tpgt &&
	       memcmp(s->isid, l->isid, 6) == 0 &&
	       strcmp(s->initiator, l->initiator) == 0 &&
	       strcmp(s->target->iqn, l->target_name) == 0;
}

/* The session that the login on @conn would reinstate, ending or not. */
struct iscsi_session *iscsi__session_find(struct iscsi *iscsi,
					  const struct iscsi_conn *conn)
{
	struct iscsi_session *s;

	TAILQ_FOREACH (s, &iscsi->sessions, link)
		if (session_matches(s, conn->login, conn->portal->tpgt))
			return s;
	return NULL;
}

static uint16_t tsih_new(struct iscsi *iscsi)
{
	struct iscsi_session *s;

	/* Counting up keeps an old one from coming back soon. */
	do {
		if (++iscsi->tsih_last == 0)
			iscsi->tsih_last = 1;
		TAILQ_FOREACH (s, &iscsi->sessions, link)
			if (s->tsih == iscsi->tsih_last)
				break;
	} while (s != NULL);
	return iscsi->tsih_last;
}

static void nexus_names(struct iscsi_session *s, unsigned portal)
{
	struct scsi_nexus *n = &s->nexus;
	const uint8_t *i = s->isid;

	snprintf(n->dom.initiator_port, sizeof(n->dom.initiator_port),
		 "%s,i,0x%02x%02x%02x%02x%02x%02x", s->initiator, i[0], i[1],
		 i[2], i[3], i[4], i[5]);
	snprintf(n->target_port_name, sizeof(n->target_port_name),
		 "%s,t,0x%04x", s->target->iqn, s->tpgt);
	n->dom.target_port = (uint16_t)portal;
	n->target = s->target->scsi;
	n->queries = s->keys.protocol_level >= 2;
}

static void on_turn(struct env_task *task);
static void on_data_timer(struct env_timer *timer);
static void on_pages(struct page_waiter *waiter);

/*
 * Commands that it may have outstanding at most.  Discovery asks one thing after the
 * other and needs no secret: little memory waits for it.
 */
static unsigned window_of(const struct iscsi_session *s)
{
	unsigned window = s->iscsi->config.window;
	uint32_t room = s->conn->dm->ops->window_max;

	if (s->discovery)
		window = MIN(window, ISCSI_DISCOVERY_WINDOW);
	return room != 0 ? MIN(window, room) : window;
}

size_t iscsi__unasked_pages(const struct iscsi *iscsi)
{
	return pages_most(iscsi->env->pages, PAGE_FRONT) / ISCSI_UNASKED_PART;
}

/*
 * What is granted is not taken back, and many may begin at the same time: after a
 * node failed all its hosts come.  So each begins with less than the one before,
 * and what all may bring unasked finds memory; the window widens fast.
 */
static unsigned window_begin(const struct iscsi_session *s)
{
	const struct iscsi *iscsi = s->iscsi;
	size_t others = (size_t)iscsi->sessions_count * iscsi->front->shards;
	size_t bytes = iscsi__unasked_pages(iscsi) * PAGE_BYTES;
	size_t fit = bytes / ISCSI_BEGIN_PART / (others + 1);

	return (unsigned)MIN(DIV_UP(s->window, ISCSI_WINDOW_BEGIN),
			     MAX(fit / s->keys.first_burst, 1u));
}

/* Memory for what @conn's login agreed upon, in nobody's list yet. */
static struct iscsi_session *session_new(struct iscsi_conn *conn, uint16_t tsih)
{
	const struct login *l = conn->login;
	struct iscsi_session *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return NULL;
	s->iscsi = conn->iscsi;
	s->conn = conn;
	s->discovery = l->discovery;
	memcpy(s->initiator, l->initiator, sizeof(s->initiator));
	memcpy(s->alias, l->alias, sizeof(s->alias));
	memcpy(s->isid, l->isid, sizeof(s->isid));
	s->tsih = tsih != 0 ? tsih : tsih_new(conn->iscsi);
	s->cid = l->cid;
	s->tpgt = conn->portal->tpgt;
	s->keys = l->keys;
	s->exp_cmdsn = l->cmdsn;
	s->max_cmdsn = s->most_cmdsn = s->exp_cmdsn - 1;
	s->window_max = s->window = window_of(s);
	if (!s->discovery)
		s->window = window_begin(s);
	TAILQ_INIT(&s->held);
	TAILQ_INIT(&s->tasks);
	TAILQ_INIT(&s->parked);
	SLIST_INIT(&s->pool);
	for (unsigned i = 0; i < ISCSI_ITT_BUCKETS; i++)
		LIST_INIT(&s->buckets[i]);
	s->turn.cb = on_turn;
	s->data_timer.cb = on_data_timer;
	s->pages.cb = on_pages;
	return s;
}

/*
 * A session for the login on @conn; @tsih: 0, or the one to go on with.
 * Returns 0, -ENOMEM; -ENOENT, -EACCES, -EPERM, -EAGAIN: meanwhile the target
 * went, or was closed to the initiator, or wants CHAP, or leaves for another
 * shard.
 */
int iscsi__session_open(struct iscsi_conn *conn, uint16_t tsih)
{
	struct iscsi *iscsi = conn->iscsi;
	char name[ISCSI_NAME_MAX + 80];
	struct login *l = conn->login;
	struct iscsi_target *target = NULL;
	struct iscsi_session *s;

	if (!l->discovery) {
		target = iscsi__target_find(iscsi, l->target_name);
		if (target == NULL)
			return -ENOENT;
		/* It may have changed while the login went on. */
		if (!iscsi__target_admits(target, l->initiator))
			return -EACCES;
		if (target->chap.user[0] != '\0' && !l->auth_needed)
			return -EPERM;
		if (iscsi__target_moves(target) || target->scsi == NULL)
			return -EAGAIN;
	}
	s = session_new(conn, tsih);
	if (s == NULL)
		return -ENOMEM;
	s->target = target;
	if (iscsi__entry_open(s, conn) < 0) {
		free(s);
		return -ENOMEM;
	}
	TAILQ_INSERT_TAIL(&iscsi->sessions, s, link);
	iscsi->sessions_count++;
	counter_add(&iscsi__sessions, 1);
	conn->session = s;
	if (target != NULL) {
		target->sessions_count++;
		nexus_names(s, conn->portal->number);
		scsi_nexus_open(target->scsi, &s->nexus, conn->reinstates);
		if (log_session(iscsi)) {
			iscsi__conn_name(conn, name, sizeof(name));
			log_info("session %llu: %s logged in to %s over %s",
				 (unsigned long long)s->id, name, target->iqn,
				 s->entry->transport);
		}
	}
	return 0;
}

void iscsi__dm_keys(const struct iscsi_conn *conn,
		    const struct login_keys *keys, struct dm_keys *out)
{
	*out = (struct dm_keys){
		.header_digest = keys->header_digest,
		.data_digest = keys->data_digest,
		.max_send_data_len = keys->max_send_data,
		.max_recv_data_len = keys->max_recv_data,
		.max_burst = keys->max_burst,
		.first_burst = keys->first_burst,
		.max_outstanding_r2t = (uint16_t)keys->max_outstanding_r2t,
		.initial_r2t = keys->initial_r2t,
		.immediate_data = keys->immediate_data,
		.window = conn->session->window_max,
	};
}

/* ---- end ---- */

static void session_free(struct iscsi_session *s)
{
	struct iscsi *iscsi = s->iscsi;

	/* A task that was queued last turn still finds the session. */
	assert(s->tasks_count == 0 && s->conn == NULL);
	TAILQ_REMOVE(&iscsi->sessions, s, link);
	iscsi->sessions_count--;
	counter_add(&iscsi__sessions, UINT64_MAX); /* one less */
	if (s->target != NULL) {
		s->target->sessions_count--;
		iscsi__target_put(s->target);
	}
	iscsi__task_pool_free(s);
	iscsi__entry_close(s->entry);
	free(s);
	iscsi__conn_go_on(iscsi);
	iscsi__maybe_closed(iscsi);
}

static void on_free(struct env_task *task)
{
	session_free(container_of(task, struct iscsi_session, turn));
}

static void on_nexus_closed(void *arg)
{
	struct iscsi_session *s = arg;

	/* Once more around, as the deferred task may be queued. */
	s->turn.cb = on_free;
	env_defer(s->iscsi->env, &s->turn);
}

static void held_free(struct iscsi_session *s, struct held *held)
{
	TAILQ_REMOVE(&s->held, held, link);
	s->held_count--;
	s->held_bytes -= held->data_len;
	sgl_put(held->sgl);
	free(held);
}

static void log_end(const struct iscsi_session *s, const char *why)
{
	char name[ISCSI_NAME_MAX + 80];

	if (s->discovery || !log_session(s->iscsi))
		return;
	if (s->conn != NULL)
		iscsi__conn_name(s->conn, name, sizeof(name));
	log_info("session %llu: %s ended: %s", (unsigned long long)s->id,
		 s->conn != NULL ? name : s->initiator,
		 why != NULL ? why : "logout");
}

/* Abort what runs, close the connection; the rest follows by itself. */
void iscsi__session_end(struct iscsi_session *s, const char *why)
{
	struct task *task, *next;
	struct held *held, *next_held;

	if (s->ending)
		return;
	s->ending = true;
	atomic_store(&s->entry->ending, true);
	log_end(s, why);
	TAILQ_FOREACH_SAFE (held, &s->held, link, next_held)
		held_free(s, held);
	env_timer_stop(s->iscsi->env, &s->data_timer);
	page_wait_stop(s->iscsi->env->pages, &s->pages);
	for (task = TAILQ_FIRST(&s->tasks); task != NULL; task = next) {
		next = TAILQ_NEXT(task, link);
		iscsi__task_abort(task);
	}
	if (s->conn != NULL)
		iscsi__conn_terminate(s->conn);
	iscsi__session_kick(s);
}

void iscsi__session_kick(struct iscsi_session *s)
{
	if (!s->nexus_closing)
		env_defer(s->iscsi->env, &s->turn);
}

static void on_released(void *arg)
{
	struct iscsi_session *s = arg;

	s->releasing = false;
	iscsi__session_kick(s);
}

/* A task management function that came before waits for tasks of others. */
static bool tmf_waits(const struct iscsi_session *s)
{
	const struct reply *reply;

	TAILQ_FOREACH (reply, &s->conn->replies, link)
		if (reply->tmf_pending)
			return true;
	return false;
}

/*
 * What came before is answered before: the connection closes behind this.  And
 * who is told that it logged out has left nothing behind that bars others.
 */
static void logout_maybe(struct iscsi_session *s)
{
	struct reply *logout = s->logout;

	if (logout == NULL || s->tasks_count > 0 || s->releasing ||
	    tmf_waits(s))
		return;
	if (!s->discovery && !s->released) {
		s->released = s->releasing = true;
		scsi_nexus_release(&s->nexus, on_released, s);
		return;
	}
	s->logout = NULL;
	iscsi__reply_send(logout);
}

static void on_turn(struct env_task *task)
{
	struct iscsi_session *s =
		container_of(task, struct iscsi_session, turn);

	if (s->nexus_closing)
		return;
	if (!s->ending) {
		iscsi__tasks_unpark(s);
		iscsi__tmf_check(s);
		if (!s->ending)
			logout_maybe(s);
		return;
	}
	iscsi__tmf_check(s);
	if (s->tasks_count > 0 || s->conn != NULL || s->releasing)
		return;
	s->nexus_closing = true;
	if (s->discovery)
		on_nexus_closed(s);
	else
		scsi_nexus_close(&s->nexus, on_nexus_closed, s);
}

static void on_pages(struct page_waiter *waiter)
{
	struct iscsi_session *s =
		container_of(waiter, struct iscsi_session, pages);
	struct dm_conn *dm = s->conn->dm;

	if (dm->later)
		dm->ops->land_again(dm);
	else if (!s->ending)
		iscsi__tasks_unpark(s);
}

/* ---- timers ---- */

static void data_timer_set(struct iscsi_session *s, uint64_t due)
{
	s->data_timer_on = true;
	s->data_due_ns = due;
	env_timer_start(s->iscsi->env, &s->data_timer,
			due - env_now(s->iscsi->env));
}

/*
 * A part of a burst is a word of it, too: a burst may take a while, and a ping of
 * ours waits behind what a read returns.
 */
static void heard(struct iscsi_conn *conn)
{
	if (conn->dm->part_ns <= conn->heard_ns)
		return;
	conn->heard_ns = conn->dm->part_ns;
	conn->ping_out = false;
}

/* When what it waits for, data or memory, is overdue. */
static uint64_t late_ns(const struct task *task)
{
	const struct iscsi_conn *conn = task->session->conn;
	uint64_t since = task->since_ns, due;
	unsigned seconds;

	if (task->session->logout != NULL)
		return task->session->logout_due_ns;
	if (task->parked)
		return since + iscsi__task_parked_seconds(task) * SEC;
	seconds = iscsi__task_data_seconds(task);
	due = since + ISCSI_DATA_SECONDS * SEC;
	if (seconds == ISCSI_DATA_SECONDS)
		return due;
	/* A link that is slow is heard of; one that hangs is not. */
	since = MAX(since, conn->heard_ns);
	due = MIN(due, since + seconds * SEC);
	/* And one that brings a byte a minute holds others up as one that hangs. */
	seconds = ISCSI_DATA_SECONDS + task->write_len / ISCSI_BARRIER_RATE;
	return MIN(due, task->cmd.since_ns + seconds * SEC);
}

/*
 * A logout ends all commands (RFC 7143 11.14).  What can be finished is, but Linux
 * sends no more data behind one, and waits for the answer 15 seconds.
 */
static void logout_aborts(struct iscsi_session *s)
{
	struct task *task, *next;

	for (task = TAILQ_FIRST(&s->tasks); task != NULL; task = next) {
		next = TAILQ_NEXT(task, link);
		if (iscsi__task_waits(task))
			iscsi__task_abort(task);
	}
}

/*
 * Data-Out, missing CmdSNs, and memory for a command are waited for, but not for
 * ever.
 */
static void on_data_timer(struct env_timer *timer)
{
	struct iscsi_session *s =
		container_of(timer, struct iscsi_session, data_timer);
	uint64_t now = env_now(s->iscsi->env), due = UINT64_MAX;
	struct task *task;

	s->data_timer_on = false;
	if (s->ending)
		return;
	iscsi__tasks_expire(s);
	if (s->ending)
		return;
	heard(s->conn);
	if (s->logout != NULL && now >= s->logout_due_ns)
		logout_aborts(s);
	TAILQ_FOREACH (task, &s->tasks, link)
		if (iscsi__task_waits(task))
			due = MIN(due, late_ns(task));
	if (!TAILQ_EMPTY(&s->held))
		due = MIN(due, s->held_since_ns + ISCSI_DATA_SECONDS * SEC);
	if (due <= now)
		iscsi__conn_end(s->conn, "data of a command never came");
	else if (due != UINT64_MAX)
		data_timer_set(s, MIN(due,
				      now + ISCSI_BARRIER_DATA_SECONDS * SEC));
}

void iscsi__session_data_timer(struct iscsi_session *s, unsigned seconds)
{
	uint64_t due = env_now(s->iscsi->env) + seconds * SEC;

	if (!s->ending && (!s->data_timer_on || s->data_due_ns > due))
		data_timer_set(s, due);
}

/* Whatever it does, it ends after a while. */
static void discovery_timer(struct iscsi_conn *conn, uint64_t idle_ns,
			    uint64_t idle_max_ns)
{
	struct env *env = conn->iscsi->env;
	uint64_t age_max_ns = ISCSI_DISCOVERY_SECONDS * SEC;
	uint64_t age_ns = env_now(env) - conn->session->entry->since_ns;

	if (idle_ns + MSEC >= idle_max_ns)
		iscsi__conn_end(conn, "idle discovery");
	else if (age_ns + MSEC >= age_max_ns)
		iscsi__conn_end(conn, "discovery takes too long");
	else
		env_timer_start(env, &conn->timer,
				MIN(idle_max_ns - idle_ns,
				    age_max_ns - age_ns));
}

/* Nothing was heard for a while: ask (11.19), and hang up without an answer. */
void iscsi__session_idle(struct iscsi_conn *conn)
{
	struct iscsi *iscsi = conn->iscsi;
	uint64_t ping_ns = iscsi->config.ping_ms * MSEC, idle;
	struct reply *ping;

	heard(conn);
	idle = env_now(iscsi->env) - conn->heard_ns;
	if (conn->session->discovery) {
		discovery_timer(conn, idle, ping_ns);
		return;
	}
	if (idle + MSEC >= ping_ns) {
		if (conn->ping_out) {
			iscsi__conn_end(conn, "no answer to a ping");
			return;
		}
		ping = iscsi__reply_new(conn, ISCSI_OP_NOP_IN, ISCSI_NO_TAG,
					NULL, 0);
		if (ping == NULL)
			return;
		if (++iscsi->ttt_last == ISCSI_NO_TAG)
			iscsi->ttt_last = 1;
		put_be32(ping->send.bhs + 20, iscsi->ttt_last);
		ping->no_statsn = true;
		conn->ping_out = true;
		iscsi__reply_send(ping);
		/*
		 * Longer than it was idle: an initiator of one thread, libiscsi's,
		 * that sleeps a minute between two commands is heard in time.
		 */
		env_timer_start(iscsi->env, &conn->timer, ping_ns * 3 / 2);
		return;
	}
	env_timer_start(iscsi->env, &conn->timer, ping_ns - idle);
}

/* Async event 1: log out within @seconds, please (11.9). */
void iscsi__ask_logout(struct iscsi_session *s, unsigned seconds)
{
	struct reply *reply;

	if (s->ending || s->conn == NULL || s->conn->state != CONN_FULL)
		return;
	reply = iscsi__reply_new(s->conn, ISCSI_OP_ASYNC, ISCSI_NO_TAG, NULL,
				 0);
	if (reply == NULL)
		return;
	reply->send.bhs[36] = 1;
	put_be16(reply->send.bhs + 42, (uint16_t)MIN(seconds, 65535u));
	iscsi__reply_send(reply);
}

/* ---- the window ---- */

/* MaxCmdSN with @out commands of @window taken. */
static uint32_t max_of(const struct iscsi_session *s, unsigned window,
		       unsigned out)
{
	window = MAX(window, 1u);
	return s->exp_cmdsn + (window > out ? window - out : 0) - 1;
}

static void grant(uint32_t *sn, uint32_t max)
{
	if (sn_lt(*sn, max))
		*sn = max;
}

/*
 * Grant commands up to the window, less what is being worked on and less
 * answers that the initiator does not fetch.  Never takes a grant back.
 */
void iscsi__session_max_cmdsn(struct iscsi_session *s)
{
	const struct dm_conn *dm = s->conn->dm;
	unsigned window = s->window, out = iscsi__in_flight(s);
	unsigned unread = MAX(s->window_max, 128u);
	unsigned load = 0;

	if (s->responding_count > unread)
		out += s->responding_count - unread;
	/* When this arrives those behind it are still to come. */
	out += dm->unsent;
	if (dm->share != 0)
		window = MIN(window, dm->share);
	if (dm->no_window)
		grant(&s->most_cmdsn, max_of(s, s->window_max, out));
	if (!sn_lt(s->max_cmdsn, max_of(s, window, out)))
		return; /* not even without load */
	if (!s->discovery)
		load = scsi_lun_congestion(s->target->scsi, s->last_lun);
	window -= window * load / 256;
	grant(&s->max_cmdsn, max_of(s, window, out));
	grant(&s->most_cmdsn, s->max_cmdsn);
}

/* ---- what a PDU does ---- */

/* Data that a PDU to the initiator may carry. */
uint32_t iscsi__send_max(const struct iscsi_conn *conn)
{
	uint32_t agreed = conn->session->keys.max_send_data;
	uint32_t real = conn->dm->ops->send_data_max;

	return real != 0 ? MIN(agreed, real) : agreed;
}

static void nop_out(struct iscsi_conn *conn, const struct dm_pdu *pdu,
		    bool immediate)
{
	uint32_t len = MIN(pdu->data_len, iscsi__send_max(conn));
	uint32_t itt = get_be32(pdu->bhs + 16);
	struct reply *reply;

	if (itt == ISCSI_NO_TAG)
		return; /* an answer to our ping: it was noted */
	/* An echo is kept until it is sent: not without bound. */
	if (conn->reply_bytes + len > ISCSI_ECHO_BYTES_MAX)
		len = 0;
	reply = iscsi__reply_new(conn, ISCSI_OP_NOP_IN, itt, pdu->data, len);
	if (reply == NULL)
		return;
	reply->immediate = immediate;
	conn->immediates += immediate;
	reply->counted = true;
	iscsi__in_flight_more(conn->session);
	memcpy(reply->send.bhs + 8, pdu->bhs + 8, 8);
	put_be32(reply->send.bhs + 20, ISCSI_NO_TAG);
	iscsi__reply_send(reply);
}

/* Logout (11.14): what came before is finished first, then the answer goes. */
static void logout(struct iscsi_conn *conn, const struct dm_pdu *pdu,
		   bool immediate)
{
	struct iscsi_session *s = conn->session;
	unsigned reason = pdu->bhs[1] & 0x7f, response = 0;
	struct reply *reply;

	if (s->logout != NULL)
		return;
	if (reason == 1 && get_be16(pdu->bhs + 20) != s->cid)
		response = 1;
	else if (reason > 1)
		response = reason == 2 ? 2 : 3;
	/* One that ends the session is always taken; others are limited. */
	if (response != 0 && immediate &&
	    conn->immediates >= ISCSI_IMMEDIATE_MAX) {
		iscsi__reject(conn, pdu->bhs, REJECT_TOO_MANY_IMMEDIATE);
		return;
	}
	reply = iscsi__reply_new(conn, ISCSI_OP_LOGOUT_RSP,
				 get_be32(pdu->bhs + 16), NULL, 0);
	if (reply == NULL)
		return;
	reply->send.bhs[2] = (uint8_t)response;
	put_be16(reply->send.bhs + 40, (uint16_t)s->keys.time2wait);
	if (response != 0) {
		reply->immediate = immediate;
		conn->immediates += immediate;
		reply->counted = true;
		iscsi__in_flight_more(s);
		iscsi__reply_send(reply);
		return;
	}
	reply->last = true;
	s->logout = reply;
	s->logout_due_ns =
		env_now(s->iscsi->env) + ISCSI_LOGOUT_DATA_SECONDS * SEC;
	iscsi__session_data_timer(s, ISCSI_LOGOUT_DATA_SECONDS);
	iscsi__session_kick(s);
}

static void command(struct iscsi_conn *conn, const struct dm_pdu *pdu)
{
	struct task *task = conn->landing;

	conn->landing = NULL;
	if (task == NULL)
		task = iscsi__task_new(conn->session, pdu, false);
	if (task != NULL)
		iscsi__task_start(task, pdu);
}

/* Are there as many as there may be, beside the one that is delivered? */
static bool immediates_full(const struct iscsi_conn *conn)
{
	const struct task *landing = conn->landing;

	/* One whose data had a place to land was counted then, if it lives. */
	return conn->immediates - (landing != NULL && landing->counted) >=
	       ISCSI_IMMEDIATE_MAX;
}

/* A PDU whose turn has come. */
void iscsi__session_deliver(struct iscsi_conn *conn, const struct dm_pdu *pdu)
{
	bool immediate = pdu->bhs[0] & ISCSI_IMMEDIATE;
	uint8_t opcode = pdu->bhs[0] & ISCSI_OP_MASK;

	if (immediate && immediates_full(conn) &&
	    !(opcode == ISCSI_OP_NOP_OUT &&
	      get_be32(pdu->bhs + 16) == ISCSI_NO_TAG) &&
	    opcode != ISCSI_OP_LOGOUT) {
		iscsi__reject(conn, pdu->bhs, REJECT_TOO_MANY_IMMEDIATE);
		return;
	}
	if (conn->session->discovery &&
	    (opcode == ISCSI_OP_COMMAND || opcode == ISCSI_OP_TMF)) {
		iscsi__reject(conn, pdu->bhs, REJECT_PROTOCOL);
		return;
	}
	switch (opcode) {
	case ISCSI_OP_NOP_OUT:
		nop_out(conn, pdu, immediate);
		break;
	case ISCSI_OP_COMMAND:
		command(conn, pdu);
		break;
	case ISCSI_OP_TMF:
		iscsi__tmf_request(conn, pdu);
		break;
	case ISCSI_OP_TEXT:
		iscsi__text_request(conn, pdu);
		break;
	case ISCSI_OP_LOGOUT:
		logout(conn, pdu, immediate);
		break;
	}
}
