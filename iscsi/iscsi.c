/*
 * iscsi: the room's face: opening, draining and closing, and portals.
 */
#define LOG_ROOM LOG_ISCSI
#include "iscsi/iscsi_int.h"

#include <netinet/in.h>
#include <stdio.h>

static void defaults(struct iscsi_config *c)
{
	struct {
		unsigned *field, value;
	} const d[] = {
		{ &c->sessions_max, 1024 },    { &c->connections_max, 2048 },
		{ &c->logins_per_source, 32 }, { &c->login_ms, 15000 },
		{ &c->pdu_ms, 10000 },	       { &c->ping_ms, 30000 },
		{ &c->window, 128 },	       { &c->max_recv_data, 262144 },
		{ &c->max_burst, 1048576 },    { &c->first_burst, 262144 },
	};

	for (unsigned i = 0; i < ARRAY_LEN(d); i++)
		if (*d[i].field == 0)
			*d[i].field = d[i].value;
}

static bool lengths_ok(const struct iscsi_config *c)
{
	return c->max_recv_data >= 512 && c->max_recv_data <= 16777215 &&
	       c->max_burst >= 512 && c->max_burst <= 16777215 &&
	       c->first_burst >= 512 && c->first_burst <= c->max_burst &&
	       c->window <= 4096;
}

static void on_drained(struct env_timer *timer);
static void on_closed(struct env_task *task);

void iscsi__init(struct iscsi *iscsi, const struct iscsi_config *config,
		 struct env *env)
{
	iscsi->env = env;
	iscsi->config = *config;
	defaults(&iscsi->config);
	scsi_common_init(&iscsi->scsi);
	iscsi->scsi.lookup = iscsi__lookup;
	iscsi->scsi.iscsi = iscsi;
	TAILQ_INIT(&iscsi->targets);
	TAILQ_INIT(&iscsi->portals);
	TAILQ_INIT(&iscsi->conns);
	TAILQ_INIT(&iscsi->sessions);
	TAILQ_INIT(&iscsi->entries);
	TAILQ_INIT(&iscsi->objects);
	TAILQ_INIT(&iscsi->objects_idle);
	TAILQ_INIT(&iscsi->untold);
	TAILQ_INIT(&iscsi->messages);
	iscsi->drain.cb = on_drained;
	iscsi->close_task.cb = on_closed;
}

int iscsi_open(const struct iscsi_config *config, struct iscsi **out)
{
	struct iscsi *iscsi = calloc(1, sizeof(*iscsi));
	int rv = -EINVAL;

	if (iscsi == NULL)
		return -ENOMEM;
	iscsi__init(iscsi, config, config->env);
	iscsi->front = iscsi;
	if (lengths_ok(&iscsi->config))
		rv = iscsi__shares_open(iscsi);
	if (rv < 0) {
		free(iscsi);
		return rv;
	}
	iscsi->tsih_last = (uint16_t)env_rand(config->env);
	iscsi__stats_open(iscsi);
	*out = iscsi;
	return 0;
}

/* ---- closing ---- */

static void on_closed(struct env_task *task)
{
	struct iscsi *iscsi = container_of(task, struct iscsi, close_task);
	void (*cb)(void *arg) = iscsi->close_cb;
	void *arg = iscsi->close_arg;
	struct iscsi_portal *p;

	env_timer_stop(iscsi->env, &iscsi->drain);
	if (!iscsi__is_front(iscsi)) {
		iscsi__share_closed(iscsi);
		return;
	}
	assert(TAILQ_EMPTY(&iscsi->entries));
	iscsi__stats_close(iscsi);
	iscsi__homes_close(iscsi);
	free(iscsi->shares);
	while ((p = TAILQ_FIRST(&iscsi->portals)) != NULL) {
		TAILQ_REMOVE(&iscsi->portals, p, link);
		free(p);
	}
	free(iscsi);
	cb(arg);
}

/* Something went: was it the last that closing waits for? */
void iscsi__maybe_closed(struct iscsi *iscsi)
{
	if (!iscsi->closing || iscsi->conns_count > 0 ||
	    iscsi->sessions_count > 0 || iscsi->listeners_count > 0 ||
	    iscsi->away_count > 0 || iscsi->shares_count > 0)
		return;
	iscsi__targets_close(iscsi);
	/* Else the last one to close comes back here. */
	if (iscsi->targets_closing == 0)
		env_defer(iscsi->env, &iscsi->close_task);
}

