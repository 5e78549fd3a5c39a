/*
 * admin_socket: where the admin service listens, and the file of it in run_dir.
 *
 * libuv's own listener tries again within a turn where there is no descriptor for
 * who comes, for ever: this one tells him so, and waits.
 */
#define LOG_ROOM LOG_NODE
#include "base/log.h"
#include "base/util.h"
#include "node/admin_int.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 128 /* twice as many as are taken */
#define AGAIN_NS (100 * MSEC) /* one that came could not be taken */
#define LOST_NS (10 * SEC) /* between looks whether the file is there */

struct admin_socket {
	struct env *env;
	const char *run_dir;
	char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
	gid_t gid; /* of the file; -1: ours */
	uv_poll_t poll;
	int fd; /* that it listens on; -1: there is none, nor a poll */
	int spare; /* given up where none is left for who comes; or -1 */
	bool closing;
	bool lost; /* the file cannot be made again, which is told */
	struct env_timer again_timer, lost_timer;
	struct env_task close_task; /* where there is no poll to close */
	struct log_limit limit;
	int (*come)(void *arg);
	void (*closed)(void *arg);
	void *arg;
};

/* ---- the file ---- */

static struct sockaddr_un address_of(const struct admin_socket *s)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };

	strcpy(sun.sun_path, s->path);
	return sun;
}

/* Is somebody answering on a socket that is there already? */
static bool is_alive(const struct admin_socket *s)
{
	struct sockaddr_un sun = address_of(s);
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
static int file_settle(const struct admin_socket *s, int fd)
{
	if (chmod(s->path, 0660) < 0)
		return -errno;
	if (s->gid != (gid_t)-1 && chown(s->path, (uid_t)-1, s->gid) < 0)
		log_warn("admin socket: not given to group basalt: %s",
			 strerror(errno));
	return listen(fd, BACKLOG) < 0 ? -errno : 0;
}

/* With run_dir, if need be; a descriptor that listens, or -errno. */
static int file_make(const struct admin_socket *s)
{
	struct sockaddr_un sun = address_of(s);
	int rv = run_dir_make(s->run_dir), fd;

	if (rv < 0)
		return rv;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&sun, sizeof(sun)) < 0) {
		rv = -errno;
		goto err_close;
	}
	rv = file_settle(s, fd);
	if (rv == 0)
		return fd;
	unlink(s->path);
err_close:
	close(fd);
	return rv;
}

/* ---- those that come ---- */

