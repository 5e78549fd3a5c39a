/*
 * What an owner finds when it comes back: kills in mid-write, sizes half changed,
 * a lone copy that lost something.
 */
#include "tests/unit/dom_rig.h"

/* ---- kills ---- */

#define SLOTS 12u
#define SLOT (256u << 10) /* crosses stripes */

static struct {
	volatile uint32_t started[SLOTS], acked[SLOTS];
	volatile bool serving;
} * shared;

struct slot {
	struct fixture *f;
	struct req r;
	unsigned i;
};

/* Values rise: a slot shows the last acknowledged, or one begun since. */
static void slots_forever(struct fixture *f)
{
	static struct req reqs[SLOTS];
	static uint32_t words[SLOT / 4];

	CHECK_EQ(object_open(f), 0);
	memset(reqs, 0, sizeof(reqs));
	shared->serving = true;
	for (;;) {
		for (unsigned i = 0; i < SLOTS; i++) {
			uint32_t v = shared->started[i] + 1;

			if (reqs[i].done) {
				CHECK_EQ(reqs[i].status, 0);
				shared->acked[i] = shared->started[i];
			} else if (reqs[i].io.data != NULL) {
				continue;
			}
			memset(&reqs[i], 0, sizeof(reqs[i]));
			for (size_t k = 0; k < ARRAY_LEN(words); k++)
				words[k] = v;
			shared->started[i] = v;
			write_start(f, &reqs[i], (i + 1ull) * MB - SLOT / 2,
				    (uint8_t *)words, SLOT,
				    i % 3 ? DOM_ATOMIC : 0);
		}
		nap(f, 1 * MSEC);
	}
}

static void slots_check(struct fixture *f)
{
	uint32_t *words = (void *)got;

	start(f, false);
	CHECK_EQ(object_open(f), 0);
	for (unsigned i = 0; i < SLOTS; i++) {
		CHECK_EQ(do_read(f, (i + 1ull) * MB - SLOT / 2, got, SLOT), 0);
		for (size_t k = 0; k < SLOT / 4; k++) {
			CHECK(words[k] >= shared->acked[i]);
			CHECK(words[k] <= shared->started[i]);
			if (i % 3)
				CHECK_EQ(words[k], words[0]);
		}
		/* What a reader saw stays. */
		shared->acked[i] = shared->started[i] = words[0];
		if (i % 3 == 0)
			for (size_t k = 0; k < SLOT / 4; k++) {
				shared->acked[i] =
					MIN(shared->acked[i], words[k]);
				shared->started[i] =
					MAX(shared->started[i], words[k]);
			}
	}
	stop(f);
}

static void striped_object(struct fixture *f)
{
	static uint8_t zeros[MB];

	policy_put(f, 2, 0);
	f->oid = uuid_of(9);
	CHECK_EQ(create(f, SIZE, "p"), 0);
	CHECK_EQ(object_open(f), 0);
	for (unsigned i = 0; i < SLOTS + 1; i++)
		CHECK_EQ(do_write(f, (uint64_t)i * MB, zeros, MB, 0, 0), 0);
}

TEST(dom_recovery, kills_at_random)
{
	struct fixture *f = fixture_new();

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	f->oid = uuid_of(9);
	/*
	 * Room for all of it: RocksDB's threads are none of a child's, so that no
	 * checkpoint ends there, and nothing becomes free.
	 */
	f->disk_bytes = 2ull << 30;
	life(f, true, striped_object);
	srand(17);
	for (unsigned i = 0; i < 8; i++) {
		/* Something is acknowledged in half of the lives at least. */
		uint32_t want = shared->acked[1] + (i % 2 == 0 ? 3 : 0);
		pid_t pid;
		int status;

		shared->serving = false;
		fflush(NULL);
		pid = fork();
		CHECK(pid >= 0);
		if (pid == 0) {
			start(f, false);
			slots_forever(f);
			_exit(1);
		}
		for (unsigned k = 0;
		     k < 60000 && (!shared->serving || shared->acked[1] < want);
		     k++)
			usleep(1000);
		usleep((unsigned)rand() % 80000);
		CHECK_EQ(kill(pid, SIGKILL), 0);
		CHECK_EQ(waitpid(pid, &status, 0), pid);
		CHECK(WIFSIGNALED(status));
		f->incarnation++;
		slots_check(f);
	}
	CHECK(shared->acked[1] > 8);
	munmap(shared, sizeof(*shared));
	free(f);
}

