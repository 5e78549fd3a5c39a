/*
 * disk: a disk put together: opening, closing, its state and its numbers.
 *
 * Opening runs on a worker (superblocks, index, recovery) and hands a whole
 * disk to the loop.  Closing waits for what is in flight, checkpoints, and lets
 * go.  A disk that failed answers everything with -ENODEV until it is closed.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/lsom_int.h"

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

/* ---- superblocks ---- */

int lsom__super_write_now(struct lsom_disk *disk)
{
	uint8_t *block = aligned_alloc(LSOM_BLOCK, LSOM_BLOCK);
	int rv;

	if (block == NULL)
		return -ENOMEM;
	disk->super.sequence++;
	memset(block, 0, LSOM_BLOCK);
	memcpy(block, &disk->super, sizeof(disk->super));
	lsom__super_seal(block);
	rv = env_dev_write_now(disk->env, disk->dev, block, LSOM_BLOCK,
			       disk->super.sequence % 2 * LSOM__SUPER_GAP,
			       ENV_DURABLE);
	free(block);
	return rv;
}

/*
 * The newer of two superblocks.  One that is torn is no damage: the other one
 * is then whole, and that open was never finished.
 */
static int super_read(struct env *env, struct env_dev *dev,
		      struct lsom__super *out)
{
	uint8_t *block = aligned_alloc(LSOM_BLOCK, LSOM_BLOCK);
	int rv = -ENODATA, one, i;
	struct lsom__super s;

	if (block == NULL)
		return -ENOMEM;
	memset(out, 0, sizeof(*out));
	for (i = 0; i < 2; i++) {
		one = env_dev_read_now(env, dev, block, LSOM_BLOCK,
				       (uint64_t)i * LSOM__SUPER_GAP);
		if (one < 0) {
			rv = one;
			break;
		}
		memset(&s, 0, sizeof(s));
		one = lsom__super_decode(block, &s);
		if (one == -EMEDIUMTYPE) {
			*out = s;
			rv = one;
			break;
		}
		if (one == 0 && (rv != 0 || s.sequence > out->sequence)) {
			*out = s;
			rv = 0;
		}
		if (one == -EUCLEAN && rv == -ENODATA)
			rv = -EUCLEAN;
	}
	free(block);
	return rv;
}

/* ---- probing and formatting: blocking ---- */

static const struct {
	uint32_t offset;
	uint8_t len;
	const char *magic, *name;
} signatures[] = {
	{ 510, 2, "\x55\xaa", "a partition table or boot sector" },
	{ 512, 8, "EFI PART", "GPT" },
	{ 1024 + 56, 2, "\x53\xef", "ext2, ext3 or ext4" },
	{ 0, 4, "XFSB", "XFS" },
	{ 65536 + 64, 8, "_BHRfS_M", "btrfs" },
	{ 4086, 10, "SWAPSPACE2", "swap" },
	{ 512, 8, "LABELONE", "LVM" },
	{ 0, 6, "LUKS\xba\xbe", "LUKS" },
	{ 4096, 4, "\xfc\x4e\x2b\xa9", "Linux RAID" },
	{ 32769, 5, "CD001", "ISO 9660" },
};

static void signatures_find(const uint8_t *buf, size_t len,
			    struct lsom_probe *out)
{
	size_t i;

	/* From the last: what is more telling than a boot sector's mark. */
	for (i = ARRAY_LEN(signatures); i-- > 0;) {
		if (signatures[i].offset + signatures[i].len > len ||
		    memcmp(buf + signatures[i].offset, signatures[i].magic,
			   signatures[i].len) != 0)
			continue;
		snprintf(out->found, sizeof(out->found), "%s",
			 signatures[i].name);
		return;
	}
	for (i = 0; i < len; i++)
		if (buf[i] != 0) {
			snprintf(out->found, sizeof(out->found),
				 "data of an unknown kind");
			return;
		}
}

