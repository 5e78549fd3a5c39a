/*
 * whole: an answer has all that is shown of it, or it is of another version of
 * basaltd, and is not shown as if what it lacks were zero.
 */
#include "node/cli/cli.h"

#include <errno.h>
#include <stdio.h>

static const ProtobufCFieldDescriptor *lacks(const ProtobufCMessage *message);

/* What a basaltd leaves out itself: of no cluster, of an object without a tree. */
static bool need_not_be(const ProtobufCMessage *message)
{
	return message->descriptor == &admin__cluster_status__descriptor ||
	       message->descriptor == &admin__object_info__descriptor;
}

static const ProtobufCFieldDescriptor *
field_lacks(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *f)
{
	const char *base = (const char *)message, *at = base + f->offset;
	bool many = f->label == PROTOBUF_C_LABEL_REPEATED;
	size_t count =
		many ? *(const size_t *)(base + f->quantifier_offset) : 1;
	const ProtobufCMessage *const *items =
		many ? *(const ProtobufCMessage *const *const *)at
		     : (const ProtobufCMessage *const *)at;
	const ProtobufCFieldDescriptor *lack = NULL;

	for (size_t i = 0; i < count && lack == NULL; i++) {
		if (items[i] != NULL)
			lack = lacks(items[i]);
		else if (!need_not_be(message))
			lack = f;
	}
	return lack;
}

static const ProtobufCFieldDescriptor *lacks(const ProtobufCMessage *message)
{
	const ProtobufCMessageDescriptor *d = message->descriptor;
	const ProtobufCFieldDescriptor *lack = NULL;

	for (unsigned i = 0; i < d->n_fields && lack == NULL; i++)
		if (d->fields[i].type == PROTOBUF_C_TYPE_MESSAGE)
			lack = field_lacks(message, &d->fields[i]);
	return lack;
}

bool cli_lacks(const Admin__Response *response, bool json, char *error,
	       size_t len)
{
	const ProtobufCFieldDescriptor *lack = NULL;
	/* Whichever result it is: all of them are messages. */
	const ProtobufCMessage *result = (const ProtobufCMessage *)response->ok;

	if (result != NULL && !json)
		lack = lacks(result);
	if (result != NULL && lack == NULL)
		return false;
	snprintf(error, len,
		 "basaltd's answer has no '%s': it is of another version than "
		 "this command",
		 lack != NULL ? lack->name : "result");
	return true;
}

int cli_whole(const struct cli_call *call, const Admin__Response *response)
{
	char error[200];

	if (!cli_lacks(response, call->json, error, sizeof(error)))
		return CLI_DONE;
	return cli_refuse(call, error,
			  "Use the basalt that was installed with it; basalt "
			  "--version is this one's, and a basaltd that was "
			  "upgraded has to be restarted.",
			  -EPROTO);
}
