/*
 * admin_diskadd: a disk is taken in.
 *
 * Claim it, so that nobody else takes it by another name; look at what is there,
 * refuse what somebody may miss; make the file if it is one; format; open; enter
 * it into the directory.  A step that fails undoes what was made, so that the
 * command can simply be repeated.  A device that hangs is not waited for: the
 * command is answered, and what was made is undone when the device answers.
 */
#define LOG_ROOM LOG_NODE
#include "base/err.h"
#include "base/log.h"
#include "base/shard.h"
#include "base/size.h"
#include "base/util.h"
#include "node/admin_int.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static struct node_disk *disk_known(struct node *node, const char *path)
{
	struct node_disk *d;

	TAILQ_FOREACH (d, &node->disks, link)
		if (strcmp(d->path, path) == 0)
			return d;
	return NULL;
}

static bool same_path(const struct admin_req *r, const struct admin_req *other)
{
	return other->msg->command_case == ADMIN__REQUEST__COMMAND_DISK_ADD &&
	       strcmp(other->msg->disk_add->path, r->msg->disk_add->path) == 0;
}

struct disk_add {
	struct admin_req *r;
	struct env_work work;
	struct env_timer tick;
	struct node_probe probe;
	struct lsom_format format;
	char path[256], why[640];
	char index_path[300];
	uint64_t size;
	_Atomic unsigned percent;
	_Atomic unsigned steps; /* the worker's, so far */
	unsigned steps_seen;
	uint64_t step_ns; /* when the last one was seen */
	int status;
	bool made; /* the file is ours to remove */
	bool noted; /* for a later life */
	bool unnoted; /* it cannot be */
	bool unknown; /* the disk that is there, to the directory */
	bool twin; /* it has a disk of this node, under another name */
	bool moved; /* a file, and nothing is where that disk is looked for */
	bool late; /* it was answered: what there is, is undone */
	struct node_inode inode; /* the worker's */
	struct node_inode claimed; /* known to other requests */
	struct node_disk *disk;
	struct lsom_disk_info info;
};

static void add_late(struct disk_add *a)
{
	a->late = true;
	if (a->r->status == 0)
		admin__why(a->r, -ETIMEDOUT,
			   "See to it: the kernel's log may say why.  What was "
			   "begun is undone when it answers, or the kernel "
			   "gives it up.",
			   "%s does not answer: it is not added", a->path);
	log_error("disk %s: it does not answer, and is not added", a->path);
	admin__refuse_early(a->r);
}

static void on_tick(struct env_timer *timer)
{
	struct disk_add *a = container_of(timer, struct disk_add, tick);
	struct node *node = a->r->node;
	struct node_disk *d = node__disk_find(node, &a->format.disk);
	unsigned percent = d != NULL ? d->open.percent : a->percent;
	unsigned steps = a->steps + (d != NULL ? percent : 0);

	if (steps != a->steps_seen)
		a->step_ns = env_now(node->env);
	a->steps_seen = steps;
	if (env_now(node->env) - a->step_ns >= ADMIN__HANGS_NS) {
		add_late(a);
		return;
	}
	admin__progress(a->r, percent, d != NULL ? "opening" : "formatting");
	env_timer_start(node->env, &a->tick, 500 * MSEC);
}

/* The device is at work from now on; where it is not: the tick is stopped. */
static void add_watch(struct disk_add *a)
{
	a->step_ns = env_now(a->r->node->env);
	a->tick.cb = on_tick;
	env_timer_start(a->r->node->env, &a->tick, 500 * MSEC);
}

static void add_refused(struct disk_add *a)
{
	env_timer_stop(a->r->node->env, &a->tick);
	admin__refuse(a->r);
}

static void on_format_progress(struct lsom_format *format, unsigned percent)
{
	struct disk_add *a = format->data;

	a->percent = percent;
	a->steps++;
}

/* Worker: 0, or status and why. */
static int add_refuse(struct disk_add *a, int status, const char *why)
{
	if (why != NULL)
		snprintf(a->why, sizeof(a->why), "%s", why);
	return status;
}

