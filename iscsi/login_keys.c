/*
 * login_keys: the keys of a login (RFC 7143 section 13, RFC 7145 section 6) as a
 * table, and what we answer to each.
 */
#include "iscsi/login_int.h"

enum key_kind {
	KIND_DECLARED, /* text: looked at elsewhere, no answer */
	KIND_SECURITY, /* stage 0 only: looked at elsewhere */
	KIND_DIGEST,
	KIND_MIN,
	KIND_MAX, /* numbers */
	KIND_AND,
	KIND_OR, /* booleans */
	KIND_NUMBER, /* a declared number, no answer */
	KIND_FLAG, /* a declared boolean, no answer */
	KIND_NO, /* answer No */
	KIND_REJECT, /* never acceptable here */
	KIND_REPORTING,
};

#define F_NORMAL 1u /* Irrelevant in a discovery session */
#define F_RDMA 2u /* Irrelevant on TCP */

/* Section 13 as a table; @ours is what we want to be the outcome. */
static const struct key {
	const char *name;
	enum key_kind kind;
	uint32_t min, max;
	unsigned flags;
} keys[K_COUNT] = {
	[K_INITIATOR_NAME] = { "InitiatorName", KIND_DECLARED },
	[K_INITIATOR_ALIAS] = { "InitiatorAlias", KIND_DECLARED },
	[K_TARGET_NAME] = { "TargetName", KIND_DECLARED },
	[K_SESSION_TYPE] = { "SessionType", KIND_DECLARED },
	[K_AUTH_METHOD] = { "AuthMethod", KIND_SECURITY },
	[K_CHAP_A] = { "CHAP_A", KIND_SECURITY },
	[K_CHAP_I] = { "CHAP_I", KIND_SECURITY },
	[K_CHAP_C] = { "CHAP_C", KIND_SECURITY },
	[K_CHAP_N] = { "CHAP_N", KIND_SECURITY },
	[K_CHAP_R] = { "CHAP_R", KIND_SECURITY },
	[K_HEADER_DIGEST] = { "HeaderDigest", KIND_DIGEST },
	[K_DATA_DIGEST] = { "DataDigest", KIND_DIGEST },
	[K_MAX_CONNECTIONS] = { "MaxConnections", KIND_MIN, 1, 65535,
				F_NORMAL },
	[K_INITIAL_R2T] = { "InitialR2T", KIND_OR, 0, 0, F_NORMAL },
	[K_IMMEDIATE_DATA] = { "ImmediateData", KIND_AND, 0, 0, F_NORMAL },
	[K_MRDSL] = { "MaxRecvDataSegmentLength", KIND_NUMBER, 512, 16777215 },
	[K_MAX_BURST] = { "MaxBurstLength", KIND_MIN, 512, 16777215, F_NORMAL },
	[K_FIRST_BURST] = { "FirstBurstLength", KIND_MIN, 512, 16777215,
			    F_NORMAL },
	[K_TIME2WAIT] = { "DefaultTime2Wait", KIND_MAX, 0, 3600 },
	[K_TIME2RETAIN] = { "DefaultTime2Retain", KIND_MIN, 0, 3600 },
	[K_OUTSTANDING_R2T] = { "MaxOutstandingR2T", KIND_MIN, 1, 65535,
				F_NORMAL },
	[K_PDU_IN_ORDER] = { "DataPDUInOrder", KIND_OR, 0, 0, F_NORMAL },
	[K_SEQ_IN_ORDER] = { "DataSequenceInOrder", KIND_OR, 0, 0, F_NORMAL },
	[K_ERL] = { "ErrorRecoveryLevel", KIND_MIN, 0, 2 },
	[K_IF_MARKER] = { "IFMarker", KIND_NO },
	[K_OF_MARKER] = { "OFMarker", KIND_NO },
	[K_IF_MARK_INT] = { "IFMarkInt", KIND_REJECT },
	[K_OF_MARK_INT] = { "OFMarkInt", KIND_REJECT },
	[K_TASK_REPORTING] = { "TaskReporting", KIND_REPORTING, 0, 0,
			       F_NORMAL },
	[K_PROTOCOL_LEVEL] = { "iSCSIProtocolLevel", KIND_MIN, 0, 31,
			       F_NORMAL },
	[K_NODE_ARCH] = { "X#NodeArchitecture", KIND_DECLARED },
	[K_RDMA] = { "RDMAExtensions", KIND_AND },
	[K_TARGET_RDSL] = { "TargetRecvDataSegmentLength", KIND_MIN, 512,
			    16777215, F_RDMA },
	[K_INITIATOR_RDSL] = { "InitiatorRecvDataSegmentLength", KIND_MIN, 512,
			       16777215, F_RDMA },
	[K_UNEXPECTED] = { "MaxOutstandingUnexpectedPDUs", KIND_NUMBER, 0,
			   UINT32_MAX, F_RDMA },
	[K_AHS_LENGTH] = { "MaxAHSLength", KIND_NUMBER, 0, UINT32_MAX, F_RDMA },
	[K_TAGGED] = { "TaggedBufferForSolicitedDataOnly", KIND_FLAG, 0, 0,
		       F_RDMA },
	[K_HELLO] = { "iSERHelloRequired", KIND_AND, 0, 0, F_RDMA },
	/* A target's own: an initiator has no business declaring them. */
	[K_TARGET_ALIAS] = { "TargetAlias", KIND_REJECT },
	[K_TARGET_ADDRESS] = { "TargetAddress", KIND_REJECT },
	[K_TPGT] = { "TargetPortalGroupTag", KIND_REJECT },
	[K_SEND_TARGETS] = { "SendTargets", KIND_REJECT },
};

