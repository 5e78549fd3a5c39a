/*
 * comp: lsom alone, on one disk; this file plays the owner.
 *
 * It does what dom does to a component, and what a network would make of it:
 * prepares, decides in any order, aborts now and then, repeats a PREP, sends one
 * after its ABORT.  After a power cut it seals under the next epoch and rolls
 * forward what it finds undecided.  Beside the data component another comes
 * and goes, so that the log has metadata to carry and tombs to keep.
 */
#include "tests/sim/sim.h"

#include "base/crc.h"
#include "base/err.h"
#include "lsom/format.h"
#include "lsom/lsom.h"

#include <stdlib.h>

#define SLOTS 12u
#define WRITE_BLOCKS 24u
#define LATE_MAX 8u

struct run;

struct slot {
	struct lsom_write w;
	struct lsom_read rd;
	struct lsom_decide decide;
	struct run *run;
	struct h_op *op;
	uint32_t crcs[WRITE_BLOCKS];
	uint64_t seq;
	uint32_t first, blocks;
	bool busy, reading, abort, silent;
};

/* What is known of a block when nothing of it is in flight. */
struct block {
	uint8_t writers, readers;
	bool known, hole, ever;
	uint64_t lsn;
};

enum aux { AUX_NONE, AUX_MAKING, AUX_THERE, AUX_GOING, AUX_MAYBE };

struct run {
	struct sim *sim;
	struct lsom *lsom;
	struct lsom_disk *disk;
	struct lsom_comp *comp;
	struct uuid id, cluster, cid;
	uint32_t blocks_count;
	struct block *blocks;
	struct slot slots[SLOTS];
	uint64_t epoch, sealed_epoch, seq_next, stable;
	uint8_t answered[1u << 16], aborted[1u << 16];
	struct lsom_decided decided;
	bool keep_holes;
	/* an aborted PREP that comes again */
	struct slot late;
	struct lsom_undecided undecided[256];
	unsigned undecided_count;

	enum aux aux;
	struct uuid aux_id;
	unsigned aux_number;
	struct lsom_meta aux_req;
	bool aux_busy;
	struct lsom_checkpoint checkpoint;
	bool checkpointing;

	uint64_t crash_at; /* event */
	bool created, down, header_rot, rebuild, rebuilt, tight;
	bool done;
	int status;
	unsigned fault;
};

enum { FAULT_NONE, FAULT_WRITE = 3, FAULT_READ, FAULT_ROT, FAULT_STALL,
       FAULT_INDEX, FAULT_HEADER, FAULTS };

/* ---- running, with the power switch at hand ---- */

static void forget(struct run *r)
{
	uint32_t i;

	memset(r->slots, 0, sizeof(r->slots));
	memset(&r->late, 0, sizeof(r->late));
	for (i = 0; i < r->blocks_count; i++) {
		if (r->blocks[i].writers > 0)
			r->blocks[i].known = false;
		r->blocks[i].writers = r->blocks[i].readers = 0;
	}
	if (r->aux_busy)
		r->aux = AUX_MAYBE;
	r->aux_busy = r->checkpointing = false;
	r->lsom = NULL;
	r->disk = NULL;
	r->comp = NULL;
}

/*
 * Every life takes a segment a head.  A disk whose last free ones go to lives
 * too short to clean anything ends with none, and then not even a SEAL finds a
 * place: so a disk that is tight gets time before the power goes again.  Where
 * it came to that all the same, the seed ends as stuck, which main counts.
 */
#define TIGHT 6u

static bool tight(const struct run *r)
{
	struct lsom_disk_info info;

	if (r->disk == NULL)
		return r->tight;
	lsom_disk_info(r->disk, &info);
	return info.segments_free <= TIGHT;
}

static void cut(struct run *r)
{
	struct sim *sim = r->sim;

	r->tight = tight(r);
	sim_power_cut(sim);
	history_cut(sim->history);
	forget(r);
	if (sim->disks[0].tampered && !r->header_rot)
		history_lossy(sim->history);
	if (sim_chance(sim, 3)) {
		r->rebuild = true;
		if (sim_chance(sim, 2))
			sim_store_wipe(sim, "index");
	}
	r->down = true;
	r->crash_at = UINT64_MAX;
}

static bool step(struct run *r)
{
	if (r->down)
		return false;
	if (r->sim->events >= r->crash_at) {
		cut(r);
		return false;
	}
	return sim_step(r->sim);
}

/* No segment is free, and none can be made free. */
static bool stuck(struct run *r)
{
	struct lsom_disk_info info;

	if (r->disk == NULL)
		return false;
	lsom_disk_info(r->disk, &info);
	r->sim->stuck = info.segments_free == 0;
	return r->sim->stuck;
}

