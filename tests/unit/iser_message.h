/* iser_message: messages of an initiator.  Included by test files. */
#ifndef BASALT_TESTS_UNIT_ISER_MESSAGE_H
#define BASALT_TESTS_UNIT_ISER_MESSAGE_H

#include "base/util.h"
#include "iscsi/pdu.h"
#include "iser/wire.h"

#include <string.h>

struct message {
	uint8_t bytes[ISER_FIXED_LEN + 9000]; /* the BHS is at 28 */
	size_t len;
};

static inline void message_init(struct message *m, uint8_t opcode,
				uint8_t flags, uint32_t itt, uint32_t cmdsn)
{
	memset(m, 0, sizeof(*m));
	m->len = ISER_FIXED_LEN;
	m->bytes[0] = 0x10;
	m->bytes[28] = opcode;
	m->bytes[29] = flags;
	put_be32(m->bytes + 28 + 16, itt);
	put_be32(m->bytes + 28 + 24, cmdsn);
}

static inline void message_data(struct message *m, const void *data, size_t len)
{
	memcpy(m->bytes + m->len, data, len);
	put_be24(m->bytes + 28 + 5, (uint32_t)len);
	m->len += len;
}

static inline void rw10(struct message *m, uint8_t op, uint32_t lba,
			uint32_t blocks)
{
	uint8_t *cdb = m->bytes + 28 + 32;

	cdb[0] = op;
	put_be32(cdb + 2, lba);
	put_be16(cdb + 7, (uint16_t)blocks);
}

static inline void pattern(uint8_t *p, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(seed + i * 7 + (i >> 9));
}

#endif
