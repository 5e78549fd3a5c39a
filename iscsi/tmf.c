/*
 * tmf: task management requests (RFC 7143 11.5, 11.6; RFC 7144).
 *
 * A function is answered when none of the tasks that it covers can change the
 * medium any more: the session's own are gone, and the command set says so of
 * the others.  ABORT TASK and the queries look at the session's tasks only.
 */
#define LOG_ROOM LOG_ISCSI
#include "iscsi/iscsi_int.h"

enum {
	TMF_TASK_REASSIGN = 8,
	TMF_QUERY_TASK = 9,
	TMF_QUERY_TASK_SET = 10,
	TMF_NEXUS_RESET = 11,
	TMF_QUERY_ASYNC = 12,
};

enum {
	RSP_COMPLETE = 0,
	RSP_NO_TASK = 1,
	RSP_NO_LUN = 2,
	RSP_NO_REASSIGN = 4,
	RSP_NOT_SUPPORTED = 5,
	RSP_SUCCEEDED = 7,
	RSP_REJECTED = 255,
};

static bool lun_known(struct iscsi_session *s, uint64_t lun)
{
	struct uuid object;

	return scsi_lun_object(s->target->scsi, lun, &object);
}

static bool covers_target(unsigned function)
{
	return function == SCSI_TARGET_WARM_RESET ||
	       function == SCSI_TARGET_COLD_RESET ||
	       function == SCSI_IT_NEXUS_RESET;
}

/*
 * Has storage tasks yet that @reply waits for?  What another unit's storage does
 * not let go of, as it hangs, is no matter of it.
 */
static bool aborted_left(const struct iscsi_session *s,
			 const struct reply *reply)
{
	bool all = covers_target(reply->tmf.function);
	const struct task *task;

	if (s->aborted_count == 0)
		return false;
	TAILQ_FOREACH (task, &s->tasks, link)
		if (task->aborted &&
		    (all ||
		     scsi_lun_same(task->lun_wire, reply->tmf.lun_field)))
			return true;
	return false;
}

/* Answers that had to wait until aborted tasks are really gone. */
void iscsi__tmf_check(struct iscsi_session *s)
{
	struct iscsi_conn *conn = s->conn;
	struct reply *reply, *next;

	if (conn == NULL)
		return;
	for (reply = TAILQ_FIRST(&conn->replies); reply != NULL; reply = next) {
		bool cold = reply->tmf_cold;

		next = TAILQ_NEXT(reply, link);
		if (!reply->tmf_pending || reply->tmf.waiting > 0 ||
		    reply->tmf_busy || aborted_left(s, reply))
			continue;
		reply->tmf_pending = false;
		reply->last = cold;
		iscsi__reply_send(reply); /* may free the connection */
		if (cold)
			iscsi__target_reset(s->target, s);
		/* With the last reply the connection may go; not before it. */
		if (s->conn == NULL)
			return;
	}
}

static void on_tmf(struct scsi_tmf_req *req, unsigned response)
{
	struct reply *reply = container_of(req, struct reply, tmf);
	struct iscsi_session *s = reply->conn->session;

	reply->tmf_busy = false;
	reply->send.bhs[2] = (uint8_t)response;
	iscsi__tmf_check(s);
	iscsi__session_kick(s); /* a logout may wait for this */
}

/* The task that @bhs refers to was aborted, but storage still has it. */
static bool still_going(const struct iscsi_session *s, const uint8_t *bhs)
{
	const struct task *task;

	TAILQ_FOREACH (task, &s->tasks, link)
		if (task->aborted && task->itt == get_be32(bhs + 20) &&
		    scsi_lun_same(task->lun_wire, get_be64(bhs + 8)))
			return true;
	return false;
}

/* ABORT TASK (11.6.1): found, or not come yet, or too late. */
static unsigned abort_task(struct iscsi_session *s, const uint8_t *bhs,
			   struct reply *reply)
{
	struct task *task = iscsi__task_find(s, get_be32(bhs + 20));
	uint32_t ref = get_be32(bhs + 32), cmdsn = get_be32(bhs + 24);

	/* Its unit may have gone before it. */
	if (task != NULL && scsi_lun_same(task->lun_wire, get_be64(bhs + 8))) {
		iscsi__task_abort(task);
		reply->tmf_pending = true; /* until it is gone */
		return RSP_COMPLETE;
	}
	if (task == NULL && still_going(s, bhs)) {
		/* The initiator asks again: this one waits as the first does. */
		reply->tmf_pending = true;
		return RSP_COMPLETE;
	}
	if (!lun_known(s, get_be64(bhs + 8)))
		return RSP_NO_LUN;
	if (task == NULL && sn_lt(ref, cmdsn) &&
	    iscsi__cmdsn_place(ref, s->exp_cmdsn, s->most_cmdsn) >= 0)
		return iscsi__session_skip(s, ref) ? RSP_COMPLETE
						   : RSP_REJECTED;
	return RSP_NO_TASK;
}

