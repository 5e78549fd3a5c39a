/* crc: CRC32C through ISA-L, whose function neither inverts nor re-inverts. */
#include "base/crc.h"

#include <assert.h>
#include <isa-l/crc.h>

uint32_t crc32c_more(uint32_t crc, const void *buf, size_t len)
{
	/* ISA-L takes an int; our pieces are at most a page or a batch. */
	while (len > 1u << 30) {
		crc = ~crc32_iscsi((unsigned char *)buf, 1 << 30, ~crc);
		buf = (const char *)buf + (1u << 30);
		len -= 1u << 30;
	}
	return ~crc32_iscsi((unsigned char *)buf, (int)len, ~crc);
}

uint32_t crc32_more(uint32_t crc, const void *buf, size_t len)
{
	return crc32_gzip_refl(crc, buf, len);
}

uint32_t crc32c(const void *buf, size_t len)
{
	return crc32c_more(0, buf, len);
}

/*
 * The remainder is a polynomial, its highest power in bit 0, and a zero byte
 * multiplies it by x^8.  So @len of them are one product without carries; the
 * CRC of its 64 bits divides it, times x^33, as it always does.
 */
uint32_t crc32c_zeros(uint32_t crc, size_t len)
{
	/* x^(8 * 512 * i - 33) */
	static const uint32_t powers[] = {
		0,	     0xdd7e3b0cu, 0x170076fau, 0x9ef68d35u,
		0xa51b6135u, 0x22c3799fu, 0x359674f7u, 0x96a1f19bu,
	};
	uint64_t of[16], product = 0;

	assert(len % CRC32C_ZEROS == 0);
	assert(len / CRC32C_ZEROS < sizeof(powers) / sizeof(powers[0]));
	if (len == 0)
		return crc;
	/* The power times each polynomial of four bits. */
	of[0] = 0;
	of[1] = powers[len / CRC32C_ZEROS];
	for (unsigned i = 2; i < 16; i += 2) {
		of[i] = of[i / 2] << 1;
		of[i + 1] = of[i] ^ of[1];
	}
	for (unsigned bit = 0; bit < 32; bit += 4)
		product ^= of[~crc >> bit & 15] << bit;
	return ~crc32_iscsi((unsigned char *)&product, sizeof(product), 0);
}
