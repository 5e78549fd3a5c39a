/* node_int: what the files of node share. */
#ifndef BASALT_NODE_NODE_INT_H
#define BASALT_NODE_NODE_INT_H

#include "base/env.h"
#include "base/health.h"
#include "base/page.h"
#include "base/shard.h"
#include "base/uuid.h"
#include "cmmds/cmmds.h"
#include "dom/dom.h"
#include "iscsi/iscsi.h"
#include "iser/iser.h"
#include "lsom/lsom.h"
#include "node/config.h"
#include "node/node.h"

#include <stdbool.h>

#define NODE_KEY_LEN 32u
#define NODE_DISK_MIN (64ull << 20) /* bytes */
#define NODE_LOOK_NS (10 * SEC) /* how often what is missing is looked for */
#define NODE_AGAIN_MAX_NS (5 * 60 * SEC) /* the longest pause between tries */

/* ---- identity.c: the small files of data_dir ---- */

struct node_identity {
	struct uuid id; /* node.id */
	uint64_t incarnation; /* of this run; rises at each start */
	int lock_fd;
};

/*
 * Make @data_dir if need be, lock it, read or draw node.id, and store the next
 * incarnation durably.  0; -EBUSY (another basaltd has it); -errno; @why.
 */
int node__identity_open(const char *data_dir, struct node_identity *out,
			char *why, size_t why_len);
void node__identity_close(struct node_identity *identity);
#define NODE_IDENTITY_FILES 3u
bool node__identity_has(const char *name); /* is it one of them? */
/* node.id, incarnation and cluster.key to folder @to.  0 or -errno, of *@file. */
int node__identity_copy(const char *data_dir, const char *to,
			const char **file);

/*
 * cluster.key, mode 0600.  Load: 0, -ENOENT, -EACCES (others may read it),
 * -EUCLEAN.  Make: durable when it returns; -EEXIST.
 */
int node__key_load(const char *data_dir, uint8_t key[NODE_KEY_LEN], char *why,
		   size_t why_len);
int node__key_make(const char *data_dir, const uint8_t key[NODE_KEY_LEN],
		   char *why, size_t why_len);

/* What was made, renamed or removed in folder @dir is durable.  0 or -errno. */
int node__dir_sync(const char *dir);

/* ---- secret.c: CHAP secrets at rest ---- */

/*
 * Seal @len bytes for the directory: AES-256-GCM with a random nonce, key from
 * cluster.key by HKDF-SHA-256.  @context (the target's name and which of its
 * secrets) is authenticated, so that a sealed secret cannot be moved.  The
 * result is malloc()ed.  Both return 0 or -errno; open: -EBADMSG if it was not
 * sealed with this key and context, -EMEDIUMTYPE for another version.
 */
int node__secret_seal(const uint8_t key[NODE_KEY_LEN], const uint8_t nonce[12],
		      const char *context, const uint8_t *secret, size_t len,
		      uint8_t **out, size_t *out_len);
int node__secret_open(const uint8_t key[NODE_KEY_LEN], const char *context,
		      const uint8_t *sealed, size_t sealed_len, uint8_t *out,
		      size_t out_max, size_t *len);
#define NODE_SEAL_NONCE 12u
void node__wipe(void *buf, size_t len);

/* ---- probe.c: may this path become a disk? ---- */

struct node_probe {
	bool block_device;
	uint64_t bytes; /* of what is there */
	char found[256]; /* what speaks against it; empty: nothing */
	bool never; /* in use: not even by force */
	bool read_only; /* a device that takes no write */
	struct lsom_probe lsom;
};

/* Blocking.  0 or -errno with @why. */
int node__probe(struct env *env, const char *path, struct node_probe *out,
		char *why, size_t why_len);

/* Is device @major:@minor, or a part of it, mounted or swap?  Over text. */
bool node__probe_mounted(const char *mountinfo, unsigned major, unsigned minor,
			 char *where, size_t where_len);

/* The name of an entry of @dir, not "." or ".."; false: there is none. */
bool node__dir_first(const char *dir, char *name, size_t len);

