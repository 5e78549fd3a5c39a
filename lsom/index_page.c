/*
 * index_page: the 256 entries of a page, packed, and their form in the store.
 *
 * Pure functions.  An entry takes 16 bytes, because its version is an index
 * into the page's table of (member_csn, oepoch) and the sequence number.  In
 * the store a page and a merge operand have one form, a list of slots: a whole
 * page has many of them, an operand those that changed.  Folding an operand
 * lets the larger version win and a later record on ties, so it gives the same
 * page as the changes gave in memory, also over partial folds.
 */
#include "lsom/lsom_int.h"

#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

#define EPOCHS_MAX 4096u /* 12 bits */
#define PLACE_BITS LSOM__SLOT_PLACE_BITS
#define PLACE_MASK ((1ull << PLACE_BITS) - 1)
#define UNITS LSOM__SLOT_UNITS
#define KIND_BIT LSOM__SLOT_KIND_BIT
#define EPOCH_BIT LSOM__SLOT_EPOCH_BIT
#define EPOCH_MASK ((uint64_t)(EPOCHS_MAX - 1) << EPOCH_BIT)
#define SLOT_EPOCH(s) ((unsigned)((s)->bits >> EPOCH_BIT & (EPOCHS_MAX - 1)))
#define SLOT_SEQ(s) ((s)->bits >> 56 << 32 | (s)->seq_low)
#define VALUE_VERSION 1u

struct value_header {
	uint8_t version;
	uint8_t reserved;
	uint16_t epochs;
	uint32_t bits[LSOM__PAGE_SLOTS / 32];
};
static_assert(sizeof(struct value_header) == 36, "page value: no padding");

void lsom__slots_init(struct lsom__slots *slots)
{
	memset(slots, 0, sizeof(*slots));
}

void lsom__slots_fini(struct lsom__slots *slots)
{
	free(slots->epochs);
	slots->epochs = NULL;
}

void lsom__slots_get(const struct lsom__slots *slots, unsigned slot,
		     struct lsom__entry *out)
{
	const struct lsom__slot *s = &slots->slot[slot];
	unsigned epoch = SLOT_EPOCH(s);

	if (s->bits == 0) {
		*out = (struct lsom__entry){ 0 };
		return;
	}
	assert(epoch < slots->epochs_count);
	*out = (struct lsom__entry){
		.place = lsom__slot_place(s),
		/* Kind 0 is an empty slot that remembers its version. */
		.kind = (uint8_t)lsom__slot_kind(s),
		.crc = s->crc,
		.member_csn = slots->epochs[epoch].member_csn,
		.lsn = LSN(slots->epochs[epoch].oepoch, SLOT_SEQ(s)),
	};
}

/* Slots of @epoch with a sequence number below this one are older than @entry. */
static uint64_t older_below(const struct lsom__slots *slots, unsigned epoch,
			    const struct lsom__entry *entry)
{
	const struct lsom__epoch *e = &slots->epochs[epoch];

	assert(epoch < slots->epochs_count);
	if (e->member_csn != entry->member_csn)
		return e->member_csn < entry->member_csn ? UINT64_MAX : 0;
	if (e->oepoch != LSN_OEPOCH(entry->lsn))
		return e->oepoch < LSN_OEPOCH(entry->lsn) ? UINT64_MAX : 0;
	return LSN_SEQ(entry->lsn);
}

unsigned lsom__slots_older(const struct lsom__slots *slots, unsigned slot,
			   unsigned count, const struct lsom__entry *entry)
{
	const struct lsom__slot *s = &slots->slot[slot];
	unsigned epoch = EPOCHS_MAX, n;
	uint64_t below = 0; /* of @epoch, which mostly is the next one's too */

	assert(slot + count <= LSOM__PAGE_SLOTS);
	for (n = 0; n < count; n++, s++) {
		if (s->bits == 0)
			continue;
		if (SLOT_EPOCH(s) != epoch) {
			epoch = SLOT_EPOCH(s);
			below = older_below(slots, epoch, entry);
		}
		if (SLOT_SEQ(s) >= below)
			break;
	}
	return n;
}

