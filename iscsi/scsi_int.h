/*
 * scsi_int: what the files of the command set share.
 *
 *	scsi_table.c	every command: CDB, access, handlers
 *	scsi_cmd.c	a command's life: checks in order, the task set
 *	scsi_sense.c	sense data, status to sense, unit attentions
 *	scsi_block.c	read, write, verify, compare and write
 *	scsi_thin.c	unmap, write same, LBA status
 *	scsi_inquiry.c	INQUIRY, VPD pages, REPORT LUNS, capacity
 *	scsi_mode.c scsi_log.c scsi_reserve.c scsi_report.c
 *	scsi_sanitize.c scsi_sanitize_run.c	the command, and its long work
 *	scsi_copy.c scsi_copy_run.c	EXTENDED COPY, likewise
 *	lun.c scsi_tmf.c	units, nexuses; task management
 *	scsi_stats.c	counters
 */
#ifndef BASALT_ISCSI_SCSI_INT_H
#define BASALT_ISCSI_SCSI_INT_H

#include "base/copied.h"
#include "base/err.h"
#include "base/util.h"
#include "iscsi/scsi.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Limits, told in VPD B0 and enforced. */
#define SCSI_TRANSFER_MAX DOM_IO_MAX /* bytes of one command */
#define SCSI_COMPARE_BLOCKS_MAX 255u
#define SCSI_ATOMIC_MAX DOM_ATOMIC_MAX
/*
 * Blocks of one WRITE SAME and UNMAP, besides the bytes: hosts that test us
 * write as much in one command as WRITE SAME takes from 65536 blocks on, and
 * call more than 2^20 blocks of UNMAP insane.
 */
#define SCSI_WRITE_SAME_MAX (64u << 20) /* bytes */
#define SCSI_WRITE_SAME_BLOCKS_MAX 65528u
#define SCSI_UNMAP_MAX (1u << 30) /* bytes */
#define SCSI_UNMAP_BLOCKS_MAX (1u << 20)
#define SCSI_UNMAP_DESCRIPTORS_MAX 256u
#define SCSI_UNMAP_GRANULE 4096u
#define SCSI_STEP_MAX (4u << 20) /* bytes of one step of a long command */
#define SCSI_UNMAP_STEP (64u << 20) /* where nothing is written */
/*
 * Of one step, as dom's of one request: hosts wait 30 s.  All steps together
 * have what the table recommends to hosts, less what it takes to say so.
 */
#define SCSI_DEADLINE_NS (25 * SEC)
#define SCSI_ANSWER_NS (5 * SEC)
#define SCSI_LEAST_NS (5 * SEC) /* a command has, however long it waited */
#define SCSI_LIST_MAX 65536u /* bytes of a parameter list */
/* Of EXTENDED COPY: told by RECEIVE COPY RESULTS and VPD 8F. */
#define SCSI_COPY_CSCDS_MAX 16u /* copy sources and copy destinations */
#define SCSI_COPY_SEGMENTS_MAX 16u
#define SCSI_COPY_LIST_MAX                                                     \
	(SCSI_COPY_CSCDS_MAX * 32u + SCSI_COPY_SEGMENTS_MAX * 28u)
#define SCSI_COPY_SEGMENT_MAX (16u << 20) /* bytes */
#define SCSI_COPY_STEP (1u << 20) /* bytes of memory that one takes at most */
#define SCSI_COPY_STEP_LEAST (64u << 10) /* where there is little */
#define SCSI_COPIES_MAX 32u /* at a time, of one shard */
/* Of that one initiator may have no more than are left, so at most: */
#define SCSI_COPIES_OF_ONE (SCSI_COPIES_MAX / 2)
#define SCSI_THRESHOLD_EXPONENT 11u /* LBP thresholds: 2^11 blocks */
#define SCSI_THRESHOLD_AT 16u /* its descriptor in mode page 1C/02 */

