/*
 * must: what ends the process: set-up without memory, and checks where cmocka's
 * cannot be, as they jump out: on other threads, in children and fuzzers.
 */
#ifndef BASALT_TESTS_MUST_H
#define BASALT_TESTS_MUST_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

/* What an allocator returned; aborts if that is NULL. */
static inline void *must(void *p)
{
	if (p == NULL)
		abort();
	return p;
}

#define NEED(cond)                                                             \
	do {                                                                   \
		if (!(cond)) {                                                 \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__,     \
				#cond);                                        \
			abort();                                               \
		}                                                              \
	} while (0)

#endif
