/*
 * support: one file with all that who helps from afar would ask for: what basaltd
 * answers, as JSON and as people read it, and what the machine says.
 *
 * It is of most use where something is wrong.  So each part stands alone and has a
 * time of its own: what does not come is left out, and the index says why.
 */
#include "base/size.h"
#include "base/tame.h"
#include "base/util.h"
#include "node/cli/cli.h"
#include "node/cli/support.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/*
 * basaltd answers within half a minute, also where a disk hangs.  Each time that it
 * does not, it is given half as long: one that hangs is asked all the same, as what
 * hangs may be but a part of it.
 */
#define ANSWER_S 45u
#define LOOP_S 15u /* for the first, which waits for nothing but its loop */
#define ALL_S 600u /* for all of its answers */
#define NAMES_MAX                                                              \
	64u /* virtual disks, and targets, that are looked at one by one */
#define CONFIG_PATH "/etc/basalt/basalt.conf"

struct part {
	char name[48], what[200], error[600];
	size_t bytes;
};

struct support {
	struct cli_call *call;
	struct bundle *bundle;
	struct part *parts;
	size_t parts_count, parts_room;
	unsigned silences; /* requests that were not answered in time */
	time_t until_s;
	bool answered;
	pid_t pid; /* basaltd's; 0: not known */
	char host[64], stamp[32];
	char version[64]; /* basaltd's, or "" */
};

static time_t now_s(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec;
}

/* ---- parts ---- */

bool support__failed(const struct support *s)
{
	return bundle_error(s->bundle) < 0;
}

void support__progress(const char *what)
{
	char text[60];

	if (!isatty(STDERR_FILENO))
		return;
	snprintf(text, sizeof(text), "%s", what);
	text_tame(text);
	fprintf(stderr, "\r%-60s\r%s ", "", text);
	fflush(stderr);
}

void support__add(struct support *s, const char *name, const char *what,
		  const void *data, size_t len, const char *error)
{
	struct part *p;

	if (s->parts_count == s->parts_room) {
		s->parts_room = s->parts_room ? 2 * s->parts_room : 64;
		s->parts = realloc(s->parts, s->parts_room * sizeof(*s->parts));
		assert(s->parts != NULL);
	}
	p = &s->parts[s->parts_count++];
	snprintf(p->name, sizeof(p->name), "%s", name);
	snprintf(p->what, sizeof(p->what), "%s", what);
	snprintf(p->error, sizeof(p->error), "%s", error);
	p->bytes = data != NULL ? len : 0;
	if (data != NULL)
		bundle_add(s->bundle, name, data, len);
}

/* ---- what basaltd answers ---- */

struct ask {
	struct cli_call call;
	Admin__Response
		*response; /* NULL: there is none, and @error says why */
	char what[200], error[600];
};

/* The same words as on the command line. */
static bool ask_parse(struct ask *a, const char *socket,
		      const char *const *words, const char *name)
{
	char *argv[12] = { "basalt" };
	int argc = 1, status;
	size_t n = (size_t)snprintf(a->what, sizeof(a->what), "basalt");

	for (; *words != NULL; words++) {
		argv[argc++] = (char *)*words;
		n += (size_t)snprintf(a->what + n, sizeof(a->what) - n, " %s",
				      *words);
	}
	argv[argc++] = "--json";
	if (name != NULL) {
		argv[argc++] = "--";
		argv[argc++] = (char *)name;
		snprintf(a->what + n, sizeof(a->what) - n, " %s", name);
	}
	memset(&a->call, 0, sizeof(a->call));
	admin__request__init(&a->call.request);
	a->call.socket = socket;
	return cli_parse(argc, argv, &a->call, &status) == 0 &&
	       a->call.command->fill(&a->call) == CLI_DONE;
}

static void ask_try(struct support *s, struct ask *a)
{
	unsigned whole = s->parts_count == 0 ? LOOP_S : ANSWER_S;
	unsigned patience = MAX(whole >> MIN(s->silences, 31u), 1u);
	time_t begun = now_s();
	struct cli_error e;

	a->call.patience_s = patience;
	if (begun >= s->until_s) {
		snprintf(a->error, sizeof(a->error),
			 "not asked: what was asked before took %u s", ALL_S);
	} else if (cli_try(&a->call, &a->response, &e) != CLI_DONE) {
		snprintf(a->error, sizeof(a->error), "%s", e.error);
		s->silences += now_s() - begun >= (time_t)patience;
	} else {
		s->answered = true;
	}
	if (a->call.daemon != 0)
		s->pid = a->call.daemon;
}

