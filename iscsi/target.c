/*
 * target: what may be logged in to, by whom, and its units.
 *
 * The table is pushed by node from the directory.  A target that is taken away
 * leaves the table at once; its sessions are ended, and it is freed when the
 * last of them has let go of its units.
 */
#define LOG_ROOM LOG_ISCSI
#include "iscsi/iscsi_int.h"
#include "iscsi/scsi_int.h"

#include <stdio.h>

struct iscsi_target *iscsi__target_find(struct iscsi *iscsi, const char *iqn)
{
	struct iscsi_target *t;

	TAILQ_FOREACH (t, &iscsi->targets, link)
		if (strcmp(t->iqn, iqn) == 0)
			return t;
	return NULL;
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

static void on_scsi_closed(void *arg)
{
	struct iscsi *iscsi = arg;

	iscsi->targets_closing--;
	iscsi__maybe_closed(iscsi);
}

static void target_free(struct iscsi_target *t)
{
	struct iscsi *iscsi = t->iscsi;

	iscsi->targets_closing++;
	scsi_target_close(t->scsi, on_scsi_closed, iscsi);
	allow_free(t->allow, t->allow_count);
	explicit_bzero(&t->chap, sizeof(t->chap));
	explicit_bzero(&t->mutual, sizeof(t->mutual));
	free(t);
}

/* A session of it is gone. */
void iscsi__target_put(struct iscsi_target *t)
{
	if (t->removed && t->sessions_count == 0)
		target_free(t);
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

static int target_new(struct iscsi *iscsi, const char *iqn,
		      struct iscsi_target **out)
{
	struct iscsi_target *t = calloc(1, sizeof(*t));
	int rv;

	if (t == NULL)
		return -ENOMEM;
	rv = scsi_target_open(iscsi->env, iscsi->dom, iqn, &t->scsi);
	if (rv < 0) {
		free(t);
		return rv;
	}
	t->iscsi = iscsi;
	strcpy(t->iqn, iqn);
	*out = t;
	return 0;
}

static bool secret_equal(const struct chap_secret *a,
			 const struct chap_secret *b)
{
	return strcmp(a->user, b->user) == 0 &&
	       a->secret_len == b->secret_len &&
	       memcmp(a->secret, b->secret, a->secret_len) == 0;
}

int iscsi_target_set(struct iscsi *iscsi, const struct iscsi_target_conf *conf)
{
	struct chap_secret chap = { .user = "" }, mutual = { .user = "" };
	char iqn[ISCSI_NAME_MAX + 1], **allow;
	struct iscsi_target *t;
	bool rekeyed = false;
	int rv;

	if (iscsi->closing)
		return -ESHUTDOWN;
	if (iscsi__name_parse(conf->iqn, iqn) < 0 ||
	    secret_set(&chap, conf->chap_user, conf->chap_secret,
		       conf->chap_secret_len) < 0 ||
	    secret_set(&mutual, conf->mutual_user, conf->mutual_secret,
		       conf->mutual_secret_len) < 0)
		return -EINVAL;
	/* One secret both ways would let a reflected answer pass (9.2.1). */
	if (mutual.user[0] != '\0' &&
	    (chap.user[0] == '\0' ||
	     (mutual.secret_len == chap.secret_len &&
	      memcmp(mutual.secret, chap.secret, chap.secret_len) == 0)))
		return -EINVAL;
	rv = allow_copy(conf, &allow);
	if (rv < 0)
		return rv;
	t = iscsi__target_find(iscsi, iqn);
	if (t == NULL) {
		rv = target_new(iscsi, iqn, &t);
		if (rv < 0) {
			allow_free(allow, conf->allow_count);
			return rv;
		}
		TAILQ_INSERT_TAIL(&iscsi->targets, t, link);
		iscsi__targets_ports(iscsi);
	} else {
		rekeyed =
			chap.user[0] != '\0' && !secret_equal(&t->chap, &chap);
	}
	allow_free(t->allow, t->allow_count);
	t->allow = allow;
	t->allow_count = conf->allow_count;
	t->chap = chap;
	t->mutual = mutual;
	snprintf(t->alias, sizeof(t->alias), "%s",
		 conf->alias != NULL ? conf->alias : "");
	explicit_bzero(&chap, sizeof(chap));
	explicit_bzero(&mutual, sizeof(mutual));
	end_sessions(t, rekeyed, "access to the target was changed");
	if (rekeyed)
		end_logins(t, "access to the target was changed");
	return 0;
}

void iscsi_target_unset(struct iscsi *iscsi, const char *iqn)
{
	char name[ISCSI_NAME_MAX + 1];
	struct iscsi_target *t;

	if (iscsi__name_parse(iqn, name) < 0)
		return;
	t = iscsi__target_find(iscsi, name);
	if (t == NULL)
		return;
	TAILQ_REMOVE(&iscsi->targets, t, link);
	t->removed = true;
	end_sessions(t, true, "the target was removed");
	end_logins(t, "the target was removed");
	iscsi__target_put(t);
}

void iscsi__targets_close(struct iscsi *iscsi)
{
	struct iscsi_target *t;

	while ((t = TAILQ_FIRST(&iscsi->targets)) != NULL)
		iscsi_target_unset(iscsi, t->iqn);
}

/* Portals changed, or a target is new: tell the command set. */
void iscsi__targets_ports(struct iscsi *iscsi)
{
	uint16_t rtpi[256], tpgt[256];
	struct iscsi_portal *p;
	struct iscsi_target *t;
	unsigned n = 0;

	TAILQ_FOREACH (p, &iscsi->portals, link)
		if (n < ARRAY_LEN(rtpi)) {
			rtpi[n] = (uint16_t)p->number;
			tpgt[n++] = p->tpgt;
		}
	TAILQ_FOREACH (t, &iscsi->targets, link)
		scsi_target_ports(t->scsi, rtpi, tpgt, n);
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
	return scsi_lun_set(t->scsi, conf);
}

void iscsi_lun_unset(struct iscsi *iscsi, const char *iqn, unsigned lun)
{
	char name[ISCSI_NAME_MAX + 1];
	struct iscsi_target *t;

	if (iscsi__name_parse(iqn, name) < 0)
		return;
	t = iscsi__target_find(iscsi, name);
	if (t != NULL && lun <= ISCSI_LUN_MAX)
		scsi_lun_unset(t->scsi, lun);
}

static bool has_object(const struct scsi_target *t, const struct uuid *object)
{
	for (unsigned i = 0; i < t->luns_size; i++)
		if (t->luns[i] != NULL && uuid_equal(&t->luns[i]->oid, object))
			return true;
	return false;
}

unsigned iscsi_object_sessions(struct iscsi *iscsi, const struct uuid *object)
{
	struct iscsi_session *s;
	unsigned n = 0;

	TAILQ_FOREACH (s, &iscsi->sessions, link)
		if (!s->discovery && !s->ending &&
		    has_object(s->target->scsi, object))
			n++;
	return n;
}
