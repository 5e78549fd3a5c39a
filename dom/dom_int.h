/*
 * dom_int: what the files of dom share and no other room sees.
 *
 * The pieces, from the bottom up: tree (where a byte lies), group (what is
 * decided), range_lock (who waits for whom), component_manager (the fence in
 * front of lsom), peer (an owner's view of one leaf), owner (one per object:
 * its life and its operations), takeover, reservation, client, far (a handle on
 * an object of another shard), room (who reserves looks at the disks), dom.
 */
#ifndef BASALT_DOM_DOM_INT_H
#define BASALT_DOM_DOM_INT_H

#include "base/env.h"
#include "base/err.h"
#include "base/health.h"
#include "base/log.h"
#include "base/util.h"
#include "cmmds/cmmds.h"
#include "dom/clom.h"
#include "dom/dom.h"
#include "lsom/lsom.h"

#include <stdatomic.h>

#define DOM_BLOCK LSOM_BLOCK
#define DOM_LEAVES_MAX 4096u
#define DOM_DEADLINE_NS (25 * SEC)
#define DOM__OPEN_NS (30 * SEC) /* longer than who takes over is patient */
#define DOM__BUCKETS 4096u /* there may be as many objects open, and more */

/* ---- tree.c ---- */

struct dom__leaf {
	struct uuid cid, node, disk;
	uint64_t cinc, member_csn, stale_lsn;
	uint64_t size_bytes; /* of the component: a multiple of DOM_BLOCK */
	enum lsom_leaf_state state;
	bool created;
};

struct dom__extent {
	unsigned leaf;
	uint64_t offset, len; /* in the component */
};

struct dom__tree;

/*
 * Check and flatten a blueprint that covers @size_bytes.  -EUCLEAN: it makes no
 * sense; -EOPNOTSUPP: a type this version cannot run.  @why says which.
 */
int dom__tree_make(const Directory__TreeNode *root, uint64_t size_bytes,
		   struct dom__tree **out, char *why, size_t why_len);
void dom__tree_free(struct dom__tree *tree);
unsigned dom__tree_leaves_count(const struct dom__tree *tree);
struct dom__leaf *dom__tree_leaf(struct dom__tree *tree, unsigned index);
uint64_t dom__tree_size(const struct dom__tree *tree);
/* Bytes between edges; the whole size rounded down to 1 GiB if none. */
uint32_t dom__tree_stripe_bytes(const struct dom__tree *tree);

/* Where @offset lies and how much (at most @len) follows it there. */
struct dom__extent dom__tree_map(const struct dom__tree *tree, uint64_t offset,
				 uint64_t len);

/*
 * What of [@offset, @offset + @len) lies on which leaf: one contiguous extent
 * each, in no order of the object.  @out has room for every leaf.
 */
unsigned dom__tree_spread(const struct dom__tree *tree, uint64_t offset,
			  uint64_t len, struct dom__extent *out);

/* ---- clom.c, beside clom.h ---- */

/*
 * @object's tree made to cover @size_bytes: the last leg grows up to its limit
 * and new legs follow, or legs and tails beyond are cut off.
 */
int clom__resize(const struct clom_snapshot *snapshot,
		 const struct clom_request *request,
		 const Directory__Object *object, Directory__TreeNode **out,
		 char *why, size_t why_len);

/*
 * Do the disks have the room to have @reserved_bytes reserved for @object as it is
 * placed, of whose leaves each has mapped so many bytes as @used says, in the order
 * of its tree?  0; -ENOSPC with @why; -ENOMEM.
 */
int clom__promise(const struct clom_snapshot *snapshot,
		  const Directory__Object *object, uint64_t reserved_bytes,
		  const uint64_t *used, char *why, size_t why_len);

/* ---- range_lock.c ---- */

struct dom__range {
	uint64_t start, end;
	bool exclusive, held;
	void (*cb)(struct dom__range *range); /* granted after a wait */
	TAILQ_ENTRY(dom__range) link;
};

struct dom__locks {
	TAILQ_HEAD(, dom__range) queue; /* in order of arrival */
	unsigned waiting;
};

void dom__locks_init(struct dom__locks *locks);
bool dom__range_lock(struct dom__locks *locks, struct dom__range *range);
void dom__range_unlock(struct dom__locks *locks, struct dom__range *range);

/* ---- group.c ---- */

struct dom__group {
	uint64_t next_lsn;
	struct lsom_decided decided;
	uint8_t aborted[LSOM_WINDOW / 8];
	bool dirty; /* decided holds what no message has carried */
	bool leap; /* R10 is off: stable_lsn leaps over what is undecided */
	int dead; /* why no write can be decided any more; or 0 */
	uint64_t durable_lsn; /* the largest its leaf reported durable */
	uint64_t told_lsn; /* stable_lsn that its last record carried */
	uint64_t wanted_pass; /* the last of owner->window_pass it was */
};

void dom__group_init(struct dom__group *group, uint64_t oepoch,
		     uint64_t recorded_lsn);
