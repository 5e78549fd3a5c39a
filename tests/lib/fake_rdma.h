/*
 * fake_rdma: an RDMA device in this process, for tests of what stands on
 * libibverbs and librdmacm: it takes the place of the functions that are called
 * there, moves bytes as a device would, and checks what one would: keys,
 * ranges, queue lengths, order of destruction.
 *
 * The initiator's side is the test itself: it connects, sends messages, reads
 * what arrived, and has memory that remote keys name.
 *
 * Shards may use the device from their threads: a lock makes one after the other
 * of their calls.
 */
#ifndef BASALT_TESTS_FAKE_RDMA_H
#define BASALT_TESTS_FAKE_RDMA_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fake_rdma_config {
	bool no_srq; /* the device has no shared receive queues */
	bool srqs_gone; /* it has none left */
	unsigned cqe; /* of a completion queue at most; 0: 8192 */
	unsigned sge; /* 0: 16 */
	unsigned sge_read; /* 0: as sge */
	bool iwarp;
	/*
	 * As Linux' software iWARP and its library are: READs are completed behind
	 * what was posted after them, what failed comes back twice, what is posted
	 * to a queue pair in error never comes back, and the key to invalidate is
	 * where READs have theirs.  From a page on, what is not signalled is sent out
	 * of memory that counts as free again: here, that has other bytes by then.
	 */
	bool siw;
	bool receives_first; /* at the end of a queue pair they are told first */
	bool says_last_wqe;
	bool broken_too; /* another device is there, which cannot be used */
};

/* A device appears; at most one that works at a time. */
void fake_rdma_open(const struct fake_rdma_config *config);
/* It must have been left by everybody: asserts it. */
void fake_rdma_close(void);
/* What the device must still hold for nobody: asserts all counts are zero. */
void fake_rdma_check_empty(void);

/* The @nth call that makes something fails with ENOMEM, counted from 1. */
void fake_rdma_fail(unsigned nth);
/* Calls that make something since fake_rdma_fail(). */
unsigned fake_rdma_calls(void);
/* Every post to a send queue fails from now on. */
void fake_rdma_fail_posts(bool fail);
/* Every post of a receive does. */
void fake_rdma_fail_receives(bool fail);

struct fake_peer;

/* The device is pulled out: everybody is told; it completes nothing more. */
void fake_rdma_remove(void);
/* The same, but @peer's connection is the only one that is told. */
void fake_rdma_remove_told(struct fake_peer *peer);
/*
 * @cb, NULL: nothing, runs in whatever thread fetched an event, before it gets it,
 * and behind its acknowledgement: what others may do then.
 */
void fake_rdma_hook(void (*cb)(bool acked));
/* @cb runs once, before a completion queue is armed next. */
void fake_rdma_before_arming(void (*cb)(void));
/* The one that cannot be used goes. */
void fake_rdma_broken_goes(void);
/* The system has it no more, or again; nobody is told. */
void fake_rdma_hide(bool hidden);
/* The system has another one of the same GUID, or no more; nobody uses it. */
void fake_rdma_twin(bool there);
/*
 * The device says that it failed, or @srq: that its shared receive queue did.
 * Behind the last id its context is closed.
 */
void fake_rdma_break(bool srq);

/* Ask the listener for a connection; the answer comes in the loop. */
struct fake_peer *fake_peer_connect(const void *private_data,
				    unsigned private_len, unsigned reads);
enum fake_peer_state { FAKE_ASKED, FAKE_UP, FAKE_REFUSED, FAKE_DOWN };
enum fake_peer_state fake_peer_state(const struct fake_peer *peer);
/* How many READs at a time it was promised; the accept's private data. */
unsigned fake_peer_depth(const struct fake_peer *peer);
const uint8_t *fake_peer_private(const struct fake_peer *peer);
/* Its end: with a word, or without. */
void fake_peer_disconnect(struct fake_peer *peer);
void fake_peer_free(struct fake_peer *peer);

/* Memory that the target may reach by @key, at the address 4096 * @key. */
void fake_peer_expose(struct fake_peer *peer, uint32_t key, void *memory,
		      size_t len);
/*
 * Send a message.  False: no receive is posted there.  One that is longer than
 * the receive breaks the connection.
 */
bool fake_peer_send(struct fake_peer *peer, const void *message, size_t len);
/* The oldest message that arrived, freed by the caller; NULL: none. */
struct fake_message {
	uint32_t invalidated; /* 0: none */
	bool fenced; /* it waited for READs that were posted before */
	size_t len;
	uint8_t bytes[];
} * fake_peer_receive(struct fake_peer *peer);
/* Work requests are taken, but nothing is done, until it is let go. */
void fake_peer_hold(struct fake_peer *peer, bool hold);
/* But for the next @n of them. */
void fake_peer_let(struct fake_peer *peer, unsigned n);
/* Of work requests READs alone are not done. */
void fake_peer_hold_reads(struct fake_peer *peer, bool hold);
/* Nor does an end of it come back. */
void fake_peer_freeze(struct fake_peer *peer, bool freeze);
/* RDMA READs in flight at most, since it connected. */
unsigned fake_peer_reads_max(const struct fake_peer *peer);
/* Bytes that those in flight now fetch. */
size_t fake_peer_reads_bytes(const struct fake_peer *peer);
/* The next work request ends with an error. */
void fake_peer_error(struct fake_peer *peer);
/* The device has an event of its queue pair, or of its completion queue. */
void fake_peer_async(struct fake_peer *peer, enum ibv_event_type type);

#endif
