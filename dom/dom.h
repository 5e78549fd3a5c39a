/*
 * dom: the distributed object manager.
 *
 * Lives here: a client where a session lives, an owner per object, a component
 *             manager where a disk is; the tree of an object, range locks,
 *             takeover, reservations; and CLOM (clom.h), which turns a policy
 *             into a blueprint.
 * Called by:  iscsi, on any shard; node, to create and delete.  There is one dom
 *             a shard.  An object's owner and its component managers are on
 *             shard uuid_hash(object id) modulo their number; calls on a handle
 *             of another shard go there by message (far.c).
 * May touch:  lsom below it and the directory; peers through rdt, once there
 *             are any.  reference: replication.md is its law.
 *
 * An object is an array of bytes, addressed in multiples of 512.  The owner
 * orders all commands, merges what is smaller than 4 KiB, decides compares and
 * reservations, and answers a write only once it is durable on every ACTIVE
 * component the directory lists.
 *
 * Calls return 0 and call back once, later, on the loop; or -errno and never.
 */
#ifndef BASALT_DOM_DOM_H
#define BASALT_DOM_DOM_H

#include "base/env.h"
#include "base/sgl.h"
#include "base/uuid.h"

struct dom;
struct dom_object;
struct cmmds;
struct lsom;
struct lsom_disk;

#define DOM_SECTOR 512u
#define DOM_IO_MAX (16u << 20) /* bytes of one command */
#define DOM_ATOMIC_MAX (1u << 20) /* DOM_ATOMIC and compare-and-write */
#define DOM_OPS_MAX 1024u /* admitted per object */

struct dom_config {
	struct env *env;
	struct cmmds *cmmds;
	struct lsom *lsom;
	struct uuid node;
	/*
	 * Which of @parts shards this is (@parts 0: there is one), and the doms
	 * of all by their number, filled in before objects are opened.  @cmmds
	 * is the shard's mirror.
	 */
	unsigned part, parts;
	struct dom *const *all;
	/* Tests switch a rule of replication.md off by its number; else 0. */
	uint64_t rules_off;
};

int dom_open(const struct dom_config *config, struct dom **out);

/* Objects must be closed; owners are released, @cb when all is quiet. */
void dom_close(struct dom *dom, void (*cb)(void *arg), void *arg);

/* Disks of this node come and go; closing waits for dom's handles. */
void dom_disk_add(struct dom *dom, struct lsom_disk *lsom);
void dom_disk_remove(struct dom *dom, struct lsom_disk *lsom,
		     void (*cb)(void *arg), void *arg);

/* What all objects would take on disks, and what of it is reserved. */
void dom_provisioned(const struct dom *dom, uint64_t *provisioned_bytes,
		     uint64_t *reserved_bytes);

/*
 * How many components of the objects of each shard the directory has on @disk,
 * which need not be open: added to @counts, one for each shard.
 */
void dom_disk_components(struct dom *dom, const struct uuid *disk,
			 unsigned *counts);

/* ---- the client ---- */

/*
 * Find the object and its owner.  0; -ENOENT; -ENXIO (no complete copy can be
 * reached) and -ETIMEDOUT (a disk of it does not answer): a later try may succeed.
 * @object: a handle of its own per open.
 */
struct dom_object_open {
	void *data;
	struct dom_object *object; /* out */
	/* private */
	struct dom *dom;
	struct uuid oid;
	void (*cb)(struct dom_object_open *req, int status);
	TAILQ_ENTRY(dom_object_open) link;
	struct env_timer late;
	struct env_task task;
};
typedef void (*dom_object_open_cb)(struct dom_object_open *req, int status);
int dom_object_open(struct dom *dom, struct dom_object_open *req,
		    const struct uuid *oid, dom_object_open_cb cb);

/* No request may be in flight. */
void dom_object_close(struct dom_object *object);

