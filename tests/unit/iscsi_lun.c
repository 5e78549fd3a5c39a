/* Units, nexuses, attentions, the task set and task management; sanitize. */
#include "base/util.h"
#include "iscsi/scsi_int.h"
#include "tests/lib/fail_alloc.h"
#include "tests/lib/scsi_rig.h"
#include "tests/lib/test.h"

#define GOOD 0u
#define POWER_ON RIG_SENSE(6, 0x29, 0)

static void begin_rw(struct rig *r, struct rig_cmd *rc, unsigned n, bool write,
		     uint64_t lba, enum scsi_attr attr, bool hold)
{
	static const uint8_t data[512] = { 0xab };
	uint8_t cdb[16] = { write ? 0x8a : 0x88 };

	put_be64(cdb + 2, lba);
	put_be32(cdb + 10, 1);
	rig_begin(r, rc, n, cdb, write ? data : NULL, write ? 512 : 0, 512,
		  attr, hold);
}

/* SIMPLE after ORDERED waits, ORDERED waits for all, HEAD for none. */
TEST(lun, task_attributes)
{
	struct rig *r = rig_open(512);
	struct rig_cmd c[5];

	fake_dom_hold(r->dom, true);
	begin_rw(r, &c[0], 0, true, 0, SCSI_SIMPLE, false);
	begin_rw(r, &c[1], 0, true, 1, SCSI_ORDERED, false);
	begin_rw(r, &c[2], 1, false, 1, SCSI_SIMPLE, false);
	begin_rw(r, &c[3], 1, false, 1, SCSI_HEAD, false);
	begin_rw(r, &c[4], 0, false, 1, SCSI_ORDERED, false);
	rig_run(r);
	/* Only the first and the HEAD OF QUEUE have reached dom. */
	CHECK_EQ(fake_dom_queued(r->dom), 2);
	fake_dom_hold(r->dom, false);
	for (unsigned i = 0; i < 5; i++) {
		CHECK(memenv_run(&r->me, &c[i].done));
		CHECK_EQ(c[i].answer, GOOD);
		if (i >= 2) {
			uint8_t byte;

			sgl_read(c[i].cmd.data_in, 0, &byte, 1);
			CHECK_EQ(byte, i == 3 ? 0 : 0xab);
		}
	}
	for (unsigned i = 0; i < 5; i++)
		rig_end(&c[i]);
	rig_close(r);
}

/* ORDERED waits for the last of those before it, not for the next that ends. */
TEST(lun, ordered_waits_for_all)
{
	static const uint8_t data[512] = { 0xab };
	struct rig *r = rig_open(512);
	struct rig_cmd a, b, c, aca;

	begin_rw(r, &a, 0, true, 0, SCSI_SIMPLE, true);
	fake_dom_hold(r->dom, true);
	begin_rw(r, &b, 0, false, 8, SCSI_SIMPLE, false);
	begin_rw(r, &c, 1, false, 0, SCSI_ORDERED, false);
	fake_dom_hold(r->dom, false);
	CHECK(memenv_run(&r->me, &b.done));
	rig_run(r);
	CHECK(!c.done);
	rig_execute(&a, data, 512);
	CHECK(memenv_run(&r->me, &c.done));
	CHECK(a.done);
	rig_end(&a);
	rig_end(&b);
	rig_end(&c);
	/* There is no ACA condition that such a command could belong to. */
	begin_rw(r, &aca, 0, false, 0, SCSI_ACA, false);
	CHECK_EQ(aca.answer, RIG_SENSE(5, 0x49, 0));
	rig_end(&aca);
	rig_close(r);
}

/* What came behind an ORDERED one waits for it, and not for the next that ends. */
TEST(lun, all_wait_for_ordered)
{
	struct rig *r = rig_open(512);
	struct rig_cmd c[5];

	begin_rw(r, &c[0], 0, true, 0, SCSI_SIMPLE, true);
	fake_dom_hold(r->dom, true);
	begin_rw(r, &c[1], 0, false, 8, SCSI_SIMPLE, false);
	begin_rw(r, &c[2], 0, false, 0, SCSI_ORDERED, false);
	begin_rw(r, &c[3], 0, false, 0, SCSI_SIMPLE, false);
	begin_rw(r, &c[4], 0, false, 0, SCSI_SIMPLE, false);
	fake_dom_hold(r->dom, false);
	CHECK(memenv_run(&r->me, &c[1].done));
	rig_run(r);
	for (unsigned i = 2; i < ARRAY_LEN(c); i++)
		CHECK(!c[i].done);
	scsi_cmd_abort(&c[0].cmd);
	for (unsigned i = 0; i < ARRAY_LEN(c); i++) {
		CHECK(memenv_run(&r->me, &c[i].done));
		rig_end(&c[i]);
	}
	rig_close(r);
}

/* An ORDERED command waits for an older one whose data is still coming. */
TEST(lun, ordered_waits_for_data)
{
	static const uint8_t data[512] = { 0xab };
	struct rig *r = rig_open(512);
	struct rig_cmd a, b;

	begin_rw(r, &a, 0, true, 0, SCSI_SIMPLE, true);
	begin_rw(r, &b, 1, false, 0, SCSI_ORDERED, false);
	rig_run(r);
	CHECK(!b.done);
	rig_execute(&a, data, 512);
	CHECK(memenv_run(&r->me, &b.done));
	CHECK(a.done);
	rig_end(&a);
	rig_end(&b);

	/* Or until that one is given up. */
	begin_rw(r, &a, 0, true, 0, SCSI_SIMPLE, true);
	begin_rw(r, &b, 1, false, 0, SCSI_ORDERED, false);
	rig_run(r);
	CHECK(!b.done);
	rig_end(&a);
	CHECK(memenv_run(&r->me, &b.done));
	rig_end(&b);
	rig_close(r);
}

/* Abort in every state: done() comes once, without an answer. */
TEST(lun, abort_anywhere)
{
	struct rig *r = rig_open(512);
	struct rig_cmd a, b;

	begin_rw(r, &a, 0, true, 0, SCSI_SIMPLE, true);
	scsi_cmd_abort(&a.cmd);
	CHECK(!a.done);
	CHECK(memenv_run(&r->me, &a.done));
	CHECK_EQ(a.answer, RIG_SILENT);
	rig_end(&a);

	fake_dom_hold(r->dom, true);
	begin_rw(r, &a, 0, true, 0, SCSI_SIMPLE, false);
	begin_rw(r, &b, 0, true, 0, SCSI_ORDERED, false);
	rig_run(r);
	scsi_cmd_abort(&b.cmd); /* waits for @a */
	CHECK(memenv_run(&r->me, &b.done));
	CHECK_EQ(b.answer, RIG_SILENT);
	scsi_cmd_abort(&a.cmd); /* in dom's queue: cancelled */
	scsi_cmd_abort(&a.cmd);
	CHECK(memenv_run(&r->me, &a.done));
	CHECK_EQ(a.answer, RIG_SILENT);
	rig_end(&a);
	rig_end(&b);
	fake_dom_hold(r->dom, false);
	CHECK_EQ(rig_read(r, 0, 0, 1, 0), GOOD); /* nothing was written */

	/* Answered already, done() is on its way. */
	begin_rw(r, &a, 0, false, 0, SCSI_SIMPLE, true);
	a.cmd.edtl = 0;
	scsi_cmd_execute(&a.cmd);
	scsi_cmd_abort(&a.cmd);
	CHECK(memenv_run(&r->me, &a.done));
	CHECK_EQ(a.answer, RIG_SILENT);
	rig_end(&a);
	rig_close(r);
}

/* What it waited for has just ended: it is not begun. */
TEST(lun, abort_of_what_is_about_to_run)
{
	struct rig *r = rig_open(512);
	struct rig_cmd a, b;

	begin_rw(r, &a, 0, true, 0, SCSI_ORDERED, true);
	begin_rw(r, &b, 0, true, 8, SCSI_SIMPLE, false);
	scsi_cmd_end(&a.cmd); /* given up, as its data did not come */
	fake_dom_stubborn(r->dom, true);
	scsi_cmd_abort(&b.cmd);
	CHECK(memenv_run(&r->me, &b.done));
	CHECK_EQ(b.answer, RIG_SILENT);
	rig_end(&b);
	fake_dom_stubborn(r->dom, false);
	CHECK_EQ(rig_read(r, 0, 8, 1, 0), GOOD);
	rig_close(r);
}

/* Storage reads all the same: nobody wants that any more, and it is let go. */
TEST(lun, abort_of_a_read_that_is_done)
{
	struct rig *r = rig_open(512);
	struct rig_cmd a;

	CHECK_EQ(rig_write(r, 0, 0, 8, 0x44), GOOD);
	fake_dom_stubborn(r->dom, true);
	fake_dom_hold(r->dom, true);
	begin_rw(r, &a, 0, false, 0, SCSI_SIMPLE, false);
	rig_run(r);
	scsi_cmd_abort(&a.cmd);
	CHECK(!a.done);
	fake_dom_hold(r->dom, false);
	CHECK(memenv_run(&r->me, &a.done));
	CHECK_EQ(a.answer, RIG_SILENT);
	CHECK(a.cmd.data_in == NULL);
	rig_end(&a);
	rig_close(r); /* with no page less */
}

/* LUN RESET ends the tasks of all; others hear TASK ABORTED; 29/03 for all. */
TEST(lun, reset)
{
	struct rig *r = rig_open(512);
	struct rig_cmd a, b, c;

	CHECK_EQ(rig_do(r, 1, CDB(0x16), NULL, 0, NULL, 0), GOOD); /* RESERVE */
	fake_dom_hold(r->dom, true);
	begin_rw(r, &a, 1, true, 0, SCSI_SIMPLE, false);
	begin_rw(r, &b, 1, true, 1, SCSI_SIMPLE, true);
	begin_rw(r, &c, 0, true, 2, SCSI_SIMPLE, false);
	CHECK_EQ(c.answer, RIG_STATUS(SCSI_RESERVATION_CONFLICT));
	rig_end(&c);
	rig_run(r);
	fake_dom_hold(r->dom, false);
	fake_dom_hold(r->dom, true);
	CHECK_EQ(rig_tmf(r, 0, SCSI_LUN_RESET, 77), 2);
	fake_dom_hold(r->dom, false);
	CHECK_EQ(rig_tmf(r, 0, SCSI_LUN_RESET, 0), 0);
	CHECK(a.done && b.done);
	CHECK_EQ(b.answer, RIG_STATUS(SCSI_TASK_ABORTED));
	rig_end(&a);
	rig_end(&b);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x29, 3));
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x29, 3));
	/* The RESERVE is gone. */
	CHECK_EQ(rig_tur(r, 0), GOOD);
	CHECK_EQ(rig_tmf(r, 0, SCSI_CLEAR_ACA, 0), 5);
	rig_close(r);
}

