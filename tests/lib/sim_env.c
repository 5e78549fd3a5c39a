/* sim_env: the loop, the disk that loses what is not durable, the store. */
#include "tests/lib/sim_env.h"

#include "base/util.h"
#include "tests/lib/must.h"
#include "tests/lib/pattern.h"

#include <errno.h>

struct env_dev {
	struct sim_env *sim;
};

static struct sim_env *sim_of(struct env *env)
{
	return (struct sim_env *)env;
}

uint64_t sim_env_random(struct sim_env *sim, uint64_t below)
{
	return random_next(&sim->random) % below;
}

/* ---- the disk ---- */

static int sim_dev_open(struct env *env, const char *path, unsigned flags,
			struct env_dev **out, struct env_dev_info *info)
{
	*out = must(calloc(1, sizeof(**out)));
	(*out)->sim = sim_of(env);
	memset(info, 0, sizeof(*info));
	info->bytes = sim_of(env)->disk.bytes;
	info->block_device = sim_of(env)->block_device;
	info->can_discard = sim_of(env)->can_discard;
	info->logical_block = sim_of(env)->logical_block;
	return 0;
}

static void sim_dev_close(struct env_dev *dev)
{
	free(dev);
}

/*
 * A write never meets another request to the same place that is on its way: a
 * disk may do them in any order.
 */
static void overlap_check(const struct sim_env *sim, const char *what,
			  uint64_t offset, uint64_t len)
{
	const struct env_io *other;

	for (size_t i = 0; i < sim->ios_count; i++) {
		other = sim->ios[i];
		if ((other->op == WB_WRITE || other->op == WB_READ) &&
		    other->offset < offset + len &&
		    offset < other->offset + other->len) {
			fprintf(stderr, "%s at %llu over a %s in flight\n",
				what, (unsigned long long)offset,
				other->op == WB_READ ? "read" : "write");
			abort();
		}
	}
}

static void io_add(struct env_dev *dev, struct env_io *io, enum wb_op op,
		   const struct iovec *iov, unsigned n, uint64_t offset,
		   unsigned flags)
{
	struct sim_env *sim = dev->sim;

	wb_io_init(io, dev, op, iov, n, offset, flags);
	if (!wb_disk_holds(&sim->disk, offset, io->len))
		abort();
	if (op == WB_WRITE && !sim->cut)
		overlap_check(sim, "write", offset, io->len);
	if (sim->ios_count == sim->ios_room) {
		sim->ios_room = sim->ios_room ? sim->ios_room * 2 : 64;
		sim->ios = must(
			realloc(sim->ios, sim->ios_room * sizeof(*sim->ios)));
	}
	sim->ios[sim->ios_count++] = io;
}

static void sim_dev_readv(struct env_dev *dev, struct env_io *io,
			  const struct iovec *iov, unsigned n, uint64_t offset)
{
	io_add(dev, io, WB_READ, iov, n, offset, 0);
}

static void sim_dev_writev(struct env_dev *dev, struct env_io *io,
			   const struct iovec *iov, unsigned n, uint64_t offset,
			   unsigned flags)
{
	io_add(dev, io, WB_WRITE, iov, n, offset, flags);
	dev->sim->writes++;
	io->impl[0] = NULL;
	if (!dev->sim->cut)
		wb_disk_submit(&dev->sim->disk, io);
}

static void sim_dev_flush(struct env_dev *dev, struct env_io *io)
{
	io_add(dev, io, WB_FLUSH, NULL, 0, 0, 0);
}

static bool counted_out(uint64_t *counter)
{
	return *counter > 0 && --*counter == 0;
}

/* What was lost is there again when it is written; all of it or nothing. */
static void lost_written(struct sim_env *sim, uint64_t offset, size_t len)
{
	if (offset <= sim->lost_at &&
	    sim->lost_at + sim->lost_bytes <= offset + len)
		sim->lost_bytes = 0;
}

static int read_status(struct sim_env *sim, uint64_t offset, size_t len)
{
	if (counted_out(&sim->fail_read)) {
		sim->gone = sim->goes;
		return -EIO;
	}
	if (sim->gone && counted_out(&sim->back_read))
		sim->gone = false;
	if (sim->gone)
		return -EIO;
	if (offset >= sim->lost_at + sim->lost_bytes ||
	    sim->lost_at >= offset + len)
		return 0;
	return sim->lost_status != 0 ? sim->lost_status : -ENODATA;
}

