/* admin_disk: disks are shown and given back. */
#define LOG_ROOM LOG_NODE
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "node/admin_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

/* ---- finding ---- */

static const struct cmmds_entry *disk_entry(struct node *node,
					    const struct uuid *id)
{
	return cmmds_get(node->cmmds, CMMDS_DISK, id->b, sizeof(id->b));
}

bool admin__disk_half_removed(const struct node_disk *d)
{
	const struct cmmds_entry *e = disk_entry(d->node, &d->id);

	return e != NULL && !d->leaving &&
	       ((const Directory__Disk *)e->message)->removing;
}

bool admin__disk_pending(const struct node_disk *d)
{
	return d->state == NODE_DISK_ONLINE && !d->leaving &&
	       disk_entry(d->node, &d->id) == NULL;
}

#define ID_LEAST 4u /* characters of it */

static bool is_named(const char *path, const char *id, const char *name,
		     size_t len)
{
	return strcmp(path, name) == 0 ||
	       (len >= ID_LEAST && strncasecmp(id, name, len) == 0);
}

static const char *node_name(struct node *node, const ProtobufCBinaryData *id,
			     char text[UUID_TEXT_LEN])
{
	const struct cmmds_entry *e =
		cmmds_get(node->cmmds, CMMDS_NODE, id->data, id->len);
	struct uuid uuid = { { 0 } };

	if (e != NULL)
		return ((const Directory__Node *)e->message)->name;
	memcpy(uuid.b, id->data, MIN(id->len, sizeof(uuid)));
	uuid_format(&uuid, text);
	return text;
}

/* The node whose disk @name is, if the directory has it as another's. */
static const char *other_node(struct node *node, const char *name, size_t len,
			      char text[UUID_TEXT_LEN])
{
	const struct cmmds_entry *e = NULL;

	while ((e = cmmds_next(node->cmmds, CMMDS_DISK, e)) != NULL) {
		const Directory__Disk *m = (const Directory__Disk *)e->message;
		struct uuid uuid = { { 0 } };
		char id[UUID_TEXT_LEN];

		memcpy(uuid.b, m->uuid.data, MIN(m->uuid.len, sizeof(uuid)));
		uuid_format(&uuid, id);
		if (is_named(m->path, id, name, len) &&
		    node__disk_find(node, &uuid) == NULL)
			return node_name(node, &m->node, text);
	}
	return NULL;
}

struct node_disk *admin__disk_named(struct admin_req *r, const char *name)
{
	char id[UUID_TEXT_LEN], other_id[UUID_TEXT_LEN];
	struct node_disk *d, *hit = NULL;
	const char *other;
	size_t len = strlen(name);

	TAILQ_FOREACH (d, &r->node->disks, link) {
		uuid_format(&d->id, id);
		if (!is_named(d->path, id, name, len))
			continue;
		/* A path, too: of one that is gone, and of who has it now. */
		if (hit != NULL) {
			admin__why(r, -EINVAL, "Give its id, or more of it.",
				   "disk %.80s: more than one is meant", name);
			return NULL;
		}
		hit = d;
	}
	other = hit == NULL ? other_node(r->node, name, len, other_id) : NULL;
	if (other != NULL)
		admin__why(r, -ENOENT, "Give the command on that node.",
			   "disk %.80s is of node %.64s", name, other);
	else if (hit == NULL)
		admin__why(r, -ENOENT,
			   len < ID_LEAST
				   ? "basalt disk list shows them; of an "
				     "id give four characters or more."
				   : "basalt disk list shows them.",
			   "node %s has no disk %.80s", r->node->config->name,
			   name);
	return hit;
}

/* ---- remove ---- */

struct disk_remove {
	struct uuid id;
	bool marked; /* what was proposed last */
	char path[256], index_path[300];
	struct env_timer late;
	struct env_work work;
	struct admin_req *r;
};

/* What has a part of it on a disk. */
struct on_disk {
	unsigned count, named; /* objects, and their virtual disks below */
	char names[200];
};

/* The lists do not tell what lies where: those that there is room for are named. */
static void on_disk_name(struct on_disk *on, const Directory__VDisk *v)
{
	size_t len = strlen(on->names);

	if (len + strlen(v->name) + sizeof(", ") > sizeof(on->names))
		return;
	snprintf(on->names + len, sizeof(on->names) - len, "%s%s",
		 on->named > 0 ? ", " : "", v->name);
	on->named++;
}

