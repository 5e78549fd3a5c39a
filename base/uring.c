/*
 * uring: block I/O of a shard through its io_uring.
 *
 * Appends are WRITEV with RWF_DSYNC, per request; requests of a turn go to the
 * kernel in one call.  Short transfers, EINTR and EAGAIN are carried on here,
 * so that rooms see all or an error.
 */
#define LOG_ROOM LOG_BASE
#include "base/log.h"
#include "base/shard_int.h"
#include "base/stats.h"
#include "base/tame.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define SQ_ENTRIES 256u
#define CQ_ENTRIES 4096u
/*
 * Of one device at the kernel, and no more than it queues: a device that hangs
 * leaves the others their places.
 */
#define DEV_ENTRIES 512u
/*
 * A request that blocks where it is begun (a flush, a large one, one more than
 * its device queues) does so on one of these threads of the kernel's, which come
 * as they are needed: all that one device may have, and some for the others.  The
 * kernel's own bound of 4 a CPU is soon reached by a device that hangs.
 */
#define WORKERS_MAX (DEV_ENTRIES + 64u)

enum { OP_READ, OP_WRITE, OP_FLUSH, OPS };

static struct histogram times[OPS] = {
	[OP_READ] = { .name = "basalt_base_device_read_seconds",
		      .stage = "device read",
		      .rank = 40,
		      .help = "reads of disks, in the kernel and below" },
	[OP_WRITE] = { .name = "basalt_base_device_write_seconds",
		       .stage = "device write",
		       .rank = 41,
		       .help = "writes to disks until they are durable" },
	[OP_FLUSH] = { .name = "basalt_base_device_flush_seconds",
		       .stage = "device flush",
		       .rank = 42,
		       .help = "flushes of disks" },
};

void shard__uring_times_register(void)
{
	for (unsigned i = 0; i < OPS; i++)
		histogram_register(&times[i]);
}

struct env_dev {
	struct shard *shard;
	int fd;
	uint32_t number; /* in the record */
	bool recorded;
	unsigned in_flight;
	_Atomic uint64_t waits_ns; /* for an answer since then; 0: for none */
	unsigned entries; /* of those: at the kernel, or next in its turn */
	unsigned entries_max;
	struct env_io_list waiting; /* the others */
};

/* ---- submitting ---- */

static inline void io_prepare(struct env_io *io, struct io_uring_sqe *sqe)
{
	struct env_dev *dev = io->dev;
	const struct iovec *iov = io->iov;
	unsigned n = io->iov_count;
	uint64_t skip = io->done;

	if (io->op == OP_FLUSH) {
		io_uring_prep_fsync(sqe, dev->fd, IORING_FSYNC_DATASYNC);
		io_uring_sqe_set_data(sqe, io);
		return;
	}
	while (skip > 0 && skip >= iov->iov_len) {
		skip -= iov->iov_len;
		iov++;
		n--;
	}
	if (skip > 0) { /* in the middle of one: that alone, then the rest */
		io->part.iov_base = (char *)iov->iov_base + skip;
		io->part.iov_len = iov->iov_len - skip;
		iov = &io->part;
		n = 1;
	}
	n = MIN(n, (unsigned)IOV_MAX);
	if (io->op == OP_READ)
		io_uring_prep_readv(sqe, dev->fd, iov, n,
				    io->offset + io->done);
	else
		io_uring_prep_writev2(sqe, dev->fd, iov, n,
				      io->offset + io->done,
				      io->flags & ENV_DURABLE ? RWF_DSYNC : 0);
	io_uring_sqe_set_data(sqe, io);
}

static inline void io_submit(struct env_io *io)
{
	struct env_dev *dev = io->dev;
	struct uring *u = &dev->shard->uring;
	struct io_uring_sqe *sqe = NULL;

	if (dev->entries == dev->entries_max) {
		TAILQ_INSERT_TAIL(&dev->waiting, io, link);
		return;
	}
	dev->entries++;
	if (u->in_flight < CQ_ENTRIES && TAILQ_EMPTY(&u->waiting))
		sqe = io_uring_get_sqe(&u->ring);
	if (sqe == NULL) {
		TAILQ_INSERT_TAIL(&u->waiting, io, link);
		return;
	}
	io_prepare(io, sqe);
	u->in_flight++;
}

static inline void waits_set(struct env_dev *dev, uint64_t since_ns)
{
	atomic_store_explicit(&dev->waits_ns, since_ns, memory_order_relaxed);
}

