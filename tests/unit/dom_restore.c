/*
 * A directory that was put back from a backup: the disks know more than it.  And
 * a disk that was, of which only its promise tells.
 */
#include "tests/unit/dom_rig.h"

static void copy(const char *from, const char *to)
{
	char cmd[900];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s' && cp -a '%s' '%s'", to, from,
		 to);
	CHECK_EQ(system(cmd), 0);
}

/* Between two lives: keep the directory, or put the kept one back. */
static void directory_keep(struct fixture *f)
{
	char kept[300];

	snprintf(kept, sizeof(kept), "%s.kept", f->dirs[DISKS]);
	stop(f);
	copy(f->dirs[DISKS], kept);
	start(f, false);
}

static void directory_put_back(struct fixture *f)
{
	char kept[300];

	snprintf(kept, sizeof(kept), "%s.kept", f->dirs[DISKS]);
	stop(f);
	copy(kept, f->dirs[DISKS]);
	start(f, false);
}

/* No record of an epoch answers for one of the same epoch later (R26). */
TEST(dom_restore, no_epoch_twice)
{
	struct fixture *f = fixture_open();
	uint32_t oepoch;

	object_make(f, 1);
	directory_keep(f);
	CHECK_EQ(object_open(f), 0);
	oepoch = owner_of(f)->oepoch;
	CHECK_EQ(do_write(f, 0, buf_b, B, 0, 0), 0);
	directory_put_back(f);
	for (unsigned i = 0; i < 5 && f->object == NULL; i++)
		object_open(f);
	CHECK(owner_of(f)->oepoch > oepoch);
	CHECK_EQ(do_write(f, 8 * B, buf_b, B, 0, 0), 0);
	CHECK_EQ(do_read(f, 8 * B, got, B), 0);
	CHECK(all_is(got, B, 0x5a));
	fixture_close(f);
}

static void data_check(const struct health_check *check,
		       const struct health_result *result, void *arg)
{
	if (strcmp(check->name, "object-data") == 0)
		*(struct health_result *)arg = *result;
}

/* What is newer than the backup stays, and health tells of it. */
TEST(dom_restore, nothing_newer_is_lost)
{
	struct fixture *f = fixture_open();
	struct uuid first;
	struct health_result health = { 0 };
	char newer[300];

	object_make(f, 1);
	first = f->oid;
	directory_keep(f);
	CHECK_EQ(resize_to(f, 2 * SIZE), 0);
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(do_write(f, 2 * SIZE - B, buf_b, B, 0, 0), 0);
	dom_object_close(f->object);
	f->oid = uuid_of(10);
	CHECK_EQ(create(f, SIZE, ""), 0);
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(do_write(f, 0, buf_b, B, 0, 0), 0);
	health_each(data_check, &health);
	CHECK_EQ(health.level, HEALTH_OK);
	stop(f);
	snprintf(newer, sizeof(newer), "%s.newer", f->dirs[DISKS]);
	copy(f->dirs[DISKS], newer);
	start(f, false);

	directory_put_back(f);
	nap(f, 100 * MSEC);
	UNTIL(f, dom__gc_idle(f->dom)); /* a collection ran */
	f->oid = first;
	for (unsigned i = 0; i < 3; i++)
		CHECK_EQ(object_open(f), -ENXIO);
	health_each(data_check, &health);
	CHECK_EQ(health.level, HEALTH_BAD);
	CHECK(strstr(health.cause, "older than 2 components") != NULL);

	stop(f);
	copy(newer, f->dirs[DISKS]);
	start(f, false);
	for (unsigned i = 0; i < 2; i++) {
		f->oid = i ? uuid_of(10) : first;
		CHECK_EQ(object_open(f), 0);
		CHECK_EQ(do_read(f, i ? 0 : 2 * SIZE - B, got, B), 0);
		CHECK(all_is(got, B, 0x5a));
		dom_object_close(f->object);
	}
	f->object = NULL;
	health_each(data_check, &health);
	CHECK_EQ(health.level, HEALTH_OK);
	fixture_close(f);
}

