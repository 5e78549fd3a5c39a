/*
 * iscsi_int: what the files of the session half share.
 *
 *	iscsi.c		the room's face: open, drain, portals
 *	shards.c	the front and its shares; connections on their way
 *	homes.c		which shard has a target; its LUNs
 *	sessions.c	all sessions, as node sees them
 *	iscsi_stats.c	counters, and the check of logins
 *	target.c	targets, who may log in, their units
 *	lookup.c	which unit has a name, of whatever target
 *	pdu.c text.c	formats
 *	login.c login_keys.c chap.c	negotiation, without I/O
 *	conn.c		a connection: acceptance, login, replies, its end
 *	session.c	a session: its window, NOP, logout, timers, its end
 *	session_order.c	numbering, and what comes before its turn
 *	task.c		a SCSI command's life; task_data.c: a write's data;
 *			task_reply.c: its answer
 *	tmf.c		task management
 *	discovery.c	Text requests
 *	datamover_tcp.c	the TCP side of datamover.h
 *
 * There is one struct iscsi a shard.  That of the first one is the front: it
 * listens, logs in, answers discovery, and knows of all targets.  Each target
 * has a home, the shard where its units and sessions are, and lives in the
 * share of the room there.  What a share is told comes by message (shards.c).
 */
#ifndef BASALT_ISCSI_ISCSI_INT_H
#define BASALT_ISCSI_ISCSI_INT_H

#include "base/address.h"
#include "base/copied.h"
#include "base/health.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/util.h"
#include "iscsi/datamover.h"
#include "iscsi/iscsi.h"
#include "iscsi/scsi.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- pdu.c ---- */

#define ISCSI_KEY_MAX 63
#define ISCSI_TEXT_MAX 65536u
#define ISCSI_PORT 3260

enum iscsi_reject {
	REJECT_DATA_DIGEST = 0x02,
	REJECT_SNACK = 0x03,
	REJECT_PROTOCOL = 0x04,
	REJECT_NOT_SUPPORTED = 0x05,
	REJECT_TOO_MANY_IMMEDIATE = 0x06,
	REJECT_TASK_IN_PROGRESS = 0x07,
	REJECT_INVALID_FIELD = 0x09,
	REJECT_LONG_OPERATION = 0x0a,
	REJECT_WAIT_LOGOUT = 0x0c,
};

/* Serial numbers (RFC 1982): never compare them raw. */
static inline bool sn_lt(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) < 0;
}

static inline bool sn_le(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) <= 0;
}

int iscsi__ahs_parse(const uint8_t *ahs, unsigned len, uint8_t *cdb,
		     unsigned *cdb_len, bool *bidi);
uint8_t iscsi__residual(enum scsi_dir expect, uint32_t edtl, enum scsi_dir dir,
			uint64_t wanted, uint64_t moved, uint32_t *count);
int iscsi__cmdsn_place(uint32_t cmdsn, uint32_t exp, uint32_t max);

/* ---- text.c ---- */

struct text_out {
	char *buf;
	size_t room, len;
	bool full; /* something did not fit */
};

int iscsi__text_next(char **at, size_t *len, char **key, char **value);
void iscsi__text_out_init(struct text_out *out, char *buf, size_t room);
void iscsi__text_put(struct text_out *out, const char *key, const char *fmt,
		     ...) __attribute__((format(printf, 3, 4)));
void iscsi__text_put_hex(struct text_out *out, const char *key,
			 const uint8_t *bytes, size_t n);
int iscsi__text_number(const char *text, uint64_t min, uint64_t max,
		       uint64_t *out);
int iscsi__text_bool(const char *text, bool *out);
int iscsi__text_binary(const char *text, uint8_t *out, size_t room,
		       size_t *len);
int iscsi__text_list(const char *list, const char *const *ours, unsigned count);
int iscsi__name_parse(const char *name, char out[ISCSI_NAME_MAX + 1]);

/* ---- chap.c ---- */

#define CHAP_CHALLENGE_MAX 1024u
#define CHAP_RESPONSE_MAX 64u

enum chap_state { CHAP_NONE, CHAP_EXPECTED, CHAP_CHALLENGED, CHAP_DONE };

struct chap {
	enum chap_state state;
	unsigned alg;
	uint8_t id;
	uint8_t challenge[32];
	size_t challenge_len;
	uint8_t peer_challenge[CHAP_CHALLENGE_MAX];
	size_t peer_challenge_len;
};

/* Values of one request, NULL where the key is absent. */
struct chap_keys {
	const char *a, *i, *c, *n, *r;
};

