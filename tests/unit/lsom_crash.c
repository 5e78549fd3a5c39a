/*
 * Random work against a model, power cuts at random moments, every legal loss
 * of what was not durable; then what is there is compared, the index thrown
 * away and made from the log, and compared again.
 *
 * The driver is what dom would be: one lsn a write, no two undecided writes
 * over one block, stable_lsn up to the first one not answered.  After a cut it
 * rolls forward what it finds undecided.
 */
#include "tests/lib/test.h"

#include "base/crc.h"
#include "base/util.h"
#include "lsom/lsom_int.h"
#include "tests/lib/sim_env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKS 7000u
#define SLOTS 96u

struct run;

struct slot {
	struct lsom_write w;
	struct lsom_decide d;
	struct run *run;
	uint32_t crcs[64];
	bool busy, repeat;
};

struct model_block {
	uint64_t acked; /* lsn of the last acknowledged version */
	uint64_t flying; /* of one that was sent and not answered */
	bool acked_hole, flying_hole;
};

struct run {
	struct sim_env sim;
	struct lsom *lsom;
	struct lsom_disk *disk;
	struct lsom_comp *comp;
	struct uuid id, cluster, cid;
	struct slot slots[SLOTS];
	struct model_block blocks[BLOCKS];
	uint64_t next_lsn, stable;
	bool answered[1u << 16]; /* by sequence number */
	uint64_t seed;
	uint64_t count; /* blocks of the component */
	bool unmaps;
	bool done;
	int status;
	unsigned writes_acked, cuts, enospc, aborted, committed, repeated;
	/* A second component: it comes and goes. */
	struct lsom_meta other;
	unsigned other_number;
	bool other_busy, other_deleted;
};

static void fill(uint8_t *data, uint64_t block, uint64_t lsn)
{
	uint64_t *w = (uint64_t *)(void *)data, i;

	for (i = 0; i < LSOM_BLOCK / 8; i++)
		w[i] = lsn * 0x9e3779b97f4a7c15ull + block * 31 + i;
}

static void must_run(struct run *r)
{
	if (!sim_env_run(&r->sim, &r->done)) {
		print_error("seed %llu: nothing left to do, and not done\n",
			    (unsigned long long)r->seed);
		fail();
	}
}

static void opened(struct lsom_disk_open *req, int status)
{
	struct run *r = req->data;

	if (status < 0)
		print_error("seed %llu: open: %d %s\n",
			    (unsigned long long)r->seed, status, req->why);
	r->disk = req->opened;
	r->status = status;
	r->done = true;
}

static void open_disk(struct run *r, bool rebuild)
{
	struct lsom_disk_open req = { .data = r,
				      .path = "disk",
				      .index_path = "index",
				      .cluster = r->cluster,
				      .rebuild = rebuild };

	r->done = false;
	CHECK_EQ(lsom_disk_open(r->lsom, &req, opened), 0);
	must_run(r);
	CHECK_EQ(r->status, 0);
	r->comp = lsom_comp_get(r->disk, &r->cid);
}

static void closed(struct lsom_disk_close *req, int status)
{
	struct run *r = req->data;

	r->done = true;
}

static void close_disk(struct run *r)
{
	struct lsom_disk_close req = { .data = r };

	if (r->comp != NULL)
		lsom_comp_put(r->comp);
	r->comp = NULL;
	r->done = false;
	CHECK_EQ(lsom_disk_close(r->disk, &req, closed), 0);
	must_run(r);
}

static void created(struct lsom_meta *req, int status)
{
	struct run *r = req->data;

	r->status = status;
	r->done = true;
}

static void create(struct run *r)
{
	struct lsom_meta req = { .data = r, .op = LSOM_CREATE };

	req.meta.cid = r->cid;
	req.meta.cinc = 1;
	req.meta.size_bytes = r->count * LSOM_BLOCK;
	req.meta.promised_oepoch = 1;
	req.meta.member_csn = 1;
	req.meta.state_seen = LSOM_ACTIVE;
	r->done = false;
	CHECK_EQ(lsom_comp_create(r->disk, &req, created), 0);
	must_run(r);
	CHECK_EQ(r->status, 0);
	r->comp = lsom_comp_get(r->disk, &r->cid);
	CHECK(r->comp != NULL);
}

/* ---- work ---- */

static void stable_move(struct run *r)
{
	struct lsom_decided d = { 0 };

	while (r->stable + 1 < r->next_lsn && r->answered[r->stable + 1])
		r->stable++;
	d.stable_lsn = LSN(1, r->stable);
	d.g_all = d.stable_lsn;
	d.hole_floor = r->seed % 2 ? d.stable_lsn : 0;
	lsom_decided(r->comp, &d);
}

