/* admin_object: `basalt object show`: a virtual disk's object as it lies. */
#include "base/util.h"
#include "node/admin_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static const char *const types[] = { "component", "concat", "raid0",  "raid1",
				     "raid5",	  "raid6",  "witness" };
static const char *const states[] = { "active", "sync", "stale" };

static char *id_text(const ProtobufCBinaryData *id)
{
	char *text = malloc(UUID_TEXT_LEN);
	struct uuid uuid = { { 0 } };

	assert(text != NULL);
	memcpy(uuid.b, id->data, MIN(id->len, sizeof(uuid)));
	uuid_format(&uuid, text);
	return text;
}

/* Is it on a disk of this node, and did its log lose something? */
static bool leaf_damaged(struct node *node, const Directory__Leaf *leaf)
{
	struct uuid disk = { { 0 } }, cid = { { 0 } };
	const struct node_disk *d;
	struct lsom_comp *comp;
	bool damaged;

	memcpy(disk.b, leaf->disk.data, MIN(leaf->disk.len, sizeof(disk)));
	memcpy(cid.b, leaf->cid.data, MIN(leaf->cid.len, sizeof(cid)));
	d = node__disk_find(node, &disk);
	if (d == NULL || d->disk == NULL)
		return false;
	comp = lsom_comp_get(d->disk, &cid);
	if (comp == NULL)
		return false;
	damaged = lsom_comp_meta(comp)->damaged != 0;
	lsom_comp_put(comp);
	return damaged;
}

static void leaf_fill(struct node *node, const Directory__Leaf *leaf,
		      Admin__ObjectNode *out)
{
	const struct cmmds_entry *d, *n;

	out->component = id_text(&leaf->cid);
	out->disk = id_text(&leaf->disk);
	d = cmmds_get(node->cmmds, CMMDS_DISK, leaf->disk.data, leaf->disk.len);
	out->disk_path = strdup(d ? ((const Directory__Disk *)d->message)->path
				  : "(gone)");
	n = cmmds_get(node->cmmds, CMMDS_NODE, leaf->node.data, leaf->node.len);
	out->node = n ? strdup(((const Directory__Node *)n->message)->name)
		      : id_text(&leaf->node);
	out->state =
		strdup(leaf->state < ARRAY_LEN(states) ? states[leaf->state]
						       : "unknown");
	out->member_csn = leaf->member_csn;
	out->cinc = leaf->cinc;
	out->created = leaf->created;
	out->damaged = leaf_damaged(node, leaf);
}

/* A copy, all of it malloc()ed, so that free_unpacked() frees it. */
static Admin__ObjectNode *tree_copy(struct node *node,
				    const Directory__TreeNode *tree)
{
	Admin__ObjectNode *out = calloc(1, sizeof(*out));

	assert(out != NULL);
	admin__object_node__init(out);
	out->type = strdup(tree->type < ARRAY_LEN(types) ? types[tree->type]
							 : "unknown");
	out->size_bytes = tree->size_bytes;
	out->stripe_unit_bytes = tree->stripe_unit_bytes;
	if (tree->leaf != NULL)
		leaf_fill(node, tree->leaf, out);
	if (tree->n_children == 0)
		return out;
	out->children = calloc(tree->n_children, sizeof(*out->children));
	assert(out->children != NULL);
	for (size_t i = 0; i < tree->n_children; i++)
		out->children[out->n_children++] =
			tree_copy(node, tree->children[i]);
	return out;
}

void admin__object_show(struct admin_req *r)
{
	const char *name = r->msg->object_show->name;
	const Directory__VDisk *v = cmmds_vdisk(r->node->cmmds, name);
	const Directory__Object *o;
	const struct cmmds_entry *n;
	Admin__Response response = ADMIN__RESPONSE__INIT;
	Admin__ObjectInfo info = ADMIN__OBJECT_INFO__INIT;
	char why[200], *owner = NULL;

	o = v != NULL ? admin__object(r->node, &v->oid) : NULL;
	if (o == NULL) {
		admin__why(r, -ENOENT, "basalt vdisk list shows them.",
			   v == NULL ? "there is no virtual disk %.80s"
				     : "virtual disk %.80s has no object",
			   name);
		admin__refuse(r);
		return;
	}
	info.id = id_text(&o->oid);
	info.vdisk = v->name;
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
		owner = n ? strdup(((const Directory__Node *)n->message)->name)
			  : id_text(&o->owner->node);
		info.owner = owner;
		info.owner_incarnation = o->owner->incarnation;
	}
	if (o->tree != NULL)
		info.tree = tree_copy(r->node, o->tree);
	response.result_case = ADMIN__RESPONSE__RESULT_OBJECT;
	response.object = &info;
	admin__reply(r, &response);
	if (info.tree != NULL)
		admin__object_node__free_unpacked(info.tree, NULL);
	free(info.id);
	free(owner);
}
