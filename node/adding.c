/*
 * adding: files that are being made disks.
 *
 * A daemon that is killed meanwhile leaves a file as large as the disk was to be,
 * and nobody knows of it.  So a note in data_dir names it for as long as nothing
 * of worth can be in it: from before it is made until it is formatted, before it
 * is opened first.  A note of an earlier life is an end that did not come: the
 * file goes if it has nothing, or what a format leaves.  Else it stays.
 */
#define LOG_ROOM LOG_NODE
#include "base/log.h"
#include "base/shard.h"
#include "base/util.h"
#include "node/node_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define ZERO_CHUNK (1u << 20)
#define ZERO_MAX (2ull << 30) /* a format writes less than this */

static void note_path(const struct node *node, const char *name, char *out,
		      size_t len)
{
	snprintf(out, len, "%s/adding%s%s", node->config->data_dir,
		 name[0] != '\0' ? "/" : "", name);
}

int node__adding_note(struct node *node, const struct uuid *id,
		      const char *path)
{
	char text[UUID_TEXT_LEN], at[480];
	FILE *f;
	int rv = 0;

	note_path(node, "", at, sizeof(at));
	if (mkdir(at, 0700) < 0 && errno != EEXIST)
		return -errno;
	uuid_format(id, text);
	note_path(node, text, at, sizeof(at));
	f = fopen(at, "wxe");
	if (f == NULL)
		return -errno;
	if (fprintf(f, "%" PRIu64 " %s\n", node->identity.incarnation, path) <
	    0)
		rv = -errno;
	if (fclose(f) < 0 && rv == 0)
		rv = -errno;
	if (rv < 0)
		unlink(at);
	return rv;
}

int node__adding_over(struct node *node, const struct uuid *id)
{
	char text[UUID_TEXT_LEN], at[480];

	uuid_format(id, text);
	note_path(node, text, at, sizeof(at));
	if (unlink(at) < 0)
		return errno == ENOENT ? 0 : -errno;
	note_path(node, "", at, sizeof(at));
	return node__dir_sync(at);
}

/* Has it no byte but zeros, and few of those? */
static bool is_empty(int fd, uint64_t bytes)
{
	uint64_t at = 0, seen = 0;
	uint8_t *buf = malloc(ZERO_CHUNK);
	bool empty = buf != NULL;

	while (empty && at < bytes) {
		off_t data = lseek(fd, (off_t)at, SEEK_DATA);
		ssize_t n;

		if (data < 0 && errno == ENXIO)
			break;
		n = data < 0 ? -1 : pread(fd, buf, ZERO_CHUNK, data);
		empty = n > 0 && seen < ZERO_MAX && buf[0] == 0 &&
			memcmp(buf, buf + 1, (size_t)n - 1) == 0;
		at = (uint64_t)data + (uint64_t)MAX(n, 0);
		seen += (uint64_t)MAX(n, 0);
	}
	free(buf);
	return empty;
}

/* Is it what adding disk @id left, and nothing else? */
static bool is_left(struct node *node, const struct uuid *id, const char *path,
		    int fd)
{
	struct lsom_probe there;
	struct stat st;
	int rv;

	if (shard_file_lock(fd) < 0 || fstat(fd, &st) < 0 ||
	    !S_ISREG(st.st_mode))
		return false;
	if (is_empty(fd, (uint64_t)st.st_size))
		return true;
	rv = lsom_disk_identify(node->env, path, &there);
	return rv == 0 && uuid_equal(&there.disk, id) &&
	       uuid_equal(&there.cluster, &node->cluster) && there.unused;
}

static void left_remove(struct node *node, const struct uuid *id,
			const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd < 0) {
		if (errno != ENOENT)
			log_warn("%s: basaltd was ended while it was made a "
				 "disk; delete it if nobody needs it: %s",
				 path, strerror(errno));
		return;
	}
	if (!is_left(node, id, path, fd))
		log_warn("%s: basaltd was ended while it was made a disk, and "
			 "it is not empty: delete it if nobody needs it",
			 path);
	else if (unlink(path) < 0)
		log_warn("%s: basaltd was ended while it was made a disk: "
			 "delete it: %s",
			 path, strerror(errno));
	else
		log_info("%s removed: basaltd was ended while it was made a "
			 "disk",
			 path);
	close(fd);
}

/* The note @name: true if it is of an earlier life, with the path it is of. */
static bool note_read(struct node *node, const char *name, char path[256])
{
	char at[480], line[320];
	unsigned long long life;
	char *end;
	FILE *f;

	note_path(node, name, at, sizeof(at));
	f = fopen(at, "re");
	if (f == NULL)
		return false;
	if (fgets(line, sizeof(line), f) == NULL)
		line[0] = '\0';
	fclose(f);
	life = strtoull(line, &end, 10);
	path[0] = '\0';
	if (life == node->identity.incarnation)
		return false;
	end += strspn(end, " ");
	end[strcspn(end, "\n")] = '\0';
	if (end[0] == '/' && strlen(end) < 256)
		strcpy(path, end);
	return true;
}

void node__adding_clear(struct node *node)
{
	char at[480], path[256];
	struct dirent *e;
	struct uuid id;
	DIR *dir;

	note_path(node, "", at, sizeof(at));
	dir = opendir(at);
	while (dir != NULL && (e = readdir(dir)) != NULL) {
		if (uuid_parse(e->d_name, &id) < 0 ||
		    !note_read(node, e->d_name, path))
			continue;
		if (path[0] != '\0')
			left_remove(node, &id, path);
		node__adding_over(node, &id);
	}
	if (dir != NULL)
		closedir(dir);
}
