/*
 * recover_int: what the files of a recovery share; and what the cleaner and the
 * scrub take of it, where a summary is no good.
 */
#ifndef BASALT_LSOM_RECOVER_INT_H
#define BASALT_LSOM_RECOVER_INT_H

#include "lsom/lsom_int.h"

#define LSOM__PASSES 4u
#define LSOM__HEADERS_PERCENT 10u /* of an opening, as people are told */

/* The records of one segment: frames, as in a summary. */
struct lsom__frames {
	uint8_t *mem;
	size_t bytes;
	uint64_t last_batch, durable_prefix;
	uint32_t used;
	bool closed, borrowed;
	bool parked; /* @mem was let go: the summary has it */
	/* Of its first batch, if that was in another segment; with records. */
	struct lsom__echo *before;
};

/* A head's run of batches, as far as it has been followed. */
struct lsom__run {
	uint64_t generation, expected, durable;
	uint32_t from, to; /* of the order: the generation's segments */
	uint16_t head;
	bool ended;
};

/* A repair that waits for all other data: replay.c. */
struct lsom__repair {
	uint64_t pos; /* its own */
	uint64_t copy_pos; /* of this copy of it */
	uint64_t place;
	struct lsom__data_record *d; /* malloc()ed */
};

#define LSOM__AHEAD 256u /* reads in a window */

/* Places that were read before anybody asked for them. */
struct lsom__window {
	struct env_read *reads;
	uint8_t *mem;
	uint32_t count, room, blocks; /* blocks: of @mem, used of room */
	uint32_t
		next; /* of reads: those before it were taken, or passed over */
};

struct lsom__ahead {
	/* Headers, and last blocks of segments; summaries. */
	struct lsom__window ones, bodies;
	uint32_t *plan; /* segments whose summaries are wanted, in this order */
	uint32_t plan_count, plan_next;
	uint32_t ones_from, ones_to, bodies_to; /* of the plan: what is there */
};

/* Where an opening has a segment's header from. */
enum lsom__header_from {
	LSOM__HEADER_FREE, /* the index, if it was not taken since */
	LSOM__HEADER_INDEX, /* it cannot have changed */
	LSOM__HEADER_DISK,
};

struct lsom__recovery {
	struct lsom_disk *disk;
	struct lsom__segment_header *headers; /* sequence 0: none */
	uint8_t *header_from; /* of each */
	struct lsom__frames **open; /* of generations that were not closed */
	uint32_t *order; /* segments in use, by generation and sequence */
	uint32_t order_count;
	bool *void_segment; /* holds nothing that counts */
	bool *from_table; /* the index knows it as it is */
	bool *header_lost; /* its header cannot be read, and is not zeros */
	bool headers_lost; /* any of them */
	bool *front_lost; /* its first batches, nobody knows how many */
	uint32_t headers_searched;
	uint32_t headers_unknown; /* that nothing else tells, as yet */
	uint64_t index_number; /* the checkpoint the log needs at least */
	/* Batches of each head that a flushed checkpoint covered, at least. */
	uint64_t covered[LSOM__HEADS], covered_generation;
	uint64_t records;
	struct lsom__repair *repairs;
	size_t repairs_count, repairs_room;
	bool lose_unreadable; /* blocks that fail with -EIO are lost as well */
	bool damaged; /* batches were found missing that nothing covers */
	uint64_t batches_lost; /* found missing, covered or not */
	uint64_t lost_below; /* so it was before: component keys concerned */
	_Atomic unsigned *percent; /* for people */
	uint8_t *buf; /* one segment */
	struct lsom__ahead ahead;
};

/*
 * Read blocks of a segment.  What the medium lost, for which Linux says ENODATA,
 * is as damaged as what rotted, and reads as bytes that nothing is made of.  Any
 * other error is the device's, and says nothing of what lies there: where no
 * second copy tells, it ends the recovery, which may be tried again.  But with
 * lose_unreadable a block that fails with -EIO is lost, too, if it does so again
 * while the device can read a superblock.  0 or -errno, never -ENODATA.
 */
int lsom__recovery_read(struct lsom__recovery *rec, uint32_t segment,
			uint32_t block, uint32_t blocks, void *buf);
int lsom__frames_read(struct lsom__recovery *rec, uint32_t segment,
		      struct lsom__frames *out);
void lsom__frames_fini(struct lsom__frames *f);

/* scan.c */
/*
 * What the first batch of a segment tells of the one before, for frames that
 * came from a summary, which does not.  0, also if it cannot be told; -EIO,
 * -ENOMEM.
 */
int lsom__frames_before(struct lsom__recovery *rec, uint32_t segment,
			struct lsom__frames *f);
