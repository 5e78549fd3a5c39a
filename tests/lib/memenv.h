/*
 * memenv: an env in memory, for replaying states of a disk by the thousand.
 *
 * One thread, virtual time, one device: an image that is never changed plus an
 * overlay of what was written since memenv_reset().  Blocking work runs on the
 * loop; the key-value store is a sorted table, cloned from what another store
 * held.  A completion never runs inside its submission, as env.h asks.
 */
#ifndef BASALT_TESTS_MEMENV_H
#define BASALT_TESTS_MEMENV_H

#include "tests/lib/vloop.h"

struct memenv {
	struct vloop loop; /* first */
	uint64_t random;

	const uint8_t *image; /* of @image_bytes; the caller's */
	uint64_t image_bytes;
	/* A pointer a 4 KiB block, NULL: as in the image. */
	struct memenv_block {
		uint8_t *data;
		bool lent; /* by memenv_lay(): copied before it is changed */
	} * overlay;
	uint32_t *touched;
	size_t touched_count;

	/* A memkv every opened store starts from, NULL: nothing; the caller's. */
	struct kv *kv_base;

	/*
	 * Virtual time of an access and of a MiB, one access after the other;
	 * 0: none.  So a budget of time is one of I/O, the same on any machine.
	 */
	uint64_t access_ns, mib_ns;
	uint64_t accesses, bytes; /* since the caller set them */

	TAILQ_HEAD(, env_io) ios;
	uint64_t writes, flushes;
};

/* Aborts when memory is short: a test's set-up. */
void memenv_init(struct memenv *me, const uint8_t *image, uint64_t bytes);
void memenv_fini(struct memenv *me);

/* Forget what was written. */
void memenv_reset(struct memenv *me);

/* Put bytes into the overlay, as a disk would hold them. */
void memenv_poke(struct memenv *me, uint64_t offset, const void *data,
		 size_t len);

/*
 * Lay a block over @offset, a multiple of 4096, without a copy: @data stays as
 * it is until memenv_reset().
 */
void memenv_lay(struct memenv *me, uint64_t offset, const void *data);

/* Run until *@done; false if nothing is left to run or 10 minutes passed. */
bool memenv_run(struct memenv *me, const bool *done);

#endif
