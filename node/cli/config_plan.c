/*
 * config_plan: the steps from what is set to what a file says, in an order that
 * each finds what it needs: policies, virtual disks, then who may not use what any
 * more, then targets and what they export.
 *
 * A key that the file does not have leaves as it is what it stands for.  What the
 * file does not have goes with --prune only; virtual disks never.
 */
#include "base/size.h"
#include "base/util.h"
#include "iscsi/iscsi.h"
#include "node/cli/config.h"
#include "node/names.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- values ---- */

const char *cli__config_text(const json_t *object, const char *key)
{
	return json_string_value(json_object_get(object, key));
}

bool cli__config_number(const json_t *object, const char *key, uint64_t *out)
{
	const json_t *value = json_object_get(object, key);

	if (json_is_integer(value))
		*out = (uint64_t)json_integer_value(value);
	return json_is_integer(value);
}

bool cli__config_true(const json_t *object, const char *key)
{
	return json_is_true(json_object_get(object, key));
}

json_t *cli__config_find(const json_t *list, const char *key,
			 const json_t *value)
{
	size_t i;
	json_t *it;

	json_array_foreach(list, i, it) if (json_equal(json_object_get(it, key),
						       value)) return it;
	return NULL;
}

/* Of @section of the plan's @side, by its name, a text; borrowed, or NULL. */
static json_t *named(const struct config_plan *plan, const json_t *side,
		     const char *section, const json_t *name)
{
	const json_t *list = json_object_get(side, section);

	for (size_t i = 0; list != NULL && i < ARRAY_LEN(plan->names); i++)
		if (plan->names[i].list == list)
			return json_object_get(plan->names[i].by,
					       json_string_value(name));
	return NULL;
}

static json_t *same_name(const struct config_plan *plan, const json_t *side,
			 const char *section, const json_t *object)
{
	return named(plan, side, section, json_object_get(object, "name"));
}

static const char *name_of(const json_t *object)
{
	return cli__config_text(object, "name");
}

/* Does the file have @key, and another value than is set? */
static bool differs(const json_t *want, const json_t *have, const char *key)
{
	const json_t *value = json_object_get(want, key);

	return value != NULL && !json_equal(value, json_object_get(have, key));
}

/* Of the state a size may be "10G"; of the file it is a number. */
static uint64_t size_of(const json_t *vdisk)
{
	uint64_t bytes = 0;

	if (!cli__config_number(vdisk, "size", &bytes))
		size_parse(cli__config_text(vdisk, "size"), &bytes);
	return bytes;
}

static bool listed(const json_t *list, const char *text)
{
	size_t i;
	json_t *it;

	json_array_foreach(list, i, it) if (strcmp(json_string_value(it),
						   text) == 0) return true;
	return false;
}

/* ---- what is found ---- */

