/*
 * homes: which shard has a target's units and sessions.  In the front.
 *
 * A target's home is the shard of its first LUN's object, so that a request of
 * the usual target with one disk never changes shards.  Targets that show a
 * common object have one home: what SCSI shares between them (task sets, mode
 * pages, who is told of a reset) is plain memory of one loop.
 *
 * A mapping that joins targets of different homes makes one of them move, with
 * all that it shares objects with: sessions are dropped and units closed first,
 * and nothing of it is opened elsewhere before that is over.  Meanwhile logins
 * are refused as "try again".  An object whose last LUN went keeps its shard
 * for longer than any request lives, for the same reason.
 */
#define LOG_ROOM LOG_ISCSI
#include "iscsi/iscsi_int.h"
#include "iscsi/scsi_int.h"

#include <stdio.h>

#define OBJECT_IDLE_NS (60 * SEC)
#define MOVES "the target moves to another shard"

/* Where @t is, or will be when it has left. */
static unsigned home_of(const struct iscsi_target *t)
{
	return t->place == TARGET_PLACED ? t->home : t->next;
}

/* ---- objects ---- */

static struct target_object **bucket(struct iscsi *front,
				     const struct uuid *oid)
{
	return &front->objects_by_id[uuid_hash(oid) % ISCSI_BUCKETS];
}

static struct target_object *object_find(struct iscsi *front,
					 const struct uuid *oid)
{
	struct target_object *o = *bucket(front, oid);

	while (o != NULL && !uuid_equal(&o->oid, oid))
		o = o->chain;
	return o;
}

static void object_free(struct iscsi *front, struct target_object *o)
{
	struct target_object **place = bucket(front, &o->oid);

	while (*place != o)
		place = &(*place)->chain;
	*place = o->chain;
	TAILQ_REMOVE(o->users > 0 ? &front->objects : &front->objects_idle, o,
		     link);
	scsi_usage_put(o->usage);
	free(o);
}

static struct target_object *object_new(struct iscsi *front,
					const struct uuid *oid, unsigned shard)
{
	struct target_object *o = calloc(1, sizeof(*o));

	if (o == NULL)
		return NULL;
	o->usage = scsi_usage_new();
	if (o->usage == NULL) {
		free(o);
		return NULL;
	}
	o->oid = *oid;
	o->shard = shard;
	o->since_ns = env_now(front->env);
	TAILQ_INIT(&o->luns);
	TAILQ_INSERT_TAIL(&front->objects_idle, o, link);
	o->chain = *bucket(front, oid);
	*bucket(front, oid) = o;
	return o;
}

/* One more user of @oid; if nobody has it, @shard is where.  NULL: no memory. */
static struct target_object *object_get(struct iscsi *front,
					const struct uuid *oid, unsigned shard)
{
	uint64_t now = env_now(front->env);
	struct target_object *o;

	while ((o = TAILQ_FIRST(&front->objects_idle)) != NULL &&
	       now - o->idle_since_ns >= OBJECT_IDLE_NS)
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): off the list */
		object_free(front, o);
	o = object_find(front, oid);
	if (o == NULL)
		o = object_new(front, oid, shard);
	if (o != NULL && o->users++ == 0) {
		TAILQ_REMOVE(&front->objects_idle, o, link);
		TAILQ_INSERT_TAIL(&front->objects, o, link);
	}
	return o;
}

static void object_put(struct iscsi *front, struct target_object *o)
{
	assert(o->users > 0);
	if (--o->users > 0)
		return;
	o->idle_since_ns = env_now(front->env);
	TAILQ_REMOVE(&front->objects, o, link);
	TAILQ_INSERT_TAIL(&front->objects_idle, o, link);
}

static bool object_leaves(struct iscsi *front, const struct uuid *oid)
{
	const struct target_object *o = object_find(front, oid);

	return o != NULL && o->leaving > 0;
}

/* ---- telling the home ---- */

static int lun_tell(struct iscsi_target *t, struct target_lun *l)
{
	struct iscsi_message *m;
	int rv;

	if (t->home == 0) {
		rv = scsi_lun_set(t->scsi, &l->conf, l->object->usage);
		l->told = rv == 0;
		l->shown |= l->told;
		return rv;
	}
	m = iscsi__message_new(t->iscsi->shares[t->home], MESSAGE_LUN);
	if (m == NULL)
		return -ENOMEM;
	m->lun = l->conf;
	strcpy(m->iqn, t->iqn);
	strcpy(m->name, l->name);
	m->usage = scsi_usage_get(l->object->usage);
	iscsi__message_send(m);
	l->told = l->shown = true;
	return 0;
}

