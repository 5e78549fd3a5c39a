/*
 * push: targets and LUNs of the directory, told to iscsi.
 *
 * Whatever changes (a target, a LUN, a virtual disk that was renamed), what
 * iscsi should know of it is worked out anew from the directory and compared with
 * what it was told; only differences are pushed, so a resize or a change of
 * another target disturbs no session.  What iscsi refuses is tried again.
 *
 * Those that changed are looked at; all there are only at the start, after a
 * failure, and where one change touches more than itself.
 */
#define LOG_ROOM LOG_NODE
#include "base/log.h"
#include "base/util.h"
#include "node/node_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct pushed_target {
	char name[CMMDS_KEY_MAX + 1], iqn[ISCSI_NAME_MAX + 1];
	uint64_t revision;
	bool wanted;
	bool shut; /* its secret cannot be opened */
	TAILQ_ENTRY(pushed_target) link;
	struct pushed_target *chain; /* of its bucket */
};

struct pushed_lun {
	char iqn[ISCSI_NAME_MAX + 1], vdisk[CMMDS_KEY_MAX + 1];
	unsigned lun;
	struct uuid object;
	uint32_t block_bytes;
	bool read_only, wanted;
	TAILQ_ENTRY(pushed_lun) link;
	struct pushed_lun *chain; /* of its bucket */
};

#define BUCKETS 4096u /* there may be as many targets and LUNs */
/* One command takes a target with all of its LUNs away. */
#define TOUCHED_MAX 1024u

/* A target, or a LUN of it, that changed in the directory. */
struct touched {
	char target[CMMDS_KEY_MAX + 1];
	bool is_lun;
	unsigned lun;
};

struct push {
	struct node *node;
	struct cmmds_subscription subs[3];
	struct env_task task;
	struct env_timer retry;
	TAILQ_HEAD(, pushed_target) targets;
	TAILQ_HEAD(, pushed_lun) luns;
	struct pushed_target *targets_by_name[BUCKETS];
	struct pushed_lun *luns_by_place[BUCKETS];
	struct touched *touched;
	unsigned touched_count, touched_room;
	bool all; /* may have to be told anew */
	bool failed, closing;
	unsigned shut_count; /* of the targets */
};

static unsigned bucket_of(const char *name, unsigned number)
{
	return (text_hash(name) + number) % BUCKETS;
}

/* ---- targets ---- */

static struct pushed_target *target_find(struct push *push, const char *name)
{
	struct pushed_target *t = push->targets_by_name[bucket_of(name, 0)];

	while (t != NULL && strcmp(t->name, name) != 0)
		t = t->chain;
	return t;
}

static void target_insert(struct push *push, struct pushed_target *t)
{
	struct pushed_target **bucket =
		&push->targets_by_name[bucket_of(t->name, 0)];

	t->chain = *bucket;
	*bucket = t;
	TAILQ_INSERT_TAIL(&push->targets, t, link);
}

/* 0, or why a secret cannot be used: then nobody is let in. */
static int secret_open(struct node *node, const Directory__Target *m,
		       const char *which, const ProtobufCBinaryData *sealed,
		       uint8_t out[ISCSI_SECRET_MAX], size_t *len)
{
	char context[320];

	*len = 0;
	if (sealed->len == 0)
		return -ENOENT;
	snprintf(context, sizeof(context), "%s %s", which, m->name);
	return node__secret_open(node->key, context, sealed->data, sealed->len,
				 out, ISCSI_SECRET_MAX, len);
}

static int target_set(struct node *node, const Directory__Target *m, bool *shut)
{
	uint8_t secret[ISCSI_SECRET_MAX], mutual[ISCSI_SECRET_MAX];
	size_t secret_len = 0, mutual_len = 0;
	struct iscsi_target_conf conf = {
		.iqn = m->iqn,
		.alias = m->name,
		.allow = (const char *const *)m->allow,
		.allow_count = (unsigned)m->n_allow,
		.chap_user = m->chap_user,
		.mutual_user = m->mutual_user,
	};
	int rv = 0;

	if (m->chap_user[0] != '\0')
		rv = secret_open(node, m, "chap", &m->chap_secret_sealed,
				 secret, &secret_len);
	if (rv == 0 && m->mutual_user[0] != '\0')
		rv = secret_open(node, m, "mutual", &m->mutual_secret_sealed,
				 mutual, &mutual_len);
	if (rv == -ENOMEM)
		goto out; /* the secret is good: the next time */
	*shut = rv < 0;
	if (*shut) {
		log_error("target %s: its CHAP secret cannot be opened (%s): "
			  "nobody is let in; set it anew with basalt target "
			  "set %s --chap USER",
			  m->name, strerror(-rv), m->name);
		conf.allow_count = 0;
		conf.chap_user = conf.mutual_user = "";
		secret_len = mutual_len = 0;
	}
	conf.chap_secret = secret;
	conf.chap_secret_len = (unsigned)secret_len;
	conf.mutual_secret = mutual;
	conf.mutual_secret_len = (unsigned)mutual_len;
	rv = iscsi_target_set(node->iscsi, &conf);
out:
	node__wipe(secret, sizeof(secret));
	node__wipe(mutual, sizeof(mutual));
	return rv;
}

