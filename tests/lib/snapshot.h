/*
 * snapshot: what the index of a disk says, to compare two of them: of each
 * component its state and block -> (member_csn, lsn, crc).
 */
#ifndef BASALT_TESTS_SNAPSHOT_H
#define BASALT_TESTS_SNAPSHOT_H

#include "lsom/lsom.h"
#include "tests/lib/memenv.h"

#define SNAPSHOT_COMPS_MAX 64u

struct snapshot {
	struct lsom_comp_meta metas[SNAPSHOT_COMPS_MAX]; /* by cid */
	size_t versions_at[SNAPSHOT_COMPS_MAX + 1]; /* where each one's begin */
	unsigned comps_count;
	struct lsom_version *versions;
	size_t count, room;
};

/* All that is decided: a single copy's takeover decides for what it has. */
void snapshot_take_over(struct lsom_comp *comp);

/*
 * Take over every component of @disk, which is of @me, and note what its index
 * says.  0, or -errno of a scan.  snapshot_fini() in any case.
 */
int snapshot_take(struct memenv *me, struct lsom_disk *disk,
		  struct snapshot *s);
void snapshot_fini(struct snapshot *snapshot);

/*
 * Do both say the same?  If not @why names the first difference.  A hole where
 * the other has nothing is none, and counted in *@idle_holes: on a whole replica
 * a block that was never written needs no entry, and whether its page was there
 * when the hole came depends on the order in which the records are read
 * (lsom__range_apply()).
 */
bool snapshot_equal(const struct snapshot *recorded,
		    const struct snapshot *rebuilt, uint64_t *idle_holes,
		    char *why, size_t why_len);

#endif
