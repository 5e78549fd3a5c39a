/* fake_rdma: see the header. */
#include "tests/lib/fake_rdma.h"

#include "base/util.h"

#include <assert.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

#define KEYS 64u
#define INFLIGHT 1024u
#define MESSAGE_MAX (1u << 20)

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
	unsigned events, unacked;
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

struct fake_cm {
	struct rdma_event_channel channel;
	STAILQ_HEAD(, fake_event) events;
};

struct fake_event {
	struct rdma_cm_event event;
	uint8_t private[56];
	STAILQ_ENTRY(fake_event) link;
};

struct async_event {
	struct ibv_async_event event;
	STAILQ_ENTRY(async_event) link;
};

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
	bool hold, frozen, error, silent;
	struct {
		uint8_t *memory;
		size_t len;
	} keys[KEYS];
	STAILQ_HEAD(, message) in;
};

static struct {
	struct fake_rdma_config config;
	bool there, hidden, removed, fail_posts, fail_receives;
	bool dead, closed; /* it failed; then its context was closed */
	struct verbs_context vctx;
	struct ibv_device device, broken_device;
	struct ibv_context broken; /* of the other device */
	LIST_HEAD(, fake_mr) mrs;
	LIST_HEAD(, fake_id) ids;
	STAILQ_HEAD(, async_event) asyncs;
	unsigned pds, cqs, qps, srqs, channels, cms, lists;
	struct ibv_srq *srq; /* the last one made */
	unsigned key_last;
	unsigned fail_at, calls;
} rdma;

/* ---- threads ---- */

/* Shards call from their threads, and the initiators' test from its own. */
static pthread_mutex_t lock;
static pthread_cond_t acked = PTHREAD_COND_INITIALIZER;

__attribute__((constructor)) static void lock_init(void)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&lock, &attr);
	pthread_mutexattr_destroy(&attr);
}

static pthread_mutex_t *lock_take(void)
{
	pthread_mutex_lock(&lock);
	return &lock;
}

static void lock_give(pthread_mutex_t **held)
{
	pthread_mutex_unlock(*held);
}

/* First line of everything that is called from outside. */
#define LOCKED                                                                 \
	__attribute__((cleanup(lock_give), unused)) pthread_mutex_t *held_ =   \
		lock_take()

static void (*_Atomic hook)(bool acked);

void fake_rdma_hook(void (*cb)(bool acked))
{
	hook = cb;
}

/* Nothing is locked: others go on meanwhile. */
static void hook_run(bool is_acked)
{
	void (*cb)(bool acked) = hook;

	if (cb != NULL)
		cb(is_acked);
}

/* Until nothing is @unacked, which another thread must see to. */
static void wait_acked(const unsigned *unacked)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 20;
	while (*unacked > 0) {
		int rv = pthread_cond_timedwait(&acked, &lock, &end);

		assert(rv == 0); /* it would wait for ever */
	}
}

static struct ibv_context *verbs_of(void)
{
	return &rdma.vctx.context;
}

static void ring(int fd)
{
	uint64_t one = 1;
	ssize_t n = write(fd, &one, sizeof(one));

	assert(n == sizeof(one));
}

static void hush(int fd)
{
	uint64_t value;

	/* Nonblocking: nothing to read is fine. */
	if (read(fd, &value, sizeof(value)) < 0)
		assert(errno == EAGAIN);
}

/* Does this call fail? */
static bool fails(void)
{
	rdma.calls++;
	errno = ENOMEM;
	return rdma.calls == rdma.fail_at;
}

void fake_rdma_fail(unsigned nth)
{
	LOCKED;

	rdma.fail_at = nth;
	rdma.calls = 0;
}

unsigned fake_rdma_calls(void)
{
	LOCKED;

	return rdma.calls;
}

void fake_rdma_fail_posts(bool fail)
{
	LOCKED;

	rdma.fail_posts = fail;
}

void fake_rdma_fail_receives(bool fail)
{
	LOCKED;

	rdma.fail_receives = fail;
}

/* ---- completions ---- */

static void cq_add(struct ibv_cq *cq_, const struct ibv_wc *wc)
{
	struct fake_cq *cq = container_of(cq_, struct fake_cq, cq);
	struct completion *c = calloc(1, sizeof(*c));

	assert(cq->count < (unsigned)cq_->cqe); /* an overrun */
	c->wc = *wc;
	STAILQ_INSERT_TAIL(&cq->done, c, link);
	cq->count++;
	if (!cq->armed)
		return;
	cq->armed = false;
	cq->channel->events++;
	cq->channel->cq = cq_;
	ring(cq->channel->channel.fd);
}

static int op_poll_cq(struct ibv_cq *cq_, int max, struct ibv_wc *wc)
{
	LOCKED;
	struct fake_cq *cq = container_of(cq_, struct fake_cq, cq);
	int n = 0;

	while (n < max && !STAILQ_EMPTY(&cq->done)) {
		struct completion *c = STAILQ_FIRST(&cq->done);

		STAILQ_REMOVE_HEAD(&cq->done, link);
		cq->count--;
		wc[n++] = c->wc;
		free(c);
	}
	return n;
}

