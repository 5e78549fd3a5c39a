/*
 * shards: the front and its shares, and connections on their way.
 *
 * The front speaks, shares obey: messages arrive in the order in which they
 * were sent, connections between them, so that a login which an older access
 * list let in meets the newer one at the latest on its share.  What a share
 * cannot do for want of memory it tries again, and all that follows waits, but
 * for what ends sessions and who may log in; when the share closes it is not done
 * any more.
 *
 * A connection moves in its login's last step: nothing of it is in flight, the
 * initiator waits for our answer.  The front keeps its count and its portal;
 * all else is the share's until conn_maybe_free() gives it back.
 */
#define LOG_ROOM LOG_ISCSI
#include "iscsi/iscsi_int.h"

/* ---- messages ---- */

static void on_message(struct env_task *task);

struct iscsi_message *iscsi__message_new(struct iscsi *share,
					 enum iscsi_message_kind kind)
{
	struct iscsi_message *m = calloc(1, sizeof(*m));

	if (m == NULL)
		return NULL;
	m->share = share;
	m->kind = kind;
	m->task.cb = on_message;
	return m;
}

static void message_free(struct iscsi_message *m)
{
	free(m->portals);
	scsi_usage_put(m->usage);
	free(m);
}

void iscsi__message_send(struct iscsi_message *m)
{
	assert(!iscsi__is_front(m->share));
	/* Behind its end a share obeys nothing. */
	if (m->share->front->closing && m->kind != MESSAGE_CLOSE) {
		assert(m->kind != MESSAGE_TARGET);
		message_free(m);
		return;
	}
	env_post(m->share->env, &m->task);
}

static void on_back(struct env_task *task)
{
	struct iscsi_message *m =
		container_of(task, struct iscsi_message, task);

	if (m->target != NULL)
		iscsi__home_left(m->target);
	message_free(m);
}

void iscsi__message_back(struct iscsi_message *m)
{
	m->task.cb = on_back;
	env_post(m->share->front->env, &m->task);
}

/* ---- a share obeys ---- */

static void portals_take(struct iscsi *share, struct iscsi_message *m)
{
	/* The former ones went with their message, which goes now. */
	TAILQ_INIT(&share->portals);
	for (unsigned i = 0; i < m->portals_count; i++)
		TAILQ_INSERT_TAIL(&share->portals, &m->portals[i], link);
	free(share->portals_memory);
	share->portals_memory = m->portals;
	m->portals = NULL;
	iscsi__targets_ports(share);
}

static void session_drop(struct iscsi *share, uint64_t id)
{
	struct iscsi_session *s;

	TAILQ_FOREACH (s, &share->sessions, link)
		if (s->id == id) {
			iscsi__session_end(s, "dropped by the administrator");
			return;
		}
}

static void units_retry(struct iscsi *iscsi)
{
	struct iscsi_target *t;

	TAILQ_FOREACH (t, &iscsi->targets, link)
		if (t->scsi != NULL)
			scsi_units_retry(t->scsi);
}

void iscsi_units_retry(struct iscsi *iscsi)
{
	units_retry(iscsi);
	for (unsigned i = 1; i < iscsi->config.shards; i++) {
		struct iscsi_message *m =
			iscsi__message_new(iscsi->shares[i], MESSAGE_UNITS);

		if (m == NULL)
			continue; /* each has its timer */
		/* Until it has counted them. */
		iscsi->shares[i]->scsi.untried++;
		iscsi__message_send(m);
	}
}

unsigned iscsi_units_untried(const struct iscsi *iscsi)
{
	unsigned n = iscsi->scsi.untried;

	for (unsigned i = 1; i < iscsi->config.shards; i++)
		n += iscsi->shares[i]->scsi.untried;
	return n;
}

/* 0; 1: @m is kept; -ENOMEM: later. */
static int obey(struct iscsi *share, struct iscsi_message *m)
{
	struct iscsi_target *t = NULL;

	if (m->iqn[0] != '\0')
		t = iscsi__target_find(share, m->iqn);
	switch (m->kind) {
	case MESSAGE_TARGET:
		iscsi__target_take(share, m->target);
		break;
	case MESSAGE_TARGET_GONE:
		assert(t != NULL);
		iscsi__target_remove(t, m->why, m);
		return 1;
	case MESSAGE_LUN:
		assert(t != NULL);
		m->lun.iqn = m->iqn;
		m->lun.name = m->name;
		return scsi_lun_set(t->scsi, &m->lun, m->usage);
	case MESSAGE_LUN_GONE:
		assert(t != NULL);
		scsi_lun_unset(t->scsi, m->number);
		break;
	case MESSAGE_PORTALS:
		portals_take(share, m);
		break;
	case MESSAGE_UNITS:
		units_retry(share);
		share->scsi.untried--; /* the front's, for this */
		break;
	case MESSAGE_DROP_PORTAL:
		iscsi__portal_end(share, m->number, m->transport, m->why);
		break;
	case MESSAGE_DROP_SESSION:
		session_drop(share, m->id);
		break;
	case MESSAGE_CLOSE:
		iscsi__close_begin(share, m->drain_ms);
		break;
	}
	return 0;
}

