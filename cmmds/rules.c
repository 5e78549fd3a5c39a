/*
 * rules: what an entry of each kind must be, by itself and beside the others.
 *
 * These run in the state machine, on every node, over bytes that may come from
 * anybody: they refuse, with a reason for people, and never assert.  Every
 * answer depends on the directory alone.
 */
#include "cmmds/cmmds_int.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define NAME_MAX_LEN 63u
#define ISCSI_NAME_MAX 223u
#define TARGET_ALLOW_MAX 1024u
#define PORTALS_MAX 64u
#define REGISTRATIONS_MAX 1024u
#define LUN_MAX 16383u

int rules__refuse(char why[128], const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, 128, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

const ProtobufCMessageDescriptor *rules__descriptor(uint32_t kind)
{
	static const ProtobufCMessageDescriptor *const of[CMMDS_KINDS] = {
		[CMMDS_CLUSTER] = &directory__cluster__descriptor,
		[CMMDS_NODE] = &directory__node__descriptor,
		[CMMDS_DISK] = &directory__disk__descriptor,
		[CMMDS_POLICY] = &directory__policy__descriptor,
		[CMMDS_OBJECT] = &directory__object__descriptor,
		[CMMDS_VDISK] = &directory__vdisk__descriptor,
		[CMMDS_TARGET] = &directory__target__descriptor,
		[CMMDS_LUN] = &directory__lun__descriptor,
		[CMMDS_RESERVATION] = &directory__reservation__descriptor,
		[CMMDS_EVENT] = &directory__event__descriptor,
		[CMMDS_TASK] = &directory__task__descriptor,
	};

	return kind < CMMDS_KINDS ? of[kind] : NULL;
}

/* ---- nesting ---- */

static bool get_varint(const uint8_t **at, const uint8_t *end, uint64_t *out)
{
	*out = 0;
	for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
		uint8_t b = *(*at)++;

		*out |= (uint64_t)(b & 0x7f) << shift;
		if (b < 0x80)
			return true;
	}
	return false;
}

static const ProtobufCMessageDescriptor *
nested(const ProtobufCMessageDescriptor *descriptor, uint64_t number)
{
	const ProtobufCFieldDescriptor *field =
		number <= UINT32_MAX ? protobuf_c_message_descriptor_get_field(
					       descriptor, (unsigned)number)
				     : NULL;

	if (field == NULL || field->type != PROTOBUF_C_TYPE_MESSAGE)
		return NULL;
	return field->descriptor;
}

static bool depth_ok(const ProtobufCMessageDescriptor *descriptor,
		     const uint8_t *at, const uint8_t *end, unsigned depth)
{
	const ProtobufCMessageDescriptor *inner;
	uint64_t tag, n;

	if (depth > RULES_DEPTH_MAX)
		return false;
	while (at < end) {
		if (!get_varint(&at, end, &tag) || tag >> 3 == 0)
			return false;
		switch (tag & 7) {
		case 0:
			if (!get_varint(&at, end, &n))
				return false;
			n = 0;
			break;
		case 1:
			n = 8;
			break;
		case 2:
			if (!get_varint(&at, end, &n))
				return false;
			break;
		case 5:
			n = 4;
			break;
		default:
			return false;
		}
		if (n > (size_t)(end - at))
			return false;
		inner = (tag & 7) == 2 ? nested(descriptor, tag >> 3) : NULL;
		if (inner != NULL && !depth_ok(inner, at, at + n, depth + 1))
			return false;
		at += n;
	}
	return true;
}

bool rules__depth_ok(const ProtobufCMessageDescriptor *descriptor,
		     const void *data, size_t len)
{
	const uint8_t *at = data;

	return len == 0 || depth_ok(descriptor, at, at + len, 1);
}

/* ---- pieces ---- */

static bool name_ok(const char *name)
{
	size_t len = strlen(name);

	if (len == 0 || len > NAME_MAX_LEN)
		return false;
	for (size_t i = 0; i < len; i++) {
		char c = name[i];

		if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		    (c >= '0' && c <= '9'))
			continue;
		if (i == 0 || (c != '-' && c != '_' && c != '.'))
			return false;
	}
	return true;
}

static int name_check(const char *what, const char *name, const void *key,
		      size_t key_len, char why[128])
{
	if (!name_ok(name))
		return rules__refuse(why,
				     "%s: a name is 1 to %u letters, "
				     "digits, '.', '-' or '_', a letter or "
				     "digit first",
				     what, NAME_MAX_LEN);
	if (key_len != strlen(name) || memcmp(key, name, key_len) != 0)
		return rules__refuse(why, "%s: key and name differ", what);
	return 0;
}

