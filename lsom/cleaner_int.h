/*
 * cleaner_int: what the files of the cleaner share.
 *
 * cleaner.c picks victims and walks their records; carry.c says what of a record
 * is still needed; move.c brings blocks and holes to their new place.
 */
#ifndef BASALT_LSOM_CLEANER_INT_H
#define BASALT_LSOM_CLEANER_INT_H

#include "lsom/recover_int.h"

enum lsom__cleaner_phase {
	CLEAN_IDLE,
	CLEAN_READ_FOOTER,
	CLEAN_READ_SUMMARY,
	CLEAN_SCAN, /* for its batches: the summary is no good */
	CLEAN_RECORDS,
	CLEAN_STATES,
	CLEAN_SETTLE
};

struct lsom__cleaner {
	struct lsom_disk *disk;
	enum lsom__cleaner_phase phase;
	bool busy; /* a read or a page load is on its way */
	bool abandon; /* this victim cannot be emptied now */
	bool unread; /* for a read of it failed */
	bool looking; /* whether it can be emptied, before anything is moved */
	bool settled; /* it looked for a victim, and there is none to take */
	unsigned fruitless; /* victims since the last that made room */
	unsigned walks, walk_moves; /* of this victim; begun in this walk */
	struct lsom__pick pick; /* of the next victim */
	bool picking; /* it goes on in another turn */
	uint32_t victim;
	uint64_t oldest; /* of the others, when it was taken; later is newer */
	struct env_task step;
	struct env_timer retry;
	bool retrying;
	struct env_io io;
	struct iovec iov;
	uint8_t *buf;
	uint32_t blocks;
	struct lsom__rescan scan;
	/* the cursor: frames [at, bytes), records [record_at, record_end) */
	const uint8_t *frames;
	size_t at, bytes, record_end;
	struct lsom__frame frame;
	uint64_t block; /* within the record: where to go on */
	struct lsom__range range;
	bool ranged; /* the pages of the present record are pinned */
	unsigned moves, move_blocks, reading;
	TAILQ_HEAD(, move) under_way; /* of those: see lsom__moves_of() */
	struct lsom__ops ready; /* to be appended together */
	bool draining; /* a hole waits for data that is under way */
	struct lsom__segment_header header;
};

/* The loop goes on in a turn of its own. */
void lsom__cleaner_step_soon(struct lsom__cleaner *c);

/* A read of the victim failed, or gave nonsense: later, then. */
void lsom__victim_unread(struct lsom__cleaner *c, const char *what, int status);

/* ---- move.c ---- */

void lsom__moves_counted(void); /* registers what is counted */

/* As many are under way as there may be. */
bool lsom__moves_full(const struct lsom__cleaner *c);

/* Is data of these blocks under way? */
bool lsom__moves_of(const struct lsom__cleaner *c, const struct lsom_comp *comp,
		    uint64_t first, uint64_t blocks);

/*
 * Move blocks [first, first + blocks) of record @d, or, if @prep, the record.  Of a
 * hole, which has no data to read, @hole_pos is what it is told to be behind; else
 * 0.  The pages of the present record stay pinned until it is done.  0, or -EBUSY /
 * -ENOMEM: not now.
 */
int lsom__move_start(struct lsom__cleaner *c, struct lsom_comp *comp,
		     const struct lsom__data_record *d, uint64_t first,
		     uint64_t blocks, bool prep, uint64_t hole_pos);

/* ---- carry.c ---- */

/* 0, or -EINPROGRESS: as long as record @r is in it the victim is not emptied. */
int lsom__carry_look(struct lsom__cleaner *c, const struct lsom__record *r);

/*
 * What is needed of record @r of the victim goes to its new place.  0: it is
 * done.  -EAGAIN: come back.  -EBUSY, -ENOMEM: not now.  -EINPROGRESS: something
 * in it is not settled.
 */
int lsom__carry_record(struct lsom__cleaner *c, const struct lsom__record *r);

/* The components that had metadata in the victim: their state again. */
int lsom__carry_states(struct lsom__cleaner *c);

/*
 * The victim is left as it is.  Whose metadata is in it is nothing to the next one:
 * what tells of an abort may be elsewhere than what that bars.
 */
void lsom__carry_none(struct lsom__cleaner *c);

/* Let the pages of the present record go, which are pinned. */
void lsom__carry_unpin(struct lsom__cleaner *c);

/* The pages a record waited for are there (lsom__range.cb). */
void lsom__carry_ready(struct lsom__range *range, int status);

#endif