const struct uuid *dom_object_id(const struct dom_object *object);
uint64_t dom_object_size(const struct dom_object *object); /* bytes */
/* Bytes between stripe edges that one atomic command should not cross. */
uint32_t dom_object_stripe_bytes(const struct dom_object *object);
/* 0..255: how much the way down asks us to slow down (window, not failure). */
unsigned dom_object_congestion(const struct dom_object *object);
/*
 * A component is known to have lost what it had acknowledged (damage in the
 * log, a disk that went back in time), and there is no other copy: what is left
 * is served, and reads of blocks that damage may have taken end with -EBADMSG.
 * Also a health check, "object-data", which tells as well of components that the
 * directory names and their disk does not have.
 */
bool dom_object_lossy(const struct dom_object *object);
/*
 * Look for data that is lost, on the first shard: some components or objects in a
 * turn of its loop.  @cb once, later; in the seconds that follow the check
 * "object-data" tells what was found, and does not look through all of them itself.
 */
struct dom_data_look {
	/* private */
	void (*cb)(struct dom_data_look *req);
	bool waits; /* for the end of a look that had begun before */
	bool ready; /* to be told of the end */
	TAILQ_ENTRY(dom_data_look) link;
};
void dom_data_look(struct dom *dom, struct dom_data_look *req,
		   void (*cb)(struct dom_data_look *req));
/* Before @cb: it does not run. */
void dom_data_look_drop(struct dom *dom, struct dom_data_look *req);

/*
 * Which components of @oid, an object of @dom's shard, those are: up to @max of
 * their cids in @cids; returns how many.  On @dom's shard.
 */
unsigned dom_damaged(struct dom *dom, const struct uuid *oid, struct uuid *cids,
		     unsigned max);
/*
 * Space under the object's components: bytes used by it, and free for it: what
 * is reserved for it, and what is for nobody.  Of an object of another shard the
 * former is as it was when asked the last time.
 */
void dom_object_space(const struct dom_object *object, uint64_t *used_bytes,
		      uint64_t *free_bytes);

/* What of that is reserved for it and not used; as it was, likewise. */
uint64_t dom_object_kept(const struct dom_object *object);

/*
 * The same of an object that need not be open, as its disks have counted it:
 * exact, but for what is not decided yet.  @cb is told -ENODATA where they do
 * not know, or it has copies: then open it and ask what is mapped.
 */
struct dom_space {
	void *data;
	struct uuid oid;
	uint64_t used_bytes, free_bytes, kept_bytes; /* out */
	/* private */
	struct dom *dom;
	struct env_task task;
	int status;
	void (*cb)(struct dom_space *req, int status);
};
void dom_space(struct dom *dom, struct dom_space *req,
	       void (*cb)(struct dom_space *req, int status));

/*
 * Bytes free (as dom_object_space() has them) at which space is called low, and
 * DOM_LOW_SPACE told: that share of what the disks under the object may use.
 * Nobody is told about one that has all its size reserved.
 */
#define DOM_LOW_SPACE_PERCENT 20u
uint64_t dom_object_low_space(const struct dom_object *object);

/* What a handle's holder is told; never inside a call of the holder's own. */
enum dom_event {
	DOM_RESIZED,
	DOM_DELETED,
	DOM_RESERVATION, /* see dom_reservation(); @nexus: who caused it */
	DOM_CONGESTION, /* while it has requests, or with the next of them */
	DOM_LOW_SPACE, /* the soft threshold was crossed */
};
struct dom_watch {
	void *data;
	void (*cb)(struct dom_watch *watch, enum dom_event event);
	/* private */
	TAILQ_ENTRY(dom_watch) link;
};
void dom_object_watch(struct dom_object *object, struct dom_watch *watch);
void dom_object_unwatch(struct dom_object *object, struct dom_watch *watch);

/*
 * Who asks: one I_T nexus.  The owner checks reservations by it on every
 * command.  @generation is given by dom_nexus_open() and dies with it, so that
 * a late command of an older login never executes (R32).
 */
struct dom_nexus {
	char initiator_port[256]; /* "iqn...,i,0x<12 hex>", lower case */
	uint16_t target_port; /* relative target port identifier */
	uint64_t generation;
	/* private */
	unsigned attention;
	bool closing;
	void (*cb)(void *arg);
	void *arg;
	TAILQ_ENTRY(dom_nexus) link;
};