/* Without TAS others hear of it by an attention; who did it does not. */
TEST(lun, clear_without_tas)
{
	static const uint8_t list[] = { 0, 0, 0, 0, 0x0a, 0x0a, 0, 0x10,
					0, 0, 0, 0, 0xff, 0xff, 0, 0 };
	struct rig *r = rig_open(512);
	struct rig_cmd a, b;

	CHECK_EQ(rig_do(r, 0, CDB(0x15, 0x10, 0, 0, sizeof(list)), list,
			sizeof(list), NULL, 0),
		 GOOD);
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x2a, 1));
	begin_rw(r, &a, 0, true, 0, SCSI_SIMPLE, true);
	begin_rw(r, &b, 1, true, 0, SCSI_SIMPLE, true);
	CHECK_EQ(rig_tmf(r, 0, SCSI_CLEAR_TASK_SET, 0), 0);
	CHECK_EQ(a.answer, RIG_SILENT);
	CHECK_EQ(b.answer, RIG_SILENT);
	rig_end(&a);
	rig_end(&b);
	CHECK_EQ(rig_tur(r, 0), GOOD);
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x2f, 0));
	rig_close(r);
}

/* A PREEMPT AND ABORT through another node: the object's owner ends it there. */
TEST(lun, aborted_by_the_owner)
{
	struct rig *r = rig_open(512);

	fake_dom_fault(r->dom, (struct fake_fault){ .ops = FAKE_ANY,
						    .times = 2,
						    .status = -ECANCELED });
	CHECK_EQ(rig_read(r, 0, 0, 8, 0), RIG_STATUS(SCSI_TASK_ABORTED));
	CHECK_EQ(rig_write(r, 0, 0, 8, 1), RIG_STATUS(SCSI_TASK_ABORTED));
	CHECK_EQ(rig_read(r, 0, 0, 8, 0), GOOD);
	rig_close(r);
}

/* Nothing concerned is left in the task set when the function is answered. */
TEST(lun, tmf_waits)
{
	struct rig *r = rig_open(512);
	struct rig_cmd a, b;

	fake_dom_hold(r->dom, true);
	begin_rw(r, &a, 0, true, 0, SCSI_SIMPLE, false);
	begin_rw(r, &b, 1, true, 0, SCSI_SIMPLE, false);
	rig_run(r);
	CHECK_EQ(rig_tmf(r, 0, SCSI_ABORT_TASK_SET, 0), 0);
	CHECK(a.done && !b.done);
	CHECK_EQ(a.answer, RIG_SILENT);
	CHECK_EQ(rig_tmf(r, 0, SCSI_CLEAR_TASK_SET, 0), 0);
	CHECK(b.done);
	CHECK_EQ(b.answer, RIG_STATUS(SCSI_TASK_ABORTED));
	rig_end(&a);
	rig_end(&b);
	fake_dom_hold(r->dom, false);
	CHECK_EQ(rig_tur(r, 0), GOOD);
	CHECK_EQ(rig_tur(r, 1), GOOD); /* it heard TASK ABORTED */
	CHECK_EQ(rig_tmf(r, 0, SCSI_TARGET_WARM_RESET, 0), 0);
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x29, 2));
	CHECK_EQ(rig_tmf(r, 1, SCSI_IT_NEXUS_RESET, 0), 0);
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x29, 7));
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x29, 2));
	rig_close(r);
}

/* The loss of a nexus ends its own commands, and nobody else's. */
TEST(lun, nexus_reset_leaves_others)
{
	struct rig *r = rig_open(512);
	struct rig_cmd a, b;

	fake_dom_hold(r->dom, true);
	begin_rw(r, &a, 0, true, 0, SCSI_SIMPLE, false);
	begin_rw(r, &b, 1, true, 0, SCSI_SIMPLE, false);
	rig_run(r);
	CHECK_EQ(rig_tmf(r, 0, SCSI_IT_NEXUS_RESET, 0), 0);
	CHECK(a.done && !b.done);
	CHECK_EQ(a.answer, RIG_SILENT);
	fake_dom_hold(r->dom, false);
	rig_run(r);
	CHECK_EQ(b.answer, GOOD);
	rig_end(&a);
	rig_end(&b);
	rig_close(r);
}

static void on_reset(struct scsi_tmf_req *req, unsigned response)
{
	*(int *)req->data = (int)response;
}

/* What cannot be stopped any more holds the answer back until it ended. */
TEST(lun, tmf_waits_for_the_medium)
{
	struct rig *r = rig_open(512);
	int response = -1;
	struct scsi_tmf_req req = { .data = &response,
				    .function = SCSI_LUN_RESET,
				    .nexus = &r->nexus[0],
				    .cb = on_reset };
	struct rig_cmd a;

	fake_dom_stubborn(r->dom, true);
	fake_dom_hold(r->dom, true);
	begin_rw(r, &a, 1, true, 0, SCSI_SIMPLE, false);
	scsi_tmf(&req);
	rig_run(r);
	CHECK(!a.done);
	CHECK_EQ(response, -1);
	fake_dom_hold(r->dom, false);
	rig_run(r);
	CHECK(a.done);
	CHECK_EQ(response, 0);
	rig_end(&a);
	rig_close(r);
}

/* Who had aborted its command itself does not hear that it was cleared by another. */
TEST(lun, clear_of_what_was_aborted)
{
	static const uint8_t list[] = { 0, 0, 0, 0, 0x0a, 0x0a, 0, 0x10,
					0, 0, 0, 0, 0xff, 0xff, 0, 0 };
	struct rig *r = rig_open(512);
	struct rig_cmd a;
	int response = -1;
	struct scsi_tmf_req req = { .data = &response,
				    .function = SCSI_CLEAR_TASK_SET,
				    .nexus = &r->nexus[0],
				    .cb = on_reset };

	CHECK_EQ(rig_do(r, 0, CDB(0x15, 0x10, 0, 0, sizeof(list)), list,
			sizeof(list), NULL, 0),
		 GOOD);
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x2a, 1));
	fake_dom_stubborn(r->dom, true);
	fake_dom_hold(r->dom, true);
	begin_rw(r, &a, 1, true, 0, SCSI_SIMPLE, false);
	rig_run(r);
	scsi_cmd_abort(&a.cmd);
	scsi_tmf(&req);
	rig_run(r);
	CHECK(!a.done);
	fake_dom_hold(r->dom, false);
	rig_run(r);
	CHECK_EQ(response, 0);
	CHECK_EQ(a.answer, RIG_SILENT);
	rig_end(&a);
	CHECK_EQ(rig_tur(r, 1), GOOD);
	rig_close(r);
}

/* A reset wipes out what was pending: hosts look at everything anew. */
TEST(lun, reset_replaces_attentions)
{
	struct rig *r = rig_open(512);

	fake_dom_resize(r->dom, &r->oid, 2 * RIG_BYTES);
	CHECK_EQ(rig_tmf(r, 0, SCSI_LUN_RESET, 0), 0);
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x29, 3));
	CHECK_EQ(rig_tur(r, 1), GOOD);
	rig_close(r);
}

/* Without TAS the victim's session keeps silent. */
TEST(lun, no_tas)
{
	static const uint8_t list[16] = { 0,	0, 0, 0, 0x0a, 0x0a, 0,
					  0x10, 0, 0, 0, 0,    0xff, 0xff };
	struct rig *r = rig_open(512);
	struct rig_cmd a;

	CHECK_EQ(rig_do(r, 0, CDB(0x15, 0x10, 0, 0, 16), list, 16, NULL, 0),
		 GOOD);
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x2a, 1));
	begin_rw(r, &a, 1, true, 0, SCSI_SIMPLE, true);
	CHECK_EQ(rig_tmf(r, 0, SCSI_CLEAR_TASK_SET, 0), 0);
	CHECK(a.done);
	CHECK_EQ(a.answer, RIG_SILENT);
	rig_end(&a);
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x2f, 0));
	/* A reset sets TAS again, but not for those that it ends. */
	begin_rw(r, &a, 1, true, 0, SCSI_SIMPLE, true);
	CHECK_EQ(rig_tmf(r, 0, SCSI_LUN_RESET, 0), 0);
	CHECK(a.done);
	CHECK_EQ(a.answer, RIG_SILENT);
	rig_end(&a);
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x29, 3));
	begin_rw(r, &a, 1, true, 0, SCSI_SIMPLE, true);
	CHECK_EQ(rig_tmf(r, 0, SCSI_CLEAR_TASK_SET, 0), 0);
	CHECK_EQ(a.answer, RIG_STATUS(SCSI_TASK_ABORTED));
	rig_end(&a);
	rig_close(r);
}

/* LUN forms, units that come and go, and who hears of it. */
TEST(lun, hot_plug)
{
	struct rig *r = rig_open(512);
	struct rig_cmd a;
	uint8_t in[64];
	struct uuid oid;

	CHECK_EQ(rig_lun(r, 300, 1 << 20, false), 0);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x3f, 0x0e));
	CHECK_EQ(rig_do(r, 1, CDB(0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 64), NULL, 0,
			in, 64),
		 GOOD);
	CHECK_EQ(rig_got, 24);
	CHECK_EQ(get_be32(in), 16);
	CHECK_EQ(get_be16(in + 8), 0);
	CHECK_EQ(get_be16(in + 16), 0x412c);
	CHECK_EQ(rig_tur(r, 1), GOOD); /* heard by REPORT LUNS */

	CHECK_EQ(scsi__lun_decode(5ull << 48), 5);
	CHECK_EQ(scsi__lun_decode(0x4005ull << 48), 5);
	CHECK_EQ(scsi__lun_decode(0x412cull << 48), 300);
	CHECK_EQ(scsi__lun_decode(0x0105ull << 48), -1);
	CHECK_EQ(scsi__lun_decode(0xc101ull << 48), -1);
	CHECK_EQ(scsi__lun_decode(5ull << 48 | 1), -1);
	CHECK(!scsi_lun_object(r->target, 7ull << 48, &oid));
	CHECK(scsi_lun_object(r->target, 0x412cull << 48, &oid));

	/* Removed while a command is in flight: that one still ends. */
	fake_dom_hold(r->dom, true);
	begin_rw(r, &a, 0, true, 0, SCSI_SIMPLE, false);
	rig_run(r);
	scsi_lun_unset(r->target, 0);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(5, 0x25, 0));
	CHECK(!a.done);
	fake_dom_hold(r->dom, false);
	CHECK(memenv_run(&r->me, &a.done));
	CHECK_EQ(a.answer, GOOD);
	rig_end(&a);
	/* What has no unit is still answered. */
	CHECK_EQ(rig_do(r, 0, CDB(0x12, 0, 0, 0, 36), NULL, 0, in, 36), GOOD);
	CHECK_EQ(in[0], 0x7f);
	CHECK_EQ(rig_do(r, 0, CDB(3, 0, 0, 0, 18), NULL, 0, in, 18), GOOD);
	CHECK_EQ(in[12], 0x25);
	rig_close(r);
}

