/*
 * iser_int: what the files of iser share.
 *
 *	wire.c		headers and private data: pure
 *	recvq.c		receive buffers of a device, or of one connection
 *	tx.c		the send queue: SEND, RDMA WRITE, RDMA READ
 *	rx.c		a message that came in, on its way to the session
 *	cq.c		completions: polling, arming, spinning
 *	conn.c		a connection's life, and the calls down
 *	move.c		its way to another shard, and what is learnt of it here
 *	device.c	an RDMA device with what its connections share
 *	listener.c	connection manager events, portals
 *	iser.c		the room's face
 *
 * A connection, from its request on: request() finds the device, asks the
 * session's side, makes the queue pair, has receives posted and accepts
 * (conn.c).  Login PDUs and all that follow arrive in receive buffers (recvq.c,
 * cq.c), and go up (rx.c).
 * What the session sends is queued and posted at the end of the turn (tx.c).
 * terminate() puts the queue pair into error, waits until the device has let go
 * of every work request, and only then gives anything back.
 *
 * Threads: there is a struct iser for each shard.  The front, shard 0's, has
 * portals, devices and the sweeps; a connection begins there.  The others are
 * shares: connections that moved there during login, with all that they do until
 * the end, which passes by the front once more, where devices are counted.
 * Between shards goes, by message: a connection, both ways; that the front learnt
 * something of what is on a share (iser__look()); that a share needs a device, or
 * its receive queue, looked after.  Shared under a lock: that receive queue.
 */
#ifndef BASALT_ISER_ISER_INT_H
#define BASALT_ISER_ISER_INT_H

#include "base/address.h"
#include "base/copied.h"
#include "base/health.h"
#include "base/log.h"
#include "base/rdma.h"
#include "base/shard.h"
#include "base/stats.h"
#include "base/util.h"
#include "iser/iser.h"
#include "iser/wire.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Receives: a header, pages for 8 KiB of data, and what an AHS displaces. */
#define RECV_HEAD_BYTES 512u
#define RECV_PAGES 2u
#define RECV_DATA_BYTES (RECV_PAGES * PAGE_BYTES)
#define RECV_SHARED_MAX 1024u /* of a device's shared queue */
#define RECV_SHARED_LEAST 64u /* however many devices there are */
#define RECV_OWN_MAX 512u /* of a connection's own */
#define RECV_LOGIN 4u /* a connection's share before full feature phase */
#define RECV_SPARE 16u /* beside the window: immediate and other PDUs */
/* All of them, of queues shared and not, take at most this part of the arena. */
#define RECV_PART 4u

/* Sends: headers and up to 128 bytes of data in a slot, more in a page pair. */
#define TX_SLOT_BYTES 256u
#define TX_SLOTS 64u
#define TX_SLOT_PAGES (TX_SLOTS * TX_SLOT_BYTES / PAGE_BYTES)
#define TX_BIG_PAGES 2u
#define TX_SLOT_DATA (TX_SLOT_BYTES - ISER_FIXED_LEN)
#define TX_DEPTH 256u
#define TX_BATCH 16u
#define TX_SGE 16u
#define TX_WR_BYTES (1u << 20) /* devices have a limit: SoftRoCE 8 MiB */
#define TX_READS_MAX 32u
/* In flight, of all connections of a device. */
#define TX_READS_BYTES (2u << 20)
#define TX_READS_LEAST (4u * PAGE_BYTES) /* of one of them, however many */

_Static_assert(ISER_FIXED_LEN + ISER_SEND_DATA_MAX <= TX_SLOT_BYTES,
	       "any PDU of full feature phase fits a slot");
_Static_assert(ISCSI_LOGIN_DATA_MAX <= TX_BIG_PAGES * PAGE_BYTES,
	       "any PDU of the login fits the page pair");

/* ---- recvq.c ---- */

struct recv_slot {
	struct recvq *q;
	uint8_t *head; /* RECV_HEAD_BYTES of registered memory */
	struct page *pages[RECV_PAGES]; /* NULL: none now */
	struct page *spare[RECV_PAGES]; /* iser__recvq_show() */
	struct ibv_sge sge[2 + RECV_PAGES]; /* of what there is of them */
	bool posted;
	SLIST_ENTRY(recv_slot) link; /* idle */
};
SLIST_HEAD(recv_slots, recv_slot);