/* What device-mapper's @name, "dm-0", was named when it was made; false: it is none. */
bool node__map_name(const char *name, char *given, size_t len);

/* ---- answers.c: does a device answer at all? ---- */

/*
 * Blocking, for up to 5 s; false without waiting where one that did not answer
 * has not done so since.  True also where that cannot be tried.
 */
bool node__device_answers(const char *path);

/* ---- locate.c: where a disk is now ---- */

struct stat;

/* Is the device a path of a multipath map, whether the map is there or not? */
bool node__is_map_path(const struct stat *st);

/*
 * The kernel names devices as it finds them, so a disk may come back under
 * another name: @out is @path if disk @id of @cluster is there, else the one
 * block device that has it.  Blocking; devices that do not answer are passed
 * over.  0, also if nothing has it and @path may;
 * with @why: -ENOENT (@path is another disk), -ENOTUNIQ (several have it),
 * -ENODEV (only paths of a multipath map have it, which is not there).
 */
int node__disk_locate(struct env *env, const struct uuid *cluster,
		      const struct uuid *id, const char *path, char *out,
		      size_t len, char *why, size_t why_len);

/*
 * Blocking: does @path have disk @id of @cluster, whole?  By its superblock and
 * size.  If so @generation is its log's.
 */
bool node__disk_is_at(struct env *env, const struct uuid *cluster,
		      const struct uuid *id, const char *path,
		      uint64_t *generation);

/* ---- disks.c ---- */

/* Which file or device it is, by whatever name; all 0: not known. */
struct node_inode {
	dev_t dev;
	ino_t ino;
};
struct stat;
struct node_inode node__inode(const struct stat *st);
bool node__inode_same(struct node_inode a, struct node_inode b);

enum node_disk_state {
	NODE_DISK_OPENING,
	NODE_DISK_ONLINE,
	NODE_DISK_FAILED, /* could not be opened: @why */
	NODE_DISK_CLOSING,
	NODE_DISK_CLOSED, /* taken out of service by a command */
};

/* A disk as one shard has it: for that shard's loop, but for @disk at rest. */
struct node_seat {
	struct node_disk *d;
	unsigned shard;
	struct lsom_disk *disk;
	struct lsom_attach attach;
	struct lsom_detach detach;
	int status;
	bool added; /* the shard's dom has it */
	struct env_task there, here;
};

struct node_disk {
	struct node *node;
	struct uuid id;
	char path[256]; /* where it is; the directory: where it was added */
	char found[256], index_path[300];
	struct node_inode inode; /* what @path was when it was last opened */
	struct node_inode found_inode; /* the worker's */
	enum node_disk_state state;
	unsigned flags; /* of the open that runs, or that failed: NODE_OPEN_* */
	int status; /* of the open that failed */
	char why[256];
	unsigned shard; /* the disk's home */
	struct lsom_disk *home; /* the disk, for its home's loop only */
	struct lsom_disk *disk; /* the same for this one: @home, or a view */
	struct lsom_disk_open open;
	struct lsom_disk_close close;
	struct env_task there, here; /* to the home and back */
	struct node_seat *seats; /* one a shard */
	unsigned seats_pending;
	struct lsom_disk_watch watch;
	struct env_work work;
	enum lsom_disk_state seen; /* last logged */
	bool settled; /* opened or failed once: portals wait for it */
	bool erase; /* drop the record once it is closed, or not opened */
	bool leaving; /* a command is taking it out of the directory */
	bool silent; /* that it does not answer was logged */
	uint64_t closing_ns; /* when its close began, in state CLOSING */
	uint64_t closing_silent_ns; /* how long it had not answered by then */
	bool locating; /* of the open that runs: where it is is looked for */
	bool asked; /* while it is opened: what was seen of @open last */
	unsigned answers;
	uint64_t asked_ns; /* since then */
	bool by_hand; /* it failed in service: only a command opens it again */
	bool again; /* the open that runs was nobody's command */
	uint64_t pause_ns,
		next_ns; /* since the last failed; when the next is */
	uint64_t
		thin_ns; /* look.c: when an object was seen that has not all reserved */
	struct node_scrub *scrub; /* the last one, or NULL */
	uint64_t scrub_ns; /* none of itself before that; 0: not known yet */
	void (*done)(struct node_disk *disk, int status, void *arg);
	void *done_arg;
	TAILQ_ENTRY(node_disk) link;
};

