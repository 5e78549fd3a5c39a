/*
 * What a policy reserves is kept: an object is made, or grown, where each disk
 * has the room, lsom is told of it in every life, and a write finds its space
 * though others filled the disks.
 */
#include "tests/unit/dom_rig.h"

static void reserve_put(struct fixture *f, const char *name, unsigned width,
			unsigned percent)
{
	Directory__Policy p = DIRECTORY__POLICY__INIT;

	p.name = (char *)name;
	p.stripe_width = width;
	p.reserve_percent = percent;
	entry_put(f, CMMDS_POLICY, name, strlen(name), &p.base);
}

static uint64_t kept(struct fixture *f, unsigned disk)
{
	struct lsom_disk_info info;

	lsom_disk_info(f->disks[disk], &info);
	return info.kept_bytes;
}

static uint64_t free_on(struct fixture *f, unsigned disk)
{
	struct lsom_disk_info info;

	lsom_disk_info(f->disks[disk], &info);
	return info.usable_bytes - info.used_bytes - info.kept_bytes;
}

/* Another object; the one before is left as it is. */
static int object_next(struct fixture *f, unsigned n, uint64_t size,
		       const char *policy)
{
	int rv;

	if (f->object != NULL)
		dom_object_close(f->object);
	f->object = NULL;
	f->oid = uuid_of(n);
	rv = create(f, size, policy);
	return rv < 0 ? rv : object_open(f);
}

static int object_back(struct fixture *f, unsigned n)
{
	if (f->object != NULL)
		dom_object_close(f->object);
	f->object = NULL;
	f->oid = uuid_of(n);
	return object_open(f);
}

/* Write the object from @at on until that is refused; where. */
static uint64_t write_up(struct fixture *f, uint64_t at, uint8_t byte)
{
	size_t len = MB;
	int rv;

	memset(buf_b, byte, MB);
	while (len >= B && at + len <= dom_object_size(f->object)) {
		rv = do_write(f, at, buf_b, len, 0, 0);
		if (rv != -ENOSPC)
			CHECK_EQ(rv, 0);
		if (rv == 0)
			at += len;
		else
			len /= 2;
	}
	return at;
}

static void whole_check(struct fixture *f, uint64_t size, uint8_t byte)
{
	for (uint64_t at = 0; at < size; at += MB) {
		CHECK_EQ(do_read(f, at, got, MB), 0);
		CHECK(all_is(got, MB, byte));
	}
}

/* ---- told ---- */

/* A thick object of 16 MiB on both disks, and a thin one that takes the rest. */
static uint64_t filled(struct fixture *f)
{
	uint64_t used, left, at;

	reserve_put(f, "thick", 2, 100);
	reserve_put(f, "thin", 2, 0);
	CHECK_EQ(object_next(f, 50, 16 * MB, "thick"), 0);
	CHECK_EQ(object_next(f, 51, 1024 * MB, "thin"), 0);
	at = write_up(f, 0, 1);
	CHECK_EQ(kept(f, 0), 8 * MB);
	CHECK_EQ(kept(f, 1), 8 * MB);
	CHECK(free_on(f, 0) < B || free_on(f, 1) < B);
	dom_object_space(f->object, &used, &left);
	CHECK(left <= MB + B);
	return at;
}

static void fill_and_go(struct fixture *f)
{
	filled(f);
}

/*
 * The directory tells lsom in each life, after a kill -9 as well.  The first
 * test: RocksDB's own threads, which flush, do not go into the child.
 */
TEST(dom_space, told_in_every_life)
{
	struct fixture *f = fixture_new();

	if (RIG_SHARDS == 1) {
		life(f, true, fill_and_go);
	} else { /* with threads there is no child that TSan can look at */
		start(f, true);
		filled(f);
		stop(f);
		f->incarnation++;
	}
	start(f, false);
	CHECK_EQ(kept(f, 0), 8 * MB);
	CHECK_EQ(object_back(f, 51), 0);
	CHECK(write_up(f, 512 * MB, 1) < 514 * MB);
	stop(f);
	f->incarnation++;
	start(f, false);
	CHECK_EQ(kept(f, 0), 8 * MB);
	CHECK_EQ(kept(f, 1), 8 * MB);
	CHECK_EQ(object_back(f, 50), 0);
	CHECK_EQ(write_up(f, 0, 2), 16 * MB);
	whole_check(f, 16 * MB, 2);
	fixture_close(f);
}

/* ---- made and grown ---- */

TEST(dom_space, each_disk_must_have_it)
{
	struct fixture *f = fixture_open();
	uint64_t room = free_on(f, 0);

	CHECK_EQ(free_on(f, 1), room);
	reserve_put(f, "thick", 1, 100);
	reserve_put(f, "half", 1, 50);
	reserve_put(f, "wide", 2, 100);
	/* Both disks together have it. */
	CHECK_EQ(object_next(f, 50, ROUND_DOWN(room, MB) + MB, "thick"),
		 -ENOSPC);
	CHECK(strstr(f->why, " of it finds no room: disk ") != NULL);
	CHECK_EQ(object_next(f, 50, ROUND_DOWN(room, MB), "thick"), 0);
	CHECK_EQ(kept(f, 0) + kept(f, 1), ROUND_DOWN(room, MB));
	CHECK_EQ(object_next(f, 51, 16 * MB, "wide"), -ENOSPC);
	CHECK_EQ(object_next(f, 51, 64 * MB, "half"), 0);
	CHECK_EQ(kept(f, 0) + kept(f, 1), ROUND_DOWN(room, MB) + 32 * MB);
	CHECK_EQ(object_next(f, 52, ROUND_DOWN(room, MB), "half"), 0);
	CHECK_EQ(object_next(f, 53, ROUND_DOWN(room, MB), "half"), -ENOSPC);
	fixture_close(f);
}

static uint64_t tree_sum(const Directory__TreeNode *node, uint64_t sums[DISKS])
{
	uint64_t sum = node->leaf != NULL ? node->size_bytes : 0;

	for (unsigned i = 0; node->leaf != NULL && i < DISKS; i++)
		if (memcmp(node->leaf->disk.data, uuid_of(100 + i).b, 16) == 0)
			sums[i] += node->size_bytes;
	for (size_t i = 0; i < node->n_children; i++)
		sum += tree_sum(node->children[i], sums);
	return sum;
}

