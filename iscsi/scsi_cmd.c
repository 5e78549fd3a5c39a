/*
 * scsi_cmd: a command's life.  It enters the unit's task set when its CDB is
 * in, is checked in the order of SPC-4, waits for its data and for older
 * commands (SAM-5 8), runs, and leaves with its answer.
 */
#include "iscsi/scsi_int.h"

enum state {
	CMD_ANSWERED, /* by begin; or ended */
	CMD_DATA, /* the session collects its data */
	CMD_READY, /* may run once older commands let it */
	CMD_RUNNING,
	CMD_DONE, /* done() is to come */
};

/* ---- the checks ---- */

/* The unit cannot say what it holds: why, and for how long?  0: it can. */
unsigned scsi__not_ready(const struct scsi_lun *lun)
{
	if (lun->deleted)
		return SENSE_NO_LUN;
	if (lun->object != NULL)
		return 0;
	/*
	 * Later: not ready, the cause is not told.  Not "target port unavailable"
	 * (04/0C), as it is the unit that fails: REPORT TARGET PORT GROUPS would
	 * have to say so of the group, which all nodes' ports are in, and Linux
	 * sends nothing more to any of them.
	 */
	return env_now(lun->target->env) - lun->opening_since_ns < 60 * SEC
		       ? SENSE_BECOMING_READY
		       : SENSE(2, 0x04, 0x00);
}

/* Reservations by their old commands, and persistent ones. */
static bool is_reservation(const struct scsi_cmd *cmd)
{
	switch (cmd->cdb[0]) {
	case 0x16:
	case 0x17:
	case 0x56:
	case 0x57:
	case 0x5e:
	case 0x5f:
		return true;
	default:
		return false;
	}
}

static bool check_ready(struct scsi_cmd *cmd)
{
	unsigned sense = scsi__not_ready(cmd->lun);

	if (sense == 0)
		return true;
	/*
	 * Commands for data hear BUSY, which hosts and hypervisors retry by
	 * themselves: to some, "not ready" in the middle of I/O is an error for
	 * the file system above.  So do those of who fences another: Linux sends
	 * what a program passes through again for BUSY alone.
	 */
	if (sense == SENSE_BECOMING_READY &&
	    (cmd->op->access != DOM_ACCESS_NONE || is_reservation(cmd))) {
		cmd->status = SCSI_BUSY;
		cmd->sense_len = 0;
		return false;
	}
	return scsi__check(cmd, sense);
}

static bool spc2_conflict(struct scsi_cmd *cmd)
{
	const struct dom_reservation *r = dom_reservation(cmd->lun->object);

	if (r->spc2_holder[0] == '\0')
		return false;
	/* PERSISTENT RESERVE IN and OUT, whoever asks (SPC-2 5.5.1). */
	if (cmd->cdb[0] == 0x5e || cmd->cdb[0] == 0x5f)
		return true;
	return !dom_spc2_holds(r, cmd->it->dom.initiator_port,
			       cmd->it->dom.target_port);
}

bool scsi__access(struct scsi_cmd *cmd, enum dom_access access)
{
	if (access != DOM_ACCESS_NONE &&
	    !dom_access_allowed(cmd->lun->object, &cmd->it->dom, access))
		return scsi__conflict(cmd);
	return true;
}

/* Bits of @cdb that @usage does not know, of bytes 1 to 15. */
static bool any_unused(const uint8_t *cdb, const uint8_t *usage)
{
	uint64_t got[2], known[2];

	memcpy(&got[0], cdb + 1, 8);
	memcpy(&got[1], cdb + 8, 8);
	memcpy(&known[0], usage + 1, 8);
	memcpy(&known[1], usage + 8, 8);
	return (got[0] & ~known[0]) != 0 || (got[1] & ~known[1]) != 0;
}

