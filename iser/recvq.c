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
 * its own, is refused if not all can be posted; and data is shown to who may keep
 * it only with other pages at hand for its receive.
 *
 * All connections of a shared queue together may send far more than it has receives
 * for, or memory for them, and whoever finds none is held up by the transport, again
 * and again while others get through.  That is seen by what each took when it was
 * last looked: while it is more than a part of the queue, each is offered its share
 * of what there is with its next answers; and twice as much of it again when that
 * was not so for as many receives as there are.
 *
 * Connections of all shards receive from a device's shared queue, so with more
 * than one shard a lock guards it.  It is held for as long as slots are moved;
 * posting is left outside, where the driver takes a lock of its own.  Waiting for
 * memory, and what follows when the queue breaks, is the business of its home,
 * the device's shard: others ask there.
 */
#include "iser/iser_int.h"

#define HEADS_PER_PAGE (PAGE_BYTES / RECV_HEAD_BYTES)
#define BATCH 16u
#define SHORT_PART 2u /* of the receives, taken at one time: they are short */

static void q_lock(struct recvq *q)
{
	if (q->locked)
		pthread_mutex_lock(&q->lock);
}

static void q_unlock(struct recvq *q)
{
	if (q->locked)
		pthread_mutex_unlock(&q->lock);
}

/* ---- at home ---- */

static void fill_again(struct recvq *q)
{
	q_lock(q);
	q->waits = false;
	q_unlock(q);
	iser__recvq_fill(q, q->env);
}

static void fill_later(struct page_waiter *waiter)
{
	fill_again(container_of(waiter, struct recvq, waiter));
}

static void on_short(struct env_task *task)
{
	fill_again(container_of(task, struct recvq, short_task));
}

static void on_broken(struct env_task *task)
{
	struct recvq *q = container_of(task, struct recvq, broken_task);

	q->broken(q);
}

/* It broke, as @env's shard sees. */
static void broke(struct recvq *q, struct env *env)
{
	bool known;

	q_lock(q);
	known = q->stopped;
	q->stopped = true;
	q_unlock(q);
	if (known)
		return;
	if (env == q->env)
		q->broken(q);
	else
		env_post(q->env, &q->broken_task);
}

/* There is no page for @env's shard: when there are some, home goes on. */
static void fill_wait(struct recvq *q, struct env *env)
{
	if (q->waits)
		return;
	q->waits = true;
	if (env == q->env)
		page_wait(env->pages, PAGE_FRONT, RECV_PAGES + 1, &q->waiter);
	else
		env_post(q->env, &q->short_task);
}

static void on_event(struct rdma_watch *watch, enum ibv_event_type event)
{
	struct recvq *q = container_of(watch, struct recvq, watch);

	if (event == IBV_EVENT_SRQ_ERR)
		broke(q, q->env);
}

/* ---- begin and end ---- */

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

int iser__recvq_open(struct rdma_device *rdma, struct env *env,
		     enum recvq_kind kind, unsigned capacity,
		     struct recvq **out)
{
	struct recvq *q = calloc(1, sizeof(*q));
	int rv = -ENOMEM;

	if (q == NULL)
		return -ENOMEM;
	q->rdma = rdma;
	q->env = env;
	q->capacity = capacity;
	q->waiter.cb = fill_later;
	q->short_task.cb = on_short;
	q->broken_task.cb = on_broken;
	q->watch.cb = on_event;
	q->tail = rdma->sge_max > 3;
	SLIST_INIT(&q->idle);
	q->slots = calloc(capacity, sizeof(*q->slots));
	q->heads = calloc(DIV_UP(capacity, HEADS_PER_PAGE), sizeof(*q->heads));
	if (q->slots == NULL || q->heads == NULL)
		goto err;
	for (unsigned i = capacity; i-- > 0;) {
		q->slots[i].q = q;
		SLIST_INSERT_HEAD(&q->idle, &q->slots[i], link);
	}
	if (kind != RECVQ_OWN) {
		rv = srq_open(q);
		if (rv < 0)
			goto err;
	}
	q->locked = kind == RECVQ_SHARDS;
	q->share = q->srq != NULL ? capacity : 0;
	pthread_mutex_init(&q->lock, NULL);
	*out = q;
	return 0;

err:
	free(q->heads);
	free(q->slots);
	free(q);
	return rv;
}

