/*
 * disk: devices and stores that lie as real ones may.
 *
 * A device keeps two images: what a read sees and what a power cut leaves.  A
 * write lies between them until it is durable; a cut leaves all of it, nothing,
 * or some of its 512-byte sectors.  A store keeps what was flushed and any
 * prefix of what was applied after that; one with a log keeps everything.
 */
#include "tests/sim/sim.h"

#include "tests/lib/memkv.h"

#include <stdio.h>
#include <stdlib.h>

static void *must(void *p)
{
	if (p == NULL)
		abort();
	return p;
}

void sim_disk_init(struct sim *sim, unsigned i, uint64_t bytes)
{
	struct sim_disk *d = &sim->disks[i];

	d->sim = sim;
	snprintf(d->path, sizeof(d->path), "disk%u", i);
	d->bytes = bytes;
	d->now = must(calloc(1, bytes));
	d->durable = must(calloc(1, bytes));
	d->written = must(calloc(1, bytes / 4096 / 8 + 1));
	TAILQ_INIT(&d->volatiles);
	sim->disks_count = MAX(sim->disks_count, i + 1);
}

static struct sim_write *volatile_add(struct sim_disk *d, uint64_t offset,
				      size_t len)
{
	struct sim_write *w = must(calloc(1, sizeof(*w)));
	uint64_t b;

	w->offset = offset;
	w->len = len;
	w->data = must(malloc(len));
	TAILQ_INSERT_TAIL(&d->volatiles, w, link);
	for (b = offset / 4096; b < (offset + len) / 4096; b++)
		d->written[b / 8] |= (uint8_t)(1u << b % 8);
	return w;
}

static void volatile_remove(struct sim_disk *d, struct sim_write *w)
{
	TAILQ_REMOVE(&d->volatiles, w, link);
	free(w->data);
	free(w);
}

static bool counted_out(uint64_t *counter)
{
	return *counter > 0 && --*counter == 0;
}

/* A device copies the memory at some moment before it completes: now. */
void sim_disk_submit(struct env_io *io)
{
	struct sim_disk *d = io->dev->disk;
	struct sim_write *w;
	size_t at = 0;

	io->impl[0] = NULL;
	if (io->op != SIM_WRITE || d->gone)
		return;
	w = volatile_add(d, io->offset, io->len);
	for (unsigned i = 0; i < io->iov_count; i++) {
		memcpy(w->data + at, io->iov[i].iov_base, io->iov[i].iov_len);
		at += io->iov[i].iov_len;
	}
	w->io = io;
	io->impl[0] = w;
}

/* A cache keeps the newest of a block: older ones are out of it. */
static void make_durable(struct sim_disk *d, struct sim_write *w)
{
	struct sim_write *v, *next;

	for (v = TAILQ_FIRST(&d->volatiles); v != w; v = next) {
		next = TAILQ_NEXT(v, link);
		if (!v->done || v->offset >= w->offset + w->len ||
		    w->offset >= v->offset + v->len)
			continue;
		memcpy(d->durable + v->offset, v->data, v->len);
		volatile_remove(d, v);
	}
	memcpy(d->durable + w->offset, w->data, w->len);
	volatile_remove(d, w);
}

/* Nobody may touch the memory of a write in flight. */
static void memory_check(const struct sim_disk *d, const struct env_io *io,
			 const struct sim_write *w)
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

static void misdirect(struct sim_disk *d, struct sim_write *w)
{
	uint64_t blocks = (d->bytes - w->len) / 4096, to, tries;

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
	struct sim_write *w = io->impl[0];

	if (w == NULL)
		return -EIO;
	memory_check(d, io, w);
	w->io = NULL;
	if (d->gone || counted_out(&d->write_eio)) {
		/* Some of it may be there, durable or not. */
		sim_trace(d->sim, "%s: FAULT: a write fails", d->path);
		if (sim_chance(d->sim, 2)) {
			memcpy(d->now + w->offset, w->data, w->len);
			w->done = true;
		} else {
			volatile_remove(d, w);
		}
		return -EIO;
	}
	if (counted_out(&d->misdirect))
		misdirect(d, w);
	memcpy(d->now + w->offset, w->data, w->len);
	w->done = true;
	if (io->flags & ENV_DURABLE)
		make_durable(d, w);
	return (int64_t)io->len;
}

