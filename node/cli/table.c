/* table: every command of basalt, with its options and how its request is filled. */
#include "base/size.h"
#include "base/util.h"
#include "node/cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- requests ---- */

#define FILL_NOTHING(fn, CASE, field)                                          \
	static int fn(struct cli_call *c)                                      \
	{                                                                      \
		admin__nothing__init(&c->body.nothing);                        \
		c->request.command_case = ADMIN__REQUEST__COMMAND_##CASE;      \
		c->request.field = &c->body.nothing;                           \
		return CLI_DONE;                                               \
	}

FILL_NOTHING(cluster_status, CLUSTER_STATUS, cluster_status)
FILL_NOTHING(cluster_backup, CLUSTER_BACKUP, cluster_backup)
FILL_NOTHING(disk_list, DISK_LIST, disk_list)
FILL_NOTHING(policy_list, POLICY_LIST, policy_list)
FILL_NOTHING(vdisk_list, VDISK_LIST, vdisk_list)
FILL_NOTHING(target_list, TARGET_LIST, target_list)
FILL_NOTHING(session_list, SESSION_LIST, session_list)
FILL_NOTHING(portal_list, PORTAL_LIST, portal_list)
FILL_NOTHING(health, HEALTH, health)
FILL_NOTHING(metrics, METRICS, metrics)

#define FILL_NAME(fn, CASE, field)                                             \
	static int fn(struct cli_call *c)                                      \
	{                                                                      \
		admin__name__init(&c->body.name);                              \
		c->body.name.name = c->args[0];                                \
		c->body.name.force = cli_has(c, "force");                      \
		c->request.command_case = ADMIN__REQUEST__COMMAND_##CASE;      \
		c->request.field = &c->body.name;                              \
		return CLI_DONE;                                               \
	}

FILL_NAME(policy_show, POLICY_SHOW, policy_show)
FILL_NAME(policy_delete, POLICY_DELETE, policy_delete)
FILL_NAME(vdisk_show, VDISK_SHOW, vdisk_show)
FILL_NAME(vdisk_delete_fill, VDISK_DELETE, vdisk_delete)
FILL_NAME(target_show, TARGET_SHOW, target_show)
FILL_NAME(target_delete_fill, TARGET_DELETE, target_delete)
FILL_NAME(object_show, OBJECT_SHOW, object_show)
FILL_NAME(object_drop_fill, OBJECT_DROP, object_drop)
FILL_NAME(object_accept_fill, OBJECT_ACCEPT, object_accept)

static int vdisk_delete(struct cli_call *c)
{
	vdisk_delete_fill(c);
	return cli_confirm(c, "virtual disk", c->args[0]);
}

static int target_delete(struct cli_call *c)
{
	target_delete_fill(c);
	return cli_confirm(c, "target", c->args[0]);
}

static int object_drop(struct cli_call *c)
{
	object_drop_fill(c);
	return cli_confirm(c, "object", c->args[0]);
}

static int object_accept(struct cli_call *c)
{
	object_accept_fill(c);
	return cli_confirm(c, "object", c->args[0]);
}

/* Point the request at @member of the body. */
#define BODY(c, CASE, field, type)                                             \
	(admin__##type##__init(&(c)->body.field),                              \
	 (c)->request.command_case = ADMIN__REQUEST__COMMAND_##CASE,           \
	 (c)->request.field = &(c)->body.field, &(c)->body.field)

static int cluster_init(struct cli_call *c)
{
	Admin__ClusterInit *m =
		BODY(c, CLUSTER_INIT, cluster_init, cluster_init);

	m->name = (char *)cli_option(c, "name");
	return m->name != NULL ? CLI_DONE
			       : cli_usage(c, "--name NAME is missing");
}

/* The daemon's directory is another than ours. */
static int path_whole(struct cli_call *c, const char *path)
{
	char dir[2048];

	while (strncmp(path, "./", 2) == 0)
		path += strspn(path + 1, "/") + 1;
	if (path[0] == '/')
		snprintf(c->path, sizeof(c->path), "%.2000s", path);
	else if (getcwd(dir, sizeof(dir)) != NULL)
		snprintf(c->path, sizeof(c->path), "%s/%.2000s", dir, path);
	else
		return cli_refuse(c, "the current folder is not there any more",
				  "Give an absolute path.", -ENOENT);
	return CLI_DONE;
}

/*
 * A disk that is there: its path, which may begin in this folder as it may for
 * disk add, or else its id or the beginning of that.
 */
static int disk_named(struct cli_call *c, char **out)
{
	char *word = c->args[0];
	bool is_id = word[strspn(word, "0123456789abcdefABCDEF-")] == '\0';

	*out = word;
	if (word[0] == '/' || is_id ||
	    (strchr(word, '/') == NULL && access(word, F_OK) < 0))
		return CLI_DONE;
	*out = c->path;
	return path_whole(c, word);
}

