/* A disk that finds no memory goes on, and does later what it could not do. */
#include "tests/unit/lsom_rig.h"

#include "base/spare.h"
#include "lsom/cleaner_int.h"
#include "tests/lib/fail_alloc.h"

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
void *__real_realloc(void *mem, size_t size);
void *__wrap_realloc(void *mem, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);

static bool fail_aligned, fail_realloc;

void *__wrap_realloc(void *mem, size_t size)
{
	if (fail_realloc) {
		fail_realloc = false;
		return NULL;
	}
	return alloc_fails(0) ? NULL : __real_realloc(mem, size);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
	if (fail_aligned) {
		fail_aligned = false;
		return NULL;
	}
	return alloc_fails(0) ? NULL : __real_aligned_alloc(align, size);
}

int __real_kv_batch_reserve(struct kv_batch *batch, size_t changes,
			    size_t bytes);
int __wrap_kv_batch_reserve(struct kv_batch *batch, size_t changes,
			    size_t bytes);

static unsigned reserve_fails; /* that one from now on; 0: none */

int __wrap_kv_batch_reserve(struct kv_batch *batch, size_t changes,
			    size_t bytes)
{
	if (reserve_fails > 0 && --reserve_fails == 0)
		return -ENOMEM;
	return __real_kv_batch_reserve(batch, changes, bytes);
}

int __real_lsom__page_read(struct kv *kv, uint64_t key, uint64_t number,
			   void **out, size_t *out_len);
int __wrap_lsom__page_read(struct kv *kv, uint64_t key, uint64_t number,
			   void **out, size_t *out_len);

static int page_read_status; /* of the next one */
static bool page_reads_fail; /* and of each that comes */
static unsigned page_fill_fails; /* of what it is, that allocation */

int __wrap_lsom__page_read(struct kv *kv, uint64_t key, uint64_t number,
			   void **out, size_t *out_len)
{
	int status = page_read_status;

	if (!page_reads_fail)
		page_read_status = 0;
	if (status == 0)
		status = __real_lsom__page_read(kv, key, number, out, out_len);
	fail_at = page_fill_fails;
	page_fill_fails = 0;
	return status;
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* ---- a checkpoint ---- */

#define PAGES 8u

/* Pages, versions that are not decided, and a component that goes. */
static void contents_make(struct fixture *f)
{
	struct lsom_comp *comp, *gone;

	f->lsom->pages_max = 1024; /* none comes before it is asked for */
	while (sim_env_turn(&f->sim))
		;
	CHECK_EQ(create(f, 1, (uint64_t)PAGES * LSOM__PAGE_SLOTS), 0);
	CHECK_EQ(create(f, 2, 64), 0);
	comp = comp_of(f, 1);
	gone = comp_of(f, 2);
	for (uint64_t i = 0; i < PAGES; i++)
		CHECK_EQ(put(f, comp, i * LSOM__PAGE_SLOTS, 2, LSN(1, i + 1),
			     i + 1),
			 0);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 9, 1, LSN(1, PAGES + 1), 21), 0);
	CHECK_EQ(put(f, gone, 0, 64, LSN(1, 1), 1), 0);
	CHECK_EQ(update(f, gone, LSOM_DELETE, *lsom_comp_meta(gone)), 0);
	env_timer_stop(f->disk->env, &f->disk->checkpoint_timer);
	CHECK(f->disk->checkpoint == NULL && f->disk->dirty_count > PAGES);
	lsom_comp_put(gone);
	lsom_comp_put(comp);
}

static void contents_check(struct fixture *f)
{
	struct lsom_comp *comp = comp_of(f, 1);
	struct lsom_decided d = { .stable_lsn = LSN(1, PAGES + 1) };

	CHECK(comp != NULL && comp_of(f, 2) == NULL);
	lsom_decided(comp, &d);
	for (uint64_t i = 0; i < PAGES; i++)
		CHECK_EQ(get(f, comp, i * LSOM__PAGE_SLOTS + 1, i + 1), 1);
	CHECK_EQ(get(f, comp, 9, 21), 1);
	lsom_comp_put(comp);
}

/*
 * One more is asked for, and allocation @n of its turns fails, as @fail counts.
 * True: there were so many.  Who asked has the answer, later then.
 */
