/*
 * checkpoint: the index and all that goes with it, made durable in the store.
 *
 * One batch of the store holds everything that changed since the last one: page
 * slots, component states, undecided versions, segments, tombs, and the
 * position of each head up to which all records are in it.  It is put together
 * on the loop: over several turns where it is much, for guests wait meanwhile, and
 * what changes again once more; all that is left, with the rest, in the last one,
 * which is when it begins as far as others are concerned.  It is applied on the
 * index lane (a page that is evicted after that comes back with it), flushed on
 * another.  Then a superblock says that it was.
 * Only then do segments that were emptied before it began become free.
 *
 * One that finds no memory while it is put together stays as it is, and goes on
 * with the next tick: what is in its batch is in no other place any more.  The disk
 * serves meanwhile, and the log takes what there is room for.  Cleaned segments
 * do not become free, so if that lasts guests are slowed, then they wait, and
 * in the end get -ENOSPC (log.c), until there is memory again.
 *
 * So it is where the store finds no room, which people make again: RocksDB keeps
 * what it was given, goes on by itself once there is some, and what it refused is
 * in the batch.  After an error of a quota it has to be opened again for that, and
 * the batch applied once more, as where it finds no descriptor or no memory.  That
 * is asked again, for ten minutes: then the disk fails, for it may be one that stays
 * so, and there may be other copies to go on with.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/index_store.h"
#include "lsom/view_int.h"

#include "base/err.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

#define TURN_PAGES 256u /* or records of components: under 1 ms */
#define TURN_SEGMENTS 4096u /* as well */
#define TICK_NS (5 * SEC)
#define BUSY_TICKS 6u /* it waits for the log to rest */
#define WANTS_NS_MAX (600 * SEC)

static struct histogram times = {
	.name = "basalt_lsom_checkpoint_seconds",
	.stage = "checkpoint",
	.rank = 51,
	.help = "checkpoints: the index made durable, and the log let go",
};

void lsom__checkpoint_init(void)
{
	histogram_register(&times);
}

struct checkpoint {
	struct lsom_disk *disk;
	struct lsom__puts puts;
	struct env_work work;
	struct env_io io;
	struct iovec super;
	bool filling; /* it has not begun, but pages are in the batch */
	uint64_t since_ns; /* that is: since then */
	size_t turns; /* more that it may take for that */
	uint64_t covered[LSOM__HEADS]; /* batches */
	int status;
	uint64_t wants_ns; /* the store lacks something since; 0: it does not */
	struct env_timer again;
	TAILQ_HEAD(, lsom_checkpoint) reqs;
};

static void checkpoint_done(struct checkpoint *c, int status)
{
	struct lsom_disk *disk = c->disk;
	struct lsom_checkpoint *req;

	assert(disk->checkpoint == c);
	histogram_add(&times, env_now(disk->env) - c->since_ns);
	if (status < 0) {
		lsom__index_fail(disk, "writing the index", status);
	} else {
		if (disk->state != LSOM_DISK_FAILED)
			disk->index_wants = 0;
		disk->flushed_number = c->puts.number;
		memcpy(disk->flushed_covered, c->covered, sizeof(c->covered));
	}
	/* The next one sees @disk without this one. */
	disk->checkpoint = NULL;
	disk->works++;
	while ((req = TAILQ_FIRST(&c->reqs)) != NULL) {
		TAILQ_REMOVE(&c->reqs, req, link);
		req->cb(req, status);
	}
	disk->works--;
	kv_batch_fini(&c->puts.batch);
	free(c->super.iov_base);
	free(c);
	if (status == 0) {
		lsom__segments_release(disk);
		lsom__pages_evict(disk);
		lsom__reap(disk);
		lsom__cleaner_kick(disk);
		lsom__count_kick(disk);
	}
	if (disk->checkpoint_again || !TAILQ_EMPTY(&disk->checkpoint_reqs))
		lsom__checkpoint_start(disk);
	lsom__disk_changed(disk);
}

/* ---- in the store ---- */

/* The store is asked, on a worker; lsom__index_silent() sees that it hangs. */
static void store_work(struct checkpoint *c, struct env_lane *lane)
{
	struct lsom_disk *disk = c->disk;

	disk->index_asked = true;
	disk->index_asked_ns = env_now(disk->env);
	env_work(disk->env, lane, &c->work);
}

