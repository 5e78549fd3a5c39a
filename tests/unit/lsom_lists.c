/*
 * What the lists of a disk say of its components is what a look at all of them says:
 * whose aborts, whose state the cleaner writes, who is to be counted.
 */
#include "lsom/cleaner_int.h"
#include "tests/unit/lsom_rig.h"

#define COMPS 12u
#define BLOCKS 512u

struct comps {
	struct fixture *f;
	struct lsom_comp *comp[COMPS];
	uint64_t lsn[COMPS];
	/* What was seen. */
	unsigned aborting, carried, due, gone;
};

/* As lsom__count_kick() would find it. */
static bool to_be_counted(const struct lsom_comp *comp)
{
	return (comp->reserved > 0 || comp->count_asked) && !comp->deleted &&
	       comp->counted != LSOM__COUNT_EXACT;
}

static void lists_check(struct comps *c)
{
	const struct lsom_disk *disk = c->f->disk;
	unsigned aborting = 0, carries = 0, due = 0;
	const struct lsom_comp *comp;

	TAILQ_FOREACH (comp, &disk->comps, link) {
		aborting += comp->aborts_count > 0;
		carries += comp->carry;
		due += comp->count_due;
		CHECK(!to_be_counted(comp) || comp->count_due);
		c->gone += comp->deleted && comp->carry;
	}
	c->aborting += aborting > 1;
	c->carried += carries > 0;
	c->due += due > 0;
	TAILQ_FOREACH (comp, &disk->aborting, abort_link) {
		CHECK(comp->aborts_count > 0);
		/* One that is held and gone has its own still. */
		aborting -= comp->linked;
	}
	CHECK_EQ(aborting, 0);
	TAILQ_FOREACH (comp, &disk->carries, carry_link) {
		CHECK(comp->linked && comp->carry);
		carries--;
	}
	CHECK_EQ(carries, 0);
	TAILQ_FOREACH (comp, &disk->counts, count_link) {
		CHECK(comp->linked && comp->count_due);
		due--;
	}
	CHECK_EQ(due, 0);
}

static void turns(struct comps *c, unsigned n)
{
	lists_check(c);
	while (n-- > 0 && sim_env_turn(&c->f->sim))
		lists_check(c);
}

static void comp_make(struct comps *c, unsigned i)
{
	CHECK_EQ(create(c->f, i + 1, BLOCKS), 0);
	c->comp[i] = comp_of(c->f, i + 1);
	c->lsn[i] = 0;
}

static void comps_open(struct comps *c, unsigned seed)
{
	memset(c, 0, sizeof(*c));
	c->f = fixture_of(seed, 16u << 20, LSOM__SEGMENT_TINY);
	for (unsigned i = 0; i < COMPS; i++)
		comp_make(c, i);
}

static void comps_put(struct comps *c)
{
	for (unsigned i = 0; i < COMPS; i++)
		lsom_comp_put(c->comp[i]);
}

static void comps_get(struct comps *c)
{
	struct lsom_decided d = { 0 };

	for (unsigned i = 0; i < COMPS; i++) {
		c->comp[i] = comp_of(c->f, i + 1);
		CHECK(c->comp[i] != NULL);
		d.stable_lsn = LSN(1, c->lsn[i]);
		lsom_decided(c->comp[i], &d);
	}
}

static uint64_t dice(struct comps *c, uint64_t n)
{
	return sim_env_random(&c->f->sim, n);
}

static void write_some(struct comps *c, unsigned i)
{
	uint64_t n = 1 + dice(c, 24), first = dice(c, BLOCKS - n);
	uint64_t lsn = LSN(1, ++c->lsn[i]);
	struct lsom_comp *comp = c->comp[i];

	if (dice(c, 2) == 0) {
		CHECK_EQ(put(c->f, comp, first, n, lsn, dice(c, 4)), 0);
		return;
	}
	CHECK_EQ(put_kind(c->f, comp, LSOM_PREP, first, n, lsn, dice(c, 4)), 0);
	if (dice(c, 2) == 0)
		CHECK_EQ(decide(c->f, comp, lsn, false), 0);
}

