/* admin_target: targets, who may log in, and their LUNs. */
#include "base/err.h"
#include "base/util.h"
#include "node/admin_int.h"
#include "node/names.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

#define ALLOW_MAX 256u

/* ---- iSCSI names ---- */

void admin__iqn_default(const char *name, char *out, size_t len)
{
	snprintf(out, len, "%s:%s", NAMES_IQN_PREFIX, name);
}

int admin__iqn_free(struct admin_req *r, const char *name, const char *iqn)
{
	const struct cmmds_entry *e = NULL;

	while ((e = cmmds_of(r->node->cmmds, CMMDS_TARGET, iqn, strlen(iqn),
			     e)) != NULL) {
		const Directory__Target *t =
			(const Directory__Target *)e->message;

		if (strcmp(t->name, name) != 0)
			return admin__why(r, -EEXIST,
					  "Give another name with --iqn.",
					  "%s is the name of target %s already",
					  iqn, t->name);
	}
	return 0;
}

static const struct cmmds_entry *target_entry(struct admin_req *r,
					      const char *name)
{
	const struct cmmds_entry *e = NULL;
	size_t len = strlen(name);

	if (len > 0 && len <= CMMDS_KEY_MAX)
		e = cmmds_get(r->node->cmmds, CMMDS_TARGET, name, len);
	if (e == NULL)
		admin__why(r, -ENOENT, "basalt target list shows them.",
			   "there is no target %.80s", name);
	return e;
}

/* ---- who may log in ---- */

static int user_check(struct admin_req *r, const char *option, const char *user,
		      const ProtobufCBinaryData *secret)
{
	if (user[0] == '\0')
		return 0;
	if (strlen(user) > NAMES_USER_MAX)
		return admin__why(r, -EINVAL, "Give a shorter one.",
				  "%s: a user name of at most %u characters",
				  option, NAMES_USER_MAX);
	if (!names_printable(user))
		return admin__why(r, -EINVAL, "Give another user name.",
				  "%s: printable characters without blanks "
				  "only",
				  option);
	if (secret->len < ISCSI_SECRET_MIN || secret->len > ISCSI_SECRET_MAX)
		return admin__why(r, -EINVAL,
				  "RFC 7143 asks for 96 bits at least; "
				  "openssl rand -base64 18 makes a good one.",
				  "%s %s: the secret has %zu character%s; it "
				  "must have %u to %u",
				  option, user, secret->len,
				  secret->len == 1 ? "" : "s", ISCSI_SECRET_MIN,
				  ISCSI_SECRET_MAX);
	return 0;
}

int admin__access_check(struct admin_req *r, const Admin__Access *access)
{
	int rv;

	if (access == NULL)
		return 0;
	for (size_t i = 0; i < access->n_allow; i++)
		if (strcmp(access->allow[i], "any") != 0 &&
		    !names_iscsi_ok(access->allow[i]))
			return admin__why(r, -EINVAL,
					  "It is in the initiator's "
					  "/etc/iscsi/initiatorname.iscsi; "
					  "'any' admits everybody.",
					  "--allow %.80s: not an iSCSI name in "
					  "small ASCII letters (iqn., eui. or "
					  "naa.)",
					  access->allow[i]);
	rv = user_check(r, "--chap", access->chap_user, &access->chap_secret);
	if (rv == 0)
		rv = user_check(r, "--mutual-chap", access->mutual_user,
				&access->mutual_secret);
	if (rv == 0 && access->chap_user[0] != '\0' &&
	    access->mutual_user[0] != '\0' &&
	    access->chap_secret.len == access->mutual_secret.len &&
	    memcmp(access->chap_secret.data, access->mutual_secret.data,
		   access->chap_secret.len) == 0)
		rv = admin__why(r, -EINVAL, "Give another one.",
				"the secrets of both directions are the same; "
				"RFC 7143, 9.2.1 forbids it");
	return rv;
}

