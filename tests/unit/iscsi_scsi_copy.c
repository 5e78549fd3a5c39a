/* EXTENDED COPY between the units of a target, over the fake dom. */
#include "base/stats.h"
#include "base/util.h"
#include "iscsi/scsi_int.h"
#include "tests/lib/scsi_rig.h"
#include "tests/lib/test.h"

#define GOOD 0u
#define UNREACHABLE RIG_SENSE(0xa, 0x08, 0x04)
#define THIRD_PARTY RIG_SENSE(0xa, 0x0d, 0x01)
#define BEYOND RIG_SENSE(0xa, 0, 0)

/* A parameter list as it grows. */
struct list {
	uint8_t b[4096];
	size_t len;
	unsigned cscds;
};

static void list_init(struct list *l)
{
	memset(l, 0, sizeof(*l));
	l->b[1] = 2 << 3; /* LIST ID USAGE: not held */
	l->len = 16;
}

/* The unit at @lun, as rig_lun() made its object. */
static void list_cscd(struct list *l, unsigned lun, uint32_t block)
{
	uint8_t *d = l->b + l->len;
	struct uuid oid = rig_oid(lun);

	d[0] = 0xe4;
	d[4] = 1;
	d[5] = 3;
	d[7] = 8;
	scsi_naa(&oid, d + 8);
	put_be24(d + 29, block);
	l->len += 32;
	l->cscds++;
	put_be16(l->b + 2, (uint16_t)(32 * l->cscds));
}

static uint8_t *list_segment(struct list *l, unsigned from, unsigned to,
			     unsigned blocks, uint64_t from_lba,
			     uint64_t to_lba)
{
	uint8_t *d = l->b + l->len;

	d[0] = 2;
	put_be16(d + 2, 24);
	put_be16(d + 4, (uint16_t)from);
	put_be16(d + 6, (uint16_t)to);
	put_be16(d + 10, (uint16_t)blocks);
	put_be64(d + 12, from_lba);
	put_be64(d + 20, to_lba);
	l->len += 28;
	put_be32(l->b + 8, get_be32(l->b + 8) + 28);
	return d;
}

static const uint8_t *cdb_of(const struct list *l)
{
	static uint8_t cdb[16];

	memset(cdb, 0, sizeof(cdb));
	cdb[0] = 0x83;
	put_be32(cdb + 10, (uint32_t)l->len);
	return cdb;
}

static unsigned copy(struct rig *r, const struct list *l)
{
	return rig_do(r, 0, cdb_of(l), l->b, l->len, NULL, 0);
}

/* One segment from the unit at LUN @from to that at @to. */
static void one(struct list *l, const struct rig *r, unsigned from, unsigned to,
		unsigned blocks, uint64_t from_lba, uint64_t to_lba)
{
	list_init(l);
	list_cscd(l, from, r->block);
	list_cscd(l, to, r->block);
	list_segment(l, 0, 1, blocks, from_lba, to_lba);
}

/* LUN 1 beside LUN 0; nexus 0 has heard of it. */
static struct rig *rig(uint32_t block)
{
	struct rig *r = rig_open(block);

	CHECK_EQ(rig_lun(r, 1, RIG_BYTES, false), 0);
	for (unsigned lun = 0; lun < 2; lun++) {
		r->lun = lun;
		for (unsigned i = 0; i < 2; i++)
			while (rig_tur(r, i) != 0)
				;
	}
	r->lun = 0;
	return r;
}

/* @blocks from @lba on, each of its own: the number of the block at @first. */
static void write_numbers(struct rig *r, unsigned lun, uint64_t lba,
			  unsigned blocks, unsigned first)
{
	size_t len = (size_t)blocks * r->block;
	uint8_t *buf = calloc(1, len), cdb[16] = { 0x8a };

	for (unsigned i = 0; i < blocks; i++)
		for (unsigned j = 0; j < r->block; j += 4)
			put_be32(buf + (size_t)i * r->block + j, first + i);
	put_be64(cdb + 2, lba);
	put_be32(cdb + 10, blocks);
	r->lun = lun;
	CHECK_EQ(rig_do(r, 0, cdb, buf, len, NULL, 0), GOOD);
	r->lun = 0;
	free(buf);
}

static void check_numbers(struct rig *r, unsigned lun, uint64_t lba,
			  unsigned blocks, unsigned first, unsigned step)
{
	size_t len = (size_t)blocks * r->block;
	uint8_t *buf = calloc(1, len), cdb[16] = { 0x88 };

	put_be64(cdb + 2, lba);
	put_be32(cdb + 10, blocks);
	r->lun = lun;
	CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, buf, len), GOOD);
	r->lun = 0;
	for (unsigned i = 0; i < blocks; i++)
		for (unsigned j = 0; j < r->block; j += 4)
			CHECK_EQ(get_be32(buf + (size_t)i * r->block + j),
				 first + i * step);
	free(buf);
}

