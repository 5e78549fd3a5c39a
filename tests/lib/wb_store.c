/* wb_store: two tables and the batches between them. */
#include "tests/lib/wb_store.h"

#include "tests/lib/memkv.h"
#include "tests/lib/must.h"
#include "tests/lib/pattern.h"

struct wb_kv {
	struct kv kv; /* first */
	struct wb_store *store;
};

struct wb_store *wb_kv_store(struct kv *kv)
{
	return ((struct wb_kv *)kv)->store;
}

void wb_kv_close(struct kv *kv)
{
	free(kv);
}

int wb_kv_get(struct kv *kv, struct kv_slice key, void **out, size_t *out_len)
{
	return kv_get(wb_kv_store(kv)->now, key, out, out_len);
}

int wb_kv_scan(struct kv *kv, struct kv_slice from, struct kv_slice to,
	       bool (*cb)(void *arg, struct kv_slice key,
			  struct kv_slice value),
	       void *arg)
{
	return kv_scan(wb_kv_store(kv)->now, from, to, cb, arg);
}

static void batch_copy(struct kv_batch *to, const struct kv_batch *from)
{
	*to = *from;
	to->changes_room = from->changes_count + 1;
	to->bytes_room = from->bytes_count + 1;
	to->changes = must(malloc(to->changes_room * sizeof(*to->changes)));
	to->bytes = must(malloc(to->bytes_room));
	if (from->changes_count > 0)
		memcpy(to->changes, from->changes,
		       from->changes_count * sizeof(*to->changes));
	if (from->bytes_count > 0)
		memcpy(to->bytes, from->bytes, from->bytes_count);
}

/* The oldest batch goes, flushed or lost. */
static void batch_end(struct wb_store *s, bool flush)
{
	struct wb_batch *b = TAILQ_FIRST(&s->batches);

	TAILQ_REMOVE(&s->batches, b, link);
	if (flush && kv_apply(s->flushed, &b->batch) < 0)
		abort();
	kv_batch_fini(&b->batch);
	free(b);
}

static void batches_lose(struct wb_store *s)
{
	while (!TAILQ_EMPTY(&s->batches))
		batch_end(s, false);
}

void wb_store_init(struct wb_store *s)
{
	s->merge = NULL;
	s->now = s->flushed = NULL;
	TAILQ_INIT(&s->batches);
}

void wb_store_fini(struct wb_store *s)
{
	batches_lose(s);
	kv_close(s->now);
	kv_close(s->flushed);
}

struct kv *wb_store_open(struct wb_store *s, const struct kv_ops *ops,
			 kv_merge_fn merge)
{
	struct wb_kv *kv = must(calloc(1, sizeof(*kv)));

	s->merge = merge;
	if (s->now == NULL)
		wb_store_load(s, NULL);
	kv->kv.ops = ops;
	kv->store = s;
	return &kv->kv;
}

void wb_store_apply(struct wb_store *s, struct kv_batch *batch)
{
	struct wb_batch *b = must(calloc(1, sizeof(*b)));

	batch_copy(&b->batch, batch);
	if (kv_apply(s->now, batch) < 0)
		abort();
	TAILQ_INSERT_TAIL(&s->batches, b, link);
}

void wb_store_flush(struct wb_store *s)
{
	while (!TAILQ_EMPTY(&s->batches))
		batch_end(s, true);
}

void wb_store_tear(struct wb_store *s, uint64_t *random)
{
	while (!TAILQ_EMPTY(&s->batches) && random_next(random) % 3 != 0)
		batch_end(s, true);
}

void wb_store_restore(struct wb_store *s)
{
	batches_lose(s);
	if (s->now == NULL)
		return;
	kv_close(s->now);
	s->now = memkv_clone((struct memkv *)s->flushed, s->merge);
}

void wb_store_load(struct wb_store *s, const struct memkv *table)
{
	batches_lose(s);
	kv_close(s->now);
	kv_close(s->flushed);
	s->now = memkv_clone(table, s->merge);
	s->flushed = memkv_clone(table, s->merge);
}
