/*
 * task: a SCSI command's life in its session (RFC 7143 4.2.5, 11.3-4, 11.7).
 *
 * The happy path of a write: the header comes in and the command set checks the
 * CDB; memory for all of its data is taken; immediate and unsolicited data land
 * in it, R2Ts ask for the rest (task_data.c); with the last byte the command
 * executes, and its answer leaves (task_reply.c).  A read executes at once and
 * its data leaves out of the pages that the object layer filled.
 *
 * Memory is reserved before anything is asked for.  What finds none waits, in
 * order of arrival.  Data that is on its way already can wait only where nothing
 * else of the session has memory: then its socket is not read for a while.  Else
 * memory is taken for that much, the rest waits; where there is not even that the
 * command is answered TASK SET FULL after swallowing it.
 */
#define LOG_ROOM LOG_ISCSI
#include "iscsi/iscsi_int.h"

#define TASK_POOL_MAX 64u

struct task *iscsi__task_find(struct iscsi_session *s, uint32_t itt)
{
	struct task *task;

	LIST_FOREACH (task, &s->buckets[iscsi_itt_bucket(itt)], bucket)
		if (task->itt == itt)
			return task;
	return NULL;
}

/* It waits for the initiator's data, or for memory. */
bool iscsi__task_waits(const struct task *task)
{
	return !task->aborted &&
	       (task->state == TASK_DATA || task->state == TASK_R2T ||
		task->state == TASK_PARKED);
}

/* All others of the unit wait for it. */
static bool is_barrier(const struct task *task)
{
	return task->cmd.attr == SCSI_ORDERED || task->cmd.attr == SCSI_HEAD;
}

/* How long its data is waited for. */
unsigned iscsi__task_data_seconds(const struct task *task)
{
	/* One that was answered already is not in the task set any more. */
	return task->live && scsi_cmd_holds_up(&task->cmd)
		       ? ISCSI_BARRIER_DATA_SECONDS
		       : ISCSI_DATA_SECONDS;
}

/* How long memory for it is. */
unsigned iscsi__task_parked_seconds(const struct task *task)
{
	return MIN(iscsi__task_data_seconds(task), ISCSI_PARKED_SECONDS);
}

/* ---- the end ---- */

void iscsi__task_unhash(struct task *task)
{
	if (!task->hashed)
		return;
	task->hashed = false;
	LIST_REMOVE(task, bucket);
}

/*
 * Who waits for longest; but the oldest command, whose data may have taken its
 * time to come, is what all others may wait for.
 */
static struct task *parked_next(const struct iscsi_session *s)
{
	struct task *oldest = TAILQ_FIRST(&s->tasks);

	return oldest != NULL && oldest->parked ? oldest
						: TAILQ_FIRST(&s->parked);
}

void iscsi__task_unpark(struct task *task)
{
	struct iscsi_session *s = task->session;

	if (!task->parked)
		return;
	/* It may be the one that memory is waited for. */
	if (TAILQ_FIRST(&s->parked) == task || parked_next(s) == task) {
		page_wait_stop(s->iscsi->env->pages, &s->pages);
		iscsi__session_kick(s);
	}
	task->parked = false;
	TAILQ_REMOVE(&s->parked, task, parked_link);
}

void iscsi__task_uncount(struct task *task)
{
	struct iscsi_conn *conn = task->session->conn;

	if (!task->counted)
		return;
	task->counted = false;
	iscsi__in_flight_less(task->session);
	if (task->immediate && conn != NULL)
		conn->immediates--;
}

static struct task *task_alloc(struct iscsi_session *s)
{
	struct task *task = SLIST_FIRST(&s->pool);

	if (task != NULL) {
		SLIST_REMOVE_HEAD(&s->pool, pool_link);
		s->pool_count--;
	} else {
		task = calloc(1, sizeof(*task));
		if (task == NULL)
			return NULL;
	}
	memset(task, 0, offsetof(struct task, session));
	task->session = s;
	return task;
}

static void task_free(struct task *task)
{
	struct iscsi_session *s = task->session;

	if (s->pool_count == TASK_POOL_MAX) {
		free(task);
		return;
	}
	SLIST_INSERT_HEAD(&s->pool, task, pool_link);
	s->pool_count++;
}

