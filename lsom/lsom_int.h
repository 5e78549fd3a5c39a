/*
 * lsom_int: what the files of the room share.
 *
 * One disk is driven by one loop, its home.  The files stand on each other in
 * this order: format, super; reuse, segment, erase (segment_int.h), log; space,
 * count; index_page, index; undecided, component, read; put, checkpoint; recover;
 * victim, cleaner; scrub; trim; disk, which puts them together; view and view_io
 * (view_int.h), the same disk seen from another shard.
 *
 * "place" is a 4 KiB block of the disk; "block" is one of a component; "pos"
 * counts batches in the order they were submitted, over all heads.
 */
#ifndef BASALT_LSOM_LSOM_INT_H
#define BASALT_LSOM_LSOM_INT_H

#include "base/util.h"
#include "lsom/format.h"
#include "lsom/segment_int.h"
#include "lsom/tomb_int.h"

#include <stdatomic.h>

#define LSOM__NONE UINT32_MAX
#define LSOM__RESERVED 3u /* free segments that guests leave: undo.c */
#define LSOM__BATCHES 8u /* in flight of one head */
#define LSOM__BATCH_BLOCKS 512u /* of data in one batch */
#define LSOM__ERASES 16u /* in flight: who writes waits behind them */
#define LSOM__OPS_MAX 4096u /* requests waiting in one head */
#define LSOM__QUEUE_BLOCKS 16384u /* of data waiting in one head: 64 MiB */
#define LSOM__PAGE_SLOTS 256u
#define LSOM__DIR_PAGES 512u
#define LSOM__READS_MAX 4096u
#define LSOM__READS_SILENT 16u /* while the disk does not answer */
/*
 * Blocks that a read takes along to be one I/O and not two.  Each is some 2 us
 * of a fast disk's time; an I/O is that of a processor, and more of a slow disk.
 */
#define LSOM__READ_GAP 2u
#define LSOM__SINKS 128u /* gaps being read at a time; above that, more I/Os */
#define LSOM__PREPS_MAX 1280u /* a window, and some of a takeover */
#define LSOM__HOLES_PAGES 4096u /* UNMAPs may empty so many at a time */
#define LSOM__COMP_BYTES_MAX (1ull << 46)
#define LSOM__HOPS_MAX 8192u /* requests of a view on their way */

struct lsom__op;
struct lsom__page;
struct lsom__recovery;
struct lsom__cleaner;
struct lsom__scrub;
struct lsom__view;
struct lsom__far;

/* ---- the log ---- */

/*
 * A record on its way into the log, one allocation with its bytes.  @apply runs
 * in batch order when it is durable, or with the error, and owns the op.
 */
struct lsom__op {
	STAILQ_ENTRY(lsom__op) link;
	struct lsom_disk *disk;
	struct lsom_comp *comp; /* referenced, or NULL */
	void (*apply)(struct lsom__op *op, int status);
	void *req;
	struct sgl *sgl; /* referenced; its data, from byte @sgl_offset */
	size_t sgl_offset;
	uint32_t blocks; /* of data */
	uint32_t segment; /* set when it is placed */
	uint64_t place; /* of the data; of the header if there is none */
	uint64_t pos;
	uint64_t extra; /* apply's */
	uint64_t since_ns; /* in the queue */
	int status;
	uint32_t len;
	uint64_t record[]; /* struct lsom__record and what follows */
};
STAILQ_HEAD(lsom__ops, lsom__op);

struct lsom__batch {
	struct env_io io;
	TAILQ_ENTRY(lsom__batch) link;
	struct lsom__head *head;
	uint8_t *header; /* LSOM__HEADER_BYTES_MAX + a segment header */
	size_t written; /* what is behind that much of the first is zero */
	struct iovec *iov;
	struct lsom__ops ops;
	uint64_t number, pos;
	uint32_t segment;
	bool done;
	int status;
};
TAILQ_HEAD(lsom__batches, lsom__batch);

struct lsom__log_wait {
	TAILQ_ENTRY(lsom__log_wait) link;
	uint64_t pos;
	void (*cb)(struct lsom__log_wait *wait);
};

struct lsom__head {
	struct lsom_disk *disk;
	uint16_t id;
	uint32_t segment; /* open, or LSOM__NONE */
	uint32_t left; /* the one before that; or LSOM__NONE */
	uint64_t batch_next, durable_prefix;
	struct lsom__ops queue;
	unsigned queued, queued_blocks;
	unsigned waits; /* for a free segment: ticks, and one; 0: it does not */
	struct lsom__batches inflight, idle;
	struct lsom__batch slots[LSOM__BATCHES];
	struct env_task kick;
	/* The last batch, as the next one's header repeats it. */
	struct lsom__echo *echo; /* then LSOM__RECORDS_BYTES_MAX bytes */
};

/* ---- the index ---- */

enum { LSOM__E_EMPTY, LSOM__E_RAW, LSOM__E_HOLE };