static int op_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	LOCKED;

	/* As real ones do: only what completes from now on tells. */
	container_of(cq, struct fake_cq, cq)->armed = true;
	return 0;
}

/* Events of what is destroyed go, but for one that is in somebody's hands. */
static void asyncs_end(const void *element, const unsigned *unacked)
{
	struct async_event *e, *next;

	wait_acked(unacked);
	for (e = STAILQ_FIRST(&rdma.asyncs); e != NULL; e = next) {
		next = STAILQ_NEXT(e, link);
		if (e->event.element.qp == element) {
			STAILQ_REMOVE(&rdma.asyncs, e, async_event, link);
			free(e);
		}
	}
}

/* ---- memory ---- */

static uint8_t *local(const struct ibv_sge *sge)
{
	struct fake_mr *mr;

	LIST_FOREACH (mr, &rdma.mrs, link)
		if (mr->mr.lkey == sge->lkey) {
			assert(sge->addr >= (uintptr_t)mr->mr.addr);
			assert(sge->addr + sge->length <=
			       (uintptr_t)mr->mr.addr + mr->mr.length);
			return (uint8_t *)(uintptr_t)sge->addr;
		}
	assert(!"a local key that nobody has");
	return NULL;
}

static uint8_t *remote(struct fake_peer *peer, uint32_t key, uint64_t addr,
		       size_t len)
{
	uint64_t base = 4096ull * key;

	if (key >= KEYS || peer->keys[key].memory == NULL || addr < base ||
	    addr - base + len > peer->keys[key].len)
		return NULL;
	return peer->keys[key].memory + (addr - base);
}

void fake_peer_expose(struct fake_peer *peer, uint32_t key, void *memory,
		      size_t len)
{
	LOCKED;

	assert(key < KEYS);
	peer->keys[key].memory = memory;
	peer->keys[key].len = len;
}

/* ---- doing work ---- */

static void work_end(struct fake_qp *qp, struct work *w,
		     enum ibv_wc_status status)
{
	struct ibv_wc wc = { .wr_id = w->wr.wr_id,
			     .status = status,
			     .qp_num = qp->qp.qp_num };

	STAILQ_REMOVE_HEAD(&qp->works, link);
	if (w->wr.send_flags & IBV_SEND_SIGNALED || status != IBV_WC_SUCCESS) {
		/* Its place, and of those before it, is free again. */
		assert(qp->works_count > qp->silent);
		qp->works_count -= qp->silent + 1;
		qp->silent = 0;
		cq_add(qp->qp.send_cq, &wc);
	} else {
		qp->silent++;
	}
	free(w->inlined);
	free(w);
}

static size_t work_len(const struct work *w)
{
	size_t len = 0;

	for (int i = 0; i < w->wr.num_sge; i++)
		len += w->sge[i].length;
	return len;
}

static void arrive(struct fake_peer *peer, const struct work *w)
{
	size_t len = work_len(w), at = 0;
	struct fake_message *m = malloc(sizeof(*m) + len);
	struct message *in = calloc(1, sizeof(*in));

	m->len = len;
	m->invalidated = w->wr.opcode == IBV_WR_SEND_WITH_INV
				 ? w->wr.invalidate_rkey
				 : 0;
	for (int i = 0; i < w->wr.num_sge; i++) {
		const uint8_t *from = w->inlined != NULL ? w->inlined + at
							 : local(&w->sge[i]);

		memcpy(m->bytes + at, from, w->sge[i].length);
		at += w->sge[i].length;
	}
	if (m->invalidated != 0) {
		assert(m->invalidated < KEYS);
		assert(peer->keys[m->invalidated].memory != NULL);
		peer->keys[m->invalidated].memory = NULL;
	}
	in->m = m;
	STAILQ_INSERT_TAIL(&peer->in, in, link);
}

static enum ibv_wc_status work_do(struct fake_peer *peer, struct work *w)
{
	size_t len = work_len(w), at = 0;
	uint8_t *there;

	if (peer->error) {
		peer->error = false;
		return IBV_WC_REM_OP_ERR;
	}
	if (w->wr.opcode == IBV_WR_SEND ||
	    w->wr.opcode == IBV_WR_SEND_WITH_INV) {
		arrive(peer, w);
		return IBV_WC_SUCCESS;
	}
	there = remote(peer, w->wr.wr.rdma.rkey, w->wr.wr.rdma.remote_addr,
		       len);
	if (there == NULL)
		return IBV_WC_REM_ACCESS_ERR;
	for (int i = 0; i < w->wr.num_sge; i++) {
		uint8_t *here = local(&w->sge[i]);

		if (w->wr.opcode == IBV_WR_RDMA_READ)
			memcpy(here, there + at, w->sge[i].length);
		else
			memcpy(there + at, here, w->sge[i].length);
		at += w->sge[i].length;
	}
	return IBV_WC_SUCCESS;
}

static void async_add(enum ibv_event_type type, void *element)
{
	struct async_event *e = calloc(1, sizeof(*e));

	e->event.event_type = type;
	e->event.element.qp = element;
	STAILQ_INSERT_TAIL(&rdma.asyncs, e, link);
	ring(verbs_of()->async_fd);
}

