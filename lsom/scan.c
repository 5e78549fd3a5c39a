/*
 * scan: the records of a segment that has no summary, from its batches.
 *
 * A header that cannot be read is no gap yet: the next batch of the head repeats
 * what was in it, in this segment or at the beginning of the head's next one.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/recover_int.h"

#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

static int frame_append(struct lsom__frames *f, const struct lsom__frame *frame,
			const void *records)
{
	size_t need = f->bytes + sizeof(*frame) + frame->records_bytes;
	uint8_t *p = realloc(f->mem, need);

	if (p == NULL)
		return -ENOMEM;
	f->mem = p;
	memcpy(p + f->bytes, frame, sizeof(*frame));
	memcpy(p + f->bytes + sizeof(*frame), records, frame->records_bytes);
	f->bytes = need;
	f->last_batch = frame->batch;
	return 0;
}

static int batch_add(struct lsom__frames *f, const struct lsom__batch_header *b,
		     const void *records)
{
	struct lsom__frame frame = {
		.batch = b->batch,
		.pos = b->pos,
		.records_bytes = b->records_bytes,
		.records = b->records,
		.version = b->version,
		.block = b->block,
		.data_crc = b->data_crc,
	};
	int rv = frame_append(f, &frame, records);

	if (rv < 0)
		return rv;
	f->used = b->block + b->header_blocks + b->data_blocks;
	f->durable_prefix = MAX(f->durable_prefix, b->durable_prefix);
	return 0;
}

int lsom__frames_echo(struct lsom__frames *f, const struct lsom__echo *echo)
{
	int rv;

	if (echo->frame.batch <= f->last_batch)
		return 0;
	rv = frame_append(f, &echo->frame, echo + 1);
	if (rv == 0)
		f->used = MAX(f->used, echo->used);
	return rv;
}

/* @echo is of the segment before: kept until both are there. */
static int echo_keep(struct lsom__frames *f, const struct lsom__echo *echo)
{
	size_t len = sizeof(*echo) + echo->frame.records_bytes;

	f->before = malloc(len);
	if (f->before == NULL)
		return -ENOMEM;
	memcpy(f->before, echo, len);
	return 0;
}

static int echo_take(struct lsom__frames *f,
		     const struct lsom__segment_header *h,
		     const struct lsom__echo *echo)
{
	if (echo == NULL)
		return 0;
	if (echo->segment_sequence == h->sequence)
		return lsom__frames_echo(f, echo);
	return f->bytes == 0 && f->before == NULL ? echo_keep(f, echo) : 0;
}

int lsom__frames_before(struct lsom__recovery *rec, uint32_t segment,
			struct lsom__frames *f)
{
	const struct lsom__segment_header *h = &rec->headers[segment];
	uint32_t all = rec->disk->segment_blocks;
	uint32_t room = MIN(LSOM__HEADER_BLOCKS_MAX, all - 1);
	const struct lsom__echo *echo;
	struct lsom__batch_header b;
	int rv = lsom__recovery_read(rec, segment, 1, room, rec->buf);

	if (rv < 0)
		return rv;
	if (lsom__batch_decode(rec->buf, (size_t)room * LSOM_BLOCK, h, 1, all,
			       &b) < 0)
		return 0; /* it stays unknown */
	echo = lsom__batch_echo(rec->buf, &b, all);
	if (echo == NULL || echo->segment_sequence == h->sequence)
		return 0;
	return echo_keep(f, echo);
}

int lsom__segment_scan(struct lsom__recovery *rec, uint32_t segment,
		       struct lsom__frames *out)
{
	const struct lsom__segment_header *h = &rec->headers[segment];
	uint32_t all = rec->disk->segment_blocks, at = 1;
	struct lsom__batch_header b;
	const uint8_t *p;
	int rv = lsom__recovery_read(rec, segment, 0, all, rec->buf);

	if (rv < 0)
		return rv;
	while (at < all) {
		p = rec->buf + (size_t)at * LSOM_BLOCK;
		rv = lsom__batch_decode(p, (size_t)(all - at) * LSOM_BLOCK, h,
					at, all, &b);
		if (rv < 0 || b.batch <= out->last_batch) {
			at++;
			continue;
		}
		rv = echo_take(out, h, lsom__batch_echo(p, &b, all));
		if (rv == 0)
			rv = batch_add(out, &b, p + sizeof(b));
		if (rv < 0)
			return rv;
		at += b.header_blocks + b.data_blocks;
	}
	return 0;
}
