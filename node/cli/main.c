/* basalt: one command to the node of this machine. */
#include "node/cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The answer's result, whichever it is: all of them are messages. */
static const ProtobufCMessage *result_of(const Admin__Response *response)
{
	return (const ProtobufCMessage *)response->ok;
}

/*
 * What was printed is there, or the command did not do all it was for.  Of what
 * failed before, a flush knows nothing.
 */
static int printed(int status, const char *but)
{
	bool flushed = fflush(stdout) == 0;

	if ((flushed && !ferror(stdout)) || status != CLI_DONE)
		return status;
	fprintf(stderr, "basalt: %sstandard output cannot be written\n", but);
	return CLI_REFUSED;
}

/* For --fail-on: is the worst of the checks at that level, above, or not known? */
static bool fails(const struct cli_call *call, const Admin__Response *response)
{
	const char *on = cli_option(call, "fail-on"), *worst;

	if (on == NULL ||
	    response->result_case != ADMIN__RESPONSE__RESULT_HEALTH)
		return false;
	worst = response->health->worst;
	return strcmp(worst, "ok") != 0 && strcmp(worst, "info") != 0 &&
	       (strcmp(worst, "warning") != 0 || strcmp(on, "warning") == 0);
}

int main(int argc, char **argv)
{
	static struct cli_call call;
	Admin__Response *response = NULL;
	int status = CLI_DONE;
	bool changed, failed;

	/* --man and --complete: for the package and the shell, not for people. */
	if (argc == 2 && strcmp(argv[1], "--man") == 0) {
		cli_man();
		return printed(CLI_DONE, "");
	}
	admin__request__init(&call.request);
	call.socket = getenv("BASALT_SOCKET");
	if (call.socket == NULL || call.socket[0] == '\0')
		call.socket = CLI_SOCKET;
	if (argc >= 2 && strcmp(argv[1], "--complete") == 0) {
		cli_complete(&call, argc - 2, argv + 2);
		return CLI_DONE;
	}
	if (cli_parse(argc, argv, &call, &status) != 0)
		return printed(status, "");
	if (call.command->run != NULL)
		return printed(call.command->run(&call), "");
	status = call.command->fill(&call);
	if (status == CLI_DONE)
		status = cli_ask(&call, &response);
	if (status == CLI_DONE)
		status = cli_whole(&call, response);
	if (status != CLI_DONE) {
		admin__response__free_unpacked(response, NULL);
		return status;
	}
	if (call.json)
		cli_json_print(result_of(response));
	else
		cli_show(&call, response);
	changed = response->result_case == ADMIN__RESPONSE__RESULT_OK;
	failed = fails(&call, response);
	admin__response__free_unpacked(response, NULL);
	if (failed)
		return printed(CLI_REFUSED, "");
	return printed(CLI_DONE, changed ? "it is done, but " : "");
}
