/* The ordered store on RocksDB. */
#include "base/kv.h"
#include "base/util.h"
#include "base/uuid.h"
#include "tests/lib/test.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Why nothing can be merged: errno; or 0. */
static _Atomic int unmerged;
/* So often a merge has waited; and that time there is memory again.  0: never. */
static _Atomic unsigned waited, waits_end;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
int __wrap_nanosleep(const struct timespec *pause, struct timespec *left);

int __wrap_nanosleep(const struct timespec *pause, struct timespec *left)
{
	(void)pause;
	(void)left;
	if (++waited == waits_end)
		unmerged = 0;
	return 0;
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* Append operands to the value. */
static void *append(struct kv_slice key, struct kv_slice old,
		    const struct kv_slice *operands, size_t count, size_t *len)
{
	const int why = unmerged;
	size_t n = old.len;
	char *out;

	if (why != 0) {
		errno = why;
		return NULL;
	}
	for (size_t i = 0; i < count; i++)
		n += operands[i].len;
	out = malloc(n + 1);
	if (old.len > 0)
		memcpy(out, old.data, old.len);
	n = old.len;
	for (size_t i = 0; i < count; i++) {
		memcpy(out + n, operands[i].data, operands[i].len);
		n += operands[i].len;
	}
	*len = n;
	return out;
}

static struct kv_slice str(const char *s)
{
	return kv_slice(s, strlen(s));
}

static bool concat(void *arg, struct kv_slice key, struct kv_slice value)
{
	strncat(arg, key.data, key.len);
	strcat(arg, "=");
	strncat(arg, value.data, value.len);
	strcat(arg, ";");
	return true;
}

TEST(kv, batch_merge_scan_reopen)
{
	char *dir = test_dir(), path[600], all[200] = "";
	struct kv_config config = { .path = path, .merge = append };
	struct kv_batch batch;
	struct kv *kv;

	snprintf(path, sizeof(path), "%s/db", dir);
	free(dir);
	CHECK_EQ(kv_rocksdb_open(&config, &kv), -ENOENT);
	config.create = true;
	CHECK_EQ(kv_rocksdb_open(&config, &kv), 0);
	kv_batch_init(&batch);
	kv_batch_put(&batch, str("a"), str("1"));
	kv_batch_put(&batch, str("b"), str("2"));
	kv_batch_merge(&batch, str("b"), str("3"));
	kv_batch_merge(&batch, str("c"), str("4"));
	kv_batch_put(&batch, str("d"), str("5"));
	CHECK_EQ(kv_apply(kv, &batch), 0);
	kv_batch_clear(&batch);
	kv_batch_delete(&batch, str("a"));
	kv_batch_delete_range(&batch, str("d"), str("e"));
	kv_batch_merge(&batch, str("b"), str("!"));
	CHECK_EQ(kv_apply(kv, &batch), 0);
	kv_batch_fini(&batch);
	CHECK_EQ(kv_flush(kv), 0);
	kv_close(kv);

	config.create = false;
	CHECK_EQ(kv_rocksdb_open(&config, &kv), 0);
	CHECK_EQ(kv_scan(kv, str(""), kv_slice(NULL, 0), concat, all), 0);
	CHECK_STR(all, "b=23!;c=4;");
	all[0] = '\0';
	CHECK_EQ(kv_scan(kv, str("c"), str("d"), concat, all), 0);
	CHECK_STR(all, "c=4;");
	kv_close(kv);
}

static struct kv *store_made(struct kv_config config)
{
	char *dir = test_dir(), path[600];
	struct kv *kv;

	snprintf(path, sizeof(path), "%s/db", dir);
	free(dir);
	config.path = path;
	CHECK_EQ(kv_rocksdb_open(&config, &kv), 0);
	return kv;
}

static struct kv *store_new(void)
{
	return store_made(
		(struct kv_config){ .create = true, .merge = append });
}

/* A change of a few keys, some of which begin with another one. */
static void change(struct kv_batch *batch, unsigned *seed)
{
	static const char *const keys[] = { "b", "ba", "bab", "c", "a", "cc" };
	struct kv_slice key = str(keys[rand_r(seed) % ARRAY_LEN(keys)]);
	char value[2] = { (char)('0' + rand_r(seed) % 10), '\0' };

	switch (rand_r(seed) % 8) {
	case 0:
		kv_batch_delete(batch, key);
		break;
	case 1:
		kv_batch_delete_range(batch, str("b"), str("bab"));
		break;
	case 2:
	case 3:
		kv_batch_put(batch, key, str(value));
		break;
	default:
		kv_batch_merge(batch, key, str(value));
	}
}

static bool in_order(const struct kv_batch *batch)
{
	const struct kv_change *a = batch->changes, *b = a + 1;
	const char *bytes = (const char *)batch->bytes;

	for (; b < batch->changes + batch->changes_count; a++, b++)
		if (a->type != KV_DELETE_RANGE && b->type != KV_DELETE_RANGE &&
		    strncmp(bytes + a->key_at, bytes + b->key_at,
			    MIN(a->key_len, b->key_len)) > 0)
			return false;
	return true;
}

/* A batch in order does what its changes do one by one. */
TEST(kv, batch_is_sorted)
{
	struct kv *kv = store_new(), *single = store_new();
	char all[4000] = "", wanted[4000] = "";
	struct kv_batch batch, one;
	unsigned seed = 7, again = 7;
	int i, round;

	kv_batch_init(&batch);
	kv_batch_init(&one);
	kv_batch_sort(&batch); /* nothing to sort */
	for (round = 0; round < 20; round++) {
		for (i = 0; i < 40; i++) {
			change(&batch, &seed);
			change(&one, &again);
			CHECK_EQ(kv_apply(single, &one), 0);
			kv_batch_clear(&one);
		}
		CHECK(!in_order(&batch));
		CHECK_EQ(kv_apply(kv, &batch), 0);
		CHECK(in_order(&batch));
		kv_batch_clear(&batch);
		all[0] = wanted[0] = '\0';
		CHECK_EQ(kv_scan(kv, str(""), kv_slice(NULL, 0), concat, all),
			 0);
		CHECK_EQ(kv_scan(single, str(""), kv_slice(NULL, 0), concat,
				 wanted),
			 0);
		CHECK_STR(all, wanted);
	}
	kv_batch_fini(&one);
	kv_batch_fini(&batch);
	kv_close(single);
	kv_close(kv);
}

/* An empty key is one like the others: its changes keep their order. */
/* Where room was made for what comes, that takes no memory. */
TEST(kv, room_is_made_before)
{
	const char text[1000] = "x";
	struct kv_batch batch;
	size_t changes, bytes;

	kv_batch_init(&batch);
	for (unsigned n = 1; n < 200; n += 7) {
		CHECK_EQ(kv_batch_reserve(&batch, n + 1, n * (3 + n)), 0);
		changes = batch.changes_room;
		bytes = batch.bytes_room;
		for (unsigned i = 0; i < n; i++)
			kv_batch_put(&batch, str("key"), kv_slice(text, n));
		kv_batch_delete(&batch, str(""));
		CHECK_EQ(batch.changes_room, changes);
		CHECK_EQ(batch.bytes_room, bytes);
	}
	kv_batch_fini(&batch);
}

TEST(kv, changes_of_the_empty_key)
{
	struct kv *kv = store_new();
	struct kv_batch batch;
	char all[64] = "";

	kv_batch_init(&batch);
	kv_batch_delete(&batch, str(""));
	kv_batch_put(&batch, str(""), str(""));
	kv_batch_put(&batch, str(""), str("1"));
	kv_batch_put(&batch, str("a"), str("2"));
	CHECK_EQ(kv_apply(kv, &batch), 0);
	CHECK_EQ(kv_scan(kv, str(""), kv_slice(NULL, 0), concat, all), 0);
	CHECK_STR(all, "=1;a=2;");
	kv_batch_fini(&batch);
	kv_close(kv);
}

/* What a store says of itself, not the name of the place it lies in. */
TEST(kv, errors_by_their_cause)
{
	char *dir = test_dir(), place[600], path[700];
	struct kv_config config = { .path = path, .create = true };
	struct rlimit files, few;
	struct kv *kv, *second;

	snprintf(place, sizeof(place), "%s/blocks", dir);
	free(dir);
	test_file(place, 1); /* a file, where a directory should be */
	snprintf(path, sizeof(path), "%s/db", place);
	CHECK_EQ(kv_rocksdb_open(&config, &kv), -EIO);
	CHECK_EQ(remove(place), 0);
	snprintf(path, sizeof(path), "%s", place);
	CHECK_EQ(kv_rocksdb_open(&config, &kv), 0);
	CHECK_EQ(kv_rocksdb_open(&config, &second), -EBUSY);
	kv_close(kv);
	CHECK_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
	few = files;
	few.rlim_cur = (rlim_t)dup(0);
	close((int)few.rlim_cur);
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
	CHECK_EQ(kv_rocksdb_open(&config, &kv), -EMFILE);
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
	CHECK_EQ(kv_rocksdb_open(&config, &kv), 0);
	kv_close(kv);
}

/* A merge that finds no memory: what it is of is as good as ever. */
TEST(kv, no_memory_is_no_corruption)
{
	static const int whys[] = { ENOMEM, EUCLEAN, ENOMEM };
	struct kv *kv = store_new();
	struct kv_batch batch;
	char all[200] = "";
	size_t i, len;
	void *value;

	kv_batch_init(&batch);
	kv_batch_put(&batch, str("a"), str("1"));
	kv_batch_merge(&batch, str("a"), str("2"));
	CHECK_EQ(kv_apply(kv, &batch), 0);
	for (i = 0; i < ARRAY_LEN(whys); i++) {
		unmerged = whys[i];
		CHECK_EQ(kv_get(kv, str("a"), &value, &len), -whys[i]);
		CHECK_EQ(kv_scan(kv, str(""), kv_slice(NULL, 0), concat, all),
			 -whys[i]);
		unmerged = 0;
		CHECK_EQ(kv_get(kv, str("a"), &value, &len), 0);
		CHECK(len == 2 && memcmp(value, "12", 2) == 0);
		free(value);
	}
	CHECK_EQ(waited, 0);
	/* One that RocksDB makes behind us, and would not make again. */
	unmerged = ENOMEM;
	waits_end = 7;
	CHECK_EQ(kv_flush(kv), 0);
	CHECK_EQ(waited, 7);
	CHECK_EQ(kv_apply(kv, &batch), 0);
	CHECK_EQ(kv_get(kv, str("a"), &value, &len), 0);
	free(value);
	/* Not for ever. */
	unmerged = ENOMEM;
	waits_end = 0;
	CHECK_EQ(kv_flush(kv), -ENOMEM);
	CHECK(waited > 100);
	CHECK_EQ(kv_apply(kv, &batch), -ENOMEM);
	unmerged = 0;
	kv_batch_fini(&batch);
	kv_close(kv);
}

/* ---- the log of a store that has one ---- */

/* RocksDB's library calls this one, too. */
int sync_counted(int fd) __asm__("fdatasync");

static struct {
	unsigned count; /* of logs */
	int error;
	_Atomic int table_error; /* not of logs */
} syncs;

int sync_counted(int fd)
{
	char link[40], path[600];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path) - 1);
	CHECK(len > 4);
	if (strncmp(path + len - 4, ".log", 4) == 0) {
		syncs.count++;
		if (syncs.error != 0) {
			errno = syncs.error;
			return -1;
		}
	} else if (syncs.table_error != 0) {
		errno = syncs.table_error;
		return -1;
	}
	return (int)syscall(SYS_fdatasync, fd);
}

