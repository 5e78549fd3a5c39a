/*
 * node: from nothing to serving, and back.
 *
 * Up: the data directory is claimed, the loop and the admin socket stand; if a
 * directory is there it is opened, this run's incarnation is entered, the rooms
 * are made, disks opened, targets pushed, and when every disk is there or has
 * failed the portals listen.  Without a directory the node waits for `cluster
 * init`, which goes the same way.
 *
 * Down, on SIGTERM: sessions are drained, disks checkpointed and closed, owners
 * released, the directory closed; each step starts when the one before is done,
 * and a watchdog ends a shutdown that hangs, since everything acknowledged is
 * durable anyway.
 */
#define LOG_ROOM LOG_NODE
#include "base/err.h"
#include "base/kv.h"
#include "base/log.h"
#include "base/util.h"
#include "node/node_int.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

/* Recovery takes 10 s at most; an index rebuilt from the log may take longer. */
#define SERVE_WAIT_NS (20 * SEC)
#define UNITS_LOOK_NS (10 * MSEC)
#define DRAIN_MS 5000u
#define STOP_WAIT_NS (60 * SEC)
#define DISCARD_NS (30 * SEC) /* how often what is free is looked for */
#define INIT_WAIT_NS (15 * SEC)

static void node_stop(struct node *node);

static void node_fail(struct node *node, const char *why)
{
	log_error("%s", why);
	node->exit_status = 1;
	node_stop(node);
}

/* ---- serving ---- */

static void serve(struct node *node)
{
	node->serving = true;
	if (node__portals_start(node) > 0) {
		sd_notify(0, "READY=1\nSTATUS=Serving");
	} else if (node__portals_may_come(node)) {
		log_warn("no portal can listen yet: they are tried again");
		sd_notify(0, "READY=1\nSTATUS=No portal can listen yet");
	} else {
		node_fail(node, "no portal can listen: set 'portals' in "
				"[network] to addresses that are free here");
	}
}

void node__serve_if_ready(struct node *node)
{
	if (node->state != NODE_UP || node->serving ||
	    !node__disks_settled(node))
		return;
	if (iscsi_units_untried(node->iscsi) > 0) {
		env_timer_start(node->env, &node->units_timer, UNITS_LOOK_NS);
		return;
	}
	env_timer_stop(node->env, &node->serve_timer);
	serve(node);
}

/*
 * Who serves has opened what can be: hosts log in as soon as a portal answers, and
 * not all of them ask again where a disk is becoming ready.
 */
static void on_units_timer(struct env_timer *timer)
{
	node__serve_if_ready(container_of(timer, struct node, units_timer));
}

static void on_serve_timer(struct env_timer *timer)
{
	struct node *node = container_of(timer, struct node, serve_timer);

	if (node->state != NODE_UP || node->serving)
		return;
	log_warn(node__disks_settled(node)
			 ? "virtual disks are still being opened: the portals "
			   "open without them"
			 : "a disk is still recovering: the portals open "
			   "without it");
	serve(node);
}

/* ---- the rooms, once the directory is there ---- */

static int rooms_open(struct node *node)
{
	struct lsom_config lc = {
		.page_cache_bytes = (size_t)node->config->page_cache,
		.discard_ns = node->config->discard ? DISCARD_NS : 0,
	};
	struct dom_config dc = { .env = node->env, .cmmds = node->cmmds };
	struct iscsi_config ic = { .env = node->env,
				   .shards = shards_count(node->shards),
				   .envs = node->envs,
				   .doms = node->doms };
	struct iser_config rc = { .env = node->env,
				  .shards = shards_count(node->shards),
				  .envs = node->envs,
				  .arena = node->arena,
				  .spin_ns = shard_spin_ns(node->env) };
	int rv;

	for (unsigned i = 0; i < shards_count(node->shards); i++) {
		lc.env = shard_env(node->shards, i);
		rv = lsom_open(&lc, &node->lsom[i]);
		if (rv < 0)
			return rv;
	}
	dc.lsom = node->lsom[0];
	dc.parts = shards_count(node->shards);
	dc.all = node->doms;
	dc.node = node->identity.id;
	rv = dom_open(&dc, &node->dom);
	if (rv < 0)
		return rv;
	ic.dom = node->dom;
	rv = iscsi_open(&ic, &node->iscsi);
	if (rv < 0)
		return rv;
	rc.iscsi = node->iscsi;
	return iser_open(&rc, &node->iser);
}

