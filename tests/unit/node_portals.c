/*
 * Which transports a portal is served by, and what portal list says of it; iscsi,
 * iser and the directory are what these tests make of them.
 */
#include "base/util.h"
#include "node/admin_int.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct {
	bool tcp, declared, iser, ended; /* @ended: with TCP, nothing served */
	int tcp_status, iser_status; /* of the next calls */
	Directory__Portal__Transport transport;
} is;

static struct node node;
static struct config config;
static struct test_shard ts;
static bool tcp, iser;
static char why[256];

/* ---- the rooms ---- */

const struct cmmds_entry *__wrap_cmmds_get(struct cmmds *cmmds,
					   enum cmmds_kind kind,
					   const void *key, size_t key_len);
void __wrap_cmmds_subscribe(struct cmmds *cmmds,
			    struct cmmds_subscription *sub);
void __wrap_cmmds_unsubscribe(struct cmmds_subscription *sub);
int __wrap_iscsi_portal_listen(struct iscsi *iscsi, unsigned portal,
			       const struct sockaddr *address, uint16_t tpgt);
int __wrap_iscsi_portal_unlisten(struct iscsi *iscsi, unsigned portal);
int __wrap_iscsi_portal_declare(struct iscsi *iscsi, unsigned portal,
				const struct sockaddr *address, uint16_t tpgt);
int __wrap_iscsi_portal_drop(struct iscsi *iscsi, unsigned portal,
			     const char *transport);
int __wrap_iscsi_portal_address(struct iscsi *iscsi, unsigned portal,
				struct sockaddr_storage *out);
int __wrap_iser_listen(struct iser *of, unsigned portal,
		       const struct sockaddr *address, bool alone);
int __wrap_iser_unlisten(struct iser *of, unsigned portal);
bool __wrap_iser_listening(const struct iser *of, unsigned portal, char *text,
			   size_t len);
void __wrap_admin__reply(struct admin_req *r, Admin__Response *response);

static const struct cmmds_entry *this_node(void)
{
	static Directory__Portal portal;
	static Directory__Portal *portals[] = { &portal };
	static Directory__Node n;
	static struct cmmds_entry e;

	directory__portal__init(&portal);
	portal.address = config.portals[0].text;
	portal.transport = is.transport;
	directory__node__init(&n);
	n.uuid.data = node.identity.id.b;
	n.uuid.len = sizeof(node.identity.id.b);
	n.portals = portals;
	n.n_portals = 1;
	e.message = &n.base;
	return &e;
}

const struct cmmds_entry *__wrap_cmmds_get(struct cmmds *cmmds,
					   enum cmmds_kind kind,
					   const void *key, size_t key_len)
{
	return this_node();
}

void __wrap_cmmds_subscribe(struct cmmds *cmmds, struct cmmds_subscription *sub)
{
}

void __wrap_cmmds_unsubscribe(struct cmmds_subscription *sub)
{
}

int __wrap_iscsi_portal_listen(struct iscsi *iscsi, unsigned portal,
			       const struct sockaddr *address, uint16_t tpgt)
{
	CHECK(!is.tcp);
	if (is.tcp_status < 0)
		return is.tcp_status;
	is.tcp = true;
	return 0;
}

int __wrap_iscsi_portal_unlisten(struct iscsi *iscsi, unsigned portal)
{
	CHECK(is.tcp);
	is.tcp = false;
	is.declared = true;
	is.ended |= !is.iser;
	return 0;
}

int __wrap_iscsi_portal_declare(struct iscsi *iscsi, unsigned portal,
				const struct sockaddr *address, uint16_t tpgt)
{
	CHECK(!is.tcp && !is.declared);
	is.declared = true;
	return 0;
}

int __wrap_iscsi_portal_drop(struct iscsi *iscsi, unsigned portal,
			     const char *transport)
{
	CHECK_STR(transport, "iser");
	return 0;
}

int __wrap_iscsi_portal_address(struct iscsi *iscsi, unsigned portal,
				struct sockaddr_storage *out)
{
	CHECK(is.tcp || is.declared);
	*out = config.portals[0].address;
	return 0;
}

int __wrap_iser_listen(struct iser *of, unsigned portal,
		       const struct sockaddr *address, bool alone)
{
	if (is.iser_status < 0)
		return is.iser_status;
	is.iser = true;
	return 0;
}

int __wrap_iser_unlisten(struct iser *of, unsigned portal)
{
	is.iser = false;
	return 0;
}

bool __wrap_iser_listening(const struct iser *of, unsigned portal, char *text,
			   size_t len)
{
	snprintf(text, len, "%s", is.iser ? "" : "off");
	return is.iser;
}

