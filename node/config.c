/*
 * config: reading basalt.conf.  libinih splits the lines; the reader under it
 * counts them, since Debian's build does not tell the handler the number, and
 * sees what libinih would let pass: sections without keys, lines cut short.
 * The first error ends the reading and names its line.
 */
#include "node/config.h"
#include "base/address.h"
#include "base/log.h"
#include "base/size.h"
#include "base/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ini.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#define CONFIG_BYTES_MAX (64u << 10)

struct reading {
	struct config *conf;
	const char *name, *at;
	unsigned line;
	char *why;
	size_t why_len;
	bool failed;
	uint64_t seen; /* a bit for each key of the table */
	unsigned metrics_line;
	char metrics[64];
};

__attribute__((format(printf, 2, 3))) static int refuse(struct reading *r,
							const char *fmt, ...)
{
	va_list ap;
	int n;

	if (r->failed) /* the first one is the one to fix */
		return 0;
	r->failed = true;
	n = snprintf(r->why, r->why_len, "%s:%u: ", r->name, r->line);
	if (n < 0 || (size_t)n >= r->why_len)
		return 0;
	va_start(ap, fmt);
	vsnprintf(r->why + n, r->why_len - (size_t)n, fmt, ap);
	va_end(ap);
	return 0;
}

/* ---- values ---- */

static int set_text(struct reading *r, char *out, size_t len, const char *key,
		    const char *value)
{
	if (value[0] == '\0')
		return refuse(r, "%s is empty", key);
	if (strlen(value) >= len)
		return refuse(r, "%s is longer than %zu characters", key,
			      len - 1);
	strcpy(out, value);
	return 1;
}

static int set_path(struct reading *r, char *out, size_t len, const char *key,
		    const char *value)
{
	if (value[0] != '/')
		return refuse(r, "%s = %s: must be an absolute path", key,
			      value);
	return set_text(r, out, len, key, value);
}

static int set_name(struct reading *r, const char *key, const char *value)
{
	for (const char *p = value; *p; p++)
		if (!isalnum((unsigned char)*p) && strchr("._-", *p) == NULL)
			return refuse(r,
				      "%s = %s: letters, digits, '.', '_' and "
				      "'-' only",
				      key, value);
	return set_text(r, r->conf->name, sizeof(r->conf->name), key, value);
}

static int set_shards(struct reading *r, const char *key, const char *value)
{
	uint64_t n;

	if (strcmp(value, "auto") == 0) {
		r->conf->shards = 0;
		return 1;
	}
	if (number_parse(value, 1, CONFIG_SHARDS_MAX, &n) < 0)
		return refuse(r, "%s = %s: 'auto' or 1 to %u", key, value,
			      CONFIG_SHARDS_MAX);
	r->conf->shards = (unsigned)n;
	return 1;
}

static int set_spin(struct reading *r, const char *key, const char *value)
{
	uint64_t n;

	if (number_parse(value, 0, 1000, &n) < 0)
		return refuse(r, "%s = %s: must be 0 (never) to 1000", key,
			      value);
	r->conf->spin_us = (unsigned)n;
	return 1;
}

static int set_discard(struct reading *r, const char *key, const char *value)
{
	r->conf->discard = strcmp(value, "on") == 0;
	if (!r->conf->discard && strcmp(value, "off") != 0)
		return refuse(r, "%s = %s: on or off", key, value);
	return 1;
}

static int set_log_level(struct reading *r, const char *key, const char *value)
{
	/* Applying it is the check; main applies the final one again. */
	if (config_log_level_apply(value) < 0)
		return refuse(r,
			      "%s = %s: error, warn, info or debug, and "
			      "ROOM=LEVEL after a comma (rooms: base lsom rdt "
			      "cmmds dom iscsi iser node)",
			      key, value);
	return set_text(r, r->conf->log_level, sizeof(r->conf->log_level), key,
			value);
}

static int set_address(struct reading *r, const char *key, const char *value)
{
	struct config_portal portal;

	if (config_portal_parse(value, 3260, &portal) == -ENOTUNIQ)
		return refuse(r, "%s = %s: has no port; portals = %s has one",
			      key, value, portal.meant);
	if (value[0] == '[' || config_portal_parse(value, 0, &portal) < 0 ||
	    *address_port(&portal.address) != 0)
		return refuse(r,
			      "%s = %s: must be one numeric IPv4 or IPv6 "
			      "address",
			      key, value);
	return set_text(r, r->conf->address, sizeof(r->conf->address), key,
			value);
}

