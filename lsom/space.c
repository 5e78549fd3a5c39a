/*
 * space: what guests may fill, and what of it is promised to whom.
 *
 * A component uses the blocks that its index points to, those of its undecided
 * versions, and those it has credit for.  What was promised to it and is not
 * used is kept for it.  Over a disk:
 *
 *	used by all + kept for all <= usable
 *
 * A write that its component's own promise covers leaves the sum as it is.  Any
 * other one needs room in it: it cannot have what is kept for somebody else.
 * What a component unmaps is kept for it again, so a promise survives that.
 *
 * A write has its old version beside it until it is decided, so one of a
 * component that is promised its whole size, and has filled it, needs blocks
 * beyond the promise, for a while.  The disk's reserve lends them; when it has
 * lent all it may, the write is told to come again, never that the disk is full.
 *
 *	usable			what all but these may fill
 *	+ reserve / 8		what the index is not sure of (below); up to here
 *				a promise is kept also where that was wrong
 *	+ reserve / 8		lent
 *
 * Each component has one number, what is promised less what is used, so that a
 * view's shard, which takes credit, and the disk's home can both change it: what
 * is kept for it is that number while it is above zero, and whoever changes it
 * changes the disk's sum by the difference.  Where blocks go from one count to
 * another they are in both for a moment, never in none: another shard may look.
 * It is not told then that the disk is full, but to come again (disk->transits).
 *
 * How many blocks the index points to is counted as it changes, and kept with
 * the component's state at a checkpoint (count.c).
 */
#include "lsom/view_int.h"

#include "base/util.h"

#include <errno.h>

/* ---- from one count to another ---- */

/* Those under way, which may be nested, and above them those that have ended. */
#define TRANSIT_ENDED (1ull << 32)

void lsom__transit_begin(struct lsom_disk *disk)
{
	disk->transits++;
}

void lsom__transit_end(struct lsom_disk *disk)
{
	disk->transits += TRANSIT_ENDED - 1;
}

/* Has nothing moved since @transits were seen? */
static bool still(const struct lsom_disk *disk, uint64_t transits)
{
	return transits % TRANSIT_ENDED == 0 && disk->transits == transits;
}

/* ---- counting ---- */

/* The component on the disk itself, also of one of a view. */
static struct lsom_comp *real_of(struct lsom_comp *comp)
{
	return comp->far != NULL ? comp->far->real : comp;
}

static void spare_add(struct lsom_disk *disk, struct lsom_comp *comp, int64_t n)
{
	int64_t before = atomic_fetch_add(&comp->spare, n);

	disk->promised += (uint64_t)(MAX(before + n, (int64_t)0) -
				     MAX(before, (int64_t)0));
}

void lsom__comp_used(struct lsom_comp *comp, int64_t blocks)
{
	struct lsom_comp *real = real_of(comp);

	spare_add(real->disk, real, -blocks);
}

void lsom__credits_add(struct lsom_comp *comp, uint64_t blocks)
{
	struct lsom_disk *disk = real_of(comp)->disk;

	lsom__transit_begin(disk);
	disk->credits += blocks;
	lsom__comp_used(comp, (int64_t)blocks);
	lsom__transit_end(disk);
}

void lsom__credits_drop(struct lsom_comp *comp, uint64_t blocks)
{
	struct lsom_disk *disk = real_of(comp)->disk;

	assert(disk->credits >= blocks);
	lsom__transit_begin(disk);
	lsom__comp_used(comp, -(int64_t)blocks);
	disk->credits -= blocks;
	lsom__transit_end(disk);
}

/* ---- who gets how much ---- */

/*
 * What a change replaced is not known while its page is being read.  It counts
 * as freed, or an UNMAP of a full disk would not give room at once; where that
 * was wrong, the reserve has lent a little.
 */
static uint64_t unsure(const struct lsom_disk *disk)
{
	return MIN(disk->unknown, disk->reserve_blocks / 8);
}

/* Will some of what is used be given back with nobody asking for it? */
static bool passing(const struct lsom_disk *disk)
{
	return disk->credits > 0 || disk->undecided > 0 || disk->unknown > 0;
}

/*
 * May @comp, of @size blocks, have @blocks more, while @credits are out?  0,
 * -ENOSPC, or -EBUSY: not now, but it will.
 */
static int admit(const struct lsom_comp *comp, uint64_t size, uint64_t credits,
		 uint64_t blocks)
{
	const struct lsom_disk *disk = comp->disk;
	uint64_t eighth = disk->reserve_blocks / 8;
	int64_t spare = comp->spare;
	uint64_t own = MIN((uint64_t)MAX(spare, (int64_t)0), blocks);
	uint64_t more = blocks - own, promise = comp->promise;
	uint64_t held = disk->live_blocks + credits;
	int64_t settled;

	if (blocks > disk->usable_blocks)
		return -ENOSPC;
	if (held + disk->promised + more <= disk->usable_blocks + unsure(disk))
		return 0;
	if (promise == 0)
		return -ENOSPC;
	if (more == 0) {
		if (held + blocks <= disk->usable_blocks + eighth)
			return 0;
		return passing(disk) ? -EBUSY : -ENOSPC;
	}
	if (promise >= size) { /* some of it replaces what is there */
		if (held + blocks <= disk->usable_blocks + 2 * eighth)
			return 0;
		return passing(disk) ? -EBUSY : -ENOSPC;
	}
	/* Versions that are on their way may replace others, or fail. */
	settled = (int64_t)comp->mapped - (int64_t)comp->unknown;
	return settled + (int64_t)blocks <= (int64_t)promise ? -EBUSY : -ENOSPC;
}

