/*
 * replay: what one record of the log does to a disk that is being recovered.
 *
 * Four passes over the records: states and deletions; commits, aborts and
 * stable_lsn; data; holes.  When data comes, everything about its fate is known,
 * so a block goes into the index, or the table, or nowhere, at once.  Holes come
 * last: only then it is known where they have nothing to bar, and a large UNMAP
 * of what was never written costs nothing again, if no peer may need it.  But one
 * that the cleaner moved was in the index, block for block, and may be all that is
 * left there of what a peer still has: it comes with the data.  That is not so where
 * it was moved before it was decided.
 *
 * Of equal versions the one counts that replaced the others: a move names what it
 * replaces, and a repair replaces whatever there is.  Of two repairs that is the
 * later one, and where the cleaner moved the first it stands in a segment that may
 * be newer than the second's: so repairs wait for the end of the data, and come in
 * the order of their own positions, which moves keep.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/recover_int.h"

#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { PASS_STATES, PASS_DECISIONS, PASS_DATA, PASS_HOLES };

static int by_value(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Sorted, once each, and only those that the stable lsn does not say. */
static void committed_settle(struct lsom_comp *comp)
{
	size_t i, n = 0;

	if (comp->committed_count == 0)
		return;
	qsort(comp->committed, comp->committed_count, sizeof(*comp->committed),
	      by_value);
	for (i = 0; i < comp->committed_count; i++)
		if (comp->committed[i] > comp->meta.stable_lsn &&
		    (n == 0 || comp->committed[n - 1] != comp->committed[i]))
			comp->committed[n++] = comp->committed[i];
	comp->committed_count = n;
}

int lsom__committed_note(struct lsom_comp *comp, uint64_t lsn)
{
	size_t room = MAX((size_t)16, comp->committed_room * 2);
	bool full = comp->committed_count == comp->committed_room;
	uint64_t *p;

	/* A whole log names every lsn there was, and the stable one says most. */
	if (full)
		committed_settle(comp);
	if (full && comp->committed_count >= comp->committed_room / 2) {
		p = realloc(comp->committed, room * sizeof(*p));
		if (p == NULL)
			return -ENOMEM;
		comp->committed = p;
		comp->committed_room = room;
	}
	comp->committed[comp->committed_count++] = lsn;
	return 0;
}

static int replay_state(struct lsom_disk *disk,
			const struct lsom__state_record *s)
{
	struct lsom_comp *comp = lsom__comp_by_key(disk, s->r.component);

	if (comp == NULL) {
		comp = lsom__comp_new(disk, s->r.component, &s->cid, &s->oid);
		if (comp == NULL)
			return -ENOMEM;
		comp->created = true;
		disk->comps_count++;
		lsom__comp_link(comp);
	}
	lsom__comp_dirty(comp);
	return lsom__state_take(comp, s);
}

static int replay_stable(struct lsom_comp *comp,
			 const struct lsom__stable_record *s)
{
	const uint8_t *bits = (const uint8_t *)(s + 1);
	uint32_t i;
	int rv = 0;

	comp->meta.stable_lsn = MAX(comp->meta.stable_lsn, s->stable_lsn);
	comp->meta.g_all = MAX(comp->meta.g_all, s->g_all);
	comp->decided.hole_floor = MAX(comp->decided.hole_floor, s->hole_floor);
	for (i = 0; i < s->bitmap_bytes * 8 && rv == 0; i++)
		if (bits[i / 8] >> (i % 8) & 1)
			rv = lsom__committed_note(comp, s->stable_lsn + 1 + i);
	lsom__comp_dirty(comp);
	return rv;
}

static bool committed(const struct lsom_comp *comp, uint64_t lsn)
{
	return lsn <= comp->meta.stable_lsn ||
	       (comp->committed_count > 0 &&
		bsearch(&lsn, comp->committed, comp->committed_count,
			sizeof(lsn), by_value) != NULL);
}

static int replay_prep(struct lsom_comp *comp,
		       const struct lsom__data_record *d, uint64_t place,
		       uint64_t pos)
{
	struct lsom__prep *p =
		lsom__prep_same(comp, d->r.lsn, d->first, d->blocks);

	if (p != NULL) {
		if (!(d->r.flags & LSOM__F_MOVED) || p->place != d->source)
			return 0;
		lsom__prep_remove(comp, p);
		p->place = place;
		lsom__prep_insert(comp, p);
		return 0;
	}
	p = lsom__prep_new(d, place, pos);
	if (p == NULL)
		return -ENOMEM;
	lsom__prep_insert(comp, p);
	return 0;
}

/* Of changes of the index so far: 0, -EUCLEAN, or what kv.h has not against it. */
static int index_status(const struct lsom_disk *disk)
{
	if (disk->state != LSOM_DISK_FAILED)
		return 0;
	return disk->failed_status == -EIO ? -EUCLEAN : disk->failed_status;
}

