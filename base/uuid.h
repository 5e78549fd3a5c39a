/* uuid: 128-bit ids of clusters, nodes, disks, objects and components. */
#ifndef BASALT_BASE_UUID_H
#define BASALT_BASE_UUID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct uuid {
	uint8_t b[16];
};

#define UUID_TEXT_LEN 37 /* 36 characters and NUL */

struct env;

/* A random (version 4) id from the environment's generator. */
void uuid_make(struct env *env, struct uuid *out);

/* Canonical lower-case text. */
void uuid_format(const struct uuid *id, char out[UUID_TEXT_LEN]);

/* Returns 0 or -EINVAL. */
int uuid_parse(const char *text, struct uuid *out);

static inline bool uuid_equal(const struct uuid *a, const struct uuid *b)
{
	return memcmp(a->b, b->b, sizeof(a->b)) == 0;
}

static inline bool uuid_is_zero(const struct uuid *id)
{
	static const struct uuid zero;

	return uuid_equal(id, &zero);
}

/* A well mixed 64-bit hash, the same on every node: object -> shard. */
uint64_t uuid_hash(const struct uuid *id);

#endif
