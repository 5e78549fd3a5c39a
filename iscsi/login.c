/*
 * login: from the first Login Request to full feature phase (RFC 7143 section
 * 6.3 and 13): stages, names, access, authentication, keys.
 *
 * A state machine without I/O: iscsi__login_request() takes one Login PDU and
 * says what to answer.  The happy path: names in the first request, CHAP or
 * None in stage 0, keys in stage 1, then a final answer.  Every failure is a
 * status of 11.13.5, after which the connection closes.  What needs time (an
 * older session that must end first) is the session's.
 */
#include "iscsi/iscsi_int.h"

#define LOGIN_PDUS_MAX 64u
#define LOGIN_TEXT_MAX (32u << 10)

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

struct pairs {
	const char *value[K_COUNT]; /* NULL: absent */
	unsigned char order[K_COUNT];
	unsigned count;
};

struct login *iscsi__login_new(struct iscsi *iscsi, struct iscsi_portal *portal,
			       bool rdma)
{
	struct login *l = calloc(1, sizeof(*l));

	if (l == NULL)
		return NULL;
	l->iscsi = iscsi;
	l->portal = portal;
	l->rdma = rdma;
	l->keys = (struct login_keys){
		.max_send_data = 8192,
		.max_recv_data = rdma ? ISCSI_LOGIN_DATA_MAX
				      : iscsi->config.max_recv_data,
		.max_burst = 262144,
		.first_burst = 65536,
		.max_outstanding_r2t = 1,
		.time2wait = 2,
		.time2retain = 20,
		.initial_r2t = true,
		.immediate_data = true,
		.protocol_level = 1,
	};
	return l;
}

void iscsi__login_free(struct login *l)
{
	if (l == NULL)
		return;
	free(l->text);
	explicit_bzero(&l->chap, sizeof(l->chap));
	free(l);
}

/* ---- header ---- */

/* Fields that must hold over a login, and the stages (11.12). */
static unsigned check_header(struct login *l, const uint8_t *bhs)
{
	bool transit = bhs[1] & ISCSI_FINAL, more = bhs[1] & ISCSI_CONTINUE;
	unsigned csg = bhs[1] >> 2 & 3, nsg = bhs[1] & 3;

	if (bhs[3] > 0)
		return LOGIN_VERSION;
	if (!l->begun) {
		memcpy(l->isid, bhs + 8, 6);
		l->tsih = get_be16(bhs + 14);
		l->itt = get_be32(bhs + 16);
		l->cid = get_be16(bhs + 20);
		l->cmdsn = get_be32(bhs + 24);
		l->stage = csg;
		if (l->itt == ISCSI_NO_TAG)
			return LOGIN_INVALID;
	} else if (memcmp(l->isid, bhs + 8, 6) != 0 ||
		   l->tsih != get_be16(bhs + 14) ||
		   l->itt != get_be32(bhs + 16) ||
		   l->cid != get_be16(bhs + 20)) {
		return LOGIN_INVALID;
	}
	if (transit && more)
		return LOGIN_INVALID;
	if (csg > 1 || csg != l->stage)
		return LOGIN_INVALID;
	if (transit && (nsg == 2 || nsg <= csg))
		return LOGIN_INVALID;
	if (++l->pdus > LOGIN_PDUS_MAX)
		return LOGIN_ERROR;
	return LOGIN_OK;
}

/* ---- names and access: the first request ---- */

static unsigned first_names(struct login *l, const struct pairs *p)
{
	const char *type = p->value[K_SESSION_TYPE];
	const char *name = p->value[K_INITIATOR_NAME];

	if (name == NULL)
		return LOGIN_MISSING;
	if (iscsi__name_parse(name, l->initiator) < 0)
		return LOGIN_ERROR;
	if (type != NULL && strcmp(type, "Discovery") == 0)
		l->discovery = true;
	else if (type != NULL && strcmp(type, "Normal") != 0)
		return LOGIN_SESSION_TYPE;
	if (p->value[K_TARGET_NAME] == NULL)
		return l->discovery ? LOGIN_OK : LOGIN_MISSING;
	if (iscsi__name_parse(p->value[K_TARGET_NAME], l->target_name) < 0)
		return LOGIN_ERROR;
	return LOGIN_OK;
}

static unsigned first_request(struct login *l, const struct pairs *p)
{
	struct iscsi_target *target;
	unsigned status = first_names(l, p);

	if (status != LOGIN_OK)
		return status;
	if (l->iscsi->closing)
		return LOGIN_UNAVAILABLE;
	if (!l->discovery) {
		target = iscsi__target_find(l->iscsi, l->target_name);
		if (target == NULL)
			return LOGIN_NOT_FOUND;
		if (!iscsi__target_admits(target, l->initiator))
			return LOGIN_FORBIDDEN;
		l->auth_needed = target->chap.user[0] != '\0';
	}
	if (l->stage > 0 && l->auth_needed)
		return LOGIN_AUTH_FAILED;
	l->begun = true;
	return LOGIN_OK;
}

