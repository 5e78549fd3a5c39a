/* admin_vdisk: virtual disks are made, resized, renamed and deleted here. */
#include "base/err.h"
#include "base/size.h"
#include "base/util.h"
#include "node/admin_int.h"

#include <errno.h>
#include <stdlib.h>

#define VDISK_MIN 4096ull
#define VDISK_MAX (128ull << 40) /* what an object can have */

struct vdisk_ctx {
	struct admin_req *r;
	struct dom_create create;
	struct dom_resize resize;
	uint64_t old_bytes; /* before the resize */
	int undoing; /* why a resize is taken back; 0: it is not */
	struct uuid oid;
	Directory__Target *target; /* of --export, ready to be put */
	char gone_target[CMMDS_KEY_MAX + 1];
	char idle_target[CMMDS_KEY_MAX + 1]; /* one of @idle_count */
	unsigned idle_count;
	int has_data; /* 1, 0, -errno: not known */
	bool checked;
};

/* NULL: no memory, and the request was refused. */
static struct vdisk_ctx *ctx_make(struct admin_req *r)
{
	struct vdisk_ctx *ctx = calloc(1, sizeof(*ctx));

	if (ctx == NULL) {
		admin__no_memory(r);
		return NULL;
	}
	ctx->r = r;
	r->ctx = ctx;
	return ctx;
}

static const struct cmmds_entry *vdisk_entry(struct admin_req *r,
					     const char *name)
{
	const struct cmmds_entry *e = NULL;
	size_t len = strlen(name);

	if (len > 0 && len <= CMMDS_KEY_MAX)
		e = cmmds_get(r->node->cmmds, CMMDS_VDISK, name, len);
	if (e == NULL)
		admin__why(r, -ENOENT, "basalt vdisk list shows them.",
			   "there is no virtual disk %.80s", name);
	return e;
}

static const char too_large_hint[] = "A policy with fewer stripes allows more; "
				     "several virtual disks hold more.";

static int size_check(struct admin_req *r, const char *name, uint64_t size)
{
	char text[SIZE_TEXT_MAX];

	if (size < VDISK_MIN || size > VDISK_MAX)
		return admin__why(r, -ERANGE,
				  "A virtual disk has a size of 4K to 128T.",
				  "virtual disk %s cannot have %llu bytes (%s)",
				  name, (unsigned long long)size,
				  size_format(size, text));
	if (size % 4096 != 0)
		return admin__why(r, -EINVAL,
				  "Give a multiple of 4K, as 4M and 10G are.",
				  "virtual disk %s: %llu bytes are no multiple "
				  "of 4096",
				  name, (unsigned long long)size);
	return 0;
}

/* ---- create ---- */

static int create_check(struct admin_req *r)
{
	const Admin__VdiskCreate *m = r->msg->vdisk_create;
	struct cmmds *cmmds = r->node->cmmds;
	char iqn[ISCSI_NAME_MAX + 1];

	if (admin__name_check(r, "virtual disk", m->name, m->export) < 0 ||
	    size_check(r, m->name, m->size_bytes) < 0)
		return r->status;
	if (m->block_bytes != 0 && m->block_bytes != 512 &&
	    m->block_bytes != 4096)
		return admin__why(r, -EINVAL, "Give one of these.",
				  "--block-size %u: 512 or 4096",
				  m->block_bytes);
	if (cmmds_vdisk(cmmds, m->name) != NULL)
		return admin__why(r, -EEXIST, "basalt vdisk list shows them.",
				  "virtual disk %s exists already", m->name);
	if (m->policy[0] != '\0' && cmmds_policy(cmmds, m->policy) == NULL)
		return admin__why(r, -ENOENT, "basalt policy list shows them.",
				  "there is no policy %.80s", m->policy);
	if (!m->export)
		return 0;
	if (cmmds_target(cmmds, m->name) != NULL)
		return admin__why(r, -EEXIST,
				  "Make it without --export and add it with "
				  "basalt lun add.",
				  "target %s exists already", m->name);
	admin__iqn_default(m->name, iqn, sizeof(iqn));
	if (admin__iqn_free(r, m->name, iqn) < 0)
		return r->status;
	return admin__access_check(r, m->access);
}

