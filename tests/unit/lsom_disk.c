/* A disk on a real shard: files, io_uring, RocksDB. */
#include "tests/lib/test.h"

#include "base/crc.h"
#include "base/env.h"
#include "base/shard.h"
#include "lsom/lsom_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define DISK_BYTES (64ull << 20)

struct fixture {
	struct test_shard ts;
	struct lsom *lsom;
	struct lsom_disk *disk;
	char path[300], index[300];
	struct uuid cluster, id;
	bool done;
	int status;
	char why[256];
};

static void file_make(struct fixture *f, uint64_t bytes)
{
	char *dir = test_dir();

	snprintf(f->path, sizeof(f->path), "%s/disk", dir);
	snprintf(f->index, sizeof(f->index), "%s/index", dir);
	free(dir);
	test_file(f->path, bytes);
	f->cluster = uuid_of(200);
	f->id = uuid_of(100);
}

static void opened(struct lsom_disk_open *req, int status)
{
	struct fixture *f = req->data;

	if (status < 0)
		print_message("# open: %d %s\n", status, req->why);
	snprintf(f->why, sizeof(f->why), "%s", req->why);
	f->disk = req->opened;
	f->status = status;
	f->done = true;
}

static int disk_open(struct fixture *f, bool rebuild)
{
	struct lsom_disk_open req = {
		.data = f,
		.path = f->path,
		.index_path = f->index,
		.cluster = f->cluster,
		.rebuild = rebuild,
	};

	f->done = false;
	CHECK_EQ(lsom_disk_open(f->lsom, &req, opened), 0);
	test_run(&f->ts, &f->done);
	return f->status;
}

static void closed(struct lsom_disk_close *req, int status)
{
	struct fixture *f = req->data;

	f->status = status;
	f->done = true;
}

static void disk_close(struct fixture *f)
{
	struct lsom_disk_close req = { .data = f };

	f->done = false;
	CHECK_EQ(lsom_disk_close(f->disk, &req, closed), 0);
	test_run(&f->ts, &f->done);
	CHECK_EQ(f->status, 0);
	f->disk = NULL;
}

static struct fixture *fixture_open(void)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct lsom_config config = { 0 };
	struct lsom_format format = { 0 };

	test_shard_open(&f->ts);
	file_make(f, DISK_BYTES);
	config.env = f->ts.env;
	CHECK_EQ(lsom_open(&config, &f->lsom), 0);
	format.path = f->path;
	format.disk = f->id;
	format.cluster = f->cluster;
	format.segment_bytes = 2u << 20;
	CHECK_EQ(lsom_disk_format(f->ts.env, &format), 0);
	CHECK_EQ(disk_open(f, false), 0);
	return f;
}

static void fixture_close(struct fixture *f)
{
	disk_close(f);
	lsom_close(f->lsom);
	test_shard_close(&f->ts);
	free(f);
}

static void meta_done(struct lsom_meta *req, int status)
{
	struct fixture *f = req->data;

	f->status = status;
	f->done = true;
}

static int create(struct fixture *f, unsigned n, uint64_t bytes)
{
	struct lsom_meta req = { .data = f, .op = LSOM_CREATE };

	req.meta.cid = uuid_of(n);
	req.meta.oid = uuid_of(n + 50);
	req.meta.cinc = 7;
	req.meta.size_bytes = bytes;
	req.meta.promised_oepoch = 1;
	req.meta.member_csn = 1;
	req.meta.state_seen = LSOM_ACTIVE;
	f->done = false;
	CHECK_EQ(lsom_comp_create(f->disk, &req, meta_done), 0);
	test_run(&f->ts, &f->done);
	return f->status;
}

static struct lsom_comp *comp(struct fixture *f, unsigned n)
{
	struct uuid id = uuid_of(n);

	return lsom_comp_get(f->disk, &id);
}

static void written(struct lsom_write *req, int status)
{
	struct fixture *f = req->data;

	f->status = status;
	f->done = true;
}

static struct sgl *pattern(struct fixture *f, uint64_t len, uint64_t seed,
			   uint32_t *crcs)
{
	struct sgl *sgl;
	uint64_t i, j;

	CHECK_EQ(sgl_new(f->ts.env->pages, PAGE_FRONT, len, 0, &sgl), 0);
	for (i = 0; i < len / LSOM_BLOCK; i++) {
		for (j = 0; j < LSOM_BLOCK / 8; j++)
			((uint64_t *)(void *)sgl->pieces[i].page->data)[j] =
				seed * 1000003 + i * 17 + j;
		crcs[i] = crc32c(sgl->pieces[i].page->data, LSOM_BLOCK);
	}
	return sgl;
}

