/* Free pages as a map, and runs of neighbours, fresh and after long use. */
#include "base/page_map.h"
#include "base/sgl.h"
#include "base/util.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

struct fixture {
	struct arena *arena;
	struct page_cache *cache;
};

static struct fixture open_fixture(size_t bytes)
{
	struct fixture f;

	CHECK_EQ(arena_open(&(struct arena_config){ .bytes = bytes }, &f.arena),
		 0);
	CHECK_EQ(page_cache_open(f.arena, &f.cache), 0);
	return f;
}

static void close_fixture(struct fixture *f)
{
	page_cache_close(f->cache);
	arena_close(f->arena); /* asserts that every page came home */
}

/* ---- the map against one byte a page ---- */

enum { FLAT = 1000 }; /* not whole words, and fewer than a search looks at */

/* The lowest run of @n, or the first of the longest ones. */
static size_t flat_find(const bool *flat, size_t n, size_t *first)
{
	size_t best = 0, run = 0;

	for (size_t i = 0; i < FLAT && best < n; i++) {
		run = flat[i] ? run + 1 : 0;
		if (run > best) {
			best = run;
			*first = i + 1 - run;
		}
	}
	return best;
}

static void flat_check(struct page_map *map, const bool *flat)
{
	size_t count = 0, n = 1 + (size_t)rand() % 150, found;
	size_t first = 0, flat_first = 0;

	for (size_t i = 0; i < FLAT; i++)
		count += flat[i];
	CHECK_EQ(map->count, count);
	CHECK_EQ(page_map_find_all(map, n, &first),
		 flat_find(flat, n, &flat_first) == n);
	found = page_map_find(map, n, &first);
	CHECK_EQ(found, flat_find(flat, n, &flat_first));
	for (size_t i = 0; i < found; i++)
		CHECK(flat[first + i]);
	/* Inside a word any of the longest runs will do. */
	if (found == n && n > PAGE_MAP_WORD)
		CHECK_EQ(first, flat_first);
	if (found == n)
		CHECK_EQ(first / PAGE_MAP_WORD, flat_first / PAGE_MAP_WORD);
}

TEST(page_map, like_a_flat_array)
{
	static bool flat[FLAT];
	struct page_map map;
	size_t first;

	CHECK_EQ(page_map_open(&map, FLAT), 0);
	CHECK_EQ(page_map_find(&map, 3, &first), 0);
	srand(7);
	for (int round = 0; round < 20000; round++) {
		size_t i = (size_t)rand() % FLAT, n;

		/* Mostly free for a while, then mostly used. */
		n = 1 +
		    (size_t)rand() % (flat[i] == (round / 2000 % 2) ? 9 : 90);
		n = MIN(n, FLAT - i);
		if (flat[i]) {
			for (n = 1; i + n < FLAT && flat[i + n] && n < 40;)
				n++;
			page_map_take_run(&map, i, n);
			memset(flat + i, false, n);
		} else {
			for (; n > 0; n--, i++) {
				if (flat[i])
					continue;
				page_map_give(&map, i / PAGE_MAP_WORD,
					      1ull << i % PAGE_MAP_WORD);
				flat[i] = true;
			}
		}
		flat_check(&map, flat);
	}
	while (map.count > 0) {
		CHECK_EQ(flat_find(flat, 1, &first), 1);
		CHECK_EQ(page_map_take_lowest(&map), first);
		flat[first] = false;
	}
	page_map_close(&map);
}

/* One page free in each of many words, and whole words behind all of them. */
TEST(page_map, looks_behind_what_is_in_pieces)
{
	enum { WORDS = 20000, WHOLE = 19000 };
	struct page_map map;
	size_t first;

	CHECK_EQ(page_map_open(&map, (size_t)WORDS * PAGE_MAP_WORD), 0);
	for (size_t i = 0; i < WORDS; i++)
		page_map_give(&map, i, i < WHOLE ? 1 : UINT64_MAX);
	CHECK_EQ(page_map_find(&map, 1, &first), 1);
	CHECK_EQ(first, 0);
	CHECK_EQ(page_map_find(&map, 32, &first), 32);
	CHECK_EQ(first, (size_t)WHOLE * PAGE_MAP_WORD);
	CHECK_EQ(page_map_find(&map, 500, &first), 500);
	CHECK_EQ(first, (size_t)WHOLE * PAGE_MAP_WORD);
	page_map_close(&map);
}

/* ---- what is handed out ---- */

static unsigned runs_of(struct page *const *pages, size_t n)
{
	unsigned runs = 1;

	for (size_t i = 1; i < n; i++)
		if (pages[i]->data != pages[i - 1]->data + PAGE_BYTES)
			runs++;
	return runs;
}

