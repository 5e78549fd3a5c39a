/* uring: disks of one shard beside each other at the kernel. */
#include "base/sgl.h"
#include "base/shard_int.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <linux/userfaultfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the kernel has read of a device, of both; NULL: what there is. */
static char *names;

FILE *__real_fopen(const char *path, const char *mode);
FILE *__wrap_fopen(const char *path, const char *mode);

FILE *__wrap_fopen(const char *path, const char *mode)
{
	const char *file = strrchr(path, '/');

	if (names != NULL && file != NULL &&
	    (strcmp(file, "/serial") == 0 || strcmp(file, "/model") == 0))
		return fmemopen(names, strlen(names), "r");
	return __real_fopen(path, mode);
}

static int left;
static bool done;

static void on_io(struct env_io *io, int64_t res)
{
	CHECK(res >= 0);
	done = --left == 0;
}

static struct env_dev *disk_open(const struct test_shard *ts, const char *name,
				 char path[600])
{
	struct env_dev_info info;
	struct env_dev *dev;
	char *dir = test_dir();

	snprintf(path, 600, "%s/%s", dir, name);
	free(dir);
	test_file(path, 1 << 20);
	CHECK_EQ(env_dev_open(ts->env, path, 0, &dev, &info), 0);
	return dev;
}

/* Memory of which no page is there before it is given one: who writes waits. */
struct absent {
	uint8_t *at;
	size_t len;
	int fd;
};

static bool absent_open(struct absent *a, size_t len)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { .mode = UFFDIO_REGISTER_MODE_MISSING };

	a->fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (a->fd < 0)
		return false; /* not allowed here */
	CHECK_EQ(ioctl(a->fd, UFFDIO_API, &api), 0);
	a->len = len;
	a->at = mmap(NULL, len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(a->at != MAP_FAILED);
	reg.range.start = (uintptr_t)a->at;
	reg.range.len = len;
	CHECK_EQ(ioctl(a->fd, UFFDIO_REGISTER, &reg), 0);
	return true;
}

static void absent_close(struct absent *a)
{
	munmap(a->at, a->len);
	close(a->fd);
}

static void absent_fill(const struct absent *a)
{
	struct uffdio_zeropage zero = { .range = { .start = (uintptr_t)a->at,
						   .len = a->len } };

	CHECK_EQ(ioctl(a->fd, UFFDIO_ZEROPAGE, &zero), 0);
}

/*
 * Requests that block where they are begun each hold a thread of the kernel's;
 * one disk with as many as it may have leaves others what they need.
 */
TEST(uring, a_disk_that_blocks_leaves_threads)
{
	enum { N = 600 };
	static struct env_io stuck_io[N], io = { .cb = on_io };
	static struct iovec iov[N];
	struct env_dev *dev, *stuck;
	struct absent absent = { .fd = -1 };
	struct test_shard ts;
	char path[600];
	int mem;

	/* The kernel's pages may be larger than ours. */
	if (!absent_open(&absent, ROUND_UP(N * PAGE_BYTES, 64u << 10))) {
		puts("# skipped: userfaultfd(2) is not allowed here");
		skip();
	}
	test_shard_open(&ts);
	dev = disk_open(&ts, "disk", path);
	stuck = disk_open(&ts, "stuck", path);
	mem = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
	CHECK(mem >= 0);
	CHECK_EQ(dup3(mem, shard__dev_fd(stuck), O_CLOEXEC),
		 shard__dev_fd(stuck));
	close(mem);
	for (unsigned i = 0; i < N; i++) {
		stuck_io[i].cb = on_io;
		iov[i] = (struct iovec){ absent.at + i * PAGE_BYTES,
					 PAGE_BYTES };
		env_dev_readv(ts.env, stuck, &stuck_io[i], &iov[i], 1,
			      (uintptr_t)page_zero()->data);
	}
	for (unsigned i = 0; i < 40; i++)
		shard_step(ts.env, MSEC);
	done = false;
	left = 1;
	env_dev_flush(ts.env, dev, &io);
	for (unsigned i = 0; i < 12000 && !done; i++)
		shard_step(ts.env, 10 * MSEC);
	CHECK(done);
	done = false;
	left = N;
	absent_fill(&absent);
	test_run(&ts, &done);
	env_dev_close(ts.env, stuck);
	env_dev_close(ts.env, dev);
	test_shard_close(&ts);
	absent_close(&absent);
}

