/*
 * page: the arena, its classes, and a cache of free pages per shard.
 *
 * Two books are kept apart.  Which class may have how many pages is counted in
 * the arena, atomically, per allocation of any size.  Where free pages lie is
 * the caches' business: each holds a list, refilled from and drained to the
 * arena's list under a mutex, REFILL pages at a time.
 */
#include "base/page.h"

#include "base/util.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define REFILL 64u
#define ALIGN_BYTES (2u << 20)

struct arena {
	uint8_t *base;
	size_t bytes, count;
	bool locked;
	struct page *pages; /* one per page of memory, in order */
	size_t floor[PAGE_CLASSES];

	atomic_size_t used[PAGE_CLASSES];

	pthread_mutex_t lock;
	struct page *free; /* under lock */
	size_t untouched; /* pages[untouched..] were never given out */
	TAILQ_HEAD(, page_cache) caches; /* under lock */
	atomic_uint waiting; /* caches with waiters */
};

TAILQ_HEAD(waiters, page_waiter);

struct page_cache {
	struct arena *arena;
	struct page *free;
	size_t free_count;
	struct waiters waiters[PAGE_CLASSES]; /* one waits for its own only */
	atomic_bool waiting; /* has waiters; counted in the arena */
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
	for (int c = 0; c < PAGE_CLASSES; c++)
		arena->floor[c] = arena->count * percent[c] / 100;
	pthread_mutex_init(&arena->lock, NULL);
	TAILQ_INIT(&arena->caches);
	*out = arena;
	return 0;

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

/* Wake the other caches' shards: all, or those that wait. */
static void others_wake(struct page_cache *cache, bool all)
{
	struct arena *arena = cache->arena;
	struct page_cache *other;

	pthread_mutex_lock(&arena->lock);
	TAILQ_FOREACH (other, &arena->caches, link)
		if (other != cache && other->wake != NULL &&
		    (all || atomic_load(&other->waiting)))
			other->wake(other->wake_arg);
	pthread_mutex_unlock(&arena->lock);
}

static void cache_drain(struct page_cache *cache, size_t keep)
{
	struct arena *arena = cache->arena;

	pthread_mutex_lock(&arena->lock);
	while (cache->free_count > keep) {
		struct page *page = cache->free;

		cache->free = page->next;
		cache->free_count--;
		page->next = arena->free;
		arena->free = page;
	}
	pthread_mutex_unlock(&arena->lock);
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
	free(cache);
}

/* There are @n free pages somewhere: the books say so.  True once here. */
static bool cache_fill(struct page_cache *cache, size_t n)
{
	struct arena *arena = cache->arena;
	size_t want = n + REFILL;

	pthread_mutex_lock(&arena->lock);
	while (cache->free_count < want) {
		struct page *page = arena->free;

		if (page != NULL) {
			arena->free = page->next;
		} else if (arena->untouched < arena->count) {
			page = &arena->pages[arena->untouched];
			page->data =
				arena->base + arena->untouched * PAGE_BYTES;
			arena->untouched++;
		} else {
			break;
		}
		page->next = cache->free;
		cache->free = page;
		cache->free_count++;
	}
	pthread_mutex_unlock(&arena->lock);
	return cache->free_count >= n;
}

/*
 * May @class have @n more?  Below its floor always; above it only what no other
 * class's floor still needs.  The counts are read one by one, so two shards may
 * both be refused where one would fit, never both admitted past the arena: each
 * adds its own first.
 */
static bool class_admit(struct arena *arena, enum page_class class, size_t n)
{
	size_t mine = atomic_fetch_add(&arena->used[class], n) + n;
	size_t needed = 0;

	if (mine <= arena->floor[class])
		return true;
	for (int c = 0; c < PAGE_CLASSES; c++) {
		size_t used =
			c == (int)class ? mine : atomic_load(&arena->used[c]);

		needed += MAX(used, arena->floor[c]);
	}
	if (needed <= arena->count)
		return true;
	atomic_fetch_sub(&arena->used[class], n);
	return false;
}

int pages_alloc(struct page_cache *cache, enum page_class class, size_t n,
		struct page **out)
{
	struct arena *arena = cache->arena;

