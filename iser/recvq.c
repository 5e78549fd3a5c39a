/*
 * recvq: receive buffers.
 *
 * A slot is received into by three scatter entries: the fixed headers, then two
 * pages, so that immediate data lies at the start of a page and goes down to the
 * log from there.  A page that somebody kept is replaced before the slot is
 * posted again.  A fourth entry, behind the headers, takes what an AHS in front
 * of 8 KiB of data displaces.
 *
 * As many are posted as the connections want, within the queue's capacity.  When
 * the arena has no page left fewer are posted: on InfiniBand and RoCE an
 * initiator that finds none is held up by the transport until pages come home.
 * iWARP ends its connection instead, so that a login there, which gets a queue of
 * its own, is refused if not all can be posted.
 */
#include "iser/iser_int.h"

#define HEADS_PER_PAGE (PAGE_BYTES / RECV_HEAD_BYTES)
#define BATCH 16u

static void fill_later(struct page_waiter *waiter)
{
	iser__recvq_fill(container_of(waiter, struct recvq, waiter));
}

static void on_event(struct rdma_watch *watch, enum ibv_event_type event)
{
	struct recvq *q = container_of(watch, struct recvq, watch);

	if (event != IBV_EVENT_SRQ_ERR || q->stopped)
		return;
	q->stopped = true;
	q->broken(q);
}

static int srq_open(struct recvq *q)
{
	struct ibv_srq_init_attr attr = {
		.srq_context = &q->watch,
		.attr = { .max_wr = q->capacity, .max_sge = 4 },
	};

	q->srq = ibv_create_srq(q->rdma->pd, &attr);
	if (q->srq == NULL) {
		attr.attr.max_sge = 3;
		q->srq = ibv_create_srq(q->rdma->pd, &attr);
	}
	if (q->srq == NULL)
		return -errno;
	q->tail = attr.attr.max_sge > 3;
	return 0;
}

int iser__recvq_open(struct rdma_device *rdma, struct env *env, bool shared,
		     unsigned capacity, struct recvq **out)
{
	struct recvq *q = calloc(1, sizeof(*q));
	int rv = -ENOMEM;

	if (q == NULL)
		return -ENOMEM;
	q->rdma = rdma;
	q->env = env;
	q->capacity = capacity;
	q->waiter.cb = fill_later;
	q->watch.cb = on_event;
	q->tail = rdma->sge_max > 3;
	TAILQ_INIT(&q->idle);
	q->slots = calloc(capacity, sizeof(*q->slots));
	q->heads = calloc(DIV_UP(capacity, HEADS_PER_PAGE), sizeof(*q->heads));
	if (q->slots == NULL || q->heads == NULL)
		goto err;
	for (unsigned i = 0; i < capacity; i++) {
		q->slots[i].q = q;
		TAILQ_INSERT_TAIL(&q->idle, &q->slots[i], link);
	}
	if (shared) {
		rv = srq_open(q);
		if (rv < 0)
			goto err;
	}
	*out = q;
	return 0;

err:
	free(q->heads);
	free(q->slots);
	free(q);
	return rv;
}

static void slot_drop(struct recv_slot *slot)
{
	for (unsigned i = 0; i < RECV_PAGES; i++) {
		if (slot->pages[i] != NULL)
			page_put(slot->q->env->pages, slot->pages[i]);
		slot->pages[i] = NULL;
	}
}

void iser__recvq_close(struct recvq *q)
{
	int rv = q->srq != NULL ? ibv_destroy_srq(q->srq) : 0;

	if (rv != 0)
		log_write(LOG_ISER, LOG_WARN_L, "a receive queue stays: %s",
			  strerror(rv));
	page_wait_stop(q->env->pages, &q->waiter);
	counter_add(&iser__receives_posted, (uint64_t)0 - q->posted);
	for (unsigned i = 0; i < q->capacity; i++)
		slot_drop(&q->slots[i]);
	for (unsigned i = 0; i < q->heads_count; i++)
		page_put(q->env->pages, q->heads[i]);
	free(q->heads);
	free(q->slots);
	free(q);
}

size_t iser__recvq_pages(size_t n)
{
	return n * RECV_PAGES + DIV_UP(n, HEADS_PER_PAGE);
}

void iser__recvq_want(struct recvq *q, int n)
{
	assert((int64_t)q->wanted + n >= 0);
	q->wanted = (unsigned)((int64_t)q->wanted + n);
	if (n > 0)
		iser__recvq_fill(q);
}

