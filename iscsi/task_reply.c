/*
 * task_reply: the answer to a SCSI command: SCSI Response (RFC 7143 11.4), its
 * data before it, and the answers that the session gives itself.
 */
#include "iscsi/iscsi_int.h"

static void on_put(struct dm_data *put, int status)
{
	struct task *task = container_of(put, struct task, put);

	task->put_out = false;
	if (status == 0) {
		ENTRY_ADD(&task->session->entry->read_bytes, put->len);
		counter_add(&iscsi__read_bytes, put->len);
	}
	iscsi__task_maybe_free(task);
}

static void on_response(struct dm_send *send, int status)
{
	struct task *task = container_of(send, struct task, response);

	task->response_out = false;
	iscsi__task_maybe_free(task);
}

static void response_bhs(struct task *task, uint64_t moved)
{
	const struct scsi_cmd *cmd = &task->cmd;
	struct dm_send *rsp = &task->response;
	uint32_t count;

	memset(rsp->bhs, 0, sizeof(rsp->bhs));
	rsp->data = NULL;
	rsp->sgl = NULL;
	rsp->data_len = 0;
	rsp->bhs[0] = ISCSI_OP_RESPONSE;
	rsp->bhs[1] =
		ISCSI_FINAL | iscsi__residual(cmd->expect, cmd->edtl, cmd->dir,
					      cmd->transfer_len, moved, &count);
	rsp->bhs[3] = (uint8_t)cmd->status;
	put_be32(rsp->bhs + 16, task->itt);
	put_be32(rsp->bhs + 36, task->r2tsn);
	put_be32(rsp->bhs + 44, count);
	rsp->stags = &task->stags;
	rsp->cb = on_response;
	if (cmd->sense_len > 0) {
		put_be16(task->sense, (uint16_t)cmd->sense_len);
		memcpy(task->sense + 2, cmd->sense, cmd->sense_len);
		rsp->data = task->sense;
		rsp->data_len = cmd->sense_len + 2;
	}
}

void iscsi__task_respond(struct task *task)
{
	struct scsi_cmd *cmd = &task->cmd;
	struct iscsi_session *s = task->session;
	struct iscsi_conn *conn = s->conn;
	struct dm_data *put = &task->put;
	uint64_t moved = 0;
	bool data;

	assert(!task->aborted && !task->live);
	if (!iscsi__conn_up(conn)) {
		iscsi__task_abort(task);
		return;
	}
	data = cmd->data_in_len > 0 && cmd->expect == SCSI_DIR_IN;
	if (data)
		moved = MIN(cmd->data_in_len, cmd->edtl);
	else if (cmd->dir == SCSI_DIR_OUT)
		moved = MIN(cmd->transfer_len, cmd->edtl);
	iscsi__task_unpark(task);
	iscsi__task_unhash(task); /* the tag is the initiator's again */
	iscsi__task_uncount(task);
	task->state = TASK_RESPOND;
	s->responding_count++;
	if (task->r2ts > 0) /* it failed while data was on its way */
		conn->dm->ops->task_done(conn->dm, task->itt);
	response_bhs(task, moved);
	put_be32(task->response.bhs + 24, conn->statsn++);
	task->response_out = true;
	if (!data) {
		conn->dm->ops->send_control(conn->dm, &task->response);
		return;
	}
	task->put_out = true;
	put->itt = task->itt;
	put->stags = &task->stags;
	put->lun = task->lun_wire;
	put->sgl = cmd->data_in;
	put->sgl_offset = 0;
	put->len = moved;
	put->task_offset = 0;
	put->sn = 0;
	put->response = &task->response;
	put->cb = on_put;
	conn->dm->ops->put_data(conn->dm, put);
}

/* ---- instead of executing ---- */

static void end_cmd(struct task *task)
{
	scsi_cmd_end(&task->cmd);
	task->live = false;
	task->cmd.transfer_len = 0;
	task->write_len = 0;
}

/* It has an answer, or was aborted by another nexus: that is on its way. */
static bool answered(const struct task *task)
{
	return !task->live || task->cmd.killed;
}

/*
 * Answer @status instead of executing, if there is no answer yet; the command
 * set lets go of it.
 */
void iscsi__task_give_up(struct task *task, enum scsi_status status)
{
	if (answered(task))
		return;
	task->cmd.status = status;
	task->cmd.sense_len = 0;
	end_cmd(task);
}

/* So too CHECK CONDITION. */
void iscsi__task_fail(struct task *task, unsigned key, unsigned asc,
		      unsigned ascq)
{
	if (answered(task))
		return;
	scsi_cmd_check(&task->cmd, key, asc, ascq);
	end_cmd(task);
}
