/*
 * login_int: what the two halves of a login share: login.c has stages, names and
 * authentication, login_keys.c the keys of RFC 7143 section 13.  Texts in full
 * feature phase (discovery.c) want to know which keys there are.
 */
#ifndef BASALT_ISCSI_LOGIN_INT_H
#define BASALT_ISCSI_LOGIN_INT_H

#include "iscsi/iscsi_int.h"

enum login_status {
	LOGIN_OK = 0,
	LOGIN_ERROR = 0x0200,
	LOGIN_AUTH_FAILED = 0x0201,
	LOGIN_FORBIDDEN = 0x0202,
	LOGIN_NOT_FOUND = 0x0203,
	LOGIN_VERSION = 0x0205,
	LOGIN_MISSING = 0x0207,
	LOGIN_SESSION_TYPE = 0x0209,
	LOGIN_INVALID = 0x020b,
	LOGIN_UNAVAILABLE = 0x0301,
	LOGIN_RESOURCES = 0x0302,
};

enum key_id {
	K_INITIATOR_NAME,
	K_INITIATOR_ALIAS,
	K_TARGET_NAME,
	K_SESSION_TYPE,
	K_AUTH_METHOD,
	K_CHAP_A,
	K_CHAP_I,
	K_CHAP_C,
	K_CHAP_N,
	K_CHAP_R,
	K_HEADER_DIGEST,
	K_DATA_DIGEST,
	K_MAX_CONNECTIONS,
	K_INITIAL_R2T,
	K_IMMEDIATE_DATA,
	K_MRDSL,
	K_MAX_BURST,
	K_FIRST_BURST,
	K_TIME2WAIT,
	K_TIME2RETAIN,
	K_OUTSTANDING_R2T,
	K_PDU_IN_ORDER,
	K_SEQ_IN_ORDER,
	K_ERL,
	K_IF_MARKER,
	K_OF_MARKER,
	K_IF_MARK_INT,
	K_OF_MARK_INT,
	K_TASK_REPORTING,
	K_PROTOCOL_LEVEL,
	K_NODE_ARCH,
	K_RDMA,
	K_TARGET_RDSL,
	K_INITIATOR_RDSL,
	K_UNEXPECTED,
	K_AHS_LENGTH,
	K_TAGGED,
	K_HELLO,
	K_TARGET_ALIAS,
	K_TARGET_ADDRESS,
	K_TPGT,
	K_SEND_TARGETS,
	K_COUNT
};
_Static_assert(K_COUNT <= 64, "login.seen has a bit for each key");

/* ---- login_keys.c ---- */

/* K_COUNT: we do not know it. */
enum key_id iscsi__key_find(const char *name);
/* Answer the offer of a key; a status other than LOGIN_OK ends the login. */
unsigned iscsi__key_negotiate(struct login *l, enum key_id id,
			      const char *value, struct text_out *out);

#endif
