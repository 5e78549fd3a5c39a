/* journal: see journal.h. */
#include "tests/lib/journal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static void entry_apply(struct journal *j, const struct journal_entry *e)
{
	uint64_t at = e->offset, end = e->offset + e->len;

	while (at < end) {
		struct journal_block *b = &j->blocks[at / BLOCK];
		unsigned s = (unsigned)(at % BLOCK / SECTOR);

		if (e->acked) {
			b->gen[s] = e->gen;
			b->pending_mask &= (uint8_t) ~(1u << s);
		} else {
			b->pending_gen = e->gen;
			b->pending_mask |= (uint8_t)(1u << s);
		}
		at += SECTOR;
	}
}

void journal_advance(struct journal *j, uint64_t record_bytes)
{
	while (j->at < j->count &&
	       j->entries[j->at].record_bytes <= record_bytes)
		entry_apply(j, &j->entries[j->at++]);
}

void journal_rewind(struct journal *j)
{
	memset(j->blocks, 0, j->blocks_count * sizeof(*j->blocks));
	j->at = 0;
}

bool journal_check(const struct journal *j, uint64_t index, const uint8_t *buf,
		   char *why, size_t why_len)
{
	const struct journal_block *b = &j->blocks[index];
	bool is_old = true, is_new = b->pending_mask != 0;

	for (unsigned i = 0; i < SECTORS; i++) {
		int64_t gen = sector_read(buf + i * SECTOR,
					  index * BLOCK + i * SECTOR, j->writer,
					  why, why_len);
		uint32_t fresh =
			b->pending_mask & 1u << i ? b->pending_gen : b->gen[i];

		if (gen < 0)
			return false;
		is_old = is_old && gen == b->gen[i];
		is_new = is_new && gen == fresh;
		if (!is_old && !is_new) {
			snprintf(why, why_len,
				 "sector %u has generation %lld, acknowledged "
				 "%u",
				 i, (long long)gen, b->gen[i]);
			return false;
		}
	}
	return true;
}

/* ---- reading it ---- */

static int by_position(const void *a, const void *b)
{
	const struct journal_entry *x = a, *y = b;

	if (x->record_bytes != y->record_bytes)
		return x->record_bytes < y->record_bytes ? -1 : 1;
	return x->reserved < y->reserved ? -1 : x->reserved > y->reserved;
}

void journal_acks_early(struct journal *j, const struct io_record *record)
{
	size_t at = 0, last = SIZE_MAX;

	for (size_t i = 0; i < j->count; i++) {
		struct journal_entry *e = &j->entries[i];

		while (at < record->count &&
		       record->events[at].end <= e->record_bytes) {
			if (record->events[at].kind == RECORD_WRITE)
				last = at;
			at++;
		}
		if (!e->acked || last == SIZE_MAX)
			continue;
		for (size_t w = last; w > 0; w--)
			if (record->events[w].kind == RECORD_WRITE &&
			    record->events[w].safe_at < at) {
				e->record_bytes = record->events[w].end;
				break;
			}
	}
	qsort(j->entries, j->count, sizeof(*j->entries), by_position);
}

int journal_open(const char *path, uint32_t writer, struct journal *j)
{
	FILE *f = fopen(path, "rbe");
	uint64_t end = 0;
	size_t room = 0;

	memset(j, 0, sizeof(*j));
	j->writer = writer;
	if (f == NULL)
		return -errno;
	for (;;) {
		struct journal_entry *e;

		if (j->count == room) {
			room = room ? room * 2 : 4096;
			j->entries =
				realloc(j->entries, room * sizeof(*j->entries));
			if (j->entries == NULL)
				abort();
		}
		e = &j->entries[j->count];
		if (fread(e, sizeof(*e), 1, f) != 1)
			break;
		e->reserved = (uint32_t)j->count++;
		if (e->offset + e->len > end)
			end = e->offset + e->len;
	}
	fclose(f);
	qsort(j->entries, j->count, sizeof(*j->entries), by_position);
	j->blocks_count = (end + BLOCK - 1) / BLOCK;
	j->blocks = calloc(j->blocks_count + 1, sizeof(*j->blocks));
	if (j->blocks == NULL)
		abort();
	return j->count > 0 ? 0 : -ENODATA;
}

void journal_close(struct journal *j)
{
	free(j->entries);
	free(j->blocks);
	memset(j, 0, sizeof(*j));
}
