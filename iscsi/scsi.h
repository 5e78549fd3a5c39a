/*
 * scsi: commands to logical units, between the session (task.c) and the
 * command set (scsi_*.c).  Private to the room.
 *
 * A command's life:
 *	scsi_cmd_begin()	the CDB is in: checks; says how much data the
 *				command moves which way and how it must lie
 *	(the session gets the data)
 *	scsi_cmd_execute()	-> cmd->done(cmd) later, once; status, sense and
 *				data_in are set
 *	scsi_cmd_end()		lets go of data and references
 *
 * After a begin that returned true, done() runs exactly once if the command
 * was executed, aborted (scsi_cmd_abort(), also before execute) or hit by a
 * task management function of any nexus.  So done() may come while the session
 * still collects data: then execute must not follow.  If cmd->aborted is set in
 * done(), no SCSI Response goes out.  A command that is given up before execute
 * may also simply be ended with scsi_cmd_end(); then done() never runs.
 *
 * Residuals: transfer_len (final in done(), or after a begin that returned
 * false) against edtl.  data_in_len is what to send.
 */
#ifndef BASALT_ISCSI_SCSI_H
#define BASALT_ISCSI_SCSI_H

#include "base/env.h"
#include "base/sgl.h"
#include "base/stats.h"
#include "dom/dom.h"
#include "iscsi/iscsi.h"

#include <stdatomic.h>

#define SCSI_CDB_MAX 260u
#define SCSI_SENSE_MAX 96u /* iSER initiators take 128 bytes of response data */

enum scsi_status {
	SCSI_GOOD = 0x00,
	SCSI_CHECK_CONDITION = 0x02,
	SCSI_CONDITION_MET = 0x04,
	SCSI_BUSY = 0x08,
	SCSI_RESERVATION_CONFLICT = 0x18,
	SCSI_TASK_SET_FULL = 0x28,
	SCSI_ACA_ACTIVE = 0x30,
	SCSI_TASK_ABORTED = 0x40,
};

enum scsi_dir { SCSI_DIR_NONE, SCSI_DIR_OUT, SCSI_DIR_IN };
enum scsi_attr {
	SCSI_UNTAGGED,
	SCSI_SIMPLE,
	SCSI_ORDERED,
	SCSI_HEAD,
	SCSI_ACA
};

/* All the logical units of one target: lun.c. */
struct scsi_target;
struct scsi_lun;
struct scsi_tmf_req;

/* The name that VPD page 83 has for the unit of an object: NAA 3. */
#define SCSI_NAA_BYTES 8u
void scsi_naa(const struct uuid *object, uint8_t out[SCSI_NAA_BYTES]);

/*
 * Another target's unit, by its name.  May the initiator of a session with @target
 * use it: could it log in there without proving more than it has proved here?
 */
struct scsi_lookup {
	uint8_t naa[SCSI_NAA_BYTES];
	char initiator_port[256];
	const char *target; /* name */
	/* out */
	struct uuid object;
	uint32_t block_bytes;
	bool read_only;
	/* private */
	struct iscsi *asker, *home;
	int status;
	struct env_task task;
	void (*cb)(struct scsi_lookup *req, int status);
};
/* 0; -ENOENT: none that it may use; -ENXIO: it is not open now. */
typedef void (*scsi_lookup_cb)(struct scsi_lookup *req, int status);

/*
 * What the targets of one loop share: a logical unit is an object, whichever of
 * them shows it.  Their owner's, from before the first to after the last.
 */
#define SCSI_BUCKETS 1024u /* there may be a few units in each */
struct scsi_common {
	TAILQ_HEAD(, scsi_lun) units; /* with an object, of all targets */
	TAILQ_HEAD(scsi_units, scsi_lun) units_by_object[SCSI_BUCKETS];
	TAILQ_HEAD(, scsi_tmf_req) tmfs; /* functions that wait for tasks */
	TAILQ_HEAD(, scsi_sanitize) sanitizes; /* one an object at most */
	TAILQ_HEAD(, scsi_copy) copies; /* EXTENDED COPY that run */
	unsigned copies_count;
	atomic_uint untried; /* units, see scsi_units_retry() */
	/* Set by the owner; NULL: there are no other targets. */
	void (*lookup)(struct iscsi *iscsi, struct scsi_lookup *req,
		       scsi_lookup_cb cb);
	struct iscsi *iscsi; /* for that */
	uint64_t seq; /* commands and functions by age */
	uint8_t ops[256]; /* by opcode: from 1, its first place in scsi__ops */
};
void scsi_common_init(struct scsi_common *common);

