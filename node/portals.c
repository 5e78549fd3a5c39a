/*
 * portals: where initiators come in.  The configuration file names the
 * addresses, the directory by which transports they are served: both, unless
 * this node's entry says otherwise.
 *
 * Each portal is a portal group of its own, which is what a SCSI target port is
 * (RFC 7143 4.4.1): its number is the relative target port that registrations
 * are kept by, so its tag is the same.
 */
#define LOG_ROOM LOG_NODE
#include "base/log.h"
#include "base/util.h"
#include "node/node_int.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

Directory__Portal__Transport node__portal_transport(struct node *node,
						    unsigned index)
{
	const char *text = node->config->portals[index].text;
	const struct cmmds_entry *e;
	const Directory__Node *n;

	e = cmmds_get(node->cmmds, CMMDS_NODE, node->identity.id.b,
		      sizeof(node->identity.id.b));
	if (e == NULL)
		return DIRECTORY__PORTAL__TRANSPORT__BOTH;
	n = (const void *)e->message;
	for (size_t i = 0; i < n->n_portals; i++)
		if (strcmp(n->portals[i]->address, text) == 0)
			return n->portals[i]->transport;
	return DIRECTORY__PORTAL__TRANSPORT__BOTH;
}

/* As it is now: it is noted, where it has one, which interface that was. */
static int address_of(struct node *node, unsigned index,
		      struct sockaddr_storage *out)
{
	const struct config_portal *portal = &node->config->portals[index];
	int rv = config_portal_address(portal, out);

	if (rv == 0 && portal->zone[0] != '\0')
		node->portals[index].zone =
			((const struct sockaddr_in6 *)out)->sin6_scope_id;
	return rv;
}

static int tcp_set(struct node *node, unsigned index, bool on)
{
	struct node_portal *p = &node->portals[index];
	struct sockaddr_storage address;
	int rv = 0;

	if (on && !p->tcp)
		rv = address_of(node, index, &address);
	if (rv == 0 && on && !p->tcp)
		rv = iscsi_portal_listen(node->iscsi, index + 1,
					 (const struct sockaddr *)&address,
					 (uint16_t)(index + 1));
	else if (!on && p->tcp)
		rv = iscsi_portal_unlisten(node->iscsi, index + 1);
	if (rv < 0)
		return rv;
	p->known |= on;
	p->tcp = on;
	return 0;
}

/* Without TCP so far: iSER comes in by what iscsi knows. */
static int portal_declare(struct node *node, unsigned index)
{
	struct node_portal *p = &node->portals[index];
	struct sockaddr_storage address;
	int rv;

	if (p->known)
		return 0;
	rv = address_of(node, index, &address);
	if (rv == 0)
		rv = iscsi_portal_declare(node->iscsi, index + 1,
					  (const struct sockaddr *)&address,
					  (uint16_t)(index + 1));
	p->known = rv == 0;
	return rv;
}

static int iser_set(struct node *node, unsigned index, bool on, bool alone)
{
	struct node_portal *p = &node->portals[index];
	struct sockaddr_storage address;
	int rv;

	if (!on && p->iser) {
		(void)iser_unlisten(node->iser, index + 1);
		rv = iscsi_portal_drop(node->iscsi, index + 1, "iser");
		if (rv < 0)
			return rv; /* it is tried again */
	}
	p->iser = false;
	if (!on)
		return 0;
	/* With the port that TCP got, where any would do. */
	rv = iscsi_portal_address(node->iscsi, index + 1, &address);
	if (rv == 0)
		rv = iser_listen(node->iser, index + 1,
				 (const struct sockaddr *)&address, alone);
	p->iser = rv == 0;
	return rv;
}

static bool is_link_local(const struct config_portal *portal)
{
	const struct sockaddr_in6 *v6 = (const void *)&portal->address;

	return v6->sin6_family == AF_INET6 &&
	       IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
}

void node__listen_why(const struct config_portal *portal, int status, char *out,
		      size_t len)
{
	if (status == -ENODEV && portal->zone[0] != '\0')
		snprintf(out, len, "there is no interface %s", portal->zone);
	else if (status == -EADDRNOTAVAIL && portal->meant[0] != '\0')
		snprintf(out, len,
			 "no interface has this address; %s is another portal",
			 portal->meant);
	else if (status == -EADDRNOTAVAIL)
		snprintf(out, len, "no interface has this address");
	else if (status == -EADDRINUSE)
		snprintf(out, len,
			 "the port is taken, by another program or by a portal "
			 "of all addresses");
	else if (status == -EINVAL && portal->zone[0] == '\0' &&
		 is_link_local(portal))
		snprintf(out, len,
			 "a link-local address needs its interface: "
			 "[ADDR%%INTERFACE]:PORT");
	else
		snprintf(out, len, "%s", strerror(-status));
}

/* Said once, however often it is tried again. */
static void portal_tell(struct node *node, unsigned index, const char *what,
			int status)
{
	struct node_portal *p = &node->portals[index];
	const struct config_portal *portal = &node->config->portals[index];
	const char *text = portal->text;
	char why[120];

	node__listen_why(portal, status, why, sizeof(why));
	if (status < 0 && status != p->status)
		log_error("portal %s: %s: %s", text, what, why);
	else if (status == 0 && p->status < 0)
		log_info("portal %s: served now", text);
	p->status = status;
}

