/*
 * scsi_tmf: task management functions (SAM-5 7; RFC 7143 11.5).  Concerned are
 * the commands that arrived before the function.  It is answered when all of
 * them have left their task sets: none can change the medium any more.
 *
 * Units of several targets that show one object are one logical unit with one
 * task set: what ends the tasks of others ends them in all of those.
 */
#define LOG_ROOM LOG_ISCSI
#include "base/log.h"
#include "iscsi/scsi_int.h"

/* Besides enum scsi_tmf: what PREEMPT AND ABORT does to tasks. */
#define TMF_PREEMPT 100
#define RELEASE_RETRY_NS (10 * MSEC)
#define RELEASE_NS_MAX (20 * SEC)

enum {
	TMF_COMPLETE = 0,
	TMF_NO_LUN = 2,
	TMF_NOT_SUPPORTED = 5,
	TMF_REJECTED = 255, /* not all of it was done */
};

static bool covers_target(enum scsi_tmf function)
{
	return function == SCSI_TARGET_WARM_RESET ||
	       function == SCSI_TARGET_COLD_RESET ||
	       function == SCSI_IT_NEXUS_RESET;
}

static bool own_only(enum scsi_tmf function)
{
	return function == SCSI_ABORT_TASK_SET ||
	       function == SCSI_IT_NEXUS_RESET;
}

static bool covers(const struct scsi_tmf_req *req, const struct scsi_lun *lun)
{
	return covers_target(req->function) ||
	       scsi__lun_decode(req->lun_field) == (int)lun->number;
}

static bool concerns(const struct scsi_tmf_req *req, const struct scsi_cmd *cmd)
{
	if ((int)req->function == TMF_PREEMPT)
		return cmd->seq < req->seq && scsi__pr_hits(req->data, cmd);
	return cmd->seq < req->seq &&
	       (!own_only(req->function) || cmd->nexus == req->nexus);
}

/* All that it concerns were killed by it, or before. */
static bool tasks_left_in(const struct scsi_tmf_req *req,
			  const struct scsi_lun *lun)
{
	const struct scsi_cmd *cmd;

	TAILQ_FOREACH (cmd, &lun->tasks, link)
		if (cmd->killed && concerns(req, cmd))
			return true;
	return false;
}

static bool tasks_left(const struct scsi_tmf_req *req)
{
	const struct scsi_lun *lun;

	TAILQ_FOREACH (lun, &req->target->all, link)
		if (covers(req, lun) && tasks_left_in(req, lun))
			return true;
	if (own_only(req->function))
		return false;
	/*
	 * Elsewhere.  Where a later function was, this one may not have been:
	 * what it waits for then was killed, too, and soon ends.
	 */
	TAILQ_FOREACH (lun, &req->target->common->units, open_link)
		if (lun->tmf_seq >= req->seq && tasks_left_in(req, lun))
			return true;
	return false;
}

static void answered(struct env_task *task)
{
	struct scsi_tmf_req *req =
		container_of(task, struct scsi_tmf_req, task);
	struct scsi_target *target = req->target;

	target->busy--;
	req->cb(req, req->response);
	scsi__target_check(target);
}

static void answer(struct scsi_tmf_req *req, unsigned response)
{
	req->response = response;
	env_defer(req->target->env, &req->task);
}

static void check_one(struct scsi_tmf_req *req)
{
	if (!req->linked || req->waiting > 0 || tasks_left(req))
		return;
	TAILQ_REMOVE(&req->target->common->tmfs, req, link);
	req->linked = false;
	answer(req, req->response);
}

void scsi__tmf_check(struct scsi_common *common)
{
	struct scsi_tmf_req *req, *next;

	for (req = TAILQ_FIRST(&common->tmfs); req != NULL; req = next) {
		next = TAILQ_NEXT(req, link);
		check_one(req);
	}
}

/* An SPC-2 reservation that a reset drops. */
struct release {
	struct dom_io io;
	struct dom_pr pr;
	struct scsi_lun *lun;
	struct scsi_it_lun *it; /* if that holds it; NULL: whoever does */
	struct scsi_tmf_req *req;
	struct env_timer again;
	uint64_t since_ns;
};

