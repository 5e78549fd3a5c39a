/* admin_policy: the policies that objects are placed by, and which has which. */
#include "base/size.h"
#include "base/util.h"
#include "dom/clom.h"
#include "node/admin_int.h"

#include <errno.h>
#include <stdlib.h>

static const char *const methods[] = {
	[DIRECTORY__POLICY__METHOD__MIRROR] = "mirror",
	[DIRECTORY__POLICY__METHOD__METHOD_RAID5] = "raid5",
	[DIRECTORY__POLICY__METHOD__METHOD_RAID6] = "raid6",
};

const struct cmmds_entry *admin__policy_entry(struct admin_req *r,
					      const char *name)
{
	const struct cmmds_entry *e = NULL;
	size_t len = strlen(name);

	if (len > 0 && len <= CMMDS_KEY_MAX)
		e = cmmds_get(r->node->cmmds, CMMDS_POLICY, name, len);
	if (e == NULL)
		admin__why(r, -ENOENT, "basalt policy list shows them.",
			   "there is no policy %.80s", name);
	return e;
}

static unsigned users_count(struct node *node, const char *name)
{
	const struct cmmds_entry *e = NULL;
	unsigned n = 0;

	while ((e = cmmds_next(node->cmmds, CMMDS_VDISK, e)) != NULL)
		n += strcmp(((const Directory__VDisk *)e->message)->policy,
			    name) == 0;
	return n;
}

/* ---- create ---- */

static int method_number(const char *text)
{
	if (text[0] == '\0')
		return DIRECTORY__POLICY__METHOD__MIRROR;
	for (size_t i = 0; i < ARRAY_LEN(methods); i++)
		if (strcmp(text, methods[i]) == 0)
			return (int)i;
	return -1;
}

static int create_check(struct admin_req *r)
{
	const Admin__Policy *m = r->msg->policy_create;
	int method = method_number(m->method);

	if (admin__name_check(r, "policy", m->name, false) < 0)
		return r->status;
	if (method < 0)
		return admin__why(r, -EINVAL, "Give one of these.",
				  "--method %.40s: mirror, raid5 or raid6",
				  m->method);
	if (m->ftt > 3)
		return admin__why(r, -ERANGE, "Give another --ftt.",
				  "--ftt %u: 0 to 3 failures can be tolerated",
				  m->ftt);
	if (method == DIRECTORY__POLICY__METHOD__METHOD_RAID5 && m->ftt != 1)
		return admin__why(r, -EINVAL,
				  "Give --ftt 1, or --method raid6 "
				  "for two.",
				  "raid5 tolerates 1 failure, not %u", m->ftt);
	if (method == DIRECTORY__POLICY__METHOD__METHOD_RAID6 && m->ftt != 2)
		return admin__why(r, -EINVAL,
				  "Give --ftt 2, or --method raid5 "
				  "for one.",
				  "raid6 tolerates 2 failures, not %u", m->ftt);
	if (m->stripe_width > 12)
		return admin__why(r, -ERANGE, "Give another --stripe-width.",
				  "--stripe-width %u: 1 to 12 are possible",
				  m->stripe_width);
	if (m->reserve_percent > 100)
		return admin__why(r, -ERANGE, "Give another --reserve.",
				  "--reserve %u: 0 to 100", m->reserve_percent);
	return 0;
}

static int create_build(struct admin_req *r, struct cmmds_command *cmd)
{
	const Admin__Policy *m = r->msg->policy_create;
	Directory__Policy p = DIRECTORY__POLICY__INIT;

	if (cmmds_policy(r->node->cmmds, m->name) != NULL)
		return admin__why(r, -EEXIST,
				  "basalt policy set changes its IOPS limit. "
				  "For the rest make another one, and give it "
				  "to them by basalt vdisk set.",
				  "policy %s exists already", m->name);
	p.name = m->name;
	p.failures_to_tolerate = m->ftt;
	p.method = (Directory__Policy__Method)method_number(m->method);
	p.stripe_width = m->stripe_width > 0 ? m->stripe_width : 1;
	p.reserve_percent = m->reserve_percent;
	p.iops_limit = m->iops_limit;
	p.force_provision = m->force_provision;
	cmmds_put(cmd, CMMDS_POLICY, m->name, strlen(m->name),
		  CMMDS_MUST_NOT_EXIST, &p.base);
	cmmds_audit(cmd, r->who,
		    "policy %s created: ftt %u, %s, stripes %u, reserve %u%%, "
		    "IOPS limit %llu%s",
		    m->name, m->ftt, methods[p.method], p.stripe_width,
		    p.reserve_percent, (unsigned long long)p.iops_limit,
		    p.force_provision ? ", placed by force" : "");
	return 0;
}