static int64_t write_end(struct sim_env *sim, struct env_io *io)
{
	struct wb_write *w = io->impl[0];

	if (w == NULL || sim->cut)
		return -EIO;
	if (counted_out(&sim->fail_write)) {
		wb_disk_drop(&sim->disk, w);
		return -EIO;
	}
	wb_disk_land(&sim->disk, w, io->flags & ENV_DURABLE && !sim->lie);
	lost_written(sim, io->offset, io->len);
	return (int64_t)io->len;
}

static int64_t io_end(struct sim_env *sim, struct env_io *io)
{
	int rv;

	switch (io->op) {
	case WB_WRITE:
		return write_end(sim, io);
	case WB_READ:
		rv = read_status(sim, io->offset, io->len);
		if (rv < 0)
			return rv;
		wb_disk_read(&sim->disk, io);
		return (int64_t)io->len;
	case WB_FLUSH:
		if (sim->cut)
			return -EIO;
		wb_disk_flush(&sim->disk);
	}
	return 0;
}

static int read_now(struct sim_env *sim, void *buf, size_t len, uint64_t offset)
{
	if ((offset | len) % sim->logical_block)
		return -EINVAL;
	if (!wb_disk_holds(&sim->disk, offset, len))
		return -EIO;
	sim->read_bytes += len;
	memcpy(buf, sim->disk.now + offset, len);
	return read_status(sim, offset, len);
}

static int sim_read_now(struct env_dev *dev, void *buf, size_t len,
			uint64_t offset)
{
	dev->sim->reads_alone++;
	return read_now(dev->sim, buf, len, offset);
}

static void sim_read_many_now(struct env_dev *dev, struct env_read *reads,
			      unsigned n)
{
	unsigned i;

	dev->sim->reads_together += n;
	for (i = 0; i < n; i++)
		reads[i].result = read_now(dev->sim, reads[i].buf, reads[i].len,
					   reads[i].offset);
}

static int sim_write_now(struct env_dev *dev, const void *buf, size_t len,
			 uint64_t offset, unsigned flags)
{
	struct sim_env *sim = dev->sim;

	if ((offset | len) % sim->logical_block)
		return -EINVAL;
	if (!wb_disk_holds(&sim->disk, offset, len) || sim->cut ||
	    counted_out(&sim->fail_write))
		return -EIO;
	sim->writes++;
	wb_disk_write_now(&sim->disk, buf, len, offset,
			  flags & ENV_DURABLE && !sim->lie);
	lost_written(sim, offset, len);
	return 0;
}

static int sim_discard_now(struct env_dev *dev, uint64_t offset, uint64_t len)
{
	struct sim_env *sim = dev->sim;

	if (!wb_disk_holds(&sim->disk, offset, len))
		abort();
	if (sim->cut || sim->discard_status != 0)
		return sim->cut ? -EIO : sim->discard_status;
	overlap_check(sim, "discard", offset, len);
	wb_disk_discard(&sim->disk, offset, len, &sim->random);
	sim->discards++;
	sim->discard_at = offset;
	return 0;
}

/* ---- the store ---- */

static struct sim_env *sim_of_kv(struct kv *kv)
{
	return container_of(wb_kv_store(kv), struct sim_env, store);
}

static void stuck_with(struct sim_env *sim, int status)
{
	if (sim->stuck == 0 && status != -ENOSPC && kv_wants(status))
		sim->stuck = status;
}

static int sim_kv_apply(struct kv *kv, struct kv_batch *batch)
{
	struct sim_env *sim = sim_of_kv(kv);

	if (sim->cut)
		return -EIO;
	stuck_with(sim, sim->apply_status);
	if (sim->stuck < 0 || sim->apply_status < 0)
		return sim->stuck < 0 ? sim->stuck : sim->apply_status;
	wb_store_apply(&sim->store, batch);
	return 0;
}

static int sim_kv_flush(struct kv *kv)
{
	struct sim_env *sim = sim_of_kv(kv);

	if (sim->cut || counted_out(&sim->fail_flush))
		return -EIO;
	stuck_with(sim, sim->flush_status);
	if (sim->stuck < 0 || sim->flush_status < 0)
		return sim->stuck < 0 ? sim->stuck : sim->flush_status;
	wb_store_flush(&sim->store);
	return 0;
}

