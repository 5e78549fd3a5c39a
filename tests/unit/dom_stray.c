/*
 * What is newer than a directory that was put back from a backup: it is listed,
 * deleted or accepted as an administrator says.  dom_stray_far.c runs this on
 * several shards.
 */
#include "tests/unit/dom_refuse.h"

#define LEG (256ull << 30)

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

static void put_back(struct fixture *f, unsigned dir)
{
	char kept[300];

	snprintf(kept, sizeof(kept), "%s.kept", f->dirs[dir]);
	copy(kept, f->dirs[dir]);
}

static void directory_put_back(struct fixture *f)
{
	stop(f);
	put_back(f, DISKS);
	start(f, false);
}

static void again(struct fixture *f)
{
	stop(f);
	start(f, false);
}

static void on_strays(struct dom_strays *req, int status)
{
	finish(req->data, status);
}

/* Of @oid, or of all: how many; the first of them in @out. */
static unsigned strays(struct fixture *f, const struct uuid *oid,
		       struct dom_stray *out)
{
	struct dom_strays req = { .data = f };

	if (oid != NULL)
		req.oid = *oid;
	CHECK_EQ(dom_strays(f->dom, &req, on_strays), 0);
	CHECK_EQ(wait_for(f), 0);
	if (req.count > 0 && out != NULL)
		*out = req.items[0];
	free(req.items);
	return req.count;
}

static void on_dropped(struct dom_drop *req, int status)
{
	finish(req->data, status);
}

static int drop(struct fixture *f, struct uuid oid, unsigned *dropped)
{
	struct dom_drop req = { .data = f, .oid = oid };
	int status;

	CHECK_EQ(dom_drop(f->dom, &req, on_dropped), 0);
	status = wait_for(f);
	*dropped = req.dropped;
	return status;
}

static void on_accept(struct dom_accept *req, int status)
{
	finish(req->data, status);
}

static int accept_check(struct fixture *f, struct dom_accept *req)
{
	*req = (struct dom_accept){ .data = f, .oid = f->oid };
	CHECK_EQ(dom_accept_check(f->dom, req, on_accept), 0);
	return wait_for(f);
}

static void accept_do(struct fixture *f, const struct dom_accept *a)
{
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;
	struct cmmds_command cmd = { .data = f };

	op.op = DIRECTORY__OBJECT_COMMAND__OP__ACCEPT;
	op.oid.data = f->oid.b;
	op.oid.len = sizeof(f->oid.b);
	op.expect_oepoch = a->expect_oepoch;
	op.expect_csn = a->expect_csn;
	op.oepoch = a->oepoch;
	op.csn = a->csn;
	cmmds_command_init(&cmd);
	cmmds_object_op(&cmd, &op);
	CHECK_EQ(cmmds_propose(f->cmmds, &cmd, 0, on_command), 0);
	CHECK_EQ(wait_for(f), 0);
	cmmds_command_fini(&cmd);
}

static void data_check(const struct health_check *check,
		       const struct health_result *result, void *arg)
{
	if (strcmp(check->name, "object-data") == 0)
		*(struct health_result *)arg = *result;
}

/* Every other shard has looked that was asked to. */
static void looked(struct fixture *f)
{
	nap(f, 50 * MSEC);
	for (unsigned i = 1; i < RIG_SHARDS; i++)
		for (unsigned k = 0;
		     k < 6000 && atomic_load(&f->doms[i]->look_asked); k++)
			nap(f, 10 * MSEC);
}

/* The other shards are asked to look, and tell the next time. */
static struct health_result health(struct fixture *f)
{
	struct health_result result = { 0 };

	looked(f);
	health_each(data_check, &result);
	looked(f);
	result = (struct health_result){ 0 };
	health_each(data_check, &result);
	return result;
}

static void object_shut(struct fixture *f)
{
	dom_object_close(f->object);
	f->object = NULL;
}

