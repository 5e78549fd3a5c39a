/*
 * cutdisk: what a disk and its index may hold when the power goes.
 *
 * Walks an I/O record event by event.  What is durable by then is in an image
 * and a table; the writes that are not are "at risk": a power cut keeps, tears
 * or loses each by itself, in units of 512 bytes.  The index's store has no log
 * of its own, so after a cut it is as after some batch, from the last one a
 * completed flush covers to the last one it was given.
 */
#ifndef BASALT_TESTS_CUTDISK_H
#define BASALT_TESTS_CUTDISK_H

#include "tests/lib/iorecord.h"
#include "tests/lib/memenv.h"
#include "tests/lib/pattern.h"

#define CUT_RISK_MAX 64u /* writes that are varied */
#define CUT_WRITE_BLOCKS_MAX 1024u /* of one write */
#define CUT_BATCHES_MAX 8u /* of the index, not yet flushed */

enum cut_keep {
	CUT_NONE,
	CUT_ALL,
	CUT_HEAD, /* its first @arg sectors */
	CUT_RANDOM, /* random sectors */
	/* All but a part of its header: see cut_header(). */
	CUT_HEADER_HEAD, /* of which @arg sectors stay */
	CUT_HEADER_WITHOUT, /* which loses sector @arg */
	CUT_HEADER_RANDOM, /* which loses random ones */
};

struct cut_write {
	size_t event;
	enum cut_keep keep;
	uint32_t arg;
	/* Blocks of it that a later write, durable by now, lies on. */
	uint8_t dead[CUT_WRITE_BLOCKS_MAX / 8];
};

struct cut_disk {
	struct io_record record;
	struct memenv me; /* its device holds the state */
	struct cut_write risk[CUT_RISK_MAX]; /* in order of submission */
	unsigned risk_count;
	/* private */
	int fd;
	uint8_t *image;
	uint64_t image_bytes;
	struct kv *base; /* the index at the start of the record */
	struct kv *index[CUT_BATCHES_MAX + 1]; /* durable, then each batch */
	size_t batch[CUT_BATCHES_MAX];
	unsigned batches_count;
	kv_merge_fn merge;
};

/*
 * The disk of @image_path and the index (a RocksDB store that is opened) of
 * @index_path, from which on @record was made.  0 or -errno.
 */
int cut_open(const char *image_path, const char *index_path,
	     const char *record_path, kv_merge_fn merge, bool ignore_durable,
	     struct cut_disk *cut);
void cut_close(struct cut_disk *cut);

void cut_rewind(struct cut_disk *cut);

/* Event @i happens; they come in order.  0, -ERANGE or -EPROTO. */
int cut_event(struct cut_disk *cut, size_t i);

/* In which ways the index may have survived: at least one. */
static inline unsigned cut_indexes(const struct cut_disk *cut)
{
	return cut->batches_count + 1;
}

/* Was the write at risk @k not yet completed at event @i? */
static inline bool cut_in_flight(const struct cut_disk *cut, unsigned k,
				 size_t i)
{
	return cut->record.events[cut->risk[k].event].done_at > i;
}

static inline uint64_t cut_sectors(const struct cut_disk *cut, unsigned k)
{
	return cut->record.events[cut->risk[k].event].len / SECTOR;
}

/*
 * The sectors [*@first, *@end) of the write at risk @k that hold its batch
 * header, up to the last one that is not zeros; none if it is no batch.
 */
void cut_header(const struct cut_disk *cut, unsigned k, uint32_t *first,
		uint32_t *end);

void cut_keep_all_as(struct cut_disk *cut, enum cut_keep keep);

/* Put the state that risk[].keep describes into cut->me, @salt for its dice. */
void cut_make(struct cut_disk *cut, unsigned index, uint64_t salt);

#endif