/* push.c: the directory's key of a LUN; its length. */
size_t node__lun_key(const char *target, unsigned lun,
		     uint8_t out[CMMDS_KEY_MAX]);

/* objects.c: the virtual disk whose object @oid is, or NULL. */
const struct cmmds_entry *node__vdisk_of(struct node *node,
					 const struct uuid *oid);

/* ---- scrub.c ---- */

#define NODE_SCRUB_DAYS 30u /* unless the directory says otherwise */

struct node_scrub {
	struct node_disk *d;
	struct lsom_scrub req; /* the home's while it runs, but for @percent */
	struct env_task there, cancel, here;
	bool over; /* the home's: it has ended */
	bool stopping;
	unsigned pending; /* it, and what calls it off; 0: it has ended */
	int status;
	uint64_t begun_ns;
	uint64_t ended_wall_ns; /* 0: not to its end */
	char who[64];
};

/* Begin one; @who is told in the log.  0, -EBUSY (one runs), -ENODEV, -ENOMEM. */
int node__scrub_start(struct node_disk *d, const char *who);
void node__scrub_stop(struct node_disk *d);
bool node__scrub_runs(const struct node_disk *d);

/* One that runs, and how the last one ended. */
struct node_scrubbed {
	bool running;
	unsigned percent;
	uint64_t wall_ns; /* 0: never */
	uint64_t bad_count;
	unsigned segments_unread;
	const struct lsom_scrub_bad *bad; /* NULL: not known any more */
};
void node__scrub_known(const struct node_disk *d, struct node_scrubbed *out);
/* Whose a bad block is, and where in it; NULL: nobody's any more. */
const Directory__VDisk *node__scrub_place(struct node *node,
					  const struct lsom_scrub_bad *bad,
					  uint64_t *offset);
/* How many days after a disk was scrubbed it is due; 0: never. */
unsigned node__scrub_days(struct node *node);
/* Is a disk to be read through of itself?  @days: not 0. */
bool node__scrub_due(unsigned days, uint64_t added_wall_ns,
		     uint64_t scrubbed_wall_ns, uint64_t now_wall_ns);
/* Now and then: begin what is due. */
void node__scrubs_look(struct node *node);

/* Follow the directory: open what it says is ours, close what it forgot. */
void node__disks_start(struct node *node);
/* Those of the directory for which there was no memory when they came. */
void node__disks_appear(struct node *node);
void node__disks_stop(struct node *node); /* then node__disks_stopped() */
bool node__disks_settled(struct node *node);
void node__disks_late(struct node *node); /* log what a shutdown waits for */

/* disk_look.c: look at them every NODE_LOOK_NS, by node->disks_look. */
void node__disks_look(struct node *node);

/* One of node->disks_works has ended. */
void node__disks_work_done(struct node *node);

/* ---- adding.c: blocking, all of it ---- */

/* File @path, not there yet, is going to be made disk @id.  0 or -errno. */
int node__adding_note(struct node *node, const struct uuid *id,
		      const char *path);
/* It is there, @fd: only that file is meant.  0 or -errno. */
int node__adding_made(struct node *node, const struct uuid *id, int fd);
/* No more: its data may matter from now on, or it is gone.  Durable.  0 or -errno. */
int node__adding_over(struct node *node, const struct uuid *id);
/* What an earlier life left so is removed if it is nobody's loss, and told of. */
void node__adding_clear(struct node *node);

/* sweep.c: remove indexes that belong to no disk, once.  True: it has begun. */
bool node__sweep(struct node *node);

/*
 * Open a disk that the directory may not know yet, @flags NODE_OPEN_*; @done once,
 * later.  0, -EBUSY (it is in use already), -ENOENT (the directory has just
 * forgotten it), -ENOMEM.  If it fails for what can get well by itself it is tried
 * again, unless it had failed in service.
 */
