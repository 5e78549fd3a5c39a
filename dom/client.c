/*
 * client: where sessions come in.
 *
 * Checks what a caller asks, gives it a deadline and hands it to the owner.  An
 * owner on this node is called directly; whoever holds a handle keeps it across
 * takeovers, and commands wait in the owner meanwhile.
 */
#include "dom/dom_int.h"

#include "base/stats.h"

#include <assert.h>
#include <stdlib.h>

int dom_object_open(struct dom *dom, struct dom_object_open *req,
		    const struct uuid *oid, dom_object_open_cb cb)
{
	struct dom__owner *owner;

	if (dom->closing)
		return -ESHUTDOWN;
	req->dom = dom;
	req->oid = *oid;
	req->cb = cb;
	req->object = NULL;
	memset(&req->task, 0, sizeof(req->task));
	memset(&req->late, 0, sizeof(req->late));
	if (!dom__mine(dom, oid))
		return dom__far_open(dom, req);
	owner = dom__owner_get(dom, oid);
	if (owner == NULL)
		return -ENOMEM;
	dom__owner_open(owner, req);
	return 0;
}

void dom_object_close(struct dom_object *object)
{
	struct dom__owner *owner = object->owner;

	assert(object->ops == 0);
	assert(TAILQ_EMPTY(&object->watches));
	if (object->far != NULL) {
		dom__far_close(object->far);
		return;
	}
	TAILQ_REMOVE(&owner->objects, object, link);
	free(object);
	dom__owner_put(owner);
}

const struct uuid *dom_object_id(const struct dom_object *object)
{
	return &object->oid;
}

uint64_t dom_object_size(const struct dom_object *object)
{
	return object->far != NULL ? object->far->state.size_bytes
				   : object->owner->size_bytes;
}

uint32_t dom_object_stripe_bytes(const struct dom_object *object)
{
	const struct dom__owner *owner = object->owner;

	if (object->far != NULL)
		return object->far->state.stripe_bytes;
	return owner->tree ? dom__tree_stripe_bytes(owner->tree) : DOM_BLOCK;
}

unsigned dom_object_congestion(const struct dom_object *object)
{
	const struct dom__owner *owner = object->owner;
	unsigned most = 0;

	if (object->far != NULL)
		return object->far->state.congestion;
	for (unsigned i = 0; i < owner->leaves; i++) {
		const struct dom__cm *cm = owner->peers[i].cm;

		if (cm == NULL)
			continue;
		/* What has room of its own need not save that of others. */
		if (owner->thick || lsom_comp_kept(cm->comp) > 0)
			most = MAX(most, cm->disk->pressed);
		else
			most = MAX(most, cm->disk->congestion);
	}
	return most;
}

bool dom__object_uses_disk(const struct dom_object *object,
			   const struct dom__disk *disk)
{
	return object->far != NULL ? dom__far_uses_disk(object->far, disk)
				   : dom__owner_uses_disk(object->owner, disk);
}

void dom_object_watch(struct dom_object *object, struct dom_watch *watch)
{
	TAILQ_INSERT_TAIL(&object->watches, watch, link);
}

void dom_object_unwatch(struct dom_object *object, struct dom_watch *watch)
{
	TAILQ_REMOVE(&object->watches, watch, link);
}

/* ---- requests ---- */

static int request_new(struct dom_object *object, struct dom_io *io,
		       enum dom__op_kind kind, dom_io_cb cb,
		       struct dom__op **out)
{
	struct dom__owner *owner = object->owner;
	struct dom__op *op;

	if (owner->dom->closing)
		return -ESHUTDOWN;
	/* The generation dies with the nexus: a late command is nobody's. */
	if (io->nexus != NULL) {
		struct dom_nexus *nexus =
			dom__nexus_find(owner, io->nexus->generation);

		if (nexus == NULL || nexus->closing)
			return -ECANCELED;
	}
	op = dom__op_new(owner);
	if (op == NULL)
		return -EBUSY;
	op->object = object;
	op->io = io;
	op->kind = kind;
	op->generation = io->nexus ? io->nexus->generation : 0;
	op->since_ns = env_now(owner->dom->env);
	op->deadline_ns = io->deadline_ns != 0 ? io->deadline_ns
					       : op->since_ns + DOM_DEADLINE_NS;
	io->object = object;
	io->cb = cb;
	io->sgl = NULL;
	io->bad_offset = 0;
	io->miscompare = 0;
	io->mapped_len = 0;
	io->mapped = false;
	*out = op;
	return 0;
}

static int range_check(const struct dom_object *object, uint64_t offset,
		       uint64_t len, uint64_t len_max)
{
	uint64_t size = dom_object_size(object);

	if (len == 0 || len > len_max || offset % DOM_SECTOR ||
	    len % DOM_SECTOR)
		return -EINVAL;
	if (offset > size || len > size - offset)
		return -ERANGE;
	return 0;
}

static void count(const struct dom__args *args)
{
	switch (args->kind) {
	case DOM__READ:
		counter_add(&dom__reads, 1);
		counter_add(&dom__read_bytes, args->len);
		break;
	case DOM__WRITE:
	case DOM__COMPARE:
	case DOM__OR:
		counter_add(&dom__writes, 1);
		counter_add(&dom__write_bytes, args->len);
		break;
	case DOM__UNMAP:
		counter_add(&dom__unmaps, 1);
		break;
	default:
		break;
	}
}

