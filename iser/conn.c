/*
 * conn: an RDMA connection's life, and the calls down.
 *
 * Its end, whatever the reason: lost() is told once, the session calls
 * terminate(), the queue pair goes into error, and a marker behind everything
 * in the send queue says when the device has let go of it.  Only when the queue
 * pair is destroyed too do the callbacks of what was left run and the pages go.
 * Last goes its id: behind the device, whose context may go with it.
 */
#define LOG_ROOM LOG_ISER
#include "base/descriptors.h"
#include "iser/iser_int.h"

#include <stdio.h>

/* A device that takes longer than this to let go has lost its mind. */
#define DRAIN_NS (5 * SEC)
/*
 * Software iWARP has given back by then what it will; so much memory is not held for
 * what it keeps.
 */
#define DRAIN_IWARP_NS (50 * MSEC)
/*
 * An initiator that posts no receives, and asked us to try for ever, is cut off
 * when nothing was completed in this time.
 */
#define STALL_NS (30 * SEC)
/* For the last receives, where the device does not say which they are. */
#define LAST_RECEIVE_NS (25 * MSEC)
#define LAST_RECEIVE_WAITS 2u /* the first counts from the turn's beginning */
/*
 * After a logout the initiator hangs up.  All that its connection took is given
 * back at once; the id alone waits for that, for a while and in numbers.
 */
#define LEAVING_NS (60 * SEC)
#define LEAVING_MAX 256u
/* Code 12: 0.64 ms until an initiator that found no receive tries again. */
#define RNR_TIMER 12
#define INLINE_WANTED TX_SLOT_BYTES
#define DEPTH_LEAST 32u
#define NO_PAGES(what)                                                         \
	"no memory for its " what " buffers: a larger [memory] arena has more"
#define NO_RECEIVES NO_PAGES("receive")

static const struct dm_ops iser_ops;

void iser__conn_lost(struct iser_conn *conn, int status, const char *why)
{
	if (!iser__conn_alive(conn))
		return;
	if (conn->moving) {
		assert(why != NULL); /* nobody logs out in a login */
		if (conn->late_why == NULL) {
			conn->late_status = status;
			conn->late_why = why;
		}
		return;
	}
	conn->lost = true;
	if (why != NULL)
		counter_add(&iser__lost, 1);
	conn->dm.up->lost(conn->dm.owner, status, why);
}

/* ---- receiving ---- */

/* Count @more receives of connections' own; what all are then. */
static unsigned own_receives_add(const struct iser_conn *conn, int more)
{
	struct iser *front = conn->iser->front;
	unsigned was = atomic_fetch_add(&front->receives, (unsigned)more);

	return was + (unsigned)more;
}

/* So many of the receives are for @conn from now on. */
static void receives_set(struct iser_conn *conn, unsigned n)
{
	int more = (int)n - (int)conn->receives;

	conn->receives = n;
	iser__recvq_want(conn->recvq, conn->dm.env, more);
}

/* Is it one that must not be without a receive, and was not given all? */
static bool receives_missing(const struct iser_conn *conn)
{
	return conn->device->rdma->iwarp && iser__recvq_short(conn->recvq);
}

/* ---- after a logout ---- */

struct iser_leaving {
	struct iser_cm cm;
	struct iser *iser;
	struct rdma_cm_id *id;
	struct env_timer timer;
	LIST_ENTRY(iser_leaving) link;
};

static void leaving_end(struct iser_leaving *l)
{
	struct iser *iser = l->iser;

	env_timer_stop(iser->env, &l->timer);
	LIST_REMOVE(l, link);
	assert(iser->leaving_count > 0);
	iser->leaving_count--;
	rdma_destroy_id(l->id);
	free(l);
}

static void on_leaving_cm(struct iser_cm *cm, const struct rdma_cm_event *event)
{
	leaving_end(container_of(cm, struct iser_leaving, cm));
}

static void on_leaving_timer(struct env_timer *timer)
{
	leaving_end(container_of(timer, struct iser_leaving, timer));
}

/*
 * Leave the hanging up to the initiator: libiscsi 1.19 frees its connection at
 * logout and ends it with the process, and an end that we begin makes a thread
 * of it write to what was freed.  False: it must be ended here.
 */