/* Bits that mean nothing must be zero; so must NACA, as NormACA is 0. */
static bool check_reserved(struct scsi_cmd *cmd)
{
	const struct scsi_op *op = cmd->op;
	unsigned group = op->len == 16 ? 14 : op->len == 12 ? 10 : 6;

	if (!any_unused(cmd->cdb, op->usage))
		return true;
	for (unsigned i = 1; i < op->len; i++) {
		uint8_t bad = cmd->cdb[i] & (uint8_t)~op->usage[i];

		if (bad == 0)
			continue;
		if ((op->flags & OP_GROUP) != 0 && i == group)
			bad &= (uint8_t)~0x1f;
		if ((op->flags & OP_RARC) != 0 && i == 1)
			bad &= (uint8_t)~0x04;
		if (bad != 0)
			return scsi__check_field(cmd, i,
						 31 - __builtin_clz(bad));
	}
	return true;
}

bool scsi__writable(struct scsi_cmd *cmd)
{
	if (cmd->lun->read_only)
		return scsi__check(cmd, SENSE(7, 0x27, 0x00));
	if (cmd->lun->swp)
		return scsi__check(cmd, SENSE(7, 0x27, 0x02));
	return true;
}

bool scsi__in_range(struct scsi_cmd *cmd)
{
	uint64_t capacity = scsi__lun_blocks(cmd->lun);

	/*
	 * No blocks right behind the last one is an empty range, not a wrong
	 * one; further out it is refused.
	 */
	if (cmd->lba > capacity || cmd->blocks > capacity - cmd->lba)
		return scsi__check_info(cmd, SENSE_LBA_RANGE,
					MAX(cmd->lba, capacity));
	return true;
}

bool scsi__parse_none(struct scsi_cmd *cmd)
{
	return true;
}

bool scsi__parse_in(struct scsi_cmd *cmd)
{
	cmd->dir = SCSI_DIR_IN;
	return true;
}

/* No such command: of the opcode, or of its service action. */
static bool no_op(struct scsi_cmd *cmd)
{
	if (scsi__op_first(cmd->target->common, cmd->cdb[0]) == NULL)
		return scsi__check(cmd, SENSE_INVALID_OPCODE);
	return scsi__check_field(cmd, 1, 4);
}

/*
 * The initiator offers less than the CDB moves: an overflow is told, and a
 * write does what came (RFC 7143 11.4.5) if that is whole sectors.
 */
static bool check_data_out(struct scsi_cmd *cmd)
{
	uint64_t offered = scsi__out_len(cmd);

	if (cmd->dir != SCSI_DIR_OUT || offered >= cmd->transfer_len ||
	    (cmd->op->flags & OP_EXACT) != 0)
		return true;
	if ((cmd->op->flags & OP_PARTIAL) != 0 && offered % DOM_SECTOR == 0)
		return true;
	scsi__check(cmd, SENSE_SHORT_DATA);
	cmd->op = NULL; /* keeps transfer_len: see scsi_cmd_begin() */
	return false;
}

/* MODE SENSE of caching, control, informational exceptions (SBC-4 4.11.2). */
static bool senses_modes(const struct scsi_cmd *cmd)
{
	unsigned page = cmd->cdb[2] & 0x3f;

	return (cmd->cdb[0] == 0x1a || cmd->cdb[0] == 0x5a) &&
	       cmd->cdb[3] == 0 &&
	       (page == 0x08 || page == 0x0a || page == 0x1c);
}

bool scsi__check_sanitizing(struct scsi_cmd *cmd)
{
	uint16_t progress;

	if (cmd->lun == NULL || (cmd->op->flags & OP_SANITIZE) != 0 ||
	    senses_modes(cmd))
		return true;
	scsi__sanitize_look(cmd->lun);
	if (scsi__sanitize_running(cmd->lun, &progress))
		return scsi__check_progress(cmd, SENSE_SANITIZING, progress);
	if (cmd->cdb[0] != 0x48 && scsi__sanitize_failed(cmd->lun))
		return scsi__check(cmd, SENSE_SANITIZE_FAILED);
	return true;
}

/*
 * Whoever took the unit away, or had it read-only, may show its disk to another
 * host by now: what still waited then must not be done to it.
 */
