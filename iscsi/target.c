/*
 * target: what may be logged in to, by whom, and its units.
 *
 * The front's table is pushed by node from the directory; the table of a share
 * has the targets that have their home there, with a copy of who may log in.
 * A target that is taken away leaves the table at once; its sessions are ended,
 * and it is freed when the last of them has let go of its units.
 */
#define LOG_ROOM LOG_ISCSI
#include "iscsi/iscsi_int.h"

#include <stdio.h>

static struct iscsi_target **bucket(struct iscsi *iscsi, const char *iqn)
{
	return &iscsi->targets_by_iqn[text_hash(iqn) % ISCSI_BUCKETS];
}

struct iscsi_target *iscsi__target_find(struct iscsi *iscsi, const char *iqn)
{
	struct iscsi_target *t = *bucket(iscsi, iqn);

	while (t != NULL && strcmp(t->iqn, iqn) != 0)
		t = t->chain;
	return t;
}

static void target_link(struct iscsi_target *t)
{
	struct iscsi_target **place = bucket(t->iscsi, t->iqn);

	t->seq = ++t->iscsi->targets_seq;
	TAILQ_INSERT_TAIL(&t->iscsi->targets, t, link);
	t->chain = *place;
	*place = t;
}

static void target_unlink(struct iscsi_target *t)
{
	struct iscsi_target **place = bucket(t->iscsi, t->iqn);

	while (*place != t)
		place = &(*place)->chain;
	*place = t->chain;
	TAILQ_REMOVE(&t->iscsi->targets, t, link);
}

/*
 * Nobody is let in without being named, "any", or a CHAP secret that stands
 * for a name.
 */
bool iscsi__target_admits(const struct iscsi_target *t, const char *initiator)
{
	for (unsigned i = 0; i < t->allow_count; i++)
		if (strcmp(t->allow[i], "any") == 0 ||
		    strcmp(t->allow[i], initiator) == 0)
			return true;
	return t->allow_count == 0 && t->chap.user[0] != '\0';
}

static void allow_free(char **allow, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		free(allow[i]);
	free(allow);
}

/* Its memory; it is in no table and has no units. */
static void discard(struct iscsi_target *t)
{
	assert(t->scsi == NULL);
	assert(TAILQ_EMPTY(&t->parting));
	assert(!t->untold);
	assert(t->allow != NULL || t->allow_count == 0);
	allow_free(t->allow, t->allow_count);
	explicit_bzero(&t->chap, sizeof(t->chap));
	explicit_bzero(&t->mutual, sizeof(t->mutual));
	free(t);
}

static void gone(struct iscsi_target *t)
{
	struct iscsi_message *goodbye = t->goodbye;

	if (goodbye != NULL && !iscsi__is_front(t->iscsi))
		iscsi__message_back(goodbye);
	else
		free(goodbye);
	discard(t);
}

static void on_units_closed(void *arg)
{
	struct iscsi_target *t = arg;
	struct iscsi *iscsi = t->iscsi;

	iscsi->targets_closing--;
	t->closing = false;
	if (iscsi__is_front(iscsi))
		iscsi__home_left(t);
	else
		gone(t);
	iscsi__maybe_closed(iscsi);
}

/* The last session of it is gone, or it was removed, or is to leave. */
void iscsi__target_put(struct iscsi_target *t)
{
	struct scsi_target *scsi = t->scsi;

	if (t->sessions_count > 0 || t->closing ||
	    (!t->removed && t->place != TARGET_LEAVING))
		return;
	if (scsi == NULL) {
		assert(t->removed);
		gone(t);
		return;
	}
	t->scsi = NULL;
	t->closing = true;
	t->iscsi->targets_closing++;
	scsi_target_close(scsi, on_units_closed, t);
}

/* End sessions of @t: all, or those that it does not admit any more. */
static void end_sessions(struct iscsi_target *t, bool all, const char *why)
{
	struct iscsi *iscsi = t->iscsi;
	struct iscsi_session *s, *next;

	for (s = TAILQ_FIRST(&iscsi->sessions); s != NULL; s = next) {
		next = TAILQ_NEXT(s, link);
		if (s->target == t &&
		    (all || !iscsi__target_admits(t, s->initiator)))
			iscsi__session_end(s, why);
	}
}

void iscsi__target_end_sessions(struct iscsi_target *t, const char *why)
{
	end_sessions(t, true, why);
}

/* Logins under way may have proved a secret that is none any more. */
static void end_logins(const struct iscsi_target *t, const char *why)
{
	struct iscsi_conn *c, *next;

	for (c = TAILQ_FIRST(&t->iscsi->conns); c != NULL; c = next) {
		/* Ending one defers its last steps: the next one stays. */
		next = TAILQ_NEXT(c, link);
		if (c->login != NULL && c->login->auth_needed &&
		    strcmp(c->login->target_name, t->iqn) == 0)
			iscsi__conn_end(c, why);
	}
}

