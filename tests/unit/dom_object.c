/*
 * An object on real disks and a real directory: random commands of every size
 * against an array of bytes, striped and not, across clean restarts.
 */
#include "tests/unit/dom_rig.h"

static void compare_all(struct fixture *f, const uint8_t *model)
{
	static uint8_t buf[1 << 20];

	for (uint64_t at = 0; at < SIZE; at += sizeof(buf)) {
		CHECK_EQ(do_read(f, at, buf, sizeof(buf)), 0);
		CHECK(memcmp(buf, model + at, sizeof(buf)) == 0);
	}
}

/* One random command, on the object and on the model. */
static void random_op(struct fixture *f, uint8_t *model)
{
	static uint8_t buf[3 << 20], old[3 << 20];
	size_t max = rand() % 8 == 0 ? sizeof(buf) : 40 * 512;
	size_t len = 512 * (1 + (size_t)rand() % (max / 512));
	uint64_t at = 512 * ((uint64_t)rand() % ((SIZE - len) / 512 + 1));
	struct dom_io io = { .data = f };
	struct sgl *a, *b;

	switch (rand() % 8) {
	case 0:
	case 1:
	case 2:
		fill(buf, len);
		/* Mostly congruent, now and then not. */
		CHECK_EQ(do_write(f, at, buf, len,
				  rand() % 5 ? at : (size_t)rand() % 8 * 512,
				  0),
			 0);
		memcpy(model + at, buf, len);
		break;
	case 3:
		CHECK_EQ(dom_unmap(f->object, &io, at, len, on_io), 0);
		CHECK_EQ(wait_for(f), 0);
		memset(model + at, 0, len);
		break;
	case 4:
		len = MIN(len, 1u << 20);
		fill(buf, len);
		memcpy(old, model + at, len);
		if (rand() % 2)
			old[rand() % (int)len] ^= 1;
		a = bytes_sgl(f, old, len, at);
		b = bytes_sgl(f, buf, len, at);
		CHECK_EQ(dom_compare_and_write(f->object, &io, at, a, b, on_io),
			 0);
		if (wait_for(f) == 0) {
			CHECK(memcmp(old, model + at, len) == 0);
			memcpy(model + at, buf, len);
		} else {
			CHECK_EQ(f->status, -EILSEQ);
			CHECK(old[io.miscompare] != model[at + io.miscompare]);
			CHECK(memcmp(old, model + at, io.miscompare) == 0);
		}
		sgl_put(a);
		sgl_put(b);
		break;
	case 5:
		len = MIN(len, 1u << 20);
		fill(buf, len);
		a = bytes_sgl(f, buf, len, at);
		CHECK_EQ(dom_or_write(f->object, &io, at, a, on_io), 0);
		CHECK_EQ(wait_for(f), 0);
		sgl_put(a);
		for (size_t i = 0; i < len; i++)
			model[at + i] |= buf[i];
		break;
	default:
		CHECK_EQ(do_read(f, at, buf, len), 0);
		CHECK(memcmp(buf, model + at, len) == 0);
	}
}

static void random_model(unsigned width)
{
	struct fixture *f = fixture_open();
	uint8_t *model = calloc(1, SIZE);

	srand(11 + width);
	policy_put(f, width, 0);
	CHECK_EQ(create(f, SIZE, "p"), 0);
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(dom_object_size(f->object), SIZE);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 120; i++)
			random_op(f, model);
		stop(f);
		start(f, false);
		CHECK_EQ(object_open(f), 0);
		compare_all(f, model);
	}
	free(model);
	fixture_close(f);
}

TEST(dom_object, random_commands_one_disk)
{
	random_model(1);
}

TEST(dom_object, random_commands_striped)
{
	random_model(2);
}