unsigned dom__group_room(const struct dom__group *group);
/* Half of the lsns of its epoch are issued: it is time for another one (R34). */
bool dom__group_worn(const struct dom__group *group);
uint64_t dom__group_issue(struct dom__group *group);
void dom__group_commit(struct dom__group *group, uint64_t lsn);
void dom__group_abort(struct dom__group *group, uint64_t lsn);
/* Every ACTIVE leaf has durably recorded @stable_lsn. */
void dom__group_recorded(struct dom__group *group, uint64_t stable_lsn);

/* ---- qos.c ---- */

/* A token bucket, kept as the time at which it is full again. */
struct dom__qos {
	uint64_t limit; /* commands a second; 0: none */
	uint64_t full_ns; /* of env_now() */
};

/* How long until a command may pass; 0: now, and its token is taken. */
uint64_t dom__qos_take(struct dom__qos *qos, uint64_t now_ns);

/* ---- component_manager.c ---- */

/* What every message of an owner carries for the FENCE (g0). */
struct dom__fence {
	uint64_t cinc, member_csn;
	uint64_t oepoch;
};

struct dom__disk;

struct dom__cm {
	struct dom__disk *disk;
	struct lsom_comp *comp;
	uint64_t promised_oepoch; /* at least what is durable */
	bool barred; /* not ACTIVE when opened: wait (R42) */
	unsigned in_flight; /* accepted data messages */
	struct dom__cm_meta *seal; /* waits for in_flight to reach 0 */
	struct env_task seal_task;
	unsigned refs;
	TAILQ_ENTRY(dom__cm) link;
	struct dom__cm *chain; /* of its bucket */
};

struct dom__cm_meta {
	struct lsom_meta meta;
	struct dom__cm *cm;
	struct dom__disk *disk;
	void (*cb)(struct dom__cm_meta *req, int status);
};

struct dom__cm_write {
	struct lsom_write write;
	struct dom__cm *cm;
	void (*cb)(struct dom__cm_write *req, int status);
};

struct dom__cm_read {
	struct lsom_read read;
	struct dom__cm *cm;
	void (*cb)(struct dom__cm_read *req, int status);
};

struct dom__cm_decide {
	struct lsom_decide decide;
	struct dom__cm *cm;
	void (*cb)(struct dom__cm_decide *req, int status);
};

struct dom__cm_scan {
	struct lsom_scan scan;
	struct dom__cm *cm;
	void (*cb)(struct dom__cm_scan *req, int status);
};

/* A handle on a component: -ENOENT: @disk has none, -ENOMEM.  Put it when quiet. */
int dom__cm_get(struct dom__disk *disk, const struct uuid *cid,
		struct dom__cm **out);
void dom__cm_put(struct dom__cm *cm);

/*
 * CREATE, from a directory entry only (R24): the caller read it after its own
 * GRANT and found the leaf not `created`.
 */
int dom__cm_create(struct dom__disk *disk, struct dom__cm_meta *req,
		   const struct dom__leaf *leaf, const struct uuid *oid,
		   uint64_t oepoch, uint64_t csn,
		   void (*cb)(struct dom__cm_meta *req, int status));

/*
 * SEAL (g1.3): -ESTALE if a larger epoch was promised, @oepoch was served here
 * already, or another cinc is there; 0 once the promise is durable and all older
 * records are settled.
 */
int dom__cm_seal(struct dom__cm *cm, struct dom__cm_meta *req,
		 const struct dom__leaf *leaf, uint64_t oepoch, uint64_t csn,
		 void (*cb)(struct dom__cm_meta *req, int status));

/* CONFIG and ATTACH (g6.2); RESIZE.  Fenced by @fence like data. */
int dom__cm_update(struct dom__cm *cm, const struct dom__fence *fence,
		   struct dom__cm_meta *req, enum lsom_meta_op op,
		   const struct lsom_comp_meta *meta,
		   void (*cb)(struct dom__cm_meta *req, int status));

/*
 * Data messages: -ESTALE: FENCED.  Else as lsom's calls; the request's lsom
 * part is filled by the caller.
 */
int dom__cm_write(struct dom__cm *cm, const struct dom__fence *fence,
		  struct dom__cm_write *req,
		  void (*cb)(struct dom__cm_write *req, int status));
int dom__cm_read(struct dom__cm *cm, const struct dom__fence *fence,
		 struct dom__cm_read *req,
		 void (*cb)(struct dom__cm_read *req, int status));
int dom__cm_decide(struct dom__cm *cm, const struct dom__fence *fence,
		   struct dom__cm_decide *req,
		   void (*cb)(struct dom__cm_decide *req, int status));
int dom__cm_scan(struct dom__cm *cm, const struct dom__fence *fence,
		 struct dom__cm_scan *req,
		 void (*cb)(struct dom__cm_scan *req, int status));
/* 0, or -ENOMEM: to be said again. */
int dom__cm_decided(struct dom__cm *cm, const struct dom__fence *fence,
		    const struct lsom_decided *decided);

/* ---- the leaves of an owner ---- */

