/*
 * state_check: opens LSOM as it is shipped on a state that a disk may be in, and
 * checks that what was acknowledged by then is there, whole: the blocks of its
 * largest component, as the journal has them, and which others there are.
 */
#ifndef BASALT_TESTS_STATE_CHECK_H
#define BASALT_TESTS_STATE_CHECK_H

#include "tests/lib/journal.h"
#include "tests/lib/memenv.h"
#include "tests/lib/snapshot.h"

#define STATE_COMPS_MAX 64u

/* A component that was created or deleted during the record. */
struct state_side {
	struct uuid cid;
	bool created, deleting, deleted;
};

struct state_check {
	/* The caller's, set before state_check_init(). */
	struct memenv *me; /* its device holds the state */
	struct journal *journal;
	const char *disk_path;
	struct uuid cluster;
	/* Told of everything that is wrong. */
	void (*bad)(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

	uint64_t random; /* of which blocks are looked at */
	/* What was done. */
	uint64_t full, blocks_checked;
	uint64_t slowest_ns, accesses_most, bytes_most; /* of a recovery */
	/* private */
	struct state_side sides[STATE_COMPS_MAX];
	unsigned sides_count;
	uint8_t *recent; /* of each block: check it */
};

/* Aborts when memory is short. */
void state_check_init(struct state_check *sc);
void state_check_fini(struct state_check *sc);

/* Back to the start of the record. */
void state_check_rewind(struct state_check *sc);

/*
 * A note of the record: "create", "created", "delete" or "deleted" and the cid
 * of a component; others are ignored.  0, or -ERANGE: too many components.
 */
int state_check_note(struct state_check *sc, const struct io_event *event);

/*
 * Open the state and check it: all blocks (@full), or what was touched last and
 * a few of the others.  With @snapshot only say what its index holds, after a
 * rebuild from the log if @rebuild.
 */
void state_check_open(struct state_check *sc, bool full, bool rebuild,
		      struct snapshot *snapshot);

#endif