static int seal(struct admin_req *r, const char *which, const char *name,
		const ProtobufCBinaryData *secret, ProtobufCBinaryData *out)
{
	char context[320];
	uint8_t nonce[NODE_SEAL_NONCE];
	int rv;

	snprintf(context, sizeof(context), "%s %s", which, name);
	env_secure_random(r->node->env, nonce, sizeof(nonce));
	free(out->data);
	out->data = NULL;
	rv = node__secret_seal(r->node->key, nonce, context, secret->data,
			       secret->len, &out->data, &out->len);
	if (rv < 0)
		admin__why(r, rv, "Try again in a moment.",
			   "the secret of %s cannot be sealed: %s", name,
			   err_text(rv));
	return rv;
}

static void text_clear(char **field)
{
	if (*field != (char *)protobuf_c_empty_string)
		free(*field);
	*field = (char *)protobuf_c_empty_string;
}

/* A text that is NULL would be stored as an empty one: as no CHAP. */
static int text_set(struct admin_req *r, char **field, const char *value)
{
	char *copy = strdup(value);

	if (copy == NULL)
		return admin__why(r, -ENOMEM, "Try again in a moment.",
				  "no memory for a target");
	text_clear(field);
	*field = copy;
	return 0;
}

static bool listed(char **list, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(list[i], name) == 0)
			return true;
	return false;
}

/*
 * A new secret of one direction must not be the one that the other direction
 * keeps (RFC 7143, 9.2.1); admin__access_check() saw only those given together.
 */
static int secret_other(struct admin_req *r, const Directory__Target *t,
			const char *which, const ProtobufCBinaryData *sealed,
			const ProtobufCBinaryData *given)
{
	uint8_t other[ISCSI_SECRET_MAX];
	char context[320];
	size_t len = 0;
	bool same;

	snprintf(context, sizeof(context), "%s %s", which, t->name);
	if (node__secret_open(r->node->key, context, sealed->data, sealed->len,
			      other, sizeof(other), &len) < 0)
		return 0; /* it lets nobody in, whatever it is */
	same = len == given->len && memcmp(other, given->data, len) == 0;
	node__wipe(other, sizeof(other));
	if (!same)
		return 0;
	return admin__why(r, -EINVAL, "Give another one.",
			  "target %s: the secret of the other direction is the "
			  "same; RFC 7143, 9.2.1 forbids it",
			  t->name);
}

/* Bring @access into @t, an unpacked message of our own. */
static int access_apply(struct admin_req *r, Directory__Target *t,
			const Admin__Access *access)
{
	int rv = 0;

	for (size_t i = 0; i < access->n_allow; i++) {
		char **grown;

		if (listed(t->allow, t->n_allow, access->allow[i]))
			continue;
		if (t->n_allow == ALLOW_MAX)
			return admin__why(r, -ERANGE,
					  "Take others off it with --deny, or "
					  "admit by CHAP: --chap USER.",
					  "target %s: more than %u initiators "
					  "in its list",
					  t->name, ALLOW_MAX);
		grown = realloc(t->allow, (t->n_allow + 1) * sizeof(*grown));
		if (grown == NULL)
			return admin__why(r, -ENOMEM, "Try again in a moment.",
					  "no memory for a target");
		t->allow = grown;
		grown[t->n_allow] = (char *)protobuf_c_empty_string;
		rv = text_set(r, &grown[t->n_allow], access->allow[i]);
		if (rv < 0)
			return rv;
		t->n_allow++;
	}
	if (access->chap_user[0] != '\0') {
		rv = text_set(r, &t->chap_user, access->chap_user);
		if (rv == 0)
			rv = seal(r, "chap", t->name, &access->chap_secret,
				  &t->chap_secret_sealed);
	}
	if (rv == 0 && access->mutual_user[0] != '\0') {
		rv = text_set(r, &t->mutual_user, access->mutual_user);
		if (rv == 0)
			rv = seal(r, "mutual", t->name, &access->mutual_secret,
				  &t->mutual_secret_sealed);
	}
	if (rv == 0 && t->mutual_user[0] != '\0' &&
	    access->chap_user[0] != '\0' && access->mutual_user[0] == '\0')
		rv = secret_other(r, t, "mutual", &t->mutual_secret_sealed,
				  &access->chap_secret);
	if (rv == 0 && t->chap_user[0] != '\0' &&
	    access->mutual_user[0] != '\0' && access->chap_user[0] == '\0')
		rv = secret_other(r, t, "chap", &t->chap_secret_sealed,
				  &access->mutual_secret);
	if (rv == 0 && t->mutual_user[0] != '\0' && t->chap_user[0] == '\0')
		rv = admin__why(r, -EINVAL, "Give --chap USER too.",
				"target %s: mutual CHAP without CHAP: the "
				"initiator must prove itself first (RFC 7143, "
				"12.1.3)",
				t->name);
	return rv;
}

