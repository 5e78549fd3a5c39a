/* Lines of the log: where the journal reads them, with their priority. */
#define LOG_ROOM LOG_BASE
#include "base/log.h"
#include "base/util.h"
#include "tests/lib/test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* The clock that waits are counted by, which stands, but for those. */
static uint64_t stands_ns = 1;
/* There is no room before it was waited for so long. */
static uint64_t room_after_ns;

int __real_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);
int __real_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
	int rv = __real_clock_gettime(clock, ts);

	if (clock == CLOCK_MONOTONIC)
		*ts = (struct timespec){
			.tv_sec = (time_t)(stands_ns / 1000000000u),
			.tv_nsec = (long)(stands_ns % 1000000000u),
		};
	return rv;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	if (room_after_ns == 0)
		return __real_poll(fds, n, timeout_ms);
	stands_ns += timeout_ms != 0 ? room_after_ns : 0;
	return timeout_ms != 0;
}

static void a_second_later(void)
{
	stands_ns += 1000000000u;
}

/* What log_write() puts to standard error, with that for the journal's stream. */
static void line_of_text(enum log_level level, const char *stream,
			 const char *text, char line[256])
{
	int saved = dup(STDERR_FILENO), ends[2];
	struct stat st;
	char own[64];
	ssize_t n;

	CHECK_EQ(pipe(ends), 0);
	CHECK(dup2(ends[1], STDERR_FILENO) >= 0);
	CHECK_EQ(fstat(STDERR_FILENO, &st), 0);
	snprintf(own, sizeof(own), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	if (stream == NULL)
		unsetenv("JOURNAL_STREAM");
	else
		setenv("JOURNAL_STREAM", stream[0] != '\0' ? stream : own, 1);
	log_open();
	log_write(LOG_ROOM, level, "one %s", text);
	n = read(ends[0], line, 255);
	unsetenv("JOURNAL_STREAM");
	dup2(saved, STDERR_FILENO);
	log_open();
	close(saved);
	close(ends[0]);
	close(ends[1]);
	CHECK(n > 0);
	line[n] = '\0';
}

static void line_of(enum log_level level, const char *stream, char line[256])
{
	line_of_text(level, stream, "event", line);
}

static bool begins(const char *line, const char *with)
{
	return strncmp(line, with, strlen(with)) == 0;
}

TEST(base_log, the_journal_is_told_the_priority)
{
	char line[256];

	line_of(LOG_ERROR_L, "", line);
	CHECK(begins(line, "<3>2"));
	CHECK(strstr(line, " error base: one event\n") != NULL);
	line_of(LOG_WARN_L, "", line);
	CHECK(begins(line, "<4>2"));
	line_of(LOG_INFO_L, "", line);
	CHECK(begins(line, "<6>2"));
	line_of(LOG_DEBUG_L, "", line);
	CHECK(begins(line, "<7>2"));
}

/* As of a daemon whose standard error was redirected since. */
TEST(base_log, nobody_else_is)
{
	char line[256];

	line_of(LOG_ERROR_L, NULL, line);
	CHECK(begins(line, "2"));
	line_of(LOG_ERROR_L, "1:1", line);
	CHECK(begins(line, "2"));
}

/* A name from the wire commands no terminal, and begins no line. */
TEST(base_log, what_is_told_is_tame)
{
	char line[256];

	line_of_text(LOG_INFO_L, NULL,
		     "\x1b[31m\n\x7f \xc2\x9b \x9b \xc3\xbc \xe2\x82\xac \xc3",
		     line);
	CHECK(strstr(line, "one ?[31m?? ?? ? \xc3\xbc \xe2\x82\xac \xc3\n") !=
	      NULL);
}

static double seconds(void)
{
	struct timespec ts;

	__real_clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* What is there to read. */
static char *drained(int fd)
{
	static char text[1u << 20];
	size_t n = 0;
	ssize_t got;

	CHECK_EQ(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	while ((got = read(fd, text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)got;
	text[n] = '\0';
	return text;
}

/* Lines until nobody has room for them, and some that come when he has. */
static void unread(int ends[2])
{
	int saved = dup(STDERR_FILENO);
	char *first, *then, *p;
	double since;
	unsigned i;

	a_second_later();
	alarm(30); /* or it would wait for ever */
	CHECK(dup2(ends[1], STDERR_FILENO) >= 0);
	since = seconds();
	for (i = 0; i < 10000; i++)
		log_write(LOG_ROOM, LOG_INFO_L, "unread %u", i);
	since = seconds() - since;
	first = strdup(drained(ends[0]));
	log_write(LOG_ROOM, LOG_INFO_L, "read again");
	log_write(LOG_ROOM, LOG_INFO_L, "and again");
	then = drained(ends[0]);
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(ends[0]);
	close(ends[1]);
	alarm(0);
	CHECK(since < 5);
	for (i = 0, p = first; (p = strstr(p, "unread")) != NULL; i++)
		p++;
	free(first);
	CHECK(i > 0 && i < 10000);
	CHECK_EQ(atoi(strstr(then, "base: ") + 6), 10000 - (int)i);
	CHECK(strstr(then, " warn  base: ") < strstr(then, "read again\n"));
	CHECK(strstr(then, "and again\n") != NULL);
	CHECK(strstr(strstr(then, "lost") + 4, "lost") == NULL);
}

TEST(base_log, nobody_reads)
{
	int ends[2];

	CHECK_EQ(pipe(ends), 0);
	unread(ends);
	CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	unread(ends);
}

/* How many of @count lines are read by who makes room after @after_ns, each time. */
static unsigned read_slowly(uint64_t after_ns, unsigned count)
{
	int saved = dup(STDERR_FILENO), ends[2];
	unsigned lines = 0;
	char *text, *p;

	CHECK_EQ(pipe(ends), 0);
	CHECK(dup2(ends[1], STDERR_FILENO) >= 0);
	a_second_later();
	room_after_ns = after_ns;
	for (unsigned i = 0; i < count; i++)
		log_write(LOG_ROOM, LOG_INFO_L, "slow %u", i);
	room_after_ns = 0;
	log_write(LOG_ROOM, LOG_INFO_L, "at last");
	text = drained(ends[0]);
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(ends[0]);
	close(ends[1]);
	for (p = text; (p = strstr(p, "slow")) != NULL; p++)
		lines++;
	CHECK(strstr(text, "at last\n") != NULL);
	CHECK_EQ(strstr(text, "lost") != NULL, lines < count);
	return lines;
}

/* A line is waited for, but not each of many by who reads too slowly for them. */
TEST(base_log, somebody_reads_slowly)
{
	CHECK_EQ(read_slowly(100000, 500), 500);
	CHECK_EQ(read_slowly(30000000, 500), 4);
}

/* Appends what is there to read, without what ends a terminal's lines. */
static size_t master_read(int fd, char *text, size_t n, size_t room)
{
	char part[4096];
	ssize_t got = read(fd, part, MIN(sizeof(part), room - n));

	for (ssize_t i = 0; i < got; i++)
		if (part[i] != '\r')
			text[n++] = part[i];
	return n;
}

/* Whole lines of @text up to @end, and what the others are said to be. */
static unsigned lines_told(const char *text, const char *end)
{
	unsigned told = 0;
	const char *p;

	for (p = text; p < end && strchr(p, '\n') != NULL;
	     p = strchr(p, '\n') + 1) {
		const char *words = strstr(p, "base: ");

		if (words == NULL || words > strchr(p, '\n'))
			continue; /* it is cut */
		words += strlen("base: ");
		if (begins(words, "unread ") || begins(words, "read again "))
			told += strchr(words, '.') < strchr(words, '\n');
		else
			told += (unsigned)atoi(words);
	}
	return told;
}

/* It has room for a part of a line as well, and no more of it for ever. */
TEST(base_log, a_terminal_that_nobody_reads)
{
	static char text[1u << 20];
	int saved = dup(STDERR_FILENO), master, slave;
	const char *again = NULL;
	unsigned i = 0;
	size_t n = 0;

	master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
	if (master < 0) {
		close(saved);
		puts("# skipped: there are no terminals here");
		skip();
	}
	CHECK_EQ(grantpt(master), 0);
	CHECK_EQ(unlockpt(master), 0);
	slave = open(ptsname(master), O_RDWR | O_NOCTTY);
	CHECK(slave >= 0);
	a_second_later();
	alarm(30); /* or it would wait for ever */
	CHECK(dup2(slave, STDERR_FILENO) >= 0);
	for (; i < 10000; i++)
		log_write(LOG_ROOM, LOG_INFO_L, "unread %u.", i);
	while (again == NULL || strchr(again, '\n') == NULL) {
		if (again == NULL)
			log_write(LOG_ROOM, LOG_INFO_L, "read again %u.", i++);
		n = master_read(master, text, n, sizeof(text) - 1);
		again = strstr(text, "read again ");
	}
	/* Others that have the terminal write to it as they did. */
	CHECK_EQ(fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK, 0);
	dup2(saved, STDERR_FILENO);
	close(saved);
	close(slave);
	close(master);
	alarm(0);
	CHECK(strstr(text, "lost") != NULL && strstr(text, "lost") < again);
	CHECK_EQ(lines_told(text, again),
		 atoi(again + strlen("read again ")) + 1);
}

#define ALARMS_MAX 100
static volatile sig_atomic_t alarms;
static const struct itimerval never;

static void on_alarm(int signum)
{
	if (++alarms == ALARMS_MAX)
		setitimer(ITIMER_REAL, &never, NULL);
}

/* Write to what nobody reads, with an alarm soon and then every @again_ms. */
static void alarmed(unsigned again_ms)
{
	struct sigaction old, ours = { .sa_handler = on_alarm };
	struct itimerval often = {
		.it_value = { .tv_usec = 20000 },
		.it_interval = { again_ms / 1000, again_ms % 1000 * 1000 },
	};
	int saved = dup(STDERR_FILENO), ends[2];
	char part[4096] = "";

	CHECK_EQ(pipe(ends), 0);
	CHECK_EQ(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
	while (write(ends[1], part, sizeof(part)) > 0)
		;
	CHECK_EQ(fcntl(ends[1], F_SETFL, 0), 0);
	CHECK(dup2(ends[1], STDERR_FILENO) >= 0);
	CHECK_EQ(sigaction(SIGALRM, &ours, &old), 0);
	alarms = 0;
	a_second_later();
	CHECK_EQ(setitimer(ITIMER_REAL, &often, NULL), 0);
	while (alarms == 0)
		log_write(LOG_ROOM, LOG_INFO_L, "unread");
	CHECK_EQ(setitimer(ITIMER_REAL, &never, NULL), 0);
	drained(ends[0]);
	log_write(LOG_ROOM, LOG_INFO_L, "read again");
	dup2(saved, STDERR_FILENO);
	close(saved);
	sigaction(SIGALRM, &old, NULL);
	close(ends[0]);
	close(ends[1]);
}

/* As if it was told to stop just then: the line is given up, not stood for. */
TEST(base_log, a_signal_while_nobody_reads)
{
	alarmed(10000);
	CHECK_EQ(alarms, 1);
}

/* Nor is it waited for longer the more of them come. */
TEST(base_log, signals_while_nobody_reads)
{
	alarmed(20);
	CHECK(alarms < ALARMS_MAX);
}
