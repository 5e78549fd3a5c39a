/* fake_dom: volumes in memory, and the requests on them. */
#include "tests/lib/fake_dom_int.h"

#include "base/util.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK 4096u
#define LEAF_BLOCKS 256u
#define LEAF_BYTES ((uint64_t)BLOCK * LEAF_BLOCKS)

struct fake_volume {
	struct uuid oid;
	uint64_t size, used, free;
	unsigned congestion;
	bool deleted;
	uint64_t leaves_count;
	uint8_t ***leaves; /* leaves[i][j] is a block, or NULL: a hole */
	struct fake_pr pr;
	uint8_t *sanitize; /* the mark of a SANITIZE */
	size_t sanitize_len;
	TAILQ_HEAD(, dom_object) handles;
	TAILQ_ENTRY(fake_volume) link;
};

struct dom_object {
	struct dom *dom;
	struct fake_volume *volume;
	unsigned requests;
	TAILQ_HEAD(, dom_watch) watches;
	TAILQ_ENTRY(dom_object) link;
};

struct dom {
	struct env *env;
	struct env_task task;
	bool hold, stubborn;
	unsigned queued;
	uint64_t generation;
	struct fake_fault fault;
	TAILQ_HEAD(fake_ios, dom_io) ios;
	TAILQ_HEAD(fake_opens, dom_object_open) opens;
	TAILQ_HEAD(, fake_volume) volumes;
	void (*close_cb)(void *arg);
	void *close_arg;
};

/* What a queued request keeps in dom_io.impl[]. */
struct fake_req {
	enum fake_op op;
	unsigned more; /* of enum fake_op, for faults */
	uint64_t offset, len;
	struct sgl *data, *compare;
	const struct dom_pr *pr;
	int status; /* a fault's, or -ECANCELED */
};

static_assert(sizeof(struct fake_req) <= sizeof(((struct dom_io *)0)->impl),
	      "fake_req must fit");

static struct fake_req *req_of(struct dom_io *io)
{
	return (struct fake_req *)(void *)io->impl;
}

/* ---- volumes ---- */

static struct fake_volume *volume_find(struct dom *dom, const struct uuid *oid)
{
	struct fake_volume *v;

	TAILQ_FOREACH (v, &dom->volumes, link)
		if (uuid_equal(&v->oid, oid))
			return v;
	return NULL;
}

static void volume_free(struct fake_volume *v)
{
	for (uint64_t i = 0; i < v->leaves_count; i++) {
		for (unsigned j = 0; v->leaves[i] && j < LEAF_BLOCKS; j++)
			free(v->leaves[i][j]);
		free(v->leaves[i]);
	}
	free(v->leaves);
	fake_pr_fini(&v->pr);
	free(v->sanitize);
	free(v);
}

int fake_dom_add(struct dom *dom, const struct uuid *oid, uint64_t size_bytes)
{
	struct fake_volume *v;

	if (volume_find(dom, oid) != NULL)
		return -EEXIST;
	v = calloc(1, sizeof(*v));
	if (v == NULL)
		return -ENOMEM;
	v->oid = *oid;
	v->size = size_bytes;
	v->free = size_bytes;
	v->leaves_count = DIV_UP(size_bytes, LEAF_BYTES);
	v->leaves = calloc(v->leaves_count, sizeof(*v->leaves));
	if (v->leaves == NULL) {
		free(v);
		return -ENOMEM;
	}
	TAILQ_INIT(&v->handles);
	fake_pr_init(&v->pr);
	TAILQ_INSERT_TAIL(&dom->volumes, v, link);
	return 0;
}

static void tell(struct fake_volume *v, enum dom_event event)
{
	struct dom_object *o, *next;
	struct dom_watch *w, *wnext;

	for (o = TAILQ_FIRST(&v->handles); o != NULL; o = next) {
		next = TAILQ_NEXT(o, link);
		for (w = TAILQ_FIRST(&o->watches); w != NULL; w = wnext) {
			wnext = TAILQ_NEXT(w, link);
			w->cb(w, event);
		}
	}
}

void fake_dom_remove(struct dom *dom, const struct uuid *oid)
{
	struct fake_volume *v = volume_find(dom, oid);

	v->deleted = true;
	tell(v, DOM_DELETED);
}