static int disk_add(struct cli_call *c)
{
	Admin__DiskAdd *m = BODY(c, DISK_ADD, disk_add, disk_add);

	if (path_whole(c, c->args[0]) != CLI_DONE)
		return CLI_REFUSED;
	m->path = c->path;
	m->force_erase = cli_has(c, "force-erase");
	if (cli_size(c, "size", &m->size_bytes) != 0)
		return CLI_USAGE;
	return cli_confirm(c, "disk", c->args[0]);
}

static int disk_remove(struct cli_call *c)
{
	Admin__DiskRemove *m = BODY(c, DISK_REMOVE, disk_remove, disk_remove);

	m->force = cli_has(c, "force");
	if (disk_named(c, &m->disk) != CLI_DONE)
		return CLI_REFUSED;
	return cli_confirm(c, "disk", c->args[0]);
}

/* How many are too many is the daemon's to say. */
static int scrub_every(struct cli_call *c, const char *every, uint32_t *days)
{
	uint64_t n;

	if (strcmp(every, "off") == 0)
		return CLI_DONE;
	if (number_parse(every, 1, UINT64_MAX, &n) < 0)
		return cli_usage(c, "--every %s: a number of days, or off",
				 every);
	*days = (uint32_t)MIN(n, UINT32_MAX);
	return CLI_DONE;
}

static int disk_scrub(struct cli_call *c)
{
	Admin__DiskScrub *m = BODY(c, DISK_SCRUB, disk_scrub, disk_scrub);
	const char *every = cli_option(c, "every");

	m->stop = cli_has(c, "stop");
	m->every = every != NULL;
	if (m->every && (c->args_count > 0 || m->stop))
		return cli_usage(c, "--every holds for all disks: it is given "
				    "alone");
	if (m->every)
		return scrub_every(c, every, &m->days);
	if (c->args_count == 0)
		return cli_usage(c, "a word is missing: DISK");
	return disk_named(c, &m->disk);
}

static int disk_rebuild(struct cli_call *c)
{
	Admin__DiskRebuild *m =
		BODY(c, DISK_REBUILD, disk_rebuild, disk_rebuild);

	m->force = cli_has(c, "force");
	m->lose_unreadable = cli_has(c, "lose-unreadable");
	if (disk_named(c, &m->disk) != CLI_DONE)
		return CLI_REFUSED;
	return cli_confirm(c, "disk", c->args[0]);
}

static int disk_retry(struct cli_call *c)
{
	Admin__DiskRetry *m = BODY(c, DISK_RETRY, disk_retry, disk_retry);

	m->lose_unreadable = cli_has(c, "lose-unreadable");
	if (disk_named(c, &m->name) != CLI_DONE)
		return CLI_REFUSED;
	return cli_confirm(c, "disk", c->args[0]);
}

static int policy_create(struct cli_call *c)
{
	Admin__Policy *m = &c->body.policy;
	uint32_t iops = 0;
	int rv;

	admin__policy__init(m);
	c->request.command_case = ADMIN__REQUEST__COMMAND_POLICY_CREATE;
	c->request.policy_create = m;
	m->name = c->args[0];
	if (cli_has(c, "method"))
		m->method = (char *)cli_option(c, "method");
	m->force_provision = cli_has(c, "force-provision");
	rv = cli_number(c, "ftt", 3, &m->ftt);
	if (rv == 0)
		rv = cli_number(c, "stripe-width", 12, &m->stripe_width);
	if (rv == 0 && cli_has(c, "stripe-width") && m->stripe_width == 0)
		rv = cli_usage(c, "--stripe-width 0: at least 1");
	if (rv == 0)
		rv = cli_number(c, "reserve", 100, &m->reserve_percent);
	if (rv == 0)
		rv = cli_number(c, "iops-limit", UINT32_MAX, &iops);
	m->iops_limit = iops;
	return rv;
}

static int policy_set(struct cli_call *c)
{
	Admin__PolicySet *m = BODY(c, POLICY_SET, policy_set, policy_set);
	uint32_t iops = 0;
	int rv;

	m->name = c->args[0];
	if (!cli_has(c, "iops-limit"))
		return cli_usage(c, "--iops-limit N is missing");
	rv = cli_number(c, "iops-limit", UINT32_MAX, &iops);
	m->iops_limit = iops;
	return rv;
}

