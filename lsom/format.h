/*
 * format: everything LSOM puts on a disk, and nothing else.
 *
 * A disk is two superblocks (at 0 and at 512 KiB) and, from 1 MiB on, equal
 * segments.  A segment is a header block, then batches, then a gap, and, once
 * it is closed, a summary that ends at the segment's end:
 *
 *	[header][batch header | data]...[batch header | data] gap [summary]
 *
 * A batch is one durable write.  Its header lists records; a record's data lies
 * in the batch's data blocks.  The summary repeats the records of all batches
 * of the segment, each behind a lsom__frame.  Little endian, packed.
 *
 * Every structure has a magic, a version or its container's, and is covered by
 * a CRC32C.  Decoders trust no byte: they return -EUCLEAN, never assert.
 *
 * Damage.  Any one block of the log may rot, and no acknowledged write may turn
 * into an older one for it.  Data has its CRC.  The records of a batch lie in
 * two places at any time: in its header, and in the header of the next batch of
 * its head, as that one's echo; later in the summary, before which the head's
 * next segment is not erased.  The echo takes room that is mostly empty (a header
 * of one 4 KiB record has 3.9 KB left) and at worst the bytes of the records once
 * more, 2 to 3 % of what is written where batches are large; the alternatives were
 * a trailing copy of the header, which is a block for every write, and a hash,
 * which tells of a loss and not what is lost.
 * If both copies are gone, a record of type LOST takes the batch's place in the
 * summary: nobody knows which blocks were in it, so the components that it may
 * have held refuse all that is not newer (lsom_comp_meta.damaged).
 *
 * A segment of a generation that was closed has a summary, so one that cannot
 * be read is damage too, and the headers tell.  Segments in which nothing
 * counts are erased by recovery for that.
 */
#ifndef BASALT_LSOM_FORMAT_H
#define BASALT_LSOM_FORMAT_H

#include "base/uuid.h"
#include "lsom/lsom.h"

#include <assert.h>

#define LSOM__VERSION 1u /* of the superblock */
/*
 * Of the rest.  1: without echoes and erasing.  2: a batch's data_crc is
 * crc32_more() over its data blocks, from 3 on it is their fletcher_end().
 */
#define LSOM__LOG_VERSION 3u
#define LSOM__DATA_START (1u << 20)
#define LSOM__SUPER_GAP (512u << 10)
#define LSOM__DISK_MIN (64ull << 20)
/* Places have 36 bits of 512-byte units; of a larger device the first part. */
#define LSOM__DISK_MAX (1ull << 45)
#define LSOM__SEGMENT_MIN (1u << 20)
#define LSOM__SEGMENT_TINY (256u << 10) /* only tests make them */
#define LSOM__SEGMENT_MAX (256u << 20)
#define LSOM__SEGMENTS_MAX (1u << 20)
#define LSOM__HEADER_BLOCKS_MAX 32u /* of one batch */
#define LSOM__ABORTS_MAX 2900u /* a state record fits into one header */
#define LSOM__COMMITS_MAX (2 * LSOM_WINDOW)

/* Heads: what a batch number counts in.  Shards to come take the odd ones. */
enum { LSOM__HEAD_GUEST, LSOM__HEAD_CLEANER, LSOM__HEADS };
#define LSOM__HEAD_NONE UINT16_MAX /* of an erased segment: nothing counts */

#define LSOM__SUPER_MAGIC 0x31304d4f534c4142ull /* "BALSOM01" */
#define LSOM__SEGMENT_MAGIC 0x47455342u /* "BSEG" */
#define LSOM__BATCH_MAGIC 0x54414242u /* "BBAT" */
#define LSOM__SUMMARY_MAGIC 0x4d555342u /* "BSUM" */

/*
 * Feature bits.  compat: an older program may use the disk.  ro_compat: it may
 * only read it.  incompat: it must leave it alone.
 */
