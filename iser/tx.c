/*
 * tx: the send queue of a connection.
 *
 * What the session sends during a turn is queued, and posted in batches at the
 * end of it: SENDs and RDMA WRITEs in order, so that a response is delivered
 * behind its data (RFC 7145 9.5.2); RDMA READs beside them, no more than the
 * initiator serves at a time, as more would hold up the responses behind them.
 *
 * What all initiators answer to READs comes in by one link.  More of it than keeps
 * that busy gains nothing: it waits on the way, or is dropped there and has to come
 * again, and SoftRoCE ends a connection when it drops an answer.  So those that
 * fetch share what a device has in flight.  Each keeps to its share by itself: it
 * always has a READ there, whose end brings it here again, and waits for nobody.
 *
 * Work requests complete in order, so only some of them say so: every READ, as
 * its data counts from then on, and the last of each batch.  A request's memory
 * and callback wait for that, or for the end of the queue pair.
 */
#define LOG_ROOM LOG_ISER
#include "iser/iser_int.h"

_Static_assert(sizeof(struct tx_item) <= sizeof(((struct dm_send *)0)->impl),
	       "what waits to be sent fits its place");
_Static_assert(sizeof(struct iser_data) <= sizeof(((struct dm_data *)0)->impl),
	       "what moves data fits its place");

/* The number of the work request behind all others. */
#define MARKER (UINT64_MAX >> 1)

struct batch {
	unsigned count;
	struct ibv_send_wr wr[TX_BATCH];
	struct ibv_sge sge[TX_BATCH][TX_SGE];
};

static struct tx_item *item_of(struct dm_send *send)
{
	return (struct tx_item *)send->impl;
}

static struct iser_data *data_of(struct dm_data *data)
{
	return (struct iser_data *)data->impl;
}

static struct dm_data *dm_data_of(const struct iser_data *d)
{
	return d->item.owner;
}

/* ---- begin and end ---- */

static int pages_take(struct iser_conn *conn)
{
	struct page_cache *cache = conn->dm.env->pages;
	struct tx *tx = &conn->tx;
	int rv;

	rv = pages_alloc(cache, PAGE_FRONT, TX_SLOT_PAGES, tx->pages);
	if (rv < 0)
		return rv;
	rv = pages_alloc(cache, PAGE_FRONT, TX_BIG_PAGES, tx->big);
	if (rv < 0)
		for (unsigned i = 0; i < TX_SLOT_PAGES; i++)
			page_put(cache, tx->pages[i]);
	return rv;
}

int iser__tx_init(struct iser_conn *conn, unsigned depth, unsigned reads_max)
{
	struct tx *tx = &conn->tx;
	size_t wrs = 1;
	int rv;

	TAILQ_INIT(&tx->queue);
	TAILQ_INIT(&tx->reads);
	TAILQ_INIT(&tx->cancelled);
	for (unsigned i = 0; i < ISCSI_ITT_BUCKETS; i++)
		TAILQ_INIT(&tx->gets[i]);
	while (wrs < depth)
		wrs *= 2;
	tx->wrs_mask = wrs - 1;
	tx->wrs = calloc(wrs, sizeof(*tx->wrs));
	if (tx->wrs == NULL)
		return -ENOMEM;
	rv = pages_take(conn);
	if (rv < 0) {
		free(tx->wrs);
		tx->wrs = NULL;
		return rv;
	}
	for (unsigned i = 0; i < TX_SLOTS; i++)
		tx->free[i] = (uint8_t)(TX_SLOTS - 1 - i);
	tx->free_count = TX_SLOTS;
	tx->depth = depth;
	tx->signals = conn->device->rdma->iwarp;
	tx->reads_max = MIN(reads_max, TX_READS_MAX);
	tx->write_sge = MIN(conn->device->rdma->sge_max, TX_SGE);
	tx->read_sge = MIN(conn->device->rdma->sge_read_max, TX_SGE);
	return 0;
}

