/* stats: the list of counters. */
#include "base/stats.h"

#include <pthread.h>
#include <stddef.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct counter *first;

void counter_register(struct counter *counter)
{
	struct counter **at;

	pthread_mutex_lock(&lock);
	for (at = &first; *at != NULL && *at != counter; at = &(*at)->next)
		;
	if (*at == NULL) {
		counter->next = NULL;
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
