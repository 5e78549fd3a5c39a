/*
 * login: from the first Login Request to full feature phase (RFC 7143 section
 * 6.3 and 13): stages, names, access, authentication, keys.
 *
 * A state machine without I/O: iscsi__login_request() takes one Login PDU and
 * says what to answer.  The happy path: names in the first request, CHAP or
 * None in stage 0, keys (login_keys.c) in stage 1, then a final answer.  Every failure is a
 * status of 11.13.5, after which the connection closes.  What needs time (an
 * older session that must end first) is the session's.
 */
#include "iscsi/login_int.h"

#include <assert.h>

#define LOGIN_PDUS_MAX 64u
#define LOGIN_TEXT_MAX (32u << 10)

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

static void take_header(struct login *l, const uint8_t *bhs)
{
	memcpy(l->isid, bhs + 8, 6);
	l->tsih = get_be16(bhs + 14);
	l->itt = get_be32(bhs + 16);
	l->cid = get_be16(bhs + 20);
	l->cmdsn = get_be32(bhs + 24);
	l->stage = bhs[1] >> 2 & 3;
}

/* Fields that must hold over a login, and the stages (11.12). */
static unsigned check_header(struct login *l, const uint8_t *bhs)
{
	bool transit = bhs[1] & ISCSI_FINAL, more = bhs[1] & ISCSI_CONTINUE;
	unsigned csg = bhs[1] >> 2 & 3, nsg = bhs[1] & 3;

	if (l->pdus == 0)
		take_header(l, bhs); /* every answer has it, refusals too */
	if (bhs[3] > 0)
		return LOGIN_VERSION;
	if (l->itt == ISCSI_NO_TAG || memcmp(l->isid, bhs + 8, 6) != 0 ||
	    l->tsih != get_be16(bhs + 14) || l->itt != get_be32(bhs + 16) ||
	    l->cid != get_be16(bhs + 20))
		return LOGIN_INVALID;
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
	if (l->discovery && !l->rdma)
		l->keys.max_recv_data =
			MIN(l->keys.max_recv_data, ISCSI_DISCOVERY_DATA_MAX);
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

/* ---- one complete text ---- */

static unsigned read_pairs(struct login *l, char *text, size_t len,
			   struct pairs *p, struct text_out *out)
{
	char *key, *value;
	int rv;

	while ((rv = iscsi__text_next(&text, &len, &key, &value)) > 0) {
		enum key_id id = iscsi__key_find(key);

		if (id == K_COUNT) {
			iscsi__text_put(out, key, "NotUnderstood");
			continue;
		}
		/* Once per login (6.3), declarations included. */
		if (l->seen & 1ull << id)
			return LOGIN_ERROR;
		l->seen |= 1ull << id;
		/* An alias is whatever was configured, nothing too (13.7). */
		if ((*value == '\0' && id != K_INITIATOR_ALIAS) ||
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

/* FirstBurstLength is the last one: MaxBurstLength bounds it, wherever it stands. */
static unsigned negotiate(struct login *l, const struct pairs *p,
			  struct text_out *out)
{
	const char *first_burst = p->value[K_FIRST_BURST];
	unsigned status = LOGIN_OK;

	for (unsigned i = 0; i < p->count && status == LOGIN_OK; i++) {
		enum key_id id = p->order[i];

		if (id != K_FIRST_BURST)
			status = iscsi__key_negotiate(l, id, p->value[id], out);
	}
	if (first_burst != NULL && status == LOGIN_OK)
		status = iscsi__key_negotiate(l, K_FIRST_BURST, first_burst,
					      out);
	return status;
}

static unsigned handle_text(struct login *l, const uint8_t *bhs, char *text,
			    size_t len, struct text_out *out)
{
	struct pairs p = { .count = 0 };
	/* Unknown keys are answered after ours: keep theirs apart. */
	char unknown[ISCSI_LOGIN_DATA_MAX];
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
	status = negotiate(l, &p, out);
	if (status != LOGIN_OK)
		return status;
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
	if (text == NULL) {
		l->lacks = -ENOMEM;
		return LOGIN_RESOURCES;
	}
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
	assert(!l->rdma || k->initial_r2t); /* no unsolicited Data-Out */
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