	if (n > arena->count / 2 && n > arena->floor[class])
		return -EINVAL;
	if (!class_admit(arena, class, n))
		return -EBUSY;
	if (cache->free_count < n && !cache_fill(cache, n)) {
		/* Free pages lie in the caches of other shards. */
		atomic_fetch_sub(&arena->used[class], n);
		return -EBUSY;
	}
	for (size_t i = 0; i < n; i++) {
		struct page *page = cache->free;

		cache->free = page->next;
		page->class = (uint8_t) class;
		atomic_store_explicit(&page->refs, 1, memory_order_relaxed);
		out[i] = page;
	}
	cache->free_count -= n;
	return 0;
}

void page_put(struct page_cache *cache, struct page *page)
{
	unsigned refs = atomic_load_explicit(&page->refs, memory_order_acquire);

	assert(refs > 0);
	/* The only holder is alone: who would take another has one. */
	if (refs == 1)
		atomic_store_explicit(&page->refs, 0, memory_order_relaxed);
	else if (atomic_fetch_sub_explicit(&page->refs, 1,
					   memory_order_acq_rel) > 1)
		return;
	assert(!page->fixed);
	atomic_fetch_sub(&cache->arena->used[page->class], 1);
	page->next = cache->free;
	cache->free = page;
	cache->free_count++;
	if (cache->free_count > 16 * REFILL)
		cache_drain(cache, 8 * REFILL);
}

void page_wait(struct page_cache *cache, enum page_class class, size_t n,
	       struct page_waiter *waiter)
{
	assert(!waiter->queued);
	waiter->class = class;
	waiter->n = n;
	waiter->queued = true;
	TAILQ_INSERT_TAIL(&cache->waiters[class], waiter, link);
	if (!atomic_exchange(&cache->waiting, true)) {
		atomic_fetch_add(&cache->arena->waiting, 1);
		others_wake(cache, true); /* for what lies in their lists */
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
	size_t needed = 0;

	for (int c = 0; c < PAGE_CLASSES; c++) {
		size_t used = atomic_load(&arena->used[c]) +
			      (c == (int)w->class ? w->n : 0);

		if (c == (int)w->class && used <= arena->floor[c])
			return true;
		needed += MAX(used, arena->floor[c]);
	}
	return needed <= arena->count;
}

bool page_cache_waiting(const struct page_cache *cache)
{
	for (int c = 0; c < PAGE_CLASSES; c++)
		if (!TAILQ_EMPTY(&cache->waiters[c]))
			return true;
	return false;
}

/*
 * Free pages in this list are of no use to a shard that waits: the arena gets
 * them.  A page freed after the look here is seen by the waiter's own turn: it
 * counts itself first and looks at the books then.
 */
static void others_help(struct page_cache *cache)
{
	unsigned own = atomic_load(&cache->waiting) ? 1 : 0;

	if (atomic_load(&cache->arena->waiting) <= own ||
	    cache->free_count == 0)
		return;
	cache_drain(cache, 0);
	others_wake(cache, false);
}

/* Those of one class, in the order they came. */
static void class_turn(struct page_cache *cache, struct waiters *waiters)
{
	struct page_waiter *waiter;
	unsigned budget = 64;

	while ((waiter = TAILQ_FIRST(waiters)) != NULL && budget-- > 0) {
		if (!class_has(cache->arena, waiter))
			break;
		TAILQ_REMOVE(waiters, waiter, link);
		waiter->queued = false;
		waiter->cb(waiter);
	}
}

void page_cache_turn(struct page_cache *cache)
{
	/* Nobody waits, here or elsewhere. */
	if (!atomic_load(&cache->waiting) &&
	    atomic_load(&cache->arena->waiting) == 0)
		return;
	/*
	 * A class that has nothing does not hold up the others: what it waits
	 * for may be held by those who wait there.
	 */
	for (int c = 0; c < PAGE_CLASSES; c++)
		class_turn(cache, &cache->waiters[c]);
	if (!page_cache_waiting(cache) &&
	    atomic_exchange(&cache->waiting, false))
		atomic_fetch_sub(&cache->arena->waiting, 1);
	others_help(cache);
}