/* One key with @len bytes, in a batch of its own. */
static int put_one(struct kv *kv, const char *key, size_t len)
{
	char *value = calloc(1, len);
	struct kv_batch batch;
	int rv;

	CHECK(value != NULL);
	memset(value, *key, len);
	kv_batch_init(&batch);
	kv_batch_put(&batch, str(key), kv_slice(value, len));
	rv = kv_apply(kv, &batch);
	kv_batch_fini(&batch);
	free(value);
	return rv;
}

/* What the process has read of files, in bytes. */
static unsigned long long read_bytes(void)
{
	FILE *f = fopen("/proc/self/io", "r");
	unsigned long long n = 0;

	CHECK(f != NULL);
	CHECK_EQ(fscanf(f, "rchar: %llu", &n), 1);
	fclose(f);
	return n;
}

/* What says where a value is stays in memory, of however many there are. */
TEST(kv, small_values_by_the_million)
{
	enum { KEYS = 1000000, GETS = 200, BLOCK = 64 << 10 };
	struct kv_config config = { .create = true };
	char *dir = test_dir(), path[600];
	unsigned long long before;
	struct kv_batch batch;
	struct kv *kv;
	uint8_t key[4];
	size_t len;
	void *value;

	snprintf(path, sizeof(path), "%s/db", dir);
	free(dir);
	config.path = path;
	CHECK_EQ(kv_rocksdb_open(&config, &kv), 0);
	kv_batch_init(&batch);
	for (uint32_t i = 0; i < KEYS; i++) {
		put_be32(key, i);
		CHECK_EQ(kv_batch_reserve(&batch, 1, 8), 0);
		kv_batch_put(&batch, kv_slice(key, 4), kv_slice(&i, 1));
	}
	CHECK_EQ(kv_apply(kv, &batch), 0);
	kv_batch_fini(&batch);
	CHECK_EQ(kv_flush(kv), 0);
	put_be32(key, 0);
	CHECK_EQ(kv_get(kv, kv_slice(key, 4), &value, &len), 0);
	free(value);
	before = read_bytes();
	for (uint32_t i = 0; i < GETS; i++) {
		put_be32(key, i * (KEYS / GETS));
		CHECK_EQ(kv_get(kv, kv_slice(key, 4), &value, &len), 0);
		free(value);
	}
	CHECK(read_bytes() - before < GETS * BLOCK);
	kv_close(kv);
}

