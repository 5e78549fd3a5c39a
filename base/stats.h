/*
 * stats: counters and gauges.  A room defines them as static data and registers
 * them once; node reads them all for `basalt metrics` and the metrics port.
 *
 * Adding is cheap, from any thread: each has a cell of its own for every counter,
 * so no line of the cache goes from one shard to the other.  A value is the sum.
 */
#ifndef BASALT_BASE_STATS_H
#define BASALT_BASE_STATS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define COUNTERS_MAX 256u

struct counter {
	const char *name; /* basalt_ROOM_what_unit, Prometheus style */
	const char *help;
	/* If set, called to read it (a gauge that lives elsewhere). */
	uint64_t (*read)(struct counter *counter);
	/* private */
	unsigned cell; /* 0: none */
	_Atomic uint64_t common; /* what was added without a cell */
	struct counter *next;
};

/* What one thread has added; no other writes there.  Private. */
struct counter_cells {
	_Atomic uint64_t of[COUNTERS_MAX];
	struct counter_cells *next;
	_Atomic _Bool taken; /* by a thread; the next one takes it as it is */
};
extern _Thread_local struct counter_cells *counter__cells;
/* The thread's, from now on; NULL: no memory. */
struct counter_cells *counter__cells_take(void);

/* Before the first counter_add().  Registering twice is harmless. */
void counter_register(struct counter *counter);

static inline void counter_add(struct counter *counter, uint64_t n)
{
	struct counter_cells *cells = counter__cells;
	_Atomic uint64_t *cell;

	if (cells == NULL)
		cells = counter__cells_take();
	if (cells == NULL || counter->cell == 0) {
		atomic_fetch_add_explicit(&counter->common, n,
					  memory_order_relaxed);
		return;
	}
	cell = &cells->of[counter->cell];
	atomic_store_explicit(
		cell, atomic_load_explicit(cell, memory_order_relaxed) + n,
		memory_order_relaxed);
}

/* From any thread. */
uint64_t counter_value(struct counter *counter);

/* Visit all, in the order of registration. */
void counter_each(void (*cb)(struct counter *counter, void *arg), void *arg);

#endif