/* ---- sizes ---- */

static void never(struct dom_resize *req, struct cmmds_command *cmd)
{
	cmmds_expect(cmd, CMMDS_POLICY, "nobody", 6, 99);
}

/* What the directory does not let go stays. */
TEST(dom_recovery, refused_resize_loses_nothing)
{
	struct fixture *f = fixture_open();
	struct dom_resize req = { .data = f,
				  .size_bytes = 2 * MB,
				  .commit = never };

	object_make(f, 2);
	req.oid = f->oid;
	CHECK_EQ(do_write(f, SIZE - MB, buf_b, MB, 0, 0), 0);
	CHECK_EQ(dom_resize(f->dom, &req, on_resized), 0);
	CHECK_EQ(wait_for(f), -ENOENT);
	CHECK_EQ(dom_object_size(f->object), SIZE);
	CHECK_EQ(do_read(f, SIZE - MB, got, MB), 0);
	CHECK(all_is(got, MB, 0x5a));
	fixture_close(f);
}

/* Cut within a block, within a stripe: growing again shows zeros. */
TEST(dom_recovery, what_was_cut_stays_away)
{
	const uint64_t sizes[] = { 512, 3 * B + 512, MB, MB + B,
				   MB + 64 * B - 1024 };

	for (unsigned i = 0; i < ARRAY_LEN(sizes); i++) {
		struct fixture *f = fixture_open();

		object_make(f, 2);
		CHECK_EQ(resize_to(f, sizes[i]), 0);
		CHECK_EQ(do_read(f, sizes[i], got, 512), -ERANGE);
		if (i % 2) {
			stop(f);
			start(f, false);
			CHECK_EQ(object_open(f), 0);
		}
		CHECK_EQ(resize_to(f, SIZE), 0);
		CHECK_EQ(do_read(f, 0, got, 2 * MB), 0);
		CHECK(all_is(got, sizes[i], 0xa5));
		CHECK(all_is(got + sizes[i], 2 * MB - sizes[i], 0));
		fixture_close(f);
	}
}

/*
 * What is cut off lies far apart and behind what is unmapped: all of it stays
 * away, and what made it holes is decided.
 */
TEST(dom_recovery, what_was_cut_far_behind_stays_away)
{
	const uint64_t size = 5ull << 30;
	const uint64_t at[] = { 2 * MB - B, 3ull << 30, size - B };

	for (unsigned width = 1; width <= 2; width++) {
		struct fixture *f = fixture_open();
		struct dom_io io = { .data = f };
		struct dom__owner *owner;

		object_make(f, width);
		CHECK_EQ(resize_to(f, size), 0);
		for (unsigned i = 1; i < ARRAY_LEN(at); i++)
			CHECK_EQ(do_write(f, at[i], buf_b, B, 0, 0), 0);
		CHECK_EQ(dom_unmap(f->object, &io, 64 * B, 2 * MB - 65 * B,
				   on_io),
			 0);
		CHECK_EQ(wait_for(f), 0);
		CHECK_EQ(resize_to(f, 64 * B), 0);
		owner = owner_of(f);
		for (unsigned i = 0; i < owner->leaves; i++)
			CHECK_EQ(dom__group_room(&owner->groups[i]),
				 LSOM_WINDOW);
		CHECK_EQ(resize_to(f, size), 0);
		for (unsigned i = 0; i < ARRAY_LEN(at); i++) {
			CHECK_EQ(do_read(f, at[i], got, B), 0);
			CHECK(all_is(got, B, 0));
		}
		CHECK_EQ(do_read(f, 0, got, 64 * B), 0);
		CHECK(all_is(got, 64 * B, 0xa5));
		fixture_close(f);
	}
}

