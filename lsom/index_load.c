/*
 * index_load: the index as its last checkpoint left it (index_store.h), read from
 * the store when a disk is opened; and pages of it, one by one, ever after.
 * All of it blocks: it runs on a worker.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/index_store.h"
#include "lsom/recover_int.h"

#include "base/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int lsom__page_read(struct kv *kv, uint64_t key, uint64_t number, void **out,
		    size_t *out_len)
{
	struct key k = key_make('P', 2, key, number, 0);

	*out = NULL;
	return kv_get(kv, key_slice(&k), out, out_len);
}

/* Each item: 0, -EUCLEAN, -ENOMEM. */
struct load {
	struct lsom_disk *disk;
	struct lsom__recovery *rec;
	bool headers; /* of segments, and nothing else yet */
	int status;
};

/*
 * A segment in use, whose header the disk does not have.  If that is damaged,
 * nothing on the disk tells what it is, but what was in use then was not taken
 * again: blocks the index points to are still there.  If it is whole, but of
 * earlier, the disk is not what it was (its header is durable before any of its
 * blocks counts): what lies there now is something else, whatever its CRC says.
 * In both cases nothing may be put there while the index points to it.
 */
static void header_missed(struct load *l, uint64_t i, struct stored_segment *s)
{
	struct lsom__segment *seg = &l->disk->segments[i];

	if (l->rec->header_lost[i]) {
		log_error("disk %s: the header of segment %llu is damaged: "
			  "the index has %u block%s in it",
			  l->disk->path, (unsigned long long)i, s->live,
			  s->live == 1 ? "" : "s");
		seg->open_pos = 0; /* as old as can be */
	} else {
		/* The records that it is kept for are not there, but older. */
		if (seg->sequence == 0)
			seg->open_pos = UINT64_MAX;
		s->has_meta = s->has_holes = 0;
		seg->set_back = true;
		l->disk->segments_set_back++;
	}
	memset(&l->rec->headers[i], 0, sizeof(l->rec->headers[i]));
	/* What was written to it after the checkpoint nobody knows. */
	if (s->state == LSOM__SEG_OPEN || s->state == LSOM__SEG_CLOSING)
		l->rec->damaged = true;
	s->state = LSOM__SEG_CLOSED;
	seg->sequence = s->sequence;
	seg->generation = 0;
	seg->index_number = seg->first_batch = 0;
	seg->head = 0;
	lsom__segment_shun(l->disk, seg, UINT64_MAX);
}

static int segment_load(struct load *l, uint64_t i, struct kv_slice v)
{
	struct lsom__segment *seg;
	struct stored_segment s;

	if (v.len != sizeof(s) || i >= l->disk->super.segments)
		return -EUCLEAN;
	memcpy(&s, v.data, sizeof(s));
	seg = &l->disk->segments[i];
	l->disk->sequence_next = MAX(l->disk->sequence_next, s.sequence + 1);
	if (seg->sequence < s.sequence && s.live > 0 &&
	    s.state != LSOM__SEG_FREE && s.state != LSOM__SEG_CLEANED)
		header_missed(l, i, &s);
	if (seg->sequence != s.sequence)
		return 0; /* taken again since: the log says what is in it */
	seg->live = s.live;
	l->disk->live_blocks += s.live;
	seg->used = s.used;
	seg->last_batch = s.last_batch;
	seg->cleaned_number = s.cleaned_number;
	seg->has_meta = s.has_meta;
	seg->has_holes = s.has_holes;
	if (s.state == LSOM__SEG_FREE || s.state == LSOM__SEG_CLOSED ||
	    s.state == LSOM__SEG_CLEANED) {
		seg->state = s.state;
		l->rec->from_table[i] = true;
	}
	return 0;
}

/* What its header said; whether it may say something else, its state tells. */
static int header_load(struct load *l, uint64_t i, struct kv_slice v)
{
	struct lsom__segment_header h;

	if (v.len != sizeof(h) || i >= l->disk->super.segments)
		return -EUCLEAN;
	memcpy(&h, v.data, sizeof(h));
	if (!uuid_equal(&h.disk, &l->disk->super.disk) || h.segment != i ||
	    h.sequence == 0 || h.generation == 0 || h.head >= LSOM__HEADS)
		return -EUCLEAN;
	l->rec->headers[i] = h;
	return 0;
}

/*
 * Which headers are as the checkpoint knew them: none of its closed segments was
 * erased since, for that takes a later checkpoint, and the superblock knows of
 * none.  Those that were free may have been taken.  Those that were open may not
 * have had a header yet, and those that were cleaned not the one that erases
 * them.
 */
static int header_state_load(struct load *l, uint64_t i, struct kv_slice v)
{
	struct lsom__recovery *rec = l->rec;
	struct stored_segment s;

	if (v.len != sizeof(s) || i >= l->disk->super.segments)
		return -EUCLEAN;
	memcpy(&s, v.data, sizeof(s));
	if (rec->headers[i].sequence != s.sequence ||
	    (s.state != LSOM__SEG_CLOSED && s.state != LSOM__SEG_FREE)) {
		memset(&rec->headers[i], 0, sizeof(rec->headers[i]));
		rec->header_from[i] = LSOM__HEADER_DISK;
	} else {
		rec->header_from[i] = s.state == LSOM__SEG_CLOSED
					      ? LSOM__HEADER_INDEX
					      : LSOM__HEADER_FREE;
		l->disk->segments[i].header_stored = true;
	}
	return 0;
}

