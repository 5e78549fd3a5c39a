/* config_fill: the request of each step, as the command of it makes one. */
#include "node/cli/config.h"

#include <errno.h>
#include <string.h>

/* Point the request at @member of the body. */
#define BODY(c, CASE, field, type)                                             \
	(admin__##type##__init(&(c)->body.field),                              \
	 (c)->request.command_case = ADMIN__REQUEST__COMMAND_##CASE,           \
	 (c)->request.field = &(c)->body.field, &(c)->body.field)

static char *text(const json_t *object, const char *key)
{
	const char *value = cli__config_text(object, key);

	return (char *)(value != NULL ? value : protobuf_c_empty_string);
}

static uint64_t number(const json_t *object, const char *key)
{
	uint64_t value = 0;

	cli__config_number(object, key, &value);
	return value;
}

#define FILL(fn)                                                               \
	int fn(struct cli_call *c, const struct config_plan *plan,             \
	       const struct config_step *s, struct cli_error *e)

FILL(cli__fill_scrub)
{
	Admin__DiskScrub *m = BODY(c, DISK_SCRUB, disk_scrub, disk_scrub);

	(void)plan;
	(void)e;
	m->every = true;
	m->days = (uint32_t)number(s->want, "scrub_days");
	return CLI_DONE;
}

FILL(cli__fill_portal)
{
	Admin__PortalSet *m = BODY(c, PORTAL_SET, portal_set, portal_set);

	(void)e;
	m->address = text(s->want, "address");
	m->transport = text(s->want, "transport");
	m->force = plan->force;
	return CLI_DONE;
}

FILL(cli__fill_policy_create)
{
	Admin__Policy *m = &c->body.policy;

	(void)plan;
	(void)e;
	admin__policy__init(m);
	c->request.command_case = ADMIN__REQUEST__COMMAND_POLICY_CREATE;
	c->request.policy_create = m;
	m->name = text(s->want, "name");
	m->ftt = (uint32_t)number(s->want, "ftt");
	m->method = text(s->want, "method");
	m->stripe_width = (uint32_t)number(s->want, "stripe_width");
	m->reserve_percent = (uint32_t)number(s->want, "reserve_percent");
	m->iops_limit = number(s->want, "iops_limit");
	m->force_provision = cli__config_true(s->want, "force_provision");
	return CLI_DONE;
}

FILL(cli__fill_policy_set)
{
	Admin__PolicySet *m = BODY(c, POLICY_SET, policy_set, policy_set);

	(void)plan;
	(void)e;
	m->name = text(s->want, "name");
	m->iops_limit = number(s->want, "iops_limit");
	return CLI_DONE;
}

static Admin__Name *name_fill(struct cli_call *c, const struct config_step *s,
			      bool force)
{
	admin__name__init(&c->body.name);
	c->body.name.name = text(s->have, "name");
	c->body.name.force = force;
	return &c->body.name;
}

FILL(cli__fill_policy_delete)
{
	(void)plan;
	(void)e;
	c->request.command_case = ADMIN__REQUEST__COMMAND_POLICY_DELETE;
	c->request.policy_delete = name_fill(c, s, false);
	return CLI_DONE;
}

FILL(cli__fill_target_delete)
{
	(void)e;
	c->request.command_case = ADMIN__REQUEST__COMMAND_TARGET_DELETE;
	c->request.target_delete = name_fill(c, s, plan->force);
	return CLI_DONE;
}

FILL(cli__fill_vdisk_create)
{
	Admin__VdiskCreate *m =
		BODY(c, VDISK_CREATE, vdisk_create, vdisk_create);

	(void)plan;
	(void)e;
	m->name = text(s->want, "name");
	m->size_bytes = number(s->want, "size");
	m->block_bytes = (uint32_t)number(s->want, "block_bytes");
	m->policy = text(s->want, "policy");
	return CLI_DONE;
}

FILL(cli__fill_vdisk_resize)
{
	Admin__VdiskResize *m =
		BODY(c, VDISK_RESIZE, vdisk_resize, vdisk_resize);

	(void)plan;
	(void)e;
	m->name = text(s->want, "name");
	m->size_bytes = number(s->want, "size");
	return CLI_DONE;
}

FILL(cli__fill_vdisk_set)
{
	Admin__VdiskSet *m = BODY(c, VDISK_SET, vdisk_set, vdisk_set);

	(void)plan;
	(void)e;
	m->name = text(s->want, "name");
	m->policy = text(s->want, "policy");
	return CLI_DONE;
}

/* ---- targets ---- */

