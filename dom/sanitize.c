/*
 * sanitize: the mark that a SANITIZE leaves with its object in the directory,
 * so that it goes on after a restart.
 *
 * The mark is iscsi's: bytes that dom keeps by compare-and-set and does not
 * read.  What else changes the entry meanwhile (an owner, a policy) makes the
 * comparison fail: then the entry is read again and the mark tried anew.
 */
#include "dom/dom_int.h"

#include <stdlib.h>

#define TRIES_MAX 16u

struct mark {
	struct dom_sanitize *req;
	struct dom_object *object;
	struct cmmds_command cmd;
	unsigned tries;
	size_t len;
	uint8_t bytes[];
};

const uint8_t *dom_sanitize_state(struct dom_object *object, size_t *len)
{
	const Directory__Object *o =
		cmmds_object(object->dom->cmmds, &object->oid);

	if (o == NULL || !o->sanitizing)
		return NULL;
	*len = o->sanitize.len;
	/* An entry without bytes is one all the same. */
	return o->sanitize.len > 0 ? o->sanitize.data : (const uint8_t *)"";
}

static void mark_end(struct mark *m, int status)
{
	struct dom_sanitize *req = m->req;
	struct dom *dom = m->object->dom;

	m->object->ops--;
	dom->jobs--;
	dom__kick(dom);
	free(m);
	req->cb(req, status);
}

static int mark_propose(struct mark *m);

static void mark_stored(struct cmmds_command *cmd, int status)
{
	struct mark *m = container_of(cmd, struct mark, cmd);

	if (status == -ETIMEDOUT && m->tries++ < TRIES_MAX &&
	    cmmds_propose_again(cmd, 0, mark_stored) == 0)
		return;
	cmmds_command_fini(cmd);
	if (status == -EAGAIN && m->tries++ < TRIES_MAX) {
		status = mark_propose(m);
		if (status == 0)
			return;
	}
	mark_end(m, status);
}

/* The entry as it is now, with the mark in it, if it is still that entry. */
static int mark_propose(struct mark *m)
{
	const struct uuid *oid = &m->object->oid;
	struct cmmds *cmmds = m->object->dom->cmmds;
	const struct cmmds_entry *entry =
		cmmds_get(cmmds, CMMDS_OBJECT, oid->b, sizeof(oid->b));
	Directory__Object object;
	int rv;

	if (entry == NULL || entry->message == NULL)
		return -ENOENT;
	object = *(const Directory__Object *)entry->message;
	if (object.deleted)
		return -ENOENT;
	object.sanitizing = m->len > 0;
	object.sanitize.len = m->len;
	object.sanitize.data = m->bytes;
	cmmds_command_init(&m->cmd);
	cmmds_put(&m->cmd, CMMDS_OBJECT, oid->b, sizeof(oid->b),
		  entry->revision, &object.base);
	rv = cmmds_propose(cmmds, &m->cmd, 0, mark_stored);
	if (rv < 0)
		cmmds_command_fini(&m->cmd);
	return rv;
}

int dom_sanitize_mark(struct dom_object *object, struct dom_sanitize *req,
		      const void *state, size_t len, dom_sanitize_cb cb)
{
	struct dom *dom = object->dom;
	struct mark *m;
	int rv;

	if (dom->closing)
		return -ESHUTDOWN;
	if (len > DOM_SANITIZE_MAX)
		return -EINVAL;
	m = calloc(1, sizeof(*m) + len);
	if (m == NULL)
		return -ENOMEM;
	m->req = req;
	m->object = object;
	m->len = len;
	if (len > 0)
		memcpy(m->bytes, state, len);
	req->cb = cb;
	rv = mark_propose(m);
	if (rv < 0) {
		free(m);
		return rv;
	}
	object->ops++;
	dom->jobs++;
	return 0;
}
