/*
 * resize: another size for an object that there is.
 *
 * It is the owner's, as it changes the layout: the owner comes to rest, the new
 * tree goes into the directory, and the takeover that follows, and any later
 * one, fits the components (takeover_fit.c).  So nothing is cut off that the
 * directory did not let go.  Bytes behind the end of an object within its last
 * block stay as they are, and are zeroed before it grows.
 *
 * A disk may turn out to be dead only when it shall take a component of a tree
 * that has grown.  By then the directory has the new tree, and the object cannot
 * be opened.  So what never came into being (cut.c) can be cut off again without
 * an owner that serves.
 *
 * Rest, and that takeover, wait for a disk that hangs; who asked does not, nor,
 * before there is a new size, do the commands that would wait with it.
 */
#define LOG_ROOM LOG_DOM
#include "dom/dom_int.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

struct dom__resize {
	struct dom_resize *req;
	struct dom__owner *owner;
	struct cmmds_command cmd;
	struct dom_object_open open;
	struct dom_io tail;
	unsigned unknowns;
	bool proposed;
	int closed; /* why the object cannot be opened: without it; 0 */
	struct env_timer late; /* for rest, and for the takeover */
	struct dom__patience patience;
};

void dom__resize_end(struct dom_resize *req, int status)
{
	struct dom *dom = req->dom;

	if (status == -ENOSPC && !req->stored &&
	    dom__turn_again(dom, &req->turn, &status, req->why,
			    sizeof(req->why)))
		return;
	dom__turn_pass(dom, &req->turn, &req->oid, status);
	dom->jobs--;
	dom__kick(dom);
	req->cb(req, status);
}

/* It may be taken over again. */
static void closed_over(struct dom__resize *r)
{
	if (r->closed < 0)
		r->owner->state = DOM__DOWN;
	r->closed = 0;
}

static void resize_end(struct dom__resize *r, int status)
{
	struct dom_resize *req = r->req;
	struct dom__owner *owner = r->owner;

	if (status < 0 && req->why[0] == '\0')
		snprintf(req->why, sizeof(req->why), "%s", err_text(status));
	env_timer_stop(owner->dom->env, &r->late);
	closed_over(r);
	owner->resize = NULL;
	owner->resizing = false;
	if (owner->state == DOM__READY) {
		owner->hold = owner->restart || owner->deleted;
		dom__op_start_parked(owner);
	}
	dom__owner_put(owner);
	dom__owner_step(owner);
	free(r);
	dom__resize_end(req, status);
}

static void resize_late(struct env_timer *timer)
{
	struct dom__resize *r = container_of(timer, struct dom__resize, late);
	struct dom_resize *req = r->req;

	if (r->proposed && !req->stored)
		return; /* the directory's answer ends that */
	dom__cut_forget(r->owner);
	snprintf(req->why, sizeof(req->why), "%sa disk of it does not answer",
		 req->stored ? "the size is stored, but the object cannot be "
			       "opened: "
			     : "");
	resize_end(r, req->stored ? -ENXIO : -EBUSY);
}

static void late_arm(struct dom__resize *r)
{
	r->late.cb = resize_late;
	env_timer_start(r->owner->dom->env, &r->late, DOM__OPEN_NS);
}

static void resize_stored(struct cmmds_command *cmd, int status)
{
	struct dom__resize *r = container_of(cmd, struct dom__resize, cmd);
	struct dom__owner *owner = r->owner;

	if (status == -ETIMEDOUT && r->unknowns++ < 3 &&
	    cmmds_propose_again(cmd, 0, resize_stored) == 0)
		return;
	if (status < 0)
		snprintf(r->req->why, sizeof(r->req->why), "%s",
			 cmd->why[0] ? cmd->why : err_text(status));
	cmmds_command_fini(cmd);
	if (status < 0) {
		/* The entry may have changed under us: read it again. */
		owner->restart = true;
		resize_end(r, status);
		return;
	}
	r->req->stored = true;
	closed_over(r);
	late_arm(r);
	owner->restart = true; /* the next takeover fits the components */
	owner->hold = true;
	dom__owner_step(owner);
}

static void resize_again(struct env_timer *timer);

static void resize_send(struct dom__resize *r)
{
	struct dom *dom = r->owner->dom;
	int rv = cmmds_propose(dom->cmmds, &r->cmd, 0, resize_stored);

	if (rv == 0 || dom__busy(dom, &r->patience, rv, resize_again))
		return;
	cmmds_command_fini(&r->cmd);
	resize_end(r, rv);
}

