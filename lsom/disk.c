/*
 * disk: a disk put together: opening, closing, its state and its numbers.
 *
 * Opening runs on a worker (superblocks, index, recovery) and hands a whole
 * disk to the loop.  Closing waits for what is in flight, checkpoints, and lets
 * go.  A disk that failed answers everything with -ENODEV until it is closed.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/view_int.h"

#include "base/err.h"
#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define ZERO_IOVS 64u /* as many blocks as one zeroing write has */

int lsom_open(const struct lsom_config *config, struct lsom **out)
{
	struct lsom *lsom = calloc(1, sizeof(*lsom));

	if (lsom == NULL)
		return -ENOMEM;
	lsom->env = config->env;
	lsom->config = *config;
	if (lsom->config.page_cache_bytes == 0)
		lsom->config.page_cache_bytes = 64u << 20;
	if (lsom->config.reserve_percent == 0)
		lsom->config.reserve_percent = 20;
	lsom->config.reserve_percent =
		MIN(MAX(lsom->config.reserve_percent, 15u), 80u);
	lsom->pages_max = MAX(lsom->config.page_cache_bytes /
				      (sizeof(struct lsom__page) + 64),
			      (size_t)16);
	TAILQ_INIT(&lsom->disks);
	*out = lsom;
	return 0;
}

void lsom_close(struct lsom *lsom)
{
	assert(TAILQ_EMPTY(&lsom->disks));
	free(lsom);
}

/* ---- opening ---- */

/* True: none is left. */
static bool comps_free(struct lsom_disk *disk, size_t max)
{
	struct lsom_comp *comp;

	while ((comp = TAILQ_FIRST(&disk->comps)) != NULL) {
		size_t pages = disk->pages_count;

		if (max == 0)
			return false;
		assert(comp->refs == 1);
		lsom__comp_free(comp);
		max -= MIN(max, 1 + pages - disk->pages_count);
	}
	return true;
}

static void disk_free(struct lsom_disk *disk)
{
	uint32_t i;

	lsom__cleaner_fini(disk);
	comps_free(disk, SIZE_MAX);
	lsom__tombs_fini(&disk->tombs);
	for (i = 0; disk->segments != NULL && i < disk->super.segments; i++)
		free(disk->segments[i].frames);
	free(disk->segments);
	free(disk->free_heap);
	lsom__log_fini(disk);
	if (disk->zero_iov != NULL)
		free(disk->zero_iov[0].iov_base);
	free(disk->zero_iov);
	free(disk->sinks_memory);
	free(disk->sinks);
	free(disk);
}

static void changed_run(struct env_task *task);

static void comps_init(struct lsom_disk *disk)
{
	TAILQ_INIT(&disk->comps);
	TAILQ_INIT(&disk->comps_dirty);
	TAILQ_INIT(&disk->reaps);
	TAILQ_INIT(&disk->aborting);
	TAILQ_INIT(&disk->carries);
	TAILQ_INIT(&disk->counts);
}

static struct lsom_disk *disk_new(struct lsom *lsom, const char *path)
{
	struct lsom_disk *disk = calloc(1, sizeof(*disk));

	if (disk == NULL)
		return NULL;
	disk->lsom = lsom;
	disk->env = lsom->env;
	disk->state = LSOM_DISK_OPENING;
	disk->opened_ns = env_now(lsom->env);
	snprintf(disk->path, sizeof(disk->path), "%s", path);
	disk->sequence_next = disk->pos_next = disk->key_next = 1;
	comps_init(disk);
	lsom__tombs_init(&disk->tombs);
	TAILQ_INIT(&disk->emptied);
	TAILQ_INIT(&disk->cleaned);
	TAILQ_INIT(&disk->unclosed);
	TAILQ_INIT(&disk->changed);
	TAILQ_INIT(&disk->lru);
	TAILQ_INIT(&disk->dirty_pages);
	TAILQ_INIT(&disk->loads_again);
	TAILQ_INIT(&disk->checkpoint_reqs);
	TAILQ_INIT(&disk->watches);
	STAILQ_INIT(&disk->later);
	disk->watch_task.cb = changed_run;
	disk->checkpoint_timer.cb = lsom__checkpoint_tick;
	disk->unclosed_timer.cb = lsom__segments_close_again;
	disk->loads_timer.cb = lsom__loads_again;
	disk->evict_task.cb = lsom__evict_run;
	lsom__read_init();
	lsom__index_init();
	lsom__trim_init();
	lsom__checkpoint_init();
	if (lsom__log_init(disk) < 0) {
		free(disk);
		return NULL;
	}
	if (lsom__cleaner_init(disk) < 0) {
		disk_free(disk);
		return NULL;
	}
	return disk;
}

