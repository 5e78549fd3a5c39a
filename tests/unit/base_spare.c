/* Spare memory: what was given comes again, and no two hold the same. */
#include "tests/lib/test.h"

#include "base/spare.h"
#include "base/util.h"

#include <pthread.h>
#include <string.h>

#define PIECES (2 * SPARE_MAX)

static const size_t sizes[] = { 1, 40, 64, 65, 392, 640, 641, 5000 };

/* More than are kept, of each size, twice: none has the bytes of another. */
static void *all_sizes(void *arg)
{
	uint8_t *mem[PIECES];

	for (unsigned round = 0; round < 2; round++) {
		for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
			for (unsigned i = 0; i < PIECES; i++) {
				mem[i] = spare_take(sizes[s]);
				memset(mem[i], (int)i, sizes[s]);
			}
			for (unsigned i = 0; i < PIECES; i++) {
				CHECK_EQ(mem[i][0], i);
				CHECK_EQ(mem[i][sizes[s] - 1], i);
				spare_give(mem[i], sizes[s]);
			}
		}
	}
	spare_drop();
	return arg;
}

TEST(spare, no_two_hold_the_same)
{
	all_sizes(NULL);
}

TEST(spare, on_threads)
{
	pthread_t threads[2];

	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		CHECK_EQ(pthread_create(&threads[i], NULL, all_sizes, NULL), 0);
	for (size_t i = 0; i < ARRAY_LEN(threads); i++)
		pthread_join(threads[i], NULL);
}

/* A piece that is larger than it is said to be serves as a smaller one. */
TEST(spare, given_as_less)
{
	void *mem = spare_take(600), *again;

	spare_give(mem, 100);
	again = spare_take(128);
#ifndef __SANITIZE_ADDRESS__
	CHECK(again == mem);
#endif
	spare_give(again, 128);
	spare_drop();
}
