/*
 * config_file: what shall be, read from a file and checked, key by key.  What the
 * daemon would refuse for itself alone is refused here, before anything is changed.
 */
#include "base/size.h"
#include "cmmds/cmmds.h"
#include "node/cli/config.h"
#include "node/names.h"

#include <errno.h>
#include <stdarg.h>

enum kind { TEXT, NUMBER, SIZE, SWITCH, TEXTS, OBJECTS };

struct key {
	const char *name;
	enum kind kind;
	bool needed;
	uint64_t max; /* of a number; of a text, its bytes */
	uint64_t min;
	const struct key *of; /* of objects: their keys, the first names them */
	bool (*ok)(const char *text); /* of a text, or each of them; or NULL */
	const char *rule; /* what is, then */
};

#define NAME_MAX_BYTES 255u
#define FILE_BYTES_MAX (64u << 20)
#define ALLOW_MAX 256u

static bool name_ok(const char *text)
{
	return names_ok(text, false);
}
#define NAME_RULE                                                                  \
	"a name has 1 to 63 letters, digits, '.', '_' and '-', and begins with a " \
	"letter or digit"

static bool target_ok(const char *text)
{
	return names_ok(text, true);
}
#define TARGET_RULE                                                             \
	"the name of a target has 1 to 63 small letters, digits, '.' and '-', " \
	"and begins with a letter or digit"

#define ISCSI_RULE "an iSCSI name in small ASCII letters (iqn., eui. or naa.)"

static bool iqn_ok(const char *text)
{
	return text[0] == '\0' ||
	       names_iscsi_ok(text); /* "": by the target's name */
}

static bool allow_ok(const char *text)
{
	return strcmp(text, "any") == 0 || names_iscsi_ok(text);
}

static bool user_ok(const char *text)
{
	return strlen(text) <= NAMES_USER_MAX && names_printable(text);
}
#define USER_RULE "a user has at most 64 printable characters without blanks"

static bool transport_ok(const char *text)
{
	return strcmp(text, "tcp") == 0 || strcmp(text, "iser") == 0 ||
	       strcmp(text, "both") == 0;
}

static bool method_ok(const char *text)
{
	return strcmp(text, "mirror") == 0 || strcmp(text, "raid5") == 0 ||
	       strcmp(text, "raid6") == 0;
}

static const struct key lun_keys[] = {
	{ "lun", NUMBER, true, 16383, 0, NULL },
	{ "vdisk", TEXT, true, NAME_MAX_BYTES, 0, NULL },
	{ "read_only", SWITCH, false, 0, 0, NULL },
	{ NULL, TEXT, false, 0, 0, NULL },
};
static const struct key portal_keys[] = {
	{ "address", TEXT, true, NAME_MAX_BYTES, 0, NULL },
	{ "transport", TEXT, true, NAME_MAX_BYTES, 0, NULL, transport_ok,
	  "\"tcp\", \"iser\" or \"both\"" },
	{ NULL, TEXT, false, 0, 0, NULL },
};
static const struct key policy_keys[] = {
	{ "name", TEXT, true, NAME_MAX_BYTES, 0, NULL, name_ok, NAME_RULE },
	{ "ftt", NUMBER, false, 3, 0, NULL },
	{ "method", TEXT, false, NAME_MAX_BYTES, 0, NULL, method_ok,
	  "\"mirror\", \"raid5\" or \"raid6\"" },
	{ "stripe_width", NUMBER, false, 12, 1, NULL },
	{ "reserve_percent", NUMBER, false, 100, 0, NULL },
	{ "iops_limit", NUMBER, false, UINT32_MAX, 0, NULL },
	{ "force_provision", SWITCH, false, 0, 0, NULL },
	{ NULL, TEXT, false, 0, 0, NULL },
};
static const struct key vdisk_keys[] = {
	{ "name", TEXT, true, NAME_MAX_BYTES, 0, NULL, name_ok, NAME_RULE },
	{ "size", SIZE, true, 128ull << 40, 4096, NULL },
	{ "block_bytes", NUMBER, false, 4096, 512, NULL },
	{ "policy", TEXT, false, NAME_MAX_BYTES, 0, NULL },
	{ NULL, TEXT, false, 0, 0, NULL },
};
static const struct key target_keys[] = {
	{ "name", TEXT, true, NAME_MAX_BYTES, 0, NULL, target_ok, TARGET_RULE },
	{ "iqn", TEXT, false, NAME_MAX_BYTES, 0, NULL, iqn_ok, ISCSI_RULE },
	{ "allow", TEXTS, false, NAME_MAX_BYTES, 0, NULL, allow_ok,
	  "\"any\", or " ISCSI_RULE },
	{ "chap_user", TEXT, false, NAME_MAX_BYTES, 0, NULL, user_ok,
	  USER_RULE },
	{ "chap_secret_file", TEXT, false, 2000, 0, NULL },
	{ "mutual_user", TEXT, false, NAME_MAX_BYTES, 0, NULL, user_ok,
	  USER_RULE },
	{ "mutual_secret_file", TEXT, false, 2000, 0, NULL },
	{ "luns", OBJECTS, false, 0, 0, lun_keys },
	{ NULL, TEXT, false, 0, 0, NULL },
};
static const struct key top_keys[] = {
	{ "basalt_config", NUMBER, true, UINT32_MAX, 0, NULL },
	{ "scrub_days", NUMBER, false, CMMDS_SCRUB_DAYS_MAX, 0, NULL },
	{ "portals", OBJECTS, false, 0, 0, portal_keys },
	{ "policies", OBJECTS, false, 0, 0, policy_keys },
	{ "vdisks", OBJECTS, false, 0, 0, vdisk_keys },
	{ "targets", OBJECTS, false, 0, 0, target_keys },
	{ NULL, TEXT, false, 0, 0, NULL },
};