/* What comes first is one run, also where it crosses words. */
TEST(page, neighbours_when_fresh)
{
	struct fixture f = open_fixture(64u << 20);
	static struct page *pages[700];
	struct iovec iov[8];
	struct sgl *sgl;

	CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, 3, pages), 0);
	CHECK_EQ(runs_of(pages, 3), 1);
	CHECK_EQ(sgl_new(f.cache, PAGE_FRONT, 32 * PAGE_BYTES, 0, &sgl), 0);
	CHECK_EQ(sgl_iov(sgl, 0, sgl->len_bytes, iov, 8, NULL), 1);
	CHECK_EQ(iov[0].iov_len, 32 * PAGE_BYTES);
	CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, 697, pages + 3), 0);
	CHECK_EQ(runs_of(pages + 3, 697), 1);
	sgl_put(sgl);
	for (int i = 0; i < 700; i++)
		page_put(f.cache, pages[i]);
	close_fixture(&f);
}

/* Requests of many sizes, as many at a time as @pages_max pages allow. */
struct churn {
	struct sgl *held[4096];
	unsigned held_count;
	size_t pages, pages_max;
	size_t single_percent;
};

static void churn_drop(struct churn *c)
{
	unsigned i = (unsigned)rand() % c->held_count;

	c->pages -= c->held[i]->pieces_count;
	sgl_put(c->held[i]);
	c->held[i] = c->held[--c->held_count];
}

static void churn_step(struct churn *c, struct page_cache *cache)
{
	size_t n = (size_t)rand() % 100 < c->single_percent
			   ? 1
			   : 1 + (size_t)rand() % 64;

	while (c->held_count > 0 && (c->pages + n > c->pages_max ||
				     c->held_count == ARRAY_LEN(c->held)))
		churn_drop(c);
	CHECK_EQ(sgl_new(cache, PAGE_FRONT, n * PAGE_BYTES, 0,
			 &c->held[c->held_count]),
		 0);
	c->held_count++;
	c->pages += n;
}

/* Of 1000 requests of 32 pages, one every few others: the share in 1 or 2. */
static unsigned churn_percent(struct churn *c, struct page_cache *cache)
{
	struct iovec iov[32];
	unsigned good = 0;
	struct sgl *sgl;

	for (int round = 0; round < 1000; round++) {
		for (int k = 0; k < 10; k++)
			churn_step(c, cache);
		CHECK_EQ(sgl_new(cache, PAGE_FRONT, 32 * PAGE_BYTES, 0, &sgl),
			 0);
		if (sgl_iov(sgl, 0, sgl->len_bytes, iov, 32, NULL) <= 2)
			good++;
		sgl_put(sgl);
	}
	return good / 10;
}

static void churn_end(struct churn *c)
{
	while (c->held_count > 0)
		churn_drop(c);
}

/* Half of the arena in use, freed in any order, for long. */
TEST(page, neighbours_after_long_use)
{
	static struct churn c;
	struct fixture f = open_fixture(32u << 20); /* 8192 pages */

	srand(11);
	for (size_t single = 0; single <= 90; single += 45) {
		unsigned percent;

		c.pages_max = 4096;
		c.single_percent = single;
		for (int i = 0; i < 100000; i++)
			churn_step(&c, f.cache);
		percent = churn_percent(&c, f.cache);
		print_message("# %zu %% single pages: %u %% in 1 or 2 runs\n",
			      single, percent);
		CHECK(percent >= 90);
	}
	churn_end(&c);
	close_fixture(&f);
}

/* Where no two free pages are neighbours each is got all the same. */
TEST(page, pieces_where_there_is_no_run)
{
	enum { FRONT = 616 }; /* of 1024: what other floors leave */
	static const size_t floor[] = { 102, 204, 102 };
	static struct page *all[FRONT], *half[FRONT / 2], *others[3][204];
	struct fixture f = open_fixture(4u << 20);

	for (int c = 0; c < 3; c++)
		CHECK_EQ(pages_alloc(f.cache, (enum page_class)c, floor[c],
				     others[c]),
			 0);
	for (size_t i = 0; i < FRONT; i++)
		CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, 1, &all[i]), 0);
	CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, 1, half), -EBUSY);
	for (size_t i = 0; i < FRONT; i++)
		if ((all[i]->data - all[0]->data) / PAGE_BYTES % 2 != 0) {
			page_put(f.cache, all[i]);
			all[i] = NULL;
		}
	CHECK_EQ(arena_used(f.arena, PAGE_FRONT), FRONT / 2);
	CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, FRONT / 2 + 1, half), -EBUSY);
	CHECK_EQ(arena_used(f.arena, PAGE_FRONT), FRONT / 2);
	CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, FRONT / 2, half), 0);
	CHECK_EQ(arena_used(f.arena, PAGE_FRONT), FRONT);
	for (size_t i = 0; i < FRONT / 2; i++)
		for (size_t k = 0; k < FRONT; k++)
			CHECK(half[i] != all[k]);
	for (size_t i = 0; i < FRONT; i++)
		if (all[i] != NULL)
			page_put(f.cache, all[i]);
	pages_put(f.cache, half, FRONT / 2);
	for (int c = 0; c < 3; c++)
		pages_put(f.cache, others[c], floor[c]);
	close_fixture(&f);
}

