/* fake_rdma: see the header; this is the device. */
#include "tests/lib/fake_rdma_int.h"

#include <stdatomic.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

struct async_event {
	struct ibv_async_event event;
	STAILQ_ENTRY(async_event) link;
};

struct fake_rdma fake_rdma;

/* ---- threads ---- */

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

pthread_mutex_t *fake_rdma__lock(void)
{
	pthread_mutex_lock(&lock);
	return &lock;
}

void fake_rdma__unlock(pthread_mutex_t **held)
{
	pthread_mutex_unlock(*held);
}

static void (*_Atomic hook)(bool acked);

void fake_rdma_hook(void (*cb)(bool acked))
{
	hook = cb;
}

void fake_rdma__hook_run(bool is_acked)
{
	void (*cb)(bool acked) = hook;

	if (cb != NULL)
		cb(is_acked);
}

void fake_rdma__wait_acked(const unsigned *unacked)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += 120;
	while (*unacked > 0) {
		int rv = pthread_cond_timedwait(&acked, &lock, &end);

		assert(rv == 0); /* it would wait for ever */
	}
}

void fake_rdma__acked(void)
{
	pthread_cond_broadcast(&acked);
}

void fake_rdma__ring(int fd)
{
	uint64_t one = 1;
	ssize_t n = write(fd, &one, sizeof(one));

	assert(n == sizeof(one));
}

void fake_rdma__hush(int fd)
{
	uint64_t value;

	/* Nonblocking: nothing to read is fine. */
	if (read(fd, &value, sizeof(value)) < 0)
		assert(errno == EAGAIN);
}

/* ---- faults ---- */

bool fake_rdma__fails(void)
{
	fake_rdma.calls++;
	errno = ENOMEM;
	return fake_rdma.calls == fake_rdma.fail_at;
}

void fake_rdma_fail(unsigned nth)
{
	LOCKED;

	fake_rdma.fail_at = nth;
	fake_rdma.calls = 0;
}

unsigned fake_rdma_calls(void)
{
	LOCKED;

	return fake_rdma.calls;
}

void fake_rdma_fail_posts(bool fail)
{
	LOCKED;

	fake_rdma.fail_posts = fail;
}

void fake_rdma_fail_receives(bool fail)
{
	LOCKED;

	fake_rdma.fail_receives = fail;
}

/* ---- its events ---- */

void fake_rdma__async_add(enum ibv_event_type type, void *element)
{
	struct async_event *e = calloc(1, sizeof(*e));

	e->event.event_type = type;
	e->event.element.qp = element;
	STAILQ_INSERT_TAIL(&fake_rdma.asyncs, e, link);
	fake_rdma__ring(fake_rdma__verbs()->async_fd);
}

void fake_rdma__asyncs_end(const void *element, const unsigned *unacked)
{
	struct async_event *e, *next;

	fake_rdma__wait_acked(unacked);
	for (e = STAILQ_FIRST(&fake_rdma.asyncs); e != NULL; e = next) {
		next = STAILQ_NEXT(e, link);
		if (e->event.element.qp == element) {
			STAILQ_REMOVE(&fake_rdma.asyncs, e, async_event, link);
			free(e);
		}
	}
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

	assert(!fake_rdma.closed);
	e = STAILQ_FIRST(&fake_rdma.asyncs);
	if (e == NULL) {
		fake_rdma__hush(context->async_fd);
		errno = EAGAIN;
		return -1;
	}
	STAILQ_REMOVE_HEAD(&fake_rdma.asyncs, link);
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
		fake_rdma__hook_run(false);
	return rv;
}

static void async_ack(const struct ibv_async_event *event)
{
	LOCKED;

	if (asyncs_of(event) == NULL)
		return;
	--*asyncs_of(event);
	fake_rdma__acked();
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	async_ack(event);
	fake_rdma__hook_run(true);
}

/* ---- what is made of it ---- */

struct ibv_device **ibv_get_device_list(int *num)
{
	LOCKED;
	struct ibv_device **list = calloc(3, sizeof(*list));
	int n = 0;

	if (fake_rdma.there && !fake_rdma.hidden)
		list[n++] = &fake_rdma.device;
	if (fake_rdma.twin)
		list[n++] = &fake_rdma.twin_device;
	if (num != NULL)
		*num = n;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	LOCKED;

	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	LOCKED;

	return device == &fake_rdma.broken_device ? "broken0" : "fake0";
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	return device == &fake_rdma.broken_device ? 2 : 1;
}