/* Until *@done.  False: the power went, or the disk is stuck. */
static bool wait_for(struct run *r, const bool *done)
{
	uint64_t end = r->sim->now_ns + 120 * SEC;

	while (!*done) {
		if (!step(r)) {
			if (r->down)
				return false;
			sim_violation(r->sim, "nothing is left to do, and a "
				      "request has no answer");
		}
		if (r->sim->now_ns > end && stuck(r))
			return false;
		if (r->sim->now_ns > end)
			sim_violation(r->sim, "no answer within 120 s");
	}
	return true;
}

static void crash_plan(struct run *r, uint64_t within)
{
	r->crash_at = sim_chance(r->sim, 12) ?
			      UINT64_MAX :
			      r->sim->events + 20 + sim_random(r->sim, within);
}

/* ---- writing ---- */

static uint64_t lsn_of(const struct run *r, uint64_t seq)
{
	return LSN(r->epoch, seq);
}

static void stable_move(struct run *r)
{
	const struct lsom_comp_meta *m = lsom_comp_meta(r->comp);
	uint64_t i, seq;

	while (r->stable + 1 < r->seq_next && r->answered[r->stable + 1])
		r->stable++;
	memset(r->decided.committed, 0, sizeof(r->decided.committed));
	r->decided.stable_lsn = lsn_of(r, r->stable);
	r->decided.g_all = MIN(m->stable_lsn, r->decided.stable_lsn);
	r->decided.hole_floor = r->keep_holes ? 0 : r->decided.g_all;
	for (i = 0; i < LSOM_WINDOW; i++) {
		seq = r->stable + 1 + i;
		if (seq < r->seq_next && r->answered[seq] && !r->aborted[seq])
			r->decided.committed[i / 8] |= (uint8_t)(1u << i % 8);
	}
}

static bool range_take(struct run *r, uint32_t first, uint32_t n, bool write)
{
	uint32_t i;

	for (i = first; i < first + n; i++)
		if (r->blocks[i].writers || (write && r->blocks[i].readers))
			return false;
	for (i = first; i < first + n; i++) {
		r->blocks[i].writers += write;
		r->blocks[i].readers += !write;
	}
	return true;
}

static void range_give(struct run *r, const struct slot *s, bool write)
{
	uint32_t i;

	for (i = s->first; i < s->first + s->blocks; i++) {
		r->blocks[i].writers -= write;
		r->blocks[i].readers -= !write;
	}
}

static bool fault_excuses(const struct run *r, int status)
{
	if (status == -ESHUTDOWN)
		return true;
	return (status == -EIO || status == -ENODEV) && r->fault >= FAULT_WRITE;
}

static void blocks_know(struct run *r, const struct slot *s, bool known)
{
	uint32_t i;

	for (i = s->first; i < s->first + s->blocks; i++) {
		r->blocks[i].known = known;
		r->blocks[i].lsn = s->w.lsn;
		r->blocks[i].hole = s->w.flags & LSOM_W_HOLE;
		r->blocks[i].ever |= !(s->w.flags & LSOM_W_HOLE);
	}
}

static void slot_end(struct slot *s, enum h_outcome outcome)
{
	struct run *r = s->run;

	if (outcome != H_UNKNOWN)
		r->answered[s->seq] = 1;
	if (outcome == H_NEVER)
		r->aborted[s->seq] = 1;
	if (outcome != H_NEVER)
		blocks_know(r, s, outcome == H_DONE);
	history_end(r->sim->history, s->op, outcome);
	sgl_put(s->w.sgl);
	range_give(r, s, true);
	s->busy = false;
}

static void late_send(struct slot *of);

static void aborted(struct lsom_decide *req, int status)
{
	struct slot *s = container_of(req, struct slot, decide);

	if (status < 0 && !fault_excuses(s->run, status))
		sim_violation(s->run->sim, "ABORT: %s", err_text(status));
	if (status == 0 && !s->run->late.busy && sim_chance(s->run->sim, 2))
		late_send(s);
	slot_end(s, status == 0 ? H_NEVER : H_UNKNOWN);
}

static void repeated(struct lsom_write *req, int status);

/* The same PREP again: an answer got lost on the way. */
static void repeat_send(struct slot *of)
{
	struct run *r = of->run;
	struct slot *s = &r->late;

	*s = *of;
	s->busy = true;
	s->silent = true;
	s->w.crcs = s->crcs;
	if (s->w.sgl != NULL)
		sgl_get(s->w.sgl);
	if (lsom_write(r->comp, &s->w, repeated) < 0) {
		sgl_put(s->w.sgl);
		s->busy = false;
	}
}

