/*
 * lsom: the log-structured object manager, components on this node's disks.
 *
 * Lives here: the log, its index (RocksDB through kv.h), cleaning, recovery.
 * Called by:  dom's component manager, on the loop of its shard; node opens and
 *             closes disks.
 * May touch:  its own devices and index, through env.h.  Never the network;
 *             placement, epochs and replica choices arrive as arguments.
 *
 * A component is the part of an object that lies on one disk: an array of 4 KiB
 * blocks, each with a version (member_csn, lsn) and a CRC32C of its plaintext.
 * lsom keeps the durable record of the fence (promised oepoch, member_csn,
 * state) for dom and never checks it: dom compares, in the same turn, before it
 * calls (replication.md, FENCE).  But what is not durable yet dom cannot compare
 * with: behind an ATTACH lsom itself refuses the session before.
 *
 * Everything here returns 0 and calls back once, later, on the loop; or returns
 * -errno and never calls back.  A callback may free or reuse its request.
 */
#ifndef BASALT_LSOM_LSOM_H
#define BASALT_LSOM_LSOM_H

#include "base/env.h"
#include "base/sgl.h"
#include "base/uuid.h"

#define LSOM_BLOCK 4096u
#define LSOM_WRITE_MAX (1u << 20) /* bytes of one record */
#define LSOM_WINDOW 1024u /* undecided lsns of a group */
#define LSOM_PARTICIPANTS_MAX 24u

struct lsom;
struct lsom_disk;
struct lsom_comp;

/* lsn = (oepoch:24, seq:40), compared as one integer (g0). */
#define LSN_SEQ_BITS 40
#define LSN(oepoch, seq) ((uint64_t)(oepoch) << LSN_SEQ_BITS | (seq))
#define LSN_OEPOCH(lsn) ((uint32_t)((lsn) >> LSN_SEQ_BITS))
#define LSN_SEQ(lsn) ((lsn) & ((1ull << LSN_SEQ_BITS) - 1))

/*
 * What of a group is decided (g2.2): every lsn <= stable_lsn, and stable_lsn +
 * 1 + i where bit i is set.  Travels with every message of the owner.
 */
struct lsom_decided {
	uint64_t stable_lsn;
	uint64_t g_all; /* every ACTIVE leaf has recorded this much */
	uint64_t hole_floor; /* {HOLE, lsn} entries up to here may go */
	uint8_t committed[LSOM_WINDOW / 8];
};

/* ---- the store of one shard ---- */

struct lsom_config {
	struct env *env;
	size_t page_cache_bytes; /* index pages in memory; 0: 64 MiB */
	unsigned reserve_percent; /* of a disk, for cleaning; 0: 20, least 15 */
	uint64_t
		discard_ns; /* free space goes back to devices so often; 0: no */
	/* Tests switch a rule off, to see that it is missed; else 0. */
	uint64_t rules_off; /* LSOM_OFF_* */
};

#define LSOM_OFF_DURABLE_PREFIX (1u << 0) /* every gap is a torn tail */
#define LSOM_OFF_GENERATION (1u << 1) /* one generation for ever */
#define LSOM_OFF_CARRY (1u << 2) /* the cleaner drops metadata records */
#define LSOM_OFF_REUSE (1u << 3) /* a cleaned segment is free at once */
#define LSOM_OFF_MOVE (1u << 4) /* a move applies wherever the index points */
#define LSOM_OFF_FAIL_STOP (1u << 5) /* R28: a failed log write is no matter */
#define LSOM_OFF_DEDUPE (1u << 6) /* R26: a repeated PREP is a new one */
#define LSOM_OFF_BARRED (1u << 7) /* R41: a late PREP is let in */
#define LSOM_OFF_UNDECIDED (1u << 8) /* R17: what is durable is shown */
#define LSOM_OFF_TAIL (1u << 9) /* R27: replay goes on behind a gap */
#define LSOM_OFF_HOLES (1u << 10) /* R11: entries of holes are not kept */
#define LSOM_OFF_PARTS (1u << 11) /* R16: participants are not recorded */
#define LSOM_OFF_UNDO (1u << 12) /* a recovery keeps what the cleaner began */

int lsom_open(const struct lsom_config *config, struct lsom **out);

/* Every disk must be closed. */
void lsom_close(struct lsom *lsom);

/* ---- disks ---- */

