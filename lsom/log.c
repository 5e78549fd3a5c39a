/*
 * log: heads, batches, group commit.
 *
 * Records queue at a head; at the end of the turn everything that waits goes
 * into one batch: one durable gathered write of [header | data], data straight
 * from the callers' pages.  Several batches are in flight; their records are
 * applied, and so acknowledged, in batch order.  That order is what lets
 * recovery drop a torn tail: whatever was acknowledged lies before the first
 * batch that is missing (R27).
 *
 * After one failed write the disk is fail-stop: a write after it could succeed
 * and leave a hole that recovery takes for the end of the log.
 *
 * A head that finds no free segment waits for the cleaner.  Where none becomes
 * free and none is emptied any more, as on a disk that cannot be read, what waits
 * is answered with -ENOSPC.  While the disk, or the one that has its index, does not
 * answer nobody knows that.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/lsom_int.h"

#include "base/fletcher.h"
#include "base/log.h"
#include "base/spare.h"
#include "base/stats.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

/*
 * 30 s, in ticks: while the loop stands still, with the process or its machine,
 * nothing can get on, and the clock does.
 */
#define STALL_TICKS 7u
#define STALL_TICK_NS (5 * SEC)

static struct counter batches_total = {
	.name = "basalt_lsom_batches_total",
	.help = "Batches written to logs",
};
static struct counter blocks_total = {
	.name = "basalt_lsom_batch_blocks_total",
	.help = "Data blocks written to logs, moved ones included",
};

static struct histogram waits = {
	.name = "basalt_lsom_log_wait_seconds",
	.stage = "log wait",
	.rank = 30,
	.help = "writes until their batch goes to the disk: for others, for room",
};

static void head_run(struct lsom__head *head);

static void head_kick(struct env_task *task)
{
	head_run(container_of(task, struct lsom__head, kick));
}

static void stall_tick(struct env_timer *timer);

int lsom__log_init(struct lsom_disk *disk)
{
	struct lsom__head *head;
	struct lsom__batch *b;
	unsigned i, j;

	counter_register(&batches_total);
	counter_register(&blocks_total);
	histogram_register(&waits);
	disk->stall_timer.cb = stall_tick;
	TAILQ_INIT(&disk->log_waits);
	for (i = 0; i < LSOM__HEADS; i++) {
		head = &disk->heads[i];
		head->disk = disk;
		head->id = (uint16_t)i;
		head->segment = head->left = LSOM__NONE;
		head->batch_next = 1;
		STAILQ_INIT(&head->queue);
		TAILQ_INIT(&head->inflight);
		TAILQ_INIT(&head->idle);
		head->kick.cb = head_kick;
	}
	for (i = 0; i < LSOM__HEADS; i++) {
		head = &disk->heads[i];
		head->echo =
			malloc(sizeof(*head->echo) + LSOM__RECORDS_BYTES_MAX);
		if (head->echo == NULL) {
			lsom__log_fini(disk);
			return -ENOMEM;
		}
		memset(head->echo, 0, sizeof(*head->echo));
		for (j = 0; j < LSOM__BATCHES; j++) {
			b = &head->slots[j];
			b->head = head;
			STAILQ_INIT(&b->ops);
			/* One block more, for a segment's header. */
			b->header = aligned_alloc(LSOM_BLOCK,
						  LSOM__HEADER_BYTES_MAX +
							  LSOM_BLOCK);
			b->written = LSOM__HEADER_BYTES_MAX;
			b->iov = calloc(ENV_IOV_MAX, sizeof(*b->iov));
			if (b->header == NULL || b->iov == NULL) {
				lsom__log_fini(disk);
				return -ENOMEM;
			}
			TAILQ_INSERT_TAIL(&head->idle, b, link);
		}
	}
	return 0;
}

void lsom__log_fini(struct lsom_disk *disk)
{
	unsigned i, j;

	for (i = 0; i < LSOM__HEADS; i++) {
		assert(STAILQ_EMPTY(&disk->heads[i].queue));
		assert(TAILQ_EMPTY(&disk->heads[i].inflight));
		free(disk->heads[i].echo);
		disk->heads[i].echo = NULL;
		for (j = 0; j < LSOM__BATCHES; j++) {
			free(disk->heads[i].slots[j].header);
			free(disk->heads[i].slots[j].iov);
			disk->heads[i].slots[j].header = NULL;
			disk->heads[i].slots[j].iov = NULL;
		}
	}
}