static void undecided_one(const struct lsom_undecided *u, void *arg)
{
	struct run *r = arg;

	if (r->undecided_count < ARRAY_LEN(r->undecided))
		r->undecided[r->undecided_count++] = *u;
}

/* I12, R26: one record an lsn and range, none that is decided. */
static void undecided_check(struct run *r)
{
	uint64_t stable;
	unsigned i, k;

	r->undecided_count = 0;
	lsom_undecided_each(r->comp, undecided_one, r);
	stable = lsom_comp_meta(r->comp)->stable_lsn;
	for (i = 0; i < r->undecided_count; i++) {
		if (r->undecided[i].lsn <= stable)
			sim_violation(r->sim, "I12: lsn %llx is undecided and "
				      "below stable_lsn",
				      (unsigned long long)r->undecided[i].lsn);
		for (k = 0; k < i; k++)
			if (r->undecided[i].lsn == r->undecided[k].lsn &&
			    r->undecided[i].offset == r->undecided[k].offset)
				sim_violation(r->sim, "lsn %llx is there twice",
					      (unsigned long long)
						      r->undecided[i].lsn);
	}
}

static void repeated(struct lsom_write *req, int status)
{
	struct slot *s = container_of(req, struct slot, w);
	struct run *r = s->run;

	/* Its stable_lsn may have passed: then it was refused, and is there. */
	if (status < 0 && status != -ESTALE && status != -ENOSPC &&
	    !fault_excuses(r, status))
		sim_violation(r->sim, "a repeated PREP: %s", err_text(status));
	sgl_put(s->w.sgl);
	s->busy = false;
	undecided_check(r);
}

static void late_came(struct lsom_write *req, int status)
{
	struct slot *s = container_of(req, struct slot, w);

	if (status != -ESTALE && !fault_excuses(s->run, status) &&
	    sim_rule(s->run->sim, RULE_R41))
		sim_violation(s->run->sim, "I19: a PREP after its ABORT: %s",
			      err_text(status));
	sgl_put(s->w.sgl);
	s->busy = false;
}

static void late_send(struct slot *of)
{
	struct run *r = of->run;
	struct slot *s = &r->late;

	*s = *of;
	s->busy = true;
	s->w.crcs = s->crcs;
	if (s->w.sgl != NULL)
		sgl_get(s->w.sgl);
	if (lsom_write(r->comp, &s->w, late_came) < 0) {
		sgl_put(s->w.sgl);
		s->busy = false;
	}
}

static void wrote(struct lsom_write *req, int status)
{
	struct slot *s = container_of(req, struct slot, w);
	struct run *r = s->run;

	if (status == -ENOSPC) {
		slot_end(s, H_NEVER);
		return;
	}
	if (status < 0) {
		if (!fault_excuses(r, status))
			sim_violation(r->sim, "PREP: %s", err_text(status));
		slot_end(s, H_UNKNOWN);
		return;
	}
	if (s->abort) {
		s->decide = (struct lsom_decide){ .lsn = s->w.lsn };
		status = lsom_decide(r->comp, &s->decide, aborted);
		if (status == 0)
			return;
		if (status != -EBUSY && !fault_excuses(r, status))
			sim_violation(r->sim, "ABORT: %s", err_text(status));
	}
	if (!r->late.busy && sim_chance(r->sim, 8))
		repeat_send(s);
	slot_end(s, H_DONE);
}

static void data_fill(struct run *r, struct slot *s)
{
	uint32_t i, k;
	uint8_t *p;

	for (i = 0; i < s->blocks; i++) {
		p = s->w.sgl->pieces[i].page->data;
		for (k = 0; k < SECTORS_A_BLOCK; k++)
			history_fill(p + k * SECTOR,
				     (s->first + i) * SECTORS_A_BLOCK + k,
				     s->op->id);
		s->crcs[i] = crc32c(p, LSOM_BLOCK);
	}
	(void)r;
}

