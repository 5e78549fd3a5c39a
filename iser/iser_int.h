/*
 * iser_int: what the files of iser share.
 *
 *	wire.c		headers and private data: pure
 *	recvq.c		receive buffers of a device, or of one connection
 *	tx.c		the send queue: SEND, RDMA WRITE, RDMA READ
 *	rx.c		a message that came in, on its way to the session
 *	cq.c		completions: polling, arming, spinning
 *	conn.c		a connection's life, and the calls down
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
 */
#ifndef BASALT_ISER_ISER_INT_H
#define BASALT_ISER_ISER_INT_H

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
#include <rdma/rdma_cma.h>
#include <stdlib.h>

/* Receives: a header, pages for 8 KiB of data, and what an AHS displaces. */
#define RECV_HEAD_BYTES 512u
#define RECV_PAGES 2u
#define RECV_DATA_BYTES (RECV_PAGES * PAGE_BYTES)
#define RECV_SHARED_MAX 1024u /* of a device's shared queue */
#define RECV_OWN_MAX 512u /* of a connection's own */
#define RECV_LOGIN 4u /* a connection's share before full feature phase */
#define RECV_SPARE 16u /* beside the window: immediate and other PDUs */

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
#define TX_BUCKETS 64u
#define TX_READS_MAX 32u

_Static_assert(ISER_FIXED_LEN + ISER_SEND_DATA_MAX <= TX_SLOT_BYTES,
	       "any PDU of full feature phase fits a slot");
_Static_assert(ISCSI_LOGIN_DATA_MAX <= TX_BIG_PAGES * PAGE_BYTES,
	       "any PDU of the login fits the page pair");

/* ---- recvq.c ---- */

struct recv_slot {
	struct recvq *q;
	uint8_t *head; /* RECV_HEAD_BYTES of registered memory */
	struct page *pages[RECV_PAGES]; /* NULL: none now */
	bool posted;
	TAILQ_ENTRY(recv_slot) link; /* idle */
};
TAILQ_HEAD(recv_slots, recv_slot);

/*
 * Receive buffers.  A device's shared queue serves all its connections; where a
 * device has none each connection has a queue of its own.
 */
struct recvq {
	struct rdma_device *rdma;
	struct env *env;
	struct rdma_watch watch; /* of the shared queue */
	void (*broken)(struct recvq *q); /* posting failed, or it broke */
	void *owner;
	struct ibv_srq *srq; /* or */
	struct ibv_qp *qp;
	bool tail; /* a fourth SGE takes what an AHS displaces */
	bool stopped; /* it broke, or its connection ended */
	unsigned capacity, wanted, posted;
	struct recv_slot *slots;
	struct recv_slots idle;
	struct page **heads; /* the pages that slots' heads lie in */
	unsigned heads_count;
	struct page_waiter waiter;
};

/* @shared: with a shared receive queue.  0 or -errno. */
int iser__recvq_open(struct rdma_device *rdma, struct env *env, bool shared,
		     unsigned capacity, struct recvq **out);
/* Nothing of it is with the device any more. */
void iser__recvq_close(struct recvq *q);
/* Pages that @n receives take. */
size_t iser__recvq_pages(size_t n);
/* @n receives more are wanted, or fewer. */
void iser__recvq_want(struct recvq *q, int n);
/* Post what is wanted and can be had; the rest follows when memory comes. */
void iser__recvq_fill(struct recvq *q);
/* Was there no memory for all of them? */
bool iser__recvq_short(const struct recvq *q);
/* A slot was completed: its bytes may be looked at until it is given back. */
void iser__recvq_take(struct recv_slot *slot);
/* iser__recvq_fill() posts it again. */
void iser__recvq_give(struct recv_slot *slot);

/* ---- device.c ---- */

struct iser_device {
	struct iser *iser;
	struct rdma_device *rdma;
	struct recvq *recvq; /* shared; NULL: one for each connection */
	unsigned conns_count;
	bool gone; /* removed, or broken: closed with the last connection */
	/* It was seen to say when a queue pair uses no more receives. */
	bool says_last_wqe;
	unsigned vector; /* the next connection's */
	LIST_ENTRY(iser_device) link;
};

/* 0, or -errno with @why. */
int iser__device_get(struct iser *iser, struct ibv_context *verbs,
		     struct iser_device **out, char *why, size_t why_len);
/* It fails, or is being removed: end what is on it. */
void iser__device_gone(struct iser_device *device);
/* From now on see which come and go. */
void iser__devices_watch(struct iser *iser);
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
	uint8_t slot; /* TX_SLOTS: none */
	bool read, big, send;
};