/* ---- records on their way ---- */

struct lsom__op *lsom__op_new(struct lsom_disk *disk, struct lsom_comp *comp,
			      uint16_t type, size_t len)
{
	struct lsom__op *op;
	struct lsom__record *r;

	assert(len % 8 == 0);
	assert(len >= sizeof(struct lsom__record));
	op = spare_take(sizeof(*op) + len);
	if (op == NULL)
		return NULL;
	*op = (struct lsom__op){
		.disk = disk,
		.comp = comp,
		.len = (uint32_t)len,
	};
	r = (void *)op->record;
	memset(r, 0, len);
	r->type = type;
	r->len = (uint32_t)len;
	if (comp != NULL) {
		lsom__comp_ref(comp);
		r->component = comp->key;
	}
	return op;
}

void lsom__op_free(struct lsom__op *op)
{
	sgl_put(op->sgl);
	if (op->comp != NULL)
		lsom__comp_unref(op->comp);
	spare_give(op, sizeof(*op) + op->len);
}

static void later_run(struct env_task *task)
{
	struct lsom_disk *disk =
		container_of(task, struct lsom_disk, later_task);
	struct lsom__ops ops = STAILQ_HEAD_INITIALIZER(ops);
	struct lsom__op *op;

	STAILQ_CONCAT(&ops, &disk->later);
	while ((op = STAILQ_FIRST(&ops)) != NULL) {
		STAILQ_REMOVE_HEAD(&ops, link);
		assert(disk->works > 0);
		op->apply(op, op->status);
		disk->works--;
	}
	lsom__disk_changed(disk);
}

void lsom__later(struct lsom__op *op)
{
	struct lsom_disk *disk = op->disk;

	disk->works++;
	disk->later_task.cb = later_run;
	STAILQ_INSERT_TAIL(&disk->later, op, link);
	env_defer(disk->env, &disk->later_task);
}

/* ---- batches ---- */

struct plan {
	unsigned ops;
	uint32_t records, records_bytes, data_blocks, iovs;
	uint32_t echo_bytes; /* of the records of the batch before */
};

static size_t header_bytes(const struct plan *p)
{
	return sizeof(struct lsom__batch_header) + p->records_bytes +
	       sizeof(struct lsom__echo) + p->echo_bytes;
}

static uint32_t header_blocks(const struct plan *p)
{
	return (uint32_t)DIV_UP(header_bytes(p), LSOM_BLOCK);
}

/* Would a segment with @seg's contents still hold its summary behind this? */
static bool plan_fits(const struct lsom_disk *disk,
		      const struct lsom__segment *seg, const struct plan *p)
{
	uint64_t frames = (uint64_t)seg->frames_bytes +
			  sizeof(struct lsom__frame) + p->records_bytes;

	return seg->used + header_blocks(p) + p->data_blocks +
		       lsom__summary_need(frames) <=
	       disk->segment_blocks;
}

/*
 * Take as many waiting records as one batch in @seg can hold, beside an echo of
 * @echo_bytes.
 */
static struct plan plan_make(struct lsom__head *head,
			     const struct lsom__segment *seg,
			     uint32_t echo_bytes)
{
	struct plan p = { .iovs = 3, .echo_bytes = echo_bytes }, q;
	struct lsom__op *op;

	STAILQ_FOREACH (op, &head->queue, link) {
		q = p;
		q.ops++;
		q.records++;
		q.records_bytes += op->len;
		q.data_blocks += op->blocks;
		q.iovs += op->sgl ? MIN(op->sgl->pieces_count, ENV_IOV_MAX) : 0;
		if (q.records > UINT16_MAX ||
		    q.records_bytes > LSOM__RECORDS_BYTES_MAX ||
		    (p.ops > 0 && q.data_blocks > LSOM__BATCH_BLOCKS) ||
		    q.iovs > ENV_IOV_MAX || !plan_fits(head->disk, seg, &q))
			break;
		p = q;
	}
	return p;
}

