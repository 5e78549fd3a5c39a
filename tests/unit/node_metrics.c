/* The text of the metrics: whole, or none. */
#include "base/stats.h"
#include "base/util.h"
#include "node/node_int.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define COUNTERS 600u /* more than the text has room for at first */

#define DISKS 500u

static struct node node;
static struct test_shard ts;

static struct {
	struct cmmds_entry entry[DISKS];
	Directory__VDisk vdisk[DISKS];
	uint8_t oid[DISKS][sizeof(struct uuid)];
	char name[DISKS][8];
	unsigned disks;
	/* Looks at entries in a turn of the loop. */
	unsigned looks, looks_max, turns;
	uint64_t turn_ns;
	bool done;
	int status;
	char *text;
	unsigned http_runs; /* of libmicrohttpd */
} is;

/* Every realloc() from the Nth on fails; 0: none. */
static unsigned realloc_fails;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
void *__real_realloc(void *at, size_t size);
enum MHD_Result __real_MHD_run(struct MHD_Daemon *http);
enum MHD_Result __wrap_MHD_run(struct MHD_Daemon *http);
void *__wrap_realloc(void *at, size_t size);
const struct cmmds_entry *__wrap_cmmds_behind(struct cmmds *cmmds,
					      enum cmmds_kind kind,
					      const void *key, size_t key_len);
const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after);
const Directory__Object *__wrap_cmmds_object(struct cmmds *cmmds,
					     const struct uuid *oid);
bool __wrap_iscsi_usage_of(struct iscsi *iscsi, const struct uuid *object,
			   struct iscsi_usage *out);
void __wrap_iscsi_session_each(struct iscsi *iscsi,
			       void (*cb)(const struct iscsi_session_info *info,
					  void *arg),
			       void *arg);

void *__wrap_realloc(void *at, size_t size)
{
	if (realloc_fails == 1)
		return NULL;
	if (realloc_fails > 0)
		realloc_fails--;
	return __real_realloc(at, size);
}

/* The directory has virtual disks only. */
static const struct cmmds_entry *entry_from(enum cmmds_kind kind, size_t i)
{
	is.looks++;
	if (kind == CMMDS_VDISK && node.env != NULL &&
	    env_now(node.env) != is.turn_ns) {
		is.turn_ns = env_now(node.env);
		is.turns++;
		is.looks = 1;
	}
	is.looks_max = MAX(is.looks_max, is.looks);
	return kind == CMMDS_VDISK && i < is.disks ? &is.entry[i] : NULL;
}

const struct cmmds_entry *__wrap_cmmds_behind(struct cmmds *cmmds,
					      enum cmmds_kind kind,
					      const void *key, size_t key_len)
{
	const char *name = key;

	return entry_from(kind, key_len > 0 ? (size_t)atoi(name + 1) + 1 : 0);
}

const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after)
{
	return entry_from(kind, (size_t)(after - is.entry) + 1);
}

const Directory__Object *__wrap_cmmds_object(struct cmmds *cmmds,
					     const struct uuid *oid)
{
	return NULL;
}

/* Disk n has had n reads of a second each; every third no target shows. */
bool __wrap_iscsi_usage_of(struct iscsi *iscsi, const struct uuid *object,
			   struct iscsi_usage *out)
{
	unsigned n = get_be32(object->b);

	*out = (struct iscsi_usage){ .object = *object };
	out->reads.count = n;
	out->reads.sum_ns = n * SEC;
	return n % 3 != 0;
}

void __wrap_iscsi_session_each(struct iscsi *iscsi,
			       void (*cb)(const struct iscsi_session_info *info,
					  void *arg),
			       void *arg)
{
}

enum MHD_Result __wrap_MHD_run(struct MHD_Daemon *http)
{
	is.http_runs++;
	return __real_MHD_run(http);
}
/* NOLINTEND(bugprone-reserved-identifier) */

static bool whole(const char *text)
{
	char name[40];

	for (unsigned i = 0; i < COUNTERS; i++) {
		snprintf(name, sizeof(name), "\ntest_%03u 0\n", i);
		if (strstr(text, name) == NULL)
			return false;
	}
	return strncmp(text, "# HELP ", 7) == 0 &&
	       text[strlen(text) - 1] == '\n' &&
	       strstr(text, "basalt_health_level gauge\n") != NULL;
}

static void nothing(struct env_timer *timer)
{
}

static void open_it(void)
{
	struct env_timer any = { .cb = nothing };

	memset(&is, 0, sizeof(is));
	memset(&node, 0, sizeof(node));
	test_shard_open(&ts);
	node.env = ts.env;
	/* The loop's own room for timers is there. */
	env_timer_start(ts.env, &any, 0);
	env_timer_stop(ts.env, &any);
	node.arena = ts.arena;
	node.state = NODE_UP;
	TAILQ_INIT(&node.disks);
	node__parts_open(&node);
	is.disks = DISKS;
	for (unsigned n = 0; n < DISKS; n++) {
		snprintf(is.name[n], sizeof(is.name[n]), "d%04u", n);
		put_be32(is.oid[n], n);
		directory__vdisk__init(&is.vdisk[n]);
		is.vdisk[n].name = is.name[n];
		is.vdisk[n].oid.data = is.oid[n];
		is.vdisk[n].oid.len = sizeof(is.oid[n]);
		is.vdisk[n].size_bytes = n;
		is.entry[n].message = &is.vdisk[n].base;
		is.entry[n].key = (uint8_t *)is.name[n];
		is.entry[n].key_len = strlen(is.name[n]);
	}
}

