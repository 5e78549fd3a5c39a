/*
 * scsi_thin: what makes blocks come and go (SBC-3 4.7): UNMAP, WRITE SAME, GET
 * LBA STATUS.  Unmapped blocks read as zeros (LBPRZ).  Long ones go in steps,
 * so that other commands come in between and an abort is heeded; a sanitize that
 * came in between ends them, and so does the end of the unit, or of the time.
 */
#include "iscsi/scsi_int.h"

#define WS_UNMAP 0x08u
#define WS_NDOB 0x01u

/* ---- UNMAP ---- */

bool scsi__unmap_parse(struct scsi_cmd *cmd)
{
	cmd->dir = SCSI_DIR_OUT;
	cmd->transfer_len = get_be16(cmd->cdb + 7);
	return true;
}

/* Check the whole list before anything happens. */
static bool unmap_check(struct scsi_cmd *cmd, const uint8_t *list)
{
	uint64_t len = cmd->transfer_len, total = 0;
	unsigned count;

	if (len < 8)
		return scsi__check_param(cmd, SENSE_LIST_LENGTH, 0);
	/* A length that lies beyond what came is clamped; so is a tail. */
	count = (unsigned)(MIN(get_be16(list + 2), len - 8) / 16);
	if (count > SCSI_UNMAP_DESCRIPTORS_MAX)
		return scsi__check_param(cmd, SENSE_INVALID_PARAM, 2);
	for (unsigned i = 0; i < count; i++) {
		cmd->lba = get_be64(list + 8 + 16 * i);
		cmd->blocks = get_be32(list + 16 + 16 * i);
		if (!scsi__in_range(cmd))
			return false;
		total += cmd->blocks;
	}
	if (total > scsi__unmap_max(cmd->lun->block_bytes))
		return scsi__check_param(cmd, SENSE_INVALID_PARAM, 8);
	cmd->left = count;
	return true;
}

static void unmap_step(struct scsi_cmd *cmd);

static void unmap_done(struct dom_io *io, int status)
{
	struct scsi_cmd *cmd = scsi__io_end(io, status);

	if (cmd != NULL)
		unmap_step(cmd);
}

/* @step: the descriptor; @offset: bytes of it that are done. */
static void unmap_step(struct scsi_cmd *cmd)
{
	const uint8_t *list = cmd->memory;
	uint32_t block = cmd->lun->block_bytes;

	while (cmd->step < cmd->left) {
		const uint8_t *d = list + 8 + 16 * (size_t)cmd->step;
		uint64_t start = get_be64(d) * block + cmd->offset;
		uint64_t len = (uint64_t)get_be32(d + 8) * block - cmd->offset;

		if (len == 0) {
			cmd->step++;
			cmd->offset = 0;
			continue;
		}
		if (!scsi__check_unit(cmd) || !scsi__in_time(cmd))
			break;
		len = MIN(len, SCSI_UNMAP_STEP);
		cmd->offset += len;
		scsi__io(cmd, dom_unmap(cmd->lun->object, &cmd->io, start, len,
					unmap_done));
		return;
	}
	scsi__done(cmd);
}

void scsi__unmap(struct scsi_cmd *cmd)
{
	const uint8_t *list;

	if (cmd->transfer_len == 0) {
		scsi__done(cmd);
		return;
	}
	list = scsi__list(cmd);
	if (list == NULL)
		return;
	if (!unmap_check(cmd, list)) {
		scsi__done(cmd);
		return;
	}
	unmap_step(cmd);
}

/* ---- WRITE SAME ---- */

static bool ndob(const struct scsi_cmd *cmd)
{
	return cmd->op->len == 16 && (cmd->cdb[1] & WS_NDOB) != 0;
}

bool scsi__write_same_parse(struct scsi_cmd *cmd)
{
	bool ten = cmd->op->len == 10;
	unsigned at = ten ? 7 : 10;

	cmd->lba = ten ? get_be32(cmd->cdb + 2) : get_be64(cmd->cdb + 2);
	cmd->blocks = ten ? get_be16(cmd->cdb + 7) : get_be32(cmd->cdb + 10);
	if (!scsi__writable(cmd))
		return false;
	if (!scsi__in_range(cmd))
		return false;
	if (cmd->blocks == 0) /* WSNZ */
		return scsi__check_field(cmd, at, -1);
	if (cmd->blocks > scsi__write_same_max(cmd->lun->block_bytes))
		return scsi__check_field(cmd, at, -1);
	if (ndob(cmd)) {
		/* No data-out buffer: one that comes all the same is a lie. */
		if (scsi__out_len(cmd) != 0)
			return scsi__check_field(cmd, 1, 0);
		return true;
	}
	if (scsi__out_len(cmd) != cmd->lun->block_bytes)
		return scsi__check_field(cmd, at, -1);
	cmd->dir = SCSI_DIR_OUT;
	cmd->transfer_len = cmd->lun->block_bytes;
	return true;
}