/* No force helps against the loss of the directory, or of the cluster's key. */
static bool is_basaltds(const char *data_dir, const char *path)
{
	static const char *const ours[] = { "directory",   "index",
					    "cluster.key", "node.id",
					    "incarnation", "lock",
					    "adding" };
	char dir[PATH_MAX], real[PATH_MAX];
	size_t len;

	if (realpath(data_dir, dir) == NULL || realpath(path, real) == NULL)
		return false;
	len = strlen(dir);
	if (strncmp(real, dir, len) != 0 || real[len] != '/')
		return false;
	for (size_t i = 0; i < ARRAY_LEN(ours); i++) {
		const char *in = real + len + 1;
		size_t n = strlen(ours[i]);

		if (strncmp(in, ours[i], n) == 0 &&
		    (in[n] == '\0' || in[n] == '/'))
			return true;
	}
	return false;
}

/* A file that was formatted, and then nobody came to open it: nothing is in it. */
static bool add_left(const struct disk_add *a)
{
	const struct node_probe *p = &a->probe;

	return !p->block_device && p->lsom.unused &&
	       uuid_equal(&p->lsom.cluster, &a->r->node->cluster);
}

static int add_examine(struct disk_add *a)
{
	const Admin__DiskAdd *m = a->r->msg->disk_add;
	const struct node_probe *p = &a->probe;
	char id[UUID_TEXT_LEN];
	int rv = node__probe(a->r->node->env, a->path, &a->probe, a->why,
			     sizeof(a->why));

	if (rv < 0)
		return rv;
	if (is_basaltds(a->r->node->config->data_dir, a->path)) {
		snprintf(a->why, sizeof(a->why),
			 "%s is where basaltd keeps its own: no disk", a->path);
		return -ENOTBLK;
	}
	if (p->read_only) {
		snprintf(a->why, sizeof(a->why), "%s is read-only", a->path);
		return -EROFS;
	}
	if (p->never) {
		snprintf(a->why, sizeof(a->why), "%s is in use: %s", a->path,
			 p->found);
		return -EBUSY;
	}
	if (p->lsom.ours && !m->force_erase && !add_left(a)) {
		uuid_format(&p->lsom.disk, id);
		snprintf(a->why, sizeof(a->why), "%s holds disk %s of %s",
			 a->path, id,
			 uuid_equal(&p->lsom.cluster, &a->r->node->cluster)
				 ? "this cluster"
				 : "another Basalt cluster");
		return -EEXIST;
	}
	if (p->found[0] != '\0' && !m->force_erase) {
		snprintf(a->why, sizeof(a->why), "%s is not empty: %s", a->path,
			 p->found);
		return -EEXIST;
	}
	if (p->block_device && m->size_bytes != 0)
		return add_refuse(
			a, -EINVAL,
			"--size is for files; a device is used whole");
	if (!p->block_device && m->size_bytes != 0 && p->bytes != 0 &&
	    p->bytes != m->size_bytes && !m->force_erase) {
		snprintf(a->why, sizeof(a->why),
			 "%s exists with another size than --size", a->path);
		return -EEXIST;
	}
	a->size = m->size_bytes != 0 ? m->size_bytes : p->bytes;
	if (a->size < NODE_DISK_MIN) {
		snprintf(a->why, sizeof(a->why),
			 "%s: %llu bytes are not enough: a disk has 64M at "
			 "least",
			 a->path, (unsigned long long)a->size);
		return -EINVAL;
	}
	return 0;
}

/* What cannot fit is not tried: it would fill the file system on the way. */
static int add_fits(struct disk_add *a, int fd)
{
	char size[SIZE_TEXT_MAX], there[SIZE_TEXT_MAX];
	struct statvfs fs;
	struct stat st;
	uint64_t room;

	if (fstat(fd, &st) < 0 || fstatvfs(fd, &fs) < 0)
		return -errno;
	room = (uint64_t)st.st_blocks * 512 +
	       (uint64_t)fs.f_bfree * fs.f_frsize;
	if (a->size <= room)
		return 0;
	snprintf(a->why, sizeof(a->why),
		 "%s cannot have %s: there is room for %s", a->path,
		 size_format(a->size, size), size_format(room, there));
	return -ENOSPC;
}

