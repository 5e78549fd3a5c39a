/* admin_socket: the file of the admin socket, in run_dir. */
#define LOG_ROOM LOG_NODE
#include "base/log.h"
#include "node/admin_int.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_un address_of(const char *path)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };

	snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", path);
	return sun;
}

/* Is somebody answering on a socket that is there already? */
static bool is_alive(const char *path)
{
	struct sockaddr_un sun = address_of(path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool alive;

	if (fd < 0)
		return false;
	/* EAGAIN: so many wait for it already. */
	alive = connect(fd, (struct sockaddr *)&sun, sizeof(sun)) == 0 ||
		errno == EAGAIN;
	close(fd);
	return alive;
}

int admin__socket_clear(const char *path)
{
	if (is_alive(path))
		return -EADDRINUSE;
	unlink(path);
	return 0;
}

static int run_dir_make(const char *dir)
{
	struct stat st;

	if (mkdir(dir, 0755) == 0)
		return 0;
	if (errno != EEXIST)
		return -errno;
	if (stat(dir, &st) < 0)
		return -errno;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

/* Nobody can connect before listen(): the mode is set first. */
static int socket_settle(const char *path, gid_t gid, int fd)
{
	if (chmod(path, 0660) < 0)
		return -errno;
	if (gid != (gid_t)-1 && chown(path, (uid_t)-1, gid) < 0)
		log_warn("admin socket: not given to group basalt: %s",
			 strerror(errno));
	return listen(fd, ADMIN_BACKLOG) < 0 ? -errno : 0;
}

int admin__socket_listen(const char *run_dir, const char *path, gid_t gid)
{
	struct sockaddr_un sun = address_of(path);
	int rv = run_dir_make(run_dir), fd;

	if (rv < 0)
		return rv;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0) {
		rv = -errno;
		goto err_close;
	}
	rv = socket_settle(path, gid, fd);
	if (rv == 0)
		return fd;
	unlink(path);
err_close:
	close(fd);
	return rv;
}