static int repair_keep(struct lsom__recovery *rec,
		       const struct lsom__data_record *d, uint64_t place,
		       uint64_t pos)
{
	size_t room = MAX((size_t)16, rec->repairs_room * 2);
	struct lsom__data_record *copy;
	struct lsom__repair *p;

	if (rec->repairs_count == rec->repairs_room) {
		p = realloc(rec->repairs, room * sizeof(*p));
		if (p == NULL)
			return -ENOMEM;
		rec->repairs = p;
		rec->repairs_room = room;
	}
	copy = malloc(d->r.len);
	if (copy == NULL)
		return -ENOMEM;
	memcpy(copy, d, d->r.len);
	rec->repairs[rec->repairs_count++] = (struct lsom__repair){
		.pos = d->r.flags & LSOM__F_MOVED ? d->r.orig_pos : pos,
		.copy_pos = pos,
		.place = place,
		.d = copy,
	};
	return 0;
}

static int by_pos(const void *a, const void *b)
{
	const struct lsom__repair *x = a, *y = b;

	if (x->pos != y->pos)
		return x->pos < y->pos ? -1 : 1;
	return x->copy_pos < y->copy_pos ? -1 : x->copy_pos > y->copy_pos;
}

static int repairs_apply(struct lsom__recovery *rec)
{
	const struct lsom__data_record *d;
	struct lsom_comp *comp;
	size_t i;

	if (rec->repairs_count == 0)
		return 0;
	qsort(rec->repairs, rec->repairs_count, sizeof(*rec->repairs), by_pos);
	for (i = 0; i < rec->repairs_count; i++) {
		d = rec->repairs[i].d;
		comp = lsom__comp_by_key(rec->disk, d->r.component);
		lsom__range_apply(comp, d->first, d->blocks,
				  rec->repairs[i].place, lsom__record_crcs(d),
				  false, d->r.member_csn, d->r.lsn,
				  LSOM__APPLY_REPLAY, 0);
	}
	lsom__repairs_fini(rec);
	return index_status(rec->disk);
}

void lsom__repairs_fini(struct lsom__recovery *rec)
{
	while (rec->repairs_count > 0)
		free(rec->repairs[--rec->repairs_count].d);
	free(rec->repairs);
	rec->repairs = NULL;
	rec->repairs_room = 0;
}

static int replay_data(struct lsom__recovery *rec, uint32_t segment,
		       const struct lsom__frame *f,
		       const struct lsom__data_record *d)
{
	struct lsom_disk *disk = rec->disk;
	struct lsom_comp *comp = lsom__comp_by_key(disk, d->r.component);
	bool hole = d->r.flags & LSOM__F_HOLE;
	uint64_t place = lsom__place(disk, segment, hole ? f->block : d->data);
	uint64_t source = 1ull << 60; /* no place: a tie changes nothing */

	if (comp == NULL || comp->deleted)
		return 0;
	lsom__comp_dirty(comp);
	comp->meta.max_lsn = MAX(comp->meta.max_lsn, d->r.lsn);
	if (!(d->r.flags & LSOM__F_COMMITTED)) {
		if (lsom__abort_meets(comp, d->r.lsn, d->r.member_csn))
			return 0;
		if (!committed(comp, d->r.lsn))
			return replay_prep(comp, d, place, f->pos);
	}
	comp->meta.max_committed = MAX(comp->meta.max_committed, d->r.lsn);
	if (d->r.flags & LSOM__F_REPAIR && !hole)
		return repair_keep(rec, d, place, f->pos);
	if (d->r.flags & LSOM__F_MOVED)
		source = d->source;
	lsom__range_apply(comp, d->first, d->blocks, place,
			  lsom__record_crcs(d), hole, d->r.member_csn, d->r.lsn,
			  LSOM__APPLY_REPLAY, source);
	return index_status(disk);
}

static int replay_decision(struct lsom_disk *disk, const struct lsom__record *r)
{
	struct lsom_comp *comp = lsom__comp_by_key(disk, r->component);

	if (comp == NULL || comp->deleted)
		return 0;
	lsom__comp_dirty(comp);
	switch (r->type) {
	case LSOM__R_COMMIT:
		return lsom__committed_note(comp, r->lsn);
	case LSOM__R_ABORT:
		return lsom__abort_add(comp, r->lsn, r->member_csn);
	case LSOM__R_STABLE:
		return replay_stable(comp, (const void *)r);
	}
	return 0;
}

static unsigned data_pass(const struct lsom__record *r)
{
	const uint16_t entered = LSOM__F_MOVED | LSOM__F_COMMITTED;

	return r->flags & LSOM__F_HOLE && (r->flags & entered) != entered
		       ? PASS_HOLES
		       : PASS_DATA;
}

