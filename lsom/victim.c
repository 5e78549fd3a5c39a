/*
 * victim: when the cleaner is to work, and on which segment.  The score is one
 * function: another policy goes in its place.
 *
 * It is asked of each segment, and a disk has up to 131,072, which takes 1 ms: so
 * some are looked at in a turn.  What changes meanwhile is little: one that loses
 * blocks behind the pick's position is a better victim next time.
 */
#include "lsom/lsom_int.h"

#include "base/util.h"

#define PICK_TURN 8192u /* segments; under 0.1 ms */

/*
 * What of its blocks is needed still.  Holes and tombs are no live ones: of what
 * guests wrote they are few, or become few as they are moved together.  A segment of
 * the cleaner's that is full of them gives nothing back when it is moved once more,
 * and would be the best one for ever: of those all is needed but data that is dead.
 * How many of the holes are nobody knows, so after one turn of the log it is looked
 * at again.
 */
static uint64_t needed(const struct lsom_disk *disk,
		       const struct lsom__segment *seg)
{
	uint64_t all = disk->segment_blocks, data;
	uint64_t live = MIN((uint64_t)seg->live, all);

	if (seg->head != LSOM__HEAD_CLEANER || seg->headers < all / 4 ||
	    disk->sequence_next - seg->sequence >= disk->super.segments)
		return live;
	data = seg->used - 1 - seg->headers;
	return all - (data - MIN(data, live));
}

/* Cost-benefit: what is freed, weighed by age, over what it costs. */
static uint64_t score_cost_benefit(const struct lsom_disk *disk,
				   const struct lsom__segment *seg)
{
	uint64_t all = disk->segment_blocks;
	uint64_t live = needed(disk, seg);
	uint64_t age = disk->sequence_next - seg->sequence;

	return (all - live) * 1024 / (all + live) * MIN(age, 1u << 20);
}

static uint64_t score_of(const struct lsom_disk *disk,
			 const struct lsom__segment *seg,
			 enum lsom__policy policy)
{
	uint64_t all = disk->segment_blocks;

	if (seg->unread > 0)
		return 1; /* last of all: that it can be read now is a hope */
	switch (policy) {
	case LSOM__PICK_DEAD:
	case LSOM__PICK_OLDEST:
		return UINT64_MAX - seg->sequence;
	case LSOM__PICK_EMPTIEST:
		return all - needed(disk, seg) + 1;
	case LSOM__PICK_BENEFIT:
		break;
	}
	return score_cost_benefit(disk, seg) + 1;
}

static enum lsom__policy policy_now(const struct lsom_disk *disk)
{
	if (lsom__victim_aborts(disk))
		return LSOM__PICK_OLDEST;
	if (lsom__victim_for_trim(disk))
		return LSOM__PICK_DEAD;
	return disk->segments_free <= 3 ? LSOM__PICK_EMPTIEST
					: LSOM__PICK_BENEFIT;
}

uint32_t lsom__victim_low_mark(const struct lsom_disk *disk)
{
	return MAX(disk->super.segments / 10, 5u);
}

/*
 * Not the cleaner's: of what is only needed as it is there it would make another
 * one, for ever.
 */
bool lsom__victim_dead(const struct lsom__segment *seg)
{
	return seg->state == LSOM__SEG_CLOSED && seg->live == 0 &&
	       seg->head == LSOM__HEAD_GUEST;
}

bool lsom__victim_for_trim(const struct lsom_disk *disk)
{
	return disk->trim.dead > 0 &&
	       disk->segments_free >= lsom__victim_low_mark(disk);
}

/* Where the oldest segment begins that cleaning does not rid the log of now. */
static uint64_t oldest_pinned(const struct lsom_disk *disk)
{
	uint32_t guest = disk->heads[LSOM__HEAD_GUEST].segment;
	uint64_t now = env_now(disk->env), oldest = UINT64_MAX;
	const struct lsom__segment *seg;

	if (guest != LSOM__NONE)
		oldest = disk->segments[guest].open_pos;
	if (now >= disk->shunned_ns)
		return oldest; /* mostly; for the others may be many */
	TAILQ_FOREACH (seg, &disk->aged, age)
		if (seg->open_pos >= oldest ||
		    (seg->state == LSOM__SEG_CLOSED &&
		     (seg->unreadable || seg->retry_ns > now)))
			return MIN(seg->open_pos, oldest);
	return oldest;
}

