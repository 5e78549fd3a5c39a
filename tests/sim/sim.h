/*
 * sim: one node in one process, from a seed.
 *
 * The rooms run as shipped on a virtual clock, disks and stores that lie as
 * hardware may, and a power switch.  A life is the time between two power
 * cuts; at a cut the memory of the rooms is simply left behind (a seed runs in
 * a process of its own), so nothing is closed in an orderly way.  Clients write
 * into a history; at the end it must be explained by one order of events.
 *
 * The pieces: world (clock, events, env), disk (what lies below), history (what
 * clients saw), comp (lsom alone, the driver plays the owner), node and client
 * (cmmds, dom and lsom), fence (messages of owners gone by), rules (what can be
 * switched off), main.
 */
#ifndef BASALT_TESTS_SIM_H
#define BASALT_TESTS_SIM_H

#include "base/util.h"
#include "base/uuid.h"
#include "tests/lib/vloop.h"
#include "tests/lib/wb_disk.h"
#include "tests/lib/wb_store.h"

#include <errno.h>

#define SIM_DISKS 3u
#define SIM_STORES 8u
#define SIM_SEGMENT (256u << 10)
#define SECTOR 512u
#define SECTORS_A_BLOCK 8u

struct sim;

/* ---- disk.c: what survives a power cut ---- */

struct sim_disk {
	struct sim *sim;
	char path[16];
	struct wb_disk wb;
	uint8_t *written; /* a bit a 4 KiB block */
	uint64_t stalled_until;
	bool gone; /* every request fails */
	/* One fault each, at the Nth request from now; 0: none. */
	uint64_t write_eio, read_eio, flush_eio, misdirect;
	bool tampered; /* media faults: what was durable may be lost */
};

struct sim_store {
	struct sim *sim;
	char path[32];
	struct wb_store wb;
	bool log; /* every batch is durable at once */
	uint64_t apply_eio;
	uint64_t full_until; /* it has no space */
};

struct env_dev {
	struct sim_disk *disk;
	struct sim_life *life;
};

void sim_disk_init(struct sim *sim, unsigned i, uint64_t bytes);
/* At completion: what a request of a device ends with. */
int64_t sim_disk_end(struct env_io *io);
void sim_disk_submit(struct env_io *io);
void sim_disk_cut(struct sim_disk *disk);
/* No more faults; what they did stays. */
void sim_disk_mend(struct sim_disk *disk);
/* Change a byte of something that was written. */
void sim_disk_rot(struct sim_disk *disk);
int sim_disk_read_now(struct env_dev *dev, void *buf, size_t len,
		      uint64_t offset);
int sim_disk_write_now(struct env_dev *dev, const void *buf, size_t len,
		       uint64_t offset, unsigned flags);
int sim_disk_discard_now(struct env_dev *dev, uint64_t offset, uint64_t len);
int sim_store_open(struct sim *sim, const struct kv_config *config,
		   struct kv **out);
void sim_store_cut(struct sim_store *store);
/* The store is gone, with the system disk it lay on. */
void sim_store_wipe(struct sim *sim, const char *path);

/* ---- world.c ---- */

struct sim_pending; /* an I/O or a piece of work that ends some time */

struct sim_life {
	struct vloop loop; /* first */
	struct sim *sim;
	struct sim_pending *pending; /* a heap by (due, order) */
	size_t pending_count, pending_room;
	bool dead;
};

struct sim_config {
	unsigned ops; /* 0: as the seed has it */
	uint64_t rules_off; /* a bit a rule: rules.c */
	bool trace;
	bool scrub; /* its disk is scrubbed, now and then */
	bool apart; /* a component's blocks: more index pages than fit */
	bool full; /* its index finds no space, for a while */
	bool trim; /* free space goes back to its disk, which makes anything of it */
	bool rough; /* clients give up, and the object gets other sizes */
};

struct sim {
	struct sim_config config;
	uint64_t seed, random, hash;
	uint64_t now_ns, events, order;
	uint64_t tick; /* of the history: strictly rising */
	struct sim_life *life;
	struct sim_disk disks[SIM_DISKS];
	unsigned disks_count;
	struct sim_store stores[SIM_STORES];
	unsigned stores_count;
	struct history *history;
	unsigned cuts, restarts;
};

