/* crc: CRC32C through ISA-L, whose function neither inverts nor re-inverts. */
#include "base/crc.h"

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
