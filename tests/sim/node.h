/* node: what the workloads over a whole node share. */
#ifndef BASALT_TESTS_SIM_NODE_H
#define BASALT_TESTS_SIM_NODE_H

#include "cmmds/cmmds.h"
#include "dom/dom.h"
#include "lsom/lsom.h"
#include "tests/sim/sim.h"

#include <stdio.h>

#define CLIENTS 6u
#define NOTES 64u

enum {
	FAULT_NONE,
	FAULT_WRITE = 4,
	FAULT_READ,
	FAULT_ROT,
	FAULT_STALL,
	FAULT_INDEX,
	FAULTS
};

struct client {
	struct dom_io io;
	struct h_op *op;
	enum h_kind kind;
	unsigned number;
	struct sgl *data, *expect;
	uint64_t sent_ns;
	bool busy;
	bool or ; /* an ORWRITE of zeros: no matter what becomes of it */
};

/* A content of the directory, by its revision. */
struct note {
	uint64_t revision, hash;
};

enum nemesis { NEMESIS_NONE, NEMESIS_SWAP, NEMESIS_FORGET, NEMESIS_BARRED };

struct node {
	struct sim *sim;
	struct uuid id, cluster, oid, disk_ids[SIM_DISKS];
	unsigned disks_count;
	uint64_t incarnation;
	uint32_t sectors;
	uint32_t *seen; /* what a read saw last of a sector */
	struct cmmds *cmmds;
	struct lsom *lsom;
	struct dom *dom;
	struct lsom_disk *disks[SIM_DISKS];
	struct dom_object *object;
	struct client clients[CLIENTS];
	struct dom_resize resize;
	struct h_op *cut_off; /* by it; NULL: it grows */
	bool resizing;
	struct dom_create create; /* of objects that come and go */
	struct cmmds_command erase;
	bool creating, erasing;
	bool rebuild[SIM_DISKS], rebuilt[SIM_DISKS];

	uint64_t oepoch, csn, revision;
	struct note notes[NOTES];
	unsigned notes_next;

	uint64_t crash_at, answers;
	bool created, down, over, last, lossy;
	bool brief; /* most lives are too short to clean */
	unsigned ups;
	bool fill; /* the object is larger than its disks */
	unsigned fault;
	enum nemesis nemesis;
	bool nemesis_begun, nemesis_done;

	bool done;
	int status;
	const char *what; /* is waited for */
};

struct node *node_new(struct sim *sim);
/* True: the object is open.  False: power cut, or n->over. */
bool node_up(struct node *n);
/* client.c */
bool node__fault_excuses(const struct node *n, int status);
bool node__any_tampered(const struct node *n);
int node__send(struct node *n, struct client *c, unsigned flags);
void node__client_send(struct node *n, unsigned i);
/* One of them loses patience, the object gets another size, others come and go. */
void node__rough(struct node *n);
/* At the end: of what went, nothing is left. */
void node__rough_check(struct node *n);
/* fence.c */
void node_late_message(struct node *n);
void node_barred_message(struct node *n);
/* Until n->done.  False: the power went. */
bool node_wait(struct node *n);

#endif