static int super_check(struct lsom_disk *disk, struct lsom_disk_open *req)
{
	const struct lsom__super *s = &disk->super;
	int rv = lsom__super_read(disk->env, disk->dev, req->lose_unreadable,
				  &disk->super, &disk->super_torn);

	if (rv == -ENODATA || rv == -EUCLEAN)
		snprintf(req->why, sizeof(req->why),
			 "%.80s has no whole superblock of Basalt", disk->path);
	if (rv == -EMEDIUMTYPE)
		snprintf(req->why, sizeof(req->why),
			 "%.80s has format version %u, features %#llx; this "
			 "program reads version %u, features %#llx",
			 disk->path, s->version,
			 (unsigned long long)s->incompat, LSOM__VERSION,
			 (unsigned long long)LSOM__INCOMPAT);
	if (rv < 0 && req->why[0] == '\0')
		snprintf(req->why, sizeof(req->why),
			 "%.120s: reading its superblocks: %s", disk->path,
			 err_text(rv));
	if (rv < 0)
		return rv == -EUCLEAN ? -ENODATA : rv;
	if (s->disk_bytes > disk->info.bytes) {
		snprintf(req->why, sizeof(req->why),
			 "%.80s is %llu bytes and was formatted with %llu",
			 disk->path, (unsigned long long)disk->info.bytes,
			 (unsigned long long)s->disk_bytes);
		return -ERANGE;
	}
	if (!uuid_equal(&s->cluster, &req->cluster)) {
		snprintf(req->why, sizeof(req->why),
			 "%.80s belongs to another cluster", disk->path);
		return -ENXIO;
	}
	if (!uuid_is_zero(&req->disk) && !uuid_equal(&s->disk, &req->disk)) {
		snprintf(req->why, sizeof(req->why),
			 "%.80s is another disk than expected", disk->path);
		return -ENXIO;
	}
	req->generation = s->generation;
	return 0;
}

/* What guests may fill: without reserve, headers and summaries. */
static uint64_t usable_blocks(const struct lsom_disk *disk)
{
	uint64_t n = disk->super.segments;
	uint64_t keep = MAX(DIV_UP(n * disk->lsom->config.reserve_percent, 100),
			    (uint64_t)6);
	uint64_t each = disk->segment_blocks - disk->segment_blocks / 32 - 4;

	return n > keep ? (n - keep) * each : 0;
}

static int sinks_make(struct lsom_disk *disk)
{
	const size_t each = LSOM__READ_GAP * LSOM_BLOCK;

	SLIST_INIT(&disk->sinks_free);
	disk->sinks = calloc(LSOM__SINKS, sizeof(*disk->sinks));
	disk->sinks_memory = aligned_alloc(LSOM_BLOCK, LSOM__SINKS * each);
	if (disk->sinks == NULL || disk->sinks_memory == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < LSOM__SINKS; i++) {
		disk->sinks[i].blocks =
			(uint8_t *)disk->sinks_memory + i * each;
		SLIST_INSERT_HEAD(&disk->sinks_free, &disk->sinks[i], link);
	}
	return 0;
}

