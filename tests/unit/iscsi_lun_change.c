/*
 * A unit changes under its initiators: what was let in before, and has not been
 * done yet.
 */
#include "base/util.h"
#include "iscsi/scsi_int.h"
#include "tests/lib/scsi_rig.h"
#include "tests/lib/test.h"

#define GOOD 0u
#define NO_LUN RIG_SENSE(5, 0x25, 0)
#define PROTECTED RIG_SENSE(7, 0x27, 0)

static const uint8_t data[512] = { 0xab };

static void write_begin(struct rig *r, struct rig_cmd *rc, unsigned n,
			enum scsi_attr attr)
{
	rig_begin(r, rc, n, CDB(0x2a, 0, 0, 0, 0, 0, 0, 0, 1), data, 512, 0,
		  attr, true);
}

/* LUN 0 as rig_open() made it, or read-only. */
static void lun_set(struct rig *r, bool read_only)
{
	struct iscsi_lun_conf conf = { .name = "disk",
				       .block_bytes = 512,
				       .object = r->oid,
				       .read_only = read_only };

	CHECK_EQ(scsi_lun_set(r->target, &conf, r->usage), 0);
	rig_run(r);
}

/* What the unit has to tell is heard. */
static void attentions_take(struct rig *r, unsigned n)
{
	while (rig_tur(r, n) >> 16 == RIG_SENSE(6, 0, 0) >> 16)
		;
}

/*
 * Its disk may be another host's by the time that the data of a write comes, or
 * what it waited for has ended.
 */
TEST(lun_change, taken_away_from_what_waits)
{
	struct rig *r = rig_open(512);
	struct rig_cmd a, b;

	CHECK_EQ(rig_write(r, 0, 0, 8, 0x44), GOOD);
	write_begin(r, &a, 0, SCSI_ORDERED);
	rig_begin(r, &b, 1, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1), NULL, 0, 512,
		  SCSI_SIMPLE, false);
	scsi_lun_unset(r->target, 0);
	rig_run(r);
	CHECK(!b.done);
	rig_execute(&a, data, 512);
	CHECK(memenv_run(&r->me, &b.done));
	CHECK_EQ(a.answer, NO_LUN);
	CHECK_EQ(b.answer, NO_LUN);
	CHECK(b.cmd.data_in == NULL);
	rig_end(&a);
	rig_end(&b);
	lun_set(r, false);
	attentions_take(r, 0);
	CHECK_EQ(rig_read(r, 0, 0, 8, 0x44), GOOD);
	rig_close(r);
}

/* What goes in steps takes no further one. */
static void step_on(bool gone, unsigned answer)
{
	static const uint8_t same[16] = { 0x93, [12] = 0x48 }; /* 9 MiB */
	static const uint8_t unmap[16] = { 0x42, [8] = 40 };
	struct rig *r = rig_open(512);
	uint8_t list[40] = { [3] = 32, [19] = 8, [30] = 0x80, [35] = 8 };
	uint32_t far = 8u << 20 >> 9; /* where the last step of 4 MiB begins */
	struct rig_cmd a, b;

	CHECK_EQ(rig_write(r, 0, 0, 8, 0x44), GOOD);
	CHECK_EQ(rig_write(r, 0, far, 8, 0x44), GOOD);
	CHECK_EQ(rig_write(r, 0, 0x8000, 8, 0x44), GOOD);
	fake_dom_hold(r->dom, true);
	rig_begin(r, &a, 0, same, data, 512, 0, SCSI_SIMPLE, false);
	rig_begin(r, &b, 0, unmap, list, sizeof(list), 0, SCSI_SIMPLE, false);
	CHECK_EQ(fake_dom_queued(r->dom), 2);
	if (gone)
		scsi_lun_unset(r->target, 0);
	else
		lun_set(r, true);
	fake_dom_hold(r->dom, false);
	rig_run(r);
	CHECK(a.done && b.done);
	CHECK_EQ(a.answer, answer);
	CHECK_EQ(b.answer, answer);
	rig_end(&a);
	rig_end(&b);
	lun_set(r, false);
	attentions_take(r, 0);
	CHECK_EQ(rig_read(r, 0, 0, 8, 0), GOOD); /* by the first of UNMAP */
	CHECK_EQ(rig_read(r, 0, far, 8, 0x44), GOOD);
	CHECK_EQ(rig_read(r, 0, 0x8000, 8, 0x44), GOOD);
	rig_close(r);
}