/*
 * What is applied was synced before the answer, each batch; and after a sync that
 * failed nothing is applied, though the next one would succeed.
 */
TEST(kv, each_batch_is_synced)
{
	struct kv_config config = { .create = true, .log = true };
	char *dir = test_dir(), path[600];
	struct kv *kv, *none = store_new();

	snprintf(path, sizeof(path), "%s/db", dir);
	free(dir);
	config.path = path;
	CHECK_EQ(kv_rocksdb_open(&config, &kv), 0);
	for (unsigned i = 0; i < 5; i++) {
		syncs.count = 0;
		CHECK_EQ(put_one(kv, "a", 100), 0);
		CHECK_EQ(syncs.count, 1);
		CHECK_EQ(put_one(none, "a", 100), 0);
		CHECK_EQ(syncs.count, 1);
	}
	kv_close(none);
	syncs.error = EIO;
	CHECK_EQ(put_one(kv, "b", 100), -EIO);
	syncs.error = 0;
	CHECK_EQ(put_one(kv, "c", 100), -EIO);
	kv_close(kv);
}

/* A quota that is used up is a file system that is full, to us. */
TEST(kv, a_quota_is_no_space)
{
	struct kv *kv =
		store_made((struct kv_config){ .create = true, .log = true });

	syncs.error = EDQUOT;
	CHECK_EQ(put_one(kv, "a", 100), -ENOSPC);
	syncs.error = 0;
	kv_close(kv);
}

