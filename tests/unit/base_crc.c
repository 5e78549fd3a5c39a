/*
 * crc: against sums made bit by bit.  ISA-L takes other instructions on each kind
 * of processor, and other ways for short and long pieces.
 */
#include "base/crc.h"
#include "tests/lib/pattern.h"
#include "tests/lib/test.h"

#include <string.h>

#define MORE 16u /* in front of the bytes, and behind them */
#define LONG (3u << 16)

static uint32_t bits(uint32_t poly, uint32_t crc, const uint8_t *buf, size_t n)
{
	crc = ~crc;
	while (n-- > 0) {
		crc ^= *buf++;
		for (unsigned bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? poly : 0);
	}
	return ~crc;
}

static uint32_t bits_c(uint32_t crc, const uint8_t *buf, size_t n)
{
	return bits(0x82f63b78u, crc, buf, n);
}

static uint32_t bits_ieee(uint32_t crc, const uint8_t *buf, size_t n)
{
	return bits(0xedb88320u, crc, buf, n);
}

static void bytes_fill(uint8_t *buf, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i++)
		buf[i] = (uint8_t)(random_next(&seed) >> 32);
}

/* They are on disks and on wires: what they were they stay. */
TEST(crc, known)
{
	static uint8_t zeros[BLOCK];

	CHECK_EQ(crc32c("123456789", 9), 0xe3069283u);
	CHECK_EQ(crc32_more(0, "123456789", 9), 0xcbf43926u);
	CHECK_EQ(crc32c(zeros, BLOCK), CRC32C_ZERO_PAGE);
	CHECK_EQ(crc32c(zeros, 0), 0);
	CHECK_EQ(crc32_more(0, zeros, 0), 0);
}

/*
 * Every length up to a block and some, at any alignment, going on from any sum;
 * what is around it has no part in it.
 */
TEST(crc, bit_by_bit)
{
	static uint8_t mem[MORE + BLOCK + 300 + MORE];

	for (unsigned shift = 0; shift < MORE; shift++) {
		uint32_t from = 0x9e3779b9u * shift, c = from, ieee = from;
		uint8_t *buf = mem + shift;

		bytes_fill(mem, sizeof(mem), shift);
		for (size_t n = 0; n <= BLOCK + 300; n++) {
			CHECK_EQ(crc32c_more(from, buf, n), c);
			CHECK_EQ(crc32_more(from, buf, n), ieee);
			c = bits_c(c, buf + n, 1);
			ieee = bits_ieee(ieee, buf + n, 1);
		}
	}
}

/* As long as a batch of the log is, and in pieces of any length. */
TEST(crc, long_ones)
{
	static uint8_t mem[MORE + LONG];
	uint64_t seed = 1;

	bytes_fill(mem, sizeof(mem), 2);
	for (unsigned i = 0; i < 40; i++) {
		uint8_t *buf = mem + random_next(&seed) % MORE;
		size_t n = random_next(&seed) % LONG;
		size_t half = random_next(&seed) % (n + 1);
		uint32_t c = bits_c(0, buf, n), ieee = bits_ieee(0, buf, n);

		CHECK_EQ(crc32c(buf, n), c);
		CHECK_EQ(crc32c_more(crc32c(buf, half), buf + half, n - half),
			 c);
		CHECK_EQ(crc32_more(0, buf, n), ieee);
		CHECK_EQ(crc32_more(crc32_more(0, buf, half), buf + half,
				    n - half),
			 ieee);
	}
}