struct chap_secret {
	char user[ISCSI_NAME_MAX + 1]; /* "" none */
	uint8_t secret[ISCSI_SECRET_MAX];
	unsigned secret_len;
};

unsigned iscsi__chap_len(unsigned alg);
int iscsi__chap_choose(const char *list);
int iscsi__chap_response(unsigned alg, uint8_t id, const uint8_t *secret,
			 size_t secret_len, const uint8_t *challenge,
			 size_t challenge_len, uint8_t *out);
int iscsi__chap_step(struct chap *chap, const struct chap_keys *keys,
		     const struct chap_secret *in,
		     const struct chap_secret *mutual, struct env *env,
		     struct text_out *out);

/* ---- target.c ---- */

#define ISCSI_ALLOW_MAX 1024u

struct iscsi_session;
struct iscsi_message;

enum target_place {
	TARGET_PLACED, /* at home */
	TARGET_LEAVING, /* its sessions and units there are being closed */
	TARGET_LEFT, /* they are; the next home has not heard of it */
};

#define ISCSI_BUCKETS 4096u /* there may be as many targets, and more */

/* A target in the front's table, or, with its units, in its home's. */
struct iscsi_target {
	struct iscsi *iscsi;
	uint64_t seq; /* its place in the list, from 1 */
	char iqn[ISCSI_NAME_MAX + 1];
	char alias[256];
	char **allow; /* lower case; "any" */
	unsigned allow_count;
	struct chap_secret chap, mutual;
	struct scsi_target
		*scsi; /* NULL: in the front, with a home elsewhere */
	unsigned sessions_count; /* that hold it, ending ones included */
	bool removed; /* unlinked: goes with its last session */
	/* The front's: homes.c. */
	enum target_place place;
	unsigned home, next; /* @next: where it goes when it has left */
	bool closing; /* its units are: on_left() is to come */
	TAILQ_HEAD(, target_lun) luns;
	TAILQ_HEAD(, target_lun) parting; /* none any more, but open yet */
	/* To take it from a share: there before it goes there, and back. */
	struct iscsi_message *goodbye;
	TAILQ_ENTRY(iscsi_target) link;
	struct iscsi_target *chain; /* of its bucket */
	bool untold; /* its home is to be told of it, or of LUNs */
	TAILQ_ENTRY(iscsi_target) untold_link;
};

/* An object that targets show, or did a while ago: one shard has all those. */
struct target_object {
	struct uuid oid;
	unsigned shard, users;
	unsigned leaving; /* of those: LUNs of targets that leave with it */
	uint64_t idle_since_ns; /* no users */
	uint64_t since_ns; /* it is here, and its usage counted */
	TAILQ_HEAD(, target_lun) luns; /* that targets show it as */
	struct scsi_usage *usage;
	TAILQ_ENTRY(target_object) link;
	struct target_object *chain; /* of its bucket */
};
TAILQ_HEAD(target_objects, target_object);

struct target_lun {
	struct iscsi_lun_conf conf;
	char name[256];
	struct iscsi_target *target;
	struct target_object *object;
	TAILQ_ENTRY(target_lun) object_link;
	bool told; /* its home knows it */
	bool shown; /* its home has its object, maybe as it was before */
	bool leaves; /* the home that its target leaves does */
	struct iscsi_message *gone; /* to unset it on a share */
	TAILQ_ENTRY(target_lun) link;
};

struct iscsi_target *iscsi__target_find(struct iscsi *iscsi, const char *iqn);
bool iscsi__target_admits(const struct iscsi_target *target,
			  const char *initiator);
void iscsi__target_put(struct iscsi_target *target);
void iscsi__target_reset(struct iscsi_target *target,
			 const struct iscsi_session *last);
void iscsi__target_ports(struct iscsi_target *target);
void iscsi__targets_ports(struct iscsi *iscsi);
void iscsi__targets_close(struct iscsi *iscsi);
/* @t as @conf has it, in no table and without units: 0, -EINVAL, -ENOMEM. */
int iscsi__target_new(struct iscsi *iscsi, const struct iscsi_target_conf *conf,
		      struct iscsi_target **out);
/* Another of it, for @share's table, with units there: 0 or -ENOMEM. */
int iscsi__target_copy(const struct iscsi_target *t, struct iscsi *share,
		       bool units, struct iscsi_target **out);
/* Into the table; one that is there gets @t's access, and @t is freed. */
void iscsi__target_take(struct iscsi *iscsi, struct iscsi_target *t);
/* Out of the table; @goodbye (NULL: none) goes back when its units are closed. */
void iscsi__target_remove(struct iscsi_target *t, const char *why,
			  struct iscsi_message *goodbye);
