/*
 * What recovery reads from a disk.  The first byte chooses the structure, and
 * whether its CRC is made right first, so that what lies behind is reached.
 */
#include "lsom/format.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ROOM (16 * LSOM_BLOCK)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* What the segment header said, which the batches must agree with. */
	const struct lsom__segment_header of = { .generation = 1 };
	static const struct uuid disk;
	struct lsom__super super;
	struct lsom__segment_header segment;
	struct lsom__batch_header batch;
	struct lsom__summary_header summary;
	uint8_t *buf, what;

	if (size < 1 || size - 1 > ROOM)
		return 0;
	what = data[0];
	buf = aligned_alloc(LSOM_BLOCK, ROOM);
	memset(buf, 0, ROOM);
	memcpy(buf, data + 1, size - 1);
	switch (what % 5) {
	case 0:
		if (what & 0x80)
			lsom__super_seal(buf);
		lsom__super_decode(buf, &super);
		break;
	case 1:
		if (what & 0x80)
			lsom__segment_header_seal(buf);
		lsom__segment_header_decode(buf, &disk, what >> 2 & 7,
					    &segment);
		break;
	case 2:
		if (what & 0x80)
			lsom__batch_seal(buf, 1 + (what >> 2) % 8,
					 (1 + (what >> 2) % 8) * LSOM_BLOCK);
		if (lsom__batch_decode(buf, ROOM, &of, 1, 1024, &batch) == 0)
			(void)lsom__batch_echo(buf, &batch, 1024);
		break;
	case 3:
		if (what & 0x80)
			lsom__summary_seal(buf, 2);
		if (lsom__summary_blocks(buf + LSOM_BLOCK, &of, 1024) <= 16)
			lsom__summary_decode(buf, 2, &of, &summary);
		break;
	case 4:
		lsom__records_check(buf, size - 1, (what >> 2) % 16, 64);
		lsom__frames_check(buf, size - 1, 1024);
		break;
	}
	free(buf);
	return 0;
}
