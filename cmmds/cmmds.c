/*
 * cmmds: the room's face: opening and closing, reading, and what the shell's
 * callbacks mean for the directory.
 *
 * Callbacks of the shell run in the middle of its turn, so whatever could lead
 * back into it (submitting, closing, telling of a failure) waits for the end of
 * the turn, in turn_end().
 */
#define LOG_ROOM LOG_CMMDS
#include "base/log.h"
#include "base/stats.h"
#include "cmmds/cmmds_int.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#define SNAPSHOT_BYTES (4u << 20)
#define ELECTION_MS 500u
#define HEARTBEAT_MS 100u

static struct counter applied_total = {
	.name = "basalt_cmmds_commands_applied_total",
	.help = "Directory commands applied on this node.",
};
static struct counter refused_total = {
	.name = "basalt_cmmds_commands_refused_total",
	.help = "Directory commands applied on this node that were refused.",
};

void cmmds__turn_end_soon(struct cmmds *cmmds)
{
	env_defer(cmmds->env, &cmmds->task);
}

/* ---- health ---- */

static void check_store(struct health_check *check, struct health_result *out)
{
	const struct cmmds *cmmds = check->data;
	struct shell_info info;

	shell__info(cmmds->shell, &info);
	if (info.silent_ns >= STORE_SILENT_NS) {
		out->level = HEALTH_BAD;
		snprintf(out->cause, sizeof(out->cause),
			 "the directory has not answered for %llu s: nothing "
			 "can be changed",
			 (unsigned long long)(info.silent_ns / SEC));
		snprintf(out->fix, sizeof(out->fix),
			 "look at the disk under data_dir; it goes on of "
			 "itself when that answers");
	} else if (info.wants != 0) {
		out->level = HEALTH_BAD;
		snprintf(out->cause, sizeof(out->cause),
			 "the directory has no %s left: nothing can be changed",
			 kv_wanted(info.wants));
		kv_wanted_fix(info.wants, "it goes on of itself", out->fix,
			      sizeof(out->fix));
	}
	if (!cmmds->failed)
		return;
	out->level = HEALTH_BAD;
	snprintf(out->cause, sizeof(out->cause),
		 "the directory has stopped: "
		 "%.200s",
		 cmmds->why);
	snprintf(out->fix, sizeof(out->fix),
		 "look at the disk under data_dir "
		 "and start the daemon again");
}

static void check_voters(struct health_check *check, struct health_result *out)
{
	const struct cmmds *cmmds = check->data;

	if (shell__voters(cmmds->shell) != 1)
		return;
	out->level = HEALTH_INFO;
	snprintf(out->cause, sizeof(out->cause),
		 "the directory has one voter: "
		 "without it no change and no failover, and if its data_dir is "
		 "lost, so is the cluster's configuration");
	snprintf(out->fix, sizeof(out->fix),
		 "keep a backup of data_dir, and "
		 "have three voters once there are three nodes");
}

/* Without an image the log is not trimmed, on the disk and in memory. */
static void check_size(struct health_check *check, struct health_result *out)
{
	const struct cmmds *cmmds = check->data;
	struct shell_info info;

	shell__info(cmmds->shell, &info);
	if (info.snapshot_status == 0)
		return;
	out->level = HEALTH_BAD;
	snprintf(out->cause, sizeof(out->cause),
		 "no snapshot of the directory: %s (it may have %u MiB): its "
		 "log of %llu MiB grows with every change",
		 err_text(info.snapshot_status), CMMDS_SNAPSHOT_MAX >> 20,
		 (unsigned long long)info.log_bytes >> 20);
	snprintf(out->fix, sizeof(out->fix),
		 "delete virtual disks or policies that nobody uses");
}

/* ---- what the shell tells ---- */

static int on_apply(void *arg, uint64_t index, uint64_t term,
		    enum raft_entry_type type, const uint8_t *data, size_t len)
{
	struct cmmds *cmmds = arg;
	struct state_result result;
	int rv;

	if (type != RAFT_COMMAND) {
		cmmds__session_look(cmmds);
		cmmds->state.applied_index = index;
		propose__applied(cmmds, index, term, NULL);
		return 0;
	}
	rv = state__apply(&cmmds->state, index, data, len, &result);
	if (rv != 0) {
		log_error("%s", result.why);
		return rv;
	}
	counter_add(&applied_total, 1);
	if (result.status != 0)
		counter_add(&refused_total, 1);
	for (size_t i = 0; i < result.count; i++)
		subscribe__deliver(cmmds, &result.changes[i]);
	state__result_fini(&result);
	propose__applied(cmmds, index, term, &result);
	return 0;
}

