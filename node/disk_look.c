/*
 * disk_look: this node's disks are looked at, now and then.
 *
 * One that is missing, cut short or an older copy is opened when a look at the
 * superblock says that it is there; another one that is not open is tried again
 * after its pause; one that does not answer is logged; one that is due is scrubbed.
 */
#define LOG_ROOM LOG_NODE
#include "base/log.h"
#include "base/util.h"
#include "node/node_int.h"

#include <stdlib.h>
#include <string.h>

/* One look for a disk that is missing, or that is an older copy. */
struct look {
	struct env_work work;
	struct node *node;
	struct uuid id;
	char path[256], found[256];
	bool there;
	uint64_t generation; /* of what is there */
};

static void look_work(struct env_work *work)
{
	struct look *l = container_of(work, struct look, work);
	char why[256];

	l->there = node__disk_locate(l->node->env, &l->node->cluster, &l->id,
				     l->path, l->found, sizeof(l->found), why,
				     sizeof(why)) == 0 &&
		   node__disk_is_at(l->node->env, &l->node->cluster, &l->id,
				    l->found, &l->generation);
}

/* Open it at @path without a command. */
static void open_again(struct node_disk *d, const char *path)
{
	if (node__disk_open(d->node, &d->id, path, 0, NULL, NULL) == 0)
		d->again = true;
}

static void look_done(struct env_work *work)
{
	struct look *l = container_of(work, struct look, work);
	struct node *node = l->node;
	struct node_disk *d = node__disk_find(node, &l->id);

	if (l->there && node->state == NODE_UP && d != NULL &&
	    node__disk_is_looked_for(d) &&
	    (!node__disk_is_older(d) || l->generation != d->open.generation)) {
		if (d->next_ns == 0) /* or it was there the last time */
			log_info("disk %s: it is there now", d->path);
		open_again(d, l->found);
	}
	free(l);
	node->disks_looking--;
	node__disks_work_done(node);
}

static void look_for(struct node_disk *d)
{
	struct look *l = calloc(1, sizeof(*l));

	if (l == NULL)
		return; /* the next time */
	l->node = d->node;
	l->id = d->id;
	strcpy(l->path, d->path);
	l->work.work = look_work;
	l->work.done = look_done;
	d->node->disks_looking++;
	d->node->disks_works++;
	env_work(d->node->env, NULL, &l->work);
}

/* Logged when it begins, and when it is over. */
static void silence_look(struct node_disk *d)
{
	uint64_t silent_ns = node__disk_silent_ns(d);
	bool silent = silent_ns >= LSOM_SILENT_NS;
	char text[NODE_SILENT_MAX];

	node__silent_tell(d, silent_ns, text);
	if (silent && !d->silent)
		log_error("disk %s: %s", d->path, text);
	else if (!silent && d->silent)
		log_info("disk %s: it answers again", d->path);
	d->silent = silent;
}

static void look_fired(struct env_timer *timer)
{
	struct node *node = container_of(timer, struct node, disks_look);
	/* One that takes long is not asked again meanwhile. */
	bool look = node->disks_looking == 0;
	char path[sizeof(((struct node_disk *)0)->path)];
	struct node_disk *d;

	TAILQ_FOREACH (d, &node->disks, link) {
		if (d->state != NODE_DISK_FAILED &&
		    d->state != NODE_DISK_CLOSED)
			silence_look(d);
		if (env_now(node->env) < d->next_ns)
			continue;
		if (look && node__disk_is_looked_for(d))
			look_for(d);
		if (!node__disk_is_retried(d))
			continue;
		strcpy(path, d->path);
		open_again(d, path);
	}
	node__disks_appear(node);
	node__scrubs_look(node);
	if (!node->swept)
		node->swept = node__sweep(node);
	node__datadir_ask(node);
	env_timer_start(node->env, timer, NODE_LOOK_NS);
}

void node__disks_look(struct node *node)
{
	node->disks_look.cb = look_fired;
	env_timer_start(node->env, &node->disks_look, NODE_LOOK_NS);
}
