/*
 * component: the components of a disk and their durable metadata.
 *
 * Every metadata record carries the whole state of its component, so that the
 * newest one alone counts and carrying it forward is writing it again.  A
 * component has one in the log at a time; the others wait in order.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/view_int.h"

#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

/* ---- the registry ---- */

static struct lsom_comp **bucket(struct lsom_disk *disk, const struct uuid *cid)
{
	return &disk->hash[uuid_hash(cid) % LSOM__HASH];
}

static struct lsom_comp **object_bucket(struct lsom_disk *disk,
					const struct uuid *oid)
{
	return &disk->by_object[uuid_hash(oid) / LSOM__HASH % LSOM__HASH];
}

struct lsom_comp *lsom__comp_new(struct lsom_disk *disk, uint64_t key,
				 const struct uuid *cid, const struct uuid *oid)
{
	struct lsom_comp *comp = calloc(1, sizeof(*comp));

	if (comp == NULL)
		return NULL;
	comp->disk = disk;
	comp->key = key;
	comp->refs = 1;
	comp->counted = LSOM__COUNT_EXACT; /* nothing */
	comp->meta.cid = *cid;
	comp->meta.oid = *oid;
	TAILQ_INIT(&comp->preps);
	TAILQ_INIT(&comp->metas);
	return comp;
}

void lsom__comp_link(struct lsom_comp *comp)
{
	struct lsom_disk *disk = comp->disk;
	struct lsom_comp *before;

	TAILQ_FOREACH_REVERSE(before, &disk->comps, lsom__comps, link)
	if (before->key < comp->key)
		break;
	if (before != NULL)
		TAILQ_INSERT_AFTER(&disk->comps, before, comp, link);
	else
		TAILQ_INSERT_HEAD(&disk->comps, comp, link);
	comp->hash_next = *bucket(disk, &comp->meta.cid);
	*bucket(disk, &comp->meta.cid) = comp;
	comp->key_next = disk->by_key[comp->key % LSOM__HASH];
	disk->by_key[comp->key % LSOM__HASH] = comp;
	comp->object_next = *object_bucket(disk, &comp->meta.oid);
	*object_bucket(disk, &comp->meta.oid) = comp;
	comp->linked = true;
}

void lsom__comp_dirty(struct lsom_comp *comp)
{
	assert(comp->far == NULL);
	if (comp->dirty)
		return;
	comp->dirty = true;
	TAILQ_INSERT_TAIL(&comp->disk->comps_dirty, comp, dirty_link);
	comp->disk->comps_dirty_count++;
}

void lsom__comp_clean(struct lsom_comp *comp)
{
	if (!comp->dirty)
		return;
	comp->dirty = false;
	TAILQ_REMOVE(&comp->disk->comps_dirty, comp, dirty_link);
	comp->disk->comps_dirty_count--;
}

void lsom__comp_carry(struct lsom_comp *comp)
{
	assert(comp->linked);
	if (comp->carry)
		return;
	comp->carry = true;
	TAILQ_INSERT_TAIL(&comp->disk->carries, comp, carry_link);
}

void lsom__comp_carried(struct lsom_comp *comp)
{
	if (!comp->carry)
		return;
	comp->carry = false;
	TAILQ_REMOVE(&comp->disk->carries, comp, carry_link);
}

static void comp_unlink(struct lsom_comp *comp)
{
	struct lsom_comp **p = bucket(comp->disk, &comp->meta.cid);

	if (!comp->linked)
		return;
	while (*p != comp)
		p = &(*p)->hash_next;
	*p = comp->hash_next;
	p = &comp->disk->by_key[comp->key % LSOM__HASH];
	while (*p != comp)
		p = &(*p)->key_next;
	*p = comp->key_next;
	p = object_bucket(comp->disk, &comp->meta.oid);
	while (*p != comp)
		p = &(*p)->object_next;
	*p = comp->object_next;
	TAILQ_REMOVE(&comp->disk->comps, comp, link);
	lsom__comp_carried(comp);
	lsom__count_leave(comp);
	comp->linked = false;
}