/* key, additional code and qualifier in one number */
#define SENSE(key, asc, ascq) ((key) << 16 | (asc) << 8 | (ascq))
#define SENSE_INVALID_OPCODE SENSE(5, 0x20, 0x00)
#define SENSE_LBA_RANGE SENSE(5, 0x21, 0x00)
#define SENSE_INVALID_CDB SENSE(5, 0x24, 0x00)
#define SENSE_NO_LUN SENSE(5, 0x25, 0x00)
#define SENSE_INVALID_PARAM SENSE(5, 0x26, 0x00)
#define SENSE_LIST_LENGTH SENSE(5, 0x1a, 0x00)
#define SENSE_SHORT_DATA SENSE(5, 0x0e, 0x03)
#define SENSE_MISCOMPARE SENSE(0xe, 0x1d, 0x00)
#define SENSE_BECOMING_READY SENSE(2, 0x04, 0x01)
#define SENSE_SANITIZING SENSE(2, 0x04, 0x1b)
#define SENSE_SANITIZE_FAILED SENSE(3, 0x31, 0x03)
#define SENSE_UNREACHABLE SENSE(0xa, 0x08, 0x04) /* a copy's unit */

/* Pending unit attentions, a bit each; a lower bit is reported first. */
enum scsi_ua {
	UA_POWER_ON, /* 29/00, which all initiators know, not 29/01 */
	UA_BUS_RESET, /* 29/02 */
	UA_DEVICE_RESET, /* 29/03 */
	UA_NEXUS_LOSS, /* 29/07 */
	UA_RESETS, /* all above wipe out what is pending */
	UA_MODE_CHANGED = UA_RESETS, /* 2A/01 */
	UA_PR_PREEMPTED, /* 2A/03 */
	UA_PR_RELEASED, /* 2A/04 */
	UA_PR_UNREGISTERED, /* 2A/05 */
	UA_ALUA, /* 2A/06 */
	UA_CAPACITY, /* 2A/09 */
	UA_CLEARED, /* 2F/00 */
	UA_INQUIRY, /* 3F/03 */
	UA_LUNS, /* 3F/0E */
	UA_THIN, /* 38/07 */
	UA_COUNT
};

enum scsi_op_flag {
	OP_NO_LUN = 1, /* answered where there is no unit */
	OP_NO_UA = 2, /* does not report unit attentions */
	OP_NO_OBJECT = 4, /* needs no open object */
	OP_SPC2 = 8, /* allowed under another's RESERVE */
	OP_SANITIZE = 16, /* allowed while a sanitize runs */
	OP_WRITE = 32, /* refused on a write-protected unit */
	OP_GROUP = 64, /* a group number is there, and ignored */
	OP_EXACT = 128, /* its parse checks the data-out length */
	OP_PARTIAL = 256, /* does with less data than the CDB says */
	OP_RARC = 512, /* ignored: there is no rebuild assist mode */
};

struct scsi_op {
	uint8_t opcode;
	int8_t sa; /* service action, or -1 */
	uint8_t len;
	uint8_t access; /* enum dom_access, by persistent reservations */
	uint16_t flags;
	uint8_t usage[16]; /* bits of the CDB that mean something */
	/*
	 * Parse checks the fields and sets dir, transfer_len, lba, blocks;
	 * false: answered.  Execute ends in scsi__done(), now or later.
	 */
	bool (*parse)(struct scsi_cmd *cmd);
	void (*execute)(struct scsi_cmd *cmd);
	uint16_t seconds; /* recommended time limit */
};

/* How far an EXTENDED COPY is, and how it ended (SPC-4 6.18). */
enum scsi_copy_state { COPY_RUNS, COPY_DONE, COPY_FAILED };
struct scsi_copy_result {
	uint8_t list_id;
	uint8_t state; /* enum scsi_copy_state */
	unsigned segments; /* that are behind it */
	uint64_t bytes;
};

/* A nexus at a unit. */
struct scsi_it_lun {
	struct scsi_lun *lun;
	struct scsi_nexus *nexus; /* NULL once it is gone */
	struct dom_nexus dom;
	bool opened; /* dom knows it */
	bool reserves; /* or may, or a RESERVE may come: scsi__it_reserves() */
	unsigned reserving; /* RESERVEs whose end dom has not told */
	uint32_t ua;
	unsigned refs; /* the nexus's, and one a command */
	struct scsi_nexus_closing *closing;
	struct scsi_nexus_closing *release; /* @io is it */
	struct scsi_copy_result copies[4]; /* the last ones; COPY_RUNS: none */
	struct dom_io io; /* the SPC-2 release at the end */
	struct dom_pr pr;
	TAILQ_ENTRY(scsi_it_lun) link;
};

struct scsi_sanitize;

struct scsi_lun {
	struct scsi_target *target;
	unsigned number;
	struct uuid oid;
	char name[256];
	uint32_t block_bytes;
	bool read_only;
	struct scsi_usage *usage;

