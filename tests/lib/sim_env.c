/* sim_env: the loop, the disk that loses what is not durable, the store. */
#include "tests/lib/sim_env.h"

#include "tests/lib/memkv.h"
#include "tests/lib/pattern.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct env_lane {
	struct sim_env *sim;
};

struct env_dev {
	struct sim_env *sim;
};

struct sim_kv {
	struct kv kv; /* first */
	struct sim_env *sim;
};

static struct sim_env *sim_of(struct env *env)
{
	return (struct sim_env *)env;
}

static void *must(void *p)
{
	if (p == NULL)
		abort();
	return p;
}

uint64_t sim_env_random(struct sim_env *sim, uint64_t below)
{
	return random_next(&sim->random) % below;
}

static uint64_t sim_rand(struct env *env)
{
	return random_next(&sim_of(env)->random);
}

static void sim_secure_random(struct env *env, void *buf, size_t len)
{
	uint8_t *b = buf;

	while (len-- > 0)
		*b++ = (uint8_t)sim_rand(env);
}

static uint64_t sim_wall_ns(struct env *env)
{
	return env->now_ns;
}

static void sim_defer(struct env *env, struct env_task *task)
{
	if (task->queued)
		return;
	task->queued = true;
	STAILQ_INSERT_TAIL(&sim_of(env)->tasks, task, link);
}

static void sim_timer_stop(struct env *env, struct env_timer *timer)
{
	timer_heap_stop(&sim_of(env)->timers, timer);
}

static void sim_timer_start(struct env *env, struct env_timer *timer,
			    uint64_t delay_ns)
{
	timer_heap_start(&sim_of(env)->timers, timer, env->now_ns + delay_ns);
}

static int sim_lane_open(struct env *env, const char *name,
			 struct env_lane **out)
{
	*out = must(calloc(1, sizeof(**out)));
	(*out)->sim = sim_of(env);
	return 0;
}

static void sim_lane_close(struct env_lane *lane)
{
	free(lane);
}

static void sim_work(struct env *env, struct env_lane *lane,
		     struct env_work *work)
{
	work->env = env;
	work->lane = lane;
	STAILQ_INSERT_TAIL(&sim_of(env)->works, work, link);
}

/* ---- the disk ---- */

static int sim_dev_open(struct env *env, const char *path, unsigned flags,
			struct env_dev **out, struct env_dev_info *info)
{
	*out = must(calloc(1, sizeof(**out)));
	(*out)->sim = sim_of(env);
	memset(info, 0, sizeof(*info));
	info->bytes = sim_of(env)->bytes;
	info->logical_block = 512;
	return 0;
}

static void sim_dev_close(struct env_dev *dev)
{
	free(dev);
}

enum { SIM_READ, SIM_WRITE, SIM_FLUSH, SIM_DISCARD };

/*
 * A write never meets another request to the same place that is on its way: a
 * disk may do them in any order.
 */
static void overlap_check(const struct sim_env *sim, const struct env_io *io)
{
	const struct env_io *other;

	for (size_t i = 0; i < sim->ios_count; i++) {
		other = sim->ios[i];
		if ((other->op == SIM_WRITE || other->op == SIM_READ) &&
		    other->offset < io->offset + io->len &&
		    io->offset < other->offset + other->len) {
			fprintf(stderr, "write at %llu over a %s in flight\n",
				(unsigned long long)io->offset,
				other->op == SIM_READ ? "read" : "write");
			abort();
		}
	}
}

static void io_add(struct env_dev *dev, struct env_io *io, uint8_t op,
		   const struct iovec *iov, unsigned n, uint64_t offset,
		   unsigned flags)
{
	struct sim_env *sim = dev->sim;

	io->dev = dev;
	io->op = op;
	io->iov = iov;
	io->iov_count = n;
	io->offset = offset;
	io->flags = flags;
	io->len = 0;
	for (unsigned i = 0; i < n; i++)
		io->len += iov[i].iov_len;
	if (offset > sim->bytes || io->len > sim->bytes - offset)
		abort();
	if (op == SIM_WRITE && !sim->cut)
		overlap_check(sim, io);
	if (sim->ios_count == sim->ios_room) {
		sim->ios_room = sim->ios_room ? sim->ios_room * 2 : 64;
		sim->ios = must(
			realloc(sim->ios, sim->ios_room * sizeof(*sim->ios)));
	}
	sim->ios[sim->ios_count++] = io;
}

static struct sim_write *volatile_add(struct sim_env *sim, uint64_t offset,
				      size_t len)
{
	struct sim_write *w = must(calloc(1, sizeof(*w)));

	w->offset = offset;
	w->len = len;
	w->data = must(malloc(len));
	TAILQ_INSERT_TAIL(&sim->volatiles, w, link);
	return w;
}

