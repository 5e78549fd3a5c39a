/*
 * pdu: the shape of iSCSI PDUs (RFC 7143 section 11): opcodes, additional
 * header segments, serial numbers, residuals.  Pure functions over bytes.
 *
 * Everything here reads what a peer wrote, so lengths are checked against what
 * arrived, and nothing is asserted about contents.
 */
#include "iscsi/iscsi_int.h"

/*
 * Walk the additional header segments (11.2.2) of a SCSI Command.  @cdb holds
 * the 16 bytes of the BHS; an extended CDB is appended.  Returns 0, or -EPROTO
 * if a length runs out, a type repeats or is unknown: Reject 09.
 */
int iscsi__ahs_parse(const uint8_t *ahs, unsigned len, uint8_t *cdb,
		     unsigned *cdb_len, bool *bidi)
{
	bool seen_cdb = false;

	*bidi = false;
	while (len > 0) {
		unsigned body, whole;

		if (len < 4)
			return -EPROTO;
		/* Counts the specific byte 3, but not length and type. */
		body = get_be16(ahs);
		if (body == 0)
			return -EPROTO;
		whole = ROUND_UP(body + 3, 4u);
		if (whole > len)
			return -EPROTO;
		switch (ahs[2] & 0x3f) {
		case 1:
			if (seen_cdb || body < 2 ||
			    body - 1 > SCSI_CDB_MAX - 16)
				return -EPROTO;
			memcpy(cdb + 16, ahs + 4, body - 1);
			*cdb_len = 16 + body - 1;
			seen_cdb = true;
			break;
		case 2:
			if (*bidi || body != 5)
				return -EPROTO;
			*bidi = true;
			break;
		default:
			return -EPROTO;
		}
		ahs += whole;
		len -= whole;
	}
	return 0;
}

/*
 * Flags and count of 11.4.5 for a command that expected @edtl bytes in
 * direction @expect, wanted to move @wanted in direction @dir, and moved
 * @moved.  Returns ISCSI_RESIDUAL_O, _U or 0.
 */
uint8_t iscsi__residual(enum scsi_dir expect, uint32_t edtl, enum scsi_dir dir,
			uint64_t wanted, uint64_t moved, uint32_t *count)
{
	uint64_t n;

	*count = 0;
	if (expect == SCSI_DIR_NONE)
		edtl = 0; /* the flags decide, not the field */
	if (dir != expect && expect != SCSI_DIR_NONE) {
		/* It moved nothing the way the initiator had room for. */
		*count = edtl;
		return edtl > 0 ? ISCSI_RESIDUAL_U : 0;
	}
	if (dir != SCSI_DIR_NONE && wanted > edtl) {
		n = wanted - edtl;
		*count = n > UINT32_MAX ? UINT32_MAX : (uint32_t)n;
		return ISCSI_RESIDUAL_O;
	}
	if (moved < edtl) {
		*count = (uint32_t)(edtl - moved);
		return ISCSI_RESIDUAL_U;
	}
	return 0;
}

/*
 * Where @cmdsn stands (4.2.2.1, serial arithmetic): 0 it is the next one, 1 a
 * later one within the window, -1 outside: ignore it.
 */
int iscsi__cmdsn_place(uint32_t cmdsn, uint32_t exp, uint32_t max)
{
	/* A closed window has max = exp - 1. */
	uint32_t window = sn_le(exp, max) ? max - exp + 1 : 0;
	uint32_t ahead = cmdsn - exp;

	if (ahead >= window)
		return -1;
	return ahead > 0;
}