enum lsom_disk_state {
	LSOM_DISK_OPENING,
	LSOM_DISK_ONLINE,
	LSOM_DISK_FULL, /* serves; guest writes get -ENOSPC */
	LSOM_DISK_FAILED, /* fail-stop: every request gets -ENODEV */
};

enum {
	LSOM_CONGESTION_SPACE, /* free segments */
	LSOM_CONGESTION_LOG,
	LSOM_CONGESTION_INDEX,
	LSOM_CONGESTION_MEMORY,
	LSOM_CONGESTION_ROOM, /* for those who were promised none */
	LSOM_CONGESTIONS
};

#define LSOM_SILENT_NS (10 * SEC) /* from then on a disk does not answer */

struct lsom_disk_info {
	struct uuid disk, cluster;
	enum lsom_disk_state state;
	char path[256];
	char failure[160]; /* why, when FAILED */
	int failed_status; /* the same, as an errno below 0; or 0 */
	/*
	 * What there is too little of for its index: why it FAILED, or will in
	 * ten minutes.  0, -ENOSPC, -EMFILE, -ENFILE, -ENOMEM.
	 */
	int index_wants;
	/* It has failed, but not the device: its index has. */
	bool index_failed;
	char damage[160]; /* what opening it found lost; "": nothing */
	/*
	 * Since then: reads that the device failed, whether or not anybody
	 * wanted that block, and blocks that were not what was written.
	 */
	uint64_t media_errors;
	uint64_t silent_ns; /* it has not answered for that long; 0: it does */
	struct env_dev_info dev;
	uint64_t raw_bytes; /* of the device */
	uint64_t usable_bytes; /* for components: raw less the reserve */
	uint64_t used_bytes; /* live blocks */
	uint64_t kept_bytes; /* promised to components, not used by them */
	/* Of these, what the disk has no room for: others had it before. */
	uint64_t uncovered_bytes;
	uint64_t segments, segments_free;
	uint32_t segment_bytes;
	unsigned components;
	bool freeing; /* deleted ones have not given back all their space */
	uint8_t congestion[LSOM_CONGESTIONS]; /* 0..255, of each kind */
	uint64_t recovery_ns; /* what the last open took */
	uint64_t generation; /* of the log */
	unsigned shard; /* its home */
};

/* What a path holds; for `disk add` (blocking: call it from env_work()). */
struct lsom_probe {
	bool ours; /* a superblock of Basalt */
	struct uuid disk, cluster;
	uint32_t version;
	uint64_t generation; /* of the log */
	bool unused; /* formatted and never opened, as both superblocks say */
	uint64_t bytes; /* that it was formatted with */
	bool whole; /* what is there is as large as that */
	char found[128]; /* what else is there: "ext4", "GPT", "mounted" */
};
int lsom_disk_probe(struct env *env, const char *path, struct lsom_probe *out);

/*
 * Whose disk a path is, while others use it: nothing is locked.  @found: "Linux
 * RAID" or the like, if it is no disk but a part of what has it, as what is behind
 * the disk says; else empty.  Blocking.  0; -ENODATA, -EUCLEAN (no whole
 * superblock), -EIO, -ENOMEM, -errno.
 */
int lsom_disk_identify(struct env *env, const char *path,
		       struct lsom_probe *out);

/*
 * Write superblocks on @path, which env_dev_open() can open; a file has its
 * final size already.  Of a larger one the first 32 TiB are used.  Whether it may be erased was asked before.  Blocking.
 * @progress (may be NULL) runs on the calling thread.
 * Returns 0, -EINVAL (too small: under 64 MiB), -EBUSY, -EIO.
 */
struct lsom_format {
	const char *path;
	struct uuid disk, cluster;
	uint32_t segment_bytes; /* 0: size / 1024 clamped to 4..256 MiB */
	bool tiny; /* tests: no least size, segments from 256 KiB on */
	void (*progress)(struct lsom_format *format, unsigned percent);
	void *data;
};
int lsom_disk_format(struct env *env, struct lsom_format *format);

/*
 * Open a disk and recover it.  0; -ENOENT; -EMEDIUMTYPE (another version, or a
 * feature we do not know; @why names both); -ENODATA (no whole superblock);
 * -ERANGE (smaller than it was formatted); -EUCLEAN (the index is damaged; @why
 * names the repair command); -ENOSPC (no room where the index is); -ENXIO
 * (another disk, or another cluster's); -ESTALE (an older copy of the disk: its
 * index has seen a later opening; a rebuild takes it as it is); -EIO; -EBUSY.
 * Only -EUCLEAN and -ESTALE are what a rebuild helps against.
 */
