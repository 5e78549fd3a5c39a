/*
 * iscsi_sides: the front and its shares, for tests.  All shards are on one loop,
 * so that each step can be held.  Included by test files; it is part of each.
 */
#ifndef BASALT_TESTS_UNIT_ISCSI_SIDES_H
#define BASALT_TESTS_UNIT_ISCSI_SIDES_H

#include "tests/unit/iscsi_rig.h"

#define SHARDS 3u
#define OTHER "iqn.2026-11.internal.basalt:u"
#define STRANGER "iqn.2026-11.example:you"

/* An env for each shard that does everything on the test's. */
static struct env sides[SHARDS];
static struct env *envs[SHARDS];
static struct dom *doms[SHARDS];

static inline void side_defer(struct env *env, struct env_task *task)
{
	env->now_ns = env_now(ts.env);
	env_defer(ts.env, task);
}

/* What is posted to the shares waits while @held. */
static bool held;
static struct env_task *waiting[64];
static unsigned waiting_count;

static inline void side_post(struct env *env, struct env_task *task)
{
	if (!held) {
		side_defer(env, task);
		return;
	}
	CHECK(waiting_count < ARRAY_LEN(waiting));
	waiting[waiting_count++] = task;
}

static inline void let_go(void)
{
	held = false;
	for (unsigned i = 0; i < waiting_count; i++)
		env_defer(ts.env, waiting[i]);
	waiting_count = 0;
}

static inline void side_timer_start(struct env *env, struct env_timer *timer,
				    uint64_t delay_ns)
{
	env_timer_start(ts.env, timer, delay_ns);
}

static inline void side_timer_stop(struct env *env, struct env_timer *timer)
{
	env_timer_stop(ts.env, timer);
}

static inline uint64_t side_rand(struct env *env)
{
	return env_rand(ts.env);
}

static struct env_ops side_ops;

static inline void open_all(struct iscsi_config config)
{
	struct sockaddr_in any4 = { .sin_family = AF_INET };

	test_memory_open(&ts);
	side_ops = *ts.env->ops;
	side_ops.rand = side_rand;
	side_ops.defer = side_defer;
	side_ops.post = side_post;
	side_ops.timer_start = side_timer_start;
	side_ops.timer_stop = side_timer_stop;
	envs[0] = ts.env;
	for (unsigned i = 1; i < SHARDS; i++) {
		sides[i] = *ts.env;
		sides[i].ops = &side_ops;
		sides[i].shard = i;
		envs[i] = &sides[i];
	}
	for (unsigned i = 0; i < SHARDS; i++)
		CHECK_EQ(fake_dom_open(envs[i], &doms[i]), 0);
	config.env = ts.env;
	config.dom = doms[0];
	config.shards = SHARDS;
	config.envs = envs;
	config.doms = doms;
	CHECK_EQ(iscsi_open(&config, &iscsi), 0);
	CHECK_EQ(iscsi_portal_declare(iscsi, 1, (struct sockaddr *)&any4, 1),
		 0);
}

static inline void close_all(void)
{
	iscsi_end();
	for (unsigned i = 1; i < SHARDS; i++) {
		bool done = false;

		dom_close(doms[i], on_done, &done);
		test_run(&ts, &done);
	}
	dom = doms[0];
	dom_end();
}

/* Disk @n of those whose hash says @shard; each dom has it. */
static inline struct uuid disk(unsigned shard, unsigned n)
{
	struct uuid id = { .b = { 0x77 } };

	for (unsigned i = 0; i < 256; i++) {
		id.b[1] = (uint8_t)i;
		if (uuid_hash(&id) % SHARDS == shard && n-- == 0)
			break;
	}
	for (unsigned i = 0; i < SHARDS; i++)
		(void)fake_dom_add(doms[i], &id, 64u << 20);
	return id;
}

static inline void target(const char *iqn)
{
	struct iscsi_target_conf conf = { .iqn = iqn,
					  .allow = any,
					  .allow_count = 1 };

	CHECK_EQ(iscsi_target_set(iscsi, &conf), 0);
}

static inline void map(const char *iqn, unsigned lun, struct uuid object)
{
	struct iscsi_lun_conf conf = { .iqn = iqn,
				       .lun = lun,
				       .object = object,
				       .name = "disk",
				       .block_bytes = 512 };

	CHECK_EQ(iscsi_lun_set(iscsi, &conf), 0);
}

#define TEXT(iqn)                                                              \
	"InitiatorName=" WHO "\0TargetName=" iqn "\0"                          \
	"InitialR2T=No\0ImmediateData=Yes\0"
#define LOGIN(m, isid, iqn)                                                    \
	login_text(m, isid, TEXT(iqn), sizeof(TEXT(iqn)) - 1)

static inline unsigned shard_of_conn(const struct mock *m)
{
	return m->dm.owner->iscsi->shard;
}

static inline void in(struct mock *m, uint8_t isid, unsigned shard)
{
	LOGIN(m, isid, IQN);
	CHECK_EQ(status_of(m), 0);
	CHECK_EQ(shard_of_conn(m), shard);
	CHECK_EQ(answer(m, TUR(m)), 2);
	CHECK_EQ(answer(m, TUR(m)), 0);
}

#endif
