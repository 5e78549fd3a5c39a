/*
 * state: the directory as a pure state machine.
 *
 * A command comes in as bytes and is applied whole or not at all: its changes
 * are made one after the other in the trees, then every touched entry's
 * references are looked at, and if anything was refused on the way the changes
 * are taken back in reverse.  No clock, no randomness, no order but the log's,
 * so that equal logs make equal directories; state__hash() says whether they
 * are.
 *
 * A command is applied once.  Each client (node) has a window of the sequence
 * numbers applied last and what came of them, kept in snapshots too: a repeat
 * gets the first answer, one too old to know is refused with -ESTALE, and so is
 * anything of an incarnation before the newest seen.
 */
#define LOG_ROOM LOG_CMMDS
#include "base/crc.h"
#include "base/log.h"
#include "cmmds/cmmds_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* ---- the whole ---- */

static uint64_t remembered_hash(const struct state_client *client,
				const struct state_remembered *r)
{
	uint64_t h = tree__hash(client->incarnation, client->id.b,
				sizeof(client->id.b));

	h = tree__mix(h ^ r->sequence);
	h = tree__mix(h ^ r->revision);
	return tree__mix(h ^ (uint64_t)(int64_t)r->result);
}

uint64_t state__hash(const struct cmmds_state *state)
{
	uint64_t h = tree__mix(state->entries_hash ^ state->revision);

	h = tree__mix(h ^ state->clients_hash);
	return tree__mix(h ^ state->event_sequence);
}

void state__init(struct cmmds_state *state)
{
	memset(state, 0, sizeof(*state));
	TAILQ_INIT(&state->clients);
}

void state__fini(struct cmmds_state *state)
{
	struct state_client *client;

	snapshot__drop(state);
	for (int kind = 1; kind < CMMDS_KINDS; kind++)
		tree__free(state->roots[kind]);
	while ((client = TAILQ_FIRST(&state->clients)) != NULL) {
		TAILQ_REMOVE(&state->clients, client, link);
		free(client);
	}
	memset(state, 0, sizeof(*state));
	TAILQ_INIT(&state->clients);
}

/* ---- applied once ---- */

static struct state_client *client_find(struct cmmds_state *state,
					const struct uuid *id, bool make)
{
	struct state_client *at, *client;

	TAILQ_FOREACH (at, &state->clients, link) {
		int c = memcmp(at->id.b, id->b, sizeof(id->b));

		if (c == 0)
			return at;
		if (c > 0)
			break;
	}
	if (!make || state->clients_count == CMMDS_CLIENTS_MAX)
		return NULL;
	client = cmmds__alloc(sizeof(*client));
	client->id = *id;
	if (at != NULL)
		TAILQ_INSERT_BEFORE(at, client, link);
	else
		TAILQ_INSERT_TAIL(&state->clients, client, link);
	state->clients_count++;
	return client;
}

uint64_t state__incarnation(struct cmmds_state *state, const struct uuid *id)
{
	const struct state_client *client = client_find(state, id, false);

	return client ? client->incarnation : 0;
}

static void client_forget(struct cmmds_state *state,
			  struct state_client *client,
			  struct state_remembered *r)
{
	if (r->sequence != 0)
		state->clients_hash -= remembered_hash(client, r);
	memset(r, 0, sizeof(*r));
}

static void client_remember(struct cmmds_state *state,
			    struct state_client *client, uint64_t incarnation,
			    const struct state_remembered *what)
{
	struct state_remembered *r;

	if (client->incarnation != incarnation) {
		for (unsigned i = 0; i < CMMDS_WINDOW; i++)
			client_forget(state, client, &client->window[i]);
		client->incarnation = incarnation;
		client->highest = 0;
	}
	r = &client->window[what->sequence % CMMDS_WINDOW];
	client_forget(state, client, r);
	*r = *what;
	state->clients_hash += remembered_hash(client, r);
	client->highest = MAX(client->highest, what->sequence);
}