/* Is the block mapped? */
static bool mapped(struct rig *r, unsigned lun, uint64_t lba)
{
	uint8_t in[24], cdb[16] = { 0x9e, 0x12 };

	put_be64(cdb + 2, lba);
	put_be32(cdb + 10, sizeof(in));
	r->lun = lun;
	CHECK_EQ(rig_do(r, 0, cdb, NULL, 0, in, sizeof(in)), GOOD);
	r->lun = 0;
	CHECK_EQ(get_be64(in + 8), lba);
	return (in[20] & 0xf) == 0;
}

/* From unit to unit, aligned with each other or not, over several steps. */
TEST(scsi_copy, blocks)
{
	static const uint32_t sizes[] = { 512, 4096 };
	static const unsigned at[] = { 0, 8, 3, 5 };

	for (unsigned s = 0; s < 2; s++)
		for (unsigned i = 0; i < ARRAY_LEN(at); i++) {
			struct rig *r = rig(sizes[s]);
			unsigned n = (3u << 20) / r->block + 7;
			struct list l;

			write_numbers(r, 0, 3, n, 1000);
			write_numbers(r, 1, at[i], n + 2, 900000);
			one(&l, r, 0, 1, n, 3, at[i] + 1);
			CHECK_EQ(copy(r, &l), GOOD);
			check_numbers(r, 1, at[i] + 1, n, 1000, 1);
			check_numbers(r, 1, at[i], 1, 900000, 0);
			check_numbers(r, 1, at[i] + 1 + n, 1, 900001 + n, 0);
			check_numbers(r, 0, 3, n, 1000, 1);
			rig_close(r);
		}
}

/* Several segments, there and back; the command goes to whichever unit. */
TEST(scsi_copy, segments)
{
	struct rig *r = rig(512);
	struct list l;

	write_numbers(r, 0, 0, 64, 1);
	list_init(&l);
	list_cscd(&l, 1, 512);
	list_cscd(&l, 5, 512); /* nobody needs it: it need not be there */
	list_cscd(&l, 0, 512);
	list_segment(&l, 2, 0, 32, 0, 100);
	list_segment(&l, 2, 0, 0, 0, 100);
	list_segment(&l, 2, 0, 32, 32, 200);
	list_segment(&l, 0, 2, 16, 200, 1000);
	r->lun = 1;
	CHECK_EQ(copy(r, &l), GOOD);
	check_numbers(r, 1, 100, 32, 1, 1);
	check_numbers(r, 1, 200, 32, 33, 1);
	check_numbers(r, 0, 1000, 16, 33, 1);
	rig_close(r);
}

/* Within a unit, onto itself, in either direction. */
TEST(scsi_copy, overlap)
{
	const unsigned n = (4u << 20) / 512;
	struct list l;

	for (unsigned up = 0; up < 2; up++) {
		struct rig *r = rig(512);

		write_numbers(r, 0, 64, n, 1);
		one(&l, r, 0, 0, n, 64, up ? 264 : 8);
		CHECK_EQ(copy(r, &l), GOOD);
		check_numbers(r, 0, up ? 264 : 8, n, 1, 1);
		rig_close(r);
	}
}

/* What is not mapped there is not mapped here, whatever was. */
TEST(scsi_copy, holes)
{
	struct rig *r = rig(4096);
	struct list l;

	write_numbers(r, 1, 0, 600, 7);
	write_numbers(r, 0, 10, 1, 100);
	write_numbers(r, 0, 300, 2, 200);
	one(&l, r, 0, 1, 600, 0, 0);
	CHECK_EQ(copy(r, &l), GOOD);
	for (unsigned lba = 0; lba < 600; lba++)
		CHECK_EQ(mapped(r, 1, lba),
			 lba == 10 || lba == 300 || lba == 301);
	check_numbers(r, 1, 10, 1, 100, 0);
	check_numbers(r, 1, 300, 2, 200, 1);
	check_numbers(r, 1, 0, 10, 0, 0);
	rig_close(r);
}