/* Free space is looked for that often, of the time that a life takes. */
#define SIM_TRIM_NS (20 * MSEC)

void sim_init(struct sim *sim, const struct sim_config *config, uint64_t seed);
/* Power on: sim->life is a fresh env. */
void sim_power_on(struct sim *sim);
/* Everything of this life is forgotten, as is what was not durable. */
void sim_power_cut(struct sim *sim);
/* An orderly end: the life's own memory is let go. */
void sim_power_off(struct sim *sim);
uint64_t sim_random(struct sim *sim, uint64_t below);
static inline bool sim_chance(struct sim *sim, unsigned one_in)
{
	return sim_random(sim, one_in) == 0;
}
/* One event; false: nothing is left to do. */
bool sim_step(struct sim *sim);
/* Until *@done; false: it never came, or 10 minutes passed. */
bool sim_run(struct sim *sim, const bool *done);
void sim_hash(struct sim *sim, uint64_t value);
void sim_hash_bytes(struct sim *sim, const void *data, size_t len);

void sim_trace(struct sim *sim, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Say what is wrong and end the seed. */
void sim_violation(struct sim *sim, const char *fmt, ...)
	__attribute__((format(printf, 2, 3), noreturn));

/* True while rule @rule (rules.c) is on. */
bool sim_rule(const struct sim *sim, unsigned rule);

/* ---- history.c ---- */

enum h_kind { H_READ, H_WRITE, H_UNMAP, H_COMPARE };
enum h_outcome {
	H_PENDING,
	H_DONE, /* it was so */
	H_NEVER, /* it surely had no effect */
	H_UNKNOWN, /* it may have happened, or may yet until @end */
};

struct h_op {
	enum h_kind kind;
	enum h_outcome outcome;
	bool atomic;
	unsigned client;
	uint64_t start, end; /* ticks */
	uint64_t ns;
	uint32_t sector, count;
	uint32_t id; /* what it writes; 0: zeros */
	uint32_t *seen; /* a read's values; a compare's expectation */
};

struct history *history_new(struct sim *sim, uint32_t sectors);
/* A new operation, started now. */
struct h_op *history_start(struct history *h, enum h_kind kind, unsigned client,
			   uint32_t sector, uint32_t count);
void history_end(struct history *h, struct h_op *op, enum h_outcome outcome);
/* The power is gone: what is pending is unknown from here on... */
void history_cut(struct history *h);
/* ...until the node serves again: nothing old can happen any more. */
void history_serving(struct history *h);
/* The bytes of a sector with value @id. */
void history_fill(uint8_t *sector_bytes, uint32_t sector, uint32_t id);
/* And back: the value, checked; an impossible one is a violation. */
uint32_t history_value(struct history *h, const uint8_t *bytes,
		       uint32_t sector);
/* Media faults lost something: from here on only whole values count. */
void history_lossy(struct history *h);
/* Is there one order of all this?  A violation if not. */
void history_check(struct history *h);
uint32_t history_ops(const struct history *h);

/* ---- rules.c ---- */

enum sim_mode { MODE_COMP = 1, MODE_NODE = 2 };

enum sim_rule_id {
	RULE_R1,
	RULE_R6,
	RULE_R10,
	RULE_R11,
	RULE_R13,
	RULE_R14,
	RULE_R16,
	RULE_R17,
	RULE_R26,
	RULE_R27,
	RULE_R28,
	RULE_R36,
	RULE_R41,
	RULE_R42,
	RULE_R44,
	RULE_R45,
	RULE_DURABLE_PREFIX,
	RULE_GENERATION,
	RULE_CARRY,
	RULE_REUSE,
	RULE_MOVE,
	RULE_UNDO,
	RULES
};

struct sim_rule {
	const char *name, *what;
	unsigned modes; /* workloads that can break without it */
	unsigned lsom; /* bit of lsom_config.rules_off, as a mask */
	uint64_t dom; /* of dom_config.rules_off */
};
extern const struct sim_rule sim_rules[RULES];
int sim_rule_find(const char *name);
uint64_t sim_rules_lsom(const struct sim *sim);
uint64_t sim_rules_dom(const struct sim *sim);

/* ---- workloads ---- */

void comp_run(struct sim *sim);
void node_run(struct sim *sim);

#endif
