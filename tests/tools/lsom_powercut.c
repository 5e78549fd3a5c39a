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
#include "lsom/lsom_int.h"
#include "tests/lib/cutdisk.h"
#include "tests/lib/state_check.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>

#define BAD_MAX 10u
#define FULL_EVERY 8u /* all blocks in one of so many states */
#define REBUILD_EVERY 64u /* and the index rebuilt in one of so many */
#define PAIRS_MAX 32u /* writes in flight whose pairs are lost */

/* The budget of a recovery is one of I/O: so long on state_check's hard disk. */
#define RECOVERY_NS (10 * SEC)

static struct {
	uint64_t states_wanted, seed, only;
	uint64_t slice, slices;
	bool headers_only;

	struct cut_disk cut;
	struct journal journal;
	struct state_check check;

	bool counting; /* first pass: how many states there are */
	uint64_t number; /* of the state */
	uint64_t states_all, states, rebuilt, midway;
	uint64_t idle_holes; /* that one index alone has */
	size_t at; /* the event after which the power goes */
	const char *what;
	unsigned bad, bad_state;
} p = {
	.states_wanted = 2000,
	.seed = 1,
	.slices = 1,
	.only = UINT64_MAX,
};

__attribute__((format(printf, 1, 2))) static void bad(const char *fmt, ...)
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
	state_check_open(&p.check, false, false, &recorded);
	cut_make(&p.cut, index, salt);
	state_check_open(&p.check, false, true, &rebuilt);
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
	p.check.random = dice(2);
	salt = dice(3);
	index = (unsigned)(dice(4) % cut_indexes(&p.cut));
	cut_make(&p.cut, index, salt);
	/* What a torn header brings may concern any block. */
	state_check_open(&p.check, header || p.states % FULL_EVERY == 0, false,
			 NULL);
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

static void replay(bool counting)
{
	cut_rewind(&p.cut);
	journal_rewind(&p.journal);
	state_check_rewind(&p.check);
	p.number = 0;
	p.counting = counting;
	for (size_t i = 0; i < p.cut.record.count; i++) {
		const struct io_event *e = &p.cut.record.events[i];
		int rv = cut_event(&p.cut, i);

		if (rv != 0)
			unusable("an event that cannot be", rv);
		p.at = i;
		if (e->kind == RECORD_NOTE &&
		    state_check_note(&p.check, e) != 0)
			unusable("too many components", -ERANGE);
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

	rv = cut_open(path[0], path[1], path[2], lsom__merge, ignore_durable,
		      &p.cut);
	if (rv != 0)
		unusable(path[2], rv);
	rv = journal_open(path[3], writer, &p.journal);
	if (rv != 0)
		unusable(path[3], rv);
	if (early_ack)
		journal_acks_early(&p.journal, &p.cut.record);
	p.check.me = &p.cut.me;
	p.check.journal = &p.journal;
	p.check.disk_path = path[0];
	p.check.cluster = cluster_of();
	p.check.bad = bad;
	state_check_init(&p.check);
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
	       (unsigned long long)p.check.blocks_checked,
	       (unsigned long long)p.check.full, (unsigned long long)p.midway,
	       (unsigned long long)p.rebuilt, (unsigned long long)p.idle_holes,
	       (unsigned long long)p.check.accesses_most,
	       (unsigned long long)(p.check.bytes_most >> 10),
	       (unsigned long long)(p.check.slowest_ns / MSEC), p.bad);
	if (p.check.slowest_ns > RECOVERY_NS) {
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
	state_check_fini(&p.check);
	return p.bad ? 1 : 0;
}
