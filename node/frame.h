/*
 * frame: how a message of proto/admin.proto lies on the admin socket.  In a
 * header, because daemon and command line share no library.
 *
 *	0  magic    "BSAD"
 *	4  version  u16, FRAME_VERSION
 *	6  features u16, bits a reader must know; none yet
 *	8  length   u32 of what follows, checked before anything is allocated
 *
 * Numbers are little endian.
 */
#ifndef BASALT_NODE_FRAME_H
#define BASALT_NODE_FRAME_H

#include "base/util.h"

#include <errno.h>
#include <stdio.h>

#define FRAME_MAGIC 0x44415342u
#define FRAME_VERSION 1u
#define FRAME_HEADER 12u
#define FRAME_REQUEST_MAX (64u << 10)
#define FRAME_RESPONSE_MAX (64u << 20) /* of some 140,000 virtual disks */

static inline void frame_put(uint8_t *out, uint32_t len)
{
	put_le32(out, FRAME_MAGIC);
	put_le16(out + 4, FRAME_VERSION);
	put_le16(out + 6, 0);
	put_le32(out + 8, len);
}

/*
 * Decode FRAME_HEADER bytes at @buf.  0 and the body's length; -EPROTO (not
 * ours), -EMEDIUMTYPE (another version or feature; @why names both),
 * -EMSGSIZE (beyond @len_max).
 */
static inline int frame_get(const uint8_t *buf, uint32_t len_max, uint32_t *len,
			    char *why, size_t why_len)
{
	unsigned version = get_le16(buf + 4), features = get_le16(buf + 6);

	if (get_le32(buf) != FRAME_MAGIC) {
		snprintf(why, why_len, "not Basalt's admin protocol");
		return -EPROTO;
	}
	if (version != FRAME_VERSION || features != 0) {
		snprintf(why, why_len,
			 "admin protocol version %u (features %#x) met, "
			 "version %u (features 0) is spoken here",
			 version, features, FRAME_VERSION);
		return -EMEDIUMTYPE;
	}
	*len = get_le32(buf + 8);
	if (*len > len_max) {
		snprintf(why, why_len,
			 "a message of %u bytes; at most %u are taken", *len,
			 len_max);
		return -EMSGSIZE;
	}
	return 0;
}

#endif
