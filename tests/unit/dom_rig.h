/*
 * dom_rig: a directory, two disks and an object for the tests of dom, on a real
 * shard.  The disks' writes can be held back, or fail; a life can end as by
 * kill -9, in a child.
 */
#ifndef BASALT_TESTS_DOM_RIG_H
#define BASALT_TESTS_DOM_RIG_H

#include "tests/lib/test.h"

#include "base/shard.h"
#include "base/util.h"
#include "cmmds/cmmds.h"
#include "dom/dom.h"
#include "lsom/lsom.h"

#include "dom/dom_int.h"

#include <errno.h>
#include <stdio.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define DISK_BYTES (128ull << 20)
#define DISKS 2u

/* More than one: objects are on other shards than the test (dom_shards.h). */
#ifndef RIG_SHARDS
#define RIG_SHARDS 1u
#endif

struct rig_shard {
	struct fixture *f;
	struct env *env;
	struct cmmds *cmmds;
	struct lsom *lsom;
	struct dom *dom;
	struct lsom_disk *disks[DISKS];
	struct lsom_disk *home; /* to attach to, to close */
	unsigned part, disk;
	struct lsom_disk_open open;
	struct lsom_attach attach;
	struct lsom_detach detach;
	struct lsom_disk_close close;
	void (*fn)(struct rig_shard *s);
	struct env_task task, back;
	int status;
};

struct fixture {
	struct test_shard ts;
	struct cmmds *cmmds;
	struct lsom *lsom;
	struct dom *dom;
	struct lsom_disk *disks[DISKS];
	char dirs[DISKS + 1][200];
	struct uuid node, cluster, oid;
	uint64_t incarnation;
	uint64_t disk_bytes; /* of one that is made */
	struct dom_object *object;
	struct dom *doms[RIG_SHARDS];
	struct rig_shard shards[RIG_SHARDS];
	uint64_t rules_off;
	bool done;
	int status;
	char why[256];
};

/* ---- disks whose writes wait, or fail; a shard that lets them ---- */

#define HELD_MAX 4096u

static struct {
	const struct env_ops *real;
	struct env_ops ops;
	struct fixture *f;
	struct env *env;
	_Atomic(struct env_dev *) devs[DISKS]; /* opened by other threads */
	bool hold[DISKS], hold_reads[DISKS], fail[DISKS];
	struct env_lane *directory; /* the store's of the directory */
	bool hold_directory;
	unsigned works_count;
	struct env_work *works[64];
	struct env_lane *index[8]; /* the disks' */
	unsigned index_count;
	bool hold_index;
	struct env_work *loads[64];
	unsigned loads_count;
	bool hurry; /* who waits for a disk does so for HURRY_NS */
	struct env_timer *patience; /* of the last who does */
	unsigned held_count;
	struct rig_held {
		struct env_dev *dev;
		struct env_io *io;
		const struct iovec *iov;
		unsigned n, flags;
		uint64_t offset;
		bool read;
	} held[HELD_MAX];
} faults;

/* Until *@done, for at most 120 s: test_run() with our own table of calls. */
static inline void run(const bool *done)
{
	uint64_t end = uv_hrtime() + 120 * SEC;

	while (!*done && uv_hrtime() < end)
		shard_step(faults.env, 100 * MSEC);
	CHECK(*done);
}

static inline int faulty_open(struct env *env, const char *path, unsigned flags,
			      struct env_dev **out, struct env_dev_info *info)
{
	int rv = faults.real->dev_open(env, path, flags, out, info);

	for (unsigned i = 0; rv == 0 && i < DISKS; i++)
		if (strncmp(path, faults.f->dirs[i],
			    strlen(faults.f->dirs[i])) == 0)
			faults.devs[i] = *out;
	return rv;
}

static inline void hold(struct rig_held held)
{
	CHECK(faults.held_count < HELD_MAX);
	faults.held[faults.held_count++] = held;
}

static inline void faulty_writev(struct env_dev *dev, struct env_io *io,
				 const struct iovec *iov, unsigned n,
				 uint64_t offset, unsigned flags)
{
	for (unsigned i = 0; i < DISKS; i++) {
		if (faults.devs[i] != dev)
			continue;
		/* Beyond every device: the backend says -EIO or -EINVAL. */
		if (faults.fail[i])
			offset = 1ull << 60;
		if (!faults.hold[i])
			break;
		hold((struct rig_held){ .dev = dev,
					.io = io,
					.iov = iov,
					.n = n,
					.flags = flags,
					.offset = offset });
		return;
	}
	faults.real->dev_writev(dev, io, iov, n, offset, flags);
}

