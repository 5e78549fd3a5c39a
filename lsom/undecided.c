/*
 * undecided: versions that are durable and not yet committed, beside the index.
 *
 * A prepared version leaves the table when it is decided: committed, its blocks
 * go into the index where their version is the larger one (R38); aborted, its
 * blocks are dead and the pair (lsn, member_csn) goes into the abort set, which
 * bars both a late PREP (R41) and the record's return in a replay.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/lsom_int.h"

#include "base/log.h"
#include "base/spare.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

struct lsom__prep *lsom__prep_new(const struct lsom__data_record *d,
				  uint64_t place, uint64_t pos)
{
	size_t crcs = lsom__record_crcs_bytes(d->r.flags, d->blocks);
	size_t parts = d->parts * sizeof(struct uuid);
	struct lsom__prep *p = spare_take(sizeof(*p) + crcs + parts);

	if (p == NULL)
		return NULL;
	*p = (struct lsom__prep){
		.lsn = d->r.lsn,
		.member_csn = d->r.member_csn,
		.first = d->first,
		.blocks = d->blocks,
		.place = place,
		.pos = pos,
		.flags = d->r.flags & (LSOM__F_HOLE | LSOM__F_ATOMIC),
		.parts_count = d->parts,
		.mem_bytes = (uint32_t)(crcs + parts),
		.crcs = crcs ? p->mem : NULL,
		.parts = (const void *)((uint8_t *)p->mem + crcs),
	};
	memcpy(p->mem, lsom__record_crcs(d), crcs + parts);
	return p;
}

void lsom__prep_free(struct lsom__prep *prep)
{
	if (prep != NULL)
		spare_give(prep, sizeof(*prep) + prep->mem_bytes);
}

static uint64_t prep_live(const struct lsom__prep *prep)
{
	return prep->flags & LSOM__F_HOLE ? 0 : prep->blocks;
}

void lsom__prep_insert(struct lsom_comp *comp, struct lsom__prep *prep)
{
	struct lsom__prep *before;

	/* Mostly in order: look from the end. */
	TAILQ_FOREACH_REVERSE(before, &comp->preps, lsom__preps, link)
	if (before->lsn <= prep->lsn)
		break;
	if (before != NULL)
		TAILQ_INSERT_AFTER(&comp->preps, before, prep, link);
	else
		TAILQ_INSERT_HEAD(&comp->preps, prep, link);
	comp->preps_count++;
	comp->disk->undecided += prep_live(prep);
	lsom__segment_live(comp->disk, prep->place, (int64_t)prep_live(prep));
	lsom__comp_used(comp, (int64_t)prep_live(prep));
	lsom__comp_dirty(comp);
}

void lsom__prep_remove(struct lsom_comp *comp, struct lsom__prep *prep)
{
	assert(comp->preps_count > 0);
	comp->preps_count--;
	TAILQ_REMOVE(&comp->preps, prep, link);
	lsom__transit_begin(comp->disk);
	comp->disk->undecided -= prep_live(prep);
	lsom__comp_used(comp, -(int64_t)prep_live(prep));
	lsom__segment_live(comp->disk, prep->place, -(int64_t)prep_live(prep));
	lsom__transit_end(comp->disk);
	lsom__comp_dirty(comp);
}

struct lsom__prep *lsom__prep_find(const struct lsom_comp *comp, uint64_t lsn)
{
	struct lsom__prep *p;

	TAILQ_FOREACH (p, &comp->preps, link)
		if (p->lsn == lsn)
			return p;
	return NULL;
}

struct lsom__prep *lsom__prep_same(const struct lsom_comp *comp, uint64_t lsn,
				   uint64_t first, uint64_t blocks)
{
	struct lsom__prep *p;

	TAILQ_FOREACH (p, &comp->preps, link)
		if (p->lsn == lsn && p->first == first && p->blocks == blocks)
			return p;
	return NULL;
}

bool lsom__decided(const struct lsom_decided *decided, uint64_t lsn)
{
	uint64_t i;

	if (lsn <= decided->stable_lsn)
		return true;
	i = lsn - decided->stable_lsn - 1;
	return i < LSOM_WINDOW && (decided->committed[i / 8] >> (i % 8) & 1);
}