static void write_one(struct run *r, struct slot *s, unsigned client)
{
	struct sim *sim = r->sim;
	uint32_t n = 1 + (uint32_t)sim_random(sim, sim_chance(sim, 3) ?
							 WRITE_BLOCKS : 4);
	uint32_t first = (uint32_t)sim_random(sim, r->blocks_count - n);
	bool hole = sim_chance(sim, 8);
	int rv;

	if (sim_chance(sim, 2))
		first %= MAX(r->blocks_count / 8, 1u);
	if (r->seq_next - r->stable > 900 || r->seq_next > 65000 ||
	    !range_take(r, first, n, true))
		return;
	memset(s, 0, sizeof(*s));
	s->run = r;
	s->first = first;
	s->blocks = n;
	s->abort = sim_chance(sim, 10);
	s->w.kind = LSOM_PREP;
	s->w.flags = hole ? LSOM_W_HOLE : 0;
	s->w.offset = (uint64_t)first * LSOM_BLOCK;
	s->w.len = (uint64_t)n * LSOM_BLOCK;
	s->seq = r->seq_next;
	s->w.lsn = lsn_of(r, s->seq);
	s->w.member_csn = 1;
	s->w.crcs = s->crcs;
	stable_move(r);
	if (sim_chance(sim, 2))
		s->w.decided = &r->decided;
	if (!hole && sgl_new(sim->life->env.pages, PAGE_FRONT, s->w.len, 0,
			     &s->w.sgl) < 0) {
		range_give(r, s, true);
		return;
	}
	s->op = history_start(sim->history, hole ? H_UNMAP : H_WRITE, client,
			      first * SECTORS_A_BLOCK, n * SECTORS_A_BLOCK);
	s->op->atomic = true;
	if (!hole)
		data_fill(r, s);
	s->busy = true;
	r->answered[s->seq] = r->aborted[s->seq] = 0;
	r->seq_next++;
	rv = lsom_write(r->comp, &s->w, wrote);
	if (rv < 0) {
		if (rv != -EBUSY && rv != -ENOSPC && !fault_excuses(r, rv))
			sim_violation(sim, "a write: %s", err_text(rv));
		slot_end(s, H_NEVER);
	}
}

/* ---- reading ---- */

static void values_take(struct run *r, struct h_op *op, const struct sgl *sgl)
{
	uint32_t i;

	for (i = 0; i < op->count; i++)
		op->seen[i] = history_value(
			r->sim->history,
			sgl->pieces[i / SECTORS_A_BLOCK].page->data +
				i % SECTORS_A_BLOCK * SECTOR,
			op->sector + i);
}

static void read_came(struct lsom_read *req, int status)
{
	struct slot *s = container_of(req, struct slot, rd);
	struct run *r = s->run;

	if (status == 0) {
		values_take(r, s->op, req->sgl);
		sgl_put(req->sgl);
	} else if (status == -EBADMSG ? !r->sim->disks[0].tampered :
					!fault_excuses(r, status)) {
		sim_violation(r->sim, "a read at block %llu: %s",
			      status == -EBADMSG ?
				      (unsigned long long)req->bad_offset /
					      LSOM_BLOCK :
				      s->first,
			      err_text(status));
	}
	history_end(r->sim->history, s->op, status == 0 ? H_DONE : H_NEVER);
	range_give(r, s, false);
	s->busy = false;
}

static bool read_some(struct run *r, struct slot *s, unsigned client,
		      uint32_t first, uint32_t n)
{
	int rv;

	if (!range_take(r, first, n, false))
		return false;
	memset(s, 0, sizeof(*s));
	s->run = r;
	s->first = first;
	s->blocks = n;
	s->reading = s->busy = true;
	stable_move(r);
	s->rd.offset = (uint64_t)first * LSOM_BLOCK;
	s->rd.len = (uint64_t)n * LSOM_BLOCK;
	s->rd.class = PAGE_FRONT;
	s->rd.decided = &r->decided;
	s->op = history_start(r->sim->history, H_READ, client,
			      first * SECTORS_A_BLOCK, n * SECTORS_A_BLOCK);
	rv = lsom_read(r->comp, &s->rd, read_came);
	if (rv < 0) {
		if (rv != -EBUSY && !fault_excuses(r, rv))
			sim_violation(r->sim, "a read: %s", err_text(rv));
		history_end(r->sim->history, s->op, H_NEVER);
		range_give(r, s, false);
		s->busy = false;
		return false;
	}
	return true;
}

static void read_one(struct run *r, struct slot *s, unsigned client)
{
	uint32_t n = 1 + (uint32_t)sim_random(r->sim, WRITE_BLOCKS);
	uint32_t first = (uint32_t)sim_random(r->sim, r->blocks_count - n);

	if (sim_chance(r->sim, 2))
		first %= MAX(r->blocks_count / 8, 1u);
	(void)read_some(r, s, client, first, n);
}

/* ---- the other component ---- */

static void aux_done(struct lsom_meta *req, int status)
{
	struct run *r = container_of(req, struct run, aux_req);

	r->aux_busy = false;
	if (status < 0) {
		if (!fault_excuses(r, status))
			sim_violation(r->sim, "a metadata record: %s",
				      err_text(status));
		r->aux = AUX_MAYBE;
		return;
	}
	r->aux = req->op == LSOM_CREATE ? AUX_THERE : AUX_NONE;
}