static void close_it(void)
{
	CHECK(TAILQ_EMPTY(&node.parts));
	node.env = NULL;
	test_shard_close(&ts);
}

static void on_made(struct node_metrics *made, int status)
{
	CHECK(!is.done);
	is.done = true;
	is.status = status;
	is.text = made->text;
}

/* The text, free()d by the caller, or NULL and is.status. */
static char *text_make(void)
{
	struct node_metrics made;

	is.done = false;
	node__metrics_make(&node, &made, on_made);
	CHECK(!is.done);
	test_run(&ts, &is.done);
	CHECK_EQ(is.text == NULL, is.status != 0);
	return is.text;
}

static void counters_make(void)
{
	static struct counter counters[COUNTERS];
	static char names[COUNTERS][16], help[200];

	memset(help, 'h', sizeof(help) - 1);
	for (unsigned i = 0; i < COUNTERS; i++) {
		snprintf(names[i], sizeof(names[i]), "test_%03u", i);
		counters[i].name = names[i];
		counters[i].help = help;
		counter_register(&counters[i]);
	}
}

TEST(node_metrics, whole_or_none)
{
	unsigned failed = 0;
	char *text;

	open_it();
	is.disks = 10;
	node__metrics_register(&node);
	counters_make();
	for (unsigned n = 1;; n++) {
		realloc_fails = n;
		text = text_make();
		realloc_fails = 0;
		if (text != NULL)
			break;
		CHECK_EQ(is.status, -ENOMEM);
		failed++;
	}
	CHECK(failed > NODE_VDISK_FAMILIES);
	CHECK(whole(text));
	CHECK(strstr(text, "\nbasalt_vdisk_size_bytes{vdisk=\"d0009\"} 9\n"));
	free(text);
	/* Without virtual disks there is nothing of them. */
	is.disks = 0;
	text = text_make();
	CHECK(whole(text));
	CHECK(strstr(text, "basalt_vdisk_") == NULL);
	free(text);
	close_it();
}

/* A line that Prometheus does not take costs all the others. */
TEST(node_metrics, paths)
{
	/* As it is, and in the label; '?' for each byte that is no UTF-8. */
	static const char *const paths[][2] = {
		{ "/d/a \"b\" \\c\nd", "/d/a \\\"b\\\" \\\\c\\nd" },
		{ "/d/\xc3\xa4\xe2\x82\xac\xf0\x9f\x92\xbe",
		  "/d/\xc3\xa4\xe2\x82\xac\xf0\x9f\x92\xbe" },
		{ "/d/\xe4.img", "/d/?.img" }, /* of ISO 8859-1 */
		{ "/d/\xff\xfe\"", "/d/??\\\"" },
		{ "/d/\xe2\x82", "/d/??" }, /* cut off */
		{ "/d/\xc0\xaf", "/d/??" }, /* longer than need be */
		{ "/d/\xed\xa0\x80", "/d/???" }, /* half of a pair of UTF-16 */
		{ "/d/\xf4\x90\x80\x80", "/d/????" }, /* above U+10FFFF */
	};
	static struct node_disk disks[ARRAY_LEN(paths)];
	char line[200], *text;

	open_it();
	is.disks = 0;
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		disks[i].node = &node;
		disks[i].state = NODE_DISK_FAILED;
		strcpy(disks[i].path, paths[i][0]);
		TAILQ_INSERT_TAIL(&node.disks, &disks[i], link);
	}
	text = text_make();
	CHECK(text != NULL);
	for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
		snprintf(line, sizeof(line),
			 "\nbasalt_disk_up{disk=\"00000000-0000-0000-0000-"
			 "000000000000\",path=\"%s\"} 0\n",
			 paths[i][1]);
		CHECK(strstr(text, line) != NULL);
	}
	free(text);
	TAILQ_INIT(&node.disks);
	close_it();
}

/* The lines of one family are together, in order, under its head. */
static void family_check(const char *text, const char *family, unsigned step)
{
	char line[100];
	const char *at;

	snprintf(line, sizeof(line), "# HELP %s ", family);
	at = strstr(text, line);
	CHECK(at != NULL);
	CHECK(strstr(at + 1, line) == NULL);
	at = strchr(strchr(at, '\n') + 1, '\n') + 1;
	for (unsigned n = 0; n < DISKS; n++) {
		snprintf(line, sizeof(line), "%s{vdisk=\"d%04u\"} %u\n", family,
			 n, n % 3 == 0 ? n * step : n);
		CHECK(strncmp(at, line, strlen(line)) == 0);
		at = strchr(at, '\n') + 1;
	}
	CHECK(*at == '#' || *at == '\0');
}