static bool checkpoint_fails(struct fixture *f, unsigned *fail, unsigned n)
{
	struct call c = { .f = f, .status = PENDING };
	struct lsom_checkpoint req = { .data = &c };
	struct lsom_disk_info info;
	bool failed;

	*fail = n;
	CHECK_EQ(lsom_checkpoint(f->disk, &req, checkpoint_made), 0);
	while (f->disk->checkpoint_task.queued)
		CHECK(sim_env_turn(&f->sim));
	failed = *fail == 0;
	*fail = 0;
	lsom_disk_info(f->disk, &info);
	CHECK_EQ(info.state, LSOM_DISK_ONLINE);
	CHECK_EQ(f->disk->checkpoint_starved, failed);
	CHECK_EQ(info.congestion[LSOM_CONGESTION_MEMORY] == 255, failed);
	CHECK(!failed || !c.done);
	CHECK(sim_env_run(&f->sim, &c.done));
	CHECK_EQ(c.status, 0);
	CHECK(!f->disk->checkpoint_starved);
	return failed;
}

TEST(memory, none_for_a_checkpoint)
{
	struct fixture *f;
	bool failed = true;
	unsigned n;

	for (n = 1; failed; n++) {
		f = fixture_open(n);
		contents_make(f);
		failed = checkpoint_fails(f, &fail_at, n);
		CHECK_EQ(power_cut(f), 0);
		CHECK_EQ(f->disk->recovered_records, 0);
		contents_check(f);
		fixture_close(f);
	}
	CHECK(n > PAGES);
}

/* For any of what it puts: none of that is missed, it is in no other place. */
TEST(memory, none_for_one_of_what_a_checkpoint_puts)
{
	struct fixture *f;
	bool failed = true;
	uint64_t live;
	unsigned n;

	for (n = 1; failed; n++) {
		f = fixture_open(n);
		contents_make(f);
		failed = checkpoint_fails(f, &reserve_fails, n);
		live = f->disk->live_blocks;
		CHECK_EQ(power_cut(f), 0);
		CHECK_EQ(f->disk->recovered_records, 0);
		CHECK_EQ(f->disk->live_blocks, live);
		CHECK(!TAILQ_EMPTY(&f->disk->tombs.settled) ||
		      !TAILQ_EMPTY(&f->disk->tombs.later));
		contents_check(f);
		fixture_close(f);
	}
	CHECK(n > 2 * PAGES);
}

/* What changes until it goes on is in it, too, or in the next one. */
TEST(memory, a_checkpoint_goes_on_with_what_changed_meanwhile)
{
	struct fixture *f;
	struct lsom_comp *comp;
	struct call c;
	struct lsom_checkpoint req = { .data = &c };

	for (unsigned n = 3; n < PAGES; n++) {
		f = fixture_open(n);
		contents_make(f);
		c = (struct call){ .f = f };
		fail_at = n;
		CHECK_EQ(lsom_checkpoint(f->disk, &req, checkpoint_made), 0);
		while (!f->disk->checkpoint_starved)
			CHECK(sim_env_turn(&f->sim));
		CHECK_EQ(fail_at, 0);
		comp = comp_of(f, 1);
		CHECK_EQ(put(f, comp, 0, 1, LSN(1, 30), 30), 0);
		CHECK_EQ(put(f, comp, 500, 1, LSN(1, 31), 31), 0);
		CHECK(!c.done && f->disk->checkpoint_starved);
		lsom_comp_put(comp);
		CHECK(sim_env_run(&f->sim, &c.done));
		CHECK_EQ(c.status, 0);
		CHECK_EQ(power_cut(f), 0);
		CHECK_EQ(f->disk->recovered_records, 0);
		contents_check(f);
		comp = comp_of(f, 1);
		CHECK_EQ(get(f, comp, 0, 30), 1);
		CHECK_EQ(get(f, comp, 500, 31), 1);
		lsom_comp_put(comp);
		fixture_close(f);
	}
}

/* ---- a summary ---- */

static unsigned closing(const struct fixture *f)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < f->disk->super.segments; i++)
		n += f->disk->segments[i].state == LSOM__SEG_CLOSING;
	return n;
}

/* Write until a segment is full, whose summary finds none. */
static void segment_fill(struct fixture *f)
{
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, 8192), 0);
	comp = comp_of(f, 1);
	fail_aligned = true;
	for (uint64_t i = 0; fail_aligned; i++)
		CHECK_EQ(put(f, comp, i * 16, 16, LSN(1, i + 1), i + 1), 0);
	lsom_comp_put(comp);
	CHECK_EQ(closing(f), 1);
}

