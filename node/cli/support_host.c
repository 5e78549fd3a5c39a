/*
 * support_host: what the machine says.  Each part is had by a child, within a time:
 * also to open a file may wait for a disk that does not answer.  A child that not
 * even a kill ends is left behind.
 */
#include "base/tame.h"
#include "base/util.h"
#include "node/cli/cli.h"
#include "node/cli/support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_S 15u
#define LEFT_MS 1000 /* for one that was killed */
#define PART_MAX (2u << 20)
#define LOG_MAX (8u << 20)
#define LOG_LINES "40000"

/* ---- a child, and what it printed ---- */

struct had {
	uint8_t *data; /* NULL: nothing */
	size_t len;
	char error[300];
};

typedef void child_fn(const void *arg);

/* Of what it prints to standard error the first line is why it failed. */
static _Noreturn void child_fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	_exit(1);
}

static _Noreturn void child_run(child_fn *fn, const void *arg, size_t max,
				int out, int err)
{
	const struct rlimit size = { max, max };
	int null = open("/dev/null", O_RDONLY);

	/* What interrupts us is not its to clean up. */
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	signal(SIGQUIT, SIG_DFL);
	signal(SIGXFSZ, SIG_DFL);
	dup2(null, STDIN_FILENO);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	setrlimit(RLIMIT_FSIZE, &size);
	fn(arg);
	_exit(fflush(stdout) == 0 ? 0 : 1);
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

/* True once it has ended. */
static bool child_wait(pid_t pid, unsigned limit_ms, int *status)
{
	const struct timespec step = { .tv_nsec = 5000000 };
	uint64_t until = now_ms() + limit_ms;
	bool late = false;

	for (;;) {
		if (waitpid(pid, status, WNOHANG) == pid)
			return true;
		if (late)
			return false;
		nanosleep(&step, NULL);
		/* Also who did not run meanwhile looks once more. */
		late = now_ms() >= until;
	}
}

static void first_line(int fd, char *out, size_t len)
{
	ssize_t n = pread(fd, out, len - 1, 0);

	out[n > 0 ? n : 0] = '\0';
	out[strcspn(out, "\n")] = '\0';
}

static void why_ended(int status, int err, size_t max, struct had *had)
{
	first_line(err, had->error, sizeof(had->error));
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		had->error[0] = '\0';
	else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ)
		snprintf(had->error, sizeof(had->error),
			 "longer than %zu bytes: the rest is left out", max);
	else if (WIFSIGNALED(status))
		snprintf(had->error, sizeof(had->error), "ended by signal %d",
			 WTERMSIG(status));
	else if (had->error[0] == '\0')
		snprintf(had->error, sizeof(had->error), "ended with status %d",
			 WEXITSTATUS(status));
}

static void output_take(int fd, struct had *had)
{
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st) < 0 || st.st_size == 0)
		return;
	had->data = malloc((size_t)st.st_size);
	if (had->data == NULL)
		return;
	n = pread(fd, had->data, (size_t)st.st_size, 0);
	had->len = n > 0 ? (size_t)n : 0;
}

/* Nothing of what @child does or opens keeps us longer than @LIMIT_S. */
static void child_had(child_fn *fn, const void *arg, size_t max,
		      struct had *had)
{
	int out = memfd_create("out", MFD_CLOEXEC), status;
	int err = memfd_create("err", MFD_CLOEXEC);
	pid_t pid;

	memset(had, 0, sizeof(*had));
	fflush(NULL);
	pid = out < 0 || err < 0 ? -1 : fork();
	if (pid < 0) {
		snprintf(had->error, sizeof(had->error),
			 "no process for it: %s", strerror(errno));
	} else if (pid == 0) {
		child_run(fn, arg, max, out, err);
	} else if (child_wait(pid, LIMIT_S * 1000, &status)) {
		why_ended(status, err, max, had);
		output_take(out, had);
	} else {
		kill(pid, SIGKILL);
		child_wait(pid, LEFT_MS, &status);
		snprintf(had->error, sizeof(had->error),
			 "it has not ended within %u s", LIMIT_S);
		output_take(out, had);
	}
	close(out);
	close(err);
}

