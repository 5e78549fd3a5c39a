/*
 * datadir: what is left where data_dir is.
 *
 * The directory and the indexes grow there.  What cannot be written down waits for
 * space: changes of the directory, and for some time a disk's index.
 */
#include "base/size.h"
#include "base/util.h"
#include "node/node_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

struct asking {
	struct env_work work;
	struct node *node;
	struct node_datadir found;
};

/* It waits for what is under the file system, if that hangs. */
static void ask_work(struct env_work *work)
{
	struct asking *a = container_of(work, struct asking, work);
	struct statvfs st;

	a->found.known = true;
	if (statvfs(a->node->config->data_dir, &st) < 0) {
		a->found.status = -errno;
		return;
	}
	a->found.read_only = st.f_flag & ST_RDONLY;
	a->found.free_bytes = (uint64_t)st.f_bavail * st.f_frsize;
	a->found.bytes = (uint64_t)st.f_blocks * st.f_frsize;
	/* Some file systems do not count them. */
	a->found.free_files = st.f_files > 0 ? st.f_favail : UINT64_MAX;
}

static void ask_done(struct env_work *work)
{
	struct asking *a = container_of(work, struct asking, work);
	struct node *node = a->node;

	node->datadir_asked = false;
	node->datadir = a->found;
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

static enum health_level bytes_level(const struct node_datadir *d)
{
	if (d->free_bytes < NODE_DATADIR_BAD)
		return HEALTH_BAD;
	if (d->free_bytes < NODE_DATADIR_WARN ||
	    d->free_bytes < d->bytes / 100 * NODE_DATADIR_WARN_PERCENT)
		return HEALTH_WARN;
	return HEALTH_OK;
}

static enum health_level files_level(const struct node_datadir *d)
{
	return d->free_files < NODE_DATADIR_FILES_BAD	 ? HEALTH_BAD
	       : d->free_files < NODE_DATADIR_FILES_WARN ? HEALTH_WARN
							 : HEALTH_OK;
}

enum health_level node__datadir_level(const struct node *node, char *why,
				      size_t len)
{
	const struct node_datadir *d = &node->datadir;
	enum health_level bytes = bytes_level(d), files = files_level(d);
	char text[SIZE_TEXT_MAX];

	if (!d->known)
		return HEALTH_OK;
	if (d->status < 0) {
		snprintf(why, len, "%s", strerror(-d->status));
		return HEALTH_BAD;
	}
	if (d->read_only) {
		snprintf(why, len, "it is read-only");
		return HEALTH_BAD;
	}
	if (files > bytes)
		snprintf(why, len, "no more than %llu files can be made",
			 (unsigned long long)d->free_files);
	else
		snprintf(why, len, "%s left", size_format(d->free_bytes, text));
	return MAX(bytes, files);
}

void node__datadir_fix(const struct node *node, const char *then, char *out,
		       size_t len)
{
	snprintf(out, len, "data_dir %.100s is full: free space there, then %s",
		 node->config->data_dir, then);
}
