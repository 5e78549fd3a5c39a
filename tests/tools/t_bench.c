/*
 * t_bench: one load, measured the same way against whatever serves it.
 *
 *	t_bench iscsi URL    [options]	libiscsi's asynchronous API
 *	t_bench raw FILE     [options]	io_uring, O_DIRECT
 *	t_bench pingpong     [options]	48 bytes against 4 KiB over TCP
 *
 *	--op read|write   --bytes N (of a request)   --depth N   --seconds S
 *	--random | --sequential   --start N --span N (bytes used of the unit)
 *	--dsync (raw: every write with RWF_DSYNC)
 *	--fill TEXT (what is written: TEXT over and over; else random bytes)
 *	--pid P (of the serving process: its CPU time is counted)
 *
 * Prints one line of JSON: requests a second, p50 and p99 in microseconds, and
 * microseconds of CPU a request of the generator and of process P (all its
 * threads, /proc/P/task/T/schedstat).  A second of warming up is not counted.
 */
#include "tests/lib/initiator.h"
#include "tests/lib/pattern.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <liburing.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEPTH_MAX 256u
#define SAMPLES_MAX (16u << 20)
#define WARM_NS 1000000000ull

struct slot {
	uint64_t started_ns;
	uint8_t *buf;
	struct scsi_iovec iov;
};

static struct {
	const char *mode, *where, *fill;
	bool write, sequential, dsync;
	uint32_t bytes;
	unsigned depth;
	double seconds;
	uint64_t start, span;
	int pid;

	uint64_t random, next, limit; /* in requests' places */
	uint64_t begin_ns, end_ns; /* of what counts */
	uint64_t cpu_own, cpu_server;
	bool counting, stopping;
	uint32_t *samples; /* nanoseconds */
	uint64_t count;
	unsigned in_flight;
	struct slot slots[DEPTH_MAX];

	struct iscsi_context *iscsi;
	int lun;
	uint32_t lba_bytes;
} b = {
	.bytes = 4096,
	.depth = 1,
	.seconds = 5,
};

static _Noreturn void die(const char *what, const char *why)
{
	fprintf(stderr, "t_bench: %s: %s\n", what, why);
	exit(1);
}

/* Nanoseconds of CPU all threads of @pid have used. */
static uint64_t cpu_of(int pid)
{
	char path[300];
	uint64_t sum = 0;
	struct dirent *e;
	DIR *dir;

	if (pid == 0)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	if (dir == NULL)
		die(path, strerror(errno));
	while ((e = readdir(dir)) != NULL) {
		unsigned long long ns;
		FILE *f;

		if (e->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%s/schedstat", pid,
			 e->d_name);
		f = fopen(path, "r");
		if (f == NULL)
			continue;
		if (fscanf(f, "%llu", &ns) == 1)
			sum += ns;
		fclose(f);
	}
	closedir(dir);
	return sum;
}

static uint64_t cpu_own(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) *
		       1000000000ull +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000ull;
}

/* Called at each completion: begin to count, stop, take the sample. */
static void sample(uint64_t started_ns)
{
	uint64_t now = now_ns();

	if (!b.counting && !b.stopping && now >= b.begin_ns) {
		b.counting = true;
		b.begin_ns = now;
		b.end_ns = now + (uint64_t)(b.seconds * 1e9);
		b.cpu_own = cpu_own();
		b.cpu_server = cpu_of(b.pid);
		return;
	}
	if (!b.counting)
		return;
	if (b.count < SAMPLES_MAX)
		b.samples[b.count++] = (uint32_t)(now - started_ns);
	if (now < b.end_ns && b.count < SAMPLES_MAX)
		return;
	b.counting = false;
	b.stopping = true;
	b.end_ns = now;
	b.cpu_own = cpu_own() - b.cpu_own;
	b.cpu_server = cpu_of(b.pid) - b.cpu_server;
}

static uint64_t place_next(void)
{
	if (b.sequential)
		return b.start + b.next++ % b.limit * b.bytes;
	return b.start + random_next(&b.random) % b.limit * b.bytes;
}

static int by_value(const void *x, const void *y)
{
	uint32_t a = *(const uint32_t *)x, c = *(const uint32_t *)y;

	return a < c ? -1 : a > c;
}

static void print_result(void)
{
	double seconds = (double)(b.end_ns - b.begin_ns) / 1e9;
	double n = (double)(b.count ? b.count : 1);
	size_t half = b.count / 2, most = b.count * 99 / 100;

	if (b.count == 0)
		die("result", "nothing was completed");
	qsort(b.samples, b.count, sizeof(*b.samples), by_value);
	printf("{\"iops\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f, "
	       "\"cpu_generator_us\": %.2f, \"cpu_server_us\": %.2f, "
	       "\"requests\": %llu}\n",
	       n / seconds, (double)b.samples[half] / 1e3,
	       (double)b.samples[most] / 1e3, (double)b.cpu_own / 1e3 / n,
	       (double)b.cpu_server / 1e3 / n, (unsigned long long)b.count);
}

