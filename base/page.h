/*
 * page: the node's payload memory.
 *
 * One arena of 4 KiB pages a node (huge pages where the machine has them, never
 * required), the memory that RDMA devices register and io_uring reads and
 * writes.  Each shard allocates through its own cache, without a lock but for a
 * refill once in many pages.
 *
 * Classes have reserved floors, in order of dependence: what a class needs to
 * make progress for others is never eaten by those others (DESIGN 2, R49).  An
 * allocation that would eat into another class's floor fails with "busy": the
 * caller parks the request with page_wait() and is called when it may retry.
 */
#ifndef BASALT_BASE_PAGE_H
#define BASALT_BASE_PAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#define PAGE_BYTES 4096u

enum page_class {
	PAGE_LOG, /* log headers, the cleaner, recovery */
	PAGE_REPLICA_IN, /* payload from another node's owner */
	PAGE_RMW, /* read-modify-write, resync */
	PAGE_FRONT, /* sessions: data in and out, reads */
	PAGE_CLASSES
};

struct page {
	uint8_t *data; /* PAGE_BYTES, aligned to PAGE_BYTES */
	atomic_uint refs;
	uint8_t class; /* enum page_class */
	bool fixed; /* the zero page: never freed */
};

struct arena;
struct page_cache;

struct arena_config {
	size_t bytes; /* rounded up to 2 MiB */
	unsigned floor_percent[PAGE_CLASSES]; /* all 0: 10, 20, 10, 20 */
};

/* Returns 0, or -ENOMEM.  Memory is reserved here and touched on use. */
int arena_open(const struct arena_config *config, struct arena **out);

/* Every page must have come home: asserts it. */
void arena_close(struct arena *arena);

/* The whole region, for registration: [*base, *base + returned bytes). */
size_t arena_region(const struct arena *arena, void **base);

/* Pages in use by @class, and pages of the arena. */
size_t arena_used(const struct arena *arena, enum page_class class);
size_t arena_pages(const struct arena *arena);

/* Try to lock it (RLIMIT_MEMLOCK is often 8 MiB); false: used unlocked. */
bool arena_lock(struct arena *arena);
bool arena_locked(const struct arena *arena);

/* One cache a shard; only its thread may use it. */
int page_cache_open(struct arena *arena, struct page_cache **out);
void page_cache_close(struct page_cache *cache);

/*
 * @wake runs on any thread, when this cache's shard should take a turn: it waits
 * and pages became free elsewhere, or another lacks what lies here.
 */
void page_cache_wake_set(struct page_cache *cache, void (*wake)(void *arg),
			 void *arg);

/*
 * Fill @out with @n pages of @class, each with one reference and contents
 * undefined.  Neighbours in memory come one after the other, ascending: one
 * run of @n where there is one, else few and long ones.  All or none: returns
 * 0, or -EBUSY when the class may not have that many now, or they lie with other
 * shards, which are asked for them; or -EINVAL when it never could.
 */
int pages_alloc(struct page_cache *cache, enum page_class class, size_t n,
		struct page **out);

/*
 * Pages that @class may have yet, as things are, where @promised of them are in
 * use or spoken for.  Others may take them first.
 */
size_t pages_left(const struct page_cache *cache, enum page_class class,
		  size_t promised);

/* Pages that @class may have where no other one has more than its floor. */
size_t pages_most(const struct page_cache *cache, enum page_class class);

static inline struct page *page_get(struct page *page)
{
	atomic_fetch_add_explicit(&page->refs, 1, memory_order_relaxed);
	return page;
}

/* Drop a reference; the last one gives the page to @cache.  Any shard's. */
void page_put(struct page_cache *cache, struct page *page);

/* As page_put() of each, at less cost. */
void pages_put(struct page_cache *cache, struct page *const *pages, size_t n);

/* A page of zeros that is nobody's: read it, reference it, never write it. */
struct page *page_zero(void);

/*
 * Ask to be called, once, on this cache's thread and outside the call that
 * frees, when an allocation of @n pages of @class may succeed, or of all that the
 * class can have if that is less.  Within a class first come, first served, but
 * that who wants more than there is lets as much as it wants go to those behind.
 * page_wait_stop() takes the wish back.
 */
struct page_waiter {
	void (*cb)(struct page_waiter *waiter);
	/* private */
	enum page_class class;
	size_t n;
	size_t passed; /* pages that went to those behind it, while it was first */
	bool queued;
	TAILQ_ENTRY(page_waiter) link;
};
void page_wait(struct page_cache *cache, enum page_class class, size_t n,
	       struct page_waiter *waiter);
void page_wait_stop(struct page_cache *cache, struct page_waiter *waiter);

/*
 * Run waiters that may go on now; the shard calls it after whatever may have
 * freed pages, before it sleeps.  True: call it again, there were too many.
 */
bool page_cache_turn(struct page_cache *cache);
bool page_cache_waiting(const struct page_cache *cache);

#endif