/* An entry unpacked; in memory and in the store it takes 16 bytes. */
struct lsom__entry {
	uint64_t member_csn, lsn;
	uint64_t place;
	uint32_t crc;
	uint8_t kind;
};

struct lsom__slot {
	/* place:36 (512-byte units), length:4, kind:4, epoch:12, seq_high:8 */
	uint64_t bits;
	uint32_t crc;
	uint32_t seq_low;
} __attribute__((packed));
static_assert(sizeof(struct lsom__slot) == 16, "index entry");

#define LSOM__SLOT_UNITS 8u /* 512-byte units of a block */
#define LSOM__SLOT_PLACE_BITS 36
#define LSOM__SLOT_KIND_BIT 40
#define LSOM__SLOT_EPOCH_BIT 44

static inline unsigned lsom__slot_kind(const struct lsom__slot *s)
{
	return s->bits >> LSOM__SLOT_KIND_BIT & 15;
}

static inline uint64_t lsom__slot_place(const struct lsom__slot *s)
{
	return (s->bits & ((1ull << LSOM__SLOT_PLACE_BITS) - 1)) /
	       LSOM__SLOT_UNITS;
}

/* Kind and place as one: of the next place it is LSOM__SLOT_UNITS more. */
static inline uint64_t lsom__slot_where(const struct lsom__slot *s)
{
	return s->bits & ((1ull << LSOM__SLOT_EPOCH_BIT) - 1);
}

struct lsom__epoch {
	uint64_t member_csn;
	uint32_t oepoch;
	uint32_t reserved;
} __attribute__((packed));

struct lsom__slots {
	struct lsom__slot slot[LSOM__PAGE_SLOTS];
	struct lsom__epoch *epochs;
	unsigned epochs_count, epochs_room;
};

struct lsom__page_wait {
	void (*cb)(struct lsom__page_wait *wait, int status);
	STAILQ_ENTRY(lsom__page_wait) link;
};

struct lsom__page {
	struct lsom_comp *comp;
	uint64_t number;
	struct lsom__slots slots;
	uint32_t known[LSOM__PAGE_SLOTS / 32]; /* while not loaded: overlay */
	uint32_t dirty[LSOM__PAGE_SLOTS / 32];
	uint32_t put[LSOM__PAGE_SLOTS / 32]; /* into the store, of an overlay */
	bool loaded, loading, is_dirty, gone;
	bool again; /* it is read behind some of that */
	bool emptied; /* dirty by an UNMAP of all of it */
	unsigned pins;
	unsigned unknown; /* slots of the overlay */
	uint64_t put_number; /* the last checkpoint it was put in */
	uint64_t load_since_ns;
	int load_status;
	void *loaded_value;
	size_t loaded_len;
	struct env_work load;
	STAILQ_HEAD(, lsom__page_wait) waits;
	TAILQ_ENTRY(lsom__page) lru, dirty_link;
};
TAILQ_HEAD(lsom__pages, lsom__page);

/* ---- components ---- */

/* A version that is durable and not yet decided. */
struct lsom__prep {
	TAILQ_ENTRY(lsom__prep) link; /* by lsn */
	uint64_t lsn, member_csn;
	uint64_t first, blocks;
	uint64_t place, pos;
	uint16_t flags;
	uint16_t parts_count;
	const uint32_t *crcs;
	const struct uuid *parts;
	uint32_t mem_bytes;
	uint32_t mem[];
};

/* How well it is known what a component has mapped. */
enum lsom__count { LSOM__COUNT_NONE, LSOM__COUNT_EXACT, LSOM__COUNT_LEAST };

struct lsom_comp {
	struct lsom_disk *disk;
	uint64_t key;
	struct lsom_comp_meta meta; /* what is durable */
	unsigned refs;
	bool created, deleted, linked, reaped;
	bool dirty; /* its state differs from the flushed one; linked */
	struct lsom_decided decided; /* in memory; may be ahead of meta */
	bool decided_dirty; /* not yet in a record */
	bool carry; /* the cleaner is to write its state again; linked */
	TAILQ_HEAD(lsom__preps, lsom__prep) preps;
	unsigned preps_count;
	struct lsom__abort *aborts; /* any: it is one of disk->aborting */
	uint64_t *aborts_pos; /* what each bars lies before; POS_LATER */
	unsigned aborts_count, aborts_room;
	/* Committed lsns that the decided set cannot name; sorted on replay. */
	uint64_t *committed;
	size_t committed_count, committed_room;
	TAILQ_HEAD(, lsom_meta) metas; /* the first one is in the log */
	struct env_task skip; /* or is answered without */
	int skip_status;
	uint64_t meta_sequence;
	uint64_t session; /* member_csn of the last ATTACH that was asked for */
	uint64_t state_pos; /* records before it are in a later state record */
	uint64_t credits;
	/* What it uses and was promised, in blocks: space.c. */
	_Atomic int64_t mapped; /* by the index */
	_Atomic uint64_t unknown; /* slots of its overlays */
	_Atomic uint64_t promise; /* what of @reserved is in force */
	_Atomic int64_t spare; /* @promise less what it uses */
	uint64_t reserved;
	_Atomic enum lsom__count counted; /* @mapped: count.c */
	_Atomic bool count_asked; /* somebody wants to know it exactly */
	bool count_due; /* it is one of disk->counts */
	uint64_t count_next; /* page */
	int64_t count_sum;
	struct lsom__page_wait count_wait;
	struct lsom__op *count_op; /* waits for a page */
	uint64_t reap_next; /* deleted: the next page to release */
	bool reaping, reap_due; /* waits for a page; is one of disk->reaps */
	struct lsom__page_wait reap_wait, shrink_wait;
	struct lsom__op *shrink; /* waits for a page */
	struct lsom__page ***dirs;
	size_t dirs_count;
	uint8_t *stored_pages; /* bit: the store has this page */
	size_t stored_bytes;
	TAILQ_ENTRY(lsom_comp) link; /* by key */
	TAILQ_ENTRY(lsom_comp) dirty_link, reap_link;
	TAILQ_ENTRY(lsom_comp) abort_link, carry_link, count_link;
	struct lsom_comp *hash_next, *key_next, *object_next;
	struct lsom__far *far; /* of a view: where it really is */
};

