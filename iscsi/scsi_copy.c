/*
 * scsi_copy: third-party copy (SPC-4 6.4, 6.18, 6.20): EXTENDED COPY(LID1) from
 * unit to unit, and what tells about it.  A host names copy sources and copy
 * destinations (CSCDs) by what INQUIRY says of them, and the data never leaves
 * the node.  The work is scsi_copy_run.c's.
 *
 * A copy's result is its status; how it ended is told for a while to who asks for
 * it by its list identifier.  Hosts that run several at a time give all the same
 * one, so that is not refused (SPC-4 5.16.4.2): the newest is told of.
 */
#include "iscsi/scsi_int.h"

#define HEADER 16u
#define CSCD 32u
#define SEGMENT 28u
#define CSCD_IDENTIFICATION 0xe4u
#define BLOCK_TO_BLOCK 0x02u
#define USAGE_HOLD 0u
#define USAGE_RESERVED 1u
#define USAGE_NO_ID 3u

/* Sense of a parameter list (SPC-4 6.4.3). */
#define SENSE_TOO_MANY_CSCDS SENSE(5, 0x26, 0x06)
#define SENSE_CSCD_TYPE SENSE(5, 0x26, 0x07)
#define SENSE_TOO_MANY_SEGMENTS SENSE(5, 0x26, 0x08)
#define SENSE_SEGMENT_TYPE SENSE(5, 0x26, 0x09)
#define SENSE_INEXACT SENSE(0xa, 0x26, 0x0a)
#define SENSE_INLINE SENSE(5, 0x26, 0x0b)

_Static_assert(HEADER + SCSI_COPY_LIST_MAX <= SCSI_LIST_MAX,
	       "what is told to fit does");

/* ---- EXTENDED COPY ---- */

bool scsi__copy_parse(struct scsi_cmd *cmd)
{
	cmd->dir = SCSI_DIR_OUT;
	cmd->transfer_len = get_be32(cmd->cdb + 10);
	if (cmd->transfer_len > SCSI_LIST_MAX)
		return scsi__check_field(cmd, 10, -1);
	return true;
}

/* The list's lengths: whole descriptors, all there, and no more than are taken. */
static bool header_check(struct scsi_cmd *cmd, const uint8_t *list)
{
	unsigned usage = list[1] >> 3 & 3;
	uint64_t cscds, segments;

	if (cmd->transfer_len < HEADER)
		return scsi__check_param(cmd, SENSE_LIST_LENGTH, 0);
	cscds = get_be16(list + 2);
	segments = get_be32(list + 8);
	if (usage == USAGE_RESERVED)
		return scsi__check_param(cmd, SENSE_INVALID_PARAM, 1);
	if (usage == USAGE_NO_ID && list[0] != 0)
		return scsi__check_param(cmd, SENSE_INVALID_PARAM, 0);
	if (get_be32(list + 12) != 0)
		return scsi__check_param(cmd, SENSE_INLINE, 12);
	if (cscds + segments > cmd->transfer_len - HEADER ||
	    cscds + segments > SCSI_COPY_LIST_MAX || cscds % CSCD != 0)
		return scsi__check_param(cmd, SENSE_LIST_LENGTH, 2);
	if (cscds / CSCD > SCSI_COPY_CSCDS_MAX)
		return scsi__check_param(cmd, SENSE_TOO_MANY_CSCDS, 2);
	if (segments / SEGMENT > SCSI_COPY_SEGMENTS_MAX)
		return scsi__check_param(cmd, SENSE_TOO_MANY_SEGMENTS, 8);
	return true;
}

/* One of HEADER + @at; its name is looked up when a segment needs it. */
static bool cscd_take(struct scsi_cmd *cmd, const uint8_t *list, unsigned at,
		      struct scsi_cscd *cscd)
{
	const uint8_t *d = list + at;

	if (d[0] != CSCD_IDENTIFICATION)
		return scsi__check_param(cmd, SENSE_CSCD_TYPE, at);
	cscd->at = at;
	cscd->block_bytes = get_be24(d + 29);
	/*
	 * The one of ours that fits here: of a disk, binary, of the unit, NAA.
	 * What SPC-3 had beside the device type is ignored, as SPC-4 says.
	 */
	cscd->named = (d[1] & 0x1f) == 0 && (d[4] & 0xf) == 1 &&
		      (d[5] & 0x3f) == 3 && d[7] == SCSI_NAA_BYTES;
	memcpy(cscd->naa, d + 8, SCSI_NAA_BYTES);
	return true;
}