/* A block device on the file @path; false: there are none here. */
static bool loop_open(const char *path, char dev[64], int *fd)
{
	struct loop_config config = { .info.lo_flags = LO_FLAGS_AUTOCLEAR };
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), file, n;

	if (control < 0)
		return false;
	file = open(path, O_RDWR | O_CLOEXEC);
	CHECK(file >= 0);
	config.fd = (unsigned)file;
	do { /* another may be faster */
		n = ioctl(control, LOOP_CTL_GET_FREE);
		if (n < 0)
			break;
		snprintf(dev, 64, "/dev/loop%d", n);
		*fd = open(dev, O_RDWR | O_CLOEXEC);
		n = *fd < 0 ? -1 : ioctl(*fd, LOOP_CONFIGURE, &config);
		if (n < 0 && *fd >= 0)
			close(*fd);
	} while (n < 0 && errno == EBUSY);
	close(file);
	close(control);
	return n >= 0;
}

static unsigned loop_depth(const char *dev)
{
	char path[128];
	unsigned depth = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/block/%s/queue/nr_requests",
		 dev + strlen("/dev/"));
	f = fopen(path, "re");
	CHECK(f != NULL);
	CHECK_EQ(fscanf(f, "%u", &depth), 1);
	fclose(f);
	return depth;
}

/* What a block device queues no more would block: it waits here. */
TEST(uring, no_more_than_a_device_queues)
{
	enum { N = 400 };
	static struct env_io io[N];
	char *dir = test_dir(), path[600], name[64];
	struct env_dev_info info;
	struct env_dev *dev;
	struct test_shard ts;
	struct iovec iov;
	struct sgl *in;
	unsigned depth;
	int fd = -1;

	snprintf(path, sizeof(path), "%s/under", dir);
	free(dir);
	test_file(path, 1 << 20);
	if (!loop_open(path, name, &fd)) {
		puts("# skipped: there are no loop devices here");
		skip();
	}
	depth = loop_depth(name);
	CHECK(depth < N);
	test_shard_open(&ts);
	CHECK_EQ(env_dev_open(ts.env, name, 0, &dev, &info), 0);
	CHECK(info.block_device);
	CHECK_EQ(sgl_new(ts.env->pages, PAGE_FRONT, 4096, 0, &in), 0);
	sgl_iov(in, 0, 4096, &iov, 1, NULL);
	done = false;
	left = N;
	for (unsigned i = 0; i < N; i++) {
		io[i].cb = on_io;
		env_dev_readv(ts.env, dev, &io[i], &iov, 1,
			      (uint64_t)(i % 256) * 4096);
	}
	CHECK_EQ(shard_of(ts.env)->uring.in_flight, depth);
	CHECK(TAILQ_EMPTY(&shard_of(ts.env)->uring.waiting));
	test_run(&ts, &done);
	sgl_put(in);
	env_dev_close(ts.env, dev);
	test_shard_close(&ts);
	close(fd);
}

/* The kernel hands on what a device says; the directory takes text, of one line. */
TEST(uring, a_device_that_says_more_than_text)
{
	char *dir = test_dir(), path[600], name[64];
	char said[] = "S\x01"
		      "12\x7f\t\xc3\xbc  \n";
	struct env_dev_info info;
	struct env_dev *dev;
	struct test_shard ts;
	int fd = -1;

	snprintf(path, sizeof(path), "%s/under", dir);
	free(dir);
	test_file(path, 1 << 20);
	if (!loop_open(path, name, &fd)) {
		puts("# skipped: there are no loop devices here");
		skip();
	}
	test_shard_open(&ts);
	names = said;
	CHECK_EQ(env_dev_open(ts.env, name, 0, &dev, &info), 0);
	names = NULL;
	CHECK_STR(info.serial, "S?12??\xc3\xbc");
	CHECK_STR(info.model, "S?12??\xc3\xbc");
	env_dev_close(ts.env, dev);
	test_shard_close(&ts);
	close(fd);
}