/* Everything that waits ends with a flush. */
static void qp_error(struct fake_qp *qp)
{
	struct recv *r;
	struct work *w;

	if (!qp->error && qp->qp.srq != NULL && rdma.config.says_last_wqe)
		async_add(IBV_EVENT_QP_LAST_WQE_REACHED, &qp->qp);
	qp->error = true;
	if (rdma.removed || qp->peer->frozen)
		return; /* a dead device says nothing */
	while ((w = STAILQ_FIRST(&qp->works)) != NULL)
		work_end(qp, w, IBV_WC_WR_FLUSH_ERR);
	while ((r = STAILQ_FIRST(&qp->recvs)) != NULL) {
		STAILQ_REMOVE_HEAD(&qp->recvs, link);
		qp->recvs_count--;
		cq_add(qp->qp.recv_cq,
		       &(struct ibv_wc){ .wr_id = r->wr_id,
					 .status = IBV_WC_WR_FLUSH_ERR });
		free(r);
	}
}

static void qp_work(struct fake_qp *qp)
{
	struct fake_peer *peer = qp->peer;
	struct work *w;

	if (rdma.removed || peer->frozen)
		return;
	if (qp->error) {
		qp_error(qp);
		return;
	}
	while ((!peer->hold && (w = STAILQ_FIRST(&qp->works)) != NULL)) {
		enum ibv_wc_status status = work_do(peer, w);

		work_end(qp, w, status);
		if (status != IBV_WC_SUCCESS) {
			qp_error(qp);
			return;
		}
	}
}

/*
 * A device may send on while a READ's data still comes: unless it is told to
 * wait, what takes a key away must not overtake a READ that uses it.
 */
static void check_fence(const struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	const struct work *w;

	if (wr->opcode != IBV_WR_SEND_WITH_INV ||
	    wr->send_flags & IBV_SEND_FENCE)
		return;
	STAILQ_FOREACH (w, &qp->works, link)
		assert(w->wr.opcode != IBV_WR_RDMA_READ ||
		       w->wr.wr.rdma.rkey != wr->invalidate_rkey);
}

/* A device has a largest message (max_msg_sz), and SoftRoCE 8 MiB. */
static void check_length(const struct ibv_send_wr *wr)
{
	size_t sum = 0;

	for (int i = 0; i < wr->num_sge; i++)
		sum += wr->sg_list[i].length;
	assert(sum <= MESSAGE_MAX);
}

static int op_post_send(struct ibv_qp *qp_, struct ibv_send_wr *wr,
			struct ibv_send_wr **bad)
{
	LOCKED;
	struct fake_qp *qp = container_of(qp_, struct fake_qp, qp);
	unsigned reads = 0;
	struct work *w;

	for (; wr != NULL; wr = wr->next) {
		*bad = wr;
		if (rdma.fail_posts)
			return ENOMEM;
		assert(qp->works_count < qp->works_max);
		assert(wr->num_sge <= 16);
		check_fence(qp, wr);
		check_length(wr);
		w = calloc(1, sizeof(*w));
		w->wr = *wr;
		for (int i = 0; i < wr->num_sge; i++)
			w->sge[i] = wr->sg_list[i];
		if (wr->opcode == IBV_WR_RDMA_READ)
			assert((unsigned)wr->num_sge <= rdma.config.sge_read);
		else
			assert((unsigned)wr->num_sge <= rdma.config.sge);
		if (wr->send_flags & IBV_SEND_INLINE) {
			assert(wr->num_sge == 1);
			w->inlined = malloc(w->sge[0].length);
			memcpy(w->inlined, (void *)(uintptr_t)w->sge[0].addr,
			       w->sge[0].length);
		}
		STAILQ_INSERT_TAIL(&qp->works, w, link);
		qp->works_count++;
	}
	STAILQ_FOREACH (w, &qp->works, link)
		reads += w->wr.opcode == IBV_WR_RDMA_READ;
	qp->peer->reads_max = MAX(qp->peer->reads_max, reads);
	qp_work(qp);
	return 0;
}

static void recv_add(struct recvs *list, const struct ibv_recv_wr *wr)
{
	struct recv *r = calloc(1, sizeof(*r));

	assert(wr->num_sge <= 4);
	r->wr_id = wr->wr_id;
	r->sges = wr->num_sge;
	for (int i = 0; i < r->sges; i++) {
		r->sge[i] = wr->sg_list[i];
		local(&r->sge[i]);
	}
	STAILQ_INSERT_TAIL(list, r, link);
}

static int op_post_srq_recv(struct ibv_srq *srq_, struct ibv_recv_wr *wr,
			    struct ibv_recv_wr **bad)
{
	LOCKED;
	struct fake_srq *srq = container_of(srq_, struct fake_srq, srq);

	*bad = wr;
	if (rdma.fail_receives)
		return ENOMEM;
	for (; wr != NULL; wr = wr->next) {
		assert(srq->count < srq->max && wr->num_sge <= srq->sge_max);
		recv_add(&srq->recvs, wr);
		srq->count++;
	}
	return 0;
}

