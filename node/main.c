/* basaltd: the command line of the daemon. */
#define LOG_ROOM LOG_NODE
#include "base/log.h"
#include "base/option.h"
#include "base/tame.h"
#include "node/node.h"

#include <fcntl.h>
#include <getopt.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void usage(FILE *f)
{
	fprintf(f,
		"usage: basaltd [--config FILE] [--check-config]\n"
		"\n"
		"  --config FILE    read FILE instead of " CONFIG_PATH_DEFAULT
		"\n"
		"  --check-config   read it, say what is wrong, and end\n"
		"  --version        print the version and end\n"
		"  --help           print this and end\n"
		"\n"
		"Stays in the foreground and logs to standard error.  SIGTERM "
		"drains and ends it.\n"
		"Status: 0 stopped as told, 1 cannot start or go on, 2 usage or "
		"configuration.\n");
}

__attribute__((format(printf, 2, 3))) static void say(FILE *f, const char *fmt,
						      ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	text_tame(text);
	fputs(text, f);
}

/*
 * A standard descriptor that is closed would be the number of the next file, and
 * the log be written into that.
 */
static int descriptors_open(void)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd)
			return -1;
	return 0;
}

/* Up to what we are let; a file that may not grow is an error, not the end. */
static void limits_settle(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &files);
	}
	signal(SIGXFSZ, SIG_IGN);
}

/*
 * RocksDB's buffers, of up to some MiB, come and go.  From the first one on that
 * is freed glibc would take their like out of its threads' arenas, and each of
 * those keeps what it has grown to.
 */
static void memory_settle(void)
{
	(void)mallopt(M_MMAP_THRESHOLD, 256 << 10);
	(void)mallopt(M_TRIM_THRESHOLD, 1 << 20);
}

/* Those of the long options: no letter's. */
enum { CONFIG = 1000, CHECK, VERSION, HELP };

/* True: it is over, with *@status. */
static bool options_take(int argc, char **argv, const char **path, bool *check,
			 int *status)
{
	static const struct option options[] = {
		{ "config", required_argument, NULL, CONFIG },
		{ "check-config", no_argument, NULL, CHECK },
		{ "version", no_argument, NULL, VERSION },
		{ "help", no_argument, NULL, HELP },
		{ 0 },
	};
	bool bad = false;
	int c;

	*status = 0;
	opterr = 0;
	while (!bad &&
	       (c = getopt_long(argc, argv, ":c:h", options, NULL)) != -1) {
		switch (c) {
		case 'c':
		case CONFIG:
			*path = optarg;
			break;
		case CHECK:
			*check = true;
			break;
		case VERSION:
			printf("basaltd %s\n", BASALT_VERSION);
			return true;
		case 'h':
		case HELP:
			usage(stdout);
			return true;
		default:
			bad = true;
			say(stderr,
			    c == ':' ? "basaltd: %s wants a value\n"
				     : "basaltd: there is no option '%s'\n",
			    c == ':' ? argv[optind - 1] : option_wrong(argv));
		}
	}
	if (!bad && optind < argc) {
		bad = true;
		say(stderr, "basaltd: '%s' is not expected\n", argv[optind]);
	}
	if (bad) {
		usage(stderr);
		*status = 2;
	}
	return bad;
}

int main(int argc, char **argv)
{
	const char *path = CONFIG_PATH_DEFAULT;
	static struct config config;
	struct node *node;
	char why[512] = "";
	bool check = false;
	int rv;

	if (descriptors_open() < 0)
		return 1;
	limits_settle();
	memory_settle();
	log_open();
	if (options_take(argc, argv, &path, &check, &rv))
		return rv;
	if (config_load(path, &config, why, sizeof(why)) < 0) {
		say(stderr, "basaltd: %s\n", why);
		return 2;
	}
	if (check) {
		say(stdout, "%s: good\n", path);
		return 0;
	}
	config_log_level_apply(config.log_level);
	rv = node_open(&config, &node, why, sizeof(why));
	if (rv < 0) {
		log_error("cannot start: %s", why[0] ? why : strerror(-rv));
		return 1;
	}
	rv = node_run(node);
	node_close(node);
	return rv;
}