Directory__Target *admin__target_make(struct admin_req *r, const char *name,
				      const char *iqn,
				      const Admin__Access *access)
{
	Directory__Target *t = calloc(1, sizeof(*t));

	if (t == NULL) {
		admin__why(r, -ENOMEM, "Try again in a moment.",
			   "no memory for a target");
		return NULL;
	}
	directory__target__init(t);
	t->tpgt = 1;
	if (text_set(r, &t->name, name) == 0 &&
	    text_set(r, &t->iqn, iqn) == 0 &&
	    (access == NULL || access_apply(r, t, access) == 0))
		return t;
	directory__target__free_unpacked(t, NULL);
	return NULL;
}

void admin__target_put(struct cmmds_command *cmd, const Directory__Target *t,
		       const struct uuid *made_for)
{
	Directory__Target m = *t;

	if (made_for != NULL) {
		m.made_for.data = (uint8_t *)made_for->b;
		m.made_for.len = sizeof(made_for->b);
	}
	cmmds_put(cmd, CMMDS_TARGET, m.name, strlen(m.name),
		  CMMDS_MUST_NOT_EXIST, &m.base);
}

/* ---- target create, set, delete ---- */

static const char *create_iqn(struct admin_req *r, char *buf, size_t len)
{
	const Admin__TargetCreate *m = r->msg->target_create;

	if (m->iqn[0] != '\0')
		return m->iqn;
	admin__iqn_default(m->name, buf, len);
	return buf;
}

static int create_build(struct admin_req *r, struct cmmds_command *cmd)
{
	const Admin__TargetCreate *m = r->msg->target_create;
	char buf[ISCSI_NAME_MAX + 1];
	const char *iqn = create_iqn(r, buf, sizeof(buf));
	Directory__Target *t;

	if (cmmds_target(r->node->cmmds, m->name) != NULL)
		return admin__why(r, -EEXIST, "basalt target set changes it.",
				  "target %s exists already", m->name);
	if (admin__iqn_free(r, m->name, iqn) < 0)
		return r->status;
	t = admin__target_make(r, m->name, iqn, m->access);
	if (t == NULL)
		return r->status;
	admin__target_put(cmd, t, NULL);
	directory__target__free_unpacked(t, NULL);
	cmmds_audit(cmd, r->who, "target %s created as %s", m->name, iqn);
	return 0;
}

static void create_applied(struct admin_req *r)
{
	const Admin__TargetCreate *m = r->msg->target_create;
	char buf[ISCSI_NAME_MAX + 1], what[400], note[300];
	const char *iqn = create_iqn(r, buf, sizeof(buf));
	char *notes[] = { note };
	bool nobody = m->access == NULL || (m->access->n_allow == 0 &&
					    m->access->chap_user[0] == '\0');

	snprintf(what, sizeof(what), "target %s created: %s", m->name, iqn);
	snprintf(note, sizeof(note),
		 "It admits nobody yet: basalt target set %s --allow IQN, or "
		 "--chap USER.",
		 m->name);
	admin__done(r, what, notes, nobody ? 1 : 0, "", iqn);
}

void admin__target_create(struct admin_req *r)
{
	const Admin__TargetCreate *m = r->msg->target_create;

	if (admin__name_check(r, "target", m->name, true) < 0 ||
	    admin__access_check(r, m->access) < 0) {
		admin__refuse(r);
		return;
	}
	if (m->iqn[0] != '\0' && !names_iscsi_ok(m->iqn)) {
		admin__why(r, -EINVAL, "For example " NAMES_IQN_PREFIX ":name.",
			   "--iqn %.80s: not an iSCSI name in small ASCII "
			   "letters",
			   m->iqn);
		admin__refuse(r);
		return;
	}
	admin__change(r, create_build, create_applied);
}

