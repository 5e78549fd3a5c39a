/*
 * shard: the loop.  A turn runs posted and deferred tasks, expired timers and
 * completions of the ring until nothing comes of it any more.  Then one system
 * call submits all requests and sleeps, in the ring: libuv's own descriptor is
 * one of the requests, so a completion of the disk wakes the loop without
 * epoll, and libuv runs only when a descriptor of its own is ready.
 *
 * A wake-up costs more than a short wait.  So where waits were short lately,
 * and only one or two requests are in flight, the loop watches the ring for up
 * to spin_ns before it sleeps.
 */
#define LOG_ROOM LOG_BASE
#include "base/log.h"
#include "base/shard_int.h"
#include "base/spare.h"
#include "base/stats.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 4u
#define LATE_NS (100 * MSEC) /* of a timer: by a stall only */
#define STOPPED_NS SEC /* the whole process was, or its machine */
#define CATCH_UP_NS (500 * MSEC) /* for what was under way then */
#define SPIN_IN_FLIGHT 2u /* with more, the wake-ups are shared anyway */
/*
 * Threads for blocking work that has no lane.  A disk that hangs keeps those that
 * look at it: libuv's usual four are gone with as many disks.
 */
#define WORKERS "32"

struct shards {
	unsigned count;
	struct shard *shard[64];
};

/* ---- the clock, chance, tasks and timers ---- */

static uint64_t op_rand(struct env *env)
{
	struct shard *s = shard_of(env);
	uint64_t a = s->rng[0], b = s->rng[1];

	/* xoroshiro128+: jitter and hashes, never secrets */
	s->rng[0] = (a << 24 | a >> 40) ^ a ^ b ^ (a ^ b) << 16;
	b ^= a;
	s->rng[1] = b << 37 | b >> 27;
	return a + s->rng[1];
}

static void op_secure_random(struct env *env, void *buf, size_t len)
{
	uint8_t *at = buf;

	while (len > 0) {
		ssize_t n = getrandom(at, MIN(len, 256u), 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			abort(); /* no secrets without randomness */
		at += n;
		len -= (size_t)n;
	}
}

static uint64_t op_wall_ns(struct env *env)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME, &ts);
	return (uint64_t)ts.tv_sec * SEC + (uint64_t)ts.tv_nsec;
}

static void op_defer(struct env *env, struct env_task *task)
{
	struct shard *s = shard_of(env);

	if (task->queued)
		return;
	task->queued = true;
	STAILQ_INSERT_TAIL(&s->tasks, task, link);
}

/*
 * libuv looks whether a wake-up is under way before it sends one: that look must
 * not come before what the loop is woken for can be seen.  Not even an exchange
 * keeps that order on arm64; x86 does anyway, and TSan knows no fences.
 */
static void wake(struct shard *s)
{
#ifndef __SANITIZE_THREAD__
	atomic_thread_fence(memory_order_seq_cst);
#endif
	uv_async_send(&s->async);
}

/*
 * A stack, taken whole and turned round by its shard: no lock, what one thread
 * posts stays in order, and only the first post into an empty one wakes.
 */
static void op_post(struct env *to, struct env_task *task)
{
	struct shard *s = shard_of(to);
	struct env_task *top =
		atomic_load_explicit(&s->posted, memory_order_relaxed);

	do {
		task->link.stqe_next = top;
	} while (!atomic_compare_exchange_weak_explicit(&s->posted, &top, task,
							memory_order_release,
							memory_order_relaxed));
	if (top == NULL)
		wake(s);
}

static void op_timer_start(struct env *env, struct env_timer *timer,
			   uint64_t delay_ns)
{
	struct shard *s = shard_of(env);

	timer_heap_start(&s->timers, timer, env->now_ns + delay_ns);
}

static void op_timer_stop(struct env *env, struct env_timer *timer)
{
	timer_heap_stop(&shard_of(env)->timers, timer);
}