/* All that may fail comes before the object is made. */
static int target_make(struct vdisk_ctx *ctx)
{
	const Admin__VdiskCreate *m = ctx->r->msg->vdisk_create;
	char iqn[ISCSI_NAME_MAX + 1];

	if (!m->export)
		return 0;
	admin__iqn_default(m->name, iqn, sizeof(iqn));
	ctx->target = admin__target_make(ctx->r, m->name, iqn, m->access);
	return ctx->target != NULL ? 0 : ctx->r->status;
}

static void target_free(Directory__Target *t)
{
	if (t != NULL)
		directory__target__free_unpacked(t, NULL);
}

/* What comes into being with the object, in one command. */
static void create_commit(struct dom_create *req, struct cmmds_command *cmd)
{
	struct vdisk_ctx *ctx = req->data;
	struct admin_req *r = ctx->r;
	const Admin__VdiskCreate *m = r->msg->vdisk_create;
	Directory__VDisk v = DIRECTORY__VDISK__INIT;
	char size[SIZE_TEXT_MAX];

	v.name = m->name;
	v.oid.data = req->oid.b;
	v.oid.len = sizeof(req->oid.b);
	v.size_bytes = m->size_bytes;
	v.block_bytes = m->block_bytes ? m->block_bytes : 512;
	v.policy = m->policy;
	v.created_wall_ns = env_wall_ns(r->node->env);
	cmmds_put(cmd, CMMDS_VDISK, m->name, strlen(m->name),
		  CMMDS_MUST_NOT_EXIST, &v.base);
	if (ctx->target != NULL) {
		admin__target_put(cmd, ctx->target, &req->oid);
		admin__lun_put(cmd, m->name, 0, m->name, false,
			       CMMDS_MUST_NOT_EXIST);
	}
	cmmds_audit(cmd, r->who, "virtual disk %s created, %s%s", m->name,
		    size_format(m->size_bytes, size),
		    m->export ? ", exported" : "");
}

/* May virtual disks take more than the disks have? */
static bool overcommitted(struct node *node, char *note, size_t len)
{
	char may[SIZE_TEXT_MAX], has[SIZE_TEXT_MAX];
	struct admin_space sum;

	admin__space_sum(node, &sum);
	if (sum.provisioned_bytes <= sum.usable_bytes)
		return false;
	snprintf(note, len,
		 "Virtual disks may take %s in all, and the disks have %s: "
		 "when these are full, writes to what is not reserved are "
		 "refused.",
		 size_format(sum.provisioned_bytes, may),
		 size_format(sum.usable_bytes, has));
	return true;
}

static void create_done(struct vdisk_ctx *ctx)
{
	struct admin_req *r = ctx->r;
	const Admin__VdiskCreate *m = r->msg->vdisk_create;
	const Directory__Object *o =
		cmmds_object(r->node->cmmds, &ctx->create.oid);
	char size[SIZE_TEXT_MAX], what[700], id[UUID_TEXT_LEN], why[160];
	char access_note[300], forced_note[300], thin_note[300];
	Directory__Target *t = ctx->target;
	char *iqn = t != NULL ? t->iqn : "";
	char *notes[3];
	size_t n = 0;

	uuid_format(&ctx->create.oid, id);
	snprintf(what, sizeof(what), "virtual disk %s created, %s%s%s", m->name,
		 size_format(m->size_bytes, size),
		 iqn[0] ? ", exported as " : "", iqn);
	if (iqn[0] && (m->access == NULL ||
		       (m->access->n_allow == 0 && !m->access->chap_user[0]))) {
		snprintf(access_note, sizeof(access_note),
			 "Its target admits nobody yet: basalt target set %s "
			 "--allow IQN, or --chap USER.",
			 m->name);
		notes[n++] = access_note;
	}
	if (o != NULL &&
	    !node__object_compliant(r->node, o, why, sizeof(why))) {
		snprintf(forced_note, sizeof(forced_note),
			 "It is not compliant with policy %s: %s.", m->policy,
			 why);
		notes[n++] = forced_note;
	}
	if (o != NULL && o->reserved_bytes < node__tree_raw(o->tree) &&
	    overcommitted(r->node, thin_note, sizeof(thin_note)))
		notes[n++] = thin_note;
	admin__done(r, what, notes, n, id, iqn);
	target_free(t);
}

