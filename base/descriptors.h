/*
 * descriptors: how many of them connections may take.
 *
 * Anybody may connect, and be silent for a while.  The last descriptors are not for
 * that: an index whose files cannot be opened is the end of its disk.
 */
#ifndef BASALT_BASE_DESCRIPTORS_H
#define BASALT_BASE_DESCRIPTORS_H

#include "base/util.h"

#include <fcntl.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <unistd.h>

/* What connections leave to the rest of the daemon: or a quarter. */
#define DESCRIPTORS_LEFT 1024u

/* Is there one for a connection more?  @fd: any that is open. */
static inline bool descriptors_left(int fd)
{
	struct rlimit limit;
	int next = fcntl(fd, F_DUPFD_CLOEXEC, 0); /* the lowest free one */

	if (next < 0)
		return false;
	close(next);
	return getrlimit(RLIMIT_NOFILE, &limit) < 0 ||
	       (rlim_t)next < limit.rlim_cur -
				      MIN(limit.rlim_cur / 4, DESCRIPTORS_LEFT);
}

#endif
