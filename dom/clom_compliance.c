/*
 * clom_compliance: what a tree is: its leaves, whether it does what its policy
 * asks, and whether its data can be reached; pure.
 */
#include "dom/dom_int.h"

#include <stdio.h>

unsigned clom_leaves(const Directory__TreeNode *tree)
{
	unsigned n = tree->leaf != NULL;

	for (size_t i = 0; i < tree->n_children; i++)
		n += clom_leaves(tree->children[i]);
	return n;
}

static bool is_leaf(const Directory__TreeNode *node, const struct uuid *cid)
{
	return node->leaf != NULL && node->leaf->cid.len == sizeof(*cid) &&
	       memcmp(node->leaf->cid.data, cid, sizeof(*cid)) == 0;
}

bool clom_offset(const Directory__TreeNode *tree, const struct uuid *cid,
		 uint64_t *offset)
{
	uint64_t start = 0, unit = tree->stripe_unit_bytes;
	size_t i;

	if (tree->type == DIRECTORY__TREE_NODE__TYPE__COMPONENT)
		return is_leaf(tree, cid);
	if (tree->type != DIRECTORY__TREE_NODE__TYPE__CONCAT &&
	    tree->type != DIRECTORY__TREE_NODE__TYPE__RAID1 &&
	    (tree->type != DIRECTORY__TREE_NODE__TYPE__RAID0 || unit == 0))
		return false;
	for (i = 0; i < tree->n_children; i++) {
		if (clom_offset(tree->children[i], cid, offset))
			break;
		start += tree->children[i]->size_bytes;
	}
	if (i == tree->n_children)
		return false;
	if (tree->type == DIRECTORY__TREE_NODE__TYPE__CONCAT)
		*offset += start;
	else if (tree->type == DIRECTORY__TREE_NODE__TYPE__RAID0)
		*offset = (*offset / unit * tree->n_children + i) * unit +
			  *offset % unit;
	return true;
}

static unsigned width_of(const Directory__TreeNode *node)
{
	unsigned width = UINT32_MAX;

	if (node->type == DIRECTORY__TREE_NODE__TYPE__COMPONENT)
		return 1;
	if (node->type == DIRECTORY__TREE_NODE__TYPE__RAID0)
		return (unsigned)node->n_children;
	for (size_t i = 0; i < node->n_children; i++)
		width = MIN(width, width_of(node->children[i]));
	return width;
}

/* Copies the layout keeps: 1, until trees have redundant nodes. */
static bool redundant(const Directory__TreeNode *node)
{
	if (node->type == DIRECTORY__TREE_NODE__TYPE__RAID1 ||
	    node->type == DIRECTORY__TREE_NODE__TYPE__RAID5 ||
	    node->type == DIRECTORY__TREE_NODE__TYPE__RAID6)
		return true;
	for (size_t i = 0; i < node->n_children; i++) {
		if (!redundant(node->children[i]))
			return false;
	}
	return node->n_children > 0;
}

bool clom_compliant(const Directory__Object *object,
		    const Directory__Policy *policy, char *why, size_t why_len)
{
	if (why_len > 0)
		why[0] = '\0';
	if (policy == NULL || object->tree == NULL)
		return policy == NULL;
	if (clom_domains_needed(policy) > 1 && !redundant(object->tree)) {
		unsigned failures = MAX(1u, policy->failures_to_tolerate);

		snprintf(why, why_len,
			 "one copy, the policy tolerates %u failure%s",
			 failures, failures == 1 ? "" : "s");
		return false;
	}
	if (policy->stripe_width > 1 &&
	    width_of(object->tree) < policy->stripe_width) {
		snprintf(why, why_len, "striped over %u disks, not %u",
			 width_of(object->tree), policy->stripe_width);
		return false;
	}
	return true;
}

static enum clom_health node_health(const Directory__TreeNode *node)
{
	enum clom_health worst = CLOM_HEALTHY;
	unsigned lost = 0, may_lose = 0;

	if (node->leaf != NULL)
		return node->leaf->state == DIRECTORY__LEAF__STATE__ACTIVE
			       ? CLOM_HEALTHY
			       : CLOM_UNAVAILABLE;
	for (size_t i = 0; i < node->n_children; i++) {
		enum clom_health h = node_health(node->children[i]);

		lost += h == CLOM_UNAVAILABLE;
		worst = MAX(worst, h);
	}
	if (node->type == DIRECTORY__TREE_NODE__TYPE__RAID1)
		may_lose = node->n_children > 0 ? (unsigned)node->n_children - 1
						: 0;
	else if (node->type == DIRECTORY__TREE_NODE__TYPE__RAID5)
		may_lose = 1;
	else if (node->type == DIRECTORY__TREE_NODE__TYPE__RAID6)
		may_lose = 2;
	if (lost > may_lose)
		return CLOM_UNAVAILABLE;
	return lost > 0 ? CLOM_REDUCED : worst;
}

enum clom_health clom_health(const Directory__Object *object)
{
	return object->tree == NULL ? CLOM_UNAVAILABLE
				    : node_health(object->tree);
}
