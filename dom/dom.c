/*
 * dom: the room put together: disks as they come and go, what the directory
 * says of objects, opening and closing.
 */
#define LOG_ROOM LOG_DOM
#include "dom/dom_int.h"

#include "base/log.h"
#include "base/stats.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

struct counter dom__reads = { .name = "basalt_dom_reads_total",
			      .help = "read commands" };
struct counter dom__writes = { .name = "basalt_dom_writes_total",
			       .help = "write commands" };
struct counter dom__read_bytes = { .name = "basalt_dom_read_bytes_total",
				   .help = "bytes asked for by reads" };
struct counter dom__write_bytes = { .name = "basalt_dom_write_bytes_total",
				    .help = "bytes brought by writes" };
struct counter dom__unmaps = { .name = "basalt_dom_unmaps_total",
			       .help = "unmap commands" };
struct counter dom__merges = { .name = "basalt_dom_merged_blocks_total",
			       .help = "blocks put together by copying" };
struct counter dom__conflicts = { .name = "basalt_dom_conflicts_total",
				  .help = "commands a reservation refused" };
struct counter dom__timeouts = { .name = "basalt_dom_timeouts_total",
				 .help = "commands past their deadline" };
struct counter dom__takeovers = { .name = "basalt_dom_takeovers_total",
				  .help = "objects taken over" };

struct histogram dom__waits = {
	.name = "basalt_dom_wait_seconds",
	.stage = "object wait",
	.rank = 20,
	.help = "requests until they run: behind overlapping ones, and limits",
};

static void counters_register(void)
{
	struct counter *all[] = { &dom__reads,	    &dom__writes,
				  &dom__read_bytes, &dom__write_bytes,
				  &dom__unmaps,	    &dom__merges,
				  &dom__conflicts,  &dom__timeouts,
				  &dom__takeovers };

	for (size_t i = 0; i < ARRAY_LEN(all); i++)
		counter_register(all[i]);
	histogram_register(&dom__waits);
}

/* ---- disks ---- */

struct dom__disk *dom__disk_find(struct dom *dom, const struct uuid *id)
{
	struct dom__disk *disk;

	TAILQ_FOREACH (disk, &dom->disks, link) {
		if (uuid_equal(&disk->id, id))
			return disk;
	}
	return NULL;
}

bool dom__walk(struct dom *dom, struct dom__walk *walk, unsigned max,
	       void (*cb)(struct lsom_comp *comp, void *arg), void *arg)
{
	struct dom__disk *disk = NULL, *d;
	unsigned number = 0;

	TAILQ_FOREACH (d, &dom->disks, link) {
		if (d->placed->number < walk->number || d->removing ||
		    !d->healthy || (disk != NULL && d->placed->number > number))
			continue;
		disk = d;
		number = d->placed->number;
	}
	if (disk == NULL)
		return false;
	if (number != walk->number)
		walk->place = 0;
	walk->disk = disk;
	walk->place = lsom_comp_some(disk->lsom, walk->place, max, cb, arg);
	walk->number = number + (walk->place == 0);
	return true;
}

/*
 * Under load it moves all the time, and thousands of objects may be open: those
 * that have nothing under way are told behind their next request.
 */
static void congestion_tell(struct dom__disk *disk)
{
	struct dom *dom = disk->dom;
	struct dom__owner *owner;

	dom->congestion_number++;
	TAILQ_FOREACH (owner, &dom->busy, busy_link) {
		owner->congestion_number = dom->congestion_number;
		if (dom__owner_uses_disk(owner, disk))
			dom__owner_event(owner, DOM_CONGESTION);
	}
}

/* What lsom says of it now; usage moves without a word of its own. */
void dom__disk_look(struct dom__disk *disk)
{
	struct lsom_disk_info info;
	struct dom__owner *owner;
	uint8_t congestion = 0, pressed = 0;
	bool low, more;

	lsom_disk_info(disk->lsom, &info);
	for (size_t i = 0; i < ARRAY_LEN(info.congestion); i++) {
		congestion = MAX(congestion, info.congestion[i]);
		if (i != LSOM_CONGESTION_ROOM)
			pressed = MAX(pressed, info.congestion[i]);
	}
	disk->used_bytes = info.used_bytes;
	disk->usable_bytes = info.usable_bytes;
	disk->kept_bytes = info.kept_bytes;
	disk->components = info.components;
	disk->freeing = info.freeing;
	disk->healthy = info.state != LSOM_DISK_FAILED;
	disk->silent = info.silent_ns >= LSOM_SILENT_NS;
	low = info.used_bytes + info.kept_bytes >
	      info.usable_bytes / 100 * (100 - DOM_LOW_SPACE_PERCENT);
	more = low && !disk->low_space;
	disk->low_space = low;
	if (congestion != disk->congestion || pressed != disk->pressed) {
		disk->congestion = congestion;
		disk->pressed = pressed;
		congestion_tell(disk);
	}
	if (!more)
		return;
	TAILQ_FOREACH (owner, &disk->dom->owners, link)
		if (!owner->thick && dom__owner_uses_disk(owner, disk))
			dom__owner_event(owner, DOM_LOW_SPACE);
}

