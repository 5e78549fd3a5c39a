/*
 * probe: what speaks against making a disk of a path.
 *
 * In use (mounted, swap, held by dm or md, open elsewhere, with partitions, under
 * a loop device) is refused for good; something that only lies there (a file
 * system, a partition table, a superblock) gives way to --force-erase.  What
 * lies there is lsom's to recognise; what the kernel does with it is read from
 * /proc and /sys.  Blocking.
 */
#include "base/util.h"
#include "node/node_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static void found(struct node_probe *p, bool never, const char *what,
		  const char *detail)
{
	size_t n = strlen(p->found);

	snprintf(p->found + n, sizeof(p->found) - n, "%s%s%s", n ? ", " : "",
		 what, detail);
	p->never |= never;
}

bool node__probe_mounted(const char *mountinfo, unsigned major, unsigned minor,
			 char *where, size_t where_len)
{
	/* "36 35 98:0 /root /mount/point options ...", proc(5) */
	for (const char *line = mountinfo; line != NULL && *line != '\0';) {
		unsigned ma, mi;
		int n = 0;

		/* NOLINTNEXTLINE(cert-err34-c): the kernel wrote them */
		if (sscanf(line, "%*u %*u %u:%u %*s %n", &ma, &mi, &n) >= 2 &&
		    n > 0 && ma == major && mi == minor) {
			snprintf(where, where_len, "%.*s",
				 (int)strcspn(line + n, " \n"), line + n);
			return true;
		}
		line = strchr(line, '\n');
		if (line != NULL)
			line++;
	}
	return false;
}

static char *file_text(const char *path)
{
	FILE *f = fopen(path, "re");
	size_t len = 0, room = 64u << 10;
	char *text;

	if (f == NULL)
		return NULL;
	text = malloc(room);
	while (text != NULL) {
		size_t n = fread(text + len, 1, room - 1 - len, f);

		len += n;
		text[len] = '\0';
		if (n == 0 || room > 8u << 20)
			break;
		if (len + 1 == room) {
			char *more = realloc(text, room *= 2);

			if (more == NULL)
				break;
			text = more;
		}
	}
	fclose(f);
	return text;
}

static void look_mounts(struct node_probe *p, unsigned major, unsigned minor)
{
	char *text = file_text("/proc/self/mountinfo"), where[128];

	if (text != NULL &&
	    node__probe_mounted(text, major, minor, where, sizeof(where)))
		found(p, true, "mounted on ", where);
	free(text);
}

static void look_swaps(struct node_probe *p, const char *path)
{
	char *text = file_text("/proc/swaps"), real[PATH_MAX];
	size_t len;

	if (text == NULL || realpath(path, real) == NULL) {
		free(text);
		return;
	}
	len = strlen(real);
	for (const char *line = text; line != NULL;
	     line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
		if (strncmp(line, real, len) == 0 &&
		    (line[len] == ' ' || line[len] == '\t'))
			found(p, true, "swap in use", "");
	free(text);
}

bool node__dir_first(const char *dir, char *name, size_t len)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	bool any = false;

	if (d == NULL)
		return false;
	while (!any && (e = readdir(d)) != NULL)
		if (e->d_name[0] != '.') {
			snprintf(name, len, "%.60s", e->d_name);
			any = true;
		}
	closedir(d);
	return any;
}

bool node__map_name(const char *name, char *given, size_t len)
{
	char path[100], *text;

	snprintf(path, sizeof(path), "/sys/class/block/%.60s/dm/name", name);
	text = file_text(path);
	if (text == NULL)
		return false;
	text[strcspn(text, "\n")] = '\0';
	snprintf(given, len, "%s", text);
	free(text);
	return true;
}

/* Who has the device of directory @sys open as a part: "dm-0, which is vg-data". */
static bool holder(const char *sys, char *out, size_t len)
{
	char dir[600], name[64], given[128];

	snprintf(dir, sizeof(dir), "%s/holders", sys);
	if (!node__dir_first(dir, name, sizeof(name)))
		return false;
	if (node__map_name(name, given, sizeof(given)))
		snprintf(out, len, "%s, which is %s", name, given);
	else
		snprintf(out, len, "%s", name);
	return true;
}

/* Partitions of the device, mounted or not. */
static void look_partitions(struct node_probe *p, const char *sys)
{
	DIR *d = opendir(sys);
	struct dirent *e;
	unsigned count = 0;
	char path[600], text[256];

	if (d == NULL)
		return;
	while ((e = readdir(d)) != NULL) {
		char *dev;
		unsigned ma, mi;

		snprintf(path, sizeof(path), "%s/%s/partition", sys, e->d_name);
		/* "." is a partition, too, where the device is one. */
		if (e->d_name[0] == '.' || access(path, F_OK) < 0)
			continue;
		count++;
		snprintf(path, sizeof(path), "%s/%s/dev", sys, e->d_name);
		dev = file_text(path);
		/* NOLINTNEXTLINE(cert-err34-c): the kernel wrote them */
		if (dev != NULL && sscanf(dev, "%u:%u", &ma, &mi) == 2)
			look_mounts(p, ma, mi);
		free(dev);
		snprintf(path, sizeof(path), "%s/%s", sys, e->d_name);
		if (holder(path, text, sizeof(text)))
			found(p, true, "a partition held by ", text);
	}
	closedir(d);
	if (count > 0) {
		snprintf(text, sizeof(text), "%u", count);
		found(p, false, "partitions: ", text);
	}
}

