/*
 * scsi_block: commands that move blocks or look at them (SBC-3 5): READ, WRITE,
 * WRITE AND VERIFY, VERIFY, COMPARE AND WRITE, ORWRITE, WRITE ATOMIC, and those
 * that only name a range (PRE-FETCH, SYNCHRONIZE CACHE).
 *
 * Writes are durable when dom answers, so FUA asks for nothing more and there
 * is no cache to synchronize.
 */
#include "iscsi/scsi_int.h"

#define BYTCHK(cmd) ((cmd)->cdb[1] >> 1 & 3)

static uint64_t bytes_of(const struct scsi_cmd *cmd)
{
	return cmd->blocks * cmd->lun->block_bytes;
}

static uint64_t offset_of(const struct scsi_cmd *cmd)
{
	return cmd->lba * cmd->lun->block_bytes;
}

/* LBA and length, by the CDB's size; *@at: the byte of the length field. */
static void decode(struct scsi_cmd *cmd, unsigned *at)
{
	const uint8_t *cdb = cmd->cdb;

	switch (cmd->op->len) {
	case 6:
		cmd->lba = get_be24(cdb + 1) & 0x1fffff;
		cmd->blocks = cdb[4] != 0 ? cdb[4] : 256;
		*at = 4;
		break;
	case 10:
		cmd->lba = get_be32(cdb + 2);
		cmd->blocks = get_be16(cdb + 7);
		*at = 7;
		break;
	case 12:
		cmd->lba = get_be32(cdb + 2);
		cmd->blocks = get_be32(cdb + 6);
		*at = 6;
		break;
	default:
		cmd->lba = get_be64(cdb + 2);
		cmd->blocks = get_be32(cdb + 10);
		*at = 10;
		break;
	}
}

/* Protection, range, and at most @bytes_max; @at: where the length stands. */
static bool check_blocks(struct scsi_cmd *cmd, unsigned at, uint64_t bytes_max)
{
	if ((cmd->op->flags & OP_WRITE) != 0 && !scsi__writable(cmd))
		return false;
	if (!scsi__in_range(cmd))
		return false;
	if (bytes_of(cmd) > bytes_max)
		return scsi__check_field(cmd, at, -1);
	return true;
}

static bool parse_blocks(struct scsi_cmd *cmd, enum scsi_dir dir,
			 uint64_t bytes_max)
{
	unsigned at;

	decode(cmd, &at);
	if (!check_blocks(cmd, at, bytes_max))
		return false;
	cmd->dir = dir;
	cmd->transfer_len = bytes_of(cmd);
	cmd->page_offset = (uint32_t)(offset_of(cmd) % PAGE_BYTES);
	return true;
}

/* ---- READ ---- */

bool scsi__read_parse(struct scsi_cmd *cmd)
{
	return parse_blocks(cmd, SCSI_DIR_IN, SCSI_TRANSFER_MAX);
}

static void read_done(struct dom_io *io, int status)
{
	struct scsi_cmd *cmd = scsi__io_end(io, status);

	if (cmd == NULL)
		return;
	cmd->data_in = io->sgl;
	io->sgl = NULL;
	cmd->data_in_len = MIN(cmd->transfer_len, scsi__in_len(cmd));
	scsi__done(cmd);
}

void scsi__read(struct scsi_cmd *cmd)
{
	/* What the initiator does not take is not read (RFC 7143 11.4.5). */
	uint64_t len = MIN(cmd->transfer_len, scsi__in_len(cmd));

	if (len == 0) {
		scsi__done(cmd);
		return;
	}
	scsi__io(cmd,
		 dom_read(cmd->lun->object, &cmd->io, offset_of(cmd),
			  ROUND_UP(len, cmd->lun->block_bytes), read_done));
}

/* ---- WRITE, WRITE ATOMIC, ORWRITE ---- */

bool scsi__write_parse(struct scsi_cmd *cmd)
{
	return parse_blocks(cmd, SCSI_DIR_OUT, SCSI_TRANSFER_MAX);
}

static void write_done(struct dom_io *io, int status)
{
	struct scsi_cmd *cmd = scsi__io_end(io, status);

	if (cmd != NULL)
		scsi__done(cmd);
}