/* @nexus stays where it is until the callback of its closing. */
void dom_nexus_open(struct dom_object *object, struct dom_nexus *nexus);
/*
 * Fail what this nexus has queued; @cb when nothing of it can execute, and its
 * SPC-2 reservation, if it had one, is gone.  What was answered at its deadline,
 * as a disk hangs, may not have ended; whoever comes to the place waits for it.
 */
void dom_nexus_close(struct dom_object *object, struct dom_nexus *nexus,
		     void (*cb)(void *arg), void *arg);

/*
 * One request; embed it.  @nexus NULL: internal, no reservation applies.
 *
 * Status of every command below: 0; -EPERM (reservation conflict); -EINVAL
 * (alignment, length); -ERANGE (beyond the end); -ENOSPC; -EBADMSG (no good
 * copy; @bad_offset); -EIO / -ENODEV; -ENXIO (unavailable, try later);
 * -ETIMEDOUT (past @deadline_ns; a write may be there or not); -ECANCELED;
 * -ENOENT (deleted); -EROFS (write protected); -ESHUTDOWN.  -EBUSY at once.
 * A command that changes bytes and ends with -EIO, -ENODEV, -ENXIO, -ETIMEDOUT,
 * -ECANCELED or -ENOSPC may be there whole, or where it is not atomic in part.
 */
struct dom_io {
	void *data;
	struct dom_nexus *nexus;
	uint64_t deadline_ns; /* of env_now(); 0: 25 s from now */
	/* out */
	struct sgl *sgl; /* a read's data: the caller puts it */
	uint64_t bad_offset; /* of the object, with -EBADMSG */
	uint64_t miscompare; /* first differing byte, with -EILSEQ */
	uint64_t mapped_len; /* dom_map() */
	bool mapped;
	/* private */
	struct dom_object *object;
	void (*cb)(struct dom_io *io, int status);
	TAILQ_ENTRY(dom_io) link;
	struct env_task task;
	void *impl[8];
};
typedef void (*dom_io_cb)(struct dom_io *io, int status);

#define DOM_ATOMIC 1u /* all or nothing over crashes and to readers */

/* @offset and @len: multiples of 512.  @io->sgl is congruent with @offset. */
int dom_read(struct dom_object *object, struct dom_io *io, uint64_t offset,
	     uint64_t len, dom_io_cb cb);

/*
 * @sgl is shared, its first byte congruent with @offset or not (then the owner
 * merges, and counts the copy).  Durable once @cb has status 0.
 */
int dom_write(struct dom_object *object, struct dom_io *io, uint64_t offset,
	      struct sgl *sgl, unsigned flags, dom_io_cb cb);

/* Blocks read as zeros afterwards; edges below 4 KiB are written as zeros. */
int dom_unmap(struct dom_object *object, struct dom_io *io, uint64_t offset,
	      uint64_t len, dom_io_cb cb);

/*
 * COMPARE AND WRITE: if the object's bytes equal @compare, write @sgl (of the
 * same length, at most DOM_ATOMIC_MAX); else -EILSEQ and @io->miscompare.
 * Atomic against every other command on the object, from any node.
 */
int dom_compare_and_write(struct dom_object *object, struct dom_io *io,
			  uint64_t offset, struct sgl *compare, struct sgl *sgl,
			  dom_io_cb cb);

/* ORWRITE: bytes |= @sgl, atomically. */
int dom_or_write(struct dom_object *object, struct dom_io *io, uint64_t offset,
		 struct sgl *sgl, dom_io_cb cb);

/*
 * Is the byte at @offset mapped?  @io->mapped and @io->mapped_len: from @offset
 * on that many bytes are alike (at most @len; maybe less than could be).
 */
int dom_map(struct dom_object *object, struct dom_io *io, uint64_t offset,
	    uint64_t len, dom_io_cb cb);

/*
 * Try to stop a request.  One that is queued ends with -ECANCELED; one that is
 * executing finishes.  Either way @io's callback runs, once.
 */
void dom_cancel(struct dom_io *io);

/* ---- reservations (SPC-4 5.13, 6.15, 6.16; SPC-2), decided at the owner ---- */

