/* shard_int: what shard.c, lane.c, uring.c and record.c share. */
#ifndef BASALT_BASE_SHARD_INT_H
#define BASALT_BASE_SHARD_INT_H

#include "base/record.h"
#include "base/shard.h"
#include "base/timer_heap.h"
#include "base/util.h"

#include <liburing.h>
#include <pthread.h>

STAILQ_HEAD(env_task_list, env_task);
STAILQ_HEAD(env_work_list, env_work);
TAILQ_HEAD(env_io_list, env_io);

struct uring {
	struct io_uring ring;
	unsigned in_flight; /* of rooms: SQEs given to the kernel or queued */
	bool uv_armed; /* a poll of libuv's descriptor is in flight */
	bool uv_ready; /* it completed: libuv has something to do */
	struct env_io_list waiting; /* the submission queue was full */
};

struct shard {
	struct env env;
	struct shards *all;
	uv_loop_t loop;
	uv_async_t async;
	bool more; /* something is in hand: no sleep before the next turn */
	bool closing;
	uint64_t spin_ns; /* 0: never */
	uint64_t wait_mean_ns; /* how long it rested lately */
	uint64_t uv_time_ns; /* when libuv's clock was set */
	uint64_t turn_ns; /* when its last turn began; 0: none */
	uint64_t timers_ns; /* no timer runs before that */
	uint64_t heard_ns; /* by then: its last turn before it stood still */

	struct env_task_list tasks; /* deferred */
	struct timer_heap timers;
	struct uring uring;

	_Atomic(struct env_task *) posted; /* the newest one first */
	pthread_mutex_t inbox_lock;
	struct env_work_list done; /* under inbox_lock */
	atomic_bool done_any; /* false: nothing is done, or the wake follows */
	bool stop; /* under inbox_lock */

	pthread_t thread; /* shards other than 0 */
	uint64_t rng[2];
};

static inline struct shard *shard_of(struct env *env)
{
	return container_of(env, struct shard, env);
}

/* uring.c */
int shard__uring_open(struct shard *shard);
void shard__uring_close(struct shard *shard);
bool shard__uring_any(const struct uring *uring); /* has it something? */
void shard__uring_reap(struct shard *shard); /* handle it */
/* Have libuv's descriptor watched.  False: the kernel takes nothing now. */
bool shard__uring_arm(struct shard *shard);
void shard__uring_times_register(void);
void shard__uring_submit(struct shard *shard);
/* Submit, and sleep until something completed or @ns are over. */
void shard__uring_wait(struct shard *shard, uint64_t ns);
bool shard__uring_ready(struct shard *shard); /* something completed */
int shard__dev_open(struct env *env, const char *path, unsigned flags,
		    struct env_dev **out, struct env_dev_info *info);
void shard__dev_close(struct env_dev *dev);
void shard__dev_readv(struct env_dev *dev, struct env_io *io,
		      const struct iovec *iov, unsigned n, uint64_t offset);
void shard__dev_writev(struct env_dev *dev, struct env_io *io,
		       const struct iovec *iov, unsigned n, uint64_t offset,
		       unsigned flags);
void shard__dev_flush(struct env_dev *dev, struct env_io *io);

/* What dev_read_now() says of it. */
int shard__read_status(int status);
int shard__dev_read_now(struct env_dev *dev, void *buf, size_t len,
			uint64_t offset);
int shard__dev_write_now(struct env_dev *dev, const void *buf, size_t len,
			 uint64_t offset, unsigned flags);
int shard__dev_discard_now(struct env_dev *dev, uint64_t offset, uint64_t len);
uint64_t shard__dev_silent_ns(const struct env_dev *dev, uint64_t now_ns);
int shard__dev_fd(const struct env_dev *dev);

/* dev_many.c */
void shard__dev_read_many_now(struct env_dev *dev, struct env_read *reads,
			      unsigned n);

/* lane.c */
int shard__lane_open(struct env *env, const char *name, struct env_lane **out);
void shard__lane_close(struct env_lane *lane);
void shard__work(struct env *env, struct env_lane *lane, struct env_work *work);
void shard__work_done(struct shard *shard, struct env_work *work);

#endif
