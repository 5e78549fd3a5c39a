/* memenv: the loop, the device and the clock; memkv.c has the store. */
#include "tests/lib/memenv.h"
#include "tests/lib/memkv.h"
#include "tests/lib/pattern.h"

#include <errno.h>
#include <stdlib.h>

#define TIME_MAX (600 * SEC)

struct env_lane {
	struct memenv *me;
};

struct env_dev {
	struct memenv *me;
};

static struct memenv *me_of(struct env *env)
{
	return (struct memenv *)env;
}

static void *must(void *p)
{
	if (p == NULL)
		abort();
	return p;
}

static uint64_t me_rand(struct env *env)
{
	return random_next(&me_of(env)->random);
}

static void me_secure_random(struct env *env, void *buf, size_t len)
{
	uint8_t *b = buf;

	while (len-- > 0)
		*b++ = (uint8_t)me_rand(env);
}

static uint64_t me_wall_ns(struct env *env)
{
	return env->now_ns;
}

static void me_defer(struct env *env, struct env_task *task)
{
	if (task->queued)
		return;
	task->queued = true;
	STAILQ_INSERT_TAIL(&me_of(env)->tasks, task, link);
}

static void me_timer_stop(struct env *env, struct env_timer *timer)
{
	timer_heap_stop(&me_of(env)->timers, timer);
}

static void me_timer_start(struct env *env, struct env_timer *timer,
			   uint64_t delay_ns)
{
	timer_heap_start(&me_of(env)->timers, timer, env->now_ns + delay_ns);
}

static int me_lane_open(struct env *env, const char *name,
			struct env_lane **out)
{
	*out = must(calloc(1, sizeof(**out)));
	(*out)->me = me_of(env);
	return 0;
}

static void me_lane_close(struct env_lane *lane)
{
	free(lane);
}

static void me_work(struct env *env, struct env_lane *lane,
		    struct env_work *work)
{
	work->env = env;
	work->lane = lane;
	STAILQ_INSERT_TAIL(&me_of(env)->works, work, link);
}

/* ---- the device ---- */

static int me_dev_open(struct env *env, const char *path, unsigned flags,
		       struct env_dev **out, struct env_dev_info *info)
{
	*out = must(calloc(1, sizeof(**out)));
	(*out)->me = me_of(env);
	memset(info, 0, sizeof(*info));
	info->bytes = me_of(env)->image_bytes;
	info->logical_block = BLOCK;
	return 0;
}

static void me_dev_close(struct env_dev *dev)
{
	free(dev);
}

static struct memenv_block *block_touch(struct memenv *me, uint64_t index)
{
	if (me->overlay[index].data == NULL)
		me->touched[me->touched_count++] = (uint32_t)index;
	return &me->overlay[index];
}

static uint8_t *block_for_write(struct memenv *me, uint64_t index)
{
	struct memenv_block *b = block_touch(me, index);
	const uint8_t *from = b->data ? b->data : me->image + index * BLOCK;

	if (b->data == NULL || b->lent) {
		b->data = memcpy(must(malloc(BLOCK)), from, BLOCK);
		b->lent = false;
	}
	return b->data;
}

void memenv_lay(struct memenv *me, uint64_t offset, const void *data)
{
	struct memenv_block *b = block_touch(me, offset / BLOCK);

	if (b->data != NULL && !b->lent)
		free(b->data);
	b->data = (uint8_t *)(uintptr_t)data;
	b->lent = true;
}

void memenv_poke(struct memenv *me, uint64_t offset, const void *data,
		 size_t len)
{
	const uint8_t *from = data;

	while (len > 0) {
		size_t at = offset % BLOCK, part = BLOCK - at;

		if (part > len)
			part = len;
		memcpy(block_for_write(me, offset / BLOCK) + at, from, part);
		from += part;
		offset += part;
		len -= part;
	}
}

static void peek(struct memenv *me, uint64_t offset, uint8_t *to, size_t len)
{
	while (len > 0) {
		size_t at = offset % BLOCK, part = BLOCK - at;
		const uint8_t *b = me->overlay[offset / BLOCK].data;

		if (part > len)
			part = len;
		if (b == NULL)
			b = me->image + offset / BLOCK * BLOCK;
		memcpy(to, b + at, part);
		to += part;
		offset += part;
		len -= part;
	}
}

/* One access more, of @len bytes; returns what it takes. */
static uint64_t io_cost(struct memenv *me, size_t len)
{
	me->accesses++;
	me->bytes += len;
	return me->access_ns + me->mib_ns * (len >> 10) / 1024;
}

static void io_queue(struct env_dev *dev, struct env_io *io, uint64_t len,
		     uint64_t offset)
{
	dev->me->env.now_ns += io_cost(dev->me, len);
	io->dev = dev;
	io->len = len;
	io->offset = offset;
	TAILQ_INSERT_TAIL(&dev->me->ios, io, link);
}

static void me_dev_rw(struct env_dev *dev, struct env_io *io,
		      const struct iovec *iov, unsigned n, uint64_t offset,
		      bool write)
{
	uint64_t at = offset, len = 0;

	for (unsigned i = 0; i < n; i++)
		len += iov[i].iov_len;
	if (offset > dev->me->image_bytes ||
	    len > dev->me->image_bytes - offset)
		abort();
	for (unsigned i = 0; i < n; i++) {
		if (write)
			memenv_poke(dev->me, at, iov[i].iov_base,
				    iov[i].iov_len);
		else
			peek(dev->me, at, iov[i].iov_base, iov[i].iov_len);
		at += iov[i].iov_len;
	}
	io_queue(dev, io, len, offset);
}