bool lsom__index_silent(const struct lsom_disk *disk)
{
	return disk->index_asked &&
	       env_now(disk->env) - disk->index_asked_ns >= LSOM_SILENT_NS;
}

static void apply_start(struct checkpoint *c);
static void flush_start(struct checkpoint *c);

/*
 * On the index lane, so no page is read of what the store has lost with it.  What an
 * earlier checkpoint put was flushed: it can only be this one's.
 */
static void reopen_work(struct env_work *work)
{
	struct checkpoint *c = container_of(work, struct checkpoint, work);
	int rv = kv_reopen(c->disk->kv, &c->puts.batch);

	c->status = rv == -ENOSPC ? -EDQUOT : rv; /* as before */
}

static void apply_done(struct env_work *work);

static void wanted_again(struct env_timer *timer)
{
	struct checkpoint *c = container_of(timer, struct checkpoint, again);

	if (c->status != -ENOSPC) {
		c->work.work = reopen_work;
		c->work.done = apply_done;
		store_work(c, c->disk->index_lane);
	} else if (c->disk->checkpoint_applied == c->puts.number)
		flush_start(c);
	else
		apply_start(c);
}

/* Who closes the disk does not wait: the log has all of it. */
static bool wanted_awaited(const struct checkpoint *c)
{
	const struct lsom_disk *disk = c->disk;

	return kv_wants(c->status) && !disk->closing &&
	       disk->state != LSOM_DISK_FAILED &&
	       (c->wants_ns == 0 ||
		env_now(disk->env) - c->wants_ns < WANTS_NS_MAX);
}

static void store_failed(struct checkpoint *c)
{
	struct lsom_disk *disk = c->disk;
	int wants = c->status == -EDQUOT ? -ENOSPC : c->status;

	if (!wanted_awaited(c)) {
		checkpoint_done(c, wants);
		return;
	}
	if (disk->index_wants != wants)
		log_error("disk %s: writing its index: %s: the log is not let "
			  "go until that is over",
			  disk->path, err_text(wants));
	if (c->wants_ns == 0)
		c->wants_ns = env_now(disk->env);
	disk->index_wants = wants;
	c->again.cb = wanted_again;
	env_timer_start(disk->env, &c->again, TICK_NS);
	lsom__disk_changed(disk);
}

static void flush_work(struct env_work *work)
{
	struct checkpoint *c = container_of(work, struct checkpoint, work);

	c->status = kv_flush(c->disk->kv);
}

static void super_done(struct env_io *io, int64_t res)
{
	struct checkpoint *c = container_of(io, struct checkpoint, io);

	if (res < 0)
		lsom__disk_fail(c->disk, "writing a superblock", (int)res);
	checkpoint_done(c, res < 0 ? (int)res : 0);
}

static void flush_done(struct env_work *work)
{
	struct checkpoint *c = container_of(work, struct checkpoint, work);
	struct lsom_disk *disk = c->disk;
	uint64_t at;

	disk->index_asked = false;
	if (c->status < 0) {
		store_failed(c);
		return;
	}
	if (disk->kv == NULL || disk->state == LSOM_DISK_FAILED) {
		checkpoint_done(c, 0);
		return;
	}
	disk->super.index_flushed = c->puts.number;
	at = lsom__super_next(disk, c->super.iov_base);
	c->io.cb = super_done;
	env_dev_writev(disk->env, disk->dev, &c->io, &c->super, 1, at,
		       ENV_DURABLE);
}

static void apply_work(struct env_work *work)
{
	struct checkpoint *c = container_of(work, struct checkpoint, work);

	c->status = kv_apply(c->disk->kv, &c->puts.batch);
}

static void apply_done(struct env_work *work)
{
	struct checkpoint *c = container_of(work, struct checkpoint, work);

	c->disk->index_asked = false;
	if (c->status < 0) {
		store_failed(c);
		return;
	}
	c->disk->checkpoint_applied = c->puts.number;
	flush_start(c);
}

static void apply_start(struct checkpoint *c)
{
	c->work.work = apply_work;
	c->work.done = apply_done;
	store_work(c, c->disk->index_lane);
}

static void flush_start(struct checkpoint *c)
{
	c->work.work = flush_work;
	c->work.done = flush_done;
	store_work(c, c->disk->flush_lane);
}