/*
 * A number that shows another disk now: a host that has the former one mounted
 * hears of it before any of its commands goes on.
 */
TEST(lun, another_disk_in_its_place)
{
	struct rig *r = rig_open(512);
	struct iscsi_lun_conf conf = { .lun = 0, .block_bytes = 512 };

	memset(conf.object.b, 7, sizeof(conf.object.b));
	CHECK_EQ(fake_dom_add(r->dom, &conf.object, 1 << 20), 0);
	scsi_lun_unset(r->target, 0);
	CHECK_EQ(scsi_lun_set(r->target, &conf, r->usage), 0);
	rig_run(r);
	CHECK_EQ(rig_write(r, 0, 0, 1, 0x55), RIG_SENSE(6, 0x29, 0));
	CHECK_EQ(rig_write(r, 0, 0, 1, 0x55), RIG_SENSE(6, 0x3f, 3));
	CHECK_EQ(rig_write(r, 0, 0, 1, 0x55), RIG_SENSE(6, 0x3f, 0x0e));
	CHECK_EQ(rig_write(r, 0, 0, 1, 0x55), GOOD);
	/* So too without a moment between the two. */
	conf.object = r->oid;
	CHECK_EQ(scsi_lun_set(r->target, &conf, r->usage), 0);
	rig_run(r);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x29, 0));
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x3f, 3));
	/* Who logs in now finds it as it is. */
	rig_login(r, 2);
	CHECK_EQ(rig_tur(r, 2), RIG_SENSE(6, 0x29, 0));
	CHECK_EQ(rig_tur(r, 2), GOOD);
	rig_close(r);
}

/* Opening takes a while, or fails for a while. */
TEST(lun, becoming_ready)
{
	struct rig *r = rig_open(512);
	struct iscsi_lun_conf conf = { .lun = 1,
				       .name = "late",
				       .block_bytes = 512 };
	uint8_t in[18];
	struct rig_cmd a;

	memset(conf.object.b, 0x77, 16);
	CHECK_EQ(scsi_lun_set(r->target, &conf, r->usage), 0);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x3f, 0x0e));
	for (unsigned i = 0; i < 4; i++) {
		static const unsigned says[] = { 0x2900, 0x3f03, 0x3f0e,
						 0x0401 };

		memset(&a, 0, sizeof(a));
		a.rig = r;
		a.cmd.nexus = &r->nexus[0];
		a.cmd.lun_field = 1ull << 48;
		a.cmd.cdb_len = 16;
		a.begun = scsi_cmd_begin(&a.cmd);
		CHECK(!a.begun);
		CHECK_EQ(a.cmd.sense[12] << 8 | a.cmd.sense[13], says[i]);
		scsi_cmd_end(&a.cmd);
	}
	/* REQUEST SENSE tells the same, with GOOD status. */
	r->lun = 1;
	CHECK_EQ(rig_do(r, 0, CDB(3, 0, 0, 0, 18), NULL, 0, in, 18), GOOD);
	r->lun = 0;
	CHECK_EQ(in[2] << 16 | in[12] << 8 | in[13], 0x020401);
	CHECK_EQ(rig_do(r, 0, CDB(3, 0, 0, 0, 18), NULL, 0, in, 18), GOOD);
	CHECK_EQ(in[2] << 16 | in[12] << 8 | in[13], 0);
	scsi_lun_unset(r->target, 1);
	rig_close(r);
}

struct moment {
	struct env_timer timer;
	bool over;
};

static void passed(struct env_timer *timer)
{
	container_of(timer, struct moment, timer)->over = true;
}

/* Far less than a unit waits of itself. */
static void a_moment(struct rig *r)
{
	struct moment m = { .timer = { .cb = passed } };

	env_timer_start(&r->me.loop.env, &m.timer, MSEC);
	CHECK(memenv_run(&r->me, &m.over));
}

static const struct scsi_lun *unit_set(struct rig *r, unsigned lun)
{
	struct iscsi_lun_conf conf = { .lun = lun, .block_bytes = 512 };

	conf.object = rig_oid(lun);
	if (lun < 5)
		CHECK_EQ(fake_dom_add(r->dom, &conf.object, 1 << 20), 0);
	CHECK_EQ(scsi_lun_set(r->target, &conf, r->usage), 0);
	return r->target->luns[lun];
}

/* A disk has come: who waits for it tries at once, and is counted until he has. */
TEST(lun, tried_again_when_a_disk_comes)
{
	struct rig *r = rig_open(512);
	const struct fake_fault once = { .ops = FAKE_OPEN,
					 .status = -ENXIO,
					 .times = 1 };
	const struct scsi_lun *unit;

	scsi_units_retry(r->target); /* all are open */
	CHECK_EQ(r->common.untried, 0);
	fake_dom_fault(r->dom, once);
	unit = unit_set(r, 2);
	a_moment(r);
	CHECK(unit->object == NULL);
	scsi_units_retry(r->target);
	CHECK_EQ(r->common.untried, 1);
	a_moment(r);
	CHECK_EQ(r->common.untried, 0);
	CHECK(unit->object != NULL);
	/* It was on its way, and looked too early. */
	fake_dom_fault(r->dom, once);
	unit = unit_set(r, 3);
	scsi_units_retry(r->target);
	scsi_units_retry(r->target);
	CHECK_EQ(r->common.untried, 1);
	a_moment(r);
	CHECK_EQ(r->common.untried, 0);
	CHECK(unit->object != NULL);
	/* One that cannot be opened, and one that goes meanwhile. */
	unit = unit_set(r, 5);
	unit_set(r, 4);
	scsi_units_retry(r->target);
	CHECK_EQ(r->common.untried, 2);
	scsi_lun_unset(r->target, 4);
	a_moment(r);
	CHECK_EQ(r->common.untried, 0);
	CHECK(unit->object == NULL);
	rig_close(r);
}

/* What dom tells, the initiator hears once. */
TEST(lun, events)
{
	struct rig *r = rig_open(512);
	uint8_t in[32], log[64], page[64];
	struct rig_cmd a;

	fake_dom_resize(r->dom, &r->oid, 2 * RIG_BYTES);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x2a, 9));
	CHECK_EQ(rig_tur(r, 0), GOOD);
	CHECK_EQ(rig_do(r, 0,
			CDB(0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32),
			NULL, 0, in, 32),
		 GOOD);
	CHECK_EQ(get_be64(in), 2 * RIG_BYTES / 512 - 1);
	/* 20 % of 128 MiB, in threshold sets of 1 MiB; soft, armed, available. */
	CHECK_EQ(rig_do(r, 0, CDB(0x1a, 8, 0x1c, 2, 64), NULL, 0, page, 64),
		 GOOD);
	CHECK_EQ(rig_got, 28);
	CHECK_EQ(page[4 + 16] & 0x80, 0x80);
	CHECK_EQ(get_be32(page + 4 + 20), 25);
	fake_dom_low_space(r->dom, &r->oid, 3 << 20, 5 << 20);
	/* One at a time, in their order. */
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x2a, 9));
	rig_begin(r, &a, 1, CDB(0), NULL, 0, 0, SCSI_SIMPLE, false);
	CHECK_EQ(a.answer, RIG_SENSE(6, 0x38, 7));
	/* Which one: where its descriptor is in the mode page. */
	CHECK_EQ(a.cmd.sense[0], 0xf0);
	CHECK_EQ(get_be32(a.cmd.sense + 3), 16);
	rig_end(&a);
	CHECK_EQ(rig_do(r, 0, CDB(3, 1, 0, 0, 32), NULL, 0, in, 32), GOOD);
	CHECK_EQ(in[0], 0x72);
	CHECK_EQ(in[1] << 16 | in[2] << 8 | in[3], 0x063807);
	CHECK_EQ(in[8 + 2], 0x80);
	CHECK_EQ(get_be64(in + 8 + 4), 16);
	CHECK_EQ(rig_tur(r, 0), GOOD);
	CHECK_EQ(rig_do(r, 0, CDB(0x4d, 0, 0x4c, 0, 0, 0, 0, 0, 64), NULL, 0,
			log, 64),
		 GOOD);
	CHECK_EQ(get_be32(log + 8), 5); /* MiB free */
	CHECK_EQ(get_be32(log + 20), 3); /* and used */
	fake_dom_congestion(r->dom, &r->oid, 99);
	CHECK_EQ(scsi_lun_congestion(r->target, 0), 99);
	fake_dom_remove(r->dom, &r->oid);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x3f, 0x0e));
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(5, 0x25, 0));
	rig_close(r);
}

/* A nexus that goes takes its RESERVE along. */
TEST(lun, logout_releases)
{
	struct rig *r = rig_open(512);

	CHECK_EQ(rig_do(r, 1, CDB(0x16), NULL, 0, NULL, 0), GOOD);
	CHECK_EQ(rig_tur(r, 0), RIG_STATUS(SCSI_RESERVATION_CONFLICT));
	rig_logout(r, 1);
	CHECK_EQ(rig_tur(r, 0), GOOD);
	rig_login(r, 2);
	CHECK_EQ(rig_tur(r, 2), POWER_ON);
	rig_close(r);
}

