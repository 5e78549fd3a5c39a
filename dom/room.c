/*
 * room: who reserves space looks at the disks for it, one after the other.
 *
 * A look counts what is used and kept on a disk.  What somebody else has just
 * reserved is there to be seen once the directory has it and lsom was told of it
 * (space.c).  So what reserves takes turns, from its look to the end of that; if
 * nobody knows whether the directory has it, the next one waits until that is
 * to be seen.  That may be long, so who waits too long is refused; what may have
 * been reserved stays in front of all others.
 *
 * What was deleted gives its space back by and by: a shard's collector hears of it,
 * deletes its components, and their disks release their pages.  Who finds no room
 * waits for the end of that, and looks once more.  A disk that hangs is not waited
 * for: it may do so for ever.
 *
 * A promise is more reserved for an object that there is.  Its components stay
 * where they are, so each of their disks must have what will be kept for it and is
 * not yet.  What it has written is not kept, and only the object's shard knows
 * how much that is.
 */
#include "dom/dom_int.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- what clom looks at ---- */

struct dom__placed *dom__placed_find(struct dom *dom, const struct uuid *disk)
{
	struct dom__placed *placed;

	TAILQ_FOREACH (placed, &dom->placed, link) {
		if (uuid_equal(&placed->disk, disk))
			return placed;
	}
	return NULL;
}

static struct dom__placed *placed_make(struct dom *dom, const struct uuid *disk)
{
	struct dom__placed *placed =
		calloc(1, sizeof(*placed) +
				  dom->parts * sizeof(placed->components[0]));

	if (placed != NULL) {
		placed->disk = *disk;
		placed->number = dom->placed_count++;
		TAILQ_INSERT_TAIL(&dom->placed, placed, link);
	}
	return placed;
}

/* Once there was no memory for one, what it had to count is not known any more. */
static struct dom__placed *placed_get(struct dom *dom, const struct uuid *disk)
{
	struct dom__placed *placed = dom__placed_find(dom, disk);

	if (placed == NULL && !dom->placed_lost) {
		placed = placed_make(dom, disk);
		dom->placed_lost = placed == NULL;
	}
	return placed;
}

/*
 * @node's leaf of @object: what it is promised, and what is reserved for it while
 * lsom does not know of it.  @sign 1: it comes; -1: it goes.
 */
static void leaf_count(struct dom__placed *placed,
		       const Directory__Object *object,
		       const Directory__TreeNode *node, unsigned part, int sign)
{
	placed->components[part] += (unsigned)sign;
	if (object->deleted)
		return;
	placed->promised_bytes += node->size_bytes * (uint64_t)sign;
	if (object->reserved_bytes > 0 && !node->leaf->created)
		placed->uncreated_bytes +=
			clom_share(node->size_bytes, object->size_bytes,
				   object->reserved_bytes) *
			(uint64_t)sign;
}

/* Those of one object on the disk of @only, or NULL: on all disks. */
static void leaves_count(struct dom *dom, struct dom__placed *only,
			 const Directory__Object *object,
			 const Directory__TreeNode *node, unsigned part,
			 int sign)
{
	struct dom__placed *placed = NULL;
	struct uuid id;

	if (node->leaf != NULL && dom__uuid_of(&node->leaf->disk, &id)) {
		if (only == NULL)
			placed = placed_get(dom, &id);
		else if (uuid_equal(&only->disk, &id))
			placed = only;
	}
	if (placed != NULL)
		leaf_count(placed, object, node, part, sign);
	if (only == NULL && node->leaf != NULL && !object->deleted &&
	    node->type == DIRECTORY__TREE_NODE__TYPE__COMPONENT)
		dom->provisioned_bytes += node->size_bytes * (uint64_t)sign;
	for (size_t i = 0; i < node->n_children; i++)
		leaves_count(dom, only, object, node->children[i], part, sign);
}

static void entry_count(struct dom *dom, struct dom__placed *only,
			const struct cmmds_entry *entry, int sign)
{
	const Directory__Object *o =
		entry != NULL ? (const void *)entry->message : NULL;
	struct uuid oid;

	if (o == NULL || o->tree == NULL || !dom__uuid_of(&o->oid, &oid))
		return;
	leaves_count(dom, only, o, o->tree,
		     (unsigned)(uuid_hash(&oid) % dom->parts), sign);
	if (only == NULL && !o->deleted)
		dom->reserved_bytes += o->reserved_bytes * (uint64_t)sign;
}

void dom__promises_change(struct dom *dom, const struct cmmds_change *change)
{
	dom->objects_told = true;
	entry_count(dom, NULL, change->old_entry, -1);
	entry_count(dom, NULL, change->new_entry, 1);
}