static void init_finish(struct node *node, int status, const char *why)
{
	void (*cb)(void *arg, int status, const char *why) = node->init_done;

	node->init_done = NULL;
	env_timer_stop(node->env, &node->init_timer);
	if (cb != NULL)
		cb(node->init_arg, status, why);
}

/* Nothing is undone: it may come true yet, or after a restart. */
static void on_init_timer(struct env_timer *timer)
{
	struct node *node = container_of(timer, struct node, init_timer);

	log_warn("cluster %s is not founded yet: the directory in %s does not "
		 "answer",
		 node->cluster_name, node->directory_path);
	init_finish(node, -ETIMEDOUT, NULL);
}

static void rooms_opened(struct node *node, int rv)
{
	node->rooms_opening = false;
	if (node->state == NODE_STOPPING) {
		init_finish(node, -ESHUTDOWN, "the node is shutting down");
		node__stop_go_on(node);
		return;
	}
	if (rv == 0) {
		node->state = NODE_UP;
		node__disks_start(node);
		rv = node__push_open(node, &node->push);
	}
	if (rv < 0) {
		init_finish(node, rv, "the rooms cannot be opened");
		node_fail(node, "cannot start: out of memory?");
		return;
	}
	init_finish(node, 0, "");
	env_timer_start(node->env, &node->serve_timer, SERVE_WAIT_NS);
	node__serve_if_ready(node);
}

static void node_up(struct node *node)
{
	int rv = rooms_open(node);

	if (rv < 0) {
		rooms_opened(node, rv);
		return;
	}
	node->rooms_opening = true;
	node__shards_open(node, rooms_opened);
}

static void on_entered(struct cmmds_command *cmd, int status)
{
	struct node *node = cmd->data;
	char why[200];

	/* It may be taken yet: asked again, it is not taken twice. */
	if (status == -ETIMEDOUT && node->state != NODE_STOPPING &&
	    cmmds_propose_again(cmd, 0, on_entered) == 0) {
		if (!node->entry_waits)
			log_warn("the directory in %s does not answer: this "
				 "node's entry waits for it",
				 node->directory_path);
		node->entry_waits = true;
		return;
	}
	if (node->entry_waits && status == 0)
		log_info("the directory answers: it has this node's entry");
	node->entry_waits = false;
	snprintf(why, sizeof(why),
		 "the directory does not take this node's entry: %s",
		 cmd->why[0] != '\0' ? cmd->why : err_text(status));
	cmmds_command_fini(cmd);
	if (node->state == NODE_STOPPING) {
		init_finish(node, -ESHUTDOWN, "the node is shutting down");
		return;
	}
	if (status < 0) {
		init_finish(node, status, why);
		node_fail(node, why);
		return;
	}
	node_up(node);
}

/* Enter this run into the directory, and the cluster itself if it is new. */
static void node_enter(struct node *node, bool found)
{
	struct cmmds_command *cmd = &node->command;
	Directory__Cluster c = DIRECTORY__CLUSTER__INIT;
	Directory__Node n = DIRECTORY__NODE__INIT;
	const struct cmmds_entry *e;
	int rv;

	cmmds_command_init(cmd);
	cmd->data = node;
	if (found) {
		uuid_make(node->env, &node->cluster);
		c.uuid.data = node->cluster.b;
		c.uuid.len = sizeof(node->cluster.b);
		c.name = node->cluster_name;
		c.feature_level = CMMDS_FEATURE_LEVEL;
		c.created_wall_ns = env_wall_ns(node->env);
		cmmds_put(cmd, CMMDS_CLUSTER, "", 0, CMMDS_MUST_NOT_EXIST,
			  &c.base);
		cmmds_audit(cmd, node->who, "cluster %s founded on node %s",
			    node->cluster_name, node->config->name);
	}
	n.uuid.data = node->identity.id.b;
	n.uuid.len = sizeof(node->identity.id.b);
	n.name = (char *)node->config->name;
	n.address = (char *)node->config->address;
	n.incarnation = node->identity.incarnation;
	n.session = 1;
	/* What was set for its portals stays. */
	e = found ? NULL
		  : cmmds_get(node->cmmds, CMMDS_NODE, node->identity.id.b,
			      sizeof(node->identity.id.b));
	if (e != NULL) {
		const Directory__Node *old = (const void *)e->message;

		n.n_portals = old->n_portals;
		n.portals = old->portals;
	}
	cmmds_put(cmd, CMMDS_NODE, node->identity.id.b,
		  sizeof(node->identity.id.b), CMMDS_ANY, &n.base);
	rv = cmmds_propose(node->cmmds, cmd, 0, on_entered);
	if (rv < 0)
		on_entered(cmd, rv);
}

