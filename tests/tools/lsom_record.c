/*
 * lsom_record: the store alone under load, for lsom_powercut to replay.
 *
 *	lsom_record make DISK INDEX		a disk of 96 MiB with a component
 *	lsom_record run DISK INDEX JOURNAL N [HOLES]  N acknowledged writes on
 *						it, HOLES per cent are unmaps
 *
 * `run` goes through the real shard and io_uring, with BASALT_IO_RECORD set by
 * the caller; the journal has t_verify's form.  Writes are prepared versions,
 * decided a little later, as the owner above does; some of them are unmaps.
 */
#include "base/page.h"
#include "base/sgl.h"
#include "base/shard.h"
#include "lsom/lsom.h"
#include "tests/lib/pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DISK_BYTES (96ull << 20)
#define COMP_BYTES (8ull << 20)
#define BLOCKS (COMP_BYTES / BLOCK)
#define DEPTH 16u
#define LEN_MAX 16u /* blocks */

struct slot {
	struct lsom_write req;
	uint32_t crcs[LEN_MAX];
	struct journal_entry entry;
	uint64_t lsn;
	bool used, failed;
};

static struct {
	struct env *env;
	struct lsom *lsom;
	struct lsom_disk *disk;
	struct lsom_comp *comp;
	FILE *journal;
	int record_fd;
	struct slot slots[DEPTH];
	uint8_t busy[BLOCKS];
	uint64_t acked, wanted, lsn, random;
	unsigned in_flight;
	uint32_t gen;
	bool done;
	int status;
	unsigned holes; /* per cent of the writes */
} r = { .random = 7, .holes = 10 };

static _Noreturn void die(const char *what, int rv)
{
	fprintf(stderr, "lsom_record: %s: %s\n", what, strerror(-rv));
	exit(1);
}

static void wait_done(const char *what, int rv)
{
	if (rv == 0) {
		shard_run_until(r.env, &r.done);
		rv = r.status;
	}
	r.done = false;
	if (rv != 0)
		die(what, rv);
}

static void on_open(struct lsom_disk_open *req, int status)
{
	r.disk = req->opened;
	r.status = status;
	r.done = true;
}

static void on_close(struct lsom_disk_close *req, int status)
{
	r.status = status;
	r.done = true;
}

static void on_meta(struct lsom_meta *req, int status)
{
	r.status = status;
	r.done = true;
}

static const struct uuid cluster = { { 200 } }, disk_id = { { 100 } };
static const struct uuid cid = { { 1 } }, oid = { { 2 } };

static void disk_open(const char *path, const char *index)
{
	struct lsom_disk_open req = { .path = path,
				      .index_path = index,
				      .cluster = cluster };

	wait_done("open", lsom_disk_open(r.lsom, &req, on_open));
}

static void disk_close(void)
{
	struct lsom_disk_close req = { 0 };

	wait_done("close", lsom_disk_close(r.disk, &req, on_close));
}

static void make(const char *path, const char *index)
{
	struct lsom_format format = { .path = path,
				      .disk = disk_id,
				      .cluster = cluster,
				      .segment_bytes = 4u << 20 };
	struct lsom_meta meta = { .op = LSOM_CREATE,
				  .meta = { .cid = cid,
					    .oid = oid,
					    .cinc = 1,
					    .size_bytes = COMP_BYTES,
					    .promised_oepoch = 1,
					    .member_csn = 1,
					    .csn_seen = 1,
					    .state_seen = LSOM_ACTIVE } };
	int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600), rv;

	if (fd < 0 || ftruncate(fd, (off_t)DISK_BYTES) != 0)
		die(path, -errno);
	close(fd);
	rv = lsom_disk_format(r.env, &format);
	if (rv != 0)
		die("format", rv);
	disk_open(path, index);
	wait_done("create", lsom_comp_create(r.disk, &meta, on_meta));
	disk_close();
}

/* ---- the load ---- */

static void note(struct slot *slot, bool acked)
{
	struct stat st;

	if (fstat(r.record_fd, &st) != 0)
		die("the record", -errno);
	slot->entry.record_bytes = (uint64_t)st.st_size;
	slot->entry.acked = acked;
	if (fwrite(&slot->entry, sizeof(slot->entry), 1, r.journal) != 1)
		die("the journal", -errno);
}

static void slot_send(struct slot *slot);

/* All lsns below the oldest in flight are decided, as with one owner. */
static uint64_t stable(void)
{
	uint64_t low = r.lsn;

	for (unsigned i = 0; i < DEPTH; i++)
		if (r.slots[i].used && r.slots[i].lsn - 1 < low)
			low = r.slots[i].lsn - 1;
	return low;
}