int ibv_get_device_index(struct ibv_device *device)
{
	return device == &fake_rdma.device	    ? 0
	       : device == &fake_rdma.broken_device ? 1
						    : 2;
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

	if (context == &fake_rdma.broken)
		return EIO;
	if (fake_rdma__fails())
		return ENOMEM;
	*device_attr = (struct ibv_device_attr){
		.max_sge = (int)fake_rdma.config.sge,
		.max_sge_rd = (int)fake_rdma.config.sge_read,
		.max_qp_wr = 4096,
		.max_cqe = (int)fake_rdma.config.cqe,
		.max_qp_init_rd_atom = 16,
		.device_cap_flags = IBV_DEVICE_MEM_MGT_EXTENSIONS,
		.max_srq = fake_rdma.config.no_srq ? 0 : 16,
		.max_srq_wr = fake_rdma.config.no_srq ? 0 : 300,
		.max_srq_sge = 4,
	};
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	LOCKED;
	struct ibv_pd *pd = fake_rdma__fails() ? NULL : calloc(1, sizeof(*pd));

	if (pd == NULL)
		return NULL;
	pd->context = context;
	fake_rdma.pds++;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	LOCKED;
	struct fake_mr *mr;

	LIST_FOREACH (mr, &fake_rdma.mrs, link)
		assert(mr->mr.pd != pd);
	assert(fake_rdma.qps == 0 && fake_rdma.srqs == 0);
	fake_rdma.pds--;
	free(pd);
	return 0;
}

static struct ibv_mr *reg_mr(struct ibv_pd *pd, void *addr, size_t len,
			     unsigned access)
{
	struct fake_mr *mr = fake_rdma__fails() ? NULL : calloc(1, sizeof(*mr));

	if (mr == NULL)
		return NULL;
	/* Nobody but an iWARP peer's adapter may write, nobody may read. */
	assert(!(access & IBV_ACCESS_REMOTE_READ));
	assert(fake_rdma.config.iwarp || !(access & IBV_ACCESS_REMOTE_WRITE));
	mr->mr = (struct ibv_mr){ .context = pd->context,
				  .pd = pd,
				  .addr = addr,
				  .length = len,
				  .lkey = ++fake_rdma.key_last };
	LIST_INSERT_HEAD(&fake_rdma.mrs, mr, link);
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
	/* One that was pulled out says so of all that is let go of. */
	return fake_rdma.removed ? EIO : 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	LOCKED;
	struct fake_channel *c =
		fake_rdma__fails() ? NULL : calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->channel.context = context;
	c->channel.fd = eventfd(0, EFD_CLOEXEC);
	fake_rdma.channels++;
	return &c->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	LOCKED;
	struct fake_channel *c =
		container_of(channel, struct fake_channel, channel);

	assert(channel->refcnt == 0);
	close(channel->fd);
	fake_rdma.channels--;
	free(c);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe,
			     void *cq_context, struct ibv_comp_channel *channel,
			     int comp_vector)
{
	LOCKED;
	struct fake_cq *cq = fake_rdma__fails() ? NULL : calloc(1, sizeof(*cq));

	if (cq == NULL)
		return NULL;
	assert(comp_vector < context->num_comp_vectors);
	assert(cqe > 0 && (unsigned)cqe <= fake_rdma.config.cqe);
	cq->cq = (struct ibv_cq){ .context = context,
				  .channel = channel,
				  .cq_context = cq_context,
				  .cqe = cqe };
	cq->channel = container_of(channel, struct fake_channel, channel);
	channel->refcnt++;
	STAILQ_INIT(&cq->done);
	fake_rdma.cqs++;
	return &cq->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq_)
{
	LOCKED;
	struct fake_cq *cq = container_of(cq_, struct fake_cq, cq);
	struct completion *c;

	assert(cq->unacked == 0); /* it would wait for ever */
	fake_rdma__asyncs_end(cq_, &cq->asyncs);
	cq->channel->channel.refcnt--;
	while ((c = STAILQ_FIRST(&cq->done)) != NULL) {
		STAILQ_REMOVE_HEAD(&cq->done, link);
		free(c);
	}
	fake_rdma.cqs--;
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
		errno = EAGAIN;
		return -1;
	}
	if (--c->events == 0)
		fake_rdma__hush(channel->fd);
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
	struct fake_srq *srq =
		fake_rdma__fails() ? NULL : calloc(1, sizeof(*srq));

	if (fake_rdma.config.srqs_gone) {
		free(srq);
		srq = NULL;
		errno = ENOMEM;
	}
	if (srq == NULL)
		return NULL;
	fake_rdma.srq = &srq->srq;
	srq->srq = (struct ibv_srq){ .context = pd->context,
				     .srq_context = attr->srq_context,
				     .pd = pd };
	srq->max = attr->attr.max_wr;
	srq->sge_max = (int)attr->attr.max_sge;
	STAILQ_INIT(&srq->recvs);
	fake_rdma.srqs++;
	return &srq->srq;
}