	struct dom_object *object; /* NULL: not open (yet) */
	bool removed, deleted;
	bool untried; /* counted */
	bool open_again; /* once what is under way has failed, at once */
	uint64_t opening_since_ns;
	struct dom_object_open open;
	struct env_timer open_timer;
	struct dom_watch watch;

	/* mode parameters */
	bool d_sense, swp, tas;

	unsigned refs; /* the target's table, it_luns, sanitize, opening */
	TAILQ_HEAD(scsi_tasks, scsi_cmd) tasks; /* the task set */
	unsigned barriers; /* ORDERED and HEAD OF QUEUE tasks in it */
	unsigned waiting; /* tasks ready to run that may not yet */
	uint64_t tmf_seq; /* of the last function that reached them */
	TAILQ_HEAD(, scsi_it_lun) its;
	TAILQ_ENTRY(scsi_lun) link; /* all of the target, removed ones too */
	TAILQ_ENTRY(scsi_lun) open_link; /* all with an object, of any target */
	TAILQ_ENTRY(scsi_lun) object_link; /* those in its object's bucket */
};

#define SCSI_PORTS_MAX 200u /* VPD 88 must stay below 64 KiB */
/* Every port reaches a unit the same way: one target port group (ALUA). */
#define SCSI_PORT_GROUP 1u

struct scsi_target {
	struct env *env;
	struct dom *dom;
	struct scsi_common *common;
	char iqn[ISCSI_NAME_MAX + 1];
	uint16_t rtpi[SCSI_PORTS_MAX], tpgt[SCSI_PORTS_MAX];
	unsigned ports_count;
	struct scsi_lun **luns; /* by number */
	unsigned luns_size, luns_count;
	TAILQ_HEAD(, scsi_lun) all;
	TAILQ_HEAD(, scsi_nexus) nexuses;
	unsigned busy; /* calls and functions under way that use this struct */
	bool closing, closed;
	struct env_task close_task;
	void (*close_cb)(void *arg);
	void *close_arg;
};

/* ---- scsi_table.c ---- */

extern const struct scsi_op scsi__ops[];
extern const unsigned scsi__ops_count;
/* The first op of @opcode; NULL: none.  Others of it follow in the table. */
void scsi__ops_index(struct scsi_common *common);
/* NULL: it is none of ours. */
const struct scsi_op *scsi__op_first(const struct scsi_common *common,
				     uint8_t opcode);
const struct scsi_op *scsi__op_find(const struct scsi_common *common,
				    uint8_t opcode, uint8_t sa);

/* ---- scsi_sense.c: all return false, for use in a parse ---- */

bool scsi__check(struct scsi_cmd *cmd, unsigned sense);
bool scsi__check_info(struct scsi_cmd *cmd, unsigned sense, uint64_t info);
/* A field of the CDB, or (@sense: 26/xx, 1A/00) of the parameter list. */
bool scsi__check_field(struct scsi_cmd *cmd, unsigned byte, int bit);
bool scsi__check_param(struct scsi_cmd *cmd, unsigned sense, unsigned byte);
bool scsi__check_progress(struct scsi_cmd *cmd, unsigned sense,
			  uint16_t progress);
/* A copy's @segment failed; @byte of its descriptor is why, 0: none is. */
bool scsi__check_segment(struct scsi_cmd *cmd, unsigned sense, unsigned segment,
			 unsigned byte);
bool scsi__conflict(struct scsi_cmd *cmd);
/* Status and sense for a -errno of dom. */
void scsi__status(struct scsi_cmd *cmd, int status);
/* Sense data as bytes; returns the length. */
unsigned scsi__sense_format(uint8_t *buf, bool descriptor, unsigned sense,
			    const uint64_t *info, const uint8_t *sks);
unsigned scsi__ua_sense(enum scsi_ua ua);
/* What its INFORMATION field tells, or NULL. */
const uint64_t *scsi__ua_info(enum scsi_ua ua);
/* It is what @cmd ends with. */
bool scsi__check_ua(struct scsi_cmd *cmd, enum scsi_ua ua);
/* The most urgent one, cleared; -1: none. */
int scsi__ua_take(struct scsi_it_lun *it);
void scsi__ua_set(struct scsi_it_lun *it, enum scsi_ua ua);
/* On every nexus of the unit but @except. */
void scsi__ua_set_all(struct scsi_lun *lun, enum scsi_ua ua,
		      const struct scsi_it_lun *except);

/* ---- scsi_cmd.c ---- */

