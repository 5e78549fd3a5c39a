/*
 * device: an RDMA device that connections use, opened when the first portal or
 * connection needs it, and what its connections share: the protection domain
 * with the arena in it, and the receive queue.
 */
#define LOG_ROOM LOG_ISER
#include "iser/iser_int.h"

static void on_fatal(struct rdma_device *rdma, void *arg)
{
	iser__device_gone(arg);
}

/* It came before the end of the connection that was told: it is there yet. */
static void on_removed(struct env_task *task)
{
	iser__device_gone(container_of(task, struct iser_device, removed_task));
}

static void on_broken(struct recvq *q)
{
	struct iser_device *device = q->owner;

	log_error("RDMA device %s: its receive queue broke",
		  rdma_device_name(device->rdma));
	iser__device_gone(device);
}

/* A connection's completion queue holds all that it and a receive queue post. */
unsigned iser__tx_depth(const struct rdma_device *rdma)
{
	unsigned wrs = (unsigned)MAX(rdma->attr.max_qp_wr, 0);

	return MIN(MIN(TX_DEPTH, wrs),
		   (unsigned)MAX(rdma->attr.max_cqe, 0) / 2);
}

unsigned iser__receives_max(const struct rdma_device *rdma, unsigned most,
			    int device_max)
{
	unsigned rest =
		(unsigned)MAX(rdma->attr.max_cqe, 0) - iser__tx_depth(rdma);

	return MIN(MIN(most, (unsigned)MAX(device_max, 0)), rest);
}

/* Of what is left to receives a device gets a half: others may come. */
static unsigned receives_fit(const struct iser *iser)
{
	size_t most = iser__recvq_fit(arena_pages(iser->arena) / RECV_PART);
	size_t left = most - MIN(most, iser->receives);

	return (unsigned)MIN(MAX(left / 2, RECV_SHARED_LEAST), RECV_SHARED_MAX);
}

/*
 * Where the device has no shared receive queues each connection has its own;
 * on iWARP too, as there a message that finds no receive is the end of its
 * connection, and others could take them all.
 */
static void recvq_open(struct iser_device *device)
{
	const struct ibv_device_attr *attr = &device->rdma->attr;
	struct iser *iser = device->iser;
	int rv;

	if (device->rdma->iwarp || attr->max_srq <= 0 ||
	    attr->max_srq_wr <= 0 || attr->max_srq_sge < 3)
		return;
	rv = iser__recvq_open(
		device->rdma, iser->env,
		iser->shares_count > 1 ? RECVQ_SHARDS : RECVQ_SHARED,
		iser__receives_max(device->rdma, receives_fit(iser),
				   attr->max_srq_wr),
		&device->recvq);
	if (rv < 0) {
		log_warn("RDMA device %s has no receive queue left, each "
			 "connection has its own: %s",
			 rdma_device_name(device->rdma), strerror(-rv));
		return;
	}
	device->recvq->owner = device;
	device->recvq->broken = on_broken;
	iser->receives += device->recvq->capacity;
}

static void recvq_close(struct iser_device *device)
{
	device->iser->receives -= device->recvq->capacity;
	iser__recvq_close(device->recvq);
	device->recvq = NULL;
}

static int device_open(struct iser *iser, struct ibv_context *verbs,
		       struct iser_device **out, char *why, size_t why_len)
{
	struct iser_device *device = calloc(1, sizeof(*device));
	struct rdma_device_config config = {
		.env = iser->env,
		.arena = iser->arena,
		.verbs = verbs,
		.sge_least = 1 + RECV_PAGES,
		.fatal = on_fatal,
		.arg = device,
	};
	int rv;

	if (device == NULL)
		return -ENOMEM;
	device->iser = iser;
	device->removed_task.cb = on_removed;
	rv = rdma_device_open(&config, &device->rdma, why, why_len);
	if (rv < 0)
		goto err_free;
	recvq_open(device);
	LIST_INSERT_HEAD(&iser->devices, device, link);
	log_info("RDMA device %s: %s, %s receive queue",
		 rdma_device_name(device->rdma),
		 device->rdma->iwarp ? "iWARP" : "InfiniBand or RoCE",
		 device->recvq != NULL ? "a shared"
				       : "each connection its own");
	*out = device;
	return 0;

err_free:
	free(device);
	return rv;
}

int iser__device_get(struct iser *iser, struct ibv_context *verbs,
		     struct iser_device **out, char *why, size_t why_len)
{
	struct iser_device *device;

	LIST_FOREACH (device, &iser->devices, link)
		if (device->rdma->verbs == verbs)
			break;
	if (device != NULL && device->gone) {
		/* Nobody else can have its events until then. */
		snprintf(why, why_len, "%s is gone: %u connection%s yet to end",
			 rdma_device_name(device->rdma), device->conns_count,
			 device->conns_count == 1 ? " on it has"
						  : "s on it have");
		return -EBUSY;
	}
	if (device != NULL) {
		*out = device;
		return 0;
	}
	snprintf(why, why_len, "out of memory");
	return device_open(iser, verbs, out, why, why_len);
}