/* Of a row of stripes: the components keep their sizes. */
TEST(dom_recovery, what_was_cut_of_a_row_stays_away)
{
	struct fixture *f = fixture_open();

	object_make(f, 2);
	CHECK_EQ(resize_to(f, 2 * MB), 0);
	CHECK_EQ(resize_to(f, MB), 0);
	CHECK_EQ(resize_to(f, 2 * MB), 0);
	CHECK_EQ(do_read(f, 0, got, 2 * MB), 0);
	CHECK(all_is(got, MB, 0xa5));
	CHECK(all_is(got + MB, MB, 0));
	fixture_close(f);
}

/* ---- a lone copy that lost something ---- */

static void copy(const char *from, const char *to)
{
	char cmd[900];

	snprintf(cmd, sizeof(cmd),
		 "rm -rf '%s' && cp -r --sparse=always "
		 "'%s' '%s'",
		 to, from, to);
	CHECK_EQ(system(cmd), 0);
}

static void disk_out(struct fixture *f, unsigned i)
{
	struct lsom_disk_close req = { .data = f };

	dom_disk_remove(f->dom, f->disks[i], on_done, f);
	CHECK_EQ(wait_for(f), 0);
	CHECK_EQ(lsom_disk_close(f->disks[i], &req, on_disk_closed), 0);
	CHECK_EQ(wait_for(f), 0);
}

static void found(const struct health_check *check,
		  const struct health_result *result, void *arg)
{
	if (strcmp(check->name, "object-data") == 0)
		*(struct health_result *)arg = *result;
}

static void vdisk_put(struct fixture *f, char *name)
{
	Directory__VDisk v = DIRECTORY__VDISK__INIT;

	v.name = name;
	v.oid.data = f->oid.b;
	v.oid.len = sizeof(f->oid.b);
	v.size_bytes = SIZE;
	v.block_bytes = 512;
	v.policy = "p";
	entry_put(f, CMMDS_VDISK, name, strlen(name), &v.base);
}

/*
 * An image of before the object: nothing of it is there, and that is said, by the
 * name that people know.
 */
TEST(dom_recovery, disk_without_the_component)
{
	struct fixture *f = fixture_new();
	char old[DISKS][300];
	struct health_result told = { .level = HEALTH_INFO };

	start(f, true);
	for (unsigned i = 0; i < DISKS; i++) {
		disk_out(f, i);
		snprintf(old[i], sizeof(old[i]), "%s.old", f->dirs[i]);
		copy(f->dirs[i], old[i]);
		disk_in(f, i);
	}
	object_make(f, 2);
	vdisk_put(f, "mail");
	health_each(found, &told);
	CHECK_EQ(told.level, HEALTH_OK);
	dom_object_close(f->object);
	for (unsigned i = 0; i < DISKS; i++)
		disk_out(f, i);
	for (unsigned i = 0; i < DISKS; i++) {
		copy(old[i], f->dirs[i]);
		disk_in(f, i);
	}
	health_each(found, &told);
	CHECK_EQ(told.level, HEALTH_BAD);
	CHECK(strstr(told.cause, "of virtual disk mail (object ") != NULL);
	CHECK(strstr(told.fix, "basalt vdisk delete mail --force") != NULL);
	CHECK_EQ(object_open(f), -ENXIO);
	fixture_close(f);
	for (unsigned i = 0; i < DISKS; i++) {
		char cmd[900];

		snprintf(cmd, sizeof(cmd), "rm -rf '%s'", old[i]);
		CHECK_EQ(system(cmd), 0);
	}
}

