/*
 * discovery: Text Requests (RFC 7143 11.10, 6.4; appendix C): SendTargets, and
 * the few keys that may change in full feature phase.
 *
 * One exchange at a time on a connection.  A text in parts is collected, an
 * answer longer than the initiator takes in one PDU is handed out in parts
 * behind a Target Transfer Tag.  The initiator's F ends it: until then each
 * text gets its answer, and the exchange stays open for another one.
 *
 * A list of all targets that is longer than ANSWER_MAX is made piece by piece, as
 * the initiator fetches it, so that no more than one piece is kept.
 */
#define LOG_ROOM LOG_ISCSI
#include "iscsi/login_int.h"

#include <stdio.h>

#define ANSWER_MAX (256u << 10)

void iscsi__text_reset(struct text_exchange *text)
{
	free(text->in);
	free(text->out);
	*text = (struct text_exchange){ .open = false };
}

/*
 * "address:port,tpgt" of @portal, or "address:port" of @local alone.  Where a
 * portal listens on every address, the one that @local was reached by.
 */
void iscsi__portal_text(const struct iscsi_portal *portal,
			const struct sockaddr_storage *local, char *buf,
			size_t room)
{
	struct sockaddr_storage a = portal ? portal->address : *local;
	char text[ADDRESS_TEXT], tpgt[8] = "";

	if (address_any(&a) && local->ss_family == a.ss_family) {
		in_port_t port = *address_port(&a);

		a = *local;
		*address_port(&a) = port;
	}
	if (portal != NULL)
		snprintf(tpgt, sizeof(tpgt), ",%u", portal->tpgt);
	address_text(&a, false, text);
	snprintf(buf, room, "%s%s", text, tpgt);
}

static void put_target(struct iscsi_conn *conn, const struct iscsi_target *t,
		       struct text_out *out)
{
	const struct iscsi_portal *p;
	char text[INET6_ADDRSTRLEN + 32];

	iscsi__text_put(out, "TargetName", "%s", t->iqn);
	TAILQ_FOREACH (p, &conn->iscsi->portals, link) {
		/* Listening everywhere is no address in another family. */
		if (address_any(&p->address) &&
		    p->address.ss_family != conn->dm->local.ss_family)
			continue;
		iscsi__portal_text(p, &conn->dm->local, text, sizeof(text));
		iscsi__text_put(out, "TargetAddress", "%s", text);
	}
}

/*
 * The targets that were not named yet, as many as fit; @out is full if that is
 * none in all its room.  Only what the initiator may log in to is named: see
 * iscsi_target_set().
 */
static void put_targets(struct iscsi_conn *conn, struct text_out *out)
{
	struct text_exchange *x = &conn->text;
	struct iscsi_target *t;

	TAILQ_FOREACH (t, &conn->iscsi->targets, link) {
		size_t len = out->len;

		if (t->seq <= x->named_seq ||
		    !iscsi__target_admits(t, conn->session->initiator))
			continue;
		put_target(conn, t, out);
		if (out->full && len > 0) {
			out->len = len;
			out->full = false;
			return;
		}
		x->named_seq = t->seq;
	}
	x->targets_left = false;
}

static void send_targets(struct iscsi_conn *conn, const char *value,
			 struct text_out *out)
{
	struct iscsi_session *s = conn->session;
	char name[ISCSI_NAME_MAX + 1];
	struct iscsi_target *t;

	if (!s->discovery && (*value == '\0' || strcmp(value, "All") == 0)) {
		put_target(conn, s->target, out);
		return;
	}
	if (strcmp(value, "All") == 0) {
		conn->text.targets_left = true; /* behind all other pairs */
		conn->text.named_seq = 0;
		return;
	}
	if (iscsi__name_parse(value, name) < 0) {
		iscsi__text_put(out, "SendTargets", "Reject");
		return;
	}
	t = iscsi__target_find(conn->iscsi, name);
	if (t != NULL && iscsi__target_admits(t, s->initiator) &&
	    (s->discovery || t == s->target))
		put_target(conn, t, out);
}

static void new_length(struct iscsi_conn *conn, const char *value,
		       struct text_out *out)
{
	struct iscsi_session *s = conn->session;
	struct dm_keys keys;
	uint64_t v;

