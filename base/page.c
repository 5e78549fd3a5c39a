/*
 * page: the arena, its classes, and a cache of free pages per shard.
 *
 * Two books are kept apart.  Which class may have how many pages is counted in
 * the arena, atomically, per allocation of any size.  Where free pages lie is
 * the caches' business: each has a map of its own (page_map.h), refilled from
 * and drained to the arena's map under a mutex, words of 64 neighbours at a
 * time.
 *
 * Several pages are taken as one run of neighbours, or as few as there are.
 * What is freed alone lies in a short stack before the map, and is taken alone
 * from there: single pages, the most of all, cost a push and a pop, stay warm,
 * and keep out of the runs.
 */
#include "base/page.h"

#include "base/page_map.h"
#include "base/util.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define REFILL 64u
#define CACHE_MAX (16 * REFILL) /* free pages, then half of them go */
#define SINGLES_MAX 128u
#define SINGLES_FILL 32u
/* Runs this short are not worth a search each. */
#define RUN_SHORT 4u
#define ALIGN_BYTES (2u << 20)

struct arena {
	uint8_t *base;
	size_t bytes, count;
	bool locked;
	struct page *pages; /* one per page of memory, in order */
	size_t floor[PAGE_CLASSES];
	size_t most[PAGE_CLASSES]; /* all but the floors of the others */

	atomic_size_t used[PAGE_CLASSES];

	pthread_mutex_t lock;
	struct page_map free; /* under lock */
	/* Changed under lock, and looked at without it. */
	atomic_size_t untouched; /* words from here on were never given out */
	atomic_size_t whole; /* whole words in free */
	TAILQ_HEAD(, page_cache) caches; /* under lock */
	atomic_uint waiting; /* caches with waiters */
};

TAILQ_HEAD(waiters, page_waiter);

struct page_cache {
	struct arena *arena;
	struct page_map free;
	struct page *singles[SINGLES_MAX]; /* freed, too: the last one on top */
	size_t singles_count;
	size_t given; /* pages to the map since all of it was the arena's */
	bool freed; /* since others were told: a class may have more */
	struct waiters waiters[PAGE_CLASSES]; /* one waits for its own only */
	atomic_bool waiting; /* has waiters; counted in the arena */
	atomic_bool asked; /* another lacks pages: until the next turn */
	void (*wake)(void *arg);
	void *wake_arg;
	TAILQ_ENTRY(page_cache) link;
};

static uint8_t zero_bytes[PAGE_BYTES] __attribute__((aligned(PAGE_BYTES)));
static struct page zero = { .data = zero_bytes, .refs = 1, .fixed = true };

struct page *page_zero(void)
{
	return &zero;
}

static void most_set(struct arena *arena)
{
	size_t room = arena->count;

	for (int c = 0; c < PAGE_CLASSES; c++)
		room -= arena->floor[c];
	for (int c = 0; c < PAGE_CLASSES; c++)
		arena->most[c] = arena->floor[c] + room;
}

