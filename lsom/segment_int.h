/*
 * segment_int: what a segment is, and what the files that look after segments do:
 * reuse.c says which may be taken, segment.c takes, fills and closes them, erase.c
 * makes them free and trim.c gives what is free back to the device.
 */
#ifndef BASALT_LSOM_SEGMENT_INT_H
#define BASALT_LSOM_SEGMENT_INT_H

#include "base/env.h"
#include "lsom/format.h"

struct lsom_disk;

enum lsom__segment_state {
	LSOM__SEG_FREE, /* may be taken */
	LSOM__SEG_OPEN, /* a head appends to it */
	LSOM__SEG_CLOSING, /* full; batches or the summary in flight */
	LSOM__SEG_CLOSED,
	LSOM__SEG_CLEANED, /* nothing needed in it; waits for a flushed index */
};

struct lsom__segment {
	uint64_t sequence; /* 0: nothing of ours was ever in it */
	uint64_t generation, open_pos, index_number, first_batch;
	uint64_t last_batch;
	uint64_t cleaned_number; /* a checkpoint above this one frees it */
	uint32_t live; /* blocks the index or the table points to */
	uint32_t reads; /* references that bar reuse */
	uint32_t used; /* blocks appended */
	uint32_t headers; /* of these; of one from before an opening: 0 */
	uint32_t inflight; /* batches */
	uint32_t before; /* its head was in this one then; or LSOM__NONE */
	uint8_t state, head;
	uint8_t version; /* of what is in it */
	bool header_stored; /* the index has what its header says */
	bool has_meta; /* records other than data and commits */
	bool has_holes; /* their entries point into it */
	bool dirty; /* differs from the flushed table: on the list */
	bool erasing; /* cleaned, covered; its header is being replaced */
	bool cleaning; /* the cleaner is walking it: it stays as it is */
	bool unreadable; /* its header is gone, or a batch: not to be cleaned */
	bool listed; /* unclosed, or emptied or cleaned and not looked at */
	bool set_back; /* holds what it held earlier: nothing of it is read */
	bool trimmed; /* free, and given back to the device since it is */
	uint8_t unread; /* visits of the cleaner that a read ended */
	uint64_t retry_ns; /* the cleaner leaves it alone until then */
	/* while open: what the summary will say */
	uint8_t *frames;
	uint32_t frames_bytes, frames_room;
	TAILQ_ENTRY(lsom__segment) link; /* while @listed */
	TAILQ_ENTRY(lsom__segment) change; /* while @dirty */
	TAILQ_ENTRY(lsom__segment) age; /* while anything lies in it */
};
TAILQ_HEAD(lsom__segments, lsom__segment);

/* ---- reuse.c ---- */

/* It is the newest one from now on: its sequence and position. */
void lsom__segment_opened(struct lsom_disk *disk, struct lsom__segment *seg);
/*
 * The smallest open_pos of what lies on the disk, @except left out.  Free ones
 * count: what lies in them is there until overwritten, should the header that
 * says they are erased be lost.
 */
uint64_t lsom__segments_oldest(const struct lsom_disk *disk, uint32_t except);
/* When a disk was recovered: what its segments are by now. */
void lsom__segments_sort(struct lsom_disk *disk);
/* Free, some time, what is cleaned and covered by a flushed checkpoint. */
void lsom__segments_release(struct lsom_disk *disk);
/* If it is: it counts as cleaned with the next release. */
void lsom__segment_emptied(struct lsom_disk *disk, uint32_t segment);
/* Cleaned, and to be erased once it may. */
void lsom__cleaned_add(struct lsom_disk *disk, uint32_t segment);
void lsom__cleaned_remove(struct lsom_disk *disk, uint32_t segment);
void lsom__free_add(struct lsom_disk *disk, uint32_t segment);
/* The best one to write over: old contents, then ready, then low places. */
uint32_t lsom__free_take(struct lsom_disk *disk);
/* How many need no zeroing any more; it stops counting at @max. */
uint32_t lsom__free_zeroed(const struct lsom_disk *disk, uint32_t max);

/* ---- segment.c ---- */

/* The next checkpoint has to put it. */
void lsom__segment_changed(struct lsom_disk *disk, struct lsom__segment *seg);
/* The cleaner leaves it alone until then; UINT64_MAX: for ever. */
void lsom__segment_shun(struct lsom_disk *disk, struct lsom__segment *seg,
			uint64_t until_ns);
/* Take a free segment for @head, or LSOM__NONE. */
uint32_t lsom__segment_take(struct lsom_disk *disk, uint16_t head);
/* So many blocks of it are needed more, or less; LSOM__NONE is ignored. */
void lsom__segment_count(struct lsom_disk *disk, uint32_t segment,
			 int64_t blocks);
void lsom__segment_read_get(struct lsom_disk *disk, uint32_t segment);
void lsom__segment_read_put(struct lsom_disk *disk, uint32_t segment);
/* What its header says; of its batches that are covered, nothing. */
struct lsom__segment_header
lsom__segment_header_of(const struct lsom_disk *disk, uint32_t segment);
/* Room for one more batch of @records_bytes in the summary.  0 or -ENOMEM. */
int lsom__segment_frame_room(struct lsom__segment *seg, uint32_t records_bytes);
/* Remember a batch's records for the summary, for which there is room. */
void lsom__segment_frame(struct lsom__segment *seg,
			 const struct lsom__frame *frame, const void *records);
uint32_t lsom__summary_need(uint64_t frames_bytes);
/* Write the summary once nothing of the segment is in flight. */
void lsom__segment_close(struct lsom_disk *disk, uint32_t segment);
/* Of @unclosed_timer. */
void lsom__segments_close_again(struct env_timer *timer);
/* A cleaned one may be taken from now on. */
void lsom__segment_freed(struct lsom_disk *disk, uint32_t segment);
/*
 * Nothing in it is needed: it is free once a checkpoint that begins after this
 * is flushed.
 */
void lsom__segment_cleaned(struct lsom_disk *disk, uint32_t segment);
/*
 * For tests: make sure, each time, that neither the table of undecided versions
 * nor an index page in memory points into what is called cleaned.  It walks all
 * of them.
 */
extern bool lsom__segment_checks;
void lsom__zero_kick(struct lsom_disk *disk);

/* ---- erase.c ---- */

/* Begin to; it is free when its header is durably gone. */
void lsom__segment_erase(struct lsom_disk *disk, uint32_t segment);

/* ---- trim.c: one segment at a time ---- */

struct lsom__trim {
	struct env_timer timer;
	struct env_work work;
	struct env_lane *lane; /* the device may take its time; NULL: none */
	uint32_t at; /* the segment to look at next */
	uint32_t segment; /* that is given back */
	uint32_t
		seen; /* this time around, of those that are dead (victim.c)... */
	uint32_t dead; /* ...and the last time, less those cleaned since */
	int status;
};

void lsom__trim_init(void); /* its counter */
/* From an opening on, if that is wanted and the device takes it... */
void lsom__trim_start(struct lsom_disk *disk);
/* ...until it is closed, and nothing of it is in flight. */
void lsom__trim_stop(struct lsom_disk *disk);

#endif
