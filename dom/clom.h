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
	uint64_t usable_bytes, used_bytes;
	uint64_t kept_bytes; /* reserved, and not yet used */
	uint64_t promised_bytes; /* sizes of its components, written or not */
	unsigned components;
	bool healthy, removing;
	bool near; /* driven by the shard that the object is on */
};

struct clom_snapshot {
	const struct clom_disk *disks;
	unsigned disks_count;
};

struct clom_request {
	const Directory__Policy *policy; /* NULL: one copy, no stripes */
	uint64_t size_bytes;
	uint64_t reserved_bytes; /* of these: clom_reserved(), clom_resized() */
	uint64_t leg_bytes; /* of a concat; 0: 256 GiB */
	uint32_t stripe_unit_bytes; /* 0: 1 MiB */
	uint64_t csn; /* member_csn of the new leaves */
	void (*uuid_make)(void *arg, struct uuid *out);
	void *arg;
};

/* What @policy (NULL: none) reserves of an object of @size_bytes. */
uint64_t clom_reserved(const Directory__Policy *policy, uint64_t size_bytes);
/*
 * What is reserved of one that had @reserved_bytes of @old_bytes, and gets
 * @size_bytes: of what it grows as the policy says, of what is left the same
 * share as before.
 */
uint64_t clom_resized(const Directory__Policy *policy, uint64_t old_bytes,
		      uint64_t reserved_bytes, uint64_t size_bytes);
/*
 * What of an object's @reserved_bytes is for a leaf of @leaf_bytes; a multiple
 * of DOM_BLOCK.  Of a thick object each leaf gets all its size.
 */
uint64_t clom_share(uint64_t leaf_bytes, uint64_t size_bytes,
		    uint64_t reserved_bytes);

/* Fault domains a policy needs (e1): 2f+1, or k+m. */
unsigned clom_domains_needed(const Directory__Policy *policy);

/* Components that a tree names. */
unsigned clom_leaves(const Directory__TreeNode *tree);

/*
 * What lies at *@offset of component @cid: its offset in the whole.  False: it has
 * no such component, or none whose bytes are those of the whole (parity).
 */
bool clom_offset(const Directory__TreeNode *tree, const struct uuid *cid,
		 uint64_t *offset);

/* Is all its size reserved? */
bool clom_thick(const Directory__Object *object);

/*
 * A tree that satisfies the policy, freed with
 * directory__tree_node__free_unpacked(*out, NULL).  0; -ENXIO (too few fault
 * domains or disks), -ENOSPC (a disk has no room for what is reserved on it) or
 * -ERANGE (larger than an object can be), @why says which and how many.  With
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
