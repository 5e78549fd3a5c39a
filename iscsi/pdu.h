/*
 * pdu: what a Basic Header Segment is made of (RFC 7143 section 11), for the
 * session and for every datamover.
 */
#ifndef BASALT_ISCSI_PDU_H
#define BASALT_ISCSI_PDU_H

#include <stdint.h>

#define ISCSI_BHS_LEN 48u

enum {
	ISCSI_OP_NOP_OUT = 0x00,
	ISCSI_OP_COMMAND = 0x01,
	ISCSI_OP_TMF = 0x02,
	ISCSI_OP_LOGIN = 0x03,
	ISCSI_OP_TEXT = 0x04,
	ISCSI_OP_DATA_OUT = 0x05,
	ISCSI_OP_LOGOUT = 0x06,
	ISCSI_OP_SNACK = 0x10,
	ISCSI_OP_NOP_IN = 0x20,
	ISCSI_OP_RESPONSE = 0x21,
	ISCSI_OP_TMF_RSP = 0x22,
	ISCSI_OP_LOGIN_RSP = 0x23,
	ISCSI_OP_TEXT_RSP = 0x24,
	ISCSI_OP_DATA_IN = 0x25,
	ISCSI_OP_LOGOUT_RSP = 0x26,
	ISCSI_OP_R2T = 0x31,
	ISCSI_OP_ASYNC = 0x32,
	ISCSI_OP_REJECT = 0x3f,
};
#define ISCSI_OP_MASK 0x3fu
#define ISCSI_IMMEDIATE 0x40u
#define ISCSI_FINAL 0x80u
#define ISCSI_CONTINUE 0x40u
#define ISCSI_NO_TAG 0xffffffffu
#define ISCSI_RESIDUAL_O 0x04u
#define ISCSI_RESIDUAL_U 0x02u
#define ISCSI_LOGIN_DATA_MAX 8192u
#define ISCSI_AHS_MAX 1020u

/*
 * Where something of the task with this tag is kept.  Initiators count in the
 * first byte of a tag or in the last one: all of it counts.
 */
#define ISCSI_ITT_BUCKETS 64u
static inline unsigned iscsi_itt_bucket(uint32_t itt)
{
	return itt * 0x9e3779b1u >> 26;
}

#endif
