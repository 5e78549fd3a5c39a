/* The shard: tasks, timers, lanes and the ring, on a real file. */
#include "base/page.h"
#include "base/sgl.h"
#include "base/shard_int.h"
#include "base/util.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static bool done;
static int order[8], order_count;

struct numbered {
	struct env_task task;
	struct env_timer timer;
	int number;
};

static void on_task(struct env_task *task)
{
	order[order_count++] =
		container_of(task, struct numbered, task)->number;
	done = order_count == 3;
}

static void on_timer(struct env_timer *timer)
{
	order[order_count++] =
		container_of(timer, struct numbered, timer)->number;
	done = order_count == 3;
}

/* Deferred tasks run later and in order. */
TEST(shard, defer_in_order)
{
	struct numbered n[3] = { { .number = 1 },
				 { .number = 2 },
				 { .number = 3 } };
	struct test_shard ts;

	test_shard_open(&ts);
	order_count = 0;
	done = false;
	for (int i = 0; i < 3; i++) {
		n[i].task.cb = on_task;
		env_defer(ts.env, &n[i].task);
		env_defer(ts.env, &n[i].task); /* once all the same */
	}
	CHECK_EQ(order_count, 0);
	test_run(&ts, &done);
	CHECK_EQ(order[0], 1);
	CHECK_EQ(order[2], 3);
	test_shard_close(&ts);
}

/* Timers fire by due time; a stopped one does not; a moved one moves. */
TEST(shard, timers)
{
	struct numbered n[4] = { { .number = 1 },
				 { .number = 2 },
				 { .number = 3 },
				 { .number = 4 } };
	struct test_shard ts;

	test_shard_open(&ts);
	order_count = 0;
	done = false;
	for (int i = 0; i < 4; i++)
		n[i].timer.cb = on_timer;
	env_timer_start(ts.env, &n[0].timer, 20 * MSEC);
	env_timer_start(ts.env, &n[1].timer, 5 * MSEC);
	env_timer_start(ts.env, &n[2].timer, 1 * MSEC);
	env_timer_start(ts.env, &n[3].timer, 2 * MSEC);
	env_timer_start(ts.env, &n[2].timer, 10 * MSEC);
	env_timer_stop(ts.env, &n[3].timer);
	test_run(&ts, &done);
	CHECK_EQ(order[0], 2);
	CHECK_EQ(order[1], 3);
	CHECK_EQ(order[2], 1);
	test_shard_close(&ts);
}

struct counted {
	struct env_work work;
	int ran;
};
/* A task and a timer that start themselves again from their own callbacks. */
struct again {
	struct env *env;
	struct env_task task;
	struct env_timer timer;
	unsigned tasks, fires;
};

static void again_task(struct env_task *task)
{
	struct again *a = container_of(task, struct again, task);

	if (++a->tasks < 10)
		env_defer(a->env, task);
	done = a->tasks == 10 && a->fires == 10;
}

static void again_timer(struct env_timer *timer)
{
	struct again *a = container_of(timer, struct again, timer);

	if (++a->fires < 10)
		env_timer_start(a->env, timer, 0);
	done = a->tasks == 10 && a->fires == 10;
}

TEST(shard, again_from_the_callback)
{
	struct again a = { .task.cb = again_task, .timer.cb = again_timer };
	struct test_shard ts;

	test_shard_open(&ts);
	a.env = ts.env;
	done = false;
	env_defer(a.env, &a.task);
	env_timer_start(a.env, &a.timer, 0);
	test_run(&ts, &done);
	CHECK(!env_timer_active(&a.timer));
	test_shard_close(&ts);
}

static int works;

static void work_fn(struct env_work *work)
{
	struct counted *c = container_of(work, struct counted, work);

	c->ran = ++works; /* one lane: no race */
}

static void work_done(struct env_work *work)
{
	struct counted *c = container_of(work, struct counted, work);

	done = c->ran == 100;
}

TEST(shard, lane_keeps_order)
{
	static struct counted c[100];
	struct env_lane *lane;
	struct test_shard ts;

	test_shard_open(&ts);
	done = false;
	works = 0;
	CHECK_EQ(env_lane_open(ts.env, "test", &lane), 0);
	for (int i = 0; i < 100; i++) {
		c[i].work.work = work_fn;
		c[i].work.done = work_done;
		env_work(ts.env, lane, &c[i].work);
	}
	test_run(&ts, &done);
	for (int i = 0; i < 100; i++)
		CHECK_EQ(c[i].ran, i + 1);
	env_lane_close(ts.env, lane);
	test_shard_close(&ts);
}

#define HUNG 16u

static sem_t hang;

static void hang_fn(struct env_work *work)
{
	while (sem_wait(&hang) < 0)
		CHECK_EQ(errno, EINTR);
}

static void hang_done(struct env_work *work)
{
	done = ++works == 1 + HUNG;
}

static void quick_fn(struct env_work *work)
{
}

static void quick_done(struct env_work *work)
{
	works++;
	done = true;
}

static void on_overdue(struct env_timer *timer)
{
	done = true;
}

/* Disks that hang leave workers to others. */
TEST(shard, work_beside_work_that_hangs)
{
	struct env_work hung[HUNG],
		quick = { .work = quick_fn, .done = quick_done };
	struct env_timer late = { .cb = on_overdue };
	struct test_shard ts;

	test_shard_open(&ts);
	done = false;
	works = 0;
	sem_init(&hang, 0, 0);
	for (unsigned i = 0; i < HUNG; i++) {
		hung[i] =
			(struct env_work){ .work = hang_fn, .done = hang_done };
		env_work(ts.env, NULL, &hung[i]);
	}
	env_work(ts.env, NULL, &quick);
	env_timer_start(ts.env, &late, 10 * SEC);
	test_run(&ts, &done);
	CHECK_EQ(works, 1);
	env_timer_stop(ts.env, &late);
	done = false;
	for (unsigned i = 0; i < HUNG; i++)
		sem_post(&hang);
	test_run(&ts, &done);
	sem_destroy(&hang);
	test_shard_close(&ts);
}

static int64_t result;

static void on_io(struct env_io *io, int64_t res)
{
	result = res;
	done = true;
}

/* A shard, and a disk of 1 MiB. */
static struct env_dev *disk_open(struct test_shard *ts)
{
	char *dir = test_dir(), path[600];
	struct env_dev_info info;
	struct env_dev *dev;

	snprintf(path, sizeof(path), "%s/disk", dir);
	free(dir);
	test_file(path, 1 << 20);
	test_shard_open(ts);
	CHECK_EQ(env_dev_open(ts->env, path, 0, &dev, &info), 0);
	return dev;
}