static int disk_memory(struct lsom_disk *disk)
{
	void *zero;
	unsigned i;

	disk->segment_blocks = disk->super.segment_bytes / LSOM_BLOCK;
	/* Header, batch header and a summary beside the data. */
	disk->record_blocks_max =
		MIN(disk->segment_blocks - 8, LSOM_WRITE_MAX / LSOM_BLOCK);
	disk->usable_blocks = usable_blocks(disk);
	disk->reserve_blocks =
		(uint64_t)disk->super.segments * disk->segment_blocks -
		disk->usable_blocks;
	disk->segments = calloc(disk->super.segments, sizeof(*disk->segments));
	disk->free_heap =
		calloc(disk->super.segments, sizeof(*disk->free_heap));
	disk->zero_iov = calloc(ZERO_IOVS, sizeof(*disk->zero_iov));
	if (disk->segments == NULL || disk->free_heap == NULL ||
	    disk->zero_iov == NULL || sinks_make(disk) < 0)
		return -ENOMEM;
	zero = aligned_alloc(LSOM_BLOCK, LSOM_BLOCK);
	if (zero == NULL)
		return -ENOMEM;
	memset(zero, 0, LSOM_BLOCK);
	for (i = 0; i < ZERO_IOVS; i++)
		disk->zero_iov[i] = (struct iovec){ zero, LSOM_BLOCK };
	return 0;
}

/* err_text() has these for queues and reservations. */
static const char *open_text(int status)
{
	switch (status) {
	case -EBUSY:
		return "another program uses it";
	case -EPERM:
		return "access denied";
	default:
		return err_text(status);
	}
}

static int index_open(struct lsom_disk *disk, struct lsom_disk_open *req)
{
	struct kv_config config = {
		.path = req->index_path,
		.create = true,
		.merge = lsom__merge,
	};
	int rv = env_kv_open(disk->env, &config, &disk->kv);
	bool damaged = rv == -EIO || rv == -EUCLEAN || rv == -ENOENT;

	if (rv < 0)
		snprintf(req->why, sizeof(req->why), "the index %.120s: %s%s",
			 req->index_path, open_text(rv),
			 damaged ? ": repair it with 'basalt disk rebuild'"
				 : "");
	return damaged ? -EUCLEAN : rv;
}

/* What a device means by them is neither a reservation nor our own room. */
const char *lsom__device_text(int status)
{
	switch (status) {
	case -EPERM:
		return "it is read-only";
	case -EILSEQ:
		return "its protection information does not match";
	case -ENOSPC:
		return "it has no space left, is smaller than it was, or gone";
	default:
		return err_text(status);
	}
}

struct opening {
	struct lsom_disk *disk;
	struct lsom_disk_open *req;
	struct env_io flush;
	int status;
};

static int open_device(struct lsom_disk *disk, struct lsom_disk_open *req)
{
	int rv;

	rv = env_dev_open(disk->env, req->path, ENV_DEV_EXCLUSIVE, &disk->dev,
			  &disk->info);
	if (rv < 0) {
		snprintf(req->why, sizeof(req->why), "%.120s: %s", req->path,
			 open_text(rv));
		return rv;
	}
	return super_check(disk, req);
}

static int open_steps(struct lsom_disk *disk, struct lsom_disk_open *req)
{
	int rv = disk_memory(disk);

	/* A store that cannot be opened must not stand in the rebuild's way. */
	if (rv == 0 && req->rebuild && req->index_remove != NULL)
		req->index_remove(req->index_path);
	if (rv == 0 && req->index_path != NULL)
		rv = index_open(disk, req);
	if (rv == 0)
		rv = lsom__recover(disk, req);
	/* Room or the like is what it wants, not a repair. */
	if (rv < 0 && disk->index_wants != 0) {
		snprintf(req->why, sizeof(req->why), "the index %.80s: %.150s",
			 req->index_path,
			 disk->failure[0] != '\0' ? disk->failure
						  : err_text(rv));
		return disk->index_wants;
	}
	return rv == -ENOSPC && disk->kv != NULL ? -EIO : rv; /* the device's */
}