#define LSOM__COMPAT 0ull
#define LSOM__RO_COMPAT 0ull
#define LSOM__INCOMPAT_ECHO 1ull /* segments of version 2 may be on it */
#define LSOM__INCOMPAT_FLETCHER 2ull /* and batches of version 3 */
#define LSOM__INCOMPAT_ALIKE 4ull /* and its index has slots for several */
#define LSOM__INCOMPAT                                                         \
	(LSOM__INCOMPAT_ECHO | LSOM__INCOMPAT_FLETCHER | LSOM__INCOMPAT_ALIKE)

struct lsom__super {
	uint64_t magic;
	uint32_t version;
	uint32_t crc; /* of the 4096 bytes with this field 0 */
	uint64_t compat, ro_compat, incompat;
	struct uuid disk, cluster;
	uint64_t sequence; /* the larger of two valid ones counts */
	uint64_t disk_bytes; /* when formatted */
	uint64_t data_start;
	uint32_t segment_bytes;
	uint32_t segments;
	uint64_t generation; /* of the log; new at each open */
	/* Up to here every segment is closed by its summary, or void. */
	uint64_t generation_closed;
	uint32_t zeroed; /* segments [0, zeroed) were written once */
	uint32_t damaged; /* a batch was lost in mid-log */
	uint64_t damaged_below; /* components with keys below lost blocks */
	uint64_t index_made; /* when: wall clock, ns; 0: by an older version */
	/*
	 * The last checkpoint flushed: durable before what it freed is erased.
	 * An older version, which does not keep it, writes 0: not known.
	 */
	uint64_t index_flushed;
} __attribute__((packed));
static_assert(sizeof(struct lsom__super) == 152, "superblock");

struct lsom__segment_header {
	uint32_t magic;
	uint32_t crc; /* of the 4096 bytes with this field 0 */
	struct uuid disk;
	uint64_t sequence; /* of segments, over the disk's whole life */
	uint64_t generation;
	uint64_t open_pos; /* the position counter at opening */
	uint64_t index_number; /* checkpoint flushed when taken or erased */
	uint64_t first_batch;
	uint32_t segment; /* its own place */
	uint16_t head;
	uint16_t version;
	/*
	 * Batches of each head, of this generation, that checkpoint covers: what
	 * the cleaner's moved may be gone from where it was, and the segments of
	 * others may be used again, so they are no torn tail.  0: not known.
	 */
	uint64_t covered, covered_guest;
} __attribute__((packed));
static_assert(sizeof(struct lsom__segment_header) == 88, "segment header");

struct lsom__batch_header {
	uint32_t magic;
	uint32_t crc; /* of all header blocks with this field 0 */
	struct uuid disk;
	uint64_t generation;
	uint64_t segment_sequence;
	uint64_t batch; /* counts in its head, from 1, per generation */
	uint64_t durable_prefix; /* batches of the head known durable */
	uint64_t pos; /* order of submission over all heads */
	uint16_t head;
	uint16_t version;
	uint16_t header_blocks;
	uint16_t records;
	uint32_t records_bytes; /* they follow this structure, then the echo */
	uint32_t data_blocks; /* they follow the header blocks */
	uint32_t block; /* of the segment, where this header lies */
	uint32_t data_crc; /* over all data blocks; see LSOM__LOG_VERSION */
} __attribute__((packed));
static_assert(sizeof(struct lsom__batch_header) == 88, "batch header");

#define LSOM__HEADER_BYTES_MAX (LSOM__HEADER_BLOCKS_MAX * LSOM_BLOCK)
/* Of one batch; its header holds as many again, of the echo. */
#define LSOM__RECORDS_BYTES_MAX 65448u

/* In front of a batch's records, in a summary. */
struct lsom__frame {
	uint64_t batch, pos;
	uint32_t records_bytes;
	uint16_t records;
	uint16_t version; /* the batch's; 0: 1 or 2 */
	uint32_t block; /* of the segment, of the batch's header */
	uint32_t data_crc; /* as in the batch's header */
} __attribute__((packed));
static_assert(sizeof(struct lsom__frame) == 32, "frame");

/*
 * Behind the records of a header of version 2: what the batch before it in its
 * head was.  The frame's records follow; where they had no room, in the first
 * batch of a segment, records_bytes is 0 and records is not.
 */