static int comp_load(struct load *l, uint64_t key, struct kv_slice v)
{
	const struct lsom__state_record *r;
	struct stored_comp s;
	struct lsom_comp *comp;
	uint8_t count[8] = { 0 };
	int rv;

	if (v.len < sizeof(s) + sizeof(*r))
		return -EUCLEAN;
	memcpy(&s, v.data, sizeof(s));
	r = (const void *)((const uint8_t *)v.data + sizeof(s));
	if (lsom__records_check(r, v.len - sizeof(s), 1, UINT32_MAX) < 0 ||
	    r->r.type != LSOM__R_STATE || r->r.component != key)
		return -EUCLEAN;
	comp = lsom__comp_new(l->disk, key, &r->cid, &r->oid);
	if (comp == NULL)
		return -ENOMEM;
	comp->created = true;
	lsom__comp_link(comp);
	if (s.deleted)
		lsom__comp_gone(comp);
	else
		l->disk->comps_count++;
	if (s.counted > LSOM__COUNT_LEAST)
		return -EUCLEAN;
	rv = lsom__state_take(comp, r);
	if (rv < 0)
		return rv;
	memcpy(count + 2, s.mapped, sizeof(s.mapped));
	lsom__count_load(comp, s.counted, get_be64(count));
	return 0;
}

static int chunk_load(struct load *l, uint64_t key, uint64_t chunk,
		      struct kv_slice v)
{
	struct lsom_comp *comp = lsom__comp_by_key(l->disk, key);

	if (comp == NULL || v.len != CHUNK_BYTES || chunk > 1u << 20)
		return -EUCLEAN;
	if (lsom__stored_fit(comp, (size_t)(chunk + 1) * CHUNK_BYTES) < 0)
		return -ENOMEM;
	memcpy(comp->stored_pages + chunk * CHUNK_BYTES, v.data, CHUNK_BYTES);
	return 0;
}

/* Does @blocks of data at @place lie in one segment? */
static bool place_valid(const struct lsom_disk *disk, uint64_t place,
			uint64_t blocks)
{
	uint32_t segment = lsom__segment_of(disk, place);

	return segment != LSOM__NONE &&
	       lsom__segment_of(disk, place + blocks - 1) == segment;
}

static int prep_load(struct load *l, uint64_t key, struct kv_slice v)
{
	struct lsom_comp *comp = lsom__comp_by_key(l->disk, key);
	const struct lsom__data_record *d;
	struct stored_prep s;
	struct lsom__prep *p;

	if (v.len < sizeof(s) + sizeof(*d) || comp == NULL)
		return -EUCLEAN;
	memcpy(&s, v.data, sizeof(s));
	d = (const void *)((const uint8_t *)v.data + sizeof(s));
	if (lsom__records_check(d, v.len - sizeof(s), 1, UINT32_MAX) < 0 ||
	    d->r.type != LSOM__R_DATA ||
	    (!(d->r.flags & LSOM__F_HOLE) &&
	     !place_valid(l->disk, s.place, d->blocks)))
		return -EUCLEAN;
	p = lsom__prep_new(d, s.place, s.pos);
	if (p == NULL)
		return -ENOMEM;
	lsom__prep_insert(comp, p);
	/* Its blocks are in the table of segments already. */
	if (!(p->flags & LSOM__F_HOLE))
		lsom__segment_live(l->disk, p->place, -(int64_t)p->blocks);
	return 0;
}

static bool item_load(void *arg, struct kv_slice key, struct kv_slice value)
{
	const uint8_t *k = key.data;
	struct load *l = arg;
	uint64_t a = key.len >= 9 ? get_be64(k + 1) : 0;
	uint64_t b = key.len >= 17 ? get_be64(k + 9) : 0, pos;
	int rv = -EUCLEAN;

	switch (k[0]) {
	case 'H':
		rv = header_load(l, a, value);
		break;
	case 'S':
		rv = l->headers ? header_state_load(l, a, value)
				: segment_load(l, a, value);
		break;
	case 'C':
		rv = comp_load(l, a, value);
		break;
	case 'B':
		rv = chunk_load(l, a, b, value);
		break;
	case 'U':
		rv = prep_load(l, a, value);
		break;
	case 'T':
		if (value.len == sizeof(pos)) {
			memcpy(&pos, value.data, sizeof(pos));
			rv = lsom__tomb_add(l->disk, a, pos, true);
		}
		break;
	}
	l->status = rv;
	return rv == 0;
}

static int tag_load(struct load *l, char tag)
{
	char from[1] = { tag }, to[1] = { (char)(tag + 1) };
	int rv = kv_scan(l->disk->kv, kv_slice(from, 1), kv_slice(to, 1),
			 item_load, l);

	return rv < 0 ? rv : l->status;
}