void iser__tx_fini(struct iser_conn *conn)
{
	struct page_cache *cache = conn->dm.env->pages;
	struct tx *tx = &conn->tx;

	if (tx->wrs == NULL)
		return;
	assert(tx->head == tx->tail && iser__tx_empty(conn));
	assert(tx->free_count == TX_SLOTS && !tx->big_used);
	assert(tx->reads_out == 0 && tx->reads_bytes == 0);
	assert(tx->sends_out == 0);
	assert(conn->dm.unsent == 0);
	for (unsigned i = 0; i < TX_SLOT_PAGES; i++)
		page_put(cache, tx->pages[i]);
	for (unsigned i = 0; i < TX_BIG_PAGES; i++)
		page_put(cache, tx->big[i]);
	free(tx->wrs);
	tx->wrs = NULL;
}

bool iser__tx_empty(const struct iser_conn *conn)
{
	const struct tx *tx = &conn->tx;

	return TAILQ_EMPTY(&tx->queue) && TAILQ_EMPTY(&tx->cancelled) &&
	       tx->gets_count == 0;
}

/* ---- the calls down ---- */

/* It is a hint to each of them: no order. */
static void fetchers_add(struct iser_conn *conn, int more)
{
	atomic_fetch_add_explicit(&conn->device->fetchers, (unsigned)more,
				  memory_order_relaxed);
}

static void turn(struct iser_conn *conn)
{
	if (!conn->finishing) /* else the end comes round to it */
		env_defer(conn->dm.env, &conn->turn);
}

static void item_queue(struct iser_conn *conn, struct tx_item *item,
		       struct tx_items *queue, enum tx_kind kind, void *owner)
{
	item->kind = (uint8_t)kind;
	item->owner = owner;
	item->queued = true;
	TAILQ_INSERT_TAIL(queue, item, link);
	turn(conn);
}

void iser__tx_send(struct iser_conn *conn, struct dm_send *send)
{
	conn->dm.unsent++;
	item_queue(conn, item_of(send), &conn->tx.queue, TX_SEND, send);
}

void iser__tx_put(struct iser_conn *conn, struct dm_data *data)
{
	struct iser_data *d = data_of(data);

	/* Checked when the command came in. */
	assert(data->len > 0 && data->stags != NULL && data->stags->read_valid);
	data->conn = &conn->dm;
	*d = (struct iser_data){ .posted = 0 };
	item_queue(conn, &d->item, &conn->tx.queue, TX_PUT, data);
	if (data->response != NULL)
		iser__tx_send(conn, data->response);
}

void iser__tx_get(struct iser_conn *conn, struct dm_data *data)
{
	struct iser_data *d = data_of(data);
	struct tx *tx = &conn->tx;

	assert(data->len > 0 && data->stags != NULL &&
	       data->stags->write_valid);
	assert(data->task_offset >= data->stags->immediate_len);
	data->conn = &conn->dm;
	*d = (struct iser_data){ .posted = 0 };
	TAILQ_INSERT_TAIL(&tx->gets[iscsi_itt_bucket(data->itt)], d, bucket);
	if (tx->gets_count++ == 0)
		fetchers_add(conn, 1);
	item_queue(conn, &d->item, &tx->reads, TX_GET, data);
}

/* ---- READs that end ---- */

static void get_unqueue(struct tx *tx, struct iser_data *d)
{
	if (!d->item.queued)
		return;
	TAILQ_REMOVE(&tx->reads, &d->item, link);
	d->item.queued = false;
}

static void get_remove(struct iser_conn *conn, struct iser_data *d)
{
	struct tx *tx = &conn->tx;

	assert(tx->gets_count > 0 && d->wrs == 0);
	if (--tx->gets_count == 0)
		fetchers_add(conn, -1);
	TAILQ_REMOVE(&tx->gets[iscsi_itt_bucket(dm_data_of(d)->itt)], d,
		     bucket);
	get_unqueue(tx, d);
}

