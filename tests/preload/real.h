/*
 * real: what a function is that a preloaded library stands before.
 */
#ifndef BASALT_TESTS_PRELOAD_REAL_H
#define BASALT_TESTS_PRELOAD_REAL_H

#include <dlfcn.h>
#include <stdlib.h>

static inline void *real(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (f == NULL)
		abort();
	return f;
}

#define REAL(name) ((__typeof__(&name))real(#name))

#endif
