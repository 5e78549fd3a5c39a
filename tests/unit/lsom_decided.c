/*
 * What is decided, aborted or unmapped stays so: over cuts, in an index made from
 * the log alone, and against what comes late.
 */
#include "lsom/cleaner_int.h"
#include "lsom/index_store.h"
#include "tests/unit/lsom_rig.h"

#include "tests/lib/memkv.h"

/* ABORT, COMMIT, RCOPY and ATTACH: before a cut, after it, and rebuilt. */
TEST(decided, decisions_last)
{
	struct fixture *f = fixture_open(32);
	struct lsom_comp_meta m = { .member_csn = 2,
				    .csn_seen = 2,
				    .state_seen = LSOM_SYNC };
	struct lsom_comp *comp;
	unsigned way;

	CHECK_EQ(create(f, 1, 4096), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, 300, LSN(1, 1), 0), 0);
	CHECK_EQ(put(f, comp, 0, 8, LSN(1, 2), 2), 0);
	/* 4 is committed, 5 aborted, before it came and after. */
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 1, 1, LSN(1, 4), 4), 0);
	CHECK_EQ(decide(f, comp, LSN(1, 4), true), 0);
	CHECK_EQ(decide(f, comp, LSN(1, 4), true), 0);
	CHECK_EQ(decide(f, comp, LSN(1, 4), false), -EINVAL);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 2, 1, LSN(1, 5), 5), 0);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 2, 1, LSN(1, 5), 5), 0);
	CHECK_EQ(decide(f, comp, LSN(1, 5), false), 0);
	CHECK_EQ(decide(f, comp, LSN(1, 5), false), 0);
	CHECK_EQ(decide(f, comp, LSN(1, 5), true), -EINVAL);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 2, 1, LSN(1, 5), 5), -ESTALE);
	CHECK_EQ(decide(f, comp, LSN(1, 6), false), 0);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 3, 1, LSN(1, 6), 6), -ESTALE);
	/* A copy is taken where it is newer. */
	CHECK_EQ(put_kind(f, comp, LSOM_RCOPY, 4, 1, LSN(1, 1), 7), 0);
	CHECK_EQ(put_kind(f, comp, LSOM_RCOPY, 5, 1, LSN(1, 3), 7), 0);
	/* What is undecided when a session attaches is void. */
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 6, 1, LSN(1, 8), 8), 0);
	CHECK_EQ(update(f, comp, LSOM_ATTACH, m), 0);
	for (way = 0; way < 4; way++) {
		lsom_decided(comp,
			     &(struct lsom_decided){ .stable_lsn = LSN(1, 8) });
		CHECK_EQ(lsom_comp_meta(comp)->state_seen, LSOM_SYNC);
		CHECK_EQ(lsom_comp_meta(comp)->member_csn, 2);
		CHECK_EQ(get(f, comp, 0, 2), 1);
		CHECK_EQ(get(f, comp, 1, 4), 1);
		CHECK_EQ(get(f, comp, 2, 2), 1);
		CHECK_EQ(get(f, comp, 3, 2), 1);
		CHECK_EQ(get(f, comp, 4, 2), 1);
		CHECK_EQ(get(f, comp, 5, 7), 1);
		CHECK_EQ(get(f, comp, 6, 2), 1);
		lsom_comp_put(comp);
		if (way < 2) {
			CHECK_EQ(power_cut(f), 0);
		} else {
			disk_close(f);
			CHECK_EQ(disk_open(f, way == 2), 0);
		}
		comp = comp_of(f, 1);
	}
	lsom_comp_put(comp);
	fixture_close(f);
}

/*
 * A hole is decided before older versions of some of its blocks, which are in no page
 * of the index yet: it is entered where they will come, and nowhere else.
 */