static void slot_drop(struct recv_slot *slot, struct page_cache *pages)
{
	for (unsigned i = 0; i < RECV_PAGES; i++) {
		if (slot->pages[i] != NULL)
			page_put(pages, slot->pages[i]);
		slot->pages[i] = NULL;
	}
}

void iser__recvq_close(struct recvq *q)
{
	int rv = q->srq != NULL ? ibv_destroy_srq(q->srq) : 0;

	if (rv != 0)
		log_write(LOG_ISER, LOG_WARN_L, "a receive queue stays: %s",
			  strerror(rv));
	assert(q->taken == 0 && q->takers == 0);
	page_wait_stop(q->env->pages, &q->waiter);
	counter_add(&iser__receives_posted, (uint64_t)0 - q->posted);
	for (unsigned i = 0; i < q->capacity; i++)
		slot_drop(&q->slots[i], q->env->pages);
	for (unsigned i = 0; i < q->heads_count; i++)
		page_put(q->env->pages, q->heads[i]);
	pthread_mutex_destroy(&q->lock);
	free(q->heads);
	free(q->slots);
	free(q);
}

void iser__recvq_leave(struct recvq *q)
{
	assert(!q->locked);
	page_wait_stop(q->env->pages, &q->waiter);
	q->waits = false;
	q->env = NULL;
}

void iser__recvq_arrive(struct recvq *q, struct env *env)
{
	assert(q->env == NULL);
	q->env = env;
}

size_t iser__recvq_pages(size_t n)
{
	return n * RECV_PAGES + DIV_UP(n, HEADS_PER_PAGE);
}

size_t iser__recvq_fit(size_t pages)
{
	return pages * HEADS_PER_PAGE / (RECV_PAGES * HEADS_PER_PAGE + 1);
}

void iser__recvq_want(struct recvq *q, struct env *env, int n)
{
	q_lock(q);
	assert((int64_t)q->wanted + n >= 0);
	q->wanted = (unsigned)((int64_t)q->wanted + n);
	q_unlock(q);
	if (n > 0)
		iser__recvq_fill(q, env);
}

static void sge_set(struct recvq *q, struct ibv_sge *sge, void *at,
		    uint32_t len)
{
	*sge = (struct ibv_sge){ .addr = (uintptr_t)at,
				 .length = len,
				 .lkey = rdma_lkey(q->rdma, at) };
}

static void slot_page(struct recv_slot *slot, unsigned i, struct page *page)
{
	slot->pages[i] = page;
	sge_set(slot->q, &slot->sge[1 + i], page->data, PAGE_BYTES);
}

/* A place for @slot's header; 0 or -EBUSY. */
static int slot_head(struct recv_slot *slot, struct page_cache *pages)
{
	struct recvq *q = slot->q;
	size_t index = (size_t)(slot - q->slots), head = index / HEADS_PER_PAGE;
	int rv;

	if (q->heads[head] == NULL) {
		rv = pages_alloc(pages, PAGE_FRONT, 1, &q->heads[head]);
		if (rv < 0)
			return rv;
		/* Idle slots are taken in order the first time. */
		assert(head == q->heads_count);
		q->heads_count++;
	}
	slot->head =
		q->heads[head]->data + index % HEADS_PER_PAGE * RECV_HEAD_BYTES;
	sge_set(q, &slot->sge[0], slot->head, ISER_FIXED_LEN);
	sge_set(q, &slot->sge[1 + RECV_PAGES], slot->head + ISER_FIXED_LEN,
		RECV_HEAD_BYTES - ISER_FIXED_LEN);
	return 0;
}

/* Memory for @slot's header and data; 0 or -EBUSY. */
static int slot_equip(struct recv_slot *slot, struct page_cache *pages)
{
	int rv = slot->head == NULL ? slot_head(slot, pages) : 0;
	struct page *page;

	for (unsigned i = 0; i < RECV_PAGES && rv == 0; i++)
		if (slot->pages[i] == NULL) {
			rv = pages_alloc(pages, PAGE_FRONT, 1, &page);
			if (rv == 0)
				slot_page(slot, i, page);
		}
	return rv;
}

