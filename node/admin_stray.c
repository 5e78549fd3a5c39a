/*
 * admin_stray: `basalt object list --unknown`, `drop` and `accept`: what lies on
 * this node's disks and is newer than the directory (dom.h, stray.c).
 */
#include "base/err.h"
#include "base/size.h"
#include "base/util.h"
#include "node/admin_int.h"

#include <errno.h>
#include <stdlib.h>

#define NEWER "A newer copy of data_dir's directory/ would know it. "

/* The virtual disk whose object @oid is, or "". */
static const char *vdisk_of(struct node *node, const struct uuid *oid)
{
	const struct cmmds_entry *e = node__vdisk_of(node, oid);

	return e != NULL ? ((const Directory__VDisk *)e->message)->name : "";
}

static char *disk_path(struct node *node, const struct uuid *id)
{
	const struct cmmds_entry *e =
		cmmds_get(node->cmmds, CMMDS_DISK, id->b, sizeof(id->b));

	return e != NULL ? node__disk_path(node,
					   (const Directory__Disk *)e->message)
			 : "(gone)";
}

/* ---- disks that could not be asked ---- */

static bool in_service(struct node *node, const Directory__Disk *m)
{
	struct lsom_disk_info info;
	struct node_disk *d;
	struct uuid id;

	if (m->uuid.len != sizeof(id.b))
		return false;
	memcpy(id.b, m->uuid.data, sizeof(id.b));
	d = node__disk_find(node, &id);
	if (d == NULL || d->state != NODE_DISK_ONLINE)
		return false;
	lsom_disk_info(d->disk, &info);
	return info.state != LSOM_DISK_FAILED;
}

/* This node's disks that are not, one after the other. */
static const struct cmmds_entry *away_next(struct node *node,
					   const struct cmmds_entry *e)
{
	while ((e = cmmds_next(node->cmmds, CMMDS_DISK, e)) != NULL) {
		const Directory__Disk *m = (const Directory__Disk *)e->message;

		if (m->node.len == sizeof(node->identity.id.b) &&
		    memcmp(m->node.data, node->identity.id.b, m->node.len) ==
			    0 &&
		    !in_service(node, m))
			return e;
	}
	return NULL;
}

static size_t away_count(struct node *node)
{
	const struct cmmds_entry *e = NULL;
	size_t n = 0;

	while ((e = away_next(node, e)) != NULL)
		n++;
	return n;
}

static char *away_path(struct node *node, const struct cmmds_entry *e)
{
	return node__disk_path(node, (const Directory__Disk *)e->message);
}

/* NULL: there is no memory for it. */
static char *away_note(struct node *node, const struct cmmds_entry *e)
{
	char *note;

	if (asprintf(&note,
		     "disk %s is not in service: what it has of the object "
		     "stays; basalt health tells when it is back",
		     away_path(node, e)) < 0)
		return NULL;
	return note;
}

/*
 * Done, with a line for each disk that is away.  What is done is said so, also
 * where there is no memory for the lines.
 */
static void done_without(struct admin_req *r, const char *what)
{
	static char *const brief[] = {
		"not all disks are in service: what those have of the object "
		"stays; basalt disk list shows them"
	};
	size_t count = away_count(r->node), n = 0;
	char **notes = calloc(count + 1, sizeof(*notes));
	const struct cmmds_entry *e = NULL;

	while (notes != NULL && (e = away_next(r->node, e)) != NULL) {
		notes[n] = away_note(r->node, e);
		if (notes[n] == NULL)
			break;
		n++;
	}
	if (n == count)
		admin__done(r, what, notes, n, "", "");
	else
		admin__done(r, what, (char **)brief, ARRAY_LEN(brief), "", "");
	for (size_t i = 0; i < n; i++)
		free(notes[i]);
	free(notes);
}

/* ---- list ---- */

struct list {
	struct admin_list lines;
	struct dom_strays strays;
	unsigned at; /* how many of them have their line */
	struct admin_req *r;
};

struct stray_texts {
	char oid[UUID_TEXT_LEN], cid[UUID_TEXT_LEN], disk[UUID_TEXT_LEN];
};

static int by_object(const void *a, const void *b)
{
	const struct dom_stray *x = a, *y = b;
	int rv = memcmp(x->oid.b, y->oid.b, sizeof(x->oid.b));

	return rv != 0 ? rv : memcmp(x->cid.b, y->cid.b, sizeof(x->cid.b));
}