/*
 * Receive buffers.  A device's shared queue serves all its connections; where a
 * device has none each connection has a queue of its own.
 */
struct recvq {
	struct rdma_device *rdma;
	struct env *env; /* its home: the device's shard, or its connection's */
	struct rdma_watch watch; /* of the shared queue */
	/* Posting failed, or it broke: told at home. */
	void (*broken)(struct recvq *q);
	void *owner;
	struct env_task short_task, broken_task; /* from a share to home */
	bool locked;
	pthread_mutex_t lock; /* if so: of all that follows */
	struct ibv_srq *srq; /* or */
	struct ibv_qp *qp;
	bool tail; /* a fourth SGE takes what an AHS displaces */
	bool stopped; /* it broke, or its connection ended */
	bool waits; /* for pages: home does, or is about to hear of it */
	unsigned capacity, wanted, posted;
	/* Of a shared one: iser__recvq_taken(). */
	unsigned taken, takers, calm;
	atomic_uint share;
	struct recv_slot *slots;
	struct recv_slots idle;
	struct page **heads; /* the pages that slots' heads lie in */
	unsigned heads_count;
	struct page_waiter waiter;
};

enum recvq_kind {
	RECVQ_OWN, /* of a connection */
	RECVQ_SHARED, /* by connections of a shard */
	RECVQ_SHARDS, /* by connections of all shards */
};

/*
 * 0 or -errno.  @env: its home.  The other calls may be made on any shard, which
 * gives its own.
 */
int iser__recvq_open(struct rdma_device *rdma, struct env *env,
		     enum recvq_kind kind, unsigned capacity,
		     struct recvq **out);
/* Nothing of it is with the device any more. */
void iser__recvq_close(struct recvq *q);
/* A connection's own moves with it. */
void iser__recvq_leave(struct recvq *q);
void iser__recvq_arrive(struct recvq *q, struct env *env);
/* Pages that @n receives take, and how many receives @pages are enough for. */
size_t iser__recvq_pages(size_t n);
size_t iser__recvq_fit(size_t pages);
/* @n receives more are wanted, or fewer. */
void iser__recvq_want(struct recvq *q, struct env *env, int n);
/* Post what is wanted and can be had; the rest follows when memory comes. */
void iser__recvq_fill(struct recvq *q, struct env *env);
/* Was there no memory for all of them? */
bool iser__recvq_short(struct recvq *q);
/*
 * A connection of a shared queue, which last took @before of its receives at one
 * time, took @now.
 */
void iser__recvq_taken(struct recvq *q, unsigned before, unsigned now);
/* dm_conn.share of its connections. */
static inline unsigned iser__recvq_share(const struct recvq *q)
{
	return atomic_load_explicit(&q->share, memory_order_relaxed);
}
/* Has the device none of them? */
bool iser__recvq_back(struct recvq *q);
/*
 * The first @n pages of @slot go up, where they may be kept.  False: they may
 * not, as on iWARP no receive can be without, and there are none to replace them.
 */
bool iser__recvq_show(struct recv_slot *slot, struct env *env, unsigned n);
/*
 * A slot was completed: its bytes may be looked at until it is given back here.
 * iser__recvq_fill() posts it again.
 */
void iser__recvq_give(struct recv_slot *slot, struct env *env);

/* ---- device.c ---- */

/* The front's.  A connection that is counted may use it on its own shard. */
struct iser_device {
	struct iser *iser;
	struct rdma_device *rdma;
	struct recvq *recvq; /* shared; NULL: one for each connection */
	unsigned conns_count; /* of all shards */
	atomic_uint fetchers; /* of them, that have data to fetch */
	/* Removed, or broken: closed with the last connection. */
	atomic_bool gone;
	/* It was seen to say when a queue pair uses no more receives. */
	atomic_bool says_last_wqe;
	/*
	 * It did not let go of a connection: receives of the shared queue may be
	 * lost, until that is made anew.
	 */
	atomic_bool keeps;
	unsigned vector; /* the next connection's */
	atomic_bool removed; /* a share said so, by */
	struct env_task removed_task;
	LIST_ENTRY(iser_device) link;
};