/* A page that somebody else holds stays, and is not given out meanwhile. */
TEST(page, shared_ones_stay)
{
	struct fixture f = open_fixture(4u << 20);
	struct page *pages[8], *held[2];
	struct sgl *sgl, *part;

	CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, 8, pages), 0);
	held[0] = page_get(pages[2]);
	held[1] = page_get(pages[7]);
	pages_put(f.cache, pages, 8);
	CHECK_EQ(arena_used(f.arena, PAGE_FRONT), 2);
	CHECK_EQ(pages_alloc(f.cache, PAGE_RMW, 8, pages), 0);
	for (int i = 0; i < 8; i++)
		CHECK(pages[i] != held[0] && pages[i] != held[1]);
	pages_put(f.cache, pages, 8);
	pages_put(f.cache, held, 2);
	CHECK_EQ(arena_used(f.arena, PAGE_RMW), 0);
	CHECK_EQ(sgl_new(f.cache, PAGE_LOG, 100 * PAGE_BYTES, 0, &sgl), 0);
	part = sgl_slice(sgl, 70 * PAGE_BYTES, 10 * PAGE_BYTES);
	sgl_put(sgl);
	CHECK_EQ(arena_used(f.arena, PAGE_LOG), 10);
	sgl_put(part);
	part = sgl_repeat(f.cache, page_zero(), 10 * PAGE_BYTES, 0);
	sgl_put(part);
	CHECK_EQ(arena_used(f.arena, PAGE_LOG), 0);
	close_fixture(&f);
}

/* How many pages were touched when @sgl's were, at least. */
static size_t touched_by(const struct fixture *f, const struct sgl *sgl)
{
	uint8_t *high = NULL;
	void *base;

	arena_region(f->arena, &base);
	for (unsigned i = 0; i < sgl->pieces_count; i++)
		high = MAX(high, sgl->pieces[i].page->data);
	return (size_t)(high - (uint8_t *)base) / PAGE_BYTES + 1;
}

/* Memory that was never touched is not touched while there is other. */
TEST(page, little_use_touches_little)
{
	static struct churn c = { .pages_max = 300, .single_percent = 60 };
	struct fixture f = open_fixture(64u << 20);
	size_t touched = 0;

	srand(13);
	for (int i = 0; i < 100000; i++) {
		churn_step(&c, f.cache);
		touched =
			MAX(touched, touched_by(&f, c.held[c.held_count - 1]));
	}
	print_message("# 300 pages in use: %zu touched\n", touched);
	CHECK(touched <= 2 * 300 + 2 * PAGE_MAP_WORD);
	churn_end(&c);
	close_fixture(&f);
}

/* Nor is it for a run's sake, where much lies free in pieces. */
TEST(page, pieces_before_fresh_memory)
{
	enum { ROUNDS_MAX = 300 };
	struct fixture f = open_fixture(64u << 20);
	struct page *held[ROUNDS_MAX];
	size_t touched = 0;
	struct sgl *sgl;

	for (unsigned i = 0; i < ROUNDS_MAX; i++) {
		CHECK_EQ(sgl_new(f.cache, PAGE_FRONT, 64 * PAGE_BYTES, 0, &sgl),
			 0);
		touched = MAX(touched, touched_by(&f, sgl));
		held[i] = page_get(sgl->pieces[i * 7 % 64].page);
		sgl_put(sgl);
	}
	print_message("# 300 pages scattered: %zu touched\n", touched);
	CHECK(touched <= 2 * (ROUNDS_MAX + 64) + 2 * PAGE_MAP_WORD);
	pages_put(f.cache, held, ROUNDS_MAX);
	close_fixture(&f);
}

/* ---- several caches ---- */

