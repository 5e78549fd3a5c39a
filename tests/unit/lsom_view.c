/*
 * A disk of one shard used from others: files, io_uring, RocksDB, and a thread
 * for each shard.  Checks on other threads than the test's are NEED()s: they end
 * the process.
 */
#include "tests/lib/must.h"
#include "tests/lib/test.h"

#include "base/crc.h"
#include "base/shard.h"
#include "base/util.h"
#include "lsom/lsom.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DISK_BYTES (64ull << 20)
#define SHARDS 3u
#define HOME 1u
#define BLOCKS 64u /* of a component */
#define ROUNDS 6u

struct fixture {
	struct test_shard ts;
	struct lsom *lsom[SHARDS];
	struct lsom_disk *disk; /* home's */
	char path[300], index[300];
	struct uuid cluster;
	struct lsom_disk_open open;
	struct lsom_disk_close close;
	struct env_task task, back;
	int status;
	bool done;
};

/* ---- the home's disk may fail ---- */

static const struct env_ops *real_ops;
static struct env_ops home_ops;
static atomic_bool failing;

static void home_writev(struct env_dev *dev, struct env_io *io,
			const struct iovec *iov, unsigned n, uint64_t offset,
			unsigned flags)
{
	if (atomic_load(&failing))
		offset = 1ull << 60; /* beyond every device */
	real_ops->dev_writev(dev, io, iov, n, offset, flags);
}

/* ---- and its home may be busy ---- */

static _Thread_local bool at_home_here;
static atomic_uint busy; /* writes that it has no room for yet */

int __real_lsom_write(struct lsom_comp *comp, struct lsom_write *req,
		      lsom_write_cb cb);
int __wrap_lsom_write(struct lsom_comp *comp, struct lsom_write *req,
		      lsom_write_cb cb);

int __wrap_lsom_write(struct lsom_comp *comp, struct lsom_write *req,
		      lsom_write_cb cb)
{
	if (at_home_here && atomic_load(&busy) > 0) {
		atomic_fetch_sub(&busy, 1);
		return -EBUSY;
	}
	return __real_lsom_write(comp, req, cb);
}

/* ---- opening and closing, on the home ---- */

static void on_back(struct env_task *task)
{
	container_of(task, struct fixture, back)->done = true;
}

static void back(struct fixture *f, int status)
{
	f->status = status;
	f->back.cb = on_back;
	env_post(f->ts.env, &f->back);
}

static void opened(struct lsom_disk_open *req, int status)
{
	struct fixture *f = req->data;

	f->disk = req->opened;
	back(f, status);
}

static void there_open(struct env_task *task)
{
	struct fixture *f = container_of(task, struct fixture, task);

	f->open = (struct lsom_disk_open){ .data = f,
					   .path = f->path,
					   .index_path = f->index,
					   .cluster = f->cluster };
	at_home_here = true;
	NEED(lsom_disk_open(f->lsom[HOME], &f->open, opened) == 0);
}

static void closed(struct lsom_disk_close *req, int status)
{
	back(req->data, status);
}

static void there_close(struct env_task *task)
{
	struct fixture *f = container_of(task, struct fixture, task);

	f->close = (struct lsom_disk_close){ .data = f };
	NEED(lsom_disk_close(f->disk, &f->close, closed) == 0);
}

static void at_home(struct fixture *f, void (*cb)(struct env_task *task))
{
	f->done = false;
	f->task.cb = cb;
	env_post(shard_env(f->ts.shards, HOME), &f->task);
	test_run(&f->ts, &f->done);
	CHECK_EQ(f->status, 0);
}

