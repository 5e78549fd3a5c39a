/*
 * cmmds_world: members of one directory in one process, for the tests of raft's
 * shell: a virtual clock, disks with latency, and a network that drops, delays,
 * duplicates, reorders and is partitioned.  All follows from one seed.
 *
 * The shell and the store run as shipped; the key-value store under them is a
 * table that outlives a crash.  A crash loses what was not written, and what is
 * being written with even odds; the store writes one batch at a time, so what
 * is left is always a prefix of what was queued.
 *
 * What is checked all the time: one leader a term, one content an index on all
 * members and through all restarts, applied in order, commit indexes that only
 * rise.  A violation is noted in world->wrong; nothing goes on after it.
 */
#ifndef BASALT_TESTS_CMMDS_WORLD_H
#define BASALT_TESTS_CMMDS_WORLD_H

#include "base/timer_heap.h"
#include "cmmds/raft_shell_int.h"
#include "tests/lib/memkv.h"
#include "tests/lib/pattern.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define WORLD_NODES 5u
#define WORLD_TERMS 65536u

struct world;

struct world_node {
	struct env env; /* first */
	struct world *world;
	uint64_t id;
	struct uuid uuid;
	char address[80];

	struct kv *table; /* outlives crashes */
	bool cut; /* the power is gone: nothing reaches the table */
	bool write_failed; /* since it was opened */
	int fail_scan; /* what is there cannot be read, for this */
	uint64_t fail_write; /* fail the Nth from now on; 0: none */
	int wants; /* kv_wants(): neither a write nor opening succeeds; or 0 */
	uint64_t slow_ns;
	STAILQ_HEAD(, env_task) tasks;
	struct env_work *work;
	bool work_made; /* its work() ran before the power went */
	struct env_timer work_timer;

	struct store_open open;
	struct raft_shell *shell;
	struct env_timer up; /* restart */
	uint64_t applied, commit;
	uint64_t snapshot; /* index of the newest the shell relies on */
	uint64_t image_at; /* of the image under way; 0: none */
	unsigned image_parts; /* that are still to come */
	bool closed;
	int failed; /* status the shell told */
};

struct world_message {
	struct env_timer timer;
	struct world *world;
	unsigned from, to;
	uint8_t *frame;
	size_t len;
	TAILQ_ENTRY(world_message) link;
};

/* What was applied at an index, by whoever was first. */
struct world_entry {
	uint64_t term, hash, chain;
};

struct world {
	uint64_t random, now_ns, seed, rules_off;
	struct timer_heap timers;
	TAILQ_HEAD(, world_message) messages;
	struct world_node nodes[WORLD_NODES];
	unsigned count;
	unsigned snapshot_bytes;

	bool parted[WORLD_NODES][WORLD_NODES];
	unsigned drop_percent, double_percent;
	uint64_t delay_ns;

	struct world_entry *chain; /* from index 1: chain[index] */
	uint64_t chain_last, chain_room;
	uint64_t leader_of[WORLD_TERMS];

	uint64_t events, submitted, crashes, installs, compactions, elections;
	uint64_t changes;
	bool expect_failure; /* a store fails on purpose */
	bool no_image; /* an image is too large to be taken */
	uint64_t no_images; /* times it was asked for all the same */
	uint64_t images_dropped;
	/* Sees every frame that leaves; false: it is lost.  May be NULL. */
	bool (*tap)(struct world *w, unsigned from, unsigned to,
		    const uint8_t *frame, size_t len);
	uint8_t *caught; /* by the tap, for a test to send again */
	size_t caught_len;
	char wrong[256];
};

static inline uint64_t world_random(struct world *w, uint64_t below)
{
	return random_next(&w->random) % below;
}

__attribute__((format(printf, 2, 3))) static inline void
world_wrong(struct world *w, const char *fmt, ...)
{
	va_list ap;

	if (w->wrong[0] != '\0')
		return;
	va_start(ap, fmt);
	vsnprintf(w->wrong, sizeof(w->wrong), fmt, ap);
	va_end(ap);
}

/* In a forked child: what the parent catches is the end here. */
static inline void world_orphan(void)
{
	static const int numbers[] = { SIGABRT, SIGSEGV, SIGBUS, SIGFPE,
				       SIGILL };

	for (unsigned i = 0; i < ARRAY_LEN(numbers); i++)
		signal(numbers[i], SIG_DFL);
}