/* ---- iSCSI ---- */

static void slot_send(struct slot *slot);

static void on_answer(struct iscsi_context *iscsi, int status, void *data,
		      void *private_data)
{
	struct scsi_task *task = data;
	struct slot *slot = private_data;

	if (status != SCSI_STATUS_GOOD)
		die("a command failed", iscsi_get_error(iscsi));
	scsi_free_scsi_task(task);
	b.in_flight--;
	sample(slot->started_ns);
	if (!b.stopping)
		slot_send(slot);
}

static void slot_send(struct slot *slot)
{
	uint64_t lba = place_next() / b.lba_bytes;
	struct scsi_task *task;

	slot->started_ns = now_ns();
	slot->iov = (struct scsi_iovec){ slot->buf, b.bytes };
	if (b.write)
		task = iscsi_write16_task(b.iscsi, b.lun, lba, slot->buf,
					  b.bytes, (int)b.lba_bytes, 0, 0, 0, 0,
					  0, on_answer, slot);
	else
		task = iscsi_read16_iov_task(b.iscsi, b.lun, lba, b.bytes,
					     (int)b.lba_bytes, 0, 0, 0, 0, 0,
					     on_answer, slot, &slot->iov, 1);
	if (task == NULL)
		die("a command was not sent", iscsi_get_error(b.iscsi));
	b.in_flight++;
}

static void span_set(uint64_t bytes)
{
	if (b.start % 4096 || b.start >= bytes)
		die("start", "beyond the end, or no multiple of 4096");
	if (b.span == 0 || b.span > bytes - b.start)
		b.span = bytes - b.start;
	b.limit = b.span / b.bytes;
	if (b.limit == 0)
		die("span", "smaller than a request");
}

static void bench_iscsi(void)
{
	struct scsi_readcapacity16 *rc;
	struct scsi_task *task;
	char why[256] = "";

	b.iscsi = initiator_login("iqn.2026-11.internal.basalt:bench", b.where,
				  60, &b.lun, why, sizeof(why));
	if (b.iscsi == NULL)
		die(b.where, why);
	task = iscsi_readcapacity16_sync(b.iscsi, b.lun);
	rc = task != NULL ? scsi_datain_unmarshall(task) : NULL;
	if (rc == NULL || rc->block_length == 0)
		die("READ CAPACITY(16)", iscsi_get_error(b.iscsi));
	b.lba_bytes = rc->block_length;
	span_set((rc->returned_lba + 1) * rc->block_length);
	scsi_free_scsi_task(task);

	b.begin_ns = now_ns() + WARM_NS;
	for (unsigned i = 0; i < b.depth; i++)
		slot_send(&b.slots[i]);
	while (b.in_flight > 0) {
		struct pollfd pfd = {
			.fd = iscsi_get_fd(b.iscsi),
			.events = (short)iscsi_which_events(b.iscsi),
		};

		if (poll(&pfd, 1, 60000) == 0)
			die("poll", "no answer for 60 s");
		if (iscsi_service(b.iscsi, pfd.revents) < 0)
			die("connection", iscsi_get_error(b.iscsi));
	}
	iscsi_logout_sync(b.iscsi);
	iscsi_destroy_context(b.iscsi);
}

/* ---- the raw file ---- */

static void raw_send(struct io_uring *ring, int fd, struct slot *slot)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	uint64_t at = place_next();

	slot->started_ns = now_ns();
	if (b.write)
		io_uring_prep_write(sqe, fd, slot->buf, b.bytes, at);
	else
		io_uring_prep_read(sqe, fd, slot->buf, b.bytes, at);
	if (b.write && b.dsync)
		sqe->rw_flags = RWF_DSYNC;
	io_uring_sqe_set_data(sqe, slot);
	b.in_flight++;
}

static void bench_raw(void)
{
	int fd = open(b.where, O_RDWR | O_DIRECT | O_CLOEXEC);
	struct io_uring ring;
	struct stat st;

	if (fd < 0 || fstat(fd, &st) != 0)
		die(b.where, strerror(errno));
	span_set((uint64_t)st.st_size);
	if (io_uring_queue_init(DEPTH_MAX, &ring, 0) != 0)
		die("io_uring", "cannot be set up");
	b.begin_ns = now_ns() + WARM_NS;
	for (unsigned i = 0; i < b.depth; i++)
		raw_send(&ring, fd, &b.slots[i]);
	while (b.in_flight > 0) {
		struct io_uring_cqe *cqe;
		unsigned head, seen = 0;

		if (io_uring_submit_and_wait(&ring, 1) < 0)
			die("io_uring", "submission failed");
		io_uring_for_each_cqe(&ring, head, cqe)
		{
			struct slot *slot = io_uring_cqe_get_data(cqe);

			if (cqe->res != (int)b.bytes)
				die("raw I/O", strerror(-cqe->res));
			seen++;
			b.in_flight--;
			sample(slot->started_ns);
			if (!b.stopping)
				raw_send(&ring, fd, slot);
		}
		io_uring_cq_advance(&ring, seen);
	}
	io_uring_queue_exit(&ring);
	close(fd);
}