struct lsom_disk_open {
	void *data;
	const char *path, *index_path;
	struct uuid disk; /* zero: whatever is there */
	struct uuid cluster;
	bool rebuild; /* throw the index away, make it from the log */
	/*
	 * Blocks that fail with -EIO count as lost, as those do that the medium
	 * is known to have lost, while the device reads others: they are lost
	 * for good then, whatever it reads later.
	 */
	bool lose_unreadable;
	/* for that, on a worker, once the superblock is found good; or NULL */
	void (*index_remove)(const char *index_path);
	/* out */
	struct lsom_disk *opened;
	char why[256];
	uint64_t generation; /* that was found; 0: no good superblock was */
	/* from any thread, while it is opened */
	_Atomic unsigned percent; /* of its recovery */
	_Atomic unsigned asked; /* how much the device is asked just now */
	_Atomic unsigned answers; /* how often it has answered */
	/* private */
	struct lsom *lsom;
	struct env_work work;
	void *impl;
	void (*cb)(struct lsom_disk_open *req, int status);
};
typedef void (*lsom_disk_open_cb)(struct lsom_disk_open *req, int status);
int lsom_disk_open(struct lsom *lsom, struct lsom_disk_open *req,
		   lsom_disk_open_cb cb);

/*
 * Finish what is in flight, checkpoint, close.  New requests get -ESHUTDOWN;
 * component handles must be put, and views detached, before @cb can come.
 */
struct lsom_disk_close {
	void *data;
	/* private */
	struct lsom_disk *disk;
	struct env_work work;
	void (*cb)(struct lsom_disk_close *req, int status);
};
typedef void (*lsom_disk_close_cb)(struct lsom_disk_close *req, int status);
int lsom_disk_close(struct lsom_disk *disk, struct lsom_disk_close *req,
		    lsom_disk_close_cb cb);

/*
 * A disk is driven by the shard that opened it, its home.  Another shard attaches
 * to it and gets a lsom_disk of its own, a view: every call below works on it,
 * on that shard's loop, and goes to the disk by message.  It shows the
 * components whose object's uuid_hash() modulo @parts is @part; a component must
 * be used through one lsom_disk only.  @home is borrowed until the detaching.
 *
 * Two things differ.  lsom_comp_meta() and lsom_disk_info() tell what the last
 * answer or change brought; a SEAL, CONFIG, ATTACH or RESIZE that is answered
 * is in it.  lsom_undecided_each() visits what was there when the last SEAL or
 * ATTACH was done.  A busy disk is asked again for 25 s: then -ETIMEDOUT, and
 * nothing was done.
 *
 * @cb: 0, -ENOMEM, -ESHUTDOWN (the disk is closing).
 */
struct lsom_attach {
	void *data;
	struct lsom_disk *attached; /* out */
	/* private */
	void (*cb)(struct lsom_attach *req, int status);
};
typedef void (*lsom_attach_cb)(struct lsom_attach *req, int status);
int lsom_disk_attach(struct lsom *lsom, struct lsom_disk *home, unsigned part,
		     unsigned parts, struct lsom_attach *req,
		     lsom_attach_cb cb);

/* Component handles must be put before @cb can come; then @view is gone. */
struct lsom_detach {
	void *data;
	/* private */
	void (*cb)(struct lsom_detach *req);
};
typedef void (*lsom_detach_cb)(struct lsom_detach *req);
void lsom_disk_detach(struct lsom_disk *disk, struct lsom_detach *req,
		      lsom_detach_cb cb);

void lsom_disk_info(const struct lsom_disk *disk, struct lsom_disk_info *out);

/* @cb runs whenever the state or a congestion value changed. */
struct lsom_disk_watch {
	void (*cb)(struct lsom_disk_watch *watch, struct lsom_disk *disk);
	TAILQ_ENTRY(lsom_disk_watch) link;
};
void lsom_disk_watch(struct lsom_disk *disk, struct lsom_disk_watch *watch);
void lsom_disk_unwatch(struct lsom_disk *disk, struct lsom_disk_watch *watch);

/*
 * Read all that is on the disk and compare it with its checksums, in the background:
 * one I/O at a time, and while others use the disk half of the time at most.  On
 * @disk's home only, one at a time.
 *
 * @cb: 0 (then @bad_count says what was found), -ECANCELED, -ESHUTDOWN, -ENODEV (the
 * disk has failed); up to there the counts are those of what was read.  At once
 * also -EBUSY, -ENOMEM.
 */