static void objects_on(struct node *node, const struct uuid *disk,
		       struct on_disk *on)
{
	const struct cmmds_entry *e = NULL, *v;
	struct uuid oid;

	*on = (struct on_disk){ 0 };
	while ((e = cmmds_next(node->cmmds, CMMDS_OBJECT, e)) != NULL) {
		const Directory__Object *o =
			(const Directory__Object *)e->message;

		if (o->deleted || o->oid.len != sizeof(oid) ||
		    !node__tree_uses(o->tree, disk))
			continue;
		on->count++;
		memcpy(oid.b, o->oid.data, sizeof(oid.b));
		v = node__vdisk_of(node, &oid);
		if (v != NULL)
			on_disk_name(on, (const Directory__VDisk *)v->message);
	}
}

static int remove_refused(struct admin_req *r, const struct on_disk *on)
{
	const struct disk_remove *ctx = r->ctx;
	char others[32] = "";

	if (on->named < on->count)
		snprintf(others, sizeof(others), "%s%u more",
			 on->named > 0 ? " and " : "", on->count - on->named);
	return admin__why(r, -EBUSY,
			  "Delete them first (basalt object show VDISK tells "
			  "where one lies), or lose them with --force.",
			  "disk %s holds data of %u virtual disk%s: %s%s",
			  ctx->path, on->count, on->count == 1 ? "" : "s",
			  on->names, others);
}

/* The directory lets a disk with components go in two steps only. */
static void mark_removing(struct admin_req *r, struct cmmds_command *cmd,
			  const struct cmmds_entry *e)
{
	struct disk_remove *ctx = r->ctx;
	Directory__Disk m = *(const Directory__Disk *)e->message;

	m.removing = true;
	ctx->marked = true;
	cmmds_put(cmd, CMMDS_DISK, ctx->id.b, sizeof(ctx->id.b), e->revision,
		  &m.base);
	cmmds_audit(cmd, r->who, "disk %s of node %s given up with its data",
		    ctx->path, r->node->config->name);
}

static int remove_build(struct admin_req *r, struct cmmds_command *cmd)
{
	struct disk_remove *ctx = r->ctx;
	const struct cmmds_entry *e = disk_entry(r->node, &ctx->id);
	struct on_disk on;

	objects_on(r->node, &ctx->id, &on);
	ctx->marked = false;
	if (e == NULL)
		return admin__why(r, -ENOENT,
				  "basalt disk list tells what it waits for.",
				  "disk %s is not in the directory", ctx->path);
	if (on.count > 0 && !r->msg->disk_remove->force)
		return remove_refused(r, &on);
	if (on.count > 0 && !((const Directory__Disk *)e->message)->removing) {
		mark_removing(r, cmd, e);
		return 0;
	}
	cmmds_erase(cmd, CMMDS_DISK, ctx->id.b, sizeof(ctx->id.b), e->revision);
	cmmds_audit(cmd, r->who, "disk %s removed from node %s%s", ctx->path,
		    r->node->config->name, on.count > 0 ? " by force" : "");
	return 0;
}

static void index_work(struct env_work *work)
{
	struct disk_remove *ctx = container_of(work, struct disk_remove, work);

	node__tree_remove(ctx->index_path);
}

static void remove_done(struct disk_remove *ctx)
{
	admin__ok(ctx->r,
		  "disk %s removed; what is on it is still there, and adding "
		  "it again takes --force-erase",
		  ctx->path);
}

static void index_done(struct env_work *work)
{
	remove_done(container_of(work, struct disk_remove, work));
}

/* Done it is, however it ended. */
static void remove_closed(struct node_disk *d, int status, void *arg)
{
	struct admin_req *r = arg;
	struct disk_remove *ctx = r->ctx;

	env_timer_stop(r->node->env, &ctx->late);
	/* The next start finds the index and sweeps it away. */
	if (r->node->state != NODE_UP) {
		remove_done(ctx);
		return;
	}
	ctx->work.work = index_work;
	ctx->work.done = index_done;
	env_work(r->node->env, NULL, &ctx->work);
}

/*
 * It hangs, or what is under way takes long.  The directory forgot it, so it will
 * not be opened again.
 */