#define DOM_REGISTRATIONS_MAX 256u

struct dom_registration {
	char initiator_port[256];
	uint16_t target_port;
	uint64_t key;
	bool all_target_ports;
};

struct dom_reservation {
	uint32_t generation; /* PRGENERATION */
	unsigned registrations_count;
	struct dom_registration *registrations;
	bool held;
	unsigned holder; /* index; for all-registrants types: any */
	uint8_t type; /* 1, 3, 5, 6, 7, 8 */
	bool aptpl;
	char spc2_holder[256]; /* "" none */
	uint16_t spc2_target_port;
};

/* Does the nexus of these ports hold the SPC-2 reservation? */
static inline bool dom_spc2_holds(const struct dom_reservation *res,
				  const char *initiator_port,
				  uint16_t target_port)
{
	return res->spc2_holder[0] != '\0' &&
	       res->spc2_target_port == target_port &&
	       strcmp(res->spc2_holder, initiator_port) == 0;
}

/* The state as last heard from the owner; good until the loop goes on. */
const struct dom_reservation *dom_reservation(struct dom_object *object);

/*
 * PERSISTENT RESERVE OUT, RESERVE, RELEASE; @action as in SPC-4 table 6.16.
 * Status besides those of dom_io: -EPERM: RESERVATION CONFLICT; -EINVAL: a field
 * of the parameter list is wrong (@io->bad_offset: which byte of it, or
 * DOM_PR_OF_CDB: it is the CDB's type or service action); -ENOMEM: no room for
 * registrations (5/55/04).  Durable once @cb has status 0.
 */
#define DOM_PR_OF_CDB (UINT32_MAX - 1)
enum dom_pr_action {
	DOM_PR_REGISTER,
	DOM_PR_RESERVE,
	DOM_PR_RELEASE,
	DOM_PR_CLEAR,
	DOM_PR_PREEMPT,
	DOM_PR_PREEMPT_AND_ABORT,
	DOM_PR_REGISTER_AND_IGNORE,
	DOM_PR_REGISTER_AND_MOVE,
	DOM_SPC2_RESERVE = 16,
	DOM_SPC2_RELEASE,
	/*
	 * LUN reset, nexus loss: the nexus's SPC-2 reservation, or anybody's where
	 * there is none, ends, and so does what was asked for before and may
	 * take effect yet.  It waits for nothing, and needs not be durable.
	 */
	DOM_SPC2_RESET,
};

struct dom_pr {
	enum dom_pr_action action;
	uint8_t type; /* with the scope; where the action makes use of it */
	uint64_t key, service_action_key;
	bool aptpl, all_target_ports, spec_i_pt, unregister;
	/* SPEC_I_PT, REGISTER AND MOVE: initiator ports; borrowed until @cb */
	const char *const *initiator_ports;
	unsigned initiator_ports_count;
	uint16_t move_target_port;
};
int dom_reserve(struct dom_object *object, struct dom_io *io,
		const struct dom_pr *pr, dom_io_cb cb);

/* May @nexus run a command that needs @access now?  For those without data. */
enum dom_access { DOM_ACCESS_NONE, DOM_ACCESS_READ, DOM_ACCESS_WRITE };
bool dom_access_allowed(struct dom_object *object,
			const struct dom_nexus *nexus, enum dom_access access);

/*
 * What became of @nexus in the last change: unit attentions that iscsi owes it
 * (bits), cleared by the call: 2A/03 preempted, 2A/04 released, 2A/05
 * registrations preempted.
 */
#define DOM_UA_RESERVATION_PREEMPTED 1u
#define DOM_UA_RESERVATION_RELEASED 2u
#define DOM_UA_REGISTRATION_PREEMPTED 4u
unsigned dom_nexus_attention(struct dom_object *object,
			     const struct dom_nexus *nexus);

/* ---- administration, called by node ---- */

/* A directory takes so many commands at a time; who comes later asks again. */
struct dom__patience {
	/* private */
	uint64_t until_ns; /* 0: not asked yet */
	struct env_timer timer;
};

