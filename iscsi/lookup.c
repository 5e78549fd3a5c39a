/*
 * lookup: which unit has a name, of whatever target, for a copy between targets.
 *
 * The front knows all targets and whom they admit; whether the unit can be used
 * now, and whether its mode page protects it, is known at its home.  So the
 * question goes from the asker's shard to the front, to the home, and back.
 */
#include "iscsi/iscsi_int.h"
#include "iscsi/scsi_int.h"

#include <stdio.h>

static void answered(struct env_task *task)
{
	struct scsi_lookup *req = container_of(task, struct scsi_lookup, task);

	req->cb(req, req->status);
}

static void answer(struct scsi_lookup *req, int status)
{
	req->status = status;
	req->task.cb = answered;
	env_post(req->asker->env, &req->task);
}

static void at_home(struct env_task *task)
{
	struct scsi_lookup *req = container_of(task, struct scsi_lookup, task);
	const struct scsi_lun *lun;

	TAILQ_FOREACH (lun, scsi__units_near(&req->home->scsi, &req->object),
		       object_link)
		if (!lun->removed && !lun->deleted &&
		    uuid_equal(&lun->oid, &req->object))
			break;
	if (lun == NULL || scsi__sanitize_of(lun) != NULL) {
		answer(req, -ENXIO);
		return;
	}
	req->read_only = req->read_only || lun->swp;
	answer(req, 0);
}

/* Has whoever logged in to @from proved what @to asks for? */
static bool proves(const struct iscsi_target *from,
		   const struct iscsi_target *to)
{
	const struct chap_secret *a = &from->chap, *b = &to->chap;

	return b->user[0] == '\0' ||
	       (strcmp(a->user, b->user) == 0 &&
		a->secret_len == b->secret_len &&
		memcmp(a->secret, b->secret, b->secret_len) == 0);
}

/* Of the units of @t: true, if it is there, with what is known of it here. */
static bool look_at(const struct iscsi_target *t, struct scsi_lookup *req)
{
	uint8_t naa[SCSI_NAA_BYTES];
	const struct target_lun *l;

	TAILQ_FOREACH (l, &t->luns, link) {
		scsi_naa(&l->conf.object, naa);
		if (!l->told || memcmp(naa, req->naa, sizeof(naa)) != 0)
			continue;
		req->object = l->conf.object;
		req->block_bytes = l->conf.block_bytes;
		req->read_only = l->conf.read_only;
		return true;
	}
	return false;
}

/* The first one that shows it so that it may be written, or the first one. */
static const struct iscsi_target *find(struct iscsi *front,
				       struct scsi_lookup *req)
{
	const struct iscsi_target *from =
		iscsi__target_find(front, req->target);
	const struct iscsi_target *t, *found = NULL;
	char initiator[ISCSI_NAME_MAX + 1];
	const char *end = strstr(req->initiator_port, ",i,");
	struct scsi_lookup look = *req;

	if (from == NULL || end == NULL)
		return NULL;
	snprintf(initiator, sizeof(initiator), "%.*s",
		 (int)(end - req->initiator_port), req->initiator_port);
	TAILQ_FOREACH (t, &front->targets, link) {
		if (iscsi__target_moves(t) ||
		    !iscsi__target_admits(t, initiator) || !proves(from, t) ||
		    !look_at(t, &look))
			continue;
		if (found != NULL && look.read_only)
			continue;
		found = t;
		req->object = look.object;
		req->block_bytes = look.block_bytes;
		req->read_only = look.read_only;
		if (!look.read_only)
			break;
	}
	return found;
}

static void at_front(struct env_task *task)
{
	struct scsi_lookup *req = container_of(task, struct scsi_lookup, task);
	struct iscsi *front = req->asker->front;
	const struct iscsi_target *t = front->closing ? NULL : find(front, req);

	if (t == NULL) {
		answer(req, -ENOENT);
		return;
	}
	req->home = t->home == 0 ? front : front->shares[t->home];
	req->task.cb = at_home;
	env_post(req->home->env, &req->task);
}

void iscsi__lookup(struct iscsi *iscsi, struct scsi_lookup *req,
		   scsi_lookup_cb cb)
{
	req->asker = iscsi;
	req->cb = cb;
	req->task.cb = at_front;
	env_post(iscsi->front->env, &req->task);
}