static void remove_late(struct env_timer *timer)
{
	struct disk_remove *ctx = container_of(timer, struct disk_remove, late);
	struct node_disk *d = node__disk_find(ctx->r->node, &ctx->id);

	assert(d != NULL && d->done == remove_closed);
	d->done = NULL;
	if (d->state == NODE_DISK_OPENING &&
	    node__disk_silent_ns(d) < LSOM_SILENT_NS)
		admin__ok(ctx->r,
			  "disk %s removed; its opening goes on, and it is let "
			  "go when that ends, or when basaltd ends",
			  ctx->path);
	else
		admin__ok(ctx->r,
			  "disk %s removed; it does not answer, and is let go "
			  "when it does, or when basaltd ends",
			  ctx->path);
}

/* The directory forgot it; the subscription may have begun to close it. */
static void remove_applied(struct admin_req *r)
{
	struct disk_remove *ctx = r->ctx;
	struct node_disk *d = node__disk_find(r->node, &ctx->id);

	if (ctx->marked) {
		admin__change(r, remove_build, remove_applied);
		return;
	}
	if (d == NULL || node__disk_leave(d, remove_closed, r) < 0) {
		remove_closed(d, 0, r);
		return;
	}
	ctx->late.cb = remove_late;
	env_timer_start(r->node->env, &ctx->late, ADMIN__HANGS_NS);
}

static void remove_failed(struct admin_req *r)
{
	struct disk_remove *ctx = r->ctx;
	struct node_disk *d = node__disk_find(r->node, &ctx->id);

	if (d != NULL)
		d->leaving = false;
	admin__refuse(r);
}

/* From the proposal on nobody else may open or close the disk. */
int admin__disk_leaving(struct admin_req *r, const struct node_disk *d)
{
	if (d->erase)
		return admin__why(r, -EBUSY,
				  "It has to answer first, or the kernel to "
				  "give it up; so does the end of basaltd.",
				  "disk %s was removed, and is not let go yet",
				  d->path);
	if (!d->leaving)
		return 0;
	return admin__why(r, -EBUSY,
			  "basalt disk list shows it until it is gone.",
			  "disk %s is being removed", d->path);
}

/* What opens or closes it is waited for, unless it hangs. */
static bool under_way_hangs(struct node_disk *d)
{
	return node__disk_silent_ns(d) >= LSOM_SILENT_NS ||
	       (d->state == NODE_DISK_CLOSING &&
		env_now(d->node->env) - d->closing_ns >= ADMIN__HANGS_NS);
}

void admin__disk_remove(struct admin_req *r)
{
	struct node_disk *d = admin__disk_named(r, r->msg->disk_remove->disk);
	struct disk_remove *ctx;

	if (d != NULL && admin__disk_leaving(r, d) == 0 &&
	    (d->state == NODE_DISK_OPENING || d->state == NODE_DISK_CLOSING) &&
	    (disk_entry(r->node, &d->id) == NULL || !under_way_hangs(d)))
		admin__why(r, -EBUSY, "Try again in a moment.",
			   "disk %s is being %s", d->path,
			   d->state == NODE_DISK_OPENING ? "opened" : "closed");
	if (r->status < 0) {
		admin__refuse(r);
		return;
	}
	assert(d != NULL); /* or it was refused */
	ctx = calloc(1, sizeof(*ctx));
	if (ctx == NULL) {
		admin__no_memory(r);
		return;
	}
	r->ctx = ctx;
	ctx->r = r;
	ctx->id = d->id;
	strcpy(ctx->path, d->path);
	strcpy(ctx->index_path, d->index_path);
	d->leaving = true;
	r->failed = remove_failed;
	admin__change(r, remove_build, remove_applied);
}

/* ---- list ---- */

struct disk_texts {
	Admin__Space space;
	char id[UUID_TEXT_LEN], node[UUID_TEXT_LEN], fix[400], media[96];
	char silent[NODE_SILENT_MAX], wants[NODE_WANTS_MAX], scrubbed[200];
	struct admin_bad_blocks bad;
	struct lsom_disk_info info;
};

static void disk_init(const struct uuid *id, Admin__DiskInfo *out,
		      struct disk_texts *t)
{
	admin__disk_info__init(out);
	admin__space__init(&t->space);
	uuid_format(id, t->id);
	out->id = t->id;
	out->space = &t->space;
	out->fix = t->fix;
	out->health = "info";
}

static void disk_live(struct node_disk *d, Admin__DiskInfo *out,
		      struct disk_texts *t)
{
	static const char *const states[] = { "opening", "online", "full",
					      "failed" };
	struct lsom_disk_info *info = &t->info;
	char word[NODE_DISK_WORD_MAX];
	bool scrubbed_bad;
	unsigned congestion = 0;

