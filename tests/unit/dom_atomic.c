/*
 * An atomic command whose halves lie on two disks, and a life that ends on the way:
 * all of it is there, or nothing, and all of it where it was acknowledged.
 */
#include "tests/unit/dom_rig.h"

#include "lsom/lsom_int.h"

/* The half of @w that its disk takes is durable; the other one waits on. */
static void half_durable(struct fixture *f, const struct req *w)
{
	const struct dom__op *op = w->io.impl[0];

	UNTIL(f, op->parts_left == 1);
	nap(f, 20 * MSEC);
	CHECK(!w->done);
}

static void atomic_on_one_disk(struct fixture *f)
{
	struct req w = { 0 };

	object_make(f, 2);
	/* Decisions of the first write are on the disks before. */
	CHECK_EQ(do_write(f, 8 * MB, buf_a, 2 * MB, 0, 0), 0);
	nap(f, 20 * MSEC);
	CHECK_EQ(do_write(f, 8 * MB, buf_a, 2 * MB, 0, 0), 0);
	faults.hold[1] = true;
	write_start(f, &w, EDGE, buf_b, SPAN, DOM_ATOMIC);
	half_durable(f, &w);
}

/* Half of an atomic write is on the disks: it never was (R44, R16). */
TEST(dom_atomic, kill_in_atomic)
{
	const uint64_t off[] = { 0, 1ull << 44, 1ull << 16 };

	for (unsigned i = 0; i < ARRAY_LEN(off); i++) {
		struct fixture *f = fixture_new();
		bool old;

		f->rules_off = off[i];
		f->oid = uuid_of(9);
		life(f, true, atomic_on_one_disk);
		start(f, false);
		CHECK_EQ(object_open(f), 0);
		CHECK_EQ(do_read(f, EDGE, got, SPAN), 0);
		old = all_is(got, SPAN, 0xa5);
		CHECK_EQ(old, off[i] == 0);
		if (!old)
			CHECK(!all_is(got, SPAN, 0x5a));
		fixture_close(f);
	}
}

/* The log of the second disk takes no more requests, or does again. */
static void second_log_full(struct fixture *f, bool on)
{
	struct lsom__head *head = &f->disks[1]->heads[LSOM__HEAD_GUEST];

	if (on)
		head->queued += LSOM__OPS_MAX;
	else
		head->queued -= LSOM__OPS_MAX;
}

static void atomic_and_later(struct fixture *f)
{
	struct uuid second = uuid_of(101);
	struct req w = { 0 }, later = { 0 };
	struct dom__owner *owner;
	uint64_t at = 8 * MB;

	object_make(f, 2);
	owner = owner_of(f);
	if (!uuid_equal(&owner->peers[dom__tree_map(owner->tree, at, B).leaf]
				 .leaf->disk,
			&second))
		at += MB;
	second_log_full(f, true);
	write_start(f, &w, EDGE, buf_b, SPAN, DOM_ATOMIC);
	half_durable(f, &w);
	second_log_full(f, false);
	write_start(f, &later, at, buf_b, B, 0);
	second_log_full(f, true);
	CHECK_EQ(req_wait(f, &later), 0);
	CHECK(!w.done);
}

/* What the other disk has of later commands is not its half of this one. */
TEST(dom_atomic, kill_in_atomic_and_a_later_write)
{
	struct fixture *f = fixture_new();

	f->oid = uuid_of(9);
	life(f, true, atomic_and_later);
	start(f, false);
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(do_read(f, EDGE, got, SPAN), 0);
	CHECK(all_is(got, SPAN, 0xa5));
	CHECK_EQ(do_read(f, 8 * MB, got, 2 * MB), 0);
	CHECK_EQ(got[0] + got[MB], 0x5a);
	fixture_close(f);
}

#define CROWD 4200u /* more than a disk reads at a time */

static struct crowded {
	struct lsom_scan scan;
	struct lsom_version version;
	struct lsom_comp *comp;
} crowd[DISKS][CROWD];
static unsigned crowd_count;
static bool crowd_stays;

static void crowd_ask(struct crowded *c);

static void on_crowd_scanned(struct lsom_scan *scan, int status)
{
	crowd_count--;
	CHECK_EQ(status, 0);
	if (crowd_stays)
		crowd_ask(container_of(scan, struct crowded, scan));
}

static void crowd_ask(struct crowded *c)
{
	c->scan = (struct lsom_scan){ .len = B,
				      .items = &c->version,
				      .items_max = 1 };
	if (lsom_scan(c->comp, &c->scan, on_crowd_scanned) == 0)
		crowd_count++;
}

static void comp_take(struct lsom_comp *comp, void *arg)
{
	struct crowded *list = arg;

	for (unsigned i = 0; i < CROWD; i++)
		list[i].comp = comp;
}