static int op_post_recv(struct ibv_qp *qp_, struct ibv_recv_wr *wr,
			struct ibv_recv_wr **bad)
{
	LOCKED;
	struct fake_qp *qp = container_of(qp_, struct fake_qp, qp);

	*bad = wr;
	if (rdma.fail_receives)
		return ENOMEM;
	for (; wr != NULL; wr = wr->next) {
		assert(qp->recvs_count < qp->recvs_max);
		recv_add(&qp->recvs, wr);
		qp->recvs_count++;
	}
	if (qp->error)
		qp_error(qp);
	return 0;
}

/* ---- libibverbs ---- */

struct ibv_device **ibv_get_device_list(int *num)
{
	LOCKED;
	struct ibv_device **list = calloc(2, sizeof(*list));

	list[0] = rdma.there && !rdma.hidden ? &rdma.device : NULL;
	if (num != NULL)
		*num = list[0] != NULL;
	return list;
}

void fake_rdma_hide(bool hidden)
{
	LOCKED;

	rdma.hidden = hidden;
}

void ibv_free_device_list(struct ibv_device **list)
{
	LOCKED;

	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	LOCKED;

	return device == &rdma.broken_device ? "broken0" : "fake0";
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	return device == &rdma.broken_device ? 2 : 1;
}

const char *ibv_wc_status_str(enum ibv_wc_status status)
{
	LOCKED;

	return "a work request failed";
}

const char *ibv_event_type_str(enum ibv_event_type event)
{
	LOCKED;

	return "an event";
}

int ibv_query_device(struct ibv_context *context,
		     struct ibv_device_attr *device_attr)
{
	LOCKED;

	if (context == &rdma.broken)
		return EIO;
	if (fails())
		return ENOMEM;
	*device_attr = (struct ibv_device_attr){
		.max_sge = (int)rdma.config.sge,
		.max_sge_rd = (int)rdma.config.sge_read,
		.max_qp_wr = 4096,
		.max_cqe = 8192,
		.max_qp_init_rd_atom = 16,
		.device_cap_flags = IBV_DEVICE_MEM_MGT_EXTENSIONS,
		.max_srq = rdma.config.no_srq ? 0 : 16,
		.max_srq_wr = rdma.config.no_srq ? 0 : 300,
		.max_srq_sge = 4,
	};
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	LOCKED;
	struct ibv_pd *pd = fails() ? NULL : calloc(1, sizeof(*pd));

	if (pd == NULL)
		return NULL;
	pd->context = context;
	rdma.pds++;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	LOCKED;
	struct fake_mr *mr;

	LIST_FOREACH (mr, &rdma.mrs, link)
		assert(mr->mr.pd != pd);
	assert(rdma.qps == 0 && rdma.srqs == 0);
	rdma.pds--;
	free(pd);
	return 0;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len,
			     unsigned access)
{
	struct fake_mr *mr = fails() ? NULL : calloc(1, sizeof(*mr));

	if (mr == NULL)
		return NULL;
	/* Nobody but an iWARP peer's adapter may write, nobody may read. */
	assert(!(access & IBV_ACCESS_REMOTE_READ));
	assert(rdma.config.iwarp || !(access & IBV_ACCESS_REMOTE_WRITE));
	mr->mr = (struct ibv_mr){ .context = pd->context,
				  .pd = pd,
				  .addr = addr,
				  .length = len,
				  .lkey = ++rdma.key_last };
	LIST_INSERT_HEAD(&rdma.mrs, mr, link);
	return &mr->mr;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	LOCKED;

	return reg_mr(pd, addr, len, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len,
				uint64_t iova, unsigned access)
{
	LOCKED;

	return reg_mr(pd, addr, len, access);
}

int ibv_dereg_mr(struct ibv_mr *mr_)
{
	LOCKED;
	struct fake_mr *mr = container_of(mr_, struct fake_mr, mr);

	LIST_REMOVE(mr, link);
	free(mr);
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	LOCKED;
	struct fake_channel *c = fails() ? NULL : calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->channel.context = context;
	c->channel.fd = eventfd(0, EFD_CLOEXEC);
	rdma.channels++;
	return &c->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	LOCKED;
	struct fake_channel *c =
		container_of(channel, struct fake_channel, channel);

	assert(channel->refcnt == 0);
	close(channel->fd);
	rdma.channels--;
	free(c);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe,
			     void *cq_context, struct ibv_comp_channel *channel,
			     int comp_vector)
{
	LOCKED;
	struct fake_cq *cq = fails() ? NULL : calloc(1, sizeof(*cq));

	if (cq == NULL)
		return NULL;
	assert(comp_vector < context->num_comp_vectors);
	cq->cq = (struct ibv_cq){ .context = context,
				  .channel = channel,
				  .cq_context = cq_context,
				  .cqe = cqe };
	cq->channel = container_of(channel, struct fake_channel, channel);
	channel->refcnt++;
	STAILQ_INIT(&cq->done);
	rdma.cqs++;
	return &cq->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq_)
{
	LOCKED;
	struct fake_cq *cq = container_of(cq_, struct fake_cq, cq);
	struct completion *c;

	assert(cq->unacked == 0); /* it would wait for ever */
	asyncs_end(cq_, &cq->asyncs);
	cq->channel->channel.refcnt--;
	while ((c = STAILQ_FIRST(&cq->done)) != NULL) {
		STAILQ_REMOVE_HEAD(&cq->done, link);
		free(c);
	}
	rdma.cqs--;
	free(cq);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
		     void **cq_context)
{
	LOCKED;
	struct fake_channel *c =
		container_of(channel, struct fake_channel, channel);

	if (c->events == 0) {
		hush(channel->fd);
		errno = EAGAIN;
		return -1;
	}
	c->events--;
	*cq = c->cq;
	*cq_context = c->cq->cq_context;
	container_of(c->cq, struct fake_cq, cq)->unacked++;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n)
{
	LOCKED;

	assert(container_of(cq, struct fake_cq, cq)->unacked >= n);
	container_of(cq, struct fake_cq, cq)->unacked -= n;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd,
			       struct ibv_srq_init_attr *attr)
{
	LOCKED;
	struct fake_srq *srq = fails() ? NULL : calloc(1, sizeof(*srq));

	if (srq == NULL)
		return NULL;
	rdma.srq = &srq->srq;
	srq->srq = (struct ibv_srq){ .context = pd->context,
				     .srq_context = attr->srq_context,
				     .pd = pd };
	srq->max = attr->attr.max_wr;
	srq->sge_max = (int)attr->attr.max_sge;
	STAILQ_INIT(&srq->recvs);
	rdma.srqs++;
	return &srq->srq;
}

static void recvs_free(struct recvs *list)
{
	struct recv *r;

	while ((r = STAILQ_FIRST(list)) != NULL) {
		STAILQ_REMOVE_HEAD(list, link);
		free(r);
	}
}

int ibv_destroy_srq(struct ibv_srq *srq_)
{
	LOCKED;
	struct fake_srq *srq = container_of(srq_, struct fake_srq, srq);

	asyncs_end(srq_, &srq->asyncs);
	recvs_free(&srq->recvs);
	rdma.srqs--;
	free(srq);
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	LOCKED;

	if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_ERR)
		qp_error(container_of(qp, struct fake_qp, qp));
	return 0;
}