void fake_dom_resize(struct dom *dom, const struct uuid *oid,
		     uint64_t size_bytes)
{
	struct fake_volume *v = volume_find(dom, oid);
	uint64_t count = DIV_UP(size_bytes, LEAF_BYTES);

	if (count > v->leaves_count) {
		v->leaves = realloc(v->leaves, count * sizeof(*v->leaves));
		assert(v->leaves != NULL);
		memset(v->leaves + v->leaves_count, 0,
		       (count - v->leaves_count) * sizeof(*v->leaves));
		v->leaves_count = count;
	}
	v->size = size_bytes;
	tell(v, DOM_RESIZED);
}

void fake_dom_mark_empty(struct dom *dom, const struct uuid *oid)
{
	volume_find(dom, oid)->sanitize_len = 0;
}

void fake_dom_low_space(struct dom *dom, const struct uuid *oid,
			uint64_t used_bytes, uint64_t free_bytes)
{
	struct fake_volume *v = volume_find(dom, oid);

	v->used = used_bytes;
	v->free = free_bytes;
	tell(v, DOM_LOW_SPACE);
}

void fake_dom_congestion(struct dom *dom, const struct uuid *oid,
			 unsigned congestion)
{
	struct fake_volume *v = volume_find(dom, oid);

	v->congestion = congestion;
	tell(v, DOM_CONGESTION);
}

void fake_dom_power_loss(struct dom *dom)
{
	struct fake_volume *v;

	TAILQ_FOREACH (v, &dom->volumes, link) {
		v->pr.spc2_holder[0] = '\0';
		v->pr.generation = 0;
		if (v->pr.aptpl)
			continue;
		v->pr.count = 0;
		v->pr.held = false;
	}
}

static uint8_t *block_at(struct fake_volume *v, uint64_t offset, bool make)
{
	uint64_t leaf = offset / LEAF_BYTES;
	unsigned slot = (unsigned)(offset % LEAF_BYTES / BLOCK);

	if (v->leaves[leaf] == NULL) {
		if (!make)
			return NULL;
		v->leaves[leaf] = calloc(LEAF_BLOCKS, sizeof(uint8_t *));
		assert(v->leaves[leaf] != NULL);
	}
	if (v->leaves[leaf][slot] == NULL && make) {
		v->leaves[leaf][slot] = calloc(1, BLOCK);
		assert(v->leaves[leaf][slot] != NULL);
		v->used += BLOCK;
	}
	return v->leaves[leaf][slot];
}

static void volume_read(struct fake_volume *v, struct sgl *sgl, uint64_t offset)
{
	static const uint8_t zeros[BLOCK];

	for (uint64_t at = 0; at < sgl->len_bytes;) {
		unsigned in = (unsigned)((offset + at) % BLOCK);
		size_t n = MIN(BLOCK - in, sgl->len_bytes - at);
		const uint8_t *b = block_at(v, offset + at, false);

		sgl_write(sgl, at, b != NULL ? b + in : zeros, n);
		at += n;
	}
}

/* As dom: a block that is a hole is the page of zeros.  NULL: no memory. */
static struct sgl *volume_holes(struct fake_volume *v, struct sgl *sgl,
				uint64_t offset)
{
	struct sgl_piece *pieces =
		malloc(sgl->pieces_count * sizeof(*pieces) + 1);
	struct sgl *holes;

	assert(pieces != NULL);
	for (unsigned i = 0; i < sgl->pieces_count; i++) {
		pieces[i] = sgl->pieces[i];
		if (block_at(v, offset, false) == NULL)
			pieces[i].page = page_zero();
		offset += pieces[i].len;
	}
	holes = sgl_of_pieces(sgl->home, pieces, sgl->pieces_count);
	free(pieces);
	sgl_put(sgl);
	return holes;
}

static void volume_write(struct fake_volume *v, const struct sgl *sgl,
			 uint64_t offset, bool or)
{
	for (uint64_t at = 0; at < sgl->len_bytes;) {
		unsigned in = (unsigned)((offset + at) % BLOCK);
		size_t n = MIN(BLOCK - in, sgl->len_bytes - at);
		uint8_t *b = block_at(v, offset + at, true);
		uint8_t add[BLOCK];

		sgl_read(sgl, at, add, n);
		for (size_t i = 0; i < n; i++)
			b[in + i] = or ? b[in + i] | add[i] : add[i];
		at += n;
	}
}