static int access_fill(struct cli_call *c, Admin__Access **out)
{
	Admin__Access *a = &c->access;

	admin__access__init(a);
	a->allow = c->allow;
	a->n_allow = cli_options(c, "allow", c->allow);
	if (cli_has(c, "chap"))
		a->chap_user = (char *)cli_option(c, "chap");
	if (cli_has(c, "mutual-chap"))
		a->mutual_user = (char *)cli_option(c, "mutual-chap");
	*out = a;
	return cli_secrets(c);
}

static int vdisk_create(struct cli_call *c)
{
	Admin__VdiskCreate *m =
		BODY(c, VDISK_CREATE, vdisk_create, vdisk_create);
	int rv;

	m->name = c->args[0];
	m->export = cli_has(c, "export");
	if (cli_has(c, "policy"))
		m->policy = (char *)cli_option(c, "policy");
	if (!cli_has(c, "size"))
		return cli_usage(c, "--size SIZE is missing");
	rv = cli_size(c, "size", &m->size_bytes);
	if (rv == 0)
		rv = cli_number(c, "block-size", 4096, &m->block_bytes);
	if (rv == 0 && !m->export &&
	    (cli_has(c, "allow") || cli_has(c, "chap") ||
	     cli_has(c, "chap-secret-file") || cli_has(c, "mutual-chap") ||
	     cli_has(c, "mutual-secret-file")))
		return cli_usage(c, "--allow and CHAP need --export");
	return rv == 0 && m->export ? access_fill(c, &m->access) : rv;
}

static int vdisk_resize(struct cli_call *c)
{
	Admin__VdiskResize *m =
		BODY(c, VDISK_RESIZE, vdisk_resize, vdisk_resize);

	m->name = c->args[0];
	m->force = cli_has(c, "force");
	if (cli_size_of(c, "SIZE", c->args[1], &m->size_bytes) != 0)
		return CLI_USAGE;
	return cli_confirm(c, "virtual disk", c->args[0]);
}

static int vdisk_set(struct cli_call *c)
{
	Admin__VdiskSet *m = BODY(c, VDISK_SET, vdisk_set, vdisk_set);

	m->name = c->args[0];
	if (cli_has(c, "policy") == cli_has(c, "no-policy"))
		return cli_usage(c, "either --policy P or --no-policy");
	if (cli_has(c, "policy"))
		m->policy = (char *)cli_option(c, "policy");
	return CLI_DONE;
}

static int vdisk_rename(struct cli_call *c)
{
	Admin__VdiskRename *m =
		BODY(c, VDISK_RENAME, vdisk_rename, vdisk_rename);

	m->name = c->args[0];
	m->new_name = c->args[1];
	return CLI_DONE;
}

static int target_create(struct cli_call *c)
{
	Admin__TargetCreate *m =
		BODY(c, TARGET_CREATE, target_create, target_create);

	m->name = c->args[0];
	if (cli_has(c, "iqn"))
		m->iqn = (char *)cli_option(c, "iqn");
	return access_fill(c, &m->access);
}

/* What is refused before a secret is asked for. */
static int target_set_check(struct cli_call *c, const Admin__TargetSet *m)
{
	static const char *const apart[][2] = {
		{ "chap", "no-chap" },
		{ "mutual-chap", "no-chap" },
		{ "mutual-chap", "no-mutual-chap" },
	};
	size_t allowed = cli_options(c, "allow", c->allow);

	for (size_t i = 0; i < ARRAY_LEN(apart); i++)
		if (cli_has(c, apart[i][0]) && cli_has(c, apart[i][1]))
			return cli_usage(
				c, "--%s and --%s together: give one of them",
				apart[i][0], apart[i][1]);
	for (size_t i = 0; i < allowed; i++)
		for (size_t k = 0; k < m->n_deny; k++)
			if (strcmp(c->allow[i], m->deny[k]) == 0)
				return cli_usage(c,
						 "--allow and --deny of %s "
						 "together: give one of them",
						 m->deny[k]);
	if (c->given_count == 0)
		return cli_usage(c, "nothing to change was given");
	return CLI_DONE;
}

static int target_set(struct cli_call *c)
{
	Admin__TargetSet *m = BODY(c, TARGET_SET, target_set, target_set);

	m->name = c->args[0];
	m->deny = c->deny;
	m->n_deny = cli_options(c, "deny", c->deny);
	m->no_chap = cli_has(c, "no-chap");
	m->no_mutual_chap = cli_has(c, "no-mutual-chap");
	if (target_set_check(c, m) != CLI_DONE)
		return CLI_USAGE;
	return access_fill(c, &m->access);
}

static int lun_number(struct cli_call *c, const char *text, uint32_t *out)
{
	uint64_t n;

	if (number_parse(text, 0, 16383, &n) < 0)
		return cli_usage(c, "'%s' is no LUN: 0 to 16383", text);
	*out = (uint32_t)n;
	return CLI_DONE;
}