/* ---- the env of a member ---- */

static inline struct world_node *node_of(struct env *env)
{
	return (struct world_node *)env;
}

static inline uint64_t world_env_rand(struct env *env)
{
	return random_next(&node_of(env)->world->random);
}

static inline void world_env_secure(struct env *env, void *buf, size_t len)
{
	uint8_t *b = buf;

	while (len-- > 0)
		*b++ = (uint8_t)world_env_rand(env);
}

static inline uint64_t world_env_wall(struct env *env)
{
	return env->now_ns;
}

static inline void world_env_defer(struct env *env, struct env_task *task)
{
	if (task->queued)
		return;
	task->queued = true;
	STAILQ_INSERT_TAIL(&node_of(env)->tasks, task, link);
}

static inline void world_env_timer_stop(struct env *env,
					struct env_timer *timer)
{
	timer_heap_stop(&node_of(env)->world->timers, timer);
}

static inline void world_env_timer_start(struct env *env,
					 struct env_timer *timer,
					 uint64_t delay_ns)
{
	struct world *w = node_of(env)->world;

	if (delay_ns == ENV_NEXT_TURN_NS) /* a turn takes its time */
		delay_ns += world_random(w, MSEC);
	timer_heap_start(&w->timers, timer, w->now_ns + delay_ns);
}

static inline int world_env_lane_open(struct env *env, const char *name,
				      struct env_lane **out)
{
	*out = (struct env_lane *)env;
	return 0;
}

static inline void world_env_lane_close(struct env_lane *lane)
{
}

static inline uint64_t world_disk_ns(struct world_node *n)
{
	struct world *w = n->world;

	return 50000 + world_random(w, 4 * MSEC) +
	       (n->slow_ns ? world_random(w, n->slow_ns) : 0);
}

static inline void world_env_work(struct env *env, struct env_lane *lane,
				  struct env_work *work)
{
	struct world_node *n = node_of(env);

	assert_true(n->work == NULL); /* one batch at a time */
	n->work = work;
	n->work_made = false;
	timer_heap_start(&n->world->timers, &n->work_timer,
			 n->world->now_ns + world_disk_ns(n));
}

static inline void world_work_end(struct world_node *n)
{
	struct env_work *work = n->work;

	n->work = NULL;
	if (!n->work_made)
		work->work(work);
	work->done(work);
}

static inline void world_on_work(struct env_timer *timer)
{
	world_work_end(container_of(timer, struct world_node, work_timer));
}

struct world_kv {
	struct kv kv; /* first */
	struct world_node *node;
};

static inline void world_kv_close(struct kv *kv)
{
	free(kv);
}

static inline int world_kv_get(struct kv *kv, struct kv_slice key, void **out,
			       size_t *len)
{
	return kv_get(((struct world_kv *)kv)->node->table, key, out, len);
}

static inline int world_kv_apply(struct kv *kv, struct kv_batch *batch)
{
	struct world_node *n = ((struct world_kv *)kv)->node;

	if (n->cut) /* nobody is left to hear of it */
		return 0;
	if (n->write_failed)
		world_wrong(n->world, "member %llu writes after a failed write",
			    (unsigned long long)n->id);
	if (n->fail_write > 0 && --n->fail_write == 0) {
		n->write_failed = true;
		return -EIO;
	}
	if (n->wants != 0) {
		/* It may be there all the same. */
		if (world_random(n->world, 2) == 0)
			kv_apply(n->table, batch);
		n->write_failed = true;
		return n->wants;
	}
	return kv_apply(n->table, batch);
}

static inline int world_kv_flush(struct kv *kv)
{
	return 0;
}

static inline int
world_kv_scan(struct kv *kv, struct kv_slice from, struct kv_slice to,
	      bool (*cb)(void *arg, struct kv_slice key, struct kv_slice value),
	      void *arg)
{
	if (((struct world_kv *)kv)->node->fail_scan != 0)
		return ((struct world_kv *)kv)->node->fail_scan;
	return kv_scan(((struct world_kv *)kv)->node->table, from, to, cb, arg);
}