int ibv_destroy_srq(struct ibv_srq *srq_)
{
	LOCKED;
	struct fake_srq *srq = container_of(srq_, struct fake_srq, srq);

	fake_rdma__asyncs_end(srq_, &srq->asyncs);
	fake_rdma__recvs_free(&srq->recvs);
	fake_rdma.srqs--;
	free(srq);
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	LOCKED;

	if (mask & IBV_QP_STATE && attr->qp_state == IBV_QPS_ERR)
		fake_rdma__qp_error(container_of(qp, struct fake_qp, qp));
	return 0;
}

/* ---- it comes and goes ---- */

void fake_rdma_open(const struct fake_rdma_config *config)
{
	LOCKED;
	struct ibv_context *c = fake_rdma__verbs();

	assert(!fake_rdma.there);
	fake_rdma.config = *config;
	if (fake_rdma.config.cqe == 0)
		fake_rdma.config.cqe = 8192;
	if (fake_rdma.config.sge == 0)
		fake_rdma.config.sge = 16;
	if (fake_rdma.config.sge_read == 0)
		fake_rdma.config.sge_read = fake_rdma.config.sge;
	fake_rdma.there = true;
	fake_rdma.removed = fake_rdma.fail_posts = fake_rdma.fail_receives =
		false;
	fake_rdma.dead = fake_rdma.closed = false;
	fake_rdma.fail_at = 0;
	LIST_INIT(&fake_rdma.mrs);
	LIST_INIT(&fake_rdma.ids);
	STAILQ_INIT(&fake_rdma.asyncs);
	fake_rdma.device.transport_type =
		config->iwarp ? IBV_TRANSPORT_IWARP : IBV_TRANSPORT_IB;
	c->device = &fake_rdma.device;
	fake_rdma.broken.device = &fake_rdma.broken_device;
	c->num_comp_vectors = 2;
	c->async_fd = eventfd(0, EFD_CLOEXEC);
	fake_rdma__ops_set(c);
}

void fake_rdma_check_empty(void)
{
	LOCKED;

	assert(fake_rdma.pds == 0 && fake_rdma.cqs == 0 && fake_rdma.qps == 0);
	assert(fake_rdma.srqs == 0 && fake_rdma.channels == 0 &&
	       fake_rdma.lists == 0);
	assert(LIST_EMPTY(&fake_rdma.mrs) && LIST_EMPTY(&fake_rdma.ids));
}

void fake_rdma_close(void)
{
	LOCKED;

	fake_rdma_check_empty();
	assert(fake_rdma.there && fake_rdma.cms == 0);
	assert(STAILQ_EMPTY(&fake_rdma.asyncs));
	close(fake_rdma__verbs()->async_fd);
	fake_rdma.there = false;
}

void fake_rdma_remove(void)
{
	LOCKED;
	struct fake_id *id;

	fake_rdma.removed = true;
	/* One that listens at every address is not told. */
	LIST_FOREACH (id, &fake_rdma.ids, link)
		if (id->id.verbs != NULL)
			fake_rdma__event_add(
				id, NULL, RDMA_CM_EVENT_DEVICE_REMOVAL, NULL);
}

void fake_rdma_remove_told(struct fake_peer *peer)
{
	LOCKED;

	fake_rdma.removed = true;
	fake_rdma__event_add(peer->id, NULL, RDMA_CM_EVENT_DEVICE_REMOVAL,
			     NULL);
}

void fake_rdma_break(bool srq)
{
	LOCKED;

	assert(!srq || fake_rdma.srqs == 1);
	fake_rdma.dead = true;
	if (srq)
		fake_rdma__async_add(IBV_EVENT_SRQ_ERR, fake_rdma.srq);
	else
		fake_rdma__async_add(IBV_EVENT_DEVICE_FATAL, NULL);
}

void fake_rdma_broken_goes(void)
{
	LOCKED;

	fake_rdma.config.broken_too = false;
}

void fake_rdma_hide(bool hidden)
{
	LOCKED;

	fake_rdma.hidden = hidden;
}

void fake_rdma_twin(bool there)
{
	LOCKED;

	fake_rdma.twin = there;
}
