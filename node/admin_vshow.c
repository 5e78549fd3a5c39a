/*
 * admin_vshow: virtual disks as people look at them: space, compliance, health,
 * where they are exported, and lines ready to paste.
 *
 * Space comes from each object, which is opened for that, some at a time; a list
 * of very many answers with what is known after a while rather than late.
 */
#include "base/util.h"
#include "node/admin_int.h"

#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define ASK_NS (5 * SEC)
#define ASKS_MAX 8u /* at a time */

struct show_ctx;

struct shown {
	struct show_ctx *ctx;
	char name[CMMDS_KEY_MAX + 1];
	struct uuid oid;
	bool known;
	struct object_space space;
};

struct show_ctx {
	struct admin_req *r;
	bool details;
	uint64_t end_ns;
	struct node_parts parts;
	struct node_walk walk;
	struct shown *items; /* by name */
	size_t count, room, at;
	unsigned asks; /* under way */
	bool no_memory;
	struct admin_list list;
	struct admin_index index;
};

/* ---- one virtual disk ---- */

struct vdisk_texts {
	Admin__Space space;
	char object[UUID_TEXT_LEN], compliance[200];
};

static void vdisk_fill(struct admin_index *index, const struct shown *item,
		       const Directory__VDisk *v, Admin__Vdisk *out,
		       struct vdisk_texts *t)
{
	struct node *node = index->node;
	const Directory__Object *o = admin__object(node, &v->oid);

	admin__vdisk__init(out);
	admin__space__init(&t->space);
	uuid_format(&item->oid, t->object);
	out->name = v->name;
	out->object = t->object;
	out->size_bytes = v->size_bytes;
	out->block_bytes = v->block_bytes;
	out->policy = v->policy;
	out->created_wall_ns = v->created_wall_ns;
	out->space = &t->space;
	out->space_known = item->known;
	out->used_exact = item->space.exact;
	t->space.used_bytes = item->space.used_bytes;
	t->space.free_bytes = item->space.free_bytes;
	t->space.kept_bytes = item->space.kept_bytes;
	out->health = "unavailable";
	strcpy(t->compliance, "its object is missing");
	if (o != NULL) {
		t->space.raw_bytes = node__tree_raw(o->tree);
		t->space.reserved_bytes = o->reserved_bytes;
		out->compliant = node__object_compliant(node, o, t->compliance,
							sizeof(t->compliance));
		if (out->compliant)
			strcpy(t->compliance, "compliant");
		out->health = (char *)node__object_health_name(
			node__object_health(node, o));
	}
	out->compliance = t->compliance;
	out->n_luns = admin__index_exports(index, v->name, &out->luns);
	out->sessions = admin__index_used(index, v->name);
}

/* Both are in order, and what came meanwhile is not told of. */
static const struct shown *item_next(struct show_ctx *ctx, const char *name)
{
	int c = -1;

	while (ctx->at < ctx->count &&
	       (c = strcmp(ctx->items[ctx->at].name, name)) < 0)
		ctx->at++;
	return c == 0 ? &ctx->items[ctx->at] : NULL;
}

static bool on_vdisk(struct admin_list *list, const struct cmmds_entry *e)
{
	struct show_ctx *ctx = container_of(list, struct show_ctx, list);
	const Directory__VDisk *v = (const Directory__VDisk *)e->message;
	const struct shown *item = item_next(ctx, v->name);
	Admin__Vdisks vdisks = ADMIN__VDISKS__INIT;
	struct vdisk_texts texts;
	Admin__Vdisk out, *one = &out;

	if (item == NULL)
		return true;
	vdisk_fill(&ctx->index, item, v, &out, &texts);
	vdisks.vdisks = &one;
	vdisks.n_vdisks = 1;
	admin__list_add(list, &vdisks.base);
	admin__luns_free(out.luns, out.n_luns);
	if (ctx->index.no_memory)
		list->status = -ENOMEM;
	return true;
}

static void list_reply(struct show_ctx *ctx)
{
	ctx->list.kind = CMMDS_VDISK;
	ctx->list.result = ADMIN__RESPONSE__RESULT_VDISKS;
	ctx->list.each = on_vdisk;
	ctx->at = 0;
	admin__index_open(&ctx->index, ctx->r->node);
	admin__list(ctx->r, &ctx->list);
}

/* ---- lines to paste ---- */

#define COMMANDS_MAX 8u