/* Requests that a connection posts, or fewer; receives, of at most @most. */
unsigned iser__tx_depth(const struct rdma_device *rdma);
unsigned iser__receives_max(const struct rdma_device *rdma, unsigned most,
			    int device_max);
/* 0, or -errno with @why. */
int iser__device_get(struct iser *iser, struct ibv_context *verbs,
		     struct iser_device **out, char *why, size_t why_len);
/* It fails, or is being removed: end what is on it. */
void iser__device_gone(struct iser_device *device);
/* A connection on it was told that it is being removed, on @iser's shard. */
void iser__device_removed(struct iser_device *device, const struct iser *iser);
/* From now on see which come and go. */
void iser__devices_watch(struct iser *iser);
/* It did not let go of a connection in time; on any shard. */
void iser__device_keeps(struct iser_device *device);
/* A connection less. */
void iser__device_put(struct iser_device *device);
void iser__devices_close(struct iser *iser);
void iser__sweep(struct env_timer *timer);

/* ---- tx.c ---- */

enum tx_kind { TX_SEND, TX_PUT, TX_GET };

/* Lies in the impl of a dm_send or a dm_data. */
struct tx_item {
	TAILQ_ENTRY(tx_item) link;
	void *owner; /* struct dm_send or dm_data */
	uint8_t kind;
	bool queued; /* not all of it is posted */
};
TAILQ_HEAD(tx_items, tx_item);

struct iser_data {
	struct tx_item item;
	uint32_t posted; /* bytes */
	unsigned wrs; /* READs that the device works on */
	bool cancelled;
	TAILQ_ENTRY(iser_data) bucket; /* a READ: by its task */
};

/* A work request that was posted. */
struct tx_wr {
	struct tx_item *item; /* whose last one it is; a READ's: any */
	uint32_t bytes; /* of a READ */
	uint8_t slot; /* TX_SLOTS: none */
	bool read, big, send;
	bool done; /* before one in front of it was */
};

struct tx {
	unsigned depth; /* of the send queue */
	uint64_t head, tail; /* oldest in flight, next one */
	uint64_t watched; /* @head, when conn->timer last looked */
	struct tx_wr *wrs; /* by the lower bits of their number, @wrs_mask */
	uint64_t wrs_mask;
	unsigned inline_max;
	/*
	 * Each request is signalled.  To iWARP one is done when TCP has it, which may
	 * send it later; of what is not signalled Linux' siw then sends the memory as
	 * it is by that time (siw_qp_tx.c), used for something else.
	 */
	bool signals;
	unsigned read_sge, write_sge;
	struct page *pages[TX_SLOT_PAGES], *big[TX_BIG_PAGES];
	uint8_t free[TX_SLOTS];
	unsigned free_count;
	bool big_used;
	struct tx_items queue; /* SEND and WRITE, in order */
	struct tx_items reads; /* not all of it posted */
	struct tx_items cancelled;
	unsigned reads_max, reads_out; /* READs in flight */
	uint32_t reads_bytes; /* of them */
	unsigned sends_out;
	unsigned gets_count;
	TAILQ_HEAD(, iser_data) gets[ISCSI_ITT_BUCKETS];
	/*
	 * The initiator may have one receive until it has seen the first answer
	 * of full feature phase: one PDU at a time till then.
	 */
	bool solo;
	const struct dm_send
		*login; /* its final response, until it is posted */
	uint64_t login_number; /* then */
	bool marker; /* posted, behind everything */
	bool drained; /* and it came back, or was not taken */
};

struct iser_conn;

int iser__tx_init(struct iser_conn *conn, unsigned depth, unsigned reads_max);
void iser__tx_fini(struct iser_conn *conn);
void iser__tx_flush(struct iser_conn *conn);
void iser__tx_complete(struct iser_conn *conn, uint64_t number, bool ok);
/* Behind all that was posted, if the device takes it. */
void iser__tx_marker(struct iser_conn *conn);
/* The queue pair is gone: all that is left ends with -ECANCELED. */
void iser__tx_cancel(struct iser_conn *conn);
bool iser__tx_empty(const struct iser_conn *conn);
/* What task_done() and the like left for the end of the turn. */
void iser__tx_cancelled(struct iser_conn *conn);
/* The calls down. */
void iser__tx_send(struct iser_conn *conn, struct dm_send *send);
void iser__tx_put(struct iser_conn *conn, struct dm_data *data);
void iser__tx_get(struct iser_conn *conn, struct dm_data *data);
void iser__tx_forget(struct iser_conn *conn, uint32_t itt);