void iscsi__task_pool_free(struct iscsi_session *s)
{
	struct task *task;

	while ((task = SLIST_FIRST(&s->pool)) != NULL) {
		SLIST_REMOVE_HEAD(&s->pool, pool_link);
		free(task);
	}
	s->pool_count = 0;
}

/* Nobody refers to it any more: the datamover, the command set, the parser. */
void iscsi__task_maybe_free(struct task *task)
{
	struct iscsi_session *s = task->session;
	bool aborted = task->aborted;

	if (task->live || task->landing || task->r2ts > 0 || task->put_out ||
	    task->response_out)
		return;
	if (!task->aborted && task->state != TASK_RESPOND)
		return;
	/* Since it was aborted, or its answer was made. */
	assert(!task->parked);
	assert(!task->hashed);
	assert(!task->counted);
	TAILQ_REMOVE(&s->tasks, task, link);
	if (--s->tasks_count == 0)
		s->iscsi->busy_count--;
	if (task->aborted)
		s->aborted_count--;
	else
		s->responding_count--;
	s->payload_bytes -= task->payload;
	s->iscsi->payload_bytes -= task->payload;
	sgl_put(task->cmd.data_out);
	task->cmd.data_out = NULL;
	scsi_cmd_end(&task->cmd);
	sgl_put(task->buf);
	task_free(task);
	/* A function may wait for those that were aborted. */
	if (s->ending || s->logout != NULL || aborted ||
	    !TAILQ_EMPTY(&s->parked))
		iscsi__session_kick(s);
}

/* It will not be answered. */
void iscsi__task_abort(struct task *task)
{
	struct iscsi_session *s = task->session;

	if (task->aborted || task->state == TASK_RESPOND)
		return;
	task->aborted = true;
	s->aborted_count++;
	iscsi__task_unhash(task);
	iscsi__task_unpark(task);
	iscsi__task_uncount(task);
	if (iscsi__conn_up(s->conn))
		s->conn->dm->ops->task_done(s->conn->dm, task->itt);
	if (task->live)
		scsi_cmd_abort(&task->cmd);
	iscsi__task_maybe_free(task);
}

/* The PDU that brings its data will not be completed, or is. */
void iscsi__task_landed(struct task *task)
{
	struct iscsi_conn *conn = task->session->conn;

	if (conn != NULL && conn->landing == task)
		conn->landing = NULL;
	task->landing = false;
	iscsi__task_maybe_free(task);
}

/* The command set is done with it. */
static void on_done(struct scsi_cmd *cmd)
{
	struct task *task = container_of(cmd, struct task, cmd);

	task->live = false;
	if (!task->aborted && cmd->aborted) {
		/* Task management of this nexus or another's, without TAS. */
		iscsi__task_abort(task);
		return;
	}
	if (task->aborted) {
		iscsi__task_maybe_free(task);
		return;
	}
	/* Aborted with TAS while its data comes in: that is swallowed first. */
	if (task->landing || !task->final) {
		task->state = TASK_DATA;
		return;
	}
	iscsi__task_respond(task);
}

/* ---- beginning ---- */

/*
 * May the pages that immediate data came in be the first of the task's buffer?
 * They must lie as the log wants them, and the rest must begin with a page.
 */
static bool lies_right(const struct task *task, const struct sgl *sgl)
{
	if (!task->final)
		return false; /* more comes unasked, and has to land, too */
	if (sgl->len_bytes == task->write_len)
		return true; /* there is no rest: dom takes it as it lies */
	if (sgl->len_bytes > task->write_len ||
	    task->cmd.page_offset % PAGE_BYTES != 0)
		return false;
	for (unsigned i = 0; i < sgl->pieces_count; i++)
		if (sgl->pieces[i].offset != 0 ||
		    sgl->pieces[i].len != PAGE_BYTES)
			return false;
	return true;
}

/*
 * task->buf: @len bytes, the first in the pages of @first, which lies right: they
 * take the places of fresh ones.  As sgl_new().
 */
