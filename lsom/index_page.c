/*
 * index_page: the 256 entries of a page, packed, and their form in the store.
 *
 * Pure functions.  An entry takes 16 bytes, because its version is an index
 * into the page's table of (member_csn, oepoch) and the sequence number.  In
 * the store a page and a merge operand have one form, a list of slots: a whole
 * page has many of them, an operand those that changed.  Slots of one hole are all
 * alike, and where that makes the list shorter it has the first of them only.
 * Folding an operand lets the larger version win and a later record on ties, so it
 * gives the same page as the changes gave in memory, also over partial folds.
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
#define WORDS (LSOM__PAGE_SLOTS / 32)

enum { VALUE_ALL = 1, VALUE_ALIKE = 2 };

/* Then, if VALUE_ALIKE, WORDS more; then epochs; then slots. */
struct value_header {
	uint8_t version;
	uint8_t reserved;
	uint16_t epochs;
	uint32_t bits[WORDS];
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

/*
 * Those of @bits that are not empty go into @h, and into @alike those of them that
 * are as the one before.  How many are to be stored.
 */
static unsigned slots_pick(const struct lsom__slots *slots,
			   const uint32_t *bits, struct value_header *h,
			   uint32_t *alike)
{
	const struct lsom__slot *s, *before = NULL;
	unsigned w, n = 0, same = 0;
	uint32_t rest, bit;

	for (w = 0; w < WORDS; w++)
		for (rest = bits[w]; rest != 0; rest &= rest - 1) {
			s = &slots->slot[w * 32 +
					 (unsigned)__builtin_ctz(rest)];
			bit = rest & -rest;
			if (s->bits == 0)
				continue;
			h->bits[w] |= bit;
			n++;
			if (before != NULL &&
			    memcmp(s, before, sizeof(*s)) == 0) {
				alike[w] |= bit;
				same++;
			}
			before = s;
		}
	h->version = VALUE_ALIKE;
	if (same * sizeof(*s) > WORDS * sizeof(*alike))
		return n - same;
	h->version = VALUE_ALL;
	memset(alike, 0, WORDS * sizeof(*alike));
	return n;
}

void *lsom__slots_encode(const struct lsom__slots *slots, const uint32_t *bits,
			 size_t *out_len)
{
	struct value_header h = { .epochs = (uint16_t)slots->epochs_count };
	const size_t epochs = h.epochs * sizeof(*slots->epochs);
	uint32_t alike[WORDS] = { 0 }, rest;
	const unsigned n = slots_pick(slots, bits, &h, alike);
	const size_t more = h.version == VALUE_ALIKE ? sizeof(alike) : 0;
	const size_t len =
		sizeof(h) + more + epochs + n * sizeof(struct lsom__slot);
	uint8_t *buf = malloc(len), *p = buf;
	unsigned w;

	if (buf == NULL)
		return NULL;
	memcpy(p, &h, sizeof(h));
	p += sizeof(h);
	memcpy(p, alike, more);
	p += more;
	if (epochs > 0)
		memcpy(p, slots->epochs, epochs);
	p += epochs;
	for (w = 0; w < WORDS; w++) {
		const struct lsom__slot *slot = &slots->slot[w * 32];

		for (rest = h.bits[w] & ~alike[w]; rest != 0;
		     rest &= rest - 1) {
			memcpy(p, &slot[__builtin_ctz(rest)], sizeof(*slot));
			p += sizeof(*slot);
		}
	}
	assert(p == buf + len);
	*out_len = len;
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

/* The header of @value, and @alike: behind them, or NULL: it is none. */
static const uint8_t *value_take(const void *value, size_t len,
				 struct value_header *h, uint32_t *alike)
{
	const uint8_t *p = value;
	size_t more = 0, count = 0;
	unsigned w;

	if (len < sizeof(*h))
		return NULL;
	memcpy(h, p, sizeof(*h));
	p += sizeof(*h);
	if (h->version == VALUE_ALIKE)
		more = WORDS * sizeof(*alike);
	else if (h->version != VALUE_ALL)
		return NULL;
	if (len < sizeof(*h) + more)
		return NULL;
	memset(alike, 0, WORDS * sizeof(*alike));
	memcpy(alike, p, more);
	for (w = 0; w < WORDS; w++) {
		if ((alike[w] & ~h->bits[w]) != 0)
			return NULL;
		count += (size_t)__builtin_popcount(h->bits[w] & ~alike[w]);
	}
	if (len != sizeof(*h) + more + h->epochs * sizeof(struct lsom__epoch) +
			   count * sizeof(struct lsom__slot))
		return NULL;
	return p + more;
}

/* The epochs of a value, and which of @slots the last one asked for is. */
struct value_epochs {
	const uint8_t *epochs;
	unsigned count, last;
	int mine;
};

/* A slot of a value becomes one of @slots.  0, -EUCLEAN, -ENOMEM. */
static int slot_take(struct lsom__slots *slots, struct value_epochs *v,
		     struct lsom__slot *s)
{
	unsigned epoch = SLOT_EPOCH(s);
	struct lsom__epoch e;

	/* As lsom__slots_set() makes them: so none is 0 once it has its epoch. */
	if (epoch >= v->count || lsom__slot_kind(s) > LSOM__E_HOLE ||
	    (s->bits >> PLACE_BITS & 15) != UNITS - 1 ||
	    (s->bits & PLACE_MASK) % UNITS != 0)
		return -EUCLEAN;
	if (epoch != v->last) {
		memcpy(&e, v->epochs + epoch * sizeof(e), sizeof(e));
		v->mine = epoch_find(slots, e.member_csn, e.oepoch);
		if (v->mine < 0)
			return v->mine;
		v->last = epoch;
	}
	s->bits = (s->bits & ~EPOCH_MASK) | (uint64_t)v->mine << EPOCH_BIT;
	return 0;
}

int lsom__slots_decode(const void *value, size_t len, struct lsom__slots *slots,
		       uint32_t *bits)
{
	struct value_epochs v = { .last = EPOCHS_MAX };
	struct lsom__slot s = { 0 }, *slot;
	uint32_t alike[WORDS], rest;
	struct value_header h;
	const uint8_t *p;
	unsigned w;
	int rv = 0;

	v.epochs = value_take(value, len, &h, alike);
	if (v.epochs == NULL)
		return -EUCLEAN;
	v.count = h.epochs;
	p = v.epochs + h.epochs * sizeof(struct lsom__epoch);
	for (w = 0; w < WORDS; w++) {
		for (rest = h.bits[w]; rest != 0; rest &= rest - 1) {
			slot = &slots->slot[w * 32 +
					    (unsigned)__builtin_ctz(rest)];
			if ((alike[w] & rest & -rest) == 0) {
				memcpy(&s, p, sizeof(s));
				p += sizeof(s);
				rv = slot_take(slots, &v, &s);
			} else if (s.bits == 0) {
				rv = -EUCLEAN; /* the first is as no other */
			}
			if (rv < 0)
				return rv;
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
	uint32_t bits[WORDS] = { 0 };
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