/* TCP goes once iSER is asked for, and not if that was in vain. */
static int iser_serve_alone(struct node *node, unsigned index)
{
	int rv = portal_declare(node, index);

	if (rv == 0)
		rv = iser_set(node, index, true, true);
	return rv == 0 ? tcp_set(node, index, false) : rv;
}

/* The transport that comes goes first: a portal is never without one. */
static void portal_serve(struct node *node, unsigned index)
{
	Directory__Portal__Transport t = node__portal_transport(node, index);
	int rv;

	if (t == DIRECTORY__PORTAL__TRANSPORT__ISER) {
		rv = iser_serve_alone(node, index);
		portal_tell(node, index, "not by iSER alone", rv);
		return;
	}
	rv = tcp_set(node, index, true);
	if (rv < 0) {
		portal_tell(node, index, "cannot listen", rv);
		return;
	}
	rv = iser_set(node, index, t != DIRECTORY__PORTAL__TRANSPORT__TCP,
		      false);
	portal_tell(node, index, "no iSER", rv);
}

static unsigned served(const struct node *node)
{
	unsigned count = 0;

	for (unsigned i = 0; i < node->config->portals_count; i++)
		count += node->portals[i].tcp || node->portals[i].iser;
	return count;
}

static void serve_all(struct node *node)
{
	for (unsigned i = 0; i < node->config->portals_count; i++)
		portal_serve(node, i);
	node->portals_listening = served(node);
}

static void on_change(struct cmmds_subscription *sub,
		      const struct cmmds_change *change)
{
	struct node *node = sub->data;
	const Directory__Node *n;

	if (change->new_entry == NULL || node->state != NODE_UP)
		return;
	n = (const void *)change->new_entry->message;
	if (n->uuid.len == sizeof(node->identity.id) &&
	    memcmp(n->uuid.data, node->identity.id.b, n->uuid.len) == 0)
		serve_all(node);
}

int node__portal_there(const struct config_portal *portal)
{
	struct sockaddr_storage address;
	int rv = config_portal_address(portal, &address), fd;

	if (rv < 0)
		return rv;
	if (address.ss_family == AF_INET)
		((struct sockaddr_in *)&address)->sin_port = 0;
	else
		((struct sockaddr_in6 *)&address)->sin6_port = 0;
	fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return 0; /* nobody knows */
	if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 &&
	    errno == EADDRNOTAVAIL)
		rv = -EADDRNOTAVAIL;
	close(fd);
	return rv;
}

/*
 * An interface that was made anew has another number: what listens by the old one
 * is not reached any more, and what came by it has lost its way.
 */
static void portal_follow(struct node *node, unsigned index)
{
	const struct config_portal *portal = &node->config->portals[index];
	struct node_portal *p = &node->portals[index];
	unsigned number =
		portal->zone[0] != '\0' ? if_nametoindex(portal->zone) : 0;

	if (number == 0 || number == p->zone || !p->known)
		return;
	if (p->iser)
		(void)iser_unlisten(node->iser, index + 1);
	p->iser = false;
	p->status = iscsi_portal_remove(node->iscsi, index + 1);
	if (p->status < 0)
		return; /* it is tried again */
	log_warn("portal %s: its interface is another one now", portal->text);
	p->known = p->tcp = false;
	p->status = -ENODEV;
}

/* An address may come up, and a port be given back, after basaltd's start. */
static void look_fired(struct env_timer *timer)
{
	struct node *node = container_of(timer, struct node, portals_look);

	for (unsigned i = 0; i < node->config->portals_count; i++) {
		portal_follow(node, i);
		if (node->portals[i].status < 0)
			portal_serve(node, i);
	}
	node->portals_listening = served(node);
	env_timer_start(node->env, timer, NODE_LOOK_NS);
}

unsigned node__portals_start(struct node *node)
{
	serve_all(node);
	log_info("serving on %u of %u portals", node->portals_listening,
		 node->config->portals_count);
	node->portals_sub.data = node;
	node->portals_sub.kind = CMMDS_NODE;
	node->portals_sub.cb = on_change;
	cmmds_subscribe(node->cmmds, &node->portals_sub);
	node->portals_subscribed = true;
	node->portals_look.cb = look_fired;
	env_timer_start(node->env, &node->portals_look, NODE_LOOK_NS);
	return node->portals_listening;
}

bool node__portals_may_come(const struct node *node)
{
	for (unsigned i = 0; i < node->config->portals_count; i++)
		if (node->portals[i].status == -ENODEV ||
		    node->portals[i].status == -EADDRNOTAVAIL)
			return true;
	return false;
}

void node__portals_stop(struct node *node)
{
	if (!node->portals_subscribed)
		return;
	cmmds_unsubscribe(&node->portals_sub);
	env_timer_stop(node->env, &node->portals_look);
	node->portals_subscribed = false;
}
