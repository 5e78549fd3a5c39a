/*
 * view_io: requests of a view, to the disk's home and back.
 *
 * A request is copied into a hop: what it borrows for the call with it, its
 * payload as a list of its own over the same pages, for a list belongs to one
 * shard.  The answer brings the component's metadata.  A home that is busy is
 * asked again from here until its patience ends, as whoever called was told 0.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/view_int.h"

#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

#define PATIENCE_NS (25 * SEC)
#define AGAIN_NS (1 * MSEC)
#define SILENT_AGAIN_NS (50 * MSEC) /* its home has others to serve */

/* ---- a hop ---- */

/* How soon a busy disk is asked again. */
static uint64_t again_ns(const struct lsom__view *view)
{
	return env_dev_silent_ns(view->here, view->home->dev) >= LSOM_SILENT_NS
		       ? SILENT_AGAIN_NS
		       : AGAIN_NS;
}

static void here_arrived(struct env_task *task)
{
	struct lsom__hop *hop = container_of(task, struct lsom__hop, task);
	struct lsom__view *view = hop->view;

	if (hop->status == -EBUSY && env_now(view->here) < hop->patience_ns) {
		if (TAILQ_EMPTY(&view->busy))
			env_timer_start(view->here, &view->busy_timer,
					again_ns(view));
		TAILQ_INSERT_TAIL(&view->busy, hop, link);
		return;
	}
	if (hop->real != NULL && hop->comp != NULL)
		hop->comp->meta = hop->meta;
	hop->here(hop, hop->status == -EBUSY ? -ETIMEDOUT : hop->status);
}

static void hop_back(struct lsom__hop *hop, int status)
{
	hop->status = status;
	if (hop->real != NULL)
		hop->meta = *lsom_comp_meta(hop->real);
	hop->task.cb = here_arrived;
	env_post(hop->view->here, &hop->task);
}

static void there_arrived(struct env_task *task)
{
	struct lsom__hop *hop = container_of(task, struct lsom__hop, task);

	hop->there(hop);
}

void lsom__hop_again(struct lsom__hop *hop)
{
	hop->task.cb = there_arrived;
	env_post(hop->view->there, &hop->task);
}

static void hop_send(struct lsom__hop *hop, struct lsom_disk *disk,
		     struct lsom_comp *comp,
		     void (*there)(struct lsom__hop *hop),
		     void (*here)(struct lsom__hop *hop, int status))
{
	struct lsom__view *view = disk->view;

	hop->view = view;
	hop->comp = comp;
	hop->real = comp != NULL ? comp->far->real : NULL;
	hop->there = there;
	hop->here = here;
	if (hop->patience_ns == 0)
		hop->patience_ns = env_now(view->here) + PATIENCE_NS;
	if (comp != NULL)
		lsom__comp_ref(comp);
	view->hops++;
	lsom__hop_again(hop);
}

/* Its last step here, before the caller hears: the view may be left now. */
static void hop_end(struct lsom__hop *hop)
{
	struct lsom__view *view = hop->view;

	assert(view->hops > 0);
	view->hops--;
	if (hop->comp != NULL)
		lsom__comp_unref(hop->comp);
	lsom__disk_changed(view->disk);
}

static bool full(const struct lsom_disk *disk)
{
	return disk->view->hops >= LSOM__HOPS_MAX;
}

/* The same bytes for another shard; NULL: no memory. */
static struct sgl *sgl_over(const struct sgl *sgl, struct env *to)
{
	return sgl_of_pieces(to->pages, sgl->pieces, sgl->pieces_count);
}

/* ---- metadata ---- */

struct meta_hop {
	struct lsom__hop hop;
	struct lsom_meta meta, *req;
	struct lsom_comp *fresh; /* CREATE: what it will be here */
	uint64_t key;
	struct lsom__list *list;
};

struct list_size {
	unsigned count;
	size_t crcs, parts;
};

