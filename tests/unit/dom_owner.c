/*
 * The life of an owner: what waits for it is answered, whatever ends meanwhile.
 */
#include "base/health.h"
#include "tests/unit/dom_refuse.h"

/* A collection is asked for when the room has been told to look at its end. */
TEST(dom_owner, closed_with_a_collection_asked_for)
{
	struct fixture *f = fixture_open();

	nap(f, 20 * MSEC);
	dom__kick(f->dom);
	dom__gc_kick(f->dom);
	fixture_close(f);
}

/* A resize waits for a write to end, and the object is deleted. */
TEST(dom_owner, deleted_under_a_resize)
{
	struct fixture *f = fixture_open();
	struct req w = { 0 };
	struct resize r;

	object_make(f, 1);
	faults.hold[0] = faults.hold[1] = true;
	write_start(f, &w, 0, buf_b, B, 0);
	resize_start(f, &r, 2ull * SIZE, true);
	UNTIL(f, owner_of(f)->resize != NULL);
	nap(f, 50 * MSEC);
	CHECK(!r.done);
	object_delete(f);
	faults_release();
	req_wait(f, &w);
	run(&r.done);
	CHECK_EQ(r.status, -ENOENT);
	fixture_close(f);
}

/* A collection comes by while the owner of what is deleted has a write there. */
TEST(dom_owner, deleted_under_a_write)
{
	struct fixture *f = fixture_open();
	struct req w = { 0 };

	object_make(f, 1);
	nap(f, 50 * MSEC);
	faults.hold[0] = faults.hold[1] = true;
	write_start(f, &w, 0, buf_b, B, 0);
	object_delete(f);
	nap(f, 50 * MSEC);
	dom__gc_kick(f->dom);
	nap(f, 50 * MSEC);
	CHECK(owner_of(f)->leaves > 0);
	UNTIL(f, dom__gc_idle(f->dom)); /* it has nothing to wait for */
	faults_release();
	CHECK_EQ(req_wait(f, &w), 0);
	fixture_close(f);
}

/* @group has issued and decided so many lsns as nobody waits for. */
static void lsns_issued(struct dom__group *group, uint64_t seq)
{
	CHECK_EQ(group->decided.stable_lsn, group->next_lsn - 1);
	group->next_lsn = LSN(LSN_OEPOCH(group->next_lsn), seq + 1);
	group->decided.stable_lsn = group->next_lsn - 1;
	group->dirty = true;
}

/*
 * R34: an epoch has 2^40 lsns.  Another one begins before they run out, under
 * writes, and none of them fails or is older than what it was to replace.
 */
TEST(dom_owner, another_epoch_before_its_lsns_run_out)
{
	struct fixture *f = fixture_open();
	static struct req w[8];
	struct dom__owner *owner;
	uint32_t oepoch;

	object_make(f, 1);
	memset(buf_a, 0x11, sizeof(buf_a));
	CHECK_EQ(do_write(f, 0, buf_a, 8ull * B, 0, 0), 0);
	owner = owner_of(f);
	oepoch = owner->oepoch;
	lsns_issued(&owner->groups[0], (1ull << 39) - 4);
	memset(buf_b, 0x22, sizeof(buf_b));
	for (unsigned i = 0; i < ARRAY_LEN(w); i++)
		write_start(f, &w[i], (uint64_t)i * B, buf_b, B, 0);
	for (unsigned i = 0; i < ARRAY_LEN(w); i++)
		CHECK_EQ(req_wait(f, &w[i]), 0);
	UNTIL(f, owner->oepoch == oepoch + 1 && owner->state == DOM__READY);
	CHECK_EQ(do_write(f, 7ull * B, buf_a, B, 0, 0), 0);
	CHECK(LSN_SEQ(owner->groups[0].next_lsn) < 100);
	CHECK_EQ(LSN_OEPOCH(owner->groups[0].next_lsn), oepoch + 1);

	stop(f);
	start(f, false);
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(do_read(f, 0, got, 8ull * B), 0);
	CHECK(all_is(got, 7ul * B, 0x22));
	CHECK(all_is(got + 7ul * B, B, 0x11));
	fixture_close(f);
}

/* ---- a directory that takes its time ---- */

static void on_flag(void *arg)
{
	*(bool *)arg = true;
}

/* As many as it takes, of no effect, and held up by works that are. */
static struct {
	struct cmmds_command cmds[256];
	unsigned count, answered;
	bool stays; /* each comes again as soon as it is answered */
} crowd;

static int crowd_ask(struct fixture *f, struct cmmds_command *cmd);

static void on_any(struct cmmds_command *cmd, int status)
{
	if (crowd.stays) {
		cmmds_command_fini(cmd);
		CHECK_EQ(crowd_ask(cmd->data, cmd), 0);
	} else {
		crowd.answered++;
	}
}

static int crowd_ask(struct fixture *f, struct cmmds_command *cmd)
{
	cmmds_command_init(cmd);
	cmd->data = f;
	cmmds_erase(cmd, CMMDS_POLICY, "none", 4, 1);
	return cmmds_propose(f->cmmds, cmd, 0, on_any);
}

static void crowd_in(struct fixture *f)
{
	memset(&crowd, 0, sizeof(crowd));
	for (; crowd.count < ARRAY_LEN(crowd.cmds); crowd.count++)
		if (crowd_ask(f, &crowd.cmds[crowd.count]) < 0)
			break;
	cmmds_command_fini(&crowd.cmds[crowd.count]);
	CHECK(crowd.count > 0);
	CHECK(crowd.count < ARRAY_LEN(crowd.cmds));
}

static void crowd_out(struct fixture *f)
{
	for (unsigned i = 0; i < 6000 && crowd.answered < crowd.count; i++)
		nap(f, 10 * MSEC);
	CHECK_EQ(crowd.answered, crowd.count);
	for (unsigned i = 0; i < crowd.count; i++)
		cmmds_command_fini(&crowd.cmds[i]);
}

/* The command is on its way when a takeover fails: only its answer ends it. */
TEST(dom_owner, takeover_fails_under_a_resize)
{
	struct fixture *f = fixture_open();
	bool removed = false;
	struct resize r;

	object_make(f, 1);
	faults.hold_directory = true;
	resize_start(f, &r, 2ull * SIZE, true);
	UNTIL(f, owner_of(f)->resize != NULL);
	/* No more commands are taken: the owner cannot even release. */
	crowd_in(f);
	for (unsigned i = 0; i < DISKS; i++) {
		removed = false;
		dom_disk_remove(f->dom, f->disks[i], on_flag, &removed);
		run(&removed);
	}
	nap(f, 20 * MSEC);
	CHECK(!r.done);
	directory_release();
	run(&r.done);
	crowd_out(f);
	dom_object_close(f->object);
	f->object = NULL;
	for (unsigned i = 0; i < DISKS; i++)
		dom_disk_add(f->dom, f->disks[i]);
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(do_read(f, 0, got, 2 * MB), 0);
	CHECK(all_is(got, 2 * MB, 0xa5));
	fixture_close(f);
}

