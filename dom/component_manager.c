/*
 * component_manager: the fence in front of lsom (replication.md, FENCE).
 *
 * A message of an owner is handled only if its cinc, oepoch and member_csn are
 * the component's own, compared in the same turn that calls lsom.  SEAL raises
 * the promise: from that moment older epochs are refused, and the answer leaves
 * when the promise is durable and what was accepted before has settled (g1.3).
 * A component that was not ACTIVE when it was opened refuses everything until an
 * ATTACH, or until a SEAL names it ACTIVE with the member_csn it holds (R42).
 */
#define LOG_ROOM LOG_DOM
#include "dom/dom_int.h"

#include "base/log.h"

#include <assert.h>
#include <stdlib.h>

static struct dom__cm **bucket(struct dom__disk *disk, const struct uuid *cid)
{
	return &disk->cms_by_id[uuid_hash(cid) % DOM__BUCKETS];
}

static void cm_insert(struct dom__cm *cm)
{
	struct dom__cm **at = bucket(cm->disk, &lsom_comp_meta(cm->comp)->cid);

	cm->chain = *at;
	*at = cm;
	TAILQ_INSERT_TAIL(&cm->disk->cms, cm, link);
}

static void cm_remove(struct dom__cm *cm)
{
	struct dom__cm **at = bucket(cm->disk, &lsom_comp_meta(cm->comp)->cid);

	while (*at != cm)
		at = &(*at)->chain;
	*at = cm->chain;
	TAILQ_REMOVE(&cm->disk->cms, cm, link);
}

int dom__cm_get(struct dom__disk *disk, const struct uuid *cid,
		struct dom__cm **out)
{
	struct lsom_comp *comp;
	struct dom__cm *cm = *bucket(disk, cid);

	while (cm != NULL && !uuid_equal(&lsom_comp_meta(cm->comp)->cid, cid))
		cm = cm->chain;
	if (cm != NULL) {
		cm->refs++;
		*out = cm;
		return 0;
	}
	comp = lsom_comp_get(disk->lsom, cid);
	if (comp == NULL)
		return -ENOENT;
	cm = calloc(1, sizeof(*cm));
	if (cm == NULL) {
		lsom_comp_put(comp);
		return -ENOMEM;
	}
	cm->disk = disk;
	cm->comp = comp;
	cm->promised_oepoch = lsom_comp_meta(comp)->promised_oepoch;
	cm->barred = lsom_comp_meta(comp)->state_seen != LSOM_ACTIVE;
	cm->refs = 1;
	cm_insert(cm);
	*out = cm;
	return 0;
}

void dom__cm_put(struct dom__cm *cm)
{
	if (--cm->refs > 0)
		return;
	assert(cm->in_flight == 0);
	assert(cm->seal == NULL);
	cm_remove(cm);
	lsom_comp_put(cm->comp);
	dom__kick(cm->disk->dom);
	free(cm);
}

/* ---- metadata ---- */

static void meta_done(struct lsom_meta *meta, int status)
{
	struct dom__cm_meta *req =
		container_of(meta, struct dom__cm_meta, meta);

	req->disk->metas--;
	dom__kick(req->disk->dom);
	req->cb(req, status);
}

int dom__cm_create(struct dom__disk *disk, struct dom__cm_meta *req,
		   const struct dom__leaf *leaf, const struct uuid *oid,
		   uint64_t oepoch, uint64_t csn,
		   void (*cb)(struct dom__cm_meta *req, int status))
{
	int rv;

	req->cm = NULL;
	req->disk = disk;
	req->cb = cb;
	req->meta = (struct lsom_meta){
		.op = LSOM_CREATE,
		.meta = { .cid = leaf->cid,
			  .oid = *oid,
			  .cinc = leaf->cinc,
			  .size_bytes = leaf->size_bytes,
			  .promised_oepoch = oepoch,
			  .member_csn = leaf->member_csn,
			  .csn_seen = csn,
			  .state_seen = leaf->state },
	};
	rv = lsom_comp_create(disk->lsom, &req->meta, meta_done);
	if (rv == 0)
		disk->metas++;
	return rv;
}