static inline void faulty_readv(struct env_dev *dev, struct env_io *io,
				const struct iovec *iov, unsigned n,
				uint64_t offset)
{
	for (unsigned i = 0; i < DISKS; i++) {
		if (faults.devs[i] != dev || !faults.hold_reads[i])
			continue;
		hold((struct rig_held){ .dev = dev,
					.io = io,
					.iov = iov,
					.n = n,
					.offset = offset,
					.read = true });
		return;
	}
	faults.real->dev_readv(dev, io, iov, n, offset);
}

static inline int faulty_lane_open(struct env *env, const char *name,
				   struct env_lane **out)
{
	int rv = faults.real->lane_open(env, name, out);

	if (rv == 0 && strcmp(name, "raft") == 0)
		faults.directory = *out;
	if (rv == 0 && strcmp(name, "lsom-index") == 0) {
		CHECK(faults.index_count < ARRAY_LEN(faults.index));
		faults.index[faults.index_count++] = *out;
	}
	return rv;
}

static inline bool index_held(const struct env_lane *lane)
{
	for (unsigned i = 0; i < faults.index_count; i++)
		if (faults.hold_index && faults.index[i] == lane)
			return true;
	return false;
}

#define HURRY_NS (300 * MSEC)

static inline void faulty_timer(struct env *env, struct env_timer *timer,
				uint64_t delay_ns)
{
	if (delay_ns == DOM__OPEN_NS) {
		faults.patience = timer;
		delay_ns = faults.hurry ? HURRY_NS : delay_ns;
	}
	faults.real->timer_start(env, timer, delay_ns);
}

/* Now, however long it took to come here. */
static inline void patience_ends(void)
{
	faults.real->timer_start(faults.env, faults.patience, 0);
}

static inline void faulty_work(struct env *env, struct env_lane *lane,
			       struct env_work *work)
{
	if (index_held(lane)) {
		CHECK(faults.loads_count < ARRAY_LEN(faults.loads));
		faults.loads[faults.loads_count++] = work;
		return;
	}
	if (!faults.hold_directory || lane != faults.directory) {
		faults.real->work(env, lane, work);
		return;
	}
	CHECK(faults.works_count < ARRAY_LEN(faults.works));
	faults.works[faults.works_count++] = work;
}

/* What the directory was told while it was held back. */
static inline void directory_release(void)
{
	faults.hold_directory = false;
	for (unsigned i = 0; i < faults.works_count; i++)
		faults.real->work(faults.env, faults.directory,
				  faults.works[i]);
	faults.works_count = 0;
}

/* What the indexes of the disks were asked while they were held back. */
static inline void index_release(void)
{
	faults.hold_index = false;
	for (unsigned i = 0; i < faults.loads_count; i++)
		faults.real->work(faults.env, faults.index[0], faults.loads[i]);
	faults.loads_count = 0;
}

static inline void faults_install(struct fixture *f)
{
	memset(&faults, 0, sizeof(faults));
	faults.f = f;
	faults.env = f->ts.env;
	faults.real = f->ts.env->ops;
	faults.ops = *faults.real;
	faults.ops.dev_open = faulty_open;
	faults.ops.dev_writev = faulty_writev;
	faults.ops.dev_readv = faulty_readv;
	faults.ops.lane_open = faulty_lane_open;
	faults.ops.work = faulty_work;
	faults.ops.timer_start = faulty_timer;
	f->ts.env->ops = &faults.ops;
}

static inline void faults_release(void)
{
	memset(faults.hold, 0, sizeof(faults.hold));
	memset(faults.hold_reads, 0, sizeof(faults.hold_reads));
	for (unsigned i = 0; i < faults.held_count; i++) {
		struct rig_held *h = &faults.held[i];

		if (h->read)
			faults.real->dev_readv(h->dev, h->io, h->iov, h->n,
					       h->offset);
		else
			faults.real->dev_writev(h->dev, h->io, h->iov, h->n,
						h->offset, h->flags);
	}
	faults.held_count = 0;
}

static inline void finish(struct fixture *f, int status)
{
	f->status = status;
	f->done = true;
}

static inline int wait_for(struct fixture *f)
{
	run(&f->done);
	f->done = false;
	return f->status;
}

static inline void on_done(void *arg)
{
	finish(arg, 0);
}