/* Busy is no failure: they come to it by and by. */
TEST(dom_owner, a_directory_too_busy_for_a_change)
{
	struct fixture *f = fixture_open();
	struct dom_create create = { .data = f,
				     .oid = uuid_of(8),
				     .size_bytes = SIZE };
	struct dom_pr pr = { .action = DOM_PR_REGISTER,
			     .service_action_key = 1 };
	struct dom_nexus nexus = { .initiator_port = "iqn.x,i,0x1" };
	struct req reserve = { .io = { .data = &reserve, .nexus = &nexus } };
	struct resize r;

	object_make(f, 1);
	dom_nexus_open(f->object, &nexus);
	faults.hold_directory = true;
	crowd_in(f);
	CHECK_EQ(dom_reserve(f->object, &reserve.io, &pr, on_req), 0);
	resize_start(f, &r, 2ull * SIZE, true);
	CHECK_EQ(dom_create(f->dom, &create, on_created), 0);
	nap(f, 50 * MSEC);
	CHECK(!r.done);
	CHECK(!f->done);
	CHECK(!reserve.done);
	directory_release();
	CHECK_EQ(req_wait(f, &reserve), 0);
	run(&r.done);
	CHECK_EQ(r.status, 0);
	CHECK_EQ(wait_for(f), 0);
	CHECK_EQ(dom_object_size(f->object), 2ull * SIZE);
	CHECK_EQ(dom_reservation(f->object)->registrations_count, 1);
	dom_nexus_close(f->object, &nexus, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	crowd_out(f);
	fixture_close(f);
}

/* A resize to @size is under way for @turns turns, and the node stops. */
static void close_under_a_resize(struct fixture *f, unsigned turns,
				 uint64_t size)
{
	struct resize r;

	dom_object_close(f->object);
	f->object = NULL;
	resize_start(f, &r, size, true);
	for (unsigned i = 0; i < turns && !r.done; i++)
		shard_step(f->ts.env, 100 * MSEC);
	stop(f);
	CHECK(r.done);
	CHECK(r.status == 0 || r.status == -ESHUTDOWN || r.status == -ENXIO);
	start(f, false);
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(do_read(f, 0, got, 2 * MB), 0);
	CHECK(all_is(got, 2 * MB, 0xa5));
}

/* At every step of it, larger and smaller. */
TEST(dom_owner, closed_under_a_resize)
{
	struct fixture *f = fixture_open();

	object_make(f, 1);
	for (unsigned turns = 0; turns < 16; turns++)
		close_under_a_resize(f, turns, (turns + 2ull) * SIZE);
	for (unsigned turns = 0; turns < 16; turns++)
		close_under_a_resize(f, turns, (16ull - turns) * SIZE);
	fixture_close(f);
}

/* A disk leaves while owners take over, at every step of it. */
TEST(dom_owner, disk_leaves_under_a_takeover)
{
	struct fixture *f = fixture_open();

	object_make(f, 2);
	for (unsigned turns = 0; turns < 16; turns++) {
		struct dom_object_open req = { .data = f };
		struct lsom_disk_close close = { .data = f };
		bool removed = false;

		stop(f);
		start(f, false);
		CHECK_EQ(dom_object_open(f->dom, &req, &f->oid, on_opened), 0);
		for (unsigned i = 0; i < turns && !f->done; i++)
			shard_step(f->ts.env, 100 * MSEC);
		dom_disk_remove(f->dom, f->disks[0], on_flag, &removed);
		run(&removed);
		wait_for(f);
		CHECK(f->status == 0 || f->status == -ENXIO);
		CHECK_EQ(lsom_disk_close(f->disks[0], &close, on_disk_closed),
			 0);
		CHECK_EQ(wait_for(f), 0);
		disk_in(f, 0);
		if (f->object == NULL)
			CHECK_EQ(object_open(f), 0);
		CHECK_EQ(do_read(f, 0, got, 2 * MB), 0);
		CHECK(all_is(got, 2 * MB, 0xa5));
	}
	fixture_close(f);
}

/* ---- a disk that hangs, and then fails ---- */

static struct rig_held held_reads[64];
static unsigned held_reads_count;

static void readv_held(struct env_dev *dev, struct env_io *io,
		       const struct iovec *iov, unsigned n, uint64_t offset)
{
	CHECK(held_reads_count < ARRAY_LEN(held_reads));
	held_reads[held_reads_count++] = (struct rig_held){
		.dev = dev, .io = io, .iov = iov, .n = n, .offset = offset
	};
}

/*
 * A command whose caller was told waits for the window of a component, and that
 * can take no more records: it ends all the same.
 */
TEST(dom_owner, window_of_a_component_that_failed)
{
	struct fixture *f = fixture_open();
	static struct req reqs[LSOM_WINDOW / 3 + 1];
	struct req slow = { 0 }, last = { 0 };
	unsigned done = 0;

	memset(reqs, 0, sizeof(reqs));
	object_make(f, 1);
	faults.hold[0] = faults.hold[1] = true;
	faults.ops.dev_readv = readv_held;
	slow.io.deadline_ns = env_now(f->ts.env) + 2 * SEC;
	write_start(f, &slow, 512, buf_b, 512, 0);
	for (unsigned i = 0; i < ARRAY_LEN(reqs); i++) {
		reqs[i].io.data = &reqs[i];
		reqs[i].count = &done;
		/* Three records: a block, a hole, a block. */
		CHECK_EQ(dom_unmap(f->object, &reqs[i].io,
				   4 * MB + (uint64_t)i * 4 * B + 512,
				   3 * B - 1024, on_req),
			 0);
	}
	write_start(f, &last, 3 * MB, buf_b, B, 0); /* 1024 in all */
	CHECK_EQ(req_wait(f, &slow), -ETIMEDOUT);
	CHECK(!TAILQ_EMPTY(&owner_of(f)->window));
	faults.ops.dev_readv = faults.real->dev_readv;
	CHECK_EQ(held_reads_count, 1);
	faults.real->dev_readv(held_reads[0].dev, held_reads[0].io,
			       held_reads[0].iov, held_reads[0].n,
			       held_reads[0].offset);
	UNTIL(f, TAILQ_LAST(&owner_of(f)->window, dom__op_list)->io == NULL);
	faults.fail[0] = faults.fail[1] = true;
	for (unsigned i = 0; i < faults.held_count; i++)
		faults.held[i].offset = 1ull << 60;
	faults_release();
	for (unsigned i = 0; i < ARRAY_LEN(reqs); i++)
		CHECK(req_wait(f, &reqs[i]) < 0);
	CHECK(req_wait(f, &last) < 0);
	UNTIL(f, owner_of(f)->ops_count == 0);
	fixture_close(f);
}

/* ---- a log that is full of others' requests ---- */

/* Busy is no failure: components are sealed and deleted once there is room. */
TEST(dom_owner, opens_and_deletes_while_the_log_is_busy)
{
	struct fixture *f = fixture_open();
	struct dom_object *objects[16];
	static struct req reqs[16 * 1000];
	struct dom_object_open open = { .data = f };
	struct sgl *sgl = bytes_sgl(f, buf_b, B, 0);
	struct uuid sealed = uuid_of(8), deleted = uuid_of(7);

	memset(reqs, 0, sizeof(reqs));
	policy_put(f, 2, 0);
	f->oid = deleted;
	CHECK_EQ(create(f, SIZE, "p"), 0);
	f->oid = sealed;
	CHECK_EQ(create(f, SIZE, "p"), 0);
	for (unsigned i = 0; i < ARRAY_LEN(objects); i++) {
		f->oid = uuid_of(20 + i);
		CHECK_EQ(create(f, SIZE, "p"), 0);
		CHECK_EQ(object_open(f), 0);
		objects[i] = f->object;
	}
	/* The first owners go. */
	UNTIL(f, dom__owner_find(f->dom, &sealed) == NULL &&
			 dom__owner_find(f->dom, &deleted) == NULL);
	faults.hold[0] = faults.hold[1] = true;
	for (unsigned i = 0; i < ARRAY_LEN(reqs); i++) {
		/* Half of it on each disk. */
		reqs[i].io.data = &reqs[i];
		CHECK_EQ(dom_write(objects[i / 1000], &reqs[i].io,
				   i % 1000 / 2 * B + i % 2 * 3ull * MB, sgl, 0,
				   on_req),
			 0);
	}
	sgl_put(sgl);
	nap(f, 100 * MSEC);
	f->oid = deleted;
	object_delete(f);
	f->oid = sealed;
	CHECK_EQ(dom_object_open(f->dom, &open, &f->oid, on_opened), 0);
	nap(f, 100 * MSEC);
	CHECK(!f->done);
	faults_release();
	CHECK_EQ(wait_for(f), 0);
	for (unsigned i = 0; i < ARRAY_LEN(reqs); i++)
		CHECK_EQ(req_wait(f, &reqs[i]), 0);
	for (unsigned i = 0; i < 6000 && cmmds_object(f->cmmds, &deleted); i++)
		nap(f, 10 * MSEC);
	CHECK(cmmds_object(f->cmmds, &deleted) == NULL);
	for (unsigned i = 0; i < ARRAY_LEN(objects); i++)
		dom_object_close(objects[i]);
	fixture_close(f);
}

/* ---- what is deleted ---- */

/* Deleted while its components are made: the takeover ends, and they go. */
TEST(dom_owner, deleted_under_its_creation)
{
	struct fixture *f = fixture_open();
	struct dom_create req = {
		.data = f, .oid = uuid_of(9), .size_bytes = SIZE, .policy = "p"
	};
	struct lsom_disk_info info;

	policy_put(f, 2, 0);
	faults.hold[0] = faults.hold[1] = true;
	CHECK_EQ(dom_create(f->dom, &req, on_created), 0);
	f->oid = req.oid;
	while (owner_of(f) == NULL || owner_of(f)->leaves == 0)
		nap(f, MSEC);
	object_delete(f);
	nap(f, 100 * MSEC);
	CHECK(!f->done);
	faults_release();
	CHECK(wait_for(f) < 0);
	for (unsigned i = 0; i < 6000 && cmmds_object(f->cmmds, &f->oid); i++)
		nap(f, 10 * MSEC);
	CHECK(cmmds_object(f->cmmds, &f->oid) == NULL);
	for (unsigned i = 0; i < DISKS; i++) {
		lsom_disk_info(f->disks[i], &info);
		CHECK_EQ(info.components, 0);
	}
	fixture_close(f);
}

static unsigned components(struct fixture *f)
{
	struct lsom_disk_info info;
	unsigned n = 0;

	for (unsigned i = 0; i < DISKS; i++) {
		lsom_disk_info(f->disks[i], &info);
		n += info.components;
	}
	return n;
}

static void gone_wait(struct fixture *f)
{
	for (unsigned i = 0; i < 6000 && cmmds_object(f->cmmds, &f->oid); i++)
		nap(f, 10 * MSEC);
	CHECK(cmmds_object(f->cmmds, &f->oid) == NULL);
}

/* From now on the directory is full of others' commands; @f's is deleted. */
static void delete_and_crowd(struct fixture *f)
{
	struct cmmds_command *last;

	faults.hold_directory = true;
	crowd_in(f);
	directory_release();
	crowd_out(f);
	faults.hold_directory = true;
	crowd.answered = 0;
	last = &crowd.cmds[--crowd.count]; /* its place is for the deletion */
	for (unsigned i = 0; i < crowd.count; i++)
		CHECK_EQ(crowd_ask(f, &crowd.cmds[i]), 0);
	crowd.stays = true;
	directory_release();
	object_delete(f);
	CHECK_EQ(crowd_ask(f, last), 0);
	crowd.count++;
}

/* Until they go there is no room for what erases its entry. */
static void gone_behind_the_crowd(struct fixture *f)
{
	for (unsigned i = 0; i < 6000 && components(f) > 0; i++)
		nap(f, 10 * MSEC);
	CHECK_EQ(components(f), 0);
	nap(f, 100 * MSEC);
	UNTIL(f, dom__gc_idle(f->dom));
	CHECK(cmmds_object(f->cmmds, &f->oid) != NULL);
	crowd.stays = false;
	crowd_out(f);
	gone_wait(f);
}

/* No room for the command that erases its entry: there is another try. */
TEST(dom_owner, deleted_while_the_directory_is_busy)
{
	struct fixture *f = fixture_open();

	policy_put(f, 1, 0);
	f->oid = uuid_of(9);
	CHECK_EQ(create(f, SIZE, "p"), 0);
	stop(f); /* nobody owns it */
	start(f, false);
	delete_and_crowd(f);
	gone_behind_the_crowd(f);
	fixture_close(f);
}

/* Nor for its owner's, which lets go when what it runs has ended. */
TEST(dom_owner, deleted_in_use_while_the_directory_is_busy)
{
	struct fixture *f = fixture_open();
	struct req w = { 0 };

	object_make(f, 1);
	faults.hold[0] = faults.hold[1] = true;
	write_start(f, &w, 0, buf_b, B, 0);
	delete_and_crowd(f);
	nap(f, 100 * MSEC);
	UNTIL(f, dom__gc_idle(f->dom));
	CHECK_EQ(components(f), 1);
	faults_release();
	req_wait(f, &w);
	gone_behind_the_crowd(f);
	fixture_close(f);
}

/* Its reservation goes with it: another one of that id has none. */
TEST(dom_owner, a_reservation_goes_with_its_object)
{
	struct fixture *f = fixture_open();
	struct dom_pr pr = { .action = DOM_PR_REGISTER,
			     .service_action_key = 1 };
	struct dom_nexus nexus = { .initiator_port = "iqn.x,i,0x1" };
	struct req reserve = { .io = { .data = &reserve, .nexus = &nexus } };

	object_make(f, 1);
	dom_nexus_open(f->object, &nexus);
	CHECK_EQ(dom_reserve(f->object, &reserve.io, &pr, on_req), 0);
	CHECK_EQ(req_wait(f, &reserve), 0);
	dom_nexus_close(f->object, &nexus, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	dom_object_close(f->object);
	object_delete(f);
	gone_wait(f);
	CHECK(cmmds_get(f->cmmds, CMMDS_RESERVATION, f->oid.b,
			sizeof(f->oid.b)) == NULL);
	object_make(f, 1);
	CHECK_EQ(dom_reservation(f->object)->registrations_count, 0);
	fixture_close(f);
}

/* Its entry in the directory goes. */
static void disk_give_up(struct fixture *f, struct uuid *id)
{
	Directory__Disk disk = DIRECTORY__DISK__INIT;
	struct cmmds_command cmd = { .data = f };

	disk.uuid.data = id->b;
	disk.uuid.len = sizeof(id->b);
	disk.node.data = f->node.b;
	disk.node.len = sizeof(f->node.b);
	disk.path = "/disk";
	disk.removing = true;
	entry_put(f, CMMDS_DISK, id->b, sizeof(id->b), &disk.base);
	cmmds_command_init(&cmd);
	cmmds_erase(&cmd, CMMDS_DISK, id->b, sizeof(id->b), CMMDS_ANY);
	CHECK_EQ(cmmds_propose(f->cmmds, &cmd, 0, on_command), 0);
	CHECK_EQ(wait_for(f), 0);
	cmmds_command_fini(&cmd);
}

/* Its disk was given up: nobody waits for what lies there. */
TEST(dom_owner, deleted_when_its_disk_is_no_more)
{
	struct fixture *f = fixture_open();
	struct uuid id, second = uuid_of(101);
	unsigned on;

	object_make(f, 1);
	id = owner_of(f)->peers[0].leaf->disk;
	on = uuid_equal(&id, &second);
	dom_object_close(f->object);
	f->object = NULL;
	dom_disk_remove(f->dom, f->disks[on], on_done, f);
	CHECK_EQ(wait_for(f), 0);
	disk_give_up(f, &id);
	object_delete(f);
	gone_wait(f);
	fixture_close(f);
}

/* So too where it is given up later: nothing else has it looked for. */
TEST(dom_owner, disk_given_up_behind_a_deletion)
{
	struct fixture *f = fixture_open();
	struct uuid id = uuid_of(100);
	bool removed = false;

	object_make(f, 2);
	dom_object_close(f->object);
	f->object = NULL;
	UNTIL(f, TAILQ_EMPTY(&f->dom->owners));
	dom_disk_remove(f->dom, f->disks[0], on_flag, &removed);
	run(&removed);
	object_delete(f);
	nap(f, 50 * MSEC);
	UNTIL(f, dom__gc_idle(f->dom));
	CHECK(cmmds_object(f->cmmds, &f->oid) != NULL);
	disk_give_up(f, &id);
	gone_wait(f);
	fixture_close(f);
}

static unsigned walks; /* over all components of a disk */

void __real_lsom_comp_each(struct lsom_disk *disk,
			   void (*cb)(struct lsom_comp *comp, void *arg),
			   void *arg);
void __wrap_lsom_comp_each(struct lsom_disk *disk,
			   void (*cb)(struct lsom_comp *comp, void *arg),
			   void *arg);

/* What is seen of components, in a turn of the loop as well. */
static struct {
	struct env *env;
	uint64_t turn_ns;
	unsigned turn, turn_max, all;
	void (*cb)(struct lsom_comp *comp, void *arg);
} seen;

unsigned __real_lsom_comp_some(struct lsom_disk *disk, unsigned at,
			       unsigned max,
			       void (*cb)(struct lsom_comp *comp, void *arg),
			       void *arg);
unsigned __wrap_lsom_comp_some(struct lsom_disk *disk, unsigned at,
			       unsigned max,
			       void (*cb)(struct lsom_comp *comp, void *arg),
			       void *arg);

/* So many at most, and what else is in the last one's chain. */
#define SEEN_MAX (128 + 8)

static void on_seen(struct lsom_comp *comp, void *arg)
{
	if (seen.env != NULL && env_now(seen.env) != seen.turn_ns) {
		seen.turn_ns = env_now(seen.env);
		seen.turn = 0;
	}
	seen.turn++;
	seen.turn_max = MAX(seen.turn_max, seen.turn);
	seen.all++;
	seen.cb(comp, arg);
}

void __wrap_lsom_comp_each(struct lsom_disk *disk,
			   void (*cb)(struct lsom_comp *comp, void *arg),
			   void *arg)
{
	walks++;
	seen.cb = cb;
	__real_lsom_comp_each(disk, on_seen, arg);
}

unsigned __wrap_lsom_comp_some(struct lsom_disk *disk, unsigned at,
			       unsigned max,
			       void (*cb)(struct lsom_comp *comp, void *arg),
			       void *arg)
{
	walks++;
	seen.cb = cb;
	return __real_lsom_comp_some(disk, at, max, on_seen, arg);
}

struct asked {
	struct dom_data_look look;
	unsigned told;
};

static void on_data_look(struct dom_data_look *look)
{
	container_of(look, struct asked, look)->told++;
}

static void data_level(const struct health_check *check,
		       const struct health_result *result, void *arg)
{
	if (strcmp(check->name, "object-data") == 0)
		*(int *)arg = (int)result->level;
}

/* Who asks is told of a look that began afterwards. */
TEST(dom_owner, lost_data_is_looked_for_in_parts)
{
	struct fixture *f = fixture_open();
	struct asked first = { 0 }, second = { 0 }, third = { 0 };
	const unsigned n = 140, components = 2 * n;
	int level = -1;

	policy_put(f, 2, 0);
	for (unsigned i = 0; i < n; i++) {
		f->oid = uuid_of(20 + i);
		CHECK_EQ(create(f, SIZE, "p"), 0);
	}
	memset(&seen, 0, sizeof(seen));
	seen.env = f->ts.env;
	dom_data_look(f->dom, &first.look, on_data_look);
	CHECK_EQ(seen.all, 0);
	while (seen.all == 0)
		shard_step(f->ts.env, MSEC);
	dom_data_look(f->dom, &second.look, on_data_look);
	dom_data_look(f->dom, &third.look, on_data_look);
	while (first.told == 0)
		shard_step(f->ts.env, MSEC);
	CHECK_EQ(seen.all, components);
	CHECK_EQ(second.told, 0);
	dom_data_look_drop(f->dom, &third.look);
	UNTIL(f, second.told > 0);
	CHECK_EQ(seen.all, 2 * components);
	CHECK(seen.turn_max <= SEEN_MAX);
	/* The check has it from there. */
	health_each(data_level, &level);
	CHECK_EQ(level, HEALTH_OK);
	CHECK_EQ(seen.all, 2 * components);
	/* A look that is under way ends when all of it does. */
	dom_data_look(f->dom, &third.look, on_data_look);
	while (seen.all == 2 * components)
		shard_step(f->ts.env, MSEC);
	dom_data_look(f->dom, &first.look, on_data_look);
	CHECK_EQ(third.told, 0);
	seen.env = NULL;
	fixture_close(f);
	CHECK_EQ(first.told, 2);
	CHECK_EQ(second.told, 1);
	CHECK_EQ(third.told, 1);
}

static unsigned crowd_make(struct fixture *f)
{
	const unsigned n = 140;

	policy_put(f, 2, 0);
	for (unsigned i = 0; i < n; i++) {
		f->oid = uuid_of(20 + i);
		CHECK_EQ(create(f, SIZE, "p"), 0);
	}
	nap(f, 50 * MSEC);
	UNTIL(f, dom__gc_idle(f->dom));
	memset(&seen, 0, sizeof(seen));
	seen.env = f->ts.env;
	return 2 * n;
}

static void on_strays(struct dom_strays *req, int status)
{
	CHECK_EQ(status, 0);
	*(bool *)req->data = true;
}

TEST(dom_owner, what_the_directory_does_not_know_is_looked_for_in_parts)
{
	struct fixture *f = fixture_open();
	unsigned components = crowd_make(f);
	bool done = false;
	struct dom_strays req = { .data = &done };

	CHECK_EQ(dom_strays(f->dom, &req, on_strays), 0);
	UNTIL(f, done);
	CHECK_EQ(req.count, 0);
	CHECK_EQ(seen.all, components);
	CHECK(seen.turn_max <= SEEN_MAX);
	seen.env = NULL;
	fixture_close(f);
}

/* It is what has all components looked at when a disk comes or goes. */
TEST(dom_owner, what_may_go_is_looked_for_in_parts)
{
	struct fixture *f = fixture_open();
	unsigned components = crowd_make(f);

	dom__gc_kick(f->dom);
	while (seen.all < components)
		shard_step(f->ts.env, MSEC);
	UNTIL(f, dom__gc_idle(f->dom));
	CHECK_EQ(seen.all, components);
	CHECK(seen.turn_max <= SEEN_MAX);
	/* Closed in the middle of it. */
	dom__gc_kick(f->dom);
	while (seen.all == components)
		shard_step(f->ts.env, MSEC);
	seen.env = NULL;
	fixture_close(f);
	CHECK(seen.all < 2 * components);
}

/* What its takeover found lost is told of while it is open. */
TEST(dom_owner, lost_data_of_an_open_object)
{
	struct fixture *f = fixture_open();
	struct asked asked = { 0 };
	int level = -1;

	object_make(f, 1);
	owner_of(f)->lossy = true;
	dom_data_look(f->dom, &asked.look, on_data_look);
	UNTIL(f, asked.told > 0);
	health_each(data_level, &level);
	CHECK_EQ(level, HEALTH_BAD);
	fixture_close(f);
}

static unsigned objects_walked;

const struct cmmds_entry *__real_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after);
const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after);

