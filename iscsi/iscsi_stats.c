/*
 * iscsi_stats: what the room counts, and its health check: logins that are
 * refused, connections beyond the limits.
 */
#include "iscsi/iscsi_int.h"

#include <stdio.h>

#define WATCH_NS (300 * SEC)
#define REFUSED_MANY 10u

struct counter iscsi__sessions = {
	.name = "basalt_iscsi_sessions",
	.help = "sessions now, discovery included",
};
struct counter iscsi__conns = {
	.name = "basalt_iscsi_connections",
	.help = "connections now, logins under way included",
};
struct counter iscsi__logins = {
	.name = "basalt_iscsi_logins_total",
	.help = "logins that reached full feature phase",
};
struct counter iscsi__logins_failed = {
	.name = "basalt_iscsi_logins_failed_total",
	.help = "logins that were refused, for whatever reason",
};
static struct counter logins_auth = {
	.name = "basalt_iscsi_logins_refused_auth_total",
	.help = "logins refused as CHAP failed or was not tried",
};
static struct counter logins_access = {
	.name = "basalt_iscsi_logins_refused_access_total",
	.help = "logins refused as the target does not admit the initiator",
};
static struct counter logins_busy = {
	.name = "basalt_iscsi_logins_refused_busy_total",
	.help = "logins refused for a limit, or for want of memory",
};
struct counter iscsi__commands = {
	.name = "basalt_iscsi_commands_total",
	.help = "SCSI commands taken",
};
struct counter iscsi__read_bytes = {
	.name = "basalt_iscsi_read_bytes_total",
	.help = "bytes of data sent to initiators",
};
struct counter iscsi__written_bytes = {
	.name = "basalt_iscsi_written_bytes_total",
	.help = "bytes of data taken from initiators",
};
struct counter iscsi__tmfs = {
	.name = "basalt_iscsi_task_management_total",
	.help = "task management requests",
};
struct counter iscsi__rejects = {
	.name = "basalt_iscsi_rejects_total",
	.help = "PDUs that were answered with a Reject",
};
struct counter iscsi__conns_refused = {
	.name = "basalt_iscsi_connections_refused_total",
	.help = "connections beyond a limit, closed at once",
};
struct counter iscsi__conns_lost = {
	.name = "basalt_iscsi_connections_lost_total",
	.help = "connections that ended other than by logout",
};
struct counter iscsi__ignored = {
	.name = "basalt_iscsi_pdus_ignored_total",
	.help = "PDUs outside of the command window, or after a logout",
};
struct counter iscsi__discarded = {
	.name = "basalt_iscsi_data_discarded_total",
	.help = "Data-Out PDUs that belong to no task",
};

static struct counter *const all[] = {
	&iscsi__sessions,      &iscsi__conns,	   &iscsi__logins,
	&iscsi__logins_failed, &logins_auth,	   &logins_access,
	&logins_busy,	       &iscsi__commands,   &iscsi__read_bytes,
	&iscsi__written_bytes, &iscsi__tmfs,	   &iscsi__rejects,
	&iscsi__conns_refused, &iscsi__conns_lost, &iscsi__ignored,
	&iscsi__discarded,
};

/* ---- what was refused of late ---- */

/* Two windows: the current one, and the one before it. */
static void turn_windows(struct iscsi *iscsi)
{
	struct iscsi_refused *r = &iscsi->refused;
	uint64_t now = env_now(iscsi->env);

	if (now - r->since_ns < WATCH_NS)
		return;
	if (now - r->since_ns < 2 * WATCH_NS) {
		r->before = r->now;
	} else {
		memset(&r->before, 0, sizeof(r->before));
		r->last[0] = '\0';
	}
	memset(&r->now, 0, sizeof(r->now));
	r->since_ns = now;
}

/* A refused login; a share's goes to the front. */
struct refused {
	struct iscsi *front;
	unsigned status;
	int lacks;
	char who[200];
	struct env_task task;
};

static void refused_note(const struct refused *note)
{
	struct iscsi_refused *r = &note->front->refused;
	const char *why;

	turn_windows(note->front);
	counter_add(&iscsi__logins_failed, 1);
	if (note->status == 0x0201) {
		counter_add(&logins_auth, 1);
		r->now.auth++;
		why = "CHAP failed";
	} else if (note->status == 0x0202 || note->status == 0x0203) {
		counter_add(&logins_access, 1);
		r->now.access++;
		why = note->status == 0x0202 ? "not admitted"
					     : "no such target";
	} else if (note->lacks == -EBUSY) {
		counter_add(&logins_busy, 1);
		r->now.busy++;
		why = "no room";
	} else if (note->lacks == -ENOMEM) {
		counter_add(&logins_busy, 1);
		r->now.memory++;
		why = "no memory";
	} else {
		return; /* its own mistake, or ours that passes */
	}
	r->last_missing = note->status == 0x0203;
	snprintf(r->last, sizeof(r->last), "%s: %s", note->who, why);
}