/* What is written is read back; beyond the end is an error, not a short read. */
TEST(shard, device_write_read)
{
	char *dir = test_dir(), path[600];
	struct env_dev_info info;
	struct sgl *out, *in;
	struct iovec iov[64];
	struct env_dev *dev;
	struct test_shard ts;
	struct env_io io = { .cb = on_io };
	unsigned n;

	snprintf(path, sizeof(path), "%s/disk", dir);
	free(dir);
	test_file(path, 1 << 20);
	test_shard_open(&ts);
	CHECK_EQ(env_dev_open(ts.env, path, ENV_DEV_EXCLUSIVE, &dev, &info), 0);
	CHECK_EQ(info.bytes, 1 << 20);
	CHECK_EQ(sgl_new(ts.env->pages, PAGE_FRONT, 16 * 4096, 0, &out), 0);
	CHECK_EQ(sgl_new(ts.env->pages, PAGE_FRONT, 16 * 4096, 0, &in), 0);
	for (unsigned i = 0; i < 16; i++)
		memset(out->pieces[i].page->data, 'a' + (int)i, 4096);
	n = sgl_iov(out, 0, out->len_bytes, iov, ARRAY_LEN(iov), NULL);
	done = false;
	env_dev_writev(ts.env, dev, &io, iov, n, 8192, ENV_DURABLE);
	CHECK(!done);
	test_run(&ts, &done);
	CHECK_EQ(result, 16 * 4096);
	n = sgl_iov(in, 0, in->len_bytes, iov, ARRAY_LEN(iov), NULL);
	done = false;
	env_dev_readv(ts.env, dev, &io, iov, n, 8192);
	test_run(&ts, &done);
	CHECK_EQ(result, 16 * 4096);
	CHECK_EQ(sgl_compare(in, out), -1);
	done = false;
	env_dev_readv(ts.env, dev, &io, iov, n, (1 << 20) - 4096);
	test_run(&ts, &done);
	CHECK_EQ(result, -EIO);
	done = false;
	env_dev_flush(ts.env, dev, &io);
	test_run(&ts, &done);
	CHECK_EQ(result, 0);
	sgl_put(in);
	sgl_put(out);
	env_dev_close(ts.env, dev);
	test_shard_close(&ts);
}

/* What the kernel was not given yet: the newest request in the ring. */
static const struct io_uring_sqe *newest(struct env *env)
{
	const struct io_uring_sq *sq = &shard_of(env)->uring.ring.sq;

	return &sq->sqes[(sq->sqe_tail - 1) & sq->ring_mask];
}

static void write_and_look(struct test_shard *ts, struct env_dev *dev,
			   const struct iovec *iov, unsigned n, unsigned flags)
{
	struct env_io io = { .cb = on_io };

	done = false;
	env_dev_writev(ts->env, dev, &io, iov, n, 4096, flags);
	CHECK_EQ(newest(ts->env)->opcode, IORING_OP_WRITEV);
	CHECK_EQ(newest(ts->env)->rw_flags,
		 flags & ENV_DURABLE ? RWF_DSYNC : 0);
	test_run(ts, &done);
	CHECK_EQ(result, n * 8192);
}

/*
 * A write that must be durable says so to the kernel, in one piece and in
 * several: without the flag it would be answered and could be lost.
 */
TEST(shard, durable_writes_say_so)
{
	struct iovec iov[2];
	struct env_dev *dev;
	struct test_shard ts;
	struct sgl *sgl;

	dev = disk_open(&ts);
	CHECK_EQ(sgl_new(ts.env->pages, PAGE_FRONT, 5 * 4096, 0, &sgl), 0);
	iov[0] = (struct iovec){ sgl->pieces[0].page->data, 8192 };
	iov[1] = (struct iovec){ sgl->pieces[3].page->data, 8192 };
	write_and_look(&ts, dev, iov, 1, ENV_DURABLE);
	write_and_look(&ts, dev, iov, 1, 0);
	write_and_look(&ts, dev, iov, 2, ENV_DURABLE);
	write_and_look(&ts, dev, iov, 2, 0);
	sgl_put(sgl);
	env_dev_close(ts.env, dev);
	test_shard_close(&ts);
}

/* A request that was in the ring: what it asked at @offset, or NULL. */
static const struct io_uring_sqe *asked_at(struct env *env, uint64_t offset)
{
	const struct io_uring_sq *sq = &shard_of(env)->uring.ring.sq;

	for (unsigned i = 0; i < sq->ring_entries; i++)
		if (sq->sqes[i].opcode == IORING_OP_WRITEV &&
		    sq->sqes[i].off == offset)
			return &sq->sqes[i];
	return NULL;
}

/*
 * A limit of the process's cuts a write in the middle of its first piece: what
 * follows of that piece is as durable, and begins where the other ended.
 */
TEST(shard, rest_of_a_short_write)
{
	struct rlimit limit, cut;
	const struct io_uring_sqe *sqe;
	struct env_io io = { .cb = on_io };
	const struct iovec *rest;
	struct iovec iov[2];
	struct env_dev *dev;
	struct test_shard ts;
	struct sgl *sgl;

	dev = disk_open(&ts);
	CHECK_EQ(sgl_new(ts.env->pages, PAGE_FRONT, 5 * 4096, 0, &sgl), 0);
	iov[0] = (struct iovec){ sgl->pieces[0].page->data, 8192 };
	iov[1] = (struct iovec){ sgl->pieces[3].page->data, 8192 };
	signal(SIGXFSZ, SIG_IGN);
	CHECK_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
	cut = limit;
	cut.rlim_cur = 65536 + 4096;
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &cut), 0);
	done = false;
	env_dev_writev(ts.env, dev, &io, iov, 2, 65536, ENV_DURABLE);
	test_run(&ts, &done);
	CHECK_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
	CHECK_EQ(result, -EFBIG);
	sqe = asked_at(ts.env, 65536 + 4096);
	CHECK(sqe != NULL);
	CHECK_EQ(sqe->rw_flags, RWF_DSYNC);
	CHECK_EQ(sqe->len, 1);
	rest = (const struct iovec *)(uintptr_t)sqe->addr;
	CHECK(rest->iov_base == sgl->pieces[1].page->data);
	CHECK_EQ(rest->iov_len, 4096);
	sgl_put(sgl);
	env_dev_close(ts.env, dev);
	test_shard_close(&ts);
}

/* A pipe in the place of @dev's file: reads are as short as what is in it. */
static void pipe_under(struct env_dev *dev, int *in)
{
	int fd[2];

	CHECK_EQ(pipe(fd), 0);
	CHECK_EQ(dup2(fd[0], shard__dev_fd(dev)), shard__dev_fd(dev));
	close(fd[0]);
	*in = fd[1];
}

/* @len bytes more come, and are read. */
static void pipe_bring(struct test_shard *ts, struct env_io *io, int in,
		       const uint8_t *data, size_t len)
{
	uint64_t before = io->done;

	CHECK_EQ(write(in, data + before, len), len);
	while (io->done < before + len)
		shard_step(ts->env, MSEC);
}

