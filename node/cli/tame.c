/* tame: what is printed for people is tamed before, answers by their fields. */
#include "base/tame.h"
#include "node/cli/cli.h"

#include <stdarg.h>

void cli_print(FILE *f, const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	text_tame(text);
	fputs(text, f);
}

static void field_tame(ProtobufCMessage *message,
		       const ProtobufCFieldDescriptor *f)
{
	char *at = (char *)message + f->offset;
	bool many = f->label == PROTOBUF_C_LABEL_REPEATED;
	const void *told = (char *)message + f->quantifier_offset;
	size_t count = many ? *(const size_t *)told : 1;
	void **items = many ? *(void ***)at : (void **)at;

	/* One of several that share their place. */
	if ((f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) &&
	    *(const uint32_t *)told != f->id)
		return;
	for (size_t i = 0; i < count; i++) {
		if (items[i] == NULL)
			continue;
		if (f->type == PROTOBUF_C_TYPE_STRING)
			text_tame(items[i]);
		else
			cli_tame(items[i]);
	}
}

void cli_tame(ProtobufCMessage *message)
{
	for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
		const ProtobufCFieldDescriptor *f =
			&message->descriptor->fields[i];

		if (f->type == PROTOBUF_C_TYPE_STRING ||
		    f->type == PROTOBUF_C_TYPE_MESSAGE)
			field_tame(message, f);
	}
}