static inline void asked(struct env_dev *dev)
{
	if (dev->in_flight++ == 0)
		waits_set(dev, env_now(&dev->shard->env));
}

static inline void answered(struct env_dev *dev)
{
	assert(dev->in_flight > 0);
	waits_set(dev, --dev->in_flight > 0 ? env_now(&dev->shard->env) : 0);
}

uint64_t shard__dev_silent_ns(const struct env_dev *dev, uint64_t now_ns)
{
	uint64_t since =
		atomic_load_explicit(&dev->waits_ns, memory_order_relaxed);

	return since != 0 && since < now_ns ? now_ns - since : 0;
}

static void io_start(struct env_dev *dev, struct env_io *io, uint8_t op,
		     const struct iovec *iov, unsigned n, uint64_t offset,
		     unsigned flags)
{
	uint64_t len = 0;

	assert(n <= ENV_IOV_MAX);
	io->dev = dev;
	io->iov = iov;
	io->iov_count = n;
	io->op = op;
	io->offset = offset;
	io->flags = flags;
	io->done = 0;
	io->since_ns = env_now(&dev->shard->env);
	for (unsigned i = 0; i < n; i++)
		len += iov[i].iov_len;
	io->len = len;
	asked(dev);
	if (dev->recorded && op != OP_READ)
		io->impl[0] = (void *)(uintptr_t)record_event(
			op == OP_WRITE ? RECORD_WRITE : RECORD_FLUSH,
			dev->number, 0, offset, flags, iov, n);
	io_submit(io);
}

void shard__dev_readv(struct env_dev *dev, struct env_io *io,
		      const struct iovec *iov, unsigned n, uint64_t offset)
{
	io_start(dev, io, OP_READ, iov, n, offset, 0);
}

void shard__dev_writev(struct env_dev *dev, struct env_io *io,
		       const struct iovec *iov, unsigned n, uint64_t offset,
		       unsigned flags)
{
	io_start(dev, io, OP_WRITE, iov, n, offset, flags);
}

void shard__dev_flush(struct env_dev *dev, struct env_io *io)
{
	io_start(dev, io, OP_FLUSH, NULL, 0, 0, 0);
}

/* ---- blocking transfers, on a worker's thread ---- */

/*
 * The kernel's word for what does not match its checksum (dm-integrity, an AEAD of
 * dm-crypt, T10 PI): it is lost as much as what the device cannot read.
 */
int shard__read_status(int status)
{
	return status == -EILSEQ ? -ENODATA : status;
}