/* None is left of those that were asked for before. */
static void settle(struct scsi_lun *lun)
{
	struct scsi_lun *unit;
	struct scsi_it_lun *it;

	SCSI_UNITS_FOREACH (unit, lun)
		TAILQ_FOREACH (it, &unit->its, link)
			scsi__it_settle(it);
}

static void release_end(struct release *release, int status)
{
	struct scsi_tmf_req *req = release->req;
	struct scsi_lun *lun = release->lun;
	struct scsi_it_lun *it = release->it;
	struct scsi_target *target = lun->target;

	if (status < 0 && status != -ENOENT) { /* that goes with its object */
		log_warn("unit %s: reset: RESERVE not released: %s", lun->name,
			 err_text(status));
		req->response = TMF_REJECTED;
	}
	if (status == 0)
		settle(lun);
	target->busy++;
	free(release);
	req->waiting--;
	if (it != NULL)
		scsi__it_put(it);
	scsi__lun_put(lun);
	check_one(req);
	target->busy--;
	scsi__target_check(target);
}

/* Its queue may be full of what the reset is about to end. */
static void release_over(struct release *release, int status)
{
	struct env *env = release->lun->target->env;

	if (status == -EBUSY &&
	    env_now(env) - release->since_ns < RELEASE_NS_MAX)
		env_timer_start(env, &release->again, RELEASE_RETRY_NS);
	else
		release_end(release, status);
}

static void released(struct dom_io *io, int status)
{
	release_over(container_of(io, struct release, io), status);
}

static void release_try(struct release *release)
{
	int rv = dom_reserve(release->lun->object, &release->io, &release->pr,
			     released);

	if (rv < 0)
		release_over(release, rv);
}

static void release_again(struct env_timer *timer)
{
	release_try(container_of(timer, struct release, again));
}

/*
 * Is there one, or may a RESERVE take effect yet?  Where none was asked for nobody
 * waits for dom, which may not be able to answer.
 */
static bool reserved(const struct scsi_lun *lun)
{
	const struct scsi_lun *unit;
	const struct scsi_it_lun *it;

	SCSI_UNITS_FOREACH (unit, lun)
		TAILQ_FOREACH (it, &unit->its, link)
			if (it->reserves)
				return true;
	return dom_reservation(lun->object)->spc2_holder[0] != '\0';
}

/*
 * A unit of @lun's object by which it can be asked, or NULL: that @lun itself is not
 * open yet does not make its reset another one.
 */
static struct scsi_lun *open_unit(struct scsi_lun *lun)
{
	struct scsi_lun *unit;

	if (lun->object != NULL)
		return lun;
	SCSI_UNITS_FOREACH (unit, lun)
		return unit;
	return NULL;
}

/* That of @it, or (NULL) whoever holds it, behind what dom has begun. */
static void release_spc2(struct scsi_tmf_req *req, struct scsi_lun *lun,
			 struct scsi_it_lun *it)
{
	struct release *release;

	if (it != NULL ? !scsi__it_reserved(it) : !reserved(lun))
		return;
	release = calloc(1, sizeof(*release));
	if (release == NULL) { /* the rest of the reset goes on */
		req->response = TMF_REJECTED;
		return;
	}
	release->pr.action = DOM_SPC2_RESET;
	release->lun = lun;
	release->req = req;
	release->it = it;
	release->io.nexus = it != NULL ? &it->dom : NULL;
	release->again.cb = release_again;
	release->since_ns = env_now(lun->target->env);
	req->waiting++;
	lun->refs++;
	if (it != NULL)
		it->refs++;
	release_try(release);
}

/* SAM-5 7.7: the unit as at power on, but for persistent reservations. */
static void reset_unit(struct scsi_tmf_req *req, struct scsi_lun *lun)
{
	lun->d_sense = false;
	lun->swp = false;
	lun->tas = true;
	scsi__ua_set_all(lun,
			 req->function == SCSI_LUN_RESET ? UA_DEVICE_RESET
							 : UA_BUS_RESET,
			 NULL);
}