static int buf_extend(struct task *task, const struct sgl *first, size_t len)
{
	struct page_cache *pages = task->session->iscsi->env->pages;
	int rv = sgl_new(pages, PAGE_FRONT, len, 0, &task->buf);

	for (unsigned i = 0; i < first->pieces_count && rv == 0; i++) {
		struct sgl_piece *piece = &task->buf->pieces[i];

		assert(piece->len == first->pieces[i].len);
		page_put(pages, piece->page);
		piece->page = page_get(first->pieces[i].page);
	}
	return rv;
}

/* Bytes of memory that the data of a write takes and does not have yet. */
static size_t memory_wanted(const struct task *task)
{
	size_t len = task->write_len;

	if (len == 0)
		return 0;
	if (task->buf != NULL)
		return len - MIN(len, task->buf->len_bytes);
	/* More than the CDB moves may come; it has to land somewhere. */
	if (task->cmd.edtl > len)
		len = MAX(len,
			  MIN(task->cmd.edtl, task->session->keys.first_burst));
	return len;
}

/*
 * What comes unasked, up to the end of a page: @immediate bytes come with the
 * command, behind which there may be more.
 */
static size_t memory_landing(const struct task *task, uint32_t immediate)
{
	size_t offset = task->cmd.page_offset % PAGE_BYTES;
	size_t end = offset + (task->final ? immediate
					   : task->session->keys.first_burst);

	return MIN(memory_wanted(task), ROUND_UP(end, PAGE_BYTES) - offset);
}

/* Of its session's share: what a write's data takes yet, or a read's will. */
static size_t share_of(const struct task *task)
{
	const struct scsi_cmd *cmd = &task->cmd;

	if (cmd->dir != SCSI_DIR_IN)
		return memory_wanted(task);
	if (cmd->expect != SCSI_DIR_IN) /* to who announces a write none goes */
		return 0;
	return (size_t)MIN(cmd->edtl, cmd->transfer_len);
}

/* Is @bytes no more than what is left, but for @keep pages, divided by @part? */
static bool is_part(const struct iscsi_session *s, size_t bytes, size_t keep,
		    unsigned part)
{
	size_t promised = DIV_UP(s->iscsi->payload_bytes, PAGE_BYTES);
	size_t left = pages_left(s->iscsi->env->pages, PAGE_FRONT, promised);

	return bytes <= (left - MIN(left, keep)) / part * PAGE_BYTES;
}

/*
 * May @s hold @bytes: that part of what is left?  Many may hold theirs for long, as
 * their host hangs and fetches nothing, or sends nothing: the next one always has
 * less, so that there is memory for those that go on.
 */
static bool may_hold(const struct iscsi_session *s, size_t bytes, size_t keep,
		     unsigned part)
{
	return bytes <= ISCSI_SESSION_BYTES_MIN ||
	       is_part(s, bytes, keep, part);
}

/*
 * A parameter list waits for no room: it may be what fences a host off.  A window
 * full of them is no more than any session may hold.
 */
static bool is_little(const struct task *task)
{
	return scsi_cmd_takes_list(&task->cmd) &&
	       share_of(task) <= ISCSI_LIST_LITTLE;
}

/*
 * Is there room for @task in the share?  The oldest one always has it: those that
 * came later, and could not wait, may have taken all, and may wait for it.
 */
static bool share_has(const struct task *task)
{
	const struct iscsi_session *s = task->session;
	size_t wanted = s->payload_bytes + share_of(task);

	if (is_little(task))
		return true;
	return s->payload_bytes == 0 || TAILQ_FIRST(&s->tasks) == task ||
	       (wanted <= ISCSI_SESSION_BYTES_MAX &&
		may_hold(s, wanted, iscsi__unasked_pages(s->iscsi),
			 ISCSI_SESSION_PART));
}

/* And not that of one that waits for it already?  @task takes some. */
static bool has_room(const struct task *task)
{
	const struct iscsi_session *s = task->session;
	const struct task *first = TAILQ_FIRST(&s->parked);

	if (first != NULL && first != task && task != TAILQ_FIRST(&s->tasks) &&
	    !is_little(task) && !share_has(first))
		return false;
	return share_has(task);
}

