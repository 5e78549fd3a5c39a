/*
 * iscsi_rig: the environment in memory and the fake object layer, in one file
 * with a fuzzer: fuzzers link the rooms alone, and cmocka's checks become
 * aborts here.
 */
#ifndef BASALT_TESTS_FUZZ_ISCSI_RIG_H
#define BASALT_TESTS_FUZZ_ISCSI_RIG_H

#define BASALT_TESTS_TEST_H /* instead of tests/lib/test.h */
#include "tests/lib/must.h"

#define CHECK(cond) NEED(cond)
#define CHECK_EQ(a, b) CHECK((long long)(a) == (long long)(b))

/* Their statics have names of their own, but for these. */
#define find memkv_find
#include "tests/lib/memkv.c"
#undef find
#include "tests/lib/vloop.c"
#define turn memenv_turn
#include "tests/lib/memenv.c"
#undef turn
#undef BLOCK
#include "tests/lib/fake_dom.c"
#include "tests/lib/fake_dom_pr.c"

#endif
