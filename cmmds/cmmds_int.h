/*
 * cmmds_int: what the files of this room share.
 *
 * From the bottom up: raft_codec (bytes on the wire and on the disk),
 * raft_store (the ordered queue in front of the key-value store), raft_shell
 * (the event loop around raft_step()), rules and state (the directory as a pure
 * state machine), snapshot (its image), command (building commands), cmmds (the
 * face: proposals, barriers, subscriptions) and mirror (the face for another
 * shard).
 *
 * The shell knows nothing of the directory and the state nothing of raft; only
 * cmmds.c knows both.
 */
#ifndef BASALT_CMMDS_INT_H
#define BASALT_CMMDS_INT_H

#include "base/health.h"
#include "base/util.h"
#include "cmmds/cmmds.h"
#include "base/err.h"

#include <raft.h>
#include <stdatomic.h>

/* The next release changes who frees what: see reference raft.md, 4. */
#if RAFT_VERSION_NUMBER != 2201
#error "cmmds is written for libraft 0.22.1 exactly"
#endif

#define CMMDS_COMMAND_VERSION 1u
#define CMMDS_SNAPSHOT_VERSION 1u
#define CMMDS_COMMAND_MAX (1u << 20) /* bytes of one packed command */
#define CMMDS_CHANGES_MAX 1024u /* changes and object ops of a command */
#define CMMDS_SNAPSHOT_MAX (256u << 20)
#define CMMDS_PROPOSALS_MAX 128u /* in flight from this node */
#define CMMDS_CLIENTS_MAX 1024u
/* Remembered results a client: more than its proposals in flight. */
#define CMMDS_WINDOW 256u

_Static_assert(CMMDS_PROPOSALS_MAX < CMMDS_WINDOW,
	       "a proposal in flight must not fall out of the window");

/* Memory for bookkeeping of these sizes not being there is not survivable. */
void *cmmds__alloc(size_t len);
void *cmmds__copy(const void *data, size_t len);
/*
 * For protobuf-c, to which no memory and bad bytes are the same: a member that
 * refused a command for want of memory would differ from the others, and from
 * itself after a restart.
 */
extern ProtobufCAllocator cmmds__allocator;

/* ---- raft_codec ---- */

/*
 * A log entry as the shell keeps it.  @data is malloc()ed, never NULL.
 */
struct log_entry {
	uint64_t term;
	uint32_t len;
	uint8_t type; /* enum raft_entry_type */
	uint8_t *data;
	uint64_t ticket; /* of the write that makes it durable */
};

struct log_snapshot {
	uint64_t index, term, conf_index;
	uint8_t *conf; /* encoded configuration */
	size_t conf_len;
	uint8_t *data;
	size_t len;
};

void codec__snapshot_fini(struct log_snapshot *snap);

#define CODEC_CONF_MAX (64u << 10)
#define CODEC_ENTRIES_MAX 4096u

/* Bytes that grow. */
struct codec_buf {
	uint8_t *data;
	size_t len, room;
};
void codec__put(struct codec_buf *buf, const void *data, size_t len);
void codec__put_u8(struct codec_buf *buf, uint8_t v);
void codec__put_u16(struct codec_buf *buf, uint16_t v);
void codec__put_u32(struct codec_buf *buf, uint32_t v);
void codec__put_u64(struct codec_buf *buf, uint64_t v);

/* Bytes that are read: any read past the end sets @bad and gives 0. */
struct codec_cursor {
	const uint8_t *at, *end;
	bool bad;
};
uint8_t codec__get_u8(struct codec_cursor *c);
uint16_t codec__get_u16(struct codec_cursor *c);
uint32_t codec__get_u32(struct codec_cursor *c);
uint64_t codec__get_u64(struct codec_cursor *c);
const uint8_t *codec__get(struct codec_cursor *c, size_t len);

/*
 * Configurations: raft_configuration_decode() reads past a short buffer, so the
 * bytes are parsed here.  Ids are non-zero and distinct, addresses non-empty.
 * @out is the caller's to close.  0 or -EPROTO.
 */
