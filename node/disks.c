/*
 * disks: this node's disks follow the directory.
 *
 * What the directory lists for this node is opened; what it forgets is closed.
 * A disk that cannot be opened stays listed with the reason and the command
 * that helps; others go on.  What can get well by itself is tried again: what is
 * missing, cut short or an older copy once a look at the superblock says that it
 * is over, the rest after pauses that grow (disk_look.c).  One that failed in service waits
 * for a command, lest it come and go.
 */
#define LOG_ROOM LOG_NODE
#include "base/log.h"
#include "base/util.h"
#include "node/node_int.h"

#include <assert.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

static void home_close(struct node_disk *d);
static void seats_add(struct node_disk *d);

static const char *const disk_states[] = {
	[LSOM_DISK_OPENING] = "opening",
	[LSOM_DISK_ONLINE] = "online",
	[LSOM_DISK_FULL] = "full",
	[LSOM_DISK_FAILED] = "failed",
};

struct node_disk *node__disk_find(struct node *node, const struct uuid *id)
{
	struct node_disk *d;

	TAILQ_FOREACH (d, &node->disks, link)
		if (uuid_equal(&d->id, id))
			return d;
	return NULL;
}

struct node_inode node__inode(const struct stat *st)
{
	if (S_ISBLK(st->st_mode))
		return (struct node_inode){ .dev = st->st_rdev };
	return (struct node_inode){ .dev = st->st_dev, .ino = st->st_ino };
}

bool node__inode_same(struct node_inode a, struct node_inode b)
{
	return a.dev == b.dev && a.ino == b.ino && (a.dev != 0 || a.ino != 0);
}

char *node__disk_path(struct node *node, const Directory__Disk *disk)
{
	struct node_disk *d;
	struct uuid id;

	if (disk->uuid.len != sizeof(id.b))
		return disk->path;
	memcpy(id.b, disk->uuid.data, sizeof(id.b));
	d = node__disk_find(node, &id);
	return d != NULL ? d->path : disk->path;
}

bool node__disk_is_missing(const struct node_disk *d)
{
	return d->state == NODE_DISK_FAILED &&
	       (d->status == -ENOENT || d->status == -ENXIO ||
		d->status == -ENODEV || d->status == -ENOTUNIQ ||
		d->status == -ENODATA || d->status == -ERANGE);
}

bool node__disk_is_looked_for(const struct node_disk *d)
{
	return !d->by_hand && !d->leaving &&
	       (node__disk_is_missing(d) || node__disk_is_older(d));
}

bool node__disk_is_retried(const struct node_disk *d)
{
	return d->state == NODE_DISK_FAILED && !d->by_hand && !d->leaving &&
	       !node__disk_is_missing(d) && !node__disk_is_older(d) &&
	       d->status != -EUCLEAN && d->status != -EMEDIUMTYPE &&
	       d->status != -EINVAL;
}

bool node__disk_has_failed(const struct node_disk *d)
{
	struct lsom_disk_info info;

	if (d->state != NODE_DISK_ONLINE)
		return false;
	lsom_disk_info(d->disk, &info);
	return info.state == LSOM_DISK_FAILED;
}

bool node__disk_is_older(const struct node_disk *d)
{
	return d->state == NODE_DISK_FAILED && d->status == -ESTALE;
}

void node__disk_index_path(struct node *node, const struct uuid *id, char *out,
			   size_t len)
{
	char text[UUID_TEXT_LEN];

	uuid_format(id, text);
	snprintf(out, len, "%s/index/%s", node->config->data_dir, text);
}

static int rm_one(const char *path, const struct stat *st, int type,
		  struct FTW *ftw)
{
	return remove(path);
}