static unsigned *asyncs_of(const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_DEVICE_FATAL:
		return NULL;
	case IBV_EVENT_SRQ_ERR:
		return &container_of(event->element.srq, struct fake_srq, srq)
				->asyncs;
	case IBV_EVENT_CQ_ERR:
		return &container_of(event->element.cq, struct fake_cq, cq)
				->asyncs;
	default:
		return &container_of(event->element.qp, struct fake_qp, qp)
				->asyncs;
	}
}

static int async_get(struct ibv_context *context, struct ibv_async_event *event)
{
	struct async_event *e;
	LOCKED;

	assert(!rdma.closed);
	e = STAILQ_FIRST(&rdma.asyncs);
	if (e == NULL) {
		hush(context->async_fd);
		errno = EAGAIN;
		return -1;
	}
	STAILQ_REMOVE_HEAD(&rdma.asyncs, link);
	*event = e->event;
	free(e);
	if (asyncs_of(event) != NULL)
		++*asyncs_of(event);
	return 0;
}

int ibv_get_async_event(struct ibv_context *context,
			struct ibv_async_event *event)
{
	int rv = async_get(context, event);

	if (rv == 0)
		hook_run(false);
	return rv;
}

static void async_ack(const struct ibv_async_event *event)
{
	LOCKED;

	if (asyncs_of(event) == NULL)
		return;
	--*asyncs_of(event);
	pthread_cond_broadcast(&acked);
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	async_ack(event);
	hook_run(true);
}

/* ---- librdmacm ---- */

static struct fake_cm *cm_of(struct rdma_event_channel *channel)
{
	return container_of(channel, struct fake_cm, channel);
}

static void event_add(struct fake_id *id, struct fake_id *listener,
		      enum rdma_cm_event_type type,
		      const struct rdma_conn_param *param)
{
	struct fake_event *e = calloc(1, sizeof(*e));
	struct fake_id *about;

	e->event.id = &id->id;
	e->event.listen_id = listener != NULL ? &listener->id : NULL;
	e->event.event = type;
	if (param != NULL) {
		e->event.param.conn = *param;
		/* InfiniBand pads what there is with zeros. */
		memcpy(e->private, param->private_data,
		       param->private_data_len);
		e->event.param.conn.private_data = e->private;
		e->event.param.conn.private_data_len = sizeof(e->private);
	}
	about = listener != NULL ? listener : id;
	STAILQ_INSERT_TAIL(&cm_of(about->id.channel)->events, e, link);
	ring(about->id.channel->fd);
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	LOCKED;
	struct fake_cm *c = fails() ? NULL : calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	STAILQ_INIT(&c->events);
	c->channel.fd = eventfd(0, EFD_CLOEXEC);
	rdma.cms++;
	return &c->channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	LOCKED;
	struct fake_id *id;

	LIST_FOREACH (id, &rdma.ids, link)
		assert(id->id.channel != channel);
	assert(STAILQ_EMPTY(&cm_of(channel)->events));
	close(channel->fd);
	rdma.cms--;
	free(cm_of(channel));
}