void iser__tx_forget(struct iser_conn *conn, uint32_t itt)
{
	struct tx *tx = &conn->tx;
	struct iser_data *d, *next;

	if (tx->gets_count == 0)
		return;
	for (d = TAILQ_FIRST(&tx->gets[iscsi_itt_bucket(itt)]); d != NULL;
	     d = next) {
		next = TAILQ_NEXT(d, bucket);
		if (dm_data_of(d)->itt != itt)
			continue;
		d->cancelled = true;
		get_unqueue(tx, d);
		if (d->wrs > 0)
			continue; /* the device writes to its memory yet */
		get_remove(conn, d);
		TAILQ_INSERT_TAIL(&tx->cancelled, &d->item, link);
		turn(conn);
	}
}

void iser__tx_cancelled(struct iser_conn *conn)
{
	struct tx_item *item;

	while ((item = TAILQ_FIRST(&conn->tx.cancelled)) != NULL) {
		struct dm_data *data = item->owner;

		TAILQ_REMOVE(&conn->tx.cancelled, item, link);
		data->cb(data, -ECANCELED);
	}
}

/* ---- posting ---- */

/* One place stays for the marker. */
static bool room(const struct tx *tx)
{
	return tx->tail - tx->head < tx->depth - 1;
}

/* What @opcode does not use of it is left as it is. */
static inline struct ibv_send_wr *wr_new(struct tx *tx, struct batch *b,
					 enum ibv_wr_opcode opcode,
					 struct tx_wr **mine)
{
	struct ibv_send_wr *wr = &b->wr[b->count];

	wr->wr_id = tx->tail << 1;
	wr->next = NULL;
	wr->sg_list = b->sge[b->count];
	wr->num_sge = 0;
	wr->opcode = opcode;
	wr->send_flags = tx->signals ? IBV_SEND_SIGNALED : 0;
	if (b->count > 0)
		b->wr[b->count - 1].next = wr;
	b->count++;
	*mine = &tx->wrs[tx->tail & tx->wrs_mask];
	**mine = (struct tx_wr){ .slot = TX_SLOTS };
	tx->tail++;
	return wr;
}

/* The next piece of @data's memory, @most bytes of it. */
static uint32_t wr_sges(struct iser_conn *conn, struct ibv_send_wr *wr,
			const struct dm_data *data, unsigned sge_max,
			uint32_t most)
{
	const struct iser_data *d = (const struct iser_data *)data->impl;
	size_t left = MIN(data->len - d->posted, most), covered;

	wr->num_sge = (int)rdma_sges(conn->device->rdma, data->sgl,
				     data->sgl_offset + d->posted, left,
				     wr->sg_list, sge_max, &covered);
	return (uint32_t)covered;
}

/* Bytes that the next READ may fetch of @left; 0: none may be posted now. */
static uint32_t read_may(const struct iser_conn *conn, size_t left)
{
	const struct tx *tx = &conn->tx;
	unsigned fetchers = atomic_load_explicit(&conn->device->fetchers,
						 memory_order_relaxed);
	uint32_t share =
		MAX(ROUND_DOWN(TX_READS_BYTES / MAX(fetchers, 1u), PAGE_BYTES),
		    TX_READS_LEAST);

	if (tx->reads_out == 0)
		return MIN(share, TX_WR_BYTES);
	/* No crumbs of what is large: it would pay too much for them. */
	if (tx->reads_out == tx->reads_max ||
	    tx->reads_bytes + MIN(left, TX_READS_LEAST) > share)
		return 0;
	return MIN(share - tx->reads_bytes, TX_WR_BYTES);
}

static void post_read(struct iser_conn *conn, struct batch *b,
		      struct iser_data *d, uint32_t most)
{
	struct tx *tx = &conn->tx;
	struct dm_data *data = dm_data_of(d);
	const struct dm_stags *stags = data->stags;
	struct tx_wr *mine;
	struct ibv_send_wr *wr = wr_new(tx, b, IBV_WR_RDMA_READ, &mine);
	uint32_t n = wr_sges(conn, wr, data, tx->read_sge, most);

	wr->send_flags |= IBV_SEND_SIGNALED;
	wr->wr.rdma.rkey = stags->write;
	/* The initiator's address lies behind what came with the command. */
	wr->wr.rdma.remote_addr = stags->write_base + data->task_offset -
				  stags->immediate_len + d->posted;
	mine->item = &d->item;
	mine->read = true;
	mine->bytes = n;
	d->posted += n;
	d->wrs++;
	tx->reads_out++;
	tx->reads_bytes += n;
	counter_add(&iser__reads, 1);
	if (d->posted == data->len)
		get_unqueue(tx, d);
}