struct lsom__echo {
	uint64_t segment_sequence; /* 0: there was none */
	uint32_t used; /* blocks of that segment, up to its end */
	uint32_t reserved;
	struct lsom__frame frame;
} __attribute__((packed));
static_assert(sizeof(struct lsom__echo) == 48, "echo");
static_assert(sizeof(struct lsom__batch_header) + sizeof(struct lsom__echo) +
			      2 * LSOM__RECORDS_BYTES_MAX <=
		      LSOM__HEADER_BYTES_MAX,
	      "a header holds its records and an echo");

/* The first bytes of a summary; @blocks end with the segment. */
struct lsom__summary_header {
	uint32_t magic;
	uint32_t crc; /* of the summary's blocks with this field 0 */
	struct uuid disk;
	uint64_t segment_sequence;
	uint64_t generation;
	uint64_t last_batch;
	uint32_t blocks, bytes; /* bytes of frames and records that follow */
	uint16_t head, version;
	uint32_t used_blocks;
} __attribute__((packed));
static_assert(sizeof(struct lsom__summary_header) == 64, "summary");

/* The last bytes of a closed segment: where its summary begins. */
struct lsom__summary_footer {
	uint32_t magic;
	uint32_t blocks;
	uint64_t segment_sequence;
} __attribute__((packed));
static_assert(sizeof(struct lsom__summary_footer) == 16, "footer");

enum lsom__record_type {
	LSOM__R_DATA = 1, /* blocks with data, or holes */
	LSOM__R_COMMIT,
	LSOM__R_ABORT,
	LSOM__R_STABLE, /* what is decided */
	LSOM__R_STATE, /* the whole metadata of a component */
	LSOM__R_DELETE,
	/*
	 * In summaries, alone in its frame: the batches up to the frame's are
	 * lost, records of components with keys below @component may have been
	 * in them.  A segment that holds one is never cleaned.
	 */
	LSOM__R_LOST,
};

#define LSOM__F_HOLE 1u
#define LSOM__F_ATOMIC 2u
#define LSOM__F_COMMITTED 4u /* decided when it was written */
#define LSOM__F_REPAIR 8u /* replaces an equal version */
#define LSOM__F_MOVED 16u /* by the cleaner; @source, @orig_pos count */
#define LSOM__F_KNOWN 31u

/* Every record; @len is a multiple of 8 and includes what follows. */
struct lsom__record {
	uint16_t type;
	uint16_t flags;
	uint32_t len;
	uint64_t component; /* its key on this disk, never used again */
	uint64_t lsn, member_csn;
	/*
	 * Of a moved record, else 0: data's own, which says of two repairs which
	 * is the later one.  Of data that an earlier version moved again it is
	 * that of the copy before, which no later repair is in front of.  A
	 * hole's and a deletion's says what they bar: what lies before it.
	 */
	uint64_t orig_pos;
} __attribute__((packed));
static_assert(sizeof(struct lsom__record) == 40, "record");

/* R_DATA: then uint32_t crcs[blocks] (no hole), then struct uuid parts[]. */
struct lsom__data_record {
	struct lsom__record r;
	uint64_t first; /* block of the component */
	uint64_t blocks;
	uint64_t source; /* MOVED: block of the disk it came from */
	uint32_t data; /* block of the segment where its data begins */
	uint16_t parts;
	uint16_t reserved;
} __attribute__((packed));
static_assert(sizeof(struct lsom__data_record) == 72, "data record");

/* R_STABLE: then bitmap_bytes of the decided set. */
struct lsom__stable_record {
	struct lsom__record r;
	uint64_t stable_lsn, g_all, hole_floor;
	uint32_t bitmap_bytes;
	uint32_t reserved;
} __attribute__((packed));
static_assert(sizeof(struct lsom__stable_record) == 72, "stable record");

struct lsom__abort {
	uint64_t lsn, member_csn; /* kills versions up to this member_csn */
} __attribute__((packed));