static bool leaving_begin(struct iser *iser, struct rdma_cm_id *id)
{
	struct iser_leaving *l;

	if (iser->leaving_count == LEAVING_MAX)
		return false;
	l = calloc(1, sizeof(*l));
	if (l == NULL)
		return false;
	l->iser = iser;
	l->id = id;
	l->cm.event = on_leaving_cm;
	l->timer.cb = on_leaving_timer;
	id->context = &l->cm;
	LIST_INSERT_HEAD(&iser->leaving, l, link);
	iser->leaving_count++;
	env_timer_start(iser->env, &l->timer, LEAVING_NS);
	return true;
}

void iser__leaving_close(struct iser *iser)
{
	while (!LIST_EMPTY(&iser->leaving))
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): off the list */
		leaving_end(LIST_FIRST(&iser->leaving));
}

/* ---- the end ---- */

static void on_uncounted(struct env_task *task)
{
	struct iser_conn *conn = container_of(task, struct iser_conn, turn);
	bool leaves = conn->goodbye && !conn->hung_up && !conn->removed;

	if (!leaves || !leaving_begin(conn->iser, conn->id))
		rdma_destroy_id(conn->id);
	/* Behind its id: where that could not be moved it is the front's yet. */
	free(conn);
}

/* On the front, where nothing is in hand that names it: see move.c. */
static void on_released(struct env_task *task)
{
	struct iser_conn *conn = container_of(task, struct iser_conn, turn);
	struct iser *iser = conn->iser, *front = iser->front;

	assert(front->conns_count > 0);
	front->conns_count--;
	iser__device_put(conn->device);
	if (iser__is_front(iser)) {
		on_uncounted(&conn->turn);
	} else {
		conn->turn.cb = on_uncounted;
		env_post(iser->env, &conn->turn);
	}
	iser__maybe_closed(front);
}

static void conn_release(struct iser_conn *conn)
{
	struct iser *iser = conn->iser;

	iser__cq_close(conn);
	if (conn->recvq != NULL) {
		if (conn->own_recvq)
			(void)own_receives_add(conn, -(int)conn->receives);
		else
			iser__recvq_taken(conn->recvq, conn->taken, 0);
		receives_set(conn, 0);
	}
	if (conn->own_recvq && conn->recvq != NULL)
		iser__recvq_close(conn->recvq);
	iser__tx_fini(conn);
	TAILQ_REMOVE(&iser->conns, conn, link);
	counter_add(&iser__conns, UINT64_MAX); /* one less */
	/* The device goes before the last reference to its context. */
	if (iser__is_front(iser)) {
		on_released(&conn->turn);
	} else {
		conn->turn.cb = on_released;
		env_post(iser->front->env, &conn->turn);
	}
}

/* The device is made to forget it: then nobody touches its memory. */
static void on_end(struct env_task *task)
{
	struct iser_conn *conn = container_of(task, struct iser_conn, turn);

	rdma_destroy_qp(conn->id);
	conn->qp = NULL;
	/* Callbacks may queue something more: nothing of it will leave. */
	do {
		iser__tx_cancel(conn);
	} while (!iser__tx_empty(conn));
	iser__recvq_fill(conn->recvq, conn->dm.env);
	if (conn->dm.owner != NULL)
		conn->dm.up->closed(conn->dm.owner);
	conn_release(conn);
}

void iser__conn_unpolled(struct iser_conn *conn)
{
	if (conn->moving)
		iser__left(conn);
	else if (!conn->finishing)
		return; /* it ends where it is */
	else if (conn->turn.queued)
		conn->turn.cb = on_end;
	else
		on_end(&conn->turn);
}

static void finish(struct iser_conn *conn)
{
	if (conn->finishing)
		return;
	conn->finishing = true;
	env_timer_stop(conn->dm.env, &conn->timer);
	/* Receives that completed meanwhile go back to the queue. */
	while (iser__cq_poll(conn) > 0)
		;
	iser__cq_stop(conn);
	if (conn->polled == POLL_CLOSING)
		return; /* iser__conn_unpolled() follows */
	conn->turn.cb = on_end;
	env_defer(conn->dm.env, &conn->turn);
}

/*
 * The device has nothing more of @conn.  Software iWARP takes a marker and does not
 * give it back: there it is known only by what did come back, each piece of it.
 */
static bool drained(const struct iser_conn *conn)
{
	const struct tx *tx = &conn->tx;

	return tx->drained || (conn->own_recvq && tx->head == tx->tail &&
			       iser__recvq_back(conn->recvq));
}