/* The directory has it, though what it stands for did not come into being. */
static bool create_entered(const struct vdisk_ctx *ctx)
{
	const Directory__VDisk *v = cmmds_vdisk(
		ctx->r->node->cmmds, ctx->r->msg->vdisk_create->name);

	return v != NULL && v->oid.len == sizeof(ctx->create.oid) &&
	       memcmp(v->oid.data, ctx->create.oid.b, v->oid.len) == 0;
}

static void on_created(struct dom_create *req, int status)
{
	struct vdisk_ctx *ctx = req->data;
	struct admin_req *r = ctx->r;
	const Admin__VdiskCreate *m = r->msg->vdisk_create;

	if (status == 0) {
		create_done(ctx);
		return;
	}
	target_free(ctx->target);
	/* Its disks are being closed: it may be there all the same. */
	if (r->node->state != NODE_UP && admin__unknown(r, -ESHUTDOWN)) {
		admin__refuse(r);
		return;
	}
	if (create_entered(ctx)) {
		admin__why(r, status,
			   status == -ETIMEDOUT
				   ? "They are when it does (basalt health); "
				     "or basalt vdisk delete it with --force."
				   : "See to that, then basalt vdisk delete it "
				     "with --force and repeat this.",
			   "virtual disk %s is made, but its components cannot "
			   "be made now: %s",
			   m->name,
			   status == -ETIMEDOUT ? "a disk does not answer"
						: err_text(status));
		admin__refuse(r);
		return;
	}
	if (status == -ETIMEDOUT && admin__unknown(r, status)) {
		admin__refuse(r);
		return;
	}
	/* Somebody may have taken the name meanwhile. */
	if (create_check(r) < 0) {
		admin__refuse(r);
		return;
	}
	admin__why(r, status,
		   status == -ENOSPC ? "basalt disk add PATH gives the cluster "
				       "more space; basalt disk list shows "
				       "what there is."
		   : status == -ENXIO  ? "Add what is missing, choose another "
					 "policy, or one with --force-provision."
		   : status == -ERANGE ? too_large_hint
		   : status == -EBUSY
			   ? "Repeat it in a moment."
			   : "Look with basalt vdisk list before you "
			     "repeat it.",
		   "virtual disk %s cannot be made: %s", m->name,
		   req->why[0] ? req->why : err_text(status));
	admin__refuse(r);
}

void admin__vdisk_create(struct admin_req *r)
{
	const Admin__VdiskCreate *m = r->msg->vdisk_create;
	struct vdisk_ctx *ctx = ctx_make(r);
	int rv;

	if (ctx == NULL)
		return;
	if (create_check(r) < 0 || target_make(ctx) < 0) {
		admin__refuse(r);
		return;
	}
	ctx->create.data = ctx;
	ctx->create.size_bytes = m->size_bytes;
	ctx->create.policy = m->policy;
	ctx->create.who = r->who;
	ctx->create.commit = create_commit;
	rv = dom_create(r->node->dom, &ctx->create, on_created);
	if (rv < 0)
		on_created(&ctx->create, rv);
}

/* ---- resize ---- */