bool scsi__check_unit(struct scsi_cmd *cmd)
{
	if (cmd->lun == NULL)
		return true;
	if (cmd->lun->removed)
		return scsi__check(cmd, SENSE_NO_LUN);
	if ((cmd->op->flags & OP_WRITE) != 0 && !scsi__writable(cmd))
		return false;
	return scsi__check_sanitize(cmd);
}

/* SPC-4's order: unit, attention, state, reservation, fields, protection. */
static bool check_all(struct scsi_cmd *cmd)
{
	const struct scsi_op *op = scsi__op_find(
		cmd->target->common, cmd->cdb[0], cmd->cdb[1] & 0x1f);
	unsigned flags = op != NULL ? op->flags : 0;
	struct scsi_lun *lun = cmd->lun;
	int ua;

	if (lun == NULL && (flags & OP_NO_LUN) == 0)
		return scsi__check(cmd, SENSE_NO_LUN);
	if (lun != NULL && (flags & OP_NO_UA) == 0) {
		ua = scsi__ua_take(cmd->it);
		if (ua >= 0)
			return scsi__check_ua(cmd, (enum scsi_ua)ua);
	}
	cmd->op = op;
	if (op == NULL)
		return no_op(cmd);
	if (lun != NULL && (flags & OP_NO_OBJECT) == 0 && !check_ready(cmd))
		return false;
	if (lun != NULL && lun->object != NULL) {
		if ((flags & OP_SPC2) == 0 && spc2_conflict(cmd))
			return scsi__conflict(cmd);
		if (!scsi__access(cmd, cmd->op->access))
			return false;
		if (!scsi__check_sanitize(cmd))
			return false;
	}
	if (!check_reserved(cmd) || !op->parse(cmd))
		return false;
	if ((flags & OP_WRITE) != 0 && !scsi__writable(cmd))
		return false;
	return check_data_out(cmd);
}

/* ---- the task set (SAM-5 8.7) ---- */

static bool is_barrier(const struct scsi_cmd *cmd)
{
	return cmd->attr == SCSI_ORDERED || cmd->attr == SCSI_HEAD;
}

/*
 * The command that a sanitize is asked for by may be answered hours later: nobody
 * waits behind it.  What runs meanwhile tells, fences, or is refused.
 */
static bool sanitizing(const struct scsi_lun *lun)
{
	uint16_t progress;

	return !TAILQ_EMPTY(&lun->target->common->sanitizes) &&
	       scsi__sanitize_running(lun, &progress);
}

/* May @cmd run, with those before it in the task set still there? */
static bool may_run(const struct scsi_cmd *cmd)
{
	const struct scsi_lun *lun = cmd->lun;
	const struct scsi_cmd *older;

	if (cmd->attr == SCSI_HEAD || sanitizing(lun))
		return true;
	if (cmd->attr == SCSI_ORDERED)
		return TAILQ_FIRST(&lun->tasks) == cmd;
	if (lun->barriers == 0)
		return true;
	TAILQ_FOREACH (older, &lun->tasks, link) {
		if (older == cmd)
			break;
		if (is_barrier(older))
			return false;
	}
	return true;
}

static void enter(struct scsi_cmd *cmd)
{
	struct scsi_lun *lun = cmd->lun;

	cmd->state = CMD_DATA;
	if (lun == NULL)
		return;
	cmd->it->refs++;
	TAILQ_INSERT_TAIL(&lun->tasks, cmd, link);
	if (is_barrier(cmd))
		lun->barriers++;
}

static void leave(struct scsi_cmd *cmd)
{
	struct scsi_lun *lun = cmd->lun;

	cmd->state = CMD_ANSWERED;
	if (lun == NULL)
		return;
	TAILQ_REMOVE(&lun->tasks, cmd, link);
	if (is_barrier(cmd)) {
		assert(lun->barriers > 0);
		lun->barriers--;
	}
}