static int transfer_now(struct env_dev *dev, uint8_t op, struct iovec iov,
			uint64_t offset, int flags)
{
	ssize_t rv;

	while (iov.iov_len > 0) {
		rv = op == OP_READ
			     ? preadv2(dev->fd, &iov, 1, (off_t)offset, 0)
			     : pwritev2(dev->fd, &iov, 1, (off_t)offset, flags);
		if (rv < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (rv <= 0)
			return rv < 0 ? -errno : -EIO;
		iov.iov_base = (uint8_t *)iov.iov_base + rv;
		iov.iov_len -= (size_t)rv;
		offset += (uint64_t)rv;
	}
	return 0;
}

int shard__dev_read_now(struct env_dev *dev, void *buf, size_t len,
			uint64_t offset)
{
	struct iovec iov = { buf, len };

	return shard__read_status(transfer_now(dev, OP_READ, iov, offset, 0));
}

int shard__dev_write_now(struct env_dev *dev, const void *buf, size_t len,
			 uint64_t offset, unsigned flags)
{
	struct iovec iov = { (void *)(uintptr_t)buf, len };
	uint64_t id = 0;
	int rv;

	if (dev->recorded)
		id = record_event(RECORD_WRITE, dev->number, 0, offset, flags,
				  &iov, 1);
	rv = transfer_now(dev, OP_WRITE, iov, offset,
			  flags & ENV_DURABLE ? RWF_DSYNC : 0);
	if (dev->recorded)
		record_event(RECORD_DONE, dev->number, id,
			     rv < 0 ? (uint64_t)(int64_t)rv : len, 0, NULL, 0);
	return rv;
}

/* Before Linux 6.12 the ring has nothing for it. */
int shard__dev_discard_now(struct env_dev *dev, uint64_t offset, uint64_t len)
{
	uint64_t range[2] = { offset, len };

	if (dev->recorded)
		record_event(RECORD_DISCARD, dev->number, 0, offset, 0,
			     &(struct iovec){ &len, sizeof(len) }, 1);
	return ioctl(dev->fd, BLKDISCARD, range) < 0 ? -errno : 0;
}

static char uv_poll_tag; /* user data of the poll */

bool shard__uring_arm(struct shard *s)
{
	struct uring *u = &s->uring;
	struct io_uring_sqe *sqe;

	if (u->uv_armed)
		return true;
	sqe = io_uring_get_sqe(&u->ring);
	if (sqe == NULL) {
		/* Full at each turn under load: sockets do not wait for less. */
		shard__uring_submit(s);
		sqe = io_uring_get_sqe(&u->ring);
	}
	if (sqe == NULL)
		return false;
	/* Once: armed again before each sleep it cannot miss what is ready. */
	io_uring_prep_poll_add(sqe, uv_backend_fd(&s->loop), POLLIN);
	io_uring_sqe_set_data(sqe, &uv_poll_tag);
	u->uv_armed = true;
	return true;
}

static void queue_waiting(struct uring *u)
{
	struct io_uring_sqe *sqe;
	struct env_io *io;

	while ((io = TAILQ_FIRST(&u->waiting)) != NULL &&
	       u->in_flight < CQ_ENTRIES) {
		sqe = io_uring_get_sqe(&u->ring);
		if (sqe == NULL)
			break;
		TAILQ_REMOVE(&u->waiting, io, link);
		io_prepare(io, sqe);
		u->in_flight++;
	}
}

void shard__uring_submit(struct shard *s)
{
	struct uring *u = &s->uring;
	int rv;

	do {
		queue_waiting(u);
		if (io_uring_sq_ready(&u->ring) == 0)
			return;
		rv = io_uring_submit(&u->ring);
		if (rv == -EAGAIN || rv == -EBUSY)
			return; /* the kernel is short: after reaping */
		assert(rv >= 0 || rv == -EINTR);
	} while (rv < 0 || !TAILQ_EMPTY(&u->waiting));
}

void shard__uring_wait(struct shard *s, uint64_t ns)
{
	struct uring *u = &s->uring;
	struct __kernel_timespec ts = { .tv_sec = (long long)(ns / SEC),
					.tv_nsec = (long long)(ns % SEC) };
	struct io_uring_cqe *cqe;
	int rv;

	/* More than the ring has places: nobody sleeps on what is not asked. */
	if (!TAILQ_EMPTY(&u->waiting))
		shard__uring_submit(s);
	rv = io_uring_submit_and_wait_timeout(
		&u->ring, &cqe, 1, ns == UINT64_MAX ? NULL : &ts, NULL);
	assert(rv >= 0 || rv == -ETIME || rv == -EINTR || rv == -EAGAIN ||
	       rv == -EBUSY);
}

bool shard__uring_ready(struct shard *s)
{
	struct io_uring_cqe *cqe;

	return io_uring_peek_cqe(&s->uring.ring, &cqe) == 0;
}

/* ---- completing ---- */

/* One of its requests less is at the kernel: the next goes there. */
static inline void entry_free(struct env_dev *dev)
{
	struct env_io *next = TAILQ_FIRST(&dev->waiting);

	assert(dev->entries > 0);
	dev->entries--;
	if (next == NULL)
		return;
	TAILQ_REMOVE(&dev->waiting, next, link);
	io_submit(next);
}

static void io_complete(struct env_io *io, int32_t res)
{
	struct env_dev *dev = io->dev;
	int64_t result = res;

	if (res == -EINTR || res == -EAGAIN) {
		io_submit(io);
		return;
	}
	if (res >= 0 && io->op != OP_FLUSH) {
		io->done += (uint32_t)res;
		if (io->done < io->len && res > 0) {
			io_submit(io);
			return;
		}
		/* Nothing moved: the end of a device that shrank. */
		result = io->done < io->len ? -EIO : (int64_t)io->len;
	}
	if (dev->recorded && io->op != OP_READ)
		record_event(RECORD_DONE, dev->number,
			     (uint64_t)(uintptr_t)io->impl[0], (uint64_t)result,
			     0, NULL, 0);
	histogram_add(&times[io->op], env_now(&dev->shard->env) - io->since_ns);
	answered(dev);
	io->cb(io, result);
}

/* Without a call into the library, or the kernel, where nothing is there. */
bool shard__uring_any(const struct uring *u)
{
	const unsigned asks = IORING_SQ_CQ_OVERFLOW | IORING_SQ_TASKRUN;

	return io_uring_cq_ready(&u->ring) > 0 ||
	       (IO_URING_READ_ONCE(*u->ring.sq.kflags) & asks) != 0;
}

void shard__uring_reap(struct shard *s)
{
	struct uring *u = &s->uring;
	struct io_uring_cqe *cqe;

	for (unsigned n = 0; n < 512 && shard__uring_any(u) &&
			     io_uring_peek_cqe(&u->ring, &cqe) == 0;
	     n++) {
		struct env_io *io = io_uring_cqe_get_data(cqe);
		int32_t res = cqe->res;

		io_uring_cqe_seen(&u->ring, cqe);
		if ((void *)io == &uv_poll_tag) {
			u->uv_armed = false;
			u->uv_ready = true;
			continue;
		}
		assert(u->in_flight > 0);
		u->in_flight--;
		entry_free(io->dev);
		io_complete(io, res);
	}
}

int shard__uring_open(struct shard *s)
{
	struct uring *u = &s->uring;
	struct io_uring_params p = { .flags = IORING_SETUP_CQSIZE |
					      IORING_SETUP_COOP_TASKRUN |
					      IORING_SETUP_TASKRUN_FLAG |
					      IORING_SETUP_SINGLE_ISSUER,
				     .cq_entries = CQ_ENTRIES };
	unsigned workers[2] = { WORKERS_MAX, 0 }; /* 0: as it is */
	int rv;

	TAILQ_INIT(&u->waiting);
	rv = io_uring_queue_init_params(SQ_ENTRIES, &u->ring, &p);
	if (rv == -EINVAL) { /* a kernel older than 6.0 */
		p = (struct io_uring_params){ .flags = IORING_SETUP_CQSIZE,
					      .cq_entries = CQ_ENTRIES };
		rv = io_uring_queue_init_params(SQ_ENTRIES, &u->ring, &p);
	}
	if (rv < 0) {
		log_error("io_uring cannot be set up: %s%s", strerror(-rv),
			  rv == -EPERM || rv == -ENOSYS
				  ? ": allow it in the seccomp profile if this "
				    "is a container, and by sysctl "
				    "kernel.io_uring_disabled = 0"
				  : "");
		return rv;
	}
	/* Not before Linux 5.15: then with the bound there is. */
	(void)io_uring_register_iowq_max_workers(&u->ring, workers);
	return 0;
}

void shard__uring_close(struct shard *s)
{
	assert(s->uring.in_flight == 0);
	assert(TAILQ_EMPTY(&s->uring.waiting));
	io_uring_queue_exit(&s->uring.ring);
}

/* ---- devices ---- */

/* A serial or a model is what the device says, of whatever bytes. */
static void sys_text(dev_t dev, const char *what, char *out, size_t len)
{
	char path[128];
	FILE *f;

	out[0] = '\0';
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s", major(dev),
		 minor(dev), what);
	f = fopen(path, "re");
	if (f == NULL)
		return;
	if (fgets(out, (int)len, f) == NULL)
		out[0] = '\0';
	fclose(f);
	for (size_t n = strlen(out); n > 0 && (unsigned char)out[n - 1] <= ' ';
	     n--)
		out[n - 1] = '\0';
	text_tame(out);
}

