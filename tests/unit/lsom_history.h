/*
 * lsom_history: a disk with a log whose history is known, so that it can be said
 * what each block may read as when something of it is damaged.
 */
#ifndef BASALT_TESTS_UNIT_LSOM_HISTORY_H
#define BASALT_TESTS_UNIT_LSOM_HISTORY_H

#include "tests/unit/lsom_rig.h"

#include "tests/lib/memkv.h"

#define SEGMENT LSOM__SEGMENT_TINY
#define SEGMENTS 26u
#define BYTES ((1u << 20) + SEGMENTS * SEGMENT)
#define BLOCKS 900u /* from 640 on nothing is ever written */
#define FULL 48u /* of a write: a segment has room for one */
#define STEP 5u /* places to try of a log that is long */
#define LAST 639u /* written last; the tail of the log may be torn */

/* Races do not depend on the block: for the slow search a sample is enough. */
#ifdef __SANITIZE_THREAD__
#define EVERY 13u
#else
#define EVERY 1u
#endif

/* What is on the disk and in the index, and what it should read as. */
struct history {
	struct fixture f;
	uint8_t *image;
	struct kv *store;
	uint64_t seeds[BLOCKS]; /* 0: zeros */
	uint64_t lsn; /* counts writes */
	uint64_t stable; /* the last one */
	uint64_t last_header; /* of the last batch */
	bool cut;
};

static inline void tiny_open(struct fixture *f, uint64_t seed)
{
	struct lsom_config config = { .page_cache_bytes = 80000 };
	struct lsom_format format = { .path = "disk", .tiny = true };

	lsom__segment_checks = true;
	sim_env_init(&f->sim, BYTES, seed);
	f->cluster = uuid_of(200);
	config.env = &f->sim.loop.env;
	CHECK_EQ(lsom_open(&config, &f->lsom), 0);
	format.disk = uuid_of(100);
	format.cluster = f->cluster;
	format.segment_bytes = SEGMENT;
	CHECK_EQ(lsom_disk_format(&f->sim.loop.env, &format), 0);
	CHECK_EQ(disk_open(f, false), 0);
}

/* The disk is closed, or its power off. */
static inline void tiny_close(struct fixture *f)
{
	lsom_close(f->lsom);
	sim_env_fini(&f->sim);
	free(f);
}

static inline void power_off(struct fixture *f)
{
	sim_env_cut(&f->sim);
	if (f->disk != NULL)
		disk_close(f);
	sim_env_restore(&f->sim);
}

static inline void history_put(struct history *h, struct lsom_comp *comp,
			       uint64_t first, uint64_t n, unsigned epoch,
			       bool hole)
{
	uint64_t seed = hole ? 0 : h->lsn + 1, i;

	h->stable = LSN(epoch, ++h->lsn);
	CHECK_EQ(put(&h->f, comp, first, n, h->stable, seed), 0);
	for (i = first; i < first + n; i++)
		h->seeds[i] = seed;
}

static inline void history_work(struct history *h, struct lsom_comp *comp,
				unsigned writes)
{
	struct sim_env *sim = &h->f.sim;
	uint64_t first, n;
	unsigned i;

	for (i = 0; i < writes; i++) {
		n = 1 + sim_env_random(sim, i % 4 == 0 ? 20 : 2);
		first = sim_env_random(sim, LAST - n);
		history_put(h, comp, first, n, 1, i % 11 == 5);
		if (i == writes / 2)
			checkpoint_make(&h->f);
	}
}

static inline void entry_get(struct lsom_comp *comp, uint64_t block,
			     struct lsom__entry *e)
{
	struct lsom__page *page;

	page = lsom__page_find(comp, block / LSOM__PAGE_SLOTS);
	memset(e, 0, sizeof(*e));
	if (page != NULL)
		lsom__slots_get(&page->slots, block % LSOM__PAGE_SLOTS, e);
}

static inline void history_restore(struct history *h)
{
	struct sim_env *sim = &h->f.sim;

	memcpy(sim->disk.durable, h->image, BYTES);
	memcpy(sim->disk.now, h->image, BYTES);
	wb_store_load(&sim->store, (struct memkv *)h->store);
	sim->lost_bytes = 0;
}

static inline struct lsom_comp *reopen(struct history *h, bool rebuild)
{
	struct lsom_decided d = { .stable_lsn = h->stable };
	struct lsom_comp *comp;

	CHECK_EQ(disk_open(&h->f, rebuild), 0);
	comp = comp_of(&h->f, 1);
	CHECK(comp != NULL);
	lsom_decided(comp, &d);
	return comp;
}

