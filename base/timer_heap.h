/*
 * timer_heap: env_timers ordered by (due, order of starting), for backends of
 * env.h.  A binary heap of pointers; slot 0 is unused, so that place 0 means
 * "stopped".
 */
#ifndef BASALT_BASE_TIMER_HEAP_H
#define BASALT_BASE_TIMER_HEAP_H

#include "base/env.h"

struct timer_heap {
	struct env_timer **slots;
	size_t count, room;
	uint64_t next_order;
};

/* Starts or moves @timer.  Memory for the heap itself: aborts without. */
void timer_heap_start(struct timer_heap *heap, struct env_timer *timer,
		      uint64_t due_ns);
void timer_heap_stop(struct timer_heap *heap, struct env_timer *timer);
void timer_heap_fini(struct timer_heap *heap);

/* The earliest, or NULL. */
static inline struct env_timer *timer_heap_first(const struct timer_heap *heap)
{
	return heap->count > 0 ? heap->slots[1] : NULL;
}

#endif
