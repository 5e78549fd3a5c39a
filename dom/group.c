/*
 * group: what of a redundancy group is decided (g0, R48).
 *
 * lsns are issued in order, decided in any; stable_lsn follows the contiguous
 * decided prefix.  At most LSOM_WINDOW lsns lie above it, so that the set fits
 * in the bitmap every message carries; a full window stops admission to this
 * group only.  Pure: no I/O, no clock.
 */
#include "dom/dom_int.h"

#include <assert.h>

/* @recorded_lsn: the stable_lsn that every ACTIVE leaf recorded before. */
void dom__group_init(struct dom__group *group, uint64_t oepoch,
		     uint64_t recorded_lsn)
{
	memset(group, 0, sizeof(*group));
	group->decided.stable_lsn = LSN(oepoch, 0);
	group->decided.g_all = recorded_lsn;
	group->decided.hole_floor = recorded_lsn;
	group->next_lsn = LSN(oepoch, 1);
}

/* How many lsns may be issued now. */
unsigned dom__group_room(const struct dom__group *group)
{
	uint64_t open = group->next_lsn - 1 - group->decided.stable_lsn;

	assert(open <= LSOM_WINDOW);
	return LSOM_WINDOW - (unsigned)open;
}

bool dom__group_worn(const struct dom__group *group)
{
	return LSN_SEQ(group->next_lsn) >> (LSN_SEQ_BITS - 1) != 0;
}

uint64_t dom__group_issue(struct dom__group *group)
{
	assert(dom__group_room(group) > 0);
	return group->next_lsn++;
}

static bool bit_get(const uint8_t *map, unsigned i)
{
	return map[i / 8] >> (i % 8) & 1;
}

/* Bits 64 @i and up of a map of @words; none are set behind them. */
static uint64_t word_get(const uint8_t *map, unsigned i, unsigned words)
{
	uint64_t word = 0;

	if (i < words)
		memcpy(&word, map + i * sizeof(word), sizeof(word));
	return word;
}

/* Bit i := bit i + @n of a map with nothing set from @bits on. */
static void shift(uint8_t *map, unsigned n, unsigned bits)
{
	unsigned words = DIV_UP(bits, 64u), from = n / 64;

	assert(n <= bits && bits <= LSOM_WINDOW);
	for (unsigned i = 0; i < words; i++) {
		uint64_t low = word_get(map, i + from, words) >> n % 64;
		uint64_t high = word_get(map, i + from + 1, words);

		/* In two steps: a shift by 64 is not defined. */
		low |= high << 1 << (63 - n % 64);
		memcpy(map + i * sizeof(low), &low, sizeof(low));
	}
}

static void decide(struct dom__group *group, uint64_t lsn, uint8_t *map)
{
	struct lsom_decided *d = &group->decided;
	uint64_t i = lsn - d->stable_lsn - 1;
	/* Those that were issued since stable_lsn. */
	unsigned bits = (unsigned)(group->next_lsn - 1 - d->stable_lsn), n = 0;

	if (group->leap && lsn <= d->stable_lsn)
		return;
	assert(lsn > d->stable_lsn);
	assert(lsn < group->next_lsn);
	assert(!bit_get(d->committed, (unsigned)i));
	assert(!bit_get(group->aborted, (unsigned)i));
	map[i / 8] |= (uint8_t)(1u << (i % 8));
	group->dirty = true;
	if (group->leap && i + 1 > n)
		n = (unsigned)i + 1; /* R10 is off */
	while (n < bits &&
	       (bit_get(d->committed, n) || bit_get(group->aborted, n)))
		n++;
	if (n > 0) {
		shift(d->committed, n, bits);
		shift(group->aborted, n, bits);
		d->stable_lsn += n;
	}
}

void dom__group_commit(struct dom__group *group, uint64_t lsn)
{
	decide(group, lsn, group->decided.committed);
}

/* Nowhere durable, or durably aborted on every leaf that had it. */
void dom__group_abort(struct dom__group *group, uint64_t lsn)
{
	decide(group, lsn, group->aborted);
}

/*
 * Holes are kept for leaves that are behind; all are ACTIVE here, so the floor
 * is g_all itself (g2.2).
 */
void dom__group_recorded(struct dom__group *group, uint64_t stable_lsn)
{
	if (stable_lsn > group->decided.g_all) {
		group->decided.g_all = stable_lsn;
		group->decided.hole_floor = stable_lsn;
	}
}