static int on_take(void *arg)
{
	struct cmmds *cmmds = arg;

	return snapshot__begin(&cmmds->state);
}

static bool on_take_more(void *arg, uint8_t **data, size_t *len)
{
	struct cmmds *cmmds = arg;

	return snapshot__more(&cmmds->state, data, len);
}

static void on_take_drop(void *arg)
{
	struct cmmds *cmmds = arg;

	snapshot__drop(&cmmds->state);
}

static int on_restore(void *arg, uint64_t index, const uint8_t *data,
		      size_t len)
{
	struct cmmds *cmmds = arg;
	struct cmmds_state old = cmmds->state, state;
	int rv;

	assert(old.image == NULL);
	state__init(&state);
	rv = snapshot__decode(&state, data, len);
	if (rv == 0 && state.applied_index != index)
		rv = -EUCLEAN;
	if (rv != 0) {
		state__fini(&state);
		return rv;
	}
	/* Lists have heads that point into themselves: move them whole. */
	TAILQ_INIT(&old.clients);
	TAILQ_CONCAT(&old.clients, &cmmds->state.clients, link);
	cmmds->state = state;
	TAILQ_INIT(&cmmds->state.clients);
	TAILQ_CONCAT(&cmmds->state.clients, &state.clients, link);
	subscribe__replaced(cmmds, &old);
	state__fini(&old);
	propose__again(cmmds);
	return 0;
}

static void on_leading(void *arg, bool leading)
{
	cmmds__session_look(arg);
	cmmds__turn_end_soon(arg);
}

static void on_failed(void *arg, int status, const char *why)
{
	struct cmmds *cmmds = arg;

	cmmds->failed = true;
	cmmds->status = status;
	snprintf(cmmds->why, sizeof(cmmds->why), "%s: %s", why,
		 err_text(status));
	cmmds__session_look(cmmds);
	cmmds__turn_end_soon(cmmds);
}

/*
 * To the other members.  A founder is alone until members join over rdt, which
 * will carry these frames in its reserved class.
 */
static void on_send(void *arg, uint64_t id, const char *address,
		    const uint8_t *frame, size_t len)
{
	static struct log_limit limit;
	struct cmmds *cmmds = arg;

	if (log_allowed(&limit, env_now(cmmds->env)))
		log_warn("no way to directory member %llu at %s",
			 (unsigned long long)id, address);
}

static const struct shell_ops shell_ops = {
	.send = on_send,
	.apply = on_apply,
	.take = on_take,
	.take_more = on_take_more,
	.take_drop = on_take_drop,
	.restore = on_restore,
	.leading = on_leading,
	.failed = on_failed,
};

/* ---- opening ---- */

static void cmmds_free(struct cmmds *cmmds)
{
	state__fini(&cmmds->state);
	free(cmmds->path);
	free(cmmds);
}

static void open_failed(void *arg)
{
	struct cmmds *cmmds = arg;
	struct cmmds_open *req = cmmds->opening;
	int status = cmmds->status;

	cmmds_free(cmmds);
	req->cb(req, status);
}

static void open_ready(struct cmmds *cmmds)
{
	struct cmmds_open *req = cmmds->opening;

	cmmds->opening = NULL;
	cmmds__session_look(cmmds);
	req->opened = cmmds;
	health_register(&cmmds->health_store);
	health_register(&cmmds->health_voters);
	health_register(&cmmds->health_size);
	req->cb(req, 0);
}

static void store_opened(struct store_open *sreq, int status)
{
	struct cmmds *cmmds = container_of(sreq, struct cmmds, store_open);
	struct cmmds_open *req = cmmds->opening;
	struct shell_config config = {
		.env = cmmds->env,
		.store = sreq->store,
		.loaded = &sreq->loaded,
		.ops = &shell_ops,
		.arg = cmmds,
		.snapshot_bytes = cmmds->config.snapshot_bytes,
		.election_ms = ELECTION_MS,
		.heartbeat_ms = HEARTBEAT_MS,
	};

	cmmds->status = status;
	if (status != 0) {
		snprintf(req->why, sizeof(req->why), "%s", sreq->why);
		open_failed(cmmds);
		return;
	}
	cmmds->status = shell__open(&config, req->why, &cmmds->shell);
	if (cmmds->status != 0) {
		store__loaded_fini(&sreq->loaded);
		store__close(sreq->store, open_failed, cmmds);
		return;
	}
	cmmds__turn_end_soon(cmmds); /* one of several voters is open now */
}

/* A single voter leads before anybody asks; others follow as they can. */
static bool open_complete(struct cmmds *cmmds)
{
	struct shell_info info;

	shell__info(cmmds->shell, &info);
	return info.leader || !info.only_voter;
}