static void resize_commit(struct dom_resize *req, struct cmmds_command *cmd)
{
	struct vdisk_ctx *ctx = req->data;
	struct admin_req *r = ctx->r;
	/* By its object: it may have been renamed while that got ready. */
	const struct cmmds_entry *e = node__vdisk_of(r->node, &ctx->oid);
	Directory__VDisk v;
	char size[SIZE_TEXT_MAX];

	if (e == NULL)
		return; /* deleted meanwhile: the object's change fails too */
	v = *(const Directory__VDisk *)e->message;
	if (ctx->undoing == 0)
		ctx->old_bytes = v.size_bytes;
	v.size_bytes = req->size_bytes;
	cmmds_put(cmd, CMMDS_VDISK, v.name, strlen(v.name), e->revision,
		  &v.base);
	cmmds_audit(cmd, r->who, "virtual disk %s resized to %s%s", v.name,
		    size_format(req->size_bytes, size),
		    ctx->undoing < 0 ? " again: it could not grow" : "");
}

static void resize_start(struct vdisk_ctx *ctx);

/* Was what went with it built before another command came between? */
static bool resize_is_outdated(struct vdisk_ctx *ctx, int status)
{
	struct admin_req *r = ctx->r;

	return (status == -EAGAIN || status == -ENOENT) &&
	       r->node->state == NODE_UP &&
	       node__vdisk_of(r->node, &ctx->oid) != NULL && r->attempts++ < 8;
}

/*
 * It was to grow onto a disk that turned out not to take anything.  Its sessions
 * wait: what it had is opened again, before they give up.
 */
static bool resize_is_undone(struct vdisk_ctx *ctx, int status)
{
	const struct dom_resize *req = &ctx->resize;
	struct node *node = ctx->r->node;

	if (status == 0 || !req->stored || req->size_bytes <= ctx->old_bytes ||
	    node->state != NODE_UP || node__vdisk_of(node, &ctx->oid) == NULL)
		return false;
	ctx->undoing = status;
	return true;
}

static void on_undone(struct vdisk_ctx *ctx, int status)
{
	struct admin_req *r = ctx->r;
	const Admin__VdiskResize *m = r->msg->vdisk_resize;
	char size[SIZE_TEXT_MAX], old[SIZE_TEXT_MAX];

	if (status == 0 || ctx->resize.stored)
		admin__why(r, ctx->undoing,
			   status == 0 ? "basalt disk list shows which disk is "
					 "to blame; one that has failed is not "
					 "chosen again."
				       : "basalt disk list shows which disk "
					 "has failed: it cannot be opened "
					 "before that is back.",
			   "virtual disk %s cannot grow to %s: a disk does not "
			   "take what is needed for that; it has %s, as before",
			   m->name, size_format(m->size_bytes, size),
			   size_format(ctx->old_bytes, old));
	else
		admin__why(r, ctx->undoing,
			   "basalt disk list shows which disk is to blame: "
			   "basalt disk retry, or basalt vdisk resize to its "
			   "old size with --force.",
			   "virtual disk %s has %s now, but cannot be opened "
			   "with that: a disk does not take what is needed for "
			   "it",
			   m->name, size_format(m->size_bytes, size));
	admin__refuse(r);
}

