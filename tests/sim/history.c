/*
 * history: what clients asked and saw, and whether one order explains it.
 *
 * A sector (512 bytes) is a register, and every write puts a value of its own
 * into it, so Gibbons' and Korach's test for unique values is exact: the
 * operations of one value make a cluster, which reaches from its first end to
 * its last start; where that is an interval, the register held the value all
 * through it, and nothing else may lie inside.  Zeros (never written, unmapped)
 * are not unique and get the weaker test that some zero may be what was read.
 *
 * A 4 KiB block is one register too: of a read, no two sectors of a block may
 * contradict each other about the order of two writes (torn).  An atomic write
 * binds all of its sectors like that.
 *
 * Times are ticks of the history, strictly rising, so nothing ties.
 */
#include "tests/sim/sim.h"

#include "tests/lib/must.h"
#include "tests/lib/pattern.h"

#include <stdio.h>
#include <stdlib.h>

struct history {
	struct sim *sim;
	uint32_t sectors;
	struct h_op **ops; /* ops[0] is the birth of all zeros */
	uint32_t count, room;
	uint32_t unresolved; /* ops below it are resolved */
	bool lossy;
};

static struct h_op *op_add(struct history *h)
{
	if (h->count == h->room) {
		h->room = h->room ? h->room * 2 : 256;
		h->ops = must(realloc(h->ops, h->room * sizeof(*h->ops)));
	}
	return h->ops[h->count++] = must(calloc(1, sizeof(struct h_op)));
}

struct history *history_new(struct sim *sim, uint32_t sectors)
{
	struct history *h = must(calloc(1, sizeof(*h)));
	struct h_op *birth;

	h->sim = sim;
	h->sectors = sectors;
	birth = op_add(h);
	birth->kind = H_UNMAP;
	birth->outcome = H_DONE;
	birth->count = sectors;
	birth->start = birth->end = 0;
	return h;
}

uint32_t history_ops(const struct history *h)
{
	return h->count - 1;
}

static const char *kind_name(const struct h_op *op)
{
	static const char *const names[] = { "read", "write", "unmap",
					     "compare-and-write" };

	return names[op->kind];
}

struct h_op *history_start(struct history *h, enum h_kind kind, unsigned client,
			   uint32_t sector, uint32_t count)
{
	struct h_op *op = op_add(h);

	op->kind = kind;
	op->client = client;
	op->sector = sector;
	op->count = count;
	op->start = h->sim->tick++;
	op->ns = h->sim->now_ns;
	op->end = UINT64_MAX;
	if (kind == H_WRITE || kind == H_COMPARE)
		op->id = h->count - 1;
	if (kind == H_READ || kind == H_COMPARE)
		op->seen = must(calloc(count, sizeof(*op->seen)));
	sim_trace(h->sim, "client %u: %s %u+%u%s -> op %u", client,
		  kind_name(op), sector, count, "", h->count - 1);
	return op;
}

void history_end(struct history *h, struct h_op *op, enum h_outcome outcome)
{
	static const char *const outcomes[] = { "?", "done", "never",
						"unknown" };

	op->outcome = outcome;
	op->end = outcome == H_UNKNOWN ? UINT64_MAX : h->sim->tick++;
	sim_hash(h->sim, op->start ^ (uint64_t)outcome << 56);
	sim_trace(h->sim, "client %u: %s %u+%u of %.6f: %s", op->client,
		  kind_name(op), op->sector, op->count, (double)op->ns / 1e9,
		  outcomes[outcome]);
}

void history_cut(struct history *h)
{
	uint32_t i;

	for (i = h->unresolved; i < h->count; i++)
		if (h->ops[i]->outcome == H_PENDING)
			h->ops[i]->outcome = H_UNKNOWN;
}

void history_serving(struct history *h)
{
	uint32_t i;

	for (i = h->unresolved; i < h->count; i++)
		if (h->ops[i]->outcome == H_UNKNOWN &&
		    h->ops[i]->end == UINT64_MAX)
			h->ops[i]->end = h->sim->tick++;
	h->unresolved = h->count;
}

