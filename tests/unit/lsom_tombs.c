/*
 * What is left of deleted components where older data stays: any number of them,
 * and each is looked at only when there is something to be done about it.
 */
#include "tests/unit/lsom_rig.h"

#define BLOCKS 64u
#define COLD 1u /* the component that stays */
#define IDS 250u /* of others: there are no more ids */

/* A disk with data that is older than what follows, and stays. */
static struct lsom_comp *cold_make(struct fixture *f)
{
	struct lsom_comp *comp;

	CHECK_EQ(create(f, COLD, BLOCKS), 0);
	comp = comp_of(f, COLD);
	CHECK_EQ(put(f, comp, 0, BLOCKS, 1, COLD), 0);
	return comp;
}

/* The @n-th component that came and went; its key. */
static uint64_t short_life(struct fixture *f, unsigned n)
{
	unsigned id = COLD + 1 + n % IDS;
	struct lsom_comp *comp;
	uint64_t key;

	CHECK_EQ(create(f, id, BLOCKS), 0);
	comp = comp_of(f, id);
	key = comp->key;
	CHECK_EQ(update(f, comp, LSOM_DELETE, *lsom_comp_meta(comp)), 0);
	lsom_comp_put(comp);
	return key;
}

static unsigned changed(const struct fixture *f)
{
	const struct lsom__tomb *t;
	unsigned n = 0;

	TAILQ_FOREACH (t, &f->disk->tombs.changed, change)
		n++;
	return n;
}

static unsigned count(const struct fixture *f)
{
	const struct lsom__tombs *tombs = &f->disk->tombs;
	const struct lsom__tomb *t;
	unsigned n = 0;

	TAILQ_FOREACH (t, &tombs->settled, link)
		n++;
	TAILQ_FOREACH (t, &tombs->later, link)
		n++;
	return n;
}

/* A checkpoint puts those that came since the last one, and no other. */
TEST(lsom_tombs, the_store_hears_of_each_once)
{
	struct fixture *f = fixture_open(1);
	struct lsom_comp *cold = cold_make(f);
	uint64_t keys[200], last;

	for (unsigned i = 0; i < ARRAY_LEN(keys); i++)
		keys[i] = short_life(f, i);
	lsom__tombs_settle(f->disk);
	checkpoint_make(f);
	CHECK_EQ(changed(f), 0);
	last = short_life(f, ARRAY_LEN(keys));
	CHECK_EQ(changed(f), 1);
	checkpoint_make(f);
	CHECK_EQ(changed(f), 0);
	CHECK_EQ(count(f), ARRAY_LEN(keys) + 1);
	lsom_comp_put(cold);

	CHECK_EQ(power_cut(f), 0);
	CHECK_EQ(count(f), ARRAY_LEN(keys) + 1);
	for (unsigned i = 0; i < ARRAY_LEN(keys); i++)
		CHECK(!lsom__tomb_find(f->disk, keys[i])->changed);
	CHECK(lsom__tomb_find(f->disk, last) != NULL);
	fixture_close(f);
}

/* What there is nothing left to bar of goes, from the store as well. */
TEST(lsom_tombs, they_go_with_what_is_older)
{
	struct fixture *f = fixture_open(2);
	struct lsom_comp *comp = cold_make(f);
	uint64_t first = short_life(f, 0), key = first, lsn = 1;
	unsigned n = 0;

	/* Written over again and again: what is older than the first one goes. */
	while (lsom__tomb_find(f->disk, first) != NULL && n < 3000) {
		lsn++;
		CHECK_EQ(put(f, comp, 0, BLOCKS, lsn, lsn), 0);
		key = short_life(f, ++n);
	}
	CHECK(lsom__tomb_find(f->disk, first) == NULL);
	CHECK(lsom__tomb_find(f->disk, key) != NULL);
	checkpoint_make(f);
	lsom_comp_put(comp);
	CHECK_EQ(power_cut(f), 0);
	CHECK(lsom__tomb_find(f->disk, first) == NULL);
	CHECK(lsom__tomb_find(f->disk, key) != NULL);
	CHECK_EQ(f->disk->comps_count, 1);
	fixture_close(f);
}

/* It is gone before the store has heard of it, or of its end. */
TEST(lsom_tombs, gone_when_the_disk_is_closed)
{
	struct fixture *f = fixture_open(3);
	struct lsom_comp *cold = cold_make(f);
	uint64_t told = short_life(f, 0), untold;

	checkpoint_make(f);
	untold = short_life(f, 1);
	lsom__tomb_drop(f->disk, lsom__tomb_find(f->disk, told));
	lsom__tomb_drop(f->disk, lsom__tomb_find(f->disk, untold));
	CHECK_EQ(count(f), 0);
	CHECK_EQ(changed(f), 2);
	lsom_comp_put(cold);
	fixture_close(f); /* fails on a leaked byte */
}