/* Another object, of @size, with @n bytes written. */
static void other_make(struct fixture *f, unsigned n, uint64_t size, size_t len)
{
	f->oid = uuid_of(n);
	CHECK_EQ(create(f, size, ""), 0);
	CHECK(memcmp(f->oid.b, uuid_of(n).b, 16) == 0);
	CHECK_EQ(object_open(f), 0);
	if (len > 0)
		CHECK_EQ(do_write(f, 0, buf_b, len, 0, 0), 0);
	object_shut(f);
}

/* An id that is not the test's shard's, and one that is of yet another. */
static unsigned other_id(unsigned from)
{
	struct uuid id = uuid_of(from);

	while (RIG_SHARDS > 1 && uuid_hash(&id) % RIG_SHARDS == 0)
		id = uuid_of(++from);
	return from;
}

/* The known object: its bytes are @buf_a's, and stay. */
static void first_whole(struct fixture *f, const struct uuid *oid)
{
	f->oid = *oid;
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(do_read(f, 0, got, 2 * MB), 0);
	CHECK(all_is(got, 2 * MB, 0xa5));
	object_shut(f);
}

TEST(dom_stray, dropped)
{
	struct fixture *f = fixture_open();
	unsigned n = other_id(200), dropped;
	struct uuid first, oid = uuid_of(n), none = uuid_of(240);
	struct lsom_disk_info before[DISKS], after[DISKS];
	struct dom_stray stray;
	uint64_t freed = 0;

	object_make(f, 1);
	first = f->oid;
	directory_keep(f);
	other_make(f, n, SIZE, MB);
	CHECK_EQ(strays(f, NULL, NULL), 0);
	directory_put_back(f);
	CHECK_EQ(health(f).level, HEALTH_BAD);
	CHECK(strstr(health(f).fix, "object accept' opens one with its older "
				    "layout") != NULL);
	CHECK_EQ(strays(f, NULL, &stray), 1);
	CHECK(uuid_equal(&stray.oid, &oid));
	CHECK(!stray.known && stray.used_exact);
	CHECK_EQ(stray.size_bytes, SIZE);
	CHECK_EQ(stray.used_bytes, MB);
	CHECK_EQ(strays(f, &oid, NULL), 1);
	CHECK_EQ(strays(f, &first, NULL), 0);

	CHECK_EQ(drop(f, first, &dropped), -EEXIST);
	CHECK_EQ(dropped, 0);
	CHECK_EQ(drop(f, none, &dropped), 0);
	CHECK_EQ(dropped, 0);
	CHECK_EQ(strays(f, &none, NULL), 0);
	CHECK_EQ(strays(f, NULL, NULL), 1);

	for (unsigned i = 0; i < DISKS; i++)
		lsom_disk_info(f->disks[i], &before[i]);
	CHECK_EQ(drop(f, uuid_of(n), &dropped), 0);
	CHECK_EQ(dropped, 1);
	CHECK_EQ(strays(f, NULL, NULL), 0);
	for (unsigned k = 0; RIG_SHARDS == 1 && k < 6000 && freed < MB; k++) {
		nap(f, 10 * MSEC);
		freed = 0;
		for (unsigned i = 0; i < DISKS; i++) {
			lsom_disk_info(f->disks[i], &after[i]);
			freed += before[i].used_bytes - after[i].used_bytes;
		}
	}
	CHECK(RIG_SHARDS > 1 || freed >= MB);
	CHECK_EQ(health(f).level, HEALTH_OK);
	first_whole(f, &first);
	again(f);
	CHECK_EQ(strays(f, NULL, NULL), 0);
	CHECK_EQ(health(f).level, HEALTH_OK);
	first_whole(f, &first);
	fixture_close(f);
}

/* More than one run of the collection takes. */
TEST(dom_stray, many)
{
	struct fixture *f = fixture_open();
	unsigned n = other_id(200), dropped;
	struct uuid first;

	object_make(f, 1);
	first = f->oid;
	directory_keep(f);
	other_make(f, n, 150 * LEG, 0);
	directory_put_back(f);
	CHECK_EQ(strays(f, NULL, NULL), 150);
	CHECK_EQ(drop(f, uuid_of(n), &dropped), 0);
	CHECK_EQ(dropped, 150);
	CHECK_EQ(strays(f, NULL, NULL), 0);
	first_whole(f, &first);
	fixture_close(f);
}

