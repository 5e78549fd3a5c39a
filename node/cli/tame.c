/*
 * tame: what is printed for people must not command their terminal: names that
 * came over the network, and words of the command line that are told back.
 */
#include "node/cli/cli.h"

#include <stdarg.h>

/*
 * No control characters but the end of a line, U+0080 to U+009F among them, nor
 * their bytes where no character of UTF-8 is.
 */
static void tame(char *text)
{
	unsigned more = 0; /* bytes the character still has */

	for (unsigned char *p = (unsigned char *)text; *p != '\0'; p++) {
		if (more > 0 && (*p & 0xc0) == 0x80) {
			more--;
			continue;
		}
		more = 0;
		if (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)
			p[0] = p[1] = '?';
		else if ((*p < ' ' && *p != '\n') || (*p >= 0x7f && *p < 0xc0))
			*p = '?';
		else if (*p >= 0xc0)
			more = *p >= 0xf0 ? 3 : *p >= 0xe0 ? 2 : 1;
	}
}

void cli_print(FILE *f, const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	tame(text);
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
			tame(items[i]);
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