static int lun_add(struct cli_call *c)
{
	Admin__LunAdd *m = BODY(c, LUN_ADD, lun_add, lun_add);

	m->target = c->args[0];
	m->vdisk = c->args[1];
	m->read_only = cli_has(c, "read-only");
	m->lun_given = cli_has(c, "lun");
	return m->lun_given ? lun_number(c, cli_option(c, "lun"), &m->lun)
			    : CLI_DONE;
}

static int lun_list(struct cli_call *c)
{
	Admin__LunList *m = BODY(c, LUN_LIST, lun_list, lun_list);

	if (c->args_count > 0)
		m->target = c->args[0];
	return CLI_DONE;
}

static int lun_remove(struct cli_call *c)
{
	Admin__LunRemove *m = BODY(c, LUN_REMOVE, lun_remove, lun_remove);

	m->target = c->args[0];
	m->force = cli_has(c, "force");
	return lun_number(c, c->args[1], &m->lun);
}

static int session_drop(struct cli_call *c)
{
	Admin__SessionDrop *m =
		BODY(c, SESSION_DROP, session_drop, session_drop);

	if (number_parse(c->args[0], 0, UINT64_MAX, &m->id) < 0)
		return cli_usage(c, "'%s' is no session's number", c->args[0]);
	return CLI_DONE;
}

static int object_list(struct cli_call *c)
{
	Admin__ObjectList *m = BODY(c, OBJECT_LIST, object_list, object_list);

	m->unknown = cli_has(c, "unknown");
	return m->unknown ? CLI_DONE
			  : cli_usage(c, "--unknown is missing; basalt vdisk "
					 "list shows what is known");
}

static int portal_set(struct cli_call *c)
{
	Admin__PortalSet *m = BODY(c, PORTAL_SET, portal_set, portal_set);

	if (!cli_has(c, "transport"))
		return cli_usage(c, "--transport tcp, iser or both is missing");
	m->address = c->args[0];
	m->transport = (char *)cli_option(c, "transport");
	m->force = cli_has(c, "force");
	return CLI_DONE;
}

static int latency(struct cli_call *c)
{
	Admin__LatencyAsk *m = &c->body.latency;

	admin__latency_ask__init(m);
	m->seconds = 5;
	c->request.command_case = ADMIN__REQUEST__COMMAND_LATENCY;
	c->request.latency = m;
	return cli_number(c, "seconds", 3600, &m->seconds);
}

static int vdisk_stats(struct cli_call *c)
{
	Admin__VdiskStatsAsk *m =
		BODY(c, VDISK_STATS, vdisk_stats, vdisk_stats_ask);

	if (c->args_count > 0)
		m->name = c->args[0];
	m->seconds = 5;
	return cli_number(c, "seconds", 3600, &m->seconds);
}

static int events(struct cli_call *c)
{
	Admin__EventList *m = &c->body.events;

	admin__event_list__init(m);
	c->request.command_case = ADMIN__REQUEST__COMMAND_EVENTS;
	c->request.events = m;
	m->count = 50;
	return cli_number(c, "count", 1000, &m->count);
}

static int log_level(struct cli_call *c)
{
	Admin__LogLevel *m = BODY(c, LOG_LEVEL, log_level, log_level);

	if (c->args_count == 1)
		return cli_usage(c, "a room without a level");
	if (c->args_count == 2) {
		m->room = c->args[0];
		m->level = c->args[1];
	}
	return CLI_DONE;
}

/* ---- options ---- */

#define FORCE(text)                                                            \
	{                                                                      \
		"force", NULL, text, false                                     \
	}
#define LOSE_UNREADABLE                                                         \
	{                                                                       \
		"lose-unreadable", NULL,                                        \
			"what the device cannot read counts as lost, for good", \
			false                                                   \
	}
#define END                                                                    \
	{                                                                      \
		NULL, NULL, NULL, false                                        \
	}
#define ACCESS                                                                             \
	{ "allow", "IQN|any", "an initiator that may log in; may be repeated",             \
	  true },                                                                          \
		{ "chap", "USER", "ask initiators for CHAP with this user",                \
		  false },                                                                 \
		{ "chap-secret-file", "FILE",                                              \
		  "its secret is the file's first line ('-': standard input); "            \
		  "without: a prompt, or standard input's first line",                     \
		  false },                                                                 \
		{ "mutual-chap", "USER",                                                   \
		  "prove ourselves with this user, too", false },                          \
	{                                                                                  \
		"mutual-secret-file", "FILE",                                              \
			"that secret's file; without: a prompt, or standard input's next " \
			"line",                                                            \
			false                                                              \
	}