struct tx {
	unsigned depth; /* of the send queue */
	uint64_t head, tail; /* oldest in flight, next one */
	struct tx_wr *wrs; /* by number modulo depth */
	unsigned inline_max;
	unsigned read_sge, write_sge;
	struct page *pages[TX_SLOT_PAGES], *big[TX_BIG_PAGES];
	uint8_t free[TX_SLOTS];
	unsigned free_count;
	bool big_used;
	struct tx_items queue; /* SEND and WRITE, in order */
	struct tx_items reads; /* not all of it posted */
	struct tx_items cancelled;
	unsigned reads_max, reads_out; /* READs in flight */
	unsigned sends_out;
	unsigned gets_count;
	TAILQ_HEAD(, iser_data) gets[TX_BUCKETS];
	/*
	 * The initiator may have one receive until it has seen the first answer
	 * of full feature phase: one PDU at a time till then.
	 */
	bool solo;
	const struct dm_send
		*login; /* its final response, until it is posted */
	uint64_t login_number; /* then */
	bool marker; /* posted, behind everything */
	bool drained; /* and it came back */
};

struct iser_conn;

int iser__tx_init(struct iser_conn *conn, unsigned depth, unsigned reads_max);
void iser__tx_fini(struct iser_conn *conn);
void iser__tx_flush(struct iser_conn *conn);
void iser__tx_complete(struct iser_conn *conn, uint64_t number, bool ok);
/* Behind all that was posted; false: the device takes nothing any more. */
bool iser__tx_marker(struct iser_conn *conn);
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
};

struct iser_portal;

struct iser_conn {
	struct dm_conn dm;
	struct iser_cm cm;
	struct rdma_watch watch;
	struct iser *iser;
	struct iser_device *device;
	struct rdma_cm_id *id;
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_comp_channel *channel;
	uv_poll_t poll;
	unsigned cq_events; /* not acknowledged yet */
	struct recvq *recvq;
	bool own_recvq;
	unsigned receives; /* our share of recvq->wanted */
	bool established, full, lost, closing, finishing;
	bool invalidates; /* its STags, with our responses */
	bool removed; /* its device was pulled out */
	bool goodbye; /* a Logout Response went: the initiator hangs up */
	bool hung_up; /* it did */
	bool last_wqe; /* no receive completes any more */
	bool waits_last;
	struct tx tx;
	struct env_task turn;
	struct env_timer timer; /* while closing */
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
/* A connection request: @id is taken over, whatever comes of it. */
void iser__conn_request(struct iser_portal *portal, struct rdma_cm_id *id,
			const struct rdma_conn_param *param);
void iser__conn_removed(struct iser_conn *conn);
void iser__conn_lost(struct iser_conn *conn, int status, const char *why);
/* A message lies in @slot, which is given back. */
void iser__conn_received(struct iser_conn *conn, struct recv_slot *slot,
			 uint32_t len);
void iser__conn_recvq_broken(struct recvq *q); /* a connection's own */
/* While closing: is all that has to come back here? */
void iser__conn_drained(struct iser_conn *conn);

static inline bool iser__conn_alive(const struct iser_conn *conn)
{
	return !conn->closing && !conn->lost;
}

/* ---- rx.c ---- */

/* A message of @len bytes lies in @slot, which stays the caller's. */
void iser__receive(struct iser_conn *conn, struct recv_slot *slot, size_t len);

/* ---- cq.c ---- */

int iser__cq_open(struct iser_conn *conn, unsigned entries);
void iser__cq_close(struct iser_conn *conn); /* the poll handle is closed */
void iser__cq_start(struct iser_conn *conn);
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
	struct rdma_cm_id *id; /* NULL: not listening */
	struct env_timer retry;
	char why[240]; /* it does not listen */
	TAILQ_ENTRY(iser_portal) link;
};

/* Devices came or went: portals at every address use what is there. */
void iser__portals_devices(struct iser *iser);
/* The device is about to be closed: listen elsewhere, or later. */
void iser__portals_device_gone(struct iser *iser, struct ibv_context *verbs);
void iser__portals_close(struct iser *iser);
void iser__channel_close(struct iser *iser);

/* ---- iser.c ---- */

struct iser {
	struct env *env;
	struct iscsi *iscsi;
	struct arena *arena;
	uint64_t spin_ns;
	TAILQ_HEAD(, iser_portal) portals;
	LIST_HEAD(, iser_device) devices;
	TAILQ_HEAD(, iser_conn) conns, hot;
	unsigned conns_count;
	unsigned own_receives; /* of connections that share none */
	LIST_HEAD(, iser_leaving) leaving;
	unsigned leaving_count;
	struct rdma_event_channel *channel;
	uv_poll_t *channel_poll;
	struct env_task poll_task, close_task;
	struct env_timer sweep; /* iser__sweep(): devices come and go */
	unsigned sweeps; /* soon ones that are to come */
	unsigned devices_seen; /* at the last one */
	bool closing;
	void (*close_cb)(void *arg);
	void *close_arg;
	struct health_check health;
	struct log_limit limit;
	uint8_t flat[RECV_DATA_BYTES]; /* data of a PDU whose pages lie apart */
};

void iser__maybe_closed(struct iser *iser);

extern struct counter iser__conns, iser__refused, iser__lost, iser__reads,
	iser__writes, iser__sends, iser__receives_posted, iser__invalidated,
	iser__undrained;

#endif