/* ---- authentication ---- */

static unsigned auth_method(struct login *l, const char *value,
			    struct text_out *out)
{
	const char *const chap = "CHAP", *const none = "None";
	int rv = iscsi__text_list(value, l->auth_needed ? &chap : &none, 1);

	if (rv == -EINVAL)
		return LOGIN_ERROR;
	if (rv < 0) {
		iscsi__text_put(out, "AuthMethod", "Reject");
		return LOGIN_AUTH_FAILED;
	}
	if (l->auth_needed)
		l->chap.state = CHAP_EXPECTED;
	iscsi__text_put(out, "AuthMethod", "%s", l->auth_needed ? chap : none);
	return LOGIN_OK;
}

/* A challenge of ours that comes back on another connection (9.2.1). */
static bool reflected(struct login *l)
{
	struct iscsi_conn *conn;

	TAILQ_FOREACH (conn, &l->iscsi->conns, link) {
		struct login *o = conn->login;

		if (o != NULL && o->chap.state == CHAP_CHALLENGED &&
		    o->chap.challenge_len == l->chap.peer_challenge_len &&
		    memcmp(o->chap.challenge, l->chap.peer_challenge,
			   o->chap.challenge_len) == 0)
			return true;
	}
	return false;
}

static unsigned authenticate(struct login *l, const struct pairs *p,
			     struct text_out *out)
{
	struct chap_keys ck = {
		.a = p->value[K_CHAP_A],
		.i = p->value[K_CHAP_I],
		.c = p->value[K_CHAP_C],
		.n = p->value[K_CHAP_N],
		.r = p->value[K_CHAP_R],
	};
	bool any = ck.a || ck.i || ck.c || ck.n || ck.r;
	struct iscsi_target *target;
	int rv;

	if (p->value[K_AUTH_METHOD] != NULL) {
		unsigned status;

		if (any || l->chap.state != CHAP_NONE)
			return LOGIN_AUTH_FAILED;
		status = auth_method(l, p->value[K_AUTH_METHOD], out);
		if (status != LOGIN_OK)
			return status;
	}
	if (!l->auth_needed) {
		l->auth_done = true;
		return any ? LOGIN_AUTH_FAILED : LOGIN_OK;
	}
	if (!any)
		return LOGIN_OK;
	if (l->stage != 0)
		return LOGIN_ERROR;
	/* It may have changed, or gone, since the first request. */
	target = iscsi__target_find(l->iscsi, l->target_name);
	if (target == NULL)
		return LOGIN_NOT_FOUND;
	rv = iscsi__chap_step(&l->chap, &ck, &target->chap, &target->mutual,
			      l->iscsi->env, out);
	if (rv == -EINVAL)
		return LOGIN_ERROR;
	if (rv < 0 || (ck.c != NULL && reflected(l)))
		return LOGIN_AUTH_FAILED;
	l->auth_done = l->chap.state == CHAP_DONE;
	return LOGIN_OK;
}

/* ---- operational keys ---- */