static void slot_end(struct slot *s, bool arrived, bool known)
{
	struct run *r = s->run;
	uint64_t first = s->w.offset / LSOM_BLOCK, i;
	struct model_block *b;

	s->busy = false;
	for (i = 0; i < s->w.len / LSOM_BLOCK; i++) {
		b = &r->blocks[first + i];
		CHECK_EQ(b->flying, s->w.lsn);
		if (arrived) {
			b->acked = s->w.lsn;
			b->acked_hole = b->flying_hole;
		}
		if (known)
			b->flying = 0;
	}
	if (known)
		r->answered[s->w.lsn & 0xffff] = true;
}

/* Aborted: as if it had never been.  Until then it may be found, or not. */
static void decided(struct lsom_decide *req, int status)
{
	struct slot *s = container_of(req, struct slot, d);

	if (req->commit) {
		CHECK(status == 0 || status == -EIO || status == -ENODEV);
		s->run->committed += status == 0;
		slot_end(s, true, true);
		return;
	}
	s->run->aborted += status == 0;
	slot_end(s, false, status == 0);
}

static void wrote(struct lsom_write *req, int status);
static int write_send(struct run *r, struct slot *s);

/* It is durable.  Mostly that is all; sometimes it is decided, or repeated. */
static void write_durable(struct slot *s)
{
	struct run *r = s->run;

	r->writes_acked++;
	switch (s->repeat ? 9 : sim_env_random(&r->sim, r->unmaps ? 400 : 10)) {
	case 0:
	case 1:
		memset(&s->d, 0, sizeof(s->d));
		s->d.lsn = s->w.lsn;
		s->d.commit = sim_env_random(&r->sim, 2);
		if (lsom_decide(r->comp, &s->d, decided) == 0)
			return;
		break;
	case 2:
		s->repeat = true;
		if (write_send(r, s) == 0) {
			r->repeated++;
			return;
		}
	}
	slot_end(s, true, true);
}

static void wrote(struct lsom_write *req, int status)
{
	struct slot *s = container_of(req, struct slot, w);

	sgl_put(req->sgl);
	s->run->enospc += status == -ENOSPC;
	if (s->repeat) {
		/* R26: it is held, and that is durable; R41. */
		CHECK(status == 0 || status == -ESTALE || status == -EIO ||
		      status == -ENODEV);
		slot_end(s, true, true);
	} else if (status == 0) {
		write_durable(s);
	} else {
		slot_end(s, false, status == -ENOSPC);
	}
}

static bool range_free(const struct run *r, uint64_t first, uint64_t n)
{
	while (n-- > 0)
		if (r->blocks[first + n].flying != 0)
			return false;
	return true;
}

/* Send @s->w with the data it is to have.  0 or -errno. */
static int write_send(struct run *r, struct slot *s)
{
	uint64_t first = s->w.offset / LSOM_BLOCK, i;
	int rv;

	s->w.sgl = NULL;
	if (!(s->w.flags & LSOM_W_HOLE)) {
		rv = sgl_new(r->sim.loop.env.pages, PAGE_FRONT, s->w.len, 0,
			     &s->w.sgl);
		if (rv < 0)
			return rv;
		for (i = 0; i < s->w.len / LSOM_BLOCK; i++) {
			fill(s->w.sgl->pieces[i].page->data, first + i,
			     s->w.lsn);
			s->crcs[i] = crc32c(s->w.sgl->pieces[i].page->data,
					    LSOM_BLOCK);
		}
	}
	rv = lsom_write(r->comp, &s->w, wrote);
	if (rv < 0)
		sgl_put(s->w.sgl);
	return rv;
}

static struct uuid other_id(const struct run *r)
{
	struct uuid id = { { 9, (uint8_t)r->other_number,
			     (uint8_t)(r->other_number >> 8) } };

	return id;
}

static void other_done(struct lsom_meta *req, int status)
{
	struct run *r = container_of(req, struct run, other);

	r->other_busy = false;
	if (status == 0 && req->op == LSOM_DELETE)
		r->other_deleted = true;
}