static void write_with(struct scsi_cmd *cmd, unsigned flags, dom_io_cb cb)
{
	assert(cmd->data_out->len_bytes ==
	       MIN(cmd->transfer_len, scsi__out_len(cmd)));
	scsi__io(cmd, dom_write(cmd->lun->object, &cmd->io, offset_of(cmd),
				cmd->data_out, flags, cb));
}

/* There may be less than the CDB says, or nothing (OP_PARTIAL). */
static bool nothing_came(const struct scsi_cmd *cmd)
{
	if (cmd->data_out != NULL)
		return false;
	assert(MIN(cmd->transfer_len, scsi__out_len(cmd)) == 0);
	return true;
}

void scsi__write(struct scsi_cmd *cmd)
{
	if (nothing_came(cmd))
		scsi__done(cmd);
	else
		write_with(cmd, 0, write_done);
}

bool scsi__atomic_parse(struct scsi_cmd *cmd)
{
	cmd->lba = get_be64(cmd->cdb + 2);
	cmd->blocks = get_be16(cmd->cdb + 12);
	/* B0 says that no boundary is supported. */
	if (get_be16(cmd->cdb + 10) != 0)
		return scsi__check_field(cmd, 10, -1);
	if (!check_blocks(cmd, 12, SCSI_ATOMIC_MAX))
		return false;
	cmd->dir = SCSI_DIR_OUT;
	cmd->transfer_len = bytes_of(cmd);
	cmd->page_offset = (uint32_t)(offset_of(cmd) % PAGE_BYTES);
	return true;
}

void scsi__atomic(struct scsi_cmd *cmd)
{
	if (cmd->transfer_len == 0)
		scsi__done(cmd);
	else
		write_with(cmd, DOM_ATOMIC, write_done);
}

/*
 * Reading and writing is one uninterrupted series of actions (SBC-3): it does
 * not go in steps, and is bounded like other atomic commands.  VPD B0 has no
 * field for that: its MAXIMUM TRANSFER LENGTH is that of READ and WRITE, too
 * (SBC-3 6.6.4).  So REPORT SUPPORTED OPERATION CODES says it: the usage map
 * has no bits of longer lengths.
 */
bool scsi__orwrite_parse(struct scsi_cmd *cmd)
{
	return parse_blocks(cmd, SCSI_DIR_OUT, DOM_ATOMIC_MAX);
}

void scsi__orwrite(struct scsi_cmd *cmd)
{
	if (cmd->transfer_len == 0) {
		scsi__done(cmd);
		return;
	}
	assert(cmd->data_out->len_bytes == cmd->transfer_len);
	scsi__io(cmd, dom_or_write(cmd->lun->object, &cmd->io, offset_of(cmd),
				   cmd->data_out, write_done));
}

/* ---- VERIFY, WRITE AND VERIFY ---- */

/*
 * Memory that no session's share has: as many as an initiator may have at a time
 * must leave most of it to others.
 */
#define VERIFY_STEP (64u << 10)

/* First byte of @sgl that is not what it should be; -1: none. */
static int64_t verify_compare(struct scsi_cmd *cmd, struct sgl *sgl)
{
	uint32_t block = cmd->lun->block_bytes;
	uint8_t got[4096], want[4096];

	/* A block at a time: 11b compares each with the same one. */
	for (size_t at = 0; at < sgl->len_bytes; at += block) {
		size_t from = BYTCHK(cmd) == 3 ? 0 : cmd->offset + at;
		size_t n = MIN(block, sgl->len_bytes - at);

		copied_add(COPIED_COMMAND, 2 * n);
		sgl_read(sgl, at, got, n);
		sgl_read(cmd->data_out, from, want, n);
		for (size_t i = 0; i < n; i++)
			if (got[i] != want[i])
				return (int64_t)(cmd->offset + at + i);
	}
	return -1;
}

static void verify_step(struct scsi_cmd *cmd);

static void verify_done(struct dom_io *io, int status)
{
	struct scsi_cmd *cmd = scsi__io_end(io, status);
	int64_t differs = -1;
	struct sgl *sgl;

	if (cmd == NULL)
		return;
	sgl = io->sgl;
	io->sgl = NULL;
	if (BYTCHK(cmd) != 0)
		differs = verify_compare(cmd, sgl);
	cmd->offset += sgl->len_bytes;
	cmd->left -= sgl->len_bytes;
	sgl_put(sgl);
	if (differs >= 0) {
		scsi__check_info(cmd, SENSE_MISCOMPARE, (uint64_t)differs);
		scsi__done(cmd);
		return;
	}
	verify_step(cmd);
}

