/*
 * view: a disk seen from a shard that does not drive it.
 *
 * A view has the disk's components of its shard as handles of its own, each
 * with a handle on the real one; requests travel by message (view_io.c).  What
 * one shard posts to another arrives in order, and that is all the protocol
 * there is: a component is let go behind its last request, and the detaching
 * behind the last component.
 *
 * "here" is the view's shard, "there" the disk's home; a function runs on one of
 * them only, and its name or its section says which.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/view_int.h"

#include "base/util.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- components ---- */

struct lsom_comp *lsom__view_comp_new(struct lsom__view *view, uint64_t key,
				      const struct lsom_comp_meta *meta,
				      struct lsom_comp *real)
{
	struct lsom_comp *comp =
		lsom__comp_new(view->disk, key, &meta->cid, &meta->oid);

	if (comp == NULL)
		return NULL;
	comp->far = calloc(1, sizeof(*comp->far));
	if (comp->far == NULL) {
		free(comp);
		return NULL;
	}
	comp->far->real = real;
	comp->meta = *meta;
	comp->created = true;
	return comp;
}

static void there_put(struct env_task *task)
{
	struct lsom__far *far = container_of(task, struct lsom__far, put);

	lsom_comp_put(far->real);
	free(far);
}

void lsom__far_put(struct lsom__view *view, struct lsom__far *far)
{
	free(far->list);
	far->put.cb = there_put;
	env_post(view->there, &far->put);
}

void lsom__view_comp_free(struct lsom_comp *comp)
{
	struct lsom__view *view = comp->disk->view;

	lsom__credits_drop(comp, comp->credits);
	lsom__far_put(view, comp->far);
	free(comp);
}

/* ---- news of the disk's state ---- */

static void there_news_home(struct env_task *task);

static void here_news(struct env_task *task)
{
	struct lsom__view *view = container_of(task, struct lsom__view, news);
	struct lsom_disk *disk = view->disk;
	struct lsom_disk_watch *watch, *next;

	view->info = view->news_info;
	disk->state = view->info.state;
	task->cb = there_news_home;
	env_post(view->there, task);
	TAILQ_FOREACH_SAFE (watch, &disk->watches, link, next)
		watch->cb(watch, disk);
}

static void there_news_send(struct lsom__view *view)
{
	if (view->news_out) {
		view->news_more = true;
		return;
	}
	view->news_out = true;
	view->news_more = false;
	lsom_disk_info(view->home, &view->news_info);
	view->news.cb = here_news;
	env_post(view->here, &view->news);
}

static void there_left(struct lsom__view *view);

static void there_news_home(struct env_task *task)
{
	struct lsom__view *view = container_of(task, struct lsom__view, news);

	view->news_out = false;
	if (view->left)
		there_left(view);
	else if (view->news_more)
		there_news_send(view);
}

static void there_changed(struct lsom_disk_watch *watch, struct lsom_disk *home)
{
	there_news_send(container_of(watch, struct lsom__view, watch));
}

/* Counts are read where they are: the disk outlives its views. */
void lsom__view_info(const struct lsom_disk *disk, struct lsom_disk_info *out)
{
	const struct lsom_disk *home = disk->view->home;

	*out = disk->view->info;
	out->media_errors = home->media_errors;
	out->silent_ns = env_dev_silent_ns(disk->env, home->dev);
	out->used_bytes = home->live_blocks * LSOM_BLOCK;
	out->kept_bytes = home->promised * LSOM_BLOCK;
	out->uncovered_bytes = lsom__space_missing(home) * LSOM_BLOCK;
	out->segments_free = home->segments_free;
	out->components = home->comps_count;
	out->freeing = home->unreaped > 0;
}

/* ---- attaching ---- */

static void view_free(struct lsom__view *view)
{
	free(view->disk);
	free(view);
}

static void here_attached(struct env_task *task)
{
	struct lsom__view *view = container_of(task, struct lsom__view, task);
	struct lsom_attach *req = view->attach;
	struct lsom_disk *disk = view->disk;
	struct lsom_comp *comp;
	int status = view->status;

	req->attached = NULL;
	if (status < 0) {
		assert(TAILQ_EMPTY(&view->found));
		view_free(view);
		req->cb(req, status);
		return;
	}
	while ((comp = TAILQ_FIRST(&view->found)) != NULL) {
		TAILQ_REMOVE(&view->found, comp, link);
		lsom__comp_link(comp);
	}
	disk->state = view->info.state;
	snprintf(disk->path, sizeof(disk->path), "%s", view->info.path);
	TAILQ_INSERT_TAIL(&disk->lsom->disks, disk, link);
	req->attached = disk;
	req->cb(req, 0);
}

