/* What sense data says beside key and codes: where the fault lies. */
#include "base/util.h"
#include "iscsi/scsi_int.h"
#include "tests/lib/scsi_rig.h"
#include "tests/lib/test.h"

#define GOOD 0u
#define CDB_FIELD RIG_SENSE(5, 0x24, 0)
#define LIST_FIELD RIG_SENSE(5, 0x26, 0)
#define LIST_LENGTH RIG_SENSE(5, 0x1a, 0)
#define IN_CDB 0x40
#define ANY_BIT -1

/* Which format it has is D_SENSE's matter. */
static void d_sense(struct rig *r, bool on)
{
	uint8_t list[16] = { [4] = 0x0a, [5] = 0x0a, [7] = 0x10, [9] = 0x40 };

	list[6] = on ? 0x04 : 0;
	put_be16(list + 12, 0xffff);
	CHECK_EQ(rig_do(r, 0, CDB(0x15, 0x10, 0, 0, 16), list, 16, NULL, 0),
		 GOOD);
}

static void begin(struct rig *r, struct rig_cmd *rc, const uint8_t *cdb,
		  const void *out, size_t out_len, size_t in_len)
{
	rig_begin(r, rc, 0, cdb, out, out_len, in_len, SCSI_SIMPLE, false);
	if (!rc->done && rc->begun)
		CHECK(memenv_run(&r->me, &rc->done));
}

/* Sense key specific bytes of @rc, NULL if there are none. */
static const uint8_t *specific(const struct rig_cmd *rc)
{
	const uint8_t *s = rc->cmd.sense;

	if (s[0] == 0x70 || s[0] == 0xf0)
		return s[15] & 0x80 ? s + 15 : NULL;
	CHECK_EQ(s[0], 0x72);
	for (unsigned at = 8; at < rc->cmd.sense_len; at += s[at + 1] + 2u)
		if (s[at] == 0x02) {
			CHECK_EQ(s[at + 1], 6);
			CHECK(s[at + 4] & 0x80);
			return s + at + 4;
		}
	return NULL;
}

static void points_at(const struct rig_cmd *rc, unsigned answer, uint8_t where,
		      unsigned byte, int bit)
{
	const uint8_t *sks = specific(rc);

	CHECK_EQ(rc->answer, answer);
	CHECK(sks != NULL);
	CHECK_EQ(sks[0] & IN_CDB, where);
	CHECK_EQ((sks[0] & 0x08) != 0, bit != ANY_BIT);
	if (bit != ANY_BIT)
		CHECK_EQ(sks[0] & 7, bit);
	CHECK_EQ(get_be16(sks + 1), byte);
}

/* A field of the CDB: its byte, and its highest bit where it is in a byte. */
TEST(sense, fields_of_the_cdb)
{
	static const struct {
		uint8_t cdb[16];
		unsigned byte;
		int bit;
	} t[] = {
		{ { 0x88, 0x20, [13] = 1 }, 1, 5 }, /* RDPROTECT */
		{ { 0x88, 0xc0, [13] = 1 }, 1, 7 },
		{ { 0x88, [13] = 1, [15] = 4 }, 15, 2 }, /* NACA */
		{ { 0x88, [11] = 1 }, 10, ANY_BIT }, /* too long */
		{ { 0x12, 0, 0x83, 0, 9 }, 2, ANY_BIT }, /* page, no EVPD */
		{ { 0x5e, 4, [8] = 8 }, 1, 4 }, /* no service action */
		{ { 0x2f, 4, [8] = 1 }, 1, 2 }, /* BYTCHK 10b */
		{ { 0xa0, [9] = 15 }, 6, ANY_BIT },
		{ { 0x1b, [4] = 2 }, 4, 1 }, /* LOEJ */
		{ { 0x5f, 1, 2, [8] = 24 }, 2, 3 }, /* type */
		{ { 0x93, 0x10, [13] = 1 }, 1, 4 }, /* ANCHOR */
	};
	struct rig *r = rig_open(512);
	struct rig_cmd a;

	for (unsigned d = 0; d < 2; d++) {
		d_sense(r, d > 0);
		for (unsigned i = 0; i < ARRAY_LEN(t); i++) {
			begin(r, &a, t[i].cdb, NULL, 0, 64);
			points_at(&a, CDB_FIELD, IN_CDB, t[i].byte, t[i].bit);
			rig_end(&a);
		}
	}
	rig_close(r);
}

