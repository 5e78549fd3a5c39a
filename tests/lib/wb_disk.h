/*
 * wb_disk: a disk in memory with a write-back cache, as real ones have.
 *
 * It keeps two images: what a read sees and what a power cut leaves.  A write
 * lies between them until it is durable; a cut leaves all of it, nothing, or
 * some of its 512-byte sectors.  Requests come in when the env is asked for
 * them and end when it says so; both are the caller's to choose.
 */
#ifndef BASALT_TESTS_WB_DISK_H
#define BASALT_TESTS_WB_DISK_H

#include "base/env.h"

enum wb_op { WB_READ, WB_WRITE, WB_FLUSH };

struct wb_write {
	uint64_t offset;
	size_t len;
	uint8_t *data;
	bool done; /* completed, and not durable yet */
	struct env_io *io; /* in flight; NULL: not any more */
	TAILQ_ENTRY(wb_write) link;
};

struct wb_disk {
	uint64_t bytes;
	uint8_t *now, *durable; /* as read; as a power cut leaves it */
	TAILQ_HEAD(, wb_write) volatiles; /* not durable, in order */
};

/* Aborts when memory is short: a test's set-up. */
void wb_disk_init(struct wb_disk *disk, uint64_t bytes);
void wb_disk_fini(struct wb_disk *disk);

/* Note in @io what was asked for; the iovecs stay the caller's. */
void wb_io_init(struct env_io *io, struct env_dev *dev, enum wb_op op,
		const struct iovec *iov, unsigned n, uint64_t offset,
		unsigned flags);

/* Do @len bytes at @offset lie on the disk? */
static inline bool wb_disk_holds(const struct wb_disk *disk, uint64_t offset,
				 uint64_t len)
{
	return offset <= disk->bytes && len <= disk->bytes - offset;
}

/*
 * A write begins: a device copies the memory at some moment before it
 * completes, this one now.  The write is in io->impl[0], too.
 */
struct wb_write *wb_disk_submit(struct wb_disk *disk, struct env_io *io);
/* It is in the cache: read from now on, and @durable or not yet. */
void wb_disk_land(struct wb_disk *disk, struct wb_write *write, bool durable);
/* Forget a write that is not durable. */
void wb_disk_drop(struct wb_disk *disk, struct wb_write *write);

void wb_disk_read(const struct wb_disk *disk, const struct env_io *io);
/* All writes that completed are durable. */
void wb_disk_flush(struct wb_disk *disk);

/* A whole write that does not wait: submitted and landed. */
void wb_disk_write_now(struct wb_disk *disk, const void *buf, size_t len,
		       uint64_t offset, bool durable);

/* Anything may be read there, and found after a power cut. */
void wb_disk_discard(struct wb_disk *disk, uint64_t offset, uint64_t len,
		     uint64_t *random);

/*
 * The power is cut: put what is left of @write, by the dice of @random, into
 * the durable image.  Returns how many sectors that are.
 */
size_t wb_disk_tear(struct wb_disk *disk, const struct wb_write *write,
		    uint64_t *random);

#endif