void iser__conn_drained(struct iser_conn *conn)
{
	if (conn->finishing || !drained(conn))
		return;
	if (conn->own_recvq || conn->last_wqe) {
		finish(conn);
	} else if (env_timer_active(&conn->timer) && conn->last_waits == 0) {
		conn->last_waits = LAST_RECEIVE_WAITS;
		if (!conn->device->says_last_wqe)
			env_timer_start(conn->dm.env, &conn->timer,
					LAST_RECEIVE_NS);
	}
}

void iser__conn_watch(struct iser_conn *conn)
{
	if (env_timer_active(&conn->timer))
		return;
	conn->tx.watched = conn->tx.head;
	env_timer_start(conn->dm.env, &conn->timer, STALL_NS);
}

/*
 * What was posted last runs its time; with the queue empty there is none.  Where
 * the loop stood still meanwhile it may be done, and was not looked at.
 */
static void watch_on(struct iser_conn *conn)
{
	const struct tx *tx = &conn->tx;

	while (tx->head == tx->watched && iser__cq_poll(conn) > 0)
		;
	if (tx->head == tx->tail || !iser__conn_alive(conn))
		return;
	if (tx->head == tx->watched)
		iser__conn_lost(conn, -ETIMEDOUT,
				"the initiator receives nothing");
	else
		iser__conn_watch(conn);
}

/* Did the device let go of @conn in time, also of what it shares? */
static bool let_go(const struct iser_conn *conn)
{
	if (!drained(conn))
		return false;
	/* Only of one that was asked to, and says so, is it known. */
	return conn->own_recvq || conn->last_wqe || conn->removed ||
	       !conn->tx.marker || !conn->device->says_last_wqe;
}

static void on_timer(struct env_timer *timer)
{
	struct iser_conn *conn = container_of(timer, struct iser_conn, timer);

	if (!conn->closing) {
		watch_on(conn);
		return;
	}
	if (conn->last_waits > 1 && !conn->last_wqe && !conn->removed &&
	    !conn->device->says_last_wqe) {
		conn->last_waits--;
		env_timer_start(conn->dm.env, timer, LAST_RECEIVE_NS);
		return;
	}
	while (!let_go(conn) && iser__cq_poll(conn) > 0)
		;
	if (!let_go(conn)) {
		counter_add(&iser__undrained, 1);
		iser__device_keeps(conn->device);
	}
	finish(conn);
}

static void conn_end(struct iser_conn *conn)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	assert(conn->qp != NULL);
	conn->closing = true;
	if (conn->moving)
		iser__stay(conn);
	/* What is posted to a queue pair in error comes back at once. */
	if (conn->own_recvq)
		conn->recvq->stopped = true;
	/*
	 * It tells the peer, if there is one; a failure changes nothing.  One
	 * that hung up is answered when its id is destroyed.
	 */
	if (!conn->removed && !conn->hung_up && !conn->goodbye)
		(void)rdma_disconnect(conn->id);
	env_timer_start(conn->dm.env, &conn->timer,
			conn->device->rdma->iwarp ? DRAIN_IWARP_NS : DRAIN_NS);
	if (conn->removed ||
	    ibv_modify_qp(conn->qp, &attr, IBV_QP_STATE) != 0) {
		/* It has stopped already, or stops when it is destroyed. */
		conn->tx.drained = true;
		env_timer_start(conn->dm.env, &conn->timer, MSEC);
		return;
	}
	iser__tx_marker(conn);
	iser__cq_heat(conn);
}

/* Its device is gone: nothing more comes back from it. */
void iser__conn_removed(struct iser_conn *conn)
{
	if (conn->removed)
		return;
	conn->removed = true;
	if (conn->closing) {
		conn->tx.drained = true;
		if (!conn->finishing)
			env_timer_start(conn->dm.env, &conn->timer, MSEC);
		return;
	}
	iser__conn_lost(conn, -ENODEV, "its RDMA device is gone");
}

static void iser_terminate(struct dm_conn *dm)
{
	struct iser_conn *conn = conn_of(dm);

	if (!conn->closing)
		conn_end(conn);
}

/* ---- the other calls down ---- */

static void iser_send_control(struct dm_conn *dm, struct dm_send *send)
{
	iser__tx_send(conn_of(dm), send);
}

static void iser_put_data(struct dm_conn *dm, struct dm_data *data)
{
	iser__tx_put(conn_of(dm), data);
}

static void iser_get_data(struct dm_conn *dm, struct dm_data *data)
{
	iser__tx_get(conn_of(dm), data);
}

