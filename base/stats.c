/* stats: the list of counters, and the cells of the threads that add. */
#include "base/stats.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

_Thread_local struct counter_cells *counter__cells;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct counter *first;
static unsigned cells_used; /* of each thread */

/* Of all threads, those that have ended as well: cells are never freed. */
static _Atomic(struct counter_cells *) threads;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* lets the cells go when a thread ends */
static bool key_made;

void counter_register(struct counter *counter)
{
	struct counter **at;

	pthread_mutex_lock(&lock);
	for (at = &first; *at != NULL && *at != counter; at = &(*at)->next)
		;
	if (*at == NULL) {
		counter->next = NULL;
		if (counter->read == NULL && counter->cell == 0) {
			counter->cell = ++cells_used;
			assert(counter->cell < COUNTERS_MAX);
		}
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

uint64_t counter_value(struct counter *counter)
{
	uint64_t n =
		atomic_load_explicit(&counter->common, memory_order_relaxed);
	struct counter_cells *cells;

	if (counter->read != NULL)
		return counter->read(counter);
	if (counter->cell == 0)
		return n;
	for (cells = atomic_load(&threads); cells != NULL; cells = cells->next)
		n += atomic_load_explicit(&cells->of[counter->cell],
					  memory_order_relaxed);
	return n;
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
