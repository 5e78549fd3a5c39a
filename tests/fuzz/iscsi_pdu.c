/* Additional header segments, residuals, command numbers. */
#include "iscsi/iscsi_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t cdb[260];
	unsigned cdb_len = 0;
	uint32_t head[4], count;
	bool bidi;

	memset(cdb, 0, sizeof(cdb));
	if (size <= ISCSI_AHS_MAX)
		iscsi__ahs_parse(data, (unsigned)size, cdb, &cdb_len, &bidi);
	assert(cdb_len <= sizeof(cdb));
	if (size < sizeof(head))
		return 0;
	memcpy(head, data, sizeof(head));
	iscsi__residual((enum scsi_dir)(head[0] % 3), head[1],
			(enum scsi_dir)(head[2] % 3), head[3], head[3] / 2,
			&count);
	iscsi__cmdsn_place(head[0], head[1], head[1] + head[2] % 256);
	return 0;
}
