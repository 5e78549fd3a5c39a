/* The admin socket itself, and those who find no memory on it. */
#include "node/admin_int.h"
#include "node/frame.h"
#include "tests/lib/fail_alloc.h"
#include "tests/lib/test.h"

#include "base/shard.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static struct node node;
static struct config config;
static struct test_shard ts;

static bool user; /* who connects is none of root's */
static atomic_bool names_hang;
static atomic_uint naming, naming_max; /* at once */

/* Of the shard's thread: others have the clock as it is. */
static _Thread_local uint64_t passed_ns; /* beyond what it tells */
static _Thread_local bool stands; /* but for what has passed */

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len);
int __wrap_getpwuid_r(uid_t uid, struct passwd *pw, char *buf, size_t len,
		      struct passwd **found);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	static _Thread_local struct timespec last;
	int rv = __real_clock_gettime(clock, now);

	if (stands && clock == CLOCK_MONOTONIC)
		*now = last;
	else if (clock == CLOCK_MONOTONIC)
		last = *now;
	now->tv_sec += (time_t)(passed_ns / SEC);
	return rv;
}

int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	int rv = __real_getsockopt(fd, level, name, value, len);

	if (user && level == SOL_SOCKET && name == SO_PEERCRED)
		((struct ucred *)value)->uid = 1234;
	return rv;
}

int __wrap_getpwuid_r(uid_t uid, struct passwd *pw, char *buf, size_t len,
		      struct passwd **found)
{
	unsigned now = atomic_fetch_add(&naming, 1) + 1;

	if (now > atomic_load(&naming_max))
		atomic_store(&naming_max, now);
	while (atomic_load(&names_hang))
		usleep(1000);
	atomic_fetch_sub(&naming, 1);
	*found = NULL;
	return 0;
}
/* NOLINTEND(bugprone-reserved-identifier) */

static void closed(void *arg)
{
	*(bool *)arg = true;
}