static int set_port(struct reading *r, const char *key, const char *value)
{
	uint64_t n;

	if (number_parse(value, 1, 65535, &n) < 0)
		return refuse(r, "%s = %s: must be 1..65535", key, value);
	r->conf->rdt_port = (uint16_t)n;
	return 1;
}

static int set_size(struct reading *r, uint64_t *out, uint64_t min,
		    uint64_t max, const char *key, const char *value)
{
	char a[SIZE_TEXT_MAX], b[SIZE_TEXT_MAX];
	int rv = size_parse(value, out);

	if (rv == -EINVAL)
		return refuse(r, "%s = %s: not a size like 512M or 2G", key,
			      value);
	if (rv < 0 || *out < min || *out > max)
		return refuse(r, "%s = %s: must be %s..%s", key, value,
			      size_format(min, a), size_format(max, b));
	return 1;
}

static int portal_add(struct reading *r, const char *item)
{
	struct config *c = r->conf;
	struct config_portal *p = &c->portals[c->portals_count];
	int rv;

	if (c->portals_count == CONFIG_PORTALS_MAX)
		return refuse(r, "more than %u portals", CONFIG_PORTALS_MAX);
	if (item[0] == '\0')
		return refuse(r, "portals: nothing stands beside a comma; "
				 "another line 'portals' adds to the list");
	rv = config_portal_parse(item, 3260, p);
	if (rv == -ENOTUNIQ)
		return refuse(r,
			      "portals: '%s' is an IPv6 address without a "
			      "port: write %s, or [%s]:3260 if that is meant",
			      item, p->meant, item);
	if (rv < 0)
		return refuse(r,
			      "portals: '%s' is not ADDR:PORT with a numeric "
			      "address (IPv6: [ADDR]:PORT)",
			      item);
	for (unsigned i = 0; i < c->portals_count; i++)
		if (strcmp(c->portals[i].text, p->text) == 0)
			return refuse(r, "portals: %s is given twice", p->text);
	c->portals_count++;
	return 1;
}

/* Adds to what an earlier line gave: a line has no place for all of them. */
static int add_portals(struct reading *r, const char *key, const char *value)
{
	char copy[256], *list = copy, *item;

	if (set_text(r, copy, sizeof(copy), key, value) == 0)
		return 0;
	while ((item = strsep(&list, ",")) != NULL) {
		size_t len;

		item += strspn(item, " \t");
		len = strlen(item);
		while (len > 0 && isspace((unsigned char)item[len - 1]))
			item[--len] = '\0';
		if (portal_add(r, item) == 0)
			return 0;
	}
	return 1;
}

/* ---- the keys ---- */

enum key {
	KEY_NAME,
	KEY_DATA_DIR,
	KEY_RUN_DIR,
	KEY_SHARDS,
	KEY_SPIN,
	KEY_DISCARD,
	KEY_LOG_LEVEL,
	KEY_ADDRESS,
	KEY_RDT_PORT,
	KEY_PORTALS,
	KEY_METRICS,
	KEY_ARENA,
	KEY_PAGE_CACHE,
};

static const struct {
	const char *section, *name;
} keys[] = {
	[KEY_NAME] = { "node", "name" },
	[KEY_DATA_DIR] = { "node", "data_dir" },
	[KEY_RUN_DIR] = { "node", "run_dir" },
	[KEY_SHARDS] = { "node", "shards" },
	[KEY_SPIN] = { "node", "spin_us" },
	[KEY_DISCARD] = { "node", "discard" },
	[KEY_LOG_LEVEL] = { "node", "log_level" },
	[KEY_ADDRESS] = { "network", "address" },
	[KEY_RDT_PORT] = { "network", "rdt_port" },
	[KEY_PORTALS] = { "network", "portals" },
	[KEY_METRICS] = { "network", "metrics" },
	[KEY_ARENA] = { "memory", "arena" },
	[KEY_PAGE_CACHE] = { "memory", "page_cache" },
};

