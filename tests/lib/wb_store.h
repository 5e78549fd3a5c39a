/*
 * wb_store: a key-value store in memory that keeps, when the power goes, what
 * was flushed and any prefix of what was applied after that.
 *
 * An env's own kv_ops begin with WB_KV_OPS and bring apply and flush, where it
 * has its faults.
 */
#ifndef BASALT_TESTS_WB_STORE_H
#define BASALT_TESTS_WB_STORE_H

#include "base/kv.h"

#include <sys/queue.h>

struct memkv;

struct wb_batch {
	struct kv_batch batch;
	TAILQ_ENTRY(wb_batch) link;
};

struct wb_store {
	kv_merge_fn merge;
	struct kv *now, *flushed; /* memkv; NULL: never opened */
	TAILQ_HEAD(, wb_batch) batches; /* applied, not flushed */
};

/* All of it aborts when memory is short. */
void wb_store_init(struct wb_store *store);
void wb_store_fini(struct wb_store *store);

/* The contents stay from one opening to the next. */
struct kv *wb_store_open(struct wb_store *store, const struct kv_ops *ops,
			 kv_merge_fn merge);

void wb_store_apply(struct wb_store *store, struct kv_batch *batch);
void wb_store_flush(struct wb_store *store);

/* The power is cut: a prefix of the batches, by @random's dice, is flushed. */
void wb_store_tear(struct wb_store *store, uint64_t *random);
/* Back to what was flushed. */
void wb_store_restore(struct wb_store *store);
/* Hold what @table (NULL: nothing) holds, flushed. */
void wb_store_load(struct wb_store *store, const struct memkv *table);

#define WB_KV_OPS .close = wb_kv_close, .get = wb_kv_get, .scan = wb_kv_scan

void wb_kv_close(struct kv *kv);
int wb_kv_get(struct kv *kv, struct kv_slice key, void **out, size_t *out_len);
int wb_kv_scan(struct kv *kv, struct kv_slice from, struct kv_slice to,
	       bool (*cb)(void *arg, struct kv_slice key,
			  struct kv_slice value),
	       void *arg);
/* What wb_store_open() was given. */
struct wb_store *wb_kv_store(struct kv *kv);

#endif
