/* options: the command line, parsed with getopt_long() by the table. */
#include "base/option.h"
#include "base/size.h"
#include "node/cli/cli.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const char *cli_option(const struct cli_call *call, const char *name)
{
	const char *value = NULL;

	for (unsigned i = 0; i < call->given_count; i++)
		if (strcmp(call->given[i].option->name, name) == 0)
			value = call->given[i].value;
	return value;
}

bool cli_has(const struct cli_call *call, const char *name)
{
	for (unsigned i = 0; i < call->given_count; i++)
		if (strcmp(call->given[i].option->name, name) == 0)
			return true;
	return false;
}

size_t cli_options(const struct cli_call *call, const char *name, char **out)
{
	size_t n = 0;

	for (unsigned i = 0; i < call->given_count; i++)
		if (strcmp(call->given[i].option->name, name) == 0)
			out[n++] = (char *)call->given[i].value;
	return n;
}

static void print_name(FILE *f, const struct cli_command *c)
{
	fprintf(f, "basalt %s%s%s", c->group, c->verb ? " " : "",
		c->verb ? c->verb : "");
}

int cli_usage(const struct cli_call *call, const char *fmt, ...)
{
	char error[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(error, sizeof(error), fmt, ap);
	va_end(ap);
	if (call->json) {
		cli_json_error(error, "The command with --help tells more.",
			       -EINVAL, false);
		return CLI_USAGE;
	}
	if (call->command != NULL)
		print_name(stderr, call->command);
	else
		fputs("basalt", stderr);
	cli_print(stderr, ": %s\nTry: ", error);
	if (call->command != NULL)
		print_name(stderr, call->command);
	else
		fputs("basalt", stderr);
	if (call->command == NULL && call->group != NULL)
		fprintf(stderr, " %s", call->group);
	fputs(" --help\n", stderr);
	return CLI_USAGE;
}

int cli_size(const struct cli_call *call, const char *name, uint64_t *out)
{
	const char *text = cli_option(call, name);
	char what[64];

	if (text == NULL)
		return 0;
	snprintf(what, sizeof(what), "--%s", name);
	return cli_size_of(call, what, text, out);
}

int cli_size_of(const struct cli_call *call, const char *what, const char *text,
		uint64_t *out)
{
	int rv = size_parse(text, out);

	if (rv == -ERANGE)
		return cli_usage(call, "%s %s: larger than any", what, text);
	if (rv < 0 || *out == 0)
		return cli_usage(call, "%s %s: no size like 10G or 512M", what,
				 text);
	return 0;
}

int cli_number(const struct cli_call *call, const char *name, uint64_t max,
	       uint32_t *out)
{
	const char *text = cli_option(call, name);
	uint64_t n;

	if (text == NULL)
		return 0;
	if (number_parse(text, 0, max, &n) < 0)
		return cli_usage(call, "--%s %s: a number up to %llu", name,
				 text, (unsigned long long)max);
	*out = (uint32_t)n;
	return 0;
}

/* ---- getopt_long by the table ---- */

#define OPTIONS_MAX 32

struct parsing {
	struct option longs[OPTIONS_MAX];
	const struct cli_option *ours[OPTIONS_MAX];
	int count;
};

static void options_add(struct parsing *p, const struct cli_option *list)
{
	for (; list != NULL && list->name != NULL; list++) {
		p->longs[p->count] = (struct option){
			.name = list->name,
			.has_arg = list->arg ? required_argument : no_argument,
			.val = 1000 + p->count,
		};
		p->ours[p->count++] = list;
	}
	memset(&p->longs[p->count], 0, sizeof(p->longs[0]));
}

bool cli_is_choice(const struct cli_option *option)
{
	return option->arg != NULL && !isupper((unsigned char)option->arg[0]);
}

static bool is_among(const char *value, const char *choice)
{
	size_t len;

	for (; *choice != '\0'; choice += len + (choice[len] == '|')) {
		len = strcspn(choice, "|");
		if (strlen(value) == len && strncmp(value, choice, len) == 0)
			return true;
	}
	return false;
}

/* "tcp, iser or both" */
static int choice_usage(const struct cli_call *call,
			const struct cli_option *option, const char *value)
{
	char text[100] = "";
	size_t at = 0;

	for (const char *p = option->arg; *p != '\0'; p++) {
		if (*p != '|')
			text[at++] = *p;
		else
			at += (size_t)snprintf(
				text + at, sizeof(text) - at, "%s",
				strchr(p + 1, '|') ? ", " : " or ");
		assert(at < sizeof(text) - 1);
	}
	return cli_usage(call, "--%s %s: %s", option->name, value, text);
}

static bool is_given(const struct cli_call *call,
		     const struct cli_option *option, const char *value)
{
	for (unsigned i = 0; i < call->given_count; i++)
		if (call->given[i].option == option &&
		    strcmp(call->given[i].value, value) == 0)
			return true;
	return false;
}

static int take(struct cli_call *call, const struct cli_option *option,
		const char *value, bool *help, bool *version)
{
	if (strcmp(option->name, "json") == 0)
		call->json = true;
	else if (strcmp(option->name, "help") == 0)
		*help = true;
	else if (strcmp(option->name, "version") == 0)
		*version = true;
	else if (strcmp(option->name, "socket") == 0)
		call->socket = value;
	else if (value != NULL && value[0] == '\0') /* "$UNSET" */
		return cli_usage(call, "--%s wants a value", option->name);
	else if (value != NULL && cli_is_choice(option) &&
		 !is_among(value, option->arg))
		return choice_usage(call, option, value);
	else if (!option->repeat && cli_has(call, option->name))
		return cli_usage(call, "--%s is given twice", option->name);
	else if (value != NULL && option->repeat &&
		 is_given(call, option, value))
		return cli_usage(call, "--%s %s is given twice", option->name,
				 value);
	else if (call->given_count == CLI_GIVEN_MAX)
		return cli_usage(call, "too many options");
	else {
		call->given[call->given_count].option = option;
		call->given[call->given_count++].value = value;
	}
	return 0;
}

/* getopt takes a beginning as well; but no --f shall force anything. */
static bool is_whole(const char *word, const struct cli_option *option)
{
	size_t len = strlen(option->name);

	return strncmp(word + 2, option->name, len) == 0 &&
	       (word[2 + len] == '\0' || word[2 + len] == '=');
}

/* It may stand anywhere; what is wrong before it is told as JSON, too. */
static bool json_among(int argc, char **argv)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--json") == 0)
			return true;
	return false;
}