/* A task's first memory: @len bytes.  @first: see take_memory(). */
static int buf_new(struct task *task, struct sgl *first, size_t len)
{
	if (first != NULL && first->len_bytes == len) {
		task->buf = sgl_get(first);
		return 0;
	}
	if (first != NULL)
		return buf_extend(task, first, len);
	return sgl_new(task->session->iscsi->env->pages, PAGE_FRONT, len,
		       task->cmd.page_offset % PAGE_BYTES, &task->buf);
}

/* @len bytes more, behind what came unasked, which ends with a page. */
static int buf_append(struct task *task, size_t len)
{
	struct page_cache *pages = task->session->iscsi->env->pages;
	struct sgl *part[2] = { task->buf, NULL }, *whole;
	int rv;

	assert((task->cmd.page_offset + task->buf->len_bytes) % PAGE_BYTES ==
	       0);
	rv = sgl_new(pages, PAGE_FRONT, len, 0, &part[1]);
	if (rv < 0)
		return rv;
	whole = sgl_join(pages, part, 2);
	sgl_put(part[1]);
	if (whole == NULL)
		return -ENOMEM;
	sgl_put(part[0]);
	task->buf = whole;
	return 0;
}

/*
 * Less shall come: its window widens again with what finds memory.  Over RDMA next
 * to nothing comes unasked, and can wait.
 */
static void narrow(struct iscsi_session *s)
{
	if (!s->conn->dm->ops->rdma)
		s->window = DIV_UP(s->window, 2u);
}

static int pressed(struct iscsi_session *s, int rv)
{
	if (rv != -EBUSY && rv != -ENOMEM)
		return rv;
	narrow(s);
	return -EBUSY;
}

/*
 * Memory for the data of a write.  0; -EBUSY: not now; -EINVAL: never.  What
 * comes unasked, with the command @pdu and behind it, cannot wait for it, and has
 * it, if there is any: that is no more than the window times FirstBurstLength, nor
 * than is left to all others.  The rest can.  @pdu: NULL if nothing comes so.
 * @first: immediate data that is here and lies right, or NULL.
 */
static int take_memory(struct task *task, const struct dm_pdu *pdu,
		       struct sgl *first)
{
	struct iscsi_session *s = task->session;
	size_t len = memory_wanted(task);
	int rv = -EBUSY;

	if (len == 0)
		return 0;
	if (has_room(task))
		rv = pressed(s, task->buf != NULL ? buf_append(task, len)
						  : buf_new(task, first, len));
	else if (pdu != NULL)
		narrow(s); /* beyond its share each brings some all the same */
	if (rv == -EBUSY && pdu != NULL) {
		len = memory_landing(task, pdu->data_len);
		if (may_hold(s, s->payload_bytes + len, 0, 1))
			rv = buf_new(task, first, len);
		rv = pressed(s, rv);
	}
	if (rv < 0)
		return rv;
	task->placed |= first != NULL;
	task->payload += len;
	s->payload_bytes += len;
	s->iscsi->payload_bytes += len;
	return 0;
}

/*
 * What the header says against what was negotiated (11.3, 13.10-13.14).
 * Returns NULL or what is wrong: then the connection goes.
 */
static const char *check_lengths(const struct iscsi_session *s,
				 const struct dm_pdu *pdu)
{
	uint32_t edtl = get_be32(pdu->bhs + 20);
	bool write = pdu->bhs[1] & 0x20, final = pdu->bhs[1] & ISCSI_FINAL;

	if (pdu->data_len > 0) {
		if (!write)
			return "data with a command that writes nothing";
		if (!s->keys.immediate_data)
			return "immediate data was not agreed upon";
		if (pdu->data_len > edtl)
			return "more data than the command announces";
		if (pdu->data_len > s->keys.first_burst)
			return "immediate data beyond FirstBurstLength";
	}
	if (write && !final && s->keys.initial_r2t)
		return "unsolicited data was not agreed upon";
	return NULL;
}

