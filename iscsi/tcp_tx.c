/*
 * tcp_tx: the sending half of a TCP connection.
 *
 * What is queued during a turn leaves in one sendmsg: PDUs are cut from the
 * queue into slots, each a header and a reference to its data, and the slots
 * are described by iovecs.  No payload is copied.  Data-In is cut as it leaves,
 * so that a read of 16 MiB holds 64 headers at most.
 */
#include "iscsi/tcp_int.h"

static struct tx_slot *slot_at(struct tcp_conn *conn, unsigned i)
{
	return &conn->slots[(conn->slots_first + i) % TCP_SLOTS];
}

/* Lengths, digests and padding of a slot whose BHS and data are set. */
static void slot_seal(struct tx_slot *slot, const struct tx_item *item)
{
	static const uint8_t zeros[4];
	unsigned pad = (unsigned)(ROUND_UP(slot->len, 4u) - slot->len);

	slot->head[4] = 0;
	put_be24(slot->head + 5, (uint32_t)slot->len);
	slot->head_len = ISCSI_BHS_LEN;
	if (item->header_digest) {
		/* The byte stream is the little endian CRC. */
		put_le32(slot->head + ISCSI_BHS_LEN,
			 crc32c(slot->head, ISCSI_BHS_LEN));
		slot->head_len += 4;
	}
	memset(slot->tail, 0, sizeof(slot->tail));
	slot->tail_len = pad;
	if (item->data_digest && slot->len > 0) {
		uint32_t crc =
			slot->sgl != NULL
				? sgl_crc(slot->sgl, slot->offset, slot->len)
				: crc32c(slot->flat, slot->len);

		put_le32(slot->tail + pad, crc32c_more(crc, zeros, pad));
		slot->tail_len += 4;
	}
}

static void slot_send(struct tcp_conn *conn, struct tx_slot *slot,
		      struct dm_send *send)
{
	memcpy(slot->head, send->bhs, ISCSI_BHS_LEN);
	slot->flat = send->sgl == NULL ? send->data : NULL;
	slot->sgl = send->sgl != NULL ? sgl_get(send->sgl) : NULL;
	slot->offset = 0;
	slot->len = send->data_len;
	slot->last = true;
	conn->dm.up->stamp(conn->dm.owner, slot->head);
}

bool iscsi__tcp_collapses(const struct dm_data *data)
{
	const struct dm_send *rsp = data->response;

	/* Sense data and target failures need a PDU of their own (11.7.3). */
	return rsp != NULL && rsp->data_len == 0 && rsp->bhs[2] == 0;
}

static uint32_t data_in_chunk(const struct tcp_conn *conn)
{
	return MIN(conn->keys.max_send_data_len, conn->keys.max_burst);
}

/* The next Data-In PDU (11.7) of @data. */
static void slot_put(struct tcp_conn *conn, struct tx_slot *slot,
		     struct dm_data *data)
{
	struct tcp_data *td = tcp_data_of(data);
	uint32_t burst_left =
		conn->keys.max_burst - td->done % conn->keys.max_burst;
	uint32_t n = MIN(data_in_chunk(conn), burst_left);

	n = (uint32_t)MIN(n, data->len - td->done);
	memset(slot->head, 0, ISCSI_BHS_LEN);
	slot->head[0] = ISCSI_OP_DATA_IN;
	put_be32(slot->head + 16, data->itt);
	put_be32(slot->head + 20, ISCSI_NO_TAG);
	put_be32(slot->head + 36, td->sn++);
	put_be32(slot->head + 40, data->task_offset + td->done);
	slot->flat = NULL;
	slot->sgl = sgl_get(data->sgl);
	slot->offset = data->sgl_offset + td->done;
	slot->len = n;
	td->done += n;
	slot->last = td->done == data->len;
	if (slot->last || n == burst_left)
		slot->head[1] = ISCSI_FINAL;
	if (slot->last && iscsi__tcp_collapses(data)) {
		const uint8_t *rsp = data->response->bhs;

		slot->head[1] |=
			0x01 | (rsp[1] & (ISCSI_RESIDUAL_O | ISCSI_RESIDUAL_U));
		slot->head[3] = rsp[3];
		memcpy(slot->head + 24, rsp + 24, 4);
		memcpy(slot->head + 44, rsp + 44, 4);
	} else if (slot->last && data->response != NULL) {
		put_be32(data->response->bhs + 36, td->sn); /* ExpDataSN */
	}
	conn->dm.up->stamp(conn->dm.owner, slot->head);
}

static void slot_r2t(struct tcp_conn *conn, struct tx_slot *slot,
		     struct dm_data *data)
{
	const uint8_t *bhs = tcp_data_of(data)->r2t;

	memcpy(slot->head, bhs, ISCSI_BHS_LEN);
	slot->flat = NULL;
	slot->sgl = NULL;
	slot->offset = slot->len = 0;
	slot->last = true;
	conn->dm.up->stamp(conn->dm.owner, slot->head);
	memcpy(slot->head + 24, bhs + 24, 4); /* StatSN: as when queued */
}

static void slots_fill(struct tcp_conn *conn)
{
	struct tx_item *item;

	while (conn->slots_count < TCP_SLOTS &&
	       (item = TAILQ_FIRST(&conn->queue)) != NULL) {
		struct tx_slot *slot = slot_at(conn, conn->slots_count);

		switch ((enum tx_kind)item->kind) {
		case TX_SEND:
			slot_send(conn, slot, item->owner);
			break;
		case TX_PUT:
			slot_put(conn, slot, item->owner);
			break;
		case TX_R2T:
			slot_r2t(conn, slot, item->owner);
			break;
		}
		slot_seal(slot, item);
		/* An R2T's request lives on: nobody waits for the sending. */
		slot->item = item->kind == TX_R2T ? NULL : item;
		conn->slots_count++;
		if (slot->last) {
			TAILQ_REMOVE(&conn->queue, item, link);
			item->queued = false;
		}
	}
}

