/* wb_disk: the two images and the writes between them. */
#include "tests/lib/wb_disk.h"

#include "base/util.h"

#include "tests/lib/must.h"
#include "tests/lib/pattern.h"

void wb_disk_init(struct wb_disk *d, uint64_t bytes)
{
	d->bytes = bytes;
	d->now = must(calloc(1, bytes));
	d->durable = must(calloc(1, bytes));
	TAILQ_INIT(&d->volatiles);
}

void wb_disk_fini(struct wb_disk *d)
{
	while (!TAILQ_EMPTY(&d->volatiles))
		wb_disk_drop(d, TAILQ_FIRST(&d->volatiles));
	free(d->now);
	free(d->durable);
}

void wb_io_init(struct env_io *io, struct env_dev *dev, enum wb_op op,
		const struct iovec *iov, unsigned n, uint64_t offset,
		unsigned flags)
{
	io->dev = dev;
	io->op = (uint8_t)op;
	io->iov = iov;
	io->iov_count = n;
	io->offset = offset;
	io->flags = flags;
	io->len = 0;
	for (unsigned i = 0; i < n; i++)
		io->len += iov[i].iov_len;
}

static struct wb_write *write_add(struct wb_disk *d, uint64_t offset,
				  size_t len)
{
	struct wb_write *w = must(calloc(1, sizeof(*w)));

	w->offset = offset;
	w->len = len;
	w->data = must(malloc(len));
	TAILQ_INSERT_TAIL(&d->volatiles, w, link);
	return w;
}

void wb_disk_drop(struct wb_disk *d, struct wb_write *w)
{
	TAILQ_REMOVE(&d->volatiles, w, link);
	free(w->data);
	free(w);
}

struct wb_write *wb_disk_submit(struct wb_disk *d, struct env_io *io)
{
	struct wb_write *w = write_add(d, io->offset, io->len);
	size_t at = 0;

	for (unsigned i = 0; i < io->iov_count; i++) {
		memcpy(w->data + at, io->iov[i].iov_base, io->iov[i].iov_len);
		at += io->iov[i].iov_len;
	}
	w->io = io;
	io->impl[0] = w;
	return w;
}

/* A cache keeps the newest of a block: older ones are out of it. */
static void make_durable(struct wb_disk *d, struct wb_write *w)
{
	struct wb_write *v, *next;

	for (v = TAILQ_FIRST(&d->volatiles); v != w; v = next) {
		next = TAILQ_NEXT(v, link);
		if (!v->done || v->offset >= w->offset + w->len ||
		    w->offset >= v->offset + v->len)
			continue;
		memcpy(d->durable + v->offset, v->data, v->len);
		wb_disk_drop(d, v);
	}
	memcpy(d->durable + w->offset, w->data, w->len);
	wb_disk_drop(d, w);
}

void wb_disk_land(struct wb_disk *d, struct wb_write *w, bool durable)
{
	memcpy(d->now + w->offset, w->data, w->len);
	w->io = NULL;
	w->done = true;
	if (durable)
		make_durable(d, w);
}

void wb_disk_read(const struct wb_disk *d, const struct env_io *io)
{
	uint64_t at = io->offset;

	for (unsigned i = 0; i < io->iov_count; i++) {
		memcpy(io->iov[i].iov_base, d->now + at, io->iov[i].iov_len);
		at += io->iov[i].iov_len;
	}
}

void wb_disk_flush(struct wb_disk *d)
{
	struct wb_write *w, *next;

	/* What make_durable() takes along are older ones. */
	for (w = TAILQ_FIRST(&d->volatiles); w != NULL; w = next) {
		next = TAILQ_NEXT(w, link);
		if (w->done)
			make_durable(d, w);
	}
}

void wb_disk_write_now(struct wb_disk *d, const void *buf, size_t len,
		       uint64_t offset, bool durable)
{
	struct wb_write *w = write_add(d, offset, len);

	memcpy(w->data, buf, len);
	wb_disk_land(d, w, durable);
}

void wb_disk_discard(struct wb_disk *d, uint64_t offset, uint64_t len,
		     uint64_t *random)
{
	uint64_t words[SECTOR / 8], at;

	for (at = offset; at < offset + len; at += SECTOR) {
		for (size_t i = 0; i < ARRAY_LEN(words); i++)
			words[i] = random_next(random);
		memcpy(d->now + at, words, SECTOR);
		memcpy(d->durable + at, words, SECTOR);
	}
}

size_t wb_disk_tear(struct wb_disk *d, const struct wb_write *w,
		    uint64_t *random)
{
	uint64_t how = random_next(random) % 4;
	size_t at, left = 0;

	for (at = 0; at < w->len; at += SECTOR)
		if (how == 1 || (how >= 2 && random_next(random) % 4 != 0)) {
			memcpy(d->durable + w->offset + at, w->data + at,
			       SECTOR);
			left++;
		}
	return left;
}