/* How many may be forgotten when the log is rid of what lies before @pos. */
static unsigned aborts_passed(const struct lsom_comp *comp, uint64_t pos)
{
	unsigned n = 0, i;

	for (i = 0; i < comp->aborts_count; i++)
		n += comp->aborts[i].lsn <= comp->meta.stable_lsn &&
		     comp->aborts_pos[i] <= pos;
	return n;
}

/*
 * A window of them may lie above the stable lsn, and no cleaning shortens that.
 * With those that are not worth it yet it is less than lsom_decide() refuses.
 */
static_assert(LSOM_WINDOW + LSOM__ABORTS_MAX / 8 < LSOM__ABORTS_MAX / 2,
	      "an abort is not refused for what is not cleaned");

bool lsom__victim_aborts(const struct lsom_disk *disk)
{
	const struct lsom_comp *comp;
	uint64_t pinned = 0; /* not looked for yet */

	TAILQ_FOREACH (comp, &disk->aborting, abort_link) {
		if (!comp->linked || comp->aborts_count <= LSOM__ABORTS_MAX / 3)
			continue;
		if (pinned == 0)
			pinned = oldest_pinned(disk);
		if (aborts_passed(comp, pinned) > LSOM__ABORTS_MAX / 8)
			return true;
	}
	return false;
}

void lsom__aborts_full(struct lsom_comp *comp)
{
	struct lsom_disk *disk = comp->disk;
	struct lsom__head *head = &disk->heads[LSOM__HEAD_GUEST];
	unsigned held = 0;

	/* A disk that rests would keep them where guests have not gone on. */
	if (head->segment != LSOM__NONE)
		held = aborts_passed(comp, disk->pos_next) -
		       aborts_passed(comp,
				     disk->segments[head->segment].open_pos);
	if (held > LSOM__ABORTS_MAX / 8)
		(void)lsom__head_leave(head);
	lsom__cleaner_kick(disk);
}

uint64_t lsom__victim_cost(const struct lsom_disk *disk, uint64_t live)
{
	return live + live / 16 + MAX(disk->segment_blocks / 32, 2u);
}

static bool eligible(const struct lsom_disk *disk,
		     const struct lsom__segment *seg, enum lsom__policy policy)
{
	if (seg->state != LSOM__SEG_CLOSED || seg->unreadable ||
	    seg->retry_ns > env_now(disk->env))
		return false;
	if (policy == LSOM__PICK_DEAD)
		return lsom__victim_dead(seg);
	/* A dense one gives nothing back. */
	return policy == LSOM__PICK_OLDEST ||
	       lsom__victim_cost(disk, seg->live) < disk->segment_blocks - 1;
}

bool lsom__victim_pick(const struct lsom_disk *disk, struct lsom__pick *pick)
{
	const uint32_t all = disk->super.segments;
	const struct lsom__segment *seg;
	uint64_t score;
	uint32_t end;

	if (pick->next == 0)
		*pick = (struct lsom__pick){ .best = LSOM__NONE,
					     .policy = policy_now(disk) };
	end = pick->next + MIN(PICK_TURN, all - pick->next);
	for (; pick->next < end; pick->next++) {
		seg = &disk->segments[pick->next];
		if (!eligible(disk, seg, pick->policy))
			continue;
		score = score_of(disk, seg, pick->policy);
		if (score > pick->score) {
			pick->score = score;
			pick->best = pick->next;
		}
	}
	if (pick->next < all)
		return false;
	pick->next = 0;
	/* Emptied meanwhile: that is better still, but who is next? */
	return pick->best == LSOM__NONE ||
	       eligible(disk, &disk->segments[pick->best], pick->policy);
}