static int dev_describe(int fd, struct env_dev_info *info)
{
	struct stat st;
	char max[32];
	int block;

	memset(info, 0, sizeof(*info));
	if (fstat(fd, &st) < 0)
		return -errno;
	info->logical_block = 512;
	if (S_ISREG(st.st_mode)) {
		info->bytes = (uint64_t)st.st_size;
		return 0;
	}
	if (!S_ISBLK(st.st_mode))
		return -EINVAL;
	info->block_device = true;
	if (ioctl(fd, BLKGETSIZE64, &info->bytes) < 0 ||
	    ioctl(fd, BLKSSZGET, &block) < 0)
		return -errno;
	info->logical_block = (uint32_t)block;
	sys_text(st.st_rdev, "device/serial", info->serial,
		 sizeof(info->serial));
	if (info->serial[0] == '\0')
		sys_text(st.st_rdev, "serial", info->serial,
			 sizeof(info->serial));
	sys_text(st.st_rdev, "device/model", info->model, sizeof(info->model));
	sys_text(st.st_rdev, "queue/discard_max_bytes", max, sizeof(max));
	if (max[0] == '\0') /* a partition */
		sys_text(st.st_rdev, "../queue/discard_max_bytes", max,
			 sizeof(max));
	info->can_discard = strtoull(max, NULL, 10) > 0;
	return info->logical_block > 4096 ? -EINVAL : 0;
}

