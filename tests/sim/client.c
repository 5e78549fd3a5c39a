/*
 * client: what the clients of a node ask, and what they may be answered; in the
 * rough workload also what an administrator does meanwhile.
 */
#include "tests/sim/node.h"

#include "base/err.h"

bool node__fault_excuses(const struct node *n, int status)
{
	switch (status) {
	case -EIO:
	case -ENODEV:
	case -ENXIO:
		return n->fault == FAULT_WRITE || n->fault == FAULT_READ ||
		       n->fault == FAULT_INDEX;
	case -ETIMEDOUT:
		/* A full disk some of whose segments cannot be read is slow. */
		return n->fault == FAULT_STALL || n->fault == FAULT_WRITE ||
		       (n->fill && n->fault == FAULT_READ);
	}
	return false;
}

bool node__any_tampered(const struct node *n)
{
	for (unsigned i = 0; i < n->disks_count; i++)
		if (n->sim->disks[i].tampered)
			return true;
	return false;
}

/* ---- clients ---- */

static enum h_outcome outcome_of(struct node *n, const struct client *c,
				 int status)
{
	if (c->or &&status == 0)
		return H_NEVER; /* all is as it was */
	switch (status) {
	case 0:
		return H_DONE;
	case -ECANCELED:
	case -ETIMEDOUT:
		if (n->sim->config.rough || node__fault_excuses(n, status))
			return H_UNKNOWN;
		break;
	case -ERANGE:
		if (n->sim->config.rough)
			return H_NEVER;
		break;
	case -EILSEQ:
		if (c->kind == H_COMPARE)
			return H_NEVER;
		break;
	case -ENOSPC:
		if (c->kind != H_READ)
			return H_NEVER;
		break;
	case -EBADMSG:
		if (node__any_tampered(n))
			return H_UNKNOWN;
		break;
	default:
		if (node__fault_excuses(n, status))
			return H_UNKNOWN;
	}
	sim_violation(n->sim, "client %u: sectors %u+%u: %s", c->number,
		      c->op->sector, c->op->count, err_text(status));
}

static void values_take(struct node *n, struct h_op *op, const struct sgl *sgl)
{
	uint8_t bytes[SECTOR];
	uint32_t i;

	for (i = 0; i < op->count; i++) {
		sgl_read(sgl, (size_t)i * SECTOR, bytes, SECTOR);
		op->seen[i] =
			history_value(n->sim->history, bytes, op->sector + i);
		n->seen[op->sector + i] = op->seen[i];
	}
}

static void answered(struct dom_io *io, int status)
{
	struct client *c = container_of(io, struct client, io);
	struct node *n = io->data;
	enum h_outcome outcome = outcome_of(n, c, status);

	if (status == 0 && c->kind == H_READ) {
		values_take(n, c->op, io->sgl);
		sgl_put(io->sgl);
	}
	if (c->or || (c->kind == H_READ && outcome != H_DONE))
		outcome = H_NEVER;
	if (n->sim->now_ns > c->sent_ns + 60 * SEC)
		sim_violation(
			n->sim, "client %u: an answer after %llu s", c->number,
			(unsigned long long)((n->sim->now_ns - c->sent_ns) /
					     SEC));
	sgl_put(c->data);
	sgl_put(c->expect);
	c->data = c->expect = NULL;
	c->busy = false;
	n->answers++;
	history_end(n->sim->history, c->op, outcome);
}

static struct sgl *bytes_make(struct node *n, struct h_op *op, bool expected)
{
	uint8_t bytes[SECTOR];
	size_t first = (size_t)op->sector * SECTOR % 4096;
	struct sgl *sgl;
	uint32_t i;

	if (sim_chance(n->sim, 6))
		first = sim_random(n->sim, 8) * SECTOR;
	if (sgl_new(n->sim->life->loop.env.pages, PAGE_FRONT,
		    (size_t)op->count * SECTOR, first, &sgl) < 0)
		return NULL;
	for (i = 0; i < op->count; i++) {
		history_fill(bytes, op->sector + i,
			     expected ? op->seen[i] : op->id);
		sgl_write(sgl, (size_t)i * SECTOR, bytes, SECTOR);
	}
	return sgl;
}

