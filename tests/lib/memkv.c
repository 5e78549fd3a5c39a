/*
 * memkv: a sorted array of keys and values.  Merge operands are folded as they
 * come; everything applied counts as flushed, as no power cut happens to it.
 */
#include "tests/lib/memkv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct item {
	uint8_t *key, *value;
	size_t key_len, value_len;
};

struct memkv {
	struct kv kv; /* first */
	struct item *items;
	size_t count, room;
	kv_merge_fn merge;
};

static void *copy(const void *data, size_t len)
{
	void *p = malloc(len ? len : 1);

	if (p == NULL)
		abort();
	if (len > 0)
		memcpy(p, data, len);
	return p;
}

static int compare(const struct item *item, struct kv_slice key)
{
	size_t n = item->key_len < key.len ? item->key_len : key.len;
	int c = n ? memcmp(item->key, key.data, n) : 0;

	if (c != 0)
		return c;
	return item->key_len < key.len ? -1 : item->key_len > key.len;
}

/* The first item not below @key. */
static size_t find(const struct memkv *t, struct kv_slice key)
{
	size_t low = 0, high = t->count;

	while (low < high) {
		size_t mid = (low + high) / 2;

		if (compare(&t->items[mid], key) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static bool at_key(const struct memkv *t, size_t i, struct kv_slice key)
{
	return i < t->count && compare(&t->items[i], key) == 0;
}

void memkv_put(struct memkv *t, struct kv_slice key, struct kv_slice value)
{
	size_t i = find(t, key);

	if (!at_key(t, i, key)) {
		if (t->count == t->room) {
			t->room = t->room ? t->room * 2 : 64;
			t->items =
				realloc(t->items, t->room * sizeof(*t->items));
			if (t->items == NULL)
				abort();
		}
		memmove(&t->items[i + 1], &t->items[i],
			(t->count - i) * sizeof(*t->items));
		t->count++;
		t->items[i] = (struct item){ .key = copy(key.data, key.len),
					     .key_len = key.len };
	} else {
		free(t->items[i].value);
	}
	t->items[i].value = copy(value.data, value.len);
	t->items[i].value_len = value.len;
}

static void remove_range(struct memkv *t, size_t from, size_t to)
{
	if (from == to)
		return; /* there may be no items at all */
	for (size_t i = from; i < to; i++) {
		free(t->items[i].key);
		free(t->items[i].value);
	}
	memmove(&t->items[from], &t->items[to],
		(t->count - to) * sizeof(*t->items));
	t->count -= to - from;
}

struct memkv *memkv_new(void)
{
	struct memkv *t = calloc(1, sizeof(*t));

	if (t == NULL)
		abort();
	return t;
}

void memkv_free(struct memkv *t)
{
	if (t == NULL)
		return;
	remove_range(t, 0, t->count);
	free(t->items);
	free(t);
}

static void kv_close_cb(struct kv *kv)
{
	memkv_free((struct memkv *)kv);
}

static int kv_get_cb(struct kv *kv, struct kv_slice key, void **out,
		     size_t *out_len)
{
	struct memkv *t = (struct memkv *)kv;
	size_t i = find(t, key);

	if (!at_key(t, i, key))
		return -ENOENT;
	*out = copy(t->items[i].value, t->items[i].value_len);
	*out_len = t->items[i].value_len;
	return 0;
}

static int merge_one(struct memkv *t, struct kv_slice key,
		     struct kv_slice operand)
{
	size_t i = find(t, key), len;
	struct kv_slice old = kv_slice(NULL, 0);
	void *value;

	if (at_key(t, i, key))
		old = kv_slice(t->items[i].value, t->items[i].value_len);
	value = t->merge(key, old, &operand, 1, &len);
	if (value == NULL)
		return errno == ENOMEM ? -ENOMEM : -EUCLEAN;
	memkv_put(t, key, kv_slice(value, len));
	free(value);
	return 0;
}

static int kv_apply_cb(struct kv *kv, struct kv_batch *batch)
{
	struct memkv *t = (struct memkv *)kv;

	for (size_t n = 0; n < batch->changes_count; n++) {
		const struct kv_change *c = &batch->changes[n];
		struct kv_slice key =
			kv_slice(batch->bytes + c->key_at, c->key_len);
		struct kv_slice value =
			kv_slice(batch->bytes + c->value_at, c->value_len);
		size_t i = find(t, key);
		int rv = 0;

		switch (c->type) {
		case KV_PUT:
			memkv_put(t, key, value);
			break;
		case KV_DELETE:
			if (at_key(t, i, key))
				remove_range(t, i, i + 1);
			break;
		case KV_MERGE:
			rv = merge_one(t, key, value);
			break;
		case KV_DELETE_RANGE:
			if (find(t, value) > i)
				remove_range(t, i, find(t, value));
			break;
		}
		if (rv != 0)
			return rv;
	}
	return 0;
}

static int kv_flush_cb(struct kv *kv)
{
	return 0;
}

static int kv_scan_cb(struct kv *kv, struct kv_slice from, struct kv_slice to,
		      bool (*cb)(void *arg, struct kv_slice key,
				 struct kv_slice value),
		      void *arg)
{
	struct memkv *t = (struct memkv *)kv;

	for (size_t i = from.data ? find(t, from) : 0; i < t->count; i++) {
		const struct item *item = &t->items[i];

		if (to.data != NULL && compare(item, to) >= 0)
			break;
		if (!cb(arg, kv_slice(item->key, item->key_len),
			kv_slice(item->value, item->value_len)))
			break;
	}
	return 0;
}

static const struct kv_ops memkv_ops = {
	.close = kv_close_cb,
	.get = kv_get_cb,
	.apply = kv_apply_cb,
	.flush = kv_flush_cb,
	.scan = kv_scan_cb,
};

struct kv *memkv_clone(const struct memkv *table, kv_merge_fn merge)
{
	struct memkv *t = memkv_new();

	t->kv.ops = &memkv_ops;
	t->merge = merge;
	if (table == NULL)
		return &t->kv;
	t->items = calloc(table->count ? table->count : 1, sizeof(*t->items));
	if (t->items == NULL)
		abort();
	t->count = t->room = table->count;
	for (size_t i = 0; i < table->count; i++) {
		const struct item *from = &table->items[i];

		t->items[i] = (struct item){
			.key = copy(from->key, from->key_len),
			.value = copy(from->value, from->value_len),
			.key_len = from->key_len,
			.value_len = from->value_len,
		};
	}
	if (t->room == 0)
		t->room = 1;
	return &t->kv;
}