static void post_write(struct iser_conn *conn, struct batch *b,
		       struct dm_data *data)
{
	struct tx *tx = &conn->tx;
	struct iser_data *d = data_of(data);
	struct tx_wr *mine;
	struct ibv_send_wr *wr = wr_new(tx, b, IBV_WR_RDMA_WRITE, &mine);
	uint32_t n = wr_sges(conn, wr, data, tx->write_sge, TX_WR_BYTES);

	wr->wr.rdma.rkey = data->stags->read;
	wr->wr.rdma.remote_addr =
		data->stags->read_base + data->task_offset + d->posted;
	d->posted += n;
	counter_add(&iser__writes, 1);
	if (d->posted < data->len)
		return;
	TAILQ_REMOVE(&tx->queue, &d->item, link);
	d->item.queued = false;
	mine->item = &d->item;
}

static uint8_t *slot_at(struct tx *tx, unsigned slot)
{
	unsigned per_page = PAGE_BYTES / TX_SLOT_BYTES;

	return tx->pages[slot / per_page]->data +
	       slot % per_page * TX_SLOT_BYTES;
}

static void sge_add(struct iser_conn *conn, struct ibv_send_wr *wr, void *at,
		    uint32_t len)
{
	wr->sg_list[wr->num_sge++] = (struct ibv_sge){
		.addr = (uintptr_t)at,
		.length = len,
		.lkey = rdma_lkey(conn->device->rdma, at),
	};
}

/* Data that does not fit a slot: of logins and discovery. */
static void send_big(struct iser_conn *conn, struct ibv_send_wr *wr,
		     const struct dm_send *send)
{
	struct tx *tx = &conn->tx;
	const uint8_t *from = send->data;
	uint32_t done = 0;

	tx->big_used = true;
	tx->wrs[(tx->tail - 1) & tx->wrs_mask].big = true;
	for (unsigned i = 0; done < send->data_len; i++) {
		uint32_t n = MIN(send->data_len - done, PAGE_BYTES);

		assert(i < TX_BIG_PAGES);
		memcpy(tx->big[i]->data, from + done, n);
		sge_add(conn, wr, tx->big[i]->data, n);
		done += n;
	}
}

/* May the STag that @send's command brought be invalidated by the response? */
static bool invalidates(const struct iser_conn *conn,
			const struct dm_send *send, uint32_t *rkey)
{
	const struct dm_stags *stags = send->stags;

	if (!conn->invalidates || stags == NULL ||
	    stags->read_valid == stags->write_valid)
		return false;
	*rkey = stags->read_valid ? stags->read : stags->write;
	return true;
}

/*
 * Is data of the task that @send answers being fetched yet?  It was aborted from
 * elsewhere, and the initiator takes its memory back with the answer.
 */
static bool fetches(const struct iser_conn *conn, const struct dm_send *send)
{
	const struct tx *tx = &conn->tx;
	const struct iser_data *d;

	if (send->stags == NULL || tx->gets_count == 0)
		return false;
	TAILQ_FOREACH (d, &tx->gets[iscsi_itt_bucket(get_be32(send->bhs + 16))],
		       bucket)
		if (dm_data_of(d)->stags == send->stags)
			return true;
	return false;
}

static void post_send(struct iser_conn *conn, struct batch *b,
		      struct dm_send *send)
{
	struct tx *tx = &conn->tx;
	struct tx_wr *mine;
	struct ibv_send_wr *wr = wr_new(tx, b, IBV_WR_SEND, &mine);
	uint8_t *at, *bhs;
	uint32_t rkey;