void lsom__comp_free(struct lsom_comp *comp)
{
	struct lsom__prep *p;

	assert(TAILQ_EMPTY(&comp->metas));
	lsom__comp_clean(comp);
	if (comp->reap_due)
		TAILQ_REMOVE(&comp->disk->reaps, comp, reap_link);
	if (comp->aborts_count > 0)
		TAILQ_REMOVE(&comp->disk->aborting, comp, abort_link);
	comp_unlink(comp);
	if (comp->far != NULL) {
		lsom__view_comp_free(comp);
		return;
	}
	comp->disk->unreaped -= comp->deleted && !comp->reaped;
	while ((p = TAILQ_FIRST(&comp->preps)) != NULL) {
		TAILQ_REMOVE(&comp->preps, p, link);
		lsom__prep_free(p);
	}
	lsom__index_drop(comp);
	free(comp->aborts);
	free(comp->aborts_pos);
	free(comp->committed);
	free(comp->stored_pages);
	free(comp);
}

void lsom__comp_forget(struct lsom_comp *comp)
{
	comp_unlink(comp);
	lsom__comp_unref(comp);
}

void lsom__comp_ref(struct lsom_comp *comp)
{
	assert(comp->refs > 0);
	comp->refs++;
}

void lsom__comp_unref(struct lsom_comp *comp)
{
	/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the caller's reference */
	struct lsom_disk *disk = comp->disk;

	assert(comp->refs > 0);
	if (--comp->refs == 0) {
		lsom__comp_free(comp);
		lsom__disk_changed(disk);
	}
}

struct lsom_comp *lsom__comp_by_key(const struct lsom_disk *disk, uint64_t key)
{
	struct lsom_comp *comp;

	for (comp = disk->by_key[key % LSOM__HASH]; comp != NULL;
	     comp = comp->key_next)
		if (comp->key == key)
			return comp;
	return NULL;
}

/* The one with this id that is not deleted; it may not be durable yet. */
static struct lsom_comp *comp_find(struct lsom_disk *disk,
				   const struct uuid *cid)
{
	struct lsom_comp *comp;

	for (comp = *bucket(disk, cid); comp != NULL; comp = comp->hash_next)
		if (!comp->deleted && uuid_equal(&comp->meta.cid, cid))
			return comp;
	return NULL;
}

struct lsom_comp *lsom_comp_get(struct lsom_disk *disk, const struct uuid *cid)
{
	struct lsom_comp *comp = comp_find(disk, cid);

	if (comp == NULL || !comp->created)
		return NULL;
	lsom__comp_ref(comp);
	disk->handles++;
	return comp;
}

void lsom_comp_put(struct lsom_comp *comp)
{
	assert(comp->disk->handles > 0);
	comp->disk->handles--;
	lsom__disk_changed(comp->disk);
	lsom__comp_unref(comp);
}

struct lsom_disk *lsom_comp_disk(struct lsom_comp *comp)
{
	return comp->disk;
}

const struct lsom_comp_meta *lsom_comp_meta(const struct lsom_comp *comp)
{
	return &comp->meta;
}

void lsom_comp_each(struct lsom_disk *disk,
		    void (*cb)(struct lsom_comp *comp, void *arg), void *arg)
{
	struct lsom_comp *comp, *next;

	TAILQ_FOREACH_SAFE (comp, &disk->comps, link, next)
		if (comp->created && !comp->deleted)
			cb(comp, arg);
}

unsigned lsom_comp_some(struct lsom_disk *disk, unsigned at, unsigned max,
			void (*cb)(struct lsom_comp *comp, void *arg),
			void *arg)
{
	struct lsom_comp *comp;
	unsigned n = 0;

	for (; at < LSOM__HASH && n < max; at++)
		for (comp = disk->by_object[at]; comp != NULL;
		     comp = comp->object_next) {
			n++;
			if (comp->created && !comp->deleted)
				cb(comp, arg);
		}
	return at < LSOM__HASH ? at : 0;
}

void lsom_comp_each_of(struct lsom_disk *disk, const struct uuid *oid,
		       void (*cb)(struct lsom_comp *comp, void *arg), void *arg)
{
	struct lsom_comp *comp = *object_bucket(disk, oid);

	for (; comp != NULL; comp = comp->object_next)
		if (comp->created && !comp->deleted &&
		    uuid_equal(&comp->meta.oid, oid))
			cb(comp, arg);
}