/*
 * In pieces: where the file system has no call for it, each of its blocks is
 * written.
 */
static int add_allocate(struct disk_add *a, int fd)
{
	const uint64_t piece = 1ull << 30;
	int rv = 0;

	for (uint64_t at = 0; at < a->size && rv == 0; at += piece) {
		rv = -posix_fallocate(fd, (off_t)at,
				      (off_t)MIN(piece, a->size - at));
		a->steps++;
	}
	return rv;
}

/* A file of the size, its blocks allocated: a full file system is met now. */
static int add_size_file(struct disk_add *a)
{
	int fd, rv = 0;

	if (a->probe.block_device)
		return 0;
	fd = open(a->path, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		rv = -errno;
	} else {
		/* It may have become another name of a disk: not cut. */
		rv = shard_file_lock(fd);
		if (rv == 0)
			rv = add_fits(a, fd);
		if (rv == 0 && a->probe.bytes != a->size &&
		    ftruncate(fd, (off_t)a->size) < 0)
			rv = -errno;
		if (rv == 0)
			rv = add_allocate(a, fd);
		close(fd);
	}
	if (rv < 0 && a->why[0] == '\0')
		snprintf(a->why, sizeof(a->why), "%s: %s", a->path,
			 strerror(-rv));
	return rv;
}

static int not_noted(struct disk_add *a, int rv)
{
	a->unnoted = true;
	snprintf(a->why, sizeof(a->why), "%s: no note of it can be made: %s",
		 a->r->node->config->data_dir, strerror(-rv));
	return rv;
}

/* A link to what is not there is no name for a new file, and nothing to erase. */
static int not_made(struct disk_add *a, int rv)
{
	struct stat st;

	if (rv != -EEXIST || lstat(a->path, &st) < 0 || !S_ISLNK(st.st_mode))
		return rv;
	snprintf(a->why, sizeof(a->why), "%s is a link to what does not exist",
		 a->path);
	return -ENOLINK;
}

/* What it is by any name; a file that is not there is made. */
static int add_find(struct disk_add *a)
{
	struct stat st;
	int fd, rv;

	if (stat(a->path, &st) < 0) {
		if (errno != ENOENT || a->r->msg->disk_add->size_bytes == 0)
			return -errno;
		rv = node__adding_note(a->r->node, &a->format.disk, a->path);
		if (rv < 0)
			return not_noted(a, rv);
		a->noted = true;
		fd = open(a->path, O_RDWR | O_CLOEXEC | O_CREAT | O_EXCL, 0600);
		if (fd < 0)
			return not_made(a, -errno);
		a->made = true;
		rv = node__adding_made(a->r->node, &a->format.disk, fd);
		close(fd);
		if (rv < 0)
			return not_noted(a, rv);
		if (stat(a->path, &st) < 0)
			return -errno;
	}
	a->inode = node__inode(&st);
	return 0;
}

static void find_work(struct env_work *work)
{
	struct disk_add *a = container_of(work, struct disk_add, work);

	a->status = add_find(a);
	if (a->why[0] != '\0')
		return;
	if (a->status == -ENOENT)
		snprintf(a->why, sizeof(a->why), "%s%s does not exist",
			 a->r->msg->disk_add->size_bytes != 0 ? "the folder of "
							      : "",
			 a->path);
	else if (a->status < 0)
		snprintf(a->why, sizeof(a->why), "%s: %s", a->path,
			 strerror(-a->status));
}

static void examine_work(struct env_work *work)
{
	struct disk_add *a = container_of(work, struct disk_add, work);

	a->steps++;
	a->status = add_examine(a);
}

