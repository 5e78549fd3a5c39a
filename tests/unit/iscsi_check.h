/*
 * iscsi_check: what must hold of sessions and units whenever nothing runs: each
 * count is that of what it counts, and what waits has a timer.
 */
#ifndef BASALT_TESTS_UNIT_ISCSI_CHECK_H
#define BASALT_TESTS_UNIT_ISCSI_CHECK_H

#include "iscsi/iscsi_int.h"
#include "iscsi/scsi_int.h"
#include "tests/lib/test.h"

/* Its answers are added to those of the session's tasks. */
static inline void check_conn(const struct iscsi_conn *conn,
			      unsigned *in_flight, unsigned *responding,
			      unsigned *immediates)
{
	const struct reply *r;
	unsigned count = 0;
	size_t bytes = 0;

	TAILQ_FOREACH (r, &conn->replies, link) {
		count++;
		*in_flight += r->counted && !r->sending;
		*responding += r->counted && r->sending;
		*immediates += r->immediate;
		bytes += r->send.data_len;
	}
	CHECK_EQ(conn->replies_count, count);
	CHECK_EQ(conn->immediates, *immediates);
	CHECK_EQ(conn->reply_bytes, bytes);
	CHECK(conn->immediates <= 2 * ISCSI_IMMEDIATE_MAX);
}

static inline void check_session(const struct iscsi_session *s)
{
	unsigned tasks = 0, in_flight = 0, immediates = 0, aborted = 0;
	unsigned responding = 0, held = 0, waiting = 0;
	const struct held *h;
	const struct task *t;
	size_t payload = 0;

	TAILQ_FOREACH (t, &s->tasks, link) {
		tasks++;
		in_flight += t->counted;
		immediates += t->counted && t->immediate;
		aborted += t->aborted;
		responding += !t->aborted && t->state == TASK_RESPOND;
		payload += t->payload;
		/* Of one in TASK_DATA the rest of a PDU may be on its way. */
		waiting += iscsi__task_waits(t) && t->state != TASK_DATA;
	}
	TAILQ_FOREACH (h, &s->held, link)
		held++;
	CHECK_EQ(s->tasks_count, tasks);
	CHECK_EQ(s->aborted_count, aborted);
	CHECK_EQ(s->payload_bytes, payload);
	CHECK_EQ(s->held_count, held);
	if (s->conn != NULL)
		check_conn(s->conn, &in_flight, &responding, &immediates);
	CHECK_EQ(s->responding_count, responding);
	CHECK_EQ(iscsi__in_flight(s), in_flight);
	CHECK(sn_le(s->exp_cmdsn, s->max_cmdsn + 1));
	CHECK(!s->pages.queued || !TAILQ_EMPTY(&s->parked) || s->ending);
	CHECK(waiting == 0 || s->ending || s->data_timer_on);
	if (s->data_timer_on && !s->ending)
		CHECK(s->data_due_ns <=
		      env_now(s->iscsi->env) +
			      (TAILQ_EMPTY(&s->parked) ? ISCSI_DATA_SECONDS
						       : ISCSI_PARKED_SECONDS) *
				      SEC);
}

static inline void check_unit(const struct scsi_lun *lun)
{
	const struct scsi_cmd *cmd;
	unsigned barriers = 0, tasks = 0;

	TAILQ_FOREACH (cmd, &lun->tasks, link) {
		tasks++;
		barriers += cmd->attr == SCSI_ORDERED || cmd->attr == SCSI_HEAD;
	}
	CHECK_EQ(lun->barriers, barriers);
	CHECK(lun->waiting <= tasks);
}

static inline void check_all(const struct iscsi *iscsi)
{
	const struct iscsi_session *s;
	const struct iscsi_target *t;
	const struct scsi_lun *lun;
	size_t payload = 0;

	TAILQ_FOREACH (s, &iscsi->sessions, link) {
		check_session(s);
		payload += s->payload_bytes;
	}
	CHECK_EQ(iscsi->payload_bytes, payload);
	TAILQ_FOREACH (t, &iscsi->targets, link)
		TAILQ_FOREACH (lun, &t->scsi->all, link)
			check_unit(lun);
}

#endif
