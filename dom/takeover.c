/*
 * takeover: from an entry in the directory to an owner that serves (g1, g3).
 *
 *	read the entry, RELEASE what an earlier life of ours left
 *	GRANT		compare-and-set; the epoch is ours
 *	CREATE		components the entry names and nobody made yet
 *	SEAL		every leaf: promise the epoch, settle what was accepted
 *	decide		(takeover_decide.c) every undecided record, forward or back
 *	fit		(takeover_fit.c) leaves to the sizes of the layout
 *	reservation	loaded behind a barrier
 *
 * Each step is one callback; the first failure ends the takeover, and the owner
 * tries again when somebody asks or a disk comes.  Nothing is served before the
 * last step.
 *
 * A component that has seen a larger csn than the entry's knows a newer layout:
 * the directory was put back from a backup.  To fit the component to the older
 * layout would destroy what is newer, so the object waits (health tells of it).
 * Neither GRANT nor RELEASE raises csn, so trying does not wear this out.
 *
 * Such a directory may also say that a sanitize is under way (sanitize.c) which
 * ended long ago, and to go on with it would erase what was written since.  It
 * shows by a component that has promised a larger epoch than the entry's: an
 * epoch is in the directory before any component, and another one begins when a
 * sanitize ends (dom.c).  Then the mark is emptied before an epoch is granted.
 *
 * Redundancy groups are single leaves here, so R is that leaf or the object is
 * unavailable, and nothing can be compared with another copy:
 *  - the component is not there, or is another incarnation's (R13): these are
 *    not the object's bytes, the object waits;
 *  - it is, but lost what it had acknowledged: media damage in mid-log, a disk
 *    that went back in time (R14), a tail that a flush lied about (R47).  There
 *    is no better copy to wait for, so what is left is served, every undecided
 *    record of it decided as usual, and log and health say that data is lost.
 *    After media damage lsom refuses the blocks that may be lost (-EBADMSG,
 *    lsom_comp_meta.damaged) until the epoch that is granted here, or a later
 *    one, writes or unmaps them.
 */
#define LOG_ROOM LOG_DOM
#include "dom/dom_int.h"

#include "base/log.h"

#include <stdlib.h>

#define GRANTS_MAX 10u
#define UNKNOWN_MAX 6u

struct dom__takeover {
	struct dom__owner *owner;
	struct cmmds_command cmd;
	struct cmmds_barrier barrier;
	bool current; /* the local directory is behind a barrier */
	void (*next)(struct dom__takeover *t); /* after the command */
	unsigned grants, unknowns, at, left;
	int status;
	bool nexuses_lost;
	unsigned records_count; /* that were undecided */
	uint64_t patience_ns; /* until when, with busy components */
	struct env_timer timer;
	void (*again)(struct dom__takeover *t); /* by the timer */
	struct env_task task;
};

static void takeover_end(struct dom__takeover *t, int status)
{
	struct dom__owner *owner = t->owner;

	owner->takeover = NULL;
	free(t);
	dom__takeover_done(owner, status);
}

static void again_fired(struct env_timer *timer)
{
	struct dom__takeover *t =
		container_of(timer, struct dom__takeover, timer);

	t->again(t);
}

/* Was it only busy?  Then @again runs a little later, and true is returned. */
static bool busy(struct dom__takeover *t, int status,
		 void (*again)(struct dom__takeover *t))
{
	const struct dom *dom = t->owner->dom;

	if (status != -EBUSY || dom->closing ||
	    env_now(dom->env) >= t->patience_ns)
		return false;
	t->again = again;
	t->timer.cb = again_fired;
	env_timer_start(dom->env, &t->timer, DOM__BUSY_NS);
	return true;
}

/* ---- commands ---- */

static void grant(struct dom__takeover *t);

