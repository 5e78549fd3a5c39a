/*
 * cmmds: cluster monitoring, membership and directory service.
 *
 * Lives here: the directory, the whole of it in memory on every node, made
 * equal by consensus (libraft's pure core driven through raft_step()); its log,
 * votes and snapshots in a RocksDB of their own.
 * Called by:  dom and node, on the loop of shard 0; on other shards through a
 *             mirror.
 * May touch:  its own store through env.h's kv, on a lane of its own; peers
 *             through rdt, once there are any.
 *
 * An entry is (kind, key) -> (revision, value); values are the messages of
 * proto/directory.proto, packed.  Entries change only by commands: every change
 * names the revision it expects, all changes of a command happen or none, and a
 * repeated command (same client, incarnation, sequence) is applied once.
 *
 * The directory is pushed: subscribers hear of changes as they are applied, in
 * order.  Reading is local and stale by up to the replication delay; what must
 * not be stale goes through cmmds_barrier() first.
 */
#ifndef BASALT_CMMDS_CMMDS_H
#define BASALT_CMMDS_CMMDS_H

#include "base/env.h"
#include "base/uuid.h"
#include "proto/directory.pb-c.h"

enum cmmds_kind {
	CMMDS_CLUSTER = 1, /* key: "" */
	CMMDS_NODE, /* key: uuid */
	CMMDS_DISK, /* key: uuid */
	CMMDS_POLICY, /* key: name */
	CMMDS_OBJECT, /* key: oid */
	CMMDS_VDISK, /* key: name */
	CMMDS_TARGET, /* key: name */
	CMMDS_LUN, /* key: target name, NUL, lun as 2 bytes big endian */
	CMMDS_RESERVATION, /* key: oid */
	CMMDS_EVENT, /* key: sequence, 8 bytes big endian; oldest go */
	CMMDS_TASK, /* key: uuid */
	CMMDS_KINDS
};

#define CMMDS_KEY_MAX 255u
#define CMMDS_VALUE_MAX (256u << 10)
#define CMMDS_EVENTS_MAX 1000u
#define CMMDS_SCRUB_DAYS_MAX 3650u

/*
 * The newest Cluster.feature_level this program knows: it writes nothing above
 * the directory's, and does not open a directory above this.
 */
#define CMMDS_FEATURE_LEVEL 1u

struct cmmds;

struct cmmds_config {
	struct env *env;
	const char *path; /* of the store: data_dir/directory */
	struct uuid node;
	uint64_t incarnation; /* of this run of the daemon; rises, never 0 */
	/*
	 * Found a new cluster with this node as its only voter: the store must
	 * be empty.  Otherwise it must not be.
	 */
	bool found;
	/*
	 * Of log before a snapshot; half of the last one where that is more.
	 * 0: 4 MiB.
	 */
	unsigned snapshot_bytes;
	/*
	 * The store failed, or raft refused to go on: nothing is applied or
	 * answered any more, the session is invalid, and the process should
	 * end.  Called once, later, on the loop.  May be NULL.
	 */
	void (*failed)(void *arg, int status, const char *why);
	void *failed_arg;
};

/*
 * Open; @cb when the local state is loaded and, for a single voter, it leads
 * and every committed entry is applied.  0; -ENOENT (no store and not to
 * found one), -EEXIST (the reverse), -EUCLEAN, -EMEDIUMTYPE (of a newer
 * program), -ESTALE (@incarnation is of an earlier run), -EIO.
 */
struct cmmds_open {
	void *data;
	struct cmmds *opened; /* out */
	char why[256]; /* out, on failure: what and what to do */
	/* private */
	struct cmmds_config config;
	void (*cb)(struct cmmds_open *req, int status);
	void *impl[4];
};
typedef void (*cmmds_open_cb)(struct cmmds_open *req, int status);
int cmmds_open(const struct cmmds_config *config, struct cmmds_open *req,
	       cmmds_open_cb cb);

/* Proposals in flight get -ESHUTDOWN; @cb when the store is closed. */
void cmmds_close(struct cmmds *cmmds, void (*cb)(void *arg), void *arg);

/*
 * The directory for another shard: a copy of the kinds that the data path reads
 * (cluster, nodes, disks, policies, objects, reservations), kept up to date by
 * message.  Reading, subscribing, cmmds_propose(), cmmds_barrier() and the
 * session work on it as on the directory itself, on @env's loop; a change that
 * was answered is in it.  What cmmds_propose() and cmmds_barrier() return at once
 * on shard 0 comes as status here, but -EBUSY: that is tried again for as long as
 * a proposal may take.
 *
 * Called on the loop of @home, which outlives it; it may be used in whatever is
 * posted to @env from now on.
 */