int codec__conf_decode(const void *data, size_t len,
		       struct raft_configuration *out);
void codec__conf_encode(const struct raft_configuration *conf,
			struct codec_buf *out);
int codec__conf_copy(const struct raft_configuration *from,
		     struct raft_configuration *to);
const struct raft_server *codec__conf_find(const struct raft_configuration *c,
					   raft_id id);
unsigned codec__conf_voters(const struct raft_configuration *conf);

/*
 * A message on the wire (raft.md, 6): u32 length, u8 type, fields.  Encoding an
 * APPEND_ENTRIES takes the entries from @entries, an INSTALL_SNAPSHOT all it
 * carries from @snap; the message's own are not looked at.
 */
void codec__message_encode(const struct raft_message *msg,
			   const struct log_entry *const *entries,
			   const struct log_snapshot *snap,
			   struct codec_buf *out);

/*
 * Decode and check one frame (rule R12).  On success payloads hang on @out as
 * the core wants them: one raft_malloc()ed batch, entries[] malloc()ed; give
 * both back with codec__message_fini() unless the core took them.
 * 0, -EPROTO, -EMSGSIZE.
 */
int codec__message_decode(const uint8_t *frame, size_t len,
			  struct raft_message *out);
void codec__message_fini(struct raft_message *msg);

/* Records on the disk; each ends with its CRC32C. 0, -EUCLEAN, -EMEDIUMTYPE. */
struct store_format {
	uint32_t version, features;
	uint64_t store_id; /* the raft id: drawn when the store is made (d10) */
	struct uuid store_uuid, node;
};
#define STORE_VERSION 1u
#define STORE_FEATURES 0u /* those this program knows */
void codec__format_encode(const struct store_format *f, struct codec_buf *out);
int codec__format_decode(const void *data, size_t len, struct store_format *f);
void codec__term_encode(uint64_t term, uint64_t vote, struct codec_buf *out);
int codec__term_decode(const void *data, size_t len, uint64_t *term,
		       uint64_t *vote);
void codec__entry_encode(uint64_t index, const struct log_entry *entry,
			 struct codec_buf *out);
int codec__entry_decode(uint64_t index, const void *data, size_t len,
			struct log_entry *out);
void codec__snapshot_encode(const struct log_snapshot *snap,
			    struct codec_buf *out);
int codec__snapshot_decode(const void *data, size_t len,
			   struct log_snapshot *out);

/* ---- raft_store ---- */

/* Everything the store holds, read at the start.  Ownership as noted. */
struct store_loaded {
	struct store_format format;
	uint64_t term, vote;
	bool has_snapshot;
	struct log_snapshot snapshot; /* to the shell */
	uint64_t first; /* index of entries[0]; 1 when empty */
	struct log_entry *entries; /* to the shell */
	size_t count, room;
};

struct raft_store;

/*
 * @durable: every write up to and including @ticket is on the disk.
 * @failed: a write failed; nothing more is written and no call comes after it.
 */
struct store_ops {
	void (*durable)(void *arg, uint64_t ticket);
	void (*failed)(void *arg, int status);
};

struct store_open {
	void *data;
	struct raft_store *store; /* out */
	struct store_loaded loaded; /* out */
	char why[256]; /* out, on failure */
	/* private */
	struct env_work work;
	void (*cb)(struct store_open *req, int status);
	struct uuid node, uuid;
	uint64_t draw;
	bool found;
	int status;
};

/*
 * Open the store at @path, or found it: an id is drawn and entry 1, a CHANGE
 * with this node as the only voter, written with it in one batch.  Errors as
 * cmmds_open().
 */
int store__open(struct env *env, const char *path, const struct uuid *node,
		bool found, struct store_open *req,
		void (*cb)(struct store_open *req, int status));
void store__loaded_fini(struct store_loaded *loaded);
void store__start(struct raft_store *store, const struct store_ops *ops,
		  void *arg);

/*
 * Writes, in order; each returns its ticket.  What is copied is copied at once;
 * a snapshot is not, and stays as it is until its ticket is durable or the store
 * closed.  store__append() first removes every entry from @index on.
 */
