/* admin_scrub: a disk is read through by command, and what that found is shown. */
#include "base/util.h"
#include "node/admin_int.h"

#include <errno.h>
#include <stdlib.h>

/* ---- the command ---- */

static void scrub_stop(struct admin_req *r, struct node_disk *d)
{
	if (!node__scrub_runs(d)) {
		admin__why(r, -ENOENT, "Nothing is to be done.",
			   "disk %s is not being scrubbed", d->path);
		admin__refuse(r);
		return;
	}
	node__scrub_stop(d);
	admin__ok(r, "disk %s: its scrub is called off", d->path);
}

static int scrub_refused(struct admin_req *r, const struct node_disk *d, int rv)
{
	struct node_scrubbed known;

	if (rv == -ENOMEM)
		return admin__why(r, rv, "Try again in a moment.",
				  "basaltd has no memory for it");
	if (rv == -ENODEV)
		return admin__why(r, rv, "basalt disk list says why.",
				  "disk %s is not in service", d->path);
	node__scrub_known(d, &known);
	return admin__why(r, rv, "basalt disk list tells how far it is.",
			  "disk %s is being scrubbed already, %u %% done",
			  d->path, known.percent);
}

/* ---- how often ---- */

static int every_build(struct admin_req *r, struct cmmds_command *cmd)
{
	const Admin__DiskScrub *m = r->msg->disk_scrub;
	const struct cmmds_entry *e =
		cmmds_get(r->node->cmmds, CMMDS_CLUSTER, "", 0);
	Directory__Cluster c;

	if (e == NULL)
		return admin__why(r, -EAGAIN, "Try again in a moment.",
				  "the cluster is not in the directory yet");
	c = *(const Directory__Cluster *)e->message;
	c.scrub_days = m->days;
	c.scrub_off = m->days == 0;
	cmmds_put(cmd, CMMDS_CLUSTER, "", 0, e->revision, &c.base);
	if (m->days == 0)
		cmmds_audit(cmd, r->who,
			    "disks are not scrubbed of themselves");
	else
		cmmds_audit(cmd, r->who, "disks are scrubbed every %u day%s",
			    m->days, m->days == 1 ? "" : "s");
	return 0;
}

static void every_applied(struct admin_req *r)
{
	const Admin__DiskScrub *m = r->msg->disk_scrub;

	if (m->days == 0)
		admin__ok(r, "disks are not scrubbed of themselves any more; "
			     "one that is being scrubbed goes on");
	else
		admin__ok(r,
			  "each disk is scrubbed %u day%s after it was added "
			  "or scrubbed last",
			  m->days, m->days == 1 ? "" : "s");
}

static void scrub_every(struct admin_req *r)
{
	const Admin__DiskScrub *m = r->msg->disk_scrub;

	if (m->days <= CMMDS_SCRUB_DAYS_MAX && !m->stop && m->disk[0] == '\0') {
		admin__change(r, every_build, every_applied);
		return;
	}
	admin__why(r, -EINVAL,
		   "Give --every with such a number, or off, and no disk.",
		   "--every: 1 to %u days, or off; it holds for all disks, "
		   "and is given alone",
		   CMMDS_SCRUB_DAYS_MAX);
	admin__refuse(r);
}

void admin__disk_scrub(struct admin_req *r)
{
	struct node_disk *d;
	int rv;

	if (r->msg->disk_scrub->every) {
		scrub_every(r);
		return;
	}
	d = admin__disk_named(r, r->msg->disk_scrub->disk);
	if (d == NULL || admin__disk_leaving(r, d) < 0) {
		admin__refuse(r);
		return;
	}
	if (r->msg->disk_scrub->stop) {
		scrub_stop(r, d);
		return;
	}
	rv = node__scrub_start(d, r->who);
	if (rv < 0) {
		scrub_refused(r, d, rv);
		admin__refuse(r);
		return;
	}
	admin__ok(
		r,
		"disk %s is being scrubbed; basalt disk list tells how far it "
		"is",
		d->path);
}

/* ---- what was found ---- */

bool admin__scrub_tell(const struct node_disk *d, char *out, size_t len)
{
	const Directory__VDisk *v = NULL;
	struct node_scrubbed known;
	uint64_t offset = 0;
	int n;

	node__scrub_known(d, &known);
	if (known.bad_count + known.segments_unread == 0)
		return false;
	n = snprintf(out, len, "when it was scrubbed last, ");
	if (known.bad_count > 0)
		n += snprintf(out + n, len - (size_t)n,
			      "%llu block%s not what was written",
			      (unsigned long long)known.bad_count,
			      known.bad_count == 1 ? " was" : "s were");
	else
		n += snprintf(out + n, len - (size_t)n,
			      "%u segment%s could not be looked at",
			      known.segments_unread,
			      known.segments_unread == 1 ? "" : "s");
	for (unsigned i = 0;
	     known.bad != NULL && v == NULL &&
	     i < MIN(known.bad_count, (uint64_t)LSOM_SCRUB_BAD_MAX);
	     i++)
		v = node__scrub_place(d->node, &known.bad[i], &offset);
	if (v != NULL && (size_t)n < len)
		snprintf(out + n, len - (size_t)n,
			 ", of virtual disk %.64s at byte %llu%s", v->name,
			 (unsigned long long)offset,
			 known.bad_count > 1 ? " for one" : "");
	return true;
}

static void block_fill(struct node *node, const struct lsom_scrub_bad *bad,
		       Admin__BadBlock *out, char *object)
{
	const Directory__VDisk *v;

	admin__bad_block__init(out);
	uuid_format(&bad->oid, object);
	out->object = object;
	v = node__scrub_place(node, bad, &out->offset);
	if (v != NULL)
		out->vdisk = v->name;
}

void admin__scrub_fill(const struct node_disk *d, Admin__DiskInfo *out,
		       struct admin_bad_blocks *blocks)
{
	struct node_scrubbed known;

	node__scrub_known(d, &known);
	out->scrubbing = known.running;
	out->scrub_percent = known.percent;
	out->scrubbed_wall_ns = known.wall_ns;
	out->scrubbed_bad = known.bad_count;
	out->scrubbed_unread = known.segments_unread;
	out->bad_blocks = blocks->list;
	if (known.bad == NULL)
		return;
	out->n_bad_blocks = MIN(known.bad_count, (uint64_t)LSOM_SCRUB_BAD_MAX);
	for (size_t i = 0; i < out->n_bad_blocks; i++) {
		block_fill(d->node, &known.bad[i], &blocks->of[i],
			   blocks->objects[i]);
		blocks->list[i] = &blocks->of[i];
	}
}
