/*
 * seeds: a random test, seed by seed.  Each is printed before it runs, so that
 * whatever ends the test, an assertion or a sanitizer, stands behind its seed.
 *
 *	SEED=7 build/tests/unit/NAME		only this one
 *	SEED=7 SEEDS=100 build/tests/unit/NAME	100 from there
 *	BASALT_SOAK=1 build/tests/unit/NAME	its long form
 */
#ifndef BASALT_TESTS_SEEDS_H
#define BASALT_TESTS_SEEDS_H

#include "tests/lib/pattern.h"
#include "tests/lib/test.h"

#include <stdlib.h>

/* The stream of random numbers of the present seed. */
static uint64_t seeds_state;

/* One of @n. */
static inline unsigned below(unsigned n)
{
	return (unsigned)(random_next(&seeds_state) % n);
}

static inline bool one_in(unsigned n)
{
	return below(n) == 0;
}

static inline unsigned long seeds_number(const char *name, unsigned long unset)
{
	const char *value = getenv(name);

	return value != NULL ? strtoul(value, NULL, 10) : unset;
}

/* Run @one for @count seeds, in the long form for @soak. */
static inline void seeds_run(unsigned count, unsigned soak, void (*one)(void))
{
	unsigned long first = seeds_number("SEED", 1);
	bool only = getenv("SEED") != NULL, is_long = getenv("BASALT_SOAK");
	unsigned long n = seeds_number("SEEDS", only	  ? 1
						: is_long ? soak
							  : count);

	for (unsigned long seed = first; seed < first + n; seed++) {
		print_message("# seed %lu\n", seed);
		seeds_state = seed;
		one();
	}
}

/* One that found something is run again. */
static inline void seeds_again(unsigned long seed, void (*one)(void))
{
	print_message("# seed %lu\n", seed);
	seeds_state = seed;
	one();
}

#endif