void iscsi__target_end_sessions(struct iscsi_target *t, const char *why);

/* ---- lookup.c ---- */

/* For struct scsi_common. */
void iscsi__lookup(struct iscsi *iscsi, struct scsi_lookup *req,
		   scsi_lookup_cb cb);

/* ---- homes.c: in the front ---- */

/* Is @t on its way, so that nobody can log in? */
static inline bool iscsi__target_moves(const struct iscsi_target *t)
{
	return t->place != TARGET_PLACED;
}
int iscsi__home_lun_set(struct iscsi_target *t,
			const struct iscsi_lun_conf *conf);
void iscsi__home_lun_unset(struct iscsi_target *t, unsigned lun);
/* Its LUNs are forgotten. */
void iscsi__home_forget(struct iscsi_target *t);
/* Its units at the former home are closed. */
void iscsi__home_left(struct iscsi_target *t);
/* Tell homes what they do not know yet. */
void iscsi__homes_tell(struct iscsi *front);
void iscsi__homes_close(struct iscsi *front);

/* ---- login.c ---- */

struct login_keys {
	bool header_digest, data_digest;
	uint32_t max_send_data; /* the initiator's MaxRecvDataSegmentLength */
	uint32_t max_recv_data;
	uint32_t max_burst, first_burst;
	uint32_t max_outstanding_r2t;
	uint32_t time2wait, time2retain;
	bool initial_r2t, immediate_data;
	unsigned protocol_level;
};

struct login {
	struct iscsi *iscsi;
	struct iscsi_portal *portal;
	bool rdma;
	bool no_immediate; /* it gets ImmediateData=No */
	/* of the first request, the same in all others */
	bool begun;
	uint8_t isid[6];
	uint16_t tsih, cid;
	uint32_t itt, cmdsn;
	unsigned stage, pdus;
	/* declared */
	bool discovery;
	char initiator[ISCSI_NAME_MAX + 1];
	char alias[256];
	char target_name[ISCSI_NAME_MAX + 1];
	bool auth_needed, auth_done;
	struct chap chap;
	uint64_t seen; /* keys that came, by their place in the table */
	struct login_keys keys;
	bool declared, tpgt_sent;
	int lacks; /* it was refused for want of a place, -EBUSY, or -ENOMEM; 0 */
	/* text in parts (C bit) */
	char *text;
	size_t text_len;
	/* the final answer, which may have to wait */
	size_t final_len;
	uint8_t final_flags;
	char answer[ISCSI_LOGIN_DATA_MAX];
};

struct login_answer {
	uint8_t status_class, status_detail;
	uint8_t flags; /* byte 1 of the response */
	bool final; /* full feature phase follows */
	size_t text_len;
};

struct login *iscsi__login_new(struct iscsi *iscsi, struct iscsi_portal *portal,
			       bool rdma);
void iscsi__login_free(struct login *login);
void iscsi__login_request(struct login *login, const uint8_t *bhs,
			  const uint8_t *data, uint32_t len,
			  struct login_answer *out);

/* ---- session.c ---- */

#define ISCSI_DISCOVERY_WINDOW 8u
#define ISCSI_IMMEDIATE_MAX 16u
/* The part of its window a session begins with, and of what comes unasked. */
#define ISCSI_WINDOW_BEGIN 8u
#define ISCSI_BEGIN_PART 4u
/*
 * Rejects that a connection may cause in this time, and, over RDMA, PDUs that
 * are dropped without an answer: they take receives that others want.
 */
#define ISCSI_REJECTS_MAX 16u
#define ISCSI_IGNORED_MAX 1024u
#define ISCSI_TALLY_SECONDS 60u
#define ISCSI_HELD_MAX 16u
#define ISCSI_HELD_BYTES_MAX (1u << 20)
#define ISCSI_ECHO_BYTES_MAX (1u << 20)
/* Discovery sessions prove nothing: they get by with little, for a while. */
#define ISCSI_DISCOVERY_BYTES_MAX (64u << 10) /* of answers; one always goes */
#define ISCSI_DISCOVERY_DATA_MAX 8192u /* in a PDU from the initiator */
#define ISCSI_DISCOVERY_SECONDS 60u
/* A login that says nothing for this long makes room where there is none. */
#define ISCSI_SILENT_SECONDS 2u
/* An initiator may have these, however few are left: paths times targets. */
#define ISCSI_INITIATOR_SESSIONS 128u
#define ISCSI_DATA_SECONDS 60u
/*
 * Of an ORDERED or HEAD OF QUEUE command, or one that an ORDERED one waits for: all
 * others of the unit do.  So often it is looked at, as one may come at any time.
 */