static unsigned nodes_count(struct node *node)
{
	const struct cmmds_entry *e = NULL;
	unsigned n = 0;

	while ((e = cmmds_next(node->cmmds, CMMDS_NODE, e)) != NULL)
		n++;
	return n;
}

static void create_applied(struct admin_req *r)
{
	const Admin__Policy *m = r->msg->policy_create;
	const Directory__Policy p = {
		.failures_to_tolerate = m->ftt,
		.method = (Directory__Policy__Method)method_number(m->method),
	};
	unsigned need = clom_domains_needed(&p), have;
	char what[120], note[240];
	char *notes[] = { note };

	have = nodes_count(r->node);
	snprintf(what, sizeof(what), "policy %s created", m->name);
	snprintf(
		note, sizeof(note),
		"It needs %u nodes and the cluster has %u: virtual disks with "
		"it are %s.",
		need, have,
		m->force_provision
			? "placed all the same, and reported non-compliant"
			: "refused until there are more, or made with a policy "
			  "that has --force-provision");
	admin__done(r, what, notes, need > have ? 1 : 0, "", "");
}

void admin__policy_create(struct admin_req *r)
{
	if (create_check(r) < 0)
		admin__refuse(r);
	else
		admin__change(r, create_build, create_applied);
}

/* ---- set ---- */

static int set_build(struct admin_req *r, struct cmmds_command *cmd)
{
	const Admin__PolicySet *m = r->msg->policy_set;
	const struct cmmds_entry *e = admin__policy_entry(r, m->name);
	Directory__Policy p;

	if (e == NULL)
		return r->status;
	p = *(const Directory__Policy *)e->message;
	cmmds_audit(cmd, r->who, "policy %s: IOPS limit %llu, was %llu",
		    m->name, (unsigned long long)m->iops_limit,
		    (unsigned long long)p.iops_limit);
	p.iops_limit = m->iops_limit;
	cmmds_put(cmd, CMMDS_POLICY, m->name, strlen(m->name), e->revision,
		  &p.base);
	return 0;
}

static void set_applied(struct admin_req *r)
{
	const Admin__PolicySet *m = r->msg->policy_set;
	unsigned users = users_count(r->node, m->name);
	char limit[40] = "no limit of";

	if (m->iops_limit > 0)
		snprintf(limit, sizeof(limit), "a limit of %llu",
			 (unsigned long long)m->iops_limit);
	admin__ok(r,
		  "policy %s has %s commands a second; it holds for its %u "
		  "virtual disk%s, each by itself",
		  m->name, limit, users, users == 1 ? "" : "s");
}

void admin__policy_set(struct admin_req *r)
{
	admin__change(r, set_build, set_applied);
}

/* ---- list, show, delete ---- */

/* The policies' users are counted in one look at all virtual disks. */
struct policy_users {
	char name[CMMDS_KEY_MAX + 1];
	unsigned count;
};

struct policy_list {
	struct admin_req *r;
	struct node_parts parts;
	struct node_walk walk;
	struct admin_list list;
	bool one; /* is asked for */
	size_t count;
	struct policy_users of[]; /* by name */
};

static int by_name(const void *a, const void *b)
{
	const struct policy_users *x = a, *y = b;

	return strcmp(x->name, y->name);
}

static struct policy_users *users_of(struct policy_list *l, const char *name)
{
	struct policy_users key;

	snprintf(key.name, sizeof(key.name), "%s", name);
	return bsearch(&key, l->of, l->count, sizeof(key), by_name);
}

static bool on_vdisk(const struct cmmds_entry *e, void *arg)
{
	const Directory__VDisk *v = (const Directory__VDisk *)e->message;
	struct policy_users *u =
		v->policy[0] != '\0' ? users_of(arg, v->policy) : NULL;

	if (u != NULL)
		u->count++;
	return true;
}

