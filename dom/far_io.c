/*
 * far_io: commands on an object of another shard, there and back.
 *
 * Payload travels as a list of its own over the same pages, since a list belongs
 * to one shard.  What a command borrows stays its caller's until the answer.
 */
#define LOG_ROOM LOG_DOM
#include "dom/dom_int.h"

#include <assert.h>
#include <stdlib.h>

struct far_io {
	struct env_task task, cancel;
	struct dom__far *far;
	struct dom_io *req; /* here */
	struct dom__args args;
	struct dom_pr pr;
	struct dom__far_nexus *nexus;
	int status;
	bool cancelled, answered; /* here: a cancel is out; the answer is in */

	/* there */
	struct dom_io io;
	bool done;
};

static struct sgl *sgl_over(const struct sgl *sgl, const struct dom *to)
{
	return sgl_of_pieces(to->env->pages, sgl->pieces, sgl->pieces_count);
}

/* A list made for the other shard that never went there. */
static void sgl_unmake(struct sgl *sgl, const struct dom *here)
{
	if (sgl != NULL)
		sgl->home = here->env->pages;
	sgl_put(sgl);
}

static void here_answer(struct env_task *task)
{
	struct far_io *f = container_of(task, struct far_io, task);
	struct dom_io *req = f->req;
	int status = f->status;

	req->sgl = f->io.sgl;
	req->bad_offset = f->io.bad_offset;
	req->miscompare = f->io.miscompare;
	req->mapped_len = f->io.mapped_len;
	req->mapped = f->io.mapped;
	req->impl[0] = NULL;
	assert(f->far->object.ops > 0);
	f->far->object.ops--;
	f->answered = true;
	if (!f->cancelled)
		free(f);
	req->cb(req, status);
}

static void there_answer(struct far_io *f, int status)
{
	struct sgl *sgl = f->io.sgl;

	f->done = true;
	f->status = status;
	if (sgl != NULL) {
		f->io.sgl = sgl_over(sgl, f->far->object.dom);
		sgl_put(sgl);
		if (f->io.sgl == NULL)
			f->status = -ENOMEM;
	}
	sgl_put(f->args.sgl);
	sgl_put(f->args.compare);
	/* Everybody may see the change before anybody hears of it. */
	if (f->args.kind == DOM__RESERVE)
		dom__far_tell_all(f->far->real->owner);
	f->task.cb = here_answer;
	env_post(f->far->object.dom->env, &f->task);
}

static void there_done(struct dom_io *io, int status)
{
	there_answer(container_of(io, struct far_io, io), status);
}

static int there_call(struct far_io *f)
{
	struct dom_object *object = f->far->real;
	const struct dom__args *a = &f->args;

	switch (a->kind) {
	case DOM__READ:
		return dom_read(object, &f->io, a->offset, a->len, there_done);
	case DOM__WRITE:
		return dom_write(object, &f->io, a->offset, a->sgl, a->flags,
				 there_done);
	case DOM__UNMAP:
		return dom_unmap(object, &f->io, a->offset, a->len, there_done);
	case DOM__COMPARE:
		return dom_compare_and_write(object, &f->io, a->offset,
					     a->compare, a->sgl, there_done);
	case DOM__OR:
		return dom_or_write(object, &f->io, a->offset, a->sgl,
				    there_done);
	case DOM__MAP:
		return dom_map(object, &f->io, a->offset, a->len, there_done);
	case DOM__RESERVE:
		return dom_reserve(object, &f->io, &f->pr, there_done);
	}
	return -EINVAL;
}

static void there_run(struct env_task *task)
{
	struct far_io *f = container_of(task, struct far_io, task);
	int rv;

	if (f->nexus != NULL)
		f->io.nexus = &f->nexus->shadow;
	rv = there_call(f);
	if (rv < 0) {
		f->io.sgl = NULL;
		there_answer(f, rv);
	}
}