TEST(dom_object, edges_and_refusals)
{
	struct fixture *f = fixture_open();
	struct dom_io io = { .data = f };
	uint8_t buf[4096] = { 1 };
	struct sgl *more, *less;

	policy_put(f, 1, 1);
	CHECK_EQ(create(f, SIZE, "p"), -ENXIO);
	CHECK_STR(f->why, "failures to tolerate 1 needs 3 fault domains, "
			  "1 found");
	CHECK_EQ(create(f, SIZE, "unknown"), -ENOENT);
	CHECK_EQ(create(f, SIZE, ""), 0);
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(dom_read(f->object, &io, 100, 512, on_io), -EINVAL);
	CHECK_EQ(dom_read(f->object, &io, 0, 0, on_io), -EINVAL);
	CHECK_EQ(dom_read(f->object, &io, SIZE, 512, on_io), -ERANGE);
	CHECK_EQ(dom_read(f->object, &io, UINT64_MAX - 511, 512, on_io),
		 -ERANGE);
	CHECK_EQ(do_write(f, 0, buf_a, MB + 512, 0, DOM_ATOMIC), -EINVAL);
	more = bytes_sgl(f, buf, 1024, 0);
	less = bytes_sgl(f, buf, 512, 0);
	CHECK_EQ(dom_compare_and_write(f->object, &io, 0, more, less, on_io),
		 -EINVAL);
	CHECK_EQ(dom_compare_and_write(f->object, &io, 0, less, more, on_io),
		 -EINVAL);
	sgl_put(more);
	sgl_put(less);
	CHECK_EQ(do_write(f, 8192, buf, 4096, 0, 0), 0);
	CHECK_EQ(dom_map(f->object, &io, 0, 65536, on_io), 0);
	CHECK_EQ(wait_for(f), 0);
	CHECK(!io.mapped);
	CHECK_EQ(io.mapped_len, 8192);
	CHECK_EQ(dom_map(f->object, &io, 8192 + 512, 65536, on_io), 0);
	CHECK_EQ(wait_for(f), 0);
	CHECK(io.mapped);
	CHECK_EQ(io.mapped_len, 4096 - 512);
	fixture_close(f);
}

/* ---- many at once ---- */

struct adder {
	struct fixture *f;
	struct dom_io io;
	struct sgl *old, *new;
	uint64_t value;
	unsigned left, *running;
};

static void adder_step(struct adder *a);

static void adder_done(struct dom_io *io, int status)
{
	struct adder *a = io->data;

	if (status == 0) {
		a->left--;
		a->value++;
	} else {
		CHECK_EQ(status, -EILSEQ);
		a->value++; /* somebody was faster */
	}
	sgl_put(a->old);
	sgl_put(a->new);
	if (a->left > 0)
		adder_step(a);
	else if (--*a->running == 0)
		finish(a->f, 0);
}

static void adder_step(struct adder *a)
{
	uint64_t buf[64] = { a->value };

	a->io = (struct dom_io){ .data = a };
	a->old = bytes_sgl(a->f, (uint8_t *)buf, 512, 512);
	buf[0]++;
	a->new = bytes_sgl(a->f, (uint8_t *)buf, 512, 512);
	CHECK_EQ(dom_compare_and_write(a->f->object, &a->io, 512, a->old,
				       a->new, adder_done),
		 0);
}

/* A run ends where blocks of the other kind begin, in whichever component. */
static void map_check(struct fixture *f, uint64_t at, uint64_t len, bool mapped,
		      uint64_t end)
{
	for (uint64_t from = at; from < end; from += MB / 2 + B) {
		struct dom_io io = { .data = f };

		CHECK_EQ(dom_map(f->object, &io, from, at + len - from, on_io),
			 0);
		CHECK_EQ(wait_for(f), 0);
		CHECK_EQ(io.mapped, mapped);
		CHECK(io.mapped_len > 0);
		CHECK(from + io.mapped_len <= end);
	}
}

TEST(dom_object, map_of_stripes)
{
	struct fixture *f = fixture_open();

	object_make(f, 2); /* its first 2 MiB are written */
	CHECK_EQ(do_write(f, 5 * MB, buf_a, MB, 0, 0), 0);
	CHECK_EQ(do_write(f, 8 * MB, buf_a, MB, 0, 0), 0);
	map_check(f, 0, 16 * MB, true, 2 * MB);
	map_check(f, 2 * MB, 14 * MB, false, 5 * MB);
	map_check(f, 5 * MB, 11 * MB, true, 6 * MB);
	map_check(f, 6 * MB, 10 * MB, false, 8 * MB);
	map_check(f, 9 * MB, 7 * MB, false, 16 * MB);
	fixture_close(f);
}

/*
 * A counter that goes up by compare-and-write only: each value is reached by
 * exactly one winner, so as many succeed as the counter says.
 */