static bool on_policy(struct admin_list *list, const struct cmmds_entry *e)
{
	struct policy_list *l = container_of(list, struct policy_list, list);
	const Directory__Policy *p = (const Directory__Policy *)e->message;
	const struct policy_users *u = users_of(l, p->name);
	Admin__Policies policies = ADMIN__POLICIES__INIT;
	Admin__Policy out = ADMIN__POLICY__INIT, *one = &out;

	if (u == NULL) /* it is asked for another, or came meanwhile */
		return true;
	out.name = p->name;
	out.ftt = p->failures_to_tolerate;
	out.method =
		(char *)(p->method < ARRAY_LEN(methods) ? methods[p->method]
							: "unknown");
	out.stripe_width = p->stripe_width;
	out.reserve_percent = p->reserve_percent;
	out.iops_limit = p->iops_limit;
	out.force_provision = p->force_provision;
	out.vdisks = u->count;
	policies.policies = &one;
	policies.n_policies = 1;
	admin__list_add(list, &policies.base);
	return true;
}

static void policies_end(struct admin_list *list)
{
	struct admin_req *r = list->r;

	if (list->len == 0 && container_of(list, struct policy_list, list)->one)
		list->status =
			admin__why(r, -ENOENT, "basalt policy list shows them.",
				   "policy %s was deleted meanwhile",
				   r->msg->policy_show->name);
}

static bool users_part(struct node_parts *parts, unsigned max)
{
	struct policy_list *l = container_of(parts, struct policy_list, parts);

	if (node__walk(l->r->node, &l->walk, CMMDS_VDISK, max, on_vdisk, l) > 0)
		return true;
	l->list.kind = CMMDS_POLICY;
	l->list.result = ADMIN__RESPONSE__RESULT_POLICIES;
	l->list.each = on_policy;
	l->list.last = policies_end;
	admin__list(l->r, &l->list);
	return false;
}

/* All of them, or the one that is there. */
static void policy_answer(struct admin_req *r, const char *name)
{
	struct cmmds *cmmds = r->node->cmmds;
	size_t room = name != NULL ? 1 : cmmds_count(cmmds, CMMDS_POLICY);
	const struct cmmds_entry *e = NULL;
	struct policy_list *l = calloc(1, sizeof(*l) + room * sizeof(l->of[0]));

	if (l == NULL) {
		admin__no_memory(r);
		return;
	}
	r->ctx = l;
	l->r = r;
	l->one = name != NULL;
	while ((e = cmmds_next(cmmds, CMMDS_POLICY, e)) != NULL) {
		const Directory__Policy *p = (const void *)e->message;

		if (name == NULL || strcmp(p->name, name) == 0)
			snprintf(l->of[l->count++].name, sizeof(l->of[0].name),
				 "%s", p->name);
	}
	l->parts.part = users_part;
	node__parts_start(r->node, &l->parts);
}

void admin__policy_list(struct admin_req *r)
{
	policy_answer(r, NULL);
}

void admin__policy_show(struct admin_req *r)
{
	if (admin__policy_entry(r, r->msg->policy_show->name) == NULL)
		admin__refuse(r);
	else
		policy_answer(r, r->msg->policy_show->name);
}

static int delete_build(struct admin_req *r, struct cmmds_command *cmd)
{
	const char *name = r->msg->policy_delete->name;
	const struct cmmds_entry *e = admin__policy_entry(r, name);
	unsigned users;

	if (e == NULL)
		return r->status;
	users = users_count(r->node, name);
	if (users > 0)
		return admin__why(r, -EBUSY,
				  "basalt vdisk list shows which; give them "
				  "another one by basalt vdisk set, or delete "
				  "them first.",
				  "policy %s is used by %u virtual disk%s",
				  name, users, users == 1 ? "" : "s");
	cmmds_erase(cmd, CMMDS_POLICY, name, strlen(name), e->revision);
	cmmds_audit(cmd, r->who, "policy %s deleted", name);
	return 0;
}

static void delete_applied(struct admin_req *r)
{
	admin__ok(r, "policy %s deleted", r->msg->policy_delete->name);
}

void admin__policy_delete(struct admin_req *r)
{
	admin__change(r, delete_build, delete_applied);
}
