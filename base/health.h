/*
 * health: named checks.  A room registers a check; `basalt health` runs all of
 * them on the loop of shard 0 and prints cause and fix of what is not well.
 */
#ifndef BASALT_BASE_HEALTH_H
#define BASALT_BASE_HEALTH_H

#include <stddef.h>

enum health_level { HEALTH_OK, HEALTH_INFO, HEALTH_WARN, HEALTH_BAD };

struct health_result {
	enum health_level level;
	char cause[320]; /* what is so; empty when OK */
	char fix[300]; /* what to do */
};

struct health_check {
	const char *name; /* "disk-space", "directory-voters" */
	void (*run)(struct health_check *check, struct health_result *out);
	void *data; /* the room's */
	/* private */
	struct health_check *next;
};

void health_register(struct health_check *check);
void health_unregister(struct health_check *check);
void health_each(void (*cb)(const struct health_check *check,
			    const struct health_result *result, void *arg),
		 void *arg);

const char *health_level_name(enum health_level level);

#endif