static void node_alone(struct node *node)
{
	node->state = NODE_ALONE;
	sd_notify(0, "READY=1\nSTATUS=In no cluster");
}

/*
 * A disk has its index here, so this node was in a cluster: without the directory
 * nothing is begun anew.  True: it is said what to do.
 */
static bool was_in_cluster(const struct node *node, char *why, size_t why_len)
{
	struct dirent *e;
	struct uuid id;
	char index[300];
	bool any = false;
	DIR *d;

	snprintf(index, sizeof(index), "%s/index", node->config->data_dir);
	d = opendir(index);
	while (d != NULL && !any && (e = readdir(d)) != NULL)
		any = uuid_parse(e->d_name, &id) == 0;
	if (d != NULL)
		closedir(d);
	if (!any)
		return false;
	snprintf(why, why_len,
		 "%s is missing or empty, though index/ beside it has indexes "
		 "of disks: put it back from a backup; for a new cluster empty "
		 "data_dir first",
		 node->directory_path);
	return true;
}

/*
 * Is nothing in the store's directory but what the beginning of a founding
 * leaves there?  RocksDB writes CURRENT before any log or table, so these
 * without it are a store that lost it, which a founding must not write over.
 */
static bool founding_cut_off(const struct node *node)
{
	DIR *d = opendir(node->directory_path);
	bool current = false, used = false;
	struct dirent *e;

	if (d == NULL)
		return false;
	while ((e = readdir(d)) != NULL) {
		const char *dot = strrchr(e->d_name, '.');

		current |= strcmp(e->d_name, "CURRENT") == 0;
		used |= dot != NULL &&
			(strcmp(dot, ".log") == 0 || strcmp(dot, ".sst") == 0);
	}
	closedir(d);
	return current || !used;
}

static void on_directory(struct cmmds_open *req, int status)
{
	struct node *node = req->data;
	const struct cmmds_entry *e;
	char why[900], fix[300] = "";

	node->directory_opening = false;
	if (status == 0)
		node->cmmds = req->opened;
	if (node->state == NODE_STOPPING) {
		init_finish(node, -ESHUTDOWN, "the node is shutting down");
		node__stop_go_on(node);
		return;
	}
	if (status == -ENOENT && !node->founding && founding_cut_off(node)) {
		if (was_in_cluster(node, why, sizeof(why))) {
			node_fail(node, why);
			return;
		}
		/* Nothing was promised yet: it begins again. */
		log_warn("%s holds no directory: the founding of the cluster "
			 "was cut short, run basalt cluster init again",
			 node->directory_path);
		node_alone(node);
		return;
	}
	if (status < 0) {
		if (status == -EMFILE) /* nobody can give this process more */
			snprintf(fix, sizeof(fix),
				 "Raise LimitNOFILE= of basaltd's unit, then "
				 "restart basaltd.");
		else if (kv_wants(status))
			node__wanted_fix(node, status, "restart basaltd.", fix,
					 sizeof(fix));
		snprintf(why, sizeof(why), "directory %s: %s%s%s",
			 node->directory_path,
			 req->why[0] ? req->why : strerror(-status),
			 fix[0] ? ". " : "", fix);
		init_finish(node, status, why);
		node_fail(node, why);
		return;
	}
	e = cmmds_get(node->cmmds, CMMDS_CLUSTER, "", 0);
	if (e != NULL) {
		const Directory__Cluster *c = (void *)e->message;

		if (c->uuid.len == sizeof(node->cluster))
			memcpy(node->cluster.b, c->uuid.data,
			       sizeof(node->cluster));
		snprintf(node->cluster_name, sizeof(node->cluster_name), "%s",
			 c->name);
		log_info("node %s in cluster %s", node->config->name,
			 node->cluster_name);
		node_enter(node, false);
	} else if (node->founding) {
		node_enter(node, true);
	} else {
		/* A founding was cut off before its entry: it goes on there. */
		log_warn("the directory is there but names no cluster: run "
			 "basalt cluster init again");
		node_alone(node);
	}
}