/* The entry of @f->oid, as it was when it was made. */
static Directory__Object *entry_keep(struct fixture *f)
{
	const struct cmmds_entry *e =
		cmmds_get(f->cmmds, CMMDS_OBJECT, f->oid.b, sizeof(f->oid.b));
	Directory__Object *o =
		directory__object__unpack(NULL, e->value_len, e->value);

	if (o->owner != NULL)
		directory__owner__free_unpacked(o->owner, NULL);
	o->owner = NULL;
	o->oepoch = 0;
	return o;
}

/* What the directory knows by then is kept, seen here already or not. */
TEST(dom_stray, known_by_then)
{
	struct fixture *f = fixture_open();
	unsigned n = other_id(200);
	struct fixture dropped = { 0 };
	struct dom_drop req = { .data = &dropped, .oid = uuid_of(n) };
	struct cmmds_command cmd = { .data = f };
	Directory__Object *entry;
	struct dom_stray stray;

	object_make(f, 1);
	directory_keep(f);
	other_make(f, n, SIZE, MB);
	entry = entry_keep(f);
	directory_put_back(f);
	f->oid = uuid_of(n);
	cmmds_command_init(&cmd);
	cmmds_put(&cmd, CMMDS_OBJECT, f->oid.b, sizeof(f->oid.b),
		  CMMDS_MUST_NOT_EXIST, &entry->base);
	CHECK_EQ(cmmds_propose(f->cmmds, &cmd, 0, on_command), 0);
	CHECK_EQ(dom_drop(f->dom, &req, on_dropped), 0);
	CHECK_EQ(wait_for(f), 0); /* the command */
	run(&dropped.done);
	CHECK_EQ(dropped.status, -EEXIST);
	CHECK_EQ(req.dropped, 0);
	cmmds_command_fini(&cmd);
	directory__object__free_unpacked(entry, NULL);
	CHECK_EQ(strays(f, NULL, &stray), 0);
	for (unsigned i = 0; i < 5 && f->object == NULL; i++)
		object_open(f);
	CHECK_EQ(do_read(f, 0, got, MB), 0);
	CHECK(all_is(got, MB, 0x5a));
	fixture_close(f);
}

#if RIG_SHARDS == 1
struct tally {
	struct uuid oid;
	unsigned count;
};

static void tally_one(struct lsom_comp *comp, void *arg)
{
	struct tally *tally = arg;

	tally->count += uuid_equal(&lsom_comp_meta(comp)->oid, &tally->oid);
}

static unsigned components_of(struct fixture *f, struct uuid oid)
{
	struct tally tally = { .oid = oid };

	for (unsigned i = 0; i < DISKS; i++)
		lsom_comp_each(f->disks[i], tally_one, &tally);
	return tally.count;
}

/* One is being deleted: nobody else holds a component of these disks. */
static bool deleting(struct fixture *f)
{
	const struct dom__disk *disk;

	TAILQ_FOREACH (disk, &f->dom->disks, link)
		if (!TAILQ_EMPTY(&disk->cms) && faults.held_count > 0)
			return true;
	return false;
}

/* Nor does who wants it gone wait for a disk that hangs. */
TEST(dom_stray, on_a_disk_that_hangs)
{
	struct fixture *f = fixture_open();
	struct fixture dropped = { 0 };
	struct dom_drop req = { .data = &dropped, .oid = uuid_of(200) };

	object_make(f, 1);
	directory_keep(f);
	other_make(f, 200, LEG + SIZE, MB);
	directory_put_back(f);
	CHECK_EQ(components_of(f, req.oid), 2);
	faults.hold[0] = faults.hurry = true;
	CHECK_EQ(dom_drop(f->dom, &req, on_dropped), 0);
	run(&dropped.done);
	CHECK_EQ(dropped.status, -ETIMEDOUT);
	CHECK(req.dropped <= 1);
	CHECK(!dom__gc_idle(f->dom));
	faults.hurry = false;
	faults_release();
	for (unsigned i = 0; i < 1000 && !dom__gc_idle(f->dom); i++)
		nap(f, 10 * MSEC);
	dropped.done = false;
	req = (struct dom_drop){ .data = &dropped, .oid = uuid_of(200) };
	CHECK_EQ(dom_drop(f->dom, &req, on_dropped), 0);
	run(&dropped.done);
	CHECK_EQ(dropped.status, 0);
	CHECK_EQ(components_of(f, req.oid), 0);
	fixture_close(f);
}