static void open_work(struct env_work *work)
{
	struct lsom_disk_open *req =
		container_of(work, struct lsom_disk_open, work);
	struct opening *o = req->impl;

	if (o->status == 0)
		o->status = open_steps(o->disk, req);
	if (o->status < 0) {
		kv_close(o->disk->kv);
		o->disk->kv = NULL;
	}
}

/* The recovered disk begins to serve. */
static void disk_start(struct lsom_disk *disk, bool rebuilt)
{
	lsom__segments_sort(disk);
	disk->state = LSOM_DISK_ONLINE;
	disk->recovery_ns = env_now(disk->env) - disk->opened_ns;
	TAILQ_INSERT_TAIL(&disk->lsom->disks, disk, link);
	log_info("disk %s: open in %llu ms: %u component%s, %llu record%s "
		 "replayed, %u of %u segments free%s",
		 disk->path, (unsigned long long)disk->recovery_ns / 1000000,
		 disk->comps_count, disk->comps_count == 1 ? "" : "s",
		 (unsigned long long)disk->recovered_records,
		 disk->recovered_records == 1 ? "" : "s", disk->segments_free,
		 disk->super.segments, disk->super.damaged ? "; DAMAGED" : "");
	lsom__reap(disk);
	/* Also if nothing was replayed: the index has to know this opening. */
	lsom__checkpoint_start(disk);
	lsom__segments_release(disk);
	lsom__zero_kick(disk);
	lsom__cleaner_kick(disk);
	lsom__trim_start(disk);
	lsom__disk_changed(disk);
}

static void open_done(struct env_work *work)
{
	struct lsom_disk_open *req =
		container_of(work, struct lsom_disk_open, work);
	struct opening *o = req->impl;
	struct lsom_disk *disk = o->disk;
	int status = o->status;

	free(o);
	req->opened = NULL;
	disk->opening = NULL;
	if (status < 0) {
		if (disk->dev != NULL)
			env_dev_close(disk->env, disk->dev);
		env_lane_close(disk->env, disk->index_lane);
		env_lane_close(disk->env, disk->flush_lane);
		disk_free(disk);
	} else {
		disk_start(disk, req->rebuild);
		req->opened = disk;
	}
	req->cb(req, status);
}

static void opened_flushed(struct env_io *io, int64_t res)
{
	struct opening *o = container_of(io, struct opening, flush);
	struct lsom_disk_open *req = o->req;

	lsom__dev_answered(o->disk);
	if (res < 0) {
		o->status = (int)res;
		snprintf(req->why, sizeof(req->why), "%.120s: flushing it: %s",
			 req->path, lsom__device_text(o->status));
	}
	req->work.work = open_work;
	req->work.done = open_done;
	env_work(o->disk->env, o->disk->index_lane, &req->work);
}

static void device_work(struct env_work *work)
{
	struct lsom_disk_open *req =
		container_of(work, struct lsom_disk_open, work);
	struct opening *o = req->impl;

	lsom__dev_asked(o->disk);
	o->status = open_device(o->disk, req);
	lsom__dev_answered(o->disk);
}

/*
 * What an earlier life wrote may be no further than the device's cache: a write
 * that failed, or one whose flush never came.  Recovery builds on what it reads,
 * so that has to be durable first.
 */
static void device_done(struct env_work *work)
{
	struct lsom_disk_open *req =
		container_of(work, struct lsom_disk_open, work);
	struct opening *o = req->impl;

	if (o->status < 0) {
		open_done(work);
		return;
	}
	o->flush.cb = opened_flushed;
	lsom__dev_asked(o->disk);
	env_dev_flush(o->disk->env, o->disk->dev, &o->flush);
}