/*
 * A directory that cannot write must not be guessed at: it answers nothing any
 * more and the session is invalid, so no I/O is acknowledged either.  The
 * process ends, and a restart goes on from what is durable.
 */
static void on_directory_failed(void *arg, int status, const char *why)
{
	struct node *node = arg;
	char text[600];

	if (node->state == NODE_STOPPING || node->state == NODE_CLOSED)
		return;
	snprintf(text, sizeof(text),
		 "the directory in %s has stopped: %s. Look at the disk under "
		 "it, then start basaltd again. What was acknowledged is "
		 "durable",
		 node->directory_path, why);
	node_fail(node, text);
}

static void directory_open(struct node *node, bool found)
{
	struct cmmds_config config = {
		.env = node->env,
		.path = node->directory_path,
		.node = node->identity.id,
		.incarnation = node->identity.incarnation,
		.found = found,
		.failed = on_directory_failed,
		.failed_arg = node,
	};
	int rv;

	memset(&node->directory_open, 0, sizeof(node->directory_open));
	node->directory_open.data = node;
	node->directory_opening = true;
	rv = cmmds_open(&config, &node->directory_open, on_directory);
	if (rv < 0)
		on_directory(&node->directory_open, rv);
}

/* ---- cluster init ---- */

static int key_ready(struct node *node, char *why, size_t why_len)
{
	const char *dir = node->config->data_dir;
	int rv;

	if (node->key_there)
		return 0;
	env_secure_random(node->env, node->key, sizeof(node->key));
	rv = node__key_make(dir, node->key, why, why_len);
	node->key_there = rv == 0;
	return rv;
}

static void init_wait(struct node *node,
		      void (*cb)(void *arg, int status, const char *why),
		      void *arg)
{
	node->init_done = cb;
	node->init_arg = arg;
	env_timer_start(node->env, &node->init_timer, INIT_WAIT_NS);
}

int node__cluster_init(struct node *node, const char *name, const char *who,
		       void (*cb)(void *arg, int status, const char *why),
		       void *arg)
{
	char why[300];
	int rv;

	if (node->state == NODE_UP)
		return -EEXIST;
	if (node->state == NODE_STARTING && node->founding &&
	    node->init_done == NULL && strcmp(node->cluster_name, name) == 0) {
		init_wait(node, cb, arg);
		return 0;
	}
	if (node->state != NODE_ALONE || node->init_done != NULL)
		return -EBUSY;
	/* One small file, once in a cluster's life: written from the loop. */
	rv = key_ready(node, why, sizeof(why));
	if (rv < 0) {
		log_error("%s", why);
		return rv;
	}
	node->state = NODE_STARTING;
	node->founding = true;
	snprintf(node->cluster_name, sizeof(node->cluster_name), "%s", name);
	snprintf(node->who, sizeof(node->who), "%s", who);
	init_wait(node, cb, arg);
	if (node->cmmds != NULL)
		node_enter(node, true);
	else
		directory_open(node, true);
	return 0;
}

/* ---- stopping ---- */

static void on_admin_closed(void *arg)
{
	struct node *node = arg;

	log_info("stopped");
	node->state = NODE_CLOSED;
	env_timer_stop(node->env, &node->stop_timer);
	for (unsigned i = 0; i < ARRAY_LEN(node->signals); i++)
		uv_close((uv_handle_t *)&node->signals[i], NULL);
	shards_stop(node->shards);
}