uint64_t store__term(struct raft_store *store, uint64_t term, uint64_t vote);
uint64_t store__append(struct raft_store *store, uint64_t index,
		       struct log_entry *entries, size_t count);
uint64_t store__install(struct raft_store *store,
			const struct log_snapshot *snap);
/* Our own snapshot; entries below @keep_from go. */
uint64_t store__compact(struct raft_store *store,
			const struct log_snapshot *snap, uint64_t keep_from);
/*
 * Of log entries that are not durable yet.  A snapshot on its way does not
 * count: it may be larger than all that is in flight may be, and goes by itself.
 */
size_t store__pending_bytes(const struct raft_store *store);
uint64_t store__durable(const struct raft_store *store);
/* What a write waits for, kv_wants(), until it goes on of itself; or 0. */
int store__wants(const struct raft_store *store);
#define STORE_SILENT_NS (10 * SEC) /* from then on it does not answer */
/* For how long the write that is under way has been so; 0: there is none. */
uint64_t store__silent_ns(const struct raft_store *store);

/*
 * Look at the store in its turn: @work on the lane, when all that was queued before
 * is durable, then @done on the loop with what it returned.  Or @done alone, later:
 * -ESHUTDOWN, -EIO (it failed), or what a write waits for by then.  At once -EBUSY
 * (there is another), -EIO and what a write waits for.
 */
struct store_look {
	int (*work)(struct store_look *look, struct kv *kv);
	void (*done)(struct store_look *look, int status);
	/* private */
	uint64_t ticket;
	int status;
};
int store__look(struct raft_store *store, struct store_look *look);
/* Is all that @kv holds a store of this node's?  On the lane; 0, or why not. */
int store__check(struct raft_store *store, struct kv *kv, char why[256]);

/* What is queued is written first (unless it failed).  @cb later. */
void store__close(struct raft_store *store, void (*cb)(void *arg), void *arg);

/* The address under which a store stands in a configuration. */
void store__address(const struct store_format *format, char out[80]);

/* ---- raft_shell ---- */

struct raft_shell;

/* All are called from the loop, and may call back into nothing but submit. */
struct shell_ops {
	/* Send @frame to the member @id; may be lost.  Borrowed. */
	void (*send)(void *arg, uint64_t id, const char *address,
		     const uint8_t *frame, size_t len);
	/*
	 * Apply one committed entry.  Non-zero: this program cannot, and must
	 * not go on.
	 */
	int (*apply)(void *arg, uint64_t index, uint64_t term,
		     enum raft_entry_type type, const uint8_t *data,
		     size_t len);
	/*
	 * The state's image, as it is at take().  take_more() makes a part of
	 * it, and is true when it is whole, malloc()ed; one that is not is let go
	 * with take_drop(), before a restore(), or with the state.
	 */
	int (*take)(void *arg);
	bool (*take_more)(void *arg, uint8_t **data, size_t *len);
	void (*take_drop)(void *arg);
	int (*restore)(void *arg, uint64_t index, const uint8_t *data,
		       size_t len);
	/* Leading, with an entry of this term applied; or no longer. */
	void (*leading)(void *arg, bool leading);
	/* Nothing goes on from here: the process should end. */
	void (*failed)(void *arg, int status, const char *why);
};

/*
 * The rules of raft.md, 5, by number, as bits of shell_config.rules_off.  A rule
 * whose removal no test notices is not tested.
 */
enum shell_rule {
	RULE_TERM_FIRST, /* invariant 1: no message before its term is durable */
	RULE_R1,
	RULE_R2,
	RULE_R3,
	RULE_R4,
	RULE_R5,
	RULE_R6,
	RULE_R7,
	RULE_R8A,
	RULE_R8B,
	RULE_R8C,
	RULE_R8D,
	RULE_R9,
	RULE_R10,
	RULE_R13, /* beyond raft.md: raft_receive.c */
	SHELL_RULES
};

