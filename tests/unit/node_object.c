/*
 * `basalt object`: what is told of an object and of what the directory does not
 * know, and that a command that finds no memory ends without the daemon.
 */
#include "base/util.h"
#include "node/admin_int.h"
#include "tests/lib/fail_alloc.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	struct dom_strays *strays;
	struct dom_drop *drop;
	bool done;
	int status;
	unsigned nodes, notes, away, components, parts;
	char what[200], note[200];
} is;

static struct node node;
static struct config config;

/* ---- the rooms ---- */

const struct cmmds_entry *__wrap_cmmds_get(struct cmmds *cmmds,
					   enum cmmds_kind kind,
					   const void *key, size_t key_len);
const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after);
const struct cmmds_entry *__wrap_cmmds_of(struct cmmds *cmmds,
					  enum cmmds_kind kind,
					  const void *what, size_t len,
					  const struct cmmds_entry *after);
const Directory__VDisk *__wrap_cmmds_vdisk(struct cmmds *cmmds,
					   const char *name);
const Directory__Object *__wrap_cmmds_object(struct cmmds *cmmds,
					     const struct uuid *oid);
int __wrap_dom_strays(struct dom *dom, struct dom_strays *req,
		      dom_strays_cb cb);
int __wrap_dom_drop(struct dom *dom, struct dom_drop *req, dom_drop_cb cb);
unsigned __wrap_shards_count(const struct shards *shards);
void __wrap_admin__change(struct admin_req *r,
			  int (*build)(struct admin_req *r,
				       struct cmmds_command *cmd),
			  void (*applied)(struct admin_req *r));
void __wrap_admin__reply(struct admin_req *r, Admin__Response *response);
void __wrap_admin__reply_packed(struct admin_req *r, int result, uint8_t *bytes,
				size_t len);
void __wrap_node__parts_start(struct node *n, struct node_parts *parts);
void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);
int __wrap_asprintf(char **out, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

void *__wrap_realloc(void *old, size_t size)
{
	return alloc_fails(0) ? NULL : __real_realloc(old, size);
}

char *__wrap_strdup(const char *text)
{
	return alloc_fails(0) ? NULL : __real_strdup(text);
}

int __wrap_asprintf(char **out, const char *fmt, ...)
{
	va_list ap;
	int rv;

	if (alloc_fails(0))
		return -1;
	va_start(ap, fmt);
	rv = vasprintf(out, fmt, ap);
	va_end(ap);
	return rv;
}

const struct cmmds_entry *__wrap_cmmds_get(struct cmmds *cmmds,
					   enum cmmds_kind kind,
					   const void *key, size_t key_len)
{
	return NULL;
}

const struct cmmds_entry *__wrap_cmmds_of(struct cmmds *cmmds,
					  enum cmmds_kind kind,
					  const void *what, size_t len,
					  const struct cmmds_entry *after)
{
	return NULL;
}

/* Two disks of this node, neither of them in service. */
const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after)
{
	static Directory__Disk m[2];
	static struct cmmds_entry entry[2];
	static uint8_t id[2][16] = { { 1 }, { 2 } };
	static char *const paths[] = { "/dev/sda", "/dev/sdb" };
	size_t i = after == NULL ? 0 : (size_t)(after - entry) + 1;

	if (kind != CMMDS_DISK || i == ARRAY_LEN(m))
		return NULL;
	directory__disk__init(&m[i]);
	m[i].uuid = (ProtobufCBinaryData){ sizeof(id[i]), id[i] };
	m[i].node = (ProtobufCBinaryData){ sizeof(node.identity.id.b),
					   node.identity.id.b };
	m[i].path = paths[i];
	entry[i].message = &m[i].base;
	return &entry[i];
}

const Directory__VDisk *__wrap_cmmds_vdisk(struct cmmds *cmmds,
					   const char *name)
{
	static Directory__VDisk v = DIRECTORY__VDISK__INIT;
	static uint8_t oid[16] = { 7 };

	v.name = "v";
	v.oid = (ProtobufCBinaryData){ sizeof(oid), oid };
	return &v;
}