/* Its units shall be at @home: 0 or -ENOMEM. */
static int settle(struct iscsi_target *t, unsigned home)
{
	struct iscsi *front = t->iscsi, *share = front->shares[home];
	struct iscsi_message *m, *goodbye;
	int rv = -ENOMEM;

	if (home == 0) {
		rv = scsi_target_open(front->env, iscsi__dom(front, 0),
				      &front->scsi, t->iqn, &t->scsi);
		if (rv == 0)
			iscsi__target_ports(t);
		return rv;
	}
	m = iscsi__message_new(share, MESSAGE_TARGET);
	goodbye = iscsi__message_new(share, MESSAGE_TARGET_GONE);
	if (m != NULL && goodbye != NULL)
		rv = iscsi__target_copy(t, share, true, &m->target);
	if (rv < 0) {
		free(m);
		free(goodbye);
		return rv;
	}
	strcpy(goodbye->iqn, t->iqn);
	t->goodbye = goodbye;
	iscsi__message_send(m);
	return 0;
}

/* Another that has, or had, an object in common has not left yet. */
static bool waits(const struct iscsi_target *t)
{
	const struct target_lun *l;

	TAILQ_FOREACH (l, &t->luns, link)
		if (l->object->leaving > 0)
			return true;
	return false;
}

static void untold_set(struct iscsi_target *t, bool untold)
{
	if (untold && !t->untold)
		TAILQ_INSERT_TAIL(&t->iscsi->untold, t, untold_link);
	else if (!untold && t->untold)
		TAILQ_REMOVE(&t->iscsi->untold, t, untold_link);
	t->untold = untold;
}

/* Its home knows all of it. */
static bool told(const struct iscsi_target *t)
{
	const struct target_lun *l;

	if (t->place != TARGET_PLACED)
		return false;
	TAILQ_FOREACH (l, &t->luns, link)
		if (!l->told)
			return false;
	return true;
}

/* False: there was no memory. */
static bool tell(struct iscsi_target *t)
{
	struct target_lun *l;

	if (t->place == TARGET_LEFT && !waits(t)) {
		if (settle(t, t->next) < 0)
			return false;
		t->place = TARGET_PLACED;
		t->home = t->next;
	}
	if (t->place != TARGET_PLACED)
		return true;
	TAILQ_FOREACH (l, &t->luns, link)
		if (!l->told && l->object->leaving == 0 && lun_tell(t, l) < 0)
			return false;
	return true;
}

void iscsi__homes_tell(struct iscsi *front)
{
	struct iscsi_target *t, *next;
	bool all = true;

	if (front->closing)
		return;
	TAILQ_FOREACH_SAFE (t, &front->untold, untold_link, next) {
		all = tell(t) && all;
		untold_set(t, !told(t));
	}
	if (!all)
		env_timer_start(front->env, &front->tell, ISCSI_AGAIN_NS);
}

/* ---- moving ---- */

static void leave(struct iscsi_target *t)
{
	struct iscsi_message *m = t->goodbye;
	struct target_lun *l;

	log_info("target %s moves from shard %u to %u", t->iqn, t->home,
		 t->next);
	t->place = TARGET_LEAVING;
	untold_set(t, true);
	TAILQ_FOREACH (l, &t->luns, link) {
		l->leaves = l->shown;
		l->object->leaving += l->shown;
		l->told = l->shown = false;
	}
	if (t->home == 0) {
		iscsi__target_end_sessions(t, MOVES);
		iscsi__target_put(t);
		return;
	}
	t->goodbye = NULL;
	t->closing = true;
	m->target = t;
	m->why = MOVES;
	iscsi__message_send(m);
}

static void lun_left(struct target_lun *l)
{
	if (l->leaves)
		l->object->leaving--;
	l->leaves = false;
}

void iscsi__home_left(struct iscsi_target *t)
{
	struct iscsi *front = t->iscsi;
	struct target_lun *l;

	TAILQ_FOREACH (l, &t->luns, link)
		lun_left(l);
	while ((l = TAILQ_FIRST(&t->parting)) != NULL) {
		TAILQ_REMOVE(&t->parting, l, link);
		lun_left(l);
		object_put(front, l->object);
		free(l);
	}
	t->closing = false;
	if (t->removed) {
		iscsi__target_put(t);
	} else {
		assert(t->place == TARGET_LEAVING);
		t->place = TARGET_LEFT;
	}
	iscsi__homes_tell(front); /* others may have waited for it */
}

/* @t goes to @home, and all that it shares objects with. */
static void move(struct iscsi_target *t, unsigned home)
{
	struct target_lun *l, *k;

	t->next = home;
	TAILQ_FOREACH (l, &t->luns, link)
		l->object->shard = home;
	if (t->place == TARGET_PLACED)
		leave(t);
	TAILQ_FOREACH (l, &t->luns, link)
		TAILQ_FOREACH (k, &l->object->luns, object_link)
			if (home_of(k->target) != home)
				move(k->target, home);
}

/* ---- LUNs ---- */

static struct target_lun *lun_find(const struct iscsi_target *t, unsigned lun)
{
	struct target_lun *l;

	TAILQ_FOREACH (l, &t->luns, link)
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): off the list */
		if (l->conf.lun == lun)
			return l;
	return NULL;
}