static void resize_again(struct env_timer *timer)
{
	resize_send(container_of(timer, struct dom__resize, patience.timer));
}

static void resize_propose(struct dom__owner *owner)
{
	struct dom__resize *r = owner->resize;
	struct dom *dom = owner->dom;
	const Directory__Object *object = cmmds_object(dom->cmmds, &owner->oid);
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;
	const Directory__Policy *policy;
	Directory__TreeNode *tree = NULL;
	struct dom__look s;
	int rv;

	r->proposed = true;
	if (object == NULL || object->deleted) {
		resize_end(r, -ENOENT);
		return;
	}
	policy = object->policy[0] ? cmmds_policy(dom->cmmds, object->policy)
				   : NULL;
	op.reserved_bytes =
		clom_resized(policy, object->size_bytes, object->reserved_bytes,
			     r->req->size_bytes);
	rv = dom__look(dom, &r->req->oid, &s);
	if (rv == 0) {
		rv = clom__resize(&s.clom,
				  &(struct clom_request){
					  .policy = policy,
					  .size_bytes = r->req->size_bytes,
					  .reserved_bytes = op.reserved_bytes,
					  .csn = object->csn + 1,
					  .uuid_make = dom__id_make,
					  .arg = dom },
				  object, &tree, r->req->why,
				  sizeof(r->req->why));
		free(s.disks);
	}
	if (rv == 0 && r->closed < 0 && !dom__cut_is_void(dom, object, tree)) {
		directory__tree_node__free_unpacked(tree, NULL);
		rv = r->closed;
	}
	if (rv < 0) {
		resize_end(r, rv);
		return;
	}
	assert(tree != NULL);
	op.op = DIRECTORY__OBJECT_COMMAND__OP__RESIZE;
	op.oid.data = owner->oid.b;
	op.oid.len = sizeof(owner->oid.b);
	op.expect_oepoch = object->oepoch;
	op.expect_csn = object->csn;
	op.tree = tree;
	op.size_bytes = r->req->size_bytes;
	op.reserved_set = true;
	cmmds_command_init(&r->cmd);
	cmmds_object_op(&r->cmd, &op);
	dom__disks_expect(dom, &r->cmd, tree);
	directory__tree_node__free_unpacked(tree, NULL);
	if (r->req->commit != NULL)
		r->req->commit(r->req, &r->cmd);
	resize_send(r);
}

static void resize_cut_checked(struct dom__owner *owner, int status)
{
	struct dom__resize *r = owner->resize;

	if (owner->restart || owner->deleted) {
		dom__owner_step(owner); /* quiet comes again, or its end */
	} else if (status < 0) {
		snprintf(r->req->why, sizeof(r->req->why),
			 status == -ENOTEMPTY
				 ? "data is written behind the new end"
				 : "whether data is written behind the new end "
				   "cannot be read now: %s",
			 err_text(status));
		resize_end(r, status);
	} else {
		resize_propose(owner);
	}
}

/* Nothing runs at the owner, nor will before the resize ends: do it. */
void dom__resize_quiet(struct dom__owner *owner)
{
	struct dom__resize *r = owner->resize;

	if (r->proposed)
		return;
	if (r->req->undo)
		resize_end(r, -EALREADY);
	else if (r->req->keep_data && r->req->size_bytes < owner->size_bytes)
		dom__cut_check(owner, r->req->size_bytes, resize_cut_checked);
	else
		resize_propose(owner);
}

/* May it go on though its object is closed? */
static bool resize_may_close(const struct dom__resize *r)
{
	const struct dom__owner *owner = r->owner;
	const Directory__Object *object =
		cmmds_object(owner->dom->cmmds, &owner->oid);

	return (r->req->undo || !r->req->keep_data) && !owner->deleted &&
	       !owner->dom->closing && object != NULL && !object->deleted &&
	       r->req->size_bytes < object->size_bytes;
}

/*
 * The object cannot be opened, because of @status: go on without, or end.  Nobody
 * takes it over while the command is on its way.
 */
static void resize_closed(struct dom__resize *r, int status)
{
	if (!resize_may_close(r)) {
		resize_end(r, status);
		return;
	}
	assert(r->owner->state == DOM__DOWN);
	r->owner->state = DOM__RELEASING;
	r->closed = status;
	resize_propose(r->owner);
}

/*
 * A takeover ended, with the new layout or without one, or none is to come.
 * While the command is on its way its answer ends the resize.
 */