/* The first page at or above @block's that an undecided version below @lsn has. */
static uint64_t older_page(const struct lsom_comp *comp, uint64_t lsn,
			   uint64_t block)
{
	uint64_t next = UINT64_MAX;
	const struct lsom__prep *p;

	TAILQ_FOREACH (p, &comp->preps, link) {
		if (p->lsn >= lsn)
			break;
		if (p->first + p->blocks > block)
			next = MIN(next,
				   MAX(p->first, block) / LSOM__PAGE_SLOTS);
	}
	return next;
}

/* The first page that a hole at @lsn has to be entered in; UINT64_MAX: none. */
static uint64_t hole_page_next(const struct lsom_comp *comp, uint64_t lsn,
			       uint64_t block)
{
	return MIN(lsom__page_next(comp, block / LSOM__PAGE_SLOTS),
		   older_page(comp, lsn, block));
}

/*
 * On a whole replica a block that was never written needs no hole: nothing older
 * can come for it.  On one being filled a copy may be on its way, and the entry
 * bars it; in a replay an older version may stand in a later segment; of a damaged
 * one the entry says that the block is not lost any more; and where the index is
 * made from the log alone, what was written there may be gone with its segment,
 * while a peer still has it.
 */
static bool hole_everywhere(const struct lsom_comp *comp, uint64_t lsn)
{
	const struct lsom_disk *disk = comp->disk;
	bool rebuild = disk->recovery != NULL && disk->position.number == 0;

	return comp->meta.state_seen != LSOM_ACTIVE || disk->replaying ||
	       comp->meta.damaged != 0 ||
	       (rebuild && lsn > comp->decided.hole_floor);
}

void lsom__range_apply(struct lsom_comp *comp, uint64_t first, uint64_t blocks,
		       uint64_t place, const uint32_t *crcs, bool hole,
		       uint64_t member_csn, uint64_t lsn, enum lsom__apply how,
		       uint64_t source)
{
	struct lsom__entry e = {
		.member_csn = member_csn,
		.lsn = lsn,
		.place = place,
		.kind = hole ? LSOM__E_HOLE : LSOM__E_RAW,
	};
	/* Also behind the present end: holes there bar what was before. */
	const uint64_t limit = LSOM__COMP_BYTES_MAX / LSOM_BLOCK;
	const uint64_t end = first + MIN(blocks, limit - MIN(first, limit));
	uint64_t at, next;
	unsigned n;
	int rv;

	for (at = first; at < end; at += n) {
		/* An older version may also be in the table, undecided. */
		if (hole && !hole_everywhere(comp, lsn) &&
		    !lsom__page_exists(comp, at / LSOM__PAGE_SLOTS)) {
			next = hole_page_next(comp, lsn, at);
			if (next == UINT64_MAX ||
			    next * LSOM__PAGE_SLOTS >= end)
				return;
			at = MAX(at, next * LSOM__PAGE_SLOTS);
		}
		if (!hole)
			e.place = place + (at - first);
		n = (unsigned)MIN(end - at,
				  LSOM__PAGE_SLOTS - at % LSOM__PAGE_SLOTS);
		rv = lsom__index_apply(
			comp, at, n, &e, hole ? NULL : crcs + (at - first), how,
			source == 0 || hole ? source : source + (at - first));
		if (rv < 0) {
			/* The record is durable: a restart applies it. */
			lsom__index_fail(comp->disk, "changing the index", rv);
			return;
		}
	}
}

void lsom__prep_commit(struct lsom_comp *comp, struct lsom__prep *prep)
{
	lsom__transit_begin(comp->disk);
	lsom__range_apply(comp, prep->first, prep->blocks, prep->place,
			  prep->crcs, prep->flags & LSOM__F_HOLE,
			  prep->member_csn, prep->lsn, LSOM__APPLY_NEWER, 0);
	comp->meta.max_committed = MAX(comp->meta.max_committed, prep->lsn);
	lsom__prep_drop(comp, prep);
	lsom__transit_end(comp->disk);
}

void lsom__prep_drop(struct lsom_comp *comp, struct lsom__prep *prep)
{
	lsom__prep_remove(comp, prep);
	lsom__prep_free(prep);
}