/*
 * As many as the device @dev, or the one it is a part of, queues before the next
 * one blocks.
 */
static unsigned entries_of(dev_t dev)
{
	const char *const where[] = { "", "../" };
	char path[128], text[32];
	unsigned long depth;

	for (size_t i = 0; i < ARRAY_LEN(where); i++) {
		/* Those that pass requests on (md, dm) have no queue. */
		snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%smq",
			 major(dev), minor(dev), where[i]);
		if (access(path, F_OK) < 0)
			continue;
		snprintf(path, sizeof(path), "%squeue/nr_requests", where[i]);
		sys_text(dev, path, text, sizeof(text));
		depth = strtoul(text, NULL, 10);
		return depth > 0 ? (unsigned)MIN(depth, DEV_ENTRIES)
				 : DEV_ENTRIES;
	}
	return DEV_ENTRIES;
}

/* Before the next try at what another holds.  False: it was tried for long. */
static bool held_pause(unsigned *tries)
{
	const struct timespec pause = { .tv_nsec = 50 * (long)MSEC };

	if (++*tries == 60)
		return false;
	nanosleep(&pause, NULL);
	return true;
}

int shard_file_lock(int fd)
{
	unsigned tries = 0;

	do {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			return 0;
		if (errno != EWOULDBLOCK && errno != EINTR)
			return -errno;
	} while (held_pause(&tries));
	return -EBUSY;
}

/* O_EXCL is a device's lock, and let go of as late: it is waited for, too. */
static int fd_open(const char *path, int mode)
{
	unsigned tries = 0;
	int fd;

	do
		fd = open(path, mode | O_DIRECT | O_CLOEXEC);
	while (fd < 0 && errno == EBUSY && held_pause(&tries));
	return fd < 0 ? -errno : fd;
}

int shard__dev_open(struct env *env, const char *path, unsigned flags,
		    struct env_dev **out, struct env_dev_info *info)
{
	static atomic_uint next_number = 1;
	int mode = flags & ENV_DEV_RDONLY ? O_RDONLY : O_RDWR;
	struct env_dev *dev;
	struct stat st;
	int rv;

	if (stat(path, &st) < 0)
		return -errno;
	if (S_ISBLK(st.st_mode) && flags & ENV_DEV_EXCLUSIVE)
		mode |= O_EXCL; /* a mount or a holder: EBUSY */
	dev = calloc(1, sizeof(*dev));
	if (dev == NULL)
		return -ENOMEM;
	dev->shard = shard_of(env);
	dev->entries_max = DEV_ENTRIES;
	TAILQ_INIT(&dev->waiting);
	dev->fd = fd_open(path, mode);
	if (dev->fd < 0) {
		rv = dev->fd;
		if (rv == -EINVAL)
			log_error("%s: its file system has no O_DIRECT; use "
				  "another one, or a block device",
				  path);
		goto err_free;
	}
	if (flags & ENV_DEV_EXCLUSIVE) {
		rv = shard_file_lock(dev->fd);
		if (rv < 0)
			goto err_close;
	}
	rv = dev_describe(dev->fd, info);
	if (rv < 0)
		goto err_close;
	if (info->block_device)
		dev->entries_max = entries_of(st.st_rdev);
	dev->number = atomic_fetch_add(&next_number, 1);
	dev->recorded = record_on();
	if (dev->recorded) {
		struct iovec iov = { (void *)path, strlen(path) };

		record_event(RECORD_OPEN, dev->number, 0, info->bytes, flags,
			     &iov, 1);
	}
	*out = dev;
	return 0;

err_close:
	close(dev->fd);
err_free:
	free(dev);
	return rv;
}

void shard__dev_close(struct env_dev *dev)
{
	assert(dev->in_flight == 0);
	close(dev->fd);
	free(dev);
}

int shard__dev_fd(const struct env_dev *dev)
{
	return dev->fd;
}
