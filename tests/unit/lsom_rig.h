/*
 * lsom_rig: one store on a simulated disk, with calls that wait for their end.
 * Included by test files; it is part of each.
 */
#ifndef BASALT_TESTS_UNIT_LSOM_RIG_H
#define BASALT_TESTS_UNIT_LSOM_RIG_H

#include "tests/lib/test.h"

#include "base/crc.h"
#include "base/util.h"
#include "lsom/lsom_int.h"
#include "tests/lib/sim_env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PENDING 1
#define FLIGHTS 64u

struct fixture;

/* One request of ours: its answer, or PENDING. */
struct call {
	struct fixture *f;
	struct lsom_write w;
	struct lsom_meta m;
	struct lsom_decide d;
	struct lsom_read r;
	uint32_t crcs[256];
	int status;
	bool done;
	uint64_t seed;
};

struct fixture {
	struct sim_env sim;
	struct lsom *lsom;
	struct lsom_disk *disk;
	struct uuid id, cluster;
	bool lose_unreadable; /* of openings */
	bool done;
	int status;
};

static void opened(struct lsom_disk_open *req, int status)
{
	struct fixture *f = req->data;

	if (status < 0)
		print_message("# open: %d %s\n", status, req->why);
	f->disk = req->opened;
	f->status = status;
	f->done = true;
}

static int disk_open(struct fixture *f, bool rebuild)
{
	struct lsom_disk_open req = {
		.data = f,
		.path = "disk",
		.index_path = "index",
		.cluster = f->cluster,
		.rebuild = rebuild,
		.lose_unreadable = f->lose_unreadable,
	};

	f->done = false;
	CHECK_EQ(lsom_disk_open(f->lsom, &req, opened), 0);
	CHECK(sim_env_run(&f->sim, &f->done));
	return f->status;
}

/* Open the disk; how many lines with @text that says. */
static inline unsigned open_saying(struct fixture *f, bool rebuild,
				   const char *text)
{
	FILE *said = tmpfile();
	int saved = dup(STDERR_FILENO);
	char line[512];
	unsigned n = 0;

	CHECK(said != NULL && saved >= 0);
	CHECK(dup2(fileno(said), STDERR_FILENO) >= 0);
	CHECK_EQ(disk_open(f, rebuild), 0);
	CHECK(dup2(saved, STDERR_FILENO) >= 0);
	close(saved);
	rewind(said);
	while (fgets(line, sizeof(line), said) != NULL)
		n += strstr(line, text) != NULL;
	fclose(said);
	return n;
}

static void closed(struct lsom_disk_close *req, int status)
{
	struct fixture *f = req->data;

	f->status = status;
	f->done = true;
}

static void disk_close(struct fixture *f)
{
	struct lsom_disk_close req = { .data = f };

	f->done = false;
	CHECK_EQ(lsom_disk_close(f->disk, &req, closed), 0);
	CHECK(sim_env_run(&f->sim, &f->done));
	f->disk = NULL;
}

static inline struct fixture *fixture_of(uint64_t seed, uint64_t bytes,
					 uint32_t segment_bytes)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct lsom_config config = { .page_cache_bytes = 80000 };
	struct lsom_format format = { .path = "disk" };

	lsom__segment_checks = true;
	sim_env_init(&f->sim, bytes, seed);
	f->id = uuid_of(100);
	f->cluster = uuid_of(200);
	config.env = &f->sim.loop.env;
	CHECK_EQ(lsom_open(&config, &f->lsom), 0);
	format.disk = f->id;
	format.cluster = f->cluster;
	format.segment_bytes = segment_bytes;
	format.tiny = segment_bytes < LSOM__SEGMENT_MIN;
	CHECK_EQ(lsom_disk_format(&f->sim.loop.env, &format), 0);
	CHECK_EQ(disk_open(f, false), 0);
	return f;
}

static inline struct fixture *fixture_open(uint64_t seed)
{
	return fixture_of(seed, 64u << 20, 1u << 20);
}

/* What is due comes; else it waits until nothing is in flight. */
static inline void timers_due(struct sim_env *sim)
{
	const struct env_timer *timer;

	while ((timer = timer_heap_first(&sim->loop.timers)) != NULL &&
	       timer->due_ns <= sim->loop.env.now_ns)
		CHECK(vloop_timer_turn(&sim->loop));
}