static inline void on_directory(struct cmmds_open *req, int status)
{
	struct fixture *f = req->data;

	f->cmmds = req->opened;
	finish(f, status);
}

static inline void on_disk(struct lsom_disk_open *req, int status)
{
	finish(req->data, status);
}

static inline void on_disk_closed(struct lsom_disk_close *req, int status)
{
	finish(req->data, status);
}

static inline void on_command(struct cmmds_command *cmd, int status)
{
	finish(cmd->data, status);
}

static inline void on_barrier(struct cmmds_barrier *req, int status)
{
	finish(req->data, status);
}

#include "tests/unit/dom_shards.h"

static inline void entry_put(struct fixture *f, enum cmmds_kind kind,
			     const void *key, size_t len,
			     const ProtobufCMessage *message)
{
	struct cmmds_command cmd = { .data = f };

	cmmds_command_init(&cmd);
	cmmds_put(&cmd, kind, key, len, CMMDS_ANY, message);
	CHECK_EQ(cmmds_propose(f->cmmds, &cmd, 0, on_command), 0);
	CHECK_EQ(wait_for(f), 0);
	cmmds_command_fini(&cmd);
}

static inline void node_put(struct fixture *f)
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

static inline void disk_put(struct fixture *f, unsigned i)
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

static inline void start(struct fixture *f, bool fresh)
{
	struct cmmds_open dir = { .data = f };
	struct lsom_config lconfig;
	struct dom_config dconfig;

	test_shards_open(&f->ts, RIG_SHARDS, 256u << 20);
	faults_install(f);
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
				       .node = f->node,
				       .parts = RIG_SHARDS,
				       .all = f->doms,
				       .rules_off = f->rules_off };
	CHECK_EQ(dom_open(&dconfig, &f->dom), 0);
	rig_start(f);
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

			test_file(path, f->disk_bytes);
			CHECK_EQ(lsom_disk_format(f->ts.env, &format), 0);
			disk_put(f, i);
		}
		req.path = path;
		req.index_path = index;
		if (RIG_SHARDS > 1) {
			rig_disk_open(f, i, &req);
			continue;
		}
		/* The kernel may hold a killed life's files a little longer. */
		for (unsigned k = 0; k < 3000; k++) {
			CHECK_EQ(lsom_disk_open(f->lsom, &req, on_disk), 0);
			if (wait_for(f) != -EBUSY)
				break;
			usleep(20000);
		}
		CHECK_EQ(f->status, 0);
		f->disks[i] = req.opened;
		dom_disk_add(f->dom, f->disks[i]);
	}
}

static inline void stop(struct fixture *f)
{
	if (f->object != NULL)
		dom_object_close(f->object);
	f->object = NULL;
	dom_close(f->dom, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	if (RIG_SHARDS > 1)
		rig_stop(f);
	for (unsigned i = 0; i < DISKS && RIG_SHARDS == 1; i++) {
		struct lsom_disk_close req = { .data = f };

		CHECK_EQ(lsom_disk_close(f->disks[i], &req, on_disk_closed), 0);
		CHECK_EQ(wait_for(f), 0);
	}
	lsom_close(f->lsom);
	cmmds_close(f->cmmds, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	f->ts.env->ops = faults.real;
	test_shard_close(&f->ts);
}

/* The places of a fixture that is not started yet. */
static inline struct fixture *fixture_new(void)
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
	f->disk_bytes = DISK_BYTES;
	return f;
}

static inline struct fixture *fixture_open(void)
{
	struct fixture *f = fixture_new();

	start(f, true);
	return f;
}

struct nap {
	struct env_timer timer;
	bool done;
};

static inline void nap_fired(struct env_timer *timer)
{
	container_of(timer, struct nap, timer)->done = true;
}

/* Run the loop for a while, and a few turns however little of it is ours. */
static inline void nap(struct fixture *f, uint64_t ns)
{
	struct nap n = { .timer.cb = nap_fired };

	for (unsigned i = 0; i < 10; i++)
		shard_step(f->ts.env, 0);
	env_timer_start(f->ts.env, &n.timer, ns);
	run(&n.done);
}

/* Run the loop until @cond: disks and other threads may take their time. */
#define UNTIL(f, cond)                                                         \
	do {                                                                   \
		for (unsigned until = 0; until < 12000 && !(cond); until++)    \
			nap(f, 10 * MSEC);                                     \
		CHECK(cond);                                                   \
	} while (0)

/*
 * A life that ends as by kill -9: @fn runs in a child, which is gone when it
 * returns.  The next start() is another daemon's.
 */
static inline void life(struct fixture *f, bool fresh,
			void (*fn)(struct fixture *f))
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		start(f, fresh);
		fn(f);
		_exit(0);
	}
	CHECK_EQ(waitpid(pid, &status, 0), pid);
	CHECK_EQ(status, 0);
	f->incarnation++;
}