static void ask_begin(struct support *s, struct ask *a,
		      const char *const *words, const char *name)
{
	a->response = NULL;
	a->error[0] = '\0';
	if (!ask_parse(a, s->call->socket, words, name)) {
		snprintf(a->error, sizeof(a->error), "it cannot be asked");
		return;
	}
	support__progress(a->what);
	ask_try(s, a);
}

/* What @print writes to standard output, which glibc lets us have for a while. */
static void printed(struct support *s, const struct ask *a, const char *name,
		    const char *suffix,
		    void (*print)(const struct cli_call *call,
				  const Admin__Response *response))
{
	FILE *was = stdout, *f;
	char full[64], *text = NULL;
	size_t len = 0;

	f = open_memstream(&text, &len);
	assert(f != NULL);
	stdout = f;
	print(&a->call, a->response);
	stdout = was;
	fclose(f);
	assert(text != NULL);
	snprintf(full, sizeof(full), "%s.%s", name, suffix);
	support__add(s, full, a->what, text, len, "");
	free(text);
}

static void print_json(const struct cli_call *call, const Admin__Response *r)
{
	cli_json_print((const ProtobufCMessage *)r->ok);
}

/* Its files; it is over with @a. */
static void ask_end(struct support *s, struct ask *a, const char *name)
{
	Admin__Response *r = a->response;
	char full[64];

	if (r == NULL) {
		snprintf(full, sizeof(full), "%s.txt", name);
		support__add(s, full, a->what, NULL, 0, a->error);
		return;
	}
	/* As JSON it would be the same text twice. */
	if (r->result_case != ADMIN__RESPONSE__RESULT_METRICS)
		printed(s, a, name, "json", print_json);
	if (cli_lacks(r, false, a->error, sizeof(a->error))) {
		snprintf(full, sizeof(full), "%s.txt", name);
		support__add(s, full, a->what, NULL, 0, a->error);
	} else {
		cli_tame(&r->base);
		printed(s, a, name, "txt", cli_show);
	}
	admin__response__free_unpacked(r, NULL);
}

/* ---- names, for which there is a part each ---- */

struct names {
	char *name[NAMES_MAX];
	unsigned count;
	size_t more; /* that have no place here */
};

static void names_take(struct names *n, const char *name)
{
	if (name[0] == '\0')
		return;
	if (n->count == NAMES_MAX)
		n->more++;
	else if ((n->name[n->count] = strdup(name)) != NULL)
		n->count++;
}

static bool is_well(const Admin__Vdisk *v)
{
	return v->compliant && strcmp(v->health, "healthy") == 0;
}

/* Those with something wrong come first. */
static void names_of_vdisks(struct names *n, const Admin__Response *r)
{
	if (r == NULL || r->result_case != ADMIN__RESPONSE__RESULT_VDISKS)
		return;
	for (size_t i = 0; i < r->vdisks->n_vdisks; i++)
		if (!is_well(r->vdisks->vdisks[i]))
			names_take(n, r->vdisks->vdisks[i]->name);
	for (size_t i = 0; i < r->vdisks->n_vdisks; i++)
		if (is_well(r->vdisks->vdisks[i]))
			names_take(n, r->vdisks->vdisks[i]->name);
}

static void names_of_targets(struct names *n, const Admin__Response *r)
{
	if (r == NULL || r->result_case != ADMIN__RESPONSE__RESULT_TARGETS)
		return;
	for (size_t i = 0; i < r->targets->n_targets; i++)
		names_take(n, r->targets->targets[i]->name);
}

/* A name is no file's: they are numbered. */
static void ask_each(struct support *s, struct ask *a, const struct names *n,
		     const char *group)
{
	const char *words[] = { group, "show", NULL };
	char name[48], text[100];

	for (unsigned i = 0; i < n->count && !support__failed(s); i++) {
		snprintf(name, sizeof(name), "%s-%04u", group, i + 1);
		ask_begin(s, a, words, n->name[i]);
		ask_end(s, a, name);
	}
	if (n->more == 0)
		return;
	snprintf(name, sizeof(name), "%s-more", group);
	snprintf(text, sizeof(text), "%zu more are left out", n->more);
	support__add(s, name, "what there are more than are taken", NULL, 0,
		     text);
}