/* What a short read left is read on, from where it ended, into its place. */
TEST(shard, rest_of_a_short_read)
{
	/* To the end of a piece; into one; up to its end and over the next. */
	static const size_t parts[] = { 4096, 1000, 96, 3000, 4096 + 1, 4095 };
	static uint8_t data[4 * 4096];
	struct env_io io = { .cb = on_io };
	struct iovec iov[4];
	struct env_dev *dev;
	struct test_shard ts;
	struct sgl *sgl;
	int in;

	dev = disk_open(&ts);
	pipe_under(dev, &in);
	CHECK_EQ(sgl_new(ts.env->pages, PAGE_FRONT, 4 * 4096, 0, &sgl), 0);
	for (unsigned i = 0; i < 4; i++) /* not in their order */
		iov[i] = (struct iovec){ sgl->pieces[3 - i].page->data, 4096 };
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 7 + i / 251);
	done = false;
	env_dev_readv(ts.env, dev, &io, iov, 4, 0);
	for (unsigned i = 0; i < 10; i++)
		shard_step(ts.env, MSEC);
	for (unsigned i = 0; i < ARRAY_LEN(parts); i++) {
		CHECK(!done);
		pipe_bring(&ts, &io, in, data, parts[i]);
	}
	CHECK(done);
	CHECK_EQ(result, sizeof(data));
	for (unsigned i = 0; i < 4; i++)
		CHECK_EQ(memcmp(iov[i].iov_base, data + i * 4096, 4096), 0);
	/* The end of what there is, after a part of it. */
	done = false;
	env_dev_readv(ts.env, dev, &io, iov, 4, 0);
	pipe_bring(&ts, &io, in, data, 5000);
	close(in);
	test_run(&ts, &done);
	CHECK_EQ(result, -EIO);
	sgl_put(sgl);
	env_dev_close(ts.env, dev);
	test_shard_close(&ts);
}

/* The kernel ends @io, and says @res of it. */
static void end_with(struct env *env, const struct env_io *io, int res)
{
	struct io_uring *ring = &shard_of(env)->uring.ring;
	struct io_uring_cqe *cqe;
	int rv;

	CHECK_EQ(io_uring_submit(ring), 1);
	do
		rv = io_uring_wait_cqe(ring, &cqe);
	while (rv == -EINTR); /* who was stopped waits on */
	CHECK_EQ(rv, 0);
	CHECK(io_uring_cqe_get_data(cqe) == io);
	cqe->res = res;
}

/* What the kernel did not begin, for now or for a signal, is asked for again. */
TEST(shard, not_now_is_asked_again)
{
	static const int says[] = { -EINTR, -EAGAIN };
	struct env_io io = { .cb = on_io };
	struct env_dev *dev;
	struct test_shard ts;
	struct iovec iov;
	struct sgl *sgl;

	dev = disk_open(&ts);
	CHECK_EQ(sgl_new(ts.env->pages, PAGE_FRONT, 4096, 0, &sgl), 0);
	sgl_iov(sgl, 0, 4096, &iov, 1, NULL);
	for (unsigned i = 0; i < ARRAY_LEN(says); i++) {
		done = false;
		env_dev_writev(ts.env, dev, &io, &iov, 1, 0, ENV_DURABLE);
		end_with(ts.env, &io, says[i]);
		shard__uring_reap(shard_of(ts.env));
		CHECK(!done);
		CHECK_EQ(newest(ts.env)->opcode, IORING_OP_WRITEV);
		CHECK_EQ(newest(ts.env)->rw_flags, RWF_DSYNC);
		end_with(ts.env, &io, 4096);
		shard__uring_reap(shard_of(ts.env));
		CHECK(done);
		CHECK_EQ(result, 4096);
	}
	sgl_put(sgl);
	env_dev_close(ts.env, dev);
	test_shard_close(&ts);
}

/* More requests than the ring has places, all at once: each completes. */
static int left;

static void on_many(struct env_io *io, int64_t res)
{
	CHECK_EQ(res, 4096);
	done = --left == 0;
}

TEST(shard, more_than_the_ring)
{
	enum { N = 6000 };
	static struct env_io io[N];
	static struct iovec iov[N];
	struct env_dev *dev;
	struct test_shard ts;
	struct sgl *in;

	dev = disk_open(&ts);
	CHECK_EQ(sgl_new(ts.env->pages, PAGE_FRONT, 4096, 0, &in), 0);
	left = N;
	done = false;
	for (int i = 0; i < N; i++) {
		io[i].cb = on_many;
		sgl_iov(in, 0, 4096, &iov[i], 1, NULL);
		env_dev_readv(ts.env, dev, &io[i], &iov[i], 1,
			      (uint64_t)(i % 256) * 4096);
	}
	test_run(&ts, &done);
	sgl_put(in);
	env_dev_close(ts.env, dev);
	test_shard_close(&ts);
}

/*
 * Who waits for a place in the ring has the next one, not who comes when there is
 * one: else a disk that is kept busy by some would be closed to others.
 */
TEST(shard, who_waits_for_a_place_is_first)
{
	static struct env_io io[300];
	struct env_dev *dev;
	struct test_shard ts;
	struct iovec iov;
	struct uring *u;
	struct sgl *in;
	int n = 0;

	dev = disk_open(&ts);
	CHECK_EQ(sgl_new(ts.env->pages, PAGE_FRONT, 4096, 0, &in), 0);
	sgl_iov(in, 0, 4096, &iov, 1, NULL);
	u = &shard_of(ts.env)->uring;
	for (; TAILQ_EMPTY(&u->waiting); n++) {
		CHECK(n < 299);
		io[n].cb = on_many;
		env_dev_readv(ts.env, dev, &io[n], &iov, 1, 0);
	}
	CHECK(io_uring_submit(&u->ring) > 0);
	CHECK(io_uring_sq_space_left(&u->ring) > 0);
	io[n].cb = on_many;
	env_dev_readv(ts.env, dev, &io[n], &iov, 1, 0);
	CHECK(TAILQ_FIRST(&u->waiting) == &io[n - 1]);
	CHECK(TAILQ_NEXT(&io[n - 1], link) == &io[n]);
	left = n + 1;
	done = false;
	test_run(&ts, &done);
	sgl_put(in);
	env_dev_close(ts.env, dev);
	test_shard_close(&ts);
}

/* A disk that answers nothing until @pipes[1] is written to, or closed. */
static struct env_dev *silent_open(const struct test_shard *ts, int pipes[2])
{
	char *dir = test_dir(), path[600];
	struct env_dev_info info;
	struct env_dev *dev;

	snprintf(path, sizeof(path), "%s/silent", dir);
	free(dir);
	test_file(path, 4096);
	CHECK_EQ(env_dev_open(ts->env, path, 0, &dev, &info), 0);
	CHECK_EQ(pipe2(pipes, O_CLOEXEC), 0);
	CHECK_EQ(dup3(pipes[0], shard__dev_fd(dev), O_CLOEXEC),
		 shard__dev_fd(dev));
	return dev;
}

static void on_silent(struct env_io *io, int64_t res)
{
	CHECK_EQ(res, -EIO);
	done = --left == 0;
}

static void silent_close(struct test_shard *ts, struct env_dev *dev,
			 const int pipes[2], int reads)
{
	left = reads;
	done = false;
	close(pipes[1]);
	test_run(ts, &done);
	close(pipes[0]);
	env_dev_close(ts->env, dev);
}

static void on_either(struct env_io *io, int64_t res)
{
	CHECK(res == 4096 || res == -EIO);
	done = --left == 0;
}