/* Is a unit attention pending (SAM-5 7.9)?  It stays. */
static unsigned query_async(struct iscsi_session *s, uint64_t lun,
			    struct reply *reply)
{
	bool more = false;
	unsigned sense = scsi_attention(&s->nexus, lun, &more);

	if (sense == 0)
		return RSP_COMPLETE;
	/* UADE DEPTH, one or more, in front of the sense key. */
	put_be24(reply->send.bhs + 8, (more ? 2u : 1u) << 20 | sense);
	return RSP_SUCCEEDED;
}

static unsigned query(struct iscsi_session *s, const uint8_t *bhs,
		      unsigned function, struct reply *reply)
{
	uint64_t lun = get_be64(bhs + 8);
	struct task *task;

	if (!lun_known(s, lun))
		return RSP_NO_LUN;
	if (function == TMF_QUERY_TASK) {
		task = iscsi__task_find(s, get_be32(bhs + 20));
		/* "It is gone" must be true when it is said. */
		reply->tmf_pending = task == NULL && still_going(s, bhs);
		return task != NULL && scsi_lun_same(task->lun_wire, lun)
			       ? RSP_SUCCEEDED
			       : RSP_COMPLETE;
	}
	if (function == TMF_QUERY_ASYNC)
		return query_async(s, lun, reply);
	TAILQ_FOREACH (task, &s->tasks, link)
		if (scsi_lun_same(task->lun_wire, lun) && !task->aborted &&
		    task->state != TASK_RESPOND)
			return RSP_SUCCEEDED;
	return RSP_COMPLETE;
}

/* A function on a whole unit or target: ours first, then all others'. */
static void abort_many(struct iscsi_session *s, struct reply *reply,
		       unsigned function, uint64_t lun, uint32_t cmdsn)
{
	bool all = covers_target(function);
	struct task *task, *next;

	for (task = TAILQ_FIRST(&s->tasks); task != NULL; task = next) {
		next = TAILQ_NEXT(task, link);
		if (all || scsi_lun_same(task->lun_wire, lun))
			iscsi__task_abort(task);
	}
	iscsi__session_skip_tasks(s, cmdsn, all, lun);
	reply->tmf_pending = true;
	reply->tmf_busy = true;
	reply->tmf_cold = function == SCSI_TARGET_COLD_RESET;
	reply->tmf.function = (enum scsi_tmf)function;
	reply->tmf.nexus = &s->nexus;
	reply->tmf.cb = on_tmf;
	scsi_tmf(&reply->tmf);
}

void iscsi__tmf_request(struct iscsi_conn *conn, const struct dm_pdu *pdu)
{
	struct iscsi_session *s = conn->session;
	unsigned function = pdu->bhs[1] & 0x7f, response;
	uint64_t lun = get_be64(pdu->bhs + 8);
	struct reply *reply;

	counter_add(&iscsi__tmfs, 1);
	reply = iscsi__reply_new(conn, ISCSI_OP_TMF_RSP,
				 get_be32(pdu->bhs + 16), NULL, 0);
	if (reply == NULL)
		return;
	reply->immediate = pdu->bhs[0] & ISCSI_IMMEDIATE;
	conn->immediates += reply->immediate;
	reply->counted = true;
	reply->tmf.lun_field = lun;
	iscsi__in_flight_more(s);
	if (function >= TMF_QUERY_TASK && !s->nexus.queries)
		function = 0; /* RFC 7144 was not agreed upon */
	switch (function) {
	case SCSI_ABORT_TASK:
		response = abort_task(s, pdu->bhs, reply);
		break;
	case SCSI_ABORT_TASK_SET:
	case SCSI_CLEAR_TASK_SET:
	case SCSI_LUN_RESET:
		if (!lun_known(s, lun)) {
			response = RSP_NO_LUN;
			break;
		}
		/* fall through */
	case SCSI_TARGET_WARM_RESET:
	case SCSI_TARGET_COLD_RESET:
	case TMF_NEXUS_RESET:
		abort_many(s, reply, function, lun, get_be32(pdu->bhs + 24));
		response = RSP_COMPLETE;
		break;
	case TMF_QUERY_TASK:
	case TMF_QUERY_TASK_SET:
	case TMF_QUERY_ASYNC:
		response = query(s, pdu->bhs, function, reply);
		break;
	case TMF_TASK_REASSIGN:
		response = RSP_NO_REASSIGN;
		break;
	default:
		response = RSP_NOT_SUPPORTED;
		break;
	}
	reply->send.bhs[2] = (uint8_t)response;
	if (!reply->tmf_pending)
		iscsi__reply_send(reply);
	else
		iscsi__session_kick(s);
}