/* A reset that finds dom busy does not leave a RESERVE behind. */
TEST(lun, reset_of_a_busy_unit_releases)
{
	struct rig *r = rig_open(512);
	struct fake_fault f = { .ops = FAKE_RESERVE,
				.times = 3,
				.status = -EBUSY,
				.at_once = true };

	/* Of another shard's object it hears so later. */
	for (unsigned i = 0; i < 2; i++, f.at_once = false) {
		CHECK_EQ(rig_do(r, 1, CDB(0x16), NULL, 0, NULL, 0), GOOD);
		fake_dom_fault(r->dom, f);
		CHECK_EQ(rig_tmf(r, 0, SCSI_LUN_RESET, 0), 0);
		CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x29, 3));
		CHECK_EQ(rig_tur(r, 0), GOOD);
		CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x29, 3));
	}
	/* Nor does it wait for ever. */
	CHECK_EQ(rig_do(r, 1, CDB(0x16), NULL, 0, NULL, 0), GOOD);
	f.times = 1u << 30;
	fake_dom_fault(r->dom, f);
	CHECK_EQ(rig_tmf(r, 0, SCSI_LUN_RESET, 0), 255); /* not all of it */
	f.times = 0;
	fake_dom_fault(r->dom, f);
	rig_close(r);
}

/* Nor does one say that it released what it had no memory for. */
TEST(lun, reset_without_memory)
{
	struct rig *r = rig_open(512);

	CHECK_EQ(rig_do(r, 1, CDB(0x16), NULL, 0, NULL, 0), GOOD);
	fail_at = 1;
	CHECK_EQ(rig_tmf(r, 0, SCSI_LUN_RESET, 0), 255);
	CHECK_EQ(fail_at, 0);
	CHECK_EQ(rig_tmf(r, 0, SCSI_LUN_RESET, 0), 0);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x29, 3));
	CHECK_EQ(rig_tur(r, 0), GOOD);
	rig_close(r);
}

/* With its object a RESERVE is gone. */
TEST(lun, reset_of_a_unit_without_object)
{
	struct rig *r = rig_open(512);

	CHECK_EQ(rig_do(r, 1, CDB(0x16), NULL, 0, NULL, 0), GOOD);
	fake_dom_remove(r->dom, &r->oid);
	CHECK_EQ(rig_tmf(r, 0, SCSI_LUN_RESET, 0), 0);
	rig_close(r);
}

/* A command that storage has begun, and goes on with though it is aborted. */
static void begin_held(struct rig *r, struct rig_cmd *c, unsigned n,
		       uint8_t opcode)
{
	rig_begin(r, c, n, CDB(opcode), NULL, 0, 0, SCSI_SIMPLE, false);
	rig_run(r);
	CHECK(!c->done);
}

/* Nexus 1 asks for @function while nothing ends, and is answered when all has. */
static void tmf_over_held(struct rig *r, enum scsi_tmf function)
{
	int response = -1;
	struct scsi_tmf_req req = { .data = &response,
				    .function = function,
				    .nexus = &r->nexus[1],
				    .cb = on_reset };

	scsi_tmf(&req);
	rig_run(r);
	CHECK_EQ(response, -1);
	fake_dom_hold(r->dom, false);
	rig_run(r);
	CHECK_EQ(response, 0);
}

/* A reset leaves no RESERVE that took effect after it. */
TEST(lun, reset_of_a_reserve_under_way)
{
	static const struct {
		enum scsi_tmf function;
		unsigned sense;
	} resets[] = { { SCSI_LUN_RESET, RIG_SENSE(6, 0x29, 3) },
		       { SCSI_IT_NEXUS_RESET, RIG_SENSE(6, 0x29, 7) } };

	for (unsigned i = 0; i < ARRAY_LEN(resets); i++) {
		struct rig *r = rig_open(512);
		struct rig_cmd a;

		fake_dom_stubborn(r->dom, true);
		fake_dom_hold(r->dom, true);
		begin_held(r, &a, 1, 0x16);
		tmf_over_held(r, resets[i].function);
		CHECK(a.done);
		rig_end(&a);
		CHECK_EQ(rig_tur(r, 1), resets[i].sense);
		while (rig_tur(r, 0) >> 16 == RIG_SENSE(6, 0, 0) >> 16)
			;
		CHECK_EQ(rig_tur(r, 0), GOOD);
		rig_close(r);
	}
}

/* A RESERVE of nexus @n is answered, and not carried out: see fake_dom_late(). */
static void reserve_late(struct rig *r, unsigned n)
{
	fake_dom_late(r->dom, &r->oid, true);
	CHECK(rig_do(r, n, CDB(0x16), NULL, 0, NULL, 0) != GOOD);
	CHECK_EQ(rig_tur(r, 0), GOOD);
}

/* Nor one that was answered before, and could not be seen. */
TEST(lun, reset_of_a_reserve_given_up)
{
	static const enum scsi_tmf resets[] = { SCSI_LUN_RESET,
						SCSI_TARGET_WARM_RESET,
						SCSI_IT_NEXUS_RESET };

	for (unsigned i = 0; i < ARRAY_LEN(resets); i++) {
		struct rig *r = rig_open(512);

		reserve_late(r, 1);
		CHECK_EQ(rig_tmf(r, 1, resets[i], 0), 0);
		fake_dom_late(r->dom, &r->oid, false);
		while (rig_tur(r, 0) >> 16 == RIG_SENSE(6, 0, 0) >> 16)
			;
		CHECK_EQ(rig_tur(r, 0), GOOD);
		rig_close(r);
	}
}

/* Nor does it release what another has by the time. */
TEST(lun, nexus_reset_between_two_reserves)
{
	struct rig *r = rig_open(512);
	struct rig_cmd a, b;

	CHECK_EQ(rig_do(r, 1, CDB(0x16), NULL, 0, NULL, 0), GOOD);
	fake_dom_stubborn(r->dom, true);
	fake_dom_hold(r->dom, true);
	begin_held(r, &a, 1, 0x17);
	begin_held(r, &b, 0, 0x16);
	tmf_over_held(r, SCSI_IT_NEXUS_RESET);
	CHECK_EQ(b.answer, GOOD);
	rig_end(&a);
	rig_end(&b);
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(6, 0x29, 7));
	CHECK_EQ(rig_tur(r, 1), RIG_STATUS(SCSI_RESERVATION_CONFLICT));
	rig_close(r);
}

/* Nothing is held any more: an owner that is down is not waited for. */
TEST(lun, nothing_to_release)
{
	static const enum scsi_tmf resets[] = { SCSI_LUN_RESET,
						SCSI_TARGET_WARM_RESET,
						SCSI_IT_NEXUS_RESET };
	struct rig *r = rig_open(512);

	for (unsigned i = 0; i < 2; i++) {
		CHECK_EQ(rig_do(r, 1, CDB(0x16), NULL, 0, NULL, 0), GOOD);
		CHECK_EQ(rig_do(r, 0, CDB(0x16), NULL, 0, NULL, 0),
			 RIG_STATUS(SCSI_RESERVATION_CONFLICT));
		if (i == 0)
			CHECK_EQ(rig_do(r, 1, CDB(0x17), NULL, 0, NULL, 0),
				 GOOD);
		else
			CHECK_EQ(rig_tmf(r, 0, SCSI_LUN_RESET, 0), 0);
		fake_dom_fault(r->dom,
			       (struct fake_fault){ .ops = FAKE_RESERVE,
						    .times = 1u << 30,
						    .status = -ETIMEDOUT });
		for (unsigned n = 0; n < 2; n++)
			for (unsigned at = 0; at < ARRAY_LEN(resets); at++)
				CHECK_EQ(rig_tmf(r, n, resets[at], 0), 0);
		fake_dom_fault(r->dom, (struct fake_fault){ .times = 0 });
		for (unsigned n = 0; n < 2; n++)
			while (rig_tur(r, n) != GOOD)
				;
	}
	/* Nor by the end of a nexus. */
	fake_dom_hold(r->dom, true);
	rig_logout(r, 1);
	CHECK_EQ(fake_dom_queued(r->dom), 0);
	fake_dom_hold(r->dom, false);
	rig_close(r);
}

static void on_over(void *arg)
{
	*(bool *)arg = true;
}

/*
 * Nor is it by who had one that was ended elsewhere: by way of another shard's
 * unit, or another node's.
 */
TEST(lun, nothing_to_release_any_more)
{
	struct rig *r = rig_open(512);
	struct iscsi_lun_conf conf = { .block_bytes = 512, .object = r->oid };
	struct scsi_nexus other = { .dom = r->nexus[0].dom };
	int response = -1;
	struct scsi_tmf_req req = { .data = &response,
				    .function = SCSI_LUN_RESET,
				    .nexus = &other,
				    .cb = on_reset };
	bool closed = false, gone = false;
	struct scsi_target *target;
	struct scsi_common common;

	scsi_common_init(&common);
	CHECK_EQ(scsi_target_open(r->target->env, r->dom, &common,
				  "iqn.2026-11.internal.basalt:other", &target),
		 0);
	CHECK_EQ(scsi_lun_set(target, &conf, r->usage), 0);
	rig_run(r);
	scsi_nexus_open(target, &other, false);
	CHECK_EQ(rig_do(r, 1, CDB(0x16), NULL, 0, NULL, 0), GOOD);
	scsi_tmf(&req);
	rig_run(r);
	CHECK_EQ(response, 0);
	fake_dom_fault(r->dom, (struct fake_fault){ .ops = FAKE_RESERVE,
						    .times = 1u << 30,
						    .status = -ETIMEDOUT });
	CHECK_EQ(rig_tmf(r, 0, SCSI_LUN_RESET, 0), 0);
	fake_dom_fault(r->dom, (struct fake_fault){ .times = 0 });
	scsi_nexus_close(&other, on_over, &closed);
	scsi_target_close(target, on_over, &gone);
	rig_run(r);
	CHECK(closed && gone);
	rig_close(r);
}

/* ---- SANITIZE ---- */

static unsigned sanitize(struct rig *r, unsigned n, uint8_t byte1,
			 const void *list, size_t len)
{
	uint8_t cdb[16] = { 0x48, byte1 };

	put_be16(cdb + 7, (uint16_t)len);
	return rig_do(r, n, cdb, list, len, NULL, 0);
}