/* The medium is really read, so that a bad checksum is found. */
static void verify_step(struct scsi_cmd *cmd)
{
	if (cmd->left == 0 || !scsi__in_time(cmd)) {
		scsi__done(cmd);
		return;
	}
	scsi__io(cmd, dom_read(cmd->lun->object, &cmd->io,
			       offset_of(cmd) + cmd->offset,
			       MIN(cmd->left, VERIFY_STEP), verify_done));
}

bool scsi__verify_parse(struct scsi_cmd *cmd)
{
	unsigned at;

	if (BYTCHK(cmd) == 2)
		return scsi__check_field(cmd, 1, 2);
	decode(cmd, &at);
	if (!check_blocks(cmd, at, SCSI_TRANSFER_MAX))
		return false;
	if (BYTCHK(cmd) == 0)
		return true;
	cmd->dir = SCSI_DIR_OUT;
	cmd->transfer_len = bytes_of(cmd);
	if (BYTCHK(cmd) == 3 && cmd->blocks > 0)
		cmd->transfer_len = cmd->lun->block_bytes;
	return true;
}

void scsi__verify(struct scsi_cmd *cmd)
{
	cmd->left = bytes_of(cmd);
	verify_step(cmd);
}

bool scsi__write_verify_parse(struct scsi_cmd *cmd)
{
	if (BYTCHK(cmd) > 1)
		return scsi__check_field(cmd, 1, 2);
	return parse_blocks(cmd, SCSI_DIR_OUT, SCSI_TRANSFER_MAX);
}

static void written(struct dom_io *io, int status)
{
	struct scsi_cmd *cmd = scsi__io_end(io, status);

	if (cmd == NULL)
		return;
	cmd->left = cmd->data_out->len_bytes;
	verify_step(cmd);
}

void scsi__write_verify(struct scsi_cmd *cmd)
{
	if (nothing_came(cmd))
		scsi__done(cmd);
	else
		write_with(cmd, 0, written);
}

/* ---- COMPARE AND WRITE ---- */

bool scsi__compare_parse(struct scsi_cmd *cmd)
{
	uint64_t half;

	cmd->lba = get_be64(cmd->cdb + 2);
	cmd->blocks = cmd->cdb[13];
	if (!check_blocks(cmd, 13, DOM_ATOMIC_MAX))
		return false;
	half = bytes_of(cmd);
	if (scsi__out_len(cmd) != 2 * half)
		return scsi__check_field(cmd, 13, -1);
	cmd->dir = SCSI_DIR_OUT;
	cmd->transfer_len = 2 * half;
	/* The half that is written shall lie congruently: it comes second. */
	cmd->page_offset = (uint32_t)((offset_of(cmd) - half) % PAGE_BYTES);
	return true;
}

static void compare_done(struct dom_io *io, int status)
{
	struct scsi_cmd *cmd = scsi__io_end(io, status);

	if (cmd != NULL)
		scsi__done(cmd);
}

void scsi__compare(struct scsi_cmd *cmd)
{
	uint64_t half = bytes_of(cmd);
	struct sgl *compare, *write;
	int rv = -ENOMEM;

	if (half == 0) {
		scsi__done(cmd);
		return;
	}
	compare = sgl_slice(cmd->data_out, 0, half);
	write = sgl_slice(cmd->data_out, half, half);
	if (compare != NULL && write != NULL)
		rv = dom_compare_and_write(cmd->lun->object, &cmd->io,
					   offset_of(cmd), compare, write,
					   compare_done);
	sgl_put(compare);
	sgl_put(write);
	scsi__io(cmd, rv);
}

/* ---- PRE-FETCH, SYNCHRONIZE CACHE ---- */

bool scsi__range_parse(struct scsi_cmd *cmd)
{
	unsigned at;

	decode(cmd, &at); /* no blocks: to the end */
	return scsi__in_range(cmd);
}

void scsi__range(struct scsi_cmd *cmd)
{
	scsi__done(cmd);
}