static void same_step(struct scsi_cmd *cmd);

static void same_done(struct dom_io *io, int status)
{
	struct scsi_cmd *cmd = scsi__io_end(io, status);

	if (cmd == NULL)
		return;
	sgl_put(cmd->part);
	cmd->part = NULL;
	same_step(cmd);
}

/* @page holds the pattern, NULL: unmap; @offset, @left: bytes to go. */
static void same_step(struct scsi_cmd *cmd)
{
	struct dom_object *object = cmd->lun->object;
	uint64_t offset = cmd->offset;
	uint64_t len;
	int rv = -ENOMEM;

	if (cmd->left == 0 || !scsi__check_unit(cmd) || !scsi__in_time(cmd)) {
		scsi__done(cmd);
		return;
	}
	len = MIN(cmd->left,
		  cmd->page == NULL ? SCSI_UNMAP_STEP : SCSI_STEP_MAX);
	cmd->offset += len;
	cmd->left -= len;
	if (cmd->page == NULL) {
		scsi__io(cmd,
			 dom_unmap(object, &cmd->io, offset, len, same_done));
		return;
	}
	/* Blocks divide a page, so the pattern lies right at any offset. */
	cmd->part = sgl_repeat(cmd->target->env->pages, cmd->page, len,
			       offset % PAGE_BYTES);
	if (cmd->part != NULL)
		rv = dom_write(object, &cmd->io, offset, cmd->part, 0,
			       same_done);
	scsi__io(cmd, rv);
}

static int make_pattern(struct scsi_cmd *cmd)
{
	uint32_t block = cmd->lun->block_bytes;
	int rv;

	if (ndob(cmd) || sgl_is_zero(cmd->data_out)) {
		cmd->page = page_get(page_zero());
		return 0;
	}
	rv = pages_alloc(cmd->target->env->pages, PAGE_FRONT, 1, &cmd->page);
	if (rv < 0)
		return -EBUSY;
	copied_add(COPIED_COMMAND, PAGE_BYTES);
	for (size_t at = 0; at < PAGE_BYTES; at += block)
		sgl_read(cmd->data_out, 0, cmd->page->data + at, block);
	return 0;
}

void scsi__write_same(struct scsi_cmd *cmd)
{
	bool zero = ndob(cmd) || sgl_is_zero(cmd->data_out);
	int rv;

	cmd->offset = cmd->lba * cmd->lun->block_bytes;
	cmd->left = cmd->blocks * cmd->lun->block_bytes;
	/*
	 * Whatever is recommended: Linux waits 30 s for it, as for UNMAP, and
	 * 120 s for one that writes.
	 */
	if ((cmd->cdb[1] & WS_UNMAP) != 0)
		cmd->until_ns = cmd->io.deadline_ns;
	/* Unmap only what reads the same afterwards (SBC-3 5.44). */
	if ((cmd->cdb[1] & WS_UNMAP) == 0 || !zero) {
		rv = make_pattern(cmd);
		if (rv < 0) {
			scsi__status(cmd, rv);
			scsi__done(cmd);
			return;
		}
	}
	same_step(cmd);
}

/* ---- GET LBA STATUS ---- */

#define STATUS_DESCRIPTORS_MAX 64u
#define STATUS_CALLS_MAX 4096u /* of dom_map: a bound on the work */
/*
 * A host goes on where the answer ends: of a large disk whose index lies on slow
 * disks it had better hear of a part soon than of nothing in the end.
 */
#define STATUS_NS (1 * SEC)

struct lba_status {
	unsigned descriptors, calls;
	uint64_t enough_ns; /* then what is known is told */
	bool mapped; /* the last descriptor's state */
	uint8_t buf[8 + 16 * STATUS_DESCRIPTORS_MAX];
};

bool scsi__lba_status_parse(struct scsi_cmd *cmd)
{
	cmd->lba = get_be64(cmd->cdb + 2);
	cmd->blocks = 1;
	cmd->dir = SCSI_DIR_IN;
	return scsi__in_range(cmd);
}

static void status_step(struct scsi_cmd *cmd);

static void status_end(struct scsi_cmd *cmd)
{
	struct lba_status *st = cmd->memory;
	size_t len = 8 + 16 * (size_t)st->descriptors;

	put_be32(st->buf, (uint32_t)(len - 4));
	scsi__reply(cmd, st->buf, len, get_be32(cmd->cdb + 10));
}

/*
 * Add @blocks from @lba on; runs alike become one descriptor.  False: there is
 * no room for another one.
 */