/* The last thing that it was told. */
static bool closes(const struct iscsi *share)
{
	return TAILQ_LAST(&share->messages, iscsi_messages)->kind ==
	       MESSAGE_CLOSE;
}

static void obey_all(struct iscsi *share)
{
	struct iscsi_message *m;
	int rv;

	while ((m = TAILQ_FIRST(&share->messages)) != NULL) {
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): off the list */
		rv = obey(share, m);
		assert(rv != -EINVAL); /* the front has checked it */
		if (rv < 0 && !closes(share)) {
			env_timer_start(share->env, &share->message_timer,
					ISCSI_AGAIN_NS);
			return;
		}
		TAILQ_REMOVE(&share->messages, m, link);
		if (rv <= 0)
			message_free(m);
	}
}

/* Does @m change who may log in to a target that is there, and stays for now? */
static bool is_access(const struct iscsi *share, const struct iscsi_message *m)
{
	const struct iscsi_message *o;

	if (m->kind != MESSAGE_TARGET || m->target->scsi != NULL)
		return false;
	TAILQ_FOREACH (o, &share->messages, link)
		if ((o->kind == MESSAGE_TARGET &&
		     strcmp(o->target->iqn, m->target->iqn) == 0) ||
		    (o->kind == MESSAGE_TARGET_GONE &&
		     strcmp(o->iqn, m->target->iqn) == 0))
			return false;
	return true;
}

static void on_message(struct env_task *task)
{
	struct iscsi_message *m =
		container_of(task, struct iscsi_message, task);
	struct iscsi *share = m->share;
	bool waits = !TAILQ_EMPTY(&share->messages);

	if (m->kind == MESSAGE_DROP_PORTAL || m->kind == MESSAGE_DROP_SESSION ||
	    is_access(share, m)) {
		(void)obey(share, m);
		message_free(m);
		return;
	}
	TAILQ_INSERT_TAIL(&share->messages, m, link);
	if (!waits)
		obey_all(share);
}

static void on_message_timer(struct env_timer *timer)
{
	obey_all(container_of(timer, struct iscsi, message_timer));
}

/* ---- what all shares are told ---- */

static struct iscsi_message *portals_message(struct iscsi *share)
{
	struct iscsi_message *m = iscsi__message_new(share, MESSAGE_PORTALS);
	const struct iscsi_portal *p;
	unsigned n = 0;

	if (m == NULL)
		return NULL;
	TAILQ_FOREACH (p, &share->front->portals, link)
		n++;
	m->portals = calloc(n + 1, sizeof(*m->portals));
	if (m->portals == NULL) {
		free(m);
		return NULL;
	}
	TAILQ_FOREACH (p, &share->front->portals, link)
		m->portals[m->portals_count++] =
			(struct iscsi_portal){ .iscsi = share,
					       .number = p->number,
					       .tpgt = p->tpgt,
					       .address = p->address };
	return m;
}

void iscsi__portals_tell(struct iscsi *front)
{
	front->portals_due = false;
	if (front->closing) /* some may be closed */
		return;
	for (unsigned i = 1; i < front->shards; i++) {
		struct iscsi_message *m = portals_message(front->shares[i]);

		if (m != NULL) {
			iscsi__message_send(m);
		} else {
			front->portals_due = true;
			env_timer_start(front->env, &front->tell,
					ISCSI_AGAIN_NS);
		}
	}
}

static void on_tell(struct env_timer *timer)
{
	struct iscsi *front = container_of(timer, struct iscsi, tell);

	if (front->portals_due)
		iscsi__portals_tell(front);
	iscsi__homes_tell(front);
}

int iscsi__shares_drop_portal(struct iscsi *front, unsigned number,
			      const char *transport, const char *why)
{
	struct iscsi_messages all = TAILQ_HEAD_INITIALIZER(all);
	struct iscsi_message *m;
	int rv = 0;

	if (front->closing) /* their sessions end anyway */
		return 0;
	for (unsigned i = 1; i < front->shards; i++) {
		m = iscsi__message_new(front->shares[i], MESSAGE_DROP_PORTAL);
		if (m == NULL) {
			rv = -ENOMEM;
			break;
		}
		m->number = number;
		m->transport = transport;
		m->why = why;
		TAILQ_INSERT_TAIL(&all, m, link);
	}
	while ((m = TAILQ_FIRST(&all)) != NULL) {
		TAILQ_REMOVE(&all, m, link);
		if (rv == 0)
			iscsi__message_send(m);
		else
			message_free(m);
	}
	return rv;
}

