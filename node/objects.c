/*
 * objects: what an object is now: compliance, health, space, whether it holds
 * data.  Computed from the directory, this node's disks and dom; never stored.
 */
#include "base/util.h"
#include "dom/clom.h"
#include "node/admin_int.h"

#include <errno.h>
#include <stdlib.h>

const Directory__Object *admin__object(struct node *node,
				       const ProtobufCBinaryData *oid)
{
	struct uuid id;

	if (oid->len != sizeof(id))
		return NULL;
	memcpy(id.b, oid->data, sizeof(id.b));
	return cmmds_object(node->cmmds, &id);
}

bool node__object_compliant(struct node *node, const Directory__Object *object,
			    char *why, size_t why_len)
{
	const Directory__Policy *policy = NULL;

	why[0] = '\0';
	if (object->policy[0] != '\0')
		policy = cmmds_policy(node->cmmds, object->policy);
	return clom_compliant(object, policy, why, why_len);
}

/* ---- the tree ---- */

enum object_health
node__tree_health(const Directory__TreeNode *tree,
		  bool (*leaf_ok)(const Directory__Leaf *leaf, void *arg),
		  void *arg)
{
	size_t lost = 0, reduced = 0, may_lose = 0;

	switch (tree->type) {
	case DIRECTORY__TREE_NODE__TYPE__COMPONENT:
	case DIRECTORY__TREE_NODE__TYPE__WITNESS:
		return tree->leaf != NULL && leaf_ok(tree->leaf, arg)
			       ? OBJECT_HEALTHY
			       : OBJECT_UNAVAILABLE;
	case DIRECTORY__TREE_NODE__TYPE__RAID5:
		may_lose = 1;
		break;
	case DIRECTORY__TREE_NODE__TYPE__RAID6:
		may_lose = 2;
		break;
	case DIRECTORY__TREE_NODE__TYPE__RAID1:
		may_lose = tree->n_children > 0 ? tree->n_children - 1 : 0;
		break;
	default:
		break;
	}
	for (size_t i = 0; i < tree->n_children; i++) {
		enum object_health h =
			node__tree_health(tree->children[i], leaf_ok, arg);

		if (tree->children[i]->type ==
		    DIRECTORY__TREE_NODE__TYPE__WITNESS) {
			/* It holds no data: nothing is read from it. */
			may_lose -=
				may_lose > 0 &&
				tree->type == DIRECTORY__TREE_NODE__TYPE__RAID1;
			reduced += h != OBJECT_HEALTHY;
			continue;
		}
		lost += h == OBJECT_UNAVAILABLE;
		reduced += h == OBJECT_REDUCED;
	}
	if (lost > may_lose || tree->n_children == 0)
		return OBJECT_UNAVAILABLE;
	return lost + reduced > 0 ? OBJECT_REDUCED : OBJECT_HEALTHY;
}

static bool leaf_is_ok(const Directory__Leaf *leaf, void *arg)
{
	struct node *node = arg;
	struct lsom_disk_info info;
	struct node_disk *d;
	struct uuid id;

	if (leaf->state != DIRECTORY__LEAF__STATE__ACTIVE)
		return false;
	if (leaf->node.len != sizeof(id) || leaf->disk.len != sizeof(id))
		return false;
	if (memcmp(leaf->node.data, node->identity.id.b, sizeof(id)) != 0)
		return true; /* another node tells about its own disks */
	memcpy(id.b, leaf->disk.data, sizeof(id));
	d = node__disk_find(node, &id);
	if (d == NULL || d->state != NODE_DISK_ONLINE)
		return false;
	lsom_disk_info(d->disk, &info);
	return info.state != LSOM_DISK_FAILED;
}

enum object_health node__object_health(struct node *node,
				       const Directory__Object *object)
{
	if (object->tree == NULL)
		return OBJECT_UNAVAILABLE;
	return node__tree_health(object->tree, leaf_is_ok, node);
}

const char *node__object_health_name(enum object_health health)
{
	static const char *const names[] = { "healthy", "reduced",
					     "unavailable" };

	return names[health];
}

uint64_t node__tree_raw(const Directory__TreeNode *tree)
{
	uint64_t bytes = 0;

	if (tree == NULL)
		return 0;
	if (tree->type == DIRECTORY__TREE_NODE__TYPE__COMPONENT)
		return tree->size_bytes;
	for (size_t i = 0; i < tree->n_children; i++)
		bytes += node__tree_raw(tree->children[i]);
	return bytes;
}

