/*
 * put: what a checkpoint puts into its batch, of what has changed.
 *
 * All of these return 0 or -ENOMEM.  What was put is put again, behind it, when the
 * checkpoint goes on; so nothing counts as put before it is.
 */
#include "lsom/index_store.h"

#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

#define WHOLE_PAGE_SLOTS 64 /* from so many changed slots on */
#define SPILL_PAGES 4096u /* in one batch of the store: 16 MiB */

static int put(struct lsom__puts *puts, struct key k, const void *value,
	       size_t len)
{
	int rv = kv_batch_reserve(&puts->batch, 1, k.len + len);

	if (rv == 0)
		kv_batch_put(&puts->batch, key_slice(&k), kv_slice(value, len));
	return rv;
}

static int drop(struct lsom__puts *puts, struct key k)
{
	int rv = kv_batch_reserve(&puts->batch, 1, k.len);

	if (rv == 0)
		kv_batch_delete(&puts->batch, key_slice(&k));
	return rv;
}

static int drop_range(struct lsom__puts *puts, struct key from, struct key to)
{
	int rv = kv_batch_reserve(&puts->batch, 1, from.len + to.len);

	if (rv == 0)
		kv_batch_delete_range(&puts->batch, key_slice(&from),
				      key_slice(&to));
	return rv;
}

static int drop_all(struct lsom__puts *puts, char tag, uint64_t comp)
{
	return drop_range(puts, key_make(tag, 1, comp, 0, 0),
			  key_make(tag, 1, comp + 1, 0, 0));
}

/* Note that the store has (or no longer has) @number. */
static int stored_set(struct lsom__puts *puts, struct lsom_comp *comp,
		      uint64_t number, bool has)
{
	size_t chunk = (size_t)(number / 8 / CHUNK_BYTES);
	uint8_t bit = (uint8_t)(1u << (number % 8)), *p;
	int rv = lsom__stored_fit(comp, (chunk + 1) * CHUNK_BYTES);

	if (rv < 0)
		return rv;
	p = &comp->stored_pages[number / 8];
	if (!!(*p & bit) == has)
		return 0;
	*p ^= bit;
	rv = put(puts, key_make('B', 2, comp->key, chunk, 0),
		 comp->stored_pages + chunk * CHUNK_BYTES, CHUNK_BYTES);
	if (rv < 0)
		*p ^= bit;
	return rv;
}

static int page_put_gone(struct lsom__puts *puts, struct lsom__page *page)
{
	int rv = drop(puts, key_make('P', 2, page->comp->key, page->number, 0));

	return rv < 0 ? rv : stored_set(puts, page->comp, page->number, false);
}

static int page_put_changed(struct lsom__puts *puts, struct lsom__page *page)
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
	rv = kv_batch_reserve(&puts->batch, 1, k.len + len);
	if (rv == 0 && whole)
		kv_batch_put(&puts->batch, key_slice(&k), kv_slice(value, len));
	else if (rv == 0)
		kv_batch_merge(&puts->batch, key_slice(&k),
			       kv_slice(value, len));
	free(value);
	for (i = 0; i < (int)ARRAY_LEN(page->put) && !page->loaded; i++)
		page->put[i] |= page->dirty[i];
	return rv < 0 ? rv : stored_set(puts, page->comp, page->number, true);
}

int lsom__put_pages(struct lsom__puts *puts, size_t max)
{
	struct lsom__page *page;
	bool gone;
	int rv;

	while (max-- > 0 &&
	       (page = TAILQ_FIRST(&puts->disk->dirty_pages)) != NULL) {
		gone = page->gone;
		rv = gone ? page_put_gone(puts, page)
			  : page_put_changed(puts, page);
		if (rv < 0)
			return rv;
		page->put_number = puts->number;
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
	struct lsom__puts puts = { .disk = disk };
	int rv = 0;

	while (rv == 0 && !TAILQ_EMPTY(&disk->dirty_pages)) {
		kv_batch_init(&puts.batch);
		rv = lsom__put_pages(&puts, SPILL_PAGES);
		if (rv == 0)
			rv = kv_apply(disk->kv, &puts.batch);
		kv_batch_fini(&puts.batch);
	}
	return rv;
}

static int prep_put(struct lsom__puts *puts, struct lsom_comp *comp,
		    const struct lsom__prep *p)
{
	size_t len = lsom__data_record_len(p->flags, p->blocks, p->parts_count);
	uint8_t *buf = calloc(1, sizeof(struct stored_prep) + len);
	struct stored_prep *s = (void *)buf;
	struct lsom__data_record *d;
	int rv;

	if (buf == NULL)
		return -ENOMEM;
	d = (void *)(s + 1);
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
	rv = put(puts, key_make('U', 3, comp->key, p->lsn, p->first), buf,
		 sizeof(*s) + len);
	free(buf);
	return rv;
}

static int comp_put(struct lsom__puts *puts, struct lsom_comp *comp)
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
		rv = put(puts, key_make('C', 1, comp->key, 0, 0), buf,
			 sizeof(s) + op->len);
		free(buf);
	} else {
		rv = -ENOMEM;
	}
	lsom__op_free(op);
	if (rv == 0)
		rv = drop_all(puts, 'U', comp->key);
	TAILQ_FOREACH (p, &comp->preps, link)
		if (rv == 0)
			rv = prep_put(puts, comp, p);
	return rv;
}