static void target_drop(struct push *push, struct pushed_target *t)
{
	struct pushed_target **at =
		&push->targets_by_name[bucket_of(t->name, 0)];

	while (*at != t)
		at = &(*at)->chain;
	*at = t->chain;
	TAILQ_REMOVE(&push->targets, t, link);
	push->shut_count -= t->shut;
	free(t);
}

static void target_want(struct push *push, const struct cmmds_entry *e)
{
	const Directory__Target *m = (const Directory__Target *)e->message;
	struct pushed_target *t = target_find(push, m->name);
	int rv;

	if (t == NULL) {
		if (strlen(m->name) >= sizeof(t->name) ||
		    strlen(m->iqn) >= sizeof(t->iqn)) {
			log_error("target %.64s...: name too long", m->name);
			return;
		}
		t = calloc(1, sizeof(*t));
		if (t == NULL) {
			push->failed = true;
			return;
		}
		strcpy(t->name, m->name);
		strcpy(t->iqn, m->iqn);
		target_insert(push, t);
	}
	t->wanted = true;
	if (t->revision == e->revision)
		return;
	push->shut_count -= t->shut;
	rv = target_set(push->node, m, &t->shut);
	push->shut_count += t->shut;
	if (rv < 0) {
		log_error("target %s: iscsi does not take it: %s", m->name,
			  strerror(-rv));
		push->failed = true;
		return;
	}
	t->revision = e->revision;
}

/* ---- LUNs ---- */

static struct pushed_lun *lun_find(struct push *push, const char *iqn,
				   unsigned lun)
{
	struct pushed_lun *l = push->luns_by_place[bucket_of(iqn, lun)];

	while (l != NULL && (l->lun != lun || strcmp(l->iqn, iqn) != 0))
		l = l->chain;
	return l;
}

static void lun_insert(struct push *push, struct pushed_lun *l)
{
	struct pushed_lun **bucket =
		&push->luns_by_place[bucket_of(l->iqn, l->lun)];

	l->chain = *bucket;
	*bucket = l;
	TAILQ_INSERT_TAIL(&push->luns, l, link);
}

static void lun_drop(struct push *push, struct pushed_lun *l)
{
	struct pushed_lun **at =
		&push->luns_by_place[bucket_of(l->iqn, l->lun)];

	while (*at != l)
		at = &(*at)->chain;
	*at = l->chain;
	TAILQ_REMOVE(&push->luns, l, link);
	free(l);
}

static void lun_push(struct push *push, struct pushed_lun *l)
{
	struct iscsi_lun_conf conf = {
		.iqn = l->iqn,
		.lun = l->lun,
		.object = l->object,
		.name = l->vdisk,
		.block_bytes = l->block_bytes,
		.read_only = l->read_only,
	};
	int rv = iscsi_lun_set(push->node->iscsi, &conf);

	if (rv < 0) {
		log_error("target %s LUN %u: iscsi does not take it: %s",
			  l->iqn, l->lun, strerror(-rv));
		uuid_parse("00000000-0000-0000-0000-000000000000", &l->object);
		push->failed = true;
	}
}

static void lun_want(struct push *push, const Directory__Lun *m)
{
	struct cmmds *cmmds = push->node->cmmds;
	const Directory__Target *t = cmmds_target(cmmds, m->target);
	const Directory__VDisk *v = cmmds_vdisk(cmmds, m->vdisk);
	struct pushed_lun *l;

	if (t == NULL || v == NULL || v->oid.len != sizeof(struct uuid) ||
	    strlen(t->iqn) >= sizeof(l->iqn) ||
	    strlen(v->name) >= sizeof(l->vdisk))
		return;
	l = lun_find(push, t->iqn, m->lun);
	if (l == NULL) {
		l = calloc(1, sizeof(*l));
		if (l == NULL) {
			push->failed = true;
			return;
		}
		strcpy(l->iqn, t->iqn);
		l->lun = m->lun;
		lun_insert(push, l);
	}
	l->wanted = true;
	if (memcmp(l->object.b, v->oid.data, sizeof(l->object.b)) == 0 &&
	    strcmp(l->vdisk, v->name) == 0 &&
	    l->block_bytes == v->block_bytes && l->read_only == m->read_only)
		return;
	memcpy(l->object.b, v->oid.data, sizeof(l->object.b));
	strcpy(l->vdisk, v->name);
	l->block_bytes = v->block_bytes;
	l->read_only = m->read_only;
	lun_push(push, l);
}