/*
 * A create or resize that reserves space waits for those before it that do, as
 * it goes by what they leave: give them all to one dom.  Where that takes a
 * minute, as the directory does not answer, it is -EBUSY with @why.  So it is
 * where there is no room, and what was deleted takes long to give its space back.
 */
struct dom_turn {
	/* private */
	struct dom *dom;
	void (*cb)(struct dom_turn *turn, int status);
	uint64_t until_ns;
	bool mine;
	TAILQ_ENTRY(dom_turn) link;
	/* of one that finds no room */
	bool waited, freeing;
	unsigned part; /* the shard that is asked */
	struct env_task task;
	struct dom__patience patience;
};

/*
 * Place a new object and make it: @cb with 0 when its entry is in the directory
 * and its components exist durably.  @policy is the name of an entry; "" is one
 * copy.  @commit (may be NULL) adds what shall be created in the same command
 * (the vdisk, its target).  -ENOSPC / -ENXIO with @why: what is missing, e.g.
 * "failures to tolerate 1 needs 3 fault domains, 1 found"; -ERANGE with @why: it
 * is larger than an object of that policy can be.
 */
struct cmmds_command;
struct dom_create {
	void *data;
	struct uuid oid; /* in: zero = draw one; out */
	uint64_t size_bytes;
	const char *policy;
	const char *who;
	void (*commit)(struct dom_create *req, struct cmmds_command *cmd);
	/* out */
	char why[256];
	/* private */
	struct dom *dom;
	void (*cb)(struct dom_create *req, int status);
	struct dom_turn turn;
	unsigned attempts;
};
typedef void (*dom_create_cb)(struct dom_create *req, int status);
int dom_create(struct dom *dom, struct dom_create *req, dom_create_cb cb);

/*
 * Grow or shrink; data beyond a smaller size is gone.  With @keep_data it is
 * -ENOTEMPTY with @why if a block there is written by the time at which nothing
 * runs at the object any more; later writes there fail then.
 *
 * A failure after which @stored is set: the directory has the size, but the
 * object cannot be opened with it, as a disk does not take a component.  With
 * @undo, and without @keep_data, a resize to the size of before takes that back
 * while it is closed, if nothing has come into being of what is cut off.  With
 * @undo it is -EALREADY if it can be opened after all.
 */
struct dom_resize {
	void *data;
	struct uuid oid;
	uint64_t size_bytes;
	bool keep_data, undo;
	void (*commit)(struct dom_resize *req, struct cmmds_command *cmd);
	/* out */
	char why[256];
	bool stored;
	/* private */
	struct dom *dom;
	void (*cb)(struct dom_resize *req, int status);
	struct dom_turn turn;
};
typedef void (*dom_resize_cb)(struct dom_resize *req, int status);
int dom_resize(struct dom *dom, struct dom_resize *req, dom_resize_cb cb);

/*
 * Have more reserved for an object than is.  @cb with 0: its disks have the room
 * for @reserved_bytes of it.  Then the caller changes the entry and, whatever comes
 * of that, calls dom_promise_end(), before which nobody else who reserves space
 * gets a look at the disks.
 *
 * Else, with @why: -ENOSPC; -ENXIO (a disk of it is away); -ENODATA (how much of
 * it is written is being counted), -EAGAIN (the entry has just changed) and
 * -EBUSY (it waited too long): a later try may succeed; -ENOENT, -ENOMEM, -ESHUTDOWN.
 */
struct dom_promise {
	void *data;
	struct uuid oid;
	uint64_t reserved_bytes;
	/* out */
	char why[256];
	/* private */
	struct dom *dom;
	uint64_t *used; /* of each leaf */
	uint64_t revision; /* of the entry */
	int status;
	void (*cb)(struct dom_promise *req, int status);
	struct dom_turn turn;
	struct env_task task;
};
typedef void (*dom_promise_cb)(struct dom_promise *req, int status);
int dom_promise(struct dom *dom, struct dom_promise *req, dom_promise_cb cb);
void dom_promise_end(struct dom_promise *req);

/*
 * Deleting is a change of the directory that node proposes (ObjectCommand
 * DELETE); dom hears of it, deletes the components and then the entry.
 */