static void segment_header_write(struct lsom_disk *disk, uint32_t segment,
				 uint8_t *block)
{
	const struct lsom__segment *seg = &disk->segments[segment];
	struct lsom__segment_header h = lsom__segment_header_of(disk, segment);

	if (seg->index_number == disk->flushed_number) {
		h.covered = disk->flushed_covered[LSOM__HEAD_CLEANER];
		h.covered_guest = disk->flushed_covered[LSOM__HEAD_GUEST];
	}

	memset(block, 0, LSOM_BLOCK);
	memcpy(block, &h, sizeof(h));
	lsom__segment_header_seal(block);
}

/* Copy the planned records behind the header; their places become known. */
static uint32_t records_place(struct lsom__batch *b, const struct plan *p,
			      uint8_t *out, uint32_t header_block)
{
	struct lsom__head *head = b->head;
	struct lsom_disk *disk = head->disk;
	struct lsom__segment *seg = &disk->segments[b->segment];
	uint32_t data = header_block + header_blocks(p);
	struct lsom__record *r;
	struct lsom__op *op;
	unsigned i;

	for (i = 0; i < p->ops; i++) {
		op = STAILQ_FIRST(&head->queue);
		STAILQ_REMOVE_HEAD(&head->queue, link);
		head->queued--;
		head->queued_blocks -= op->blocks;
		op->segment = b->segment;
		op->pos = b->pos;
		if (head->id == LSOM__HEAD_GUEST && op->blocks > 0)
			histogram_add(&waits,
				      env_now(disk->env) - op->since_ns);
		r = (void *)op->record;
		op->place = lsom__place(disk, b->segment,
					op->blocks ? data : header_block);
		if (r->type == LSOM__R_DATA) {
			((struct lsom__data_record *)r)->data =
				op->blocks ? data : 0;
			if (op->blocks == 0)
				seg->has_holes = true;
		} else {
			seg->has_meta = true;
		}
		data += op->blocks;
		memcpy(out, op->record, op->len);
		out += op->len;
		STAILQ_INSERT_TAIL(&b->ops, op, link);
	}
	return data - header_block;
}

static unsigned batch_iov(struct lsom__batch *b, uint32_t hb, bool first)
{
	struct lsom__op *op;
	size_t covered;
	unsigned n = 1;

	b->iov[0].iov_base = first ? b->header : b->header + LSOM_BLOCK;
	b->iov[0].iov_len = (size_t)(hb + (first ? 1 : 0)) * LSOM_BLOCK;
	STAILQ_FOREACH (op, &b->ops, link) {
		if (op->sgl == NULL)
			continue;
		n += sgl_iov(op->sgl, op->sgl_offset,
			     (size_t)op->blocks * LSOM_BLOCK, b->iov + n,
			     ENV_IOV_MAX - n, &covered);
		assert(covered == (size_t)op->blocks * LSOM_BLOCK);
	}
	return n;
}

/*
 * Whether a batch of a torn tail is whole is decided by its data, and CRC32C
 * alone cannot say: see base/fletcher.h.
 */
static uint32_t data_crc(const struct lsom__batch *b, unsigned iovs)
{
	struct fletcher f = { 0 };

	for (unsigned i = 1; i < iovs; i++)
		fletcher_add(&f, b->iov[i].iov_base, b->iov[i].iov_len);
	return fletcher_end(&f);
}

/* Repeat the batch before @b behind its records; then @b is the one before. */
static void echo_put(struct lsom__batch_header *h, const struct plan *p,
		     struct lsom__echo *echo, const struct lsom__segment *seg,
		     const struct lsom__frame *frame)
{
	uint8_t *records = (uint8_t *)(h + 1);
	struct lsom__echo *out = (void *)(records + p->records_bytes);

	assert(p->echo_bytes == echo->frame.records_bytes ||
	       p->echo_bytes == 0);
	memcpy(out, echo, sizeof(*out) + p->echo_bytes);
	out->frame.records_bytes = p->echo_bytes;
	echo->segment_sequence = seg->sequence;
	echo->used = seg->used;
	echo->frame = *frame;
	memcpy(echo + 1, records, p->records_bytes);
}

static void batch_done(struct env_io *io, int64_t res);

