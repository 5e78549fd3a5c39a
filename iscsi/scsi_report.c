/*
 * scsi_report: small commands: REQUEST SENSE, START STOP UNIT and its like, and
 * the reports of MAINTENANCE IN (SPC-4 6.33-6.38).
 */
#include "iscsi/scsi_int.h"

/* ---- commands without data ---- */

void scsi__good(struct scsi_cmd *cmd)
{
	scsi__done(cmd);
}

/*
 * FORMAT UNIT: there is nothing to lay out on a virtual disk, and protection
 * information is not built, so a format that asks for none is done at once.
 */
bool scsi__format_parse(struct scsi_cmd *cmd)
{
	unsigned list = (cmd->cdb[1] & 0x20) != 0 ? 8 : 4;

	if ((cmd->cdb[1] & 0x10) == 0) /* FMTDATA */
		return true;
	cmd->dir = SCSI_DIR_OUT;
	cmd->transfer_len = list;
	return true;
}

void scsi__format(struct scsi_cmd *cmd)
{
	const uint8_t *list;
	bool long_list = (cmd->cdb[1] & 0x20) != 0;

	if (cmd->transfer_len > 0) {
		list = scsi__list(cmd);
		if (list == NULL)
			return;
		/* No defects, no patterns, no protection. */
		if ((list[0] & 7) != 0)
			scsi__check_param(cmd, SENSE_INVALID_PARAM, 0);
		else if ((list[1] & 8) != 0)
			scsi__check_param(cmd, SENSE_INVALID_PARAM, 1);
		else if (long_list ? get_be32(list + 4) : get_be16(list + 2))
			scsi__check_param(cmd, SENSE_INVALID_PARAM, 2);
	}
	scsi__done(cmd);
}

/*
 * A shared disk does not stop because one host shuts down: power conditions and
 * STOP are taken and change nothing.  Nothing can be ejected.  Under another's
 * reservation START alone is allowed, without a power condition (SBC-3).
 */
bool scsi__start_stop_parse(struct scsi_cmd *cmd)
{
	bool start = (cmd->cdb[4] & 1) != 0;
	bool condition = cmd->cdb[4] >> 4 != 0;

	if ((!start || condition) && !scsi__access(cmd, DOM_ACCESS_WRITE))
		return false;
	if (!condition && (cmd->cdb[4] & 2) != 0) /* LOEJ */
		return scsi__check_field(cmd, 4, 1);
	return true;
}

void scsi__start_stop(struct scsi_cmd *cmd)
{
	scsi__done(cmd);
}

/* The medium is not removable: there is nothing to prevent. */
bool scsi__prevent_parse(struct scsi_cmd *cmd)
{
	if ((cmd->cdb[4] & 3) != 0 && !scsi__access(cmd, DOM_ACCESS_WRITE))
		return false;
	return true;
}

void scsi__prevent(struct scsi_cmd *cmd)
{
	scsi__done(cmd);
}

/* The default self-test is TEST UNIT READY; there are no others. */
bool scsi__diagnostic_parse(struct scsi_cmd *cmd)
{
	if (cmd->cdb[1] >> 5 != 0)
		return scsi__check_field(cmd, 1, 7);
	if (get_be16(cmd->cdb + 3) != 0)
		return scsi__check_field(cmd, 3, -1);
	return true;
}

void scsi__diagnostic(struct scsi_cmd *cmd)
{
	scsi__done(cmd);
}

/* ---- READ DEFECT DATA: the lists are empty, in every format ---- */

bool scsi__defects_parse(struct scsi_cmd *cmd)
{
	cmd->dir = SCSI_DIR_IN;
	return true;
}

void scsi__defects(struct scsi_cmd *cmd)
{
	bool ten = cmd->op->len == 10;
	uint8_t d[8] = { 0 };

	d[1] = (ten ? cmd->cdb[2] : cmd->cdb[1]) & 0x1f;
	scsi__reply(cmd, d, ten ? 4 : 8,
		    ten ? get_be16(cmd->cdb + 7) : get_be32(cmd->cdb + 6));
}

/* ---- REQUEST SENSE ---- */