/* @spoil: the last block's CRC is another one. */
static int put_with(struct fixture *f, struct lsom_comp *c, uint64_t offset,
		    uint64_t len, uint64_t lsn, uint64_t seed, unsigned flags,
		    bool spoil)
{
	uint32_t crcs[256];
	struct lsom_write req = {
		.data = f,
		.kind = LSOM_PREP,
		.flags = flags,
		.offset = offset,
		.len = len,
		.crcs = crcs,
		.lsn = lsn,
		.member_csn = 1,
	};
	int rv;

	req.sgl = pattern(f, len, seed, crcs);
	if (spoil)
		crcs[len / LSOM_BLOCK - 1] ^= 1;
	f->done = false;
	rv = lsom_write(c, &req, written);
	if (rv == 0) {
		test_run(&f->ts, &f->done);
		rv = f->status;
	}
	sgl_put(req.sgl);
	return rv;
}

static int put(struct fixture *f, struct lsom_comp *c, uint64_t offset,
	       uint64_t len, uint64_t lsn, uint64_t seed)
{
	return put_with(f, c, offset, len, lsn, seed, 0, false);
}

static void stable(struct lsom_comp *c, uint64_t lsn)
{
	struct lsom_decided d = { .stable_lsn = lsn };

	lsom_decided(c, &d);
}

static void read_done(struct lsom_read *req, int status)
{
	struct fixture *f = req->data;

	f->status = status;
	f->done = true;
}

/* 1: the pattern of @seed.  0: zeros.  Else -errno, or -1: something else. */
static int get(struct fixture *f, struct lsom_comp *c, uint64_t offset,
	       uint64_t len, uint64_t seed)
{
	uint32_t want[256], crcs[256];
	struct lsom_read req = {
		.data = f,
		.offset = offset,
		.len = len,
		.class = PAGE_FRONT,
		.crcs = crcs,
	};
	struct sgl *sgl = pattern(f, len, seed, want);
	int rv;

	f->done = false;
	rv = lsom_read(c, &req, read_done);
	if (rv == 0) {
		test_run(&f->ts, &f->done);
		rv = f->status;
	}
	if (rv == 0) {
		if (sgl_compare(sgl, req.sgl) < 0 &&
		    memcmp(want, crcs, len / LSOM_BLOCK * 4) == 0)
			rv = 1;
		else
			rv = sgl_is_zero(req.sgl) ? 0 : -1;
		sgl_put(req.sgl);
	}
	sgl_put(sgl);
	return rv;
}

TEST(disk, write_and_read)
{
	struct fixture *f = fixture_open();
	struct lsom_comp *c;

	CHECK_EQ(create(f, 1, 16u << 20), 0);
	CHECK_EQ(create(f, 1, 16u << 20), 0); /* again: the same */
	c = comp(f, 1);
	CHECK(c != NULL);
	CHECK_EQ(get(f, c, 0, 65536, 1), 0);
	CHECK_EQ(put(f, c, 8192, 65536, LSN(1, 1), 1), 0);
	CHECK_EQ(get(f, c, 8192, 65536, 1), 0); /* undecided: not visible */
	stable(c, LSN(1, 1));
	CHECK_EQ(get(f, c, 8192, 65536, 1), 1);
	CHECK_EQ(put(f, c, 8192, 4096, LSN(1, 1), 1), -ESTALE);
	CHECK_EQ(put(f, c, 12288, 4096, LSN(1, 2), 2), 0);
	stable(c, LSN(1, 2));
	CHECK_EQ(get(f, c, 12288, 4096, 2), 1);
	lsom_comp_put(c);
	fixture_close(f);
}

/* A CRC that is wrong is found: before the write, or else by every read. */
TEST(disk, crcs_of_the_caller)
{
	struct fixture *f = fixture_open();
	struct lsom_write hole = { .data = f,
				   .flags = LSOM_W_HOLE | LSOM_W_CHECKED,
				   .len = 4096,
				   .lsn = LSN(1, 9),
				   .member_csn = 1 };
	struct lsom_comp *c;

	CHECK_EQ(create(f, 1, 16u << 20), 0);
	c = comp(f, 1);
	CHECK_EQ(put_with(f, c, 0, 65536, LSN(1, 1), 1, 0, true), -EBADMSG);
	CHECK_EQ(put_with(f, c, 0, 65536, LSN(1, 1), 1, LSOM_W_CHECKED, false),
		 0);
	stable(c, LSN(1, 1));
	CHECK_EQ(get(f, c, 0, 65536, 1), 1);
	CHECK_EQ(put_with(f, c, 0, 65536, LSN(1, 2), 2, LSOM_W_CHECKED, true),
		 0);
	stable(c, LSN(1, 2));
	CHECK_EQ(get(f, c, 0, 61440, 2), 1);
	CHECK_EQ(get(f, c, 0, 65536, 2), -EBADMSG);
	CHECK_EQ(get(f, c, 61440, 4096, 2), -EBADMSG);
	CHECK_EQ(lsom_write(c, &hole, written), -EINVAL);
	lsom_comp_put(c);
	fixture_close(f);
}

