/* wire: iSER headers (RFC 7145 section 9), connection set-up. */
#include "iser/wire.h"

#include "base/util.h"

#include <errno.h>

/* Byte 0: the opcode, and which STags are valid. */
#define OPCODE_SHIFT 4
#define OPCODE_CONTROL 1u
#define WRITE_VALID 0x08u
#define READ_VALID 0x04u

/* Byte 0 of the private data: negative logic. */
#define CM_NO_ZBVA 0x80u
#define CM_NO_INVALIDATE 0x40u

static bool stags_complete(const uint8_t *bhs, const struct dm_stags *stags)
{
	bool read = bhs[1] & 0x40, write = bhs[1] & 0x20;
	uint32_t edtl = get_be32(bhs + 20);

	if (write && edtl > stags->immediate_len)
		return stags->write_valid;
	/* Of a bidirectional command only the write is looked at. */
	if (read && !write && edtl > 0)
		return stags->read_valid;
	return true;
}

int iser__message_parse(const uint8_t *head, size_t len,
			struct iser_message *out)
{
	const uint8_t *bhs = head + ISER_HEADER_LEN;
	size_t rest, told;
	uint8_t opcode;

	if (len < ISER_FIXED_LEN)
		return -EMSGSIZE;
	if (head[0] >> OPCODE_SHIFT != OPCODE_CONTROL)
		return -EPROTO;
	memset(out, 0, sizeof(*out));
	out->bhs = bhs;
	out->ahs_len = bhs[4] * 4u;
	out->data_len = get_be24(bhs + 5);
	rest = len - ISER_FIXED_LEN;
	told = (size_t)out->ahs_len + out->data_len;
	/* No padding is due (7.1), but some send it. */
	if (told > rest || rest - told > 3)
		return -EMSGSIZE;
	opcode = bhs[0] & ISCSI_OP_MASK;
	if (opcode != ISCSI_OP_COMMAND)
		return out->ahs_len > 0 ? -EPROTO : 0;
	out->stags = (struct dm_stags){
		.write_valid = head[0] & WRITE_VALID,
		.write = get_be32(head + 4),
		.write_base = get_be64(head + 8),
		.read_valid = head[0] & READ_VALID,
		.read = get_be32(head + 16),
		.read_base = get_be64(head + 20),
		.immediate_len = out->data_len,
	};
	return stags_complete(bhs, &out->stags) ? 0 : -EPROTO;
}

void iser__header_put(uint8_t out[ISER_HEADER_LEN])
{
	memset(out, 0, ISER_HEADER_LEN);
	out[0] = OPCODE_CONTROL << OPCODE_SHIFT;
}

bool iser__cm_invalidates(const uint8_t *data, size_t len)
{
	return len >= 1 && (data[0] & CM_NO_ZBVA) != 0 &&
	       (data[0] & CM_NO_INVALIDATE) == 0;
}

void iser__cm_put(uint8_t out[ISER_CM_LEN], bool invalidates)
{
	memset(out, 0, ISER_CM_LEN);
	out[0] = CM_NO_ZBVA;
	if (!invalidates)
		out[0] |= CM_NO_INVALIDATE;
}
