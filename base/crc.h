/* crc: CRC32C (Castagnoli) through ISA-L; "123456789" gives 0xe3069283. */
#ifndef BASALT_BASE_CRC_H
#define BASALT_BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* crc32c(ab) = crc32c_more(crc32c(a), b). */
uint32_t crc32c(const void *buf, size_t len);
uint32_t crc32c_more(uint32_t crc, const void *buf, size_t len);

/*
 * crc32c_more() over @len zero bytes, less than 4096 and a multiple of
 * CRC32C_ZEROS, for what a hundred bytes cost.
 */
#define CRC32C_ZEROS 512u
uint32_t crc32c_zeros(uint32_t crc, size_t len);

/*
 * The other CRC-32 (IEEE 802.3, zlib's): the second checksum of batches of
 * older versions (lsom/format.h).
 */
uint32_t crc32_more(uint32_t crc, const void *buf, size_t len);

/* The CRC32C of 4096 zero bytes. */
#define CRC32C_ZERO_PAGE 0x98f94189u

#endif
