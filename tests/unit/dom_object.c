/*
 * An object on real disks and a real directory: random commands of every size
 * against an array of bytes, striped and not, across clean restarts.
 */
#include "tests/lib/test.h"

#include "base/util.h"
#include "cmmds/cmmds.h"
#include "dom/dom.h"
#include "lsom/lsom.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DISK_BYTES (128ull << 20)
#define DISKS 2u

struct fixture {
	struct test_shard ts;
	struct cmmds *cmmds;
	struct lsom *lsom;
	struct dom *dom;
	struct lsom_disk *disks[DISKS];
	char dirs[DISKS + 1][200];
	struct uuid node, cluster, oid;
	uint64_t incarnation;
	struct dom_object *object;
	bool done;
	int status;
	char why[256];
};

static struct uuid uuid_of(unsigned n)
{
	struct uuid id = { { 0 } };

	id.b[0] = (uint8_t)n;
	id.b[15] = 1;
	return id;
}

static void finish(struct fixture *f, int status)
{
	f->status = status;
	f->done = true;
}

static int wait_for(struct fixture *f)
{
	test_run(&f->ts, &f->done);
	f->done = false;
	return f->status;
}

static void on_done(void *arg)
{
	finish(arg, 0);
}

static void on_directory(struct cmmds_open *req, int status)
{
	struct fixture *f = req->data;

	f->cmmds = req->opened;
	finish(f, status);
}

static void on_disk(struct lsom_disk_open *req, int status)
{
	finish(req->data, status);
}

static void on_disk_closed(struct lsom_disk_close *req, int status)
{
	finish(req->data, status);
}

static void on_command(struct cmmds_command *cmd, int status)
{
	finish(cmd->data, status);
}

static void on_barrier(struct cmmds_barrier *req, int status)
{
	finish(req->data, status);
}

static void entry_put(struct fixture *f, enum cmmds_kind kind, const void *key,
		      size_t len, const ProtobufCMessage *message)
{
	struct cmmds_command cmd = { .data = f };

	cmmds_command_init(&cmd);
	cmmds_put(&cmd, kind, key, len, CMMDS_ANY, message);
	CHECK_EQ(cmmds_propose(f->cmmds, &cmd, 0, on_command), 0);
	CHECK_EQ(wait_for(f), 0);
	cmmds_command_fini(&cmd);
}

static void node_put(struct fixture *f)
{
	Directory__Node node = DIRECTORY__NODE__INIT;

	node.uuid.data = f->node.b;
	node.uuid.len = sizeof(f->node.b);
	node.name = "n1";
	node.address = "127.0.0.1";
	node.incarnation = f->incarnation;
	node.session = 1;
	entry_put(f, CMMDS_NODE, f->node.b, sizeof(f->node.b), &node.base);
}

static void disk_put(struct fixture *f, unsigned i)
{
	Directory__Disk disk = DIRECTORY__DISK__INIT;
	struct uuid id = uuid_of(100 + i);

	disk.uuid.data = id.b;
	disk.uuid.len = sizeof(id.b);
	disk.node.data = f->node.b;
	disk.node.len = sizeof(f->node.b);
	disk.path = "/disk";
	disk.serial = "";
	disk.model = "";
	disk.raw_bytes = DISK_BYTES;
	disk.usable_bytes = DISK_BYTES / 2;
	entry_put(f, CMMDS_DISK, id.b, sizeof(id.b), &disk.base);
}

static void start(struct fixture *f, bool fresh)
{
	struct cmmds_open dir = { .data = f };
	struct lsom_config lconfig;
	struct dom_config dconfig;

	test_shard_open(&f->ts);
	f->incarnation++;
	CHECK_EQ(cmmds_open(&(struct cmmds_config){ .env = f->ts.env,
						    .path = f->dirs[DISKS],
						    .node = f->node,
						    .incarnation =
							    f->incarnation,
						    .found = fresh },
			    &dir, on_directory),
		 0);
	CHECK_EQ(wait_for(f), 0);
	node_put(f);
	lconfig = (struct lsom_config){ .env = f->ts.env };
	CHECK_EQ(lsom_open(&lconfig, &f->lsom), 0);
	dconfig = (struct dom_config){ .env = f->ts.env,
				       .cmmds = f->cmmds,
				       .lsom = f->lsom,
				       .node = f->node };
	CHECK_EQ(dom_open(&dconfig, &f->dom), 0);
	for (unsigned i = 0; i < DISKS; i++) {
		struct lsom_disk_open req = { .data = f,
					      .cluster = f->cluster };
		char path[300], index[300];

		snprintf(path, sizeof(path), "%s/disk", f->dirs[i]);
		snprintf(index, sizeof(index), "%s/index", f->dirs[i]);
		if (fresh) {
			struct lsom_format format = { .path = path,
						      .disk = uuid_of(100 + i),
						      .cluster = f->cluster };
			int fd = open(path, O_CREAT | O_RDWR, 0600);

			CHECK_EQ(ftruncate(fd, (off_t)DISK_BYTES), 0);
			close(fd);
			CHECK_EQ(lsom_disk_format(f->ts.env, &format), 0);
			disk_put(f, i);
		}
		req.path = path;
		req.index_path = index;
		CHECK_EQ(lsom_disk_open(f->lsom, &req, on_disk), 0);
		CHECK_EQ(wait_for(f), 0);
		f->disks[i] = req.opened;
		dom_disk_add(f->dom, f->disks[i]);
	}
}