/* Blocks of different sizes: DC says whose are counted. */
TEST(scsi_copy, sizes_of_blocks)
{
	struct rig *r = rig(512);
	struct list l;

	write_numbers(r, 0, 8, 16, 1);
	r->block = 4096;
	CHECK_EQ(rig_lun(r, 2, RIG_BYTES, false), 0);
	r->block = 512;
	while (rig_tur(r, 0) != 0)
		;
	list_init(&l);
	list_cscd(&l, 0, 512);
	list_cscd(&l, 2, 4096);
	list_segment(&l, 0, 1, 16, 8, 3);
	list_segment(&l, 0, 1, 1, 8, 1)[1] = 2;
	CHECK_EQ(copy(r, &l), GOOD);
	list_segment(&l, 0, 1, 12, 8, 3);
	CHECK_EQ(copy(r, &l), RIG_SENSE(0xa, 0x26, 0x0a));
	/* Back, to look. */
	list_init(&l);
	list_cscd(&l, 0, 512);
	list_cscd(&l, 2, 4096);
	list_segment(&l, 1, 0, 2, 3, 100);
	list_segment(&l, 1, 0, 1, 1, 200);
	CHECK_EQ(copy(r, &l), GOOD);
	check_numbers(r, 0, 100, 16, 1, 1);
	check_numbers(r, 0, 200, 8, 1, 1);
	/* What the list says of it is not so. */
	one(&l, r, 0, 2, 8, 0, 0);
	CHECK_EQ(copy(r, &l), RIG_SENSE(5, 0x26, 0));
	rig_close(r);
}

/* Lists that are wrong copy nothing. */
TEST(scsi_copy, lists)
{
	struct rig *r = rig(512);
	struct list l, good;
	uint8_t *d;

	write_numbers(r, 0, 0, 8, 1);
	one(&good, r, 0, 1, 8, 0, 0);
#define WRONG(change, sense)                                                   \
	do {                                                                   \
		l = good;                                                      \
		d = l.b + 16;                                                  \
		change;                                                        \
		CHECK_EQ(copy(r, &l), sense);                                  \
	} while (0)
	WRONG(l.len = 0, GOOD);
	WRONG(l.len = 15, RIG_SENSE(5, 0x1a, 0));
	WRONG(l.len -= 1, RIG_SENSE(5, 0x1a, 0));
	WRONG(put_be16(l.b + 2, 63), RIG_SENSE(5, 0x1a, 0));
	WRONG(put_be32(l.b + 8, 27), RIG_SENSE(5, 0x1a, 0));
	WRONG(put_be32(l.b + 8, UINT32_MAX), RIG_SENSE(5, 0x1a, 0));
	WRONG(l.b[1] = 1 << 3, RIG_SENSE(5, 0x26, 0));
	WRONG((l.b[1] = 3 << 3, l.b[0] = 1), RIG_SENSE(5, 0x26, 0));
	WRONG(put_be32(l.b + 12, 4), RIG_SENSE(5, 0x26, 0x0b));
	WRONG(d[0] = 0xe0, RIG_SENSE(5, 0x26, 0x07));
	WRONG(d[1] = 0x01, UNREACHABLE); /* a tape */
	WRONG(d[4] = 2, UNREACHABLE);
	WRONG(d[7] = 7, UNREACHABLE);
	WRONG(d[8] ^= 1, UNREACHABLE);
	WRONG(put_be24(d + 29, 4096), RIG_SENSE(5, 0x26, 0));
	WRONG(put_be24(d + 29, 0), RIG_SENSE(0xa, 0x26, 0x0a));
	WRONG(d[64] = 0, RIG_SENSE(5, 0x26, 0x09));
	WRONG(put_be16(d + 64 + 2, 20), RIG_SENSE(5, 0x26, 0));
	WRONG(put_be16(d + 64 + 4, 2), UNREACHABLE);
	WRONG(put_be16(d + 64 + 6, 0xffff), UNREACHABLE);
	WRONG(put_be16(d + 64 + 10, 32769), RIG_SENSE(5, 0x26, 0));
	WRONG(put_be64(d + 64 + 12, UINT64_MAX), BEYOND);
	WRONG(put_be64(d + 64 + 12, RIG_BYTES / 512 - 7), BEYOND);
	WRONG(put_be64(d + 64 + 20, RIG_BYTES / 512 - 7), BEYOND);
	check_numbers(r, 1, 0, 8, 0, 0);
	WRONG(put_be64(d + 64 + 20, RIG_BYTES / 512 - 8), GOOD);
	WRONG((l.b[1] = 3 << 3, l.b[0] = 0), GOOD);
	WRONG(d[1] = 0xe0, GOOD); /* SPC-3: LU ID TYPE, NUL */
	/* Bits of the CDB that mean nothing. */
	CHECK_EQ(rig_do(r, 0, CDB(0x83, 0x01), NULL, 0, NULL, 0),
		 RIG_SENSE(5, 0x24, 0));
	CHECK_EQ(rig_do(r, 0, CDB(0x83, 0, 1), NULL, 0, NULL, 0),
		 RIG_SENSE(5, 0x24, 0));
	CHECK_EQ(rig_do(r, 0, CDB(0x83, [11] = 1, [13] = 1), NULL, 0, NULL, 0),
		 RIG_SENSE(5, 0x24, 0));
	rig_close(r);
}

