/*
 * datadir: what is left where data_dir is.
 *
 * The directory and the indexes grow there.  What cannot be written down ends:
 * a disk when its index is full, the daemon when its directory is.
 */
#include "base/util.h"
#include "node/node_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>

struct asking {
	struct env_work work;
	struct node *node;
	bool known;
	uint64_t free_bytes, bytes;
};

/* It waits for what is under the file system, if that hangs. */
static void ask_work(struct env_work *work)
{
	struct asking *a = container_of(work, struct asking, work);
	struct statvfs st;

	a->known = statvfs(a->node->config->data_dir, &st) == 0;
	if (!a->known)
		return;
	a->free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
	a->bytes = (uint64_t)st.f_blocks * st.f_frsize;
}

static void ask_done(struct env_work *work)
{
	struct asking *a = container_of(work, struct asking, work);
	struct node *node = a->node;

	node->datadir_asked = false;
	node->datadir_known = a->known;
	node->datadir_free_bytes = a->free_bytes;
	node->datadir_bytes = a->bytes;
	free(a);
	node__disks_work_done(node);
}

void node__datadir_ask(struct node *node)
{
	struct asking *a;

	if (node->datadir_asked)
		return;
	a = calloc(1, sizeof(*a));
	if (a == NULL)
		return; /* the next time */
	a->node = node;
	a->work.work = ask_work;
	a->work.done = ask_done;
	node->datadir_asked = true;
	node->disks_works++;
	env_work(node->env, NULL, &a->work);
}

enum health_level node__datadir_level(const struct node *node)
{
	if (!node->datadir_known)
		return HEALTH_OK;
	if (node->datadir_free_bytes < NODE_DATADIR_BAD)
		return HEALTH_BAD;
	if (node->datadir_free_bytes < NODE_DATADIR_WARN ||
	    node->datadir_free_bytes <
		    node->datadir_bytes / 100 * NODE_DATADIR_WARN_PERCENT)
		return HEALTH_WARN;
	return HEALTH_OK;
}

void node__datadir_fix(const struct node *node, const char *then, char *out,
		       size_t len)
{
	snprintf(out, len, "data_dir %.100s is full: free space there, then %s",
		 node->config->data_dir, then);
}
