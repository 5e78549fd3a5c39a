/*
 * What the headers tell when the index is lost after a power cut, and where nothing
 * else does: an erased one, what the checkpoint covered that freed its segment; one
 * that cannot be read, that nobody knows what has been used again.
 */
#include "tests/unit/lsom_history.h"

static uint64_t segment_place(uint64_t segment)
{
	return (LSOM__DATA_START + segment * SEGMENT) / LSOM_BLOCK;
}

static const struct lsom__segment_header *segment_at(const struct history *h,
						     uint64_t segment)
{
	return (const void *)(h->image + segment_place(segment) * LSOM_BLOCK);
}

/* The header of batch @number of @head; 0: it is not there. */
static uint64_t batch_find(const struct history *h, unsigned head,
			   uint64_t number)
{
	uint64_t place = LSOM__DATA_START / LSOM_BLOCK;
	const struct lsom__batch_header *b;

	for (; place < BYTES / LSOM_BLOCK; place++) {
		b = (const void *)(h->image + place * LSOM_BLOCK);
		if (b->magic == LSOM__BATCH_MAGIC && b->batch == number &&
		    b->head == head)
			return place;
	}
	return 0;
}

/* ---- what a checkpoint covered ---- */

/* A history, the disk at rest behind it, when the power goes. */
struct rest {
	struct history *h;
	uint64_t last[LSOM__HEADS]; /* batches; 0: it is not covered */
	uint64_t flushed; /* checkpoint */
};

static void rest_make(struct rest *r, uint64_t seed)
{
	struct history *h = calloc(1, sizeof(*h));
	struct lsom_disk *disk;
	struct lsom_comp *comp;

	r->h = h;
	tiny_open(&h->f, seed);
	CHECK_EQ(create(&h->f, 1, BLOCKS), 0);
	comp = comp_of(&h->f, 1);
	history_work(h, comp, 1200);
	lsom_comp_put(comp);
	checkpoint_make(&h->f);
	while (sim_env_turn(&h->f.sim))
		;
	disk = h->f.disk;
	for (unsigned i = 0; i < LSOM__HEADS; i++) {
		r->last[i] = disk->heads[i].batch_next - 1;
		if (disk->flushed_covered[i] < r->last[i])
			r->last[i] = 0;
	}
	r->flushed = disk->flushed_number;
	power_off(&h->f);
	h->image = malloc(BYTES);
	memcpy(h->image, h->f.sim.disk.durable, BYTES);
	h->store = memkv_clone((struct memkv *)h->f.sim.store.flushed,
			       h->f.sim.store.merge);
}

/* Was anything erased since the last checkpoint, and nothing taken? */
static bool erased_last(const struct rest *r)
{
	const struct lsom__segment_header *s;
	unsigned erased = 0, taken = 0;

	for (uint64_t i = 0; i < SEGMENTS; i++) {
		s = segment_at(r->h, i);
		if (s->magic != LSOM__SEGMENT_MAGIC ||
		    s->index_number != r->flushed)
			continue;
		if (s->head == LSOM__HEAD_NONE)
			erased++;
		else
			taken++;
	}
	return erased > 0 && taken == 0;
}

/* Its header rots: it is no torn tail, so it is missed. */
static void last_missed(struct history *h, uint64_t place)
{
	struct lsom_comp *comp;

	history_restore(h);
	rot(h, place, 100);
	comp = reopen(h, true);
	CHECK(lsom_comp_meta(comp)->damaged != 0);
	CHECK(h->f.disk->damage[0] != '\0');
	(void)history_check(h, comp, 0);
	lsom_comp_put(comp);
	power_off(&h->f);
}

TEST(erased, tells_what_was_covered)
{
	unsigned seen[LSOM__HEADS] = { 0 };
	struct rest r;
	uint64_t place;

	for (uint64_t seed = 1; seed < 60; seed++) {
		rest_make(&r, seed);
		for (unsigned i = 0; i < LSOM__HEADS && erased_last(&r); i++) {
			place = r.last[i] == 0 ? 0
					       : batch_find(r.h, i, r.last[i]);
			if (place == 0)
				continue;
			last_missed(r.h, place);
			seen[i]++;
		}
		history_free(r.h);
		if (seen[LSOM__HEAD_GUEST] > 1 && seen[LSOM__HEAD_CLEANER] > 1)
			break;
	}
	CHECK(seen[LSOM__HEAD_GUEST] > 1);
	CHECK(seen[LSOM__HEAD_CLEANER] > 1);
}

/* ---- what was used again ---- */

/*
 * The segments that were taken or erased last, of which one is a guest's and none
 * the cleaner's: without them the log looks as before.  How many; 0: it is not so.
 */
static unsigned taken_last(const struct history *h, uint64_t *out)
{
	const struct lsom__segment_header *s;
	unsigned n = 0, guests = 0, cleaners = 0;
	uint64_t last = 0, i;

	for (i = 0; i < SEGMENTS; i++)
		if (segment_at(h, i)->magic == LSOM__SEGMENT_MAGIC)
			last = MAX(last, segment_at(h, i)->index_number);
	for (i = 0; i < SEGMENTS; i++) {
		s = segment_at(h, i);
		if (s->magic != LSOM__SEGMENT_MAGIC || s->index_number != last)
			continue;
		guests += s->head == LSOM__HEAD_GUEST;
		cleaners += s->head == LSOM__HEAD_CLEANER;
		out[n++] = i;
	}
	return guests > 0 && cleaners == 0 ? n : 0;
}

TEST(erased, a_lost_header_may_have_told)
{
	uint64_t segments[SEGMENTS];
	struct lsom_comp *comp;
	struct history *h;
	unsigned n, seen = 0;

	for (uint64_t seed = 1; seed < 60 && seen < 5; seed++) {
		h = history_make(seed, 1200 + (unsigned)seed * 7, true);
		n = taken_last(h, segments);
		if (n > 0) {
			seen++;
			history_restore(h);
			while (n-- > 0)
				rot(h, segment_place(segments[n]), 100);
			comp = reopen(h, true);
			CHECK_EQ(history_check(h, comp, 0), 0);
			lsom_comp_put(comp);
			power_off(&h->f);
		}
		history_free(h);
	}
	CHECK(seen > 0);
}