/* As many as are told to fit do, and not one more. */
TEST(scsi_copy, limits)
{
	struct rig *r = rig(512);
	uint8_t p[46];
	struct list l;
	unsigned cscds, segments;

	CHECK_EQ(rig_do(r, 0, CDB(0x84, 3, [13] = sizeof(p)), NULL, 0, p,
			sizeof(p)),
		 GOOD);
	CHECK_EQ(get_be32(p), sizeof(p) - 4);
	CHECK_EQ(p[4], 1);
	cscds = get_be16(p + 8);
	segments = get_be16(p + 10);
	CHECK_EQ(get_be32(p + 12), cscds * 32 + segments * 28);
	CHECK_EQ(get_be32(p + 16), 16u << 20);
	CHECK_EQ(get_be32(p + 24), 0); /* nothing is held */
	CHECK_EQ(get_be16(p + 34), SCSI_COPIES_MAX);
	CHECK_EQ(p[36], SCSI_COPIES_OF_ONE);
	CHECK_EQ(1u << p[37], 512);
	CHECK_EQ(p[43], 2);
	CHECK_EQ(p[44], 0x02);
	CHECK_EQ(p[45], 0xe4);

	for (unsigned more = 0; more < 4; more++) {
		list_init(&l);
		for (unsigned i = 0; i < cscds + (more & 1); i++)
			list_cscd(&l, i % 2, 512);
		for (unsigned i = 0; i < segments + (more >> 1); i++)
			list_segment(&l, i % cscds, 1, 1, 0, i);
		CHECK_EQ(copy(r, &l), more == 0 ? GOOD : RIG_SENSE(5, 0x1a, 0));
	}
	list_init(&l);
	for (unsigned i = 0; i <= cscds; i++)
		list_cscd(&l, 0, 512);
	CHECK_EQ(copy(r, &l), RIG_SENSE(5, 0x26, 0x06));
	list_init(&l);
	list_cscd(&l, 0, 512);
	for (unsigned i = 0; i <= segments; i++)
		list_segment(&l, 0, 0, 1, 0, i);
	CHECK_EQ(copy(r, &l), RIG_SENSE(5, 0x26, 0x08));
	rig_close(r);
}

/* Bits of bytes 2 and 4 of the control mode page are set. */
static void control(struct rig *r, unsigned lun, uint8_t two, uint8_t four)
{
	uint8_t list[16] = { 0 };

	r->lun = lun;
	CHECK_EQ(rig_do(r, 0, CDB(0x1a, 0x08, 0x0a, 0, 16), NULL, 0, list, 16),
		 GOOD);
	memset(list, 0, 4);
	list[4 + 2] |= two;
	list[4 + 4] |= four;
	CHECK_EQ(rig_do(r, 0, CDB(0x15, 0x10, 0, 0, 16), list, 16, NULL, 0),
		 GOOD);
	r->lun = 0;
}

static unsigned sense_of(struct rig *r, const struct list *l, uint8_t *sense)
{
	struct rig_cmd rc;
	unsigned answer;

	rig_begin(r, &rc, 0, cdb_of(l), l->b, l->len, 0, SCSI_SIMPLE, false);
	CHECK(memenv_run(&r->me, &rc.done));
	memcpy(sense, rc.cmd.sense, SCSI_SENSE_MAX);
	answer = rc.answer;
	rig_end(&rc);
	return answer;
}

/* Which segment failed, and where the descriptor is wrong, in both formats. */
TEST(scsi_copy, sense)
{
	struct rig *r = rig(512);
	uint8_t s[SCSI_SENSE_MAX];
	struct list l;

	one(&l, r, 0, 1, 8, 0, 0);
	list_segment(&l, 0, 1, 8, 0, RIG_BYTES);
	write_numbers(r, 0, 0, 8, 1);
	CHECK_EQ(sense_of(r, &l, s), BEYOND);
	CHECK_EQ(get_be32(s + 8), 1); /* the second one */
	CHECK_EQ(s[15], 0xa0); /* SKSV, SD */
	CHECK_EQ(get_be16(s + 16), 20);
	check_numbers(r, 1, 0, 8, 1, 1); /* the first was copied */
	one(&l, r, 0, 1, 8, RIG_BYTES / 512 - 7, 0);
	CHECK_EQ(sense_of(r, &l, s), BEYOND);
	CHECK_EQ(get_be32(s + 8), 0);
	CHECK_EQ(get_be16(s + 16), 12);
	one(&l, r, 0, 1, 8, 0, 0);
	list_segment(&l, 0, 1, 8, 0, RIG_BYTES);

	control(r, 0, 0x04, 0); /* D_SENSE */
	CHECK_EQ(sense_of(r, &l, s), BEYOND);
	CHECK_EQ(s[0], 0x72);
	CHECK_EQ(s[7], 8 + 12);
	CHECK_EQ(s[8], 0x02);
	CHECK_EQ(s[12], 0xa0);
	CHECK_EQ(s[16], 0x01);
	CHECK_EQ(get_be64(s + 20), 1);
	rig_close(r);
}