/* Count @n receives as @conn's own; NULL, or why it cannot have them. */
static const char *own_receives_take(const struct iser_conn *conn, unsigned n)
{
	const struct iser *front = conn->iser->front;
	int more = (int)n - (int)conn->receives;

	if (n > conn->recvq->capacity)
		return "it takes fewer receives than the window has commands";
	if (iser__recvq_pages(own_receives_add(conn, more)) <=
	    arena_pages(front->arena) / RECV_PART)
		return NULL;
	(void)own_receives_add(conn, -more);
	return "receive buffers would take too much of the memory: "
	       "a larger [memory] arena lets more sessions in";
}

/* @n receives for @conn; NULL, or why it cannot have them. */
static const char *receives_get(struct iser_conn *conn, unsigned n)
{
	const char *why = NULL;

	if (conn->own_recvq)
		why = own_receives_take(conn, n);
	if (why != NULL)
		return why;
	receives_set(conn, n);
	return receives_missing(conn) ? NO_RECEIVES : NULL;
}

static int iser_notice_keys(struct dm_conn *dm, const struct dm_keys *keys)
{
	struct iser_conn *conn = conn_of(dm);
	struct iser *iser = conn->iser;
	const char *why;

	if (conn->full)
		return 0;
	why = receives_get(conn, keys->window + RECV_SPARE);
	if (why == NULL)
		return 0;
	if (log_allowed(&iser->limit, env_now(iser->env)))
		log_warn("RDMA device %s: a login refused: %s",
			 rdma_device_name(conn->device->rdma), why);
	return -ENOMEM;
}

static void iser_enable(struct dm_conn *dm, struct dm_send *response)
{
	struct iser_conn *conn = conn_of(dm);

	conn->full = true;
	conn->tx.solo = true;
	conn->tx.login = response;
	iser__tx_send(conn, response);
}

static void iser_task_done(struct dm_conn *dm, uint32_t itt)
{
	iser__tx_forget(conn_of(dm), itt);
}

static const struct dm_ops iser_ops = {
	.name = "iser",
	.rdma = true,
	.send_data_max = ISER_SEND_DATA_MAX,
	.window_max = ISER_WINDOW_MAX,
	.send_control = iser_send_control,
	.put_data = iser_put_data,
	.get_data = iser_get_data,
	.notice_keys = iser_notice_keys,
	.enable = iser_enable,
	.task_done = iser_task_done,
	.detach = iser__detach,
	.attach = iser__attach,
	.terminate = iser_terminate,
};

void iser__conn_turn(struct env_task *task)
{
	struct iser_conn *conn = container_of(task, struct iser_conn, turn);

	iser__tx_cancelled(conn);
	if (!conn->finishing) {
		iser__recvq_fill(conn->recvq, conn->dm.env);
		conn->dm.share = iser__recvq_share(conn->recvq);
	}
	iser__tx_flush(conn);
}

/* ---- events ---- */

void iser__conn_async(struct iser_conn *conn, enum ibv_event_type event)
{
	switch (event) {
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		conn->device->says_last_wqe = true;
		conn->last_wqe = true;
		if (conn->closing)
			iser__cq_heat(conn); /* what completed before it */
		break;
	case IBV_EVENT_COMM_EST:
		if (!conn->established && !conn->closing)
			(void)rdma_notify(conn->id, event);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_CQ_ERR:
		iser__conn_lost(conn, -EIO, ibv_event_type_str(event));
		break;
	default:
		break;
	}
}

void iser__conn_cm(struct iser_conn *conn, enum rdma_cm_event_type event)
{
	struct ibv_qp_attr attr = { .min_rnr_timer = RNR_TIMER };

	switch (event) {
	case RDMA_CM_EVENT_ESTABLISHED:
		conn->established = true;
		/* Only slower without it. */
		if (!conn->closing)
			(void)ibv_modify_qp(conn->qp, &attr,
					    IBV_QP_MIN_RNR_TIMER);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		conn->hung_up = true;
		/* It may do so before the device tells that its answer went. */
		iser__conn_lost(conn, -ECONNRESET,
				conn->goodbye ? NULL : "the initiator hung up");
		break;
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		/* At its end it has no device any more: only its id is left. */
		if (conn->qp != NULL)
			iser__device_removed(conn->device, conn->iser);
		else
			conn->removed = true;
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		break;
	default:
		iser__conn_lost(conn, -ECONNABORTED, rdma_event_str(event));
		break;
	}
}

/* ---- the beginning ---- */