static void list_measure(const struct lsom_undecided *u, void *arg)
{
	struct list_size *size = arg;

	size->count++;
	if (u->crcs != NULL && !(u->flags & LSOM_W_HOLE))
		size->crcs += u->len / LSOM_BLOCK;
	size->parts += u->participants_count;
}

struct list_fill {
	struct lsom__list *list;
	struct uuid *parts;
	uint32_t *crcs;
};

static void list_add(const struct lsom_undecided *u, void *arg)
{
	struct list_fill *fill = arg;
	struct lsom_undecided *to = &fill->list->items[fill->list->count++];

	*to = *u;
	to->participants = fill->parts;
	if (u->participants_count > 0)
		memcpy(fill->parts, u->participants,
		       u->participants_count * sizeof(*fill->parts));
	fill->parts += u->participants_count;
	if (u->crcs == NULL || u->flags & LSOM_W_HOLE) {
		to->crcs = NULL;
		return;
	}
	to->crcs = fill->crcs;
	memcpy(fill->crcs, u->crcs, u->len / LSOM_BLOCK * sizeof(*fill->crcs));
	fill->crcs += u->len / LSOM_BLOCK;
}

static struct lsom__list *there_list(struct lsom_comp *real)
{
	struct list_size size = { 0 };
	struct list_fill fill;

	lsom_undecided_each(real, list_measure, &size);
	fill.list = calloc(1, sizeof(*fill.list) +
				      size.count * sizeof(fill.list->items[0]) +
				      size.parts * sizeof(*fill.parts) +
				      size.crcs * sizeof(*fill.crcs));
	if (fill.list == NULL)
		return NULL;
	fill.parts = (struct uuid *)&fill.list->items[size.count];
	fill.crcs = (uint32_t *)&fill.parts[size.parts];
	lsom_undecided_each(real, list_add, &fill);
	return fill.list;
}

static void there_meta_done(struct lsom_meta *meta, int status)
{
	struct meta_hop *m = container_of(meta, struct meta_hop, meta);

	if (status == 0 && meta->op == LSOM_CREATE) {
		m->hop.real = lsom_comp_get(m->hop.view->home, &meta->meta.cid);
		if (m->hop.real == NULL)
			status = -ENOENT; /* deleted meanwhile */
		else
			m->key = m->hop.real->key;
	}
	if (status == 0 && (meta->op == LSOM_SEAL || meta->op == LSOM_ATTACH)) {
		m->list = there_list(m->hop.real);
		if (m->list == NULL)
			status = -ENOMEM;
	}
	hop_back(&m->hop, status);
}

static void there_meta(struct lsom__hop *hop)
{
	struct meta_hop *m = container_of(hop, struct meta_hop, hop);
	int rv = m->meta.op == LSOM_CREATE
			 ? lsom_comp_create(hop->view->home, &m->meta,
					    there_meta_done)
			 : lsom_comp_update(hop->real, &m->meta,
					    there_meta_done);

	if (rv < 0)
		hop_back(hop, rv);
}

/* The component is known here from now on, unless a repeat made it known. */
static void here_created(struct meta_hop *m)
{
	struct lsom_disk *disk = m->hop.view->disk;
	struct lsom_comp *have = lsom_comp_get(disk, &m->meta.meta.cid);

	m->fresh->far->real = m->hop.real;
	m->fresh->meta = m->hop.meta;
	m->fresh->key = m->key;
	if (have == NULL) {
		lsom__comp_link(m->fresh);
		return;
	}
	have->meta = m->hop.meta;
	lsom_comp_put(have);
	lsom__comp_unref(m->fresh);
}