/* ---- what a round trip costs ---- */

static void xfer(int fd, uint8_t *buf, size_t len, bool out)
{
	while (len > 0) {
		ssize_t n = out ? write(fd, buf, len) : read(fd, buf, len);

		if (n <= 0) {
			if (n == 0 && !out)
				_exit(0);
			die("ping-pong", strerror(errno));
		}
		buf += n;
		len -= (size_t)n;
	}
}

static void bench_pingpong(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t sa_len = sizeof(sa);
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd, one = 1;
	static uint8_t head[48];
	pid_t child;

	if (bind(listener, (struct sockaddr *)&sa, sa_len) != 0 ||
	    listen(listener, 1) != 0 ||
	    getsockname(listener, (struct sockaddr *)&sa, &sa_len) != 0)
		die("ping-pong", strerror(errno));
	child = fork();
	if (child == 0) {
		fd = accept(listener, NULL, NULL);
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		for (;;) {
			xfer(fd, head, sizeof(head), false);
			xfer(fd, b.slots[0].buf, 4096, true);
		}
	}
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (child < 0 || connect(fd, (struct sockaddr *)&sa, sa_len) != 0)
		die("ping-pong", strerror(errno));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	b.begin_ns = now_ns() + WARM_NS / 4;
	while (!b.stopping) {
		uint64_t started = now_ns();

		xfer(fd, head, sizeof(head), true);
		xfer(fd, b.slots[0].buf, 4096, false);
		sample(started);
	}
	close(fd);
	close(listener);
	waitpid(child, NULL, 0);
}

static void options(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "op", required_argument, NULL, 'o' },
		{ "bytes", required_argument, NULL, 'b' },
		{ "depth", required_argument, NULL, 'd' },
		{ "seconds", required_argument, NULL, 's' },
		{ "random", no_argument, NULL, 'r' },
		{ "sequential", no_argument, NULL, 'q' },
		{ "start", required_argument, NULL, 'A' },
		{ "span", required_argument, NULL, 'S' },
		{ "dsync", no_argument, NULL, 'D' },
		{ "pid", required_argument, NULL, 'p' },
		{ "fill", required_argument, NULL, 'f' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'o':
			b.write = strcmp(optarg, "write") == 0;
			break;
		case 'b':
			b.bytes = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'd':
			b.depth = (unsigned)atoi(optarg);
			break;
		case 's':
			b.seconds = atof(optarg);
			break;
		case 'r':
			b.sequential = false;
			break;
		case 'q':
			b.sequential = true;
			break;
		case 'A':
			b.start = strtoull(optarg, NULL, 0);
			break;
		case 'S':
			b.span = strtoull(optarg, NULL, 0);
			break;
		case 'D':
			b.dsync = true;
			break;
		case 'p':
			b.pid = atoi(optarg);
			break;
		case 'f':
			b.fill = optarg;
			break;
		default:
			exit(2);
		}
	}
	if (optind < argc)
		b.mode = argv[optind];
	if (optind + 1 < argc)
		b.where = argv[optind + 1];
	if (b.mode == NULL || (b.where == NULL && *b.mode != 'p') ||
	    b.depth == 0 || b.depth > DEPTH_MAX || b.bytes < 512 ||
	    b.bytes % 512) {
		fprintf(stderr, "usage: t_bench iscsi URL | raw FILE | "
				"pingpong [options]\n");
		exit(2);
	}
}

static void fill(uint8_t *buf, size_t len)
{
	size_t text_len = b.fill != NULL ? strlen(b.fill) : 0;

	for (size_t at = 0; at < len; at += 8) {
		uint64_t r = random_next(&b.random);

		memcpy(buf + at, &r, 8);
	}
	for (size_t at = 0; text_len > 0 && at < len; at++)
		buf[at] = (uint8_t)b.fill[at % text_len];
}

int main(int argc, char **argv)
{
	options(argc, argv);
	b.random = now_ns();
	b.samples = malloc(SAMPLES_MAX * sizeof(*b.samples));
	if (b.samples == NULL)
		die("samples", "out of memory");
	for (unsigned i = 0; i < b.depth; i++) {
		size_t room = b.bytes < 4096 ? 4096 : b.bytes;

		b.slots[i].buf =
			aligned_alloc(4096, (room + 4095) / 4096 * 4096);
		if (b.slots[i].buf == NULL)
			die("buffers", "out of memory");
		fill(b.slots[i].buf, room);
	}
	if (strcmp(b.mode, "iscsi") == 0)
		bench_iscsi();
	else if (strcmp(b.mode, "raw") == 0)
		bench_raw();
	else if (strcmp(b.mode, "pingpong") == 0)
		bench_pingpong();
	else
		die(b.mode, "no such mode");
	print_result();
	return 0;
}