	if (conn->dm->ops->rdma ||
	    iscsi__text_number(value, 512, 16777215, &v) < 0) {
		iscsi__text_put(out, "MaxRecvDataSegmentLength", "Reject");
		return;
	}
	s->keys.max_send_data = (uint32_t)v;
	iscsi__dm_keys(conn, &s->keys, &keys);
	(void)conn->dm->ops->notice_keys(conn->dm, &keys);
}

/* Returns 0, or -EINVAL: the text is malformed. */
static int answer(struct iscsi_conn *conn, struct text_out *out)
{
	struct text_exchange *x = &conn->text;
	char *at = x->in, *key, *value;
	size_t len = x->in_len;
	bool asked = false;
	int rv;

	while ((rv = iscsi__text_next(&at, &len, &key, &value)) > 0) {
		if (strcmp(key, "SendTargets") == 0) {
			if (asked)
				return -EINVAL;
			asked = true;
			send_targets(conn, value, out);
		} else if (strcmp(key, "MaxRecvDataSegmentLength") == 0) {
			new_length(conn, value, out);
		} else if (strcmp(key, "InitiatorAlias") == 0) {
			snprintf(conn->session->alias,
				 sizeof(conn->session->alias), "%s", value);
		} else {
			/* What we know is settled at login. */
			iscsi__text_put(out, key, "%s",
					iscsi__key_find(key) != K_COUNT
						? "Reject"
						: "NotUnderstood");
		}
	}
	return rv;
}

/*
 * What follows of the answer, up to ANSWER_MAX bytes.  0; -EINVAL: the text is
 * malformed, or has no answer of that size; -ENOMEM.
 */
static int make_piece(struct iscsi_conn *conn)
{
	struct text_exchange *x = &conn->text;
	struct text_out out;
	char *shrunk;
	int rv = 0;

	free(x->out);
	x->out_len = x->out_at = 0;
	x->out = malloc(ANSWER_MAX);
	if (x->out == NULL)
		return -ENOMEM;
	iscsi__text_out_init(&out, x->out, ANSWER_MAX);
	if (x->in != NULL)
		rv = answer(conn, &out);
	free(x->in);
	x->in = NULL;
	x->in_len = 0;
	if (x->targets_left && !out.full)
		put_targets(conn, &out);
	if (rv < 0 || out.full)
		return -EINVAL;
	x->out_len = out.len;
	/* It may be kept for a while: no more of it than there is. */
	shrunk = realloc(x->out, MAX(out.len, 1u));
	if (shrunk != NULL)
		x->out = shrunk;
	return 0;
}

/*
 * The first answer of a discovery session over iSER still finds the buffer of
 * the login, and the whole list fits where parts of 128 bytes would be lost on
 * initiators that know no parts.
 */
static size_t part_max(const struct iscsi_conn *conn)
{
	const struct iscsi_session *s = conn->session;

	if (conn->dm->ops->rdma && s->discovery && !conn->text_sent)
		return MIN(s->keys.max_send_data, ISCSI_LOGIN_DATA_MAX);
	return iscsi__send_max(conn);
}

/* Its text was answered, and the next one may come under the same tag. */
static void text_answered(struct text_exchange *x)
{
	free(x->out);
	x->out = NULL;
	x->out_len = x->out_at = 0;
}

/*
 * The next part of the answer; the last one closes the exchange, if the
 * initiator has no more to say (11.11.1).
 */