/* The CDB and all that stands beside it; 0, or -EPROTO: Reject 09. */
static int fill_command(struct task *task, const struct dm_pdu *pdu, bool *bidi)
{
	const uint8_t *bhs = pdu->bhs;
	struct scsi_cmd *cmd = &task->cmd;
	bool read = bhs[1] & 0x40, write = bhs[1] & 0x20;

	cmd->nexus = &task->session->nexus;
	cmd->lun_field = get_be64(bhs + 8);
	memcpy(cmd->cdb, bhs + 32, 16);
	cmd->cdb_len = 16;
	cmd->attr = MIN(bhs[1] & 7u, (unsigned)SCSI_ACA);
	cmd->edtl = get_be32(bhs + 20);
	cmd->expect = write ? SCSI_DIR_OUT : read ? SCSI_DIR_IN : SCSI_DIR_NONE;
	cmd->done = on_done;
	*bidi = read && write;
	task->stags = pdu->stags != NULL ? *pdu->stags : (struct dm_stags){ 0 };
	task->lun_wire = cmd->lun_field;
	task->itt = get_be32(bhs + 16);
	task->immediate = bhs[0] & ISCSI_IMMEDIATE;
	task->final = !write || bhs[1] & ISCSI_FINAL;
	return iscsi__ahs_parse(pdu->ahs, pdu->ahs_len, cmd->cdb, &cmd->cdb_len,
				&(bool){ false });
}

static void link_task(struct task *task)
{
	struct iscsi_session *s = task->session;

	LIST_INSERT_HEAD(&s->buckets[iscsi_itt_bucket(task->itt)], task,
			 bucket);
	task->hashed = true;
	TAILQ_INSERT_TAIL(&s->tasks, task, link);
	if (s->tasks_count++ == 0)
		s->iscsi->busy_count++;
	task->counted = true;
	iscsi__in_flight_more(s);
	if (task->immediate)
		s->conn->immediates++;
	ENTRY_ADD(&s->entry->commands, 1);
	s->last_lun = task->lun_wire;
	counter_add(&iscsi__commands, 1);
}

/*
 * There is no memory for what comes with @task: wait for it, and do not read on?
 * Not if this session has some, as what ends with data that lies behind this would
 * not end; nor if those who have some may have to wait for @task.
 */
static bool put_off(struct task *task)
{
	struct iscsi_session *s = task->session;
	struct dm_conn *dm = s->conn->dm;

	if (env_now(s->iscsi->env) >= dm->later_ns || s->payload_bytes > 0 ||
	    s->pages.queued || is_barrier(task))
		return false;
	dm->later = true;
	page_wait(s->iscsi->env->pages, PAGE_FRONT,
		  DIV_UP(memory_wanted(task), PAGE_BYTES) + 1, &s->pages);
	return true;
}

/* Its first memory, where data comes with @pdu, or behind it; @first: if here. */
static void begin_data(struct task *task, const struct dm_pdu *pdu,
		       struct sgl *first, bool may_wait)
{
	bool coming = pdu->data_len > 0 || !task->final;
	int rv = take_memory(task, coming ? pdu : NULL, first);

	if (rv == -EBUSY && coming) {
		if (!may_wait || !put_off(task))
			iscsi__task_give_up(task, SCSI_TASK_SET_FULL);
	} else if (rv < 0 && rv != -EBUSY) {
		iscsi__task_fail(task, 0x0b, 0x55, 0x03);
	}
}

void iscsi__task_land_again(struct task *task, const struct dm_pdu *pdu)
{
	struct iscsi_session *s = task->session;

	page_wait_stop(s->iscsi->env->pages, &s->pages); /* the time is up */
	begin_data(task, pdu, NULL, true);
}

/*
 * Hand it to the command set, and take memory if data is to come: which lies here,
 * or, @landing, comes when it has a place.
 */