#define PLACE_MAX 200

struct reading {
	const struct cli_call *call;
	const char *path;
};

static int wrong(const struct reading *r, const char *place, const char *fmt,
		 ...) __attribute__((format(printf, 3, 4)));

static int wrong(const struct reading *r, const char *place, const char *fmt,
		 ...)
{
	char text[300], error[580];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(error, sizeof(error), "%.80s: %.190s%s%.300s", r->path, place,
		 place[0] ? ": " : "", text);
	cli_refuse(r->call, error,
		   "Nothing was changed.  basalt config show prints what such "
		   "a file looks like; its man page has the keys.",
		   -EINVAL);
	return -EINVAL;
}

static int object_check(const struct reading *r, const char *place,
			json_t *object, const struct key *keys);

static int text_check(const struct reading *r, const char *place,
		      const json_t *value, const struct key *key)
{
	if (!json_is_string(value))
		return wrong(r, place, "a text in quotes is expected");
	if (json_string_length(value) > key->max)
		return wrong(r, place, "longer than %u bytes",
			     (unsigned)key->max);
	if (key->needed && json_string_length(value) == 0)
		return wrong(r, place, "it is empty");
	if (key->ok != NULL && !key->ok(json_string_value(value)))
		return wrong(r, place, "'%.80s': %s", json_string_value(value),
			     key->rule);
	return 0;
}

static int number_check(const struct reading *r, const char *place,
			const json_t *value, const struct key *key)
{
	json_int_t n = json_integer_value(value);

	if (!json_is_integer(value) || n < (json_int_t)key->min ||
	    (uint64_t)n > key->max)
		return wrong(r, place,
			     "a whole number from %llu to %llu is expected",
			     (unsigned long long)key->min,
			     (unsigned long long)key->max);
	return 0;
}

/* "10G", or bytes; it is a number of bytes from here on. */
static int size_check(const struct reading *r, const char *place,
		      json_t *object, const struct key *key)
{
	const json_t *value = json_object_get(object, key->name);
	uint64_t bytes = 0;
	int rv = -EINVAL;

	if (json_is_string(value))
		rv = size_parse(json_string_value(value), &bytes);
	else if (json_is_integer(value) && json_integer_value(value) > 0)
		rv = (bytes = (uint64_t)json_integer_value(value), 0);
	if (rv < 0 || bytes == 0 || bytes > key->max)
		return wrong(r, place,
			     "no size like \"10G\", \"512M\" or a "
			     "number of bytes, from 4K to 128T");
	if (bytes < key->min || bytes % 4096 != 0)
		return wrong(r, place,
			     "%llu bytes are no multiple of 4096: give a "
			     "multiple of 4K",
			     (unsigned long long)bytes);
	json_object_set_new(object, key->name, json_integer((json_int_t)bytes));
	return 0;
}

/*
 * Was @value, a text or a number like all of them, in @seen?  It is from now on.
 * -ENOMEM: that is not known.
 */