#define LSOM_SCRUB_BAD_MAX 64u

struct lsom_scrub_bad {
	struct uuid oid, cid;
	uint64_t offset; /* of a block of the component */
};

struct lsom_scrub {
	void *data;
	/* out */
	_Atomic unsigned percent; /* from any thread */
	uint64_t read_blocks;
	uint64_t bad_count; /* blocks in use that are not what was written */
	struct lsom_scrub_bad bad[LSOM_SCRUB_BAD_MAX]; /* the first of them */
	unsigned segments_unread; /* nobody knows all that should be there */
	/* private */
	bool cancelled;
	void (*cb)(struct lsom_scrub *req, int status);
};
typedef void (*lsom_scrub_cb)(struct lsom_scrub *req, int status);
int lsom_scrub(struct lsom_disk *disk, struct lsom_scrub *req,
	       lsom_scrub_cb cb);
/* @cb comes soon; on the home's loop, too. */
void lsom_scrub_cancel(struct lsom_scrub *req);

/* ---- components ---- */

enum lsom_leaf_state { /* as in the directory; what the component was told */
		       LSOM_ACTIVE = 1,
		       LSOM_SYNC,
		       LSOM_STALE,
};

/* The durable record of a component (g0). */
struct lsom_comp_meta {
	struct uuid cid, oid;
	uint64_t cinc;
	uint64_t size_bytes; /* multiple of LSOM_BLOCK */
	uint64_t promised_oepoch;
	uint64_t member_csn, csn_seen;
	enum lsom_leaf_state state_seen;
	uint64_t stable_lsn; /* s_recorded */
	uint64_t g_all;
	uint64_t max_lsn; /* largest ever written here */
	uint64_t max_committed;
	/*
	 * 0, or an oepoch: batches of the log were lost, nobody knows which
	 * blocks were in them, so blocks whose version is of that oepoch or an
	 * older one, and blocks without one, may have had a newer one.  They
	 * answer -EBADMSG until they are written or unmapped again.
	 */
	uint32_t damaged;
};

/* Open handle of @cid, or NULL.  Put it when done. */
struct lsom_comp *lsom_comp_get(struct lsom_disk *disk, const struct uuid *cid);
void lsom_comp_put(struct lsom_comp *comp);
struct lsom_disk *lsom_comp_disk(struct lsom_comp *comp);
const struct lsom_comp_meta *lsom_comp_meta(const struct lsom_comp *comp);

/* Visit all components of a disk; @cb may not create or delete. */
void lsom_comp_each(struct lsom_disk *disk,
		    void (*cb)(struct lsom_comp *comp, void *arg), void *arg);
/*
 * Some of them, about @max, from place @at on; 0: the first.  Returns where it goes
 * on, which holds also when components come or go; 0: those were all.
 */
unsigned lsom_comp_some(struct lsom_disk *disk, unsigned at, unsigned max,
			void (*cb)(struct lsom_comp *comp, void *arg),
			void *arg);
/* Those of the object @oid. */
void lsom_comp_each_of(struct lsom_disk *disk, const struct uuid *oid,
		       void (*cb)(struct lsom_comp *comp, void *arg),
		       void *arg);

/*
 * A metadata record: durable when @cb has status 0.
 *
 * CREATE: @meta names cid, oid, cinc, size and the first fence; repeating it
 *   with the same cid and cinc is 0 again, with another cinc -EEXIST.
 * DELETE: blocks are dead; handles stay valid and answer -ENOENT.
 * SEAL, CONFIG, ATTACH: store the fields of @meta that belong to it
 *   (promised_oepoch, member_csn, csn_seen, state_seen, stable_lsn, g_all);
 *   ATTACH also discards every undecided version first (g6.2), and from the
 *   call on none of a smaller member_csn is taken any more.
 * RESIZE: a larger size_bytes, or a smaller one.  For that the caller has
 *   unmapped what is cut off, and nothing is on its way there: -EOPNOTSUPP if a
 *   block behind the new end is mapped or prepared.  After growing again it
 *   reads as zeros.
 */
enum lsom_meta_op {
	LSOM_CREATE,
	LSOM_DELETE,
	LSOM_SEAL,
	LSOM_CONFIG,
	LSOM_ATTACH,
	LSOM_RESIZE
};