const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after)
{
	objects_walked += kind == CMMDS_OBJECT;
	return __real_cmmds_next(cmmds, kind, after);
}

/* What the directory has on it was counted along. */
TEST(dom_owner, a_disk_comes_without_a_look_at_all_objects)
{
	struct fixture *f = fixture_open();
	struct uuid id = uuid_of(100);
	unsigned components = 0;

	object_make(f, 2);
	dom_object_close(f->object);
	f->object = NULL;
	dom_disk_remove(f->dom, f->disks[0], on_done, f);
	CHECK_EQ(wait_for(f), 0);
	objects_walked = 0;
	dom_disk_add(f->dom, f->disks[0]);
	dom_disk_components(f->dom, &id, &components);
	CHECK_EQ(objects_walked, 0);
	CHECK_EQ(components, 1);
	CHECK_EQ(object_open(f), 0);
	fixture_close(f);
}

/* ---- a disk of many objects ---- */

enum { LOT = 3 * DOM__LATE_PART };

struct lot {
	struct fixture *f;
	struct uuid oid[LOT];
	struct dom_object *object[LOT];
	bool removed;
};

static void lot_make(struct lot *m)
{
	struct fixture *f = m->f = fixture_open();

	m->removed = false;
	policy_put(f, 2, 0);
	for (unsigned n = 0; n < LOT; n++) {
		f->oid = m->oid[n] = uuid_of(200 + n);
		CHECK_EQ(create(f, 8 * MB, "p"), 0);
		CHECK_EQ(object_open(f), 0);
		m->object[n] = f->object;
	}
	f->object = NULL;
}

