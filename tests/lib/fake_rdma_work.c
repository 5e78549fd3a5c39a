/* fake_rdma_work: what the device does of what is posted. */
#include "tests/lib/fake_rdma_int.h"

#include "base/page.h"

#define MESSAGE_MAX (1u << 20)

/* ---- completions ---- */

void fake_rdma__cq_add(struct ibv_cq *cq_, const struct ibv_wc *wc)
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
	fake_rdma__ring(cq->channel->channel.fd);
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

static void (*before_arming)(void);

void fake_rdma_before_arming(void (*cb)(void))
{
	LOCKED;

	before_arming = cb;
}

static int op_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	LOCKED;
	void (*cb)(void) = before_arming;

	before_arming = NULL;
	if (cb != NULL)
		cb();
	/* As real ones do: only what completes from now on tells. */
	container_of(cq, struct fake_cq, cq)->armed = true;
	return 0;
}

/* ---- memory ---- */

uint8_t *fake_rdma__local(const struct ibv_sge *sge)
{
	struct fake_mr *mr;

	LIST_FOREACH (mr, &fake_rdma.mrs, link)
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

/* ---- doing work ---- */

static void work_end(struct fake_qp *qp, struct work *w,
		     enum ibv_wc_status status)
{
	struct ibv_wc wc = { .wr_id = w->wr.wr_id,
			     .status = status,
			     .qp_num = qp->qp.qp_num };

	STAILQ_REMOVE(&qp->works, w, work, link);
	if (w->wr.send_flags & IBV_SEND_SIGNALED || status != IBV_WC_SUCCESS) {
		/* Its place, and of those before it, is free again. */
		assert(qp->works_count > qp->silent);
		qp->works_count -= qp->silent + 1;
		qp->silent = 0;
		fake_rdma__cq_add(qp->qp.send_cq, &wc);
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

/* Its memory has been used for something else before it is sent. */
static bool sent_late(const struct work *w)
{
	return fake_rdma.config.siw && work_len(w) >= PAGE_BYTES &&
	       !(w->wr.send_flags & IBV_SEND_SIGNALED);
}

static void arrive(struct fake_peer *peer, const struct work *w)
{
	size_t len = work_len(w), at = 0;
	struct fake_message *m = malloc(sizeof(*m) + len);
	struct message *in = calloc(1, sizeof(*in));

	m->len = len;
	m->fenced = (w->wr.send_flags & IBV_SEND_FENCE) != 0;
	m->invalidated = 0;
	if (w->wr.opcode == IBV_WR_SEND_WITH_INV)
		m->invalidated = fake_rdma.config.siw ? w->wr.wr.rdma.rkey
						      : w->wr.invalidate_rkey;
	for (int i = 0; i < w->wr.num_sge; i++) {
		const uint8_t *from = w->inlined != NULL
					      ? w->inlined + at
					      : fake_rdma__local(&w->sge[i]);

		memcpy(m->bytes + at, from, w->sge[i].length);
		at += w->sge[i].length;
	}
	if (sent_late(w))
		memset(m->bytes, 0xee, len);
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
		uint8_t *here = fake_rdma__local(&w->sge[i]);

		if (w->wr.opcode == IBV_WR_RDMA_READ)
			memcpy(here, there + at, w->sge[i].length);
		else
			memcpy(there + at, here, w->sge[i].length);
		at += w->sge[i].length;
	}
	if (w->wr.opcode == IBV_WR_RDMA_WRITE && sent_late(w))
		memset(there, 0xee, len);
	return IBV_WC_SUCCESS;
}

static void recvs_flush(struct fake_qp *qp)
{
	struct recv *r;

	while ((r = STAILQ_FIRST(&qp->recvs)) != NULL) {
		STAILQ_REMOVE_HEAD(&qp->recvs, link);
		qp->recvs_count--;
		fake_rdma__cq_add(
			qp->qp.recv_cq,
			&(struct ibv_wc){ .wr_id = r->wr_id,
					  .status = IBV_WC_WR_FLUSH_ERR });
		free(r);
	}
}

void fake_rdma__qp_error(struct fake_qp *qp)
{
	struct work *w;

	if (!qp->error && qp->qp.srq != NULL && fake_rdma.config.says_last_wqe)
		fake_rdma__async_add(IBV_EVENT_QP_LAST_WQE_REACHED, &qp->qp);
	qp->error = true;
	if (fake_rdma.removed || qp->peer->frozen)
		return; /* a dead device says nothing */
	if (fake_rdma.config.receives_first)
		recvs_flush(qp);
	while ((w = STAILQ_FIRST(&qp->works)) != NULL)
		work_end(qp, w, IBV_WC_WR_FLUSH_ERR);
	recvs_flush(qp);
}

/* What is done next; NULL: nothing is. */
static struct work *work_next(const struct fake_qp *qp)
{
	struct work *w, *first = NULL;

	STAILQ_FOREACH (w, &qp->works, link) {
		if (w->wr.opcode == IBV_WR_RDMA_READ) {
			if (!qp->peer->hold_reads && first == NULL)
				first = w;
			if (!fake_rdma.config.siw)
				return first;
		} else if (!(w->wr.send_flags & IBV_SEND_FENCE) ||
			   w == STAILQ_FIRST(&qp->works)) {
			return w;
		} else {
			return first;
		}
	}
	return first;
}

void fake_rdma__qp_work(struct fake_qp *qp)
{
	struct fake_peer *peer = qp->peer;
	struct work *w;

	if (fake_rdma.removed || peer->frozen)
		return;
	if (qp->error) {
		fake_rdma__qp_error(qp);
		return;
	}
	while ((!peer->hold || peer->let > 0) && (w = work_next(qp)) != NULL) {
		enum ibv_wc_status status = work_do(peer, w);
		struct ibv_wc again = { .wr_id = w->wr.wr_id,
					.status = IBV_WC_WR_FLUSH_ERR,
					.qp_num = qp->qp.qp_num };

		if (peer->hold)
			peer->let--;
		work_end(qp, w, status);
		if (status != IBV_WC_SUCCESS) {
			if (fake_rdma.config.siw)
				fake_rdma__cq_add(qp->qp.send_cq, &again);
			fake_rdma__qp_error(qp);
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
		if (fake_rdma.fail_posts)
			return ENOMEM;
		if (qp->error && fake_rdma.config.siw)
			continue;
		assert(qp->works_count < qp->works_max);
		assert(wr->num_sge <= 16);
		check_fence(qp, wr);
		check_length(wr);
		w = calloc(1, sizeof(*w));
		w->wr = *wr;
		for (int i = 0; i < wr->num_sge; i++)
			w->sge[i] = wr->sg_list[i];
		if (wr->opcode == IBV_WR_RDMA_READ)
			assert((unsigned)wr->num_sge <=
			       fake_rdma.config.sge_read);
		else
			assert((unsigned)wr->num_sge <= fake_rdma.config.sge);
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
	fake_rdma__qp_work(qp);
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
		fake_rdma__local(&r->sge[i]);
	}
	STAILQ_INSERT_TAIL(list, r, link);
}

static int op_post_srq_recv(struct ibv_srq *srq_, struct ibv_recv_wr *wr,
			    struct ibv_recv_wr **bad)
{
	LOCKED;
	struct fake_srq *srq = container_of(srq_, struct fake_srq, srq);

	*bad = wr;
	if (fake_rdma.fail_receives)
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
	if (fake_rdma.fail_receives)
		return ENOMEM;
	for (; wr != NULL; wr = wr->next) {
		if (qp->error && fake_rdma.config.siw)
			continue;
		assert(qp->recvs_count < qp->recvs_max);
		recv_add(&qp->recvs, wr);
		qp->recvs_count++;
	}
	if (qp->error)
		fake_rdma__qp_error(qp);
	return 0;
}

void fake_rdma__ops_set(struct ibv_context *context)
{
	context->ops.poll_cq = op_poll_cq;
	context->ops.req_notify_cq = op_req_notify_cq;
	context->ops.post_send = op_post_send;
	context->ops.post_recv = op_post_recv;
	context->ops.post_srq_recv = op_post_srq_recv;
}

void fake_rdma__recvs_free(struct recvs *list)
{
	struct recv *r;

	while ((r = STAILQ_FIRST(list)) != NULL) {
		STAILQ_REMOVE_HEAD(list, link);
		free(r);
	}
}