void dom__resize_taken(struct dom__owner *owner, int status)
{
	struct dom__resize *r = owner->resize;

	if (r == NULL || (r->proposed && !r->req->stored) ||
	    (status == 0 && !r->req->stored))
		return;
	if (!r->proposed) {
		resize_closed(r, status);
		return;
	}
	if (status == 0)
		dom__gc_look(owner->dom, &owner->oid);
	else
		snprintf(r->req->why, sizeof(r->req->why),
			 "the size is stored, but the object cannot be opened: "
			 "%s",
			 err_text(status));
	resize_end(r, status);
}

/*
 * Ask for quiet; dom__resize_quiet() goes on, or dom__resize_taken() where the
 * object is closed.
 */
static void resize_begin(struct dom__resize *r)
{
	if (r->open.object != NULL)
		dom_object_close(r->open.object);
	r->owner->resize = r;
	r->owner->hold = true;
	late_arm(r);
	dom__owner_step(r->owner);
}

static void resize_tail(struct dom_io *io, int status)
{
	struct dom__resize *r = io->data;

	if (status == 0) {
		resize_begin(r);
		return;
	}
	dom_object_close(r->open.object);
	resize_end(r, status);
}

static void resize_opened(struct dom_object_open *open, int status)
{
	struct dom__resize *r = open->data;
	uint64_t old_bytes = r->owner->size_bytes;

	if (status == -ETIMEDOUT) {
		snprintf(r->req->why, sizeof(r->req->why),
			 "a disk of it does not answer");
		status = -EBUSY;
	}
	if (status < 0 && (status == -EBUSY || !resize_may_close(r))) {
		resize_end(r, status);
		return;
	}
	if (status < 0 && r->owner->state == DOM__DOWN) {
		r->owner->resize = r;
		resize_closed(r, status);
		return;
	}
	if (status < 0 || r->req->size_bytes <= old_bytes ||
	    old_bytes % DOM_BLOCK == 0) {
		resize_begin(r);
		return;
	}
	r->tail.data = r;
	status = dom__unmap_tail(open->object, &r->tail, resize_tail);
	if (status < 0)
		resize_tail(&r->tail, status);
}

static int resize_start(struct dom_resize *req)
{
	struct dom *dom = req->dom;
	struct dom__owner *owner;
	struct dom__resize *r;
	int rv;

	if (!dom__mine(dom, &req->oid))
		return dom__far_resize(dom, req);
	r = calloc(1, sizeof(*r));
	owner = r ? dom__owner_get(dom, &req->oid) : NULL;
	if (owner == NULL) {
		free(r);
		return -ENOMEM;
	}
	r->req = req;
	r->owner = owner;
	r->open.data = r;
	rv = owner->resizing
		     ? -EBUSY
		     : dom_object_open(dom, &r->open, &req->oid, resize_opened);
	if (rv < 0) {
		dom__owner_put(owner);
		free(r);
		return rv;
	}
	owner->resizing = true;
	return 0;
}

static void resize_turn(struct dom_turn *turn, int status)
{
	struct dom_resize *req = container_of(turn, struct dom_resize, turn);
	int rv = status < 0 ? status : resize_start(req);

	dom__turn_why(req->why, sizeof(req->why), status);
	if (rv < 0)
		dom__resize_end(req, rv);
}

/* Is more to be reserved than is? */
static bool resize_reserves(struct dom *dom, const struct dom_resize *req)
{
	const Directory__Object *o = cmmds_object(dom->cmmds, &req->oid);

	return o != NULL &&
	       clom_resized(o->policy[0] ? cmmds_policy(dom->cmmds, o->policy)
					 : NULL,
			    o->size_bytes, o->reserved_bytes,
			    req->size_bytes) > o->reserved_bytes;
}

static int resize_ask(struct dom *dom, struct dom_resize *req, bool turns,
		      dom_resize_cb cb)
{
	int rv = 0;

	req->why[0] = '\0';
	req->stored = false;
	req->dom = dom;
	req->cb = cb;
	req->turn.mine = false;
	if (req->size_bytes == 0 || req->size_bytes % DOM_SECTOR)
		return -EINVAL;
	if (!turns || !resize_reserves(dom, req) ||
	    dom__turn_take(dom, &req->turn, resize_turn))
		rv = resize_start(req);
	if (rv < 0)
		dom__turn_end(dom, &req->turn);
	else
		dom->jobs++;
	return rv;
}

int dom_resize(struct dom *dom, struct dom_resize *req, dom_resize_cb cb)
{
	return resize_ask(dom, req, true, cb);
}

int dom__resize_there(struct dom *dom, struct dom_resize *req, dom_resize_cb cb)
{
	return resize_ask(dom, req, false, cb);
}