void node__tree_remove(const char *path)
{
	nftw(path, rm_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* The disks' end may wait for what has just ended, once it is their turn. */
static void stop_go_on(struct node *node)
{
	if (node->state == NODE_STOPPING && !node->disks_subscribed)
		node__disks_stop(node);
}

static void finish(struct node_disk *d, int status)
{
	node_disk_cb done = d->done;

	d->done = NULL;
	if (done != NULL)
		done(d, status, d->done_arg);
}

static void on_watch(struct lsom_disk_watch *watch, struct lsom_disk *disk)
{
	struct node_disk *d = container_of(watch, struct node_disk, watch);
	struct lsom_disk_info info;

	lsom_disk_info(disk, &info);
	if (info.state == d->seen)
		return;
	if (info.state == LSOM_DISK_FAILED)
		log_error("disk %s: failed and out of service: %s", d->path,
			  info.failure);
	else
		log_info("disk %s: %s, was %s", d->path,
			 disk_states[info.state], disk_states[d->seen]);
	d->seen = info.state;
}

static void disk_settle(struct node_disk *d)
{
	struct node *node = d->node;

	if (d->settled)
		return;
	d->settled = true;
	node__serve_if_ready(node);
}

/* A reason is logged once, however often it is met, and asked for less often. */
static void disk_not_opened(struct node_disk *d)
{
	const struct lsom_disk_open *req = &d->open;
	char why[sizeof(d->why)];
	bool same;

	d->state = NODE_DISK_FAILED;
	snprintf(why, sizeof(why), "%s",
		 req->why[0] != '\0' ? req->why : strerror(-d->status));
	same = d->again && strcmp(why, d->why) == 0;
	if (!same)
		log_error("disk %s: not opened: %s", d->path, why);
	memcpy(d->why, why, sizeof(d->why));
	d->pause_ns =
		same ? MIN(d->pause_ns * 2, NODE_AGAIN_MAX_NS) : NODE_LOOK_NS;
	/* What was not looked at yet is looked at when others are. */
	d->next_ns = node__disk_is_looked_for(d) && !same
			     ? 0
			     : env_now(d->node->env) + d->pause_ns;
	assert(d->pause_ns >= NODE_LOOK_NS);
}

/* The directory has forgotten it: so do we, as soon as that can be. */
static void disk_leaves(struct node_disk *d)
{
	if (d->state == NODE_DISK_ONLINE) {
		node__disk_close(d, true, d->done, d->done_arg);
	} else if (d->state == NODE_DISK_OPENING ||
		   d->state == NODE_DISK_CLOSING) {
		d->erase = true;
		disk_settle(d); /* nothing has to wait for it */
	} else {
		node__disk_forget(d);
	}
}

int node__disk_leave(struct node_disk *d, node_disk_cb done, void *arg)
{
	if (d->state == NODE_DISK_ONLINE)
		return node__disk_close(d, true, done, arg);
	if (d->state != NODE_DISK_OPENING && d->state != NODE_DISK_CLOSING)
		return -EBUSY;
	disk_leaves(d);
	finish(d, -ENOENT);
	d->done = done;
	d->done_arg = arg;
	return 0;
}

/* Whoever waits for what ended with @status may look at it once more. */
static void disk_gone(struct node_disk *d, int status)
{
	/* Where nobody waits any more nobody takes its index away. */
	if (d->done == NULL)
		d->node->swept = false;
	finish(d, status);
	node__disk_forget(d);
}

static void disk_opened(struct node_disk *d, int status)
{
	struct node *node = d->node;
	struct lsom_disk_open *req = &d->open;
	struct lsom_disk_info info;

	assert(d->state == NODE_DISK_OPENING);
	d->status = status;
	if (status < 0 && d->erase) {
		log_info("disk %s: let go", d->path);
		d->state = NODE_DISK_FAILED;
	} else if (status < 0) {
		disk_not_opened(d);
	} else {
		d->state = NODE_DISK_ONLINE;
		d->by_hand = d->silent = false;
		d->pause_ns = d->next_ns = 0;
		d->why[0] = '\0';
		lsom_disk_info(d->disk, &info);
		d->id = info.disk;
		d->seen = info.state;
		d->watch.cb = on_watch;
		lsom_disk_watch(d->disk, &d->watch);
		log_info("disk %s: %s, %u component%s, recovered in %llu ms",
			 d->path, disk_states[info.state], info.components,
			 info.components == 1 ? "" : "s",
			 (unsigned long long)(info.recovery_ns / MSEC));
	}
	if (node->state == NODE_UP && d->state == NODE_DISK_ONLINE)
		iscsi_units_retry(node->iscsi);
	if (node->state == NODE_STOPPING) {
		finish(d, -ESHUTDOWN);
		stop_go_on(node);
		return;
	}
	if (d->erase && status < 0)
		disk_gone(d, status);
	else if (d->erase)
		disk_leaves(d);
	else
		finish(d, status);
	/* @d may be gone: only a settled one can be forgotten by its caller. */
	TAILQ_FOREACH (d, &node->disks, link)
		if (&d->open == req)
			break;
	if (d != NULL)
		disk_settle(d);
}

/* ---- on the disk's home, which may be another shard ---- */

static struct env *home_env(const struct node_disk *d)
{
	return shard_env(d->node->shards, d->shard);
}

static void seats_free(struct node_disk *d)
{
	free(d->seats);
	d->seats = NULL;
}

/* Run @cb with every seat's @there on its shard; the last one back goes on. */
static void seats_each(struct node_disk *d, void (*cb)(struct env_task *task))
{
	unsigned count = shards_count(d->node->shards);

	d->seats_pending = count;
	for (unsigned i = 0; i < count; i++) {
		d->seats[i].there.cb = cb;
		env_post(shard_env(d->node->shards, i), &d->seats[i].there);
	}
}

static void seat_back(struct node_seat *seat, void (*cb)(struct env_task *task))
{
	seat->here.cb = cb;
	env_post(seat->d->node->env, &seat->here);
}

static void seats_leave(struct node_disk *d);

static void on_seated(struct env_task *task)
{
	struct node_seat *seat = container_of(task, struct node_seat, here);
	struct node_disk *d = seat->d;

	if (seat->status < 0)
		d->status = seat->status;
	if (--d->seats_pending > 0)
		return;
	d->disk = d->seats[d->node->env->shard].disk;
	if (d->status == 0) {
		seats_add(d);
		return;
	}
	/* A shard has no memory for it: the home closes it again. */
	snprintf(d->open.why, sizeof(d->open.why), "%s", strerror(-d->status));
	seats_leave(d);
}

static void there_attached(struct lsom_attach *req, int status)
{
	struct node_seat *seat = req->data;

	seat->disk = req->attached;
	seat->status = status;
	seat_back(seat, on_seated);
}

static void there_sit(struct env_task *task)
{
	struct node_seat *seat = container_of(task, struct node_seat, there);
	struct node_disk *d = seat->d;
	int rv;

	seat->attach.data = seat;
	if (seat->shard == d->shard) {
		seat->attach.attached = d->home;
		there_attached(&seat->attach, 0);
		return;
	}
	rv = lsom_disk_attach(d->node->lsom[seat->shard], d->home, seat->shard,
			      shards_count(d->node->shards), &seat->attach,
			      there_attached);
	if (rv < 0) {
		seat->attach.attached = NULL;
		there_attached(&seat->attach, rv);
	}
}

/* The home has it: every other shard gets a view. */
static void on_opened(struct env_task *task)
{
	struct node_disk *d = container_of(task, struct node_disk, here);
	unsigned count = shards_count(d->node->shards);

	if (d->status < 0) {
		disk_opened(d, d->status);
		return;
	}
	if (d->erase) { /* nobody is to see it any more */
		d->status = -ENOENT;
		home_close(d);
		return;
	}
	d->seats = calloc(count, sizeof(*d->seats));
	if (d->seats == NULL) {
		d->status = -ENOMEM;
		home_close(d);
		return;
	}
	for (unsigned i = 0; i < count; i++) {
		d->seats[i].d = d;
		d->seats[i].shard = i;
	}
	seats_each(d, there_sit);
}

static void there_opened(struct lsom_disk_open *req, int status)
{
	struct node_disk *d = req->data;

	d->home = req->opened;
	d->status = status;
	d->here.cb = on_opened;
	env_post(d->node->env, &d->here);
}

static void there_open(struct env_task *task)
{
	struct node_disk *d = container_of(task, struct node_disk, there);
	int rv =
		lsom_disk_open(d->node->lsom[d->shard], &d->open, there_opened);

	if (rv < 0) {
		d->open.opened = NULL;
		there_opened(&d->open, rv);
	}
}

static bool is_ours(struct node *node, const Directory__Disk *m)
{
	return m->node.len == sizeof(node->identity.id) &&
	       m->uuid.len == sizeof(struct uuid) &&
	       memcmp(m->node.data, node->identity.id.b, m->node.len) == 0;
}

/*
 * A request is spared a message where its object's shard is its disk's: the
 * shard with most of what is on the disk already, if that has not its share of
 * the disks.  Else the one with the fewest disks; the first, which has logins
 * and the directory, last.
 */
static unsigned home_pick(struct node *node, const struct node_disk *next)
{
	unsigned count = shards_count(node->shards), best = count, share;
	unsigned disks[CONFIG_SHARDS_MAX] = { 0 }, all = 0, known = 0;
	unsigned components[CONFIG_SHARDS_MAX] = { 0 };
	const struct cmmds_entry *e = NULL;
	struct node_disk *d;

	TAILQ_FOREACH (d, &node->disks, link) {
		all++;
		if (d != next && (d->state == NODE_DISK_ONLINE ||
				  d->state == NODE_DISK_CLOSING ||
				  d->state == NODE_DISK_OPENING))
			disks[d->shard]++;
	}
	/* Those that are still to be opened. */
	while ((e = cmmds_next(node->cmmds, CMMDS_DISK, e)) != NULL)
		known += is_ours(node, (const Directory__Disk *)e->message);
	share = DIV_UP(MAX(all, known), count);
	dom_disk_components(node->dom, &next->id, components);
	for (unsigned i = 1; i <= count; i++) {
		unsigned s = i % count;

		if (disks[s] < share &&
		    (best == count || components[s] > components[best] ||
		     (components[s] == components[best] &&
		      disks[s] < disks[best])))
			best = s;
	}
	assert(best < count);
	return best;
}

static bool has_components(struct node *node, const Directory__Disk *m)
{
	unsigned counts[CONFIG_SHARDS_MAX] = { 0 };
	struct uuid id;

	memcpy(id.b, m->uuid.data, sizeof(id.b));
	dom_disk_components(node->dom, &id, counts);
	for (unsigned i = 0; i < shards_count(node->shards); i++)
		if (counts[i] > 0)
			return true;
	return false;
}

static void open_start(struct node_disk *d)
{
	memset(&d->open, 0, sizeof(d->open));
	d->open.data = d;
	d->open.path = d->path;
	d->open.index_path = d->index_path;
	d->open.disk = d->id;
	d->open.cluster = d->node->cluster;
	d->open.rebuild = d->flags & NODE_OPEN_REBUILD;
	d->open.lose_unreadable = d->flags & NODE_OPEN_LOSE_UNREADABLE;
	d->open.index_remove = node__tree_remove;
	d->there.cb = there_open;
	env_post(home_env(d), &d->there);
}

/* What comes before it and blocks. */
static void prepare_work(struct env_work *work)
{
	struct node_disk *d = container_of(work, struct node_disk, work);
	struct stat st;

	d->open.asked++;
	d->status = node__disk_locate(d->node->env, &d->node->cluster, &d->id,
				      d->path, d->found, sizeof(d->found),
				      d->open.why, sizeof(d->open.why));
	d->found_inode = (struct node_inode){ 0 };
	if (d->status == 0 && stat(d->found, &st) == 0)
		d->found_inode = node__inode(&st);
	d->open.answers++;
	d->open.asked--;
}

static void prepare_done(struct env_work *work)
{
	struct node_disk *d = container_of(work, struct node_disk, work);

	d->inode = d->found_inode;
	d->locating = false;
	if (d->node->state == NODE_STOPPING) {
		d->state = NODE_DISK_FAILED;
		finish(d, -ESHUTDOWN);
		stop_go_on(d->node);
		return;
	}
	if (d->status == 0 && d->erase)
		d->status = -ENOENT;
	if (d->status < 0) {
		disk_opened(d, d->status);
		return;
	}
	if (strcmp(d->path, d->found) != 0) {
		log_warn("disk %s: it is %s now", d->path, d->found);
		strcpy(d->path, d->found);
	}
	open_start(d);
}

int node__disk_open(struct node *node, const struct uuid *id, const char *path,
		    unsigned flags, node_disk_cb done, void *arg)
{
	struct node_disk *d = node__disk_find(node, id);

	if (node->state != NODE_UP)
		return -ESHUTDOWN;
	if (strlen(path) >= sizeof(d->path))
		return -ENAMETOOLONG;
	if (d != NULL && d->state != NODE_DISK_FAILED &&
	    d->state != NODE_DISK_CLOSED)
		return -EBUSY;
	if (d != NULL && d->erase)
		return -ENOENT;
	if (d == NULL) {
		d = calloc(1, sizeof(*d));
		if (d == NULL)
			return -ENOMEM;
		d->node = node;
		d->id = *id;
		TAILQ_INSERT_TAIL(&node->disks, d, link);
	}
	strcpy(d->path, path);
	node__disk_index_path(node, id, d->index_path, sizeof(d->index_path));
	d->done = done;
	d->done_arg = arg;
	d->again = false;
	d->flags = flags;
	d->shard = home_pick(node, d);
	d->state = NODE_DISK_OPENING;
	d->open.percent = d->open.asked = d->open.answers = 0;
	d->locating = true;
	d->asked = d->silent = false;
	memset(&d->work, 0, sizeof(d->work));
	d->work.work = prepare_work;
	d->work.done = prepare_done;
	env_work(node->env, NULL, &d->work);
	return 0;
}

void node__disk_forget(struct node_disk *d)
{
	assert(d->state == NODE_DISK_FAILED || d->state == NODE_DISK_CLOSED);
	assert(!node__scrub_runs(d));
	TAILQ_REMOVE(&d->node->disks, d, link);
	free(d->scrub);
	free(d);
}

/* ---- closing ---- */

static void on_closed(struct env_task *task)
{
	struct node_disk *d = container_of(task, struct node_disk, here);
	struct node *node = d->node;

	d->disk = d->home = NULL;
	seats_free(d);
	if (d->state == NODE_DISK_OPENING) { /* it was never used */
		disk_opened(d, d->status);
		return;
	}
	log_info("disk %s: closed", d->path);
	d->state = NODE_DISK_CLOSED;
	snprintf(d->why, sizeof(d->why), "closed");
	if (node->state == NODE_STOPPING) {
		finish(d, -ESHUTDOWN);
		stop_go_on(node);
		return;
	}
	if (d->erase)
		disk_gone(d, 0);
	else
		finish(d, 0);
}

static void there_closed(struct lsom_disk_close *req, int status)
{
	struct node_disk *d = req->data;

	assert(status == 0);
	d->here.cb = on_closed;
	env_post(d->node->env, &d->here);
}

static void there_close(struct env_task *task)
{
	struct node_disk *d = container_of(task, struct node_disk, there);
	int rv;

	d->close.data = d;
	rv = lsom_disk_close(d->home, &d->close, there_closed);
	assert(rv == 0);
}

static void home_close(struct node_disk *d)
{
	d->there.cb = there_close;
	env_post(home_env(d), &d->there);
}

static void on_seat_left(struct env_task *task)
{
	struct node_disk *d = container_of(task, struct node_seat, here)->d;

	if (--d->seats_pending == 0)
		home_close(d);
}

static void there_detached(struct lsom_detach *req)
{
	seat_back(req->data, on_seat_left);
}

static void there_leave(struct env_task *task)
{
	struct node_seat *seat = container_of(task, struct node_seat, there);

	seat->detach.data = seat;
	if (seat->disk == NULL || seat->disk == seat->d->home)
		there_detached(&seat->detach);
	else
		lsom_disk_detach(seat->disk, &seat->detach, there_detached);
}

static void seats_leave(struct node_disk *d)
{
	seats_each(d, there_leave);
}

static void on_quiet(struct env_task *task)
{
	struct node_disk *d = container_of(task, struct node_seat, here)->d;

	if (--d->seats_pending > 0)
		return;
	lsom_disk_unwatch(d->disk, &d->watch);
	seats_leave(d);
}

static void there_quiet(void *arg)
{
	seat_back(arg, on_quiet);
}

static struct dom *dom_of(const struct node_seat *seat)
{
	return seat->d->node->doms[seat->shard];
}

static void there_remove(struct env_task *task)
{
	struct node_seat *seat = container_of(task, struct node_seat, there);

	dom_disk_remove(dom_of(seat), seat->disk, there_quiet, seat);
}

static void on_added(struct env_task *task)
{
	seats_add(container_of(task, struct node_seat, here)->d);
}

static void there_add(struct env_task *task)
{
	struct node_seat *seat = container_of(task, struct node_seat, there);

	dom_disk_add(dom_of(seat), seat->disk);
	seat_back(seat, on_added);
}

/*
 * One after the other.  Each tells the disk's home, one way, what is reserved there
 * for objects of its own; we, who place by what is left, come last, and the home
 * before us, so that all of it has come to it.
 */
static void seats_add(struct node_disk *d)
{
	unsigned count = shards_count(d->node->shards), next = count;
	unsigned own = d->node->env->shard;

	for (unsigned i = 0; i < count; i++)
		if (!d->seats[i].added && i != d->shard && i != own)
			next = i;
	if (next == count && !d->seats[d->shard].added && d->shard != own)
		next = d->shard;
	if (next == count && !d->seats[own].added)
		next = own;
	if (next == count) {
		disk_opened(d, 0);
		return;
	}
	d->seats[next].added = true;
	d->seats[next].there.cb = there_add;
	env_post(shard_env(d->node->shards, next), &d->seats[next].there);
}

/* From when on it is seen that the device was asked, and has not answered. */
static uint64_t opening_silent_ns(struct node_disk *d)
{
	unsigned answers = d->open.answers;
	bool asked = d->open.asked > 0;
	uint64_t heard = env_heard_ns(d->node->env);

	if (!asked || !d->asked || answers != d->answers)
		d->asked_ns = env_now(d->node->env);
	d->asked = asked;
	d->answers = answers;
	return heard > d->asked_ns ? heard - d->asked_ns : 0;
}

/*
 * One that is being closed is its home's alone: had it answered since, it would
 * soon be closed.
 */
uint64_t node__disk_silent_ns(struct node_disk *d)
{
	uint64_t heard = env_heard_ns(d->node->env);
	struct lsom_disk_info info;

	if (d->state == NODE_DISK_OPENING)
		return opening_silent_ns(d);
	if (d->state == NODE_DISK_CLOSING && d->closing_silent_ns > 0)
		return d->closing_silent_ns +
		       (heard > d->closing_ns ? heard - d->closing_ns : 0);
	if (d->state != NODE_DISK_ONLINE)
		return 0;
	lsom_disk_info(d->disk, &info);
	return info.silent_ns;
}

int node__disk_close(struct node_disk *d, bool forget, node_disk_cb done,
		     void *arg)
{
	if (d->state != NODE_DISK_ONLINE)
		return -EBUSY;
	d->by_hand = node__disk_has_failed(d);
	d->closing_silent_ns = node__disk_silent_ns(d);
	d->closing_ns = env_now(d->node->env);
	d->state = NODE_DISK_CLOSING;
	d->erase = forget;
	d->done = done;
	d->done_arg = arg;
	seats_each(d, there_remove);
	return 0;
}

/* ---- following the directory ---- */

static void disk_appeared(struct node *node, const Directory__Disk *m)
{
	struct uuid id;

	memcpy(id.b, m->uuid.data, sizeof(id.b));
	if (node__disk_find(node, &id) != NULL)
		return;
	if (node__disk_open(node, &id, m->path, 0, NULL, NULL) < 0)
		log_error("disk %s: cannot be opened now", m->path);
}

void node__disks_appear(struct node *node)
{
	const struct cmmds_entry *e = NULL;

	while ((e = cmmds_next(node->cmmds, CMMDS_DISK, e)) != NULL) {
		const Directory__Disk *m = (const void *)e->message;

		if (is_ours(node, m))
			disk_appeared(node, m);
	}
}

static void on_change(struct cmmds_subscription *sub,
		      const struct cmmds_change *change)
{
	struct node *node = sub->data;
	const Directory__Disk *m;
	struct node_disk *d;
	struct uuid id;

	if (node->state != NODE_UP)
		return;
	if (change->new_entry != NULL) {
		m = (const Directory__Disk *)change->new_entry->message;
		if (is_ours(node, m))
			disk_appeared(node, m);
		return;
	}
	m = (const Directory__Disk *)change->old_entry->message;
	if (!is_ours(node, m))
		return;
	memcpy(id.b, m->uuid.data, sizeof(id.b));
	d = node__disk_find(node, &id);
	if (d != NULL)
		disk_leaves(d);
}

/* ---- beginning and end ---- */

void node__disks_work_done(struct node *node)
{
	node->disks_works--;
	stop_go_on(node);
}

void node__disks_start(struct node *node)
{
	/*
	 * Opening them here, not by the subscription, tells which are there.
	 * An empty one does as well with the home that the others leave.
	 */
	for (int empty = 0; empty <= 1; empty++) {
		const struct cmmds_entry *e = NULL;

		while ((e = cmmds_next(node->cmmds, CMMDS_DISK, e)) != NULL) {
			const Directory__Disk *m = (const void *)e->message;

			if (is_ours(node, m) &&
			    has_components(node, m) == !empty)
				disk_appeared(node, m);
		}
	}
	node->disks_sub.data = node;
	node->disks_sub.kind = CMMDS_DISK;
	node->disks_sub.cb = on_change;
	cmmds_subscribe(node->cmmds, &node->disks_sub);
	node->disks_subscribed = true;
	node__datadir_ask(node);
	node__disks_look(node);
}

bool node__disks_settled(struct node *node)
{
	struct node_disk *d;

	TAILQ_FOREACH (d, &node->disks, link)
		if (d->state == NODE_DISK_OPENING && !d->settled)
			return false;
	return true;
}

void node__disks_late(struct node *node)
{
	struct node_disk *d;

	TAILQ_FOREACH (d, &node->disks, link) {
		uint64_t silent = node__disk_silent_ns(d);
		char text[NODE_SILENT_MAX];

		node__silent_tell(d, silent, text);
		if (silent >= LSOM_SILENT_NS)
			log_error("disk %s: %s", d->path, text);
		else if (d->state == NODE_DISK_OPENING ||
			 d->state == NODE_DISK_CLOSING)
			log_error("disk %s: it is not closed yet", d->path);
	}
}

/* Called again whenever one more is closed; the last one ends it. */
void node__disks_stop(struct node *node)
{
	struct node_disk *d, *next;
	bool busy = false;

	if (node->disks_subscribed) {
		cmmds_unsubscribe(&node->disks_sub);
		node->disks_subscribed = false;
		env_timer_stop(node->env, &node->disks_look);
	}
	TAILQ_FOREACH_SAFE (d, &node->disks, link, next) {
		if (d->state == NODE_DISK_ONLINE)
			node__disk_close(d, false, NULL, NULL);
		busy |= d->state == NODE_DISK_OPENING ||
			d->state == NODE_DISK_CLOSING;
	}
	if (busy || node->disks_works > 0 || node->disks_closed)
		return;
	node->disks_closed = true;
	TAILQ_FOREACH_SAFE (d, &node->disks, link, next)
		node__disk_forget(d);
	node__disks_stopped(node);
}
