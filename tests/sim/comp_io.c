/*
 * comp_io: what the owner sends to its component: PREPs, in part repeated, late
 * or aborted, reads with the decided set, and the coming and going of another
 * component.
 */
#include "tests/sim/comp.h"

/* ---- writing ---- */

uint64_t comp__lsn_of(const struct run *r, uint64_t seq)
{
	return LSN(r->epoch, seq);
}

uint64_t comp__offset(const struct run *r, uint32_t i)
{
	if (r->sim->config.apart)
		i = i / WRITE_BLOCKS * APART_BLOCKS + i % WRITE_BLOCKS;
	return (uint64_t)i * LSOM_BLOCK;
}

uint32_t comp__together(const struct run *r, uint32_t i, uint32_t n)
{
	return r->sim->config.apart ? MIN(n, WRITE_BLOCKS - i % WRITE_BLOCKS)
				    : n;
}

void comp__stable_move(struct run *r)
{
	const struct lsom_comp_meta *m = lsom_comp_meta(r->comp);
	uint64_t i, seq;

	while (r->stable + 1 < r->seq_next && r->answered[r->stable + 1])
		r->stable++;
	memset(r->decided.committed, 0, sizeof(r->decided.committed));
	r->decided.stable_lsn = comp__lsn_of(r, r->stable);
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

bool comp__fault_excuses(const struct run *r, int status)
{
	if (status == -ESHUTDOWN)
		return true;
	if (status == -ENOSPC) /* segments that cannot be read any more */
		return r->fault == FAULT_READ || r->sim->disks[0].gone ||
		       r->sim->disks[0].tampered;
	return (status == -EIO || status == -ENODEV) && r->fault >= FAULT_WRITE;
}

static void blocks_know(struct run *r, const struct slot *s, bool known)
{
	uint32_t i;

	for (i = s->first; i < s->first + s->blocks; i++) {
		r->blocks[i].known = known;
		r->blocks[i].lsn = s->w.lsn;
		r->blocks[i].hole = s->w.flags & LSOM_W_HOLE;
		r->blocks[i].ever |= known && !(s->w.flags & LSOM_W_HOLE);
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

	if (status < 0 && !comp__fault_excuses(s->run, status))
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
void comp__undecided_check(struct run *r)
{
	uint64_t stable;
	unsigned i, k;

	r->undecided_count = 0;
	lsom_undecided_each(r->comp, undecided_one, r);
	stable = lsom_comp_meta(r->comp)->stable_lsn;
	for (i = 0; i < r->undecided_count; i++) {
		if (r->undecided[i].lsn <= stable)
			sim_violation(r->sim,
				      "I12: lsn %llx is undecided and "
				      "below stable_lsn",
				      (unsigned long long)r->undecided[i].lsn);
		for (k = 0; k < i; k++)
			if (r->undecided[i].lsn == r->undecided[k].lsn &&
			    r->undecided[i].offset == r->undecided[k].offset)
				sim_violation(r->sim, "lsn %llx is there twice",
					      (unsigned long long)r
						      ->undecided[i]
						      .lsn);
	}
}

static void repeated(struct lsom_write *req, int status)
{
	struct slot *s = container_of(req, struct slot, w);
	struct run *r = s->run;

	/* Its stable_lsn may have passed: then it was refused, and is there. */
	if (status < 0 && status != -ESTALE && status != -ENOSPC &&
	    !comp__fault_excuses(r, status))
		sim_violation(r->sim, "a repeated PREP: %s", err_text(status));
	sgl_put(s->w.sgl);
	s->busy = false;
	comp__undecided_check(r);
}

static void late_came(struct lsom_write *req, int status)
{
	struct slot *s = container_of(req, struct slot, w);

	if (status != -ESTALE && !comp__fault_excuses(s->run, status) &&
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
		if (s->w.sgl == NULL && !comp__fault_excuses(r, status))
			sim_violation(r->sim, "a full disk does not unmap");
		slot_end(s, H_NEVER);
		return;
	}
	if (status < 0) {
		if (!comp__fault_excuses(r, status))
			sim_violation(r->sim, "PREP: %s", err_text(status));
		slot_end(s, H_UNKNOWN);
		return;
	}
	if (s->abort) {
		s->decide = (struct lsom_decide){ .lsn = s->w.lsn };
		status = lsom_decide(r->comp, &s->decide, aborted);
		if (status == 0)
			return;
		if (status != -EBUSY && !comp__fault_excuses(r, status))
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

void comp__write_one(struct run *r, struct slot *s, unsigned client)
{
	struct sim *sim = r->sim;
	uint32_t n = 1 + (uint32_t)sim_random(
				 sim, sim_chance(sim, 3) ? WRITE_BLOCKS : 4);
	uint32_t first = (uint32_t)sim_random(sim, r->blocks_count - n);
	bool hole = sim_chance(sim, 8);

	if (sim_chance(sim, 2))
		first %= MAX(r->blocks_count / 8, 1u);
	comp__write_some(r, s, client, first, comp__together(r, first, n),
			 hole);
}

void comp__write_some(struct run *r, struct slot *s, unsigned client,
		      uint32_t first, uint32_t n, bool hole)
{
	struct sim *sim = r->sim;
	int rv;

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
	s->w.offset = comp__offset(r, first);
	s->w.len = (uint64_t)n * LSOM_BLOCK;
	s->seq = r->seq_next;
	s->w.lsn = comp__lsn_of(r, s->seq);
	s->w.member_csn = 1;
	s->w.crcs = s->crcs;
	comp__stable_move(r);
	if (sim_chance(sim, 2))
		s->w.decided = &r->decided;
	if (!hole && sgl_new(sim->life->loop.env.pages, PAGE_FRONT, s->w.len, 0,
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
		if (rv != -EBUSY && (rv != -ENOSPC || hole) &&
		    !comp__fault_excuses(r, rv))
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
	} else if (status == -EBADMSG ? !r->sim->disks[0].tampered
				      : !comp__fault_excuses(r, status)) {
		sim_violation(r->sim, "a read at block %llu: %s",
			      status == -EBADMSG
				      ? (unsigned long long)req->bad_offset /
						LSOM_BLOCK
				      : s->first,
			      err_text(status));
	}
	history_end(r->sim->history, s->op, status == 0 ? H_DONE : H_NEVER);
	range_give(r, s, false);
	s->busy = false;
}

bool comp__read_some(struct run *r, struct slot *s, unsigned client,
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
	comp__stable_move(r);
	s->rd.offset = comp__offset(r, first);
	s->rd.len = (uint64_t)n * LSOM_BLOCK;
	s->rd.class = PAGE_FRONT;
	s->rd.decided = &r->decided;
	s->op = history_start(r->sim->history, H_READ, client,
			      first * SECTORS_A_BLOCK, n * SECTORS_A_BLOCK);
	rv = lsom_read(r->comp, &s->rd, read_came);
	if (rv < 0) {
		if (rv != -EBUSY && !comp__fault_excuses(r, rv))
			sim_violation(r->sim, "a read: %s", err_text(rv));
		history_end(r->sim->history, s->op, H_NEVER);
		range_give(r, s, false);
		s->busy = false;
		return false;
	}
	return true;
}

void comp__read_one(struct run *r, struct slot *s, unsigned client)
{
	uint32_t n = 1 + (uint32_t)sim_random(r->sim, WRITE_BLOCKS);
	uint32_t first = (uint32_t)sim_random(r->sim, r->blocks_count - n);

	if (sim_chance(r->sim, 2))
		first %= MAX(r->blocks_count / 8, 1u);
	(void)comp__read_some(r, s, client, first, comp__together(r, first, n));
}

/* ---- the other component ---- */

static void aux_done(struct lsom_meta *req, int status)
{
	struct run *r = container_of(req, struct run, aux_req);

	r->aux_busy = false;
	if (status < 0) {
		if (!comp__fault_excuses(r, status))
			sim_violation(r->sim, "a metadata record: %s",
				      err_text(status));
		r->aux = AUX_MAYBE;
		return;
	}
	r->aux = req->op == LSOM_CREATE ? AUX_THERE : AUX_NONE;
}

void comp__aux_change(struct run *r)
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
	else if (rv != -EBUSY && !comp__fault_excuses(r, rv))
		sim_violation(r->sim, "a metadata request: %s", err_text(rv));
}

void comp__aux_check(struct run *r)
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