enum key_id iscsi__key_find(const char *name)
{
	unsigned id = 0;

	while (id < K_COUNT && strcmp(keys[id].name, name) != 0)
		id++;
	return (enum key_id)id;
}

/* The most we take for a number; the outcome is the smaller one. */
static uint32_t our_number(const struct login *l, enum key_id id)
{
	const struct iscsi_config *c = &l->iscsi->config;

	switch (id) {
	case K_MAX_BURST:
		return c->max_burst;
	case K_FIRST_BURST: /* at most MaxBurstLength (13.14) */
		return MIN(c->first_burst, l->keys.max_burst);
	case K_OUTSTANDING_R2T:
		return TASK_R2T_MAX;
	case K_TIME2RETAIN:
	case K_ERL:
		return 0; /* a session does not outlive its connection */
	case K_PROTOCOL_LEVEL:
		return 2;
	case K_TARGET_RDSL:
		return ISCSI_LOGIN_DATA_MAX;
	case K_INITIATOR_RDSL:
		return c->max_recv_data;
	case K_TIME2WAIT:
		return 2;
	default:
		return 1;
	}
}

static void set_number(struct login *l, enum key_id id, uint32_t v)
{
	switch (id) {
	case K_MRDSL:
		l->keys.max_send_data = v;
		break;
	case K_INITIATOR_RDSL:
		if (l->rdma)
			l->keys.max_send_data = v;
		break;
	case K_TARGET_RDSL:
		if (l->rdma)
			l->keys.max_recv_data = v;
		break;
	case K_MAX_BURST:
		l->keys.max_burst = v;
		break;
	case K_FIRST_BURST:
		l->keys.first_burst = v;
		break;
	case K_OUTSTANDING_R2T:
		l->keys.max_outstanding_r2t = v;
		break;
	case K_TIME2WAIT:
		l->keys.time2wait = v;
		break;
	case K_TIME2RETAIN:
		l->keys.time2retain = v;
		break;
	case K_PROTOCOL_LEVEL:
		l->keys.protocol_level = v;
		break;
	default:
		break;
	}
}