static int connected(void)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(sun.sun_path, sizeof(sun.sun_path), "%.90s/basalt.sock",
		 config.run_dir);
	CHECK_EQ(connect(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	return fd;
}

/* All that comes within two minutes, or -ETIMEDOUT; 0: the end. */
static ssize_t received(int fd, uint8_t *buf, size_t len)
{
	uint64_t end = uv_hrtime() + 120 * SEC;
	ssize_t n;

	do {
		shard_step(ts.env, 10 * MSEC);
		n = recv(fd, buf, len, MSG_DONTWAIT);
	} while (n < 0 && errno == EAGAIN && uv_hrtime() < end);
	return n < 0 ? -ETIMEDOUT : n;
}

/* Of the answer to a request; 0: the end came instead. */
static int answered(int fd)
{
	Admin__Response *response;
	uint8_t buf[4096];
	int status;
	ssize_t n = received(fd, buf, sizeof(buf));

	if (n <= 0)
		return (int)n;
	CHECK(n > (ssize_t)FRAME_HEADER);
	response = admin__response__unpack(NULL, (size_t)n - FRAME_HEADER,
					   buf + FRAME_HEADER);
	CHECK(response != NULL);
	status = response->status;
	admin__response__free_unpacked(response, NULL);
	return status;
}

/* What an empty request on a new connection is answered; 0: with its end. */
static int asked(void)
{
	uint8_t frame[FRAME_HEADER];
	int fd = connected(), status;

	frame_put(frame, 0);
	CHECK_EQ(send(fd, frame, sizeof(frame), MSG_NOSIGNAL), sizeof(frame));
	status = answered(fd);
	close(fd);
	return status;
}

static void open_it(void)
{
	char *dir = test_dir(), why[300];

	test_shard_open(&ts);
	snprintf(config.run_dir, sizeof(config.run_dir), "%s", dir);
	free(dir);
	node.config = &config;
	node.env = ts.env;
	node.state = NODE_ALONE;
	CHECK_EQ(node__admin_open(&node, &node.admin, why, sizeof(why)), 0);
}

static void close_it(void)
{
	bool done = false;

	node__admin_close(node.admin, closed, &done);
	test_run(&ts, &done);
	test_shard_close(&ts);
}

/* Each allocation fails once: who comes later is served all the same. */
TEST(node_socket, no_memory)
{
	bool failed = true;
	unsigned refused = 0;

	open_it();
	CHECK_EQ(asked(), -EOPNOTSUPP);
	for (unsigned k = 1; failed; k++) {
		int status;

		fail_at = k;
		status = asked();
		CHECK(status == -EOPNOTSUPP || status == -ENOMEM ||
		      status == 0);
		failed = fail_at == 0;
		fail_at = 0;
		refused += status == -ENOMEM;
		CHECK_EQ(asked(), -EOPNOTSUPP);
	}
	CHECK_EQ(refused, 1);
	close_it();
}

/* The lowest number of a descriptor that is free. */
static rlim_t descriptors_used(void)
{
	int next = fcntl(STDIN_FILENO, F_DUPFD, 0);

	CHECK(next >= 0);
	close(next);
	return (rlim_t)next;
}

/*
 * Without a descriptor for it a command is told so, by one that is kept for that;
 * where another thread is faster, it waits.  The loop goes on either way.
 */
TEST(node_socket, no_descriptors)
{
	struct rlimit was, few;
	uint8_t frame[FRAME_HEADER];
	int fd;

	open_it();
	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
	few = was;
	frame_put(frame, 0);
	for (unsigned n = 0; n < 3; n++) {
		for (unsigned i = 0; i < 10; i++) /* who left is gone */
			shard_step(ts.env, MSEC);
		fd = connected();
		CHECK_EQ(send(fd, frame, sizeof(frame), MSG_NOSIGNAL),
			 sizeof(frame));
		few.rlim_cur = descriptors_used();
		CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
		CHECK_EQ(answered(fd), -EMFILE);
		CHECK_EQ(setrlimit(RLIMIT_NOFILE, &was), 0);
		close(fd);
		CHECK_EQ(asked(), -EOPNOTSUPP);

		fd = connected();
		CHECK_EQ(send(fd, frame, sizeof(frame), MSG_NOSIGNAL),
			 sizeof(frame));
		few.rlim_cur = 0;
		CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
		for (unsigned i = 0; i < 30; i++)
			shard_step(ts.env, 10 * MSEC);
		CHECK_EQ(setrlimit(RLIMIT_NOFILE, &was), 0);
		CHECK_EQ(answered(fd), -EOPNOTSUPP);
		close(fd);
	}
	close_it();
}

/* Who they are is not found out: they are served, and workers are left. */
TEST(node_socket, a_name_service_that_hangs)
{
	uint8_t frame[FRAME_HEADER];
	int fds[40];

	open_it();
	frame_put(frame, 0);
	user = true;
	CHECK_EQ(asked(), -EOPNOTSUPP);
	atomic_store(&naming_max, 0);
	atomic_store(&names_hang, true);
	for (unsigned n = 0; n < ARRAY_LEN(fds); n++) {
		fds[n] = connected();
		CHECK_EQ(send(fds[n], frame, sizeof(frame), MSG_NOSIGNAL),
			 sizeof(frame));
	}
	for (unsigned n = 0; n < ARRAY_LEN(fds); n++)
		CHECK_EQ(answered(fds[n]), -EOPNOTSUPP);
	CHECK(atomic_load(&naming_max) <= 16);
	/* Also who has left by the time that it is known. */
	for (unsigned n = 0; n < ARRAY_LEN(fds); n++)
		close(fds[n]);
	for (unsigned n = 0; n < 20; n++)
		shard_step(ts.env, MSEC);
	atomic_store(&names_hang, false);
	CHECK_EQ(asked(), -EOPNOTSUPP);
	user = false;
	close_it();
}

/* Nor does it keep a daemon that was stopped. */
TEST(node_socket, ends_while_a_name_service_hangs)
{
	uint8_t frame[FRAME_HEADER];
	int fd;

	open_it();
	frame_put(frame, 0);
	user = true;
	atomic_store(&names_hang, true);
	fd = connected();
	CHECK_EQ(send(fd, frame, sizeof(frame), MSG_NOSIGNAL), sizeof(frame));
	CHECK_EQ(answered(fd), -EOPNOTSUPP);
	close(fd);
	close_it();
	user = false;
	atomic_store(&names_hang, false);
	while (atomic_load(&naming) > 0)
		usleep(1000);
}

/* Half a request, and then the loop is so late, so many times. */
static int late(uint64_t ns, unsigned times)
{
	uint8_t frame[FRAME_HEADER];
	int fd = connected(), status;

	frame_put(frame, 0);
	CHECK_EQ(send(fd, frame, 4, MSG_NOSIGNAL), 4);
	stands = true;
	for (unsigned n = 0; n < 20; n++) /* accepted, and read */
		shard_step(ts.env, MSEC);
	for (; times > 0; times--) {
		passed_ns += ns;
		for (unsigned n = 0; n < 4; n++)
			shard_step(ts.env, MSEC);
	}
	(void)!send(fd, frame + 4, sizeof(frame) - 4, MSG_NOSIGNAL);
	stands = false;
	status = answered(fd);
	close(fd);
	return status;
}

/* The peer has its time from the daemon, whatever that does meanwhile. */
TEST(node_socket, a_late_loop_is_not_the_peers_fault)
{
	open_it();
	CHECK_EQ(late(60 * SEC, 1), -EOPNOTSUPP);
	CHECK_EQ(late(SEC, 8), -EOPNOTSUPP);
	CHECK_EQ(late(SEC, 11), 0);
	close_it();
}

/* Its file and its directory are removed: both are made again. */
TEST(node_socket, removed_by_somebody)
{
	char path[200];

	open_it();
	snprintf(path, sizeof(path), "%.90s/basalt.sock", config.run_dir);
	for (unsigned both = 0; both < 2; both++) {
		CHECK_EQ(unlink(path), 0);
		if (both)
			CHECK_EQ(rmdir(config.run_dir), 0);
		passed_ns += 11 * SEC;
		for (unsigned n = 0; n < 100 && access(path, F_OK) < 0; n++)
			shard_step(ts.env, 20 * MSEC);
		CHECK_EQ(asked(), -EOPNOTSUPP);
	}
	close_it();
}

/* Where there is no room for them it goes on, and ends. */
TEST(node_socket, removed_for_good)
{
	char path[200];

	open_it();
	snprintf(path, sizeof(path), "%.90s/basalt.sock", config.run_dir);
	CHECK_EQ(unlink(path), 0);
	CHECK_EQ(rmdir(config.run_dir), 0);
	CHECK_EQ(symlink("gone", config.run_dir), 0);
	for (unsigned n = 0; n < 2; n++) {
		passed_ns += 11 * SEC;
		for (unsigned i = 0; i < 40; i++)
			shard_step(ts.env, 20 * MSEC);
	}
	CHECK_EQ(unlink(config.run_dir), 0);
	close_it();
}