static void here_meta(struct lsom__hop *hop, int status)
{
	struct meta_hop *m = container_of(hop, struct meta_hop, hop);
	struct lsom_meta *req = m->req;
	struct lsom_comp *comp = hop->comp;

	if (m->fresh != NULL && status == 0) {
		here_created(m);
	} else if (m->fresh != NULL) {
		free(m->fresh->far); /* it holds nothing there */
		free(m->fresh);
	}
	if (m->list != NULL) {
		free(comp->far->list);
		comp->far->list = m->list;
	}
	if (req->op == LSOM_DELETE && status == 0 && !comp->deleted) {
		comp->deleted = true;
		lsom_credit_return(comp, comp->credits);
		lsom__comp_forget(comp);
	}
	hop_end(hop);
	free(m);
	req->cb(req, status);
}

static int meta_send(struct lsom_disk *disk, struct lsom_comp *comp,
		     struct lsom_meta *req, struct lsom_comp *fresh,
		     lsom_meta_cb cb)
{
	struct meta_hop *m = calloc(1, sizeof(*m));

	if (m == NULL)
		return -ENOMEM;
	m->meta.op = req->op;
	m->meta.meta = req->meta;
	m->req = req;
	m->fresh = fresh;
	req->disk = disk;
	req->comp = comp;
	req->cb = cb;
	hop_send(&m->hop, disk, comp, there_meta, here_meta);
	return 0;
}

int lsom__view_create(struct lsom_disk *disk, struct lsom_meta *req,
		      lsom_meta_cb cb)
{
	struct lsom_comp *fresh;
	int rv;

	if (req->op != LSOM_CREATE)
		return -EINVAL;
	if (full(disk))
		return -EBUSY;
	fresh = lsom__view_comp_new(disk->view, 0, &req->meta, NULL);
	if (fresh == NULL)
		return -ENOMEM;
	rv = meta_send(disk, NULL, req, fresh, cb);
	if (rv < 0) {
		free(fresh->far);
		free(fresh);
	}
	return rv;
}

int lsom__view_update(struct lsom_comp *comp, struct lsom_meta *req,
		      lsom_meta_cb cb)
{
	if (comp->deleted && req->op != LSOM_DELETE)
		return -ENOENT;
	if (full(comp->disk))
		return -EBUSY;
	return meta_send(comp->disk, comp, req, NULL, cb);
}

/* ---- writing ---- */

struct write_hop {
	struct lsom__hop hop;
	struct lsom_write write, *req;
	struct lsom_decided decided;
	struct uuid participants[];
};

static void there_written(struct lsom_write *write, int status)
{
	struct write_hop *w = container_of(write, struct write_hop, write);

	sgl_put(write->sgl);
	hop_back(&w->hop, status);
}

/*
 * The credit is counted on the disk since it was taken; the component here has
 * it for the call only.
 */
static void there_write(struct lsom__hop *hop)
{
	struct write_hop *w = container_of(hop, struct write_hop, hop);
	struct lsom_comp *real = hop->real;
	uint64_t before = real->credits, left;
	int rv;

	real->credits += w->write.credits;
	rv = lsom_write(real, &w->write, there_written);
	left = real->credits > before ? real->credits - before : 0;
	if (rv == -EBUSY)
		real->credits -= left; /* they wait with the hop */
	else
		lsom_credit_return(real, left);
	if (rv == 0)
		return;
	if (rv != -EBUSY) {
		w->write.credits = 0;
		sgl_put(w->write.sgl);
		w->write.sgl = NULL;
	}
	hop_back(hop, rv);
}

static void here_write(struct lsom__hop *hop, int status)
{
	struct write_hop *w = container_of(hop, struct write_hop, hop);
	struct lsom_write *req = w->req;

	if (hop->status == -EBUSY) { /* it was never taken */
		lsom__credits_drop(hop->comp, w->write.credits);
		if (w->write.sgl != NULL)
			w->write.sgl->home = hop->view->here->pages;
		sgl_put(w->write.sgl);
	}
	hop_end(hop);
	free(w);
	req->cb(req, status);
}

