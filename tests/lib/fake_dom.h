/*
 * fake_dom: dom.h over plain memory, for tests of the rooms above dom.
 *
 * All of the client interface is there: sparse volumes, atomic commands, maps,
 * SPC-2 and persistent reservations (fake_dom_pr.c), watches.  Completions come
 * from the environment's deferred tasks, in the order of submission, and can
 * be held back, failed or cancelled.
 */
#ifndef BASALT_TESTS_FAKE_DOM_H
#define BASALT_TESTS_FAKE_DOM_H

#include "dom/dom.h"

enum fake_op {
	FAKE_READ = 1,
	FAKE_WRITE = 2,
	FAKE_UNMAP = 4,
	FAKE_COMPARE = 8,
	FAKE_OR = 16,
	FAKE_MAP = 32,
	FAKE_RESERVE = 64,
	FAKE_OPEN = 128,
	FAKE_MARK = 256, /* not of FAKE_ANY */
	FAKE_ATOMIC = 512, /* a write that is to be atomic, besides */
	FAKE_ANY = 255,
};

int fake_dom_open(struct env *env, struct dom **out);

/* 0, -EEXIST or -ENOMEM.  Volumes go with dom_close(). */
int fake_dom_add(struct dom *dom, const struct uuid *oid, uint64_t size_bytes);
void fake_dom_remove(struct dom *dom, const struct uuid *oid);
void fake_dom_resize(struct dom *dom, const struct uuid *oid,
		     uint64_t size_bytes);

/* Its mark of a SANITIZE tells nothing any more: dom_sanitize_state(). */
void fake_dom_mark_empty(struct dom *dom, const struct uuid *oid);

/* What dom_object_space() says from now on; tells watches DOM_LOW_SPACE. */
void fake_dom_low_space(struct dom *dom, const struct uuid *oid,
			uint64_t used_bytes, uint64_t free_bytes);
void fake_dom_congestion(struct dom *dom, const struct uuid *oid,
			 unsigned congestion);

/*
 * After @skip matching requests, @times of them end with @status: at once (not
 * accepted) if @at_once, else from their callback.  @bad_offset goes with it.
 */
struct fake_fault {
	unsigned ops; /* enum fake_op, or-ed */
	unsigned skip, times;
	int status;
	bool at_once;
	uint64_t bad_offset;
};
void fake_dom_fault(struct dom *dom, struct fake_fault fault);

/* While held, requests stay queued: they can be cancelled. */
void fake_dom_hold(struct dom *dom, bool hold);
/* They execute already, so to say: dom_cancel() does not stop them. */
void fake_dom_stubborn(struct dom *dom, bool stubborn);
/*
 * While set, a RESERVE is answered before its time: it is on its way, and takes effect
 * when this is unset.
 */
void fake_dom_late(struct dom *dom, const struct uuid *oid, bool late);
unsigned fake_dom_queued(const struct dom *dom);

/* A restart: logins end, what was not registered with APTPL is forgotten. */
void fake_dom_power_loss(struct dom *dom);

#endif
