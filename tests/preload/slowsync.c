/*
 * slowsync: a file system that stops to answer.
 *
 *	LD_PRELOAD=slowsync.so SLOWSYNC=FILE basaltd ...
 *
 * As long as FILE is there, a sync of a file waits if its path has the first
 * line of FILE in it.
 */
#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_held(int fd)
{
	const char *file = getenv("SLOWSYNC");
	char link[40], path[512], part[512] = "";
	FILE *f = file != NULL ? fopen(file, "re") : NULL;
	ssize_t len;

	if (f == NULL)
		return false;
	if (fgets(part, sizeof(part), f) != NULL)
		part[strcspn(part, "\n")] = '\0';
	fclose(f);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path) - 1);
	path[len > 0 ? len : 0] = '\0';
	return part[0] != '\0' && strstr(path, part) != NULL;
}

#define HOLD(name)                                                             \
	int name(int fd)                                                       \
	{                                                                      \
		int (*f)(int) = dlsym(RTLD_NEXT, #name);                       \
                                                                               \
		if (f == NULL)                                                 \
			abort();                                               \
		while (is_held(fd))                                            \
			usleep(20000);                                         \
		return f(fd);                                                  \
	}
HOLD(fsync)
HOLD(fdatasync)