static void nexus_lost(struct scsi_tmf_req *req, struct scsi_lun *lun)
{
	struct scsi_it_lun *it = scsi__it_find(req->nexus, lun);

	if (it == NULL)
		return;
	scsi__ua_set(it, UA_NEXUS_LOSS);
	release_spc2(req, lun, it);
}

static void kill_tasks(struct scsi_tmf_req *req, struct scsi_lun *lun)
{
	struct scsi_cmd *cmd;

	/* Killing only marks and defers: the list stays as it is. */
	TAILQ_FOREACH (cmd, &lun->tasks, link) {
		/* What was killed before was not cleared by this. */
		if (!concerns(req, cmd) || cmd->killed)
			continue;
		/* With TAS it hears of it by the status (SAM-5 5.14). */
		if (req->function == SCSI_CLEAR_TASK_SET &&
		    cmd->nexus != req->nexus && !lun->tas)
			scsi__ua_set(cmd->it, UA_CLEARED);
		scsi__kill(cmd, cmd->nexus != req->nexus);
	}
}

static bool resets(enum scsi_tmf function)
{
	return function == SCSI_LUN_RESET ||
	       function == SCSI_TARGET_WARM_RESET ||
	       function == SCSI_TARGET_COLD_RESET;
}

/* @lun's part of it, and that of the units which are the same one. */
static void apply(struct scsi_tmf_req *req, struct scsi_lun *lun)
{
	struct scsi_lun *unit;

	kill_tasks(req, lun);
	/* What was preempted by way of it was so at all units of the object. */
	if (lun->removed && (int)req->function != TMF_PREEMPT)
		return;
	if (req->function == SCSI_IT_NEXUS_RESET)
		nexus_lost(req, lun);
	if (own_only(req->function))
		return;
	SCSI_UNITS_FOREACH (unit, lun) {
		unit->tmf_seq = MAX(unit->tmf_seq, req->seq);
		if (unit != lun)
			kill_tasks(req, unit);
		if (unit != lun && resets(req->function))
			reset_unit(req, unit);
	}
	if (resets(req->function)) {
		reset_unit(req, lun);
		unit = open_unit(lun);
		if (unit != NULL)
			release_spc2(req, unit, NULL);
	}
}

static void begin(struct scsi_tmf_req *req, struct scsi_target *target)
{
	memset(&req->task, 0, sizeof(req->task));
	req->task.cb = answered;
	req->target = target;
	req->waiting = 0;
	req->response = TMF_COMPLETE;
	req->linked = false;
	target->busy++; /* until it is answered */
}

static void link_req(struct scsi_tmf_req *req)
{
	TAILQ_INSERT_TAIL(&req->target->common->tmfs, req, link);
	req->linked = true;
}

void scsi_tmf(struct scsi_tmf_req *req)
{
	struct scsi_target *target = req->nexus->target;
	struct scsi_lun *lun;

	begin(req, target);
	req->seq = ++target->common->seq;
	switch (req->function) {
	case SCSI_ABORT_TASK_SET:
	case SCSI_CLEAR_TASK_SET:
	case SCSI_LUN_RESET:
		if (scsi__lun_find(target, req->lun_field) == NULL) {
			answer(req, TMF_NO_LUN);
			return;
		}
		break;
	case SCSI_TARGET_WARM_RESET:
	case SCSI_TARGET_COLD_RESET:
	case SCSI_IT_NEXUS_RESET:
		break;
	default: /* no ACA; ABORT TASK is the session's */
		answer(req, TMF_NOT_SUPPORTED);
		return;
	}

	link_req(req);
	req->waiting++; /* while units are walked */
	TAILQ_FOREACH (lun, &target->all, link)
		if (covers(req, lun))
			apply(req, lun);
	req->waiting--;
	check_one(req);
}

void scsi__tmf_preempt(struct scsi_tmf_req *req, struct scsi_cmd *cmd)
{
	begin(req, cmd->target);
	req->function = (enum scsi_tmf)TMF_PREEMPT;
	req->lun_field = cmd->lun_field;
	req->nexus = cmd->nexus;
	req->seq = cmd->seq;
	link_req(req);
	apply(req, cmd->lun);
	check_one(req);
}