/* One leaf as its owner sees it; all of them are on this node: @cm. */
struct dom__peer {
	const struct dom__leaf *leaf;
	struct dom__cm *cm; /* NULL: not reached */
	bool sealed; /* in this takeover */
	uint64_t promised_oepoch; /* before it was sealed */
	struct dom__fence fence;
	struct dom__cm_meta meta; /* one metadata exchange at a time */
	void *data;
};

/* ---- reservation.c: pure ---- */

/* What a change owes to one port. */
struct dom__pr_effect {
	char initiator_port[256];
	uint16_t target_port;
	bool all_target_ports;
	unsigned attention; /* DOM_UA_* */
	bool abort; /* PREEMPT AND ABORT: its commands die */
};

struct dom__pr_effects {
	unsigned count;
	struct dom__pr_effect items[DOM_REGISTRATIONS_MAX + 1];
};

struct dom__pr_who {
	const char *initiator_port;
	uint16_t target_port;
};

void dom__reservation_init(struct dom_reservation *res);
void dom__reservation_fini(struct dom_reservation *res);
int dom__reservation_copy(struct dom_reservation *to,
			  const struct dom_reservation *from);

/*
 * Apply one action to @res.  0: done, *@changed says whether anything is to be
 * stored; -EPERM, -EINVAL with *@bad_byte of the parameter list, or -ENOMEM: @res
 * is as before.
 */
int dom__reservation_apply(struct dom_reservation *res,
			   const struct dom__pr_who *who,
			   const struct dom_pr *pr, bool *changed,
			   unsigned *bad_byte, struct dom__pr_effects *effects);
/* As dom__reservation_allows(), where there is a reservation. */
bool dom__reservation_lets(const struct dom_reservation *res,
			   const struct dom__pr_who *who,
			   enum dom_access access);
/* SPC-4 table 38: may a command that reads or writes the medium pass? */
static inline bool dom__reservation_allows(const struct dom_reservation *res,
					   const struct dom__pr_who *who,
					   enum dom_access access)
{
	if (!res->held && res->spc2_holder[0] == '\0')
		return true;
	return dom__reservation_lets(res, who, access);
}

int dom__reservation_unpack(struct dom_reservation *res,
			    const Directory__Reservation *msg);
/* Borrows @res's strings; frees what it made itself with _pack_free(). */
int dom__reservation_pack(const struct dom_reservation *res,
			  const struct uuid *oid, bool swp,
			  Directory__Reservation *msg);
void dom__reservation_pack_free(Directory__Reservation *msg);

/* ---- owner.c, owner_*.c, op.c, takeover.c ---- */

struct dom__owner;
struct dom__op;

/* A contiguous piece of one component in one request. */
struct dom__part {
	struct dom__op *op;
	struct dom__fetch *fetch; /* a read's */
	unsigned leaf;
	bool hole, durable, credit, undo;
	uint64_t offset, len; /* in the component */
	uint64_t lsn, stable_sent;
	struct sgl *sgl;
	uint32_t *crcs;
	int status;
	bool retrying;
	TAILQ_ENTRY(dom__part) link; /* owner->retries */
	/* Set as a whole by who sends them: not cleared before. */
	union {
		struct dom__cm_read read;
		struct dom__cm_write write;
	};
	struct dom__cm_decide decide;
};

/* A run of the request that lies in one part, in the request's order. */
struct dom__frag {
	unsigned part;
	uint64_t offset, len; /* in the part's data */
};

struct dom__plan {
	unsigned parts_count, frags_count;
	struct dom__part *parts;
	struct dom__frag *frags;
	/* where most plans have them; last, so that dom__plan_clear() is cheap */
	struct dom__part part_one;
	struct dom__frag frag_one;
};

/* A read of whole blocks. */
struct dom__fetch {
	struct dom__op *op;
	uint64_t offset, len; /* of the object */
	unsigned left;
	bool used;
	int status;
	uint64_t bad_offset;
	struct sgl *sgl; /* out */
	struct dom__plan plan; /* last, for dom__fetch_clear() */
};

enum dom__op_kind {
	DOM__READ,
	DOM__WRITE,
	DOM__UNMAP,
	DOM__COMPARE,
	DOM__OR,
	DOM__MAP,
	DOM__RESERVE,
};

enum dom__op_stage {
	DOM__PARKED, /* the owner does not serve now */
	DOM__THROTTLED, /* over the policy's limit (qos.c) */
	DOM__LOCKING, /* waits for its range */
	DOM__RUNNING, /* passed the reservation check */
	DOM__WAITING, /* running, but waits for pages or for the window */
	DOM__ENDING, /* its status is known; the callback is deferred */
};

struct dom__op {
	struct dom__owner *owner;
	struct dom_object *object;
	struct dom_io *io; /* NULL: answered already */
	enum dom__op_kind kind;
	enum dom__op_stage stage;
	unsigned flags, retries;
	uint64_t generation; /* of the nexus; 0: internal */
	uint64_t offset, len, deadline_ns;
	uint64_t since_ns; /* it waits, since; 0: internal, or it has run */
	uint64_t pr_epoch; /* the reservation it was checked against */
	struct sgl *sgl, *compare;
	const struct dom_pr *pr;
	struct dom__range range;
	bool locked; /* in owner->locks, held or waiting */
	bool counted; /* in owner->running */
	bool sync; /* inside dom__op_run(): an end is deferred */
	bool prepared; /* a record of it may be in a log, of any epoch */
	bool aborted; /* by a PREEMPT: it does not run in another epoch */
	bool tail; /* behind the end: dom__unmap_tail() */
	uint64_t order; /* of admission */
	int status;
	struct env_task task;