/* Who wants it gone hears that it cannot be deleted now, and can ask again. */
TEST(dom_stray, that_cannot_be_deleted)
{
	struct fixture *f = fixture_open();
	struct fixture dropped = { 0 };
	struct dom_drop req = { .data = &dropped, .oid = uuid_of(200) };

	object_make(f, 1);
	directory_keep(f);
	other_make(f, 200, LEG + SIZE, MB);
	directory_put_back(f);
	CHECK_EQ(components_of(f, req.oid), 2);
	refuse = -ENOSPC;
	refuse_later = true;
	CHECK_EQ(dom_drop(f->dom, &req, on_dropped), 0);
	run(&dropped.done);
	CHECK_EQ(dropped.status, -ENOSPC);
	CHECK_EQ(req.dropped, 0);
	refuse = 0;
	CHECK_EQ(components_of(f, req.oid), 2);
	dropped.done = false;
	req = (struct dom_drop){ .data = &dropped, .oid = uuid_of(200) };
	CHECK_EQ(dom_drop(f->dom, &req, on_dropped), 0);
	run(&dropped.done);
	CHECK_EQ(dropped.status, 0);
	CHECK_EQ(req.dropped, 2);
	fixture_close(f);
}

/* The directory knows it again between two deletions: the second is not. */
TEST(dom_stray, known_between_deletions)
{
	struct fixture *f = fixture_open();
	struct fixture dropped = { 0 };
	struct dom_drop req = { .data = &dropped, .oid = uuid_of(200) };
	struct cmmds_command cmd = { .data = f };
	Directory__Object *entry;

	object_make(f, 1);
	directory_keep(f);
	other_make(f, 200, LEG + SIZE, MB);
	entry = entry_keep(f);
	directory_put_back(f);
	CHECK_EQ(components_of(f, req.oid), 2);
	faults.hold[0] = faults.hold[1] = true;
	CHECK_EQ(dom_drop(f->dom, &req, on_dropped), 0);
	while (!deleting(f))
		nap(f, MSEC);
	cmmds_command_init(&cmd);
	cmmds_put(&cmd, CMMDS_OBJECT, req.oid.b, sizeof(req.oid.b),
		  CMMDS_MUST_NOT_EXIST, &entry->base);
	CHECK_EQ(cmmds_propose(f->cmmds, &cmd, 0, on_command), 0);
	CHECK_EQ(wait_for(f), 0);
	CHECK(!dropped.done);
	faults_release();
	run(&dropped.done);
	CHECK_EQ(dropped.status, -EEXIST);
	CHECK_EQ(req.dropped, 1);
	CHECK_EQ(components_of(f, req.oid), 1);
	cmmds_command_fini(&cmd);
	directory__object__free_unpacked(entry, NULL);
	fixture_close(f);
}

/* True: it was the deletion that found the disk failing. */
static bool drop_on_failing(void)
{
	struct fixture *f = fixture_open();
	unsigned dropped, sum;
	bool found;

	object_make(f, 1);
	directory_keep(f);
	other_make(f, 200, LEG + SIZE, MB);
	directory_put_back(f);
	CHECK_EQ(strays(f, NULL, NULL), 2);
	faults.fail[0] = true;
	found = drop(f, uuid_of(200), &dropped) < 0;
	CHECK_EQ(dropped, 1);
	CHECK_EQ(drop(f, uuid_of(200), &dropped), 0);
	CHECK_EQ(dropped, 0);
	again(f);
	sum = strays(f, NULL, NULL);
	CHECK(sum <= 1);
	CHECK_EQ(drop(f, uuid_of(200), &dropped), 0);
	CHECK_EQ(dropped, sum);
	CHECK_EQ(strays(f, NULL, NULL), 0);
	fixture_close(f);
	return found;
}