static void on_resized(struct dom_resize *req, int status)
{
	struct vdisk_ctx *ctx = req->data;
	struct admin_req *r = ctx->r;
	const Admin__VdiskResize *m = r->msg->vdisk_resize;
	char size[SIZE_TEXT_MAX];

	if (resize_is_outdated(ctx, status) ||
	    (ctx->undoing == 0 && resize_is_undone(ctx, status))) {
		resize_start(ctx);
		return;
	}
	/* Its disks are being closed: it may have the size all the same. */
	if (status < 0 && status != -EALREADY && r->node->state != NODE_UP &&
	    admin__unknown(r, -ESHUTDOWN)) {
		admin__refuse(r);
		return;
	}
	if (ctx->undoing < 0 && status != -EALREADY) {
		on_undone(ctx, status);
		return;
	}
	if (status == 0 || status == -EALREADY) {
		admin__ok(r, "virtual disk %s is %s now", m->name,
			  size_format(m->size_bytes, size));
		return;
	}
	if (status == -ENOTEMPTY)
		admin__why(r, -EBUSY, "--force cuts it off.",
			   "virtual disk %s has data beyond %s", m->name,
			   size_format(m->size_bytes, size));
	else if (status == -EBUSY)
		admin__why(
			r, status,
			"Try again in a moment; basalt health tells of disks "
			"that do not answer.",
			"virtual disk %s cannot be resized now: %s", m->name,
			req->why[0] ? req->why : "its object is busy");
	else if (status == -ENOENT)
		admin__why(r, status, "basalt vdisk list shows them.",
			   "virtual disk %s was deleted meanwhile", m->name);
	else if (status != -ETIMEDOUT || !admin__unknown(r, status))
		admin__why(r, status,
			   status == -ENXIO ? "basalt object show tells which "
					      "disk is not in service."
			   : status == -ERANGE ? too_large_hint
					       : "basalt vdisk show tells its "
						 "size now.",
			   "virtual disk %s cannot be resized: %s", m->name,
			   req->why[0] ? req->why : err_text(status));
	admin__refuse(r);
}

static void resize_start(struct vdisk_ctx *ctx)
{
	struct admin_req *r = ctx->r;
	int rv;

	ctx->resize.data = ctx;
	ctx->resize.oid = ctx->oid;
	ctx->resize.undo = ctx->undoing < 0;
	ctx->resize.size_bytes = ctx->resize.undo
					 ? ctx->old_bytes
					 : r->msg->vdisk_resize->size_bytes;
	ctx->resize.keep_data = !r->msg->vdisk_resize->force;
	ctx->resize.commit = resize_commit;
	rv = dom_resize(r->node->dom, &ctx->resize, on_resized);
	if (rv < 0)
		on_resized(&ctx->resize, rv);
}

static bool same_resize(const struct admin_req *r,
			const struct admin_req *other)
{
	const struct vdisk_ctx *ctx = r->ctx, *others = other->ctx;

	return other->msg->command_case ==
		       ADMIN__REQUEST__COMMAND_VDISK_RESIZE &&
	       others != NULL && uuid_equal(&others->oid, &ctx->oid);
}

void admin__vdisk_resize(struct admin_req *r)
{
	const Admin__VdiskResize *m = r->msg->vdisk_resize;
	const struct cmmds_entry *e = vdisk_entry(r, m->name);
	struct vdisk_ctx *ctx = ctx_make(r);
	const Directory__VDisk *v;
	char size[SIZE_TEXT_MAX];
	unsigned sessions;

	if (ctx == NULL)
		return;
	if (e == NULL || size_check(r, m->name, m->size_bytes) < 0) {
		admin__refuse(r);
		return;
	}
	v = (const Directory__VDisk *)e->message;
	memcpy(ctx->oid.b, v->oid.data, MIN(v->oid.len, sizeof(ctx->oid)));
	if (admin__another(r, same_resize)) {
		admin__why(r, -EBUSY,
			   "basalt vdisk show tells its size once that is "
			   "done; then repeat this.",
			   "virtual disk %s is being resized by another "
			   "command",
			   m->name);
		admin__refuse(r);
		return;
	}
	if (m->size_bytes == v->size_bytes) {
		admin__ok(r, "virtual disk %s is %s already", m->name,
			  size_format(v->size_bytes, size));
		return;
	}
	sessions = iscsi_object_sessions(r->node->iscsi, &ctx->oid);
	if (m->size_bytes < v->size_bytes && !m->force && sessions > 0) {
		admin__why(r, -EBUSY,
			   "Log the initiators out (basalt session list), or "
			   "repeat it with --force.",
			   "virtual disk %s would shrink under %u session%s",
			   m->name, sessions, sessions == 1 ? "" : "s");
		admin__refuse(r);
		return;
	}
	resize_start(ctx);
}

/* ---- rename ---- */

