/*
 * tcp_rx: the receiving half of a TCP connection.
 *
 * Bytes come into a buffer, PDUs are cut from it.  A header tells where its
 * data goes: the session names an sgl for what belongs to a command, a flat
 * buffer takes the rest, some is dropped.  Data that was not read with its
 * header is read straight into the pages; what was is copied out of the buffer,
 * once, which for little data is cheaper than a system call.  So that large data
 * is not read with its header, headers are read alone while such data is about:
 * when it was asked for, and for some PDUs after any came unasked.
 *
 * Where data finds no memory the session may put it off: then nothing is read for
 * a while, and TCP holds the initiator up.
 *
 * Lengths are checked before anything is allocated for them.
 */
#include "iscsi/tcp_int.h"

#include <sys/socket.h>

struct dm_data *iscsi__tcp_get_find(struct tcp_conn *conn, uint32_t itt,
				    uint32_t ttt)
{
	struct tcp_data *td;

	TAILQ_FOREACH (td, &conn->gets[iscsi_itt_bucket(itt)], bucket)
		if (td->ttt == ttt && dm_data_of(td)->itt == itt)
			return dm_data_of(td);
	return NULL;
}

void iscsi__tcp_get_remove(struct tcp_conn *conn, struct dm_data *get)
{
	struct tcp_data *td = tcp_data_of(get);

	assert(conn->gets_count > 0);
	conn->gets_count--;
	TAILQ_REMOVE(&conn->gets[iscsi_itt_bucket(get->itt)], td, bucket);
	if (td->item.queued) { /* its R2T did not leave yet */
		TAILQ_REMOVE(&conn->queue, &td->item, link);
		td->item.queued = false;
	} else {
		conn->strays_due += get->len - td->done;
	}
	if (conn->get == get)
		conn->get = NULL;
}

/*
 * Data-Out of a task that was aborted, most likely: of so much as was asked for it is
 * no matter in how small PDUs it comes.
 */
static void begin_stray(struct tcp_conn *conn, uint32_t len)
{
	conn->stray = true;
	counter_add(&iscsi__discarded, 1);
	if (len > 0 && len <= conn->strays_due)
		conn->strays_due -= len;
	else if (++conn->strays > TCP_STRAY_MAX)
		iscsi__tcp_lost(conn, -EPROTO,
				"too much Data-Out without a task");
}

/* A solicited Data-Out (11.7): find its R2T and hold it to that. */
static void begin_solicited(struct tcp_conn *conn)
{
	const uint8_t *bhs = conn->header;
	struct dm_data *get = iscsi__tcp_get_find(conn, get_be32(bhs + 16),
						  get_be32(bhs + 20));
	uint32_t len = conn->pdu.data_len;
	struct tcp_data *td;
	bool final = bhs[1] & ISCSI_FINAL;

	if (get == NULL) {
		begin_stray(conn, len);
		return;
	}
	td = tcp_data_of(get);
	if (get_be32(bhs + 36) != td->sn) {
		/*
		 * PDUs were lost or swapped above TCP: that costs the command,
		 * and what follows for this R2T is nobody's.
		 */
		conn->stray = true;
		iscsi__tcp_get_remove(conn, get);
		get->cb(get, -EPROTO);
		return;
	}
	if (get_be64(bhs + 8) != get->lun ||
	    get_be32(bhs + 40) != get->task_offset + td->done ||
	    len > get->len - td->done ||
	    final != (len == get->len - td->done)) {
		iscsi__tcp_lost(conn, -EPROTO, "Data-Out outside of its R2T");
		return;
	}
	td->sn++;
	conn->strays = 0;
	conn->get = get;
	conn->sgl = sgl_get(get->sgl);
	conn->sgl_offset = get->sgl_offset + td->done;
}

/* There is no place for its data yet. */
static void put_off(struct tcp_conn *conn)
{
	uint64_t now = env_now(conn->dm.env);

	conn->rx = RX_LATER;
	conn->put_off_ns = now;
	conn->pdu_since_ns = 0; /* it is not the peer's time */
	iscsi__tcp_poll(conn);
	conn->timer_on = true;
	env_timer_start(conn->dm.env, &conn->timer, conn->dm.later_ns - now);
}