static void decide_some(struct comps *c, unsigned i)
{
	const struct lsom_decided d = { .stable_lsn = LSN(1, c->lsn[i]),
					.hole_floor = LSN(1, c->lsn[i]) };

	lsom_decided(c->comp[i], &d);
	/* It is in a record then, and aborts can be forgotten. */
	if (dice(c, 2) == 0)
		CHECK_EQ(update(c->f, c->comp[i], LSOM_CONFIG,
				(struct lsom_comp_meta){ 0 }),
			 0);
}

/* As after a cut, or with an index of an earlier version. */
static void count_forget(struct comps *c, unsigned i)
{
	if (c->comp[i]->counted != LSOM__COUNT_EXACT)
		return;
	lsom__comp_unsure(c->comp[i]);
	lsom__comp_mapped(c->comp[i], 0, 1);
}

/* One that is on all lists, and is held while others go on. */
static void delete_some(struct comps *c, unsigned i)
{
	struct lsom_comp *held = c->comp[i];

	CHECK_EQ(decide(c->f, held, LSN(1, c->lsn[i] + 9), false), 0);
	lsom_comp_reserve(held, 8 * LSOM_BLOCK);
	count_forget(c, i);
	if (dice(c, 2) == 0) /* as the cleaner does that meets its record */
		lsom__comp_carry(held);
	CHECK_EQ(update(c->f, held, LSOM_DELETE, (struct lsom_comp_meta){ 0 }),
		 0);
	lists_check(c);
	lsom_comp_reserve(held, 8 * LSOM_BLOCK);
	turns(c, (unsigned)dice(c, 60));
	if (dice(c, 2) == 0)
		checkpoint_make(c->f);
	lists_check(c);
	lsom_comp_put(held);
	lists_check(c);
	comp_make(c, i);
}

static void count_some(struct comps *c, unsigned i)
{
	uint64_t bytes;

	if (dice(c, 3) == 0)
		(void)lsom_comp_used(c->comp[i], &bytes);
	else
		lsom_comp_reserve(c->comp[i], dice(c, 3) * LSOM_BLOCK);
}

static void again(struct comps *c)
{
	bool cut = dice(c, 2) == 0, rebuild = dice(c, 4) == 0;

	comps_put(c);
	if (cut)
		sim_env_cut(&c->f->sim);
	disk_close(c->f);
	if (cut)
		sim_env_restore(&c->f->sim);
	/* One that was being made anew is made anew. */
	if (disk_open(c->f, rebuild) != 0)
		CHECK_EQ(disk_open(c->f, true), 0);
	lists_check(c);
	comps_get(c);
}

static void something(struct comps *c)
{
	unsigned i = (unsigned)dice(c, COMPS), what = (unsigned)dice(c, 100);

	if (what < 60)
		write_some(c, i);
	else if (what < 75)
		decide_some(c, i);
	else if (what < 79)
		delete_some(c, i);
	else if (what < 89)
		count_some(c, i);
	else if (what < 93)
		count_forget(c, i);
	else if (what < 98)
		checkpoint_make(c->f);
	else if (what < 99)
		again(c);
	turns(c, (unsigned)dice(c, 12));
}

TEST(lists, are_what_a_look_at_all_says)
{
	struct comps c;

	for (unsigned seed = 1; seed <= 6; seed++) {
		comps_open(&c, seed);
		for (unsigned n = 0; n < 2500; n++)
			something(&c);
		CHECK(c.aborting > 0 && c.carried > 0 && c.due > 0);
		CHECK(c.gone > 0);
		comps_put(&c);
		while (sim_env_turn(&c.f->sim))
			lists_check(&c);
		fixture_close(c.f);
	}
}