static int is_twice(json_t *seen, const json_t *value)
{
	const char *text = json_string_value(value);
	char number[24];

	if (text == NULL) {
		snprintf(number, sizeof(number), "%lld",
			 (long long)json_integer_value(value));
		text = number;
	}
	if (json_object_get(seen, text) != NULL)
		return 1;
	return json_object_set_new(seen, text, json_true()) < 0 ? -ENOMEM : 0;
}

/* @what of @list's items, a key of theirs or NULL: they, is there once. */
static int once_check(const struct reading *r, const char *place, json_t *seen,
		      const json_t *value, const char *what)
{
	int rv = is_twice(seen, value);

	return rv == 0	 ? 0
	       : rv == 1 ? wrong(r, place, "the %s is there twice", what)
			 : wrong(r, place, "no memory to look at it");
}

static int items_check(const struct reading *r, const char *place,
		       const json_t *list, const struct key *key, json_t *seen)
{
	const struct key one = { key->name, TEXT, true,	   key->max,
				 0,	    NULL, key->ok, key->rule };
	const char *name = key->kind == OBJECTS ? key->of[0].name : NULL;
	char at[PLACE_MAX + 24];
	size_t i;
	json_t *item;
	int rv = 0;

	json_array_foreach(list, i, item)
	{
		snprintf(at, sizeof(at), "%.*s[%zu]", PLACE_MAX, place, i);
		rv = key->kind == OBJECTS ? object_check(r, at, item, key->of)
					  : text_check(r, at, item, &one);
		if (rv == 0 && name != NULL)
			rv = once_check(r, at, seen,
					json_object_get(item, name), name);
		else if (rv == 0)
			rv = once_check(r, at, seen, item, "name");
		if (rv < 0)
			break;
	}
	return rv;
}

static int list_check(const struct reading *r, const char *place,
		      const json_t *list, const struct key *key)
{
	json_t *seen;
	int rv;

	if (!json_is_array(list))
		return wrong(r, place, "a list in brackets is expected");
	if (key->kind == TEXTS && json_array_size(list) > ALLOW_MAX)
		return wrong(r, place, "more than %u of them", ALLOW_MAX);
	seen = json_object();
	rv = items_check(r, place, list, key, seen);
	json_decref(seen);
	return rv;
}

static int value_check(const struct reading *r, const char *place,
		       json_t *object, const struct key *key)
{
	json_t *value = json_object_get(object, key->name);

	switch (key->kind) {
	case TEXT:
		return text_check(r, place, value, key);
	case NUMBER:
		return number_check(r, place, value, key);
	case SIZE:
		return size_check(r, place, object, key);
	case SWITCH:
		return json_is_boolean(value)
			       ? 0
			       : wrong(r, place, "true or false is expected");
	default:
		return list_check(r, place, value, key);
	}
}

static const struct key *key_of(const struct key *keys, const char *name)
{
	for (; keys->name != NULL; keys++)
		if (strcmp(keys->name, name) == 0)
			return keys;
	return NULL;
}

static int object_check(const struct reading *r, const char *place,
			json_t *object, const struct key *keys)
{
	char at[PLACE_MAX];
	const char *name;
	json_t *value;
	int rv;

	if (!json_is_object(object))
		return wrong(r, place, "keys in braces are expected");
	json_object_foreach(
		object, name,
		value) if (key_of(keys, name) ==
			   NULL) return wrong(r, place,
					      "there is no key \"%.60s\"",
					      name);
	for (; keys->name != NULL; keys++) {
		if (json_object_get(object, keys->name) == NULL) {
			if (keys->needed)
				return wrong(r, place,
					     "the key \"%s\" is missing",
					     keys->name);
			continue;
		}
		snprintf(at, sizeof(at), "%.150s%s%s", place,
			 place[0] ? "." : "", keys->name);
		rv = value_check(r, at, object, keys);
		if (rv < 0)
			return rv;
	}
	return 0;
}

/* What comes after it is of that form. */
static int form_check(const struct reading *r, const json_t *file)
{
	const json_t *form = json_object_get(file, "basalt_config");

	if (json_is_integer(form) && json_integer_value(form) != CONFIG_FORM)
		return wrong(r, "basalt_config",
			     "this basalt knows form %d only", CONFIG_FORM);
	return 0;
}

