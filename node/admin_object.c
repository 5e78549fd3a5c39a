/* admin_object: `basalt object show`: a virtual disk's object as it lies. */
#include "base/util.h"
#include "dom/clom.h"
#include "node/admin_int.h"

#include <errno.h>
#include <stdlib.h>

static const char *const types[] = { "component", "concat", "raid0",  "raid1",
				     "raid5",	  "raid6",  "witness" };
static const char *const states[] = { "active", "sync", "stale" };

/*
 * Which components of the object are damaged, its shard knows: it is asked
 * first, and the answer is made when it has told.
 */
struct show {
	struct admin_req *r;
	struct env_task task;
	struct dom *dom; /* of the object's shard */
	struct env *there;
	struct uuid oid;
	bool no_memory; /* something is missing in the copy of the tree */
	unsigned leaves, damaged_count;
	struct uuid damaged[]; /* cids; @leaves of them fit */
};

static char *id_text(const ProtobufCBinaryData *id, char out[UUID_TEXT_LEN])
{
	struct uuid uuid = { { 0 } };

	memcpy(uuid.b, id->data, MIN(id->len, sizeof(uuid)));
	uuid_format(&uuid, out);
	return out;
}

static char *copied(struct show *show, const char *text)
{
	char *copy = strdup(text);

	show->no_memory = show->no_memory || copy == NULL;
	return copy;
}

static bool leaf_damaged(const struct show *show, const Directory__Leaf *leaf)
{
	for (unsigned i = 0; i < show->damaged_count; i++) {
		if (leaf->cid.len == sizeof(show->damaged[i].b) &&
		    memcmp(leaf->cid.data, show->damaged[i].b, leaf->cid.len) ==
			    0)
			return true;
	}
	return false;
}

static void leaf_fill(struct show *show, const Directory__Leaf *leaf,
		      Admin__ObjectNode *out)
{
	struct node *node = show->r->node;
	const struct cmmds_entry *d, *n;
	char id[UUID_TEXT_LEN];

	out->component = copied(show, id_text(&leaf->cid, id));
	out->disk = copied(show, id_text(&leaf->disk, id));
	d = cmmds_get(node->cmmds, CMMDS_DISK, leaf->disk.data, leaf->disk.len);
	out->disk_path = copied(
		show,
		d ? node__disk_path(node, (const Directory__Disk *)d->message)
		  : "(gone)");
	n = cmmds_get(node->cmmds, CMMDS_NODE, leaf->node.data, leaf->node.len);
	out->node = copied(show, n ? ((const Directory__Node *)n->message)->name
				   : id_text(&leaf->node, id));
	out->state = copied(show, leaf->state < ARRAY_LEN(states)
					  ? states[leaf->state]
					  : "unknown");
	out->member_csn = leaf->member_csn;
	out->cinc = leaf->cinc;
	out->created = leaf->created;
	out->damaged = leaf_damaged(show, leaf);
}

/* A copy, all of it malloc()ed, so that free_unpacked() frees it; NULL: none. */
static Admin__ObjectNode *tree_copy(struct show *show,
				    const Directory__TreeNode *tree)
{
	Admin__ObjectNode *out = calloc(1, sizeof(*out)), *child;

	if (out == NULL) {
		show->no_memory = true;
		return NULL;
	}
	admin__object_node__init(out);
	out->type =
		copied(show, tree->type < ARRAY_LEN(types) ? types[tree->type]
							   : "unknown");
	out->size_bytes = tree->size_bytes;
	out->stripe_unit_bytes = tree->stripe_unit_bytes;
	if (tree->leaf != NULL)
		leaf_fill(show, tree->leaf, out);
	if (tree->n_children == 0)
		return out;
	out->children = calloc(tree->n_children, sizeof(*out->children));
	show->no_memory = show->no_memory || out->children == NULL;
	for (size_t i = 0; i < tree->n_children && !show->no_memory; i++) {
		child = tree_copy(show, tree->children[i]);
		if (child != NULL)
			out->children[out->n_children++] = child;
	}
	return out;
}