/* What one gave back comes before memory that nobody had. */
TEST(page, used_memory_first)
{
	enum { MANY = 2000, FEW = 600 };
	static struct page *pages[MANY];
	struct fixture f = open_fixture(64u << 20);
	struct page_cache *other;
	uint8_t *high = NULL;

	CHECK_EQ(page_cache_open(f.arena, &other), 0);
	CHECK_EQ(pages_alloc(other, PAGE_FRONT, MANY, pages), 0);
	for (int i = 0; i < MANY; i++)
		high = MAX(high, pages[i]->data);
	pages_put(other, pages, MANY);
	for (int i = 0; i < FEW; i++) {
		CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, 1, &pages[i]), 0);
		CHECK(pages[i]->data <= high);
	}
	pages_put(f.cache, pages, FEW);
	CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, FEW + 200, pages), 0);
	for (int i = 0; i < FEW + 200; i++)
		CHECK(pages[i]->data <= high);
	pages_put(f.cache, pages, FEW + 200);
	page_cache_close(other);
	close_fixture(&f);
}

/* What one takes and another frees lies together again in the end. */
TEST(page, neighbours_of_two_caches)
{
	static struct churn c = { .pages_max = 4096, .single_percent = 30 };
	struct fixture f = open_fixture(32u << 20);
	struct page_cache *other;
	unsigned percent;

	CHECK_EQ(page_cache_open(f.arena, &other), 0);
	srand(17);
	for (int i = 0; i < 100000; i++) {
		churn_step(&c, rand() % 2 == 0 ? f.cache : other);
		/* It goes home where it is put, not where it was taken. */
		c.held[c.held_count - 1]->home =
			rand() % 8 == 0 ? other : f.cache;
	}
	percent = churn_percent(&c, f.cache);
	print_message("# two caches: %u %% in 1 or 2 runs\n", percent);
	CHECK(percent >= 90);
	churn_end(&c);
	page_cache_close(other);
	close_fixture(&f);
}

/* ---- what a class may have ---- */

struct counted_waiter {
	struct page_waiter waiter;
	unsigned count;
	struct page_cache *takes; /* what it waited for, from there; or NULL */
	struct page *pages[4];
};

static void waiter_count(struct page_waiter *waiter)
{
	struct counted_waiter *w =
		container_of(waiter, struct counted_waiter, waiter);

	w->count++;
	if (w->takes != NULL)
		CHECK_EQ(pages_alloc(w->takes, waiter->class, waiter->n,
				     w->pages),
			 0);
}

/* More than a class may ever have is refused for good, up to that it is not. */
TEST(page, the_most_of_a_class)
{
	struct arena_config config = { .bytes = 4u << 20,
				       .floor_percent = { 25, 25, 25, 25 } };
	struct fixture usual = open_fixture(4u << 20), f;
	struct page *pages[1024];

	/* 1024 but for the floors of the others: 102, 204, 102 */
	CHECK_EQ(pages_alloc(usual.cache, PAGE_FRONT, 616, pages), 0);
	pages_put(usual.cache, pages, 616);
	CHECK_EQ(pages_alloc(usual.cache, PAGE_FRONT, 617, pages), -EINVAL);
	close_fixture(&usual);

	CHECK_EQ(arena_open(&config, &f.arena), 0);
	CHECK_EQ(page_cache_open(f.arena, &f.cache), 0);
	CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, 256, pages), 0);
	pages_put(f.cache, pages, 256);
	CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, 257, pages), -EINVAL);
	close_fixture(&f);
}

/* What a class needs yet is free, and stays so: at its floor others end. */
TEST(page, a_floor_is_nobody_elses)
{
	/* 512 in all; floors of 51, 102, 51, 102 */
	static const size_t floor[PAGE_CLASSES] = { 51, 102, 51, 102 };
	struct fixture f = open_fixture(2u << 20);
	struct page *most[308], *own[102], *more;

	for (int c = 0; c < PAGE_CLASSES; c++) {
		int big = c == PAGE_REPLICA_IN ? PAGE_FRONT : PAGE_REPLICA_IN;

		CHECK_EQ(pages_alloc(f.cache, big, 308, most), 0);
		CHECK_EQ(pages_alloc(f.cache, big, 1, &more), -EBUSY);
		CHECK_EQ(pages_alloc(f.cache, c, floor[c], own), 0);
		CHECK_EQ(pages_alloc(f.cache, c, 1, &more), -EBUSY);
		CHECK_EQ(arena_used(f.arena, c), floor[c]);
		pages_put(f.cache, own, floor[c]);
		pages_put(f.cache, most, 308);
	}
	close_fixture(&f);
}

