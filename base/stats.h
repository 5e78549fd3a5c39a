/*
 * stats: counters, gauges and histograms of durations.  A room defines them as
 * static data and registers them once; node reads them all for `basalt metrics`,
 * the metrics port and `basalt latency`.
 *
 * Adding is cheap, from any thread: each has a cell of its own for every counter,
 * so no line of the cache goes from one shard to the other.  A value is the sum.
 */
#ifndef BASALT_BASE_STATS_H
#define BASALT_BASE_STATS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define COUNTERS_MAX 1024u /* cells of a thread; a histogram takes many */

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

/* This thread's cell @at; NULL: it has none. */
static inline _Atomic uint64_t *counter__cell(unsigned at)
{
	struct counter_cells *cells = counter__cells;

	if (cells == NULL)
		cells = counter__cells_take();
	return cells == NULL || at == 0 ? NULL : &cells->of[at];
}

/* Nobody else writes there. */
static inline void counter__cell_add(_Atomic uint64_t *cell, uint64_t n)
{
	atomic_store_explicit(
		cell, atomic_load_explicit(cell, memory_order_relaxed) + n,
		memory_order_relaxed);
}

static inline void counter_add(struct counter *counter, uint64_t n)
{
	_Atomic uint64_t *cell = counter__cell(counter->cell);

	if (cell != NULL)
		counter__cell_add(cell, n);
	else
		atomic_fetch_add_explicit(&counter->common, n,
					  memory_order_relaxed);
}

/* From any thread. */
uint64_t counter_value(struct counter *counter);

/* Visit all, in the order of registration. */
void counter_each(void (*cb)(struct counter *counter, void *arg), void *arg);

/* ---- histograms ---- */

/*
 * Two buckets for each doubling, from 4 us (2^12 ns) to 34 s: what is read of
 * one is right within a third.
 */
#define HISTOGRAM_FIRST 12u
#define HISTOGRAM_BUCKETS 48u

struct histogram {
	const char *name; /* basalt_ROOM_what_seconds */
	const char *stage; /* for people, a word or two: "device write" */
	unsigned rank; /* in a table; small ones are at the top */
	const char *help;
	/* private: the sum of nanoseconds, then the buckets */
	unsigned cell;
	_Atomic uint64_t common[1 + HISTOGRAM_BUCKETS];
	struct histogram *next;
};

struct histogram_value {
	uint64_t sum_ns, count;
	uint64_t bucket[HISTOGRAM_BUCKETS];
};

static inline unsigned histogram__bucket(uint64_t ns)
{
	unsigned octave, bucket;

	if (ns < 1u << HISTOGRAM_FIRST)
		return 0;
	octave = 63 ^ (unsigned)__builtin_clzll(ns);
	/* Its two highest bits are 2 or 3: the half of the octave. */
	bucket = 2 * (octave - HISTOGRAM_FIRST) - 1 +
		 (unsigned)(ns >> (octave - 1));
	return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

/* As counters: once before the first histogram_add(), harmless when repeated. */
void histogram_register(struct histogram *histogram);

/* Something took @ns nanoseconds.  From any thread. */
static inline void histogram_add(struct histogram *histogram, uint64_t ns)
{
	unsigned at = 1 + histogram__bucket(ns);
	_Atomic uint64_t *cell = counter__cell(histogram->cell);

	if (cell != NULL) {
		counter__cell_add(cell, ns);
		counter__cell_add(cell + at, 1);
		return;
	}
	atomic_fetch_add_explicit(&histogram->common[0], ns,
				  memory_order_relaxed);
	atomic_fetch_add_explicit(&histogram->common[at], 1,
				  memory_order_relaxed);
}

/*
 * The same without a name, for each of many things.  Zeroed at first; one thread
 * at a time adds, any may read.
 */
struct histogram_of {
	_Atomic uint64_t sum_ns, bucket[HISTOGRAM_BUCKETS];
};

static inline void histogram_of_add(struct histogram_of *h, uint64_t ns)
{
	counter__cell_add(&h->sum_ns, ns);
	counter__cell_add(&h->bucket[histogram__bucket(ns)], 1);
}

void histogram_of_read(const struct histogram_of *h,
		       struct histogram_value *out);

/* @now becomes what came since it was @then. */
void histogram_gain(struct histogram_value *now,
		    const struct histogram_value *then);

/* What is in @bucket took less than that; UINT64_MAX: the last, no bound. */
uint64_t histogram_bound(unsigned bucket);

/* From any thread. */
void histogram_read(struct histogram *histogram, struct histogram_value *out);

/*
 * How long it took at most in @permille of a thousand cases, as near as the
 * buckets tell; 0: there was none.  1000: the longest, rounded up.
 */
uint64_t histogram_quantile(const struct histogram_value *value,
			    unsigned permille);

/* Visit all, by rank. */
void histogram_each(void (*cb)(struct histogram *histogram, void *arg),
		    void *arg);

#endif