int lsom_disk_probe(struct env *env, const char *path, struct lsom_probe *out)
{
	const size_t head = 128u << 10;
	struct env_dev_info info;
	struct lsom__super s;
	struct env_dev *dev;
	uint8_t *buf;
	int rv;

	memset(out, 0, sizeof(*out));
	rv = env_dev_open(env, path, ENV_DEV_RDONLY | ENV_DEV_EXCLUSIVE, &dev,
			  &info);
	if (rv == -EBUSY) {
		snprintf(out->found, sizeof(out->found),
			 "mounted, or in use by another program");
		return 0;
	}
	if (rv < 0)
		return rv;
	buf = aligned_alloc(LSOM_BLOCK, head);
	rv = buf == NULL ? -ENOMEM : 0;
	if (rv == 0 && info.bytes >= LSOM__DISK_MIN)
		rv = super_read(env, dev, &s);
	else if (rv == 0)
		rv = -ENODATA;
	if (rv == 0 || rv == -EMEDIUMTYPE) {
		out->ours = true;
		out->disk = s.disk;
		out->cluster = s.cluster;
		out->version = s.version;
		rv = 0;
	} else if (rv == -ENODATA || rv == -EUCLEAN) {
		rv = info.bytes < head
			     ? 0
			     : env_dev_read_now(env, dev, buf, head, 0);
		if (rv == 0 && info.bytes >= head)
			signatures_find(buf, head, out);
	}
	free(buf);
	env_dev_close(env, dev);
	return rv;
}

static uint32_t segment_bytes_for(uint64_t bytes)
{
	uint64_t s = ROUND_DOWN(bytes / 1024, LSOM__SEGMENT_MIN);

	return (uint32_t)MIN(MAX(s, 4u << 20), LSOM__SEGMENT_MAX);
}

static int super_make(const struct lsom_format *f,
		      const struct env_dev_info *info, struct lsom__super *s)
{
	uint32_t segment = f->segment_bytes ? f->segment_bytes
					    : segment_bytes_for(info->bytes);
	uint32_t least = f->tiny ? LSOM__SEGMENT_TINY : LSOM__SEGMENT_MIN;
	uint64_t count;

	if ((info->bytes < LSOM__DISK_MIN && !f->tiny) ||
	    info->bytes < LSOM__DATA_START ||
	    info->logical_block > LSOM_BLOCK ||
	    info->bytes > 1ull << 45 || /* 36 bits of 512-byte units */
	    segment < least || segment > LSOM__SEGMENT_MAX ||
	    segment % least != 0 || uuid_is_zero(&f->disk))
		return -EINVAL;
	count = (info->bytes - LSOM__DATA_START) / segment;
	if (count < 8 || count > LSOM__SEGMENTS_MAX)
		return -EINVAL;
	*s = (struct lsom__super){
		.magic = LSOM__SUPER_MAGIC,
		.version = LSOM__VERSION,
		.compat = LSOM__COMPAT,
		.ro_compat = LSOM__RO_COMPAT,
		.incompat = LSOM__INCOMPAT,
		.disk = f->disk,
		.cluster = f->cluster,
		.sequence = 1,
		.disk_bytes = info->bytes,
		.data_start = LSOM__DATA_START,
		.segment_bytes = segment,
		.segments = (uint32_t)count,
	};
	return 0;
}

/* Both superblocks, and the first segments of a file written once. */
static int format_write(struct env *env, struct env_dev *dev,
			const struct env_dev_info *info,
			struct lsom_format *format, struct lsom__super *s)
{
	const uint32_t chunk = LSOM__DATA_START;
	uint32_t ahead = info->block_device ? 0 : MIN(s->segments, 4u), i;
	uint8_t *buf = aligned_alloc(LSOM_BLOCK, chunk);
	uint64_t at, end;
	int rv = 0;