/*
 * Can this run of this program go on with what the directory holds?  Under an
 * incarnation of an earlier run its commands would be answered by what that one
 * asked for, and not be applied.
 */
static bool open_fits(struct cmmds *cmmds)
{
	const struct cmmds_entry *e = cmmds_get(cmmds, CMMDS_CLUSTER, "", 0);
	const Directory__Cluster *cluster = e ? (const void *)e->message : NULL;
	uint64_t heard = state__incarnation(&cmmds->state, &cmmds->config.node);

	if (cluster != NULL && cluster->feature_level > CMMDS_FEATURE_LEVEL) {
		cmmds->status = -EMEDIUMTYPE;
		snprintf(cmmds->why, sizeof(cmmds->why),
			 "the cluster was raised to feature level %u; this "
			 "program knows %u: run one that knows it",
			 cluster->feature_level, CMMDS_FEATURE_LEVEL);
	} else if (heard >= cmmds->config.incarnation) {
		cmmds->status = -ESTALE;
		snprintf(cmmds->why, sizeof(cmmds->why),
			 "this run has number %llu, but the directory has "
			 "heard of run %llu of this node: write a number not "
			 "below that into data_dir's file incarnation",
			 (unsigned long long)cmmds->config.incarnation,
			 (unsigned long long)heard);
	}
	return cmmds->status == 0;
}

static void closed(void *arg)
{
	struct cmmds *cmmds = arg;
	void (*cb)(void *cb_arg) = cmmds->close_cb;
	void *cb_arg = cmmds->close_arg;

	cmmds_free(cmmds);
	cb(cb_arg);
}

static void close_now(struct cmmds *cmmds)
{
	propose__fail_all(cmmds, -ESHUTDOWN);
	subscribe__fini(cmmds);
	health_unregister(&cmmds->health_store);
	health_unregister(&cmmds->health_voters);
	health_unregister(&cmmds->health_size);
	shell__close(cmmds->shell, closed, cmmds);
}

static void turn_end(struct env_task *task)
{
	struct cmmds *cmmds = container_of(task, struct cmmds, task);

	if (cmmds->closing) {
		close_now(cmmds);
		return;
	}
	if (cmmds->opening != NULL) {
		if (!cmmds->failed && !open_complete(cmmds))
			return;
		if (cmmds->failed || !open_fits(cmmds)) {
			snprintf(cmmds->opening->why,
				 sizeof(cmmds->opening->why), "%s", cmmds->why);
			shell__close(cmmds->shell, open_failed, cmmds);
			return;
		}
		open_ready(cmmds); /* may close it: that waits for a turn */
		return;
	}
	if (cmmds->failed) {
		propose__fail_all(cmmds, -EIO);
		if (!cmmds->told && cmmds->config.failed != NULL) {
			cmmds->told = true;
			cmmds->config.failed(cmmds->config.failed_arg,
					     cmmds->status, cmmds->why);
		}
		return;
	}
	subscribe__prime(cmmds);
	propose__flush(cmmds);
}

int cmmds_open(const struct cmmds_config *config, struct cmmds_open *req,
	       cmmds_open_cb cb)
{
	struct cmmds *cmmds = cmmds__alloc(sizeof(*cmmds));
	int rv;

	cmmds->env = config->env;
	cmmds->config = *config;
	cmmds->path = cmmds__copy(config->path, strlen(config->path) + 1);
	cmmds->config.path = cmmds->path;
	if (cmmds->config.snapshot_bytes == 0)
		cmmds->config.snapshot_bytes = SNAPSHOT_BYTES;
	cmmds->opening = req;
	cmmds->task.cb = turn_end;
	TAILQ_INIT(&cmmds->subscriptions);
	TAILQ_INIT(&cmmds->mirrors);
	propose__init(cmmds);
	state__init(&cmmds->state);
	cmmds->health_store = (struct health_check){ .name = "directory-store",
						     .run = check_store,
						     .data = cmmds };
	cmmds->health_voters = (struct health_check){
		.name = "directory-voters", .run = check_voters, .data = cmmds
	};
	cmmds->health_size = (struct health_check){ .name = "directory-size",
						    .run = check_size,
						    .data = cmmds };
	counter_register(&applied_total);
	counter_register(&refused_total);
	req->config = *config;
	req->cb = cb;
	req->opened = NULL;
	req->why[0] = '\0';
	rv = store__open(cmmds->env, cmmds->path, &config->node, config->found,
			 &cmmds->store_open, store_opened);
	if (rv != 0)
		cmmds_free(cmmds);
	return rv;
}