/* Throw out epochs that no slot uses. */
static void epochs_compact(struct lsom__slots *slots)
{
	const unsigned count = slots->epochs_count;
	uint16_t map[EPOCHS_MAX];
	bool used[EPOCHS_MAX];
	unsigned i, from, left = count, n = 0;

	memset(used, 0, count * sizeof(*used));
	for (i = 0; i < LSOM__PAGE_SLOTS && left > 0; i++) {
		from = SLOT_EPOCH(&slots->slot[i]);
		if (slots->slot[i].bits == 0 || used[from])
			continue;
		used[from] = true;
		left--;
	}
	if (left == 0)
		return; /* mostly: there is one */
	for (i = 0; i < count; i++) {
		if (!used[i])
			continue;
		map[i] = (uint16_t)n;
		slots->epochs[n++] = slots->epochs[i];
	}
	slots->epochs_count = n;
	for (i = 0; i < LSOM__PAGE_SLOTS; i++) {
		if (slots->slot[i].bits == 0)
			continue;
		from = SLOT_EPOCH(&slots->slot[i]);
		slots->slot[i].bits &= ~EPOCH_MASK;
		slots->slot[i].bits |= (uint64_t)map[from] << EPOCH_BIT;
	}
}

int lsom__slots_room(struct lsom__slots *slots, unsigned epochs)
{
	unsigned need = slots->epochs_count + epochs, room;
	struct lsom__epoch *e;

	if (need <= slots->epochs_room)
		return 0;
	room = MAX(MAX(2u, need), slots->epochs_room * 2);
	e = realloc(slots->epochs, room * sizeof(*e));
	if (e == NULL)
		return -ENOMEM;
	slots->epochs = e;
	slots->epochs_room = room;
	return 0;
}

static int epoch_find(struct lsom__slots *slots, uint64_t member_csn,
		      uint32_t oepoch)
{
	unsigned i;

	/* The newest is the likely one. */
	for (i = slots->epochs_count; i-- > 0;)
		if (slots->epochs[i].member_csn == member_csn &&
		    slots->epochs[i].oepoch == oepoch)
			return (int)i;
	if (slots->epochs_count >= 2 * LSOM__PAGE_SLOTS)
		epochs_compact(slots);
	if (lsom__slots_room(slots, 1) < 0)
		return -ENOMEM;
	slots->epochs[slots->epochs_count] = (struct lsom__epoch){
		.member_csn = member_csn,
		.oepoch = oepoch,
	};
	return (int)slots->epochs_count++;
}

int lsom__slots_set(struct lsom__slots *slots, unsigned slot, unsigned count,
		    const struct lsom__entry *entry, const uint32_t *crcs)
{
	uint64_t seq = LSN_SEQ(entry->lsn);
	const bool raw = entry->kind == LSOM__E_RAW;
	const uint64_t step = raw ? UNITS : 0;
	const unsigned crc_step = raw && crcs != NULL;
	const uint32_t *crc = crc_step ? crcs : &entry->crc;
	int epoch =
		epoch_find(slots, entry->member_csn, LSN_OEPOCH(entry->lsn));
	struct lsom__slot s;

	if (epoch < 0)
		return epoch;
	assert(slot + count <= LSOM__PAGE_SLOTS);
	assert((entry->place + count - 1) * UNITS <= PLACE_MASK);
	s.bits = entry->place * UNITS | (uint64_t)(UNITS - 1) << PLACE_BITS |
		 (uint64_t)entry->kind << KIND_BIT |
		 (uint64_t)epoch << EPOCH_BIT | (seq >> 32) << 56;
	s.seq_low = (uint32_t)seq;
	for (unsigned i = 0; i < count; i++, s.bits += step, crc += crc_step) {
		s.crc = *crc;
		slots->slot[slot + i] = s;
	}
	return 0;
}

int lsom__version_compare(const struct lsom__entry *a,
			  const struct lsom__entry *b)
{
	if (a->member_csn != b->member_csn)
		return a->member_csn < b->member_csn ? -1 : 1;
	return a->lsn < b->lsn ? -1 : a->lsn > b->lsn;
}