/*
 * What an abort or a deletion bars lies before a position, and it is needed as
 * long as that may be read again.  A move that is under way lays some of it down
 * later: the position is known when the cleaner has nothing under way.
 */
#define LSOM__POS_LATER UINT64_MAX

#define LSOM__HASH 1024u

/* Up to where a checkpoint covers each head: the next batch to replay. */
struct lsom__head_position {
	uint64_t generation, batch, sequence;
};

struct lsom__position {
	uint32_t version, heads_count;
	struct uuid disk;
	uint64_t number; /* of checkpoints; 0: there is none */
	uint64_t pos_next, key_next;
	struct lsom__head_position heads[LSOM__HEADS];
};
static_assert(sizeof(struct lsom__position) == 48 + 24 * LSOM__HEADS,
	      "position: no padding");

/*
 * LSOM__READ_GAP blocks that nobody looks at but the kernel and the device, which may
 * check them (T10 PI, dm-integrity): two transfers into one would spoil each other.
 */
struct lsom__sink {
	SLIST_ENTRY(lsom__sink) link;
	void *blocks;
};

/* Components, and pages of them, that a closed disk lets go in one turn. */
#define LSOM__FREE_PART 512u

struct lsom_disk {
	struct lsom *lsom;
	struct env *env;
	struct env_dev *dev;
	struct kv *kv;
	struct env_lane *index_lane, *flush_lane;
	char path[256];
	char failure[160], damage[160];
	int failed_status;
	int index_wants; /* what failed it, or will: kv_wants(); 0 */
	bool index_failed; /* that it was the index, whatever of it */
	bool index_asked; /* a checkpoint is with the store, since then */
	uint64_t index_asked_ns;
	struct env_dev_info info;
	struct lsom__super super;
	bool super_torn; /* when it was opened one of the two was not whole */
	enum lsom_disk_state state;
	bool closing;
	struct lsom_disk_close *close_req;
	uint64_t opened_ns, recovery_ns;

	uint32_t segment_blocks;
	uint32_t record_blocks_max; /* what one record may carry */
	struct lsom__segment *segments;
	_Atomic uint32_t
		segments_free; /* atomic: views look, and take credit */
	uint32_t segments_cleaned;
	uint32_t segments_held; /* of these: see reuse.c */
	unsigned erases; /* in flight */
	uint32_t segments_set_back;
	uint64_t shunned_ns; /* until then the cleaner leaves some alone */
	/* reuse.c: free and used before; none below is unused; then lists. */
	uint32_t *free_heap, free_used, unused_from;
	struct lsom__segments aged, emptied, cleaned;
	struct lsom__segments unclosed; /* no memory for their summaries */
	struct env_timer unclosed_timer;
	struct lsom__segments changed; /* since the last checkpoint began */
	uint32_t changed_count;
	uint64_t sequence_next, pos_next;
	_Atomic uint64_t live_blocks, credits;
	_Atomic uint64_t transits; /* from one of these to another: space.c */
	_Atomic uint64_t undecided; /* of the live blocks */
	_Atomic uint64_t promised; /* to components, and not used: space.c */
	struct lsom_comp *counting; /* referenced by its op */
	uint64_t usable_blocks, reserve_blocks;
	struct lsom__head heads[LSOM__HEADS];
	TAILQ_HEAD(, lsom__log_wait) log_waits; /* by pos */
	struct env_timer stall_timer; /* while a head waits */
	struct env_timer free_timer; /* closed: components go in parts */
	bool stall_ticking;
	/* Cleaning gets on while the room it makes grows, in blocks. */
	uint64_t room_best;
	unsigned ticks_stalled; /* since it did */

