/* admin_lun: which virtual disk is which LUN of which target. */
#include "base/util.h"
#include "node/admin_int.h"
#include "node/names.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

void admin__lun_put(struct cmmds_command *cmd, const char *target, unsigned lun,
		    const char *vdisk, bool read_only, uint64_t expect)
{
	Directory__Lun m = DIRECTORY__LUN__INIT;
	uint8_t key[CMMDS_KEY_MAX];

	m.target = (char *)target;
	m.lun = lun;
	m.vdisk = (char *)vdisk;
	m.read_only = read_only;
	cmmds_put(cmd, CMMDS_LUN, key, node__lun_key(target, lun, key), expect,
		  &m.base);
}

Admin__Lun *admin__lun_answer(struct node *node, const Directory__Lun *lun)
{
	const Directory__Target *t = cmmds_target(node->cmmds, lun->target);
	const Directory__VDisk *v = cmmds_vdisk(node->cmmds, lun->vdisk);
	Admin__Lun *out = malloc(sizeof(*out));

	if (out == NULL)
		return NULL;
	admin__lun__init(out);
	out->target = lun->target;
	out->lun = lun->lun;
	out->vdisk = lun->vdisk;
	out->read_only = lun->read_only;
	if (t != NULL)
		out->iqn = t->iqn;
	if (v != NULL) {
		out->size_bytes = v->size_bytes;
		out->block_bytes = v->block_bytes;
	}
	return out;
}

void admin__luns_free(Admin__Lun **luns, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(luns[i]); /* the texts are the directory's */
	free(luns);
}

/* ---- add ---- */

/* A new name of a virtual disk goes to all its LUNs in one command. */
#define EXPORTS_MAX 1000u

/* The lowest free number, or -EEXIST / -ERANGE with the reason. */
static int number_choose(struct admin_req *r, const Admin__LunAdd *m,
			 const Directory__Target *t, unsigned *lun)
{
	bool used[NAMES_LUNS_MAX] = { false };
	const struct cmmds_entry *e = NULL;
	unsigned count = 0, exports = 0, n;
	char fix[200];

	while ((e = cmmds_of(r->node->cmmds, CMMDS_LUN, m->vdisk,
			     strlen(m->vdisk), e)) != NULL)
		exports++;
	while ((e = cmmds_under(r->node->cmmds, t->name, e)) != NULL) {
		const Directory__Lun *l = (const Directory__Lun *)e->message;

		if (strcmp(l->vdisk, m->vdisk) == 0) {
			snprintf(fix, sizeof(fix),
				 "For another number or mode take it away "
				 "first: basalt lun remove %.63s %u",
				 t->name, l->lun);
			return admin__why(r, -EEXIST, fix,
					  "%s is LUN %u of target %s already",
					  m->vdisk, l->lun, t->name);
		}
		if (m->lun_given && l->lun == m->lun)
			return admin__why(r, -EEXIST,
					  "Choose another --lun, or leave it "
					  "out for the next free one.",
					  "LUN %u of target %s is %s", l->lun,
					  t->name, l->vdisk);
		if (l->lun < NAMES_LUNS_MAX)
			used[l->lun] = true;
		count++;
	}
	for (n = 0; n < NAMES_LUNS_MAX && used[n]; n++)
		;
	if (count >= NAMES_LUNS_MAX)
		return admin__why(
			r, -ERANGE, "Make another target.",
			"target %s has %u LUNs, the most there can be", t->name,
			NAMES_LUNS_MAX);
	if (exports >= EXPORTS_MAX)
		return admin__why(r, -ERANGE,
				  "One target admits many initiators: basalt "
				  "target set --allow.",
				  "%s is in %u targets, the most there can be",
				  m->vdisk, exports);
	*lun = m->lun_given ? m->lun : n;
	return 0;
}

static int add_build(struct admin_req *r, struct cmmds_command *cmd)
{
	const Admin__LunAdd *m = r->msg->lun_add;
	struct cmmds *cmmds = r->node->cmmds;
	const Directory__Target *t = cmmds_target(cmmds, m->target);
	const Directory__VDisk *v = cmmds_vdisk(cmmds, m->vdisk);
	unsigned lun = 0;
	int rv;

	if (t == NULL)
		return admin__why(r, -ENOENT, "basalt target list shows them.",
				  "there is no target %.80s", m->target);
	if (v == NULL)
		return admin__why(r, -ENOENT, "basalt vdisk list shows them.",
				  "there is no virtual disk %.80s", m->vdisk);
	rv = number_choose(r, m, t, &lun);
	if (rv < 0)
		return rv;
	/*
	 * Both must still be there when it is applied.  The virtual disk is put as
	 * it is: of two that come at once the second looks again, and finds the
	 * LUN of the first.
	 */
	cmmds_expect(cmd, CMMDS_TARGET, t->name, strlen(t->name),
		     cmmds_get(cmmds, CMMDS_TARGET, t->name, strlen(t->name))
			     ->revision);
	cmmds_put(cmd, CMMDS_VDISK, v->name, strlen(v->name),
		  cmmds_get(cmmds, CMMDS_VDISK, v->name, strlen(v->name))
			  ->revision,
		  &v->base);
	admin__lun_put(cmd, t->name, lun, v->name, m->read_only,
		       CMMDS_MUST_NOT_EXIST);
	cmmds_audit(cmd, r->who, "%s added as LUN %u of target %s%s", v->name,
		    lun, t->name, m->read_only ? ", read-only" : "");
	*(unsigned *)r->ctx = lun;
	return 0;
}