/* One whose zones take writes in their order only. */
static bool is_zoned(const char *sys)
{
	char path[100], *text;
	bool zoned;

	/* A partition has the queue of the device that it is on. */
	snprintf(path, sizeof(path), "%s/queue/zoned", sys);
	text = file_text(path);
	if (text == NULL) {
		snprintf(path, sizeof(path), "%s/../queue/zoned", sys);
		text = file_text(path);
	}
	zoned = text != NULL && strncmp(text, "host-managed", 12) == 0;
	free(text);
	return zoned;
}

static int look_device(struct node_probe *p, const char *path,
		       const struct stat *st, char *why, size_t why_len)
{
	unsigned ma = major(st->st_rdev), mi = minor(st->st_rdev);
	char sys[64], name[256];
	uint64_t bytes = 0;
	int fd, read_only = 0, rv = 0;

	snprintf(sys, sizeof(sys), "/sys/dev/block/%u:%u", ma, mi);
	if (is_zoned(sys)) {
		snprintf(why, why_len,
			 "%s is zoned: it cannot be written at any place",
			 path);
		return -EOPNOTSUPP;
	}
	look_mounts(p, ma, mi);
	look_swaps(p, path);
	if (holder(sys, name, sizeof(name)))
		found(p, true, "held by ", name);
	else if (node__is_map_path(st))
		found(p, false, "it is a path of a multipath map", "");
	look_partitions(p, sys);
	fd = open(path, O_RDONLY | O_EXCL | O_CLOEXEC);
	if (fd < 0 && errno == EBUSY) {
		if (!p->never)
			found(p, true, "open elsewhere", "");
		fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	if (fd < 0 || ioctl(fd, BLKGETSIZE64, &bytes) < 0) {
		rv = -errno;
		snprintf(why, why_len, "%s: %s", path, strerror(-rv));
	}
	p->read_only = fd >= 0 && ioctl(fd, BLKROGET, &read_only) == 0 &&
		       read_only != 0;
	if (fd >= 0)
		close(fd);
	p->bytes = bytes;
	return rv;
}

/* A file may lie under a loop device that somebody has mounted. */
static void look_loops(struct node_probe *p, const char *path)
{
	DIR *d = opendir("/sys/block");
	struct dirent *e;
	char real[PATH_MAX], at[400], *text;

	if (d == NULL || realpath(path, real) == NULL) {
		if (d != NULL)
			closedir(d);
		return;
	}
	while ((e = readdir(d)) != NULL) {
		if (strncmp(e->d_name, "loop", 4) != 0)
			continue;
		snprintf(at, sizeof(at), "/sys/block/%s/loop/backing_file",
			 e->d_name);
		text = file_text(at);
		if (text == NULL)
			continue;
		text[strcspn(text, "\n")] = '\0';
		if (strcmp(text, real) == 0)
			found(p, true, "the file of /dev/", e->d_name);
		free(text);
	}
	closedir(d);
}

int node__probe(struct env *env, const char *path, struct node_probe *out,
		char *why, size_t why_len)
{
	struct stat st;
	int rv;

	memset(out, 0, sizeof(*out));
	if (stat(path, &st) < 0) {
		rv = -errno;
		snprintf(why, why_len, "%s: %s", path, strerror(-rv));
		return rv;
	}
	out->block_device = S_ISBLK(st.st_mode);
	if (!out->block_device && !S_ISREG(st.st_mode)) {
		snprintf(why, why_len,
			 "%s is neither a block device nor a regular file",
			 path);
		return -ENOTBLK;
	}
	if (out->block_device) {
		rv = look_device(out, path, &st, why, why_len);
		if (rv < 0)
			return rv;
	} else {
		out->bytes = (uint64_t)st.st_size;
		look_swaps(out, path);
		look_loops(out, path);
	}
	if (out->bytes == 0)
		return 0;
	rv = lsom_disk_probe(env, path, &out->lsom);
	if (rv < 0) {
		snprintf(why, why_len, "%s cannot be read: %s", path,
			 rv == -ENODATA ? "its medium has lost a part of what "
					  "is looked at; if it was never "
					  "written, write all of it first"
					: strerror(-rv));
		return rv;
	}
	if (out->lsom.found[0] != '\0')
		found(out, false, "", out->lsom.found);
	return 0;
}
