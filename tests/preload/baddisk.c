/*
 * baddisk: a disk whose reads and writes fail, as if its cable was pulled, or are
 * never answered.
 *
 *	LD_PRELOAD=baddisk.so BADDISK=FILE basaltd ...
 *
 * FILE names a disk by its path in the first line, or is empty, or not there: no
 * disk is bad then.  It is read anew whenever it has another modification time.
 * What is sent to that disk is answered with EIO: requests of io_uring by having
 * them read from or write to address 0 of this process (/proc/self/mem), where
 * nothing is; flushes by a wrong descriptor.  With a second line "silent" those of
 * io_uring are never answered: they wait for an eventfd that nobody writes to.
 * Calls that block do so until FILE says something else; with "silent ring" they
 * are answered as ever.
 */
#include "tests/preload/real.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>

static struct {
	pthread_mutex_t lock;
	struct timespec seen;
	bool any, silent, ring;
	dev_t dev;
	ino_t ino;
	int nowhere, never;
} bad = { .lock = PTHREAD_MUTEX_INITIALIZER, .nowhere = -1 };

static void reread(const char *file, const struct stat *now)
{
	char path[512] = "", more[32] = "";
	struct stat st;
	FILE *f = fopen(file, "re");

	bad.seen = now->st_mtim;
	bad.any = false;
	if (f == NULL)
		return;
	if (fgets(path, sizeof(path), f) != NULL) {
		path[strcspn(path, "\n")] = '\0';
		bad.any = stat(path, &st) == 0;
		bad.dev = bad.any ? st.st_dev : 0;
		bad.ino = bad.any ? st.st_ino : 0;
		if (fgets(more, sizeof(more), f) == NULL)
			more[0] = '\0';
		bad.ring = strcmp(more, "silent ring\n") == 0;
		bad.silent = bad.ring || strcmp(more, "silent\n") == 0;
	}
	fclose(f);
}

static bool is_bad(int fd)
{
	const char *file = getenv("BADDISK");
	struct stat st;
	bool is = false;
	int keep = errno;

	if (file == NULL)
		return false;
	pthread_mutex_lock(&bad.lock);
	if (bad.nowhere < 0) {
		bad.nowhere = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
		bad.never = eventfd(0, EFD_CLOEXEC);
	}
	if (stat(file, &st) < 0)
		bad.any = false;
	else if (memcmp(&st.st_mtim, &bad.seen, sizeof(bad.seen)) != 0)
		reread(file, &st);
	if (bad.any && fstat(fd, &st) == 0)
		is = st.st_dev == bad.dev && st.st_ino == bad.ino;
	pthread_mutex_unlock(&bad.lock);
	errno = keep;
	return is;
}

static void silence(struct io_uring_sqe *sqe)
{
	sqe->opcode = IORING_OP_POLL_ADD;
	sqe->fd = bad.never;
	sqe->off = sqe->addr = sqe->len = 0;
	sqe->poll32_events = POLLIN;
}

/* What is about to be submitted: requests of the bad disk go astray. */
static void divert(struct io_uring *ring)
{
	struct io_uring_sq *sq = &ring->sq;

	for (unsigned i = sq->sqe_head; i != sq->sqe_tail; i++) {
		struct io_uring_sqe *sqe = &sq->sqes[i & sq->ring_mask];

		switch (sqe->opcode) {
		case IORING_OP_READ:
		case IORING_OP_READV:
		case IORING_OP_WRITE:
		case IORING_OP_WRITEV:
			if (!is_bad(sqe->fd))
				break;
			if (bad.silent) {
				silence(sqe);
				break;
			}
			sqe->fd = bad.nowhere;
			sqe->off = 0;
			sqe->rw_flags = 0;
			break;
		case IORING_OP_FSYNC:
			if (is_bad(sqe->fd) && bad.silent)
				silence(sqe);
			else if (is_bad(sqe->fd))
				sqe->fd = -1;
			break;
		}
	}
}

int io_uring_submit(struct io_uring *ring)
{
	int (*f)(struct io_uring *) = real("io_uring_submit");

	divert(ring);
	return f(ring);
}

int io_uring_submit_and_wait(struct io_uring *ring, unsigned n)
{
	int (*f)(struct io_uring *, unsigned) =
		real("io_uring_submit_and_wait");

	divert(ring);
	return f(ring, n);
}

int io_uring_submit_and_wait_timeout(struct io_uring *ring,
				     struct io_uring_cqe **cqe, unsigned n,
				     struct __kernel_timespec *ts,
				     sigset_t *mask)
{
	int (*f)(struct io_uring *, struct io_uring_cqe **, unsigned,
		 struct __kernel_timespec *, sigset_t *) =
		real("io_uring_submit_and_wait_timeout");

	divert(ring);
	return f(ring, cqe, n, ts, mask);
}

static bool refused(int fd)
{
	const struct timespec pause = { .tv_nsec = 20 * 1000 * 1000 };
	bool is = is_bad(fd);

	if (is && bad.ring)
		return false;
	while (is && bad.silent) {
		nanosleep(&pause, NULL);
		is = is_bad(fd);
	}
	if (is)
		errno = EIO;
	return is;
}

/* The same function by two names: off_t has 64 bits. */
#define BOTH(name)                                                             \
	ssize_t name(int fd, const struct iovec *iov, int n, off_t off,        \
		     int fl)                                                   \
	{                                                                      \
		ssize_t (*f)(int, const struct iovec *, int, off_t, int) =     \
			real(#name);                                           \
                                                                               \
		return refused(fd) ? -1 : f(fd, iov, n, off, fl);              \
	}
BOTH(preadv2)
BOTH(pwritev2)
BOTH(preadv64v2)
BOTH(pwritev64v2)
