/* Login and text keys: split, then every parser of a value. */
#include "iscsi/iscsi_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void value_parse(const char *value)
{
	static const char *const ours[] = { "CRC32C", "None" };
	uint8_t binary[CHAP_CHALLENGE_MAX];
	char name[ISCSI_NAME_MAX + 1];
	uint64_t number;
	size_t len;

	if (iscsi__text_number(value, 512, 16777215, &number) == 0)
		assert(number >= 512 && number <= 16777215);
	iscsi__text_bool(value, &(bool){ false });
	if (iscsi__text_binary(value, binary, sizeof(binary), &len) == 0)
		assert(len <= sizeof(binary));
	iscsi__text_list(value, ours, 2);
	if (iscsi__name_parse(value, name) == 0)
		assert(strlen(name) <= ISCSI_NAME_MAX);
	iscsi__chap_choose(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* As the datamover gives it: a copy that may be written. */
	char *buf = malloc(size + 1), *at = buf, *key, *value;

	if (size > 0)
		memcpy(buf, data, size);
	while (iscsi__text_next(&at, &size, &key, &value) > 0)
		if (value != NULL)
			value_parse(value);
	free(buf);
	return 0;
}
