/*
 * parts: work that looks at very many things, in parts.
 *
 * A node has tens of thousands of virtual disks, and an answer that tells of all of
 * them takes the processor for a while.  Nothing else is served during a turn of
 * the loop, so some of them are looked at in each, for all such works together,
 * and the works take turns.
 */
#include "base/util.h"
#include "node/node_int.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static void on_turn(struct env_timer *timer)
{
	struct node *node = container_of(timer, struct node, parts_timer);
	struct node_parts *parts = TAILQ_FIRST(&node->parts);

	TAILQ_REMOVE(&node->parts, parts, link);
	if (parts->part(parts, NODE_PART))
		TAILQ_INSERT_TAIL(&node->parts, parts, link);
	if (!TAILQ_EMPTY(&node->parts))
		env_timer_start(node->env, timer, ENV_NEXT_TURN_NS);
}

void node__parts_open(struct node *node)
{
	TAILQ_INIT(&node->parts);
	node->parts_timer.cb = on_turn;
}

void node__parts_start(struct node *node, struct node_parts *parts)
{
	TAILQ_INSERT_TAIL(&node->parts, parts, link);
	if (!env_timer_active(&node->parts_timer))
		env_timer_start(node->env, &node->parts_timer,
				ENV_NEXT_TURN_NS);
}

void node__parts_stop(struct node *node, struct node_parts *parts)
{
	TAILQ_REMOVE(&node->parts, parts, link);
	if (TAILQ_EMPTY(&node->parts))
		env_timer_stop(node->env, &node->parts_timer);
}

int node__walk(struct node *node, struct node_walk *walk, enum cmmds_kind kind,
	       unsigned max,
	       bool (*each)(const struct cmmds_entry *e, void *arg), void *arg)
{
	const struct cmmds_entry *e, *last = NULL;

	if (node->state != NODE_UP)
		return -ESHUTDOWN;
	e = cmmds_behind(node->cmmds, kind, walk->key, walk->key_len);
	walk->left = max;
	while (e != NULL && walk->left > 0) {
		walk->left--;
		if (!each(e, arg))
			return 0;
		last = e;
		e = cmmds_next(node->cmmds, kind, e);
	}
	if (e == NULL)
		return 0;
	if (last != NULL)
		node__walk_from(walk, last->key, last->key_len);
	return 1;
}

void node__walk_from(struct node_walk *walk, const void *key, size_t key_len)
{
	assert(key_len <= sizeof(walk->key));
	memcpy(walk->key, key, key_len);
	walk->key_len = key_len;
}