TEST(node_metrics, some_virtual_disks_in_a_turn)
{
	char *text;

	open_it();
	text = text_make();
	CHECK(text != NULL);
	family_check(text, "basalt_vdisk_reads_total", 0);
	family_check(text, "basalt_vdisk_read_seconds_total", 0);
	family_check(text, "basalt_vdisk_size_bytes", 1);
	CHECK(is.looks_max <= NODE_PART + 1);
	CHECK(is.turns >= 2 * (DISKS / NODE_PART));
	CHECK_EQ(node.looked.vdisks, DISKS);
	CHECK_EQ(node.looked.unavailable, DISKS);
	CHECK_STR(node.looked.an_unavailable, "d0000");
	free(text);
	close_it();
}

static void run_turns(unsigned turns)
{
	while (is.turns < turns)
		shard_step(ts.env, MSEC);
}

/* Nobody wants it any more, or the node goes down, at any part of it. */
TEST(node_metrics, cut_off)
{
	struct node_metrics made, other;
	unsigned turns;

	open_it();
	free(text_make());
	turns = is.turns;
	CHECK(turns > 5);
	for (unsigned n = 0; n <= turns; n++) {
		is.turns = 0;
		is.done = false;
		node__metrics_make(&node, &made, on_made);
		run_turns(n);
		if (!is.done)
			node__metrics_drop(&made);
		else
			free(is.text);
		CHECK(TAILQ_EMPTY(&node.parts));
	}
	/* Another goes on. */
	is.turns = 0;
	is.done = false;
	node__metrics_make(&node, &other, on_made);
	node__metrics_make(&node, &made, on_made);
	run_turns(3);
	node__metrics_drop(&made);
	test_run(&ts, &is.done);
	CHECK_EQ(is.status, 0);
	free(is.text);
	is.turns = 0;
	is.done = false;
	node__metrics_make(&node, &made, on_made);
	run_turns(turns - 1);
	CHECK(!is.done);
	node.state = NODE_STOPPING;
	test_run(&ts, &is.done);
	CHECK_EQ(is.status, -ESHUTDOWN);
	CHECK(is.text == NULL);
	close_it();
}

/* ---- over HTTP ---- */

static int http_connected(const struct config_portal *portal)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	CHECK_EQ(connect(fd, (const struct sockaddr *)&portal->address,
			 sizeof(struct sockaddr_in)),
		 0);
	return fd;
}

/* On a port that nobody has. */
static void http_open(struct config *config)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	socklen_t len = sizeof(any);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char text[40];

	any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	CHECK_EQ(bind(fd, (struct sockaddr *)&any, sizeof(any)), 0);
	CHECK_EQ(getsockname(fd, (struct sockaddr *)&any, &len), 0);
	close(fd);
	snprintf(text, sizeof(text), "127.0.0.1:%u", ntohs(any.sin_port));
	CHECK_EQ(config_portal_parse(text, 0, &config->metrics), 0);
	node.config = config;
	node__metrics_start(&node);
	CHECK_EQ(node.metrics_status, 0);
}

/* Does what comes there begin with the metrics? */
static bool http_answered(int fd)
{
	static const char get[] = "GET /metrics HTTP/1.0\r\n\r\n";
	uint64_t end = env_now(ts.env) + 120 * SEC;
	char buf[4096];
	ssize_t n;

	CHECK_EQ(send(fd, get, sizeof(get) - 1, MSG_NOSIGNAL), sizeof(get) - 1);
	do {
		shard_step(ts.env, 10 * MSEC);
		n = recv(fd, buf, sizeof(buf) - 1, MSG_DONTWAIT);
	} while (n < 0 && errno == EAGAIN && env_now(ts.env) < end);
	if (n <= 0)
		return false;
	buf[n] = '\0';
	return strstr(buf, " 200 ") != NULL;
}

/* Who cannot be taken waits, and costs nothing as long as he does. */
TEST(node_metrics, no_descriptors)
{
	static struct config config;
	struct rlimit was, none;
	uint64_t from, passed;
	unsigned tries;
	int fd;

	open_it();
	http_open(&config);
	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
	none = was;
	none.rlim_cur = 0;
	for (unsigned n = 0; n < 2; n++) {
		fd = http_connected(&config.metrics);
		CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
		from = env_now(ts.env);
		is.http_runs = 0;
		do {
			shard_step(ts.env, 20 * MSEC);
			passed = env_now(ts.env) - from;
		} while (passed < SEC);
		CHECK_EQ(setrlimit(RLIMIT_NOFILE, &was), 0);
		tries = (unsigned)(passed / (100 * MSEC)) + 2;
		CHECK(is.http_runs > 2);
		CHECK(is.http_runs <= 2 * tries);
		CHECK(http_answered(fd));
		close(fd);
	}
	node__metrics_stop(&node);
	for (unsigned i = 0; i < 10; i++)
		shard_step(ts.env, MSEC);
	close_it();
}