static void on_cmmds_closed(void *arg)
{
	struct node *node = arg;

	node->cmmds = NULL;
	node__admin_close(node->admin, on_admin_closed, node);
}

static void on_shards_closed(struct node *node, int status)
{
	for (unsigned i = 0; i < ARRAY_LEN(node->lsom); i++) {
		if (node->lsom[i] != NULL)
			lsom_close(node->lsom[i]);
		node->lsom[i] = NULL;
	}
	cmmds_close(node->cmmds, on_cmmds_closed, node);
}

static void on_dom_closed(void *arg)
{
	struct node *node = arg;

	node->dom = node->doms[0] = NULL;
	node__shards_close(node, on_shards_closed);
}

void node__disks_stopped(struct node *node)
{
	dom_close(node->dom, on_dom_closed, node);
}

static void on_iser_closed(void *arg)
{
	struct node *node = arg;

	node->iser = NULL;
	node__disks_stop(node);
}

static void on_iscsi_closed(void *arg)
{
	struct node *node = arg;

	node->iscsi = NULL;
	log_info("sessions are drained");
	if (node->iser != NULL)
		iser_close(node->iser, on_iser_closed, node);
	else
		on_iser_closed(node);
}

/* The directory is open or will never be: what stands is taken down. */
void node__stop_go_on(struct node *node)
{
	if (node->directory_opening || node->rooms_opening)
		return;
	if (node->push != NULL) {
		node__push_close(node->push);
		node->push = NULL;
	}
	node__metrics_stop(node);
	node__health_close(node);
	node__portals_stop(node);
	if (node->iscsi != NULL)
		iscsi_close(node->iscsi, DRAIN_MS, on_iscsi_closed, node);
	else if (node->dom != NULL)
		node__disks_stop(node);
	else if (node->cmmds != NULL)
		on_dom_closed(node);
	else
		on_cmmds_closed(node);
}

static void on_stop_timer(struct env_timer *timer)
{
	node__disks_late(container_of(timer, struct node, stop_timer));
	log_error("the shutdown hangs: ended; what was acknowledged is "
		  "durable");
	_exit(1);
}

static void node_stop(struct node *node)
{
	if (node->state == NODE_STOPPING || node->state == NODE_CLOSED)
		return;
	log_info("stopping");
	sd_notify(0, "STOPPING=1");
	node->state = NODE_STOPPING;
	env_timer_stop(node->env, &node->serve_timer);
	env_timer_stop(node->env, &node->units_timer);
	env_timer_start(node->env, &node->stop_timer, STOP_WAIT_NS);
	node__stop_go_on(node);
}

static void on_signal(uv_signal_t *handle, int signum)
{
	struct node *node = handle->data;

	shard_wake(node->env);
	if (signum == SIGHUP) /* a terminal gone is no reason to stop */
		return;
	if (node->state == NODE_STOPPING) {
		log_warn("told to stop again: ended without draining");
		_exit(1);
	}
	node_stop(node);
}

/* ---- opening ---- */

static int signals_start(struct node *node)
{
	static const int numbers[] = { SIGTERM, SIGINT, SIGHUP };
	sigset_t ours;
	int rv = 0;

	signal(SIGPIPE, SIG_IGN);
	/* None of ours: the first process of a container is given orphans. */
	signal(SIGCHLD, SIG_IGN);
	for (unsigned i = 0; i < ARRAY_LEN(numbers); i++) {
		uv_signal_init(shard_loop(node->env), &node->signals[i]);
		node->signals[i].data = node;
		rv = uv_signal_start(&node->signals[i], on_signal, numbers[i]);
		if (rv < 0)
			return rv;
	}
	/* Whoever started us may have held them back. */
	sigemptyset(&ours);
	for (unsigned i = 0; i < ARRAY_LEN(numbers); i++)
		sigaddset(&ours, numbers[i]);
	(void)pthread_sigmask(SIG_UNBLOCK, &ours, NULL);
	return rv;
}