/* Without a store the log is the index: what is applied is safe to reuse. */
static void nothing_work(struct env_work *work)
{
	container_of(work, struct checkpoint, work)->status = 0;
}

static size_t turn_pages(const struct lsom_disk *disk)
{
	return MIN(TURN_PAGES, MAX(disk->lsom->pages_max / 64, 1u));
}

static size_t turn_segments(const struct lsom_disk *disk)
{
	return MIN(TURN_SEGMENTS, MAX(disk->lsom->pages_max / 4, 1u));
}

/*
 * Some of the pages, then of the segments, while they are many and there are turns
 * left: where they change as fast as they are put, the last turn takes what there
 * is.  Components once, those that have changed by then; mostly that is not a turn
 * of its own.
 */
static int checkpoint_fill_some(struct checkpoint *c)
{
	size_t max = turn_pages(c->disk);
	int rv;

	if (c->turns > 0 && c->disk->dirty_count > max) {
		rv = lsom__put_pages(&c->puts, max);
		c->turns--;
	} else if (c->turns > 0 &&
		   c->disk->changed_count > turn_segments(c->disk)) {
		rv = lsom__put_segments(&c->puts, turn_segments(c->disk));
		c->turns--;
	} else if (c->puts.comps_left > 0) {
		rv = lsom__put_comps_some(&c->puts, max);
		if (rv == 0 && c->puts.comps_left == 0)
			return 0;
	} else {
		return 0;
	}
	if (rv < 0)
		return rv;
	lsom__checkpoint_start(c->disk);
	return -EAGAIN;
}

/* All that is left: 0, -EAGAIN (in turns) or -ENOMEM. */
static int checkpoint_fill(struct checkpoint *c)
{
	int rv = checkpoint_fill_some(c);

	if (rv == 0)
		rv = lsom__put_pages(&c->puts, SIZE_MAX);
	if (rv == 0)
		rv = lsom__put_comps(&c->puts);
	if (rv == 0)
		rv = lsom__put_segments(&c->puts, SIZE_MAX);
	if (rv == 0)
		rv = lsom__put_tombs(&c->puts);
	return rv == 0 ? lsom__put_position(&c->puts) : rv;
}

static struct checkpoint *checkpoint_new(struct lsom_disk *disk)
{
	struct checkpoint *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return NULL;
	c->super.iov_len = LSOM_BLOCK;
	c->super.iov_base = aligned_alloc(LSOM_BLOCK, LSOM_BLOCK);
	if (c->super.iov_base == NULL) {
		free(c);
		return NULL;
	}
	c->disk = c->puts.disk = disk;
	c->filling = true;
	c->since_ns = env_now(disk->env);
	c->turns = 2 * (disk->dirty_count / turn_pages(disk) +
			disk->changed_count / turn_segments(disk));
	c->puts.number = disk->checkpoint_number + 1;
	c->puts.comps_left = UINT_MAX;
	TAILQ_INIT(&c->reqs);
	kv_batch_init(&c->puts.batch);
	disk->checkpoint = c;
	return c;
}

/* It begins: what is done from here on is not in it. */
static void checkpoint_begin(struct checkpoint *c)
{
	struct lsom_disk *disk = c->disk;

	c->filling = false;
	disk->checkpoint_again = false;
	disk->close_checkpointed = disk->closing;
	disk->checkpoint_number = c->puts.number;
	for (unsigned i = 0; i < LSOM__HEADS; i++)
		c->covered[i] = lsom__head_first(&disk->heads[i]) - 1;
	disk->checkpoint_pos = disk->pos_next;
	disk->checkpoint_sequence = disk->sequence_next;
	TAILQ_CONCAT(&c->reqs, &disk->checkpoint_reqs, link);
	env_timer_stop(disk->env, &disk->checkpoint_timer);
	disk->checkpoint_starved = false;
}

/* There is no memory: later, also while closing, which waits for it. */
static void checkpoint_starved(struct lsom_disk *disk)
{
	if (!disk->checkpoint_starved)
		log_warn("disk %s: no memory to write its index: the log is "
			 "not let go until there is",
			 disk->path);
	disk->checkpoint_starved = true;
	env_timer_start(disk->env, &disk->checkpoint_timer, TICK_NS);
	lsom__disk_changed(disk);
}