static bool section_known(const char *section)
{
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		if (strcmp(keys[i].section, section) == 0)
			return true;
	return false;
}

static int key_set(struct reading *r, enum key key, const char *name,
		   const char *value)
{
	struct config *c = r->conf;

	switch (key) {
	case KEY_NAME:
		return set_name(r, name, value);
	case KEY_DATA_DIR:
		return set_path(r, c->data_dir, sizeof(c->data_dir), name,
				value);
	case KEY_RUN_DIR:
		/* sun_path holds 108 bytes, "/basalt.sock" is 12 of them. */
		return set_path(r, c->run_dir, 96, name, value);
	case KEY_SHARDS:
		return set_shards(r, name, value);
	case KEY_SPIN:
		return set_spin(r, name, value);
	case KEY_DISCARD:
		return set_discard(r, name, value);
	case KEY_LOG_LEVEL:
		return set_log_level(r, name, value);
	case KEY_ADDRESS:
		return set_address(r, name, value);
	case KEY_RDT_PORT:
		return set_port(r, name, value);
	case KEY_PORTALS:
		return add_portals(r, name, value);
	case KEY_METRICS:
		r->metrics_line = r->line;
		return set_text(r, r->metrics, sizeof(r->metrics), name, value);
	case KEY_ARENA:
		return set_size(r, &c->arena, 64ull << 20, 1ull << 40, name,
				value);
	case KEY_PAGE_CACHE:
		return set_size(r, &c->page_cache, 4ull << 20, 1ull << 40, name,
				value);
	}
	return 0;
}

static int on_key(void *arg, const char *section, const char *name,
		  const char *value)
{
	struct reading *r = arg;

	if (r->failed)
		return 0;
	if (section[0] == '\0')
		return refuse(r, "'%s' stands before any [section]", name);
	if (!section_known(section))
		return refuse(r, "unknown section [%s]", section);
	for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
		if (strcmp(keys[i].section, section) != 0 ||
		    strcmp(keys[i].name, name) != 0)
			continue;
		if (r->seen & 1ull << i && i != KEY_PORTALS)
			return refuse(r, "%s is given twice", name);
		r->seen |= 1ull << i;
		return key_set(r, (enum key)i, name, value);
	}
	return refuse(r, "unknown key '%s' in [%s]", name, section);
}

/* libinih cuts off a comment of ';', and would take one of '#' for the value's. */
static bool has_note(const char *line, const char *end)
{
	for (const char *c = line; c + 1 < end; c++)
		if (isspace((unsigned char)c[0]) &&
		    (c[1] == '#' || c[1] == ';'))
			return c[1] == '#';
	return false;
}

/* libinih looks at nothing behind the ']'. */
static bool section_check(struct reading *r, const char *line)
{
	char section[32] = "";
	size_t n = strcspn(line + 1, "]\n");
	const char *behind = line + n + 2;

	if (line[1 + n] != ']') {
		refuse(r, "a section without its ']'");
		return false;
	}
	snprintf(section, sizeof(section), "%.*s",
		 (int)MIN(n, sizeof(section) - 1), line + 1);
	behind += strspn(behind, " \t\r");
	if (!section_known(section))
		refuse(r, "unknown section [%s]", section);
	else if (*behind != '\0' && *behind != '\n' && *behind != ';')
		refuse(r,
		       "something stands behind [%s]: give it a line of its "
		       "own",
		       section);
	return !r->failed;
}

/* libinih asks for the next line here, as fgets() would give it. */
static char *next_line(char *buf, int size, void *arg)
{
	struct reading *r = arg;
	size_t len = strcspn(r->at, "\n");
	const char *p = r->at + strspn(r->at, " \t");

	if (*r->at == '\0' || r->failed)
		return NULL;
	r->line++;
	if (len + 2 > (size_t)size) {
		refuse(r, "the line is longer than %d characters", size - 2);
		return NULL;
	}
	if (p > r->at && p < r->at + len && *p != '#' && *p != ';' &&
	    *p != '\r') {
		refuse(r, "a line that begins with a blank; another line "
			  "'portals' adds to the list");
		return NULL;
	}
	if (*p != '#' && *p != ';' && has_note(p, r->at + len)) {
		refuse(r, "a comment of # behind a value: give it a line of "
			  "its own");
		return NULL;
	}
	if (*p == '[' && !section_check(r, p))
		return NULL;
	memcpy(buf, r->at, len);
	buf[len] = '\n';
	buf[len + 1] = '\0';
	r->at += len + (r->at[len] == '\n');
	return buf;
}