static void aux_change(struct run *r)
{
	struct lsom_comp *comp;
	int rv;

	if (r->aux_busy)
		return;
	memset(&r->aux_req, 0, sizeof(r->aux_req));
	if (r->aux == AUX_NONE || r->aux == AUX_MAYBE) {
		memset(&r->aux_id, 0, sizeof(r->aux_id));
		r->aux_id.b[0] = 9;
		put_le32(r->aux_id.b + 4, ++r->aux_number);
		r->aux_req.op = LSOM_CREATE;
		r->aux_req.meta.cid = r->aux_id;
		r->aux_req.meta.cinc = 1;
		r->aux_req.meta.size_bytes = 64 * LSOM_BLOCK;
		r->aux_req.meta.promised_oepoch = 1;
		r->aux_req.meta.member_csn = 1;
		r->aux_req.meta.state_seen = LSOM_ACTIVE;
		rv = lsom_comp_create(r->disk, &r->aux_req, aux_done);
	} else {
		comp = lsom_comp_get(r->disk, &r->aux_id);
		if (comp == NULL && r->sim->disks[0].tampered) {
			r->aux = AUX_MAYBE;
			return;
		}
		if (comp == NULL)
			sim_violation(r->sim, "a component is gone");
		r->aux_req.op = LSOM_DELETE;
		rv = lsom_comp_update(comp, &r->aux_req, aux_done);
		lsom_comp_put(comp);
	}
	if (rv == 0)
		r->aux_busy = true;
	else if (rv != -EBUSY && !fault_excuses(r, rv))
		sim_violation(r->sim, "a metadata request: %s", err_text(rv));
}

static void aux_check(struct run *r)
{
	struct lsom_comp *comp;

	if (r->aux_number == 0)
		return;
	comp = lsom_comp_get(r->disk, &r->aux_id);
	if (r->aux == AUX_THERE && comp == NULL)
		sim_violation(r->sim, "a component that was created is gone");
	if (r->aux == AUX_NONE && comp != NULL)
		sim_violation(r->sim, "a component that was deleted is back");
	r->aux = comp != NULL ? AUX_THERE : AUX_NONE;
	if (comp != NULL)
		lsom_comp_put(comp);
}

/* ---- faults ---- */

/*
 * Spoil a batch's header that a later batch, in the same segment, knew to be
 * durable: what it held may be lost, but not silently.
 */
static void header_rot(struct run *r)
{
	struct sim_disk *d = &r->sim->disks[0];
	uint32_t blocks = SIM_SEGMENT / LSOM_BLOCK, segments, i, at, found;
	const struct lsom__batch_header *h, *later;
	uint8_t *base;

	segments = (uint32_t)((d->bytes - LSOM__DATA_START) / SIM_SEGMENT);
	i = (uint32_t)sim_random(r->sim, segments);
	base = d->durable + LSOM__DATA_START + (uint64_t)i * SIM_SEGMENT;
	found = 0;
	later = NULL;
	for (at = blocks - 1; at > 0; at--) {
		h = (const void *)(base + (size_t)at * LSOM_BLOCK);
		if (h->magic != LSOM__BATCH_MAGIC || h->block != at ||
		    h->segment_sequence !=
			    ((const struct lsom__segment_header *)(const void *)
				     base)->sequence)
			continue;
		if (later == NULL)
			later = h;
		else if (later->durable_prefix >= h->batch &&
			 (found == 0 || sim_chance(r->sim, 2)))
			found = at;
	}
	if (found == 0)
		return;
	base[(size_t)found * LSOM_BLOCK + 100] ^= 0x10;
	d->now[LSOM__DATA_START + (uint64_t)i * SIM_SEGMENT +
	       (uint64_t)found * LSOM_BLOCK + 100] ^= 0x10;
	d->tampered = r->header_rot = true;
	sim_trace(r->sim, "FAULT: the header at block %u of segment %u rots",
		  found, i);
}

static void fault_now(struct run *r)
{
	struct sim_disk *d = &r->sim->disks[0];
	unsigned i;

	switch (r->fault) {
	case FAULT_WRITE:
		if (sim_chance(r->sim, 2))
			d->write_eio = 1 + sim_random(r->sim, 40);
		else
			d->gone = true;
		break;
	case FAULT_READ:
		d->read_eio = 1 + sim_random(r->sim, 20);
		break;
	case FAULT_ROT:
		if (sim_chance(r->sim, 3))
			d->misdirect = 1 + sim_random(r->sim, 20);
		else
			sim_disk_rot(d);
		break;
	case FAULT_STALL:
		d->stalled_until =
			r->sim->now_ns + sim_random(r->sim, 4 * SEC);
		break;
	case FAULT_INDEX:
		for (i = 0; i < r->sim->stores_count; i++)
			r->sim->stores[i].apply_eio =
				1 + sim_random(r->sim, 3);
		break;
	case FAULT_HEADER:
		header_rot(r);
		break;
	}
}