/* The host's clock runs since all that is the host's was here. */
static void set_deadline(struct scsi_cmd *cmd)
{
	uint64_t now = env_now(cmd->target->env), waited = cmd->waited_ns;

	if (cmd->ready_ns != 0)
		waited += now - cmd->ready_ns;
	waited = MIN(waited, SCSI_DEADLINE_NS - SCSI_LEAST_NS);
	cmd->io.deadline_ns = now - waited + SCSI_DEADLINE_NS;
	cmd->until_ns =
		MAX(cmd->io.deadline_ns,
		    now - waited + cmd->op->seconds * SEC - SCSI_ANSWER_NS);
}

static void run(struct scsi_cmd *cmd)
{
	cmd->state = CMD_RUNNING;
	cmd->in_execute = true;
	set_deadline(cmd);
	if (scsi__check_unit(cmd))
		cmd->op->execute(cmd);
	else
		scsi__done(cmd);
	cmd->in_execute = false;
}

/* Start what may start now, in one pass over the set. */
void scsi__kick(struct scsi_lun *lun)
{
	bool first = true, barrier = false, any;
	struct scsi_cmd *cmd;

	if (lun->waiting == 0)
		return;
	any = sanitizing(lun);
	TAILQ_FOREACH (cmd, &lun->tasks, link) {
		bool may = any || cmd->attr == SCSI_HEAD ||
			   (cmd->attr == SCSI_ORDERED ? first : !barrier);

		if (cmd->state == CMD_READY && may) {
			assert(lun->waiting > 0);
			lun->waiting--;
			/* From a turn of its own, as it may end at once. */
			cmd->state = CMD_RUNNING;
			env_defer(lun->target->env, &cmd->task);
		}
		barrier = barrier || is_barrier(cmd);
		first = false;
	}
}

/* ---- the end ---- */

/* Runs from a deferred task: a command that may start, or one that is done. */
static void turn(struct env_task *task);

static void finish(struct scsi_cmd *cmd)
{
	struct scsi_target *target = cmd->target;
	struct scsi_it_lun *it = cmd->it;
	struct scsi_lun *lun = cmd->lun;

	assert(cmd->state == CMD_DONE);
	if (cmd->killed) {
		cmd->sense_len = 0;
		cmd->data_in_len = 0;
		cmd->transfer_len = 0;
		cmd->status = SCSI_TASK_ABORTED;
		cmd->aborted = !cmd->told;
	}
	scsi__count(cmd);
	scsi__time_end(cmd);
	target->busy++;
	leave(cmd);
	if (lun != NULL) {
		scsi__kick(lun);
		lun->refs++;
	}
	cmd->done(cmd);
	if (lun != NULL)
		scsi__it_put(it);
	scsi__tmf_check(target->common);
	if (lun != NULL)
		scsi__lun_put(lun);
	target->busy--;
	scsi__target_check(target);
}

static void turn(struct env_task *task)
{
	struct scsi_cmd *cmd = container_of(task, struct scsi_cmd, task);

	if (cmd->state == CMD_DONE) {
		finish(cmd);
		return;
	}
	assert(cmd->state == CMD_RUNNING);
	if (cmd->killed) {
		scsi__done(cmd);
		return;
	}
	run(cmd);
}

void scsi__done(struct scsi_cmd *cmd)
{
	assert(cmd->state != CMD_ANSWERED && cmd->state != CMD_DONE);
	assert(!cmd->io_active);
	if (cmd->status != SCSI_GOOD) {
		cmd->data_in_len = 0;
		cmd->transfer_len = 0;
	}
	cmd->state = CMD_DONE;
	/* Never inside the session's call; a completion of dom is outside. */
	if (cmd->in_execute)
		env_defer(cmd->target->env, &cmd->task);
	else
		finish(cmd);
}

static void done_later(struct scsi_cmd *cmd)
{
	cmd->state = CMD_DONE;
	env_defer(cmd->target->env, &cmd->task);
}

void scsi__reply(struct scsi_cmd *cmd, const void *buf, size_t len,
		 size_t alloc_len)
{
	size_t n = MIN(len, alloc_len);
	int rv = 0;

	cmd->transfer_len = n;
	n = MIN(n, scsi__in_len(cmd));
	if (n > 0)
		rv = sgl_new(cmd->target->env->pages, PAGE_FRONT, n, 0,
			     &cmd->data_in);
	if (rv < 0) {
		scsi__status(cmd, -EBUSY);
	} else if (n > 0) {
		copied_add(COPIED_COMMAND, n);
		sgl_write(cmd->data_in, 0, buf, n);
		cmd->data_in_len = n;
	}
	scsi__done(cmd);
}

