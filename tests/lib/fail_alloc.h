/*
 * fail_alloc: allocations that find no memory.  For one program each, which is
 * linked with --wrap of calloc and malloc (the Makefile); what others wrap beside
 * them asks alloc_fails() too.
 */
#ifndef BASALT_TESTS_FAIL_ALLOC_H
#define BASALT_TESTS_FAIL_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/* That allocation of this thread from now on fails, once; 0: none. */
static _Thread_local unsigned fail_at;
/* Then only calloc() of things of that size count; 0: all. */
static _Thread_local size_t fail_size;
/* Not that one, but all, as long as this is set. */
static _Thread_local bool fail_all;
/* Or every malloc(), as long as this is set. */
static _Thread_local bool fail_malloc;

static inline bool alloc_fails(size_t size)
{
	if (fail_size != 0 && fail_size != size)
		return false;
	return fail_all || (fail_at > 0 && --fail_at == 0);
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *__wrap_calloc(size_t n, size_t size)
{
	return alloc_fails(size) ? NULL : __real_calloc(n, size);
}

void *__wrap_malloc(size_t size)
{
	return fail_malloc || alloc_fails(0) ? NULL : __real_malloc(size);
}
/* NOLINTEND(bugprone-reserved-identifier) */

#endif