static int memory_open(struct node *node, char *why, size_t why_len)
{
	struct arena_config config = { .bytes = (size_t)node->config->arena };
	int rv = arena_open(&config, &node->arena);

	if (rv < 0) {
		snprintf(why, why_len,
			 "no memory for the arena of %llu MiB: make 'arena' in "
			 "[memory] smaller",
			 (unsigned long long)(config.bytes >> 20));
		return rv;
	}
	node->arena_locked = arena_lock(node->arena);
	if (!node->arena_locked)
		log_info("the arena stays unlocked: RLIMIT_MEMLOCK is smaller "
			 "than it");
	rv = shards_open(
		&(struct shards_config){ .count = node->config->shards,
					 .spin_ns =
						 node->config->spin_us * USEC,
					 .arena = node->arena },
		&node->shards);
	if (rv < 0) {
		snprintf(why, why_len, "cannot make the loop: %s",
			 strerror(-rv));
		arena_close(node->arena);
	}
	return rv;
}

static int key_open(struct node *node, char *why, size_t why_len)
{
	struct stat st;
	bool directory;
	int rv;

	snprintf(node->directory_path, sizeof(node->directory_path),
		 "%s/directory", node->config->data_dir);
	directory = stat(node->directory_path, &st) == 0;
	rv = node__key_load(node->config->data_dir, node->key, why, why_len);
	node->key_there = rv == 0;
	if (rv == -ENOENT && directory) {
		snprintf(why, why_len,
			 "%s/cluster.key is missing though this node is in a "
			 "cluster: put back a copy of it",
			 node->config->data_dir);
		return rv;
	}
	if (rv < 0 && rv != -ENOENT)
		return rv;
	if (!directory && was_in_cluster(node, why, why_len))
		return -ENOENT;
	node->state = directory ? NODE_STARTING : NODE_ALONE;
	return 0;
}

int node_open(const struct config *config, struct node **out, char *why,
	      size_t why_len)
{
	struct node *node = calloc(1, sizeof(*node));
	char id[UUID_TEXT_LEN];
	int rv;

	if (node == NULL)
		return -ENOMEM;
	node->config = config;
	TAILQ_INIT(&node->disks);
	node__parts_open(node);
	node->serve_timer.cb = on_serve_timer;
	node->units_timer.cb = on_units_timer;
	node->stop_timer.cb = on_stop_timer;
	node->init_timer.cb = on_init_timer;
	rv = node__identity_open(config->data_dir, &node->identity, why,
				 why_len);
	if (rv < 0)
		goto err_free;
	rv = key_open(node, why, why_len);
	if (rv < 0)
		goto err_identity;
	rv = memory_open(node, why, why_len);
	if (rv < 0)
		goto err_identity;
	for (unsigned i = 0; i < shards_count(node->shards); i++)
		node->envs[i] = shard_env(node->shards, i);
	node->env = node->envs[0];
	node->started_ns = env_now(node->env);
	rv = node__admin_open(node, &node->admin, why, why_len);
	if (rv < 0)
		goto err_shards;
	rv = signals_start(node);
	assert(rv == 0); /* three signals, known numbers */
	uuid_format(&node->identity.id, id);
	log_info("basaltd %s: node %s, id %s, incarnation %llu", BASALT_VERSION,
		 config->name, id,
		 (unsigned long long)node->identity.incarnation);
	node__metrics_register(node);
	node__health_open(node);
	*out = node;
	return 0;

err_shards:
	shards_stop(node->shards);
	shards_run(node->shards);
	shards_close(node->shards);
	arena_close(node->arena);
err_identity:
	node__identity_close(&node->identity);
err_free:
	free(node);
	return rv;
}

int node_run(struct node *node)
{
	node__metrics_start(node);
	if (node->state == NODE_STARTING) {
		directory_open(node, false);
	} else {
		log_info("in no cluster yet: basalt cluster init --name NAME");
		sd_notify(0, "READY=1\nSTATUS=In no cluster");
	}
	shards_run(node->shards);
	return node->exit_status;
}

void node_close(struct node *node)
{
	shards_close(node->shards);
	arena_close(node->arena);
	node__identity_close(&node->identity);
	node__wipe(node->key, sizeof(node->key));
	free(node);
}
