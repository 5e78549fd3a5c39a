/*
 * spare: small pieces of memory that a thread keeps for its next requests.
 *
 * malloc() keeps seven of a size for a thread.  Where more requests than that end
 * together the others go the long way, there and back, so what each request takes
 * is kept here.
 */
#ifndef BASALT_BASE_SPARE_H
#define BASALT_BASE_SPARE_H

#include <stddef.h>
#include <stdlib.h>

#define SPARE_STEP 64u
#define SPARE_SIZES 10u /* larger ones are malloc()'s */
#define SPARE_MAX 64u /* of each size */

/* Private. */
struct spare {
	struct spare *next;
};
struct spare_list {
	struct spare *first;
	unsigned count;
};
extern _Thread_local struct spare_list spare__lists[SPARE_SIZES];

static inline size_t spare__list(size_t size)
{
#ifdef __SANITIZE_ADDRESS__
	return SPARE_SIZES; /* so that use after the end is seen */
#else
	return (size - 1) / SPARE_STEP;
#endif
}

/* @size bytes (one at least), contents undefined; NULL: out of memory. */
static inline void *spare_take(size_t size)
{
	size_t at = spare__list(size);
	struct spare_list *list;
	struct spare *mem;

	if (at >= SPARE_SIZES)
		return malloc(size);
	list = &spare__lists[at];
	mem = list->first;
	if (mem == NULL)
		return malloc((at + 1) * SPARE_STEP);
	list->first = mem->next;
	list->count--;
	return mem;
}

/* @mem is of spare_take(), on any thread, of @size bytes or more. */
static inline void spare_give(void *mem, size_t size)
{
	size_t at = spare__list(size);
	struct spare_list *list;
	struct spare *spare = mem;

	if (at >= SPARE_SIZES || spare__lists[at].count == SPARE_MAX) {
		free(mem);
		return;
	}
	list = &spare__lists[at];
	spare->next = list->first;
	list->first = spare;
	list->count++;
}

/* A thread ends: what it keeps goes. */
void spare_drop(void);

#endif
