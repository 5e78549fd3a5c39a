/*
 * shard: the daemon's env.  One thread, one libuv loop, one io_uring.
 *
 * Shard 0 runs on the thread that calls shards_run(); others have their own.
 * Rooms see only the env; what needs the loop itself (sockets of the TCP
 * datamover, the admin socket) asks for it here.
 */
#ifndef BASALT_BASE_SHARD_H
#define BASALT_BASE_SHARD_H

#include "base/env.h"
#include "base/page.h"

#include <uv.h>

struct shards;

struct shards_config {
	unsigned count; /* 0: one up to 2 CPUs, else half the CPUs */
	/*
	 * How long a loop may watch for the next completion before it sleeps,
	 * where waits are that short; 0: not at all.
	 */
	uint64_t spin_ns;
	struct arena *arena;
};

int shards_open(const struct shards_config *config, struct shards **out);

/* Run shard 0 here until shards_stop(); the others run in their threads. */
void shards_run(struct shards *shards);

/* From shard 0's thread: every loop ends once its handles are closed. */
void shards_stop(struct shards *shards);
void shards_close(struct shards *shards);

unsigned shards_count(const struct shards *shards);
struct env *shard_env(struct shards *shards, unsigned index);

/* spin_ns as it is in force: 0 where no CPU could be spared for it. */
uint64_t shard_spin_ns(struct env *env);

/* The libuv loop under @env, which must be a shard's. */
uv_loop_t *shard_loop(struct env *env);

/*
 * First line of every libuv callback outside base: the loop may have slept, so
 * env_now() is refreshed.
 */
void shard_wake(struct env *env);

/*
 * Put @kind and @len bytes at @data into the record of what reaches the disks,
 * if there is one (tests: the power-cut replay; see base/record.h).
 */
void shard_record_note(struct env *env, const char *kind, const void *data,
		       size_t len);

/*
 * One turn of the loop under @env, in its thread: run what is due, or sleep
 * until something is, @limit_ns at most.  libuv's loop never runs otherwise.
 */
void shard_step(struct env *env, uint64_t limit_ns);

/*
 * For tests in one thread: open one shard, run its loop until @done is set.
 */
void shard_run_until(struct env *env, const bool *done);

/*
 * Lock @fd for ourselves alone (flock); any thread but a loop.  The ring of a
 * daemon that was killed, and a disk that was closed, let go of their files a
 * little later, so a lock is waited for, 3 s at most, before it counts as held.
 * 0, -EBUSY or -errno.
 */
int shard_file_lock(int fd);

#endif