static void volume_unmap(struct fake_volume *v, uint64_t offset, uint64_t len)
{
	uint64_t end = offset + len;

	while (offset < end) {
		unsigned in = (unsigned)(offset % BLOCK);
		uint64_t n = MIN(BLOCK - in, end - offset);
		uint8_t *b = block_at(v, offset, false);

		if (b == NULL) {
			/* A hole already. */
		} else if (n == BLOCK) {
			v->leaves[offset / LEAF_BYTES]
				 [offset % LEAF_BYTES / BLOCK] = NULL;
			free(b);
			v->used -= BLOCK;
		} else {
			memset(b + in, 0, n);
		}
		offset += n;
	}
}

static void volume_map(struct fake_volume *v, struct dom_io *io,
		       uint64_t offset, uint64_t len)
{
	uint64_t end = offset + len, at = offset, step;

	io->mapped = block_at(v, at, false) != NULL;
	do {
		step = v->leaves[at / LEAF_BYTES] != NULL ? BLOCK : LEAF_BYTES;
		at = ROUND_DOWN(at, step) + step;
	} while (at < end && (block_at(v, at, false) != NULL) == io->mapped);
	io->mapped_len = MIN(at, end) - offset;
}

/* ---- requests ---- */

static void turn(struct env_task *task);

int fake_dom_open(struct env *env, struct dom **out)
{
	struct dom *dom = calloc(1, sizeof(*dom));

	if (dom == NULL)
		return -ENOMEM;
	dom->env = env;
	dom->task.cb = turn;
	TAILQ_INIT(&dom->ios);
	TAILQ_INIT(&dom->opens);
	TAILQ_INIT(&dom->volumes);
	*out = dom;
	return 0;
}

void dom_close(struct dom *dom, void (*cb)(void *arg), void *arg)
{
	dom->close_cb = cb;
	dom->close_arg = arg;
	env_defer(dom->env, &dom->task);
}

void fake_dom_fault(struct dom *dom, struct fake_fault fault)
{
	dom->fault = fault;
}

void fake_dom_hold(struct dom *dom, bool hold)
{
	dom->hold = hold;
	if (!hold)
		env_defer(dom->env, &dom->task);
}

void fake_dom_stubborn(struct dom *dom, bool stubborn)
{
	dom->stubborn = stubborn;
}

void fake_dom_late(struct dom *dom, const struct uuid *oid, bool late)
{
	struct fake_pr *pr = &volume_find(dom, oid)->pr;

	pr->late = late;
	if (late || pr->coming.initiator_port[0] == '\0')
		return;
	strcpy(pr->spc2_holder, pr->coming.initiator_port);
	pr->spc2_target_port = pr->coming.target_port;
	pr->coming.initiator_port[0] = '\0';
}

unsigned fake_dom_queued(const struct dom *dom)
{
	return dom->queued;
}

/* The status of this request's fault, 0 if it has none. */
static int fault_hit(struct dom *dom, unsigned op, bool at_once,
		     uint64_t *bad_offset)
{
	struct fake_fault *f = &dom->fault;

	if ((f->ops & op) == 0 || f->times == 0 || f->at_once != at_once)
		return 0;
	if (f->skip > 0) {
		f->skip--;
		return 0;
	}
	f->times--;
	if (bad_offset != NULL)
		*bad_offset = f->bad_offset;
	return f->status;
}

static enum dom_access access_of(enum fake_op op)
{
	switch (op) {
	case FAKE_READ:
	case FAKE_MAP:
		return DOM_ACCESS_READ;
	case FAKE_RESERVE:
		return DOM_ACCESS_NONE;
	default:
		return DOM_ACCESS_WRITE;
	}
}