int admin__socket_accept(const struct admin_socket *s)
{
	int fd = accept4(s->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static void spare_open(struct admin_socket *s)
{
	if (s->spare < 0)
		s->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* All that wait are told that there is no descriptor for them. */
static void spare_use(struct admin_socket *s)
{
	uint8_t bytes[ADMIN_REFUSAL_MAX];
	size_t len = admin__refusal_put(
		bytes, -EMFILE,
		"basaltd has no descriptor left for a command: nothing was done",
		"Try again; if it stays so, raise LimitNOFILE= of basaltd's "
		"unit and restart it.");
	int fd;

	close(s->spare);
	s->spare = -1;
	for (unsigned i = 0; i < BACKLOG; i++) {
		fd = admin__socket_accept(s);
		if (fd < 0)
			break;
		(void)!send(fd, bytes, len, MSG_NOSIGNAL);
		close(fd);
	}
	spare_open(s);
}

/* Who cannot be taken would be there again in each turn of the loop. */
static void come_failed(struct admin_socket *s, int error)
{
	if (log_allowed(&s->limit, env_now(s->env)))
		log_warn("admin socket: a connection cannot be taken: %s",
			 strerror(-error));
	if ((error == -EMFILE || error == -ENFILE) && s->spare >= 0)
		spare_use(s);
	uv_poll_stop(&s->poll);
	env_timer_start(s->env, &s->again_timer, AGAIN_NS);
}

/* At most as many as can wait: the others in the next turn. */
static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct admin_socket *s = poll->data;
	int rv = 0;

	shard_wake(s->env);
	for (unsigned i = 0; i < BACKLOG && rv >= 0; i++) {
		rv = s->come(s->arg);
		if (rv == -EINTR || rv == -ECONNABORTED)
			rv = 0;
	}
	if (rv < 0 && rv != -EAGAIN)
		come_failed(s, rv);
}

static void on_again_timer(struct env_timer *timer)
{
	struct admin_socket *s =
		container_of(timer, struct admin_socket, again_timer);

	spare_open(s);
	uv_poll_start(&s->poll, UV_READABLE, on_poll);
}

/* ---- opening, losing, closing ---- */

static int poll_open(struct admin_socket *s)
{
	int fd = file_make(s), rv;

	if (fd < 0)
		return fd;
	rv = uv_poll_init(shard_loop(s->env), &s->poll, fd);
	if (rv < 0) {
		unlink(s->path);
		close(fd);
		return rv;
	}
	s->fd = fd;
	s->poll.data = s;
	uv_poll_start(&s->poll, UV_READABLE, on_poll);
	return 0;
}

static void socket_free(struct admin_socket *s)
{
	void (*closed)(void *arg) = s->closed;
	void *arg = s->arg;

	if (s->spare >= 0)
		close(s->spare);
	free(s);
	closed(arg);
}

static void on_close_task(struct env_task *task)
{
	socket_free(container_of(task, struct admin_socket, close_task));
}

static void make_again(struct admin_socket *s)
{
	int rv = poll_open(s);

	if (rv == 0)
		log_warn("admin socket %s: it was gone, and is made again",
			 s->path);
	else if (!s->lost)
		log_error("admin socket %s: it is gone, and cannot be made "
			  "again: %s",
			  s->path, strerror(-rv));
	s->lost = rv < 0;
}

static void on_poll_closed(uv_handle_t *handle)
{
	struct admin_socket *s = handle->data;

	close(s->fd);
	s->fd = -1;
	if (s->closing)
		socket_free(s);
	else
		make_again(s);
}

/*
 * Who cleans up in /run, or removes it for another, does not leave a node that
 * nobody can administer.  What somebody else put there is left to him.
 */
static void on_lost_timer(struct env_timer *timer)
{
	struct admin_socket *s =
		container_of(timer, struct admin_socket, lost_timer);
	uv_handle_t *handle = (uv_handle_t *)&s->poll;
	struct stat st;

	env_timer_start(s->env, timer, LOST_NS);
	if (lstat(s->path, &st) == 0 || errno != ENOENT)
		return;
	if (s->fd < 0) {
		make_again(s);
	} else if (!uv_is_closing(handle)) {
		env_timer_stop(s->env, &s->again_timer);
		uv_close(handle, on_poll_closed);
	}
}

/* Away with what an earlier life left there. */
static int first_open(struct admin_socket *s)
{
	int len = snprintf(s->path, sizeof(s->path), "%s/basalt.sock",
			   s->run_dir);

	if (len >= (int)sizeof(s->path))
		return -ENAMETOOLONG;
	if (is_alive(s))
		return -EADDRINUSE;
	unlink(s->path);
	return poll_open(s);
}

int admin__socket_open(struct env *env, const char *run_dir,
		       int (*come)(void *arg), void *arg,
		       struct admin_socket **out, char *why, size_t why_len)
{
	struct admin_socket *s = calloc(1, sizeof(*s));
	struct group *group = getgrnam("basalt");
	int rv;

	if (s == NULL)
		return -ENOMEM;
	s->env = env;
	s->run_dir = run_dir;
	s->come = come;
	s->arg = arg;
	s->gid = group != NULL ? group->gr_gid : (gid_t)-1;
	s->again_timer.cb = on_again_timer;
	s->lost_timer.cb = on_lost_timer;
	s->close_task.cb = on_close_task;
	s->fd = s->spare = -1;
	rv = first_open(s);
	if (rv < 0) {
		snprintf(why, why_len, "admin socket %s: %s%s", s->path,
			 strerror(-rv),
			 rv == -EADDRINUSE ? ": another basaltd answers on it; "
					     "give each a run_dir of its own"
					   : "; run_dir has to be a folder "
					     "in which basaltd can make files");
		free(s);
		return rv;
	}
	spare_open(s);
	env_timer_start(env, &s->lost_timer, LOST_NS);
	*out = s;
	return 0;
}

void admin__socket_close(struct admin_socket *s, void (*closed)(void *arg))
{
	s->closing = true;
	s->closed = closed;
	unlink(s->path);
	env_timer_stop(s->env, &s->again_timer);
	env_timer_stop(s->env, &s->lost_timer);
	if (s->fd < 0)
		env_defer(s->env, &s->close_task);
	else if (!uv_is_closing((uv_handle_t *)&s->poll))
		uv_close((uv_handle_t *)&s->poll, on_poll_closed);
	/* Or it is being closed, to be made again. */
}
