/*
 * shards: the rooms of the shards beside the first.
 *
 * Each has a store, a mirror of the directory and a dom of its own; objects go by
 * their id (dom.h).  The first shard's rooms are node.c's.  What a shard's room
 * is asked runs on its loop and comes back by message.
 */
#define LOG_ROOM LOG_NODE
#include "base/log.h"
#include "base/util.h"
#include "node/node_int.h"

#include <assert.h>
#include <string.h>

static void opened(struct node_shard *s)
{
	struct node *node = s->node;

	node->doms[s->env->shard] = s->dom;
	if (s->status < 0) {
		log_error("shard %u: its rooms cannot be opened: %s",
			  s->env->shard, strerror(-s->status));
		node->shards_status = s->status;
	}
	if (--node->shards_pending == 0)
		node->shards_done(node, node->shards_status);
}

static void on_opened(struct env_task *task)
{
	opened(container_of(task, struct node_shard, here));
}

static void there_open(struct env_task *task)
{
	struct node_shard *s = container_of(task, struct node_shard, there);
	struct dom_config config = { .env = s->env,
				     .cmmds = s->cmmds,
				     .lsom = s->node->lsom[s->env->shard],
				     .node = s->node->identity.id,
				     .part = s->env->shard,
				     .parts = shards_count(s->node->shards),
				     .all = s->node->doms };

	s->status = dom_open(&config, &s->dom);
	s->here.cb = on_opened;
	env_post(s->node->env, &s->here);
}

void node__shards_open(struct node *node,
		       void (*done)(struct node *node, int status))
{
	unsigned count = shards_count(node->shards);

	node->doms[0] = node->dom;
	node->shards_done = done;
	node->shards_status = 0;
	node->shards_pending = count - 1;
	for (unsigned i = 1; i < count; i++) {
		struct node_shard *s = &node->shard[i];

		s->node = node;
		s->env = shard_env(node->shards, i);
		s->cmmds = cmmds_mirror_open(node->cmmds, s->env);
		s->there.cb = there_open;
		env_post(s->env, &s->there);
	}
	if (count == 1)
		done(node, 0);
}

/* ---- closing ---- */

static void on_mirror_closed(void *arg)
{
	struct node_shard *s = arg;
	struct node *node = s->node;

	s->cmmds = NULL;
	if (--node->shards_pending == 0)
		node->shards_done(node, 0);
}

static void on_closed(struct env_task *task)
{
	struct node_shard *s = container_of(task, struct node_shard, here);

	s->dom = NULL;
	cmmds_mirror_close(s->cmmds, on_mirror_closed, s);
}

static void there_closed(void *arg)
{
	struct node_shard *s = arg;

	s->here.cb = on_closed;
	env_post(s->node->env, &s->here);
}

static void there_close(struct env_task *task)
{
	struct node_shard *s = container_of(task, struct node_shard, there);

	dom_close(s->dom, there_closed, s);
}

void node__shards_close(struct node *node,
			void (*done)(struct node *node, int status))
{
	node->shards_done = done;
	node->shards_pending = 1;
	for (unsigned i = 1; i < ARRAY_LEN(node->shard); i++) {
		struct node_shard *s = &node->shard[i];

		if (s->cmmds == NULL)
			continue;
		node->shards_pending++;
		/* Health checks do not look at it from now on. */
		node->doms[i] = NULL;
		if (s->dom == NULL) {
			cmmds_mirror_close(s->cmmds, on_mirror_closed, s);
			continue;
		}
		s->there.cb = there_close;
		env_post(s->env, &s->there);
	}
	if (--node->shards_pending == 0)
		done(node, 0);
}
