/* admin_portal: by which transports a portal of this node is served. */
#include "base/util.h"
#include "node/admin_int.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const names[] = {
	[DIRECTORY__PORTAL__TRANSPORT__BOTH] = "both",
	[DIRECTORY__PORTAL__TRANSPORT__TCP] = "tcp",
	[DIRECTORY__PORTAL__TRANSPORT__ISER] = "iser",
};

static int transport_of(const char *name)
{
	for (int i = 0; i < (int)ARRAY_LEN(names); i++)
		if (strcmp(names[i], name) == 0)
			return i;
	return -1;
}

/* ---- list ---- */

static void describe(struct node *node, unsigned index, Admin__PortalInfo *out,
		     char why[240])
{
	const struct node_portal *p = &node->portals[index];
	const struct config_portal *portal = &node->config->portals[index];
	int gone = node__portal_there(portal);
	char reason[120];

	admin__portal_info__init(out);
	out->number = index + 1;
	out->address = (char *)portal->text;
	out->transport = (char *)names[node__portal_transport(node, index)];
	out->tcp = p->tcp;
	why[0] = '\0';
	if (p->iser)
		out->iser = iser_listening(node->iser, index + 1, why, 240);
	node__listen_why(portal, p->status < 0 ? p->status : gone, reason,
			 sizeof(reason));
	if (p->status < 0)
		snprintf(why, 240, "%s: %s; it is tried again every %llu s",
			 p->tcp ? "iSER cannot be served"
				: "its address cannot be used",
			 reason, (unsigned long long)(NODE_LOOK_NS / SEC));
	else if (!p->iser && !p->tcp)
		snprintf(why, 240, "not served yet: disks are being opened");
	else if (gone < 0)
		snprintf(why, 240, "it is not reached: %s", reason);
	out->why = why;
}

void admin__portal_list(struct admin_req *r)
{
	Admin__PortalInfo items[CONFIG_PORTALS_MAX];
	Admin__PortalInfo *list[CONFIG_PORTALS_MAX];
	char why[CONFIG_PORTALS_MAX][240];
	Admin__Response response = ADMIN__RESPONSE__INIT;
	Admin__Portals portals = ADMIN__PORTALS__INIT;

	for (unsigned i = 0; i < r->node->config->portals_count; i++) {
		describe(r->node, i, &items[i], why[i]);
		list[i] = &items[i];
	}
	portals.portals = list;
	portals.n_portals = r->node->config->portals_count;
	response.result_case = ADMIN__RESPONSE__RESULT_PORTALS;
	response.portals = &portals;
	admin__reply(r, &response);
}

/* ---- set ---- */

/* However an IPv6 address is written; the count of them: there is none. */
static unsigned portal_named(const struct node *node, const char *address)
{
	struct config_portal p;
	unsigned i = 0;

	if (config_portal_parse(address, 3260, &p) < 0)
		return node->config->portals_count;
	while (i < node->config->portals_count &&
	       strcmp(node->config->portals[i].text, p.text) != 0)
		i++;
	return i;
}

static int set_build(struct admin_req *r, struct cmmds_command *cmd)
{
	const Admin__PortalSet *m = r->msg->portal_set;
	const struct uuid *id = &r->node->identity.id;
	const struct cmmds_entry *e =
		cmmds_get(r->node->cmmds, CMMDS_NODE, id->b, sizeof(id->b));
	Directory__Portal *list[CONFIG_PORTALS_MAX + 1];
	Directory__Portal one = DIRECTORY__PORTAL__INIT;
	const char *address =
		r->node->config->portals[portal_named(r->node, m->address)]
			.text;
	const Directory__Node *old;
	Directory__Node n;

	if (e == NULL)
		return admin__why(r, -EAGAIN, "Try again in a moment.",
				  "this node is not in the directory yet");
	old = (const void *)e->message;
	n = *old;
	n.portals = list;
	n.n_portals = 0;
	/* Others keep what they have; addresses that are gone are forgotten. */
	for (size_t i = 0; i < old->n_portals; i++) {
		bool known = false;

		for (unsigned k = 0; k < r->node->config->portals_count; k++)
			known |= strcmp(r->node->config->portals[k].text,
					old->portals[i]->address) == 0;
		if (known && n.n_portals < CONFIG_PORTALS_MAX &&
		    strcmp(old->portals[i]->address, address) != 0)
			list[n.n_portals++] = old->portals[i];
	}
	one.address = (char *)address;
	one.transport =
		(Directory__Portal__Transport)transport_of(m->transport);
	if (one.transport != DIRECTORY__PORTAL__TRANSPORT__BOTH)
		list[n.n_portals++] = &one;
	cmmds_put(cmd, CMMDS_NODE, id->b, sizeof(id->b), e->revision, &n.base);
	cmmds_audit(cmd, r->who, "portal %s: transport %s", address,
		    m->transport);
	return 0;
}

