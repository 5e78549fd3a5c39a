/*
 * checkpoint: the index and all that goes with it, made durable in the store.
 *
 * One batch of the store holds everything that changed since the last one: page
 * slots, component states, undecided versions, segments, tombs, and the
 * position of each head up to which all records are in it.  It is put together
 * on the loop: pages over several turns, for guests wait meanwhile, and those
 * that change again once more; all that is left, with the rest, in the last one,
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
 * in the batch.  That is asked again, for ten minutes: then the disk fails, for
 * it may be one that stays so, and there may be other copies to go on with.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/index_store.h"

#include "base/err.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

#define WHOLE_PAGE_SLOTS 64 /* from so many changed slots on */
#define SPILL_PAGES 4096u /* in one batch of the store: 16 MiB */
#define TURN_PAGES 256u /* under 1 ms */
#define TICK_NS (5 * SEC)
#define BUSY_TICKS 6u /* it waits for the log to rest */
#define ROOM_WAIT_NS (600 * SEC)

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
	struct env_work work;
	struct env_io io;
	struct iovec super;
	struct kv_batch batch;
	bool filling; /* it has not begun, but pages are in the batch */
	uint64_t since_ns; /* that is: since then */
	size_t turns; /* more that it may take for that */
	uint64_t number;
	uint64_t covered[LSOM__HEADS]; /* batches */
	int status;
	uint64_t full_ns; /* the store has found no room since; 0: it has */
	struct env_timer again;
	TAILQ_HEAD(, lsom_checkpoint) reqs;
};

/* ---- making one ---- */

/*
 * All of these: 0 or -ENOMEM.  What was put is put again, behind it, when the
 * checkpoint goes on; so nothing counts as put before it is.
 */

static int put(struct checkpoint *c, struct key k, const void *value,
	       size_t len)
{
	int rv = kv_batch_reserve(&c->batch, 1, k.len + len);

	if (rv == 0)
		kv_batch_put(&c->batch, key_slice(&k), kv_slice(value, len));
	return rv;
}

static int drop(struct checkpoint *c, struct key k)
{
	int rv = kv_batch_reserve(&c->batch, 1, k.len);

	if (rv == 0)
		kv_batch_delete(&c->batch, key_slice(&k));
	return rv;
}

static int drop_range(struct checkpoint *c, struct key from, struct key to)
{
	int rv = kv_batch_reserve(&c->batch, 1, from.len + to.len);

	if (rv == 0)
		kv_batch_delete_range(&c->batch, key_slice(&from),
				      key_slice(&to));
	return rv;
}

static int drop_all(struct checkpoint *c, char tag, uint64_t comp)
{
	return drop_range(c, key_make(tag, 1, comp, 0, 0),
			  key_make(tag, 1, comp + 1, 0, 0));
}

/* Note that the store has (or no longer has) @number. */
static int stored_set(struct checkpoint *c, struct lsom_comp *comp,
		      uint64_t number, bool has)
{
	size_t chunk = (size_t)(number / 8 / CHUNK_BYTES);
	size_t need = (chunk + 1) * CHUNK_BYTES;
	uint8_t bit = (uint8_t)(1u << (number % 8)), *p;
	int rv;

	if (need > comp->stored_bytes) {
		p = realloc(comp->stored_pages, need);
		if (p == NULL)
			return -ENOMEM;
		memset(p + comp->stored_bytes, 0, need - comp->stored_bytes);
		comp->stored_pages = p;
		comp->stored_bytes = need;
	}
	p = &comp->stored_pages[number / 8];
	if (!!(*p & bit) == has)
		return 0;
	*p ^= bit;
	rv = put(c, key_make('B', 2, comp->key, chunk, 0),
		 comp->stored_pages + chunk * CHUNK_BYTES, CHUNK_BYTES);
	if (rv < 0)
		*p ^= bit;
	return rv;
}

static int page_put_gone(struct checkpoint *c, struct lsom__page *page)
{
	int rv = drop(c, key_make('P', 2, page->comp->key, page->number, 0));

	return rv < 0 ? rv : stored_set(c, page->comp, page->number, false);
}

static int page_put_changed(struct checkpoint *c, struct lsom__page *page)
{
	static const uint32_t all[LSOM__PAGE_SLOTS / 32] = {
		UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX,
		UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX,
	};
	struct key k = key_make('P', 2, page->comp->key, page->number, 0);
	int changed = 0, i, rv;
	bool whole;
	void *value;
	size_t len;

	for (i = 0; i < (int)ARRAY_LEN(page->dirty); i++)
		changed += __builtin_popcount(page->dirty[i]);
	whole = page->loaded && changed >= WHOLE_PAGE_SLOTS;
	value = lsom__slots_encode(&page->slots, whole ? all : page->dirty,
				   &len);
	if (value == NULL)
		return -ENOMEM;
	rv = kv_batch_reserve(&c->batch, 1, k.len + len);
	if (rv == 0 && whole)
		kv_batch_put(&c->batch, key_slice(&k), kv_slice(value, len));
	else if (rv == 0)
		kv_batch_merge(&c->batch, key_slice(&k), kv_slice(value, len));
	free(value);
	for (i = 0; i < (int)ARRAY_LEN(page->put) && !page->loaded; i++)
		page->put[i] |= page->dirty[i];
	return rv < 0 ? rv : stored_set(c, page->comp, page->number, true);
}

