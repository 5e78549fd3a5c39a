/* answers: a device that hangs is told from one that does not. */
#include "node/node_int.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An error is an answer. */
TEST(answers, answers)
{
	char *dir = test_dir();
	char path[300];
	int fd;

	snprintf(path, sizeof(path), "%s/file", dir);
	CHECK(node__device_answers(path));
	fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	CHECK(node__device_answers(path));
	CHECK_EQ(ftruncate(fd, 1 << 20), 0);
	CHECK(node__device_answers(path));
	close(fd);
	CHECK(node__device_answers(dir));
	free(dir);
}

/* Nobody writes into it: who reads waits.  Once somebody does, it answers. */
TEST(answers, hangs)
{
	char *dir = test_dir();
	char path[300];
	int fd;

	snprintf(path, sizeof(path), "%s/fifo", dir);
	CHECK_EQ(mkfifo(path, 0600), 0);
	CHECK(!node__device_answers(path));
	fd = open(path, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0);
	CHECK_EQ(write(fd, "there", 5), 5);
	CHECK(node__device_answers(path));
	close(fd);
	free(dir);
}
