/*
 * Every command under every condition that its unit may be in: who is let in,
 * and what the others hear.  What is expected stands here once more, apart from
 * the table of the command set: SPC-4's and SBC-3's tables of reservations, and
 * what hosts must be able to ask at any time.
 */
#include "base/util.h"
#include "iscsi/scsi_int.h"
#include "tests/lib/scsi_rig.h"
#include "tests/lib/test.h"

#include <stdio.h>

#define CONFLICT RIG_STATUS(SCSI_RESERVATION_CONFLICT)
#define BUSY RIG_STATUS(SCSI_BUSY)
#define OTHER 1 /* a nexus without a key */
#define KEY 0x1234u

/*
 * u: a unit attention is reported; s: another's RESERVE bars it; w, e: another's
 * persistent reservation does, write exclusive or exclusive access; z: a
 * sanitize does; p: it writes; b: BUSY until the unit is open, n: not ready; l:
 * there must be a unit.
 */
#define DATA "b"
#define READS "use" DATA "zl"
#define WRITES "uswe" DATA "zpl"
#define TELLS "usl" /* what it is */
static const struct every {
	uint8_t cdb[16];
	const char *is;
} every[] = {
	{ { 0x00 }, "usnzl" }, /* TEST UNIT READY */
	{ { 0x03 }, "" }, /* REQUEST SENSE */
	{ { 0x04 }, WRITES }, /* FORMAT UNIT */
	{ { 0x08 }, READS "s" }, /* READ(6) */
	{ { 0x0a }, WRITES },
	{ { 0x12 }, "" }, /* INQUIRY */
	{ { 0x15, 0x10 }, "uswe" DATA "zl" }, /* MODE SELECT(6) */
	{ { 0x16 }, "usbzl" }, /* RESERVE(6) */
	{ { 0x17 }, "ubzl" }, /* RELEASE(6) */
	{ { 0x1a, 0, 0x01 }, READS "s" }, /* MODE SENSE(6) */
	{ { 0x1a, 0, 0x0a }, "use" DATA "l" }, /* of the control page */
	{ { 0x1b }, "uswenzl" }, /* START STOP UNIT: STOP */
	{ { 0x1b, [4] = 1 }, "usnzl" }, /* START */
	{ { 0x1d }, "uswe" DATA "zl" }, /* SEND DIAGNOSTIC */
	{ { 0x1e }, "usnzl" }, /* PREVENT ALLOW: ALLOW */
	{ { 0x1e, [4] = 1 }, "uswenzl" }, /* PREVENT */
	{ { 0x25 }, "usnl" }, /* READ CAPACITY(10) */
	{ { 0x28 }, READS "s" },
	{ { 0x2a }, WRITES },
	{ { 0x2e }, WRITES }, /* WRITE AND VERIFY(10) */
	{ { 0x2f }, READS "s" }, /* VERIFY(10) */
	{ { 0x34 }, READS "s" }, /* PRE-FETCH(10) */
	{ { 0x35 }, "uswe" DATA "zl" }, /* SYNCHRONIZE CACHE(10) */
	{ { 0x37 }, READS "s" }, /* READ DEFECT DATA(10) */
	{ { 0x41, [8] = 1 }, WRITES }, /* WRITE SAME(10) */
	{ { 0x42 }, WRITES }, /* UNMAP */
	{ { 0x48, 0x01, [8] = 5 }, WRITES }, /* SANITIZE: OVERWRITE */
	{ { 0x48, 0x02 }, WRITES },
	{ { 0x48, 0x03 }, WRITES },
	{ { 0x48, 0x1f }, "uswe" DATA "pl" }, /* EXIT FAILURE MODE */
	{ { 0x4c }, "uswe" DATA "zl" }, /* LOG SELECT */
	{ { 0x4d }, "usnl" }, /* LOG SENSE */
	{ { 0x55, 0x10 }, "uswe" DATA "zl" }, /* MODE SELECT(10) */
	{ { 0x56 }, "usbzl" },
	{ { 0x57 }, "ubzl" },
	{ { 0x5a, 0, 0x01 }, READS "s" }, /* MODE SENSE(10) */
	{ { 0x5e, 0 }, "usbl" }, /* PERSISTENT RESERVE IN */
	{ { 0x5e, 1 }, "usbl" },
	{ { 0x5e, 2 }, "usbl" },
	{ { 0x5e, 3 }, "usbl" },
	{ { 0x5f, 0 }, "usbl" }, /* PERSISTENT RESERVE OUT, without a list */
	{ { 0x5f, 1, 1 }, "usbl" },
	{ { 0x5f, 2 }, "usbl" },
	{ { 0x5f, 3 }, "usbl" },
	{ { 0x5f, 4 }, "usbl" },
	{ { 0x5f, 5 }, "usbl" },
	{ { 0x5f, 6 }, "usbl" },
	{ { 0x5f, 7 }, "usbl" },
	{ { 0x83 }, "uswe" DATA "zl" }, /* EXTENDED COPY, of nothing */
	{ { 0x84 }, "uswe" DATA "zl" }, /* RECEIVE COPY STATUS */
	{ { 0x84, 0x03 }, "usnzl" }, /* COPY OPERATING PARAMETERS */
	{ { 0x88 }, READS "s" },
	{ { 0x89 }, WRITES }, /* COMPARE AND WRITE */
	{ { 0x8a }, WRITES },
	{ { 0x8b }, WRITES }, /* ORWRITE(16) */
	{ { 0x8e }, WRITES },
	{ { 0x8f }, READS "s" },
	{ { 0x90 }, READS "s" },
	{ { 0x91 }, "uswe" DATA "zl" },
	{ { 0x93, 1, [13] = 1 }, WRITES }, /* WRITE SAME(16), NDOB */
	{ { 0x9c }, WRITES }, /* WRITE ATOMIC(16) */
	{ { 0x9e, 0x10 }, "usnl" }, /* READ CAPACITY(16) */
	{ { 0x9e, 0x12 }, READS "s" }, /* GET LBA STATUS(16) */
	{ { 0xa0, [9] = 16 }, "" }, /* REPORT LUNS */
	{ { 0xa3, 0x05 }, TELLS }, /* REPORT IDENTIFYING INFORMATION */
	{ { 0xa3, 0x0a }, TELLS }, /* REPORT TARGET PORT GROUPS */
	{ { 0xa3, 0x0c }, TELLS "e" }, /* SUPPORTED OPERATION CODES */
	{ { 0xa3, 0x0d, [9] = 4 }, TELLS "e" }, /* AND FUNCTIONS */
	{ { 0xa3, 0x0f }, TELLS }, /* REPORT TIMESTAMP */
	{ { 0xa8 }, READS "s" },
	{ { 0xaa }, WRITES },
	{ { 0xae }, WRITES },
	{ { 0xaf }, READS "s" },
	{ { 0xb7 }, READS "s" },
};

