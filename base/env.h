/*
 * env: the only seam between the rooms and the outside.
 *
 * Rooms never call clock, random, thread, file or socket functions; they reach
 * the world through this table.  The daemon plugs in libuv and io_uring
 * (shard.c), the simulator a virtual clock and faulty disks.  One env is one
 * shard: one thread, one loop, and all callbacks of its objects run there.
 *
 * The contract every backend keeps:
 *  - requests are the caller's memory, linked in; submitting allocates nothing;
 *  - a completion never runs inside the call that submitted it;
 *  - a started request's callback runs exactly once, also when the device or
 *    the lane is closed (with -ECANCELED), except a stopped timer's;
 *  - completions may come in any order.
 */
#ifndef BASALT_BASE_ENV_H
#define BASALT_BASE_ENV_H

#include "base/kv.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/uio.h>

struct env;
struct env_dev;
struct env_lane;
struct page_cache;

/*
 * Run later: at the end of this turn (defer), or on another shard (post).  What
 * one shard posts to another runs there in order; a task is posted again only
 * after it ran.  A task is part of its sender's request, and those are bounded:
 * so is the queue.
 */
struct env_task {
	void (*cb)(struct env_task *task);
	/* private */
	STAILQ_ENTRY(env_task) link;
	bool queued;
};

/* Zeroed but for @cb before its first start. */
struct env_timer {
	void (*cb)(struct env_timer *timer);
	/* private */
	uint64_t due_ns;
	uint64_t order; /* ties fire in the order they were started */
	size_t at; /* place in the heap (timer_heap.h), from 1; 0: stopped */
};

/*
 * A blocking call (RocksDB, opening files): @work runs on another thread and
 * touches this request and what hangs on it only; @done on the loop.  Work of
 * one lane runs in order, one at a time, and so do its ends; without a lane, in
 * any order.
 */
struct env_work {
	void (*work)(struct env_work *work);
	void (*done)(struct env_work *work);
	/* private */
	struct env *env;
	struct env_lane *lane;
	STAILQ_ENTRY(env_work) link;
	atomic_bool handed;
	void *impl[16];
};

/*
 * Block I/O.  @res is the number of bytes asked for, or -errno: never a short
 * count (the backend carries on after EINTR, EAGAIN and short transfers).  The
 * iovec array and the memory stay the caller's and untouched until @cb.  Only
 * @cb is set before a start.
 */
struct env_io {
	void (*cb)(struct env_io *io, int64_t res);
	/* private */
	struct env_dev *dev;
	const struct iovec *iov;
	unsigned iov_count;
	unsigned flags;
	uint8_t op;
	uint64_t offset;
	uint64_t len, done, since_ns;
	struct iovec part; /* what is left of a split iovec after a short one */
	TAILQ_ENTRY(env_io) link;
	void *impl[4];
};

/* One of many blocking reads: as dev_read_now(), @result is what that returns. */
struct env_read {
	void *buf;
	size_t len;
	uint64_t offset;
	int result;
};

/* env_dev_writev(): durable once complete (RWF_DSYNC; FUA or a flush). */
#define ENV_DURABLE 1u

#define ENV_IOV_MAX 1024u

/* What a device or a file is; filled by env_dev_open(). */
struct env_dev_info {
	uint64_t bytes;
	uint32_t logical_block; /* O_DIRECT granularity, at most 4096 */
	bool block_device;
	bool can_discard;
	char serial[64], model[64]; /* empty where unknown */
};

/* env_dev_open() flags */
#define ENV_DEV_RDONLY 1u
/* O_EXCL on devices, a lock on files, waited for (shard_file_lock()): -EBUSY */
#define ENV_DEV_EXCLUSIVE 2u

struct env_ops {
	uint64_t (*rand)(struct env *env);
	void (*secure_random)(struct env *env, void *buf, size_t len);
	uint64_t (*wall_ns)(
		struct env *env); /* for people only: CLOCK_REALTIME */

	void (*defer)(struct env *env,
		      struct env_task *task); /* if not queued */
	void (*post)(struct env *to, struct env_task *task); /* any thread */

	void (*timer_start)(struct env *env, struct env_timer *timer,
			    uint64_t delay_ns);
	void (*timer_stop)(struct env *env, struct env_timer *timer);

	int (*lane_open)(struct env *env, const char *name,
			 struct env_lane **out);
	void (*lane_close)(struct env_lane *lane); /* idle lanes only */
	void (*work)(struct env *env, struct env_lane *lane,
		     struct env_work *work);

	/* Blocking: call it from env_work.  0 or -errno. */
	int (*dev_open)(struct env *env, const char *path, unsigned flags,
			struct env_dev **out, struct env_dev_info *info);
	/* On the loop, with no request in flight. */
	void (*dev_close)(struct env_dev *dev);

	void (*dev_readv)(struct env_dev *dev, struct env_io *io,
			  const struct iovec *iov, unsigned n, uint64_t offset);
	void (*dev_writev)(struct env_dev *dev, struct env_io *io,
			   const struct iovec *iov, unsigned n, uint64_t offset,
			   unsigned flags);
	void (*dev_flush)(struct env_dev *dev, struct env_io *io);

	/*
	 * Blocking: whole transfers from env_work() (formatting, recovery).
	 * 0 or -errno.  The memory is aligned to 4096, as are the others.  A
	 * read of what the medium has lost is -ENODATA, whoever found that.
	 */
	int (*dev_read_now)(struct env_dev *dev, void *buf, size_t len,
			    uint64_t offset);
	int (*dev_write_now)(struct env_dev *dev, const void *buf, size_t len,
			     uint64_t offset, unsigned flags);
	/*
	 * What lies there is not needed: a read of it gives anything.  0 or -errno;
	 * -EOPNOTSUPP: the device has no use for that.
	 */
	int (*dev_discard_now)(struct env_dev *dev, uint64_t offset,
			       uint64_t len);
	/* NULL: they are read one after the other, in their order. */
	void (*dev_read_many_now)(struct env_dev *dev, struct env_read *reads,
				  unsigned n);
	/* NULL: it never does. */
	uint64_t (*heard_ns)(const struct env *env);
	/* Any thread.  NULL: devices answer. */
	uint64_t (*dev_silent_ns)(const struct env_dev *dev, uint64_t now_ns);

