/*
 * lsom_powercut: cut the power at every event of a recorded run, on paper.
 *
 *	lsom_powercut [options] BASE-IMAGE BASE-INDEX RECORD JOURNAL
 *
 * RECORD is what the real daemon gave its disk and the disk's index
 * (base/record.h) from the state BASE-IMAGE, BASE-INDEX on; JOURNAL what a real
 * initiator had sent and had acknowledged at which length of the record
 * (t_verify --journal).  For every event the tool makes the states a disk may
 * legally be in: with all, none, all but one and all but two of the writes in
 * flight, with the last one torn at each 512 bytes, with its header torn, and
 * with random parts of them; beside each the index as a cut leaves it
 * (tests/lib/cutdisk.h).  On each it opens LSOM as it is shipped and checks that
 * every acknowledged write is there, whole.  Every so often it also rebuilds
 * the index from the log alone and compares.
 *
 *	--states N	about so many states (default: 2000), drawn from all
 *	--seed N
 *	--slice I/N	of the drawn ones those whose number is I modulo N
 *	--writer N	t_verify's
 *	--only N	state N and no other, with LSOM's own messages
 *	--headers	only states with a torn batch header
 *	--ignore-durable  pretend the durable flag of the writes was dropped
 *	--early-ack	  pretend acknowledgements left before the completion
 *
 * Status 0: every state good; 1: "BAD" lines; 2 usage; 3 the input is unusable.
 */
#include "base/log.h"
#include "base/sgl.h"
#include "lsom/lsom_int.h"
#include "tests/lib/cutdisk.h"
#include "tests/lib/journal.h"
#include "tests/lib/snapshot.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>

#define BAD_MAX 10u
#define RECENT 256u /* journal entries whose blocks are always checked */
#define READ_BLOCKS (LSOM_WRITE_MAX / BLOCK)
#define FULL_EVERY 8u /* all blocks in one of so many states */
#define REBUILD_EVERY 64u /* and the index rebuilt in one of so many */
#define COMPS_MAX 64u
#define PAIRS_MAX 32u /* writes in flight whose pairs are lost */

/*
 * The budget of a recovery is one of I/O: 10 s of a hard disk that takes 5 ms to
 * get anywhere and reads 100 MiB/s.
 */
#define RECOVERY_NS (10 * SEC)
#define ACCESS_NS (5 * MSEC)
#define MIB_NS (10 * MSEC)

/* A component that was created or deleted during the record. */
struct side {
	struct uuid cid;
	bool created, deleting, deleted;
};

static struct {
	const char *base_path;
	uint64_t states_wanted, seed, random, only;
	uint64_t slice, slices;
	bool headers_only;
	struct uuid cluster;

	struct cut_disk cut;
	struct journal journal;
	struct side sides[COMPS_MAX];
	unsigned sides_count;
	uint8_t *recent; /* of each block: check it */

	bool counting; /* first pass: how many states there are */
	uint64_t number; /* of the state */
	uint64_t states_all, states, full, rebuilt, midway, blocks_checked;
	uint64_t idle_holes; /* that one index alone has */
	uint64_t slowest_ns, accesses_most, bytes_most;
	size_t at; /* the event after which the power goes */
	const char *what;
	unsigned bad, bad_state;
} p = {
	.states_wanted = 2000,
	.seed = 1,
	.slices = 1,
	.only = UINT64_MAX,
};

static void bad(const char *fmt, ...)
{
	va_list ap;

	p.bad_state++;
	if (p.bad++ >= BAD_MAX)
		return;
	printf("BAD state %llu, cut after event %zu of %zu (%s): ",
	       (unsigned long long)p.number, p.at, p.cut.record.count, p.what);
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
	char why[160];

	if (rv == 0 && !memenv_run(&p.cut.me, &w.done))
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
	p.blocks_checked += n;
	for (unsigned i = 0; i < n; i++)
		if (!journal_check(&p.journal, index + i,
				   buf + (size_t)i * BLOCK, why, sizeof(why)))
			bad("block %llu: %s", (unsigned long long)index + i,
			    why);
}

