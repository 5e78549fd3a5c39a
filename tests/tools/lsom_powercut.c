/*
 * lsom_powercut: cut the power at every event of a recorded run, on paper.
 *
 *	lsom_powercut [options] BASE-IMAGE BASE-INDEX RECORD JOURNAL
 *
 * RECORD is what the real daemon wrote to its disk (base/record.h) from the
 * state BASE-IMAGE, BASE-INDEX on; JOURNAL what a real initiator had sent and
 * had acknowledged at which length of the record (t_verify --journal).  For
 * every event the tool makes the states a disk may legally be in: with all,
 * none, all but one and all but two of the writes in flight, with the last one
 * torn at each 512 bytes, and with random parts of them.  On each it opens LSOM
 * as it is shipped and checks that every acknowledged write is there, whole.
 * Every so often it also rebuilds the index from the log alone and compares.
 *
 *	--states N	about so many states (default: 2000), drawn from all
 *	--seed N
 *	--writer N	t_verify's
 *	--cut I		only after event I, with LSOM's own messages
 *	--headers	only states with a torn batch header
 *	--ignore-durable  pretend the durable flag of the writes was dropped
 *	--early-ack	  pretend acknowledgements left before the completion
 *
 * Status 0: every state good; 1: "BAD" lines; 2 usage; 3 the input is unusable.
 */
#include "base/log.h"
#include "base/sgl.h"
#include "lsom/lsom.h"
#include "tests/lib/iorecord.h"
#include "tests/lib/memenv.h"
#include "tests/lib/pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RISK_MAX 64u /* writes in flight that are varied */
#define WRITE_BLOCKS_MAX 1024u /* of one write */
#define BAD_MAX 10u
#define RECENT 96u /* journal entries whose blocks are always checked */
#define FULL_EVERY 32u /* all blocks in one of so many states */
#define REBUILD_EVERY 64u /* and the index rebuilt in one of so many */
#define RECOVERY_NS (10 * SEC)

enum keep { KEEP_NONE, KEEP_ALL, KEEP_HEAD, KEEP_RANDOM, KEEP_TAIL };

struct block {
	uint32_t gen[SECTORS];
	uint32_t pending_gen;
	uint8_t pending_mask;
};

static struct {
	const char *base_path;
	uint64_t states_wanted, seed, random;
	uint32_t writer;
	bool ignore_durable, early_ack, headers_only;

	struct io_record record;
	struct journal_entry *journal;
	size_t journal_count, journal_at;
	uint8_t *image; /* what is durable by now */
	uint64_t image_bytes;
	struct memenv me;
	struct uuid cluster;

	size_t risk[RISK_MAX]; /* events, in order of submission */
	unsigned risk_count;
	enum keep keep[RISK_MAX];
	uint32_t head_sectors[RISK_MAX];
	/* Blocks of it that a later write, durable by now, lies on. */
	uint8_t dead[RISK_MAX][WRITE_BLOCKS_MAX / 8];

	struct block *blocks; /* what an initiator may expect */
	uint64_t blocks_count;

	bool counting; /* first pass: how many states there are */
	bool kv_noted; /* the record says what the index held */
	uint64_t states_all, states, full, rebuilt, stale, blocks_checked;
	uint64_t slowest_ns;
	size_t cut, only; /* from 1; 0: all */
	const char *what;
	unsigned bad, bad_state;
} p = {
	.states_wanted = 2000,
	.seed = 1,
	.writer = 1,
};

