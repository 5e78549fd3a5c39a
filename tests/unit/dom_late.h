/* dom_late: a directory that does not answer in time. */
#ifndef BASALT_TESTS_DOM_LATE_H
#define BASALT_TESTS_DOM_LATE_H

#include "tests/unit/dom_rig.h"

#include "cmmds/cmmds_int.h"

/* What is asked of it has no time left. */
static inline void no_time_left(struct fixture *f)
{
	struct cmmds *cmmds = f->cmmds;
	struct cmmds_command *cmd;
	struct cmmds_barrier *bar;

	TAILQ_FOREACH (cmd, &cmmds->commands, link)
		cmd->deadline_ns = 0;
	TAILQ_FOREACH (bar, &cmmds->barriers, link)
		bar->deadline_ns = 0;
	env_timer_start(f->ts.env, &cmmds->deadline, 0);
}

/* All that is asked of it now is answered: unknown. */
static inline void times_out(struct fixture *f)
{
	struct cmmds *cmmds = f->cmmds;
	const struct cmmds_command *first;
	const struct cmmds_barrier *bar;
	bool late;

	no_time_left(f);
	do {
		shard_step(f->ts.env, MSEC);
		first = TAILQ_FIRST(&cmmds->commands);
		bar = TAILQ_FIRST(&cmmds->barriers);
		late = (first != NULL && first->deadline_ns == 0) ||
		       (bar != NULL && bar->deadline_ns == 0);
	} while (late);
}

#endif