/* One page over and over, as of a WRITE SAME, over edges of blocks and stripes. */
TEST(dom_object, one_page_many_times)
{
	struct fixture *f = fixture_open();
	struct page *pages[2];
	struct sgl *sgl;

	object_make(f, 2);
	CHECK_EQ(pages_alloc(f->ts.env->pages, PAGE_FRONT, 1, &pages[0]), 0);
	memset(pages[0]->data, 0x77, B);
	pages[1] = page_get(page_zero());
	for (unsigned i = 0; i < 4; i++) {
		uint64_t at = EDGE + (i < 2 ? 0 : 512);
		struct dom_io io = { .data = f };

		sgl = sgl_repeat(f->ts.env->pages, pages[i % 2], SPAN, at % B);
		CHECK(sgl != NULL);
		CHECK_EQ(dom_write(f->object, &io, at, sgl, 0, on_io), 0);
		sgl_put(sgl);
		CHECK_EQ(wait_for(f), 0);
		CHECK_EQ(do_read(f, EDGE - B, got, SPAN + 3 * B), 0);
		CHECK(all_is(got, B, 0xa5));
		CHECK(all_is(got + (at - EDGE + B), SPAN, i % 2 ? 0 : 0x77));
		CHECK(all_is(got + SPAN + 2 * B, B, 0xa5));
	}
	page_put(f->ts.env->pages, pages[0]);
	page_put(f->ts.env->pages, pages[1]);
	fixture_close(f);
}

TEST(dom_object, compare_and_write_counts)
{
	struct fixture *f = fixture_open();
	static struct adder adders[4];
	unsigned running = ARRAY_LEN(adders);
	uint64_t value[64];

	CHECK_EQ(create(f, SIZE, ""), 0);
	CHECK_EQ(object_open(f), 0);
	for (unsigned i = 0; i < ARRAY_LEN(adders); i++) {
		adders[i] = (struct adder){ .f = f,
					    .left = 50,
					    .running = &running };
		adder_step(&adders[i]);
	}
	CHECK_EQ(wait_for(f), 0);
	CHECK_EQ(do_read(f, 512, (uint8_t *)value, 512), 0);
	CHECK_EQ(value[0], 50 * ARRAY_LEN(adders));
	fixture_close(f);
}

/* ---- size and end ---- */

static void on_event(struct dom_watch *watch, enum dom_event event)
{
	*(unsigned *)watch->data |= 1u << event;
}

TEST(dom_object, resize_loses_only_what_is_cut)
{
	struct fixture *f = fixture_open();
	static uint8_t buf[1 << 20], back[1 << 20], zero[1 << 20];
	unsigned events = 0;
	struct dom_watch watch = { .data = &events, .cb = on_event };

	policy_put(f, 2, 0);
	CHECK_EQ(create(f, SIZE, "p"), 0);
	CHECK_EQ(object_open(f), 0);
	dom_object_watch(f->object, &watch);
	fill(buf, sizeof(buf));
	CHECK_EQ(do_write(f, 0, buf, sizeof(buf), 0, 0), 0);
	CHECK_EQ(do_write(f, SIZE - sizeof(buf), buf, sizeof(buf), 0, 0), 0);
	CHECK_EQ(resize_to(f, 2 * SIZE), 0);
	CHECK_EQ(dom_object_size(f->object), 2 * SIZE);
	CHECK_EQ(do_read(f, SIZE - sizeof(buf), back, sizeof(back)), 0);
	CHECK(memcmp(buf, back, sizeof(buf)) == 0);
	CHECK_EQ(do_write(f, 2 * SIZE - sizeof(buf), buf, sizeof(buf), 0, 0),
		 0);
	CHECK_EQ(resize_to(f, 2 << 20), 0);
	CHECK_EQ(do_read(f, 2 << 20, back, 512), -ERANGE);
	CHECK_EQ(resize_to(f, SIZE), 0);
	CHECK_EQ(do_read(f, SIZE - sizeof(buf), back, sizeof(back)), 0);
	CHECK(memcmp(zero, back, sizeof(back)) == 0);
	CHECK_EQ(do_read(f, 0, back, sizeof(back)), 0);
	CHECK(memcmp(buf, back, sizeof(back)) == 0);
	CHECK(events & 1u << DOM_RESIZED);
	dom_object_unwatch(f->object, &watch);
	fixture_close(f);
}

/* Nor does the rest of its last block come back, whichever life it grows in. */
TEST(dom_object, resize_within_a_block)
{
	struct fixture *f = fixture_open();

	object_make(f, 2);
	for (unsigned i = 0; i < 2; i++) {
		CHECK_EQ(do_write(f, 0, buf_a, 2 * MB, 0, 0), 0);
		CHECK_EQ(resize_to(f, MB + 512), 0);
		if (i > 0) {
			stop(f);
			start(f, false);
			CHECK_EQ(object_open(f), 0);
		}
		CHECK_EQ(resize_to(f, SIZE), 0);
		CHECK_EQ(do_read(f, 0, got, 2 * MB), 0);
		CHECK(all_is(got, MB + 512, 0xa5));
		CHECK(all_is(got + MB + 512, MB - 512, 0));
	}
	fixture_close(f);
}