static int op_kv_open(struct env *env, const struct kv_config *config,
		      struct kv **out)
{
	return kv_rocksdb_open(config, out);
}

/* Timers wait for the same. */
static uint64_t op_heard_ns(const struct env *env)
{
	const struct shard *s = container_of(env, const struct shard, env);

	return env->now_ns < s->timers_ns ? s->heard_ns : env->now_ns;
}

static const struct env_ops shard_ops = {
	.rand = op_rand,
	.secure_random = op_secure_random,
	.wall_ns = op_wall_ns,
	.defer = op_defer,
	.post = op_post,
	.timer_start = op_timer_start,
	.timer_stop = op_timer_stop,
	.lane_open = shard__lane_open,
	.lane_close = shard__lane_close,
	.work = shard__work,
	.dev_open = shard__dev_open,
	.dev_close = shard__dev_close,
	.dev_readv = shard__dev_readv,
	.dev_writev = shard__dev_writev,
	.dev_flush = shard__dev_flush,
	.dev_read_now = shard__dev_read_now,
	.dev_write_now = shard__dev_write_now,
	.dev_discard_now = shard__dev_discard_now,
	.dev_read_many_now = shard__dev_read_many_now,
	.heard_ns = op_heard_ns,
	.dev_silent_ns = shard__dev_silent_ns,
	.kv_open = op_kv_open,
};

/* ---- a turn ---- */

void shard_wake(struct env *env)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts); /* as uv_hrtime() */
	env->now_ns = (uint64_t)ts.tv_sec * SEC + (uint64_t)ts.tv_nsec;
}

static void run_tasks(struct shard *s)
{
	struct env_task_list list = STAILQ_HEAD_INITIALIZER(list);
	struct env_task *task;

	/* Tasks that tasks defer wait for the next round. */
	STAILQ_CONCAT(&list, &s->tasks);
	while ((task = STAILQ_FIRST(&list)) != NULL) {
		STAILQ_REMOVE_HEAD(&list, link);
		task->queued = false;
		task->cb(task);
	}
}

/*
 * Who fills it wakes the loop afterwards, and on_async() takes the lock: what is
 * missed now is seen in the turn behind it.
 */
static bool inbox_any(struct shard *s)
{
	return atomic_load_explicit(&s->posted, memory_order_relaxed) != NULL ||
	       atomic_load_explicit(&s->done_any, memory_order_relaxed);
}

static void run_inbox(struct shard *s)
{
	struct env_task_list posted = STAILQ_HEAD_INITIALIZER(posted);
	struct env_work_list done = STAILQ_HEAD_INITIALIZER(done);
	struct env_task *task, *next;
	struct env_work *work;

	task = atomic_exchange_explicit(&s->posted, NULL, memory_order_acquire);
	for (; task != NULL; task = next) {
		next = task->link.stqe_next;
		STAILQ_INSERT_HEAD(&posted, task, link);
	}
	pthread_mutex_lock(&s->inbox_lock);
	STAILQ_CONCAT(&done, &s->done);
	atomic_store_explicit(&s->done_any, false, memory_order_relaxed);
	pthread_mutex_unlock(&s->inbox_lock);
	while ((task = STAILQ_FIRST(&posted)) != NULL) {
		STAILQ_REMOVE_HEAD(&posted, link);
		task->cb(task);
	}
	while ((work = STAILQ_FIRST(&done)) != NULL) {
		STAILQ_REMOVE_HEAD(&done, link);
		work->done(work);
	}
}

static uint64_t due_ns(const struct shard *s, const struct env_timer *timer)
{
	return MAX(timer->due_ns, s->timers_ns);
}

/* The first timer, if it is due. */
static struct env_timer *timer_due(const struct shard *s)
{
	struct env_timer *timer = timer_heap_first(&s->timers);

	return timer != NULL && due_ns(s, timer) <= s->env.now_ns ? timer
								  : NULL;
}