TEST(decided, a_hole_before_older_versions)
{
	static const uint64_t older[] = { 5, 2, 9 }; /* pages, by lsn */
	const unsigned pages = 3u << 5 | 3u << 2 | 3u << 9;
	struct fixture *f = fixture_open(38);
	struct lsom_comp *comp;
	uint64_t at;
	unsigned i;

	CHECK_EQ(create(f, 1, 12 * LSOM__PAGE_SLOTS), 0);
	comp = comp_of(f, 1);
	for (i = 0; i < ARRAY_LEN(older); i++)
		CHECK_EQ(put_kind(f, comp, LSOM_PREP,
				  (older[i] + 1) * LSOM__PAGE_SLOTS - 1, 2,
				  LSN(1, 3 + i), 7),
			 0);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 1, 11 * LSOM__PAGE_SLOTS,
			  LSN(1, 9), 0),
		 0);
	CHECK_EQ(decide(f, comp, LSN(1, 9), true), 0);
	for (i = 0; i < 12; i++)
		CHECK_EQ(lsom__page_exists(comp, i), pages >> i & 1);
	/* In no order of their lsns. */
	for (i = ARRAY_LEN(older); i-- > 0;) {
		at = (older[i] + 1) * LSOM__PAGE_SLOTS;
		CHECK_EQ(decide(f, comp, LSN(1, 3 + i), true), 0);
		CHECK_EQ(get(f, comp, at - 1, 7), 0);
		CHECK_EQ(get(f, comp, at, 7), 0);
	}
	lsom_comp_put(comp);
	fixture_close(f);
}

/* @comp after a power cut, or with an index that was made anew. */
static struct lsom_comp *again(struct fixture *f, struct lsom_comp *comp,
			       bool rebuild)
{
	lsom_comp_put(comp);
	if (rebuild) {
		disk_close(f);
		CHECK_EQ(disk_open(f, true), 0);
	} else {
		CHECK_EQ(power_cut(f), 0);
	}
	return comp_of(f, 1);
}

static void lsn_note(const struct lsom_undecided *u, void *arg)
{
	*(uint64_t *)arg |= 1ull << LSN_SEQ(u->lsn);
}

/*
 * What is decided above the stable lsn, of lsns that others lie between: in the
 * log, in the index, and in the log alone.  Exactly these.
 */
TEST(decided, what_is_decided_lasts)
{
	struct fixture *f = fixture_open(33);
	struct lsom_decided d = { .stable_lsn = LSN(1, 1),
				  .g_all = LSN(1, 1),
				  .committed = { 1u << 1 | 1u << 4, 1u << 0 } };
	const uint64_t committed = 1u << 3 | 1u << 6 | 1u << 10;
	struct lsom_comp *comp;
	uint64_t undecided;
	unsigned way, i;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 1, 1, LSN(1, 1), 1), 0);
	for (i = 2; i < 12; i++)
		CHECK_EQ(put_kind(f, comp, LSOM_PREP, i, 1, LSN(1, i), i), 0);
	lsom_decided(comp, &d);
	/* It rides along with the next record. */
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 12, 1, LSN(1, 12), 12), 0);
	for (way = 0; way < 4; way++) {
		undecided = 0;
		lsom_undecided_each(comp, lsn_note, &undecided);
		CHECK_EQ(undecided, (1u << 13) - 4 - committed);
		CHECK_EQ(lsom_comp_meta(comp)->stable_lsn, LSN(1, 1));
		CHECK_EQ(lsom_comp_meta(comp)->g_all, LSN(1, 1));
		CHECK_EQ(get(f, comp, 1, 1), 1);
		for (i = 2; i < 13; i++)
			CHECK_EQ(get(f, comp, i, i), committed >> i & 1);
		comp = again(f, comp, way == 2);
	}
	lsom_comp_put(comp);
	fixture_close(f);
}

/* The log has COMMITs in the order in which they came. */
TEST(decided, commits_last_in_any_order)
{
	static const unsigned lsns[] = { 11, 3, 9, 3, 5, 10, 2, 7 };
	struct fixture *f = fixture_open(35);
	struct lsom_comp *comp;
	unsigned way, i;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	for (i = 2; i < 13; i++)
		CHECK_EQ(put_kind(f, comp, LSOM_PREP, i, 1, LSN(1, i), i), 0);
	for (i = 0; i < ARRAY_LEN(lsns); i++)
		CHECK_EQ(decide(f, comp, LSN(1, lsns[i]), true), 0);
	for (way = 0; way < 3; way++) {
		CHECK_EQ(comp->preps_count, 4);
		for (i = 0; i < ARRAY_LEN(lsns); i++)
			CHECK_EQ(get(f, comp, lsns[i], lsns[i]), 1);
		comp = again(f, comp, way > 0);
	}
	lsom_comp_put(comp);
	fixture_close(f);
}

