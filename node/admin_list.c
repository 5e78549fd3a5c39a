/*
 * admin_list: an answer with a line for each of very many entries.
 *
 * They are looked at in parts (parts.c), and each line is packed at once: what it
 * points to is the directory's, and lives until that changes.  Packed lines of a
 * message, one behind the other, are that message.
 */
#include "base/util.h"
#include "node/admin_int.h"
#include "node/frame.h"

#include <errno.h>
#include <stdlib.h>

void admin__list_add(struct admin_list *list, const ProtobufCMessage *lines)
{
	size_t len = protobuf_c_message_get_packed_size(lines), room;
	uint8_t *more;

	if (list->len + len > FRAME_RESPONSE_MAX)
		list->status = -EMSGSIZE;
	if (list->status < 0)
		return;
	if (list->len + len > list->room) {
		room = 2 * list->room + len;
		more = realloc(list->bytes, room);
		if (more == NULL) {
			list->status = -ENOMEM;
			return;
		}
		list->bytes = more;
		list->room = room;
	}
	protobuf_c_message_pack(lines, list->bytes + list->len);
	list->len += len;
}

static void list_end(struct admin_list *list)
{
	struct admin_req *r = list->r;

	if (list->status == 0 && list->last != NULL)
		list->last(list);
	if (list->status == 0) {
		admin__reply_packed(r, list->result, list->bytes, list->len);
		return;
	}
	free(list->bytes);
	switch (list->status) {
	case -ESHUTDOWN:
		admin__stopping(r);
		return;
	case -ENOMEM:
		admin__no_memory(r);
		return;
	case -EMSGSIZE:
		admin__why(r, -EMSGSIZE, ADMIN_TOO_LONG_FIX, ADMIN_TOO_LONG);
		break;
	case -ECANCELED:
		admin__why(r, -ECANCELED, ADMIN_UNHEARD_FIX, ADMIN_UNHEARD);
		break;
	default: /* it said why */
		break;
	}
	admin__refuse(r);
}

static bool on_entry(const struct cmmds_entry *e, void *arg)
{
	struct admin_list *list = arg;

	return list->each(list, e) && list->status == 0;
}

static int list_some(struct admin_list *list, unsigned max)
{
	struct node *node = list->r->node;

	if (list->r->conn == NULL)
		return -ECANCELED;
	if (list->some == NULL)
		return node__walk(node, &list->walk, list->kind, max, on_entry,
				  list);
	return node->state == NODE_UP ? list->some(list, max) : -ESHUTDOWN;
}

static bool list_part(struct node_parts *parts, unsigned max)
{
	struct admin_list *list = container_of(parts, struct admin_list, parts);
	int rv = list_some(list, max);

	if (rv > 0)
		return true;
	if (rv < 0)
		list->status = rv;
	list_end(list);
	return false;
}

void admin__list(struct admin_req *r, struct admin_list *list)
{
	list->r = r;
	list->parts.part = list_part;
	node__parts_start(r->node, &list->parts);
}

void admin__list_one(struct admin_req *r, struct admin_list *list,
		     const struct cmmds_entry *e)
{
	list->r = r;
	if (list->status == 0)
		list->each(list, e);
	list_end(list);
}
