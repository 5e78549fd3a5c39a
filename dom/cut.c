/*
 * cut: is anything written behind the end that a smaller size would have?
 *
 * Asked of the components' indexes while the owner is quiet.  The check counts
 * as running, so neither the components nor the quiet go before it ends.
 *
 * An object that is closed tells nothing.  But where it was to grow, and a
 * component could not be made, no takeover has ended since: then there is
 * nothing, and the components show it.
 */
#define LOG_ROOM LOG_DOM
#include "dom/dom_int.h"

#include <stdlib.h>

#define ITEMS_MAX 16u

struct dom__cut {
	struct dom__owner *owner;
	uint64_t patience_ns;
	void (*cb)(struct dom__owner *owner, int status);
	struct dom__extent *runs; /* what is left to look at, from @at on */
	unsigned runs_count, at;
	struct dom__cm_scan scan;
	struct lsom_version items[ITEMS_MAX];
	struct env_timer timer;
};

static void cut_end(struct dom__cut *c, int status)
{
	struct dom__owner *owner = c->owner;
	void (*cb)(struct dom__owner * owner, int status) = c->cb;
	bool wanted = owner->cut == c;

	free(c->runs);
	free(c);
	owner->running--;
	if (status == -ESTALE)
		dom__owner_lost(owner);
	if (wanted) {
		owner->cut = NULL;
		cb(owner, status);
	} else {
		dom__owner_step(owner);
	}
}

void dom__cut_forget(struct dom__owner *owner)
{
	owner->cut = NULL;
}

static void look(struct dom__cut *c);

static void again_fired(struct env_timer *timer)
{
	look(container_of(timer, struct dom__cut, timer));
}

static void refused(struct dom__cut *c, int status)
{
	struct dom *dom = c->owner->dom;

	if (status != -EBUSY || dom->closing ||
	    env_now(dom->env) >= c->patience_ns) {
		cut_end(c, status);
		return;
	}
	c->timer.cb = again_fired;
	env_timer_start(dom->env, &c->timer, DOM__BUSY_NS);
}

static void scanned(struct dom__cm_scan *req, int status)
{
	struct dom__cut *c = container_of(req, struct dom__cut, scan);
	struct dom__extent *run = &c->runs[c->at];

	if (status < 0) {
		refused(c, status);
		return;
	}
	for (unsigned i = 0; i < req->scan.items_count; i++)
		if (!c->items[i].hole) {
			cut_end(c, -ENOTEMPTY);
			return;
		}
	run->len -= req->scan.next - run->offset;
	run->offset = req->scan.next;
	look(c);
}

static void look(struct dom__cut *c)
{
	struct dom__owner *owner = c->owner;
	const struct dom__extent *run;
	struct dom__peer *peer;
	int rv;

	while (c->at < c->runs_count && c->runs[c->at].len == 0)
		c->at++;
	if (c->at == c->runs_count) {
		cut_end(c, 0);
		return;
	}
	run = &c->runs[c->at];
	peer = &owner->peers[run->leaf];
	/* A scan shows what is committed: say what is. */
	rv = dom__cm_decided(peer->cm, &peer->fence,
			     &owner->groups[run->leaf].decided);
	c->scan.scan = (struct lsom_scan){ .offset = run->offset,
					   .len = run->len,
					   .items = c->items,
					   .items_max = ITEMS_MAX };
	if (rv == 0)
		rv = dom__cm_scan(peer->cm, &peer->fence, &c->scan, scanned);
	if (rv < 0)
		refused(c, rv);
}

void dom__cut_check(struct dom__owner *owner, uint64_t size_bytes,
		    void (*cb)(struct dom__owner *owner, int status))
{
	uint64_t from = ROUND_DOWN(size_bytes, (uint64_t)DOM_BLOCK);
	uint64_t end = ROUND_UP(owner->size_bytes, (uint64_t)DOM_BLOCK);
	struct dom__cut *c = calloc(1, sizeof(*c));
	struct dom__extent *runs = calloc(owner->leaves, sizeof(*runs));

	if (c == NULL || runs == NULL) {
		free(c);
		free(runs);
		cb(owner, -ENOMEM);
		return;
	}
	c->owner = owner;
	c->patience_ns = env_now(owner->dom->env) + DOM_DEADLINE_NS;
	c->cb = cb;
	c->runs = runs;
	c->runs_count = dom__tree_spread(owner->tree, from, end - from, runs);
	owner->running++;
	owner->cut = c;
	look(c);
}

/* ---- of an object that is closed ---- */

/* The node of the component @cid; NULL: there is none. */
static const Directory__TreeNode *comp_node(const Directory__TreeNode *node,
					    const ProtobufCBinaryData *cid)
{
	const Directory__TreeNode *found = NULL;

	if (node->leaf != NULL && node->leaf->cid.len == cid->len &&
	    memcmp(node->leaf->cid.data, cid->data, cid->len) == 0)
		return node;
	for (size_t i = 0; i < node->n_children && found == NULL; i++)
		found = comp_node(node->children[i], cid);
	return found;
}

/* The component of @node is to be that of @kept, or to go (NULL). */
static bool comp_is_void(struct dom *dom, const Directory__Object *object,
			 const Directory__TreeNode *node,
			 const Directory__TreeNode *kept)
{
	const struct lsom_comp_meta *meta;
	struct lsom_comp *comp = NULL;
	struct dom__disk *disk;
	struct uuid id, cid;
	bool is_void;

	if (kept != NULL && kept->size_bytes >= node->size_bytes)
		return true;
	if (!dom__uuid_of(&node->leaf->disk, &id) ||
	    !dom__uuid_of(&node->leaf->cid, &cid))
		return false;
	disk = dom__disk_find(dom, &id);
	if (disk != NULL && !disk->removing)
		comp = lsom_comp_get(disk->lsom, &cid);
	if (comp == NULL)
		return kept == NULL && !node->leaf->created;
	meta = lsom_comp_meta(comp);
	is_void = meta->csn_seen <= object->csn && meta->damaged == 0 &&
		  (kept != NULL ? meta->size_bytes <= kept->size_bytes
				: meta->max_lsn == 0 && meta->stable_lsn == 0);
	lsom_comp_put(comp);
	return is_void;
}

static bool node_is_void(struct dom *dom, const Directory__Object *object,
			 const Directory__TreeNode *node,
			 const Directory__TreeNode *tree)
{
	if (node->leaf != NULL)
		return comp_is_void(dom, object, node,
				    comp_node(tree, &node->leaf->cid));
	for (size_t i = 0; i < node->n_children; i++)
		if (!node_is_void(dom, object, node->children[i], tree))
			return false;
	return true;
}

bool dom__cut_is_void(struct dom *dom, const Directory__Object *object,
		      const Directory__TreeNode *tree)
{
	return node_is_void(dom, object, object->tree, tree);
}