static void seal_done(struct lsom_meta *meta, int status)
{
	struct dom__cm_meta *req =
		container_of(meta, struct dom__cm_meta, meta);
	struct dom__cm *cm = req->cm;

	if (status == 0 && lsom_comp_meta(cm->comp)->state_seen == LSOM_ACTIVE)
		cm->barred = false;
	req->cb(req, status);
}

/* Nothing accepted under the older epoch is in flight: make it durable. */
static void seal_go(struct env_task *task)
{
	struct dom__cm *cm = container_of(task, struct dom__cm, seal_task);
	struct dom__cm_meta *req = cm->seal;
	int rv;

	cm->seal = NULL;
	rv = lsom_comp_update(cm->comp, &req->meta, seal_done);
	if (rv < 0)
		req->cb(req, rv);
}

/*
 * Was @oepoch, or a later one, served here already?  A directory that was put
 * back from a backup grants epochs once more: their lsns would be issued twice,
 * and a new record answered from an old one (R26).  A takeover may repeat its
 * own SEAL, as no lsn is issued before every leaf has answered.
 */
static bool epoch_used(const struct lsom_comp_meta *meta, uint64_t oepoch)
{
	return MAX(meta->max_lsn, meta->stable_lsn) > LSN(oepoch, 0);
}

int dom__cm_seal(struct dom__cm *cm, struct dom__cm_meta *req,
		 const struct dom__leaf *leaf, uint64_t oepoch, uint64_t csn,
		 void (*cb)(struct dom__cm_meta *req, int status))
{
	const struct lsom_comp_meta *meta = lsom_comp_meta(cm->comp);

	if (dom__rule(cm->disk->dom, 13) && meta->cinc != leaf->cinc)
		return -ESTALE;
	if (oepoch < cm->promised_oepoch || epoch_used(meta, oepoch))
		return -ESTALE;
	if (cm->seal != NULL)
		return -EBUSY;
	req->cm = cm;
	req->disk = cm->disk;
	req->cb = cb;
	req->meta = (struct lsom_meta){ .op = LSOM_SEAL, .meta = *meta };
	req->meta.meta.promised_oepoch = oepoch;
	req->meta.meta.csn_seen = MAX(csn, meta->csn_seen);
	/*
	 * The state of the directory is recorded only with the membership the
	 * component has: an ACTIVE leaf of another one is not this content.
	 */
	if (meta->member_csn == leaf->member_csn)
		req->meta.meta.state_seen = leaf->state;
	cm->promised_oepoch = oepoch;
	cm->seal = req;
	cm->seal_task.cb = seal_go;
	if (cm->in_flight == 0)
		env_defer(cm->disk->dom->env, &cm->seal_task);
	return 0;
}

static int fence_check(struct dom__cm *cm, const struct dom__fence *fence)
{
	const struct lsom_comp_meta *meta = lsom_comp_meta(cm->comp);
	const struct dom *dom = cm->disk->dom;

	if (dom__rule(dom, 13) && fence->cinc != meta->cinc)
		return -ESTALE;
	if (dom__rule(dom, 1) && fence->oepoch != cm->promised_oepoch)
		return -ESTALE;
	if (dom__rule(dom, 6) && fence->member_csn != meta->member_csn)
		return -ESTALE;
	if (dom__rule(dom, 42) && cm->barred)
		return -ESTALE;
	return 0;
}

static void update_done(struct lsom_meta *meta, int status)
{
	struct dom__cm_meta *req =
		container_of(meta, struct dom__cm_meta, meta);

	if (status == 0 && meta->op == LSOM_ATTACH)
		req->cm->barred = false;
	req->cb(req, status);
}

