/*
 * sweep: indexes that no disk has any more.
 *
 * A daemon that is killed while a disk is added or removed leaves the disk's
 * index in data_dir.  Once a life, what is there and belongs to no disk of this
 * node is removed; so are files that were to become disks (adding.c).  The local
 * copy of the directory may be behind, so a barrier goes before; a disk that is
 * being added meanwhile is known by its record.
 */
#define LOG_ROOM LOG_NODE
#include "base/log.h"
#include "base/util.h"
#include "node/node_int.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define AT_ONCE 1024u

struct sweep {
	struct node *node;
	struct cmmds_barrier barrier;
	struct env_work work;
	struct uuid found[AT_ONCE];
	unsigned count;
};

static void sweep_end(struct sweep *s)
{
	struct node *node = s->node;

	free(s);
	node__disks_work_done(node);
}

static void remove_work(struct env_work *work)
{
	struct sweep *s = container_of(work, struct sweep, work);
	char path[300];

	for (unsigned i = 0; i < s->count; i++) {
		node__disk_index_path(s->node, &s->found[i], path,
				      sizeof(path));
		node__tree_remove(path);
		if (access(path, F_OK) != 0)
			log_info("%s removed: no disk has this index", path);
	}
}

static void remove_done(struct env_work *work)
{
	sweep_end(container_of(work, struct sweep, work));
}

static bool is_needed(struct node *node, const struct uuid *id)
{
	return cmmds_get(node->cmmds, CMMDS_DISK, id->b, sizeof(id->b)) !=
		       NULL ||
	       node__disk_find(node, id) != NULL;
}

static void list_done(struct env_work *work)
{
	struct sweep *s = container_of(work, struct sweep, work);
	unsigned i, n = 0;

	for (i = 0; i < s->count && s->node->state == NODE_UP; i++)
		if (!is_needed(s->node, &s->found[i]))
			s->found[n++] = s->found[i];
	s->count = n;
	if (n == 0) {
		sweep_end(s);
		return;
	}
	memset(&s->work, 0, sizeof(s->work));
	s->work.work = remove_work;
	s->work.done = remove_done;
	env_work(s->node->env, NULL, &s->work);
}

static void list_work(struct env_work *work)
{
	struct sweep *s = container_of(work, struct sweep, work);
	struct dirent *e;
	char path[300];
	DIR *dir;

	node__adding_clear(s->node);
	snprintf(path, sizeof(path), "%s/index", s->node->config->data_dir);
	dir = opendir(path);
	while (dir != NULL && s->count < AT_ONCE && (e = readdir(dir)) != NULL)
		if (uuid_parse(e->d_name, &s->found[s->count]) == 0)
			s->count++;
	if (dir != NULL)
		closedir(dir);
}

static void on_barrier(struct cmmds_barrier *barrier, int status)
{
	struct sweep *s = container_of(barrier, struct sweep, barrier);

	/* Then nothing is known for certain: later. */
	if (status < 0 || s->node->state != NODE_UP) {
		s->node->swept = false;
		free(s);
		return;
	}
	s->node->disks_works++;
	s->work.work = list_work;
	s->work.done = list_done;
	env_work(s->node->env, NULL, &s->work);
}

bool node__sweep(struct node *node)
{
	struct sweep *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return false;
	s->node = node;
	if (cmmds_barrier(node->cmmds, &s->barrier, on_barrier) == 0)
		return true;
	free(s);
	return false;
}
