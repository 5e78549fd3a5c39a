/*
 * json: any message as JSON, by its descriptor.  Every field is there, also
 * what is zero, so that scripts need not ask whether it is.
 */
#include "base/err.h"
#include "node/cli/cli.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *message_json(const ProtobufCMessage *message);

/*
 * A file's name, or what was typed and is told back, need not be UTF-8, and may
 * be cut within a character: what is none of it becomes '?'.
 */
static json_t *text_json(const char *text)
{
	json_t *s = json_string(text);
	char *copy;

	if (s != NULL)
		return s;
	copy = strdup(text);
	if (copy == NULL)
		return json_string("(not UTF-8)");
	for (char *p = copy; *p != '\0';) {
		size_t n = 1;

		while (n < 4 && p[n] != '\0' && (p[n] & 0xc0) == 0x80)
			n++;
		s = json_stringn(p, n);
		if (s == NULL)
			memset(p, '?', n);
		json_decref(s);
		p += n;
	}
	s = json_string(copy);
	free(copy);
	return s;
}

static json_t *value_json(const ProtobufCFieldDescriptor *f, const void *at)
{
	const char *text;

	switch (f->type) {
	case PROTOBUF_C_TYPE_UINT32:
		return json_integer(*(const uint32_t *)at);
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_INT32:
		return json_integer(*(const int32_t *)at);
	case PROTOBUF_C_TYPE_UINT64:
		return json_integer((json_int_t) * (const uint64_t *)at);
	case PROTOBUF_C_TYPE_BOOL:
		return json_boolean(*(const protobuf_c_boolean *)at);
	case PROTOBUF_C_TYPE_STRING:
		text = *(const char *const *)at;
		return text_json(text ? text : "");
	case PROTOBUF_C_TYPE_MESSAGE:
		return message_json(*(const ProtobufCMessage *const *)at);
	default:
		return json_null(); /* the answers have no other type */
	}
}

static size_t value_bytes(const ProtobufCFieldDescriptor *f)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_UINT64:
		return 8;
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(void *);
	default:
		return 4;
	}
}

static json_t *repeated_json(const ProtobufCMessage *message,
			     const ProtobufCFieldDescriptor *f)
{
	const char *base = (const char *)message;
	size_t count = *(const size_t *)(base + f->quantifier_offset);
	const char *items = *(const char *const *)(base + f->offset);
	json_t *list = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(
			list, value_json(f, items + i * value_bytes(f)));
	return list;
}

static json_t *message_json(const ProtobufCMessage *message)
{
	json_t *object;

	if (message == NULL)
		return json_null();
	object = json_object();
	for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f =
			&message->descriptor->fields[i];

		json_object_set_new(object, f->name,
				    f->label == PROTOBUF_C_LABEL_REPEATED
					    ? repeated_json(message, f)
					    : value_json(f,
							 (const char *)message +
								 f->offset));
	}
	return object;
}

static void print(json_t *object)
{
	json_dumpf(object, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
	putchar('\n');
	json_decref(object);
}

void cli_json_print(const ProtobufCMessage *message)
{
	print(message_json(message));
}

void cli_json_error(const char *error, const char *fix, int status)
{
	print(json_pack("{s:o, s:o, s:s}", "error", text_json(error), "fix",
			text_json(fix ? fix : ""), "code", err_name(status)));
}