/* A disk that fails keeps what it has, and that is said; the rest goes. */
TEST(dom_stray, a_disk_fails)
{
	bool found = false;

	/* A write of the store's own may be the first that fails. */
	for (unsigned i = 0; i < 10 && !found; i++)
		found = drop_on_failing();
	CHECK(found);
}

/* A disk that is taken out keeps its own, too, and tells when it is back. */
TEST(dom_stray, a_disk_is_away)
{
	struct lsom_disk_close req;
	struct fixture *f = fixture_open();
	unsigned dropped;

	object_make(f, 1);
	directory_keep(f);
	other_make(f, 200, LEG + SIZE, MB);
	directory_put_back(f);
	req.data = f;
	dom_disk_remove(f->dom, f->disks[1], on_done, f);
	CHECK_EQ(wait_for(f), 0);
	CHECK_EQ(lsom_disk_close(f->disks[1], &req, on_disk_closed), 0);
	CHECK_EQ(wait_for(f), 0);
	CHECK_EQ(strays(f, NULL, NULL), 1);
	CHECK_EQ(drop(f, uuid_of(200), &dropped), 0);
	CHECK_EQ(dropped, 1);
	disk_in(f, 1);
	CHECK_EQ(health(f).level, HEALTH_BAD);
	CHECK_EQ(drop(f, uuid_of(200), &dropped), 0);
	CHECK_EQ(dropped, 1);
	CHECK_EQ(health(f).level, HEALTH_OK);
	fixture_close(f);
}

static void on_away(void *arg)
{
	struct fixture *f = arg;

	dom_disk_add(f->dom, f->disks[0]);
}

/* What was seen already is not listed again. */
TEST(dom_stray, a_disk_comes_back_under_the_list)
{
	struct fixture *f = fixture_open();
	unsigned count;

	object_make(f, 1);
	directory_keep(f);
	other_make(f, 200, 4 * LEG, 0);
	other_make(f, 201, 4 * LEG, 0);
	directory_put_back(f);
	count = strays(f, NULL, NULL);
	CHECK(count > 1);
	for (unsigned turns = 0; turns < 6; turns++) {
		struct dom_strays req = { .data = f };

		CHECK_EQ(dom_strays(f->dom, &req, on_strays), 0);
		for (unsigned i = 0; i < turns && !f->done; i++)
			shard_step(f->ts.env, 0);
		dom_disk_remove(f->dom, f->disks[0], on_away, f);
		CHECK_EQ(wait_for(f), 0);
		CHECK(req.count <= count);
		free(req.items);
		nap(f, 50 * MSEC);
	}
	fixture_close(f);
}

/* It is answered, whenever the end comes. */
TEST(dom_stray, closed_meanwhile)
{
	struct fixture *f = fixture_open();

	object_make(f, 1);
	directory_keep(f);
	other_make(f, 200, 100 * LEG, MB);
	for (unsigned i = 0; i < 4; i++) {
		struct dom_drop req = { .oid = uuid_of(200) };
		struct dom_strays list = { 0 };
		struct fixture dropped = { 0 }, listed = { 0 };

		directory_put_back(f);
		req.data = &dropped;
		list.data = &listed;
		CHECK_EQ(dom_drop(f->dom, &req, on_dropped), 0);
		CHECK_EQ(dom_strays(f->dom, &list, on_strays), 0);
		for (unsigned k = 0; k < i; k++)
			shard_step(f->ts.env, 0);
		stop(f);
		CHECK(dropped.done && listed.done);
		free(list.items);
		start(f, false);
	}
	fixture_close(f);
}
#endif

/* Written before it grew and after; the backup is from in between. */
static struct fixture *grown(uint64_t size)
{
	struct fixture *f = fixture_open();

	object_make(f, 1);
	directory_keep(f);
	CHECK_EQ(resize_to(f, size), 0);
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(do_write(f, MB, buf_b, MB, 0, 0), 0);
	CHECK_EQ(do_write(f, size - MB, buf_b, MB, 0, 0), 0);
	return f;
}

