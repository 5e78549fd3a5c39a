/*
 * iscsi: SCSI logical units and iSCSI sessions (RFC 7143), and the datamover
 * interface with its TCP side.
 *
 * Lives here: sessions, logins, targets with their access lists, logical units
 *             and the SCSI command set.
 * Called by:  node, which pushes targets and LUNs from the directory; datamovers.
 * May touch:  dom.h below it: objects.  Nothing of the directory.
 */
#ifndef BASALT_ISCSI_ISCSI_H
#define BASALT_ISCSI_ISCSI_H

#include "base/env.h"
#include "base/stats.h"
#include "base/uuid.h"

#include <sys/socket.h>

struct iscsi;
struct dom;

#define ISCSI_NAME_MAX 223u
#define ISCSI_SECRET_MIN 12u
#define ISCSI_SECRET_MAX 255u
#define ISCSI_LUN_MAX 16383u

struct iscsi_config {
	struct env *env; /* of the first shard: all calls are made there */
	struct dom *dom;
	/*
	 * All shards, by their number, and their doms: sessions are spread over
	 * them (shards.c).  @shards 0: there is one.  The arrays are the
	 * caller's and stay.
	 */
	unsigned shards;
	struct env *const *envs;
	struct dom *const *doms;
	/* limits; 0: the default in brackets */
	/* [1024]; one initiator has no more than are left, or 128 */
	unsigned sessions_max;
	unsigned connections_max; /* [2048], half-open logins included */
	unsigned logins_per_source; /* [32] login or discovery, per peer */
	unsigned login_ms; /* [15000] from accept to full feature */
	unsigned pdu_ms; /* [10000] for the rest of a PDU */
	unsigned ping_ms; /* [30000] idle before NOP-In; x 1.5 to answer */
	unsigned window; /* [128] commands per session; over iSER at most 112 */
	uint32_t max_recv_data; /* [262144] MaxRecvDataSegmentLength */
	uint32_t max_burst; /* [1048576] */
	uint32_t first_burst; /* [262144] */
};

int iscsi_open(const struct iscsi_config *config, struct iscsi **out);

/*
 * Stop: no new logins, ask initiators to log out (Async event 1), finish what
 * is in flight for at most @drain_ms, close everything; then @cb.
 */
void iscsi_close(struct iscsi *iscsi, unsigned drain_ms, void (*cb)(void *arg),
		 void *arg);

/*
 * Listen with TCP.  @portal is its number (relative target port identifier,
 * from 1, the same at each start); one that was declared goes on under its own
 * address.  0, -EEXIST, -EADDRINUSE, -EADDRNOTAVAIL, ...
 */
int iscsi_portal_listen(struct iscsi *iscsi, unsigned portal,
			const struct sockaddr *address, uint16_t tpgt);

/*
 * A portal that another datamover (iSER) listens on: discovery names it, and
 * iscsi_conn_accept() takes its connections.  0, -EEXIST, -ENOMEM.
 */
int iscsi_portal_declare(struct iscsi *iscsi, unsigned portal,
			 const struct sockaddr *address, uint16_t tpgt);

/*
 * No more TCP there: the portal stays, declared, and connections that came by
 * TCP are ended.  0 or -ENOENT; -ENOMEM: nothing has changed.
 */
int iscsi_portal_unlisten(struct iscsi *iscsi, unsigned portal);

/*
 * End the connections that came through @portal by @transport ("iser").  0;
 * -ENOENT; -ENOMEM: none has been ended.
 */
int iscsi_portal_drop(struct iscsi *iscsi, unsigned portal,
		      const char *transport);

/*
 * Take a portal away: nothing new comes in by it, discovery names it no more,
 * and what is connected through it is ended.  Hosts with another path go on by
 * that one.  0 or -ENOENT; -ENOMEM: nothing has changed.
 */
int iscsi_portal_remove(struct iscsi *iscsi, unsigned portal);