/* The time to log out is over. */
static void on_drained(struct env_timer *timer)
{
	struct iscsi *iscsi = container_of(timer, struct iscsi, drain);
	struct iscsi_session *s, *next_s;
	struct iscsi_conn *c, *next_c;

	for (s = TAILQ_FIRST(&iscsi->sessions); s != NULL; s = next_s) {
		next_s = TAILQ_NEXT(s, link);
		iscsi__session_end(s, "shutting down");
	}
	for (c = TAILQ_FIRST(&iscsi->conns); c != NULL; c = next_c) {
		next_c = TAILQ_NEXT(c, link);
		iscsi__conn_end(c, "shutting down");
	}
	iscsi__maybe_closed(iscsi);
}

static void on_unlistened(void *arg)
{
	struct iscsi *iscsi = arg;

	iscsi->listeners_count--;
	iscsi__maybe_closed(iscsi);
}

void iscsi__close_begin(struct iscsi *iscsi, unsigned drain_ms)
{
	struct iscsi_session *s, *next;
	struct iscsi_portal *p;

	assert(!iscsi->closing);
	iscsi->closing = true;
	TAILQ_FOREACH (p, &iscsi->portals, link)
		if (p->listener != NULL) {
			dm_tcp_unlisten(p->listener, on_unlistened, iscsi);
			p->listener = NULL;
		}
	for (s = TAILQ_FIRST(&iscsi->sessions); s != NULL; s = next) {
		next = TAILQ_NEXT(s, link);
		if (s->discovery)
			iscsi__session_end(s, "shutting down");
		else
			iscsi__ask_logout(s, DIV_UP(drain_ms, 1000u));
	}
	env_timer_start(iscsi->env, &iscsi->drain, drain_ms * MSEC);
	iscsi__maybe_closed(iscsi);
}

void iscsi_close(struct iscsi *iscsi, unsigned drain_ms, void (*cb)(void *arg),
		 void *arg)
{
	iscsi->close_cb = cb;
	iscsi->close_arg = arg;
	iscsi__shares_close(iscsi, drain_ms);
	iscsi__close_begin(iscsi, drain_ms);
}

/* ---- portals ---- */

struct iscsi_portal *iscsi__portal_find(struct iscsi *iscsi, unsigned number)
{
	struct iscsi_portal *p;

	TAILQ_FOREACH (p, &iscsi->portals, link)
		if (p->number == number)
			return p;
	return NULL;
}

static int portal_new(struct iscsi *iscsi, unsigned number,
		      const struct sockaddr *address, uint16_t tpgt,
		      struct iscsi_portal **out)
{
	struct iscsi_portal *p;

	if (iscsi->closing)
		return -ESHUTDOWN;
	if (number == 0 || number > UINT16_MAX ||
	    (address->sa_family != AF_INET && address->sa_family != AF_INET6))
		return -EINVAL;
	if (iscsi__portal_find(iscsi, number) != NULL)
		return -EEXIST;
	p = calloc(1, sizeof(*p));
	if (p == NULL)
		return -ENOMEM;
	p->iscsi = iscsi;
	p->number = number;
	p->tpgt = tpgt;
	memcpy(&p->address, address,
	       address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
					      : sizeof(struct sockaddr_in));
	address_text(&p->address, true, p->name);
	*out = p;
	return 0;
}

static void portal_add(struct iscsi *iscsi, struct iscsi_portal *p)
{
	TAILQ_INSERT_TAIL(&iscsi->portals, p, link);
	iscsi__targets_ports(iscsi);
	iscsi__portals_tell(iscsi);
}

/* A portal that was declared gets TCP too. */
static int portal_listen_too(struct iscsi_portal *p)
{
	struct sockaddr_storage address = p->address;
	struct iscsi *iscsi = p->iscsi;
	int rv;

	rv = dm_tcp_listen(iscsi, iscsi->env, (struct sockaddr *)&address,
			   p->number, iscsi->config.pdu_ms, &p->address,
			   &p->listener);
	if (rv < 0)
		return rv;
	address_text(&p->address, true, p->name);
	iscsi->listeners_count++;
	iscsi__portals_tell(iscsi); /* its port may be known only now */
	return 0;
}