static void older_whole(struct fixture *f)
{
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(dom_object_size(f->object), SIZE);
	CHECK_EQ(do_read(f, 0, got, 2 * MB), 0);
	CHECK(all_is(got, MB, 0xa5));
	CHECK(all_is(got + MB, MB, 0x5a));
	object_shut(f);
}

TEST(dom_stray, accepted)
{
	struct fixture *f = grown(2 * SIZE);
	struct dom_accept a;
	struct dom_stray stray;
	unsigned dropped;

	CHECK_EQ(accept_check(f, &a), -EPERM); /* nothing is newer */
	/* Epochs that the backup does not know. */
	for (unsigned i = 0; i < 12; i++) {
		again(f);
		CHECK_EQ(object_open(f), 0);
	}
	directory_put_back(f);
	CHECK_EQ(object_open(f), -ENXIO);
	CHECK_EQ(strays(f, NULL, &stray), 1);
	CHECK(stray.known);
	CHECK_EQ(stray.used_bytes, 3 * MB);
	CHECK_EQ(drop(f, f->oid, &dropped), -EEXIST);
	CHECK_EQ(accept_check(f, &a), 0);
	CHECK_EQ(a.cut_bytes, SIZE);
	CHECK_EQ(a.extra, 0);
	accept_do(f, &a);
	older_whole(f);
	CHECK_EQ(strays(f, NULL, NULL), 0);
	CHECK_EQ(health(f).level, HEALTH_OK);
	CHECK_EQ(accept_check(f, &a), -EPERM);
	again(f);
	older_whole(f);
	CHECK_EQ(resize_to(f, 2 * SIZE), 0);
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(do_read(f, 2 * SIZE - MB, got, MB), 0);
	CHECK(all_is(got, MB, 0));
	fixture_close(f);
}

/* What was written since a sanitize is not erased with the older layout. */
TEST(dom_stray, accepted_with_a_sanitize)
{
	struct fixture *f = fixture_open();
	const uint8_t *bytes;
	struct dom_accept a;
	size_t len = 1;

	object_make(f, 1);
	CHECK_EQ(mark_set(f, 4), 0);
	directory_keep(f);
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(mark_set(f, 0), 0);
	CHECK_EQ(resize_to(f, 2 * SIZE), 0);
	CHECK_EQ(do_write(f, MB, buf_b, MB, 0, 0), 0);
	directory_put_back(f);
	CHECK_EQ(object_open(f), -ENXIO);
	CHECK_EQ(accept_check(f, &a), 0);
	accept_do(f, &a);
	CHECK_EQ(object_open(f), 0);
	bytes = dom_sanitize_state(f->object, &len);
	CHECK(bytes != NULL && len == 0);
	object_shut(f);
	older_whole(f);
	fixture_close(f);
}

/* A component that was added goes. */
TEST(dom_stray, accepted_without_a_leg)
{
	struct fixture *f = grown(LEG + SIZE);
	struct lsom_disk_info info;
	unsigned components = 0;
	struct dom_accept a;

	directory_put_back(f);
	CHECK_EQ(object_open(f), -ENXIO);
	nap(f, 100 * MSEC);
	UNTIL(f, dom__gc_idle(f->dom)); /* a collection ran, and let it be */
	CHECK_EQ(strays(f, NULL, NULL), 2);
	CHECK_EQ(accept_check(f, &a), 0);
	CHECK_EQ(a.cut_bytes, LEG - SIZE);
	CHECK_EQ(a.extra, 1);
	accept_do(f, &a);
	for (unsigned i = 0; i < 3000 && strays(f, NULL, NULL) > 0; i++)
		nap(f, 20 * MSEC);
	CHECK_EQ(strays(f, NULL, NULL), 0);
	older_whole(f);
	for (unsigned k = 0; RIG_SHARDS == 1 && k < 6000 && components != 1;
	     k++) {
		nap(f, 10 * MSEC);
		components = 0;
		for (unsigned i = 0; i < DISKS; i++) {
			lsom_disk_info(f->disks[i], &info);
			components += info.components;
		}
	}
	CHECK(RIG_SHARDS > 1 || components == 1);
	CHECK_EQ(health(f).level, HEALTH_OK);
	fixture_close(f);
}

