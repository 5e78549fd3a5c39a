/*
 * identity: node.id, the incarnation, the lock and cluster.key in data_dir.
 *
 * A small file is written beside its place, synced, renamed over it, and the
 * directory synced: after a power cut it is the old or the new one, whole.
 * Called before the loops run; blocking.
 */
#include "base/size.h"
#include "base/util.h"
#include "node/node_int.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

int node__dir_sync(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rv = 0;

	if (fd < 0)
		return -errno;
	if (fsync(fd) < 0)
		rv = -errno;
	close(fd);
	return rv;
}

static int write_all(int fd, const void *buf, size_t len)
{
	const char *p = buf;

	while (len > 0) {
		ssize_t n = write(fd, p, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

static int file_replace(const char *dir, const char *name, const void *buf,
			size_t len, mode_t mode)
{
	char path[300], tmp[310];
	int fd, rv;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	snprintf(tmp, sizeof(tmp), "%s.new", path);
	unlink(tmp); /* of a run that was cut off: its mode may be another */
	fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
	if (fd < 0)
		return -errno;
	rv = write_all(fd, buf, len);
	if (rv == 0 && fsync(fd) < 0)
		rv = -errno;
	close(fd);
	if (rv == 0 && rename(tmp, path) < 0)
		rv = -errno;
	if (rv < 0) {
		unlink(tmp);
		return rv;
	}
	return node__dir_sync(dir);
}

/* The text of a small file; -ENOENT, -EUCLEAN if @len does not hold it. */
static int file_read(const char *dir, const char *name, char *buf, size_t len)
{
	char path[300];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	n = read(fd, buf, len);
	if (n < 0)
		n = -errno;
	else if ((size_t)n == len)
		n = -EUCLEAN;
	else
		buf[n] = '\0';
	close(fd);
	return n < 0 ? (int)n : 0;
}

static int make_dirs(const char *path, mode_t mode)
{
	char copy[256];

	if (snprintf(copy, sizeof(copy), "%s", path) >= (int)sizeof(copy))
		return -ENAMETOOLONG;
	for (char *p = copy + 1; *p != '\0'; p++)
		if (*p == '/') {
			*p = '\0';
			if (mkdir(copy, 0755) < 0 && errno != EEXIST)
				return -errno;
			*p = '/';
		}
	return mkdir(copy, mode) < 0 && errno != EEXIST ? -errno : 0;
}

static int lock_take(const char *dir, struct node_identity *id, char *why,
		     size_t why_len)
{
	char path[300], text[32] = "";
	int rv;

	snprintf(path, sizeof(path), "%s/lock", dir);
	id->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (id->lock_fd < 0) {
		rv = -errno;
		snprintf(why, why_len, "%s: %s", path, strerror(-rv));
		return rv;
	}
	if (flock(id->lock_fd, LOCK_EX | LOCK_NB) < 0) {
		ssize_t n = read(id->lock_fd, text, sizeof(text) - 1);

		text[n > 0 ? n : 0] = '\0';
		text[strcspn(text, "\n")] = '\0';
		close(id->lock_fd);
		snprintf(why, why_len,
			 "%s is used by another basaltd (pid %s): stop it, or "
			 "give this one a data_dir of its own",
			 dir, text);
		return -EBUSY;
	}
	snprintf(text, sizeof(text), "%d\n", (int)getpid());
	if (ftruncate(id->lock_fd, 0) < 0 ||
	    pwrite(id->lock_fd, text, strlen(text), 0) < 0)
		return 0; /* the pid in it is for people only */
	return 0;
}

static int id_load(const char *dir, struct node_identity *id, char *why,
		   size_t why_len)
{
	char text[64];
	int rv = file_read(dir, "node.id", text, sizeof(text));

	if (rv == -ENOENT) {
		if (getrandom(id->id.b, sizeof(id->id.b), 0) !=
		    (ssize_t)sizeof(id->id.b))
			return -EIO;
		id->id.b[6] = (uint8_t)((id->id.b[6] & 0x0f) | 0x40);
		id->id.b[8] = (uint8_t)((id->id.b[8] & 0x3f) | 0x80);
		uuid_format(&id->id, text);
		strcat(text, "\n");
		rv = file_replace(dir, "node.id", text, strlen(text), 0644);
	} else if (rv == 0) {
		text[strcspn(text, "\n")] = '\0';
		if (uuid_parse(text, &id->id) < 0)
			rv = -EUCLEAN;
	}
	if (rv < 0)
		snprintf(why, why_len, "%s/node.id: %s%s", dir,
			 rv == -EUCLEAN ? "damaged" : strerror(-rv),
			 rv == -EUCLEAN ? ": put this node's id back into it "
					  "(it stands in the log of every "
					  "start)"
					: "");
	return rv;
}

static int incarnation_raise(const char *dir, struct node_identity *id,
			     char *why, size_t why_len)
{
	char text[64], *end;
	int rv = file_read(dir, "incarnation", text, sizeof(text));

	id->incarnation = 0;
	if (rv == 0) {
		end = strchr(text, '\n');
		if (end != NULL)
			*end = '\0';
		if (end == NULL ||
		    number_parse(text, 0, UINT64_MAX - 2, &id->incarnation) < 0)
			rv = -EUCLEAN;
	} else if (rv == -ENOENT) {
		rv = 0;
	}
	if (rv == 0) {
		id->incarnation++;
		snprintf(text, sizeof(text), "%" PRIu64 "\n", id->incarnation);
		rv = file_replace(dir, "incarnation", text, strlen(text), 0644);
	}
	if (rv < 0)
		snprintf(
			why, why_len, "%s/incarnation: %s%s", dir,
			rv == -EUCLEAN ? "damaged" : strerror(-rv),
			rv == -EUCLEAN
				? ": write a number into it that is larger than "
				  "any the log shows"
				: "");
	return rv;
}

int node__identity_open(const char *data_dir, struct node_identity *out,
			char *why, size_t why_len)
{
	char path[300];
	int rv = make_dirs(data_dir, 0750);

	memset(out, 0, sizeof(*out));
	snprintf(path, sizeof(path), "%s/index", data_dir);
	if (rv == 0)
		rv = make_dirs(path, 0750);
	if (rv < 0) {
		snprintf(why, why_len, "data_dir %s cannot be used: %s",
			 data_dir, strerror(-rv));
		return rv;
	}
	rv = lock_take(data_dir, out, why, why_len);
	if (rv < 0)
		return rv;
	rv = id_load(data_dir, out, why, why_len);
	if (rv == 0)
		rv = incarnation_raise(data_dir, out, why, why_len);
	if (rv < 0)
		close(out->lock_fd);
	return rv;
}

static const struct {
	const char *name;
	mode_t mode;
} files[NODE_IDENTITY_FILES] = {
	{ "node.id", 0644 },
	{ "incarnation", 0644 },
	{ "cluster.key", 0600 },
};

bool node__identity_has(const char *name)
{
	for (unsigned i = 0; i < NODE_IDENTITY_FILES; i++)
		if (strcmp(files[i].name, name) == 0)
			return true;
	return false;
}

int node__identity_copy(const char *data_dir, const char *to, const char **file)
{
	char text[300];
	int rv = 0;

	for (unsigned i = 0; i < NODE_IDENTITY_FILES && rv == 0; i++) {
		*file = files[i].name;
		rv = file_read(data_dir, *file, text, sizeof(text));
		if (rv == 0)
			rv = file_replace(to, *file, text, strlen(text),
					  files[i].mode);
	}
	node__wipe(text, sizeof(text));
	return rv;
}

void node__identity_close(struct node_identity *identity)
{
	close(identity->lock_fd);
}

/* "basalt cluster key 1\n" and the key in hex. */
#define KEY_HEAD "basalt cluster key 1\n"

int node__key_load(const char *data_dir, uint8_t key[NODE_KEY_LEN], char *why,
		   size_t why_len)
{
	char text[160] = "", path[300];
	size_t head = strlen(KEY_HEAD);
	struct stat st;
	int rv;

	snprintf(path, sizeof(path), "%s/cluster.key", data_dir);
	if (stat(path, &st) == 0 && (st.st_mode & 077) != 0) {
		snprintf(why, why_len,
			 "%s can be read by others than its owner: chmod 0600 "
			 "it, and think of who has it now",
			 path);
		return -EACCES;
	}
	rv = file_read(data_dir, "cluster.key", text, sizeof(text));
	if (rv == 0 && (strncmp(text, KEY_HEAD, head) != 0 ||
			strlen(text) != head + 2 * NODE_KEY_LEN + 1))
		rv = -EUCLEAN;
	for (unsigned i = 0; rv == 0 && i < NODE_KEY_LEN; i++) {
		const char *digits = text + head + 2 * i;
		char byte[3] = { digits[0], digits[1], '\0' };

		/* strtoul() would take blanks and signs, too. */
		if (!isxdigit((unsigned char)byte[0]) ||
		    !isxdigit((unsigned char)byte[1]))
			rv = -EUCLEAN;
		key[i] = (uint8_t)strtoul(byte, NULL, 16);
	}
	node__wipe(text, sizeof(text));
	if (rv < 0)
		snprintf(why, why_len, "%s: %s", path,
			 rv == -EUCLEAN ? "damaged, or of another version: put "
					  "back a copy of it"
					: strerror(-rv));
	return rv;
}

int node__key_make(const char *data_dir, const uint8_t key[NODE_KEY_LEN],
		   char *why, size_t why_len)
{
	char text[160];
	int n = snprintf(text, sizeof(text), "%s", KEY_HEAD), rv;

	for (unsigned i = 0; i < NODE_KEY_LEN; i++)
		n += snprintf(text + n, sizeof(text) - (size_t)n, "%02x",
			      key[i]);
	n += snprintf(text + n, sizeof(text) - (size_t)n, "\n");
	rv = file_replace(data_dir, "cluster.key", text, (size_t)n, 0600);
	node__wipe(text, sizeof(text));
	if (rv < 0)
		snprintf(why, why_len, "%s/cluster.key: %s", data_dir,
			 strerror(-rv));
	return rv;
}
