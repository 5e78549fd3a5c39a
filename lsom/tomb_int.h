/*
 * tomb_int: deleted components whose data may lie on the disk yet.
 *
 * A tomb bars its component while older data lies anywhere, and some data stays
 * for years.  So they are more and more, and nothing that is done often looks at
 * each of them: not a deletion, nor a checkpoint, nor the cleaner.  100,000 of them
 * take 8 MB of memory and 65 ms of an opening.
 *
 * One could go earlier, when no segment is left that was in use while its component
 * was.  That is not done: it would have to be known of each segment, free ones too,
 * and be forgotten with the index; and all of them would have to be looked at again
 * and again, as a record of a deletion lies among cold data, where the cleaner does
 * not come.
 */
#ifndef BASALT_LSOM_TOMB_INT_H
#define BASALT_LSOM_TOMB_INT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

struct lsom_disk;

struct lsom__tomb {
	TAILQ_ENTRY(lsom__tomb) link, change;
	struct lsom__tomb *key_next;
	uint64_t key, pos; /* bars what lies before; or POS_LATER */
	bool changed; /* the store has it otherwise */
	bool gone; /* it is only there until the store knows */
};
TAILQ_HEAD(lsom__tomb_list, lsom__tomb);

#define LSOM__TOMBS_HASH 4096u

struct lsom__tombs {
	struct lsom__tomb_list settled, later, changed;
	struct lsom__tomb *by_key[LSOM__TOMBS_HASH];
};

void lsom__tombs_init(struct lsom__tombs *tombs);
void lsom__tombs_fini(struct lsom__tombs *tombs);
struct lsom__tomb *lsom__tomb_find(const struct lsom_disk *disk, uint64_t key);
/* If there is none.  @stored: the store has it.  0 or -ENOMEM. */
int lsom__tomb_add(struct lsom_disk *disk, uint64_t key, uint64_t pos,
		   bool stored);
/* There is nothing left to be barred. */
void lsom__tomb_drop(struct lsom_disk *disk, struct lsom__tomb *tomb);
/* What those of POS_LATER bar lies before here. */
void lsom__tombs_settle(struct lsom_disk *disk);
/* The store is told what @tomb, one of @changed, is.  It may be freed. */
void lsom__tomb_told(struct lsom_disk *disk, struct lsom__tomb *tomb);

#endif
