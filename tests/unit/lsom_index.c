/* An index page: versions of slots, packed, folded and merged. */
#include "tests/lib/test.h"

#include "lsom/lsom_int.h"

#include <stdlib.h>

#define OPERANDS 6u

/* What each slot is to be: the largest version, the later one on a tie. */
struct model {
	struct lsom__entry e[LSOM__PAGE_SLOTS];
};

static uint64_t seed = 1;

static uint64_t random_below(uint64_t n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (seed >> 33) % n;
}

static bool older(const struct lsom__entry *a, const struct lsom__entry *b)
{
	return a->member_csn != b->member_csn ? a->member_csn < b->member_csn
					      : a->lsn < b->lsn;
}

/* Some runs of slots of some versions, into @slots, @bits and the model. */
static void change(struct lsom__slots *slots, uint32_t *bits, struct model *m,
		   uint64_t epochs)
{
	uint32_t crcs[8];

	for (unsigned k = 0; k < 20; k++) {
		unsigned n = 1 + (unsigned)random_below(8);
		unsigned at = (unsigned)random_below(LSOM__PAGE_SLOTS - n);
		struct lsom__entry e = {
			.member_csn = random_below(3),
			.lsn = LSN(1 + random_below(epochs),
				   random_below(4) << 31 | 1),
			.place = random_below(1000000),
			.kind = (uint8_t)random_below(3),
		};

		for (unsigned i = 0; i < n; i++)
			crcs[i] = (uint32_t)random_below(UINT32_MAX);
		CHECK_EQ(lsom__slots_set(slots, at, n, &e, crcs), 0);
		for (unsigned i = 0; i < n; i++, e.place++) {
			e.crc = e.kind == LSOM__E_RAW ? crcs[i] : 0;
			lsom__bit_set(bits, at + i);
			m->e[at + i] = e;
			if (e.kind != LSOM__E_RAW)
				e.place--;
		}
	}
}

static struct kv_slice operand(struct model *m, uint64_t epochs)
{
	uint32_t bits[LSOM__PAGE_SLOTS / 32] = { 0 };
	struct model mine = { 0 };
	struct lsom__slots slots;
	struct kv_slice out;
	size_t len;

	lsom__slots_init(&slots);
	change(&slots, bits, &mine, epochs);
	out.data = lsom__slots_encode(&slots, bits, &len);
	out.len = len;
	CHECK(out.data != NULL);
	lsom__slots_fini(&slots);
	for (unsigned i = 0; i < LSOM__PAGE_SLOTS; i++)
		if (lsom__bit(bits, i) && !older(&mine.e[i], &m->e[i]))
			m->e[i] = mine.e[i];
	return out;
}

static void check(struct kv_slice value, const struct model *m)
{
	struct lsom__entry got, now = { 0 };
	struct lsom__slots slots;
	unsigned n, slot;

	lsom__slots_init(&slots);
	CHECK_EQ(lsom__slots_decode(value.data, value.len, &slots, NULL), 0);
	for (unsigned i = 0; i < LSOM__PAGE_SLOTS; i++) {
		lsom__slots_get(&slots, i, &got);
		CHECK_EQ(got.member_csn, m->e[i].member_csn);
		CHECK_EQ(got.lsn, m->e[i].lsn);
		CHECK_EQ(got.place, m->e[i].place);
		CHECK_EQ(got.crc, m->e[i].crc);
		CHECK_EQ(got.kind, m->e[i].kind);
		CHECK_EQ(lsom__slot_kind(&slots.slot[i]), got.kind);
		CHECK_EQ(lsom__slot_place(&slots.slot[i]), got.place);
	}
	/* As of one version, from any slot on. */
	now.member_csn = random_below(4);
	now.lsn = LSN(1 + random_below(3), random_below(5) << 31 | 1);
	slot = (unsigned)random_below(LSOM__PAGE_SLOTS);
	for (n = 0; slot + n < LSOM__PAGE_SLOTS; n++)
		if (m->e[slot + n].lsn != 0 && !older(&m->e[slot + n], &now))
			break;
	CHECK_EQ(lsom__slots_older(&slots, slot, LSOM__PAGE_SLOTS - slot, &now),
		 n);
	lsom__slots_fini(&slots);
}

/*
 * Behind a header come epochs, then slots: each epoch is one of a slot.  Of version 2
 * there is a bitmap more between them.
 */
static void check_epochs(struct kv_slice value)
{
	const uint8_t *p = value.data, *end = p + value.len;
	bool used[2 * LSOM__PAGE_SLOTS] = { false };
	struct lsom__slot slot;
	uint16_t epochs;

	memcpy(&epochs, p + 2, sizeof(epochs));
	CHECK(epochs <= LSOM__PAGE_SLOTS);
	p += p[0] == 2 ? 36 + 32 : 36;
	for (p += epochs * 16u; p < end; p += sizeof(slot)) {
		memcpy(&slot, p, sizeof(slot));
		used[slot.bits >> LSOM__SLOT_EPOCH_BIT & 511] = true;
	}
	for (unsigned i = 0; i < epochs; i++)
		CHECK(used[i]);
}

static struct kv_slice merge(struct kv_slice old, const struct kv_slice *ops,
			     size_t count)
{
	struct kv_slice out;
	size_t len;

	out.data = lsom__merge(kv_slice("P", 1), old, ops, count, &len);
	out.len = len;
	CHECK(out.data != NULL);
	check_epochs(out);
	return out;
}