int node__send(struct node *n, struct client *c, unsigned flags)
{
	uint64_t offset = (uint64_t)c->op->sector * SECTOR;
	uint64_t len = (uint64_t)c->op->count * SECTOR;
	uint32_t i;

	switch (c->kind) {
	case H_READ:
		return dom_read(n->object, &c->io, offset, len, answered);
	case H_UNMAP:
		return dom_unmap(n->object, &c->io, offset, len, answered);
	case H_COMPARE:
		for (i = 0; i < c->op->count; i++)
			c->op->seen[i] = n->seen[c->op->sector + i];
		c->expect = bytes_make(n, c->op, true);
		if (c->expect == NULL)
			return -EBUSY;
		break;
	case H_WRITE:
		break;
	}
	c->data = bytes_make(n, c->op, false);
	if (c->data == NULL)
		return -EBUSY;
	if (c->or)
		return dom_or_write(n->object, &c->io, offset, c->data,
				    answered);
	if (c->kind == H_COMPARE)
		return dom_compare_and_write(n->object, &c->io, offset,
					     c->expect, c->data, answered);
	return dom_write(n->object, &c->io, offset, c->data, flags, answered);
}

/* Stripe edges are where commands meet several components. */
static uint32_t sector_pick(struct node *n, uint32_t count)
{
	uint32_t edge = (1u << 20) / SECTOR, s;

	s = (uint32_t)sim_random(n->sim, n->sectors - count + 1);
	if (!n->fill && sim_chance(n->sim, 2))
		s %= n->sectors / 8;
	else if (n->disks_count > 1 && sim_chance(n->sim, 2))
		s = edge * (1 + (uint32_t)sim_random(n->sim,
						     n->sectors / edge - 1)) -
		    (uint32_t)sim_random(n->sim, count + 8);
	return MIN(s, n->sectors - count);
}

void node__client_send(struct node *n, unsigned i)
{
	struct client *c = &n->clients[i];
	struct sim *sim = n->sim;
	uint32_t count =
		1 + (uint32_t)sim_random(sim, n->fill		   ? 380
					      : sim_chance(sim, 3) ? 200
								   : 24);
	unsigned roll = (unsigned)sim_random(sim, 16), flags = 0;
	uint32_t sector;
	int rv;

	memset(c, 0, sizeof(*c));
	c->number = i;
	c->kind = roll < 5   ? H_READ
		  : roll < 6 ? H_UNMAP
		  : roll < 9 ? H_COMPARE
			     : H_WRITE;
	if (c->kind == H_COMPARE)
		count = 1 + count % 32;
	sector = sector_pick(n, count);
	if (sim_chance(sim, 2)) {
		sector = ROUND_DOWN(sector, 8u);
		count = MIN(ROUND_UP(count, 8u), n->sectors - sector);
	}
	if (c->kind == H_WRITE && n->fault == FAULT_NONE &&
	    sim_chance(sim, 3)) {
		flags = DOM_ATOMIC;
	} else if (c->kind == H_WRITE && sim_chance(sim, 4)) {
		flags = DOM_ATOMIC;
	}
	c->io.data = n;
	c->sent_ns = sim->now_ns;
	c->op = history_start(sim->history, c->kind, i, sector, count);
	c->op->atomic = flags != 0 || c->kind == H_COMPARE;
	if (sim->config.rough && sim_chance(sim, 4))
		c->io.deadline_ns = sim->now_ns + sim_random(sim, 60 * MSEC);
	if (sim->config.rough && c->kind == H_WRITE && sim_chance(sim, 6)) {
		c->or = true;
		c->op->id = 0;
	}
	rv = node__send(n, c, flags);
	if (rv == 0) {
		c->busy = true;
		return;
	}
	sgl_put(c->data);
	sgl_put(c->expect);
	if (rv != -EBUSY && !node__fault_excuses(n, rv) &&
	    !(rv == -ERANGE && sim->config.rough))
		sim_violation(sim, "client %u: sectors %u+%u: %s at once", i,
			      sector, count, err_text(rv));
	history_end(sim->history, c->op, H_NEVER);
}

/* ---- roughly ---- */

static void resized(struct dom_resize *req, int status)
{
	struct node *n = req->data;

	sim_trace(n->sim, "resized to %llu: %s",
		  (unsigned long long)req->size_bytes, err_text(status));
	n->resizing = false;
	if (status < 0 && !node__fault_excuses(n, status) &&
	    !(n->fill && status == -ENOSPC) &&
	    !(status == -EBADMSG && node__any_tampered(n)))
		sim_violation(n->sim, "a resize: %s (%s)", err_text(status),
			      req->why);
	if (n->cut_off != NULL)
		history_end(n->sim->history, n->cut_off,
			    status == 0 ? H_DONE : H_UNKNOWN);
}

