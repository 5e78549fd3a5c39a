/* client: one request over the admin socket, and its answers. */
#include "base/err.h"
#include "base/util.h"
#include "node/cli/cli.h"
#include "node/frame.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* The daemon bounds what it does; these bound a daemon that is stopped. */
#define CONNECT_S 10
#define SILENCE_S 300
#define HINT_S 5 /* of silence, and it is told */

int cli_say(const struct cli_call *call, const struct cli_error *e)
{
	if (call->json) {
		cli_json_error(e->error, e->fix, e->status, e->unknown);
		return CLI_REFUSED;
	}
	cli_print(stderr, "basalt: %s\n", e->error);
	if (e->fix[0] != '\0')
		cli_print(stderr, "%s\n", e->fix);
	return CLI_REFUSED;
}

static int why(struct cli_error *e, int status, const char *fix,
	       const char *fmt, ...)
	__attribute__((format(printf, 4, 5), nonnull(3)));

static int why(struct cli_error *e, int status, const char *fix,
	       const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(e->error, sizeof(e->error), fmt, ap);
	va_end(ap);
	snprintf(e->fix, sizeof(e->fix), "%s", fix);
	e->status = status;
	e->unknown = false;
	return CLI_REFUSED;
}

int cli_refuse(const struct cli_call *call, const char *error, const char *fix,
	       int status)
{
	struct cli_error e = { 0 };

	why(&e, status, fix, "%s", error);
	return cli_say(call, &e);
}

/* As it has a limit of time, a stop (^Z) and going on end it: it begins anew. */
static int connect_on(int fd, const struct sockaddr_un *sun)
{
	int rv;

	do {
		rv = connect(fd, (const struct sockaddr *)sun, sizeof(*sun));
	} while (rv < 0 && errno == EINTR);
	return rv;
}

/* 0: it is in another container, or not known. */
static pid_t peer_of(int fd)
{
	struct ucred peer = { 0 };
	socklen_t len = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return 0;
	return peer.pid;
}

static int connect_to(struct cli_call *call, struct cli_error *e)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	unsigned patience = call->patience_s;
	struct timeval connect_limit = { .tv_sec = patience ? patience
							    : CONNECT_S };
	struct timeval limit = { .tv_sec = patience ? patience : SILENCE_S };
	int fd, err;

	if (strlen(call->socket) >= sizeof(sun.sun_path)) {
		why(e, -ENOTCONN, "Give a shorter one with --socket.",
		    "the socket's path is longer than 107 characters");
		return -1;
	}
	strcpy(sun.sun_path, call->socket);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0) {
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
		/* It bounds connect() as well. */
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &connect_limit,
			   sizeof(connect_limit));
	}
	if (fd >= 0 && connect_on(fd, &sun) == 0) {
		call->daemon = peer_of(fd);
		return fd;
	}
	err = errno;
	if (err == EACCES || err == EPERM)
		why(e, -err, "Be root, or in group basalt.",
		    "you may not use basaltd's socket %s: %s", call->socket,
		    strerror(err));
	else if (err == EAGAIN)
		why(e, -ETIMEDOUT,
		    "It is stopped or hangs; its log may say why.",
		    "the basaltd of %s takes no connection", call->socket);
	else
		why(e, -ENOTCONN,
		    "Start it (systemctl start basaltd, or make run), or name "
		    "its socket with --socket.",
		    "no basaltd answers on %s: %s",
		    call->socket[0] ? call->socket : "''", strerror(err));
	if (fd >= 0)
		close(fd);
	return -1;
}

static int write_all(int fd, const uint8_t *buf, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, buf, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return -errno;
		buf += n;
		len -= (size_t)n;
	}
	return 0;
}