/* The command is over: its answer is in it. */
void scsi__done(struct scsi_cmd *cmd);
/* Answer with @len bytes, cut to the allocation length; and done. */
void scsi__reply(struct scsi_cmd *cmd, const void *buf, size_t len,
		 size_t alloc_len);
/* After a call to dom with cmd->io: @rv is what it returned. */
void scsi__io(struct scsi_cmd *cmd, int rv);
/*
 * In its callback: the command if it goes on, NULL if that was its end, and @io,
 * which lies in it, may be no more.
 */
struct scsi_cmd *scsi__io_end(struct dom_io *io, int status);
/* Before another step: false, with the status set, if its time is over. */
bool scsi__in_time(struct scsi_cmd *cmd);
void scsi__kill(struct scsi_cmd *cmd, bool by_other);
void scsi__kick(struct scsi_lun *lun);
/* Bytes that the initiator offers. */
static inline uint64_t scsi__out_len(const struct scsi_cmd *cmd)
{
	return cmd->expect == SCSI_DIR_OUT ? cmd->edtl : 0;
}
static inline uint64_t scsi__in_len(const struct scsi_cmd *cmd)
{
	return cmd->expect == SCSI_DIR_IN ? cmd->edtl : 0;
}
/* Parse of commands that return data up to an allocation length. */
bool scsi__parse_in(struct scsi_cmd *cmd);
bool scsi__parse_none(struct scsi_cmd *cmd);
/* Flat copy of the parameter list, freed with the command; NULL: answered. */
const uint8_t *scsi__list(struct scsi_cmd *cmd);
/* What TEST UNIT READY says of a unit that is not ready; 0: it is. */
unsigned scsi__not_ready(const struct scsi_lun *lun);
/*
 * Asked when a command that was let in runs, and when it takes another step: is
 * the unit still there, to be written if it writes, and not being sanitized?
 * False with the sense set: no.
 */
bool scsi__check_unit(struct scsi_cmd *cmd);
/* False and answered if the unit may not be written. */
bool scsi__writable(struct scsi_cmd *cmd);
/* False and answered if [lba, lba + blocks) is not all on the unit. */
bool scsi__in_range(struct scsi_cmd *cmd);
bool scsi__access(struct scsi_cmd *cmd, enum dom_access access);

static inline uint32_t scsi__write_same_max(uint32_t block_bytes)
{
	return MIN(SCSI_WRITE_SAME_MAX / block_bytes,
		   SCSI_WRITE_SAME_BLOCKS_MAX);
}

static inline uint32_t scsi__unmap_max(uint32_t block_bytes)
{
	return MIN(SCSI_UNMAP_MAX / block_bytes, SCSI_UNMAP_BLOCKS_MAX);
}

/* ---- lun.c ---- */

bool scsi__same_object(const struct scsi_lun *a, const struct scsi_lun *b);
/* All that show @object, and some that show others. */
struct scsi_units *scsi__units_near(struct scsi_common *common,
				    const struct uuid *object);
/*
 * Those that show @lun's object, itself included: one logical unit, whose tasks
 * and mode pages all targets share.
 */
#define SCSI_UNITS_FOREACH(unit, lun)                                          \
	TAILQ_FOREACH (unit,                                                   \
		       scsi__units_near((lun)->target->common, &(lun)->oid),   \
		       object_link)                                            \
		if (!scsi__same_object(unit, lun)) {                           \
		} else

struct scsi_lun *scsi__lun_find(struct scsi_target *target, uint64_t lun_field);
int scsi__lun_decode(uint64_t lun_field);
struct scsi_it_lun *scsi__it_find(struct scsi_nexus *nexus,
				  const struct scsi_lun *lun);
/* Also where there was no memory for it when the two met; NULL: nor is now. */
struct scsi_it_lun *scsi__it_get(struct scsi_nexus *nexus,
				 struct scsi_lun *lun);
void scsi__it_put(struct scsi_it_lun *it);
/*
 * It asks for an SPC-2 reservation.  dom knows the holder by its ports, which are
 * those of several nexuses where an initiator has one port name at all targets,
 * or a target shows a disk twice: the last one that asked is whose it is.
 */
void scsi__it_reserves(struct scsi_it_lun *it);
/*
 * dom has told of a change, or the end of what it asked for, or of a reset: has it
 * none any more?  Who asks next need not wait for dom then.
 */
