/*
 * disk: devices and stores that lie as real ones may.
 *
 * A device keeps two images: what a read sees and what a power cut leaves.  A
 * write lies between them until it is durable; a cut leaves all of it, nothing,
 * or some of its 512-byte sectors.  A store keeps what was flushed and any
 * prefix of what was applied after that; one with a log keeps everything.
 */
#include "tests/sim/sim.h"

#include "tests/lib/must.h"

#include <stdio.h>

void sim_disk_init(struct sim *sim, unsigned i, uint64_t bytes)
{
	struct sim_disk *d = &sim->disks[i];

	d->sim = sim;
	snprintf(d->path, sizeof(d->path), "disk%u", i);
	wb_disk_init(&d->wb, bytes);
	d->written = must(calloc(1, bytes / 4096 / 8 + 1));
	sim->disks_count = MAX(sim->disks_count, i + 1);
}

static void note_written(struct sim_disk *d, uint64_t offset, size_t len)
{
	uint64_t b;

	for (b = offset / 4096; b < (offset + len) / 4096; b++)
		d->written[b / 8] |= (uint8_t)(1u << b % 8);
}

static bool counted_out(uint64_t *counter)
{
	return *counter > 0 && --*counter == 0;
}

void sim_disk_submit(struct env_io *io)
{
	struct sim_disk *d = io->dev->disk;

	io->impl[0] = NULL;
	if (io->op != WB_WRITE || d->gone)
		return;
	wb_disk_submit(&d->wb, io);
	note_written(d, io->offset, io->len);
}

/* Nobody may touch the memory of a write in flight. */
static void memory_check(const struct sim_disk *d, const struct env_io *io,
			 const struct wb_write *w)
{
	size_t at = 0;

	for (unsigned i = 0; i < io->iov_count; i++) {
		if (memcmp(w->data + at, io->iov[i].iov_base,
			   io->iov[i].iov_len) != 0)
			sim_violation(d->sim,
				      "%s: the memory of a write to "
				      "block %llu changed while in flight",
				      d->path,
				      (unsigned long long)io->offset / 4096);
		at += io->iov[i].iov_len;
	}
}

static void misdirect(struct sim_disk *d, struct wb_write *w)
{
	uint64_t blocks = (d->wb.bytes - w->len) / 4096, to, tries;

	for (tries = 0; tries < 1000; tries++) {
		to = (1u << 20) / 4096 +
		     sim_random(d->sim, blocks - (1u << 20) / 4096);
		if (d->written[to / 8] >> to % 8 & 1)
			break;
	}
	sim_trace(d->sim, "%s: FAULT: the write of block %llu goes to %llu",
		  d->path, (unsigned long long)w->offset / 4096,
		  (unsigned long long)to);
	w->offset = to * 4096;
	d->tampered = true;
}

static int64_t write_end(struct sim_disk *d, struct env_io *io)
{
	struct wb_write *w = io->impl[0];

	if (w == NULL)
		return -EIO;
	memory_check(d, io, w);
	if (d->gone || counted_out(&d->write_eio)) {
		/* Some of it may be there, durable or not. */
		sim_trace(d->sim, "%s: FAULT: a write fails", d->path);
		if (sim_chance(d->sim, 2))
			wb_disk_land(&d->wb, w, false);
		else
			wb_disk_drop(&d->wb, w);
		return -EIO;
	}
	if (counted_out(&d->misdirect))
		misdirect(d, w);
	wb_disk_land(&d->wb, w, io->flags & ENV_DURABLE);
	return (int64_t)io->len;
}

static int64_t read_end(struct sim_disk *d, struct env_io *io)
{
	if (d->gone || counted_out(&d->read_eio)) {
		sim_trace(d->sim, "%s: FAULT: a read fails", d->path);
		return -EIO;
	}
	wb_disk_read(&d->wb, io);
	return (int64_t)io->len;
}

int64_t sim_disk_end(struct env_io *io)
{
	struct sim_disk *d = io->dev->disk;

	switch (io->op) {
	case WB_WRITE:
		return write_end(d, io);
	case WB_READ:
		return read_end(d, io);
	case WB_FLUSH:
		if (d->gone || counted_out(&d->flush_eio))
			return -EIO;
		wb_disk_flush(&d->wb);
		return 0;
	}
	return d->gone ? -EIO : 0;
}

int sim_disk_read_now(struct env_dev *dev, void *buf, size_t len,
		      uint64_t offset)
{
	struct sim_disk *d = dev->disk;

	if (!wb_disk_holds(&d->wb, offset, len) || d->gone)
		return -EIO;
	memcpy(buf, d->wb.now + offset, len);
	return counted_out(&d->read_eio) ? -EIO : 0;
}