static void lot_close(struct lot *m)
{
	for (unsigned n = 0; n < LOT; n++)
		if (m->object[n] != NULL)
			dom_object_close(m->object[n]);
	fixture_close(m->f);
}

static unsigned ready(const struct lot *m)
{
	const struct dom__owner *owner;
	unsigned n = 0;

	TAILQ_FOREACH (owner, &m->f->dom->owners, link)
		n += owner->state == DOM__READY;
	return n;
}

/*
 * Those that leave it, or are taken again, in a turn: a part of them, and who of the
 * last part had something under way then.
 */
static void turn_few(struct lot *m)
{
	unsigned before = ready(m);

	shard_step(m->f->ts.env, MSEC);
	CHECK(before <= ready(m) + 2 * DOM__LATE_PART);
}

static void turn_few_until_gone(struct lot *m)
{
	while (!m->f->done)
		turn_few(m);
	m->f->done = false;
}

/* Each has the directory take a command: not all of them in one turn. */
TEST(dom_owner, a_disk_of_many_objects_goes_and_comes)
{
	struct lot m;
	struct fixture *f;

	lot_make(&m);
	f = m.f;
	CHECK_EQ(ready(&m), LOT);
	dom_disk_remove(f->dom, f->disks[0], on_done, f);
	turn_few_until_gone(&m);
	CHECK_EQ(ready(&m), 0);
	dom_disk_add(f->dom, f->disks[0]);
	UNTIL(f, ready(&m) == LOT);
	CHECK(TAILQ_EMPTY(&f->dom->late));
	lot_close(&m);
}