/* ---- addresses ---- */

/* The name of an interface, as the kernel takes it. */
static bool zone_ok(const char *zone)
{
	size_t len = strlen(zone);

	for (const char *p = zone; *p != '\0'; p++)
		if (!isgraph((unsigned char)*p) || strchr("/:%]", *p) != NULL)
			return false;
	return len > 0 && len < IF_NAMESIZE;
}

/*
 * What reads as ADDR:PORT, without brackets, and is an IPv6 address all the same.
 * Hosts have small numbers.
 */
static unsigned port_meant(const char *host, char *out, size_t len)
{
	const char *colon = strrchr(host, ':');
	char before[INET6_ADDRSTRLEN];
	struct in6_addr address;
	uint64_t n;

	if (colon == NULL || inet_pton(AF_INET6, host, &address) != 1 ||
	    number_parse(colon + 1, 1000, 65535, &n) < 0)
		return 0;
	/* "::3260" is ":::3260" with a colon lost. */
	snprintf(before, sizeof(before), "%.*s%s", (int)(colon - host), host,
		 colon == host + 1 ? ":" : "");
	if (inet_pton(AF_INET6, before, &address) != 1)
		return 0;
	snprintf(out, len, "[%s]:%u", before, (unsigned)n);
	return (unsigned)n;
}

int config_portal_parse(const char *text, uint16_t port,
			struct config_portal *out)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)&out->address;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&out->address;
	const char *colon = strrchr(text, ':'), *end = NULL;
	char host[64], plain[INET6_ADDRSTRLEN], *zone;
	bool bare = text[0] != '[';
	unsigned meant = 0;
	uint64_t n = port;
	size_t len;

	memset(out, 0, sizeof(*out));
	if (text[0] == '[') {
		end = strchr(++text, ']');
		if (end == NULL || (end[1] != '\0' && end[1] != ':'))
			return -EINVAL;
		colon = end[1] == ':' ? end + 1 : NULL;
	} else if (colon != NULL && strchr(text, ':') != colon) {
		colon = NULL; /* a bare IPv6 address */
	}
	if (end == NULL)
		end = colon != NULL ? colon : text + strlen(text);
	len = (size_t)(end - text);
	if (len == 0 || len >= sizeof(host))
		return -EINVAL;
	memcpy(host, text, len);
	host[len] = '\0';
	if (colon != NULL && number_parse(colon + 1, 1, 65535, &n) < 0)
		return -EINVAL;
	if (inet_pton(AF_INET, host, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)n);
		snprintf(out->text, sizeof(out->text), "%.40s:%u", host,
			 (unsigned)n);
		return 0;
	}
	if (bare)
		meant = port_meant(host, out->meant, sizeof(out->meant));
	if (meant != 0 && meant == port)
		return -ENOTUNIQ;
	zone = strchr(host, '%'); /* fe80::1%eth0 */
	if (zone != NULL)
		*zone++ = '\0';
	if (zone != NULL && !zone_ok(zone))
		return -EINVAL;
	if (inet_pton(AF_INET6, host, &v6->sin6_addr) != 1)
		return -EINVAL;
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons((uint16_t)n);
	if (zone != NULL)
		strcpy(out->zone, zone);
	/* It has several forms; sessions show this one. */
	inet_ntop(AF_INET6, &v6->sin6_addr, plain, sizeof(plain));
	snprintf(out->text, sizeof(out->text), "[%.39s%s%s]:%u", plain,
		 zone != NULL ? "%" : "", out->zone, (unsigned)n);
	return 0;
}

int config_portal_address(const struct config_portal *portal,
			  struct sockaddr_storage *out)
{
	unsigned number = 0;

	*out = portal->address;
	if (portal->zone[0] == '\0')
		return 0;
	number = if_nametoindex(portal->zone);
	((struct sockaddr_in6 *)out)->sin6_scope_id = number;
	return number != 0 ? 0 : -ENODEV;
}

