/*
 * owner_map: GET LBA STATUS, from what the components' indexes say.
 *
 * Scans show committed versions only, so each is preceded by what is decided.
 * A run may be reported shorter than it is; the work of a command is bounded.
 * A component that is too busy is asked again, as for a read.
 */
#include "dom/dom_int.h"

#include <stdlib.h>

#define STEPS_MAX 64u
#define ITEMS_MAX 256u

static void map_end(struct dom__op *op, int status)
{
	if (status == 0 && op->io != NULL) {
		op->io->mapped = op->map_mapped;
		op->io->mapped_len = MIN(op->map_len, op->len);
	}
	dom__op_finish(op, status);
}

/* How far the blocks from @start on are alike, and in which way. */
static uint64_t run_of(const struct lsom_scan *scan, uint64_t start,
		       bool *mapped)
{
	uint64_t at = start;

	*mapped = scan->items_count > 0 && scan->items[0].offset == start &&
		  !scan->items[0].hole;
	for (unsigned i = 0; i < scan->items_count; i++) {
		const struct lsom_version *v = &scan->items[i];

		if (*mapped) {
			if (v->hole || v->offset != at)
				return at - start;
			at += DOM_BLOCK;
		} else if (!v->hole) {
			return v->offset - start;
		}
	}
	return *mapped ? at - start : scan->next - start;
}

static void map_scanned(struct dom__cm_scan *req, int status)
{
	struct dom__op *op = container_of(req, struct dom__op, scan);
	uint64_t start = op->scan.scan.offset, run;
	uint64_t skip = op->map_len == 0 ? op->offset % DOM_BLOCK : 0;
	bool mapped;

	if (status < 0) {
		map_end(op, status);
		return;
	}
	run = run_of(&op->scan.scan, start, &mapped);
	if (op->map_len == 0)
		op->map_mapped = mapped;
	if (run == 0 || mapped != op->map_mapped) {
		if (op->map_len == 0) /* at least the block itself */
			op->map_len = DOM_BLOCK - skip;
		map_end(op, 0);
		return;
	}
	op->map_len += run - skip;
	if (run < op->map_run && op->scan.scan.next - start >= op->map_run &&
	    op->scan.scan.items_count < ITEMS_MAX) {
		map_end(op, 0); /* the run ended inside what was scanned */
		return;
	}
	if (op->map_len >= op->len || ++op->map_steps == STEPS_MAX) {
		map_end(op, 0);
		return;
	}
	dom__map_step(op);
}

/* It waits by its plan's part, which nothing else of it uses. */
static void map_wait(struct dom__op *op, const struct dom__extent *run)
{
	struct dom__part *part = &op->plan.part_one;

	dom__part_init(part, run);
	part->op = op;
	dom__part_retry(part);
}

void dom__map_step(struct dom__op *op)
{
	struct dom__owner *owner = op->owner;
	uint64_t at = ROUND_DOWN(op->offset + op->map_len, (uint64_t)DOM_BLOCK);
	uint64_t end = ROUND_UP(op->offset + op->len, (uint64_t)DOM_BLOCK);
	struct dom__extent run = dom__tree_map(owner->tree, at, end - at);
	struct dom__peer *peer = &owner->peers[run.leaf];
	int rv;

	if (dom__op_expired(op) && op->io == NULL) {
		map_end(op, -ETIMEDOUT);
		return;
	}
	/* A scan shows what is committed: say what is. */
	rv = dom__cm_decided(peer->cm, &peer->fence,
			     &owner->groups[run.leaf].decided);
	op->map_run = run.len;
	op->scan.scan = (struct lsom_scan){
		.offset = run.offset,
		.len = run.len,
		.items = op->versions,
		.items_max = ITEMS_MAX,
	};
	if (rv == 0)
		rv = dom__cm_scan(peer->cm, &peer->fence, &op->scan,
				  map_scanned);
	if (rv == -EBUSY && op->map_len == 0)
		map_wait(op, &run);
	else if (rv < 0)
		map_end(op, rv == -EBUSY ? 0 : rv);
}

void dom__map_start(struct dom__op *op)
{
	op->versions = malloc(ITEMS_MAX * sizeof(*op->versions));
	if (op->versions == NULL)
		dom__op_finish(op, -ENOMEM);
	else
		dom__map_step(op);
}
