/*
 * families: metrics that are there once for each disk, virtual disk and health
 * check, told apart by labels, as Prometheus has them.  Named by what people
 * call a thing, so that a graph needs no directory beside it.
 */
#include "base/health.h"
#include "base/utf8.h"
#include "base/util.h"
#include "node/node_int.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

#define VALUE_MAX (2 * 256)

/*
 * A label's value: what ends it, and what ends a line, is escaped.  Where one is
 * not UTF-8, as a file's name need not be, Prometheus would take nothing of all
 * this.
 */
static const char *value(const char *text, char out[VALUE_MAX])
{
	size_t n = 0;

	for (; *text != '\0' && n + 3 <= VALUE_MAX; text++) {
		if (*text == '\\' || *text == '"' || *text == '\n')
			out[n++] = '\\';
		out[n++] = *text;
		if (*text == '\n')
			out[n - 1] = 'n';
	}
	out[n] = '\0';
	text_utf8(out);
	return out;
}

static void head_put(struct node_text *text, const char *name, const char *type,
		     const char *help)
{
	node__print(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name,
		    type);
}

/* ---- virtual disks ---- */

void node__usage(struct node *node, const Directory__VDisk *vdisk,
		 struct iscsi_usage *out)
{
	struct uuid oid = { { 0 } };

	memcpy(oid.b, vdisk->oid.data, MIN(vdisk->oid.len, sizeof(oid)));
	if (!iscsi_usage_of(node->iscsi, &oid, out))
		*out = (struct iscsi_usage){ .object = oid };
}

/* What is told of one. */
struct vdisk_state {
	struct iscsi_usage usage;
	uint64_t size_bytes;
};

#define USAGE(field) offsetof(struct vdisk_state, field)

static const struct vdisk_family {
	const char *name, *type, *help;
	size_t at; /* a uint64_t of struct vdisk_state */
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

static_assert(ARRAY_LEN(vdisk_families) == NODE_VDISK_FAMILIES,
	      "one text each");

void node__vdisk_heads_put(struct node_text texts[NODE_VDISK_FAMILIES])
{
	for (size_t i = 0; i < NODE_VDISK_FAMILIES; i++) {
		const struct vdisk_family *v = &vdisk_families[i];

		head_put(&texts[i], v->name, v->type, v->help);
	}
}

void node__vdisk_put(struct node_text texts[NODE_VDISK_FAMILIES],
		     struct node *node, const Directory__VDisk *vdisk)
{
	struct vdisk_state state = { .size_bytes = vdisk->size_bytes };
	char name[VALUE_MAX];

	value(vdisk->name, name);
	node__usage(node, vdisk, &state.usage);
	for (size_t i = 0; i < NODE_VDISK_FAMILIES; i++) {
		const struct vdisk_family *v = &vdisk_families[i];
		uint64_t n = number_at(&state, v->at);

		/* There are thousands: what is whole is not made a fraction. */
		if (v->unit == 1 || n == 0)
			node__print(&texts[i], "%s{vdisk=\"%s\"} %llu\n",
				    v->name, name, (unsigned long long)n);
		else
			node__print(&texts[i], "%s{vdisk=\"%s\"} %.16g\n",
				    v->name, name, (double)n / v->unit);
	}
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

static void disk_put(struct node_text *text, const struct disk_family *family,
		     const struct node_disk *d)
{
	struct disk_state state;
	char id[UUID_TEXT_LEN], path[VALUE_MAX];

	if (!state_take(d, &state) && family->at != DISK(up))
		return;
	uuid_format(&d->id, id);
	node__print(text, "%s{disk=\"%s\",path=\"%s\"} %llu\n", family->name,
		    id, value(d->path, path),
		    (unsigned long long)number_at(&state, family->at));
}

static void disks_put(struct node_text *text, struct node *node)
{
	struct node_disk *d;

	if (TAILQ_EMPTY(&node->disks))
		return;
	for (size_t i = 0; i < ARRAY_LEN(disk_families); i++) {
		const struct disk_family *family = &disk_families[i];

		head_put(text, family->name, family->type, family->help);
		TAILQ_FOREACH (d, &node->disks, link)
			disk_put(text, family, d);
	}
}

/* ---- health ---- */

static void check_put(const struct health_check *check,
		      const struct health_result *result, void *arg)
{
	char name[VALUE_MAX];

	node__print(arg, "basalt_health_level{check=\"%s\"} %d\n",
		    value(check->name, name), (int)result->level);
}

void node__families_put(struct node_text *text, struct node *node)
{
	if (node->state != NODE_STOPPING) {
		head_put(text, "basalt_health_level", "gauge",
			 "of each check: 0 ok, 1 info, 2 warning, 3 bad");
		health_each(check_put, text);
	}
	if (node->state == NODE_UP)
		disks_put(text, node);
}
