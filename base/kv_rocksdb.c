/*
 * kv_rocksdb: the ordered store on RocksDB's C interface.
 *
 * One column family, always: rocksdb_flush() of 7.8 flushes only the default
 * one, atomic flush or not, so state spread over several could come back from
 * a crash as no prefix of what was written.
 */
#define LOG_ROOM LOG_BASE
#include "base/kv.h"
#include "base/log.h"
#include "base/record.h"
#include "base/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <rocksdb/c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* A manifest, a log's first blocks, and what compactions take meanwhile. */
#define OPEN_BYTES_MIN (8u << 20)
#define OPEN_FDS 32u /* its directory, lock, manifest, and its first tables */

#define MERGE_TRIES 600u /* without memory */
#define MERGE_AGAIN_MS 100u

struct rocks {
	struct kv kv;
	rocksdb_t *db;
	rocksdb_options_t *options;
	rocksdb_block_based_table_options_t *table;
	rocksdb_cache_t *cache;
	rocksdb_writeoptions_t *write;
	rocksdb_readoptions_t *read;
	rocksdb_flushoptions_t *flush;
	char *path;
	uint32_t number; /* in the record; 0: it is not recorded */
	kv_merge_fn merge;
	_Atomic int merge_status; /* of the last one that failed */
	_Atomic bool closing; /* no merge waits any more */
	_Atomic bool told; /* that it wants what may come was logged */
	int away; /* where @db is NULL: why */
	bool log;
};

/* What RocksDB says, and what it comes from; the first that is found. */
static const struct {
	const char *says;
	int status;
} causes[] = {
	/* First: once full, what RocksDB refuses later repeats it. */
	{ "No space left", -ENOSPC },
	{ "Disk quota exceeded", -EDQUOT }, /* it does not go on by itself */
	{ "Corruption", -EUCLEAN },
	{ "does not exist", -ENOENT },
	/* The file's name is in it, too: "lock" alone may be of that. */
	{ "While lock file", -EBUSY },
	{ "lock hold by current process", -EBUSY },
	/* Not the store's fault. */
	{ "Permission denied", -EACCES },
	{ "Read-only file system", -EROFS },
}, passing[] = {
	/* Behind all else, the file's name as well: nothing but the error. */
	{ ": Too many open files", -EMFILE },
	{ ": Too many open files in system", -ENFILE },
	{ ": Cannot allocate memory", -ENOMEM },
};

static bool ends_with(const char *text, const char *end)
{
	size_t len = strlen(text), end_len = strlen(end);

	return len >= end_len && strcmp(text + len - end_len, end) == 0;
}

static int cause_of(const struct rocks *r, const char *err)
{
	/* Corruption, to it; we know better.  The second is how newer ones say it. */
	if (strstr(err, "Could not perform merge") != NULL ||
	    strstr(err, "Merge operator failed") != NULL)
		return r->merge_status;
	if (strncmp(err, "IO error: ", 10) == 0)
		for (size_t i = 0; i < ARRAY_LEN(passing); i++)
			if (ends_with(err, passing[i].says))
				return passing[i].status;
	for (size_t i = 0; i < ARRAY_LEN(causes); i++)
		if (strstr(err, causes[i].says) != NULL)
			return causes[i].status;
	return -EIO;
}

/* Log what RocksDB says, and make it a status. */
static int rocks_status(struct rocks *r, const char *doing, char *err)
{
	int status;
	bool waits;

	if (err == NULL) {
		r->told = false;
		return 0;
	}
	status = cause_of(r, err);
	/* Who waits for that asks again and again. */
	waits = kv_wants(status);
	if (status != -ENOENT && !(waits && r->told))
		log_error("store %s: %s: %s%s", r->path, doing, err,
			  status == -ENOMEM ? " (out of memory)" : "");
	r->told |= waits;
	rocksdb_free(err);
	return status == -EDQUOT && (r->log || r->db == NULL) ? -ENOSPC
							      : status;
}

static void rocks_close(struct kv *kv)
{
	struct rocks *r = container_of(kv, struct rocks, kv);

	r->closing = true;
	if (r->db != NULL)
		rocksdb_close(r->db);
	rocksdb_flushoptions_destroy(r->flush);
	rocksdb_readoptions_destroy(r->read);
	rocksdb_writeoptions_destroy(r->write);
	rocksdb_options_destroy(r->options);
	rocksdb_block_based_options_destroy(r->table);
	rocksdb_cache_destroy(r->cache);
	free(r->path);
	free(r);
}