/* Neither what others need yet is left, nor what is promised. */
TEST(page, what_is_left)
{
	/* 512 in all; floors of 51, 102, 51, 102 */
	struct fixture f = open_fixture(2u << 20);
	struct page *front[100], *rmw[61];

	CHECK_EQ(pages_left(f.cache, PAGE_FRONT, 0), 308);
	CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, 100, front), 0);
	CHECK_EQ(pages_left(f.cache, PAGE_FRONT, 0), 208);
	CHECK_EQ(pages_left(f.cache, PAGE_FRONT, 100), 208);
	CHECK_EQ(pages_left(f.cache, PAGE_FRONT, 150), 158);
	CHECK_EQ(pages_left(f.cache, PAGE_FRONT, 309), 0);
	CHECK_EQ(pages_alloc(f.cache, PAGE_RMW, 51, rmw), 0);
	CHECK_EQ(pages_left(f.cache, PAGE_FRONT, 0), 208);
	CHECK_EQ(pages_alloc(f.cache, PAGE_RMW, 10, rmw + 51), 0);
	CHECK_EQ(pages_left(f.cache, PAGE_FRONT, 0), 198);
	pages_put(f.cache, front, 100);
	pages_put(f.cache, rmw, 61);
	close_fixture(&f);
}

/* Who waits for a few more than its class can have goes on once it has all. */
TEST(page, waits_for_no_more_than_there_is)
{
	struct fixture f = open_fixture(4u << 20);
	struct counted_waiter w = { .waiter.cb = waiter_count };
	struct page *page;

	CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, 1, &page), 0);
	page_wait(f.cache, PAGE_FRONT, 617, &w.waiter);
	page_cache_turn(f.cache);
	CHECK_EQ(w.count, 0);
	page_put(f.cache, page);
	page_cache_turn(f.cache);
	CHECK_EQ(w.count, 1);
	page_wait_stop(f.cache, &w.waiter);
	page_cache_turn(f.cache);
	close_fixture(&f);
}

/* Within a class the first to wait is the first to go on. */
TEST(page, waiters_keep_their_order)
{
	struct fixture f = open_fixture(2u << 20);
	struct counted_waiter first = { .waiter.cb = waiter_count };
	struct counted_waiter second = { .waiter.cb = waiter_count };
	struct page *pages[308];

	CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, 308, pages), 0);
	page_wait(f.cache, PAGE_FRONT, 2, &first.waiter);
	page_wait(f.cache, PAGE_FRONT, 2, &second.waiter);
	page_put(f.cache, pages[0]);
	page_cache_turn(f.cache);
	CHECK_EQ(first.count + second.count, 0);
	page_put(f.cache, pages[1]);
	first.takes = f.cache;
	page_cache_turn(f.cache);
	CHECK_EQ(first.count, 1);
	CHECK_EQ(second.count, 0);
	pages_put(f.cache, first.pages, 2);
	page_cache_turn(f.cache);
	CHECK_EQ(second.count, 1);
	pages_put(f.cache, pages + 2, 306);
	close_fixture(&f);
}

/*
 * Who wants more than there is does not hold up those that have enough, but for
 * when as much as it wants went past it.
 */
TEST(page, waiters_pass_one_that_wants_too_much)
{
	struct fixture f = open_fixture(2u << 20);
	struct counted_waiter large = { .waiter.cb = waiter_count };
	struct counted_waiter small[4];
	struct page *pages[308];

	CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, 308, pages), 0);
	page_wait(f.cache, PAGE_FRONT, 3, &large.waiter);
	for (unsigned i = 0; i < 4; i++) {
		small[i] = (struct counted_waiter){
			.waiter.cb = waiter_count,
			.takes = f.cache,
		};
		page_wait(f.cache, PAGE_FRONT, 1, &small[i].waiter);
	}
	for (unsigned i = 0; i < 4; i++) {
		page_put(f.cache, pages[i]);
		page_cache_turn(f.cache);
		CHECK_EQ(small[i].count, i < 3 ? 1 : 0);
	}
	CHECK_EQ(large.count, 0);
	for (unsigned i = 0; i < 2; i++)
		page_put(f.cache, small[i].pages[0]);
	page_cache_turn(f.cache);
	CHECK_EQ(large.count, 1);
	CHECK_EQ(small[3].count, 1);
	page_put(f.cache, small[2].pages[0]);
	page_put(f.cache, small[3].pages[0]);
	pages_put(f.cache, pages + 4, 304);
	close_fixture(&f);
}

/* Asks for more than there is, again and again. */
struct greedy {
	struct page_cache *cache;
	atomic_bool asks, stop;
	bool got;
};

static void *greedy_run(void *arg)
{
	struct page *pages[200];
	struct greedy *g = arg;

	while (!atomic_load(&g->stop)) {
		if (pages_alloc(g->cache, PAGE_FRONT, 200, pages) != -EBUSY)
			g->got = true;
		atomic_store(&g->asks, true);
	}
	return NULL;
}

