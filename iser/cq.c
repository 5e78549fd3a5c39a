/*
 * cq: completions of a connection.
 *
 * Its completion channel wakes the loop when something completes.  From then on
 * the connection is hot: it is polled once a turn, and what it brought is
 * handled, until it has brought nothing for a while.  Then the device is asked
 * to interrupt again, and a last look closes the gap.
 *
 * How long that while is adapts: if the next completion comes soon after the
 * polling ended, it was too short; if nothing came during it, it was for
 * nothing, and the next one is half as long.
 */
#define LOG_ROOM LOG_ISER
#include "iser/iser_int.h"

#include <fcntl.h>

#define POLL_BATCH 16u
#define POLL_BUDGET 64u /* completions of one connection a turn */
#define ACK_BATCH 32u
#define SPIN_LEAST_NS 1000u

/* Why it is lost; NULL: behind a logout, of which iWARP may tell here at first. */
static const char *why_lost(const struct iser_conn *conn,
			    enum ibv_wc_status status)
{
	if (status != IBV_WC_WR_FLUSH_ERR)
		return ibv_wc_status_str(status);
	return conn->goodbye ? NULL : "its queue pair was ended";
}

/* How many receives it was. */
static unsigned completion(struct iser_conn *conn, const struct ibv_wc *wc)
{
	bool ok = wc->status == IBV_WC_SUCCESS;

	if (wc->wr_id & 1) {
		struct recv_slot *slot =
			(struct recv_slot *)(uintptr_t)(wc->wr_id - 1);

		if (ok && iser__conn_alive(conn))
			iser__receive(conn, slot, wc->byte_len);
		iser__recvq_give(slot, conn->dm.env);
	} else {
		iser__tx_complete(conn, wc->wr_id >> 1, ok);
	}
	if (!ok && iser__conn_alive(conn))
		iser__conn_lost(conn, -ECONNRESET, why_lost(conn, wc->status));
	return wc->wr_id & 1;
}

unsigned iser__cq_poll(struct iser_conn *conn)
{
	struct ibv_wc wc[POLL_BATCH];
	/* Behind any PDU of its login it may move: the rest moves with it. */
	int n, batch = conn->full ? (int)POLL_BATCH : 1;
	unsigned sum = 0, taken = 0;

	do {
		if (conn->moving)
			break;
		n = ibv_poll_cq(conn->cq, batch, wc);
		if (n < 0) {
			iser__conn_lost(conn, n, "polling failed");
			break;
		}
		for (int i = 0; i < n; i++)
			taken += completion(conn, &wc[i]);
		sum += (unsigned)n;
	} while (n == batch && sum < POLL_BUDGET);
	if (!conn->own_recvq && (taken > 0 || conn->taken > 0)) {
		iser__recvq_taken(conn->recvq, conn->taken, taken);
		conn->taken = taken;
	}
	/* Before their places in the window are offered again. */
	if (sum > 0)
		iser__recvq_fill(conn->recvq, conn->dm.env);
	return sum;
}

/* ---- hot and cold ---- */

void iser__cq_heat(struct iser_conn *conn)
{
	struct iser *iser = conn->iser;

	if (conn->finishing) /* an event that came late: it stays stopped */
		return;
	if (!conn->hot) {
		conn->hot = true;
		conn->active_ns = env_now(iser->env);
		TAILQ_INSERT_TAIL(&iser->hot, conn, hot_link);
	}
	env_defer(iser->env, &iser->poll_task);
}

static void cool(struct iser_conn *conn)
{
	conn->hot = false;
	conn->cold_ns = env_now(conn->iser->env);
	TAILQ_REMOVE(&conn->iser->hot, conn, hot_link);
}

/* It brought nothing this turn.  Returns false if it went cold. */
static bool idle(struct iser_conn *conn, uint64_t now)
{
	/* Where nobody watches it nobody would wake it. */
	if (now - conn->active_ns < conn->spin_ns || conn->polled != POLL_OPEN)
		return true;
	conn->spin_ns /= 2;
	if (conn->spin_ns < SPIN_LEAST_NS)
		conn->spin_ns = 0;
	if (ibv_req_notify_cq(conn->cq, 0) != 0) {
		iser__conn_lost(conn, -EIO, "no more notifications");
		return true;
	}
	if (iser__cq_poll(conn) > 0)
		return true; /* it came before the arming */
	cool(conn);
	return false;
}