TEST(memory, none_for_a_summary)
{
	struct fixture *f = fixture_open(1);

	segment_fill(f);
	while (sim_env_turn(&f->sim))
		;
	CHECK_EQ(closing(f), 0);
	fixture_close(f);
}

/* It is the second copy of the last batch: the disk does not close without it. */
TEST(memory, closed_without_a_summary)
{
	struct fixture *f = fixture_open(1);
	struct lsom_disk_close req = { .data = f };

	segment_fill(f);
	f->done = false;
	CHECK_EQ(lsom_disk_close(f->disk, &req, closed), 0);
	while (!f->disk->closed)
		CHECK(sim_env_turn(&f->sim));
	CHECK_EQ(closing(f), 0);
	CHECK(sim_env_run(&f->sim, &f->done));
	CHECK_EQ(disk_open(f, false), 0);
	fixture_close(f);
}

/* The cleaner would read one, of a disk that has failed: that closes all the same. */
TEST(memory, none_for_a_summary_of_a_failed_disk)
{
	struct fixture *f = fixture_of(1, (1u << 20) + 26 * LSOM__SEGMENT_TINY,
				       LSOM__SEGMENT_TINY);
	const struct lsom__cleaner *c = f->disk->cleaner;
	struct lsom_comp *comp;
	uint64_t lsn = 0;

	CHECK_EQ(create(f, 1, 1024), 0);
	comp = comp_of(f, 1);
	while (c->phase != CLEAN_READ_SUMMARY || c->busy) {
		if (sim_env_random(&f->sim, 8) > 0 && sim_env_turn(&f->sim))
			continue;
		lsn++;
		CHECK_EQ(put(f, comp, lsn * 37 % 800, 12, LSN(1, lsn), lsn), 0);
	}
	lsom__disk_fail(f->disk, "a test", -EIO);
	fail_aligned = true;
	while (c->step.queued)
		CHECK(sim_env_turn(&f->sim));
	fail_aligned = false;
	lsom_comp_put(comp);
	fixture_close(f);
}

/* ---- a batch ---- */