static void on_disk_changed(struct cmmds_command *cmd, int status)
{
	CHECK_EQ(status, 0);
	cmmds_command_fini(cmd);
}

/* On its way when this returns. */
static void disk_erase(struct fixture *f, struct cmmds_command *cmd,
		       const struct uuid *disk)
{
	cmmds_command_init(cmd);
	cmmds_erase(cmd, CMMDS_DISK, disk->b, sizeof(disk->b), CMMDS_ANY);
	CHECK_EQ(cmmds_propose(f->cmmds, cmd, 0, on_disk_changed), 0);
}

/* A disk that goes meanwhile takes no component of an object that is made. */
TEST(dom_object, not_made_on_a_disk_that_goes)
{
	struct fixture *f = fixture_open();
	struct uuid disk = uuid_of(101);
	struct cmmds_command cmd = { 0 };

	policy_put(f, 2, 0);
	disk_erase(f, &cmd, &disk);
	CHECK_EQ(create(f, SIZE, "p"), -ENXIO);
	CHECK(strstr(f->why, "stripe width 2 needs 2 disks") != NULL);
	CHECK(cmmds_object(f->cmmds, &f->oid) == NULL);
	/* Nor one that is not listed. */
	CHECK_EQ(create(f, SIZE, "p"), -ENXIO);
	CHECK_EQ(create(f, SIZE, ""), 0);
	fixture_close(f);
}

/* As by the end of a scrub: what is made is placed anew. */
TEST(dom_object, made_while_its_disks_change)
{
	struct fixture *f = fixture_open();
	struct cmmds_command cmds[DISKS] = { 0 };

	policy_put(f, 2, 0);
	for (unsigned i = 0; i < DISKS; i++) {
		struct uuid id = uuid_of(100 + i);
		const struct cmmds_entry *e =
			cmmds_get(f->cmmds, CMMDS_DISK, id.b, sizeof(id.b));
		Directory__Disk disk = *(const Directory__Disk *)e->message;

		disk.scrubbed_wall_ns++;
		cmmds_command_init(&cmds[i]);
		cmmds_put(&cmds[i], CMMDS_DISK, id.b, sizeof(id.b), e->revision,
			  &disk.base);
		CHECK_EQ(cmmds_propose(f->cmmds, &cmds[i], 0, on_disk_changed),
			 0);
	}
	CHECK_EQ(create(f, SIZE, "p"), 0);
	CHECK_EQ(object_open(f), 0);
	fixture_close(f);
}

/* Where the resize is placed, and its command not on its way yet. */
static struct uuid goes;
static struct cmmds_command goes_cmd;

static void erase_first(struct dom_resize *req, struct cmmds_command *cmd)
{
	disk_erase(req->data, &goes_cmd, &goes);
}

TEST(dom_object, not_grown_onto_a_disk_that_goes)
{
	struct fixture *f = fixture_open();
	const Directory__TreeNode *tree;
	struct dom_resize req = { .data = f,
				  .size_bytes = 300ull << 30,
				  .commit = erase_first };
	struct uuid other;
	int rv;

	CHECK_EQ(create(f, SIZE, ""), 0);
	tree = cmmds_object(f->cmmds, &f->oid)->tree;
	other = uuid_of(100);
	if (memcmp(tree->leaf->disk.data, other.b, sizeof(other)) == 0)
		other = uuid_of(101);
	goes = other;
	req.oid = f->oid;
	CHECK_EQ(dom_resize(f->dom, &req, on_resized), 0);
	rv = wait_for(f);
	/* An owner on another shard may see that it is gone before it chooses. */
	CHECK(rv == -ENOENT || (RIG_SHARDS > 1 && rv == 0));
	/* Nor onto one that is not listed. */
	CHECK_EQ(resize_to(f, 300ull << 30), 0);
	tree = cmmds_object(f->cmmds, &f->oid)->tree;
	CHECK_EQ(tree->n_children, 2);
	CHECK(memcmp(tree->children[1]->leaf->disk.data, other.b,
		     sizeof(other)) != 0);
	fixture_close(f);
}

