/*
 * admin_vset: a virtual disk gets another policy.
 *
 * Its data stays where it is, so the new one has to do for that.  What it reserves
 * more is promised by the object's disks first (dom_promise()).
 */
#include "base/err.h"
#include "base/util.h"
#include "dom/clom.h"
#include "node/admin_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

struct vdisk_set {
	struct admin_req *r;
	struct dom_promise promise;
	bool promised;
};

/* What is to be reserved for @o under @to, after @from. */
static uint64_t reserve_under(const Directory__Object *o,
			      const Directory__Policy *from,
			      const Directory__Policy *to)
{
	/* As much as before is as it is: it may have grown in steps. */
	if ((from != NULL ? from->reserve_percent : 0) ==
	    (to != NULL ? to->reserve_percent : 0))
		return o->reserved_bytes;
	return clom_reserved(to, o->size_bytes);
}

/* Does what is laid out do for policy @to?  @forced: by force. */
static int layout_check(struct admin_req *r, const Directory__Object *o,
			const Directory__Policy *to, bool *forced)
{
	char why[200];

	*forced = !clom_compliant(o, to, why, sizeof(why)) && to != NULL;
	if (!*forced || to->force_provision)
		return 0;
	return admin__why(r, -EOPNOTSUPP,
			  "A virtual disk is not laid out anew: make one with "
			  "that policy, and copy it; or give a policy with "
			  "--force-provision, and it is reported as not "
			  "compliant.",
			  "virtual disk %s does not do for policy %.63s: %s",
			  r->msg->vdisk_set->name, to->name, why);
}

/* What is to be changed, as the directory has it now. */
struct vdisk_set_view {
	const struct cmmds_entry *vdisk, *object;
	const Directory__Policy *to; /* NULL: none */
	bool forced;
	uint64_t reserved_bytes;
};

static int vdisk_set_look(struct admin_req *r, struct vdisk_set_view *v)
{
	const Admin__VdiskSet *m = r->msg->vdisk_set;
	struct cmmds *cmmds = r->node->cmmds;
	const Directory__VDisk *vdisk;
	const Directory__Object *o;
	const struct cmmds_entry *p;

	memset(v, 0, sizeof(*v));
	if (strlen(m->name) <= CMMDS_KEY_MAX)
		v->vdisk =
			cmmds_get(cmmds, CMMDS_VDISK, m->name, strlen(m->name));
	if (v->vdisk == NULL)
		return admin__why(r, -ENOENT, "basalt vdisk list shows them.",
				  "there is no virtual disk %.80s", m->name);
	vdisk = (const Directory__VDisk *)v->vdisk->message;
	v->object =
		cmmds_get(cmmds, CMMDS_OBJECT, vdisk->oid.data, vdisk->oid.len);
	o = v->object != NULL ? (const void *)v->object->message : NULL;
	if (o == NULL || o->deleted)
		return admin__why(
			r, -ENOENT,
			"basalt health and basalt vdisk show tell how it is.",
			"virtual disk %s: its object is missing", m->name);
	if (m->policy[0] != '\0') {
		p = admin__policy_entry(r, m->policy);
		if (p == NULL)
			return r->status;
		v->to = (const Directory__Policy *)p->message;
	}
	v->reserved_bytes = reserve_under(
		o, o->policy[0] != '\0' ? cmmds_policy(cmmds, o->policy) : NULL,
		v->to);
	return layout_check(r, o, v->to, &v->forced);
}

static int vdisk_set_build(struct admin_req *r, struct cmmds_command *cmd)
{
	const Admin__VdiskSet *m = r->msg->vdisk_set;
	const struct vdisk_set *set = r->ctx;
	struct vdisk_set_view view;
	Directory__VDisk v;
	Directory__Object o;

	if (vdisk_set_look(r, &view) < 0)
		return r->status;
	assert(view.vdisk != NULL && view.object != NULL);
	v = *(const Directory__VDisk *)view.vdisk->message;
	o = *(const Directory__Object *)view.object->message;
	if (view.reserved_bytes >
	    MAX(o.reserved_bytes,
		set->promised ? set->promise.reserved_bytes : 0))
		return admin__why(r, -EAGAIN, "Run the command again.",
				  "virtual disk %s, or its policy, has just "
				  "been changed",
				  m->name);
	cmmds_audit(cmd, r->who, "virtual disk %s: policy %s, was %s", m->name,
		    view.to != NULL ? m->policy : "none",
		    v.policy[0] != '\0' ? v.policy : "none");
	o.policy = v.policy = m->policy;
	o.forced = view.forced;
	o.reserved_bytes = view.reserved_bytes;
	cmmds_put(cmd, CMMDS_OBJECT, view.object->key, view.object->key_len,
		  view.object->revision, &o.base);
	cmmds_put(cmd, CMMDS_VDISK, m->name, strlen(m->name),
		  view.vdisk->revision, &v.base);
	return 0;
}