/* ---- aborts ---- */

/* A session's bars those before it, too. */
static bool abort_bars(const struct lsom__abort *a, uint64_t lsn,
		       uint64_t member_csn)
{
	return a->lsn == lsn && a->member_csn >= member_csn;
}

bool lsom__aborted(const struct lsom_comp *comp, uint64_t lsn,
		   uint64_t member_csn)
{
	unsigned i;

	for (i = 0; i < comp->aborts_count; i++)
		if (abort_bars(&comp->aborts[i], lsn, member_csn))
			return true;
	return false;
}

/*
 * Where what a new one bars lies before.  A replay of the whole log meets all of
 * that, and says so: lsom__aborts_replayed().
 */
static uint64_t abort_pos(const struct lsom_disk *disk)
{
	return disk->recovery != NULL && disk->position.number == 0
		       ? 0
		       : LSOM__POS_LATER;
}

int lsom__abort_add(struct lsom_comp *comp, uint64_t lsn, uint64_t member_csn)
{
	unsigned room = MAX(8u, comp->aborts_room * 2);
	struct lsom__abort *aborts;
	uint64_t *pos;

	if (lsom__aborted(comp, lsn, member_csn))
		return 0;
	/* The log may have some that were forgotten since. */
	if (comp->aborts_count >= LSOM__ABORTS_MAX &&
	    comp->disk->recovery == NULL)
		return -EBUSY;
	if (comp->aborts_count == comp->aborts_room) {
		aborts = realloc(comp->aborts, room * sizeof(*aborts));
		if (aborts == NULL)
			return -ENOMEM;
		comp->aborts = aborts;
		pos = realloc(comp->aborts_pos, room * sizeof(*pos));
		if (pos == NULL)
			return -ENOMEM;
		comp->aborts_pos = pos;
		comp->aborts_room = room;
	}
	if (comp->aborts_count == 0)
		TAILQ_INSERT_TAIL(&comp->disk->aborting, comp, abort_link);
	comp->aborts_pos[comp->aborts_count] = abort_pos(comp->disk);
	comp->aborts[comp->aborts_count++] = (struct lsom__abort){
		.lsn = lsn,
		.member_csn = member_csn,
	};
	lsom__comp_dirty(comp);
	return 0;
}

bool lsom__abort_meets(struct lsom_comp *comp, uint64_t lsn,
		       uint64_t member_csn)
{
	bool any = false;
	unsigned i;

	for (i = 0; i < comp->aborts_count; i++) {
		if (!abort_bars(&comp->aborts[i], lsn, member_csn))
			continue;
		comp->aborts_pos[i] = LSOM__POS_LATER;
		any = true;
	}
	return any;
}

int lsom__aborts_replayed(struct lsom_comp *comp)
{
	if (comp->disk->position.number == 0)
		lsom__aborts_prune(comp, 0);
	return comp->aborts_count > LSOM__ABORTS_MAX ? -EUCLEAN : 0;
}

void lsom__aborts_settle(struct lsom_comp *comp, uint64_t pos)
{
	unsigned i;

	for (i = 0; i < comp->aborts_count; i++)
		comp->aborts_pos[i] = MIN(comp->aborts_pos[i], pos);
}

void lsom__aborts_prune(struct lsom_comp *comp, uint64_t oldest)
{
	unsigned i, n = 0;

	for (i = 0; i < comp->aborts_count; i++) {
		if (comp->aborts_pos[i] <= oldest &&
		    comp->aborts[i].lsn <= comp->meta.stable_lsn)
			continue;
		comp->aborts[n] = comp->aborts[i];
		comp->aborts_pos[n++] = comp->aborts_pos[i];
	}
	if (n == comp->aborts_count)
		return;
	comp->aborts_count = n;
	if (n == 0)
		TAILQ_REMOVE(&comp->disk->aborting, comp, abort_link);
	lsom__comp_dirty(comp);
}

/* ---- what is decided ---- */

bool lsom__committed(const struct lsom_comp *comp, uint64_t lsn)
{
	size_t i;

	if (lsom__decided(&comp->decided, lsn))
		return true;
	for (i = 0; i < comp->committed_count; i++)
		if (comp->committed[i] == lsn)
			return true;
	return false;
}