static void leaves_count(const Directory__TreeNode *node,
			 unsigned counts[DISKS])
{
	for (unsigned i = 0; node->leaf != NULL && i < DISKS; i++)
		counts[i] += memcmp(node->leaf->disk.data, uuid_of(100 + i).b,
				    16) == 0;
	for (size_t i = 0; i < node->n_children; i++)
		leaves_count(node->children[i], counts);
}

/* Tombstones, too: their components may be there yet. */
static void placed_check(struct fixture *f)
{
	unsigned counts[RIG_SHARDS][DISKS] = { 0 };
	const struct cmmds_entry *e = NULL;

	while ((e = cmmds_next(f->cmmds, CMMDS_OBJECT, e)) != NULL) {
		const Directory__Object *o = (const void *)e->message;
		struct uuid oid;

		memcpy(oid.b, o->oid.data, sizeof(oid.b));
		leaves_count(o->tree, counts[uuid_hash(&oid) % RIG_SHARDS]);
	}
	for (unsigned k = 0; k < DISKS; k++) {
		struct uuid id = uuid_of(100 + k);
		unsigned got_counts[RIG_SHARDS] = { 0 };

		dom_disk_components(f->dom, &id, got_counts);
		for (unsigned i = 0; i < RIG_SHARDS; i++)
			CHECK_EQ(got_counts[i], counts[i][k]);
	}
}

/* Are the sums that are kept along those of what the directory has? */
static void sums_check(struct fixture *f)
{
	uint64_t sums[DISKS] = { 0 }, all = 0, reserved = 0, got_all,
		 got_reserved;
	const struct cmmds_entry *e = NULL;
	struct dom__look look;

	while ((e = cmmds_next(f->cmmds, CMMDS_OBJECT, e)) != NULL) {
		const Directory__Object *o = (const void *)e->message;

		if (o->deleted)
			continue;
		all += tree_sum(o->tree, sums);
		reserved += o->reserved_bytes;
	}
	placed_check(f);
	dom_provisioned(f->dom, &got_all, &got_reserved);
	CHECK_EQ(got_all, all);
	CHECK_EQ(got_reserved, reserved);
	CHECK_EQ(dom__look(f->dom, &f->oid, &look), 0);
	for (unsigned i = 0; i < look.clom.disks_count; i++)
		for (unsigned k = 0; k < DISKS; k++) {
			struct uuid id = uuid_of(100 + k);

			if (!uuid_equal(&look.disks[i].disk, &id))
				continue;
			CHECK_EQ(look.disks[i].promised_bytes, sums[k]);
			CHECK_EQ(look.disks[i].kept_bytes, kept(f, k));
		}
	free(look.disks);
}

TEST(dom_space, sums_are_kept_along)
{
	struct fixture *f = fixture_open();

	reserve_put(f, "thick", 1, 100);
	reserve_put(f, "wide", 2, 50);
	sums_check(f);
	CHECK_EQ(object_next(f, 50, 16 * MB, "thick"), 0);
	CHECK_EQ(object_next(f, 51, 32 * MB, "wide"), 0);
	CHECK_EQ(object_next(f, 52, 8 * MB, ""), 0);
	sums_check(f);
	CHECK_EQ(object_back(f, 51), 0);
	CHECK_EQ(resize_to(f, 48 * MB), 0);
	sums_check(f);
	CHECK_EQ(resize_to(f, 16 * MB), 0);
	sums_check(f);
	CHECK_EQ(object_back(f, 50), 0);
	object_delete(f);
	dom_object_close(f->object);
	f->object = NULL;
	UNTIL(f, cmmds_object(f->cmmds, &f->oid) == NULL);
	sums_check(f);
	stop(f);
	start(f, false);
	sums_check(f);
	fixture_close(f);
}

#if RIG_SHARDS == 1
static bool silent[DISKS];

static uint64_t silent_ns(const struct env_dev *dev, uint64_t now_ns)
{
	for (unsigned i = 0; i < DISKS; i++)
		if (silent[i] && faults.devs[i] == dev)
			return LSOM_SILENT_NS;
	return 0;
}

/* Nothing new comes to a disk that hangs; it would wait with it. */
TEST(dom_space, a_disk_that_hangs_gets_none)
{
	struct fixture *f = fixture_open();

	reserve_put(f, "thick", 1, 100);
	reserve_put(f, "wide", 2, 0);
	faults.ops.dev_silent_ns = silent_ns;
	for (unsigned i = 0; i < DISKS; i++) {
		silent[0] = silent[1] = false;
		silent[i] = true;
		CHECK_EQ(object_next(f, 50 + 2 * i, 8 * MB, "thick"), 0);
		CHECK_EQ(object_next(f, 51 + 2 * i, MB, "thick"), 0);
		CHECK_EQ(kept(f, i), i * 9 * MB);
		CHECK_EQ(kept(f, !i), 9 * MB);
	}
	CHECK_EQ(object_next(f, 60, MB, "wide"), -ENXIO);
	silent[0] = silent[1] = true;
	CHECK_EQ(object_next(f, 60, MB, "thick"), -ENXIO);
	CHECK(strstr(f->why, "no disk can take components now") != NULL);
	silent[0] = silent[1] = false;
	CHECK_EQ(object_next(f, 60, MB, "wide"), 0);
	fixture_close(f);
}
#endif

struct two {
	struct dom_create create;
	struct dom_resize resize;
	int status;
	bool done;
};

static void on_one(struct dom_create *req, int status)
{
	struct two *one = req->data;

	one->status = status;
	one->done = true;
}

static void create_begin(struct fixture *f, struct two *one, unsigned n,
			 uint64_t size)
{
	*one = (struct two){ 0 };
	one->create = (struct dom_create){ .data = one,
					   .oid = uuid_of(n),
					   .size_bytes = size,
					   .policy = "thick" };
	CHECK_EQ(dom_create(f->dom, &one->create, on_one), 0);
}