/* DC: the number is one of the destination's blocks. */
static bool segment_take(struct scsi_cmd *cmd, struct scsi_copy *copy,
			 const uint8_t *list, unsigned at)
{
	struct scsi_copy_segment *s = &copy->segments[copy->segments_count];
	const uint8_t *d = list + at;
	uint32_t from, to;

	s->from = get_be16(d + 4);
	s->to = get_be16(d + 6);
	copy->segments_count++;
	if (s->from >= copy->cscds_count || s->to >= copy->cscds_count) {
		s->bad = SENSE_UNREACHABLE;
		return true;
	}
	from = copy->cscds[s->from].block_bytes;
	to = copy->cscds[s->to].block_bytes;
	s->len = (uint64_t)get_be16(d + 10) * ((d[1] & 2) != 0 ? to : from);
	s->from_lba = get_be64(d + 12);
	s->to_lba = get_be64(d + 20);
	if (from == 0 || to == 0 || s->len % from != 0 || s->len % to != 0)
		s->bad = SENSE_INEXACT;
	if (s->len > SCSI_COPY_SEGMENT_MAX)
		return scsi__check_param(cmd, SENSE_INVALID_PARAM, at + 10);
	return true;
}

static bool segments_take(struct scsi_cmd *cmd, struct scsi_copy *copy,
			  const uint8_t *list, unsigned at, unsigned end)
{
	while (at < end) {
		if (list[at] != BLOCK_TO_BLOCK)
			return scsi__check_param(cmd, SENSE_SEGMENT_TYPE, at);
		if (end - at < SEGMENT)
			return scsi__check_param(cmd, SENSE_LIST_LENGTH, 8);
		if (get_be16(list + at + 2) != SEGMENT - 4)
			return scsi__check_param(cmd, SENSE_INVALID_PARAM,
						 at + 2);
		if (!segment_take(cmd, copy, list, at))
			return false;
		at += SEGMENT;
	}
	return true;
}

/* Nothing is copied before all of the list is understood. */
static bool list_take(struct scsi_cmd *cmd, const uint8_t *list,
		      struct scsi_copy *copy)
{
	unsigned at = HEADER, segments;

	if (!header_check(cmd, list))
		return false;
	copy->result.list_id = list[0];
	copy->identified = (list[1] >> 3 & 3) != USAGE_NO_ID;
	copy->hold = (list[1] >> 3 & 3) == USAGE_HOLD;
	segments = HEADER + get_be16(list + 2);
	for (; at < segments; at += CSCD)
		if (!cscd_take(cmd, list, at,
			       &copy->cscds[copy->cscds_count++]))
			return false;
	return segments_take(cmd, copy, list, at,
			     at + (unsigned)get_be32(list + 8));
}

void scsi__copy(struct scsi_cmd *cmd)
{
	struct scsi_copy *copy;
	const uint8_t *list;

	if (cmd->transfer_len == 0) { /* SPC-4 6.4.1: not an error */
		scsi__done(cmd);
		return;
	}
	list = scsi__list(cmd);
	if (list == NULL)
		return;
	copy = calloc(1, sizeof(*copy));
	if (copy == NULL) {
		scsi__status(cmd, -ENOMEM);
		scsi__done(cmd);
		return;
	}
	if (!list_take(cmd, list, copy)) {
		free(copy);
		scsi__done(cmd);
		return;
	}
	scsi__copy_begin(cmd, copy);
}

/* ---- RECEIVE COPY RESULTS ---- */

#define COPY_STATUS 0u

bool scsi__copy_results_parse(struct scsi_cmd *cmd)
{
	if ((cmd->cdb[1] & 0x1f) == COPY_STATUS &&
	    scsi__copy_result(cmd->it, cmd->cdb[2]) == NULL)
		return scsi__check_field(cmd, 2, -1);
	cmd->dir = SCSI_DIR_IN;
	return true;
}