static struct fixture *fixture_open(void)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct lsom_format format = { 0 };
	char *dir = test_dir();

	test_shards_open(&f->ts, SHARDS, 256u << 20);
	atomic_store(&failing, false);
	real_ops = f->ts.env->ops;
	home_ops = *real_ops;
	home_ops.dev_writev = home_writev;
	shard_env(f->ts.shards, HOME)->ops = &home_ops;
	snprintf(f->path, sizeof(f->path), "%s/disk", dir);
	snprintf(f->index, sizeof(f->index), "%s/index", dir);
	free(dir);
	test_file(f->path, DISK_BYTES);
	f->cluster = uuid_of(200);
	format.path = f->path;
	format.disk = uuid_of(100);
	format.cluster = f->cluster;
	format.segment_bytes = 2u << 20;
	CHECK_EQ(lsom_disk_format(f->ts.env, &format), 0);
	for (unsigned i = 0; i < SHARDS; i++) {
		struct lsom_config config = { .env = shard_env(f->ts.shards,
							       i) };

		CHECK_EQ(lsom_open(&config, &f->lsom[i]), 0);
	}
	at_home(f, there_open);
	return f;
}

static void fixture_close(struct fixture *f)
{
	at_home(f, there_close);
	for (unsigned i = 0; i < SHARDS; i++)
		lsom_close(f->lsom[i]);
	test_shard_close(&f->ts);
	free(f);
}

/* ---- a user of the disk, on a shard of its own ---- */

enum life {
	ATTACH,
	CREATE,
	SEAL,
	WRITE,
	READ,
	ABANDON, /* a write that nobody decides */
	SEAL_AGAIN,
	SETTLE,
	KEEP, /* writes that nobody commits, of what was promised */
	DELETE,
	LEAVE,
	GONE,
};

struct user {
	struct fixture *f;
	unsigned shard, part, parts, object;
	bool keep; /* the component, for another life */
	bool fail; /* the disk fails under it */
	bool keeps, fills; /* crowd */
	struct env *env;
	struct lsom_disk *disk;
	struct lsom_comp *comp;
	struct lsom_attach attach;
	struct lsom_detach detach;
	struct lsom_disk_watch watch;
	bool told_failed;
	struct lsom_meta meta;
	struct lsom_write write[BLOCKS];
	struct lsom_decide decide[BLOCKS];
	struct lsom_read read;
	struct lsom_scan scan;
	struct lsom_version versions[BLOCKS];
	uint32_t crcs[BLOCKS], read_crcs[BLOCKS];
	uint64_t lsn, oepoch;
	unsigned left, round, undecided;
	int status;
	enum life life;
	struct env_task task, end;
	bool done;
};

static void step(struct user *u);

static uint8_t byte_of(const struct user *u, unsigned block, unsigned round)
{
	return (uint8_t)(u->object * 31 + block * 7 + round + 1);
}

static void on_meta(struct lsom_meta *meta, int status)
{
	struct user *u = meta->data;

	u->status = status;
	step(u);
}

static void meta_send(struct user *u, enum lsom_meta_op op)
{
	struct lsom_meta *m = &u->meta;

	*m = (struct lsom_meta){ .data = u, .op = op };
	if (op == LSOM_CREATE) {
		m->meta.cid = uuid_of(u->object);
		m->meta.oid = uuid_of(u->object);
		m->meta.cinc = 7;
		m->meta.size_bytes = BLOCKS * LSOM_BLOCK;
		m->meta.promised_oepoch = u->oepoch;
		m->meta.member_csn = 1;
		m->meta.state_seen = LSOM_ACTIVE;
		NEED(lsom_comp_create(u->disk, m, on_meta) == 0);
		return;
	}
	m->meta = *lsom_comp_meta(u->comp);
	m->meta.promised_oepoch = u->oepoch;
	NEED(lsom_comp_update(u->comp, m, on_meta) == 0);
}

static void on_decided(struct lsom_decide *req, int status)
{
	struct user *u = req->data;

	NEED(status == 0);
	if (--u->left == 0)
		step(u);
}

