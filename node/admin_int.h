/*
 * admin_int: what the files of the admin service share.
 *
 * A command arrives as a request and is answered once, maybe later.  Handlers
 * check, then act through admin__change() (a change of the directory) or a
 * call of a room; whatever they allocate for that hangs on the request.
 */
#ifndef BASALT_NODE_ADMIN_INT_H
#define BASALT_NODE_ADMIN_INT_H

#include "node/node_int.h"
#include "proto/admin.pb-c.h"

struct admin_conn;

struct admin_req {
	struct node *node;
	Admin__Request *msg;
	char who[64]; /* "root", "user alice (uid 1000)" */
	char id[UUID_TEXT_LEN]; /* the tool's request id */
	void *ctx; /* the handler's, free()d with the request */
	void (*over)(struct admin_req *r); /* just before that; may be NULL */
	/* why it is refused */
	int status;
	char error[512], fix[400];
	/* private */
	struct admin_conn *conn; /* NULL: the peer is gone */
	struct cmmds_command command;
	int (*build)(struct admin_req *r, struct cmmds_command *cmd);
	void (*applied)(struct admin_req *r);
	/* set it before admin__change(): it ends the request, not refuse */
	void (*failed)(struct admin_req *r);
	bool unknown; /* it failed, but may have been applied, or be yet */
	bool changes; /* the directory */
	unsigned attempts;
	uint64_t built_on; /* the directory's revision */
	struct env_timer busy_timer;
	uint64_t busy_until_ns; /* 0: the directory was not busy */
	TAILQ_ENTRY(admin_req) link;
};

/* ---- admin_socket.c: the socket that listens, and its file in run_dir ---- */

struct admin_socket;

/*
 * @come, where somebody waits: it takes him by admin__socket_accept(), or has no
 * memory.  >= 0 or -errno; after one, it is called again some time later.  A file
 * that is gone is made again.  Else -errno and @why.
 */
int admin__socket_open(struct env *env, const char *run_dir,
		       int (*come)(void *arg), void *arg,
		       struct admin_socket **out, char *why, size_t why_len);
/* The descriptor of who waits, or -errno. */
int admin__socket_accept(const struct admin_socket *s);
/* At once the file is gone, and nobody comes any more; @closed later. */
void admin__socket_close(struct admin_socket *s, void (*closed)(void *arg));

/* ---- username.c ---- */

#define USERNAME_LEN 64u

/* What @uid is called, if that is known within @limit_ns; else "".  Blocking. */
void admin__username(uid_t uid, uint64_t limit_ns, char out[USERNAME_LEN]);

/* ---- requests ---- */

#define ADMIN_REFUSAL_MAX 268u

/* A whole answer, with its frame; its bytes. */
size_t admin__refusal_put(uint8_t out[ADMIN_REFUSAL_MAX], int status,
			  const char *error, const char *fix);

/* Give a request to its handler. */
void admin__dispatch(struct admin_req *r);

/* What the directory lacks, or 0; a request that changes it is then answered now. */
int admin__directory_wants(struct node *node);
void admin__stuck_early(struct admin_req *r, int wants);

/* Each ends the request; it is gone when they return. */
void admin__reply(struct admin_req *r, Admin__Response *response);
/* With the result ADMIN__RESPONSE__RESULT_... as it is packed; takes @bytes. */
void admin__reply_packed(struct admin_req *r, int result, uint8_t *bytes,
			 size_t len);
/*
 * With the result @rest and its string number @field, a long @text: as it is, not
 * packed into one with the rest, which takes a while.  Takes @text.
 */
void admin__reply_text(struct admin_req *r, int result,
		       const ProtobufCMessage *rest, int field, char *text);
