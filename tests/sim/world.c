/*
 * world: the clock, the queue of events and the env of a life.
 *
 * What is submitted gets a moment at which it ends; the earliest is the next
 * event.  Tasks run first, in order, as on a real loop.  Every event goes into
 * the hash, so that two runs of a seed can be compared.
 */
#include "tests/sim/sim.h"

#include "tests/lib/must.h"
#include "tests/lib/pattern.h"

#include <stdarg.h>
#include <stdio.h>

struct sim_pending {
	uint64_t due, order;
	struct env_io *io;
	struct env_work *work;
	bool worked; /* the work is done, its done() is not */
};

struct env_lane {
	uint64_t free_ns; /* when the last of its work ends */
	uint64_t told_ns; /* and when the loop hears of it */
};

uint64_t sim_random(struct sim *sim, uint64_t below)
{
	return random_next(&sim->random) % below;
}

void sim_hash(struct sim *sim, uint64_t value)
{
	uint64_t state = sim->hash ^ value;

	sim->hash = random_next(&state);
}

void sim_hash_bytes(struct sim *sim, const void *data, size_t len)
{
	uint64_t word;
	size_t i;

	for (i = 0; i + 8 <= len; i += 8) {
		memcpy(&word, (const uint8_t *)data + i, 8);
		sim_hash(sim, word);
	}
	for (; i < len; i++)
		sim_hash(sim, ((const uint8_t *)data)[i]);
}

