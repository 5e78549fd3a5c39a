/* group: the window against a plain model; range locks against one, too. */
#include "tests/lib/test.h"

#include "dom/dom_int.h"

#include <stdlib.h>

TEST(dom_group, window_model)
{
	static struct dom__group g;
	static uint8_t fate[20000]; /* 0 open, 1 committed, 2 aborted */
	uint64_t base = LSN(3, 0), stable = base, issued = base;

	srand(3);
	memset(fate, 0, sizeof(fate));
	dom__group_init(&g, 3, LSN(2, 9));
	CHECK_EQ(g.decided.stable_lsn, base);
	CHECK_EQ(g.decided.g_all, LSN(2, 9));
	while (issued - base < 19000) {
		CHECK_EQ(dom__group_room(&g), LSOM_WINDOW - (issued - stable));
		if (dom__group_room(&g) > 0 && rand() % 2) {
			CHECK_EQ(dom__group_issue(&g), ++issued);
		} else if (issued > stable) {
			uint64_t lsn = stable + 1 +
				       (uint64_t)rand() % (issued - stable);

			/* Now and then drain, so that the window moves far. */
			if (rand() % 4 == 0)
				lsn = stable + 1;
			if (fate[lsn - base] == 0) {
				bool commit = rand() % 3;

				fate[lsn - base] = commit ? 1 : 2;
				if (commit)
					dom__group_commit(&g, lsn);
				else
					dom__group_abort(&g, lsn);
			}
		}
		while (stable < issued && fate[stable + 1 - base] != 0)
			stable++;
		CHECK_EQ(g.decided.stable_lsn, stable);
		if (rand() % 16 == 0) {
			for (unsigned i = 0; i < LSOM_WINDOW; i++) {
				uint64_t lsn = stable + 1 + i;
				bool want =
					lsn <= issued && fate[lsn - base] == 1;

				CHECK_EQ(g.decided.committed[i / 8] >> (i % 8) &
						 1,
					 want);
			}
		}
	}
	dom__group_recorded(&g, stable);
	CHECK_EQ(g.decided.hole_floor, stable);
}

#define RANGES 200

static unsigned granted_count;

static void granted(struct dom__range *range)
{
	granted_count++;
}

static bool clash(const struct dom__range *a, const struct dom__range *b)
{
	return (a->exclusive || b->exclusive) && a->start < b->end &&
	       b->start < a->end;
}

/* Held iff nothing earlier in the queue conflicts, after every step. */
TEST(dom_range_lock, model)
{
	static struct dom__range r[RANGES];
	struct dom__range *order[RANGES];
	struct dom__locks locks;
	unsigned n = 0;
	bool in[RANGES] = { false };

	srand(5);
	dom__locks_init(&locks);
	for (unsigned step = 0; step < 20000; step++) {
		unsigned i = (unsigned)rand() % RANGES;

		if (!in[i] && n < 60) {
			r[i].start = (uint64_t)rand() % 100;
			r[i].end = r[i].start + 1 + (uint64_t)rand() % 10;
			r[i].exclusive = rand() % 2;
			r[i].cb = granted;
			dom__range_lock(&locks, &r[i]);
			in[i] = true;
			order[n++] = &r[i];
		} else if (in[i]) {
			unsigned k = 0;

			dom__range_unlock(&locks, &r[i]);
			in[i] = false;
			while (order[k] != &r[i])
				k++;
			n--;
			memmove(&order[k], &order[k + 1],
				(n - k) * sizeof(order[0]));
		}
		for (unsigned a = 0; a < n; a++) {
			bool want = true;

			for (unsigned b = 0; b < a; b++)
				want = want && !clash(order[b], order[a]);
			CHECK_EQ(order[a]->held, want);
		}
	}
	CHECK(granted_count > 100);
}