static const struct kv_ops world_kv_ops = {
	.close = world_kv_close,
	.get = world_kv_get,
	.apply = world_kv_apply,
	.flush = world_kv_flush,
	.scan = world_kv_scan,
};

static inline int world_env_kv_open(struct env *env,
				    const struct kv_config *config,
				    struct kv **out)
{
	struct world_kv *kv;

	if (node_of(env)->wants != 0)
		return node_of(env)->wants;
	kv = cmmds__alloc(sizeof(*kv));
	kv->kv.ops = &world_kv_ops;
	kv->node = node_of(env);
	kv->node->write_failed = false;
	*out = &kv->kv;
	return 0;
}

static const struct env_ops world_env_ops = {
	.rand = world_env_rand,
	.secure_random = world_env_secure,
	.wall_ns = world_env_wall,
	.defer = world_env_defer,
	.timer_start = world_env_timer_start,
	.timer_stop = world_env_timer_stop,
	.lane_open = world_env_lane_open,
	.lane_close = world_env_lane_close,
	.work = world_env_work,
	.kv_open = world_env_kv_open,
};

/* ---- what was decided ---- */

static inline uint64_t world_mix(uint64_t h, const void *data, size_t len)
{
	const uint8_t *b = data;

	for (size_t i = 0; i < len; i++)
		h = (h ^ b[i]) * 0x100000001b3ull;
	return h ^ h >> 29;
}

static inline void world_decided(struct world_node *n, uint64_t index,
				 uint64_t term, uint64_t hash)
{
	struct world *w = n->world;
	struct world_entry *e;

	while (index >= w->chain_room) {
		w->chain_room = w->chain_room ? w->chain_room * 2 : 4096;
		w->chain = realloc(w->chain, w->chain_room * sizeof(*e));
		if (w->chain == NULL)
			abort();
		w->chain[0] = (struct world_entry){ 0 };
	}
	e = &w->chain[index];
	if (index <= w->chain_last) {
		if (e->term != term || e->hash != hash)
			world_wrong(w,
				    "member %llu applies another entry at "
				    "%llu: term %llu, not %llu",
				    (unsigned long long)n->id,
				    (unsigned long long)index,
				    (unsigned long long)term,
				    (unsigned long long)e->term);
		return;
	}
	if (index != w->chain_last + 1)
		world_wrong(w, "member %llu skips to %llu",
			    (unsigned long long)n->id,
			    (unsigned long long)index);
	e->term = term;
	e->hash = hash;
	e->chain = world_mix(w->chain[index - 1].chain ^ term, &hash,
			     sizeof(hash));
	w->chain_last = index;
}

/* What the shell relies on as written is in the table. */
static inline void world_check_snapshot(struct world_node *n, uint64_t index)
{
	struct log_snapshot snap = { 0 };
	void *data = NULL;
	size_t len;

	if (index == n->snapshot || n->cut)
		return;
	n->snapshot = index;
	if (kv_get(n->table, kv_slice("s", 1), &data, &len) != 0 ||
	    codec__snapshot_decode(data, len, &snap) != 0 || snap.index < index)
		world_wrong(n->world,
			    "member %llu relies on a snapshot at %llu that is "
			    "not written",
			    (unsigned long long)n->id,
			    (unsigned long long)index);
	codec__snapshot_fini(&snap);
	free(data);
}

/* A leader takes commands once an entry of its own term is applied (R1). */
static inline void world_check_ready(struct world_node *n)
{
	struct raft_shell *s = n->shell;
	struct world *w = n->world;
	uint64_t index, term = raft_current_term(&s->raft);

	if (s->ready ? w->chain[s->applied].term != term
		     : shell__submit(s, NULL, 0, &index, &term) != -EAGAIN)
		world_wrong(w,
			    "member %llu takes commands before its term's "
			    "first entry",
			    (unsigned long long)n->id);
}

/* Who leads a term has voted for itself in it, and will know so. */
static inline void world_check_vote(struct world_node *n, uint64_t term)
{
	uint64_t told = 0, vote = 0;
	void *data = NULL;
	size_t len;

	if (n->cut)
		return;
	if (kv_get(n->table, kv_slice("m", 1), &data, &len) != 0 ||
	    codec__term_decode(data, len, &told, &vote) != 0 || told != term ||
	    vote != n->id)
		world_wrong(n->world,
			    "member %llu leads term %llu without its own vote",
			    (unsigned long long)n->id,
			    (unsigned long long)term);
	free(data);
}