static void commanded(struct cmmds_command *cmd, int status)
{
	struct dom__takeover *t = container_of(cmd, struct dom__takeover, cmd);

	/* Unknown: only the same request id can tell (R4). */
	if (status == -ETIMEDOUT && dom__rule(t->owner->dom, 4) &&
	    t->unknowns++ < UNKNOWN_MAX &&
	    cmmds_propose_again(cmd, 0, commanded) == 0)
		return;
	cmmds_command_fini(cmd);
	if (status == -EAGAIN && t->grants < GRANTS_MAX) {
		grant(t); /* the entry changed: read it again */
	} else if (status < 0) {
		log_warn("the directory refused a takeover: %s",
			 err_text(status));
		takeover_end(t, status == -ENOENT ? -ENOENT : -ENXIO);
	} else {
		t->next(t);
	}
}

static int command(struct dom__takeover *t, Directory__ObjectCommand__Op what,
		   const Directory__Object *object, const struct uuid *cid,
		   void (*next)(struct dom__takeover *t))
{
	struct dom *dom = t->owner->dom;
	Directory__Owner me = DIRECTORY__OWNER__INIT;
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;
	int rv;

	me.node.data = dom->node.b;
	me.node.len = sizeof(dom->node.b);
	me.incarnation = cmmds_incarnation(dom->cmmds);
	op.op = what;
	op.oid.data = t->owner->oid.b;
	op.oid.len = sizeof(t->owner->oid.b);
	op.expect_oepoch = object->oepoch;
	op.expect_csn = object->csn;
	op.owner = &me;
	if (cid != NULL) {
		op.cid.data = (uint8_t *)cid->b;
		op.cid.len = sizeof(cid->b);
	}
	t->next = next;
	cmmds_command_init(&t->cmd);
	cmmds_object_op(&t->cmd, &op);
	rv = cmmds_propose(dom->cmmds, &t->cmd, 0, commanded);
	if (rv < 0)
		cmmds_command_fini(&t->cmd);
	return rv;
}

static bool owned_by_me(const struct dom *dom, const Directory__Object *object)
{
	return object->owner != NULL &&
	       object->owner->node.len == sizeof(dom->node.b) &&
	       memcmp(object->owner->node.data, dom->node.b,
		      sizeof(dom->node.b)) == 0 &&
	       object->owner->incarnation == cmmds_incarnation(dom->cmmds);
}

/* ---- build: the tree, and a peer for every leaf ---- */

static void create_next(struct dom__takeover *t);

/* What SEAL would refuse, and what fitting to an older layout would destroy. */
static int comp_check(const struct dom *dom, const struct dom__leaf *leaf,
		      const struct dom__cm *cm, uint64_t csn)
{
	const struct lsom_comp_meta *meta = lsom_comp_meta(cm->comp);

	if (dom__rule(dom, 13) && meta->cinc != leaf->cinc)
		return -ENXIO;
	return meta->csn_seen > csn ? -ESTALE : 0;
}

/*
 * Every leaf that must be there is reachable, before an epoch is spent.  -ESTALE:
 * one has seen a newer layout than that of @csn.  @promised: the largest epoch
 * that they know of.
 */
static int leaves_check(struct dom__owner *owner, struct dom__tree *tree,
			uint64_t csn, uint64_t *promised)
{
	struct dom *dom = owner->dom;
	int rv;

	*promised = 0;
	for (unsigned i = 0; i < dom__tree_leaves_count(tree); i++) {
		struct dom__leaf *leaf = dom__tree_leaf(tree, i);
		struct dom__disk *disk = dom__disk_find(dom, &leaf->disk);
		struct dom__cm *cm;
		char cid[UUID_TEXT_LEN], oid[UUID_TEXT_LEN];

		uuid_format(&leaf->cid, cid);
		if (leaf->state != LSOM_ACTIVE) {
			log_warn("component %s is not ACTIVE and has no copy",
				 cid);
			return -ENXIO;
		}
		if (disk == NULL || disk->removing || !disk->healthy)
			return -ENXIO;
		if (!leaf->created)
			continue;
		rv = dom__cm_get(disk, &leaf->cid, &cm);
		if (rv == -ENOENT) {
			/* Initiators ask again and again. */
			uuid_format(&owner->oid, oid);
			if (log_allowed(&dom->gone_log, env_now(dom->env)))
				log_error("object %s cannot be opened: its "
					  "component %s is lost, its disk does "
					  "not have it",
					  oid, cid);
			return -ENXIO;
		}
		if (rv < 0)
			return rv;
		*promised = MAX(*promised, cm->promised_oepoch);
		rv = comp_check(dom, leaf, cm, csn);
		dom__cm_put(cm);
		if (rv < 0)
			return rv;
	}
	return 0;
}