static inline void fixture_close(struct fixture *f)
{
	disk_close(f);
	lsom_close(f->lsom);
	sim_env_fini(&f->sim);
	free(f);
}

/* The request to a head that is in flight, taken off the disk. */
static inline struct env_io *head_hold(struct fixture *f, unsigned id)
{
	const struct lsom__head *head = &f->disk->heads[id];
	struct sim_env *sim = &f->sim;
	struct env_io *io;

	while (TAILQ_EMPTY(&head->inflight))
		CHECK(sim_env_turn(sim));
	io = &TAILQ_FIRST(&head->inflight)->io;
	for (size_t i = 0; i < sim->ios_count; i++)
		if (sim->ios[i] == io) {
			sim->ios[i] = sim->ios[--sim->ios_count];
			return io;
		}
	fail();
	return NULL;
}

/* So the one that closes @segment. */
static inline struct env_io *summary_hold(struct fixture *f, uint32_t segment)
{
	uint64_t end = lsom__place(f->disk, segment + 1, 0) * LSOM_BLOCK;
	struct sim_env *sim = &f->sim;
	struct env_io *io;

	for (;;) {
		for (size_t i = 0; i < sim->ios_count; i++) {
			io = sim->ios[i];
			if (io->op != WB_WRITE || io->offset + io->len != end)
				continue;
			sim->ios[i] = sim->ios[--sim->ios_count];
			return io;
		}
		CHECK(sim_env_turn(sim));
	}
}

/* The power is about to go: of a write that was held @len bytes are left. */
static inline void held_tear(struct fixture *f, struct env_io *io, size_t len)
{
	struct wb_write *w = io->impl[0];

	memcpy(f->sim.disk.durable + w->offset, w->data, len);
	wb_disk_drop(&f->sim.disk, w);
	io->impl[0] = NULL;
	f->sim.ios[f->sim.ios_count++] = io;
}

/* The power goes, comes back, and the disk is opened. */
static inline int power_cut(struct fixture *f)
{
	sim_env_cut(&f->sim);
	disk_close(f);
	sim_env_restore(&f->sim);
	return disk_open(f, false);
}

static int finish(struct call *c, int rv)
{
	if (rv < 0)
		return rv;
	CHECK(sim_env_run(&c->f->sim, &c->done));
	return c->status;
}

/* ---- metadata ---- */

static void meta_done(struct lsom_meta *req, int status)
{
	struct call *c = container_of(req, struct call, m);

	c->status = status;
	c->done = true;
}

static int create(struct fixture *f, unsigned n, uint64_t blocks)
{
	struct call c = { .f = f };

	c.m.op = LSOM_CREATE;
	c.m.meta.cid = uuid_of(n);
	c.m.meta.cinc = 7;
	c.m.meta.size_bytes = blocks * LSOM_BLOCK;
	c.m.meta.promised_oepoch = 1;
	c.m.meta.member_csn = 1;
	c.m.meta.state_seen = LSOM_ACTIVE;
	return finish(&c, lsom_comp_create(f->disk, &c.m, meta_done));
}

static inline int update(struct fixture *f, struct lsom_comp *comp,
			 enum lsom_meta_op op, struct lsom_comp_meta meta)
{
	struct call c = { .f = f };

	c.m.op = op;
	c.m.meta = meta;
	return finish(&c, lsom_comp_update(comp, &c.m, meta_done));
}

static struct lsom_comp *comp_of(struct fixture *f, unsigned n)
{
	struct uuid id = uuid_of(n);

	return lsom_comp_get(f->disk, &id);
}

/* ---- blocks ---- */

static void fill(uint8_t *page, uint64_t block, uint64_t seed)
{
	uint64_t *w = (uint64_t *)(void *)page, i;

	for (i = 0; i < LSOM_BLOCK / 8; i++)
		w[i] = seed * 0x9e3779b97f4a7c15ull + block * 131 + i;
}

static void written(struct lsom_write *req, int status)
{
	struct call *c = container_of(req, struct call, w);

	sgl_put(req->sgl);
	c->status = status;
	c->done = true;
}

