/*
 * comp: lsom alone, on one disk; this file plays the owner.
 *
 * It does what dom does to a component, and what a network would make of it:
 * prepares, decides in any order, aborts now and then, repeats a PREP, sends
 * one after its ABORT.  After a power cut it seals under the next epoch and rolls
 * forward what it finds undecided.  Beside the data component another comes
 * and goes, so that the log has metadata to carry and tombs to keep.
 */
#include "tests/sim/comp.h"

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
	r->aux_busy = r->checkpointing = r->scrubbing = false;
	r->lsom = NULL;
	r->disk = NULL;
	r->comp = NULL;
}

static void cut(struct run *r)
{
	struct sim *sim = r->sim;

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

static void cut_if_up(struct run *r)
{
	if (!r->down)
		cut(r);
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

/* Until *@done.  False: the power went. */
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
		if (r->sim->now_ns > end)
			sim_violation(r->sim, "no answer within 120 s");
	}
	return true;
}

static void crash_plan(struct run *r, uint64_t within)
{
	r->crash_at =
		sim_chance(r->sim, 12)
			? UINT64_MAX
			: r->sim->events + 20 + sim_random(r->sim, within);
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
	req.meta = r->created
			   ? *lsom_comp_meta(r->comp)
			   : (struct lsom_comp_meta){
				     .cid = r->cid,
				     .cinc = 1,
				     .size_bytes =
					     comp__offset(r, r->blocks_count),
				     .member_csn = 1,
				     .state_seen = LSOM_ACTIVE,
			     };
	req.meta.promised_oepoch = r->epoch;
	r->done = false;
	r->status = r->created ? lsom_comp_update(r->comp, &req, meta_done)
			       : lsom_comp_create(r->disk, &req, meta_done);
	if (r->status == 0 && !wait_for(r, &r->done))
		return false;
	if (r->status < 0) {
		if (!comp__fault_excuses(r, r->status))
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

	comp__undecided_check(r);
	n = r->undecided_count;
	for (i = 0; i < n; i++)
		lsns[i] = r->undecided[i].lsn;
	for (i = 0; i < n; i++) {
		req = (struct lsom_decide){ .data = r,
					    .commit = true,
					    .lsn = lsns[i] };
		r->done = false;
		r->status = lsom_decide(r->comp, &req, decide_done);
		if (r->status == 0 && !wait_for(r, &r->done))
			return false;
		if (r->status < 0 && !comp__fault_excuses(r, r->status))
			sim_violation(r->sim, "COMMIT at takeover: %s",
				      err_text(r->status));
		if (r->status < 0) {
			cut(r);
			return false;
		}
	}
	r->stable = 0;
	r->seq_next = 1;
	comp__stable_move(r);
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
		/* A rotten header costs -EBADMSG, and no old version. */
		if (!r->header_rot)
			history_lossy(r->sim->history);
		return;
	}
	if (r->sim->disks[0].tampered && !r->header_rot)
		return;
	if (m->promised_oepoch < r->sealed_epoch || m->member_csn != 1 ||
	    m->cinc != 1 || m->state_seen != LSOM_ACTIVE)
		sim_violation(r->sim,
			      "I2: the fence went back: epoch %llu, "
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
	struct sim *sim = r->sim;
	struct lsom_config config = {
		.page_cache_bytes = 60000,
		.discard_ns = sim->config.trim ? SIM_TRIM_NS : 0,
	};

	sim_power_on(sim);
	r->down = false;
	r->crash_at = UINT64_MAX;
	if (!r->last && sim_chance(sim, r->brief ? 2 : 4))
		crash_plan(r, 200); /* during recovery */
	config.env = &sim->life->loop.env;
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
		comp__aux_check(r);
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
		n = comp__together(r, at, MIN(56u, r->blocks_count - at));
		if (!comp__read_some(r, s, 99, at, n))
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
	comp__stable_move(r);
	lsom_decided(r->comp, &r->decided);
	req = (struct lsom_scan){ .data = r,
				  .len = comp__offset(r, r->blocks_count),
				  .items = items,
				  .items_max = ARRAY_LEN(items) };
	r->done = false;
	r->status = lsom_scan(r->comp, &req, scanned);
	if (r->status == 0 && !wait_for(r, &r->done))
		return false;
	if (r->status < 0) {
		if (!comp__fault_excuses(r, r->status))
			sim_violation(r->sim, "a scan: %s",
				      err_text(r->status));
		return true;
	}
	if (r->sim->disks[0].tampered || req.next != req.len)
		return true;
	for (i = k = 0; i < r->blocks_count; i++) {
		b = &r->blocks[i];
		while (k < req.items_count &&
		       items[k].offset < comp__offset(r, i))
			k++;
		if (!b->known)
			continue;
		if (k < req.items_count &&
		    items[k].offset == comp__offset(r, i)) {
			/* Of what never had data an older hole may be left. */
			if ((items[k].lsn != b->lsn &&
			     (b->ever || items[k].lsn > b->lsn)) ||
			    items[k].hole != b->hole)
				sim_violation(r->sim,
					      "block %u has version "
					      "%llx, not %llx",
					      i,
					      (unsigned long long)items[k].lsn,
					      (unsigned long long)b->lsn);
		} else if (!b->hole ||
			   (b->ever && b->lsn > r->decided.hole_floor)) {
			sim_violation(r->sim,
				      "R11: block %u: version %llx%s "
				      "is forgotten",
				      i, (unsigned long long)b->lsn,
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

/* Whatever moves meanwhile, what nobody spoilt is good. */
static void scrubbed(struct lsom_scrub *req, int status)
{
	struct run *r = req->data;
	r->scrubbing = false;
	sim_trace(r->sim, "scrubbed: %s, %llu blocks, %llu bad",
		  err_text(status), (unsigned long long)req->read_blocks,
		  (unsigned long long)req->bad_count);
	/*
	 * Where reads fail one may fail twice; so they do on a disk that is gone,
	 * until a write tells, which is told in its turn.
	 */
	if (status == 0 && !r->sim->disks[0].tampered &&
	    !r->sim->disks[0].gone && r->fault != FAULT_READ &&
	    (req->bad_count > 0 || req->segments_unread > 0))
		sim_violation(r->sim,
			      "a scrub finds %llu bad blocks, %u segments "
			      "unread",
			      (unsigned long long)req->bad_count,
			      req->segments_unread);
}

static void scrub(struct run *r)
{
	if (r->scrubbing) {
		if (sim_chance(r->sim, 20))
			lsom_scrub_cancel(&r->scrub);
		return;
	}
	r->scrub.data = r;
	r->scrubbing = lsom_scrub(r->disk, &r->scrub, scrubbed) == 0;
}

static void work(struct run *r, unsigned ops)
{
	unsigned i, k;

	while (ops-- > 0 && !r->down) {
		i = (unsigned)sim_random(r->sim, SLOTS);
		if (!r->slots[i].busy) {
			if (sim_chance(r->sim, 4))
				comp__read_one(r, &r->slots[i], i);
			else
				comp__write_one(r, &r->slots[i], i);
		}
		if (sim_chance(r->sim, 6)) {
			comp__stable_move(r);
			lsom_decided(r->comp, &r->decided);
		}
		if (sim_chance(r->sim, 40))
			comp__aux_change(r);
		if (!r->checkpointing && sim_chance(r->sim, 150)) {
			r->checkpoint.data = r;
			r->checkpointing =
				lsom_checkpoint(r->disk, &r->checkpoint,
						checkpointed) == 0;
		}
		if (r->sim->config.scrub && sim_chance(r->sim, 20))
			scrub(r);
		if (r->sim->config.full && sim_chance(r->sim, 200))
			comp__full(r);
		if (r->fault != FAULT_NONE && sim_chance(r->sim, 120))
			comp__fault_now(r);
		for (k = (unsigned)sim_random(r->sim, 12); k > 0; k--)
			if (!step(r))
				break;
	}
}

/* Write every block: a disk that is nearly full from now on. */
static void fill(struct run *r)
{
	uint32_t at, n;

	r->crash_at =
		sim_chance(r->sim, 2) ? r->sim->events + 8000 : UINT64_MAX;
	for (at = 0; at < r->blocks_count && !r->down; at += n) {
		n = MIN(WRITE_BLOCKS, r->blocks_count - at);
		comp__write_some(r, &r->slots[0], 0, at, n, false);
		if (!drain(r))
			return;
	}
	r->filled = true;
	cut_if_up(r);
}

/*
 * When nothing disturbs it any more, a disk does all it should, however full it
 * is: give back what is unmapped, create, delete.
 */
static void finale(struct run *r)
{
	uint32_t n = MIN(WRITE_BLOCKS, r->blocks_count);
	unsigned i;

	r->crash_at = UINT64_MAX;
	if (!look(r))
		return;
	for (i = 0; i < 2; i++) {
		comp__aux_change(r);
		comp__write_some(r, &r->slots[0], 0, i * n, n, true);
		if (!drain(r))
			return;
	}
	comp__write_some(r, &r->slots[0], 0, 0, n, false);
	(void)look(r);
}

static void life(struct run *r, unsigned ops)
{
	struct lsom_disk_info info;

	if (r->squeeze && !r->filled) {
		fill(r);
		return;
	}
	if (r->brief) {
		r->crash_at = r->sim->events + sim_random(r->sim, 300);
		work(r, ops);
		cut_if_up(r);
		return;
	}
	if (sim_chance(r->sim, 3) && !look(r))
		return;
	if (!versions_check(r))
		return;
	crash_plan(r, (uint64_t)ops * 8);
	work(r, ops);
	if (r->down)
		return;
	lsom_disk_info(r->disk, &info);
	sim_trace(r->sim, "%llu of %llu segments free, state %d",
		  (unsigned long long)info.segments_free,
		  (unsigned long long)info.segments, info.state);
	r->crash_at = sim_chance(r->sim, 2)
			      ? r->sim->events + sim_random(r->sim, 400)
			      : UINT64_MAX;
	if (info.state != LSOM_DISK_FAILED && (!look(r) || !versions_check(r)))
		return;
	if (sim_chance(r->sim, 2))
		close_down(r);
	else
		cut(r);
}

static void setup(struct run *r)
{
	struct sim *sim = r->sim;
	struct lsom_format format = { .path = "disk0",
				      .tiny = true,
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
	r->blocks_count =
		(uint32_t)(usable / 4 + sim_random(sim, sim_chance(sim, 4)
								? usable
								: usable / 2));
	/* Or all that fits, but for a little, and lives too short to clean. */
	r->squeeze = sim_chance(sim, 4);
	if (r->squeeze)
		r->blocks_count = (uint32_t)((segments - 6) * 58 *
					     (92 + sim_random(sim, 9)) / 100);
	r->blocks_count = MAX(r->blocks_count, WRITE_BLOCKS * 2 + 8);
	r->blocks = calloc(r->blocks_count, sizeof(*r->blocks));
	if (r->blocks == NULL)
		abort();
	sim->history = history_new(sim, r->blocks_count * SECTORS_A_BLOCK);
	format.disk = r->id;
	format.cluster = r->cluster;
	sim_power_on(sim);
	if (lsom_disk_format(&sim->life->loop.env, &format) < 0)
		sim_violation(sim, "the disk cannot be formatted");
	sim_power_off(sim);
}

void comp_run(struct sim *sim)
{
	struct run *r = calloc(1, sizeof(*r));
	unsigned ops = sim->config.ops, spent = 0, part, ups = 0, i;

	if (r == NULL)
		abort();
	r->sim = sim;
	setup(r);
	if (ops == 0)
		ops = 1200;
	r->down = true;
	while (spent < ops && ups++ < 100) {
		r->brief = r->squeeze && r->filled && !sim_chance(sim, 12);
		if (!power_up(r)) {
			if (!r->down)
				break; /* refused, with reason */
			continue;
		}
		part = r->brief ? 5 + (unsigned)sim_random(sim, 30)
				: 50 + (unsigned)sim_random(sim, 500);
		spent += part;
		life(r, part);
	}
	r->last = true;
	r->brief = false;
	for (i = 0; i < 3 && r->down; i++)
		if (power_up(r))
			finale(r);
	history_check(sim->history);
}
