/*
 * sim_env: an env of one thread that lies as real hardware may.
 *
 * Everything follows from the seed.  Time is virtual.  The disk is memory:
 * requests complete in any order; what is not durable yet may be lost, whole or
 * torn at 512 bytes when the power goes.  The store keeps what was flushed and
 * any prefix of what was applied after that.
 *
 * A power cut: sim_env_cut() settles what is left on the disk and in the store;
 * from then on every write fails, so that the rooms above can be closed in an
 * orderly way; sim_env_restore() then gives the next run what was left.
 */
#ifndef BASALT_TESTS_SIM_ENV_H
#define BASALT_TESTS_SIM_ENV_H

#include "tests/lib/vloop.h"
#include "tests/lib/wb_disk.h"
#include "tests/lib/wb_store.h"

struct sim_env {
	struct vloop loop; /* first */
	uint64_t random;
	struct wb_disk disk;
	struct wb_store store;
	bool block_device; /* and no file */
	bool can_discard; /* what is discarded is overwritten with anything */
	int discard_status; /* 0, or how that ends */
	uint32_t logical_block; /* 512; what is no multiple gets -EINVAL */
	bool cut; /* the power is gone: writes fail */
	bool lie; /* ENV_DURABLE is ignored: for tests of the tests */
	/* Fail the Nth write or read from now on with -EIO; 0: none. */
	uint64_t fail_write, fail_read;
	bool goes, gone; /* with that read: so do all that follow; they do */
	uint64_t back_read; /* until this one of them; 0: for ever */
	/*
	 * Sectors that the medium lost, until they are written: reads of them
	 * end with -ENODATA, as of a block device of Linux, or with
	 * @lost_status, if that is set.
	 */
	uint64_t lost_at, lost_bytes;
	int lost_status;
	uint64_t fail_flush; /* of the store */
	int apply_status,
		flush_status; /* of the store, as long as they say so */
	int stuck; /* by such of these, until it is opened again: kv_reopen() */
	unsigned reopened;
	bool hold_plain; /* writes that are not durable do not complete */
	bool hold_reads; /* nor do reads */
	uint64_t writes, discards;
	uint64_t discard_at; /* the last one's */
	/* By an opening, which reads on its worker. */
	uint64_t read_bytes, reads_alone, reads_together;
	struct env_io **ios; /* in flight */
	size_t ios_count, ios_room;
};

void sim_env_init(struct sim_env *sim, uint64_t bytes, uint64_t seed);
void sim_env_fini(struct sim_env *sim);
uint64_t sim_env_random(struct sim_env *sim, uint64_t below);
/* One event; false: nothing is left to do. */
bool sim_env_turn(struct sim_env *sim);
/* Until *@done; false: it never came. */
bool sim_env_run(struct sim_env *sim, const bool *done);
void sim_env_cut(struct sim_env *sim);
void sim_env_restore(struct sim_env *sim);

#endif