int dom__far_submit(struct dom_object *object, struct dom_io *io,
		    const struct dom__args *args, dom_io_cb cb)
{
	struct dom__far *far = object->far;
	struct dom *dom = object->dom;
	struct dom__far_nexus *nexus = NULL;
	struct far_io *f;

	if (dom->closing)
		return -ESHUTDOWN;
	if (io->nexus != NULL) {
		nexus = dom__far_nexus_find(far, io->nexus->generation);
		if (nexus == NULL || nexus->nexus->closing)
			return -ECANCELED;
	}
	if (object->ops >= DOM_OPS_MAX)
		return -EBUSY;
	f = calloc(1, sizeof(*f));
	if (f == NULL)
		return -EBUSY;
	f->far = far;
	f->req = io;
	f->nexus = nexus;
	f->args = *args;
	if (args->pr != NULL)
		f->pr = *args->pr;
	if (args->sgl != NULL)
		f->args.sgl = sgl_over(args->sgl, far->dom);
	if (args->compare != NULL)
		f->args.compare = sgl_over(args->compare, far->dom);
	if ((args->sgl != NULL && f->args.sgl == NULL) ||
	    (args->compare != NULL && f->args.compare == NULL)) {
		sgl_unmake(f->args.sgl, dom);
		sgl_unmake(f->args.compare, dom);
		free(f);
		return -EBUSY;
	}
	f->io.deadline_ns = io->deadline_ns;
	io->object = object;
	io->cb = cb;
	io->sgl = NULL;
	io->impl[0] = f;
	object->ops++;
	f->task.cb = there_run;
	env_post(far->dom->env, &f->task);
	return 0;
}

static void here_cancelled(struct env_task *task)
{
	struct far_io *f = container_of(task, struct far_io, cancel);

	f->cancelled = false;
	if (f->answered)
		free(f);
}

static void there_cancel(struct env_task *task)
{
	struct far_io *f = container_of(task, struct far_io, cancel);

	if (!f->done)
		dom_cancel(&f->io);
	task->cb = here_cancelled;
	env_post(f->far->object.dom->env, task);
}

void dom__far_cancel(struct dom_io *io)
{
	struct far_io *f = io->impl[0];

	if (f->cancelled)
		return;
	f->cancelled = true;
	f->cancel.cb = there_cancel;
	env_post(f->far->dom->env, &f->cancel);
}

/* ---- resizing ---- */

struct far_resize {
	struct env_task task;
	struct dom *here, *there;
	struct dom_resize inner, *req;
	struct cmmds_command extra; /* what the caller adds */
	int status;
};

static void here_resized(struct env_task *task)
{
	struct far_resize *r = container_of(task, struct far_resize, task);
	struct dom_resize *req = r->req;
	int status = r->status;

	memcpy(req->why, r->inner.why, sizeof(req->why));
	req->stored = r->inner.stored;
	cmmds_command_fini(&r->extra);
	free(r);
	dom__resize_end(req, status);
}

static void there_resized(struct dom_resize *inner, int status)
{
	struct far_resize *r = container_of(inner, struct far_resize, inner);

	r->status = status;
	r->task.cb = here_resized;
	env_post(r->here->env, &r->task);
}

static void there_commit(struct dom_resize *inner, struct cmmds_command *cmd)
{
	struct far_resize *r = container_of(inner, struct far_resize, inner);

	cmmds_command_take(cmd, &r->extra);
}

static void there_resize(struct env_task *task)
{
	struct far_resize *r = container_of(task, struct far_resize, task);
	int rv = dom__resize_there(r->there, &r->inner, there_resized);

	if (rv < 0)
		there_resized(&r->inner, rv);
}

/* What the caller adds is built here and now: it looks at this shard's things. */
int dom__far_resize(struct dom *dom, struct dom_resize *req)
{
	struct far_resize *r;

	if (dom->closing)
		return -ESHUTDOWN;
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return -ENOMEM;
	r->here = dom;
	r->there = dom__of(dom, &req->oid);
	r->req = req;
	r->inner.oid = req->oid;
	r->inner.size_bytes = req->size_bytes;
	r->inner.keep_data = req->keep_data;
	r->inner.undo = req->undo;
	r->inner.commit = there_commit;
	cmmds_command_init(&r->extra);
	if (req->commit != NULL)
		req->commit(req, &r->extra);
	r->task.cb = there_resize;
	env_post(r->there->env, &r->task);
	return 0;
}
