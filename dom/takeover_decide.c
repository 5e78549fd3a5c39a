/*
 * takeover_decide: the undecided records that a takeover finds.
 *
 *	gather		them from every leaf
 *	check		an atomic command: did it reach every group it lists?
 *	decide		forward, or back if it did not (R44)
 *
 * What is decided here is durable before anything is served.
 */
#define LOG_ROOM LOG_DOM
#include "dom/dom_int.h"

#include "base/log.h"

#include <stdlib.h>

/* An undecided record found on a leaf, and what becomes of it. */
struct record {
	unsigned leaf;
	uint64_t lsn, offset, len;
	bool atomic, forward;
	unsigned participants_count;
	struct uuid participants[LSOM_PARTICIPANTS_MAX];
};

struct decide {
	struct dom__owner *owner;
	uint64_t patience_ns; /* a component was too busy: until when */
	void (*cb)(void *arg, int status, unsigned count);
	void *arg;
	unsigned at;
	int status;
	struct record *records;
	unsigned records_count, records_max;
	unsigned participant; /* of records[at], while checking it */
	struct dom__cm_scan scan;
	struct lsom_version version;
	struct dom__cm_decide decide;
	struct env_timer timer;
	void (*again)(struct decide *d);
};

void dom__participant_pack(struct uuid *out, uint64_t lsn, uint64_t offset,
			   uint64_t len)
{
	put_le64(out->b, lsn);
	put_le64(out->b + 8, offset / DOM_BLOCK | (len / DOM_BLOCK) << 44);
}

void dom__participant_unpack(const struct uuid *in, uint64_t *lsn,
			     uint64_t *offset, uint64_t *len)
{
	uint64_t where = get_le64(in->b + 8);

	*lsn = get_le64(in->b);
	*offset = (where & ((1ull << 44) - 1)) * DOM_BLOCK;
	*len = (where >> 44) * DOM_BLOCK;
}

static void decide_end(struct decide *d, int status)
{
	void (*cb)(void *arg, int status, unsigned count) = d->cb;
	unsigned count = d->records_count;
	void *arg = d->arg;

	free(d->records);
	free(d);
	cb(arg, status, count);
}

static void again_fired(struct env_timer *timer)
{
	struct decide *d = container_of(timer, struct decide, timer);

	d->again(d);
}

/* A component refused: @again a little later if it was only busy. */
static void refused(struct decide *d, int status,
		    void (*again)(struct decide *d))
{
	struct env *env = d->owner->dom->env;

	if (status == -EBUSY && env_now(env) < d->patience_ns) {
		d->again = again;
		d->timer.cb = again_fired;
		env_timer_start(env, &d->timer, DOM__BUSY_NS);
	} else {
		decide_end(d, -ENXIO);
	}
}

/* ---- gather ---- */

static void gather_one(const struct lsom_undecided *u, void *arg)
{
	struct decide *d = arg;
	struct record *r;

	if (d->records_count == d->records_max) {
		unsigned max = d->records_max ? 2 * d->records_max : 64;
		struct record *more =
			realloc(d->records, max * sizeof(*d->records));

		if (more == NULL) {
			d->status = -ENOMEM;
			return;
		}
		d->records = more;
		d->records_max = max;
	}
	r = &d->records[d->records_count++];
	*r = (struct record){ .leaf = d->at,
			      .lsn = u->lsn,
			      .offset = u->offset,
			      .len = u->len,
			      .atomic = (u->flags & LSOM_W_ATOMIC) != 0,
			      .forward = true };
	if (u->participants_count <= LSOM_PARTICIPANTS_MAX &&
	    u->participants_count % 2 == 0) {
		r->participants_count = u->participants_count;
		memcpy(r->participants, u->participants,
		       u->participants_count * sizeof(struct uuid));
	}
}

static int gather(struct decide *d)
{
	struct dom__owner *owner = d->owner;

	for (d->at = 0; d->at < owner->leaves; d->at++)
		lsom_undecided_each(owner->peers[d->at].cm->comp, gather_one,
				    d);
	d->at = 0;
	return d->status;
}

/* ---- check: do all groups have an atomic record? ---- */

static void check_next(struct decide *d);
static void decide_next(struct decide *d);

static int leaf_of(const struct dom__owner *owner, const struct uuid *cid)
{
	for (unsigned i = 0; i < owner->leaves; i++) {
		if (uuid_equal(&owner->peers[i].leaf->cid, cid))
			return (int)i;
	}
	return -1;
}

/*
 * "Has it" from what is in memory: the record itself, or a later one on the same
 * blocks, which the range locks let in only after this one was decided.  That
 * stable_lsn passed it says nothing: so it does over what was aborted.
 */
static bool has_record(const struct decide *d, unsigned leaf, uint64_t lsn,
		       uint64_t offset, uint64_t len)
{
	for (unsigned i = 0; i < d->records_count; i++) {
		const struct record *r = &d->records[i];

		if (r->leaf == leaf && r->lsn >= lsn &&
		    r->offset < offset + len && offset < r->offset + r->len)
			return true;
	}
	return false;
}