static void disk_changed(struct lsom_disk_watch *watch, struct lsom_disk *lsom)
{
	dom__disk_look(container_of(watch, struct dom__disk, watch));
}

static bool reserves(const struct cmmds_entry *entry)
{
	const Directory__Object *object =
		entry != NULL ? (const void *)entry->message : NULL;

	return object != NULL && object->reserved_bytes > 0;
}

void dom_disk_add(struct dom *dom, struct lsom_disk *lsom)
{
	struct dom__disk *disk = calloc(1, sizeof(*disk));
	const struct cmmds_entry *entry = NULL;
	struct dom__owner *owner;
	struct lsom_disk_info info;

	lsom_disk_info(lsom, &info);
	if (disk != NULL)
		disk->placed = dom__promises_look(dom, &info.disk);
	if (disk == NULL || disk->placed == NULL) {
		log_error("no memory for a disk: it is not used");
		free(disk);
		return;
	}
	disk->dom = dom;
	disk->lsom = lsom;
	disk->id = info.disk;
	disk->shard = info.shard;
	disk->watch.cb = disk_changed;
	TAILQ_INIT(&disk->cms);
	TAILQ_INSERT_TAIL(&dom->disks, disk, link);
	dom->look.afresh = true;
	lsom_disk_watch(lsom, &disk->watch);
	while (dom->reserved_bytes > 0 &&
	       (entry = cmmds_next(dom->cmmds, CMMDS_OBJECT, entry)) != NULL)
		if (reserves(entry))
			dom__space_reserve(dom, (const void *)entry->message,
					   disk);
	dom__disk_look(disk);
	dom__health_look(dom);
	/* Objects that waited for it need not wait for their timer. */
	TAILQ_FOREACH (owner, &dom->owners, link)
		if (owner->state == DOM__DOWN)
			dom__owner_step_late(owner);
	dom__gc_kick(dom);
}

void dom_disk_remove(struct dom *dom, struct lsom_disk *lsom,
		     void (*cb)(void *arg), void *arg)
{
	struct dom__disk *disk;
	struct dom__owner *owner;

	TAILQ_FOREACH (disk, &dom->disks, link) {
		if (disk->lsom == lsom)
			break;
	}
	if (disk == NULL) {
		cb(arg);
		return;
	}
	disk->removing = true;
	disk->removed = cb;
	disk->removed_arg = arg;
	TAILQ_FOREACH (owner, &dom->owners, link) {
		if (owner->state == DOM__READY &&
		    dom__owner_uses_disk(owner, disk)) {
			owner->restart = true;
			owner->hold = true;
			dom__owner_step_late(owner);
		}
	}
	dom__kick(dom);
}

/* ---- what the directory says ---- */

/* Every other command raises csn by one at most. */
static bool leapt(const struct cmmds_change *change)
{
	const Directory__Object *old = (const void *)change->old_entry->message;
	const Directory__Object *new = (const void *)change->new_entry->message;

	return new->csn > old->csn + 1;
}

/* It may have another policy, with another limit, and less reserved. */
static void policy_load(struct dom__owner *owner,
			const Directory__Object *object)
{
	owner->thick = clom_thick(object);
	dom__qos_load(owner);
}

/*
 * What is written from now on is of another epoch, by which a directory that
 * tells of the sanitize still is known to be older (takeover.c).
 */
static void sanitize_ended(struct dom__owner *owner)
{
	if (owner->state == DOM__TAKING)
		owner->renew = true; /* it may have been granted already */
	if (owner->state != DOM__READY)
		return; /* one begins anyway */
	owner->restart = true;
	owner->hold = true;
	dom__owner_step(owner);
}

static bool sanitizing(const struct cmmds_entry *entry)
{
	const Directory__Object *object =
		entry != NULL ? (const void *)entry->message : NULL;

	return object != NULL && object->sanitizing;
}

static void object_changed(struct cmmds_subscription *sub,
			   const struct cmmds_change *change)
{
	struct dom *dom = sub->data;
	const struct cmmds_entry *entry =
		change->new_entry ? change->new_entry : change->old_entry;
	const Directory__Object *object =
		change->new_entry ? (const void *)change->new_entry->message
				  : NULL;
	struct dom__owner *owner;
	struct uuid oid;

	dom__promises_change(dom, change);
	if (entry->key_len != sizeof(oid.b))
		return;
	memcpy(oid.b, entry->key, sizeof(oid.b));
	if (!dom__mine(dom, &oid))
		return;
	if (object != NULL &&
	    (reserves(change->new_entry) || reserves(change->old_entry)))
		dom__space_reserve(dom, object, NULL);
	owner = dom__owner_find(dom, &oid);
	if (object != NULL && !object->deleted) {
		if (owner != NULL)
			policy_load(owner, object);
		if (owner != NULL && sanitizing(change->old_entry) &&
		    !object->sanitizing)
			sanitize_ended(owner);
		/* ACCEPT: what its layout does not name is to go. */
		if (change->old_entry != NULL && leapt(change))
			dom__gc_look(dom, &oid);
		return;
	}
	if (owner != NULL && !owner->deleted) {
		owner->deleted = true;
		owner->hold = true;
		dom__owner_event(owner, DOM_DELETED);
		dom__owner_step(owner);
	}
	if (object != NULL)
		dom__gc_look(dom, &oid);
}