static void on_other(struct dom_resize *req, int status)
{
	struct two *one = req->data;

	one->status = status;
	one->done = true;
}

static void resize_begin(struct fixture *f, struct two *one, unsigned n,
			 uint64_t size)
{
	*one = (struct two){ 0 };
	one->resize = (struct dom_resize){ .data = one,
					   .oid = uuid_of(n),
					   .size_bytes = size };
	CHECK_EQ(dom_resize(f->dom, &one->resize, on_other), 0);
}

#if RIG_SHARDS == 1
/* Nothing is written: each disk gets its share of them all the same. */
TEST(dom_space, thin_ones_are_spread)
{
	struct fixture *f = fixture_open();
	struct lsom_disk_info info;

	reserve_put(f, "thin", 1, 0);
	for (unsigned n = 50; n < 58; n++) {
		f->oid = uuid_of(n);
		CHECK_EQ(create(f, 4 * MB, "thin"), 0);
	}
	for (unsigned i = 0; i < DISKS; i++) {
		lsom_disk_info(f->disks[i], &info);
		CHECK_EQ(info.components, 4);
	}
	/* A large one is as many of them. */
	f->oid = uuid_of(60);
	CHECK_EQ(create(f, 16 * MB, "thin"), 0);
	for (unsigned n = 61; n < 65; n++) {
		f->oid = uuid_of(n);
		CHECK_EQ(create(f, 4 * MB, "thin"), 0);
	}
	for (unsigned i = 0; i < DISKS; i++) {
		lsom_disk_info(f->disks[i], &info);
		CHECK(info.components == 5 || info.components == 8);
	}
	fixture_close(f);
}
#endif

/* Neither knows of the other by the directory. */
TEST(dom_space, two_at_once)
{
	struct fixture *f = fixture_open();
	struct two two[3];
	uint64_t size = ROUND_DOWN(free_on(f, 0), MB);

	reserve_put(f, "thick", 1, 100);
	for (unsigned i = 0; i < 3; i++)
		create_begin(f, &two[i], 50 + i, size);
	for (unsigned i = 0; i < 3; i++) {
		run(&two[i].done);
		CHECK_EQ(two[i].status, i < 2 ? 0 : -ENOSPC);
	}
	CHECK(strstr(two[2].create.why, " is to be reserved") != NULL);
	CHECK_EQ(kept(f, 0), size);
	CHECK_EQ(kept(f, 1), size);
	fixture_close(f);
}

/* Two objects on one disk, and the room that is left there for one of them. */
static uint64_t two_on_one_disk(struct fixture *f)
{
	uint64_t room = ROUND_DOWN(free_on(f, 0), MB);

	reserve_put(f, "thick", 1, 100);
	CHECK_EQ(object_next(f, 50, room, "thick"), 0);
	CHECK_EQ(object_next(f, 51, 4 * MB, "thick"), 0);
	CHECK_EQ(object_next(f, 52, 4 * MB, "thick"), 0);
	CHECK_EQ(kept(f, 0) + kept(f, 1), room + 8 * MB);
	return room - 8 * MB;
}

/* Two ask for what one can have: the first gets it, the other is told. */
static void one_has_it(struct fixture *f, struct two two[2])
{
	uint64_t all = kept(f, 0) + kept(f, 1);

	for (unsigned i = 0; i < 2; i++) {
		run(&two[i].done);
		CHECK_EQ(two[i].status, i == 0 ? 0 : -ENOSPC);
	}
	CHECK(free_on(f, 0) < MB && free_on(f, 1) < MB);
	CHECK(kept(f, 0) + kept(f, 1) >= all);
}

TEST(dom_space, resizes_at_once)
{
	struct fixture *f = fixture_open();
	uint64_t room = two_on_one_disk(f);
	struct two two[2];

	resize_begin(f, &two[0], 51, 4 * MB + room);
	resize_begin(f, &two[1], 52, 4 * MB + room);
	one_has_it(f, two);
	fixture_close(f);
}

TEST(dom_space, resize_and_create_at_once)
{
	struct fixture *f = fixture_open();
	uint64_t room = two_on_one_disk(f);
	struct two two[2];

	resize_begin(f, &two[0], 51, 4 * MB + room);
	create_begin(f, &two[1], 53, room);
	one_has_it(f, two);
	fixture_close(f);
}

TEST(dom_space, create_and_resize_at_once)
{
	struct fixture *f = fixture_open();
	uint64_t room = two_on_one_disk(f);
	struct two two[2];

	create_begin(f, &two[0], 53, room);
	resize_begin(f, &two[1], 51, 4 * MB + room);
	one_has_it(f, two);
	fixture_close(f);
}

/* One that waits for its turn ends with the dom. */
TEST(dom_space, closed_meanwhile)
{
	struct fixture *f = fixture_open();
	uint64_t room = two_on_one_disk(f);
	struct two two[3];

	create_begin(f, &two[0], 53, room);
	resize_begin(f, &two[1], 51, 4 * MB + room);
	create_begin(f, &two[2], 54, room);
	fixture_close(f);
	for (unsigned i = 0; i < 3; i++)
		CHECK(two[i].done);
	CHECK_EQ(two[1].status, -ESHUTDOWN);
	CHECK_EQ(two[2].status, -ESHUTDOWN);
}

/* ---- cut off, or kept ---- */

static void keep_begin(struct fixture *f, struct two *one, uint64_t size)
{
	*one = (struct two){ 0 };
	one->resize = (struct dom_resize){ .data = one,
					   .oid = f->oid,
					   .size_bytes = size,
					   .keep_data = true };
	CHECK_EQ(dom_resize(f->dom, &one->resize, on_other), 0);
}

