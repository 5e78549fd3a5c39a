/*
 * complete: what may stand at the end of a command line that is being typed:
 * basalt --complete WORD...; the last word is begun, and may be empty.
 *
 * Commands and options are the table's; names are asked of the daemon, which
 * says nothing soon, or is not asked for more than a moment.
 */
#include "node/cli/cli.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define PATIENCE_S 2

struct typed {
	struct cli_call *call;
	const struct cli_command *command; /* NULL: not typed yet */
	const char *group, *begun;
	const char *word; /* that is begun: "--policy=" may be before @begun */
	const struct cli_option *option; /* whose value is begun, or NULL */
	unsigned words; /* of the command, before the one that is begun */
};

/* Is it one word to the shell, and only that?  A path may be anything. */
static bool is_plain(const char *word)
{
	for (; *word != '\0'; word++)
		if (!isalnum((unsigned char)*word) &&
		    (unsigned char)*word < 0x80 &&
		    strchr("/._-:@%+,=[]", *word) == NULL)
			return false;
	return true;
}

static void offer(const struct typed *t, const char *word)
{
	if (is_plain(word) && strncmp(word, t->begun, strlen(t->begun)) == 0)
		printf("%.*s%s\n", (int)(t->begun - t->word), t->word, word);
}

/* ---- names, by the word that stands for them in a synopsis ---- */

static void offer_vdisks(const struct typed *t, const Admin__Response *r)
{
	for (size_t i = 0; i < r->vdisks->n_vdisks; i++)
		offer(t, r->vdisks->vdisks[i]->name);
}

static void offer_targets(const struct typed *t, const Admin__Response *r)
{
	for (size_t i = 0; i < r->targets->n_targets; i++)
		offer(t, r->targets->targets[i]->name);
}

static void offer_policies(const struct typed *t, const Admin__Response *r)
{
	for (size_t i = 0; i < r->policies->n_policies; i++)
		offer(t, r->policies->policies[i]->name);
}

static void offer_disks(const struct typed *t, const Admin__Response *r)
{
	for (size_t i = 0; i < r->disks->n_disks; i++) {
		offer(t, r->disks->disks[i]->path);
		offer(t, r->disks->disks[i]->id);
	}
}

static void offer_portals(const struct typed *t, const Admin__Response *r)
{
	for (size_t i = 0; i < r->portals->n_portals; i++)
		offer(t, r->portals->portals[i]->address);
}

static const struct {
	const char *word, *group; /* whose list shows them */
	Admin__Response__ResultCase list;
	void (*offer)(const struct typed *t, const Admin__Response *r);
} names[] = {
	{ "VDISK", "vdisk", ADMIN__RESPONSE__RESULT_VDISKS, offer_vdisks },
	{ "TARGET", "target", ADMIN__RESPONSE__RESULT_TARGETS, offer_targets },
	{ "P", "policy", ADMIN__RESPONSE__RESULT_POLICIES, offer_policies },
	{ "DISK", "disk", ADMIN__RESPONSE__RESULT_DISKS, offer_disks },
	{ "ADDR:PORT", "portal", ADMIN__RESPONSE__RESULT_PORTALS,
	  offer_portals },
};

static void offer_names(const struct typed *t, size_t which)
{
	struct cli_call *call = t->call;
	Admin__Response *response = NULL;

	call->command = cli_command_find(names[which].group, "list");
	call->patience_s = PATIENCE_S;
	if (call->command->fill(call) != CLI_DONE ||
	    cli_ask(call, &response) != CLI_DONE)
		return;
	if (response->result_case == names[which].list)
		names[which].offer(t, response);
	admin__response__free_unpacked(response, NULL);
}

/* A NAME is one of the command's group, unless it is to be a new one. */
static bool is_of_group(const struct typed *t, const char *word)
{
	return t->command != NULL &&
	       (strcmp(word, "NAME") == 0 || strcmp(word, "OLD") == 0) &&
	       strcmp(t->command->verb, "create") != 0;
}

/* @word: how the synopsis calls what is begun. */
static void offer_for(const struct typed *t, const char *word)
{
	size_t count = sizeof(names) / sizeof(names[0]);

	for (size_t i = 0; i < count; i++)
		if (strcmp(names[i].word, word) == 0 ||
		    (is_of_group(t, word) &&
		     strcmp(names[i].group, t->group) == 0)) {
			offer_names(t, i);
			return;
		}
}

