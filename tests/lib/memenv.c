/* memenv: the loop, the device and the clock; memkv.c has the store. */
#include "tests/lib/memenv.h"
#include "tests/lib/memkv.h"
#include "tests/lib/must.h"
#include "tests/lib/pattern.h"

#include <errno.h>

#define TIME_MAX (600 * SEC)

struct env_dev {
	struct memenv *me;
};

static struct memenv *me_of(struct env *env)
{
	return (struct memenv *)env;
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
	dev->me->loop.env.now_ns += io_cost(dev->me, len);
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

static int me_dev_read_now(struct env_dev *dev, void *buf, size_t len,
			   uint64_t offset)
{
	if (offset > dev->me->image_bytes ||
	    len > dev->me->image_bytes - offset)
		return -EIO;
	dev->me->loop.env.now_ns += io_cost(dev->me, len);
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
	dev->me->loop.env.now_ns += io_cost(dev->me, len);
	memenv_poke(dev->me, offset, buf, len);
	return 0;
}

static int me_dev_discard_now(struct env_dev *dev, uint64_t offset,
			      uint64_t len)
{
	(void)dev, (void)offset, (void)len;
	return -EOPNOTSUPP;
}

static int me_kv_open(struct env *env, const struct kv_config *config,
		      struct kv **out)
{
	*out = memkv_clone((struct memkv *)me_of(env)->kv_base, config->merge);
	return 0;
}

static const struct env_ops memenv_ops = {
	VLOOP_OPS,
	VLOOP_WORK_OPS,
	.dev_open = me_dev_open,
	.dev_close = me_dev_close,
	.dev_readv = me_dev_readv,
	.dev_writev = me_dev_writev,
	.dev_flush = me_dev_flush,
	.dev_read_now = me_dev_read_now,
	.dev_write_now = me_dev_write_now,
	.dev_discard_now = me_dev_discard_now,
	.kv_open = me_kv_open,
};

/* ---- the loop ---- */

static bool turn(struct memenv *me)
{
	struct env_io *io = TAILQ_FIRST(&me->ios);

	me->loop.env.now_ns += 100;
	page_cache_turn(me->loop.env.pages);
	if (vloop_task_turn(&me->loop))
		return true;
	if (io != NULL) {
		TAILQ_REMOVE(&me->ios, io, link);
		io->cb(io, (int64_t)io->len);
		return true;
	}
	return vloop_work_turn(&me->loop) || vloop_timer_turn(&me->loop);
}

bool memenv_run(struct memenv *me, const bool *done)
{
	uint64_t end = me->loop.env.now_ns + TIME_MAX;

	while (!*done)
		if (!turn(me) || me->loop.env.now_ns > end)
			return *done;
	return true;
}

void memenv_init(struct memenv *me, const uint8_t *image, uint64_t bytes)
{
	memset(me, 0, sizeof(*me));
	vloop_init(&me->loop, &memenv_ops, 128u << 20, SEC, &me->random);
	me->random = 1;
	me->image = image;
	me->image_bytes = bytes;
	me->overlay = must(calloc(bytes / BLOCK, sizeof(*me->overlay)));
	me->touched = must(calloc(bytes / BLOCK, sizeof(*me->touched)));
	TAILQ_INIT(&me->ios);
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
	vloop_fini(&me->loop);
	free(me->overlay);
	free(me->touched);
}