void cmmds_close(struct cmmds *cmmds, void (*cb)(void *arg), void *arg)
{
	assert(!cmmds->closing && cmmds->opening == NULL);
	assert(TAILQ_EMPTY(&cmmds->mirrors));
	cmmds->closing = true;
	cmmds__session_look(cmmds);
	cmmds->close_cb = cb;
	cmmds->close_arg = arg;
	cmmds__turn_end_soon(cmmds);
}

/* ---- reading ---- */

const struct cmmds_entry *cmmds_get(struct cmmds *cmmds, enum cmmds_kind kind,
				    const void *key, size_t key_len)
{
	const struct state_entry *e =
		state__find(&cmmds->state, kind, key, key_len);

	return e ? &e->pub : NULL;
}

const struct cmmds_entry *cmmds_next(struct cmmds *cmmds, enum cmmds_kind kind,
				     const struct cmmds_entry *after)
{
	const struct state_entry *e =
		after ? state__next((const struct state_entry *)after)
		      : state__above(&cmmds->state, kind, NULL, 0);

	return e ? &e->pub : NULL;
}

const struct cmmds_entry *cmmds_behind(struct cmmds *cmmds,
				       enum cmmds_kind kind, const void *key,
				       size_t key_len)
{
	const struct state_entry *e =
		state__above(&cmmds->state, kind, key, key_len);

	return e ? &e->pub : NULL;
}

unsigned cmmds_count(const struct cmmds *cmmds, enum cmmds_kind kind)
{
	return cmmds->state.counts[kind];
}

const struct cmmds_entry *cmmds_of(struct cmmds *cmmds, enum cmmds_kind kind,
				   const void *what, size_t len,
				   const struct cmmds_entry *after)
{
	const struct state_entry *e =
		state__of(&cmmds->state, kind, what, len,
			  (const struct state_entry *)after);

	return e ? &e->pub : NULL;
}

const struct cmmds_entry *cmmds_under(struct cmmds *cmmds, const char *target,
				      const struct cmmds_entry *after)
{
	const struct state_entry *e = state__under(
		&cmmds->state, target, (const struct state_entry *)after);

	return e ? &e->pub : NULL;
}

static const void *message(struct cmmds *cmmds, enum cmmds_kind kind,
			   const void *key, size_t key_len)
{
	const struct cmmds_entry *e = cmmds_get(cmmds, kind, key, key_len);

	return e ? e->message : NULL;
}

const Directory__Object *cmmds_object(struct cmmds *cmmds,
				      const struct uuid *oid)
{
	return message(cmmds, CMMDS_OBJECT, oid->b, sizeof(oid->b));
}

const Directory__VDisk *cmmds_vdisk(struct cmmds *cmmds, const char *name)
{
	return message(cmmds, CMMDS_VDISK, name, strlen(name));
}

const Directory__Policy *cmmds_policy(struct cmmds *cmmds, const char *name)
{
	return message(cmmds, CMMDS_POLICY, name, strlen(name));
}

const Directory__Target *cmmds_target(struct cmmds *cmmds, const char *name)
{
	return message(cmmds, CMMDS_TARGET, name, strlen(name));
}

/* ---- session and state ---- */

static bool session_now(const struct cmmds *cmmds)
{
	if (cmmds->failed || cmmds->closing)
		return false;
	/*
	 * A single voter that leads is the directory: nobody else can expire
	 * its session.  With more voters a lease decides, and without one there
	 * is no valid session.
	 */
	return shell__leading(cmmds->shell) && shell__voters(cmmds->shell) == 1;
}

bool cmmds_session_valid(struct cmmds *cmmds)
{
	return cmmds->home != NULL ? atomic_load(&cmmds->home->session)
				   : session_now(cmmds);
}

void cmmds__session_look(struct cmmds *cmmds)
{
	atomic_store(&cmmds->session,
		     cmmds->shell != NULL && session_now(cmmds));
}

uint64_t cmmds_incarnation(const struct cmmds *cmmds)
{
	return cmmds->config.incarnation;
}

void cmmds_info(struct cmmds *cmmds, struct cmmds_info *out)
{
	struct shell_info info;

	shell__info(cmmds->shell, &info);
	*out = (struct cmmds_info){
		.leader = info.leader,
		.wants = info.wants,
		.term = info.term,
		.commit_index = info.commit,
		.applied_index = info.applied,
		.revision = cmmds->state.revision,
		.voters = info.voters,
		.standbys = info.standbys,
		.store_id = info.id,
		.snapshot_index = info.snapshot_index,
		.log_entries = info.last + 1 - info.first,
		.log_bytes = info.log_bytes,
	};
}