	assert(send->sgl == NULL); /* flat is all that a session sends */
	mine->item = item_of(send);
	mine->send = true;
	mine->slot = tx->free[--tx->free_count];
	at = slot_at(tx, mine->slot);
	iser__header_put(at);
	bhs = at + ISER_HEADER_LEN;
	memcpy(bhs, send->bhs, ISCSI_BHS_LEN);
	bhs[4] = 0;
	put_be24(bhs + 5, send->data_len);
	if ((bhs[0] & ISCSI_OP_MASK) == ISCSI_OP_RESPONSE)
		put_be32(bhs + 36, 0); /* no DataSN, no R2TSN: 7.3.2 */
	conn->dm.unsent--;
	conn->dm.up->stamp(conn->dm.owner, bhs);
	if (send->data_len <= TX_SLOT_DATA) {
		if (send->data_len > 0)
			memcpy(at + ISER_FIXED_LEN, send->data, send->data_len);
		sge_add(conn, wr, at, ISER_FIXED_LEN + send->data_len);
		if (ISER_FIXED_LEN + send->data_len <= tx->inline_max)
			wr->send_flags |= IBV_SEND_INLINE;
	} else {
		sge_add(conn, wr, at, ISER_FIXED_LEN);
		send_big(conn, wr, send);
	}
	if (invalidates(conn, send, &rkey)) {
		wr->opcode = IBV_WR_SEND_WITH_INV;
		wr->invalidate_rkey = rkey;
		wr->wr.rdma.rkey = rkey; /* where libsiw looks for it */
		counter_add(&iser__invalidated, 1);
	}
	if (fetches(conn, send))
		wr->send_flags |= IBV_SEND_FENCE; /* behind the READs */
	if ((bhs[0] & ISCSI_OP_MASK) == ISCSI_OP_LOGOUT_RSP && bhs[2] == 0)
		conn->goodbye = true;
	if (send == tx->login) {
		tx->login = NULL;
		tx->login_number = tx->tail - 1;
	}
	TAILQ_REMOVE(&tx->queue, mine->item, link);
	mine->item->queued = false;
	tx->sends_out++;
	counter_add(&iser__sends, 1);
}

static bool send_may(const struct tx *tx, const struct dm_send *send)
{
	if (tx->free_count == 0 || (tx->solo && tx->sends_out > 0))
		return false;
	return send->data_len <= TX_SLOT_DATA || !tx->big_used;
}

/* Add the next work request to @b.  False: there is none, or none may. */
static bool post_next(struct iser_conn *conn, struct batch *b)
{
	struct tx *tx = &conn->tx;
	struct tx_item *item;

	if (!room(tx))
		return false;
	item = TAILQ_FIRST(&tx->reads);
	if (item != NULL) {
		struct iser_data *d =
			container_of(item, struct iser_data, item);
		uint32_t most = read_may(conn, dm_data_of(d)->len - d->posted);

		if (most > 0) {
			post_read(conn, b, d, most);
			return true;
		}
	}
	item = TAILQ_FIRST(&tx->queue);
	if (item == NULL)
		return false;
	if (item->kind == TX_PUT) {
		post_write(conn, b, item->owner);
		return true;
	}
	if (!send_may(tx, item->owner))
		return false;
	post_send(conn, b, item->owner);
	return true;
}

void iser__tx_flush(struct iser_conn *conn)
{
	struct ibv_send_wr *bad;
	struct batch b;

	while (iser__conn_alive(conn)) {
		int rv;

		b.count = 0;
		while (b.count < TX_BATCH && post_next(conn, &b))
			;
		if (b.count == 0)
			return;
		b.wr[b.count - 1].send_flags |= IBV_SEND_SIGNALED;
		rv = ibv_post_send(conn->qp, b.wr, &bad);
		/* What was not taken ends with the queue pair. */
		if (rv != 0)
			iser__conn_lost(conn, -rv, "sending failed");
		else
			iser__conn_watch(conn);
	}
}

/* ---- completing ---- */

static void get_done(struct iser_conn *conn, struct iser_data *d, bool ok)
{
	struct dm_data *data = dm_data_of(d);
	bool whole;

	assert(d->wrs > 0 && conn->tx.reads_out > 0);
	d->wrs--;
	conn->tx.reads_out--;
	if (!ok)
		d->cancelled = true;
	if (d->cancelled)
		get_unqueue(&conn->tx, d);
	whole = d->posted == data->len && !d->cancelled;
	if (d->wrs > 0 || (!whole && !d->cancelled))
		return;
	get_remove(conn, d);
	data->cb(data, whole ? 0 : -ECANCELED);
}