	if (buf == NULL)
		return -ENOMEM;
	memset(buf, 0, chunk);
	end = s->data_start + (uint64_t)ahead * s->segment_bytes;
	/* What was there goes first, so that half a format is none. */
	for (at = 0; at < end && rv == 0; at += chunk) {
		rv = env_dev_write_now(env, dev, buf, chunk, at, 0);
		if (format->progress != NULL)
			format->progress(format, (unsigned)(at * 95 / end));
	}
	s->zeroed = ahead;
	for (i = 0; i < 2 && rv == 0; i++) {
		s->sequence = i;
		memset(buf, 0, LSOM_BLOCK);
		memcpy(buf, s, sizeof(*s));
		lsom__super_seal(buf);
		rv = env_dev_write_now(env, dev, buf, LSOM_BLOCK,
				       i * (uint64_t)LSOM__SUPER_GAP,
				       ENV_DURABLE);
	}
	free(buf);
	if (rv == 0 && format->progress != NULL)
		format->progress(format, 100);
	return rv;
}

int lsom_disk_format(struct env *env, struct lsom_format *format)
{
	struct env_dev_info info;
	struct lsom__super s;
	struct env_dev *dev;
	int rv =
		env_dev_open(env, format->path, ENV_DEV_EXCLUSIVE, &dev, &info);

	if (rv < 0)
		return rv;
	rv = super_make(format, &info, &s);
	if (rv == 0)
		rv = format_write(env, dev, &info, format, &s);
	env_dev_close(env, dev);
	return rv;
}

/* ---- opening ---- */

static void disk_free(struct lsom_disk *disk)
{
	struct lsom_comp *comp;
	struct lsom__tomb *t;
	uint32_t i;

	lsom__cleaner_fini(disk);
	while ((comp = TAILQ_FIRST(&disk->comps)) != NULL) {
		assert(comp->refs == 1);
		lsom__comp_free(comp);
	}
	while ((t = TAILQ_FIRST(&disk->tombs)) != NULL) {
		TAILQ_REMOVE(&disk->tombs, t, link);
		free(t);
	}
	for (i = 0; disk->segments != NULL && i < disk->super.segments; i++)
		free(disk->segments[i].frames);
	free(disk->segments);
	lsom__log_fini(disk);
	if (disk->zero_iov != NULL)
		free(disk->zero_iov[0].iov_base);
	free(disk->zero_iov);
	free(disk);
}

static void changed_run(struct env_task *task);
static void checkpoint_tick(struct env_timer *timer);

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
	TAILQ_INIT(&disk->comps);
	TAILQ_INIT(&disk->tombs);
	TAILQ_INIT(&disk->lru);
	TAILQ_INIT(&disk->dirty_pages);
	TAILQ_INIT(&disk->checkpoint_reqs);
	TAILQ_INIT(&disk->watches);
	STAILQ_INIT(&disk->later);
	disk->watch_task.cb = changed_run;
	disk->checkpoint_timer.cb = checkpoint_tick;
	lsom__read_init();
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
	int rv = super_read(disk->env, disk->dev, &disk->super);

	if (rv == -ENODATA || rv == -EUCLEAN)
		snprintf(req->why, sizeof(req->why),
			 "%.80s has no whole superblock of Basalt: format it "
			 "with 'basalt disk add --force-erase', which loses "
			 "what is on it",
			 disk->path);
	if (rv == -EMEDIUMTYPE)
		snprintf(req->why, sizeof(req->why),
			 "%.80s has format version %u, features %#llx; this "
			 "program reads version %u, features %#llx",
			 disk->path, s->version,
			 (unsigned long long)s->incompat, LSOM__VERSION,
			 (unsigned long long)LSOM__INCOMPAT);
	if (rv < 0)
		return rv == -ENODATA ? -EUCLEAN : rv;
	if (s->disk_bytes > disk->info.bytes) {
		snprintf(req->why, sizeof(req->why),
			 "%.80s is %llu bytes and was formatted with %llu",
			 disk->path, (unsigned long long)disk->info.bytes,
			 (unsigned long long)s->disk_bytes);
		return -EUCLEAN;
	}
	if (!uuid_equal(&s->cluster, &req->cluster)) {
		snprintf(req->why, sizeof(req->why),
			 "%.80s belongs to another cluster", disk->path);
		return -ESTALE;
	}
	if (!uuid_is_zero(&req->disk) && !uuid_equal(&s->disk, &req->disk)) {
		snprintf(req->why, sizeof(req->why),
			 "%.80s is another disk than expected", disk->path);
		return -ESTALE;
	}
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
	disk->zero_iov = calloc(ZERO_IOVS, sizeof(*disk->zero_iov));
	if (disk->segments == NULL || disk->zero_iov == NULL)
		return -ENOMEM;
	zero = aligned_alloc(LSOM_BLOCK, LSOM_BLOCK);
	if (zero == NULL)
		return -ENOMEM;
	memset(zero, 0, LSOM_BLOCK);
	for (i = 0; i < ZERO_IOVS; i++)
		disk->zero_iov[i] = (struct iovec){ zero, LSOM_BLOCK };
	return 0;
}