static void stop(struct fixture *f)
{
	if (f->object != NULL)
		dom_object_close(f->object);
	f->object = NULL;
	dom_close(f->dom, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	for (unsigned i = 0; i < DISKS; i++) {
		struct lsom_disk_close req = { .data = f };

		CHECK_EQ(lsom_disk_close(f->disks[i], &req, on_disk_closed), 0);
		CHECK_EQ(wait_for(f), 0);
	}
	lsom_close(f->lsom);
	cmmds_close(f->cmmds, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	test_shard_close(&f->ts);
}

static struct fixture *fixture_open(void)
{
	struct fixture *f = calloc(1, sizeof(*f));

	for (unsigned i = 0; i <= DISKS; i++) {
		char *dir = test_dir();

		snprintf(f->dirs[i], sizeof(f->dirs[i]), "%s", dir);
		free(dir);
	}
	strcat(f->dirs[DISKS], "/directory");
	f->node = uuid_of(1);
	f->cluster = uuid_of(2);
	f->incarnation = 7;
	start(f, true);
	return f;
}

static void fixture_close(struct fixture *f)
{
	stop(f);
	free(f);
}

/* ---- objects ---- */

static void on_created(struct dom_create *req, int status)
{
	struct fixture *f = req->data;

	f->oid = req->oid;
	snprintf(f->why, sizeof(f->why), "%s", req->why);
	finish(f, status);
}

static int create(struct fixture *f, uint64_t size, const char *policy)
{
	struct dom_create req = { .data = f,
				  .size_bytes = size,
				  .policy = policy,
				  .who = "test" };
	int rv = dom_create(f->dom, &req, on_created);

	if (rv == 0)
		return wait_for(f);
	snprintf(f->why, sizeof(f->why), "%s", req.why);
	return rv;
}

static void on_opened(struct dom_object_open *req, int status)
{
	struct fixture *f = req->data;

	f->object = req->object;
	finish(f, status);
}

static int object_open(struct fixture *f)
{
	struct dom_object_open req = { .data = f };
	int rv = dom_object_open(f->dom, &req, &f->oid, on_opened);

	return rv < 0 ? rv : wait_for(f);
}

static void policy_put(struct fixture *f, unsigned width, unsigned ftt)
{
	Directory__Policy p = DIRECTORY__POLICY__INIT;

	p.name = "p";
	p.stripe_width = width;
	p.failures_to_tolerate = ftt;
	entry_put(f, CMMDS_POLICY, "p", 1, &p.base);
}

static void on_io(struct dom_io *io, int status)
{
	finish(io->data, status);
}

static struct sgl *bytes_sgl(struct fixture *f, const uint8_t *src, size_t len,
			     size_t at)
{
	struct sgl *sgl;

	CHECK_EQ(sgl_new(f->ts.env->pages, PAGE_FRONT, len, at % 4096, &sgl),
		 0);
	sgl_write(sgl, 0, src, len);
	return sgl;
}

static int do_read(struct fixture *f, uint64_t at, uint8_t *dst, size_t len)
{
	struct dom_io io = { .data = f };
	int rv = dom_read(f->object, &io, at, len, on_io);

	if (rv == 0)
		rv = wait_for(f);
	if (rv == 0) {
		CHECK_EQ(io.sgl->len_bytes, len);
		CHECK_EQ(io.sgl->pieces[0].offset, at % 4096);
		sgl_read(io.sgl, 0, dst, len);
		sgl_put(io.sgl);
	}
	return rv;
}

static int do_write(struct fixture *f, uint64_t at, const uint8_t *src,
		    size_t len, size_t congruence, unsigned flags)
{
	struct dom_io io = { .data = f };
	struct sgl *sgl = bytes_sgl(f, src, len, congruence);
	int rv = dom_write(f->object, &io, at, sgl, flags, on_io);

	sgl_put(sgl);
	return rv < 0 ? rv : wait_for(f);
}

static void fill(uint8_t *buf, size_t len)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (uint8_t)rand();
}

#define SIZE (24u << 20)

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
			CHECK(old[io.miscompare] !=
			      model[at + io.miscompare]);
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

/*
 * A counter that goes up by compare-and-write only: each value is reached by
 * exactly one winner, so as many succeed as the counter says.
 */
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

static void on_resized(struct dom_resize *req, int status)
{
	struct fixture *f = req->data;

	snprintf(f->why, sizeof(f->why), "%s", req->why);
	finish(f, status);
}

static int resize(struct fixture *f, uint64_t size)
{
	struct dom_resize req = { .data = f, .oid = f->oid, .size_bytes = size };
	int rv = dom_resize(f->dom, &req, on_resized);

	return rv < 0 ? rv : wait_for(f);
}

static void on_event(struct dom_watch *watch, enum dom_event event)
{
	*(unsigned *)watch->data |= 1u << event;
}

TEST(dom_object, resize_loses_only_what_is_cut)
{
	struct fixture *f = fixture_open();
	static uint8_t buf[1 << 20], got[1 << 20], zero[1 << 20];
	unsigned events = 0;
	struct dom_watch watch = { .data = &events, .cb = on_event };

	policy_put(f, 2, 0);
	CHECK_EQ(create(f, SIZE, "p"), 0);
	CHECK_EQ(object_open(f), 0);
	dom_object_watch(f->object, &watch);
	fill(buf, sizeof(buf));
	CHECK_EQ(do_write(f, 0, buf, sizeof(buf), 0, 0), 0);
	CHECK_EQ(do_write(f, SIZE - sizeof(buf), buf, sizeof(buf), 0, 0), 0);
	CHECK_EQ(resize(f, 2 * SIZE), 0);
	CHECK_EQ(dom_object_size(f->object), 2 * SIZE);
	CHECK_EQ(do_read(f, SIZE - sizeof(buf), got, sizeof(got)), 0);
	CHECK(memcmp(buf, got, sizeof(buf)) == 0);
	CHECK_EQ(do_write(f, 2 * SIZE - sizeof(buf), buf, sizeof(buf), 0, 0),
		 0);
	CHECK_EQ(resize(f, 2 << 20), 0);
	CHECK_EQ(do_read(f, 2 << 20, got, 512), -ERANGE);
	CHECK_EQ(resize(f, SIZE), 0);
	CHECK_EQ(do_read(f, SIZE - sizeof(buf), got, sizeof(got)), 0);
	CHECK(memcmp(zero, got, sizeof(got)) == 0);
	CHECK_EQ(do_read(f, 0, got, sizeof(got)), 0);
	CHECK(memcmp(buf, got, sizeof(got)) == 0);
	CHECK(events & 1u << DOM_RESIZED);
	dom_object_unwatch(f->object, &watch);
	fixture_close(f);
}

TEST(dom_object, deleted_object_leaves_nothing)
{
	struct fixture *f = fixture_open();
	struct cmmds_command cmd = { .data = f };
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;
	const Directory__Object *object;
	struct lsom_disk_info info;
	uint8_t buf[4096] = { 1 };

	CHECK_EQ(create(f, SIZE, ""), 0);
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(do_write(f, 0, buf, sizeof(buf), 0, 0), 0);
	object = cmmds_object(f->cmmds, &f->oid);
	CHECK(object != NULL);
	op.op = DIRECTORY__OBJECT_COMMAND__OP__DELETE;
	op.oid = object->oid;
	op.expect_oepoch = object->oepoch;
	op.expect_csn = object->csn;
	cmmds_command_init(&cmd);
	cmmds_object_op(&cmd, &op);
	CHECK_EQ(cmmds_propose(f->cmmds, &cmd, 0, on_command), 0);
	CHECK_EQ(wait_for(f), 0);
	cmmds_command_fini(&cmd);
	CHECK_EQ(do_read(f, 0, buf, sizeof(buf)), -ENOENT);
	dom_object_close(f->object);
	f->object = NULL;
	for (unsigned i = 0; i < 1000 && cmmds_object(f->cmmds, &f->oid); i++) {
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

static int reserve(struct fixture *f, struct dom_nexus *nexus,
		   struct dom_pr pr)
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

TEST(dom_object, reservation_survives_and_preempts)
{
	struct fixture *f = fixture_open();
	struct dom_nexus a = { .initiator_port = "iqn.a,i,0x000000000001",
			       .target_port = 1 };
	struct dom_nexus b = { .initiator_port = "iqn.b,i,0x000000000002",
			       .target_port = 1 };

	CHECK_EQ(create(f, SIZE, ""), 0);
	CHECK_EQ(object_open(f), 0);
	dom_nexus_open(f->object, &a);
	dom_nexus_open(f->object, &b);
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
	dom_nexus_close(f->object, &a, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	CHECK_EQ(nexus_write(f, &a), -ECANCELED);
	dom_nexus_close(f->object, &b, on_done, f);
	CHECK_EQ(wait_for(f), 0);
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
	dom_nexus_close(f->object, &a, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	dom_nexus_close(f->object, &b, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	fixture_close(f);
}