/* The path of the only log in @path, the store's directory. */
static void log_find(const char *path, char *out, size_t len)
{
	DIR *dir = opendir(path);
	struct dirent *e;
	unsigned found = 0;

	CHECK(dir != NULL);
	while ((e = readdir(dir)) != NULL) {
		const char *dot = strrchr(e->d_name, '.');

		if (dot == NULL || strcmp(dot, ".log") != 0)
			continue;
		snprintf(out, len, "%s/%s", path, e->d_name);
		found++;
	}
	closedir(dir);
	CHECK_EQ(found, 1);
}

static bool count_key(void *arg, struct kv_slice key, struct kv_slice value)
{
	const uint8_t *bytes = value.data;

	for (size_t i = 0; i < value.len; i++)
		CHECK_EQ(bytes[i], *(const char *)key.data);
	++*(unsigned *)arg;
	return true;
}

/* What became of the bytes [@from, @from + @len) of the log; @len 0: cut there. */
struct log_harm {
	long from, len;
	uint8_t flip; /* 0: they are zeros */
	int status;
	unsigned keys;
};

/*
 * Three batches, the last one of several blocks of the log, then the harm.
 * @ends: where the log ends behind each.
 */
static void log_case(const struct log_harm *harm, long ends[3])
{
	static const char *const keys[] = { "a", "b", "c" };
	struct kv_config config = { .create = true, .log = true };
	char *dir = test_dir(), path[600], log[900];
	unsigned count = 0;
	struct stat st;
	struct kv *kv;
	FILE *f;

	snprintf(path, sizeof(path), "%s/db", dir);
	config.path = path;
	CHECK_EQ(kv_rocksdb_open(&config, &kv), 0);
	log_find(path, log, sizeof(log));
	for (unsigned i = 0; i < 3; i++) {
		CHECK_EQ(put_one(kv, keys[i], i < 2 ? 300 : 100000), 0);
		CHECK_EQ(stat(log, &st), 0);
		ends[i] = st.st_size;
	}
	kv_close(kv);
	if (harm == NULL)
		goto end;
	f = fopen(log, "r+b");
	CHECK(f != NULL);
	if (harm->len == 0)
		CHECK_EQ(ftruncate(fileno(f), harm->from), 0);
	for (long at = harm->from; at < harm->from + harm->len; at++) {
		int c;

		CHECK_EQ(fseek(f, at, SEEK_SET), 0);
		c = harm->flip != 0 ? fgetc(f) ^ harm->flip : 0;
		CHECK_EQ(fseek(f, at, SEEK_SET), 0);
		CHECK_EQ(fputc(c, f), c);
	}
	fclose(f);
	config.create = false;
	CHECK_EQ(kv_rocksdb_open(&config, &kv), harm->status);
	if (harm->status == 0) {
		CHECK_EQ(kv_scan(kv, str(""), kv_slice(NULL, 0), count_key,
				 &count),
			 0);
		CHECK_EQ(count, harm->keys);
		kv_close(kv);
	}
end:
	free(dir);
}