/* Some are deleted, or nobody's any more, before their turn comes. */
TEST(dom_owner, objects_go_while_their_disk_does)
{
	struct lot m;
	struct fixture *f;

	lot_make(&m);
	f = m.f;
	dom_disk_remove(f->dom, f->disks[0], on_done, f);
	while (ready(&m) == LOT)
		turn_few(&m);
	CHECK(!f->done && !TAILQ_EMPTY(&f->dom->late));
	for (unsigned n = LOT - 8; n < LOT; n++) {
		dom_object_close(m.object[n]);
		m.object[n] = NULL;
	}
	CHECK_EQ(wait_for(f), 0);
	dom_disk_add(f->dom, f->disks[0]);
	/* It goes again before all are back. */
	while (ready(&m) == 0)
		shard_step(f->ts.env, MSEC);
	dom_disk_remove(f->dom, f->disks[0], on_done, f);
	CHECK_EQ(wait_for(f), 0);
	dom_disk_add(f->dom, f->disks[0]);
	UNTIL(f, ready(&m) == LOT - 8);
	lot_close(&m);
}

static void on_removed(void *arg)
{
	struct lot *m = arg;

	m->removed = true;
}

/* Nor is it waited for their turns where dom is closed. */
TEST(dom_owner, closed_while_a_disk_of_many_goes)
{
	struct lot m;
	struct fixture *f;

	lot_make(&m);
	f = m.f;
	dom_disk_remove(f->dom, f->disks[0], on_removed, &m);
	while (ready(&m) == LOT)
		turn_few(&m);
	lot_close(&m);
	CHECK(m.removed);
}

