/*
 * ahead: what a recovery will read next, many places at once.
 *
 * A disk has up to 131,072 segments, and a recovery wants a block of each, or
 * two, and the summaries of some.  One by one each would wait for the device, so
 * what is certain to be wanted is read a window at a time: headers, by their
 * places; then last blocks of segments, in the order in which a loop goes
 * through them; then, by what these say, the summaries.
 *
 * Nothing is decided here.  Who wants a place calls lsom__recovery_read() as
 * ever, and gets what was read ahead of it, the error, too, as if it had been
 * read now; if it is wanted again, it is read again.  While a recovery reads,
 * nobody writes, so the one is as new as the other.
 */
#include "lsom/recover_int.h"

#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

#define BODY_BLOCKS_MAX 4096u /* of all summaries in a window: 16 MiB */

static int window_init(struct lsom__window *w, uint32_t room)
{
	w->room = room;
	w->reads = calloc(LSOM__AHEAD, sizeof(*w->reads));
	w->mem = aligned_alloc(LSOM_BLOCK, (size_t)room * LSOM_BLOCK);
	return w->reads == NULL || w->mem == NULL ? -ENOMEM : 0;
}

int lsom__ahead_init(struct lsom__ahead *a, const struct lsom_disk *disk)
{
	uint32_t room = MIN(2 * disk->segment_blocks, BODY_BLOCKS_MAX);

	a->plan = calloc(disk->super.segments, sizeof(*a->plan));
	if (a->plan == NULL || window_init(&a->ones, LSOM__AHEAD) < 0)
		return -ENOMEM;
	return window_init(&a->bodies, room);
}

void lsom__ahead_fini(struct lsom__ahead *a)
{
	free(a->ones.reads);
	free(a->ones.mem);
	free(a->bodies.reads);
	free(a->bodies.mem);
	free(a->plan);
}

static void window_clear(struct lsom__window *w)
{
	w->count = w->next = w->blocks = 0;
}

/* False: it is full. */
static bool window_add(struct lsom__window *w, uint64_t place, uint32_t blocks)
{
	if (w->count == LSOM__AHEAD || blocks > w->room - w->blocks)
		return false;
	w->reads[w->count++] = (struct env_read){
		.buf = w->mem + (size_t)w->blocks * LSOM_BLOCK,
		.len = (size_t)blocks * LSOM_BLOCK,
		.offset = place * LSOM_BLOCK,
	};
	w->blocks += blocks;
	return true;
}

static void window_read(struct lsom_disk *disk, struct lsom__window *w)
{
	lsom__dev_asked(disk);
	env_dev_read_many_now(disk->env, disk->dev, w->reads, w->count);
	lsom__dev_answered(disk);
}

/* They are wanted in the order in which they were added; some are not. */
static bool window_take(struct lsom__window *w, uint64_t offset, size_t len,
			void *buf, int *result)
{
	const struct env_read *r;
	uint32_t i;

	for (i = w->next; i < w->count; i++) {
		r = &w->reads[i];
		if (r->offset != offset || r->len != len)
			continue;
		w->next = i + 1;
		*result = r->result;
		if (r->result == 0)
			memcpy(buf, r->buf, len);
		return true;
	}
	return false;
}

bool lsom__ahead_take(struct lsom__ahead *a, uint64_t offset, size_t len,
		      void *buf, int *result)
{
	return window_take(&a->ones, offset, len, buf, result) ||
	       window_take(&a->bodies, offset, len, buf, result);
}

void lsom__ahead_headers(struct lsom__recovery *rec, const uint32_t *segments,
			 uint32_t count)
{
	struct lsom__window *w = &rec->ahead.ones;
	uint32_t i;

	window_clear(w);
	for (i = 0; i < count; i++)
		if (!window_add(w, lsom__place(rec->disk, segments[i], 0), 1))
			break;
	window_read(rec->disk, w);
}

/* ---- summaries ---- */

void lsom__ahead_plan(struct lsom__ahead *a)
{
	a->plan_count = a->plan_next = 0;
	a->ones_from = a->ones_to = a->bodies_to = 0;
}

void lsom__ahead_add(struct lsom__ahead *a, uint32_t segment)
{
	a->plan[a->plan_count++] = segment;
}

/* The last blocks from place @at of the plan on. */
static void lasts_read(struct lsom__recovery *rec, uint32_t at)
{
	struct lsom_disk *disk = rec->disk;
	struct lsom__ahead *a = &rec->ahead;
	uint32_t last = disk->segment_blocks - 1, i;

	window_clear(&a->ones);
	for (i = at; i < a->plan_count; i++)
		if (!window_add(&a->ones, lsom__place(disk, a->plan[i], last),
				1))
			break;
	a->ones_from = at;
	a->ones_to = i;
	window_read(disk, &a->ones);
}

/* Blocks of the summary of place @at of the plan; 0: it is not there. */
static uint32_t body_blocks(const struct lsom__recovery *rec, uint32_t at)
{
	const struct lsom__ahead *a = &rec->ahead;
	const struct env_read *last = &a->ones.reads[at - a->ones_from];
	uint32_t segment = a->plan[at], blocks;

	if (last->result < 0)
		return 0;
	blocks = lsom__summary_blocks(last->buf, &rec->headers[segment],
				      rec->disk->segment_blocks);
	return blocks > a->bodies.room ? 0 : blocks;
}

static void bodies_read(struct lsom__recovery *rec, uint32_t at)
{
	struct lsom_disk *disk = rec->disk;
	struct lsom__ahead *a = &rec->ahead;
	uint32_t all = disk->segment_blocks, blocks, i;

	window_clear(&a->bodies);
	for (i = at; i < a->ones_to; i++) {
		blocks = body_blocks(rec, i);
		if (blocks > 0 &&
		    !window_add(&a->bodies,
				lsom__place(disk, a->plan[i], all - blocks),
				blocks))
			break;
	}
	a->bodies_to = i;
	window_read(disk, &a->bodies);
}

void lsom__ahead_next(struct lsom__recovery *rec)
{
	struct lsom__ahead *a = &rec->ahead;
	uint32_t at = a->plan_next++;

	assert(at < a->plan_count);
	if (at == a->ones_to)
		lasts_read(rec, at);
	if (at == a->bodies_to)
		bodies_read(rec, at);
}