/* Seal and send @p of the queue into the head's segment.  0 or -ENOMEM. */
static int batch_submit(struct lsom__head *head, const struct plan *p)
{
	struct lsom_disk *disk = head->disk;
	struct lsom__segment *seg = &disk->segments[head->segment];
	struct lsom__batch *b = TAILQ_FIRST(&head->idle);
	uint32_t hb = header_blocks(p);
	uint32_t block = seg->used;
	struct lsom__batch_header *h = (void *)(b->header + LSOM_BLOCK);
	struct lsom__frame frame = {
		.batch = head->batch_next,
		.pos = disk->pos_next,
		.records_bytes = p->records_bytes,
		.records = (uint16_t)p->records,
		.version = LSOM__LOG_VERSION,
		.block = block,
	};
	const size_t bytes = header_bytes(p);
	bool first = block == 1;
	unsigned n;
	int rv;

	b->number = head->batch_next;
	b->pos = disk->pos_next;
	b->segment = head->segment;
	b->done = false;
	b->status = 0;
	/* Records and echo fill what is between. */
	memset(h, 0, sizeof(*h));
	if (b->written > bytes)
		memset((uint8_t *)h + bytes, 0, b->written - bytes);
	b->written = bytes;
	/* Room in the frames first: it alone can fail. */
	rv = lsom__segment_frame_room(seg, p->records_bytes);
	if (rv < 0)
		return rv;
	TAILQ_REMOVE(&head->idle, b, link);
	TAILQ_INSERT_TAIL(&head->inflight, b, link);
	records_place(b, p, (uint8_t *)(h + 1), block);
	h->magic = LSOM__BATCH_MAGIC;
	h->disk = disk->super.disk;
	h->generation = disk->super.generation;
	h->segment_sequence = seg->sequence;
	h->batch = b->number;
	h->durable_prefix = head->durable_prefix;
	h->pos = b->pos;
	h->head = head->id;
	h->version = LSOM__LOG_VERSION;
	h->header_blocks = (uint16_t)hb;
	h->records = (uint16_t)p->records;
	h->records_bytes = p->records_bytes;
	h->data_blocks = p->data_blocks;
	h->block = block;
	n = batch_iov(b, hb, first);
	h->data_crc = data_crc(b, n);
	frame.data_crc = h->data_crc;
	lsom__segment_frame(seg, &frame, h + 1);
	seg->used += hb + p->data_blocks;
	seg->headers += hb;
	echo_put(h, p, head->echo, seg, &frame);
	lsom__batch_seal(h, hb, bytes);
	if (first)
		segment_header_write(disk, head->segment, b->header);
	head->batch_next++;
	disk->pos_next++;
	seg->last_batch = b->number;
	seg->inflight++;
	lsom__segment_changed(disk, seg);
	assert(seg->used + lsom__summary_need(seg->frames_bytes) <=
	       disk->segment_blocks);
	counter_add(&batches_total, 1);
	counter_add(&blocks_total, p->data_blocks);
	b->io.cb = batch_done;
	env_dev_writev(disk->env, disk->dev, &b->io, b->iov, n,
		       lsom__place(disk, b->segment, first ? 0 : block) *
			       LSOM_BLOCK,
		       ENV_DURABLE);
	return 0;
}

static void queue_fail(struct lsom__head *head, int status)
{
	struct lsom__op *op;

	while ((op = STAILQ_FIRST(&head->queue)) != NULL) {
		STAILQ_REMOVE_HEAD(&head->queue, link);
		head->queued--;
		head->queued_blocks -= op->blocks;
		op->status = status;
		lsom__later(op);
	}
	head->waits = 0;
}

static void stall_tick_start(struct lsom_disk *disk)
{
	if (!disk->stall_ticking)
		env_timer_start(disk->env, &disk->stall_timer, STALL_TICK_NS);
	disk->stall_ticking = true;
}

/* No memory for a batch: the end of one in flight tries again, or the tick. */
static void head_starved(struct lsom__head *head)
{
	if (TAILQ_EMPTY(&head->inflight))
		stall_tick_start(head->disk);
}