/* Create the second component; or write to it, or delete it. */
static void other_step(struct run *r)
{
	struct uuid id = other_id(r);
	struct lsom_comp *comp = lsom_comp_get(r->disk, &id);

	if (r->other_busy)
		goto out;
	memset(&r->other, 0, sizeof(r->other));
	if (r->other_deleted) {
		CHECK(comp == NULL);
		r->other_deleted = false;
		r->other_number++;
		r->other.op = LSOM_CREATE;
		r->other.meta.cid = other_id(r);
		r->other.meta.cinc = 1;
		r->other.meta.size_bytes = 64u << 20;
		r->other.meta.promised_oepoch = 1;
		r->other.meta.member_csn = 1;
		r->other.meta.state_seen = LSOM_ACTIVE;
		r->other_busy =
			lsom_comp_create(r->disk, &r->other, other_done) == 0;
	} else if (comp != NULL) {
		r->other.op = LSOM_DELETE;
		r->other_busy =
			lsom_comp_update(comp, &r->other, other_done) == 0;
	} else {
		r->other_deleted = true; /* its CREATE was cut off */
	}
out:
	if (comp != NULL)
		lsom_comp_put(comp);
}

static void other_wrote(struct lsom_write *req, int status)
{
	sgl_put(req->sgl);
	free(req);
}

static void other_fill(struct run *r)
{
	struct uuid id = other_id(r);
	struct lsom_comp *comp = lsom_comp_get(r->disk, &id);
	struct lsom_write *w = calloc(1, sizeof(*w));
	static uint32_t crcs[16];
	unsigned i;

	CHECK(w != NULL);
	w->kind = LSOM_RCOPY;
	w->offset = sim_env_random(&r->sim, 16000) * LSOM_BLOCK;
	w->len = 16 * LSOM_BLOCK;
	w->lsn = LSN(1, r->next_lsn);
	w->member_csn = 1;
	w->crcs = crcs;
	if (comp == NULL || sgl_new(r->sim.loop.env.pages, PAGE_FRONT, w->len,
				    0, &w->sgl) < 0) {
		free(w);
		w = NULL;
	}
	for (i = 0; w != NULL && i < 16; i++) {
		memset(w->sgl->pieces[i].page->data, 0x55, LSOM_BLOCK);
		crcs[i] = crc32c(w->sgl->pieces[i].page->data, LSOM_BLOCK);
	}
	if (w != NULL && lsom_write(comp, w, other_wrote) < 0) {
		sgl_put(w->sgl);
		free(w);
	}
	if (comp != NULL)
		lsom_comp_put(comp);
}

static void write_one(struct run *r, struct slot *s)
{
	bool hole = sim_env_random(&r->sim, r->unmaps ? 40 : 8) == 0;
	uint64_t n, i, first;

	if (r->unmaps)
		hole = !hole;
	n = 1 + sim_env_random(&r->sim, r->unmaps && hole ? 2 : 64);
	first = sim_env_random(&r->sim, r->count - n);

	/* Some places are hotter than others. */
	if (!r->unmaps && sim_env_random(&r->sim, 2))
		first %= r->count / 8;
	if (!range_free(r, first, n))
		return;
	memset(&s->w, 0, sizeof(s->w));
	s->run = r;
	s->repeat = false;
	s->w.kind = LSOM_PREP;
	s->w.offset = first * LSOM_BLOCK;
	s->w.len = n * LSOM_BLOCK;
	s->w.lsn = LSN(1, r->next_lsn);
	s->w.member_csn = 1;
	s->w.crcs = s->crcs;
	if (hole)
		s->w.flags = LSOM_W_HOLE;
	if (write_send(r, s) < 0)
		return;
	s->busy = true;
	r->answered[r->next_lsn++] = false;
	for (i = 0; i < n; i++) {
		r->blocks[first + i].flying = s->w.lsn;
		r->blocks[first + i].flying_hole = hole;
	}
}

static bool any_busy(const struct run *r)
{
	unsigned i;

	for (i = 0; i < SLOTS; i++)
		if (r->slots[i].busy)
			return true;
	return false;
}

static void work(struct run *r, unsigned ops)
{
	struct slot *s;
	unsigned k;

	while (ops-- > 0) {
		s = &r->slots[sim_env_random(&r->sim, r->unmaps ? SLOTS : 24)];
		if (!s->busy && r->next_lsn < 65000)
			write_one(r, s);
		if (sim_env_random(&r->sim, 4) == 0)
			stable_move(r);
		if (!r->unmaps && sim_env_random(&r->sim, 16) == 0)
			other_fill(r);
		if (sim_env_random(&r->sim, 64) == 0)
			other_step(r);
		k = (unsigned)sim_env_random(&r->sim, 12);
		/* In bursts: batches of many records. */
		if (r->unmaps)
			k = sim_env_random(&r->sim, 60) ? 0 : 20 + k;
		for (; k > 0; k--)
			if (!sim_env_turn(&r->sim))
				break;
	}
}