static void begin(struct task *task, const struct dm_pdu *pdu, bool bidi,
		  bool landing)
{
	struct scsi_cmd *cmd = &task->cmd;
	struct sgl *first = NULL;

	task->state = TASK_DATA;
	task->live = scsi_cmd_begin(cmd);
	if (bidi) /* obsolete since SPC-5: said in sense, not by hanging up */
		iscsi__task_fail(task, 5, 0x20, 0);
	if (!task->live || cmd->dir != SCSI_DIR_OUT)
		return;
	if (cmd->expect == SCSI_DIR_OUT)
		task->write_len = (uint32_t)MIN(cmd->edtl, cmd->transfer_len);
	/*
	 * Immediate data may be here already, in pages of its own (iSER; a
	 * command that was held back): those are used.
	 */
	if (pdu->sgl != NULL && lies_right(task, pdu->sgl))
		first = pdu->sgl;
	if (first != NULL && first->len_bytes == task->write_len)
		return; /* and are all: take_data() */
	begin_data(task, pdu, first, landing);
}

/*
 * A task for the SCSI Command @pdu, whose data may still be coming: it lands in
 * task->buf if it is wanted.  NULL: the PDU was rejected, or ended the
 * connection; with @quiet that is left to the next call, when the PDU is whole.
 */
struct task *iscsi__task_new(struct iscsi_session *s, const struct dm_pdu *pdu,
			     bool quiet)
{
	struct iscsi_conn *conn = s->conn;
	uint32_t itt = get_be32(pdu->bhs + 16);
	const char *wrong = check_lengths(s, pdu);
	struct task *task;
	bool bidi;

	if (wrong != NULL) {
		iscsi__conn_end(conn, wrong);
		return NULL;
	}
	if (itt == ISCSI_NO_TAG || iscsi__task_find(s, itt) != NULL) {
		if (!quiet)
			iscsi__reject(conn, pdu->bhs,
				      itt == ISCSI_NO_TAG
					      ? REJECT_INVALID_FIELD
					      : REJECT_TASK_IN_PROGRESS);
		return NULL;
	}
	task = task_alloc(s);
	if (task == NULL) {
		iscsi__conn_end(conn, "no memory for a command");
		return NULL;
	}
	if (fill_command(task, pdu, &bidi) < 0) {
		task_free(task);
		if (!quiet)
			iscsi__reject(conn, pdu->bhs, REJECT_INVALID_FIELD);
		return NULL;
	}
	link_task(task);
	task->since_ns = env_now(s->iscsi->env);
	begin(task, pdu, bidi, quiet);
	return task;
}

/* ---- going on ---- */

static void park(struct task *task)
{
	struct iscsi_session *s = task->session;

	task->state = TASK_PARKED;
	if (!task->parked) {
		task->parked = true;
		TAILQ_INSERT_TAIL(&s->parked, task, parked_link);
	}
	iscsi__session_data_timer(s, ISCSI_BARRIER_DATA_SECONDS);
	/* Room within the session's share comes with the end of a task. */
	if (!s->pages.queued)
		iscsi__session_kick(s);
}

/* One that has waited for memory long enough, or NULL. */
static struct task *parked_late(const struct iscsi_session *s)
{
	uint64_t now = env_now(s->iscsi->env);
	struct task *task;

	TAILQ_FOREACH (task, &s->parked, parked_link)
		if (now - task->since_ns >=
		    iscsi__task_parked_seconds(task) * SEC)
			return task;
	return NULL;
}

/* Let those come again. */
void iscsi__tasks_expire(struct iscsi_session *s)
{
	struct task *task;

	while ((task = parked_late(s)) != NULL) {
		iscsi__task_unpark(task);
		iscsi__task_give_up(task, SCSI_TASK_SET_FULL);
		if (!task->live)
			iscsi__task_respond(task);
		else /* aborted a moment ago: on_done() is on its way */
			task->state = TASK_EXECUTE;
	}
}

/* A read's data will be held until the initiator has fetched it. */
static bool take_room(struct task *task)
{
	struct iscsi_session *s = task->session;
	size_t len;

	if (task->cmd.dir != SCSI_DIR_IN || task->payload > 0)
		return true;
	len = share_of(task);
	if (len > 0 && !has_room(task))
		return false;
	task->payload = len;
	s->payload_bytes += task->payload;
	s->iscsi->payload_bytes += task->payload;
	return true;
}

/*
 * The window follows the memory.  It widens where all of it could bring as much
 * unasked as @task did and find a part of what is left, so that all that are at
 * work have theirs, else it narrows: at once; and it widens slowly, as others may
 * do the same before any of it is seen to be taken.
 */
