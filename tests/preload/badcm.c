/*
 * badcm: events of the connection manager in another order, or more of them, than
 * the one that is there has.
 *
 *	LD_PRELOAD=badcm.so BADCM=FILE basaltd ...
 *
 * FILE has four numbers, read with each request for a connection:
 *
 *	late	1: that it is established is told behind its end
 *	twice	1: each event but a request is told twice
 *	add	this one comes behind each,
 *	adds	so often in all
 */
#include "tests/preload/real.h"

#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

/* An event, made up or kept; librdmacm has nothing of it. */
struct cm {
	struct rdma_cm_event event;
	struct rdma_event_channel *channel;
	bool ready, got; /* it may be told; it was, and is not acknowledged */
	STAILQ_ENTRY(cm) link;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static STAILQ_HEAD(, cm) cms = STAILQ_HEAD_INITIALIZER(cms);
static int late, twice, add, adds, added;

static void numbers_read(void)
{
	const char *file = getenv("BADCM");
	FILE *f = file != NULL ? fopen(file, "re") : NULL;

	if (f == NULL)
		return;
	if (fscanf(f, "%d %d %d %d", &late, &twice, &add, &adds) != 4)
		abort();
	fclose(f);
}

static void cm_keep(struct rdma_event_channel *channel,
		    const struct rdma_cm_event *event, int type, bool ready)
{
	struct cm *cm = calloc(1, sizeof(*cm));

	if (cm == NULL)
		abort();
	cm->event = *event;
	cm->event.event = (enum rdma_cm_event_type)type;
	memset(&cm->event.param, 0, sizeof(cm->event.param));
	cm->channel = channel;
	cm->ready = ready;
	STAILQ_INSERT_TAIL(&cms, cm, link);
}

static struct rdma_cm_event *cm_kept(struct rdma_event_channel *channel)
{
	struct cm *cm;

	STAILQ_FOREACH (cm, &cms, link)
		if (cm->channel == channel && cm->ready && !cm->got)
			break;
	if (cm == NULL)
		return NULL;
	cm->got = true;
	return &cm->event;
}

/* Is it held back?  What else follows it is noted. */
static bool cm_hold(struct rdma_event_channel *channel,
		    const struct rdma_cm_event *event)
{
	struct cm *cm;

	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		numbers_read();
		return false;
	}
	if (late && event->event == RDMA_CM_EVENT_ESTABLISHED) {
		cm_keep(channel, event, RDMA_CM_EVENT_ESTABLISHED, false);
		return true;
	}
	if (event->event == RDMA_CM_EVENT_DISCONNECTED)
		STAILQ_FOREACH (cm, &cms, link)
			if (cm->event.id == event->id)
				cm->ready = true;
	if (twice)
		cm_keep(channel, event, (int)event->event, true);
	if (added < adds && ++added)
		cm_keep(channel, event, add, true);
	return false;
}

int rdma_get_cm_event(struct rdma_event_channel *channel,
		      struct rdma_cm_event **out)
{
	bool held;
	int rv;

	pthread_mutex_lock(&lock);
	*out = cm_kept(channel);
	pthread_mutex_unlock(&lock);
	if (*out != NULL)
		return 0;
	for (;;) {
		rv = REAL(rdma_get_cm_event)(channel, out);
		if (rv != 0)
			return rv;
		pthread_mutex_lock(&lock);
		held = cm_hold(channel, *out);
		pthread_mutex_unlock(&lock);
		if (!held)
			return 0;
		REAL(rdma_ack_cm_event)(*out);
	}
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct cm *cm;

	pthread_mutex_lock(&lock);
	STAILQ_FOREACH (cm, &cms, link)
		if (&cm->event == event)
			break;
	if (cm != NULL)
		STAILQ_REMOVE(&cms, cm, cm, link);
	pthread_mutex_unlock(&lock);
	free(cm);
	if (cm != NULL)
		return 0;
	return REAL(rdma_ack_cm_event)(event);
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
	struct cm *cm;

	pthread_mutex_lock(&lock);
	STAILQ_FOREACH (cm, &cms, link)
		if (cm->event.id == id)
			cm->channel = channel;
	pthread_mutex_unlock(&lock);
	return REAL(rdma_migrate_id)(id, channel);
}

int rdma_destroy_id(struct rdma_cm_id *id)
{
	struct cm *cm, *next;

	pthread_mutex_lock(&lock);
	for (cm = STAILQ_FIRST(&cms); cm != NULL; cm = next) {
		next = STAILQ_NEXT(cm, link);
		if (cm->event.id != id)
			continue;
		STAILQ_REMOVE(&cms, cm, cm, link);
		free(cm);
	}
	pthread_mutex_unlock(&lock);
	return REAL(rdma_destroy_id)(id);
}