TEST(disk, reopen_and_rebuild)
{
	struct fixture *f = fixture_open();
	struct lsom_comp *c;
	unsigned i, round;

	CHECK_EQ(create(f, 1, 16u << 20), 0);
	c = comp(f, 1);
	for (i = 1; i <= 40; i++)
		CHECK_EQ(put(f, c, i * 8192, 8192, LSN(1, i), i), 0);
	stable(c, LSN(1, 39));
	/* The last one rides on this record's batch. */
	CHECK_EQ(put(f, c, 0, 4096, LSN(1, 41), 41), 0);
	for (round = 0; round < 3; round++) {
		lsom_comp_put(c);
		disk_close(f);
		CHECK_EQ(disk_open(f, round == 1), 0);
		c = comp(f, 1);
		CHECK(c != NULL);
		CHECK_EQ(lsom_comp_meta(c)->stable_lsn, LSN(1, 39));
		CHECK_EQ(lsom_comp_meta(c)->max_lsn, LSN(1, 41));
		for (i = 1; i < 40; i++)
			CHECK_EQ(get(f, c, i * 8192, 8192, i), 1);
		CHECK_EQ(get(f, c, 40 * 8192, 8192, 40), 0);
		CHECK_EQ(get(f, c, 0, 4096, 41), 0);
	}
	stable(c, LSN(1, 41));
	CHECK_EQ(get(f, c, 40 * 8192, 8192, 40), 1);
	CHECK_EQ(get(f, c, 0, 4096, 41), 1);
	lsom_comp_put(c);
	fixture_close(f);
}

/* No queue is full, and no reservation is in conflict. */
TEST(disk, used_by_another)
{
	struct fixture *f = fixture_open();
	int fd = open(f->path, O_RDWR | O_CLOEXEC);

	disk_close(f);
	CHECK(fd >= 0);
	CHECK_EQ(flock(fd, LOCK_EX), 0);
	CHECK_EQ(disk_open(f, false), -EBUSY);
	CHECK(strstr(f->why, "another program uses it") != NULL);
	close(fd);
	CHECK_EQ(disk_open(f, false), 0);
	fixture_close(f);
}

/* ---- a disk of many components ---- */

enum { MANY = 2 * LSOM__FREE_PART + 8, AT_ONCE = 64 };

static unsigned many_made;

static void one_made(struct lsom_meta *req, int status)
{
	CHECK_EQ(status, 0);
	many_made++;
}

static void many_make(struct fixture *f, unsigned from, unsigned count)
{
	static struct lsom_meta reqs[AT_ONCE];

	many_made = 0;
	for (unsigned i = 0; i < count; i++) {
		struct lsom_meta *req = &reqs[i];

		memset(req, 0, sizeof(*req));
		req->op = LSOM_CREATE;
		memset(&req->meta.cid, 1, sizeof(req->meta.cid));
		put_le32(req->meta.cid.b, from + i);
		req->meta.oid = req->meta.cid;
		req->meta.cinc = 7;
		req->meta.size_bytes = 1 << 20;
		req->meta.promised_oepoch = 1;
		req->meta.member_csn = 1;
		req->meta.state_seen = LSOM_ACTIVE;
		CHECK_EQ(lsom_comp_create(f->disk, req, one_made), 0);
	}
	while (many_made < count)
		shard_step(f->ts.env, MSEC);
}

static size_t comps(const struct lsom_disk *disk)
{
	const struct lsom_comp *c;
	size_t n = 0;

	TAILQ_FOREACH (c, &disk->comps, link)
		n++;
	return n;
}

/* They go some in a turn, and it is closed when all have. */
TEST(disk, closed_with_many_components)
{
	struct fixture *f = fixture_open();
	struct lsom_disk_close req = { .data = f };
	size_t before = MANY, turns = 0;

	for (unsigned n = 0; n < MANY; n += AT_ONCE)
		many_make(f, n, MIN(MANY - n, (unsigned)AT_ONCE));
	CHECK_EQ(comps(f->disk), MANY);
	f->done = false;
	CHECK_EQ(lsom_disk_close(f->disk, &req, closed), 0);
	while (!f->done) {
		size_t now = comps(f->disk);

		CHECK(before - now <= LSOM__FREE_PART);
		turns += before != now;
		before = now;
		shard_step(f->ts.env, MSEC);
	}
	CHECK_EQ(turns, 2);
	CHECK_EQ(before, 8);
	CHECK_EQ(disk_open(f, false), 0);
	CHECK_EQ(comps(f->disk), MANY);
	fixture_close(f);
}