static inline void world_check(struct world_node *n)
{
	struct world *w = n->world;
	struct raft_shell *s = n->shell;
	uint64_t term;

	if (s == NULL || !s->started || s->failed)
		return;
	if (TAILQ_EMPTY(&s->outbox) &&
	    (s->outbox_count != 0 || s->outbox_bytes != 0))
		world_wrong(w, "member %llu miscounts what it sends",
			    (unsigned long long)n->id);
	if (s->snapshot.index != 0)
		world_check_snapshot(n, s->snapshot.index);
	if (s->commit < n->commit)
		world_wrong(w,
			    "the commit index of member %llu falls from "
			    "%llu to %llu",
			    (unsigned long long)n->id,
			    (unsigned long long)n->commit,
			    (unsigned long long)s->commit);
	n->commit = s->commit;
	if (s->applied > s->commit)
		world_wrong(w,
			    "member %llu applied %llu, above its commit "
			    "index",
			    (unsigned long long)n->id,
			    (unsigned long long)s->applied);
	if (raft_state(&s->raft) != RAFT_LEADER)
		return;
	if (!s->closing)
		world_check_ready(n);
	term = raft_current_term(&s->raft);
	if (term >= WORLD_TERMS)
		return;
	if (w->leader_of[term] != n->id)
		world_check_vote(n, term);
	if (w->leader_of[term] == 0) {
		w->leader_of[term] = n->id;
		w->elections++;
	}
	if (w->leader_of[term] != n->id)
		world_wrong(w, "term %llu has two leaders, %llu and %llu",
			    (unsigned long long)term,
			    (unsigned long long)w->leader_of[term],
			    (unsigned long long)n->id);
}

/* ---- the shell's callbacks ---- */

static inline void world_message_free(struct world_message *m)
{
	timer_heap_stop(&m->world->timers, &m->timer);
	TAILQ_REMOVE(&m->world->messages, m, link);
	free(m->frame);
	free(m);
}

static inline void world_deliver(struct env_timer *timer)
{
	struct world_message *m =
		container_of(timer, struct world_message, timer);
	struct world *w = m->world;
	struct world_node *to = &w->nodes[m->to];
	int rv;

	if (to->shell != NULL && !w->parted[m->from][m->to]) {
		rv = shell__receive(to->shell, w->nodes[m->from].id,
				    w->nodes[m->from].address, m->frame,
				    m->len);
		if (rv != 0 && rv != -ESHUTDOWN)
			world_wrong(w, "a frame of a member is refused: %d",
				    rv);
	}
	world_message_free(m);
}

static inline void world_post(struct world *w, unsigned from, unsigned to,
			      const uint8_t *frame, size_t len)
{
	struct world_message *m = cmmds__alloc(sizeof(*m));
	uint64_t delay = 30000 + world_random(w, MSEC);

	if (w->delay_ns > 0 && world_random(w, 8) == 0)
		delay += world_random(w, w->delay_ns);
	m->world = w;
	m->from = from;
	m->to = to;
	m->frame = cmmds__copy(frame, len);
	m->len = len;
	m->timer.cb = world_deliver;
	TAILQ_INSERT_TAIL(&w->messages, m, link);
	timer_heap_start(&w->timers, &m->timer, w->now_ns + delay);
}

static inline void world_send(void *arg, uint64_t id, const char *address,
			      const uint8_t *frame, size_t len)
{
	struct world_node *n = arg;
	struct world *w = n->world;
	unsigned from = (unsigned)n->id - 1, to = (unsigned)id - 1;

	if (n->cut || n->write_failed)
		world_wrong(w, "a dead member sends");
	if (to >= w->count || strcmp(address, w->nodes[to].address) != 0) {
		world_wrong(w, "a message to nobody: %llu",
			    (unsigned long long)id);
		return;
	}
	w->installs += frame[4] == RAFT_INSTALL_SNAPSHOT;
	if ((w->tap != NULL && !w->tap(w, from, to, frame, len)) ||
	    w->parted[from][to] || world_random(w, 100) < w->drop_percent)
		return;
	world_post(w, from, to, frame, len);
	if (world_random(w, 100) < w->double_percent)
		world_post(w, from, to, frame, len);
}

