/* fake_rdma_peer: the initiator, which is the test. */
#include "tests/lib/fake_rdma_int.h"

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
	LIST_FOREACH (listener, &fake_rdma.ids, link)
		if (listener->listening)
			break;
	assert(listener != NULL);
	peer->id =
		fake_rdma__id_new(listener->id.channel, listener->id.context);
	peer->id->peer = peer;
	peer->id->id.verbs = fake_rdma__verbs();
	peer->id->id.route.addr.src_addr.sa_family = AF_INET;
	peer->id->id.route.addr.dst_addr.sa_family = AF_INET;
	fake_rdma__event_add(peer->id, listener, RDMA_CM_EVENT_CONNECT_REQUEST,
			     &param);
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

size_t fake_peer_reads_bytes(const struct fake_peer *peer)
{
	LOCKED;
	const struct work *w;
	size_t sum = 0;

	STAILQ_FOREACH (w, &peer->qp->works, link)
		for (int i = 0;
		     w->wr.opcode == IBV_WR_RDMA_READ && i < w->wr.num_sge; i++)
			sum += w->sge[i].length;
	return sum;
}

void fake_peer_hold(struct fake_peer *peer, bool hold)
{
	LOCKED;

	peer->hold = hold;
	if (!hold && peer->qp != NULL)
		fake_rdma__qp_work(peer->qp);
}

void fake_peer_hold_reads(struct fake_peer *peer, bool hold)
{
	LOCKED;

	peer->hold_reads = hold;
	if (!hold && peer->qp != NULL)
		fake_rdma__qp_work(peer->qp);
}

void fake_peer_let(struct fake_peer *peer, unsigned n)
{
	LOCKED;

	peer->let = n;
	if (peer->qp != NULL)
		fake_rdma__qp_work(peer->qp);
}

void fake_peer_freeze(struct fake_peer *peer, bool freeze)
{
	LOCKED;

	peer->frozen = freeze;
	if (!freeze && peer->qp != NULL)
		fake_rdma__qp_work(peer->qp);
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
		fake_rdma__async_add(type, peer->qp->qp.send_cq);
	else
		fake_rdma__async_add(type, &peer->qp->qp);
}

void fake_peer_disconnect(struct fake_peer *peer)
{
	LOCKED;

	if (peer->id != NULL && peer->state == FAKE_UP)
		fake_rdma__event_add(peer->id, NULL, RDMA_CM_EVENT_DISCONNECTED,
				     NULL);
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

	if (qp == NULL || qp->error || fake_rdma.removed)
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

		memcpy(fake_rdma__local(&r->sge[i]), from, n);
		from += n;
		left -= n;
	}
	wc.wr_id = r->wr_id;
	if (left > 0)
		wc.status = IBV_WC_LOC_LEN_ERR;
	fake_rdma__cq_add(qp->qp.recv_cq, &wc);
	free(r);
	if (left > 0)
		fake_rdma__qp_error(qp);
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

void fake_peer_expose(struct fake_peer *peer, uint32_t key, void *memory,
		      size_t len)
{
	LOCKED;

	assert(key < KEYS);
	peer->keys[key].memory = memory;
	peer->keys[key].len = len;
}
