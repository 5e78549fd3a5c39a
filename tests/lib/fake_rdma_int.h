/*
 * fake_rdma's parts, all behind one lock:
 *
 *	fake_rdma.c		the device: it comes, fails and goes; the lock;
 *				its events; what is made of it and destroyed
 *	fake_rdma_work.c	what it does: memory by key, work, completions
 *	fake_rdma_cm.c		librdmacm: channels, ids, their events,
 *				connections and their queue pairs
 *	fake_rdma_peer.c	the initiator at the other end
 */
#ifndef BASALT_TESTS_FAKE_RDMA_INT_H
#define BASALT_TESTS_FAKE_RDMA_INT_H

#include "base/util.h"
#include "tests/lib/fake_rdma.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define KEYS 64u

struct fake_mr {
	struct ibv_mr mr;
	LIST_ENTRY(fake_mr) link;
};

struct completion {
	struct ibv_wc wc;
	STAILQ_ENTRY(completion) link;
};

struct fake_channel {
	struct ibv_comp_channel channel;
	unsigned events;
	struct ibv_cq *cq;
};

struct fake_cq {
	struct ibv_cq cq;
	struct fake_channel *channel;
	STAILQ_HEAD(, completion) done;
	unsigned count, unacked;
	unsigned asyncs; /* fetched, not acknowledged */
	bool armed;
};

struct recv {
	uint64_t wr_id;
	struct ibv_sge sge[4];
	int sges;
	STAILQ_ENTRY(recv) link;
};
STAILQ_HEAD(recvs, recv);

struct fake_srq {
	struct ibv_srq srq;
	struct recvs recvs;
	unsigned count, max;
	unsigned asyncs;
	int sge_max;
};

struct work {
	struct ibv_send_wr wr;
	struct ibv_sge sge[16];
	uint8_t *inlined;
	STAILQ_ENTRY(work) link;
};

struct fake_qp {
	struct ibv_qp qp;
	struct fake_peer *peer;
	struct recvs recvs; /* without a shared queue */
	unsigned recvs_count, recvs_max;
	STAILQ_HEAD(, work) works;
	unsigned works_count, works_max, silent; /* done, but not told */
	unsigned asyncs;
	bool error;
};

struct fake_id {
	struct rdma_cm_id id;
	struct fake_peer *peer;
	bool listening;
	unsigned events; /* fetched, not acknowledged */
	LIST_ENTRY(fake_id) link;
};

/* It arrived at a peer. */
struct message {
	STAILQ_ENTRY(message) link;
	struct fake_message *m;
};

struct fake_peer {
	enum fake_peer_state state;
	struct fake_id *id; /* NULL: destroyed */
	struct fake_qp *qp;
	uint8_t private[4];
	unsigned depth, offered, reads_max;
	bool hold, hold_reads, frozen, error;
	unsigned let; /* that are done all the same */
	struct {
		uint8_t *memory;
		size_t len;
	} keys[KEYS];
	STAILQ_HEAD(, message) in;
};

/* The device. */
extern struct fake_rdma {
	struct fake_rdma_config config;
	bool there, hidden, twin, removed, fail_posts, fail_receives;
	bool dead, closed; /* it failed; then its context was closed */
	struct verbs_context vctx;
	struct ibv_device device, broken_device, twin_device;
	struct ibv_context broken; /* of the other device */
	LIST_HEAD(, fake_mr) mrs;
	LIST_HEAD(, fake_id) ids;
	STAILQ_HEAD(, async_event) asyncs;
	unsigned pds, cqs, qps, srqs, channels, cms, lists;
	struct ibv_srq *srq; /* the last one made */
	unsigned key_last;
	unsigned fail_at, calls;
} fake_rdma;

/* ---- fake_rdma.c ---- */

/* Shards call from their threads, and the initiators' test from its own. */
pthread_mutex_t *fake_rdma__lock(void);
void fake_rdma__unlock(pthread_mutex_t **held);

/* First line of everything that is called from outside. */
#define LOCKED                                                                 \
	__attribute__((cleanup(fake_rdma__unlock), unused))                    \
	pthread_mutex_t *held_ = fake_rdma__lock()

/* Nothing is locked: others go on meanwhile. */
void fake_rdma__hook_run(bool is_acked);
/* Until nothing is @unacked, which another thread must see to. */
void fake_rdma__wait_acked(const unsigned *unacked);
/* ... and somebody did. */
void fake_rdma__acked(void);

/* What polls the descriptor of a channel wakes up; or has nothing to fetch. */
void fake_rdma__ring(int fd);
void fake_rdma__hush(int fd);

/* Does this call fail? */
bool fake_rdma__fails(void);

static inline struct ibv_context *fake_rdma__verbs(void)
{
	return &fake_rdma.vctx.context;
}

void fake_rdma__async_add(enum ibv_event_type type, void *element);
/* Events of what is destroyed go, but for one that is in somebody's hands. */
void fake_rdma__asyncs_end(const void *element, const unsigned *unacked);

/* ---- fake_rdma_work.c ---- */

/* The calls that go through the context. */
void fake_rdma__ops_set(struct ibv_context *context);
void fake_rdma__cq_add(struct ibv_cq *cq_, const struct ibv_wc *wc);
/* What @sge names, which must be registered. */
uint8_t *fake_rdma__local(const struct ibv_sge *sge);
/* Everything that waits ends with a flush. */
void fake_rdma__qp_error(struct fake_qp *qp);
/* Do what was posted, as far as its peer lets it. */
void fake_rdma__qp_work(struct fake_qp *qp);
void fake_rdma__recvs_free(struct recvs *list);

/* ---- fake_rdma_cm.c ---- */

/* @listener: NULL, or who is told of a new @id. */
void fake_rdma__event_add(struct fake_id *id, struct fake_id *listener,
			  enum rdma_cm_event_type type,
			  const struct rdma_conn_param *param);
struct fake_id *fake_rdma__id_new(struct rdma_event_channel *channel,
				  void *context);

#endif