/* True if @result holds the answer already. */
static bool answered(struct cmmds_state *state, struct state_result *result)
{
	const struct state_client *client =
		client_find(state, &result->client, false);
	const struct state_remembered *r;

	result->revision = state->revision;
	if (client == NULL) {
		if (state->clients_count < CMMDS_CLIENTS_MAX)
			return false;
		result->status = rules__refuse(result->why, "too many clients");
		return true;
	}
	if (result->incarnation > client->incarnation)
		return false;
	if (result->incarnation < client->incarnation) {
		rules__refuse(result->why, "from before the node's restart");
		result->status = -ESTALE;
		return true;
	}
	r = &client->window[result->sequence % CMMDS_WINDOW];
	if (r->sequence == result->sequence) {
		result->status = r->result;
		result->revision = r->revision;
		if (r->result != 0)
			rules__refuse(result->why, "refused when it was "
						   "applied first");
		return true;
	}
	if (result->sequence + CMMDS_WINDOW <= client->highest) {
		rules__refuse(result->why,
			      "too old to know whether it was applied");
		result->status = -ESTALE;
		return true;
	}
	return false;
}

/* ---- a command's changes ---- */

static void change_add(struct cmmds_state *state, struct state_result *result,
		       struct state_entry *old, struct state_entry *new)
{
	struct cmmds_change *c;

	if (result->count == result->room) {
		result->room = result->room ? result->room * 2 : 8;
		result->changes =
			realloc(result->changes, result->room * sizeof(*c));
		if (result->changes == NULL)
			abort();
	}
	c = &result->changes[result->count++];
	c->kind = old ? old->pub.kind : new->pub.kind;
	c->old_entry = old ? &old->pub : NULL;
	c->new_entry = new ? &new->pub : NULL;
	if (old != NULL)
		tree__remove(state, old);
	if (new != NULL)
		tree__insert(state, new);
}

static void changes_undo(struct cmmds_state *state, struct state_result *result)
{
	while (result->count > 0) {
		struct cmmds_change *c = &result->changes[--result->count];

		if (c->new_entry != NULL) {
			tree__remove(state, (struct state_entry *)c->new_entry);
			tree__entry_free((struct state_entry *)c->new_entry);
		}
		if (c->old_entry != NULL)
			tree__insert(state, (struct state_entry *)c->old_entry);
	}
}

static bool touched(const struct state_result *result, uint32_t kind,
		    const void *key, size_t key_len)
{
	for (size_t i = 0; i < result->count; i++) {
		const struct cmmds_change *c = &result->changes[i];
		const struct cmmds_entry *e =
			c->new_entry ? c->new_entry : c->old_entry;

		if (c->kind == kind &&
		    tree__key_compare(e->key, e->key_len, key, key_len) == 0)
			return true;
	}
	return false;
}

void state__result_fini(struct state_result *result)
{
	for (size_t i = 0; i < result->count; i++)
		tree__entry_free(
			(struct state_entry *)result->changes[i].old_entry);
	free(result->changes);
	result->changes = NULL;
	result->count = result->room = 0;
}

static int expectation(const struct state_entry *e, const Directory__Change *c,
		       char why[128])
{
	if (c->any)
		return 0;
	if (c->expect == CMMDS_MUST_NOT_EXIST) {
		if (e == NULL)
			return 0;
		rules__refuse(why, "exists already");
		return -EEXIST;
	}
	if (e == NULL) {
		rules__refuse(why, "does not exist");
		return -ENOENT;
	}
	if (e->pub.revision != c->expect) {
		rules__refuse(why, "changed meanwhile: revision %llu, not %llu",
			      (unsigned long long)e->pub.revision,
			      (unsigned long long)c->expect);
		return -EAGAIN;
	}
	return 0;
}

static int apply_put(struct cmmds_state *state, struct state_result *result,
		     struct state_entry *old, const Directory__Change *c)
{
	const ProtobufCMessageDescriptor *descriptor =
		rules__descriptor(c->kind);
	ProtobufCMessage *message;
	int rv;