static inline void fixture_close(struct fixture *f)
{
	stop(f);
	free(f);
}

/* ---- objects ---- */

static inline void on_created(struct dom_create *req, int status)
{
	struct fixture *f = req->data;

	f->oid = req->oid;
	snprintf(f->why, sizeof(f->why), "%s", req->why);
	finish(f, status);
}

static inline int create(struct fixture *f, uint64_t size, const char *policy)
{
	struct dom_create req = { .data = f,
				  .oid = f->oid,
				  .size_bytes = size,
				  .policy = policy,
				  .who = "test" };
	int rv;

	/* Not the test's own shard's. */
	for (unsigned n = 50;
	     RIG_SHARDS > 1 &&
	     (uuid_is_zero(&req.oid) || uuid_hash(&req.oid) % RIG_SHARDS == 0);
	     n++)
		req.oid = uuid_of(n);
	rv = dom_create(f->dom, &req, on_created);

	if (rv == 0)
		return wait_for(f);
	snprintf(f->why, sizeof(f->why), "%s", req.why);
	return rv;
}

static inline void on_opened(struct dom_object_open *req, int status)
{
	struct fixture *f = req->data;

	f->object = req->object;
	finish(f, status);
}

static inline int object_open(struct fixture *f)
{
	struct dom_object_open req = { .data = f };
	int rv = dom_object_open(f->dom, &req, &f->oid, on_opened);

	return rv < 0 ? rv : wait_for(f);
}

static inline void policy_put(struct fixture *f, unsigned width, unsigned ftt)
{
	Directory__Policy p = DIRECTORY__POLICY__INIT;

	p.name = "p";
	p.stripe_width = width;
	p.failures_to_tolerate = ftt;
	entry_put(f, CMMDS_POLICY, "p", 1, &p.base);
}

static inline void on_io(struct dom_io *io, int status)
{
	finish(io->data, status);
}

static inline struct sgl *bytes_sgl(struct fixture *f, const uint8_t *src,
				    size_t len, size_t at)
{
	struct sgl *sgl;

	CHECK_EQ(sgl_new(f->ts.env->pages, PAGE_FRONT, len, at % 4096, &sgl),
		 0);
	sgl_write(sgl, 0, src, len);
	return sgl;
}

static inline int do_read(struct fixture *f, uint64_t at, uint8_t *dst,
			  size_t len)
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

static inline int do_write(struct fixture *f, uint64_t at, const uint8_t *src,
			   size_t len, size_t congruence, unsigned flags)
{
	struct dom_io io = { .data = f };
	struct sgl *sgl = bytes_sgl(f, src, len, congruence);
	int rv = dom_write(f->object, &io, at, sgl, flags, on_io);

	sgl_put(sgl);
	return rv < 0 ? rv : wait_for(f);
}

static inline void fill(uint8_t *buf, size_t len)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (uint8_t)rand();
}

/* ---- one request, and an object ---- */

#define B 4096u
#define MB (1u << 20)
#define SIZE (24u << 20)
/* A range that lies on both disks of a striped object. */
#define SPAN (256u << 10)
#define EDGE (MB - SPAN / 2)

static uint8_t __attribute__((unused)) buf_a[2 * MB], buf_b[2 * MB],
	got[2 * MB];

struct req {
	struct dom_io io;
	bool done;
	int status;
	unsigned *count;
};

static inline void on_req(struct dom_io *io, int status)
{
	struct req *r = io->data;

	CHECK(!r->done); /* once */
	r->done = true;
	r->status = status;
	if (r->count != NULL)
		++*r->count;
}

static inline void write_start(struct fixture *f, struct req *r, uint64_t at,
			       const uint8_t *src, size_t len, unsigned flags)
{
	struct sgl *sgl = bytes_sgl(f, src, len, at);

	r->io.data = r;
	CHECK_EQ(dom_write(f->object, &r->io, at, sgl, flags, on_req), 0);
	sgl_put(sgl);
}