static void volatile_remove(struct sim_env *sim, struct sim_write *w)
{
	TAILQ_REMOVE(&sim->volatiles, w, link);
	free(w->data);
	free(w);
}

static void sim_dev_readv(struct env_dev *dev, struct env_io *io,
			  const struct iovec *iov, unsigned n, uint64_t offset)
{
	io_add(dev, io, SIM_READ, iov, n, offset, 0);
}

static void sim_dev_writev(struct env_dev *dev, struct env_io *io,
			   const struct iovec *iov, unsigned n, uint64_t offset,
			   unsigned flags)
{
	struct sim_write *w;
	size_t at = 0;

	io_add(dev, io, SIM_WRITE, iov, n, offset, flags);
	dev->sim->writes++;
	io->impl[0] = NULL;
	if (dev->sim->cut)
		return;
	w = volatile_add(dev->sim, offset, io->len);
	for (unsigned i = 0; i < n; i++) {
		memcpy(w->data + at, iov[i].iov_base, iov[i].iov_len);
		at += iov[i].iov_len;
	}
	w->io = io;
	io->impl[0] = w;
}

static void sim_dev_flush(struct env_dev *dev, struct env_io *io)
{
	io_add(dev, io, SIM_FLUSH, NULL, 0, 0, 0);
}

static void sim_dev_discard(struct env_dev *dev, struct env_io *io,
			    uint64_t offset, uint64_t len)
{
	io_add(dev, io, SIM_DISCARD, NULL, 0, offset, 0);
}

static void make_durable(struct sim_env *sim, struct sim_write *w)
{
	struct sim_write *v, *next;

	/* A cache keeps the newest of a block: older ones are out of it. */
	for (v = TAILQ_FIRST(&sim->volatiles); v != w; v = next) {
		next = TAILQ_NEXT(v, link);
		if (!v->done || v->offset >= w->offset + w->len ||
		    w->offset >= v->offset + v->len)
			continue;
		memcpy(sim->durable + v->offset, v->data, v->len);
		volatile_remove(sim, v);
	}
	memcpy(sim->durable + w->offset, w->data, w->len);
	volatile_remove(sim, w);
}

static bool counted_out(uint64_t *counter)
{
	return *counter > 0 && --*counter == 0;
}

static int64_t write_end(struct sim_env *sim, struct env_io *io)
{
	struct sim_write *w = io->impl[0];

	if (w == NULL || sim->cut)
		return -EIO;
	w->io = NULL;
	if (counted_out(&sim->fail_write)) {
		volatile_remove(sim, w);
		return -EIO;
	}
	memcpy(sim->now + w->offset, w->data, w->len);
	w->done = true;
	if (io->flags & ENV_DURABLE && !sim->lie)
		make_durable(sim, w);
	return (int64_t)io->len;
}

static int64_t io_end(struct sim_env *sim, struct env_io *io)
{
	struct sim_write *w, *next;
	uint64_t at = io->offset;

	switch (io->op) {
	case SIM_WRITE:
		return write_end(sim, io);
	case SIM_READ:
		if (counted_out(&sim->fail_read))
			return -EIO;
		for (unsigned i = 0; i < io->iov_count; i++) {
			memcpy(io->iov[i].iov_base, sim->now + at,
			       io->iov[i].iov_len);
			at += io->iov[i].iov_len;
		}
		return (int64_t)io->len;
	case SIM_FLUSH:
		if (sim->cut)
			return -EIO;
		for (w = TAILQ_FIRST(&sim->volatiles); w != NULL; w = next) {
			next = TAILQ_NEXT(w, link);
			if (w->done)
				make_durable(sim, w);
		}
	}
	return 0;
}

static int sim_read_now(struct env_dev *dev, void *buf, size_t len,
			uint64_t offset)
{
	if (offset > dev->sim->bytes || len > dev->sim->bytes - offset)
		return -EIO;
	memcpy(buf, dev->sim->now + offset, len);
	return counted_out(&dev->sim->fail_read) ? -EIO : 0;
}

static int sim_write_now(struct env_dev *dev, const void *buf, size_t len,
			 uint64_t offset, unsigned flags)
{
	struct sim_env *sim = dev->sim;
	struct sim_write *w;

	if (sim->cut || counted_out(&sim->fail_write))
		return -EIO;
	sim->writes++;
	w = volatile_add(sim, offset, len);
	memcpy(w->data, buf, len);
	memcpy(sim->now + offset, buf, len);
	w->done = true;
	if (flags & ENV_DURABLE && !sim->lie)
		make_durable(sim, w);
	return 0;
}