/* With few epochs versions tie; with many the table of a page is compacted. */
TEST(lsom_index, merges_by_version)
{
	const struct kv_slice none = { 0 };

	for (unsigned round = 0; round < 200; round++) {
		struct kv_slice ops[OPERANDS], all, half, last;
		struct model m = { 0 };

		for (unsigned i = 0; i < OPERANDS; i++)
			ops[i] = operand(&m, round % 2 ? 3 : 1000);
		all = merge(none, ops, OPERANDS);
		check(all, &m);
		half = merge(none, ops, OPERANDS / 2);
		last = merge(half, ops + OPERANDS / 2, OPERANDS - OPERANDS / 2);
		check(last, &m);
		for (unsigned i = 0; i < OPERANDS; i++)
			free((void *)(uintptr_t)ops[i].data);
		free((void *)(uintptr_t)all.data);
		free((void *)(uintptr_t)half.data);
		free((void *)(uintptr_t)last.data);
	}
}

/* @bits of a page that one UNMAP emptied, but for @data blocks in its middle. */
static struct kv_slice emptied(const uint32_t *bits, unsigned data,
			       struct model *m)
{
	const unsigned at = LSOM__PAGE_SLOTS / 2;
	const struct lsom__entry hole = { .member_csn = 1,
					  .lsn = LSN(2, 9),
					  .place = 77,
					  .kind = LSOM__E_HOLE };
	struct lsom__entry e = { .member_csn = 1,
				 .lsn = LSN(2, 10),
				 .place = 4000,
				 .crc = 5,
				 .kind = LSOM__E_RAW };
	struct lsom__slots slots;
	struct kv_slice out;

	lsom__slots_init(&slots);
	CHECK_EQ(lsom__slots_set(&slots, 0, LSOM__PAGE_SLOTS, &hole, NULL), 0);
	for (unsigned i = 0; i < LSOM__PAGE_SLOTS; i++)
		m->e[i] = lsom__bit(bits, i) ? hole : (struct lsom__entry){ 0 };
	for (unsigned i = at; i < at + data; i++, e.place++) {
		CHECK_EQ(lsom__slots_set(&slots, i, 1, &e, NULL), 0);
		if (lsom__bit(bits, i))
			m->e[i] = e;
	}
	out.data = lsom__slots_encode(&slots, bits, &out.len);
	CHECK(out.data != NULL);
	lsom__slots_fini(&slots);
	check(out, m);
	return out;
}

/* A hole takes one slot of the store, however much of a page it is. */
TEST(lsom_index, holes_are_stored_once)
{
	const unsigned whole = 36 + 32 + 16 + 16;
	uint32_t bits[LSOM__PAGE_SLOTS / 32] = { 0 };
	struct kv_slice v;
	struct model m;

	lsom__bits_set(bits, 0, LSOM__PAGE_SLOTS);
	v = emptied(bits, 0, &m);
	CHECK_EQ(v.len, whole);
	free((void *)(uintptr_t)v.data);
	v = emptied(bits, 1, &m); /* and what follows that one */
	CHECK_EQ(v.len, whole + 2 * 16);
	free((void *)(uintptr_t)v.data);
	v = emptied(bits, LSOM__PAGE_SLOTS / 2, &m);
	CHECK_EQ(v.len, whole + LSOM__PAGE_SLOTS / 2 * 16);
	free((void *)(uintptr_t)v.data);
	/* Also of what was changed only; where it saves nothing as ever. */
	memset(bits, 0, sizeof(bits));
	lsom__bits_set(bits, 30, 4);
	v = emptied(bits, 0, &m);
	CHECK_EQ(v.len, whole);
	free((void *)(uintptr_t)v.data);
	memset(bits, 0, sizeof(bits));
	lsom__bits_set(bits, 30, 3);
	v = emptied(bits, 0, &m);
	CHECK_EQ(v.len, 36 + 16 + 3 * 16);
	CHECK_EQ(*(const uint8_t *)v.data, 1);
	free((void *)(uintptr_t)v.data);
}

static int decoded(const uint8_t *value, size_t len)
{
	struct lsom__slots slots;
	int rv;

	lsom__slots_init(&slots);
	rv = lsom__slots_decode(value, len, &slots, NULL);
	lsom__slots_fini(&slots);
	return rv;
}

TEST(lsom_index, what_is_no_value)
{
	uint32_t bits[LSOM__PAGE_SLOTS / 32] = { 0 };
	struct kv_slice v;
	struct model m;
	uint8_t *p;

	lsom__bits_set(bits, 1, LSOM__PAGE_SLOTS - 1);
	v = emptied(bits, 0, &m);
	p = (uint8_t *)(uintptr_t)v.data;
	for (size_t len = 0; len < v.len; len++)
		CHECK_EQ(decoded(p, len), -EUCLEAN);
	CHECK_EQ(decoded(p, v.len), 0);
	p[0] = 3; /* a later version */
	CHECK_EQ(decoded(p, v.len), -EUCLEAN);
	p[0] = 1; /* an earlier one, of as many slots */
	CHECK_EQ(decoded(p, v.len), -EUCLEAN);
	p[0] = 2;
	p[36] ^= 1; /* the first is not there: as which one is it? */
	CHECK_EQ(decoded(p, v.len), -EUCLEAN);
	p[4] ^= 1; /* it is there, and as the one before it */
	CHECK_EQ(decoded(p, v.len), -EUCLEAN);
	p[36] ^= 1;
	p[4] ^= 1;
	p[36 + 32 + 16 + 5] |= 0xf0; /* an epoch that it has not */
	CHECK_EQ(decoded(p, v.len), -EUCLEAN);
	free((void *)(uintptr_t)v.data);
}