static int tree_of(const Directory__Object *object, struct dom__tree **out)
{
	char why[160] = "";
	int rv = dom__tree_make(object->tree, object->size_bytes, out, why,
				sizeof(why));

	if (rv < 0)
		log_error("an object cannot be opened: %s",
			  why[0] ? why : err_text(rv));
	return rv;
}

static void granted(struct dom__takeover *t)
{
	struct dom__owner *owner = t->owner;
	const Directory__Object *object =
		cmmds_object(owner->dom->cmmds, &owner->oid);
	int rv;

	if (object == NULL || object->deleted) {
		takeover_end(t, -ENOENT);
		return;
	}
	if (!owned_by_me(owner->dom, object)) {
		takeover_end(t, -ENXIO);
		return;
	}
	if (owner->size_bytes != 0 && owner->size_bytes != object->size_bytes)
		dom__owner_event(owner, DOM_RESIZED);
	owner->oepoch = object->oepoch;
	owner->csn = object->csn;
	owner->size_bytes = object->size_bytes;
	owner->thick = clom_thick(object);
	dom__qos_load(owner);
	rv = tree_of(object, &owner->tree);
	if (rv < 0) {
		takeover_end(t, rv);
		return;
	}
	owner->leaves = dom__tree_leaves_count(owner->tree);
	owner->peers = calloc(owner->leaves, sizeof(*owner->peers));
	owner->groups = calloc(owner->leaves, sizeof(*owner->groups));
	if (owner->peers == NULL || owner->groups == NULL) {
		free(owner->peers);
		owner->peers = NULL;
		owner->leaves = 0;
		takeover_end(t, -ENOMEM);
		return;
	}
	for (unsigned i = 0; i < owner->leaves; i++) {
		struct dom__peer *peer = &owner->peers[i];

		peer->leaf = dom__tree_leaf(owner->tree, i);
		peer->data = t;
		peer->fence = (struct dom__fence){
			.cinc = peer->leaf->cinc,
			.member_csn = peer->leaf->member_csn,
			.oepoch = owner->oepoch,
		};
	}
	t->at = 0;
	create_next(t);
}

static void caught_up(struct cmmds_barrier *barrier, int status)
{
	struct dom__takeover *t =
		container_of(barrier, struct dom__takeover, barrier);

	t->current = true;
	if (status < 0)
		takeover_end(t, -ENXIO);
	else
		grant(t);
}

/* A component is newer than the entry: is that so behind a barrier, too? */
static int entry_older(struct dom__takeover *t)
{
	struct dom *dom = t->owner->dom;
	char oid[UUID_TEXT_LEN];

	if (!t->current)
		return cmmds_barrier(dom->cmmds, &t->barrier, caught_up);
	uuid_format(&t->owner->oid, oid);
	if (log_allowed(&dom->gone_log, env_now(dom->env)))
		log_error("object %s cannot be opened: its components are "
			  "newer than its entry in the directory",
			  oid);
	return -ENXIO;
}

