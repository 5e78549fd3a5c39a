/* fletcher: against sums made word by word, and what a CRC32C cannot tell. */
#include "base/crc.h"
#include "base/fletcher.h"
#include "tests/lib/pattern.h"
#include "tests/lib/test.h"

#include <string.h>

static uint32_t fletcher(const void *buf, size_t len)
{
	struct fletcher f = { 0 };

	fletcher_add(&f, buf, len);
	return fletcher_end(&f);
}

static void words_fill(uint64_t *word, size_t count, uint64_t seed)
{
	for (size_t i = 0; i < count; i++)
		word[i] = random_next(&seed);
}

/* Every length up to a page, at any alignment, in one piece or two. */
TEST(fletcher, word_by_word)
{
	static uint8_t mem[BLOCK + 8];
	uint64_t words[BLOCK / 8];

	words_fill(words, BLOCK / 8, 1);
	for (unsigned shift = 0; shift < 8; shift++) {
		struct fletcher want = { 0 };

		memcpy(mem + shift, words, BLOCK);
		for (size_t n = 0; n <= BLOCK / FLETCHER_BYTES; n++) {
			size_t half = n / 2 * FLETCHER_BYTES;
			size_t len = n * FLETCHER_BYTES;
			struct fletcher f = { 0 };

			fletcher_add(&f, mem + shift, half);
			fletcher_add(&f, mem + shift + half, len - half);
			CHECK(memcmp(&f, &want, sizeof(f)) == 0);
			CHECK_EQ(fletcher_end(&f), fletcher(mem + shift, len));
			if (len == BLOCK)
				break;
			for (unsigned l = 0; l < FLETCHER_LANES; l++) {
				want.sum[l] += words[n * FLETCHER_LANES + l];
				want.sums[l] += want.sum[l];
			}
		}
	}
}

/* It is on disks: what it was it stays. */
TEST(fletcher, known)
{
	uint64_t words[8] = { 1, 2, 3, 4, 5, 6, 7, 8 };

	CHECK_EQ(fletcher(words, 0), 0x03c8eb67u);
	CHECK_EQ(fletcher(words, sizeof(words)), 0xb119b628u);
}

/* Sectors that all have one CRC32C: another one, and two that change places. */
TEST(fletcher, tells_what_a_crc_does_not)
{
	uint8_t a[BLOCK], b[BLOCK];

	for (unsigned i = 0; i < SECTORS; i++)
		sector_fill(a + i * SECTOR, i * SECTOR, 1, 1);
	memcpy(b, a, BLOCK);
	sector_fill(b + SECTOR, SECTOR, 1, 2);
	CHECK_EQ(crc32c(a, BLOCK), crc32c(b, BLOCK));
	CHECK(fletcher(a, BLOCK) != fletcher(b, BLOCK));

	memcpy(b, a, BLOCK);
	memcpy(b + SECTOR, a + 2 * SECTOR, SECTOR);
	memcpy(b + 2 * SECTOR, a + SECTOR, SECTOR);
	CHECK_EQ(crc32c(a, BLOCK), crc32c(b, BLOCK));
	CHECK(fletcher(a, BLOCK) != fletcher(b, BLOCK));
}

/* Any one bit. */
TEST(fletcher, tells_a_bit)
{
	uint8_t a[BLOCK] = { 0 };
	uint32_t zero = fletcher(a, BLOCK);

	for (unsigned i = 0; i < BLOCK * 8; i++) {
		a[i / 8] = (uint8_t)(1u << i % 8);
		CHECK(fletcher(a, BLOCK) != zero);
		a[i / 8] = 0;
	}
}
