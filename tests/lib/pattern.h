/*
 * The sectors that verifying writers write: magic, place, writer, generation,
 * noise, CRC.  What a sector should hold follows from place and generation.
 *
 * A sector that ends in its own CRC32C has, as a whole, the same CRC32C as every
 * other: so the store's checksums cannot tell these sectors apart, and nothing
 * that a test should find hides behind them.
 */
#ifndef BASALT_TESTS_PATTERN_H
#define BASALT_TESTS_PATTERN_H

#include <isa-l/crc.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define BLOCK 4096u
#define SECTOR 512u
#define SECTORS (BLOCK / SECTOR)
#define PATTERN_WORDS (SECTOR / 8)
#define PATTERN_MAGIC 0x5946525654534c42ull /* "BLSTVRFY" */

/* splitmix64: the next of a stream of random numbers. */
static inline uint64_t random_next(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static inline void sector_fill(uint8_t *buf, uint64_t offset, uint32_t writer,
			       uint32_t gen)
{
	uint64_t words[PATTERN_WORDS];
	uint64_t seed = offset ^ ((uint64_t)gen << 32 | writer);

	words[0] = PATTERN_MAGIC;
	words[1] = offset;
	words[2] = (uint64_t)writer << 32 | gen;
	for (unsigned i = 3; i < PATTERN_WORDS - 1; i++)
		words[i] = random_next(&seed);
	words[PATTERN_WORDS - 1] =
		crc32_iscsi((unsigned char *)words, SECTOR - 8, 0xffffffff);
	memcpy(buf, words, SECTOR);
}

/*
 * The generation a sector at @offset holds, 0 if it is zeros; -1 if it is no
 * whole sector of @writer for this place, and then @why says what it is.
 */
static inline int64_t sector_read(const uint8_t *buf, uint64_t offset,
				  uint32_t writer, char *why, size_t why_len)
{
	uint64_t words[PATTERN_WORDS];
	uint8_t want[SECTOR];
	bool zero = true;

	memcpy(words, buf, SECTOR);
	for (unsigned i = 0; i < PATTERN_WORDS && zero; i++)
		zero = words[i] == 0;
	if (zero)
		return 0;
	if (words[0] != PATTERN_MAGIC) {
		snprintf(why, why_len, "foreign bytes %016llx",
			 (unsigned long long)words[0]);
		return -1;
	}
	if (words[1] != offset || words[2] >> 32 != writer) {
		snprintf(why, why_len,
			 "the sector of offset %llu, writer %llu, "
			 "generation %u",
			 (unsigned long long)words[1],
			 (unsigned long long)(words[2] >> 32),
			 (unsigned)words[2]);
		return -1;
	}
	sector_fill(want, offset, writer, (uint32_t)words[2]);
	if (memcmp(want, buf, SECTOR) != 0) {
		snprintf(why, why_len, "a torn sector of generation %u",
			 (unsigned)words[2]);
		return -1;
	}
	return (int64_t)(uint32_t)words[2];
}

/*
 * A line of the journal t_verify --journal keeps.  @record_bytes: how long the
 * daemon's I/O record was when this happened, so that a replay knows at which
 * of its events a write had been acknowledged.
 */
struct journal_entry {
	uint64_t record_bytes;
	uint64_t offset;
	uint32_t len, gen; /* gen 0: an unmap */
	uint32_t acked; /* 0: was sent; 1: was answered GOOD */
	uint32_t reserved;
};

#endif