static int rename_build(struct admin_req *r, struct cmmds_command *cmd)
{
	const Admin__VdiskRename *m = r->msg->vdisk_rename;
	const struct cmmds_entry *e = vdisk_entry(r, m->name), *l = NULL;
	Directory__VDisk v;

	if (e == NULL)
		return r->status;
	if (cmmds_vdisk(r->node->cmmds, m->new_name) != NULL)
		return admin__why(r, -EEXIST, "basalt vdisk list shows them.",
				  "virtual disk %s exists already",
				  m->new_name);
	v = *(const Directory__VDisk *)e->message;
	v.name = m->new_name;
	cmmds_put(cmd, CMMDS_VDISK, m->new_name, strlen(m->new_name),
		  CMMDS_MUST_NOT_EXIST, &v.base);
	cmmds_erase(cmd, CMMDS_VDISK, m->name, strlen(m->name), e->revision);
	while ((l = cmmds_of(r->node->cmmds, CMMDS_LUN, m->name,
			     strlen(m->name), l)) != NULL) {
		const Directory__Lun *lun = (const Directory__Lun *)l->message;

		admin__lun_put(cmd, lun->target, lun->lun, m->new_name,
			       lun->read_only, l->revision);
	}
	cmmds_audit(cmd, r->who, "virtual disk %s renamed to %s", m->name,
		    m->new_name);
	return 0;
}

static void rename_applied(struct admin_req *r)
{
	const Admin__VdiskRename *m = r->msg->vdisk_rename;

	admin__ok(r, "virtual disk %s is %s now; its targets keep their names",
		  m->name, m->new_name);
}

void admin__vdisk_rename(struct admin_req *r)
{
	if (admin__name_check(r, "virtual disk", r->msg->vdisk_rename->new_name,
			      false) < 0)
		admin__refuse(r);
	else
		admin__change(r, rename_build, rename_applied);
}

/* ---- delete ---- */

/* Has @target no LUN but those of @vdisk? */
static bool target_ends(struct node *node, const char *target,
			const char *vdisk)
{
	const struct cmmds_entry *l = NULL;

	while ((l = cmmds_under(node->cmmds, target, l)) != NULL)
		if (strcmp(((const Directory__Lun *)l->message)->vdisk,
			   vdisk) != 0)
			return false;
	return true;
}

/* One made by hand, maybe with secrets, stays; so does one of an older version,
 * which did not note what made it. */
static void delete_target(struct vdisk_ctx *ctx, struct cmmds_command *cmd,
			  const char *name)
{
	const struct cmmds_entry *e = cmmds_get(
		ctx->r->node->cmmds, CMMDS_TARGET, name, strlen(name));
	const Directory__Target *t;

	if (e == NULL)
		return;
	t = (const Directory__Target *)e->message;
	if (t->made_for.len != sizeof(ctx->oid) ||
	    memcmp(t->made_for.data, ctx->oid.b, sizeof(ctx->oid)) != 0) {
		/* LUNs of a target follow each other. */
		ctx->idle_count += strcmp(ctx->idle_target, name) != 0;
		strcpy(ctx->idle_target, name);
		return;
	}
	cmmds_erase(cmd, CMMDS_TARGET, name, strlen(name), e->revision);
	strcpy(ctx->gone_target, name);
}

/* The LUNs go with it, and so does a target that --export made for it. */
static void delete_luns(struct admin_req *r, struct cmmds_command *cmd,
			const char *name)
{
	struct vdisk_ctx *ctx = r->ctx;
	const struct cmmds_entry *l = NULL;

	ctx->gone_target[0] = ctx->idle_target[0] = '\0';
	ctx->idle_count = 0;
	while ((l = cmmds_of(r->node->cmmds, CMMDS_LUN, name, strlen(name),
			     l)) != NULL) {
		const Directory__Lun *lun = (const Directory__Lun *)l->message;

		cmmds_erase(cmd, CMMDS_LUN, l->key, l->key_len, l->revision);
		if (strcmp(lun->target, ctx->gone_target) != 0 &&
		    target_ends(r->node, lun->target, name))
			delete_target(ctx, cmd, lun->target);
	}
}

