/* An env for unit tests, and a directory that goes when the test does. */
#include "base/page.h"
#include "base/shard.h"
#include "base/util.h"
#include "tests/lib/memenv.h"
#include "tests/lib/must.h"
#include "tests/lib/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void test_shards_open(struct test_shard *ts, unsigned count, size_t arena_bytes)
{
	struct arena_config config = { .bytes = arena_bytes };

	CHECK_EQ(arena_open(&config, &ts->arena), 0);
	CHECK_EQ(shards_open(&(struct shards_config){ .count = count,
						      .arena = ts->arena },
			     &ts->shards),
		 0);
	ts->memory = NULL;
	ts->env = shard_env(ts->shards, 0);
}

void test_shard_open(struct test_shard *ts)
{
	test_shards_open(ts, 1, 256u << 20);
}

void test_memory_open(struct test_shard *ts)
{
	ts->memory = must(malloc(sizeof(*ts->memory)));
	memenv_init(ts->memory, NULL, 0);
	ts->arena = ts->memory->loop.arena;
	ts->shards = NULL;
	ts->env = &ts->memory->loop.env;
}

void test_shard_close(struct test_shard *ts)
{
	ts->env = NULL;
	if (ts->memory != NULL) {
		memenv_fini(ts->memory);
		free(ts->memory);
		ts->memory = NULL;
		return;
	}
	shards_stop(ts->shards);
	shards_run(ts->shards);
	shards_close(ts->shards);
	arena_close(ts->arena);
}

void test_run(struct test_shard *ts, const bool *done)
{
	uint64_t end = uv_hrtime() + 120 * SEC;

	if (ts->memory != NULL) {
		CHECK(memenv_run(ts->memory, done));
		return;
	}
	while (!*done && uv_hrtime() < end)
		shard_step(ts->env, 100 * MSEC);
	CHECK(*done);
}

static char *dirs[128];
static unsigned dirs_count;

static void dirs_remove(void)
{
	char cmd[600];

	while (dirs_count > 0) {
		snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dirs[--dirs_count]);
		if (system(cmd) != 0)
			fprintf(stderr, "cannot remove %s\n", dirs[dirs_count]);
		free(dirs[dirs_count]);
	}
}

char *test_dir(void)
{
	const char *base = getenv("TEST_TMP");
	char path[512];

	if (base == NULL) {
		if (system("mkdir -p build/tmp") != 0)
			fail();
		base = "build/tmp";
	}
	snprintf(path, sizeof(path), "%s/unit.XXXXXX", base);
	assert_non_null(mkdtemp(path));
	assert_true(dirs_count < ARRAY_LEN(dirs));
	if (dirs_count == 0)
		atexit(dirs_remove);
	dirs[dirs_count] = strdup(path);
	return strdup(dirs[dirs_count++]);
}

void test_file(const char *path, uint64_t bytes)
{
	int fd = open(path, O_CREAT | O_RDWR, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	close(fd);
}