static bool our_bool(const struct login *l, enum key_id id)
{
	switch (id) {
	case K_INITIAL_R2T:
		return l->rdma; /* libiscsi's Data-Out over iSER has no data */
	case K_IMMEDIATE_DATA:
		return !l->no_immediate;
	case K_RDMA:
		return l->rdma;
	case K_PDU_IN_ORDER:
	case K_SEQ_IN_ORDER:
		return true;
	default:
		return false;
	}
}

static unsigned negotiate_digest(struct login *l, enum key_id id,
				 const char *value, struct text_out *out)
{
	static const char *const ours[] = { "None", "CRC32C" };
	int rv = iscsi__text_list(value, ours, l->rdma ? 1 : 2);

	if (rv == -EINVAL)
		return LOGIN_ERROR;
	if (rv < 0) {
		iscsi__text_put(out, keys[id].name, "Reject");
		return LOGIN_ERROR;
	}
	if (id == K_HEADER_DIGEST)
		l->keys.header_digest = rv == 1;
	else
		l->keys.data_digest = rv == 1;
	iscsi__text_put(out, keys[id].name, "%s", ours[rv]);
	return LOGIN_OK;
}

static void negotiate_number(struct login *l, enum key_id id, const char *value,
			     struct text_out *out)
{
	const struct key *key = &keys[id];
	uint32_t mine = our_number(l, id), result;
	uint64_t v;

	if (iscsi__text_number(value, key->min, key->max, &v) < 0) {
		iscsi__text_put(out, key->name, "Reject");
		return;
	}
	result = key->kind == KIND_MIN ? MIN((uint32_t)v, mine)
				       : MAX((uint32_t)v, mine);
	set_number(l, id, result);
	iscsi__text_put(out, key->name, "%u", result);
}

static void negotiate_bool(struct login *l, enum key_id id, const char *value,
			   struct text_out *out)
{
	bool mine = our_bool(l, id), theirs, result;

	if (iscsi__text_bool(value, &theirs) < 0) {
		iscsi__text_put(out, keys[id].name, "Reject");
		return;
	}
	result = keys[id].kind == KIND_AND ? mine && theirs : mine || theirs;
	if (id == K_INITIAL_R2T)
		l->keys.initial_r2t = result;
	else if (id == K_IMMEDIATE_DATA)
		l->keys.immediate_data = result;
	iscsi__text_put(out, keys[id].name, "%s", result ? "Yes" : "No");
}

unsigned iscsi__key_negotiate(struct login *l, enum key_id id,
			      const char *value, struct text_out *out)
{
	static const char *const rfc3720 = "RFC3720";
	const struct key *key = &keys[id];
	uint64_t v;
	bool flag;

	if ((key->flags & F_NORMAL && l->discovery) ||
	    (key->flags & F_RDMA && !l->rdma)) {
		iscsi__text_put(out, key->name, "Irrelevant");
		return LOGIN_OK;
	}
	switch (key->kind) {
	case KIND_DECLARED:
	case KIND_SECURITY:
		break;
	case KIND_DIGEST:
		return negotiate_digest(l, id, value, out);
	case KIND_MIN:
	case KIND_MAX:
		negotiate_number(l, id, value, out);
		break;
	case KIND_AND:
	case KIND_OR:
		negotiate_bool(l, id, value, out);
		break;
	case KIND_NUMBER:
		if (iscsi__text_number(value, key->min, key->max, &v) < 0)
			iscsi__text_put(out, key->name, "Reject");
		else
			set_number(l, id, (uint32_t)v);
		break;
	case KIND_FLAG:
		if (iscsi__text_bool(value, &flag) < 0)
			iscsi__text_put(out, key->name, "Reject");
		break;
	case KIND_NO:
		iscsi__text_put(out, key->name, "No");
		break;
	case KIND_REJECT:
		iscsi__text_put(out, key->name, "Reject");
		break;
	case KIND_REPORTING:
		/* We wait for storage and answer once: the first is enough. */
		iscsi__text_put(out, key->name, "%s",
				iscsi__text_list(value, &rfc3720, 1) == 0
					? rfc3720
					: "Reject");
		break;
	}
	return LOGIN_OK;
}