/* ---- the store ---- */

static void sim_kv_close(struct kv *kv)
{
	free(kv);
}

static int sim_kv_get(struct kv *kv, struct kv_slice key, void **out,
		      size_t *out_len)
{
	return kv_get(((struct sim_kv *)kv)->sim->kv_now, key, out, out_len);
}

static void batch_copy(struct kv_batch *to, const struct kv_batch *from)
{
	*to = *from;
	to->changes_room = from->changes_count + 1;
	to->bytes_room = from->bytes_count + 1;
	to->changes = must(malloc(to->changes_room * sizeof(*to->changes)));
	to->bytes = must(malloc(to->bytes_room));
	memcpy(to->changes, from->changes,
	       from->changes_count * sizeof(*to->changes));
	memcpy(to->bytes, from->bytes, from->bytes_count);
}

static int sim_kv_apply(struct kv *kv, struct kv_batch *batch)
{
	struct sim_env *sim = ((struct sim_kv *)kv)->sim;
	struct sim_batch *b;
	int rv;

	if (sim->cut)
		return -EIO;
	b = must(calloc(1, sizeof(*b)));
	batch_copy(&b->batch, batch);
	rv = kv_apply(sim->kv_now, batch);
	if (rv < 0)
		abort();
	TAILQ_INSERT_TAIL(&sim->batches, b, link);
	return 0;
}

/* The oldest unflushed batch is durable now. */
static void batch_flush(struct sim_env *sim)
{
	struct sim_batch *b = TAILQ_FIRST(&sim->batches);

	TAILQ_REMOVE(&sim->batches, b, link);
	if (kv_apply(sim->kv_flushed, &b->batch) < 0)
		abort();
	kv_batch_fini(&b->batch);
	free(b);
}

static int sim_kv_flush(struct kv *kv)
{
	struct sim_env *sim = ((struct sim_kv *)kv)->sim;

	if (sim->cut || counted_out(&sim->fail_flush))
		return -EIO;
	while (!TAILQ_EMPTY(&sim->batches))
		batch_flush(sim);
	return 0;
}

static int sim_kv_scan(struct kv *kv, struct kv_slice from, struct kv_slice to,
		       bool (*cb)(void *arg, struct kv_slice key,
				  struct kv_slice value),
		       void *arg)
{
	return kv_scan(((struct sim_kv *)kv)->sim->kv_now, from, to, cb, arg);
}

static const struct kv_ops sim_kv_ops = {
	.close = sim_kv_close,
	.get = sim_kv_get,
	.apply = sim_kv_apply,
	.flush = sim_kv_flush,
	.scan = sim_kv_scan,
};

static int sim_kv_open(struct env *env, const struct kv_config *config,
		       struct kv **out)
{
	struct sim_env *sim = sim_of(env);
	struct sim_kv *kv = must(calloc(1, sizeof(*kv)));

	sim->merge = config->merge;
	if (sim->kv_now == NULL) {
		sim->kv_now = memkv_clone(NULL, config->merge);
		sim->kv_flushed = memkv_clone(NULL, config->merge);
	}
	kv->kv.ops = &sim_kv_ops;
	kv->sim = sim;
	*out = &kv->kv;
	return 0;
}

static const struct env_ops sim_ops = {
	.rand = sim_rand,
	.secure_random = sim_secure_random,
	.wall_ns = sim_wall_ns,
	.defer = sim_defer,
	.post = sim_defer,
	.timer_start = sim_timer_start,
	.timer_stop = sim_timer_stop,
	.lane_open = sim_lane_open,
	.lane_close = sim_lane_close,
	.work = sim_work,
	.dev_open = sim_dev_open,
	.dev_close = sim_dev_close,
	.dev_readv = sim_dev_readv,
	.dev_writev = sim_dev_writev,
	.dev_flush = sim_dev_flush,
	.dev_discard = sim_dev_discard,
	.dev_read_now = sim_read_now,
	.dev_write_now = sim_write_now,
	.kv_open = sim_kv_open,
};

/* ---- the power ---- */

/* What of one volatile write the cut leaves: all, nothing, or sectors. */
static void write_cut(struct sim_env *sim, const struct sim_write *w)
{
	uint64_t how = sim_env_random(sim, 4);
	size_t at;

	for (at = 0; at < w->len; at += 512)
		if (how == 1 || (how >= 2 && sim_env_random(sim, 4) != 0))
			memcpy(sim->durable + w->offset + at, w->data + at,
			       512);
}