static int perform(struct dom_io *io, struct fake_req *r, bool *changed)
{
	struct fake_volume *v = io->object->volume;
	struct dom *dom = io->object->dom;
	struct sgl *old;
	int64_t at;
	int rv;

	if (r->status != 0)
		return r->status;
	rv = fault_hit(dom, r->op | r->more, false, &io->bad_offset);
	if (rv != 0)
		return rv;
	if (v->deleted)
		return -ENOENT;
	if (!fake_pr_allowed(&v->pr, io->nexus, access_of(r->op)))
		return -EPERM;
	if (r->op != FAKE_RESERVE &&
	    (r->offset > v->size || r->len > v->size - r->offset))
		return -ERANGE;
	switch (r->op) {
	case FAKE_READ:
		rv = sgl_new(dom->env->pages, PAGE_FRONT, r->len,
			     r->offset % PAGE_BYTES, &io->sgl);
		if (rv < 0)
			return rv == -EINVAL ? -ENOMEM : -EBUSY;
		volume_read(v, io->sgl, r->offset);
		io->sgl = volume_holes(v, io->sgl, r->offset);
		return io->sgl != NULL ? 0 : -ENOMEM;
	case FAKE_WRITE:
		volume_write(v, r->data, r->offset, false);
		return 0;
	case FAKE_OR:
		volume_write(v, r->data, r->offset, true);
		return 0;
	case FAKE_UNMAP:
		volume_unmap(v, r->offset, r->len);
		return 0;
	case FAKE_MAP:
		volume_map(v, io, r->offset, r->len);
		return 0;
	case FAKE_COMPARE:
		rv = sgl_new(dom->env->pages, PAGE_FRONT, r->len, 0, &old);
		if (rv < 0)
			return -EBUSY;
		volume_read(v, old, r->offset);
		at = sgl_compare(old, r->compare);
		sgl_put(old);
		if (at >= 0) {
			io->miscompare = (uint64_t)at;
			return -EILSEQ;
		}
		volume_write(v, r->data, r->offset, false);
		return 0;
	default:
		return fake_pr_out(&v->pr, io->nexus, r->pr, changed,
				   &io->bad_offset);
	}
}

static void finish(struct dom *dom, struct dom_io *io)
{
	struct fake_req *r = req_of(io);
	struct fake_volume *v = io->object->volume;
	bool changed = false;
	int status;

	TAILQ_REMOVE(&dom->ios, io, link);
	dom->queued--;
	status = perform(io, r, &changed);
	sgl_put(r->data);
	sgl_put(r->compare);
	if (changed && status == 0)
		tell(v, DOM_RESERVATION);
	io->object->requests--;
	io->cb(io, status);
}

static struct dom_io *next_io(struct dom *dom)
{
	struct dom_io *io;

	TAILQ_FOREACH (io, &dom->ios, link)
		if (!dom->hold || req_of(io)->status != 0)
			return io;
	return NULL;
}

static void turn(struct env_task *task)
{
	struct dom *dom = container_of(task, struct dom, task);
	struct dom_object_open *req;
	struct fake_volume *v;
	struct dom_io *io;

	while ((req = TAILQ_FIRST(&dom->opens)) != NULL) {
		int status = fault_hit(dom, FAKE_OPEN, false, NULL);

		TAILQ_REMOVE(&dom->opens, req, link);
		v = volume_find(dom, &req->oid);
		if (status == 0 && (v == NULL || v->deleted))
			status = -ENOENT;
		req->object = NULL;
		if (status == 0) {
			struct dom_object *o = calloc(1, sizeof(*o));

			assert(o != NULL);
			o->dom = dom;
			o->volume = v;
			TAILQ_INIT(&o->watches);
			TAILQ_INSERT_TAIL(&v->handles, o, link);
			req->object = o;
		}
		req->cb(req, status);
	}
	while ((io = next_io(dom)) != NULL)
		finish(dom, io);
	if (dom->close_cb != NULL) {
		void (*cb)(void *arg) = dom->close_cb;
		void *arg = dom->close_arg;

		while ((v = TAILQ_FIRST(&dom->volumes)) != NULL) {
			assert(TAILQ_EMPTY(&v->handles));
			TAILQ_REMOVE(&dom->volumes, v, link);
			volume_free(v);
		}
		free(dom);
		cb(arg);
	}
}

int dom_object_open(struct dom *dom, struct dom_object_open *req,
		    const struct uuid *oid, dom_object_open_cb cb)
{
	req->dom = dom;
	req->oid = *oid;
	req->cb = cb;
	TAILQ_INSERT_TAIL(&dom->opens, req, link);
	env_defer(dom->env, &dom->task);
	return 0;
}

void dom_object_close(struct dom_object *object)
{
	assert(object->requests == 0);
	assert(TAILQ_EMPTY(&object->watches));
	TAILQ_REMOVE(&object->volume->handles, object, link);
	free(object);
}

const struct uuid *dom_object_id(const struct dom_object *object)
{
	return &object->volume->oid;
}

uint64_t dom_object_size(const struct dom_object *object)
{
	return object->volume->size;
}

uint32_t dom_object_stripe_bytes(const struct dom_object *object)
{
	return 1u << 20;
}

