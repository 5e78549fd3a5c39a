/*
 * raft_store: raft's log, votes and snapshot in a key-value store of their own.
 *
 * Keys: "f" the format, "m" term and vote, "s" the newest snapshot, "l" + index
 * (8 bytes big endian) the log.  The store has its write-ahead log on and syncs
 * every batch; its calls are made on a lane of its own, so that no other store's
 * flush can hold it up and depose a leader.
 *
 * There is one queue, in order, with group commit: a write goes into the batch
 * that gathers while another is being written, and gets a ticket; when a batch
 * is durable, so is every ticket up to its last.  Therefore term before entries,
 * truncation before append and snapshot before trimming hold by construction,
 * and a crash leaves a prefix.
 *
 * A failed write is the end: nothing is written or reported after it.  Only one
 * that found no space, no descriptor or no memory waits until there is some: RocksDB
 * takes no write after it, so it is opened afresh, which leaves all that was durable,
 * and is given the same batch, which may be there or not.  For space it waits as long
 * as it takes, as a start of the daemon would find no more; for the others, of which
 * it would, ten minutes.
 */
#define LOG_ROOM LOG_CMMDS
#include "base/log.h"
#include "cmmds/cmmds_int.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Fewer keys than this are deleted one by one: cheaper for readers. */
#define DELETE_SINGLY 64u
#define BATCH_KEPT (1u << 20) /* bytes of memory; a snapshot may take more */
#define WANTS_NS (5 * SEC) /* between tries where something is lacking */
#define WANTS_NS_MAX (600 * SEC) /* what a start of the daemon may bring */

struct raft_store {
	struct env *env;
	struct env_lane *lane;
	struct kv *kv; /* NULL: it is to be opened again */
	char *path;
	struct uuid node;

	const struct store_ops *ops;
	void *arg;

	struct kv_batch gathering, writing;
	size_t gathering_bytes, writing_bytes; /* of log entries in them */
	/* The snapshot in them, or NULL; its bytes are added on the lane. */
	const struct log_snapshot *gathering_snap, *writing_snap;
	uint64_t ticket; /* of the last write queued */
	uint64_t writing_ticket; /* of the last in @writing */
	uint64_t durable;
	uint64_t first, last; /* of the log once the queue is empty */
	bool busy, failed, closing;
	uint64_t busy_ns; /* since then */
	bool silent; /* for so long that it was logged */
	int wants; /* what @writing waits for: kv_wants(); or 0 */
	uint64_t wants_ns; /* since then; of space it is of no interest */
	int status; /* of the batch just written; the worker's */
	struct store_look *look; /* or NULL */
	struct env_work work;
	struct env_timer wants_timer, silent_timer;
	struct env_task task; /* starts a batch at the end of the turn */

	void (*close_cb)(void *arg);
	void *close_arg;
};

static struct kv_slice log_key(uint64_t index, uint8_t key[9])
{
	key[0] = 'l';
	put_be64(key + 1, index);
	return kv_slice(key, 9);
}

void store__address(const struct store_format *format, char out[80])
{
	char node[UUID_TEXT_LEN], store[UUID_TEXT_LEN];

	uuid_format(&format->node, node);
	uuid_format(&format->store_uuid, store);
	snprintf(out, 80, "%s/%s", node, store);
}

/* ---- loading, on the lane ---- */

struct loading {
	struct store_open *req;
	bool any, has_format, has_term;
	int status;
};

static int damaged(struct store_open *req, const char *what)
{
	snprintf(req->why, sizeof(req->why),
		 "the directory store %s is "
		 "damaged: %s. Put data_dir's directory/ back from a backup; "
		 "if other nodes vote, remove this node and let it join anew "
		 "with an empty one.",
		 req->store->path, what);
	return -EUCLEAN;
}

static int load_format(struct loading *l, struct kv_slice value)
{
	struct store_format *f = &l->req->loaded.format;
	int rv = codec__format_decode(value.data, value.len, f);

	if (rv == -EMEDIUMTYPE)
		snprintf(l->req->why, sizeof(l->req->why),
			 "the directory "
			 "store %s has version %u and features %#x; this "
			 "program knows version %u and features %#x: run one "
			 "that knows them",
			 l->req->store->path, f->version, f->features,
			 STORE_VERSION, STORE_FEATURES);
	else if (rv != 0)
		rv = damaged(l->req, "its format record");
	l->has_format = true;
	return rv;
}