/* Restored from an image of yesterday, under a daemon that remembers (R14). */
TEST(dom_recovery, disk_goes_back_in_time)
{
	for (unsigned off = 0; off < 2; off++) {
		struct fixture *f = fixture_new();
		char old[DISKS][300];

		f->rules_off = off ? 1ull << 14 : 0;
		start(f, true);
		object_make(f, 2);
		for (unsigned i = 0; i < DISKS; i++) {
			disk_out(f, i);
			snprintf(old[i], sizeof(old[i]), "%s.old", f->dirs[i]);
			copy(f->dirs[i], old[i]);
			disk_in(f, i);
		}
		CHECK_EQ(do_write(f, 0, buf_b, MB, 0, 0), 0);
		CHECK(!dom_object_lossy(f->object));
		for (unsigned i = 0; i < DISKS; i++)
			disk_out(f, i);
		for (unsigned i = 0; i < DISKS; i++) {
			copy(old[i], f->dirs[i]);
			disk_in(f, i);
		}
		CHECK_EQ(do_read(f, 0, got, MB), 0);
		CHECK(all_is(got, MB, 0xa5));
		CHECK_EQ(dom_object_lossy(f->object), !off);
		CHECK_EQ(do_write(f, 0, buf_b, MB, 0, 0), 0);
		fixture_close(f);
		for (unsigned i = 0; i < DISKS; i++) {
			char cmd[900];

			snprintf(cmd, sizeof(cmd), "rm -rf '%s'", old[i]);
			CHECK_EQ(system(cmd), 0);
		}
	}
}

#define MARKS 60u

static void marks_written(struct fixture *f)
{
	object_make(f, 1);
	for (unsigned i = 0; i < MARKS; i++) {
		memset(buf_b, (int)i, B);
		memcpy(buf_b, "a mark of the test", 18);
		CHECK_EQ(do_write(f, 4 * MB + i * B, buf_b, B, 0, 0), 0);
	}
}

/* The headers before marks @first and the next one: how many are on disk @d. */
static unsigned headers_rot(struct fixture *f, unsigned d, unsigned first)
{
	unsigned hits = 0;
	char path[300];
	uint8_t block[B];
	int fd;

	snprintf(path, sizeof(path), "%s/disk", f->dirs[d]);
	fd = open(path, O_RDWR);
	CHECK(fd >= 0);
	for (off_t at = 0; at < (off_t)DISK_BYTES; at += B) {
		CHECK_EQ(pread(fd, block, B, at), B);
		if (memcmp(block, "a mark of the test", 18) != 0 ||
		    block[B - 1] / 2 != first / 2)
			continue;
		memset(block, 0, B);
		CHECK_EQ(pwrite(fd, block, B, at - B), B);
		hits++;
	}
	close(fd);
	return hits;
}

/*
 * A header in mid-log and its echo are gone: the object stays, and it is said;
 * no block is what it was before, and each is there again when it is written.
 */
TEST(dom_recovery, damage_in_mid_log)
{
	struct fixture *f = fixture_new();
	unsigned hits = 0;
	struct health_result told = { .level = HEALTH_INFO };

	f->oid = uuid_of(9);
	life(f, true, marks_written);
	for (unsigned d = 0; d < DISKS; d++)
		hits += headers_rot(f, d, MARKS / 2);
	CHECK_EQ(hits, 2);
	start(f, false);
	CHECK_EQ(object_open(f), 0);
	CHECK(dom_object_lossy(f->object));
	vdisk_put(f, "mail");
	health_each(found, &told);
	CHECK_EQ(told.level, HEALTH_BAD);
	CHECK(strstr(told.cause, "of virtual disk mail (object ") != NULL);
	for (unsigned i = 0; i < MARKS; i++) {
		int rv = do_read(f, 4 * MB + i * B, got, B);

		CHECK(rv == -EBADMSG || (rv == 0 && got[B - 1] == i));
		CHECK(rv == -EBADMSG || i / 2 != MARKS / 4);
	}
	CHECK_EQ(do_read(f, 4 * MB + MARKS * B, got, B), -EBADMSG);
	/* A part of a block that is lost cannot be merged with the rest. */
	CHECK_EQ(do_write(f, 4 * MB + 512, buf_b, 512, 0, 0), -EBADMSG);
	CHECK_EQ(do_write(f, 4 * MB, buf_b, B, 0, 0), 0);
	CHECK_EQ(do_read(f, 4 * MB, got, B), 0);
	CHECK(memcmp(got, buf_b, B) == 0);
	fixture_close(f);
}

