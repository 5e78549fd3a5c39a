/*
 * log: one line an event, to standard error.
 *
 * Who reads that may stop doing so: a pager, a terminal, a journal that is stuck.
 * Who logs is a shard's loop as a rule, and must not stand for it: after a while
 * lines are lost, and counted.
 */
#include "base/log.h"
#include "base/tame.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define LINE_BYTES 1024u /* no more than PIPE_BUF: no write is cut */
/* For whoever reads, in each second: he may take a little at a time. */
#define WAIT_NS 100000000ull
#define SEC_NS 1000000000ull

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool stuck; /* it was waited for so long: no more until he reads */
static unsigned lost; /* lines, since */
static bool cut; /* what is lost, in the middle */
static uint64_t second_ns, waited_ns; /* since when, and so long in that */

static const char *const level_names[] = { "error", "warn", "info", "debug" };

/* syslog(3)'s, as the journal takes them. */
static const char *const priorities[] = { "<3>", "<4>", "<6>", "<7>" };
static bool journal;

static const char *const room_names[LOG_ROOMS] = {
#define X(id, name) [id] = name,
	LOG_ROOM_MAP(X)
#undef X
};

static atomic_int levels[LOG_ROOMS] = {
#define X(id, name) [id] = LOG_INFO_L,
	LOG_ROOM_MAP(X)
#undef X
};

bool log_enabled(enum log_room room, enum log_level level)
{
	return (int)level <=
	       atomic_load_explicit(&levels[room], memory_order_relaxed);
}

void log_open(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	char ours[64];
	struct stat st;

	journal = false;
	if (stream == NULL || fstat(STDERR_FILENO, &st) < 0)
		return;
	snprintf(ours, sizeof(ours), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	journal = strcmp(stream, ours) == 0;
}

static size_t line_make(char line[LINE_BYTES], enum log_room room,
			enum log_level level, const char *fmt, va_list ap)
{
	struct timespec ts;
	struct tm tm;
	size_t n;
	int rv;

	clock_gettime(CLOCK_REALTIME, &ts);
	gmtime_r(&ts.tv_sec, &tm);
	strcpy(line, journal ? priorities[level] : "");
	n = strlen(line);
	n += strftime(line + n, LINE_BYTES - n, "%Y-%m-%dT%H:%M:%S", &tm);
	rv = snprintf(line + n, LINE_BYTES - n,
		      ".%03ldZ %-5s %s: ", ts.tv_nsec / 1000000,
		      level_names[level], room_names[room]);
	n += (size_t)rv;
	rv = vsnprintf(line + n, LINE_BYTES - n - 1, fmt, ap);
	if (rv > 0)
		n += (size_t)rv;
	if (n > LINE_BYTES - 2) /* cut */
		n = LINE_BYTES - 2;
	line[n] = '\0';
	text_tame(line);
	for (size_t i = 0; i < n; i++) /* names from the wire stay one line */
		if (line[i] == '\n')
			line[i] = '?';
	line[n++] = '\n';
	return n;
}

/*
 * A terminal has room as soon as it has any, and a write waits until there is room
 * for the rest.  Opened once more it does not wait, and does for others that have it.
 * -1: it is none.
 */
static int terminal_open(void)
{
	return isatty(STDERR_FILENO)
		       ? open("/proc/self/fd/2",
			      O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)
		       : -1;
}

/*
 * One write, so that lines of several processes do not mix.  False: it is lost; if
 * nothing but its end is missing, the next one brings that.
 */
static bool line_write(const char *line, size_t n)
{
	struct iovec iov[2] = { { "\n", cut }, { (void *)line, n } };
	int fd = terminal_open();
	ssize_t rv = writev(fd >= 0 ? fd : STDERR_FILENO, iov, 2);
	bool room = rv >= 0 || errno != EAGAIN; /* or nowhere left to say it */
	size_t left = rv > 0 ? iov[0].iov_len + n - (size_t)rv : 0;

	if (fd >= 0)
		close(fd);
	if (rv > 0)
		cut = left > 0;
	return room && left <= 1;
}

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SEC_NS + (uint64_t)ts.tv_nsec;
}

/* As poll(), with what is left of the time for that; 0: there is no room. */
static int room_wait(struct pollfd *p)
{
	uint64_t from = now_ns();
	int rv;

	if (from - second_ns >= SEC_NS) {
		second_ns = from;
		waited_ns = 0;
	}
	if (stuck || waited_ns >= WAIT_NS)
		return 0;
	rv = poll(p, 1, (int)((WAIT_NS - waited_ns) / 1000000) + 1);
	waited_ns += now_ns() - from;
	return rv;
}

/*
 * False: it is lost.  A wait that a signal ends has found no room, and the write
 * would wait for ever.
 */
static bool line_put(const char *line, size_t n)
{
	struct pollfd p = { .fd = STDERR_FILENO, .events = POLLOUT };
	int rv = poll(&p, 1, 0);

	if (rv == 0)
		rv = room_wait(&p);
	/* Another error does not say; it is one of no descriptors left. */
	stuck = rv == 0 || (rv < 0 && errno == EINTR);
	stuck = stuck || !line_write(line, n);
	return !stuck;
}

static bool lost_put(const char *fmt, ...)
{
	char line[LINE_BYTES];
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	n = line_make(line, LOG_BASE, LOG_WARN_L, fmt, ap);
	va_end(ap);
	return line_put(line, n);
}

void log_write(enum log_room room, enum log_level level, const char *fmt, ...)
{
	char line[LINE_BYTES];
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	n = line_make(line, room, level, fmt, ap);
	va_end(ap);
	pthread_mutex_lock(&lock);
	if (lost > 0 &&
	    lost_put(lost == 1 ? "%u line is lost that nobody read in time"
			       : "%u lines are lost that nobody read in time",
		     lost))
		lost = 0;
	if (lost > 0 || !line_put(line, n))
		lost++;
	pthread_mutex_unlock(&lock);
}

int log_level_set(const char *room, const char *level)
{
	bool found = false;
	int l;

	for (l = LOG_ERROR_L; l <= LOG_DEBUG_L; l++)
		if (strcmp(level, level_names[l]) == 0)
			break;
	if (l > LOG_DEBUG_L)
		return -EINVAL;
	for (int r = 0; r < LOG_ROOMS; r++)
		if (strcmp(room, "all") == 0 ||
		    strcmp(room, room_names[r]) == 0) {
			atomic_store(&levels[r], l);
			found = true;
		}
	return found ? 0 : -EINVAL;
}

const char *log_level_get(enum log_room room)
{
	return level_names[atomic_load(&levels[room])];
}

const char *log_room_name(enum log_room room)
{
	return room_names[room];
}

bool log_allowed(struct log_limit *limit, unsigned long long now_ns)
{
	if (now_ns < limit->next_ns)
		return false;
	limit->next_ns = now_ns + 1000000000ull;
	return true;
}