static uint64_t write_csn = 1; /* the session of who writes */

static int write_start(struct call *c, struct lsom_comp *comp,
		       enum lsom_write_kind kind, uint64_t first, uint64_t n,
		       uint64_t lsn, uint64_t seed)
{
	uint64_t i;
	int rv;

	memset(&c->w, 0, sizeof(c->w));
	c->done = false;
	c->status = PENDING;
	c->seed = seed;
	c->w.kind = kind;
	c->w.offset = first * LSOM_BLOCK;
	c->w.len = n * LSOM_BLOCK;
	c->w.lsn = lsn;
	c->w.member_csn = write_csn;
	c->w.crcs = c->crcs;
	if (seed == 0) {
		c->w.flags = LSOM_W_HOLE;
	} else {
		rv = sgl_new(c->f->sim.loop.env.pages, PAGE_FRONT, c->w.len, 0,
			     &c->w.sgl);
		if (rv < 0)
			return -EBUSY;
		for (i = 0; i < n; i++) {
			fill(c->w.sgl->pieces[i].page->data, first + i, seed);
			c->crcs[i] = crc32c(c->w.sgl->pieces[i].page->data,
					    LSOM_BLOCK);
		}
	}
	rv = lsom_write(comp, &c->w, written);
	if (rv < 0)
		sgl_put(c->w.sgl);
	return rv;
}

/* Write @n blocks of the pattern of @seed; 0: unmap them. */
static int put_kind(struct fixture *f, struct lsom_comp *comp,
		    enum lsom_write_kind kind, uint64_t first, uint64_t n,
		    uint64_t lsn, uint64_t seed)
{
	struct call c = { .f = f };

	return finish(&c, write_start(&c, comp, kind, first, n, lsn, seed));
}

static int put(struct fixture *f, struct lsom_comp *comp, uint64_t first,
	       uint64_t n, uint64_t lsn, uint64_t seed)
{
	int rv = put_kind(f, comp, LSOM_PREP, first, n, lsn, seed);
	struct lsom_decided d = { .stable_lsn = lsn, .hole_floor = lsn };

	if (rv == 0)
		lsom_decided(comp, &d);
	return rv;
}

static void read_done(struct lsom_read *req, int status)
{
	struct call *c = container_of(req, struct call, r);

	c->status = status;
	c->done = true;
}

/* 1: the pattern of @seed.  0: zeros.  -1: something else.  Else -errno. */
static inline int get(struct fixture *f, struct lsom_comp *comp, uint64_t block,
		      uint64_t seed)
{
	struct call c = { .f = f };
	uint8_t want[LSOM_BLOCK];
	int rv;

	c.r.offset = block * LSOM_BLOCK;
	c.r.len = LSOM_BLOCK;
	c.r.class = PAGE_FRONT;
	rv = finish(&c, lsom_read(comp, &c.r, read_done));
	if (rv < 0)
		return rv;
	fill(want, block, seed);
	if (memcmp(want, c.r.sgl->pieces[0].page->data, LSOM_BLOCK) == 0)
		rv = 1;
	else
		rv = sgl_is_zero(c.r.sgl) ? 0 : -1;
	sgl_put(c.r.sgl);
	return rv;
}

/* ---- the index ---- */

static inline void checkpoint_made(struct lsom_checkpoint *req, int status)
{
	struct call *c = req->data;

	c->status = status;
	c->done = true;
}

static inline void checkpoint_make(struct fixture *f)
{
	struct call c = { .f = f };
	struct lsom_checkpoint req = { .data = &c };

	CHECK_EQ(finish(&c, lsom_checkpoint(f->disk, &req, checkpoint_made)),
		 0);
}

static inline void decide_done(struct lsom_decide *req, int status)
{
	struct call *c = container_of(req, struct call, d);

	c->status = status;
	c->done = true;
}

static inline int decide(struct fixture *f, struct lsom_comp *comp,
			 uint64_t lsn, bool commit)
{
	struct call c = { .f = f, .d = { .lsn = lsn, .commit = commit } };

	return finish(&c, lsom_decide(comp, &c.d, decide_done));
}

#endif