static struct sgl *land(struct tcp_conn *conn, size_t *offset)
{
	conn->dm.later = false;
	conn->dm.later_ns = env_now(conn->dm.env) + TCP_LATER_NS -
			    MIN(conn->waited_ns, TCP_LATER_NS);
	return conn->dm.up->land(conn->dm.owner, &conn->pdu, offset);
}

/* The header is in: decide where the data will lie. */
static void begin_data(struct tcp_conn *conn)
{
	uint8_t opcode = conn->header[0] & ISCSI_OP_MASK;
	struct dm_pdu *pdu = &conn->pdu;
	struct sgl *sgl;

	conn->get = NULL;
	conn->stray = false;
	conn->data_got = 0;
	pdu->sgl = NULL;
	pdu->data = NULL;
	pdu->data_digest_bad = false;
	if (opcode == ISCSI_OP_DATA_OUT && conn->full &&
	    get_be32(conn->header + 20) != ISCSI_NO_TAG) {
		begin_solicited(conn);
		return;
	}
	if (pdu->data_len == 0)
		return;
	if (opcode == ISCSI_OP_COMMAND || opcode == ISCSI_OP_DATA_OUT) {
		size_t offset = 0;

		sgl = land(conn, &offset);
		if (conn->dm.later && tcp_alive(conn)) {
			put_off(conn);
		} else if (sgl != NULL && tcp_alive(conn)) {
			assert(offset + pdu->data_len <= sgl->len_bytes);
			conn->sgl = sgl_get(sgl);
			conn->sgl_offset = offset;
		}
		return;
	}
	/* At most our own MaxRecvDataSegmentLength: checked. */
	conn->flat = malloc(pdu->data_len);
	if (conn->flat == NULL)
		iscsi__tcp_lost(conn, -ENOMEM, "no memory for a PDU");
}

/*
 * Take a header off the buffer.  Returns false if it is not complete or the
 * connection ended over it.
 */
static bool parse_header(struct tcp_conn *conn)
{
	const uint8_t *bhs = conn->buf + conn->start;
	size_t avail = conn->end - conn->start;
	unsigned ahs_len, digest = conn->header_digest ? 4 : 0, len;
	uint32_t data_len, max;

	if (avail < ISCSI_BHS_LEN)
		return false;
	ahs_len = bhs[4] * 4u;
	data_len = get_be24(bhs + 5);
	max = conn->full ? conn->keys.max_recv_data_len : ISCSI_LOGIN_DATA_MAX;
	if (!conn->full && bhs[0] & 0x80) {
		iscsi__tcp_lost(conn, -EPROTO, "this is not iSCSI");
		return false;
	}
	if (!conn->header_digest) {
		/* With a digest, believe it before the lengths. */
		if (data_len > max) {
			iscsi__tcp_lost(conn, -EMSGSIZE,
					"a data segment is too long");
			return false;
		}
		if (ahs_len > 0 &&
		    (bhs[0] & ISCSI_OP_MASK) != ISCSI_OP_COMMAND) {
			iscsi__tcp_lost(conn, -EPROTO,
					"AHS outside of a SCSI Command");
			return false;
		}
	}
	len = ISCSI_BHS_LEN + ahs_len;
	if (avail < len + digest)
		return false;
	if (digest && get_le32(bhs + len) != crc32c(bhs, len)) {
		iscsi__tcp_lost(conn, -EBADMSG, "bad header digest");
		return false;
	}
	if (data_len > max ||
	    (ahs_len > 0 && (bhs[0] & ISCSI_OP_MASK) != ISCSI_OP_COMMAND)) {
		iscsi__tcp_lost(conn, -EPROTO, "a header's lengths are wrong");
		return false;
	}
	memcpy(conn->header, bhs, len);
	conn->start += len + digest;
	if (data_len >= TCP_DIRECT_MIN)
		conn->alone = TCP_ALONE_PDUS;
	else if (conn->alone > 0)
		conn->alone--;
	conn->pdu.bhs = conn->header;
	conn->pdu.ahs = conn->header + ISCSI_BHS_LEN;
	conn->pdu.ahs_len = ahs_len;
	conn->pdu.data_len = data_len;
	conn->rx = RX_DATA;
	begin_data(conn);
	return tcp_alive(conn);
}

