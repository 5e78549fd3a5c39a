/*
 * move: a connection's way to another shard.
 *
 * detach() stops looking at its completions, at once; when the loop has let go
 * of its descriptor, it is nobody's: detached().  What the device completes, and
 * what the initiator sends, waits in the completion queue.  attach(), on the
 * other shard, moves its id to that shard's event channel and watches it there.
 *
 * Events: those of the connection manager come in on shard 0 until the id has
 * moved, which waits until all that came in are acknowledged.  Asynchronous ones
 * of the device come in on shard 0 always; the end of a connection, behind that of
 * its queues, passes by there on a turn of its own.  So shard 0 may note, in the
 * connection, what it learns of one that is elsewhere, while it learns it.  Whoever
 * has the connection then takes what was noted: when it arrives, and whenever its
 * shard is told to look.
 */
#define LOG_ROOM LOG_ISER
#include "iser/iser_int.h"

/* Of iser_conn.noted: of the device's events, and of the connection manager's. */
#define NOTE_ASYNC(event) (1ull << (event))
#define NOTE_CM(event) (1ull << (32 + (event)))
_Static_assert(IBV_EVENT_WQ_FATAL < 32, "an event is a bit of the lower half");
_Static_assert(RDMA_CM_EVENT_TIMEWAIT_EXIT < 32, "of the upper half");

/* What the front learnt: @conn is on its shard's list. */
static void notes_take(struct iser_conn *conn)
{
	uint64_t notes = atomic_exchange(&conn->noted, 0);

	for (unsigned i = 0; notes >> i != 0 && i < 32; i++)
		if (notes & NOTE_ASYNC(i))
			iser__conn_async(conn, (enum ibv_event_type)i);
	for (unsigned i = 0; notes >> 32 >> i != 0; i++)
		if (notes & NOTE_CM(i))
			iser__conn_cm(conn, (enum rdma_cm_event_type)i);
	if (conn->device->gone)
		iser__conn_removed(conn);
}

/* ---- on the front ---- */

void iser__on_async(struct rdma_watch *watch, enum ibv_event_type event)
{
	struct iser_conn *conn = container_of(watch, struct iser_conn, watch);
	struct iser *reader = atomic_load(&conn->reader);

	if (reader != NULL && iser__is_front(reader)) {
		iser__conn_async(conn, event);
		return;
	}
	if (event > IBV_EVENT_WQ_FATAL)
		return;
	atomic_fetch_or(&conn->noted, NOTE_ASYNC(event));
	/* It may have arrived meanwhile, and have found nothing. */
	reader = atomic_load(&conn->reader);
	if (reader != NULL)
		iser__look(reader);
}

void iser__on_cm(struct iser_cm *cm, const struct rdma_cm_event *event)
{
	struct iser_conn *conn = container_of(cm, struct iser_conn, cm);

	if (!cm->early)
		iser__conn_cm(conn, event->event);
	else if (event->event <= RDMA_CM_EVENT_TIMEWAIT_EXIT)
		atomic_fetch_or(&conn->noted, NOTE_CM(event->event));
}

void iser__look(struct iser *share)
{
	if (!share->front->shares_closing &&
	    !atomic_exchange(&share->looking, true))
		env_post(share->env, &share->look_task);
}

static void on_leave(struct env_task *task)
{
	struct iser_conn *conn = container_of(task, struct iser_conn, turn);

	conn->turn.cb = iser__conn_turn;
	iser__conn_turn(task);
	if (!conn->moving) /* it was terminated before it left */
		return;
	assert(iser__tx_empty(conn));
	iser__cq_stop(conn); /* iser__left() follows */
}

void iser__detach(struct dm_conn *dm)
{
	struct iser_conn *conn = conn_of(dm);

	assert(iser__is_front(conn->iser));
	assert(iser__conn_alive(conn));
	assert(!conn->full && !conn->moving);
	conn->moving = true;
	conn->cm.early = true;
	env_timer_stop(dm->env, &conn->timer);
	atomic_store(&conn->reader, NULL);
	/* Completions of it may be under way below us: on a turn of its own. */
	conn->turn.cb = on_leave;
	env_defer(dm->env, &conn->turn);
}

void iser__left(struct iser_conn *conn)
{
	assert(!conn->hot && !conn->turn.queued);
	if (conn->own_recvq)
		iser__recvq_leave(conn->recvq);
	TAILQ_REMOVE(&conn->iser->conns, conn, link);
	conn->dm.up->detached(conn->dm.owner);
}

void iser__stay(struct iser_conn *conn)
{
	conn->moving = false;
	if (iser__is_front(conn->iser))
		conn->cm.early = false;
	atomic_store(&conn->reader, conn->iser);
	notes_take(conn);
}

/* ---- where it goes ---- */

static void on_arrived(struct env_task *task)
{
	struct iser_conn *conn = container_of(task, struct iser_conn, turn);

	conn->turn.cb = iser__conn_turn;
	if (conn->moving) { /* it was not terminated since */
		conn->moving = false;
		notes_take(conn);
		if (conn->late_why != NULL)
			iser__conn_lost(conn, conn->late_status,
					conn->late_why);
		iser__cq_heat(conn); /* what came meanwhile */
	}
	iser__conn_turn(task);
}

void iser__attach(struct dm_conn *dm, struct env *to)
{
	struct iser_conn *conn = conn_of(dm);
	struct iser *front = conn->iser->front;
	int rv;

	assert(conn->moving && conn->polled == POLL_NONE);
	assert(to->shard < front->shares_count);
	conn->iser = front->shares[to->shard];
	assert(conn->iser->env == to);
	dm->env = to;
	TAILQ_INSERT_TAIL(&conn->iser->conns, conn, link);
	if (conn->own_recvq)
		iser__recvq_arrive(conn->recvq, to);
	rv = iser__channel_take(conn->iser, conn->id);
	if (rv == 0) {
		conn->cm.early = false;
		rv = iser__cq_start(conn);
	}
	if (rv < 0)
		iser__conn_lost(conn, rv, "it cannot move to its shard");
	atomic_store(&conn->reader, conn->iser);
	conn->turn.cb = on_arrived;
	env_defer(to, &conn->turn);
}

void iser__on_look(struct env_task *task)
{
	struct iser *iser = container_of(task, struct iser, look_task);
	struct iser_conn *conn;

	/* From here on another look is another message. */
	atomic_store(&iser->looking, false);
	/* They end on later turns: the list stays as it is. */
	TAILQ_FOREACH (conn, &iser->conns, link)
		notes_take(conn);
}
