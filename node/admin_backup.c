/*
 * admin_backup: cluster backup, a copy of what the disks do not hold.
 *
 * It is made beside data_dir's backup/, and takes its place when all of it is
 * durable: what is found there is whole, the old one or the new one.
 */
#define LOG_ROOM LOG_NODE
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "node/admin_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct backup {
	struct admin_req *r;
	struct env_work work;
	struct cmmds_backup copy;
	struct env_timer patience;
	int status;
	const char *file; /* at which it failed */
	bool foreign; /* what has the place */
	bool placed;
	char path[280], fresh[290], old[290], directory[300];
};

static bool is_backup(const struct admin_req *r, const struct admin_req *other)
{
	return other->msg->command_case ==
	       ADMIN__REQUEST__COMMAND_CLUSTER_BACKUP;
}

/* Is what has the place one of these, or nothing?  What somebody else put there stays. */
static bool is_ours(const char *path)
{
	DIR *d = opendir(path);
	unsigned ours = 0, others = 0;
	struct dirent *e;

	if (d == NULL)
		return errno == ENOENT;
	while ((e = readdir(d)) != NULL) {
		bool is_one = node__identity_has(e->d_name) ||
			      strcmp(e->d_name, "directory") == 0;

		ours += is_one;
		others += !is_one && strcmp(e->d_name, ".") != 0 &&
			  strcmp(e->d_name, "..") != 0;
	}
	closedir(d);
	return others == 0 && (ours == 0 || ours == NODE_IDENTITY_FILES + 1);
}

/* It does not answer in time: that is said now, and it ends when it does. */
static void on_patience(struct env_timer *timer)
{
	struct backup *b = container_of(timer, struct backup, patience);

	admin__why(b->r, -ETIMEDOUT,
		   "Look at the disk under data_dir; basalt health tells when "
		   "it answers.",
		   "%s is not made yet: data_dir does not answer", b->path);
	log_error("backup %s: data_dir does not answer", b->path);
	admin__refuse_early(b->r);
}

static void backup_end(struct backup *b)
{
	struct admin_req *r = b->r;
	struct node *node = r->node;
	char *notes[] = {
		"Keep a copy of it elsewhere, where nobody else can read it: "
		"cluster.key is in it.",
	};
	char what[400];

	env_timer_stop(node->env, &b->patience);
	if (b->status == 0) {
		snprintf(what, sizeof(what),
			 "%s has the directory, node.id, incarnation and "
			 "cluster.key",
			 b->path);
		log_info("backup %s made, for %s", b->path, r->who);
		admin__done(r, what, notes, 1, "", "");
	} else {
		admin__refuse(r);
	}
	node__disks_work_done(node);
}

/* @what cannot be: "cluster.key cannot be copied". */
static void fail(struct backup *b, const char *what)
{
	struct node *node = b->r->node;
	char fix[300] = "Look at the disk under data_dir.";

	if (kv_wants(b->status) && b->status != -ENOSPC && b->status != -EDQUOT)
		kv_wanted_fix(b->status, "give the command again.", fix,
			      sizeof(fix));
	else if (kv_wants(b->status))
		node__datadir_fix(node, "give the command again.", fix,
				  sizeof(fix));
	else if (b->status == -ESHUTDOWN)
		snprintf(fix, sizeof(fix), "Try again once it is up.");
	else if (b->status == -ENOENT && b->file != NULL)
		snprintf(fix, sizeof(fix),
			 "Put a copy of it back into "
			 "data_dir: the next start needs it.");
	if (b->status == -EUCLEAN && b->copy.why[0] != '\0')
		admin__why(b->r, b->status,
			   "Keep the backup that there is, and put it back.",
			   "no backup is made: %s", b->copy.why);
	else if (b->foreign)
		admin__why(b->r, b->status,
			   "Move it away, and give the command again.",
			   "no backup is made: %s is none of this command's, "
			   "and stays",
			   b->path);
	else
		admin__why(b->r, b->status, fix, "no backup is made: %s: %s",
			   what, err_text(b->status));
	log_error("%s", b->r->error);
}

static void clear_work(struct env_work *work)
{
	struct backup *b = container_of(work, struct backup, work);

	/* Once it has the place, the one before it stays until that is durable. */
	if (!b->placed)
		node__tree_remove(b->fresh);
}

static void clear_done(struct env_work *work)
{
	backup_end(container_of(work, struct backup, work));
}