/*
 * A message that left before the COMMIT, and comes after it, with a newer stable
 * lsn: what it does not know stays committed.
 */
TEST(decided, a_commit_outlives_an_older_message)
{
	const uint64_t lsns[] = { 4, 63, 64, 66, 67, 130, 700 };
	struct fixture *f = fixture_open(39);
	struct lsom_decided d = { .stable_lsn = LSN(1, 1) };
	struct lsom_comp *comp;
	unsigned way, i;

	CHECK_EQ(create(f, 1, 1024), 0);
	comp = comp_of(f, 1);
	lsom_decided(comp, &d);
	d.stable_lsn++;
	for (i = 0; i < ARRAY_LEN(lsns); i++) {
		CHECK_EQ(put_kind(f, comp, LSOM_PREP, i, 1, LSN(1, lsns[i]),
				  lsns[i]),
			 0);
		CHECK_EQ(decide(f, comp, LSN(1, lsns[i]), true), 0);
	}
	for (way = 0; way < 4; way++) {
		lsom_decided(comp, &d);
		for (i = 0; i < ARRAY_LEN(lsns); i++) {
			CHECK_EQ(get(f, comp, i, lsns[i]), 1);
			CHECK_EQ(decide(f, comp, LSN(1, lsns[i]), false),
				 -EINVAL);
			CHECK_EQ(lsom__committed(comp, LSN(1, lsns[i] + 1)),
				 LSN(1, lsns[i] + 1) <= d.stable_lsn ||
					 lsns[i] == 63 || lsns[i] == 66);
		}
		d.stable_lsn += way == 0 ? 1 : way == 1 ? 60 : 64;
		if (way == 2)
			checkpoint_make(f);
		comp = again(f, comp, way == 1);
	}
	d.stable_lsn = LSN(2, 0);
	lsom_decided(comp, &d);
	CHECK(!lsom__committed(comp, LSN(2, 1)));
	lsom_comp_put(comp);
	fixture_close(f);
}

/* An older message changes nothing; neither does the cleaner what bars a PREP. */
TEST(decided, what_is_barred_stays_barred)
{
	struct fixture *f = fixture_open(34);
	struct lsom_decided d = { .stable_lsn = LSN(1, 4) };
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	lsom_decided(comp, &d);
	d.stable_lsn = LSN(1, 2);
	lsom_decided(comp, &d);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 3, 1, LSN(1, 4), 4), -ESTALE);
	/* Until its lsn is stable, and nothing older than it lies anywhere. */
	CHECK_EQ(decide(f, comp, LSN(1, 6), false), 0);
	lsom__aborts_settle(comp, 100);
	lsom__aborts_prune(comp, 100);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 6, 1, LSN(1, 6), 6), -ESTALE);
	comp->meta.stable_lsn = LSN(1, 6);
	lsom__aborts_prune(comp, 99);
	CHECK(lsom__aborted(comp, LSN(1, 6), 1));
	lsom__aborts_prune(comp, 100);
	CHECK(!lsom__aborted(comp, LSN(1, 6), 1));
	/* What a session aborted those before it had not, either. */
	CHECK_EQ(lsom__abort_add(comp, LSN(1, 7), 2), 0);
	CHECK(lsom__aborted(comp, LSN(1, 7), 1));
	CHECK(!lsom__aborted(comp, LSN(1, 7), 3));
	lsom_comp_put(comp);
	fixture_close(f);
}

/* R41: the ABORT is on its way to the log when its PREP comes, and is before it. */
TEST(decided, an_abort_overtakes_its_prep)
{
	struct fixture *f = fixture_open(37);
	struct call a = { .f = f, .d = { .lsn = LSN(1, 6) } }, p = { .f = f };
	struct lsom_comp *comp;
	uint64_t undecided;
	unsigned way;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(lsom_decide(comp, &a.d, decide_done), 0);
	CHECK_EQ(write_start(&p, comp, LSOM_PREP, 6, 1, LSN(1, 6), 6), 0);
	CHECK(sim_env_run(&f->sim, &p.done));
	CHECK(a.done);
	CHECK_EQ(a.status, 0);
	CHECK_EQ(p.status, -ESTALE);
	for (way = 0; way < 3; way++) {
		undecided = 0;
		lsom_undecided_each(comp, lsn_note, &undecided);
		CHECK_EQ(undecided, 0);
		CHECK_EQ(get(f, comp, 6, 6), 0);
		comp = again(f, comp, false);
	}
	lsom_comp_put(comp);
	fixture_close(f);
}