/* Who asks for what cannot be takes no room of others, not for a moment. */
TEST(page, what_cannot_be_is_in_nobodys_way)
{
	struct fixture f = open_fixture(4u << 20);
	struct greedy g = { 0 };
	struct page *held[500], *page;
	unsigned refused = 0;
	pthread_t thread;

	CHECK_EQ(page_cache_open(f.arena, &g.cache), 0);
	/* Of 616: more than the class's floor, and not 200 less than all. */
	CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, 500, held), 0);
	CHECK_EQ(pthread_create(&thread, NULL, greedy_run, &g), 0);
	while (!atomic_load(&g.asks))
		sched_yield();
	for (unsigned i = 0; i < 1000000; i++) {
		if (pages_alloc(f.cache, PAGE_FRONT, 1, &page) == 0)
			page_put(f.cache, page);
		else
			refused++;
	}
	atomic_store(&g.stop, true);
	pthread_join(thread, NULL);
	CHECK_EQ(refused, 0);
	CHECK(!g.got);
	pages_put(f.cache, held, 500);
	page_cache_close(g.cache);
	close_fixture(&f);
}

/* ---- two shards, one of which is short ---- */

static void count_one(void *arg)
{
	++*(unsigned *)arg;
}

/*
 * A page that one class gives and another takes at once is free nowhere, but
 * the first may have one more: who waits for that on another shard is woken.
 */
TEST(page, room_without_a_page_is_told)
{
	struct fixture f = open_fixture(2u << 20);
	struct counted_waiter w = { .waiter.cb = waiter_count };
	struct page *front[308], *log; /* all that the class may have */
	struct page_cache *other;
	size_t n = ARRAY_LEN(front);
	unsigned wakes = 0;

	CHECK_EQ(page_cache_open(f.arena, &other), 0);
	page_cache_wake_set(other, count_one, &wakes);
	CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, n, front), 0);
	page_wait(other, PAGE_FRONT, 1, &w.waiter);
	page_cache_turn(f.cache);
	page_cache_turn(other);
	CHECK_EQ(w.count, 0);
	wakes = 0;
	page_cache_turn(f.cache);
	CHECK_EQ(wakes, 0); /* nothing has changed */

	page_put(f.cache, front[--n]);
	CHECK_EQ(pages_alloc(f.cache, PAGE_LOG, 1, &log), 0);
	page_cache_turn(f.cache);
	CHECK_EQ(wakes, 1);
	page_cache_turn(other);
	CHECK_EQ(w.count, 1);

	page_put(f.cache, log);
	pages_put(f.cache, front, n);
	page_cache_close(other);
	close_fixture(&f);
}

/*
 * Who is refused because the free pages lie with an idle shard, and tries again
 * without a waiter, finds them: a class has its floor.
 */
TEST(page, an_idle_shard_is_asked)
{
	static const size_t share[PAGE_CLASSES] = { 51, 308, 51, 102 };
	struct fixture f = open_fixture(2u << 20);
	struct page *all[512], *log[51];
	struct page_cache *idle;
	unsigned wakes = 0;
	size_t n = 0;

	CHECK_EQ(page_cache_open(f.arena, &idle), 0);
	page_cache_wake_set(idle, count_one, &wakes);
	for (int c = PAGE_CLASSES; c-- > 0; n += share[c])
		CHECK_EQ(pages_alloc(idle, c, share[c], all + n), 0);
	CHECK_EQ(n, 512);
	pages_put(idle, all + n - 51, 51);

	CHECK_EQ(pages_alloc(f.cache, PAGE_LOG, 51, log), -EBUSY);
	CHECK_EQ(wakes, 1);
	CHECK_EQ(pages_alloc(f.cache, PAGE_LOG, 51, log), -EBUSY);
	CHECK_EQ(wakes, 1); /* it was asked */
	page_cache_turn(idle);
	CHECK_EQ(pages_alloc(f.cache, PAGE_LOG, 51, log), 0);

	pages_put(f.cache, log, 51);
	pages_put(f.cache, all, n - 51);
	page_cache_close(idle);
	close_fixture(&f);
}

/* Those that are free lie with @cache; @other may have them now. */
static void free_ones_to(struct page_cache *cache, struct page_cache *other)
{
	struct page *log[51];

	if (pages_alloc(cache, PAGE_LOG, 51, log) < 0) {
		page_cache_turn(other); /* it was asked */
		CHECK_EQ(pages_alloc(cache, PAGE_LOG, 51, log), 0);
	}
	pages_put(cache, log, 51);
}