static void lun_forget(struct iscsi_target *t, struct target_lun *l)
{
	TAILQ_REMOVE(&t->luns, l, link);
	TAILQ_REMOVE(&l->object->luns, l, object_link);
	free(l->gone);
	l->gone = NULL;
	if (l->leaves) {
		TAILQ_INSERT_TAIL(&t->parting, l, link);
		return;
	}
	object_put(t->iscsi, l->object);
	free(l);
}

/* Its home has it no more, or soon: what is told it is told in order. */
static void lun_take(struct iscsi_target *t, struct target_lun *l)
{
	struct iscsi_message *m;

	if (t->place == TARGET_PLACED && t->home == 0) {
		scsi_lun_unset(t->scsi, l->conf.lun);
	} else if (t->place == TARGET_PLACED) {
		/* Also where it was not told of it: it may have another. */
		m = l->gone;
		l->gone = NULL;
		m->share = t->iscsi->shares[t->home];
		m->number = l->conf.lun;
		strcpy(m->iqn, t->iqn);
		iscsi__message_send(m);
	}
	lun_forget(t, l);
}

/*
 * In place of @old, which may be NULL.  Where that showed another object its home
 * shows it no more, though it may not hear of the new one for long: it is not known
 * here any more who has it.
 */
static struct target_lun *lun_new(struct iscsi_target *t,
				  const struct iscsi_lun_conf *conf,
				  struct target_lun *old)
{
	struct iscsi *front = t->iscsi;
	struct target_lun *l = calloc(1, sizeof(*l));
	bool first = TAILQ_FIRST(&t->luns) == old &&
		     (old == NULL || TAILQ_NEXT(old, link) == NULL);

	if (l == NULL)
		return NULL;
	l->conf = *conf;
	l->conf.iqn = t->iqn;
	l->target = t;
	snprintf(l->name, sizeof(l->name), "%s",
		 conf->name != NULL ? conf->name : "");
	l->conf.name = l->name;
	/* What takes it away again must not want for memory. */
	if (front->shards > 1) {
		l->gone = iscsi__message_new(NULL, MESSAGE_LUN_GONE);
		if (l->gone == NULL)
			goto err;
	}
	l->object = object_get(front, &conf->object,
			       first ? uuid_hash(&conf->object) % front->shards
				     : home_of(t));
	if (l->object == NULL)
		goto err;
	TAILQ_INSERT_TAIL(&t->luns, l, link);
	TAILQ_INSERT_TAIL(&l->object->luns, l, object_link);
	if (old != NULL && old->object == l->object) {
		l->shown = old->shown;
		lun_forget(t, old);
	} else if (old != NULL) {
		lun_take(t, old);
	}
	return l;

err:
	free(l->gone);
	free(l);
	return NULL;
}

int iscsi__home_lun_set(struct iscsi_target *t,
			const struct iscsi_lun_conf *conf)
{
	struct target_lun *l;
	int rv;

	/* It cannot be told of yet: what was there must not stay for it. */
	if (object_leaves(t->iscsi, &conf->object))
		iscsi__home_lun_unset(t, conf->lun);
	l = lun_new(t, conf, lun_find(t, conf->lun));
	if (l == NULL)
		return -ENOMEM;
	if (l->object->shard != home_of(t)) {
		move(t, l->object->shard);
		return 0;
	}
	if (t->place != TARGET_PLACED || l->object->leaving > 0) {
		untold_set(t, true);
		return 0;
	}
	rv = lun_tell(t, l);
	untold_set(t, t->untold || rv < 0);
	return rv;
}

void iscsi__home_lun_unset(struct iscsi_target *t, unsigned lun)
{
	struct target_lun *l = lun_find(t, lun);

	if (l != NULL)
		lun_take(t, l);
}

void iscsi__home_forget(struct iscsi_target *t)
{
	struct target_lun *l;

	untold_set(t, false);
	while ((l = TAILQ_FIRST(&t->luns)) != NULL)
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): off the list */
		lun_forget(t, l);
}

void iscsi__homes_close(struct iscsi *front)
{
	struct target_object *o;

	env_timer_stop(front->env, &front->tell);
	while ((o = TAILQ_FIRST(&front->objects)) != NULL ||
	       (o = TAILQ_FIRST(&front->objects_idle)) != NULL)
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): off the list */
		object_free(front, o);
}

/* ---- what was done with them ---- */

static void usage_read(const struct target_object *o, struct iscsi_usage *out)
{
	struct scsi_usage *u = o->usage;

	out->object = o->oid;
	out->since_ns = o->since_ns;
	histogram_of_read(&u->reads, &out->reads);
	histogram_of_read(&u->writes, &out->writes);
	out->read_bytes = ENTRY_GET(&u->read_bytes);
	out->written_bytes = ENTRY_GET(&u->written_bytes);
	out->unmaps = ENTRY_GET(&u->unmaps);
	out->failed = ENTRY_GET(&u->failed);
}

bool iscsi_usage_of(struct iscsi *iscsi, const struct uuid *object,
		    struct iscsi_usage *out)
{
	const struct target_object *o = object_find(iscsi, object);

	if (o == NULL || o->users == 0)
		return false;
	usage_read(o, out);
	return true;
}