static int load_entry(struct loading *l, struct kv_slice key,
		      struct kv_slice value)
{
	struct store_loaded *loaded = &l->req->loaded;
	struct log_entry entry;
	char what[96];
	uint64_t index;

	if (key.len != 9)
		return damaged(l->req, "an unknown key");
	index = get_be64((const uint8_t *)key.data + 1);
	if (loaded->count == 0)
		loaded->first = index;
	if (index == 0 || index != loaded->first + loaded->count) {
		snprintf(what, sizeof(what), "log entry %llu is missing",
			 (unsigned long long)loaded->first + loaded->count);
		return damaged(l->req, what);
	}
	if (codec__entry_decode(index, value.data, value.len, &entry) != 0) {
		snprintf(what, sizeof(what),
			 "log entry %llu does not match "
			 "its checksum",
			 (unsigned long long)index);
		return damaged(l->req, what);
	}
	if (loaded->count > 0 &&
	    entry.term < loaded->entries[loaded->count - 1].term) {
		free(entry.data);
		return damaged(l->req, "the terms of its log fall");
	}
	if (loaded->count == loaded->room) {
		loaded->room = loaded->room ? loaded->room * 2 : 256;
		loaded->entries =
			realloc(loaded->entries,
				loaded->room * sizeof(*loaded->entries));
		if (loaded->entries == NULL)
			abort();
	}
	loaded->entries[loaded->count++] = entry;
	return 0;
}

static bool load_key(void *arg, struct kv_slice key, struct kv_slice value)
{
	struct loading *l = arg;
	struct store_loaded *loaded = &l->req->loaded;
	uint8_t k = key.len > 0 ? *(const uint8_t *)key.data : 0;

	l->any = true;
	if (k == 'f' && key.len == 1) {
		l->status = load_format(l, value);
	} else if (k == 'm' && key.len == 1) {
		l->has_term = true;
		if (codec__term_decode(value.data, value.len, &loaded->term,
				       &loaded->vote) != 0)
			l->status = damaged(l->req, "its vote record");
	} else if (k == 's' && key.len == 1) {
		loaded->has_snapshot = true;
		if (codec__snapshot_decode(value.data, value.len,
					   &loaded->snapshot) != 0)
			l->status = damaged(l->req, "its snapshot");
	} else if (k == 'l') {
		l->status = load_entry(l, key, value);
	} else {
		l->status = damaged(l->req, "an unknown key");
	}
	return l->status == 0;
}

/* Where log and snapshot meet (raft.md, 3: START). */
static int check_loaded(struct store_open *req)
{
	const struct store_loaded *l = &req->loaded;
	uint64_t last = l->first + l->count - 1, index = l->snapshot.index;

	if (l->count > 0 && l->term < l->entries[l->count - 1].term)
		return damaged(req, "its term is older than its log");
	if (!l->has_snapshot) {
		if (l->count > 0 && l->first != 1)
			return damaged(req, "its log begins without a "
					    "snapshot");
		if (l->count > 0 && l->entries[0].type != RAFT_CHANGE)
			return damaged(req, "its log begins with no "
					    "configuration");
		return 0;
	}
	if (l->term < l->snapshot.term)
		return damaged(req, "its term is older than its snapshot");
	if (l->count == 0)
		return 0;
	if (l->first > index + 1 || last < index)
		return damaged(req, "its log does not reach its snapshot");
	if (l->first <= index &&
	    l->entries[index - l->first].term != l->snapshot.term)
		return damaged(req, "log and snapshot disagree");
	if (l->first == index + 1 && l->entries[0].term < l->snapshot.term)
		return damaged(req, "log and snapshot disagree");
	return 0;
}

void store__loaded_fini(struct store_loaded *loaded)
{
	for (size_t i = 0; i < loaded->count; i++)
		free(loaded->entries[i].data);
	free(loaded->entries);
	codec__snapshot_fini(&loaded->snapshot);
	memset(loaded, 0, sizeof(*loaded));
}

/*
 * Found a cluster of one: the id drawn now and kept for the life of the store,
 * and entry 1, which the core takes for committed.
 */