/* A cold reset: every session goes; @last once its answer has left. */
void iscsi__target_reset(struct iscsi_target *t,
			 const struct iscsi_session *last)
{
	struct iscsi_session *s, *next;

	for (s = TAILQ_FIRST(&t->iscsi->sessions); s != NULL; s = next) {
		next = TAILQ_NEXT(s, link);
		if (s->target == t && s != last)
			iscsi__session_end(s, "the target was reset");
	}
}

static int secret_set(struct chap_secret *out, const char *user,
		      const uint8_t *secret, unsigned len)
{
	if (user == NULL || user[0] == '\0')
		return 0;
	if (strlen(user) > ISCSI_NAME_MAX || secret == NULL ||
	    len < ISCSI_SECRET_MIN || len > ISCSI_SECRET_MAX)
		return -EINVAL;
	strcpy(out->user, user);
	memcpy(out->secret, secret, len);
	out->secret_len = len;
	return 0;
}

static int allow_copy(const struct iscsi_target_conf *conf, char ***out)
{
	char **allow, name[ISCSI_NAME_MAX + 1];

	*out = NULL;
	if (conf->allow_count > ISCSI_ALLOW_MAX)
		return -EINVAL;
	if (conf->allow_count == 0)
		return 0;
	allow = calloc(conf->allow_count, sizeof(*allow));
	if (allow == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < conf->allow_count; i++) {
		int rv = 0;

		if (strcmp(conf->allow[i], "any") == 0)
			strcpy(name, "any");
		else
			rv = iscsi__name_parse(conf->allow[i], name);
		if (rv == 0)
			allow[i] = strdup(name);
		if (allow[i] == NULL) {
			allow_free(allow, i);
			return rv < 0 ? rv : -ENOMEM;
		}
	}
	*out = allow;
	return 0;
}

static bool secret_equal(const struct chap_secret *a,
			 const struct chap_secret *b)
{
	return strcmp(a->user, b->user) == 0 &&
	       a->secret_len == b->secret_len &&
	       memcmp(a->secret, b->secret, a->secret_len) == 0;
}

int iscsi__target_new(struct iscsi *iscsi, const struct iscsi_target_conf *conf,
		      struct iscsi_target **out)
{
	struct iscsi_target *t = calloc(1, sizeof(*t));
	int rv = -EINVAL;

	if (t == NULL)
		return -ENOMEM;
	t->iscsi = iscsi;
	TAILQ_INIT(&t->luns);
	TAILQ_INIT(&t->parting);
	if (iscsi__name_parse(conf->iqn, t->iqn) < 0 ||
	    secret_set(&t->chap, conf->chap_user, conf->chap_secret,
		       conf->chap_secret_len) < 0 ||
	    secret_set(&t->mutual, conf->mutual_user, conf->mutual_secret,
		       conf->mutual_secret_len) < 0)
		goto err;
	/* One secret both ways would let a reflected answer pass (9.2.1). */
	if (t->mutual.user[0] != '\0' &&
	    (t->chap.user[0] == '\0' ||
	     (t->mutual.secret_len == t->chap.secret_len &&
	      memcmp(t->mutual.secret, t->chap.secret, t->chap.secret_len) ==
		      0)))
		goto err;
	rv = allow_copy(conf, &t->allow);
	if (rv < 0)
		goto err;
	t->allow_count = conf->allow_count;
	snprintf(t->alias, sizeof(t->alias), "%s",
		 conf->alias != NULL ? conf->alias : "");
	*out = t;
	return 0;

err:
	discard(t);
	return rv;
}

int iscsi__target_copy(const struct iscsi_target *t, struct iscsi *share,
		       bool units, struct iscsi_target **out)
{
	struct iscsi_target_conf conf = {
		.iqn = t->iqn,
		.alias = t->alias,
		.allow = (const char *const *)t->allow,
		.allow_count = t->allow_count,
		.chap_user = t->chap.user,
		.chap_secret = t->chap.secret,
		.chap_secret_len = t->chap.secret_len,
		.mutual_user = t->mutual.user,
		.mutual_secret = t->mutual.secret,
		.mutual_secret_len = t->mutual.secret_len,
	};
	struct iscsi_target *copy;
	int rv = iscsi__target_new(share, &conf, &copy);

	if (rv < 0)
		return rv;
	if (units)
		rv = scsi_target_open(share->env,
				      iscsi__dom(share->front, share->shard),
				      &share->scsi, t->iqn, &copy->scsi);
	if (rv < 0) {
		discard(copy);
		return rv;
	}
	*out = copy;
	return 0;
}

static void access_swap(struct iscsi_target *t, struct iscsi_target *with)
{
	struct iscsi_target was = *t;

	t->allow = with->allow;
	t->allow_count = with->allow_count;
	t->chap = with->chap;
	t->mutual = with->mutual;
	memcpy(t->alias, with->alias, sizeof(t->alias));
	with->allow = was.allow;
	with->allow_count = was.allow_count;
	explicit_bzero(&was, sizeof(was));
}