/* A byte of the parameter list. */
TEST(sense, bytes_of_the_list)
{
	/* Block length 0x300; a page there is not; a bit that stays. */
	static const uint8_t length[12] = { [3] = 8, [10] = 3 };
	static const uint8_t page[8] = { [4] = 0x3e };
	static const uint8_t same[16] = { [4] = 0x0a, 0x0a,	   0,
					  0x12,	      [12] = 0xff, 0xff };
	/* UNMAP: more descriptors than there may be. */
	static uint8_t many[8 + 16 * 257] = { [2] = 0x10, [3] = 0x10 };
	/* REGISTER AND IGNORE with SPEC_I_PT. */
	static const uint8_t spec[28] = { [20] = 8 };
	static const struct {
		uint8_t cdb[16];
		const uint8_t *list;
		size_t len;
		unsigned answer, byte;
	} t[] = {
		{ { 0x15, 0x10, [4] = 12 }, length, 12, LIST_FIELD, 4 + 5 },
		{ { 0x15, 0x10, [4] = 8 }, page, 8, LIST_FIELD, 4 },
		{ { 0x15, 0x10, [4] = 16 }, same, 16, LIST_FIELD, 4 + 3 },
		{ { 0x15, 0x10, [4] = 9 }, same, 9, LIST_LENGTH, 4 },
		{ { 0x42, [7] = 0x10, 0x18 }, many, 0x1018, LIST_FIELD, 2 },
		{ { 0x5f, 6, [8] = 28 }, spec, 28, LIST_FIELD, 20 },
	};
	struct rig *r = rig_open(512);
	struct rig_cmd a;

	for (unsigned d = 0; d < 2; d++) {
		d_sense(r, d > 0);
		for (unsigned i = 0; i < ARRAY_LEN(t); i++) {
			begin(r, &a, t[i].cdb, t[i].list, t[i].len, 0);
			points_at(&a, t[i].answer, 0, t[i].byte, ANY_BIT);
			rig_end(&a);
		}
	}
	rig_close(r);
}

static void woken(struct env_timer *timer)
{
	*(bool *)(timer + 1) = true;
}

/* How far a sanitize is: an overwrite takes eight seconds at least. */
TEST(sense, progress)
{
	uint8_t list[5] = { 1, 0, 0, 1, 0x61 }, in[18];
	struct {
		struct env_timer timer;
		bool done;
	} t = { .timer = { .cb = woken } };
	struct rig *r = rig_open(512);
	struct rig_cmd a;

	CHECK_EQ(rig_do(r, 0, CDB(0x48, 0x81, 0, 0, 0, 0, 0, 0, 5), list, 5,
			NULL, 0),
		 GOOD);
	env_timer_start(&r->me.loop.env, &t.timer, 2 * SEC);
	CHECK(memenv_run(&r->me, &t.done));
	begin(r, &a, CDB(0), NULL, 0, 0);
	CHECK_EQ(a.answer, RIG_SENSE(2, 4, 0x1b));
	CHECK(specific(&a) != NULL);
	CHECK(get_be16(specific(&a) + 1) >= 0x2000);
	CHECK(get_be16(specific(&a) + 1) < 0x8000);
	CHECK_EQ(rig_do(r, 0, CDB(3, 0, 0, 0, 18), NULL, 0, in, 18), GOOD);
	CHECK_EQ(memcmp(in + 15, specific(&a), 3), 0);
	rig_end(&a);
	rig_run(r);
	rig_close(r);
}

/* INFORMATION of @rc, which has some. */
static uint64_t information(const struct rig_cmd *rc)
{
	const uint8_t *s = rc->cmd.sense;

	if (s[0] == 0xf0)
		return get_be32(s + 3);
	CHECK_EQ(s[0], 0x72);
	CHECK_EQ(s[8], 0);
	CHECK_EQ(s[9], 0x0a);
	CHECK_EQ(s[10], 0x80);
	return get_be64(s + 12);
}