/* What is written is told of, what is unmapped is not. */
TEST(dom_space, shrinks_by_what_is_not_written)
{
	struct fixture *f = fixture_open();
	struct dom_io io = { .data = f };
	struct two one;

	reserve_put(f, "thin", 2, 0);
	CHECK_EQ(object_next(f, 50, 16 * MB, "thin"), 0);
	memset(buf_b, 7, MB);
	CHECK_EQ(do_write(f, 0, buf_b, MB, 0, 0), 0);
	CHECK_EQ(do_write(f, 9 * MB + B, buf_b, B, 0, 0), 0);
	keep_begin(f, &one, 9 * MB + B);
	run(&one.done);
	CHECK_EQ(one.status, -ENOTEMPTY);
	CHECK_STR(one.resize.why, "data is written behind the new end");
	CHECK_EQ(dom_object_size(f->object), 16 * MB);
	/* Part of a block is all of it. */
	keep_begin(f, &one, 9 * MB + 2 * B - 512);
	run(&one.done);
	CHECK_EQ(one.status, -ENOTEMPTY);
	keep_begin(f, &one, 9 * MB + 2 * B);
	run(&one.done);
	CHECK_EQ(one.status, 0);
	CHECK_EQ(do_read(f, 9 * MB + B, got, B), 0);
	CHECK(all_is(got, B, 7));
	CHECK_EQ(dom_unmap(f->object, &io, 9 * MB + B, B, on_io), 0);
	CHECK_EQ(wait_for(f), 0);
	/* Behind many holes as well. */
	CHECK_EQ(do_write(f, 4 * MB, buf_b, MB, 0, 0), 0);
	CHECK_EQ(dom_unmap(f->object, &io, 4 * MB, MB - B, on_io), 0);
	CHECK_EQ(wait_for(f), 0);
	keep_begin(f, &one, MB);
	run(&one.done);
	CHECK_EQ(one.status, -ENOTEMPTY);
	CHECK_EQ(dom_unmap(f->object, &io, 4 * MB, MB, on_io), 0);
	CHECK_EQ(wait_for(f), 0);
	keep_begin(f, &one, MB);
	run(&one.done);
	CHECK_EQ(one.status, 0);
	CHECK_EQ(do_read(f, 0, got, MB), 0);
	CHECK(all_is(got, MB, 7));
	fixture_close(f);
}

/* Also when the old end is within a block, and that is all there is. */
TEST(dom_space, shrinks_from_within_a_block)
{
	struct fixture *f = fixture_open();
	struct two one;

	reserve_put(f, "thin", 2, 0);
	for (unsigned i = 0; i < 2; i++) {
		CHECK_EQ(object_next(f, 50 + i, 2 * MB + 512, "thin"), 0);
		if (i > 0)
			CHECK_EQ(do_write(f, 2 * MB, buf_b, 512, 0, 0), 0);
		keep_begin(f, &one, 2 * MB);
		run(&one.done);
		CHECK_EQ(one.status, i > 0 ? -ENOTEMPTY : 0);
	}
	fixture_close(f);
}

/* Writes behind the new end come before, with and after a resize. */
TEST(dom_space, keeps_what_is_written_meanwhile)
{
	struct fixture *f = fixture_open();
	bool kept_some = false, cut_some = false;

	reserve_put(f, "thin", 2, 0);
	CHECK_EQ(object_next(f, 50, 16 * MB, "thin"), 0);
	memset(buf_b, 7, MB);
	for (unsigned turns = 0; turns < 40; turns++) {
		struct req w = { 0 };
		struct two one;
		uint64_t at = 8 * MB + turns % 3 * MB;

		if (turns == 0) { /* it runs when the resize is asked for */
			write_start(f, &w, at, buf_b, B, 0);
			keep_begin(f, &one, 8 * MB);
		} else {
			keep_begin(f, &one, 8 * MB);
			for (unsigned i = 1; i < turns && !one.done; i++)
				shard_step(f->ts.env, 1 * MSEC);
			if (dom_object_size(f->object) > 8 * MB)
				write_start(f, &w, at, buf_b, B, 0);
		}
		run(&one.done);
		if (w.io.data != NULL)
			req_wait(f, &w);
		else
			w.status = -ERANGE;
		CHECK(one.status == 0 || one.status == -ENOTEMPTY);
		CHECK((one.status == 0) == (w.status == -ERANGE));
		CHECK(turns != 0 || one.status == -ENOTEMPTY);
		if (one.status == 0) {
			cut_some = true;
		} else {
			struct dom_io io = { .data = f };

			kept_some = true;
			CHECK_EQ(w.status, 0);
			CHECK_EQ(do_read(f, at, got, B), 0);
			CHECK(all_is(got, B, 7));
			CHECK_EQ(dom_unmap(f->object, &io, at, B, on_io), 0);
			CHECK_EQ(wait_for(f), 0);
		}
		CHECK_EQ(resize_to(f, 16 * MB), 0);
	}
	CHECK(kept_some);
	CHECK(cut_some);
	fixture_close(f);
}

static uint64_t reserved(struct fixture *f)
{
	return cmmds_object(f->cmmds, &f->oid)->reserved_bytes;
}

TEST(dom_space, grows_with_its_object)
{
	struct fixture *f = fixture_open();
	uint64_t room = ROUND_DOWN(free_on(f, 0), MB);

	reserve_put(f, "thick", 1, 100);
	CHECK_EQ(object_next(f, 50, 16 * MB, "thick"), 0);
	CHECK_EQ(resize_to(f, 24 * MB), 0);
	CHECK_EQ(reserved(f), 24 * MB);
	CHECK_EQ(kept(f, 0) + kept(f, 1), 24 * MB);
	/* By as much as is left, and not by more. */
	CHECK_EQ(resize_to(f, room + MB), -ENOSPC);
	CHECK(strstr(f->why, " of it finds no room: disk ") != NULL);
	CHECK_EQ(reserved(f), 24 * MB);
	CHECK_EQ(dom_object_size(f->object), 24 * MB);
	CHECK_EQ(resize_to(f, room), 0);
	CHECK_EQ(kept(f, 0) + kept(f, 1), room);
	CHECK_EQ(resize_to(f, 8 * MB), 0);
	CHECK_EQ(reserved(f), 8 * MB);
	CHECK_EQ(kept(f, 0) + kept(f, 1), 8 * MB);
	/* As the policy is now. */
	reserve_put(f, "thick", 1, 0);
	CHECK_EQ(resize_to(f, 16 * MB), 0);
	CHECK_EQ(reserved(f), 8 * MB);
	CHECK_EQ(kept(f, 0) + kept(f, 1), 8 * MB);
	object_delete(f);
	for (unsigned i = 0; i < 6000 && kept(f, 0) + kept(f, 1) > 0; i++)
		nap(f, 10 * MSEC);
	CHECK_EQ(kept(f, 0) + kept(f, 1), 0);
	fixture_close(f);
}