const struct cli_option cli_globals[] = {
	{ "socket", "PATH",
	  "the admin socket (or BASALT_SOCKET) instead of " CLI_SOCKET, false },
	{ "json", NULL, "print JSON, errors as well", false },
	{ "help", NULL, "print help and end", false },
	{ "version", NULL, "print the version and end", false },
	END
};

static const struct cli_option none[] = { END };
static const struct cli_option o_cluster_init[] = {
	{ "name", "NAME", "of the cluster", false }, END
};
static const struct cli_option o_disk_add[] = {
	{ "size", "SIZE", "make PATH a file of this size (4G, 512M)", false },
	{ "force-erase", NULL, "erase what is found there", false },
	END
};
static const struct cli_option o_disk_remove[] = {
	FORCE("remove it though virtual disks lose their data"), END
};
static const struct cli_option o_disk_scrub[] = {
	{ "stop", NULL, "call it off", false },
	{ "every", "DAYS", "when each disk of the cluster is due, or off",
	  false },
	END
};
static const struct cli_option o_disk_rebuild[] = {
	FORCE("even under sessions, or though older data comes back"),
	LOSE_UNREADABLE, END
};
static const struct cli_option o_disk_retry[] = { LOSE_UNREADABLE, END };
static const struct cli_option o_policy_create[] = {
	{ "ftt", "N", "failures to tolerate, 0 to 3 (0)", false },
	{ "method", "mirror|raid5|raid6", "how (mirror)", false },
	{ "stripe-width", "N", "disks a copy is striped over (1)", false },
	{ "reserve", "PCT",
	  "of the size to keep free for it on its disks, whatever others "
	  "write; 100: thick (0)",
	  false },
	{ "iops-limit", "N", "commands a second (0: none)", false },
	{ "force-provision", NULL,
	  "place what can be had, and report the "
	  "rest as not compliant",
	  false },
	END
};
static const struct cli_option o_vdisk_create[] = {
	{ "size", "SIZE", "10G, 512M; needed", false },
	{ "policy", "P", "placed by this policy (one copy)", false },
	{ "block-size", "512|4096", "logical blocks (512)", false },
	{ "export", NULL, "make a target of its name, with it as LUN 0",
	  false },
	ACCESS,
	END
};
static const struct cli_option o_policy_set[] = {
	{ "iops-limit", "N", "commands a second (0: none)", false }, END
};
static const struct cli_option o_vdisk_set[] = {
	{ "policy", "P", "the one that it has from now on", false },
	{ "no-policy", NULL, "none: one copy, thin, no limit", false },
	END
};
static const struct cli_option o_vdisk_resize[] = {
	FORCE("shrink it under sessions and cut data off"), END
};
static const struct cli_option o_vdisk_delete[] = {
	FORCE("delete it with its data and under sessions"), END
};
static const struct cli_option o_target_create[] = {
	{ "iqn", "IQN", "its iSCSI name (iqn.2026-11.internal.basalt:NAME)",
	  false },
	ACCESS,
	END
};
static const struct cli_option o_target_set[] = {
	ACCESS,
	{ "deny", "IQN", "take it off the list; may be repeated", true },
	{ "no-chap", NULL, "ask for CHAP no more", false },
	{ "no-mutual-chap", NULL, "prove ourselves no more", false },
	END
};
static const struct cli_option o_target_delete[] = { FORCE("drop its sessions"),
						     END };
static const struct cli_option o_lun_add[] = {
	{ "lun", "N", "its number (the lowest free one)", false },
	{ "read-only", NULL, "refuse writes", false },
	END
};
static const struct cli_option o_lun_remove[] = { FORCE("under sessions"),
						  END };
static const struct cli_option o_portal_set[] = {
	{ "transport", "tcp|iser|both", "what it serves", false },
	FORCE("though sessions end, or nothing serves iSER"),
	END
};
static const struct cli_option o_object_list[] = {
	{ "unknown", NULL,
	  "components that the directory does not know, or whose object it "
	  "knows with an older layout only",
	  false },
	END
};
static const struct cli_option o_object_drop[] = {
	FORCE("delete them; without: say what would be deleted"), END
};
static const struct cli_option o_object_accept[] = {
	FORCE("do it; without: say what would be cut off"), END
};
static const struct cli_option o_events[] = {
	{ "count", "N", "the newest N (50); 0: all that are kept", false }, END
};

static const struct cli_option o_config_apply[] = {
	{ "dry-run", NULL, "say what would be changed, and change nothing",
	  false },
	{ "prune", NULL,
	  "take away targets, LUNs and policies that the file does not have",
	  false },
	{ "secrets", NULL,
	  "set the secrets of CHAP anew, also where the user is as it was",
	  false },
	FORCE("also where sessions end by it"),
	END
};