/* ---- records of metadata ---- */

static void nothing(struct lsom__op *op, int status)
{
	struct lsom__stable_record *s = (void *)op->record;
	struct lsom_comp *comp = op->comp;

	if (status == 0) {
		comp->meta.stable_lsn =
			MAX(comp->meta.stable_lsn, s->stable_lsn);
		comp->meta.g_all = MAX(comp->meta.g_all, s->g_all);
	} else {
		comp->decided_dirty = true; /* with the next record, then */
	}
	lsom__op_free(op);
}

struct lsom__op *lsom__stable_op(struct lsom_comp *comp)
{
	const struct lsom_decided *d = &comp->decided;
	uint32_t bytes = sizeof(d->committed);
	struct lsom__stable_record *s;
	struct lsom__op *op;
	uint64_t word;

	/* Up to the last byte that says something. */
	for (; bytes > 0; bytes -= sizeof(word)) {
		memcpy(&word, d->committed + bytes - sizeof(word),
		       sizeof(word));
		if (word != 0)
			break;
	}
	while (bytes > 0 && d->committed[bytes - 1] == 0)
		bytes--;
	op = lsom__op_new(comp->disk, comp, LSOM__R_STABLE,
			  ROUND_UP(sizeof(*s) + bytes, 8u));
	if (op == NULL)
		return NULL;
	s = (void *)op->record;
	s->stable_lsn = d->stable_lsn;
	s->g_all = d->g_all;
	s->hole_floor = d->hole_floor;
	s->bitmap_bytes = bytes;
	memcpy(s + 1, d->committed, bytes);
	op->apply = nothing;
	return op;
}

static unsigned commits_list(const struct lsom_comp *comp, uint64_t *out)
{
	unsigned n = 0, i;

	for (i = 0; i < LSOM_WINDOW; i++)
		if (comp->decided.committed[i / 8] >> (i % 8) & 1)
			out[n++] = comp->decided.stable_lsn + 1 + i;
	for (i = 0; i < comp->committed_count; i++)
		if (comp->committed[i] > comp->decided.stable_lsn)
			out[n++] = comp->committed[i];
	return n;
}

struct lsom__op *lsom__state_op(struct lsom_comp *comp,
				const struct lsom_comp_meta *m,
				uint64_t meta_sequence)
{
	uint64_t commits[LSOM__COMMITS_MAX];
	unsigned n = commits_list(comp, commits);
	size_t aborts = comp->aborts_count * sizeof(struct lsom__abort);
	struct lsom__state_record *s;
	struct lsom__op *op;

	op = lsom__op_new(comp->disk, comp, LSOM__R_STATE,
			  sizeof(*s) + aborts + n * 8u);
	if (op == NULL)
		return NULL;
	s = (void *)op->record;
	s->cid = m->cid;
	s->oid = m->oid;
	s->cinc = m->cinc;
	s->size_bytes = m->size_bytes;
	s->meta_sequence = meta_sequence;
	s->promised_oepoch = m->promised_oepoch;
	s->member_csn = m->member_csn;
	s->csn_seen = m->csn_seen;
	s->stable_lsn = MAX(m->stable_lsn, comp->decided.stable_lsn);
	s->g_all = MAX(m->g_all, comp->decided.g_all);
	s->hole_floor = comp->decided.hole_floor;
	s->max_lsn = m->max_lsn;
	s->max_committed = m->max_committed;
	s->state_seen = m->state_seen;
	s->damaged = m->damaged;
	s->aborts = comp->aborts_count;
	s->committed = n;
	if (aborts > 0)
		memcpy(s + 1, comp->aborts, aborts);
	memcpy((uint8_t *)(s + 1) + aborts, commits, n * 8u);
	return op;
}

static void meta_take(struct lsom_comp_meta *m,
		      const struct lsom__state_record *s)
{
	m->cid = s->cid;
	m->oid = s->oid;
	m->cinc = s->cinc;
	m->size_bytes = s->size_bytes;
	m->promised_oepoch = s->promised_oepoch;
	m->member_csn = s->member_csn;
	m->csn_seen = s->csn_seen;
	m->state_seen = (enum lsom_leaf_state)s->state_seen;
}