/*
 * A log that ends in the midst of a batch lost what nobody was promised; one whose
 * bytes changed may have lost more, and is refused.
 */
TEST(kv, torn_logs_and_damaged_ones)
{
	long ends[3], again[3];

	log_case(NULL, ends);
	{
		const struct log_harm harms[] = {
			{ ends[2] - 1, 0, .keys = 2 },
			{ ends[1] + 1, 0, .keys = 2 },
			{ ends[1] + 32768, 0, .keys = 2 },
			{ 32768, 0, .keys = 2 },
			{ 65536, 0, .keys = 2 },
			{ ends[1], 0, .keys = 2 },
			{ ends[0] + 100, 0, .keys = 1 },
			{ ends[0] + 100, 1, 0x40, -EUCLEAN },
			{ ends[0] + 4, 1, 0x01, -EUCLEAN },
			{ 50, 1, 0x80, -EUCLEAN },
			{ ends[1] + 40000, 1, 0x80, -EUCLEAN },
		};

		for (size_t i = 0; i < ARRAY_LEN(harms); i++) {
			log_case(&harms[i], again);
			CHECK_EQ(memcmp(ends, again, sizeof(ends)), 0);
		}
	}
}

/* Those whose names end so go; how many there were. */
static unsigned files_lose(const char *path, const char *end)
{
	unsigned count = 0;
	struct dirent *e;
	char file[900];
	DIR *d = opendir(path);

	CHECK(d != NULL);
	while ((e = readdir(d)) != NULL) {
		size_t len = strlen(e->d_name);

		if (len < strlen(end) ||
		    strcmp(e->d_name + len - strlen(end), end) != 0)
			continue;
		snprintf(file, sizeof(file), "%s/%s", path, e->d_name);
		CHECK_EQ(unlink(file), 0);
		count++;
	}
	closedir(d);
	return count;
}

/*
 * A copy that leaves out what is called *.log is no store, whether there are tables
 * yet or not; without a log of its own it needs none.
 */