struct commands {
	Admin__Command items[COMMANDS_MAX];
	Admin__Command *list[COMMANDS_MAX];
	char texts[COMMANDS_MAX][2400];
	size_t count;
};

__attribute__((format(printf, 3, 4))) static void
command_add(struct commands *c, const char *use, const char *fmt, ...)
{
	va_list ap;

	assert(c->count < COMMANDS_MAX);
	va_start(ap, fmt);
	vsnprintf(c->texts[c->count], sizeof(c->texts[0]), fmt, ap);
	va_end(ap);
	admin__command__init(&c->items[c->count]);
	c->items[c->count].use = (char *)use;
	c->items[c->count].text = c->texts[c->count];
	c->list[c->count] = &c->items[c->count];
	c->count++;
}

#define QUOTED_MAX 512u /* of a user's 64 characters, however many for each */

/* @text with @to in place of each @from. */
static char *replaced(const char *text, char from, const char *to,
		      char out[QUOTED_MAX])
{
	size_t n = 0, step = strlen(to);

	for (; *text != '\0' && n + step < QUOTED_MAX; text++) {
		if (*text != from) {
			out[n++] = *text;
			continue;
		}
		memcpy(out + n, to, step);
		n += step;
	}
	out[n] = '\0';
	return out;
}

/* @text as a shell takes it: in quotes where it is more than a plain word. */
static const char *shell_word(const char *text, char out[QUOTED_MAX])
{
	char inner[QUOTED_MAX];

	if (node__is_plain(text))
		return text;
	snprintf(out, QUOTED_MAX, "'%.*s'", (int)QUOTED_MAX - 3,
		 replaced(text, '\'', "'\\''", inner));
	return out;
}

static void iscsiadm_lines(struct commands *c, const Directory__Target *t,
			   const char *portal)
{
	char chap[1400] = "", user[QUOTED_MAX];

	if (t->chap_user[0] != '\0')
		snprintf(chap, sizeof(chap),
			 "iscsiadm -m node -T %s -p %s -o update -n "
			 "node.session.auth.authmethod -v CHAP\n"
			 "iscsiadm -m node -T %s -p %s -o update -n "
			 "node.session.auth.username -v %s\n"
			 "# node.session.auth.password: put the secret in the "
			 "node's record file, not on a command line\n",
			 t->iqn, portal, t->iqn, portal,
			 shell_word(t->chap_user, user));
	command_add(c, "Linux (open-iscsi), as root",
		    "iscsiadm -m discovery -t sendtargets -p %s\n%s"
		    "iscsiadm -m node -T %s -p %s --login",
		    portal, chap, t->iqn, portal);
}

/*
 * QEMU's names begin with a letter, and a node's has 31 characters at most.  What is
 * read-only it opens as such only.
 */
static void qemu_lines(struct commands *c, const Directory__Target *t,
		       const char *portal, const Admin__Lun *lun,
		       const char *object)
{
	char user[QUOTED_MAX], word[QUOTED_MAX];

	if (t->chap_user[0] == '\0') {
		command_add(c, "QEMU",
			    "-drive file=iscsi://%s/%s/%u,format=raw,if=virtio,"
			    "cache=none,discard=unmap%s",
			    portal, t->iqn, lun->lun,
			    lun->read_only ? ",readonly=on" : "");
		return;
	}
	command_add(c, "QEMU",
		    "-object secret,id=basalt-%.8s-chap,file=SECRETFILE\n"
		    "-blockdev driver=iscsi,node-name=basalt-%.8s,"
		    "transport=tcp,portal=%s,target=%s,lun=%u,user=%s,"
		    "password-secret=basalt-%.8s-chap,discard=unmap%s\n"
		    "-device virtio-blk-pci,drive=basalt-%.8s",
		    object, object, portal, t->iqn, lun->lun,
		    shell_word(replaced(t->chap_user, ',', ",,", user), word),
		    object, lun->read_only ? ",read-only=on" : "", object);
}

