/*
 * iorecord: parse, match completions with what they complete, and find for
 * every write the event that made it durable: its own completion if it was
 * submitted so, else that of a flush submitted after its completion.  A batch of
 * the index waits for a flush of its store in the same way.
 */
#include "tests/lib/iorecord.h"

#include "base/env.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static bool ends_with(const uint8_t *data, size_t len, const char *suffix)
{
	size_t n = strlen(suffix);

	while (len > 0 && data[len - 1] == '\0')
		len--;
	return len >= n && memcmp(data + len - n, suffix, n) == 0;
}

static int parse(struct io_record *r, const char *suffix)
{
	const uint8_t *map = r->map;
	uint64_t at = 0, room = 0;
	uint32_t dev = UINT32_MAX, store = UINT32_MAX;

	while (r->bytes - at >= sizeof(struct record_head)) {
		struct record_head head;
		struct io_event *e;

		memcpy(&head, map + at, sizeof(head));
		if (head.magic != RECORD_MAGIC)
			return -EPROTO;
		at += sizeof(head);
		if (head.len > r->bytes - at)
			break;
		at += head.len;
		if (head.kind == RECORD_OPEN &&
		    ends_with(map + at - head.len, head.len, suffix))
			dev = head.dev;
		if (head.kind == RECORD_STORE_OPEN) {
			if (store != UINT32_MAX)
				return -EPROTO;
			store = head.dev;
		}
		if (head.kind == RECORD_OPEN ||
		    head.kind == RECORD_STORE_OPEN ||
		    (head.kind != RECORD_NOTE && head.dev != dev &&
		     head.dev != store))
			continue;
		if (r->count == room) {
			room = room ? room * 2 : 4096;
			r->events =
				realloc(r->events, room * sizeof(*r->events));
			if (r->events == NULL)
				return -ENOMEM;
		}
		e = &r->events[r->count++];
		*e = (struct io_event){
			.kind = head.kind,
			.flags = head.flags,
			.id = head.id,
			.offset = head.offset,
			.len = head.len,
			.data = map + at - head.len,
			.end = at,
			.safe_at = SIZE_MAX,
			.done_at = SIZE_MAX,
		};
	}
	return dev == UINT32_MAX ? -ENOENT : 0;
}

/* Where the completion of event @i is; SIZE_MAX: never, or it failed. */
static size_t done_of(const struct io_record *r, size_t i)
{
	for (size_t j = i + 1; j < r->count; j++)
		if (r->events[j].kind == RECORD_DONE &&
		    r->events[j].id == r->events[i].id)
			return (int64_t)r->events[j].offset < 0 ? SIZE_MAX : j;
	return SIZE_MAX;
}

/* Where a flush that began after event @i was done. */
static size_t flushed_after(const struct io_record *r, size_t i, uint32_t flush)
{
	for (size_t j = i; j < r->count; j++)
		if (r->events[j].kind == flush && done_of(r, j) != SIZE_MAX)
			return done_of(r, j);
	return SIZE_MAX;
}

int io_record_open(const char *path, const char *suffix, bool ignore_durable,
		   struct io_record *out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), rv;
	struct stat st;

	memset(out, 0, sizeof(*out));
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) != 0 || st.st_size == 0) {
		close(fd);
		return -ENODATA;
	}
	out->bytes = (uint64_t)st.st_size;
	out->map = mmap(NULL, out->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (out->map == MAP_FAILED)
		return -errno;
	rv = parse(out, suffix);
	if (rv != 0) {
		io_record_close(out);
		return rv;
	}
	for (size_t i = 0; i < out->count; i++) {
		struct io_event *e = &out->events[i];
		bool batch = e->kind == RECORD_STORE_BATCH;

		if (e->kind != RECORD_WRITE && !batch)
			continue;
		e->done_at = e->safe_at = done_of(out, i);
		if (e->safe_at == SIZE_MAX)
			continue;
		if (batch)
			e->safe_at = flushed_after(out, e->done_at,
						   RECORD_STORE_FLUSH);
		else if (ignore_durable || !(e->flags & ENV_DURABLE))
			e->safe_at =
				flushed_after(out, e->done_at, RECORD_FLUSH);
	}
	return 0;
}

static bool changes_valid(const struct kv_batch *b)
{
	for (size_t i = 0; i < b->changes_count; i++) {
		const struct kv_change *c = &b->changes[i];

		if (c->type > KV_DELETE_RANGE || c->key_at > b->bytes_count ||
		    c->key_len > b->bytes_count - c->key_at ||
		    c->value_at > b->bytes_count ||
		    c->value_len > b->bytes_count - c->value_at)
			return false;
	}
	return true;
}

int io_event_batch(const struct io_event *event, struct kv_batch *out)
{
	uint64_t count, left = event->len;
	const uint8_t *at = event->data;

	kv_batch_init(out);
	if (left < sizeof(count))
		return -EPROTO;
	memcpy(&count, at, sizeof(count));
	at += sizeof(count);
	left -= sizeof(count);
	if (count > left / sizeof(*out->changes))
		return -EPROTO;
	out->changes_count = out->changes_room = count;
	out->bytes_count = left - count * sizeof(*out->changes);
	out->bytes_room = out->bytes_count;
	out->changes = malloc(count * sizeof(*out->changes) + 1);
	out->bytes = malloc(out->bytes_count + 1);
	if (out->changes == NULL || out->bytes == NULL)
		abort();
	memcpy(out->changes, at, count * sizeof(*out->changes));
	memcpy(out->bytes, at + count * sizeof(*out->changes),
	       out->bytes_count);
	if (changes_valid(out))
		return 0;
	kv_batch_fini(out);
	return -EPROTO;
}

void io_record_close(struct io_record *record)
{
	free(record->events);
	if (record->map != NULL && record->map != MAP_FAILED)
		munmap(record->map, record->bytes);
	memset(record, 0, sizeof(*record));
}