unsigned dom_object_congestion(const struct dom_object *object)
{
	return object->volume->congestion;
}

void dom_object_space(const struct dom_object *object, uint64_t *used_bytes,
		      uint64_t *free_bytes)
{
	*used_bytes = object->volume->used;
	*free_bytes = object->volume->free;
}

uint64_t dom_object_low_space(const struct dom_object *object)
{
	return object->volume->size / 100 * DOM_LOW_SPACE_PERCENT;
}

void dom_object_watch(struct dom_object *object, struct dom_watch *watch)
{
	TAILQ_INSERT_TAIL(&object->watches, watch, link);
}

void dom_object_unwatch(struct dom_object *object, struct dom_watch *watch)
{
	TAILQ_REMOVE(&object->watches, watch, link);
}

void dom_nexus_open(struct dom_object *object, struct dom_nexus *nexus)
{
	struct fake_login *login = calloc(1, sizeof(*login));

	assert(login != NULL);
	strcpy(login->initiator_port, nexus->initiator_port);
	login->target_port = nexus->target_port;
	nexus->generation = login->generation = ++object->dom->generation;
	TAILQ_INSERT_TAIL(&object->volume->pr.logins, login, link);
}

static struct fake_login *login_find(struct dom_object *object,
				     const struct dom_nexus *nexus)
{
	struct fake_login *login;

	TAILQ_FOREACH (login, &object->volume->pr.logins, link)
		if (login->generation == nexus->generation)
			return login;
	return NULL;
}

struct closing {
	struct env_task task;
	void (*cb)(void *arg);
	void *arg;
};

static void closed(struct env_task *task)
{
	struct closing *c = container_of(task, struct closing, task);

	c->cb(c->arg);
	free(c);
}

void dom_nexus_close(struct dom_object *object, struct dom_nexus *nexus,
		     void (*cb)(void *arg), void *arg)
{
	struct fake_login *login = login_find(object, nexus);
	struct closing *c = calloc(1, sizeof(*c));
	struct dom_io *io;

	assert(login != NULL && c != NULL);
	TAILQ_FOREACH (io, &object->dom->ios, link)
		if (io->nexus == nexus)
			dom_cancel(io);
	TAILQ_REMOVE(&object->volume->pr.logins, login, link);
	free(login);
	c->task.cb = closed;
	c->cb = cb;
	c->arg = arg;
	env_defer(object->dom->env, &c->task);
}

static int submit(struct dom_object *object, struct dom_io *io,
		  struct fake_req r, dom_io_cb cb)
{
	struct dom *dom = object->dom;
	int rv = fault_hit(dom, r.op | r.more, true, NULL);

	if (rv != 0)
		return rv;
	if (r.offset % DOM_SECTOR != 0 || r.len % DOM_SECTOR != 0)
		return -EINVAL;
	if (r.op != FAKE_UNMAP && r.op != FAKE_MAP && r.len > DOM_IO_MAX)
		return -EINVAL;
	if (object->requests == DOM_OPS_MAX)
		return -EBUSY;
	io->object = object;
	io->cb = cb;
	io->sgl = NULL;
	io->bad_offset = 0;
	*req_of(io) = r;
	if (r.data != NULL)
		sgl_get(r.data);
	if (r.compare != NULL)
		sgl_get(r.compare);
	TAILQ_INSERT_TAIL(&dom->ios, io, link);
	object->requests++;
	dom->queued++;
	env_defer(dom->env, &dom->task);
	return 0;
}

int dom_read(struct dom_object *object, struct dom_io *io, uint64_t offset,
	     uint64_t len, dom_io_cb cb)
{
	return submit(object, io,
		      (struct fake_req){
			      .op = FAKE_READ, .offset = offset, .len = len },
		      cb);
}

int dom_write(struct dom_object *object, struct dom_io *io, uint64_t offset,
	      struct sgl *sgl, unsigned flags, dom_io_cb cb)
{
	bool atomic = (flags & DOM_ATOMIC) != 0;

	if (atomic && sgl->len_bytes > DOM_ATOMIC_MAX)
		return -EINVAL;
	return submit(object, io,
		      (struct fake_req){ .op = FAKE_WRITE,
					 .more = atomic ? FAKE_ATOMIC : 0,
					 .offset = offset,
					 .len = sgl->len_bytes,
					 .data = sgl },
		      cb);
}

