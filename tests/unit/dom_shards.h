/*
 * dom_shards: the rig's other shards.  Each has a store, a mirror and a dom;
 * disks have their homes there, and the test's own shard has views.
 */
#ifndef BASALT_TESTS_DOM_SHARDS_H
#define BASALT_TESTS_DOM_SHARDS_H

static inline void rig_here(struct env_task *task)
{
	struct rig_shard *s = container_of(task, struct rig_shard, back);

	finish(s->f, s->status);
}

static inline void rig_back(struct rig_shard *s, int status)
{
	s->status = status;
	s->back.cb = rig_here;
	env_post(s->f->ts.env, &s->back);
}

static inline void rig_there(struct env_task *task)
{
	struct rig_shard *s = container_of(task, struct rig_shard, task);

	s->fn(s);
}

/* Run @fn on the shard, until it says rig_back(). */
static inline void rig_do(struct rig_shard *s, void (*fn)(struct rig_shard *s))
{
	s->fn = fn;
	s->task.cb = rig_there;
	env_post(s->env, &s->task);
	CHECK_EQ(wait_for(s->f), 0);
}

static inline void rig_dom_open(struct rig_shard *s)
{
	struct dom_config config = { .env = s->env,
				     .cmmds = s->cmmds,
				     .lsom = s->lsom,
				     .node = s->f->node,
				     .part = s->part,
				     .parts = RIG_SHARDS,
				     .all = s->f->doms };

	rig_back(s, dom_open(&config, &s->dom));
}

static inline void rig_start(struct fixture *f)
{
	f->doms[0] = f->dom;
	for (unsigned i = 0; i < RIG_SHARDS; i++) {
		struct rig_shard *s = &f->shards[i];
		struct lsom_config config = { 0 };

		s->f = f;
		s->part = i;
		s->env = config.env = shard_env(f->ts.shards, i);
		s->dom = f->dom;
		s->lsom = f->lsom;
		if (i == 0)
			continue;
		CHECK_EQ(lsom_open(&config, &s->lsom), 0);
		s->cmmds = cmmds_mirror_open(f->cmmds, s->env);
		rig_do(s, rig_dom_open);
		f->doms[i] = s->dom;
	}
}

static inline void rig_opened(struct lsom_disk_open *req, int status)
{
	rig_back(req->data, status);
}

static inline void rig_open(struct rig_shard *s)
{
	int rv;

	s->open.data = s;
	rv = lsom_disk_open(s->lsom, &s->open, rig_opened);
	if (rv < 0)
		rig_back(s, rv);
}

static inline void rig_add(struct rig_shard *s)
{
	dom_disk_add(s->dom, s->disks[s->disk]);
	rig_back(s, 0);
}

static inline void rig_attached(struct lsom_attach *req, int status)
{
	struct rig_shard *s = req->data;

	s->disks[s->disk] = req->attached;
	rig_back(s, status);
}

static inline void rig_attach(struct rig_shard *s)
{
	int rv;

	s->attach.data = s;
	rv = lsom_disk_attach(s->lsom, s->home, s->part, RIG_SHARDS, &s->attach,
			      rig_attached);
	if (rv < 0)
		rig_back(s, rv);
}

static inline struct rig_shard *rig_home(struct fixture *f, unsigned disk)
{
	return &f->shards[(disk + 1) % RIG_SHARDS];
}

static inline void rig_disk_open(struct fixture *f, unsigned disk,
				 const struct lsom_disk_open *req)
{
	struct rig_shard *home = rig_home(f, disk);

	home->open = *req;
	rig_do(home, rig_open);
	home->disks[disk] = home->open.opened;
	for (unsigned i = 0; i < RIG_SHARDS; i++) {
		struct rig_shard *s = &f->shards[i];

		s->disk = disk;
		s->home = home->disks[disk];
		if (s != home)
			rig_do(s, rig_attach);
		rig_do(s, rig_add);
	}
	f->disks[disk] = f->shards[0].disks[disk];
}

static inline void rig_dom_closed(void *arg)
{
	rig_back(arg, 0);
}

static inline void rig_dom_close(struct rig_shard *s)
{
	dom_close(s->dom, rig_dom_closed, s);
}

static inline void rig_detached(struct lsom_detach *req)
{
	rig_back(req->data, 0);
}

static inline void rig_detach(struct rig_shard *s)
{
	s->detach.data = s;
	lsom_disk_detach(s->disks[s->disk], &s->detach, rig_detached);
}

static inline void rig_closed(struct lsom_disk_close *req, int status)
{
	rig_back(req->data, status);
}

static inline void rig_close(struct rig_shard *s)
{
	int rv;

	s->close = (struct lsom_disk_close){ .data = s };
	rv = lsom_disk_close(s->disks[s->disk], &s->close, rig_closed);
	if (rv < 0)
		rig_back(s, rv);
}

/* The test's own dom is closed. */
static inline void rig_stop(struct fixture *f)
{
	f->doms[0] = NULL;
	for (unsigned i = 1; i < RIG_SHARDS; i++) {
		f->doms[i] = NULL;
		rig_do(&f->shards[i], rig_dom_close);
	}
	for (unsigned disk = 0; disk < DISKS; disk++) {
		struct rig_shard *home = rig_home(f, disk);

		for (unsigned i = 0; i < RIG_SHARDS; i++) {
			f->shards[i].disk = disk;
			if (&f->shards[i] != home)
				rig_do(&f->shards[i], rig_detach);
		}
		rig_do(home, rig_close);
	}
	for (unsigned i = 1; i < RIG_SHARDS; i++) {
		lsom_close(f->shards[i].lsom);
		cmmds_mirror_close(f->shards[i].cmmds, on_done, f);
		CHECK_EQ(wait_for(f), 0);
	}
}

#endif