/* How long it says nothing is known, until it answers one. */
TEST(shard, a_silent_disk_is_known)
{
	static struct env_io silent_io[2];
	static const char answer[4096];
	struct env_dev *dev, *silent;
	struct test_shard ts;
	struct iovec iov;
	struct sgl *in;
	int pipes[2];

	dev = disk_open(&ts);
	silent = silent_open(&ts, pipes);
	CHECK_EQ(sgl_new(ts.env->pages, PAGE_FRONT, 4096, 0, &in), 0);
	sgl_iov(in, 0, 4096, &iov, 1, NULL);
	CHECK_EQ(env_dev_silent_ns(ts.env, silent), 0);
	left = 1;
	for (int i = 0; i < 2; i++) {
		silent_io[i].cb = on_either;
		env_dev_readv(ts.env, silent, &silent_io[i], &iov, 1, 0);
	}
	for (int i = 0; i < 3; i++)
		shard_step(ts.env, 20 * MSEC);
	CHECK(env_dev_silent_ns(ts.env, silent) >= 20 * MSEC);
	CHECK_EQ(env_dev_silent_ns(ts.env, dev), 0);
	done = false;
	CHECK_EQ(write(pipes[1], answer, 4096), 4096);
	test_run(&ts, &done);
	CHECK_EQ(env_dev_silent_ns(ts.env, silent), 0);
	for (int i = 0; i < 3; i++)
		shard_step(ts.env, 20 * MSEC);
	CHECK(env_dev_silent_ns(ts.env, silent) >= 20 * MSEC);
	silent_close(&ts, silent, pipes, 1);
	sgl_put(in);
	env_dev_close(ts.env, dev);
	test_shard_close(&ts);
}

/*
 * It is asked for more than the ring has places: what is asked of another disk in
 * the same turn goes to the kernel before the loop sleeps.
 */
TEST(shard, no_sleep_before_all_is_asked_for)
{
	static struct env_io silent_io[300], io = { .cb = on_io };
	struct env_dev *dev, *silent;
	struct test_shard ts;
	struct iovec iov;
	struct sgl *in;
	int pipes[2], n = 0;

	dev = disk_open(&ts);
	silent = silent_open(&ts, pipes);
	CHECK_EQ(sgl_new(ts.env->pages, PAGE_FRONT, 4096, 0, &in), 0);
	sgl_iov(in, 0, 4096, &iov, 1, NULL);
	shard_step(ts.env, 0); /* libuv's descriptor has its place */
	for (; TAILQ_EMPTY(&shard_of(ts.env)->uring.waiting); n++) {
		CHECK(n < 300);
		silent_io[n].cb = on_silent;
		env_dev_readv(ts.env, silent, &silent_io[n], &iov, 1, 0);
	}
	done = false;
	env_dev_readv(ts.env, dev, &io, &iov, 1, 0);
	shard_step(ts.env, 5 * SEC);
	CHECK(done);
	CHECK_EQ(result, 4096);
	silent_close(&ts, silent, pipes, n);
	sgl_put(in);
	env_dev_close(ts.env, dev);
	test_shard_close(&ts);
}

/* However much it is asked for, others have their places at the kernel. */
TEST(shard, a_silent_disk_does_not_silence_others)
{
	enum { N = 5000 };
	static struct env_io silent_io[N], io = { .cb = on_io };
	struct env_dev *dev, *silent;
	struct test_shard ts;
	struct iovec iov;
	struct sgl *in;
	int pipes[2];

	dev = disk_open(&ts);
	silent = silent_open(&ts, pipes);
	CHECK_EQ(sgl_new(ts.env->pages, PAGE_FRONT, 4096, 0, &in), 0);
	sgl_iov(in, 0, 4096, &iov, 1, NULL);
	for (int i = 0; i < N; i++) {
		silent_io[i].cb = on_silent;
		env_dev_readv(ts.env, silent, &silent_io[i], &iov, 1, 0);
	}
	for (unsigned i = 0; i < 40; i++)
		shard_step(ts.env, MSEC);
	done = false;
	env_dev_readv(ts.env, dev, &io, &iov, 1, 0);
	for (unsigned i = 0; i < 12000 && !done; i++)
		shard_step(ts.env, 10 * MSEC);
	CHECK(done);
	CHECK_EQ(result, 4096);
	silent_close(&ts, silent, pipes, N);
	sgl_put(in);
	env_dev_close(ts.env, dev);
	test_shard_close(&ts);
}

/* ---- what the kernel is asked for ---- */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_stat(const char *path, struct stat *st);
int __wrap_stat(const char *path, struct stat *st);
int __wrap_nanosleep(const struct timespec *ns, struct timespec *left_ns);
ssize_t __real_pwritev2(int fd, const struct iovec *iov, int n, off_t offset,
			int flags);
ssize_t __wrap_pwritev2(int fd, const struct iovec *iov, int n, off_t offset,
			int flags);

static struct asked {
	const char *path; /* NULL: nobody looks */
	bool block_device; /* what stat() says of it */
	unsigned held; /* so many times it is another's */
	int lock_fd; /* as many times that lock is there; 0: none */
	unsigned opens, pauses;
	uint64_t paused_ns;
	int open_flags;
	/* What each write says: so many bytes at most, 0 or -errno. */
	const int *says;
	unsigned writes;
	int write_flags;
} asked;

int __wrap_open(const char *path, int flags, ...)
{
	va_list ap;
	unsigned mode;

	va_start(ap, flags);
	mode = flags & O_CREAT ? va_arg(ap, unsigned) : 0;
	va_end(ap);
	if (asked.path == NULL || strcmp(path, asked.path) != 0)
		return __real_open(path, flags, mode);
	asked.opens++;
	asked.open_flags = flags;
	if (flags & O_EXCL && asked.opens <= asked.held) {
		errno = EBUSY;
		return -1;
	}
	return __real_open(path, flags & ~O_EXCL, mode);
}

int __wrap_stat(const char *path, struct stat *st)
{
	int rv = __real_stat(path, st);

	if (rv == 0 && asked.block_device && strcmp(path, asked.path) == 0)
		st->st_mode = S_IFBLK | 0600;
	return rv;
}

int __wrap_nanosleep(const struct timespec *ns, struct timespec *left_ns)
{
	asked.paused_ns += (uint64_t)ns->tv_sec * SEC + (uint64_t)ns->tv_nsec;
	if (++asked.pauses == asked.held && asked.lock_fd != 0)
		close(asked.lock_fd);
	return 0;
}

ssize_t __wrap_pwritev2(int fd, const struct iovec *iov, int n, off_t offset,
			int flags)
{
	struct iovec part = *iov;
	int says;

	if (asked.says == NULL)
		return __real_pwritev2(fd, iov, n, offset, flags);
	says = asked.says[asked.writes++];
	asked.write_flags |= flags;
	CHECK(asked.writes == 1 || asked.write_flags == flags);
	CHECK_EQ(n, 1);
	if (says < 0) {
		errno = -says;
		return -1;
	}
	part.iov_len = MIN(part.iov_len, (size_t)says);
	return says == 0 ? 0 : __real_pwritev2(fd, &part, 1, offset, flags);
}

/* Open and close it; with what comes of that. */
static int ask(struct test_shard *ts, unsigned flags, const struct asked *how)
{
	struct env_dev_info info;
	struct env_dev *dev;
	int rv;

	asked = *how;
	rv = env_dev_open(ts->env, asked.path, flags, &dev, &info);
	if (rv == 0) {
		CHECK(fcntl(shard__dev_fd(dev), F_GETFL) & O_DIRECT);
		CHECK(fcntl(shard__dev_fd(dev), F_GETFD) & FD_CLOEXEC);
		CHECK_EQ(asked.open_flags & O_ACCMODE,
			 flags & ENV_DEV_RDONLY ? O_RDONLY : O_RDWR);
		env_dev_close(ts->env, dev);
	}
	asked.path = NULL;
	asked.block_device = false;
	return rv;
}

