/*
 * locate: where a disk is now.
 *
 * The kernel gives out names like sdb in the order in which it finds devices:
 * the disk that was added as /dev/sdb may be /dev/sdc after the next start.
 * What says which disk it is, is its superblock.  Only names under /dev change
 * like that; a file stays where it was put.
 */
#include "node/node_int.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

struct search {
	struct env *env;
	const struct uuid *cluster, *id;
	char part_of[32]; /* of the last device that is one: "Linux RAID" */
};

/* What may have a disk: that disk, or what lies below it. */
enum below { NOTHING, MAP, ARRAY };

static bool is_device(const char *path)
{
	return strncmp(path, "/dev/", 5) == 0;
}

static bool is_it(const struct lsom_probe *probe, const struct uuid *cluster,
		  const struct uuid *id)
{
	return uuid_equal(&probe->disk, id) &&
	       uuid_equal(&probe->cluster, cluster);
}

/* As lsom_disk_identify(); -ETIMEDOUT: the device does not answer. */
static int identify(struct env *env, const char *path, struct lsom_probe *out)
{
	if (is_device(path) && !node__device_answers(path))
		return -ETIMEDOUT;
	return lsom_disk_identify(env, path, out);
}

enum { OTHER, PART, HERE };

/*
 * HERE: it has the disk; PART: it does, below what it is a part of; OTHER: it has
 * another one of Basalt; -errno: none, or none that can be read.
 */
static int look_at(struct search *s, const char *path)
{
	struct lsom_probe probe;
	int rv = identify(s->env, path, &probe);

	if (rv < 0)
		return rv;
	if (!is_it(&probe, s->cluster, s->id))
		return OTHER;
	if (probe.found[0] == '\0')
		return HERE;
	snprintf(s->part_of, sizeof(s->part_of), "%.30s", probe.found);
	return PART;
}

/* The number in attribute @file of block device @name; 0: none. */
static uint64_t attribute(const char *name, const char *file)
{
	char path[400];
	uint64_t value = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/class/block/%s/%s", name, file);
	f = fopen(path, "re");
	if (f == NULL)
		return 0;
	/* NOLINTNEXTLINE(cert-err34-c): the kernel wrote it */
	if (fscanf(f, "%" SCNu64, &value) != 1)
		value = 0;
	fclose(f);
	return value;
}

/* A part of another device (multipath, md, dm): that one counts. */
static bool is_held(const struct stat *st)
{
	char path[100], holder[64];

	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/holders",
		 major(st->st_rdev), minor(st->st_rdev));
	return node__dir_first(path, holder, sizeof(holder));
}

/*
 * A path of a multipath map that may still have to be made, as multipath's udev
 * rules have noted: who opens it alone keeps the map from being made at all.
 */
bool node__is_map_path(const struct stat *st)
{
	static const char mark[] = "E:DM_MULTIPATH_DEVICE_PATH=1";
	char path[100], line[256];
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/run/udev/data/b%u:%u",
		 major(st->st_rdev), minor(st->st_rdev));
	f = fopen(path, "re");
	while (f != NULL && !found && fgets(line, sizeof(line), f) != NULL)
		found = strncmp(line, mark, sizeof(mark) - 1) == 0;
	if (f != NULL)
		fclose(f);
	return found;
}

/* A map goes by the name that it was given and keeps; dm-0 is the first of today. */
static void map_path(const char *name, const struct stat *st, char *path,
		     size_t len)
{
	char given[128], at[160];
	struct stat that;

	if (!node__map_name(name, given, sizeof(given)))
		return;
	snprintf(at, sizeof(at), "/dev/mapper/%s", given);
	if (stat(at, &that) == 0 && S_ISBLK(that.st_mode) &&
	    that.st_rdev == st->st_rdev)
		snprintf(path, len, "%s", at);
}

/* Its node under /dev, if it can be a disk of ours at all; a path of a map or not. */
static bool may_be(const char *name, bool of_map, char *path, size_t len)
{
	struct stat st;

	/* In units of 512 bytes, whatever the device has. */
	if (name[0] == '.' || attribute(name, "size") < NODE_DISK_MIN / 512 ||
	    attribute(name, "ro") != 0)
		return false;
	if (snprintf(path, len, "/dev/%s", name) >= (int)len)
		return false;
	for (char *c = path; (c = strchr(c, '!')) != NULL;)
		*c = '/';
	if (stat(path, &st) < 0 || is_held(&st) ||
	    node__is_map_path(&st) != of_map)
		return false;
	map_path(name, &st, path, len);
	return true;
}

/*
 * The devices that have it, or lie @below what does: their number, one of them and
 * the one before.
 */
static unsigned devices_with(struct search *s, enum below below, char *hit,
			     char *before, size_t len)
{
	DIR *dir = opendir("/sys/class/block");
	unsigned hits = 0;
	struct dirent *e;
	char at[256];

	while (dir != NULL && (e = readdir(dir)) != NULL) {
		if (!may_be(e->d_name, below == MAP, at, sizeof(at)) ||
		    look_at(s, at) != (below == ARRAY ? PART : HERE))
			continue;
		snprintf(before, len, "%s", hit);
		snprintf(hit, len, "%s", at);
		hits++;
	}
	if (dir != NULL)
		closedir(dir);
	return hits;
}

bool node__disk_is_at(struct env *env, const struct uuid *cluster,
		      const struct uuid *id, const char *path,
		      uint64_t *generation)
{
	struct lsom_probe probe;

	if (identify(env, path, &probe) < 0 || !probe.whole ||
	    probe.found[0] != '\0' || !is_it(&probe, cluster, id))
		return false;
	*generation = probe.generation;
	return true;
}

int node__disk_locate(struct env *env, const struct uuid *cluster,
		      const struct uuid *id, const char *path, char *out,
		      size_t len, char *why, size_t why_len)
{
	struct search s = { env, cluster, id, "" };
	char hit[256] = "", before[256] = "";
	struct stat st;
	unsigned hits;
	int there;

	snprintf(out, len, "%s", path);
	if (!is_device(path))
		return 0;
	there = look_at(&s, path);
	/* Where it has become a part of another device, that one has the disk. */
	if (there == HERE && (stat(path, &st) < 0 || !is_held(&st)))
		return 0;
	hits = devices_with(&s, NOTHING, hit, before, sizeof(hit));
	if (hits == 1) {
		snprintf(out, len, "%s", hit);
		return 0;
	}
	if (hits > 1 && there != HERE) {
		snprintf(why, why_len,
			 "%.80s has not this disk, but both %.60s and %.60s "
			 "have: take the copy away",
			 path, before, hit);
		return -ENOTUNIQ;
	}
	if (there != HERE &&
	    devices_with(&s, MAP, hit, before, sizeof(hit)) > 0) {
		snprintf(why, why_len,
			 "only %.60s has it, a path of a multipath map that is "
			 "not there",
			 hit);
		return -ENODEV;
	}
	if (there != HERE &&
	    devices_with(&s, ARRAY, hit, before, sizeof(hit)) > 0) {
		snprintf(why, why_len,
			 "only %.60s has it, a part of a %s that is not there",
			 hit, s.part_of);
		return -ENODEV;
	}
	if (there == OTHER) {
		snprintf(why, why_len,
			 "%.80s is another disk now, and no device has this "
			 "one",
			 path);
		return -ENOENT;
	}
	return 0; /* opening it says what is wrong with it */
}