/* ---- a life ---- */

static void opened(struct lsom_disk_open *req, int status)
{
	struct run *r = req->data;

	r->disk = req->opened;
	r->status = status;
	r->done = true;
}

static void meta_done(struct lsom_meta *req, int status)
{
	struct run *r = req->data;

	r->status = status;
	r->done = true;
}

static bool seal(struct run *r)
{
	static struct lsom_meta req;

	memset(&req, 0, sizeof(req));
	req.data = r;
	req.op = r->created ? LSOM_SEAL : LSOM_CREATE;
	req.meta = r->created ? *lsom_comp_meta(r->comp) :
				(struct lsom_comp_meta){
					.cid = r->cid,
					.cinc = 1,
					.size_bytes =
						(uint64_t)r->blocks_count *
						LSOM_BLOCK,
					.member_csn = 1,
					.state_seen = LSOM_ACTIVE,
				};
	req.meta.promised_oepoch = r->epoch;
	r->done = false;
	r->status = r->created ? lsom_comp_update(r->comp, &req, meta_done) :
				 lsom_comp_create(r->disk, &req, meta_done);
	if (r->status == 0 && !wait_for(r, &r->done))
		return false;
	if (r->status < 0) {
		if (!fault_excuses(r, r->status))
			sim_violation(r->sim, "SEAL: %s", err_text(r->status));
		cut(r);
		return false;
	}
	r->created = true;
	r->sealed_epoch = r->epoch;
	return true;
}

static void decide_done(struct lsom_decide *req, int status)
{
	struct run *r = req->data;

	r->status = status;
	r->done = true;
}

/* What an owner does that takes over: forward with all that is found. */
static bool take_over(struct run *r)
{
	static struct lsom_decide req;
	uint64_t lsns[256];
	unsigned i, n;

	undecided_check(r);
	n = r->undecided_count;
	for (i = 0; i < n; i++)
		lsns[i] = r->undecided[i].lsn;
	for (i = 0; i < n; i++) {
		req = (struct lsom_decide){ .data = r, .commit = true,
					    .lsn = lsns[i] };
		r->done = false;
		r->status = lsom_decide(r->comp, &req, decide_done);
		if (r->status == 0 && !wait_for(r, &r->done))
			return false;
		if (r->status < 0 && !fault_excuses(r, r->status))
			sim_violation(r->sim, "COMMIT at takeover: %s",
				      err_text(r->status));
		if (r->status < 0) {
			cut(r);
			return false;
		}
	}
	r->stable = 0;
	r->seq_next = 1;
	stable_move(r);
	lsom_decided(r->comp, &r->decided);
	return true;
}

static void meta_check(struct run *r)
{
	const struct lsom_comp_meta *m = lsom_comp_meta(r->comp);

	if (m->damaged) {
		if (!r->sim->disks[0].tampered)
			sim_violation(r->sim, "damage is reported on a disk "
				      "that is whole");
		history_lossy(r->sim->history);
		return;
	}
	if (r->sim->disks[0].tampered && !r->header_rot)
		return;
	if (m->promised_oepoch < r->sealed_epoch || m->member_csn != 1 ||
	    m->cinc != 1 || m->state_seen != LSOM_ACTIVE)
		sim_violation(r->sim, "I2: the fence went back: epoch %llu, "
			      "was %llu",
			      (unsigned long long)m->promised_oepoch,
			      (unsigned long long)r->sealed_epoch);
	if (m->stable_lsn > r->decided.stable_lsn)
		sim_violation(r->sim, "stable_lsn nobody ever told");
}

/* True: it serves.  False: the power went again, or the seed is over. */
static bool power_up(struct run *r)
{
	static struct lsom_disk_open req;
	struct lsom_config config = { .page_cache_bytes = 60000 };
	struct sim *sim = r->sim;

	sim_power_on(sim);
	r->down = false;
	if (!r->tight && sim_chance(sim, 4))
		crash_plan(r, 200); /* during recovery */
	else
		r->crash_at = UINT64_MAX;
	config.env = &sim->life->env;
	config.rules_off = sim_rules_lsom(sim);
	if (lsom_open(&config, &r->lsom) < 0)
		abort();
	req = (struct lsom_disk_open){ .data = r,
				       .path = "disk0",
				       .index_path = "index",
				       .cluster = r->cluster,
				       .rebuild = r->rebuild };
	r->done = false;
	if (lsom_disk_open(r->lsom, &req, opened) < 0)
		abort();
	if (!wait_for(r, &r->done))
		return false;
	if (r->status == -EUCLEAN && r->rebuilt && !r->rebuild) {
		/* A rebuild that the power cut short: told to do it again. */
		cut(r);
		r->rebuild = true;
		return false;
	}
	if (r->status < 0) {
		if (!sim->disks[0].tampered)
			sim_violation(sim, "the disk does not open: %s (%s)",
				      err_text(r->status), req.why);
		return false;
	}
	r->rebuilt |= r->rebuild;
	r->rebuild = false;
	r->comp = lsom_comp_get(r->disk, &r->cid);
	if (r->comp == NULL && r->created && !sim->disks[0].tampered)
		sim_violation(sim, "the component is gone");
	if (r->comp != NULL) {
		r->created = true; /* maybe its answer was lost */
		meta_check(r);
	} else if (r->created) {
		return false;
	}
	if (!sim->disks[0].tampered)
		aux_check(r);
	r->epoch++;
	if (!seal(r))
		return false;
	if (r->comp == NULL)
		r->comp = lsom_comp_get(r->disk, &r->cid);
	if (!take_over(r))
		return false;
	history_serving(sim->history);
	return true;
}