	lsom_disk_info(d->disk, info);
	for (unsigned i = 0; i < ARRAY_LEN(info->congestion); i++)
		congestion = MAX(congestion, info->congestion[i]);
	out->state = (char *)states[info->state];
	if (info->media_errors > 0)
		snprintf(t->media, sizeof(t->media),
			 "%llu read%s failed or brought what was not written",
			 (unsigned long long)info->media_errors,
			 info->media_errors == 1 ? "" : "s");
	if (info->silent_ns >= LSOM_SILENT_NS)
		node__silent_tell(d, info->silent_ns, t->silent);
	if (info->index_wants < 0)
		node__index_wants_tell(info->index_wants, t->wants);
	scrubbed_bad = admin__scrub_tell(d, t->scrubbed, sizeof(t->scrubbed));
	out->silent_ms = info->silent_ns / MSEC;
	out->failure = info->state == LSOM_DISK_FAILED ? info->failure
		       : t->silent[0] != '\0'	       ? t->silent
		       : t->wants[0] != '\0'	       ? t->wants
		       : info->damage[0] != '\0'       ? info->damage
		       : scrubbed_bad		       ? t->scrubbed
						       : t->media;
	out->components = info->components;
	out->segments = info->segments;
	out->segments_free = info->segments_free;
	out->segment_bytes = info->segment_bytes;
	out->congestion = congestion;
	out->recovery_ms = info->recovery_ns / MSEC;
	out->log_generation = info->generation;
	out->health = info->state == LSOM_DISK_FAILED || t->silent[0] != '\0' ||
				      info->index_wants < 0
			      ? "bad"
		      : info->state == LSOM_DISK_FULL ||
				      info->damage[0] != '\0' || scrubbed_bad ||
				      info->media_errors > 0 ||
				      info->uncovered_bytes > 0
			      ? "warning"
			      : "ok";
	t->space.raw_bytes = info->raw_bytes;
	t->space.used_bytes = info->used_bytes;
	t->space.reserved_bytes =
		info->raw_bytes - MIN(info->raw_bytes, info->usable_bytes);
	t->space.kept_bytes = info->kept_bytes;
	t->space.free_bytes =
		info->usable_bytes -
		MIN(info->usable_bytes, info->used_bytes + info->kept_bytes);
	if (info->state == LSOM_DISK_FAILED)
		node__disk_failed_fix(d, info, t->fix, sizeof(t->fix));
	else if (t->silent[0] != '\0')
		snprintf(t->fix, sizeof(t->fix), "%s", NODE_SILENT_FIX);
	else if (info->index_wants < 0)
		node__disk_failed_fix(d, info, t->fix, sizeof(t->fix));
	else if (info->state == LSOM_DISK_FULL)
		snprintf(t->fix, sizeof(t->fix),
			 "Add a disk, or delete or unmap data");
	else if (info->uncovered_bytes > 0)
		snprintf(t->fix, sizeof(t->fix), "%s", NODE_UNCOVERED_FIX);
	else if (info->damage[0] != '\0')
		snprintf(t->fix, sizeof(t->fix), "%s", NODE_DAMAGE_FIX);
	else if (scrubbed_bad)
		snprintf(t->fix, sizeof(t->fix), ADMIN_SCRUB_FIX,
			 node__disk_word(d, word));
	else if (info->media_errors > 0)
		snprintf(t->fix, sizeof(t->fix), "%s", NODE_MEDIA_FIX);
}

/* One that is being opened or closed. */
static void disk_under_way(struct node_disk *d, Admin__DiskInfo *out,
			   struct disk_texts *t)
{
	uint64_t silent = node__disk_silent_ns(d);

	if (d->state == NODE_DISK_OPENING)
		out->opening_percent = d->open.percent;
	out->silent_ms = silent / MSEC;
	if (d->erase) {
		node__leaving_tell(d, t->silent);
		out->failure = t->silent;
		return;
	}
	if (silent >= LSOM_SILENT_NS) {
		node__silent_tell(d, silent, t->silent);
		out->failure = t->silent;
		out->health = "bad";
		node__silent_fix(d, t->fix, sizeof(t->fix));
		return;
	}
	/* What was against it before is not known to be so now. */
	if (d->state == NODE_DISK_OPENING && !d->again)
		return;
	out->failure = d->why;
	out->health = "bad";
	if (d->state == NODE_DISK_OPENING)
		snprintf(t->fix, sizeof(t->fix),
			 "Wait: it is just tried again.");
}