/* As deep as the device makes it; 0, or -errno with @why. */
static int qp_create(struct iser_conn *conn, unsigned *depth, char *why,
		     size_t why_len)
{
	struct rdma_device *rdma = conn->device->rdma;
	unsigned want = iser__tx_depth(rdma);
	uint32_t inlined = INLINE_WANTED;
	int rv;

	for (;;) {
		struct ibv_qp_init_attr attr = {
			.qp_context = &conn->watch,
			.send_cq = conn->cq,
			.recv_cq = conn->cq,
			.srq = conn->recvq->srq,
			.qp_type = IBV_QPT_RC,
			.cap = { .max_send_wr = want,
				 .max_send_sge = rdma->sge_max,
				 .max_inline_data = inlined },
		};

		if (conn->own_recvq) {
			attr.cap.max_recv_wr = conn->recvq->capacity;
			attr.cap.max_recv_sge = conn->recvq->tail ? 4 : 3;
		}
		if (rdma_create_qp(conn->id, rdma->pd, &attr) == 0) {
			conn->qp = conn->id->qp;
			conn->tx.inline_max = attr.cap.max_inline_data;
			*depth = want;
			return 0;
		}
		if (inlined > 0)
			inlined = 0;
		else if (want / 2 >= DEPTH_LEAST)
			want /= 2;
		else
			break;
	}
	rv = errno != 0 ? -errno : -EIO;
	snprintf(why, why_len, "%s makes no queue pair more, of %d at most: %s",
		 rdma_device_name(rdma), rdma->attr.max_qp, strerror(-rv));
	return rv;
}

static int queues_open(struct iser_conn *conn, unsigned reads_max, char *why,
		       size_t why_len)
{
	struct iser_device *device = conn->device;
	const struct ibv_device_attr *attr = &device->rdma->attr;
	unsigned depth = 0;
	int rv;

	conn->recvq = device->recvq;
	conn->own_recvq = device->recvq == NULL;
	if (conn->own_recvq) {
		rv = iser__recvq_open(device->rdma, conn->dm.env, RECVQ_OWN,
				      iser__receives_max(device->rdma,
							 RECV_OWN_MAX,
							 attr->max_qp_wr),
				      &conn->recvq);
		if (rv < 0)
			return rv;
		conn->recvq->owner = conn;
		conn->recvq->broken = iser__conn_recvq_broken;
	}
	/* Every request in flight may complete at once, with an error. */
	rv = iser__cq_open(conn, iser__tx_depth(device->rdma) +
					 conn->recvq->capacity);
	if (rv < 0)
		return rv;
	rv = qp_create(conn, &depth, why, why_len);
	if (rv < 0)
		return rv;
	if (conn->own_recvq)
		conn->recvq->qp = conn->qp;
	rv = iser__tx_init(conn, depth, reads_max);
	if (rv == -EBUSY)
		snprintf(why, why_len, NO_PAGES("send"));
	return rv;
}

void iser__conn_recvq_broken(struct recvq *q)
{
	iser__conn_lost(q->owner, -EIO, "receives cannot be posted");
}

static struct iser_conn *conn_new(struct iser_portal *portal,
				  struct iser_device *device,
				  struct rdma_cm_id *id)
{
	struct iser_conn *conn = calloc(1, sizeof(*conn));
	struct iser *iser = portal->iser;

	if (conn == NULL)
		return NULL;
	conn->iser = iser;
	conn->device = device;
	conn->id = id;
	conn->cm.event = iser__on_cm;
	conn->watch.cb = iser__on_async;
	atomic_store(&conn->reader, iser);
	conn->turn.cb = iser__conn_turn;
	conn->timer.cb = on_timer;
	conn->dm.ops = &iser_ops;
	conn->dm.up = &iscsi_dm_up;
	conn->dm.env = iser->env;
	memcpy(&conn->dm.local, rdma_get_local_addr(id),
	       sizeof(id->route.addr.src_storage));
	memcpy(&conn->dm.peer, rdma_get_peer_addr(id),
	       sizeof(id->route.addr.dst_storage));
	id->context = &conn->cm;
	TAILQ_INSERT_TAIL(&iser->conns, conn, link);
	iser->conns_count++;
	device->conns_count++;
	counter_add(&iser__conns, 1);
	return conn;
}

/* It never was a connection: nothing is with the device. */
static void conn_undo(struct iser_conn *conn, int status)
{
	conn->closing = true; /* there is nothing that terminate() could do */
	if (conn->dm.owner != NULL) {
		conn->dm.up->lost(conn->dm.owner, status,
				  "no resources for an RDMA connection");
		conn->dm.up->closed(conn->dm.owner);
	}
	if (conn->qp != NULL)
		rdma_destroy_qp(conn->id);
	conn->qp = NULL;
	conn_release(conn);
}