void scsi__request_sense(struct scsi_cmd *cmd)
{
	bool descriptor = (cmd->cdb[1] & 1) != 0;
	unsigned sense = 0, len;
	uint8_t sks[3] = { 0x80 };
	const uint8_t *with = NULL;
	const uint64_t *info = NULL;
	uint8_t d[SCSI_SENSE_MAX];
	uint16_t progress;
	int ua;

	if (cmd->lun == NULL) {
		sense = SENSE_NO_LUN;
	} else if ((ua = scsi__ua_take(cmd->it)) >= 0) {
		sense = scsi__ua_sense(ua);
		info = scsi__ua_info(ua);
	} else if (scsi__sanitize_running(cmd->lun, &progress)) {
		sense = SENSE_SANITIZING;
		put_be16(sks + 1, progress);
		with = sks;
	} else {
		sense = scsi__not_ready(cmd->lun);
		if (sense == 0 && scsi__sanitize_failed(cmd->lun))
			sense = SENSE_SANITIZE_FAILED;
	}
	len = scsi__sense_format(d, descriptor, sense, info, with);
	scsi__reply(cmd, d, len, cmd->cdb[4]);
}

/* ---- REPORT SUPPORTED OPERATION CODES ---- */

enum { ALL, ONE, ONE_SA, ONE_MAYBE_SA };

bool scsi__opcodes_parse(struct scsi_cmd *cmd)
{
	unsigned option = cmd->cdb[2] & 7;
	const struct scsi_op *op =
		scsi__op_first(cmd->target->common, cmd->cdb[3]);

	cmd->dir = SCSI_DIR_IN;
	if (option > ONE_MAYBE_SA)
		return scsi__check_field(cmd, 2, 2);
	if (option == ONE && op != NULL && op->sa >= 0)
		return scsi__check_field(cmd, 2, 2);
	if (option == ONE_SA && op != NULL && op->sa < 0)
		return scsi__check_field(cmd, 2, 2);
	return true;
}

static size_t put_timeouts(const struct scsi_op *op, uint8_t *p)
{
	memset(p, 0, 12);
	put_be16(p, 10);
	put_be32(p + 8, op->seconds);
	return 12;
}

static size_t put_usage(const struct scsi_op *op, uint8_t *p)
{
	memcpy(p, op->usage, op->len);
	p[0] = op->opcode;
	if (op->sa >= 0)
		p[1] = (uint8_t)((p[1] & 0xe0) | op->sa);
	return op->len;
}

static void one_opcode(struct scsi_cmd *cmd)
{
	unsigned option = cmd->cdb[2] & 7, sa = get_be16(cmd->cdb + 4);
	const struct scsi_op *op =
		scsi__op_first(cmd->target->common, cmd->cdb[3]);
	bool rctd = (cmd->cdb[2] & 0x80) != 0;
	uint8_t d[4 + 16 + 12] = { 0 };
	size_t len = 4;

	if (op != NULL && op->sa >= 0)
		op = sa <= 0x1f ? scsi__op_find(cmd->target->common,
						cmd->cdb[3], (uint8_t)sa)
				: NULL;
	else if (option == ONE_MAYBE_SA && sa != 0)
		op = NULL;
	d[1] = 1; /* not supported */
	if (op != NULL) {
		d[1] = rctd ? 0x83 : 0x03;
		put_be16(d + 2, op->len);
		len += put_usage(op, d + 4);
		if (rctd)
			len += put_timeouts(op, d + len);
	}
	scsi__reply(cmd, d, len, get_be32(cmd->cdb + 6));
}

void scsi__opcodes(struct scsi_cmd *cmd)
{
	bool rctd = (cmd->cdb[2] & 0x80) != 0;
	uint8_t *d;
	size_t len = 4;

	if ((cmd->cdb[2] & 7) != ALL) {
		one_opcode(cmd);
		return;
	}
	d = cmd->memory = calloc(scsi__ops_count + 1, 20);
	if (d == NULL) {
		scsi__status(cmd, -ENOMEM);
		scsi__done(cmd);
		return;
	}
	for (unsigned i = 0; i < scsi__ops_count; i++) {
		const struct scsi_op *op = &scsi__ops[i];
		uint8_t *p = d + len;

		p[0] = op->opcode;
		if (op->sa >= 0)
			put_be16(p + 2, (uint16_t)op->sa);
		p[5] = (uint8_t)((rctd ? 2 : 0) | (op->sa >= 0 ? 1 : 0));
		put_be16(p + 6, op->len);
		len += 8;
		if (rctd)
			len += put_timeouts(op, d + len);
	}
	put_be32(d, (uint32_t)(len - 4));
	scsi__reply(cmd, d, len, get_be32(cmd->cdb + 6));
}