/* The disk comes to rest before the power goes: what it may erase it has erased. */
static bool history_rests;

/* Write it, stop as told, and remember everything. */
static inline struct history *history_make(uint64_t seed, unsigned writes,
					   bool cut)
{
	struct history *h = calloc(1, sizeof(*h));
	struct fixture *f = &h->f;
	struct lsom_comp *comp;

	tiny_open(f, seed);
	h->cut = cut;
	CHECK_EQ(create(f, 1, BLOCKS), 0);
	CHECK_EQ(create(f, 2, 64), 0);
	comp = comp_of(f, 2);
	CHECK_EQ(put(f, comp, 0, 8, LSN(1, 1), 7), 0);
	CHECK_EQ(update(f, comp, LSOM_DELETE, (struct lsom_comp_meta){ 0 }), 0);
	lsom_comp_put(comp);
	comp = comp_of(f, 1);
	history_work(h, comp, writes);
	history_put(h, comp, LAST, 1, 1, false);
	lsom_comp_put(comp);
	if (history_rests)
		checkpoint_make(f);
	while (history_rests && sim_env_turn(&f->sim))
		;
	if (cut) {
		power_off(f);
	} else {
		/* Twice: so the generation of what was written is closed. */
		disk_close(f);
		CHECK_EQ(disk_open(f, false), 0);
		disk_close(f);
		sim_env_cut(&f->sim);
		sim_env_restore(&f->sim);
	}
	h->image = malloc(BYTES);
	memcpy(h->image, f->sim.disk.durable, BYTES);
	h->store = memkv_clone((struct memkv *)f->sim.store.flushed,
			       f->sim.store.merge);
	return h;
}

static inline void history_free(struct history *h)
{
	kv_close(h->store);
	free(h->image);
	lsom_close(h->f.lsom);
	sim_env_fini(&h->f.sim);
	free(h);
}

static inline bool block_used(const struct history *h, uint64_t place)
{
	const uint8_t *p = h->image + place * LSOM_BLOCK;

	return p[0] != 0 || memcmp(p, p + 1, LSOM_BLOCK - 1) != 0;
}

static inline void rot(struct history *h, uint64_t place, unsigned byte)
{
	struct sim_env *sim = &h->f.sim;
	uint64_t at = place * LSOM_BLOCK + byte;

	sim->disk.now[at] ^= 4;
	sim->disk.durable[at] ^= 4;
}

/* Did @block, as it should read, lie at @place before that rotted? */
static inline bool lay_at(const struct history *h, unsigned block,
			  uint64_t place)
{
	uint8_t want[LSOM_BLOCK];

	fill(want, block, h->seeds[block]);
	return memcmp(want, h->image + place * LSOM_BLOCK, LSOM_BLOCK) == 0;
}

/* The number of blocks lost.  @place: which rotted; 0: any may be lost. */
static inline unsigned history_check(struct history *h, struct lsom_comp *comp,
				     uint64_t place)
{
	unsigned i, lost = 0;
	int rv;

	for (i = 0; i < BLOCKS; i++) {
		rv = get(&h->f, comp, i, h->seeds[i]);
		if (rv == (h->seeds[i] != 0))
			continue;
		if (i == LAST && h->cut && rv == 0)
			continue; /* a torn tail looks the same */
		if ((rv == -EBADMSG || (rv == -EIO && place != 0)) &&
		    (place == 0 || lay_at(h, i, place))) {
			lost++;
			continue;
		}
		print_error("place %llu rotted: block %u, %s %d\n",
			    (unsigned long long)place, i,
			    h->seeds[i] ? "data:" : "zeros:", rv);
		fail();
	}
	return lost;
}

/* Where the header of the @nth last batch of the guest's head is. */
static inline uint64_t header_find(const struct history *h, unsigned nth)
{
	uint64_t place = LSOM__DATA_START / LSOM_BLOCK, places[8] = { 0 };
	const struct lsom__batch_header *b;
	uint64_t last = 0;

	for (; place < BYTES / LSOM_BLOCK; place++) {
		b = (const void *)(h->image + place * LSOM_BLOCK);
		if (b->magic != LSOM__BATCH_MAGIC ||
		    b->head != LSOM__HEAD_GUEST)
			continue;
		last = MAX(last, b->batch);
		places[b->batch % 8] = place;
	}
	place = places[(last - nth) % 8];
	b = (const void *)(h->image + place * LSOM_BLOCK);
	CHECK_EQ(b->batch, last - nth);
	return place;
}

static inline void header_rot(struct history *h, unsigned nth)
{
	rot(h, header_find(h, nth), 100);
}

#endif
