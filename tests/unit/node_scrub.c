/* When a disk is read through of itself. */
#include "node/node_int.h"
#include "tests/lib/test.h"

#define DAY (24 * 3600 * SEC)

TEST(scrub, is_due_after_a_month)
{
	const uint64_t added = 1000 * DAY;

	CHECK(!node__scrub_due(added, 0, added));
	CHECK(!node__scrub_due(added, 0, added + NODE_SCRUB_DAYS * DAY - 1));
	CHECK(node__scrub_due(added, 0, added + NODE_SCRUB_DAYS * DAY));
	/* From the last one on. */
	CHECK(!node__scrub_due(added, added + 40 * DAY, added + 60 * DAY));
	CHECK(node__scrub_due(added, added + 40 * DAY, added + 70 * DAY));
}

/* A clock that was ahead when the disk was added does not bar it for years. */
TEST(scrub, is_due_whatever_the_clock_was)
{
	CHECK(node__scrub_due(9000 * DAY, 0, 1000 * DAY));
	CHECK(node__scrub_due(1000 * DAY, 9000 * DAY, 1001 * DAY));
	CHECK(!node__scrub_due(9000 * DAY, 1000 * DAY, 1001 * DAY));
	/* By an earlier version: not known. */
	CHECK(node__scrub_due(0, 0, 1000 * DAY));
}