static void names_free(struct names *n)
{
	while (n->count > 0)
		free(n->name[--n->count]);
}

/* ---- all of it ---- */

static const struct {
	const char *name, *words[5];
} asks[] = {
	{ "log-level", { "log", "level" } }, /* LOOP_S */
	{ "cluster-status", { "cluster", "status" } },
	{ "health", { "health" } },
	{ "events", { "events", "--count", "0" } },
	{ "latency", { "latency", "--seconds", "0" } },
	{ "metrics", { "metrics" } },
	{ "session-list", { "session", "list" } },
	{ "portal-list", { "portal", "list" } },
	{ "policy-list", { "policy", "list" } },
	{ "lun-list", { "lun", "list" } },
	{ "target-list", { "target", "list" } },
	{ "disk-list", { "disk", "list" } },
	{ "vdisk-list", { "vdisk", "list" } },
	{ "vdisk-stats", { "vdisk", "stats", "--seconds", "0" } },
	{ "object-list-unknown", { "object", "list", "--unknown" } },
};

static void daemon_parts(struct support *s)
{
	static struct names vdisks, targets;
	static struct ask a;

	s->until_s = now_s() + (time_t)ALL_S;
	for (size_t i = 0; i < ARRAY_LEN(asks) && !support__failed(s); i++) {
		ask_begin(s, &a, asks[i].words, NULL);
		names_of_vdisks(&vdisks, a.response);
		names_of_targets(&targets, a.response);
		if (a.response != NULL &&
		    a.response->result_case ==
			    ADMIN__RESPONSE__RESULT_CLUSTER_STATUS)
			snprintf(s->version, sizeof(s->version), "%s",
				 a.response->cluster_status->version);
		ask_end(s, &a, asks[i].name);
	}
	ask_each(s, &a, &vdisks, "vdisk");
	ask_each(s, &a, &vdisks, "object");
	ask_each(s, &a, &targets, "target");
	names_free(&vdisks);
	names_free(&targets);
}

static void version_part(struct support *s)
{
	char text[200];
	int n = snprintf(text, sizeof(text), "basalt %s\nbasaltd %s\n",
			 CLI_VERSION, s->version[0] ? s->version : "?");

	support__add(s, "version.txt", "basalt, and the basaltd that answers",
		     text, (size_t)n,
		     s->version[0] ? "" : "basaltd does not tell its own");
}

static void print_index(const struct support *s)
{
	static const char *const heads[] = { "FILE", "<BYTES", "WHAT",
					     "WHY NOT" };
	struct columns *c = columns_open(heads, ARRAY_LEN(heads));

	printf("What basalt %s could have on host %s, at %s, by\n"
	       "basalt support --socket %s\n"
	       "Secrets of CHAP and the cluster's key are in none of it.\n\n",
	       CLI_VERSION, s->host, s->stamp, s->call->socket);
	for (size_t i = 0; i < s->parts_count; i++) {
		const struct part *p = &s->parts[i];

		columns_cell(c, "%s", p->name);
		columns_cell(c, "%zu", p->bytes);
		columns_cell(c, "%.90s", p->what);
		columns_cell(c, "%s", p->error);
	}
	columns_print(c);
}

static void index_add(struct support *s)
{
	FILE *was = stdout, *f;
	char *text = NULL;
	size_t len = 0;

	f = open_memstream(&text, &len);
	assert(f != NULL);
	stdout = f;
	print_index(s);
	stdout = was;
	fclose(f);
	assert(text != NULL);
	text_tame(text);
	bundle_add(s->bundle, "index.txt", text, len);
	free(text);
}

/* ---- what is told of it ---- */

