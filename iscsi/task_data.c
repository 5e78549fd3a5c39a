/*
 * task_data: how a write's data comes in (RFC 7143 11.7, 11.8): immediate and
 * unsolicited data in sequence, then as many R2Ts as may be outstanding, one
 * burst each.
 */
#include "iscsi/iscsi_int.h"

/* Its data came out of sequence: nothing of it may be written. */
static void fail_data(struct task *task)
{
	iscsi__task_fail(task, 0x0b, 0x4b, 0x00); /* DATA PHASE ERROR */
}

/* ---- what comes unasked ---- */

/* Bytes from @from that did not land in place and do not lie right. */
static void copy_in(struct task *task, struct sgl *from, uint32_t at)
{
	size_t len = MIN(from->len_bytes, task->buf->len_bytes - at);

	for (unsigned i = 0; i < from->pieces_count && len > 0; i++) {
		const struct sgl_piece *p = &from->pieces[i];
		size_t n = MIN(p->len, len);

		copied_add(COPIED_IMMEDIATE, n);
		sgl_write(task->buf, at, p->page->data + p->offset, n);
		at += (uint32_t)n;
		len -= n;
	}
}

/* Unsolicited bytes @at .. @at + len are here. */
static void take_data(struct task *task, const struct dm_pdu *pdu, uint32_t at)
{
	task->unsolicited += pdu->data_len;
	if (!task->live || task->write_len == 0 || pdu->data_len == 0)
		return;
	if (task->placed && at == 0)
		return;
	if (pdu->sgl == NULL) {
		/* Nowhere to put it, and it will not come again. */
		iscsi__task_give_up(task, SCSI_TASK_SET_FULL);
		return;
	}
	if (task->buf == NULL && at == 0 &&
	    pdu->sgl->len_bytes == task->write_len)
		task->buf = sgl_get(pdu->sgl);
	else if (task->buf != NULL && task->buf != pdu->sgl &&
		 at < task->buf->len_bytes)
		copy_in(task, pdu->sgl, at);
	else if (task->buf == NULL)
		iscsi__task_give_up(task, SCSI_TASK_SET_FULL);
}

/* The SCSI Command PDU of a new task is complete. */
void iscsi__task_start(struct task *task, const struct dm_pdu *pdu)
{
	task->landing = false;
	if (task->aborted) {
		iscsi__task_maybe_free(task);
		return;
	}
	take_data(task, pdu, 0);
	iscsi__task_go_on(task);
}

/* The burst is over; is it all that had to come (4.2.5.2)? */
static bool burst_short(const struct task *task)
{
	return task->unsolicited <
	       MIN(task->session->keys.first_burst, task->cmd.edtl);
}

static const char *check_data_out(const struct iscsi_session *s,
				  const struct task *task,
				  const struct dm_pdu *pdu)
{
	uint32_t offset = get_be32(pdu->bhs + 40);

	if (task->final)
		return "Data-Out without being asked";
	if (task->broken)
		return NULL; /* swallowed up to its end */
	if (get_be32(pdu->bhs + 36) != task->datasn)
		return NULL; /* out of sequence: the command fails for it */
	if (offset != task->unsolicited)
		return "Data-Out at the wrong offset";
	if (pdu->data_len > task->cmd.edtl - task->unsolicited)
		return "more data than the command announced";
	if (pdu->data_len > s->keys.first_burst - task->unsolicited)
		return "unsolicited data beyond FirstBurstLength";
	return NULL;
}

/* Where unsolicited Data-Out goes; NULL: it is dropped. */
struct sgl *iscsi__task_land(struct iscsi_conn *conn, const struct dm_pdu *pdu,
			     size_t *sgl_offset)
{
	struct iscsi_session *s = conn->session;
	struct task *task = iscsi__task_find(s, get_be32(pdu->bhs + 16));
	const char *wrong;

	if (task == NULL)
		return NULL;
	wrong = check_data_out(s, task, pdu);
	if (wrong != NULL) {
		iscsi__conn_end(conn, wrong);
		return NULL;
	}
	if (!task->live || task->buf == NULL || task->broken ||
	    get_be32(pdu->bhs + 36) != task->datasn)
		return NULL;
	assert(task->unsolicited + pdu->data_len <= task->buf->len_bytes);
	*sgl_offset = task->unsolicited;
	return task->buf;
}