TEST(dom_object, deleted_object_leaves_nothing)
{
	struct fixture *f = fixture_open();
	struct lsom_disk_info info;
	uint8_t buf[4096] = { 1 };

	CHECK_EQ(create(f, SIZE, ""), 0);
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(do_write(f, 0, buf, sizeof(buf), 0, 0), 0);
	object_delete(f);
	CHECK_EQ(do_read(f, 0, buf, sizeof(buf)), -ENOENT);
	dom_object_close(f->object);
	f->object = NULL;
	for (unsigned i = 0; i < 60000 && cmmds_object(f->cmmds, &f->oid);
	     i++) {
		struct cmmds_barrier barrier = { .data = f };

		CHECK_EQ(cmmds_barrier(f->cmmds, &barrier, on_barrier), 0);
		CHECK_EQ(wait_for(f), 0);
		usleep(1000);
	}
	CHECK(cmmds_object(f->cmmds, &f->oid) == NULL);
	for (unsigned i = 0; i < DISKS; i++) {
		lsom_disk_info(f->disks[i], &info);
		CHECK_EQ(info.components, 0);
	}
	CHECK_EQ(object_open(f), -ENOENT);
	fixture_close(f);
}

/* ---- reservations reach the medium, and survive ---- */

static int reserve(struct fixture *f, struct dom_nexus *nexus, struct dom_pr pr)
{
	struct dom_io io = { .data = f, .nexus = nexus };
	int rv = dom_reserve(f->object, &io, &pr, on_io);

	return rv < 0 ? rv : wait_for(f);
}

static int nexus_write(struct fixture *f, struct dom_nexus *nexus)
{
	struct dom_io io = { .data = f, .nexus = nexus };
	uint8_t buf[512] = { 1 };
	struct sgl *sgl = bytes_sgl(f, buf, sizeof(buf), 0);
	int rv = dom_write(f->object, &io, 0, sgl, 0, on_io);

	sgl_put(sgl);
	return rv < 0 ? rv : wait_for(f);
}

static struct uuid id_of(unsigned n)
{
	struct uuid id = uuid_of(0);

	put_le32(id.b, n);
	return id;
}

/* Many are found by their ids, in whatever order they come and go. */
TEST(dom_object, many_owners_are_found)
{
	enum { MANY = 10000 };
	struct dom__owner **owners = calloc(MANY, sizeof(struct dom__owner *));
	struct fixture *f = fixture_open();
	unsigned longest = 0, live = 0;

	CHECK(owners != NULL);
	for (unsigned i = 0; i < MANY; i++) {
		struct uuid id = id_of(i);

		owners[i] = dom__owner_get(f->dom, &id);
		CHECK(owners[i] != NULL);
	}
	for (unsigned i = 0; i < DOM__BUCKETS; i++) {
		unsigned n = 0;

		for (struct dom__owner *o = f->dom->owners_by_id[i]; o != NULL;
		     o = o->chain)
			n++;
		longest = MAX(longest, n);
		live += n;
	}
	CHECK_EQ(live, MANY);
	CHECK(longest < 20); /* all are looked through for one */
	for (unsigned step = 3; step > 0; step--) {
		for (unsigned i = 0; i < MANY; i += step) {
			if (owners[i] != NULL)
				dom__owner_put(owners[i]);
			owners[i] = NULL;
		}
		nap(f, 0);
		for (unsigned i = 0; i < MANY; i++) {
			struct uuid id = id_of(i);

			CHECK(dom__owner_find(f->dom, &id) == owners[i]);
		}
	}
	free(owners);
	fixture_close(f);
}

static void on_congestion(struct dom_watch *watch, enum dom_event event)
{
	*(unsigned *)watch->data += event == DOM_CONGESTION;
}

/* The disk under the object has another congestion, so many times. */
static void congestion_moves(struct fixture *f, unsigned times)
{
	struct dom__disk *disk =
		dom__disk_find(f->dom, &owner_of(f)->peers[0].leaf->disk);

	for (unsigned i = 0; i < times; i++) {
		disk->congestion ^= 1; /* what lsom says is another one */
		dom__disk_look(disk);
		nap(f, 0);
	}
}

/* Thousands of objects may be open on a disk that few of them use. */
TEST(dom_object, idle_ones_do_not_hear_of_congestion)
{
	struct fixture *f = fixture_open();
	struct dom_watch watch = { .cb = on_congestion };
	struct req r = { 0 };
	unsigned heard = 0;

	if (RIG_SHARDS > 1) { /* dom_far.c has a test of its own */
		fixture_close(f);
		return;
	}
	object_make(f, 1);
	watch.data = &heard;
	nap(f, 0); /* what the write before has still to tell */
	dom_object_watch(f->object, &watch);
	congestion_moves(f, 20);
	CHECK_EQ(heard, 0);
	/* With the next request, and each time while there is one. */
	memset(faults.hold, true, sizeof(faults.hold));
	write_start(f, &r, 0, buf_b, B, 0);
	UNTIL(f, heard > 0);
	congestion_moves(f, 20);
	CHECK(heard >= 21);
	faults_release();
	CHECK_EQ(req_wait(f, &r), 0);
	nap(f, 0);
	heard = 0;
	congestion_moves(f, 20);
	CHECK_EQ(heard, 0);
	dom_object_unwatch(f->object, &watch);
	fixture_close(f);
}