/* ---- looking ---- */

static void read_done(struct lsom_read *req, int status)
{
	struct run *r = req->data;

	r->status = status;
	r->done = true;
}

static bool holds(const uint8_t *data, uint64_t block, uint64_t lsn, bool hole)
{
	static uint8_t want[LSOM_BLOCK];

	if (lsn == 0 || hole)
		memset(want, 0, sizeof(want));
	else
		fill(want, block, lsn);
	return memcmp(want, data, sizeof(want)) == 0;
}

static void block_check(struct run *r, uint64_t block, const uint8_t *data,
			const char *when)
{
	struct model_block *b = &r->blocks[block];

	if (b->flying != 0 && holds(data, block, b->flying, b->flying_hole)) {
		b->acked = b->flying; /* it arrived, and now it is there */
		b->acked_hole = b->flying_hole;
		return;
	}
	if (holds(data, block, b->acked, b->acked_hole))
		return;
	print_error("seed %llu, %s, cut %u: block %llu is not lsn %llu%s nor "
		    "%llu%s\n",
		    (unsigned long long)r->seed, when, r->cuts,
		    (unsigned long long)block,
		    (unsigned long long)(b->acked & 0xffffff),
		    b->acked_hole ? " (hole)" : "",
		    (unsigned long long)(b->flying & 0xffffff),
		    b->flying_hole ? " (hole)" : "");
	fail();
}

static void check_all(struct run *r, const char *when)
{
	struct lsom_read req;
	uint64_t at, n, i;

	for (at = 0; at < r->count; at += n) {
		n = MIN((uint64_t)256, r->count - at);
		memset(&req, 0, sizeof(req));
		req.data = r;
		req.offset = at * LSOM_BLOCK;
		req.len = n * LSOM_BLOCK;
		req.class = PAGE_FRONT;
		r->done = false;
		CHECK_EQ(lsom_read(r->comp, &req, read_done), 0);
		must_run(r);
		if (r->status < 0)
			print_error("seed %llu, %s: read at %llu: %d\n",
				    (unsigned long long)r->seed, when,
				    (unsigned long long)at, r->status);
		CHECK_EQ(r->status, 0);
		for (i = 0; i < n; i++)
			block_check(r, at + i, req.sgl->pieces[i].page->data,
				    when);
		sgl_put(req.sgl);
	}
}

static void scan_done(struct lsom_scan *req, int status)
{
	struct run *r = req->data;

	r->status = status;
	r->done = true;
}

static unsigned scan_all(struct run *r, struct lsom_version *items)
{
	struct lsom_scan req = { .data = r,
				 .len = r->count * LSOM_BLOCK,
				 .items = items,
				 .items_max = BLOCKS };
	unsigned i, n = 0;

	r->done = false;
	CHECK_EQ(lsom_scan(r->comp, &req, scan_done), 0);
	must_run(r);
	CHECK_EQ(r->status, 0);
	CHECK_EQ(req.next, req.len);
	/* Holes that nobody needs may go at any time. */
	for (i = 0; i < req.items_count; i++)
		if (!items[i].hole)
			items[n++] = items[i];
	return n;
}

static void undecided_seen(const struct lsom_undecided *u, void *arg)
{
	uint64_t *max = arg;

	*max = MAX(*max, u->lsn);
}

/* As an owner that takes over: what is found is committed. */
static void take_over(struct run *r)
{
	const struct lsom_comp_meta *m;
	struct lsom_decided d = { 0 };
	uint64_t max = 0;

	CHECK(r->comp != NULL);
	m = lsom_comp_meta(r->comp);
	CHECK(!m->damaged);
	CHECK(m->stable_lsn <= LSN(1, r->stable));
	lsom_undecided_each(r->comp, undecided_seen, &max);
	d.stable_lsn = LSN(1, r->next_lsn - 1);
	(void)max;
	lsom_decided(r->comp, &d);
	r->stable = r->next_lsn - 1;
}

static void flying_forget(struct run *r)
{
	unsigned i;

	for (i = 0; i < BLOCKS; i++)
		r->blocks[i].flying = 0;
}