#define NODE_OPEN_REBUILD (1u << 0) /* with an index made anew from its log */
#define NODE_OPEN_LOSE_UNREADABLE (1u << 1) /* as lsom_disk_open has it */
typedef void (*node_disk_cb)(struct node_disk *disk, int status, void *arg);
int node__disk_open(struct node *node, const struct uuid *id, const char *path,
		    unsigned flags, node_disk_cb done, void *arg);

/* Close it: 0, -EBUSY.  @done with the record (gone after it if @forget). */
int node__disk_close(struct node_disk *disk, bool forget, node_disk_cb done,
		     void *arg);

/*
 * The directory has forgotten it, or is about to be told so: close it, or as soon
 * as what opens or closes it ends; who waits for that hears -ENOENT.  0: @done once
 * it is closed, before the record goes; -EBUSY: it is neither open nor under way.
 */
int node__disk_leave(struct node_disk *disk, node_disk_cb done, void *arg);

/*
 * How long it has not answered, while it is open, opened or closed; 0: it does.
 * NODE_SILENT_MAX has room for what node__silent_tell() says of it.
 */
uint64_t node__disk_silent_ns(struct node_disk *disk);
#define NODE_SILENT_MAX 128u
void node__silent_tell(const struct node_disk *disk, uint64_t silent_ns,
		       char out[NODE_SILENT_MAX]);
struct node_disk *node__disk_find(struct node *node, const struct uuid *id);

/* Where a disk of the directory is: for ours, where we found it. */
char *node__disk_path(struct node *node, const Directory__Disk *disk);

/* It is not there, not only there, or what is there is not whole. */
bool node__disk_is_missing(const struct node_disk *disk);

/* A look at the superblock tells when it is over. */
bool node__disk_is_looked_for(const struct node_disk *disk);

/* Only another try tells whether it is over; and it can be. */
bool node__disk_is_retried(const struct node_disk *disk);

/* Is it a copy of the disk as it was earlier? */
bool node__disk_is_older(const struct node_disk *disk);

/* Is it open, and has it failed since? */
bool node__disk_has_failed(const struct node_disk *disk);

/* Blocking: a directory and all in it. */
void node__tree_remove(const char *path);

/* Drop the record of a disk that is FAILED or CLOSED. */
void node__disk_forget(struct node_disk *disk);
void node__disk_index_path(struct node *node, const struct uuid *id, char *out,
			   size_t len);

/* ---- advice.c ---- */

/* Does a shell take @word as it is? */
bool node__is_plain(const char *word);

/* What to do about one that was damaged when it was opened. */
#define NODE_DAMAGE_FIX                                                        \
	"Read the virtual disks on it through: what cannot be read must be "   \
	"written again, from a backup."

/* What to do where the device cannot read all of it. */
#define NODE_MEDIA_FIX                                                         \
	"The kernel's log and smartctl say more; back up what lies on it, "    \
	"and replace a device that goes on like this."

/* What to do about one that does not answer. */
#define NODE_SILENT_FIX                                                        \
	"See to it: the kernel's log may say why.  It goes on when it "        \
	"answers, and is out of service when the kernel gives it up."

/* The same, whatever its state. */
void node__silent_fix(const struct node_disk *disk, char *out, size_t len);

/* What to say of one that the directory has forgotten and that is still here. */
void node__leaving_tell(struct node_disk *disk, char out[NODE_SILENT_MAX]);

/* One that waits for what its index wants: lsom_disk_info.index_wants. */
#define NODE_WANTS_MAX 96u
void node__index_wants_tell(int status, char out[NODE_WANTS_MAX]);
/* What there is to be more of for a store, so that @then: kv_wants(). */
void node__wanted_fix(const struct node *node, int status, const char *then,
		      char *out, size_t len);

/* What to do where others have space that is reserved. */
#define NODE_UNCOVERED_FIX                                                     \
	"Delete or unmap data on it, or delete a virtual disk there that "     \
	"reserves space."

