/*
 * lsom_record: the store alone under load, for lsom_powercut to replay.
 *
 *	lsom_record make DISK INDEX MIB		a small disk with a component
 *	lsom_record run DISK INDEX JOURNAL ROUNDS	load on it
 *
 * `run` goes through the real shard and io_uring, with BASALT_IO_RECORD set by
 * the caller; the journal has t_verify's form, and creations and deletions of
 * components are notes in the record.  Writes are prepared versions, decided a
 * little later, as the owner above does; some are aborted.  A round is
 *
 *  - writes and unmaps of random places and lengths, several in flight;
 *  - a second component: created, written, deleted in the next round;
 *  - unmaps of single blocks, many submitted at once, so that a batch is a
 *    header of several sectors and nothing else, and a segment is full of them.
 *
 * Segments are as small as they may be: the log goes around the disk every few
 * rounds, and batches of one round lie on those of an earlier one, header upon
 * header with the records in the same places.  What a torn header shows then is
 * a mixture of two that are both plausible; only its CRC tells.
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

#define SEGMENT_BYTES (256u << 10)
#define COMP_BYTES (5ull << 20)
#define SIDE_BYTES (256ull << 10)
#define BLOCKS (COMP_BYTES / BLOCK)
#define DEPTH 16u
#define LEN_MAX 16u /* blocks */
#define GROUP_MAX 120u /* unmaps at once */
#define MIXED_WRITES 120u /* of a round */
#define GROUPS 130u /* of a round: several segments of headers alone */

struct slot {
	struct lsom_write req;
	struct lsom_decide decide;
	uint32_t crcs[LEN_MAX];
	struct journal_entry entry;
	uint64_t lsn;
	bool used, abort;
};

static struct {
	struct env *env;
	struct lsom *lsom;
	struct lsom_disk *disk;
	struct lsom_comp *comp, *side;
	FILE *journal;
	int record_fd;
	struct slot slots[GROUP_MAX];
	uint8_t busy[BLOCKS];
	uint32_t gens[BLOCKS]; /* acknowledged */
	uint64_t answered, refused, lsn, random;
	unsigned in_flight, to_send;
	uint32_t gen;
	uint8_t sides;
	bool done;
	int status;
} r = { .random = 7 };

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

static struct lsom_comp_meta fence(struct uuid id, uint64_t bytes)
{
	return (struct lsom_comp_meta){ .cid = id,
					.oid = oid,
					.cinc = 1,
					.size_bytes = bytes,
					.promised_oepoch = 1,
					.member_csn = 1,
					.csn_seen = 1,
					.state_seen = LSOM_ACTIVE };
}

static void make(const char *path, const char *index, uint64_t bytes)
{
	struct lsom_format format = { .path = path,
				      .disk = disk_id,
				      .cluster = cluster,
				      .segment_bytes = SEGMENT_BYTES,
				      .tiny = true };
	struct lsom_meta meta = { .op = LSOM_CREATE,
				  .meta = fence(cid, COMP_BYTES) };
	int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600), rv;

	if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
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

static void note(const struct journal_entry *entry)
{
	struct journal_entry e = *entry;
	struct stat st;

	if (fstat(r.record_fd, &st) != 0)
		die("the record", -errno);
	e.record_bytes = (uint64_t)st.st_size;
	if (fwrite(&e, sizeof(e), 1, r.journal) != 1)
		die("the journal", -errno);
}

/* All lsns below the oldest in flight are decided, as with one owner. */
static uint64_t stable(void)
{
	uint64_t low = r.lsn;

	for (unsigned i = 0; i < GROUP_MAX; i++)
		if (r.slots[i].used && r.slots[i].lsn - 1 < low)
			low = r.slots[i].lsn - 1;
	return low;
}

static void slot_write(struct slot *slot);

/* @slot has its answer and its blocks are free again. */
static void slot_end(struct slot *slot)
{
	struct lsom_decided decided = { 0 };
	uint64_t first = slot->entry.offset / BLOCK;

	memset(r.busy + first, 0, slot->entry.len / BLOCK);
	slot->used = false;
	r.in_flight--;
	if (++r.answered % 5 == 0 && r.to_send > 0) {
		decided.stable_lsn = decided.g_all = stable();
		lsom_decided(r.comp, &decided);
	}
	if (r.to_send > 0)
		slot_write(slot);
	else if (r.in_flight == 0)
		r.done = true;
}

