/*
 * config_apply: takes the steps of a plan, each a request like that of the command
 * that does the same.  It stops at the first that is refused; the same file again
 * goes on from there, as what is done is not planned any more.
 */
#include "base/err.h"
#include "node/cli/config.h"

#include <errno.h>

/* ---- for people ---- */

static void step_tell(const struct config_step *s, bool done)
{
	cli_print(stdout, "%s %s %s%s%s\n", s->verb[done ? 1 : 0], s->what,
		  s->name, s->detail[0] ? ": " : "", s->detail);
	fflush(stdout);
}

static void left_tell(const struct config_plan *plan)
{
	size_t i;
	json_t *it;

	json_array_foreach(plan->left, i, it)
		cli_print(stdout, "left %s %s: it is not in the file\n",
			  cli__config_text(it, "what"),
			  cli__config_text(it, "name"));
}

static void end_tell(const struct config_plan *plan, bool dry_run)
{
	const char *s = plan->count == 1 ? "" : "s";

	left_tell(plan);
	if (plan->count == 0)
		printf("nothing to change\n");
	else if (dry_run)
		printf("%zu change%s would be made\n", plan->count, s);
	else
		printf("%zu change%s made\n", plan->count, s);
}

/* ---- as JSON ---- */

static json_t *steps_json(const struct config_plan *plan)
{
	json_t *list = json_array();

	for (size_t i = 0; i < plan->count; i++) {
		const struct config_step *s = &plan->steps[i];

		json_array_append_new(
			list,
			json_pack("{s:s, s:s, s:s, s:s, s:b}", "action",
				  s->verb[0], "what", s->what, "name", s->name,
				  "detail", s->detail, "done", (int)s->done));
	}
	return list;
}

/* @e NULL: all went well. */
static void json_tell(const struct config_plan *plan, bool dry_run,
		      const struct cli_error *e)
{
	json_t *all =
		json_pack("{s:b, s:o, s:O}", "dry_run", (int)dry_run, "changes",
			  steps_json(plan), "left", plan->left);

	if (e != NULL)
		json_object_update_new(
			all, json_pack("{s:o, s:o, s:s, s:b}", "error",
				       cli_json_string(e->error), "fix",
				       cli_json_string(e->fix), "code",
				       err_name(e->status), "unknown",
				       (int)e->unknown));
	json_dumpf(all, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
	putchar('\n');
	json_decref(all);
}

/* ---- ---- */

/* What cannot be is said all at once. */
static int wrong_tell(const struct cli_call *call,
		      const struct config_plan *plan)
{
	struct cli_error e = { .status = -EINVAL };
	size_t count = json_array_size(plan->wrong), i;
	json_t *it;

	if (!call->json)
		json_array_foreach(plan->wrong, i, it) if (i > 0) cli_print(
			stderr, "%s: %s\n", plan->path, json_string_value(it));
	snprintf(e.error, sizeof(e.error), "%.80s: %s", plan->path,
		 json_string_value(json_array_get(plan->wrong, 0)));
	if (count > 1 && call->json)
		snprintf(e.fix, sizeof(e.fix),
			 "Nothing was changed; %zu more of it cannot be "
			 "either.  See to that, and apply it again.",
			 count - 1);
	else
		snprintf(e.fix, sizeof(e.fix),
			 "Nothing was changed.  See to that, and apply it "
			 "again.");
	return cli_say(call, &e);
}

static int failed(const struct cli_call *call, const struct config_plan *plan,
		  size_t done, const struct cli_error *e)
{
	const struct config_step *s = &plan->steps[done];

	if (call->json) {
		json_tell(plan, false, e);
		return CLI_REFUSED;
	}
	cli_print(stderr, "basalt: cannot %s %s %s\n", s->verb[0], s->what,
		  s->name);
	cli_say(call, e);
	fprintf(stderr,
		"%zu of %zu changes were made; the same command makes the "
		"rest.\n",
		done, plan->count);
	return CLI_REFUSED;
}

static int step_take(struct cli_call *call, const struct config_plan *plan,
		     struct config_step *s, struct cli_error *e)
{
	Admin__Response *response = NULL;
	int rv;

	admin__request__init(&call->request);
	rv = s->fill(call, plan, s, e);
	if (rv == CLI_DONE)
		rv = cli_try(call, &response, e);
	if (response != NULL)
		admin__response__free_unpacked(response, NULL);
	s->done = rv == CLI_DONE;
	return rv;
}

static int steps_take(struct cli_call *call, struct config_plan *plan,
		      bool dry_run)
{
	struct cli_error e;

	for (size_t i = 0; i < plan->count; i++) {
		struct config_step *s = &plan->steps[i];

		if (!dry_run && step_take(call, plan, s, &e) != CLI_DONE)
			return failed(call, plan, i, &e);
		if (!call->json)
			step_tell(s, s->done);
	}
	if (call->json)
		json_tell(plan, dry_run, NULL);
	else
		end_tell(plan, dry_run);
	return CLI_DONE;
}

int cli_config_apply(struct cli_call *call)
{
	struct config_plan plan = { .path = call->args[0],
				    .prune = cli_has(call, "prune"),
				    .force = cli_has(call, "force"),
				    .secrets = cli_has(call, "secrets") };
	int rv = CLI_REFUSED;

	plan.want = cli__config_file(call, plan.path);
	if (plan.want != NULL)
		plan.have = cli__config_state(call);
	if (plan.have == NULL)
		goto out;
	if (cli__config_plan(&plan) < 0)
		cli_refuse(call, "no memory for the plan",
			   "Try again in a moment.", -ENOMEM);
	else if (json_array_size(plan.wrong) > 0)
		rv = wrong_tell(call, &plan);
	else
		rv = steps_take(call, &plan, cli_has(call, "dry-run"));
out:
	cli__config_plan_fini(&plan);
	return rv;
}