static inline void compare_start(struct fixture *f, struct req *r, uint64_t at,
				 const uint8_t *old, const uint8_t *new,
				 size_t len)
{
	struct sgl *a = bytes_sgl(f, old, len, at);
	struct sgl *b = bytes_sgl(f, new, len, at);

	r->io.data = r;
	CHECK_EQ(dom_compare_and_write(f->object, &r->io, at, a, b, on_req), 0);
	sgl_put(a);
	sgl_put(b);
}

static inline int req_wait(struct fixture *f, struct req *r)
{
	run(&r->done);
	return r->status;
}

/* Striped over both disks, or on one; all of it @buf_a at first. */
static inline void object_make(struct fixture *f, unsigned width)
{
	memset(buf_a, 0xa5, sizeof(buf_a));
	memset(buf_b, 0x5a, sizeof(buf_b));
	policy_put(f, width, 0);
	f->oid = uuid_of(9);
	CHECK_EQ(create(f, SIZE, "p"), 0);
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(do_write(f, 0, buf_a, 2 * MB, 0, 0), 0);
}

static inline struct dom__owner *owner_of(struct fixture *f)
{
	return dom__owner_find(f->dom, &f->oid);
}

static inline bool all_is(const uint8_t *buf, size_t len, uint8_t want)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != want)
			return false;
	return true;
}

/* Open disk @i again, and hand it to dom. */
static inline void disk_in(struct fixture *f, unsigned i)
{
	struct lsom_disk_open req = { .data = f, .cluster = f->cluster };
	char path[300], index[300];

	snprintf(path, sizeof(path), "%s/disk", f->dirs[i]);
	snprintf(index, sizeof(index), "%s/index", f->dirs[i]);
	req.path = path;
	req.index_path = index;
	CHECK_EQ(lsom_disk_open(f->lsom, &req, on_disk), 0);
	CHECK_EQ(wait_for(f), 0);
	f->disks[i] = req.opened;
	dom_disk_add(f->dom, f->disks[i]);
}

/* ---- another size for it ---- */

static inline void on_resized(struct dom_resize *req, int status)
{
	struct fixture *f = req->data;

	snprintf(f->why, sizeof(f->why), "%s", req->why);
	finish(f, status);
}

static inline int resize_to(struct fixture *f, uint64_t size)
{
	struct dom_resize req = { .data = f,
				  .oid = f->oid,
				  .size_bytes = size };
	int rv = dom_resize(f->dom, &req, on_resized);

	return rv < 0 ? rv : wait_for(f);
}

/* One that is under way. */
struct resize {
	struct dom_resize req;
	bool done;
	int status;
};

static inline void on_resize(struct dom_resize *req, int status)
{
	struct resize *r = req->data;

	r->done = true;
	r->status = status;
}

static inline void resize_start(struct fixture *f, struct resize *r,
				uint64_t size, bool keep_data)
{
	*r = (struct resize){ .req = { .data = r,
				       .oid = f->oid,
				       .size_bytes = size,
				       .keep_data = keep_data } };
	CHECK_EQ(dom_resize(f->dom, &r->req, on_resize), 0);
}

/* ---- the mark of a sanitize ---- */

static inline void on_marked(struct dom_sanitize *req, int status)
{
	finish(req->data, status);
}

/* The first @len bytes of "mark"; 0: no mark. */
static inline int mark_set(struct fixture *f, size_t len)
{
	struct dom_sanitize req = { .data = f };
	int rv = dom_sanitize_mark(f->object, &req, "mark", len, on_marked);

	return rv < 0 ? rv : wait_for(f);
}

/* ---- its end ---- */

/* The object of @f, in the directory.  False: it has changed meanwhile. */
static inline bool object_deleted(struct fixture *f)
{
	const Directory__Object *object = cmmds_object(f->cmmds, &f->oid);
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;
	struct cmmds_command cmd = { .data = f };
	int rv;

	op.op = DIRECTORY__OBJECT_COMMAND__OP__DELETE;
	op.oid = object->oid;
	op.expect_oepoch = object->oepoch;
	op.expect_csn = object->csn;
	cmmds_command_init(&cmd);
	cmmds_object_op(&cmd, &op);
	CHECK_EQ(cmmds_propose(f->cmmds, &cmd, 0, on_command), 0);
	rv = wait_for(f);
	CHECK(rv == 0 || rv == -EAGAIN);
	cmmds_command_fini(&cmd);
	return rv == 0;
}

static inline void object_delete(struct fixture *f)
{
	CHECK(object_deleted(f));
}

#endif