static void step(struct backup *b, void (*work)(struct env_work *work),
		 void (*done)(struct env_work *work))
{
	memset(&b->work, 0, sizeof(b->work));
	b->work.work = work;
	b->work.done = done;
	env_work(b->r->node->env, NULL, &b->work);
}

/* What there is of it goes, and why was said. */
static void undo(struct backup *b, const char *what)
{
	fail(b, what);
	step(b, clear_work, clear_done);
}

/* Some file systems cannot exchange two names; then it is away for a moment. */
static int take_place(struct backup *b)
{
	if (rename(b->fresh, b->path) == 0)
		return 0;
	if (errno != EEXIST && errno != ENOTEMPTY)
		return -errno;
	if (renameat2(AT_FDCWD, b->fresh, AT_FDCWD, b->path, RENAME_EXCHANGE) ==
	    0)
		return 0;
	if (rename(b->path, b->old) < 0)
		return -errno;
	if (rename(b->fresh, b->path) < 0) {
		int rv = -errno;

		return rename(b->old, b->path) < 0 ? -errno : rv;
	}
	return 0;
}

static void end_work(struct env_work *work)
{
	struct backup *b = container_of(work, struct backup, work);

	b->status = node__dir_sync(b->fresh);
	if (b->status == 0)
		b->status = take_place(b);
	b->placed = b->status == 0;
	if (b->placed)
		b->status = node__dir_sync(b->r->node->config->data_dir);
	if (b->status == 0) { /* the one before it */
		node__tree_remove(b->fresh);
		node__tree_remove(b->old);
	}
}

static void end_done(struct env_work *work)
{
	struct backup *b = container_of(work, struct backup, work);
	char what[320];

	snprintf(what, sizeof(what), "%s cannot be replaced", b->path);
	if (b->status < 0)
		undo(b, what);
	else
		backup_end(b);
}

static void copied(struct cmmds_backup *copy, int status)
{
	struct backup *b = container_of(copy, struct backup, copy);

	b->status = status;
	if (status < 0)
		undo(b, "the directory cannot be copied");
	else
		step(b, end_work, end_done);
}

static void begin_work(struct env_work *work)
{
	struct backup *b = container_of(work, struct backup, work);

	/* Of a run that was cut off, maybe while the one before was away. */
	node__tree_remove(b->fresh);
	if (rename(b->old, b->path) < 0 &&
	    (errno == EEXIST || errno == ENOTEMPTY))
		node__tree_remove(b->old);
	b->foreign = !is_ours(b->path);
	if (b->foreign)
		b->status = -EEXIST;
	else if (mkdir(b->fresh, 0700) < 0)
		b->status = -errno;
	else
		b->status = node__identity_copy(b->r->node->config->data_dir,
						b->fresh, &b->file);
}

static void begin_done(struct env_work *work)
{
	struct backup *b = container_of(work, struct backup, work);
	char what[320];

	if (b->status < 0) {
		if (b->file != NULL)
			snprintf(what, sizeof(what), "%s cannot be copied",
				 b->file);
		else
			snprintf(what, sizeof(what), "%s cannot be made",
				 b->fresh);
		undo(b, what);
		return;
	}
	b->file = NULL;
	b->copy.path = b->directory;
	b->status = cmmds_backup(b->r->node->cmmds, &b->copy, copied);
	if (b->status < 0)
		undo(b, "the directory cannot be copied");
}

void admin__cluster_backup(struct admin_req *r)
{
	struct node *node = r->node;
	struct backup *b;

	if (admin__another(r, is_backup)) {
		admin__why(r, -EBUSY, "Wait for it to end.",
			   "a backup is being made");
		admin__refuse(r);
		return;
	}
	b = calloc(1, sizeof(*b));
	if (b == NULL) {
		admin__no_memory(r);
		return;
	}
	r->ctx = b;
	b->r = r;
	snprintf(b->path, sizeof(b->path), "%s/backup", node->config->data_dir);
	snprintf(b->fresh, sizeof(b->fresh), "%s/.backup.new",
		 node->config->data_dir);
	snprintf(b->old, sizeof(b->old), "%s/.backup.old",
		 node->config->data_dir);
	snprintf(b->directory, sizeof(b->directory), "%s/directory", b->fresh);
	b->patience.cb = on_patience;
	env_timer_start(node->env, &b->patience, ADMIN__HANGS_NS);
	node->disks_works++; /* all of this ends before the directory does */
	step(b, begin_work, begin_done);
}