static void checkpoint_run(struct env_task *task)
{
	struct lsom_disk *disk =
		container_of(task, struct lsom_disk, checkpoint_task);
	struct checkpoint *c = disk->checkpoint;
	int rv = 0;

	disk->works--;
	if (c != NULL && !c->filling) {
		disk->checkpoint_again = true;
		return;
	}
	if (disk->state == LSOM_DISK_FAILED) {
		if (c != NULL)
			checkpoint_done(c, -ENODEV);
		lsom__checkpoint_fail(disk, -ENODEV);
		lsom__disk_changed(disk);
		return;
	}
	disk->checkpoint_waits = lsom__cleaner_owes(disk);
	if (disk->checkpoint_waits)
		return; /* goes on when it is paid */
	if (c == NULL)
		c = checkpoint_new(disk);
	if (c == NULL)
		rv = -ENOMEM;
	else if (disk->kv != NULL)
		rv = checkpoint_fill(c);
	if (rv == -ENOMEM)
		checkpoint_starved(disk);
	if (rv < 0)
		return;
	checkpoint_begin(c);
	if (disk->kv == NULL) {
		c->work.work = nothing_work;
		c->work.done = flush_done;
		env_work(disk->env, disk->index_lane, &c->work);
		return;
	}
	apply_start(c);
}

void lsom__checkpoint_start(struct lsom_disk *disk)
{
	if (disk->checkpoint_task.queued)
		return;
	disk->checkpoint_task.cb = checkpoint_run;
	disk->works++;
	env_defer(disk->env, &disk->checkpoint_task);
}

void lsom__checkpoint_arm(struct lsom_disk *disk)
{
	if (disk->state == LSOM_DISK_OPENING ||
	    disk->state == LSOM_DISK_FAILED || disk->closing ||
	    env_timer_active(&disk->checkpoint_timer))
		return;
	disk->tick_pos = disk->pos_next;
	disk->ticks = 0;
	env_timer_start(disk->env, &disk->checkpoint_timer, TICK_NS);
}

/*
 * While the log grows it can wait for a while: a page that has changed in more
 * places by then is written once for all of them.  What a recovery has to go
 * through, and what memory holds, is bounded by lsom__checkpoint_due().
 */
void lsom__checkpoint_tick(struct env_timer *timer)
{
	struct lsom_disk *disk =
		container_of(timer, struct lsom_disk, checkpoint_timer);

	if (disk->checkpoint_starved || disk->pos_next == disk->tick_pos ||
	    ++disk->ticks >= BUSY_TICKS) {
		lsom__checkpoint_start(disk);
		return;
	}
	disk->tick_pos = disk->pos_next;
	env_timer_start(disk->env, &disk->checkpoint_timer, TICK_NS);
}

bool lsom__checkpoint_due(struct lsom_disk *disk)
{
	uint64_t segments = MAX(disk->super.segments / 16, 2u);

	lsom__checkpoint_arm(disk);
	if (disk->state == LSOM_DISK_FAILED || disk->closing ||
	    disk->checkpoint != NULL)
		return false;
	return disk->dirty_count > disk->lsom->pages_max / 4 ||
	       disk->pos_next - disk->checkpoint_pos > 65536 ||
	       disk->sequence_next - disk->checkpoint_sequence > segments;
}

bool lsom__checkpoint_idle(const struct lsom_disk *disk)
{
	return disk->dirty_count == 0 && disk->checkpoint_pos == disk->pos_next;
}

void lsom__checkpoint_fail(struct lsom_disk *disk, int status)
{
	struct lsom_checkpoint *req;

	while ((req = TAILQ_FIRST(&disk->checkpoint_reqs)) != NULL) {
		TAILQ_REMOVE(&disk->checkpoint_reqs, req, link);
		req->cb(req, status);
	}
}

int lsom_checkpoint(struct lsom_disk *disk, struct lsom_checkpoint *req,
		    lsom_checkpoint_cb cb)
{
	int rv = lsom__state_of(disk);

	if (rv < 0)
		return rv;
	if (disk->view != NULL)
		return lsom__view_checkpoint(disk, req, cb);
	req->disk = disk;
	req->cb = cb;
	TAILQ_INSERT_TAIL(&disk->checkpoint_reqs, req, link);
	lsom__checkpoint_start(disk);
	return 0;
}