bool scsi__tmf_report_parse(struct scsi_cmd *cmd)
{
	cmd->dir = SCSI_DIR_IN;
	if (get_be32(cmd->cdb + 6) < 4)
		return scsi__check_field(cmd, 6, -1);
	return true;
}

/*
 * ABORT TASK, ABORT TASK SET, CLEAR TASK SET, LOGICAL UNIT RESET, TARGET RESET;
 * and if this session has them: QUERY TASK; QUERY ASYNCHRONOUS EVENT, QUERY TASK
 * SET, I_T NEXUS RESET.
 */
void scsi__tmf_report(struct scsi_cmd *cmd)
{
	uint8_t d[16] = { 0x80 | 0x40 | 0x10 | 0x08 | 0x02 };
	size_t len = (cmd->cdb[2] & 0x80) != 0 ? 16 : 4;

	if (cmd->nexus->queries) {
		d[0] |= 0x04;
		d[1] = 0x04 | 0x02 | 0x01;
	}
	d[3] = (uint8_t)(len - 4);
	scsi__reply(cmd, d, len, get_be32(cmd->cdb + 6));
}

/* ---- REPORT TARGET PORT GROUPS (implicit ALUA) ---- */

bool scsi__port_groups_parse(struct scsi_cmd *cmd)
{
	cmd->dir = SCSI_DIR_IN;
	if (cmd->cdb[1] >> 5 > 1)
		return scsi__check_field(cmd, 1, 7);
	return true;
}

/* The one group at @p, with all ports in it. */
static size_t put_group(const struct scsi_target *target, uint8_t *p)
{
	p[0] = 0x80; /* preferred; active/optimized */
	p[1] = 0x80 | 0x0b; /* T, U, AN, AO can be reported */
	put_be16(p + 2, SCSI_PORT_GROUP);
	p[7] = (uint8_t)target->ports_count;
	for (unsigned i = 0; i < target->ports_count; i++)
		put_be16(p + 8 + 4 * i + 2, target->rtpi[i]);
	return 8 + 4 * (size_t)target->ports_count;
}

void scsi__port_groups(struct scsi_cmd *cmd)
{
	const struct scsi_target *target = cmd->target;
	bool extended = cmd->cdb[1] >> 5 == 1;
	size_t len = extended ? 8 : 4;
	uint8_t *d;

	d = cmd->memory = calloc(1, 16 + 4 * target->ports_count);
	if (d == NULL) {
		scsi__status(cmd, -ENOMEM);
		scsi__done(cmd);
		return;
	}
	if (extended) {
		d[4] = 0x10;
		d[5] = 20; /* implicit transitions end within, in seconds */
	}
	if (target->ports_count > 0)
		len += put_group(target, d + len);
	put_be32(d, (uint32_t)(len - 4));
	scsi__reply(cmd, d, len, get_be32(cmd->cdb + 6));
}

/* ---- the others ---- */

/* Nobody can set identifying information: what is there is empty. */
void scsi__identifying(struct scsi_cmd *cmd)
{
	uint8_t d[4] = { 0 };

	scsi__reply(cmd, d, sizeof(d), get_be32(cmd->cdb + 6));
}

void scsi__timestamp(struct scsi_cmd *cmd)
{
	uint64_t ms = env_wall_ns(cmd->target->env) / MSEC;
	uint8_t d[12] = { 0 };

	put_be16(d, 10);
	d[2] = 3; /* set by a method outside of the standard */
	put_be16(d + 4, (uint16_t)(ms >> 32));
	put_be32(d + 6, (uint32_t)ms);
	scsi__reply(cmd, d, sizeof(d), get_be32(cmd->cdb + 6));
}