void *lsom__slots_encode(const struct lsom__slots *slots, const uint32_t *bits,
			 size_t *out_len)
{
	struct value_header h = { .version = VALUE_VERSION };
	size_t max = sizeof(h), epochs;
	uint8_t *buf, *p;
	unsigned w;

	h.epochs = (uint16_t)slots->epochs_count;
	epochs = h.epochs * sizeof(*slots->epochs);
	max += epochs;
	for (w = 0; w < ARRAY_LEN(h.bits); w++)
		max += (size_t)__builtin_popcount(bits[w]) *
		       sizeof(struct lsom__slot);
	buf = malloc(max);
	if (buf == NULL)
		return NULL;
	p = buf + sizeof(h);
	if (epochs > 0)
		memcpy(p, slots->epochs, epochs);
	p += epochs;
	for (w = 0; w < ARRAY_LEN(h.bits); w++) {
		const struct lsom__slot *slot = &slots->slot[w * 32];
		uint32_t rest = bits[w], empty = 0;

		for (; rest != 0; rest &= rest - 1) {
			const struct lsom__slot *s = &slot[__builtin_ctz(rest)];

			if (s->bits == 0) {
				empty |= rest & -rest;
				continue;
			}
			memcpy(p, s, sizeof(*s));
			p += sizeof(*s);
		}
		h.bits[w] = bits[w] & ~empty;
	}
	memcpy(buf, &h, sizeof(h));
	*out_len = (size_t)(p - buf);
	return buf;
}

/* Is the version of @a smaller?  Both with epochs of @slots. */
static bool slot_older(const struct lsom__slots *slots,
		       const struct lsom__slot *a, const struct lsom__slot *b)
{
	const struct lsom__epoch *x = &slots->epochs[SLOT_EPOCH(a)];
	const struct lsom__epoch *y = &slots->epochs[SLOT_EPOCH(b)];

	if (x->member_csn != y->member_csn)
		return x->member_csn < y->member_csn;
	if (x->oepoch != y->oepoch)
		return x->oepoch < y->oepoch;
	return SLOT_SEQ(a) < SLOT_SEQ(b);
}

int lsom__slots_decode(const void *value, size_t len, struct lsom__slots *slots,
		       uint32_t *bits)
{
	const uint8_t *p = value, *epochs;
	struct value_header h;
	struct lsom__epoch e;
	struct lsom__slot s, *slot;
	size_t count = 0;
	unsigned w, epoch, last = EPOCHS_MAX;
	uint32_t rest;
	int mine = 0; /* what its last epoch is in @slots */

	if (len < sizeof(h))
		return -EUCLEAN;
	memcpy(&h, p, sizeof(h));
	for (w = 0; w < ARRAY_LEN(h.bits); w++)
		count += (size_t)__builtin_popcount(h.bits[w]);
	if (h.version != VALUE_VERSION ||
	    len != sizeof(h) + h.epochs * sizeof(e) + count * sizeof(s))
		return -EUCLEAN;
	epochs = p + sizeof(h);
	p = epochs + h.epochs * sizeof(e);
	for (w = 0; w < ARRAY_LEN(h.bits); w++) {
		for (rest = h.bits[w]; rest != 0; rest &= rest - 1) {
			slot = &slots->slot[w * 32 +
					    (unsigned)__builtin_ctz(rest)];
			memcpy(&s, p, sizeof(s));
			p += sizeof(s);
			epoch = SLOT_EPOCH(&s);
			if (epoch >= h.epochs || s.bits == 0 ||
			    lsom__slot_kind(&s) > LSOM__E_HOLE)
				return -EUCLEAN;
			if (epoch != last) {
				memcpy(&e, epochs + epoch * sizeof(e),
				       sizeof(e));
				mine = epoch_find(slots, e.member_csn,
						  e.oepoch);
				if (mine < 0)
					return mine;
				last = epoch;
			}
			s.bits = (s.bits & ~EPOCH_MASK) | (uint64_t)mine
								  << EPOCH_BIT;
			/* The larger version wins; on a tie, the later record. */
			if (slot->bits == 0 || !slot_older(slots, &s, slot))
				*slot = s;
		}
		if (bits != NULL)
			bits[w] |= h.bits[w];
	}
	return 0;
}

void *lsom__merge(struct kv_slice key, struct kv_slice old,
		  const struct kv_slice *operands, size_t count,
		  size_t *out_len)
{
	uint32_t bits[LSOM__PAGE_SLOTS / 32] = { 0 };
	struct lsom__slots slots;
	void *out = NULL;
	int rv = 0;
	size_t i;

	(void)key;
	lsom__slots_init(&slots);
	if (old.data != NULL)
		rv = lsom__slots_decode(old.data, old.len, &slots, bits);
	for (i = 0; i < count && rv == 0; i++)
		rv = lsom__slots_decode(operands[i].data, operands[i].len,
					&slots, bits);
	if (rv == 0) {
		epochs_compact(&slots);
		out = lsom__slots_encode(&slots, bits, out_len);
		rv = out == NULL ? -ENOMEM : 0;
	}
	lsom__slots_fini(&slots);
	errno = -rv;
	return out;
}