/* The first block that cannot be read, and the first that is none. */
TEST(sense, blocks)
{
	struct rig *r = rig_open(512);
	struct rig_cmd a;

	for (unsigned d = 0; d < 2; d++) {
		d_sense(r, d > 0);
		fake_dom_fault(r->dom,
			       (struct fake_fault){ .ops = FAKE_READ,
						    .times = 1,
						    .status = -EBADMSG,
						    .bad_offset = 9 * 512 });
		begin(r, &a, CDB(0x28, 0, 0, 0, 0, 8, 0, 0, 8), NULL, 0, 4096);
		CHECK_EQ(a.answer, RIG_SENSE(3, 0x11, 0));
		CHECK_EQ(information(&a), 9);
		CHECK_EQ(a.cmd.transfer_len, 0); /* nothing is moved */
		rig_end(&a);
		begin(r, &a, CDB(0x28, 0, 0, 1, 0xff, 0xff, 0, 0, 8), NULL, 0,
		      4096);
		CHECK_EQ(a.answer, RIG_SENSE(5, 0x21, 0));
		CHECK_EQ(information(&a), RIG_BYTES / 512);
		rig_end(&a);
		begin(r, &a, CDB(0x28, 0, 1, 0, 0, 0, 0, 0, 8), NULL, 0, 4096);
		CHECK_EQ(information(&a), 1u << 24);
		rig_end(&a);
	}
	rig_close(r);
}

/* A reset brings back the format that hosts expect of a unit they do not know. */
TEST(sense, format_after_a_reset)
{
	struct rig *r = rig_open(512);
	struct rig_cmd a;

	d_sense(r, true);
	begin(r, &a, CDB(0x12, 0, 0x83), NULL, 0, 64);
	CHECK_EQ(a.cmd.sense[0], 0x72);
	rig_end(&a);
	CHECK_EQ(rig_tmf(r, 1, SCSI_LUN_RESET, 0), 0);
	begin(r, &a, CDB(0), NULL, 0, 0);
	CHECK_EQ(a.answer, RIG_SENSE(6, 0x29, 3));
	CHECK_EQ(a.cmd.sense[0], 0x70);
	rig_end(&a);
	rig_close(r);
}

/* A CDB longer than the command's own, and one of a length that has no command. */
TEST(sense, extended_cdb)
{
	struct rig *r = rig_open(512);

	for (unsigned i = 0; i < 2; i++) {
		struct rig_cmd a;

		memset(&a, 0, sizeof(a));
		a.rig = r;
		a.cmd.nexus = &r->nexus[0];
		a.cmd.cdb_len = 32;
		a.cmd.cdb[0] = i == 0 ? 0x28 : 0x7f;
		CHECK(!scsi_cmd_begin(&a.cmd));
		CHECK_EQ(a.cmd.sense[2], 5);
		CHECK_EQ(get_be16(a.cmd.sense + 12), i == 0 ? 0x2400 : 0x2000);
		scsi_cmd_end(&a.cmd);
	}
	rig_close(r);
}

/* What is refused moves nothing, whatever its CDB says that it moves. */
TEST(sense, refused_commands_move_nothing)
{
	static const uint8_t list[24] = { 0 };
	struct rig *r = rig_open(512);
	struct iscsi_lun_conf conf = { .name = "disk",
				       .block_bytes = 512,
				       .read_only = true,
				       .object = r->oid };
	struct rig_cmd a;

	begin(r, &a, CDB(0x15, 0, 0, 0, 24), list, 24, 0); /* PF=0 */
	points_at(&a, CDB_FIELD, IN_CDB, 1, 4);
	CHECK_EQ(a.cmd.transfer_len, 0);
	rig_end(&a);
	CHECK_EQ(scsi_lun_set(r->target, &conf, r->usage), 0);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x2a, 1));
	begin(r, &a, CDB(0x42, 0, 0, 0, 0, 0, 0, 0, 24), list, 24, 0);
	CHECK_EQ(a.answer, RIG_SENSE(7, 0x27, 0));
	CHECK_EQ(a.cmd.transfer_len, 0);
	rig_end(&a);
	rig_close(r);
}