/* Both cannot be had, whichever is there first: metrics in IPv6 take "::" for all. */
static bool beside(struct config_portal *metrics, struct config_portal *portal)
{
	bool v6 = metrics->address.ss_family == AF_INET6;
	bool same = metrics->address.ss_family == portal->address.ss_family;

	if (*address_port(&metrics->address) != *address_port(&portal->address))
		return true;
	return strcmp(metrics->text, portal->text) != 0 &&
	       !(address_any(&metrics->address) && (same || v6)) &&
	       !(address_any(&portal->address) && same);
}

static int metrics_set(struct reading *r)
{
	struct config *c = r->conf;

	r->line = r->metrics_line;
	if (r->metrics[0] == '\0' || strcmp(r->metrics, "off") == 0)
		return 1;
	if (config_portal_parse(r->metrics, 0, &c->metrics) < 0 ||
	    strcmp(strrchr(c->metrics.text, ':'), ":0") == 0)
		return refuse(r, "metrics = %s: 'off' or ADDR:PORT",
			      r->metrics);
	for (unsigned i = 0; i < c->portals_count; i++)
		if (!beside(&c->metrics, &c->portals[i]))
			return refuse(r,
				      "metrics = %s: the portal %s has that "
				      "port: give it another one",
				      r->metrics, c->portals[i].text);
	return 1;
}

/* ---- the whole ---- */

static void defaults(struct config *c)
{
	memset(c, 0, sizeof(*c));
	if (gethostname(c->name, sizeof(c->name) - 1) < 0 || c->name[0] == '\0')
		strcpy(c->name, "node");
	strcpy(c->data_dir, "/var/lib/basalt");
	strcpy(c->run_dir, "/run/basalt");
	strcpy(c->log_level, "info");
	strcpy(c->address, "0.0.0.0");
	c->rdt_port = 7400;
	c->spin_us = 100;
	c->arena = 256ull << 20;
	c->page_cache = 64ull << 20;
}

int config_parse(const char *name, const char *text, struct config *out,
		 char *why, size_t why_len)
{
	struct reading r = { .conf = out,
			     .name = name,
			     .at = text,
			     .why = why,
			     .why_len = why_len };
	int rv;

	defaults(out);
	rv = ini_parse_stream(next_line, &r, on_key, &r);
	if (rv > 0 && !r.failed) {
		r.line = (unsigned)rv;
		refuse(&r, "neither a [section] nor KEY = VALUE");
	}
	if (rv < 0 && !r.failed)
		refuse(&r, "cannot be read");
	if (!r.failed && out->portals_count == 0)
		portal_add(&r, out->address);
	if (!r.failed)
		metrics_set(&r);
	return r.failed ? -EINVAL : 0;
}

int config_load(const char *path, struct config *out, char *why, size_t why_len)
{
	FILE *f = fopen(path, "re");
	char *text;
	size_t n;
	int rv;

	if (f == NULL) {
		rv = -errno;
		snprintf(why, why_len, "%s: %s%s", path, strerror(-rv),
			 rv == -ENOENT ? ": an empty one will do; "
					 "basalt.conf.example shows what can "
					 "be set"
				       : "");
		return rv;
	}
	text = calloc(1, CONFIG_BYTES_MAX + 1);
	if (text == NULL) {
		fclose(f);
		return -ENOMEM;
	}
	n = fread(text, 1, CONFIG_BYTES_MAX, f);
	if (ferror(f) || n == CONFIG_BYTES_MAX || strlen(text) != n) {
		snprintf(why, why_len,
			 "%s: not a configuration file: unreadable, over %u "
			 "bytes, or with NUL bytes in it",
			 path, CONFIG_BYTES_MAX - 1);
		rv = -EINVAL;
	} else {
		rv = config_parse(path, text, out, why, why_len);
	}
	fclose(f);
	free(text);
	return rv;
}

int config_log_level_apply(const char *text)
{
	char copy[128], *list = copy, *item;

	if (strlen(text) >= sizeof(copy))
		return -EINVAL;
	strcpy(copy, text);
	while ((item = strsep(&list, ",")) != NULL) {
		char *level = strchr(item, '=');
		int rv;

		if (level != NULL)
			*level++ = '\0';
		rv = level != NULL ? log_level_set(item, level)
				   : log_level_set("all", item);
		if (rv < 0)
			return rv;
	}
	return 0;
}