	if (c->value.len > CMMDS_VALUE_MAX) {
		rules__refuse(result->why, "the entry is too large");
		return -EMSGSIZE;
	}
	if (!rules__depth_ok(descriptor, c->value.data, c->value.len))
		return rules__refuse(result->why, "nested too deep");
	message = protobuf_c_message_unpack(descriptor, &cmmds__allocator,
					    c->value.len, c->value.data);
	if (message == NULL)
		return rules__refuse(result->why, "cannot be decoded");
	rv = rules__entry(c->kind, c->key.data, c->key.len,
			  old ? old->pub.message : NULL, message, result->why);
	if (rv != 0) {
		protobuf_c_message_free_unpacked(message, NULL);
		return rv;
	}
	change_add(state, result, old,
		   tree__entry_make(c->kind, c->key.data, c->key.len,
				    state->revision + 1, c->value.data,
				    c->value.len, message));
	return 0;
}

/* An object's reservations end with it. */
static void erase_reservation(struct cmmds_state *state,
			      struct state_result *result, const void *oid,
			      size_t len)
{
	const struct state_entry *e =
		state__find(state, CMMDS_RESERVATION, oid, len);

	if (e != NULL)
		change_add(state, result, (struct state_entry *)e, NULL);
}

static int apply_change(struct cmmds_state *state, struct state_result *result,
			const Directory__Change *c)
{
	struct state_entry *old;
	int rv;

	if (rules__descriptor(c->kind) == NULL || c->kind == CMMDS_EVENT)
		return rules__refuse(result->why,
				     "entries of kind %u are not put", c->kind);
	if (c->key.len > CMMDS_KEY_MAX) {
		rules__refuse(result->why, "the key is too long");
		return -EMSGSIZE;
	}
	if (touched(result, c->kind, c->key.data, c->key.len))
		return rules__refuse(result->why,
				     "one command changes an entry twice");
	old = (struct state_entry *)state__find(state, c->kind, c->key.data,
						c->key.len);
	rv = expectation(old, c, result->why);
	if (rv != 0 || c->check_only)
		return rv;
	if (!c->erase)
		return apply_put(state, result, old, c);
	if (old == NULL)
		return 0; /* any: it is not there, which was asked for */
	if (c->kind == CMMDS_CLUSTER)
		return rules__refuse(result->why, "the cluster's entry stays");
	if (c->kind == CMMDS_OBJECT &&
	    !((const Directory__Object *)old->pub.message)->deleted)
		return rules__refuse(result->why, "an object goes by DELETE "
						  "first");
	change_add(state, result, old, NULL);
	if (c->kind == CMMDS_OBJECT)
		erase_reservation(state, result, c->key.data, c->key.len);
	return 0;
}

/* ---- object commands ---- */

/*
 * Several ops of one command may concern one object: all name the (oepoch, csn)
 * from before the command, are made one after the other on one copy, and csn
 * rises once.
 */
struct object_copy {
	const struct state_entry *entry;
	Directory__Object *object;
	uint32_t oepoch;
	uint64_t csn;
};

static bool raises_csn(const Directory__ObjectCommand *op)
{
	return op->op != DIRECTORY__OBJECT_COMMAND__OP__GRANT &&
	       op->op != DIRECTORY__OBJECT_COMMAND__OP__RELEASE;
}

static int object_op(struct cmmds_state *state, struct state_result *result,
		     struct object_copy *copies, size_t *count,
		     const Directory__ObjectCommand *op)
{
	struct object_copy *copy = NULL;

	for (size_t i = 0; i < *count; i++)
		if (tree__entry_compare(copies[i].entry, op->oid.data,
					op->oid.len) == 0)
			copy = &copies[i];
	if (copy == NULL) {
		const struct state_entry *e = state__find(
			state, CMMDS_OBJECT, op->oid.data, op->oid.len);

		if (e == NULL) {
			rules__refuse(result->why, "no such object");
			return -ENOENT;
		}
		if (touched(result, CMMDS_OBJECT, op->oid.data, op->oid.len))
			return rules__refuse(result->why, "one command changes "
							  "an entry twice");
		copy = &copies[(*count)++];
		copy->entry = e;
		/* What was packed by us once unpacks again. */
		copy->object = directory__object__unpack(
			&cmmds__allocator, e->pub.value_len, e->pub.value);
		assert(copy->object != NULL);
		copy->oepoch = copy->object->oepoch;
		copy->csn = copy->object->csn;
	}
	if (op->expect_oepoch != copy->oepoch || op->expect_csn != copy->csn) {
		rules__refuse(result->why,
			      "the object is at (oepoch %u, csn %llu), not "
			      "(%u, %llu)",
			      copy->oepoch, (unsigned long long)copy->csn,
			      op->expect_oepoch,
			      (unsigned long long)op->expect_csn);
		return -EAGAIN;
	}
	if (raises_csn(op)) /* unless an ACCEPT before it raised it further */
		copy->object->csn = MAX(copy->object->csn, copy->csn + 1);
	return rules__object_op(state, copy->object, op, result->why);
}