/* It was given up: deleted objects need not wait for it any more. */
static void disk_entry_changed(struct cmmds_subscription *sub,
			       const struct cmmds_change *change)
{
	if (change->new_entry == NULL)
		dom__gc_kick(sub->data);
}

/* Another limit holds at once, for every owner under the policy. */
static void policy_changed(struct cmmds_subscription *sub,
			   const struct cmmds_change *change)
{
	struct dom *dom = sub->data;
	struct dom__owner *owner;

	TAILQ_FOREACH (owner, &dom->owners, link)
		dom__qos_load(owner);
}

/* ---- opening and closing ---- */

int dom_open(const struct dom_config *config, struct dom **out)
{
	struct dom *dom = calloc(1, sizeof(*dom));
	int rv;

	if (dom == NULL)
		return -ENOMEM;
	counters_register();
	dom->env = config->env;
	dom->cmmds = config->cmmds;
	dom->lsom = config->lsom;
	dom->node = config->node;
	dom->rules_off = config->rules_off;
	dom->part = config->part;
	dom->parts = config->parts > 0 ? config->parts : 1;
	dom->all = config->all;
	/* So that a generation of an earlier run is nobody's. */
	dom->generation = env_rand(dom->env) >> 1 | 1;
	TAILQ_INIT(&dom->turns);
	TAILQ_INIT(&dom->disks);
	TAILQ_INIT(&dom->placed);
	TAILQ_INIT(&dom->owners);
	TAILQ_INIT(&dom->busy);
	TAILQ_INIT(&dom->late);
	rv = dom__gc_open(dom);
	if (rv < 0) {
		free(dom);
		return rv;
	}
	dom->objects_sub = (struct cmmds_subscription){ .data = dom,
							.kind = CMMDS_OBJECT,
							.cb = object_changed };
	cmmds_subscribe(dom->cmmds, &dom->objects_sub);
	dom->policies_sub = (struct cmmds_subscription){ .data = dom,
							 .kind = CMMDS_POLICY,
							 .cb = policy_changed };
	cmmds_subscribe(dom->cmmds, &dom->policies_sub);
	dom->disks_sub = (struct cmmds_subscription){
		.data = dom, .kind = CMMDS_DISK, .cb = disk_entry_changed
	};
	cmmds_subscribe(dom->cmmds, &dom->disks_sub);
	dom__health_open(dom);
	*out = dom;
	return 0;
}

static void kick_task(struct env_task *task)
{
	struct dom *dom = container_of(task, struct dom, task);
	void (*closed)(void *arg) = dom->closed;
	void *arg = dom->closed_arg;
	struct dom__placed *placed;
	struct dom__disk *disk;

again:
	TAILQ_FOREACH (disk, &dom->disks, link) {
		/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc): off the list */
		void (*removed)(void *arg) = disk->removed;
		void *removed_arg = disk->removed_arg;

		if (!(disk->removing || dom->closing) ||
		    !TAILQ_EMPTY(&disk->cms) || disk->metas > 0)
			continue;
		TAILQ_REMOVE(&dom->disks, disk, link);
		dom->look.afresh = true;
		lsom_disk_unwatch(disk->lsom, &disk->watch);
		free(disk);
		if (removed != NULL)
			removed(removed_arg);
		goto again;
	}
	if (!dom->closing || !TAILQ_EMPTY(&dom->owners) ||
	    !TAILQ_EMPTY(&dom->disks) || dom->jobs > 0 || !dom__gc_idle(dom))
		return;
	if (!dom__health_idle(dom)) {
		dom__kick(dom);
		return;
	}
	env_timer_stop(dom->env, &dom->late_timer);
	cmmds_unsubscribe(&dom->objects_sub);
	cmmds_unsubscribe(&dom->policies_sub);
	cmmds_unsubscribe(&dom->disks_sub);
	dom__health_close(dom);
	dom__gc_close(dom);
	while ((placed = TAILQ_FIRST(&dom->placed)) != NULL) {
		TAILQ_REMOVE(&dom->placed, placed, link);
		free(placed);
	}
	free(dom);
	closed(arg);
}

void dom__kick(struct dom *dom)
{
	dom->task.cb = kick_task;
	env_defer(dom->env, &dom->task);
}

void dom_close(struct dom *dom, void (*cb)(void *arg), void *arg)
{
	struct dom__owner *owner;

	dom->closing = true;
	dom->closed = cb;
	dom->closed_arg = arg;
	TAILQ_FOREACH (owner, &dom->owners, link)
		dom__owner_step(owner);
	dom__kick(dom);
}