struct shell_config {
	struct env *env;
	struct raft_store *store;
	struct store_loaded *loaded; /* taken, if the call returns 0 */
	const struct shell_ops *ops;
	void *arg;
	unsigned snapshot_bytes; /* of log before a snapshot: cmmds.h */
	unsigned election_ms, heartbeat_ms;
	uint64_t rules_off; /* 0 but in tests */
};

/* Restores and starts; the first callbacks come later.  0 or -errno. */
int shell__open(const struct shell_config *config, char why[256],
		struct raft_shell **out);

struct shell_submit {
	const uint8_t *data;
	size_t len;
};

/*
 * Append @count commands, or one barrier where @count is 0, to the log.  Gives
 * the index of the first and the term of all.  -EAGAIN: not the leader.
 */
int shell__submit(struct raft_shell *shell, const struct shell_submit *list,
		  unsigned count, uint64_t *index, uint64_t *term);

/*
 * A frame from the member @from at @address (the transport has made sure of
 * both), checked here.  0, -EPROTO, -EMSGSIZE; -ESHUTDOWN: not started, or over.
 */
int shell__receive(struct raft_shell *shell, uint64_t from, const char *address,
		   const uint8_t *frame, size_t len);

struct shell_info {
	bool leader; /* and ready */
	bool failed;
	uint64_t id, term, commit, applied, first, last, snapshot_index;
	uint64_t log_bytes;
	unsigned voters, standbys;
	bool only_voter; /* when it was opened */
	int wants; /* what its store waits for; or 0 */
	uint64_t silent_ns; /* for so long its store has not answered */
	int snapshot_status; /* of the last try to take one */
};
unsigned shell__voters(const struct raft_shell *shell);
void shell__info(const struct raft_shell *shell, struct shell_info *out);
bool shell__leading(const struct raft_shell *shell);

/* Stops at once; the store is closed with it.  @cb later. */
void shell__close(struct raft_shell *shell, void (*cb)(void *arg), void *arg);

/* ---- state: the directory ---- */

struct state_entry {
	struct cmmds_entry pub; /* first: a cmmds_entry is a state_entry */
	struct state_entry *left, *right;
	struct state_entry *prev, *next; /* in key order */
	struct state_entry *chain; /* of what it belongs to */
	uint64_t priority, hash;
	size_t packed; /* bytes of it in an image */
};

#define STATE_BUCKETS 4096u /* there may be as many of a kind, and more */

struct state_remembered {
	uint64_t sequence, revision;
	int32_t result;
};

struct state_client {
	struct uuid id;
	uint64_t incarnation;
	uint64_t highest; /* sequence */
	struct state_remembered window[CMMDS_WINDOW];
	TAILQ_ENTRY(state_client) link; /* by id */
};
TAILQ_HEAD(state_clients, state_client);

struct cmmds_state {
	struct state_entry *roots[CMMDS_KINDS];
	unsigned counts[CMMDS_KINDS];
	struct state_entry *chains[STATE_BUCKETS];
	uint64_t revision, event_sequence, applied_index;
	uint64_t entries_hash, clients_hash;
	uint64_t packed_bytes; /* of all entries in an image */
	struct state_clients clients;
	unsigned clients_count;
	struct state_image *image; /* under way, or NULL */
};

/* What a command did; old entries hang here until state__result_fini(). */
struct state_result {
	int status;
	uint64_t revision;
	char why[128];
	struct uuid client;
	uint64_t incarnation, sequence; /* whose: 0 if it could not be read */
	struct cmmds_change *changes;
	size_t count, room;
};

void state__init(struct cmmds_state *state);
void state__fini(struct cmmds_state *state);

/*
 * Apply one committed command: a pure function of state and bytes, the same on
 * every node.  What the bytes are, a refusal included, is in @result.
 * -EMEDIUMTYPE: they are of a version this program does not know, so that it
 * cannot stay equal to the others: stop.
 */
int state__apply(struct cmmds_state *state, uint64_t index, const void *data,
		 size_t len, struct state_result *result);
void state__result_fini(struct state_result *result);