int lsom__view_write(struct lsom_comp *comp, struct lsom_write *req,
		     lsom_write_cb cb)
{
	struct lsom_disk *disk = comp->disk;
	unsigned parts = req->participants_count;
	struct write_hop *w;

	if (parts > LSOM_PARTICIPANTS_MAX)
		return -EINVAL;
	if (full(disk))
		return -EBUSY;
	w = malloc(sizeof(*w) + parts * sizeof(w->participants[0]));
	if (w == NULL)
		return -ENOMEM;
	memset(&w->hop, 0, sizeof(w->hop));
	w->hop.patience_ns = req->deadline_ns; /* it has its pages until then */
	w->req = req;
	w->write = *req;
	w->write.credits = MIN(req->credits, comp->credits);
	if (req->decided != NULL) {
		w->decided = *req->decided;
		w->write.decided = &w->decided;
	}
	if (parts > 0) {
		memcpy(w->participants, req->participants,
		       parts * sizeof(w->participants[0]));
		w->write.participants = w->participants;
	}
	if (req->sgl != NULL) {
		w->write.sgl = sgl_over(req->sgl, disk->view->there);
		if (w->write.sgl == NULL) {
			free(w);
			return -ENOMEM;
		}
	}
	comp->credits -= w->write.credits;
	req->comp = comp;
	req->cb = cb;
	hop_send(&w->hop, disk, comp, there_write, here_write);
	return 0;
}

/* ---- deciding ---- */

struct decide_hop {
	struct lsom__hop hop;
	struct lsom_decide decide, *req;
};

static void there_decide_done(struct lsom_decide *decide, int status)
{
	hop_back(&container_of(decide, struct decide_hop, decide)->hop, status);
}

static void there_decide(struct lsom__hop *hop)
{
	struct decide_hop *d = container_of(hop, struct decide_hop, hop);
	int rv = lsom_decide(hop->real, &d->decide, there_decide_done);

	if (rv < 0)
		hop_back(hop, rv);
}

static void here_decide(struct lsom__hop *hop, int status)
{
	struct decide_hop *d = container_of(hop, struct decide_hop, hop);
	struct lsom_decide *req = d->req;

	hop_end(hop);
	free(d);
	req->cb(req, status);
}

int lsom__view_decide(struct lsom_comp *comp, struct lsom_decide *req,
		      lsom_decide_cb cb)
{
	struct decide_hop *d;

	if (full(comp->disk))
		return -EBUSY;
	d = calloc(1, sizeof(*d));
	if (d == NULL)
		return -ENOMEM;
	d->req = req;
	d->decide.commit = req->commit;
	d->decide.lsn = req->lsn;
	req->comp = comp;
	req->cb = cb;
	hop_send(&d->hop, comp->disk, comp, there_decide, here_decide);
	return 0;
}

struct decided_note {
	struct env_task task;
	struct lsom_comp *real;
	struct lsom_decided decided;
};

static void there_decided(struct env_task *task)
{
	struct decided_note *n = container_of(task, struct decided_note, task);

	lsom_decided(n->real, &n->decided);
	free(n);
}

/* One way: the component is let go behind it.  What it says is said again. */
int lsom__view_decided(struct lsom_comp *comp,
		       const struct lsom_decided *decided)
{
	struct decided_note *n = calloc(1, sizeof(*n));

	if (n == NULL)
		return -ENOMEM;
	n->task.cb = there_decided;
	n->real = comp->far->real;
	n->decided = *decided;
	env_post(comp->disk->view->there, &n->task);
	return 0;
}

/* ---- reading ---- */

struct read_hop {
	struct lsom__hop hop;
	struct lsom_read read, *req;
	struct lsom_decided decided;
};

static void there_read_done(struct lsom_read *read, int status)
{
	struct read_hop *r = container_of(read, struct read_hop, read);
	struct sgl *sgl = read->sgl;

	if (status == 0) {
		read->sgl = sgl_over(sgl, r->hop.view->here);
		sgl_put(sgl);
		if (read->sgl == NULL)
			status = -ENOMEM;
	}
	hop_back(&r->hop, status);
}

