/*
 * scsi_sense: sense data (SPC-4 4.5), the one table from a status of dom to
 * what an initiator hears, and unit attention conditions (SAM-5 5.14).
 */
#include "iscsi/scsi_int.h"

#define SKS_CDB 0x40u
#define SKS_BIT 0x08u
#define SKS_VALID 0x80u
#define SKS_SEGMENT 0x20u

static unsigned fixed_format(uint8_t *buf, unsigned sense, const uint64_t *info,
			     const uint8_t *sks)
{
	memset(buf, 0, 18);
	buf[0] = 0x70;
	/* Four bytes hold it or it is not told. */
	if (info != NULL && *info <= UINT32_MAX) {
		buf[0] |= 0x80;
		put_be32(buf + 3, (uint32_t)*info);
	}
	buf[2] = (uint8_t)(sense >> 16 & 0xf);
	buf[7] = 10;
	buf[12] = (uint8_t)(sense >> 8);
	buf[13] = (uint8_t)sense;
	if (sks != NULL)
		memcpy(buf + 15, sks, 3);
	return 18;
}

static unsigned descriptor_format(uint8_t *buf, unsigned sense,
				  const uint64_t *info, const uint8_t *sks)
{
	unsigned len = 8;

	memset(buf, 0, 32);
	buf[0] = 0x72;
	buf[1] = (uint8_t)(sense >> 16 & 0xf);
	buf[2] = (uint8_t)(sense >> 8);
	buf[3] = (uint8_t)sense;
	if (info != NULL) {
		buf[len] = 0x00;
		buf[len + 1] = 0x0a;
		buf[len + 2] = 0x80;
		put_be64(buf + len + 4, *info);
		len += 12;
	}
	if (sks != NULL) {
		buf[len] = 0x02;
		buf[len + 1] = 0x06;
		memcpy(buf + len + 4, sks, 3);
		len += 8;
	}
	buf[7] = (uint8_t)(len - 8);
	return len;
}

unsigned scsi__sense_format(uint8_t *buf, bool descriptor, unsigned sense,
			    const uint64_t *info, const uint8_t *sks)
{
	return descriptor ? descriptor_format(buf, sense, info, sks)
			  : fixed_format(buf, sense, info, sks);
}

static bool check(struct scsi_cmd *cmd, unsigned sense, const uint64_t *info,
		  const uint8_t *sks)
{
	bool descriptor = cmd->lun != NULL && cmd->lun->d_sense;

	static_assert(SCSI_SENSE_MAX >= 44, "three descriptors fit");
	cmd->status = SCSI_CHECK_CONDITION;
	cmd->sense_len =
		scsi__sense_format(cmd->sense, descriptor, sense, info, sks);
	return false;
}

bool scsi__check(struct scsi_cmd *cmd, unsigned sense)
{
	return check(cmd, sense, NULL, NULL);
}

void scsi_cmd_check(struct scsi_cmd *cmd, unsigned key, unsigned asc,
		    unsigned ascq)
{
	scsi__check(cmd, SENSE(key, asc, ascq));
}

bool scsi__check_info(struct scsi_cmd *cmd, unsigned sense, uint64_t info)
{
	return check(cmd, sense, &info, NULL);
}

bool scsi__check_field(struct scsi_cmd *cmd, unsigned byte, int bit)
{
	uint8_t sks[3] = { SKS_VALID | SKS_CDB };

	if (bit >= 0)
		sks[0] |= (uint8_t)(SKS_BIT | (bit & 7));
	put_be16(sks + 1, (uint16_t)byte);
	return check(cmd, SENSE_INVALID_CDB, NULL, sks);
}

bool scsi__check_param(struct scsi_cmd *cmd, unsigned sense, unsigned byte)
{
	uint8_t sks[3] = { SKS_VALID };

	put_be16(sks + 1, (uint16_t)byte);
	return check(cmd, sense, NULL, sks);
}

bool scsi__check_progress(struct scsi_cmd *cmd, unsigned sense,
			  uint16_t progress)
{
	uint8_t sks[3] = { SKS_VALID };

	put_be16(sks + 1, progress);
	return check(cmd, sense, NULL, sks);
}