/*
 * It comes to the log when the cleaner has seen all that was aborted before: what it
 * is barred by is needed until it is gone, too.
 */
TEST(decided, an_abort_is_before_a_prep_that_waits)
{
	struct fixture *f = fixture_open(38);
	struct lsom__head *head = &f->disk->heads[LSOM__HEAD_GUEST];
	struct call a = { .f = f, .d = { .lsn = LSN(1, 6) } }, p = { .f = f };
	struct call w[LSOM__BATCHES];
	struct lsom_comp *comp;
	uint64_t seen;
	unsigned i;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(lsom_decide(comp, &a.d, decide_done), 0);
	for (i = 0; !TAILQ_EMPTY(&head->idle); i++) {
		while (head->kick.queued)
			CHECK(sim_env_turn(&f->sim));
		CHECK(i < ARRAY_LEN(w) && !a.done);
		w[i].f = f;
		CHECK_EQ(write_start(&w[i], comp, LSOM_PREP, i, 1,
				     LSN(1, 10 + i), 5),
			 0);
	}
	CHECK_EQ(write_start(&p, comp, LSOM_PREP, 6, 1, LSN(1, 6), 6), 0);
	while (!a.done)
		CHECK(sim_env_turn(&f->sim));
	CHECK(!STAILQ_EMPTY(&head->queue));
	seen = f->disk->pos_next;
	lsom__aborts_settle(comp, seen);
	CHECK_EQ(finish(&p, 0), -ESTALE);
	CHECK_EQ(comp->aborts_count, 1);
	CHECK(comp->aborts_pos[0] > seen);
	while (i-- > 0)
		CHECK_EQ(finish(&w[i], 0), 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

/*
 * The power goes at any moment of an ATTACH, whose stable lsn is beyond what it
 * voids: that is undecided still or gone, and never what is read.
 */
TEST(decided, a_cut_in_the_middle_of_an_attach)
{
	struct lsom_comp *comp;
	uint64_t undecided;
	struct fixture *f;
	bool done = false;
	struct call c;
	unsigned n, i;

	for (n = 0; !done; n++) {
		f = fixture_open(n);
		CHECK_EQ(create(f, 1, 64), 0);
		comp = comp_of(f, 1);
		CHECK_EQ(put(f, comp, 6, 1, LSN(1, 2), 2), 0);
		CHECK_EQ(put_kind(f, comp, LSOM_PREP, 6, 1, LSN(1, 6), 6), 0);
		c = (struct call){ .f = f };
		c.m.op = LSOM_ATTACH;
		c.m.meta = (struct lsom_comp_meta){ .member_csn = 2,
						    .state_seen = LSOM_SYNC,
						    .stable_lsn = LSN(1, 9) };
		CHECK_EQ(lsom_comp_update(comp, &c.m, meta_done), 0);
		for (i = 0; i < n && !c.done; i++)
			CHECK(sim_env_turn(&f->sim));
		done = c.done;
		comp = again(f, comp, false);
		CHECK_EQ(get(f, comp, 6, 2), 1);
		undecided = 0;
		lsom_undecided_each(comp, lsn_note, &undecided);
		if (lsom_comp_meta(comp)->member_csn == 2) {
			CHECK_EQ(lsom_comp_meta(comp)->stable_lsn, LSN(1, 9));
			CHECK_EQ(undecided, 0);
		} else {
			CHECK(!done);
			CHECK_EQ(undecided, 1u << 6);
		}
		lsom_comp_put(comp);
		fixture_close(f);
	}
	CHECK(n > 4);
}

/* Behind an ATTACH nothing of the session before it is taken. */
TEST(decided, a_prep_behind_an_attach)
{
	struct fixture *f = fixture_open(41);
	struct call a = { .f = f }, late = { .f = f }, same = { .f = f };
	struct lsom_comp *comp;
	uint64_t undecided;
	unsigned way;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 6, 2, LSN(1, 2), 2), 0);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 6, 1, LSN(1, 6), 6), 0);
	a.m.op = LSOM_ATTACH;
	a.m.meta = (struct lsom_comp_meta){ .member_csn = 2,
					    .state_seen = LSOM_SYNC };
	CHECK_EQ(lsom_comp_update(comp, &a.m, meta_done), 0);
	CHECK_EQ(write_start(&late, comp, LSOM_PREP, 7, 1, LSN(1, 7), 7), 0);
	/* One that is there, and void in a moment, is no answer either. */
	CHECK_EQ(write_start(&same, comp, LSOM_RPREP, 6, 1, LSN(1, 6), 6), 0);
	CHECK(sim_env_run(&f->sim, &a.done));
	CHECK(sim_env_run(&f->sim, &late.done));
	CHECK(sim_env_run(&f->sim, &same.done));
	CHECK_EQ(a.status, 0);
	CHECK_EQ(late.status, -ESTALE);
	CHECK_EQ(same.status, -ESTALE);
	for (way = 0; way < 3; way++) {
		undecided = 0;
		lsom_undecided_each(comp, lsn_note, &undecided);
		CHECK_EQ(undecided, 0);
		CHECK_EQ(get(f, comp, 6, 2), 1);
		CHECK_EQ(get(f, comp, 7, 2), 1);
		comp = again(f, comp, way == 1);
	}
	lsom_comp_put(comp);
	fixture_close(f);
}