static void libvirt_lines(struct commands *c, const Directory__Target *t,
			  const char *portal, const Admin__Lun *lun)
{
	char host[64], auth[700] = "", a[QUOTED_MAX], b[QUOTED_MAX];
	const char *port = strrchr(portal, ':'), *start = portal;
	size_t len = (size_t)(port - portal);

	if (portal[0] == '[') {
		start++;
		len -= 2;
	}
	snprintf(host, sizeof(host), "%.*s", (int)len, start);
	replaced(t->chap_user, '&', "&amp;", a);
	replaced(a, '<', "&lt;", b);
	replaced(b, '\'', "&apos;", a);
	if (t->chap_user[0] != '\0')
		snprintf(auth, sizeof(auth),
			 "    <auth username='%s'><secret type='iscsi' "
			 "usage='%.63s'/></auth>\n",
			 a, t->name);
	command_add(c, "libvirt",
		    "<disk type='network' device='disk'>\n"
		    "  <driver name='qemu' type='raw' cache='none' "
		    "discard='unmap'/>\n"
		    "  <source protocol='iscsi' name='%s/%u'>\n"
		    "    <host name='%s' port='%s'/>\n%s"
		    "  </source>\n"
		    "  <target dev='vda' bus='virtio'/>\n%s"
		    "</disk>",
		    t->iqn, lun->lun, host, port + 1, auth,
		    lun->read_only ? "  <readonly/>\n" : "");
}

/* A target's name has fewer letters than a virtual disk's. */
static void target_name(const char *vdisk, char out[CMMDS_KEY_MAX + 1])
{
	size_t i;

	for (i = 0; vdisk[i] != '\0' && i < CMMDS_KEY_MAX; i++)
		out[i] = vdisk[i] == '_'
				 ? '-'
				 : (char)tolower((unsigned char)vdisk[i]);
	out[i] = '\0';
}

/*
 * A portal as another host names it that serves TCP.  The zone of a link-local address
 * is this machine's: one without is better, and the other's interface is left open.
 */
static bool portal_find(struct node *node, char out[ADDRESS_TEXT])
{
	char portals[CONFIG_PORTALS_MAX][ADDRESS_TEXT];
	size_t count = admin__portals(node, true, portals, ARRAY_LEN(portals));
	size_t i = 0;

	if (count == 0)
		return false;
	while (i < count && strchr(portals[i], '%') != NULL)
		i++;
	if (i < count)
		strcpy(out, portals[i]);
	else
		snprintf(out, ADDRESS_TEXT, "%.*s%%INTERFACE%s",
			 (int)strcspn(portals[0], "%"), portals[0],
			 strchr(portals[0], ']'));
	return true;
}

static void commands_fill(struct node *node, const Admin__Vdisk *v,
			  struct commands *c)
{
	char portal[ADDRESS_TEXT], name[CMMDS_KEY_MAX + 1], user[QUOTED_MAX];
	const Directory__Target *t = NULL;
	const Admin__Lun *lun = v->n_luns > 0 ? v->luns[0] : NULL;

	if (lun != NULL)
		t = cmmds_target(node->cmmds, lun->target);
	if (t == NULL) {
		target_name(v->name, name);
		command_add(c, "Export it",
			    "basalt target create %s --allow IQN\n"
			    "basalt lun add %s %s",
			    name, name, v->name);
		return;
	}
	/* What follows logs in by TCP. */
	if (!portal_find(node, portal)) {
		command_add(c, "No portal serves TCP now; this says why",
			    "basalt portal list");
		return;
	}
	if (t->n_allow == 0 && t->chap_user[0] == '\0')
		command_add(c, "Admit an initiator first",
			    "basalt target set %s --allow IQN", t->name);
	iscsiadm_lines(c, t, portal);
	qemu_lines(c, t, portal, lun, v->object);
	libvirt_lines(c, t, portal, lun);
	command_add(c, "libiscsi", "iscsi-inq iscsi://%s%s%s/%s/%u",
		    shell_word(t->chap_user, user),
		    t->chap_user[0] ? "%SECRET@" : "", portal, t->iqn,
		    lun->lun);
}

static void details_reply(struct show_ctx *ctx)
{
	struct admin_req *r = ctx->r;
	const char *name = ctx->items[0].name;
	Admin__Response response = ADMIN__RESPONSE__INIT;
	Admin__VdiskDetails details = ADMIN__VDISK_DETAILS__INIT;
	const Directory__VDisk *v = cmmds_vdisk(r->node->cmmds, name);
	struct commands *c;
	struct vdisk_texts texts;
	Admin__Vdisk out;

	if (v == NULL) {
		admin__why(r, -ENOENT, "basalt vdisk list shows them.",
			   "virtual disk %s was deleted meanwhile", name);
		admin__refuse(r);
		return;
	}
	c = calloc(1, sizeof(*c));
	if (c == NULL) {
		admin__no_memory(r);
		return;
	}
	admin__index_open(&ctx->index, r->node);
	vdisk_fill(&ctx->index, &ctx->items[0], v, &out, &texts);
	commands_fill(r->node, &out, c);
	details.vdisk = &out;
	details.commands = c->list;
	details.n_commands = c->count;
	response.result_case = ADMIN__RESPONSE__RESULT_VDISK;
	response.vdisk = &details;
	if (ctx->index.no_memory)
		admin__no_memory(r);
	else
		admin__reply(r, &response);
	admin__luns_free(out.luns, out.n_luns);
	free(c);
}