static int found(struct store_open *req, struct kv *kv)
{
	struct store_loaded *l = &req->loaded;
	struct raft_configuration conf;
	struct codec_buf buf = { 0 }, value = { 0 };
	struct log_entry *entry;
	struct kv_batch batch;
	char address[80];
	uint8_t key[9];
	int rv;

	l->format = (struct store_format){
		.version = STORE_VERSION,
		.features = STORE_FEATURES,
		.store_id = req->draw,
		.store_uuid = req->uuid,
		.node = req->node,
	};
	l->term = 1;
	l->first = 1;
	store__address(&l->format, address);
	raft_configuration_init(&conf);
	if (raft_configuration_add(&conf, req->draw, address, RAFT_VOTER) != 0)
		abort();
	codec__conf_encode(&conf, &buf);
	raft_configuration_close(&conf);
	entry = l->entries = cmmds__alloc(sizeof(*entry));
	l->count = l->room = 1;
	entry->term = 1;
	entry->type = RAFT_CHANGE;
	entry->len = (uint32_t)buf.len;
	entry->data = buf.data;

	kv_batch_init(&batch);
	codec__format_encode(&l->format, &value);
	kv_batch_put(&batch, kv_slice("f", 1), kv_slice(value.data, value.len));
	value.len = 0;
	codec__term_encode(l->term, 0, &value);
	kv_batch_put(&batch, kv_slice("m", 1), kv_slice(value.data, value.len));
	value.len = 0;
	codec__entry_encode(1, entry, &value);
	kv_batch_put(&batch, log_key(1, key), kv_slice(value.data, value.len));
	rv = kv_apply(kv, &batch);
	kv_batch_fini(&batch);
	free(value.data);
	if (rv != 0)
		snprintf(req->why, sizeof(req->why),
			 "cannot write the directory store %s: %s",
			 req->store->path, err_text(rv));
	return rv;
}

static int load(struct store_open *req, struct kv *kv)
{
	struct loading l = { .req = req };
	int rv;

	req->loaded.first = 1;
	rv = kv_scan(kv, kv_slice("", 0), kv_slice(NULL, 0), load_key, &l);
	if (l.status != 0)
		return l.status;
	if (rv == -EUCLEAN)
		return damaged(req, "it cannot be read whole");
	if (rv == -EIO) {
		snprintf(req->why, sizeof(req->why),
			 "cannot read the directory store %s: %s. Look at the "
			 "disk under data_dir, then start basaltd again; only "
			 "if that has lost some of it put directory/ back from "
			 "a backup",
			 req->store->path, err_text(rv));
		return rv;
	}
	if (rv != 0) {
		snprintf(req->why, sizeof(req->why),
			 "cannot read the directory store %s: %s; the log says "
			 "more",
			 req->store->path, err_text(rv));
		return rv;
	}
	if (req->found && l.any) {
		snprintf(req->why, sizeof(req->why),
			 "%s holds a directory "
			 "already: this node is a member of a cluster",
			 req->store->path);
		return -EEXIST;
	}
	if (req->found)
		return found(req, kv);
	if (!l.any) {
		snprintf(req->why, sizeof(req->why),
			 "%s holds no directory: "
			 "the founding of the cluster was cut short, run "
			 "`basalt cluster init` again",
			 req->store->path);
		return -ENOENT;
	}
	if (!l.has_format || !l.has_term)
		return damaged(req, "its format or vote record is missing");
	if (!uuid_equal(&req->loaded.format.node, &req->node)) {
		char owner[UUID_TEXT_LEN], us[UUID_TEXT_LEN];

		uuid_format(&req->loaded.format.node, owner);
		uuid_format(&req->node, us);
		/* It alone knows the id, where the log is lost as well. */
		snprintf(req->why, sizeof(req->why),
			 "the directory store is of node %s, not of this node "
			 "%s: put back the right data_dir, or, if only its "
			 "file node.id was lost, write the former into that",
			 owner, us);
		return -EUCLEAN;
	}
	return check_loaded(req);
}

int store__check(struct raft_store *store, struct kv *kv, char why[256])
{
	struct store_open req = { .store = store, .node = store->node };
	int rv = load(&req, kv);

	store__loaded_fini(&req.loaded);
	memcpy(why, req.why, sizeof(req.why));
	return rv;
}

