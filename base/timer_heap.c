/* timer_heap: sift up, sift down. */
#include "base/timer_heap.h"

#include <assert.h>
#include <stdlib.h>

static bool earlier(const struct env_timer *a, const struct env_timer *b)
{
	if (a->due_ns != b->due_ns)
		return a->due_ns < b->due_ns;
	return a->order < b->order;
}

static void place(struct timer_heap *heap, size_t at, struct env_timer *timer)
{
	heap->slots[at] = timer;
	timer->at = at;
}

static void sift(struct timer_heap *heap, struct env_timer *timer)
{
	size_t at = timer->at, child;

	while (at > 1 && earlier(timer, heap->slots[at / 2])) {
		place(heap, at, heap->slots[at / 2]);
		at /= 2;
	}
	while ((child = 2 * at) <= heap->count) {
		if (child < heap->count &&
		    earlier(heap->slots[child + 1], heap->slots[child]))
			child++;
		if (!earlier(heap->slots[child], timer))
			break;
		place(heap, at, heap->slots[child]);
		at = child;
	}
	place(heap, at, timer);
}

void timer_heap_start(struct timer_heap *heap, struct env_timer *timer,
		      uint64_t due_ns)
{
	timer->due_ns = due_ns;
	timer->order = heap->next_order++;
	if (timer->at == 0) {
		if (heap->count + 2 > heap->room) {
			heap->room = heap->room ? 2 * heap->room : 64;
			heap->slots = realloc(
				heap->slots, heap->room * sizeof(*heap->slots));
			if (heap->slots == NULL)
				abort();
		}
		place(heap, ++heap->count, timer);
	}
	assert(heap->slots[timer->at] == timer);
	sift(heap, timer);
}

void timer_heap_stop(struct timer_heap *heap, struct env_timer *timer)
{
	struct env_timer *last;
	size_t at = timer->at;

	if (at == 0)
		return;
	assert(heap->slots[at] == timer);
	timer->at = 0;
	last = heap->slots[heap->count--];
	if (last == timer)
		return;
	place(heap, at, last);
	sift(heap, last);
}

void timer_heap_fini(struct timer_heap *heap)
{
	assert(heap->count == 0);
	free(heap->slots);
}
