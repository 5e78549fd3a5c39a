/*
 * node: the daemon that puts the rooms together.
 *
 * Lives here: configuration, start-up and shutdown, this node's disks, the push
 *             of targets and LUNs from the directory into iscsi, the admin
 *             service, health and metrics.
 * Called by:  main.c.
 * May touch:  every room, files, and libuv through base/shard.h.
 */
#ifndef BASALT_NODE_NODE_H
#define BASALT_NODE_NODE_H

#include "node/config.h"

#define BASALT_VERSION "0.1.0"

struct node;

/*
 * Claim the data directory, make the loops and the admin socket; everything
 * else happens in node_run().  @config is borrowed until node_close().  0 or
 * -errno with @why: what is wrong and what to do.
 */
int node_open(const struct config *config, struct node **out, char *why,
	      size_t why_len);

/* Until SIGTERM or SIGINT, drained.  The process's exit status: 0 or 1. */
int node_run(struct node *node);

void node_close(struct node *node);

#endif