/* ---- others fill the disks ---- */

TEST(dom_space, written_whole_on_a_full_disk)
{
	struct fixture *f = fixture_open();
	uint64_t at = filled(f), used, left;

	CHECK(dom_object_congestion(f->object) > 240);
	CHECK_EQ(object_back(f, 50), 0);
	CHECK(dom_object_congestion(f->object) < 200);
	dom_object_space(f->object, &used, &left);
	CHECK(left >= 16 * MB);
	CHECK_EQ(write_up(f, 0, 2), 16 * MB);
	/* Again and again, and what is unmapped stays its own. */
	for (uint8_t byte = 3; byte < 6; byte++)
		CHECK_EQ(write_up(f, 0, byte), 16 * MB);
	whole_check(f, 16 * MB, 5);
	CHECK(dom_object_congestion(f->object) < 200);
	CHECK_EQ(object_back(f, 51), 0);
	CHECK_EQ(do_write(f, at, buf_b, MB, 0, 0), -ENOSPC);
	whole_check(f, ROUND_DOWN(at, MB), 1);
	fixture_close(f);
}

/* Many at a time: older versions are in the way, and then are not. */
TEST(dom_space, overwritten_by_many)
{
	enum { MANY = 64 };
	struct fixture *f = fixture_open();
	struct req reqs[MANY];

	filled(f);
	CHECK_EQ(object_back(f, 50), 0);
	CHECK_EQ(write_up(f, 0, 2), 16 * MB);
	memset(buf_b, 9, MB);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < MANY; i++) {
			memset(&reqs[i], 0, sizeof(reqs[i]));
			write_start(f, &reqs[i], i % 16 * MB, buf_b, MB, 0);
		}
		for (unsigned i = 0; i < MANY; i++)
			CHECK_EQ(req_wait(f, &reqs[i]), 0);
	}
	whole_check(f, 16 * MB, 9);
	fixture_close(f);
}

#if RIG_SHARDS == 1
/*
 * One that is deleted keeps nothing, though what it runs has not ended yet; and
 * it goes when that has.
 */
TEST(dom_space, deleted_before_its_writes_end)
{
	struct fixture *f = fixture_open();
	struct req w = { 0 };

	reserve_put(f, "thick", 2, 100);
	CHECK_EQ(object_next(f, 50, 16 * MB, "thick"), 0);
	faults.hold[0] = faults.hold[1] = true;
	write_start(f, &w, 0, buf_b, B, 0);
	object_delete(f);
	nap(f, 50 * MSEC);
	CHECK(!w.done);
	CHECK_EQ(kept(f, 0) + kept(f, 1), 0);
	UNTIL(f, dom__gc_idle(f->dom));
	faults_release();
	req_wait(f, &w);
	for (unsigned i = 0; i < 6000 && cmmds_object(f->cmmds, &f->oid); i++)
		nap(f, 10 * MSEC);
	CHECK(cmmds_object(f->cmmds, &f->oid) == NULL);
	fixture_close(f);
}

static struct rig_held reads_held[64]; /* the cleaner's, too */
static unsigned reads_held_count;

static void readv_held(struct env_dev *dev, struct env_io *io,
		       const struct iovec *iov, unsigned n, uint64_t offset)
{
	CHECK(reads_held_count < ARRAY_LEN(reads_held));
	reads_held[reads_held_count++] = (struct rig_held){
		.dev = dev, .io = io, .iov = iov, .n = n, .offset = offset
	};
}

static void reads_release(void)
{
	faults.ops.dev_readv = faults.real->dev_readv;
	for (unsigned i = 0; i < reads_held_count; i++) {
		const struct rig_held *h = &reads_held[i];

		faults.real->dev_readv(h->dev, h->io, h->iov, h->n, h->offset);
	}
	reads_held_count = 0;
}

/* Nor does one wait for its room whose caller was told. */
TEST(dom_space, nobody_waits_for_room)
{
	struct fixture *f = fixture_open();
	struct lsom_comp *comp;
	struct req late = { 0 };
	unsigned n = 0;

	filled(f);
	CHECK_EQ(object_back(f, 50), 0);
	CHECK_EQ(write_up(f, 0, 2), 16 * MB);
	comp = owner_of(f)
		       ->peers[dom__tree_map(owner_of(f)->tree, 0, B).leaf]
		       .cm->comp;
	faults.ops.dev_readv = readv_held;
	late.io.deadline_ns = env_now(f->ts.env) + 2 * SEC;
	write_start(f, &late, 0, buf_a, 512, 0);
	CHECK_EQ(req_wait(f, &late), -ETIMEDOUT);
	while (lsom_credit_take(comp, 1) == 0)
		n++;
	CHECK_EQ(lsom_credit_take(comp, 1), -EBUSY);
	CHECK_EQ(owner_of(f)->ops_count, 1);
	reads_release();
	UNTIL(f, owner_of(f)->ops_count == 0);
	lsom_credit_return(comp, n);
	whole_check(f, 16 * MB, 2);
	fixture_close(f);
}
#endif

/* ---- without opening ---- */

/* What is mapped, as the object itself says. */
static uint64_t mapped(struct fixture *f)
{
	uint64_t size = dom_object_size(f->object), at = 0, sum = 0;

	while (at < size) {
		struct dom_io io = { .data = f };

		CHECK_EQ(dom_map(f->object, &io, at, size - at, on_io), 0);
		CHECK_EQ(wait_for(f), 0);
		if (io.mapped)
			sum += io.mapped_len;
		at += io.mapped_len;
	}
	return sum;
}

static void on_space(struct dom_space *req, int status)
{
	finish(req->data, status);
}

