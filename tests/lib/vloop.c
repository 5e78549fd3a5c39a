/* vloop: the calls of an env, and turns of its loop. */
#include "tests/lib/vloop.h"

#include "tests/lib/must.h"
#include "tests/lib/pattern.h"

static struct vloop *loop_of(struct env *env)
{
	return (struct vloop *)env;
}

uint64_t vloop_rand(struct env *env)
{
	return random_next(loop_of(env)->random);
}

void vloop_secure_random(struct env *env, void *buf, size_t len)
{
	uint8_t *b = buf;

	while (len-- > 0)
		*b++ = (uint8_t)vloop_rand(env);
}

uint64_t vloop_wall_ns(struct env *env)
{
	return env->now_ns;
}

void vloop_defer(struct env *env, struct env_task *task)
{
	if (task->queued)
		return;
	task->queued = true;
	STAILQ_INSERT_TAIL(&loop_of(env)->tasks, task, link);
}

void vloop_timer_start(struct env *env, struct env_timer *timer,
		       uint64_t delay_ns)
{
	timer_heap_start(&loop_of(env)->timers, timer, env->now_ns + delay_ns);
}

void vloop_timer_stop(struct env *env, struct env_timer *timer)
{
	timer_heap_stop(&loop_of(env)->timers, timer);
}

/* Work runs in order whatever its lane; one that stays open is a leak. */
int vloop_lane_open(struct env *env, const char *name, struct env_lane **out)
{
	*out = must(malloc(1));
	return 0;
}

void vloop_lane_close(struct env_lane *lane)
{
	free(lane);
}

void vloop_work(struct env *env, struct env_lane *lane, struct env_work *work)
{
	work->env = env;
	work->lane = lane;
	STAILQ_INSERT_TAIL(&loop_of(env)->works, work, link);
}

bool vloop_task_turn(struct vloop *loop)
{
	struct env_task *task = STAILQ_FIRST(&loop->tasks);

	if (task == NULL)
		return false;
	STAILQ_REMOVE_HEAD(&loop->tasks, link);
	task->queued = false;
	task->cb(task);
	return true;
}

bool vloop_work_turn(struct vloop *loop)
{
	struct env_work *work = STAILQ_FIRST(&loop->works);

	if (work == NULL)
		return false;
	STAILQ_REMOVE_HEAD(&loop->works, link);
	work->work(work);
	work->done(work);
	return true;
}

bool vloop_timer_turn(struct vloop *loop)
{
	struct env_timer *timer = timer_heap_first(&loop->timers);

	if (timer == NULL)
		return false;
	if (timer->due_ns > loop->env.now_ns)
		loop->env.now_ns = timer->due_ns;
	timer_heap_stop(&loop->timers, timer);
	timer->cb(timer);
	return true;
}

void vloop_init(struct vloop *loop, const struct env_ops *ops,
		uint64_t arena_bytes, uint64_t now_ns, uint64_t *random)
{
	struct arena_config config = { .bytes = arena_bytes };

	memset(loop, 0, sizeof(*loop));
	if (arena_open(&config, &loop->arena) < 0 ||
	    page_cache_open(loop->arena, &loop->env.pages) < 0)
		abort();
	loop->env.ops = ops;
	loop->env.shards_count = 1;
	loop->env.now_ns = now_ns;
	loop->random = random;
	STAILQ_INIT(&loop->tasks);
	STAILQ_INIT(&loop->works);
}

void vloop_fini(struct vloop *loop)
{
	timer_heap_fini(&loop->timers);
	page_cache_close(loop->env.pages);
	arena_close(loop->arena);
}