/*
 * The leaf may have had it: batches of its log are lost.  Then forward is right
 * whether it did or not: its own blocks are refused as lost, so nobody sees half
 * of the command, and what another leaf acknowledged stays.
 */
static bool lost_record(const struct decide *d, unsigned leaf, uint64_t lsn)
{
	return LSN_OEPOCH(lsn) <=
	       lsom_comp_meta(d->owner->peers[leaf].cm->comp)->damaged;
}

/*
 * Decided, as every leaf of its group had recorded.  Had it been aborted, the other
 * groups had been rid of it before (op_undone()), and this record was not undecided.
 * So it was committed, though nothing may show it: what unmapped its blocks since
 * may have been let go.  A leaf that forgot what it acknowledged may have forgotten
 * an abort: then this says nothing.
 */
static bool passed_record(const struct decide *d, unsigned leaf, uint64_t lsn)
{
	const struct dom__owner *owner = d->owner;

	return !owner->lossy &&
	       lsn <= lsom_comp_meta(owner->peers[leaf].cm->comp)->g_all;
}

static void check_scanned(struct dom__cm_scan *req, int status)
{
	struct decide *d = container_of(req, struct decide, scan);
	struct record *r = &d->records[d->at];

	if (status < 0) {
		refused(d, status, check_next);
		return;
	}
	if (req->scan.items_count == 0 &&
	    req->scan.next < req->scan.offset + req->scan.len) {
		struct dom__cm *cm = req->cm;
		int leaf = leaf_of(d->owner, &lsom_comp_meta(cm->comp)->cid);
		uint64_t end = req->scan.offset + req->scan.len;
		int rv;

		req->scan.offset = req->scan.next;
		req->scan.len = end - req->scan.next;
		rv = dom__cm_scan(cm, &d->owner->peers[leaf].fence, req,
				  check_scanned);
		if (rv < 0)
			refused(d, rv, check_next);
		return;
	}
	if (req->scan.items_count == 0)
		r->forward = false; /* one group never had it */
	d->participant += 2;
	check_next(d);
}

static void check_next(struct decide *d)
{
	struct dom__owner *owner = d->owner;

	for (; d->at < d->records_count; d->at++, d->participant = 0) {
		struct record *r = &d->records[d->at];

		if (!r->atomic || !dom__rule(owner->dom, 44))
			continue;
		for (; r->forward && d->participant < r->participants_count;
		     d->participant += 2) {
			const struct uuid *p = &r->participants[d->participant];
			uint64_t lsn, offset, len;
			int leaf = leaf_of(owner, &p[0]);
			int rv;

			dom__participant_unpack(&p[1], &lsn, &offset, &len);
			if (leaf < 0 || lost_record(d, (unsigned)leaf, lsn) ||
			    has_record(d, (unsigned)leaf, lsn, offset, len) ||
			    passed_record(d, (unsigned)leaf, lsn))
				continue; /* a leg cut off has it no more */
			d->scan.scan = (struct lsom_scan){
				.offset = offset,
				.len = len,
				.since = lsn - 1,
				.items = &d->version,
				.items_max = 1,
			};
			rv = dom__cm_scan(owner->peers[leaf].cm,
					  &owner->peers[leaf].fence, &d->scan,
					  check_scanned);
			if (rv < 0)
				refused(d, rv, check_next);
			return;
		}
	}
	d->at = 0;
	decide_next(d);
}

/* ---- decide ---- */

static void decided(struct dom__cm_decide *req, int status)
{
	struct decide *d = container_of(req, struct decide, decide);

	if (status < 0) {
		log_error("an undecided write cannot be settled: %s",
			  err_text(status));
		decide_end(d, -ENXIO);
		return;
	}
	d->at++;
	decide_next(d);
}

/* Durable before anything is served: a second takeover decides alike (R15). */
static void decide_next(struct decide *d)
{
	struct dom__owner *owner = d->owner;
	struct record *r;
	int rv;

	if (d->at == d->records_count) {
		decide_end(d, 0);
		return;
	}
	r = &d->records[d->at];
	d->decide.decide =
		(struct lsom_decide){ .commit = r->forward, .lsn = r->lsn };
	rv = dom__cm_decide(owner->peers[r->leaf].cm,
			    &owner->peers[r->leaf].fence, &d->decide, decided);
	if (rv < 0)
		refused(d, rv, decide_next);
}

int dom__decide_start(struct dom__owner *owner, uint64_t patience_ns,
		      void (*cb)(void *arg, int status, unsigned count),
		      void *arg)
{
	struct decide *d = calloc(1, sizeof(*d));

	if (d == NULL)
		return -ENOMEM;
	d->owner = owner;
	d->patience_ns = patience_ns;
	d->cb = cb;
	d->arg = arg;
	if (gather(d) < 0) {
		free(d->records);
		free(d);
		return -ENOMEM;
	}
	check_next(d);
	return 0;
}