static inline int world_apply(void *arg, uint64_t index, uint64_t term,
			      enum raft_entry_type type, const uint8_t *data,
			      size_t len)
{
	struct world_node *n = arg;

	if (index != n->applied + 1)
		world_wrong(n->world, "member %llu applies %llu after %llu",
			    (unsigned long long)n->id,
			    (unsigned long long)index,
			    (unsigned long long)n->applied);
	n->applied = index;
	world_decided(n, index, term, world_mix(type * 31u, data, len));
	return 0;
}

#define WORLD_IMAGE 64u

static inline int world_take(void *arg)
{
	struct world_node *n = arg;

	if (n->image_at != 0)
		world_wrong(n->world, "member %llu makes two images at once",
			    (unsigned long long)n->id);
	if (n->world->no_image) {
		n->world->no_images++;
		return -EMSGSIZE;
	}
	n->image_at = n->applied;
	n->image_parts = (unsigned)world_random(
		n->world, world_random(n->world, 4) == 0 ? 2000 : 20);
	return 0;
}

static inline bool world_take_more(void *arg, uint8_t **data, size_t *len)
{
	struct world_node *n = arg;

	if (n->image_at == 0)
		world_wrong(n->world, "member %llu goes on with no image",
			    (unsigned long long)n->id);
	if (n->image_parts-- > 0)
		return false;
	*data = cmmds__alloc(WORLD_IMAGE);
	*len = WORLD_IMAGE;
	put_le64(*data, n->image_at);
	put_le64(*data + 8, n->world->chain[n->image_at].chain);
	n->image_at = 0;
	n->world->compactions++;
	return true;
}

static inline void world_take_drop(void *arg)
{
	struct world_node *n = arg;

	n->image_at = 0;
	n->world->images_dropped++;
}

static inline int world_restore(void *arg, uint64_t index, const uint8_t *data,
				size_t len)
{
	struct world_node *n = arg;
	struct world *w = n->world;

	if (len != WORLD_IMAGE || get_le64(data) != index ||
	    index > w->chain_last ||
	    get_le64(data + 8) != w->chain[index].chain)
		world_wrong(w, "member %llu restores another history at %llu",
			    (unsigned long long)n->id,
			    (unsigned long long)index);
	if (n->image_at != 0)
		world_wrong(w, "member %llu restores under its image",
			    (unsigned long long)n->id);
	if (index <= n->applied)
		world_wrong(w, "member %llu goes back to %llu",
			    (unsigned long long)n->id,
			    (unsigned long long)index);
	n->applied = index;
	return 0;
}

static inline void world_leading(void *arg, bool leading)
{
}

static inline void world_failed(void *arg, int status, const char *why)
{
	struct world_node *n = arg;

	if (n->failed != 0)
		world_wrong(n->world, "failing is told twice");
	n->failed = status;
	if (!n->world->expect_failure)
		world_wrong(n->world, "member %llu stops: %s",
			    (unsigned long long)n->id, why);
}

static const struct shell_ops world_shell_ops = {
	.send = world_send,
	.apply = world_apply,
	.take = world_take,
	.take_more = world_take_more,
	.take_drop = world_take_drop,
	.restore = world_restore,
	.leading = world_leading,
	.failed = world_failed,
};

/* ---- up and down ---- */

static inline void world_on_open(struct store_open *req, int status)
{
	struct world_node *n = req->data;
	struct world *w = n->world;
	char why[256] = "";
	struct shell_config config = {
		.env = &n->env,
		.store = req->store,
		.loaded = &req->loaded,
		.ops = &world_shell_ops,
		.arg = n,
		.snapshot_bytes = w->snapshot_bytes,
		.election_ms = 500,
		.heartbeat_ms = 100,
		.rules_off = w->rules_off,
	};

	if (status == 0)
		status = shell__open(&config, why, &n->shell);
	if (status != 0)
		world_wrong(w, "member %llu does not come up: %d %s %s",
			    (unsigned long long)n->id, status, req->why, why);
}

