/*
 * clom: from a policy to a blueprint.  Pure functions of snapshots: the same
 * code answers create, what-if, repair and rebalance, and the simulator can
 * replay it.
 */
#ifndef BASALT_DOM_CLOM_H
#define BASALT_DOM_CLOM_H

#include "base/uuid.h"
#include "proto/directory.pb-c.h"

struct clom_disk {
	struct uuid disk, node;
	char fault_domain[64]; /* the node's id where none is set */
	uint64_t usable_bytes, used_bytes, reserved_bytes;
	unsigned components;
	bool healthy, removing;
};

struct clom_snapshot {
	const struct clom_disk *disks;
	unsigned disks_count;
};

struct clom_request {
	const Directory__Policy *policy; /* NULL: one copy, no stripes */
	uint64_t size_bytes;
	uint64_t leg_bytes; /* of a concat; 0: 256 GiB */
	uint32_t stripe_unit_bytes; /* 0: 1 MiB */
	uint64_t csn; /* member_csn of the new leaves */
	void (*uuid_make)(void *arg, struct uuid *out);
	void *arg;
};

/*
 * A tree that satisfies the policy, freed with
 * directory__tree_node__free_unpacked(*out, NULL).  0; -ENXIO (too few fault
 * domains or disks) or -ENOSPC, @why says which and how many.  With
 * force_provision what can be had is placed and *forced set.
 */
int clom_place(const struct clom_snapshot *snapshot,
	       const struct clom_request *request, Directory__TreeNode **out,
	       bool *forced, char *why, size_t why_len);

/* Does the layout satisfy the policy?  And is every leaf ACTIVE?  Computed. */
bool clom_compliant(const Directory__Object *object,
		    const Directory__Policy *policy, char *why, size_t why_len);
enum clom_health { CLOM_HEALTHY, CLOM_REDUCED, CLOM_UNAVAILABLE };
enum clom_health clom_health(const Directory__Object *object);

#endif