/* A disk of this node. */
static void disk_state(struct node_disk *d, Admin__DiskInfo *out,
		       struct disk_texts *t)
{
	static const char *const states[] = { "opening", "online", "failed",
					      "closing", "closed" };

	out->state = (char *)states[d->state];
	out->shard = d->shard;
	admin__scrub_fill(d, out, &t->bad);
	if (d->state == NODE_DISK_ONLINE) {
		disk_live(d, out, t);
		return;
	}
	if (d->state == NODE_DISK_OPENING || d->state == NODE_DISK_CLOSING) {
		disk_under_way(d, out, t);
		return;
	}
	out->failure = d->why;
	out->health = "bad";
	node__disk_fix(d, t->fix, sizeof(t->fix));
}

/* Whatever else there is to say of it: it goes. */
static void disk_half_removed(struct node_disk *d, Admin__DiskInfo *out,
			      struct disk_texts *t)
{
	char word[NODE_DISK_WORD_MAX];

	out->removing = true;
	out->failure = ADMIN_HALF_REMOVED;
	if (strcmp(out->health, "bad") != 0)
		out->health = "warning";
	snprintf(t->fix, sizeof(t->fix), ADMIN_HALF_REMOVED_FIX,
		 node__disk_word(d, word));
}

/* As the directory has it. */
static void disk_fill(struct node *node, const Directory__Disk *m,
		      Admin__DiskInfo *out, struct disk_texts *t)
{
	struct uuid id = { { 0 } };
	struct node_disk *d;

	memcpy(id.b, m->uuid.data, MIN(m->uuid.len, sizeof(id)));
	disk_init(&id, out, t);
	out->node = (char *)node_name(node, &m->node, t->node);
	out->path = node__disk_path(node, m);
	out->serial = m->serial;
	out->model = m->model;
	out->added_wall_ns = m->added_wall_ns;
	t->space.raw_bytes = m->raw_bytes;
	out->state = "unknown";
	d = node__disk_find(node, &id);
	if (d == NULL)
		return;
	disk_state(d, out, t);
	if (admin__disk_half_removed(d))
		disk_half_removed(d, out, t);
}

/* One that the directory does not have: it comes, or it goes. */
static void disk_fill_other(struct node_disk *d, Admin__DiskInfo *out,
			    struct disk_texts *t)
{
	disk_init(&d->id, out, t);
	out->node = (char *)d->node->config->name;
	out->path = d->path;
	disk_state(d, out, t);
	if (d->state == NODE_DISK_ONLINE) {
		out->serial = t->info.dev.serial;
		out->model = t->info.dev.model;
	}
	if (!admin__disk_pending(d) || t->info.state == LSOM_DISK_FAILED)
		return;
	out->state = "adding";
	out->health = "info";
	out->waits_for = "the directory, which has not said yet whether it "
			 "takes it";
	snprintf(t->fix, sizeof(t->fix), "%s", ADMIN_PENDING_FIX);
}

void admin__disk_list(struct admin_req *r)
{
	Admin__Response response = ADMIN__RESPONSE__INIT;
	Admin__DiskInfos disks = ADMIN__DISK_INFOS__INIT;
	const struct cmmds_entry *e = NULL;
	Admin__DiskInfo *out, **list;
	struct disk_texts *texts;
	struct node_disk *d;
	size_t n = 0, room = 1;

	while ((e = cmmds_next(r->node->cmmds, CMMDS_DISK, e)) != NULL)
		room++;
	TAILQ_FOREACH (d, &r->node->disks, link)
		room++;
	out = calloc(room, sizeof(*out));
	list = calloc(room, sizeof(*list));
	texts = calloc(room, sizeof(*texts));
	if (out == NULL || list == NULL || texts == NULL) {
		admin__no_memory(r);
		goto done;
	}
	while ((e = cmmds_next(r->node->cmmds, CMMDS_DISK, e)) != NULL) {
		disk_fill(r->node, (const Directory__Disk *)e->message, &out[n],
			  &texts[n]);
		list[n] = &out[n];
		n++;
	}
	TAILQ_FOREACH (d, &r->node->disks, link) {
		if (disk_entry(r->node, &d->id) != NULL)
			continue;
		disk_fill_other(d, &out[n], &texts[n]);
		list[n] = &out[n];
		n++;
	}
	disks.disks = list;
	disks.n_disks = n;
	response.result_case = ADMIN__RESPONSE__RESULT_DISKS;
	response.disks = &disks;
	admin__reply(r, &response);
done:
	free(out);
	free(list);
	free(texts);
}