static int64_t read_end(struct sim_disk *d, struct env_io *io)
{
	uint64_t at = io->offset;

	if (d->gone || counted_out(&d->read_eio)) {
		sim_trace(d->sim, "%s: FAULT: a read fails", d->path);
		return -EIO;
	}
	for (unsigned i = 0; i < io->iov_count; i++) {
		memcpy(io->iov[i].iov_base, d->now + at, io->iov[i].iov_len);
		at += io->iov[i].iov_len;
	}
	return (int64_t)io->len;
}

int64_t sim_disk_end(struct env_io *io)
{
	struct sim_disk *d = io->dev->disk;
	struct sim_write *w, *next;

	switch (io->op) {
	case SIM_WRITE:
		return write_end(d, io);
	case SIM_READ:
		return read_end(d, io);
	case SIM_FLUSH:
		if (d->gone || counted_out(&d->flush_eio))
			return -EIO;
		for (w = TAILQ_FIRST(&d->volatiles); w != NULL; w = next) {
			next = TAILQ_NEXT(w, link);
			if (w->done)
				make_durable(d, w);
		}
		return 0;
	}
	return d->gone ? -EIO : 0;
}

int sim_disk_read_now(struct env_dev *dev, void *buf, size_t len,
		      uint64_t offset)
{
	struct sim_disk *d = dev->disk;

	if (offset > d->bytes || len > d->bytes - offset || d->gone)
		return -EIO;
	memcpy(buf, d->now + offset, len);
	return counted_out(&d->read_eio) ? -EIO : 0;
}

int sim_disk_write_now(struct env_dev *dev, const void *buf, size_t len,
		       uint64_t offset, unsigned flags)
{
	struct sim_disk *d = dev->disk;
	struct sim_write *w;

	if (offset > d->bytes || len > d->bytes - offset || d->gone ||
	    counted_out(&d->write_eio))
		return -EIO;
	w = volatile_add(d, offset, len);
	memcpy(w->data, buf, len);
	memcpy(d->now + offset, buf, len);
	w->done = true;
	if (flags & ENV_DURABLE)
		make_durable(d, w);
	return 0;
}

void sim_disk_mend(struct sim_disk *d)
{
	d->stalled_until = 0;
	d->write_eio = d->read_eio = d->flush_eio = d->misdirect = 0;
	d->gone = false;
}

/* What the cut leaves of one write: all, nothing, or sectors. */
static void write_cut(struct sim_disk *d, const struct sim_write *w)
{
	uint64_t how = sim_random(d->sim, 4);
	size_t at, left = 0;

	for (at = 0; at < w->len; at += SECTOR)
		if (how == 1 || (how >= 2 && !sim_chance(d->sim, 4))) {
			memcpy(d->durable + w->offset + at, w->data + at,
			       SECTOR);
			left++;
		}
	sim_trace(d->sim,
		  "%s: the cut leaves %zu of %zu sectors of a write "
		  "to block %llu",
		  d->path, left, w->len / SECTOR,
		  (unsigned long long)w->offset / 4096);
}

void sim_disk_cut(struct sim_disk *d)
{
	struct sim_write *w, *next;

	TAILQ_FOREACH (w, &d->volatiles, link)
		write_cut(d, w);
	for (w = TAILQ_FIRST(&d->volatiles); w != NULL; w = next) {
		next = TAILQ_NEXT(w, link);
		memcpy(d->now + w->offset, d->durable + w->offset, w->len);
		volatile_remove(d, w);
	}
	sim_disk_mend(d);
}

void sim_disk_rot(struct sim_disk *d)
{
	uint64_t first = (1u << 20) / 4096, blocks = d->bytes / 4096 - first;
	uint64_t b, at, tries;

	for (tries = 0; tries < 1000; tries++) {
		b = first + sim_random(d->sim, blocks);
		if (!(d->written[b / 8] >> b % 8 & 1))
			continue;
		at = b * 4096 + sim_random(d->sim, 4096);
		if (d->now[at] == 0 && sim_random(d->sim, 4) != 0)
			continue;
		d->now[at] ^= 0x55;
		d->durable[at] ^= 0x55;
		d->tampered = true;
		sim_trace(d->sim, "%s: FAULT: byte %llu of block %llu rots",
			  d->path, (unsigned long long)at % 4096,
			  (unsigned long long)b);
		return;
	}
}

/* ---- stores ---- */

struct sim_kv {
	struct kv kv; /* first */
	struct sim_store *store;
	bool log;
};

static struct sim_store *store_of(struct kv *kv)
{
	return ((struct sim_kv *)kv)->store;
}

static void k_close(struct kv *kv)
{
	free(kv);
}