	unsigned fetches_left;
	struct sgl *out; /* whole blocks, ready for the log */
	unsigned parts_left;
	int undo_status;
	uint32_t *crcs;
	struct page_waiter pages;
	bool pages_waiting, window_waiting;
	bool space_told; /* its disks know of all that was decided */

	struct lsom_version *versions;
	uint64_t map_len, map_run; /* known so far; of the scan under way */
	unsigned map_leaf, map_steps;
	bool map_mapped;
	/* owner->parked, ->throttled, ->window or ->pr_queue */
	TAILQ_ENTRY(dom__op) wait_link;
	TAILQ_ENTRY(dom__op) link; /* owner->ops */
	/* What follows dom__op_reset() clears at its end, where it must be. */
	struct dom__cm_scan scan;
	struct dom__fetch fetch[2];
	struct dom__plan plan;
	uint32_t crcs_few[64];
};
TAILQ_HEAD(dom__op_list, dom__op);

enum dom__owner_state {
	DOM__DOWN,
	DOM__TAKING,
	DOM__READY,
	DOM__RELEASING,
};

struct dom__takeover;

/* What a component once told this daemon; kept while its owner lives. */
struct dom__known {
	struct uuid cid;
	uint64_t oepoch, recorded_lsn, durable_lsn;
};

struct dom__owner {
	struct dom *dom;
	struct uuid oid;
	enum dom__owner_state state;
	bool deleted, restart, linger;
	bool renew; /* another epoch, once the takeover has ended */
	bool resizing; /* one at a time */
	bool hold; /* start nothing: somebody waits for quiet */
	int down_status; /* why it is DOWN */
	unsigned handles; /* dom_object's and internal references */
	uint32_t oepoch;
	uint64_t csn, size_bytes;
	bool thick; /* all its size is reserved */
	struct dom__tree *tree;
	struct dom__peer *peers; /* one per leaf */
	struct dom__group *groups; /* one per leaf: no mirrors yet */
	unsigned leaves;
	struct dom__known *known; /* of the leaves before, or NULL */
	unsigned known_count;
	bool lossy; /* a leaf lost what it had acknowledged */

	struct dom__locks locks;
	struct dom__op_list ops, parked, window;
	unsigned ops_count;
	uint64_t congestion_number; /* the last change that was told */
	unsigned running; /* operations, and a resize's look at what it cuts */
	uint64_t ops_order;
	TAILQ_HEAD(dom__parts, dom__part) retries;
	struct env_timer retry_timer; /* parts that lsom was too busy for */
	struct env_timer decided_timer; /* tell components, when idle */
	struct env_timer tick_timer; /* deadlines */
	struct env_timer linger_timer; /* keep an unused owner a little */
	struct env_timer again_timer; /* after a takeover that failed */
	bool retry_armed, decided_armed, tick_armed, again_armed;
	bool space_short; /* the first in @window waits for space */
	uint64_t window_pass; /* looks at @window */
	struct env_task step_task;

	struct dom__takeover *takeover;
	struct cmmds_command release;
	struct dom__resize *resize;
	struct dom__cut *cut; /* that the resize waits for */

	/* reservations */
	struct dom_reservation reservation;
	uint64_t reservation_revision, pr_epoch;
	bool reservation_swp;
	bool spc2_void; /* the SPC-2 holder that the directory has has ended */
	struct dom__pr_job *pr_job;
	struct dom__op_list pr_queue;
	TAILQ_HEAD(, dom_nexus) nexuses; /* logged in here */
	unsigned nexuses_closing;
	struct env_task nexus_task;

	TAILQ_HEAD(, dom_object) objects;
	TAILQ_HEAD(, dom_object_open) opens;
	struct env_task event_task;
	unsigned events; /* bits of enum dom_event */

	struct dom__qos qos;
	struct dom__op_list throttled; /* in order of admission */
	struct env_timer qos_timer;
	bool qos_armed;

	struct dom__op_list op_pool;
	unsigned op_pool_count;
	TAILQ_ENTRY(dom__owner) link;
	struct dom__owner *chain; /* of its bucket */
	TAILQ_ENTRY(dom__owner) busy_link; /* while it has operations */
	bool late; /* it is one of dom->late */
	TAILQ_ENTRY(dom__owner) late_link;
};

struct dom__far;

struct dom_object {
	struct dom *dom;
	struct uuid oid;
	struct dom__owner *owner; /* NULL: on another shard, by @far */
	struct dom__far *far;
	struct dom__far *told; /* that of another shard, which this is for */
	unsigned ops;
	TAILQ_HEAD(, dom_watch) watches;
	TAILQ_ENTRY(dom_object) link;
};