/* ---- asking for space ---- */

static void asks_start(struct show_ctx *ctx);

static void on_space(void *arg, int status, const struct object_space *space)
{
	struct shown *item = arg;

	item->known = status == 0;
	item->space = *space;
	item->ctx->asks--;
	asks_start(item->ctx);
}

/* Ask for more, until all is there or the time is over. */
static void asks_start(struct show_ctx *ctx)
{
	struct admin_req *r = ctx->r;
	bool over = r->node->state != NODE_UP ||
		    env_now(r->node->env) >= ctx->end_ns;

	while (!over && ctx->at < ctx->count && ctx->asks < ASKS_MAX) {
		struct shown *item = &ctx->items[ctx->at++];

		/* Without memory its space is not known. */
		if (admin__space_ask(r->node, &item->oid, on_space, item) == 0)
			ctx->asks++;
	}
	if (ctx->asks > 0)
		return;
	if (r->node->state != NODE_UP)
		admin__stopping(r);
	else if (ctx->details)
		details_reply(ctx);
	else
		list_reply(ctx);
}

static bool item_room(struct show_ctx *ctx)
{
	size_t room = 2 * ctx->room + 1;
	struct shown *more;

	if (ctx->count < ctx->room)
		return true;
	more = realloc(ctx->items, room * sizeof(*more));
	if (more == NULL)
		return false;
	ctx->items = more;
	ctx->room = room;
	return true;
}

/* False: no memory. */
static bool item_add(const struct cmmds_entry *e, void *arg)
{
	const Directory__VDisk *v = (const Directory__VDisk *)e->message;
	struct show_ctx *ctx = arg;
	struct shown *item;

	if (v->oid.len != sizeof(item->oid))
		return true;
	ctx->no_memory = !item_room(ctx);
	if (ctx->no_memory)
		return false;
	item = &ctx->items[ctx->count++];
	memset(item, 0, sizeof(*item));
	item->ctx = ctx;
	snprintf(item->name, sizeof(item->name), "%s", v->name);
	memcpy(item->oid.b, v->oid.data, sizeof(item->oid));
	return true;
}

static bool items_part(struct node_parts *parts, unsigned max)
{
	struct show_ctx *ctx = container_of(parts, struct show_ctx, parts);

	if (node__walk(ctx->r->node, &ctx->walk, CMMDS_VDISK, max, item_add,
		       ctx) > 0)
		return true;
	if (ctx->no_memory)
		admin__no_memory(ctx->r);
	else
		asks_start(ctx);
	return false;
}

static void show_over(struct admin_req *r)
{
	struct show_ctx *ctx = r->ctx;

	admin__index_close(&ctx->index);
	free(ctx->items);
}

static struct show_ctx *ctx_open(struct admin_req *r)
{
	struct show_ctx *ctx = r->ctx = calloc(1, sizeof(*ctx));

	if (ctx == NULL) {
		admin__no_memory(r);
		return NULL;
	}
	r->over = show_over;
	ctx->r = r;
	ctx->end_ns = env_now(r->node->env) + ASK_NS;
	return ctx;
}

void admin__vdisk_list(struct admin_req *r)
{
	struct show_ctx *ctx = ctx_open(r);

	if (ctx == NULL)
		return;
	ctx->parts.part = items_part;
	node__parts_start(r->node, &ctx->parts);
}

void admin__vdisk_show(struct admin_req *r)
{
	const char *name = r->msg->vdisk_show->name;
	const struct cmmds_entry *e =
		cmmds_get(r->node->cmmds, CMMDS_VDISK, name, strlen(name));
	struct show_ctx *ctx;

	if (e == NULL) {
		admin__why(r, -ENOENT, "basalt vdisk list shows them.",
			   "there is no virtual disk %.80s", name);
		admin__refuse(r);
		return;
	}
	ctx = ctx_open(r);
	if (ctx == NULL)
		return;
	ctx->details = true;
	if (item_add(e, ctx))
		asks_start(ctx);
	else
		admin__no_memory(r);
}