TEST(lun_change, taken_away_between_steps)
{
	step_on(true, NO_LUN);
}

TEST(lun_change, read_only_between_steps)
{
	step_on(false, PROTECTED);
}

/* Once it is said to be read-only nothing is written any more; reads go on. */
TEST(lun_change, read_only_to_what_waits)
{
	struct rig *r = rig_open(512);
	struct rig_cmd a, b;

	CHECK_EQ(rig_write(r, 0, 0, 8, 0x44), GOOD);
	write_begin(r, &a, 0, SCSI_ORDERED);
	rig_begin(r, &b, 1, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1), NULL, 0, 512,
		  SCSI_SIMPLE, false);
	lun_set(r, true);
	rig_execute(&a, data, 512);
	CHECK(memenv_run(&r->me, &b.done));
	CHECK_EQ(a.answer, PROTECTED);
	CHECK_EQ(b.answer, GOOD);
	rig_end(&a);
	rig_end(&b);
	attentions_take(r, 0);
	CHECK_EQ(rig_read(r, 0, 0, 8, 0x44), GOOD);
	rig_close(r);
}

/* Blocks of another size: hosts must not go on with the former ones. */
TEST(lun_change, block_size)
{
	struct rig *r = rig_open(512);
	struct iscsi_lun_conf conf = { .name = "disk",
				       .block_bytes = 4096,
				       .object = r->oid };
	uint8_t in[8];

	CHECK_EQ(rig_write(r, 0, 8, 8, 0x44), GOOD);
	CHECK_EQ(scsi_lun_set(r->target, &conf, r->usage), 0);
	rig_run(r);
	CHECK_EQ(rig_write(r, 0, 0, 1, 0x55), RIG_SENSE(6, 0x29, 0));
	CHECK_EQ(rig_write(r, 0, 0, 1, 0x55), RIG_SENSE(6, 0x3f, 3));
	attentions_take(r, 0);
	CHECK_EQ(rig_do(r, 0, CDB(0x25), NULL, 0, in, 8), GOOD);
	CHECK_EQ(get_be32(in), RIG_BYTES / 4096 - 1);
	CHECK_EQ(get_be32(in + 4), 4096);
	r->block = 4096;
	CHECK_EQ(rig_read(r, 0, 1, 1, 0x44), GOOD);
	rig_close(r);
}

/* What was set for it goes with it, though a command of it has not ended yet. */
TEST(lun_change, mode_pages_end_with_it)
{
	/* SWP */
	static const uint8_t list[16] = {
		[4] = 0x0a, [5] = 0x0a,	 [7] = 0x10, [8] = 0x08,
		[9] = 0x40, [12] = 0xff, [13] = 0xff
	};
	struct rig *r = rig_open(512);
	struct rig_cmd a;

	write_begin(r, &a, 0, SCSI_SIMPLE);
	CHECK_EQ(rig_do(r, 0, CDB(0x15, 0x10, 0, 0, 16), list, 16, NULL, 0),
		 GOOD);
	CHECK_EQ(rig_write(r, 0, 0, 1, 1), RIG_SENSE(7, 0x27, 2));
	scsi_lun_unset(r->target, 0);
	lun_set(r, false);
	attentions_take(r, 0);
	CHECK_EQ(rig_write(r, 0, 0, 1, 1), GOOD);
	rig_end(&a);
	rig_close(r);
}