/* R_STATE: then aborts[], committed lsns[]. */
struct lsom__state_record {
	struct lsom__record r;
	struct uuid cid, oid;
	uint64_t cinc, size_bytes;
	uint64_t meta_sequence; /* the largest one counts */
	uint64_t promised_oepoch, member_csn, csn_seen;
	uint64_t stable_lsn, g_all, hole_floor;
	uint64_t max_lsn, max_committed;
	uint32_t state_seen;
	uint32_t damaged; /* lsom_comp_meta.damaged */
	uint32_t aborts, committed;
} __attribute__((packed));
static_assert(sizeof(struct lsom__state_record) == 176, "state record");

/* ---- format.c ---- */

/* @block is 4096 bytes.  Sealing stores the CRC. */
void lsom__super_seal(void *block);

/*
 * 0; -ENODATA (no superblock of ours); -EUCLEAN (damaged); -EMEDIUMTYPE
 * (another version or unknown features), @out filled for the message.
 */
int lsom__super_decode(const void *block, struct lsom__super *out);

/* One that lies must not wrap what is counted on from it. */
bool lsom__segment_counts_valid(const struct lsom__segment_header *h);
void lsom__segment_header_seal(void *block);
int lsom__segment_header_decode(const void *block, const struct uuid *disk,
				uint32_t segment,
				struct lsom__segment_header *out);

/* Behind @used bytes, of its last block at least one, @blocks are zeros. */
void lsom__batch_seal(void *blocks, uint32_t header_blocks, size_t used);
/*
 * The header at @blocks, of which @room bytes can be read, which should lie at
 * @block of a segment of @segment_blocks.  0, -ENODATA (not a batch header of
 * this segment), -EAGAIN (more than @room: @out has header_blocks), -EUCLEAN.
 */
int lsom__batch_decode(const void *blocks, size_t room,
		       const struct lsom__segment_header *segment,
		       uint32_t block, uint32_t segment_blocks,
		       struct lsom__batch_header *out);

/*
 * The echo of a header that lsom__batch_decode() took, its records checked; or
 * NULL: it has none, or it does not say what the records were.
 */
const struct lsom__echo *lsom__batch_echo(const void *blocks,
					  const struct lsom__batch_header *b,
					  uint32_t segment_blocks);

void lsom__summary_seal(void *blocks, uint32_t count);
/* From the last block: how many blocks the summary has, or 0. */
uint32_t lsom__summary_blocks(const void *last_block,
			      const struct lsom__segment_header *segment,
			      uint32_t segment_blocks);
int lsom__summary_decode(const void *blocks, uint32_t count,
			 const struct lsom__segment_header *segment,
			 struct lsom__summary_header *out);

/*
 * Check all records in @bytes of @buf: lengths, types, ranges, places below
 * @segment_blocks.  0 or -EUCLEAN.  After it, lsom__record_next() may walk.
 */
int lsom__records_check(const void *buf, size_t bytes, unsigned records,
			uint32_t segment_blocks);

/* Check frames and their records. */
int lsom__frames_check(const void *buf, size_t bytes, uint32_t segment_blocks);

/*
 * lsom__summary_decode(), and its frames are checked: they are @out->bytes behind
 * the header at @blocks.
 */
int lsom__summary_take(const void *blocks, uint32_t count,
		       const struct lsom__segment_header *segment,
		       uint32_t segment_blocks,
		       struct lsom__summary_header *out);

static inline const uint32_t *
lsom__record_crcs(const struct lsom__data_record *d)
{
	return (const uint32_t *)(const void *)(d + 1);
}

static inline size_t lsom__record_crcs_bytes(uint16_t flags, uint64_t blocks)
{
	return flags & LSOM__F_HOLE ? 0 : (size_t)blocks * 4;
}

static inline const struct uuid *
lsom__record_parts(const struct lsom__data_record *d)
{
	return (const struct uuid *)((const uint8_t *)(d + 1) +
				     lsom__record_crcs_bytes(d->r.flags,
							     d->blocks));
}

static inline size_t lsom__data_record_len(uint16_t flags, uint64_t blocks,
					   unsigned parts)
{
	return (sizeof(struct lsom__data_record) +
		lsom__record_crcs_bytes(flags, blocks) +
		parts * sizeof(struct uuid) + 7) &
	       ~(size_t)7;
}

#endif