static bool is(const struct every *e, char what)
{
	return strchr(e->is, what) != NULL;
}

static unsigned do_it(struct rig *r, unsigned n, const struct every *e)
{
	return rig_do(r, n, e->cdb, NULL, 0, NULL, 0);
}

/* @e ends with @answer if it is @what, and does not if it is not. */
#define BARRED(r, n, e, what, expected)                                        \
	do {                                                                   \
		unsigned got = do_it(r, n, e);                                 \
                                                                               \
		if ((got == (expected)) != is(e, what))                        \
			FAIL_AT(e, what, got);                                 \
	} while (0)
#define FAIL_AT(e, what, got)                                                  \
	do {                                                                   \
		printf("# %02x/%02x '%c': %08x\n", (e)->cdb[0], (e)->cdb[1],   \
		       what, got);                                             \
		CHECK(false);                                                  \
	} while (0)

/* None is missing above. */
TEST(every, command)
{
	struct scsi_common common;

	scsi_common_init(&common);
	for (unsigned i = 0; i < scsi__ops_count; i++) {
		bool found = false;

		for (unsigned j = 0; j < ARRAY_LEN(every); j++)
			if (scsi__op_find(&common, every[j].cdb[0],
					  every[j].cdb[1] & 0x1f) ==
			    &scsi__ops[i])
				found = true;
		CHECK(found);
	}
}

TEST(every, attention)
{
	struct rig *r = rig_open(512);
	uint64_t size = RIG_BYTES;

	for (unsigned i = 0; i < ARRAY_LEN(every); i++) {
		const struct every *e = &every[i];

		if (e->cdb[0] == 0x16 || e->cdb[0] == 0x56)
			continue; /* it would bar the others; see reserved */
		size ^= 1u << 20;
		fake_dom_resize(r->dom, &r->oid, size);
		BARRED(r, OTHER, e, 'u', RIG_SENSE(6, 0x2a, 9));
		/* What does not report it leaves it, or has told it. */
		if (!is(e, 'u') && e->cdb[0] != 0x03)
			CHECK_EQ(rig_tur(r, OTHER), RIG_SENSE(6, 0x2a, 9));
		CHECK_EQ(rig_tur(r, OTHER), 0);
	}
	rig_close(r);
}

