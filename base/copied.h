/*
 * copied: payload that the CPU copied all the same.
 *
 * Payload goes from the wire to the log and back in the same pages (sgl.h).
 * Where it is copied nevertheless the bytes are counted, by reason, for
 * `basalt metrics`; tests/lib/copies.py holds these counters against what the C
 * library's copy functions were seen to copy.  Block I/O has no reason here: it
 * is O_DIRECT from and to whole pages, and knows no bounce buffers.
 */
#ifndef BASALT_BASE_COPIED_H
#define BASALT_BASE_COPIED_H

#include "base/stats.h"

#include <stddef.h>

enum copied {
	COPIED_RECEIVE, /* out of a TCP connection's receive buffer */
	COPIED_IMMEDIATE, /* immediate data, to where the rest will follow it */
	COPIED_GATHER, /* a whole block that did not lie in one page */
	COPIED_EDGE, /* a block of which a command covers a part */
	COPIED_COMMAND, /* parameter data; VERIFY, OR, WRITE SAME */
	COPIED_REASONS
};

extern struct counter copied_bytes[COPIED_REASONS];

void copied_register(void);

static inline void copied_add(enum copied reason, size_t n)
{
	counter_add(&copied_bytes[reason], n);
}

#endif
