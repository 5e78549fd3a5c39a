/*
 * Commands of every shape to a unit: CDBs, parameter lists, data that is too
 * short or too long, task attributes, task management, two initiators.
 *
 * An input is a list of records: flags, opcode, 15 bytes of CDB, data-out's and
 * data-in's length (2 bytes each), data-out.  Flags: initiator, attribute, hold
 * the command back, mask the CDB to what means something, task management.
 */
#include "tests/fuzz/iscsi_rig.h"

#include "base/log.h"
#include "iscsi/scsi_int.h"
#include "tests/lib/scsi_rig.h"
#undef RIG_BYTES
#define RIG_BYTES (1u << 20) /* an overwrite must not take long */
#include "tests/lib/scsi_rig.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HELD 6u
#define RECORD 21u
#define LEN_MAX (256u << 10)

enum { INITIATOR = 1, ATTR = 6, HOLD = 8, RAW = 16, ABORT = 32, TMF = 128 };

static struct rig_cmd held[HELD];
static uint8_t held_out[HELD][LEN_MAX];
static bool used[HELD];
static uint8_t in[LEN_MAX];

static size_t length_of(const uint8_t *b)
{
	unsigned v = get_be16(b);

	return v < 0xff00 ? v : MIN((v & 0xffu) << 12, LEN_MAX);
}

static void check_answer(const struct rig_cmd *rc)
{
	const struct scsi_cmd *cmd = &rc->cmd;

	CHECK(rc->done);
	CHECK(cmd->data_in_len <= cmd->edtl);
	CHECK(cmd->data_in_len == 0 || cmd->expect == SCSI_DIR_IN);
	CHECK(cmd->data_in_len == 0 ||
	      cmd->data_in->len_bytes >= cmd->data_in_len);
	CHECK(cmd->status == SCSI_CHECK_CONDITION || cmd->sense_len == 0);
	if (cmd->data_in_len > 0) /* all of it is there */
		sgl_read(cmd->data_in, 0, in, MIN(cmd->data_in_len, LEN_MAX));
}

static void settle(unsigned i)
{
	check_answer(&held[i]);
	rig_end(&held[i]);
	used[i] = false;
}

/* Let go of a command that was held back: run it, abort it, or forget it. */
static void release(struct rig *rig, unsigned i, unsigned how)
{
	struct rig_cmd *rc = &held[i];

	if (!used[i] || rc->executed)
		return;
	if (!rc->done && !rc->cmd.killed && how % 3 == 2) {
		rig_end(rc); /* given up: done() never runs */
		used[i] = false;
		return;
	}
	if (!rc->done && how % 3 == 0)
		scsi_cmd_abort(&rc->cmd);
	else if (!rc->done)
		rig_execute(rc, held_out[i],
			    rc->cmd.expect == SCSI_DIR_OUT ? rc->cmd.edtl : 0);
	/* It may have to wait for older ones that are held back. */
	if (rc->done || memenv_run(&rig->me, &rc->done))
		settle(i);
}

static void release_all(struct rig *rig, unsigned how)
{
	for (unsigned i = 0; i < HELD; i++)
		release(rig, i, how++);
	for (unsigned i = 0; i < HELD; i++)
		if (used[i]) {
			CHECK(memenv_run(&rig->me, &held[i].done));
			settle(i);
		}
}

static size_t command(struct rig *rig, const uint8_t *r, size_t size,
		      unsigned slot)
{
	const uint8_t *payload = r + RECORD;
	size_t out_len = length_of(r + 17), in_len = length_of(r + 19);
	size_t n = MIN(size - RECORD, out_len);
	const struct scsi_op *op = &scsi__ops[r[1] % scsi__ops_count];
	struct rig_cmd *rc = &held[slot];
	uint8_t cdb[16];

	memcpy(cdb, r + 1, 16);
	if ((r[0] & RAW) == 0) {
		cdb[0] = op->opcode;
		for (unsigned i = 1; i < 16; i++)
			cdb[i] &= op->usage[i];
		if (op->sa >= 0)
			cdb[1] = (uint8_t)((cdb[1] & ~0x1f) | op->sa);
	}
	memset(held_out[slot], 0, out_len);
	memcpy(held_out[slot], payload, n);
	rig_begin(rig, rc, r[0] & INITIATOR, cdb, held_out[slot], out_len,
		  in_len, (enum scsi_attr)((r[0] & ATTR) >> 1), true);
	used[slot] = true;
	if ((r[0] & HOLD) == 0)
		release(rig, slot, (r[0] & ABORT) != 0 ? 0 : 1);
	return RECORD + n;
}

static void task_management(struct rig *rig, const uint8_t *r)
{
	static const uint8_t functions[] = { 2, 3, 4, 5, 6, 7, 11, 0, 99 };
	unsigned f = functions[r[1] % sizeof(functions)];

	/* What only waits for its data ends by the function itself. */
	rig_tmf(rig, r[0] & INITIATOR, (enum scsi_tmf)f, r[2] % 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rig *rig;
	unsigned slot = 0;
	size_t n;

	if (size < RECORD || size > 65536)
		return 0;
	log_level_set("iscsi", "error");
	rig = rig_open(data[0] & 1 ? 4096 : 512);
	CHECK_EQ(rig_lun(rig, 1, 65536, (data[0] & 2) != 0), 0);
	for (data++, size--; size >= RECORD; data += n, size -= n) {
		if ((data[0] & TMF) != 0) {
			task_management(rig, data);
			n = 3;
			continue;
		}
		slot = (slot + 1) % HELD;
		if (used[slot])
			release_all(rig, data[0] >> 5);
		n = command(rig, data, size, slot);
	}
	release_all(rig, size);
	rig_close(rig);
	return 0;
}
