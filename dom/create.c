/*
 * create: new objects.
 *
 * A create is placed (clom.c), put into the directory in one command with what
 * the caller adds, and then opened once: takeover makes the components.  Where a
 * disk's entry has changed before the command comes true it is placed anew.
 *
 * What reserves space takes turns (room.c) from its look at the disks to the end of
 * its takeover.
 */
#define LOG_ROOM LOG_DOM
#include "dom/dom_int.h"

#include "base/log.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- what is placed on which disk ---- */

static unsigned leaves_on(const Directory__TreeNode *node,
			  const struct uuid *disk)
{
	struct uuid id;
	unsigned n = node->leaf != NULL &&
		     dom__uuid_of(&node->leaf->disk, &id) &&
		     uuid_equal(&id, disk);

	for (size_t i = 0; i < node->n_children; i++)
		n += leaves_on(node->children[i], disk);
	return n;
}

void dom_disk_components(struct dom *dom, const struct uuid *disk,
			 unsigned *counts)
{
	const struct dom__placed *placed = dom__placed_find(dom, disk);
	const struct cmmds_entry *entry = NULL;
	struct uuid oid;

	if (dom->objects_told && (placed != NULL || !dom->placed_lost)) {
		for (unsigned i = 0; placed != NULL && i < dom->parts; i++)
			counts[i] += placed->components[i];
		return;
	}
	while ((entry = cmmds_next(dom->cmmds, CMMDS_OBJECT, entry)) != NULL) {
		const Directory__Object *o = (const void *)entry->message;

		if (o != NULL && o->tree != NULL && dom__uuid_of(&o->oid, &oid))
			counts[dom__of(dom, &oid)->part] +=
				leaves_on(o->tree, disk);
	}
}

void dom__disks_expect(struct dom *dom, struct cmmds_command *cmd,
		       const Directory__TreeNode *tree)
{
	struct dom__disk *disk;

	TAILQ_FOREACH (disk, &dom->disks, link) {
		const struct cmmds_entry *entry = cmmds_get(
			dom->cmmds, CMMDS_DISK, disk->id.b, sizeof(disk->id.b));

		if (entry != NULL && leaves_on(tree, &disk->id) > 0)
			cmmds_expect(cmd, CMMDS_DISK, disk->id.b,
				     sizeof(disk->id.b), entry->revision);
	}
}

void dom__id_make(void *arg, struct uuid *out)
{
	uuid_make(((struct dom *)arg)->env, out);
}

bool dom__busy(struct dom *dom, struct dom__patience *p, int status,
	       void (*again)(struct env_timer *timer))
{
	uint64_t now = env_now(dom->env);

	if (p->until_ns == 0)
		p->until_ns = now + DOM_DEADLINE_NS;
	if (status != -EBUSY || dom->closing || now >= p->until_ns)
		return false;
	p->timer.cb = again;
	env_timer_start(dom->env, &p->timer, DOM__BUSY_NS);
	return true;
}

/* ---- create ---- */

#define ATTEMPTS_MAX 8u

struct create {
	struct dom_create *req;
	struct cmmds_command cmd;
	struct dom_object_open open;
	unsigned unknowns;
	struct dom__patience patience;
};

static void create_end(struct dom_create *req, int status)
{
	struct dom *dom = req->dom;

	if (status < 0 && req->why[0] == '\0')
		snprintf(req->why, sizeof(req->why), "%s", err_text(status));
	dom__turn_pass(dom, &req->turn, &req->oid, status);
	dom->jobs--;
	dom__kick(dom);
	req->cb(req, status);
}

static void create_stop(struct create *c, int status)
{
	struct dom_create *req = c->req;

	free(c);
	create_end(req, status);
}

static void create_opened(struct dom_object_open *open, int status)
{
	struct create *c = open->data;

	if (status == 0)
		dom_object_close(open->object);
	else if (status == -ENOENT)
		snprintf(c->req->why, sizeof(c->req->why),
			 "it was deleted while it was being made");
	else
		snprintf(c->req->why, sizeof(c->req->why),
			 "the object is in the directory, but its components "
			 "cannot be made: %s",
			 status == -ETIMEDOUT ? "a disk does not answer"
					      : err_text(status));
	create_stop(c, status);
}

static int create_start(struct dom_create *req);

/* Was it placed before a disk changed, as by the end of its scrub, or went? */
static bool create_is_outdated(struct dom_create *req, int status)
{
	return (status == -EAGAIN || status == -ENOENT) && !req->dom->closing &&
	       req->attempts++ < ATTEMPTS_MAX;
}

static void create_stored(struct cmmds_command *cmd, int status)
{
	struct create *c = container_of(cmd, struct create, cmd);
	struct dom_create *req = c->req;

	if (status == -ETIMEDOUT && c->unknowns++ < 3 &&
	    cmmds_propose_again(cmd, 0, create_stored) == 0)
		return;
	if (create_is_outdated(req, status)) {
		cmmds_command_fini(cmd);
		free(c);
		status = create_start(req);
		if (status < 0)
			create_end(req, status);
		return;
	}
	if (status < 0)
		snprintf(req->why, sizeof(req->why), "%s",
			 cmd->why[0] ? cmd->why : err_text(status));
	cmmds_command_fini(cmd);
	if (status == 0) {
		c->open.data = c;
		status = dom_object_open(req->dom, &c->open, &req->oid,
					 create_opened);
		if (status == 0)
			return;
	}
	create_stop(c, status);
}