static int read_all(int fd, uint8_t *buf, size_t len)
{
	while (len > 0) {
		ssize_t n = recv(fd, buf, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? -ETIMEDOUT : -errno;
		if (n == 0)
			return -ECONNRESET;
		buf += n;
		len -= (size_t)n;
	}
	return 0;
}

static int request_send(struct cli_call *call, int fd)
{
	size_t len = admin__request__get_packed_size(&call->request);
	uint8_t *buf;
	int rv;

	if (len > FRAME_REQUEST_MAX)
		return -EMSGSIZE;
	buf = malloc(FRAME_HEADER + len);
	if (buf == NULL)
		return -ENOMEM;
	frame_put(buf, (uint32_t)len);
	admin__request__pack(&call->request, buf + FRAME_HEADER);
	rv = write_all(fd, buf, FRAME_HEADER + len);
	/* One that is turned away may be told why all the same. */
	if (rv == -EPIPE || rv == -ECONNRESET)
		rv = 0;
	explicit_bzero(buf, FRAME_HEADER + len);
	explicit_bzero(call->secrets, sizeof(call->secrets));
	free(buf);
	return rv;
}

static void line_clear(void)
{
	fprintf(stderr, "\r%*s\r", 60, "");
}

/* It changes nothing: what is not answered is asked again. */
static bool only_asks(const struct cli_call *call)
{
	static const char *const verbs[] = { "list", "show", "stats",
					     "status" };
	const char *verb = call->command->verb;

	for (size_t i = 0; verb != NULL && i < ARRAY_LEN(verbs); i++)
		if (strcmp(verb, verbs[i]) == 0)
			return true;
	return verb == NULL; /* health, metrics, ... */
}

/* Once: who waits shall know for whom, how long, and what an end of it means. */
static void hint(const struct cli_call *call, unsigned limit_s)
{
	static bool given;
	char who[32] = "";

	if (given || (call->json && !isatty(STDERR_FILENO)))
		return; /* many a script reads both as one */
	given = true;
	if (call->daemon > 0)
		snprintf(who, sizeof(who), " (pid %d)", (int)call->daemon);
	fprintf(stderr,
		"basaltd%s has not answered for %u s; waiting for %u s at "
		"most.\nCtrl-C ends the waiting%s.\n",
		who, HINT_S, limit_s,
		only_asks(call) ? ""
				: ", but not what basaltd was told to do: look "
				  "with the list command then");
}

/* Until something comes; who looks on is told that nothing does. */
static int answer_wait(const struct cli_call *call, int fd)
{
	unsigned limit = call->patience_s ? call->patience_s : SILENCE_S;
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	bool counted = false;
	unsigned step;
	int rv = 0;

	for (unsigned waited = 0; waited < limit; waited += step) {
		step = limit - waited < HINT_S ? limit - waited : HINT_S;
		/* What it is, if anything, the read tells. */
		rv = poll(&wait, 1, (int)step * 1000);
		if (rv < 0 && errno == EINTR) { /* a stop (^Z) and going on */
			step = 0;
			continue;
		}
		if (rv != 0)
			break;
		if (isatty(STDERR_FILENO))
			line_clear();
		if (call->patience_s == 0)
			hint(call, limit);
		if (!isatty(STDERR_FILENO))
			continue;
		fprintf(stderr, "basaltd has said nothing for %u s ... ",
			waited + step);
		counted = true;
	}
	if (counted)
		line_clear();
	return rv != 0 ? 0 : -ETIMEDOUT;
}

static int response_read(int fd, Admin__Response **out, char *why,
			 size_t why_len)
{
	uint8_t head[FRAME_HEADER], *body;
	uint32_t len = 0;
	int rv = read_all(fd, head, sizeof(head));

	if (rv == 0)
		rv = frame_get(head, FRAME_RESPONSE_MAX, &len, why, why_len);
	if (rv < 0)
		return rv;
	body = malloc(len + 1);
	if (body == NULL)
		return -ENOMEM;
	rv = read_all(fd, body, len);
	if (rv == 0) {
		*out = admin__response__unpack(NULL, len, body);
		if (*out == NULL)
			rv = -EPROTO;
	}
	free(body);
	return rv;
}

static void progress(const Admin__Response *response, bool *shown)
{
	if (!isatty(STDERR_FILENO))
		return;
	if (response->percent > 0)
		fprintf(stderr, "\r%s: %u %% ", response->doing,
			response->percent);
	else
		fprintf(stderr, "\r%s ... ", response->doing);
	fflush(stderr);
	*shown = true;
}

static int refused(struct cli_error *e, const Admin__Response *r)
{
	why(e, r->status, r->fix, "%s",
	    r->error[0] ? r->error : err_text(r->status));
	e->unknown = r->unknown;
	return CLI_REFUSED;
}

static int not_answered(const struct cli_call *call, struct cli_error *e,
			const char *reason)
{
	why(e, -ENOTCONN,
	    only_asks(call)
		    ? "Repeat the command.  The daemon's log says more."
		    : "Whether it was done is not known: look with the list command, "
		      "and repeat this one if it was not: nothing is made twice.  The "
		      "daemon's log says more.",
	    "the answer of basaltd did not come: %s", reason);
	e->unknown = !only_asks(call);
	return CLI_REFUSED;
}

/* The last answer; those before tell how far it is.  0, -errno. */
static int answer_get(const struct cli_call *call, int fd,
		      Admin__Response **out, char *reason, size_t reason_len)
{
	Admin__Response *response = NULL;
	bool shown = false;
	int rv;

	for (;;) {
		rv = answer_wait(call, fd);
		if (rv == 0)
			rv = response_read(fd, &response, reason, reason_len);
		assert(rv < 0 || response != NULL);
		if (rv == 0 && !call->json)
			cli_tame(&response->base);
		if (rv < 0 || response->done)
			break;
		progress(response, &shown);
		admin__response__free_unpacked(response, NULL);
	}
	if (shown)
		line_clear();
	*out = response;
	return rv;
}

int cli_try(struct cli_call *call, Admin__Response **out, struct cli_error *e)
{
	Admin__Response *response = NULL;
	char reason[200] = "";
	int fd, rv;

	if (getrandom(call->request_id, sizeof(call->request_id), 0) !=
	    (ssize_t)sizeof(call->request_id))
		return why(e, -ENOTCONN, "Try again in a moment.",
			   "the kernel has no random numbers yet");
	call->request.request_id.data = call->request_id;
	call->request.request_id.len = sizeof(call->request_id);
	fd = connect_to(call, e);
	if (fd < 0)
		return CLI_REFUSED;
	rv = request_send(call, fd);
	if (rv == -EMSGSIZE) {
		close(fd);
		return why(e, rv, "Do it in several steps.",
			   "the request is longer than 64 KiB: nothing was "
			   "done");
	}
	if (rv == 0)
		rv = answer_get(call, fd, &response, reason, sizeof(reason));
	close(fd);
	if (rv < 0)
		return not_answered(call, e, reason[0] ? reason : err_text(rv));
	assert(response != NULL);
	if (response->status < 0) {
		rv = refused(e, response);
		admin__response__free_unpacked(response, NULL);
		return rv;
	}
	*out = response;
	return CLI_DONE;
}

int cli_ask(struct cli_call *call, Admin__Response **out)
{
	struct cli_error e = { 0 };

	return cli_try(call, out, &e) == CLI_DONE ? CLI_DONE
						  : cli_say(call, &e);
}