static int apply_objects(struct cmmds_state *state, struct state_result *result,
			 const Directory__Command *cmd)
{
	struct object_copy *copies;
	size_t count = 0;
	int rv = 0;

	if (cmd->n_objects == 0)
		return 0;
	copies = cmmds__alloc(cmd->n_objects * sizeof(*copies));
	for (size_t i = 0; i < cmd->n_objects && rv == 0; i++) {
		/* A leaf takes one step a command: see g6. */
		for (size_t j = 0; j < i && cmd->objects[i]->cid.len > 0; j++)
			if (cmd->objects[j]->cid.len ==
				    cmd->objects[i]->cid.len &&
			    memcmp(cmd->objects[j]->cid.data,
				   cmd->objects[i]->cid.data,
				   cmd->objects[i]->cid.len) == 0)
				rv = rules__refuse(result->why,
						   "two steps of one leaf in "
						   "one command");
		if (rv == 0)
			rv = object_op(state, result, copies, &count,
				       cmd->objects[i]);
	}
	for (size_t i = 0; i < count; i++) {
		Directory__Object *object = copies[i].object;
		size_t len = directory__object__get_packed_size(object);
		const struct cmmds_entry *e = &copies[i].entry->pub;
		uint8_t *value;

		if (rv == 0)
			rv = rules__object(object, result->why);
		if (rv == 0 && len > CMMDS_VALUE_MAX) {
			rules__refuse(result->why, "the entry is too large");
			rv = -EMSGSIZE;
		}
		if (rv != 0) {
			directory__object__free_unpacked(object, NULL);
			continue;
		}
		value = cmmds__alloc(len + 1);
		directory__object__pack(object, value);
		change_add(state, result, (struct state_entry *)e,
			   tree__entry_make(CMMDS_OBJECT, e->key, e->key_len,
					    state->revision + 1, value, len,
					    &object->base));
		free(value);
	}
	free(copies);
	return rv;
}

/* ---- the audit ---- */

/* Gives it its sequence, which is part of what the entry will measure. */
static int audit_check(const struct cmmds_state *state, Directory__Event *audit,
		       char why[128])
{
	if (strlen(audit->who) > 255 || strlen(audit->what) > 1023)
		return rules__refuse(why, "the audit line is too long");
	audit->sequence = state->event_sequence + 1;
	if (directory__event__get_packed_size(audit) <= CMMDS_VALUE_MAX)
		return 0;
	rules__refuse(why, "the audit line is too long");
	return -EMSGSIZE;
}

static void apply_audit(struct cmmds_state *state, struct state_result *result,
			Directory__Event *audit)
{
	const struct state_entry *oldest;
	uint8_t key[8], *value;
	size_t len;

	state->event_sequence = audit->sequence;
	put_be64(key, audit->sequence);
	len = directory__event__get_packed_size(audit);
	value = cmmds__alloc(len + 1);
	directory__event__pack(audit, value);
	change_add(state, result, NULL,
		   tree__entry_make(CMMDS_EVENT, key, sizeof(key),
				    state->revision + 1, value, len,
				    protobuf_c_message_unpack(
					    &directory__event__descriptor,
					    &cmmds__allocator, len, value)));
	free(value);
	while (state->counts[CMMDS_EVENT] > CMMDS_EVENTS_MAX) {
		oldest = state__above(state, CMMDS_EVENT, NULL, 0);
		change_add(state, result, (struct state_entry *)oldest, NULL);
	}
}

/* ---- the whole command ---- */