void iscsi__target_take(struct iscsi *iscsi, struct iscsi_target *t)
{
	struct iscsi_target *old = iscsi__target_find(iscsi, t->iqn);
	bool rekeyed;

	if (old == NULL) {
		assert(t->scsi != NULL);
		target_link(t);
		iscsi__target_ports(t);
		return;
	}
	rekeyed =
		t->chap.user[0] != '\0' && !secret_equal(&old->chap, &t->chap);
	access_swap(old, t);
	discard(t);
	end_sessions(old, rekeyed, "access to the target was changed");
	if (rekeyed)
		end_logins(old, "access to the target was changed");
}

/* The same for its home, if that is a share: 0 or -ENOMEM. */
static int tell_home(const struct iscsi_target *record,
		     const struct iscsi_target *fresh)
{
	struct iscsi_message *m;
	struct iscsi *share;
	int rv;

	if (record->place != TARGET_PLACED || record->home == 0)
		return 0;
	share = record->iscsi->shares[record->home];
	m = iscsi__message_new(share, MESSAGE_TARGET);
	if (m == NULL)
		return -ENOMEM;
	rv = iscsi__target_copy(fresh, share, false, &m->target);
	if (rv < 0) {
		free(m);
		return rv;
	}
	iscsi__message_send(m);
	return 0;
}

int iscsi_target_set(struct iscsi *iscsi, const struct iscsi_target_conf *conf)
{
	struct iscsi_target *fresh, *record;
	int rv;

	if (iscsi->closing)
		return -ESHUTDOWN;
	rv = iscsi__target_new(iscsi, conf, &fresh);
	if (rv < 0)
		return rv;
	record = iscsi__target_find(iscsi, fresh->iqn);
	if (record == NULL)
		rv = scsi_target_open(iscsi->env, iscsi__dom(iscsi, 0),
				      &iscsi->scsi, fresh->iqn, &fresh->scsi);
	else
		rv = tell_home(record, fresh);
	if (rv < 0) {
		discard(fresh);
		return rv;
	}
	iscsi__target_take(iscsi, fresh);
	return 0;
}

void iscsi__target_remove(struct iscsi_target *t, const char *why,
			  struct iscsi_message *goodbye)
{
	target_unlink(t);
	t->removed = true;
	t->goodbye = goodbye;
	end_sessions(t, true, why);
	end_logins(t, why);
	iscsi__target_put(t);
}

static void target_unset(struct iscsi_target *t)
{
	static const char why[] = "the target was removed";
	struct iscsi_message *m = t->goodbye;

	t->goodbye = NULL;
	iscsi__home_forget(t);
	if (m != NULL && t->iscsi->closing) {
		free(m); /* the share has closed it by itself */
	} else if (m != NULL) {
		m->why = why;
		iscsi__message_send(m);
	}
	iscsi__target_remove(t, why, NULL);
}

void iscsi_target_unset(struct iscsi *iscsi, const char *iqn)
{
	char name[ISCSI_NAME_MAX + 1];
	struct iscsi_target *t;

	if (iscsi__name_parse(iqn, name) < 0)
		return;
	t = iscsi__target_find(iscsi, name);
	if (t != NULL)
		target_unset(t);
}

/* While closing: what a share has is waited for by it. */
void iscsi__targets_close(struct iscsi *iscsi)
{
	struct iscsi_target *t;

	while ((t = TAILQ_FIRST(&iscsi->targets)) != NULL)
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): off the list */
		target_unset(t);
}

/* Its units are new: tell the command set. */
void iscsi__target_ports(struct iscsi_target *t)
{
	uint16_t rtpi[256], tpgt[256];
	struct iscsi_portal *p;
	unsigned n = 0;

	TAILQ_FOREACH (p, &t->iscsi->portals, link)
		if (n < ARRAY_LEN(rtpi)) {
			rtpi[n] = (uint16_t)p->number;
			tpgt[n++] = p->tpgt;
		}
	if (t->scsi != NULL)
		scsi_target_ports(t->scsi, rtpi, tpgt, n);
}

/* Portals changed. */
void iscsi__targets_ports(struct iscsi *iscsi)
{
	struct iscsi_target *t;

	TAILQ_FOREACH (t, &iscsi->targets, link)
		iscsi__target_ports(t);
}

int iscsi_lun_set(struct iscsi *iscsi, const struct iscsi_lun_conf *conf)
{
	char name[ISCSI_NAME_MAX + 1];
	struct iscsi_target *t;

	if (iscsi__name_parse(conf->iqn, name) < 0 ||
	    conf->lun > ISCSI_LUN_MAX ||
	    (conf->block_bytes != 512 && conf->block_bytes != 4096))
		return -EINVAL;
	t = iscsi__target_find(iscsi, name);
	if (t == NULL)
		return -ENOENT;
	return iscsi__home_lun_set(t, conf);
}

void iscsi_lun_unset(struct iscsi *iscsi, const char *iqn, unsigned lun)
{
	char name[ISCSI_NAME_MAX + 1];
	struct iscsi_target *t;

	if (iscsi__name_parse(iqn, name) < 0)
		return;
	t = iscsi__target_find(iscsi, name);
	if (t != NULL && lun <= ISCSI_LUN_MAX)
		iscsi__home_lun_unset(t, lun);
}