/*
 * Components that the directory does not know, or knows of old only: it was put
 * back from a backup, or a disk was (gc.c).  They are let alone until somebody
 * decides; these calls are for that.  On the first shard, for all of them; no dom
 * is closed before @cb.
 */
struct dom_stray {
	struct uuid oid, cid, disk;
	uint64_t size_bytes;
	uint64_t used_bytes; /* committed blocks */
	bool used_exact; /* else an upper bound: counting took too long */
	bool known; /* the directory has the object, with an older layout */
};

/* List them.  @cb: 0, -ENOMEM. */
struct dom_strays {
	void *data;
	struct uuid oid; /* of this object; zero: all */
	struct dom_stray *items; /* out, malloc()ed: the caller's */
	unsigned count;
	/* private */
	struct dom *dom;
	void (*cb)(struct dom_strays *req, int status);
};
typedef void (*dom_strays_cb)(struct dom_strays *req, int status);
int dom_strays(struct dom *dom, struct dom_strays *req, dom_strays_cb cb);

/*
 * Delete the components of @oid on this node's disks, if behind a barrier the
 * directory has no entry for it: with one, -EEXIST and nothing was deleted.  Else
 * 0 or the first error, and how many are deleted durably either way; those of a
 * disk that is away or has failed stay.  -ETIMEDOUT: a disk of it does not answer;
 * what was begun there may be deleted yet.
 */
struct dom_drop {
	void *data;
	struct uuid oid;
	unsigned dropped; /* out */
	/* private */
	struct dom *here, *there;
	bool taken, picked, more;
	unsigned deleting, failures;
	uint64_t number;
	struct env_timer late;
	int status;
	struct env_task task;
	void (*cb)(struct dom_drop *req, int status);
	TAILQ_ENTRY(dom_drop) link;
};
typedef void (*dom_drop_cb)(struct dom_drop *req, int status);
int dom_drop(struct dom *dom, struct dom_drop *req, dom_drop_cb cb);

/*
 * May @oid be opened with the layout that the directory has, though components
 * have seen a newer one (stray.c says when)?  0: an ACCEPT that expects
 * (@expect_oepoch, @expect_csn) and names @oepoch and @csn makes it open, and
 * @cut_bytes of component space behind the layout's end are lost with it, and
 * @extra components that it does not name.  -EPERM, -ENOENT with @why.
 */
struct dom_accept {
	void *data;
	struct uuid oid;
	/* out */
	uint32_t expect_oepoch, oepoch;
	uint64_t expect_csn, csn, cut_bytes;
	unsigned extra;
	char why[256];
	/* private */
	struct dom *here, *there;
	int status;
	struct env_task task;
	void (*cb)(struct dom_accept *req, int status);
};
typedef void (*dom_accept_cb)(struct dom_accept *req, int status);
int dom_accept_check(struct dom *dom, struct dom_accept *req, dom_accept_cb cb);

/* ---- SANITIZE (SBC-3 5.27) ---- */

/*
 * A sanitize goes on after a restart: what it needs for that is kept with the
 * object in the directory, as bytes that dom does not read.
 */
#define DOM_SANITIZE_MAX 8192u

struct dom_sanitize {
	void *data;
	/* private */
	void (*cb)(struct dom_sanitize *req, int status);
};
typedef void (*dom_sanitize_cb)(struct dom_sanitize *req, int status);

/*
 * The mark; good until the loop goes on.  NULL: there is none.  Without bytes: the
 * directory was put back from a backup, and whether it has ended is not known.
 */
const uint8_t *dom_sanitize_state(struct dom_object *object, size_t *len);

/*
 * Set it to the @len bytes at @state (copied), or take it away (@len 0).
 * Durable once @cb has status 0; -ETIMEDOUT: unknown; -ENOENT (deleted), -EIO,
 * -ESHUTDOWN, -EAGAIN (the entry changed too often).  At once also -EBUSY,
 * -ENOMEM, -EINVAL (@len).
 */
int dom_sanitize_mark(struct dom_object *object, struct dom_sanitize *req,
		      const void *state, size_t len, dom_sanitize_cb cb);

#endif