static int apply_all(struct cmmds_state *state, struct state_result *result,
		     Directory__Command *cmd)
{
	int rv = 0;

	if (cmd->n_changes + cmd->n_objects > CMMDS_CHANGES_MAX) {
		rules__refuse(result->why, "too many changes in one command");
		return -EMSGSIZE;
	}
	if (cmd->audit != NULL)
		rv = audit_check(state, cmd->audit, result->why);
	for (size_t i = 0; i < cmd->n_changes && rv == 0; i++)
		rv = apply_change(state, result, cmd->changes[i]);
	if (rv == 0)
		rv = apply_objects(state, result, cmd);
	for (size_t i = 0; i < result->count && rv == 0; i++)
		rv = rules__references(state, &result->changes[i], result->why);
	if (rv != 0) {
		changes_undo(state, result);
		return rv;
	}
	if (cmd->audit != NULL)
		apply_audit(state, result, cmd->audit);
	for (size_t i = 0; i < result->count; i++)
		if (result->changes[i].old_entry != NULL)
			snapshot__keep(state, result->changes[i].old_entry);
	if (result->count > 0)
		state->revision++;
	return 0;
}

int state__apply(struct cmmds_state *state, uint64_t index, const void *data,
		 size_t len, struct state_result *result)
{
	struct state_remembered what = { 0 };
	struct state_client *client;
	Directory__Command *cmd = NULL;

	memset(result, 0, sizeof(*result));
	assert(index > state->applied_index);
	state->applied_index = index;
	if (len <= CMMDS_COMMAND_MAX &&
	    rules__depth_ok(&directory__command__descriptor, data, len))
		cmd = directory__command__unpack(&cmmds__allocator, len, data);
	if (cmd != NULL && cmd->version != CMMDS_COMMAND_VERSION) {
		snprintf(result->why, sizeof(result->why),
			 "a directory command of version %u; this program "
			 "knows %u",
			 cmd->version, CMMDS_COMMAND_VERSION);
		directory__command__free_unpacked(cmd, NULL);
		return -EMEDIUMTYPE;
	}
	if (cmd == NULL || cmd->client.len != sizeof(struct uuid) ||
	    cmd->sequence == 0) {
		if (cmd != NULL)
			directory__command__free_unpacked(cmd, NULL);
		rules__refuse(result->why, "the command cannot be decoded");
		result->status = -EPROTO;
		result->revision = state->revision;
		return 0;
	}
	memcpy(result->client.b, cmd->client.data, sizeof(result->client.b));
	result->incarnation = cmd->incarnation;
	result->sequence = cmd->sequence;
	if (!answered(state, result)) {
		result->status = apply_all(state, result, cmd);
		result->revision = state->revision;
		what.sequence = cmd->sequence;
		what.revision = result->revision;
		what.result = result->status;
		client = client_find(state, &result->client, true);
		client_remember(state, client, cmd->incarnation, &what);
	}
	directory__command__free_unpacked(cmd, NULL);
	return 0;
}

/* ---- from a snapshot ---- */

int state__load(struct cmmds_state *state, enum cmmds_kind kind,
		const void *key, size_t key_len, uint64_t revision,
		const void *value, size_t value_len)
{
	ProtobufCMessage *message;

	if (rules__descriptor(kind) == NULL || key_len > CMMDS_KEY_MAX ||
	    value_len > CMMDS_VALUE_MAX || revision > state->revision ||
	    !rules__depth_ok(rules__descriptor(kind), value, value_len) ||
	    state__find(state, kind, key, key_len) != NULL)
		return -EUCLEAN;
	message = protobuf_c_message_unpack(
		rules__descriptor(kind), &cmmds__allocator, value_len, value);
	if (message == NULL)
		return -EUCLEAN;
	tree__insert(state, tree__entry_make(kind, key, key_len, revision,
					     value, value_len, message));
	return 0;
}

int state__load_client(struct cmmds_state *state, const struct uuid *id,
		       uint64_t incarnation,
		       const struct state_remembered *what)
{
	struct state_client *client = client_find(state, id, true);

	if (client == NULL || what->sequence == 0)
		return -EUCLEAN;
	client_remember(state, client, incarnation, what);
	return 0;
}
