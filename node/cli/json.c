/*
 * json: any message as JSON, by its descriptor.  Every field is there, also
 * what is zero, so that scripts need not ask whether it is.
 */
#include "base/err.h"
#include "base/utf8.h"
#include "node/cli/cli.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *cli_json_string(const char *text)
{
	json_t *s = json_string(text);
	char *copy;

	if (s != NULL)
		return s;
	copy = strdup(text);
	if (copy == NULL)
		return json_string("(not UTF-8)");
	text_utf8(copy);
	s = json_string(copy);
	free(copy);
	return s;
}

/* U+0080 to U+009F command a terminal as well; Jansson leaves them as they are. */
static size_t text_flags(const char *text)
{
	for (; (text = strchr(text, 0xc2)) != NULL; text++)
		if ((unsigned char)text[1] < 0xa0)
			return JSON_ENSURE_ASCII;
	return 0;
}

void cli_json_text(const char *text)
{
	json_t *s = cli_json_string(text);

	json_dumpf(s, stdout, JSON_ENCODE_ANY | text_flags(text));
	json_decref(s);
}

/* ---- a message ---- */

static void message_print(const ProtobufCMessage *message, unsigned depth);

static void value_print(const ProtobufCFieldDescriptor *f, const void *at,
			unsigned depth)
{
	const char *text;

	switch (f->type) {
	case PROTOBUF_C_TYPE_UINT32:
		printf("%" PRIu32, *(const uint32_t *)at);
		break;
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_INT32:
		printf("%" PRId32, *(const int32_t *)at);
		break;
	case PROTOBUF_C_TYPE_UINT64: /* Jansson's integers end at 2^63 */
		printf("%" PRIu64, *(const uint64_t *)at);
		break;
	case PROTOBUF_C_TYPE_BOOL:
		printf("%s",
		       *(const protobuf_c_boolean *)at ? "true" : "false");
		break;
	case PROTOBUF_C_TYPE_STRING:
		text = *(const char *const *)at;
		cli_json_text(text ? text : "");
		break;
	case PROTOBUF_C_TYPE_MESSAGE:
		message_print(*(const ProtobufCMessage *const *)at, depth);
		break;
	default:
		printf("null"); /* the answers have no other type */
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

static void line_begin(unsigned depth)
{
	printf("\n%*s", (int)(2 * depth), "");
}

static void repeated_print(const ProtobufCMessage *message,
			   const ProtobufCFieldDescriptor *f, unsigned depth)
{
	const char *base = (const char *)message;
	size_t count = *(const size_t *)(base + f->quantifier_offset);
	const char *items = *(const char *const *)(base + f->offset);

	putchar('[');
	for (size_t i = 0; i < count; i++) {
		if (i > 0)
			putchar(',');
		line_begin(depth + 1);
		value_print(f, items + i * value_bytes(f), depth + 1);
	}
	if (count > 0)
		line_begin(depth);
	putchar(']');
}

static void message_print(const ProtobufCMessage *message, unsigned depth)
{
	if (message == NULL) {
		printf("null");
		return;
	}
	putchar('{');
	for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f =
			&message->descriptor->fields[i];

		if (i > 0)
			putchar(',');
		line_begin(depth + 1);
		printf("\"%s\": ", f->name);
		if (f->label == PROTOBUF_C_LABEL_REPEATED)
			repeated_print(message, f, depth + 1);
		else
			value_print(f, (const char *)message + f->offset,
				    depth + 1);
	}
	line_begin(depth);
	putchar('}');
}

void cli_json_print(const ProtobufCMessage *message)
{
	message_print(message, 0);
	putchar('\n');
}

void cli_json_error(const char *error, const char *fix, int status,
		    bool unknown)
{
	json_t *object = json_pack("{s:o, s:o, s:s, s:b}", "error",
				   cli_json_string(error), "fix",
				   cli_json_string(fix ? fix : ""), "code",
				   err_name(status), "unknown", unknown);

	json_dumpf(object, stdout,
		   JSON_INDENT(2) | JSON_PRESERVE_ORDER | text_flags(error) |
			   text_flags(fix ? fix : ""));
	putchar('\n');
	json_decref(object);
}