int lsom_disk_open(struct lsom *lsom, struct lsom_disk_open *req,
		   lsom_disk_open_cb cb)
{
	struct opening *o;
	int rv;

	if (req->path == NULL || strlen(req->path) >= 256)
		return -EINVAL;
	o = calloc(1, sizeof(*o));
	if (o == NULL)
		return -ENOMEM;
	o->disk = disk_new(lsom, req->path);
	if (o->disk == NULL) {
		free(o);
		return -ENOMEM;
	}
	rv = env_lane_open(lsom->env, "lsom-index", &o->disk->index_lane);
	if (rv < 0)
		goto err_disk;
	rv = env_lane_open(lsom->env, "lsom-flush", &o->disk->flush_lane);
	if (rv < 0)
		goto err_lane;
	req->why[0] = '\0';
	req->generation = 0;
	req->asked = req->answers = 0;
	req->opened = NULL;
	req->lsom = lsom;
	req->impl = o;
	req->cb = cb;
	o->req = req;
	o->disk->opening = req;
	req->work.work = device_work;
	req->work.done = device_done;
	env_work(lsom->env, o->disk->index_lane, &req->work);
	return 0;

err_lane:
	env_lane_close(lsom->env, o->disk->index_lane);
err_disk:
	disk_free(o->disk);
	free(o);
	return rv;
}

/* ---- closing ---- */

static void close_work(struct env_work *work)
{
	struct lsom_disk *disk =
		container_of(work, struct lsom_disk_close, work)->disk;

	kv_close(disk->kv);
	disk->kv = NULL;
	if (disk->state != LSOM_DISK_FAILED)
		(void)lsom__super_write_now(disk);
}

static void close_part(struct env_timer *timer)
{
	struct lsom_disk *disk =
		container_of(timer, struct lsom_disk, free_timer);
	struct lsom_disk_close *req = disk->close_req;

	if (!comps_free(disk, LSOM__FREE_PART)) {
		env_timer_start(disk->env, timer, ENV_NEXT_TURN_NS);
		return;
	}
	TAILQ_REMOVE(&disk->lsom->disks, disk, link);
	env_dev_close(disk->env, disk->dev);
	env_lane_close(disk->env, disk->index_lane);
	env_lane_close(disk->env, disk->flush_lane);
	disk_free(disk);
	req->cb(req, 0);
}

static void close_done(struct env_work *work)
{
	struct lsom_disk *disk =
		container_of(work, struct lsom_disk_close, work)->disk;

	disk->free_timer.cb = close_part;
	close_part(&disk->free_timer);
}

static bool segments_settled(const struct lsom_disk *disk)
{
	uint32_t i;

	for (i = 0; i < disk->super.segments; i++)
		if (disk->segments[i].inflight > 0)
			return false;
	return true;
}

/* The last batch of a head has no echo: its summary is the second copy. */
static bool heads_close(struct lsom_disk *disk)
{
	bool any = false;
	unsigned i;

	for (i = 0; i < LSOM__HEADS; i++)
		any |= lsom__head_leave(&disk->heads[i]);
	return any;
}

/* Somebody asked for one, or the next opening would have to replay. */
static bool checkpoint_wanted(const struct lsom_disk *disk)
{
	return !TAILQ_EMPTY(&disk->checkpoint_reqs) ||
	       (!lsom__checkpoint_idle(disk) && !disk->close_checkpointed);
}

/* One step of closing at a time; each end of something comes here again. */
static void close_step(struct lsom_disk *disk)
{
	if (disk->close_req == NULL || disk->handles > 0 || disk->views > 0 ||
	    disk->works > 0 || disk->reads > 0 || !lsom__log_idle(disk) ||
	    !segments_settled(disk) || disk->checkpoint != NULL ||
	    !lsom__cleaner_idle(disk) || disk->closed)
		return;
	if (disk->state != LSOM_DISK_FAILED && heads_close(disk)) {
		lsom__disk_changed(disk);
		return;
	}
	if (disk->state != LSOM_DISK_FAILED && !TAILQ_EMPTY(&disk->unclosed))
		return;
	if (disk->state != LSOM_DISK_FAILED && checkpoint_wanted(disk)) {
		/* Where there is no memory for it, it comes again by its timer. */
		if (!disk->checkpoint_starved)
			lsom__checkpoint_start(disk);
		return;
	}
	/* The index is a worker's now: no timer may come for it. */
	disk->closed = true;
	env_timer_stop(disk->env, &disk->checkpoint_timer);
	env_timer_stop(disk->env, &disk->stall_timer);
	env_timer_stop(disk->env, &disk->unclosed_timer);
	lsom__cleaner_stop(disk);
	lsom__trim_stop(disk);
	disk->close_req->work.work = close_work;
	disk->close_req->work.done = close_done;
	env_work(disk->env, disk->flush_lane, &disk->close_req->work);
}