/* What this thread merges is for somebody who reads, and may ask again. */
static _Thread_local bool reading;

static int rocks_get(struct kv *kv, struct kv_slice key, void **out,
		     size_t *out_len)
{
	struct rocks *r = container_of(kv, struct rocks, kv);
	char *err = NULL, *value;
	size_t len;

	if (r->db == NULL)
		return r->away;
	reading = true;
	value = rocksdb_get(r->db, r->read, key.data, key.len, &len, &err);
	reading = false;
	if (err != NULL)
		return rocks_status(r, "get", err);
	if (value == NULL)
		return -ENOENT;
	*out = value; /* RocksDB allocates with malloc() */
	*out_len = len;
	return 0;
}

/* ---- the record of what a store was given: base/record.h ---- */

static void record_open(struct rocks *r)
{
	static _Atomic uint32_t next_number = 1;
	struct iovec iov = { r->path, strlen(r->path) };

	if (!record_on())
		return;
	r->number = next_number++ | RECORD_STORE;
	record_event(RECORD_STORE_OPEN, r->number, 0, 0, 0, &iov, 1);
}

static uint64_t record_batch(const struct rocks *r,
			     const struct kv_batch *batch)
{
	uint64_t count = batch->changes_count;
	struct iovec iov[3] = {
		{ &count, sizeof(count) },
		{ batch->changes, count * sizeof(*batch->changes) },
		{ batch->bytes, batch->bytes_count },
	};

	return r->number == 0 ? 0
			      : record_event(RECORD_STORE_BATCH, r->number, 0,
					     0, 0, iov, 3);
}

static uint64_t record_flush(const struct rocks *r)
{
	return r->number == 0 ? 0
			      : record_event(RECORD_STORE_FLUSH, r->number, 0,
					     0, 0, NULL, 0);
}

static void record_done(const struct rocks *r, uint64_t id, int status)
{
	if (r->number != 0)
		record_event(RECORD_DONE, r->number, id,
			     (uint64_t)(int64_t)status, 0, NULL, 0);
}

/* ---- changing and reading ---- */

static int rocks_apply(struct kv *kv, struct kv_batch *batch)
{
	struct rocks *r = container_of(kv, struct rocks, kv);
	rocksdb_writebatch_t *wb;
	char *err = NULL;
	uint64_t id;
	int status;

	if (r->db == NULL)
		return r->away;
	wb = rocksdb_writebatch_create();
	id = record_batch(r, batch);
	kv_batch_sort(batch);
	for (size_t i = 0; i < batch->changes_count; i++) {
		const struct kv_change *c = &batch->changes[i];
		const char *key = (char *)batch->bytes + c->key_at;
		const char *value = (char *)batch->bytes + c->value_at;

		switch (c->type) {
		case KV_PUT:
			rocksdb_writebatch_put(wb, key, c->key_len, value,
					       c->value_len);
			break;
		case KV_DELETE:
			rocksdb_writebatch_delete(wb, key, c->key_len);
			break;
		case KV_MERGE:
			rocksdb_writebatch_merge(wb, key, c->key_len, value,
						 c->value_len);
			break;
		case KV_DELETE_RANGE:
			rocksdb_writebatch_delete_range(wb, key, c->key_len,
							value, c->value_len);
			break;
		}
	}
	rocksdb_write(r->db, r->write, wb, &err);
	rocksdb_writebatch_destroy(wb);
	status = rocks_status(r, "write", err);
	record_done(r, id, status);
	return status;
}

static int rocks_flush(struct kv *kv)
{
	struct rocks *r = container_of(kv, struct rocks, kv);
	char *err = NULL;
	uint64_t id;
	int status;

	if (r->db == NULL)
		return r->away;
	id = record_flush(r);
	rocksdb_flush(r->db, r->flush, &err);
	status = rocks_status(r, "flush", err);
	record_done(r, id, status);
	return status;
}