static const struct cli_option o_vdisk_stats[] = {
	{ "seconds", "N",
	  "watch for so long (5); 0: what was since they are exported", false },
	END
};

static const struct cli_option o_health[] = {
	{ "fail-on", "warning|bad",
	  "end with 1 where a check is at that level, or worse", false },
	END
};

static const struct cli_option o_latency[] = {
	{ "seconds", "N", "watch for so long (5); 0: what was since the start",
	  false },
	END
};

static const struct cli_option o_support[] = {
	{ "log", "FILE", "basaltd's log, where it is not found by itself",
	  false },
	{ "config", "FILE", "its configuration (/etc/basalt/basalt.conf)",
	  false },
	END
};

/* ---- what takes more words ---- */

static const char latency_more[] =
	"A request is a read or a write; the stages below those two are parts of them,\n"
	"and where a request takes long one of them says where.  Nothing is known of a\n"
	"single request: p99 of one stage need not be that of the next.  Times are read\n"
	"from buckets and right within a third.\n";

static const char policy_set_more[] =
	"Another limit holds at once for each virtual disk of the policy, those in\n"
	"use included.  To slow down one of them, give it a policy of its own by\n"
	"basalt vdisk set.";

static const char vdisk_set_more[] =
	"The limit of the new policy holds at once.  Its data stays where it is: a\n"
	"policy that it does not do for is refused, unless that has\n"
	"--force-provision; so is one that reserves more, if a disk of it does not\n"
	"have the room for that.  What the new one does not reserve is free for\n"
	"others.";

static const char vdisk_stats_more[] =
	"Those that keep the node most busy come first; what did nothing is counted\n"
	"only, but for --json.  Times are from a command to its answer; P99 is right\n"
	"within a third.  LOAD: how many reads and writes were under way on average.\n"
	"FAILED: reads, writes and unmaps that ended with not ready, a medium error,\n"
	"no space, out of time or BUSY.  basalt latency tells where the time goes.";

static const char session_list_more[] =
	"A node with several shards says in SHARD which of them serves a session.\n"
	"All sessions of a target are on one, that of its first LUN's object.";

static const char target_set_more[] =
	"Sessions that the change shuts out end at once: those of an initiator that\n"
	"is not admitted any more, and all of them where another user or secret of\n"
	"CHAP is set.";

static const char backup_more[] =
	"Makes data_dir's backup/ anew: the directory as it is now, this node's id\n"
	"and the cluster's key, all that the disks themselves do not hold.  Keep a\n"
	"copy of it elsewhere; who has it has the key.  To put it back: with basaltd\n"
	"stopped, move away what data_dir has under these names, then copy it there.\n"
	"The indexes of disks that went with data_dir are made anew by basalt disk\n"
	"rebuild.";

static const char health_more[] =
	"What the checks find does not change the exit status, unless --fail-on asks\n"
	"for that: for a monitor or a script.  It is 1 as well where basaltd does not\n"
	"answer.";

static const char disks_more[] =
	"HEALTH is a warning, and the line below the table says why, where one is\n"
	"full, lacks room that it promised, lost something before it was opened, or\n"
	"has failed reads since.\n"
	"STATE is adding for a disk that is open, but not in the directory yet: the\n"
	"line below the table says what it waits for.";

static const char remove_more[] =
	"By force it goes in two steps.  If basaltd ends between them, or no answer\n"
	"came, basalt health and basalt disk list say so, and the same command goes\n"
	"on with it.  Or basalt disk retry calls it off: the disk stays with all that\n"
	"is on it.";

static const char retry_more[] =
	"DISK: its id, the beginning of that, or its path, as basalt disk list shows\n"
	"them.  Other disks and their sessions go on.  The virtual disks on it come\n"
	"back without a new login of their initiators.  What could not be opened is\n"
	"tried again by itself where that can help: what is missing, cut short or an\n"
	"older copy is looked for every 10 s, the rest after pauses of up to 5 min.\n"
	"A disk that failed in service comes back by this command, or when basaltd\n"
	"is restarted, and never by itself.";

static const char scrub_more[] =
	"DISK: its id, the beginning of that, or its path.  In the background, one\n"
	"request at a time, and at half speed while others use the disk; basalt disk\n"
	"list tells how far it is, and which blocks of which virtual disks were not\n"
	"what was written.  A disk is scrubbed of itself 30 days after it was added\n"
	"or scrubbed last, or as many as --every says, which is kept for the whole\n"
	"cluster; one disk of a node at a time.  basalt events has the outcomes.";