/* Our private data; what the initiator's says of it is kept. */
static void hello(struct iser_conn *conn, const struct rdma_conn_param *param,
		  uint8_t *private)
{
	const struct ibv_device_attr *attr = &conn->device->rdma->attr;

	conn->invalidates = iser__cm_invalidates(param->private_data,
						 param->private_data_len);
	/*
	 * libiscsi 1.19, and QEMU with it, counts immediate data in the header
	 * and does not attach it.  It says that it cannot have STags invalidated;
	 * the kernel's initiator says that it can.
	 */
	conn->dm.no_immediate = !conn->invalidates;
	conn->dm.no_window = !conn->invalidates; /* nor does it count */
	if ((attr->device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) == 0)
		conn->invalidates = false;
	iser__cm_put(private, conn->invalidates);
}

/*
 * 0, or -errno, maybe with @why; -ECONNREFUSED if the session's side does not want
 * it.
 */
static int conn_accept(struct iser_conn *conn, unsigned portal,
		       const struct rdma_conn_param *param, char *why,
		       size_t why_len)
{
	const struct ibv_device_attr *attr = &conn->device->rdma->attr;
	unsigned reads = MIN(param->initiator_depth,
			     (unsigned)MAX(attr->max_qp_init_rd_atom, 0));
	uint8_t private[ISER_CM_LEN];
	struct rdma_conn_param ours = {
		.private_data = private,
		.private_data_len = sizeof(private),
		.flow_control = 1,
		.rnr_retry_count = 7, /* they wait for us for ever */
	};
	int rv;

	reads = MIN(reads, TX_READS_MAX);
	if (reads == 0) { /* nothing could be written */
		snprintf(why, why_len, "%s no RDMA READ",
			 param->initiator_depth == 0 ? "the initiator serves"
						     : "the device starts");
		return -EPROTO;
	}
	ours.initiator_depth = (uint8_t)reads;
	hello(conn, param, private);
	/* Before anything is made for it: asking is free. */
	conn->dm.owner =
		iscsi_conn_accept(conn->iser->iscsi, &conn->dm, portal);
	if (conn->dm.owner == NULL)
		return -ECONNREFUSED;
	rv = queues_open(conn, reads, why, why_len);
	if (rv < 0)
		return rv;
	rv = iser__cq_start(conn);
	if (rv < 0)
		return rv;
	/* From here on it ends by way of iser__conn_unpolled(). */
	if (conn->own_recvq)
		(void)own_receives_add(conn, RECV_LOGIN);
	receives_set(conn, RECV_LOGIN);
	if (receives_missing(conn))
		iser__conn_lost(conn, -ENOMEM, NO_RECEIVES);
	if (!iser__conn_alive(conn)) { /* they could not be posted */
		(void)rdma_reject(conn->id, NULL, 0);
		return 0;
	}
	if (rdma_accept(conn->id, &ours) != 0)
		iser__conn_lost(conn, -errno, "accepting failed");
	return 0;
}

void iser__conn_request(struct iser_portal *portal, struct rdma_cm_id *id,
			const struct rdma_conn_param *param)
{
	struct iser *iser = portal->iser;
	struct iser_device *device;
	struct iser_conn *conn = NULL;
	char why[240] = "";
	int rv = -ESHUTDOWN;

	/* It takes one, its completion channel. */
	if (!iser->closing)
		rv = descriptors_left(iser->channel->fd)
			     ? iser__device_get(iser, id->verbs, &device, why,
						sizeof(why))
			     : -EMFILE;
	if (rv == 0) {
		conn = conn_new(portal, device, id);
		if (conn != NULL)
			rv = conn_accept(conn, portal->number, param, why,
					 sizeof(why));
		else
			rv = -ENOMEM;
	}
	if (rv == 0)
		return;
	counter_add(&iser__refused, 1);
	/* Whom iscsi does not want it has told of. */
	if (rv != -ECONNREFUSED &&
	    log_allowed(&iser->limit, env_now(iser->env)))
		log_warn("portal %s: an RDMA connection refused: %s",
			 portal->name, why[0] != '\0' ? why : strerror(-rv));
	(void)rdma_reject(id, NULL, 0);
	if (conn != NULL)
		conn_undo(conn, rv);
	else
		rdma_destroy_id(id);
}
