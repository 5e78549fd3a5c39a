/*
 * config: what the administrator has set, as one JSON text: to keep, to compare
 * and to bring about again (basalt config show, basalt config apply).
 *
 *	config_state.c	what is set now
 *	config_file.c	what shall be: a file, checked
 *	config_plan.c	the steps from the one to the other
 *	config_fill.c	the request of each step
 *	config_apply.c	takes them, one request of the daemon each
 *
 * Both sides are in one form, so the plan compares JSON with JSON.  Virtual disks
 * are never deleted and never shrunk by it, and what has no secret stays without.
 */
#ifndef BASALT_NODE_CLI_CONFIG_H
#define BASALT_NODE_CLI_CONFIG_H

#include "node/cli/cli.h"

#include <jansson.h>

#define CONFIG_FORM 1 /* "basalt_config": the version of the form */

/* A new reference, or NULL: said why. */
json_t *cli__config_state(struct cli_call *call);

/*
 * Read and check the file at @path ("-": standard input).  Every key of it is
 * known and of its type, names are there once, sizes are numbers of bytes.  A new
 * reference, or NULL: said why, with the place in the file.
 */
json_t *cli__config_file(const struct cli_call *call, const char *path);

/* ---- the plan ---- */

struct config_plan;
struct config_step;

/* The request of a step.  CLI_DONE, or CLI_REFUSED with the reason. */
typedef int config_fill(struct cli_call *call, const struct config_plan *plan,
			const struct config_step *step, struct cli_error *e);

struct config_step {
	const char *const *verb; /* "create", "created" */
	const char *what; /* "virtual disk" */
	char name[320], detail[400];
	json_t *want, *have; /* borrowed of the two sides; or NULL */
	json_t *target; /* whose LUN it is, as it shall be */
	bool no_chap, no_mutual; /* of a target: to be taken away */
	bool chap, mutual; /* to be set */
	config_fill *fill;
	bool done;
};

/* The objects of a list by their name, for many are looked up in it. */
struct config_names {
	const json_t *list;
	json_t *by;
};

enum { CONFIG_NAMED = 3 }; /* lists of a side: policies, vdisks, targets */

struct config_plan {
	json_t *want, *have;
	const char *path; /* of the file */
	bool prune, force, secrets;
	struct config_step *steps;
	size_t count, room;
	json_t *left; /* array of {what, name}: not in the file, and stays */
	json_t *wrong; /* array of texts: what cannot be brought about */
	/* private */
	struct config_names names[2 * CONFIG_NAMED];
	json_t *iqns, *iqns_made; /* arrays of targets: there, and to be made */
	struct config_step spare;
	bool failed; /* there was no memory */
};

/* @plan has what is above its steps.  0, or -ENOMEM. */
int cli__config_plan(struct config_plan *plan);
void cli__config_plan_fini(struct config_plan *plan);

/* The value of @key, or NULL / false: it is not there. */
const char *cli__config_text(const json_t *object, const char *key);
bool cli__config_number(const json_t *object, const char *key, uint64_t *out);
bool cli__config_true(const json_t *object, const char *key);
/* The one of @list (may be NULL) whose @key is @value; borrowed, or NULL. */
json_t *cli__config_find(const json_t *list, const char *key,
			 const json_t *value);

/* config_fill.c */
config_fill cli__fill_scrub, cli__fill_portal, cli__fill_policy_create,
	cli__fill_policy_set, cli__fill_policy_delete, cli__fill_vdisk_create,
	cli__fill_vdisk_resize, cli__fill_vdisk_set, cli__fill_target_create,
	cli__fill_target_set, cli__fill_target_delete, cli__fill_lun_add,
	cli__fill_lun_remove;

/* A secret's file is named from the folder of the file that names it. */
void cli__config_secret_path(const struct config_plan *plan, const char *name,
			     char out[4096]);

#endif
