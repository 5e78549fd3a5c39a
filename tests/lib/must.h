/* must: memory for a test's set-up, where being short of it is the end. */
#ifndef BASALT_TESTS_MUST_H
#define BASALT_TESTS_MUST_H

#include <stddef.h>
#include <stdlib.h>

/* What an allocator returned; aborts if that is NULL. */
static inline void *must(void *p)
{
	if (p == NULL)
		abort();
	return p;
}

#endif