/* ---- conn.c ---- */

/* Whom an event of the connection manager concerns. */
struct iser_cm {
	void (*event)(struct iser_cm *cm, const struct rdma_cm_event *event);
	/*
	 * On its way to another shard, which may go on with it as soon as this
	 * event is acknowledged: it is told before that, and only notes it.
	 */
	bool early;
};

enum iser_polled { POLL_NONE, POLL_OPEN, POLL_CLOSING };

struct iser_portal;

struct iser_conn {
	struct dm_conn dm;
	struct iser_cm cm;
	struct rdma_watch watch;
	struct iser *iser; /* of the shard that it is on */
	struct iser_device *device;
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	uv_poll_t poll;
	enum iser_polled polled; /* is the poll handle there? */
	unsigned cq_events; /* not acknowledged yet */
	struct recvq *recvq;
	bool own_recvq;
	unsigned receives; /* our share of recvq->wanted */
	unsigned taken; /* of them, when it was last looked */
	bool established, full, lost, closing, finishing;
	bool invalidates; /* its STags, with our responses */
	bool removed; /* its device was pulled out */
	bool goodbye; /* a Logout Response went: the initiator hangs up */
	bool hung_up; /* it did */
	bool last_wqe; /* no receive completes any more */
	unsigned last_waits; /* for the last receive, to come */
	/*
	 * From detach() to the turn behind attach() nothing goes up: a loss is
	 * kept, and what shard 0 learns meanwhile is noted.
	 */
	bool moving;
	int late_status;
	const char *late_why; /* NULL: it was not lost */
	_Atomic uint64_t noted; /* by move.c, a bit for each kind of event */
	_Atomic(struct iser *)
		reader; /* takes what is noted; NULL: nobody yet */
	struct tx tx;
	/* The end of the turn; also the connection, as a message. */
	struct env_task turn;
	struct env_timer timer; /* of what is in flight; then of the end */
	/* polling */
	bool hot;
	uint64_t active_ns, cold_ns;
	uint64_t spin_ns; /* how long to spin next */
	TAILQ_ENTRY(iser_conn) hot_link;
	TAILQ_ENTRY(iser_conn) link;
};

static inline struct iser_conn *conn_of(struct dm_conn *dm)
{
	return container_of(dm, struct iser_conn, dm);
}

/* Ids of initiators that logged out and have not hung up. */
void iser__leaving_close(struct iser *iser);
/* conn->turn: what calls down left for the end of the turn. */
void iser__conn_turn(struct env_task *task);
/* Its poll handle is closed. */
void iser__conn_unpolled(struct iser_conn *conn);
/* Events, on its shard. */
void iser__conn_async(struct iser_conn *conn, enum ibv_event_type event);
void iser__conn_cm(struct iser_conn *conn, enum rdma_cm_event_type event);
/* A connection request: @id is taken over, whatever comes of it. */
void iser__conn_request(struct iser_portal *portal, struct rdma_cm_id *id,
			const struct rdma_conn_param *param);
void iser__conn_removed(struct iser_conn *conn);
/* @why NULL: as agreed with the initiator. */
void iser__conn_lost(struct iser_conn *conn, int status, const char *why);
void iser__conn_recvq_broken(struct recvq *q); /* a connection's own */
/* Something was posted: it must not take for ever. */
void iser__conn_watch(struct iser_conn *conn);
/* While closing: is all that has to come back here? */
void iser__conn_drained(struct iser_conn *conn);

static inline bool iser__conn_alive(const struct iser_conn *conn)
{
	return !conn->closing && !conn->lost;
}

/* ---- move.c ---- */