void __wrap_admin__reply(struct admin_req *r, Admin__Response *response)
{
	const Admin__PortalInfo *p = response->portals->portals[0];

	tcp = p->tcp;
	iser = p->iser;
	snprintf(why, sizeof(why), "%s", p->why);
}

/* ---- a node with one portal ---- */

static void open_as(Directory__Portal__Transport transport)
{
	memset(&node, 0, sizeof(node));
	memset(&is, 0, sizeof(is));
	memset(&config, 0, sizeof(config));
	test_memory_open(&ts);
	config.portals_count = 1;
	CHECK_EQ(config_portal_parse("0.0.0.0", 3260, &config.portals[0]), 0);
	node.config = &config;
	node.env = ts.env;
	node.state = NODE_UP;
	node.identity.id = uuid_of(1);
	is.transport = transport;
}

static void close_it(void)
{
	node__portals_stop(&node);
	test_shard_close(&ts);
}

/* As `portal set` does. */
static void change_to(Directory__Portal__Transport transport)
{
	struct cmmds_change change = { .kind = CMMDS_NODE };

	is.transport = transport;
	change.new_entry = this_node();
	node.portals_sub.cb(&node.portals_sub, &change);
}

struct wait {
	struct env_timer timer;
	bool over;
};

static void on_waited(struct env_timer *timer)
{
	container_of(timer, struct wait, timer)->over = true;
}

/* Until what failed has been tried again. */
static void wait_for_look(void)
{
	struct wait w = { .timer.cb = on_waited };

	env_timer_start(ts.env, &w.timer, NODE_LOOK_NS + SEC);
	test_run(&ts, &w.over);
}

static void list(void)
{
	struct admin_req r = { .node = &node };

	admin__portal_list(&r);
}

#define T(t) DIRECTORY__PORTAL__TRANSPORT__##t

TEST(node_portals, tcp_goes_once_iser_has_come)
{
	open_as(T(BOTH));
	CHECK_EQ(node__portals_start(&node), 1);
	CHECK(is.tcp && is.iser);
	change_to(T(ISER));
	CHECK(!is.tcp && is.iser && !is.ended);
	change_to(T(TCP));
	CHECK(is.tcp && !is.iser);
	list();
	CHECK_STR(why, "");
	change_to(T(ISER));
	CHECK(!is.tcp && is.iser && !is.ended);
	close_it();
	open_as(T(ISER));
	CHECK_EQ(node__portals_start(&node), 1);
	CHECK(!is.tcp && is.declared && is.iser);
	close_it();
}

TEST(node_portals, tcp_stays_where_iser_does_not_come)
{
	open_as(T(TCP));
	node__portals_start(&node);
	is.iser_status = -ENOMEM;
	change_to(T(ISER));
	CHECK(is.tcp && !is.iser);
	list();
	CHECK(tcp && !iser);
	CHECK_STR(why, "iSER cannot be served: Cannot allocate memory; it is "
		       "tried again every 10 s");
	is.iser_status = 0;
	wait_for_look();
	CHECK(!is.tcp && is.iser && !is.ended);
	list();
	CHECK_STR(why, "");
	close_it();
}

TEST(node_portals, what_keeps_it_from_iser_is_said)
{
	open_as(T(BOTH));
	is.iser_status = -ENOMEM;
	CHECK_EQ(node__portals_start(&node), 1);
	list();
	CHECK(tcp && !iser);
	CHECK_STR(why, "iSER cannot be served: Cannot allocate memory; it is "
		       "tried again every 10 s");
	close_it();
}

TEST(node_portals, why_it_does_not_listen_is_told_in_words)
{
	static const struct {
		const char *portal;
		int status;
		const char *why;
	} cases[] = {
		{ "fe80::1%eth7", -ENODEV, "there is no interface eth7" },
		{ "10.0.0.1", -EADDRNOTAVAIL, "no interface has this address" },
		{ "::1:10", -EADDRNOTAVAIL, "no interface has this address" },
		{ "::1:3261", -EADDRNOTAVAIL,
		  "no interface has this address; [::1]:3261 is another portal" },
		{ "fe80::1", -EINVAL,
		  "a link-local address needs its interface: "
		  "[ADDR%INTERFACE]:PORT" },
		{ "10.0.0.1", -EINVAL, "Invalid argument" },
		{ "10.0.0.1", -ENODEV, "No such device" },
	};
	struct config_portal portal;

	for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
		CHECK_EQ(config_portal_parse(cases[i].portal, 3260, &portal),
			 0);
		node__listen_why(&portal, cases[i].status, why, sizeof(why));
		CHECK_STR(why, cases[i].why);
	}
}