int dom_unmap(struct dom_object *object, struct dom_io *io, uint64_t offset,
	      uint64_t len, dom_io_cb cb)
{
	return submit(object, io,
		      (struct fake_req){
			      .op = FAKE_UNMAP, .offset = offset, .len = len },
		      cb);
}

int dom_compare_and_write(struct dom_object *object, struct dom_io *io,
			  uint64_t offset, struct sgl *compare, struct sgl *sgl,
			  dom_io_cb cb)
{
	if (compare->len_bytes != sgl->len_bytes ||
	    sgl->len_bytes > DOM_ATOMIC_MAX)
		return -EINVAL;
	return submit(object, io,
		      (struct fake_req){ .op = FAKE_COMPARE,
					 .offset = offset,
					 .len = sgl->len_bytes,
					 .data = sgl,
					 .compare = compare },
		      cb);
}

int dom_or_write(struct dom_object *object, struct dom_io *io, uint64_t offset,
		 struct sgl *sgl, dom_io_cb cb)
{
	if (sgl->len_bytes > DOM_ATOMIC_MAX)
		return -EINVAL;
	return submit(object, io,
		      (struct fake_req){ .op = FAKE_OR,
					 .offset = offset,
					 .len = sgl->len_bytes,
					 .data = sgl },
		      cb);
}

int dom_map(struct dom_object *object, struct dom_io *io, uint64_t offset,
	    uint64_t len, dom_io_cb cb)
{
	return submit(object, io,
		      (struct fake_req){
			      .op = FAKE_MAP, .offset = offset, .len = len },
		      cb);
}

void dom_cancel(struct dom_io *io)
{
	if (io->object->dom->stubborn)
		return;
	req_of(io)->status = -ECANCELED;
	env_defer(io->object->dom->env, &io->object->dom->task);
}

int dom_reserve(struct dom_object *object, struct dom_io *io,
		const struct dom_pr *pr, dom_io_cb cb)
{
	return submit(object, io,
		      (struct fake_req){ .op = FAKE_RESERVE, .pr = pr }, cb);
}

const struct dom_reservation *dom_reservation(struct dom_object *object)
{
	return fake_pr_view(&object->volume->pr);
}

bool dom_access_allowed(struct dom_object *object,
			const struct dom_nexus *nexus, enum dom_access access)
{
	return fake_pr_allowed(&object->volume->pr, nexus, access);
}

unsigned dom_nexus_attention(struct dom_object *object,
			     const struct dom_nexus *nexus)
{
	struct fake_login *login = login_find(object, nexus);
	unsigned bits = login != NULL ? login->attention : 0;

	if (login != NULL)
		login->attention = 0;
	return bits;
}

/* ---- the mark of a SANITIZE ---- */

struct fake_mark {
	struct dom_object *object;
	struct dom_sanitize *req;
	struct env_task task;
	size_t len;
	uint8_t bytes[];
};

const uint8_t *dom_sanitize_state(struct dom_object *object, size_t *len)
{
	*len = object->volume->sanitize_len;
	return object->volume->sanitize;
}

static void mark_set(struct env_task *task)
{
	struct fake_mark *m = container_of(task, struct fake_mark, task);
	struct fake_volume *v = m->object->volume;
	struct dom_sanitize *req = m->req;
	int status = fault_hit(m->object->dom, FAKE_MARK, false, NULL);

	if (v->deleted)
		status = -ENOENT;
	if (status == 0) {
		free(v->sanitize);
		v->sanitize = m->len > 0 ? malloc(m->len) : NULL;
		assert(m->len == 0 || v->sanitize != NULL);
		if (m->len > 0)
			memcpy(v->sanitize, m->bytes, m->len);
		v->sanitize_len = m->len;
	}
	m->object->requests--;
	free(m);
	req->cb(req, status);
}

int dom_sanitize_mark(struct dom_object *object, struct dom_sanitize *req,
		      const void *state, size_t len, dom_sanitize_cb cb)
{
	int rv = fault_hit(object->dom, FAKE_MARK, true, NULL);
	struct fake_mark *m;

	if (rv != 0)
		return rv;
	m = calloc(1, sizeof(*m) + len);
	if (m == NULL)
		return -ENOMEM;
	m->object = object;
	m->req = req;
	m->task.cb = mark_set;
	m->len = len;
	if (len > 0)
		memcpy(m->bytes, state, len);
	req->cb = cb;
	object->requests++;
	env_defer(object->dom->env, &m->task);
	return 0;
}