struct dom__placed *dom__promises_look(struct dom *dom, const struct uuid *disk)
{
	struct dom__placed *placed = dom__placed_find(dom, disk);
	const struct cmmds_entry *entry = NULL;

	if (placed != NULL)
		return placed;
	placed = placed_make(dom, disk);
	while (placed != NULL && dom->placed_lost &&
	       (entry = cmmds_next(dom->cmmds, CMMDS_OBJECT, entry)) != NULL)
		entry_count(dom, placed, entry, 1);
	return placed;
}

void dom_provisioned(const struct dom *dom, uint64_t *provisioned_bytes,
		     uint64_t *reserved_bytes)
{
	*provisioned_bytes = dom->provisioned_bytes;
	*reserved_bytes = dom->reserved_bytes;
}

int dom__look(struct dom *dom, const struct uuid *oid, struct dom__look *look)
{
	const struct cmmds_entry *entry;
	struct dom__disk *disk;
	unsigned n = 0;

	TAILQ_FOREACH (disk, &dom->disks, link)
		n++;
	look->disks = calloc(n ? n : 1, sizeof(*look->disks));
	if (look->disks == NULL)
		return -ENOMEM;
	look->clom = (struct clom_snapshot){ .disks = look->disks };
	TAILQ_FOREACH (disk, &dom->disks, link) {
		struct clom_disk *out = &look->disks[look->clom.disks_count++];
		const Directory__Disk *msg;

		dom__disk_look(disk);
		entry = cmmds_get(dom->cmmds, CMMDS_DISK, disk->id.b,
				  sizeof(disk->id.b));
		msg = entry ? (const void *)entry->message : NULL;
		out->disk = disk->id;
		out->node = dom->node;
		uuid_format(&dom->node, out->fault_domain);
		out->usable_bytes = disk->usable_bytes;
		out->used_bytes = disk->used_bytes;
		out->kept_bytes =
			disk->kept_bytes + disk->placed->uncreated_bytes;
		out->promised_bytes = disk->placed->promised_bytes;
		out->components = disk->components;
		/* Nobody waits for one that hangs. */
		out->healthy = disk->healthy && !disk->silent;
		out->near = disk->shard == dom__of(dom, oid)->part;
		/* Not yet in the directory, or no more: nothing goes there. */
		out->removing = disk->removing || msg == NULL || msg->removing;
	}
	return 0;
}

/* ---- turns ---- */

static void turn_next(struct env_task *task)
{
	struct dom *dom = container_of(task, struct dom, turn_task);
	struct dom_turn *turn = TAILQ_FIRST(&dom->turns);

	if (turn == NULL || turn->mine)
		return;
	turn->mine = true;
	turn->cb(turn, dom->closing ? -ESHUTDOWN : 0);
}

/* The one that waits longest; all may wait equally long. */
static struct dom_turn *turn_waits(struct dom *dom)
{
	struct dom_turn *first = TAILQ_FIRST(&dom->turns);

	return first != NULL ? TAILQ_NEXT(first, link) : NULL;
}

static void turns_late(struct env_timer *timer);

static void turns_arm(struct dom *dom)
{
	struct dom_turn *turn = turn_waits(dom);
	uint64_t now = env_now(dom->env);

	dom->turn_timer.cb = turns_late;
	if (turn == NULL)
		env_timer_stop(dom->env, &dom->turn_timer);
	else
		env_timer_start(dom->env, &dom->turn_timer,
				turn->until_ns - MIN(now, turn->until_ns));
}

static void turns_late(struct env_timer *timer)
{
	struct dom *dom = container_of(timer, struct dom, turn_timer);
	struct dom_turn *turn;

	while ((turn = turn_waits(dom)) != NULL &&
	       turn->until_ns <= env_now(dom->env)) {
		TAILQ_REMOVE(&dom->turns, turn, link);
		turn->cb(turn, -EBUSY);
	}
	turns_arm(dom);
}

bool dom__turn_take(struct dom *dom, struct dom_turn *turn,
		    void (*cb)(struct dom_turn *turn, int status))
{
	turn->dom = dom;
	turn->waited = false;
	turn->mine = TAILQ_EMPTY(&dom->turns);
	turn->cb = cb;
	turn->until_ns = env_now(dom->env) + DOM__TURN_NS;
	TAILQ_INSERT_TAIL(&dom->turns, turn, link);
	turns_arm(dom);
	return turn->mine;
}

void dom__turn_why(char *why, size_t len, int status)
{
	if (status == -EBUSY)
		snprintf(why, len,
			 "another command that reserves space has not come to "
			 "its end");
}