	TAILQ_HEAD(lsom__comps, lsom_comp) comps;
	_Atomic unsigned comps_count;
	TAILQ_HEAD(, lsom_comp) comps_dirty; /* as they became so */
	unsigned comps_dirty_count;
	TAILQ_HEAD(, lsom_comp) reaps; /* deleted, and not reaped yet */
	_Atomic unsigned unreaped; /* with those that wait for a page */
	struct env_task reap_task;
	TAILQ_HEAD(, lsom_comp) aborting; /* those with an abort set */
	TAILQ_HEAD(, lsom_comp) carries; /* known, and the cleaner's to write */
	TAILQ_HEAD(, lsom_comp) counts; /* known; all that are to be counted */
	struct lsom_comp *hash[LSOM__HASH]; /* by cid */
	struct lsom_comp *by_key[LSOM__HASH];
	struct lsom_comp *by_object[LSOM__HASH];
	uint64_t key_next;
	struct lsom__tombs tombs;

	struct lsom__pages lru, dirty_pages;
	size_t pages_count, dirty_count, loads;
	/* Whole pages that UNMAPs made dirty, and those that will. */
	size_t holes_dirty, holes_queued;
	struct lsom__pages loads_again; /* by @lru: no memory for them */
	struct env_timer loads_timer;
	bool loads_starved; /* that was told */
	struct env_task evict_task; /* there are more than there may be */
	_Atomic uint64_t unknown; /* slots in overlays: what they replaced */

	struct lsom__position position; /* of the index as it was opened */
	uint64_t recovered_records;
	uint64_t checkpoint_number; /* the last one begun */
	uint64_t checkpoint_applied; /* the last one in the store */
	uint64_t flushed_number; /* the last one durable */
	uint64_t flushed_covered[LSOM__HEADS]; /* batches that it covers */
	uint64_t checkpoint_pos; /* pos_next when it began */
	void *checkpoint; /* the running one, or the one that is filled */
	bool checkpoint_again;
	bool checkpoint_waits; /* for the cleaner to pay what it owes */
	bool checkpoint_starved; /* for memory, and that was told */
	uint64_t checkpoint_sequence;
	struct env_task checkpoint_task;
	TAILQ_HEAD(, lsom_checkpoint) checkpoint_reqs;
	struct env_timer checkpoint_timer;
	unsigned ticks; /* of it, while the log grew */
	uint64_t tick_pos; /* pos_next at the last one */

	_Atomic uint64_t media_errors;
	unsigned reads, handles;
	unsigned works; /* internal requests in flight: bars closing */
	struct lsom__ops later;
	struct env_task later_task;
	struct lsom__cleaner *cleaner;
	struct lsom__scrub *scrub; /* one is under way */
	struct lsom__trim trim;
	struct lsom__recovery *recovery;
	struct lsom_disk_open *opening; /* NULL: it is open */
	bool spills; /* a recovery into an empty store: pages may go there */
	bool replaying; /* older data may come after newer holes */

	bool zero_busy;
	struct env_io zero_io;
	struct iovec *zero_iov;
	struct lsom__sink *sinks;
	void *sinks_memory;
	SLIST_HEAD(, lsom__sink) sinks_free;
	uint32_t zero_at; /* block within the segment being zeroed */

	uint8_t congestion[LSOM_CONGESTIONS];
	bool failed_untold; /* watchers are to hear of it */
	bool closed, close_checkpointed;
	struct env_task watch_task;
	TAILQ_HEAD(, lsom_disk_watch) watches;
	TAILQ_ENTRY(lsom_disk) link;
	unsigned views; /* of other shards */
	struct lsom__view *view; /* this is one: the rest is elsewhere */
};

struct lsom {
	struct env *env;
	struct lsom_config config;
	size_t pages_max; /* of the index, in memory, per disk */
	TAILQ_HEAD(, lsom_disk) disks;
};

/* True while a rule is on: LSOM_OFF_* names it. */
static inline bool lsom__rule(const struct lsom_disk *disk, uint64_t off)
{
	return (disk->lsom->config.rules_off & off) == 0;
}

/* ---- places ---- */

static inline uint64_t lsom__place(const struct lsom_disk *disk,
				   uint32_t segment, uint32_t block)
{
	return disk->super.data_start / LSOM_BLOCK +
	       (uint64_t)segment * disk->segment_blocks + block;
}

/* The segment of a place, or LSOM__NONE if it is in none. */
static inline uint32_t lsom__segment_of(const struct lsom_disk *disk,
					uint64_t place)
{
	uint64_t start = disk->super.data_start / LSOM_BLOCK;

	if (place < start ||
	    (place - start) / disk->segment_blocks >= disk->super.segments)
		return LSOM__NONE;
	return (uint32_t)((place - start) / disk->segment_blocks);
}

/* So many blocks of the segment of @place are needed more, or less. */
static inline void lsom__segment_live(struct lsom_disk *disk, uint64_t place,
				      int64_t blocks)
{
	lsom__segment_count(disk, lsom__segment_of(disk, place), blocks);
}