/* @mode "+": stop at the first word. */
static int options_parse(int argc, char **argv, const char *mode,
			 struct parsing *p, struct cli_call *call, bool *help,
			 bool *version)
{
	int c, rv;

	optind = 0;
	opterr = 0;
	while ((c = getopt_long(argc, argv, mode, p->longs, NULL)) != -1) {
		const char *at = argv[optind - 1];

		if (c == 'h') {
			*help = true;
			continue;
		}
		if (c == ':')
			return cli_usage(call, "%s wants a value", at);
		if (c < 1000)
			return cli_usage(call, "there is no option '%s'",
					 option_wrong(argv));
		at = argv[optind - 1 - (optarg == at)];
		if (!is_whole(at, p->ours[c - 1000]))
			return cli_usage(call,
					 "there is no option '%s', but --%s",
					 at, p->ours[c - 1000]->name);
		rv = take(call, p->ours[c - 1000], optarg, help, version);
		if (rv != 0)
			return rv;
	}
	return 0;
}

const struct cli_command *cli_command_find(const char *group, const char *verb)
{
	for (size_t i = 0; i < cli_commands_count; i++) {
		const struct cli_command *c = &cli_commands[i];

		if (strcmp(c->group, group) == 0 &&
		    (c->verb == NULL ||
		     (verb != NULL && strcmp(c->verb, verb) == 0)))
			return c;
	}
	return NULL;
}

static int words_take(struct cli_call *call, int argc, char **argv)
{
	const struct cli_command *c = call->command;
	unsigned n = (unsigned)(argc - optind);

	if (n < c->args_min)
		return cli_usage(call, "%s missing: %s",
				 n == 0 && c->args_min == 1 ? "a word is"
							    : "words are",
				 c->args);
	if (n > c->args_max)
		return cli_usage(call, "'%s' is not expected",
				 argv[optind + (int)c->args_max]);
	for (unsigned i = 0; i < n; i++) {
		call->args[i] = argv[optind + (int)i];
		if (call->args[i][0] == '\0')
			return cli_usage(call, "an empty word");
	}
	call->args_count = n;
	return 0;
}

/* 0: @call is ready; 1: over, with *@status. */
int cli_parse(int argc, char **argv, struct cli_call *call, int *status)
{
	struct parsing p = { .count = 0 };
	bool help = false, version = false;
	const char *group, *verb;
	int words;

	call->json = json_among(argc, argv);
	options_add(&p, cli_globals);
	*status = options_parse(argc, argv, "+:h", &p, call, &help, &version);
	if (*status != 0)
		return 1;
	if (version) {
		printf("basalt %s\n", CLI_VERSION);
		return 1;
	}
	group = optind < argc ? argv[optind] : NULL;
	verb = optind + 1 < argc ? argv[optind + 1] : NULL;
	if (verb != NULL && verb[0] == '-') {
		help |= strcmp(verb, "--help") == 0 || strcmp(verb, "-h") == 0;
		verb = NULL;
	}
	if (group == NULL && !help && call->json) {
		*status = cli_usage(call, "a command is missing");
		return 1;
	}
	if (group == NULL || (help && !cli_group_known(group))) {
		cli_help();
		*status = help ? CLI_DONE : CLI_USAGE;
		return 1;
	}
	call->command = cli_command_find(group, verb);
	if (call->command == NULL) {
		*status = CLI_USAGE;
		if (!cli_group_known(group)) {
			cli_usage(call, "there is no command '%s'", group);
		} else if (help) {
			cli_help_group(group);
			*status = CLI_DONE;
		} else if (verb == NULL && call->json) {
			cli_usage(call, "a word is missing after '%s'", group);
		} else if (verb == NULL) {
			cli_help_group(group);
		} else {
			call->group = group;
			cli_usage(call, "there is no command '%s %s'", group,
				  verb);
		}
		return 1;
	}
	/* The command's words go; what is left has argv[0] before it. */
	words = optind + (call->command->verb != NULL);
	p.count = 0;
	options_add(&p, cli_globals);
	options_add(&p, call->command->options);
	*status = options_parse(argc - words, argv + words, ":h", &p, call,
				&help, &version);
	if (*status == 0 && help) {
		cli_help_command(call->command);
		return 1;
	}
	if (*status == 0)
		*status = words_take(call, argc - words, argv + words);
	return *status != 0;
}