TEST(lun, sanitize)
{
	struct rig *r = rig_open(512);
	uint8_t list[4 + 512] = { 0x02 | 0x80 }, in[18];

	CHECK_EQ(rig_write(r, 0, 0, 64, 0x44), GOOD);
	CHECK_EQ(sanitize(r, 0, 2, NULL, 0), GOOD); /* block erase */
	CHECK_EQ(rig_read(r, 0, 0, 64, 0), GOOD);
	CHECK_EQ(sanitize(r, 0, 2, list, 8), RIG_SENSE(5, 0x24, 0));

	/* Two passes, the first inverted; immediate. */
	put_be16(list + 2, 1);
	list[4] = 0x0f;
	CHECK_EQ(sanitize(r, 0, 0x81, list, 5), GOOD);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(2, 4, 0x1b));
	CHECK_EQ(rig_read(r, 1, 0, 1, 0), RIG_SENSE(2, 4, 0x1b));
	CHECK_EQ(rig_do(r, 0, CDB(3, 0, 0, 0, 18), NULL, 0, in, 18), GOOD);
	CHECK_EQ(in[13], 0x1b);
	CHECK_EQ(in[15], 0x80); /* progress */
	CHECK_EQ(sanitize(r, 0, 2, NULL, 0), RIG_SENSE(2, 4, 0x1b));
	/* What the unit is can be asked for. */
	CHECK_EQ(rig_do(r, 0, CDB(0x25), NULL, 0, in, 8), GOOD);
	CHECK_EQ(rig_do(r, 0,
			CDB(0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12),
			NULL, 0, in, 12),
		 GOOD);
	CHECK_EQ(rig_do(r, 0, CDB(0x1a, 8, 0x08, 0, 12), NULL, 0, in, 12),
		 GOOD);
	CHECK_EQ(rig_do(r, 0, CDB(0x5a, 8, 0x0a, 0, 0, 0, 0, 0, 12), NULL, 0,
			in, 12),
		 GOOD);
	CHECK_EQ(rig_do(r, 0, CDB(0x1a, 8, 0x01, 0, 12), NULL, 0, in, 12),
		 RIG_SENSE(2, 4, 0x1b));
	/* A reset does not stop it. */
	CHECK_EQ(rig_tmf(r, 0, SCSI_LUN_RESET, 0), 0);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x29, 3));
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(2, 4, 0x1b));
	rig_run(r);
	CHECK_EQ(rig_read(r, 0, 0, 64, 0x0f), GOOD);
	CHECK_EQ(rig_read(r, 0, RIG_BYTES / 512 - 9, 9, 0x0f), GOOD);
	CHECK_EQ(sanitize(r, 0, 3, NULL, 0), GOOD);
	CHECK_EQ(rig_read(r, 0, 0, 64, 0), GOOD);
	list[0] = 0x03 | 0x80; /* three, the second inverted */
	CHECK_EQ(sanitize(r, 0, 0x01, list, 5), GOOD);
	CHECK_EQ(rig_read(r, 0, 0, 64, 0x0f), GOOD);
	rig_close(r);
}

/* The command may be aborted; what it began goes on. */
TEST(lun, sanitize_aborted)
{
	struct rig *r = rig_open(512);
	uint8_t list[5] = { 1, 0, 0, 1, 0x61 };
	struct rig_cmd a;

	rig_begin(r, &a, 0, CDB(0x48, 1, 0, 0, 0, 0, 0, 0, 5), list, 5, 0,
		  SCSI_SIMPLE, false);
	CHECK_EQ(rig_tmf(r, 0, SCSI_ABORT_TASK_SET, 0), 0);
	CHECK_EQ(a.answer, RIG_SILENT);
	rig_end(&a);
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(2, 4, 0x1b));
	rig_run(r);
	CHECK_EQ(rig_read(r, 0, 0, 64, 0x61), GOOD);

	/* The unit goes while one runs. */
	CHECK_EQ(sanitize(r, 0, 0x81, list, 5), GOOD);
	scsi_lun_unset(r->target, 0);
	rig_close(r);
}

TEST(lun, sanitize_fails)
{
	struct rig *r = rig_open(512);
	struct fake_fault f = { .ops = FAKE_UNMAP, .times = 1, .status = -EIO };

	fake_dom_fault(r->dom, f);
	CHECK_EQ(sanitize(r, 0, 2, NULL, 0), RIG_SENSE(3, 0x31, 3));
	CHECK_EQ(rig_read(r, 0, 0, 1, 0), RIG_SENSE(3, 0x31, 3));
	/* Without AUSE only another sanitize leads out. */
	CHECK_EQ(sanitize(r, 0, 0x1f, NULL, 0), RIG_SENSE(5, 0x24, 0));
	/* Nor may that one be left. */
	CHECK_EQ(sanitize(r, 0, 0x22, NULL, 0), RIG_SENSE(5, 0x24, 0));
	CHECK_EQ(rig_read(r, 0, 0, 1, 0), RIG_SENSE(3, 0x31, 3));
	CHECK_EQ(sanitize(r, 0, 2, NULL, 0), GOOD);
	CHECK_EQ(rig_read(r, 0, 0, 1, 0), GOOD);
	fake_dom_fault(r->dom, f);
	CHECK_EQ(sanitize(r, 0, 0x22, NULL, 0), RIG_SENSE(3, 0x31, 3));
	CHECK_EQ(sanitize(r, 0, 0x1f, NULL, 0), GOOD);
	CHECK_EQ(rig_read(r, 0, 0, 1, 0), GOOD);
	/* Unavailable for a while, or full, is waited for. */
	f.times = 3;
	f.status = -ENXIO;
	fake_dom_fault(r->dom, f);
	CHECK_EQ(sanitize(r, 0, 2, NULL, 0), GOOD);
	f.status = -ENOSPC;
	fake_dom_fault(r->dom, f);
	CHECK_EQ(sanitize(r, 0, 2, NULL, 0), GOOD);
	/* But not for ever, and anew each time. */
	f.times = 299;
	fake_dom_fault(r->dom, f);
	CHECK_EQ(sanitize(r, 0, 2, NULL, 0), GOOD);
	f.times = 1000;
	fake_dom_fault(r->dom, f);
	CHECK_EQ(sanitize(r, 0, 2, NULL, 0), RIG_SENSE(3, 0x31, 3));
	rig_close(r);
}

/* Whatever other commands hear of as temporary is waited for, five minutes. */
TEST(lun, sanitize_of_a_disk_that_went_away)
{
	static const int statuses[] = { -ENXIO, -ENODEV,    -ETIMEDOUT,
					-EBUSY, -ESHUTDOWN, -ENOMEM };
	struct rig *r = rig_open(512);
	struct fake_fault f = { .ops = FAKE_UNMAP };
	uint8_t in[18];
	uint64_t since;

	for (unsigned i = 0; i < ARRAY_LEN(statuses); i++) {
		f.status = statuses[i];
		f.times = 200;
		fake_dom_fault(r->dom, f);
		CHECK_EQ(sanitize(r, 0, 2, NULL, 0), GOOD);

		f.times = 1000000;
		fake_dom_fault(r->dom, f);
		since = env_now(&r->me.loop.env);
		CHECK_EQ(sanitize(r, 0, 2, NULL, 0), RIG_SENSE(3, 0x31, 3));
		CHECK(env_now(&r->me.loop.env) - since <= 302 * SEC);

		/* Who does not wait for it is told the same. */
		CHECK_EQ(sanitize(r, 0, 0x82, NULL, 0), GOOD);
		CHECK_EQ(rig_tur(r, 0), RIG_SENSE(2, 4, 0x1b));
		CHECK_EQ(rig_do(r, 0, CDB(3, 0, 0, 0, 18), NULL, 0, in, 18),
			 GOOD);
		CHECK_EQ(get_be16(in + 12), 0x041b);
		rig_run(r);
		CHECK_EQ(rig_tur(r, 0), RIG_SENSE(3, 0x31, 3));
		CHECK_EQ(rig_do(r, 0, CDB(3, 0, 0, 0, 18), NULL, 0, in, 18),
			 GOOD);
		CHECK_EQ(in[2], 3);
		CHECK_EQ(get_be16(in + 12), 0x3103);
		f.times = 0;
		fake_dom_fault(r->dom, f);
		CHECK_EQ(sanitize(r, 0, 2, NULL, 0), GOOD);
		CHECK_EQ(rig_do(r, 0, CDB(3, 0, 0, 0, 18), NULL, 0, in, 18),
			 GOOD);
		CHECK_EQ(in[2], 0);
	}
	rig_close(r);
}

/* The disk is made smaller, and larger, while a sanitize runs: all is erased. */
TEST(lun, sanitize_of_a_disk_that_is_resized)
{
	uint8_t list[5] = { 1, 0, 0, 1, 0x61 };
	struct rig *r = rig_open(512);

	CHECK_EQ(sanitize(r, 0, 0x81, list, 5), GOOD);
	fake_dom_resize(r->dom, &r->oid, RIG_BYTES / 4);
	rig_run(r);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x2a, 9));
	CHECK_EQ(rig_read(r, 0, RIG_BYTES / 4 / 512 - 9, 9, 0x61), GOOD);

	CHECK_EQ(sanitize(r, 0, 0x81, list, 5), GOOD);
	fake_dom_resize(r->dom, &r->oid, RIG_BYTES / 2);
	rig_run(r);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x2a, 9));
	CHECK_EQ(rig_read(r, 0, RIG_BYTES / 2 / 512 - 9, 9, 0x61), GOOD);

	/* It shrinks while a step waits. */
	CHECK_EQ(sanitize(r, 0, 0x82, NULL, 0), GOOD);
	fake_dom_fault(r->dom, (struct fake_fault){ .ops = FAKE_UNMAP,
						    .times = 1,
						    .status = -ERANGE });
	rig_run(r);
	CHECK_EQ(rig_read(r, 0, 0, 64, 0), GOOD);
	rig_close(r);
}

/* The unit goes and comes back, as at a restart: the object keeps the mark. */
static void restart(struct rig *r)
{
	struct iscsi_lun_conf conf = { .name = "disk",
				       .block_bytes = 512,
				       .object = r->oid };

	uint8_t in[36];

	scsi_lun_unset(r->target, 0);
	CHECK_EQ(scsi_lun_set(r->target, &conf, r->usage), 0);
	/* A few turns of the loop, for it to open. */
	for (unsigned i = 0; i < 10; i++)
		CHECK_EQ(rig_do(r, 0, CDB(0x12, 0, 0, 0, 36), NULL, 0, in, 36),
			 GOOD);
	for (unsigned n = 0; n < 2; n++)
		while (rig_tur(r, n) >> 16 == RIG_SENSE(6, 0, 0) >> 16)
			; /* 29/00 and what else there is to tell */
}