/* Memory for @slot's header and data; 0 or -EBUSY. */
static int slot_equip(struct recv_slot *slot)
{
	struct recvq *q = slot->q;
	size_t index = (size_t)(slot - q->slots), head = index / HEADS_PER_PAGE;
	int rv = 0;

	if (slot->head == NULL) {
		if (q->heads[head] == NULL) {
			rv = pages_alloc(q->env->pages, PAGE_FRONT, 1,
					 &q->heads[head]);
			if (rv < 0)
				return rv;
			/* Idle slots are taken in order the first time. */
			assert(head == q->heads_count);
			q->heads_count++;
		}
		slot->head = q->heads[head]->data +
			     index % HEADS_PER_PAGE * RECV_HEAD_BYTES;
	}
	for (unsigned i = 0; i < RECV_PAGES && rv == 0; i++)
		if (slot->pages[i] == NULL)
			rv = pages_alloc(q->env->pages, PAGE_FRONT, 1,
					 &slot->pages[i]);
	return rv;
}

static void sge_set(struct recvq *q, struct ibv_sge *sge, void *at,
		    uint32_t len)
{
	*sge = (struct ibv_sge){ .addr = (uintptr_t)at,
				 .length = len,
				 .lkey = rdma_lkey(q->rdma, at) };
}

static void wr_set(struct recv_slot *slot, struct ibv_recv_wr *wr,
		   struct ibv_sge *sge)
{
	struct recvq *q = slot->q;

	sge_set(q, &sge[0], slot->head, ISER_FIXED_LEN);
	for (unsigned i = 0; i < RECV_PAGES; i++)
		sge_set(q, &sge[1 + i], slot->pages[i]->data, PAGE_BYTES);
	sge_set(q, &sge[3], slot->head + ISER_FIXED_LEN,
		RECV_HEAD_BYTES - ISER_FIXED_LEN);
	*wr = (struct ibv_recv_wr){ .wr_id = (uintptr_t)slot | 1,
				    .sg_list = sge,
				    .num_sge = q->tail ? 4 : 3 };
}

static int post(struct recvq *q, struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad;

	return q->srq != NULL ? ibv_post_srq_recv(q->srq, wr, &bad)
			      : ibv_post_recv(q->qp, wr, &bad);
}

/* Post up to BATCH of them.  False: no more now. */
static bool fill_some(struct recvq *q)
{
	struct ibv_recv_wr wr[BATCH];
	struct ibv_sge sge[BATCH][2 + RECV_PAGES];
	unsigned wanted = MIN(q->wanted, q->capacity), n = 0;
	struct recv_slot *slot;

	while (n < BATCH && q->posted < wanted &&
	       (slot = TAILQ_FIRST(&q->idle)) != NULL) {
		if (slot_equip(slot) < 0) {
			if (!q->waiter.queued)
				page_wait(q->env->pages, PAGE_FRONT,
					  RECV_PAGES + 1, &q->waiter);
			break;
		}
		TAILQ_REMOVE(&q->idle, slot, link);
		slot->posted = true;
		q->posted++;
		wr_set(slot, &wr[n], sge[n]);
		if (n > 0)
			wr[n - 1].next = &wr[n];
		n++;
	}
	if (n == 0)
		return false;
	counter_add(&iser__receives_posted, n);
	/* What was refused counts as posted until the queue is closed. */
	if (post(q, wr) != 0 && !q->stopped) {
		q->stopped = true;
		q->broken(q);
	}
	return n == BATCH && !q->stopped;
}

void iser__recvq_fill(struct recvq *q)
{
	bool more = !q->stopped;

	while (more)
		more = fill_some(q);
}

bool iser__recvq_short(const struct recvq *q)
{
	return q->posted < q->wanted && !TAILQ_EMPTY(&q->idle);
}

void iser__recvq_take(struct recv_slot *slot)
{
	assert(slot->posted && slot->q->posted > 0);
	slot->posted = false;
	slot->q->posted--;
	counter_add(&iser__receives_posted, UINT64_MAX); /* one less */
}

void iser__recvq_give(struct recv_slot *slot)
{
	struct recvq *q = slot->q;

	assert(!slot->posted);
	/* A page that somebody else holds too is theirs now. */
	for (unsigned i = 0; i < RECV_PAGES; i++)
		if (slot->pages[i] != NULL &&
		    (atomic_load(&slot->pages[i]->refs) > 1 ||
		     q->posted >= q->wanted)) {
			page_put(q->env->pages, slot->pages[i]);
			slot->pages[i] = NULL;
		}
	TAILQ_INSERT_HEAD(&q->idle, slot, link);
}