static int store_kv_open(struct raft_store *store, bool create, struct kv **out)
{
	struct kv_config config = {
		.path = store->path,
		.create = create,
		.log = true,
		.memory_bytes = 16u << 20,
	};

	return env_kv_open(store->env, &config, out);
}

static void open_work(struct env_work *work)
{
	struct store_open *req = container_of(work, struct store_open, work);
	struct kv *kv = NULL;
	int rv = store_kv_open(req->store, req->found, &kv);

	if (rv == -EUCLEAN) {
		req->status = damaged(req, "RocksDB cannot open it");
		return;
	}
	if (rv != 0) {
		snprintf(req->why, sizeof(req->why),
			 rv == -ENOENT	? "there is no directory store at %s, "
					  "or no CURRENT in it: put data_dir's "
					  "directory/ back from a backup"
			 : rv == -EBUSY ? "the directory store %s is in use by "
					  "another process"
			 : kv_wants(rv) ? "cannot open the directory store %s: "
					  "%s"
					: "cannot open the directory store %s: "
					  "%s; the log says more",
			 req->store->path, err_text(rv));
		req->status = rv;
		return;
	}
	req->status = load(req, kv);
	if (req->status == 0)
		req->store->kv = kv;
	else
		kv_close(kv);
}

static void store_free(struct raft_store *store)
{
	env_lane_close(store->env, store->lane);
	kv_batch_fini(&store->gathering);
	kv_batch_fini(&store->writing);
	free(store->path);
	free(store);
}

static void open_done(struct env_work *work)
{
	struct store_open *req = container_of(work, struct store_open, work);
	struct raft_store *store = req->store;

	if (req->status == 0) {
		store->first = req->loaded.first;
		store->last = req->loaded.first + req->loaded.count - 1;
		if (req->loaded.has_snapshot && req->loaded.count == 0) {
			store->first = req->loaded.snapshot.index + 1;
			store->last = req->loaded.snapshot.index;
			req->loaded.first = store->first;
		}
	} else {
		store__loaded_fini(&req->loaded);
		store_free(store);
		req->store = NULL;
	}
	req->cb(req, req->status);
}

static void store_start(struct env_task *task);
static void store_start_soon(struct raft_store *store);
static void on_wants_timer(struct env_timer *timer);
static void on_silent(struct env_timer *timer);

int store__open(struct env *env, const char *path, const struct uuid *node,
		bool found_it, struct store_open *req,
		void (*cb)(struct store_open *req, int status))
{
	struct raft_store *store = cmmds__alloc(sizeof(*store));
	int rv = env_lane_open(env, "raft", &store->lane);

	if (rv != 0) {
		free(store);
		return rv;
	}
	store->env = env;
	store->path = cmmds__copy(path, strlen(path) + 1);
	store->task.cb = store_start;
	store->wants_timer.cb = on_wants_timer;
	store->silent_timer.cb = on_silent;
	kv_batch_init(&store->gathering);
	kv_batch_init(&store->writing);
	memset(&req->loaded, 0, sizeof(req->loaded));
	req->why[0] = '\0';
	req->store = store;
	req->cb = cb;
	req->node = store->node = *node;
	req->found = found_it;
	env_secure_random(env, &req->draw, sizeof(req->draw));
	req->draw |= 1; /* an id is never 0 */
	uuid_make(env, &req->uuid);
	req->work.work = open_work;
	req->work.done = open_done;
	env_work(env, store->lane, &req->work);
	return 0;
}

void store__start(struct raft_store *store, const struct store_ops *ops,
		  void *arg)
{
	store->ops = ops;
	store->arg = arg;
}

/* ---- writing ---- */

/* Who reads the log later is told when it began, and when it was over. */
static void on_silent(struct env_timer *timer)
{
	struct raft_store *store =
		container_of(timer, struct raft_store, silent_timer);

	store->silent = true;
	log_error("directory store %s has not answered for %llu s: nothing can "
		  "be changed before it does; look at the disk under data_dir",
		  store->path,
		  (unsigned long long)(store__silent_ns(store) / SEC));
}

static void busy_begin(struct raft_store *store)
{
	store->busy = true;
	store->busy_ns = env_now(store->env);
	env_timer_start(store->env, &store->silent_timer, STORE_SILENT_NS);
	env_work(store->env, store->lane, &store->work);
}