TEST(kv, a_log_that_is_missing)
{
	for (unsigned n = 0; n < 4; n++) {
		struct kv_config config = { .create = true, .log = n < 3 };
		char *dir = test_dir(), path[600];
		struct kv *kv;

		snprintf(path, sizeof(path), "%s/db", dir);
		free(dir);
		config.path = path;
		CHECK_EQ(kv_rocksdb_open(&config, &kv), 0);
		CHECK_EQ(put_one(kv, "a", 300), 0);
		CHECK_EQ(kv_flush(kv), 0);
		kv_close(kv);
		for (unsigned i = 0; i < n; i++) {
			CHECK_EQ(kv_rocksdb_open(&config, &kv), 0);
			CHECK_EQ(put_one(kv, "b", 300), 0);
			kv_close(kv);
		}
		CHECK(files_lose(path, ".log") > 0);
		CHECK_EQ(kv_rocksdb_open(&config, &kv),
			 config.log ? -EUCLEAN : 0);
		if (!config.log)
			kv_close(kv);
	}
}

/* ---- the file system it is made in ---- */

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_fstatvfs(int fd, struct statvfs *st);
int __wrap_fstatvfs(int fd, struct statvfs *st);
int __real_posix_fallocate(int fd, off_t offset, off_t len);
int __wrap_posix_fallocate(int fd, off_t offset, off_t len);

static struct {
	ino_t synced; /* the last directory that was */
	int sync_error;
	bool full;
	int taken; /* why nothing more can be taken; or 0 */
} place;

int __wrap_posix_fallocate(int fd, off_t offset, off_t len)
{
	return place.taken != 0 ? place.taken
				: __real_posix_fallocate(fd, offset, len);
}

/* Of ours alone: RocksDB's library calls its own. */
int __wrap_fsync(int fd)
{
	struct stat st;

	CHECK_EQ(fstat(fd, &st), 0);
	CHECK(S_ISDIR(st.st_mode));
	place.synced = st.st_ino;
	errno = place.sync_error;
	return place.sync_error != 0 ? -1 : __real_fsync(fd);
}

int __wrap_fstatvfs(int fd, struct statvfs *st)
{
	int rv = __real_fstatvfs(fd, st);

	if (place.full)
		st->f_bfree = st->f_bavail = 1;
	return rv;
}

/* A store with a log that was made is there after a power cut: its name, too. */
TEST(kv, the_name_of_a_store_is_durable)
{
	char *dir = test_dir(), path[600];
	struct kv_config config = { .path = path, .create = true, .log = true };
	struct stat st;
	struct kv *kv;

	CHECK_EQ(stat(dir, &st), 0);
	snprintf(path, sizeof(path), "%s/db", dir);
	free(dir);
	place.sync_error = EIO;
	CHECK_EQ(kv_rocksdb_open(&config, &kv), -EIO);
	place.sync_error = 0;
	place.synced = 0;
	/* That one was not, and made: it is no less so for being there now. */
	CHECK_EQ(kv_rocksdb_open(&config, &kv), 0);
	CHECK(place.synced == st.st_ino);
	kv_close(kv);
}

/* None is made where there is no room for its beginning. */
TEST(kv, no_room_for_a_new_store)
{
	char *dir = test_dir(), path[600];
	struct kv_config config = { .path = path, .create = true };
	struct kv *kv;

	snprintf(path, sizeof(path), "%s/db", dir);
	free(dir);
	place.full = true;
	CHECK_EQ(kv_rocksdb_open(&config, &kv), -ENOSPC);
	CHECK_EQ(access(path, F_OK), -1);
	config.create = false;
	CHECK_EQ(kv_rocksdb_open(&config, &kv), -ENOENT);
	config.create = true;
	place.full = false;
	CHECK_EQ(kv_rocksdb_open(&config, &kv), 0);
	kv_close(kv);
}