static void stray_fill(struct node *node, const struct dom_stray *s,
		       Admin__Stray *out, struct stray_texts *t)
{
	admin__stray__init(out);
	uuid_format(&s->oid, t->oid);
	uuid_format(&s->cid, t->cid);
	uuid_format(&s->disk, t->disk);
	out->object = t->oid;
	out->component = t->cid;
	out->disk = t->disk;
	out->disk_path = disk_path(node, &s->disk);
	out->size_bytes = s->size_bytes;
	out->used_bytes = s->used_bytes;
	out->used_exact = s->used_exact;
	out->directory = s->known ? "older" : "nothing";
	out->vdisk = (char *)vdisk_of(node, &s->oid);
}

static int list_some(struct admin_list *lines, unsigned max)
{
	struct list *list = container_of(lines, struct list, lines);
	Admin__Strays one = ADMIN__STRAYS__INIT;
	struct stray_texts texts;
	Admin__Stray stray, *strays[] = { &stray };

	one.components = strays;
	one.n_components = 1;
	for (; list->at < list->strays.count && max > 0; max--) {
		stray_fill(list->r->node, &list->strays.items[list->at++],
			   &stray, &texts);
		admin__list_add(lines, &one.base);
		if (lines->status < 0)
			return 0;
	}
	return list->at < list->strays.count;
}

static void list_away(struct admin_list *lines)
{
	struct node *node = container_of(lines, struct list, lines)->r->node;
	const struct cmmds_entry *e = NULL;

	while ((e = away_next(node, e)) != NULL) {
		Admin__Strays one = ADMIN__STRAYS__INIT;
		char *path = away_path(node, e);

		one.away = &path;
		one.n_away = 1;
		admin__list_add(lines, &one.base);
	}
}

static void list_over(struct admin_req *r)
{
	free(((struct list *)r->ctx)->strays.items);
}

/* The request is refused with what a room's call returned. */
static void refuse_for(struct admin_req *r, int status)
{
	admin__why(r, status, "Try again in a moment.",
		   "the disks cannot be looked at now: %s", err_text(status));
	admin__refuse(r);
}

static void on_listed(struct dom_strays *strays, int status)
{
	struct list *list = strays->data;

	if (status < 0) {
		refuse_for(list->r, status);
		return;
	}
	if (strays->count > 1)
		qsort(strays->items, strays->count, sizeof(strays->items[0]),
		      by_object);
	list->lines.result = ADMIN__RESPONSE__RESULT_STRAYS;
	list->lines.some = list_some;
	list->lines.last = list_away;
	admin__list(list->r, &list->lines);
}

void admin__object_list(struct admin_req *r)
{
	struct list *list;
	int rv;

	if (admin__stopping(r))
		return;
	list = calloc(1, sizeof(*list));
	if (list == NULL) {
		admin__no_memory(r);
		return;
	}
	r->ctx = list;
	r->over = list_over;
	list->r = r;
	list->strays.data = list;
	rv = dom_strays(r->node->dom, &list->strays, on_listed);
	if (rv < 0)
		refuse_for(r, rv);
}

/* ---- one object, by its id ---- */

struct one {
	struct admin_req *r;
	struct uuid oid;
	char id[UUID_TEXT_LEN], size[SIZE_TEXT_MAX + 8];
	union {
		struct dom_strays strays;
		struct dom_drop drop;
		struct dom_accept accept;
	};
	unsigned count; /* of components that the directory does not know */
	char which[200]; /* the first of them */
};

static const Directory__Object *object_of(const struct one *one)
{
	return cmmds_object(one->r->node->cmmds, &one->oid);
}

/* NULL: @name is none, and the request was refused. */
static struct one *one_make(struct admin_req *r, const char *name)
{
	struct one *one;
	struct uuid oid;

	if (admin__stopping(r))
		return NULL;
	if (uuid_parse(name, &oid) < 0 || uuid_is_zero(&oid)) {
		admin__why(r, -EINVAL,
			   "basalt object list --unknown shows them.",
			   "'%.80s' is no object's id", name);
		admin__refuse(r);
		return NULL;
	}
	one = calloc(1, sizeof(*one));
	if (one == NULL) {
		admin__no_memory(r);
		return NULL;
	}
	r->ctx = one;
	one->r = r;
	one->oid = oid;
	uuid_format(&oid, one->id);
	return one;
}

/* ---- drop ---- */