int lsom__state_take(struct lsom_comp *comp, const struct lsom__state_record *s)
{
	const uint8_t *p = (const uint8_t *)(s + 1);
	struct lsom__abort a;
	uint64_t lsn;
	uint32_t i;
	int rv = 0;

	if (s->meta_sequence >= comp->meta_sequence) {
		comp->meta_sequence = s->meta_sequence;
		meta_take(&comp->meta, s);
	}
	comp->meta.damaged = MAX(comp->meta.damaged, s->damaged);
	comp->meta.max_lsn = MAX(comp->meta.max_lsn, s->max_lsn);
	comp->meta.max_committed =
		MAX(comp->meta.max_committed, s->max_committed);
	comp->meta.stable_lsn = MAX(comp->meta.stable_lsn, s->stable_lsn);
	comp->meta.g_all = MAX(comp->meta.g_all, s->g_all);
	comp->decided.hole_floor = MAX(comp->decided.hole_floor, s->hole_floor);
	for (i = 0; i < s->aborts && rv == 0; i++, p += sizeof(a)) {
		memcpy(&a, p, sizeof(a));
		rv = lsom__abort_add(comp, a.lsn, a.member_csn);
	}
	for (i = 0; i < s->committed && rv == 0; i++, p += sizeof(lsn)) {
		memcpy(&lsn, p, sizeof(lsn));
		rv = lsom__committed_note(comp, lsn);
	}
	return rv;
}

/* ---- requests ---- */

static void meta_next(struct lsom_comp *comp);

static void meta_finish(struct lsom_comp *comp, struct lsom_meta *req,
			int status)
{
	assert(TAILQ_FIRST(&comp->metas) == req);
	TAILQ_REMOVE(&comp->metas, req, link);
	lsom__comp_ref(comp);
	/* The next one first: the callback may close everything. */
	meta_next(comp);
	req->cb(req, status);
	/*
	 * A CREATE that failed: nothing of it is known to be durable.  One that
	 * was sent again meanwhile is on its way, and has the component.
	 */
	if (status < 0 && !comp->created && comp->linked &&
	    TAILQ_EMPTY(&comp->metas)) {
		comp->disk->comps_count--;
		lsom__comp_forget(comp);
	}
	lsom__comp_unref(comp);
}

/* ATTACH: versions of the session before are void (g6.2). */
static int preps_discard(struct lsom_comp *comp)
{
	struct lsom__prep *p;
	int rv;

	while ((p = TAILQ_FIRST(&comp->preps)) != NULL) {
		rv = lsom__abort_add(comp, p->lsn, p->member_csn);
		if (rv < 0)
			return rv;
		lsom__prep_drop(comp, p);
	}
	return 0;
}

static void meta_apply(struct lsom__op *op, int status);
static void fields_take(struct lsom_comp_meta *m, const struct lsom_meta *req);

/*
 * What an ATTACH voids is not known before all that came ahead of it is applied.
 * So first the state as it is goes into the log, behind that; then, in one record
 * with the aborts, what it is from now on: a restart finds the session and what
 * it voids, or neither, and no version that its stable lsn would commit.  0,
 * -ENOMEM, or -EBUSY: too many are aborted.
 */
static int attach_go(struct lsom_comp *comp, struct lsom_meta *req)
{
	struct lsom_comp_meta m = comp->meta;
	struct lsom__op *op;
	int rv = preps_discard(comp);

	if (rv < 0)
		return rv;
	fields_take(&m, req);
	op = lsom__state_op(comp, &m, comp->meta_sequence + 1);
	if (op == NULL)
		return -ENOMEM;
	op->req = req;
	op->apply = meta_apply;
	lsom__log_append(comp->disk, LSOM__HEAD_GUEST, op);
	return 0;
}

/* All that came ahead of an ATTACH is applied. */
static void attach_reached(struct lsom__op *op, int status)
{
	struct lsom_comp *comp = op->comp;
	struct lsom_meta *req = op->req;

	if (status == 0 && comp->deleted)
		status = -ENOENT;
	if (status == 0)
		status = attach_go(comp, req);
	lsom__comp_ref(comp);
	lsom__op_free(op);
	if (status < 0)
		meta_finish(comp, req, status);
	lsom__comp_unref(comp);
}

