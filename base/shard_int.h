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
	int wake_fd;
	uv_poll_t wake_poll;
	unsigned in_flight; /* SQEs given to the kernel or queued there */
	unsigned prepared; /* since the last submit */
	struct env_io_list waiting; /* the submission queue was full */
};

struct shard {
	struct env env;
	struct shards *all;
	uv_loop_t loop;
	uv_prepare_t prepare;
	uv_check_t check;
	uv_idle_t idle; /* runs while there is something for the next turn */
	uv_timer_t timer;
	uv_async_t async;
	bool idle_on, closing, turning;

	struct env_task_list tasks; /* deferred */
	struct timer_heap timers;
	struct uring uring;

	_Atomic(struct env_task *) posted; /* the newest one first */
	pthread_mutex_t inbox_lock;
	struct env_work_list done; /* under inbox_lock */
	bool stop; /* under inbox_lock */

	pthread_t thread; /* shards other than 0 */
	uint64_t rng[2];
};

static inline struct shard *shard_of(struct env *env)
{
	return container_of(env, struct shard, env);
}

/* Something is due in the next turn: do not sleep on it. */
void shard__keep_awake(struct shard *shard);

/* uring.c */
int shard__uring_open(struct shard *shard);
void shard__uring_close(struct shard *shard);
unsigned shard__uring_reap(struct shard *shard); /* completions handled */
void shard__uring_submit(struct shard *shard);
int shard__dev_open(struct env *env, const char *path, unsigned flags,
		    struct env_dev **out, struct env_dev_info *info);
void shard__dev_close(struct env_dev *dev);
void shard__dev_readv(struct env_dev *dev, struct env_io *io,
		      const struct iovec *iov, unsigned n, uint64_t offset);
void shard__dev_writev(struct env_dev *dev, struct env_io *io,
		       const struct iovec *iov, unsigned n, uint64_t offset,
		       unsigned flags);
void shard__dev_flush(struct env_dev *dev, struct env_io *io);
void shard__dev_discard(struct env_dev *dev, struct env_io *io, uint64_t offset,
			uint64_t len);

int shard__dev_read_now(struct env_dev *dev, void *buf, size_t len,
			uint64_t offset);
int shard__dev_write_now(struct env_dev *dev, const void *buf, size_t len,
			 uint64_t offset, unsigned flags);

/* lane.c */
int shard__lane_open(struct env *env, const char *name, struct env_lane **out);
void shard__lane_close(struct env_lane *lane);
void shard__work(struct env *env, struct env_lane *lane, struct env_work *work);
void shard__work_done(struct shard *shard, struct env_work *work);

#endif