static int rocks_scan(struct kv *kv, struct kv_slice from, struct kv_slice to,
		      bool (*cb)(void *arg, struct kv_slice key,
				 struct kv_slice value),
		      void *arg)
{
	struct rocks *r = container_of(kv, struct rocks, kv);
	rocksdb_readoptions_t *read;
	rocksdb_iterator_t *it;
	char *err = NULL;
	bool more = true;

	if (r->db == NULL)
		return r->away;
	read = rocksdb_readoptions_create();
	rocksdb_readoptions_set_fill_cache(read, 0);
	rocksdb_readoptions_set_verify_checksums(read, 1);
	if (to.data != NULL)
		rocksdb_readoptions_set_iterate_upper_bound(read, to.data,
							    to.len);
	reading = true;
	it = rocksdb_create_iterator(r->db, read);
	rocksdb_iter_seek(it, from.data, from.len);
	while (more && rocksdb_iter_valid(it)) {
		struct kv_slice key, value;

		key.data = rocksdb_iter_key(it, &key.len);
		value.data = rocksdb_iter_value(it, &value.len);
		more = cb(arg, key, value);
		rocksdb_iter_next(it);
	}
	rocksdb_iter_get_error(it, &err);
	rocksdb_iter_destroy(it);
	reading = false;
	rocksdb_readoptions_destroy(read);
	return rocks_status(r, "scan", err);
}

static int rocks_reopen(struct kv *kv, struct kv_batch *batch);

static const struct kv_ops rocks_ops = {
	.close = rocks_close,
	.get = rocks_get,
	.apply = rocks_apply,
	.flush = rocks_flush,
	.reopen = rocks_reopen,
	.scan = rocks_scan,
};

/* ---- the merge operator ---- */

static char *fold_try(struct rocks *r, struct kv_slice key, struct kv_slice old,
		      const char *const *operands, const size_t *lens,
		      int count, size_t *out_len)
{
	struct kv_slice *list = calloc((size_t)count + 1, sizeof(*list));
	char *out = NULL;

	if (list != NULL) {
		for (int i = 0; i < count; i++)
			list[i] = kv_slice(operands[i], lens[i]);
		out = r->merge(key, old, list, (size_t)count, out_len);
	}
	if (out == NULL)
		r->merge_status = errno == ENOMEM ? -ENOMEM : -EUCLEAN;
	free(list);
	return out;
}

/*
 * A merge that fails while RocksDB flushes or compacts stops the store for good, so
 * there it waits for memory: a minute, in tries, for the clock goes on where this
 * process does not.
 */
static char *fold(struct rocks *r, struct kv_slice key, struct kv_slice old,
		  const char *const *operands, const size_t *lens, int count,
		  unsigned char *success, size_t *out_len)
{
	const struct timespec pause = {
		.tv_nsec = MERGE_AGAIN_MS * 1000000L,
	};
	unsigned tries = 0;
	char *out = fold_try(r, key, old, operands, lens, count, out_len);

	while (out == NULL && r->merge_status == -ENOMEM && !reading &&
	       !r->closing && ++tries < MERGE_TRIES) {
		nanosleep(&pause, NULL);
		out = fold_try(r, key, old, operands, lens, count, out_len);
	}
	if (out == NULL)
		*out_len = 0; /* it is copied all the same */
	*success = out != NULL;
	return out;
}

static char *merge_full(void *state, const char *key, size_t key_len,
			const char *old, size_t old_len,
			const char *const *operands, const size_t *lens,
			int count, unsigned char *success, size_t *out_len)
{
	return fold(state, kv_slice(key, key_len), kv_slice(old, old_len),
		    operands, lens, count, success, out_len);
}

/* No folding without the base: operands stay a list until they meet it. */
static char *merge_partial(void *state, const char *key, size_t key_len,
			   const char *const *operands, const size_t *lens,
			   int count, unsigned char *success, size_t *out_len)
{
	*success = 0;
	*out_len = 0;
	return NULL;
}

static void merge_free(void *state, const char *value, size_t len)
{
	free((void *)value);
}

static void merge_destroy(void *state)
{
}

static const char *merge_name(void *state)
{
	return "basalt.v1";
}

/* ---- opening ---- */

/*
 * Compactions can wait and shards cannot: on few CPUs a shard would sit out a
 * time slice of theirs.  The environment is the process's own; once would do.
 */
static void compactions_yield(void)
{
	rocksdb_env_t *env = rocksdb_create_default_env();

	rocksdb_env_lower_thread_pool_cpu_priority(env);
	rocksdb_env_destroy(env);
}

/* The directory that @path is in, opened, or -errno. */
static int parent_open(const char *path)
{
	char *copy = strdup(path);
	int fd;

	if (copy == NULL)
		return -ENOMEM;
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		fd = -errno;
	free(copy);
	return fd;
}

/* A quota is not in statvfs(): so much is taken, and given back. */
static bool room_given(int dir)
{
	static const char name[] = "basalt.room"; /* RocksDB's end otherwise */
	int fd = openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int why = fd < 0 ? errno : posix_fallocate(fd, 0, OPEN_BYTES_MIN);

	if (why == 0 && fdatasync(fd) < 0)
		why = errno; /* of a file system that is elsewhere */
	if (fd >= 0)
		close(fd);
	unlinkat(dir, name, 0);
	return why != ENOSPC && why != EDQUOT;
}

