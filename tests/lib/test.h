/*
 * test: cmocka with two macros over it.  A unit test is a file of TEST()s,
 * linked with test_main.c; each prints a line of TAP.
 */
#ifndef BASALT_TESTS_TEST_H
#define BASALT_TESTS_TEST_H

#include "base/uuid.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#undef stop /* cmocka 2 has one */

struct env;
struct arena;
struct memenv;

void test_add(const char *name, void (*fn)(void **state));

#define TEST(group, name)                                                      \
	static void test_##group##_##name(void **state);                       \
	__attribute__((constructor)) static void add_##group##_##name(void)    \
	{                                                                      \
		test_add(#group "." #name, test_##group##_##name);             \
	}                                                                      \
	static void test_##group##_##name(void **state)

#define CHECK(cond) assert_true(cond)
#define CHECK_EQ(a, b)                                                         \
	do {                                                                   \
		long long check_a = (long long)(a);                            \
		long long check_b = (long long)(b);                            \
		if (check_a != check_b) {                                      \
			print_error("%s:%d: %s is %lld, %s is %lld\n",         \
				    __FILE__, __LINE__, #a, check_a, #b,       \
				    check_b);                                  \
			fail();                                                \
		}                                                              \
	} while (0)
#define CHECK_STR(a, b) assert_string_equal((a), (b))

/* An id a number, 0 to 255. */
static inline struct uuid uuid_of(unsigned n)
{
	return (struct uuid){ .b = { [0] = (uint8_t)n, [15] = 1 } };
}

/*
 * The env of a test: a real shard (libuv, io_uring) and its arena, or one in
 * memory (memenv.h) whose clock goes on only when there is nothing else to do.
 */
struct test_shard {
	struct arena *arena;
	struct shards *shards;
	struct memenv *memory; /* NULL: a real shard */
	struct env *env; /* NULL: not open */
};
void test_shard_open(struct test_shard *ts);
void test_memory_open(struct test_shard *ts);
/* @count shards: 0 is the test's thread, the others have their own. */
void test_shards_open(struct test_shard *ts, unsigned count,
		      size_t arena_bytes);
void test_shard_close(struct test_shard *ts);
/*
 * Run its loop until *@done; the test fails if that takes longer than 60 s, in
 * memory 10 minutes of its time.
 */
void test_run(struct test_shard *ts, const bool *done);

/* A fresh directory under build/tmp, removed at exit; malloc()ed. */
char *test_dir(void);
/* A new file of @bytes zeros at @path. */
void test_file(const char *path, uint64_t bytes);

#endif