/* What the session before had is void, and no answer to the one that attaches. */
TEST(decided, the_same_prep_behind_an_attach)
{
	struct fixture *f = fixture_open(42);
	struct call a = { .f = f }, same = { .f = f };
	struct lsom_comp *comp;
	uint64_t undecided;
	unsigned way;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 6, 1, LSN(1, 6), 6), 0);
	a.m.op = LSOM_ATTACH;
	a.m.meta = (struct lsom_comp_meta){ .member_csn = 2,
					    .state_seen = LSOM_SYNC };
	CHECK_EQ(lsom_comp_update(comp, &a.m, meta_done), 0);
	write_csn = 2;
	CHECK_EQ(write_start(&same, comp, LSOM_RPREP, 6, 1, LSN(1, 6), 7), 0);
	write_csn = 1;
	CHECK(sim_env_run(&f->sim, &a.done));
	CHECK(sim_env_run(&f->sim, &same.done));
	CHECK_EQ(a.status, 0);
	CHECK_EQ(same.status, 0);
	for (way = 0; way < 3; way++) {
		undecided = 0;
		lsom_undecided_each(comp, lsn_note, &undecided);
		CHECK_EQ(undecided, 1ull << 6);
		comp = again(f, comp, way == 1);
	}
	lsom_decided(comp, &(struct lsom_decided){ .stable_lsn = LSN(1, 6) });
	CHECK_EQ(get(f, comp, 6, 7), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* Whom nobody tells what is decided is told to wait. */
TEST(decided, no_more_undecided_than_there_may_be)
{
	struct fixture *f = fixture_open(43);
	struct lsom_comp *comp;
	uint64_t n;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	for (n = 1; n <= LSOM__PREPS_MAX; n++)
		CHECK_EQ(put_kind(f, comp, LSOM_PREP, n % 64, 1, LSN(1, n), 6),
			 0);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, 1, LSN(1, n), 7), -EBUSY);
	lsom_decided(comp, &(struct lsom_decided){ .stable_lsn = LSN(1, 1) });
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, 1, LSN(1, n), 7), 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* On a replica that is being filled a hole bars the older copy that comes for it. */
TEST(decided, a_copy_comes_for_a_hole)
{
	struct fixture *f = fixture_open(35);
	struct lsom_comp_meta m = { .member_csn = 1, .state_seen = LSOM_SYNC };
	struct lsom_comp *comp;
	unsigned way;

	CHECK_EQ(create(f, 1, 1024), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(update(f, comp, LSOM_CONFIG, m), 0);
	CHECK_EQ(put(f, comp, 0, 1024, LSN(1, 5), 0), 0);
	CHECK_EQ(put_kind(f, comp, LSOM_RCOPY, 600, 8, LSN(1, 3), 3), 0);
	CHECK_EQ(put_kind(f, comp, LSOM_RCOPY, 10, 8, LSN(1, 6), 6), 0);
	for (way = 0; way < 3; way++) {
		CHECK_EQ(get(f, comp, 600, 3), 0);
		CHECK_EQ(get(f, comp, 607, 3), 0);
		CHECK_EQ(get(f, comp, 10, 6), 1);
		comp = again(f, comp, way == 1);
	}
	lsom_comp_put(comp);
	fixture_close(f);
}

/* I2: neither an older request nor an opening lowers what is recorded. */
TEST(decided, metadata_never_goes_back)
{
	struct fixture *f = fixture_open(36);
	struct lsom_comp_meta high = { .promised_oepoch = 5,
				       .member_csn = 6,
				       .csn_seen = 7,
				       .stable_lsn = LSN(4, 9),
				       .g_all = LSN(4, 8) };
	struct lsom_comp_meta low = { .promised_oepoch = 4,
				      .member_csn = 5,
				      .csn_seen = 6,
				      .stable_lsn = LSN(4, 8),
				      .g_all = LSN(4, 7) };
	const struct lsom_comp_meta *m;
	struct lsom_comp *comp;
	unsigned way;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(update(f, comp, LSOM_CONFIG, high), 0);
	for (way = 0; way < 3; way++) {
		CHECK_EQ(update(f, comp, way ? LSOM_SEAL : LSOM_CONFIG, low),
			 0);
		m = lsom_comp_meta(comp);
		CHECK_EQ(m->promised_oepoch, 5);
		CHECK_EQ(m->member_csn, 6);
		CHECK_EQ(m->csn_seen, 7);
		CHECK_EQ(m->stable_lsn, LSN(4, 9));
		CHECK_EQ(m->g_all, LSN(4, 8));
		comp = again(f, comp, way == 1);
		if (way == 1)
			checkpoint_make(f);
	}
	lsom_comp_put(comp);
	fixture_close(f);
}

/* What is prepared behind the new end may be committed: it is not cut off. */
TEST(decided, prepared_behind_a_smaller_size)
{
	struct fixture *f = fixture_open(38);
	struct lsom_comp_meta m = { .size_bytes = 32 * LSOM_BLOCK };
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 28, 8, LSN(1, 2), 2), 0);
	CHECK_EQ(update(f, comp, LSOM_RESIZE, m), -EOPNOTSUPP);
	CHECK_EQ(decide(f, comp, LSN(1, 2), true), 0);
	CHECK_EQ(update(f, comp, LSOM_RESIZE, m), -EOPNOTSUPP);
	CHECK_EQ(get(f, comp, 35, 2), 1);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 32, 32, LSN(1, 3), 0), 0);
	CHECK_EQ(decide(f, comp, LSN(1, 3), true), 0);
	/* One that ends where the component will. */
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 28, 4, LSN(1, 4), 4), 0);
	CHECK_EQ(update(f, comp, LSOM_RESIZE, m), 0);
	CHECK_EQ(decide(f, comp, LSN(1, 4), true), 0);
	CHECK_EQ(get(f, comp, 31, 4), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* ABORT @n lsns from @first on, of which nothing is known here. */
static void aborts_put(struct fixture *f, struct lsom_comp *comp,
		       uint64_t first, unsigned n)
{
	struct call *c = calloc(n, sizeof(*c));
	unsigned i;

	CHECK(c != NULL);
	for (i = 0; i < n; i++) {
		c[i].f = f;
		c[i].d.lsn = LSN(1, first + i);
		CHECK_EQ(lsom_decide(comp, &c[i].d, decide_done), 0);
	}
	for (i = 0; i < n; i++)
		CHECK_EQ(finish(&c[i], 0), 0);
	free(c);
}

/*
 * Aborts are forgotten when the log is rid of what they bar, and above the stable
 * lsn they are not.  So cleaning for them has an end where that stands still.
 */
TEST(decided, aborts_above_the_stable_lsn_clean_nothing)
{
	struct fixture *f = fixture_of(36, 8u << 20, LSOM__SEGMENT_TINY);
	struct lsom_comp *comp, *other;
	unsigned turns = 0, i;
	uint64_t sequence, lsn;

	CHECK_EQ(create(f, 1, 64), 0);
	CHECK_EQ(create(f, 2, 512), 0);
	comp = comp_of(f, 1);
	other = comp_of(f, 2);
	aborts_put(f, comp, 1, LSOM_WINDOW);
	for (i = 0; i < 10; i++)
		CHECK_EQ(put(f, other, i * 32, 32, LSN(1, i + 1), i + 1), 0);
	sequence = f->disk->sequence_next;
	while (turns < 20000 && sim_env_turn(&f->sim))
		turns++;
	CHECK(turns < 20000);
	CHECK(f->disk->sequence_next < sequence + 4);
	/* Those that it has passed are worth it, */
	lsn = LSOM_WINDOW;
	for (i = 0; i < 2; i++)
		CHECK_EQ(put(f, comp, i, 1, LSN(1, ++lsn), 1), 0);
	while (sim_env_turn(&f->sim))
		;
	CHECK_EQ(comp->aborts_count, 0);
	/* unless they are where guests have not gone on. */
	aborts_put(f, comp, lsn + 1, LSOM_WINDOW);
	lsn += LSOM_WINDOW;
	for (i = 0; i < 2; i++)
		CHECK_EQ(put(f, comp, i, 1, LSN(1, ++lsn), 1), 0);
	while (sim_env_turn(&f->sim))
		;
	CHECK_EQ(comp->aborts_count, LSOM_WINDOW);
	for (i = 0; i < 10; i++)
		CHECK_EQ(put(f, other, i * 32, 32, LSN(1, i + 11), i + 1), 0);
	while (sim_env_turn(&f->sim))
		;
	CHECK_EQ(comp->aborts_count, 0);
	for (i = 0; i < 10; i++)
		CHECK_EQ(get(f, other, i * 32, i + 1), 1);
	lsom_comp_put(comp);
	lsom_comp_put(other);
	fixture_close(f);
}

/* Nor do those that are behind a segment which has to stay as it is. */
TEST(decided, aborts_behind_a_bad_segment_clean_nothing)
{
	struct fixture *f = fixture_of(37, 8u << 20, LSOM__SEGMENT_TINY);
	struct lsom_comp *comp, *other;
	unsigned turns = 0, i;
	uint64_t sequence;

	CHECK_EQ(create(f, 1, 64), 0);
	CHECK_EQ(create(f, 2, 512), 0);
	comp = comp_of(f, 1);
	other = comp_of(f, 2);
	for (i = 0; i < 10; i++)
		CHECK_EQ(put(f, other, i * 32, 32, LSN(1, i + 1), i + 1), 0);
	CHECK_EQ(f->disk->segments[0].state, LSOM__SEG_CLOSED);
	lsom__segment_shun(f->disk, &f->disk->segments[0], UINT64_MAX);
	aborts_put(f, comp, 1, LSOM_WINDOW);
	for (i = 0; i < 10; i++)
		CHECK_EQ(put(f, other, i * 32, 32, LSN(1, i + 11), i + 1), 0);
	sequence = f->disk->sequence_next;
	for (i = 0; i < 2; i++)
		CHECK_EQ(put(f, comp, i, 1, LSN(1, LSOM_WINDOW + i + 1), 1), 0);
	while (turns < 20000 && sim_env_turn(&f->sim))
		turns++;
	CHECK(turns < 20000);
	CHECK(f->disk->sequence_next < sequence + 4);
	CHECK_EQ(comp->aborts_count, LSOM_WINDOW);
	lsom_comp_put(comp);
	lsom_comp_put(other);
	fixture_close(f);
}

/*
 * Nothing else is written to the disk, and the segment that guests were writing has
 * all that the aborts bar.  One that is refused for them has its way later.
 */
TEST(decided, an_abort_is_refused_on_a_disk_that_rests)
{
	const unsigned n = LSOM__ABORTS_MAX / 2;
	struct fixture *f = fixture_open(40);
	struct lsom_decided d = { .stable_lsn = LSN(1, n) };
	struct lsom_comp *comp;
	unsigned tries;
	int rv = 0;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	aborts_put(f, comp, 1, n / 2);
	aborts_put(f, comp, 1 + n / 2, n - n / 2 - 1);
	lsom_decided(comp, &d);
	CHECK_EQ(decide(f, comp, LSN(1, n + 1), false), 0);
	CHECK_EQ(decide(f, comp, LSN(1, n + 2), false), -EBUSY);
	/* It learns where they lie; then that can be cleaned. */
	for (tries = 0; tries < 2; tries++) {
		while (sim_env_turn(&f->sim))
			;
		rv = decide(f, comp, LSN(1, n + 2), false);
	}
	CHECK_EQ(rv, 0);
	comp = again(f, comp, true);
	CHECK(lsom__aborted(comp, LSN(1, n + 2), 1));
	lsom_comp_put(comp);
	fixture_close(f);
}

/*
 * The log has aborts that were forgotten since, in states that list them.  They do
 * not count against a component when its index is made from the log alone.
 */
TEST(decided, more_aborts_in_the_log_than_there_may_be)
{
	const unsigned n = LSOM__ABORTS_MAX / 2 - 10;
	struct fixture *f = fixture_open(37);
	struct lsom_decided d = { 0 };
	struct lsom_comp *comp;
	unsigned i;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, 1, LSN(1, 1), 1), 0);
	for (i = 0; i < 3; i++) {
		aborts_put(f, comp, 10 + i * n, n - i);
		d.stable_lsn = LSN(1, 9 + (i + 1) * n);
		lsom_decided(comp, &d);
		CHECK_EQ(update(f, comp, LSOM_CONFIG,
				(struct lsom_comp_meta){ 0 }),
			 0);
		/* The cleaner does it when the log has nothing of them. */
		lsom__aborts_settle(comp, 1);
		lsom__aborts_prune(comp, 1);
		CHECK_EQ(comp->aborts_count, 0);
	}
	/* Two more: the one bars what is there, the other what may come. */
	d.stable_lsn++;
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, 1, d.stable_lsn, 2), 0);
	CHECK_EQ(decide(f, comp, d.stable_lsn, false), 0);
	lsom_decided(comp, &d);
	CHECK_EQ(decide(f, comp, d.stable_lsn + 5, false), 0);
	lsom_comp_put(comp);
	disk_close(f);
	for (i = 0; i < 2; i++) {
		CHECK_EQ(disk_open(f, i == 0), 0);
		comp = comp_of(f, 1);
		CHECK_EQ(comp->aborts_count, 2);
		CHECK(lsom__aborted(comp, d.stable_lsn + 5, 1));
		CHECK_EQ(get(f, comp, 0, 1), 1);
		lsom_comp_put(comp);
		disk_close(f);
	}
	CHECK_EQ(disk_open(f, false), 0);
	fixture_close(f);
}