struct lsom_meta {
	void *data;
	enum lsom_meta_op op;
	struct lsom_comp_meta meta;
	/* private */
	struct lsom_disk *disk;
	struct lsom_comp *comp;
	void (*cb)(struct lsom_meta *req, int status);
	TAILQ_ENTRY(lsom_meta) link;
};
typedef void (*lsom_meta_cb)(struct lsom_meta *req, int status);
int lsom_comp_create(struct lsom_disk *disk, struct lsom_meta *req,
		     lsom_meta_cb cb);
int lsom_comp_update(struct lsom_comp *comp, struct lsom_meta *req,
		     lsom_meta_cb cb); /* every op but CREATE */

/*
 * Space credits (g2.0): a PREP that holds credit for its blocks cannot fail for
 * space.  Taking is bookkeeping, in memory; credits end with a restart.
 * Returns 0, -ENOSPC, or -EBUSY: try again; room is on its way for a component
 * with a promise, or another shard was at the disk's counts.
 */
int lsom_credit_take(struct lsom_comp *comp, uint64_t blocks);
void lsom_credit_return(struct lsom_comp *comp, uint64_t blocks);

/*
 * Promise @bytes of the disk to @comp, in all; 0: none.  While it has mapped less
 * than that its writes find room, and others get -ENOSPC before they have what
 * is kept for it.  In memory: told again after a restart.  Nobody is asked
 * whether the disk has as much (lsom_disk_info.uncovered_bytes).
 *
 * One that is promised its whole size never gets -ENOSPC for what replaces its
 * data, either: -EBUSY, until earlier versions are gone.
 */
void lsom_comp_reserve(struct lsom_comp *comp, uint64_t bytes);
/* What is kept for it: promised and not used. */
uint64_t lsom_comp_kept(struct lsom_comp *comp);
/*
 * Bytes that it has mapped, undecided versions aside.  False: that is not known
 * (after a crash, while pages are not loaded, or the disk does not serve); it is
 * counted then, for who asks again.
 */
bool lsom_comp_used(struct lsom_comp *comp, uint64_t *bytes);

enum lsom_write_kind {
	LSOM_PREP, /* undecided until committed or lsn <= stable_lsn */
	LSOM_RPREP, /* takeover's copy: applied by version compare, undecided */
	LSOM_RCOPY, /* resync: applied by version compare, committed (g6.4) */
	LSOM_REPAIR, /* same lsn, replaces an equal version whose CRC is bad */
};

#define LSOM_W_HOLE 1u /* an UNMAP: no data, sgl NULL */
#define LSOM_W_ATOMIC 2u /* decided with the other groups it lists (g3) */
/*
 * The caller computed @crcs itself, in this process, from the pages of @sgl, and
 * nobody has written to them since.  Never for what came from another node.
 */
#define LSOM_W_CHECKED 4u

/*
 * One range of one component.  @offset and @len are multiples of LSOM_BLOCK,
 * @len 1 block .. LSOM_WRITE_MAX (a HOLE: any length).  @sgl is shared, a whole
 * page for each block; @crcs (one CRC32C a block, borrowed until @cb) are what is
 * stored: without LSOM_W_CHECKED a block that does not match is refused.
 *
 * Status: 0 durable.  -EBADMSG (a CRC does not match), -ESTALE (a PREP with lsn
 * <= the stable_lsn known, in the abort set, or of a session before the last
 * ATTACH), -ENOSPC, -EIO/-ENODEV (the disk has failed), -ENOENT (deleted),
 * -ESHUTDOWN, -ETIMEDOUT (a disk of another shard was busy until @deadline_ns, and
 * has taken nothing).  A PREP held already is answered from durable state (R26).
 * -EBUSY at once: queue full.
 */
struct lsom_write {
	void *data;
	enum lsom_write_kind kind;
	unsigned flags;
	uint64_t offset, len;
	struct sgl *sgl;
	const uint32_t *crcs;
	uint64_t lsn, member_csn;
	uint64_t credits; /* blocks of credit it brings; they end with it */
	const struct lsom_decided *decided; /* borrowed for the call; or NULL */
	/* the components that take part, for takeover; borrowed for the call */
	const struct uuid *participants;
	unsigned participants_count;
	uint64_t deadline_ns; /* of env_now(); 0: 25 s from now */
	/* private */
	struct lsom_comp *comp;
	void (*cb)(struct lsom_write *req, int status);
	void *impl;
};
typedef void (*lsom_write_cb)(struct lsom_write *req, int status);
int lsom_write(struct lsom_comp *comp, struct lsom_write *req,
	       lsom_write_cb cb);