/* What is written now is there though a directory with the mark is put back. */
static void stays_ended(struct fixture *f)
{
	const uint8_t *bytes;
	size_t len = 1;

	CHECK_EQ(do_write(f, 0, buf_b, B, 0, 0), 0);
	directory_put_back(f);
	for (unsigned i = 0; i < 5 && f->object == NULL; i++)
		object_open(f);
	bytes = dom_sanitize_state(f->object, &len);
	CHECK(bytes != NULL && len == 0);
	CHECK_EQ(do_read(f, 0, got, B), 0);
	CHECK(all_is(got, B, 0x5a));
}

/* A sanitize that the backup has as begun: it would erase what came since. */
TEST(dom_restore, sanitize_that_has_ended)
{
	struct fixture *f = fixture_open();
	const uint8_t *bytes;
	char kept[300];
	size_t len = 0;

	object_make(f, 1);
	CHECK_EQ(mark_set(f, 4), 0);
	stop(f);
	start(f, false);
	CHECK_EQ(object_open(f), 0);
	bytes = dom_sanitize_state(f->object, &len);
	CHECK(bytes != NULL && len == 4 && memcmp(bytes, "mark", 4) == 0);

	/* No restart, and so no epoch, comes between the copy and the end. */
	snprintf(kept, sizeof(kept), "%s.kept", f->dirs[DISKS]);
	copy(f->dirs[DISKS], kept);
	CHECK_EQ(mark_set(f, 0), 0);
	stays_ended(f);
	fixture_close(f);
}

/* The same, of one that ends while an epoch has begun, and nothing is written yet. */
TEST(dom_restore, sanitize_that_ended_in_a_takeover)
{
	struct fixture *f = fixture_open();
	char kept[300];
	uint32_t oepoch;

	object_make(f, 1);
	CHECK_EQ(mark_set(f, 4), 0);
	nap(f, 20 * MSEC);
	oepoch = owner_of(f)->oepoch;
	faults.hold[0] = faults.hold[1] = true;
	dom__owner_lost(owner_of(f));
	UNTIL(f, owner_of(f)->oepoch > oepoch);
	CHECK_EQ(owner_of(f)->state, DOM__TAKING);
	snprintf(kept, sizeof(kept), "%s.kept", f->dirs[DISKS]);
	copy(f->dirs[DISKS], kept);
	CHECK_EQ(mark_set(f, 0), 0);
	CHECK_EQ(owner_of(f)->state, DOM__TAKING);
	faults_release();
	stays_ended(f);
	fixture_close(f);
}

static void on_told(struct lsom_meta *req, int status)
{
	finish(req->data, status);
}

/* The same, and the takeover that came since ended behind its first seal. */
TEST(dom_restore, sanitize_that_may_have_ended)
{
	struct fixture *f = fixture_open();
	struct lsom_meta seal = { .data = f, .op = LSOM_SEAL };
	struct lsom_comp *comp;
	size_t len = 0;

	object_make(f, 2);
	CHECK_EQ(mark_set(f, 4), 0);
	comp = owner_of(f)->peers[0].cm->comp;
	seal.meta = *lsom_comp_meta(comp);
	seal.meta.promised_oepoch = owner_of(f)->oepoch + 1;
	CHECK_EQ(lsom_comp_update(comp, &seal, on_told), 0);
	CHECK_EQ(wait_for(f), 0);
	stop(f);
	start(f, false);
	for (unsigned i = 0; i < 5 && f->object == NULL; i++)
		object_open(f);
	CHECK(dom_sanitize_state(f->object, &len) != NULL);
	CHECK_EQ(len, 0);
	fixture_close(f);
}

static void disk_out(struct fixture *f, unsigned i)
{
	struct lsom_disk_close req = { .data = f };

	dom_disk_remove(f->dom, f->disks[i], on_done, f);
	CHECK_EQ(wait_for(f), 0);
	CHECK_EQ(lsom_disk_close(f->disks[i], &req, on_disk_closed), 0);
	CHECK_EQ(wait_for(f), 0);
}