static void me_dev_readv(struct env_dev *dev, struct env_io *io,
			 const struct iovec *iov, unsigned n, uint64_t offset)
{
	me_dev_rw(dev, io, iov, n, offset, false);
}

static void me_dev_writev(struct env_dev *dev, struct env_io *io,
			  const struct iovec *iov, unsigned n, uint64_t offset,
			  unsigned flags)
{
	dev->me->writes++;
	me_dev_rw(dev, io, iov, n, offset, true);
}

static void me_dev_flush(struct env_dev *dev, struct env_io *io)
{
	dev->me->flushes++;
	io_queue(dev, io, 0, 0);
}

static void me_dev_discard(struct env_dev *dev, struct env_io *io,
			   uint64_t offset, uint64_t len)
{
	io_queue(dev, io, len, offset);
}

static int me_dev_read_now(struct env_dev *dev, void *buf, size_t len,
			   uint64_t offset)
{
	if (offset > dev->me->image_bytes ||
	    len > dev->me->image_bytes - offset)
		return -EIO;
	dev->me->env.now_ns += io_cost(dev->me, len);
	peek(dev->me, offset, buf, len);
	return 0;
}

static int me_dev_write_now(struct env_dev *dev, const void *buf, size_t len,
			    uint64_t offset, unsigned flags)
{
	if (offset > dev->me->image_bytes ||
	    len > dev->me->image_bytes - offset)
		return -EIO;
	dev->me->writes++;
	dev->me->env.now_ns += io_cost(dev->me, len);
	memenv_poke(dev->me, offset, buf, len);
	return 0;
}

static int me_kv_open(struct env *env, const struct kv_config *config,
		      struct kv **out)
{
	*out = memkv_clone((struct memkv *)me_of(env)->kv_base, config->merge);
	return 0;
}

static const struct env_ops memenv_ops = {
	.rand = me_rand,
	.secure_random = me_secure_random,
	.wall_ns = me_wall_ns,
	.defer = me_defer,
	.post = me_defer,
	.timer_start = me_timer_start,
	.timer_stop = me_timer_stop,
	.lane_open = me_lane_open,
	.lane_close = me_lane_close,
	.work = me_work,
	.dev_open = me_dev_open,
	.dev_close = me_dev_close,
	.dev_readv = me_dev_readv,
	.dev_writev = me_dev_writev,
	.dev_flush = me_dev_flush,
	.dev_discard = me_dev_discard,
	.dev_read_now = me_dev_read_now,
	.dev_write_now = me_dev_write_now,
	.kv_open = me_kv_open,
};

/* ---- the loop ---- */

static bool turn(struct memenv *me)
{
	struct env_task *task = STAILQ_FIRST(&me->tasks);
	struct env_io *io = TAILQ_FIRST(&me->ios);
	struct env_work *work = STAILQ_FIRST(&me->works);
	struct env_timer *timer = timer_heap_first(&me->timers);

	me->env.now_ns += 100;
	page_cache_turn(me->env.pages);
	if (task != NULL) {
		STAILQ_REMOVE_HEAD(&me->tasks, link);
		task->queued = false;
		task->cb(task);
	} else if (io != NULL) {
		TAILQ_REMOVE(&me->ios, io, link);
		io->cb(io, (int64_t)io->len);
	} else if (work != NULL) {
		STAILQ_REMOVE_HEAD(&me->works, link);
		work->work(work);
		work->done(work);
	} else if (timer != NULL) {
		if (timer->due_ns > me->env.now_ns)
			me->env.now_ns = timer->due_ns;
		me_timer_stop(&me->env, timer);
		timer->cb(timer);
	} else {
		return false;
	}
	return true;
}

bool memenv_run(struct memenv *me, const bool *done)
{
	uint64_t end = me->env.now_ns + TIME_MAX;

	while (!*done)
		if (!turn(me) || me->env.now_ns > end)
			return *done;
	return true;
}

void memenv_init(struct memenv *me, const uint8_t *image, uint64_t bytes)
{
	struct arena_config config = { .bytes = 128u << 20 };

	memset(me, 0, sizeof(*me));
	me->env.ops = &memenv_ops;
	me->env.now_ns = SEC;
	me->env.shards_count = 1;
	me->random = 1;
	me->image = image;
	me->image_bytes = bytes;
	me->overlay = must(calloc(bytes / BLOCK, sizeof(*me->overlay)));
	me->touched = must(calloc(bytes / BLOCK, sizeof(*me->touched)));
	STAILQ_INIT(&me->tasks);
	STAILQ_INIT(&me->works);
	TAILQ_INIT(&me->ios);
	if (arena_open(&config, &me->arena) != 0 ||
	    page_cache_open(me->arena, &me->env.pages) != 0)
		abort();
}

void memenv_reset(struct memenv *me)
{
	while (me->touched_count > 0) {
		uint32_t index = me->touched[--me->touched_count];

		if (!me->overlay[index].lent)
			free(me->overlay[index].data);
		me->overlay[index] = (struct memenv_block){ NULL, false };
	}
}

void memenv_fini(struct memenv *me)
{
	memenv_reset(me);
	timer_heap_fini(&me->timers);
	page_cache_close(me->env.pages);
	arena_close(me->arena);
	free(me->overlay);
	free(me->touched);
}
