/*
 * look: what all virtual disks and targets come to, for `cluster status`, health
 * and metrics.  Found in parts, so each is told of as it was during the look.
 */
#include "base/util.h"
#include "dom/clom.h"
#include "node/admin_int.h"

#include <stdio.h>
#include <string.h>

/* Every disk of ours that has a part of it. */
static void thin_mark(struct node *node, const Directory__TreeNode *tree)
{
	struct node_disk *d;
	struct uuid id;

	if (tree->leaf != NULL && tree->leaf->disk.len == sizeof(id)) {
		memcpy(id.b, tree->leaf->disk.data, sizeof(id));
		d = node__disk_find(node, &id);
		if (d != NULL)
			d->thin_ns = env_now(node->env);
	}
	for (size_t i = 0; i < tree->n_children; i++)
		thin_mark(node, tree->children[i]);
}

static bool on_vdisk(const struct cmmds_entry *e, void *arg)
{
	const Directory__VDisk *v = (void *)e->message;
	struct node_look *look = arg;
	struct node_looked *out = &look->found;
	const Directory__Object *o = admin__object(look->node, &v->oid);
	char why[sizeof(out->noncompliant_why)];

	out->vdisks++;
	if ((o == NULL ||
	     node__object_health(look->node, o) == OBJECT_UNAVAILABLE) &&
	    out->unavailable++ == 0)
		snprintf(out->an_unavailable, sizeof(out->an_unavailable), "%s",
			 v->name);
	if (o == NULL) {
		out->noncompliant++;
		return true;
	}
	if (!node__object_compliant(look->node, o, why, sizeof(why))) {
		out->noncompliant++;
		if (out->a_noncompliant[0] == '\0') {
			snprintf(out->a_noncompliant,
				 sizeof(out->a_noncompliant), "%s", v->name);
			strcpy(out->noncompliant_why, why);
		}
	}
	if (o->tree != NULL && !clom_thick(o))
		thin_mark(look->node, o->tree);
	return true;
}

static bool on_target(const struct cmmds_entry *e, void *arg)
{
	const Directory__Target *t = (void *)e->message;
	struct node_looked *out = &((struct node_look *)arg)->found;
	bool any = false;

	for (size_t i = 0; i < t->n_allow; i++)
		any |= strcmp(t->allow[i], "any") == 0;
	if (t->chap_user[0] != '\0')
		return true;
	if (any && out->targets_open++ == 0)
		snprintf(out->an_open, sizeof(out->an_open), "%s", t->name);
	if (t->n_allow == 0 && out->targets_closed++ == 0)
		snprintf(out->a_closed, sizeof(out->a_closed), "%s", t->name);
	return true;
}

static void on_data(struct dom_data_look *data)
{
	struct node_look *look = container_of(data, struct node_look, data);

	look->cb(look);
}

static bool look_part(struct node_parts *parts, unsigned max)
{
	struct node_look *look = container_of(parts, struct node_look, parts);
	struct node *node = look->node;
	int rv = node__walk(node, &look->walk, look->kind, max,
			    look->kind == CMMDS_VDISK ? on_vdisk : on_target,
			    look);

	if (rv > 0)
		return true;
	if (rv == 0 && look->kind == CMMDS_VDISK) {
		look->kind = CMMDS_TARGET;
		memset(&look->walk, 0, sizeof(look->walk));
		return true;
	}
	if (rv == 0)
		node->looked = look->found;
	if (rv == 0 && node->dom != NULL) {
		look->of_dom = true;
		dom_data_look(node->dom, &look->data, on_data);
	} else {
		look->cb(look);
	}
	return false;
}

void node__look_drop(struct node_look *look)
{
	if (look->of_dom)
		dom_data_look_drop(look->node->dom, &look->data);
	else
		node__parts_stop(look->node, &look->parts);
}

void node__look(struct node *node, struct node_look *look,
		void (*cb)(struct node_look *look))
{
	memset(look, 0, sizeof(*look));
	look->node = node;
	look->kind = CMMDS_VDISK;
	look->found.since_ns = env_now(node->env);
	look->cb = cb;
	look->parts.part = look_part;
	node__parts_start(node, &look->parts);
}