/* Does @place lie in a segment that does not hold what the index has there? */
static inline bool lsom__segment_set_back(const struct lsom_disk *disk,
					  uint64_t place)
{
	return disk->segments_set_back > 0 &&
	       lsom__segment_of(disk, place) != LSOM__NONE &&
	       disk->segments[lsom__segment_of(disk, place)].set_back;
}

/* ---- super.c: blocking ---- */

/*
 * -ENODATA: there is none; -EUCLEAN, -EMEDIUMTYPE as lsom__super_decode().
 * @torn (may be NULL): one of the two is not whole, and may have been newer.
 * @lose_unreadable: so is one that fails with -EIO.
 */
int lsom__super_read(struct env *env, struct env_dev *dev, bool lose_unreadable,
		     struct lsom__super *out, bool *torn);
/* The next superblock into @block; where it goes, in bytes: not over the last. */
uint64_t lsom__super_next(struct lsom_disk *disk, void *block);
int lsom__super_write_now(struct lsom_disk *disk);

static inline bool lsom__disk_silent(const struct lsom_disk *disk)
{
	return env_dev_silent_ns(disk->env, disk->dev) >= LSOM_SILENT_NS;
}

/* Around what blocks for the device: who opens the disk sees that it hangs. */
static inline void lsom__dev_asked(struct lsom_disk *disk)
{
	if (disk->opening != NULL)
		disk->opening->asked++;
}
static inline void lsom__dev_answered(struct lsom_disk *disk)
{
	if (disk->opening == NULL)
		return;
	disk->opening->answers++;
	disk->opening->asked--;
}

/* ---- log.c ---- */

int lsom__log_init(struct lsom_disk *disk);
void lsom__log_fini(struct lsom_disk *disk);
/* A record of @len bytes, zeroed; NULL: no memory. */
struct lsom__op *lsom__op_new(struct lsom_disk *disk, struct lsom_comp *comp,
			      uint16_t type, size_t len);
void lsom__op_free(struct lsom__op *op);
void lsom__log_append(struct lsom_disk *disk, unsigned id, struct lsom__op *op);
void lsom__log_kick(struct lsom_disk *disk);
/* Close its segment, full or not.  False: nothing lies in it, or it has none. */
bool lsom__head_leave(struct lsom__head *head);
bool lsom__log_busy(const struct lsom_disk *disk, unsigned blocks);
bool lsom__log_idle(const struct lsom_disk *disk);
/* Every record of a batch with a smaller pos has been applied. */
uint64_t lsom__log_applied_pos(const struct lsom_disk *disk);
/*
 * True: no batch is in flight.  Else false, and @wait->cb runs when those that are
 * now have been answered.
 */
bool lsom__log_settled(struct lsom_disk *disk, struct lsom__log_wait *wait);
/* Run op->apply(op, op->status) at the end of this turn. */
void lsom__later(struct lsom__op *op);

/* ---- index_page.c (pure) ---- */

void lsom__slots_init(struct lsom__slots *slots);
void lsom__slots_fini(struct lsom__slots *slots);
void lsom__slots_get(const struct lsom__slots *slots, unsigned slot,
		     struct lsom__entry *out);
/* How many of @count slots from @slot on are older than @entry, or empty. */
unsigned lsom__slots_older(const struct lsom__slots *slots, unsigned slot,
			   unsigned count, const struct lsom__entry *entry);
/*
 * @entry is the first one's.  Places of RAW ones follow each other, with a CRC
 * each in @crcs (NULL: @entry's); others are all alike.  0 or -ENOMEM: as before.
 */
int lsom__slots_set(struct lsom__slots *slots, unsigned slot, unsigned count,
		    const struct lsom__entry *entry, const uint32_t *crcs);
/* Then entries of @epochs more epochs find memory.  0 or -ENOMEM. */
int lsom__slots_room(struct lsom__slots *slots, unsigned epochs);
/* Encode the slots whose bit is set; malloc()ed, or NULL. */
void *lsom__slots_encode(const struct lsom__slots *slots, const uint32_t *bits,
			 size_t *out_len);
/* Decode over what is there; @bits gets what was in it.  0, -EUCLEAN, -ENOMEM. */
int lsom__slots_decode(const void *value, size_t len, struct lsom__slots *slots,
		       uint32_t *bits);
void *lsom__merge(struct kv_slice key, struct kv_slice old,
		  const struct kv_slice *operands, size_t count,
		  size_t *out_len);
/* <0, 0, >0: the order of versions. */
int lsom__version_compare(const struct lsom__entry *a,
			  const struct lsom__entry *b);

/* May the block have had a newer version, in a batch that was lost? */
static inline bool lsom__entry_lost(const struct lsom_comp *comp,
				    const struct lsom__entry *e)
{
	return comp->meta.damaged != 0 &&
	       LSN_OEPOCH(e->lsn) <= comp->meta.damaged;
}

static inline bool lsom__bit(const uint32_t *bits, unsigned i)
{
	return bits[i / 32] >> (i % 32) & 1;
}