/* Faults of either unit, and what a host makes of them. */
TEST(scsi_copy, faults)
{
	static const struct {
		unsigned ops;
		int status;
		unsigned answer;
	} faults[] = {
		{ FAKE_READ, -EBADMSG, THIRD_PARTY },
		{ FAKE_READ, -EIO, THIRD_PARTY },
		{ FAKE_READ, -ENXIO, UNREACHABLE },
		{ FAKE_READ, -EBUSY, RIG_STATUS(SCSI_BUSY) },
		{ FAKE_WRITE, -EIO, THIRD_PARTY },
		{ FAKE_WRITE, -ENOSPC, RIG_SENSE(7, 0x27, 0x07) },
		{ FAKE_WRITE, -ENODEV, UNREACHABLE },
		{ FAKE_READ, -ETIMEDOUT, RIG_SENSE(0xb, 0x08, 0x01) },
		/* What may have been written is not repeated unasked. */
		{ FAKE_WRITE, -ETIMEDOUT, THIRD_PARTY },
		{ FAKE_WRITE, -EBUSY, THIRD_PARTY },
		{ FAKE_UNMAP, -EIO, THIRD_PARTY },
	};
	struct rig *r = rig(512);
	struct list l;

	write_numbers(r, 0, 0, 8, 1);
	one(&l, r, 0, 1, 4096, 0, 0);
	for (unsigned i = 0; i < ARRAY_LEN(faults); i++)
		for (unsigned now = 0; now < 2; now++) {
			fake_dom_fault(r->dom,
				       (struct fake_fault){
					       .ops = faults[i].ops,
					       .times = 1,
					       .at_once = now,
					       .status = faults[i].status,
				       });
			CHECK_EQ(copy(r, &l), faults[i].answer);
			CHECK_EQ(copy(r, &l), GOOD);
		}
	rig_close(r);
}

static void reserve(struct rig *r, unsigned lun, unsigned n, uint8_t type)
{
	uint8_t p[24] = { 0 };

	r->lun = lun;
	p[15] = (uint8_t)(n + 1);
	CHECK_EQ(rig_do(r, n, CDB(0x5f, 0, [8] = 24), p, 24, NULL, 0), GOOD);
	p[7] = p[15];
	p[15] = 0;
	CHECK_EQ(rig_do(r, n, CDB(0x5f, 1, type, [8] = 24), p, 24, NULL, 0),
		 GOOD);
	r->lun = 0;
}

/* Reservations of both units hold, whoever the command goes to. */
TEST(scsi_copy, reservations)
{
	struct rig *r = rig(512);
	struct list there, back;

	write_numbers(r, 0, 0, 8, 1);
	one(&there, r, 0, 1, 8, 0, 0);
	one(&back, r, 1, 0, 8, 0, 0);
	reserve(r, 1, 1, 1); /* write exclusive, by the other host */
	CHECK_EQ(copy(r, &there), THIRD_PARTY);
	CHECK_EQ(copy(r, &back), GOOD);
	r->lun = 1;
	CHECK_EQ(copy(r, &back), RIG_STATUS(SCSI_RESERVATION_CONFLICT));
	r->lun = 0;
	check_numbers(r, 1, 0, 8, 0, 0);
	rig_close(r);

	r = rig(512);
	reserve(r, 1, 1, 3); /* exclusive access */
	CHECK_EQ(copy(r, &back), THIRD_PARTY);
	rig_close(r);

	r = rig(512);
	reserve(r, 1, 0, 3); /* its own */
	reserve(r, 0, 0, 1);
	CHECK_EQ(copy(r, &there), GOOD);
	rig_close(r);
}