/* What was applied and not flushed is gone with it. */
static int sim_kv_reopen(struct kv *kv, struct kv_batch *batch)
{
	struct sim_env *sim = sim_of_kv(kv);

	if (sim->cut)
		return -EIO;
	if (sim->apply_status < 0 || sim->flush_status < 0)
		return sim->stuck == -EDQUOT ? -ENOSPC : sim->stuck;
	wb_store_restore(&sim->store);
	wb_store_apply(&sim->store, batch);
	sim->stuck = 0;
	sim->reopened++;
	return 0;
}

static const struct kv_ops sim_kv_ops = {
	WB_KV_OPS,
	.reopen = sim_kv_reopen,
	.apply = sim_kv_apply,
	.flush = sim_kv_flush,
};

static int sim_kv_open(struct env *env, const struct kv_config *config,
		       struct kv **out)
{
	sim_of(env)->stuck = 0;
	*out = wb_store_open(&sim_of(env)->store, &sim_kv_ops, config->merge);
	return 0;
}

static const struct env_ops sim_ops = {
	VLOOP_OPS,
	VLOOP_WORK_OPS,
	.dev_open = sim_dev_open,
	.dev_close = sim_dev_close,
	.dev_readv = sim_dev_readv,
	.dev_writev = sim_dev_writev,
	.dev_flush = sim_dev_flush,
	.dev_read_now = sim_read_now,
	.dev_write_now = sim_write_now,
	.dev_discard_now = sim_discard_now,
	.dev_read_many_now = sim_read_many_now,
	.kv_open = sim_kv_open,
};

/* ---- the power ---- */

void sim_env_cut(struct sim_env *sim)
{
	struct wb_write *w;

	sim->cut = true;
	while ((w = TAILQ_FIRST(&sim->disk.volatiles)) != NULL) {
		wb_disk_tear(&sim->disk, w, &sim->random);
		if (w->io != NULL)
			w->io->impl[0] = NULL;
		wb_disk_drop(&sim->disk, w);
	}
	wb_store_tear(&sim->store, &sim->random);
}

void sim_env_restore(struct sim_env *sim)
{
	memcpy(sim->disk.now, sim->disk.durable, sim->disk.bytes);
	wb_store_restore(&sim->store);
	sim->cut = false;
}

/* ---- the loop ---- */

static bool held(const struct sim_env *sim, const struct env_io *io)
{
	if (io->op == WB_READ)
		return sim->hold_reads;
	return sim->hold_plain && io->op == WB_WRITE &&
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
	struct vloop *loop = &sim->loop;
	struct env_io *io;
	size_t i;

	loop->env.now_ns += 100;
	page_cache_turn(loop->env.pages);
	if (vloop_task_turn(loop))
		return true;
	if (!STAILQ_EMPTY(&loop->works) &&
	    (sim->ios_count == 0 || sim_env_random(sim, 4) == 0))
		return vloop_work_turn(loop);
	i = io_pick(sim);
	if (i < sim->ios_count) {
		io = sim->ios[i];
		sim->ios[i] = sim->ios[--sim->ios_count];
		loop->env.now_ns += 50000;
		io->cb(io, io_end(sim, io));
		return true;
	}
	if (!STAILQ_EMPTY(&loop->works)) /* all requests are held */
		return vloop_work_turn(loop);
	return vloop_timer_turn(loop);
}

bool sim_env_run(struct sim_env *sim, const bool *done)
{
	uint64_t end = sim->loop.env.now_ns + 600 * SEC;

	while (!*done)
		if (!sim_env_turn(sim) || sim->loop.env.now_ns > end)
			return *done;
	return true;
}

void sim_env_init(struct sim_env *sim, uint64_t bytes, uint64_t seed)
{
	memset(sim, 0, sizeof(*sim));
	vloop_init(&sim->loop, &sim_ops, 64u << 20, SEC, &sim->random);
	sim->random = seed;
	sim->logical_block = 512;
	wb_disk_init(&sim->disk, bytes);
	wb_store_init(&sim->store);
}

void sim_env_fini(struct sim_env *sim)
{
	wb_store_fini(&sim->store);
	wb_disk_fini(&sim->disk);
	free(sim->ios);
	vloop_fini(&sim->loop);
}