/*
 * How commands name @disk to people: by its path, or by its id where the path is
 * more than a plain word to a shell, or too long.  Returns @out.
 */
#define NODE_DISK_WORD_MAX 101u
const char *node__disk_word(const struct node_disk *disk,
			    char out[NODE_DISK_WORD_MAX]);

/* What to do about a disk that is FAILED or CLOSED. */
void node__disk_fix(const struct node_disk *disk, char *out, size_t len);

/* What to do about one that failed in service, or waits for room for its index. */
void node__disk_failed_fix(const struct node_disk *disk,
			   const struct lsom_disk_info *info, char *out,
			   size_t len);

/* ---- datadir.c: what is left where data_dir is ---- */

/* Free bytes, and files; below them health is bad, or warns. */
#define NODE_DATADIR_BAD (32ull << 20)
#define NODE_DATADIR_WARN (256ull << 20)
#define NODE_DATADIR_WARN_PERCENT 5u
#define NODE_DATADIR_FILES_BAD 100u
#define NODE_DATADIR_FILES_WARN 1000u

struct node_datadir {
	bool known, read_only;
	int status; /* below 0: it cannot be asked, and the rest is not known */
	uint64_t free_bytes, bytes, free_files;
};

/* Ask again, on a worker; until then what was found last counts. */
void node__datadir_ask(struct node *node);
/* @why: of one that is not HEALTH_OK. */
enum health_level node__datadir_level(const struct node *node, char *why,
				      size_t len);

/* What to do when a write there has failed for space: then @then. */
void node__datadir_fix(const struct node *node, const char *then, char *out,
		       size_t len);

/* ---- push.c ---- */

struct push;
int node__push_open(struct node *node, struct push **out);
void node__push_close(struct push *push);
/* A target whose CHAP secret cannot be opened, so that nobody is let in; NULL. */
const char *node__push_shut(const struct push *push);

/* ---- portals.c ---- */

struct node_portal {
	bool known; /* to iscsi */
	bool tcp, iser; /* served by it, or to be as soon as it can */
	int status; /* of the last try; below 0 it is tried again */
	unsigned zone; /* the number that its interface had then */
};

/*
 * Serve the portals of the configuration as the directory says, and follow what
 * it says later; one that cannot be served is tried again.  Returns how many are
 * served.
 */
unsigned node__portals_start(struct node *node);
void node__portals_stop(struct node *node);

/* None is served: has one an address, or an interface, that may come yet? */
bool node__portals_may_come(const struct node *node);

/*
 * Has this machine the address of @portal, now?  0; -EADDRNOTAVAIL, -ENODEV: what
 * listens there is not reached.
 */
int node__portal_there(const struct config_portal *portal);

/* Why @portal cannot be listened on, with @status. */
void node__listen_why(const struct config_portal *portal, int status, char *out,
		      size_t len);

/* How portal @index shall be served. */
Directory__Portal__Transport node__portal_transport(struct node *node,
						    unsigned index);

/* ---- admin.c ---- */

struct admin;
int node__admin_open(struct node *node, struct admin **out, char *why,
		     size_t why_len);
/* No new requests; those that run get a while, then @cb. */
void node__admin_close(struct admin *admin, void (*cb)(void *arg), void *arg);

/* ---- parts.c: work on very many things ---- */

#define NODE_PART 128u /* of them in a turn of the loop, all works together */

struct node_parts {
	/*
	 * Go on with @max of them at most.  True: there are more.  Else it is over,
	 * and @parts may be gone.
	 */
	bool (*part)(struct node_parts *parts, unsigned max);
	/* private */
	TAILQ_ENTRY(node_parts) link;
};
void node__parts_open(struct node *node);
/* From the next turn on. */
void node__parts_start(struct node *node, struct node_parts *parts);
/* One that is not over, and not in its part(). */
void node__parts_stop(struct node *node, struct node_parts *parts);

/*
 * The entries of a kind in key order, zeroed before the first part.  What comes or
 * goes between two parts may be seen or not; nothing is seen twice.
 */
