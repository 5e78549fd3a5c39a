/* stats: the lists of what is counted, and the cells of the threads that add. */
#include "base/stats.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

_Thread_local struct counter_cells *counter__cells;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct counter *first;
static struct histogram *first_histogram;
static unsigned cells_used; /* of each thread */

/* Of all threads, those that have ended as well: cells are never freed. */
static _Atomic(struct counter_cells *) threads;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* lets the cells go when a thread ends */
static bool key_made;

/* @count cells in a row of every thread. */
static unsigned cells_reserve(unsigned count)
{
	unsigned cell = cells_used + 1;

	cells_used += count;
	assert(cells_used < COUNTERS_MAX);
	return cell;
}

void counter_register(struct counter *counter)
{
	struct counter **at;

	pthread_mutex_lock(&lock);
	for (at = &first; *at != NULL && *at != counter; at = &(*at)->next)
		;
	if (*at == NULL) {
		counter->next = NULL;
		if (counter->read == NULL && counter->cell == 0)
			counter->cell = cells_reserve(1);
		*at = counter;
	}
	pthread_mutex_unlock(&lock);
}

void counter_each(void (*cb)(struct counter *counter, void *arg), void *arg)
{
	pthread_mutex_lock(&lock);
	for (struct counter *c = first; c != NULL; c = c->next)
		cb(c, arg);
	pthread_mutex_unlock(&lock);
}

/* Cell @at of all threads, and what was added without one. */
static uint64_t cell_sum(unsigned at, const _Atomic uint64_t *common)
{
	uint64_t n = atomic_load_explicit(common, memory_order_relaxed);
	struct counter_cells *cells;

	if (at == 0)
		return n;
	for (cells = atomic_load(&threads); cells != NULL; cells = cells->next)
		n += atomic_load_explicit(&cells->of[at], memory_order_relaxed);
	return n;
}

uint64_t counter_value(struct counter *counter)
{
	if (counter->read != NULL)
		return counter->read(counter);
	return cell_sum(counter->cell, &counter->common);
}

/* ---- histograms ---- */

void histogram_register(struct histogram *histogram)
{
	struct histogram **at;

	pthread_mutex_lock(&lock);
	if (histogram->cell == 0) {
		histogram->cell = cells_reserve(1 + HISTOGRAM_BUCKETS);
		for (at = &first_histogram;
		     *at != NULL && (*at)->rank <= histogram->rank;
		     at = &(*at)->next)
			;
		histogram->next = *at;
		*at = histogram;
	}
	pthread_mutex_unlock(&lock);
}

void histogram_each(void (*cb)(struct histogram *histogram, void *arg),
		    void *arg)
{
	pthread_mutex_lock(&lock);
	for (struct histogram *h = first_histogram; h != NULL; h = h->next)
		cb(h, arg);
	pthread_mutex_unlock(&lock);
}

void histogram_read(struct histogram *histogram, struct histogram_value *out)
{
	unsigned cell = histogram->cell;

	*out = (struct histogram_value){
		.sum_ns = cell_sum(cell, &histogram->common[0]),
	};
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		out->bucket[i] = cell_sum(cell == 0 ? 0 : cell + 1 + i,
					  &histogram->common[1 + i]);
		out->count += out->bucket[i];
	}
}

void histogram_of_read(const struct histogram_of *h,
		       struct histogram_value *out)
{
	*out = (struct histogram_value){
		.sum_ns =
			atomic_load_explicit(&h->sum_ns, memory_order_relaxed),
	};
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
		out->bucket[i] = atomic_load_explicit(&h->bucket[i],
						      memory_order_relaxed);
		out->count += out->bucket[i];
	}
}

void histogram_gain(struct histogram_value *now,
		    const struct histogram_value *then)
{
	now->sum_ns -= then->sum_ns;
	now->count -= then->count;
	for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++)
		now->bucket[i] -= then->bucket[i];
}

uint64_t histogram_bound(unsigned bucket)
{
	uint64_t octave = 1ull << (HISTOGRAM_FIRST + bucket / 2);

	assert(bucket < HISTOGRAM_BUCKETS);
	if (bucket == HISTOGRAM_BUCKETS - 1)
		return UINT64_MAX;
	return bucket % 2 == 0 ? octave : octave + octave / 2;
}

uint64_t histogram_quantile(const struct histogram_value *value,
			    unsigned permille)
{
	uint64_t below = 0, want, from, to;
	unsigned i = 0;

	assert(permille <= 1000);
	if (value->count == 0)
		return 0;
	/* That many of them, rounded up, one at least. */
	want = (value->count * permille + 999) / 1000;
	want = want > 0 ? want : 1;
	while (below + value->bucket[i] < want)
		below += value->bucket[i++];
	from = i == 0 ? 0 : histogram_bound(i - 1);
	to = histogram_bound(i);
	if (to == UINT64_MAX) /* it has no bound */
		return from;
	/* As if those in a bucket were spread evenly over it. */
	return from + (to - from) * (want - below) / value->bucket[i];
}

/* ---- cells ---- */

/* A thread ends: what it counted stays, and the next one goes on with it. */
static void cells_leave(void *arg)
{
	struct counter_cells *cells = arg;

	counter__cells = NULL;
	atomic_store(&cells->taken, false);
}

static void key_make(void)
{
	key_made = pthread_key_create(&key, cells_leave) == 0;
}

/* Those of a thread that has ended, or NULL. */
static struct counter_cells *cells_left(void)
{
	struct counter_cells *cells = atomic_load(&threads);

	for (; cells != NULL; cells = cells->next)
		if (!atomic_exchange(&cells->taken, true))
			break;
	return cells;
}

struct counter_cells *counter__cells_take(void)
{
	struct counter_cells *cells = cells_left();

	if (cells == NULL) {
		cells = aligned_alloc(64, (sizeof(*cells) + 63) & ~(size_t)63);
		if (cells == NULL)
			return NULL;
		*cells = (struct counter_cells){ .taken = true };
		cells->next = atomic_load(&threads);
		while (!atomic_compare_exchange_weak(&threads, &cells->next,
						     cells))
			;
	}
	pthread_once(&once, key_make);
	/* Without, they are this thread's for good. */
	if (key_made)
		(void)pthread_setspecific(key, cells);
	counter__cells = cells;
	return cells;
}