/* An unsolicited Data-Out PDU is complete (11.7). */
void iscsi__task_data_out(struct iscsi_conn *conn, const struct dm_pdu *pdu)
{
	struct iscsi_session *s = conn->session;
	struct task *task = iscsi__task_find(s, get_be32(pdu->bhs + 16));
	const char *wrong;

	if (task == NULL) { /* aborted, or answered before its data came */
		counter_add(&iscsi__discarded, 1);
		iscsi__conn_ignored(conn);
		return;
	}
	wrong = check_data_out(s, task, pdu);
	if (wrong != NULL) {
		iscsi__conn_end(conn, wrong);
		return;
	}
	if (get_be32(pdu->bhs + 36) != task->datasn && !task->broken) {
		task->broken = true;
		fail_data(task);
	}
	task->datasn++;
	/* Others may wait for it: who sends nothing gains no time by it. */
	if (pdu->data_len > 0 || pdu->bhs[1] & ISCSI_FINAL)
		task->since_ns = env_now(s->iscsi->env);
	if (!task->broken)
		take_data(task, pdu, task->unsolicited);
	if (pdu->bhs[1] & ISCSI_FINAL) {
		task->final = true;
		if (!task->broken && burst_short(task))
			iscsi__task_fail(task, 0x0b, 0x0c, 0x0d);
	}
	iscsi__task_go_on(task);
}

/* ---- asking for the rest ---- */

/* Its data came: it is there, as if it had said something. */
static void heard(struct task *task)
{
	struct iscsi_conn *conn = task->session->conn;

	task->since_ns = env_now(task->session->iscsi->env);
	if (conn == NULL)
		return;
	conn->heard_ns = task->since_ns;
	conn->ping_out = false;
}

static void on_r2t(struct dm_data *data, int status)
{
	struct task_r2t *r2t = container_of(data, struct task_r2t, data);
	struct task *task = r2t->task;

	task->r2ts_used &= ~(1u << (r2t - task->r2t));
	task->r2ts--;
	if (task->aborted || task->state == TASK_RESPOND ||
	    (status < 0 && status != -EPROTO)) {
		/* Without an answer only when the connection goes. */
		iscsi__task_maybe_free(task);
		return;
	}
	if (status < 0) {
		fail_data(task);
		if (!task->live)
			iscsi__task_respond(task);
		return;
	}
	heard(task);
	iscsi__task_go_on(task);
}

/* As many R2Ts as may be outstanding, one burst each. */
void iscsi__task_ask(struct task *task)
{
	struct iscsi_session *s = task->session;
	struct iscsi_conn *conn = s->conn;
	unsigned max = MIN(s->keys.max_outstanding_r2t, TASK_R2T_MAX);

	if (conn->dm->ops->rdma) /* no R2T travels: nobody counts them */
		max = TASK_R2T_MAX;
	task->state = TASK_R2T;
	iscsi__session_data_timer(s, ISCSI_BARRIER_DATA_SECONDS);
	for (unsigned i = 0; i < max && task->asked < task->write_len; i++) {
		struct task_r2t *r2t = &task->r2t[i];

		if (task->r2ts_used & 1u << i)
			continue;
		task->r2ts_used |= 1u << i;
		r2t->task = task;
		r2t->data = (struct dm_data){
			.itt = task->itt,
			.stags = &task->stags,
			.lun = task->lun_wire,
			.sgl = task->buf,
			.sgl_offset = task->asked,
			.task_offset = task->asked,
			.len = MIN(s->keys.max_burst,
				   task->write_len - task->asked),
			.sn = task->r2tsn++,
			.cb = on_r2t,
		};
		task->asked += (uint32_t)r2t->data.len;
		task->r2ts++;
		conn->dm->ops->get_data(conn->dm, &r2t->data);
	}
}