static void device_close(struct iser_device *device)
{
	assert(device->conns_count == 0);
	assert(device->fetchers == 0);
	LIST_REMOVE(device, link);
	if (device->recvq != NULL)
		recvq_close(device);
	rdma_device_close(device->rdma);
	free(device);
}

/*
 * No event says that a device at rest is pulled out, or that one came.  And
 * librdmacm keeps the context of each device that it has ever seen, used or not;
 * drivers without disassociation hold the removal up for that.  Looking at its
 * list makes it close those that are gone from the system, which they are a
 * moment after we have let go.
 */
#define LOOK_NS (10 * SEC)
#define SWEEP_NS (2 * SEC)
#define SWEEPS 5u

static void devices_look(struct iser *iser)
{
	struct iser_device *device, *next;

	for (device = LIST_FIRST(&iser->devices); device; device = next) {
		next = LIST_NEXT(device, link);
		if (!device->gone && !rdma_device_listed(device->rdma))
			iser__device_gone(device);
	}
}

void iser__sweep(struct env_timer *timer)
{
	struct iser *iser = container_of(timer, struct iser, sweep);
	unsigned devices = rdma_devices_count();
	struct ibv_context **list = NULL;

	devices_look(iser);
	if (iser->channel != NULL &&
	    (iser->sweeps > 0 || devices != iser->devices_seen))
		list = rdma_get_devices(NULL);
	if (list != NULL)
		rdma_free_devices(list);
	if (devices != iser->devices_seen || iser__portals_partly(iser))
		iser__portals_devices(iser);
	iser->devices_seen = devices;
	env_timer_start(iser->env, timer,
			iser->sweeps > 0 ? SWEEP_NS : LOOK_NS);
	if (iser->sweeps > 0)
		iser->sweeps--;
}

void iser__devices_watch(struct iser *iser)
{
	if (env_timer_active(&iser->sweep))
		return;
	iser->devices_seen = rdma_devices_count();
	env_timer_start(iser->env, &iser->sweep, LOOK_NS);
}

/* Close a device that is gone once nothing is on it. */
static void device_maybe_close(struct iser_device *device)
{
	struct ibv_context *verbs = device->rdma->verbs;
	struct iser *iser = device->iser;

	if (!device->gone || device->conns_count > 0)
		return;
	device_close(device);
	/* Behind the last of these the context itself may go. */
	iser__portals_device_gone(iser, verbs);
	iser->sweeps = SWEEPS;
	env_timer_start(iser->env, &iser->sweep, SWEEP_NS);
}

/* Said once for each queue that loses receives by it. */
void iser__device_keeps(struct iser_device *device)
{
	if (!atomic_exchange(&device->keeps, true))
		log_warn("RDMA device %s does not let go of a connection: its "
			 "queue pair is destroyed under it%s",
			 rdma_device_name(device->rdma),
			 device->recvq == NULL
				 ? ""
				 : "; receives that it keeps are lost until "
				   "all connections have ended");
}

/* Nothing is on it: what it kept of the shared receives comes back. */
static void recvq_renew(struct iser_device *device)
{
	recvq_close(device);
	device->keeps = false;
	recvq_open(device);
}

void iser__device_put(struct iser_device *device)
{
	assert(device->conns_count > 0);
	device->conns_count--;
	if (device->keeps && device->conns_count == 0 && !device->gone &&
	    device->recvq != NULL)
		recvq_renew(device);
	device_maybe_close(device);
}

void iser__device_gone(struct iser_device *device)
{
	struct iser *iser = device->iser;
	struct iser_conn *conn;

	if (device->gone)
		return;
	device->gone = true;
	log_warn("RDMA device %s is gone: %u connection%s",
		 rdma_device_name(device->rdma), device->conns_count,
		 device->conns_count == 1 ? " ends" : "s end");
	/* They end on later turns: the list stays as it is. */
	TAILQ_FOREACH (conn, &iser->conns, link)
		if (conn->device == device)
			iser__conn_removed(conn);
	for (unsigned i = 1; i < iser->shares_count; i++)
		iser__look(iser->shares[i]);
	device_maybe_close(device);
}

void iser__device_removed(struct iser_device *device, const struct iser *iser)
{
	if (iser__is_front(iser))
		iser__device_gone(device);
	else if (!atomic_exchange(&device->removed, true))
		env_post(device->iser->env, &device->removed_task);
}

void iser__devices_close(struct iser *iser)
{
	struct iser_device *device, *next;

	for (device = LIST_FIRST(&iser->devices); device; device = next) {
		next = LIST_NEXT(device, link);
		device_close(device);
	}
}