static void send_part(struct iscsi_conn *conn, const struct dm_pdu *pdu)
{
	struct iscsi_session *s = conn->session;
	struct text_exchange *x = &conn->text;
	size_t left = x->out_len - x->out_at;
	size_t n = MIN(left, part_max(conn));
	struct reply *reply;

	reply = iscsi__reply_new(conn, ISCSI_OP_TEXT_RSP, x->itt,
				 x->out + x->out_at, n);
	if (reply == NULL)
		return;
	reply->immediate = pdu->bhs[0] & ISCSI_IMMEDIATE;
	conn->immediates += reply->immediate;
	reply->counted = true;
	iscsi__in_flight_more(s);
	memcpy(reply->send.bhs + 8, pdu->bhs + 8, 8);
	conn->text_sent = true;
	x->out_at += n;
	if (n < left || x->targets_left) {
		reply->send.bhs[1] = 0;
		/* C: a pair is cut in two. */
		if (x->out[x->out_at - 1] != '\0')
			reply->send.bhs[1] = ISCSI_CONTINUE;
		put_be32(reply->send.bhs + 20, x->ttt);
	} else if (!(pdu->bhs[1] & ISCSI_FINAL)) {
		reply->send.bhs[1] = 0;
		put_be32(reply->send.bhs + 20, x->ttt);
		text_answered(x);
	} else {
		put_be32(reply->send.bhs + 20, ISCSI_NO_TAG);
		iscsi__text_reset(x);
	}
	iscsi__reply_send(reply);
}

/* Ask for the rest of a text in parts. */
static void send_empty(struct iscsi_conn *conn, const struct dm_pdu *pdu)
{
	struct reply *reply = iscsi__reply_new(conn, ISCSI_OP_TEXT_RSP,
					       conn->text.itt, NULL, 0);

	if (reply == NULL)
		return;
	reply->immediate = pdu->bhs[0] & ISCSI_IMMEDIATE;
	conn->immediates += reply->immediate;
	reply->counted = true;
	iscsi__in_flight_more(conn->session);
	reply->send.bhs[1] = 0;
	memcpy(reply->send.bhs + 8, pdu->bhs + 8, 8);
	put_be32(reply->send.bhs + 20, conn->text.ttt);
	iscsi__reply_send(reply);
}

static int collect(struct text_exchange *x, const struct dm_pdu *pdu)
{
	char *in;

	if (x->in_len + pdu->data_len > ISCSI_TEXT_MAX)
		return -EMSGSIZE;
	in = realloc(x->in, x->in_len + pdu->data_len + 1);
	if (in == NULL)
		return -ENOMEM;
	if (pdu->data_len > 0)
		memcpy(in + x->in_len, pdu->data, pdu->data_len);
	x->in = in;
	x->in_len += pdu->data_len;
	in[x->in_len] = '\0';
	return 0;
}

void iscsi__text_request(struct iscsi_conn *conn, const struct dm_pdu *pdu)
{
	struct text_exchange *x = &conn->text;
	uint32_t itt = get_be32(pdu->bhs + 16), ttt = get_be32(pdu->bhs + 20);
	int rv = 0;

	if (itt == ISCSI_NO_TAG) {
		iscsi__reject(conn, pdu->bhs, REJECT_INVALID_FIELD);
		return;
	}
	if (ttt == ISCSI_NO_TAG) {
		/*
		 * A new one takes the old one's place; but one that lacks our
		 * tag and goes on under the same task is the old one, and its
		 * size counts.
		 */
		if (!x->open || itt != x->itt || x->out != NULL)
			iscsi__text_reset(x);
	} else if (!x->open || ttt != x->ttt || itt != x->itt) {
		iscsi__reject(conn, pdu->bhs, REJECT_PROTOCOL);
		return;
	}
	if (!x->open) {
		x->open = true;
		x->itt = itt;
		if (++conn->iscsi->ttt_last == ISCSI_NO_TAG)
			conn->iscsi->ttt_last = 1;
		x->ttt = conn->iscsi->ttt_last;
	}
	if (x->out == NULL) {
		if (collect(x, pdu) < 0 || ((pdu->bhs[1] & ISCSI_FINAL) &&
					    (pdu->bhs[1] & ISCSI_CONTINUE))) {
			iscsi__text_reset(x);
			iscsi__reject(conn, pdu->bhs, REJECT_PROTOCOL);
			return;
		}
		if (pdu->bhs[1] & ISCSI_CONTINUE) {
			send_empty(conn, pdu);
			return;
		}
	}
	if (x->out_at == x->out_len)
		rv = make_piece(conn);
	if (rv == -ENOMEM) {
		iscsi__conn_end(conn, "no memory for an answer");
		return;
	}
	if (rv < 0) {
		iscsi__text_reset(x);
		iscsi__reject(conn, pdu->bhs, REJECT_PROTOCOL);
		return;
	}
	send_part(conn, pdu);
}