static int pages_put_some(struct checkpoint *c, size_t max)
{
	struct lsom__page *page;
	bool gone;
	int rv;

	while (max-- > 0 &&
	       (page = TAILQ_FIRST(&c->disk->dirty_pages)) != NULL) {
		gone = page->gone;
		rv = gone ? page_put_gone(c, page) : page_put_changed(c, page);
		if (rv < 0)
			return rv;
		page->put_number = c->number;
		lsom__page_clean(page);
		if (gone && page->pins == 0 && !page->loading)
			lsom__page_free(page);
	}
	return 0;
}

/*
 * A recovery that begins with an empty store goes through the whole log, and
 * what it finds may be more than memory holds: pages go to the store as they
 * come, and come back when there is more for them.  No position is there before
 * the first checkpoint, so what a recovery leaves that was cut off is nothing
 * (lsom__checkpoint_load).
 */
int lsom__pages_spill(struct lsom_disk *disk)
{
	struct checkpoint c = { .disk = disk };
	int rv = 0;

	while (rv == 0 && !TAILQ_EMPTY(&disk->dirty_pages)) {
		kv_batch_init(&c.batch);
		rv = pages_put_some(&c, SPILL_PAGES);
		if (rv == 0)
			rv = kv_apply(disk->kv, &c.batch);
		kv_batch_fini(&c.batch);
	}
	return rv;
}

static int prep_put(struct checkpoint *c, struct lsom_comp *comp,
		    const struct lsom__prep *p)
{
	size_t len = lsom__data_record_len(p->flags, p->blocks, p->parts_count);
	uint8_t *buf = calloc(1, sizeof(struct stored_prep) + len);
	struct stored_prep *s = (void *)buf;
	struct lsom__data_record *d = (void *)(buf + sizeof(*s));
	int rv;

	if (buf == NULL)
		return -ENOMEM;
	s->place = p->place;
	s->pos = p->pos;
	d->r.type = LSOM__R_DATA;
	d->r.flags = p->flags;
	d->r.len = (uint32_t)len;
	d->r.component = comp->key;
	d->r.lsn = p->lsn;
	d->r.member_csn = p->member_csn;
	d->first = p->first;
	d->blocks = p->blocks;
	d->parts = p->parts_count;
	if (p->crcs != NULL)
		memcpy(d + 1, p->crcs, p->blocks * sizeof(*p->crcs));
	memcpy((void *)(uintptr_t)lsom__record_parts(d), p->parts,
	       p->parts_count * sizeof(*p->parts));
	d->data = p->flags & LSOM__F_HOLE ? 0 : 1; /* the place says where */
	rv = put(c, key_make('U', 3, comp->key, p->lsn, p->first), buf,
		 sizeof(*s) + len);
	free(buf);
	return rv;
}

static int comp_put(struct checkpoint *c, struct lsom_comp *comp)
{
	struct stored_comp s = { .deleted = comp->deleted };
	struct lsom__prep *p;
	struct lsom__op *op;
	uint8_t *buf, count[8];
	bool exact;
	int rv = 0;

	put_be64(count, lsom__count_stored(comp, &exact));
	memcpy(s.mapped, count + 2, sizeof(s.mapped));
	s.counted = comp->counted;
	if (s.counted == LSOM__COUNT_EXACT && !exact)
		s.counted = LSOM__COUNT_LEAST;
	op = lsom__state_op(comp, &comp->meta, comp->meta_sequence);
	if (op == NULL)
		return -ENOMEM;
	buf = malloc(sizeof(s) + op->len);
	if (buf != NULL) {
		memcpy(buf, &s, sizeof(s));
		memcpy(buf + sizeof(s), op->record, op->len);
		rv = put(c, key_make('C', 1, comp->key, 0, 0), buf,
			 sizeof(s) + op->len);
		free(buf);
	} else {
		rv = -ENOMEM;
	}
	lsom__op_free(op);
	if (rv == 0)
		rv = drop_all(c, 'U', comp->key);
	TAILQ_FOREACH (p, &comp->preps, link)
		if (rv == 0)
			rv = prep_put(c, comp, p);
	return rv;
}