/* A unit that may not be written is read; one that goes ends the copy. */
TEST(scsi_copy, units)
{
	struct rig *r = rig(512);
	struct rig_cmd rc;
	struct list l;

	write_numbers(r, 0, 0, 8, 1);
	CHECK_EQ(rig_lun(r, 1, RIG_BYTES, true), 0);
	one(&l, r, 0, 1, 8, 0, 0);
	CHECK_EQ(copy(r, &l), RIG_SENSE(7, 0x27, 0));
	one(&l, r, 1, 0, 8, 0, 0);
	CHECK_EQ(copy(r, &l), GOOD);
	control(r, 0, 0, 0x08); /* SWP */
	CHECK_EQ(copy(r, &l), RIG_SENSE(7, 0x27, 0));

	CHECK_EQ(rig_lun(r, 1, RIG_BYTES, false), 0);
	one(&l, r, 0, 1, 8192, 0, 0);
	fake_dom_hold(r->dom, true);
	rig_begin(r, &rc, 0, cdb_of(&l), l.b, l.len, 0, SCSI_SIMPLE, false);
	rig_run(r);
	CHECK(!rc.done);
	scsi_lun_unset(r->target, 1);
	fake_dom_hold(r->dom, false);
	CHECK(memenv_run(&r->me, &rc.done));
	CHECK_EQ(rc.answer, UNREACHABLE);
	rig_end(&rc);
	rig_close(r);
}

/*
 * It is taken away, or made read-only, while the other one is read: by the time that
 * this ends its disk may be another host's.
 */
TEST(scsi_copy, unit_changes_while_the_other_is_read)
{
	struct rig *r = rig(512);
	struct rig_cmd rc;
	struct list l;

	write_numbers(r, 0, 0, 8192, 1);
	one(&l, r, 0, 1, 8192, 0, 0);
	for (unsigned read_only = 0; read_only < 2; read_only++) {
		fake_dom_hold(r->dom, true);
		rig_begin(r, &rc, 0, cdb_of(&l), l.b, l.len, 0, SCSI_SIMPLE,
			  false);
		rig_run(r);
		CHECK(!rc.done);
		if (read_only)
			CHECK_EQ(rig_lun(r, 1, RIG_BYTES, true), 0);
		else
			scsi_lun_unset(r->target, 1);
		fake_dom_hold(r->dom, false);
		CHECK(memenv_run(&r->me, &rc.done));
		CHECK_EQ(rc.answer,
			 read_only ? RIG_SENSE(7, 0x27, 0) : UNREACHABLE);
		rig_end(&rc);
		CHECK_EQ(rig_lun(r, 1, RIG_BYTES, false), 0);
		for (r->lun = 0; r->lun < 2; r->lun++)
			while (rig_tur(r, 0) >> 16 == RIG_SENSE(6, 0, 0) >> 16)
				;
		r->lun = 0;
		check_numbers(r, 1, 0, 8192, 0, 0);
	}
	rig_close(r);
}

static unsigned status(struct rig *r, unsigned n, uint8_t id, uint8_t *s)
{
	return rig_do(r, n, CDB(0x84, 0, id, [13] = 12), NULL, 0, s, 12);
}

#define UNKNOWN RIG_SENSE(5, 0x24, 0)

/* Told while it runs, aborted at its next step, and then unknown. */
TEST(scsi_copy, status_and_abort)
{
	struct rig *r = rig(512);
	uint8_t s[12] = { 0 };
	struct rig_cmd rc;
	struct list l;

	write_numbers(r, 0, 0, 8192, 1);
	one(&l, r, 0, 1, 8192, 0, 0);
	l.b[0] = 77;
	CHECK_EQ(status(r, 0, 77, s), UNKNOWN);
	fake_dom_hold(r->dom, true);
	rig_begin(r, &rc, 0, cdb_of(&l), l.b, l.len, 0, SCSI_SIMPLE, false);
	rig_run(r);
	CHECK(!rc.done);
	CHECK_EQ(status(r, 0, 77, s), GOOD);
	CHECK_EQ(get_be32(s), 8);
	CHECK_EQ(s[4], 0);
	CHECK_EQ(get_be32(s + 8), 0);
	CHECK_EQ(status(r, 1, 77, s), UNKNOWN);
	CHECK_EQ(status(r, 0, 78, s), UNKNOWN);
	CHECK_EQ(rig_tmf(r, 0, SCSI_ABORT_TASK_SET, 0), 0);
	CHECK(rc.done);
	CHECK_EQ(rc.answer, RIG_SILENT);
	rig_end(&rc);
	fake_dom_hold(r->dom, false);
	rig_run(r);
	check_numbers(r, 1, 0, 8, 0, 0);
	CHECK_EQ(status(r, 0, 77, s), UNKNOWN);
	CHECK_EQ(r->common.copies_count, 0);
	rig_close(r);
}

