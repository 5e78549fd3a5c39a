/*
 * record: a log of what really reaches a node's disks, for the power-cut replay.
 *
 * With BASALT_IO_RECORD=FILE in the environment the io_uring backend and the
 * RocksDB stores that have no log of their own (a disk's index) write down what
 * they submit and what was completed, over all threads, in the order in which
 * it happened.  Without it each call costs one test.
 *
 * The file is a sequence of {struct record_head, data}, in the byte order of
 * the machine: it is read where it was written (tests/lib/iorecord.h).
 */
#ifndef BASALT_BASE_RECORD_H
#define BASALT_BASE_RECORD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#define RECORD_MAGIC 0x31524f49u /* "IOR1" */

enum record_kind {
	RECORD_OPEN = 1, /* data: path */
	RECORD_WRITE, /* data: what is written; flags: ENV_DURABLE */
	RECORD_FLUSH,
	RECORD_DISCARD, /* flags: none; data: 8 bytes of length */
	RECORD_DONE, /* of @id; offset: the result, bytes or -errno */
	RECORD_NOTE, /* data: a name, NUL, bytes */
	RECORD_STORE_OPEN, /* data: path */
	/*
	 * A batch is given to a store.  data: uint64_t count, then struct
	 * kv_change[count], then the bytes they point into.
	 */
	RECORD_STORE_BATCH,
	/* Once done, every batch done before it began is durable. */
	RECORD_STORE_FLUSH,
};

/* In record_head.dev: a store's number, not a device's. */
#define RECORD_STORE 0x80000000u

struct record_head {
	uint32_t magic, kind, dev, flags;
	uint64_t id, offset, len; /* @len bytes of data follow */
};

bool record_on(void);

/*
 * Append an event, from any thread; only while record_on().  @id is 0 but for
 * RECORD_DONE, which names the event it completes.  Returns the event's id.
 */
uint64_t record_event(enum record_kind kind, uint32_t dev, uint64_t id,
		      uint64_t offset, uint32_t flags, const struct iovec *iov,
		      unsigned n);

#endif