/* What the sanitize was to do is gone from the mark: it does not go on. */
static int mark_empty(struct dom__takeover *t)
{
	struct dom *dom = t->owner->dom;
	const struct uuid *oid = &t->owner->oid;
	const struct cmmds_entry *entry =
		cmmds_get(dom->cmmds, CMMDS_OBJECT, oid->b, sizeof(oid->b));
	Directory__Object object = *(const Directory__Object *)entry->message;
	char text[UUID_TEXT_LEN];
	int rv;

	uuid_format(oid, text);
	log_error("object %s: its entry in the directory is older than its "
		  "components, and whether the sanitize that it tells of has "
		  "ended is not known: it does not go on",
		  text);
	object.sanitize.len = 0;
	t->next = grant;
	cmmds_command_init(&t->cmd);
	cmmds_put(&t->cmd, CMMDS_OBJECT, oid->b, sizeof(oid->b),
		  entry->revision, &object.base);
	rv = cmmds_propose(dom->cmmds, &t->cmd, 0, commanded);
	if (rv < 0)
		cmmds_command_fini(&t->cmd);
	return rv;
}

static void grant(struct dom__takeover *t)
{
	struct dom__owner *owner = t->owner;
	const Directory__Object *object =
		cmmds_object(owner->dom->cmmds, &owner->oid);
	struct dom__tree *tree;
	uint64_t promised = 0;
	int rv;

	if (object == NULL || object->deleted) {
		takeover_end(t, -ENOENT);
		return;
	}
	rv = tree_of(object, &tree);
	if (rv == 0) {
		rv = leaves_check(owner, tree, object->csn, &promised);
		dom__tree_free(tree);
	}
	if (rv == -ESTALE) {
		rv = entry_older(t);
	} else if (rv == 0 && promised > object->oepoch && object->sanitizing &&
		   object->sanitize.len > 0) {
		rv = mark_empty(t);
	} else if (rv == 0) {
		bool mine = owned_by_me(owner->dom, object);

		dom__owner_drop_leaves(owner);
		/* The sessions of another life of this daemon are gone. */
		if (object->owner != NULL && !mine)
			t->nexuses_lost = true;
		rv = command(t,
			     mine ? DIRECTORY__OBJECT_COMMAND__OP__RELEASE
				  : DIRECTORY__OBJECT_COMMAND__OP__GRANT,
			     object, NULL, mine ? grant : granted);
		if (rv == 0)
			t->grants++;
	}
	/* The directory takes so many commands at a time. */
	if (rv < 0 && !busy(t, rv, grant))
		takeover_end(t, rv);
}

/* ---- create ---- */

static void seal_all(struct dom__takeover *t);
static void create_recorded(struct dom__takeover *t);

/* The component at @t->at exists: into the directory. */
static void create_record(struct dom__takeover *t)
{
	const Directory__Object *object =
		cmmds_object(t->owner->dom->cmmds, &t->owner->oid);
	int rv = object == NULL
			 ? -ENOENT
			 : command(t, DIRECTORY__OBJECT_COMMAND__OP__CREATED,
				   object, &t->owner->peers[t->at].leaf->cid,
				   create_recorded);

	if (rv < 0 && !busy(t, rv, create_record))
		takeover_end(t, rv);
}

static void created(struct dom__cm_meta *req, int status)
{
	struct dom__peer *peer = container_of(req, struct dom__peer, meta);
	struct dom__takeover *t = peer->data;

	if (status < 0) {
		log_error("a component cannot be created: %s",
			  err_text(status));
		takeover_end(t, status == -ENOSPC ? -ENOSPC : -ENXIO);
		return;
	}
	create_record(t);
}

static void create_recorded(struct dom__takeover *t)
{
	struct dom__owner *owner = t->owner;
	const Directory__Object *object =
		cmmds_object(owner->dom->cmmds, &owner->oid);

	if (object == NULL || !owned_by_me(owner->dom, object) ||
	    object->oepoch != owner->oepoch) {
		takeover_end(t, -ENXIO);
		return;
	}
	owner->csn = object->csn;
	dom__tree_leaf(owner->tree, t->at)->created = true;
	t->at++;
	create_next(t);
}