static void create_again(struct env_timer *timer);

/* 0: create_stored(), later. */
static int create_propose(struct create *c)
{
	struct dom *dom = c->req->dom;
	int rv = cmmds_propose(dom->cmmds, &c->cmd, 0, create_stored);

	return dom__busy(dom, &c->patience, rv, create_again) ? 0 : rv;
}

static void create_again(struct env_timer *timer)
{
	struct create *c = container_of(timer, struct create, patience.timer);
	int rv = create_propose(c);

	if (rv < 0)
		create_stored(&c->cmd, rv);
}

/* The policy that @req names, or none.  0; -ENOENT. */
static int policy_find(struct dom *dom, struct dom_create *req,
		       const Directory__Policy **out)
{
	const char *name = req->policy ? req->policy : "";

	*out = name[0] != '\0' ? cmmds_policy(dom->cmmds, name) : NULL;
	if (name[0] == '\0' || *out != NULL)
		return 0;
	snprintf(req->why, sizeof(req->why), "there is no policy '%.64s'",
		 name);
	return -ENOENT;
}

static void create_command(struct create *c, const Directory__Object *object)
{
	struct dom_create *req = c->req;
	char oid[UUID_TEXT_LEN];

	cmmds_command_init(&c->cmd);
	cmmds_put(&c->cmd, CMMDS_OBJECT, req->oid.b, sizeof(req->oid.b),
		  CMMDS_MUST_NOT_EXIST, &object->base);
	dom__disks_expect(req->dom, &c->cmd, object->tree);
	uuid_format(&req->oid, oid);
	if (req->commit != NULL)
		req->commit(req, &c->cmd);
	else
		cmmds_audit(&c->cmd, req->who ? req->who : "",
			    "object %s created, %llu bytes", oid,
			    (unsigned long long)req->size_bytes);
}

/* Place it, and propose it, now or later.  Below 0: nothing was done. */
static int create_start(struct dom_create *req)
{
	struct dom *dom = req->dom;
	Directory__Object object = DIRECTORY__OBJECT__INIT;
	struct clom_request place = { .size_bytes = req->size_bytes,
				      .csn = 1,
				      .uuid_make = dom__id_make,
				      .arg = dom };
	bool forced = false;
	struct dom__look s;
	struct create *c;
	int rv = policy_find(dom, req, &place.policy);

	if (rv < 0)
		return rv;
	place.reserved_bytes = clom_reserved(place.policy, req->size_bytes);
	rv = dom__look(dom, &req->oid, &s);
	if (rv < 0)
		return rv;
	rv = clom_place(&s.clom, &place, &object.tree, &forced, req->why,
			sizeof(req->why));
	free(s.disks);
	if (rv == -ENOSPC &&
	    dom__turn_again(dom, &req->turn, &rv, req->why, sizeof(req->why)))
		return 0;
	if (rv < 0)
		return rv;
	object.oid.data = req->oid.b;
	object.oid.len = sizeof(req->oid.b);
	object.csn = 1;
	object.size_bytes = req->size_bytes;
	object.policy = (char *)(req->policy ? req->policy : "");
	object.forced = forced;
	object.reserved_bytes = place.reserved_bytes;
	c = calloc(1, sizeof(*c));
	if (c != NULL) {
		c->req = req;
		create_command(c, &object);
		rv = create_propose(c);
	} else {
		rv = -ENOMEM;
	}
	directory__tree_node__free_unpacked(object.tree, NULL);
	if (rv < 0 && c != NULL) {
		cmmds_command_fini(&c->cmd);
		free(c);
	}
	return rv;
}

static void create_turn(struct dom_turn *turn, int status)
{
	struct dom_create *req = container_of(turn, struct dom_create, turn);
	int rv = status < 0 ? status : create_start(req);

	dom__turn_why(req->why, sizeof(req->why), status);
	if (rv < 0)
		create_end(req, rv);
}

int dom_create(struct dom *dom, struct dom_create *req, dom_create_cb cb)
{
	const Directory__Policy *policy;
	int rv;

	req->why[0] = '\0';
	req->dom = dom;
	req->cb = cb;
	req->turn.mine = false;
	req->attempts = 0;
	if (dom->closing)
		return -ESHUTDOWN;
	if (req->size_bytes == 0 || req->size_bytes % DOM_SECTOR)
		return -EINVAL;
	rv = policy_find(dom, req, &policy);
	if (rv < 0)
		return rv;
	if (uuid_is_zero(&req->oid))
		uuid_make(dom->env, &req->oid);
	if (clom_reserved(policy, req->size_bytes) == 0 ||
	    dom__turn_take(dom, &req->turn, create_turn))
		rv = create_start(req);
	if (rv < 0)
		dom__turn_end(dom, &req->turn);
	else
		dom->jobs++;
	return rv;
}