/* Of two initiators. */
static void nexuses_open(struct fixture *f, struct dom_nexus *a,
			 struct dom_nexus *b)
{
	*a = (struct dom_nexus){ .initiator_port = "iqn.a,i,0x000000000001",
				 .target_port = 1 };
	*b = (struct dom_nexus){ .initiator_port = "iqn.b,i,0x000000000002",
				 .target_port = 1 };
	dom_nexus_open(f->object, a);
	dom_nexus_open(f->object, b);
}

static void nexus_close(struct fixture *f, struct dom_nexus *nexus)
{
	dom_nexus_close(f->object, nexus, on_done, f);
	CHECK_EQ(wait_for(f), 0);
}

TEST(dom_object, reservation_survives_and_preempts)
{
	struct fixture *f = fixture_open();
	struct dom_nexus a, b;

	CHECK_EQ(create(f, SIZE, ""), 0);
	CHECK_EQ(object_open(f), 0);
	nexuses_open(f, &a, &b);
	CHECK_EQ(nexus_write(f, &b), 0);
	CHECK_EQ(reserve(f, &a,
			 (struct dom_pr){ .action = DOM_PR_REGISTER,
					  .service_action_key = 17 }),
		 0);
	CHECK_EQ(reserve(f, &a,
			 (struct dom_pr){ .action = DOM_PR_RESERVE,
					  .type = 1,
					  .key = 17 }),
		 0);
	CHECK_EQ(nexus_write(f, &a), 0);
	CHECK_EQ(nexus_write(f, &b), -EPERM);
	nexus_close(f, &a);
	CHECK_EQ(nexus_write(f, &a), -ECANCELED);
	nexus_close(f, &b);
	stop(f);
	start(f, false);
	CHECK_EQ(object_open(f), 0);
	dom_nexus_open(f->object, &a);
	dom_nexus_open(f->object, &b);
	CHECK_EQ(nexus_write(f, &b), -EPERM);
	CHECK_EQ(reserve(f, &b,
			 (struct dom_pr){ .action = DOM_PR_REGISTER,
					  .service_action_key = 18 }),
		 0);
	CHECK_EQ(reserve(f, &b,
			 (struct dom_pr){ .action = DOM_PR_PREEMPT_AND_ABORT,
					  .type = 3,
					  .key = 18,
					  .service_action_key = 17 }),
		 0);
	CHECK_EQ(dom_nexus_attention(f->object, &a),
		 DOM_UA_REGISTRATION_PREEMPTED);
	CHECK_EQ(dom_nexus_attention(f->object, &a), 0);
	CHECK_EQ(nexus_write(f, &a), -EPERM);
	CHECK_EQ(nexus_write(f, &b), 0);
	nexus_close(f, &a);
	nexus_close(f, &b);
	fixture_close(f);
}

/* Which byte of its parameters was wrong is told with the refusal. */
TEST(dom_object, reservation_refused_for_a_byte)
{
	struct fixture *f = fixture_open();
	struct dom_pr pr = { .action = DOM_PR_REGISTER,
			     .service_action_key = 17 };
	struct dom_nexus a, b;
	struct req p = { .io = { .data = &p, .nexus = &a } };

	CHECK_EQ(create(f, SIZE, ""), 0);
	CHECK_EQ(object_open(f), 0);
	nexuses_open(f, &a, &b);
	CHECK_EQ(reserve(f, &a, pr), 0);
	pr = (struct dom_pr){ .action = DOM_PR_PREEMPT, .type = 1, .key = 17 };
	CHECK_EQ(dom_reserve(f->object, &p.io, &pr, on_req), 0);
	CHECK_EQ(req_wait(f, &p), -EINVAL);
	CHECK_EQ(p.io.bad_offset, 8); /* the key of nobody */
	nexus_close(f, &a);
	nexus_close(f, &b);
	fixture_close(f);
}