/* There may be thousands of others: they are not looked at. */
TEST(dom_owner, deleted_without_a_look_at_others)
{
	struct fixture *f = fixture_open();

	policy_put(f, 2, 0);
	f->oid = uuid_of(20);
	CHECK_EQ(create(f, SIZE, "p"), 0);
	object_make(f, 1);
	nap(f, 50 * MSEC);
	UNTIL(f, dom__gc_idle(f->dom));
	walks = 0;
	CHECK_EQ(resize_to(f, SIZE / 2), 0);
	object_delete(f);
	gone_wait(f);
	CHECK_EQ(walks, 0);
	UNTIL(f, components(f) == 2);
	fixture_close(f);
}

/* What a failed disk cannot delete does not stand before the others. */
TEST(dom_owner, collection_passes_a_failed_disk)
{
	struct fixture *f = fixture_open();
	struct lsom_disk_info info;
	struct req w = { 0 };
	unsigned n = 70;

	policy_put(f, 2, 0);
	for (unsigned i = 0; i < n; i++) {
		f->oid = uuid_of(20 + i);
		CHECK_EQ(create(f, SIZE, "p"), 0);
	}
	f->oid = uuid_of(9);
	CHECK_EQ(create(f, SIZE, "p"), 0);
	CHECK_EQ(object_open(f), 0);
	faults.fail[0] = true;
	write_start(f, &w, 0, buf_a, 2 * MB, 0);
	CHECK(req_wait(f, &w) < 0);
	lsom_disk_info(f->disks[0], &info);
	CHECK_EQ(info.state, LSOM_DISK_FAILED);
	for (unsigned i = 0; i < n; i++) {
		f->oid = uuid_of(20 + i);
		object_delete(f);
	}
	for (unsigned i = 0; i < 6000; i++) {
		lsom_disk_info(f->disks[1], &info);
		if (info.components == 1 && dom__gc_idle(f->dom))
			break;
		nap(f, 10 * MSEC);
	}
	CHECK_EQ(info.components, 1);
	CHECK(dom__gc_idle(f->dom));
	fixture_close(f);
}

/* Unused, it was to leave; a write that nobody waits for held it; it is wanted. */
TEST(dom_owner, opened_before_it_could_leave)
{
	struct fixture *f = fixture_open();
	struct req w = { .io.deadline_ns = env_now(f->ts.env) + 1 * SEC };
	struct req r = { .io.data = &r };

	object_make(f, 1);
	faults.hold[0] = faults.hold[1] = true;
	write_start(f, &w, 0, buf_b, B, 0);
	CHECK_EQ(req_wait(f, &w), -ETIMEDOUT);
	dom_object_close(f->object);
	for (unsigned i = 0; i < 6000 && !owner_of(f)->hold; i++)
		nap(f, 10 * MSEC);
	CHECK(owner_of(f)->hold);
	CHECK_EQ(object_open(f), 0);
	r.io.deadline_ns = env_now(f->ts.env) + 100 * SEC;
	CHECK_EQ(dom_read(f->object, &r.io, 8 * B, B, on_req), 0);
	faults_release();
	CHECK_EQ(req_wait(f, &r), 0);
	sgl_put(r.io.sgl);
	fixture_close(f);
}

/* Nobody spends epochs, or the directory's log, on a disk that failed. */
TEST(dom_owner, no_epoch_for_a_failed_disk)
{
	struct fixture *f = fixture_open();
	uint32_t oepoch;

	object_make(f, 1);
	faults.fail[0] = faults.fail[1] = true;
	CHECK(do_write(f, 0, buf_b, B, 0, 0) < 0);
	dom_object_close(f->object);
	f->object = NULL;
	faults.fail[0] = faults.fail[1] = false;
	UNTIL(f, owner_of(f) == NULL); /* it is not lingering any more */
	oepoch = cmmds_object(f->cmmds, &f->oid)->oepoch;
	for (unsigned i = 0; i < 10; i++)
		CHECK_EQ(object_open(f), -ENXIO);
	CHECK_EQ(cmmds_object(f->cmmds, &f->oid)->oepoch, oepoch);
	fixture_close(f);
}