struct cmmds *cmmds_mirror_open(struct cmmds *home, struct env *env);

/* On the loop of the directory.  Nothing may be in flight; @cb there, later. */
void cmmds_mirror_close(struct cmmds *mirror, void (*cb)(void *arg), void *arg);

/* ---- reading, local ---- */

struct cmmds_entry {
	enum cmmds_kind kind;
	const uint8_t *key;
	size_t key_len;
	uint64_t revision;
	const uint8_t *value; /* packed */
	size_t value_len;
	/*
	 * The unpacked message of the kind, made once and owned by the entry.
	 * An entry and all it points to live until the next change is applied,
	 * so do not keep it across callbacks.
	 */
	const ProtobufCMessage *message;
};

const struct cmmds_entry *cmmds_get(struct cmmds *cmmds, enum cmmds_kind kind,
				    const void *key, size_t key_len);

/* In key order; NULL starts, NULL ends; @after is there. */
const struct cmmds_entry *cmmds_next(struct cmmds *cmmds, enum cmmds_kind kind,
				     const struct cmmds_entry *after);

/* The first behind @key, which need not be there; NULL: none. */
const struct cmmds_entry *cmmds_behind(struct cmmds *cmmds,
				       enum cmmds_kind kind, const void *key,
				       size_t key_len);

/* How many there are. */
unsigned cmmds_count(const struct cmmds *cmmds, enum cmmds_kind kind);

/*
 * Those of @kind that belong to @what, in key order: the CMMDS_VDISK of an object
 * (its id), the CMMDS_TARGET of an iSCSI name, the CMMDS_LUN of a virtual disk (its
 * name).  NULL starts and ends; @after is one of them.
 */
const struct cmmds_entry *cmmds_of(struct cmmds *cmmds, enum cmmds_kind kind,
				   const void *what, size_t len,
				   const struct cmmds_entry *after);

/* The LUNs of @target, in the same way. */
const struct cmmds_entry *cmmds_under(struct cmmds *cmmds, const char *target,
				      const struct cmmds_entry *after);

/* Typed look-ups that everybody needs. NULL: no such entry. */
const Directory__Object *cmmds_object(struct cmmds *cmmds,
				      const struct uuid *oid);
const Directory__VDisk *cmmds_vdisk(struct cmmds *cmmds, const char *name);
const Directory__Policy *cmmds_policy(struct cmmds *cmmds, const char *name);
const Directory__Target *cmmds_target(struct cmmds *cmmds, const char *name);

/* ---- changing ---- */

/*
 * A command: build it with the calls below, propose it once.
 *
 * Status: 0: applied.  -EAGAIN: an expectation did not hold; nothing changed:
 * read again and decide anew.  -EINVAL: a rule of the kind was broken (@why).
 * -EEXIST / -ENOENT: expected not to exist / to exist.  -EMSGSIZE.
 * -EPROTO.  -ESTALE: of an earlier incarnation, or asked again too late to
 * know.  -ETIMEDOUT: *unknown*: it may be applied yet; ask again with the same
 * request id by cmmds_propose_again().  -EIO: the directory has failed; unknown
 * too.
 * -ESHUTDOWN.  At once: -EBUSY (queue full), -EMSGSIZE and -EINVAL (built
 * wrongly, @why), -ESHUTDOWN, -EIO.
 *
 * Rules beside the revisions: entries are sound by themselves and refer only to
 * what exists when the whole command is done (cmmds/rules.c); an OBJECT is put
 * once with no owner, changes by object ops (cmmds/rules_object.c), and is
 * erased only after DELETE, its RESERVATION with it.
 */
struct cmmds_command {
	void *data;
	/* out */
	uint64_t revision; /* of the directory after it */
	char why[128];
	/* private */
	struct cmmds *cmmds;
	Directory__Command *message;
	uint64_t deadline_ns;
	void (*cb)(struct cmmds_command *cmd, int status);
	TAILQ_ENTRY(cmmds_command) link;
	int built; /* the first error of building */
	uint8_t *packed;
	size_t packed_len;
	uint64_t index; /* in the log; 0: not submitted */
	void *hop; /* of a mirror */
};
typedef void (*cmmds_command_cb)(struct cmmds_command *cmd, int status);

void cmmds_command_init(struct cmmds_command *cmd);
void cmmds_command_fini(struct cmmds_command *cmd);

#define CMMDS_MUST_NOT_EXIST 0ull
#define CMMDS_ANY UINT64_MAX