/* What was touched last, and a few of the others. */
static void recent_mark(void)
{
	const struct journal *j = &p.journal;
	size_t from = j->at > RECENT ? j->at - RECENT : 0;

	memset(p.recent, 0, j->blocks_count);
	for (size_t i = from; i < j->at; i++) {
		const struct journal_entry *e = &j->entries[i];
		uint64_t first = e->offset / BLOCK;
		uint64_t last = (e->offset + e->len - 1) / BLOCK;

		memset(p.recent + first, 1, last - first + 1);
	}
	for (unsigned i = 0; i < 32; i++)
		p.recent[random_next(&p.random) % j->blocks_count] = 1;
}

static void content_check(struct lsom_comp *comp, bool full)
{
	uint64_t blocks = p.journal.blocks_count, n;

	if (full) {
		p.full++;
		memset(p.recent, 1, blocks);
	} else {
		recent_mark();
	}
	for (uint64_t b = 0; b < blocks; b += n) {
		for (n = 0; b + n < blocks && n < READ_BLOCKS; n++)
			if (!p.recent[b + n])
				break;
		if (n > 0)
			range_check(comp, b, (unsigned)n);
		else
			n = 1;
	}
}

struct comps {
	struct uuid cid[COMPS_MAX];
	unsigned count;
	uint64_t largest_bytes;
	struct uuid largest;
};

static void comp_note(struct lsom_comp *comp, void *arg)
{
	const struct lsom_comp_meta *m = lsom_comp_meta(comp);
	struct comps *list = arg;

	if (m->damaged)
		bad("a component is said to be damaged");
	if (list->count < COMPS_MAX)
		list->cid[list->count++] = m->cid;
	if (m->size_bytes > list->largest_bytes) {
		list->largest_bytes = m->size_bytes;
		list->largest = m->cid;
	}
}

/* A component that is there must have been created, one that is not deleted. */
static void sides_check(const struct comps *list)
{
	for (unsigned i = 0; i < p.sides_count; i++) {
		const struct side *s = &p.sides[i];
		bool there = false;

		for (unsigned k = 0; k < list->count; k++)
			there = there || uuid_equal(&list->cid[k], &s->cid);
		if (there && s->deleted)
			bad("deleted component %u is there", i);
		if (!there && s->created && !s->deleting)
			bad("created component %u is gone", i);
	}
}

static void disk_check(struct lsom_disk *disk, bool full,
		       struct snapshot *snapshot)
{
	struct comps list = { .count = 0 };
	struct lsom_disk_info info;
	struct lsom_comp *comp;
	int rv;

	lsom_disk_info(disk, &info);
	if (info.state != LSOM_DISK_ONLINE && info.state != LSOM_DISK_FULL)
		bad("the disk comes up in state %d: %s", info.state,
		    info.failure);
	if (info.recovery_ns > p.slowest_ns)
		p.slowest_ns = info.recovery_ns;
	lsom_comp_each(disk, comp_note, &list);
	sides_check(&list);
	if (snapshot != NULL) {
		rv = snapshot_take(&p.cut.me, disk, snapshot);
		if (rv != 0)
			bad("scanning it: %s", strerror(-rv));
		return;
	}
	comp = lsom_comp_get(disk, &list.largest);
	if (comp == NULL) {
		bad("the component is gone");
		return;
	}
	snapshot_take_over(comp);
	content_check(comp, full);
	lsom_comp_put(comp);
}

/* Returns the disk, or NULL and says why. */
static struct lsom_disk *disk_open(struct lsom *lsom, bool rebuild)
{
	struct memenv *me = &p.cut.me;
	struct waiter w = { false, 0 };
	struct lsom_disk_open req = { .data = &w,
				      .path = p.base_path,
				      .index_path = "index",
				      .cluster = p.cluster,
				      .rebuild = rebuild };
	int rv;