static inline void lsom__bit_set(uint32_t *bits, unsigned i)
{
	bits[i / 32] |= 1u << (i % 32);
}

/* @count of them from @i on. */
static inline void lsom__bits_set(uint32_t *bits, unsigned i, unsigned count)
{
	while (count > 0) {
		unsigned n = MIN(count, 32 - i % 32);

		bits[i / 32] |= (uint32_t)((1ull << n) - 1) << (i % 32);
		i += n;
		count -= n;
	}
}

/* ---- index.c ---- */

/* The page if it is in memory; else NULL. */
struct lsom__page *lsom__page_find(const struct lsom_comp *comp,
				   uint64_t number);
/* The page, made or on its way; NULL: no memory. */
struct lsom__page *lsom__page_get(struct lsom_comp *comp, uint64_t number);
/* True if a page exists, in memory or in the store. */
bool lsom__page_exists(const struct lsom_comp *comp, uint64_t number);
/* The next page that exists at or above @number; UINT64_MAX: none. */
uint64_t lsom__page_next(const struct lsom_comp *comp, uint64_t number);
/*
 * 0: the page is whole in *@out.  -EAGAIN: @wait->cb runs when it is, on the
 * loop.  -ENOENT: no such page, every slot is empty.  -ENOMEM, -EUCLEAN.
 */
int lsom__page_want(struct lsom_comp *comp, uint64_t number,
		    struct lsom__page **out, struct lsom__page_wait *wait);

/* How an entry reaches the index. */
enum lsom__apply {
	LSOM__APPLY_NEWER, /* if its version is larger */
	LSOM__APPLY_REPAIR, /* if the lsn is equal */
	LSOM__APPLY_MOVE, /* if the entry points to @source */
	LSOM__APPLY_REPLAY, /* larger, or equal and a later record */
	LSOM__APPLY_DROP, /* a hole that nobody needs, if it points there */
};
/*
 * @count blocks from @block on, all of one page, as lsom__slots_set() has them.
 * @source is where the first one was, or 0; RAW ones' follow each other.  0 or
 * -ENOMEM.
 */
int lsom__index_apply(struct lsom_comp *comp, uint64_t block, unsigned count,
		      const struct lsom__entry *entry, const uint32_t *crcs,
		      enum lsom__apply how, uint64_t source);
/* Room for that many bytes of comp->stored_pages: 0 or -ENOMEM. */
int lsom__stored_fit(struct lsom_comp *comp, size_t bytes);
/* Forget all pages in memory; live counts stay. */
void lsom__index_drop(struct lsom_comp *comp);
void lsom__page_clean(struct lsom__page *page);
void lsom__page_dirty(struct lsom__page *page, unsigned slot, unsigned count);
/* Some of those that the cache has no room for go; the rest in later turns. */
void lsom__pages_evict(struct lsom_disk *disk);
/*
 * There is no memory for what is durable and has to be applied: give a page up that
 * the store has.  False: there is none, or no use.
 */
bool lsom__page_shed(struct lsom_disk *disk);
/* Does a page in memory say that @block is at @place? */
bool lsom__entry_here(const struct lsom_comp *comp, uint64_t block,
		      uint64_t place, uint8_t kind);
/* Of @loads_timer. */
void lsom__loads_again(struct env_timer *timer);
/* Of @evict_task. */
void lsom__evict_run(struct env_task *task);
void lsom__index_init(void); /* its counters; so the others */
void lsom__page_free(struct lsom__page *page);
void lsom__page_release(struct lsom_comp *comp, struct lsom__page *page);

/*
 * Have the pages of up to 256 blocks whole in memory, and keep them there.
 * 0: they are.  -EAGAIN: @cb runs later, on the loop.  Else -errno.
 */
struct lsom__range {
	struct lsom__page_wait wait;
	struct lsom_comp *comp;
	uint64_t first, blocks, next;
	struct lsom__page *pages[2];
	unsigned pages_count;
	bool make; /* those that are not there, too: they could come and go */
	void (*cb)(struct lsom__range *range, int status);
};
int lsom__range_load(struct lsom__range *range);
void lsom__range_unpin(struct lsom__range *range);

/* ---- undecided.c ---- */

struct lsom__prep *lsom__prep_new(const struct lsom__data_record *d,
				  uint64_t place, uint64_t pos);
void lsom__prep_free(struct lsom__prep *prep); /* in no table; or NULL */
void lsom__prep_insert(struct lsom_comp *comp, struct lsom__prep *prep);
void lsom__prep_remove(struct lsom_comp *comp, struct lsom__prep *prep);
struct lsom__prep *lsom__prep_find(const struct lsom_comp *comp, uint64_t lsn);
struct lsom__prep *lsom__prep_same(const struct lsom_comp *comp, uint64_t lsn,
				   uint64_t first, uint64_t blocks);