static int index_open(struct lsom_disk *disk, struct lsom_disk_open *req)
{
	struct kv_config config = {
		.path = req->index_path,
		.create = true,
		.merge = lsom__merge,
	};
	int rv = env_kv_open(disk->env, &config, &disk->kv);

	if (rv < 0)
		snprintf(req->why, sizeof(req->why),
			 "the index %.120s: %s: repair it with 'basalt disk "
			 "rebuild'",
			 req->index_path, err_text(rv));
	return rv;
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
			 err_text(rv));
		return rv;
	}
	return super_check(disk, req);
}

static int open_steps(struct lsom_disk *disk, struct lsom_disk_open *req)
{
	int rv = disk_memory(disk);

	if (rv == 0 && req->index_path != NULL)
		rv = index_open(disk, req);
	if (rv == 0)
		rv = lsom__recover(disk, req->rebuild, req->why,
				   sizeof(req->why));
	return rv;
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
	struct lsom_comp *comp, *next;

	disk->state = LSOM_DISK_ONLINE;
	disk->recovery_ns = env_now(disk->env) - disk->opened_ns;
	TAILQ_INSERT_TAIL(&disk->lsom->disks, disk, link);
	log_info("disk %s: open in %llu ms: %u components, %llu records "
		 "replayed, %u of %u segments free%s",
		 disk->path, (unsigned long long)disk->recovery_ns / 1000000,
		 disk->comps_count, (unsigned long long)disk->recovered_records,
		 disk->segments_free, disk->super.segments,
		 disk->super.damaged ? "; DAMAGED" : "");
	TAILQ_FOREACH_SAFE (comp, &disk->comps, link, next)
		if (comp->deleted)
			lsom__comp_reap(comp);
	if (rebuilt || disk->recovered_records > 0)
		lsom__checkpoint_start(disk);
	lsom__segments_release(disk);
	lsom__zero_kick(disk);
	lsom__cleaner_kick(disk);
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

	if (res < 0) {
		o->status = (int)res;
		snprintf(req->why, sizeof(req->why), "%.120s: flushing it: %s",
			 req->path, err_text(o->status));
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

	o->status = open_device(o->disk, req);
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
	req->opened = NULL;
	req->lsom = lsom;
	req->impl = o;
	req->cb = cb;
	o->req = req;
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

static void close_done(struct env_work *work)
{
	struct lsom_disk_close *req =
		container_of(work, struct lsom_disk_close, work);
	struct lsom_disk *disk = req->disk;

	TAILQ_REMOVE(&disk->lsom->disks, disk, link);
	env_timer_stop(disk->env, &disk->checkpoint_timer);
	env_timer_stop(disk->env, &disk->stall_timer);
	lsom__cleaner_stop(disk);
	env_dev_close(disk->env, disk->dev);
	env_lane_close(disk->env, disk->index_lane);
	env_lane_close(disk->env, disk->flush_lane);
	disk_free(disk);
	req->cb(req, 0);
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
	struct lsom__head *head;
	bool any = false;
	uint32_t segment;
	unsigned i;

	for (i = 0; i < LSOM__HEADS; i++) {
		head = &disk->heads[i];
		segment = head->segment;
		if (segment == LSOM__NONE || disk->segments[segment].used == 1)
			continue;
		head->segment = LSOM__NONE;
		lsom__segment_close(disk, segment);
		any = true;
	}
	return any;
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
	if (disk->state != LSOM_DISK_FAILED && !lsom__checkpoint_idle(disk) &&
	    !disk->close_checkpointed) {
		disk->close_checkpointed = true;
		lsom__checkpoint_start(disk);
		return;
	}
	disk->closed = true;
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
	uint64_t used = disk->live_blocks + disk->credits;
	uint64_t knee = disk->usable_blocks - disk->usable_blocks / 20;
	uint8_t by_free = 0, by_use = 0;

	if (disk->segments_free < low)
		by_free = ratio(low - disk->segments_free, low);
	if (used > knee)
		by_use = ratio(used - knee, disk->usable_blocks - knee);
	return MAX(by_free, by_use);
}

static void congestion_now(const struct lsom_disk *disk, uint8_t out[4])
{
	const struct lsom__head *head = &disk->heads[LSOM__HEAD_GUEST];
	uint64_t pages = disk->lsom->pages_max;

	out[LSOM_CONGESTION_SPACE] = space_congestion(disk);
	out[LSOM_CONGESTION_LOG] =
		MAX(ratio(head->queued, LSOM__OPS_MAX),
		    ratio(head->queued_blocks, LSOM__QUEUE_BLOCKS));
	out[LSOM_CONGESTION_INDEX] = 0;
	if (disk->kv != NULL)
		out[LSOM_CONGESTION_INDEX] =
			MAX(ratio(disk->dirty_count, pages * 2),
			    ratio(disk->loads, 1024));
	out[LSOM_CONGESTION_MEMORY] = ratio(disk->reads, LSOM__READS_MAX);
}

static void changed_run(struct env_task *task)
{
	struct lsom_disk *disk =
		container_of(task, struct lsom_disk, watch_task);
	struct lsom_disk_watch *watch, *next;
	enum lsom_disk_state state = disk->state;
	uint8_t now[4];
	bool tell = disk->failed_untold;
	unsigned i;

	congestion_now(disk, now);
	/* Steps of 16: watchers slow guests, they do not draw curves. */
	for (i = 0; i < 4; i++)
		if (now[i] / 16 != disk->congestion[i] / 16 ||
		    (now[i] == 0) != (disk->congestion[i] == 0))
			tell = true;
	if (state == LSOM_DISK_ONLINE && !lsom__space(disk, 1))
		disk->state = LSOM_DISK_FULL;
	else if (state == LSOM_DISK_FULL && lsom__space(disk, 1))
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

void lsom__disk_fail(struct lsom_disk *disk, const char *what, int status)
{
	if (disk->state == LSOM_DISK_FAILED)
		return;
	snprintf(disk->failure, sizeof(disk->failure), "%s: %s", what,
		 err_text(status));
	log_error("disk %s: %s; it has failed and stops", disk->path,
		  disk->failure);
	disk->failed_untold = true;
	if (disk->recovery != NULL || disk->state == LSOM_DISK_OPENING) {
		disk->state = LSOM_DISK_FAILED; /* its opening will fail */
		return;
	}
	disk->state = LSOM_DISK_FAILED;
	lsom__log_kick(disk);
	lsom__cleaner_kick(disk);
	lsom__checkpoint_fail(disk, -ENODEV);
	lsom__disk_changed(disk);
}

static void checkpoint_tick(struct env_timer *timer)
{
	struct lsom_disk *disk =
		container_of(timer, struct lsom_disk, checkpoint_timer);

	lsom__checkpoint_start(disk);
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
	out->dev = disk->info;
	out->raw_bytes = disk->info.bytes;
	out->usable_bytes = disk->usable_blocks * LSOM_BLOCK;
	out->used_bytes = disk->live_blocks * LSOM_BLOCK;
	out->segments = disk->super.segments;
	out->segments_free = disk->segments_free;
	out->segment_bytes = disk->super.segment_bytes;
	out->components = disk->comps_count;
	congestion_now(disk, out->congestion);
	out->recovery_ns = disk->recovery_ns;
	out->generation = disk->super.generation;
}
