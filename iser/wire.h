/*
 * wire: what iSER puts in front of an iSCSI PDU, and what two ends tell each
 * other at connection set-up.  Pure functions over bytes.
 *
 * The header is the 28-byte one of RFC 7145 section 9.2, whose base offsets are
 * virtual addresses: the one that all initiators in use speak.  The 12-byte
 * header of RFC 5046 is not spoken.
 */
#ifndef BASALT_ISER_WIRE_H
#define BASALT_ISER_WIRE_H

#include "iscsi/datamover.h"

#define ISER_HEADER_LEN 28u
/* iSER header and BHS; then AHS and data, without padding. */
#define ISER_FIXED_LEN (ISER_HEADER_LEN + ISCSI_BHS_LEN)

/* Data of a PDU to the initiator in full feature phase: its receives. */
#define ISER_SEND_DATA_MAX 128u
/*
 * And commands at a time: initiators have 128 receives (libiscsi at least 127
 * between two refills), and 16 of them are for what they did not ask for, and
 * for answers to what takes no place in the window.
 */
#define ISER_WINDOW_MAX 112u

/* A message that came in; pointers into it. */
struct iser_message {
	struct dm_stags stags;
	const uint8_t *bhs;
	unsigned ahs_len; /* the AHS lies behind the fixed headers, */
	uint32_t data_len; /* then the data */
};

/*
 * Check a message of @len bytes whose first ISER_FIXED_LEN bytes are at @head.
 * 0; -EPROTO: not an iSCSI control-type PDU (9.2), or an AHS where none may be,
 * or a SCSI Command that moves data without saying where to; -EMSGSIZE: its
 * lengths are not those of the message.
 */
int iser__message_parse(const uint8_t *head, size_t len,
			struct iser_message *out);

/* The header in front of our own PDUs: no STags (9.2). */
void iser__header_put(uint8_t out[ISER_HEADER_LEN]);

/* ---- connection set-up: the private data (IBTA annex A12) ---- */

#define ISER_CM_LEN 4u

/*
 * May responses to this initiator invalidate its STags?  @len is what the CM
 * reports: padded with zeros on InfiniBand, so zeros say nothing.
 */
bool iser__cm_invalidates(const uint8_t *data, size_t len);

/* Our answer: base offsets are virtual addresses; whether we invalidate. */
void iser__cm_put(uint8_t out[ISER_CM_LEN], bool invalidates);

#endif