/*
 * A disk is one program's alone.  What another one's ring still holds, as it was
 * killed just now, comes free in a moment, be it a file or a device; what is held
 * for longer is another's.
 */
TEST(shard, a_disk_is_one_programs)
{
	const unsigned alone = ENV_DEV_EXCLUSIVE;
	char *dir = test_dir(), path[600];
	struct asked file = { .path = path };
	struct asked device = { .path = path, .block_device = true };
	struct test_shard ts;
	int fd;

	snprintf(path, sizeof(path), "%s/disk", dir);
	free(dir);
	test_file(path, 1 << 20);
	test_shard_open(&ts);

	CHECK_EQ(ask(&ts, 0, &device), 0);
	CHECK_EQ(asked.open_flags & O_EXCL, 0);
	CHECK_EQ(ask(&ts, alone, &device), 0);
	CHECK_EQ(asked.open_flags & O_EXCL, O_EXCL);
	CHECK_EQ(ask(&ts, alone | ENV_DEV_RDONLY, &device), 0);
	device.held = 3;
	CHECK_EQ(ask(&ts, alone, &device), 0);
	CHECK_EQ(asked.opens, 4);
	device.held = UINT32_MAX;
	CHECK_EQ(ask(&ts, alone, &device), -EBUSY);
	CHECK(asked.paused_ns > 2 * SEC && asked.paused_ns <= 3 * SEC);

	CHECK_EQ(ask(&ts, alone, &file), 0);
	CHECK_EQ(asked.open_flags & O_EXCL, 0);
	fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fd > 0);
	CHECK_EQ(flock(fd, LOCK_EX | LOCK_NB), 0);
	CHECK_EQ(ask(&ts, 0, &file), 0); /* to look at it */
	CHECK_EQ(asked.pauses, 0);
	CHECK_EQ(ask(&ts, alone, &file), -EBUSY);
	CHECK(asked.paused_ns > 2 * SEC && asked.paused_ns <= 3 * SEC);
	file.held = 3;
	file.lock_fd = fd;
	CHECK_EQ(ask(&ts, alone, &file), 0);
	CHECK_EQ(asked.pauses, 3);
	CHECK_EQ(asked.opens, 1);
	test_shard_close(&ts);
}

/* A blocking write is whole, and each part of it as durable as it was to be. */
TEST(shard, blocking_writes_say_so)
{
	static const int parts[] = { -EINTR, 4096, -EAGAIN, 8192, 1 << 20 };
	static const int error[] = { 4096, -EIO }, end[] = { 4096, 0 };
	uint8_t *out = aligned_alloc(4096, 5 * 4096);
	uint8_t *in = aligned_alloc(4096, 5 * 4096);
	struct env_dev *dev;
	struct test_shard ts;

	CHECK(out != NULL && in != NULL);
	dev = disk_open(&ts);
	for (unsigned flags = 0; flags <= ENV_DURABLE; flags += ENV_DURABLE) {
		for (size_t i = 0; i < 5ul * 4096; i++)
			out[i] = (uint8_t)(i / 4096 + i + flags);
		asked = (struct asked){ .says = parts };
		CHECK_EQ(env_dev_write_now(ts.env, dev, out, 5 * 4096, 8192,
					   flags),
			 0);
		CHECK_EQ(asked.writes, ARRAY_LEN(parts));
		CHECK_EQ(asked.write_flags, flags ? RWF_DSYNC : 0);
		CHECK_EQ(env_dev_read_now(ts.env, dev, in, 5 * 4096, 8192), 0);
		CHECK_EQ(memcmp(in, out, 5 * 4096), 0);
	}
	asked = (struct asked){ .says = error };
	CHECK_EQ(env_dev_write_now(ts.env, dev, out, 8192, 0, 0), -EIO);
	asked = (struct asked){ .says = end };
	CHECK_EQ(env_dev_write_now(ts.env, dev, out, 8192, 0, 0), -EIO);
	CHECK_EQ(asked.writes, 2);
	asked.says = NULL;
	free(in);
	free(out);
	env_dev_close(ts.env, dev);
	test_shard_close(&ts);
}

/* ---- many blocking reads ---- */

enum { READS = 300, PLACES = 256, LONG = 16 * 4096 };

/*
 * Places all over the file; one past its end, one across it, one of many blocks,
 * and one that the device refuses, if its file system has blocks.
 */
static void reads_make(struct env_read *reads, uint8_t *mem)
{
	for (unsigned i = 0; i < READS; i++)
		reads[i] = (struct env_read){
			.buf = mem + (size_t)i * 4096,
			.len = 4096,
			.offset = (uint64_t)(i * 97 % PLACES) * 4096,
			.result = -1,
		};
	reads[7].offset = (uint64_t)PLACES * 4096;
	reads[8].offset = (uint64_t)(PLACES - 1) * 4096;
	reads[8].len = LONG;
	reads[8].buf = mem + (size_t)READS * 4096;
	reads[10].offset = 100;
	reads[9].offset = 4096;
	reads[9].len = LONG;
	reads[9].buf = mem + (size_t)READS * 4096 + LONG;
}

static void reads_check(struct test_shard *ts, struct env_dev *dev,
			struct env_read *reads, uint8_t *mem)
{
	uint8_t *one = aligned_alloc(4096, LONG);

	CHECK(one != NULL);
	memset(mem, 0xee, (size_t)READS * 4096 + 2 * LONG);
	env_dev_read_many_now(ts->env, dev, reads, READS);
	for (unsigned i = 0; i < READS; i++) {
		CHECK_EQ(reads[i].result,
			 env_dev_read_now(ts->env, dev, one, reads[i].len,
					  reads[i].offset));
		if (i != 10)
			CHECK_EQ(reads[i].result, i == 7 || i == 8 ? -EIO : 0);
		if (reads[i].result == 0)
			CHECK_EQ(memcmp(reads[i].buf, one, reads[i].len), 0);
	}
	free(one);
}

/*
 * More than go at once; each has its own result, which is that of the same read
 * alone.  The same where there is no descriptor for a ring.
 */
TEST(shard, many_reads_at_once)
{
	uint8_t *mem = aligned_alloc(4096, (size_t)READS * 4096 + 2 * LONG);
	char *dir = test_dir(), path[600];
	struct env_read reads[READS];
	struct env_dev_info info;
	struct rlimit files, none;
	struct env_dev *dev;
	struct test_shard ts;

	CHECK(mem != NULL);
	snprintf(path, sizeof(path), "%s/disk", dir);
	free(dir);
	test_file(path, PLACES * 4096);
	test_shard_open(&ts);
	CHECK_EQ(env_dev_open(ts.env, path, 0, &dev, &info), 0);
	for (unsigned i = 0; i < PLACES; i++) {
		memset(mem, (int)i, 4096);
		CHECK_EQ(env_dev_write_now(ts.env, dev, mem, 4096, i * 4096ull,
					   0),
			 0);
	}
	reads_make(reads, mem);
	reads_check(&ts, dev, reads, mem);

	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
	none = files;
	none.rlim_cur = 0;
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
	reads_check(&ts, dev, reads, mem);
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
	free(mem);
	env_dev_close(ts.env, dev);
	test_shard_close(&ts);
}