/*
 * SPC-4 5.16.7.4: the number of the segment is in the COMMAND-SPECIFIC INFORMATION
 * field; the field pointer counts from the segment's first byte (SD).
 */
bool scsi__check_segment(struct scsi_cmd *cmd, unsigned sense, unsigned segment,
			 unsigned byte)
{
	uint8_t sks[3] = { SKS_VALID | SKS_SEGMENT };
	uint8_t *d;

	put_be16(sks + 1, (uint16_t)byte);
	check(cmd, sense, NULL, byte != 0 ? sks : NULL);
	if ((cmd->sense[0] & 0x7f) == 0x70) {
		put_be16(cmd->sense + 10, (uint16_t)segment);
		return false;
	}
	d = cmd->sense + cmd->sense_len;
	memset(d, 0, 12);
	d[0] = 0x01;
	d[1] = 0x0a;
	put_be16(d + 10, (uint16_t)segment);
	cmd->sense[7] += 12;
	cmd->sense_len += 12;
	return false;
}

bool scsi__conflict(struct scsi_cmd *cmd)
{
	cmd->status = SCSI_RESERVATION_CONFLICT;
	cmd->sense_len = 0;
	return false;
}

/*
 * What an initiator hears of a status.  Temporary trouble must look temporary:
 * "not accessible, transition" makes hosts retry, while ILLEGAL REQUEST or
 * hardware errors would make them give the device up for good.
 *
 * A disk that failed (-ENODEV, and -ENXIO to all that comes after it) may be back
 * by a command, so it counts as temporary: Linux repeats 02/04/0A every second
 * for six times its command's timeout, the write error of 03/0C at once for five
 * times, and hands 02/04/00 to the file system.  We wait for nothing here.
 *
 * What ran out of time is "communication time-out", which hosts repeat as any
 * other aborted command.  Not 0B/2E: since Linux 6.5 that is a duration limit of
 * the host's own, and what exceeds it fails at once.
 */
static const struct {
	int status;
	unsigned scsi_status; /* SCSI_GOOD: a check condition with @sense */
	unsigned sense;
} map[] = {
	{ -EPERM, SCSI_RESERVATION_CONFLICT, 0 },
	{ -EBUSY, SCSI_BUSY, 0 },
	{ -EAGAIN, SCSI_BUSY, 0 },
	{ -ENOMEM, SCSI_BUSY, 0 },
	{ -EINVAL, 0, SENSE_INVALID_CDB },
	{ -ERANGE, 0, SENSE_LBA_RANGE },
	{ -ENOSPC, 0, SENSE(7, 0x27, 0x07) },
	{ -EROFS, 0, SENSE(7, 0x27, 0x00) },
	{ -EBADMSG, 0, SENSE(3, 0x11, 0x00) },
	{ -EIO, 0, SENSE(3, 0x0c, 0x00) },
	{ -ENODEV, 0, SENSE(2, 0x04, 0x0a) },
	{ -ENXIO, 0, SENSE(2, 0x04, 0x0a) },
	{ -ESHUTDOWN, 0, SENSE(2, 0x04, 0x0a) },
	{ -ESTALE, 0, SENSE(2, 0x04, 0x0a) },
	{ -ETIMEDOUT, 0, SENSE(0xb, 0x08, 0x01) },
	{ -ECANCELED, 0, SENSE(0xb, 0x00, 0x00) },
	{ -ENOENT, 0, SENSE_NO_LUN },
	{ -EILSEQ, 0, SENSE_MISCOMPARE },
};