static void create_next(struct dom__takeover *t)
{
	struct dom__owner *owner = t->owner;
	struct dom__peer *peer;
	struct dom__disk *disk;
	int rv;

	while (t->at < owner->leaves && owner->peers[t->at].leaf->created)
		t->at++;
	if (t->at == owner->leaves) {
		seal_all(t);
		return;
	}
	peer = &owner->peers[t->at];
	disk = dom__disk_find(owner->dom, &peer->leaf->disk);
	rv = disk == NULL || disk->removing
		     ? -ENXIO
		     : dom__cm_create(disk, &peer->meta, peer->leaf,
				      &owner->oid, owner->oepoch, owner->csn,
				      created);
	if (rv < 0 && !busy(t, rv, create_next))
		takeover_end(t, rv);
}

/* ---- seal ---- */

static void decide(struct dom__takeover *t);

static void seal_failed(struct dom__takeover *t, int status)
{
	if (t->status == 0 || t->status == -EBUSY)
		t->status = status;
}

static void sealed_one(struct dom__takeover *t)
{
	if (--t->left > 0)
		return;
	if (t->status == 0) {
		decide(t);
	} else if (!busy(t, t->status, seal_all)) {
		log_error("a component cannot be sealed: %s",
			  err_text(t->status));
		takeover_end(t, t->status == -ENOMEM ? -ENOMEM : -ENXIO);
	}
}

static void sealed(struct dom__cm_meta *req, int status)
{
	struct dom__peer *peer = container_of(req, struct dom__peer, meta);
	struct dom__takeover *t = peer->data;

	peer->sealed = status == 0;
	if (status < 0)
		seal_failed(t, status);
	sealed_one(t);
}

static int seal(struct dom__takeover *t, struct dom__peer *peer)
{
	struct dom__owner *owner = t->owner;
	struct dom__disk *disk = dom__disk_find(owner->dom, &peer->leaf->disk);
	int rv;

	if (disk == NULL || disk->removing)
		return -ENXIO;
	if (peer->cm == NULL) {
		rv = dom__cm_get(disk, &peer->leaf->cid, &peer->cm);
		if (rv < 0)
			return rv;
		peer->promised_oepoch = peer->cm->promised_oepoch;
	}
	return dom__cm_seal(peer->cm, &peer->meta, peer->leaf, owner->oepoch,
			    owner->csn, sealed);
}

/* All leaves, or those that were too busy before. */
static void seal_all(struct dom__takeover *t)
{
	struct dom__owner *owner = t->owner;

	/*
	 * A failure found at once must not end the takeover under the seals
	 * that are on their way: the last of them does.
	 */
	t->left = 1;
	t->status = 0;
	for (unsigned i = 0; i < owner->leaves; i++) {
		struct dom__peer *peer = &owner->peers[i];
		int rv;

		if (peer->sealed)
			continue;
		rv = seal(t, peer);
		if (rv < 0)
			seal_failed(t, rv);
		else
			t->left++;
	}
	sealed_one(t);
}

/* ---- decide ---- */

/*
 * Did the leaf lose what it had acknowledged?  Said loudly, once a takeover; see
 * the head of this file for what follows.
 */