void dom__turn_end(struct dom *dom, struct dom_turn *turn)
{
	if (!turn->mine)
		return;
	turn->mine = false;
	TAILQ_REMOVE(&dom->turns, turn, link);
	turns_arm(dom);
	if (!TAILQ_EMPTY(&dom->turns)) {
		dom->turn_task.cb = turn_next;
		env_defer(dom->env, &dom->turn_task);
	}
}

/* ---- a turn that finds no room ---- */

static void freeing_ask(struct dom_turn *turn);

static void freeing_again(struct env_timer *timer)
{
	freeing_ask(container_of(timer, struct dom_turn, patience.timer));
}

/* What no shard is to delete any more may be on its disk's list yet. */
static void here_freeing(struct env_task *task)
{
	struct dom_turn *turn = container_of(task, struct dom_turn, task);
	struct dom *dom = turn->dom;
	struct dom__disk *disk;

	TAILQ_FOREACH (disk, &dom->disks, link) {
		dom__disk_look(disk);
		turn->freeing |=
			disk->freeing && disk->healthy && !disk->silent;
	}
	if (turn->freeing &&
	    dom__busy(dom, &turn->patience, -EBUSY, freeing_again))
		return;
	turn->cb(turn, dom->closing ? -ESHUTDOWN : 0);
}

/* It has heard of what was deleted: that was posted before. */
static void there_freeing(struct env_task *task)
{
	struct dom_turn *turn = container_of(task, struct dom_turn, task);

	turn->freeing |= dom__gc_pending(dom__part(turn->dom, turn->part));
	if (++turn->part < turn->dom->parts) {
		env_post(dom__part(turn->dom, turn->part)->env, task);
		return;
	}
	task->cb = here_freeing;
	env_post(turn->dom->env, task);
}

static void freeing_ask(struct dom_turn *turn)
{
	turn->freeing = false;
	turn->part = 0;
	turn->task.cb = there_freeing;
	env_post(dom__part(turn->dom, turn->part)->env, &turn->task);
}

bool dom__turn_again(struct dom *dom, struct dom_turn *turn, int *status,
		     char *why, size_t len)
{
	if (!turn->mine || dom->closing)
		return false;
	if (!turn->waited) {
		why[0] = '\0';
		turn->waited = true;
		turn->patience.until_ns = 0;
		freeing_ask(turn);
		return true;
	}
	if (turn->freeing) {
		*status = -EBUSY;
		snprintf(why, len,
			 "there is no room for it yet, as the space of what "
			 "was deleted is still being freed");
	}
	return false;
}

/* ---- a turn whose end is not to be seen yet ---- */

static void here_told(struct env_task *task)
{
	struct dom *dom = container_of(task, struct dom, told_task);

	dom__turn_end(dom, &dom->untold);
	dom->jobs--;
	dom__kick(dom);
}

/*
 * What is reserved goes to a disk's home one way (lsom_comp_reserve()): it is
 * there to be seen when what was posted behind it has come by.
 */
static void homes_told(struct env_task *task)
{
	struct dom *dom = container_of(task, struct dom, told_task);

	if (++dom->told_at < dom->parts) {
		env_post(dom->all[dom->told_at]->env, task);
		return;
	}
	task->cb = here_told;
	env_post(dom->env, task);
}

static void there_told(struct env_task *task);

/* The directory has not answered: it is asked again unless this dom is closing. */
static void here_untold(struct env_task *task)
{
	struct dom *dom = container_of(task, struct dom, told_task);

	if (dom->closing) {
		here_told(task);
		return;
	}
	task->cb = there_told;
	env_post(dom->untold_there->env, task);
}

static void told(struct cmmds_barrier *barrier, int status)
{
	struct dom *dom = container_of(barrier, struct dom, told);

	if (status == -ETIMEDOUT) {
		dom->told_task.cb = here_untold;
		env_post(dom->env, &dom->told_task);
		return;
	}
	dom->told_at = 0;
	dom->told_task.cb = homes_told;
	env_post(dom__part(dom, 0)->env, &dom->told_task);
}

static void there_told(struct env_task *task)
{
	struct dom *dom = container_of(task, struct dom, told_task);
	int rv = cmmds_barrier(dom->untold_there->cmmds, &dom->told, told);

	if (rv < 0)
		told(&dom->told, rv);
}

/*
 * @turn ends once the shard of @oid, which tells the disks, has seen what the
 * directory may have taken, and the disks know.
 */
static void turn_end_told(struct dom *dom, struct dom_turn *turn,
			  const struct uuid *oid)
{
	dom->jobs++;
	dom->untold.mine = true;
	TAILQ_INSERT_HEAD(&dom->turns, &dom->untold, link);
	dom->untold_there = dom__of(dom, oid);
	dom->told_task.cb = there_told;
	env_post(dom->untold_there->env, &dom->told_task);
	dom__turn_end(dom, turn);
}