static void data_copy(struct tcp_conn *conn, const uint8_t *from, size_t n)
{
	if (conn->sgl != NULL) {
		copied_add(COPIED_RECEIVE, n);
		sgl_write(conn->sgl, conn->sgl_offset + conn->data_got, from,
			  n);
	} else if (conn->flat != NULL) {
		memcpy(conn->flat + conn->data_got, from, n);
	}
	conn->data_got += (uint32_t)n;
}

static bool data_digest_ok(struct tcp_conn *conn, const uint8_t *tail,
			   unsigned pad)
{
	uint32_t crc;

	if (conn->sgl != NULL)
		crc = sgl_crc(conn->sgl, conn->sgl_offset, conn->data_got);
	else if (conn->flat != NULL)
		crc = crc32c(conn->flat, conn->data_got);
	else
		return true; /* dropped: nobody will look at it */
	return crc32c_more(crc, tail, pad) == get_le32(tail + pad);
}

static void rx_release(struct tcp_conn *conn)
{
	sgl_put(conn->sgl);
	conn->sgl = NULL;
	free(conn->flat);
	conn->flat = NULL;
	conn->get = NULL;
}

/* A PDU is complete: hand it on. */
static void deliver(struct tcp_conn *conn)
{
	struct dm_pdu *pdu = &conn->pdu;
	struct dm_data *get = conn->get;

	conn->rx = RX_HEADER;
	conn->pdu_since_ns = 0;
	if (get != NULL && !pdu->data_digest_bad) {
		struct tcp_data *td = tcp_data_of(get);

		td->done += conn->data_got;
		if (conn->data_got > 0)
			conn->dm.part_ns = env_now(conn->dm.env);
		rx_release(conn);
		if (td->done == get->len) {
			iscsi__tcp_get_remove(conn, get);
			get->cb(get, 0);
		}
		return;
	}
	/* Of a task that ended while this came in: dropped, like strays. */
	if (!conn->stray &&
	    (pdu->data_digest_bad || get != NULL ||
	     (conn->header[0] & ISCSI_OP_MASK) != ISCSI_OP_DATA_OUT ||
	     get_be32(conn->header + 20) == ISCSI_NO_TAG || !conn->full)) {
		pdu->sgl = conn->sgl;
		pdu->data = conn->flat;
		conn->dm.up->control(conn->dm.owner, pdu);
	}
	rx_release(conn);
}

/* Bytes behind the data: *@pad of padding, then its digest. */
static unsigned tail_len(const struct tcp_conn *conn, unsigned *pad)
{
	uint32_t len = conn->pdu.data_len;

	*pad = ROUND_UP(len, 4u) - len;
	return *pad + (conn->data_digest && len > 0 ? 4 : 0);
}

static bool parse_tail(struct tcp_conn *conn)
{
	unsigned pad, need = tail_len(conn, &pad);
	const uint8_t *tail = conn->buf + conn->start;

	if (conn->end - conn->start < need)
		return false;
	if (need > pad && !data_digest_ok(conn, tail, pad))
		conn->pdu.data_digest_bad = true;
	conn->start += need;
	deliver(conn);
	return true;
}

/* Cut PDUs from the buffer for as long as there are whole pieces. */
static void parse(struct tcp_conn *conn)
{
	bool more = true;

	while (more && tcp_alive(conn)) {
		size_t avail = conn->end - conn->start, n;

		switch (conn->rx) {
		case RX_HEADER:
			if (avail > 0 && conn->pdu_since_ns == 0)
				conn->pdu_since_ns = env_now(conn->dm.env);
			more = parse_header(conn);
			break;
		case RX_LATER:
			more = false;
			break;
		case RX_DATA:
			n = MIN(avail, conn->pdu.data_len - conn->data_got);
			data_copy(conn, conn->buf + conn->start, n);
			conn->start += n;
			more = conn->data_got == conn->pdu.data_len;
			if (more)
				conn->rx = RX_TAIL;
			break;
		case RX_TAIL:
			more = parse_tail(conn);
			break;
		}
	}
}