static int k_get(struct kv *kv, struct kv_slice key, void **out,
		 size_t *out_len)
{
	return kv_get(store_of(kv)->now, key, out, out_len);
}

static void batch_copy(struct kv_batch *to, const struct kv_batch *from)
{
	*to = *from;
	to->changes_room = from->changes_count + 1;
	to->bytes_room = from->bytes_count + 1;
	to->changes = must(malloc(to->changes_room * sizeof(*to->changes)));
	to->bytes = must(malloc(to->bytes_room));
	if (from->changes_count > 0)
		memcpy(to->changes, from->changes,
		       from->changes_count * sizeof(*to->changes));
	if (from->bytes_count > 0)
		memcpy(to->bytes, from->bytes, from->bytes_count);
}

static int k_apply(struct kv *kv, struct kv_batch *batch)
{
	struct sim_store *s = store_of(kv);
	struct sim_batch *b;

	if (counted_out(&s->apply_eio)) {
		sim_trace(s->sim, "%s: FAULT: a batch fails", s->path);
		return -EIO;
	}
	if (kv_apply(s->now, batch) < 0)
		abort();
	if (((struct sim_kv *)kv)->log) {
		if (kv_apply(s->flushed, batch) < 0)
			abort();
		return 0;
	}
	b = must(calloc(1, sizeof(*b)));
	batch_copy(&b->batch, batch);
	TAILQ_INSERT_TAIL(&s->batches, b, link);
	return 0;
}

static void batch_drop(struct sim_store *s, bool flush)
{
	struct sim_batch *b = TAILQ_FIRST(&s->batches);

	TAILQ_REMOVE(&s->batches, b, link);
	if (flush && kv_apply(s->flushed, &b->batch) < 0)
		abort();
	kv_batch_fini(&b->batch);
	free(b);
}

static int k_flush(struct kv *kv)
{
	struct sim_store *s = store_of(kv);

	while (!TAILQ_EMPTY(&s->batches))
		batch_drop(s, true);
	return 0;
}

static int k_scan(struct kv *kv, struct kv_slice from, struct kv_slice to,
		  bool (*cb)(void *arg, struct kv_slice key,
			     struct kv_slice value),
		  void *arg)
{
	return kv_scan(store_of(kv)->now, from, to, cb, arg);
}

static const struct kv_ops k_ops = {
	.close = k_close,
	.get = k_get,
	.apply = k_apply,
	.flush = k_flush,
	.scan = k_scan,
};

int sim_store_open(struct sim *sim, const struct kv_config *config,
		   struct kv **out)
{
	struct sim_store *s = NULL;
	struct sim_kv *kv;
	unsigned i;

	for (i = 0; i < sim->stores_count; i++)
		if (strcmp(sim->stores[i].path, config->path) == 0)
			s = &sim->stores[i];
	if (s == NULL) {
		if (!config->create)
			return -ENOENT;
		if (sim->stores_count == SIM_STORES)
			abort();
		s = &sim->stores[sim->stores_count++];
		s->sim = sim;
		snprintf(s->path, sizeof(s->path), "%s", config->path);
		TAILQ_INIT(&s->batches);
	}
	if (s->now == NULL) {
		s->merge = config->merge;
		s->now = memkv_clone(NULL, s->merge);
		s->flushed = memkv_clone(NULL, s->merge);
	}
	kv = must(calloc(1, sizeof(*kv)));
	kv->kv.ops = &k_ops;
	kv->store = s;
	kv->log = config->log;
	*out = &kv->kv;
	return 0;
}

void sim_store_cut(struct sim_store *s)
{
	while (!TAILQ_EMPTY(&s->batches) && !sim_chance(s->sim, 3))
		batch_drop(s, true);
	while (!TAILQ_EMPTY(&s->batches))
		batch_drop(s, false);
	if (s->now != NULL) {
		kv_close(s->now);
		s->now = memkv_clone((struct memkv *)s->flushed, s->merge);
	}
	s->apply_eio = 0;
}

void sim_store_wipe(struct sim *sim, const char *path)
{
	unsigned i;

	for (i = 0; i < sim->stores_count; i++) {
		struct sim_store *s = &sim->stores[i];

		if (strcmp(s->path, path) != 0 || s->now == NULL)
			continue;
		while (!TAILQ_EMPTY(&s->batches))
			batch_drop(s, false);
		kv_close(s->now);
		kv_close(s->flushed);
		s->now = memkv_clone(NULL, s->merge);
		s->flushed = memkv_clone(NULL, s->merge);
	}
}