bool lsom__decided(const struct lsom_decided *decided, uint64_t lsn);
/* Make it the committed version of its blocks. */
void lsom__prep_commit(struct lsom_comp *comp, struct lsom__prep *prep);
void lsom__prep_drop(struct lsom_comp *comp, struct lsom__prep *prep);
/* Put all blocks of a range into the index. */
void lsom__range_apply(struct lsom_comp *comp, uint64_t first, uint64_t blocks,
		       uint64_t place, const uint32_t *crcs, bool hole,
		       uint64_t member_csn, uint64_t lsn, enum lsom__apply how,
		       uint64_t source);
bool lsom__aborted(const struct lsom_comp *comp, uint64_t lsn,
		   uint64_t member_csn);
int lsom__abort_add(struct lsom_comp *comp, uint64_t lsn, uint64_t member_csn);
/* Is a version that comes aborted?  What bars it is needed from now on. */
bool lsom__abort_meets(struct lsom_comp *comp, uint64_t lsn,
		       uint64_t member_csn);
/*
 * A replay has ended: the set must fit into a state record again.  Where it was of
 * the whole log, what met no version and bars none to come is forgotten.  0 or
 * -EUCLEAN.
 */
int lsom__aborts_replayed(struct lsom_comp *comp);
/* All that was aborted lies before @pos, where that was not known yet. */
void lsom__aborts_settle(struct lsom_comp *comp, uint64_t pos);
/* Forget aborts that nothing older on the disk can contradict. */
void lsom__aborts_prune(struct lsom_comp *comp, uint64_t oldest);
/* Remember that @lsn is committed.  0 or -ENOMEM. */
int lsom__committed_add(struct lsom_comp *comp, uint64_t lsn);
bool lsom__committed(const struct lsom_comp *comp, uint64_t lsn);
/* The same without looking at the decided set: replay, any order. */
int lsom__committed_note(struct lsom_comp *comp, uint64_t lsn);
void lsom__decided_take(struct lsom_comp *comp,
			const struct lsom_decided *decided);
/* Commit what the decided set covers. */
void lsom__decided_run(struct lsom_comp *comp);

/* ---- read.c ---- */

void lsom__read_init(void); /* its counters */
/* A read failed, or brought what nobody wrote: for those who watch the disk. */
void lsom__media_error(struct lsom_disk *disk);

/* ---- component.c ---- */

struct lsom_comp *lsom__comp_new(struct lsom_disk *disk, uint64_t key,
				 const struct uuid *cid,
				 const struct uuid *oid);
void lsom__comp_link(struct lsom_comp *comp);
void lsom__comp_free(struct lsom_comp *comp);
struct lsom_comp *lsom__comp_by_key(const struct lsom_disk *disk, uint64_t key);
void lsom__comp_ref(struct lsom_comp *comp);
void lsom__comp_unref(struct lsom_comp *comp);
/* A state record of what @comp is now. */
struct lsom__op *lsom__state_op(struct lsom_comp *comp,
				const struct lsom_comp_meta *meta,
				uint64_t meta_sequence);
struct lsom__op *lsom__stable_op(struct lsom_comp *comp);
void lsom__comp_deleted(struct lsom_comp *comp);
/* Its state is for the next checkpoint; or it is in that one. */
void lsom__comp_dirty(struct lsom_comp *comp);
void lsom__comp_clean(struct lsom_comp *comp);
/* The cleaner is to write its state again; or it need not any more. */
void lsom__comp_carry(struct lsom_comp *comp);
void lsom__comp_carried(struct lsom_comp *comp);
/* Take it out of the registry; handles keep it. */
void lsom__comp_forget(struct lsom_comp *comp);
/* Take the parts of a state record over; the newest metadata counts. */
int lsom__state_take(struct lsom_comp *comp,
		     const struct lsom__state_record *s);
/* Deleted: its pages are to be released, which lsom__reap() goes on with. */
void lsom__comp_gone(struct lsom_comp *comp);
void lsom__reap(struct lsom_disk *disk);
/*
 * Is nothing mapped from block @blocks on?  @cb has 0 or -EOPNOTSUPP (there is),
 * later.  Or -ENOMEM at once.
 */
int lsom__comp_shrink(struct lsom_comp *comp, uint64_t blocks,
		      void (*cb)(struct lsom_comp *comp, int status));
int lsom__state_of(const struct lsom_disk *disk);

/* ---- space.c: from any shard, if not said otherwise ---- */

/* @comp uses so many blocks more, or less. */
void lsom__comp_used(struct lsom_comp *comp, int64_t blocks);
/* Between these, which nest, blocks may be in two counts; on any shard. */
void lsom__transit_begin(struct lsom_disk *disk);
void lsom__transit_end(struct lsom_disk *disk);
/* Credit on its way to be blocks, or back. */
void lsom__credits_add(struct lsom_comp *comp, uint64_t blocks);
void lsom__credits_drop(struct lsom_comp *comp, uint64_t blocks);
/*
 * Credit for a guest's @blocks.  0, -ENOSPC, or -EBUSY: what is on its way will
 * give room, or say that there is none.
 */