static bool key_seen(void *arg, struct kv_slice key, struct kv_slice value)
{
	(void)key;
	(void)value;
	*(bool *)arg = true;
	return false; /* one is enough */
}

static int store_clear(struct lsom_disk *disk)
{
	struct kv_batch batch;
	bool any = false;
	int rv = kv_scan(disk->kv, kv_slice("A", 1), kv_slice("Z", 1), key_seen,
			 &any);

	if (rv < 0 || !any)
		return rv;
	kv_batch_init(&batch);
	rv = kv_batch_reserve(&batch, 1, 2);
	if (rv == 0) {
		kv_batch_delete_range(&batch, kv_slice("A", 1),
				      kv_slice("Z", 1));
		rv = kv_apply(disk->kv, &batch);
	}
	if (rv == 0)
		rv = kv_flush(disk->kv);
	kv_batch_fini(&batch);
	if (rv == -EDQUOT)
		rv = -ENOSPC;
	disk->index_wants = kv_wants(rv) ? rv : 0;
	return rv;
}

/*
 * A disk that was rebuilt from an older copy, and the one it was copied from,
 * have one name and two indexes.  The disk says which is its own, durable before
 * that one's first checkpoint.
 */
static int index_is_its(struct lsom_disk *disk, char *why, size_t why_len)
{
	uint64_t made = 0;
	size_t len;
	void *value;
	int rv = kv_get(disk->kv, kv_slice("I", 1), &value, &len);

	if (rv == -ENOENT)
		return 0; /* an older version wrote it */
	if (rv < 0)
		return rv;
	if (len == sizeof(made))
		memcpy(&made, value, sizeof(made));
	free(value);
	if (len == sizeof(made) &&
	    (disk->super.index_made == 0 || disk->super.index_made == made)) {
		disk->super.index_made = made;
		return 0;
	}
	snprintf(why, why_len,
		 "the index was made for another copy of the disk: run 'basalt "
		 "disk rebuild'");
	return -EUCLEAN;
}

static int position_load(struct lsom_disk *disk, char *why, size_t why_len)
{
	struct lsom__position p;
	size_t len;
	void *value;
	int rv = kv_get(disk->kv, kv_slice("M", 1), &value, &len);

	if (rv == -ENOENT)
		return 0; /* a new index: right only if the log is whole */
	if (rv < 0)
		return rv;
	if (len == sizeof(p))
		memcpy(&p, value, sizeof(p));
	free(value);
	if (len != sizeof(p) || p.version != POSITION_VERSION ||
	    p.heads_count != LSOM__HEADS) {
		snprintf(why, why_len,
			 "the index has another format: run 'basalt disk "
			 "rebuild'");
		return -EUCLEAN;
	}
	if (!uuid_equal(&p.disk, &disk->super.disk)) {
		snprintf(why, why_len,
			 "the index belongs to another disk: run 'basalt disk "
			 "rebuild'");
		return -EUCLEAN;
	}
	disk->position = p;
	disk->checkpoint_number = disk->flushed_number = p.number;
	disk->pos_next = MAX(disk->pos_next, p.pos_next);
	disk->key_next = MAX(disk->key_next, p.key_next);
	return 0;
}

int lsom__index_load(struct lsom_disk *disk, bool rebuild, char *why,
		     size_t why_len)
{
	int rv = rebuild ? 0 : position_load(disk, why, why_len);

	if (rv == 0 && disk->position.number == 0) {
		/* What is there without a position is of no index. */
		disk->super.index_made = env_wall_ns(disk->env);
		return store_clear(disk);
	}
	if (rv < 0)
		return rv;
	rv = index_is_its(disk, why, why_len);
	if (rv < 0)
		return rv;
	if (disk->super.index_made == 0)
		disk->super.index_made = env_wall_ns(disk->env);
	return 0;
}

static int tags_load(struct load *l, const char *tags, char *why,
		     size_t why_len)
{
	int rv = 0;

	for (; *tags != '\0' && rv == 0; tags++)
		rv = tag_load(l, *tags);
	if (rv == -EUCLEAN)
		snprintf(why, why_len,
			 "the index is damaged: run 'basalt disk rebuild'");
	return rv;
}

int lsom__headers_load(struct lsom_disk *disk, struct lsom__recovery *rec,
		       char *why, size_t why_len)
{
	struct load l = { .disk = disk, .rec = rec, .headers = true };

	/* It alone knows: a superblock that is lost may have named a later one. */
	if (disk->position.number > 0 && !disk->super_torn &&
	    disk->super.index_flushed == disk->position.number)
		return tags_load(&l, "HS", why, why_len);
	memset(rec->header_from, LSOM__HEADER_DISK, disk->super.segments);
	return 0;
}

int lsom__checkpoint_load(struct lsom_disk *disk, struct lsom__recovery *rec,
			  char *why, size_t why_len)
{
	struct load l = { .disk = disk, .rec = rec };

	if (disk->position.number == 0)
		return 0;
	return tags_load(&l, "SCBUT", why, why_len);
}