/* All of it is said to be there, and what follows is on the second disk only. */
static void atomic_and_more(struct fixture *f)
{
	object_make(f, 2);
	memcpy(buf_b + SPAN / 2, "a mark of the test", 18);
	buf_b[SPAN / 2 + B - 1] = 0;
	CHECK_EQ(do_write(f, EDGE, buf_b, SPAN, 0, DOM_ATOMIC), 0);
	for (unsigned i = 1; i < 8; i++) {
		memcpy(buf_b, "a mark of the test", 18);
		buf_b[B - 1] = (uint8_t)i;
		CHECK_EQ(do_write(f, MB + SPAN + i * B, buf_b, B, 0, 0), 0);
	}
}

/*
 * Half of an acknowledged atomic command is lost with batches of its disk.  The
 * other half was not known to be decided: it stays, as nobody can say that the
 * lost one was not there.
 */
TEST(dom_recovery, damage_takes_half_of_an_atomic_command)
{
	struct fixture *f = fixture_new();
	struct req r = { 0 };
	unsigned hits = 0;

	f->oid = uuid_of(9);
	life(f, true, atomic_and_more);
	for (unsigned d = 0; d < DISKS; d++)
		hits += headers_rot(f, d, 0);
	CHECK_EQ(hits, 2);
	start(f, false);
	CHECK_EQ(object_open(f), 0);
	CHECK(dom_object_lossy(f->object));
	CHECK_EQ(do_read(f, EDGE, got, SPAN / 2), 0);
	CHECK(all_is(got, SPAN / 2, 0x5a));
	for (unsigned i = 0; i < SPAN / 2; i += B)
		CHECK_EQ(do_read(f, MB + i, got, B), -EBADMSG);
	/* Where that is, is told, wherever a read of it begins. */
	for (unsigned at = EDGE; at <= MB; at += SPAN / 2) {
		r = (struct req){ .io.data = &r };
		CHECK_EQ(dom_read(f->object, &r.io, at, 2 * MB, on_req), 0);
		CHECK_EQ(req_wait(f, &r), -EBADMSG);
		CHECK_EQ(r.io.bad_offset, MB);
	}
	fixture_close(f);
}

/* ---- grown onto a disk that does not take its part ---- */

#define LEG (256ull << 30)
#define GROWN (LEG + SIZE)

static int resize_as(struct fixture *f, const struct dom_resize *like,
		     bool *stored)
{
	struct dom_resize req = *like;
	int rv;

	req.data = f;
	req.oid = f->oid;
	rv = dom_resize(f->dom, &req, on_resized);
	if (rv == 0)
		rv = wait_for(f);
	*stored = req.stored;
	return rv;
}

/* The disk that the object made by object_make(1) is not on. */
static unsigned other_disk(struct fixture *f)
{
	const Directory__TreeNode *tree = cmmds_object(f->cmmds, &f->oid)->tree;
	struct uuid id = uuid_of(100);

	while (tree->leaf == NULL)
		tree = tree->children[0];
	return memcmp(tree->leaf->disk.data, id.b, sizeof(id.b)) == 0;
}