static void wrong(struct config_plan *plan, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void wrong(struct config_plan *plan, const char *fmt, ...)
{
	char text[600];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (json_array_append_new(plan->wrong, cli_json_string(text)) < 0)
		plan->failed = true;
}

static void left(struct config_plan *plan, const char *what, const char *name)
{
	if (json_array_append_new(plan->left, json_pack("{s:s, s:s}", "what",
							what, "name", name)) <
	    0)
		plan->failed = true;
}

static const char *const create[2] = { "create", "created" };
static const char *const change[2] = { "change", "changed" };
static const char *const removal[2] = { "remove", "removed" };

/* One more step; of @spare where there is no memory for it. */
static struct config_step *step(struct config_plan *plan,
				const char *const verb[2], const char *what,
				const char *name, config_fill *fill,
				json_t *want, json_t *have)
{
	struct config_step *s = &plan->spare;

	if (plan->count == plan->room) {
		size_t room = plan->room > 0 ? 2 * plan->room : 64;
		struct config_step *grown =
			reallocarray(plan->steps, room, sizeof(*grown));

		if (grown != NULL) {
			plan->steps = grown;
			plan->room = room;
		}
	}
	if (plan->count < plan->room)
		s = &plan->steps[plan->count++];
	else
		plan->failed = true;
	memset(s, 0, sizeof(*s));
	s->verb = verb;
	s->what = what;
	snprintf(s->name, sizeof(s->name), "%s", name);
	s->fill = fill;
	s->want = want;
	s->have = have;
	return s;
}

static void detail(struct config_step *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ", " and one more thing to tell of it. */
static void detail(struct config_step *s, const char *fmt, ...)
{
	static const char more[] = " ...";
	size_t len = strlen(s->detail);
	va_list ap;
	int n;

	if (len > 0 && len < sizeof(s->detail) - 3) {
		strcpy(s->detail + len, ", ");
		len += 2;
	}
	va_start(ap, fmt);
	n = vsnprintf(s->detail + len, sizeof(s->detail) - len, fmt, ap);
	va_end(ap);
	if (n < 0 || len + (size_t)n < sizeof(s->detail))
		return;
	/* What is cut off is cut between characters. */
	len = sizeof(s->detail) - sizeof(more);
	while (len > 0 && (s->detail[len] & 0xc0) == 0x80)
		len--;
	strcpy(s->detail + len, more);
}

/* Each of the file's @section: one that is not there, and one that is. */
static void each(struct config_plan *plan, const char *section,
		 void (*make)(struct config_plan *plan, json_t *want),
		 void (*compare)(struct config_plan *plan, json_t *want,
				 json_t *have))
{
	size_t i;
	json_t *want, *have;

	json_array_foreach(json_object_get(plan->want, section), i, want)
	{
		have = same_name(plan, plan->have, section, want);
		if (have != NULL)
			compare(plan, want, have);
		else
			make(plan, want);
	}
}

/* ---- policies ---- */

static void raid_check(struct config_plan *plan, const json_t *want,
		       const char *method, uint64_t ftt)
{
	unsigned tolerates = strcmp(method, "raid5") == 0   ? 1
			     : strcmp(method, "raid6") == 0 ? 2
							    : (unsigned)ftt;

	if (ftt != tolerates)
		wrong(plan,
		      "policy %s: %s tolerates %u failure%s, and the file has "
		      "ftt %llu",
		      name_of(want), method, tolerates,
		      tolerates == 1 ? "" : "s", (unsigned long long)ftt);
}

static void policy_create(struct config_plan *plan, json_t *want)
{
	static const char *const numbers[][2] = {
		{ "ftt", "ftt" },
		{ "stripe_width", "stripes" },
		{ "reserve_percent", "reserve %" },
		{ "iops_limit", "IOPS limit" },
	};
	struct config_step *s = step(plan, create, "policy", name_of(want),
				     cli__fill_policy_create, want, NULL);
	const char *method = cli__config_text(want, "method");
	uint64_t ftt = 0, n;

	cli__config_number(want, "ftt", &ftt);
	if (method != NULL) {
		raid_check(plan, want, method, ftt);
		detail(s, "%s", method);
	}
	for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
		if (cli__config_number(want, numbers[i][0], &n))
			detail(s, "%s %llu", numbers[i][1],
			       (unsigned long long)n);
	if (cli__config_true(want, "force_provision"))
		detail(s, "placed by force");
}

static void policy_compare(struct config_plan *plan, json_t *want, json_t *have)
{
	static const char *const fixed[] = { "ftt", "method", "stripe_width",
					     "reserve_percent",
					     "force_provision" };
	struct config_step *s;
	uint64_t to = 0, from = 0;

	for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
		if (differs(want, have, fixed[i]))
			wrong(plan,
			      "policy %s: its %s cannot be changed: make "
			      "another policy, and give that to the virtual "
			      "disks",
			      name_of(want), fixed[i]);
	if (!differs(want, have, "iops_limit"))
		return;
	s = step(plan, change, "policy", name_of(want), cli__fill_policy_set,
		 want, have);
	cli__config_number(want, "iops_limit", &to);
	cli__config_number(have, "iops_limit", &from);
	detail(s, "IOPS limit %llu, was %llu", (unsigned long long)to,
	       (unsigned long long)from);
}

/* The virtual disk that has policy @name when all is done, or NULL. */
static const char *policy_user(const struct config_plan *plan, const char *name)
{
	size_t i;
	json_t *have;

	json_array_foreach(json_object_get(plan->have, "vdisks"), i, have)
	{
		const json_t *want =
			same_name(plan, plan->want, "vdisks", have);
		const char *policy = cli__config_text(want, "policy");

		if (policy == NULL)
			policy = cli__config_text(have, "policy");
		if (strcmp(policy, name) == 0)
			return name_of(have);
	}
	return NULL;
}

static void policies_prune(struct config_plan *plan)
{
	const json_t *wanted = json_object_get(plan->want, "policies");
	size_t i;
	json_t *have;

	if (wanted == NULL)
		return;
	json_array_foreach(json_object_get(plan->have, "policies"), i, have)
	{
		const char *user = NULL;

		if (same_name(plan, plan->want, "policies", have) != NULL)
			continue;
		if (plan->prune)
			user = policy_user(plan, name_of(have));
		if (!plan->prune)
			left(plan, "policy", name_of(have));
		else if (user != NULL)
			wrong(plan,
			      "policy %s is not in the file, and virtual disk "
			      "%s has it: give that another one",
			      name_of(have), user);
		else
			step(plan, removal, "policy", name_of(have),
			     cli__fill_policy_delete, NULL, have);
	}
}

/* ---- virtual disks ---- */

static bool policy_known(const struct config_plan *plan, const json_t *name)
{
	return named(plan, plan->want, "policies", name) != NULL ||
	       named(plan, plan->have, "policies", name) != NULL;
}

static void vdisk_create(struct config_plan *plan, json_t *want)
{
	struct config_step *s =
		step(plan, create, "virtual disk", name_of(want),
		     cli__fill_vdisk_create, want, NULL);
	const char *policy = cli__config_text(want, "policy");
	char size[SIZE_TEXT_MAX];
	uint64_t block = 512;

	cli__config_number(want, "block_bytes", &block);
	detail(s, "%s", size_format(size_of(want), size));
	detail(s, "blocks of %llu", (unsigned long long)block);
	if (policy != NULL && policy[0] != '\0')
		detail(s, "policy %s", policy);
}

static void vdisk_size(struct config_plan *plan, json_t *want, json_t *have)
{
	char to[SIZE_TEXT_MAX], from[SIZE_TEXT_MAX];
	struct config_step *s;

	size_format(size_of(want), to);
	size_format(size_of(have), from);
	if (size_of(want) < size_of(have)) {
		wrong(plan,
		      "virtual disk %s is %s, and the file has %s: what would "
		      "be cut off is lost, so only basalt vdisk resize shrinks "
		      "it",
		      name_of(want), from, to);
	} else if (size_of(want) > size_of(have)) {
		s = step(plan, change, "virtual disk", name_of(want),
			 cli__fill_vdisk_resize, want, have);
		detail(s, "%s, was %s", to, from);
	}
}

static void vdisk_compare(struct config_plan *plan, json_t *want, json_t *have)
{
	const char *from = cli__config_text(have, "policy");
	const char *to = cli__config_text(want, "policy");
	struct config_step *s;

	if (differs(want, have, "block_bytes"))
		wrong(plan,
		      "virtual disk %s: its block size cannot be changed: make "
		      "another one, and copy it",
		      name_of(want));
	if (differs(want, have, "policy")) {
		s = step(plan, change, "virtual disk", name_of(want),
			 cli__fill_vdisk_set, want, have);
		detail(s, "policy %s, was %s", to[0] ? to : "none",
		       from[0] ? from : "none");
	}
	vdisk_size(plan, want, have);
}

static void vdisk_policy(struct config_plan *plan, const json_t *want)
{
	const json_t *policy = json_object_get(want, "policy");

	if (json_string_length(policy) > 0 && !policy_known(plan, policy))
		wrong(plan,
		      "virtual disk %s: there is no policy %s, and the file has "
		      "none",
		      name_of(want), json_string_value(policy));
}

static void vdisks(struct config_plan *plan)
{
	const json_t *wanted = json_object_get(plan->want, "vdisks");
	size_t i;
	json_t *it;

	json_array_foreach(wanted, i, it) vdisk_policy(plan, it);
	each(plan, "vdisks", vdisk_create, vdisk_compare);
	if (wanted == NULL)
		return;
	json_array_foreach(json_object_get(plan->have, "vdisks"), i,
			   it) if (same_name(plan, plan->want, "vdisks", it) ==
				   NULL)
		left(plan, "virtual disk", name_of(it));
}

/* ---- targets ---- */

void cli__config_secret_path(const struct config_plan *plan, const char *name,
			     char out[4096])
{
	const char *slash = strrchr(plan->path, '/');

	if (name[0] == '/' || slash == NULL)
		snprintf(out, 4096, "%s", name);
	else
		snprintf(out, 4096, "%.*s/%s",
			 (int)MIN(slash - plan->path, 2000), plan->path, name);
}

/* A pipe is read once, when it is its turn. */
static void secret_look(struct config_plan *plan, const json_t *want,
			const char *file_key, const char *path)
{
	uint8_t secret[512];
	struct stat st;
	size_t len = 0;
	int rv;

	if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return;
	rv = cli_secret_read(path, secret, sizeof(secret), &len);
	explicit_bzero(secret, sizeof(secret));
	if (rv < 0 && rv != -EMSGSIZE)
		wrong(plan, "target %s: %s %.300s: %s", name_of(want), file_key,
		      path, strerror(-rv));
	else if (rv < 0 || len < ISCSI_SECRET_MIN || len > ISCSI_SECRET_MAX)
		wrong(plan,
		      "target %s: %s %.300s: its first line must have %u to %u "
		      "characters",
		      name_of(want), file_key, path, ISCSI_SECRET_MIN,
		      ISCSI_SECRET_MAX);
}

/* It is about to be set: its file must be there. */
static void secret_check(struct config_plan *plan, const json_t *want,
			 const char *user_key, const char *file_key)
{
	const char *file = cli__config_text(want, file_key);
	char path[4096];

	if (file == NULL || file[0] == '\0') {
		wrong(plan,
		      "target %s: %s is set, so %s must name a file with the "
		      "secret",
		      name_of(want), user_key, file_key);
		return;
	}
	cli__config_secret_path(plan, file, path);
	if (access(path, R_OK) < 0)
		wrong(plan, "target %s: %s %.300s: %s", name_of(want), file_key,
		      path, strerror(errno));
	else
		secret_look(plan, want, file_key, path);
}

static bool has_text(const json_t *object, const char *key)
{
	const char *text = cli__config_text(object, key);

	return text != NULL && text[0] != '\0';
}

/* The iSCSI name that @target has or is given: where there is none, by its name. */
static void iqn_of(const json_t *target, char out[ISCSI_NAME_MAX + 1])
{
	if (has_text(target, "iqn"))
		snprintf(out, ISCSI_NAME_MAX + 1, "%s",
			 cli__config_text(target, "iqn"));
	else
		snprintf(out, ISCSI_NAME_MAX + 1, "%s:%.63s", NAMES_IQN_PREFIX,
			 name_of(target));
}

static void iqn_note(struct config_plan *plan, json_t *iqns, json_t *target)
{
	char iqn[ISCSI_NAME_MAX + 1];
	json_t *list;

	iqn_of(target, iqn);
	list = json_object_get(iqns, iqn);
	if (list == NULL) {
		list = json_array();
		if (json_object_set_new(iqns, iqn, list) < 0)
			list = NULL;
	}
	if (json_array_append(list, target) < 0)
		plan->failed = true;
}

/* Has another target that stays, or was made before, the name that @want gets? */
static void iqn_check(struct config_plan *plan, json_t *want)
{
	char iqn[ISCSI_NAME_MAX + 1];
	size_t i;
	json_t *it;

	iqn_of(want, iqn);
	json_array_foreach(json_object_get(plan->iqns, iqn), i, it)
	{
		if (!plan->prune ||
		    same_name(plan, plan->want, "targets", it) != NULL)
			wrong(plan,
			      "target %s: %s is the name of target %s already",
			      name_of(want), iqn, name_of(it));
	}
	json_array_foreach(json_object_get(plan->iqns_made, iqn), i, it)
		wrong(plan, "target %s: %s is to be that of target %s",
		      name_of(want), iqn, name_of(it));
	iqn_note(plan, plan->iqns_made, want);
}

/* RFC 7143, 12.1.3: the initiator proves itself first. */
static void mutual_check(struct config_plan *plan, const json_t *want,
			 bool chap)
{
	if (!chap)
		wrong(plan,
		      "target %s: mutual_user without chap_user: there is no "
		      "mutual CHAP without CHAP",
		      name_of(want));
}

/*
 * A secret alone sets nothing: who wrote it down meant to ask for it.  A user of ""
 * is meant: no CHAP.
 */
static void secrets_used(struct config_plan *plan, const json_t *want)
{
	static const char *const keys[][2] = {
		{ "chap_secret_file", "chap_user" },
		{ "mutual_secret_file", "mutual_user" },
	};

	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (has_text(want, keys[i][0]) &&
		    cli__config_text(want, keys[i][1]) == NULL)
			wrong(plan,
			      "target %s: %s without %s: name the user too, "
			      "or leave the secret out",
			      name_of(want), keys[i][0], keys[i][1]);
}

static void target_create(struct config_plan *plan, json_t *want)
{
	struct config_step *s = step(plan, create, "target", name_of(want),
				     cli__fill_target_create, want, NULL);
	size_t i;
	json_t *it;

	if (has_text(want, "iqn"))
		detail(s, "%s", cli__config_text(want, "iqn"));
	json_array_foreach(json_object_get(want, "allow"), i, it)
		detail(s, "+%s", json_string_value(it));
	if (has_text(want, "chap_user")) {
		secret_check(plan, want, "chap_user", "chap_secret_file");
		detail(s, "CHAP user %s", cli__config_text(want, "chap_user"));
	}
	iqn_check(plan, want);
	if (has_text(want, "mutual_user")) {
		mutual_check(plan, want, has_text(want, "chap_user"));
		secret_check(plan, want, "mutual_user", "mutual_secret_file");
		detail(s, "mutual CHAP user %s",
		       cli__config_text(want, "mutual_user"));
	}
	secrets_used(plan, want);
}

/* One direction of CHAP: to be set, to be taken away, or as it is. */
static void chap_compare(struct config_plan *plan, const json_t *want,
			 const json_t *have, const char *user_key,
			 const char *file_key, bool *set, bool *no)
{
	bool other = differs(want, have, user_key);

	*no = other && !has_text(want, user_key);
	*set = has_text(want, user_key) && (other || plan->secrets);
	if (*set)
		secret_check(plan, want, user_key, file_key);
}

static void target_chap(struct config_plan *plan, struct config_step *s,
			const json_t *want, const json_t *have)
{
	chap_compare(plan, want, have, "chap_user", "chap_secret_file",
		     &s->chap, &s->no_chap);
	chap_compare(plan, want, have, "mutual_user", "mutual_secret_file",
		     &s->mutual, &s->no_mutual);
	if (s->no_chap)
		detail(s, "no CHAP");
	else if (s->no_mutual)
		detail(s, "no mutual CHAP");
	if (s->chap)
		detail(s, "CHAP user %s", cli__config_text(want, "chap_user"));
	if (s->mutual) {
		mutual_check(plan, want,
			     !s->no_chap &&
				     (s->chap || has_text(have, "chap_user")));
		detail(s, "mutual CHAP user %s",
		       cli__config_text(want, "mutual_user"));
	}
}

/* Whom it is to admit that it does not, and the other way. */
static void target_names(struct config_step *s, const json_t *want,
			 const json_t *have)
{
	const json_t *to = json_object_get(want, "allow");
	const json_t *from = json_object_get(have, "allow");
	size_t i;
	json_t *it;

	if (to == NULL)
		return;
	json_array_foreach(to, i, it) if (!listed(from, json_string_value(it)))
		detail(s, "+%s", json_string_value(it));
	json_array_foreach(from, i, it) if (!listed(to, json_string_value(it)))
		detail(s, "-%s", json_string_value(it));
}

static void target_compare(struct config_plan *plan, json_t *want, json_t *have)
{
	struct config_step *s;

	if (differs(want, have, "iqn"))
		wrong(plan,
		      "target %s: its name is %s, and cannot be changed: make "
		      "another target",
		      name_of(want), cli__config_text(have, "iqn"));
	s = step(plan, change, "target", name_of(want), cli__fill_target_set,
		 want, have);
	target_names(s, want, have);
	target_chap(plan, s, want, have);
	secrets_used(plan, want);
	if (s->detail[0] == '\0' && s != &plan->spare)
		plan->count--; /* it is as it shall be */
}

static void targets_prune(struct config_plan *plan)
{
	const json_t *wanted = json_object_get(plan->want, "targets");
	size_t i;
	json_t *have;

	if (wanted == NULL)
		return;
	json_array_foreach(json_object_get(plan->have, "targets"), i, have)
	{
		if (same_name(plan, plan->want, "targets", have) != NULL)
			continue;
		if (plan->prune)
			step(plan, removal, "target", name_of(have),
			     cli__fill_target_delete, NULL, have);
		else
			left(plan, "target", name_of(have));
	}
}

/* ---- LUNs ---- */

static uint64_t number_of(const json_t *lun)
{
	uint64_t n = 0;

	cli__config_number(lun, "lun", &n);
	return n;
}

static bool lun_is(const json_t *want, const json_t *have)
{
	return want != NULL && have != NULL && !differs(want, have, "vdisk") &&
	       !differs(want, have, "read_only");
}

/* What stands in the way of the file's LUNs goes, by --prune. */
static void lun_goes(struct config_plan *plan, json_t *target, json_t *have)
{
	const json_t *luns = json_object_get(target, "luns");
	const json_t *vdisk = json_object_get(have, "vdisk");
	json_t *want =
		cli__config_find(luns, "lun", json_object_get(have, "lun"));
	bool in_the_way =
		want != NULL || cli__config_find(luns, "vdisk", vdisk) != NULL;
	struct config_step *s;
	char name[320];

	if (lun_is(want, have))
		return;
	snprintf(name, sizeof(name), "%llu of target %s",
		 (unsigned long long)number_of(have), name_of(target));
	if (plan->prune) {
		s = step(plan, removal, "LUN", name, cli__fill_lun_remove, NULL,
			 have);
		s->target = target;
		detail(s, "%s", json_string_value(vdisk));
	} else if (in_the_way) {
		wrong(plan,
		      "LUN %s is %s%s, and the file has it otherwise: --prune "
		      "takes it away first",
		      name, json_string_value(vdisk),
		      cli__config_true(have, "read_only") ? ", read-only" : "");
	} else {
		left(plan, "LUN", name);
	}
}

static json_t *luns_there(const struct config_plan *plan, const json_t *target)
{
	return json_object_get(same_name(plan, plan->have, "targets", target),
			       "luns");
}

static void luns_go(struct config_plan *plan)
{
	size_t i, k;
	json_t *target, *have;

	json_array_foreach(json_object_get(plan->want, "targets"), i,
			   target) if (json_object_get(target, "luns") != NULL)
		json_array_foreach(luns_there(plan, target), k, have)
			lun_goes(plan, target, have);
}

static void lun_comes(struct config_plan *plan, json_t *target, json_t *want)
{
	const json_t *vdisk = json_object_get(want, "vdisk");
	struct config_step *s;
	char name[320];

	if (lun_is(want, cli__config_find(luns_there(plan, target), "lun",
					  json_object_get(want, "lun"))))
		return;
	snprintf(name, sizeof(name), "%llu of target %s",
		 (unsigned long long)number_of(want), name_of(target));
	if (named(plan, plan->want, "vdisks", vdisk) == NULL &&
	    named(plan, plan->have, "vdisks", vdisk) == NULL)
		wrong(plan,
		      "LUN %s: there is no virtual disk %s, and the file has "
		      "none",
		      name, json_string_value(vdisk));
	s = step(plan, create, "LUN", name, cli__fill_lun_add, want, NULL);
	s->target = target;
	detail(s, "%s", json_string_value(vdisk));
	if (cli__config_true(want, "read_only"))
		detail(s, "read-only");
}

/* Those of the file, and those that stay. */
static void luns_count(struct config_plan *plan, const json_t *target)
{
	const json_t *luns = json_object_get(target, "luns"), *have;
	size_t count = json_array_size(luns), i;

	if (!plan->prune)
		json_array_foreach(luns_there(plan, target), i, have) count +=
			cli__config_find(luns, "lun",
					 json_object_get(have, "lun")) == NULL;
	if (count > NAMES_LUNS_MAX)
		wrong(plan, "target %s: %zu LUNs, and it can have %u",
		      name_of(target), count, NAMES_LUNS_MAX);
}

static void luns_come(struct config_plan *plan)
{
	size_t i, k;
	json_t *target, *want;

	json_array_foreach(json_object_get(plan->want, "targets"), i, target)
	{
		luns_count(plan, target);
		json_array_foreach(json_object_get(target, "luns"), k, want)
			lun_comes(plan, target, want);
	}
}

/* ---- the node's ---- */

static void portals(struct config_plan *plan)
{
	struct config_step *s;
	size_t i;
	json_t *want, *have;

	json_array_foreach(json_object_get(plan->want, "portals"), i, want)
	{
		const char *address = cli__config_text(want, "address");

		have = cli__config_find(json_object_get(plan->have, "portals"),
					"address",
					json_object_get(want, "address"));
		if (have == NULL)
			wrong(plan,
			      "this node has no portal %s: addresses are set "
			      "by 'portals' in [network] of basalt.conf",
			      address);
		if (have == NULL || !differs(want, have, "transport"))
			continue;
		s = step(plan, change, "portal", address, cli__fill_portal,
			 want, have);
		detail(s, "%s, was %s", cli__config_text(want, "transport"),
		       cli__config_text(have, "transport"));
	}
}

static void days(struct config_step *s, const char *before, const json_t *state)
{
	uint64_t n = 0;

	cli__config_number(state, "scrub_days", &n);
	if (n == 0)
		detail(s, "%soff", before);
	else
		detail(s, "%severy %llu day%s", before, (unsigned long long)n,
		       n == 1 ? "" : "s");
}

static void scrub(struct config_plan *plan)
{
	struct config_step *s;

	if (!differs(plan->want, plan->have, "scrub_days"))
		return;
	s = step(plan, change, "scrubs", "of all disks", cli__fill_scrub,
		 plan->want, plan->have);
	days(s, "", plan->want);
	days(s, "was ", plan->have);
}

static bool list_index(struct config_names *names, const json_t *list)
{
	size_t i;
	json_t *it;

	names->list = list;
	names->by = json_object();
	json_array_foreach(list, i, it)
	{
		const char *name = name_of(it);

		if (json_object_get(names->by, name) == NULL &&
		    json_object_set(names->by, name, it) < 0)
			return false;
	}
	return names->by != NULL;
}

static bool index_make(struct config_plan *plan)
{
	static const char *const sections[CONFIG_NAMED] = { "policies",
							    "vdisks",
							    "targets" };
	struct config_names *names = plan->names;
	size_t i;
	json_t *it;

	for (i = 0; i < CONFIG_NAMED; i++)
		if (!list_index(names++,
				json_object_get(plan->want, sections[i])) ||
		    !list_index(names++,
				json_object_get(plan->have, sections[i])))
			return false;
	json_array_foreach(json_object_get(plan->have, "targets"), i, it)
		iqn_note(plan, plan->iqns, it);
	return true;
}

int cli__config_plan(struct config_plan *plan)
{
	plan->left = json_array();
	plan->wrong = json_array();
	plan->iqns = json_object();
	plan->iqns_made = json_object();
	if (plan->left == NULL || plan->wrong == NULL || plan->iqns == NULL ||
	    plan->iqns_made == NULL || !index_make(plan))
		return -ENOMEM;
	scrub(plan);
	each(plan, "policies", policy_create, policy_compare);
	vdisks(plan);
	luns_go(plan);
	targets_prune(plan);
	each(plan, "targets", target_create, target_compare);
	luns_come(plan);
	policies_prune(plan);
	portals(plan);
	return plan->failed ? -ENOMEM : 0;
}

void cli__config_plan_fini(struct config_plan *plan)
{
	free(plan->steps);
	for (size_t i = 0; i < ARRAY_LEN(plan->names); i++)
		json_decref(plan->names[i].by);
	json_decref(plan->iqns);
	json_decref(plan->iqns_made);
	json_decref(plan->left);
	json_decref(plan->wrong);
	json_decref(plan->want);
	json_decref(plan->have);
}
