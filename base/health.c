/* health: the list of checks, run on shard 0's loop only. */
#include "base/health.h"

#include <assert.h>

static struct health_check *first;

void health_register(struct health_check *check)
{
	struct health_check **at;

	for (at = &first; *at != NULL; at = &(*at)->next)
		assert(*at != check);
	check->next = NULL;
	*at = check;
}

void health_unregister(struct health_check *check)
{
	for (struct health_check **at = &first; *at; at = &(*at)->next)
		if (*at == check) {
			*at = check->next;
			return;
		}
}

void health_each(void (*cb)(const struct health_check *check,
			    const struct health_result *result, void *arg),
		 void *arg)
{
	for (struct health_check *c = first; c != NULL; c = c->next) {
		struct health_result result = { .level = HEALTH_OK };

		c->run(c, &result);
		cb(c, &result, arg);
	}
}

const char *health_level_name(enum health_level level)
{
	static const char *const names[] = { "ok", "info", "warning", "bad" };

	return names[level];
}
