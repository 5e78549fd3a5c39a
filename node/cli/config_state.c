/* config_state: what is set now, in the form that a file of it has. */
#include "base/size.h"
#include "node/cli/config.h"

#include <errno.h>

/* What `basalt GROUP VERB` shows; NULL: said why. */
static Admin__Response *ask(struct cli_call *call, const char *group,
			    const char *verb)
{
	Admin__Response *response = NULL;
	const struct cli_command *command = cli_command_find(group, verb);

	admin__request__init(&call->request);
	if (command->fill(call) != CLI_DONE ||
	    cli_ask(call, &response) != CLI_DONE)
		return NULL;
	return response;
}

/* "10G" where that is all of it, else the number of bytes. */
static json_t *size_json(uint64_t bytes)
{
	char text[SIZE_TEXT_MAX];
	uint64_t again = 0;

	if (bytes >= 1024 &&
	    size_parse(size_format(bytes, text), &again) == 0 && again == bytes)
		return json_string(text);
	return json_integer((json_int_t)bytes);
}

static json_t *portals_json(const Admin__Response *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->portals->n_portals; i++) {
		const Admin__PortalInfo *p = r->portals->portals[i];

		json_array_append_new(list, json_pack("{s:s, s:s}", "address",
						      p->address, "transport",
						      p->transport));
	}
	return list;
}

static json_t *policies_json(const Admin__Response *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->policies->n_policies; i++) {
		const Admin__Policy *p = r->policies->policies[i];

		json_array_append_new(
			list,
			json_pack("{s:s, s:I, s:s, s:I, s:I, s:I, s:b}", "name",
				  p->name, "ftt", (json_int_t)p->ftt, "method",
				  p->method, "stripe_width",
				  (json_int_t)p->stripe_width,
				  "reserve_percent",
				  (json_int_t)p->reserve_percent, "iops_limit",
				  (json_int_t)p->iops_limit, "force_provision",
				  (int)p->force_provision));
	}
	return list;
}

static json_t *vdisks_json(const Admin__Response *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->vdisks->n_vdisks; i++) {
		const Admin__Vdisk *v = r->vdisks->vdisks[i];

		json_array_append_new(
			list,
			json_pack("{s:s, s:o, s:I, s:s}", "name", v->name,
				  "size", size_json(v->size_bytes),
				  "block_bytes", (json_int_t)v->block_bytes,
				  "policy", v->policy));
	}
	return list;
}

static json_t *luns_json(const Admin__Target *t)
{
	json_t *list = json_array();

	for (size_t i = 0; i < t->n_luns; i++)
		json_array_append_new(
			list, json_pack("{s:I, s:s, s:b}", "lun",
					(json_int_t)t->luns[i]->lun, "vdisk",
					t->luns[i]->vdisk, "read_only",
					(int)t->luns[i]->read_only));
	return list;
}

static json_t *targets_json(const Admin__Response *r)
{
	json_t *list = json_array();

	for (size_t i = 0; i < r->targets->n_targets; i++) {
		const Admin__Target *t = r->targets->targets[i];
		json_t *allow = json_array();

		for (size_t k = 0; k < t->n_allow; k++)
			json_array_append_new(allow, json_string(t->allow[k]));
		json_array_append_new(
			list,
			json_pack("{s:s, s:s, s:o, s:s, s:s, s:o}", "name",
				  t->name, "iqn", t->iqn, "allow", allow,
				  "chap_user", t->chap_user, "mutual_user",
				  t->mutual_user, "luns", luns_json(t)));
	}
	return list;
}

static json_t *scrub_json(const Admin__Response *r)
{
	return json_integer(r->cluster_status->scrub_days);
}

static const struct {
	const char *key, *group, *verb;
	Admin__Response__ResultCase result;
	json_t *(*json)(const Admin__Response *r);
} parts[] = {
	{ "scrub_days", "cluster", "status",
	  ADMIN__RESPONSE__RESULT_CLUSTER_STATUS, scrub_json },
	{ "portals", "portal", "list", ADMIN__RESPONSE__RESULT_PORTALS,
	  portals_json },
	{ "policies", "policy", "list", ADMIN__RESPONSE__RESULT_POLICIES,
	  policies_json },
	{ "vdisks", "vdisk", "list", ADMIN__RESPONSE__RESULT_VDISKS,
	  vdisks_json },
	{ "targets", "target", "list", ADMIN__RESPONSE__RESULT_TARGETS,
	  targets_json },
};

json_t *cli__config_state(struct cli_call *call)
{
	json_t *state = json_object();

	json_object_set_new(state, "basalt_config", json_integer(CONFIG_FORM));
	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
		Admin__Response *r = ask(call, parts[i].group, parts[i].verb);
		bool whole = r != NULL && r->result_case == parts[i].result;

		/* A node of no cluster answers cluster status, and the next not. */
		if (whole)
			json_object_set_new(state, parts[i].key,
					    parts[i].json(r));
		else if (r != NULL)
			cli_refuse(call, "basaltd gave another answer",
				   "Is it of this version?  basalt cluster "
				   "status tells.",
				   -EPROTO);
		if (r != NULL)
			admin__response__free_unpacked(r, NULL);
		if (!whole) {
			json_decref(state);
			return NULL;
		}
	}
	return state;
}

int cli_config_show(struct cli_call *call)
{
	json_t *state = cli__config_state(call);

	if (state == NULL)
		return CLI_REFUSED;
	json_dumpf(state, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
	putchar('\n');
	json_decref(state);
	return CLI_DONE;
}