	me->access_ns = ACCESS_NS;
	me->mib_ns = MIB_NS;
	me->accesses = me->bytes = 0;
	rv = lsom_disk_open(lsom, &req, on_open);
	if (rv == 0 && !memenv_run(me, &w.done))
		rv = -ETIMEDOUT;
	if (rv == 0)
		rv = w.status;
	me->access_ns = me->mib_ns = 0;
	if (me->accesses > p.accesses_most)
		p.accesses_most = me->accesses;
	if (me->bytes > p.bytes_most)
		p.bytes_most = me->bytes;
	if (rv == 0)
		return req.opened;
	bad("%s refused: %s (%s)", rebuild ? "a rebuild is" : "it is",
	    strerror(-rv), req.why);
	return NULL;
}

/* Open the state and check it; with @snapshot only say what its index holds. */
static void state_open(bool full, bool rebuild, struct snapshot *snapshot)
{
	struct lsom_config config = { .env = &p.cut.me.loop.env,
				      .page_cache_bytes = 4u << 20 };
	struct lsom_disk_close close_req = { 0 };
	struct waiter w = { false, 0 };
	struct lsom_disk *disk;
	struct lsom *lsom;

	if (lsom_open(&config, &lsom) != 0)
		abort();
	disk = disk_open(lsom, rebuild);
	if (disk != NULL) {
		disk_check(disk, full, snapshot);
		close_req.data = &w;
		if (lsom_disk_close(disk, &close_req, on_close) != 0 ||
		    !memenv_run(&p.cut.me, &w.done)) {
			bad("the disk does not close");
			exit(1);
		}
	}
	lsom_close(lsom);
}

/* ---- the states ---- */

static uint64_t mix(uint64_t sum, uint64_t value)
{
	sum ^= value;
	return random_next(&sum);
}

/* A number that follows from seed and state, whichever others are drawn. */
static uint64_t dice(uint64_t salt)
{
	uint64_t seed = mix(mix(p.seed, p.number), salt);

	return random_next(&seed);
}

static bool drawn(void)
{
	if (p.only != UINT64_MAX)
		return p.number == p.only;
	return p.number % p.slices == p.slice &&
	       (p.states_all <= p.states_wanted ||
		dice(1) % p.states_all < p.states_wanted);
}

static void index_compare(unsigned index, uint64_t salt)
{
	struct snapshot recorded = { .count = 0 }, rebuilt = { .count = 0 };
	char why[200];

	cut_make(&p.cut, index, salt);
	state_open(false, false, &recorded);
	cut_make(&p.cut, index, salt);
	state_open(false, true, &rebuilt);
	if (p.bad_state == 0 &&
	    !snapshot_equal(&recorded, &rebuilt, &p.idle_holes, why,
			    sizeof(why)))
		bad("the index rebuilt from the log differs: %s", why);
	snapshot_fini(&recorded);
	snapshot_fini(&rebuilt);
	p.rebuilt++;
}

static void state(const char *what, bool header)
{
	unsigned index;
	uint64_t salt;

	if (p.headers_only && !header)
		return;
	p.number++;
	if (p.counting) {
		p.states_all++;
		return;
	}
	if (!drawn())
		return;
	p.what = what;
	p.bad_state = 0;
	p.random = dice(2);
	salt = dice(3);
	index = (unsigned)(dice(4) % cut_indexes(&p.cut));
	cut_make(&p.cut, index, salt);
	/* What a torn header brings may concern any block. */
	state_open(header || p.states % FULL_EVERY == 0, false, NULL);
	if ((p.states % REBUILD_EVERY == 1 || p.only != UINT64_MAX) &&
	    p.bad_state == 0)
		index_compare(index, salt);
	p.midway += cut_indexes(&p.cut) > 1;
	p.states++;
}