/*
 * COMMIT or ABORT one lsn, durable when @cb has status 0.  Repeating is 0.  An
 * ABORT of an unknown lsn goes into the abort set until stable_lsn passes it;
 * COMMIT of an lsn that is aborted, and the reverse, are -EINVAL.
 */
struct lsom_decide {
	void *data;
	bool commit;
	uint64_t lsn;
	/* private */
	struct lsom_comp *comp;
	void (*cb)(struct lsom_decide *req, int status);
};
typedef void (*lsom_decide_cb)(struct lsom_decide *req, int status);
int lsom_decide(struct lsom_comp *comp, struct lsom_decide *req,
		lsom_decide_cb cb);

/*
 * Tell the component what is decided: in memory at once, durable with the next
 * record or checkpoint.  Undecided versions it covers become the committed ones.
 * 0, or -ENOMEM: it was not told; say it again.
 */
int lsom_decided(struct lsom_comp *comp, const struct lsom_decided *decided);

/*
 * Read committed data.  @offset and @len are multiples of LSOM_BLOCK, @len at
 * most LSOM_WRITE_MAX.  @decided is borrowed for the call and applied first.
 * On status 0 the caller owns @sgl (pages of @class, zero pages for holes);
 * @crcs, if not NULL, gets one CRC32C a block.  Every block was checked.
 *
 * Status: -EBADMSG: @bad_offset is the first block that does not match, or is
 * lost (lsom_comp_meta.damaged); others may be good.  -EIO (the device failed the
 * read, and no write that was on its way then), -ENODEV (the disk has failed,
 * maybe since the call), -ENOENT, -ESHUTDOWN; -EBUSY (at once or later): queue full or no
 * pages, or some are on their way to a device that has been silent for LSOM_SILENT_NS.
 */
struct lsom_read {
	void *data;
	uint64_t offset, len;
	enum page_class class;
	const struct lsom_decided *decided;
	uint32_t *crcs;
	/* out */
	struct sgl *sgl;
	uint64_t bad_offset;
	/* private */
	struct lsom_comp *comp;
	void (*cb)(struct lsom_read *req, int status);
};
typedef void (*lsom_read_cb)(struct lsom_read *req, int status);
int lsom_read(struct lsom_comp *comp, struct lsom_read *req, lsom_read_cb cb);

/*
 * Versions of blocks in [@offset, @offset + @len) whose committed lsn is above
 * @since, in order, up to @items_max; undecided ones are not shown.  Serves
 * GET LBA STATUS (@since 0: all that is mapped), resync and the tests.  With
 * @since 0 lost blocks (lsom_comp_meta.damaged) are shown as ones with data.
 * Nothing is read but the index: a block that rotted, or whose segment is not what
 * it was, is shown as the version it had, though a read of it fails.
 * @next is where to go on; @next == @offset + @len at the end.
 */
struct lsom_version {
	uint64_t offset;
	uint64_t member_csn, lsn;
	uint32_t crc;
	bool hole; /* unmapped, and the entry is still needed */
};

struct lsom_scan {
	void *data;
	uint64_t offset, len, since;
	struct lsom_version *items;
	unsigned items_max;
	/* out */
	unsigned items_count;
	uint64_t next;
	/* private */
	struct lsom_comp *comp;
	void (*cb)(struct lsom_scan *req, int status);
};
typedef void (*lsom_scan_cb)(struct lsom_scan *req, int status);
int lsom_scan(struct lsom_comp *comp, struct lsom_scan *req, lsom_scan_cb cb);

/* Undecided versions, for SEAL's reply; visited in lsn order. */
struct lsom_undecided {
	uint64_t lsn, member_csn, offset, len;
	unsigned flags;
	const uint32_t *crcs; /* NULL for a hole */
	const struct uuid *participants;
	unsigned participants_count;
};
void lsom_undecided_each(struct lsom_comp *comp,
			 void (*cb)(const struct lsom_undecided *u, void *arg),
			 void *arg);

/* Make the index durable now and let the log go (tests, clean shutdown). */
struct lsom_checkpoint {
	void *data;
	/* private */
	struct lsom_disk *disk;
	void (*cb)(struct lsom_checkpoint *req, int status);
	TAILQ_ENTRY(lsom_checkpoint) link;
};
typedef void (*lsom_checkpoint_cb)(struct lsom_checkpoint *req, int status);
int lsom_checkpoint(struct lsom_disk *disk, struct lsom_checkpoint *req,
		    lsom_checkpoint_cb cb);

#endif
