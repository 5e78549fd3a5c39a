/*
 * config: basalt.conf, only what a node needs before it reaches the directory.
 */
#ifndef BASALT_NODE_CONFIG_H
#define BASALT_NODE_CONFIG_H

#include <net/if.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/address.h"

#define CONFIG_PORTALS_MAX 16u
#define CONFIG_SHARDS_MAX 64u
#define CONFIG_PATH_DEFAULT "/etc/basalt/basalt.conf"

struct config_portal {
	struct sockaddr_storage address; /* without the number of its zone */
	char zone[IF_NAMESIZE]; /* of fe80::1%eth0: an interface; or "" */
	char text
		[ADDRESS_TEXT]; /* "127.0.0.1:3260", "[::1]:3260", "[fe80::1%eth0]:1" */
	/* what is an address, and was written as if it were this: "[::1]:3261" */
	char meant[64];
};

struct config {
	/* [node] */
	char name[64]; /* the host's name */
	char data_dir[200]; /* /var/lib/basalt */
	char run_dir[200]; /* /run/basalt */
	unsigned shards; /* 0: auto; at most CONFIG_SHARDS_MAX */
	unsigned spin_us; /* a loop watches that long before it sleeps */
	bool discard; /* what is free is given back to block devices */
	char log_level[128]; /* "info", "info,lsom=debug" */
	/* [network] */
	char address[64]; /* numeric; "0.0.0.0" */
	uint16_t rdt_port;
	struct config_portal portals[CONFIG_PORTALS_MAX];
	unsigned portals_count;
	struct config_portal metrics; /* text "": off */
	/* [memory], bytes */
	uint64_t arena, page_cache;
};

/*
 * Read @path and check it.  0; -EINVAL with @why: "PATH:LINE: reason" (a key
 * or section nobody knows is one); or why the file cannot be read.
 */
int config_load(const char *path, struct config *out, char *why,
		size_t why_len);

/* The same from text; @name stands for the path in messages. */
int config_parse(const char *name, const char *text, struct config *out,
		 char *why, size_t why_len);

/*
 * "ADDR:PORT", "[V6]:PORT", or ADDR alone with @port.  0; -EINVAL; -ENOTUNIQ: an
 * IPv6 address that ends in @port (::1:3260), and nobody means; see @out->meant.
 */
int config_portal_parse(const char *text, uint16_t port,
			struct config_portal *out);

/*
 * Its address as it is now: an interface has another number when it comes again.
 * 0 or -ENODEV: there is no interface of its zone's name.
 */
int config_portal_address(const struct config_portal *portal,
			  struct sockaddr_storage *out);

/* Apply "info,lsom=debug".  0 or -EINVAL. */
int config_log_level_apply(const char *text);

#endif