TEST(lun, sanitize_goes_on_after_a_restart)
{
	struct rig *r = rig_open(512);
	uint8_t list[4 + 512] = { 0x02 | 0x80 };

	CHECK_EQ(rig_write(r, 0, 0, 64, 0x44), GOOD);
	put_be16(list + 2, 2);
	list[4] = 0x0f;
	list[5] = 0xf5;
	CHECK_EQ(sanitize(r, 0, 0x81, list, 6), GOOD);
	restart(r);
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(2, 4, 0x1b));
	CHECK_EQ(rig_write(r, 0, 0, 64, 0x44), RIG_SENSE(2, 4, 0x1b));
	restart(r);
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(2, 4, 0x1b));
	rig_run(r);
	CHECK_EQ(rig_read(r, 0, 0, 64, 0x0f), GOOD);
	CHECK_EQ(rig_write(r, 0, 0, 64, 0x44), GOOD);
	/* It is done: nothing comes back. */
	restart(r);
	rig_run(r);
	CHECK_EQ(rig_read(r, 0, 0, 64, 0x44), GOOD);
	rig_close(r);
}

/* By an older directory it goes on, and by what was written it has ended. */
TEST(lun, sanitize_of_an_older_directory)
{
	struct rig *r = rig_open(512);
	uint8_t list[4 + 512] = { 0x01 };

	put_be16(list + 2, 1);
	list[4] = 0x0f;
	CHECK_EQ(sanitize(r, 0, 0x81, list, 5), GOOD);
	fake_dom_mark_empty(r->dom, &r->oid);
	restart(r);
	rig_run(r);
	CHECK_EQ(rig_write(r, 0, 0, 64, 0x44), RIG_SENSE(3, 0x31, 3));
	CHECK_EQ(sanitize(r, 0, 0x1f, NULL, 0), GOOD);
	CHECK_EQ(rig_write(r, 0, 0, 64, 0x44), GOOD);
	restart(r);
	rig_run(r);
	CHECK_EQ(rig_read(r, 0, 0, 64, 0x44), GOOD);
	rig_close(r);
}

TEST(lun, sanitize_failure_stays)
{
	struct rig *r = rig_open(512);
	struct fake_fault f = { .ops = FAKE_UNMAP, .times = 1, .status = -EIO };

	fake_dom_fault(r->dom, f);
	CHECK_EQ(sanitize(r, 0, 0x22, NULL, 0), RIG_SENSE(3, 0x31, 3));
	restart(r);
	CHECK_EQ(rig_read(r, 0, 0, 1, 0), RIG_SENSE(3, 0x31, 3));
	CHECK_EQ(sanitize(r, 0, 0x1f, NULL, 0), GOOD);
	CHECK_EQ(rig_read(r, 0, 0, 1, 0), GOOD);
	restart(r);
	CHECK_EQ(rig_read(r, 0, 0, 1, 0), GOOD);
	rig_close(r);
}

/* Nothing is erased before the mark is there, nor served before it is gone. */
TEST(lun, sanitize_mark_fails)
{
	struct rig *r = rig_open(512);
	struct fake_fault f = { .ops = FAKE_MARK, .times = 1 };
	static const int sure[] = { -EINVAL, -ENOSPC, -ESHUTDOWN };
	static const int later[] = { -EBUSY, -EAGAIN, -ETIMEDOUT, -EIO };

	CHECK_EQ(rig_write(r, 0, 0, 64, 0x44), GOOD);
	for (unsigned i = 0; i < ARRAY_LEN(sure); i++) {
		f.status = sure[i];
		f.at_once = i % 2;
		fake_dom_fault(r->dom, f);
		CHECK(sanitize(r, 0, 0x82, NULL, 0) != GOOD);
		CHECK_EQ(rig_read(r, 0, 0, 64, 0x44), GOOD);
	}
	for (unsigned i = 0; i < ARRAY_LEN(later); i++) {
		f = (struct fake_fault){ .ops = FAKE_MARK,
					 .skip = i % 2, /* begin, end */
					 .times = 5,
					 .status = later[i] };
		CHECK_EQ(rig_write(r, 0, 0, 64, 0x44), GOOD);
		fake_dom_fault(r->dom, f);
		CHECK_EQ(sanitize(r, 0, 2, NULL, 0), GOOD);
		CHECK_EQ(rig_read(r, 0, 0, 64, 0), GOOD);
	}
	/* Never: whoever asks hears of it, and the unit is open again. */
	f = (struct fake_fault){ .ops = FAKE_MARK,
				 .times = 1u << 30,
				 .status = -EBUSY };
	CHECK_EQ(rig_write(r, 0, 0, 64, 0x44), GOOD);
	fake_dom_fault(r->dom, f);
	CHECK(sanitize(r, 0, 0x82, NULL, 0) != GOOD);
	CHECK_EQ(rig_read(r, 0, 0, 64, 0x44), GOOD);
	/* Unknown for long: told, and closed until it is known. */
	f.times = 300;
	f.status = -ETIMEDOUT;
	fake_dom_fault(r->dom, f);
	CHECK(sanitize(r, 0, 2, NULL, 0) != GOOD);
	CHECK_EQ(rig_tur(r, 1), RIG_SENSE(2, 4, 0x1b));
	rig_run(r);
	CHECK_EQ(rig_read(r, 0, 0, 64, 0), GOOD);
	rig_close(r);
}

/* ---- one object behind two units, as two targets have it ---- */

/* The object of unit 0 is unit @lun, too; its attentions are heard. */
static void twin_set(struct rig *r, unsigned lun)
{
	struct iscsi_lun_conf conf = {
		.lun = lun, .name = "twin", .block_bytes = 512, .object = r->oid
	};
	uint8_t in[36];

	CHECK_EQ(scsi_lun_set(r->target, &conf, r->usage), 0);
	for (r->lun = 0; r->lun < 2; r->lun++) {
		/* A few turns of the loop, for it to open. */
		for (unsigned i = 0; i < 10; i++)
			CHECK_EQ(rig_do(r, 0, CDB(0x12, 0, 0, 0, 36), NULL, 0,
					in, 36),
				 GOOD);
		while (rig_tur(r, 0) >> 16 == RIG_SENSE(6, 0, 0) >> 16)
			;
	}
	r->lun = 0;
}

static void woken(struct env_timer *timer)
{
	*(bool *)(timer + 1) = true;
}

static void pass_time(struct rig *r, uint64_t ns)
{
	struct {
		struct env_timer timer;
		bool done;
	} t = { .timer = { .cb = woken } };

	env_timer_start(&r->me.loop.env, &t.timer, ns);
	CHECK(memenv_run(&r->me, &t.done));
}

static unsigned tur_at(struct rig *r, unsigned lun)
{
	unsigned answer;

	r->lun = lun;
	answer = rig_tur(r, 0);
	r->lun = 0;
	return answer;
}

/* After a minute hosts try another path; what is told of the ports agrees. */
TEST(lun, never_ready)
{
	struct rig *r = rig_open(512);
	struct iscsi_lun_conf conf = { .lun = 1,
				       .name = "late",
				       .block_bytes = 512 };
	uint8_t d[64];

	memset(conf.object.b, 0x77, 16);
	CHECK_EQ(scsi_lun_set(r->target, &conf, r->usage), 0);
	for (unsigned i = 0; i < 3; i++)
		CHECK_EQ(tur_at(r, 1) >> 16 & 0xf, 6);
	CHECK_EQ(tur_at(r, 1), RIG_SENSE(2, 4, 1));
	pass_time(r, 60 * SEC);
	CHECK_EQ(tur_at(r, 1), RIG_SENSE(2, 4, 0));
	r->lun = 1;
	CHECK_EQ(rig_read(r, 0, 0, 8, 0), RIG_SENSE(2, 4, 0));
	CHECK_EQ(rig_do(r, 0, CDB(0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 64), NULL, 0,
			d, 64),
		 GOOD);
	CHECK_EQ(d[4] & 0x0f, 0); /* active */
	r->lun = 0;
	scsi_lun_unset(r->target, 1);
	rig_close(r);
}

/* Mode pages belong to the object: every unit that shows it has the same. */
TEST(lun, mode_pages_of_two_units)
{
	/* SWP, TAS */
	static const uint8_t list[16] = { 0,	0, 0,	 0, 0x0a, 0x0a, 0,
					  0x10, 8, 0x40, 0, 0,	  0xff, 0xff };
	struct rig *r = rig_open(512);

	twin_set(r, 1);
	CHECK_EQ(rig_do(r, 0, CDB(0x15, 0x10, 0, 0, 16), list, 16, NULL, 0),
		 GOOD);
	r->lun = 1;
	CHECK_EQ(rig_write(r, 0, 0, 1, 0x44), RIG_SENSE(6, 0x2a, 1));
	CHECK_EQ(rig_write(r, 0, 0, 1, 0x44), RIG_SENSE(7, 0x27, 2));
	/* One that comes later has them, too. */
	r->lun = 0;
	scsi_lun_unset(r->target, 1);
	twin_set(r, 1);
	r->lun = 1;
	CHECK_EQ(rig_write(r, 0, 0, 1, 0x44), RIG_SENSE(7, 0x27, 2));
	CHECK_EQ(rig_tmf(r, 0, SCSI_LUN_RESET, 0), 0);
	CHECK_EQ(rig_write(r, 0, 0, 1, 0x44), RIG_SENSE(6, 0x29, 3));
	CHECK_EQ(rig_write(r, 0, 0, 1, 0x44), GOOD);
	r->lun = 0;
	rig_close(r);
}

/* Write from nexus @n at unit 0, once it has heard what there is to hear. */
static unsigned write_from(struct rig *r, unsigned n)
{
	unsigned got;

	do
		got = rig_write(r, n, 0, 1, 0x44);
	while (got >> 16 == RIG_SENSE(6, 0, 0) >> 16);
	return got;
}

/*
 * A RESERVE is a nexus's at the disk, by whatever number it asked: a number that goes
 * does not end it (SPC-2 5.5.1), while there is another one.
 */
TEST(lun, reserve_of_two_units)
{
	for (unsigned at = 0; at < 2; at++) {
		struct rig *r = rig_open(512);

		twin_set(r, 1);
		while (tur_at(r, 1) != GOOD)
			;
		r->lun = at;
		CHECK_EQ(rig_do(r, 0, CDB(0x16), NULL, 0, NULL, 0), 0);
		r->lun = 0;
		scsi_lun_unset(r->target, 1);
		rig_run(r);
		CHECK_EQ(write_from(r, 1),
			 RIG_STATUS(SCSI_RESERVATION_CONFLICT));
		CHECK_EQ(write_from(r, 0), 0);
		rig_logout(r, 0);
		CHECK_EQ(write_from(r, 1), 0);
		rig_close(r);
	}
}

