/*
 * backup: a copy of the directory's store, made while it serves.
 *
 * It is a store of its own, written anew from what the store holds: what a copy of
 * a stopped node's would be.  The store itself is only read, in its lane's turn, and
 * all of it, so that no copy is made of one that is damaged; what the copy is
 * written to may be slow, and holds nobody up.
 */
#include "cmmds/cmmds_int.h"

#include <errno.h>
#include <stdlib.h>

struct backup {
	struct store_look look;
	struct env_work work;
	struct cmmds_backup *req;
	struct raft_store *store;
	struct env *env;
	struct kv_batch batch; /* all of it */
	int status;
};

static void backup_end(struct backup *b, int status)
{
	struct cmmds_backup *req = b->req;

	kv_batch_fini(&b->batch);
	free(b);
	req->cb(req, status);
}

static void write_work(struct env_work *work)
{
	struct backup *b = container_of(work, struct backup, work);
	struct kv_config config = {
		.path = b->req->path,
		.create = true,
		.log = true,
		.memory_bytes = 4u << 20,
	};
	struct kv *to = NULL;

	b->status = env_kv_open(b->env, &config, &to);
	if (b->status == 0)
		b->status = kv_apply(to, &b->batch);
	kv_close(to);
}

static void write_done(struct env_work *work)
{
	struct backup *b = container_of(work, struct backup, work);

	backup_end(b, b->status);
}

static bool read_key(void *arg, struct kv_slice key, struct kv_slice value)
{
	struct backup *b = arg;

	b->status = kv_batch_reserve(&b->batch, 1, key.len + value.len);
	if (b->status == 0)
		kv_batch_put(&b->batch, key, value);
	return b->status == 0;
}

static int read_work(struct store_look *look, struct kv *kv)
{
	struct backup *b = container_of(look, struct backup, look);
	int rv = store__check(b->store, kv, b->req->why);

	if (rv != 0)
		return rv;
	rv = kv_scan(kv, kv_slice("", 0), kv_slice(NULL, 0), read_key, b);
	return rv != 0 ? rv : b->status;
}

static void read_done(struct store_look *look, int status)
{
	struct backup *b = container_of(look, struct backup, look);

	if (status != 0) {
		backup_end(b, status);
		return;
	}
	b->work.work = write_work;
	b->work.done = write_done;
	env_work(b->env, NULL, &b->work);
}

int cmmds_backup(struct cmmds *cmmds, struct cmmds_backup *req,
		 cmmds_backup_cb cb)
{
	struct backup *b;
	int rv;

	assert(cmmds->home == NULL);
	if (cmmds->closing)
		return -ESHUTDOWN;
	if (cmmds->failed)
		return -EIO;
	b = calloc(1, sizeof(*b));
	if (b == NULL)
		return -ENOMEM;
	b->env = cmmds->env;
	b->store = cmmds->store_open.store;
	b->req = req;
	b->look.work = read_work;
	b->look.done = read_done;
	kv_batch_init(&b->batch);
	req->cb = cb;
	req->why[0] = '\0';
	rv = store__look(b->store, &b->look);
	if (rv < 0)
		free(b);
	return rv;
}
