/*
 * iser: the datamover over RDMA (RFC 7145, with librdmacm and libibverbs).
 *
 * Lives here: listening for RDMA connections, receiving and sending of PDUs,
 *             RDMA READ and WRITE of payload straight into and out of the pages
 *             that dom and lsom own.
 * Called by:  node, which says where to listen; sessions, through datamover.h.
 * May touch:  RDMA devices.  Of the session datamover.h only.
 *
 * Without an RDMA device, or without the right to register memory, a portal
 * waits: it tries again every few seconds, and says once why.
 */
#ifndef BASALT_ISER_ISER_H
#define BASALT_ISER_ISER_H

#include "base/env.h"
#include "base/page.h"

#include <sys/socket.h>

struct iser;
struct iscsi;

struct iser_config {
	struct env *env; /* of the first shard: all calls are made there */
	/* As in iscsi_config: connections move to the shard of their session. */
	unsigned shards;
	struct env *const *envs;
	struct iscsi *iscsi;
	struct arena *arena; /* all payload lies in it: registered */
	/*
	 * How long a connection at work is polled before its device is asked to
	 * interrupt, in ns; 0: never polled.
	 */
	uint64_t spin_ns;
};

int iser_open(const struct iser_config *config, struct iser **out);

/*
 * Stop listening and, once iscsi has ended the last connection, release
 * everything; then @cb.  At the latest in the callback of iscsi_close(): behind
 * it a request for a connection would find no iscsi.
 */
void iser_close(struct iser *iser, void (*cb)(void *arg), void *arg);

/*
 * Accept RDMA connections at @address for portal @portal, which iscsi must know
 * (iscsi_portal_listen() or iscsi_portal_declare()).  @alone: the portal has no
 * TCP to fall back on; health says so more loudly; a second call for the same
 * portal changes that alone.  0, also if there is no device yet; -ENOMEM,
 * -EINVAL, -ESHUTDOWN.
 */
int iser_listen(struct iser *iser, unsigned portal,
		const struct sockaddr *address, bool alone);

/*
 * No more of that.  Connections that are there are iscsi's to end.  0 or
 * -ENOENT.
 */
int iser_unlisten(struct iser *iser, unsigned portal);

/* Does @portal accept RDMA connections?  If not, @why says it. */
bool iser_listening(const struct iser *iser, unsigned portal, char *why,
		    size_t why_len);

#endif
