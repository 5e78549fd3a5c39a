/*
 * sessions: all sessions of the room, as node sees them.
 *
 * Each has an entry in the front's list: made with the session and announced to
 * the front, taken back when the session is freed.  Between the two its own
 * shard counts in it, and the front reads.
 */
#define LOG_ROOM LOG_ISCSI
#include "iscsi/iscsi_int.h"

#include <stdio.h>

/* ---- from a session's own shard ---- */

static void on_begin(struct env_task *task)
{
	struct session_entry *e =
		container_of(task, struct session_entry, begin);

	TAILQ_INSERT_TAIL(&e->front->entries, e, link);
}

static void on_end(struct env_task *task)
{
	struct session_entry *e = container_of(task, struct session_entry, end);

	TAILQ_REMOVE(&e->front->entries, e, link);
	if (e->shard != 0)
		e->front->guests_count--;
	free(e);
}

/* On the front, now if this is its shard. */
static void on_front(struct session_entry *e, struct env_task *task)
{
	if (e->shard == 0)
		task->cb(task);
	else
		env_post(e->front->env, task);
}

int iscsi__entry_open(struct iscsi_session *s, const struct iscsi_conn *conn)
{
	struct session_entry *e = calloc(1, sizeof(*e));
	struct iscsi *front = s->iscsi->front;

	if (e == NULL)
		return -ENOMEM;
	e->front = front;
	e->id = atomic_fetch_add(&front->session_id_last, 1) + 1;
	strcpy(e->initiator, s->initiator);
	strcpy(e->alias, s->alias);
	if (s->target != NULL)
		strcpy(e->target, s->target->iqn);
	e->transport = conn->dm->ops->name;
	e->peer = conn->dm->peer;
	e->local = conn->dm->local;
	memcpy(e->isid, s->isid, sizeof(e->isid));
	e->tsih = s->tsih;
	e->tpgt = s->tpgt;
	e->shard = s->iscsi->shard;
	e->discovery = s->discovery;
	e->since_ns = env_now(s->iscsi->env);
	e->begin.cb = on_begin;
	e->end.cb = on_end;
	s->entry = e;
	s->id = e->id;
	on_front(e, &e->begin);
	return 0;
}

void iscsi__entry_close(struct session_entry *e)
{
	on_front(e, &e->end);
}

/* ---- asked on the front ---- */

const struct session_entry *iscsi__entry_of(const struct iscsi_conn *conn)
{
	const struct login *l = conn->login;
	const struct session_entry *e;

	TAILQ_FOREACH (e, &conn->iscsi->entries, link)
		if (!e->discovery && e->tpgt == conn->portal->tpgt &&
		    memcmp(e->isid, l->isid, sizeof(e->isid)) == 0 &&
		    strcmp(e->initiator, l->initiator) == 0 &&
		    strcmp(e->target, l->target_name) == 0)
			return e;
	return NULL;
}

static bool listed(const struct session_entry *e)
{
	return !e->dropped && !atomic_load(&e->ending);
}

static void entry_info(const struct session_entry *e,
		       struct iscsi_session_info *info)
{
	const uint8_t *i = e->isid;

	*info = (struct iscsi_session_info){
		.id = e->id,
		.initiator = e->initiator,
		.alias = e->alias,
		.target = e->target,
		.transport = e->transport,
		.tsih = e->tsih,
		.shard = e->shard,
		.discovery = e->discovery,
		.commands = ENTRY_GET(&e->commands),
		.read_bytes = ENTRY_GET(&e->read_bytes),
		.written_bytes = ENTRY_GET(&e->written_bytes),
		.since_ns = e->since_ns,
		.in_flight = ENTRY_GET(&e->in_flight),
	};
	iscsi__portal_text(NULL, &e->peer, info->peer, sizeof(info->peer));
	iscsi__portal_text(NULL, &e->local, info->local, sizeof(info->local));
	snprintf(info->isid, sizeof(info->isid), "%02x%02x%02x%02x%02x%02x",
		 i[0], i[1], i[2], i[3], i[4], i[5]);
}

void iscsi_session_each(struct iscsi *iscsi,
			void (*cb)(const struct iscsi_session_info *info,
				   void *arg),
			void *arg)
{
	struct iscsi_session_info info;
	struct session_entry *e;

	TAILQ_FOREACH (e, &iscsi->entries, link) {
		if (!listed(e))
			continue;
		entry_info(e, &info);
		cb(&info, arg);
	}
}

static int drop_here(struct iscsi *front, uint64_t id)
{
	struct iscsi_session *s;

	TAILQ_FOREACH (s, &front->sessions, link)
		if (s->id == id && !s->ending) {
			iscsi__session_end(s, "dropped by the administrator");
			return 0;
		}
	return -ENOENT;
}

int iscsi_session_drop(struct iscsi *iscsi, uint64_t id)
{
	struct iscsi_message *m;
	struct session_entry *e;

	TAILQ_FOREACH (e, &iscsi->entries, link)
		if (e->id == id)
			break;
	if (e == NULL || !listed(e))
		return -ENOENT;
	if (e->shard == 0)
		return drop_here(iscsi, id);
	m = iscsi__message_new(iscsi->shares[e->shard], MESSAGE_DROP_SESSION);
	if (m == NULL)
		return -ENOMEM;
	m->id = id;
	iscsi__message_send(m);
	e->dropped = true;
	return 0;
}

static bool has_object(const struct iscsi_target *t, const struct uuid *object)
{
	const struct target_lun *l;

	TAILQ_FOREACH (l, &t->luns, link)
		if (uuid_equal(&l->object->oid, object))
			return true;
	return false;
}

unsigned iscsi_object_sessions(struct iscsi *iscsi, const struct uuid *object)
{
	const struct iscsi_target *t;
	const struct session_entry *e;
	unsigned n = 0;

	TAILQ_FOREACH (e, &iscsi->entries, link) {
		if (e->discovery || !listed(e))
			continue;
		t = iscsi__target_find(iscsi, e->target);
		n += t != NULL && has_object(t, object);
	}
	return n;
}