static void allow_remove(Directory__Target *t, const char *name)
{
	for (size_t i = 0; i < t->n_allow; i++)
		if (strcmp(t->allow[i], name) == 0) {
			free(t->allow[i]);
			t->allow[i] = t->allow[--t->n_allow];
			return;
		}
}

static void user_clear(char **user, ProtobufCBinaryData *sealed)
{
	text_clear(user);
	free(sealed->data);
	memset(sealed, 0, sizeof(*sealed));
}

static int set_fill(struct admin_req *r, Directory__Target *t)
{
	const Admin__TargetSet *m = r->msg->target_set;

	for (size_t i = 0; i < m->n_deny; i++) {
		if (!listed(t->allow, t->n_allow, m->deny[i]))
			return admin__why(r, -ENOENT,
					  "basalt target show NAME lists whom "
					  "it admits.",
					  "target %s: %.80s is not in its list",
					  t->name, m->deny[i]);
		allow_remove(t, m->deny[i]);
	}
	if (m->no_chap)
		user_clear(&t->chap_user, &t->chap_secret_sealed);
	if (m->no_chap || m->no_mutual_chap)
		user_clear(&t->mutual_user, &t->mutual_secret_sealed);
	return m->access != NULL ? access_apply(r, t, m->access) : 0;
}

/* ", allow iqn.a and 2 others": behind it there is always room for the count. */
static void names_text(const char *verb, char *const *names, size_t count,
		       char out[320])
{
	out[0] = '\0';
	if (count == 1)
		snprintf(out, 320, ", %s %.223s", verb, names[0]);
	else if (count > 1)
		snprintf(out, 320, ", %s %.223s and %zu other%s", verb,
			 names[0], count - 1, count == 2 ? "" : "s");
}

/* Who may log in now, and who not: what is asked after a break-in. */
static void set_audit(struct admin_req *r, struct cmmds_command *cmd)
{
	const Admin__TargetSet *m = r->msg->target_set;
	const Admin__Access *a = m->access;
	char allow[320] = "", deny[320];

	if (a != NULL)
		names_text("allow", a->allow, a->n_allow, allow);
	names_text("deny", m->deny, m->n_deny, deny);
	cmmds_audit(cmd, r->who, "target %s: access changed%s%s%s%s%s%s%s",
		    m->name, allow, deny, m->no_chap ? ", no CHAP" : "",
		    m->no_mutual_chap ? ", no mutual CHAP" : "",
		    a != NULL && a->chap_user[0] ? ", CHAP user " : "",
		    a != NULL ? a->chap_user : "",
		    a != NULL && a->mutual_user[0] ? ", mutual CHAP" : "");
}

static int set_build(struct admin_req *r, struct cmmds_command *cmd)
{
	const Admin__TargetSet *m = r->msg->target_set;
	const struct cmmds_entry *e = target_entry(r, m->name);
	Directory__Target *t;
	int rv;

	if (e == NULL)
		return r->status;
	/* A copy of our own to change. */
	t = directory__target__unpack(NULL, e->value_len, e->value);
	if (t == NULL)
		return admin__why(r, -ENOMEM, "Try again in a moment.",
				  "no memory for a target");
	rv = set_fill(r, t);
	if (rv == 0) {
		cmmds_put(cmd, CMMDS_TARGET, m->name, strlen(m->name),
			  e->revision, &t->base);
		set_audit(r, cmd);
	}
	directory__target__free_unpacked(t, NULL);
	return rv;
}

static void set_applied(struct admin_req *r)
{
	const Admin__TargetSet *m = r->msg->target_set;
	const Directory__Target *t = cmmds_target(r->node->cmmds, m->name);
	char what[100], note[400];
	char *notes[] = { note };
	bool emptied =
		t != NULL && t->n_allow == 0 && (m->n_deny > 0 || m->no_chap);

	snprintf(what, sizeof(what), "target %.80s changed", m->name);
	if (emptied && t->chap_user[0] != '\0')
		snprintf(note, sizeof(note),
			 "No name is left in its list: it admits every "
			 "initiator that knows the secret of CHAP user %.255s. "
			 "--allow IQN narrows it.",
			 t->chap_user);
	else
		snprintf(note, sizeof(note),
			 "It admits nobody now: basalt target set %.80s "
			 "--allow IQN, or --chap USER.",
			 m->name);
	admin__done(r, what, notes, emptied ? 1 : 0, "", "");
}