/* Object 7 is known: two legs. */
const Directory__Object *__wrap_cmmds_object(struct cmmds *cmmds,
					     const struct uuid *oid)
{
	static Directory__Object o = DIRECTORY__OBJECT__INIT;
	static Directory__Owner owner = DIRECTORY__OWNER__INIT;
	static Directory__TreeNode root, legs[2], *children[2];
	static Directory__Leaf leaf[2];
	static uint8_t seven[16] = { 7 };
	const ProtobufCBinaryData id = { sizeof(seven), seven };

	if (oid->b[0] != 7)
		return NULL;
	directory__tree_node__init(&root);
	root.type = DIRECTORY__TREE_NODE__TYPE__CONCAT;
	root.children = children;
	root.n_children = ARRAY_LEN(children);
	for (unsigned i = 0; i < ARRAY_LEN(legs); i++) {
		directory__leaf__init(&leaf[i]);
		directory__tree_node__init(&legs[i]);
		leaf[i].cid = leaf[i].disk = leaf[i].node = id;
		legs[i].leaf = &leaf[i];
		children[i] = &legs[i];
	}
	owner.node = o.oid = id;
	o.owner = &owner;
	o.tree = &root;
	return &o;
}

int __wrap_dom_strays(struct dom *dom, struct dom_strays *req, dom_strays_cb cb)
{
	req->cb = cb;
	is.strays = req;
	return 0;
}

int __wrap_dom_drop(struct dom *dom, struct dom_drop *req, dom_drop_cb cb)
{
	req->cb = cb;
	is.drop = req;
	return 0;
}

unsigned __wrap_shards_count(const struct shards *shards)
{
	return 1;
}

/* The directory takes what is proposed. */
void __wrap_admin__change(struct admin_req *r,
			  int (*build)(struct admin_req *r,
				       struct cmmds_command *cmd),
			  void (*applied)(struct admin_req *r))
{
	applied(r);
}

static void tree_check(const Admin__ObjectNode *n)
{
	is.nodes++;
	CHECK_STR(n->type, n->n_children > 0 ? "concat" : "component");
	if (n->n_children == 0)
		CHECK_STR(n->disk_path, "(gone)");
	for (size_t i = 0; i < n->n_children; i++)
		tree_check(n->children[i]);
}

void __wrap_admin__reply(struct admin_req *r, Admin__Response *response)
{
	CHECK(!is.done);
	is.done = true;
	is.status = response->status;
	switch (response->result_case) {
	case ADMIN__RESPONSE__RESULT_OBJECT:
		tree_check(response->object->tree);
		break;
	case ADMIN__RESPONSE__RESULT_OK:
		snprintf(is.what, sizeof(is.what), "%s", response->ok->what);
		is.notes = (unsigned)response->ok->n_notes;
		snprintf(is.note, sizeof(is.note), "%s",
			 response->ok->notes[0]);
		break;
	default:
		break;
	}
}

void __wrap_admin__reply_packed(struct admin_req *r, int result, uint8_t *bytes,
				size_t len)
{
	Admin__Strays *strays;

	CHECK(!is.done);
	is.done = true;
	CHECK_EQ(result, ADMIN__RESPONSE__RESULT_STRAYS);
	strays = admin__strays__unpack(NULL, len, bytes);
	CHECK(strays != NULL);
	is.components = (unsigned)strays->n_components;
	is.away = (unsigned)strays->n_away;
	CHECK_STR(strays->away[1], "/dev/sdb");
	for (unsigned i = 1; i < is.components; i++)
		CHECK(strcmp(strays->components[i - 1]->component,
			     strays->components[i]->component) < 0);
	admin__strays__free_unpacked(strays, NULL);
	free(bytes);
}

void __wrap_node__parts_start(struct node *n, struct node_parts *parts)
{
	do
		is.parts++;
	while (parts->part(parts, NODE_PART));
}

/* ---- each command, with the Nth allocation failing; 0: none ---- */

static struct admin_req begin(Admin__Request *msg, unsigned fail)
{
	memset(&is, 0, sizeof(is));
	memset(&node, 0, sizeof(node));
	node.config = &config;
	node.state = NODE_UP;
	TAILQ_INIT(&node.disks);
	fail_at = fail;
	return (struct admin_req){ .node = &node,
				   .msg = msg,
				   .conn = (void *)&node };
}

