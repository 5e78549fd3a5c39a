/* Lines of the log: where the journal reads them, with their priority. */
#define LOG_ROOM LOG_BASE
#include "base/log.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
