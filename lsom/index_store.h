/*
 * index_store: how the index lies in the store.  put.c and checkpoint.c write it,
 * index_load.c reads it.
 *
 * Keys, numbers big endian so that they sort:
 *	M			position
 *	S segment		lsom__segment as of the position
 *	H segment		what its header says, or said before it was erased
 *	C component		its state, and how much it has mapped
 *	B component chunk	which pages the store has
 *	P component page	slots
 *	U component lsn first	an undecided version
 *	T component		a tomb
 */
#ifndef BASALT_LSOM_INDEX_STORE_H
#define BASALT_LSOM_INDEX_STORE_H

#include "base/util.h"
#include "lsom/lsom_int.h"

#define POSITION_VERSION 1u
#define CHUNK_BYTES 512u
#define KEY_MAX 25u

struct stored_segment {
	uint64_t sequence, cleaned_number, last_batch;
	uint32_t live, used;
	uint8_t state, has_meta, has_holes, reserved[5];
} __attribute__((packed));

struct stored_comp {
	uint8_t deleted;
	uint8_t counted; /* enum lsom__count; earlier versions: 0 */
	uint8_t mapped[6]; /* blocks, big endian */
} __attribute__((packed)); /* then a state record */
static_assert(LSOM__COMP_BYTES_MAX / LSOM_BLOCK < 1ull << 48, "a count fits");

struct stored_prep {
	uint64_t place, pos;
} __attribute__((packed)); /* then a data record */

struct key {
	uint8_t b[KEY_MAX];
	unsigned len;
};

static inline struct kv_slice key_slice(const struct key *k)
{
	return kv_slice(k->b, k->len);
}

static inline struct key key_make(char tag, unsigned numbers, uint64_t a,
				  uint64_t b, uint64_t c)
{
	struct key k = { .len = 1 + 8 * numbers };

	k.b[0] = (uint8_t)tag;
	put_be64(k.b + 1, a);
	put_be64(k.b + 9, b);
	put_be64(k.b + 17, c);
	return k;
}

/* put.c: a batch that is put together. */
struct lsom__puts {
	struct lsom_disk *disk;
	struct kv_batch batch;
	uint64_t number; /* of the checkpoint */
	unsigned comps_left; /* that may be put in turns; UINT_MAX: all */
};
int lsom__put_pages(struct lsom__puts *puts, size_t max);
int lsom__put_segments(struct lsom__puts *puts, size_t max);
/*
 * Of puts->comps_left, until @max records are put.  Those that change again stay for
 * lsom__put_comps().
 */
int lsom__put_comps_some(struct lsom__puts *puts, size_t max);
/* All that is left, behind its pages. */
int lsom__put_comps(struct lsom__puts *puts);
int lsom__put_tombs(struct lsom__puts *puts);
/* Last of all.  Every batch before lsom__head_first() is in the tables. */
int lsom__put_position(struct lsom__puts *puts);
/* The first batch of the head that was not applied. */
uint64_t lsom__head_first(const struct lsom__head *head);

#endif