void history_lossy(struct history *h)
{
	h->lossy = true;
}

/* ---- sectors ---- */

#define MAGIC 0x4d49534c41534142ull /* "BASALSIM" */

void history_fill(uint8_t *bytes, uint32_t sector, uint32_t id)
{
	uint64_t words[SECTOR / 8], state = (uint64_t)sector << 32 | id;
	unsigned i;

	if (id == 0) {
		memset(bytes, 0, SECTOR);
		return;
	}
	words[0] = MAGIC;
	words[1] = state;
	for (i = 2; i < SECTOR / 8; i++)
		words[i] = words[i - 1] * 0x9e3779b97f4a7c15ull + MAGIC;
	memcpy(bytes, words, SECTOR);
}

uint32_t history_value(struct history *h, const uint8_t *bytes, uint32_t sector)
{
	static const uint8_t zero[SECTOR];
	uint8_t want[SECTOR];
	uint64_t head[2];
	uint32_t id;

	if (memcmp(bytes, zero, SECTOR) == 0)
		return 0;
	memcpy(head, bytes, sizeof(head));
	id = (uint32_t)head[1];
	if (head[0] != MAGIC || head[1] >> 32 != sector || id == 0)
		sim_violation(h->sim,
			      "sector %u holds foreign bytes "
			      "%016llx %016llx",
			      sector, (unsigned long long)head[0],
			      (unsigned long long)head[1]);
	history_fill(want, sector, id);
	if (memcmp(want, bytes, SECTOR) != 0)
		sim_violation(h->sim, "sector %u holds a torn sector of op %u",
			      sector, id);
	return id;
}

/* ---- one order ---- */

static bool writes(const struct h_op *op)
{
	return op->kind != H_READ && op->outcome != H_NEVER;
}

static bool reads(const struct h_op *op)
{
	return (op->kind == H_READ || op->kind == H_COMPARE) &&
	       op->outcome == H_DONE;
}

static bool covers(const struct h_op *op, uint32_t sector)
{
	return sector >= op->sector && sector - op->sector < op->count;
}

struct cluster {
	const struct h_op *w;
	uint64_t first, last; /* first end, last start */
	bool read;
	const struct h_op *first_op, *last_op;
};

struct register_ops {
	struct h_op **ops;
	uint32_t count;
};

static void tell(const struct history *h, const char *what,
		 const struct h_op *op)
{
	printf("#   %s: op of client %u: %s %u+%u value %u, ticks %llu..%lld, "
	       "at %.6f s\n",
	       what, op->client, kind_name(op), op->sector, op->count, op->id,
	       (unsigned long long)op->start, (long long)op->end,
	       (double)op->ns / 1e9);
	(void)h;
}

static const struct h_op *writer(const struct history *h, uint32_t sector,
				 const struct h_op *r, uint32_t id)
{
	const struct h_op *w;

	if (id >= h->count || h->ops[id]->id != id ||
	    !covers(h->ops[id], sector)) {
		tell(h, "reader", r);
		sim_violation(h->sim,
			      "sector %u: value %u was never written "
			      "there",
			      sector, id);
	}
	w = h->ops[id];
	if (w->outcome == H_NEVER && !h->lossy) {
		tell(h, "reader", r);
		tell(h, "writer", w);
		sim_violation(h->sim,
			      "sector %u: a read saw op %u, which was "
			      "answered as not done",
			      sector, id);
	}
	if (r->end < w->start) {
		tell(h, "reader", r);
		tell(h, "writer", w);
		sim_violation(h->sim,
			      "sector %u: a read saw op %u before it "
			      "was sent",
			      sector, id);
	}
	return w;
}

static struct cluster *cluster_of(struct cluster *c, uint32_t *n,
				  const struct h_op *w)
{
	uint32_t i;

	for (i = 0; i < *n; i++)
		if (c[i].w == w)
			return &c[i];
	c[*n] = (struct cluster){ .w = w,
				  .first = w->end,
				  .last = w->start,
				  .first_op = w,
				  .last_op = w };
	return &c[(*n)++];
}

