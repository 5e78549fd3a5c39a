/* fake_rdma_cm: librdmacm on the device. */
#include "tests/lib/fake_rdma_int.h"

#include <netinet/in.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct fake_cm {
	struct rdma_event_channel channel;
	STAILQ_HEAD(, fake_event) events;
};

struct fake_event {
	struct rdma_cm_event event;
	uint8_t private[56];
	STAILQ_ENTRY(fake_event) link;
};

static struct fake_cm *cm_of(struct rdma_event_channel *channel)
{
	return container_of(channel, struct fake_cm, channel);
}

void fake_rdma__event_add(struct fake_id *id, struct fake_id *listener,
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
	fake_rdma__ring(about->id.channel->fd);
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	LOCKED;
	struct fake_cm *c = fake_rdma__fails() ? NULL : calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	STAILQ_INIT(&c->events);
	c->channel.fd = eventfd(0, EFD_CLOEXEC);
	fake_rdma.cms++;
	return &c->channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	LOCKED;
	struct fake_id *id;

	LIST_FOREACH (id, &fake_rdma.ids, link)
		assert(id->id.channel != channel);
	assert(STAILQ_EMPTY(&cm_of(channel)->events));
	close(channel->fd);
	fake_rdma.cms--;
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
		fake_rdma__hush(channel->fd);
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
		fake_rdma__hook_run(false);
	return rv;
}

static void cm_ack(struct rdma_cm_event *event)
{
	struct rdma_cm_id *about =
		event->listen_id != NULL ? event->listen_id : event->id;
	LOCKED;

	container_of(about, struct fake_id, id)->events--;
	fake_rdma__acked();
	free(container_of(event, struct fake_event, event));
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	cm_ack(event);
	fake_rdma__hook_run(true);
	return 0;
}

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	LOCKED;

	return "an event of the connection manager";
}

struct fake_id *fake_rdma__id_new(struct rdma_event_channel *channel,
				  void *context)
{
	struct fake_id *id = calloc(1, sizeof(*id));

	id->id.context = context;
	id->id.channel = channel;
	LIST_INSERT_HEAD(&fake_rdma.ids, id, link);
	return id;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id,
		   void *context_, enum rdma_port_space ps)
{
	LOCKED;

	if (fake_rdma__fails())
		return -1;
	*id = &fake_rdma__id_new(channel, context_)->id;
	return 0;
}

int rdma_destroy_id(struct rdma_cm_id *id_)
{
	LOCKED;
	struct fake_id *id = container_of(id_, struct fake_id, id);
	struct fake_cm *cm = cm_of(id_->channel);
	struct fake_event *e, *next;

	fake_rdma__wait_acked(&id->events);
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
	fake_rdma.closed = fake_rdma.dead && LIST_EMPTY(&fake_rdma.ids);
	return 0;
}

/* What is to come goes along; what came must be acknowledged. */
int rdma_migrate_id(struct rdma_cm_id *id_, struct rdma_event_channel *channel)
{
	LOCKED;
	struct fake_id *id = container_of(id_, struct fake_id, id);
	struct fake_cm *from = cm_of(id_->channel), *to = cm_of(channel);
	struct fake_event *e, *next;

	if (fake_rdma__fails())
		return -1;
	assert(!id->listening && from != to);
	for (e = STAILQ_FIRST(&from->events); e != NULL; e = next) {
		next = STAILQ_NEXT(e, link);
		if (e->event.id != id_ || e->event.listen_id != NULL)
			continue;
		STAILQ_REMOVE(&from->events, e, fake_event, link);
		STAILQ_INSERT_TAIL(&to->events, e, link);
		fake_rdma__ring(channel->fd);
	}
	id_->channel = channel;
	fake_rdma__wait_acked(&id->events);
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

	if (fake_rdma__fails())
		return -1;
	if (!fake_rdma.there || fake_rdma.removed) {
		errno = ENODEV;
		return -1;
	}
	if (!is_wildcard(addr))
		id->verbs = fake_rdma__verbs();
	return 0;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	LOCKED;

	if (fake_rdma__fails())
		return -1;
	container_of(id, struct fake_id, id)->listening = true;
	return 0;
}

int rdma_create_qp(struct rdma_cm_id *id_, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *attr)
{
	LOCKED;
	struct fake_id *id = container_of(id_, struct fake_id, id);
	struct fake_qp *qp = fake_rdma__fails() ? NULL : calloc(1, sizeof(*qp));

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
	/* All of them may complete before anybody looks. */
	assert((unsigned)attr->send_cq->cqe >=
	       qp->works_max +
		       (attr->srq != NULL
				? container_of(attr->srq, struct fake_srq, srq)
					  ->max
				: qp->recvs_max));
	STAILQ_INIT(&qp->works);
	STAILQ_INIT(&qp->recvs);
	qp->peer = id->peer;
	id->peer->qp = qp;
	id_->qp = &qp->qp;
	fake_rdma.qps++;
	return 0;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	LOCKED;
	struct fake_qp *qp = container_of(id->qp, struct fake_qp, qp);
	struct work *w;

	fake_rdma__asyncs_end(&qp->qp, &qp->asyncs);
	while ((w = STAILQ_FIRST(&qp->works)) != NULL) {
		STAILQ_REMOVE_HEAD(&qp->works, link);
		free(w->inlined);
		free(w);
	}
	fake_rdma__recvs_free(&qp->recvs);
	if (qp->peer != NULL)
		qp->peer->qp = NULL;
	id->qp = NULL;
	fake_rdma.qps--;
	free(qp);
}

int rdma_accept(struct rdma_cm_id *id_, struct rdma_conn_param *param)
{
	LOCKED;
	struct fake_id *id = container_of(id_, struct fake_id, id);
	struct fake_peer *peer = id->peer;

	if (fake_rdma__fails())
		return -1;
	assert(param->initiator_depth <= peer->offered);
	assert(param->private_data_len == sizeof(peer->private));
	memcpy(peer->private, param->private_data, sizeof(peer->private));
	peer->depth = param->initiator_depth;
	peer->state = FAKE_UP;
	fake_rdma__event_add(id, NULL, RDMA_CM_EVENT_ESTABLISHED, NULL);
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

	fake_rdma__qp_error(container_of(id_->qp, struct fake_qp, qp));
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
	struct ibv_context **list =
		fake_rdma__fails() ? NULL : calloc(3, sizeof(*list));
	int n = 0;

	if (list == NULL)
		return NULL;
	if (fake_rdma.config.broken_too)
		list[n++] = &fake_rdma.broken;
	if (fake_rdma.there && !fake_rdma.hidden && !fake_rdma.removed)
		list[n++] = fake_rdma__verbs();
	if (num != NULL)
		*num = n;
	fake_rdma.lists++;
	return list;
}

void rdma_free_devices(struct ibv_context **list)
{
	LOCKED;

	fake_rdma.lists--;
	free(list);
}