static bool sealed_done;

static void on_sealed(struct dom__cm_meta *req, int status)
{
	CHECK_EQ(status, 0);
	sealed_done = true;
}

/* Commands do not hurry an owner that just failed to take over. */
TEST(dom_owner, commands_wait_for_the_next_try)
{
	struct fixture *f = fixture_open();
	struct dom__cm_meta meta;
	struct dom__peer *peer;
	uint64_t start;
	uint32_t oepoch;

	object_make(f, 1);
	oepoch = owner_of(f)->oepoch;
	peer = &owner_of(f)->peers[0];
	/* A promise that every try of these seconds falls short of. */
	CHECK_EQ(dom__cm_seal(peer->cm, &meta, peer->leaf, oepoch + 10000, 0,
			      on_sealed),
		 0);
	run(&sealed_done);
	start = env_now(f->ts.env);
	while (env_now(f->ts.env) < start + 3 * SEC)
		CHECK(do_read(f, 0, got, B) < 0);
	/* One a second, and the first two. */
	CHECK(cmmds_object(f->cmmds, &f->oid)->oepoch <=
	      oepoch + 2 + (env_now(f->ts.env) - start) / SEC);
	fixture_close(f);
}

/* ---- a directory that is full of others' commands ---- */

enum { MANY = 100 };

struct many {
	struct dom_create create;
	struct dom_object_open open;
	struct uuid oid;
	unsigned *ended;
};

static void many_ended(struct many *m, int status)
{
	CHECK_EQ(status, 0);
	++*m->ended;
}

static void on_many_created(struct dom_create *req, int status)
{
	many_ended(req->data, status);
}

static void on_many_opened(struct dom_object_open *req, int status)
{
	many_ended(req->data, status);
}

static void many_create(struct fixture *f, struct many *m, unsigned n,
			unsigned *ended)
{
	*m = (struct many){ .oid = uuid_of(n), .ended = ended };
	m->create = (struct dom_create){
		.data = m, .oid = m->oid, .size_bytes = SIZE, .policy = "p"
	};
	CHECK_EQ(dom_create(f->dom, &m->create, on_many_created), 0);
}

static void many_wait(struct fixture *f, const unsigned *ended, unsigned count)
{
	for (unsigned i = 0; i < 6000 && *ended < count; i++)
		nap(f, 10 * MSEC);
	CHECK_EQ(*ended, count);
}

/* It takes 128 at a time.  Busy is no failure: the others come by and by. */
TEST(dom_owner, opens_and_creates_while_the_directory_is_busy)
{
	struct fixture *f = fixture_open();
	static struct many old[MANY], new[MANY];
	unsigned ended = 0;

	policy_put(f, 1, 0);
	for (unsigned i = 0; i < MANY; i++)
		many_create(f, &old[i], 20 + i, &ended);
	many_wait(f, &ended, MANY);
	stop(f);
	start(f, false);
	ended = 0;
	for (unsigned i = 0; i < MANY; i++) {
		many_create(f, &new[i], 20 + MANY + i, &ended);
		old[i].open.data = &old[i];
		CHECK_EQ(dom_object_open(f->dom, &old[i].open, &old[i].oid,
					 on_many_opened),
			 0);
	}
	many_wait(f, &ended, 2 * MANY);
	for (unsigned i = 0; i < MANY; i++)
		dom_object_close(old[i].open.object);
	fixture_close(f);
}

/* ---- a leg that is cut off ---- */

static unsigned disk_of(const Directory__Leaf *leaf)
{
	struct uuid id = uuid_of(101);

	return memcmp(leaf->disk.data, id.b, sizeof(id.b)) == 0;
}

/*
 * It is deleted though the object stays open, and though nobody could delete it
 * while the owner had let go.
 */
TEST(dom_owner, a_leg_cut_off_goes_under_an_open_object)
{
	const uint64_t leg = 256ull << 30;
	struct fixture *f = fixture_open();
	const Directory__TreeNode *tree;
	struct uuid other = uuid_of(20);
	unsigned disk;

	object_make(f, 1);
	f->oid = other;
	CHECK_EQ(create(f, SIZE, "p"), 0);
	f->oid = uuid_of(9);
	CHECK_EQ(resize_to(f, leg + SIZE), 0);
	CHECK_EQ(components(f), 3);
	disk = disk_of(cmmds_object(f->cmmds, &other)->tree->leaf);
	tree = cmmds_object(f->cmmds, &f->oid)->tree;
	CHECK(disk != disk_of(tree->children[0]->leaf));
	faults.hold[disk] = true;
	f->oid = other;
	object_delete(f);
	f->oid = uuid_of(9);
	while (faults.held_count == 0)
		nap(f, 10 * MSEC);
	CHECK(!dom__gc_idle(f->dom));
	CHECK_EQ(resize_to(f, SIZE), 0);
	faults_release();
	for (unsigned i = 0; i < 6000 && components(f) > 1; i++)
		nap(f, 10 * MSEC);
	CHECK_EQ(components(f), 1);
	CHECK_EQ(do_read(f, 0, got, 2 * MB), 0);
	CHECK(all_is(got, 2 * MB, 0xa5));
	fixture_close(f);
}

/* ---- no memory, or no room in the log, for a deletion ---- */

/* It is tried again, though nothing else is deleted, and not all the time. */
static void deletes_after(struct fixture *f, int status, bool later)
{
	uint64_t since;

	CHECK_EQ(create(f, SIZE, "p"), 0);
	CHECK_EQ(components(f), 2);
	refuse = status;
	refuse_later = later;
	refusals = 0;
	since = env_now(f->ts.env);
	object_delete(f);
	UNTIL(f, refusals >= 2);
	nap(f, 200 * MSEC);
	CHECK(refusals <= DISKS * (6 + (env_now(f->ts.env) - since) / SEC));
	refuse = 0;
	CHECK_EQ(components(f), 2);
	for (unsigned i = 0;
	     i < 6000 && cmmds_object(f->cmmds, &f->oid) != NULL; i++)
		nap(f, 10 * MSEC);
	CHECK(cmmds_object(f->cmmds, &f->oid) == NULL);
	CHECK_EQ(components(f), 0);
}

