/*
 * format: sealing and checked decoding of what lies on a disk (format.h).
 *
 * Pure functions over memory.  The CRC of a structure is taken with its own crc
 * field 0, so a decoder copies nothing but that field.
 */
#include "lsom/format.h"

#include "base/crc.h"
#include "base/util.h"

#include <errno.h>

/* CRC32C of @len bytes at @buf with the 4 bytes at @at taken as 0. */
static uint32_t crc_without(const void *buf, size_t len, size_t at)
{
	static const uint8_t zero[4];
	const uint8_t *b = buf;
	uint32_t crc = crc32c(b, at);

	crc = crc32c_more(crc, zero, sizeof(zero));
	return crc32c_more(crc, b + at + 4, len - at - 4);
}

#define CRC_OF(type, buf, len) crc_without(buf, len, offsetof(type, crc))

void lsom__super_seal(void *block)
{
	struct lsom__super *s = block;

	s->crc = 0;
	s->crc = crc32c(block, LSOM_BLOCK);
}

static bool geometry_valid(const struct lsom__super *s)
{
	if (s->data_start != LSOM__DATA_START)
		return false;
	if (s->segment_bytes < LSOM__SEGMENT_TINY ||
	    s->segment_bytes > LSOM__SEGMENT_MAX ||
	    s->segment_bytes % LSOM__SEGMENT_TINY != 0)
		return false;
	if (s->segments == 0 || s->segments > LSOM__SEGMENTS_MAX ||
	    s->zeroed > s->segments)
		return false;
	return s->data_start + (uint64_t)s->segments * s->segment_bytes <=
		       s->disk_bytes &&
	       s->generation_closed <= s->generation;
}

int lsom__super_decode(const void *block, struct lsom__super *out)
{
	struct lsom__super s;

	memcpy(&s, block, sizeof(s));
	if (s.magic != LSOM__SUPER_MAGIC)
		return -ENODATA;
	if (s.crc != CRC_OF(struct lsom__super, block, LSOM_BLOCK))
		return -EUCLEAN;
	*out = s;
	if (s.version != LSOM__VERSION || (s.incompat & ~LSOM__INCOMPAT) ||
	    (s.ro_compat & ~LSOM__RO_COMPAT))
		return -EMEDIUMTYPE;
	return geometry_valid(&s) ? 0 : -EUCLEAN;
}

static bool log_version(uint16_t version)
{
	return version >= 1 && version <= LSOM__LOG_VERSION;
}

void lsom__segment_header_seal(void *block)
{
	struct lsom__segment_header *h = block;

	h->crc = 0;
	h->crc = crc32c(block, LSOM_BLOCK);
}

bool lsom__segment_counts_valid(const struct lsom__segment_header *h)
{
	const uint64_t max = 1ull << 62;

	return h->sequence != 0 && h->sequence < max && h->generation != 0 &&
	       h->generation < max && h->open_pos < max &&
	       h->index_number < max && h->first_batch < max;
}

int lsom__segment_header_decode(const void *block, const struct uuid *disk,
				uint32_t segment,
				struct lsom__segment_header *out)
{
	struct lsom__segment_header h;

	memcpy(&h, block, sizeof(h));
	if (h.magic != LSOM__SEGMENT_MAGIC || !uuid_equal(&h.disk, disk))
		return -ENODATA;
	if (h.crc != CRC_OF(struct lsom__segment_header, block, LSOM_BLOCK))
		return -EUCLEAN;
	if (h.segment != segment || !log_version(h.version) ||
	    (h.head >= LSOM__HEADS && h.head != LSOM__HEAD_NONE) ||
	    !lsom__segment_counts_valid(&h))
		return -EUCLEAN;
	*out = h;
	return 0;
}

void lsom__batch_seal(void *blocks, uint32_t header_blocks, size_t used)
{
	struct lsom__batch_header *b = blocks;
	size_t len = (size_t)header_blocks * LSOM_BLOCK;
	size_t some = MIN(ROUND_UP(used, (size_t)CRC32C_ZEROS), len);

	b->crc = 0;
	b->crc = crc32c_zeros(crc32c(blocks, some), len - some);
}