static void part(struct support *s, const char *name, const char *what,
		 child_fn *fn, const void *arg, size_t max)
{
	struct had had;

	if (support__failed(s))
		return;
	support__progress(what);
	child_had(fn, arg, max, &had);
	if (had.data == NULL && had.error[0] == '\0')
		strcpy(had.error, "it is empty");
	support__add(s, name, what, had.data, had.len, had.error);
	free(had.data);
}

/* ---- a program ---- */

static void child_exec(const void *arg)
{
	char *const *argv = (char *const *)arg;
	const char *path = getenv("PATH");
	char whole[4096];

	/* Not all have root's. */
	snprintf(whole, sizeof(whole), "%s%s/usr/sbin:/usr/bin:/sbin:/bin",
		 path != NULL ? path : "", path != NULL ? ":" : "");
	setenv("PATH", whole, 1);
	setenv("LC_ALL", "C", 1);
	execvp(argv[0], argv);
	if (errno == ENOENT)
		fprintf(stderr, "%s is not installed\n", argv[0]);
	else
		fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

static void program(struct support *s, const char *name,
		    const char *const *argv, size_t max)
{
	char what[300] = "";

	for (size_t i = 0, n = 0; argv[i] != NULL && n < sizeof(what); i++)
		n += (size_t)snprintf(what + n, sizeof(what) - n, "%s%s",
				      i > 0 ? " " : "", argv[i]);
	part(s, name, what, child_exec, argv, max);
}

/* ---- a file ---- */

struct copy {
	const char *path;
	off_t tail; /* only so much of its end; 0: all */
};

static void child_copy(const void *arg)
{
	const struct copy *c = arg;
	int fd = open(c->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	off_t left = c->tail;
	char buf[65536];
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0)
		child_fail(c->path);
	if (!S_ISREG(st.st_mode)) {
		fprintf(stderr, "%s: not a file\n", c->path);
		_exit(1);
	}
	if (c->tail > 0 && st.st_size > c->tail)
		lseek(fd, st.st_size - c->tail, SEEK_SET);
	while ((n = read(fd, buf, sizeof(buf))) > 0) {
		if (c->tail > 0 && n > left)
			n = left;
		left -= n;
		if (n == 0)
			break;
		/* Its limit is one of ours, and ends us. */
		if (fwrite(buf, 1, (size_t)n, stdout) != (size_t)n)
			child_fail("its copy");
	}
	if (n < 0)
		child_fail(c->path);
}

static void file(struct support *s, const char *name, const char *path)
{
	const struct copy copy = { .path = path };

	part(s, name, path, child_copy, &copy, PART_MAX);
}

/* ---- the kernel's log ---- */

/* @names: /sys/block/sda, ... */
static bool is_of_disk(const char *text, const glob_t *names)
{
	static const char *const words[] = { "I/O error", "blk_", "nvme",
					     "scsi" };

	if (strncmp(text, "ata", 3) == 0) /* "ata1.00: ..." */
		return true;
	for (size_t i = 0; i < ARRAY_LEN(words); i++)
		if (strstr(text, words[i]) != NULL)
			return true;
	for (size_t i = 0; i < names->gl_pathc; i++) {
		const char *name = strrchr(names->gl_pathv[i], '/') + 1;

		/* Of these there are many, and they are no hardware. */
		if (strncmp(name, "ram", 3) != 0 && strstr(text, name) != NULL)
			return true;
	}
	return false;
}

/* "6,1234,5678901,-;text": a priority, a number, microseconds since the boot. */
static void record_print(char *record, const glob_t *names)
{
	char *text = strchr(record, ';'), *at = strchr(record, ',');
	unsigned long long us;

	if (text == NULL || at == NULL || (at = strchr(at + 1, ',')) == NULL)
		return;
	us = strtoull(at + 1, NULL, 10);
	text++;
	text[strcspn(text, "\n")] = '\0';
	if (is_of_disk(text, names))
		printf("[%6llu.%06llu] %s\n", us / 1000000, us % 1000000, text);
}

static void child_kernel(const void *arg)
{
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	char record[8193];
	glob_t names;
	ssize_t n;

	if (fd < 0)
		child_fail("/dev/kmsg");
	if (glob("/sys/block/*", 0, NULL, &names) != 0)
		names.gl_pathc = 0;
	/* EPIPE: records are gone meanwhile; the next one is there. */
	while ((n = read(fd, record, sizeof(record) - 1)) > 0 ||
	       (n < 0 && errno == EPIPE)) {
		record[n > 0 ? n : 0] = '\0';
		record_print(record, &names);
	}
	if (n < 0 && errno != EAGAIN)
		child_fail("/dev/kmsg");
}

/* ---- basaltd's process ---- */

static void print_file(const char *path)
{
	char buf[4096];
	FILE *f = fopen(path, "re");
	size_t n;

	if (f == NULL) {
		printf("%s: %s\n", path, strerror(errno));
		return;
	}
	while ((n = fread(buf, 1, sizeof(buf), f)) > 0)
		fwrite(buf, 1, n, stdout);
	fclose(f);
}

/* The words of its command line, which end with zeros. */
static void child_words(const void *arg)
{
	int c;

	if (freopen(arg, "re", stdin) == NULL)
		child_fail(arg);
	while ((c = getchar()) != EOF)
		putchar(c != '\0' ? c : '\n');
}

/* What it has open, and how much that is. */
static void child_files(const void *arg)
{
	const char *path = arg;
	DIR *dir = opendir(path);
	const struct dirent *e;
	unsigned count = 0;

	if (dir == NULL)
		child_fail(path);
	while ((e = readdir(dir)) != NULL) {
		char to[PATH_MAX];
		ssize_t n;

		if (e->d_name[0] == '.')
			continue;
		n = readlinkat(dirfd(dir), e->d_name, to, sizeof(to) - 1);
		to[n > 0 ? n : 0] = '\0';
		text_tame(to);
		printf("%s %s\n", e->d_name, to);
		count++;
	}
	printf("%u open\n", count);
	closedir(dir);
}

/* Where each thread is: of one that hangs its stack, if we may see it. */
static void child_threads(const void *arg)
{
	static const char *const of[] = { "comm", "stat", "wchan", "stack" };
	const char *path = arg;
	DIR *dir = opendir(path);
	const struct dirent *e;

	if (dir == NULL)
		child_fail(path);
	while ((e = readdir(dir)) != NULL) {
		if (e->d_name[0] == '.')
			continue;
		printf("thread %s\n", e->d_name);
		for (size_t i = 0; i < ARRAY_LEN(of); i++) {
			char at[PATH_MAX];

			snprintf(at, sizeof(at), "%s/%.20s/%s", path, e->d_name,
				 of[i]);
			print_file(at);
			if (strcmp(of[i], "wchan") == 0)
				putchar('\n');
		}
	}
	closedir(dir);
}

static void process(struct support *s, pid_t pid)
{
	static const struct {
		const char *name, *file;
		child_fn *fn; /* NULL: the file itself */
	} parts[] = {
		{ "basaltd-cmdline.txt", "cmdline", child_words },
		{ "basaltd-limits.txt", "limits", NULL },
		{ "basaltd-status.txt", "status", NULL },
		{ "basaltd-io.txt", "io", NULL },
		{ "basaltd-files.txt", "fd", child_files },
		{ "basaltd-threads.txt", "task", child_threads },
	};

	for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
		char path[64];

		snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid,
			 parts[i].file);
		if (pid == 0)
			support__add(s, parts[i].name, "basaltd's process",
				     NULL, 0, "it is not known which it is");
		else if (parts[i].fn != NULL)
			part(s, parts[i].name, path, parts[i].fn, path,
			     PART_MAX);
		else
			file(s, parts[i].name, path);
	}
}