/* The deferred task of all hot connections. */
void iser__cq_turn(struct env_task *task)
{
	struct iser *iser = container_of(task, struct iser, poll_task);
	uint64_t now = env_now(iser->env);
	struct iser_conn *conn, *next;

	/* Nothing is freed here: connections go on turns of their own. */
	for (conn = TAILQ_FIRST(&iser->hot); conn != NULL; conn = next) {
		next = TAILQ_NEXT(conn, hot_link);
		if (iser__cq_poll(conn) > 0)
			conn->active_ns = now;
		else
			idle(conn, now);
		if (conn->closing)
			iser__conn_drained(conn);
	}
	if (!TAILQ_EMPTY(&iser->hot))
		env_defer(iser->env, &iser->poll_task);
}

static void on_channel(uv_poll_t *poll, int status, int events)
{
	struct iser_conn *conn = poll->data;
	uint64_t now;
	struct ibv_cq *cq;
	void *context;

	shard_wake(conn->dm.env);
	if (status < 0) {
		iser__conn_lost(conn, status, "polling failed");
		return;
	}
	/* It is armed once at a time; another one would wake the loop again. */
	if (ibv_get_cq_event(conn->channel, &cq, &context) == 0 &&
	    ++conn->cq_events == ACK_BATCH) {
		ibv_ack_cq_events(cq, conn->cq_events);
		conn->cq_events = 0;
	}
	now = env_now(conn->dm.env);
	if (!conn->hot && now - conn->cold_ns < conn->iser->spin_ns)
		conn->spin_ns = conn->iser->spin_ns;
	iser__cq_heat(conn);
}

/* ---- begin and end ---- */

int iser__cq_open(struct iser_conn *conn, unsigned entries)
{
	struct ibv_context *verbs = conn->device->rdma->verbs;
	unsigned vectors = (unsigned)MAX(verbs->num_comp_vectors, 1);
	int flags;

	conn->channel = ibv_create_comp_channel(verbs);
	if (conn->channel == NULL)
		return -errno;
	flags = fcntl(conn->channel->fd, F_GETFL);
	if (flags < 0 ||
	    fcntl(conn->channel->fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	conn->cq =
		ibv_create_cq(verbs, (int)entries, &conn->watch, conn->channel,
			      (int)(conn->device->vector++ % vectors));
	if (conn->cq == NULL)
		return errno != 0 ? -errno : -EIO;
	return ibv_req_notify_cq(conn->cq, 0) != 0 ? -EIO : 0;
}

int iser__cq_start(struct iser_conn *conn)
{
	int rv = uv_poll_init(shard_loop(conn->dm.env), &conn->poll,
			      conn->channel->fd);

	if (rv < 0)
		return rv;
	conn->poll.data = conn;
	conn->polled = POLL_OPEN;
	conn->spin_ns = conn->iser->spin_ns;
	uv_poll_start(&conn->poll, UV_READABLE, on_channel);
	return 0;
}

static void on_poll_closed(uv_handle_t *handle)
{
	struct iser_conn *conn = handle->data;

	shard_wake(conn->dm.env);
	conn->polled = POLL_NONE;
	iser__conn_unpolled(conn);
}

void iser__cq_stop(struct iser_conn *conn)
{
	if (conn->hot)
		cool(conn);
	if (conn->polled != POLL_OPEN)
		return;
	conn->polled = POLL_CLOSING;
	uv_poll_stop(&conn->poll);
	uv_close((uv_handle_t *)&conn->poll, on_poll_closed);
}

void iser__cq_close(struct iser_conn *conn)
{
	if (conn->cq != NULL) {
		if (conn->cq_events > 0)
			ibv_ack_cq_events(conn->cq, conn->cq_events);
		ibv_destroy_cq(conn->cq);
	}
	if (conn->channel != NULL)
		ibv_destroy_comp_channel(conn->channel);
}