/* owner.c: the life of an owner */
struct dom__owner *dom__owner_find(struct dom *dom, const struct uuid *oid);
struct dom__owner *dom__owner_get(struct dom *dom, const struct uuid *oid);
void dom__owner_put(struct dom__owner *owner);
void dom__owner_open(struct dom__owner *owner, struct dom_object_open *req);
void dom__owner_step(struct dom__owner *owner); /* deferred */
/* So it is for one of very many: some of them in a turn. */
void dom__owner_step_late(struct dom__owner *owner);
void dom__owner_lost(struct dom__owner *owner); /* fenced: take over again */
void dom__owner_renew(struct dom__owner *owner); /* with another epoch */
void dom__owner_event(struct dom__owner *owner, enum dom_event event);
void dom__owner_drop_leaves(struct dom__owner *owner);
const struct dom__known *dom__known_find(const struct dom__owner *owner,
					 const struct uuid *cid);
bool dom__owner_uses_disk(const struct dom__owner *owner,
			  const struct dom__disk *disk);
void dom__takeover_done(struct dom__owner *owner, int status);

/* takeover.c */
int dom__takeover_start(struct dom__owner *owner);

/* takeover_decide.c */
void dom__participant_pack(struct uuid *out, uint64_t lsn, uint64_t offset,
			   uint64_t len);
void dom__participant_unpack(const struct uuid *in, uint64_t *lsn,
			     uint64_t *offset, uint64_t *len);
/*
 * Decide all that is undecided on the leaves, which are sealed.  0: @cb runs
 * once with 0 or -ENXIO and how many they were; inside this call if nothing has
 * to be waited for, as its callers are callbacks themselves.  Or -ENOMEM.
 */
int dom__decide_start(struct dom__owner *owner, uint64_t patience_ns,
		      void (*cb)(void *arg, int status, unsigned count),
		      void *arg);

/* takeover_fit.c */
#define DOM__BUSY_NS (1 * MSEC)
int dom__fit_start(struct dom__owner *owner, uint64_t patience_ns,
		   void (*cb)(void *arg, int status), void *arg);

/* op.c: an operation's life */
struct dom__op *dom__op_new(struct dom__owner *owner);
void dom__op_submit(struct dom__op *op);
void dom__op_finish(struct dom__op *op, int status);
void dom__op_fail_parked(struct dom__owner *owner, int status);
void dom__op_start_parked(struct dom__owner *owner);
void dom__op_start(struct dom__op *op); /* the limit lets it pass */
void dom__op_park(struct dom__op *op);
void dom__op_cancel(struct dom__op *op, int status);
void dom__op_expire(struct dom__owner *owner);
bool dom__op_stoppable(const struct dom__op *op);
bool dom__op_allowed(const struct dom__op *op);
void dom__op_pool_free(struct dom__owner *owner);

/* qos.c: the owner's side of it */
void dom__qos_load(struct dom__owner *owner); /* from policy and directory */
bool dom__qos_passes(struct dom__op *op); /* or it waits in ->throttled */
void dom__qos_stop(struct dom__owner *owner);

/* owner_io.c: reading blocks */
void dom__op_run(struct dom__op *op);
void dom__op_reset(struct dom__op *op); /* drop what running gathered */
bool dom__op_expired(const struct dom__op *op);
bool dom__session_valid(struct dom__op *op);
void dom__part_retry(struct dom__part *part);
void dom__retry_later(struct dom__owner *owner);
void dom__retries_run(struct dom__owner *owner);

/* owner_write.c: writing them */
void dom__op_merge(struct dom__op *op);
bool dom__op_atomic(const struct dom__op *op);
void dom__part_submit(struct dom__part *part);
void dom__credits_drop(struct dom__op *op);
void dom__window_kick(struct dom__owner *owner);

/* owner_decide.c: what became of a write */
void dom__op_part_settled(struct dom__op *op);
void dom__part_undo(struct dom__part *part);
void dom__decided_push(struct dom__owner *owner);

/* owner_map.c */
void dom__map_start(struct dom__op *op);
void dom__map_step(struct dom__op *op);

/* plan.c: what of a request goes where */
int dom__plan_make(struct dom__plan *plan, const struct dom__tree *tree,
		   uint64_t offset, uint64_t len);
int dom__plan_alloc(struct dom__plan *plan, unsigned parts, unsigned frags);
void dom__part_init(struct dom__part *part, const struct dom__extent *run);
void dom__plan_fini(struct dom__plan *plan);

static inline void dom__plan_clear(struct dom__plan *plan)
{
	memset(plan, 0, offsetof(struct dom__plan, part_one));
}

static inline void dom__fetch_clear(struct dom__fetch *fetch)
{
	memset(fetch, 0, offsetof(struct dom__fetch, plan));
	dom__plan_clear(&fetch->plan);
}

/* merge.c: whole blocks out of what a command brought */
unsigned dom__merge_edges(const struct dom__op *op, uint64_t blocks[2]);
int dom__merge(struct dom__op *op, size_t *pages_wanted);

