/*
 * kv: an ordered key-value store, RocksDB in the daemon (kv_rocksdb.c) and an
 * in-memory twin in the simulator.  Every call blocks: make it from env_work().
 *
 * Keys are compared as bytes.  One store is one column family: with several,
 * a flush by hand through RocksDB's C interface is not atomic.
 */
#ifndef BASALT_BASE_KV_H
#define BASALT_BASE_KV_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kv;
struct kv_batch;

struct kv_slice {
	const void *data;
	size_t len;
};

/*
 * Fold @operands, oldest first, into @old (data NULL: no value) and return the
 * new value in malloc()ed memory, *@out_len its length; or NULL, errno says why:
 * ENOMEM, else it is corruption.  Runs on any thread, and again over results of
 * partial folds.
 */
typedef void *(*kv_merge_fn)(struct kv_slice key, struct kv_slice old,
			     const struct kv_slice *operands, size_t count,
			     size_t *out_len);

struct kv_config {
	const char *path;
	bool create; /* -EEXIST is not an error; without: -ENOENT */
	bool log; /* write-ahead log on; every batch is synced */
	size_t memory_bytes; /* write buffer + block cache; 0: 64 MiB */
	kv_merge_fn merge; /* NULL: kv_batch_merge() is not used */
};

struct kv_ops {
	void (*close)(struct kv *kv);
	int (*get)(struct kv *kv, struct kv_slice key, void **out,
		   size_t *out_len);
	int (*apply)(struct kv *kv, struct kv_batch *batch);
	int (*flush)(struct kv *kv);
	int (*reopen)(struct kv *kv, struct kv_batch *batch); /* or NULL */
	int (*scan)(struct kv *kv, struct kv_slice from, struct kv_slice to,
		    bool (*cb)(void *arg, struct kv_slice key,
			       struct kv_slice value),
		    void *arg);
};

struct kv {
	const struct kv_ops *ops;
};

/* A batch is a list of changes in memory; any backend reads it. */
enum kv_change_type { KV_PUT, KV_DELETE, KV_MERGE, KV_DELETE_RANGE };

struct kv_change {
	enum kv_change_type type;
	uint32_t key_len, value_len; /* a range's end is in the value's place */
	size_t key_at, value_at; /* into kv_batch.bytes */
};

struct kv_batch {
	struct kv_change *changes;
	size_t changes_count, changes_room;
	uint8_t *bytes;
	size_t bytes_count, bytes_room;
};

void kv_batch_init(struct kv_batch *batch);
void kv_batch_clear(struct kv_batch *batch); /* keeps its memory */
void kv_batch_fini(struct kv_batch *batch);
/*
 * Have room for @changes more, of @bytes of keys and values in all, so that adding
 * them cannot fail; without it there is no going on where memory ends.  0, -ENOMEM.
 */
int kv_batch_reserve(struct kv_batch *batch, size_t changes, size_t bytes);
void kv_batch_put(struct kv_batch *batch, struct kv_slice key,
		  struct kv_slice value);
void kv_batch_delete(struct kv_batch *batch, struct kv_slice key);
void kv_batch_merge(struct kv_batch *batch, struct kv_slice key,
		    struct kv_slice operand);
/* Keys in [from, to). */
void kv_batch_delete_range(struct kv_batch *batch, struct kv_slice from,
			   struct kv_slice to);

/*
 * The same batch with the changes between two deletions of ranges in the order
 * of their keys, those of one key in their own: what a store takes at the least
 * cost.
 */
void kv_batch_sort(struct kv_batch *batch);

static inline struct kv_slice kv_slice(const void *data, size_t len)
{
	return (struct kv_slice){ data, len };
}

/* Flushes nothing: call kv_flush() first where it matters.  NULL is ignored. */
static inline void kv_close(struct kv *kv)
{
	if (kv != NULL)
		kv->ops->close(kv);
}

/*
 * Returns 0 with malloc()ed *@out; -ENOENT; -EIO; -EUCLEAN; of this call and the
 * others -ENOMEM, -EMFILE, -ENFILE, -EACCES and -EROFS too, which say nothing against
 * the store.
 */
static inline int kv_get(struct kv *kv, struct kv_slice key, void **out,
			 size_t *out_len)
{
	return kv->ops->get(kv, key, out, out_len);
}

/*
 * Apply all changes or none.  With config.log durable on return; without, it
 * becomes durable in order, by kv_flush() or by itself.
 *
 * Without a log -ENOSPC, of this and of kv_flush(), loses nothing: what was applied
 * is read as before, and both may be asked again until there is room.  -EDQUOT is
 * that, too, and -EMFILE, -ENFILE and -ENOMEM are it of other things than room, but
 * the store stays so until kv_reopen().
 */
static inline int kv_apply(struct kv *kv, struct kv_batch *batch)
{
	return kv->ops->apply(kv, batch);
}

/* Everything applied before this call is durable when it returns 0. */
static inline int kv_flush(struct kv *kv)
{
	return kv->ops->flush(kv);
}

/* What @status, of these two, says is wanted may come: it is worth asking again. */
static inline bool kv_wants(int status)
{
	return status == -ENOSPC || status == -EDQUOT || status == -EMFILE ||
	       status == -ENFILE || status == -ENOMEM;
}

/* What that is: "space", "memory". */
const char *kv_wanted(int status);
/* What to do, so that @then; of room a caller knows more than "data_dir". */
void kv_wanted_fix(int status, const char *then, char *out, size_t len);

/*
 * After such a status, other than -ENOSPC: close it, open it again and apply @batch;
 * nothing else may be under way.  What was applied and not flushed may be gone, so
 * @batch is all of that.  0; -ENOSPC: there is no room yet, and all is as it was;
 * -EMFILE, -ENFILE, -ENOMEM: not yet, and until it is kv_get() may say that, too;
 * else it is of no use any more.
 */
static inline int kv_reopen(struct kv *kv, struct kv_batch *batch)
{
	return kv->ops->reopen(kv, batch);
}

/* Visit keys of [from, to) in order (to.data NULL: to the end) until false. */
static inline int
kv_scan(struct kv *kv, struct kv_slice from, struct kv_slice to,
	bool (*cb)(void *arg, struct kv_slice key, struct kv_slice value),
	void *arg)
{
	return kv->ops->scan(kv, from, to, cb, arg);
}

/* The RocksDB backend, as env_ops.kv_open of the daemon uses it. */
int kv_rocksdb_open(const struct kv_config *config, struct kv **out);

#endif