static int space_of(struct fixture *f, const struct uuid *oid,
		    struct dom_space *req)
{
	*req = (struct dom_space){ .data = f, .oid = *oid };
	dom_space(f->dom, req, on_space);
	return wait_for(f);
}

/*
 * What the disks have counted, once they know: versions are decided a little
 * after their writes, and pages of a life before are counted when asked for.
 */
static void counted_is(struct fixture *f, uint64_t bytes)
{
	struct dom_space space;
	uint64_t used, left = 0;
	unsigned n = 0;

	while (space_of(f, &f->oid, &space) < 0 || space.used_bytes != bytes) {
		nap(f, 10 * MSEC);
		CHECK(n++ < 6000);
	}
	if (f->object == NULL)
		return;
	/*
	 * Each asks the other shard, and tells what that said before; and blocks that
	 * go from one count to another are in both for a moment.
	 */
	while (n++ < 6000) {
		dom_object_space(f->object, &used, &left);
		if (space.kept_bytes == dom_object_kept(f->object) &&
		    space.free_bytes == left)
			break;
		nap(f, 10 * MSEC);
		CHECK_EQ(space_of(f, &f->oid, &space), 0);
	}
	CHECK_EQ(space.free_bytes, left);
	CHECK_EQ(space.kept_bytes, dom_object_kept(f->object));
}

/* Half of it is promised, on both disks. */
static void counted_begin(struct fixture *f)
{
	struct dom_io io = { .data = f };

	reserve_put(f, "half", 2, 50);
	CHECK_EQ(object_next(f, 50, 16 * MB, "half"), 0);
	counted_is(f, 0);
	memset(buf_b, 7, MB);
	CHECK_EQ(do_write(f, 0, buf_b, MB, 0, 0), 0);
	CHECK_EQ(do_write(f, 5 * MB + B, buf_b, MB, 0, 0), 0);
	counted_is(f, 2 * MB);
	/* Over what is there, and beside it. */
	CHECK_EQ(do_write(f, 5 * MB, buf_b, MB, 0, 0), 0);
	counted_is(f, 2 * MB + B);
	CHECK_EQ(dom_unmap(f->object, &io, 5 * MB + 8 * B, 16 * B, on_io), 0);
	CHECK_EQ(wait_for(f), 0);
	counted_is(f, 2 * MB - 15 * B);
	CHECK_EQ(mapped(f), 2 * MB - 15 * B);
}

TEST(dom_space, counted_without_opening)
{
	struct fixture *f = fixture_open();
	struct dom_space space;
	struct uuid oid = uuid_of(49);

	CHECK_EQ(space_of(f, &oid, &space), -ENODATA);
	counted_begin(f);
	oid = f->oid;
	stop(f);
	f->incarnation++;
	start(f, false);
	f->oid = oid;
	counted_is(f, 2 * MB - 15 * B);
	CHECK_EQ(object_open(f), 0);
	counted_is(f, mapped(f));
	object_delete(f);
	CHECK_EQ(space_of(f, &f->oid, &space), -ENODATA);
	fixture_close(f);
}

/* Other objects on its disks are not in it, nor are other disks. */
TEST(dom_space, counted_by_itself)
{
	struct fixture *f = fixture_open();
	struct dom_space space;
	struct uuid oid;

	counted_begin(f);
	oid = f->oid;
	reserve_put(f, "one", 1, 0);
	CHECK_EQ(object_next(f, 60, 16 * MB, "one"), 0);
	CHECK_EQ(do_write(f, 0, buf_b, B, 0, 0), 0);
	counted_is(f, B);
	CHECK_EQ(space_of(f, &f->oid, &space), 0);
	CHECK(space.free_bytes == free_on(f, 0) ||
	      space.free_bytes == free_on(f, 1));
	dom_object_close(f->object);
	f->oid = oid;
	CHECK_EQ(object_open(f), 0);
	counted_is(f, 2 * MB - 15 * B);
	fixture_close(f);
}

#if RIG_SHARDS == 1
/* Of another object, of that type, with the components of @f's and half its size. */
static int space_as(struct fixture *f, unsigned other,
		    Directory__TreeNode__Type type)
{
	const struct cmmds_entry *e =
		cmmds_get(f->cmmds, CMMDS_OBJECT, f->oid.b, sizeof(f->oid.b));
	Directory__Object *o =
		directory__object__unpack(NULL, e->value_len, e->value);
	struct uuid oid = uuid_of(other);
	struct dom_space space;

	directory__owner__free_unpacked(o->owner, NULL);
	o->owner = NULL;
	o->oepoch = 0;
	o->size_bytes /= 2;
	o->reserved_bytes /= 2;
	o->tree->size_bytes /= 2;
	o->tree->type = type;
	memcpy(o->oid.data, oid.b, sizeof(oid.b));
	entry_put(f, CMMDS_OBJECT, oid.b, sizeof(oid.b), &o->base);
	directory__object__free_unpacked(o, NULL);
	return space_of(f, &oid, &space);
}

/* The sum of copies is not what an object uses. */
TEST(dom_space, copies_are_not_counted)
{
	struct fixture *f = fixture_open();

	counted_begin(f);
	CHECK_EQ(space_as(f, 70, DIRECTORY__TREE_NODE__TYPE__RAID0), 0);
	CHECK_EQ(space_as(f, 71, DIRECTORY__TREE_NODE__TYPE__CONCAT), 0);
	CHECK_EQ(space_as(f, 72, DIRECTORY__TREE_NODE__TYPE__RAID1), -ENODATA);
	fixture_close(f);
}
#endif

/* ---- more reserved for an object that there is ---- */

struct promise {
	struct dom_promise req;
	bool done;
	int status;
};

static void on_promise(struct dom_promise *req, int status)
{
	struct promise *p = req->data;

	p->status = status;
	p->done = true;
}

static void promise_begin(struct fixture *f, struct promise *p, unsigned n,
			  uint64_t reserved_bytes)
{
	*p = (struct promise){ .req = { .data = p,
					.oid = uuid_of(n),
					.reserved_bytes = reserved_bytes } };
	CHECK_EQ(dom_promise(f->dom, &p->req, on_promise), 0);
}