int iscsi_portal_listen(struct iscsi *iscsi, unsigned portal,
			const struct sockaddr *address, uint16_t tpgt)
{
	struct iscsi_portal *p = iscsi__portal_find(iscsi, portal);
	int rv;

	if (p != NULL && p->listener == NULL && !iscsi->closing)
		return portal_listen_too(p);
	rv = portal_new(iscsi, portal, address, tpgt, &p);
	if (rv < 0)
		return rv;
	rv = dm_tcp_listen(iscsi, iscsi->env, address, portal,
			   iscsi->config.pdu_ms, &p->address, &p->listener);
	if (rv < 0) {
		free(p);
		return rv;
	}
	iscsi->listeners_count++;
	portal_add(iscsi, p);
	return 0;
}

int iscsi_portal_declare(struct iscsi *iscsi, unsigned portal,
			 const struct sockaddr *address, uint16_t tpgt)
{
	struct iscsi_portal *p;
	int rv = portal_new(iscsi, portal, address, tpgt, &p);

	if (rv < 0)
		return rv;
	portal_add(iscsi, p);
	return 0;
}

void iscsi__portal_put(struct iscsi_portal *p)
{
	assert(p->conns > 0);
	if (--p->conns == 0 && p->removed)
		free(p);
}

/* @transport NULL: any. */
void iscsi__portal_end(struct iscsi *iscsi, unsigned number,
		       const char *transport, const char *why)
{
	struct iscsi_conn *c, *next;

	for (c = TAILQ_FIRST(&iscsi->conns); c != NULL; c = next) {
		/* Ending one defers its last steps: the next one stays. */
		next = TAILQ_NEXT(c, link);
		if (c->portal->number == number && c->dm != NULL &&
		    (transport == NULL ||
		     strcmp(c->dm->ops->name, transport) == 0))
			iscsi__conn_end(c, why);
	}
}

/* On the shares first: there may be no memory to tell them. */
static int portal_end(struct iscsi_portal *p, const char *transport,
		      const char *why)
{
	int rv = iscsi__shares_drop_portal(p->iscsi, p->number, transport, why);

	if (rv < 0)
		return rv;
	iscsi__portal_end(p->iscsi, p->number, transport, why);
	return 0;
}

int iscsi_portal_drop(struct iscsi *iscsi, unsigned portal,
		      const char *transport)
{
	struct iscsi_portal *p = iscsi__portal_find(iscsi, portal);

	if (p == NULL)
		return -ENOENT;
	return portal_end(p, transport, "its portal's transport was changed");
}

int iscsi_portal_unlisten(struct iscsi *iscsi, unsigned portal)
{
	struct iscsi_portal *p = iscsi__portal_find(iscsi, portal);
	int rv;

	if (p == NULL || p->listener == NULL)
		return -ENOENT;
	rv = iscsi_portal_drop(iscsi, portal, "tcp");
	if (rv < 0)
		return rv;
	dm_tcp_unlisten(p->listener, on_unlistened, iscsi);
	p->listener = NULL;
	return 0;
}

int iscsi_portal_remove(struct iscsi *iscsi, unsigned portal)
{
	struct iscsi_portal *p = iscsi__portal_find(iscsi, portal);
	int rv;

	if (p == NULL)
		return -ENOENT;
	rv = portal_end(p, NULL, "its portal was removed");
	if (rv < 0)
		return rv;
	TAILQ_REMOVE(&iscsi->portals, p, link);
	p->removed = true;
	p->conns++; /* until nothing here needs it */
	if (p->listener != NULL)
		dm_tcp_unlisten(p->listener, on_unlistened, iscsi);
	p->listener = NULL;
	iscsi__targets_ports(iscsi);
	iscsi__portals_tell(iscsi);
	iscsi__portal_put(p);
	return 0;
}

int iscsi_portal_address(struct iscsi *iscsi, unsigned portal,
			 struct sockaddr_storage *out)
{
	struct iscsi_portal *p = iscsi__portal_find(iscsi, portal);

	if (p == NULL)
		return -ENOENT;
	*out = p->address;
	return 0;
}