/* Did the pages stay where they are when @cache had its turn? */
static bool keeps_them(struct page_cache *cache, struct page_cache *other)
{
	struct page *log[51];
	int rv;

	page_cache_turn(cache); /* what was asked before */
	free_ones_to(cache, other);
	page_cache_turn(cache);
	rv = pages_alloc(other, PAGE_LOG, 51, log);
	if (rv == 0)
		pages_put(other, log, 51);
	else
		CHECK_EQ(rv, -EBUSY);
	return rv != 0;
}

/*
 * A shard keeps its free pages where nobody else waits: at each turn they would
 * go through the arena's lock otherwise, and back.
 */
TEST(page, they_stay_where_nobody_waits)
{
	struct fixture f = open_fixture(2u << 20);
	struct counted_waiter w = { .waiter.cb = waiter_count };
	struct page_cache *other, *third;
	struct page *taken[512 - 51]; /* all but the log's */

	CHECK_EQ(page_cache_open(f.arena, &other), 0);
	CHECK_EQ(pages_alloc(f.cache, PAGE_REPLICA_IN, 308, taken), 0);
	CHECK_EQ(pages_alloc(f.cache, PAGE_RMW, 51, taken + 308), 0);
	CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, 102, taken + 359), 0);
	CHECK(keeps_them(f.cache, other));

	page_wait(other, PAGE_FRONT, 1, &w.waiter);
	CHECK(!keeps_them(f.cache, other));
	page_wait_stop(other, &w.waiter);
	page_cache_turn(other);
	CHECK(keeps_them(f.cache, other));

	CHECK_EQ(page_cache_open(f.arena, &third), 0);
	page_wait(third, PAGE_FRONT, 1, &w.waiter);
	page_wait_stop(third, &w.waiter);
	page_cache_close(third);
	CHECK(keeps_them(f.cache, other));

	page_wait(f.cache, PAGE_FRONT, 1, &w.waiter);
	CHECK(keeps_them(f.cache, other));
	page_wait_stop(f.cache, &w.waiter);
	CHECK_EQ(w.count, 0);

	pages_put(f.cache, taken, ARRAY_LEN(taken));
	page_cache_close(other);
	close_fixture(&f);
}

struct taking_waiter {
	struct page_waiter waiter;
	struct page_cache *cache;
	struct page *page;
	int status;
};

static void waiter_take(struct page_waiter *waiter)
{
	struct taking_waiter *t =
		container_of(waiter, struct taking_waiter, waiter);

	t->status = pages_alloc(t->cache, PAGE_FRONT, 1, &t->page);
}

/*
 * What a shard frees is where the one that waits looks when it is woken; who does
 * not wait is not.
 */
TEST(page, the_woken_one_finds_it)
{
	struct fixture f = open_fixture(2u << 20);
	struct taking_waiter t = { .waiter.cb = waiter_take, .status = 1 };
	static struct page *front[308], *rest[204];
	struct page_cache *idle;
	unsigned wakes = 0, idle_wakes = 0;

	CHECK_EQ(page_cache_open(f.arena, &t.cache), 0);
	CHECK_EQ(page_cache_open(f.arena, &idle), 0);
	CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, 308, front), 0);
	CHECK_EQ(pages_alloc(f.cache, PAGE_LOG, 51, rest), 0);
	CHECK_EQ(pages_alloc(f.cache, PAGE_RMW, 51, rest + 51), 0);
	CHECK_EQ(pages_alloc(f.cache, PAGE_REPLICA_IN, 102, rest + 102), 0);
	page_wait(t.cache, PAGE_FRONT, 1, &t.waiter);
	page_cache_turn(t.cache);
	page_cache_turn(idle);
	page_cache_turn(f.cache);
	page_cache_wake_set(t.cache, count_one, &wakes);
	page_cache_wake_set(idle, count_one, &idle_wakes);

	page_put(f.cache, front[307]);
	page_cache_turn(f.cache);
	CHECK_EQ(wakes, 1);
	CHECK_EQ(idle_wakes, 0);
	page_cache_turn(t.cache);
	CHECK_EQ(t.status, 0);

	page_put(t.cache, t.page);
	pages_put(f.cache, front, 307);
	pages_put(f.cache, rest, 204);
	page_cache_close(idle);
	page_cache_close(t.cache);
	close_fixture(&f);
}

/* Two shards ask for what both may have, and not both at once. */
enum { RIVALS = 2, TURNS = 5000, HALF = 155 }; /* of 308 */

struct rival {
	struct page_cache *cache;
	atomic_uint *holders, *ready;
	unsigned had;
	bool both;
};