/* SPC-4 6.18 */
static void copy_status(struct scsi_cmd *cmd)
{
	const struct scsi_copy_result *result =
		scsi__copy_result(cmd->it, cmd->cdb[2]);
	uint8_t d[12] = { 0 };

	if (result == NULL) { /* forgotten since this came in */
		scsi__check_field(cmd, 2, -1);
		scsi__done(cmd);
		return;
	}
	put_be32(d, sizeof(d) - 4);
	d[4] = result->state;
	put_be16(d + 5, (uint16_t)result->segments);
	d[7] = 0; /* in bytes */
	put_be32(d + 8, (uint32_t)result->bytes);
	scsi__reply(cmd, d, sizeof(d), get_be32(cmd->cdb + 10));
}

/* SPC-4 6.20 */
static void operating_parameters(struct scsi_cmd *cmd)
{
	uint8_t d[46] = { 0 };

	put_be32(d, sizeof(d) - 4);
	d[4] = 1; /* SNLID */
	put_be16(d + 8, SCSI_COPY_CSCDS_MAX);
	put_be16(d + 10, SCSI_COPY_SEGMENTS_MAX);
	put_be32(d + 12, SCSI_COPY_LIST_MAX);
	put_be32(d + 16, SCSI_COPY_SEGMENT_MAX);
	put_be16(d + 34, SCSI_COPIES_MAX);
	d[36] = SCSI_COPIES_OF_ONE; /* what who asks may count on */
	d[37] = (uint8_t)__builtin_ctz(cmd->lun->block_bytes);
	d[43] = 2;
	d[44] = BLOCK_TO_BLOCK;
	d[45] = CSCD_IDENTIFICATION;
	scsi__reply(cmd, d, sizeof(d), get_be32(cmd->cdb + 10));
}

void scsi__copy_results(struct scsi_cmd *cmd)
{
	if ((cmd->cdb[1] & 0x1f) == COPY_STATUS)
		copy_status(cmd);
	else
		operating_parameters(cmd);
}

/* ---- VPD page 8F: third-party copy (SPC-4 7.8.17) ---- */

/* @len bytes of a descriptor's own, a multiple of four, behind its header. */
static uint8_t *descriptor(uint8_t *p, unsigned type, size_t len)
{
	put_be16(p, (uint16_t)type);
	put_be16(p + 2, (uint16_t)len);
	return p + 4;
}

/* The table's commands of @opcode, by service action. */
static uint8_t *commands_of(struct scsi_cmd *cmd, uint8_t *p, uint8_t opcode)
{
	const struct scsi_op *op = scsi__op_first(cmd->target->common, opcode);
	uint8_t *count = p + 1;

	*p = opcode;
	p += 2;
	for (; op < scsi__ops + scsi__ops_count && op->opcode == opcode; op++) {
		*p++ = (uint8_t)op->sa;
		++*count;
	}
	return p;
}

size_t scsi__copy_vpd(struct scsi_cmd *cmd, uint8_t *p)
{
	uint8_t *start = p, *d;

	d = descriptor(p, 0x0001, 8); /* supported commands */
	p = commands_of(cmd, commands_of(cmd, d + 1, 0x83), 0x84);
	d[0] = (uint8_t)(p - d - 1);
	assert(p - d == 8);

	d = descriptor(p, 0x0004, 28); /* parameter data */
	put_be16(d + 4, SCSI_COPY_CSCDS_MAX);
	put_be16(d + 6, SCSI_COPY_SEGMENTS_MAX);
	put_be32(d + 8, SCSI_COPY_LIST_MAX);
	p = d + 28;

	d = descriptor(p, 0x0008, 4); /* supported descriptors */
	d[0] = 2;
	d[1] = BLOCK_TO_BLOCK;
	d[2] = CSCD_IDENTIFICATION;
	p = d + 4;

	d = descriptor(p, 0x000c, 4); /* CSCD identifiers above 7FF: none */
	p = d + 4;

	d = descriptor(p, 0x8001, 32); /* general copy operations */
	put_be32(d, SCSI_COPIES_MAX);
	put_be32(d + 4, SCSI_COPIES_OF_ONE);
	put_be32(d + 8, SCSI_COPY_SEGMENT_MAX);
	d[12] = 0; /* granularity: a block */
	p = d + 32;
	return (size_t)(p - start);
}