#define ISCSI_BARRIER_DATA_SECONDS 10u
#define ISCSI_BARRIER_RATE (64u << 10) /* bytes a second, beyond a minute */
#define ISCSI_LOGOUT_DATA_SECONDS 5u /* behind a logout */
/* A command that finds no memory is sent back after this, or that. */
#define ISCSI_PARKED_SECONDS 20u
/*
 * Payload a session may hold: up to a part of what is left, within these.  One
 * command always goes.
 */
#define ISCSI_SESSION_BYTES_MIN (1u << 20)
#define ISCSI_SESSION_BYTES_MAX (32u << 20)
#define ISCSI_SESSION_PART 3u
#define ISCSI_LIST_LITTLE (8u << 10) /* a parameter list: waits for nobody */
/* Of all that sessions may have: their shares leave it to what cannot wait. */
#define ISCSI_UNASKED_PART 6u
#define ISCSI_UNASKED_LITTLE (256u << 10) /* from a session: nobody minds */

struct iscsi_session;
struct task;

enum conn_state {
	CONN_LOGIN, /* security and operational negotiation */
	CONN_MOVE, /* logged in; on its way to another shard */
	CONN_WAIT, /* logged in; an older session is still ending */
	CONN_FULL, /* full feature phase */
	CONN_CLOSING, /* what is queued leaves, nothing more is taken */
	CONN_TERMINATED /* dm_up.closed() is to come */
};

/* A PDU of our own: answers to NOP, TMF, Text, Logout, Login; Reject, Async. */
struct reply {
	struct dm_send send;
	struct iscsi_conn *conn;
	bool immediate; /* answers an immediate request: those are limited */
	bool counted; /* in session->in_flight, then responding_count */
	bool last; /* the connection closes behind it */
	bool no_statsn; /* does not consume a StatSN */
	bool sending;
	/* task management */
	bool tmf_pending; /* waits for tasks to be gone */
	bool tmf_busy; /* the command set has it */
	bool tmf_cold; /* then all sessions of the target go */
	struct scsi_tmf_req tmf;
	TAILQ_ENTRY(reply) link;
	uint8_t data[];
};

/* A PDU that came before its CmdSN's turn, or is not to do anything then. */
struct held {
	uint32_t cmdsn;
	uint8_t bhs[ISCSI_BHS_LEN];
	unsigned ahs_len;
	uint32_t data_len;
	struct dm_stags stags;
	struct sgl *sgl; /* immediate data; NULL: dropped, or flat */
	TAILQ_ENTRY(held) link;
	uint8_t bytes[]; /* AHS, then flat data */
};

/* One text exchange at a time. */
struct text_exchange {
	bool open;
	uint32_t itt, ttt;
	char *in, *out;
	size_t in_len, out_len, out_at;
	bool targets_left; /* more of all targets, those behind: */
	uint64_t named_seq;
};

/* How often something happened since then. */
struct tally {
	unsigned count;
	uint64_t since_ns;
};

struct iscsi_conn {
	struct iscsi *iscsi;
	struct dm_conn *dm;
	struct iscsi_portal *portal;
	enum conn_state state;
	struct login *login; /* until full feature phase */
	struct iscsi_session *session; /* then */
	bool reinstates; /* an older session had to go first */
	struct env_timer timer; /* login; then pings */
	uint64_t login_due_ns;
	struct env_task hop; /* to the session's shard, and back at the end */
	uint64_t heard_ns;
	bool ping_out;
	uint32_t statsn;
	struct tally rejects, ignored;
	struct task *landing; /* its immediate data is coming in */
	struct sgl *landing_held; /* or that of a command to be held */
	TAILQ_HEAD(, reply) replies;
	unsigned replies_count, immediates;
	size_t reply_bytes; /* of their data */
	struct text_exchange text;
	bool text_sent; /* a Text Response has left */
	TAILQ_ENTRY(iscsi_conn) link;
};

/*
 * A session in the front's list.  Its own shard writes the counters; it is the
 * front's from when it was announced until it is taken back.
 */
struct session_entry {
	struct iscsi *front;
	uint64_t id;
	char initiator[ISCSI_NAME_MAX + 1], target[ISCSI_NAME_MAX + 1];
	char alias[256];
	const char *transport;
	struct sockaddr_storage peer, local;
	uint8_t isid[6];
	uint16_t tsih, tpgt;
	unsigned shard;
	bool discovery;
	bool dropped; /* the front's: it was told to end */
	uint64_t since_ns;
	atomic_bool ending;
	_Atomic uint64_t commands, read_bytes, written_bytes;
	_Atomic unsigned in_flight; /* commands that were not answered yet */
	struct env_task begin, end;
	TAILQ_ENTRY(session_entry) link;
};