/* Add @len bytes at @base, less what *@skip says has gone already. */
static unsigned iov_add(struct iovec *iov, unsigned n, const void *base,
			size_t len, size_t *skip)
{
	size_t cut = MIN(*skip, len);

	*skip -= cut;
	if (len == cut)
		return n;
	iov[n].iov_base = (char *)(uintptr_t)base + cut;
	iov[n].iov_len = len - cut;
	return n + 1;
}

static unsigned slots_iov(struct tcp_conn *conn, struct iovec *iov)
{
	size_t skip = conn->head_sent;
	unsigned n = 0;

	for (unsigned i = 0; i < conn->slots_count; i++) {
		struct tx_slot *s = slot_at(conn, i);

		if (n + 3 > TCP_IOV)
			break;
		n = iov_add(iov, n, s->head, s->head_len, &skip);
		if (s->sgl != NULL && s->len > 0) {
			size_t cut = MIN(skip, s->len), covered = 0;

			skip -= cut;
			if (s->len > cut)
				n += sgl_iov(s->sgl, s->offset + cut,
					     s->len - cut, iov + n,
					     TCP_IOV - 1 - n, &covered);
			if (covered < s->len - cut)
				break; /* the rest of it in the next round */
		} else if (s->len > 0) {
			n = iov_add(iov, n, s->flat, s->len, &skip);
		}
		n = iov_add(iov, n, s->tail, s->tail_len, &skip);
	}
	return n;
}

void iscsi__tcp_finish(struct tx_item *item, int status)
{
	if (item->kind == TX_SEND) {
		struct dm_send *send = item->owner;

		send->cb(send, status);
	} else {
		struct dm_data *data = item->owner;
		struct dm_send *rsp = data->response;
		/* After data->cb nothing of @data may be looked at. */
		bool both = item->kind == TX_PUT && iscsi__tcp_collapses(data);

		data->cb(data, status);
		if (both)
			rsp->cb(rsp, status);
	}
}

/* @n bytes have gone: let go of the slots they fill. */
static void slots_sent(struct tcp_conn *conn, size_t n)
{
	struct tx_queue done = TAILQ_HEAD_INITIALIZER(done);
	struct tx_item *item;

	conn->head_sent += n;
	while (conn->slots_count > 0) {
		struct tx_slot *s = slot_at(conn, 0);
		size_t whole = s->head_len + s->len + s->tail_len;

		if (conn->head_sent < whole)
			break;
		conn->head_sent -= whole;
		sgl_put(s->sgl);
		s->sgl = NULL;
		if (s->item != NULL && s->last)
			TAILQ_INSERT_TAIL(&done, s->item, link);
		conn->slots_first = (conn->slots_first + 1) % TCP_SLOTS;
		conn->slots_count--;
	}
	while ((item = TAILQ_FIRST(&done)) != NULL) {
		TAILQ_REMOVE(&done, item, link);
		iscsi__tcp_finish(item, 0);
	}
}

/* Send what there is until the socket is full.  Not inside a call down. */
void iscsi__tcp_flush(struct tcp_conn *conn)
{
	struct iovec iov[TCP_IOV];
	struct msghdr msg = { .msg_iov = iov };

	conn->want_write = false;
	for (unsigned round = 0; tcp_alive(conn); round++) {
		ssize_t n;

		slots_fill(conn);
		if (conn->slots_count == 0) {
			conn->tx_since_ns = 0;
			break;
		}
		if (conn->tx_since_ns == 0)
			conn->tx_since_ns = env_now(conn->dm.env);
		if (round == 16) { /* others want their turn */
			conn->want_write = true;
			break;
		}
		msg.msg_iovlen = slots_iov(conn, iov);
		n = sendmsg(conn->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
			conn->want_write = conn->tx_full = true;
			break;
		}
		if (n < 0) {
			iscsi__tcp_failed(conn, errno);
			return;
		}
		conn->tx_since_ns = env_now(conn->dm.env);
		if (conn->tx_full) /* the peer fetched some of what filled it */
			conn->dm.part_ns = conn->tx_since_ns;
		conn->tx_full = false;
		slots_sent(conn, (size_t)n);
	}
	iscsi__tcp_poll(conn);
	iscsi__tcp_timer(conn);
}

/* The socket is closed: everything that waits ends with -ECANCELED. */
void iscsi__tcp_tx_cancel(struct tcp_conn *conn)
{
	struct tx_item *item;

	while (conn->slots_count > 0) {
		struct tx_slot *s = slot_at(conn, 0);

		item = s->last ? s->item : NULL;
		sgl_put(s->sgl);
		s->sgl = NULL;
		conn->slots_first = (conn->slots_first + 1) % TCP_SLOTS;
		conn->slots_count--;
		if (item != NULL)
			iscsi__tcp_finish(item, -ECANCELED);
	}
	while ((item = TAILQ_FIRST(&conn->queue)) != NULL) {
		TAILQ_REMOVE(&conn->queue, item, link);
		item->queued = false;
		/* Who waits for data is told through the list of those. */
		if (item->kind != TX_R2T)
			iscsi__tcp_finish(item, -ECANCELED);
	}
}
