/* Formats: what was sealed is read, and no flipped bit passes. */
#include "tests/lib/test.h"

#include "base/crc.h"
#include "base/util.h"
#include "lsom/format.h"

#include <errno.h>
#include <string.h>

static _Alignas(8) uint8_t block[LSOM_BLOCK];
static struct lsom__segment_header segment = { .sequence = 5, .generation = 3 };

static void batch_make(void)
{
	struct lsom__batch_header *h = (void *)block;
	struct lsom__data_record *d = (void *)(h + 1);

	memset(block, 0, sizeof(block));
	segment.disk.b[0] = 9;
	h->magic = LSOM__BATCH_MAGIC;
	h->disk = segment.disk;
	h->generation = 3;
	h->segment_sequence = 5;
	h->batch = 7;
	h->version = LSOM__VERSION;
	h->header_blocks = 1;
	h->records = 1;
	h->data_blocks = 2;
	h->block = 1;
	d->r.type = LSOM__R_DATA;
	d->blocks = 2;
	d->data = 2;
	d->r.len = (uint32_t)lsom__data_record_len(0, 2, 0);
	h->records_bytes = d->r.len;
	lsom__batch_seal(block, 1, sizeof(*h) + d->r.len);
}

/*
 * What lies on the disk is the CRC of all blocks, however little of them is
 * used.
 */
TEST(format, batch_seal)
{
	static uint8_t blocks[3 * LSOM_BLOCK];
	struct lsom__batch_header *h = (void *)blocks;
	size_t used, len;
	uint32_t sealed;

	for (used = sizeof(*h); used <= sizeof(blocks); used += 40) {
		len = ROUND_UP(used, (size_t)LSOM_BLOCK);
		memset(blocks, 0, sizeof(blocks));
		for (size_t i = 0; i < used; i++)
			blocks[i] = (uint8_t)(i * 7 + used);
		lsom__batch_seal(blocks, (uint32_t)(len / LSOM_BLOCK), used);
		sealed = h->crc;
		h->crc = 0;
		CHECK_EQ(sealed, crc32c(blocks, len));
	}
}

TEST(format, crc_of_zeros)
{
	static const uint8_t zeros[4096];

	for (size_t n = 0; n < sizeof(zeros); n += CRC32C_ZEROS)
		for (uint32_t crc = 1; crc != 0; crc <<= 1) {
			CHECK_EQ(crc32c_zeros(crc, n),
				 crc32c_more(crc, zeros, n));
			CHECK_EQ(crc32c_zeros(~crc, n),
				 crc32c_more(~crc, zeros, n));
		}
}

TEST(format, batch_flips)
{
	struct lsom__batch_header out;
	unsigned i;

	batch_make();
	CHECK_EQ(lsom__batch_decode(block, LSOM_BLOCK, &segment, 1, 256, &out),
		 0);
	CHECK_EQ(out.batch, 7);
	for (i = 0; i < LSOM_BLOCK * 8; i++) {
		block[i / 8] ^= (uint8_t)(1u << (i % 8));
		CHECK(lsom__batch_decode(block, LSOM_BLOCK, &segment, 1, 256,
					 &out) < 0);
		block[i / 8] ^= (uint8_t)(1u << (i % 8));
	}
	CHECK_EQ(lsom__batch_decode(block, LSOM_BLOCK, &segment, 2, 256, &out),
		 -ENODATA);
	CHECK_EQ(lsom__batch_decode(block, LSOM_BLOCK, &segment, 1, 3, &out),
		 -EUCLEAN);
}

TEST(format, super_flips)
{
	struct lsom__super *s = (void *)block, out;
	unsigned i;

	memset(block, 0, sizeof(block));
	s->magic = LSOM__SUPER_MAGIC;
	s->version = LSOM__VERSION;
	s->data_start = LSOM__DATA_START;
	s->segment_bytes = LSOM__SEGMENT_MIN;
	s->segments = 63;
	s->disk_bytes = LSOM__DISK_MIN;
	lsom__super_seal(block);
	CHECK_EQ(lsom__super_decode(block, &out), 0);
	for (i = 0; i < LSOM_BLOCK * 8; i++) {
		block[i / 8] ^= (uint8_t)(1u << (i % 8));
		CHECK(lsom__super_decode(block, &out) < 0);
		block[i / 8] ^= (uint8_t)(1u << (i % 8));
	}
	s->zeroed = s->segments;
	lsom__super_seal(block);
	CHECK_EQ(lsom__super_decode(block, &out), 0);
	s->zeroed++;
	lsom__super_seal(block);
	CHECK_EQ(lsom__super_decode(block, &out), -EUCLEAN);
	s->zeroed = 0;
	s->incompat = 1ull << 40;
	lsom__super_seal(block);
	CHECK_EQ(lsom__super_decode(block, &out), -EMEDIUMTYPE);
}