static void on_written(struct lsom_write *req, int status)
{
	struct user *u = req->data;
	unsigned i = (unsigned)(req - u->write);

	if (u->life == KEEP) {
		NEED(status == 0);
		u->decide[i] =
			(struct lsom_decide){ .data = u, .lsn = req->lsn };
		NEED(lsom_decide(u->comp, &u->decide[i], on_decided) == 0);
		return;
	}
	if (u->fail || u->life == ABANDON) {
		NEED(u->fail ? status == -EIO || status == -ENODEV
			     : status == 0);
		u->status = status;
		if (--u->left == 0)
			step(u);
		return;
	}
	NEED(status == 0);
	u->decide[i] = (struct lsom_decide){ .data = u,
					     .commit = true,
					     .lsn = req->lsn };
	NEED(lsom_decide(u->comp, &u->decide[i], on_decided) == 0);
}

static void write_send(struct user *u, unsigned i, unsigned round)
{
	struct sgl *sgl;
	uint8_t bytes[LSOM_BLOCK];

	memset(bytes, byte_of(u, i, round), sizeof(bytes));
	NEED(sgl_new(u->env->pages, PAGE_FRONT, LSOM_BLOCK, 0, &sgl) == 0);
	sgl_write(sgl, 0, bytes, sizeof(bytes));
	u->crcs[i] = sgl_crc(sgl, 0, LSOM_BLOCK);
	NEED(lsom_credit_take(u->comp, 1) == 0);
	u->write[i] = (struct lsom_write){ .data = u,
					   .kind = LSOM_PREP,
					   .offset = (uint64_t)i * LSOM_BLOCK,
					   .len = LSOM_BLOCK,
					   .sgl = sgl,
					   .crcs = &u->crcs[i],
					   .lsn = LSN(u->oepoch, ++u->lsn),
					   .member_csn = 1,
					   .credits = 1 };
	u->left++;
	NEED(lsom_write(u->comp, &u->write[i], on_written) == 0);
	sgl_put(sgl); /* while the other shard uses its pages */
}

static void on_read(struct lsom_read *req, int status)
{
	struct user *u = req->data;
	uint8_t bytes[LSOM_BLOCK];

	NEED(status == 0);
	NEED(req->sgl->len_bytes == BLOCKS * LSOM_BLOCK);
	for (unsigned i = 0; i < BLOCKS; i++) {
		sgl_read(req->sgl, (size_t)i * LSOM_BLOCK, bytes, LSOM_BLOCK);
		NEED(bytes[0] == byte_of(u, i, u->round));
		NEED(memcmp(bytes, bytes + 1, LSOM_BLOCK - 1) == 0);
		NEED(u->read_crcs[i] == crc32c(bytes, LSOM_BLOCK));
	}
	sgl_put(req->sgl);
	step(u);
}

static void read_send(struct user *u)
{
	u->read = (struct lsom_read){ .data = u,
				      .len = BLOCKS * LSOM_BLOCK,
				      .class = PAGE_FRONT,
				      .crcs = u->read_crcs };
	NEED(lsom_read(u->comp, &u->read, on_read) == 0);
}

static void on_scanned(struct lsom_scan *req, int status)
{
	struct user *u = req->data;

	NEED(status == 0);
	NEED(req->items_count == BLOCKS);
	NEED(req->next == BLOCKS * LSOM_BLOCK);
	NEED(u->versions[3].crc == u->read_crcs[3]);
	u->life = ABANDON;
	write_send(u, 5, 99);
}

static void undecided(const struct lsom_undecided *un, void *arg)
{
	struct user *u = arg;

	NEED(un->lsn == u->write[5].lsn);
	NEED(un->offset == 5 * LSOM_BLOCK);
	NEED(un->len == LSOM_BLOCK);
	NEED(un->crcs[0] == u->crcs[5]);
	u->undecided++;
}

static void on_detached(struct lsom_detach *req)
{
	struct user *u = req->data;

	u->life = GONE;
	env_post(u->f->ts.env, &u->end);
}