/* How the last ones ended, for those that were to be held. */
TEST(scsi_copy, results)
{
	struct rig *r = rig(512);
	uint8_t s[12] = { 0 };
	struct list l;

	write_numbers(r, 0, 0, 8, 1);
	one(&l, r, 0, 1, 8, 0, 0);
	list_segment(&l, 0, 1, 8, 0, 8);
	l.b[0] = 5;
	CHECK_EQ(copy(r, &l), GOOD);
	CHECK_EQ(status(r, 0, 5, s), UNKNOWN); /* usage 2: not to be held */
	l.b[1] = 0;
	CHECK_EQ(copy(r, &l), GOOD);
	CHECK_EQ(status(r, 0, 5, s), GOOD);
	CHECK_EQ(s[4], 1);
	CHECK_EQ(get_be16(s + 5), 2);
	CHECK_EQ(get_be32(s + 8), 16 * 512);
	CHECK_EQ(status(r, 1, 5, s), UNKNOWN);
	list_segment(&l, 0, 1, 8, 0, RIG_BYTES);
	CHECK_EQ(copy(r, &l), BEYOND);
	CHECK_EQ(status(r, 0, 5, s), GOOD);
	CHECK_EQ(s[4], 2);
	CHECK_EQ(get_be16(s + 5), 2);
	/* Four of them are known, each identifier once. */
	one(&l, r, 0, 1, 8, 0, 0);
	l.b[1] = 0;
	for (unsigned i = 0; i < 8; i++) {
		l.b[0] = (uint8_t)(100 + i % 4);
		CHECK_EQ(copy(r, &l), GOOD);
		CHECK_EQ(status(r, 0, 5, s), i < 3 ? GOOD : UNKNOWN);
	}
	for (unsigned i = 0; i < 4; i++)
		CHECK_EQ(status(r, 0, (uint8_t)(100 + i), s), GOOD);
	rig_close(r);
}

/* A unit that is being sanitized is not read and not written for it. */
TEST(scsi_copy, sanitize)
{
	struct rig *r = rig(512);
	struct rig_cmd rc;
	struct list l;

	r->lun = 1;
	fake_dom_hold(r->dom, true);
	rig_begin(r, &rc, 0, CDB(0x48, 0x80 | 0x02), NULL, 0, 0, SCSI_SIMPLE,
		  false);
	rig_run(r);
	r->lun = 0;
	one(&l, r, 0, 1, 8, 0, 0);
	CHECK_EQ(copy(r, &l), UNREACHABLE);
	one(&l, r, 1, 0, 8, 0, 0);
	CHECK_EQ(copy(r, &l), UNREACHABLE);
	fake_dom_hold(r->dom, false);
	if (!rc.done)
		CHECK(memenv_run(&r->me, &rc.done));
	rig_end(&rc);
	rig_run(r);
	CHECK_EQ(copy(r, &l), GOOD);
	rig_close(r);
}

static void woken(struct env_timer *timer)
{
	*(bool *)(timer + 1) = true;
}

/* Shifted within a unit: hosts do not begin it anew when memory was short. */
TEST(scsi_copy, not_repeated)
{
	struct rig *r = rig(512);
	struct list l;

	write_numbers(r, 0, 64, 8192, 1);
	one(&l, r, 0, 0, 8192, 64, 8);
	fake_dom_fault(r->dom, (struct fake_fault){ .ops = FAKE_READ,
						    .skip = 2,
						    .times = 1,
						    .status = -EBUSY });
	CHECK_EQ(copy(r, &l), THIRD_PARTY);
	fake_dom_fault(r->dom, (struct fake_fault){ .ops = FAKE_READ,
						    .times = 1,
						    .status = -EBUSY });
	CHECK_EQ(copy(r, &l), RIG_STATUS(SCSI_BUSY)); /* nothing written */
	rig_close(r);
}

/* A step that takes too long is the last one. */
TEST(scsi_copy, time)
{
	struct {
		struct env_timer timer;
		bool done;
	} t = { .timer = { .cb = woken } };
	struct rig *r = rig(512);
	struct rig_cmd rc;
	struct list l;

	write_numbers(r, 0, 0, 8192, 1);
	one(&l, r, 0, 1, 8192, 0, 0);
	fake_dom_hold(r->dom, true);
	rig_begin(r, &rc, 0, cdb_of(&l), l.b, l.len, 0, SCSI_SIMPLE, false);
	env_timer_start(&r->me.loop.env, &t.timer, 60 * SEC);
	CHECK(memenv_run(&r->me, &t.done));
	CHECK(!rc.done);
	fake_dom_hold(r->dom, false);
	CHECK(memenv_run(&r->me, &rc.done));
	CHECK_EQ(rc.answer, THIRD_PARTY); /* the first step was written */
	rig_end(&rc);
	check_numbers(r, 1, 0, 8, 1, 1);
	check_numbers(r, 1, 8000, 8, 0, 0);
	rig_close(r);
}