/* A checked command goes to the owner, here or on its shard. */
static int submit(struct dom_object *object, struct dom_io *io,
		  const struct dom__args *args, dom_io_cb cb)
{
	struct dom__op *op;
	int rv;

	if (object->far != NULL)
		return dom__far_submit(object, io, args, cb);
	rv = request_new(object, io, args->kind, cb, &op);
	if (rv < 0)
		return rv;
	op->offset = args->offset;
	op->len = args->len;
	op->flags = args->flags;
	op->pr = args->pr;
	if (args->sgl != NULL)
		op->sgl = sgl_get(args->sgl);
	if (args->compare != NULL)
		op->compare = sgl_get(args->compare);
	count(args);
	dom__op_submit(op);
	return 0;
}

static int submit_range(struct dom_object *object, struct dom_io *io,
			const struct dom__args *args, uint64_t len_max,
			dom_io_cb cb)
{
	int rv = range_check(object, args->offset, args->len, len_max);

	return rv < 0 ? rv : submit(object, io, args, cb);
}

int dom_read(struct dom_object *object, struct dom_io *io, uint64_t offset,
	     uint64_t len, dom_io_cb cb)
{
	struct dom__args args = { .kind = DOM__READ,
				  .offset = offset,
				  .len = len };

	return submit_range(object, io, &args, DOM_IO_MAX, cb);
}

int dom_write(struct dom_object *object, struct dom_io *io, uint64_t offset,
	      struct sgl *sgl, unsigned flags, dom_io_cb cb)
{
	struct dom__args args = { .kind = DOM__WRITE,
				  .offset = offset,
				  .len = sgl->len_bytes,
				  .sgl = sgl,
				  .flags = flags };

	return submit_range(object, io, &args,
			    flags & DOM_ATOMIC ? DOM_ATOMIC_MAX : DOM_IO_MAX,
			    cb);
}

int dom_unmap(struct dom_object *object, struct dom_io *io, uint64_t offset,
	      uint64_t len, dom_io_cb cb)
{
	struct dom__args args = { .kind = DOM__UNMAP,
				  .offset = offset,
				  .len = len };

	return submit_range(object, io, &args, UINT64_MAX, cb);
}

/* Zero what lies behind the object's end in its last block. */
int dom__unmap_tail(struct dom_object *object, struct dom_io *io, dom_io_cb cb)
{
	uint64_t size = object->owner->size_bytes;
	struct dom__op *op;
	int rv = request_new(object, io, DOM__UNMAP, cb, &op);

	if (rv < 0)
		return rv;
	assert(size % DOM_BLOCK);
	op->offset = size;
	op->len = DOM_BLOCK - size % DOM_BLOCK;
	op->tail = true;
	dom__op_submit(op);
	return 0;
}

int dom_compare_and_write(struct dom_object *object, struct dom_io *io,
			  uint64_t offset, struct sgl *compare, struct sgl *sgl,
			  dom_io_cb cb)
{
	struct dom__args args = { .kind = DOM__COMPARE,
				  .offset = offset,
				  .len = sgl->len_bytes,
				  .sgl = sgl,
				  .compare = compare };

	if (compare->len_bytes != sgl->len_bytes)
		return -EINVAL;
	return submit_range(object, io, &args, DOM_ATOMIC_MAX, cb);
}

int dom_or_write(struct dom_object *object, struct dom_io *io, uint64_t offset,
		 struct sgl *sgl, dom_io_cb cb)
{
	struct dom__args args = { .kind = DOM__OR,
				  .offset = offset,
				  .len = sgl->len_bytes,
				  .sgl = sgl };

	return submit_range(object, io, &args, DOM_ATOMIC_MAX, cb);
}

int dom_map(struct dom_object *object, struct dom_io *io, uint64_t offset,
	    uint64_t len, dom_io_cb cb)
{
	struct dom__args args = { .kind = DOM__MAP,
				  .offset = offset,
				  .len = len };

	return submit_range(object, io, &args, UINT64_MAX, cb);
}

int dom_reserve(struct dom_object *object, struct dom_io *io,
		const struct dom_pr *pr, dom_io_cb cb)
{
	struct dom__args args = { .kind = DOM__RESERVE, .pr = pr };

	if (io->nexus == NULL && pr->action != DOM_SPC2_RESET)
		return -EINVAL;
	if (pr->initiator_ports_count > DOM_REGISTRATIONS_MAX)
		return -ENOMEM;
	return submit(object, io, &args, cb);
}

void dom_cancel(struct dom_io *io)
{
	struct dom__op *op = io->impl[0];

	if (op != NULL && io->object->far != NULL)
		dom__far_cancel(io);
	else if (op != NULL && dom__op_stoppable(op))
		dom__op_cancel(op, -ECANCELED);
}

const struct dom_reservation *dom_reservation(struct dom_object *object)
{
	return object->far != NULL ? &object->far->state.reservation
				   : &object->owner->reservation;
}

bool dom_access_allowed(struct dom_object *object,
			const struct dom_nexus *nexus, enum dom_access access)
{
	struct dom__pr_who who = { nexus->initiator_port, nexus->target_port };

	return dom__reservation_allows(dom_reservation(object), &who, access);
}

unsigned dom_nexus_attention(struct dom_object *object,
			     const struct dom_nexus *nexus)
{
	struct dom__far_nexus *far;
	struct dom_nexus *own;
	unsigned bits = 0;

	if (object->far != NULL) {
		far = dom__far_nexus_find(object->far, nexus->generation);
		own = far != NULL ? far->nexus : NULL;
	} else {
		own = dom__nexus_find(object->owner, nexus->generation);
	}
	if (own != NULL) {
		bits = own->attention;
		own->attention = 0;
	}
	return bits;
}