static void states_lost(struct cut_disk *c)
{
	unsigned n = c->risk_count, pairs = 0;

	for (unsigned i = 0; i < n; i++) {
		cut_keep_all_as(c, CUT_ALL);
		c->risk[i].keep = CUT_NONE;
		state("one write lost", false);
		if (!cut_in_flight(c, i, p.at) || pairs++ >= PAIRS_MAX)
			continue;
		for (unsigned j = i + 1; j < n; j++) {
			if (!cut_in_flight(c, j, p.at))
				continue;
			c->risk[j].keep = CUT_NONE;
			state("two writes lost", false);
			c->risk[j].keep = CUT_ALL;
		}
	}
}

/* A cut per event: the last write is the one that went out last. */
static void states_torn(struct cut_disk *c)
{
	unsigned last = c->risk_count - 1;
	struct cut_write *w = &c->risk[last];
	uint32_t first, end;

	cut_keep_all_as(c, CUT_ALL);
	w->keep = CUT_HEAD;
	for (w->arg = 1; w->arg < cut_sectors(c, last); w->arg++)
		state("the last write torn", false);
	cut_header(c, last, &first, &end);
	w->keep = CUT_HEADER_HEAD;
	for (w->arg = 0; first + w->arg < end; w->arg++)
		state("a header's end lost", true);
	w->keep = CUT_HEADER_WITHOUT;
	for (w->arg = 0; first + w->arg < end; w->arg++)
		state("a sector of a header lost", true);
	w->keep = CUT_HEADER_RANDOM;
	for (unsigned i = 0; i < 4 && end > first; i++)
		state("parts of a header", true);
}

static void states_of_cut(void)
{
	struct cut_disk *c = &p.cut;

	cut_keep_all_as(c, CUT_ALL);
	state("all of it", false);
	if (c->risk_count == 0)
		return;
	cut_keep_all_as(c, CUT_NONE);
	state("nothing in flight", false);
	states_lost(c);
	states_torn(c);
	for (unsigned i = 0; i < 4; i++) {
		uint64_t which = mix(mix(p.seed, p.at), i);

		for (unsigned k = 0; k < c->risk_count; k++)
			c->risk[k].keep = random_next(&which) & 1   ? CUT_RANDOM
					  : random_next(&which) & 1 ? CUT_ALL
								    : CUT_NONE;
		state("random parts", false);
	}
}

/* "create", "created", "delete", "deleted" and the cid of a component. */
static void note(const struct io_event *e)
{
	const char *name = (const char *)e->data;
	size_t len = strnlen(name, e->len) + 1;
	struct side *s = p.sides;
	struct uuid cid;

	if (len + sizeof(cid) != e->len)
		return;
	memcpy(&cid, e->data + len, sizeof(cid));
	while (s < p.sides + p.sides_count && !uuid_equal(&s->cid, &cid))
		s++;
	if (s == p.sides + COMPS_MAX)
		unusable("too many components", -ERANGE);
	if (s == p.sides + p.sides_count)
		p.sides[p.sides_count++] = (struct side){ .cid = cid };
	s->created = s->created || strcmp(name, "created") == 0;
	s->deleting = s->deleting || strcmp(name, "delete") == 0;
	s->deleted = s->deleted || strcmp(name, "deleted") == 0;
}

static void replay(bool counting)
{
	cut_rewind(&p.cut);
	journal_rewind(&p.journal);
	p.sides_count = 0;
	p.number = 0;
	p.counting = counting;
	for (size_t i = 0; i < p.cut.record.count; i++) {
		const struct io_event *e = &p.cut.record.events[i];
		int rv = cut_event(&p.cut, i);

		if (rv != 0)
			unusable("an event that cannot be", rv);
		p.at = i;
		if (e->kind == RECORD_NOTE)
			note(e);
		if (e->kind == RECORD_DISCARD)
			continue;
		journal_advance(&p.journal, e->end);
		states_of_cut();
		if (p.bad >= BAD_MAX)
			return;
	}
}

/* ---- input ---- */

static void usage(void)
{
	fprintf(stderr, "usage: lsom_powercut [options] BASE-IMAGE BASE-INDEX "
			"RECORD JOURNAL\n");
	exit(2);
}