static void there_read(struct lsom__hop *hop)
{
	struct read_hop *r = container_of(hop, struct read_hop, hop);
	int rv = lsom_read(hop->real, &r->read, there_read_done);

	if (rv < 0)
		hop_back(hop, rv);
}

static void here_read(struct lsom__hop *hop, int status)
{
	struct read_hop *r = container_of(hop, struct read_hop, hop);
	struct lsom_read *req = r->req;

	req->sgl = status == 0 ? r->read.sgl : NULL;
	req->bad_offset = r->read.bad_offset;
	hop_end(hop);
	free(r);
	req->cb(req, status);
}

int lsom__view_read(struct lsom_comp *comp, struct lsom_read *req,
		    lsom_read_cb cb)
{
	struct read_hop *r;

	if (full(comp->disk))
		return -EBUSY;
	r = malloc(sizeof(*r));
	if (r == NULL)
		return -ENOMEM;
	memset(&r->hop, 0, sizeof(r->hop));
	r->req = req;
	r->read = *req;
	if (req->decided != NULL) {
		r->decided = *req->decided;
		r->read.decided = &r->decided;
	}
	req->comp = comp;
	req->cb = cb;
	hop_send(&r->hop, comp->disk, comp, there_read, here_read);
	return 0;
}

struct scan_hop {
	struct lsom__hop hop;
	struct lsom_scan scan, *req;
};

static void there_scanned(struct lsom_scan *scan, int status)
{
	hop_back(&container_of(scan, struct scan_hop, scan)->hop, status);
}

static void there_scan(struct lsom__hop *hop)
{
	struct scan_hop *s = container_of(hop, struct scan_hop, hop);
	int rv = lsom_scan(hop->real, &s->scan, there_scanned);

	if (rv < 0)
		hop_back(hop, rv);
}

static void here_scan(struct lsom__hop *hop, int status)
{
	struct scan_hop *s = container_of(hop, struct scan_hop, hop);
	struct lsom_scan *req = s->req;

	req->items_count = s->scan.items_count;
	req->next = s->scan.next;
	hop_end(hop);
	free(s);
	req->cb(req, status);
}

int lsom__view_scan(struct lsom_comp *comp, struct lsom_scan *req,
		    lsom_scan_cb cb)
{
	struct scan_hop *s;

	if (full(comp->disk))
		return -EBUSY;
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	s->req = req;
	s->scan = *req;
	req->comp = comp;
	req->cb = cb;
	hop_send(&s->hop, comp->disk, comp, there_scan, here_scan);
	return 0;
}

/* ---- checkpoints ---- */

struct checkpoint_hop {
	struct lsom__hop hop;
	struct lsom_checkpoint checkpoint, *req;
};

static void there_checkpointed(struct lsom_checkpoint *checkpoint, int status)
{
	hop_back(&container_of(checkpoint, struct checkpoint_hop, checkpoint)
			  ->hop,
		 status);
}

static void there_checkpoint(struct lsom__hop *hop)
{
	struct checkpoint_hop *c =
		container_of(hop, struct checkpoint_hop, hop);
	int rv = lsom_checkpoint(hop->view->home, &c->checkpoint,
				 there_checkpointed);

	if (rv < 0)
		hop_back(hop, rv);
}

static void here_checkpoint(struct lsom__hop *hop, int status)
{
	struct checkpoint_hop *c =
		container_of(hop, struct checkpoint_hop, hop);
	struct lsom_checkpoint *req = c->req;

	hop_end(hop);
	free(c);
	req->cb(req, status);
}

int lsom__view_checkpoint(struct lsom_disk *disk, struct lsom_checkpoint *req,
			  lsom_checkpoint_cb cb)
{
	struct checkpoint_hop *c = calloc(1, sizeof(*c));

	if (c == NULL)
		return -ENOMEM;
	c->req = req;
	req->disk = disk;
	req->cb = cb;
	hop_send(&c->hop, disk, NULL, there_checkpoint, here_checkpoint);
	return 0;
}