/* Aborted or refused: what was acknowledged before is there, for good. */
static void slot_undo(struct slot *slot)
{
	struct journal_entry e = { .len = BLOCK, .acked = 1 };
	uint64_t first = slot->entry.offset / BLOCK;

	for (uint64_t i = 0; i < slot->entry.len / BLOCK; i++) {
		e.offset = (first + i) * BLOCK;
		e.gen = r.gens[first + i];
		note(&e);
	}
	slot_end(slot);
}

static void on_abort(struct lsom_decide *req, int status)
{
	if (status != 0)
		die("an abort", status);
	slot_undo(req->data);
}

static void on_write(struct lsom_write *req, int status)
{
	struct slot *slot = req->data;
	uint64_t first = slot->entry.offset / BLOCK;
	int rv;

	if (status != 0 && status != -ENOSPC)
		die("a write", status);
	sgl_put(slot->req.sgl);
	slot->req.sgl = NULL;
	if (status == -ENOSPC) {
		r.refused++;
		slot_undo(slot);
		return;
	}
	if (slot->abort) {
		slot->decide =
			(struct lsom_decide){ .data = slot, .lsn = slot->lsn };
		rv = lsom_decide(r.comp, &slot->decide, on_abort);
		if (rv != 0)
			die("lsom_decide", rv);
		return;
	}
	slot->entry.acked = 1;
	note(&slot->entry);
	for (uint64_t i = 0; i < slot->entry.len / BLOCK; i++)
		r.gens[first + i] = slot->entry.gen;
	slot_end(slot);
}

static struct sgl *data_make(uint64_t first, unsigned n, uint32_t gen,
			     uint32_t *crcs)
{
	static uint8_t buf[LEN_MAX * BLOCK];
	struct sgl *sgl;
	int rv = sgl_new(r.env->pages, PAGE_FRONT, (size_t)n * BLOCK, 0, &sgl);

	if (rv != 0)
		die("pages", rv);
	for (uint64_t at = 0; at < (uint64_t)n * BLOCK; at += SECTOR)
		sector_fill(buf + at, first * BLOCK + at, 1, gen);
	sgl_write(sgl, 0, buf, (size_t)n * BLOCK);
	for (unsigned i = 0; i < n; i++)
		crcs[i] = sgl_crc(sgl, (size_t)i * BLOCK, BLOCK);
	return sgl;
}

/* A place of @n blocks in [@from, @end) that nothing in flight touches. */
static uint64_t place_find(unsigned n, uint64_t from, uint64_t end)
{
	for (;;) { /* less than half of them is busy: ends soon */
		uint64_t first =
			from + random_next(&r.random) % (end - from - n + 1);
		unsigned i = 0;

		while (i < n && !r.busy[first + i])
			i++;
		if (i == n)
			return first;
	}
}

static void slot_send(struct slot *slot, uint64_t first, unsigned n, bool hole,
		      bool abort_it)
{
	int rv;

	memset(r.busy + first, 1, n);
	r.gen++;
	slot->used = true;
	slot->abort = abort_it;
	slot->lsn = r.lsn = LSN(1, (r.lsn & ((1ull << LSN_SEQ_BITS) - 1)) + 1);
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
	if (!hole) {
		slot->req.sgl = data_make(first, n, r.gen, slot->crcs);
		slot->req.crcs = slot->crcs;
	}
	note(&slot->entry);
	r.in_flight++;
	rv = lsom_write(r.comp, &slot->req, on_write);
	if (rv != 0)
		die("lsom_write", rv);
}

/* The next of a round's mixed writes. */
static void slot_write(struct slot *slot)
{
	unsigned dice = (unsigned)(random_next(&r.random) % 100);
	unsigned n = 1 + (unsigned)(random_next(&r.random) % LEN_MAX);

	r.to_send--;
	slot_send(slot, place_find(n, 0, BLOCKS), n, dice < 25, dice >= 95);
}

static void mixed(void)
{
	r.to_send = MIXED_WRITES;
	for (unsigned i = 0; i < DEPTH; i++)
		slot_write(&r.slots[i]);
	shard_run_until(r.env, &r.done);
	r.done = false;
}