/*
 * The frames of a segment without a summary: the whole of it is read, and every
 * batch in it found, also behind one that is damaged.  0, -EIO, -ENOMEM.
 */
int lsom__segment_scan(struct lsom__recovery *rec, uint32_t segment,
		       struct lsom__frames *out);
/* Add what the first batch of a later segment tells of @f's last. */
int lsom__frames_echo(struct lsom__frames *f, const struct lsom__echo *echo);

/* rescan.c */
struct lsom__rescan {
	struct lsom_disk *disk;
	uint32_t segment;
	void (*cb)(struct lsom__rescan *s); /* of the caller */
	int status; /* 0: @found is what was found */
	bool whole; /* and that is all there is */
	struct lsom__frames found;
	struct env_work work;
	struct lsom__recovery rec; /* that the scan takes it for */
};
/*
 * Look for the batches of a segment that is closed and stays as it is until
 * @s->cb runs, on the loop, later.  Or -ENOMEM at once.
 */
int lsom__rescan_start(struct lsom__rescan *s, struct lsom_disk *disk,
		       uint32_t segment);
/* What was found, @bytes of frames, is the caller's: malloc()ed. */
void *lsom__rescan_take(struct lsom__rescan *s, size_t *bytes);
void lsom__rescan_fini(struct lsom__rescan *s);

/* run.c */
/* Keep of a segment's frames what belongs to the run. */
int lsom__run_segment(struct lsom__recovery *rec, struct lsom__run *run,
		      uint32_t segment, struct lsom__frames *f);
/*
 * Without a summary the batches up to @next_first, the first one of the head's
 * next segment, are missing from this one's end: they are noted as lost.  @next:
 * that one's frames, or NULL.  0 or -ENOMEM.
 */
int lsom__run_tail(struct lsom__recovery *rec, struct lsom__run *run,
		   uint32_t segment, struct lsom__frames *f,
		   uint64_t next_first, const struct lsom__frames *next);
/* Find the run of every head, of each generation that was not closed. */
int lsom__runs_find(struct lsom__recovery *rec);

/* Does the checkpoint cover this batch? */
bool lsom__covered(const struct lsom__recovery *rec, uint32_t segment,
		   uint64_t batch);
/* All batches of the segment? */
bool lsom__segment_covered(const struct lsom__recovery *rec, uint32_t segment);

/* erase.c: durable when it returns 0; rec->buf is used. */
int lsom__segment_erase_now(struct lsom__recovery *rec, uint32_t segment);

/* ahead.c */
int lsom__ahead_init(struct lsom__ahead *a, const struct lsom_disk *disk);
void lsom__ahead_fini(struct lsom__ahead *a);
/* True: it was read ahead; @result is what reading it now would have said. */
bool lsom__ahead_take(struct lsom__ahead *a, uint64_t offset, size_t len,
		      void *buf, int *result);
/* The headers of @segments are wanted one by one: of as many as one window has. */
void lsom__ahead_headers(struct lsom__recovery *rec, const uint32_t *segments,
			 uint32_t count);
/* Begin one; add a segment whose summary will be read; the next one is read now. */
void lsom__ahead_plan(struct lsom__ahead *a);
void lsom__ahead_add(struct lsom__ahead *a, uint32_t segment);
void lsom__ahead_next(struct lsom__recovery *rec);

/* undo.c */
/* Is it the cleaner's, and all of it still where it came from? */
bool lsom__undone(const struct lsom__recovery *rec, uint32_t segment,
		  uint64_t batch);
/* Keep of @f what comes before the first such batch. */
void lsom__frames_undo(const struct lsom__recovery *rec, uint32_t segment,
		       struct lsom__frames *f);
/* The segments that hold nothing else are void. */
void lsom__segments_undo(struct lsom__recovery *rec);

/* headers.c: of those that the index does not tell. */
int lsom__headers_read(struct lsom__recovery *rec);

/* replay.c */
int lsom__record_replay(struct lsom__recovery *rec, uint32_t segment,
			const struct lsom__frame *frame,
			const struct lsom__record *r, unsigned pass);
int lsom__pass_end(struct lsom__recovery *rec, unsigned pass);
void lsom__repairs_fini(struct lsom__recovery *rec);

/* index_load.c */
/* The position, if the index has one and is this disk's; else it is emptied. */
int lsom__index_load(struct lsom_disk *disk, bool rebuild, char *why,
		     size_t why_len);
/* What the index tells of headers: rec->headers, rec->header_from. */
int lsom__headers_load(struct lsom_disk *disk, struct lsom__recovery *rec,
		       char *why, size_t why_len);
/* When the headers are known: all else. */
int lsom__checkpoint_load(struct lsom_disk *disk, struct lsom__recovery *rec,
			  char *why, size_t why_len);

#endif