/* ---- what there is to have ---- */

static const struct {
	const char *name;
	const char *argv[9]; /* a program, or a file */
} parts_host[] = {
	{ "uname.txt", { "uname", "-a" } },
	{ "cpu.txt", { "lscpu" } },
	{ "meminfo.txt", { "/proc/meminfo" } },
	{ "loadavg.txt", { "/proc/loadavg" } },
	{ "diskstats.txt", { "/proc/diskstats" } },
	{ "mounts.txt", { "/proc/self/mounts" } },
	{ "df.txt", { "df", "-k" } },
	{ "lsblk.txt",
	  { "lsblk", "-o",
	    "NAME,MAJ:MIN,SIZE,RO,TYPE,FSTYPE,MOUNTPOINT,MODEL,SERIAL,ROTA,"
	    "SCHED,PHY-SEC,LOG-SEC,DISC-MAX,STATE" } },
	/* What systemd has seen of it; no variables, which may be secret. */
	{ "systemctl-status.txt",
	  { "systemctl", "status", "--no-pager", "--full", "--lines=0",
	    "basaltd" } },
	{ "systemctl-show.txt",
	  { "systemctl", "show", "--no-pager",
	    "--property=LoadState,ActiveState,SubState,UnitFileState,Result,"
	    "FragmentPath,DropInPaths,NRestarts,Restart,MainPID,ExecMainCode,"
	    "ExecMainStatus,ExecMainStartTimestamp,ExecMainExitTimestamp,"
	    "MemoryCurrent,MemoryMax,TasksCurrent,TasksMax,LimitMEMLOCK,"
	    "LimitNOFILE,TimeoutStopUSec,OOMScoreAdjust",
	    "basaltd" } },
	{ "journal.txt",
	  { "journalctl", "-u", "basaltd", "-n", "4000", "--no-pager",
	    "-oshort-iso" } },
	{ "rdma.txt", { "rdma", "link" } },
	{ "ip.txt", { "ip", "-s", "address" } },
};

