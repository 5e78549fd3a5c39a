/* basaltd: the command line of the daemon. */
#define LOG_ROOM LOG_NODE
#include "base/log.h"
#include "node/node.h"

#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
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

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "config", required_argument, NULL, 'c' },
		{ "check-config", no_argument, NULL, 'k' },
		{ "version", no_argument, NULL, 'v' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	const char *path = CONFIG_PATH_DEFAULT;
	static struct config config;
	struct node *node;
	char why[512] = "";
	int c, check = 0, rv;

	if (descriptors_open() < 0)
		return 1;
	limits_settle();
	log_open();
	while ((c = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
		switch (c) {
		case 'c':
			path = optarg;
			break;
		case 'k':
			check = 1;
			break;
		case 'v':
			printf("basaltd %s\n", BASALT_VERSION);
			return 0;
		case 'h':
			usage(stdout);
			return 0;
		default:
			usage(stderr);
			return 2;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "basaltd: '%s' is not expected\n",
			argv[optind]);
		usage(stderr);
		return 2;
	}
	if (config_load(path, &config, why, sizeof(why)) < 0) {
		fprintf(stderr, "basaltd: %s\n", why);
		return 2;
	}
	if (check) {
		printf("%s: good\n", path);
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
