/*
 * command: building the messages that change the directory.
 *
 * The builder copies all it is given; what cannot be right (a key too long) is
 * remembered and answered when the command is proposed, so that callers check
 * one status, not ten.  Whether a command holds is decided where it is applied
 * (state.c), never here.
 */
#include "cmmds/cmmds_int.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void wrong(struct cmmds_command *cmd, int status, const char *why)
{
	if (cmd->built != 0)
		return;
	cmd->built = status;
	snprintf(cmd->why, sizeof(cmd->why), "%s", why);
}

void cmmds_command_init(struct cmmds_command *cmd)
{
	void *data = cmd->data;

	memset(cmd, 0, sizeof(*cmd));
	cmd->data = data;
	cmd->message = cmmds__alloc(sizeof(*cmd->message));
	directory__command__init(cmd->message);
	cmd->message->version = CMMDS_COMMAND_VERSION;
}

void cmmds_command_fini(struct cmmds_command *cmd)
{
	if (cmd->message != NULL)
		directory__command__free_unpacked(cmd->message, NULL);
	cmd->message = NULL;
}

/* Lists double: room is the power of two at or above the count. */
static void *list_grow(void *list, size_t count)
{
	if ((count & (count - 1)) != 0)
		return list;
	list = realloc(list, (count ? count * 2 : 1) * sizeof(void *));
	if (list == NULL)
		abort();
	return list;
}

static ProtobufCBinaryData bytes_copy(const void *data, size_t len)
{
	ProtobufCBinaryData out = { 0 };

	if (len > 0) {
		out.data = cmmds__copy(data, len);
		out.len = len;
	}
	return out;
}

static Directory__Change *change_add(struct cmmds_command *cmd,
				     enum cmmds_kind kind, const void *key,
				     size_t key_len, uint64_t expect)
{
	Directory__Command *m = cmd->message;
	Directory__Change *c;

	assert(m != NULL);
	if (key_len > CMMDS_KEY_MAX) {
		wrong(cmd, -EMSGSIZE, "the key is too long");
		return NULL;
	}
	if (m->n_changes + m->n_objects == CMMDS_CHANGES_MAX) {
		wrong(cmd, -EMSGSIZE, "too many changes in one command");
		return NULL;
	}
	c = cmmds__alloc(sizeof(*c));
	directory__change__init(c);
	c->kind = kind;
	c->key = bytes_copy(key, key_len);
	c->any = expect == CMMDS_ANY;
	c->expect = c->any ? 0 : expect;
	m->changes = list_grow(m->changes, m->n_changes);
	m->changes[m->n_changes++] = c;
	return c;
}

void cmmds_put(struct cmmds_command *cmd, enum cmmds_kind kind, const void *key,
	       size_t key_len, uint64_t expect, const ProtobufCMessage *message)
{
	size_t len = protobuf_c_message_get_packed_size(message);
	Directory__Change *c;

	if (message->descriptor != rules__descriptor(kind)) {
		wrong(cmd, -EINVAL, "the message is not of the kind");
		return;
	}
	if (len > CMMDS_VALUE_MAX) {
		wrong(cmd, -EMSGSIZE, "the entry is too large");
		return;
	}
	c = change_add(cmd, kind, key, key_len, expect);
	if (c == NULL)
		return;
	c->value.data = cmmds__alloc(len + 1);
	c->value.len = protobuf_c_message_pack(message, c->value.data);
}

void cmmds_erase(struct cmmds_command *cmd, enum cmmds_kind kind,
		 const void *key, size_t key_len, uint64_t expect)
{
	Directory__Change *c = change_add(cmd, kind, key, key_len, expect);

	if (c != NULL)
		c->erase = true;
}

void cmmds_expect(struct cmmds_command *cmd, enum cmmds_kind kind,
		  const void *key, size_t key_len, uint64_t expect)
{
	Directory__Change *c = change_add(cmd, kind, key, key_len, expect);

	if (c != NULL)
		c->check_only = true;
}

void cmmds_object_op(struct cmmds_command *cmd,
		     const Directory__ObjectCommand *op)
{
	Directory__Command *m = cmd->message;
	size_t len = directory__object_command__get_packed_size(op);
	Directory__ObjectCommand *copy;
	uint8_t *bytes;

	assert(m != NULL);
	if (len > CMMDS_VALUE_MAX ||
	    m->n_changes + m->n_objects == CMMDS_CHANGES_MAX) {
		wrong(cmd, -EMSGSIZE, "too many changes in one command");
		return;
	}
	bytes = cmmds__alloc(len + 1);
	directory__object_command__pack(op, bytes);
	copy = directory__object_command__unpack(&cmmds__allocator, len, bytes);
	free(bytes);
	if (copy == NULL) {
		wrong(cmd, -EINVAL, "the object command is malformed");
		return;
	}
	m->objects = list_grow(m->objects, m->n_objects);
	m->objects[m->n_objects++] = copy;
}

void cmmds_command_take(struct cmmds_command *to, struct cmmds_command *from)
{
	Directory__Command *m = to->message, *f = from->message;

	if (from->built != 0)
		wrong(to, from->built, from->why);
	if (m->n_changes + m->n_objects + f->n_changes + f->n_objects >
	    CMMDS_CHANGES_MAX) {
		wrong(to, -EMSGSIZE, "too many changes in one command");
		return;
	}
	for (size_t i = 0; i < f->n_changes; i++) {
		m->changes = list_grow(m->changes, m->n_changes);
		m->changes[m->n_changes++] = f->changes[i];
	}
	for (size_t i = 0; i < f->n_objects; i++) {
		m->objects = list_grow(m->objects, m->n_objects);
		m->objects[m->n_objects++] = f->objects[i];
	}
	f->n_changes = f->n_objects = 0;
	if (f->audit == NULL)
		return;
	if (m->audit != NULL)
		directory__event__free_unpacked(m->audit, NULL);
	m->audit = f->audit;
	f->audit = NULL;
}

void cmmds_audit(struct cmmds_command *cmd, const char *who, const char *fmt,
		 ...)
{
	Directory__Command *m = cmd->message;
	char what[1024];
	va_list ap;

	assert(m != NULL);
	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	if (m->audit != NULL)
		directory__event__free_unpacked(m->audit, NULL);
	m->audit = cmmds__alloc(sizeof(*m->audit));
	directory__event__init(m->audit);
	m->audit->who = cmmds__copy(who, strnlen(who, 255) + 1);
	m->audit->who[strnlen(who, 255)] = '\0';
	m->audit->what = cmmds__copy(what, strlen(what) + 1);
}

int command__pack(struct cmmds_command *cmd, uint8_t **out, size_t *len)
{
	if (cmd->built != 0)
		return cmd->built;
	*len = directory__command__get_packed_size(cmd->message);
	if (*len > CMMDS_COMMAND_MAX) {
		wrong(cmd, -EMSGSIZE, "the command is too large");
		return -EMSGSIZE;
	}
	*out = cmmds__alloc(*len + 1);
	directory__command__pack(cmd->message, *out);
	return 0;
}