static void leave(struct user *u)
{
	u->life = LEAVE;
	lsom_disk_unwatch(u->disk, &u->watch);
	u->detach.data = u;
	/* The handle is put later: the detaching waits for it. */
	lsom_disk_detach(u->disk, &u->detach, on_detached);
	if (u->comp != NULL)
		lsom_comp_put(u->comp);
}

static void on_watch(struct lsom_disk_watch *watch, struct lsom_disk *disk)
{
	struct user *u = container_of(watch, struct user, watch);
	struct lsom_disk_info info;

	lsom_disk_info(disk, &info);
	if (info.state != LSOM_DISK_FAILED)
		return;
	u->told_failed = true;
	if (u->status < 0 && u->left == 0)
		leave(u);
}

static void count(struct lsom_comp *comp, void *arg)
{
	struct user *u = arg;
	struct uuid cid = uuid_of(u->object);

	NEED(uuid_equal(&lsom_comp_meta(comp)->cid, &cid));
	u->undecided++;
}

static void on_attached(struct lsom_attach *req, int status)
{
	struct user *u = req->data;
	struct lsom_disk_info info;
	struct uuid cid = uuid_of(u->object);

	NEED(status == 0);
	u->disk = req->attached;
	u->watch.cb = on_watch;
	lsom_disk_watch(u->disk, &u->watch);
	lsom_disk_info(u->disk, &info);
	NEED(info.state == LSOM_DISK_ONLINE);
	NEED(info.usable_bytes > 0);
	u->comp = lsom_comp_get(u->disk, &cid);
	step(u);
}

static void after_create(struct user *u)
{
	struct uuid cid = uuid_of(u->object);

	NEED(u->status == 0);
	u->comp = lsom_comp_get(u->disk, &cid);
	NEED(u->comp != NULL);
	if (!u->fills) {
		lsom_comp_reserve(u->comp, LSOM_BLOCK); /* the last counts */
		lsom_comp_reserve(u->comp, BLOCKS * LSOM_BLOCK);
	}
	u->life = SEAL;
	meta_send(u, LSOM_SEAL);
}

static void writes_send(struct user *u)
{
	u->life = WRITE;
	for (unsigned i = 0; i < BLOCKS; i++)
		write_send(u, i, u->round);
}

/*
 * A full disk, two shards: one takes and gives back what it was promised, the
 * other the last block of the rest.
 */
static struct {
	atomic_bool promised, full, end;
} crowd;

static void crowd_keep(struct user *u)
{
	atomic_store(&crowd.promised, true);
	while (!atomic_load(&crowd.full))
		sched_yield();
	for (unsigned i = 0; i < 2000; i++) {
		NEED(lsom_credit_take(u->comp, BLOCKS) == 0);
		lsom_credit_return(u->comp, BLOCKS);
	}
	if (++u->round > 100) {
		atomic_store(&crowd.end, true);
		u->life = DELETE;
		meta_send(u, LSOM_DELETE);
		return;
	}
	u->life = KEEP;
	for (unsigned i = 0; i < 8; i++)
		write_send(u, i, u->round);
}

static void crowd_fill(struct user *u)
{
	uint64_t taken = 0;

	while (!atomic_load(&crowd.promised))
		sched_yield();
	for (uint64_t n = DISK_BYTES / LSOM_BLOCK; n > 0; n /= 2)
		while (lsom_credit_take(u->comp, n) == 0)
			taken += n;
	NEED(taken > BLOCKS);
	NEED(lsom_credit_take(u->comp, 1) == -ENOSPC);
	lsom_credit_return(u->comp, 1);
	atomic_store(&crowd.full, true);
	while (!atomic_load(&crowd.end)) {
		int rv = lsom_credit_take(u->comp, 1);

		NEED(rv == 0 || rv == -EBUSY);
		if (rv == 0)
			lsom_credit_return(u->comp, 1);
	}
	lsom_credit_return(u->comp, taken - 1);
	u->life = DELETE;
	meta_send(u, LSOM_DELETE);
}