/* owner_pr.c */
void dom__pr_start(struct dom__op *op);
void dom__pr_dropped(struct dom__op *op);
void dom__pr_op_ended(struct dom__owner *owner);
void dom__pr_expire(struct dom__owner *owner);
bool dom__pr_idle(const struct dom__owner *owner);
int dom__pr_load(struct dom__owner *owner, bool nexuses_lost);
void dom__nexus_op_ended(struct dom__owner *owner);
struct dom_nexus *dom__nexus_find(struct dom__owner *owner,
				  uint64_t generation);

/* far.c: an object of another shard */

/* What a handle elsewhere shows of it. */
struct dom__far_state {
	uint64_t size_bytes;
	uint32_t stripe_bytes;
	unsigned congestion;
	bool lossy;
	uint64_t kept_bytes; /* reserved for it, and not used */
	struct dom_reservation reservation;
	struct uuid *disks; /* under it */
	unsigned disks_count;
};

struct dom__far_nexus {
	struct dom_nexus shadow; /* the owner's */
	struct dom_nexus *nexus; /* here */
	uint64_t generation; /* here */
	struct dom__far *far;
	struct env_task task, close;
	TAILQ_ENTRY(dom__far_nexus) here, there;
};

struct dom__far {
	struct dom_object object; /* the handle, here */
	struct dom *dom; /* there */
	struct dom_object_open *req;
	struct env_task task, look_task;
	atomic_bool looking;
	int status;
	bool closing;

	/* here */
	struct dom__far_state state;
	TAILQ_HEAD(, dom__far_nexus) nexuses;

	/* there */
	struct dom_object_open open;
	struct dom_object *real;
	struct dom_watch watch;
	TAILQ_HEAD(, dom__far_nexus) shadows;
};

/* Is this object's owner to be on this shard? */
bool dom__mine(const struct dom *dom, const struct uuid *oid);
/* NULL: its shard is coming up. */
struct dom *dom__part(struct dom *dom, unsigned part);
struct dom *dom__of(struct dom *dom, const struct uuid *oid);
int dom__far_open(struct dom *dom, struct dom_object_open *req);
void dom__far_close(struct dom__far *far);
void dom__far_nexus_open(struct dom__far *far, struct dom_nexus *nexus);
void dom__far_nexus_close(struct dom__far *far, struct dom_nexus *nexus,
			  void (*cb)(void *arg), void *arg);
struct dom__far_nexus *dom__far_nexus_find(struct dom__far *far,
					   uint64_t generation);
/* There: what the handle should know, and @events (bits), on their way. */
void dom__far_tell(struct dom__far *far, unsigned events);
void dom__far_tell_all(struct dom__owner *owner); /* every such handle */
/* What is kept for it, as it was heard; asks for news. */
uint64_t dom__far_kept(struct dom__far *far);
/* Does @disk lie under the object, as it was heard? */
bool dom__far_uses_disk(const struct dom__far *far,
			const struct dom__disk *disk);

/* far_io.c: requests on it */

struct dom__args {
	enum dom__op_kind kind;
	uint64_t offset, len;
	struct sgl *sgl, *compare; /* shared */
	unsigned flags;
	const struct dom_pr *pr;
};
int dom__far_submit(struct dom_object *object, struct dom_io *io,
		    const struct dom__args *args, dom_io_cb cb);
void dom__far_cancel(struct dom_io *io);
/* 0: dom__resize_end(), later; or -ESHUTDOWN, -ENOMEM. */
int dom__far_resize(struct dom *dom, struct dom_resize *req);

/* client.c */
bool dom__object_uses_disk(const struct dom_object *object,
			   const struct dom__disk *disk);
int dom__unmap_tail(struct dom_object *object, struct dom_io *io, dom_io_cb cb);

/* ---- dom.c ---- */

struct dom__disk {
	struct dom *dom;
	struct lsom_disk *lsom;
	struct uuid id;
	unsigned shard; /* its home */
	struct lsom_disk_watch watch;
	uint8_t congestion; /* of all kinds */
	uint8_t pressed; /* of all but the room that is for anybody */
	bool low_space, removing, healthy, silent;
	bool freeing; /* what was deleted has not given back all its space */
	unsigned metas; /* creations under way */
	unsigned deleting; /* by gc */
	bool deletions_failed; /* of those, one has */
	uint64_t drop_refused; /* the drop that failed here last */
	uint64_t used_bytes, usable_bytes, kept_bytes;
	struct dom__placed *placed;
	unsigned components;
	TAILQ_HEAD(, dom__cm) cms;
	struct dom__cm *cms_by_id[DOM__BUCKETS];
	void (*removed)(void *arg);
	void *removed_arg;
	TAILQ_ENTRY(dom__disk) link;
};

/*
 * What the directory has on a disk, in service or not, as its entries come and go: so
 * nobody looks at all of them when the disk comes.
 */
struct dom__placed {
	struct uuid disk;
	unsigned number; /* also where it goes and comes back */
	uint64_t promised_bytes; /* sizes of the components of objects */
	uint64_t uncreated_bytes; /* of those, what will be kept */
	TAILQ_ENTRY(dom__placed) link;
	unsigned components[]; /* by their objects' shards; tombstones', too */
};

/* In a turn of the loop: components, or objects. */
#define DOM__PART 128u

