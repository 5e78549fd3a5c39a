/*
 * scsi_rig: a target with units over the fake dom on virtual time, and commands
 * sent to it the way a session would.
 */
#ifndef BASALT_TESTS_SCSI_RIG_H
#define BASALT_TESTS_SCSI_RIG_H

#include "iscsi/scsi.h"
#include "tests/lib/fake_dom.h"
#include "tests/lib/memenv.h"

#define RIG_NEXUSES 3u
#define RIG_BYTES (64u << 20)

struct rig {
	struct memenv me;
	struct dom *dom;
	struct scsi_common common;
	struct scsi_target *target;
	struct scsi_usage *usage; /* of all its objects */
	struct scsi_nexus nexus[RIG_NEXUSES];
	bool open[RIG_NEXUSES];
	uint32_t block;
	struct uuid oid; /* of LUN 0 */
	unsigned lun; /* where commands go: 0 */
};

/* LUN 0 of 64 MiB; nexus 0 and 1 are logged in and have heard 29/00. */
struct rig *rig_open(uint32_t block);
/* Fails on a leaked page, request or object. */
void rig_close(struct rig *rig);
void rig_login(struct rig *rig, unsigned n);
void rig_logout(struct rig *rig, unsigned n);
struct uuid rig_oid(unsigned lun); /* of the object there */
int rig_lun(struct rig *rig, unsigned lun, uint64_t bytes, bool read_only);
/* Until nothing is left to do. */
void rig_run(struct rig *rig);

/* A command; the result is in @answer: 0, or status << 24 | key, asc, ascq. */
struct rig_cmd {
	struct scsi_cmd cmd;
	struct rig *rig;
	bool begun, done, executed;
	unsigned answer;
};

#define RIG_STATUS(status) ((unsigned)(status) << 24)
#define RIG_SENSE(key, asc, ascq)                                              \
	(RIG_STATUS(SCSI_CHECK_CONDITION) | (key) << 16 | (asc) << 8 | (ascq))
#define RIG_SILENT 0xffffffffu /* aborted, not to be answered */

/*
 * Begin, and execute once the data is there, which is at once unless @hold.
 * @out and @out_len: data-out; @in_len: what the initiator takes.
 */
void rig_begin(struct rig *rig, struct rig_cmd *rc, unsigned n,
	       const uint8_t *cdb, const void *out, size_t out_len,
	       size_t in_len, enum scsi_attr attr, bool hold);
void rig_execute(struct rig_cmd *rc, const void *out, size_t out_len);
void rig_end(struct rig_cmd *rc);

/* The same, run to its end; up to @in_len bytes go to @in. */
unsigned rig_do(struct rig *rig, unsigned n, const uint8_t *cdb,
		const void *out, size_t out_len, void *in, size_t in_len);
#define CDB(...) ((const uint8_t[16]){ __VA_ARGS__ })
/* Bytes that the last rig_do() got. */
extern size_t rig_got;

unsigned rig_tur(struct rig *rig, unsigned n);
unsigned rig_write(struct rig *rig, unsigned n, uint64_t lba, uint32_t blocks,
		   uint8_t fill);
/* First byte of each block must be @fill, or the test fails. */
unsigned rig_read(struct rig *rig, unsigned n, uint64_t lba, uint32_t blocks,
		  uint8_t fill);
/* An iSCSI response, after running until it came. */
unsigned rig_tmf(struct rig *rig, unsigned n, enum scsi_tmf function,
		 unsigned lun);

#endif