struct node_walk {
	size_t left; /* of this part; @each takes from it what it does beside */
	/* private */
	uint8_t key[CMMDS_KEY_MAX]; /* of the last that was seen */
	size_t key_len;
};
/*
 * @each of up to @max more; it changes nothing, and returns false to see no more.
 * 1: there are more, 0: that was all, -ESHUTDOWN: the node is not up.
 */
int node__walk(struct node *node, struct node_walk *walk, enum cmmds_kind kind,
	       unsigned max,
	       bool (*each)(const struct cmmds_entry *e, void *arg), void *arg);
/* Only what is behind @key. */
void node__walk_from(struct node_walk *walk, const void *key, size_t key_len);

/* ---- look.c ---- */

/* What all virtual disks and targets come to.  Of some the first is named. */
struct node_looked {
	uint64_t since_ns;
	unsigned vdisks, unavailable, noncompliant;
	char an_unavailable[CMMDS_KEY_MAX + 1],
		a_noncompliant[CMMDS_KEY_MAX + 1];
	char noncompliant_why[200];
	/* Without CHAP: who let everybody in, and nobody. */
	unsigned targets_open, targets_closed;
	char an_open[CMMDS_KEY_MAX + 1], a_closed[CMMDS_KEY_MAX + 1];
};

struct node_look {
	/* private */
	struct node *node;
	struct node_parts parts;
	struct node_walk walk;
	enum cmmds_kind kind;
	struct node_looked found;
	struct dom_data_look data; /* the last, and dom is asked */
	bool of_dom;
	void (*cb)(struct node_look *look);
};
/*
 * Find it anew: it is in node->looked when @cb runs, once, later; there health and
 * metrics have it from.  Where the node is not up, or goes down, @cb runs, too.
 */
void node__look(struct node *node, struct node_look *look,
		void (*cb)(struct node_look *look));

/* Before @cb: it does not run. */
void node__look_drop(struct node_look *look);

/* ---- health.c, metrics.c ---- */

/* They and the next tell of what the last look has found. */

void node__health_open(struct node *node);
void node__health_close(struct node *node);
enum health_level node__health_worst(void);

struct metrics;
/* Serve them where the configuration says; tried again until that works. */
void node__metrics_start(struct node *node);
void node__metrics_stop(struct node *node);
/* Register what node itself counts. */
void node__metrics_register(struct node *node);

