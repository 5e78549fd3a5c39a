/*
 * secret: CHAP secrets from a file, a prompt or standard input, never from the
 * command line; and the question a terminal is asked before something is lost.
 */
#include "base/util.h"
#include "node/cli/cli.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

/*
 * A line without its end, and without the mark of their form that some editors put
 * before a text; 0, also where there is none, -EMSGSIZE, -EILSEQ (it is of characters
 * of two bytes, or is no text), or -errno.
 */
static int line_read(FILE *f, uint8_t *out, size_t max, size_t *len)
{
	static const uint8_t mark[] = { 0xef, 0xbb, 0xbf };
	int c;

	*len = 0;
	while ((c = getc(f)) != EOF && c != '\n') {
		if (*len == max)
			return -EMSGSIZE;
		out[(*len)++] = (uint8_t)c;
	}
	if (ferror(f))
		return -errno;
	if (*len > 0 && out[*len - 1] == '\r')
		(*len)--;
	if (*len >= sizeof(mark) && memcmp(out, mark, sizeof(mark)) == 0) {
		*len -= sizeof(mark);
		memmove(out, out + sizeof(mark), *len);
	}
	return memchr(out, '\0', *len) != NULL ? -EILSEQ : 0;
}

const char *cli_secret_wrong(int status)
{
	return status == -EMSGSIZE  ? "its first line is longer than 255 "
				      "characters"
	       : status == -EILSEQ  ? "its first line is no text of single "
				      "bytes (save it as UTF-8)"
	       : status == -ENODATA ? "its first line is empty"
				    : strerror(-status);
}

int cli_secret_read(const char *path, uint8_t *out, size_t max, size_t *len)
{
	FILE *f = fopen(path, "re");
	int rv;

	if (f == NULL)
		return -errno;
	/* No buffer of stdio keeps what was read. */
	setvbuf(f, NULL, _IONBF, 0);
	rv = line_read(f, out, max, len);
	fclose(f);
	return rv;
}

/* An interrupt while the echo is off would leave it off. */
static const int interrupts[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };
static struct termios echoing;

static void on_interrupt(int signum)
{
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &echoing);
	raise(signum); /* by its default now: SA_RESETHAND */
}

static void interrupts_catch(struct sigaction before[ARRAY_LEN(interrupts)])
{
	struct sigaction act = { .sa_handler = on_interrupt,
				 .sa_flags = (int)SA_RESETHAND };

	for (unsigned i = 0; i < ARRAY_LEN(interrupts); i++)
		sigaction(interrupts[i], &act, &before[i]);
}

static void interrupts_leave(struct sigaction before[ARRAY_LEN(interrupts)])
{
	for (unsigned i = 0; i < ARRAY_LEN(interrupts); i++)
		sigaction(interrupts[i], &before[i], NULL);
}

static int prompt(const char *what, const char *user, uint8_t *out, size_t max,
		  size_t *len)
{
	struct sigaction before[ARRAY_LEN(interrupts)];
	struct termios quiet;
	int rv;

	tcgetattr(STDIN_FILENO, &echoing);
	quiet = echoing;
	interrupts_catch(before);
	quiet.c_lflag &= ~(tcflag_t)ECHO;
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
	cli_print(stderr, "%s secret of %s: ", what, user);
	rv = line_read(stdin, out, max, len);
	tcsetattr(STDIN_FILENO, TCSAFLUSH, &echoing);
	interrupts_leave(before);
	fputc('\n', stderr);
	return rv;
}

static int secret_get(struct cli_call *call, const char *option,
		      const char *file_option, const char *what, uint8_t *out,
		      size_t max, ProtobufCBinaryData *field)
{
	const char *user = cli_option(call, option);
	const char *path = cli_option(call, file_option);
	char error[500], fix[200];
	size_t len = 0;
	int rv;

	snprintf(fix, sizeof(fix),
		 "Give it at a prompt, in a file (--%s FILE), or as a line of "
		 "standard input.",
		 file_option);
	if (user == NULL)
		return path == NULL ? CLI_DONE
				    : cli_usage(call, "--%s needs --%s USER",
						file_option, option);
	if (path != NULL && strcmp(path, "-") != 0) {
		rv = cli_secret_read(path, out, max, &len);
	} else if (path == NULL && isatty(STDIN_FILENO)) {
		rv = prompt(what, user, out, max, &len);
	} else {
		rv = line_read(stdin, out, max, &len);
	}
	if (rv < 0 || len == 0) {
		rv = rv < 0 ? rv : -ENODATA;
		snprintf(error, sizeof(error),
			 "no secret for --%s %.80s: %.300s: %s", option, user,
			 path != NULL && strcmp(path, "-") != 0
				 ? path
				 : "standard input",
			 cli_secret_wrong(rv));
		return cli_refuse(call, error, fix, rv);
	}
	field->data = out;
	field->len = len;
	return CLI_DONE;
}

int cli_secrets(struct cli_call *call)
{
	int rv;

	/* No buffer of stdio keeps what was read. */
	setvbuf(stdin, NULL, _IONBF, 0);
	rv = secret_get(call, "chap", "chap-secret-file", "CHAP",
			call->secrets[0], sizeof(call->secrets[0]),
			&call->access.chap_secret);
	if (rv == CLI_DONE)
		rv = secret_get(call, "mutual-chap", "mutual-secret-file",
				"Mutual CHAP", call->secrets[1],
				sizeof(call->secrets[1]),
				&call->access.mutual_secret);
	return rv;
}

int cli_confirm(struct cli_call *call, const char *what, const char *name)
{
	char line[512], error[500];

	if ((!cli_has(call, "force") && !cli_has(call, "force-erase") &&
	     !cli_has(call, "lose-unreadable")) ||
	    !isatty(STDIN_FILENO))
		return CLI_DONE;
	cli_print(stderr,
		  "This may lose data of %s %s for good.  Type its name to go "
		  "on: ",
		  what, name);
	if (fgets(line, sizeof(line), stdin) == NULL)
		line[0] = '\0';
	line[strcspn(line, "\n")] = '\0';
	if (strcmp(line, name) == 0)
		return CLI_DONE;
	snprintf(error, sizeof(error),
		 "'%.200s' is not %.200s: nothing was done", line, name);
	return cli_refuse(call, error,
			  "Repeat it, and type the name as it stands there.",
			  -ECANCELED);
}