void dom__turn_pass(struct dom *dom, struct dom_turn *turn,
		    const struct uuid *oid, int status)
{
	if (turn->mine && status == -ETIMEDOUT)
		turn_end_told(dom, turn, oid);
	else
		dom__turn_end(dom, turn);
}

/* ---- promises ---- */

static const char *promise_why(int status)
{
	switch (status) {
	case -ENXIO:
		return "a disk of it is not in service";
	case -ENODATA:
		return "how much of it is written is being counted";
	case -EAGAIN:
		return "it has just been changed";
	default:
		return err_text(status);
	}
}

static void promise_end(struct dom_promise *req, int status)
{
	struct dom *dom = req->dom;

	if (status < 0 && req->why[0] == '\0')
		snprintf(req->why, sizeof(req->why), "%s", promise_why(status));
	if (status < 0) { /* else both are until dom_promise_end() */
		dom__turn_end(dom, &req->turn);
		dom->jobs--;
		dom__kick(dom);
	}
	req->cb(req, status);
}

static int promise_check(struct dom_promise *req)
{
	struct dom *dom = req->dom;
	const struct cmmds_entry *entry = cmmds_get(
		dom->cmmds, CMMDS_OBJECT, req->oid.b, sizeof(req->oid.b));
	struct dom__look look;
	int rv;

	/* As it was when its shard looked: so are its leaves. */
	if (entry == NULL || entry->revision != req->revision)
		return -EAGAIN;
	rv = dom__look(dom, &req->oid, &look);
	if (rv < 0)
		return rv;
	rv = clom__promise(&look.clom, (const void *)entry->message,
			   req->reserved_bytes, req->used, req->why,
			   sizeof(req->why));
	free(look.disks);
	return rv;
}

static void here_promise(struct env_task *task)
{
	struct dom_promise *req = container_of(task, struct dom_promise, task);
	int rv = req->status;

	if (rv == 0)
		rv = req->dom->closing ? -ESHUTDOWN : promise_check(req);
	free(req->used);
	req->used = NULL;
	if (rv == -ENOSPC && dom__turn_again(req->dom, &req->turn, &rv,
					     req->why, sizeof(req->why)))
		return;
	promise_end(req, rv);
}

/* What each leaf has mapped, in the order of the tree, behind @used. */
static int leaves_used(struct dom *dom, const Directory__TreeNode *node,
		       uint64_t **used)
{
	uint64_t kept;
	int rv = 0;

	if (node->leaf != NULL)
		rv = dom__leaf_space(dom, node->leaf, (*used)++, &kept);
	for (size_t i = 0; i < node->n_children && rv == 0; i++)
		rv = leaves_used(dom, node->children[i], used);
	return rv;
}

static int there_used(struct dom *dom, const Directory__Object *object,
		      struct dom_promise *req)
{
	uint64_t *used = calloc(clom_leaves(object->tree) + 1, sizeof(*used));

	req->used = used;
	return used != NULL ? leaves_used(dom, object->tree, &used) : -ENOMEM;
}

static void there_promise(struct env_task *task)
{
	struct dom_promise *req = container_of(task, struct dom_promise, task);
	struct dom *dom = dom__of(req->dom, &req->oid);
	const struct cmmds_entry *entry = cmmds_get(
		dom->cmmds, CMMDS_OBJECT, req->oid.b, sizeof(req->oid.b));
	const Directory__Object *object =
		entry != NULL ? (const void *)entry->message : NULL;

	if (object == NULL || object->deleted || object->tree == NULL) {
		req->status = -ENOENT;
	} else {
		req->revision = entry->revision;
		req->status = there_used(dom, object, req);
	}
	task->cb = here_promise;
	env_post(req->dom->env, task);
}

static void promise_turn(struct dom_turn *turn, int status)
{
	struct dom_promise *req = container_of(turn, struct dom_promise, turn);

	if (status < 0) {
		dom__turn_why(req->why, sizeof(req->why), status);
		promise_end(req, status);
		return;
	}
	req->task.cb = there_promise;
	env_post(dom__of(req->dom, &req->oid)->env, &req->task);
}

int dom_promise(struct dom *dom, struct dom_promise *req, dom_promise_cb cb)
{
	req->why[0] = '\0';
	if (dom->closing)
		return -ESHUTDOWN;
	req->used = NULL;
	req->dom = dom;
	req->cb = cb;
	dom->jobs++;
	if (dom__turn_take(dom, &req->turn, promise_turn))
		promise_turn(&req->turn, 0);
	return 0;
}

void dom_promise_end(struct dom_promise *req)
{
	struct dom *dom = req->dom;

	turn_end_told(dom, &req->turn, &req->oid);
	dom->jobs--;
}