/* A text that grows.  Nothing is added any more once there was no memory for it. */
struct node_text {
	char *data; /* free()d by the caller; NULL: empty */
	size_t len, room;
	bool failed;
};
void node__print(struct node_text *text, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* All in the Prometheus text format. */
#define NODE_VDISK_FAMILIES 9u
struct node_metrics {
	char *text; /* malloc()ed; the caller takes it */
	/* private */
	struct node *node;
	struct node_look look;
	struct node_parts parts;
	struct node_walk walk;
	bool walked;
	struct node_text all, families[NODE_VDISK_FAMILIES];
	unsigned joined;
	void (*cb)(struct node_metrics *metrics, int status);
};
/* @cb once, later, with 0, -ENOMEM, or -ESHUTDOWN: the node went down meanwhile. */
void node__metrics_make(struct node *node, struct node_metrics *metrics,
			void (*cb)(struct node_metrics *metrics, int status));
/* Before @cb: it does not run. */
void node__metrics_drop(struct node_metrics *metrics);

/* ---- families.c ---- */

/* Metrics with labels: of each disk and health check. */
void node__families_put(struct node_text *text, struct node *node);
/* And of each virtual disk, a text for each family; they begin with its head. */
void node__vdisk_heads_put(struct node_text texts[NODE_VDISK_FAMILIES]);
void node__vdisk_put(struct node_text texts[NODE_VDISK_FAMILIES],
		     struct node *node, const Directory__VDisk *vdisk);

/* What initiators did with @vdisk: nothing where no target shows it. */
void node__usage(struct node *node, const Directory__VDisk *vdisk,
		 struct iscsi_usage *out);

/* ---- shards.c ---- */

struct node_shard {
	struct node *node;
	struct env *env;
	struct cmmds *cmmds; /* a mirror */
	struct dom *dom;
	int status;
	struct env_task there, here;
};

/* Once node->dom and the stores are open.  @done, maybe at once. */
void node__shards_open(struct node *node,
		       void (*done)(struct node *node, int status));
/* Once node->dom is closed, or was never open. */
void node__shards_close(struct node *node,
			void (*done)(struct node *node, int status));

/* ---- node.c ---- */

enum node_state {
	NODE_STARTING, /* the directory is being opened */
	NODE_ALONE, /* no cluster yet: only `cluster init` helps */
	NODE_UP,
	NODE_STOPPING,
	NODE_CLOSED,
};

TAILQ_HEAD(node_disk_list, node_disk);

struct node {
	const struct config *config;
	struct node_identity identity;
	uint8_t key[NODE_KEY_LEN];
	bool key_there;

	struct arena *arena;
	bool arena_locked;
	struct shards *shards;
	struct env *env; /* of the first shard */
	struct env *envs[CONFIG_SHARDS_MAX];

	enum node_state state;
	bool serving; /* the portals listen */
	unsigned portals_listening;
	struct node_portal portals[CONFIG_PORTALS_MAX];
	struct cmmds_subscription portals_sub;
	bool portals_subscribed;
	struct env_timer portals_look; /* for those that are not served */
	int exit_status;
	uint64_t started_ns;

	struct cmmds_open directory_open;
	struct cmmds_command command;
	struct cmmds *cmmds;
	char directory_path[256];
	bool founding, directory_opening, rooms_opening;
	bool entry_waits; /* this run's, for a directory that does not answer */
	char cluster_name[64];
	struct uuid cluster; /* zero: none */
	void (*init_done)(void *arg, int status, const char *why);
	void *init_arg;
	struct env_timer init_timer; /* do not let him wait for ever */
	char who[64]; /* who asked for `cluster init` */

	struct lsom *lsom[CONFIG_SHARDS_MAX]; /* one a shard */
	struct dom *dom; /* of the first shard */
	struct dom *doms[CONFIG_SHARDS_MAX];
	struct node_shard shard[CONFIG_SHARDS_MAX]; /* the others */
	unsigned shards_pending;
	int shards_status;
	void (*shards_done)(struct node *node, int status);
	struct iscsi *iscsi;
	struct iser *iser;
	struct push *push;
	struct admin *admin;
	TAILQ_HEAD(, node_parts) parts; /* works, the next one first */
	struct env_timer parts_timer;
	struct node_looked looked;
	struct metrics *metrics;
	struct env_timer metrics_look;
	int metrics_status; /* of the last try to listen */

	struct node_disk_list disks;
	struct cmmds_subscription disks_sub;
	bool disks_subscribed, disks_closed;
	struct env_timer disks_look; /* for those that are missing */
	unsigned disks_looking; /* for how many of them just now */
	unsigned disks_works; /* on a worker; the disks' end waits for them */
	bool swept;
	bool datadir_asked;
	struct node_datadir datadir; /* datadir.c */

	struct env_timer serve_timer; /* do not wait for a slow disk for ever */
	struct env_timer units_timer; /* looks whether all are open */
	struct env_timer stop_timer;
	uv_signal_t signals[3];
	struct health_check checks[10];
};

/*
 * Found a cluster of this node.  0, and @cb later; -EEXIST (it is in one),
 * -EBUSY (one is being founded, or the node starts or stops).  If the directory
 * does not answer @cb has -ETIMEDOUT and no @why: the founding goes on, and the
 * same call waits for it again.
 */
int node__cluster_init(struct node *node, const char *name, const char *who,
		       void (*cb)(void *arg, int status, const char *why),
		       void *arg);

/* The next step down, when what it waited for is over. */
void node__stop_go_on(struct node *node);

/* From disks.c, when the last disk is closed. */
void node__disks_stopped(struct node *node);

/* Listen, once disks are settled; called when something changed. */
void node__serve_if_ready(struct node *node);

#endif