int arena_open(const struct arena_config *config, struct arena **out)
{
	static const unsigned usual[PAGE_CLASSES] = { 10, 20, 10, 20 };
	size_t bytes = ROUND_UP(config->bytes, (size_t)ALIGN_BYTES);
	const unsigned *percent = config->floor_percent;
	bool all_zero = true;
	struct arena *arena;
	unsigned sum = 0;
	uint8_t *map;

	for (int c = 0; c < PAGE_CLASSES; c++)
		all_zero = all_zero && percent[c] == 0;
	if (all_zero)
		percent = usual;
	for (int c = 0; c < PAGE_CLASSES; c++)
		sum += percent[c];
	if (bytes == 0 || sum > 100)
		return -EINVAL;

	arena = calloc(1, sizeof(*arena));
	if (arena == NULL)
		return -ENOMEM;
	map = mmap(NULL, bytes + ALIGN_BYTES, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		goto err_arena;
	/* Cut to a 2 MiB boundary, so that huge pages can back all of it. */
	arena->base = (uint8_t *)ROUND_UP((uintptr_t)map, ALIGN_BYTES);
	if (arena->base > map)
		munmap(map, (size_t)(arena->base - map));
	if (arena->base + bytes < map + bytes + ALIGN_BYTES)
		munmap(arena->base + bytes,
		       (size_t)(map + ALIGN_BYTES - arena->base));
	madvise(arena->base, bytes, MADV_HUGEPAGE);
	madvise(arena->base, bytes, MADV_DONTFORK);
	arena->bytes = bytes;
	arena->count = bytes / PAGE_BYTES;
	arena->pages = mmap(NULL, arena->count * sizeof(*arena->pages),
			    PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (arena->pages == MAP_FAILED)
		goto err_map;
	if (page_map_open(&arena->free, arena->count) < 0)
		goto err_pages;
	for (int c = 0; c < PAGE_CLASSES; c++)
		arena->floor[c] = arena->count * percent[c] / 100;
	most_set(arena);
	pthread_mutex_init(&arena->lock, NULL);
	TAILQ_INIT(&arena->caches);
	*out = arena;
	return 0;

err_pages:
	munmap(arena->pages, arena->count * sizeof(*arena->pages));
err_map:
	munmap(arena->base, bytes);
err_arena:
	free(arena);
	return -ENOMEM;
}

void arena_close(struct arena *arena)
{
	for (int c = 0; c < PAGE_CLASSES; c++)
		assert(atomic_load(&arena->used[c]) == 0);
	page_map_close(&arena->free);
	munmap(arena->pages, arena->count * sizeof(*arena->pages));
	munmap(arena->base, arena->bytes);
	pthread_mutex_destroy(&arena->lock);
	free(arena);
}

size_t arena_region(const struct arena *arena, void **base)
{
	*base = arena->base;
	return arena->bytes;
}

size_t arena_used(const struct arena *arena, enum page_class class)
{
	return atomic_load_explicit(&arena->used[class], memory_order_relaxed);
}

size_t arena_pages(const struct arena *arena)
{
	return arena->count;
}

bool arena_lock(struct arena *arena)
{
	arena->locked = mlock2(arena->base, arena->bytes, MLOCK_ONFAULT) == 0;
	return arena->locked;
}

bool arena_locked(const struct arena *arena)
{
	return arena->locked;
}

int page_cache_open(struct arena *arena, struct page_cache **out)
{
	struct page_cache *cache = calloc(1, sizeof(*cache));

	if (cache == NULL)
		return -ENOMEM;
	if (page_map_open(&cache->free, arena->count) < 0) {
		free(cache);
		return -ENOMEM;
	}
	cache->arena = arena;
	for (int c = 0; c < PAGE_CLASSES; c++)
		TAILQ_INIT(&cache->waiters[c]);
	pthread_mutex_lock(&arena->lock);
	TAILQ_INSERT_TAIL(&arena->caches, cache, link);
	pthread_mutex_unlock(&arena->lock);
	*out = cache;
	return 0;
}

void page_cache_wake_set(struct page_cache *cache, void (*wake)(void *arg),
			 void *arg)
{
	pthread_mutex_lock(&cache->arena->lock);
	cache->wake = wake;
	cache->wake_arg = arg;
	pthread_mutex_unlock(&cache->arena->lock);
}

/* Wake the other caches' shards that wait. */
static void others_wake(struct page_cache *cache)
{
	struct arena *arena = cache->arena;
	struct page_cache *other;

	pthread_mutex_lock(&arena->lock);
	TAILQ_FOREACH (other, &arena->caches, link)
		if (other != cache && other->wake != NULL &&
		    atomic_load(&other->waiting))
			other->wake(other->wake_arg);
	pthread_mutex_unlock(&arena->lock);
}

/* Ask the other caches for what lies in them; a shard that was is awake. */
static void others_ask(struct page_cache *cache)
{
	struct arena *arena = cache->arena;
	struct page_cache *other;

	pthread_mutex_lock(&arena->lock);
	TAILQ_FOREACH (other, &arena->caches, link)
		if (other != cache && !atomic_exchange(&other->asked, true) &&
		    other->wake != NULL)
			other->wake(other->wake_arg);
	pthread_mutex_unlock(&arena->lock);
}

static size_t cache_count(const struct page_cache *cache)
{
	return cache->free.count + cache->singles_count;
}

/* Pages of one word on their way to the map. */
struct giving {
	size_t word;
	uint64_t bits;
};

static inline void giving_end(struct page_cache *cache,
			      const struct giving *giving)
{
	if (giving->bits != 0)
		page_map_give(&cache->free, giving->word, giving->bits);
}

/* Neighbours that come one after the other go at once. */
static inline void giving_add(struct page_cache *cache, struct giving *giving,
			      const struct page *page)
{
	size_t at = (size_t)(page - cache->arena->pages);

	if (at / PAGE_MAP_WORD != giving->word) {
		giving_end(cache, giving);
		giving->word = at / PAGE_MAP_WORD;
		giving->bits = 0;
	}
	giving->bits |= 1ull << at % PAGE_MAP_WORD;
}

static void map_give(struct page_cache *cache, struct page *const *pages,
		     size_t n)
{
	struct giving giving = { 0 };

	for (size_t i = 0; i < n; i++)
		giving_add(cache, &giving, pages[i]);
	giving_end(cache, &giving);
	cache->given += n;
}

/* The @n that lie longest go to the map, where they are part of runs. */
static void singles_flush(struct page_cache *cache, size_t n)
{
	map_give(cache, cache->singles, n);
	cache->singles_count -= n;
	memmove(cache->singles, cache->singles + n,
		cache->singles_count * sizeof(cache->singles[0]));
}

/* Some pages of the lowest word; the map is not empty. */
static void singles_fill(struct page_cache *cache)
{
	size_t word = page_set_next(&cache->free.some, 0);
	uint64_t left = cache->free.bits[word], bits = 0;
	struct page **at = &cache->singles[SINGLES_FILL];

	while (left != 0 && at > cache->singles) {
		uint64_t bit = left & -left;

		*--at = &cache->arena->pages[word * PAGE_MAP_WORD +
					     (size_t)__builtin_ctzll(left)];
		bits |= bit;
		left &= ~bit;
	}
	page_map_take(&cache->free, word, bits);
	cache->singles_count = (size_t)(&cache->singles[SINGLES_FILL] - at);
	memmove(cache->singles, at,
		cache->singles_count * sizeof(cache->singles[0]));
}

/* What is free of @word is the arena's from now on; under lock. */
static void word_give(struct page_cache *cache, size_t word)
{
	struct arena *arena = cache->arena;
	uint64_t bits = cache->free.bits[word];

	page_map_take(&cache->free, word, bits);
	page_map_give(&arena->free, word, bits);
	if (arena->free.bits[word] == UINT64_MAX)
		atomic_fetch_add_explicit(&arena->whole, 1,
					  memory_order_relaxed);
}

/* The other way round. */
static void word_fetch(struct page_cache *cache, size_t word)
{
	struct arena *arena = cache->arena;
	uint64_t bits = arena->free.bits[word];

	page_map_take(&arena->free, word, bits);
	page_map_give(&cache->free, word, bits);
	if (bits == UINT64_MAX)
		atomic_fetch_sub_explicit(&arena->whole, 1,
					  memory_order_relaxed);
}

/* Until @want pages are here, the lowest first: what is used stays close. */
static void words_fetch(struct page_cache *cache, size_t want)
{
	size_t word = 0;

	while (cache->free.count < want) {
		word = page_set_next(&cache->arena->free.some, word);
		if (word == PAGE_MAP_NONE)
			break;
		word_fetch(cache, word);
	}
}

/*
 * Keep about @keep pages.  All go to the arena first: a word of which a part
 * went there earlier is one again.
 */
static void cache_drain(struct page_cache *cache, size_t keep)
{
	struct arena *arena = cache->arena;
	size_t word = 0;

	singles_flush(cache, cache->singles_count);
	pthread_mutex_lock(&arena->lock);
	while ((word = page_set_next(&cache->free.some, word)) != PAGE_MAP_NONE)
		word_give(cache, word);
	words_fetch(cache, keep);
	pthread_mutex_unlock(&arena->lock);
	cache->given = 0;
}

void page_cache_close(struct page_cache *cache)
{
	struct arena *arena = cache->arena;

	assert(!page_cache_waiting(cache));
	cache_drain(cache, 0);
	if (atomic_exchange(&cache->waiting, false))
		atomic_fetch_sub(&arena->waiting, 1);
	pthread_mutex_lock(&arena->lock);
	TAILQ_REMOVE(&arena->caches, cache, link);
	pthread_mutex_unlock(&arena->lock);
	page_map_close(&cache->free);
	free(cache);
}

/* A word of pages that were never used.  False: there is none. */
static bool word_touch(struct page_cache *cache)
{
	struct arena *arena = cache->arena;
	size_t word =
		atomic_load_explicit(&arena->untouched, memory_order_relaxed);
	size_t first = word * PAGE_MAP_WORD;

	if (first == arena->count)
		return false;
	for (size_t i = first; i < first + PAGE_MAP_WORD; i++)
		arena->pages[i].data = arena->base + i * PAGE_BYTES;
	atomic_store_explicit(&arena->untouched, word + 1,
			      memory_order_relaxed);
	page_map_give(&cache->free, word, UINT64_MAX);
	return true;
}

/*
 * There are @n free pages somewhere: the books say so.  True once here.  Memory
 * that was never touched comes last.
 */
static bool cache_fill(struct page_cache *cache, size_t n)
{
	struct arena *arena = cache->arena;
	size_t want = n + REFILL;

	pthread_mutex_lock(&arena->lock);
	words_fetch(cache, want);
	while (cache->free.count < want && word_touch(cache))
		;
	pthread_mutex_unlock(&arena->lock);
	return cache->free.count >= n;
}

/*
 * For the sake of a run fresh memory is touched only where half of what was
 * touched is in use: that is the room in which runs are found after any churn,
 * and an idle node grows no further than it needs.
 */
static bool may_touch(const struct arena *arena)
{
	size_t used = 0, touched;

	touched =
		atomic_load_explicit(&arena->untouched, memory_order_relaxed) *
		PAGE_MAP_WORD;
	for (int c = 0; c < PAGE_CLASSES; c++)
		used += arena_used(arena, c);
	return touched < arena->count && touched / 2 <= used;
}

static bool any_whole(const struct arena *arena)
{
	return atomic_load_explicit(&arena->whole, memory_order_relaxed) > 0;
}

/*
 * Whole words for a run of @n pages that the cache has in pieces only.  Where
 * nobody has any, what this cache and the arena have of the same words is put
 * together, once in a while: it costs more than a few short runs.
 */
static void cache_fill_run(struct page_cache *cache, size_t n)
{
	struct arena *arena = cache->arena;
	size_t words = DIV_UP(n, PAGE_MAP_WORD);

	if (!any_whole(arena) && !may_touch(arena)) {
		if (cache->given < CACHE_MAX / 2)
			return;
		cache_drain(cache, MAX(n, CACHE_MAX / 2));
	}
	pthread_mutex_lock(&arena->lock);
	for (; words > 0; words--) {
		size_t word = page_set_next(&arena->free.whole, 0);

		if (word != PAGE_MAP_NONE)
			word_fetch(cache, word);
		else if (!may_touch(arena) || !word_touch(cache))
			break;
	}
	pthread_mutex_unlock(&arena->lock);
}

/*
 * May @class have @mine in all?  Its floor always; above it only what no other
 * class's floor still needs.
 */
static bool class_may(const struct arena *arena, enum page_class class,
		      size_t mine)
{
	size_t needed = 0;

	if (mine <= arena->floor[class])
		return true;
	for (int c = 0; c < PAGE_CLASSES; c++) {
		size_t used =
			c == (int)class ? mine : atomic_load(&arena->used[c]);

		needed += MAX(used, arena->floor[c]);
	}
	return needed <= arena->count;
}

/*
 * @n more for @class.  The counts are read one by one, so two shards may both be
 * refused where one would fit, never both admitted past the arena: each adds its
 * own first.  But not what cannot be: for a moment it would take the room of
 * others.
 */
static bool class_admit(struct arena *arena, enum page_class class, size_t n)
{
	if (!class_may(arena, class, arena_used(arena, class) + n))
		return false;
	if (class_may(arena, class,
		      atomic_fetch_add(&arena->used[class], n) + n))
		return true;
	atomic_fetch_sub(&arena->used[class], n);
	return false;
}

static inline struct page *page_hand(struct page *page, enum page_class class)
{
	page->class = (uint8_t) class;
	atomic_store_explicit(&page->refs, 1, memory_order_relaxed);
	return page;
}

/* @n pages, which are here, in as few runs as a short search finds. */
static void runs_take(struct page_cache *cache, enum page_class class, size_t n,
		      struct page **out)
{
	struct page *pages = cache->arena->pages, *page;
	size_t first, run;
	bool all = page_map_find_all(&cache->free, n, &first);

	if (!all && cache->singles_count > 0) {
		singles_flush(cache, cache->singles_count);
		all = page_map_find_all(&cache->free, n, &first);
	}
	if (!all)
		cache_fill_run(cache, n);
	run = all ? n : page_map_find(&cache->free, n, &first);
	while (run == n || run > RUN_SHORT) {
		page_map_take_run(&cache->free, first, run);
		page = &pages[first];
		for (size_t i = 0; i < run; i++)
			*out++ = page_hand(page++, class);
		n -= run;
		if (n == 0)
			return;
		run = page_map_find(&cache->free, n, &first);
	}
	while (n-- > 0)
		*out++ = page_hand(&pages[page_map_take_lowest(&cache->free)],
				   class);
}

/* As pages_alloc(), of admitted pages that are not on top of the stack. */
static __attribute__((noinline)) int pages_take(struct page_cache *cache,
						enum page_class class, size_t n,
						struct page **out)
{
	if (cache->free.count < n)
		singles_flush(cache, cache->singles_count);
	if (cache->free.count < n && !cache_fill(cache, n)) {
		/* Free pages lie in the caches of other shards. */
		atomic_fetch_sub(&cache->arena->used[class], n);
		others_ask(cache);
		return -EBUSY;
	}
	if (n == 1) {
		singles_fill(cache);
		*out = page_hand(cache->singles[--cache->singles_count], class);
	} else {
		runs_take(cache, class, n, out);
	}
	return 0;
}

int pages_alloc(struct page_cache *cache, enum page_class class, size_t n,
		struct page **out)
{
	struct arena *arena = cache->arena;

	if (n > arena->most[class])
		return -EINVAL;
	if (!class_admit(arena, class, n))
		return -EBUSY;
	if (n == 1 && cache->singles_count > 0) {
		*out = page_hand(cache->singles[--cache->singles_count], class);
		return 0;
	}
	return n > 0 ? pages_take(cache, class, n, out) : 0;
}

size_t pages_left(const struct page_cache *cache, enum page_class class,
		  size_t promised)
{
	const struct arena *arena = cache->arena;
	size_t taken = MAX(arena_used(arena, class), promised);

	for (int c = 0; c < PAGE_CLASSES; c++)
		if (c != (int)class)
			taken += MAX(arena_used(arena, c), arena->floor[c]);
	return arena->count - MIN(taken, arena->count);
}

size_t pages_most(const struct page_cache *cache, enum page_class class)
{
	return cache->arena->most[class];
}

/* Drop a reference.  True if it was the last. */
static inline bool page_drop(struct page *page)
{
	unsigned refs = atomic_load_explicit(&page->refs, memory_order_acquire);

	assert(refs > 0);
	/* The only holder is alone: who would take another has one. */
	if (refs == 1)
		atomic_store_explicit(&page->refs, 0, memory_order_relaxed);
	else if (atomic_fetch_sub_explicit(&page->refs, 1,
					   memory_order_acq_rel) > 1)
		return false;
	assert(!page->fixed);
	return true;
}

void page_put(struct page_cache *cache, struct page *page)
{
	if (!page_drop(page))
		return;
	atomic_fetch_sub(&cache->arena->used[page->class], 1);
	cache->freed = true;
	if (cache->singles_count == SINGLES_MAX) {
		singles_flush(cache, SINGLES_MAX / 2);
		if (cache->free.count > CACHE_MAX)
			cache_drain(cache, CACHE_MAX / 2);
	}
	cache->singles[cache->singles_count++] = page;
}

void pages_put(struct page_cache *cache, struct page *const *pages, size_t n)
{
	size_t freed[PAGE_CLASSES] = { 0 };
	struct giving giving = { 0 };

	for (size_t i = 0; i < n; i++) {
		struct page *page = pages[i];

		if (!page_drop(page))
			continue;
		freed[page->class]++;
		giving_add(cache, &giving, page);
	}
	giving_end(cache, &giving);
	for (int c = 0; c < PAGE_CLASSES; c++)
		if (freed[c] > 0) {
			atomic_fetch_sub(&cache->arena->used[c], freed[c]);
			cache->given += freed[c];
			cache->freed = true;
		}
	if (cache->free.count > CACHE_MAX)
		cache_drain(cache, CACHE_MAX / 2);
}

void page_wait(struct page_cache *cache, enum page_class class, size_t n,
	       struct page_waiter *waiter)
{
	assert(!waiter->queued);
	waiter->class = class;
	waiter->n = MIN(n, cache->arena->most[class]);
	waiter->passed = 0;
	waiter->queued = true;
	TAILQ_INSERT_TAIL(&cache->waiters[class], waiter, link);
	if (!atomic_exchange(&cache->waiting, true)) {
		atomic_fetch_add(&cache->arena->waiting, 1);
		others_ask(cache);
	}
}

void page_wait_stop(struct page_cache *cache, struct page_waiter *waiter)
{
	if (!waiter->queued)
		return;
	TAILQ_REMOVE(&cache->waiters[waiter->class], waiter, link);
	waiter->queued = false;
}

static bool class_has(const struct arena *arena, const struct page_waiter *w)
{
	return class_may(arena, w->class,
			 atomic_load(&arena->used[w->class]) + w->n);
}

bool page_cache_waiting(const struct page_cache *cache)
{
	for (int c = 0; c < PAGE_CLASSES; c++)
		if (!TAILQ_EMPTY(&cache->waiters[c]))
			return true;
	return false;
}

/*
 * Free pages in this cache are of no use to a shard that waits, or was refused:
 * the arena gets them.  Where they were taken again, by another class, there is
 * room all the same.  A page freed after the look here is seen by the waiter's
 * own turn: it counts itself first and looks at the books then.
 */
static void others_help(struct page_cache *cache, bool asked)
{
	unsigned own = atomic_load(&cache->waiting) ? 1 : 0;
	bool wait = atomic_load(&cache->arena->waiting) > own;
	bool any = cache_count(cache) > 0;

	if (any && (asked || wait))
		cache_drain(cache, 0);
	if (wait && (any || cache->freed)) {
		cache->freed = false;
		others_wake(cache);
	}
}

/*
 * The first that may go on.  One for whom there is too little lets those behind it
 * pass until they had as many pages as it wants: whoever does not wait passes it in
 * any case, and what it wants may not come for long.
 */
static struct page_waiter *waiter_next(const struct arena *arena,
				       const struct waiters *waiters)
{
	const struct page_waiter *first = TAILQ_FIRST(waiters);
	struct page_waiter *waiter;

	TAILQ_FOREACH (waiter, waiters, link) {
		if (class_has(arena, waiter))
			return waiter;
		if (first->passed >= first->n)
			return NULL;
	}
	return NULL;
}

/* Those of one class.  True: more may go on. */
static bool class_turn(struct page_cache *cache, struct waiters *waiters)
{
	struct page_waiter *waiter;
	unsigned budget = 64;

	while ((waiter = waiter_next(cache->arena, waiters)) != NULL) {
		if (budget-- == 0)
			return true;
		if (waiter != TAILQ_FIRST(waiters))
			TAILQ_FIRST(waiters)->passed += waiter->n;
		TAILQ_REMOVE(waiters, waiter, link);
		waiter->queued = false;
		waiter->cb(waiter);
	}
	return false;
}

bool page_cache_turn(struct page_cache *cache)
{
	bool asked = atomic_load(&cache->asked), more = false;

	/* Nobody waits, here or elsewhere, or was refused. */
	if (!atomic_load(&cache->waiting) &&
	    atomic_load(&cache->arena->waiting) == 0 && !asked)
		return false;
	/* Before the look at the books: who asks from here on wakes it anew. */
	if (asked)
		atomic_store(&cache->asked, false);
	/*
	 * A class that has nothing does not hold up the others: what it waits
	 * for may be held by those who wait there.
	 */
	for (int c = 0; c < PAGE_CLASSES; c++)
		more |= class_turn(cache, &cache->waiters[c]);
	if (!page_cache_waiting(cache) &&
	    atomic_exchange(&cache->waiting, false))
		atomic_fetch_sub(&cache->arena->waiting, 1);
	others_help(cache, asked);
	return more;
}