static void format_work(struct env_work *work)
{
	struct disk_add *a = container_of(work, struct disk_add, work);
	int rv;

	a->steps++;
	a->status = add_size_file(a);
	a->steps++;
	if (a->status < 0)
		return;
	rv = lsom_disk_format(a->r->node->env, &a->format);
	if (rv < 0) {
		snprintf(a->why, sizeof(a->why), "%s cannot be formatted: %s",
			 a->path, strerror(-rv));
		a->status = rv;
		return;
	}
	rv = a->noted ? node__adding_over(a->r->node, &a->format.disk) : 0;
	if (rv < 0) {
		snprintf(a->why, sizeof(a->why),
			 "%s: the note of it cannot be removed: %s",
			 a->r->node->config->data_dir, strerror(-rv));
		a->status = rv;
	}
}

/*
 * The file that was made, unless another command has it by another name: that
 * one holds its lock, or has written its own superblock.
 */
static void file_remove(const struct disk_add *a)
{
	struct lsom_probe there;
	int fd = open(a->path, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return;
	if (shard_file_lock(fd) == 0 &&
	    (lsom_disk_identify(a->r->node->env, a->path, &there) < 0 ||
	     uuid_equal(&there.disk, &a->format.disk)))
		unlink(a->path);
	close(fd);
}

/* Worker: forget what was made. */
static void undo_work(struct env_work *work)
{
	struct disk_add *a = container_of(work, struct disk_add, work);

	if (a->index_path[0] != '\0')
		node__tree_remove(a->index_path);
	if (a->made)
		file_remove(a);
	if (a->noted)
		node__adding_over(a->r->node, &a->format.disk);
}

static void undo_done(struct env_work *work)
{
	add_refused(container_of(work, struct disk_add, work));
}

#define ADD_LOOK "The logs of basaltd and of the kernel may say more."

static void add_fail(struct disk_add *a, int status, const char *fix,
		     const char *why)
{
	admin__why(a->r, status, fix, "%s", why);
	a->steps++;
	memset(&a->work, 0, sizeof(a->work));
	a->work.work = undo_work;
	a->work.done = undo_done;
	env_work(a->r->node->env, NULL, &a->work);
}

static void add_stopped(struct disk_add *a)
{
	add_fail(a, -ESHUTDOWN, "Try again once it is up.",
		 "basaltd is shutting down");
}

/* Whoever gave the command has his answer, or the daemon ends: no further. */
static bool add_is_over(const struct disk_add *a)
{
	return a->late || a->r->node->state != NODE_UP;
}

/* It is closed and forgotten again: the directory does not have it. */
static void add_unopened(struct node_disk *d, int status, void *arg)
{
	struct disk_add *a = arg;
	char why[sizeof(a->r->error)], fix[sizeof(a->r->fix)];

	if (a->r->node->state != NODE_UP) {
		add_stopped(a);
		return;
	}
	strcpy(why, a->r->error);
	strcpy(fix, a->r->fix);
	add_fail(a, a->r->status, fix, why);
}

/* False: it is not open, and nobody closes it. */
static bool add_close(struct node_disk *d, struct disk_add *a)
{
	if (d->state != NODE_DISK_CLOSING || d->done != NULL)
		return node__disk_close(d, true, add_unopened, a) == 0;
	/* The daemon's end has begun to. */
	d->done = add_unopened;
	d->done_arg = a;
	return true;
}

/*
 * Nothing is undone as long as the directory may take it: it stays in service,
 * and the same command enters it.  If that never comes, it is not opened at the
 * next start.
 */
static void add_failed(struct admin_req *r)
{
	struct disk_add *a = r->ctx;
	struct node_disk *d = node__disk_find(r->node, &a->format.disk);

	if (r->unknown || d == NULL || !add_close(d, a))
		admin__refuse(r);
	else
		add_watch(a);
}

static int add_build(struct admin_req *r, struct cmmds_command *cmd)
{
	struct disk_add *a = r->ctx;
	/* What was not known may have come true meanwhile. */
	const struct cmmds_entry *e =
		cmmds_get(r->node->cmmds, CMMDS_DISK, a->format.disk.b,
			  sizeof(a->format.disk.b));
	Directory__Disk m = DIRECTORY__DISK__INIT;
	char size[SIZE_TEXT_MAX];

	m.uuid.data = a->format.disk.b;
	m.uuid.len = sizeof(a->format.disk.b);
	m.node.data = r->node->identity.id.b;
	m.node.len = sizeof(r->node->identity.id.b);
	m.path = a->path;
	m.raw_bytes = a->info.raw_bytes;
	m.usable_bytes = a->info.usable_bytes;
	m.serial = a->info.dev.serial;
	m.model = a->info.dev.model;
	m.added_wall_ns = env_wall_ns(r->node->env);
	cmmds_put(cmd, CMMDS_DISK, a->format.disk.b, sizeof(a->format.disk.b),
		  e != NULL ? e->revision : CMMDS_MUST_NOT_EXIST, &m.base);
	cmmds_audit(cmd, r->who, "disk %s added to node %s, %s", a->path,
		    r->node->config->name, size_format(m.raw_bytes, size));
	return 0;
}

static void add_applied(struct admin_req *r)
{
	struct disk_add *a = r->ctx;
	char what[400], raw[SIZE_TEXT_MAX], usable[SIZE_TEXT_MAX];
	char id[UUID_TEXT_LEN];

	uuid_format(&a->format.disk, id);
	snprintf(what, sizeof(what), "disk %s added: %s, %s of it for data",
		 a->path, size_format(a->info.raw_bytes, raw),
		 size_format(a->info.usable_bytes, usable));
	admin__done(r, what, NULL, 0, id, "");
}

static void add_opened(struct node_disk *d, int status, void *arg)
{
	struct disk_add *a = arg;
	char why[640];

	if (status < 0 && a->r->node->state == NODE_UP) {
		snprintf(why, sizeof(why), "%s cannot be opened: %s", a->path,
			 d->why);
		node__disk_forget(d);
		add_fail(a, status, ADD_LOOK, why);
		return;
	}
	if (add_is_over(a)) {
		if (!add_close(d, a))
			add_stopped(a);
		return;
	}
	env_timer_stop(a->r->node->env, &a->tick);
	lsom_disk_info(d->disk, &a->info);
	a->r->failed = add_failed;
	admin__change(a->r, add_build, add_applied);
}

#define ADD_WAIT                                                               \
	"basalt disk list shows it once it is added; one that hangs has to "   \
	"answer first, or the kernel to give it up."

static const char *add_fix(const struct disk_add *a)
{
	if (a->unnoted && (a->status == -ENOSPC || a->status == -EDQUOT))
		return "Free space there, then repeat the command.";
	if (a->status == -EEXIST && a->probe.lsom.ours && a->unknown)
		return "It is none of this cluster's disks any more, or not "
		       "yet: it was removed, or its adding was cut off.  If "
		       "nobody needs what is there: --force-erase.";
	if (a->status == -EEXIST)
		return "If nobody needs what is there: --force-erase.";
	if (a->status == -ENOENT && a->r->msg->disk_add->size_bytes != 0)
		return "Check the path; a folder is not made.";
	if (a->status == -ENOENT)
		return "Check the path; --size 10G makes a file of that size.";
	if (a->status == -ENOLINK)
		return "See to what it leads to (is its file system mounted?), "
		       "or name a path that is no link.";
	if (a->status == -EOPNOTSUPP)
		return "Name a device without zones.";
	if (a->status == -ENOTBLK)
		return "Name a block device, or a file; --size 10G makes one.";
	if (a->moved)
		return "basaltd looks for it there every 10 s: move it back, "
		       "or make a link of that name.";
	if (a->twin)
		return "basalt disk list shows it.  If this is a copy that "
		       "nobody needs: overwrite its first MiB.";
	if (a->status == -EALREADY)
		return "basalt disk list shows it; basalt disk retry looks "
		       "again what it is.";
	if (a->status == -EINPROGRESS)
		return ADD_WAIT;
	if (a->status == -EBUSY)
		return "Unmount or release it first.";
	if (a->status == -ESHUTDOWN)
		return "Try again once it is up.";
	if (a->status == -ENOSPC || a->status == -EFBIG)
		return "Give a smaller --size, or a path on another file "
		       "system.";
	if (a->status == -EROFS && a->probe.read_only)
		return "Make it writable (blockdev --setrw), or name another.";
	if (a->status == -EROFS)
		return "Name a path that basaltd may write: as a service it "
		       "only reads /home (ProtectHome= of its unit).";
	if (a->status == -EACCES || a->status == -EPERM)
		return "basaltd's user needs read and write access to it.";
	if (a->status == -EINVAL && a->probe.block_device &&
	    a->r->msg->disk_add->size_bytes != 0)
		return "Leave --size out.";
	if (a->status == -EINVAL && a->probe.block_device)
		return "Name a larger device.";
	if (a->status == -EINVAL)
		return "Give --size 64M or more, or name a larger file.";
	return ADD_LOOK;
}

/* The disk that is there: is it of this cluster, and its directory without it? */
static bool add_unknown(const struct disk_add *a)
{
	const struct node *node = a->r->node;
	const struct lsom_probe *there = &a->probe.lsom;

	return node->state == NODE_UP &&
	       uuid_equal(&there->cluster, &node->cluster) &&
	       cmmds_get(node->cmmds, CMMDS_DISK, there->disk.b,
			 sizeof(there->disk.b)) == NULL;
}

/*
 * Two devices of dm over one, or a path below a map, are the same disk and not the
 * same device: no force erases what is in service under the other name.
 */
static int add_twin(struct disk_add *a)
{
	const struct lsom_probe *there = &a->probe.lsom;
	struct node *node = a->r->node;
	struct node_disk *d;

	if (!there->ours || !uuid_equal(&there->cluster, &node->cluster))
		return 0;
	d = node__disk_find(node, &there->disk);
	if (d == NULL)
		return 0;
	a->twin = true;
	a->moved = !a->probe.block_device && d->state == NODE_DISK_FAILED &&
		   d->status == -ENOENT;
	snprintf(a->why, sizeof(a->why), "%s has disk %s of this node: %s",
		 a->path, d->path,
		 a->moved ? "that is not there, and this is it, or a copy"
			  : "it is that by another name, or a copy");
	return -EALREADY;
}

static void add_formatted(struct env_work *work)
{
	struct disk_add *a = container_of(work, struct disk_add, work);
	struct node *node = a->r->node;
	int rv;

	a->steps++;
	if (a->status == 0 && add_is_over(a))
		a->status =
			add_refuse(a, -ESHUTDOWN, "basaltd is shutting down");
	if (a->status < 0) {
		add_fail(a, a->status, add_fix(a), a->why);
		return;
	}
	node__disk_index_path(node, &a->format.disk, a->index_path,
			      sizeof(a->index_path));
	rv = node__disk_open(node, &a->format.disk, a->path, 0, add_opened, a);
	if (rv < 0) {
		struct node_disk *d = node__disk_find(node, &a->format.disk);

		if (d != NULL)
			node__disk_forget(d);
		add_fail(a, rv, ADD_LOOK, err_text(rv));
	}
}

static void add_examined(struct env_work *work)
{
	struct disk_add *a = container_of(work, struct disk_add, work);
	int twin = add_is_over(a) ? 0 : add_twin(a);

	a->steps++;
	if (twin < 0)
		a->status = twin;
	else if (a->status == 0 && add_is_over(a))
		a->status =
			add_refuse(a, -ESHUTDOWN, "basaltd is shutting down");
	if (a->status < 0) {
		a->unknown = a->status == -EEXIST && add_unknown(a);
		add_fail(a, a->status, add_fix(a), a->why);
		return;
	}
	memset(&a->work, 0, sizeof(a->work));
	a->work.work = format_work;
	a->work.done = add_formatted;
	env_work(a->r->node->env, NULL, &a->work);
}

/*
 * By whatever name: a second one would wait for the disk's lock, and format what
 * the first has put into service as soon as that lets go of it.
 */
static bool same_disk(const struct admin_req *r, const struct admin_req *other)
{
	const struct disk_add *a = r->ctx, *b = other->ctx;

	return other->msg->command_case == ADMIN__REQUEST__COMMAND_DISK_ADD &&
	       b != NULL && node__inode_same(a->inode, b->claimed);
}

static int add_claim(struct disk_add *a)
{
	struct node *node = a->r->node;
	char why[sizeof(a->why)];
	struct node_disk *d;

	if (add_is_over(a))
		return add_refuse(a, -ESHUTDOWN, "basaltd is shutting down");
	TAILQ_FOREACH (d, &node->disks, link) {
		if (!node__inode_same(a->inode, d->inode))
			continue;
		/* Not into @a at once: GCC 16 takes its path and that for one. */
		snprintf(why, sizeof(why), "%s is disk %s%s", a->path, d->path,
			 d->erase ? ", which was removed and is not let go yet"
				  : " of this node already");
		return add_refuse(a, d->erase ? -EINPROGRESS : -EALREADY, why);
	}
	if (admin__another(a->r, same_disk)) {
		snprintf(a->why, sizeof(a->why),
			 "an earlier disk add has not ended yet that gave %s "
			 "another name",
			 a->path);
		return -EINPROGRESS;
	}
	a->claimed = a->inode;
	return 0;
}

static void add_found(struct env_work *work)
{
	struct disk_add *a = container_of(work, struct disk_add, work);
	struct node *node = a->r->node;

	if (a->status == 0)
		a->status = add_claim(a);
	if (a->status < 0) {
		add_fail(a, a->status, add_fix(a), a->why);
		return;
	}
	memset(&a->work, 0, sizeof(a->work));
	a->work.work = examine_work;
	a->work.done = add_examined;
	env_work(node->env, NULL, &a->work);
}

/* The directory takes none. */
static bool has_control(const char *path)
{
	for (; *path != '\0'; path++)
		if (iscntrl((unsigned char)*path))
			return true;
	return false;
}

void admin__disk_add(struct admin_req *r)
{
	const Admin__DiskAdd *m = r->msg->disk_add;
	struct node_disk *d = disk_known(r->node, m->path);
	struct disk_add *a = calloc(1, sizeof(*a));

	if (a == NULL) {
		admin__no_memory(r);
		return;
	}
	r->ctx = a;
	a->r = r;
	if (m->path[0] != '/' || strlen(m->path) >= sizeof(a->path))
		admin__why(r, -EINVAL, "Give its path from / on.",
			   "disk %.80s: an absolute path of at most %zu "
			   "characters",
			   m->path, sizeof(a->path) - 1);
	else if (has_control(m->path))
		admin__why(r, -EINVAL, "Give it another name.",
			   "disk %.80s: a path without control characters",
			   m->path);
	else if (admin__another(r, same_path))
		admin__why(r, -EBUSY, ADD_WAIT,
			   "an earlier disk add of %s has not ended yet",
			   m->path);
	else if (d != NULL && d->erase)
		admin__disk_leaving(r, d);
	else if (d != NULL && !admin__disk_pending(d))
		admin__why(r, -EEXIST, "basalt disk list shows it.",
			   "%s is a disk of this node already", m->path);
	if (r->status < 0) {
		admin__refuse(r);
		return;
	}
	strcpy(a->path, m->path);
	if (d != NULL) {
		/* An earlier command's, which may come true yet: not undone. */
		a->format.disk = d->id;
		lsom_disk_info(d->disk, &a->info);
		admin__change(r, add_build, add_applied);
		return;
	}
	a->format.path = a->path;
	a->format.cluster = r->node->cluster;
	a->format.progress = on_format_progress;
	a->format.data = a;
	uuid_make(r->node->env, &a->format.disk);
	add_watch(a);
	a->work.work = find_work;
	a->work.done = add_found;
	env_work(r->node->env, NULL, &a->work);
}