/* The newest run of the client @id that was heard of; 0: none. */
uint64_t state__incarnation(struct cmmds_state *state, const struct uuid *id);

const struct state_entry *state__find(const struct cmmds_state *state,
				      enum cmmds_kind kind, const void *key,
				      size_t key_len);
/* The first entry whose key is above @key; NULL @key: the first. */
const struct state_entry *state__above(const struct cmmds_state *state,
				       enum cmmds_kind kind, const void *key,
				       size_t key_len);
/* Those that cmmds_of() and cmmds_under() tell of: cmmds.h. */
const struct state_entry *state__of(const struct cmmds_state *state,
				    enum cmmds_kind kind, const void *what,
				    size_t len,
				    const struct state_entry *after);
const struct state_entry *state__under(const struct cmmds_state *state,
				       const char *target,
				       const struct state_entry *after);
uint64_t state__hash(const struct cmmds_state *state);

/* The one after @e, which is in the tree: a walk does not search at each step. */
static inline const struct state_entry *state__next(const struct state_entry *e)
{
	return e->next;
}

/* state_tree.c.  An inserted entry is the tree's; a removed one the caller's. */
uint64_t tree__mix(uint64_t x);
uint64_t tree__hash(uint64_t h, const void *data, size_t len);
int tree__key_compare(const void *a, size_t a_len, const void *b, size_t b_len);
int tree__entry_compare(const struct state_entry *e, const void *key,
			size_t key_len);
void tree__insert(struct cmmds_state *state, struct state_entry *e);
void tree__remove(struct cmmds_state *state, struct state_entry *e);
/* Takes @message; copies the rest. */
struct state_entry *tree__entry_make(enum cmmds_kind kind, const void *key,
				     size_t key_len, uint64_t revision,
				     const void *value, size_t value_len,
				     ProtobufCMessage *message);
void tree__entry_free(struct state_entry *e); /* NULL is ignored */
void tree__free(struct state_entry *e);

/* Of state.c for snapshot.c: add an entry that was never there. */
int state__load(struct cmmds_state *state, enum cmmds_kind kind,
		const void *key, size_t key_len, uint64_t revision,
		const void *value, size_t value_len);
int state__load_client(struct cmmds_state *state, const struct uuid *id,
		       uint64_t incarnation,
		       const struct state_remembered *what);

/*
 * snapshot.c.  An image of @state as it is now, one at a time.  -EMSGSIZE: it is
 * too large.
 */
int snapshot__begin(struct cmmds_state *state);
/* Some more of it; true: it is whole, and *@out the caller's to free(). */
bool snapshot__more(struct cmmds_state *state, uint8_t **out, size_t *len);
/* The one under way is not wanted any more; if there is one. */
void snapshot__drop(struct cmmds_state *state);
/* A command that was applied changed or removed @old. */
void snapshot__keep(struct cmmds_state *state, const struct cmmds_entry *old);
size_t snapshot__entry_size(const struct cmmds_entry *e);
/* 0, -EUCLEAN, -EMEDIUMTYPE; @state is init'ed. */
int snapshot__decode(struct cmmds_state *state, const uint8_t *data,
		     size_t len);

/* ---- rules ---- */

/* The message of a kind's entries; NULL for an unknown kind. */
const ProtobufCMessageDescriptor *rules__descriptor(uint32_t kind);

/*
 * Is @message (with @old before it, NULL: new) a sound entry under this key by
 * itself?  0 or -EINVAL and @why.
 */
int rules__entry(uint32_t kind, const void *key, size_t key_len,
		 const ProtobufCMessage *old, const ProtobufCMessage *message,
		 char why[128]);

/*
 * After a command's changes: does this one leave every reference whole?
 */
int rules__references(const struct cmmds_state *state,
		      const struct cmmds_change *change, char why[128]);

/*
 * One object command (rules_object.c) on @object, which the caller unpacked for
 * it and packs again; its csn is the new one already, if the op raises it.
 */
int rules__object_op(const struct cmmds_state *state, Directory__Object *object,
		     const Directory__ObjectCommand *op, char why[128]);
