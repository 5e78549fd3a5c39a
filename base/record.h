/* record: the format of the I/O log of shard_record_note(), for its readers. */
#ifndef BASALT_BASE_RECORD_H
#define BASALT_BASE_RECORD_H

#include <stdint.h>

#define RECORD_MAGIC 0x31524f49u /* "IOR1" */

enum record_kind {
	RECORD_OPEN = 1, /* data: path */
	RECORD_WRITE, /* data: what is written; flags: ENV_DURABLE */
	RECORD_FLUSH,
	RECORD_DISCARD, /* flags: none; data: 8 bytes of length */
	RECORD_DONE, /* of @id; offset: the result, bytes or -errno */
	RECORD_NOTE, /* data: a name, NUL, bytes */
};

struct record_head {
	uint32_t magic, kind, dev, flags;
	uint64_t id, offset, len; /* @len bytes of data follow */
};

#endif