/* Put the packed @message; the entry must have revision @expect. */
void cmmds_put(struct cmmds_command *cmd, enum cmmds_kind kind, const void *key,
	       size_t key_len, uint64_t expect,
	       const ProtobufCMessage *message);
void cmmds_erase(struct cmmds_command *cmd, enum cmmds_kind kind,
		 const void *key, size_t key_len, uint64_t expect);
void cmmds_expect(struct cmmds_command *cmd, enum cmmds_kind kind,
		  const void *key, size_t key_len, uint64_t expect);

/* Copied.  See proto/directory.proto for the fields each op reads. */
void cmmds_object_op(struct cmmds_command *cmd,
		     const Directory__ObjectCommand *op);

/* Move all that was built in @from to @to; @from is left empty. */
void cmmds_command_take(struct cmmds_command *to, struct cmmds_command *from);

/* An audit line: who did what. */
void cmmds_audit(struct cmmds_command *cmd, const char *who, const char *fmt,
		 ...) __attribute__((format(printf, 3, 4)));

/* @timeout_ms 0: 10 s. */
int cmmds_propose(struct cmmds *cmmds, struct cmmds_command *cmd,
		  unsigned timeout_ms, cmmds_command_cb cb);
int cmmds_propose_again(struct cmmds_command *cmd, unsigned timeout_ms,
			cmmds_command_cb cb);

/* @cb once everything committed before this call is applied here. */
struct cmmds_barrier {
	void *data;
	/* private */
	struct cmmds *cmmds;
	uint64_t deadline_ns;
	void (*cb)(struct cmmds_barrier *req, int status);
	TAILQ_ENTRY(cmmds_barrier) link;
	uint64_t index, term; /* what it waits for; 0: not submitted */
	void *hop; /* of a mirror */
};
typedef void (*cmmds_barrier_cb)(struct cmmds_barrier *req, int status);
int cmmds_barrier(struct cmmds *cmmds, struct cmmds_barrier *req,
		  cmmds_barrier_cb cb);

/* ---- hearing ---- */

struct cmmds_change {
	enum cmmds_kind kind;
	const struct cmmds_entry *old_entry; /* NULL: it is new */
	const struct cmmds_entry *new_entry; /* NULL: it is gone */
};

/*
 * From subscribing on: first every present entry of @kind as new, then each
 * change as it is applied, in order; both later, on the loop.  Entries are good
 * during the callback.  cmmds_unsubscribe() may be called in it.
 */
struct cmmds_subscription {
	void *data;
	enum cmmds_kind kind;
	void (*cb)(struct cmmds_subscription *sub,
		   const struct cmmds_change *change);
	/* private */
	struct cmmds *cmmds;
	TAILQ_ENTRY(cmmds_subscription) link;
	bool primed;
};
void cmmds_subscribe(struct cmmds *cmmds, struct cmmds_subscription *sub);
void cmmds_unsubscribe(struct cmmds_subscription *sub);

/* ---- session and state ---- */

/*
 * True while this node's session is valid by its own clock (g1.2).  A single
 * voter's session is valid while it leads.
 */
bool cmmds_session_valid(struct cmmds *cmmds);
uint64_t cmmds_incarnation(const struct cmmds *cmmds);

struct cmmds_info {
	bool leader;
	int wants; /* what its store lacks, kv_wants(): changes wait for it; or 0 */
	uint64_t term, commit_index, applied_index, revision;
	unsigned voters, standbys;
	uint64_t store_id;
	uint64_t snapshot_index, log_entries, log_bytes;
};
void cmmds_info(struct cmmds *cmmds, struct cmmds_info *out);

/* ---- a copy ---- */

/*
 * Make a store at @path, where nothing is, that holds what this one does: all that
 * was answered before the call, and as a node would find it that was stopped.  Not
 * of a mirror.  @cb later, maybe later than cmmds_close()'s: 0, and it is durable;
 * -EUCLEAN (the store is damaged, @why says how), -ENOSPC, -EIO, -ESHUTDOWN, and
 * what kv_apply() returns.  At once also -EBUSY (another is being read) and -ENOMEM.
 * What is at @path after a failure is the caller's to remove.
 */
struct cmmds_backup {
	void *data;
	const char *path; /* good until @cb */
	char why[256]; /* out, may be empty */
	/* private */
	void (*cb)(struct cmmds_backup *req, int status);
};
typedef void (*cmmds_backup_cb)(struct cmmds_backup *req, int status);
int cmmds_backup(struct cmmds *cmmds, struct cmmds_backup *req,
		 cmmds_backup_cb cb);

#endif