/* The answer, once they are counted. */
static int promised(struct fixture *f, struct promise *p, unsigned n,
		    uint64_t reserved_bytes)
{
	for (unsigned i = 0; i < 6000; i++) {
		promise_begin(f, p, n, reserved_bytes);
		run(&p->done);
		if (p->status != -ENODATA)
			return p->status;
		CHECK_STR(p->req.why,
			  "how much of it is written is being counted");
		nap(f, 10 * MSEC);
	}
	return -ENODATA;
}

static void reserved_put(struct fixture *f, unsigned n, uint64_t reserved_bytes)
{
	const struct uuid oid = uuid_of(n);
	Directory__Object o = *cmmds_object(f->cmmds, &oid);

	o.reserved_bytes = reserved_bytes;
	entry_put(f, CMMDS_OBJECT, oid.b, sizeof(oid.b), &o.base);
}

/* Once those who have the disks have heard of it. */
static void kept_is(struct fixture *f, uint64_t bytes)
{
	for (unsigned i = 0; i < 6000 && kept(f, 0) + kept(f, 1) != bytes; i++)
		nap(f, 10 * MSEC);
	CHECK_EQ(kept(f, 0) + kept(f, 1), bytes);
}

/* It is kept for what is not written, whatever the rest was promised before. */
TEST(dom_space, promised_to_one_that_is_written)
{
	struct fixture *f = fixture_open();
	struct promise p;
	uint64_t room;

	reserve_put(f, "thin", 2, 0);
	reserve_put(f, "thick", 1, 100);
	CHECK_EQ(object_next(f, 50, 16 * MB, "thin"), 0);
	memset(buf_b, 7, MB);
	for (unsigned i = 0; i < 6; i++)
		CHECK_EQ(do_write(f, i * MB, buf_b, MB, 0, 0), 0);
	counted_is(f, 6 * MB);
	CHECK_EQ(promised(f, &p, 50, 4 * MB), 0);
	reserved_put(f, 50, 4 * MB);
	dom_promise_end(&p.req);
	kept_is(f, 0);
	/* Of its disks all else is taken, but what it wants and not a block more. */
	room = MIN(free_on(f, 0), free_on(f, 1)) - 5 * MB - B;
	CHECK_EQ(object_next(f, 51, ROUND_DOWN(room, B), "thick"), 0);
	CHECK_EQ(object_next(f, 52, ROUND_DOWN(room, B), "thick"), 0);
	CHECK_EQ(promised(f, &p, 50, 16 * MB), 0);
	dom_promise_end(&p.req); /* its caller does without */
	CHECK_EQ(object_next(f, 53, 2 * B, "thick"), 0);
	CHECK_EQ(object_next(f, 54, 2 * B, "thick"), 0);
	CHECK_EQ(promised(f, &p, 50, 16 * MB), -ENOSPC);
	CHECK(strstr(p.req.why, "12M more is to be reserved, and "
				"5M of it finds no room: disk ") != NULL);
	CHECK_EQ(promised(f, &p, 50, 16 * MB - 4 * B), 0);
	reserved_put(f, 50, 16 * MB - 4 * B);
	dom_promise_end(&p.req);
	kept_is(f, 10 * MB + 2 * ROUND_DOWN(room, B));
	CHECK(free_on(f, 0) <= B && free_on(f, 1) <= B);
	fixture_close(f);
}

/* Until it is seen what became of it, nobody else looks. */
TEST(dom_space, promised_and_created_at_once)
{
	struct fixture *f = fixture_open();
	uint64_t room = two_on_one_disk(f);
	struct promise p, q;
	struct two one;

	promise_begin(f, &p, 49, room);
	run(&p.done);
	CHECK_EQ(p.status, -ENOENT);
	reserve_put(f, "thin", 1, 0);
	CHECK_EQ(object_next(f, 53, room, "thin"), 0);
	CHECK_EQ(promised(f, &p, 53, room), 0);
	create_begin(f, &one, 54, room);
	promise_begin(f, &q, 53, room);
	nap(f, 50 * MSEC);
	CHECK(!one.done && !q.done);
	reserved_put(f, 53, room);
	dom_promise_end(&p.req);
	run(&one.done);
	CHECK_EQ(one.status, -ENOSPC);
	run(&q.done);
	CHECK_EQ(q.status, 0);
	dom_promise_end(&q.req);
	fixture_close(f);
}

TEST(dom_space, promised_while_closing)
{
	struct fixture *f = fixture_open();
	struct promise p[2];

	reserve_put(f, "thin", 2, 0);
	CHECK_EQ(object_next(f, 50, 16 * MB, "thin"), 0);
	counted_is(f, 0);
	promise_begin(f, &p[0], 50, MB);
	promise_begin(f, &p[1], 50, MB);
	run(&p[0].done);
	CHECK_EQ(p[0].status, 0);
	dom_promise_end(&p[0].req);
	fixture_close(f);
	CHECK(p[1].done);
	CHECK_EQ(p[1].status, -ESHUTDOWN);
}

/* ---- deleted for another one ---- */

/* It is deleted in the directory; nobody has waited for what follows. */
static void object_drop(struct fixture *f, unsigned n)
{
	f->oid = uuid_of(n);
	object_delete(f);
}

/* Two thick objects that take both disks, the second one written whole. */
static uint64_t taken(struct fixture *f)
{
	uint64_t room = ROUND_DOWN(free_on(f, 0), MB);

	reserve_put(f, "thick", 1, 100);
	CHECK_EQ(object_next(f, 50, room, "thick"), 0);
	CHECK_EQ(object_next(f, 51, room - 4 * MB, "thick"), 0);
	CHECK_EQ(write_up(f, 0, 1), room - 4 * MB);
	dom_object_close(f->object);
	f->object = NULL;
	return room;
}

