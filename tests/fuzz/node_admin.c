/* What comes over the admin socket: a frame's head, then a message. */
#include "proto/admin.pb-c.h"
#include "node/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Admin__Request *request;
	char why[256];
	uint32_t len;

	if (size >= FRAME_HEADER &&
	    frame_get(data, FRAME_REQUEST_MAX, &len, why, sizeof(why)) == 0 &&
	    len <= size - FRAME_HEADER) {
		data += FRAME_HEADER;
		size = len;
	}
	if (size > FRAME_REQUEST_MAX)
		return 0;
	request = admin__request__unpack(NULL, size, data);
	if (request != NULL)
		admin__request__free_unpacked(request, NULL);
	return 0;
}