/* What lacks for the same reason is told with it. */
static void missing_tell(const struct support *s)
{
	for (size_t i = 0; i < s->parts_count;) {
		const char *error = s->parts[i].error;

		if (error[0] == '\0') {
			i++;
			continue;
		}
		fputs("basalt: ", stderr);
		fputs(s->parts[i].name, stderr);
		while (++i < s->parts_count &&
		       strcmp(s->parts[i].error, error) == 0)
			fprintf(stderr, ", %s", s->parts[i].name);
		cli_print(stderr, ": %s\n", error);
	}
	if (!s->answered)
		fputs("basalt: nothing came of basaltd itself\n", stderr);
}

static void done_json(const struct support *s, const char *path, size_t bytes)
{
	printf("{\n  \"file\": ");
	cli_json_text(path);
	printf(",\n  \"bytes\": %zu,\n  \"parts\": [", bytes);
	for (size_t i = 0; i < s->parts_count; i++) {
		printf("%s\n    {\n      \"name\": ", i > 0 ? "," : "");
		cli_json_text(s->parts[i].name);
		printf(",\n      \"bytes\": %zu,\n      \"error\": ",
		       s->parts[i].bytes);
		cli_json_text(s->parts[i].error);
		printf("\n    }");
	}
	printf("\n  ]\n}\n");
}

static void done_tell(const struct support *s, const char *path, size_t bytes)
{
	char size[SIZE_TEXT_MAX];

	missing_tell(s);
	cli_print(stdout, "%s: %s, of which index.txt tells what it is.\n",
		  path, size_format(bytes, size));
	printf("There are no secrets in it, but names, addresses and logs: give "
	       "it to whom you trust.\n");
}

static int refuse(const struct cli_call *call, const char *path, int status)
{
	char error[600];

	snprintf(error, sizeof(error), "%.400s is not made: %s", path,
		 status == -EEXIST ? "it exists already" : strerror(-status));
	return cli_refuse(call, error,
			  status == -EEXIST ? "Name another file."
			  : status == -ENOSPC || status == -EDQUOT
				  ? "Name a file where there is space: basalt "
				    "support FILE."
				  : "Name a file in a folder that you may "
				    "write to: basalt support FILE.",
			  status);
}

/* ---- the command ---- */

/* Letters that any file system and shell takes. */
static void host_name(char out[64])
{
	if (gethostname(out, 41) < 0)
		strcpy(out, "host");
	out[40] = '\0';
	for (char *p = out; *p != '\0'; p++)
		if (!isalnum((unsigned char)*p) && *p != '-' && *p != '.')
			*p = '_';
}

static void names_make(struct support *s, char folder[80])
{
	time_t now = time(NULL);
	char day[32];
	struct tm tm;

	host_name(s->host);
	localtime_r(&now, &tm);
	strftime(day, sizeof(day), "%Y%m%d-%H%M%S", &tm);
	strftime(s->stamp, sizeof(s->stamp), "%Y-%m-%d %H:%M:%S %z", &tm);
	snprintf(folder, 80, "basalt-support-%.40s-%.16s", s->host, day);
}

static void collect(struct support *s)
{
	const struct cli_call *call = s->call;
	const char *config = cli_option(call, "config");

	daemon_parts(s);
	if (s->answered)
		support__config_show(s, call);
	else
		support__add(s, "config-show.json", "basalt config show", NULL,
			     0, "not asked: basaltd answers nothing");
	version_part(s);
	support__log(s, s->pid, cli_option(call, "log"), call->socket);
	support__config(s, config != NULL ? config : CONFIG_PATH);
	support__host(s, s->pid);
	index_add(s);
	support__progress("");
}

int cli_support(struct cli_call *call)
{
	static struct support s;
	char folder[80], own[100];
	const char *path = own;
	size_t bytes = 0;
	int rv;

	s.call = call;
	names_make(&s, folder);
	snprintf(own, sizeof(own), "%s.tar.gz", folder);
	if (call->args_count > 0)
		path = call->args[0];
	rv = bundle_open(path, folder, &s.bundle);
	if (rv < 0)
		return refuse(call, path, rv);
	collect(&s);
	rv = bundle_close(s.bundle, &bytes);
	if (rv < 0)
		rv = refuse(call, path, rv);
	else if (call->json)
		done_json(&s, path, bytes);
	else
		done_tell(&s, path, bytes);
	free(s.parts);
	return rv == 0 && s.answered ? CLI_DONE : CLI_REFUSED;
}