static void *rival_run(void *arg)
{
	struct rival *r = arg;
	struct page *pages[HALF];

	/* Until the other has its turns, too. */
	while (atomic_load(r->ready) < RIVALS) {
		page_cache_turn(r->cache);
		if (pages_alloc(r->cache, PAGE_FRONT, HALF, pages) < 0)
			continue;
		r->both |= atomic_fetch_add(r->holders, 1) > 0;
		for (unsigned i = 0; i < 200; i++)
			cpu_relax();
		if (++r->had == TURNS)
			atomic_fetch_add(r->ready, 1);
		atomic_fetch_sub(r->holders, 1);
		pages_put(r->cache, pages, HALF);
	}
	return NULL;
}

/* However their looks at the books meet, one has it, or none. */
TEST(page, never_more_than_there_is)
{
	struct fixture f = open_fixture(2u << 20);
	struct rival r[RIVALS] = { { .cache = f.cache } };
	atomic_uint holders = 0, ready = 0;
	pthread_t threads[RIVALS];

	CHECK_EQ(page_cache_open(f.arena, &r[1].cache), 0);
	for (unsigned i = 0; i < RIVALS; i++) {
		r[i].holders = &holders;
		r[i].ready = &ready;
		CHECK_EQ(pthread_create(&threads[i], NULL, rival_run, &r[i]),
			 0);
	}
	for (unsigned i = 0; i < RIVALS; i++)
		pthread_join(threads[i], NULL);
	CHECK(!r[0].both && !r[1].both);
	CHECK_EQ(arena_used(f.arena, PAGE_FRONT), 0);
	page_cache_close(r[1].cache);
	close_fixture(&f);
}

/* Threads that take and give at once, each from a cache of its own. */
enum { THREADS = 3, ROUNDS = 20000, SLOTS = 64 };

struct mill {
	struct arena *arena;
	pthread_mutex_t lock;
	/* What one leaves another takes and puts; under lock. */
	struct page *left[SLOTS];
	unsigned left_count;
};

struct miller {
	struct mill *mill;
	struct page_cache *cache;
	struct page_waiter waiter;
	unsigned seed;
	bool woken;
};

static void miller_woken(struct page_waiter *waiter)
{
	container_of(waiter, struct miller, waiter)->woken = true;
}

/* All of @pages are mine alone: nobody else writes them meanwhile. */
static void miller_use(struct miller *m, struct page **pages, size_t n)
{
	for (size_t i = 0; i < n; i++)
		memset(pages[i]->data, (int)m->seed, 16);
	for (size_t i = 0; i < n; i++)
		CHECK_EQ(pages[i]->data[7], (uint8_t)m->seed);
}

static void miller_swap(struct miller *m, struct page *page)
{
	struct mill *mill = m->mill;
	struct page *other = NULL;

	pthread_mutex_lock(&mill->lock);
	if (mill->left_count == SLOTS)
		other = mill->left[m->seed % SLOTS];
	else
		mill->left_count++;
	mill->left[other != NULL ? m->seed % SLOTS : mill->left_count - 1] =
		page;
	pthread_mutex_unlock(&mill->lock);
	if (other != NULL)
		page_put(m->cache, other);
}

static void *miller_run(void *arg)
{
	struct miller *m = arg;
	struct page *pages[64];

	for (int round = 0; round < ROUNDS; round++) {
		size_t n = 1 + (size_t)rand_r(&m->seed) % 64;
		int rv = pages_alloc(m->cache, PAGE_FRONT, n, pages);

		if (rv == 0) {
			miller_use(m, pages, n);
			miller_swap(m, pages[--n]);
			pages_put(m->cache, pages, n);
		} else {
			CHECK_EQ(rv, -EBUSY);
			m->woken = false;
			page_wait(m->cache, PAGE_FRONT, n, &m->waiter);
			page_cache_turn(m->cache);
			while (!m->woken) {
				sched_yield();
				page_cache_turn(m->cache);
			}
		}
		page_cache_turn(m->cache);
	}
	return NULL;
}

TEST(page, threads)
{
	struct fixture f = open_fixture(2u << 20); /* 307 for the front end */
	static struct mill mill;
	struct miller m[THREADS];
	pthread_t threads[THREADS];

	mill.arena = f.arena;
	pthread_mutex_init(&mill.lock, NULL);
	for (unsigned i = 0; i < THREADS; i++) {
		m[i] = (struct miller){ .mill = &mill, .seed = i + 1 };
		m[i].waiter.cb = miller_woken;
		CHECK_EQ(page_cache_open(f.arena, &m[i].cache), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, miller_run, &m[i]),
			 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (unsigned i = 0; i < mill.left_count; i++)
		page_put(f.cache, mill.left[i]);
	for (unsigned i = 0; i < THREADS; i++)
		page_cache_close(m[i].cache);
	pthread_mutex_destroy(&mill.lock);
	close_fixture(&f);
}
