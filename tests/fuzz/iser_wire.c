/* A message of an initiator: the first byte says how much longer it is. */
#include "iser/wire.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct iser_message m;
	uint8_t *head;
	size_t len;

	iser__cm_invalidates(data, size);
	if (size < 2 + ISER_FIXED_LEN)
		return 0;
	/* Exactly what the first scatter entry holds. */
	head = malloc(ISER_FIXED_LEN);
	memcpy(head, data + 2, ISER_FIXED_LEN);
	len = (size_t)data[0] << 8 | data[1];
	if (iser__message_parse(head, len, &m) == 0) {
		assert(m.bhs == head + ISER_HEADER_LEN);
		assert(ISER_FIXED_LEN + m.ahs_len + m.data_len <= len);
		assert(m.stags.immediate_len == 0 ||
		       m.stags.immediate_len == m.data_len);
	}
	free(head);
	return 0;
}