/* No segment is free: until one is, or the cleaner does not get on. */
static void head_wait(struct lsom__head *head)
{
	struct lsom_disk *disk = head->disk;

	head->waits = MAX(head->waits, 1u);
	stall_tick_start(disk);
	/* What is cleaned waits for a checkpoint. */
	if (disk->checkpoint == NULL)
		lsom__checkpoint_start(disk);
	lsom__cleaner_kick(disk);
}

static void stall_tick(struct env_timer *timer)
{
	struct lsom_disk *disk =
		container_of(timer, struct lsom_disk, stall_timer);
	const bool silent = lsom__disk_silent(disk) || lsom__index_silent(disk);
	const unsigned tick = silent ? 0 : 1;
	struct lsom__head *head;
	unsigned i;

	disk->stall_ticking = false;
	disk->ticks_stalled += tick;
	for (i = 0; i < LSOM__HEADS; i++) {
		head = &disk->heads[i];
		if (head->waits == 0) {
			if (!STAILQ_EMPTY(&head->queue))
				env_defer(disk->env, &head->kick);
			continue;
		}
		if (tick == 0 ||
		    MIN(head->waits, disk->ticks_stalled) < STALL_TICKS) {
			head->waits += tick;
			head_wait(head);
			continue;
		}
		log_error("disk %s: no segment becomes free: %u request%s "
			  "refused",
			  disk->path, head->queued,
			  head->queued == 1 ? " is" : "s are");
		queue_fail(head, -ENOSPC);
	}
}

bool lsom__head_leave(struct lsom__head *head)
{
	struct lsom_disk *disk = head->disk;
	uint32_t segment = head->segment;

	if (segment == LSOM__NONE || disk->segments[segment].used == 1)
		return false;
	head->segment = LSOM__NONE;
	head->left = segment;
	lsom__segment_close(disk, segment);
	return true;
}

static void head_run(struct lsom__head *head)
{
	struct lsom_disk *disk = head->disk;
	struct lsom__segment *seg;
	struct plan p;

	if (disk->state == LSOM_DISK_FAILED)
		queue_fail(head, -ENODEV);
	while (!STAILQ_EMPTY(&head->queue) && !TAILQ_EMPTY(&head->idle)) {
		if (head->segment == LSOM__NONE) {
			head->segment = lsom__segment_take(disk, head->id);
			if (head->segment == LSOM__NONE) {
				head_wait(head);
				return; /* kicked when one is free */
			}
			head->waits = 0;
		}
		seg = &disk->segments[head->segment];
		p = plan_make(head, seg, head->echo->frame.records_bytes);
		if (p.ops == 0 && seg->used == 1)
			p = plan_make(head, seg, 0);
		if (p.ops == 0) {
			/* An empty segment holds any record we accept. */
			assert(seg->used > 1);
			(void)lsom__head_leave(head);
			continue;
		}
		if (batch_submit(head, &p) < 0) {
			head_starved(head);
			return;
		}
	}
}

/* Apply, in order, the batches that are durable. */
static void head_complete(struct lsom__head *head)
{
	struct lsom_disk *disk = head->disk;
	struct lsom__ops ops;
	struct lsom__batch *b;
	struct lsom__op *op;
	int status;

	while ((b = TAILQ_FIRST(&head->inflight)) != NULL && b->done) {
		if (b->status < 0)
			lsom__disk_fail(disk, "writing the log", b->status);
		/* What follows a failed write is lost with it. */
		status = disk->state == LSOM_DISK_FAILED ? -ENODEV : 0;
		if (b->status < 0)
			status = -EIO;
		if (status == 0)
			head->durable_prefix = b->number;
		STAILQ_INIT(&ops);
		STAILQ_CONCAT(&ops, &b->ops);
		/*
		 * The batch stays in flight while its records are applied, so
		 * that none of them counts as applied too early.
		 */
		while ((op = STAILQ_FIRST(&ops)) != NULL) {
			STAILQ_REMOVE_HEAD(&ops, link);
			op->apply(op, status);
		}
		TAILQ_REMOVE(&head->inflight, b, link);
		TAILQ_INSERT_TAIL(&head->idle, b, link);
		assert(disk->segments[b->segment].inflight > 0);
		if (--disk->segments[b->segment].inflight == 0 &&
		    disk->segments[b->segment].state == LSOM__SEG_CLOSING)
			lsom__segment_close(disk, b->segment);
	}
}