/* The directory has an entry: say what else there is to do. */
static int known_why(const struct one *one, const Directory__Object *o)
{
	struct admin_req *r = one->r;
	const char *vdisk = vdisk_of(r->node, &one->oid);

	if (o->deleted)
		return admin__why(r, -EEXIST, "Nothing is to be done.",
				  "object %s is deleted already: its "
				  "components go by themselves",
				  one->id);
	return admin__why(r, -EEXIST,
			  "basalt vdisk delete deletes a virtual disk with its "
			  "data; basalt object accept opens an object that "
			  "basalt object list --unknown shows with an older "
			  "layout.",
			  "the directory knows object %s%s%s: nothing is "
			  "deleted",
			  one->id, vdisk[0] ? ", of virtual disk " : "", vdisk);
}

static int drop_build(struct admin_req *r, struct cmmds_command *cmd)
{
	struct one *one = r->ctx;
	const Directory__Object *o = object_of(one);

	if (o != NULL)
		return known_why(one, o);
	cmmds_expect(cmd, CMMDS_OBJECT, one->oid.b, sizeof(one->oid.b),
		     CMMDS_MUST_NOT_EXIST);
	cmmds_audit(cmd, r->who,
		    "object %s, which the directory does not know, dropped by "
		    "force: %u component%s, %s",
		    one->id, one->count, one->count == 1 ? "" : "s", one->size);
	return 0;
}

static void on_dropped(struct dom_drop *drop, int status)
{
	struct one *one = drop->data;
	struct admin_req *r = one->r;
	const Directory__Object *o = object_of(one);
	unsigned dropped = drop->dropped;
	char what[200];

	if (status == 0) {
		snprintf(what, sizeof(what),
			 "object %s dropped: %u component%s deleted", one->id,
			 dropped, dropped == 1 ? "" : "s");
		done_without(r, what);
		return;
	}
	if (status == -EEXIST && o != NULL)
		known_why(one, o);
	else
		admin__why(r, status,
			   "basalt object list --unknown shows what is left; "
			   "basalt disk list tells how the disks are.",
			   "object %s: %u of %u components deleted, then: %s",
			   one->id, dropped, one->count,
			   status == -ETIMEDOUT ? "a disk does not answer"
						: err_text(status));
	admin__refuse(r);
}

static void drop_applied(struct admin_req *r)
{
	struct one *one = r->ctx;
	int rv;

	one->drop = (struct dom_drop){ .data = one, .oid = one->oid };
	rv = dom_drop(r->node->dom, &one->drop, on_dropped);
	if (rv < 0)
		refuse_for(r, rv);
}

/* What there is of the object, in numbers and words. */
static void drop_sum(struct one *one, const struct dom_stray *items,
		     unsigned count)
{
	char cid[UUID_TEXT_LEN], used[SIZE_TEXT_MAX];
	bool exact = true;
	uint64_t bytes = 0;

	for (unsigned i = 0; i < count; i++) {
		bytes += items[i].used_bytes;
		exact = exact && items[i].used_exact;
	}
	one->count = count;
	snprintf(one->size, sizeof(one->size), "%s%s", exact ? "" : "at most ",
		 size_format(bytes, used));
	if (count == 0)
		return;
	uuid_format(&items[0].cid, cid);
	snprintf(one->which, sizeof(one->which), "%s on %.100s%s", cid,
		 disk_path(one->r->node, &items[0].disk),
		 count > 1 ? " and others" : "");
}

static int nothing_why(struct one *one)
{
	struct admin_req *r = one->r;
	const struct cmmds_entry *e = NULL;
	char fix[400] = "basalt object list --unknown shows what is there.";
	size_t len;

	while ((e = away_next(r->node, e)) != NULL) {
		len = strlen(fix);
		snprintf(fix + len, sizeof(fix) - len,
			 " Disk %s is not in service.", away_path(r->node, e));
	}
	return admin__why(r, -ENOENT, fix,
			  "no disk of node %s has a component of object %s",
			  r->node->config->name, one->id);
}

static int drop_check(struct one *one)
{
	struct admin_req *r = one->r;
	const Directory__Object *o = object_of(one);
	char fix[200];

	if (o != NULL)
		return known_why(one, o);
	if (one->count == 0)
		return nothing_why(one);
	if (r->msg->object_drop->force)
		return 0;
	snprintf(fix, sizeof(fix),
		 NEWER "basalt object drop %s --force deletes it for good.",
		 one->id);
	return admin__why(r, -EPERM, fix,
			  "%u component%s of object %s would be deleted, with "
			  "%s of data: %s",
			  one->count, one->count == 1 ? "" : "s", one->id,
			  one->size, one->which);
}