/* The disk is found dead once the directory has the larger size. */
static void grow_in_vain(struct fixture *f, unsigned dead)
{
	struct resize r;

	faults.hold[dead] = true;
	resize_start(f, &r, GROWN, true);
	UNTIL(f, cmmds_object(f->cmmds, &f->oid)->size_bytes == GROWN);
	faults.fail[dead] = true;
	for (unsigned i = 0; i < faults.held_count; i++)
		faults.held[i].offset = 1ull << 60;
	faults_release();
	run(&r.done);
	CHECK(r.status == -ENXIO || r.status == -ENODEV);
	CHECK(r.req.stored);
}

static void fit_and_whole(struct fixture *f, uint64_t size)
{
	CHECK_EQ(dom_object_size(f->object), size);
	CHECK_EQ(cmmds_object(f->cmmds, &f->oid)->size_bytes, size);
	CHECK_EQ(do_read(f, 0, got, B), 0);
	CHECK(all_is(got, B, 0xa5));
}

/* Nobody knew that the disk is dead: the object is opened again as it was. */
TEST(dom_recovery, growth_onto_a_dead_disk)
{
	struct fixture *f = fixture_open();
	struct dom_resize grow = { .size_bytes = GROWN, .keep_data = true };
	struct dom_resize undo = { .size_bytes = SIZE,
				   .keep_data = true,
				   .undo = true };
	bool stored;

	object_make(f, 1);
	grow_in_vain(f, other_disk(f));
	CHECK_EQ(do_read(f, 0, got, B), -ENXIO);
	CHECK_EQ(resize_as(f, &undo, &stored), 0);
	fit_and_whole(f, SIZE);
	CHECK_EQ(do_write(f, SIZE, buf_b, B, 0, 0), -ERANGE);

	/* The dead one is known now, and not chosen again. */
	CHECK_EQ(resize_as(f, &grow, &stored), 0);
	fit_and_whole(f, GROWN);
	CHECK_EQ(do_write(f, LEG, buf_b, B, 0, 0), 0);
	CHECK_EQ(resize_as(f, &undo, &stored), -EALREADY);
	fit_and_whole(f, GROWN);
	CHECK_EQ(do_read(f, LEG, got, B), 0);
	CHECK(all_is(got, B, 0x5a));
	fixture_close(f);
}

/* Who opens it while the directory is told waits for the end of that. */
TEST(dom_recovery, opened_while_it_is_taken_back)
{
	struct fixture *f = fixture_open();
	struct req w = { 0 };
	struct resize r;

	object_make(f, 1);
	grow_in_vain(f, other_disk(f));
	faults.hold_directory = true;
	resize_start(f, &r, SIZE, false);
	UNTIL(f, faults.works_count > 0);
	write_start(f, &w, 0, buf_a, B, 0);
	if (owner_of(f)->again_armed) /* at once */
		env_timer_start(f->ts.env, &owner_of(f)->again_timer, 0);
	nap(f, 10 * MSEC);
	CHECK(!r.done && owner_of(f)->takeover == NULL);
	directory_release();
	run(&r.done);
	CHECK_EQ(r.status, 0);
	CHECK_EQ(req_wait(f, &w), 0);
	fit_and_whole(f, SIZE);
	fixture_close(f);
}

/* The same after a restart, when the disk is away for good. */
TEST(dom_recovery, growth_onto_a_disk_that_goes)
{
	struct fixture *f = fixture_open();
	struct dom_resize back = { .size_bytes = SIZE, .keep_data = true };
	unsigned other;
	bool stored;

	object_make(f, 1);
	other = other_disk(f);
	grow_in_vain(f, other);
	stop(f);
	start(f, false);
	disk_out(f, other);
	CHECK_EQ(object_open(f), -ENXIO);
	/* Not by chance: what is there is cut off. */
	CHECK_EQ(resize_as(f, &back, &stored), -ENXIO);
	back.keep_data = false;
	CHECK_EQ(resize_as(f, &back, &stored), 0);
	CHECK_EQ(object_open(f), 0);
	fit_and_whole(f, SIZE);
	disk_in(f, other);
	fixture_close(f);
}