const uint8_t *scsi__list(struct scsi_cmd *cmd)
{
	size_t len = cmd->data_out != NULL ? cmd->data_out->len_bytes : 0;

	assert(len >= cmd->transfer_len && cmd->memory == NULL);
	cmd->memory = malloc(cmd->transfer_len + 1);
	if (cmd->memory == NULL) {
		scsi__status(cmd, -ENOMEM);
		scsi__done(cmd);
		return NULL;
	}
	if (cmd->transfer_len > 0) {
		copied_add(COPIED_COMMAND, cmd->transfer_len);
		sgl_read(cmd->data_out, 0, cmd->memory, cmd->transfer_len);
	}
	return cmd->memory;
}

void scsi__io(struct scsi_cmd *cmd, int rv)
{
	if (rv < 0) {
		scsi__status(cmd, rv);
		scsi__done(cmd);
		return;
	}
	cmd->io_active = true;
	if (cmd->killed)
		dom_cancel(&cmd->io);
}

bool scsi__in_time(struct scsi_cmd *cmd)
{
	uint64_t now = env_now(cmd->target->env);

	if (now >= cmd->until_ns) {
		scsi__status(cmd, -ETIMEDOUT);
		return false;
	}
	cmd->io.deadline_ns = MIN(now + SCSI_DEADLINE_NS, cmd->until_ns);
	return true;
}

/* TAS counts as it is now: a reset that does this brings its default back. */
static void mark_killed(struct scsi_cmd *cmd, bool by_other)
{
	cmd->killed = true;
	cmd->told = by_other && cmd->lun != NULL && cmd->lun->tas;
}

struct scsi_cmd *scsi__io_end(struct dom_io *io, int status)
{
	struct scsi_cmd *cmd = container_of(io, struct scsi_cmd, io);

	assert(cmd->io_active);
	cmd->io_active = false;
	if (status == 0 && !cmd->killed)
		return cmd;
	/* Not by us: the owner did, for a PREEMPT AND ABORT (SPC-4 5.13.11). */
	if (status == -ECANCELED && !cmd->killed)
		mark_killed(cmd, true);
	sgl_put(io->sgl);
	io->sgl = NULL;
	scsi__status(cmd, status);
	scsi__done(cmd);
	return NULL;
}

void scsi__kill(struct scsi_cmd *cmd, bool by_other)
{
	if (cmd->state == CMD_ANSWERED || cmd->killed)
		return;
	mark_killed(cmd, by_other);
	switch (cmd->state) {
	case CMD_DATA:
		done_later(cmd);
		break;
	case CMD_READY:
		assert(cmd->lun->waiting > 0);
		cmd->lun->waiting--;
		done_later(cmd);
		break;
	case CMD_RUNNING:
		if (cmd->io_active) {
			dom_cancel(&cmd->io);
		} else if (cmd->cancel != NULL) {
			cmd->cancel(cmd);
			done_later(cmd);
		}
		break;
	default:
		break;
	}
}

/* ---- what the session calls ---- */

static void reset(struct scsi_cmd *cmd)
{
	cmd->target = cmd->nexus->target;
	cmd->dir = SCSI_DIR_NONE;
	cmd->transfer_len = 0;
	cmd->page_offset = 0;
	cmd->data_out = NULL;
	cmd->status = SCSI_GOOD;
	cmd->sense_len = 0;
	cmd->data_in = NULL;
	cmd->data_in_len = 0;
	cmd->aborted = false;
	cmd->lun = NULL;
	cmd->it = NULL;
	cmd->op = NULL;
	cmd->io.nexus = NULL;
	cmd->io.sgl = NULL;
	cmd->task.cb = turn;
	cmd->seq = ++cmd->target->common->seq;
	cmd->since_ns = env_now(cmd->target->env);
	cmd->waited_ns = cmd->ready_ns = 0;
	cmd->state = CMD_ANSWERED;
	cmd->killed = cmd->told = cmd->in_execute = cmd->io_active = false;
	cmd->lba = cmd->blocks = cmd->offset = cmd->left = 0;
	cmd->step = 0;
	cmd->part = NULL;
	cmd->page = NULL;
	cmd->cancel = NULL;
	cmd->memory = NULL;
	cmd->copy = NULL;
}