static void busy_end(struct raft_store *store)
{
	env_timer_stop(store->env, &store->silent_timer);
	if (store->silent)
		log_info("directory store %s answers again, after %llu s",
			 store->path,
			 (unsigned long long)(store__silent_ns(store) / SEC));
	store->silent = store->busy = false;
}

static void look_work(struct env_work *work)
{
	struct raft_store *store = container_of(work, struct raft_store, work);

	store->look->status = store->look->work(store->look, store->kv);
}

static void look_end(struct raft_store *store, int status)
{
	struct store_look *look = store->look;

	store->look = NULL;
	if (look != NULL)
		look->done(look, status);
}

static void look_done(struct env_work *work)
{
	struct raft_store *store = container_of(work, struct raft_store, work);

	busy_end(store);
	store_start_soon(store);
	look_end(store, store->look->status);
}

static void close_work(struct env_work *work)
{
	struct raft_store *store = container_of(work, struct raft_store, work);

	kv_close(store->kv);
}

static void close_done(struct env_work *work)
{
	struct raft_store *store = container_of(work, struct raft_store, work);
	void (*cb)(void *arg) = store->close_cb;
	void *arg = store->close_arg;

	busy_end(store);
	store_free(store);
	cb(arg);
}

/* An image is large: its bytes are not the loop's work. */
static void add_snapshot(struct raft_store *store)
{
	struct codec_buf value = { 0 };

	if (store->writing_snap == NULL)
		return;
	codec__snapshot_encode(store->writing_snap, &value);
	kv_batch_put(&store->writing, kv_slice("s", 1),
		     kv_slice(value.data, value.len));
	free(value.data);
	store->writing_snap = NULL;
}

static void write_work(struct env_work *work)
{
	struct raft_store *store = container_of(work, struct raft_store, work);

	add_snapshot(store);
	store->status = 0;
	if (store->kv == NULL)
		store->status = store_kv_open(store, false, &store->kv);
	if (store->status == 0)
		store->status = kv_apply(store->kv, &store->writing);
	if (store->status == 0 && store->writing.bytes_room > BATCH_KEPT)
		kv_batch_fini(&store->writing);
	if (kv_wants(store->status)) {
		kv_close(store->kv);
		store->kv = NULL;
	}
}

static void store_start_soon(struct raft_store *store)
{
	if (!store->task.queued)
		env_defer(store->env, &store->task);
}

static void on_wants_timer(struct env_timer *timer)
{
	store_start_soon(container_of(timer, struct raft_store, wants_timer));
}

/* While it is opened, and closed, nobody waits. */
static bool waits(const struct raft_store *store)
{
	if (!kv_wants(store->status) || store->durable == 0 || store->closing)
		return false;
	return store->status == -ENOSPC || store->wants == 0 ||
	       store->wants == -ENOSPC ||
	       env_now(store->env) - store->wants_ns < WANTS_NS_MAX;
}

static void wait_on(struct raft_store *store)
{
	if (store->wants != store->status)
		log_error("directory store %s: write: %s: changes wait until "
			  "that is over",
			  store->path, err_text(store->status));
	if (store->wants == 0 || store->wants == -ENOSPC)
		store->wants_ns = env_now(store->env);
	store->wants = store->status;
	look_end(store, store->wants);
	env_timer_start(store->env, &store->wants_timer, WANTS_NS);
}

static void write_done(struct env_work *work)
{
	struct raft_store *store = container_of(work, struct raft_store, work);

	busy_end(store);
	if (waits(store)) {
		wait_on(store);
		return;
	}
	if (store->wants != 0 && store->status == 0)
		log_info("directory store %s: it goes on", store->path);
	store->wants = 0;
	store->writing_bytes = 0;
	kv_batch_clear(&store->writing);
	if (store->status != 0) {
		store->failed = true;
		kv_batch_clear(&store->gathering);
		log_error("directory store %s: write: %s: this node's "
			  "directory stops",
			  store->path, err_text(store->status));
		if (!store->closing)
			store->ops->failed(store->arg, store->status);
	} else {
		store->durable = store->writing_ticket;
		if (!store->closing)
			store->ops->durable(store->arg, store->durable);
	}
	store_start_soon(store);
}