/* Of a round in one quarter of the blocks, so that others stay mapped. */
static void group(unsigned size, unsigned round)
{
	uint64_t from = round % 4 * (BLOCKS / 4);
	struct lsom_decided decided = { .stable_lsn = r.lsn, .g_all = r.lsn };

	lsom_decided(r.comp, &decided); /* nothing is in flight */
	for (unsigned i = 0; i < size; i++)
		slot_send(&r.slots[i], place_find(1, from, from + BLOCKS / 4),
			  1, true, false);
	shard_run_until(r.env, &r.done);
	r.done = false;
}

/* ---- a second component ---- */

static void side_note(const char *what)
{
	struct lsom_comp_meta meta = *lsom_comp_meta(r.side);

	shard_record_note(r.env, what, &meta.cid, sizeof(meta.cid));
}

static void on_side_write(struct lsom_write *req, int status)
{
	sgl_put(req->sgl);
	r.status = status;
	r.done = true;
}

static void side_create(void)
{
	struct uuid id = { { 3, ++r.sides } };
	struct lsom_meta create = { .op = LSOM_CREATE,
				    .meta = fence(id, SIDE_BYTES) };
	uint32_t crcs[LEN_MAX];
	struct lsom_write req = { .kind = LSOM_PREP,
				  .len = LEN_MAX * BLOCK,
				  .lsn = LSN(1, 1),
				  .member_csn = 1,
				  .crcs = crcs };

	shard_record_note(r.env, "create", &id, sizeof(id));
	wait_done("create", lsom_comp_create(r.disk, &create, on_meta));
	shard_record_note(r.env, "created", &id, sizeof(id));
	r.side = lsom_comp_get(r.disk, &id);
	req.sgl = data_make(0, LEN_MAX, 1, crcs);
	wait_done("a write beside", lsom_write(r.side, &req, on_side_write));
}

static void side_delete(void)
{
	struct lsom_meta delete = { .op = LSOM_DELETE };

	side_note("delete");
	wait_done("delete", lsom_comp_update(r.side, &delete, on_meta));
	side_note("deleted");
	lsom_comp_put(r.side);
	r.side = NULL;
}

/* Nothing is closed at the end: the power is gone. */
static _Noreturn void run(char **argv)
{
	unsigned rounds = (unsigned)strtoul(argv[5], NULL, 0);

	disk_open(argv[2], argv[3]);
	r.comp = lsom_comp_get(r.disk, &cid);
	r.journal = fopen(argv[4], "wb");
	r.record_fd = open(getenv("BASALT_IO_RECORD") ?: "", O_RDONLY);
	if (r.comp == NULL || r.journal == NULL || r.record_fd < 0)
		die("the component, the journal or the record", -ENOENT);
	r.lsn = lsom_comp_meta(r.comp)->max_lsn;
	for (unsigned i = 0; i < rounds; i++) {
		mixed();
		if (r.side != NULL)
			side_delete();
		if (i % 2 == 0)
			side_create();
		for (unsigned k = 0; k < GROUPS; k++)
			group(i % 4 == 3 ? GROUP_MAX : 48, i);
	}
	fclose(r.journal);
	printf("%llu answers, %llu of them: no space\n",
	       (unsigned long long)r.answered, (unsigned long long)r.refused);
	fflush(stdout);
	_exit(0);
}

int main(int argc, char **argv)
{
	struct arena_config arena_config = { .bytes = 256u << 20 };
	struct lsom_config config = { 0 };
	struct shards *shards;
	struct arena *arena;

	if (argc < 5 || (strcmp(argv[1], "run") == 0 && argc < 6)) {
		fprintf(stderr, "usage: lsom_record make DISK INDEX MIB | run "
				"DISK INDEX JOURNAL ROUNDS\n");
		return 2;
	}
	if (arena_open(&arena_config, &arena) != 0 ||
	    shards_open(&(struct shards_config){ .count = 1, .arena = arena },
			&shards) != 0)
		die("a shard", -ENOMEM);
	r.env = config.env = shard_env(shards, 0);
	if (lsom_open(&config, &r.lsom) != 0)
		die("lsom_open", -ENOMEM);
	if (strcmp(argv[1], "make") == 0)
		make(argv[2], argv[3], strtoull(argv[4], NULL, 0) << 20);
	else
		run(argv);
	return 0;
}
