/*
 * fletcher: two sums over 64-bit words, the second one over the first one's
 * values, so that it tells of order (J. G. Fletcher, 1982), in four lanes.
 *
 * For what has a CRC32C and wants a second opinion.  Data that ends in its own
 * CRC32C, as pages of many programs do, has the same CRC32C whatever it says;
 * stale bytes of that kind are told from new ones by a sum that has nothing in
 * common with polynomials.  It takes a tenth of a second CRC's instructions
 * where the processor has no wide multiplication without carry.
 */
#ifndef BASALT_BASE_FLETCHER_H
#define BASALT_BASE_FLETCHER_H

#include <stddef.h>
#include <stdint.h>

#define FLETCHER_LANES 4u
#define FLETCHER_BYTES (FLETCHER_LANES * sizeof(uint64_t))

/* All zeros at the beginning. */
struct fletcher {
	uint64_t sum[FLETCHER_LANES], sums[FLETCHER_LANES];
};

/* @len is a multiple of FLETCHER_BYTES. */
void fletcher_add(struct fletcher *f, const void *buf, size_t len);

/* 32 bits of it: the CRC32C of its sums, little endian. */
uint32_t fletcher_end(const struct fletcher *f);

#endif