static int set_check(struct admin_req *r)
{
	const Admin__TargetSet *m = r->msg->target_set;
	const Admin__Access *a = m->access;
	bool chap = a != NULL && a->chap_user[0] != '\0';
	bool mutual = a != NULL && a->mutual_user[0] != '\0';
	size_t n_allow = a != NULL ? a->n_allow : 0;

	if (n_allow + m->n_deny == 0 && !m->no_chap && !m->no_mutual_chap &&
	    !chap && !mutual)
		return admin__why(r, -EINVAL,
				  "Give --allow, --deny, --chap, "
				  "--mutual-chap, --no-chap or "
				  "--no-mutual-chap.",
				  "target %s: nothing to change was given",
				  m->name);
	if (m->no_chap && chap)
		return admin__why(r, -EINVAL, "Give one of them.",
				  "target %s: --chap and --no-chap together",
				  m->name);
	if (m->no_mutual_chap && mutual)
		return admin__why(r, -EINVAL, "Give one of them.",
				  "target %s: --mutual-chap and "
				  "--no-mutual-chap together",
				  m->name);
	for (size_t i = 0; i < n_allow; i++)
		if (listed(m->deny, m->n_deny, a->allow[i]))
			return admin__why(r, -EINVAL, "Give one of them.",
					  "target %s: --allow and --deny of "
					  "%.223s together",
					  m->name, a->allow[i]);
	return admin__access_check(r, a);
}

void admin__target_set(struct admin_req *r)
{
	if (set_check(r) < 0)
		admin__refuse(r);
	else
		admin__change(r, set_build, set_applied);
}

struct session_count {
	const char *iqn;
	unsigned count;
};

static void count_session(const struct iscsi_session_info *info, void *arg)
{
	struct session_count *c = arg;

	if (!info->discovery && info->target != NULL &&
	    strcmp(info->target, c->iqn) == 0)
		c->count++;
}

unsigned admin__target_sessions(struct node *node, const char *iqn)
{
	struct session_count c = { .iqn = iqn };

	iscsi_session_each(node->iscsi, count_session, &c);
	return c.count;
}

static int delete_build(struct admin_req *r, struct cmmds_command *cmd)
{
	const Admin__Name *m = r->msg->target_delete;
	const struct cmmds_entry *e = target_entry(r, m->name), *l = NULL;
	const Directory__Target *t;
	unsigned sessions;

	if (e == NULL)
		return r->status;
	t = (const Directory__Target *)e->message;
	sessions = admin__target_sessions(r->node, t->iqn);
	if (sessions > 0 && !m->force)
		return admin__why(r, -EBUSY,
				  "Log the initiators out (basalt session "
				  "list), or repeat it with --force.",
				  "target %s has %u session%s", m->name,
				  sessions, sessions == 1 ? "" : "s");
	cmmds_erase(cmd, CMMDS_TARGET, m->name, strlen(m->name), e->revision);
	while ((l = cmmds_under(r->node->cmmds, m->name, l)) != NULL)
		cmmds_erase(cmd, CMMDS_LUN, l->key, l->key_len, l->revision);
	cmmds_audit(cmd, r->who, "target %s deleted", m->name);
	return 0;
}

static void delete_applied(struct admin_req *r)
{
	admin__ok(r, "target %s deleted; its virtual disks stay",
		  r->msg->target_delete->name);
}

void admin__target_delete(struct admin_req *r)
{
	admin__change(r, delete_build, delete_applied);
}

/* ---- target list, show ---- */