static void on_write(struct lsom_write *req, int status)
{
	struct slot *slot = req->data;
	struct lsom_decided decided = { 0 };
	uint64_t first = slot->entry.offset / BLOCK;

	if (status != 0)
		die("a write", status);
	note(slot, true);
	sgl_put(slot->req.sgl);
	for (uint64_t b = 0; b < slot->entry.len / BLOCK; b++)
		r.busy[first + b] = 0;
	slot->used = false;
	r.in_flight--;
	r.acked++;
	if (r.acked % 5 == 0) {
		decided.stable_lsn = decided.g_all = stable();
		lsom_decided(r.comp, &decided);
	}
	if (r.acked + r.in_flight < r.wanted)
		slot_send(slot);
	else if (r.in_flight == 0)
		r.done = true;
}

static void slot_fill(struct slot *slot, uint64_t first, unsigned n)
{
	static uint8_t buf[LEN_MAX * BLOCK];
	struct sgl *sgl;
	int rv = sgl_new(r.env->pages, PAGE_FRONT, (size_t)n * BLOCK, 0, &sgl);

	if (rv != 0)
		die("pages", rv);
	for (uint64_t at = 0; at < (uint64_t)n * BLOCK; at += SECTOR)
		sector_fill(buf + at, first * BLOCK + at, 1, r.gen);
	sgl_write(sgl, 0, buf, (size_t)n * BLOCK);
	for (unsigned i = 0; i < n; i++)
		slot->crcs[i] = sgl_crc(sgl, (size_t)i * BLOCK, BLOCK);
	slot->req.sgl = sgl;
	slot->req.crcs = slot->crcs;
}

static void slot_send(struct slot *slot)
{
	unsigned n = 1 + random_next(&r.random) % LEN_MAX;
	bool hole = random_next(&r.random) % 100 < r.holes, clear;
	uint64_t first;
	int rv;

	do { /* 16 of 2048 blocks busy sixteen times: ends soon */
		first = random_next(&r.random) % (BLOCKS - n + 1);
		clear = true;
		for (unsigned i = 0; i < n; i++)
			clear = clear && !r.busy[first + i];
	} while (!clear);
	memset(r.busy + first, 1, n);
	r.gen++;
	slot->used = true;
	slot->lsn = LSN(1, ++r.lsn & ((1ull << LSN_SEQ_BITS) - 1));
	r.lsn = slot->lsn;
	slot->entry = (struct journal_entry){ .offset = first * BLOCK,
					      .len = n * BLOCK,
					      .gen = hole ? 0 : r.gen };
	slot->req = (struct lsom_write){ .data = slot,
					 .kind = LSOM_PREP,
					 .flags = hole ? LSOM_W_HOLE : 0,
					 .offset = first * BLOCK,
					 .len = (uint64_t)n * BLOCK,
					 .lsn = slot->lsn,
					 .member_csn = 1 };
	if (!hole)
		slot_fill(slot, first, n);
	note(slot, false);
	r.in_flight++;
	rv = lsom_write(r.comp, &slot->req, on_write);
	if (rv != 0)
		die("lsom_write", rv);
}

static void load(void)
{
	for (unsigned i = 0; i < DEPTH && i < r.wanted; i++)
		slot_send(&r.slots[i]);
	shard_run_until(r.env, &r.done);
	r.done = false;
}

int main(int argc, char **argv)
{
	struct arena_config arena_config = { .bytes = 256u << 20 };
	struct lsom_config config = { 0 };
	struct shards *shards;
	struct arena *arena;

	if (argc < 4 || (strcmp(argv[1], "run") == 0 && argc < 6)) {
		fprintf(stderr, "usage: lsom_record make DISK INDEX | run DISK "
				"INDEX JOURNAL N [HOLES%%]\n");
		return 2;
	}
	if (arena_open(&arena_config, &arena) != 0 ||
	    shards_open(&(struct shards_config){ .count = 1, .arena = arena },
			&shards) != 0)
		die("a shard", -ENOMEM);
	r.env = config.env = shard_env(shards, 0);
	if (lsom_open(&config, &r.lsom) != 0)
		die("lsom_open", -ENOMEM);
	if (strcmp(argv[1], "make") == 0) {
		make(argv[2], argv[3]);
	} else {
		disk_open(argv[2], argv[3]);
		r.comp = lsom_comp_get(r.disk, &cid);
		r.journal = fopen(argv[4], "wb");
		r.record_fd = open(getenv("BASALT_IO_RECORD") ?: "", O_RDONLY);
		if (r.comp == NULL || r.journal == NULL || r.record_fd < 0)
			die("the component, the journal or the record",
			    -ENOENT);
		if (argc > 6)
			r.holes = (unsigned)atoi(argv[6]);
		r.wanted = strtoull(argv[5], NULL, 0);
		r.lsn = lsom_comp_meta(r.comp)->max_lsn;
		load();
		fclose(r.journal);
		/* Nothing is closed: the power is gone. */
		_exit(0);
	}
	return 0;
}