/*
 * Debian's build has assertions on, and one of them ends the process when a
 * store is opened, or made, and its first writes find no space.  A store that was
 * full when it was closed begins with compactions, beside those writes.
 */
static bool has_room(const struct kv_config *config)
{
	int dir = open(config->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct statvfs st;
	bool room = true;

	if (dir < 0 && errno == ENOENT && config->create)
		dir = parent_open(config->path);
	if (dir < 0)
		return true; /* RocksDB says why not */
	if (fstatvfs(dir, &st) == 0)
		room = (geteuid() == 0 ? st.f_bfree : st.f_bavail) *
			       st.f_frsize >=
		       OPEN_BYTES_MIN;
	room = room && room_given(dir);
	close(dir);
	return room;
}

/*
 * Of one piece: cut into as many as RocksDB would, by the size, each is smaller
 * than the filter of a table of a million small values, which would then be read
 * with each of them.
 */
static rocksdb_cache_t *cache_make(size_t bytes)
{
	rocksdb_lru_cache_options_t *o = rocksdb_lru_cache_options_create();
	rocksdb_cache_t *cache;

	rocksdb_lru_cache_options_set_capacity(o, bytes);
	rocksdb_lru_cache_options_set_num_shard_bits(o, 0);
	cache = rocksdb_cache_create_lru_opts(o);
	rocksdb_lru_cache_options_destroy(o);
	return cache;
}

/* @memory: what write buffers and the block cache may take. */
static void options_set(struct rocks *r, const struct kv_config *config,
			size_t memory)
{
	rocksdb_options_set_create_if_missing(r->options, config->create);
	rocksdb_options_set_paranoid_checks(r->options, 1);
	/*
	 * An index page is checksums and places for the most part: LZ4 makes
	 * 1.14 of a randomly written one, 1.46 of one that was filled in order,
	 * and each compaction would try again.
	 */
	rocksdb_options_set_compression(r->options, rocksdb_no_compression);
	rocksdb_options_set_write_buffer_size(r->options, memory / 4);
	rocksdb_options_set_max_write_buffer_number(r->options, 2);
	rocksdb_options_set_db_write_buffer_size(r->options, memory / 2);
	rocksdb_options_set_max_background_jobs(r->options, 2);
	rocksdb_options_set_max_open_files(r->options, 256);
	rocksdb_options_set_keep_log_file_num(r->options, 3);
	rocksdb_options_set_max_log_file_size(r->options, 4u << 20);
	rocksdb_options_set_max_manifest_file_size(r->options, 16u << 20);
	rocksdb_options_set_max_total_wal_size(r->options, memory);
	rocksdb_options_set_stats_dump_period_sec(r->options, 0);
	/*
	 * Only fatal lines in its own LOG: Debian's build has assertions on,
	 * and one in the logger ends the process when the disk is full, before
	 * we can say why.
	 */
	rocksdb_options_set_info_log_level(r->options, 4);
	rocksdb_block_based_options_set_block_cache(r->table, r->cache);
	rocksdb_block_based_options_set_cache_index_and_filter_blocks(r->table,
								      1);
	rocksdb_block_based_options_set_filter_policy(
		r->table, rocksdb_filterpolicy_create_bloom_full(10));
	rocksdb_options_set_block_based_table_factory(r->options, r->table);
	r->merge = config->merge;
	if (config->merge != NULL)
		rocksdb_options_set_merge_operator(
			r->options,
			rocksdb_mergeoperator_create(r, merge_destroy,
						     merge_full, merge_partial,
						     merge_free, merge_name));
	if (config->log) {
		rocksdb_writeoptions_set_sync(r->write, 1);
		/*
		 * Only a torn tail may be dropped.  The default would open at
		 * the last good record before a damaged one and forget the
		 * rest, which a voter must never do.
		 */
		rocksdb_options_set_wal_recovery_mode(
			r->options,
			rocksdb_tolerate_corrupted_tail_records_recovery);
	} else {
		rocksdb_writeoptions_disable_WAL(r->write, 1);
	}
	rocksdb_flushoptions_set_wait(r->flush, 1);
}

/*
 * RocksDB syncs what is in its directory, but not that there is one: a store
 * that shall be found again after a power cut is so only by this.
 */
static int name_sync(const char *path)
{
	int dir = parent_open(path), rv = 0;

	if (dir < 0)
		return dir;
	if (fsync(dir) < 0)
		rv = -errno;
	close(dir);
	if (rv < 0)
		log_error("store %s: sync its directory: %s", path,
			  strerror(-rv));
	return rv;
}

static int rocks_open(struct rocks *r)
{
	char *err = NULL;

	r->db = rocksdb_open(r->options, r->path, &err);
	return err != NULL ? rocks_status(r, "open", err) : 0;
}

/* So many are to be had: 0, -EMFILE or -ENFILE. */
static int descriptors_given(void)
{
	int fds[OPEN_FDS], rv = 0;
	unsigned n;

	for (n = 0; n < OPEN_FDS && rv == 0; n++) {
		fds[n] = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (fds[n] < 0)
			rv = -errno;
	}
	while (n > 0)
		if (fds[--n] >= 0)
			close(fds[n]);
	return rv == -EMFILE || rv == -ENFILE ? rv : 0;
}

static void rocks_away(struct rocks *r, int why)
{
	r->closing = true;
	if (r->db != NULL)
		rocksdb_close(r->db);
	r->db = NULL;
	r->away = why;
	r->closing = false;
}

/*
 * After an error that it does not know for one of space RocksDB stands still.  Without
 * the batch it would be what it was before: nobody may read it so.
 */
static int rocks_reopen(struct kv *kv, struct kv_batch *batch)
{
	struct rocks *r = container_of(kv, struct rocks, kv);
	const struct kv_config config = { .path = r->path };
	int rv = descriptors_given();

	if (rv < 0)
		return rv;
	if (!has_room(&config))
		return -ENOSPC;
	rocks_away(r, -EIO);
	rv = rocks_open(r);
	if (rv == 0) {
		if (!r->log)
			record_open(r);
		rv = rocks_apply(kv, batch);
	}
	if (rv < 0) {
		rv = rv == -ENOSPC || rv == -EDQUOT ? -EIO : rv;
		rocks_away(r, rv);
		return rv;
	}
	log_info("store %s: it goes on", r->path);
	return 0;
}

/*
 * Its first opening makes a log, and each one that follows, or becomes full, is there
 * before the last goes.  Where there is none, as a copy may leave out what is called
 * so, RocksDB opens what is in the tables and says nothing.
 */
static bool log_missing(const char *path)
{
	bool used = false, any = false;
	DIR *d = opendir(path);
	struct dirent *e;

	if (d == NULL)
		return false; /* RocksDB says why */
	while ((e = readdir(d)) != NULL) {
		any |= ends_with(e->d_name, ".log");
		used |= ends_with(e->d_name, ".sst") ||
			strncmp(e->d_name, "OPTIONS-", 8) == 0;
	}
	closedir(d);
	return used && !any;
}

int kv_rocksdb_open(const struct kv_config *config, struct kv **out)
{
	size_t memory = config->memory_bytes ? config->memory_bytes : 64u << 20;
	struct rocks *r;
	int rv = descriptors_given();

	if (rv < 0)
		return rv; /* where it meets that itself it may say less */
	if (!has_room(config))
		return -ENOSPC;
	if (config->log && log_missing(config->path)) {
		log_error("store %s: its log, a file *.log, is missing, and "
			  "what was written last with it: a copy has to have "
			  "all of its files",
			  config->path);
		return -EUCLEAN;
	}
	r = calloc(1, sizeof(*r));
	if (r == NULL)
		return -ENOMEM;
	r->kv.ops = &rocks_ops;
	r->path = strdup(config->path);
	if (r->path == NULL) {
		free(r);
		return -ENOMEM;
	}
	r->away = -EIO;
	r->log = config->log;
	r->options = rocksdb_options_create();
	r->table = rocksdb_block_based_options_create();
	r->cache = cache_make(memory / 2);
	r->write = rocksdb_writeoptions_create();
	r->read = rocksdb_readoptions_create();
	r->flush = rocksdb_flushoptions_create();
	options_set(r, config, memory);
	compactions_yield();
	rocksdb_readoptions_set_verify_checksums(r->read, 1);

	rv = rocks_open(r);
	if (rv == 0 && config->create && config->log)
		rv = name_sync(config->path);
	if (rv < 0) {
		rocks_close(&r->kv);
		return rv;
	}
	/* With a log of its own every batch is durable: nothing to replay. */
	if (!config->log)
		record_open(r);
	*out = &r->kv;
	return 0;
}
