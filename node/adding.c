/*
 * adding: files that are being made disks.
 *
 * A daemon that is killed meanwhile leaves a file as large as the disk was to be,
 * and nobody knows of it.  So a note in data_dir names it for as long as nothing
 * of worth can be in it: from before it is made until it is formatted, before it
 * is opened first.  A note of an earlier life is an end that did not come: the
 * file goes if it has nothing, or what a format leaves.  Else it stays.
 *
 * A note is two lines: whose life it is of, and the path; "file" and, from when the
 * file is made, which one it is: its device, inode and birth.  Another one at that
 * path stays.  Older versions wrote the first line alone.
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
#include <string.h>
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
	if (fprintf(f, "%" PRIu64 " %s\nfile", node->identity.incarnation,
		    path) < 0)
		rv = -errno;
	if (fclose(f) < 0 && rv == 0)
		rv = -errno;
	if (rv < 0)
		unlink(at);
	return rv;
}

/* Which file it is.  The device's number may be another after a reboot. */
struct file_id {
	uint64_t device, inode;
	int64_t birth; /* s; with @birth_ns; 0: unknown */
	uint32_t birth_ns;
};

static int file_id(int fd, struct file_id *out)
{
	struct statx st;

	*out = (struct file_id){ 0 };
	if (statx(fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st) < 0)
		return -errno;
	*out = (struct file_id){
		.device = (uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor,
		.inode = st.stx_ino,
	};
	if ((st.stx_mask & STATX_BTIME) != 0) {
		out->birth = st.stx_btime.tv_sec;
		out->birth_ns = st.stx_btime.tv_nsec;
	}
	return 0;
}

static bool file_id_equal(const struct file_id *a, const struct file_id *b)
{
	if (a->inode != b->inode)
		return false;
	if (a->birth != 0 && b->birth != 0)
		return a->birth == b->birth && a->birth_ns == b->birth_ns;
	return a->device == b->device;
}

int node__adding_made(struct node *node, const struct uuid *id, int fd)
{
	char text[UUID_TEXT_LEN], at[480];
	struct file_id file;
	int rv = file_id(fd, &file);
	FILE *f;

	if (rv < 0)
		return rv;
	uuid_format(id, text);
	note_path(node, text, at, sizeof(at));
	f = fopen(at, "ae");
	if (f == NULL)
		return -errno;
	if (fprintf(f, " %" PRIu64 " %" PRIu64 " %" PRId64 " %" PRIu32 "\n",
		    file.device, file.inode, file.birth, file.birth_ns) < 0)
		rv = -errno;
	if (fclose(f) < 0 && rv == 0)
		rv = -errno;
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

/* What a note says. */
struct note {
	char path[256]; /* "": nothing that could be */
	bool of_file; /* it says which file, */
	bool made; /* namely this one: else it was not made yet, or just so */
	struct file_id file;
};

/* Is what lies at its path what it says?  Older ones do not say. */
static bool is_its(const struct note *note, int fd)
{
	struct file_id there;
	struct stat st;

	if (!note->of_file)
		return true;
	if (!note->made)
		return fstat(fd, &st) == 0 && st.st_size == 0;
	return file_id(fd, &there) == 0 && file_id_equal(&note->file, &there);
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
			const struct note *note)
{
	const char *path = note->path;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

	if (fd < 0) {
		if (errno != ENOENT)
			log_warn("%s: basaltd was ended while it was made a "
				 "disk; delete it if nobody needs it: %s",
				 path, strerror(errno));
		return;
	}
	if (!is_its(note, fd))
		log_warn("%s: basaltd was ended while a disk was made there, "
			 "and this is another file: it stays",
			 path);
	else if (!is_left(node, id, path, fd))
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

/* The second line; whole, it has an end. */
static void note_file(struct note *note, const char *line)
{
	uint64_t n[4] = { 0 };
	char *at = (char *)line + strlen("file");
	unsigned i = 0;

	note->of_file = strncmp(line, "file", strlen("file")) == 0;
	for (; note->of_file && i < ARRAY_LEN(n) && *at == ' '; i++)
		n[i] = strtoull(at, &at, 10);
	note->made = i == ARRAY_LEN(n) && *at == '\n';
	note->file =
		(struct file_id){ n[0], n[1], (int64_t)n[2], (uint32_t)n[3] };
}

/* The note @name: true if it is of an earlier life. */
static bool note_read(struct node *node, const char *name, struct note *note)
{
	char at[480], line[320], second[120] = "";
	unsigned long long life;
	char *end;
	FILE *f;

	note_path(node, name, at, sizeof(at));
	f = fopen(at, "re");
	if (f == NULL)
		return false;
	if (fgets(line, sizeof(line), f) == NULL)
		line[0] = '\0';
	else if (fgets(second, sizeof(second), f) == NULL)
		second[0] = '\0';
	fclose(f);
	note_file(note, second);
	life = strtoull(line, &end, 10);
	note->path[0] = '\0';
	if (life == node->identity.incarnation)
		return false;
	end += strspn(end, " ");
	end[strcspn(end, "\n")] = '\0';
	if (end[0] == '/' && strlen(end) < sizeof(note->path))
		strcpy(note->path, end);
	return true;
}

void node__adding_clear(struct node *node)
{
	char at[480];
	struct note note;
	struct dirent *e;
	struct uuid id;
	DIR *dir;

	note_path(node, "", at, sizeof(at));
	dir = opendir(at);
	while (dir != NULL && (e = readdir(dir)) != NULL) {
		if (uuid_parse(e->d_name, &id) < 0 ||
		    !note_read(node, e->d_name, &note))
			continue;
		if (note.path[0] != '\0')
			left_remove(node, &id, &note);
		node__adding_over(node, &id);
	}
	if (dir != NULL)
		closedir(dir);
}
