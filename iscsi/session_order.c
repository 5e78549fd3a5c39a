/*
 * session_order: what a session is sent, in the order of its CmdSN (RFC 7143
 * 4.2.2.1): what comes before its turn is held back, within bounds; what lies
 * outside of the window is not looked at.
 */
#include "iscsi/iscsi_int.h"

static struct held *held_find(const struct iscsi_session *s, uint32_t cmdsn)
{
	struct held *held;

	TAILQ_FOREACH (held, &s->held, link)
		if (held->cmdsn == cmdsn)
			return held;
	return NULL;
}

static bool held_fits(const struct iscsi_session *s, uint32_t len)
{
	return s->held_count < ISCSI_HELD_MAX &&
	       s->held_bytes + len <= ISCSI_HELD_BYTES_MAX;
}

static void held_add(struct iscsi_session *s, struct held *held)
{
	if (TAILQ_EMPTY(&s->held))
		s->held_since_ns = env_now(s->iscsi->env);
	TAILQ_INSERT_TAIL(&s->held, held, link);
	s->held_count++;
	s->held_bytes += held->data_len;
	iscsi__session_data_timer(s, ISCSI_DATA_SECONDS);
}

/* It came before its turn: keep a copy, within bounds. */
static void hold(struct iscsi_conn *conn, const struct dm_pdu *pdu,
		 uint32_t cmdsn)
{
	struct iscsi_session *s = conn->session;
	size_t flat = pdu->data != NULL ? pdu->data_len : 0;
	struct held *held;

	if (held_find(s, cmdsn) != NULL) { /* a duplicate */
		iscsi__conn_ignored(conn);
		return;
	}
	if (!held_fits(s, pdu->data_len)) {
		iscsi__conn_end(conn, "too many commands ahead of a gap");
		return;
	}
	held = malloc(sizeof(*held) + pdu->ahs_len + flat);
	if (held == NULL) {
		iscsi__conn_end(conn, "no memory for a command");
		return;
	}
	held->cmdsn = cmdsn;
	memcpy(held->bhs, pdu->bhs, ISCSI_BHS_LEN);
	held->ahs_len = pdu->ahs_len;
	held->data_len = pdu->data_len;
	held->stags = pdu->stags != NULL ? *pdu->stags : (struct dm_stags){ 0 };
	held->sgl = pdu->sgl != NULL ? sgl_get(pdu->sgl) : NULL;
	memcpy(held->bytes, pdu->ahs, pdu->ahs_len);
	if (flat > 0)
		memcpy(held->bytes + pdu->ahs_len, pdu->data, flat);
	held_add(s, held);
}

/* Those that were held and are next now. */
static void deliver_held(struct iscsi_conn *conn)
{
	struct iscsi_session *s = conn->session;
	struct held *held;

again:
	if (s->ending || s->logout != NULL || conn->state != CONN_FULL)
		return;
	TAILQ_FOREACH (held, &s->held, link)
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): off the list */
		if (held->cmdsn == s->exp_cmdsn) {
			struct dm_pdu pdu = {
				.bhs = held->bhs,
				.ahs = held->bytes,
				.ahs_len = held->ahs_len,
				.sgl = held->sgl,
				.data = held->bytes + held->ahs_len,
				.data_len = held->data_len,
				.stags = &held->stags,
			};

			/* Off the list first: the session may end over it. */
			TAILQ_REMOVE(&s->held, held, link);
			s->held_count--;
			s->held_bytes -= held->data_len;
			s->exp_cmdsn++;
			iscsi__session_deliver(conn, &pdu);
			sgl_put(held->sgl);
			free(held);
			goto again;
		}
}

static bool numbered(const uint8_t *bhs)
{
	switch (bhs[0] & ISCSI_OP_MASK) {
	case ISCSI_OP_NOP_OUT:
		return get_be32(bhs + 16) != ISCSI_NO_TAG;
	case ISCSI_OP_COMMAND:
	case ISCSI_OP_TMF:
	case ISCSI_OP_TEXT:
	case ISCSI_OP_LOGOUT:
		return true;
	default:
		return false;
	}
}

/* Its turn will come, and nothing happens. */
static void make_nothing(struct held *held)
{
	held->bhs[0] = ISCSI_OP_NOP_OUT;
	put_be32(held->bhs + 16, ISCSI_NO_TAG);
}

/*
 * A TMF says that this number will not come, or shall do nothing if it comes:
 * count it as received, so that later ones are not held up (11.6.1).  False:
 * too much is ahead of the gap to remember it.
 */
bool iscsi__session_skip(struct iscsi_session *s, uint32_t cmdsn)
{
	struct held *held = held_find(s, cmdsn);

	if (held != NULL) { /* it is here already */
		make_nothing(held);
		return true;
	}
	if (cmdsn == s->exp_cmdsn) {
		s->exp_cmdsn++;
		return true;
	}
	held = held_fits(s, 0) ? calloc(1, sizeof(*held)) : NULL;
	if (held == NULL)
		return false;
	held->cmdsn = cmdsn;
	make_nothing(held);
	held_add(s, held);
	return true;
}