/* ---- opening and closing ---- */

static void on_share_closed(struct env_task *task)
{
	struct iscsi *share = container_of(task, struct iscsi, share_closed);
	struct iscsi *front = share->front;

	assert(TAILQ_EMPTY(&share->messages));
	front->shares[share->shard] = NULL;
	free(share->portals_memory);
	free(share);
	front->shares_count--;
	iscsi__maybe_closed(front);
}

void iscsi__share_closed(struct iscsi *share)
{
	env_timer_stop(share->env, &share->message_timer);
	env_post(share->front->env, &share->share_closed);
}

static struct iscsi *share_new(struct iscsi *front, unsigned shard)
{
	struct iscsi *share = calloc(1, sizeof(*share));

	if (share == NULL)
		return NULL;
	iscsi__init(share, &front->config, front->config.envs[shard]);
	share->shard = shard;
	share->front = front;
	share->tsih_last = (uint16_t)env_rand(front->env);
	share->message_timer.cb = on_message_timer;
	share->share_closed.cb = on_share_closed;
	share->close_message = iscsi__message_new(share, MESSAGE_CLOSE);
	if (share->close_message == NULL) {
		free(share);
		return NULL;
	}
	return share;
}

static void shares_free(struct iscsi *front)
{
	for (unsigned i = 1; i < front->shards; i++)
		if (front->shares[i] != NULL) {
			free(front->shares[i]->close_message);
			free(front->shares[i]);
		}
	free(front->shares);
}

int iscsi__shares_open(struct iscsi *front)
{
	front->shards = MAX(front->config.shards, 1u);
	front->tell.cb = on_tell;
	front->shares = calloc(front->shards, sizeof(struct iscsi *));
	if (front->shares == NULL)
		return -ENOMEM;
	for (unsigned i = 1; i < front->shards; i++) {
		front->shares[i] = share_new(front, i);
		if (front->shares[i] == NULL) {
			shares_free(front);
			return -ENOMEM;
		}
		front->shares_count++;
	}
	return 0;
}

void iscsi__shares_close(struct iscsi *front, unsigned drain_ms)
{
	for (unsigned i = 1; i < front->shards; i++) {
		struct iscsi_message *m = front->shares[i]->close_message;

		m->drain_ms = drain_ms;
		iscsi__message_send(m);
	}
}

/* ---- a connection moves ---- */

void iscsi__conn_leave(struct iscsi_conn *conn)
{
	assert(iscsi__is_front(conn->iscsi));
	conn->state = CONN_MOVE;
	if (conn->replies_count == 0)
		conn->dm->ops->detach(conn->dm);
}

static void go_on_here(struct iscsi_conn *conn)
{
	conn->dm->ops->attach(conn->dm, conn->iscsi->env);
	conn->state = CONN_LOGIN;
	iscsi__conn_login_final(conn);
}

static void on_arrival(struct env_task *task)
{
	struct iscsi_conn *conn = container_of(task, struct iscsi_conn, hop);
	struct iscsi *share = conn->iscsi;

	TAILQ_INSERT_TAIL(&share->conns, conn, link);
	share->conns_count++;
	iscsi__conn_timer_start(conn);
	go_on_here(conn);
}

void iscsi__conn_detached(struct iscsi_conn *conn)
{
	struct iscsi *front = conn->iscsi;
	struct iscsi_target *t =
		iscsi__target_find(front, conn->login->target_name);

	assert(conn->state == CONN_MOVE && conn->replies_count == 0);
	if (front->closing || t == NULL || iscsi__target_moves(t) ||
	    t->home == 0) {
		go_on_here(conn); /* as it is now: to be refused, perhaps */
		return;
	}
	env_timer_stop(front->env, &conn->timer);
	TAILQ_REMOVE(&front->conns, conn, link);
	front->conns_count--;
	front->away_count++;
	front->guests_count++;
	conn->iscsi = front->shares[t->home];
	conn->login->iscsi = conn->iscsi;
	conn->hop.cb = on_arrival;
	env_post(conn->iscsi->env, &conn->hop);
}

static void on_return(struct env_task *task)
{
	struct iscsi_conn *conn = container_of(task, struct iscsi_conn, hop);
	struct iscsi *front = conn->portal->iscsi;

	assert(front->away_count > 0);
	front->away_count--;
	if (conn->session == NULL) /* else when that goes, maybe later */
		front->guests_count--;
	iscsi__portal_put(conn->portal);
	free(conn);
	iscsi__maybe_closed(front);
}

void iscsi__conn_return(struct iscsi_conn *conn)
{
	conn->hop.cb = on_return;
	env_post(conn->iscsi->front->env, &conn->hop);
}