int dom__cm_update(struct dom__cm *cm, const struct dom__fence *fence,
		   struct dom__cm_meta *req, enum lsom_meta_op op,
		   const struct lsom_comp_meta *meta,
		   void (*cb)(struct dom__cm_meta *req, int status))
{
	const struct lsom_comp_meta *own = lsom_comp_meta(cm->comp);

	if (op == LSOM_ATTACH) {
		/* Repeated: answered from what is durable, by the caller. */
		if (fence->cinc != own->cinc ||
		    fence->oepoch != cm->promised_oepoch ||
		    meta->member_csn <= own->member_csn)
			return -ESTALE;
	} else {
		int rv = fence_check(cm, fence);

		if (rv < 0)
			return rv;
	}
	req->cm = cm;
	req->disk = cm->disk;
	req->cb = cb;
	req->meta = (struct lsom_meta){ .op = op, .meta = *meta };
	return lsom_comp_update(cm->comp, &req->meta, update_done);
}

/* ---- data ---- */

static void data_ended(struct dom__cm *cm)
{
	assert(cm->in_flight > 0);
	if (--cm->in_flight == 0 && cm->seal != NULL)
		env_defer(cm->disk->dom->env, &cm->seal_task);
}

static void write_done(struct lsom_write *write, int status)
{
	struct dom__cm_write *req =
		container_of(write, struct dom__cm_write, write);

	data_ended(req->cm);
	req->cb(req, status);
}

int dom__cm_write(struct dom__cm *cm, const struct dom__fence *fence,
		  struct dom__cm_write *req,
		  void (*cb)(struct dom__cm_write *req, int status))
{
	int rv = fence_check(cm, fence);

	if (rv < 0)
		return rv;
	req->cm = cm;
	req->cb = cb;
	rv = lsom_write(cm->comp, &req->write, write_done);
	if (rv == 0)
		cm->in_flight++;
	return rv;
}

static void read_done(struct lsom_read *read, int status)
{
	struct dom__cm_read *req =
		container_of(read, struct dom__cm_read, read);

	data_ended(req->cm);
	req->cb(req, status);
}

int dom__cm_read(struct dom__cm *cm, const struct dom__fence *fence,
		 struct dom__cm_read *req,
		 void (*cb)(struct dom__cm_read *req, int status))
{
	int rv = fence_check(cm, fence);

	if (rv < 0)
		return rv;
	req->cm = cm;
	req->cb = cb;
	rv = lsom_read(cm->comp, &req->read, read_done);
	if (rv == 0)
		cm->in_flight++;
	return rv;
}

static void decide_done(struct lsom_decide *decide, int status)
{
	struct dom__cm_decide *req =
		container_of(decide, struct dom__cm_decide, decide);

	data_ended(req->cm);
	req->cb(req, status);
}

int dom__cm_decide(struct dom__cm *cm, const struct dom__fence *fence,
		   struct dom__cm_decide *req,
		   void (*cb)(struct dom__cm_decide *req, int status))
{
	int rv = fence_check(cm, fence);

	if (rv < 0)
		return rv;
	req->cm = cm;
	req->cb = cb;
	rv = lsom_decide(cm->comp, &req->decide, decide_done);
	if (rv == 0)
		cm->in_flight++;
	return rv;
}

static void scan_done(struct lsom_scan *scan, int status)
{
	struct dom__cm_scan *req =
		container_of(scan, struct dom__cm_scan, scan);

	data_ended(req->cm);
	req->cb(req, status);
}

int dom__cm_scan(struct dom__cm *cm, const struct dom__fence *fence,
		 struct dom__cm_scan *req,
		 void (*cb)(struct dom__cm_scan *req, int status))
{
	int rv = fence_check(cm, fence);

	if (rv < 0)
		return rv;
	req->cm = cm;
	req->cb = cb;
	rv = lsom_scan(cm->comp, &req->scan, scan_done);
	if (rv == 0)
		cm->in_flight++;
	return rv;
}

int dom__cm_decided(struct dom__cm *cm, const struct dom__fence *fence,
		    const struct lsom_decided *decided)
{
	return fence_check(cm, fence) == 0 ? lsom_decided(cm->comp, decided)
					   : 0;
}