int rules__object(const Directory__Object *object, char why[128]);
int rules__object_put(const Directory__Object *old,
		      const Directory__Object *object, char why[128]);
int rules__tree(const Directory__TreeNode *tree, char why[128]);

/* Does the tree hold a full copy of ACTIVE leaves? */
bool rules__tree_full(const Directory__TreeNode *node);

/*
 * Nesting of messages is bounded before protobuf-c recurses into it; and no field
 * has number 0, which protobuf-c 1.4 takes if it comes in two bytes, and then
 * packs as one that it refuses.
 */
#define RULES_DEPTH_MAX 16u
#define RULES_TREE_DEPTH_MAX 8u
bool rules__depth_ok(const ProtobufCMessageDescriptor *descriptor,
		     const void *data, size_t len);

int rules__refuse(char why[128], const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Visit the leaves of a tree until @cb gives false. */
bool rules__leaves(Directory__TreeNode *node,
		   bool (*cb)(Directory__Leaf *leaf,
			      const Directory__TreeNode *node, void *arg),
		   void *arg);

/* ---- command ---- */

/* Pack it; -EMSGSIZE, -EINVAL (built wrongly).  malloc()ed. */
int command__pack(struct cmmds_command *cmd, uint8_t **out, size_t *len);

/* ---- the face ---- */

TAILQ_HEAD(cmmds_commands, cmmds_command);
TAILQ_HEAD(cmmds_barriers, cmmds_barrier);
TAILQ_HEAD(cmmds_subscriptions, cmmds_subscription);

struct cmmds {
	struct env *env;
	struct cmmds_config config;
	char *path;
	struct cmmds_open *opening; /* until it is answered */
	struct store_open store_open;
	struct raft_shell *shell;
	struct cmmds_state state;

	/* propose.c: in flight, and waiting for the end of the turn */
	struct cmmds_commands commands;
	unsigned commands_count;
	uint64_t sequence;
	struct cmmds_barriers barriers;
	struct env_timer deadline;

	/* subscribe.c */
	struct cmmds_subscriptions subscriptions;
	struct cmmds_subscription *next, *priming;
	bool unprimed;

	struct env_task task; /* the end of a turn */
	bool failed, closing, told;
	int status; /* why it failed */
	char why[256];
	void (*close_cb)(void *arg);
	void *close_arg;
	struct health_check health_store, health_voters, health_size;

	/* mirror.c */
	atomic_bool session; /* cmmds_session_valid(), for mirrors */
	TAILQ_HEAD(, cmmds) mirrors;
	struct cmmds *home; /* this is a mirror of it */
	unsigned hops;
	struct env_task close_task;
	TAILQ_ENTRY(cmmds) link;
};

void cmmds__turn_end_soon(struct cmmds *cmmds);

void propose__init(struct cmmds *cmmds);
/* At the end of a turn: one submit for all that waits. */
void propose__flush(struct cmmds *cmmds);
/* Entry @index of @term is applied; @result where it was a command. */
void propose__applied(struct cmmds *cmmds, uint64_t index, uint64_t term,
		      const struct state_result *result);
/* Whatever was submitted before may be gone: submit it again. */
void propose__again(struct cmmds *cmmds);
void propose__fail_all(struct cmmds *cmmds, int status);

/* Whether the session is valid may have changed. */
void cmmds__session_look(struct cmmds *cmmds);

void mirror__tell(struct cmmds *home, const struct cmmds_change *change);
int mirror__propose(struct cmmds *mirror, struct cmmds_command *cmd,
		    unsigned timeout_ms, cmmds_command_cb cb);
int mirror__barrier(struct cmmds *mirror, struct cmmds_barrier *req,
		    cmmds_barrier_cb cb);

void subscribe__prime(struct cmmds *cmmds);
void subscribe__deliver(struct cmmds *cmmds, const struct cmmds_change *change);
/* The state was replaced: tell the differences. */
void subscribe__replaced(struct cmmds *cmmds, const struct cmmds_state *old);
void subscribe__fini(struct cmmds *cmmds);

#endif
