/*
 * dev_many: many blocking reads at once, on a worker's thread.
 *
 * They go through a ring of their own, for as long as the call takes, with up to
 * DEPTH of them at the device; each takes the place of one that ended.  What the
 * ring did not read whole is read on with a plain call: a short read, EINTR, and
 * all of it where a ring cannot be had.  So each result is what
 * shard__dev_read_now() would have said.
 */
#include "base/shard_int.h"

#include <assert.h>
#include <errno.h>

#define DEPTH 64u
#define READ_MAX (1u << 30) /* by one request; more is read on */
#define PENDING 1 /* a result that is not there yet */

/* What is left of a read of which the ring read @done bytes. */
static int read_on(struct env_dev *dev, const struct env_read *r, size_t done)
{
	if (done >= r->len)
		return 0;
	return shard__dev_read_now(dev, (uint8_t *)r->buf + done, r->len - done,
				   r->offset + done);
}

static void ended(struct env_dev *dev, struct env_read *r, int32_t res)
{
	if (res == -EINTR || res == -EAGAIN)
		r->result = read_on(dev, r, 0);
	else if (res < 0)
		r->result = shard__read_status(res);
	else
		r->result = read_on(dev, r, (size_t)res);
}

/* Those that ended; returns how many. */
static unsigned reap(struct env_dev *dev, struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	struct env_read *r;
	unsigned n = 0;
	int32_t res;

	while (io_uring_peek_cqe(ring, &cqe) == 0) {
		r = io_uring_cqe_get_data(cqe);
		res = cqe->res;
		io_uring_cqe_seen(ring, cqe);
		ended(dev, r, res);
		n++;
	}
	return n;
}

/* Prepare what may go beside @flight others; returns how many those are. */
static unsigned prepare(struct io_uring *ring, int fd, struct env_read *reads,
			unsigned n, unsigned flight)
{
	struct io_uring_sqe *sqe;
	unsigned i;

	for (i = 0; i < n && flight + i < DEPTH; i++) {
		sqe = io_uring_get_sqe(ring);
		if (sqe == NULL)
			break;
		io_uring_prep_read(sqe, fd, reads[i].buf,
				   (unsigned)MIN(reads[i].len, READ_MAX),
				   reads[i].offset);
		io_uring_sqe_set_data(sqe, &reads[i]);
	}
	return i;
}

/*
 * Returns with nothing at the device.  If the kernel takes no more, what it did
 * not take is still pending.
 */
static void ring_read(struct env_dev *dev, struct io_uring *ring,
		      struct env_read *reads, unsigned n)
{
	unsigned next = 0, flight = 0, more;
	struct io_uring_cqe *cqe;
	int rv = 0;

	while (flight > 0 || next < n) {
		more = prepare(ring, shard__dev_fd(dev), reads + next, n - next,
			       flight);
		next += more;
		flight += more;
		rv = io_uring_submit_and_wait(ring, 1);
		if (rv < 0 && rv != -EINTR)
			break;
		flight -= reap(dev, ring);
	}
	if (flight == 0)
		return;
	flight -= io_uring_sq_ready(ring);
	while (flight > 0) {
		rv = io_uring_wait_cqe(ring, &cqe);
		assert(rv == 0 || rv == -EINTR || rv == -EAGAIN);
		flight -= reap(dev, ring);
	}
}

void shard__dev_read_many_now(struct env_dev *dev, struct env_read *reads,
			      unsigned n)
{
	struct io_uring ring;
	unsigned i;

	for (i = 0; i < n; i++)
		reads[i].result = PENDING;
	if (n > 1 && io_uring_queue_init(MIN(n, DEPTH), &ring, 0) == 0) {
		ring_read(dev, &ring, reads, n);
		io_uring_queue_exit(&ring);
	}
	for (i = 0; i < n; i++)
		if (reads[i].result == PENDING)
			reads[i].result = read_on(dev, &reads[i], 0);
}