const struct lsom__echo *lsom__batch_echo(const void *blocks,
					  const struct lsom__batch_header *b,
					  uint32_t segment_blocks)
{
	size_t at = sizeof(*b) + b->records_bytes, room;
	const struct lsom__echo *e =
		(const void *)((const uint8_t *)blocks + at);

	room = (size_t)b->header_blocks * LSOM_BLOCK - at;
	if (b->version < 2 || room < sizeof(*e))
		return NULL;
	room -= sizeof(*e);
	if (e->segment_sequence == 0 || e->frame.batch == 0 ||
	    e->frame.records_bytes == 0 || e->frame.records_bytes > room ||
	    e->used > segment_blocks || e->frame.block >= segment_blocks ||
	    lsom__records_check(e + 1, e->frame.records_bytes, e->frame.records,
				segment_blocks) < 0)
		return NULL;
	return e;
}

int lsom__batch_decode(const void *blocks, size_t room,
		       const struct lsom__segment_header *segment,
		       uint32_t block, uint32_t segment_blocks,
		       struct lsom__batch_header *out)
{
	struct lsom__batch_header b;

	memcpy(&b, blocks, sizeof(b));
	if (b.magic != LSOM__BATCH_MAGIC ||
	    !uuid_equal(&b.disk, &segment->disk) ||
	    b.generation != segment->generation ||
	    b.segment_sequence != segment->sequence ||
	    b.head != segment->head || b.block != block)
		return -ENODATA;
	if (!log_version(b.version) || b.header_blocks == 0 ||
	    b.header_blocks > LSOM__HEADER_BLOCKS_MAX || b.batch == 0 ||
	    b.records_bytes + sizeof(b) >
		    (size_t)b.header_blocks * LSOM_BLOCK ||
	    (uint64_t)block + b.header_blocks + b.data_blocks > segment_blocks)
		return -EUCLEAN;
	*out = b;
	if ((size_t)b.header_blocks * LSOM_BLOCK > room)
		return -EAGAIN;
	if (b.crc != CRC_OF(struct lsom__batch_header, blocks,
			    (size_t)b.header_blocks * LSOM_BLOCK))
		return -EUCLEAN;
	return lsom__records_check((const uint8_t *)blocks + sizeof(b),
				   b.records_bytes, b.records, segment_blocks);
}

void lsom__summary_seal(void *blocks, uint32_t count)
{
	struct lsom__summary_header *s = blocks;

	s->crc = 0;
	s->crc = crc32c(blocks, (size_t)count * LSOM_BLOCK);
}

uint32_t lsom__summary_blocks(const void *last_block,
			      const struct lsom__segment_header *segment,
			      uint32_t segment_blocks)
{
	struct lsom__summary_footer f;

	memcpy(&f, (const uint8_t *)last_block + LSOM_BLOCK - sizeof(f),
	       sizeof(f));
	if (f.magic != LSOM__SUMMARY_MAGIC ||
	    f.segment_sequence != segment->sequence || f.blocks == 0 ||
	    f.blocks >= segment_blocks)
		return 0;
	return f.blocks;
}

int lsom__summary_decode(const void *blocks, uint32_t count,
			 const struct lsom__segment_header *segment,
			 struct lsom__summary_header *out)
{
	struct lsom__summary_header s;

	memcpy(&s, blocks, sizeof(s));
	if (s.magic != LSOM__SUMMARY_MAGIC ||
	    !uuid_equal(&s.disk, &segment->disk) ||
	    s.segment_sequence != segment->sequence ||
	    s.generation != segment->generation || s.head != segment->head ||
	    !log_version(s.version) || s.blocks != count ||
	    sizeof(s) + (uint64_t)s.bytes +
			    sizeof(struct lsom__summary_footer) >
		    (uint64_t)count * LSOM_BLOCK)
		return -EUCLEAN;
	if (s.crc != CRC_OF(struct lsom__summary_header, blocks,
			    (size_t)count * LSOM_BLOCK))
		return -EUCLEAN;
	*out = s;
	return 0;
}