int sim_disk_write_now(struct env_dev *dev, const void *buf, size_t len,
		       uint64_t offset, unsigned flags)
{
	struct sim_disk *d = dev->disk;

	if (!wb_disk_holds(&d->wb, offset, len) || d->gone ||
	    counted_out(&d->write_eio))
		return -EIO;
	note_written(d, offset, len);
	wb_disk_write_now(&d->wb, buf, len, offset, flags & ENV_DURABLE);
	return 0;
}

int sim_disk_discard_now(struct env_dev *dev, uint64_t offset, uint64_t len)
{
	struct sim_disk *d = dev->disk;

	if (!wb_disk_holds(&d->wb, offset, len))
		sim_violation(d->sim, "a discard beyond the end of %s",
			      d->path);
	sim_trace(d->sim, "%s: discard %llu+%llu", d->path,
		  (unsigned long long)offset / 4096,
		  (unsigned long long)len / 4096);
	if (d->gone)
		return -EIO;
	wb_disk_discard(&d->wb, offset, len, &d->sim->random);
	return 0;
}

void sim_disk_mend(struct sim_disk *d)
{
	d->stalled_until = 0;
	d->write_eio = d->read_eio = d->flush_eio = d->misdirect = 0;
	d->gone = false;
}

void sim_disk_cut(struct sim_disk *d)
{
	struct wb_write *w;
	size_t left;

	TAILQ_FOREACH (w, &d->wb.volatiles, link) {
		left = wb_disk_tear(&d->wb, w, &d->sim->random);
		sim_trace(d->sim,
			  "%s: the cut leaves %zu of %zu sectors of a write "
			  "to block %llu",
			  d->path, left, w->len / SECTOR,
			  (unsigned long long)w->offset / 4096);
	}
	while ((w = TAILQ_FIRST(&d->wb.volatiles)) != NULL) {
		memcpy(d->wb.now + w->offset, d->wb.durable + w->offset,
		       w->len);
		wb_disk_drop(&d->wb, w);
	}
	sim_disk_mend(d);
}

void sim_disk_rot(struct sim_disk *d)
{
	uint64_t first = (1u << 20) / 4096, blocks = d->wb.bytes / 4096 - first;
	uint64_t b, at, tries;

	for (tries = 0; tries < 1000; tries++) {
		b = first + sim_random(d->sim, blocks);
		if (!(d->written[b / 8] >> b % 8 & 1))
			continue;
		at = b * 4096 + sim_random(d->sim, 4096);
		if (d->wb.now[at] == 0 && sim_random(d->sim, 4) != 0)
			continue;
		d->wb.now[at] ^= 0x55;
		d->wb.durable[at] ^= 0x55;
		d->tampered = true;
		sim_trace(d->sim, "%s: FAULT: byte %llu of block %llu rots",
			  d->path, (unsigned long long)at % 4096,
			  (unsigned long long)b);
		return;
	}
}

/* ---- stores ---- */

static struct sim_store *store_of(struct kv *kv)
{
	return container_of(wb_kv_store(kv), struct sim_store, wb);
}

static int k_apply(struct kv *kv, struct kv_batch *batch)
{
	struct sim_store *s = store_of(kv);

	if (counted_out(&s->apply_eio)) {
		sim_trace(s->sim, "%s: FAULT: a batch fails", s->path);
		return -EIO;
	}
	if (s->sim->now_ns < s->full_until)
		return -ENOSPC;
	wb_store_apply(&s->wb, batch);
	if (s->log)
		wb_store_flush(&s->wb);
	return 0;
}

static int k_flush(struct kv *kv)
{
	if (store_of(kv)->sim->now_ns < store_of(kv)->full_until)
		return -ENOSPC;
	wb_store_flush(wb_kv_store(kv));
	return 0;
}

static const struct kv_ops k_ops = {
	WB_KV_OPS,
	.apply = k_apply,
	.flush = k_flush,
};

static struct sim_store *store_find(struct sim *sim, const char *path)
{
	for (unsigned i = 0; i < sim->stores_count; i++)
		if (strcmp(sim->stores[i].path, path) == 0)
			return &sim->stores[i];
	return NULL;
}

int sim_store_open(struct sim *sim, const struct kv_config *config,
		   struct kv **out)
{
	struct sim_store *s = store_find(sim, config->path);

	if (s == NULL) {
		if (!config->create)
			return -ENOENT;
		if (sim->stores_count == SIM_STORES)
			abort();
		s = &sim->stores[sim->stores_count++];
		s->sim = sim;
		snprintf(s->path, sizeof(s->path), "%s", config->path);
		wb_store_init(&s->wb);
	}
	s->log = config->log;
	*out = wb_store_open(&s->wb, &k_ops, config->merge);
	return 0;
}

void sim_store_cut(struct sim_store *s)
{
	wb_store_tear(&s->wb, &s->sim->random);
	wb_store_restore(&s->wb);
	s->apply_eio = s->full_until = 0;
}

void sim_store_wipe(struct sim *sim, const char *path)
{
	struct sim_store *s = store_find(sim, path);

	if (s != NULL)
		wb_store_load(&s->wb, NULL);
}