/* Did that one fail? */
static bool end(struct admin_req *r)
{
	bool failed = fail_at == 0;

	CHECK(is.done);
	fail_at = 0;
	if (r->over != NULL)
		r->over(r);
	free(r->ctx);
	return failed;
}

static bool show(unsigned fail)
{
	Admin__Name name = ADMIN__NAME__INIT;
	Admin__Request msg = ADMIN__REQUEST__INIT;
	struct admin_req r = begin(&msg, fail);

	name.name = "v";
	msg.object_show = &name;
	admin__object_show(&r);
	return end(&r) && fail > 0;
}

/* Where dom comes to list: @count that the directory does not know. */
static void strays_answer(unsigned count)
{
	is.strays->items = __real_calloc(count, sizeof(*is.strays->items));
	for (unsigned i = 0; i < count; i++) {
		is.strays->items[i].oid = (struct uuid){ { 8 } };
		put_be32(is.strays->items[i].cid.b, count - i);
	}
	is.strays->count = count;
	is.strays->cb(is.strays, 0);
}

static bool list(unsigned count, unsigned fail)
{
	Admin__Request msg = ADMIN__REQUEST__INIT;
	struct admin_req r = begin(&msg, fail);

	admin__object_list(&r);
	if (is.strays != NULL)
		strays_answer(count);
	return end(&r) && fail > 0;
}

static bool drop(unsigned fail)
{
	Admin__Name name = ADMIN__NAME__INIT;
	Admin__Request msg = ADMIN__REQUEST__INIT;
	struct admin_req r = begin(&msg, fail);

	name.name = "08000000-0000-0000-0000-000000000000";
	name.force = true;
	msg.object_drop = &name;
	admin__object_drop(&r);
	if (is.strays != NULL)
		strays_answer(1);
	if (is.drop != NULL) {
		is.drop->dropped = 1;
		is.drop->cb(is.drop, 0);
	}
	return end(&r) && fail > 0;
}

TEST(node_object, shown_whole_or_refused)
{
	unsigned n;

	show(0);
	CHECK_EQ(is.status, 0);
	CHECK_EQ(is.nodes, 3);
	for (n = 1; show(n); n++)
		CHECK_EQ(is.status, -ENOMEM);
	CHECK(n > 14); /* each node and each word of it */
}

TEST(node_object, unknown_ones_are_listed_or_refused)
{
	unsigned n;

	list(1, 0);
	CHECK_EQ(is.status, 0);
	CHECK_EQ(is.components, 1);
	CHECK_EQ(is.away, 2);
	for (n = 1; list(1, n); n++)
		CHECK_EQ(is.status, -ENOMEM);
	CHECK_EQ(n, 4); /* the request, a line, one that is away */
}

/* Of a directory that is lost there are as many as there were. */
TEST(node_object, many_unknown_ones_are_listed_in_parts)
{
	const unsigned count = 3 * NODE_PART - 1;

	list(count, 0);
	CHECK_EQ(is.status, 0);
	CHECK_EQ(is.components, count);
	CHECK_EQ(is.away, 2);
	CHECK_EQ(is.parts, 3);
}

/* What is deleted is told so, and that disks are away, in brief if need be. */
TEST(node_object, what_is_dropped_is_told)
{
	unsigned n, refused = 0;

	drop(0);
	CHECK_EQ(is.notes, 2);
	CHECK(strstr(is.note, "disk /dev/sda is not in service"));
	for (n = 1; drop(n); n++) {
		if (is.drop == NULL) {
			CHECK_EQ(is.status, -ENOMEM);
			refused++;
			continue;
		}
		CHECK_EQ(is.status, 0);
		CHECK(strstr(is.what, "dropped: 1 component deleted"));
		CHECK_EQ(is.notes, 1);
		CHECK(strstr(is.note, "not all disks are in service"));
	}
	CHECK_EQ(refused, 1);
	CHECK_EQ(n, 5);
}