/* Whether the other half is there cannot be asked yet: busy is no failure. */
TEST(dom_atomic, kill_in_atomic_on_busy_disks)
{
	struct fixture *f = fixture_new();
	struct dom_object_open open = { .data = f };

	f->oid = uuid_of(9);
	life(f, true, atomic_on_one_disk);
	start(f, false);
	crowd_stays = true;
	for (unsigned i = 0; i < DISKS; i++) {
		lsom_comp_each(f->disks[i], comp_take, crowd[i]);
		for (unsigned k = 0; k < CROWD; k++)
			crowd_ask(&crowd[i][k]);
	}
	CHECK_EQ(dom_object_open(f->dom, &open, &f->oid, on_opened), 0);
	nap(f, 300 * MSEC);
	CHECK(!f->done);
	crowd_stays = false;
	CHECK_EQ(wait_for(f), 0);
	while (crowd_count > 0)
		nap(f, MSEC);
	CHECK_EQ(do_read(f, EDGE, got, SPAN), 0);
	CHECK(all_is(got, SPAN, 0xa5));
	fixture_close(f);
}

/* Decisions have no memory meanwhile: that is heard later. */
static bool refuse;
static struct lsom_decide *refused;
static lsom_decide_cb refused_cb;

static void refused_task(struct env_task *task)
{
	refused_cb(refused, -ENOMEM);
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
int __real_lsom_decide(struct lsom_comp *comp, struct lsom_decide *req,
		       lsom_decide_cb cb);
int __wrap_lsom_decide(struct lsom_comp *comp, struct lsom_decide *req,
		       lsom_decide_cb cb);

int __wrap_lsom_decide(struct lsom_comp *comp, struct lsom_decide *req,
		       lsom_decide_cb cb)
{
	static struct env_task task = { .cb = refused_task };

	if (!refuse)
		return __real_lsom_decide(comp, req, cb);
	refused = req;
	refused_cb = cb;
	env_defer(faults.env, &task);
	return 0;
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* Nothing is served on a decision that was not made (R15). */
TEST(dom_atomic, kill_in_atomic_and_no_decision)
{
	struct fixture *f = fixture_new();

	f->oid = uuid_of(9);
	life(f, true, atomic_on_one_disk);
	start(f, false);
	refuse = true;
	CHECK_EQ(object_open(f), -ENXIO);
	refuse = false;
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(do_read(f, EDGE, got, SPAN), 0);
	CHECK(all_is(got, SPAN, 0xa5));
	fixture_close(f);
}

static void acked_and_gone(struct fixture *f)
{
	object_make(f, 2);
	CHECK_EQ(do_write(f, EDGE, buf_b, SPAN, 0, DOM_ATOMIC), 0);
	CHECK_EQ(do_write(f, 4 * MB, buf_b, 512, 0, 0), 0);
}

/* The COMMIT was still on its way. */
TEST(dom_atomic, kill_after_ack)
{
	struct fixture *f = fixture_new();

	f->oid = uuid_of(9);
	life(f, true, acked_and_gone);
	start(f, false);
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(do_read(f, EDGE, got, SPAN), 0);
	CHECK(all_is(got, SPAN, 0x5a));
	CHECK_EQ(do_read(f, 4 * MB, got, 512), 0);
	CHECK(all_is(got, 512, 0x5a));
	fixture_close(f);
}

/* The first half is unmapped since, and its disk knows that this is decided. */
static void atomic_and_unmapped(struct fixture *f)
{
	struct dom_io io = { .data = f };

	object_make(f, 2);
	CHECK_EQ(do_write(f, EDGE, buf_b, SPAN, 0, DOM_ATOMIC), 0);
	CHECK_EQ(dom_unmap(f->object, &io, EDGE, SPAN / 2, on_io), 0);
	CHECK_EQ(wait_for(f), 0);
	for (unsigned i = 0; i < 3; i++)
		CHECK_EQ(do_write(f, 0, buf_a, B, 0, 0), 0);
}

/* As the cleaner does where nothing older is left: no leaf needs the entries. */
static void holes_let_go(struct lsom_comp *comp, void *arg)
{
	struct lsom__page *page = lsom__page_find(comp, 0);
	unsigned *count = arg;
	struct lsom__entry e;
	uint64_t place;

	for (unsigned i = EDGE / B; page != NULL && i < MB / B; i++) {
		lsom__slots_get(&page->slots, i, &e);
		if (e.kind != LSOM__E_HOLE)
			continue;
		CHECK(e.lsn <= comp->decided.hole_floor);
		place = e.place;
		e.place = e.kind = 0;
		CHECK_EQ(lsom__index_apply(comp, i, 1, &e, NULL,
					   LSOM__APPLY_DROP, place),
			 0);
		++*count;
	}
}

static void first_half_let_go(struct fixture *f)
{
	unsigned count = 0;

	for (unsigned i = 0; i < DISKS; i++)
		lsom_comp_each(f->disks[i], holes_let_go, &count);
	CHECK_EQ(count, SPAN / 2 / B);
}

static void second_half_check(struct fixture *f)
{
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(do_read(f, EDGE, got, SPAN), 0);
	CHECK(all_is(got, SPAN / 2, 0));
	CHECK(all_is(got + SPAN / 2, SPAN / 2, 0x5a));
}

/*
 * An atomic write was acknowledged, its COMMIT still on its way to one disk, and
 * the other has nothing left that shows it.
 */
TEST(dom_atomic, kill_in_commit_and_half_of_it_unmapped)
{
	struct fixture *f = fixture_new();

	f->oid = uuid_of(9);
	life(f, true, atomic_and_unmapped);
	start(f, false);
	first_half_let_go(f);
	second_half_check(f);
	fixture_close(f);
}

static void disk_out(struct fixture *f, unsigned i)
{
	struct lsom_disk_close close = { .data = f };

	dom_disk_remove(f->dom, f->disks[i], on_done, f);
	CHECK_EQ(wait_for(f), 0);
	CHECK_EQ(lsom_disk_close(f->disks[i], &close, on_disk_closed), 0);
	CHECK_EQ(wait_for(f), 0);
}

/* Disk @i goes, and comes back with an index that is made from its log. */
static void disk_rebuild(struct fixture *f, unsigned i)
{
	struct lsom_disk_open open = { .data = f,
				       .cluster = f->cluster,
				       .rebuild = true };
	char path[300], index[300];

	disk_out(f, i);
	snprintf(path, sizeof(path), "%s/disk", f->dirs[i]);
	snprintf(index, sizeof(index), "%s/index", f->dirs[i]);
	open.path = path;
	open.index_path = index;
	CHECK_EQ(lsom_disk_open(f->lsom, &open, on_disk), 0);
	CHECK_EQ(wait_for(f), 0);
	f->disks[i] = open.opened;
	dom_disk_add(f->dom, f->disks[i]);
}

/* So it is where only the index had the COMMIT, and that is made from the log. */
TEST(dom_atomic, rebuilt_and_half_of_it_unmapped)
{
	struct fixture *f = fixture_open();
	struct dom__owner *owner;
	unsigned leaf;

	atomic_and_unmapped(f);
	nap(f, 20 * MSEC);
	first_half_let_go(f);
	owner = owner_of(f);
	leaf = dom__tree_map(owner->tree, MB, B).leaf;
	leaf = owner->peers[leaf].leaf->disk.b[0] - 100u; /* disk_put() */
	dom_object_close(f->object);
	f->object = NULL;
	disk_rebuild(f, leaf);
	second_half_check(f);
	fixture_close(f);
}

static void copy(const char *from, const char *to)
{
	char cmd[900];

	snprintf(cmd, sizeof(cmd),
		 "rm -rf '%s' && cp -r --sparse=always '%s' '%s'", to, from,
		 to);
	CHECK_EQ(system(cmd), 0);
}

static void g_all_take(struct lsom_comp *comp, void *arg)
{
	*(uint64_t *)arg = lsom_comp_meta(comp)->g_all;
}

/*
 * A disk forgot that an atomic write was taken back, which the other one never had.
 * That all before is decided there does not say that this was committed.
 */
TEST(dom_atomic, taken_back_and_forgotten)
{
	struct fixture *f = fixture_new();
	uint64_t g_all = 0, lsn;
	char old[300], cmd[400];

	f->oid = uuid_of(9);
	life(f, true, atomic_on_one_disk);
	snprintf(old, sizeof(old), "%s.old", f->dirs[0]);
	copy(f->dirs[0], old);
	start(f, false);
	CHECK_EQ(object_open(f), 0);
	lsn = LSN(owner_of(f)->oepoch, 0);
	for (unsigned i = 0; i < 4; i++)
		CHECK_EQ(do_write(f, 8 * MB, buf_a, 2 * MB, 0, 0), 0);
	UNTIL(f,
	      (lsom_comp_each(f->disks[1], g_all_take, &g_all), g_all > lsn));
	disk_out(f, 0);
	copy(old, f->dirs[0]);
	disk_in(f, 0);
	CHECK_EQ(do_read(f, EDGE, got, SPAN), 0);
	CHECK(all_is(got, SPAN, 0xa5));
	CHECK(dom_object_lossy(f->object));
	fixture_close(f);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", old);
	CHECK_EQ(system(cmd), 0);
}