static const char list_more[] =
	"After the directory was put back from a backup, the disks may hold more\n"
	"than it knows.  That is left alone: a newer copy of data_dir's directory/\n"
	"makes it known again, with basaltd stopped.  Where there is none, basalt\n"
	"object drop and basalt object accept decide, object by object.";

static const char drop_more[] =
	"Deletes the components on this node's disks of an object that the\n"
	"directory does not know (OBJECT: its id, from basalt object list\n"
	"--unknown), for good: no copy of the directory brings them back.  Refused\n"
	"if the directory knows the object by then.  A disk that is away keeps\n"
	"what it has of it; repeat the command when it is back.";

static const char accept_more[] =
	"An object of which the directory has an older layout than its components\n"
	"stays closed, as opening it destroys what the older layout does not show.\n"
	"This opens it, with the size and layout that the directory has.  What was\n"
	"written in that range is there as it was written last.  What lies behind\n"
	"is cut off for good: a virtual disk that had grown since the backup loses\n"
	"what was written beyond its size at the time.  What was shrunk and grown\n"
	"again since reads as zeros there.  A newer copy of the directory is of no\n"
	"use to the object any more.\n"
	"Refused unless each component that the layout names is there, the same\n"
	"one, and not smaller than the layout has it: an object that shrank since\n"
	"the backup can only be deleted (basalt vdisk delete --force).";

static const char config_show_more[] =
	"Prints policies, virtual disks, targets with their LUNs and who may log in,\n"
	"what portals serve and how often disks are scrubbed: a file for basalt\n"
	"config apply, here or on another node.  Neither data nor secrets are in it.";

static const char config_apply_more[] =
	"FILE ('-': standard input) is JSON as basalt config show prints it.  What it\n"
	"has is made, or changed to be so; what is so already is left alone, so the\n"
	"same file can be applied again.  Keys may be left out: what they stand for\n"
	"stays as it is, or gets the default of the command that makes it.  Whom a\n"
	"target admits (allow) is as in the file, and no one else.  What the file does\n"
	"not have stays, and is named; --prune takes it away, of the sections that\n"
	"the file has.  Virtual disks are never deleted nor shrunk.\n"
	"All is checked first, and nothing is done if a part of it cannot be.  It\n"
	"stops at the first change that is refused; the same command goes on.\n"
	"Where chap_user is set for a target, chap_secret_file names a file whose\n"
	"first line is the secret (from FILE's folder), and mutual_secret_file that\n"
	"of mutual_user.";

static const char support_more[] =
	"FILE: basalt-support-HOST-YYYYMMDD-HHMMSS.tar.gz in the current folder; one\n"
	"that is there is not overwritten.  For who helps: status, health, lists,\n"
	"events, latencies and counters, as JSON and for people; the end of basaltd's\n"
	"log, and its configuration, as a file and by config show; what the machine\n"
	"says of its disks, its network, basaltd's process and its unit.  index.txt\n"
	"tells what each file is.\n"
	"It is of use also where basaltd does not run, or hangs: what cannot be had,\n"
	"or does not come in time, is left out, and is told with its reason.  Where\n"
	"nothing came of basaltd itself the status is 1; the rest is written.\n"
	"Secrets of CHAP and the cluster's key are not in it, but names, addresses\n"
	"and what is in the log.  The log is found where basaltd writes it to a file,\n"
	"where there is a basaltd.log beside the socket, else in the journal.";

/* ---- the table ---- */