static int delete_build(struct admin_req *r, struct cmmds_command *cmd)
{
	const Admin__Name *m = r->msg->vdisk_delete;
	struct vdisk_ctx *ctx = r->ctx;
	const struct cmmds_entry *e = vdisk_entry(r, m->name);
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;
	const Directory__VDisk *v;
	const Directory__Object *o;
	unsigned sessions;

	if (e == NULL)
		return r->status;
	v = (const Directory__VDisk *)e->message;
	if (v->oid.len != sizeof(ctx->oid) ||
	    memcmp(v->oid.data, ctx->oid.b, sizeof(ctx->oid)) != 0)
		return admin__why(
			r, -ESTALE, "Look again, then repeat it.",
			"virtual disk %s became another one meanwhile",
			m->name);
	sessions = iscsi_object_sessions(r->node->iscsi, &ctx->oid);
	if (sessions > 0 && !m->force)
		return admin__why(r, -EBUSY,
				  "Log the initiators out (basalt session "
				  "list), or repeat it with --force.",
				  "virtual disk %s has %u session%s", m->name,
				  sessions, sessions == 1 ? "" : "s");
	if (ctx->has_data != 0 && !m->force)
		return admin__why(r, -EBUSY,
				  "--force deletes it with its data.",
				  ctx->has_data > 0
					  ? "virtual disk %s holds data"
					  : "virtual disk %s: whether it holds "
					    "data cannot be read now",
				  m->name);
	o = admin__object(r->node, &v->oid);
	if (o != NULL && !o->deleted) {
		op.op = DIRECTORY__OBJECT_COMMAND__OP__DELETE;
		op.oid = v->oid;
		op.expect_oepoch = o->oepoch;
		op.expect_csn = o->csn;
		cmmds_object_op(cmd, &op);
	}
	cmmds_erase(cmd, CMMDS_VDISK, m->name, strlen(m->name), e->revision);
	delete_luns(r, cmd, m->name);
	cmmds_audit(cmd, r->who, "virtual disk %s deleted%s", m->name,
		    m->force ? " by force" : "");
	return 0;
}

static void delete_applied(struct admin_req *r)
{
	const Admin__Name *m = r->msg->vdisk_delete;
	struct vdisk_ctx *ctx = r->ctx;
	char idle[200] = "";

	if (ctx->idle_count > 1)
		snprintf(idle, sizeof(idle),
			 "; target %.100s and %u other%s have no LUN now, and "
			 "stay",
			 ctx->idle_target, ctx->idle_count - 1,
			 ctx->idle_count > 2 ? "s" : "");
	else if (ctx->idle_count == 1)
		snprintf(idle, sizeof(idle),
			 "; target %.100s has no LUN now, and stays",
			 ctx->idle_target);
	admin__ok(r, "virtual disk %s deleted%s%s", m->name,
		  ctx->gone_target[0] ? ", and its target" : "", idle);
}

static void on_delete_checked(void *arg, int result)
{
	struct vdisk_ctx *ctx = arg;

	ctx->has_data = result;
	admin__change(ctx->r, delete_build, delete_applied);
}

void admin__vdisk_delete(struct admin_req *r)
{
	const Admin__Name *m = r->msg->vdisk_delete;
	const struct cmmds_entry *e = vdisk_entry(r, m->name);
	struct vdisk_ctx *ctx = ctx_make(r);
	const Directory__VDisk *v;

	if (ctx == NULL)
		return;
	if (e == NULL) {
		admin__refuse(r);
		return;
	}
	v = (const Directory__VDisk *)e->message;
	memcpy(ctx->oid.b, v->oid.data, MIN(v->oid.len, sizeof(ctx->oid)));
	if (m->force)
		admin__change(r, delete_build, delete_applied);
	else if (admin__data_check(r->node, &ctx->oid, 0, v->size_bytes,
				   on_delete_checked, ctx) < 0)
		admin__no_memory(r);
}