/* @n of the object's components, from the start. */
static struct lsom_comp_meta *comp_meta(struct fixture *f, unsigned n)
{
	const Directory__TreeNode *node =
		cmmds_object(f->cmmds, &f->oid)->tree->children[n];
	struct lsom_comp *comp = NULL;
	struct uuid cid;

	while (node->leaf == NULL)
		node = node->children[0];
	CHECK(dom__uuid_of(&node->leaf->cid, &cid));
	for (unsigned i = 0; i < DISKS && comp == NULL; i++)
		comp = lsom_comp_get(f->disks[i], &cid);
	CHECK(comp != NULL);
	lsom_comp_put(comp); /* it is there as long as its disk is */
	return (struct lsom_comp_meta *)lsom_comp_meta(comp);
}

/*
 * Two parts are added, and the disk of the second fails under it.  The first may
 * be cut off again, but not where it may be somebody's.
 */
TEST(dom_recovery, growth_of_which_a_part_is_there)
{
	struct fixture *f = fixture_open();
	struct dom_resize back = { .size_bytes = SIZE, .undo = true };
	struct lsom_comp_meta *part, was;
	unsigned dead;
	struct resize r;
	bool stored;

	object_make(f, 1);
	dead = 1 - other_disk(f);
	resize_start(f, &r, 2 * LEG + SIZE, true);
	while (cmmds_object(f->cmmds, &f->oid)->size_bytes == SIZE ||
	       !cmmds_object(f->cmmds, &f->oid)
			->tree->children[1]
			->leaf->created)
		nap(f, 0);
	faults.fail[dead] = true;
	run(&r.done);
	CHECK(r.status < 0 && r.req.stored);

	part = comp_meta(f, 1);
	was = *part;
	part->csn_seen = cmmds_object(f->cmmds, &f->oid)->csn + 1;
	CHECK_EQ(resize_as(f, &back, &stored), -ENXIO);
	CHECK(!stored);
	*part = was;
	part->damaged = 1;
	CHECK_EQ(resize_as(f, &back, &stored), -ENXIO);
	CHECK(!stored);
	*part = was;
	part->max_lsn = LSN(1, 1);
	CHECK_EQ(resize_as(f, &back, &stored), -ENXIO);
	CHECK(!stored);
	*part = was;
	part->stable_lsn = LSN(1, 0);
	CHECK_EQ(resize_as(f, &back, &stored), -ENXIO);
	CHECK(!stored);
	*part = was;
	resize_as(f, &back, &stored);
	CHECK(stored);
	fixture_close(f);
}

/* What came into being is not cut off while nobody can look at it. */
TEST(dom_recovery, closed_with_what_it_has_grown)
{
	static const struct {
		uint64_t size_bytes;
		bool undo, first; /* the disk of the first part is away */
	} tries[] = {
		{ SIZE, true, false },
		{ LEG, false, false },
		{ LEG, false, true },
		{ GROWN - B, false, true },
	};
	struct fixture *f = fixture_open();
	struct dom_resize grow = { .size_bytes = GROWN };
	unsigned other;
	bool stored;

	object_make(f, 1);
	other = other_disk(f);
	CHECK_EQ(resize_as(f, &grow, &stored), 0);
	CHECK_EQ(do_write(f, LEG, buf_b, B, 0, 0), 0);
	for (unsigned i = 0; i < ARRAY_LEN(tries); i++) {
		struct dom_resize back = { .size_bytes = tries[i].size_bytes,
					   .undo = tries[i].undo };
		unsigned away = tries[i].first ? 1 - other : other;

		disk_out(f, away);
		CHECK_EQ(resize_as(f, &back, &stored), -ENXIO);
		CHECK(!stored);
		disk_in(f, away);
	}
	fit_and_whole(f, GROWN);
	CHECK_EQ(do_read(f, LEG, got, B), 0);
	CHECK(all_is(got, B, 0x5a));
	fixture_close(f);
}