static inline void world_node_up(struct world_node *n)
{
	timer_heap_stop(&n->world->timers, &n->up);
	if (n->shell != NULL || n->work != NULL)
		return;
	n->cut = false;
	n->applied = n->commit = n->snapshot = n->image_at = 0;
	n->failed = 0;
	memset(&n->open, 0, sizeof(n->open));
	n->open.data = n;
	if (store__open(&n->env, "world", &n->uuid, false, &n->open,
			world_on_open) != 0)
		abort();
}

static inline void world_on_up(struct env_timer *timer)
{
	world_node_up(container_of(timer, struct world_node, up));
}

static inline void world_on_closed(void *arg)
{
	*(bool *)arg = true;
}

static inline void world_node_tasks(struct world_node *n)
{
	struct env_task *task;

	while ((task = STAILQ_FIRST(&n->tasks)) != NULL) {
		STAILQ_REMOVE_HEAD(&n->tasks, link);
		task->queued = false;
		task->cb(task);
		world_check(n);
	}
}

/* The power goes; @clean: what is queued is written first. */
static inline void world_node_down(struct world_node *n, bool clean)
{
	struct world *w = n->world;

	if (n->shell == NULL)
		return;
	if (!clean) {
		if (n->work != NULL && world_random(w, 2) == 0) {
			n->work->work(n->work);
			n->work_made = true;
		}
		n->cut = true;
		w->crashes++;
	}
	n->closed = false;
	shell__close(n->shell, world_on_closed, &n->closed);
	n->shell = NULL;
	while (!n->closed) {
		world_node_tasks(n);
		if (n->work != NULL) {
			timer_heap_stop(&w->timers, &n->work_timer);
			world_work_end(n);
		}
	}
}

/* Write what a founding member of this configuration starts with. */
static inline void world_found(struct world_node *n,
			       const struct raft_configuration *conf)
{
	struct store_format format = { .version = STORE_VERSION,
				       .store_id = n->id,
				       .store_uuid = n->uuid,
				       .node = n->uuid };
	const struct raft_server *us = codec__conf_find(conf, n->id);
	struct log_entry entry = { .term = 1, .type = RAFT_CHANGE };
	struct codec_buf buf = { 0 }, bytes = { 0 };
	struct kv_batch batch;
	bool voter = us != NULL && us->role == RAFT_VOTER;

	store__address(&format, n->address);
	kv_batch_init(&batch);
	codec__format_encode(&format, &buf);
	kv_batch_put(&batch, kv_slice("f", 1), kv_slice(buf.data, buf.len));
	buf.len = 0;
	codec__term_encode(voter ? 1 : 0, 0, &buf);
	kv_batch_put(&batch, kv_slice("m", 1), kv_slice(buf.data, buf.len));
	if (voter) { /* the others start empty */
		codec__conf_encode(conf, &bytes);
		entry.data = bytes.data;
		entry.len = (uint32_t)bytes.len;
		buf.len = 0;
		codec__entry_encode(1, &entry, &buf);
		kv_batch_put(&batch, kv_slice("l\0\0\0\0\0\0\0\1", 9),
			     kv_slice(buf.data, buf.len));
	}
	if (kv_apply(n->table, &batch) != 0)
		abort();
	kv_batch_fini(&batch);
	free(buf.data);
	free(bytes.data);
}

/*
 * @roles: a letter a member: V voter, S standby, - not in it yet, X an empty
 * disk that nobody opened.
 */