static void run_timers(struct shard *s)
{
	struct env_timer *timer;

	for (unsigned n = 0; n < 64 && (timer = timer_due(s)) != NULL; n++) {
		timer_heap_stop(&s->timers, timer);
		timer->cb(timer);
	}
}

/*
 * The clock was read just before; it stands still during a turn.  @timers: run
 * those that are due, too.
 */
static void turn(struct shard *s, bool timers)
{
	for (unsigned round = 0; round < ROUNDS; round++) {
		if (inbox_any(s))
			run_inbox(s);
		run_tasks(s);
		if (timers)
			run_timers(s);
		shard__uring_reap(s);
		s->more = page_cache_turn(s->env.pages);
		s->more |= !STAILQ_EMPTY(&s->tasks) || inbox_any(s) ||
			   timer_due(s) != NULL || shard__uring_any(&s->uring);
		if (!s->more)
			break;
	}
}

static void run_libuv(struct shard *s)
{
	s->uring.uv_ready = false;
	uv_run(&s->loop, UV_RUN_NOWAIT);
}

/*
 * Did the loop stand still, with the process or its machine?  Then what came
 * meanwhile is seen before a timer says that it did not come in time.  After a
 * long while what was in the middle of its work is let go on before, too.
 * @last_ns: its last turn.
 */
static bool stood_still(struct shard *s, uint64_t last_ns)
{
	const struct env_timer *first = timer_heap_first(&s->timers);
	uint64_t late_ns;

	if (first == NULL || s->env.now_ns <= due_ns(s, first))
		return false;
	late_ns = s->env.now_ns - due_ns(s, first);
	/* Once: a process that stands still again and again has timers, too. */
	if (late_ns > STOPPED_NS && first->due_ns >= s->timers_ns) {
		s->timers_ns = s->env.now_ns + CATCH_UP_NS;
		s->heard_ns = last_ns;
	}
	return late_ns > LATE_NS;
}

/* How long nothing is due by the clock, libuv's timers included; 0: now. */
static uint64_t may_sleep(struct shard *s, uint64_t limit_ns)
{
	struct env_timer *next = timer_heap_first(&s->timers);
	uint64_t ns = limit_ns, next_ns;
	int uv_ms;

	if (s->more || !STAILQ_EMPTY(&s->tasks))
		return 0;
	uv_ms = uv_backend_timeout(&s->loop);
	if (uv_ms >= 0)
		ns = MIN(ns, (uint64_t)uv_ms * MSEC);
	if (next != NULL) {
		next_ns = due_ns(s, next);
		ns = MIN(ns,
			 next_ns > s->env.now_ns ? next_ns - s->env.now_ns : 0);
	}
	return ns;
}

/*
 * Wait for a completion, @ns at most.  The mean of the last waits, long ones
 * cut, tells whether the next is likely to be short.
 */
static void rest(struct shard *s, uint64_t ns)
{
	uint64_t from = s->env.now_ns, spin = MIN(s->spin_ns, ns), waited;
	bool ready = false;

	if (spin > 0 && s->wait_mean_ns < s->spin_ns &&
	    s->uring.in_flight <= SPIN_IN_FLIGHT) {
		shard__uring_submit(s);
		do {
			cpu_relax();
			ready = shard__uring_ready(s);
		} while (!ready && uv_hrtime() - from < spin);
	}
	if (!ready)
		shard__uring_wait(s, ns);
	shard_wake(&s->env);
	waited = MIN(s->env.now_ns - from, 4 * s->spin_ns);
	s->wait_mean_ns = (7 * s->wait_mean_ns + waited) / 8;
}

static struct histogram turns = {
	.name = "basalt_base_turn_seconds",
	.stage = "loop turn",
	.rank = 60,
	.help = "turns of the shards' loops: what is ready waits for its end",
};