bool lsom__log_settled(struct lsom_disk *disk, struct lsom__log_wait *wait)
{
	wait->pos = disk->pos_next;
	if (lsom__log_applied_pos(disk) >= wait->pos)
		return true;
	TAILQ_INSERT_TAIL(&disk->log_waits, wait, link);
	return false;
}

static void waits_run(struct lsom_disk *disk)
{
	struct lsom__log_wait *wait;

	while ((wait = TAILQ_FIRST(&disk->log_waits)) != NULL &&
	       lsom__log_applied_pos(disk) >= wait->pos) {
		TAILQ_REMOVE(&disk->log_waits, wait, link);
		wait->cb(wait);
	}
}

static void batch_done(struct env_io *io, int64_t res)
{
	struct lsom__batch *b = container_of(io, struct lsom__batch, io);
	struct lsom__head *head = b->head;

	assert(!b->done);
	b->done = true;
	b->status = res < 0 && lsom__rule(head->disk, LSOM_OFF_FAIL_STOP)
			    ? (int)res
			    : 0;
	head_complete(head);
	waits_run(head->disk);
	if (!STAILQ_EMPTY(&head->queue))
		env_defer(head->disk->env, &head->kick);
	if (lsom__checkpoint_due(head->disk))
		lsom__checkpoint_start(head->disk);
	lsom__disk_changed(head->disk);
}

/* ---- from outside ---- */

void lsom__log_append(struct lsom_disk *disk, unsigned id, struct lsom__op *op)
{
	struct lsom__head *head = &disk->heads[id];
	struct lsom__op *stable;

	assert(op->apply != NULL);
	if (disk->state == LSOM_DISK_FAILED) {
		op->status = -ENODEV;
		lsom__later(op);
		return;
	}
	op->since_ns = env_now(disk->env);
	STAILQ_INSERT_TAIL(&head->queue, op, link);
	head->queued++;
	head->queued_blocks += op->blocks;
	/* What is decided rides along (g0: stable_lsn is persisted lazily). */
	if (op->comp != NULL && op->comp->decided_dirty &&
	    id == LSOM__HEAD_GUEST) {
		op->comp->decided_dirty = false;
		stable = lsom__stable_op(op->comp);
		if (stable != NULL) {
			STAILQ_INSERT_TAIL(&head->queue, stable, link);
			head->queued++;
		} else {
			op->comp->decided_dirty = true;
		}
	}
	env_defer(disk->env, &head->kick);
}

void lsom__log_kick(struct lsom_disk *disk)
{
	unsigned i;

	for (i = 0; i < LSOM__HEADS; i++)
		if (!STAILQ_EMPTY(&disk->heads[i].queue))
			env_defer(disk->env, &disk->heads[i].kick);
}

/*
 * Data waits in its pages, which others may need: behind a device that does not
 * answer there is a batch of it at most, or what waited before.
 */
bool lsom__log_busy(const struct lsom_disk *disk, unsigned blocks)
{
	const struct lsom__head *head = &disk->heads[LSOM__HEAD_GUEST];

	if (head->queued >= LSOM__OPS_MAX ||
	    head->queued_blocks + blocks > LSOM__QUEUE_BLOCKS)
		return true;
	return blocks > 0 &&
	       head->queued_blocks + blocks > LSOM__BATCH_BLOCKS &&
	       lsom__disk_silent(disk);
}

bool lsom__log_idle(const struct lsom_disk *disk)
{
	unsigned i;

	for (i = 0; i < LSOM__HEADS; i++)
		if (!STAILQ_EMPTY(&disk->heads[i].queue) ||
		    !TAILQ_EMPTY(&disk->heads[i].inflight))
			return false;
	return true;
}

uint64_t lsom__log_applied_pos(const struct lsom_disk *disk)
{
	uint64_t pos = disk->pos_next;
	const struct lsom__batch *b;
	unsigned i;

	for (i = 0; i < LSOM__HEADS; i++) {
		b = TAILQ_FIRST(&disk->heads[i].inflight);
		if (b != NULL)
			pos = MIN(pos, b->pos);
	}
	return pos;
}