static bool quiet(const struct run *r)
{
	unsigned i;

	for (i = 0; i < SLOTS; i++)
		if (r->slots[i].busy)
			return false;
	return !r->late.busy && !r->aux_busy && !r->checkpointing;
}

static bool drain(struct run *r)
{
	uint64_t end = r->sim->now_ns + 60 * SEC;

	while (!quiet(r)) {
		if (!step(r)) {
			if (r->down)
				return false;
			sim_violation(r->sim, "a request is never answered");
		}
		if (r->sim->now_ns > end && stuck(r))
			return false;
		if (r->sim->now_ns > end)
			sim_violation(r->sim, "no answer within 60 s");
	}
	return true;
}

/* All of it, with nothing in flight. */
static bool look(struct run *r)
{
	uint32_t at, n;
	struct slot *s = &r->slots[0];

	if (!drain(r))
		return false;
	for (at = 0; at < r->blocks_count; at += n) {
		n = MIN(56u, r->blocks_count - at);
		if (!read_some(r, s, 99, at, n))
			return true;
		if (!drain(r))
			return false;
	}
	return true;
}

static void scanned(struct lsom_scan *req, int status)
{
	struct run *r = req->data;

	r->status = status;
	r->done = true;
}

/* Versions of all blocks are what was decided last (I3, R11). */
static bool versions_check(struct run *r)
{
	static struct lsom_version items[4096];
	static struct lsom_scan req;
	struct block *b;
	uint32_t i, k;

	if (!drain(r))
		return false;
	stable_move(r);
	lsom_decided(r->comp, &r->decided);
	req = (struct lsom_scan){ .data = r,
				  .len = (uint64_t)r->blocks_count * LSOM_BLOCK,
				  .items = items,
				  .items_max = ARRAY_LEN(items) };
	r->done = false;
	r->status = lsom_scan(r->comp, &req, scanned);
	if (r->status == 0 && !wait_for(r, &r->done))
		return false;
	if (r->status < 0) {
		if (!fault_excuses(r, r->status))
			sim_violation(r->sim, "a scan: %s",
				      err_text(r->status));
		return true;
	}
	if (r->sim->disks[0].tampered || req.next != req.len)
		return true;
	for (i = k = 0; i < r->blocks_count; i++) {
		b = &r->blocks[i];
		while (k < req.items_count &&
		       items[k].offset < (uint64_t)i * LSOM_BLOCK)
			k++;
		if (!b->known)
			continue;
		if (k < req.items_count &&
		    items[k].offset == (uint64_t)i * LSOM_BLOCK) {
			if (items[k].lsn != b->lsn || items[k].hole != b->hole)
				sim_violation(r->sim, "block %u has version "
					      "%llx, not %llx", i,
					      (unsigned long long)items[k].lsn,
					      (unsigned long long)b->lsn);
		} else if (!b->hole ||
			   (b->ever && b->lsn > r->decided.hole_floor)) {
			sim_violation(r->sim, "R11: block %u: version %llx%s "
				      "is forgotten", i,
				      (unsigned long long)b->lsn,
				      b->hole ? " (a hole)" : "");
		}
	}
	return true;
}

static void closed(struct lsom_disk_close *req, int status)
{
	((struct run *)req->data)->done = true;
}

/* An orderly stop: nothing may be left to replay, nothing lost. */
static void close_down(struct run *r)
{
	static struct lsom_disk_close req;

	if (!drain(r))
		return;
	lsom_comp_put(r->comp);
	r->comp = NULL;
	req = (struct lsom_disk_close){ .data = r };
	r->done = false;
	if (lsom_disk_close(r->disk, &req, closed) < 0)
		abort();
	if (!wait_for(r, &r->done))
		return;
	lsom_close(r->lsom);
	sim_power_off(r->sim);
	history_cut(r->sim->history);
	forget(r);
	r->down = true;
	if (r->sim->disks[0].tampered && !r->header_rot)
		history_lossy(r->sim->history);
}

