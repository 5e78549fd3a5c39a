/* kv: a batch of changes, as every backend reads it, and what one may lack. */
#include "base/kv.h"

#include "base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

void kv_batch_init(struct kv_batch *batch)
{
	memset(batch, 0, sizeof(*batch));
}

void kv_batch_clear(struct kv_batch *batch)
{
	batch->changes_count = 0;
	batch->bytes_count = 0;
}

void kv_batch_fini(struct kv_batch *batch)
{
	free(batch->changes);
	free(batch->bytes);
	memset(batch, 0, sizeof(*batch));
}

/* NULL: no memory, and @old is as it was. */
static void *grow_to(void *old, size_t *room, size_t need, size_t item)
{
	size_t more = *room;
	void *p;

	if (need <= *room)
		return old;
	while (more < need)
		more = more > 0 ? more * 2 : 64;
	p = realloc(old, more * item);
	if (p != NULL)
		*room = more;
	return p;
}

/* Of who did not reserve it: not survivable. */
static void *grow(void *old, size_t *room, size_t need, size_t item)
{
	void *p = grow_to(old, room, need, item);

	if (p == NULL)
		abort();
	return p;
}

int kv_batch_reserve(struct kv_batch *batch, size_t changes, size_t bytes)
{
	void *p;

	p = grow_to(batch->changes, &batch->changes_room,
		    batch->changes_count + changes, sizeof(*batch->changes));
	if (p == NULL)
		return -ENOMEM;
	batch->changes = p;
	/* One of an empty key, and one behind the last. */
	p = grow_to(batch->bytes, &batch->bytes_room,
		    batch->bytes_count + bytes + changes + 1, 1);
	if (p == NULL)
		return -ENOMEM;
	batch->bytes = p;
	return 0;
}

static size_t batch_bytes(struct kv_batch *batch, struct kv_slice s)
{
	size_t at = batch->bytes_count;

	batch->bytes =
		grow(batch->bytes, &batch->bytes_room, at + s.len + 1, 1);
	if (s.len > 0)
		memcpy(batch->bytes + at, s.data, s.len);
	batch->bytes_count = at + s.len;
	return at;
}

static void batch_add(struct kv_batch *batch, enum kv_change_type type,
		      struct kv_slice key, struct kv_slice value)
{
	struct kv_change *change;

	batch->changes = grow(batch->changes, &batch->changes_room,
			      batch->changes_count + 1, sizeof(*change));
	change = &batch->changes[batch->changes_count++];
	change->type = type;
	change->key_len = (uint32_t)key.len;
	change->value_len = (uint32_t)value.len;
	change->key_at = batch_bytes(batch, key);
	if (key.len == 0)
		batch->bytes[batch->bytes_count++] = 0; /* see order_of() */
	change->value_at = batch_bytes(batch, value);
}

void kv_batch_put(struct kv_batch *batch, struct kv_slice key,
		  struct kv_slice value)
{
	batch_add(batch, KV_PUT, key, value);
}

void kv_batch_delete(struct kv_batch *batch, struct kv_slice key)
{
	batch_add(batch, KV_DELETE, key, kv_slice(NULL, 0));
}

void kv_batch_merge(struct kv_batch *batch, struct kv_slice key,
		    struct kv_slice operand)
{
	batch_add(batch, KV_MERGE, key, operand);
}

void kv_batch_delete_range(struct kv_batch *batch, struct kv_slice from,
			   struct kv_slice to)
{
	batch_add(batch, KV_DELETE_RANGE, from, to);
}

/*
 * Changes of one key keep their order: the bytes of a later one come later, and
 * an empty one has a byte, too.
 */
static int order_of(const void *left, const void *right, void *bytes)
{
	const struct kv_change *a = left, *b = right;
	const uint8_t *keys = bytes;
	int order = memcmp(keys + a->key_at, keys + b->key_at,
			   MIN(a->key_len, b->key_len));

	if (order == 0 && a->key_len != b->key_len)
		order = a->key_len < b->key_len ? -1 : 1;
	if (order == 0)
		order = a->key_at < b->key_at ? -1 : 1;
	return order;
}

void kv_batch_sort(struct kv_batch *batch)
{
	struct kv_change *first = batch->changes, *end, *c;

	if (batch->changes_count == 0)
		return;
	end = first + batch->changes_count;
	for (c = first; c < end; c++) {
		if (c->type != KV_DELETE_RANGE)
			continue;
		qsort_r(first, (size_t)(c - first), sizeof(*c), order_of,
			batch->bytes);
		first = c + 1;
	}
	qsort_r(first, (size_t)(end - first), sizeof(*c), order_of,
		batch->bytes);
}

const char *kv_wanted(int status)
{
	switch (status) {
	case -EMFILE:
		return "file descriptor";
	case -ENFILE:
		return "file descriptor of the system";
	case -ENOMEM:
		return "memory";
	default:
		return "space";
	}
}

void kv_wanted_fix(int status, const char *then, char *out, size_t len)
{
	struct rlimit files = { 0 };

	if (status == -EMFILE) {
		(void)getrlimit(RLIMIT_NOFILE, &files);
		snprintf(out, len,
			 "Raise basaltd's limit of open files, which is %llu: "
			 "prlimit --pid %d --nofile=NUMBER, and LimitNOFILE= "
			 "of its unit; then %s",
			 (unsigned long long)files.rlim_cur, (int)getpid(),
			 then);
	} else if (status == -ENFILE) {
		snprintf(out, len,
			 "Raise the system's limit of open files: sysctl "
			 "fs.file-max=NUMBER; then %s",
			 then);
	} else if (status == -ENOMEM) {
		snprintf(out, len, "Free memory on this node; then %s", then);
	} else {
		snprintf(out, len, "Free space in data_dir; then %s", then);
	}
}