/*
 * What is counted of an object, whichever unit shows it; see iscsi_usage_of().
 * All its units are on one shard, which counts; any may read.
 */
struct scsi_usage {
	atomic_uint refs;
	struct histogram_of reads, writes;
	_Atomic uint64_t read_bytes, written_bytes, unmaps, failed;
};
struct scsi_usage *scsi_usage_new(void); /* with one reference, or NULL */
struct scsi_usage *scsi_usage_get(struct scsi_usage *usage);
void scsi_usage_put(struct scsi_usage *usage); /* NULL: nothing */

/* Private to lun.c: what a nexus has at its units is being given up. */
struct scsi_nexus_closing {
	struct scsi_target *target;
	unsigned waiting; /* units */
	struct env_task task;
	void (*cb)(void *arg);
	void *arg;
};

/* One I_T nexus as the units know it; the session embeds it. */
struct scsi_nexus {
	struct dom_nexus dom; /* names; @generation is per unit, see lun.c */
	char target_port_name[ISCSI_NAME_MAX + 16]; /* "iqn...,t,0x0001" */
	struct scsi_target *target;
	bool queries; /* the functions of RFC 7144 were agreed upon */
	/* private: pending unit attentions per unit */
	struct scsi_it_lun **units; /* by LUN number */
	unsigned units_count;
	struct scsi_nexus_closing closing; /* or releasing */
	TAILQ_ENTRY(scsi_nexus) link;
};

/* Zeroed before its first use; the next ones find it as the last left it. */
struct scsi_cmd {
	/* in, set by the session before begin */
	struct scsi_nexus *nexus;
	uint64_t lun_field; /* the 8 bytes of the BHS, as a big endian number */
	uint8_t cdb[SCSI_CDB_MAX];
	unsigned cdb_len; /* 16, or the extended length */
	enum scsi_attr attr;
	uint32_t edtl; /* Expected Data Transfer Length */
	enum scsi_dir expect; /* what the R and W bits say */
	void (*done)(struct scsi_cmd *cmd);

	/* set by begin */
	enum scsi_dir dir;
	uint64_t transfer_len; /* what the CDB asks to move (SPDTL) */
	uint32_t
		page_offset; /* where byte 0 of data-out should lie: mod 4096 */

	/* in, set by the session before execute: min(edtl, transfer_len) bytes */
	struct sgl *data_out;
	uint64_t waited_ns; /* for our memory: of the time that hosts give it */

	/* out */
	enum scsi_status status;
	uint8_t sense[SCSI_SENSE_MAX];
	unsigned sense_len;
	struct sgl *data_in; /* the command's until scsi_cmd_end() */
	uint64_t data_in_len; /* to send: at most its length, and edtl */
	bool aborted; /* not to be answered */

	/* private to scsi_*.c and lun.c */
	struct scsi_target *target;
	struct scsi_lun *lun; /* NULL: no such unit */
	struct scsi_it_lun *it;
	const struct scsi_op *op;
	struct dom_io io;
	uint64_t ready_ns; /* it waits for older commands since then */
	uint64_t until_ns; /* all its steps are over */
	struct env_task task;
	TAILQ_ENTRY(scsi_cmd) link; /* the unit's task set, oldest first */
	uint64_t seq; /* order of arrival, of all targets */
	uint64_t since_ns; /* it came, or, once it is answered, was answered */
	uint8_t state;
	bool killed, in_execute, io_active;
	bool told; /* killed, but answered: another nexus did it, with TAS */
	uint64_t lba, blocks; /* of the CDB */
	uint64_t offset, left; /* what a command in several steps is at */
	unsigned step;
	struct sgl *part; /* a step's own list */
	struct page *page;
	void (*cancel)(struct scsi_cmd *cmd); /* a wait without I/O */
	void *memory; /* parsed parameter data; freed at the end */
	struct scsi_copy *copy;
};

/*
 * Check and parse.  Returns true if the command goes on to execute; false if
 * it is answered already: status and sense are set, no data moves (the session
 * still swallows what the initiator sends).  scsi_cmd_end() follows either way.
 */
bool scsi_cmd_begin(struct scsi_cmd *cmd);
/* Until execute: is what it takes a parameter list?  Else it is blocks, or nothing. */
bool scsi_cmd_takes_list(const struct scsi_cmd *cmd);
/*
 * Since begin, and before done(): do others of its unit wait for it, as it is a
 * barrier, or one that came later waits for it?
 */
bool scsi_cmd_holds_up(const struct scsi_cmd *cmd);
void scsi_cmd_execute(struct scsi_cmd *cmd);