static void store_start(struct env_task *task)
{
	struct raft_store *store = container_of(task, struct raft_store, task);

	/* A write that waits goes first, and at the end again. */
	if (store->busy ||
	    (env_timer_active(&store->wants_timer) && !store->closing))
		return;
	env_timer_stop(store->env, &store->wants_timer);
	if (store->failed || store->closing)
		look_end(store, store->closing ? -ESHUTDOWN : -EIO);
	if (store->wants != 0) {
		store->work.work = write_work;
		store->work.done = write_done;
	} else if (store->look != NULL &&
		   store->durable >= store->look->ticket) {
		store->work.work = look_work;
		store->work.done = look_done;
	} else if (!store->failed && (store->gathering.changes_count > 0 ||
				      store->gathering_snap != NULL)) {
		struct kv_batch batch = store->writing;

		store->writing = store->gathering;
		store->gathering = batch;
		store->writing_bytes = store->gathering_bytes;
		store->gathering_bytes = 0;
		store->writing_snap = store->gathering_snap;
		store->gathering_snap = NULL;
		store->writing_ticket = store->ticket;
		store->work.work = write_work;
		store->work.done = write_done;
	} else if (store->closing) {
		store->work.work = close_work;
		store->work.done = close_done;
	} else {
		return;
	}
	busy_begin(store);
}

static uint64_t queued(struct raft_store *store)
{
	assert(!store->closing);
	store_start_soon(store);
	return ++store->ticket;
}

static void put(struct raft_store *store, struct kv_slice key,
		struct codec_buf *value)
{
	kv_batch_put(&store->gathering, key, kv_slice(value->data, value->len));
	free(value->data);
}

/* [from, to) of the log. */
static void delete_entries(struct raft_store *store, uint64_t from, uint64_t to)
{
	uint8_t a[9], b[9];

	if (from >= to)
		return;
	if (to - from > DELETE_SINGLY) {
		kv_batch_delete_range(&store->gathering, log_key(from, a),
				      log_key(to, b));
		return;
	}
	for (uint64_t i = from; i < to; i++)
		kv_batch_delete(&store->gathering, log_key(i, a));
}

uint64_t store__term(struct raft_store *store, uint64_t term, uint64_t vote)
{
	struct codec_buf value = { 0 };

	codec__term_encode(term, vote, &value);
	put(store, kv_slice("m", 1), &value);
	return queued(store);
}

uint64_t store__append(struct raft_store *store, uint64_t index,
		       struct log_entry *entries, size_t count)
{
	uint8_t key[9];

	assert(index >= store->first && index <= store->last + 1);
	delete_entries(store, index, store->last + 1);
	for (size_t i = 0; i < count; i++) {
		struct codec_buf value = { 0 };

		codec__entry_encode(index + i, &entries[i], &value);
		store->gathering_bytes += value.len;
		put(store, log_key(index + i, key), &value);
	}
	store->last = index + count - 1;
	return queued(store);
}

uint64_t store__install(struct raft_store *store,
			const struct log_snapshot *snap)
{
	store->gathering_snap = snap;
	delete_entries(store, store->first, store->last + 1);
	store->first = snap->index + 1;
	store->last = snap->index;
	return queued(store);
}

uint64_t store__compact(struct raft_store *store,
			const struct log_snapshot *snap, uint64_t keep_from)
{
	assert(keep_from <= store->last + 1);
	store->gathering_snap = snap;
	delete_entries(store, store->first, keep_from);
	store->first = MAX(store->first, keep_from);
	return queued(store);
}

int store__look(struct raft_store *store, struct store_look *look)
{
	assert(!store->closing);
	if (store->failed || store->wants != 0)
		return store->failed ? -EIO : store->wants;
	if (store->look != NULL)
		return -EBUSY;
	store->look = look;
	look->ticket = store->ticket;
	store_start_soon(store);
	return 0;
}

size_t store__pending_bytes(const struct raft_store *store)
{
	return store->gathering_bytes + store->writing_bytes;
}

uint64_t store__durable(const struct raft_store *store)
{
	return store->durable;
}

int store__wants(const struct raft_store *store)
{
	return store->wants;
}

uint64_t store__silent_ns(const struct raft_store *store)
{
	return store->busy ? env_now(store->env) - store->busy_ns : 0;
}

void store__close(struct raft_store *store, void (*cb)(void *arg), void *arg)
{
	assert(!store->closing);
	store->closing = true;
	store->close_cb = cb;
	store->close_arg = arg;
	store_start_soon(store);
}