static void window_follow(const struct task *task)
{
	struct iscsi_session *s = task->session;
	size_t unasked = (size_t)(s->window + 1) * task->unsolicited;
	/* There may be as many on each of the other shards. */
	unsigned busy = s->iscsi->busy_count * s->iscsi->front->shards;

	if (unasked <= ISCSI_UNASKED_LITTLE) {
		s->window_gain = s->window;
	} else if (is_part(s, unasked, 0, MAX(busy, ISCSI_SESSION_PART))) {
		s->window_gain++;
	} else if (!s->conn->dm->ops->rdma) { /* as in narrow() */
		s->window_gain = 0;
		s->window -= s->window > 1;
	}
	if (s->window_gain >= s->window) {
		s->window_gain = 0;
		s->window += s->window < s->window_max;
	}
}

static void execute(struct task *task)
{
	struct iscsi_session *s = task->session;
	struct scsi_cmd *cmd = &task->cmd;

	task->state = TASK_EXECUTE;
	window_follow(task);
	if (task->buf != NULL && task->buf->len_bytes == task->write_len) {
		cmd->data_out = sgl_get(task->buf);
	} else if (task->buf != NULL && task->write_len > 0) {
		cmd->data_out = sgl_slice(task->buf, 0, task->write_len);
		if (cmd->data_out == NULL) {
			iscsi__task_give_up(task, SCSI_BUSY);
			iscsi__task_respond(task);
			return;
		}
	}
	ENTRY_ADD(&s->entry->written_bytes, task->write_len);
	counter_add(&iscsi__written_bytes, task->write_len);
	scsi_cmd_execute(cmd);
}

/*
 * Do what comes next: wait for data, take memory, ask for data, execute, or
 * answer.  Returns false if it was parked.
 */
static bool step(struct task *task)
{
	struct scsi_cmd *cmd = &task->cmd;
	int rv;

	if (!task->live) {
		iscsi__task_respond(task);
		return true;
	}
	if (cmd->killed)
		return true; /* on_done() is on its way */
	if (task->parked)
		cmd->waited_ns =
			env_now(task->session->iscsi->env) - task->since_ns;
	if (cmd->dir != SCSI_DIR_OUT && !take_room(task))
		return false;
	rv = take_memory(task, NULL, NULL);
	if (rv == -EBUSY)
		return false;
	if (rv < 0) {
		iscsi__task_fail(task, 0x0b, 0x55, 0x03);
		iscsi__task_respond(task);
		return true;
	}
	if (task->parked) /* that was no wait for the initiator */
		task->since_ns = env_now(task->session->iscsi->env);
	task->asked = MAX(task->asked, MIN(task->unsolicited, task->write_len));
	if (task->asked == task->write_len && task->r2ts == 0)
		execute(task);
	else
		iscsi__task_ask(task);
	return true;
}

void iscsi__task_go_on(struct task *task)
{
	struct iscsi_session *s = task->session;

	if (task->aborted || task->landing || task->state == TASK_EXECUTE ||
	    task->state == TASK_RESPOND)
		return;
	if (!task->final) {
		task->state = TASK_DATA;
		iscsi__session_data_timer(s, ISCSI_BARRIER_DATA_SECONDS);
		return;
	}
	if (task->parked)
		return; /* its turn comes in iscsi__tasks_unpark() */
	if (!step(task))
		park(task);
}

/* Those that wait for memory or room. */
void iscsi__tasks_unpark(struct iscsi_session *s)
{
	struct page_cache *pages = s->iscsi->env->pages;
	struct task *task;

	while ((task = parked_next(s)) != NULL) {
		size_t len = memory_wanted(task);

		if (!iscsi__conn_up(s->conn) || s->pages.queued)
			return;
		if (!step(task)) {
			/* A task's end brings room; memory is waited for. */
			if (len > 0 && share_has(task))
				page_wait(pages, PAGE_FRONT,
					  DIV_UP(len, PAGE_BYTES) + 1,
					  &s->pages);
			return;
		}
		/* Not by name: it may have gone. */
		if (parked_next(s) == task)
			iscsi__task_unpark(task);
	}
}