static void on_refused(struct env_task *task)
{
	struct refused *note = container_of(task, struct refused, task);

	refused_note(note);
	free(note);
}

void iscsi__refused_login(struct iscsi_conn *conn, unsigned status)
{
	const struct login *l = conn->login;
	struct refused note = {
		.front = conn->iscsi->front,
		.status = status,
		.lacks = l->lacks,
	};
	struct refused *sent;

	snprintf(note.who, sizeof(note.who), "%.90s to %.90s", l->initiator,
		 l->target_name[0] != '\0' ? l->target_name : "discovery");
	if (iscsi__is_front(conn->iscsi)) {
		refused_note(&note);
		return;
	}
	sent = malloc(sizeof(*sent));
	if (sent == NULL)
		return;
	*sent = note;
	sent->task.cb = on_refused;
	env_post(note.front->env, &sent->task);
}

void iscsi__refused_conn(struct iscsi *iscsi)
{
	turn_windows(iscsi);
	counter_add(&iscsi__conns_refused, 1);
	iscsi->refused.now.conns++;
}

static void check_logins(struct health_check *check, struct health_result *out)
{
	struct iscsi *iscsi = check->data;
	const struct iscsi_refused *r = &iscsi->refused;
	unsigned conns, auth, access, busy, memory;

	turn_windows(iscsi);
	conns = r->now.conns + r->before.conns;
	auth = r->now.auth + r->before.auth;
	access = r->now.access + r->before.access;
	busy = r->now.busy + r->before.busy;
	memory = r->now.memory + r->before.memory;
	if (conns > 0) {
		out->level = HEALTH_WARN;
		snprintf(
			out->cause, sizeof(out->cause),
			"%u connection%s closed at once of late: more than %u, "
			"or %u unfinished logins from one address",
			conns, conns == 1 ? " was" : "s were",
			iscsi->config.connections_max,
			iscsi->config.logins_per_source);
		snprintf(out->fix, sizeof(out->fix),
			 "The log of room iscsi names the portal; look for a "
			 "host that tries to log in over and over.");
	} else if (busy > 0) {
		out->level = HEALTH_WARN;
		snprintf(out->cause, sizeof(out->cause),
			 "%u login%s found no room of late; %u of %u sessions, "
			 "of which one initiator has no more than are left; "
			 "last: %.110s",
			 busy, busy == 1 ? "" : "s",
			 iscsi->sessions_count + iscsi->guests_count,
			 iscsi->config.sessions_max, r->last);
		snprintf(out->fix, sizeof(out->fix),
			 "basalt session list shows who is logged in; basalt "
			 "session drop ID ends one.");
	} else if (memory > 0) {
		out->level = HEALTH_WARN;
		snprintf(out->cause, sizeof(out->cause),
			 "%u login%s found no memory of late; last: %.190s",
			 memory, memory == 1 ? "" : "s", r->last);
		snprintf(out->fix, sizeof(out->fix),
			 "Free memory on this node; where the log of room iser "
			 "tells of receives, give it more: [memory] arena.");
	} else if (auth + access > 0) {
		out->level = auth + access >= REFUSED_MANY ? HEALTH_WARN
							   : HEALTH_INFO;
		snprintf(
			out->cause, sizeof(out->cause),
			"%u login%s refused of late, %u of them by CHAP; last: "
			"%.190s",
			auth + access, auth + access == 1 ? " was" : "s were",
			auth, r->last);
		snprintf(
			out->fix, sizeof(out->fix), "%s",
			r->last_missing
				? "If it is a host of yours: basalt target "
				  "list shows the names there are; or have it "
				  "forget this one."
				: "If it is a host of yours: basalt target set "
				  "TARGET --allow IQN, or the right CHAP "
				  "secret there.");
	}
}

/* ---- the room's life ---- */

void iscsi__stats_open(struct iscsi *iscsi)
{
	for (unsigned i = 0; i < ARRAY_LEN(all); i++)
		counter_register(all[i]);
	scsi__stats_register();
	iscsi->refused.since_ns = env_now(iscsi->env);
	iscsi->health.name = "iscsi-logins";
	iscsi->health.run = check_logins;
	iscsi->health.data = iscsi;
	health_register(&iscsi->health);
}

void iscsi__stats_close(struct iscsi *iscsi)
{
	health_unregister(&iscsi->health);
}