static int cm_get(struct rdma_event_channel *channel,
		  struct rdma_cm_event **event)
{
	struct rdma_cm_id *about;
	struct fake_event *e;
	LOCKED;

	e = STAILQ_FIRST(&cm_of(channel)->events);
	if (e == NULL) {
		hush(channel->fd);
		errno = EAGAIN;
		return -1;
	}
	STAILQ_REMOVE_HEAD(&cm_of(channel)->events, link);
	about = e->event.listen_id != NULL ? e->event.listen_id : e->event.id;
	container_of(about, struct fake_id, id)->events++;
	*event = &e->event;
	return 0;
}

int rdma_get_cm_event(struct rdma_event_channel *channel,
		      struct rdma_cm_event **event)
{
	int rv = cm_get(channel, event);

	if (rv == 0)
		hook_run(false);
	return rv;
}

static void cm_ack(struct rdma_cm_event *event)
{
	struct rdma_cm_id *about =
		event->listen_id != NULL ? event->listen_id : event->id;
	LOCKED;

	container_of(about, struct fake_id, id)->events--;
	pthread_cond_broadcast(&acked);
	free(container_of(event, struct fake_event, event));
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	cm_ack(event);
	hook_run(true);
	return 0;
}

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	LOCKED;

	return "an event of the connection manager";
}

static struct fake_id *id_new(struct rdma_event_channel *channel,
			      void *context_)
{
	struct fake_id *id = calloc(1, sizeof(*id));

	id->id.context = context_;
	id->id.channel = channel;
	LIST_INSERT_HEAD(&rdma.ids, id, link);
	return id;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
		   void *context_, enum rdma_port_space ps)
{
	LOCKED;

	if (fails())
		return -1;
	*id = &id_new(channel, context_)->id;
	return 0;
}

int rdma_destroy_id(struct rdma_cm_id *id_)
{
	LOCKED;
	struct fake_id *id = container_of(id_, struct fake_id, id);
	struct fake_cm *cm = cm_of(id_->channel);
	struct fake_event *e, *next;

	wait_acked(&id->events);
	assert(id_->qp == NULL);
	for (e = STAILQ_FIRST(&cm->events); e != NULL; e = next) {
		next = STAILQ_NEXT(e, link);
		if (e->event.id == id_ && e->event.listen_id == NULL) {
			STAILQ_REMOVE(&cm->events, e, fake_event, link);
			free(e);
		}
	}
	if (id->peer != NULL) {
		if (id->peer->state == FAKE_ASKED)
			id->peer->state = FAKE_REFUSED;
		id->peer->id = NULL;
	}
	LIST_REMOVE(id, link);
	free(id);
	rdma.closed = rdma.dead && LIST_EMPTY(&rdma.ids);
	return 0;
}

/* What is to come goes along; what came must be acknowledged. */
int rdma_migrate_id(struct rdma_cm_id *id_, struct rdma_event_channel *channel)
{
	LOCKED;
	struct fake_id *id = container_of(id_, struct fake_id, id);
	struct fake_cm *from = cm_of(id_->channel), *to = cm_of(channel);
	struct fake_event *e, *next;

	if (fails())
		return -1;
	assert(!id->listening && from != to);
	for (e = STAILQ_FIRST(&from->events); e != NULL; e = next) {
		next = STAILQ_NEXT(e, link);
		if (e->event.id != id_ || e->event.listen_id != NULL)
			continue;
		STAILQ_REMOVE(&from->events, e, fake_event, link);
		STAILQ_INSERT_TAIL(&to->events, e, link);
		ring(channel->fd);
	}
	id_->channel = channel;
	wait_acked(&id->events);
	return 0;
}

int rdma_set_option(struct rdma_cm_id *id, int level, int optname, void *optval,
		    size_t optlen)
{
	LOCKED;

	return 0;
}

static bool is_wildcard(const struct sockaddr *addr)
{
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)addr;
	const struct sockaddr_in *four = (const struct sockaddr_in *)addr;

	return addr->sa_family == AF_INET6
		       ? IN6_IS_ADDR_UNSPECIFIED(&six->sin6_addr)
		       : four->sin_addr.s_addr == 0;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *addr)
{
	LOCKED;

	if (fails())
		return -1;
	if (!rdma.there || rdma.removed) {
		errno = ENODEV;
		return -1;
	}
	if (!is_wildcard(addr))
		id->verbs = verbs_of();
	return 0;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	LOCKED;

	if (fails())
		return -1;
	container_of(id, struct fake_id, id)->listening = true;
	return 0;
}