/* Everything of this view's part.  0 or -ENOMEM. */
static int there_find(struct lsom__view *view)
{
	struct lsom_comp *comp, *mine;

	TAILQ_FOREACH (comp, &view->home->comps, link) {
		if (!comp->created || comp->deleted ||
		    uuid_hash(&comp->meta.oid) % view->parts != view->part)
			continue;
		mine = lsom__view_comp_new(view, comp->key, &comp->meta, comp);
		if (mine == NULL)
			return -ENOMEM;
		lsom__comp_ref(comp);
		view->home->handles++;
		TAILQ_INSERT_TAIL(&view->found, mine, link);
	}
	return 0;
}

static void there_attach(struct env_task *task)
{
	struct lsom__view *view = container_of(task, struct lsom__view, task);
	struct lsom_disk *home = view->home;
	struct lsom_comp *comp;

	view->status = home->closing ? -ESHUTDOWN : there_find(view);
	if (view->status < 0) {
		while ((comp = TAILQ_FIRST(&view->found)) != NULL) {
			TAILQ_REMOVE(&view->found, comp, link);
			lsom_comp_put(comp->far->real);
			free(comp->far);
			free(comp);
		}
	} else {
		home->views++;
		view->watch.cb = there_changed;
		lsom_disk_watch(home, &view->watch);
		lsom_disk_info(home, &view->info);
	}
	task->cb = here_attached;
	env_post(view->here, task);
}

static void here_step(struct env_task *task)
{
	struct lsom_disk *disk =
		container_of(task, struct lsom_disk, watch_task);

	lsom__view_step(disk->view);
}

static void here_busy(struct env_timer *timer)
{
	struct lsom__view *view =
		container_of(timer, struct lsom__view, busy_timer);
	TAILQ_HEAD(, lsom__hop) busy = TAILQ_HEAD_INITIALIZER(busy);
	struct lsom__hop *hop;

	TAILQ_CONCAT(&busy, &view->busy, link);
	while ((hop = TAILQ_FIRST(&busy)) != NULL) {
		TAILQ_REMOVE(&busy, hop, link);
		lsom__hop_again(hop);
	}
}

int lsom_disk_attach(struct lsom *lsom, struct lsom_disk *home, unsigned part,
		     unsigned parts, struct lsom_attach *req, lsom_attach_cb cb)
{
	struct lsom__view *view = calloc(1, sizeof(*view));
	struct lsom_disk *disk = calloc(1, sizeof(*disk));

	assert(part < parts);
	assert(home->view == NULL);
	if (view == NULL || disk == NULL) {
		free(view);
		free(disk);
		return -ENOMEM;
	}
	disk->lsom = lsom;
	disk->env = lsom->env;
	disk->view = view;
	disk->state = LSOM_DISK_OPENING;
	disk->watch_task.cb = here_step;
	TAILQ_INIT(&disk->comps);
	TAILQ_INIT(&disk->watches);
	view->disk = disk;
	view->home = home;
	view->here = lsom->env;
	view->there = home->env;
	view->part = part;
	view->parts = parts;
	view->busy_timer.cb = here_busy;
	TAILQ_INIT(&view->busy);
	TAILQ_INIT(&view->found);
	view->attach = req;
	req->cb = cb;
	view->task.cb = there_attach;
	env_post(view->there, &view->task);
	return 0;
}

/* ---- detaching ---- */

static void here_detached(struct env_task *task)
{
	struct lsom__view *view = container_of(task, struct lsom__view, task);
	struct lsom_detach *req = view->detach;

	assert(view->hops == 0);
	assert(TAILQ_EMPTY(&view->disk->watches));
	env_timer_stop(view->here, &view->busy_timer);
	TAILQ_REMOVE(&view->disk->lsom->disks, view->disk, link);
	view_free(view);
	req->cb(req);
}

/* The news come home first: they are part of the view. */
static void there_left(struct lsom__view *view)
{
	view->left = true;
	if (view->news_out)
		return;
	view->home->views--;
	lsom__disk_changed(view->home);
	view->task.cb = here_detached;
	env_post(view->here, &view->task);
}

static void there_detach(struct env_task *task)
{
	struct lsom__view *view = container_of(task, struct lsom__view, task);

	lsom_disk_unwatch(view->home, &view->watch);
	there_left(view);
}

/* Nobody uses the view any more: its components go, then the view. */
void lsom__view_step(struct lsom__view *view)
{
	struct lsom_disk *disk = view->disk;
	struct lsom_comp *comp;

	if (view->detach == NULL || view->leaving || view->hops > 0 ||
	    disk->handles > 0)
		return;
	view->leaving = true;
	disk->closed = true; /* no more steps */
	while ((comp = TAILQ_FIRST(&disk->comps)) != NULL)
		lsom__comp_forget(comp);
	view->task.cb = there_detach;
	env_post(view->there, &view->task);
}

void lsom_disk_detach(struct lsom_disk *disk, struct lsom_detach *req,
		      lsom_detach_cb cb)
{
	struct lsom__view *view = disk->view;

	assert(view != NULL);
	assert(view->detach == NULL);
	req->cb = cb;
	view->detach = req;
	disk->closing = true;
	lsom__disk_changed(disk);
}
