/*
 * Directory commands and snapshots.  The first byte chooses: commands, each with
 * its length before it, applied to a small directory, after which its image
 * must give the same directory again; or an image, its CRC made right.
 */
#include "base/crc.h"
#include "cmmds/cmmds_int.h"
#include "tests/unit/cmmds_image.h"

#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD 28u /* of an image: snapshot.c */

static void image(struct cmmds_state *state)
{
	struct cmmds_state again;
	uint8_t *bytes;
	size_t len;

	if (image_of(state, &bytes, &len) != 0)
		abort();
	state__init(&again);
	if (snapshot__decode(&again, bytes, len) != 0)
		abort();
	assert(state__hash(&again) == state__hash(state));
	state__fini(&again);
	free(bytes);
}

static void commands(const uint8_t *data, size_t size)
{
	struct cmmds_state state;
	uint64_t index = 0;

	state__init(&state);
	while (size >= 2) {
		size_t len = MIN((size_t)get_le16(data), size - 2);
		struct state_result result;
		uint64_t before = state__hash(&state);
		uint64_t revision = state.revision;

		if (state__apply(&state, ++index, data + 2, len, &result) != 0)
			break;
		if (result.status != 0) { /* all or nothing */
			assert(result.count == 0);
			assert(state.revision == revision);
		}
		if (result.sequence == 0)
			assert(state__hash(&state) == before);
		state__result_fini(&result);
		data += 2 + len;
		size -= 2 + len;
	}
	image(&state);
	state__fini(&state);
}

static void decode(const uint8_t *data, size_t size, bool seal)
{
	uint8_t *buf = malloc(size ? size : 1);
	struct cmmds_state state;

	if (buf == NULL)
		return;
	memcpy(buf, data, size);
	if (seal && size >= HEAD) {
		put_le64(buf, 0x504e53544c415342ull);
		put_le32(buf + 8, CMMDS_SNAPSHOT_VERSION);
		put_le32(buf + 12, 0);
		put_le64(buf + 16, size - HEAD);
		put_le32(buf + 24,
			 crc32c_more(crc32c(buf, 24), buf + HEAD, size - HEAD));
	}
	state__init(&state);
	if (snapshot__decode(&state, buf, size) == 0)
		image(&state);
	state__fini(&state);
	free(buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1 || size > 256u << 10)
		return 0;
	if (data[0] & 1)
		decode(data + 1, size - 1, data[0] & 2);
	else
		commands(data + 1, size - 1);
	return 0;
}
