/*
 * stats: counters and gauges.  A room defines them as static data and registers
 * them once; node reads them all for `basalt metrics` and the metrics port.
 * Adding is a relaxed atomic add: cheap, from any thread.
 */
#ifndef BASALT_BASE_STATS_H
#define BASALT_BASE_STATS_H

#include <stdatomic.h>
#include <stdint.h>

struct counter {
	const char *name; /* basalt_ROOM_what_unit, Prometheus style */
	const char *help;
	_Atomic uint64_t value;
	/* If set, called to read it (a gauge that lives elsewhere). */
	uint64_t (*read)(struct counter *counter);
	/* private */
	struct counter *next;
};

/* Registering twice is harmless. */
void counter_register(struct counter *counter);

static inline void counter_add(struct counter *counter, uint64_t n)
{
	atomic_fetch_add_explicit(&counter->value, n, memory_order_relaxed);
}

static inline uint64_t counter_value(struct counter *counter)
{
	return counter->read ? counter->read(counter)
			     : atomic_load_explicit(&counter->value,
						    memory_order_relaxed);
}

/* Visit all, in the order of registration. */
void counter_each(void (*cb)(struct counter *counter, void *arg), void *arg);

#endif