/* Nothing was written since the image was made, but an epoch was promised. */
TEST(dom_restore, disk_forgot_its_promise)
{
	struct fixture *f = fixture_open();
	char old[DISKS][300];

	object_make(f, 1);
	for (unsigned i = 0; i < DISKS; i++) {
		disk_out(f, i);
		snprintf(old[i], sizeof(old[i]), "%s.old", f->dirs[i]);
		copy(f->dirs[i], old[i]);
	}
	for (unsigned i = 0; i < DISKS; i++)
		disk_in(f, i);
	CHECK_EQ(do_read(f, 0, got, B), 0);
	CHECK(!dom_object_lossy(f->object));
	for (unsigned i = 0; i < DISKS; i++)
		disk_out(f, i);
	for (unsigned i = 0; i < DISKS; i++) {
		copy(old[i], f->dirs[i]);
		disk_in(f, i);
	}
	CHECK_EQ(do_read(f, 0, got, B), 0);
	CHECK(dom_object_lossy(f->object));
	fixture_close(f);
}

/* Of the epoch that goes on: the last write, which nobody saw decided (R47). */
TEST(dom_restore, disk_lost_its_tail)
{
	struct fixture *f = fixture_open();
	char old[DISKS][300];

	object_make(f, 1);
	for (unsigned n = 0; n < 3; n++) /* what is recorded stays */
		CHECK_EQ(do_write(f, 0, buf_a, B, 0, 0), 0);
	nap(f, 20 * MSEC);
	for (unsigned i = 0; i < DISKS; i++) {
		snprintf(old[i], sizeof(old[i]), "%s.old", f->dirs[i]);
		copy(f->dirs[i], old[i]);
	}
	CHECK_EQ(do_write(f, 0, buf_b, B, 0, 0), 0);
	for (unsigned i = 0; i < DISKS; i++)
		disk_out(f, i);
	for (unsigned i = 0; i < DISKS; i++) {
		copy(old[i], f->dirs[i]);
		disk_in(f, i);
	}
	CHECK_EQ(do_read(f, 0, got, B), 0);
	CHECK(all_is(got, B, 0xa5));
	CHECK(dom_object_lossy(f->object));
	fixture_close(f);
}

/* It has recorded less than every copy is known to have (g1.4). */
TEST(dom_restore, disk_forgot_what_it_recorded)
{
	struct fixture *f = fixture_open();
	struct lsom_meta config = { .data = f, .op = LSOM_CONFIG };
	struct lsom_comp *comp;

	object_make(f, 1);
	comp = owner_of(f)->peers[0].cm->comp;
	config.meta = *lsom_comp_meta(comp);
	config.meta.g_all = LSN(owner_of(f)->oepoch + 1, 0);
	CHECK_EQ(lsom_comp_update(comp, &config, on_told), 0);
	CHECK_EQ(wait_for(f), 0);
	stop(f);
	start(f, false);
	CHECK_EQ(object_open(f), 0);
	CHECK(dom_object_lossy(f->object));
	CHECK_EQ(do_read(f, 0, got, B), 0);
	CHECK(all_is(got, B, 0xa5));
	fixture_close(f);
}

static void count_comp(struct lsom_comp *comp, void *arg)
{
	++*(unsigned *)arg;
}

/* A leg that was cut off lies on a disk that is away when all is deleted. */
TEST(dom_restore, deleted_while_a_disk_is_away)
{
	struct fixture *f = fixture_open();
	struct uuid id = uuid_of(101);
	const Directory__TreeNode *tree;
	unsigned away, n = 0;

	object_make(f, 1);
	CHECK_EQ(resize_to(f, 300ull << 30), 0);
	tree = cmmds_object(f->cmmds, &f->oid)->tree;
	CHECK_EQ(tree->n_children, 2);
	away = memcmp(tree->children[1]->leaf->disk.data, id.b, 16) == 0;
	nap(f, 200 * MSEC);
	faults.fail[away] = true;
	(void)resize_to(f, SIZE);
	nap(f, 300 * MSEC);
	dom_object_close(f->object);
	f->object = NULL;
	nap(f, 300 * MSEC);
	disk_out(f, away);
	object_delete(f);
	nap(f, 50 * MSEC);
	UNTIL(f, dom__gc_idle(f->dom));
	CHECK(cmmds_object(f->cmmds, &f->oid) != NULL);
	faults.fail[away] = false;
	disk_in(f, away);
	for (unsigned i = 0; i < 6000; i++) {
		n = 0;
		lsom_comp_each(f->disks[away], count_comp, &n);
		if (n == 0)
			break;
		nap(f, 10 * MSEC);
	}
	CHECK_EQ(n, 0);
	fixture_close(f);
}