/* False: answered. */
static bool cmd_begin(struct scsi_cmd *cmd)
{
	reset(cmd);
	/* No command here has an extended CDB. */
	if (cmd->cdb_len > 16 && cmd->cdb[0] != 0x7f)
		return scsi__check_field(cmd, 0, -1);
	cmd->lun = scsi__lun_find(cmd->target, cmd->lun_field);
	if (cmd->lun != NULL) {
		cmd->it = scsi__it_get(cmd->nexus, cmd->lun);
		if (cmd->it == NULL) {
			cmd->status = SCSI_BUSY;
			return false;
		}
		cmd->io.nexus = &cmd->it->dom;
	}
	if (cmd->attr == SCSI_ACA)
		return scsi__check(cmd, SENSE(5, 0x49, 0x00));
	if (!check_all(cmd)) {
		if (cmd->op != NULL) /* nothing was to move after all */
			cmd->transfer_len = 0;
		return false;
	}
	enter(cmd);
	return true;
}

bool scsi_cmd_begin(struct scsi_cmd *cmd)
{
	if (cmd_begin(cmd))
		return true;
	scsi__count(cmd);
	return false;
}

bool scsi_cmd_takes_list(const struct scsi_cmd *cmd)
{
	return cmd->dir == SCSI_DIR_OUT && cmd->blocks == 0;
}

bool scsi_cmd_holds_up(const struct scsi_cmd *cmd)
{
	const struct scsi_cmd *later;

	if (cmd->lun == NULL || cmd->lun->barriers == 0)
		return false;
	if (is_barrier(cmd))
		return true;
	for (later = TAILQ_NEXT(cmd, link); later != NULL;
	     later = TAILQ_NEXT(later, link))
		if (later->attr == SCSI_ORDERED)
			return true;
	return false;
}

void scsi_cmd_execute(struct scsi_cmd *cmd)
{
	if (cmd->state == CMD_DONE)
		return; /* aborted a moment ago: done() is on its way */
	assert(cmd->state == CMD_DATA);
	if (cmd->dir == SCSI_DIR_OUT)
		scsi__time_data(cmd);
	if (cmd->lun != NULL && !may_run(cmd)) {
		cmd->state = CMD_READY;
		cmd->ready_ns = env_now(cmd->target->env);
		cmd->lun->waiting++;
		return;
	}
	run(cmd);
}

void scsi_cmd_abort(struct scsi_cmd *cmd)
{
	scsi__kill(cmd, false);
}

void scsi_cmd_end(struct scsi_cmd *cmd)
{
	struct scsi_target *target = cmd->target;

	if (cmd->state != CMD_ANSWERED) {
		struct scsi_lun *lun = cmd->lun;

		/* Given up while its data was coming in. */
		assert(cmd->state == CMD_DATA);
		scsi__count(cmd);
		leave(cmd);
		if (lun != NULL) {
			lun->refs++;
			scsi__kick(lun);
			scsi__it_put(cmd->it);
			scsi__lun_put(lun);
		}
		target->busy++;
		scsi__tmf_check(target->common);
		target->busy--;
		scsi__target_check(target);
	} else if (cmd->data_in != NULL) {
		scsi__time_sent(cmd);
	}
	sgl_put(cmd->data_in);
	cmd->data_in = NULL;
	sgl_put(cmd->part);
	cmd->part = NULL;
	if (cmd->page != NULL)
		page_put(target->env->pages, cmd->page);
	cmd->page = NULL;
	free(cmd->memory);
	cmd->memory = NULL;
}