/* Nothing of it is left, but its tomb. */
static int comp_drop(struct lsom__puts *puts, const struct lsom_comp *comp)
{
	int rv = drop_all(puts, 'C', comp->key);

	if (rv == 0)
		rv = drop_all(puts, 'B', comp->key);
	if (rv == 0)
		rv = drop_all(puts, 'P', comp->key);
	return rv < 0 ? rv : drop_all(puts, 'U', comp->key);
}

int lsom__put_comps_some(struct lsom__puts *puts, size_t max)
{
	struct lsom_disk *disk = puts->disk;
	struct lsom_comp *comp;
	int rv;

	if (puts->comps_left > disk->comps_dirty_count)
		puts->comps_left = disk->comps_dirty_count;
	for (; puts->comps_left > 0 && max > 0; puts->comps_left--) {
		comp = TAILQ_FIRST(&disk->comps_dirty);
		/* Of one that is gone pages may still have to be put. */
		if (!comp->created || comp->reaped) {
			TAILQ_REMOVE(&disk->comps_dirty, comp, dirty_link);
			TAILQ_INSERT_TAIL(&disk->comps_dirty, comp, dirty_link);
			max--;
			continue;
		}
		rv = comp_put(puts, comp);
		if (rv < 0)
			return rv;
		lsom__comp_clean(comp);
		max -= MIN(max, (size_t)1 + comp->preps_count);
	}
	return 0;
}

int lsom__put_comps(struct lsom__puts *puts)
{
	struct lsom_comp *comp, *next;
	int rv;

	TAILQ_FOREACH_SAFE (comp, &puts->disk->comps_dirty, dirty_link, next) {
		/* One that was forgotten has been dropped. */
		if (!comp->created || !comp->linked)
			continue;
		rv = comp->reaped ? comp_drop(puts, comp)
				  : comp_put(puts, comp);
		if (rv < 0)
			return rv;
		lsom__comp_clean(comp);
		if (comp->reaped)
			lsom__comp_forget(comp);
	}
	return 0;
}

/*
 * An opening does not read the header of a segment that is known.  One that was
 * not what it should be is read each time.
 */
static int header_put(struct lsom__puts *puts, uint32_t segment)
{
	struct lsom__segment *seg = &puts->disk->segments[segment];
	struct key k = key_make('H', 1, segment, 0, 0);
	struct lsom__segment_header h;
	int rv = 0;

	if (seg->unreadable) {
		rv = drop(puts, k);
		seg->header_stored = false;
	} else if (!seg->header_stored && seg->sequence != 0) {
		h = lsom__segment_header_of(puts->disk, segment);
		rv = put(puts, k, &h, sizeof(h));
		seg->header_stored = rv == 0;
	}
	return rv;
}

int lsom__put_segments(struct lsom__puts *puts, size_t max)
{
	struct lsom_disk *disk = puts->disk;
	struct lsom__segment *seg;
	struct stored_segment s;
	uint32_t i;
	int rv;

	while (max-- > 0 && (seg = TAILQ_FIRST(&disk->changed)) != NULL) {
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
		rv = put(puts, key_make('S', 1, i, 0, 0), &s, sizeof(s));
		if (rv == 0)
			rv = header_put(puts, i);
		if (rv < 0)
			return rv;
		TAILQ_REMOVE(&disk->changed, seg, change);
		disk->changed_count--;
		seg->dirty = false;
	}
	return 0;
}

int lsom__put_tombs(struct lsom__puts *puts)
{
	struct lsom__tomb *t;
	struct key key;
	int rv;

	while ((t = TAILQ_FIRST(&puts->disk->tombs.changed)) != NULL) {
		key = key_make('T', 1, t->key, 0, 0);
		rv = t->gone ? drop(puts, key)
			     : put(puts, key, &t->pos, sizeof(t->pos));
		if (rv < 0)
			return rv;
		lsom__tomb_told(puts->disk, t);
	}
	return 0;
}

uint64_t lsom__head_first(const struct lsom__head *head)
{
	const struct lsom__batch *b = TAILQ_FIRST(&head->inflight);

	return b != NULL ? b->number : head->batch_next;
}

/* Every batch before these has been applied, so it is in the tables. */
int lsom__put_position(struct lsom__puts *puts)
{
	struct lsom_disk *disk = puts->disk;
	struct lsom__position p = {
		.version = POSITION_VERSION,
		.heads_count = LSOM__HEADS,
		.disk = disk->super.disk,
		.number = puts->number,
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
		p.heads[i].batch = lsom__head_first(head);
		p.heads[i].sequence = disk->sequence_next;
		if (b != NULL)
			p.heads[i].sequence =
				disk->segments[b->segment].sequence;
		else if (head->segment != LSOM__NONE)
			p.heads[i].sequence =
				disk->segments[head->segment].sequence;
	}
	rv = put(puts, key_make('M', 0, 0, 0, 0), &p, sizeof(p));
	if (rv == 0)
		rv = put(puts, key_make('I', 0, 0, 0, 0),
			 &disk->super.index_made,
			 sizeof(disk->super.index_made));
	return rv;
}