/* A quota is no less the end of it, and nobody tells before it is met. */
TEST(kv, a_quota_that_is_used_up_before_a_store_is_opened)
{
	static const int whys[] = { EDQUOT, ENOSPC, EDQUOT };
	char *dir = test_dir(), path[600], left[620];
	struct kv_config config = { .path = path, .create = true };
	struct kv *kv;

	snprintf(path, sizeof(path), "%s/db", dir);
	snprintf(left, sizeof(left), "%s/basalt.room", dir);
	for (size_t i = 0; i < ARRAY_LEN(whys); i++) {
		place.taken = whys[i];
		CHECK_EQ(kv_rocksdb_open(&config, &kv), -ENOSPC);
		CHECK_EQ(access(left, F_OK), -1);
		CHECK_EQ(access(path, F_OK) == 0, i > 0);
		/* Whatever else it is, RocksDB can say that itself. */
		place.taken = EOPNOTSUPP;
		CHECK_EQ(kv_rocksdb_open(&config, &kv), 0);
		kv_close(kv);
		place.taken = 0;
		CHECK_EQ(kv_rocksdb_open(&config, &kv), 0);
		kv_close(kv);
		snprintf(left, sizeof(left), "%s/db/basalt.room", dir);
		CHECK_EQ(access(left, F_OK), -1);
	}
	free(dir);
}

/* One that stands still for a quota goes on when it is opened again. */
TEST(kv, a_quota_that_is_used_up_meanwhile)
{
	struct kv *kv = store_made((struct kv_config){ .create = true });
	struct kv_batch batch;
	size_t len;
	void *value;

	kv_batch_init(&batch);
	kv_batch_put(&batch, str("c"), str("1"));
	CHECK_EQ(put_one(kv, "a", 100), 0);
	CHECK_EQ(kv_flush(kv), 0);
	CHECK_EQ(put_one(kv, "b", 100), 0);
	syncs.table_error = EDQUOT;
	CHECK_EQ(kv_flush(kv), -EDQUOT);
	syncs.table_error = 0;
	CHECK_EQ(kv_flush(kv), -EDQUOT);
	place.taken = EDQUOT;
	CHECK_EQ(kv_reopen(kv, &batch), -ENOSPC);
	CHECK_EQ(kv_get(kv, str("b"), &value, &len), 0);
	free(value);
	place.taken = 0;
	CHECK_EQ(kv_reopen(kv, &batch), 0);
	CHECK_EQ(kv_get(kv, str("a"), &value, &len), 0);
	free(value);
	CHECK_EQ(put_one(kv, "b", 100), 0);
	CHECK_EQ(kv_flush(kv), 0);
	CHECK_EQ(kv_reopen(kv, &batch), 0);
	CHECK_EQ(kv_get(kv, str("b"), &value, &len), 0);
	CHECK_EQ(len, 100);
	free(value);
	CHECK_EQ(kv_get(kv, str("c"), &value, &len), 0);
	free(value);
	kv_batch_fini(&batch);
	kv_close(kv);
}

/* As few as are taken; @out: what it was. */
static void descriptors_end(struct rlimit *out)
{
	struct rlimit few;

	CHECK_EQ(getrlimit(RLIMIT_NOFILE, out), 0);
	few = *out;
	few.rlim_cur = (rlim_t)dup(0);
	close((int)few.rlim_cur);
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
}

/* Want of descriptors is no less passing: it goes on when it is opened again. */
TEST(kv, descriptors_that_are_used_up_meanwhile)
{
	struct kv *kv = store_made((struct kv_config){ .create = true });
	struct kv_batch batch;
	struct rlimit files;
	size_t len;
	void *value;

	kv_batch_init(&batch);
	kv_batch_put(&batch, str("b"), str("1"));
	CHECK_EQ(put_one(kv, "a", 100), 0);
	CHECK_EQ(kv_flush(kv), 0);
	CHECK_EQ(kv_apply(kv, &batch), 0);
	descriptors_end(&files);
	CHECK_EQ(kv_flush(kv), -EMFILE);
	CHECK_EQ(kv_flush(kv), -EMFILE);
	CHECK_EQ(kv_reopen(kv, &batch), -EMFILE);
	CHECK_EQ(kv_reopen(kv, &batch), -EMFILE);
	/* What is in it is read meanwhile. */
	CHECK_EQ(kv_get(kv, str("b"), &value, &len), 0);
	free(value);
	CHECK_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
	/* Taken between its closing and its opening: all of it, or nothing. */
	syncs.table_error = EMFILE;
	CHECK_EQ(kv_reopen(kv, &batch), -EMFILE);
	syncs.table_error = 0;
	CHECK_EQ(kv_get(kv, str("b"), &value, &len), -EMFILE);
	CHECK_EQ(kv_apply(kv, &batch), -EMFILE);
	CHECK_EQ(kv_flush(kv), -EMFILE);
	CHECK_EQ(kv_reopen(kv, &batch), 0);
	CHECK_EQ(kv_get(kv, str("a"), &value, &len), 0);
	free(value);
	CHECK_EQ(kv_get(kv, str("b"), &value, &len), 0);
	CHECK_EQ(len, 1);
	free(value);
	CHECK_EQ(kv_flush(kv), 0);
	kv_batch_fini(&batch);
	kv_close(kv);
}

