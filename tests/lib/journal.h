/*
 * journal: what verifying writers sent and had acknowledged, and so what every
 * 4 KiB block of a disk must hold at a moment of the I/O record.
 */
#ifndef BASALT_TESTS_JOURNAL_H
#define BASALT_TESTS_JOURNAL_H

#include "tests/lib/iorecord.h"
#include "tests/lib/pattern.h"

struct journal_block {
	uint32_t gen[SECTORS]; /* acknowledged; 0: zeros */
	uint32_t pending_gen;
	uint8_t pending_mask; /* sectors of the unanswered write */
};

struct journal {
	struct journal_entry *entries;
	size_t count, at; /* entries [0, at) have happened */
	struct journal_block *blocks;
	uint64_t blocks_count;
	uint32_t writer;
};

/* 0 or -errno; journal_close() in any case. */
int journal_open(const char *path, uint32_t writer, struct journal *j);
void journal_close(struct journal *journal);

void journal_rewind(struct journal *journal);
/* Apply what happened while the record had at most @record_bytes. */
void journal_advance(struct journal *journal, uint64_t record_bytes);

/* As if every answer had left before the write it waited for was durable. */
void journal_acks_early(struct journal *journal,
			const struct io_record *record);

/*
 * Is @buf what block @index may hold: as acknowledged, or as the one unanswered
 * write would make it, and nothing in between?  If not @why says what it is.
 */
bool journal_check(const struct journal *journal, uint64_t index,
		   const uint8_t *buf, char *why, size_t why_len);

#endif
