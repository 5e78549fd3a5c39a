/*
 * scsi_table: every command the unit knows.  Dispatch, the check of reserved
 * bits, reservation conflicts and REPORT SUPPORTED OPERATION CODES all read
 * this one table, so they cannot disagree.  Sorted by opcode, then service
 * action.
 */
#include "iscsi/scsi_int.h"

#define N DOM_ACCESS_NONE
#define R DOM_ACCESS_READ
#define W DOM_ACCESS_WRITE
/* Fields that are all ones in a usage map. */
#define B2 0xff, 0xff
#define B3 0xff, 0xff, 0xff
#define B4 0xff, 0xff, 0xff, 0xff
#define B8 B4, B4
#define READS (OP_GROUP | OP_RARC)
#define WRITES (OP_WRITE | OP_PARTIAL)
#define FREE (OP_NO_UA | OP_NO_LUN | OP_NO_OBJECT | OP_SPC2 | OP_SANITIZE)
#define TELL (OP_NO_OBJECT | OP_SANITIZE)

/* clang-format off */
const struct scsi_op scsi__ops[] = {
	/* TEST UNIT READY */
	{ 0x00, -1, 6, N, 0, { 0 }, scsi__parse_none, scsi__good, 5 },
	/* REQUEST SENSE */
	{ 0x03, -1, 6, N, FREE, { 0, 1, 0, 0, 0xff }, scsi__parse_in,
	  scsi__request_sense, 5 },
	/* FORMAT UNIT */
	{ 0x04, -1, 6, W, OP_WRITE, { 0, 0x3f, 0, 0, 0 }, scsi__format_parse,
	  scsi__format, 60 },
	/* READ(6), WRITE(6) */
	{ 0x08, -1, 6, R, 0, { 0, 0x1f, B3 }, scsi__read_parse, scsi__read,
	  30 },
	{ 0x0a, -1, 6, W, WRITES, { 0, 0x1f, B3 }, scsi__write_parse,
	  scsi__write, 30 },
	/* INQUIRY */
	{ 0x12, -1, 6, N, FREE, { 0, 1, B3 }, scsi__inquiry_parse,
	  scsi__inquiry, 5 },
	/* MODE SELECT(6), RESERVE(6), RELEASE(6), MODE SENSE(6) */
	{ 0x15, -1, 6, W, 0, { 0, 0x11, 0, 0, 0xff }, scsi__mode_select_parse,
	  scsi__mode_select, 10 },
	{ 0x16, -1, 6, N, OP_SPC2, { 0 }, scsi__spc2_parse, scsi__spc2, 10 },
	{ 0x17, -1, 6, N, OP_SPC2, { 0 }, scsi__spc2_parse, scsi__spc2, 10 },
	{ 0x1a, -1, 6, R, 0, { 0, 0x08, B3 }, scsi__mode_sense_parse,
	  scsi__mode_sense, 5 },
	/* START STOP UNIT, SEND DIAGNOSTIC, PREVENT ALLOW MEDIUM REMOVAL */
	{ 0x1b, -1, 6, N, 0, { 0, 0x01, 0, 0x0f, 0xf7 },
	  scsi__start_stop_parse, scsi__start_stop, 30 },
	{ 0x1d, -1, 6, W, 0, { 0, 0xf7, 0, B2 }, scsi__diagnostic_parse,
	  scsi__diagnostic, 30 },
	{ 0x1e, -1, 6, N, 0, { 0, 0, 0, 0, 0x03 }, scsi__prevent_parse,
	  scsi__prevent, 5 },
	/* READ CAPACITY(10) */
	{ 0x25, -1, 10, N, OP_SANITIZE, { 0, 0, 0 }, scsi__parse_in, scsi__capacity10,
	  5 },
	/* READ(10), WRITE(10), WRITE AND VERIFY(10), VERIFY(10) */
	{ 0x28, -1, 10, R, READS, { 0, 0x18, B4, 0, B2 },
	  scsi__read_parse, scsi__read, 30 },
	{ 0x2a, -1, 10, W, WRITES | OP_GROUP, { 0, 0x18, B4, 0, B2 },
	  scsi__write_parse, scsi__write, 30 },
	{ 0x2e, -1, 10, W, WRITES | OP_GROUP, { 0, 0x16, B4, 0, B2 },
	  scsi__write_verify_parse, scsi__write_verify, 30 },
	{ 0x2f, -1, 10, R, OP_GROUP, { 0, 0x16, B4, 0, B2 },
	  scsi__verify_parse, scsi__verify, 120 },
	/* PRE-FETCH(10), SYNCHRONIZE CACHE(10), READ DEFECT DATA(10) */
	{ 0x34, -1, 10, R, OP_GROUP, { 0, 0x02, B4, 0, B2 },
	  scsi__range_parse, scsi__range, 10 },
	{ 0x35, -1, 10, W, OP_GROUP, { 0, 0x06, B4, 0, B2 },
	  scsi__range_parse, scsi__range, 30 },
	{ 0x37, -1, 10, R, 0, { 0, 0, 0x1f, 0, 0, 0, 0, B2 },
	  scsi__defects_parse, scsi__defects, 10 },
	/* WRITE SAME(10), UNMAP, SANITIZE */
	{ 0x41, -1, 10, W, OP_WRITE | OP_GROUP | OP_EXACT,
	  { 0, 0x08, B4, 0, B2 }, scsi__write_same_parse, scsi__write_same,
	  60 },
	{ 0x42, -1, 10, W, OP_WRITE | OP_GROUP,
	  { 0, 0, 0, 0, 0, 0, 0, B2 }, scsi__unmap_parse, scsi__unmap, 30 },
	{ 0x48, 0x01, 10, W, OP_WRITE, { 0, 0xbf, 0, 0, 0, 0, 0, B2 },
	  scsi__sanitize_parse, scsi__sanitize, 0xffff },
	{ 0x48, 0x02, 10, W, OP_WRITE, { 0, 0xbf, 0, 0, 0, 0, 0, B2 },
	  scsi__sanitize_parse, scsi__sanitize, 0xffff },
	{ 0x48, 0x03, 10, W, OP_WRITE, { 0, 0xbf, 0, 0, 0, 0, 0, B2 },
	  scsi__sanitize_parse, scsi__sanitize, 0xffff },
	{ 0x48, 0x1f, 10, W, OP_WRITE | OP_SANITIZE,
	  { 0, 0xbf, 0, 0, 0, 0, 0, B2 }, scsi__sanitize_parse,
	  scsi__sanitize, 10 },
	/* LOG SELECT, LOG SENSE */
	{ 0x4c, -1, 10, W, 0, { 0, 0x03, 0xff, 0xff, 0, 0, 0, B2 },
	  scsi__log_select_parse, scsi__log_select, 5 },
	{ 0x4d, -1, 10, N, OP_SANITIZE, { 0, 0x01, 0xff, 0xff, 0, B4 },
	  scsi__log_sense_parse, scsi__log_sense, 5 },
	/* MODE SELECT(10), RESERVE(10), RELEASE(10), MODE SENSE(10) */
	{ 0x55, -1, 10, W, 0, { 0, 0x11, 0, 0, 0, 0, 0, B2 },
	  scsi__mode_select_parse, scsi__mode_select, 10 },
	{ 0x56, -1, 10, N, OP_SPC2, { 0 }, scsi__spc2_parse, scsi__spc2, 10 },
	{ 0x57, -1, 10, N, OP_SPC2, { 0 }, scsi__spc2_parse, scsi__spc2, 10 },
	{ 0x5a, -1, 10, R, 0, { 0, 0x18, B2, 0, 0, 0, B2 },
	  scsi__mode_sense_parse, scsi__mode_sense, 5 },
	/* PERSISTENT RESERVE IN: READ KEYS .. READ FULL STATUS */
	{ 0x5e, 0, 10, N, OP_SANITIZE, { 0, 0x1f, 0, 0, 0, 0, 0, B2 },
	  scsi__pr_in_parse, scsi__pr_in, 10 },
	{ 0x5e, 1, 10, N, OP_SANITIZE, { 0, 0x1f, 0, 0, 0, 0, 0, B2 },
	  scsi__pr_in_parse, scsi__pr_in, 10 },
	{ 0x5e, 2, 10, N, OP_SANITIZE, { 0, 0x1f, 0, 0, 0, 0, 0, B2 },
	  scsi__pr_in_parse, scsi__pr_in, 10 },
	{ 0x5e, 3, 10, N, OP_SANITIZE, { 0, 0x1f, 0, 0, 0, 0, 0, B2 },
	  scsi__pr_in_parse, scsi__pr_in, 10 },
	/* PERSISTENT RESERVE OUT: REGISTER .. REGISTER AND MOVE */
	{ 0x5f, 0, 10, N, OP_SANITIZE, { 0, 0x1f, 0xff, 0, 0, B4 },
	  scsi__pr_out_parse, scsi__pr_out, 10 },
	{ 0x5f, 1, 10, N, OP_SANITIZE, { 0, 0x1f, 0xff, 0, 0, B4 },
	  scsi__pr_out_parse, scsi__pr_out, 10 },
	{ 0x5f, 2, 10, N, OP_SANITIZE, { 0, 0x1f, 0xff, 0, 0, B4 },
	  scsi__pr_out_parse, scsi__pr_out, 10 },
	{ 0x5f, 3, 10, N, OP_SANITIZE, { 0, 0x1f, 0xff, 0, 0, B4 },
	  scsi__pr_out_parse, scsi__pr_out, 10 },
	{ 0x5f, 4, 10, N, OP_SANITIZE, { 0, 0x1f, 0xff, 0, 0, B4 },
	  scsi__pr_out_parse, scsi__pr_out, 10 },
	{ 0x5f, 5, 10, N, OP_SANITIZE, { 0, 0x1f, 0xff, 0, 0, B4 },
	  scsi__pr_out_parse, scsi__pr_out, 10 },
	{ 0x5f, 6, 10, N, OP_SANITIZE, { 0, 0x1f, 0xff, 0, 0, B4 },
	  scsi__pr_out_parse, scsi__pr_out, 10 },
	{ 0x5f, 7, 10, N, OP_SANITIZE, { 0, 0x1f, 0xff, 0, 0, B4 },
	  scsi__pr_out_parse, scsi__pr_out, 10 },
	/* EXTENDED COPY(LID1), RECEIVE COPY STATUS, OPERATING PARAMETERS */
	{ 0x83, 0x00, 16, W, 0, { 0, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, B4 },
	  scsi__copy_parse, scsi__copy, 60 },
	{ 0x84, 0x00, 16, W, 0, { 0, 0x1f, 0xff, 0, 0, 0, 0, 0, 0, 0, B4 },
	  scsi__copy_results_parse, scsi__copy_results, 5 },
	{ 0x84, 0x03, 16, N, 0, { 0, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, B4 },
	  scsi__copy_results_parse, scsi__copy_results, 5 },
	/* READ(16), COMPARE AND WRITE, WRITE(16), ORWRITE(16) */
	{ 0x88, -1, 16, R, READS, { 0, 0x18, B8, B4 }, scsi__read_parse,
	  scsi__read, 30 },
	{ 0x89, -1, 16, W, OP_WRITE | OP_GROUP | OP_EXACT,
	  { 0, 0x18, B8, 0, 0, 0, 0xff }, scsi__compare_parse, scsi__compare,
	  10 },
	{ 0x8a, -1, 16, W, WRITES | OP_GROUP, { 0, 0x18, B8, B4 },
	  scsi__write_parse, scsi__write, 30 },
	{ 0x8b, -1, 16, W, OP_WRITE | OP_GROUP,
	  { 0, 0x18, B8, 0, 0, 0x0f, 0xff }, scsi__orwrite_parse,
	  scsi__orwrite, 30 },
	/* WRITE AND VERIFY(16), VERIFY(16) */
	{ 0x8e, -1, 16, W, WRITES | OP_GROUP, { 0, 0x16, B8, B4 },
	  scsi__write_verify_parse, scsi__write_verify, 30 },
	{ 0x8f, -1, 16, R, OP_GROUP, { 0, 0x16, B8, B4 }, scsi__verify_parse,
	  scsi__verify, 120 },
	/* PRE-FETCH(16), SYNCHRONIZE CACHE(16), WRITE SAME(16) */
	{ 0x90, -1, 16, R, OP_GROUP, { 0, 0x02, B8, B4 }, scsi__range_parse,
	  scsi__range, 10 },
	{ 0x91, -1, 16, W, OP_GROUP, { 0, 0x06, B8, B4 }, scsi__range_parse,
	  scsi__range, 30 },
	{ 0x93, -1, 16, W, OP_WRITE | OP_GROUP | OP_EXACT,
	  { 0, 0x09, B8, B4 }, scsi__write_same_parse, scsi__write_same, 60 },
	/* WRITE ATOMIC(16) */
	{ 0x9c, -1, 16, W, OP_WRITE | OP_GROUP, { 0, 0x18, B8, B2, B2 },
	  scsi__atomic_parse, scsi__atomic, 30 },
	/* READ CAPACITY(16), GET LBA STATUS(16) */
	{ 0x9e, 0x10, 16, N, OP_SANITIZE,
	  { 0, 0x1f, 0, 0, 0, 0, 0, 0, 0, 0, B4 }, scsi__parse_in,
	  scsi__capacity16, 5 },
	{ 0x9e, 0x12, 16, R, 0, { 0, 0x1f, B8, B4 }, scsi__lba_status_parse,
	  scsi__lba_status, 30 },
	/* REPORT LUNS */
	{ 0xa0, -1, 12, N, FREE, { 0, 0, 0xff, 0, 0, 0, B4 },
	  scsi__report_luns_parse, scsi__report_luns, 5 },
	/* REPORT IDENTIFYING INFORMATION, TARGET PORT GROUPS */
	{ 0xa3, 0x05, 12, N, TELL,
	  { 0, 0x1f, 0, 0, 0, 0, B4, 0xfe }, scsi__parse_in,
	  scsi__identifying, 5 },
	{ 0xa3, 0x0a, 12, N, TELL, { 0, 0xff, 0, 0, 0, 0, B4 },
	  scsi__port_groups_parse, scsi__port_groups, 5 },
	/* REPORT SUPPORTED OPERATION CODES, TASK MANAGEMENT FUNCTIONS */
	{ 0xa3, 0x0c, 12, R, TELL, { 0, 0x1f, 0x87, B3, B4 },
	  scsi__opcodes_parse, scsi__opcodes, 5 },
	{ 0xa3, 0x0d, 12, R, TELL, { 0, 0x1f, 0x80, 0, 0, 0, B4 },
	  scsi__tmf_report_parse, scsi__tmf_report, 5 },
	/* REPORT TIMESTAMP */
	{ 0xa3, 0x0f, 12, N, TELL, { 0, 0x1f, 0, 0, 0, 0, B4 },
	  scsi__parse_in, scsi__timestamp, 5 },
	/* READ(12), WRITE(12), WRITE AND VERIFY(12), VERIFY(12) */
	{ 0xa8, -1, 12, R, READS, { 0, 0x18, B8 }, scsi__read_parse,
	  scsi__read, 30 },
	{ 0xaa, -1, 12, W, WRITES | OP_GROUP, { 0, 0x18, B8 },
	  scsi__write_parse, scsi__write, 30 },
	{ 0xae, -1, 12, W, WRITES | OP_GROUP, { 0, 0x16, B8 },
	  scsi__write_verify_parse, scsi__write_verify, 30 },
	{ 0xaf, -1, 12, R, OP_GROUP, { 0, 0x16, B8 }, scsi__verify_parse,
	  scsi__verify, 120 },
	/* READ DEFECT DATA(12) */
	{ 0xb7, -1, 12, R, 0, { 0, 0x1f, B4, B4 }, scsi__defects_parse,
	  scsi__defects, 10 },
};
/* clang-format on */
const unsigned scsi__ops_count = ARRAY_LEN(scsi__ops);

_Static_assert(ARRAY_LEN(scsi__ops) <= UINT8_MAX, "a place fits its byte");

void scsi__ops_index(struct scsi_common *common)
{
	memset(common->ops, 0, sizeof(common->ops));
	for (unsigned i = ARRAY_LEN(scsi__ops); i > 0; i--)
		common->ops[scsi__ops[i - 1].opcode] = (uint8_t)i;
}

const struct scsi_op *scsi__op_first(const struct scsi_common *common,
				     uint8_t opcode)
{
	unsigned place = common->ops[opcode];

	return place > 0 ? &scsi__ops[place - 1] : NULL;
}

const struct scsi_op *scsi__op_find(const struct scsi_common *common,
				    uint8_t opcode, uint8_t sa)
{
	const struct scsi_op *op = scsi__op_first(common, opcode);

	if (op == NULL || op->sa < 0)
		return op;
	for (; op < scsi__ops + ARRAY_LEN(scsi__ops) && op->opcode == opcode;
	     op++)
		if ((uint8_t)op->sa == sa)
			return op;
	return NULL;
}