static inline void world_init(struct world *w, uint64_t seed, const char *roles,
			      uint64_t rules_off)
{
	struct raft_configuration conf;

	memset(w, 0, sizeof(*w));
	w->seed = w->random = seed;
	w->rules_off = rules_off;
	w->now_ns = SEC;
	w->count = (unsigned)strlen(roles);
	w->snapshot_bytes = 1500 + (unsigned)world_random(w, 8000);
	TAILQ_INIT(&w->messages);
	raft_configuration_init(&conf);
	for (unsigned i = 0; i < w->count; i++) {
		struct world_node *n = &w->nodes[i];
		struct store_format format = { 0 };

		n->env.ops = &world_env_ops;
		n->env.shards_count = 1;
		n->env.now_ns = w->now_ns;
		n->world = w;
		n->id = i + 1;
		memset(n->uuid.b, (int)i + 1, sizeof(n->uuid.b));
		n->table = memkv_clone(NULL, NULL);
		n->work_timer.cb = world_on_work;
		n->up.cb = world_on_up;
		STAILQ_INIT(&n->tasks);
		format.node = format.store_uuid = n->uuid;
		store__address(&format, n->address);
		if ((roles[i] == 'V' || roles[i] == 'S') &&
		    raft_configuration_add(&conf, n->id, n->address,
					   roles[i] == 'V' ? RAFT_VOTER
							   : RAFT_STANDBY) != 0)
			abort();
	}
	for (unsigned i = 0; i < w->count; i++) {
		if (roles[i] == 'X')
			continue;
		world_found(&w->nodes[i], &conf);
		world_node_up(&w->nodes[i]);
	}
	raft_configuration_close(&conf);
}

static inline void world_fini(struct world *w)
{
	struct world_message *m;

	w->expect_failure = true;
	for (unsigned i = 0; i < w->count; i++) {
		struct world_node *n = &w->nodes[i];

		timer_heap_stop(&w->timers, &n->up);
		if (n->shell == NULL && n->work != NULL) {
			/* Still opening. */
			timer_heap_stop(&w->timers, &n->work_timer);
			world_work_end(n);
		}
		world_node_down(n, false);
		kv_close(n->table);
	}
	while ((m = TAILQ_FIRST(&w->messages)) != NULL)
		world_message_free(m);
	timer_heap_fini(&w->timers);
	free(w->chain);
	free(w->caught);
}

/* ---- running ---- */

/* Until @end_ns, or something is wrong. */
static inline void world_run(struct world *w, uint64_t end_ns)
{
	while (w->wrong[0] == '\0') {
		struct env_timer *timer;

		for (unsigned i = 0; i < w->count; i++)
			world_node_tasks(&w->nodes[i]);
		timer = timer_heap_first(&w->timers);
		if (timer == NULL || timer->due_ns > end_ns)
			break;
		w->events++;
		w->now_ns = MAX(w->now_ns, timer->due_ns);
		for (unsigned i = 0; i < w->count; i++)
			w->nodes[i].env.now_ns = w->now_ns;
		timer_heap_stop(&w->timers, timer);
		timer->cb(timer);
		for (unsigned i = 0; i < w->count; i++)
			world_check(&w->nodes[i]);
	}
	w->now_ns = MAX(w->now_ns, end_ns);
	for (unsigned i = 0; i < w->count; i++)
		w->nodes[i].env.now_ns = w->now_ns;
}

static inline struct world_node *world_leader(struct world *w)
{
	struct world_node *best = NULL;

	for (unsigned i = 0; i < w->count; i++) {
		struct world_node *n = &w->nodes[i];

		if (n->shell != NULL && shell__leading(n->shell) &&
		    (best == NULL ||
		     raft_current_term(&n->shell->raft) >
			     raft_current_term(&best->shell->raft)))
			best = n;
	}
	return best;
}

static inline void world_submit(struct world *w, struct world_node *n)
{
	struct shell_submit list[4];
	uint8_t data[4][64];
	unsigned count = (unsigned)world_random(w, 5);
	uint64_t index, term;
	int rv;

	for (unsigned i = 0; i < count; i++) {
		list[i].len = 8 + (size_t)world_random(w, 56);
		list[i].data = data[i];
		memset(data[i], (int)i, sizeof(data[i]));
		put_le64(data[i], ++w->submitted);
	}
	rv = shell__submit(n->shell, list, count, &index, &term);
	if (rv != 0 && rv != -EAGAIN && rv != -ESHUTDOWN)
		world_wrong(w, "a submit is refused: %d", rv);
	world_check(n);
}

static inline void world_network(struct world *w, unsigned drop, unsigned twice,
				 uint64_t delay_ns)
{
	w->drop_percent = drop;
	w->double_percent = twice;
	w->delay_ns = delay_ns;
}

static inline void world_heal(struct world *w)
{
	memset(w->parted, 0, sizeof(w->parted));
}

static inline void world_part(struct world *w, unsigned a, unsigned b)
{
	w->parted[a][b] = w->parted[b][a] = true;
}

#endif
