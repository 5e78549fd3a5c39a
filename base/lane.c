/*
 * lane: blocking work.  A lane is a thread with a queue, for work that must
 * keep its order; work without a lane goes to libuv's pool.
 */
#include "base/shard_int.h"
#include "base/spare.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct env_lane {
	struct shard *shard;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct env_work_list queue; /* under lock */
	bool closing; /* under lock */
};

void shard__work_done(struct shard *shard, struct env_work *work)
{
	pthread_mutex_lock(&shard->inbox_lock);
	STAILQ_INSERT_TAIL(&shard->done, work, link);
	atomic_store_explicit(&shard->done_any, true, memory_order_relaxed);
	pthread_mutex_unlock(&shard->inbox_lock);
	uv_async_send(&shard->async);
}

static void *lane_thread(void *arg)
{
	struct env_lane *lane = arg;
	struct env_work *work;

	pthread_mutex_lock(&lane->lock);
	for (;;) {
		while (STAILQ_EMPTY(&lane->queue) && !lane->closing)
			pthread_cond_wait(&lane->cond, &lane->lock);
		work = STAILQ_FIRST(&lane->queue);
		if (work == NULL)
			break;
		STAILQ_REMOVE_HEAD(&lane->queue, link);
		pthread_mutex_unlock(&lane->lock);
		work->work(work);
		shard__work_done(lane->shard, work);
		pthread_mutex_lock(&lane->lock);
	}
	pthread_mutex_unlock(&lane->lock);
	spare_drop();
	return NULL;
}

int shard__lane_open(struct env *env, const char *name, struct env_lane **out)
{
	struct env_lane *lane = calloc(1, sizeof(*lane));
	char short_name[16];
	int rv;

	if (lane == NULL)
		return -ENOMEM;
	lane->shard = shard_of(env);
	STAILQ_INIT(&lane->queue);
	pthread_mutex_init(&lane->lock, NULL);
	pthread_cond_init(&lane->cond, NULL);
	rv = pthread_create(&lane->thread, NULL, lane_thread, lane);
	if (rv != 0) {
		pthread_cond_destroy(&lane->cond);
		pthread_mutex_destroy(&lane->lock);
		free(lane);
		return -rv;
	}
	snprintf(short_name, sizeof(short_name), "%s", name);
	pthread_setname_np(lane->thread, short_name);
	*out = lane;
	return 0;
}

void shard__lane_close(struct env_lane *lane)
{
	pthread_mutex_lock(&lane->lock);
	assert(STAILQ_EMPTY(&lane->queue));
	lane->closing = true;
	pthread_cond_signal(&lane->cond);
	pthread_mutex_unlock(&lane->lock);
	pthread_join(lane->thread, NULL);
	pthread_cond_destroy(&lane->cond);
	pthread_mutex_destroy(&lane->lock);
	free(lane);
}

static_assert(sizeof(uv_work_t) <= sizeof(((struct env_work *)0)->impl),
	      "env_work has room for libuv's request");

/*
 * @handed goes with the work to the pool and back: a thread sanitizer does not see
 * into libuv, which orders the same by its locks.
 */
static void pool_work(uv_work_t *req)
{
	struct env_work *work =
		container_of((void *)req, struct env_work, impl);

	(void)atomic_load_explicit(&work->handed, memory_order_acquire);
	work->work(work);
	atomic_store_explicit(&work->handed, false, memory_order_release);
}

static void pool_done(uv_work_t *req, int status)
{
	struct env_work *work =
		container_of((void *)req, struct env_work, impl);

	(void)atomic_load_explicit(&work->handed, memory_order_acquire);
	/* By way of the inbox: callbacks run inside a turn only. */
	shard__work_done(shard_of(work->env), work);
}

void shard__work(struct env *env, struct env_lane *lane, struct env_work *work)
{
	work->env = env;
	work->lane = lane;
	if (lane == NULL) {
		int rv;

		atomic_store_explicit(&work->handed, true,
				      memory_order_release);
		rv = uv_queue_work(&shard_of(env)->loop, (void *)work->impl,
				   pool_work, pool_done);

		assert(rv == 0);
		return;
	}
	pthread_mutex_lock(&lane->lock);
	STAILQ_INSERT_TAIL(&lane->queue, work, link);
	pthread_cond_signal(&lane->cond);
	pthread_mutex_unlock(&lane->lock);
}