static void on_drop_listed(struct dom_strays *strays, int status)
{
	struct one *one = strays->data;
	struct admin_req *r = one->r;

	if (status == 0)
		drop_sum(one, strays->items, strays->count);
	free(strays->items);
	if (status < 0)
		refuse_for(r, status);
	else if (drop_check(one) < 0)
		admin__refuse(r);
	else
		admin__change(r, drop_build, drop_applied);
}

void admin__object_drop(struct admin_req *r)
{
	struct one *one = one_make(r, r->msg->object_drop->name);
	int rv;

	if (one == NULL)
		return;
	one->strays.data = one;
	one->strays.oid = one->oid;
	rv = dom_strays(r->node->dom, &one->strays, on_drop_listed);
	if (rv < 0)
		refuse_for(r, rv);
}

/* ---- accept ---- */

static int accept_build(struct admin_req *r, struct cmmds_command *cmd)
{
	struct one *one = r->ctx;
	const struct dom_accept *a = &one->accept;
	const Directory__Object *o = object_of(one);
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;

	if (o == NULL || o->csn != a->expect_csn ||
	    o->oepoch != a->expect_oepoch)
		return admin__why(r, -ESTALE, "Look again, then repeat it.",
				  "object %s changed meanwhile", one->id);
	op.op = DIRECTORY__OBJECT_COMMAND__OP__ACCEPT;
	op.oid.data = one->oid.b;
	op.oid.len = sizeof(one->oid.b);
	op.expect_oepoch = a->expect_oepoch;
	op.expect_csn = a->expect_csn;
	op.oepoch = a->oepoch;
	op.csn = a->csn;
	cmmds_object_op(cmd, &op);
	cmmds_audit(cmd, r->who,
		    "object %s, of virtual disk %s, accepted by force with the "
		    "older layout of the directory, %s",
		    one->id, vdisk_of(r->node, &one->oid), one->size);
	return 0;
}

static void accept_applied(struct admin_req *r)
{
	struct one *one = r->ctx;
	char what[200];

	snprintf(what, sizeof(what),
		 "object %s accepted: it opens with the directory's layout, %s",
		 one->id, one->size);
	done_without(r, what);
}

static int accept_why(struct one *one, int status)
{
	struct admin_req *r = one->r;
	const struct dom_accept *a = &one->accept;
	const Directory__Object *o = object_of(one);
	const char *vdisk = vdisk_of(r->node, &one->oid);
	char fix[300], cut[SIZE_TEXT_MAX];

	if (status < 0)
		return admin__why(r, status,
				  "basalt object list --unknown shows which "
				  "objects are older in the directory. A newer "
				  "copy of data_dir's directory/ opens one; "
				  "basalt vdisk delete --force gives its "
				  "virtual disk up.",
				  "object %s cannot be accepted: %s", one->id,
				  a->why);
	snprintf(one->size, sizeof(one->size), "%s",
		 size_format(o != NULL ? o->size_bytes : 0, cut));
	if (r->msg->object_accept->force)
		return 0;
	snprintf(fix, sizeof(fix),
		 NEWER "basalt object accept %s --force does it; basalt(1) "
		       "says more.",
		 one->id);
	return admin__why(r, -EPERM, fix,
			  "object %s, of virtual disk %.80s, would be opened "
			  "with the directory's older layout, %s; what lies "
			  "behind it would be cut off: %s of its components, "
			  "and %u component%s whole",
			  one->id, vdisk, one->size,
			  size_format(a->cut_bytes, cut), a->extra,
			  a->extra == 1 ? "" : "s");
}

static void on_accept_checked(struct dom_accept *accept, int status)
{
	struct one *one = accept->data;

	if (accept_why(one, status) < 0)
		admin__refuse(one->r);
	else
		admin__change(one->r, accept_build, accept_applied);
}

void admin__object_accept(struct admin_req *r)
{
	struct one *one = one_make(r, r->msg->object_accept->name);
	int rv;

	if (one == NULL)
		return;
	one->accept = (struct dom_accept){ .data = one, .oid = one->oid };
	rv = dom_accept_check(r->node->dom, &one->accept, on_accept_checked);
	if (rv < 0)
		refuse_for(r, rv);
}
