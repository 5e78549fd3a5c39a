/*
 * scrub: disks are read through, by command and of themselves.
 *
 * What rots where nobody reads is found while there is another copy, or a backup
 * that still has it.  Each disk is due some days after it was added or read
 * through last, as the directory says, one disk of a node at a time.  When that
 * was, and how many blocks were bad, is kept with the disk in the directory; which
 * ones they are only until the daemon ends, as the log has them too.
 */
#define LOG_ROOM LOG_NODE
#include "base/err.h"
#include "base/log.h"
#include "base/size.h"
#include "base/util.h"
#include "dom/clom.h"
#include "node/node_int.h"

#include <errno.h>
#include <stdlib.h>

#define DAY_NS (24 * 3600 * SEC)
/* Who restarts a daemon wants something else of its disks first. */
#define FIRST_NS (3600 * SEC)
#define BUSY_NS                                                                \
	(100 * MSEC) /* until a directory with a full queue is asked again */

/* ---- what is kept in the directory ---- */

struct outcome {
	struct cmmds_command command;
	struct node *node;
	struct uuid disk;
	char path[256], who[64];
	uint64_t wall_ns, bad;
	unsigned segments_unread, attempts;
	struct env_timer busy;
};

static void outcome_propose(struct outcome *o);

static void on_busy(struct env_timer *timer)
{
	struct outcome *o = container_of(timer, struct outcome, busy);
	struct node *node = o->node;

	outcome_propose(o);
	node__disks_work_done(node);
}

static void on_stored(struct cmmds_command *cmd, int status)
{
	struct outcome *o = cmd->data;
	struct node *node = o->node;

	if (status == -ETIMEDOUT && node->state == NODE_UP &&
	    cmmds_propose_again(cmd, 0, on_stored) == 0)
		return;
	cmmds_command_fini(cmd);
	if (status == -EAGAIN && node->state == NODE_UP && o->attempts++ < 8) {
		outcome_propose(o); /* the entry has changed */
		return;
	}
	/* For as long as that takes: nobody else knows of it. */
	if (status == -EBUSY && node->state == NODE_UP) {
		o->busy.cb = on_busy;
		node->disks_works++;
		env_timer_start(node->env, &o->busy, BUSY_NS);
		return;
	}
	if (status < 0)
		log_warn("disk %s: that it was scrubbed is not kept: %s",
			 o->path, err_text(status));
	free(o);
}

static void outcome_propose(struct outcome *o)
{
	const struct cmmds_entry *e = cmmds_get(o->node->cmmds, CMMDS_DISK,
						o->disk.b, sizeof(o->disk.b));
	struct cmmds_command *cmd = &o->command;
	Directory__Disk m;
	int rv;

	if (e == NULL) { /* it was removed */
		free(o);
		return;
	}
	m = *(const Directory__Disk *)e->message;
	m.scrubbed_wall_ns = o->wall_ns;
	m.scrubbed_bad = o->bad;
	m.scrubbed_unread = o->segments_unread;
	cmmds_command_init(cmd);
	cmd->data = o;
	cmmds_put(cmd, CMMDS_DISK, o->disk.b, sizeof(o->disk.b), e->revision,
		  &m.base);
	if (o->bad + o->segments_unread > 0)
		cmmds_audit(cmd, o->who,
			    "disk %s of node %s scrubbed: %llu block%s not "
			    "what was written, %u segment%s not readable",
			    o->path, o->node->config->name,
			    (unsigned long long)o->bad,
			    o->bad == 1 ? " is" : "s are", o->segments_unread,
			    o->segments_unread == 1 ? " is" : "s are");
	else
		cmmds_audit(cmd, o->who, "disk %s of node %s scrubbed: good",
			    o->path, o->node->config->name);
	rv = cmmds_propose(o->node->cmmds, cmd, 0, on_stored);
	if (rv < 0)
		on_stored(cmd, rv);
}

static void outcome_keep(const struct node_disk *d)
{
	const struct node_scrub *s = d->scrub;
	struct outcome *o = calloc(1, sizeof(*o));

	if (o == NULL) {
		log_warn("disk %s: that it was scrubbed is not kept: no memory",
			 d->path);
		return;
	}
	o->node = d->node;
	o->disk = d->id;
	snprintf(o->path, sizeof(o->path), "%s", d->path);
	snprintf(o->who, sizeof(o->who), "%s", s->who);
	o->wall_ns = s->ended_wall_ns;
	o->bad = s->req.bad_count;
	o->segments_unread = s->req.segments_unread;
	outcome_propose(o);
}

