/* rdma: devices, registration, asynchronous events. */
#define LOG_ROOM LOG_BASE
#include "base/rdma.h"

#include "base/log.h"
#include "base/shard.h"
#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

/* More SGEs than that only make queues larger. */
#define SGE_MAX 16u

static LIST_HEAD(, rdma_device) devices = LIST_HEAD_INITIALIZER(devices);

unsigned rdma_devices_count(void)
{
	struct ibv_device **list;
	int n = 0;

	list = ibv_get_device_list(&n);
	if (list == NULL)
		return 0;
	ibv_free_device_list(list);
	return (unsigned)MAX(n, 0);
}

const char *rdma_device_name(const struct rdma_device *device)
{
	return ibv_get_device_name(device->verbs->device);
}

/*
 * Its name may change while it is in use, and software devices have a GUID made of
 * the MAC, which interfaces may share.  A kernel that gives no numbers has these.
 */
static bool is_same(struct ibv_device *a, struct ibv_device *b)
{
	int number = ibv_get_device_index(a);

	return ibv_get_device_guid(a) == ibv_get_device_guid(b) &&
	       (number < 0 || number == ibv_get_device_index(b));
}

bool rdma_device_listed(const struct rdma_device *device)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	bool found = list == NULL; /* who cannot look does not know */

	for (unsigned i = 0; !found && list[i] != NULL; i++)
		found = is_same(device->verbs->device, list[i]);
	if (list != NULL)
		ibv_free_device_list(list);
	return found;
}

/* ---- asynchronous events ---- */

static void watch_tell(void *context, enum ibv_event_type event)
{
	struct rdma_watch *watch = context;

	if (watch != NULL)
		watch->cb(watch, event);
}

/* Of the device itself: every room that has it open is told. */
static void device_event(struct ibv_context *verbs, enum ibv_event_type event)
{
	struct rdma_device *device, *next;

	if (event != IBV_EVENT_DEVICE_FATAL) {
		log_info("RDMA device %s: %s",
			 ibv_get_device_name(verbs->device),
			 ibv_event_type_str(event));
		return;
	}
	log_error("RDMA device %s failed", ibv_get_device_name(verbs->device));
	for (device = LIST_FIRST(&devices); device != NULL; device = next) {
		next = LIST_NEXT(device, link);
		if (device->verbs == verbs)
			device->config.fatal(device, device->config.arg);
	}
}

static void on_async(uv_poll_t *poll, int status, int events)
{
	struct rdma_device *device = poll->data;
	struct ibv_context *verbs = device->verbs;
	struct ibv_async_event event;

	shard_wake(device->config.env);
	/* Its descriptor says so when there are no more: it does not block. */
	while (ibv_get_async_event(verbs, &event) == 0) {
		enum ibv_event_type type = event.event_type;
		void *context = NULL;
		bool object = true;

		switch (type) {
		case IBV_EVENT_QP_FATAL:
		case IBV_EVENT_QP_REQ_ERR:
		case IBV_EVENT_QP_ACCESS_ERR:
		case IBV_EVENT_QP_LAST_WQE_REACHED:
		case IBV_EVENT_COMM_EST:
		case IBV_EVENT_SQ_DRAINED:
		case IBV_EVENT_PATH_MIG:
		case IBV_EVENT_PATH_MIG_ERR:
			context = event.element.qp->qp_context;
			break;
		case IBV_EVENT_CQ_ERR:
			context = event.element.cq->cq_context;
			break;
		case IBV_EVENT_SRQ_ERR:
		case IBV_EVENT_SRQ_LIMIT_REACHED:
			context = event.element.srq->srq_context;
			break;
		default:
			object = false;
			break;
		}
		/* Before anybody destroys it, which waits for this. */
		ibv_ack_async_event(&event);
		if (object)
			watch_tell(context, type);
		else
			device_event(verbs, type);
		/*
		 * Whoever was told of one of these may have let go of the
		 * device, and librdmacm closes the context behind the last id.
		 * If it is there yet, the loop comes back for what is left.
		 */
		if (type == IBV_EVENT_DEVICE_FATAL || type == IBV_EVENT_SRQ_ERR)
			return;
	}
}

static void on_poll_closed(uv_handle_t *handle)
{
	free(handle);
}

static int async_start(struct rdma_device *device)
{
	int fd = device->verbs->async_fd, flags = fcntl(fd, F_GETFL);
	uv_poll_t *poll;
	int rv;

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	poll = calloc(1, sizeof(*poll));
	if (poll == NULL)
		return -ENOMEM;
	rv = uv_poll_init(shard_loop(device->config.env), poll, fd);
	if (rv < 0) {
		free(poll);
		return rv;
	}
	poll->data = device;
	uv_poll_start(poll, UV_READABLE, on_async);
	device->poll = poll;
	return 0;
}

/* ---- registration ---- */

/* A soft limit below the hard one is ours to raise. */
static void limit_raise(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) < 0 ||
	    limit.rlim_cur == limit.rlim_max)
		return;
	limit.rlim_cur = limit.rlim_max;
	(void)setrlimit(RLIMIT_MEMLOCK, &limit);
}