/* ---- several shards ---- */

#define POSTS 2000u

struct post {
	struct env_task task;
	struct posts *posts;
	unsigned number;
};

struct posts {
	struct env *from, *to, *home;
	struct env_task start;
	struct post post[POSTS];
	unsigned arrived; /* on the receiver */
	bool in_order;
	struct env_task end;
	bool done;
};

static void posts_end(struct env_task *task)
{
	container_of(task, struct posts, end)->done = true;
}

static void post_arrived(struct env_task *task)
{
	struct post *p = container_of(task, struct post, task);
	struct posts *posts = p->posts;

	if (p->number != posts->arrived)
		posts->in_order = false;
	if (++posts->arrived == POSTS)
		env_post(posts->home, &posts->end);
}

static void posts_start(struct env_task *task)
{
	struct posts *posts = container_of(task, struct posts, start);

	for (unsigned i = 0; i < POSTS; i++) {
		posts->post[i].task.cb = post_arrived;
		posts->post[i].posts = posts;
		posts->post[i].number = i;
		env_post(posts->to, &posts->post[i].task);
	}
}

/* Each of three shards posts to both others at once; each pair keeps its order. */
TEST(shard, posts_in_order)
{
	struct test_shard ts;
	struct posts *all = calloc(6, sizeof(*all));

	test_shards_open(&ts, 3, 8u << 20);
	for (unsigned i = 0; i < 6; i++) {
		struct posts *p = &all[i];

		p->from = shard_env(ts.shards, i / 2);
		p->to = shard_env(ts.shards, (i / 2 + 1 + i % 2) % 3);
		p->home = ts.env;
		p->in_order = true;
		p->start.cb = posts_start;
		p->end.cb = posts_end;
		env_post(p->from, &p->start);
	}
	for (unsigned i = 0; i < 6; i++) {
		test_run(&ts, &all[i].done);
		CHECK(all[i].in_order);
		CHECK_EQ(all[i].arrived, POSTS);
	}
	test_shard_close(&ts);
	free(all);
}

struct hoard {
	struct env *env, *home;
	struct env_task task, back;
	struct page **pages;
	size_t count, max;
	bool done;
};

static void hoard_back(struct env_task *task)
{
	container_of(task, struct hoard, back)->done = true;
}

/* Everything this class can have, page by page. */
static void hoard_take(struct env_task *task)
{
	struct hoard *h = container_of(task, struct hoard, task);

	while (h->count < h->max && pages_alloc(h->env->pages, PAGE_FRONT, 1,
						&h->pages[h->count]) == 0)
		h->count++;
	env_post(h->home, &h->back);
}

static void hoard_give(struct env_task *task)
{
	struct hoard *h = container_of(task, struct hoard, task);

	while (h->count > 0)
		page_put(h->env->pages, h->pages[--h->count]);
}

#define WANT 250u /* more than was never touched */

struct want {
	struct page_waiter waiter;
	struct env *env;
	struct page *pages[WANT];
	unsigned tries;
	bool done;
};

static void want_try(struct page_waiter *waiter)
{
	struct want *w = container_of(waiter, struct want, waiter);

	w->tries++;
	if (pages_alloc(w->env->pages, PAGE_FRONT, WANT, w->pages) == 0)
		w->done = true;
	else
		page_wait(w->env->pages, PAGE_FRONT, WANT, waiter);
}

/*
 * A shard that waits for pages gets what another gives back, though the other
 * sleeps on it in a list of its own and this one sleeps too.
 */
TEST(shard, pages_from_another_shard)
{
	struct test_shard ts;
	struct hoard h = { .max = 512 };
	struct want w = { .waiter.cb = want_try };

	test_shards_open(&ts, 2, 2u << 20);
	h.pages = calloc(h.max, sizeof(struct page *));
	h.env = shard_env(ts.shards, 1);
	h.home = w.env = ts.env;
	h.task.cb = hoard_take;
	h.back.cb = hoard_back;
	env_post(h.env, &h.task);
	test_run(&ts, &h.done);
	CHECK(h.count > WANT);
	want_try(&w.waiter);
	CHECK(!w.done);
	h.task.cb = hoard_give;
	env_post(h.env, &h.task);
	test_run(&ts, &w.done);
	for (unsigned i = 0; i < WANT; i++)
		page_put(w.env->pages, w.pages[i]);
	free(h.pages);
	test_shard_close(&ts);
}

/* ---- waiters of one shard ---- */

#define CROWD 200u /* more than one look serves */

struct crowd {
	struct env *env;
	struct page_waiter waiters[CROWD];
	struct page **pages;
	size_t count;
	unsigned served;
	bool late;
	struct env_timer timer;
	struct env_task give;
	uv_poll_t poll;
	int fd[2];
};

static struct crowd crowd;

static void crowd_served(struct page_waiter *waiter)
{
	crowd.served++;
}

static void crowd_late(struct env_timer *timer)
{
	crowd.late = true;
}

static void crowd_give(struct env_task *task)
{
	while (crowd.count > 0)
		page_put(crowd.env->pages, crowd.pages[--crowd.count]);
}

static void crowd_socket(uv_poll_t *poll, int status, int events)
{
	char c;

	shard_wake(crowd.env);
	CHECK_EQ(read(crowd.fd[0], &c, 1), 1);
	crowd_give(NULL);
}

/* All pages are taken, and @waiters ask for one each. */
static void crowd_open(struct test_shard *ts, unsigned waiters)
{
	test_shards_open(ts, 1, 2u << 20);
	crowd = (struct crowd){ .env = ts->env, .timer.cb = crowd_late };
	crowd.pages = calloc(arena_pages(ts->arena), sizeof(struct page *));
	while (pages_alloc(ts->env->pages, PAGE_FRONT, 1,
			   &crowd.pages[crowd.count]) == 0)
		crowd.count++;
	for (unsigned i = 0; i < waiters; i++) {
		crowd.waiters[i].cb = crowd_served;
		page_wait(ts->env->pages, PAGE_FRONT, 1, &crowd.waiters[i]);
	}
	shard_step(ts->env, 0);
	CHECK_EQ(crowd.served, 0);
}

static void crowd_close(struct test_shard *ts)
{
	env_timer_stop(ts->env, &crowd.timer);
	free(crowd.pages);
	test_shard_close(ts);
}

static unsigned words;

static void on_word(uv_poll_t *poll, int status, int events)
{
	char c;

	CHECK_EQ(read(*(int *)poll->data, &c, 1), 1);
	words++;
}

static void word(const struct test_shard *ts, uv_poll_t *poll, int fd[2])
{
	CHECK_EQ(pipe2(fd, O_NONBLOCK | O_CLOEXEC), 0);
	CHECK_EQ(uv_poll_init(shard_loop(ts->env), poll, fd[0]), 0);
	poll->data = &fd[0];
	uv_poll_start(poll, UV_READABLE, on_word);
}

/* What was read, and what comes of that. */
static bool was_read, went_on;
static unsigned steps; /* reads, one after the other */
static uint64_t step_ns, longest_ns; /* the last one's end; of one */