/* All that is owed until it is asked for, and that once. */
TEST(dom_object, attentions_add_up)
{
	struct fixture *f = fixture_open();
	struct dom_pr pr = { .action = DOM_PR_REGISTER,
			     .service_action_key = 17 };
	struct dom_nexus a, b;

	CHECK_EQ(create(f, SIZE, ""), 0);
	CHECK_EQ(object_open(f), 0);
	nexuses_open(f, &a, &b);
	CHECK_EQ(reserve(f, &a, pr), 0);
	pr.service_action_key = 18;
	CHECK_EQ(reserve(f, &b, pr), 0);
	pr = (struct dom_pr){ .action = DOM_PR_RESERVE, .type = 5, .key = 17 };
	CHECK_EQ(reserve(f, &a, pr), 0);
	pr.action = DOM_PR_RELEASE;
	CHECK_EQ(reserve(f, &a, pr), 0);
	pr.action = DOM_PR_PREEMPT;
	pr.service_action_key = 18;
	CHECK_EQ(reserve(f, &a, pr), 0);
	CHECK_EQ(dom_nexus_attention(f->object, &b),
		 DOM_UA_RESERVATION_RELEASED | DOM_UA_REGISTRATION_PREEMPTED);
	pr.action = DOM_PR_RESERVE;
	CHECK_EQ(reserve(f, &a, pr), 0);
	CHECK_EQ(dom_nexus_attention(f->object, &b), 0);
	nexus_close(f, &a);
	nexus_close(f, &b);
	fixture_close(f);
}

/* Each kind of command at offset 0, of @nexus; below 0: not even sent. */
static int nexus_command(struct fixture *f, struct dom_nexus *nexus,
			 enum dom__op_kind kind)
{
	struct dom_io io = { .data = f, .nexus = nexus };
	uint8_t buf[512] = { 1 };
	struct sgl *sgl = bytes_sgl(f, buf, sizeof(buf), 0);
	int rv = -EINVAL;

	if (kind == DOM__READ)
		rv = dom_read(f->object, &io, 0, 512, on_io);
	else if (kind == DOM__MAP)
		rv = dom_map(f->object, &io, 0, 512, on_io);
	else if (kind == DOM__WRITE)
		rv = dom_write(f->object, &io, 0, sgl, 0, on_io);
	else if (kind == DOM__UNMAP)
		rv = dom_unmap(f->object, &io, 0, 512, on_io);
	else if (kind == DOM__COMPARE)
		rv = dom_compare_and_write(f->object, &io, 0, sgl, sgl, on_io);
	else if (kind == DOM__OR)
		rv = dom_or_write(f->object, &io, 0, sgl, on_io);
	sgl_put(sgl);
	if (rv == 0)
		rv = wait_for(f);
	sgl_put(kind == DOM__READ && rv == 0 ? io.sgl : NULL);
	return rv;
}

/* What only looks at the medium passes where reading does, nothing else. */
TEST(dom_object, reservation_bars_what_changes_the_medium)
{
	static const enum dom__op_kind look[] = { DOM__READ, DOM__MAP };
	static const enum dom__op_kind change[] = { DOM__WRITE, DOM__UNMAP,
						    DOM__COMPARE, DOM__OR };
	struct fixture *f = fixture_open();
	struct dom_pr pr = { .action = DOM_PR_REGISTER,
			     .service_action_key = 17 };
	struct dom_nexus a, b;

	CHECK_EQ(create(f, SIZE, ""), 0);
	CHECK_EQ(object_open(f), 0);
	nexuses_open(f, &a, &b);
	CHECK_EQ(nexus_write(f, &a), 0); /* what COMPARE AND WRITE expects */
	CHECK_EQ(reserve(f, &a, pr), 0);
	for (unsigned type = 1; type <= 3; type += 2) {
		pr = (struct dom_pr){ .action = DOM_PR_RESERVE,
				      .type = (uint8_t)type,
				      .key = 17 };
		CHECK_EQ(reserve(f, &a, pr), 0);
		for (unsigned i = 0; i < ARRAY_LEN(look); i++) {
			CHECK_EQ(nexus_command(f, &a, look[i]), 0);
			CHECK_EQ(nexus_command(f, &b, look[i]),
				 type == 1 ? 0 : -EPERM);
		}
		for (unsigned i = 0; i < ARRAY_LEN(change); i++)
			CHECK_EQ(nexus_command(f, &b, change[i]), -EPERM);
		CHECK_EQ(nexus_command(f, &a, DOM__COMPARE), 0);
		pr.action = DOM_PR_RELEASE;
		CHECK_EQ(reserve(f, &a, pr), 0);
	}
	nexus_close(f, &a);
	nexus_close(f, &b);
	fixture_close(f);
}