bool node__tree_uses(const Directory__TreeNode *tree, const struct uuid *disk)
{
	if (tree == NULL)
		return false;
	if (tree->leaf != NULL && tree->leaf->disk.len == sizeof(disk->b) &&
	    memcmp(tree->leaf->disk.data, disk->b, sizeof(disk->b)) == 0)
		return true;
	for (size_t i = 0; i < tree->n_children; i++)
		if (node__tree_uses(tree->children[i], disk))
			return true;
	return false;
}

/* ---- whose it is ---- */

const struct cmmds_entry *node__vdisk_of(struct node *node,
					 const struct uuid *oid)
{
	return cmmds_of(node->cmmds, CMMDS_VDISK, oid->b, sizeof(oid->b), NULL);
}

/* ---- is data there? ---- */

#define CHECK_WAIT_NS (5 * SEC) /* for a queue that is full */
#define CHECK_SILENT_NS (20 * SEC) /* dom does not answer: a disk hangs */
#define CHECK_AGAIN_NS (50 * MSEC)

struct data_check {
	struct node *node;
	struct uuid oid;
	struct dom_object_open open;
	struct dom_object *object;
	struct dom_io io;
	uint64_t at, end;
	uint64_t until_ns;
	struct env_timer again, silent;
	struct env_task task;
	void (*cb)(void *arg, int result); /* NULL: it was answered */
	void *arg;
};

static void check_finish(struct data_check *c, int result)
{
	void (*cb)(void *arg, int result) = c->cb;
	void *arg = c->arg;

	env_timer_stop(c->node->env, &c->silent);
	if (c->object != NULL)
		dom_object_close(c->object);
	free(c);
	if (cb != NULL)
		cb(arg, result);
}

/* It is asked no more; what dom was asked for last comes to nothing. */
static void on_check_silent(struct env_timer *timer)
{
	struct data_check *c = container_of(timer, struct data_check, silent);
	void (*cb)(void *arg, int result) = c->cb;

	c->cb = NULL;
	cb(c->arg, -ETIMEDOUT);
}

/* A queue that is full, here or on the object's shard, is asked again. */
static void check_failed(struct data_check *c, int status)
{
	struct env *env = c->node->env;

	if (status == -EBUSY && c->cb != NULL && env_now(env) < c->until_ns)
		env_timer_start(env, &c->again, CHECK_AGAIN_NS);
	else
		check_finish(c, status);
}

static void check_next(struct data_check *c);

static void on_mapped(struct dom_io *io, int status)
{
	struct data_check *c = io->data;

	if (status < 0) {
		check_failed(c, status);
	} else if (io->mapped) {
		check_finish(c, 1);
	} else if (io->mapped_len == 0) {
		check_finish(c, -EIO);
	} else {
		c->at += io->mapped_len;
		check_next(c);
	}
}

static void check_next(struct data_check *c)
{
	int rv;

	if (c->node->state != NODE_UP || c->cb == NULL) {
		check_finish(c, -ESHUTDOWN);
		return;
	}
	if (c->at >= c->end) {
		check_finish(c, 0);
		return;
	}
	memset(&c->io, 0, sizeof(c->io));
	c->io.data = c;
	env_timer_start(c->node->env, &c->silent, CHECK_SILENT_NS);
	rv = dom_map(c->object, &c->io, c->at, c->end - c->at, on_mapped);
	if (rv < 0)
		check_failed(c, rv);
}

static void on_check_open(struct dom_object_open *req, int status)
{
	struct data_check *c = req->data;

	if (status < 0) {
		check_failed(c, status);
		return;
	}
	c->object = req->object;
	c->end = MIN(c->end, dom_object_size(c->object));
	check_next(c);
}

/* From where it is. */
static void check_go_on(struct data_check *c)
{
	int rv;

	if (c->node->state != NODE_UP) {
		check_finish(c, -ESHUTDOWN);
		return;
	}
	if (c->object != NULL) {
		check_next(c);
		return;
	}
	memset(&c->open, 0, sizeof(c->open));
	c->open.data = c;
	rv = dom_object_open(c->node->dom, &c->open, &c->oid, on_check_open);
	if (rv < 0)
		check_failed(c, rv);
}

static void on_check_again(struct env_timer *timer)
{
	check_go_on(container_of(timer, struct data_check, again));
}

static void on_check_begin(struct env_task *task)
{
	check_go_on(container_of(task, struct data_check, task));
}

int admin__data_check(struct node *node, const struct uuid *oid, uint64_t from,
		      uint64_t to, void (*cb)(void *arg, int result), void *arg)
{
	struct data_check *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return -ENOMEM;
	c->node = node;
	c->oid = *oid;
	c->at = from;
	c->end = to;
	c->cb = cb;
	c->arg = arg;
	c->until_ns = env_now(node->env) + CHECK_WAIT_NS;
	c->again.cb = on_check_again;
	c->silent.cb = on_check_silent;
	env_timer_start(node->env, &c->silent, CHECK_SILENT_NS);
	c->task.cb = on_check_begin;
	env_defer(node->env, &c->task);
	return 0;
}