/* One thread writes, another may look. */
#define ENTRY_ADD(at, n)                                                       \
	atomic_store_explicit(                                                 \
		at, atomic_load_explicit(at, memory_order_relaxed) + (n),      \
		memory_order_relaxed)
#define ENTRY_GET(at) atomic_load_explicit(at, memory_order_relaxed)

struct iscsi_session {
	struct iscsi *iscsi;
	struct iscsi_conn *conn; /* NULL once it is gone */
	struct iscsi_target *target;
	struct session_entry *entry;
	uint64_t id;
	bool discovery, ending, nexus_closing;
	char initiator[ISCSI_NAME_MAX + 1];
	char alias[256];
	uint8_t isid[6];
	uint16_t tsih, cid, tpgt;
	struct login_keys keys;
	struct scsi_nexus nexus;

	uint32_t exp_cmdsn, max_cmdsn;
	/* What is taken: more, of whom does not look (dm_conn.no_window). */
	uint32_t most_cmdsn;
	TAILQ_HEAD(, held) held;
	unsigned held_count;
	size_t held_bytes;
	uint64_t held_since_ns;
	struct reply *logout; /* waits for tasks and TMF answers, and for */
	bool releasing, released; /* SPC-2 reservations, to go first */
	uint64_t logout_due_ns; /* data of its tasks is waited for until then */

	LIST_HEAD(task_bucket, task) buckets[ISCSI_ITT_BUCKETS];
	TAILQ_HEAD(, task) tasks; /* all, by age */
	TAILQ_HEAD(, task) parked; /* wait for memory or room, by age */
	SLIST_HEAD(, task) pool; /* memory for the next ones */
	unsigned pool_count;
	unsigned tasks_count, aborted_count, responding_count;
	size_t payload_bytes;
	struct page_waiter pages;
	unsigned window, window_max; /* commands it may have outstanding */
	unsigned window_gain; /* commands that would have it wider */
	uint64_t last_lun; /* whose congestion counts */
	struct env_timer data_timer;
	bool data_timer_on;
	uint64_t data_due_ns; /* while it is on */
	struct env_task turn; /* deferred: parked tasks, the end */
	TAILQ_ENTRY(iscsi_session) link;
};

/* conn.c */
static inline bool iscsi__conn_up(const struct iscsi_conn *conn)
{
	return conn != NULL && conn->state != CONN_TERMINATED;
}
void iscsi__conn_end(struct iscsi_conn *conn, const char *why);
void iscsi__conn_terminate(struct iscsi_conn *conn);
void iscsi__conn_go_on(struct iscsi *iscsi);
/* Its login has all that it needs; on the shard where it may stay. */
void iscsi__conn_login_final(struct iscsi_conn *conn);
void iscsi__conn_timer_start(struct iscsi_conn *conn);
void iscsi__conn_name(const struct iscsi_conn *conn, char *buf, size_t room);
struct reply *iscsi__reply_new(struct iscsi_conn *conn, uint8_t opcode,
			       uint32_t itt, const void *data, size_t len);
void iscsi__reply_send(struct reply *reply);
void iscsi__reply_free(struct reply *reply);
void iscsi__reject(struct iscsi_conn *conn, const uint8_t *bhs,
		   enum iscsi_reject reason);
/* A PDU was dropped without an answer; too many of them end the connection. */
void iscsi__conn_ignored(struct iscsi_conn *conn);

/* ---- sessions.c ---- */

/* A list entry for @s, as it begins: 0 or -ENOMEM. */
int iscsi__entry_open(struct iscsi_session *s, const struct iscsi_conn *conn);
/* Nobody counts in it any more. */
void iscsi__entry_close(struct session_entry *entry);
/* In the front: the session whose place the login on @conn takes, or NULL. */
const struct session_entry *iscsi__entry_of(const struct iscsi_conn *conn);
static inline unsigned iscsi__in_flight(const struct iscsi_session *s)
{
	return ENTRY_GET(&s->entry->in_flight);
}
static inline void iscsi__in_flight_more(struct iscsi_session *s)
{
	ENTRY_ADD(&s->entry->in_flight, 1);
}
static inline void iscsi__in_flight_less(struct iscsi_session *s)
{
	assert(iscsi__in_flight(s) > 0);
	ENTRY_ADD(&s->entry->in_flight, -1u);
}

/* ---- session.c ---- */

struct iscsi_session *iscsi__session_find(struct iscsi *iscsi,
					  const struct iscsi_conn *conn);