void sim_env_cut(struct sim_env *sim)
{
	struct sim_write *w, *next;

	sim->cut = true;
	for (w = TAILQ_FIRST(&sim->volatiles); w != NULL; w = next) {
		next = TAILQ_NEXT(w, link);
		write_cut(sim, w);
		if (w->io != NULL)
			w->io->impl[0] = NULL;
		volatile_remove(sim, w);
	}
	while (!TAILQ_EMPTY(&sim->batches) && sim_env_random(sim, 3) != 0)
		batch_flush(sim);
}

void sim_env_restore(struct sim_env *sim)
{
	struct sim_batch *b;

	memcpy(sim->now, sim->durable, sim->bytes);
	while ((b = TAILQ_FIRST(&sim->batches)) != NULL) {
		TAILQ_REMOVE(&sim->batches, b, link);
		kv_batch_fini(&b->batch);
		free(b);
	}
	if (sim->kv_now != NULL) {
		kv_close(sim->kv_now);
		sim->kv_now = memkv_clone((struct memkv *)sim->kv_flushed,
					  sim->merge);
	}
	sim->cut = false;
}

/* ---- the loop ---- */

static bool held(const struct sim_env *sim, const struct env_io *io)
{
	return sim->hold_plain && io->op == SIM_WRITE &&
	       !(io->flags & ENV_DURABLE);
}

/* Any request but those that are held; ios_count: none. */
static size_t io_pick(struct sim_env *sim)
{
	size_t i, at;

	if (sim->ios_count == 0)
		return 0;
	at = (size_t)sim_env_random(sim, sim->ios_count);
	for (i = 0; i < sim->ios_count; i++)
		if (!held(sim, sim->ios[(at + i) % sim->ios_count]))
			return (at + i) % sim->ios_count;
	return sim->ios_count;
}

bool sim_env_turn(struct sim_env *sim)
{
	struct env_task *task = STAILQ_FIRST(&sim->tasks);
	struct env_work *work = STAILQ_FIRST(&sim->works);
	struct env_timer *timer = timer_heap_first(&sim->timers);
	struct env_io *io;
	size_t i;

	sim->env.now_ns += 100;
	page_cache_turn(sim->env.pages);
	if (task != NULL) {
		STAILQ_REMOVE_HEAD(&sim->tasks, link);
		task->queued = false;
		task->cb(task);
		return true;
	}
	if (work != NULL &&
	    (sim->ios_count == 0 || sim_env_random(sim, 4) == 0)) {
		STAILQ_REMOVE_HEAD(&sim->works, link);
		work->work(work);
		work->done(work);
		return true;
	}
	i = io_pick(sim);
	if (i < sim->ios_count) {
		io = sim->ios[i];
		sim->ios[i] = sim->ios[--sim->ios_count];
		sim->env.now_ns += 50000;
		io->cb(io, io_end(sim, io));
		return true;
	}
	if (timer == NULL)
		return false;
	if (timer->due_ns > sim->env.now_ns)
		sim->env.now_ns = timer->due_ns;
	timer_heap_stop(&sim->timers, timer);
	timer->cb(timer);
	return true;
}

bool sim_env_run(struct sim_env *sim, const bool *done)
{
	uint64_t end = sim->env.now_ns + 600 * SEC;

	while (!*done)
		if (!sim_env_turn(sim) || sim->env.now_ns > end)
			return *done;
	return true;
}

void sim_env_init(struct sim_env *sim, uint64_t bytes, uint64_t seed)
{
	struct arena_config config = { .bytes = 64u << 20 };

	memset(sim, 0, sizeof(*sim));
	if (arena_open(&config, &sim->arena) < 0 ||
	    page_cache_open(sim->arena, &sim->env.pages) < 0)
		abort();
	sim->env.ops = &sim_ops;
	sim->env.shards_count = 1;
	sim->env.now_ns = SEC;
	sim->random = seed;
	sim->bytes = bytes;
	sim->now = must(calloc(1, bytes));
	sim->durable = must(calloc(1, bytes));
	TAILQ_INIT(&sim->volatiles);
	TAILQ_INIT(&sim->batches);
	STAILQ_INIT(&sim->tasks);
	STAILQ_INIT(&sim->works);
}

void sim_env_fini(struct sim_env *sim)
{
	struct sim_write *w;

	sim_env_restore(sim);
	while ((w = TAILQ_FIRST(&sim->volatiles)) != NULL)
		volatile_remove(sim, w);
	kv_close(sim->kv_now);
	kv_close(sim->kv_flushed);
	timer_heap_fini(&sim->timers);
	free(sim->ios);
	free(sim->now);
	free(sim->durable);
	page_cache_close(sim->env.pages);
	arena_close(sim->arena);
}