/* The command's word that is begun, without the brackets of one not needed. */
static void offer_word(const struct typed *t)
{
	const char *at = t->command->args;
	char word[32];
	size_t len;

	for (unsigned n = t->words; n > 0; n--)
		at += strcspn(at, " ") + (at[strcspn(at, " ")] != '\0');
	at += *at == '[';
	len = strcspn(at, " ]");
	if (len == 0 || len >= sizeof(word))
		return;
	memcpy(word, at, len);
	word[len] = '\0';
	offer_for(t, word);
}

/* ---- commands and options ---- */

static void offer_options(const struct typed *t, const struct cli_option *o)
{
	char word[64];

	for (; o->name != NULL; o++) {
		snprintf(word, sizeof(word), "--%s", o->name);
		offer(t, word);
	}
}

static void offer_commands(const struct typed *t)
{
	const char *last = "";

	for (size_t i = 0; i < cli_commands_count; i++) {
		const struct cli_command *c = &cli_commands[i];

		if (t->group == NULL && strcmp(c->group, last) != 0)
			offer(t, c->group);
		else if (t->group != NULL && c->verb != NULL &&
			 strcmp(c->group, t->group) == 0)
			offer(t, c->verb);
		last = c->group;
	}
}

/* One of few words: "tcp|iser|both". */
static void offer_choice(const struct typed *t, const char *choice)
{
	char word[32];

	for (size_t len; *choice != '\0';
	     choice += len + (choice[len] == '|')) {
		len = strcspn(choice, "|");
		snprintf(word, sizeof(word), "%.*s", (int)len, choice);
		offer(t, word);
	}
}

static const struct cli_option *option_in(const struct cli_option *list,
					  const char *word, size_t len)
{
	for (; list->name != NULL; list++)
		if (strlen(list->name) == len - 2 &&
		    strncmp(list->name, word + 2, len - 2) == 0)
			return list;
	return NULL;
}

/* The option that the first @len bytes of @word are, if it takes a value. */
static const struct cli_option *option_of(const struct typed *t,
					  const char *word, size_t len)
{
	const struct cli_option *o = option_in(cli_globals, word, len);

	if (o == NULL && t->command != NULL)
		o = option_in(t->command->options, word, len);
	return o != NULL && o->arg != NULL ? o : NULL;
}

/* One word that was typed before the one that is begun. */
static void take(struct typed *t, const char *word)
{
	if (t->option != NULL) { /* it is the option's value */
		if (strcmp(t->option->name, "socket") == 0)
			t->call->socket = word;
		t->option = NULL;
	} else if (strncmp(word, "--", 2) == 0) {
		t->option = option_of(t, word, strlen(word));
		if (strncmp(word, "--socket=", 9) == 0)
			t->call->socket = word + 9;
	} else if (t->group == NULL) {
		t->group = word;
		t->command = cli_command_find(word, NULL);
	} else if (t->command == NULL) {
		t->command = cli_command_find(t->group, word);
	} else {
		t->words++;
	}
}

/* The value of --policy=VALUE is begun. */
static void begin_value(struct typed *t)
{
	size_t len = strcspn(t->word, "=");

	if (t->option != NULL || strncmp(t->word, "--", 2) != 0 ||
	    t->word[len] == '\0')
		return;
	t->option = option_of(t, t->word, len);
	if (t->option != NULL)
		t->begun = t->word + len + 1;
}

void cli_complete(struct cli_call *call, int argc, char **argv)
{
	const char *word = argc > 0 ? argv[argc - 1] : "";
	struct typed t = { .call = call, .word = word, .begun = word };

	for (int i = 0; i < argc - 1; i++)
		take(&t, argv[i]);
	begin_value(&t);
	if (t.option != NULL && cli_is_choice(t.option)) {
		offer_choice(&t, t.option->arg);
	} else if (t.option != NULL) {
		offer_for(&t, t.option->arg);
	} else if (t.begun[0] == '-') {
		if (t.command != NULL)
			offer_options(&t, t.command->options);
		offer_options(&t, cli_globals);
	} else if (t.command == NULL) {
		offer_commands(&t);
	} else if (t.words < t.command->args_max) {
		offer_word(&t);
	}
}