/* What is made right behind a deletion gets what that gives back. */
TEST(dom_space, created_behind_a_deletion)
{
	struct fixture *f = fixture_open();
	uint64_t room = taken(f);

	for (unsigned n = 51; n < 55; n++) {
		object_drop(f, n);
		CHECK_EQ(object_next(f, n + 1, room - 4 * MB, "thick"), 0);
		CHECK_EQ(write_up(f, 0, 1), room - 4 * MB);
		dom_object_close(f->object);
		f->object = NULL;
	}
	CHECK_EQ(object_next(f, 56, room, "thick"), -ENOSPC);
	CHECK(strstr(f->why, " of it finds no room: disk ") != NULL);
	fixture_close(f);
}

/* So does what grows, and what more is reserved. */
TEST(dom_space, grown_behind_a_deletion)
{
	struct fixture *f = fixture_open();
	uint64_t room = taken(f);
	struct promise p;

	object_drop(f, 51);
	CHECK_EQ(object_next(f, 52, MB, "thick"), 0);
	CHECK_EQ(object_next(f, 53, room - 8 * MB, "thick"), 0);
	CHECK_EQ(write_up(f, 0, 1), room - 8 * MB);
	dom_object_close(f->object);
	f->object = NULL;
	object_drop(f, 53);
	f->oid = uuid_of(52);
	CHECK_EQ(resize_to(f, room - 8 * MB), 0);
	CHECK_EQ(object_back(f, 52), 0);
	CHECK_EQ(write_up(f, 0, 1), room - 8 * MB);
	reserve_put(f, "thin", 1, 0);
	CHECK_EQ(object_next(f, 54, room - 8 * MB, "thin"), 0);
	counted_is(f, 0);
	dom_object_close(f->object);
	f->object = NULL;
	object_drop(f, 52);
	CHECK_EQ(promised(f, &p, 54, room - 8 * MB), 0);
	dom_promise_end(&p.req);
	fixture_close(f);
}

#if RIG_SHARDS == 1
/* Thick @one waits for what a deletion that does not end would give back. */
static void create_waits(struct fixture *f, struct two *one, uint64_t room)
{
	for (unsigned i = 0; i < DISKS; i++)
		faults.hold[i] = true;
	object_drop(f, 51);
	create_begin(f, one, 52, room - 4 * MB);
	nap(f, 50 * MSEC);
	CHECK(!one->done);
}

/* One that takes long is told of, and is not waited for. */
TEST(dom_space, created_before_a_deletion)
{
	struct fixture *f = fixture_open();
	uint64_t room = taken(f);
	struct two one;

	create_waits(f, &one, room);
	one.create.turn.patience.until_ns = 1;
	run(&one.done);
	CHECK_EQ(one.status, -EBUSY);
	CHECK(strstr(one.create.why, " is still being freed") != NULL);
	faults_release();
	create_begin(f, &one, 52, room - 4 * MB);
	run(&one.done);
	CHECK_EQ(one.status, 0);
	fixture_close(f);
}

/* What a disk that hangs would give back is nobody's before it is back. */
TEST(dom_space, created_beside_a_deletion_that_hangs)
{
	struct fixture *f = fixture_open();
	uint64_t room = taken(f);
	unsigned hangs = free_on(f, 0) < MB ? 1 : 0;

	faults.ops.dev_silent_ns = silent_ns;
	faults.hold[hangs] = silent[hangs] = true;
	object_drop(f, 51);
	UNTIL(f, !dom__gc_idle(f->dom));
	CHECK_EQ(object_next(f, 52, room - 4 * MB, "thick"), -ENOSPC);
	CHECK(strstr(f->why, " of it finds no room: disk ") != NULL);
	faults_release();
	silent[hangs] = false;
	CHECK_EQ(object_next(f, 52, room - 4 * MB, "thick"), 0);
	fixture_close(f);
}

/* One that waits for it ends with the dom. */
TEST(dom_space, closed_before_a_deletion)
{
	struct fixture *f = fixture_open();
	struct two one;

	create_waits(f, &one, taken(f));
	faults_release();
	fixture_close(f);
	CHECK(one.done);
	CHECK_EQ(one.status, -ESHUTDOWN);
}
#endif

/* ---- more than one disk ---- */

/* A write that finds no room on one disk keeps none of the other one's. */
TEST(dom_space, one_of_two_disks_is_full)
{
	struct fixture *f = fixture_open();
	uint64_t stripe, at;
	unsigned n = 0;
	int rv = 0;

	reserve_put(f, "thin", 2, 0);
	CHECK_EQ(object_next(f, 50, 1024 * MB, "thin"), 0);
	stripe = dom_object_stripe_bytes(f->object);
	for (at = stripe; rv == 0; at += 2 * stripe)
		rv = do_write(f, at, buf_b, stripe, 0, 0);
	CHECK_EQ(rv, -ENOSPC);
	at -= 2 * stripe;
	/* More than the first disk has, were it all kept. */
	for (uint64_t sum = 0; sum < 2 * DISK_BYTES; sum += stripe) {
		rv = do_write(f, at - stripe, buf_b, 2 * stripe, 0, 0);
		CHECK_EQ(rv, -ENOSPC);
		n++;
	}
	CHECK(n > 100);
	CHECK_EQ(do_write(f, 0, buf_b, stripe, 0, 0), 0);
	fixture_close(f);
}

/*
 * What an UNMAP has given back is there for the next write, though the disks hear of
 * its decision later.
 */
TEST(dom_space, unmapped_and_written_at_once)
{
	struct fixture *f = fixture_open();
	struct dom_io io = { .data = f };
	uint64_t at;

	reserve_put(f, "thin", 2, 0);
	CHECK_EQ(object_next(f, 50, 1024 * MB, "thin"), 0);
	at = ROUND_UP(write_up(f, 0, 1), 2 * MB);
	for (unsigned n = 0; n < 4; n++, at += 2 * MB) {
		nap(f, 100 * MSEC);
		CHECK_EQ(do_write(f, at, buf_b, 2 * MB, 0, 0), -ENOSPC);
		CHECK_EQ(dom_unmap(f->object, &io, n * 2 * MB, 2 * MB, on_io),
			 0);
		CHECK_EQ(wait_for(f), 0);
		CHECK_EQ(do_write(f, at, buf_b, 2 * MB, 0, 0), 0);
	}
	fixture_close(f);
}
