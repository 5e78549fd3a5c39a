/* comp: what the files of the workload over lsom alone share. */
#ifndef BASALT_TESTS_SIM_COMP_H
#define BASALT_TESTS_SIM_COMP_H

#include "base/crc.h"
#include "base/err.h"
#include "lsom/format.h"
#include "lsom/lsom.h"
#include "tests/sim/sim.h"

#include <stdlib.h>

#define SLOTS 12u
#define WRITE_BLOCKS 24u
#define APART_BLOCKS 400u
#define LATE_MAX 8u

struct run;

struct slot {
	struct lsom_write w;
	struct lsom_read rd;
	struct lsom_decide decide;
	struct run *run;
	struct h_op *op;
	uint32_t crcs[WRITE_BLOCKS];
	uint64_t seq;
	uint32_t first, blocks;
	bool busy, reading, abort, silent;
};

/* What is known of a block when nothing of it is in flight. */
struct block {
	uint8_t writers, readers;
	bool known, hole, ever;
	uint64_t lsn;
};

enum aux { AUX_NONE, AUX_MAKING, AUX_THERE, AUX_GOING, AUX_MAYBE };

struct run {
	struct sim *sim;
	struct lsom *lsom;
	struct lsom_disk *disk;
	struct lsom_comp *comp;
	struct uuid id, cluster, cid;
	uint32_t blocks_count;
	struct block *blocks;
	struct slot slots[SLOTS];
	uint64_t epoch, sealed_epoch, seq_next, stable;
	uint8_t answered[1u << 16], aborted[1u << 16];
	struct lsom_decided decided;
	bool keep_holes;
	/* an aborted PREP that comes again */
	struct slot late;
	struct lsom_undecided undecided[256];
	unsigned undecided_count;

	enum aux aux;
	struct uuid aux_id;
	unsigned aux_number;
	struct lsom_meta aux_req;
	bool aux_busy;
	struct lsom_checkpoint checkpoint;
	bool checkpointing;
	struct lsom_scrub scrub;
	bool scrubbing;

	uint64_t crash_at; /* event */
	bool created, down, header_rot, rebuild, rebuilt, last;
	bool squeeze, filled, brief; /* nearly full; lives too short to clean */
	bool done;
	int status;
	unsigned fault;
};

enum {
	FAULT_NONE,
	FAULT_WRITE = 3,
	FAULT_READ,
	FAULT_ROT,
	FAULT_STALL,
	FAULT_INDEX,
	FAULT_HEADER,
	FAULTS
};

/* comp_io.c: what the owner sends */
uint64_t comp__lsn_of(const struct run *r, uint64_t seq);
/* Where block @i is in the component, in bytes; and of @n what follows it there. */
uint64_t comp__offset(const struct run *r, uint32_t i);
uint32_t comp__together(const struct run *r, uint32_t i, uint32_t n);
void comp__stable_move(struct run *r);
bool comp__fault_excuses(const struct run *r, int status);
void comp__undecided_check(struct run *r);
void comp__write_one(struct run *r, struct slot *s, unsigned client);
/* Write, or unmap, @n blocks from @first; not if others are at work there. */
void comp__write_some(struct run *r, struct slot *s, unsigned client,
		      uint32_t first, uint32_t n, bool hole);
bool comp__read_some(struct run *r, struct slot *s, unsigned client,
		     uint32_t first, uint32_t n);
void comp__read_one(struct run *r, struct slot *s, unsigned client);
void comp__aux_change(struct run *r);
void comp__aux_check(struct run *r);
/* comp_fault.c */
void comp__fault_now(struct run *r);
void comp__full(struct run *r);

#endif