static void meta_apply(struct lsom__op *op, int status)
{
	struct lsom_comp *comp = op->comp;
	struct lsom_meta *req = op->req;
	struct lsom__state_record *s = (void *)op->record;

	if (status == 0 && req->op == LSOM_DELETE) {
		lsom__comp_deleted(comp);
	} else if (status == 0) {
		meta_take(&comp->meta, s);
		/*
		 * Not before: what the cleaner and checkpoints write meanwhile
		 * is the old state, and must not pass for this one.
		 */
		comp->meta_sequence = s->meta_sequence;
		comp->meta.stable_lsn =
			MAX(comp->meta.stable_lsn, s->stable_lsn);
		comp->meta.g_all = MAX(comp->meta.g_all, s->g_all);
		comp->created = true;
		lsom__comp_dirty(comp);
	}
	lsom__comp_ref(comp);
	lsom__op_free(op);
	meta_finish(comp, req, status);
	lsom__comp_unref(comp);
}

/* Finish the first request without a record, later. */
static void meta_skip(struct env_task *task)
{
	struct lsom_comp *comp = container_of(task, struct lsom_comp, skip);
	struct lsom_disk *disk = comp->disk;

	meta_finish(comp, TAILQ_FIRST(&comp->metas), comp->skip_status);
	assert(disk->works > 0);
	disk->works--;
	lsom__comp_unref(comp);
	lsom__disk_changed(disk);
}

static void fields_take(struct lsom_comp_meta *m, const struct lsom_meta *req)
{
	const struct lsom_comp_meta *r = &req->meta;

	if (req->op == LSOM_RESIZE) {
		m->size_bytes = r->size_bytes;
		return;
	}
	/* I2: none of these ever goes back. */
	m->promised_oepoch = MAX(m->promised_oepoch, r->promised_oepoch);
	m->member_csn = MAX(m->member_csn, r->member_csn);
	m->csn_seen = MAX(m->csn_seen, r->csn_seen);
	if (r->state_seen != 0)
		m->state_seen = r->state_seen;
	m->stable_lsn = MAX(m->stable_lsn, r->stable_lsn);
	m->g_all = MAX(m->g_all, r->g_all);
}

/* The record of the first request of @comp, or why there is none. */
static int meta_record(struct lsom_comp *comp, struct lsom_meta *req,
		       struct lsom__op **out)
{
	struct lsom_comp_meta m = comp->meta;
	struct lsom__op *op;

	if (comp->deleted)
		return req->op == LSOM_DELETE ? 0 : -ENOENT;
	if (req->op == LSOM_CREATE && comp->created)
		return 0;
	if (req->op == LSOM_DELETE) {
		op = lsom__op_new(comp->disk, comp, LSOM__R_DELETE,
				  sizeof(struct lsom__record));
	} else if (req->op == LSOM_ATTACH) {
		op = lsom__state_op(comp, &m, comp->meta_sequence);
	} else {
		if (req->op == LSOM_CREATE)
			m = req->meta;
		else
			fields_take(&m, req);
		op = lsom__state_op(comp, &m, comp->meta_sequence + 1);
	}
	*out = op;
	return op == NULL ? -ENOMEM : 0;
}

static void meta_go(struct lsom_comp *comp, int rv)
{
	struct lsom_meta *req = TAILQ_FIRST(&comp->metas);
	struct lsom__op *op = NULL;

	if (rv == 0)
		rv = meta_record(comp, req, &op);
	if (op != NULL) {
		op->req = req;
		op->apply =
			req->op == LSOM_ATTACH ? attach_reached : meta_apply;
		lsom__log_append(comp->disk, LSOM__HEAD_GUEST, op);
		return;
	}
	/* That takes no memory, for there may be none. */
	comp->skip_status = rv;
	comp->skip.cb = meta_skip;
	lsom__comp_ref(comp);
	comp->disk->works++;
	env_defer(comp->disk->env, &comp->skip);
}