/* ---- both ---- */

static void mark_wanted(struct push *push)
{
	const struct cmmds_entry *e = NULL;
	struct pushed_target *t;
	struct pushed_lun *l;

	TAILQ_FOREACH (l, &push->luns, link)
		l->wanted = false;
	while ((e = cmmds_next(push->node->cmmds, CMMDS_LUN, e)) != NULL) {
		const Directory__Lun *m = (const Directory__Lun *)e->message;
		const Directory__Target *mt =
			cmmds_target(push->node->cmmds, m->target);

		if (mt == NULL ||
		    cmmds_vdisk(push->node->cmmds, m->vdisk) == NULL)
			continue;
		l = lun_find(push, mt->iqn, m->lun);
		if (l != NULL)
			l->wanted = true;
	}
	TAILQ_FOREACH (t, &push->targets, link) {
		const Directory__Target *m =
			cmmds_target(push->node->cmmds, t->name);

		t->wanted = m != NULL && strcmp(m->iqn, t->iqn) == 0;
	}
}

static void lun_unset(struct push *push, struct pushed_lun *l)
{
	iscsi_lun_unset(push->node->iscsi, l->iqn, l->lun);
	lun_drop(push, l);
}

static void target_unset(struct push *push, struct pushed_target *t)
{
	iscsi_target_unset(push->node->iscsi, t->iqn);
	target_drop(push, t);
}

static void reconcile_all(struct push *push)
{
	struct node *node = push->node;
	struct pushed_target *t, *tnext;
	struct pushed_lun *l, *lnext;
	const struct cmmds_entry *e;

	/* First what is gone, so that its name and number are free. */
	mark_wanted(push);
	TAILQ_FOREACH_SAFE (l, &push->luns, link, lnext)
		if (!l->wanted)
			lun_unset(push, l);
	TAILQ_FOREACH_SAFE (t, &push->targets, link, tnext)
		if (!t->wanted)
			target_unset(push, t);
	e = NULL;
	while ((e = cmmds_next(node->cmmds, CMMDS_TARGET, e)) != NULL)
		target_want(push, e);
	e = NULL;
	while ((e = cmmds_next(node->cmmds, CMMDS_LUN, e)) != NULL)
		lun_want(push, (const Directory__Lun *)e->message);
}

/* ---- what changed ---- */

size_t node__lun_key(const char *target, unsigned lun,
		     uint8_t out[CMMDS_KEY_MAX])
{
	size_t len = strlen(target);

	assert(len + 3 <= CMMDS_KEY_MAX);
	memcpy(out, target, len + 1);
	put_be16(out + len + 1, (uint16_t)lun);
	return len + 3;
}

/* The directory's entry of it, or NULL. */
static const struct cmmds_entry *touched_entry(struct push *push,
					       const struct touched *c)
{
	uint8_t key[CMMDS_KEY_MAX];

	if (!c->is_lun)
		return cmmds_get(push->node->cmmds, CMMDS_TARGET, c->target,
				 strlen(c->target));
	return cmmds_get(push->node->cmmds, CMMDS_LUN, key,
			 node__lun_key(c->target, c->lun, key));
}

/* Is what was told of each still found under the name it has, or had? */
static bool names_hold(struct push *push)
{
	for (unsigned i = 0; i < push->touched_count; i++) {
		const char *name = push->touched[i].target;
		const Directory__Target *m =
			cmmds_target(push->node->cmmds, name);
		const struct pushed_target *t = target_find(push, name);

		if (t == NULL ? m == NULL
			      : m != NULL && strcmp(m->iqn, t->iqn) != 0)
			return false;
	}
	return true;
}

static void touched_gone(struct push *push, const struct touched *c)
{
	struct pushed_target *t = target_find(push, c->target);
	struct pushed_lun *l;

	if (t == NULL || touched_entry(push, c) != NULL)
		return;
	if (!c->is_lun) {
		target_unset(push, t);
		return;
	}
	l = lun_find(push, t->iqn, c->lun);
	if (l != NULL)
		lun_unset(push, l);
}

static void touched_want(struct push *push, const struct touched *c)
{
	const struct cmmds_entry *e = touched_entry(push, c);

	if (e != NULL && c->is_lun)
		lun_want(push, (const Directory__Lun *)e->message);
	else if (e != NULL)
		target_want(push, e);
}

static void touched_each(struct push *push, bool luns,
			 void (*fn)(struct push *push, const struct touched *c))
{
	for (unsigned i = 0; i < push->touched_count; i++)
		if (push->touched[i].is_lun == luns)
			fn(push, &push->touched[i]);
}