void shard_step(struct env *env, uint64_t limit_ns)
{
	struct shard *s = shard_of(env);
	uint64_t last_ns = s->turn_ns, ns;

	shard_wake(env);
	if (last_ns != 0)
		histogram_add(&turns, env->now_ns - last_ns);
	/* It counts in milliseconds. */
	if (env->now_ns - s->uv_time_ns >= MSEC) {
		uv_update_time(&s->loop);
		s->uv_time_ns = env->now_ns;
	}
	ns = may_sleep(s, limit_ns);
	if (!shard__uring_arm(s) || ns == 0)
		shard__uring_submit(s);
	else
		rest(s, ns);
	s->turn_ns = env->now_ns;
	if (stood_still(s, last_ns)) {
		turn(s, false);
		run_libuv(s);
	}
	turn(s, true);
	if (s->uring.uv_ready || uv_backend_timeout(&s->loop) == 0) {
		run_libuv(s);
		s->more |= page_cache_turn(s->env.pages);
	}
}

static void run_loop(struct shard *s)
{
	while (uv_loop_alive(&s->loop))
		shard_step(&s->env, UINT64_MAX);
}

static void close_handles(struct shard *s)
{
	if (s->closing)
		return;
	s->closing = true;
	page_cache_wake_set(s->env.pages, NULL, NULL);
	uv_close((uv_handle_t *)&s->async, NULL);
}

static void on_async(uv_async_t *async)
{
	struct shard *s = async->data;
	bool stop;

	s->more = true; /* the inbox is looked at before the loop sleeps */
	pthread_mutex_lock(&s->inbox_lock);
	stop = s->stop;
	pthread_mutex_unlock(&s->inbox_lock);
	if (stop) {
		shard_wake(&s->env);
		turn(s, true);
		shard__uring_submit(s);
		close_handles(s);
	}
}

/* The turn that follows looks after the pages. */
static void on_page_wake(void *arg)
{
	wake(arg);
}

/* ---- opening and closing ---- */

static int shard_init(struct shard *s)
{
	int rv;

	op_secure_random(NULL, s->rng, sizeof(s->rng));
	pthread_mutex_init(&s->inbox_lock, NULL);
	STAILQ_INIT(&s->tasks);
	STAILQ_INIT(&s->done);
	rv = uv_loop_init(&s->loop);
	if (rv < 0)
		return rv;
	/* It alone keeps the loop alive. */
	s->async.data = s;
	rv = uv_async_init(&s->loop, &s->async, on_async);
	if (rv < 0)
		return rv;
	page_cache_wake_set(s->env.pages, on_page_wake, s);
	rv = shard__uring_open(s);
	if (rv < 0)
		return rv;
	shard_wake(&s->env);
	return 0;
}

static void shard_fini(struct shard *s)
{
	int rv;

	close_handles(s);
	while (uv_run(&s->loop, UV_RUN_NOWAIT) != 0)
		;
	rv = uv_loop_close(&s->loop);
	assert(rv == 0); /* a handle was left open */
	shard__uring_close(s);
	timer_heap_fini(&s->timers);
	page_cache_close(s->env.pages);
	pthread_mutex_destroy(&s->inbox_lock);
	free(s);
}

struct starting {
	struct shard *shard;
	pthread_mutex_t lock;
	pthread_cond_t cond;
	bool ready;
	int status;
};

static void *shard_thread(void *arg)
{
	struct starting *st = arg;
	struct shard *s = st->shard;
	int rv = shard_init(s); /* here: the ring has a single issuer */

	pthread_mutex_lock(&st->lock);
	st->status = rv;
	st->ready = true;
	pthread_cond_signal(&st->cond);
	pthread_mutex_unlock(&st->lock);
	if (rv == 0)
		run_loop(s);
	spare_drop();
	return NULL;
}

static int shard_start(struct shard *s)
{
	struct starting st = { .shard = s };
	int rv;

	pthread_mutex_init(&st.lock, NULL);
	pthread_cond_init(&st.cond, NULL);
	rv = -pthread_create(&s->thread, NULL, shard_thread, &st);
	if (rv == 0) {
		pthread_mutex_lock(&st.lock);
		while (!st.ready)
			pthread_cond_wait(&st.cond, &st.lock);
		pthread_mutex_unlock(&st.lock);
		rv = st.status;
	}
	pthread_mutex_destroy(&st.lock);
	pthread_cond_destroy(&st.cond);
	return rv;
}