static int data_record_check(const struct lsom__data_record *d, uint32_t len,
			     uint32_t segment_blocks)
{
	if (len < sizeof(*d) || d->parts > LSOM_PARTICIPANTS_MAX ||
	    d->blocks == 0 || d->first > UINT64_MAX / LSOM_BLOCK / 2 ||
	    d->blocks > UINT64_MAX / LSOM_BLOCK / 2)
		return -EUCLEAN;
	if (!(d->r.flags & LSOM__F_HOLE) &&
	    (d->blocks > LSOM_WRITE_MAX / LSOM_BLOCK || d->data == 0 ||
	     d->data + d->blocks > segment_blocks))
		return -EUCLEAN;
	return len == lsom__data_record_len(d->r.flags, d->blocks, d->parts)
		       ? 0
		       : -EUCLEAN;
}

static int state_record_check(const struct lsom__state_record *s, uint32_t len)
{
	if (len < sizeof(*s) || s->aborts > LSOM__ABORTS_MAX ||
	    s->committed > LSOM__COMMITS_MAX || s->size_bytes % LSOM_BLOCK != 0)
		return -EUCLEAN;
	return len == sizeof(*s) + s->aborts * sizeof(struct lsom__abort) +
				       s->committed * 8u
		       ? 0
		       : -EUCLEAN;
}

static int record_check(const uint8_t *p, size_t room, uint32_t segment_blocks)
{
	struct lsom__record r;

	if (room < sizeof(r))
		return -EUCLEAN;
	memcpy(&r, p, sizeof(r));
	if (r.len < sizeof(r) || r.len > room || r.len % 8 != 0 ||
	    (r.flags & ~LSOM__F_KNOWN))
		return -EUCLEAN;
	switch (r.type) {
	case LSOM__R_DATA:
		return data_record_check((const void *)p, r.len,
					 segment_blocks);
	case LSOM__R_STATE:
		return state_record_check((const void *)p, r.len);
	case LSOM__R_STABLE: {
		const struct lsom__stable_record *s = (const void *)p;

		if (r.len < sizeof(*s) || s->bitmap_bytes > LSOM_WINDOW / 8 ||
		    r.len != ROUND_UP(sizeof(*s) + s->bitmap_bytes, 8u))
			return -EUCLEAN;
		return 0;
	}
	case LSOM__R_COMMIT:
	case LSOM__R_ABORT:
	case LSOM__R_DELETE:
	case LSOM__R_LOST:
		return r.len == sizeof(r) ? 0 : -EUCLEAN;
	}
	return -EUCLEAN;
}

int lsom__records_check(const void *buf, size_t bytes, unsigned records,
			uint32_t segment_blocks)
{
	const uint8_t *p = buf;
	int rv;

	while (records-- > 0) {
		rv = record_check(p, bytes, segment_blocks);
		if (rv < 0)
			return rv;
		bytes -= ((const struct lsom__record *)(const void *)p)->len;
		p += ((const struct lsom__record *)(const void *)p)->len;
	}
	return bytes == 0 ? 0 : -EUCLEAN;
}

int lsom__frames_check(const void *buf, size_t bytes, uint32_t segment_blocks)
{
	const uint8_t *p = buf;
	struct lsom__frame f;
	int rv;

	while (bytes > 0) {
		if (bytes < sizeof(f))
			return -EUCLEAN;
		memcpy(&f, p, sizeof(f));
		p += sizeof(f);
		bytes -= sizeof(f);
		if (f.records_bytes > bytes || f.block >= segment_blocks)
			return -EUCLEAN;
		rv = lsom__records_check(p, f.records_bytes, f.records,
					 segment_blocks);
		if (rv < 0)
			return rv;
		p += f.records_bytes;
		bytes -= f.records_bytes;
	}
	return 0;
}

int lsom__summary_take(const void *blocks, uint32_t count,
		       const struct lsom__segment_header *segment,
		       uint32_t segment_blocks,
		       struct lsom__summary_header *out)
{
	int rv = lsom__summary_decode(blocks, count, segment, out);

	if (rv < 0)
		return rv;
	return lsom__frames_check((const uint8_t *)blocks + sizeof(*out),
				  out->bytes, segment_blocks);
}
