/*
 * answers: does a device answer at all?
 *
 * Who reads from one that hangs waits in the kernel, cannot be ended, and keeps
 * every file and port it has open.  So another process reads first, one that has
 * nothing: in the search for a disk every device of the machine is read, also
 * those that are none of ours, or that we ourselves are to serve.
 */
#define LOG_ROOM LOG_NODE
#include "base/log.h"
#include "base/util.h"
#include "node/node_int.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/queue.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_MS 5000
#define KILLED_MS 200 /* it ends then, unless it hangs in the kernel */

/* A reader that was given up and is there yet. */
struct reader {
	TAILQ_ENTRY(reader) link;
	pid_t pid;
	char path[256];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static TAILQ_HEAD(, reader) readers = TAILQ_HEAD_INITIALIZER(readers);

static bool has_ended(pid_t pid)
{
	return waitpid(pid, NULL, WNOHANG) != 0;
}

/* Is one at @path yet?  Those that have ended are forgotten. */
static bool is_read(const char *path)
{
	struct reader *r, *next;
	bool found = false;

	pthread_mutex_lock(&lock);
	TAILQ_FOREACH_SAFE (r, &readers, link, next) {
		if (has_ended(r->pid)) {
			TAILQ_REMOVE(&readers, r, link);
			free(r);
		} else if (strcmp(r->path, path) == 0) {
			found = true;
		}
	}
	pthread_mutex_unlock(&lock);
	return found;
}

static void keep(pid_t pid, const char *path)
{
	struct reader *r = calloc(1, sizeof(*r));

	if (r == NULL)
		return; /* another one will be given up for @path */
	r->pid = pid;
	snprintf(r->path, sizeof(r->path), "%s", path);
	pthread_mutex_lock(&lock);
	TAILQ_INSERT_TAIL(&readers, r, link);
	pthread_mutex_unlock(&lock);
}

/* The process that reads the first block of @path, or -errno. */
static pid_t reader_start(const char *path)
{
	char from[270];
	char *const argv[] = { "dd",	      from,	 "of=/dev/null",
			       "bs=4096",     "count=1", "iflag=direct",
			       "status=none", NULL };
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t none;
	pid_t pid;
	int rv;

	snprintf(from, sizeof(from), "if=%s", path);
	sigemptyset(&none);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attr);
	rv = posix_spawn_file_actions_addopen(&files, STDERR_FILENO,
					      "/dev/null", O_WRONLY, 0);
	if (rv == 0)
		rv = posix_spawn_file_actions_addopen(&files, STDOUT_FILENO,
						      "/dev/null", O_WRONLY, 0);
	if (rv == 0)
		rv = posix_spawnattr_setsigmask(&attr, &none);
	if (rv == 0)
		rv = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	if (rv == 0)
		rv = posix_spawnp(&pid, "dd", &files, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	posix_spawn_file_actions_destroy(&files);
	return rv == 0 ? pid : -rv;
}

static bool ends_within(int fd, int ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	int n;

	do
		n = poll(&p, 1, ms);
	while (n < 0 && errno == EINTR);
	return n != 0;
}

bool node__device_answers(const char *path)
{
	bool ended;
	pid_t pid;
	int fd;

	if (is_read(path))
		return false;
	pid = reader_start(path);
	if (pid < 0) {
		log_warn("%s: not tried by another process: %s", path,
			 strerror((int)-pid));
		return true;
	}
	fd = pidfd_open(pid, 0);
	if (fd < 0) {
		/* It is read without being waited for by a clock. */
		(void)waitpid(pid, NULL, 0);
		return true;
	}
	ended = ends_within(fd, ANSWER_MS);
	if (!ended) {
		log_warn("%s does not answer: passed over in the search for a "
			 "disk until it does",
			 path);
		(void)pidfd_send_signal(fd, SIGKILL, NULL, 0);
		if (ends_within(fd, KILLED_MS))
			(void)waitpid(pid, NULL, 0);
		else
			keep(pid, path);
	} else {
		(void)waitpid(pid, NULL, 0);
	}
	close(fd);
	return ended;
}