void sim_trace(struct sim *sim, const char *fmt, ...)
{
	va_list ap;

	if (!sim->config.trace)
		return;
	printf("%12.6f #%-6llu ", (double)sim->now_ns / 1e9,
	       (unsigned long long)sim->events);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

void sim_violation(struct sim *sim, const char *fmt, ...)
{
	va_list ap;

	fflush(stdout);
	printf("seed %llu, event %llu, %.6f s, life %u: VIOLATION: ",
	       (unsigned long long)sim->seed, (unsigned long long)sim->events,
	       (double)sim->now_ns / 1e9, sim->cuts + sim->restarts + 1);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
	_Exit(1);
}

/* ---- what is pending ---- */

static bool before(const struct sim_pending *a, const struct sim_pending *b)
{
	return a->due != b->due ? a->due < b->due : a->order < b->order;
}

static void pending_add(struct sim_life *life, struct sim_pending p)
{
	size_t i = life->pending_count++, up;

	if (life->pending_count > life->pending_room) {
		life->pending_room = MAX(64u, life->pending_room * 2);
		life->pending = must(
			realloc(life->pending, life->pending_room * sizeof(p)));
	}
	p.order = life->sim->order++;
	while (i > 0 && before(&p, &life->pending[up = (i - 1) / 2])) {
		life->pending[i] = life->pending[up];
		i = up;
	}
	life->pending[i] = p;
}

static struct sim_pending pending_take(struct sim_life *life)
{
	struct sim_pending first = life->pending[0], last;
	size_t i = 0, down, n = --life->pending_count;

	last = life->pending[n];
	while ((down = 2 * i + 1) < n) {
		if (down + 1 < n &&
		    before(&life->pending[down + 1], &life->pending[down]))
			down++;
		if (!before(&life->pending[down], &last))
			break;
		life->pending[i] = life->pending[down];
		i = down;
	}
	life->pending[i] = last;
	return first;
}

/* ---- the env ---- */

static struct sim_life *life_of(struct env *env)
{
	return (struct sim_life *)env;
}

static int w_lane_open(struct env *env, const char *name, struct env_lane **out)
{
	*out = must(calloc(1, sizeof(**out)));
	return 0;
}

static void w_lane_close(struct env_lane *lane)
{
	free(lane);
}

static void w_work(struct env *env, struct env_lane *lane,
		   struct env_work *work)
{
	struct sim_life *life = life_of(env);
	struct sim *sim = life->sim;
	uint64_t due = env->now_ns + 5000 + sim_random(sim, 200000);

	if (sim_chance(sim, 16))
		due += sim_random(sim, 20 * MSEC);
	if (lane != NULL) {
		due = MAX(due, lane->free_ns + 1);
		lane->free_ns = due;
	}
	work->env = env;
	work->lane = lane;
	pending_add(life, (struct sim_pending){ .due = due, .work = work });
}

static int w_dev_open(struct env *env, const char *path, unsigned flags,
		      struct env_dev **out, struct env_dev_info *info)
{
	struct sim *sim = life_of(env)->sim;
	unsigned i;

	for (i = 0; i < sim->disks_count; i++)
		if (strcmp(sim->disks[i].path, path) == 0)
			break;
	if (i == sim->disks_count)
		return -ENOENT;
	if (sim->disks[i].gone)
		return -ENODEV;
	*out = must(calloc(1, sizeof(**out)));
	(*out)->disk = &sim->disks[i];
	(*out)->life = life_of(env);
	memset(info, 0, sizeof(*info));
	info->bytes = sim->disks[i].wb.bytes;
	info->logical_block = 512;
	info->can_discard = true;
	return 0;
}

static void w_dev_close(struct env_dev *dev)
{
	free(dev);
}

static void io_add(struct env_dev *dev, struct env_io *io, enum wb_op op,
		   const struct iovec *iov, unsigned n, uint64_t offset,
		   unsigned flags)
{
	struct sim_life *life = dev->life;
	struct sim *sim = life->sim;
	uint64_t due = life->loop.env.now_ns;

	wb_io_init(io, dev, op, iov, n, offset, flags);
	if (op != WB_FLUSH && !wb_disk_holds(&dev->disk->wb, offset, io->len))
		sim_violation(sim, "an I/O beyond the end of %s",
			      dev->disk->path);
	sim_disk_submit(io);
	due = MAX(due, dev->disk->stalled_until);
	due += 20000 + sim_random(sim, 180000);
	if (sim_chance(sim, 32))
		due += sim_random(sim, 8 * MSEC);
	pending_add(life, (struct sim_pending){ .due = due, .io = io });
}

static void w_dev_readv(struct env_dev *dev, struct env_io *io,
			const struct iovec *iov, unsigned n, uint64_t offset)
{
	io_add(dev, io, WB_READ, iov, n, offset, 0);
}

static void w_dev_writev(struct env_dev *dev, struct env_io *io,
			 const struct iovec *iov, unsigned n, uint64_t offset,
			 unsigned flags)
{
	io_add(dev, io, WB_WRITE, iov, n, offset, flags);
}

static void w_dev_flush(struct env_dev *dev, struct env_io *io)
{
	io_add(dev, io, WB_FLUSH, NULL, 0, 0, 0);
}

static int w_kv_open(struct env *env, const struct kv_config *config,
		     struct kv **out)
{
	return sim_store_open(life_of(env)->sim, config, out);
}

static const struct env_ops world_ops = {
	VLOOP_OPS,
	.lane_open = w_lane_open,
	.lane_close = w_lane_close,
	.work = w_work,
	.dev_open = w_dev_open,
	.dev_close = w_dev_close,
	.dev_readv = w_dev_readv,
	.dev_writev = w_dev_writev,
	.dev_flush = w_dev_flush,
	.dev_read_now = sim_disk_read_now,
	.dev_write_now = sim_disk_write_now,
	.dev_discard_now = sim_disk_discard_now,
	.kv_open = w_kv_open,
};

/* ---- the loop ---- */

static void advance(struct sim *sim, uint64_t to)
{
	if (to > sim->now_ns)
		sim->now_ns = to;
	sim->life->loop.env.now_ns = sim->now_ns;
}

static void pending_run(struct sim_life *life)
{
	struct sim_pending p = pending_take(life);
	struct sim *sim = life->sim;
	int64_t res;

	advance(sim, p.due);
	if (p.io != NULL) {
		static const char *const ops[] = { "read", "write", "flush" };

		res = sim_disk_end(p.io);
		sim_hash(sim, p.io->offset ^ (uint64_t)p.io->op << 60);
		sim_hash(sim, (uint64_t)res ^ sim->now_ns << 8);
		sim_trace(sim, "%s: %s %llu+%llu%s: %lld",
			  p.io->dev->disk->path, ops[p.io->op],
			  (unsigned long long)p.io->offset / 4096,
			  (unsigned long long)p.io->len / 4096,
			  p.io->flags & ENV_DURABLE ? " durable" : "",
			  (long long)res);
		p.io->cb(p.io, res);
	} else if (!p.worked) {
		sim_hash(sim, sim->now_ns << 1);
		p.work->work(p.work);
		p.worked = true;
		p.due = sim->now_ns + 1000 + sim_random(sim, 50000);
		if (p.work->lane != NULL) {
			p.due = MAX(p.due, p.work->lane->told_ns + 1);
			p.work->lane->told_ns = p.due;
		}
		pending_add(life, p);
	} else {
		sim_hash(sim, sim->now_ns << 1 | 1);
		p.work->done(p.work);
	}
}

bool sim_step(struct sim *sim)
{
	struct sim_life *life = sim->life;
	struct env_timer *timer = timer_heap_first(&life->loop.timers);

	sim->events++;
	advance(sim, sim->now_ns + 100);
	page_cache_turn(life->loop.env.pages);
	if (vloop_task_turn(&life->loop))
		return true;
	if (life->pending_count > 0 &&
	    (timer == NULL || life->pending[0].due <= timer->due_ns)) {
		pending_run(life);
		return true;
	}
	if (timer == NULL)
		return false;
	advance(sim, timer->due_ns);
	sim_hash(sim, timer->due_ns << 2);
	return vloop_timer_turn(&life->loop);
}

bool sim_run(struct sim *sim, const bool *done)
{
	uint64_t end = sim->now_ns + 600 * SEC;

	while (!*done)
		if (!sim_step(sim) || sim->now_ns > end)
			return *done;
	return true;
}

/* ---- power ---- */

void sim_power_on(struct sim *sim)
{
	struct sim_life *life = must(calloc(1, sizeof(*life)));

	vloop_init(&life->loop, &world_ops, 32u << 20, sim->now_ns,
		   &sim->random);
	life->sim = sim;
	sim->life = life;
	sim_trace(sim, "power on");
}

void sim_power_cut(struct sim *sim)
{
	unsigned i;

	sim_trace(sim, "POWER CUT");
	sim->cuts++;
	sim->life->dead = true;
	sim->life = NULL;
	for (i = 0; i < sim->disks_count; i++)
		sim_disk_cut(&sim->disks[i]);
	for (i = 0; i < sim->stores_count; i++)
		sim_store_cut(&sim->stores[i]);
	sim->now_ns += SEC;
}

void sim_power_off(struct sim *sim)
{
	struct sim_life *life = sim->life;
	unsigned i;

	/* What nobody waits for any more, timers left out. */
	while (!STAILQ_EMPTY(&life->loop.tasks) || life->pending_count > 0)
		if (!sim_step(sim))
			break;
	sim_trace(sim, "power off");
	sim->restarts++;
	vloop_fini(&life->loop);
	free(life->pending);
	free(life);
	sim->life = NULL;
	for (i = 0; i < sim->disks_count; i++)
		sim_disk_mend(&sim->disks[i]);
	for (i = 0; i < sim->stores_count; i++)
		sim->stores[i].apply_eio = sim->stores[i].full_until = 0;
	sim->now_ns += SEC;
}

void sim_init(struct sim *sim, const struct sim_config *config, uint64_t seed)
{
	memset(sim, 0, sizeof(*sim));
	sim->config = *config;
	sim->seed = seed;
	sim->random = seed * 0x9e3779b97f4a7c15ull + 12345;
	sim->now_ns = SEC;
	sim->tick = 1;
}
