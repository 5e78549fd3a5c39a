/*
 * vloop: what envs of one thread and virtual time have in common: the clock,
 * random numbers, tasks, timers and the arena.  An env begins with one, takes
 * these calls into its own env_ops and decides itself what runs when.
 */
#ifndef BASALT_TESTS_VLOOP_H
#define BASALT_TESTS_VLOOP_H

#include "base/env.h"
#include "base/page.h"
#include "base/timer_heap.h"

struct vloop {
	struct env env; /* first */
	struct arena *arena;
	uint64_t *random; /* the state of the stream, the caller's */
	STAILQ_HEAD(, env_task) tasks;
	STAILQ_HEAD(, env_work) works; /* of VLOOP_WORK_OPS */
	struct timer_heap timers;
};

/* For the initializer of an env_ops: all but work, devices and stores. */
#define VLOOP_OPS                                                              \
	.rand = vloop_rand, .secure_random = vloop_secure_random,              \
	.wall_ns = vloop_wall_ns, .defer = vloop_defer, .post = vloop_defer,   \
	.timer_start = vloop_timer_start, .timer_stop = vloop_timer_stop

/* And these: blocking work in one queue, which vloop_work_turn() runs. */
#define VLOOP_WORK_OPS                                                         \
	.lane_open = vloop_lane_open, .lane_close = vloop_lane_close,          \
	.work = vloop_work

uint64_t vloop_rand(struct env *env);
void vloop_secure_random(struct env *env, void *buf, size_t len);
uint64_t vloop_wall_ns(struct env *env);
void vloop_defer(struct env *env, struct env_task *task);
void vloop_timer_start(struct env *env, struct env_timer *timer,
		       uint64_t delay_ns);
void vloop_timer_stop(struct env *env, struct env_timer *timer);
int vloop_lane_open(struct env *env, const char *name, struct env_lane **out);
void vloop_lane_close(struct env_lane *lane);
void vloop_work(struct env *env, struct env_lane *lane, struct env_work *work);

/* Aborts when memory is short: a test's set-up. */
void vloop_init(struct vloop *loop, const struct env_ops *ops,
		uint64_t arena_bytes, uint64_t now_ns, uint64_t *random);
void vloop_fini(struct vloop *loop);

/* Run the oldest task, the oldest work; false: there is none. */
bool vloop_task_turn(struct vloop *loop);
bool vloop_work_turn(struct vloop *loop);
/* Run the earliest timer, and go on to its time if that is to come. */
bool vloop_timer_turn(struct vloop *loop);

#endif