int iscsi__session_open(struct iscsi_conn *conn, uint16_t tsih);
void iscsi__session_end(struct iscsi_session *session, const char *why);
/* Pages that shares leave to what comes unasked. */
size_t iscsi__unasked_pages(const struct iscsi *iscsi);
void iscsi__session_kick(struct iscsi_session *session);
/* Look what waits after @seconds, or earlier. */
void iscsi__session_data_timer(struct iscsi_session *session, unsigned seconds);
void iscsi__session_max_cmdsn(struct iscsi_session *session);
void iscsi__session_deliver(struct iscsi_conn *conn, const struct dm_pdu *pdu);
void iscsi__session_idle(struct iscsi_conn *conn);
uint32_t iscsi__send_max(const struct iscsi_conn *conn);
void iscsi__ask_logout(struct iscsi_session *session, unsigned seconds);
void iscsi__dm_keys(const struct iscsi_conn *conn,
		    const struct login_keys *keys, struct dm_keys *out);

/* ---- session_order.c ---- */

void iscsi__session_control(struct iscsi_conn *conn, const struct dm_pdu *pdu);
struct sgl *iscsi__session_land(struct iscsi_conn *conn,
				const struct dm_pdu *pdu, size_t *sgl_offset);
bool iscsi__session_skip(struct iscsi_session *session, uint32_t cmdsn);
void iscsi__session_skip_tasks(struct iscsi_session *session, uint32_t cmdsn,
			       bool all, uint64_t lun);

/* ---- discovery.c ---- */

void iscsi__text_request(struct iscsi_conn *conn, const struct dm_pdu *pdu);
void iscsi__text_reset(struct text_exchange *text);
void iscsi__portal_text(const struct iscsi_portal *portal,
			const struct sockaddr_storage *local, char *buf,
			size_t room);

/* ---- task.c ---- */

enum task_state {
	TASK_DATA, /* unsolicited data is coming */
	TASK_PARKED, /* waits for memory before its R2T, or for room */
	TASK_R2T, /* solicited data is coming */
	TASK_EXECUTE, /* with the command set */
	TASK_RESPOND, /* its answer is queued */
};

#define TASK_R2T_MAX 4u

struct task {
	enum task_state state;
	bool immediate;
	bool live; /* the command set has it: done() is to come */
	bool final; /* no more unsolicited data */
	bool aborted; /* no answer will be sent */
	bool broken; /* its unsolicited data came out of sequence */
	bool counted; /* in session->in_flight */
	bool parked; /* in session->parked */
	bool landing; /* its immediate data is coming in */
	bool hashed; /* found by its ITT */
	uint32_t write_len; /* of data-out that is wanted */
	uint32_t unsolicited, datasn; /* how much came; the next DataSN */
	uint32_t asked; /* up to where data was asked for, or came */
	uint32_t r2tsn;
	unsigned r2ts; /* in flight */
	uint32_t r2ts_used; /* a bit for each of r2t[] */
	struct sgl *buf; /* where data-out lands: at least write_len bytes */
	bool placed; /* the immediate data's pages are the first of buf */
	bool put_out, response_out; /* the datamover has them */
	size_t payload; /* charged to session->payload_bytes */

	/* A new task is zero up to here; these are set before they are used. */
	struct iscsi_session *session;
	uint32_t itt;
	uint64_t lun_wire;
	struct dm_stags stags; /* zero where the transport has none */
	uint64_t since_ns; /* for the data timer */
	LIST_ENTRY(task) bucket;
	TAILQ_ENTRY(task) link, parked_link;
	SLIST_ENTRY(task) pool_link;
	struct scsi_cmd cmd;
	struct dm_data put;
	struct dm_send response;
	uint8_t sense[2 + SCSI_SENSE_MAX];
	struct task_r2t {
		struct dm_data data;
		struct task *task;
	} r2t[TASK_R2T_MAX];
};

struct task *iscsi__task_find(struct iscsi_session *session, uint32_t itt);
struct task *iscsi__task_new(struct iscsi_session *session,
			     const struct dm_pdu *pdu, bool quiet);
/* There was no place for its data: is there one now? */
void iscsi__task_land_again(struct task *task, const struct dm_pdu *pdu);
void iscsi__task_landed(struct task *task);
void iscsi__task_pool_free(struct iscsi_session *session);
void iscsi__task_abort(struct task *task);
void iscsi__tasks_unpark(struct iscsi_session *session);
bool iscsi__task_waits(const struct task *task);
unsigned iscsi__task_data_seconds(const struct task *task);
unsigned iscsi__task_parked_seconds(const struct task *task);
void iscsi__tasks_expire(struct iscsi_session *session);
/* Do what comes next, unless it waits for something. */
void iscsi__task_go_on(struct task *task);
/* Free it once nobody refers to it any more. */
void iscsi__task_maybe_free(struct task *task);
void iscsi__task_unpark(struct task *task);
void iscsi__task_unhash(struct task *task);
void iscsi__task_uncount(struct task *task);