/*
 * The session fails it, and ends it next: CHECK CONDITION, with sense data in the
 * unit's format.
 */
void scsi_cmd_check(struct scsi_cmd *cmd, unsigned key, unsigned asc,
		    unsigned ascq);

/* It will not be answered: done() still runs when nothing can execute. */
void scsi_cmd_abort(struct scsi_cmd *cmd);
void scsi_cmd_end(struct scsi_cmd *cmd);

/* ---- units and nexuses, called by the session and by iscsi.h's calls ---- */

/* It touches nothing of @env and @dom: any shard may call it for them. */
int scsi_target_open(struct env *env, struct dom *dom,
		     struct scsi_common *common, const char *iqn,
		     struct scsi_target **out);
void scsi_target_close(struct scsi_target *target, void (*cb)(void *arg),
		       void *arg);

/*
 * Relative target ports and their portal group tags, for REPORT TARGET PORT
 * GROUPS and VPD pages.  Where they change, all nexuses hear of it.
 */
void scsi_target_ports(struct scsi_target *target, const uint16_t *rtpi,
		       const uint16_t *tpgt, unsigned count);
/* The unit takes a reference of @usage, which is its object's. */
int scsi_lun_set(struct scsi_target *target, const struct iscsi_lun_conf *conf,
		 struct scsi_usage *usage);
void scsi_lun_unset(struct scsi_target *target, unsigned number);
/*
 * Units that are not open try again now.  Until that has ended, one way or another,
 * each counts as untried.
 */
void scsi_units_retry(struct scsi_target *target);
/* Do two LUN fields of BHSs mean one unit, in whatever form (SAM-5 4.7)? */
bool scsi_lun_same(uint64_t a, uint64_t b);
/* The object of LUN number @lun (as in a BHS), or false. */
bool scsi_lun_object(struct scsi_target *target, uint64_t lun_field,
		     struct uuid *object);

/* Login: a power-on unit attention on each unit.  @reinstated: 29/07. */
void scsi_nexus_open(struct scsi_target *target, struct scsi_nexus *nexus,
		     bool reinstated);
/*
 * All its commands are ended; SPC-2 reservations go; then @cb, later.  The nexus
 * stays until then, but no unit finds it any more.
 */
void scsi_nexus_close(struct scsi_nexus *nexus, void (*cb)(void *arg),
		      void *arg);

/*
 * Its SPC-2 reservations go, ahead of the close; none of its commands is left.
 * @cb later; the nexus stays until then.
 */
void scsi_nexus_release(struct scsi_nexus *nexus, void (*cb)(void *arg),
			void *arg);

/* Congestion of a unit's object, 0..255: the session narrows its window. */
unsigned scsi_lun_congestion(struct scsi_target *target, uint64_t lun_field);

/*
 * Task management (SAM-5 7).  Aborts what the function covers on the units, of
 * all nexuses where it says so; sets unit attentions; @cb when none of the
 * affected commands can change the medium any more, with an iSCSI response code
 * (RFC 7143 11.6.1).  ABORT TASK is the session's: it calls scsi_cmd_abort().
 */
enum scsi_tmf {
	SCSI_ABORT_TASK = 1,
	SCSI_ABORT_TASK_SET,
	SCSI_CLEAR_ACA,
	SCSI_CLEAR_TASK_SET,
	SCSI_LUN_RESET,
	SCSI_TARGET_WARM_RESET,
	SCSI_TARGET_COLD_RESET,
	SCSI_IT_NEXUS_RESET = 11,
};
struct scsi_tmf_req {
	void *data;
	enum scsi_tmf function;
	uint64_t lun_field;
	struct scsi_nexus *nexus;
	void (*cb)(struct scsi_tmf_req *req, unsigned response);
	/* private */
	struct scsi_target *target;
	uint64_t seq; /* commands that arrived before it are concerned */
	unsigned response;
	unsigned waiting; /* reservation resets under way */
	bool linked;
	TAILQ_ENTRY(scsi_tmf_req) link;
	struct env_task task;
};
void scsi_tmf(struct scsi_tmf_req *req);

/*
 * The unit attention that @nexus would hear of next at a LUN, which stays: its
 * sense key, code and qualifier in one number, and whether there are more of
 * them.  0: none.
 */
unsigned scsi_attention(struct scsi_nexus *nexus, uint64_t lun_field,
			bool *more);

/*
 * A command aborted for another nexus: its done() runs with status TASK ABORTED
 * and aborted false if the unit's TAS bit is set, else with aborted true.
 */

/* scsi_stats.c: the counters of the command set; twice is harmless. */
void scsi__stats_register(void);

#endif