/* ---- space ---- */

/*
 * What an object uses its disks have counted, as a rule.  Where they have not, it
 * is opened and asked what is mapped, for a while; one too large or too scattered
 * for that answers with dom's upper bound.
 */
#define SPACE_WALK_NS (300 * MSEC)
#define SPACE_SILENT_NS (3 * SEC) /* dom does not answer: a disk hangs */

struct space_ask {
	struct node *node;
	struct dom_space counted;
	struct dom_object_open open;
	struct dom_object *object;
	struct dom_io io;
	uint64_t at, mapped, end_ns;
	struct object_space space;
	int status;
	struct env_timer silent;
	/* NULL: it was answered */
	void (*cb)(void *arg, int status, const struct object_space *space);
	void *arg;
};

static void ask_finish(struct space_ask *a)
{
	struct object_space space = a->space;
	void (*cb)(void *, int, const struct object_space *) = a->cb;
	void *arg = a->arg;
	int status = a->status;

	env_timer_stop(a->node->env, &a->silent);
	if (a->object != NULL)
		dom_object_close(a->object);
	free(a);
	if (cb != NULL)
		cb(arg, status, &space);
}

/* What dom was asked for comes to nothing, when it comes. */
static void on_ask_silent(struct env_timer *timer)
{
	static const struct object_space none;
	struct space_ask *a = container_of(timer, struct space_ask, silent);
	void (*cb)(void *, int, const struct object_space *) = a->cb;

	a->cb = NULL;
	cb(a->arg, -ETIMEDOUT, &none);
}

static void ask_walk(struct space_ask *a);

static void on_ask_mapped(struct dom_io *io, int status)
{
	struct space_ask *a = io->data;

	if (status < 0 || io->mapped_len == 0) {
		ask_finish(a); /* the bound is what there is to say */
		return;
	}
	if (io->mapped)
		a->mapped += io->mapped_len;
	a->at += io->mapped_len;
	ask_walk(a);
}

static void ask_walk(struct space_ask *a)
{
	uint64_t size = dom_object_size(a->object);

	if (a->at >= size) {
		a->space.used_bytes = a->mapped;
		a->space.exact = true;
		ask_finish(a);
		return;
	}
	memset(&a->io, 0, sizeof(a->io));
	a->io.data = a;
	if (a->node->state != NODE_UP || a->cb == NULL ||
	    env_now(a->node->env) >= a->end_ns ||
	    dom_map(a->object, &a->io, a->at, size - a->at, on_ask_mapped) < 0)
		ask_finish(a);
}

static void on_ask_open(struct dom_object_open *req, int status)
{
	struct space_ask *a = req->data;

	a->status = status;
	if (status == 0)
		a->object = req->object;
	if (status < 0 || a->cb == NULL) {
		ask_finish(a);
		return;
	}
	a->end_ns = env_now(a->node->env) + SPACE_WALK_NS;
	dom_object_space(a->object, &a->space.used_bytes, &a->space.free_bytes);
	a->space.kept_bytes = dom_object_kept(a->object);
	ask_walk(a);
}

static void on_ask_counted(struct dom_space *req, int status)
{
	struct space_ask *a = req->data;

	if (status == 0) {
		a->space.used_bytes = req->used_bytes;
		a->space.free_bytes = req->free_bytes;
		a->space.kept_bytes = req->kept_bytes;
		a->space.exact = true;
		ask_finish(a);
		return;
	}
	if (a->cb == NULL) {
		ask_finish(a);
		return;
	}
	a->open.data = a;
	a->status =
		dom_object_open(a->node->dom, &a->open, &req->oid, on_ask_open);
	if (a->status < 0)
		ask_finish(a);
}

int admin__space_ask(struct node *node, const struct uuid *oid,
		     void (*cb)(void *arg, int status,
				const struct object_space *space),
		     void *arg)
{
	struct space_ask *a = calloc(1, sizeof(*a));

	if (a == NULL)
		return -ENOMEM;
	a->node = node;
	a->cb = cb;
	a->arg = arg;
	a->silent.cb = on_ask_silent;
	env_timer_start(node->env, &a->silent, SPACE_SILENT_NS);
	a->counted.data = a;
	a->counted.oid = *oid;
	dom_space(node->dom, &a->counted, on_ask_counted);
	return 0;
}
