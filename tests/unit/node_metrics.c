/* The text of the metrics: whole, or none. */
#include "base/stats.h"
#include "base/util.h"
#include "node/node_int.h"
#include "tests/lib/fail_alloc.h"
#include "tests/lib/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNTERS 600u /* more than the text has room for at first */

/* Every realloc() from the Nth on fails; 0: none. */
static unsigned realloc_fails;

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
void *__real_realloc(void *at, size_t size);
void *__wrap_realloc(void *at, size_t size);
const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after);
void __wrap_iscsi_usage_each(struct iscsi *iscsi,
			     void (*cb)(const struct iscsi_usage *usage,
					void *arg),
			     void *arg);
void __wrap_iscsi_session_each(struct iscsi *iscsi,
			       void (*cb)(const struct iscsi_session_info *info,
					  void *arg),
			       void *arg);

void *__wrap_realloc(void *at, size_t size)
{
	if (realloc_fails == 1)
		return NULL;
	if (realloc_fails > 0)
		realloc_fails--;
	return __real_realloc(at, size);
}

const struct cmmds_entry *__wrap_cmmds_next(struct cmmds *cmmds,
					    enum cmmds_kind kind,
					    const struct cmmds_entry *after)
{
	return NULL; /* no virtual disk */
}

void __wrap_iscsi_usage_each(struct iscsi *iscsi,
			     void (*cb)(const struct iscsi_usage *usage,
					void *arg),
			     void *arg)
{
}

void __wrap_iscsi_session_each(struct iscsi *iscsi,
			       void (*cb)(const struct iscsi_session_info *info,
					  void *arg),
			       void *arg)
{
}
/* NOLINTEND(bugprone-reserved-identifier) */

static bool whole(const char *text)
{
	char name[40];

	for (unsigned i = 0; i < COUNTERS; i++) {
		snprintf(name, sizeof(name), "\ntest_%03u 0\n", i);
		if (strstr(text, name) == NULL)
			return false;
	}
	return strncmp(text, "# HELP ", 7) == 0 &&
	       text[strlen(text) - 1] == '\n' &&
	       strstr(text, "basalt_health_level gauge\n") != NULL;
}

TEST(node_metrics, whole_or_none)
{
	static struct counter counters[COUNTERS];
	static char names[COUNTERS][16];
	static struct node node;
	struct test_shard ts;
	unsigned failed = 0;
	char help[200], *text;

	test_shard_open(&ts);
	node.env = ts.env;
	node.arena = ts.arena;
	node.state = NODE_UP;
	TAILQ_INIT(&node.disks);
	node__metrics_register(&node);
	memset(help, 'h', sizeof(help));
	help[sizeof(help) - 1] = '\0';
	for (unsigned i = 0; i < COUNTERS; i++) {
		snprintf(names[i], sizeof(names[i]), "test_%03u", i);
		counters[i].name = names[i];
		counters[i].help = help;
		counter_register(&counters[i]);
	}
	for (unsigned n = 1;; n++) {
		realloc_fails = n;
		text = node__metrics_text();
		realloc_fails = 0;
		if (text != NULL)
			break;
		failed++;
	}
	CHECK(failed >= 1);
	CHECK(whole(text));
	free(text);
	/* Nor is it one without the virtual disks. */
	fail_at = 1;
	CHECK(node__metrics_text() == NULL);
	fail_malloc = true;
	fail_at = 0;
	CHECK(node__metrics_text() == NULL);
	fail_malloc = false;
	test_shard_close(&ts);
}