/* Its address with the port it really has (asked for 0).  0 or -ENOENT. */
int iscsi_portal_address(struct iscsi *iscsi, unsigned portal,
			 struct sockaddr_storage *out);

/* ---- pushed by node, from the directory ---- */

struct iscsi_target_conf {
	const char *iqn;
	const char *alias;
	const char *const *allow; /* initiator names; "any" */
	unsigned allow_count;
	/* "" : none.  Secrets are copied, and wiped when they go. */
	const char *chap_user;
	const uint8_t *chap_secret;
	unsigned chap_secret_len;
	const char *mutual_user;
	const uint8_t *mutual_secret;
	unsigned mutual_secret_len;
};

/*
 * Add or replace by iqn.  Sessions whom the change shuts out are dropped.
 *
 * Whom it admits: the initiators named in @allow, or all if "any" is; without a
 * list, whoever knows the CHAP secret; without both, nobody.  CHAP is asked for
 * on top of the list.
 *
 * Discovery asks for no secret (there is none but the targets' own: AuthMethod
 * None, an initiator that insists on CHAP there is refused with 0201), and it
 * names a target to the initiators that it admits, CHAP or not.  Hosts learn by
 * it where to log in, which then takes the secret; all they see before is the
 * target's name and its portals.  A target whose name is a secret, too, needs a
 * list: an initiator that is not on it does not hear of it.  Without a list
 * anybody does.
 */
int iscsi_target_set(struct iscsi *iscsi, const struct iscsi_target_conf *conf);

/* Its sessions are dropped. */
void iscsi_target_unset(struct iscsi *iscsi, const char *iqn);

struct iscsi_lun_conf {
	const char *iqn;
	unsigned lun;
	struct uuid object;
	const char *name; /* of the virtual disk, for logs and VPD 80 */
	uint32_t block_bytes; /* 512 or 4096 */
	bool read_only;
};

/* Sessions see 3F/0E.  The object is opened in the background. */
int iscsi_lun_set(struct iscsi *iscsi, const struct iscsi_lun_conf *conf);
void iscsi_lun_unset(struct iscsi *iscsi, const char *iqn, unsigned lun);

/*
 * A disk has come: units whose objects could not be opened try that now, and do not
 * wait for their timer.
 */
void iscsi_units_retry(struct iscsi *iscsi);
/* How many of them have not ended that yet: then each is open, or has its reason. */
unsigned iscsi_units_untried(const struct iscsi *iscsi);

/* ---- asked by node ---- */

struct iscsi_session_info {
	uint64_t id;
	const char *initiator, *alias, *target, *transport;
	char peer[64], local[64];
	char isid[16]; /* 12 hex */
	uint16_t tsih;
	unsigned shard; /* where it is served */
	bool discovery;
	uint64_t commands, read_bytes, written_bytes;
	uint64_t since_ns; /* env_now() at login */
	unsigned in_flight;
};
/* @cb calls nothing of iscsi. */
void iscsi_session_each(struct iscsi *iscsi,
			void (*cb)(const struct iscsi_session_info *info,
				   void *arg),
			void *arg);

/* 0 or -ENOENT. */
int iscsi_session_drop(struct iscsi *iscsi, uint64_t id);

/*
 * What initiators have done with an object since a target shows it, all targets
 * together.  A time is from the command to its answer.
 */
struct iscsi_usage {
	struct uuid object;
	uint64_t since_ns; /* another one: it is counted anew */
	struct histogram_value reads, writes;
	uint64_t read_bytes, written_bytes;
	uint64_t unmaps; /* UNMAP, WRITE SAME and SANITIZE */
	/* Of these: not ready, medium errors, no space, out of time, BUSY. */
	uint64_t failed;
};
/* False: no target shows @object. */
bool iscsi_usage_of(struct iscsi *iscsi, const struct uuid *object,
		    struct iscsi_usage *out);

/* Sessions that have @object as a LUN. */
unsigned iscsi_object_sessions(struct iscsi *iscsi, const struct uuid *object);

#endif