/*
 * Owners that take a step for a disk that comes or goes, and how soon others do: each
 * has the directory take a command, and those that gather there are applied at once.
 */
#define DOM__LATE_PART 32u
#define DOM__LATE_NS MSEC

/* How far a walk over all components is, some of them in each turn. */
struct dom__walk {
	struct dom__disk *disk; /* of those that are just visited */
	unsigned number; /* of the disk */
	unsigned place; /* there */
};

/* Components whose data is lost, and the object of one of them. */
struct dom__lost {
	unsigned count;
	struct uuid oid;
};

/* The same, for another shard to read. */
struct dom__lost_shared {
	_Atomic unsigned count;
	_Atomic uint64_t oid[2];
};

/* All that a look has found. */
struct dom__loss {
	struct dom *dom;
	unsigned looked_at; /* components, and objects */
	struct dom__lost lossy, gone, newer;
	bool damaged; /* the log; lsom knows which blocks */
};

/* A look in parts, and where it goes on. */
struct dom__data_look {
	bool afresh; /* from the beginning, as disks came or went */
	bool objects; /* they are next */
	struct dom__walk walk;
	struct uuid object; /* the last one */
	size_t object_len; /* 0: none yet */
	struct dom__loss found;
};

struct dom {
	struct env *env;
	struct cmmds *cmmds;
	struct lsom *lsom;
	struct uuid node;
	uint64_t rules_off;
	unsigned part, parts;
	struct dom *const *all;
	uint64_t generation; /* of the last nexus */
	bool closing;
	void (*closed)(void *arg);
	void *closed_arg;
	struct env_task task;
	unsigned jobs; /* of callers who are answered later */
	TAILQ_HEAD(, dom_turn) turns; /* the first has it */
	struct env_task turn_task;
	struct env_timer turn_timer; /* for the others */
	struct dom_turn untold; /* of one whose end is not to be seen yet */
	struct dom *untold_there; /* ... by this one, which waits for @told */
	struct cmmds_barrier told;
	struct env_task told_task;
	unsigned told_at; /* a shard that @told_task comes by */
	struct cmmds_subscription objects_sub, policies_sub, disks_sub;
	bool objects_told; /* the directory has begun to tell of them */
	TAILQ_HEAD(, dom__placed) placed; /* on disks that have something */
	unsigned placed_count;
	bool placed_lost; /* or had no memory: those not there are to count */
	uint64_t provisioned_bytes, reserved_bytes; /* by the directory */
	struct health_check data_check; /* of the first shard, for all */
	/* What the first shard's check looks at; not exact to the moment. */
	struct dom__lost_shared lossy, gone, newer;
	atomic_bool damaged, look_asked;
	struct env_task look_task;
	struct env_timer look_timer;
	uint64_t look_next_ns; /* not before */
	bool look_waits; /* for that */
	bool looking;
	struct dom__data_look look; /* then */
	struct env_timer look_part_timer;
	struct dom__loss looked; /* what it found, at looked_ns */
	uint64_t looked_ns; /* 0: never */
	TAILQ_HEAD(, dom_data_look) looks; /* who waits; the first shard's */
	struct log_limit gone_log;
	struct dom__gc *gc;
	TAILQ_HEAD(, dom__disk) disks;
	TAILQ_HEAD(, dom__owner) owners;
	struct dom__owner *owners_by_id[DOM__BUCKETS];
	TAILQ_HEAD(, dom__owner) busy; /* those with operations */
	TAILQ_HEAD(, dom__owner) late; /* those that are to take a step */
	struct env_timer late_timer;
	uint64_t congestion_number; /* changes of it, on any disk */
};

struct dom__disk *dom__disk_find(struct dom *dom, const struct uuid *id);
void dom__disk_look(struct dom__disk *disk);
/*
 * Visit about @max of the components of all disks in service.  False: there are no
 * more.  A walk that began with zeros sees all that are there from its beginning to
 * its end, and none twice, whatever comes or goes meanwhile.
 */
bool dom__walk(struct dom *dom, struct dom__walk *walk, unsigned max,
	       void (*cb)(struct lsom_comp *comp, void *arg), void *arg);
void dom__kick(struct dom *dom); /* look again whether a close can finish */

/* True while rule R@n of replication.md is on. */
static inline bool dom__rule(const struct dom *dom, unsigned n)
{
	return (dom->rules_off >> n & 1) == 0;
}

static inline bool dom__uuid_of(const ProtobufCBinaryData *bytes,
				struct uuid *out)
{
	if (bytes->len != sizeof(out->b))
		return false;
	memcpy(out->b, bytes->data, sizeof(out->b));
	return true;
}

/* health.c: the check "object-data" */
void dom__health_open(struct dom *dom);
void dom__health_look(struct dom *dom); /* soon, for the first shard */
bool dom__health_idle(struct dom *dom); /* while closing */
void dom__health_close(struct dom *dom);