static void set_applied(struct admin_req *r)
{
	const Admin__PortalSet *m = r->msg->portal_set;
	unsigned index = portal_named(r->node, m->address);
	char why[240], what[400];
	Admin__PortalInfo now;

	describe(r->node, index, &now, why);
	snprintf(what, sizeof(what), "portal %.80s: %s; it serves %s%s%s",
		 m->address,
		 strcmp(m->transport, "both") == 0  ? "TCP and iSER"
		 : strcmp(m->transport, "tcp") == 0 ? "TCP alone"
						    : "iSER alone",
		 now.tcp && now.iser ? "both now"
		 : now.tcp	     ? "TCP now"
		 : now.iser	     ? "iSER now"
				     : "nothing yet",
		 why[0] ? ", no iSER: " : "", why);
	admin__ok(r, "%s", what);
}

/* ---- what a change would end ---- */

struct ending {
	const struct config_portal *portal;
	const char *transport;
	unsigned count;
};

/* Is @local, "ADDR:PORT" of a connection, without a zone, at @portal? */
static bool is_at(const char *local, const struct config_portal *portal)
{
	size_t plain = strcspn(portal->text, "%"), zone;
	const char *port = strrchr(local, ':');

	zone = portal->zone[0] != '\0' ? 1 + strlen(portal->zone) : 0;
	if (!address_any(&portal->address))
		return strncmp(local, portal->text, plain) == 0 &&
		       strcmp(local + plain, portal->text + plain + zone) == 0;
	return port != NULL && strcmp(port, strrchr(portal->text, ':')) == 0;
}

static void count_ending(const struct iscsi_session_info *info, void *arg)
{
	struct ending *e = arg;

	e->count += strcmp(info->transport, e->transport) == 0 &&
		    is_at(info->local, e->portal);
}

static unsigned sessions_by(struct node *node, unsigned index,
			    const char *transport)
{
	struct ending e = { .portal = &node->config->portals[index],
			    .transport = transport };

	iscsi_session_each(node->iscsi, count_ending, &e);
	return e.count;
}

static int set_check(struct admin_req *r, unsigned index)
{
	const Admin__PortalSet *m = r->msg->portal_set;
	bool alone = strcmp(m->transport, "both") != 0;
	const char *other = strcmp(m->transport, "tcp") == 0 ? "iser" : "tcp";
	char why[240];
	Admin__PortalInfo now;
	unsigned sessions;

	if (!alone || m->force)
		return 0;
	describe(r->node, index, &now, why);
	if (strcmp(m->transport, "iser") == 0 && !now.iser)
		return admin__why(r, -ENODEV,
				  "Set it to both first, which serves iSER as "
				  "soon as a device can; or repeat it with "
				  "--force.",
				  "portal %.80s: no iSER is served there now%s"
				  "%s",
				  m->address, why[0] ? ": " : "", why);
	sessions = sessions_by(r->node, index, other);
	if (sessions > 0)
		return admin__why(
			r, -EBUSY,
			"Log the initiators out (basalt session "
			"list), or repeat it with --force.",
			"portal %.80s: %u session%s over %s would end",
			m->address, sessions, sessions == 1 ? "" : "s",
			strcmp(other, "tcp") == 0 ? "TCP" : "iSER");
	return 0;
}

void admin__portal_set(struct admin_req *r)
{
	const Admin__PortalSet *m = r->msg->portal_set;
	unsigned i = portal_named(r->node, m->address);

	if (i == r->node->config->portals_count) {
		admin__why(
			r, -ENOENT,
			"basalt portal list shows them; addresses are set by "
			"'portals' in [network] of basalt.conf.",
			"this node has no portal %.80s", m->address);
		admin__refuse(r);
		return;
	}
	if (transport_of(m->transport) < 0) {
		admin__why(r, -EINVAL, "tcp, iser or both.",
			   "portal %s: there is no transport '%.40s'",
			   m->address, m->transport);
		admin__refuse(r);
		return;
	}
	if (set_check(r, i) < 0) {
		admin__refuse(r);
		return;
	}
	admin__change(r, set_build, set_applied);
}