const struct cli_command cli_commands[] = {
	{ "cluster", "init", "", 0, 0, "found a cluster of this node",
	  o_cluster_init, cluster_init },
	{ "cluster", "status", "", 0, 0, "state, space, compliance and health",
	  none, cluster_status },
	{ "cluster", "backup", "", 0, 0,
	  "copy what must not be lost, while all goes on", none, cluster_backup,
	  backup_more },
	{ "disk", "add", "PATH", 1, 1,
	  "take a block device, or a file, into the pool", o_disk_add,
	  disk_add },
	{ "disk", "list", "", 0, 0, "disks with space, state and model", none,
	  disk_list, disks_more },
	{ "disk", "remove", "DISK", 1, 1,
	  "give a disk back (DISK: id, its beginning, or path)", o_disk_remove,
	  disk_remove, remove_more },
	{ "disk", "rebuild", "DISK", 1, 1,
	  "make a disk's index anew from its log, offline", o_disk_rebuild,
	  disk_rebuild },
	{ "disk", "retry", "DISK", 1, 1,
	  "open a disk again that is not open, or that failed in service",
	  o_disk_retry, disk_retry, retry_more },
	{ "disk", "scrub", "[DISK]", 0, 1,
	  "read a disk through, to find what has rotted", o_disk_scrub,
	  disk_scrub, scrub_more },
	{ "policy", "create", "NAME", 1, 1, "make a policy", o_policy_create,
	  policy_create },
	{ "policy", "list", "", 0, 0, "all policies", none, policy_list },
	{ "policy", "show", "NAME", 1, 1, "one policy", none, policy_show },
	{ "policy", "set", "NAME", 1, 1, "change its limit", o_policy_set,
	  policy_set, policy_set_more },
	{ "policy", "delete", "NAME", 1, 1, "delete a policy nobody uses", none,
	  policy_delete },
	{ "vdisk", "create", "NAME", 1, 1, "make a virtual disk",
	  o_vdisk_create, vdisk_create },
	{ "vdisk", "list", "", 0, 0, "virtual disks with space and health",
	  none, vdisk_list },
	{ "vdisk", "show", "NAME", 1, 1,
	  "one virtual disk, and how to attach it", none, vdisk_show },
	{ "vdisk", "stats", "[NAME]", 0, 1,
	  "what initiators do with them, the busiest first", o_vdisk_stats,
	  vdisk_stats, vdisk_stats_more },
	{ "vdisk", "resize", "NAME SIZE", 2, 2, "grow or shrink it online",
	  o_vdisk_resize, vdisk_resize },
	{ "vdisk", "set", "NAME", 1, 1, "give it another policy", o_vdisk_set,
	  vdisk_set, vdisk_set_more },
	{ "vdisk", "rename", "OLD NEW", 2, 2, "give it another name", none,
	  vdisk_rename },
	{ "vdisk", "delete", "NAME", 1, 1, "delete it", o_vdisk_delete,
	  vdisk_delete },
	{ "target", "create", "NAME", 1, 1, "make an iSCSI target",
	  o_target_create, target_create },
	{ "target", "set", "NAME", 1, 1, "change who may log in", o_target_set,
	  target_set, target_set_more },
	{ "target", "list", "", 0, 0, "all targets", none, target_list },
	{ "target", "show", "NAME", 1, 1, "one target", none, target_show },
	{ "target", "delete", "NAME", 1, 1, "delete it; its virtual disks stay",
	  o_target_delete, target_delete },
	{ "lun", "add", "TARGET VDISK", 2, 2, "export a virtual disk",
	  o_lun_add, lun_add },
	{ "lun", "list", "[TARGET]", 0, 1, "LUNs", none, lun_list },
	{ "lun", "remove", "TARGET LUN", 2, 2, "export it no more",
	  o_lun_remove, lun_remove },
	{ "session", "list", "", 0, 0, "who is logged in", none, session_list,
	  session_list_more },
	{ "session", "drop", "ID", 1, 1, "end a session", none, session_drop },
	{ "portal", "list", "", 0, 0, "addresses, and what they serve", none,
	  portal_list },
	{ "portal", "set", "ADDR:PORT", 1, 1, "serve it by TCP, iSER or both",
	  o_portal_set, portal_set },
	{ "object", "show", "VDISK", 1, 1,
	  "the tree of a virtual disk's object, and where it lies", none,
	  object_show },
	{ "object", "list", "", 0, 0, "what the directory is too old to know",
	  o_object_list, object_list, list_more },
	{ "object", "drop", "OBJECT", 1, 1,
	  "delete what the directory does not know of", o_object_drop,
	  object_drop, drop_more },
	{ "object", "accept", "OBJECT", 1, 1,
	  "open it with the older layout that the directory has",
	  o_object_accept, object_accept, accept_more },
	{ "config", "show", "", 0, 0, "all that is set, as a file of JSON",
	  none, NULL, config_show_more, cli_config_show },
	{ "config", "apply", "FILE", 1, 1, "make it as a file says",
	  o_config_apply, NULL, config_apply_more, cli_config_apply },
	{ "health", NULL, "", 0, 0, "named checks, each with cause and fix",
	  o_health, health, health_more },
	{ "metrics", NULL, "", 0, 0, "all counters, as Prometheus reads them",
	  none, metrics },
	{ "latency", NULL, "", 0, 0, "where requests spend their time",
	  o_latency, latency, latency_more },
	{ "events", NULL, "", 0, 0, "what changed, when, by whom", o_events,
	  events },
	{ "log", "level", "[ROOM LEVEL]", 0, 2,
	  "show, or set how much a room logs (ROOM: all, base, lsom, ...; "
	  "LEVEL: error, warn, info, debug)",
	  none, log_level },
	{ "support", NULL, "[FILE]", 0, 1,
	  "one file with what who helps needs to know", o_support, NULL,
	  support_more, cli_support },
};

const size_t cli_commands_count = ARRAY_LEN(cli_commands);