static int secret_fill(struct cli_call *c, const struct config_plan *plan,
		       const json_t *want, const char *key, unsigned which,
		       ProtobufCBinaryData *out, struct cli_error *e)
{
	uint8_t *secret = c->secrets[which];
	char path[4096];
	size_t len = 0;
	int rv;

	cli__config_secret_path(plan, text(want, key), path);
	rv = cli_secret_read(path, secret, sizeof(c->secrets[which]), &len);
	if (rv == 0 && len == 0)
		rv = -ENODATA;
	if (rv < 0) {
		memset(e, 0, sizeof(*e));
		e->status = rv;
		snprintf(e->error, sizeof(e->error),
			 "target %.100s: %s %.300s: %s", text(want, "name"),
			 key, path, cli_secret_wrong(rv));
		return CLI_REFUSED;
	}
	out->data = secret;
	out->len = len;
	return CLI_DONE;
}

static int access_fill(struct cli_call *c, const struct config_plan *plan,
		       const json_t *want, bool chap, bool mutual,
		       struct cli_error *e)
{
	Admin__Access *a = &c->access;
	int rv = CLI_DONE;

	if (chap) {
		a->chap_user = text(want, "chap_user");
		rv = secret_fill(c, plan, want, "chap_secret_file", 0,
				 &a->chap_secret, e);
	}
	if (rv == CLI_DONE && mutual) {
		a->mutual_user = text(want, "mutual_user");
		rv = secret_fill(c, plan, want, "mutual_secret_file", 1,
				 &a->mutual_secret, e);
	}
	return rv;
}

/* The names of @list that @other does not have; how many, or 1 + CLI_GIVEN_MAX. */
static size_t names_fill(const json_t *list, const json_t *other,
			 char *out[CLI_GIVEN_MAX])
{
	size_t n = 0, i, k;
	json_t *it, *was;

	json_array_foreach(list, i, it)
	{
		bool there = false;

		json_array_foreach(other, k, was) there |= json_equal(it, was);
		if (there)
			continue;
		if (n == CLI_GIVEN_MAX)
			return n + 1;
		out[n++] = (char *)json_string_value(it);
	}
	return n;
}

static int too_many(const json_t *want, struct cli_error *e)
{
	memset(e, 0, sizeof(*e));
	e->status = -E2BIG;
	snprintf(e->error, sizeof(e->error),
		 "target %.100s: more than %u initiators at once",
		 text(want, "name"), CLI_GIVEN_MAX);
	return CLI_REFUSED;
}

FILL(cli__fill_target_create)
{
	Admin__TargetCreate *m =
		BODY(c, TARGET_CREATE, target_create, target_create);
	const char *user = text(s->want, "chap_user");
	const char *mutual = text(s->want, "mutual_user");

	admin__access__init(&c->access);
	m->name = text(s->want, "name");
	m->iqn = text(s->want, "iqn");
	m->access = &c->access;
	c->access.allow = c->allow;
	c->access.n_allow =
		names_fill(json_object_get(s->want, "allow"), NULL, c->allow);
	if (c->access.n_allow > CLI_GIVEN_MAX)
		return too_many(s->want, e);
	return access_fill(c, plan, s->want, user[0] != '\0', mutual[0] != '\0',
			   e);
}

FILL(cli__fill_target_set)
{
	Admin__TargetSet *m = BODY(c, TARGET_SET, target_set, target_set);
	const json_t *to = json_object_get(s->want, "allow");
	const json_t *from = json_object_get(s->have, "allow");

	admin__access__init(&c->access);
	m->name = text(s->want, "name");
	m->access = &c->access;
	m->no_chap = s->no_chap;
	m->no_mutual_chap = s->no_mutual;
	if (to != NULL) {
		c->access.allow = c->allow;
		c->access.n_allow = names_fill(to, from, c->allow);
		m->deny = c->deny;
		m->n_deny = names_fill(from, to, c->deny);
	}
	if (c->access.n_allow > CLI_GIVEN_MAX || m->n_deny > CLI_GIVEN_MAX)
		return too_many(s->want, e);
	return access_fill(c, plan, s->want, s->chap, s->mutual, e);
}

FILL(cli__fill_lun_add)
{
	Admin__LunAdd *m = BODY(c, LUN_ADD, lun_add, lun_add);

	(void)plan;
	(void)e;
	m->target = text(s->target, "name");
	m->vdisk = text(s->want, "vdisk");
	m->lun_given = true;
	m->lun = (uint32_t)number(s->want, "lun");
	m->read_only = cli__config_true(s->want, "read_only");
	return CLI_DONE;
}

FILL(cli__fill_lun_remove)
{
	Admin__LunRemove *m = BODY(c, LUN_REMOVE, lun_remove, lun_remove);

	(void)e;
	m->target = text(s->target, "name");
	m->lun = (uint32_t)number(s->have, "lun");
	m->force = plan->force;
	return CLI_DONE;
}
