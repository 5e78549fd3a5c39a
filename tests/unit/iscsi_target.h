/*
 * iscsi_target: a target with one disk over the fake dom, on a real shard or in
 * memory, for the tests of what lies above and below sessions.  Included by test files; it
 * is part of each.  (tsan: one thread.  The fake dom has no blocking work.)
 */
#ifndef BASALT_TESTS_UNIT_ISCSI_TARGET_H
#define BASALT_TESTS_UNIT_ISCSI_TARGET_H

#include "base/sgl.h"
#include "base/shard.h"
#include "iscsi/iscsi.h"
#include "tests/lib/fake_dom.h"
#include "tests/lib/test.h"

#define IQN "iqn.2026-11.internal.basalt:t"
#define WHO "iqn.2026-11.example:me"

static struct test_shard ts;
static struct dom *dom;
static struct iscsi *iscsi;
static struct uuid oid = { .b = { 1, 2, 3 } };
static const char *const any[] = { "any" };

/*
 * The rooms, and a disk in dom, on a real shard if the test has opened nothing
 * else; @config's env and dom are set here.
 */
static inline void target_open(struct iscsi_config config)
{
	if (ts.env == NULL)
		test_shard_open(&ts);
	CHECK_EQ(fake_dom_open(ts.env, &dom), 0);
	CHECK_EQ(fake_dom_add(dom, &oid, 64u << 20), 0);
	config.env = ts.env;
	config.dom = dom;
	CHECK_EQ(iscsi_open(&config, &iscsi), 0);
}

static inline void set_target(const char *const *allow)
{
	CHECK_EQ(iscsi_target_set(iscsi,
				  &(struct iscsi_target_conf){ .iqn = IQN,
							       .allow = allow,
							       .allow_count =
								       1 }),
		 0);
}

/* The target is there for everybody, and the disk is its unit 0. */
static inline void target_fill(void)
{
	set_target(any);
	CHECK_EQ(iscsi_lun_set(iscsi,
			       &(struct iscsi_lun_conf){ .iqn = IQN,
							 .object = oid,
							 .name = "disk",
							 .block_bytes = 512 }),
		 0);
}

static inline void on_done(void *arg)
{
	*(bool *)arg = true;
}

/* Closes iscsi, if the test has not; dom_end() comes later. */
static inline void iscsi_end(void)
{
	bool done = false;

	if (iscsi == NULL)
		return;
	iscsi_close(iscsi, 0, on_done, &done);
	test_run(&ts, &done);
	iscsi = NULL;
}

static inline void dom_end(void)
{
	bool done = false;

	dom_close(dom, on_done, &done);
	test_run(&ts, &done);
	test_shard_close(&ts);
}

/* ---- memory that is somebody else's for a while ---- */

static struct sgl *hoard[65536]; /* a page each */
static unsigned hoard_count;

static inline void hoard_all(void)
{
	while (hoard_count < sizeof(hoard) / sizeof(hoard[0]) &&
	       sgl_new(ts.env->pages, PAGE_FRONT, PAGE_BYTES, 0,
		       &hoard[hoard_count]) == 0)
		hoard_count++;
}

/* All but @keep pages are given back. */
static inline void hoard_keep(unsigned keep)
{
	while (hoard_count > keep)
		sgl_put(hoard[--hoard_count]);
}

#endif