static void meta_next(struct lsom_comp *comp)
{
	struct lsom_meta *req = TAILQ_FIRST(&comp->metas);
	int rv = 0;

	if (req == NULL)
		return;
	if (req->op == LSOM_RESIZE && !comp->deleted &&
	    req->meta.size_bytes < comp->meta.size_bytes) {
		rv = lsom__comp_shrink(comp, req->meta.size_bytes / LSOM_BLOCK,
				       meta_go);
		if (rv == 0)
			return;
	}
	meta_go(comp, rv);
}

static void meta_queue(struct lsom_comp *comp, struct lsom_meta *req,
		       lsom_meta_cb cb)
{
	req->disk = comp->disk;
	req->comp = comp;
	req->cb = cb;
	TAILQ_INSERT_TAIL(&comp->metas, req, link);
	if (TAILQ_FIRST(&comp->metas) == req)
		meta_next(comp);
}

int lsom__state_of(const struct lsom_disk *disk)
{
	if (disk->state == LSOM_DISK_FAILED)
		return -ENODEV;
	return disk->closing || disk->state == LSOM_DISK_OPENING ? -ESHUTDOWN
								 : 0;
}

int lsom_comp_create(struct lsom_disk *disk, struct lsom_meta *req,
		     lsom_meta_cb cb)
{
	const struct lsom_comp_meta *m = &req->meta;
	struct lsom_comp *comp;
	int rv = lsom__state_of(disk);

	if (rv < 0)
		return rv;
	if (disk->view != NULL)
		return lsom__view_create(disk, req, cb);
	if (req->op != LSOM_CREATE || uuid_is_zero(&m->cid) ||
	    m->size_bytes % LSOM_BLOCK != 0 ||
	    m->size_bytes > LSOM__COMP_BYTES_MAX)
		return -EINVAL;
	if (lsom__log_busy(disk, 0))
		return -EBUSY;
	comp = comp_find(disk, &m->cid);
	if (comp != NULL && comp->meta.cinc != m->cinc)
		return -EEXIST;
	if (comp == NULL) {
		comp = lsom__comp_new(disk, disk->key_next, &m->cid, &m->oid);
		if (comp == NULL)
			return -ENOMEM;
		comp->meta.cinc = m->cinc;
		disk->key_next++;
		disk->comps_count++;
		lsom__comp_link(comp);
	}
	meta_queue(comp, req, cb);
	return 0;
}

int lsom_comp_update(struct lsom_comp *comp, struct lsom_meta *req,
		     lsom_meta_cb cb)
{
	int rv = lsom__state_of(comp->disk);

	if (rv < 0)
		return rv;
	if (comp->far != NULL)
		return lsom__view_update(comp, req, cb);
	if (req->op == LSOM_CREATE || req->op > LSOM_RESIZE)
		return -EINVAL;
	if (req->op == LSOM_RESIZE &&
	    (req->meta.size_bytes % LSOM_BLOCK != 0 ||
	     req->meta.size_bytes > LSOM__COMP_BYTES_MAX))
		return -EINVAL;
	if (comp->deleted && req->op != LSOM_DELETE)
		return -ENOENT;
	if (lsom__log_busy(comp->disk, 0))
		return -EBUSY;
	if (req->op == LSOM_ATTACH &&
	    comp->aborts_count + comp->preps_count + LSOM__PREPS_MAX / 4 >
		    LSOM__ABORTS_MAX) {
		lsom__aborts_full(comp);
		return -EBUSY;
	}
	if (req->op == LSOM_ATTACH)
		comp->session = MAX(comp->session, req->meta.member_csn);
	meta_queue(comp, req, cb);
	return 0;
}

/* ---- deletion ---- */

#define REAP_PAGES 64u /* in a turn */

static void reap_due(struct lsom_comp *comp)
{
	comp->reap_due = true;
	TAILQ_INSERT_TAIL(&comp->disk->reaps, comp, reap_link);
}

static void reap_undue(struct lsom_comp *comp)
{
	comp->reap_due = false;
	TAILQ_REMOVE(&comp->disk->reaps, comp, reap_link);
}

static void reap_wake(struct lsom__page_wait *wait, int status)
{
	struct lsom_comp *comp =
		container_of(wait, struct lsom_comp, reap_wait);
	struct lsom_disk *disk = comp->disk;

	comp->reaping = false;
	disk->works--;
	reap_due(comp);
	lsom__comp_unref(comp);
	/* Else a checkpoint's end tries again; there is one though nothing changes. */
	if (status == 0)
		lsom__reap(disk);
	else
		lsom__checkpoint_arm(disk);
}

