/*
 * cli: the command line `basalt`.  It links proto and base only: all it knows of
 * a node comes over the admin socket.
 *
 * One table of commands (table.c) makes the parser, --help, the manual page and
 * the completion.
 */
#ifndef BASALT_NODE_CLI_CLI_H
#define BASALT_NODE_CLI_CLI_H

#include "proto/admin.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define CLI_VERSION "0.1.0"
#define CLI_SOCKET "/run/basalt/basalt.sock"
#define CLI_GIVEN_MAX 300u

/* Exit status, in scripts' hands: never another. */
enum { CLI_DONE = 0, CLI_REFUSED = 1, CLI_USAGE = 2 };

struct cli_option {
	/* arg NULL: a switch; "tcp|iser|both": one of these; NAME: any */
	const char *name, *arg, *help;
	bool repeat;
};

struct cli_call;

struct cli_command {
	const char *group, *verb; /* verb NULL: a command of one word */
	const char *args; /* "OLD NEW", for people */
	unsigned args_min, args_max;
	const char *help;
	const struct cli_option *options; /* ends with name NULL */
	/* Fill the request; CLI_DONE, or CLI_USAGE / CLI_REFUSED, said why. */
	int (*fill)(struct cli_call *call);
	const char *more; /* what else is to know, or NULL; lines of 76 */
	/* Instead of @fill, one request and its answer: all of it; its status. */
	int (*run)(struct cli_call *call);
};

struct cli_call {
	const struct cli_command *command;
	const char *group; /* of a command that there is not, or NULL */
	char *args[4];
	unsigned args_count;
	struct {
		const struct cli_option *option;
		const char *value;
	} given[CLI_GIVEN_MAX];
	unsigned given_count;
	bool json;
	const char *socket;
	unsigned patience_s; /* for the daemon; 0: as long as one may need */
	pid_t daemon; /* who listens on the socket, where a connection was had */
	Admin__Request request;
	/* memory of the request */
	union {
		Admin__Nothing nothing;
		Admin__Name name;
		Admin__ClusterInit cluster_init;
		Admin__DiskAdd disk_add;
		Admin__DiskRemove disk_remove;
		Admin__DiskRebuild disk_rebuild;
		Admin__DiskRetry disk_retry;
		Admin__DiskScrub disk_scrub;
		Admin__PortalSet portal_set;
		Admin__Policy policy;
		Admin__PolicySet policy_set;
		Admin__VdiskCreate vdisk_create;
		Admin__VdiskResize vdisk_resize;
		Admin__VdiskSet vdisk_set;
		Admin__VdiskRename vdisk_rename;
		Admin__TargetCreate target_create;
		Admin__TargetSet target_set;
		Admin__LunAdd lun_add;
		Admin__LunList lun_list;
		Admin__LunRemove lun_remove;
		Admin__SessionDrop session_drop;
		Admin__ObjectList object_list;
		Admin__EventList events;
		Admin__LatencyAsk latency;
		Admin__VdiskStatsAsk vdisk_stats;
		Admin__LogLevel log_level;
	} body;
	Admin__Access access;
	char *allow[CLI_GIVEN_MAX], *deny[CLI_GIVEN_MAX];
	char path[4096];
	uint8_t request_id[16];
	uint8_t secrets[2][512];
};

/* table.c */
extern const struct cli_command cli_commands[];
extern const struct cli_option cli_globals[];
extern const size_t cli_commands_count;

/* options.c */
const char *cli_option(const struct cli_call *call, const char *name);
bool cli_has(const struct cli_call *call, const char *name);
size_t cli_options(const struct cli_call *call, const char *name, char **out);
bool cli_is_choice(const struct cli_option *option);
/* Say what is wrong with the command line; CLI_USAGE. */
int cli_usage(const struct cli_call *call, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* 0, or CLI_USAGE: the option's value, left alone if it is not given. */
int cli_size(const struct cli_call *call, const char *name, uint64_t *out);
/* The same of a word that is there. */
int cli_size_of(const struct cli_call *call, const char *what, const char *text,
		uint64_t *out);
int cli_number(const struct cli_call *call, const char *name, uint64_t max,
	       uint32_t *out);
int cli_parse(int argc, char **argv, struct cli_call *call, int *status);

/* Verb NULL: commands of one word only.  NULL: there is none. */
const struct cli_command *cli_command_find(const char *group, const char *verb);

/* help.c */
void cli_help(void);
void cli_help_group(const char *group);
void cli_help_command(const struct cli_command *command);
void cli_man(void);
bool cli_group_known(const char *group);

/* complete.c */
void cli_complete(struct cli_call *call, int argc, char **argv);

/* secret.c */
int cli_secrets(struct cli_call *call);
/* The first line of a file; 0 bytes of it are none.  0, or what is wrong with it. */
int cli_secret_read(const char *path, uint8_t *out, size_t max, size_t *len);
const char *cli_secret_wrong(int status); /* -ENODATA: there is none */
/* By force, on a terminal: the name must be typed.  CLI_DONE to go on. */
int cli_confirm(struct cli_call *call, const char *what, const char *name);

/* client.c: CLI_DONE with *@out, or CLI_REFUSED, said why. */
int cli_ask(struct cli_call *call, Admin__Response **out);
/* Why a request was refused, or is not known to be done. */
struct cli_error {
	char error[600], fix[600];
	int status; /* -errno */
	bool unknown;
};
/* The same, but that nothing is said: @e tells why. */
int cli_try(struct cli_call *call, Admin__Response **out, struct cli_error *e);
int cli_say(const struct cli_call *call, const struct cli_error *e);
/* Say it to people, or as JSON, with what to do next; CLI_REFUSED. */
int cli_refuse(const struct cli_call *call, const char *error, const char *fix,
	       int status) __attribute__((nonnull(3)));

/* json.c: a text of any bytes as JSON; '?' for what is no UTF-8. */
struct json_t;
struct json_t *cli_json_string(const char *text);
/* Any message, by its descriptor. */
void cli_json_print(const ProtobufCMessage *message);
void cli_json_text(const char *text);
void cli_json_error(const char *error, const char *fix, int status,
		    bool unknown);

/* config_*.c */
int cli_config_show(struct cli_call *call);
int cli_config_apply(struct cli_call *call);

/* support.c */
int cli_support(struct cli_call *call);

/* whole.c: CLI_DONE, or CLI_REFUSED, said what it lacks. */
int cli_whole(const struct cli_call *call, const Admin__Response *response);
/* True with @error; for JSON a result is enough. */
bool cli_lacks(const Admin__Response *response, bool json, char *error,
	       size_t len);

/* show.c: one that is whole. */
void cli_show(const struct cli_call *call, const Admin__Response *response);

/* tame.c: for people, without what would command their terminal. */
void cli_print(FILE *f, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* All that @message tells, which was unpacked. */
void cli_tame(ProtobufCMessage *message);

/* columns.c: a table that is as wide as what is in it. */
struct columns;
struct columns *columns_open(const char *const *heads, unsigned count);
/* One cell after another; "<" before a head aligns its column to the right. */
void columns_cell(struct columns *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void columns_print(struct columns *c); /* and free it */

#endif
