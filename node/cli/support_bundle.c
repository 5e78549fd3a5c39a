/*
 * support_bundle: a tar archive (ustar, POSIX.1-1988), compressed by zlib as it is
 * written: what is in it is in no other file before, and no program is needed.
 */
#include "base/util.h"
#include "node/cli/support.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#define BLOCK 512u

struct bundle {
	char path[PATH_MAX], temp[PATH_MAX];
	char folder[80];
	int fd, status;
	gzFile gz;
	time_t when;
};

struct tar_head {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8];
	char type, link[100], magic[6], version[2];
	char user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};

static_assert(sizeof(struct tar_head) == BLOCK, "as the format has it");

/* ---- what is half written goes with us ---- */

static const int interrupts[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
static char interrupted[PATH_MAX];

static void on_interrupt(int signum)
{
	unlink(interrupted);
	raise(signum); /* by its default now: SA_RESETHAND */
}

static void interrupts_catch(const char *temp)
{
	struct sigaction act = { .sa_handler = on_interrupt,
				 .sa_flags = (int)SA_RESETHAND };

	strcpy(interrupted, temp);
	for (unsigned i = 0; i < ARRAY_LEN(interrupts); i++)
		sigaction(interrupts[i], &act, NULL);
	/* A file that may not grow is an error, not the end. */
	signal(SIGXFSZ, SIG_IGN);
}

static void interrupts_leave(void)
{
	for (unsigned i = 0; i < ARRAY_LEN(interrupts); i++)
		signal(interrupts[i], SIG_DFL);
}

/* ---- from the beginning to the end ---- */

static int temp_open(struct bundle *b)
{
	mode_t mask = umask(077);
	int fd = mkostemp(b->temp, O_CLOEXEC);

	if (fd < 0)
		fd = -errno;
	umask(mask);
	return fd;
}

int bundle_open(const char *path, const char *folder, struct bundle **out)
{
	struct bundle *b;
	struct stat st;
	int rv, fd;

	if (strlen(path) + sizeof(".XXXXXX") > PATH_MAX)
		return -ENAMETOOLONG;
	if (lstat(path, &st) == 0)
		return -EEXIST;
	b = calloc(1, sizeof(*b));
	if (b == NULL)
		return -ENOMEM;
	strcpy(b->path, path);
	snprintf(b->temp, sizeof(b->temp), "%s.XXXXXX", path);
	snprintf(b->folder, sizeof(b->folder), "%s", folder);
	b->when = time(NULL);
	b->fd = temp_open(b);
	if (b->fd < 0) {
		rv = b->fd;
		goto err_free;
	}
	interrupts_catch(b->temp);
	fd = fcntl(b->fd, F_DUPFD_CLOEXEC, 0); /* gzclose() closes it */
	if (fd < 0) {
		rv = -errno;
		goto err_file;
	}
	b->gz = gzdopen(fd, "wb");
	if (b->gz == NULL) {
		rv = -ENOMEM;
		goto err_dup;
	}
	*out = b;
	return 0;

err_dup:
	close(fd);
err_file:
	close(b->fd);
	unlink(b->temp);
	interrupts_leave();
err_free:
	free(b);
	return rv;
}

static void put(struct bundle *b, const void *data, size_t len)
{
	int error;

	if (b->status < 0 || len == 0)
		return;
	errno = 0;
	if (gzfwrite(data, len, 1, b->gz) == 1)
		return;
	error = errno; /* of the write that failed */
	b->status = error != 0 ? -error : -EIO;
}

static void head_put(struct bundle *b, const char *name, size_t len)
{
	struct tar_head head = { .type = '0', .magic = "ustar" };
	const uint8_t *bytes = (const uint8_t *)&head;
	unsigned sum = 0;

	snprintf(head.name, sizeof(head.name), "%s/%s", b->folder, name);
	strcpy(head.mode, "0000600");
	strcpy(head.uid, "0000000");
	strcpy(head.gid, "0000000");
	snprintf(head.size, sizeof(head.size), "%011zo", len);
	snprintf(head.mtime, sizeof(head.mtime), "%011llo",
		 (unsigned long long)b->when);
	memcpy(head.version, "00", 2);
	/* Over the head with blanks in place of the sum. */
	memset(head.sum, ' ', sizeof(head.sum));
	for (size_t i = 0; i < sizeof(head); i++)
		sum += bytes[i];
	snprintf(head.sum, sizeof(head.sum), "%06o", sum);
	put(b, &head, sizeof(head));
}

void bundle_add(struct bundle *b, const char *name, const void *data,
		size_t len)
{
	static const uint8_t zeros[BLOCK];

	head_put(b, name, len);
	put(b, data, len);
	put(b, zeros, ROUND_UP(len, BLOCK) - len);
}

int bundle_error(const struct bundle *b)
{
	return b->status;
}

/* Not over what came there meanwhile. */
static int rename_new(const char *from, const char *to)
{
	if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (errno != EINVAL && errno != ENOSYS)
		return -errno;
	/* The file system cannot; it may know links. */
	if (link(from, to) < 0)
		return -errno;
	unlink(from);
	return 0;
}

/* What the file system keeps back fails here. */
static int finish(struct bundle *b, size_t *bytes)
{
	static const uint8_t end[2 * BLOCK];
	struct stat st = { 0 };

	put(b, end, sizeof(end));
	errno = 0;
	if (gzclose(b->gz) != Z_OK && b->status == 0)
		b->status = errno != 0 ? -errno : -EIO;
	if (b->status == 0 && (fsync(b->fd) < 0 || fstat(b->fd, &st) < 0))
		b->status = -errno;
	if (b->status == 0)
		*bytes = (size_t)st.st_size;
	return b->status;
}

int bundle_close(struct bundle *b, size_t *bytes)
{
	int rv = finish(b, bytes);

	close(b->fd);
	if (rv == 0)
		rv = rename_new(b->temp, b->path);
	if (rv < 0)
		unlink(b->temp);
	interrupts_leave();
	free(b);
	return rv;
}
