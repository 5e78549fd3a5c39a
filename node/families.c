/*
 * families: metrics that are there once for each disk, virtual disk and health
 * check, told apart by labels, as Prometheus has them.  Named by what people
 * call a thing, so that a graph needs no directory beside it.
 */
#include "base/health.h"
#include "base/util.h"
#include "node/node_int.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A label's value: what ends it, and what ends a line, is escaped. */
static void value_put(FILE *f, const char *text)
{
	for (; *text != '\0'; text++) {
		if (*text == '\\' || *text == '"')
			putc_unlocked('\\', f);
		if (*text == '\n')
			fputs("\\n", f);
		else
			putc_unlocked(*text, f);
	}
}

static void head_put(FILE *f, const char *name, const char *type,
		     const char *help)
{
	fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* ---- virtual disks ---- */

struct usages {
	struct node_usage *of; /* by object */
	size_t count;
};

static int by_object(const void *a, const void *b)
{
	const struct node_usage *x = a, *y = b;

	return memcmp(&x->usage.object, &y->usage.object, sizeof(struct uuid));
}

static void on_usage(const struct iscsi_usage *usage, void *arg)
{
	const struct usages *all = arg;
	struct node_usage key = { .usage.object = usage->object };
	struct node_usage *u =
		bsearch(&key, all->of, all->count, sizeof(*all->of), by_object);

	if (u != NULL) /* else it is being deleted */
		u->usage = *usage;
}

struct node_usage *node__usages(struct node *node, size_t *count)
{
	const struct cmmds_entry *e = NULL;
	struct usages all = { 0 };

	while ((e = cmmds_next(node->cmmds, CMMDS_VDISK, e)) != NULL)
		all.count++;
	all.of = calloc(all.count + 1, sizeof(*all.of));
	if (all.of == NULL)
		return NULL;
	*count = all.count;
	for (size_t i = 0; i < all.count; i++) {
		e = cmmds_next(node->cmmds, CMMDS_VDISK, e);
		all.of[i].vdisk = (void *)e->message;
		all.of[i].size_bytes = all.of[i].vdisk->size_bytes;
		memcpy(all.of[i].usage.object.b, all.of[i].vdisk->oid.data,
		       MIN(all.of[i].vdisk->oid.len, sizeof(struct uuid)));
	}
	qsort(all.of, all.count, sizeof(*all.of), by_object);
	iscsi_usage_each(node->iscsi, on_usage, &all);
	return all.of;
}

#define USAGE(field) offsetof(struct node_usage, field)

static const struct vdisk_family {
	const char *name, *type, *help;
	size_t at; /* a uint64_t of struct node_usage */
	double unit;
} vdisk_families[] = {
	{ "basalt_vdisk_reads_total", "counter",
	  "reads by initiators since it is exported", USAGE(usage.reads.count),
	  1 },
	{ "basalt_vdisk_read_seconds_total", "counter",
	  "what they took, from the command to its answer",
	  USAGE(usage.reads.sum_ns), SEC },
	{ "basalt_vdisk_read_bytes_total", "counter", "bytes that they got",
	  USAGE(usage.read_bytes), 1 },
	{ "basalt_vdisk_writes_total", "counter",
	  "writes by initiators since it is exported",
	  USAGE(usage.writes.count), 1 },
	{ "basalt_vdisk_write_seconds_total", "counter",
	  "what they took, from the command to its answer",
	  USAGE(usage.writes.sum_ns), SEC },
	{ "basalt_vdisk_written_bytes_total", "counter",
	  "bytes that they wrote", USAGE(usage.written_bytes), 1 },
	{ "basalt_vdisk_unmaps_total", "counter",
	  "UNMAP, WRITE SAME and SANITIZE", USAGE(usage.unmaps), 1 },
	{ "basalt_vdisk_failed_total", "counter",
	  "of all these: not ready, medium errors, no space, out of time, "
	  "BUSY",
	  USAGE(usage.failed), 1 },
	{ "basalt_vdisk_size_bytes", "gauge", "as its initiators see it",
	  USAGE(size_bytes), 1 },
};

/* The uint64_t that is @at bytes into @record. */
static uint64_t number_at(const void *record, size_t at)
{
	uint64_t n;

	memcpy(&n, (const char *)record + at, sizeof(n));
	return n;
}

/* There are thousands: what is whole is not made a fraction first. */
static void sample_put(FILE *f, uint64_t n, double unit)
{
	if (unit == 1 || n == 0)
		fprintf(f, "\"} %llu\n", (unsigned long long)n);
	else
		fprintf(f, "\"} %.16g\n", (double)n / unit);
}

static bool vdisks_put(FILE *f, struct node *node)
{
	size_t count = 0;
	struct node_usage *all = node__usages(node, &count);

	if (all == NULL)
		return false;
	for (size_t i = 0; count > 0 && i < ARRAY_LEN(vdisk_families); i++) {
		const struct vdisk_family *v = &vdisk_families[i];

		head_put(f, v->name, v->type, v->help);
		for (size_t k = 0; k < count; k++) {
			fprintf(f, "%s{vdisk=\"", v->name);
			value_put(f, all[k].vdisk->name);
			sample_put(f, number_at(&all[k], v->at), v->unit);
		}
	}
	free(all);
	return true;
}

/* ---- disks ---- */

struct disk_state {
	struct lsom_disk_info info; /* while it is open */
	uint64_t up, congestion;
	uint64_t scrubbed, scrubbed_bad;
};

#define DISK(field) offsetof(struct disk_state, field)

static const struct disk_family {
	const char *name, *type, *help;
	size_t at; /* a uint64_t of struct disk_state */
} disk_families[] = {
	{ "basalt_disk_up", "gauge", "1: in service", DISK(up) },
	{ "basalt_disk_raw_bytes", "gauge", "of the device",
	  DISK(info.raw_bytes) },
	{ "basalt_disk_usable_bytes", "gauge", "raw less the cleaning reserve",
	  DISK(info.usable_bytes) },
	{ "basalt_disk_used_bytes", "gauge", "live blocks",
	  DISK(info.used_bytes) },
	{ "basalt_disk_kept_bytes", "gauge",
	  "reserved by policies, not used yet", DISK(info.kept_bytes) },
	{ "basalt_disk_segments_free", "gauge", "segments ready to be written",
	  DISK(info.segments_free) },
	{ "basalt_disk_congestion", "gauge",
	  "0 to 255: how much writes are slowed down", DISK(congestion) },
	{ "basalt_disk_media_errors_total", "counter",
	  "reads that the device failed, and blocks that were not what was "
	  "written, since it was opened",
	  DISK(info.media_errors) },
	{ "basalt_disk_scrubbed_timestamp_seconds", "gauge",
	  "when it was read through last; 0: never", DISK(scrubbed) },
	{ "basalt_disk_scrubbed_bad_blocks", "gauge",
	  "that were not what was written then", DISK(scrubbed_bad) },
};

/* False: it is not open, and nothing is known but that. */
static bool state_take(const struct node_disk *d, struct disk_state *state)
{
	struct node_scrubbed known;

	*state = (struct disk_state){ 0 };
	if (d->state != NODE_DISK_ONLINE)
		return false;
	lsom_disk_info(d->disk, &state->info);
	state->up = state->info.state != LSOM_DISK_FAILED;
	for (unsigned i = 0; i < LSOM_CONGESTIONS; i++)
		state->congestion =
			MAX(state->congestion, state->info.congestion[i]);
	node__scrub_known(d, &known);
	state->scrubbed = known.wall_ns / SEC;
	state->scrubbed_bad = known.bad_count;
	return true;
}

static void disk_put(FILE *f, const struct disk_family *family,
		     const struct node_disk *d)
{
	struct disk_state state;
	char id[UUID_TEXT_LEN];

	if (!state_take(d, &state) && family->at != DISK(up))
		return;
	uuid_format(&d->id, id);
	fprintf(f, "%s{disk=\"%s\",path=\"", family->name, id);
	value_put(f, d->path);
	fprintf(f, "\"} %llu\n",
		(unsigned long long)number_at(&state, family->at));
}

static void disks_put(FILE *f, struct node *node)
{
	struct node_disk *d;

	if (TAILQ_EMPTY(&node->disks))
		return;
	for (size_t i = 0; i < ARRAY_LEN(disk_families); i++) {
		const struct disk_family *family = &disk_families[i];

		head_put(f, family->name, family->type, family->help);
		TAILQ_FOREACH (d, &node->disks, link)
			disk_put(f, family, d);
	}
}

/* ---- health ---- */

static void check_put(const struct health_check *check,
		      const struct health_result *result, void *arg)
{
	fprintf(arg, "basalt_health_level{check=\"");
	value_put(arg, check->name);
	fprintf(arg, "\"} %d\n", (int)result->level);
}

bool node__families_put(FILE *f, struct node *node)
{
	if (node->state != NODE_STOPPING) {
		head_put(f, "basalt_health_level", "gauge",
			 "of each check: 0 ok, 1 info, 2 warning, 3 bad");
		health_each(check_put, f);
	}
	if (node->state != NODE_UP)
		return true;
	disks_put(f, node);
	return vdisks_put(f, node);
}