/* ---- one scrub, which the disk's home runs ---- */

static void end_tell(const struct node_disk *d)
{
	const struct node_scrub *s = d->scrub;
	uint64_t seconds = (env_now(d->node->env) - s->begun_ns) / SEC;
	char text[SIZE_TEXT_MAX];

	size_format(s->req.read_blocks * LSOM_BLOCK, text);
	if (s->status < 0)
		log_info("disk %s: scrub ended at %u %%, %llu bad block%s up "
			 "to there: %s",
			 d->path, s->req.percent,
			 (unsigned long long)s->req.bad_count,
			 s->req.bad_count == 1 ? "" : "s",
			 s->status == -ECANCELED ? "called off"
						 : err_text(s->status));
	else if (s->req.bad_count + s->req.segments_unread > 0)
		log_error("disk %s: scrubbed in %llu s: %llu block%s of %s %s "
			  "not what was written, %u segment%s not readable",
			  d->path, (unsigned long long)seconds,
			  (unsigned long long)s->req.bad_count,
			  s->req.bad_count == 1 ? "" : "s", text,
			  s->req.bad_count == 1 ? "is" : "are",
			  s->req.segments_unread,
			  s->req.segments_unread == 1 ? " is" : "s are");
	else
		log_info("disk %s: scrubbed in %llu s: %s are as they were "
			 "written",
			 d->path, (unsigned long long)seconds, text);
}

/* It has ended, and nothing of it is on its way. */
static void scrub_over(struct node_scrub *s)
{
	struct node_disk *d = s->d;

	if (--s->pending > 0)
		return;
	s->ended_wall_ns = s->status == 0 ? env_wall_ns(d->node->env) : 0;
	d->scrub_ns = env_now(d->node->env) + DAY_NS; /* not before that */
	end_tell(d);
	if (s->status == 0 && d->node->state == NODE_UP)
		outcome_keep(d);
}

static void on_ended(struct env_task *task)
{
	scrub_over(container_of(task, struct node_scrub, here));
}

static void on_cancelled(struct env_task *task)
{
	scrub_over(container_of(task, struct node_scrub, cancel));
}

static void there_ended(struct lsom_scrub *req, int status)
{
	struct node_scrub *s = req->data;

	s->over = true;
	s->status = status;
	env_post(s->d->node->env, &s->here);
}

static void there_start(struct env_task *task)
{
	struct node_scrub *s = container_of(task, struct node_scrub, there);
	int rv = lsom_scrub(s->d->home, &s->req, there_ended);

	if (rv < 0)
		there_ended(&s->req, rv);
}

static void there_cancel(struct env_task *task)
{
	struct node_scrub *s = container_of(task, struct node_scrub, cancel);

	if (!s->over)
		lsom_scrub_cancel(&s->req);
	task->cb = on_cancelled;
	env_post(s->d->node->env, task);
}