TEST(memory, none_for_a_batch)
{
	struct fixture *f = fixture_open(1);
	struct lsom__segment *seg;
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	while (sim_env_turn(&f->sim))
		;
	/* The frames of its segment have to grow, and nothing else goes on. */
	seg = &f->disk->segments[f->disk->heads[LSOM__HEAD_GUEST].segment];
	seg->frames_room = seg->frames_bytes;
	fail_realloc = true;
	CHECK_EQ(put(f, comp, 0, 16, LSN(1, 1), 1), 0);
	CHECK(!fail_realloc);
	CHECK_EQ(get(f, comp, 3, 1), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* ---- metadata ---- */

/*
 * What an ATTACH voids cannot be aborted: nothing of it is done, and it can be sent
 * again.
 */
TEST(memory, none_for_what_an_attach_voids)
{
	struct fixture *f = fixture_open(1);
	struct call c = { .f = f };
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 0, 1, LSN(1, 1), 1), 0);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 1, 1, LSN(1, 2), 2), 0);
	c.m.op = LSOM_ATTACH;
	c.m.meta = (struct lsom_comp_meta){ .member_csn = 2,
					    .state_seen = LSOM_SYNC };
	CHECK_EQ(lsom_comp_update(comp, &c.m, meta_done), 0);
	while (TAILQ_EMPTY(&f->disk->heads[LSOM__HEAD_GUEST].inflight))
		CHECK(sim_env_turn(&f->sim));
	fail_realloc = true;
	CHECK_EQ(finish(&c, 0), -ENOMEM);
	CHECK(!fail_realloc);
	CHECK_EQ(f->disk->state, LSOM_DISK_ONLINE);
	CHECK_EQ(lsom_comp_meta(comp)->member_csn, 1);
	CHECK_EQ(lsom_comp_meta(comp)->state_seen, LSOM_ACTIVE);
	CHECK_EQ(update(f, comp, LSOM_ATTACH, c.m.meta), 0);
	lsom_comp_put(comp);
	CHECK_EQ(power_cut(f), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(lsom_comp_meta(comp)->member_csn, 2);
	CHECK_EQ(comp->preps_count, 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* One that finds none is answered, and can be sent again. */
TEST(memory, none_for_metadata)
{
	struct fixture *f = fixture_open(1);
	struct call c[2] = { { .f = f }, { .f = f } };
	struct lsom_comp *comp;

	CHECK_EQ(create(f, 1, 64), 0);
	comp = comp_of(f, 1);
	c[0].m.op = LSOM_SEAL;
	c[0].m.meta = *lsom_comp_meta(comp);
	c[0].m.meta.promised_oepoch = 2;
	c[1].m.op = LSOM_CREATE;
	c[1].m.meta = c[0].m.meta;
	c[1].m.meta.cid = uuid_of(2);
	spare_drop();
	fail_malloc = true;
	CHECK_EQ(lsom_comp_update(comp, &c[0].m, meta_done), 0);
	CHECK_EQ(lsom_comp_create(f->disk, &c[1].m, meta_done), 0);
	fail_malloc = false;
	CHECK_EQ(finish(&c[0], 0), -ENOMEM);
	CHECK_EQ(finish(&c[1], 0), -ENOMEM);
	CHECK_EQ(f->disk->state, LSOM_DISK_ONLINE);
	CHECK_EQ(f->disk->comps_count, 1);
	CHECK_EQ(update(f, comp, LSOM_SEAL, c[0].m.meta), 0);
	CHECK_EQ(lsom_comp_meta(comp)->promised_oepoch, 2);
	c[1].m.meta.cinc++;
	c[1].done = false;
	CHECK_EQ(finish(&c[1], lsom_comp_create(f->disk, &c[1].m, meta_done)),
		 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* ---- an opening ---- */

/* What has to be read into memory, and what is replayed into it. */
static void history_make(struct fixture *f)
{
	struct lsom_comp *comp;
	/* One that the stable lsn does not say: a list of its own. */
	struct lsom_decided d = { .stable_lsn = LSN(1, 1),
				  .committed = { 1u << 5 } };

	CHECK_EQ(create(f, 1, 1024), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(put(f, comp, 0, 16, LSN(1, 1), 1), 0);
	lsom_decided(comp, &d);
	CHECK_EQ(put_kind(f, comp, LSOM_PREP, 1, 1, LSN(1, 2), 2), 0);
	checkpoint_make(f);
	CHECK_EQ(put_kind(f, comp, LSOM_RCOPY, 4, 1, LSN(1, 3), 3), 0);
	lsom_comp_put(comp);
	sim_env_cut(&f->sim);
	disk_close(f);
	sim_env_restore(&f->sim);
}

/* A disk that is opened without enough is not damaged: another time it opens. */
TEST(memory, none_for_an_opening)
{
	const size_t sizes[] = { sizeof(struct lsom_comp),
				 sizeof(struct lsom__page), 0 };
	const struct lsom_decided d = { .stable_lsn = LSN(1, 3) };
	struct fixture *f;
	struct lsom_comp *comp;
	unsigned i;

	for (i = 0; i < ARRAY_LEN(sizes); i++) {
		f = fixture_open(i);
		history_make(f);
		fail_size = sizes[i];
		fail_at = sizes[i] != 0;
		fail_realloc = sizes[i] == 0;
		CHECK_EQ(disk_open(f, false), -ENOMEM);
		CHECK_EQ(fail_at, 0);
		CHECK(!fail_realloc);
		CHECK_EQ(disk_open(f, false), 0);
		comp = comp_of(f, 1);
		lsom_decided(comp, &d);
		CHECK_EQ(get(f, comp, 0, 1), 1);
		CHECK_EQ(get(f, comp, 1, 2), 1);
		CHECK_EQ(get(f, comp, 4, 3), 1);
		lsom_comp_put(comp);
		fixture_close(f);
	}
}

/* Nor one whose index is thrown away: it has it still. */
TEST(memory, none_for_a_rebuild)
{
	const struct lsom_decided d = { .stable_lsn = LSN(1, 3) };
	struct fixture *f = fixture_open(3);
	struct lsom_comp *comp;

	history_make(f);
	reserve_fails = 1;
	CHECK_EQ(disk_open(f, true), -ENOMEM);
	CHECK_EQ(reserve_fails, 0);
	for (int rebuild = 0; rebuild <= 1; rebuild++) {
		CHECK_EQ(disk_open(f, rebuild), 0);
		comp = comp_of(f, 1);
		lsom_decided(comp, &d);
		CHECK_EQ(get(f, comp, 0, 1), 1);
		CHECK_EQ(get(f, comp, 4, 3), 1);
		lsom_comp_put(comp);
		disk_close(f);
	}
	CHECK_EQ(disk_open(f, false), 0);
	fixture_close(f);
}

/* Nor is its index, where what it wants is not of the store; else it is. */
TEST(memory, none_for_a_page_of_an_opening)
{
	static const int statuses[] = { -ENOMEM, -EMFILE,  -EACCES, -EROFS,
					-EIO,	 -EUCLEAN, -ENOENT };
	const struct lsom_decided d = { .stable_lsn = LSN(1, 3) };
	struct fixture *f = fixture_open(7);
	struct lsom_comp *comp;

	history_make(f);
	for (unsigned i = 0; i < ARRAY_LEN(statuses); i++) {
		page_read_status = statuses[i];
		CHECK_EQ(disk_open(f, false), i < 4 ? statuses[i] : -EUCLEAN);
		CHECK_EQ(page_read_status, 0);
	}
	CHECK_EQ(disk_open(f, false), 0);
	comp = comp_of(f, 1);
	lsom_decided(comp, &d);
	CHECK_EQ(get(f, comp, 4, 3), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* ---- a page that comes later ---- */

/* Page 0 is in the store and not in memory. */
static struct lsom_comp *page_away(struct fixture *f)
{
	struct lsom_comp *comp;

	contents_make(f);
	CHECK_EQ(power_cut(f), 0);
	checkpoint_make(f);
	CHECK_EQ(power_cut(f), 0);
	comp = comp_of(f, 1);
	CHECK(lsom__page_find(comp, 0) == NULL);
	return comp;
}

static void still_online(const struct fixture *f)
{
	struct lsom_disk_info info;

	lsom_disk_info(f->disk, &info);
	CHECK_EQ(info.state, LSOM_DISK_ONLINE);
}

/* Who reads is told, and asks again; the disk is well. */
TEST(memory, none_for_a_page)
{
	static const int statuses[] = { -ENOMEM, -EMFILE };
	struct fixture *f = fixture_open(8);
	struct lsom_comp *comp = page_away(f);

	for (unsigned i = 0; i < ARRAY_LEN(statuses); i++) {
		page_read_status = statuses[i];
		CHECK_EQ(get(f, comp, 1, 1), -ENOMEM);
		CHECK_EQ(page_read_status, 0);
		still_online(f);
	}
	CHECK_EQ(get(f, comp, 1, 1), 1);
	/* Nor does closing wait for it. */
	page_read_status = -ENOMEM;
	CHECK_EQ(get(f, comp, LSOM__PAGE_SLOTS, 2), -ENOMEM);
	lsom_comp_put(comp);
	CHECK_EQ(power_cut(f), 0);
	comp = comp_of(f, 1);
	CHECK_EQ(get(f, comp, LSOM__PAGE_SLOTS, 2), 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* There is none for it as long as the disk is being closed. */
TEST(memory, closed_without_a_page)
{
	static const int statuses[] = { -ENOMEM, -EMFILE };
	struct fixture *f = fixture_open(9);
	struct lsom_comp *comp = page_away(f);
	struct lsom_disk_close req = { .data = f };
	uint64_t end;

	for (unsigned i = 0; i < ARRAY_LEN(statuses); i++) {
		page_read_status = statuses[i];
		page_reads_fail = true;
		CHECK_EQ(put(f, comp, 0, 1, LSN(2, i + 1), 31 + i), 0);
		CHECK(lsom__page_find(comp, 0)->loading);
		lsom_comp_put(comp);
		f->done = false;
		CHECK_EQ(lsom_disk_close(f->disk, &req, closed), 0);
		end = env_now(&f->sim.loop.env) + 3600 * SEC;
		while (!f->done && env_now(&f->sim.loop.env) < end)
			CHECK(sim_env_turn(&f->sim));
		CHECK(f->done);
		page_reads_fail = false;
		page_read_status = 0;
		CHECK_EQ(disk_open(f, false), 0);
		comp = comp_of(f, 1);
		CHECK_EQ(get(f, comp, 0, 31 + i), 1);
		CHECK_EQ(get(f, comp, 1, 1), 1);
		lsom_comp_put(comp);
		CHECK_EQ(power_cut(f), 0);
		comp = comp_of(f, 1);
		CHECK(lsom__page_find(comp, 0) == NULL);
	}
	lsom_comp_put(comp);
	fixture_close(f);
}

/*
 * What was written to it meanwhile waits for nobody, and is counted once: allocation
 * @n of its arrival fails.  True: there were so many.
 */
static bool fill_fails(unsigned n)
{
	struct fixture *f = fixture_open(n);
	struct lsom_comp *comp = page_away(f);
	uint64_t live = f->disk->live_blocks, used;
	struct lsom__page *page;
	bool failed;

	CHECK(lsom_comp_used(comp, &used));
	CHECK_EQ(put(f, comp, 0, 1, LSN(2, 1), 31), 0);
	page = lsom__page_find(comp, 0);
	CHECK(page->loading && page->unknown > 0);
	page_fill_fails = n;
	while (page->loading && (page_fill_fails > 0 || fail_at > 0))
		CHECK(sim_env_turn(&f->sim));
	failed = fail_at == 0;
	fail_at = 0;
	CHECK_EQ(page->loading, failed);
	still_online(f);
	CHECK_EQ(get(f, comp, 0, 31), 1);
	CHECK_EQ(get(f, comp, 1, 1), 1);
	CHECK(!page->loading);
	CHECK_EQ(f->disk->live_blocks, live);
	/* And what had been prepared. */
	CHECK_EQ(comp->mapped, (int64_t)(used / LSOM_BLOCK) + 1);
	CHECK_EQ(comp->unknown, 0);
	lsom_comp_put(comp);
	fixture_close(f);
	return failed;
}

/*
 * A checkpoint comes before it is read again: then what the change replaced is not
 * known any more, and nothing counts for less than it is.
 */
TEST(memory, none_for_a_page_before_a_checkpoint)
{
	struct fixture *f = fixture_open(9);
	struct lsom_comp *comp = page_away(f);
	struct lsom__page *page;
	uint64_t used, now;

	CHECK(lsom_comp_used(comp, &used));
	page_read_status = -ENOMEM;
	CHECK_EQ(put_kind(f, comp, LSOM_RCOPY, 0, 1, LSN(2, 1), 31), 0);
	page = lsom__page_find(comp, 0);
	while (page_read_status != 0)
		CHECK(sim_env_turn(&f->sim));
	checkpoint_make(f);
	CHECK(page->loading && !page->is_dirty);
	/* The one in the store is not counted any more, and not twice. */
	CHECK_EQ(put_kind(f, comp, LSOM_RCOPY, 0, 1, LSN(2, 2), 32), 0);
	CHECK(page->loading);
	CHECK_EQ(get(f, comp, 0, 32), 1);
	CHECK_EQ(get(f, comp, 1, 1), 1);
	CHECK_EQ(f->disk->segments[f->disk->heads[0].segment].live, 1);
	CHECK(comp->mapped <= (int64_t)(used / LSOM_BLOCK));
	while (!lsom_comp_used(comp, &now))
		CHECK(sim_env_turn(&f->sim));
	CHECK_EQ(now, used);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* @reads: there is none to read its pages; else not even to have them. */
static void deleted_meanwhile(bool reads)
{
	struct fixture *f = fixture_open(11);
	struct lsom_comp *comp = page_away(f);
	uint64_t end = env_now(f->disk->env) + 120 * SEC;

	page_reads_fail = reads;
	page_read_status = reads ? -ENOMEM : 0;
	fail_size = reads ? 0 : sizeof(struct lsom__page);
	fail_at = !reads;
	CHECK_EQ(update(f, comp, LSOM_DELETE, *lsom_comp_meta(comp)), 0);
	lsom_comp_put(comp);
	while (env_now(f->disk->env) < end && sim_env_turn(&f->sim))
		fail_at = !reads;
	CHECK(!TAILQ_EMPTY(&f->disk->comps));
	page_reads_fail = false;
	page_read_status = 0;
	fail_at = 0;
	fail_size = 0;
	while (sim_env_turn(&f->sim))
		;
	CHECK(TAILQ_EMPTY(&f->disk->comps));
	CHECK_EQ(f->disk->live_blocks, 0);
	fixture_close(f);
}

/* What is deleted gives its space back once there is some, though nobody writes. */
TEST(memory, none_for_the_pages_of_what_is_deleted)
{
	deleted_meanwhile(true);
	deleted_meanwhile(false);
}

/* So is what is reserved kept then: it is not before all is counted. */
TEST(memory, none_for_the_pages_of_what_is_counted)
{
	struct fixture *f = fixture_open(12);
	struct lsom_comp *comp = page_away(f);
	uint64_t end = env_now(f->disk->env) + 120 * SEC;

	page_reads_fail = true;
	page_read_status = -ENOMEM;
	comp->counted = LSOM__COUNT_NONE;
	lsom_comp_reserve(comp, comp->meta.size_bytes);
	while (env_now(f->disk->env) < end && sim_env_turn(&f->sim))
		;
	CHECK_EQ(lsom_comp_kept(comp), 0);
	page_reads_fail = false;
	page_read_status = 0;
	while (sim_env_turn(&f->sim))
		;
	CHECK(lsom_comp_kept(comp) > 0);
	lsom_comp_put(comp);
	fixture_close(f);
}

/* What it is read with then is what was put: one block, and counted as that. */
TEST(memory, none_for_a_page_that_was_put)
{
	struct fixture *f = fixture_open(10);
	struct lsom_comp *comp = page_away(f);
	struct lsom__page *page;

	page_read_status = -ENOMEM;
	CHECK_EQ(put_kind(f, comp, LSOM_RCOPY, 0, 1, LSN(2, 1), 31), 0);
	page = lsom__page_find(comp, 0);
	while (page_read_status != 0)
		CHECK(sim_env_turn(&f->sim));
	checkpoint_make(f);
	CHECK(page->loading && !page->is_dirty);
	CHECK_EQ(get(f, comp, 0, 31), 1);
	CHECK(page->loaded);
	CHECK_EQ(f->disk->segments[f->disk->heads[0].segment].live, 1);
	lsom_comp_put(comp);
	fixture_close(f);
}

TEST(memory, none_for_a_page_that_changed)
{
	unsigned n = 1;

	while (fill_fails(n))
		n++;
	CHECK_EQ(n, 3); /* the versions that are there, and with them ours */
}

/* ---- for what is durable ---- */

enum durable { COPY, DECIDED, COMMIT, ABORT, DELETE, DURABLES };

static void decided_done(struct lsom_decide *req, int status)
{
	struct call *c = container_of(req, struct call, d);

	c->status = status;
	c->done = true;
}

/* Send it; all that is left to be done is to apply it. */
static void durable_send(struct call *c, struct lsom_comp *comp,
			 struct lsom_comp *other, enum durable what)
{
	const uint64_t first = 9ull * LSOM__PAGE_SLOTS - 2; /* of two pages */
	enum lsom_write_kind kind = what == COPY ? LSOM_RCOPY : LSOM_PREP;

	CHECK_EQ(write_start(c, comp, kind, first, 4, LSN(2, 1), 41), 0);
	if (what != COPY)
		CHECK_EQ(finish(c, 0), 0);
	c->done = c->done && what == DECIDED;
	if (what == DELETE) {
		c->m.op = LSOM_DELETE;
		CHECK_EQ(lsom_comp_update(other, &c->m, meta_done), 0);
	} else if (what == COMMIT || what == ABORT) {
		c->d.commit = what == COMMIT;
		c->d.lsn = LSN(2, 1);
		CHECK_EQ(lsom_decide(comp, &c->d, decided_done), 0);
	}
	while (c->f->disk->heads[LSOM__HEAD_GUEST].kick.queued)
		CHECK(sim_env_turn(&c->f->sim));
}

/* Allocation @n of it fails.  True: there were so many. */
static bool durable_fails(enum durable what, unsigned n)
{
	struct lsom_decided d = { .stable_lsn = LSN(2, 1) };
	struct fixture *f = fixture_open(n);
	struct lsom_comp *comp, *other;
	struct call c = { .f = f };
	bool failed;

	contents_make(f);
	CHECK_EQ(create(f, 3, 64), 0);
	checkpoint_make(f);
	CHECK_EQ(create(f, 4, 4096), 0);
	comp = comp_of(f, 4);
	other = comp_of(f, 3);
	durable_send(&c, comp, other, what);
	fail_at = n;
	if (what == DECIDED)
		lsom_decided(comp, &d);
	while (!c.done)
		CHECK(sim_env_turn(&f->sim));
	failed = fail_at == 0;
	fail_at = 0;
	CHECK_EQ(c.status, 0);
	still_online(f);
	CHECK_EQ(get(f, comp, 9ull * LSOM__PAGE_SLOTS, 41),
		 what == COPY || what == DECIDED || what == COMMIT);
	lsom_comp_put(other);
	lsom_comp_put(comp);
	CHECK_EQ(power_cut(f), 0);
	contents_check(f);
	other = comp_of(f, 3);
	CHECK_EQ(other == NULL, what == DELETE);
	if (other != NULL)
		lsom_comp_put(other);
	fixture_close(f);
	return failed;
}

/* It was acknowledged, or will be: a page that the store has goes for it. */
TEST(memory, none_for_what_is_durable)
{
	static const unsigned least[DURABLES] = { 4, 4, 4, 1, 1 };
	enum durable what;
	unsigned n;

	for (what = COPY; what < DURABLES; what++) {
		for (n = 1; durable_fails(what, n); n++)
			;
		CHECK(n > least[what]);
	}
}

/* ---- a merge ---- */

TEST(memory, none_for_a_merge)
{
	const struct lsom__entry e = { .lsn = LSN(1, 1), .kind = LSOM__E_RAW };
	const uint32_t bits[LSOM__PAGE_SLOTS / 32] = { 1 };
	struct kv_slice key = kv_slice("P", 1), none = { 0 }, operand;
	struct lsom__slots slots;
	unsigned n = 0;
	size_t len;
	void *all;

	lsom__slots_init(&slots);
	CHECK_EQ(lsom__slots_set(&slots, 0, 1, &e, NULL), 0);
	operand.data = lsom__slots_encode(&slots, bits, &operand.len);
	do {
		fail_at = ++n;
		all = lsom__merge(key, none, &operand, 1, &len);
		CHECK(all != NULL || errno == ENOMEM);
	} while (fail_at == 0);
	fail_at = 0;
	CHECK_EQ(n, 3);
	free(all);
	operand.len--;
	CHECK(lsom__merge(key, none, &operand, 1, &len) == NULL);
	CHECK_EQ(errno, EUCLEAN);
	free((void *)(uintptr_t)operand.data);
	lsom__slots_fini(&slots);
}

/* ---- a scrub ---- */

static void scrubbed(struct lsom_scrub *req, int status)
{
	struct call *c = req->data;

	c->status = status;
	c->done = true;
}

/* It finds what there is to find, whatever found no memory on its way. */
static void scrub_finds(struct fixture *f, struct lsom_scrub *req)
{
	struct call *c = req->data;

	CHECK(sim_env_run(&f->sim, &c->done));
	CHECK_EQ(c->status, 0);
	CHECK_EQ(req->bad_count, 1);
	CHECK_EQ(req->segments_unread, 0);
}

TEST(memory, of_a_scrub)
{
	struct lsom_scrub *req = calloc(1, sizeof(*req));
	struct fixture *f = fixture_open(9);
	struct call c = { .f = f };
	struct lsom_comp *comp;
	struct lsom__entry e;
	unsigned n = 0;
	int rv;

	contents_make(f);
	comp = comp_of(f, 1);
	lsom__slots_get(&lsom__page_find(comp, 0)->slots, 1, &e);
	f->sim.disk.now[e.place * LSOM_BLOCK] ^= 1;
	req->data = &c;
	do {
		c.done = false;
		fail_at = ++n;
		rv = lsom_scrub(f->disk, req, scrubbed);
		CHECK(rv == 0 || (rv == -ENOMEM && fail_at == 0));
		if (rv == 0)
			scrub_finds(f, req);
	} while (fail_at == 0);
	fail_at = 0;
	CHECK(n > 5);
	lsom_comp_put(comp);
	free(req);
	fixture_close(f);
}

/* Nor where it has to look for the batches of a segment. */
TEST(memory, of_a_scrub_without_a_summary)
{
	struct lsom_scrub *req = calloc(1, sizeof(*req));
	struct fixture *f = fixture_open(9);
	struct call c = { .f = f };
	struct lsom_comp *comp;
	struct lsom__entry e;
	uint64_t last;
	unsigned n = 0;
	int rv;

	contents_make(f);
	comp = comp_of(f, 1);
	lsom__slots_get(&lsom__page_find(comp, 0)->slots, 1, &e);
	lsom_comp_put(comp);
	disk_close(f); /* so it has one */
	CHECK_EQ(disk_open(f, false), 0);
	last = lsom__place(f->disk, lsom__segment_of(f->disk, e.place) + 1, 0) -
	       1;
	f->sim.disk.now[e.place * LSOM_BLOCK] ^= 1;
	f->sim.disk.now[(last + 1) * LSOM_BLOCK - 1] ^= 1;
	req->data = &c;
	do {
		c.done = false;
		fail_at = ++n;
		rv = lsom_scrub(f->disk, req, scrubbed);
		CHECK(rv == 0 || (rv == -ENOMEM && fail_at == 0));
		if (rv == 0)
			scrub_finds(f, req);
	} while (fail_at == 0);
	fail_at = 0;
	CHECK(n > 8);
	free(req);
	fixture_close(f);
}
