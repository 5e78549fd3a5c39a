/*
 * page_map: which pages of the arena are free in one place, a bit a page.
 *
 * Pages that come back lie beside their neighbours at once, whatever the order
 * they come in: there is nothing to merge.  Two sets over the words of 64 pages
 * tell which have a free page and which are all free, so that finding takes a
 * few loads however large the arena is.  Low places are found first, so what is
 * in use stays close together.
 */
#ifndef BASALT_BASE_PAGE_MAP_H
#define BASALT_BASE_PAGE_MAP_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAGE_MAP_WORD 64u /* pages a word */
#define PAGE_MAP_NONE SIZE_MAX

/* Numbers of words; a bit of @top for each word of @bits that is not 0. */
struct page_set {
	uint64_t *bits, *top;
	size_t tops;
};

struct page_map {
	uint64_t *bits; /* one a page: it is free here */
	struct page_set some; /* words with a free page */
	struct page_set whole; /* words whose pages are all free */
	size_t count; /* free pages */
	/*
	 * No run of @low_n pages or more begins in a word below @low; @low_n is
	 * at most a word.
	 */
	size_t low, low_n;
};

/* For pages [0, @pages), none of them free.  Returns 0 or -ENOMEM. */
int page_map_open(struct page_map *map, size_t pages);
void page_map_close(struct page_map *map);

static inline void page_set_add(struct page_set *set, size_t i)
{
	set->bits[i / 64] |= 1ull << i % 64;
	set->top[i / 4096] |= 1ull << i / 64 % 64;
}

static inline void page_set_del(struct page_set *set, size_t i)
{
	set->bits[i / 64] &= ~(1ull << i % 64);
	if (set->bits[i / 64] == 0)
		set->top[i / 4096] &= ~(1ull << i / 64 % 64);
}

/* The first member from @from on, or PAGE_MAP_NONE. */
size_t page_set_next(const struct page_set *set, size_t from);

/* Of @bits, which are not 0; mostly neighbours. */
static inline size_t page_bits_count(uint64_t bits)
{
	uint64_t run = bits >> __builtin_ctzll(bits);

	if ((run & (run + 1)) == 0)
		return 64 - (size_t)__builtin_clzll(run);
	return (size_t)__builtin_popcountll(bits);
}

/* Pages @bits of @word are free now; none of them was. */
static inline void page_map_give(struct page_map *map, size_t word,
				 uint64_t bits)
{
	uint64_t old = map->bits[word];

	assert((old & bits) == 0);
	map->bits[word] = old | bits;
	map->count += page_bits_count(bits);
	if (old == 0)
		page_set_add(&map->some, word);
	if ((old | bits) == UINT64_MAX)
		page_set_add(&map->whole, word);
	/* A run that ends here may begin in the word before. */
	if (word <= map->low)
		map->low = word - (word > 0);
}

/* Pages @bits of @word are in use now; all of them were free. */
static inline void page_map_take(struct page_map *map, size_t word,
				 uint64_t bits)
{
	uint64_t old = map->bits[word];

	assert((old & bits) == bits);
	map->bits[word] = old & ~bits;
	map->count -= page_bits_count(bits);
	if (old == UINT64_MAX)
		page_set_del(&map->whole, word);
	if (old == bits)
		page_set_del(&map->some, word);
}

/* Take the pages [@first, @first + @n). */
void page_map_take_run(struct page_map *map, size_t first, size_t n);

/* Take the lowest free page, of which there is one. */
size_t page_map_take_lowest(struct page_map *map);

/*
 * Find the lowest run of @n free pages.  Not all of a large map is looked at: what
 * has few pages free does not hide whole words behind it, but may hide a run.
 */
bool page_map_find_all(struct page_map *map, size_t n, size_t *first);

/*
 * The same, or the longest run where none is that long.  Returns the pages of the
 * run, at most @n, 0 only where none is free.
 */
size_t page_map_find(struct page_map *map, size_t n, size_t *first);

#endif