int node__scrub_start(struct node_disk *d, const char *who)
{
	struct node_scrub *s = d->scrub;

	if (d->state != NODE_DISK_ONLINE || node__disk_has_failed(d))
		return -ENODEV;
	if (node__scrub_runs(d))
		return -EBUSY;
	if (s == NULL)
		s = d->scrub = calloc(1, sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	*s = (struct node_scrub){ .d = d,
				  .pending = 1,
				  .begun_ns = env_now(d->node->env) };
	snprintf(s->who, sizeof(s->who), "%s", who);
	s->req.data = s;
	s->there.cb = there_start;
	s->cancel.cb = there_cancel;
	s->here.cb = on_ended;
	log_info("disk %s: scrub begun by %s", d->path, who);
	env_post(shard_env(d->node->shards, d->shard), &s->there);
	return 0;
}

void node__scrub_stop(struct node_disk *d)
{
	struct node_scrub *s = d->scrub;

	if (!node__scrub_runs(d) || s->stopping)
		return;
	s->stopping = true;
	s->pending++;
	env_post(shard_env(d->node->shards, d->shard), &s->cancel);
}

bool node__scrub_runs(const struct node_disk *d)
{
	return d->scrub != NULL && d->scrub->pending > 0;
}

/* ---- what is known ---- */

void node__scrub_known(const struct node_disk *d, struct node_scrubbed *out)
{
	const struct cmmds_entry *e =
		cmmds_get(d->node->cmmds, CMMDS_DISK, d->id.b, sizeof(d->id.b));
	const struct node_scrub *s = d->scrub;
	const Directory__Disk *m;

	*out = (struct node_scrubbed){ 0 };
	if (node__scrub_runs(d)) {
		out->running = true;
		out->percent = s->req.percent;
	}
	if (s != NULL && s->ended_wall_ns != 0) {
		out->wall_ns = s->ended_wall_ns;
		out->bad_count = s->req.bad_count;
		out->segments_unread = s->req.segments_unread;
		out->bad = s->req.bad;
	} else if (e != NULL) {
		m = (const Directory__Disk *)e->message;
		out->wall_ns = m->scrubbed_wall_ns;
		out->bad_count = m->scrubbed_bad;
		out->segments_unread = m->scrubbed_unread;
	}
}

const Directory__VDisk *node__scrub_place(struct node *node,
					  const struct lsom_scrub_bad *bad,
					  uint64_t *offset)
{
	const struct cmmds_entry *e = cmmds_get(node->cmmds, CMMDS_OBJECT,
						bad->oid.b, sizeof(bad->oid.b));
	const Directory__Object *o;

	if (e == NULL)
		return NULL;
	o = (const Directory__Object *)e->message;
	*offset = bad->offset;
	if (o->tree == NULL || !clom_offset(o->tree, &bad->cid, offset))
		return NULL;
	e = node__vdisk_of(node, &bad->oid);
	return e != NULL ? (const Directory__VDisk *)e->message : NULL;
}

/* ---- of itself ---- */

unsigned node__scrub_days(struct node *node)
{
	const struct cmmds_entry *e =
		cmmds_get(node->cmmds, CMMDS_CLUSTER, "", 0);
	const Directory__Cluster *c = e != NULL ? (void *)e->message : NULL;

	if (c != NULL && c->scrub_off)
		return 0;
	return c != NULL && c->scrub_days > 0 ? c->scrub_days : NODE_SCRUB_DAYS;
}

bool node__scrub_due(unsigned days, uint64_t added_wall_ns,
		     uint64_t scrubbed_wall_ns, uint64_t now_wall_ns)
{
	uint64_t since =
		scrubbed_wall_ns != 0 ? scrubbed_wall_ns : added_wall_ns;

	/* A clock that was wrong does not put it off for ever. */
	return since > now_wall_ns || now_wall_ns - since >= days * DAY_NS;
}

/* When it was read through last, or 0 if it is not to be now. */
static bool is_candidate(struct node_disk *d, unsigned days, uint64_t *since)
{
	const struct cmmds_entry *e =
		cmmds_get(d->node->cmmds, CMMDS_DISK, d->id.b, sizeof(d->id.b));
	uint64_t now = env_now(d->node->env);
	const Directory__Disk *m;

	if (d->scrub_ns == 0)
		d->scrub_ns = now + FIRST_NS;
	if (e == NULL || d->state != NODE_DISK_ONLINE || d->leaving ||
	    now < d->scrub_ns || node__disk_has_failed(d))
		return false;
	m = (const Directory__Disk *)e->message;
	*since = m->scrubbed_wall_ns;
	return !m->removing &&
	       node__scrub_due(days, m->added_wall_ns, m->scrubbed_wall_ns,
			       env_wall_ns(d->node->env));
}

void node__scrubs_look(struct node *node)
{
	struct node_disk *d, *best = NULL;
	uint64_t since, oldest = UINT64_MAX;
	unsigned days;

	if (node->state != NODE_UP)
		return;
	days = node__scrub_days(node);
	if (days == 0)
		return;
	TAILQ_FOREACH (d, &node->disks, link) {
		if (node__scrub_runs(d))
			return;
		if (is_candidate(d, days, &since) && since <= oldest) {
			oldest = since;
			best = d;
		}
	}
	if (best != NULL && node__scrub_start(best, "basaltd") < 0)
		best->scrub_ns = env_now(node->env) + FIRST_NS;
}
