/* What dom_stray.c tests, with objects on three shards. */
#define RIG_SHARDS 3u
/* NOLINTNEXTLINE(bugprone-suspicious-include): its tests, once more */
#include "tests/unit/dom_stray.c"