static int blocks_check(const struct reading *r, const json_t *file)
{
	size_t i;
	json_t *vdisk;

	json_array_foreach(json_object_get(file, "vdisks"), i, vdisk)
	{
		const json_t *n = json_object_get(vdisk, "block_bytes");
		char at[PLACE_MAX];

		snprintf(at, sizeof(at), "vdisks[%zu].block_bytes", i);
		if (n != NULL && json_integer_value(n) != 512 &&
		    json_integer_value(n) != 4096)
			return wrong(r, at, "512 or 4096 is expected");
	}
	return 0;
}

static int iqns_check(const struct reading *r, const json_t *file)
{
	json_t *seen = json_object(), *target;
	size_t i;
	int rv = 0;

	json_array_foreach(json_object_get(file, "targets"), i, target)
	{
		const json_t *iqn = json_object_get(target, "iqn");
		char at[PLACE_MAX];

		snprintf(at, sizeof(at), "targets[%zu]", i);
		if (json_string_length(iqn) > 0)
			rv = once_check(r, at, seen, iqn, "iqn");
		if (rv < 0)
			break;
	}
	json_decref(seen);
	return rv;
}

static int target_luns_check(const struct reading *r, const json_t *luns,
			     size_t target)
{
	json_t *seen = json_object(), *lun;
	size_t i;
	int rv = 0;

	json_array_foreach(luns, i, lun)
	{
		char at[PLACE_MAX];

		snprintf(at, sizeof(at), "targets[%zu].luns[%zu]", target, i);
		rv = once_check(r, at, seen, json_object_get(lun, "vdisk"),
				"vdisk");
		if (rv < 0)
			break;
	}
	json_decref(seen);
	return rv;
}

/* A virtual disk is in a target once. */
static int luns_check(const struct reading *r, const json_t *file)
{
	size_t i;
	json_t *target;
	int rv = 0;

	json_array_foreach(json_object_get(file, "targets"), i, target)
	{
		rv = target_luns_check(r, json_object_get(target, "luns"), i);
		if (rv < 0)
			break;
	}
	return rv;
}

struct input {
	FILE *f;
	size_t bytes;
	int error; /* of a read */
};

/* One without an end would end us; editors begin one with a mark of its form. */
static size_t file_part(void *buf, size_t len, void *arg)
{
	static const char mark[] = "\xef\xbb\xbf";
	struct input *in = arg;
	size_t n = fread(buf, 1, len, in->f);
	bool marked = in->bytes == 0 && n >= sizeof(mark) - 1 &&
		      memcmp(buf, mark, sizeof(mark) - 1) == 0;

	if (ferror(in->f)) {
		in->error = errno;
		return (size_t)-1;
	}
	in->bytes += n;
	if (in->bytes > FILE_BYTES_MAX)
		return (size_t)-1;
	if (marked) {
		n -= sizeof(mark) - 1;
		memmove(buf, (char *)buf + sizeof(mark) - 1, n);
	}
	return n;
}

json_t *cli__config_file(const struct cli_call *call, const char *path)
{
	struct reading r = { call, path };
	bool standard = strcmp(path, "-") == 0;
	FILE *f = standard ? stdin : fopen(path, "re");
	struct input in = { .f = f };
	json_error_t e;
	json_t *file;
	int rv;

	if (f == NULL) {
		wrong(&r, "", "%s", strerror(errno));
		return NULL;
	}
	if (standard)
		r.path = "standard input";
	file = json_load_callback(file_part, &in, JSON_REJECT_DUPLICATES, &e);
	if (!standard)
		fclose(f);
	if (in.bytes > FILE_BYTES_MAX) {
		wrong(&r, "", "longer than %u MiB", FILE_BYTES_MAX >> 20);
		json_decref(file);
		return NULL;
	}
	if (in.error != 0) {
		wrong(&r, "", "%s", strerror(in.error));
		json_decref(file);
		return NULL;
	}
	if (file == NULL) {
		wrong(&r, "", "no JSON: line %d, column %d: %s", e.line,
		      e.column, e.text);
		return NULL;
	}
	rv = form_check(&r, file);
	if (rv == 0)
		rv = object_check(&r, "", file, top_keys);
	if (rv == 0)
		rv = blocks_check(&r, file);
	if (rv == 0)
		rv = iqns_check(&r, file);
	if (rv == 0)
		rv = luns_check(&r, file);
	if (rv == 0)
		return file;
	json_decref(file);
	return NULL;
}