/* Printable ASCII without blanks: what a name on the iSCSI wire can be. */
static bool iscsi_name_ok(const char *name)
{
	size_t len = strlen(name);

	if (len == 0 || len > ISCSI_NAME_MAX)
		return false;
	for (size_t i = 0; i < len; i++)
		if (name[i] <= ' ' || name[i] > '~')
			return false;
	return true;
}

static bool printable(const char *text, size_t max)
{
	size_t len = strlen(text);

	if (len > max)
		return false;
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
			return false;
	return true;
}

static bool is_id(const ProtobufCBinaryData *id)
{
	return id->len == sizeof(struct uuid);
}

static bool is_key(const ProtobufCBinaryData *id, const void *key,
		   size_t key_len)
{
	return is_id(id) && key_len == id->len &&
	       memcmp(id->data, key, key_len) == 0;
}

static bool same_id(const ProtobufCBinaryData *a, const ProtobufCBinaryData *b)
{
	return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

/* ---- kind by kind ---- */

static int check_cluster(const Directory__Cluster *old,
			 const Directory__Cluster *m, const void *key,
			 size_t key_len, char why[128])
{
	if (key_len != 0 || !is_id(&m->uuid))
		return rules__refuse(why, "cluster: wrong key or id");
	if (!name_ok(m->name))
		return rules__refuse(why, "cluster: not a name");
	if (old != NULL && !same_id(&old->uuid, &m->uuid))
		return rules__refuse(why, "cluster: its id does not change");
	if (old != NULL && m->feature_level < old->feature_level)
		return rules__refuse(why, "cluster: the feature level does not "
					  "fall");
	if (m->scrub_days > CMMDS_SCRUB_DAYS_MAX)
		return rules__refuse(why, "cluster: scrubs too far apart");
	return 0;
}

static int check_node(const Directory__Node *old, const Directory__Node *m,
		      const void *key, size_t key_len, char why[128])
{
	if (!is_key(&m->uuid, key, key_len))
		return rules__refuse(why, "node: wrong key or id");
	if (!printable(m->name, 255) || !printable(m->address, 1023))
		return rules__refuse(why, "node: bad name or address");
	if (old != NULL && m->incarnation < old->incarnation)
		return rules__refuse(why,
				     "node: incarnation %llu is older "
				     "than %llu",
				     (unsigned long long)m->incarnation,
				     (unsigned long long)old->incarnation);
	if (m->n_portals > PORTALS_MAX)
		return rules__refuse(why, "node: at most %u portals",
				     PORTALS_MAX);
	for (size_t i = 0; i < m->n_portals; i++)
		if (m->portals[i]->address[0] == '\0' ||
		    !printable(m->portals[i]->address, 63) ||
		    m->portals[i]->transport >
			    DIRECTORY__PORTAL__TRANSPORT__ISER)
			return rules__refuse(why, "node: bad portal");
	return 0;
}

static int check_disk(const Directory__Disk *old, const Directory__Disk *m,
		      const void *key, size_t key_len, char why[128])
{
	if (!is_key(&m->uuid, key, key_len) || !is_id(&m->node))
		return rules__refuse(why, "disk: wrong key or id");
	if (m->path[0] == '\0' || !printable(m->path, 1023) ||
	    !printable(m->serial, 255) || !printable(m->model, 255))
		return rules__refuse(why, "disk: bad path, serial or model");
	if (m->usable_bytes > m->raw_bytes)
		return rules__refuse(why, "disk: more usable than raw");
	return 0;
}

static int check_policy(const Directory__Policy *m, const void *key,
			size_t key_len, char why[128])
{
	int rv = name_check("policy", m->name, key, key_len, why);

	if (rv != 0)
		return rv;
	if (m->failures_to_tolerate > 3)
		return rules__refuse(why, "policy: tolerates 0 to 3 failures");
	if ((unsigned)m->method > DIRECTORY__POLICY__METHOD__METHOD_RAID6)
		return rules__refuse(why, "policy: unknown method %u",
				     (unsigned)m->method);
	if (m->stripe_width > 64)
		return rules__refuse(why, "policy: stripe width is 0 to 64");
	if (m->reserve_percent > 100)
		return rules__refuse(why, "policy: reserve is 0 to 100 %%");
	return 0;
}

static int check_vdisk(const Directory__VDisk *m, const void *key,
		       size_t key_len, char why[128])
{
	int rv = name_check("virtual disk", m->name, key, key_len, why);

	if (rv != 0)
		return rv;
	if (!is_id(&m->oid))
		return rules__refuse(why, "virtual disk: wrong object id");
	if (m->block_bytes != 512 && m->block_bytes != 4096)
		return rules__refuse(why, "virtual disk: blocks are 512 or "
					  "4096 bytes");
	if (m->size_bytes == 0 || m->size_bytes % m->block_bytes != 0)
		return rules__refuse(why, "virtual disk: the size is a "
					  "positive multiple of the block");
	return 0;
}

static int check_target(const Directory__Target *m, const void *key,
			size_t key_len, char why[128])
{
	int rv = name_check("target", m->name, key, key_len, why);

	if (rv != 0)
		return rv;
	if (!iscsi_name_ok(m->iqn))
		return rules__refuse(why, "target: not an iSCSI name");
	for (const char *c = m->iqn; *c != '\0'; c++)
		if (*c >= 'A' && *c <= 'Z')
			return rules__refuse(why, "target: an iSCSI name has "
						  "no capitals");
	if (m->n_allow > TARGET_ALLOW_MAX)
		return rules__refuse(why, "target: at most %u initiators",
				     TARGET_ALLOW_MAX);
	for (size_t i = 0; i < m->n_allow; i++)
		if (!iscsi_name_ok(m->allow[i]))
			return rules__refuse(why, "target: not an initiator's "
						  "name");
	if (!printable(m->chap_user, 255) || !printable(m->mutual_user, 255) ||
	    m->chap_secret_sealed.len > 1024 ||
	    m->mutual_secret_sealed.len > 1024)
		return rules__refuse(why, "target: bad CHAP user or secret");
	if ((m->chap_user[0] == '\0') != (m->chap_secret_sealed.len == 0) ||
	    (m->mutual_user[0] == '\0') != (m->mutual_secret_sealed.len == 0))
		return rules__refuse(why, "target: CHAP needs user and secret");
	if (m->mutual_user[0] != '\0' && m->chap_user[0] == '\0')
		return rules__refuse(why, "target: mutual CHAP needs CHAP");
	if (m->tpgt > 65535)
		return rules__refuse(why, "target: portal group tag above "
					  "65535");
	return 0;
}

static int check_lun(const Directory__Lun *m, const void *key, size_t key_len,
		     char why[128])
{
	size_t len = strlen(m->target);
	const uint8_t *k = key;

	if (m->lun > LUN_MAX)
		return rules__refuse(why, "LUN: numbers go to %u", LUN_MAX);
	if (!name_ok(m->target) || !name_ok(m->vdisk))
		return rules__refuse(why, "LUN: not a name");
	if (key_len != len + 3 || memcmp(k, m->target, len + 1) != 0 ||
	    get_be16(k + len + 1) != m->lun)
		return rules__refuse(why, "LUN: key and content differ");
	return 0;
}

static int check_reservation(const Directory__Reservation *m, const void *key,
			     size_t key_len, char why[128])
{
	if (!is_key(&m->oid, key, key_len))
		return rules__refuse(why, "reservation: wrong key or id");
	if (m->n_registrations > REGISTRATIONS_MAX)
		return rules__refuse(why,
				     "reservation: at most %u "
				     "registrations",
				     REGISTRATIONS_MAX);
	for (size_t i = 0; i < m->n_registrations; i++)
		if (!printable(m->registrations[i]->initiator_port, 255) ||
		    m->registrations[i]->key == 0)
			return rules__refuse(why, "reservation: bad "
						  "registration");
	if (m->held && m->holder >= m->n_registrations)
		return rules__refuse(why, "reservation: its holder is not "
					  "registered");
	if (m->type > 8)
		return rules__refuse(why, "reservation: unknown type %u",
				     m->type);
	if (!printable(m->spc2_holder, 255))
		return rules__refuse(why, "reservation: bad holder");
	return 0;
}

static int check_task(const Directory__Task *m, const void *key, size_t key_len,
		      char why[128])
{
	if (!is_key(&m->uuid, key, key_len))
		return rules__refuse(why, "task: wrong key or id");
	if (!name_ok(m->verb) || !printable(m->subject, 255) ||
	    !printable(m->note, 255) || m->percent > 100 ||
	    (m->node.len != 0 && !is_id(&m->node)))
		return rules__refuse(why, "task: bad content");
	return 0;
}

int rules__entry(uint32_t kind, const void *key, size_t key_len,
		 const ProtobufCMessage *old, const ProtobufCMessage *message,
		 char why[128])
{
	const void *m = message, *o = old;

	switch (kind) {
	case CMMDS_CLUSTER:
		return check_cluster(o, m, key, key_len, why);
	case CMMDS_NODE:
		return check_node(o, m, key, key_len, why);
	case CMMDS_DISK:
		return check_disk(o, m, key, key_len, why);
	case CMMDS_POLICY:
		return check_policy(m, key, key_len, why);
	case CMMDS_OBJECT:
		if (!is_key(&((const Directory__Object *)m)->oid, key, key_len))
			return rules__refuse(why, "object: wrong key or id");
		return rules__object_put(o, m, why);
	case CMMDS_VDISK:
		return check_vdisk(m, key, key_len, why);
	case CMMDS_TARGET:
		return check_target(m, key, key_len, why);
	case CMMDS_LUN:
		return check_lun(m, key, key_len, why);
	case CMMDS_RESERVATION:
		return check_reservation(m, key, key_len, why);
	case CMMDS_TASK:
		return check_task(m, key, key_len, why);
	default:
		return rules__refuse(why, "unknown kind %u", kind);
	}
}

/* ---- references: nothing points at what is not there ---- */

static const Directory__Object *object_get(const struct cmmds_state *state,
					   const ProtobufCBinaryData *oid)
{
	const struct state_entry *e =
		state__find(state, CMMDS_OBJECT, oid->data, oid->len);

	return e ? (const void *)e->pub.message : NULL;
}

static bool has(const struct cmmds_state *state, enum cmmds_kind kind,
		const char *name)
{
	return state__find(state, kind, name, strlen(name)) != NULL;
}

#define EACH(state, kind, e)                                                   \
	for (e = state__above(state, kind, NULL, 0); e != NULL;                \
	     e = state__next(e))

static int vdisk_references(const struct cmmds_state *state,
			    const Directory__VDisk *m, char why[128])
{
	const Directory__Object *object = object_get(state, &m->oid);

	if (object == NULL || object->deleted)
		return rules__refuse(why,
				     "virtual disk %s: its object does "
				     "not exist",
				     m->name);
	if (object->size_bytes < m->size_bytes)
		return rules__refuse(why,
				     "virtual disk %s is larger than its "
				     "object",
				     m->name);
	/* No policy is one copy (dom.h). */
	if (m->policy[0] != '\0' && !has(state, CMMDS_POLICY, m->policy))
		return rules__refuse(why, "policy %.63s does not exist",
				     m->policy);
	return 0;
}

static int target_references(const struct cmmds_state *state,
			     const Directory__Target *m, char why[128])
{
	const struct state_entry *e = NULL;

	while ((e = state__of(state, CMMDS_TARGET, m->iqn, strlen(m->iqn),
			      e)) != NULL) {
		const Directory__Target *t = (const void *)e->pub.message;

		if (strcmp(t->name, m->name) != 0)
			return rules__refuse(why,
					     "target %s has this iSCSI "
					     "name already",
					     t->name);
	}
	return 0;
}

static int lun_references(const struct cmmds_state *state,
			  const Directory__Lun *m, char why[128])
{
	if (!has(state, CMMDS_TARGET, m->target))
		return rules__refuse(why, "target %s does not exist",
				     m->target);
	if (!has(state, CMMDS_VDISK, m->vdisk))
		return rules__refuse(why, "virtual disk %s does not exist",
				     m->vdisk);
	return 0;
}

/* Who still points at the virtual disk, target or policy that is gone? */
static int gone_name(const struct cmmds_state *state, enum cmmds_kind kind,
		     const char *name, char why[128])
{
	const struct state_entry *e;

	if (kind == CMMDS_POLICY) {
		EACH(state, CMMDS_VDISK, e)
		{
			const Directory__VDisk *v =
				(const void *)e->pub.message;

			if (strcmp(v->policy, name) == 0)
				return rules__refuse(why,
						     "policy %s: virtual "
						     "disk %.40s uses it",
						     name, v->name);
		}
		return 0;
	}
	e = kind == CMMDS_VDISK
		    ? state__of(state, CMMDS_LUN, name, strlen(name), NULL)
		    : state__under(state, name, NULL);
	if (e != NULL) {
		const Directory__Lun *l = (const void *)e->pub.message;

		return rules__refuse(why,
				     "%s %.40s: LUN %u of target %.40s "
				     "uses it",
				     kind == CMMDS_VDISK ? "virtual disk"
							 : "target",
				     name, l->lun, l->target);
	}
	return 0;
}

/* The object has room for @size bytes from now on; who needs more? */
static int gone_object(const struct cmmds_state *state,
		       const ProtobufCBinaryData *oid, uint64_t size,
		       char why[128])
{
	const struct state_entry *e = NULL;

	while ((e = state__of(state, CMMDS_VDISK, oid->data, oid->len, e)) !=
	       NULL) {
		const Directory__VDisk *v = (const void *)e->pub.message;

		if (v->size_bytes > size)
			return rules__refuse(why,
					     "the object is virtual disk "
					     "%.63s",
					     v->name);
	}
	return 0;
}

struct on_disk {
	const ProtobufCBinaryData *disk;
	bool found;
};

static bool leaf_on_disk(Directory__Leaf *leaf, const Directory__TreeNode *node,
			 void *arg)
{
	struct on_disk *on = arg;

	on->found = same_id(&leaf->disk, on->disk);
	return !on->found;
}

static int gone_disk(const struct cmmds_state *state,
		     const Directory__Disk *disk, char why[128])
{
	struct on_disk on = { .disk = &disk->uuid };
	const struct state_entry *e;

	if (disk->removing)
		return 0; /* given up, with what is on it */
	EACH(state, CMMDS_OBJECT, e)
	{
		const Directory__Object *o = (const void *)e->pub.message;

		if (!o->deleted)
			rules__leaves(o->tree, leaf_on_disk, &on);
		if (on.found)
			return rules__refuse(why, "the disk still holds "
						  "components of objects");
	}
	return 0;
}

static int gone_node(const struct cmmds_state *state,
		     const Directory__Node *node, char why[128])
{
	const struct state_entry *e;

	EACH(state, CMMDS_DISK, e)
	{
		const Directory__Disk *d = (const void *)e->pub.message;

		if (same_id(&d->node, &node->uuid))
			return rules__refuse(why, "the node still has disks");
	}
	return 0;
}

static int references_gone(const struct cmmds_state *state,
			   const struct cmmds_entry *old, char why[128])
{
	const void *m = old->message;

	switch (old->kind) {
	case CMMDS_POLICY:
		return gone_name(state, old->kind,
				 ((const Directory__Policy *)m)->name, why);
	case CMMDS_VDISK:
		return gone_name(state, old->kind,
				 ((const Directory__VDisk *)m)->name, why);
	case CMMDS_TARGET:
		return gone_name(state, old->kind,
				 ((const Directory__Target *)m)->name, why);
	case CMMDS_OBJECT:
		return gone_object(state, &((const Directory__Object *)m)->oid,
				   0, why);
	case CMMDS_DISK:
		return gone_disk(state, m, why);
	case CMMDS_NODE:
		return gone_node(state, m, why);
	default:
		return 0;
	}
}

static int object_references(const struct cmmds_state *state,
			     const struct cmmds_change *change, char why[128])
{
	const Directory__Object *new = (const void *)change->new_entry->message;
	const Directory__Object *old =
		change->old_entry ? (const void *)change->old_entry->message
				  : NULL;
	uint64_t size = new->deleted ? 0 : new->size_bytes;

	if (old == NULL || size >= old->size_bytes)
		return 0;
	return gone_object(state, &new->oid, size, why);
}

int rules__references(const struct cmmds_state *state,
		      const struct cmmds_change *change, char why[128])
{
	const struct cmmds_entry *new = change->new_entry;
	const void *m;

	if (new == NULL)
		return references_gone(state, change->old_entry, why);
	m = new->message;
	switch (new->kind) {
	case CMMDS_VDISK:
		return vdisk_references(state, m, why);
	case CMMDS_TARGET:
		return target_references(state, m, why);
	case CMMDS_LUN:
		return lun_references(state, m, why);
	case CMMDS_RESERVATION:
		if (object_get(state,
			       &((const Directory__Reservation *)m)->oid))
			return 0;
		return rules__refuse(why, "reservation: no such object");
	case CMMDS_OBJECT:
		return object_references(state, change, why);
	default:
		return 0;
	}
}