/* Nothing of it is left, but its tomb. */
static int comp_drop(struct checkpoint *c, const struct lsom_comp *comp)
{
	int rv = drop_all(c, 'C', comp->key);

	if (rv == 0)
		rv = drop_all(c, 'B', comp->key);
	if (rv == 0)
		rv = drop_all(c, 'P', comp->key);
	return rv < 0 ? rv : drop_all(c, 'U', comp->key);
}

static int comps_put(struct checkpoint *c)
{
	struct lsom_comp *comp, *next;
	int rv;

	TAILQ_FOREACH_SAFE (comp, &c->disk->comps, link, next) {
		if (!comp->dirty || !comp->created)
			continue;
		rv = comp->reaped ? comp_drop(c, comp) : comp_put(c, comp);
		if (rv < 0)
			return rv;
		comp->dirty = false;
		if (comp->reaped)
			lsom__comp_forget(comp);
	}
	return 0;
}

/*
 * An opening does not read the header of a segment that is known.  One that was
 * not what it should be is read each time.
 */
static int header_put(struct checkpoint *c, uint32_t segment)
{
	struct lsom__segment *seg = &c->disk->segments[segment];
	struct key k = key_make('H', 1, segment, 0, 0);
	struct lsom__segment_header h;
	int rv = 0;

	if (seg->unreadable) {
		rv = drop(c, k);
		seg->header_stored = false;
	} else if (!seg->header_stored && seg->sequence != 0) {
		h = lsom__segment_header_of(c->disk, segment);
		rv = put(c, k, &h, sizeof(h));
		seg->header_stored = rv == 0;
	}
	return rv;
}

static int segments_put(struct checkpoint *c)
{
	struct lsom_disk *disk = c->disk;
	struct lsom__segment *seg;
	struct stored_segment s;
	uint32_t i;
	int rv;

	while ((seg = TAILQ_FIRST(&disk->changed)) != NULL) {
		i = (uint32_t)(seg - disk->segments);
		s = (struct stored_segment){
			.sequence = seg->sequence,
			.cleaned_number = seg->cleaned_number,
			.last_batch = seg->last_batch,
			.live = seg->live,
			.used = seg->used,
			.state = seg->state,
			.has_meta = seg->has_meta,
			.has_holes = seg->has_holes,
		};
		rv = put(c, key_make('S', 1, i, 0, 0), &s, sizeof(s));
		if (rv == 0)
			rv = header_put(c, i);
		if (rv < 0)
			return rv;
		TAILQ_REMOVE(&disk->changed, seg, change);
		seg->dirty = false;
	}
	return 0;
}

static int tombs_put(struct checkpoint *c)
{
	struct lsom__tomb *t;
	int rv;

	if (!c->disk->tombs_dirty)
		return 0;
	rv = drop_range(c, key_make('T', 0, 0, 0, 0),
			key_make('U', 0, 0, 0, 0));
	TAILQ_FOREACH (t, &c->disk->tombs, link)
		if (rv == 0)
			rv = put(c, key_make('T', 1, t->key, 0, 0), &t->pos,
				 sizeof(t->pos));
	c->disk->tombs_dirty = rv < 0;
	return rv;
}

/* The first batch of the head that was not applied: not in the tables. */
static uint64_t batch_first(const struct lsom__head *head)
{
	const struct lsom__batch *b = TAILQ_FIRST(&head->inflight);

	return b != NULL ? b->number : head->batch_next;
}

/* Every batch before these has been applied, so it is in the tables. */
static int position_put(struct checkpoint *c)
{
	struct lsom_disk *disk = c->disk;
	struct lsom__position p = {
		.version = POSITION_VERSION,
		.heads_count = LSOM__HEADS,
		.disk = disk->super.disk,
		.number = c->number,
		.pos_next = disk->pos_next,
		.key_next = disk->key_next,
	};
	const struct lsom__head *head;
	const struct lsom__batch *b;
	unsigned i;
	int rv;

	for (i = 0; i < LSOM__HEADS; i++) {
		head = &disk->heads[i];
		b = TAILQ_FIRST(&head->inflight);
		p.heads[i].generation = disk->super.generation;
		p.heads[i].batch = batch_first(head);
		p.heads[i].sequence = disk->sequence_next;
		if (b != NULL)
			p.heads[i].sequence =
				disk->segments[b->segment].sequence;
		else if (head->segment != LSOM__NONE)
			p.heads[i].sequence =
				disk->segments[head->segment].sequence;
	}
	rv = put(c, key_make('M', 0, 0, 0, 0), &p, sizeof(p));
	if (rv == 0)
		rv = put(c, key_make('I', 0, 0, 0, 0), &disk->super.index_made,
			 sizeof(disk->super.index_made));
	return rv;
}