int lsom__space_take(struct lsom_comp *comp, uint64_t blocks);
/* Is there room that anybody may have? */
bool lsom__space(const struct lsom_disk *disk);
/* What is promised and the disk does not have any more, in blocks. */
uint64_t lsom__space_missing(const struct lsom_disk *disk);
/* Home: what is reserved, counted or deleted has changed. */
void lsom__promise_set(struct lsom_comp *comp);

/* ---- count.c ---- */

/* Page @number of @comp maps @n blocks more. */
void lsom__comp_mapped(struct lsom_comp *comp, uint64_t number, int n);
/* One of those that it maps may have been replaced: nobody knows any more. */
void lsom__comp_unsure(struct lsom_comp *comp);
/* What a checkpoint of now says of it. */
uint64_t lsom__count_stored(const struct lsom_comp *comp, bool *exact);
void lsom__count_load(struct lsom_comp *comp, enum lsom__count counted,
		      uint64_t mapped);
/* Is it to be counted now?  For whatever makes it so.  Home. */
void lsom__count_look(struct lsom_comp *comp);
void lsom__count_leave(struct lsom_comp *comp);
/* Count the next component that has to be. */
void lsom__count_kick(struct lsom_disk *disk);

/* ---- checkpoint.c ---- */

void lsom__checkpoint_init(void);
/* Begin one, or one more after the running one. */
void lsom__checkpoint_start(struct lsom_disk *disk);
/*
 * One for what has changed, seconds after the log rests, half a minute after now
 * at most; also while one runs.
 */
void lsom__checkpoint_arm(struct lsom_disk *disk);
void lsom__checkpoint_tick(struct env_timer *timer);
/* A batch has ended.  Has enough changed since the last one? */
bool lsom__checkpoint_due(struct lsom_disk *disk);
/* The store has not answered a checkpoint for LSOM_SILENT_NS. */
bool lsom__index_silent(const struct lsom_disk *disk);
/* Would another one make anything durable? */
bool lsom__checkpoint_idle(const struct lsom_disk *disk);
/* Answer lsom_checkpoint() requests that wait. */
void lsom__checkpoint_fail(struct lsom_disk *disk, int status);
/* put.c.  Blocking: all dirty pages into the store, ahead of any checkpoint. */
int lsom__pages_spill(struct lsom_disk *disk);
int lsom__page_read(struct kv *kv, uint64_t key, uint64_t number, void **out,
		    size_t *out_len);

/* ---- recover.c ---- */

/* Blocking, on a worker; nothing else touches @disk.  Fills why and percent. */
int lsom__recover(struct lsom_disk *disk, struct lsom_disk_open *req);

/* ---- victim.c ---- */

/* With fewer free segments than this the cleaner works. */
uint32_t lsom__victim_low_mark(const struct lsom_disk *disk);
/* A component's abort set is to be shortened: the oldest segments go. */
bool lsom__victim_aborts(const struct lsom_disk *disk);
/* One more was refused: have it shortened. */
void lsom__aborts_full(struct lsom_comp *comp);
/* Blocks that moving @live ones takes, with headers and a summary. */
uint64_t lsom__victim_cost(const struct lsom_disk *disk, uint64_t live);

enum lsom__policy {
	LSOM__PICK_BENEFIT,
	LSOM__PICK_EMPTIEST,
	LSOM__PICK_OLDEST,
	LSOM__PICK_DEAD /* nothing of it is live, and there is enough room */
};

struct lsom__pick {
	uint32_t next; /* segment to look at; 0: it begins */
	uint32_t best;
	uint64_t score; /* of @best */
	enum lsom__policy policy;
};
/*
 * Look at some more segments.  True: all were, and @best is the one to clean next,
 * or LSOM__NONE.  False: not yet, come again in another turn.
 */
bool lsom__victim_pick(const struct lsom_disk *disk, struct lsom__pick *pick);
/* Does nothing of it count but records that the cleaner has to walk? */
bool lsom__victim_dead(const struct lsom__segment *seg);
/* Are there some to be cleaned, for what is free to be given back (trim.c)? */
bool lsom__victim_for_trim(const struct lsom_disk *disk);

/* ---- cleaner.c ---- */

int lsom__cleaner_init(struct lsom_disk *disk);
void lsom__cleaner_fini(struct lsom_disk *disk);
void lsom__cleaner_stop(struct lsom_disk *disk);
void lsom__cleaner_kick(struct lsom_disk *disk);
bool lsom__cleaner_idle(const struct lsom_disk *disk);
/* Would a checkpoint begun now make a debt to the reserve last? (undo.c) */
bool lsom__cleaner_owes(const struct lsom_disk *disk);

/* ---- disk.c ---- */

const char *lsom__device_text(int status);
void lsom__disk_fail(struct lsom_disk *disk, const char *what, int status);
/* The same for its index, which lies elsewhere: if that is full it says so. */
void lsom__index_fail(struct lsom_disk *disk, const char *what, int status);
/* Something changed that watchers, waiters or a close may care about. */
void lsom__disk_changed(struct lsom_disk *disk);

#endif