int rdma_create_qp(struct rdma_cm_id *id_, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *attr)
{
	LOCKED;
	struct fake_id *id = container_of(id_, struct fake_id, id);
	struct fake_qp *qp = fails() ? NULL : calloc(1, sizeof(*qp));

	if (qp == NULL)
		return -1;
	qp->qp = (struct ibv_qp){ .context = id_->verbs,
				  .qp_context = attr->qp_context,
				  .pd = pd,
				  .send_cq = attr->send_cq,
				  .recv_cq = attr->recv_cq,
				  .srq = attr->srq };
	qp->works_max = attr->cap.max_send_wr;
	qp->recvs_max = attr->cap.max_recv_wr;
	STAILQ_INIT(&qp->works);
	STAILQ_INIT(&qp->recvs);
	qp->peer = id->peer;
	id->peer->qp = qp;
	id_->qp = &qp->qp;
	rdma.qps++;
	return 0;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	LOCKED;
	struct fake_qp *qp = container_of(id->qp, struct fake_qp, qp);
	struct work *w;

	asyncs_end(&qp->qp, &qp->asyncs);
	while ((w = STAILQ_FIRST(&qp->works)) != NULL) {
		STAILQ_REMOVE_HEAD(&qp->works, link);
		free(w->inlined);
		free(w);
	}
	recvs_free(&qp->recvs);
	if (qp->peer != NULL)
		qp->peer->qp = NULL;
	id->qp = NULL;
	rdma.qps--;
	free(qp);
}

int rdma_accept(struct rdma_cm_id *id_, struct rdma_conn_param *param)
{
	LOCKED;
	struct fake_id *id = container_of(id_, struct fake_id, id);
	struct fake_peer *peer = id->peer;

	if (fails())
		return -1;
	assert(param->initiator_depth <= peer->offered);
	assert(param->private_data_len == sizeof(peer->private));
	memcpy(peer->private, param->private_data, sizeof(peer->private));
	peer->depth = param->initiator_depth;
	peer->state = FAKE_UP;
	event_add(id, NULL, RDMA_CM_EVENT_ESTABLISHED, NULL);
	return 0;
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t len)
{
	LOCKED;

	container_of(id, struct fake_id, id)->peer->state = FAKE_REFUSED;
	return 0;
}

int rdma_disconnect(struct rdma_cm_id *id_)
{
	LOCKED;
	struct fake_id *id = container_of(id_, struct fake_id, id);

	qp_error(container_of(id_->qp, struct fake_qp, qp));
	if (id->peer->state == FAKE_UP)
		id->peer->state = FAKE_DOWN;
	return 0;
}

int rdma_notify(struct rdma_cm_id *id, enum ibv_event_type event)
{
	LOCKED;

	return 0;
}

struct ibv_context **rdma_get_devices(int *num)
{
	LOCKED;
	struct ibv_context **list = fails() ? NULL : calloc(3, sizeof(*list));
	int n = 0;

	if (list == NULL)
		return NULL;
	if (rdma.config.broken_too)
		list[n++] = &rdma.broken;
	if (rdma.there && !rdma.hidden && !rdma.removed)
		list[n++] = verbs_of();
	if (num != NULL)
		*num = n;
	rdma.lists++;
	return list;
}

void rdma_free_devices(struct ibv_context **list)
{
	LOCKED;

	rdma.lists--;
	free(list);
}

/* ---- the initiator ---- */

struct fake_peer *fake_peer_connect(const void *private_data,
				    unsigned private_len, unsigned reads)
{
	LOCKED;
	struct rdma_conn_param param = {
		.private_data = private_data,
		.private_data_len = (uint8_t)private_len,
		.initiator_depth = (uint8_t)reads,
	};
	struct fake_peer *peer = calloc(1, sizeof(*peer));
	struct fake_id *listener;

	STAILQ_INIT(&peer->in);
	peer->offered = reads;
	LIST_FOREACH (listener, &rdma.ids, link)
		if (listener->listening)
			break;
	assert(listener != NULL);
	peer->id = id_new(listener->id.channel, listener->id.context);
	peer->id->peer = peer;
	peer->id->id.verbs = verbs_of();
	peer->id->id.route.addr.src_addr.sa_family = AF_INET;
	peer->id->id.route.addr.dst_addr.sa_family = AF_INET;
	event_add(peer->id, listener, RDMA_CM_EVENT_CONNECT_REQUEST, &param);
	return peer;
}

enum fake_peer_state fake_peer_state(const struct fake_peer *peer)
{
	LOCKED;

	return peer->state;
}

unsigned fake_peer_depth(const struct fake_peer *peer)
{
	LOCKED;

	return peer->depth;
}

const uint8_t *fake_peer_private(const struct fake_peer *peer)
{
	LOCKED;

	return peer->private;
}

unsigned fake_peer_reads_max(const struct fake_peer *peer)
{
	LOCKED;

	return peer->reads_max;
}

void fake_peer_hold(struct fake_peer *peer, bool hold)
{
	LOCKED;

	peer->hold = hold;
	if (!hold && peer->qp != NULL)
		qp_work(peer->qp);
}

void fake_peer_freeze(struct fake_peer *peer, bool freeze)
{
	LOCKED;

	peer->frozen = freeze;
	if (!freeze && peer->qp != NULL)
		qp_work(peer->qp);
}

void fake_peer_error(struct fake_peer *peer)
{
	LOCKED;

	peer->error = true;
}

void fake_peer_async(struct fake_peer *peer, enum ibv_event_type type)
{
	LOCKED;

	if (peer->qp == NULL)
		return;
	if (type == IBV_EVENT_CQ_ERR)
		async_add(type, peer->qp->qp.send_cq);
	else
		async_add(type, &peer->qp->qp);
}