/* The most we take for a number; the outcome is the smaller one. */
static uint32_t our_number(const struct login *l, enum key_id id)
{
	const struct iscsi_config *c = &l->iscsi->config;

	switch (id) {
	case K_MAX_BURST:
		return c->max_burst;
	case K_FIRST_BURST:
		return c->first_burst;
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
		return true;
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

static unsigned negotiate(struct login *l, enum key_id id, const char *value,
			  struct text_out *out)
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

/* ---- one complete text ---- */

static unsigned read_pairs(struct login *l, char *text, size_t len,
			   struct pairs *p, struct text_out *out)
{
	char *key, *value;
	int rv;

	while ((rv = iscsi__text_next(&text, &len, &key, &value)) > 0) {
		unsigned id = 0;

		while (id < K_COUNT && strcmp(keys[id].name, key) != 0)
			id++;
		if (id == K_COUNT) {
			iscsi__text_put(out, key, "NotUnderstood");
			continue;
		}
		/* Once per login (6.3), declarations included. */
		if (l->seen & 1ull << id)
			return LOGIN_ERROR;
		l->seen |= 1ull << id;
		if (*value == '\0' ||
		    (strlen(value) > 255 && id != K_CHAP_C && id != K_CHAP_R))
			return id >= K_CHAP_A && id <= K_CHAP_R
				       ? LOGIN_AUTH_FAILED
				       : LOGIN_ERROR;
		p->value[id] = value;
		p->order[p->count++] = (unsigned char)id;
	}
	return rv < 0 ? LOGIN_ERROR : LOGIN_OK;
}

/* What the target says unasked (13.9, 13.12). */
static void declare(struct login *l, struct text_out *out)
{
	struct iscsi_target *target = NULL;

	if (!l->discovery)
		target = iscsi__target_find(l->iscsi, l->target_name);
	if (!l->tpgt_sent && target != NULL) {
		iscsi__text_put(out, "TargetPortalGroupTag", "%u",
				l->portal->tpgt);
		if (target->alias[0] != '\0')
			iscsi__text_put(out, "TargetAlias", "%s",
					target->alias);
	}
	l->tpgt_sent = true;
}

static void declare_lengths(struct login *l, struct text_out *out)
{
	if (l->declared || l->rdma)
		return;
	l->declared = true;
	iscsi__text_put(out, "MaxRecvDataSegmentLength", "%u",
			l->keys.max_recv_data);
}

static unsigned handle_text(struct login *l, const uint8_t *bhs, char *text,
			    size_t len, struct text_out *out)
{
	struct pairs p = { .count = 0 };
	/* Unknown keys are answered after ours: keep theirs apart. */
	char unknown[1024];
	struct text_out later;
	unsigned status;

	iscsi__text_out_init(&later, unknown, sizeof(unknown));
	status = read_pairs(l, text, len, &p, &later);
	if (status != LOGIN_OK)
		return status;
	if (!l->begun) {
		status = first_request(l, &p);
		if (status != LOGIN_OK)
			return status;
		if (p.value[K_INITIATOR_ALIAS] != NULL)
			memcpy(l->alias, p.value[K_INITIATOR_ALIAS],
			       strlen(p.value[K_INITIATOR_ALIAS]) + 1);
	} else if (p.value[K_INITIATOR_NAME] || p.value[K_TARGET_NAME] ||
		   p.value[K_SESSION_TYPE]) {
		return LOGIN_ERROR; /* they belong into the first request */
	}
	declare(l, out);
	if (p.value[K_AUTH_METHOD] != NULL && l->stage != 0)
		return LOGIN_ERROR;
	status = authenticate(l, &p, out);
	if (status != LOGIN_OK)
		return status;
	for (unsigned i = 0; i < p.count; i++) {
		status = negotiate(l, p.order[i], p.value[p.order[i]], out);
		if (status != LOGIN_OK)
			return status;
	}
	if (l->stage == 1 || (bhs[1] & 0x83) == 0x83)
		if (l->auth_done)
			declare_lengths(l, out);
	if (out->room - out->len < later.len || later.full || out->full)
		return LOGIN_RESOURCES;
	memcpy(out->buf + out->len, later.buf, later.len);
	out->len += later.len;
	return LOGIN_OK;
}

/* Keep the text of a request; more follows if the C bit is set. */
static unsigned collect(struct login *l, const uint8_t *data, uint32_t len)
{
	char *text;

	if (l->text_len + len > LOGIN_TEXT_MAX)
		return LOGIN_ERROR;
	text = realloc(l->text, l->text_len + len + 1);
	if (text == NULL)
		return LOGIN_RESOURCES;
	l->text = text;
	if (len > 0)
		memcpy(text + l->text_len, data, len);
	l->text_len += len;
	text[l->text_len] = '\0';
	return LOGIN_OK;
}

static void finish_keys(struct login *l)
{
	struct login_keys *k = &l->keys;

	k->first_burst = MIN(k->first_burst, k->max_burst);
	if (l->rdma)
		k->initial_r2t = true;
}

static void fail(struct login_answer *out, unsigned status)
{
	out->status_class = (uint8_t)(status >> 8);
	out->status_detail = (uint8_t)status;
	out->flags = 0;
	out->final = false;
	out->text_len = 0;
}

/*
 * Take the Login Request @bhs with @len bytes of text; the answer's text is in
 * login->answer.  A status class in @out means: answer that, then close.
 */
void iscsi__login_request(struct login *l, const uint8_t *bhs,
			  const uint8_t *data, uint32_t len,
			  struct login_answer *out)
{
	unsigned status = check_header(l, bhs), nsg = bhs[1] & 3;
	bool transit = bhs[1] & ISCSI_FINAL;
	struct text_out text;

	memset(out, 0, sizeof(*out));
	if (status == LOGIN_OK)
		status = collect(l, data, len);
	if (status != LOGIN_OK) {
		fail(out, status);
		return;
	}
	out->flags = (uint8_t)(l->stage << 2);
	if (bhs[1] & ISCSI_CONTINUE)
		return; /* an empty answer asks for the rest */
	iscsi__text_out_init(&text, l->answer, sizeof(l->answer));
	status = handle_text(l, bhs, l->text, l->text_len, &text);
	free(l->text);
	l->text = NULL;
	l->text_len = 0;
	if (status != LOGIN_OK) {
		fail(out, status);
		return;
	}
	out->text_len = text.len;
	/* Whoever has not proved who he is stays where he is. */
	if (!transit || (l->auth_needed && !l->auth_done))
		return;
	out->flags = (uint8_t)(ISCSI_FINAL | l->stage << 2 | nsg);
	l->stage = nsg;
	if (nsg == 3) {
		finish_keys(l);
		l->final_len = text.len;
		l->final_flags = out->flags;
		out->final = true;
	}
}
