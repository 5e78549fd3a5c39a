/*
 * fence: messages of owners gone by, straight at the component manager (I11).
 *
 * On one node no message is ever late, so they are made up here: of an older or
 * newer epoch, of another membership, for another incarnation; and one that
 * comes while a component that was not ACTIVE waits for its ATTACH.  None may
 * be executed.
 */
#include "tests/sim/node.h"

#include "dom/dom_int.h"

static void never(struct dom__cm_write *req, int status)
{
}

static struct lsom_comp_meta meta;

static void find(struct lsom_comp *comp, void *arg)
{
	if (uuid_equal(&lsom_comp_meta(comp)->oid, arg))
		meta = *lsom_comp_meta(comp);
}

static struct dom__cm *cm_of(struct node *n)
{
	unsigned i = (unsigned)sim_random(n->sim, n->disks_count);
	struct dom__disk *disk = dom__disk_find(n->dom, &n->disk_ids[i]);
	struct dom__cm *cm;

	memset(&meta, 0, sizeof(meta));
	lsom_comp_each(n->disks[i], find, &n->oid);
	if (disk == NULL || uuid_is_zero(&meta.cid) ||
	    dom__cm_get(disk, &meta.cid, &cm) < 0)
		return NULL;
	return cm;
}

/* The answer must be FENCED, whatever the message is about. */
static void send(struct node *n, struct dom__cm *cm,
		 const struct dom__fence *fence, const char *what)
{
	static struct dom__cm_write req;
	int rv;

	memset(&req, 0, sizeof(req));
	req.write = (struct lsom_write){ .kind = LSOM_PREP,
					 .flags = LSOM_W_HOLE,
					 .len = LSOM_BLOCK,
					 .lsn = LSN(fence->oepoch, 1 << 20),
					 .member_csn = fence->member_csn };
	rv = dom__cm_write(cm, fence, &req, never);
	if (rv != -ESTALE)
		sim_violation(n->sim, "I11: a message %s was not refused (%d)",
			      what, rv);
}

/* As the owner of now has it. */
static struct dom__fence fence_of(const struct dom__cm *cm)
{
	return (struct dom__fence){ .cinc = meta.cinc,
				    .member_csn = meta.member_csn,
				    .oepoch = cm->promised_oepoch };
}

void node_late_message(struct node *n)
{
	struct dom__cm *cm = cm_of(n);
	struct dom__fence fence;

	if (cm == NULL)
		return;
	fence = fence_of(cm);
	switch (sim_random(n->sim, 4)) {
	case 0:
		fence.oepoch--;
		send(n, cm, &fence, "of an older epoch");
		break;
	case 1:
		fence.oepoch++;
		send(n, cm, &fence, "of an epoch never sealed");
		break;
	case 2:
		fence.member_csn--;
		send(n, cm, &fence, "of an older membership");
		break;
	case 3:
		fence.cinc++;
		send(n, cm, &fence, "for another incarnation");
		break;
	}
	dom__cm_put(cm);
}

void node_barred_message(struct node *n)
{
	struct dom__cm *cm = cm_of(n);
	struct dom__fence fence;

	if (cm == NULL)
		return;
	fence = fence_of(cm);
	if (meta.state_seen != LSOM_ACTIVE)
		send(n, cm, &fence, "to a component that waits for ATTACH");
	dom__cm_put(cm);
}
