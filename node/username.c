/*
 * username: what a user is called.
 *
 * A name service that hangs cannot be called off, and a worker that waits for it
 * keeps a daemon that was stopped from ending.  So a thread asks that nobody waits
 * for longer than he wants: it is left behind then, and ends with the process.
 */
#include "base/util.h"
#include "node/admin_int.h"

#include <pthread.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ASKING_MAX 16u /* threads, those that were left behind included */

struct question {
	pthread_mutex_t lock;
	pthread_cond_t answered_cond;
	bool answered, left; /* under lock */
	uid_t uid;
	char name[USERNAME_LEN]; /* "": nobody */
};

static atomic_uint asking;

static void question_free(struct question *q)
{
	pthread_cond_destroy(&q->answered_cond);
	pthread_mutex_destroy(&q->lock);
	free(q);
}

static struct question *question_new(uid_t uid)
{
	struct question *q = calloc(1, sizeof(*q));
	pthread_condattr_t attr;

	if (q == NULL)
		return NULL;
	q->uid = uid;
	pthread_mutex_init(&q->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&q->answered_cond, &attr);
	pthread_condattr_destroy(&attr);
	return q;
}

static void *ask_thread(void *arg)
{
	struct question *q = arg;
	struct passwd pw, *found = NULL;
	char buf[2048];
	bool left;

	if (getpwuid_r(q->uid, &pw, buf, sizeof(buf), &found) == 0 &&
	    found != NULL)
		snprintf(q->name, sizeof(q->name), "%.40s", pw.pw_name);
	pthread_mutex_lock(&q->lock);
	q->answered = true;
	left = q->left;
	pthread_cond_signal(&q->answered_cond);
	pthread_mutex_unlock(&q->lock);
	if (left)
		question_free(q);
	atomic_fetch_sub(&asking, 1);
	return NULL;
}

static int ask_start(struct question *q)
{
	pthread_attr_t attr;
	pthread_t thread;
	int rv;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	rv = pthread_create(&thread, &attr, ask_thread, q);
	pthread_attr_destroy(&attr);
	return -rv;
}

/* Its answer, or the end of our patience. */
static void answer_take(struct question *q, uint64_t limit_ns, char *out)
{
	struct timespec until;
	int rv = 0;
	bool answered;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)(limit_ns / SEC);
	pthread_mutex_lock(&q->lock);
	while (!q->answered && rv == 0)
		rv = pthread_cond_timedwait(&q->answered_cond, &q->lock,
					    &until);
	answered = q->answered;
	q->left = !answered;
	pthread_mutex_unlock(&q->lock);
	if (!answered)
		return; /* the question is its thread's now */
	strcpy(out, q->name);
	question_free(q);
}

void admin__username(uid_t uid, uint64_t limit_ns, char out[USERNAME_LEN])
{
	struct question *q;

	out[0] = '\0';
	if (atomic_fetch_add(&asking, 1) >= ASKING_MAX) {
		atomic_fetch_sub(&asking, 1);
		return;
	}
	q = question_new(uid);
	if (q != NULL && ask_start(q) == 0) {
		answer_take(q, limit_ns, out);
		return;
	}
	if (q != NULL)
		question_free(q);
	atomic_fetch_sub(&asking, 1);
}