	/* Blocking: an ordered key-value store; see kv.h. */
	int (*kv_open)(struct env *env, const struct kv_config *config,
		       struct kv **out);
};

struct env {
	const struct env_ops *ops;
	uint64_t now_ns; /* monotonic, refreshed once a turn */
	struct page_cache *pages;
	unsigned shard, shards_count;
};

static inline uint64_t env_now(const struct env *env)
{
	return env->now_ns;
}

static inline uint64_t env_rand(struct env *env)
{
	return env->ops->rand(env);
}

static inline void env_secure_random(struct env *env, void *buf, size_t len)
{
	env->ops->secure_random(env, buf, len);
}

static inline uint64_t env_wall_ns(struct env *env)
{
	return env->ops->wall_ns(env);
}

/* A task that is queued already stays queued once. */
static inline void env_defer(struct env *env, struct env_task *task)
{
	if (!task->queued)
		env->ops->defer(env, task);
}

static inline void env_post(struct env *to, struct env_task *task)
{
	to->ops->post(to, task);
}

static inline bool env_timer_active(const struct env_timer *timer)
{
	return timer->at != 0;
}

/* The clock stands still during a turn: what is due so late is in the next one. */
#define ENV_NEXT_TURN_NS 1u

/* Starting an active timer moves it. */
static inline void env_timer_start(struct env *env, struct env_timer *timer,
				   uint64_t delay_ns)
{
	env->ops->timer_start(env, timer, delay_ns);
}

static inline void env_timer_stop(struct env *env, struct env_timer *timer)
{
	env->ops->timer_stop(env, timer);
}

static inline int env_lane_open(struct env *env, const char *name,
				struct env_lane **out)
{
	return env->ops->lane_open(env, name, out);
}

static inline void env_lane_close(struct env *env, struct env_lane *lane)
{
	env->ops->lane_close(lane);
}

static inline void env_work(struct env *env, struct env_lane *lane,
			    struct env_work *work)
{
	env->ops->work(env, lane, work);
}

static inline int env_dev_open(struct env *env, const char *path,
			       unsigned flags, struct env_dev **out,
			       struct env_dev_info *info)
{
	return env->ops->dev_open(env, path, flags, out, info);
}

static inline void env_dev_close(struct env *env, struct env_dev *dev)
{
	env->ops->dev_close(dev);
}

static inline void env_dev_readv(struct env *env, struct env_dev *dev,
				 struct env_io *io, const struct iovec *iov,
				 unsigned n, uint64_t offset)
{
	env->ops->dev_readv(dev, io, iov, n, offset);
}

static inline void env_dev_writev(struct env *env, struct env_dev *dev,
				  struct env_io *io, const struct iovec *iov,
				  unsigned n, uint64_t offset, unsigned flags)
{
	env->ops->dev_writev(dev, io, iov, n, offset, flags);
}

static inline void env_dev_flush(struct env *env, struct env_dev *dev,
				 struct env_io *io)
{
	env->ops->dev_flush(dev, io);
}

static inline int env_dev_read_now(struct env *env, struct env_dev *dev,
				   void *buf, size_t len, uint64_t offset)
{
	return env->ops->dev_read_now(dev, buf, len, offset);
}

static inline int env_dev_write_now(struct env *env, struct env_dev *dev,
				    const void *buf, size_t len,
				    uint64_t offset, unsigned flags)
{
	return env->ops->dev_write_now(dev, buf, len, offset, flags);
}

static inline int env_dev_discard_now(struct env *env, struct env_dev *dev,
				      uint64_t offset, uint64_t len)
{
	return env->ops->dev_discard_now(dev, offset, len);
}

/*
 * Read @n places at once: it takes the device's time, not @n times its latency.
 * Each has a result of its own.
 */
static inline void env_dev_read_many_now(struct env *env, struct env_dev *dev,
					 struct env_read *reads, unsigned n)
{
	unsigned i;

	if (env->ops->dev_read_many_now != NULL) {
		env->ops->dev_read_many_now(dev, reads, n);
		return;
	}
	for (i = 0; i < n; i++)
		reads[i].result = env_dev_read_now(
			env, dev, reads[i].buf, reads[i].len, reads[i].offset);
}

/*
 * Till when what was answered is known: till now.  Directly behind a while in which
 * the loop stood still, with the process or its machine, only till that began: who
 * was waited for since may have answered, and who was silent by then still is.
 */
static inline uint64_t env_heard_ns(const struct env *env)
{
	return env->ops->heard_ns != NULL ? env->ops->heard_ns(env)
					  : env_now(env);
}

/*
 * How long it has answered nothing of what it was asked for; else 0.  Any shard may
 * ask, with its own @env.
 */
static inline uint64_t env_dev_silent_ns(const struct env *env,
					 const struct env_dev *dev)
{
	return env->ops->dev_silent_ns != NULL
		       ? env->ops->dev_silent_ns(dev, env_heard_ns(env))
		       : 0;
}

static inline int env_kv_open(struct env *env, const struct kv_config *config,
			      struct kv **out)
{
	return env->ops->kv_open(env, config, out);
}

#define USEC 1000ull
#define MSEC 1000000ull
#define SEC 1000000000ull

#endif