static void stale(const struct history *h, uint32_t sector,
		  const struct cluster *a, const struct h_op *inside)
{
	tell(h, "value seen or done first", a->first_op);
	tell(h, "value seen or sent last", a->last_op);
	tell(h, "and between them", inside);
	sim_violation(h->sim,
		      "sector %u: the value of op %u came back (stale "
		      "or lost write)",
		      sector, a->w->id);
}

/* Two values, neither zero: their zones (Gibbons and Korach, theorem 4.3). */
static void zones_check(const struct history *h, uint32_t sector,
			const struct cluster *a, const struct cluster *b)
{
	if (a->first >= a->last)
		return; /* a backward zone contains nothing */
	if (b->first < b->last) {
		if (a->first < b->last && b->first < a->last) {
			tell(h, "seen or done first", a->first_op);
			tell(h, "seen or sent last", a->last_op);
			stale(h, sector, b, a->first_op);
		}
	} else if (a->first < b->last && b->first < a->last) {
		stale(h, sector, a, b->last_op);
	}
}

static bool zero_possible(const struct history *h,
			  const struct register_ops *reg,
			  const struct cluster *c, uint32_t n,
			  const struct h_op *r)
{
	const struct h_op *z;
	uint32_t i, k;

	for (i = 0; i <= reg->count; i++) {
		z = i == reg->count ? h->ops[0] : reg->ops[i];
		if (z->kind != H_UNMAP || !writes(z) || z->start > r->end)
			continue;
		/* Was it surely overwritten before the read began? */
		for (k = 0; k < n; k++)
			if (c[k].last > z->end && c[k].first < r->start)
				break;
		if (k == n)
			return true;
	}
	return false;
}

static void zero_check(const struct history *h, uint32_t sector,
		       const struct register_ops *reg, const struct cluster *c,
		       uint32_t n, const struct h_op *op)
{
	uint32_t k;

	for (k = 0; k < n; k++)
		if (op->start > c[k].first && op->end < c[k].last)
			stale(h, sector, &c[k], op);
	if (op->kind == H_UNMAP || zero_possible(h, reg, c, n, op))
		return;
	for (k = 0; k < n; k++)
		if (c[k].first < op->start)
			tell(h, "was there before", c[k].first_op);
	tell(h, "reader", op);
	sim_violation(h->sim, "sector %u: a read saw zeros (a lost write)",
		      sector);
}

static void register_check(const struct history *h, uint32_t sector,
			   const struct register_ops *reg)
{
	struct cluster *c = must(calloc(reg->count + 1, sizeof(*c))), *q;
	uint32_t n = 0, i, k, v;
	struct h_op *op;

	for (i = 0; i < reg->count; i++) {
		op = reg->ops[i];
		if (op->id != 0 && op->outcome == H_DONE)
			(void)cluster_of(c, &n, op);
	}
	for (i = 0; i < reg->count; i++) {
		op = reg->ops[i];
		if (!reads(op))
			continue;
		v = op->seen[sector - op->sector];
		if (v == 0)
			continue;
		q = cluster_of(c, &n, writer(h, sector, op, v));
		q->read = true;
		if (op->end < q->first) {
			q->first = op->end;
			q->first_op = op;
		}
		if (op->start > q->last) {
			q->last = op->start;
			q->last_op = op;
		}
	}
	if (h->lossy) {
		free(c);
		return; /* what was lost with the medium may look so */
	}
	for (i = 0; i < n; i++)
		for (k = 0; k < n; k++)
			if (k != i)
				zones_check(h, sector, &c[i], &c[k]);
	for (i = 0; i < reg->count; i++) {
		op = reg->ops[i];
		if ((op->kind == H_UNMAP && op->outcome == H_DONE) ||
		    (reads(op) && op->seen[sector - op->sector] == 0))
			zero_check(h, sector, reg, c, n, op);
	}
	free(c);
}

/* ---- blocks and atomic commands ---- */