/* Up to *@max pages: 0, or -EAGAIN: it waits for one, or why it cannot go on. */
static int comp_reap(struct lsom_comp *comp, unsigned *max)
{
	struct lsom_disk *disk = comp->disk;
	struct lsom__page *page;
	int rv;

	while ((comp->reap_next = lsom__page_next(comp, comp->reap_next)) !=
	       UINT64_MAX) {
		if (disk->kv != NULL &&
		    disk->dirty_count > disk->lsom->pages_max / 2) {
			lsom__checkpoint_start(disk);
			return -EBUSY; /* its end goes on here */
		}
		if (*max == 0)
			return -EINPROGRESS;
		comp->reap_wait.cb = reap_wake;
		rv = lsom__page_want(comp, comp->reap_next, &page,
				     &comp->reap_wait);
		if (rv < 0)
			return rv;
		lsom__page_release(comp, page);
		comp->reap_next++;
		--*max;
		/* Heads that wait for a free segment wait for this, too. */
		disk->ticks_stalled = 0;
	}
	return 0;
}

static void comp_reaped(struct lsom_comp *comp)
{
	struct lsom_disk *disk = comp->disk;

	reap_undue(comp);
	comp->reaped = true;
	disk->unreaped--;
	lsom__comp_dirty(comp);
	lsom__cleaner_kick(disk);
	if (disk->kv == NULL)
		lsom__comp_forget(comp);
}

static void comp_reap_waits(struct lsom_comp *comp)
{
	reap_undue(comp);
	comp->reaping = true;
	lsom__comp_ref(comp);
	comp->disk->works++;
}

static void reap_run(struct env_task *task)
{
	struct lsom_disk *disk =
		container_of(task, struct lsom_disk, reap_task);

	disk->works--;
	lsom__reap(disk);
	lsom__disk_changed(disk);
}

/* The next opening goes on where closing comes first. */
static void reap_soon(struct lsom_disk *disk)
{
	if (disk->closing || disk->reap_task.queued)
		return;
	disk->reap_task.cb = reap_run;
	disk->works++;
	env_defer(disk->env, &disk->reap_task);
}

/*
 * Release the pages of deleted components one by one, so that the live counts
 * follow; some in a turn, and not faster than checkpoints take them out of the
 * store.
 */
void lsom__reap(struct lsom_disk *disk)
{
	unsigned max = REAP_PAGES;
	struct lsom_comp *comp;
	int rv = 0;

	while ((rv == 0 || rv == -EAGAIN) && disk->state != LSOM_DISK_FAILED &&
	       (comp = TAILQ_FIRST(&disk->reaps)) != NULL) {
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): off the list */
		rv = comp_reap(comp, &max);
		if (rv == 0)
			comp_reaped(comp);
		else if (rv == -EAGAIN)
			comp_reap_waits(comp);
	}
	if (rv == -EINPROGRESS)
		reap_soon(disk);
	else if (rv == -ENOMEM)
		lsom__checkpoint_arm(disk); /* whose end tries again */
}

void lsom__comp_gone(struct lsom_comp *comp)
{
	comp->deleted = true;
	comp->disk->unreaped++;
	reap_due(comp);
}

void lsom__comp_deleted(struct lsom_comp *comp)
{
	struct lsom_disk *disk = comp->disk;
	struct lsom__prep *p;
	int rv;

	if (comp->deleted)
		return;
	do
		rv = lsom__tomb_add(disk, comp->key, LSOM__POS_LATER, false);
	while (rv < 0 && lsom__page_shed(disk));
	if (rv < 0)
		lsom__disk_fail(disk, "out of memory", rv);
	lsom__comp_gone(comp);
	lsom__comp_dirty(comp);
	disk->comps_count--;
	lsom__credits_drop(comp, comp->credits);
	comp->credits = 0;
	lsom__promise_set(comp);
	while ((p = TAILQ_FIRST(&comp->preps)) != NULL)
		lsom__prep_drop(comp, p);
	if (disk->recovery == NULL)
		lsom__reap(disk);
}