void scsi__it_settle(struct scsi_it_lun *it);
/* Is what there is of one, or what may come yet of a RESERVE, @it's? */
bool scsi__it_reserved(const struct scsi_it_lun *it);
void scsi__lun_put(struct scsi_lun *lun);
void scsi__target_check(struct scsi_target *target);
static inline uint64_t scsi__lun_blocks(const struct scsi_lun *lun)
{
	return dom_object_size(lun->object) / lun->block_bytes;
}

/* Bytes of a threshold set (SBC-3 4.7.3.8.2). */
static inline uint64_t scsi__threshold_set(const struct scsi_lun *lun)
{
	return (uint64_t)lun->block_bytes << SCSI_THRESHOLD_EXPONENT;
}

/* ---- scsi_tmf.c ---- */

/* A task set lost a task: does a management function end? */
void scsi__tmf_check(struct scsi_common *common);
/* PREEMPT AND ABORT: end the tasks that it hits; req->data is @cmd. */
void scsi__tmf_preempt(struct scsi_tmf_req *req, struct scsi_cmd *cmd);

/* ---- scsi_reserve.c ---- */

/* Is @cmd of a nexus that the PREEMPT AND ABORT @preempt was to hit? */
bool scsi__pr_hits(const struct scsi_cmd *preempt, const struct scsi_cmd *cmd);

/* ---- scsi_sanitize_run.c ---- */

enum scsi_sanitize_stage {
	SANITIZE_BEGIN, /* its mark is being stored */
	SANITIZE_RUN,
	SANITIZE_END, /* its mark is being taken away */
	SANITIZE_FAILING, /* or told of the failure */
	SANITIZE_FAILED, /* from here on it rests */
	SANITIZE_EXIT, /* EXIT FAILURE MODE takes the mark away */
};

struct scsi_sanitize {
	/* what was asked for */
	bool overwrite; /* with the pattern; else unmap */
	bool invert; /* from pass to pass */
	bool ause; /* a failure may be left by EXIT FAILURE MODE */
	bool immed; /* answer once it has begun */
	unsigned passes, pattern_len;
	uint8_t pattern[PAGE_BYTES];
	struct scsi_cmd *cmd; /* is to be answered; NULL: nobody waits */
	/* private to scsi_sanitize_run.c */
	struct scsi_lun *lun; /* whose handle of the object it uses */
	TAILQ_ENTRY(scsi_sanitize) link;
	enum scsi_sanitize_stage stage;
	bool stop;
	bool waiting; /* dom has @io or @mark */
	bool unknown; /* a mark may be there, or not */
	bool again,
		again_ause; /* there was a failed one, left by EXIT or not */
	struct page *page; /* the pattern, over and over */
	unsigned pass;
	uint64_t offset, size, part_len, since_ns, mark_since_ns;
	uint64_t stuck_since_ns; /* no step succeeded since */
	bool stuck;
	struct sgl *part;
	struct dom_io io;
	struct dom_sanitize mark;
	struct env_timer retry;
};

/* That of @lun's object, whichever unit it was asked of; NULL: none. */
struct scsi_sanitize *scsi__sanitize_of(const struct scsi_lun *lun);
/* Takes @s (malloc()ed); s->cmd is answered once begun, or at the end. */
void scsi__sanitize_begin(struct scsi_lun *lun, struct scsi_sanitize *s);
/* Leave the failure mode; s->cmd is answered. */
void scsi__sanitize_exit(struct scsi_sanitize *s);
/* The unit opens: go on with what a mark tells of.  0 or -ENOMEM. */
int scsi__sanitize_opened(struct scsi_lun *lun);
void scsi__sanitize_closed(struct scsi_lun *lun);
/* True while one runs; *@progress in 1/65536. */
bool scsi__sanitize_running(const struct scsi_lun *lun, uint16_t *progress);
bool scsi__sanitize_failed(const struct scsi_lun *lun);
/* One that failed is forgotten if another node was told to leave it. */
void scsi__sanitize_look(const struct scsi_lun *lun);
/*
 * A sanitize closes the unit to all but what tells about it: false with the
 * sense set.
 */
bool scsi__check_sanitizing(struct scsi_cmd *cmd);
static inline bool scsi__check_sanitize(struct scsi_cmd *cmd)
{
	/* Nearly always there is none of any unit. */
	return TAILQ_EMPTY(&cmd->target->common->sanitizes) ||
	       scsi__check_sanitizing(cmd);
}
void scsi__sanitize_stop(struct scsi_lun *lun);

/* ---- scsi_copy_run.c ---- */

