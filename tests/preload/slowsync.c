/*
 * slowsync: a file system that stops to answer.
 *
 *	LD_PRELOAD=slowsync.so SLOWSYNC=FILE basaltd ...
 *
 * As long as FILE is there, a sync or a lock of a file waits if its path has the
 * first line of FILE in it.  A second line is how many of these do not wait: each
 * adds a byte to FILE.passed.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* One of the first @count? */
static bool may_pass(const char *file, long count)
{
	char path[512];
	struct stat st;
	bool may;
	int fd;

	snprintf(path, sizeof(path), "%s.passed", file);
	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	may = fd >= 0 && fstat(fd, &st) == 0 && st.st_size < count &&
	      write(fd, ".", 1) == 1;
	if (fd >= 0)
		close(fd);
	return may;
}

static bool is_held(int fd)
{
	const char *file = getenv("SLOWSYNC");
	char link[40], path[512], part[512] = "", count[32] = "0";
	FILE *f = file != NULL ? fopen(file, "re") : NULL;
	ssize_t len;

	if (f == NULL)
		return false;
	if (fgets(part, sizeof(part), f) != NULL)
		part[strcspn(part, "\n")] = '\0';
	fgets(count, sizeof(count), f);
	fclose(f);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path) - 1);
	path[len > 0 ? len : 0] = '\0';
	return part[0] != '\0' && strstr(path, part) != NULL &&
	       !may_pass(file, atol(count));
}

/* What @name is without us, once it need not wait with @fd any more. */
static void *held(const char *name, int fd)
{
	void *f = dlsym(RTLD_NEXT, name);

	if (f == NULL)
		abort();
	while (is_held(fd))
		usleep(20000);
	return f;
}

int fsync(int fd)
{
	int (*f)(int) = held("fsync", fd);

	return f(fd);
}

int fdatasync(int fd)
{
	int (*f)(int) = held("fdatasync", fd);

	return f(fd);
}

int flock(int fd, int operation)
{
	int (*f)(int, int) = held("flock", fd);

	return f(fd, operation);
}