/* Reserved as in SPC-2, until the nexus ends: at once, and for good. */
TEST(dom_object, reservation_ends_with_its_nexus)
{
	struct fixture *f = fixture_open();
	struct dom_nexus a, b;

	CHECK_EQ(create(f, SIZE, ""), 0);
	CHECK_EQ(object_open(f), 0);
	nexuses_open(f, &a, &b);
	CHECK_EQ(reserve(f, &a, (struct dom_pr){ .action = DOM_SPC2_RESERVE }),
		 0);
	CHECK_EQ(nexus_write(f, &b), -EPERM);
	nexus_close(f, &a);
	CHECK(dom_access_allowed(f->object, &b, DOM_ACCESS_WRITE));
	CHECK_EQ(nexus_write(f, &b), 0);
	nexus_close(f, &b);
	stop(f);
	start(f, false);
	CHECK_EQ(object_open(f), 0);
	dom_nexus_open(f->object, &b);
	CHECK_EQ(nexus_write(f, &b), 0);
	CHECK_EQ(reserve(f, &b,
			 (struct dom_pr){ .action = DOM_PR_REGISTER,
					  .service_action_key = 18 }),
		 0);
	nexus_close(f, &b);
	fixture_close(f);
}

/* But not while the same ports are a nexus yet: of another unit that shows it. */
TEST(dom_object, reservation_of_a_nexus_twice)
{
	struct fixture *f = fixture_open();
	struct dom_nexus a, b, twin;

	CHECK_EQ(create(f, SIZE, ""), 0);
	CHECK_EQ(object_open(f), 0);
	nexuses_open(f, &a, &b);
	twin = (struct dom_nexus){ .target_port = a.target_port };
	strcpy(twin.initiator_port, a.initiator_port);
	dom_nexus_open(f->object, &twin);
	CHECK_EQ(reserve(f, &a, (struct dom_pr){ .action = DOM_SPC2_RESERVE }),
		 0);
	nexus_close(f, &twin);
	CHECK_EQ(nexus_write(f, &b), -EPERM);
	CHECK_EQ(nexus_write(f, &a), 0);
	nexus_close(f, &a);
	CHECK_EQ(nexus_write(f, &b), 0);
	nexus_close(f, &b);
	fixture_close(f);
}

/* A handle may be closed while its nexuses are closing: they end all the same. */
TEST(dom_object, closed_before_its_nexuses)
{
	struct fixture *f = fixture_open();
	struct dom_nexus a, b;
	struct req w = { .io.nexus = &a };

	CHECK_EQ(create(f, SIZE, ""), 0);
	for (unsigned i = 0; i < 10; i++) {
		CHECK_EQ(object_open(f), 0);
		nexuses_open(f, &a, &b);
		w.done = false;
		write_start(f, &w, 0, buf_b, B, 0);
		CHECK_EQ(req_wait(f, &w), 0);
		dom_nexus_close(f->object, &a, NULL, NULL);
		dom_nexus_close(f->object, &b, on_done, f);
		CHECK_EQ(nexus_write(f, &a), -ECANCELED); /* late */
		dom_object_close(f->object);
		f->object = NULL;
		CHECK_EQ(wait_for(f), 0);
		CHECK_EQ(a.generation, 0);
	}
	fixture_close(f);
}

/* What the directory still has of it nobody takes up, the same port neither. */
TEST(dom_object, reservation_does_not_come_back)
{
	struct fixture *f = fixture_open();
	struct dom_nexus a, b;

	CHECK_EQ(create(f, SIZE, ""), 0);
	CHECK_EQ(object_open(f), 0);
	nexuses_open(f, &a, &b);
	CHECK_EQ(reserve(f, &a, (struct dom_pr){ .action = DOM_SPC2_RESERVE }),
		 0);
	nexus_close(f, &a);
	dom_nexus_open(f->object, &a);
	CHECK_EQ(nexus_write(f, &b), 0);
	CHECK_EQ(resize_to(f, 2 * SIZE), 0); /* loads it again */
	CHECK_EQ(nexus_write(f, &b), 0);
	/* One that is held stays over it; one that another life held does not */
	CHECK_EQ(reserve(f, &a, (struct dom_pr){ .action = DOM_SPC2_RESERVE }),
		 0);
	CHECK_EQ(resize_to(f, 3 * SIZE), 0);
	CHECK_EQ(nexus_write(f, &b), -EPERM);
	nexus_close(f, &a);
	nexus_close(f, &b);
	stop(f);
	start(f, false);
	CHECK_EQ(object_open(f), 0);
	dom_nexus_open(f->object, &a);
	dom_nexus_open(f->object, &b);
	CHECK_EQ(resize_to(f, 4 * SIZE), 0);
	CHECK_EQ(nexus_write(f, &b), 0);
	nexus_close(f, &a);
	nexus_close(f, &b);
	fixture_close(f);
}