/* The next thing in a user's life; each answer leads here. */
static void step(struct user *u)
{
	switch (u->life) {
	case ATTACH:
		if (u->comp != NULL) { /* of an earlier life */
			u->undecided = 0;
			lsom_comp_each(u->disk, count, u);
			NEED(u->undecided == 1);
			NEED(lsom_comp_meta(u->comp)->promised_oepoch == 2);
			u->round = ROUNDS;
			u->life = READ;
			u->keep = false;
			read_send(u);
			break;
		}
		u->life = CREATE;
		meta_send(u, LSOM_CREATE);
		break;
	case CREATE:
		after_create(u);
		break;
	case SEAL:
		NEED(u->status == 0);
		NEED(lsom_comp_meta(u->comp)->promised_oepoch == u->oepoch);
		if (u->fills) {
			crowd_fill(u);
			break;
		}
		/* It was told behind what has been answered. */
		NEED(lsom_comp_kept(u->comp) == BLOCKS * LSOM_BLOCK);
		NEED(lsom_credit_take(u->comp, 3) == 0);
		NEED(lsom_comp_kept(u->comp) == (BLOCKS - 3) * LSOM_BLOCK);
		lsom_credit_return(u->comp, 3);
		NEED(lsom_comp_kept(u->comp) == BLOCKS * LSOM_BLOCK);
		if (u->keeps) {
			crowd_keep(u);
			break;
		}
		if (u->fail)
			atomic_store(&failing, true);
		u->round = 1;
		writes_send(u);
		break;
	case WRITE:
		if (u->fail) {
			if (u->told_failed)
				leave(u);
			break;
		}
		u->life = READ;
		read_send(u);
		break;
	case READ:
		if (u->oepoch == 3) { /* the second life */
			u->life = DELETE;
			meta_send(u, LSOM_DELETE);
			break;
		}
		NEED(u->round > 1 || lsom_comp_kept(u->comp) == 0);
		if (++u->round <= ROUNDS) {
			writes_send(u);
		} else {
			u->round = ROUNDS;
			u->scan =
				(struct lsom_scan){ .data = u,
						    .len = BLOCKS * LSOM_BLOCK,
						    .items = u->versions,
						    .items_max = BLOCKS };
			NEED(lsom_scan(u->comp, &u->scan, on_scanned) == 0);
		}
		break;
	case ABANDON:
		u->oepoch++;
		u->life = SEAL_AGAIN;
		meta_send(u, LSOM_SEAL);
		break;
	case SEAL_AGAIN:
		NEED(u->status == 0);
		NEED(lsom_comp_meta(u->comp)->promised_oepoch == u->oepoch);
		u->undecided = 0;
		lsom_undecided_each(u->comp, undecided, u);
		NEED(u->undecided == 1);
		u->life = SETTLE;
		u->left = 1;
		u->decide[5] = (struct lsom_decide){ .data = u,
						     .lsn = u->write[5].lsn };
		NEED(lsom_decide(u->comp, &u->decide[5], on_decided) == 0);
		break;
	case SETTLE:
		if (u->keep) {
			leave(u);
			break;
		}
		u->life = DELETE;
		meta_send(u, LSOM_DELETE);
		break;
	case KEEP:
		crowd_keep(u);
		break;
	case DELETE:
		NEED(u->status == 0);
		lsom_comp_each(u->disk, count, u);
		NEED(lsom_comp_kept(u->comp) == 0);
		NEED(lsom_credit_take(u->comp, 1) == -ENOENT);
		leave(u);
		break;
	case LEAVE:
	case GONE:
		NEED(false);
	}
}

static void user_end(struct env_task *task)
{
	container_of(task, struct user, end)->done = true;
}