static void reconcile(struct push *push)
{
	push->failed = false;
	if (push->all || !names_hold(push)) {
		reconcile_all(push);
	} else {
		touched_each(push, true, touched_gone);
		touched_each(push, false, touched_gone);
		touched_each(push, false, touched_want);
		touched_each(push, true, touched_want);
	}
	push->touched_count = push->touched_room = 0;
	free(push->touched);
	push->touched = NULL;
	push->all = push->failed;
	if (push->failed)
		env_timer_start(push->node->env, &push->retry, SEC);
}

static bool touch_room(struct push *push)
{
	unsigned room = MAX(16u, push->touched_room * 2);
	struct touched *touched;

	if (push->touched_count < push->touched_room)
		return true;
	if (room > TOUCHED_MAX)
		return false;
	touched = realloc(push->touched, room * sizeof(*touched));
	if (touched == NULL)
		return false;
	push->touched = touched;
	push->touched_room = room;
	return true;
}

static void touch(struct push *push, const char *target, bool is_lun,
		  unsigned lun)
{
	struct touched *c;

	if (push->all)
		return;
	if (strlen(target) + 3 > CMMDS_KEY_MAX || !touch_room(push)) {
		push->all = true;
		return;
	}
	c = &push->touched[push->touched_count++];
	strcpy(c->target, target);
	c->is_lun = is_lun;
	c->lun = lun;
}

/* LUNs name it, and a change of its name changes them. */
static bool vdisk_is_other(const struct cmmds_change *change)
{
	const Directory__VDisk *a, *b;

	if (change->old_entry == NULL || change->new_entry == NULL)
		return false;
	a = (const Directory__VDisk *)change->old_entry->message;
	b = (const Directory__VDisk *)change->new_entry->message;
	return a->block_bytes != b->block_bytes || a->oid.len != b->oid.len ||
	       memcmp(a->oid.data, b->oid.data, a->oid.len) != 0;
}

static void on_task(struct env_task *task)
{
	struct push *push = container_of(task, struct push, task);

	if (push->closing)
		free(push);
	else
		reconcile(push);
}

static void on_retry(struct env_timer *timer)
{
	reconcile(container_of(timer, struct push, retry));
}

static void on_change(struct cmmds_subscription *sub,
		      const struct cmmds_change *change)
{
	struct push *push = sub->data;
	const struct cmmds_entry *e = change->new_entry != NULL
					      ? change->new_entry
					      : change->old_entry;

	if (change->kind == CMMDS_VDISK) {
		if (!vdisk_is_other(change))
			return;
		push->all = true;
	} else if (change->kind == CMMDS_TARGET) {
		const Directory__Target *m = (const void *)e->message;

		touch(push, m->name, false, 0);
	} else {
		const Directory__Lun *m = (const void *)e->message;

		touch(push, m->target, true, m->lun);
	}
	/* Many changes of one command make one comparison. */
	env_defer(push->node->env, &push->task);
}

int node__push_open(struct node *node, struct push **out)
{
	static const enum cmmds_kind kinds[] = { CMMDS_TARGET, CMMDS_LUN,
						 CMMDS_VDISK };
	struct push *push = calloc(1, sizeof(*push));

	if (push == NULL)
		return -ENOMEM;
	push->node = node;
	push->task.cb = on_task;
	push->retry.cb = on_retry;
	TAILQ_INIT(&push->targets);
	TAILQ_INIT(&push->luns);
	for (unsigned i = 0; i < ARRAY_LEN(kinds); i++) {
		push->subs[i].data = push;
		push->subs[i].kind = kinds[i];
		push->subs[i].cb = on_change;
		cmmds_subscribe(node->cmmds, &push->subs[i]);
	}
	push->all = true;
	reconcile(push); /* before the portals open */
	*out = push;
	return 0;
}

const char *node__push_shut(const struct push *push)
{
	const struct pushed_target *t;

	if (push->shut_count == 0)
		return NULL;
	TAILQ_FOREACH (t, &push->targets, link)
		if (t->shut)
			return t->name;
	return NULL;
}

void node__push_close(struct push *push)
{
	struct pushed_target *t, *tnext;
	struct pushed_lun *l, *lnext;

	for (unsigned i = 0; i < ARRAY_LEN(push->subs); i++)
		cmmds_unsubscribe(&push->subs[i]);
	env_timer_stop(push->node->env, &push->retry);
	TAILQ_FOREACH_SAFE (t, &push->targets, link, tnext)
		target_drop(push, t);
	TAILQ_FOREACH_SAFE (l, &push->luns, link, lnext)
		lun_drop(push, l);
	free(push->touched);
	push->touched = NULL;
	push->touched_count = push->touched_room = 0;
	/* The task may be queued: the memory goes when it has run. */
	push->closing = true;
	env_defer(push->node->env, &push->task);
}