int lsom_disk_close(struct lsom_disk *disk, struct lsom_disk_close *req,
		    lsom_disk_close_cb cb)
{
	assert(disk->view == NULL);
	if (disk->closing)
		return -EBUSY;
	disk->closing = true;
	disk->close_req = req;
	req->disk = disk;
	req->cb = cb;
	lsom__disk_changed(disk);
	return 0;
}

/* ---- state, congestion, watchers ---- */

static uint8_t ratio(uint64_t part, uint64_t whole)
{
	return (uint8_t)MIN(255u, whole == 0 ? 255u : part * 255 / whole);
}

/* Free segments below @low begin to slow guests; at none they stand. */
static uint8_t space_congestion(const struct lsom_disk *disk)
{
	uint64_t low = MAX(disk->super.segments / 16, 4u);

	return disk->segments_free < low ? ratio(low - disk->segments_free, low)
					 : 0;
}

/* So does the last twentieth of what is for anybody. */
static uint8_t room_congestion(const struct lsom_disk *disk)
{
	uint64_t taken = disk->live_blocks + disk->credits + disk->promised;
	uint64_t knee = disk->usable_blocks - disk->usable_blocks / 20;

	return taken > knee ? ratio(taken - knee, disk->usable_blocks - knee)
			    : 0;
}

static void congestion_now(const struct lsom_disk *disk,
			   uint8_t out[LSOM_CONGESTIONS])
{
	const struct lsom__head *head = &disk->heads[LSOM__HEAD_GUEST];
	uint64_t pages = disk->lsom->pages_max;

	out[LSOM_CONGESTION_SPACE] = space_congestion(disk);
	out[LSOM_CONGESTION_ROOM] = room_congestion(disk);
	out[LSOM_CONGESTION_LOG] =
		MAX(ratio(head->queued, LSOM__OPS_MAX),
		    ratio(head->queued_blocks, LSOM__QUEUE_BLOCKS));
	out[LSOM_CONGESTION_INDEX] = 0;
	if (disk->kv != NULL)
		out[LSOM_CONGESTION_INDEX] =
			disk->index_wants != 0
				? 255
				: MAX(ratio(disk->dirty_count, pages * 2),
				      ratio(disk->loads, 1024));
	out[LSOM_CONGESTION_MEMORY] =
		disk->checkpoint_starved ? 255
					 : ratio(disk->reads, LSOM__READS_MAX);
}

static void changed_run(struct env_task *task)
{
	struct lsom_disk *disk =
		container_of(task, struct lsom_disk, watch_task);
	struct lsom_disk_watch *watch, *next;
	enum lsom_disk_state state = disk->state;
	uint8_t now[LSOM_CONGESTIONS];
	bool tell = disk->failed_untold;
	unsigned i;

	congestion_now(disk, now);
	/* Steps of 16: watchers slow guests, they do not draw curves. */
	for (i = 0; i < LSOM_CONGESTIONS; i++)
		if (now[i] / 16 != disk->congestion[i] / 16 ||
		    (now[i] == 0) != (disk->congestion[i] == 0))
			tell = true;
	if (state == LSOM_DISK_ONLINE && !lsom__space(disk))
		disk->state = LSOM_DISK_FULL;
	else if (state == LSOM_DISK_FULL && lsom__space(disk))
		disk->state = LSOM_DISK_ONLINE;
	tell = tell || disk->state != state;
	disk->failed_untold = false;
	if (tell) {
		memcpy(disk->congestion, now, sizeof(now));
		TAILQ_FOREACH_SAFE (watch, &disk->watches, link, next)
			watch->cb(watch, disk);
	}
	close_step(disk);
}

