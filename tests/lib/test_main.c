/* The main() of every unit test: TAP, one line a test. */
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct CMUnitTest tests[512];
static size_t tests_count;

void test_add(const char *name, void (*fn)(void **state))
{
	if (tests_count == sizeof(tests) / sizeof(tests[0]))
		abort();
	tests[tests_count++] =
		(struct CMUnitTest){ .name = name, .test_func = fn };
}

int main(int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/');

	if (argc > 1) /* a pattern: only these */
		cmocka_set_test_filter(argv[1]);
	setvbuf(stdout, NULL, _IOLBF, 0);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return _cmocka_run_group_tests(slash ? slash + 1 : argv[0], tests,
				       tests_count, NULL, NULL);
}