/* Of either superblock.  (lsom_disk_probe() knows no disks under 64 MiB.) */
static struct uuid cluster_of(void)
{
	struct lsom__super super;

	for (unsigned i = 0; i < 2; i++)
		if (lsom__super_decode(p.cut.me.image +
					       (size_t)i * LSOM__SUPER_GAP,
				       &super) == 0)
			return super.cluster;
	unusable("the base image is no disk of ours", -EUCLEAN);
}

static void input_open(char **path, uint32_t writer, bool ignore_durable,
		       bool early_ack)
{
	int rv;

	p.base_path = path[0];
	rv = cut_open(path[0], path[1], path[2], lsom__merge, ignore_durable,
		      &p.cut);
	if (rv != 0)
		unusable(path[2], rv);
	rv = journal_open(path[3], writer, &p.journal);
	if (rv != 0)
		unusable(path[3], rv);
	if (early_ack)
		journal_acks_early(&p.journal, &p.cut.record);
	p.recent = malloc(p.journal.blocks_count);
	if (p.recent == NULL)
		unusable(path[3], -ENOMEM);
	p.cluster = cluster_of();
}

static void report(void)
{
	printf("powercut: %llu states of %llu legal ones, %zu events, %zu "
	       "journal entries; %llu blocks compared, %llu states in full, "
	       "%llu while the index was being flushed, %llu indexes rebuilt "
	       "and compared (%llu holes of unwritten blocks in one alone); "
	       "most for a recovery: %llu accesses, %llu KiB, "
	       "%llu ms of a hard disk; %u bad\n",
	       (unsigned long long)p.states, (unsigned long long)p.states_all,
	       p.cut.record.count, p.journal.count,
	       (unsigned long long)p.blocks_checked, (unsigned long long)p.full,
	       (unsigned long long)p.midway, (unsigned long long)p.rebuilt,
	       (unsigned long long)p.idle_holes,
	       (unsigned long long)p.accesses_most,
	       (unsigned long long)(p.bytes_most >> 10),
	       (unsigned long long)(p.slowest_ns / MSEC), p.bad);
	if (p.slowest_ns > RECOVERY_NS) {
		printf("BAD a recovery takes a hard disk longer than 10 s\n");
		p.bad++;
	}
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "states", required_argument, NULL, 'n' },
		{ "seed", required_argument, NULL, 's' },
		{ "slice", required_argument, NULL, 'i' },
		{ "writer", required_argument, NULL, 'w' },
		{ "only", required_argument, NULL, 'o' },
		{ "headers", no_argument, NULL, 'h' },
		{ "ignore-durable", no_argument, NULL, 'd' },
		{ "early-ack", no_argument, NULL, 'e' },
		{ 0 },
	};
	bool ignore_durable = false, early_ack = false;
	uint32_t writer = 1;
	char *slash;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'n':
			p.states_wanted = strtoull(optarg, NULL, 0);
			break;
		case 's':
			p.seed = strtoull(optarg, NULL, 0);
			break;
		case 'i':
			p.slice = strtoull(optarg, &slash, 10);
			p.slices = *slash == '/' ? strtoull(slash + 1, NULL, 10)
						 : 0;
			if (p.slice >= p.slices)
				usage();
			break;
		case 'w':
			writer = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'o':
			p.only = strtoull(optarg, NULL, 0);
			break;
		case 'h':
			p.headers_only = true;
			break;
		case 'd':
			ignore_durable = true;
			break;
		case 'e':
			early_ack = true;
			break;
		default:
			usage();
		}
	}
	if (optind + 4 != argc)
		usage();
	if (p.only == UINT64_MAX)
		log_level_set("lsom", "error");
	input_open(argv + optind, writer, ignore_durable, early_ack);
	replay(true);
	replay(false);
	report();
	cut_close(&p.cut);
	journal_close(&p.journal);
	free(p.recent);
	return p.bad ? 1 : 0;
}