/* Nor does it end one that is on its way, whatever else changes meanwhile. */
TEST(lun, reserve_under_way_of_two_units)
{
	struct rig *r = rig_open(512);
	struct scsi_lun *first = r->target->luns[0];
	struct rig_cmd c;

	twin_set(r, 1);
	while (tur_at(r, 1) != GOOD)
		;
	fake_dom_hold(r->dom, true);
	r->lun = 1;
	begin_held(r, &c, 0, 0x16);
	r->lun = 0;
	scsi_lun_unset(r->target, 1);
	first->watch.cb(&first->watch, DOM_RESERVATION);
	fake_dom_hold(r->dom, false);
	CHECK(memenv_run(&r->me, &c.done));
	CHECK_EQ(c.answer, GOOD);
	rig_end(&c);
	rig_run(r);
	CHECK_EQ(write_from(r, 1), RIG_STATUS(SCSI_RESERVATION_CONFLICT));
	CHECK_EQ(write_from(r, 0), 0);
	rig_logout(r, 0);
	CHECK_EQ(write_from(r, 1), 0);
	rig_close(r);
}

/* That of the last one does. */
TEST(lun, reserve_of_a_unit_that_goes)
{
	struct rig *r = rig_open(512);
	struct iscsi_lun_conf conf = { .block_bytes = 512, .object = r->oid };

	CHECK_EQ(rig_do(r, 0, CDB(0x16), NULL, 0, NULL, 0), 0);
	scsi_lun_unset(r->target, 0);
	rig_run(r);
	CHECK_EQ(scsi_lun_set(r->target, &conf, r->usage), 0);
	rig_run(r);
	CHECK_EQ(write_from(r, 1), 0);
	rig_close(r);
}

/*
 * Nor does a session with another target: an initiator has the same port name at
 * all of them (RFC 7143 10.1.1).
 */
TEST(lun, reserve_of_two_targets)
{
	struct rig *r = rig_open(512);
	struct iscsi_lun_conf conf = { .block_bytes = 512, .object = r->oid };
	struct scsi_nexus other = { .dom = r->nexus[0].dom };
	struct scsi_target *target;
	bool released = false, closed = false, gone = false;

	CHECK_EQ(scsi_target_open(r->target->env, r->dom, &r->common,
				  "iqn.2026-11.internal.basalt:other", &target),
		 0);
	CHECK_EQ(scsi_lun_set(target, &conf, r->usage), 0);
	rig_run(r);
	CHECK_EQ(rig_do(r, 0, CDB(0x16), NULL, 0, NULL, 0), 0);
	scsi_nexus_open(target, &other, false);
	scsi_nexus_release(&other, on_over, &released);
	rig_run(r);
	CHECK(released);
	CHECK_EQ(write_from(r, 1), RIG_STATUS(SCSI_RESERVATION_CONFLICT));
	scsi_nexus_close(&other, on_over, &closed);
	rig_run(r);
	CHECK(closed);
	CHECK_EQ(write_from(r, 1), RIG_STATUS(SCSI_RESERVATION_CONFLICT));
	/* Its own session takes it along, though there is another. */
	closed = false;
	scsi_nexus_open(target, &other, false);
	rig_logout(r, 0);
	CHECK_EQ(write_from(r, 1), 0);
	/* One that was answered before it took effect, too. */
	rig_login(r, 0);
	CHECK_EQ(write_from(r, 0), 0);
	reserve_late(r, 0);
	rig_logout(r, 0);
	fake_dom_late(r->dom, &r->oid, false);
	CHECK_EQ(write_from(r, 1), 0);
	scsi_nexus_close(&other, on_over, &closed);
	scsi_target_close(target, on_over, &gone);
	rig_run(r);
	CHECK(closed && gone);
	rig_close(r);
}

/* A reset ends it, by whatever unit: that one is not open is no matter of the disk. */
TEST(lun, reserve_and_a_reset_of_a_unit_that_is_not_open)
{
	struct rig *r = rig_open(512);
	struct iscsi_lun_conf conf = { .lun = 1,
				       .block_bytes = 512,
				       .object = r->oid };

	CHECK_EQ(rig_do(r, 1, CDB(0x16), NULL, 0, NULL, 0), 0);
	fake_dom_fault(r->dom, (struct fake_fault){ .ops = FAKE_OPEN,
						    .times = UINT_MAX,
						    .status = -EBUSY });
	CHECK_EQ(scsi_lun_set(r->target, &conf, r->usage), 0);
	rig_run(r);
	CHECK(r->target->luns[1]->object == NULL);
	CHECK_EQ(write_from(r, 0), RIG_STATUS(SCSI_RESERVATION_CONFLICT));
	CHECK_EQ(rig_tmf(r, 0, SCSI_LUN_RESET, 1), 0);
	CHECK_EQ(write_from(r, 0), 0);
	scsi_lun_unset(r->target, 1);
	rig_close(r);
}

/* Who looks for the units of one object does not look at those of all others. */
TEST(lun, units_of_an_object_among_many)
{
	enum { MANY = 250 };
	struct rig *r = rig_open(512);
	const struct scsi_lun *unit;

	twin_set(r, 1);
	for (unsigned i = 2; i < MANY; i++)
		CHECK_EQ(rig_lun(r, i, 1 << 20, false), 0);
	for (unsigned i = 0; i < MANY; i++) {
		struct scsi_lun *lun = r->target->luns[i];
		unsigned same = 0, near = 0;

		SCSI_UNITS_FOREACH (unit, lun)
			same++;
		TAILQ_FOREACH (unit,
			       scsi__units_near(r->target->common, &lun->oid),
			       object_link)
			near++;
		CHECK_EQ(same, i < 2 ? 2 : 1);
		CHECK(near < 10);
	}
	for (unsigned i = MANY - 1; i > 1; i--)
		scsi_lun_unset(r->target, i);
	rig_close(r);
}

/* Nobody gets at the data of an object while it is sanitized. */
TEST(lun, sanitize_closes_every_unit)
{
	struct rig *r = rig_open(512);
	uint8_t list[5] = { 1, 0, 0, 1, 0x61 };

	twin_set(r, 1);
	CHECK_EQ(sanitize(r, 0, 0x81, list, 5), GOOD);
	CHECK_EQ(tur_at(r, 0), RIG_SENSE(2, 4, 0x1b));
	CHECK_EQ(tur_at(r, 1), RIG_SENSE(2, 4, 0x1b));
	r->lun = 1;
	CHECK_EQ(rig_write(r, 0, 0, 64, 0x44), RIG_SENSE(2, 4, 0x1b));
	CHECK_EQ(sanitize(r, 0, 2, NULL, 0), RIG_SENSE(2, 4, 0x1b));
	rig_run(r);
	CHECK_EQ(rig_read(r, 0, 0, 64, 0x61), GOOD);
	r->lun = 0;
	rig_close(r);
}

/*
 * It may take hours, and is asked for by an ORDERED command that waits for its end:
 * others of the unit do not.  They hear of it, or what is told meanwhile.
 */
TEST(lun, sanitize_is_no_barrier)
{
	static const enum scsi_attr attrs[] = { SCSI_SIMPLE, SCSI_ORDERED };
	struct rig *r = rig_open(512);
	uint8_t list[5] = { 1, 0, 0, 1, 0x61 }, in[36];
	struct rig_cmd before, c, read, inquiry[2];

	fake_dom_hold(r->dom, true);
	rig_begin(r, &before, 0, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1), NULL, 0,
		  512, SCSI_SIMPLE, false);
	rig_begin(r, &c, 0, CDB(0x48, 1, [8] = 5), list, 5, 0, SCSI_ORDERED,
		  false);
	rig_begin(r, &read, 1, CDB(0x28, 0, 0, 0, 0, 0, 0, 0, 1), NULL, 0, 512,
		  SCSI_SIMPLE, false);
	pass_time(r, SEC / 10);
	CHECK(!before.done && !read.done);
	fake_dom_hold(r->dom, false);
	pass_time(r, SEC);
	CHECK(before.done && read.done && !c.done);
	CHECK_EQ(before.answer, GOOD);
	CHECK_EQ(read.answer, RIG_SENSE(2, 4, 0x1b));
	for (unsigned i = 0; i < ARRAY_LEN(attrs); i++) {
		rig_begin(r, &inquiry[i], 1, CDB(0x12, 0, 0, 0, 36), NULL, 0,
			  sizeof(in), attrs[i], false);
		pass_time(r, SEC / 10);
		CHECK(inquiry[i].done && !c.done);
		CHECK_EQ(inquiry[i].answer, GOOD);
		rig_end(&inquiry[i]);
	}
	rig_end(&before);
	rig_end(&read);
	CHECK(memenv_run(&r->me, &c.done));
	CHECK_EQ(c.answer, GOOD);
	rig_end(&c);
	CHECK_EQ(rig_read(r, 1, 0, 64, 0x61), GOOD);
	rig_close(r);
}

/* After a restart, too, one run serves all units: what comes later stays. */
TEST(lun, sanitize_of_two_units_goes_on_once)
{
	struct rig *r = rig_open(512);
	uint8_t list[5] = { 1, 0, 0, 1, 0x61 };
	uint64_t end = RIG_BYTES / 512 - 64;

	twin_set(r, 1);
	CHECK_EQ(sanitize(r, 0, 0x81, list, 5), GOOD);
	scsi_lun_unset(r->target, 1);
	restart(r);
	pass_time(r, SEC);
	twin_set(r, 1);
	while (tur_at(r, 0) != GOOD)
		pass_time(r, SEC / 10);
	CHECK_EQ(rig_write(r, 0, end, 64, 0x44), GOOD);
	rig_run(r);
	CHECK_EQ(rig_read(r, 0, end, 64, 0x44), GOOD);
	CHECK_EQ(rig_read(r, 0, 0, 64, 0x61), GOOD);
	rig_close(r);
}

