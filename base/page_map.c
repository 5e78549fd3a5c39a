/* page_map: free pages as bits, and runs of them. */
#include "base/page_map.h"

#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

/* Words that one search looks at, besides those of a run that is longer. */
#define WALK_WORDS 64u

struct run {
	size_t first, n;
};

int page_map_open(struct page_map *map, size_t pages)
{
	size_t words = DIV_UP(pages, PAGE_MAP_WORD);
	size_t tops = DIV_UP(words, 64 * 64u);
	uint64_t *memory;

	/* Large, and touched where pages are only. */
	memory = calloc(words + 2 * (tops * 64 + tops), sizeof(*memory));
	if (memory == NULL)
		return -ENOMEM;
	map->bits = memory;
	map->some.bits = memory + words;
	map->some.top = map->some.bits + tops * 64;
	map->some.tops = tops;
	map->whole.bits = map->some.top + tops;
	map->whole.top = map->whole.bits + tops * 64;
	map->whole.tops = tops;
	map->count = 0;
	map->low = map->low_n = 0;
	return 0;
}

void page_map_close(struct page_map *map)
{
	free(map->bits);
}

size_t page_set_next(const struct page_set *set, size_t from)
{
	size_t at = from / 64, top;
	uint64_t bits;

	if (at >= set->tops * 64)
		return PAGE_MAP_NONE;
	bits = set->bits[at] & UINT64_MAX << from % 64;
	if (bits != 0)
		return at * 64 + (size_t)__builtin_ctzll(bits);
	at++;
	top = at / 64;
	if (top == set->tops)
		return PAGE_MAP_NONE;
	bits = set->top[top] & UINT64_MAX << at % 64;
	while (bits == 0) {
		if (++top == set->tops)
			return PAGE_MAP_NONE;
		bits = set->top[top];
	}
	at = top * 64 + (size_t)__builtin_ctzll(bits);
	return at * 64 + (size_t)__builtin_ctzll(set->bits[at]);
}

size_t page_map_take_lowest(struct page_map *map)
{
	size_t word = page_set_next(&map->some, 0);
	uint64_t bits;

	assert(word != PAGE_MAP_NONE);
	bits = map->bits[word];
	page_map_take(map, word, bits & -bits);
	return word * PAGE_MAP_WORD + (size_t)__builtin_ctzll(bits);
}

void page_map_take_run(struct page_map *map, size_t first, size_t n)
{
	while (n > 0) {
		size_t at = first % PAGE_MAP_WORD;
		size_t len = MIN(n, PAGE_MAP_WORD - at);

		page_map_take(map, first / PAGE_MAP_WORD,
			      UINT64_MAX >> (64 - len) << at);
		first += len;
		n -= len;
	}
}

/* Where @n free pages begin that end in the same word; @n is 1 to 64. */
static uint64_t starts(uint64_t bits, size_t n)
{
	while (n > 1 && bits != 0) {
		size_t half = n / 2;

		bits &= bits >> half;
		n -= half;
	}
	return bits;
}

/* The longest run inside a word that is not whole, if it is longer than @best. */
static void longest_in_word(uint64_t bits, size_t base, struct run *best)
{
	uint64_t at;

	while (best->n < PAGE_MAP_WORD &&
	       (at = starts(bits, best->n + 1)) != 0) {
		unsigned skip = (unsigned)__builtin_ctzll(at);

		best->first = base + skip;
		best->n = (size_t)__builtin_ctzll(~(bits >> skip));
	}
}

/*
 * The first run of @n pages in the words from *@word on; where there is none, the
 * longest one if @longest, else any.  *@word becomes the first word that was not
 * looked at.
 */
static struct run walk(const struct page_map *map, size_t *word, size_t n,
		       bool longest)
{
	size_t steps = WALK_WORDS + n / PAGE_MAP_WORD, next;
	struct run best = { 0 };
	struct run end = { 0 }; /* reaches up to the end of the last word */

	for (next = *word; next != PAGE_MAP_NONE && steps-- > 0 && best.n < n;
	     next = page_set_next(&map->some, next + 1)) {
		uint64_t bits = map->bits[next], at;
		size_t base = next * PAGE_MAP_WORD;

		if (end.first + end.n != base)
			end = (struct run){ base, 0 };
		if (bits == UINT64_MAX) {
			end.n += PAGE_MAP_WORD;
			if (end.n > best.n)
				best = end;
			continue;
		}
		end.n += (size_t)__builtin_ctzll(~bits);
		if (end.n > best.n)
			best = end;
		if (best.n >= n)
			break;
		at = n <= PAGE_MAP_WORD ? starts(bits, n) : 0;
		if (at != 0)
			best = (struct run){ base + (size_t)__builtin_ctzll(at),
					     n };
		else if (longest)
			longest_in_word(bits, base, &best);
		end.n = (size_t)__builtin_clzll(~bits);
		end.first = base + PAGE_MAP_WORD - end.n;
	}
	*word = next;
	best.n = MIN(best.n, n);
	return best;
}

/* The same in the whole words from @word on, past what is in pieces. */
static struct run walk_whole(const struct page_map *map, size_t word, size_t n,
			     bool longest)
{
	if (word != PAGE_MAP_NONE)
		word = page_set_next(&map->whole, word);
	return walk(map, &word, n, longest);
}

bool page_map_find_all(struct page_map *map, size_t n, size_t *first)
{
	size_t from = n >= map->low_n ? map->low : 0;
	size_t word = page_set_next(&map->some, from);
	struct run run = walk(map, &word, n, false);

	if (n <= PAGE_MAP_WORD && (run.n == n || word == PAGE_MAP_NONE)) {
		map->low =
			run.n == n ? run.first / PAGE_MAP_WORD : PAGE_MAP_NONE;
		map->low_n = n;
	}
	if (run.n < n)
		run = walk_whole(map, word, n, false);
	*first = run.first;
	return run.n == n;
}

size_t page_map_find(struct page_map *map, size_t n, size_t *first)
{
	struct run run, more;
	size_t word;

	if (page_map_find_all(map, n, first))
		return n;
	word = page_set_next(&map->some, 0);
	run = walk(map, &word, n, true);
	more = walk_whole(map, word, n, true);
	if (more.n > run.n)
		run = more;
	*first = run.first;
	return run.n;
}