static const Directory__Object *object_find(struct admin_req *r)
{
	const char *name = r->msg->object_show->name;
	const Directory__VDisk *v = cmmds_vdisk(r->node->cmmds, name);
	const Directory__Object *o;

	o = v != NULL ? admin__object(r->node, &v->oid) : NULL;
	if (o == NULL)
		admin__why(r, -ENOENT, "basalt vdisk list shows them.",
			   v == NULL ? "there is no virtual disk %.80s"
				     : "virtual disk %.80s has no object",
			   name);
	return o;
}

static void show_answer(struct show *show)
{
	struct admin_req *r = show->r;
	const Directory__Object *o = object_find(r);
	const struct cmmds_entry *n;
	Admin__Response response = ADMIN__RESPONSE__INIT;
	Admin__ObjectInfo info = ADMIN__OBJECT_INFO__INIT;
	char why[200], id[UUID_TEXT_LEN], owner[UUID_TEXT_LEN];

	if (o == NULL) { /* deleted meanwhile */
		admin__refuse(r);
		return;
	}
	info.id = id_text(&o->oid, id);
	info.vdisk = r->msg->object_show->name;
	info.size_bytes = o->size_bytes;
	info.policy = o->policy;
	info.csn = o->csn;
	info.oepoch = o->oepoch;
	info.forced = o->forced;
	info.deleted = o->deleted;
	info.reserved_bytes = o->reserved_bytes;
	info.compliant = node__object_compliant(r->node, o, why, sizeof(why));
	info.compliance = info.compliant ? "compliant" : why;
	info.health = (char *)node__object_health_name(
		node__object_health(r->node, o));
	if (o->owner != NULL) {
		n = cmmds_get(r->node->cmmds, CMMDS_NODE, o->owner->node.data,
			      o->owner->node.len);
		info.owner = n ? ((const Directory__Node *)n->message)->name
			       : id_text(&o->owner->node, owner);
		info.owner_incarnation = o->owner->incarnation;
	}
	if (o->tree != NULL)
		info.tree = tree_copy(show, o->tree);
	response.result_case = ADMIN__RESPONSE__RESULT_OBJECT;
	response.object = &info;
	if (show->no_memory)
		admin__no_memory(r);
	else
		admin__reply(r, &response);
	if (info.tree != NULL)
		admin__object_node__free_unpacked(info.tree, NULL);
}

static void here_show(struct env_task *task)
{
	show_answer(container_of(task, struct show, task));
}

static void there_show(struct env_task *task)
{
	struct show *show = container_of(task, struct show, task);

	show->damaged_count =
		dom_damaged(show->dom, &show->oid, show->damaged, show->leaves);
	task->cb = here_show;
	env_post(show->r->node->env, task);
}

void admin__object_show(struct admin_req *r)
{
	struct node *node = r->node;
	const Directory__Object *o;
	struct show *show;
	unsigned leaves, shard;

	if (admin__stopping(r))
		return;
	o = object_find(r);
	if (o == NULL) {
		admin__refuse(r);
		return;
	}
	leaves = o->tree != NULL ? clom_leaves(o->tree) : 0;
	show = calloc(1, sizeof(*show) + leaves * sizeof(show->damaged[0]));
	if (show == NULL) {
		admin__no_memory(r);
		return;
	}
	r->ctx = show;
	show->r = r;
	show->leaves = leaves;
	memcpy(show->oid.b, o->oid.data, MIN(o->oid.len, sizeof(show->oid)));
	shard = uuid_hash(&show->oid) % shards_count(node->shards);
	show->dom = node->doms[shard];
	if (show->dom == NULL) { /* coming up: it has no disks yet */
		show_answer(show);
		return;
	}
	show->task.cb = there_show;
	env_post(shard_env(node->shards, shard), &show->task);
}