/* Where there is little memory it makes do with that, and leaves some to others. */
TEST(scsi_copy, little_memory)
{
	static struct sgl *taken[65536];
	struct rig *r = rig(512);
	struct page_cache *pages = r->target->env->pages;
	unsigned n = 0;
	struct list l;

	write_numbers(r, 0, 0, 8192, 1);
	one(&l, r, 0, 1, 8192, 0, 0);
	while (n < ARRAY_LEN(taken) &&
	       sgl_new(pages, PAGE_FRONT, PAGE_BYTES, 0, &taken[n]) == 0)
		n++;
	for (unsigned i = 0; i < 40; i++)
		sgl_put(taken[--n]);
	CHECK_EQ(copy(r, &l), GOOD);
	while (n > 0)
		sgl_put(taken[--n]);
	check_numbers(r, 1, 0, 8192, 1, 1);
	rig_close(r);
}

/*
 * So many at a time; the next one comes again.  One initiator, by whichever of its
 * ports, leaves as many as it has to others.
 */
TEST(scsi_copy, many)
{
	struct rig_cmd *rc = calloc(2 * SCSI_COPIES_MAX, sizeof(*rc));
	struct rig *r = rig(512);
	unsigned n = 0, more;
	struct list l;
	char *port;

	rig_login(r, 2);
	while (rig_tur(r, 2) != GOOD)
		;
	port = r->nexus[2].dom.initiator_port;
	strcpy(port, r->nexus[0].dom.initiator_port);
	memcpy(strstr(port, ",i,0x") + 5, "00023dffffff", 12);
	one(&l, r, 0, 1, 8, 0, 0);
	fake_dom_hold(r->dom, true);
	for (unsigned who = 0; who < 2; who++) {
		for (more = 0;; more++) {
			unsigned by = who == 0 && more % 2 ? 2 : who;

			rig_begin(r, &rc[n], by, cdb_of(&l), l.b, l.len, 0,
				  SCSI_SIMPLE, false);
			rig_run(r);
			if (rc[n].done)
				break;
			n++;
		}
		CHECK_EQ(rc[n].answer, RIG_STATUS(SCSI_BUSY));
		rig_end(&rc[n]);
		CHECK_EQ(more, SCSI_COPIES_MAX / (who + 1) / 2);
	}
	/* Who has ended has room again. */
	fake_dom_hold(r->dom, false);
	for (unsigned i = 0; i < n; i++) {
		if (!rc[i].done)
			CHECK(memenv_run(&r->me, &rc[i].done));
		CHECK_EQ(rc[i].answer, GOOD);
		rig_end(&rc[i]);
	}
	CHECK_EQ(r->common.copies_count, 0);
	CHECK_EQ(rig_do(r, 0, cdb_of(&l), l.b, l.len, NULL, 0), GOOD);
	rig_close(r);
	free(rc);
}

/* What INQUIRY says of it agrees. */
TEST(scsi_copy, inquiry)
{
	struct rig *r = rig(512);
	uint8_t d[256] = { 0 };
	unsigned seen = 0;

	CHECK_EQ(rig_do(r, 0, CDB(0x12, 0, 0, 0, 96), NULL, 0, d, 96), GOOD);
	CHECK(d[5] & 0x08); /* 3PC */
	CHECK_EQ(rig_do(r, 0, CDB(0x12, 1, 0x8f, 0, 255), NULL, 0, d, 255),
		 GOOD);
	CHECK_EQ(d[1], 0x8f);
	CHECK_EQ(get_be16(d + 2) + 4, rig_got);
	for (size_t at = 4; at < rig_got; at += 4 + get_be16(d + at + 2)) {
		const uint8_t *p = d + at;

		CHECK_EQ(get_be16(p + 2) % 4, 0);
		switch (get_be16(p)) {
		case 0x0001:
			CHECK_EQ(p[4], 7);
			CHECK_EQ(memcmp(p + 5, "\x83\1\0\x84\2\0\3", 7), 0);
			break;
		case 0x0004:
			CHECK_EQ(get_be16(p + 8), SCSI_COPY_CSCDS_MAX);
			CHECK_EQ(get_be16(p + 10), SCSI_COPY_SEGMENTS_MAX);
			CHECK_EQ(get_be32(p + 12), SCSI_COPY_LIST_MAX);
			break;
		case 0x8001:
			CHECK_EQ(get_be32(p + 4), SCSI_COPIES_MAX);
			CHECK_EQ(get_be32(p + 8), SCSI_COPIES_OF_ONE);
			CHECK_EQ(get_be32(p + 12), SCSI_COPY_SEGMENT_MAX);
			break;
		case 0x0008:
			CHECK_EQ(p[4], 2);
			break;
		default:
			CHECK_EQ(get_be16(p), 0x000c);
			break;
		}
		seen++;
	}
	CHECK_EQ(seen, 5);
	rig_close(r);
}