static void checkpointed(struct lsom_checkpoint *req, int status)
{
	((struct run *)req->data)->checkpointing = false;
}

static void work(struct run *r, unsigned ops)
{
	unsigned i, k;

	while (ops-- > 0 && !r->down) {
		i = (unsigned)sim_random(r->sim, SLOTS);
		if (!r->slots[i].busy) {
			if (sim_chance(r->sim, 4))
				read_one(r, &r->slots[i], i);
			else
				write_one(r, &r->slots[i], i);
		}
		if (sim_chance(r->sim, 6)) {
			stable_move(r);
			lsom_decided(r->comp, &r->decided);
		}
		if (sim_chance(r->sim, 40))
			aux_change(r);
		if (!r->checkpointing && sim_chance(r->sim, 150)) {
			r->checkpoint.data = r;
			r->checkpointing = lsom_checkpoint(r->disk,
							   &r->checkpoint,
							   checkpointed) == 0;
		}
		if (r->fault != FAULT_NONE && sim_chance(r->sim, 120))
			fault_now(r);
		for (k = (unsigned)sim_random(r->sim, 12); k > 0; k--)
			if (!step(r))
				break;
	}
}

static void life(struct run *r, unsigned ops)
{
	struct lsom_disk_info info;
	unsigned i;

	if (sim_chance(r->sim, 3) && !look(r))
		return;
	if (!versions_check(r))
		return;
	for (i = 0; i < 2000 && tight(r) && !r->down; i++)
		(void)step(r);
	crash_plan(r, (uint64_t)ops * 8);
	work(r, ops);
	if (r->down)
		return;
	lsom_disk_info(r->disk, &info);
	sim_trace(r->sim, "%llu of %llu segments free, state %d",
		  (unsigned long long)info.segments_free,
		  (unsigned long long)info.segments, info.state);
	r->crash_at = sim_chance(r->sim, 2) ? r->sim->events +
						      sim_random(r->sim, 400) :
					      UINT64_MAX;
	if (info.state != LSOM_DISK_FAILED &&
	    (!look(r) || !versions_check(r)))
		return;
	if (sim_chance(r->sim, 2))
		close_down(r);
	else
		cut(r);
}

static void setup(struct run *r)
{
	struct sim *sim = r->sim;
	struct lsom_format format = { .path = "disk0", .tiny = true,
				      .segment_bytes = SIM_SEGMENT };
	uint64_t segments = 18 + sim_random(sim, 16), usable;

	r->id.b[0] = 1;
	r->cluster.b[0] = 2;
	r->cid.b[0] = 3;
	r->fault = (unsigned)sim_random(sim, FAULTS);
	if (r->fault < FAULT_WRITE)
		r->fault = FAULT_NONE;
	r->keep_holes = sim_chance(sim, 2);
	sim_disk_init(sim, 0, (1u << 20) + segments * SIM_SEGMENT);
	usable = (segments - 6) * 56;
	/* Now and then more than fits: thin, and then full. */
	r->blocks_count = (uint32_t)(usable / 4 +
				     sim_random(sim, sim_chance(sim, 4) ?
							     usable :
							     usable / 2));
	r->blocks_count = MAX(r->blocks_count, WRITE_BLOCKS * 2 + 8);
	r->blocks = calloc(r->blocks_count, sizeof(*r->blocks));
	if (r->blocks == NULL)
		abort();
	sim->history = history_new(sim, r->blocks_count * SECTORS_A_BLOCK);
	format.disk = r->id;
	format.cluster = r->cluster;
	sim_power_on(sim);
	if (lsom_disk_format(&sim->life->env, &format) < 0)
		sim_violation(sim, "the disk cannot be formatted");
	sim_power_off(sim);
}

void comp_run(struct sim *sim)
{
	struct run *r = calloc(1, sizeof(*r));
	unsigned ops = sim->config.ops, spent = 0, part, ups = 0;

	if (r == NULL)
		abort();
	r->sim = sim;
	setup(r);
	if (ops == 0)
		ops = 1200;
	r->down = true;
	while (spent < ops && ups++ < 60 && !sim->stuck) {
		if (!power_up(r)) {
			if (!r->down)
				break; /* refused, with reason */
			continue;
		}
		part = 50 + (unsigned)sim_random(sim, 500);
		spent += part;
		life(r, part);
	}
	if (r->down && power_up(r)) {
		r->crash_at = UINT64_MAX;
		(void)look(r);
	}
	history_check(sim->history);
}