void fake_peer_disconnect(struct fake_peer *peer)
{
	LOCKED;

	if (peer->id != NULL && peer->state == FAKE_UP)
		event_add(peer->id, NULL, RDMA_CM_EVENT_DISCONNECTED, NULL);
	peer->state = FAKE_DOWN;
}

void fake_peer_free(struct fake_peer *peer)
{
	LOCKED;
	struct fake_message *m;

	while ((m = fake_peer_receive(peer)) != NULL)
		free(m);
	if (peer->id != NULL)
		peer->id->peer = NULL;
	assert(peer->qp == NULL);
	free(peer);
}

bool fake_peer_send(struct fake_peer *peer, const void *message, size_t len)
{
	LOCKED;
	struct fake_qp *qp = peer->qp;
	struct fake_srq *srq;
	struct ibv_wc wc = { .status = IBV_WC_SUCCESS,
			     .byte_len = (uint32_t)len };
	const uint8_t *from = message;
	struct recvs *list;
	struct recv *r;
	size_t left = len;

	if (qp == NULL || qp->error || rdma.removed)
		return false;
	srq = qp->qp.srq != NULL
		      ? container_of(qp->qp.srq, struct fake_srq, srq)
		      : NULL;
	list = srq != NULL ? &srq->recvs : &qp->recvs;
	r = STAILQ_FIRST(list);
	if (r == NULL)
		return false;
	STAILQ_REMOVE_HEAD(list, link);
	if (srq != NULL)
		srq->count--;
	else
		qp->recvs_count--;
	for (int i = 0; i < r->sges && left > 0; i++) {
		size_t n = MIN(left, r->sge[i].length);

		memcpy(local(&r->sge[i]), from, n);
		from += n;
		left -= n;
	}
	wc.wr_id = r->wr_id;
	if (left > 0)
		wc.status = IBV_WC_LOC_LEN_ERR;
	cq_add(qp->qp.recv_cq, &wc);
	free(r);
	if (left > 0)
		qp_error(qp);
	return true;
}

struct fake_message *fake_peer_receive(struct fake_peer *peer)
{
	LOCKED;
	struct message *in = STAILQ_FIRST(&peer->in);
	struct fake_message *m;

	if (in == NULL)
		return NULL;
	STAILQ_REMOVE_HEAD(&peer->in, link);
	m = in->m;
	free(in);
	return m;
}

/* ---- the device ---- */

void fake_rdma_open(const struct fake_rdma_config *config)
{
	LOCKED;
	struct ibv_context *c = verbs_of();

	assert(!rdma.there);
	rdma.config = *config;
	if (rdma.config.sge == 0)
		rdma.config.sge = 16;
	if (rdma.config.sge_read == 0)
		rdma.config.sge_read = rdma.config.sge;
	rdma.there = true;
	rdma.removed = rdma.fail_posts = rdma.fail_receives = false;
	rdma.dead = rdma.closed = false;
	rdma.fail_at = 0;
	LIST_INIT(&rdma.mrs);
	LIST_INIT(&rdma.ids);
	STAILQ_INIT(&rdma.asyncs);
	rdma.device.transport_type =
		config->iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
	c->device = &rdma.device;
	rdma.broken.device = &rdma.broken_device;
	c->num_comp_vectors = 2;
	c->async_fd = eventfd(0, EFD_CLOEXEC);
	c->ops.poll_cq = op_poll_cq;
	c->ops.req_notify_cq = op_req_notify_cq;
	c->ops.post_send = op_post_send;
	c->ops.post_recv = op_post_recv;
	c->ops.post_srq_recv = op_post_srq_recv;
}

void fake_rdma_check_empty(void)
{
	LOCKED;

	assert(rdma.pds == 0 && rdma.cqs == 0 && rdma.qps == 0);
	assert(rdma.srqs == 0 && rdma.channels == 0 && rdma.lists == 0);
	assert(LIST_EMPTY(&rdma.mrs) && LIST_EMPTY(&rdma.ids));
}

void fake_rdma_close(void)
{
	LOCKED;

	fake_rdma_check_empty();
	assert(rdma.there && rdma.cms == 0);
	assert(STAILQ_EMPTY(&rdma.asyncs));
	close(verbs_of()->async_fd);
	rdma.there = false;
}

void fake_rdma_remove(void)
{
	LOCKED;
	struct fake_id *id;

	rdma.removed = true;
	/* One that listens at every address is not told. */
	LIST_FOREACH (id, &rdma.ids, link)
		if (id->id.verbs != NULL)
			event_add(id, NULL, RDMA_CM_EVENT_DEVICE_REMOVAL, NULL);
}

void fake_rdma_remove_told(struct fake_peer *peer)
{
	LOCKED;

	rdma.removed = true;
	event_add(peer->id, NULL, RDMA_CM_EVENT_DEVICE_REMOVAL, NULL);
}

void fake_rdma_break(bool srq)
{
	LOCKED;

	assert(!srq || rdma.srqs == 1);
	rdma.dead = true;
	if (srq)
		async_add(IBV_EVENT_SRQ_ERR, rdma.srq);
	else
		async_add(IBV_EVENT_DEVICE_FATAL, NULL);
}