static void user_begin(struct env_task *task)
{
	struct user *u = container_of(task, struct user, task);

	u->attach.data = u;
	NEED(lsom_disk_attach(u->f->lsom[u->shard], u->f->disk, u->part,
			      u->parts, &u->attach, on_attached) == 0);
}

/* An object of this part. */
static unsigned object_of(unsigned part, unsigned parts)
{
	unsigned n = 1;
	struct uuid id = uuid_of(n);

	while (uuid_hash(&id) % parts != part)
		id = uuid_of(++n);
	return n;
}

static struct user *user_start(struct fixture *f, unsigned shard, unsigned part,
			       unsigned parts, uint64_t oepoch)
{
	struct user *u = calloc(1, sizeof(*u));

	u->f = f;
	u->shard = shard;
	u->part = part;
	u->parts = parts;
	u->object = object_of(part, parts);
	u->oepoch = oepoch;
	u->env = shard_env(f->ts.shards, shard);
	u->task.cb = user_begin;
	u->end.cb = user_end;
	return u;
}

static void user_go(struct user *u)
{
	env_post(u->env, &u->task);
}

static void user_wait(struct user *u)
{
	test_run(&u->f->ts, &u->done);
	free(u);
}

/* Every call, from shard 0, on a disk of shard 1. */
TEST(lsom_view, whole_life)
{
	struct fixture *f = fixture_open();
	struct user *u = user_start(f, 0, 0, 1, 1);

	user_go(u);
	user_wait(u);
	fixture_close(f);
}

/* Two shards at once, neither is the home; then the home itself, attached too. */
TEST(lsom_view, all_shards_at_once)
{
	struct fixture *f = fixture_open();
	struct user *u[SHARDS];

	for (unsigned i = 0; i < SHARDS; i++) {
		u[i] = user_start(f, i, i, SHARDS, 1);
		user_go(u[i]);
	}
	for (unsigned i = 0; i < SHARDS; i++)
		user_wait(u[i]);
	fixture_close(f);
}

/* What one shard wrote is another's after the number of shards changed. */
TEST(lsom_view, another_number_of_shards)
{
	struct fixture *f = fixture_open();
	struct user *u = user_start(f, 2, 1, 2, 1);

	u->keep = true;
	user_go(u);
	user_wait(u);
	at_home(f, there_close);
	at_home(f, there_open);
	u = user_start(f, 0, 0, 1, 3);
	u->object = object_of(1, 2);
	user_go(u);
	user_wait(u);
	fixture_close(f);
}

/* It is asked again, with the credit that each write brought. */
TEST(lsom_view, a_home_that_is_busy)
{
	struct fixture *f = fixture_open();
	struct user *u = user_start(f, 0, 0, 1, 1);

	atomic_store(&busy, 3 * BLOCKS);
	user_go(u);
	user_wait(u);
	CHECK_EQ(atomic_load(&busy), 0);
	fixture_close(f);
}

/* A disk that fails says so to every view, and answers everything. */
TEST(lsom_view, a_disk_that_fails)
{
	struct fixture *f = fixture_open();
	struct user *u = user_start(f, 0, 0, 1, 1);

	u->fail = true;
	user_go(u);
	user_wait(u);
	fixture_close(f);
}

/* What goes from one count to another is nobody's "full", on whichever shard. */
TEST(lsom_view, room_while_others_take)
{
	struct fixture *f = fixture_open();
	struct user *u[2];

	atomic_store(&crowd.promised, false);
	atomic_store(&crowd.full, false);
	atomic_store(&crowd.end, false);
	for (unsigned i = 0; i < 2; i++) {
		u[i] = user_start(f, 2 * i, i, 2, 1);
		u[i]->keeps = i == 0;
		u[i]->fills = i == 1;
		user_go(u[i]);
	}
	for (unsigned i = 0; i < 2; i++)
		user_wait(u[i]);
	fixture_close(f);
}