static struct tx_wr *wr_of(struct tx *tx, uint64_t number)
{
	return &tx->wrs[number & tx->wrs_mask];
}

static void wr_done(struct iser_conn *conn, uint64_t number, bool ok)
{
	struct tx *tx = &conn->tx;
	struct tx_wr wr = *wr_of(tx, number);
	struct tx_item *item = wr.item;

	assert(!wr.done);
	wr_of(tx, number)->done = true;
	if (wr.slot < TX_SLOTS)
		tx->free[tx->free_count++] = wr.slot;
	if (wr.big)
		tx->big_used = false;
	if (wr.send) {
		tx->sends_out--;
		if (tx->solo && tx->login == NULL && number > tx->login_number)
			tx->solo = false;
	}
	if (item == NULL)
		return;
	if (wr.read) {
		assert(tx->reads_bytes >= wr.bytes);
		tx->reads_bytes -= wr.bytes;
		get_done(conn, container_of(item, struct iser_data, item), ok);
	} else if (item->kind == TX_PUT) {
		struct dm_data *data = item->owner;

		data->cb(data, ok ? 0 : -ECANCELED);
	} else {
		struct dm_send *send = item->owner;

		send->cb(send, ok ? 0 : -ECANCELED);
	}
}

/*
 * Work request @number is done; @ok: with success.  Those before it were
 * successful, as they would have told otherwise; but not READs, which tell each for
 * itself: software iWARP completes what was posted behind them first.  It also
 * tells twice of one that failed: why, and that it was flushed.
 */
void iser__tx_complete(struct iser_conn *conn, uint64_t number, bool ok)
{
	struct tx *tx = &conn->tx;
	uint64_t n;

	if (number == MARKER) {
		tx->drained = true;
		return;
	}
	assert(number < tx->tail);
	if (number < tx->head || wr_of(tx, number)->done)
		return;
	for (n = tx->head; n < number; n++)
		if (!wr_of(tx, n)->done && !wr_of(tx, n)->read)
			wr_done(conn, n, true);
	wr_done(conn, number, ok);
	while (tx->head < tx->tail && wr_of(tx, tx->head)->done)
		tx->head++;
	if (!TAILQ_EMPTY(&tx->queue) || !TAILQ_EMPTY(&tx->reads))
		turn(conn);
}

/* ---- the end ---- */

/*
 * In error some devices take nothing more (bnxt_re, cxgb4): what was posted they let
 * go of with the queue pair.  What was received comes by itself.
 */
void iser__tx_marker(struct iser_conn *conn)
{
	struct ibv_send_wr wr = { .wr_id = MARKER << 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;

	assert(!conn->tx.marker);
	conn->tx.marker = true;
	conn->tx.drained = ibv_post_send(conn->qp, &wr, &bad) != 0;
}

void iser__tx_cancel(struct iser_conn *conn)
{
	struct tx *tx = &conn->tx;
	struct tx_item *item;

	for (; tx->head < tx->tail; tx->head++)
		if (!wr_of(tx, tx->head)->done)
			wr_done(conn, tx->head, false);
	for (unsigned i = 0; i < ISCSI_ITT_BUCKETS; i++) {
		struct iser_data *d;

		while ((d = TAILQ_FIRST(&tx->gets[i])) != NULL) {
			struct dm_data *data = dm_data_of(d);

			get_remove(conn, d);
			data->cb(data, -ECANCELED);
		}
	}
	while ((item = TAILQ_FIRST(&tx->queue)) != NULL) {
		TAILQ_REMOVE(&tx->queue, item, link);
		item->queued = false;
		if (item->kind == TX_PUT) {
			struct dm_data *data = item->owner;

			data->cb(data, -ECANCELED);
		} else {
			struct dm_send *send = item->owner;

			conn->dm.unsent--;
			send->cb(send, -ECANCELED);
		}
	}
	iser__tx_cancelled(conn);
}
