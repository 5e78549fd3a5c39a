/*
 * rx: a message that came in, on its way to the session.
 *
 * Immediate data lies in pages already: the session gets them as an sgl, and
 * whoever keeps it keeps the pages.  Other data is short and is shown flat.
 */
#define LOG_ROOM LOG_ISER
#include "iser/iser_int.h"

/*
 * @len bytes of data behind an AHS of @skip bytes, in pages; what did not find
 * room in them lies behind the header.
 */
static struct sgl *data_pages(struct iser_conn *conn, struct recv_slot *slot,
			      size_t skip, size_t len)
{
	struct sgl_piece pieces[RECV_PAGES];
	struct page_cache *cache = conn->dm.env->pages;
	unsigned n = 0;

	for (unsigned i = 0; i < RECV_PAGES && len > 0; i++) {
		size_t in_page = MIN(PAGE_BYTES - skip, len);

		pieces[n++] = (struct sgl_piece){ .page = slot->pages[i],
						  .offset = (uint32_t)skip,
						  .len = (uint32_t)in_page };
		len -= in_page;
		skip = 0;
	}
	assert(len == 0);
	if (!iser__recvq_show(slot, conn->dm.env, n))
		return NULL;
	return sgl_of_pieces(cache, pieces, n);
}

/* Data that an AHS displaced beyond the pages: moved into one piece. */
static struct sgl *data_displaced(struct iser_conn *conn,
				  struct recv_slot *slot, size_t skip,
				  size_t len)
{
	struct page_cache *cache = conn->dm.env->pages;
	size_t in_pages = RECV_DATA_BYTES - skip, at = 0;
	struct sgl *sgl;

	if (sgl_new(cache, PAGE_FRONT, len, 0, &sgl) < 0)
		return NULL;
	copied_add(COPIED_IMMEDIATE, len);
	for (unsigned i = 0; i < RECV_PAGES; i++) {
		sgl_write(sgl, at, slot->pages[i]->data + skip,
			  PAGE_BYTES - skip);
		at += PAGE_BYTES - skip;
		skip = 0;
	}
	sgl_write(sgl, in_pages, slot->head + ISER_FIXED_LEN, len - in_pages);
	return sgl;
}

/* @len bytes of data, in one piece of memory. */
static const uint8_t *data_flat(struct iser_conn *conn, struct recv_slot *slot,
				size_t len)
{
	const uint8_t *first = slot->pages[0]->data;
	uint8_t *flat = conn->iser->flat;

	if (len <= PAGE_BYTES || slot->pages[1]->data == first + PAGE_BYTES)
		return first;
	memcpy(flat, first, PAGE_BYTES);
	memcpy(flat + PAGE_BYTES, slot->pages[1]->data, len - PAGE_BYTES);
	return flat;
}

static const char *refuse(const struct iser_conn *conn,
			  const struct iser_message *m)
{
	uint8_t opcode = m->bhs[0] & ISCSI_OP_MASK;

	if (m->data_len > RECV_DATA_BYTES)
		return "a data segment is too long";
	if (opcode == ISCSI_OP_DATA_OUT && conn->full &&
	    get_be32(m->bhs + 20) != ISCSI_NO_TAG)
		return "solicited Data-Out, which iSER does not have";
	return NULL;
}

static void deliver(struct iser_conn *conn, struct recv_slot *slot,
		    const struct iser_message *m)
{
	uint8_t opcode = m->bhs[0] & ISCSI_OP_MASK;
	struct dm_pdu pdu = {
		.bhs = m->bhs,
		.ahs = slot->pages[0]->data,
		.ahs_len = m->ahs_len,
		.data_len = m->data_len,
		.stags = &m->stags,
	};

	if (m->data_len == 0) {
		conn->dm.up->control(conn->dm.owner, &pdu);
		return;
	}
	if (conn->full &&
	    (opcode == ISCSI_OP_COMMAND || opcode == ISCSI_OP_DATA_OUT)) {
		/* Without memory it is delivered as dropped. */
		if (m->ahs_len + m->data_len > RECV_DATA_BYTES)
			pdu.sgl = data_displaced(conn, slot, m->ahs_len,
						 m->data_len);
		else
			pdu.sgl =
				data_pages(conn, slot, m->ahs_len, m->data_len);
	} else if (opcode != ISCSI_OP_COMMAND) {
		pdu.data = data_flat(conn, slot, m->data_len);
	}
	conn->dm.up->control(conn->dm.owner, &pdu);
	sgl_put(pdu.sgl);
}

void iser__receive(struct iser_conn *conn, struct recv_slot *slot, size_t len)
{
	struct iser_message m;
	const char *wrong;
	int rv = iser__message_parse(slot->head, len, &m);

	if (rv < 0) {
		iser__conn_lost(conn, rv,
				rv == -EMSGSIZE
					? "a message's lengths are wrong"
					: "this is not an iSER message");
		return;
	}
	wrong = refuse(conn, &m);
	if (wrong != NULL) {
		iser__conn_lost(conn, -EPROTO, wrong);
		return;
	}
	deliver(conn, slot, &m);
}
