/*
 * scsi_sanitize: the SANITIZE command (SBC-3 5.27): everything that was ever
 * written to the unit is given up (block erase, crypto erase) or overwritten.
 * scsi_sanitize_run.c does it; until it ends most commands hear of its
 * progress.
 */
#define LOG_ROOM LOG_ISCSI
#include "base/log.h"
#include "iscsi/scsi_int.h"

#define AUSE 0x20u

enum { OVERWRITE = 1, BLOCK_ERASE = 2, CRYPTO_ERASE = 3, EXIT_FAILED = 0x1f };

bool scsi__sanitize_parse(struct scsi_cmd *cmd)
{
	unsigned sa = cmd->cdb[1] & 0x1f, len = get_be16(cmd->cdb + 7);

	if (sa != OVERWRITE) {
		if (len != 0)
			return scsi__check_field(cmd, 7, -1);
		return true;
	}
	if (len < 5 || len > cmd->lun->block_bytes + 4)
		return scsi__check_field(cmd, 7, -1);
	cmd->dir = SCSI_DIR_OUT;
	cmd->transfer_len = len;
	return true;
}

static bool parse_overwrite(struct scsi_cmd *cmd, struct scsi_sanitize *s)
{
	const uint8_t *list = cmd->memory;
	unsigned count = list[0] & 0x1f, len = get_be16(list + 2);

	if (count == 0)
		return scsi__check_param(cmd, SENSE_INVALID_PARAM, 0);
	if (len == 0 || len > cmd->lun->block_bytes ||
	    len > cmd->transfer_len - 4)
		return scsi__check_param(cmd, SENSE_INVALID_PARAM, 2);
	s->overwrite = true;
	s->invert = (list[0] & 0x80) != 0;
	s->passes = count;
	s->pattern_len = len;
	memcpy(s->pattern, list + 4, len);
	return true;
}

/* An abort: what was begun goes on without the command. */
static void detach(struct scsi_cmd *cmd)
{
	scsi__sanitize_of(cmd->lun)->cmd = NULL;
	cmd->cancel = NULL;
}

static void wait_for(struct scsi_cmd *cmd, struct scsi_sanitize *s)
{
	s->cmd = cmd;
	cmd->cancel = detach;
}

static void exit_failed(struct scsi_cmd *cmd)
{
	struct scsi_sanitize *s = scsi__sanitize_of(cmd->lun);

	if (s != NULL && s->stage == SANITIZE_FAILED && s->ause) {
		wait_for(cmd, s);
		scsi__sanitize_exit(s);
		return;
	}
	if (s != NULL && s->stage == SANITIZE_EXIT)
		scsi__check(cmd, SENSE_SANITIZING);
	else if (s != NULL && s->stage == SANITIZE_FAILED)
		scsi__check_field(cmd, 1, 4);
	scsi__done(cmd);
}

void scsi__sanitize(struct scsi_cmd *cmd)
{
	unsigned sa = cmd->cdb[1] & 0x1f;
	struct scsi_lun *lun = cmd->lun;
	struct scsi_sanitize *s = scsi__sanitize_of(lun);

	if (sa == EXIT_FAILED) {
		exit_failed(cmd);
		return;
	}
	if (sa == OVERWRITE && scsi__list(cmd) == NULL)
		return;
	/* Two may have passed the checks at once. */
	if (s != NULL && s->stage != SANITIZE_FAILED) {
		scsi__check(cmd, SENSE_SANITIZING);
		scsi__done(cmd);
		return;
	}
	/* One that failed without AUSE cannot be left by way of one with it. */
	if (s != NULL && !s->ause && (cmd->cdb[1] & AUSE) != 0) {
		scsi__check_field(cmd, 1, 5);
		scsi__done(cmd);
		return;
	}
	s = calloc(1, sizeof(*s));
	if (s == NULL) {
		scsi__status(cmd, -ENOMEM);
		scsi__done(cmd);
		return;
	}
	s->passes = 1;
	s->immed = (cmd->cdb[1] & 0x80) != 0;
	s->ause = (cmd->cdb[1] & AUSE) != 0;
	if (sa == OVERWRITE && !parse_overwrite(cmd, s)) {
		free(s);
		scsi__done(cmd);
		return;
	}
	log_info("unit %s: sanitize asked for by %s", lun->name,
		 cmd->it->dom.initiator_port);
	wait_for(cmd, s);
	scsi__sanitize_begin(lun, s);
}
