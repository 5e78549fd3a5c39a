/*
 * Raft's frames from a peer and the records of its store.  The first byte
 * chooses; a frame's length and a record's CRC are made right on request, so
 * that what lies behind them is reached.
 */
#include "base/crc.h"
#include "cmmds/cmmds_int.h"

#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ROOM (1u << 20)

static void message(const uint8_t *data, size_t len)
{
	struct raft_message msg;

	if (codec__message_decode(data, len, &msg) == 0)
		codec__message_fini(&msg);
}

static void records(uint8_t what, const uint8_t *data, size_t len)
{
	struct raft_configuration conf;
	struct store_format format;
	struct log_snapshot snap;
	struct log_entry entry;
	uint64_t term, vote;

	switch (what) {
	case 1:
		if (codec__conf_decode(data, len, &conf) == 0) {
			struct codec_buf again = { 0 };

			codec__conf_encode(&conf, &again);
			assert(again.len >= 16);
			free(again.data);
			raft_configuration_close(&conf);
		}
		break;
	case 2:
		codec__format_decode(data, len, &format);
		break;
	case 3:
		codec__term_decode(data, len, &term, &vote);
		break;
	case 4:
		if (codec__entry_decode(7, data, len, &entry) == 0)
			free(entry.data);
		break;
	case 5:
		if (codec__snapshot_decode(data, len, &snap) == 0)
			codec__snapshot_fini(&snap);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *buf, what;

	if (size < 1 || size - 1 > ROOM)
		return 0;
	what = data[0];
	size--;
	buf = malloc(size ? size : 1);
	if (buf == NULL)
		return 0;
	memcpy(buf, data + 1, size);
	if (what % 6 == 0) {
		if (what & 0x80 && size >= 4)
			put_le32(buf, (uint32_t)size);
		message(buf, size);
	} else {
		if (what & 0x80 && size >= 4)
			put_le32(buf + size - 4, crc32c(buf, size - 4));
		records(what % 6, buf, size);
	}
	free(buf);
	return 0;
}
