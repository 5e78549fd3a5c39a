/* comp_fault: what goes wrong below, one kind a seed. */
#include "tests/sim/comp.h"

/* ---- faults ---- */

/*
 * Spoil a batch's header that a later batch, in the same segment, knew to be
 * durable: what it held may be lost, but not silently.
 */
static void header_rot(struct run *r)
{
	struct sim_disk *d = &r->sim->disks[0];
	uint32_t blocks = SIM_SEGMENT / LSOM_BLOCK, segments, i, at, found;
	const struct lsom__batch_header *h, *later;
	uint8_t *base;

	segments = (uint32_t)((d->wb.bytes - LSOM__DATA_START) / SIM_SEGMENT);
	i = (uint32_t)sim_random(r->sim, segments);
	base = d->wb.durable + LSOM__DATA_START + (uint64_t)i * SIM_SEGMENT;
	found = 0;
	later = NULL;
	for (at = blocks - 1; at > 0; at--) {
		h = (const void *)(base + (size_t)at * LSOM_BLOCK);
		if (h->magic != LSOM__BATCH_MAGIC || h->block != at ||
		    h->segment_sequence !=
			    ((const struct lsom__segment_header *)(const void *)
				     base)
				    ->sequence)
			continue;
		if (later == NULL)
			later = h;
		else if (later->durable_prefix >= h->batch &&
			 (found == 0 || sim_chance(r->sim, 2)))
			found = at;
	}
	if (found == 0)
		return;
	base[(size_t)found * LSOM_BLOCK + 100] ^= 0x10;
	d->wb.now[LSOM__DATA_START + (uint64_t)i * SIM_SEGMENT +
		  (uint64_t)found * LSOM_BLOCK + 100] ^= 0x10;
	d->tampered = r->header_rot = true;
	sim_trace(r->sim, "FAULT: the header at block %u of segment %u rots",
		  found, i);
}

/* Not so long that the log's end is told: a checkpoint comes in between. */
void comp__full(struct run *r)
{
	uint64_t ns = sim_random(r->sim, 15 * SEC);
	struct lsom_disk_info info;

	lsom_disk_info(r->disk, &info);
	if (info.index_full)
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