static void on_went_on(struct env_task *task)
{
	went_on = true;
}

static struct env_task go_on = { .cb = on_went_on };
static struct test_shard *stalled;

static void step_look(void)
{
	uint64_t now = uv_hrtime();

	longest_ns = MAX(longest_ns, now - step_ns);
	step_ns = now;
}

static void on_read(struct env_io *io, int64_t res)
{
	step_look();
	if (--steps > 0) {
		env_dev_readv(stalled->env, io->dev, io, io->iov, 1, 0);
		return;
	}
	was_read = true;
	env_defer(stalled->env, &go_on);
}

static void on_late(struct env_timer *timer)
{
	CHECK_EQ(words, 1);
	if (!went_on) {
		step_look();
		/* It stood still again, in their midst: timers do not wait. */
		CHECK(longest_ns >= 100 * MSEC);
		env_timer_start(stalled->env, timer, MSEC);
		return;
	}
	CHECK(was_read);
	done = true;
}

static bool has_answer(const struct io_uring *ring)
{
	return io_uring_cq_ready(ring) > 0 ||
	       IO_URING_READ_ONCE(*ring->sq.kflags) & IORING_SQ_TASKRUN;
}

/* A stall from when a disk is asked on; @sent: the kernel knows of it by then. */
static void stall(bool sent, unsigned ms)
{
	struct env_timer timer = { .cb = on_late };
	struct env_io io = { .cb = on_read };
	struct env_dev *dev;
	struct test_shard ts;
	struct iovec iov;
	struct io_uring *ring;
	struct sgl *in;
	uv_poll_t poll;
	int fd[2];

	dev = disk_open(&ts);
	stalled = &ts;
	CHECK_EQ(sgl_new(ts.env->pages, PAGE_FRONT, 4096, 0, &in), 0);
	sgl_iov(in, 0, 4096, &iov, 1, NULL);
	word(&ts, &poll, fd);
	words = 0;
	was_read = went_on = done = false;
	steps = sent ? 1 : 32;
	shard_step(ts.env, 0); /* libuv knows of the socket */
	env_dev_readv(ts.env, dev, &io, &iov, 1, 0);
	env_timer_start(ts.env, &timer, MSEC);
	ring = &shard_of(ts.env)->uring.ring;
	if (sent)
		CHECK_EQ(io_uring_submit(ring), 1);
	/* For as long as the disk takes, and so long that it is a stall. */
	for (unsigned i = 0; sent && i < 120000 && !has_answer(ring); i++)
		usleep(1000);
	CHECK_EQ(write(fd[1], "x", 1), 1);
	for (; ms > 0; ms -= 100)
		CHECK_EQ(usleep(100000), 0);
	longest_ns = 0;
	step_ns = uv_hrtime();
	test_run(&ts, &done);
	uv_close((uv_handle_t *)&poll, NULL);
	sgl_put(in);
	env_dev_close(ts.env, dev);
	test_shard_close(&ts);
	close(fd[0]);
	close(fd[1]);
}

/*
 * The process stood still: what a disk and a socket have to say by then is heard
 * before the timer that looks for it.
 */
TEST(shard, timers_behind_what_came_in_a_stall)
{
	stall(true, 300);
}

/* So is a disk that is asked only then, step by step: it was not silent before. */
TEST(shard, timers_behind_what_a_stall_kept)
{
	stall(false, 1500);
}

/*
 * Nor does anybody else take the stall for the disk's silence directly behind it: it
 * is as silent as it was before.  Before long it is taken for what it is.
 */
TEST(shard, a_stall_is_no_silence)
{
	static struct env_io io = { .cb = on_either };
	struct env_timer timer = { .cb = on_late };
	uint64_t before;
	struct env_dev *silent;
	struct test_shard ts;
	struct iovec iov;
	struct sgl *in;
	int pipes[2];

	test_shard_open(&ts);
	silent = silent_open(&ts, pipes);
	CHECK_EQ(sgl_new(ts.env->pages, PAGE_FRONT, 4096, 0, &in), 0);
	sgl_iov(in, 0, 4096, &iov, 1, NULL);
	words = 1;
	was_read = went_on = true;
	done = false;
	left = 1;
	env_dev_readv(ts.env, silent, &io, &iov, 1, 0);
	for (int i = 0; i < 3; i++)
		shard_step(ts.env, 20 * MSEC);
	before = env_dev_silent_ns(ts.env, silent);
	CHECK(before >= 20 * MSEC);
	env_timer_start(ts.env, &timer, MSEC);
	for (unsigned ms = 0; ms < 1700; ms += 100)
		CHECK_EQ(usleep(100000), 0);
	shard_step(ts.env, 0);
	CHECK(!done);
	CHECK_EQ(env_dev_silent_ns(ts.env, silent), before);
	test_run(&ts, &done);
	CHECK(env_dev_silent_ns(ts.env, silent) >= 2 * SEC);
	silent_close(&ts, silent, pipes, 1);
	sgl_put(in);
	test_shard_close(&ts);
}

/* A process that stands still all the time has its timers yet. */
TEST(shard, timers_between_stalls)
{
	struct env_timer timer = { .cb = on_late };
	struct test_shard ts;

	test_shard_open(&ts);
	words = 1;
	was_read = went_on = true;
	done = false;
	shard_step(ts.env, 0);
	env_timer_start(ts.env, &timer, MSEC);
	for (unsigned i = 0; i < 3; i++) {
		for (unsigned ms = 0; ms < 1700; ms += 100)
			CHECK_EQ(usleep(100000), 0);
		shard_step(ts.env, 0);
	}
	CHECK(done);
	test_shard_close(&ts);
}

/* A turn asks a disk for all that the ring takes: sockets have their turn. */
TEST(shard, sockets_beside_a_full_ring)
{
	static struct env_io io[300];
	struct env_dev *dev;
	struct test_shard ts;
	struct iovec iov;
	struct sgl *in;
	uv_poll_t poll;
	int fd[2], n = 0;

	dev = disk_open(&ts);
	CHECK_EQ(sgl_new(ts.env->pages, PAGE_FRONT, 4096, 0, &in), 0);
	sgl_iov(in, 0, 4096, &iov, 1, NULL);
	word(&ts, &poll, fd);
	words = 0;
	shard_step(ts.env, 0); /* libuv knows of it */
	CHECK_EQ(write(fd[1], "x", 1), 1);
	while (words == 0)
		shard_step(ts.env, SEC);
	CHECK(!shard_of(ts.env)->uring.uv_armed);
	CHECK_EQ(write(fd[1], "x", 1), 1);
	for (; TAILQ_EMPTY(&shard_of(ts.env)->uring.waiting); n++) {
		CHECK(n < 300);
		io[n].cb = on_many;
		env_dev_readv(ts.env, dev, &io[n], &iov, 1, 0);
	}
	left = n;
	done = false;
	shard_step(ts.env, 0);
	CHECK_EQ(words, 2);
	while (!done)
		shard_step(ts.env, SEC);
	uv_close((uv_handle_t *)&poll, NULL);
	sgl_put(in);
	env_dev_close(ts.env, dev);
	test_shard_close(&ts);
	close(fd[0]);
	close(fd[1]);
}

