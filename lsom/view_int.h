/*
 * view_int: a disk seen from another shard than its home.
 *
 * view.c attaches and detaches, and keeps the components as they are known there;
 * view_io.c sends requests to the disk's home and brings the answers.  The calls of
 * lsom.h go here where their disk or component is of a view.
 */
#ifndef BASALT_LSOM_VIEW_INT_H
#define BASALT_LSOM_VIEW_INT_H

#include "lsom/lsom_int.h"

/* ---- view.c ---- */

/* What SEAL and ATTACH found undecided, copied for another shard. */
struct lsom__list {
	unsigned count;
	struct lsom_undecided items[];
};

/* A component of a view: the real one, and the message that lets it go. */
struct lsom__far {
	struct lsom_comp *real; /* home's; referenced by a handle */
	struct lsom__list *list;
	struct env_task put;
	struct env_task reserve, count;
	_Atomic bool reserve_sent, count_sent;
	_Atomic uint64_t reserved; /* blocks; what @reserve brings */
};

/* A request on its way to the disk's home and back. */
struct lsom__hop {
	struct env_task task;
	struct lsom__view *view;
	struct lsom_comp *comp; /* the view's, referenced; or NULL */
	struct lsom_comp *real;
	void (*there)(struct lsom__hop *hop); /* ends in lsom__hop_back() */
	void (*here)(struct lsom__hop *hop, int status); /* frees it */
	int status;
	uint64_t patience_ns; /* until then a busy disk is asked again */
	struct lsom_comp_meta meta; /* of @real, when the answer left */
	TAILQ_ENTRY(lsom__hop) link; /* view->busy */
};

struct lsom__view {
	struct lsom_disk *disk, *home;
	struct env *here, *there;
	unsigned part, parts;
	unsigned hops;
	TAILQ_HEAD(, lsom__hop) busy;
	struct env_timer busy_timer;
	struct lsom_disk_info info; /* as last heard */
	struct lsom_attach *attach;
	struct lsom_detach *detach;
	bool leaving;
	int status;
	struct env_task task; /* attach and detach, there and back */
	struct lsom__comps found; /* by attach, on its way here */

	/* home's */
	struct lsom_disk_watch watch;
	bool left;

	/* news of the state, in one message that goes to and fro */
	struct env_task news;
	struct lsom_disk_info news_info;
	bool news_out, news_more; /* home's */
};

void lsom__view_comp_free(struct lsom_comp *comp);
void lsom__view_info(const struct lsom_disk *disk, struct lsom_disk_info *out);
void lsom__far_put(struct lsom__view *view, struct lsom__far *far);
/* A component as the view keeps it: not linked.  NULL: no memory. */
struct lsom_comp *lsom__view_comp_new(struct lsom__view *view, uint64_t key,
				      const struct lsom_comp_meta *meta,
				      struct lsom_comp *real);
void lsom__view_step(struct lsom__view *view);

/* ---- view_io.c: the calls of lsom.h on a component of a view ---- */

int lsom__view_create(struct lsom_disk *disk, struct lsom_meta *req,
		      lsom_meta_cb cb);
int lsom__view_update(struct lsom_comp *comp, struct lsom_meta *req,
		      lsom_meta_cb cb);
int lsom__view_write(struct lsom_comp *comp, struct lsom_write *req,
		     lsom_write_cb cb);
int lsom__view_decide(struct lsom_comp *comp, struct lsom_decide *req,
		      lsom_decide_cb cb);
int lsom__view_read(struct lsom_comp *comp, struct lsom_read *req,
		    lsom_read_cb cb);
int lsom__view_scan(struct lsom_comp *comp, struct lsom_scan *req,
		    lsom_scan_cb cb);
int lsom__view_decided(struct lsom_comp *comp,
		       const struct lsom_decided *decided);
int lsom__view_checkpoint(struct lsom_disk *disk, struct lsom_checkpoint *req,
			  lsom_checkpoint_cb cb);
/* Send a request again that found the disk busy. */
void lsom__hop_again(struct lsom__hop *hop);

#endif