static void power_cut(struct run *r)
{
	sim_env_cut(&r->sim);
	close_disk(r);
	CHECK(!any_busy(r));
	sim_env_restore(&r->sim);
	r->cuts++;
	/* Now and then the power goes again during recovery's writes. */
	open_disk(r, false);
	if (r->other_deleted) {
		struct uuid id = other_id(r);

		CHECK(lsom_comp_get(r->disk, &id) == NULL);
	}
	take_over(r);
	check_all(r, "after a power cut");
	flying_forget(r);
}

static void rebuild(struct run *r)
{
	struct lsom_version *before = calloc(BLOCKS, sizeof(*before));
	struct lsom_version *after = calloc(BLOCKS, sizeof(*after));
	unsigned n, m, i;

	r->done = true;
	while (any_busy(r))
		CHECK(sim_env_turn(&r->sim));
	stable_move(r);
	n = scan_all(r, before);
	close_disk(r);
	open_disk(r, true);
	take_over(r);
	m = scan_all(r, after);
	CHECK_EQ(n, m);
	for (i = 0; i < n; i++) {
		CHECK_EQ(before[i].offset, after[i].offset);
		CHECK_EQ(before[i].lsn, after[i].lsn);
		CHECK_EQ(before[i].member_csn, after[i].member_csn);
		CHECK_EQ(before[i].crc, after[i].crc);
	}
	check_all(r, "after a rebuild");
	free(before);
	free(after);
}

static struct run *run_open(uint64_t seed, bool unmaps)
{
	struct run *r = calloc(1, sizeof(*r));
	struct lsom_config config = { .page_cache_bytes = 80000 };
	struct lsom_format format = { .path = "disk" };

	lsom__segment_checks = true;
	r->unmaps = unmaps;
	r->count = unmaps ? 600 : BLOCKS;
	sim_env_init(&r->sim, unmaps ? 6u << 20 : 64u << 20, seed * 7919 + 3);
	r->seed = seed;
	/* A disk that ignores ENV_DURABLE: this test must fail then. */
	r->sim.lie = getenv("LIE") != NULL;
	r->id.b[0] = 1;
	r->cluster.b[0] = 2;
	r->cid.b[0] = 3;
	r->next_lsn = 1;
	r->other_deleted = true;
	config.env = &r->sim.loop.env;
	CHECK_EQ(lsom_open(&config, &r->lsom), 0);
	format.disk = r->id;
	format.cluster = r->cluster;
	format.tiny = unmaps;
	format.segment_bytes = unmaps ? 256u << 10 : 1u << 20;
	CHECK_EQ(lsom_disk_format(&r->sim.loop.env, &format), 0);
	open_disk(r, false);
	create(r);
	return r;
}

static void run_close(struct run *r)
{
	while (any_busy(r))
		CHECK(sim_env_turn(&r->sim));
	close_disk(r);
	lsom_close(r->lsom);
	sim_env_fini(&r->sim);
	free(r);
}

TEST(crash, cuts_and_rebuilds)
{
	uint64_t seed, first = 1, last = 6;
	const char *only = getenv("SEED");
	unsigned i, rounds;
	struct run *r;

	if (only != NULL)
		first = last = strtoull(only, NULL, 10);
	for (seed = first; seed <= last; seed++) {
		r = run_open(seed, false);
		rounds = 5;
		for (i = 0; i < rounds; i++) {
			work(r, 200 + (unsigned)sim_env_random(&r->sim, 500));
			power_cut(r);
			if (i % 3 == 2)
				rebuild(r);
		}
		print_message("# seed %llu: %u writes, %u cuts, %u full, "
			      "%u aborted, %u committed, %u repeated\n",
			      (unsigned long long)seed, r->writes_acked,
			      r->cuts, r->enospc, r->aborted, r->committed,
			      r->repeated);
		run_close(r);
	}
}

/*
 * A torn header matters where an older one lies below it: then a record may be
 * half of one and half of the other, and no data tells.  So: a tiny disk,
 * overwritten many times, mostly by unmaps, that is, by headers.
 */
TEST(crash, torn_headers_over_old_ones)
{
	uint64_t seed, first = 1, last = 4;
	const char *only = getenv("SEED");
	struct run *r;
	unsigned i;

	if (only != NULL)
		first = last = strtoull(only, NULL, 10);
	for (seed = first; seed <= last; seed++) {
		r = run_open(seed, true);
		for (i = 0; i < 40; i++) {
			work(r, 600 + (unsigned)sim_env_random(&r->sim, 200));
			power_cut(r);
		}
		print_message("# seed %llu: %u writes, %u cuts, %u full\n",
			      (unsigned long long)seed, r->writes_acked,
			      r->cuts, r->enospc);
		run_close(r);
	}
}
