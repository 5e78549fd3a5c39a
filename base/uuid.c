/* uuid: making, printing and reading ids. */
#include "base/uuid.h"

#include "base/env.h"
#include "base/util.h"

#include <errno.h>
#include <stdio.h>

void uuid_make(struct env *env, struct uuid *out)
{
	env_secure_random(env, out->b, sizeof(out->b));
	out->b[6] = (uint8_t)((out->b[6] & 0x0f) | 0x40); /* version 4 */
	out->b[8] = (uint8_t)((out->b[8] & 0x3f) | 0x80); /* RFC 4122 */
}

void uuid_format(const struct uuid *id, char out[UUID_TEXT_LEN])
{
	static const char hex[] = "0123456789abcdef";

	for (unsigned i = 0; i < 16; i++) {
		if (i == 4 || i == 6 || i == 8 || i == 10)
			*out++ = '-';
		*out++ = hex[id->b[i] >> 4];
		*out++ = hex[id->b[i] & 15];
	}
	*out = '\0';
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

int uuid_parse(const char *text, struct uuid *out)
{
	struct uuid id;

	if (strlen(text) != UUID_TEXT_LEN - 1)
		return -EINVAL;
	for (unsigned i = 0; i < 16; i++) {
		int hi, lo;

		if ((i == 4 || i == 6 || i == 8 || i == 10) && *text++ != '-')
			return -EINVAL;
		hi = hex_value(*text++);
		if (hi < 0)
			return -EINVAL;
		lo = hex_value(*text++);
		if (lo < 0)
			return -EINVAL;
		id.b[i] = (uint8_t)(hi << 4 | lo);
	}
	*out = id;
	return 0;
}

uint64_t uuid_hash(const struct uuid *id)
{
	/* Ids are random; mixing guards against ones that are not. */
	uint64_t h = get_le64(id->b) ^ get_le64(id->b + 8) * 0x9e3779b97f4a7c15;

	h ^= h >> 32;
	h *= 0xd6e8feb86659fd93;
	h ^= h >> 32;
	return h;
}
