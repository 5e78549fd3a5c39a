/* The admin socket itself, and those who find no memory on it. */
#include "node/admin_int.h"
#include "node/frame.h"
#include "tests/lib/fail_alloc.h"
#include "tests/lib/test.h"

#include "base/shard.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct node node;
static struct config config;
static struct test_shard ts;

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

/* All that comes within 5 s, or -ETIMEDOUT; 0: the end. */
static ssize_t received(int fd, uint8_t *buf, size_t len)
{
	uint64_t end = uv_hrtime() + 5 * SEC;
	ssize_t n;

	do {
		shard_step(ts.env, 10 * MSEC);
		n = recv(fd, buf, len, MSG_DONTWAIT);
	} while (n < 0 && errno == EAGAIN && uv_hrtime() < end);
	return n < 0 ? -ETIMEDOUT : n;
}

/* What an empty request on a new connection is answered; 0: with its end. */
static int asked(void)
{
	uint8_t frame[FRAME_HEADER], buf[4096];
	Admin__Response *response;
	int fd = connected(), status;
	ssize_t n;

	frame_put(frame, 0);
	CHECK_EQ(send(fd, frame, sizeof(frame), MSG_NOSIGNAL), sizeof(frame));
	n = received(fd, buf, sizeof(buf));
	close(fd);
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

/* Each allocation fails once: who comes later is served all the same. */
TEST(node_socket, no_memory)
{
	char *dir = test_dir(), why[300];
	bool done = false, failed = true;
	unsigned refused = 0;

	test_shard_open(&ts);
	snprintf(config.run_dir, sizeof(config.run_dir), "%s", dir);
	free(dir);
	node.config = &config;
	node.env = ts.env;
	node.state = NODE_ALONE;
	CHECK_EQ(node__admin_open(&node, &node.admin, why, sizeof(why)), 0);
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
	node__admin_close(node.admin, closed, &done);
	test_run(&ts, &done);
	test_shard_close(&ts);
}