/* ---- task_data.c ---- */

void iscsi__task_start(struct task *task, const struct dm_pdu *pdu);
void iscsi__task_data_out(struct iscsi_conn *conn, const struct dm_pdu *pdu);
struct sgl *iscsi__task_land(struct iscsi_conn *conn, const struct dm_pdu *pdu,
			     size_t *sgl_offset);
void iscsi__task_ask(struct task *task);

/* ---- task_reply.c ---- */

void iscsi__task_respond(struct task *task);
/*
 * Answer @status instead of executing, or CHECK CONDITION, if there is no answer
 * yet; the command set lets go of it.
 */
void iscsi__task_give_up(struct task *task, enum scsi_status status);
void iscsi__task_fail(struct task *task, unsigned key, unsigned asc,
		      unsigned ascq);

/* ---- tmf.c ---- */

void iscsi__tmf_request(struct iscsi_conn *conn, const struct dm_pdu *pdu);
void iscsi__tmf_check(struct iscsi_session *session);

/* ---- iscsi.c ---- */

struct iscsi_portal {
	struct iscsi *iscsi;
	unsigned number;
	uint16_t tpgt;
	struct sockaddr_storage address;
	char name[ADDRESS_TEXT];
	struct dm_tcp_listener *listener; /* NULL: another datamover's */
	unsigned conns; /* that came in by it */
	bool removed; /* unlinked: goes with the last of them */
	TAILQ_ENTRY(iscsi_portal) link;
};

/* ---- shards.c ---- */

/* When what there was no memory for is tried again. */
#define ISCSI_AGAIN_NS (100 * MSEC)

enum iscsi_message_kind {
	MESSAGE_TARGET, /* take @target */
	MESSAGE_TARGET_GONE, /* remove the one named @iqn, then come back */
	MESSAGE_LUN, /* set @lun */
	MESSAGE_LUN_GONE, /* unset LUN @number */
	MESSAGE_PORTALS, /* @portals are all there are */
	MESSAGE_UNITS, /* those that are not open try again */
	MESSAGE_DROP_PORTAL, /* end what came by @number over @transport */
	MESSAGE_DROP_SESSION, /* end session @id */
	MESSAGE_CLOSE, /* within @drain_ms */
};

/* From the front to a share; obeyed in order. */
struct iscsi_message {
	struct iscsi *share;
	enum iscsi_message_kind kind;
	/*
	 * TARGET: the share's from then on.  TARGET_GONE: the front's record
	 * that waits for it, or NULL.
	 */
	struct iscsi_target *target;
	struct iscsi_lun_conf lun; /* its strings are @iqn and @name */
	struct scsi_usage *usage; /* a reference */
	char iqn[ISCSI_NAME_MAX + 1], name[256];
	struct iscsi_portal *portals; /* an array, freed with the message */
	unsigned portals_count;
	unsigned number, drain_ms;
	uint64_t id;
	const char *transport, *why; /* constants */
	struct env_task task;
	TAILQ_ENTRY(iscsi_message) link;
};

TAILQ_HEAD(iscsi_messages, iscsi_message);

static inline bool iscsi__is_front(const struct iscsi *iscsi);
int iscsi__shares_open(struct iscsi *front);
struct iscsi_message *iscsi__message_new(struct iscsi *share,
					 enum iscsi_message_kind kind);
void iscsi__message_send(struct iscsi_message *m);
/* From a share: @m, a TARGET_GONE, is done. */
void iscsi__message_back(struct iscsi_message *m);
/* Portals changed: the shares are told, now or soon. */
void iscsi__portals_tell(struct iscsi *front);
/* What came by portal @number ends on all of them, or, -ENOMEM, on none. */
int iscsi__shares_drop_portal(struct iscsi *front, unsigned number,
			      const char *transport, const char *why);
void iscsi__shares_close(struct iscsi *front, unsigned drain_ms);
/* A share has closed: the front frees it. */
void iscsi__share_closed(struct iscsi *share);
/* Off to @conn's target, once nothing of it is in flight. */
void iscsi__conn_leave(struct iscsi_conn *conn);
void iscsi__conn_detached(struct iscsi_conn *conn);
/* The last of a connection that ended on its share: the front's part. */
void iscsi__conn_return(struct iscsi_conn *conn);