/*
 * How much to read into the buffer: all it has room for, or, when headers are
 * read alone, up to the end of the next one.  @left bytes of data go there.
 */
static size_t buffer_want(const struct tcp_conn *conn, size_t left)
{
	size_t have = conn->end - conn->start, room = conn->room - conn->end;
	size_t want = ISCSI_BHS_LEN + (conn->header_digest ? 4 : 0);
	unsigned pad;

	if (conn->alone == 0)
		return room;
	if (conn->rx != RX_HEADER)
		want += left + tail_len(conn, &pad);
	else if (have >= ISCSI_BHS_LEN)
		want += conn->buf[conn->start + 4] * 4u; /* its AHS */
	assert(want > have); /* else parse() had gone on */
	return MIN(want - have, room);
}

/*
 * Read once.  Returns false when the socket has no more, or the connection
 * ended.
 */
static bool read_some(struct tcp_conn *conn)
{
	size_t direct = 0, asked, left = 0;
	struct iovec iov[TCP_IOV];
	struct msghdr msg = { .msg_iov = iov };
	unsigned n = 0;
	ssize_t got;

	if (conn->start == conn->end)
		conn->start = conn->end = 0;
	if (conn->start > 0 && conn->room - conn->end < conn->room / 2) {
		memmove(conn->buf, conn->buf + conn->start,
			conn->end - conn->start);
		conn->end -= conn->start;
		conn->start = 0;
	}
	if (conn->rx == RX_DATA)
		left = conn->pdu.data_len - conn->data_got;
	if (left > 0 && conn->sgl != NULL) {
		assert(conn->start == conn->end);
		n = sgl_iov(conn->sgl, conn->sgl_offset + conn->data_got, left,
			    iov, TCP_IOV - 1, &direct);
	}
	asked = direct;
	if (direct == 0 || direct == left) {
		iov[n].iov_base = conn->buf + conn->end;
		iov[n].iov_len = buffer_want(conn, left - direct);
		asked += iov[n++].iov_len;
	}
	msg.msg_iovlen = n;
	do {
		got = recvmsg(conn->fd, &msg, MSG_DONTWAIT);
	} while (got < 0 && errno == EINTR);
	if (got < 0 || (size_t)got < asked)
		conn->waited_ns = 0; /* it has no more */
	if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
		return false;
	if (got <= 0) {
		iscsi__tcp_failed(conn, got < 0 ? errno : ECONNRESET);
		return false;
	}
	conn->data_got += (uint32_t)MIN((size_t)got, direct);
	if ((size_t)got > direct)
		conn->end += (size_t)got - direct;
	return (size_t)got == asked;
}

void iscsi__tcp_receive(struct tcp_conn *conn)
{
	bool more = true;

	/* A budget, so that one fast peer does not starve the others. */
	for (unsigned round = 0; more && round < 32; round++) {
		parse(conn);
		if (!tcp_alive(conn) || conn->rx == RX_LATER)
			break;
		more = read_some(conn);
	}
	parse(conn);
	iscsi__tcp_timer(conn);
}

void iscsi__tcp_land_again(struct tcp_conn *conn)
{
	uint64_t now = env_now(conn->dm.env);

	conn->waited_ns += now - conn->put_off_ns;
	conn->pdu_since_ns = now;
	conn->rx = RX_DATA;
	begin_data(conn);
	if (tcp_alive(conn))
		iscsi__tcp_receive(conn);
	iscsi__tcp_poll(conn);
}

void iscsi__tcp_rx_fini(struct tcp_conn *conn)
{
	rx_release(conn);
	free(conn->buf);
	conn->buf = NULL;
}