void scsi__status(struct scsi_cmd *cmd, int status)
{
	if (status == 0) {
		cmd->status = SCSI_GOOD;
		return;
	}
	if (status == -EILSEQ) {
		scsi__check_info(cmd, SENSE_MISCOMPARE, cmd->io.miscompare);
		return;
	}
	if (status == -EBADMSG) {
		scsi__check_info(cmd, SENSE(3, 0x11, 0x00),
				 cmd->io.bad_offset / cmd->lun->block_bytes);
		return;
	}
	/*
	 * A read that found no memory, or no copy, in its time has done nothing:
	 * BUSY is repeated as long as the host's own limit allows.  What may have
	 * been written says so: COMPARE AND WRITE must not be repeated unasked.
	 */
	if (status == -ETIMEDOUT && cmd->dir == SCSI_DIR_IN)
		status = -EBUSY;
	/* A medium error of a read is not a failed write. */
	if (status == -EIO && cmd->dir != SCSI_DIR_OUT) {
		scsi__check(cmd, SENSE(3, 0x11, 0x00));
		return;
	}
	for (size_t i = 0; i < ARRAY_LEN(map); i++) {
		if (map[i].status != status)
			continue;
		if (map[i].scsi_status != 0)
			cmd->status = map[i].scsi_status;
		else
			scsi__check(cmd, map[i].sense);
		return;
	}
	scsi__check(cmd, SENSE(0xb, 0x44, 0x00)); /* internal target failure */
}

static const unsigned ua_senses[UA_COUNT] = {
	[UA_POWER_ON] = SENSE(6, 0x29, 0x00),
	[UA_BUS_RESET] = SENSE(6, 0x29, 0x02),
	[UA_DEVICE_RESET] = SENSE(6, 0x29, 0x03),
	[UA_NEXUS_LOSS] = SENSE(6, 0x29, 0x07),
	[UA_MODE_CHANGED] = SENSE(6, 0x2a, 0x01),
	[UA_PR_PREEMPTED] = SENSE(6, 0x2a, 0x03),
	[UA_PR_RELEASED] = SENSE(6, 0x2a, 0x04),
	[UA_PR_UNREGISTERED] = SENSE(6, 0x2a, 0x05),
	[UA_ALUA] = SENSE(6, 0x2a, 0x06),
	[UA_CAPACITY] = SENSE(6, 0x2a, 0x09),
	[UA_CLEARED] = SENSE(6, 0x2f, 0x00),
	[UA_INQUIRY] = SENSE(6, 0x3f, 0x03),
	[UA_LUNS] = SENSE(6, 0x3f, 0x0e),
	[UA_THIN] = SENSE(6, 0x38, 0x07),
};

unsigned scsi__ua_sense(enum scsi_ua ua)
{
	assert(ua < UA_COUNT);
	return ua_senses[ua];
}

/* Which threshold it was (SBC-3 4.7.3.8): there is one. */
const uint64_t *scsi__ua_info(enum scsi_ua ua)
{
	static const uint64_t threshold = SCSI_THRESHOLD_AT;

	return ua == UA_THIN ? &threshold : NULL;
}

bool scsi__check_ua(struct scsi_cmd *cmd, enum scsi_ua ua)
{
	return check(cmd, scsi__ua_sense(ua), scsi__ua_info(ua), NULL);
}

int scsi__ua_take(struct scsi_it_lun *it)
{
	int ua;

	if (it->ua == 0)
		return -1;
	ua = __builtin_ctz(it->ua);
	it->ua &= it->ua - 1;
	return ua;
}

unsigned scsi_attention(struct scsi_nexus *nexus, uint64_t lun_field,
			bool *more)
{
	struct scsi_lun *lun = scsi__lun_find(nexus->target, lun_field);
	const struct scsi_it_lun *it;

	it = lun != NULL ? scsi__it_find(nexus, lun) : NULL;
	if (it == NULL || it->ua == 0)
		return 0;
	*more = (it->ua & (it->ua - 1)) != 0;
	return scsi__ua_sense(__builtin_ctz(it->ua));
}

void scsi__ua_set(struct scsi_it_lun *it, enum scsi_ua ua)
{
	/* Whoever hears of a reset looks at everything anew (SAM-5 5.14). */
	if (ua < UA_RESETS)
		it->ua = 0;
	it->ua |= 1u << ua;
}

void scsi__ua_set_all(struct scsi_lun *lun, enum scsi_ua ua,
		      const struct scsi_it_lun *except)
{
	struct scsi_it_lun *it;

	TAILQ_FOREACH (it, &lun->its, link)
		if (it != except)
			scsi__ua_set(it, ua);
}