/* What was refused in the last minutes, for the health check. */
struct iscsi_refused {
	uint64_t since_ns; /* @now began */
	struct {
		unsigned conns, auth, access, busy, memory;
	} now, before;
	char last[240];
	bool last_missing; /* of no target that there is */
};

struct iscsi {
	struct env *env;
	unsigned shard;
	struct iscsi *front; /* on the first shard: itself */
	struct iscsi_config config;
	struct scsi_common scsi;
	TAILQ_HEAD(, iscsi_target) targets;
	struct iscsi_target *targets_by_iqn[ISCSI_BUCKETS];
	uint64_t targets_seq; /* of the last one that came */
	TAILQ_HEAD(iscsi_portals, iscsi_portal) portals; /* a share's: copies */
	TAILQ_HEAD(, iscsi_conn) conns;
	TAILQ_HEAD(, iscsi_session) sessions;
	unsigned conns_count, sessions_count, listeners_count;
	unsigned busy_count; /* sessions that have commands */
	size_t payload_bytes; /* that its sessions hold, or are promised */
	unsigned targets_closing;
	uint16_t tsih_last;
	uint32_t ttt_last;
	/* The front's. */
	unsigned shards; /* at least 1 */
	struct iscsi **shares; /* by shard; the first one is NULL */
	unsigned shares_count; /* that are not closed */
	unsigned away_count; /* connections that are theirs */
	unsigned guests_count; /* sessions that are, and logins of those */
	_Atomic uint64_t session_id_last; /* of all shards */
	TAILQ_HEAD(, session_entry) entries;
	struct target_objects objects;
	struct target_objects objects_idle; /* for the longest first */
	struct target_object *objects_by_id[ISCSI_BUCKETS];
	TAILQ_HEAD(, iscsi_target) untold;
	struct env_timer tell; /* what there was no memory for */
	bool portals_due;
	/* A share's. */
	struct iscsi_portal *portals_memory;
	struct iscsi_messages messages; /* the first one waits */
	struct env_timer message_timer; /* for memory */
	struct iscsi_message *close_message;
	struct env_task share_closed;

	struct iscsi_refused refused; /* the front's */
	struct health_check health;
	struct log_limit limit;
	uint64_t log_second;
	unsigned log_lines;
	/* closing */
	bool closing, ended;
	struct env_timer drain;
	struct env_task close_task;
	void (*close_cb)(void *arg);
	void *close_arg;
};

static inline bool iscsi__is_front(const struct iscsi *iscsi)
{
	return iscsi->front == iscsi;
}

/* The dom that sessions on @shard use. */
static inline struct dom *iscsi__dom(const struct iscsi *front, unsigned shard)
{
	return shard == 0 ? front->config.dom : front->config.doms[shard];
}

struct iscsi_portal *iscsi__portal_find(struct iscsi *iscsi, unsigned number);
void iscsi__portal_end(struct iscsi *iscsi, unsigned number,
		       const char *transport, const char *why);
/* In @iscsi alone, a front or a share. */
void iscsi__close_begin(struct iscsi *iscsi, unsigned drain_ms);
void iscsi__init(struct iscsi *iscsi, const struct iscsi_config *config,
		 struct env *env);
void iscsi__portal_put(struct iscsi_portal *portal); /* a connection less */
void iscsi__maybe_closed(struct iscsi *iscsi);

/* ---- iscsi_stats.c ---- */

extern struct counter iscsi__sessions, iscsi__conns, iscsi__logins,
	iscsi__logins_failed, iscsi__commands, iscsi__read_bytes,
	iscsi__written_bytes, iscsi__tmfs, iscsi__rejects, iscsi__conns_refused,
	iscsi__conns_lost, iscsi__ignored, iscsi__discarded;

void iscsi__stats_open(struct iscsi *iscsi);
void iscsi__stats_close(struct iscsi *iscsi);
/* A login was refused with @status (11.13.5); a connection, for a limit. */
void iscsi__refused_login(struct iscsi_conn *conn, unsigned status);
void iscsi__refused_conn(struct iscsi *iscsi);

/* ---- datamover_tcp.c ---- */

struct dm_tcp_listener;

/*
 * Listen on @address; *@bound gets the address with the port that it has.
 * Connections go to iscsi_conn_accept() with @portal.
 */
int dm_tcp_listen(struct iscsi *iscsi, struct env *env,
		  const struct sockaddr *address, unsigned portal,
		  unsigned pdu_ms, struct sockaddr_storage *bound,
		  struct dm_tcp_listener **out);
void dm_tcp_unlisten(struct dm_tcp_listener *listener, void (*cb)(void *arg),
		     void *arg);

#endif
