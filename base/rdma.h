/*
 * rdma: RDMA devices as the rooms use them: a protection domain with the arena
 * registered in it, and the device's own events.
 *
 * Each room opens a device for itself (DESIGN 4: iSER and RDT have protection
 * domains of their own), with the access that its peers shall have: none, for a
 * room that only ever reads and writes remote memory itself.
 *
 * Registration pins the whole arena, which RLIMIT_MEMLOCK may forbid.  There is
 * no way around it without a copy of every byte, so that is an error whose text
 * names the limit.  One shard owns a device: it opens and closes it, and is told
 * of its events.  Others may post to what hangs on it.
 */
#ifndef BASALT_BASE_RDMA_H
#define BASALT_BASE_RDMA_H

#include "base/env.h"
#include "base/sgl.h"

#include <infiniband/verbs.h>

struct rdma_device;

/*
 * What a queue pair's, completion queue's or shared receive queue's context
 * points to: whom its asynchronous events concern.  @cb runs on the device's
 * shard; if another one has just destroyed the object, this must be there yet.
 */
struct rdma_watch {
	void (*cb)(struct rdma_watch *watch, enum ibv_event_type event);
};

struct rdma_device_config {
	struct env *env;
	struct arena *arena;
	struct ibv_context *verbs;
	/* IBV_ACCESS_* beyond local write that the arena is registered with */
	int access;
	unsigned sge_least; /* sge_max must be as large */
	/* The device as a whole failed, or is gone: close what is on it. */
	void (*fatal)(struct rdma_device *device, void *arg);
	void *arg;
};

struct rdma_device {
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	bool iwarp;
	unsigned sge_max; /* of a SEND, WRITE or receive */
	unsigned sge_read_max; /* of a READ */
	/* private */
	struct rdma_device_config config;
	struct ibv_mr *arena_mr, *zero_mr;
	uintptr_t arena_base;
	size_t arena_bytes;
	void *poll; /* uv_poll_t */
	LIST_ENTRY(rdma_device) link;
};

/* How many RDMA devices the machine has now. */
unsigned rdma_devices_count(void);

struct rdma_device;
/* Does the system still have it?  It reads a directory: not for every turn. */
bool rdma_device_listed(const struct rdma_device *device);

/*
 * Use @config->verbs.  0; -ENOMEM with RLIMIT_MEMLOCK named in @why, -EOPNOTSUPP
 * for what the device cannot do, before anything is registered, or another -errno
 * with @why.
 */
int rdma_device_open(const struct rdma_device_config *config,
		     struct rdma_device **out, char *why, size_t why_len);

/* Nothing of the caller is left on it.  The memory goes on a later turn. */
void rdma_device_close(struct rdma_device *device);

const char *rdma_device_name(const struct rdma_device *device);

/* The local key of memory at @at: of the arena, or the page of zeros. */
uint32_t rdma_lkey(const struct rdma_device *device, const void *at);

/*
 * Describe bytes [@offset, @offset + @len) of @sgl for a work request, as
 * sgl_iov() does.  Returns how many were written; *@covered: bytes they hold.
 */
unsigned rdma_sges(const struct rdma_device *device, const struct sgl *sgl,
		   size_t offset, size_t len, struct ibv_sge *out,
		   unsigned out_max, size_t *covered);

#endif