static void bad(const char *fmt, ...)
{
	va_list ap;

	p.bad_state++;
	if (p.bad++ >= BAD_MAX)
		return;
	printf("BAD cut after event %zu of %zu (%s): ", p.cut, p.record.count,
	       p.what);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

static _Noreturn void unusable(const char *what, int rv)
{
	fprintf(stderr, "lsom_powercut: %s: %s\n", what, strerror(-rv));
	exit(3);
}

/* ---- what must be there ---- */

static void entry_apply(const struct journal_entry *e)
{
	uint64_t at = e->offset, end = e->offset + e->len;

	while (at < end) {
		struct block *b = &p.blocks[at / BLOCK];
		unsigned s = (unsigned)(at % BLOCK / SECTOR);

		if (e->acked) {
			b->gen[s] = e->gen;
			b->pending_mask &= (uint8_t) ~(1u << s);
		} else {
			b->pending_gen = e->gen;
			b->pending_mask |= (uint8_t)(1u << s);
		}
		at += SECTOR;
	}
}

static void journal_advance(uint64_t record_bytes)
{
	while (p.journal_at < p.journal_count &&
	       p.journal[p.journal_at].record_bytes <= record_bytes)
		entry_apply(&p.journal[p.journal_at++]);
}

static void block_check(uint64_t index, const uint8_t *buf)
{
	const struct block *b = &p.blocks[index];
	bool is_old = true, is_new = b->pending_mask != 0;
	char why[160];

	p.blocks_checked++;
	for (unsigned i = 0; i < SECTORS; i++) {
		int64_t gen = sector_read(buf + i * SECTOR,
					  index * BLOCK + i * SECTOR, p.writer,
					  why, sizeof(why));
		uint32_t fresh =
			b->pending_mask & 1u << i ? b->pending_gen : b->gen[i];

		if (gen < 0) {
			bad("block %llu sector %u: %s",
			    (unsigned long long)index, i, why);
			return;
		}
		is_old = is_old && gen == b->gen[i];
		is_new = is_new && gen == fresh;
		if (!is_old && !is_new) {
			bad("block %llu sector %u: generation %lld, "
			    "acknowledged %u",
			    (unsigned long long)index, i, (long long)gen,
			    b->gen[i]);
			return;
		}
	}
}

/* ---- lsom on a state ---- */

struct waiter {
	bool done;
	int status;
};

static void on_open(struct lsom_disk_open *req, int status)
{
	*(struct waiter *)req->data = (struct waiter){ true, status };
}

static void on_close(struct lsom_disk_close *req, int status)
{
	*(struct waiter *)req->data = (struct waiter){ true, status };
}

static void on_read(struct lsom_read *req, int status)
{
	*(struct waiter *)req->data = (struct waiter){ true, status };
}

static void on_scan(struct lsom_scan *req, int status)
{
	*(struct waiter *)req->data = (struct waiter){ true, status };
}

static void comp_pick(struct lsom_comp *comp, void *arg)
{
	struct lsom_comp_meta *best = arg;

	if (lsom_comp_meta(comp)->size_bytes > best->size_bytes)
		*best = *lsom_comp_meta(comp);
}

/* Read blocks [@index, @index + @n) and compare them. */
static void range_check(struct lsom_comp *comp, uint64_t index, unsigned n)
{
	static uint8_t buf[LSOM_WRITE_MAX];
	struct waiter w = { false, 0 };
	struct lsom_read req = { .data = &w,
				 .offset = index * BLOCK,
				 .len = (uint64_t)n * BLOCK,
				 .class = PAGE_FRONT };
	int rv = lsom_read(comp, &req, on_read);

	if (rv == 0 && !memenv_run(&p.me, &w.done))
		rv = -ETIMEDOUT;
	if (rv == 0)
		rv = w.status;
	if (rv != 0) {
		bad("a read of %u blocks from %llu: %s", n,
		    (unsigned long long)index, strerror(-rv));
		return;
	}
	sgl_read(req.sgl, 0, buf, req.len);
	sgl_put(req.sgl);
	for (unsigned i = 0; i < n; i++)
		block_check(index + i, buf + (size_t)i * BLOCK);
}

static void content_check(struct lsom_comp *comp, bool full)
{
	uint64_t step = LSOM_WRITE_MAX / BLOCK;
	size_t from = p.journal_at > RECENT ? p.journal_at - RECENT : 0;

	if (full) {
		p.full++;
		for (uint64_t b = 0; b < p.blocks_count; b += step)
			range_check(comp, b,
				    (unsigned)(p.blocks_count - b < step
						       ? p.blocks_count - b
						       : step));
		return;
	}
	for (size_t i = from; i < p.journal_at; i++) {
		const struct journal_entry *e = &p.journal[i];
		uint64_t first = e->offset / BLOCK;
		uint64_t last = (e->offset + e->len - 1) / BLOCK;

		range_check(comp, first, (unsigned)(last - first + 1));
	}
	for (unsigned i = 0; i < 32; i++)
		range_check(comp, random_next(&p.random) % p.blocks_count, 1);
}

/* What the index says: a sum over all committed versions and the fences. */
static uint64_t index_sum(struct lsom_comp *comp)
{
	static struct lsom_version items[1024];
	const struct lsom_comp_meta *m = lsom_comp_meta(comp);
	uint64_t sum = m->max_lsn * 31 + m->member_csn * 17 + m->size_bytes;
	uint64_t at = 0;

	while (at < m->size_bytes) {
		struct waiter w = { false, 0 };
		struct lsom_scan req = { .data = &w,
					 .offset = at,
					 .len = m->size_bytes - at,
					 .items = items,
					 .items_max = 1024 };

		if (lsom_scan(comp, &req, on_scan) != 0 ||
		    !memenv_run(&p.me, &w.done) || w.status != 0 ||
		    req.next <= at) {
			bad("a scan from %llu failed: %d",
			    (unsigned long long)at, w.status);
			return 0;
		}
		for (unsigned i = 0; i < req.items_count; i++) {
			uint64_t h = items[i].offset ^ items[i].lsn << 20 ^
				     items[i].member_csn << 50 ^
				     (uint64_t)items[i].crc << 8 ^
				     items[i].hole;

			sum += random_next(&h);
		}
		at = req.next;
	}
	return sum;
}

/*
 * Open the state and check it; with @sum only say what its index holds, after
 * a rebuild from the log if @rebuild.  Returns false if the index, which is
 * that of the start of the record, is older than the log allows.
 */
static bool state_open(bool full, bool rebuild, uint64_t *sum)
{
	struct lsom_config config = { .env = &p.me.env,
				      .page_cache_bytes = 4u << 20 };
	struct waiter w = { false, 0 }, c = { false, 0 };
	struct lsom_disk_open open_req = { .data = &w,
					   .path = p.base_path,
					   .index_path = "index",
					   .cluster = p.cluster,
					   .rebuild = rebuild };
	struct lsom_disk_close close_req = { .data = &c };
	struct lsom_comp_meta best = { .size_bytes = 0 };
	struct lsom_disk_info info;
	struct lsom_comp *comp;
	struct lsom *lsom;
	struct timespec a, b;
	uint64_t took;
	int rv;

	if (lsom_open(&config, &lsom) != 0)
		abort();
	clock_gettime(CLOCK_MONOTONIC, &a);
	rv = lsom_disk_open(lsom, &open_req, on_open);
	if (rv == 0 && !memenv_run(&p.me, &w.done))
		rv = -ETIMEDOUT;
	clock_gettime(CLOCK_MONOTONIC, &b);
	took = (uint64_t)(b.tv_sec - a.tv_sec) * SEC + (uint64_t)b.tv_nsec -
	       (uint64_t)a.tv_nsec;
	if (took > p.slowest_ns)
		p.slowest_ns = took;
	if (rv == 0)
		rv = w.status;
	if (rv != 0) {
		lsom_close(lsom);
		if (rv == -EUCLEAN && !rebuild && !p.kv_noted)
			return false;
		bad("%s refused: %s (%s)", rebuild ? "a rebuild is" : "it is",
		    strerror(-rv), open_req.why);
		return true;
	}
	lsom_disk_info(open_req.opened, &info);
	if (info.state != LSOM_DISK_ONLINE && info.state != LSOM_DISK_FULL)
		bad("the disk comes up in state %d: %s", info.state,
		    info.failure);
	lsom_comp_each(open_req.opened, comp_pick, &best);
	comp = lsom_comp_get(open_req.opened, &best.cid);
	if (comp == NULL) {
		bad("the component is gone");
	} else {
		struct lsom_decided decided = {
			.stable_lsn = lsom_comp_meta(comp)->max_lsn,
			.g_all = lsom_comp_meta(comp)->g_all,
		};

		if (lsom_comp_meta(comp)->damaged)
			bad("the component is said to be damaged");
		if (sum != NULL)
			*sum = index_sum(comp);
		/* A single copy: the owner's takeover decides for all of it. */
		lsom_decided(comp, &decided);
		if (sum == NULL)
			content_check(comp, full);
		lsom_comp_put(comp);
	}
	rv = lsom_disk_close(open_req.opened, &close_req, on_close);
	if (rv != 0 || !memenv_run(&p.me, &c.done)) {
		bad("the disk does not close");
		exit(1);
	}
	lsom_close(lsom);
	return true;
}

/* ---- the states ---- */

static bool block_dead(unsigned k, uint64_t at)
{
	return p.dead[k][at / BLOCK / 8] & 1u << at / BLOCK % 8;
}

/* Bytes [@at, @at + @len) of the write at @k reach the disk. */
static void risk_poke(unsigned k, uint64_t at, uint64_t len)
{
	const struct io_event *e = &p.record.events[p.risk[k]];

	for (uint64_t end = at + len; at < end; at += SECTOR)
		if (!block_dead(k, at))
			memenv_poke(&p.me, e->offset + at, e->data + at,
				    SECTOR);
}

/* Lay what is kept of the writes in flight over the durable image. */
static void state_make(uint64_t salt)
{
	memenv_reset(&p.me);
	for (unsigned i = 0; i < p.risk_count; i++) {
		const struct io_event *e = &p.record.events[p.risk[i]];
		uint64_t r = p.seed ^ salt ^ e->id << 16;

		switch (p.keep[i]) {
		case KEEP_NONE:
			break;
		case KEEP_ALL:
			risk_poke(i, 0, e->len);
			break;
		case KEEP_HEAD:
			risk_poke(i, 0, (uint64_t)p.head_sectors[i] * SECTOR);
			break;
		case KEEP_TAIL: /* of its header, random sectors */
			for (uint64_t at = 0; at < e->len; at += SECTOR)
				if (at >= BLOCK * 2 || random_next(&r) & 1)
					risk_poke(i, at, SECTOR);
			break;
		case KEEP_RANDOM:
			for (uint64_t at = 0; at < e->len; at += SECTOR)
				if (random_next(&r) & 1)
					risk_poke(i, at, SECTOR);
			break;
		}
	}
}

static void state(const char *what)
{
	uint64_t salt, normal = 0, rebuilt = 0;

	if (p.counting) {
		p.states_all +=
			!p.headers_only || strcmp(what, "a torn header") == 0;
		return;
	}
	/* Of all there are, about as many as were asked for. */
	if (p.headers_only && strcmp(what, "a torn header") != 0)
		return;
	if (p.states_all > p.states_wanted &&
	    random_next(&p.random) % p.states_all >= p.states_wanted)
		return;
	p.what = what;
	p.bad_state = 0;
	salt = random_next(&p.random);
	state_make(salt);
	if (!state_open(p.states % FULL_EVERY == 0, false, NULL)) {
		/* The index went with the system disk, say. */
		state_make(salt);
		state_open(p.states % FULL_EVERY == 0, true, NULL);
		p.stale++;
	} else if (p.states % REBUILD_EVERY == 1 && p.bad_state == 0) {
		state_make(salt);
		state_open(false, false, &normal);
		state_make(salt);
		state_open(false, true, &rebuilt);
		if (normal != rebuilt && p.bad_state == 0)
			bad("the index rebuilt from the log differs");
		p.rebuilt++;
	}
	p.states++;
}

static void keep_all_as(enum keep how)
{
	for (unsigned i = 0; i < p.risk_count; i++)
		p.keep[i] = how;
}

/* Not completed, or completed without being durable: there are many of those. */
static bool in_flight(unsigned k)
{
	return p.record.events[p.risk[k]].done_at > p.cut;
}

static void states_of_cut(void)
{
	unsigned n = p.risk_count;

	keep_all_as(KEEP_ALL);
	state("all of it");
	if (n == 0)
		return;
	keep_all_as(KEEP_NONE);
	state("nothing in flight");
	for (unsigned i = 0; i < n; i++) {
		keep_all_as(KEEP_ALL);
		p.keep[i] = KEEP_NONE;
		state("one write lost");
		for (unsigned j = i + 1; j < n && in_flight(i); j++) {
			if (!in_flight(j))
				continue;
			p.keep[j] = KEEP_NONE;
			state("two writes lost");
			p.keep[j] = KEEP_ALL;
		}
	}
	/* A new cut per event: the last one is the one that just went out. */
	for (uint64_t at = SECTOR; at < p.record.events[p.risk[n - 1]].len;
	     at += SECTOR) {
		keep_all_as(KEEP_ALL);
		p.keep[n - 1] = KEEP_HEAD;
		p.head_sectors[n - 1] = (uint32_t)(at / SECTOR);
		state("the last write torn");
	}
	for (unsigned i = 0; i < 4; i++) {
		keep_all_as(KEEP_ALL);
		p.keep[n - 1] = KEEP_TAIL;
		state("a torn header");
	}
	for (unsigned i = 0; i < 4; i++) {
		for (unsigned k = 0; k < n; k++)
			p.keep[k] = random_next(&p.random) & 1	 ? KEEP_RANDOM
				    : random_next(&p.random) & 1 ? KEEP_ALL
								 : KEEP_NONE;
		state("random parts");
	}
}

/* The write at @k stays on the disk, but for what is newer there. */
static void risk_to_image(unsigned k)
{
	const struct io_event *e = &p.record.events[p.risk[k]];

	for (uint64_t at = 0; at < e->len; at += SECTOR)
		if (!block_dead(k, at))
			memcpy(p.image + e->offset + at, e->data + at, SECTOR);
	/* What was written before it can no longer come to light. */
	for (unsigned j = 0; j < k; j++) {
		const struct io_event *o = &p.record.events[p.risk[j]];

		for (uint64_t at = 0; at < o->len; at += BLOCK)
			if (o->offset + at >= e->offset &&
			    o->offset + at < e->offset + e->len)
				p.dead[j][at / BLOCK / 8] |=
					(uint8_t)(1u << at / BLOCK % 8);
	}
}

static void risk_drop(unsigned k)
{
	p.risk_count--;
	memmove(&p.risk[k], &p.risk[k + 1],
		(p.risk_count - k) * sizeof(p.risk[0]));
	memmove(&p.dead[k], &p.dead[k + 1],
		(p.risk_count - k) * sizeof(p.dead[0]));
}

/* What became durable with event @i goes into the image for good. */
static void risk_settle(size_t i)
{
	for (unsigned k = 0; k < p.risk_count;)
		if (p.record.events[p.risk[k]].safe_at <= i) {
			risk_to_image(k);
			risk_drop(k);
		} else {
			k++;
		}
}

static void risk_add(size_t i)
{
	const struct io_event *e = &p.record.events[i];

	if (e->offset > p.image_bytes || e->len > p.image_bytes - e->offset ||
	    e->offset % BLOCK || e->len % BLOCK ||
	    e->len > WRITE_BLOCKS_MAX * BLOCK)
		unusable("a write that cannot be", -ERANGE);
	if (p.risk_count == RISK_MAX) {
		/* Too many to vary: the oldest stays whole. */
		risk_to_image(0);
		risk_drop(0);
	}
	memset(p.dead[p.risk_count], 0, sizeof(p.dead[0]));
	p.risk[p.risk_count++] = i;
}

static void replay(void)
{
	for (size_t i = 0; i < p.record.count; i++) {
		const struct io_event *e = &p.record.events[i];

		p.cut = i;
		if (e->kind == RECORD_WRITE)
			risk_add(i);
		risk_settle(i);
		if (e->kind == RECORD_DISCARD)
			continue;
		journal_advance(e->end);
		if (p.only == 0 || p.only == i + 1)
			states_of_cut();
		if (p.bad >= BAD_MAX)
			return;
	}
}

static void rewind_all(const uint8_t *base)
{
	memcpy(p.image, base, p.image_bytes);
	memset(p.blocks, 0, p.blocks_count * sizeof(*p.blocks));
	p.journal_at = 0;
	p.risk_count = 0;
	p.random = p.seed;
}

/* ---- input ---- */

static void *file_read(const char *path, uint64_t *len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	uint8_t *buf;
	uint64_t at = 0;

	if (fd < 0 || fstat(fd, &st) != 0)
		unusable(path, -errno);
	*len = (uint64_t)st.st_size;
	buf = malloc(*len ? *len : 1);
	if (buf == NULL)
		unusable(path, -ENOMEM);
	while (at < *len) {
		ssize_t n = read(fd, buf + at, *len - at);

		if (n <= 0)
			unusable(path, n < 0 ? -errno : -EIO);
		at += (uint64_t)n;
	}
	close(fd);
	return buf;
}

static int by_position(const void *a, const void *b)
{
	const struct journal_entry *x = a, *y = b;

	if (x->record_bytes != y->record_bytes)
		return x->record_bytes < y->record_bytes ? -1 : 1;
	return x->reserved < y->reserved ? -1 : x->reserved > y->reserved;
}

/* As if each answer had left when the last completed write was submitted. */
static void acks_early(void)
{
	size_t at = 0, last = SIZE_MAX;

	for (size_t i = 0; i < p.journal_count; i++) {
		struct journal_entry *e = &p.journal[i];

		while (at < p.record.count &&
		       p.record.events[at].end <= e->record_bytes) {
			if (p.record.events[at].kind == RECORD_WRITE)
				last = at;
			at++;
		}
		if (e->acked && last != SIZE_MAX)
			for (size_t w = last; w > 0; w--)
				if (p.record.events[w].kind == RECORD_WRITE &&
				    p.record.events[w].safe_at < at) {
					e->record_bytes =
						p.record.events[w].end;
					break;
				}
	}
}

static void journal_read(const char *path)
{
	uint64_t len, end = 0;

	p.journal = file_read(path, &len);
	p.journal_count = len / sizeof(*p.journal);
	for (size_t i = 0; i < p.journal_count; i++) {
		const struct journal_entry *e = &p.journal[i];

		if (e->offset + e->len > end)
			end = e->offset + e->len;
		p.journal[i].reserved = (uint32_t)i;
	}
	if (p.early_ack)
		acks_early();
	qsort(p.journal, p.journal_count, sizeof(*p.journal), by_position);
	p.blocks_count = (end + BLOCK - 1) / BLOCK;
	p.blocks = calloc(p.blocks_count, sizeof(*p.blocks));
	if (p.journal_count == 0 || p.blocks == NULL)
		unusable(path, -ENODATA);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "states", required_argument, NULL, 'n' },
		{ "seed", required_argument, NULL, 's' },
		{ "writer", required_argument, NULL, 'w' },
		{ "cut", required_argument, NULL, 'c' },
		{ "headers", no_argument, NULL, 'h' },
		{ "ignore-durable", no_argument, NULL, 'd' },
		{ "early-ack", no_argument, NULL, 'e' },
		{ 0 },
	};
	struct lsom_probe probe = { 0 };
	uint8_t *base;
	int c, rv;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'n':
			p.states_wanted = strtoull(optarg, NULL, 0);
			break;
		case 's':
			p.seed = strtoull(optarg, NULL, 0);
			break;
		case 'w':
			p.writer = (uint32_t)atoi(optarg);
			break;
		case 'c':
			p.only = strtoull(optarg, NULL, 0) + 1;
			break;
		case 'h':
			p.headers_only = true;
			break;
		case 'd':
			p.ignore_durable = true;
			break;
		case 'e':
			p.early_ack = true;
			break;
		default:
			return 2;
		}
	}
	if (optind + 4 != argc) {
		fprintf(stderr, "usage: lsom_powercut [options] BASE-IMAGE "
				"BASE-INDEX RECORD JOURNAL\n");
		return 2;
	}
	if (p.only == 0)
		log_level_set("lsom", "error");
	p.base_path = argv[optind];
	base = file_read(p.base_path, &p.image_bytes);
	p.image = malloc(p.image_bytes);
	if (p.image == NULL)
		unusable("the image", -ENOMEM);
	memenv_init(&p.me, p.image, p.image_bytes);
	rv = io_record_open(argv[optind + 2], ".img", p.ignore_durable,
			    &p.record);
	if (rv != 0)
		unusable(argv[optind + 2], rv);
	journal_read(argv[optind + 3]);
	p.me.kv_base_path = argv[optind + 1];
	memcpy(p.image, base, p.image_bytes);
	rv = lsom_disk_probe(&p.me.env, p.base_path, &probe);
	if (rv != 0 || !probe.ours)
		unusable("the base image is no disk of ours", rv);
	p.cluster = probe.cluster;

	p.counting = true;
	rewind_all(base);
	replay();
	p.counting = false;
	rewind_all(base);
	replay();
	printf("powercut: %llu states of %llu legal ones, %zu events, %zu "
	       "journal entries; %llu blocks compared, %llu states in full, "
	       "%llu indexes rebuilt and compared, %llu used for want of a "
	       "newer one; slowest recovery %llu ms; %u bad\n",
	       (unsigned long long)p.states, (unsigned long long)p.states_all,
	       p.record.count, p.journal_count,
	       (unsigned long long)p.blocks_checked, (unsigned long long)p.full,
	       (unsigned long long)p.rebuilt, (unsigned long long)p.stale,
	       (unsigned long long)(p.slowest_ns / MSEC), p.bad);
	if (p.slowest_ns > RECOVERY_NS) {
		printf("BAD a recovery took longer than 10 s\n");
		p.bad++;
	}
	memenv_fini(&p.me);
	io_record_close(&p.record);
	free(base);
	free(p.image);
	free(p.blocks);
	free(p.journal);
	return p.bad ? 1 : 0;
}