static void checkpoint_done(struct checkpoint *c, int status)
{
	struct lsom_disk *disk = c->disk;
	struct lsom_checkpoint *req;
	struct lsom_comp *comp, *next;

	assert(disk->checkpoint == c);
	histogram_add(&times, env_now(disk->env) - c->since_ns);
	if (status < 0) {
		lsom__index_fail(disk, "writing the index", status);
	} else {
		disk->index_full &= disk->state == LSOM_DISK_FAILED;
		disk->flushed_number = c->number;
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
	kv_batch_fini(&c->batch);
	free(c->super.iov_base);
	free(c);
	if (status == 0) {
		lsom__segments_release(disk);
		lsom__pages_evict(disk);
		TAILQ_FOREACH_SAFE (comp, &disk->comps, link, next)
			if (comp->deleted)
				lsom__comp_reap(comp);
		lsom__cleaner_kick(disk);
		lsom__count_kick(disk);
	}
	if (disk->checkpoint_again || !TAILQ_EMPTY(&disk->checkpoint_reqs))
		lsom__checkpoint_start(disk);
	lsom__disk_changed(disk);
}

/* ---- in the store ---- */

static void apply_start(struct checkpoint *c);
static void flush_start(struct checkpoint *c);

static void room_asked(struct env_timer *timer)
{
	struct checkpoint *c = container_of(timer, struct checkpoint, again);

	if (c->disk->checkpoint_applied == c->number)
		flush_start(c);
	else
		apply_start(c);
}

/* Who closes the disk does not wait: the log has all of it. */
static bool room_awaited(const struct checkpoint *c)
{
	const struct lsom_disk *disk = c->disk;

	return c->status == -ENOSPC && !disk->closing &&
	       disk->state != LSOM_DISK_FAILED &&
	       (c->full_ns == 0 ||
		env_now(disk->env) - c->full_ns < ROOM_WAIT_NS);
}

static void store_failed(struct checkpoint *c)
{
	struct lsom_disk *disk = c->disk;

	if (!room_awaited(c)) {
		checkpoint_done(c, c->status);
		return;
	}
	if (c->full_ns == 0) {
		log_error("disk %s: no room to write its index: the log is not "
			  "let go until there is",
			  disk->path);
		c->full_ns = env_now(disk->env);
	}
	disk->index_full = true;
	c->again.cb = room_asked;
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

	if (c->status < 0) {
		store_failed(c);
		return;
	}
	if (disk->kv == NULL || disk->state == LSOM_DISK_FAILED) {
		checkpoint_done(c, 0);
		return;
	}
	disk->super.index_flushed = c->number;
	at = lsom__super_next(disk, c->super.iov_base);
	c->io.cb = super_done;
	env_dev_writev(disk->env, disk->dev, &c->io, &c->super, 1, at,
		       ENV_DURABLE);
}

static void apply_work(struct env_work *work)
{
	struct checkpoint *c = container_of(work, struct checkpoint, work);

	c->status = kv_apply(c->disk->kv, &c->batch);
}

static void apply_done(struct env_work *work)
{
	struct checkpoint *c = container_of(work, struct checkpoint, work);

	if (c->status < 0) {
		store_failed(c);
		return;
	}
	c->disk->checkpoint_applied = c->number;
	flush_start(c);
}

static void apply_start(struct checkpoint *c)
{
	c->work.work = apply_work;
	c->work.done = apply_done;
	env_work(c->disk->env, c->disk->index_lane, &c->work);
}

static void flush_start(struct checkpoint *c)
{
	c->work.work = flush_work;
	c->work.done = flush_done;
	env_work(c->disk->env, c->disk->flush_lane, &c->work);
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

/*
 * Some of the pages, while they are many and there are turns left: where they
 * change as fast as they are put, the last turn takes what there is.
 */
static int checkpoint_fill_some(struct checkpoint *c)
{
	size_t max = turn_pages(c->disk);
	int rv;

	if (c->turns == 0 || c->disk->dirty_count <= max)
		return 0;
	c->turns--;
	rv = pages_put_some(c, max);
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
		rv = pages_put_some(c, SIZE_MAX);
	if (rv == 0)
		rv = comps_put(c);
	if (rv == 0)
		rv = segments_put(c);
	if (rv == 0)
		rv = tombs_put(c);
	return rv == 0 ? position_put(c) : rv;
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
	c->disk = disk;
	c->filling = true;
	c->since_ns = env_now(disk->env);
	c->turns = 2 * (disk->dirty_count / turn_pages(disk));
	c->number = disk->checkpoint_number + 1;
	TAILQ_INIT(&c->reqs);
	kv_batch_init(&c->batch);
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
	disk->checkpoint_number = c->number;
	for (unsigned i = 0; i < LSOM__HEADS; i++)
		c->covered[i] = batch_first(&disk->heads[i]) - 1;
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