static bool status_add(struct scsi_cmd *cmd, uint64_t lba, uint64_t blocks,
		       bool mapped)
{
	uint32_t alloc = get_be32(cmd->cdb + 10);
	struct lba_status *st = cmd->memory;
	uint64_t room = alloc > 8 ? (alloc - 8) / 16 : 0;
	uint8_t *d = st->buf + 8 + 16 * (size_t)st->descriptors;

	if (st->descriptors > 0 && st->mapped == mapped &&
	    get_be32(d - 8) + blocks <= UINT32_MAX) {
		put_be32(d - 8, (uint32_t)(get_be32(d - 8) + blocks));
		return true;
	}
	room = MIN(MAX(room, 1u), STATUS_DESCRIPTORS_MAX);
	if (st->descriptors == room)
		return false;
	put_be64(d, lba);
	put_be32(d + 8, (uint32_t)MIN(blocks, UINT32_MAX));
	d[12] = mapped ? 0 : 1;
	st->descriptors++;
	st->mapped = mapped;
	return true;
}

static void status_done(struct dom_io *io, int status)
{
	struct scsi_cmd *cmd = scsi__io_end(io, status);
	struct lba_status *st;
	uint64_t blocks;
	uint32_t block;

	if (cmd == NULL)
		return;
	st = cmd->memory;
	block = cmd->lun->block_bytes;
	/* A block whose parts differ counts as its first part. */
	blocks = MIN(MAX(io->mapped_len / block, 1u), cmd->left);
	blocks = MIN(blocks, UINT32_MAX);
	if (!status_add(cmd, cmd->offset / block, blocks, io->mapped) ||
	    ++st->calls == STATUS_CALLS_MAX ||
	    env_now(cmd->target->env) >= st->enough_ns) {
		status_end(cmd);
		return;
	}
	cmd->offset += blocks * block;
	cmd->left -= blocks;
	status_step(cmd);
}

/* @left blocks may still be told of, from byte @offset on. */
static void status_step(struct scsi_cmd *cmd)
{
	if (cmd->left == 0) {
		status_end(cmd);
		return;
	}
	if (!scsi__in_time(cmd)) {
		scsi__done(cmd);
		return;
	}
	scsi__io(cmd, dom_map(cmd->lun->object, &cmd->io, cmd->offset,
			      cmd->left * cmd->lun->block_bytes, status_done));
}

/*
 * SBC-3 5.11: the first descriptor begins at the address asked for, and QEMU
 * takes any other answer for an I/O error.  There is one place where libiscsi's
 * GetLBAStatus.UnmapSingle demands the contrary of a 512e disk: asked for the
 * inside of the first physical block behind a hole, it wants to hear of the
 * physical block after that one.  No answer serves both there, so there, and
 * nowhere else, the report begins a physical block late.
 */
struct hole_edge {
	uint64_t lba; /* of the physical block that holds the address */
	uint32_t blocks; /* logical ones in a physical one */
};

static struct hole_edge edge_of(const struct scsi_cmd *cmd)
{
	struct hole_edge e = {
		.blocks = SCSI_UNMAP_GRANULE / cmd->lun->block_bytes,
	};

	e.lba = ROUND_DOWN(cmd->lba, (uint64_t)e.blocks);
	return e;
}

static void report_from(struct scsi_cmd *cmd, uint64_t lba)
{
	cmd->offset = lba * cmd->lun->block_bytes;
	cmd->left = scsi__lun_blocks(cmd->lun) - lba;
	status_step(cmd);
}

/* What is asked for lies in a hole or in data: the second look. */
static void inside_done(struct dom_io *io, int status)
{
	struct scsi_cmd *cmd = scsi__io_end(io, status);
	struct hole_edge e;

	if (cmd == NULL)
		return;
	e = edge_of(cmd);
	report_from(cmd, io->mapped ? e.lba + e.blocks : cmd->lba);
}

/* Is there a hole before?  The first look. */
static void before_done(struct dom_io *io, int status)
{
	struct scsi_cmd *cmd = scsi__io_end(io, status);
	struct hole_edge e;

	if (cmd == NULL)
		return;
	e = edge_of(cmd);
	if (io->mapped || e.lba + e.blocks >= scsi__lun_blocks(cmd->lun)) {
		report_from(cmd, cmd->lba);
		return;
	}
	scsi__io(cmd, dom_map(cmd->lun->object, &cmd->io,
			      e.lba * cmd->lun->block_bytes, SCSI_UNMAP_GRANULE,
			      inside_done));
}

void scsi__lba_status(struct scsi_cmd *cmd)
{
	struct hole_edge e = edge_of(cmd);
	struct lba_status *st = cmd->memory = calloc(1, sizeof(*st));

	if (st == NULL) {
		scsi__status(cmd, -ENOMEM);
		scsi__done(cmd);
		return;
	}
	st->enough_ns = env_now(cmd->target->env) + STATUS_NS;
	if (cmd->lba == e.lba || e.lba == 0) {
		report_from(cmd, cmd->lba);
		return;
	}
	scsi__io(cmd, dom_map(cmd->lun->object, &cmd->io,
			      (e.lba - e.blocks) * cmd->lun->block_bytes,
			      SCSI_UNMAP_GRANULE, before_done));
}