TEST(dom_owner, deletes_when_there_is_memory_again)
{
	struct fixture *f = fixture_open();

	policy_put(f, 2, 0);
	for (unsigned later = 0; later < 2; later++) {
		f->oid = uuid_of(20 + later);
		deletes_after(f, -ENOMEM, later > 0);
	}
	fixture_close(f);
}

/* Its record waited for a segment that did not become free (lsom/log.c). */
TEST(dom_owner, deletes_when_the_log_has_room_again)
{
	struct fixture *f = fixture_open();

	policy_put(f, 2, 0);
	f->oid = uuid_of(20);
	deletes_after(f, -ENOSPC, true);
	fixture_close(f);
}

/* ---- a disk that does not resize a component, or not yet ---- */

TEST(dom_owner, resizes_when_its_disks_can)
{
	static const struct {
		int status;
		bool later;
	} t[] = { { -EBUSY, false }, { -EIO, true }, { -EIO, false } };
	struct fixture *f = fixture_open();
	uint64_t size = SIZE;
	struct resize r;

	object_make(f, 2);
	refuse_op = LSOM_RESIZE;
	for (unsigned i = 0; i < ARRAY_LEN(t); i++) {
		size += 8 * MB;
		refuse = t[i].status;
		refuse_later = t[i].later;
		refusals = 0;
		resize_start(f, &r, size, true);
		if (refuse != -EBUSY)
			run(&r.done);
		else
			UNTIL(f, refusals > 1); /* it is asked again */
		CHECK_EQ(r.done, refuse != -EBUSY);
		refuse = 0;
		run(&r.done);
		CHECK(r.req.stored);
		CHECK_EQ(r.status, t[i].status == -EBUSY ? 0 : -ENXIO);
		/* It can be had as soon as they do. */
		CHECK_EQ(do_write(f, size - B, buf_b, B, 0, 0), 0);
		CHECK_EQ(do_read(f, 0, got, 2 * MB), 0);
		CHECK(all_is(got, 2 * MB, 0xa5));
	}
	refuse_op = LSOM_DELETE;
	fixture_close(f);
}

/* It keeps what is cut off, then, as holes: they are what it is grown by again. */
TEST(dom_owner, shrinks_on_disks_that_cannot)
{
	struct fixture *f = fixture_open();

	for (unsigned later = 0; later < 2; later++) {
		f->oid = uuid_of(9);
		object_make(f, 2);
		refuse_op = LSOM_RESIZE;
		refuse = -EOPNOTSUPP;
		refuse_later = later;
		CHECK_EQ(resize_to(f, MB / 2), 0);
		CHECK_EQ(do_read(f, 0, got, MB / 2), 0);
		CHECK(all_is(got, MB / 2, 0xa5));
		CHECK_EQ(do_read(f, MB / 2, got, B), -ERANGE);
		refuse = 0;
		refuse_op = LSOM_DELETE;
		CHECK_EQ(resize_to(f, SIZE), 0);
		CHECK_EQ(do_read(f, 0, got, 2 * MB), 0);
		CHECK(all_is(got, MB / 2, 0xa5));
		CHECK(all_is(got + MB / 2, 2 * MB - MB / 2, 0));
		dom_object_close(f->object);
		f->object = NULL;
		object_delete(f);
		for (unsigned i = 0; i < 6000 && components(f) > 0; i++)
			nap(f, 10 * MSEC);
		CHECK_EQ(components(f), 0);
	}
	fixture_close(f);
}

/* ---- a nexus that ends, or is fenced ---- */

static void nexus_gone(void *arg)
{
	*(bool *)arg = true;
}

static void pr_start(struct fixture *f, struct req *r, struct dom_nexus *nexus,
		     const struct dom_pr *pr)
{
	*r = (struct req){ .io.data = r, .io.nexus = nexus };
	CHECK_EQ(dom_reserve(f->object, &r->io, pr, on_req), 0);
}

/* What is queued of it ends; what runs is waited for. */
TEST(dom_owner, what_a_nexus_has_queued_ends_with_it)
{
	for (unsigned fenced = 0; fenced < 2; fenced++) {
		struct fixture *f = fixture_open();
		struct dom_nexus nexus = { .initiator_port = "iqn.a,i,0x1",
					   .target_port = 1 };
		struct dom_nexus other = { .initiator_port = "iqn.b,i,0x2",
					   .target_port = 1 };
		struct dom_pr pr = { .action = DOM_PR_REGISTER,
				     .service_action_key = 1 };
		struct req runs = { .io.nexus = &nexus };
		struct req waits = { .io.nexus = &nexus };
		struct req others = { .io.nexus = &other };
		bool gone = false, other_gone = false;
		struct req r;

		object_make(f, 1);
		dom_nexus_open(f->object, &nexus);
		dom_nexus_open(f->object, &other);
		pr_start(f, &r, &nexus, &pr);
		CHECK_EQ(req_wait(f, &r), 0);
		pr.service_action_key = 2;
		pr_start(f, &r, &other, &pr);
		CHECK_EQ(req_wait(f, &r), 0);
		faults.hold[0] = faults.hold[1] = true;
		write_start(f, &runs, 0, buf_b, 2 * B, 0);
		write_start(f, &waits, 0, buf_a, 2 * B, 0);
		write_start(f, &others, B, buf_a, B, 0);
		while (faults.held_count == 0)
			nap(f, 10 * MSEC);
		if (fenced) {
			pr = (struct dom_pr){ .action =
						      DOM_PR_PREEMPT_AND_ABORT,
					      .key = 2,
					      .service_action_key = 1 };
			pr_start(f, &r, &other, &pr);
		} else {
			dom_nexus_close(f->object, &nexus, nexus_gone, &gone);
		}
		CHECK_EQ(req_wait(f, &waits), -ECANCELED);
		CHECK(!runs.done && !gone);
		CHECK_EQ(r.done, !fenced);
		faults_release();
		CHECK_EQ(req_wait(f, &runs), 0);
		CHECK_EQ(req_wait(f, &others), 0);
		CHECK_EQ(req_wait(f, &r), 0);
		if (fenced)
			dom_nexus_close(f->object, &nexus, nexus_gone, &gone);
		run(&gone);
		CHECK_EQ(do_read(f, 0, got, 2 * B), 0);
		CHECK(all_is(got, B, 0x5a));
		CHECK(all_is(got + B, B, 0xa5));
		dom_nexus_close(f->object, &other, nexus_gone, &other_gone);
		run(&other_gone);
		fixture_close(f);
	}
}