/*
 * One with a log stands still after any error of it, and is opened again for that: as
 * few descriptors as there may be then, what was durable stays so.
 */
TEST(kv, a_log_that_wants_something_meanwhile)
{
	static const int wants[] = { EMFILE, ENFILE, ENOMEM };
	char *dir = test_dir(), path[600];
	struct kv_config config = { .path = path, .log = true };
	struct rlimit files, few;
	struct kv *kv;
	size_t len;
	void *value;

	for (size_t i = 0; i < ARRAY_LEN(wants); i++) {
		snprintf(path, sizeof(path), "%s/%zu", dir, i);
		config.create = true;
		CHECK_EQ(kv_rocksdb_open(&config, &kv), 0);
		config.create = false;
		CHECK_EQ(put_one(kv, "a", 100), 0);
		syncs.error = wants[i];
		CHECK_EQ(put_one(kv, "b", 100), -wants[i]);
		syncs.error = 0;
		CHECK_EQ(put_one(kv, "b", 100), -wants[i]);
		kv_close(kv);
		descriptors_end(&files);
		CHECK_EQ(getrlimit(RLIMIT_NOFILE, &few), 0);
		for (unsigned more = 0; more < 40; more++, few.rlim_cur++) {
			int rv;

			CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
			rv = kv_rocksdb_open(&config, &kv);
			CHECK(rv == -EMFILE || (more > 0 && rv == 0));
			if (rv == 0)
				kv_close(kv);
		}
		CHECK_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
		CHECK_EQ(kv_rocksdb_open(&config, &kv), 0);
		CHECK_EQ(kv_get(kv, str("a"), &value, &len), 0);
		free(value);
		CHECK_EQ(put_one(kv, "b", 100), 0);
		kv_close(kv);
	}
	free(dir);
}

/* What the system has none of, or no memory for, and what only sounds like it. */
TEST(kv, passing_by_its_cause)
{
	static const struct {
		int error, status;
	} cases[] = {
		{ ENFILE, -ENFILE },
		{ EMFILE, -EMFILE },
		{ ENOMEM, -ENOMEM },
		{ EIO, -EIO },
	};
	char *dir = test_dir(), path[600];
	struct kv_config config = { .path = path, .create = true };
	struct kv *kv;

	for (size_t i = 0; i < 2 * ARRAY_LEN(cases); i++) {
		snprintf(path, sizeof(path), "%s/%zu: Too many open files%s",
			 dir, i, i % 2 ? "" : ": Cannot allocate memory");
		CHECK_EQ(kv_rocksdb_open(&config, &kv), 0);
		CHECK_EQ(put_one(kv, "a", 100), 0);
		syncs.table_error = cases[i / 2].error;
		CHECK_EQ(kv_flush(kv), cases[i / 2].status);
		syncs.table_error = 0;
		CHECK_EQ(put_one(kv, "b", 100), cases[i / 2].status);
		kv_close(kv);
	}
	free(dir);
}

TEST(uuid, text)
{
	char text[UUID_TEXT_LEN];
	struct uuid id;

	CHECK_EQ(uuid_parse("01234567-89ab-cdef-0123-456789abcdef", &id), 0);
	uuid_format(&id, text);
	CHECK_STR(text, "01234567-89ab-cdef-0123-456789abcdef");
	CHECK_EQ(uuid_parse("01234567-89ab-cdef-0123-456789abcdeg", &id),
		 -EINVAL);
	CHECK_EQ(uuid_parse("0123456789abcdef0123456789abcdef", &id), -EINVAL);
}