TEST(every, reserved)
{
	struct rig *r = rig_open(512);

	CHECK_EQ(rig_do(r, 0, CDB(0x16), NULL, 0, NULL, 0), 0);
	for (unsigned i = 0; i < ARRAY_LEN(every); i++)
		BARRED(r, OTHER, &every[i], 's', CONFLICT);
	rig_close(r);
}

static void pr_out(struct rig *r, uint8_t action, uint8_t type, uint64_t key,
		   uint64_t action_key)
{
	uint8_t cdb[16] = { 0x5f, action, type, [8] = 24 }, list[24] = { 0 };

	put_be64(list, key);
	put_be64(list + 8, action_key);
	CHECK_EQ(rig_do(r, 0, cdb, list, sizeof(list), NULL, 0), 0);
}

TEST(every, persistently_reserved)
{
	for (unsigned type = 1; type <= 3; type += 2) {
		struct rig *r = rig_open(512);

		pr_out(r, 0, 0, 0, KEY);
		pr_out(r, 1, (uint8_t)type, KEY, 0);
		for (unsigned i = 0; i < ARRAY_LEN(every); i++) {
			const struct every *e = &every[i];

			/* SPC-2's own are barred where there are keys. */
			if ((e->cdb[0] & 0x3e) == 0x16)
				continue;
			BARRED(r, OTHER, e, type == 1 ? 'w' : 'e', CONFLICT);
		}
		rig_close(r);
	}
}

TEST(every, sanitized)
{
	uint8_t list[5] = { 1, 0, 0, 1, 0x61 };
	struct rig *r = rig_open(512);

	for (unsigned i = 0; i < ARRAY_LEN(every); i++) {
		const struct every *e = &every[i];

		CHECK_EQ(rig_do(r, 0, CDB(0x48, 0x81, 0, 0, 0, 0, 0, 0, 5),
				list, 5, NULL, 0),
			 0);
		BARRED(r, OTHER, e, 'z', RIG_SENSE(2, 4, 0x1b));
		rig_run(r);
	}
	rig_close(r);
}

TEST(every, read_only)
{
	struct rig *r = rig_open(512);
	struct iscsi_lun_conf conf = { .name = "disk",
				       .block_bytes = 512,
				       .read_only = true,
				       .object = r->oid };

	CHECK_EQ(scsi_lun_set(r->target, &conf, r->usage), 0);
	CHECK_EQ(rig_tur(r, 0), RIG_SENSE(6, 0x2a, 1));
	for (unsigned i = 0; i < ARRAY_LEN(every); i++) {
		const struct every *e = &every[i];
		static const uint8_t list[512];
		size_t len = e->cdb[0] == 0x41			   ? 512
			     : e->cdb[0] == 0x48 && e->cdb[1] == 1 ? 5
								   : 0;
		unsigned got = rig_do(r, 0, e->cdb, list, len, NULL, 0);

		if ((got == RIG_SENSE(7, 0x27, 0)) != is(e, 'p'))
			FAIL_AT(e, 'p', got);
	}
	rig_close(r);
}

/* A command to LUN 1: begun, and answered or not. */
static unsigned begin_at_1(struct rig *r, const struct every *e)
{
	struct rig_cmd rc;
	unsigned answer;

	memset(&rc, 0, sizeof(rc));
	r->lun = 1;
	rig_begin(r, &rc, OTHER, e->cdb, NULL, 0, 0, SCSI_SIMPLE, true);
	r->lun = 0;
	answer = rc.begun ? 0 : rc.answer;
	rig_end(&rc);
	return answer;
}

TEST(every, not_open)
{
	struct rig *r = rig_open(512);
	struct iscsi_lun_conf conf = { .lun = 1,
				       .name = "late",
				       .block_bytes = 512 };

	memset(conf.object.b, 0x77, 16); /* there is none */
	CHECK_EQ(scsi_lun_set(r->target, &conf, r->usage), 0);
	while (begin_at_1(r, &every[0]) != RIG_SENSE(2, 4, 1))
		;
	for (unsigned i = 0; i < ARRAY_LEN(every); i++) {
		const struct every *e = &every[i];
		unsigned got = begin_at_1(r, e);

		if ((got == BUSY) != is(e, 'b'))
			FAIL_AT(e, 'b', got);
		if ((got == RIG_SENSE(2, 4, 1)) != is(e, 'n'))
			FAIL_AT(e, 'n', got);
	}
	scsi_lun_unset(r->target, 1);
	for (unsigned i = 0; i < ARRAY_LEN(every); i++) {
		unsigned got = begin_at_1(r, &every[i]);

		if ((got == RIG_SENSE(5, 0x25, 0)) != is(&every[i], 'l'))
			FAIL_AT(&every[i], 'l', got);
	}
	rig_close(r);
}