void support__host(struct support *s, pid_t pid)
{
	for (size_t i = 0; i < ARRAY_LEN(parts_host); i++) {
		const char *const *argv = parts_host[i].argv;

		if (argv[0][0] == '/')
			file(s, parts_host[i].name, argv[0]);
		else
			program(s, parts_host[i].name, argv, PART_MAX);
	}
	part(s, "kernel.txt", "/dev/kmsg, what is about disks", child_kernel,
	     NULL, PART_MAX);
	process(s, pid);
}

static void log_file(struct support *s, const char *path, const char *what)
{
	const struct copy copy = { .path = path, .tail = LOG_MAX };
	char text[PATH_MAX];

	snprintf(text, sizeof(text), "the end of %.4000s", what);
	part(s, "basaltd.log", text, child_copy, &copy, LOG_MAX);
}

/* The file that it writes its log to, if it is one: no socket, and no terminal. */
static bool log_of(pid_t pid, char path[64], char *what, size_t what_len)
{
	ssize_t n;

	snprintf(path, 64, "/proc/%d/fd/2", (int)pid);
	n = readlink(path, what, what_len - 1);
	what[n > 0 ? n : 0] = '\0';
	return what[0] == '/' && strncmp(what, "/dev/", 5) != 0;
}

void support__log(struct support *s, pid_t pid, const char *path,
		  const char *socket)
{
	static const char *const journal[] = { "journalctl",  "-u",
					       "basaltd",     "-n",
					       LOG_LINES,     "--no-pager",
					       "-oshort-iso", NULL };
	const char *slash = strrchr(socket, '/');
	char found[PATH_MAX], what[PATH_MAX];

	if (path != NULL) {
		log_file(s, path, path);
		return;
	}
	if (pid != 0 && log_of(pid, found, what, sizeof(what))) {
		log_file(s, found, what);
		return;
	}
	/* Where deploy/run has it. */
	snprintf(found, sizeof(found), "%.*sbasaltd.log",
		 slash != NULL ? (int)MIN(slash + 1 - socket, 200) : 0, socket);
	if (access(found, R_OK) == 0)
		log_file(s, found, found);
	else
		program(s, "basaltd.log", journal, 2 * LOG_MAX);
}

static void child_config_show(const void *arg)
{
	static struct cli_call call;

	admin__request__init(&call.request);
	call.socket = arg;
	if (cli_config_show(&call) != CLI_DONE)
		_exit(1);
}

void support__config_show(struct support *s, const struct cli_call *call)
{
	part(s, "config-show.json", "basalt config show", child_config_show,
	     call->socket, PART_MAX);
}

void support__config(struct support *s, const char *path)
{
	file(s, "basalt.conf", path);
}
