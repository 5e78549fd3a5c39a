/*
 * plan: which component gets which run of a request.
 *
 * A part is one record or one read: contiguous in its component, at most
 * LSOM_WRITE_MAX bytes.  Stripe units of one column that follow each other in a
 * component are merged, so a wide request makes few records; fragments say in
 * which order the object has them.
 */
#include "dom/dom_int.h"

#include <assert.h>
#include <stdlib.h>

int dom__plan_alloc(struct dom__plan *plan, unsigned parts, unsigned frags)
{
	plan->parts_count = 0;
	plan->frags_count = 0;
	plan->parts = &plan->part_one;
	plan->frags = &plan->frag_one;
	if (parts > 1) {
		plan->parts = malloc(parts * sizeof(*plan->parts));
		if (plan->parts == NULL)
			goto err;
	}
	if (frags > 1) {
		plan->frags = malloc(frags * sizeof(*plan->frags));
		if (plan->frags == NULL)
			goto err;
	}
	return 0;

err:
	dom__plan_fini(plan);
	return -ENOMEM;
}

/* The parts' own sgls must be put before. */
void dom__plan_fini(struct dom__plan *plan)
{
	if (plan->parts != &plan->part_one)
		free(plan->parts);
	if (plan->frags != &plan->frag_one)
		free(plan->frags);
	plan->parts = NULL;
	plan->frags = NULL;
	plan->parts_count = 0;
	plan->frags_count = 0;
}

static struct dom__extent next_run(const struct dom__tree *tree,
				   uint64_t offset, uint64_t len)
{
	return dom__tree_map(tree, offset, MIN(len, LSOM_WRITE_MAX));
}

void dom__part_init(struct dom__part *part, const struct dom__extent *run)
{
	memset(part, 0, offsetof(struct dom__part, read));
	part->leaf = run->leaf;
	part->offset = run->offset;
	part->len = run->len;
}

/* The latest part of the run's leaf, if the run goes on where it ends. */
static unsigned part_for(struct dom__plan *plan, const struct dom__extent *run)
{
	unsigned i = plan->parts_count;

	while (i-- > 0) {
		struct dom__part *part = &plan->parts[i];

		if (part->leaf != run->leaf)
			continue;
		if (part->offset + part->len != run->offset ||
		    part->len + run->len > LSOM_WRITE_MAX)
			break;
		part->len += run->len;
		return i;
	}
	dom__part_init(&plan->parts[plan->parts_count], run);
	return plan->parts_count++;
}

/* All that is asked for is one run. */
static void plan_one(struct dom__plan *plan, const struct dom__extent *run)
{
	plan->parts = &plan->part_one;
	plan->frags = &plan->frag_one;
	plan->parts_count = 1;
	plan->frags_count = 1;
	dom__part_init(&plan->part_one, run);
	plan->frag_one = (struct dom__frag){ .len = run->len };
}

/*
 * @offset and @len: multiples of DOM_BLOCK, inside the tree, one at least.  0 or
 * -ENOMEM.
 */
int dom__plan_make(struct dom__plan *plan, const struct dom__tree *tree,
		   uint64_t offset, uint64_t len)
{
	struct dom__extent run = next_run(tree, offset, len);
	unsigned frags = 1;
	uint64_t at;
	int rv;

	assert(len > 0);
	for (at = run.len; at < len; at += run.len) {
		run = next_run(tree, offset + at, len - at);
		frags++;
	}
	if (frags == 1) {
		plan_one(plan, &run);
		return 0;
	}
	rv = dom__plan_alloc(plan, frags, frags);
	if (rv < 0)
		return rv;
	for (at = 0; at < len; at += run.len) {
		struct dom__frag *frag = &plan->frags[plan->frags_count++];

		run = next_run(tree, offset + at, len - at);
		frag->part = part_for(plan, &run);
		frag->len = run.len;
		frag->offset = plan->parts[frag->part].len - run.len;
	}
	return 0;
}