/* What the older layout has, and no component any more. */
TEST(dom_stray, not_accepted_when_it_shrank)
{
	struct fixture *f = fixture_open();
	struct dom_accept a;

	object_make(f, 1);
	object_shut(f);
	directory_keep(f);
	CHECK_EQ(resize_to(f, SIZE / 2), 0);
	directory_put_back(f);
	CHECK_EQ(accept_check(f, &a), -EPERM);
	CHECK(strstr(a.why, "was made smaller since") != NULL);
	CHECK_EQ(object_open(f), -ENXIO);
	f->oid = uuid_of(241);
	CHECK_EQ(accept_check(f, &a), -ENOENT);
	fixture_close(f);
}

/* A leg that was cut off: collected, or not, as its disk was away. */
TEST(dom_stray, not_accepted_with_a_leg_cut_off)
{
	for (unsigned i = 0; i < 2; i++) {
		struct fixture *f = fixture_open();
		const Directory__TreeNode *tree;
		struct uuid disk = uuid_of(101);
		struct lsom_disk_info info;
		struct dom_accept a;
		char kept[300];
		unsigned on;

		object_make(f, 1);
		/* Enough for the other disk to get the new leg. */
		for (unsigned k = 1; k < 8; k++)
			CHECK_EQ(do_write(f, k * 2 * MB, buf_a, 2 * MB, 0, 0),
				 0);
		CHECK_EQ(resize_to(f, LEG + SIZE), 0);
		tree = cmmds_object(f->cmmds, &f->oid)->tree;
		on = memcmp(tree->children[1]->leaf->disk.data, disk.b, 16) ==
		     0;
		lsom_disk_info(f->disks[on], &info);
		CHECK_EQ(info.components, 1);
		directory_keep(f);
		snprintf(kept, sizeof(kept), "%s.kept", f->dirs[on]);
		stop(f);
		copy(f->dirs[on], kept);
		start(f, false);
		CHECK_EQ(resize_to(f, LEG), 0);
		UNTIL(f, (lsom_disk_info(f->disks[on], &info),
			  info.components == 0));
		stop(f);
		if (i > 0)
			put_back(f, on);
		put_back(f, DISKS);
		start(f, false);
		CHECK_EQ(accept_check(f, &a), -EPERM);
		CHECK(strstr(a.why, i == 0 ? "is gone" : "did not take part") !=
		      NULL);
		CHECK_EQ(object_open(f), -ENXIO);
		fixture_close(f);
	}
}

#if RIG_SHARDS == 1
static void on_configured(struct lsom_meta *req, int status)
{
	finish(req->data, status);
}

/* Its component took another content since, as a copy that lagged behind does. */
TEST(dom_stray, not_accepted_when_filled_anew)
{
	struct fixture *f = grown(2 * SIZE);
	struct lsom_meta config = { .data = f, .op = LSOM_CONFIG };
	struct uuid cid = owner_of(f)->peers[0].leaf->cid;
	struct lsom_comp *comp = NULL;
	struct dom_accept a;

	directory_put_back(f);
	CHECK_EQ(accept_check(f, &a), 0);
	for (unsigned i = 0; i < DISKS && comp == NULL; i++)
		comp = lsom_comp_get(f->disks[i], &cid);
	CHECK(comp != NULL);
	config.meta = *lsom_comp_meta(comp);
	config.meta.member_csn++;
	CHECK_EQ(lsom_comp_update(comp, &config, on_configured), 0);
	CHECK_EQ(wait_for(f), 0);
	lsom_comp_put(comp);
	CHECK_EQ(accept_check(f, &a), -EPERM);
	CHECK(strstr(a.why, "was filled anew since") != NULL);
	CHECK_EQ(object_open(f), -ENXIO);
	fixture_close(f);
}
#endif