static bool leaf_forgot(struct dom__takeover *t, unsigned i)
{
	struct dom__owner *owner = t->owner;
	const struct dom__peer *peer = &owner->peers[i];
	const struct lsom_comp_meta *meta = lsom_comp_meta(peer->cm->comp);
	const struct dom__known *known = dom__known_find(owner, &meta->cid);
	const char *why = NULL;
	char cid[UUID_TEXT_LEN];

	if (meta->damaged != 0)
		why = "its log is damaged, and what may be older than that "
		      "answers medium errors until it is written again";
	/* Amnesia (g1.4): both are written together, the first is larger. */
	if (dom__rule(owner->dom, 14) && meta->stable_lsn < meta->g_all)
		why = "its disk forgot what it had recorded";
	/* What this very daemon heard from it before (R14, R47). */
	if (dom__rule(owner->dom, 14) && known != NULL &&
	    (meta->stable_lsn < known->recorded_lsn ||
	     meta->max_lsn < known->durable_lsn ||
	     peer->promised_oepoch < known->oepoch))
		why = "its disk went back in time";
	if (why == NULL)
		return false;
	uuid_format(&meta->cid, cid);
	log_error("component %s lost acknowledged writes: %s; there is no "
		  "other copy, so what is left is served",
		  cid, why);
	return true;
}

static void fit(struct dom__takeover *t);

static void decided(void *arg, int status, unsigned count)
{
	struct dom__takeover *t = arg;

	t->records_count = count;
	if (status < 0)
		takeover_end(t, status);
	else
		fit(t);
}

static void decide(struct dom__takeover *t)
{
	struct dom__owner *owner = t->owner;
	int rv;

	for (unsigned i = 0; i < owner->leaves; i++)
		if (leaf_forgot(t, i))
			owner->lossy = true;
	rv = dom__decide_start(owner, t->patience_ns, decided, t);
	if (rv < 0)
		takeover_end(t, rv);
}

/* ---- fit ---- */

static void load(struct dom__takeover *t);

static void fitted(void *arg, int status)
{
	struct dom__takeover *t = arg;

	if (status < 0)
		takeover_end(t, status);
	else
		load(t);
}

/* All that came before is decided: the windows of this epoch begin. */
static void fit(struct dom__takeover *t)
{
	struct dom__owner *owner = t->owner;
	int rv;

	for (unsigned i = 0; i < owner->leaves; i++) {
		struct dom__peer *peer = &owner->peers[i];

		dom__group_init(&owner->groups[i], owner->oepoch,
				lsom_comp_meta(peer->cm->comp)->stable_lsn);
		owner->groups[i].leap = !dom__rule(owner->dom, 10);
		dom__cm_decided(peer->cm, &peer->fence,
				&owner->groups[i].decided);
	}
	rv = dom__fit_start(owner, t->patience_ns, fitted, t);
	if (rv < 0)
		takeover_end(t, rv);
}

/* ---- reservation, and go ---- */

/* Nobody would let go of a disk that went meanwhile. */
static bool disk_leaves(const struct dom__owner *owner)
{
	for (unsigned i = 0; i < owner->leaves; i++)
		if (owner->peers[i].cm->disk->removing)
			return true;
	return false;
}

static void loaded(struct cmmds_barrier *barrier, int status)
{
	struct dom__takeover *t =
		container_of(barrier, struct dom__takeover, barrier);
	struct dom__owner *owner = t->owner;

	if (status == 0)
		status = dom__pr_load(owner, t->nexuses_lost);
	if (status < 0 || disk_leaves(owner)) {
		takeover_end(t, -ENXIO);
		return;
	}
	if (t->records_count > 0)
		log_info("took over with %u undecided write%s",
			 t->records_count, t->records_count == 1 ? "" : "s");
	takeover_end(t, 0);
}

static void load(struct dom__takeover *t)
{
	int rv = cmmds_barrier(t->owner->dom->cmmds, &t->barrier, loaded);

	if (rv < 0)
		takeover_end(t, -ENXIO);
}

static void start_task(struct env_task *task)
{
	grant(container_of(task, struct dom__takeover, task));
}

int dom__takeover_start(struct dom__owner *owner)
{
	struct dom__takeover *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return -ENOMEM;
	t->owner = owner;
	t->patience_ns = env_now(owner->dom->env) + DOM_DEADLINE_NS;
	owner->takeover = t;
	t->task.cb = start_task;
	env_defer(owner->dom->env, &t->task);
	return 0;
}