static void promise_end(struct vdisk_set *set)
{
	if (set->promised)
		dom_promise_end(&set->promise);
	set->promised = false;
}

static void vdisk_set_applied(struct admin_req *r)
{
	const Admin__VdiskSet *m = r->msg->vdisk_set;
	const Directory__VDisk *v = cmmds_vdisk(r->node->cmmds, m->name);
	const Directory__Object *o = NULL;
	char what[300], why[200] = "";
	char note[280], *notes[] = { note };

	promise_end(r->ctx);
	if (v != NULL)
		o = admin__object(r->node, &v->oid);
	if (o != NULL)
		node__object_compliant(r->node, o, why, sizeof(why));
	if (m->policy[0] != '\0')
		snprintf(what, sizeof(what),
			 "virtual disk %.100s has policy %.63s now", m->name,
			 m->policy);
	else
		snprintf(what, sizeof(what),
			 "virtual disk %.100s has no policy now", m->name);
	snprintf(note, sizeof(note), "It is not compliant: %s.", why);
	admin__done(r, what, notes, why[0] != '\0' ? 1 : 0, "", "");
}

static void vdisk_set_failed(struct admin_req *r)
{
	promise_end(r->ctx);
	admin__refuse(r);
}

static void vdisk_set_promised(struct dom_promise *promise, int status)
{
	struct vdisk_set *set = promise->data;
	struct admin_req *r = set->r;
	const Admin__VdiskSet *m = r->msg->vdisk_set;

	if (status < 0 && admin__stopping(r))
		return;
	if (status < 0) {
		admin__why(
			r, status,
			status == -ENOSPC
				? "basalt disk list shows what room there is."
			: status == -ENXIO ? "basalt object show tells which."
					   : "Repeat it in a moment.",
			"virtual disk %s cannot get policy %.63s: %s", m->name,
			m->policy,
			promise->why[0] ? promise->why : err_text(status));
		admin__refuse(r);
		return;
	}
	set->promised = true;
	admin__change(r, vdisk_set_build, vdisk_set_applied);
}

/* A resize that runs reserves by the policy that it found. */
static bool is_resized(const struct admin_req *r, const struct admin_req *other)
{
	return other->msg->command_case ==
		       ADMIN__REQUEST__COMMAND_VDISK_RESIZE &&
	       strcmp(other->msg->vdisk_resize->name,
		      r->msg->vdisk_set->name) == 0;
}

void admin__vdisk_set(struct admin_req *r)
{
	struct vdisk_set *set = calloc(1, sizeof(*set));
	struct vdisk_set_view view = { 0 };
	const Directory__Object *o;
	int rv;

	if (set == NULL) {
		admin__no_memory(r);
		return;
	}
	r->ctx = set;
	if (admin__another(r, is_resized))
		admin__why(r, -EBUSY, "Repeat it when that is done.",
			   "virtual disk %s is being resized by another "
			   "command",
			   r->msg->vdisk_set->name);
	else
		vdisk_set_look(r, &view);
	if (r->status < 0) {
		admin__refuse(r);
		return;
	}
	assert(view.object != NULL); /* or it was refused */
	set->r = r;
	r->failed = vdisk_set_failed;
	o = (const Directory__Object *)view.object->message;
	if (view.reserved_bytes <= o->reserved_bytes) {
		admin__change(r, vdisk_set_build, vdisk_set_applied);
		return;
	}
	set->promise.data = set;
	memcpy(set->promise.oid.b, view.object->key, view.object->key_len);
	set->promise.reserved_bytes = view.reserved_bytes;
	rv = dom_promise(r->node->dom, &set->promise, vdisk_set_promised);
	if (rv < 0)
		vdisk_set_promised(&set->promise, rv);
}