static int post(struct recvq *q, struct ibv_recv_wr *wr)
{
	struct ibv_recv_wr *bad;

	return q->srq != NULL ? ibv_post_srq_recv(q->srq, wr, &bad)
			      : ibv_post_recv(q->qp, wr, &bad);
}

/* Up to BATCH of what shall be posted; how many. */
static unsigned batch_take(struct recvq *q, struct env *env,
			   struct ibv_recv_wr *wr)
{
	struct recv_slot *slot;
	unsigned n = 0;

	while (n < BATCH && q->posted < q->wanted &&
	       (slot = SLIST_FIRST(&q->idle)) != NULL) {
		if (slot_equip(slot, env->pages) < 0) {
			fill_wait(q, env);
			break;
		}
		SLIST_REMOVE_HEAD(&q->idle, link);
		slot->posted = true;
		q->posted++;
		wr[n] = (struct ibv_recv_wr){ .wr_id = (uintptr_t)slot | 1,
					      .sg_list = slot->sge,
					      .num_sge = q->tail ? 4 : 3 };
		if (n > 0)
			wr[n - 1].next = &wr[n];
		n++;
	}
	return n;
}

void iser__recvq_fill(struct recvq *q, struct env *env)
{
	struct ibv_recv_wr wr[BATCH];
	unsigned n;

	do {
		q_lock(q);
		n = q->stopped ? 0 : batch_take(q, env, wr);
		q_unlock(q);
		if (n == 0)
			return;
		counter_add(&iser__receives_posted, n);
		/* What was refused counts as posted until it is closed. */
		if (post(q, wr) != 0)
			broke(q, env);
	} while (n == BATCH);
}

void iser__recvq_taken(struct recvq *q, unsigned before, unsigned now)
{
	unsigned share, all;

	q_lock(q);
	/* With those that @now were given back. */
	all = q->waits ? MIN(q->posted + now, q->capacity) : q->capacity;
	q->taken += now - before;
	q->takers += (now > 0) - (before > 0);
	q->calm += now;
	share = q->share;
	if (now > 0 && q->taken > all / SHORT_PART) {
		share = MIN(share, MAX(all * 3 / 4 / q->takers, 1u));
		q->calm = 0;
	} else if (now > 0 && q->calm >= all) {
		share = MIN(share * 2, q->capacity);
		q->calm = 0;
	}
	atomic_store_explicit(&q->share, share, memory_order_relaxed);
	q_unlock(q);
}

bool iser__recvq_short(struct recvq *q)
{
	bool is;

	q_lock(q);
	is = q->posted < q->wanted;
	q_unlock(q);
	return is;
}

bool iser__recvq_back(struct recvq *q)
{
	bool is;

	q_lock(q);
	is = q->posted == 0;
	q_unlock(q);
	return is;
}

bool iser__recvq_show(struct recv_slot *slot, struct env *env, unsigned n)
{
	return !slot->q->rdma->iwarp ||
	       pages_alloc(env->pages, PAGE_FRONT, n, slot->spare) == 0;
}

/* A page that somebody else holds too is theirs now. */
static void slot_renew(struct recv_slot *slot, unsigned i,
		       struct page_cache *pages)
{
	struct page *page = slot->pages[i], *spare = slot->spare[i];

	slot->spare[i] = NULL;
	if (page == NULL || atomic_load(&page->refs) == 1) {
		if (spare != NULL)
			page_put(pages, spare);
		return;
	}
	page_put(pages, page);
	slot->pages[i] = NULL;
	if (spare != NULL)
		slot_page(slot, i, spare);
}

void iser__recvq_give(struct recv_slot *slot, struct env *env)
{
	struct recvq *q = slot->q;

	q_lock(q);
	assert(slot->posted && q->posted > 0);
	slot->posted = false;
	q->posted--;
	for (unsigned i = 0; i < RECV_PAGES; i++)
		slot_renew(slot, i, env->pages);
	if (q->posted >= q->wanted) /* others are enough */
		slot_drop(slot, env->pages);
	SLIST_INSERT_HEAD(&q->idle, slot, link);
	q_unlock(q);
	counter_add(&iser__receives_posted, UINT64_MAX); /* one less */
}