/* gc.c: components that are named no more, and entries whose components are gone */
int dom__gc_open(struct dom *dom);
void dom__gc_kick(struct dom *dom); /* anything may have to go */
void dom__gc_look(struct dom *dom, const struct uuid *oid); /* of that object */
bool dom__gc_idle(const struct dom *dom);
/* May something be to go yet, of a disk that would let it go soon? */
bool dom__gc_pending(struct dom *dom);
void dom__gc_close(struct dom *dom);
/* On the shard of @drop->oid; dom__dropped() there, later, once. */
void dom__gc_drop(struct dom *dom, struct dom_drop *drop);
bool dom__leaf_named(const Directory__TreeNode *tree,
		     const struct lsom_comp_meta *meta);

/* stray.c: components that the directory does not know, or knows of old */
void dom__dropped(struct dom_drop *drop);
bool dom__stray(const struct dom *dom, const struct lsom_comp_meta *meta,
		bool *known);

/* room.c */
struct dom__look {
	struct clom_snapshot clom;
	struct clom_disk *disks; /* free() it */
};
void dom__promises_change(struct dom *dom, const struct cmmds_change *change);
/* Of a disk that comes; NULL: there is no memory for that. */
struct dom__placed *dom__promises_look(struct dom *dom,
				       const struct uuid *disk);
struct dom__placed *dom__placed_find(struct dom *dom, const struct uuid *disk);
/* What clom looks at, for an object @oid.  0, -ENOMEM. */
int dom__look(struct dom *dom, const struct uuid *oid, struct dom__look *look);
#define DOM__TURN_NS (60 * SEC) /* longer than most have it (cmmds/propose.c) */
/*
 * True: go on.  False: @cb, with 0 when it is @turn's; -EBUSY: those before it
 * took too long; -ESHUTDOWN.
 */
bool dom__turn_take(struct dom *dom, struct dom_turn *turn,
		    void (*cb)(struct dom_turn *turn, int status));
void dom__turn_why(char *why, size_t len, int status);
/*
 * Who has @turn found no room, and *@status says so.  True: the turn's callback
 * comes once more, when what was deleted has given its space back, or that takes
 * too long.  False: it came; then, if it took too long, *@status is -EBUSY, with
 * @why.
 */
bool dom__turn_again(struct dom *dom, struct dom_turn *turn, int *status,
		     char *why, size_t len);
/* Also of one that took none: its @mine is false. */
void dom__turn_end(struct dom *dom, struct dom_turn *turn);
/*
 * The same of one that ends with @status.  Unknown: what it reserves for @oid may be
 * in the directory yet, so nobody looks before that is to be seen.
 */
void dom__turn_pass(struct dom *dom, struct dom_turn *turn,
		    const struct uuid *oid, int status);

/* space.c */
/*
 * What a leaf has mapped and what is kept for it; 0.  -ENXIO: its disk is away;
 * -ENODATA: it is being counted.
 */
int dom__leaf_space(struct dom *dom, const Directory__Leaf *leaf,
		    uint64_t *used_bytes, uint64_t *kept_bytes);
/* Tell lsom what is reserved for @object: for its leaves on @disk, NULL: all. */
void dom__space_reserve(struct dom *dom, const Directory__Object *object,
			const struct dom__disk *disk);
uint64_t dom__owner_kept(const struct dom__owner *owner);

/* cut.c */
/*
 * Is anything written behind @size_bytes, counted in whole blocks?  The owner is
 * quiet.  @cb, maybe inside this call: 0 or -ENOTEMPTY; -ESTALE: fenced, the owner
 * takes over again; -EBUSY (components were too busy for long), -EIO, -ENOMEM ...
 */
void dom__cut_check(struct dom__owner *owner, uint64_t size_bytes,
		    void (*cb)(struct dom__owner *owner, int status));
/* @cb is not called any more. */
void dom__cut_forget(struct dom__owner *owner);
/*
 * Of a closed object: has nothing come into being of what @tree does not have any
 * more?
 */
bool dom__cut_is_void(struct dom *dom, const Directory__Object *object,
		      const Directory__TreeNode *tree);

/* create.c */
/*
 * @tree was chosen by the disks as they are listed now.  One of them may go
 * before the command is applied, and then the command must not hold.
 */
void dom__disks_expect(struct dom *dom, struct cmmds_command *cmd,
		       const Directory__TreeNode *tree);
void dom__id_make(void *arg, struct uuid *out); /* for clom; @arg: the dom */
/* True: @again runs a little later.  False: @status is what it ends with. */
bool dom__busy(struct dom *dom, struct dom__patience *p, int status,
	       void (*again)(struct env_timer *timer));

/* resize.c */
void dom__resize_quiet(struct dom__owner *owner); /* nothing runs: go on */
void dom__resize_taken(struct dom__owner *owner, int status);
void dom__resize_end(struct dom_resize *req, int status);
/* As dom_resize(), for the shard that was asked: the turn is taken there. */
int dom__resize_there(struct dom *dom, struct dom_resize *req,
		      dom_resize_cb cb);

/* counters (dom.c) */
extern struct counter dom__reads, dom__writes, dom__read_bytes,
	dom__write_bytes, dom__unmaps, dom__merges, dom__conflicts,
	dom__timeouts, dom__takeovers;
extern struct histogram dom__waits;

#endif
