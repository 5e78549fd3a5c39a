/*
 * dom_refuse: the rig, with deletions of components, or another change of them,
 * refused while a test wants it; on one shard.
 */
#ifndef BASALT_TESTS_DOM_REFUSE_H
#define BASALT_TESTS_DOM_REFUSE_H

#include "tests/unit/dom_rig.h"

#if RIG_SHARDS == 1

/* @refuse: at once, or, @refuse_later, its callback hears of it. */
static int refuse;
static enum lsom_meta_op refuse_op = LSOM_DELETE;
static bool refuse_later;
static unsigned refusals; /* how many there were */
static unsigned refused_count;
static struct {
	struct lsom_meta *req;
	lsom_meta_cb cb;
} refused[DISKS];

static void refused_task(struct env_task *task)
{
	(void)task;
	while (refused_count > 0) {
		refused_count--;
		refused[refused_count].cb(refused[refused_count].req, refuse);
	}
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
int __real_lsom_comp_update(struct lsom_comp *comp, struct lsom_meta *req,
			    lsom_meta_cb cb);
int __wrap_lsom_comp_update(struct lsom_comp *comp, struct lsom_meta *req,
			    lsom_meta_cb cb);

int __wrap_lsom_comp_update(struct lsom_comp *comp, struct lsom_meta *req,
			    lsom_meta_cb cb)
{
	static struct env_task task = { .cb = refused_task };

	if (refuse == 0 || req->op != refuse_op)
		return __real_lsom_comp_update(comp, req, cb);
	refusals++;
	if (!refuse_later)
		return refuse;
	CHECK(refused_count < ARRAY_LEN(refused));
	refused[refused_count].req = req;
	refused[refused_count++].cb = cb;
	env_defer(faults.env, &task);
	return 0;
}
/* NOLINTEND(bugprone-reserved-identifier) */
#endif

#endif
