/* memkv: an ordered key-value store in memory, behind base/kv.h. */
#ifndef BASALT_TESTS_MEMKV_H
#define BASALT_TESTS_MEMKV_H

#include "base/kv.h"

struct memkv;

struct memkv *memkv_new(void);
void memkv_free(struct memkv *table); /* NULL is ignored */
void memkv_put(struct memkv *table, struct kv_slice key, struct kv_slice value);

/* A store that starts with what @table (NULL: nothing) holds. */
struct kv *memkv_clone(const struct memkv *table, kv_merge_fn merge);

#endif