/* A copy source or copy destination. */
struct scsi_cscd {
	unsigned at; /* byte of the parameter list */
	bool named; /* by a name of ours: @naa */
	uint8_t naa[SCSI_NAA_BYTES];
	uint32_t block_bytes; /* as the list says */
	/* private to scsi_copy_run.c */
	struct scsi_copy *copy;
	struct scsi_it_lun *it; /* of the command's own target; a reference */
	bool known; /* @lookup holds for this step */
	struct scsi_lookup lookup;
	struct dom_object_open open;
	struct dom_object *object; /* another target's: a handle of ours */
	struct dom_nexus nexus; /* there */
};

struct scsi_copy_segment {
	unsigned from, to; /* cscds[] */
	uint64_t from_lba, to_lba, len; /* @len in bytes */
	unsigned bad; /* sense data that its turn ends with, or 0 */
	uint64_t done;
};

struct scsi_copy {
	struct scsi_copy_result result;
	bool identified; /* by its list identifier */
	bool hold; /* and to be told of when it has ended */
	unsigned cscds_count, segments_count;
	struct scsi_cscd cscds[SCSI_COPY_CSCDS_MAX];
	struct scsi_copy_segment segments[SCSI_COPY_SEGMENTS_MAX];
	/* private to scsi_copy_run.c */
	struct scsi_target *target;
	struct scsi_cmd *cmd; /* NULL: it has ended */
	unsigned refs; /* the command's, and one a handle and a wait */
	unsigned at; /* segments[] */
	uint64_t offset; /* of the step, in its segment */
	struct sgl *sgl; /* what was read */
	size_t written; /* of that */
	bool wrote; /* anything, or it may have */
	TAILQ_ENTRY(scsi_copy) link;
};

/* Takes @copy (malloc()ed), the parameter list understood; ends @cmd. */
void scsi__copy_begin(struct scsi_cmd *cmd, struct scsi_copy *copy);
const struct scsi_copy_result *scsi__copy_result(const struct scsi_it_lun *it,
						 uint8_t list_id);
/* scsi_copy.c: what follows the header of VPD page 8F. */
size_t scsi__copy_vpd(struct scsi_cmd *cmd, uint8_t *p);

/* ---- scsi_stats.c ---- */

extern struct counter scsi__copied_bytes;
/* @cmd has its answer. */
void scsi__count(const struct scsi_cmd *cmd);
/*
 * How long it took, if it is a read or a write: its data came; it is over; what it
 * answered is sent.
 */
void scsi__time_data(const struct scsi_cmd *cmd);
void scsi__time_end(struct scsi_cmd *cmd);
void scsi__time_sent(const struct scsi_cmd *cmd);

/* ---- parse and execute of the table ---- */

#define SCSI_HANDLER(name)                                                     \
	bool scsi__##name##_parse(struct scsi_cmd *cmd);                       \
	void scsi__##name(struct scsi_cmd *cmd)

SCSI_HANDLER(read);
SCSI_HANDLER(write);
SCSI_HANDLER(write_verify);
SCSI_HANDLER(verify);
SCSI_HANDLER(compare);
SCSI_HANDLER(orwrite);
SCSI_HANDLER(atomic);
SCSI_HANDLER(range);
SCSI_HANDLER(unmap);
SCSI_HANDLER(write_same);
SCSI_HANDLER(lba_status);
SCSI_HANDLER(inquiry);
SCSI_HANDLER(mode_select);
SCSI_HANDLER(mode_sense);
SCSI_HANDLER(log_select);
SCSI_HANDLER(log_sense);
SCSI_HANDLER(pr_in);
SCSI_HANDLER(pr_out);
SCSI_HANDLER(spc2);
SCSI_HANDLER(sanitize);
SCSI_HANDLER(defects);
SCSI_HANDLER(start_stop);
SCSI_HANDLER(prevent);
SCSI_HANDLER(diagnostic);
SCSI_HANDLER(format);
SCSI_HANDLER(report_luns);
SCSI_HANDLER(opcodes);
SCSI_HANDLER(port_groups);
SCSI_HANDLER(tmf_report);
SCSI_HANDLER(copy);
SCSI_HANDLER(copy_results);
void scsi__good(struct scsi_cmd *cmd);
void scsi__request_sense(struct scsi_cmd *cmd);
void scsi__capacity10(struct scsi_cmd *cmd);
void scsi__capacity16(struct scsi_cmd *cmd);
void scsi__identifying(struct scsi_cmd *cmd);
void scsi__timestamp(struct scsi_cmd *cmd);

#endif