int lsom__space_take(struct lsom_comp *comp, uint64_t blocks)
{
	struct lsom_comp *real = real_of(comp);
	struct lsom_disk *disk = real->disk;
	uint64_t size = comp->meta.size_bytes / LSOM_BLOCK;
	bool taken;

	do {
		uint64_t transits = disk->transits;
		uint64_t credits = disk->credits;
		int rv = admit(real, size, credits, blocks);

		if (rv == -ENOSPC && !still(disk, transits))
			return -EBUSY;
		if (rv < 0)
			return rv;
		lsom__transit_begin(disk);
		taken = atomic_compare_exchange_weak(&disk->credits, &credits,
						     credits + blocks);
		if (taken)
			lsom__comp_used(comp, (int64_t)blocks);
		lsom__transit_end(disk);
	} while (!taken);
	return 0;
}

bool lsom__space(const struct lsom_disk *disk)
{
	return disk->live_blocks + disk->credits <
	       disk->usable_blocks + unsure(disk);
}

uint64_t lsom__space_missing(const struct lsom_disk *disk)
{
	uint64_t want = disk->live_blocks + disk->promised;
	uint64_t passing = disk->undecided + disk->unknown;
	uint64_t have = disk->usable_blocks + disk->reserve_blocks / 8;

	want -= MIN(want, passing);
	return disk->promised > 0 && want > have
		       ? MIN(want - have, (uint64_t)disk->promised)
		       : 0;
}

/* ---- credits ---- */

int lsom_credit_take(struct lsom_comp *comp, uint64_t blocks)
{
	int rv = lsom__state_of(comp->disk);

	if (rv < 0)
		return rv;
	if (comp->deleted)
		return -ENOENT;
	rv = lsom__space_take(comp, blocks);
	if (rv < 0)
		return rv;
	comp->credits += blocks;
	lsom__disk_changed(comp->disk);
	return 0;
}

void lsom_credit_return(struct lsom_comp *comp, uint64_t blocks)
{
	/* What a restart or a deletion ended is not there to be returned. */
	blocks = MIN(blocks, comp->credits);
	comp->credits -= blocks;
	lsom__credits_drop(comp, blocks);
	lsom__disk_changed(comp->disk);
}

/* ---- promises ---- */

uint64_t lsom_comp_kept(struct lsom_comp *comp)
{
	int64_t spare = real_of(comp)->spare;

	return (uint64_t)MAX(spare, (int64_t)0) * LSOM_BLOCK;
}

static void there_count(struct env_task *task)
{
	struct lsom__far *far = container_of(task, struct lsom__far, count);

	far->count_sent = false;
	lsom__count_look(far->real);
	lsom__count_kick(far->real->disk);
}

static void count_ask(struct lsom_comp *comp)
{
	struct lsom__far *far = comp->far;

	real_of(comp)->count_asked = true;
	if (far == NULL) {
		lsom__count_look(comp);
		lsom__count_kick(comp->disk);
		return;
	}
	/* One way: the component is let go behind it. */
	if (atomic_exchange(&far->count_sent, true))
		return;
	far->count.cb = there_count;
	env_post(comp->disk->view->there, &far->count);
}

bool lsom_comp_used(struct lsom_comp *comp, uint64_t *bytes)
{
	struct lsom_comp *real = real_of(comp);

	if (lsom__state_of(comp->disk) < 0)
		return false;
	if (real->counted != LSOM__COUNT_EXACT) {
		count_ask(comp);
		return false;
	}
	*bytes = (uint64_t)MAX(real->mapped, (int64_t)0) * LSOM_BLOCK;
	return real->unknown == 0;
}

void lsom__promise_set(struct lsom_comp *comp)
{
	/* Until its blocks are counted nobody knows what is left of it. */
	uint64_t now = comp->counted == LSOM__COUNT_NONE || comp->deleted
			       ? 0
			       : comp->reserved;
	uint64_t before = comp->promise;

	if (now == before)
		return;
	comp->promise = now;
	spare_add(comp->disk, comp, (int64_t)now - (int64_t)before);
	lsom__disk_changed(comp->disk);
}

static void reserve(struct lsom_comp *comp, uint64_t blocks)
{
	comp->reserved = blocks;
	lsom__promise_set(comp);
	lsom__count_look(comp);
	lsom__count_kick(comp->disk);
}

static void there_reserve(struct env_task *task)
{
	struct lsom__far *far = container_of(task, struct lsom__far, reserve);

	far->reserve_sent = false;
	reserve(far->real, far->reserved);
}

void lsom_comp_reserve(struct lsom_comp *comp, uint64_t bytes)
{
	uint64_t blocks =
		DIV_UP(MIN(bytes, LSOM__COMP_BYTES_MAX), (uint64_t)LSOM_BLOCK);
	struct lsom__far *far = comp->far;

	if (comp->deleted)
		return;
	if (far == NULL) {
		reserve(comp, blocks);
		return;
	}
	/* One way: the component is let go behind it. */
	far->reserved = blocks;
	if (atomic_exchange(&far->reserve_sent, true))
		return;
	far->reserve.cb = there_reserve;
	env_post(comp->disk->view->there, &far->reserve);
}