int lsom__record_replay(struct lsom__recovery *rec, uint32_t segment,
			const struct lsom__frame *frame,
			const struct lsom__record *r, unsigned pass)
{
	struct lsom_disk *disk = rec->disk;

	if (r->type == LSOM__R_LOST) {
		if (r->component == UINT64_MAX)
			rec->damaged = true; /* found by this recovery */
		else
			rec->lost_below = MAX(rec->lost_below, r->component);
		return 0;
	}
	disk->key_next = MAX(disk->key_next, r->component + 1);
	if (pass == PASS_STATES && r->type == LSOM__R_STATE)
		return replay_state(disk, (const void *)r);
	if (pass == PASS_STATES && r->type == LSOM__R_DELETE)
		return lsom__tomb_add(disk, r->component, LSOM__POS_LATER,
				      false);
	if (pass == PASS_DECISIONS)
		return replay_decision(disk, r);
	if (r->type == LSOM__R_DATA && pass == data_pass(r))
		return replay_data(rec, segment, frame, (const void *)r);
	return 0;
}

/* ---- between the passes ---- */

static void states_end(struct lsom_disk *disk)
{
	struct lsom_comp *comp;

	TAILQ_FOREACH (comp, &disk->comps, link)
		if (lsom__tomb_find(disk, comp->key) != NULL)
			lsom__comp_deleted(comp);
}

static void decisions_end(struct lsom_disk *disk)
{
	struct lsom_comp *comp;

	TAILQ_FOREACH (comp, &disk->comps, link)
		committed_settle(comp);
}

/* From the lists of the replay to the sets of the running component. */
static int sets_settle(struct lsom_comp *comp)
{
	uint64_t *list = comp->committed;
	size_t count = comp->committed_count, i;
	int rv = 0;

	comp->committed = NULL;
	comp->committed_count = comp->committed_room = 0;
	comp->decided.stable_lsn = comp->meta.stable_lsn;
	comp->decided.g_all = comp->meta.g_all;
	for (i = 0; i < count && rv == 0; i++)
		rv = lsom__committed_add(comp, list[i]);
	free(list);
	return rv == -EBUSY ? 0 : rv;
}

/* With an index that is behind, nobody knows which of them are needed. */
static int aborts_settle(struct lsom_comp *comp)
{
	struct lsom_disk *disk = comp->disk;
	int rv = lsom__aborts_replayed(comp);

	if (rv < 0)
		snprintf(disk->failure, sizeof(disk->failure),
			 "component %llu has %u aborted versions, which is too "
			 "many: run 'basalt disk rebuild'",
			 (unsigned long long)comp->key, comp->aborts_count);
	return rv;
}

static int data_end(struct lsom_disk *disk)
{
	struct lsom__prep *p, *next;
	struct lsom_comp *comp;
	int rv = 0;

	/* When it was applied is not known: not after now. */
	lsom__tombs_settle(disk);
	TAILQ_FOREACH (comp, &disk->comps, link) {
		/* Those of the checkpoint, decided by what came after it. */
		TAILQ_FOREACH_SAFE (p, &comp->preps, link, next) {
			if (lsom__aborted(comp, p->lsn, p->member_csn))
				lsom__prep_drop(comp, p);
			else if (committed(comp, p->lsn))
				lsom__prep_commit(comp, p);
		}
		rv = sets_settle(comp);
		if (rv == 0)
			rv = aborts_settle(comp);
		if (rv < 0)
			return rv;
	}
	return index_status(disk);
}

/*
 * Batches were lost, so any block of a component that may have been in them may
 * have had a newer version.  All that is there now has an oepoch of up to the
 * promised one; who writes from now on has a newer one (g1).
 */
static void damage_settle(struct lsom__recovery *rec)
{
	struct lsom_disk *disk = rec->disk;
	struct lsom_comp_meta *m;
	struct lsom_comp *comp;
	uint64_t now;

	/* Lasting: the batch is missed at this opening only. */
	disk->super.damaged_below =
		MAX(disk->super.damaged_below,
		    rec->damaged ? disk->key_next : rec->lost_below);
	disk->key_next = MAX(disk->key_next, disk->super.damaged_below);
	TAILQ_FOREACH (comp, &disk->comps, link) {
		m = &comp->meta;
		now = MAX(m->promised_oepoch, LSN_OEPOCH(m->max_lsn));
		if (comp->key >= disk->super.damaged_below ||
		    (m->damaged != 0 && !rec->damaged))
			continue;
		m->damaged = MAX(m->damaged, (uint32_t)MAX(now, 1ull));
		lsom__comp_dirty(comp);
	}
}

int lsom__pass_end(struct lsom__recovery *rec, unsigned pass)
{
	struct lsom_disk *disk = rec->disk;
	int rv;

	switch (pass) {
	case PASS_STATES:
		states_end(disk);
		return 0;
	case PASS_DECISIONS:
		decisions_end(disk);
		return 0;
	case PASS_DATA:
		rv = repairs_apply(rec);
		disk->replaying = false;
		return rv;
	}
	damage_settle(rec);
	return data_end(disk);
}