static void torn(const struct history *h, const struct h_op *r, uint32_t i,
		 uint32_t j, const struct h_op *w, const struct h_op *x)
{
	tell(h, "reader", r);
	tell(h, "one", w);
	if (x != NULL)
		tell(h, "other", x);
	sim_violation(h->sim, "sectors %u and %u: a %s is half there", i, j,
		      w->atomic ? "command that is atomic"
				: "write below 4 KiB");
}

/* Sector @i of the read holds @w, which also wrote @j, which holds another. */
static void pair_check(const struct history *h, const struct h_op *r,
		       uint32_t i, uint32_t j, const struct h_op *w)
{
	uint32_t v = r->seen[j - r->sector], k;
	const struct h_op *x;

	if (v == w->id)
		return;
	if (v != 0) {
		x = h->ops[v];
		if (x->end < w->start)
			torn(h, r, i, j, w, x);
		if (covers(x, i) &&
		    (x->atomic || i / SECTORS_A_BLOCK == j / SECTORS_A_BLOCK))
			torn(h, r, i, j, w, x);
		return;
	}
	for (k = 1; k < h->count; k++) {
		x = h->ops[k];
		if (x->kind == H_UNMAP && writes(x) && covers(x, j) &&
		    x->end > w->start && x->start < r->end)
			return;
	}
	torn(h, r, i, j, w, NULL);
}

static void read_check(const struct history *h, const struct h_op *r)
{
	uint32_t end = r->sector + r->count, i, j;
	const struct h_op *w;

	for (i = r->sector; i < end; i++) {
		if (r->seen[i - r->sector] == 0)
			continue;
		w = h->ops[r->seen[i - r->sector]];
		for (j = r->sector; j < end; j++)
			if (covers(w, j) &&
			    (w->atomic ||
			     i / SECTORS_A_BLOCK == j / SECTORS_A_BLOCK))
				pair_check(h, r, i, j, w);
	}
}

/* A value that one compare-and-write replaced is gone for the next. */
static void compares_check(const struct history *h)
{
	uint32_t i, k, s;
	const struct h_op *a, *b;

	for (i = 1; i < h->count; i++) {
		a = h->ops[i];
		if (a->kind != H_COMPARE || a->outcome != H_DONE)
			continue;
		for (k = i + 1; k < h->count; k++) {
			b = h->ops[k];
			if (b->kind != H_COMPARE || b->outcome != H_DONE)
				continue;
			for (s = 0; s < a->count; s++)
				if (a->seen[s] != 0 &&
				    covers(b, a->sector + s) &&
				    b->seen[a->sector + s - b->sector] ==
					    a->seen[s]) {
					tell(h, "one", a);
					tell(h, "other", b);
					sim_violation(h->sim,
						      "two compare-and-"
						      "writes replaced one "
						      "value");
				}
		}
	}
}

void history_check(struct history *h)
{
	struct register_ops *regs = must(calloc(h->sectors, sizeof(*regs)));
	uint32_t *room = must(calloc(h->sectors, sizeof(*room)));
	struct register_ops *r;
	uint32_t i, s;
	struct h_op *op;

	history_cut(h);
	history_serving(h);
	for (i = 1; i < h->count; i++) {
		op = h->ops[i];
		for (s = op->sector; s < op->sector + op->count; s++) {
			r = &regs[s];
			if (r->count == room[s]) {
				room[s] = room[s] ? room[s] * 2 : 16;
				r->ops = must(realloc(
					r->ops, room[s] * sizeof(*r->ops)));
			}
			r->ops[r->count++] = op;
		}
	}
	for (s = 0; s < h->sectors; s++)
		register_check(h, s, &regs[s]);
	if (!h->lossy) {
		for (i = 1; i < h->count; i++)
			if (reads(h->ops[i]) && h->ops[i]->kind == H_READ)
				read_check(h, h->ops[i]);
		compares_check(h);
	}
	for (s = 0; s < h->sectors; s++)
		free(regs[s].ops);
	free(regs);
	free(room);
}