static void add_applied(struct admin_req *r)
{
	admin__ok(r, "%s is LUN %u of target %s", r->msg->lun_add->vdisk,
		  *(unsigned *)r->ctx, r->msg->lun_add->target);
}

void admin__lun_add(struct admin_req *r)
{
	const Admin__LunAdd *m = r->msg->lun_add;

	if (m->lun_given && m->lun > ISCSI_LUN_MAX) {
		admin__why(
			r, -ERANGE,
			"Choose another --lun, or leave it out for the next free one.",
			"LUN %u: 0 to %u are possible", m->lun, ISCSI_LUN_MAX);
		admin__refuse(r);
		return;
	}
	r->ctx = calloc(1, sizeof(unsigned));
	if (r->ctx == NULL) {
		admin__no_memory(r);
		return;
	}
	admin__change(r, add_build, add_applied);
}

/* ---- remove, list ---- */

static int remove_build(struct admin_req *r, struct cmmds_command *cmd)
{
	const Admin__LunRemove *m = r->msg->lun_remove;
	struct cmmds *cmmds = r->node->cmmds;
	const Directory__Target *t = cmmds_target(cmmds, m->target);
	const struct cmmds_entry *e = NULL;
	const Directory__Lun *l;
	uint8_t key[CMMDS_KEY_MAX];
	unsigned sessions;

	if (names_ok(m->target, true) && m->lun <= ISCSI_LUN_MAX)
		e = cmmds_get(cmmds, CMMDS_LUN, key,
			      node__lun_key(m->target, m->lun, key));
	if (t == NULL)
		return admin__why(r, -ENOENT, "basalt target list shows them.",
				  "there is no target %.80s", m->target);
	if (e == NULL)
		return admin__why(r, -ENOENT, "basalt lun list shows them.",
				  "there is no LUN %u of target %.80s", m->lun,
				  m->target);
	l = (const Directory__Lun *)e->message;
	/* Those of other targets keep the virtual disk. */
	sessions = admin__target_sessions(r->node, t->iqn);
	if (sessions > 0 && !m->force)
		return admin__why(r, -EBUSY,
				  "Log the initiators out (basalt session "
				  "list), or repeat it with --force.",
				  "target %s, of which %s is LUN %u, has %u "
				  "session%s",
				  m->target, l->vdisk, m->lun, sessions,
				  sessions == 1 ? "" : "s");
	cmmds_erase(cmd, CMMDS_LUN, e->key, e->key_len, e->revision);
	cmmds_audit(cmd, r->who, "LUN %u (%s) of target %s removed", m->lun,
		    l->vdisk, m->target);
	return 0;
}

static void remove_applied(struct admin_req *r)
{
	admin__ok(r, "LUN %u of target %s removed; its virtual disk stays",
		  r->msg->lun_remove->lun, r->msg->lun_remove->target);
}

void admin__lun_remove(struct admin_req *r)
{
	admin__change(r, remove_build, remove_applied);
}

struct lun_list {
	struct admin_list list;
	char target[CMMDS_KEY_MAX + 1]; /* "": all */
};

static bool on_lun(struct admin_list *list, const struct cmmds_entry *e)
{
	const char *target = container_of(list, struct lun_list, list)->target;
	const Directory__Lun *l = (const Directory__Lun *)e->message;
	Admin__Luns luns = ADMIN__LUNS__INIT;
	Admin__Lun *out;

	if (target[0] != '\0' && strcmp(l->target, target) != 0)
		return false;
	out = admin__lun_answer(list->r->node, l);
	if (out == NULL) {
		list->status = -ENOMEM;
		return false;
	}
	luns.luns = &out;
	luns.n_luns = 1;
	admin__list_add(list, &luns.base);
	free(out);
	return true;
}

void admin__lun_list(struct admin_req *r)
{
	const char *target = r->msg->lun_list->target;
	struct lun_list *l;

	if (target[0] != '\0' && cmmds_target(r->node->cmmds, target) == NULL) {
		admin__why(r, -ENOENT, "basalt target list shows them.",
			   "there is no target %.80s", target);
		admin__refuse(r);
		return;
	}
	l = r->ctx = calloc(1, sizeof(*l));
	if (l == NULL) {
		admin__no_memory(r);
		return;
	}
	l->list.kind = CMMDS_LUN;
	l->list.result = ADMIN__RESPONSE__RESULT_LUNS;
	l->list.each = on_lun;
	strcpy(l->target, target);
	/* Its LUNs' keys begin with its name and a zero. */
	if (target[0] != '\0')
		node__walk_from(&l->list.walk, target, strlen(target) + 1);
	admin__list(r, &l->list);
}