/* What is cut off is zeros where it comes back. */
static void resize(struct node *n)
{
	uint32_t least = n->sectors / 4;
	uint32_t to = least + (uint32_t)sim_random(n->sim, n->sectors - least);

	if (sim_chance(n->sim, 2))
		to = ROUND_DOWN(to, 8u);
	n->resize = (struct dom_resize){ .data = n,
					 .oid = n->oid,
					 .size_bytes = (uint64_t)to * SECTOR };
	n->cut_off = n->resize.size_bytes < dom_object_size(n->object)
			     ? history_start(n->sim->history, H_UNMAP, 98, to,
					     n->sectors - to)
			     : NULL;
	n->resizing = dom_resize(n->dom, &n->resize, resized) == 0;
	if (!n->resizing && n->cut_off != NULL)
		history_end(n->sim->history, n->cut_off, H_NEVER);
}

static void came(struct dom_create *req, int status)
{
	struct node *n = req->data;

	sim_trace(n->sim, "an object was made: %s", err_text(status));
	n->creating = false;
}

static void come(struct node *n)
{
	n->create = (struct dom_create){
		.data = n, .size_bytes = 64u << 10, .policy = "p", .who = "sim"
	};
	n->creating = dom_create(n->dom, &n->create, came) == 0;
}

static void went(struct cmmds_command *cmd, int status)
{
	struct node *n = cmd->data;

	sim_trace(n->sim, "an object was deleted: %s", err_text(status));
	cmmds_command_fini(cmd);
	n->erasing = false;
}

static void go(struct node *n, const Directory__Object *object)
{
	Directory__ObjectCommand op = DIRECTORY__OBJECT_COMMAND__INIT;

	op.op = DIRECTORY__OBJECT_COMMAND__OP__DELETE;
	op.oid = object->oid;
	op.expect_oepoch = object->oepoch;
	op.expect_csn = object->csn;
	memset(&n->erase, 0, sizeof(n->erase));
	n->erase.data = n;
	cmmds_command_init(&n->erase);
	cmmds_object_op(&n->erase, &op);
	n->erasing = cmmds_propose(n->cmmds, &n->erase, 0, went) == 0;
	if (!n->erasing)
		cmmds_command_fini(&n->erase);
}

/* Delete the first that is not the clients'. */
static void go_one(struct node *n)
{
	const struct cmmds_entry *e = NULL;

	while ((e = cmmds_next(n->cmmds, CMMDS_OBJECT, e)) != NULL) {
		const Directory__Object *o = (const void *)e->message;

		if (o->deleted ||
		    memcmp(o->oid.data, n->oid.b, sizeof(n->oid.b)) == 0)
			continue;
		go(n, o);
		return;
	}
}

static void comp_check(struct lsom_comp *comp, void *arg)
{
	struct node *n = arg;

	if (cmmds_object(n->cmmds, &lsom_comp_meta(comp)->oid) == NULL)
		sim_violation(n->sim, "a component is left over, and the "
				      "directory does not know its object");
}

void node__rough_check(struct node *n)
{
	const struct cmmds_entry *e = NULL;
	uint64_t end = n->sim->now_ns + 10 * SEC;

	if (n->fault != FAULT_NONE || n->nemesis != NEMESIS_NONE)
		return;
	while (n->sim->now_ns < end && sim_step(n->sim))
		;
	for (unsigned i = 0; i < n->disks_count; i++)
		lsom_comp_each(n->disks[i], comp_check, n);
	while ((e = cmmds_next(n->cmmds, CMMDS_OBJECT, e)) != NULL)
		if (((const Directory__Object *)(const void *)e->message)
			    ->deleted)
			sim_violation(n->sim, "a deleted object is not "
					      "collected");
}

void node__rough(struct node *n)
{
	struct client *c = &n->clients[sim_random(n->sim, CLIENTS)];

	if (c->busy && sim_chance(n->sim, 6))
		dom_cancel(&c->io);
	if (!n->resizing && sim_chance(n->sim, 60))
		resize(n);
	if (!n->creating && sim_chance(n->sim, 60))
		come(n);
	if (!n->erasing && sim_chance(n->sim, 30))
		go_one(n);
}