/* Shards that wait awake leave at least one CPU to others. */
static uint64_t spin_allowed(uint64_t spin_ns, unsigned shards)
{
	cpu_set_t cpus;

	if (sched_getaffinity(0, sizeof(cpus), &cpus) < 0)
		return 0;
	return (unsigned)CPU_COUNT(&cpus) > shards ? spin_ns : 0;
}

static void shards_free(struct shards *all)
{
	for (unsigned i = 0; i < all->count; i++) {
		page_cache_close(all->shard[i]->env.pages);
		free(all->shard[i]);
	}
	free(all);
}

/* @count shards, none of which runs yet. */
static int shards_new(const struct shards_config *config, unsigned count,
		      struct shards **out)
{
	struct shards *all = calloc(1, sizeof(*all));
	int rv = 0;

	if (all == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < count; i++) {
		struct shard *s = calloc(1, sizeof(*s));

		if (s != NULL)
			rv = page_cache_open(config->arena, &s->env.pages);
		if (s == NULL || rv < 0) {
			free(s);
			shards_free(all);
			return s == NULL ? -ENOMEM : rv;
		}
		s->all = all;
		s->spin_ns = spin_allowed(config->spin_ns, count);
		s->env.ops = &shard_ops;
		s->env.shard = i;
		s->env.shards_count = count;
		all->shard[all->count++] = s;
	}
	*out = all;
	return 0;
}

int shards_open(const struct shards_config *config, struct shards **out)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned count = config->count;
	struct shards *all = NULL;
	int rv;

	if (count == 0)
		count = cpus <= 2 ? 1 : (unsigned)cpus / 2;
	count = MIN(count, (unsigned)ARRAY_LEN(all->shard));
	/* libuv looks when the first work comes. */
	(void)setenv("UV_THREADPOOL_SIZE", WORKERS, 0);
	histogram_register(&turns);
	shard__uring_times_register();
	rv = shards_new(config, count, &all);
	if (rv < 0)
		return rv;
	for (unsigned i = 0; i < count; i++) {
		rv = i == 0 ? shard_init(all->shard[i])
			    : shard_start(all->shard[i]);
		if (rv < 0) {
			log_error("cannot start shard %u: %s", i,
				  strerror(-rv));
			/* The process does not go on without its loops. */
			return rv;
		}
	}
	*out = all;
	return 0;
}

void shards_run(struct shards *shards)
{
	run_loop(shards->shard[0]);
}

void shards_stop(struct shards *shards)
{
	for (unsigned i = 0; i < shards->count; i++) {
		struct shard *s = shards->shard[i];

		pthread_mutex_lock(&s->inbox_lock);
		s->stop = true;
		pthread_mutex_unlock(&s->inbox_lock);
		uv_async_send(&s->async);
	}
}

void shards_close(struct shards *shards)
{
	for (unsigned i = 1; i < shards->count; i++)
		pthread_join(shards->shard[i]->thread, NULL);
	for (unsigned i = 0; i < shards->count; i++)
		shard_fini(shards->shard[i]);
	spare_drop();
	free(shards);
}

unsigned shards_count(const struct shards *shards)
{
	return shards->count;
}

struct env *shard_env(struct shards *shards, unsigned index)
{
	assert(index < shards->count);
	return &shards->shard[index]->env;
}

uint64_t shard_spin_ns(struct env *env)
{
	assert(env->ops == &shard_ops);
	return shard_of(env)->spin_ns;
}

uv_loop_t *shard_loop(struct env *env)
{
	assert(env->ops == &shard_ops);
	return &shard_of(env)->loop;
}

void shard_run_until(struct env *env, const bool *done)
{
	while (!*done)
		shard_step(env, UINT64_MAX);
}