/* A wildcard stands for the addresses of the interfaces, loopback last. */
static size_t add_wildcard(char (*out)[ADDRESS_TEXT], size_t n, size_t max,
			   int family, in_port_t port)
{
	struct ifaddrs *all = NULL;

	if (getifaddrs(&all) < 0)
		return n;
	for (int loopback = 0; loopback <= 1; loopback++) {
		size_t before = n;

		for (struct ifaddrs *i = all; i != NULL && n < max;
		     i = i->ifa_next) {
			const struct sockaddr_in6 *v6 = (void *)i->ifa_addr;
			struct sockaddr_storage address = { 0 };

			if (i->ifa_addr == NULL ||
			    i->ifa_addr->sa_family != family ||
			    !(i->ifa_flags & IFF_UP) ||
			    !!(i->ifa_flags & IFF_LOOPBACK) != loopback ||
			    (family == AF_INET6 &&
			     IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr)))
				continue;
			memcpy(&address, i->ifa_addr,
			       family == AF_INET6 ? sizeof(struct sockaddr_in6)
						  : sizeof(struct sockaddr_in));
			*address_port(&address) = port;
			address_text(&address, false, out[n++]);
		}
		if (n > before)
			break;
	}
	freeifaddrs(all);
	return n;
}

static bool is_served(const struct node *node, unsigned index, bool tcp)
{
	char why[240];

	if (node->portals[index].tcp)
		return true;
	return !tcp && node->portals[index].iser &&
	       iser_listening(node->iser, index + 1, why, sizeof(why));
}

size_t admin__portals(struct node *node, bool tcp, char (*out)[ADDRESS_TEXT],
		      size_t max)
{
	size_t n = 0;

	for (unsigned i = 0; i < node->config->portals_count; i++) {
		struct config_portal p = node->config->portals[i];

		if (!is_served(node, i, tcp))
			continue;
		if (address_any(&p.address))
			n = add_wildcard(out, n, max, p.address.ss_family,
					 *address_port(&p.address));
		else if (n < max)
			strcpy(out[n++], p.text);
	}
	return n;
}

#define PORTALS_SHOWN 32u

struct target_answer {
	struct admin_list list;
	char portals[PORTALS_SHOWN][ADDRESS_TEXT];
	char *portal_list[PORTALS_SHOWN];
	size_t portals_count;
	struct admin_index index;
};

static bool on_target(struct admin_list *list, const struct cmmds_entry *e)
{
	struct target_answer *a =
		container_of(list, struct target_answer, list);
	const Directory__Target *t = (const Directory__Target *)e->message;
	Admin__Targets targets = ADMIN__TARGETS__INIT;
	Admin__Target out = ADMIN__TARGET__INIT, *one = &out;

	out.name = t->name;
	out.iqn = t->iqn;
	out.allow = t->allow;
	out.n_allow = t->n_allow;
	out.chap_user = t->chap_user;
	out.mutual_user = t->mutual_user;
	out.n_luns = admin__index_luns(&a->index, t->name, &out.luns);
	out.portals = a->portal_list;
	out.n_portals = a->portals_count;
	/* There may be very many. */
	list->walk.left -= MIN(list->walk.left, out.n_luns);
	out.sessions = admin__index_sessions(&a->index, t->iqn);
	targets.targets = &one;
	targets.n_targets = 1;
	admin__list_add(list, &targets.base);
	admin__luns_free(out.luns, out.n_luns);
	if (a->index.no_memory)
		list->status = -ENOMEM;
	return true;
}

static void targets_over(struct admin_req *r)
{
	struct target_answer *a = r->ctx;

	admin__index_close(&a->index);
}

static struct target_answer *answer_open(struct admin_req *r)
{
	struct target_answer *a = r->ctx = calloc(1, sizeof(*a));

	if (a == NULL) {
		admin__no_memory(r);
		return NULL;
	}
	r->over = targets_over;
	a->list.kind = CMMDS_TARGET;
	a->list.result = ADMIN__RESPONSE__RESULT_TARGETS;
	a->list.each = on_target;
	a->portals_count =
		admin__portals(r->node, false, a->portals, PORTALS_SHOWN);
	for (size_t i = 0; i < a->portals_count; i++)
		a->portal_list[i] = a->portals[i];
	admin__index_open(&a->index, r->node);
	return a;
}

void admin__target_list(struct admin_req *r)
{
	struct target_answer *a = answer_open(r);

	if (a != NULL)
		admin__list(r, &a->list);
}

void admin__target_show(struct admin_req *r)
{
	const struct cmmds_entry *e =
		target_entry(r, r->msg->target_show->name);
	struct target_answer *a;

	if (e == NULL) {
		admin__refuse(r);
		return;
	}
	a = answer_open(r);
	if (a != NULL)
		admin__list_one(r, &a->list, e);
}