struct version_copy {
	uint8_t key[KEY_MAX], value[512];
	size_t key_len, value_len;
};

static bool version_seen(void *arg, struct kv_slice key, struct kv_slice value)
{
	struct version_copy *copy = arg;

	CHECK(key.len <= sizeof(copy->key));
	CHECK(value.len <= sizeof(copy->value));
	memcpy(copy->key, key.data, copy->key_len = key.len);
	memcpy(copy->value, value.data, copy->value_len = value.len);
	return false;
}

/* An index that has a version where no segment is, or two are, is damaged. */
TEST(decided, an_index_places_a_version_nowhere)
{
	struct fixture *f = fixture_open(39);
	const uint64_t first = LSOM__DATA_START / LSOM_BLOCK;
	const uint64_t places[] = { 0, first - 1, first + 255, 1ull << 50,
				    UINT64_MAX };
	struct version_copy copy = { .key_len = 0 };
	struct stored_prep *s = (void *)copy.value;
	struct lsom_comp *comp;
	struct kv *wrong;
	unsigned i;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, 2, LSN(1, 1), 1), 0);
	lsom_comp_put(comp);
	checkpoint_make(f);
	CHECK_EQ(kv_scan(f->disk->kv, kv_slice("U", 1), kv_slice("V", 1),
			 version_seen, &copy),
		 0);
	CHECK(copy.key_len > 0);
	disk_close(f);
	for (i = 0; i < ARRAY_LEN(places); i++) {
		s->place = places[i];
		wrong = memkv_clone((struct memkv *)f->sim.store.flushed,
				    f->sim.store.merge);
		memkv_put((struct memkv *)wrong,
			  kv_slice(copy.key, copy.key_len),
			  kv_slice(copy.value, copy.value_len));
		wb_store_load(&f->sim.store, (struct memkv *)wrong);
		kv_close(wrong);
		CHECK_EQ(disk_open(f, false), -EUCLEAN);
	}
	CHECK_EQ(disk_open(f, true), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(comp->preps_count, 1);
	lsom_comp_put(comp);
	fixture_close(f);
}