int lsom__committed_add(struct lsom_comp *comp, uint64_t lsn)
{
	size_t room = MAX((size_t)16, comp->committed_room * 2), i, n;
	uint64_t *p;

	if (lsom__decided(&comp->decided, lsn))
		return 0;
	i = lsn - comp->decided.stable_lsn - 1;
	if (i < LSOM_WINDOW) {
		comp->decided.committed[i / 8] |= (uint8_t)(1u << (i % 8));
		lsom__comp_dirty(comp);
		return 0;
	}
	for (i = n = 0; i < comp->committed_count; i++)
		if (comp->committed[i] > comp->decided.stable_lsn &&
		    comp->committed[i] != lsn)
			comp->committed[n++] = comp->committed[i];
	comp->committed_count = n;
	if (n == LSOM__COMMITS_MAX - LSOM_WINDOW)
		return -EBUSY;
	if (n == comp->committed_room) {
		p = realloc(comp->committed, room * sizeof(*p));
		if (p == NULL)
			return -ENOMEM;
		comp->committed = p;
		comp->committed_room = room;
	}
	comp->committed[comp->committed_count++] = lsn;
	lsom__comp_dirty(comp);
	return 0;
}

void lsom__decided_run(struct lsom_comp *comp)
{
	struct lsom__prep *p, *next;

	TAILQ_FOREACH_SAFE (p, &comp->preps, link, next)
		if (lsom__decided(&comp->decided, p->lsn))
			lsom__prep_commit(comp, p);
}

/* Add the bits of @more; true: some are new.  Each request brings them. */
static bool committed_join(uint8_t *map, const uint8_t *more)
{
	uint64_t mine, theirs, fresh = 0;
	unsigned i;

	if (memcmp(map, more, LSOM_WINDOW / 8) == 0)
		return false;
	for (i = 0; i < LSOM_WINDOW / 8; i += sizeof(mine)) {
		memcpy(&mine, map + i, sizeof(mine));
		memcpy(&theirs, more + i, sizeof(theirs));
		fresh |= theirs & ~mine;
		mine |= theirs;
		memcpy(map + i, &mine, sizeof(mine));
	}
	return fresh != 0;
}

/* The first @n are below the stable lsn now. */
static void committed_shift(uint8_t *map, uint64_t n)
{
	enum { WORDS = LSOM_WINDOW / 64 };
	uint64_t words[WORDS + 1] = { 0 }, any = 0;
	const unsigned by = n % 64;
	size_t i, from = (size_t)(n / 64);

	memcpy(words, map, LSOM_WINDOW / 8);
	for (i = 0; i < WORDS; i++)
		any |= words[i];
	if (any == 0)
		return; /* mostly */
	memset(map, 0, LSOM_WINDOW / 8);
	for (i = 0; n < LSOM_WINDOW && from < WORDS; i++, from++) {
		any = words[from] >> by;
		if (by > 0)
			any |= words[from + 1] << (64 - by);
		memcpy(map + i * sizeof(any), &any, sizeof(any));
	}
}

void lsom__decided_take(struct lsom_comp *comp,
			const struct lsom_decided *decided)
{
	struct lsom_decided *mine = &comp->decided;

	if (decided->stable_lsn < mine->stable_lsn)
		return; /* an old message; its bits may be about other lsns */
	if (decided->stable_lsn == mine->stable_lsn) {
		if (committed_join(mine->committed, decided->committed))
			comp->decided_dirty = true;
	} else {
		/* What a COMMIT said the message may be too old to know. */
		committed_shift(mine->committed,
				decided->stable_lsn - mine->stable_lsn);
		mine->stable_lsn = decided->stable_lsn;
		(void)committed_join(mine->committed, decided->committed);
		comp->decided_dirty = true;
	}
	if (decided->g_all > mine->g_all) {
		mine->g_all = decided->g_all;
		comp->decided_dirty = true;
	}
	if (decided->hole_floor > mine->hole_floor) {
		mine->hole_floor = decided->hole_floor;
		comp->decided_dirty = true;
	}
	if (comp->decided_dirty)
		lsom__comp_dirty(comp);
	if (!TAILQ_EMPTY(&comp->preps))
		lsom__decided_run(comp);
}