#define ADMIN_TOO_LONG "the answer is longer than 64 MiB"
#define ADMIN_TOO_LONG_FIX "Ask for one by its name, or for fewer."
/* A request that ends for this is answered to nobody. */
#define ADMIN_UNHEARD "nobody waits for it"
#define ADMIN_UNHEARD_FIX "Give the command again."
void admin__refuse(struct admin_req *r); /* with what admin__why() set */
void admin__no_memory(struct admin_req *r); /* refused: no reason to end */
void admin__ok(struct admin_req *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The same with up to @notes_count lines of advice. */
void admin__done(struct admin_req *r, const char *what, char **notes,
		 size_t notes_count, const char *id, const char *iqn);

/* Set status, error text and what to do next.  @status back. */
int admin__why(struct admin_req *r, int status, const char *fix,
	       const char *fmt, ...)
	__attribute__((format(printf, 4, 5), nonnull(3)));

/*
 * Answer now, or refuse with what admin__why() set: the request goes on, and is
 * ended as ever, but nobody hears of that.
 */
void admin__reply_early(struct admin_req *r, Admin__Response *response);
void admin__refuse_early(struct admin_req *r);

/* A line of progress, not more often than the peer reads. */
void admin__progress(struct admin_req *r, unsigned percent, const char *doing);

/* Does another request run that @same finds to be about the same? */
bool admin__another(const struct admin_req *r,
		    bool (*same)(const struct admin_req *r,
				 const struct admin_req *other));

/* True: the node is going down, and the request was refused. */
bool admin__stopping(struct admin_req *r);

/*
 * admin_usage.c: let time pass for a command that looks on, and tell the peer how
 * much has.  Lies in the request's ctx.
 */
struct admin_watch {
	struct admin_req *r;
	unsigned seconds, passed;
	struct env_timer tick;
	void (*cb)(struct admin_watch *watch);
};
/* 0, or too many @seconds: the request is to be refused. */
int admin__watch_check(struct admin_req *r, unsigned seconds);
/*
 * @cb after @seconds, which are checked; now if there are none.  If the node
 * stops, or nobody waits for the answer any more, the request is refused instead.
 */
void admin__watch(struct admin_watch *watch, struct admin_req *r,
		  unsigned seconds, void (*cb)(struct admin_watch *watch));

/*
 * Change the directory.  @build decides by what the directory holds now and
 * fills the command; it returns 0, or what admin__why() returned.  It runs
 * again if somebody else was faster.  @applied (or the answer "done" without
 * one) follows; failures are answered here.
 */
void admin__change(struct admin_req *r,
		   int (*build)(struct admin_req *r, struct cmmds_command *cmd),
		   void (*applied)(struct admin_req *r));

/*
 * admin_list.c: answer with lines about entries of a kind.  It lies in the request's
 * ctx and ends the request: with the lines, or refused if the node stops, there is no
 * memory or nobody waits for the answer any more.
 */
struct admin_list {
	enum cmmds_kind kind;
	/* Of something else: up to @max of it.  1: there is more; 0; or -errno. */
	int (*some)(struct admin_list *list, unsigned max);
	int result; /* ADMIN__RESPONSE__RESULT_... */
	/* What there is to say of @e, by admin__list_add().  False: no more of them. */
	bool (*each)(struct admin_list *list, const struct cmmds_entry *e);
	/* Before the lines are answered; may be NULL. */
	void (*last)(struct admin_list *list);
	struct node_walk walk; /* zeroed; or from where it begins */
	int status; /* of both; what is not said below admin__why() has said */
	/* what was packed, also for @last */
	uint8_t *bytes;
	size_t len;
	/* private */
	struct admin_req *r;
	struct node_parts parts;
	size_t room;
};
void admin__list(struct admin_req *r, struct admin_list *list);
/* Of @e alone, now. */
void admin__list_one(struct admin_req *r, struct admin_list *list,
		     const struct cmmds_entry *e);
/* @lines: the result's message, with one or some of its lines. */
void admin__list_add(struct admin_list *list, const ProtobufCMessage *lines);

/*
 * True if @status of a command leaves open whether the directory has applied it
 * or will: then nothing may be undone.  It is said in @r.
 */
bool admin__unknown(struct admin_req *r, int status);

/* A name by names.h; 0, or refused. */
int admin__name_check(struct admin_req *r, const char *what, const char *name,
		      bool lower);

/* ---- handlers, by file ---- */

void admin__cluster_init(struct admin_req *r);
void admin__cluster_status(struct admin_req *r);
void admin__cluster_backup(struct admin_req *r);
void admin__disk_add(struct admin_req *r);
void admin__disk_list(struct admin_req *r);
void admin__disk_remove(struct admin_req *r);
void admin__disk_rebuild(struct admin_req *r);
void admin__disk_retry(struct admin_req *r);
void admin__disk_scrub(struct admin_req *r);
void admin__policy_create(struct admin_req *r);
void admin__policy_list(struct admin_req *r);
void admin__policy_show(struct admin_req *r);
void admin__policy_set(struct admin_req *r);
void admin__policy_delete(struct admin_req *r);
void admin__vdisk_create(struct admin_req *r);
void admin__vdisk_list(struct admin_req *r);
void admin__vdisk_show(struct admin_req *r);
void admin__vdisk_resize(struct admin_req *r);
void admin__vdisk_set(struct admin_req *r);
void admin__vdisk_rename(struct admin_req *r);
void admin__vdisk_delete(struct admin_req *r);
void admin__target_create(struct admin_req *r);
void admin__target_set(struct admin_req *r);
void admin__target_list(struct admin_req *r);
void admin__target_show(struct admin_req *r);
void admin__target_delete(struct admin_req *r);
void admin__lun_add(struct admin_req *r);
void admin__lun_list(struct admin_req *r);
void admin__lun_remove(struct admin_req *r);
void admin__session_list(struct admin_req *r);
void admin__session_drop(struct admin_req *r);
void admin__portal_list(struct admin_req *r);
void admin__portal_set(struct admin_req *r);
void admin__object_show(struct admin_req *r);
void admin__object_list(struct admin_req *r);
void admin__object_drop(struct admin_req *r);
void admin__object_accept(struct admin_req *r);
void admin__health(struct admin_req *r);
void admin__metrics(struct admin_req *r);
void admin__latency(struct admin_req *r);
void admin__vdisk_stats(struct admin_req *r);
void admin__events(struct admin_req *r);
void admin__log_level(struct admin_req *r);

/* ---- shared by handlers ---- */

/* admin_policy.c: the entry; or NULL, and the request is to be refused. */
const struct cmmds_entry *admin__policy_entry(struct admin_req *r,
					      const char *name);

/*
 * admin_disk.c: a disk of this node by path, id or an id's unmistakable beginning;
 * or NULL, and the request is to be refused.  So it is if a command takes the
 * disk out of the directory: below 0.
 */
struct node_disk *admin__disk_named(struct admin_req *r, const char *name);

/*
 * admin_disk.c: it is open, but the directory has not answered yet whether it
 * takes it.
 */
bool admin__disk_pending(const struct node_disk *disk);
#define ADMIN_PENDING_FIX                                                      \
	"Wait; if nobody waits for the end of basalt disk add any more, give " \
	"that command again: the disk is not formatted twice."
int admin__disk_leaving(struct admin_req *r, const struct node_disk *disk);

/* A disk that hangs goes on when it answers: nobody waits for it longer. */
#define ADMIN__HANGS_NS (30 * SEC)

/*
 * admin_disk.c: a removal by force has given it up in the directory, and did not
 * go on: its command ended, with basaltd or without an answer.
 */
bool admin__disk_half_removed(const struct node_disk *disk);
#define ADMIN_HALF_REMOVED                                                     \
	"its removal has begun and was cut off: nothing new is placed on it"
#define ADMIN_HALF_REMOVED_FIX                                                 \
	"basalt disk remove %s --force goes on with it; basalt disk retry "    \
	"calls it off, and the disk stays with its data."

/*
 * admin_scrub.c: what the last scrub of a disk found.  False: nothing is wrong, or
 * there was none.
 */
bool admin__scrub_tell(const struct node_disk *disk, char *out, size_t len);
struct admin_bad_blocks {
	Admin__BadBlock of[LSOM_SCRUB_BAD_MAX], *list[LSOM_SCRUB_BAD_MAX];
	char objects[LSOM_SCRUB_BAD_MAX][UUID_TEXT_LEN];
};
void admin__scrub_fill(const struct node_disk *disk, Admin__DiskInfo *out,
		       struct admin_bad_blocks *blocks);
#define ADMIN_SCRUB_FIX                                                        \
	"Write them again, from a backup; basalt disk scrub %s looks again."

/*
 * admin_target.c: check @access; make target @name with it, its secrets sealed
 * (NULL: the request is to be refused; else to be freed by
 * directory__target__free_unpacked()); put it into @cmd.  @made_for: the object
 * with which it goes; NULL: it stays.
 */
int admin__access_check(struct admin_req *r, const Admin__Access *access);
Directory__Target *admin__target_make(struct admin_req *r, const char *name,
				      const char *iqn,
				      const Admin__Access *access);
void admin__target_put(struct cmmds_command *cmd, const Directory__Target *t,
		       const struct uuid *made_for);
unsigned admin__target_sessions(struct node *node, const char *iqn);
int admin__iqn_free(struct admin_req *r, const char *name, const char *iqn);
void admin__iqn_default(const char *name, char *out, size_t len);
void admin__lun_put(struct cmmds_command *cmd, const char *target, unsigned lun,
		    const char *vdisk, bool read_only, uint64_t expect);

/* As it is answered, or NULL: no memory; freed by _free in an array. */
Admin__Lun *admin__lun_answer(struct node *node, const Directory__Lun *lun);
void admin__luns_free(Admin__Lun **luns, size_t count);

/*
 * admin_index.c: to which targets sessions are, as they are when it is opened; and
 * what lines of a list have from the directory.
 */
struct admin_index {
	struct node *node;
	char (*sessions)[ISCSI_NAME_MAX + 1]; /* the target's name */
	size_t sessions_count;
	bool no_memory; /* something is missing in it, or in what it answered */
};
void admin__index_open(struct admin_index *x, struct node *node);
/* The LUNs of target @name; or that the virtual disk @name is. */
size_t admin__index_luns(struct admin_index *x, const char *name,
			 Admin__Lun ***out);
size_t admin__index_exports(struct admin_index *x, const char *name,
			    Admin__Lun ***out);
unsigned admin__index_sessions(const struct admin_index *x, const char *iqn);
/* With all targets that have the virtual disk. */
unsigned admin__index_used(const struct admin_index *x, const char *vdisk);
void admin__index_close(struct admin_index *x);

/*
 * Addresses an initiator can use now, "ADDR:PORT": wildcards are resolved.  @tcp:
 * only those that serve TCP.
 */
size_t admin__portals(struct node *node, bool tcp, char (*out)[ADDRESS_TEXT],
		      size_t max);

/* admin_state.c: of the disks in service, and of all objects. */
struct admin_space {
	unsigned disks;
	uint64_t raw_bytes, usable_bytes, used_bytes, kept_bytes;
	uint64_t reserved_bytes;
	uint64_t provisioned_bytes; /* what they take once all is written */
};
void admin__space_sum(struct node *node, struct admin_space *out);

/* objects.c: what an object is now, computed, never stored. */
const Directory__Object *admin__object(struct node *node,
				       const ProtobufCBinaryData *oid);
bool node__object_compliant(struct node *node, const Directory__Object *object,
			    char *why, size_t why_len);
enum object_health { OBJECT_HEALTHY, OBJECT_REDUCED, OBJECT_UNAVAILABLE };
enum object_health
node__tree_health(const Directory__TreeNode *tree,
		  bool (*leaf_ok)(const Directory__Leaf *leaf, void *arg),
		  void *arg);
enum object_health node__object_health(struct node *node,
				       const Directory__Object *object);
const char *node__object_health_name(enum object_health health);
uint64_t node__tree_raw(const Directory__TreeNode *tree);
bool node__tree_uses(const Directory__TreeNode *tree, const struct uuid *disk);

/*
 * objects.c: is anything mapped in [@from, @to) of an object?  0: @cb once, later,
 * with 1, 0 or -errno (it cannot be asked now); or -ENOMEM, and no @cb.
 */
int admin__data_check(struct node *node, const struct uuid *oid, uint64_t from,
		      uint64_t to, void (*cb)(void *arg, int result),
		      void *arg);

/*
 * objects.c: space of one object.  0: @cb once, later, with 0 or -errno; or
 * -ENOMEM, and no @cb.
 */
struct object_space {
	uint64_t used_bytes, free_bytes, kept_bytes;
	bool exact; /* else used_bytes is an upper bound */
};
int admin__space_ask(struct node *node, const struct uuid *oid,
		     void (*cb)(void *arg, int status,
				const struct object_space *space),
		     void *arg);

#endif
