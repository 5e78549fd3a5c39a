/* help: --help and the manual page, from the table. */
#include "node/cli/cli.h"

#include <stdio.h>
#include <string.h>

bool cli_group_known(const char *group)
{
	for (size_t i = 0; i < cli_commands_count; i++)
		if (strcmp(cli_commands[i].group, group) == 0)
			return true;
	return false;
}

static int synopsis(const struct cli_command *c, char *out, size_t len)
{
	return snprintf(out, len, "%s%s%s%s%s", c->group, c->verb ? " " : "",
			c->verb ? c->verb : "", c->args[0] ? " " : "", c->args);
}

static void print_options(const struct cli_option *o)
{
	for (; o->name != NULL; o++) {
		char left[64];

		snprintf(left, sizeof(left), "--%s%s%s", o->name,
			 o->arg ? " " : "", o->arg ? o->arg : "");
		if (strlen(left) > 24)
			printf("  %s\n  %24s  %s\n", left, "", o->help);
		else
			printf("  %-24s  %s\n", left, o->help);
	}
}

static void print_list(const char *group)
{
	char left[64];

	for (size_t i = 0; i < cli_commands_count; i++) {
		const struct cli_command *c = &cli_commands[i];

		if (group != NULL && strcmp(group, c->group) != 0)
			continue;
		synopsis(c, left, sizeof(left));
		printf("  %-26s %s\n", left, c->help);
	}
}

void cli_help(void)
{
	printf("usage: basalt COMMAND [OPTION]...\n\n");
	print_list(NULL);
	printf("\nEvery command takes:\n");
	print_options(cli_globals);
	printf("\nbasalt COMMAND --help tells a command's own options.  Status: "
	       "0 done, 1 refused,\n2 usage.  It is also 1, and is said, where "
	       "no answer came and it is not known\nwhether the change was "
	       "made: look with the list command, and repeat this one if\nit "
	       "was not.  Nothing is made twice.  With --json, unknown is "
	       "true then.\n");
}

void cli_help_group(const char *group)
{
	printf("usage: basalt %s ...\n\n", group);
	print_list(group);
	printf("\nbasalt %s COMMAND --help tells more.\n", group);
}

void cli_help_command(const struct cli_command *c)
{
	char text[128];

	synopsis(c, text, sizeof(text));
	printf("usage: basalt %s%s\n\n%c%s.\n", text,
	       c->options[0].name ? " [OPTION]..." : "",
	       c->help[0] >= 'a' && c->help[0] <= 'z' ? c->help[0] - 32
						      : c->help[0],
	       c->help + 1);
	if (c->more != NULL)
		printf("\n%s\n", c->more);
	if (c->options[0].name != NULL) {
		printf("\n");
		print_options(c->options);
	}
	printf("\nAnd, as for every command:\n");
	print_options(cli_globals);
}

/* ---- the manual page: basalt --man > deploy/man/basalt.1 ---- */

/* roff takes '-' for a hyphen and a leading '.' or '\'' for a request. */
static void roff(const char *text)
{
	if (*text == '.' || *text == '\'')
		fputs("\\&", stdout);
	for (; *text != '\0'; text++) {
		if (*text == '\\')
			fputs("\\e", stdout);
		else if (*text == '-')
			fputs("\\-", stdout);
		else
			putchar(*text);
	}
}

static void man_options(const struct cli_option *o)
{
	for (; o->name != NULL; o++) {
		printf(".TP\n\\fB\\-\\-");
		roff(o->name);
		printf("\\fR");
		if (o->arg != NULL) {
			printf(" \\fI");
			roff(o->arg);
			printf("\\fR");
		}
		printf("\n");
		roff(o->help);
		printf("\n");
	}
}

void cli_man(void)
{
	char text[128];

	printf(".TH BASALT 1 \"\" \"Basalt %s\" \"Basalt\"\n"
	       ".SH NAME\nbasalt \\- run a Basalt storage cluster\n"
	       ".SH SYNOPSIS\n.B basalt\n\\fICOMMAND\\fR [\\fIOPTION\\fR]...\n"
	       ".SH DESCRIPTION\n"
	       "Sends one command to the \\fBbasaltd\\fR(8) of this machine over "
	       "its admin socket\nand prints the answer.  Sizes are written "
	       "10G, 512M (powers of 1024).\nSecrets come from a prompt, a file "
	       "or standard input, never from the\ncommand line, and are never "
	       "shown.\nOn a terminal, what may lose data by force asks for a "
	       "name to be typed first.\n",
	       CLI_VERSION);
	printf(".SH COMMANDS\n");
	for (size_t i = 0; i < cli_commands_count; i++) {
		const struct cli_command *c = &cli_commands[i];

		synopsis(c, text, sizeof(text));
		printf(".SS basalt ");
		roff(text);
		printf("\n");
		roff(c->help);
		printf("\n");
		man_options(c->options);
		if (c->more != NULL) {
			printf(".PP\n");
			roff(c->more);
			printf("\n");
		}
	}
	printf(".SH OPTIONS OF EVERY COMMAND\n");
	man_options(cli_globals);
	printf(".SH EXIT STATUS\n.TP\n0\ndone\n.TP\n1\nrefused, or the daemon "
	       "cannot be reached; standard error says why\nand what to do "
	       "next.\nIt is also 1 where no answer came, from the directory "
	       "or from the daemon, and it\nis not known whether the change "
	       "was made, or will be yet: this is said then.\nNothing is "
	       "undone.  Look with the list command, and repeat this one if the "
	       "change\nwas not made: nothing is made twice.\n"
	       "With \\fB\\-\\-json\\fR the object that is printed has "
	       "error, fix, code and unknown,\nwhich is true where it is not "
	       "known.\n"
	       ".TP\n2\nthe command line is wrong in itself: an option, or "
	       "a value of one, that there is\nnot, what is missing, or what "
	       "does not go together.  basaltd was not asked.\nWhether it "
	       "takes a name, a path or a size, it says itself, with 1.\n"
	       ".SH ENVIRONMENT\n.TP\nBASALT_SOCKET\nthe admin socket, where "
	       "\\fB\\-\\-socket\\fR is not given\n"
	       ".SH SEE ALSO\n.BR basaltd (8),\n.BR basalt.conf (5)\n");
}