/* What a callback of libuv's frees is there for who waits, before any sleep. */
TEST(shard, pages_freed_by_a_socket)
{
	struct test_shard ts;

	crowd_open(&ts, 1);
	CHECK_EQ(pipe2(crowd.fd, O_NONBLOCK), 0);
	CHECK_EQ(uv_poll_init(shard_loop(ts.env), &crowd.poll, crowd.fd[0]), 0);
	uv_poll_start(&crowd.poll, UV_READABLE, crowd_socket);
	CHECK_EQ(write(crowd.fd[1], "x", 1), 1);
	while (crowd.count > 0)
		shard_step(ts.env, SEC);
	CHECK_EQ(crowd.served, 1);
	uv_close((uv_handle_t *)&crowd.poll, NULL);
	close(crowd.fd[1]);
	crowd_close(&ts);
	close(crowd.fd[0]);
}

/* The loop does not sleep on those that may go on, however many they are. */
TEST(shard, many_wait_for_pages)
{
	struct test_shard ts;

	crowd_open(&ts, CROWD);
	crowd.give.cb = crowd_give;
	env_defer(ts.env, &crowd.give);
	env_timer_start(ts.env, &crowd.timer, 60 * SEC);
	while (crowd.served < CROWD && !crowd.late)
		shard_step(ts.env, UINT64_MAX);
	CHECK(!crowd.late);
	crowd_close(&ts);
}

/*
 * Everything that wakes a loop, with and without watching before it sleeps: a
 * disk that is never idle, a socket, a post from another thread, a timer.
 */
struct busy {
	struct env *env;
	struct env_dev *dev;
	struct env_io io;
	struct iovec iov;
	struct env_task posted;
	struct env_timer timer;
	bool stop, idle;
	unsigned reads, bytes, posts, fired;
	int fd[2];
};

static struct busy busy;

static void busy_look(void)
{
	done = busy.bytes > 0 && busy.posts > 0 && busy.fired > 0 &&
	       (busy.stop || busy.reads > 1);
}

static void busy_read(struct env_io *io, int64_t res)
{
	CHECK_EQ(res, 4096);
	busy.reads++;
	busy.idle = busy.stop;
	busy_look();
	if (!busy.stop)
		env_dev_readv(busy.env, busy.dev, io, &busy.iov, 1, 0);
}

static void busy_socket(uv_poll_t *poll, int status, int events)
{
	char c;

	shard_wake(busy.env);
	while (read(busy.fd[0], &c, 1) == 1)
		busy.bytes++;
	busy_look();
}

static void busy_posted(struct env_task *task)
{
	busy.posts++;
	busy_look();
}

static void busy_timer(struct env_timer *timer)
{
	busy.fired++;
	busy_look();
}

static void *busy_other(void *arg)
{
	usleep(2000); /* most likely the loop sleeps by now */
	env_post(busy.env, &busy.posted);
	CHECK_EQ(write(busy.fd[1], "x", 1), 1);
	return NULL;
}

static void wakes(uint64_t spin_ns, bool disk)
{
	char *dir = test_dir(), path[600];
	struct env_dev_info info;
	struct test_shard ts = { 0 };
	struct sgl *in;
	pthread_t thread;
	uv_poll_t poll;

	snprintf(path, sizeof(path), "%s/disk", dir);
	free(dir);
	test_file(path, 1 << 20);
	CHECK_EQ(arena_open(&(struct arena_config){ .bytes = 64u << 20 },
			    &ts.arena),
		 0);
	CHECK_EQ(shards_open(&(struct shards_config){ .count = 1,
						      .spin_ns = spin_ns,
						      .arena = ts.arena },
			     &ts.shards),
		 0);
	ts.env = shard_env(ts.shards, 0);
	busy = (struct busy){ .env = ts.env, .stop = !disk, .idle = !disk };
	busy.io.cb = busy_read;
	busy.posted.cb = busy_posted;
	busy.timer.cb = busy_timer;
	CHECK_EQ(pipe2(busy.fd, O_NONBLOCK), 0);
	CHECK_EQ(env_dev_open(ts.env, path, 0, &busy.dev, &info), 0);
	CHECK_EQ(sgl_new(ts.env->pages, PAGE_FRONT, 4096, 0, &in), 0);
	sgl_iov(in, 0, 4096, &busy.iov, 1, NULL);
	if (disk)
		env_dev_readv(busy.env, busy.dev, &busy.io, &busy.iov, 1, 0);
	CHECK_EQ(uv_poll_init(shard_loop(ts.env), &poll, busy.fd[0]), 0);
	uv_poll_start(&poll, UV_READABLE, busy_socket);
	env_timer_start(ts.env, &busy.timer, 3 * MSEC);
	CHECK_EQ(pthread_create(&thread, NULL, busy_other, NULL), 0);
	done = false;
	test_run(&ts, &done);
	pthread_join(thread, NULL);
	busy.stop = true;
	test_run(&ts, &busy.idle);
	uv_close((uv_handle_t *)&poll, NULL);
	close(busy.fd[1]);
	sgl_put(in);
	env_dev_close(ts.env, busy.dev);
	test_shard_close(&ts);
	close(busy.fd[0]);
}

TEST(shard, every_wake_up)
{
	wakes(0, false);
	wakes(0, true);
	wakes(MSEC, false);
	wakes(MSEC, true);
}

/*
 * One post at a time between two loops that would sleep otherwise, with a
 * timer of each going off in between: no wake-up is lost.
 */
struct rally {
	struct env_task task;
	struct env_timer timer;
	struct env *env, *other;
	unsigned left;
};

static struct rally rally[2];

static void rally_timer(struct env_timer *timer)
{
	struct rally *r = container_of(timer, struct rally, timer);

	if (r->left > 0)
		env_timer_start(r->env, timer, 20 * USEC);
}

static void rally_hit(struct env_task *task)
{
	struct rally *r = container_of(task, struct rally, task);
	struct rally *to = r == &rally[0] ? &rally[1] : &rally[0];

	if (r->left % 64 == 0)
		env_timer_start(r->env, &r->timer, 20 * USEC);
	if (r->left > 0 && --r->left % 100 == 0)
		env_timer_stop(r->env, &r->timer);
	if (r == &rally[0] && r->left == 0)
		done = true;
	else
		env_post(r->other, &to->task);
}

TEST(shard, no_wake_up_is_lost)
{
	struct test_shard ts = { 0 };

	CHECK_EQ(arena_open(&(struct arena_config){ .bytes = 64u << 20 },
			    &ts.arena),
		 0);
	CHECK_EQ(shards_open(&(struct shards_config){ .count = 2,
						      .arena = ts.arena },
			     &ts.shards),
		 0);
	ts.env = shard_env(ts.shards, 0);
	for (unsigned i = 0; i < 2; i++) {
		rally[i] = (struct rally){
			.env = shard_env(ts.shards, i),
			.other = shard_env(ts.shards, 1 - i),
			.left = 20000 - i, /* shard 0 is hit last */
		};
		rally[i].task.cb = rally_hit;
		rally[i].timer.cb = rally_timer;
	}
	done = false;
	env_post(ts.env, &rally[0].task);
	test_run(&ts, &done);
	test_shard_close(&ts);
}