/* The calls down. */
void iser__detach(struct dm_conn *dm);
void iser__attach(struct dm_conn *dm, struct env *to);
/* terminate() came while it moved: it ends where it is. */
void iser__stay(struct iser_conn *conn);
/* Nothing polls it any more: it may go. */
void iser__left(struct iser_conn *conn);
/* Events, as they come in. */
void iser__on_async(struct rdma_watch *watch, enum ibv_event_type event);
void iser__on_cm(struct iser_cm *cm, const struct rdma_cm_event *event);
/* Something was noted for connections there, or a device is gone. */
void iser__look(struct iser *share);
void iser__on_look(struct env_task *task);

/* ---- rx.c ---- */

/* A message of @len bytes lies in @slot, which stays the caller's. */
void iser__receive(struct iser_conn *conn, struct recv_slot *slot, size_t len);

/* ---- cq.c ---- */

int iser__cq_open(struct iser_conn *conn, unsigned entries);
void iser__cq_close(struct iser_conn *conn); /* the poll handle is closed */
/* Have its shard's loop watch it; 0 or -errno. */
int iser__cq_start(struct iser_conn *conn);
/* No more; iser__conn_unpolled() follows if it was watched. */
void iser__cq_stop(struct iser_conn *conn);
/* Look for completions in the next turn. */
void iser__cq_heat(struct iser_conn *conn);
/* Take what is there; how many. */
unsigned iser__cq_poll(struct iser_conn *conn);
void iser__cq_turn(struct env_task *task);

/* ---- listener.c ---- */

struct iser_portal {
	struct iser *iser;
	struct iser_cm cm;
	unsigned number;
	bool alone;
	struct sockaddr_storage address;
	char name[ADDRESS_TEXT];
	struct rdma_cm_id *id; /* NULL: not listening */
	struct env_timer retry;
	char why[240]; /* it does not listen */
	char partly[280]; /* it does, but not on all devices */
	TAILQ_ENTRY(iser_portal) link;
};

/* Devices came or went: portals at every address use what is there. */
void iser__portals_devices(struct iser *iser);
/* Does one of them lack a device that is there? */
bool iser__portals_partly(const struct iser *iser);
/* The device is about to be closed: listen elsewhere, or later. */
void iser__portals_device_gone(struct iser *iser, struct ibv_context *verbs);
void iser__portals_close(struct iser *iser);
/* Events of @id come to @iser's shard from now on; 0 or -errno. */
int iser__channel_take(struct iser *iser, struct rdma_cm_id *id);
void iser__channel_close(struct iser *iser);

/* ---- iser.c ---- */

/* Of a shard. */
struct iser {
	struct iser *front; /* shard 0's: maybe this one */
	struct env *env;
	uint64_t spin_ns;
	TAILQ_HEAD(, iser_conn) conns, hot;
	LIST_HEAD(, iser_leaving) leaving;
	unsigned leaving_count;
	/* A share's is opened for the first connection that comes. */
	struct rdma_event_channel *channel;
	uv_poll_t *channel_poll;
	struct env_task poll_task, close_task, look_task;
	atomic_bool looking; /* look_task is posted */
	struct log_limit limit;
	uint8_t flat[RECV_DATA_BYTES]; /* data of a PDU whose pages lie apart */

	/* The front's alone, but for what is atomic or never changes. */
	struct iscsi *iscsi;
	struct arena *arena;
	struct iser **shares; /* by shard; the first is the front */
	unsigned shares_count;
	unsigned shares_open; /* while closing */
	TAILQ_HEAD(, iser_portal) portals;
	LIST_HEAD(, iser_device) devices;
	unsigned conns_count; /* of all shards, and on the way */
	/* Of connections that share none, and all that shared queues may post. */
	atomic_uint receives;
	struct env_timer sweep; /* iser__sweep(): devices come and go */
	unsigned sweeps; /* soon ones that are to come */
	unsigned devices_seen; /* at the last one */
	bool closing;
	bool shares_closing; /* nothing goes to them any more */
	void (*close_cb)(void *arg);
	void *close_arg;
	struct health_check health;
};

static inline bool iser__is_front(const struct iser *iser)
{
	return iser == iser->front;
}

void iser__maybe_closed(struct iser *front);

extern struct counter iser__conns, iser__refused, iser__lost, iser__reads,
	iser__writes, iser__sends, iser__receives_posted, iser__invalidated,
	iser__undrained;

#endif
