/* comp_fault: what goes wrong below, one kind a seed. */
#include "tests/sim/comp.h"

/* ---- faults ---- */

static void block_spoil(struct sim_disk *d, uint32_t segment, uint32_t block)
{
	uint64_t at = LSOM__DATA_START + (uint64_t)segment * SIM_SEGMENT +
		      (uint64_t)block * LSOM_BLOCK + 100;

	d->wb.durable[at] ^= 0x10;
	d->wb.now[at] ^= 0x10;
	sim_trace(d->sim, "FAULT: the header at block %u of segment %u rots",
		  block, segment);
}

/* Has the segment at @base a summary, which says all again? */
static bool is_closed(const uint8_t *base)
{
	uint32_t blocks = SIM_SEGMENT / LSOM_BLOCK;

	return lsom__summary_blocks(base + (size_t)(blocks - 1) * LSOM_BLOCK,
				    (const void *)base, blocks) > 0;
}

/*
 * Spoil a batch's header that a later batch, in the same segment, knew to be
 * durable, and at times the next one too, which repeats what it said: what it held
 * may be lost, but not silently.
 */
static void header_rot(struct run *r)
{
	struct sim_disk *d = &r->sim->disks[0];
	uint32_t blocks = SIM_SEGMENT / LSOM_BLOCK, segments, i, at;
	uint32_t found = 0, next = 0, above = 0;
	const struct lsom__batch_header *h, *later;
	unsigned tries = 0;
	uint8_t *base;

	segments = (uint32_t)((d->wb.bytes - LSOM__DATA_START) / SIM_SEGMENT);
	do { /* mostly one that is not closed */
		i = (uint32_t)sim_random(r->sim, segments);
		base = d->wb.durable + LSOM__DATA_START +
		       (uint64_t)i * SIM_SEGMENT;
	} while (tries++ < 2 * segments && is_closed(base));
	later = NULL;
	for (at = blocks - 1; at > 0; at--) {
		h = (const void *)(base + (size_t)at * LSOM_BLOCK);
		if (h->magic != LSOM__BATCH_MAGIC || h->block != at ||
		    h->segment_sequence !=
			    ((const struct lsom__segment_header *)(const void *)
				     base)
				    ->sequence)
			continue;
		if (later == NULL) {
			later = h;
		} else if (later->durable_prefix >= h->batch) {
			if (found == 0 || sim_chance(r->sim, 2)) {
				found = at;
				next = above;
			}
			above = at;
		}
	}
	if (found == 0)
		return;
	d->tampered = r->header_rot = true;
	block_spoil(d, i, found);
	if (next > 0 && sim_chance(r->sim, 2))
		block_spoil(d, i, next);
}

/* Not so long that the log's end is told: a checkpoint comes in between. */
void comp__full(struct run *r)
{
	uint64_t ns = sim_random(r->sim, 15 * SEC);
	struct lsom_disk_info info;

	lsom_disk_info(r->disk, &info);
	if (info.index_wants != 0)
		return;
	for (unsigned i = 0; i < r->sim->stores_count; i++)
		r->sim->stores[i].full_until = r->sim->now_ns + ns;
	sim_trace(r->sim, "FAULT: no space for the index for %llu ms",
		  (unsigned long long)(ns / MSEC));
}

void comp__fault_now(struct run *r)
{
	struct sim_disk *d = &r->sim->disks[0];
	unsigned i;

	switch (r->fault) {
	case FAULT_WRITE:
		if (sim_chance(r->sim, 2))
			d->write_eio = 1 + sim_random(r->sim, 40);
		else
			d->gone = true;
		break;
	case FAULT_READ:
		d->read_eio = 1 + sim_random(r->sim, 20);
		break;
	case FAULT_ROT:
		if (sim_chance(r->sim, 3))
			d->misdirect = 1 + sim_random(r->sim, 20);
		else
			sim_disk_rot(d);
		break;
	case FAULT_STALL:
		d->stalled_until = r->sim->now_ns + sim_random(r->sim, 4 * SEC);
		break;
	case FAULT_INDEX:
		for (i = 0; i < r->sim->stores_count; i++)
			r->sim->stores[i].apply_eio = 1 + sim_random(r->sim, 3);
		break;
	case FAULT_HEADER:
		header_rot(r);
		break;
	}
}