static void explain(const struct rdma_device *device, int err, char *why,
		    size_t why_len)
{
	struct rlimit limit = { .rlim_cur = RLIM_INFINITY };

	(void)getrlimit(RLIMIT_MEMLOCK, &limit);
	if (err == ENOMEM && limit.rlim_cur != RLIM_INFINITY)
		snprintf(why, why_len,
			 "%s cannot register the arena of %zu MiB: "
			 "RLIMIT_MEMLOCK is %llu KiB for all devices",
			 rdma_device_name(device), device->arena_bytes >> 20,
			 (unsigned long long)limit.rlim_cur >> 10);
	else if (device->attr.max_mr_size > 0 &&
		 device->arena_bytes > device->attr.max_mr_size)
		snprintf(
			why, why_len,
			"%s cannot register the arena of %zu MiB, but %llu MiB "
			"at most: a smaller [memory] arena would do",
			rdma_device_name(device), device->arena_bytes >> 20,
			(unsigned long long)device->attr.max_mr_size >> 20);
	else
		snprintf(why, why_len,
			 "%s cannot register the arena of %zu MiB: %s",
			 rdma_device_name(device), device->arena_bytes >> 20,
			 strerror(err));
}

static int arena_register(struct rdma_device *device, char *why, size_t why_len)
{
	int access = IBV_ACCESS_LOCAL_WRITE | device->config.access;
	void *base;

	/* On iWARP the peer's adapter writes what we READ. */
	if (device->iwarp)
		access |= IBV_ACCESS_REMOTE_WRITE;
	device->arena_bytes = arena_region(device->config.arena, &base);
	device->arena_base = (uintptr_t)base;
	limit_raise();
	device->arena_mr =
		ibv_reg_mr(device->pd, base, device->arena_bytes, access);
	if (device->arena_mr == NULL) {
		int err = errno;

		explain(device, err, why, why_len);
		return -err;
	}
	/* Only ever sent; the arena does not hold it. */
	device->zero_mr =
		ibv_reg_mr(device->pd, page_zero()->data, PAGE_BYTES, 0);
	if (device->zero_mr == NULL) {
		int err = errno;

		explain(device, err, why, why_len);
		ibv_dereg_mr(device->arena_mr);
		return -err;
	}
	return 0;
}

uint32_t rdma_lkey(const struct rdma_device *device, const void *at)
{
	if ((uintptr_t)at - device->arena_base < device->arena_bytes)
		return device->arena_mr->lkey;
	assert((uintptr_t)at - (uintptr_t)page_zero()->data < PAGE_BYTES);
	return device->zero_mr->lkey;
}

unsigned rdma_sges(const struct rdma_device *device, const struct sgl *sgl,
		   size_t offset, size_t len, struct ibv_sge *out,
		   unsigned out_max, size_t *covered)
{
	struct iovec iov[SGE_MAX];
	unsigned n;

	n = sgl_iov(sgl, offset, len, iov, MIN(out_max, SGE_MAX), covered);
	for (unsigned i = 0; i < n; i++)
		out[i] = (struct ibv_sge){
			.addr = (uintptr_t)iov[i].iov_base,
			.length = (uint32_t)iov[i].iov_len,
			.lkey = rdma_lkey(device, iov[i].iov_base),
		};
	return n;
}

/* ---- opening ---- */

static void limits_set(struct rdma_device *device)
{
	const struct ibv_device_attr *attr = &device->attr;
	unsigned sge = (unsigned)MAX(attr->max_sge, 1);
	unsigned read = (unsigned)MAX(attr->max_sge_rd, 0);

	device->iwarp =
		device->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
	device->sge_max = MIN(sge, SGE_MAX);
	/* Some InfiniBand drivers leave it at zero: as many as otherwise. */
	if (read == 0)
		read = device->iwarp ? 1 : sge;
	device->sge_read_max = MIN(read, device->sge_max);
}

int rdma_device_open(const struct rdma_device_config *config,
		     struct rdma_device **out, char *why, size_t why_len)
{
	struct rdma_device *device = calloc(1, sizeof(*device));
	int rv;

	snprintf(why, why_len, "out of memory");
	if (device == NULL)
		return -ENOMEM;
	device->config = *config;
	device->verbs = config->verbs;
	rv = -ibv_query_device(device->verbs, &device->attr);
	if (rv < 0) {
		snprintf(why, why_len, "%s cannot be queried: %s",
			 rdma_device_name(device), strerror(-rv));
		goto err_free;
	}
	limits_set(device);
	if (device->sge_max < config->sge_least) {
		snprintf(why, why_len, "%s takes %u pieces of memory a message",
			 rdma_device_name(device), device->sge_max);
		rv = -EOPNOTSUPP;
		goto err_free;
	}
	device->pd = ibv_alloc_pd(device->verbs);
	if (device->pd == NULL) {
		rv = -errno;
		snprintf(why, why_len, "%s has no protection domain left: %s",
			 rdma_device_name(device), strerror(-rv));
		goto err_free;
	}
	rv = arena_register(device, why, why_len);
	if (rv < 0)
		goto err_pd;
	rv = async_start(device);
	if (rv < 0)
		goto err_mr;
	LIST_INSERT_HEAD(&devices, device, link);
	*out = device;
	return 0;

err_mr:
	ibv_dereg_mr(device->zero_mr);
	ibv_dereg_mr(device->arena_mr);
err_pd:
	ibv_dealloc_pd(device->pd);
err_free:
	free(device);
	return rv;
}

void rdma_device_close(struct rdma_device *device)
{
	int zero, arena, pd, rv;

	LIST_REMOVE(device, link);
	uv_poll_stop(device->poll);
	uv_close((uv_handle_t *)device->poll, on_poll_closed);
	/* Each of them, whatever it says of another: the arena is pinned. */
	zero = ibv_dereg_mr(device->zero_mr);
	arena = ibv_dereg_mr(device->arena_mr);
	pd = ibv_dealloc_pd(device->pd);
	rv = zero != 0 ? zero : arena != 0 ? arena : pd;
	if (rv != 0) /* a device that was pulled out may say anything */
		log_warn("RDMA device %s: releasing it: %s",
			 rdma_device_name(device), strerror(rv));
	free(device);
}
