/*
 * victim: when the cleaner is to work, and on which segment.  The score is one
 * function: another policy goes in its place.
 */
#include "lsom/lsom_int.h"

#include "base/util.h"

/* Cost-benefit: what is freed, weighed by age, over what it costs. */
static uint64_t score_cost_benefit(const struct lsom_disk *disk,
				   const struct lsom__segment *seg)
{
	uint64_t all = disk->segment_blocks;
	uint64_t live = MIN((uint64_t)seg->live, all);
	uint64_t age = disk->sequence_next - seg->sequence;

	return (all - live) * 1024 / (all + live) * MIN(age, 1u << 20);
}

static uint64_t score_of(const struct lsom_disk *disk,
			 const struct lsom__segment *seg, bool oldest)
{
	uint64_t all = disk->segment_blocks;

	if (seg->unread > 0)
		return 1; /* last of all: that it can be read now is a hope */
	if (oldest)
		return UINT64_MAX - seg->sequence;
	if (disk->segments_free <= 3)
		return all - MIN((uint64_t)seg->live, all) + 1;
	return score_cost_benefit(disk, seg) + 1;
}

uint32_t lsom__victim_low_mark(const struct lsom_disk *disk)
{
	return MAX(disk->super.segments / 10, 5u);
}

bool lsom__victim_aborts(const struct lsom_disk *disk)
{
	const struct lsom_comp *comp;

	TAILQ_FOREACH (comp, &disk->comps, link)
		if (comp->aborts_count > LSOM__ABORTS_MAX / 3)
			return true;
	return false;
}

uint64_t lsom__victim_cost(const struct lsom_disk *disk, uint64_t live)
{
	return live + live / 16 + MAX(disk->segment_blocks / 32, 2u);
}

uint32_t lsom__victim_pick(const struct lsom_disk *disk)
{
	bool oldest = lsom__victim_aborts(disk);
	uint64_t best_score = 0, score;
	uint32_t best = LSOM__NONE, i;
	const struct lsom__segment *seg;

	for (i = 0; i < disk->super.segments; i++) {
		seg = &disk->segments[i];
		if (seg->state != LSOM__SEG_CLOSED || seg->unreadable ||
		    seg->retry_ns > env_now(disk->env))
			continue;
		/* A dense one gives nothing back. */
		if (!oldest && lsom__victim_cost(disk, seg->live) >=
				       disk->segment_blocks - 1)
			continue;
		score = score_of(disk, seg, oldest);
		if (score > best_score) {
			best_score = score;
			best = i;
		}
	}
	return best;
}