/* Nor does one that another node began anew, as that was started meanwhile. */
TEST(lun, sanitize_of_two_nodes_ends_once)
{
	static struct scsi_common common;
	struct rig *r = rig_open(512);
	struct iscsi_lun_conf conf = { .name = "disk",
				       .block_bytes = 512,
				       .object = r->oid };
	uint8_t list[5] = { 1, 0, 0, 1, 0x61 };
	uint64_t end = RIG_BYTES / 512 - 64;
	struct scsi_target *target;
	bool gone = false;

	scsi_common_init(&common);
	CHECK_EQ(scsi_target_open(r->target->env, r->dom, &common,
				  r->target->iqn, &target),
		 0);
	CHECK_EQ(sanitize(r, 0, 0x81, list, 5), GOOD);
	pass_time(r, 4 * SEC);
	CHECK_EQ(tur_at(r, 0), RIG_SENSE(2, 4, 0x1b));
	CHECK_EQ(scsi_lun_set(target, &conf, r->usage), 0);
	pass_time(r, SEC / 10);
	CHECK(!TAILQ_EMPTY(&common.sanitizes));
	while (tur_at(r, 0) != GOOD)
		pass_time(r, SEC / 10);
	CHECK_EQ(rig_write(r, 0, end, 64, 0x44), GOOD);
	rig_run(r);
	pass_time(r, 10 * SEC);
	CHECK(TAILQ_EMPTY(&common.sanitizes));
	CHECK_EQ(rig_read(r, 0, end, 64, 0x44), GOOD);
	CHECK_EQ(rig_read(r, 0, 0, 64, 0x61), GOOD);
	scsi_target_close(target, on_over, &gone);
	rig_run(r);
	CHECK(gone);
	rig_close(r);
}

/* One that failed is left at all of them, whichever was told so. */
TEST(lun, sanitize_that_failed_is_left_on_two_nodes)
{
	static struct scsi_common common;
	struct rig *r = rig_open(512);
	struct iscsi_lun_conf conf = { .name = "disk",
				       .block_bytes = 512,
				       .object = r->oid };
	struct scsi_nexus *nexus = &r->nexus[2];
	struct scsi_target *target;
	bool closed = false, gone = false;

	fake_dom_fault(r->dom, (struct fake_fault){ .ops = FAKE_UNMAP,
						    .times = 1,
						    .status = -EIO });
	CHECK_EQ(sanitize(r, 0, 0x22, NULL, 0), RIG_SENSE(3, 0x31, 3));
	scsi_common_init(&common);
	CHECK_EQ(scsi_target_open(r->target->env, r->dom, &common,
				  r->target->iqn, &target),
		 0);
	CHECK_EQ(scsi_lun_set(target, &conf, r->usage), 0);
	rig_run(r);
	*nexus = (struct scsi_nexus){ .dom = r->nexus[0].dom };
	scsi_nexus_open(target, nexus, false);
	while (rig_tur(r, 2) >> 16 == RIG_SENSE(6, 0, 0) >> 16)
		;
	CHECK_EQ(rig_tur(r, 2), RIG_SENSE(3, 0x31, 3));
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(3, 0x31, 3));
	CHECK_EQ(sanitize(r, 2, 0x1f, NULL, 0), GOOD);
	CHECK_EQ(rig_write(r, 2, 0, 64, 0x44), GOOD);
	CHECK_EQ(rig_tur(r, 0), GOOD);
	CHECK_EQ(rig_read(r, 0, 0, 64, 0x44), GOOD);
	scsi_nexus_close(nexus, on_over, &closed);
	scsi_target_close(target, on_over, &gone);
	rig_run(r);
	CHECK(closed && gone);
	rig_close(r);
}

/* The unit that it was asked of goes: the other one takes it over. */
TEST(lun, sanitize_outlives_its_unit)
{
	struct rig *r = rig_open(512);
	uint8_t list[5] = { 1, 0, 0, 1, 0x61 };

	twin_set(r, 1);
	CHECK_EQ(sanitize(r, 0, 0x81, list, 5), GOOD);
	scsi_lun_unset(r->target, 0);
	while (tur_at(r, 1) >> 16 == RIG_SENSE(6, 0, 0) >> 16)
		;
	CHECK_EQ(tur_at(r, 1), RIG_SENSE(2, 4, 0x1b));
	rig_run(r);
	CHECK_EQ(tur_at(r, 1), GOOD);
	r->lun = 1;
	CHECK_EQ(rig_read(r, 0, 0, 64, 0x61), GOOD);
	r->lun = 0;
	rig_close(r);
}

/* What goes in steps and has begun takes no further one. */
TEST(lun, sanitize_ends_what_goes_in_steps)
{
	struct rig *r = rig_open(512);
	uint8_t list[5] = { 1, 0, 0, 1, 0x61 }, cdb[16] = { 0x93 };
	static const uint8_t data[512] = { 0xab };
	struct rig_cmd a;

	put_be32(cdb + 10, (9u << 20) / 512);
	fake_dom_hold(r->dom, true);
	rig_begin(r, &a, 1, cdb, data, 512, 0, SCSI_SIMPLE, false);
	CHECK_EQ(fake_dom_queued(r->dom), 1);
	CHECK_EQ(sanitize(r, 0, 0x81, list, 5), GOOD);
	fake_dom_hold(r->dom, false);
	CHECK(memenv_run(&r->me, &a.done));
	CHECK_EQ(a.answer, RIG_SENSE(2, 4, 0x1b));
	rig_end(&a);
	rig_run(r);
	CHECK_EQ(rig_read(r, 0, 0, 64, 0x61), GOOD);
	CHECK_EQ(rig_read(r, 0, (5u << 20) / 512, 64, 0x61), GOOD);
	rig_close(r);
}

/* Hosts give a command a time, however many steps it takes. */
TEST(lun, steps_share_a_deadline)
{
	/*
	 * WRITE SAME(16), VERIFY(16), UNMAP of two ranges; and WRITE SAME with
	 * UNMAP, which Linux waits for as for UNMAP: 30 s.
	 */
	static const uint8_t cdbs[][16] = {
		{ 0x93, [12] = 0x48 },
		{ 0x8f, [12] = 0x10 },
		{ 0x42, [8] = 40 },
		{ 0x93, 0x08, [12] = 0x48 },
	};
	static const unsigned out[] = { 512, 0, 40, 512 },
			      seconds[] = { 55, 115, 25, 25 };
	struct rig *r = rig_open(512);
	uint8_t data[512] = { 0xab };
	uint64_t start;
	struct rig_cmd a;

	for (unsigned i = 0; i < ARRAY_LEN(cdbs); i++) {
		memset(data, 0, sizeof(data));
		/* Not zeros: those go in longer steps. */
		data[0] = i == 0 || i == 3;
		if (i == 2) {
			put_be16(data + 2, 32);
			put_be32(data + 16, 8);
			put_be32(data + 32, 8);
		}
		fake_dom_hold(r->dom, true);
		start = env_now(&r->me.loop.env);
		rig_begin(r, &a, 0, cdbs[i], data, out[i], 0, SCSI_SIMPLE,
			  false);
		CHECK_EQ(fake_dom_queued(r->dom), 1);
		CHECK_EQ(a.cmd.io.deadline_ns, start + 25 * SEC);
		pass_time(r, seconds[i] * SEC);
		fake_dom_hold(r->dom, false);
		CHECK(memenv_run(&r->me, &a.done));
		CHECK_EQ(a.answer, RIG_SENSE(0xb, 8, 1));
		rig_end(&a);
	}
	rig_close(r);
}

/* What is known is told in time, and a host goes on from there. */
TEST(lun, lba_status_of_a_slow_disk)
{
	static const uint8_t cdb[16] = { 0x9e, 0x12, [12] = 2 };
	struct rig *r = rig_open(512);
	struct rig_cmd a;
	uint8_t d[16];

	CHECK_EQ(rig_write(r, 0, 0, 8, 0x44), GOOD); /* data, then a hole */
	for (unsigned seconds = 0; seconds <= 25; seconds += 5) {
		fake_dom_hold(r->dom, true);
		rig_begin(r, &a, 0, cdb, NULL, 0, 512, SCSI_SIMPLE, false);
		CHECK_EQ(fake_dom_queued(r->dom), 1);
		pass_time(r, seconds * SEC);
		fake_dom_hold(r->dom, false);
		CHECK(memenv_run(&r->me, &a.done));
		CHECK_EQ(a.answer, GOOD);
		CHECK_EQ(a.cmd.data_in_len, seconds == 0 ? 40 : 24);
		sgl_read(a.cmd.data_in, 8, d, sizeof(d));
		CHECK_EQ(get_be64(d), 0);
		CHECK_EQ(get_be32(d + 8), 8);
		CHECK_EQ(d[12], 0);
		rig_end(&a);
	}
	rig_close(r);
}

static unsigned seconds_left(const struct rig_cmd *rc, uint64_t now)
{
	return (unsigned)((rc->cmd.io.deadline_ns - now + SEC / 2) / SEC);
}

/* So, too, the wait for older commands: some of the time is always left. */
TEST(lun, a_wait_takes_of_the_deadline)
{
	static const uint8_t data[512] = { 0xab };
	static const unsigned waits[] = { 0, 15, 60 }, left[] = { 25, 10, 5 };
	struct rig *r = rig_open(512);
	struct rig_cmd a, b;
	uint64_t now;

	for (unsigned i = 0; i < ARRAY_LEN(waits); i++) {
		begin_rw(r, &a, 0, true, 0, SCSI_ORDERED, true);
		begin_rw(r, &b, 1, false, 8, SCSI_SIMPLE, false);
		pass_time(r, waits[i] * SEC);
		now = env_now(&r->me.loop.env);
		rig_execute(&a, data, 512);
		CHECK(memenv_run(&r->me, &b.done));
		CHECK_EQ(seconds_left(&a, now), 25);
		CHECK_EQ(seconds_left(&b, now), left[i]);
		CHECK_EQ(b.cmd.until_ns, b.cmd.io.deadline_ns);
		rig_end(&a);
		rig_end(&b);
	}
	rig_close(r);
}

/* A write that was let in before, and has its data only now. */
TEST(lun, sanitize_refuses_what_waited_for_data)
{
	struct rig *r = rig_open(512);
	uint8_t list[5] = { 1, 0, 0, 1, 0x61 };
	static const uint8_t data[512] = { 0xab };
	struct rig_cmd a;

	begin_rw(r, &a, 1, true, 0, SCSI_SIMPLE, true);
	CHECK_EQ(sanitize(r, 0, 0x81, list, 5), GOOD);
	rig_execute(&a, data, 512);
	CHECK(memenv_run(&r->me, &a.done));
	CHECK_EQ(a.answer, RIG_SENSE(2, 4, 0x1b));
	rig_end(&a);
	rig_run(r);
	CHECK_EQ(rig_read(r, 0, 0, 64, 0x61), GOOD);
	rig_close(r);
}