/*
 * A TMF numbered @cmdsn ends the tasks of @lun, or @all: so it does those whose
 * commands came before it and wait for a gap to close (11.5.1).
 */
void iscsi__session_skip_tasks(struct iscsi_session *s, uint32_t cmdsn,
			       bool all, uint64_t lun)
{
	struct held *held;

	TAILQ_FOREACH (held, &s->held, link)
		if ((held->bhs[0] & ISCSI_OP_MASK) == ISCSI_OP_COMMAND &&
		    sn_lt(held->cmdsn, cmdsn) &&
		    (all || scsi_lun_same(get_be64(held->bhs + 8), lun)))
			make_nothing(held);
}

/* Where shall the data of a SCSI Command or of unsolicited Data-Out go? */
struct sgl *iscsi__session_land(struct iscsi_conn *conn,
				const struct dm_pdu *pdu, size_t *sgl_offset)
{
	struct iscsi_session *s = conn->session;
	int place = 0;

	if (s->discovery)
		return NULL;
	/* Of a command that came before a logout, too. */
	if ((pdu->bhs[0] & ISCSI_OP_MASK) == ISCSI_OP_DATA_OUT)
		return iscsi__task_land(conn, pdu, sgl_offset);
	if (s->logout != NULL)
		return NULL;
	if (!(pdu->bhs[0] & ISCSI_IMMEDIATE))
		place = iscsi__cmdsn_place(get_be32(pdu->bhs + 24),
					   s->exp_cmdsn, s->most_cmdsn);
	else if (conn->landing == NULL &&
		 conn->immediates >= ISCSI_IMMEDIATE_MAX)
		return NULL;
	*sgl_offset = 0;
	if (place < 0)
		return NULL;
	if (place > 0) {
		sgl_put(conn->landing_held);
		conn->landing_held = NULL;
		if (sgl_new(s->iscsi->env->pages, PAGE_FRONT, pdu->data_len, 0,
			    &conn->landing_held) < 0)
			return NULL;
		return conn->landing_held;
	}
	if (conn->landing != NULL) { /* it was put off */
		iscsi__task_land_again(conn->landing, pdu);
		return conn->landing->buf;
	}
	conn->landing = iscsi__task_new(s, pdu, true);
	if (conn->landing == NULL)
		return NULL;
	conn->landing->landing = true;
	return conn->landing->buf;
}

/* ---- dispatch ---- */

static void unnumbered(struct iscsi_conn *conn, const struct dm_pdu *pdu)
{
	uint8_t opcode = pdu->bhs[0] & ISCSI_OP_MASK;

	switch (opcode) {
	case ISCSI_OP_NOP_OUT: /* without a tag: no answer is wanted */
		iscsi__conn_ignored(conn);
		break;
	case ISCSI_OP_DATA_OUT:
		if (conn->session->discovery)
			iscsi__reject(conn, pdu->bhs, REJECT_PROTOCOL);
		else
			iscsi__task_data_out(conn, pdu);
		break;
	case ISCSI_OP_SNACK:
		iscsi__reject(conn, pdu->bhs, REJECT_SNACK);
		break;
	case ISCSI_OP_LOGIN:
		iscsi__reject(conn, pdu->bhs, REJECT_PROTOCOL);
		break;
	default:
		iscsi__reject(conn, pdu->bhs,
			      opcode >= ISCSI_OP_NOP_IN ? REJECT_PROTOCOL
							: REJECT_NOT_SUPPORTED);
		break;
	}
}

void iscsi__session_control(struct iscsi_conn *conn, const struct dm_pdu *pdu)
{
	struct iscsi_session *s = conn->session;
	uint32_t exp = s->exp_cmdsn;
	int place = 0;

	if (pdu->data_digest_bad) {
		/* Error recovery level 0: say it and hang up (7.8). */
		iscsi__reject(conn, pdu->bhs, REJECT_DATA_DIGEST);
		return;
	}
	if (!numbered(pdu->bhs)) {
		unnumbered(conn, pdu);
		return;
	}
	if (s->logout != NULL) { /* it said goodbye: nothing new */
		counter_add(&iscsi__ignored, 1);
		iscsi__conn_ignored(conn);
		return;
	}
	if (!(pdu->bhs[0] & ISCSI_IMMEDIATE)) {
		place = iscsi__cmdsn_place(get_be32(pdu->bhs + 24),
					   s->exp_cmdsn, s->most_cmdsn);
		if (place < 0) {
			counter_add(&iscsi__ignored, 1);
			iscsi__conn_ignored(conn);
			return;
		}
		if (place > 0) {
			hold(conn, pdu, get_be32(pdu->bhs + 24));
			sgl_put(conn->landing_held);
			conn->landing_held = NULL;
			return;
		}
		s->exp_cmdsn++;
	}
	iscsi__session_deliver(conn, pdu);
	if (TAILQ_EMPTY(&s->held))
		return;
	/* The gap that there may be now is another one, with its own time. */
	if (s->exp_cmdsn != exp)
		s->held_since_ns = env_now(s->iscsi->env);
	deliver_held(conn);
}