void lsom__disk_changed(struct lsom_disk *disk)
{
	if (disk->state != LSOM_DISK_OPENING && !disk->closed)
		env_defer(disk->env, &disk->watch_task);
}

static void disk_fail(struct lsom_disk *disk, const char *what, int status,
		      const char *text, int index_wants)
{
	if (disk->state == LSOM_DISK_FAILED)
		return;
	snprintf(disk->failure, sizeof(disk->failure), "%s: %s", what, text);
	disk->failed_status = status;
	disk->failed_untold = true;
	disk->index_wants = index_wants;
	if (disk->recovery != NULL || disk->state == LSOM_DISK_OPENING) {
		/* Its opening will fail, and who asked for that hears why. */
		disk->state = LSOM_DISK_FAILED;
		return;
	}
	log_error("disk %s: %s; it has failed and stops", disk->path,
		  disk->failure);
	disk->state = LSOM_DISK_FAILED;
	lsom__log_kick(disk);
	lsom__cleaner_kick(disk);
	lsom__checkpoint_fail(disk, -ENODEV);
	lsom__disk_changed(disk);
}

void lsom__index_fail(struct lsom_disk *disk, const char *what, int status)
{
	if (status == -EDQUOT)
		status = -ENOSPC; /* opened again, it asks for room first */
	disk->index_failed |= disk->state != LSOM_DISK_FAILED;
	disk_fail(disk, what, status, err_text(status),
		  kv_wants(status) ? status : 0);
}

/* A thin device says ENOSPC, too: there another place is full. */
void lsom__disk_fail(struct lsom_disk *disk, const char *what, int status)
{
	disk_fail(disk, what, status, lsom__device_text(status), 0);
}

void lsom_disk_watch(struct lsom_disk *disk, struct lsom_disk_watch *watch)
{
	TAILQ_INSERT_TAIL(&disk->watches, watch, link);
}

void lsom_disk_unwatch(struct lsom_disk *disk, struct lsom_disk_watch *watch)
{
	TAILQ_REMOVE(&disk->watches, watch, link);
}

void lsom_disk_info(const struct lsom_disk *disk, struct lsom_disk_info *out)
{
	if (disk->view != NULL) {
		lsom__view_info(disk, out);
		return;
	}
	memset(out, 0, sizeof(*out));
	out->disk = disk->super.disk;
	out->cluster = disk->super.cluster;
	out->state = disk->state;
	memcpy(out->path, disk->path, sizeof(out->path));
	memcpy(out->failure, disk->failure, sizeof(out->failure));
	out->failed_status = disk->failed_status;
	out->index_wants = disk->index_wants;
	out->index_failed = disk->index_failed;
	memcpy(out->damage, disk->damage, sizeof(out->damage));
	out->media_errors = disk->media_errors;
	out->silent_ns = env_dev_silent_ns(disk->env, disk->dev);
	out->dev = disk->info;
	out->raw_bytes = disk->info.bytes;
	out->usable_bytes = disk->usable_blocks * LSOM_BLOCK;
	out->used_bytes = disk->live_blocks * LSOM_BLOCK;
	out->kept_bytes = disk->promised * LSOM_BLOCK;
	out->uncovered_bytes = lsom__space_missing(disk) * LSOM_BLOCK;
	out->segments = disk->super.segments;
	out->segments_free = disk->segments_free;
	out->segment_bytes = disk->super.segment_bytes;
	out->components = disk->comps_count;
	out->freeing = disk->unreaped > 0;
	congestion_now(disk, out->congestion);
	out->recovery_ns = disk->recovery_ns;
	out->generation = disk->super.generation;
	out->shard = disk->env->shard;
}
