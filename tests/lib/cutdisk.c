/* cutdisk: see cutdisk.h. */
#include "tests/lib/cutdisk.h"
#include "lsom/format.h"
#include "tests/lib/memkv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct io_event *event_of(const struct cut_disk *cut, unsigned k)
{
	return &cut->record.events[cut->risk[k].event];
}

/* ---- making a state ---- */

static bool block_dead(const struct cut_write *w, uint64_t at)
{
	return w->dead[at / BLOCK / 8] & 1u << at / BLOCK % 8;
}

static void block_kill(struct cut_write *w, uint64_t at)
{
	w->dead[at / BLOCK / 8] |= (uint8_t)(1u << at / BLOCK % 8);
}

static bool sector_zero(const uint8_t *sector)
{
	return sector[0] == 0 && memcmp(sector, sector + 1, SECTOR - 1) == 0;
}

void cut_header(const struct cut_disk *cut, unsigned k, uint32_t *first,
		uint32_t *end)
{
	const struct io_event *e = event_of(cut, k);
	struct lsom__batch_header h;
	uint64_t at = 0;
	uint32_t magic;

	*first = *end = 0;
	memcpy(&magic, e->data, sizeof(magic));
	if (magic == LSOM__SEGMENT_MAGIC)
		at = BLOCK; /* the segment's own header goes with the batch */
	if (at + sizeof(h) > e->len)
		return;
	memcpy(&h, e->data + at, sizeof(h));
	if (h.magic != LSOM__BATCH_MAGIC)
		return;
	*first = (uint32_t)(at / SECTOR);
	*end = *first + (uint32_t)h.header_blocks * SECTORS;
	if (*end > e->len / SECTOR)
		*end = *first;
	while (*end > *first &&
	       sector_zero(e->data + (size_t)(*end - 1) * SECTOR))
		--*end;
}

void cut_keep_all_as(struct cut_disk *cut, enum cut_keep keep)
{
	for (unsigned i = 0; i < cut->risk_count; i++)
		cut->risk[i].keep = keep;
}

static bool sector_kept(const struct cut_write *w, uint32_t sector,
			uint32_t first, uint32_t end, uint64_t *dice)
{
	bool header = sector >= first && sector < end;

	switch (w->keep) {
	case CUT_NONE:
		return false;
	case CUT_ALL:
		return true;
	case CUT_HEAD:
		return sector < w->arg;
	case CUT_RANDOM:
		return random_next(dice) & 1;
	case CUT_HEADER_HEAD:
		return !header || sector - first < w->arg;
	case CUT_HEADER_WITHOUT:
		return !header || sector - first != w->arg;
	case CUT_HEADER_RANDOM:
		return !header || (random_next(dice) & 1);
	}
	abort();
}

static void write_make(struct cut_disk *cut, unsigned k, uint64_t dice)
{
	const struct cut_write *w = &cut->risk[k];
	const struct io_event *e = event_of(cut, k);
	uint32_t first, end;

	cut_header(cut, k, &first, &end);
	for (uint64_t at = 0; at < e->len; at += BLOCK) {
		unsigned mask = 0;

		for (unsigned s = 0; s < SECTORS; s++)
			if (sector_kept(w, (uint32_t)(at / SECTOR) + s, first,
					end, &dice))
				mask |= 1u << s;
		if (mask == 0 || block_dead(w, at))
			continue;
		if (mask == (1u << SECTORS) - 1) {
			memenv_lay(&cut->me, e->offset + at, e->data + at);
			continue;
		}
		for (unsigned s = 0; s < SECTORS; s++)
			if (mask & 1u << s)
				memenv_poke(&cut->me,
					    e->offset + at + s * SECTOR,
					    e->data + at + s * SECTOR, SECTOR);
	}
}

void cut_make(struct cut_disk *cut, unsigned index, uint64_t salt)
{
	memenv_reset(&cut->me);
	cut->me.kv_base = cut->index[index];
	for (unsigned k = 0; k < cut->risk_count; k++)
		if (cut->risk[k].keep != CUT_NONE)
			write_make(cut, k, salt ^ event_of(cut, k)->id << 16);
}

/* ---- walking the record ---- */

/* The write at @k stays on the disk, but for what is newer there. */
static void risk_to_image(struct cut_disk *cut, unsigned k)
{
	const struct io_event *e = event_of(cut, k);

	for (uint64_t at = 0; at < e->len; at += BLOCK)
		if (!block_dead(&cut->risk[k], at))
			memcpy(cut->image + e->offset + at, e->data + at,
			       BLOCK);
	/* What was written before it can no longer come to light. */
	for (unsigned j = 0; j < k; j++) {
		const struct io_event *o = event_of(cut, j);

		for (uint64_t at = 0; at < o->len; at += BLOCK)
			if (o->offset + at >= e->offset &&
			    o->offset + at < e->offset + e->len)
				block_kill(&cut->risk[j], at);
	}
}

static void risk_drop(struct cut_disk *cut, unsigned k)
{
	cut->risk_count--;
	memmove(&cut->risk[k], &cut->risk[k + 1],
		(cut->risk_count - k) * sizeof(cut->risk[0]));
}

static int risk_add(struct cut_disk *cut, size_t i)
{
	const struct io_event *e = &cut->record.events[i];

	if (e->offset > cut->image_bytes ||
	    e->len > cut->image_bytes - e->offset || e->len == 0 ||
	    e->offset % BLOCK || e->len % BLOCK ||
	    e->len > CUT_WRITE_BLOCKS_MAX * BLOCK)
		return -ERANGE;
	if (cut->risk_count == CUT_RISK_MAX) {
		/* Too many to vary: the oldest stays whole. */
		risk_to_image(cut, 0);
		risk_drop(cut, 0);
	}
	cut->risk[cut->risk_count++] = (struct cut_write){ .event = i };
	return 0;
}

static int batch_add(struct cut_disk *cut, size_t i)
{
	unsigned n = cut->batches_count;
	struct kv_batch batch;
	int rv;

	if (n == CUT_BATCHES_MAX)
		return -ERANGE;
	rv = io_event_batch(&cut->record.events[i], &batch);
	if (rv != 0)
		return rv;
	cut->index[n + 1] =
		memkv_clone((struct memkv *)cut->index[n], cut->merge);
	rv = kv_apply(cut->index[n + 1], &batch);
	kv_batch_fini(&batch);
	cut->batch[n] = i;
	cut->batches_count++;
	return rv;
}

/* What became durable with event @i can no longer be lost. */
static void settle(struct cut_disk *cut, size_t i)
{
	for (unsigned k = 0; k < cut->risk_count;)
		if (event_of(cut, k)->safe_at <= i) {
			risk_to_image(cut, k);
			risk_drop(cut, k);
		} else {
			k++;
		}
	while (cut->batches_count > 0 &&
	       cut->record.events[cut->batch[0]].safe_at <= i) {
		kv_close(cut->index[0]);
		cut->batches_count--;
		memmove(&cut->batch[0], &cut->batch[1],
			cut->batches_count * sizeof(cut->batch[0]));
		memmove(&cut->index[0], &cut->index[1],
			(cut->batches_count + 1) * sizeof(cut->index[0]));
	}
}

int cut_event(struct cut_disk *cut, size_t i)
{
	int rv = 0;

	if (cut->record.events[i].kind == RECORD_WRITE)
		rv = risk_add(cut, i);
	else if (cut->record.events[i].kind == RECORD_STORE_BATCH)
		rv = batch_add(cut, i);
	settle(cut, i);
	return rv;
}

/* ---- the start ---- */

static bool base_add(void *arg, struct kv_slice key, struct kv_slice value)
{
	memkv_put(arg, key, value);
	return true;
}

static int base_read(struct cut_disk *cut, const char *path)
{
	struct kv_config config = { .path = path, .merge = cut->merge };
	struct kv *kv;
	int rv = kv_rocksdb_open(&config, &kv);

	if (rv != 0)
		return rv;
	cut->base = memkv_clone(NULL, cut->merge);
	rv = kv_scan(kv, kv_slice("", 0), kv_slice(NULL, 0), base_add,
		     cut->base);
	kv_close(kv);
	return rv;
}

static void indexes_close(struct cut_disk *cut)
{
	if (cut->index[0] == NULL)
		return;
	for (unsigned i = 0; i <= cut->batches_count; i++)
		kv_close(cut->index[i]);
	cut->batches_count = 0;
}

void cut_rewind(struct cut_disk *cut)
{
	/* A private mapping anew: what was changed is as in the file. */
	if (mmap(cut->image, cut->image_bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_FIXED, cut->fd, 0) == MAP_FAILED)
		abort();
	indexes_close(cut);
	cut->index[0] = memkv_clone((struct memkv *)cut->base, cut->merge);
	cut->risk_count = 0;
}

int cut_open(const char *image_path, const char *index_path,
	     const char *record_path, kv_merge_fn merge, bool ignore_durable,
	     struct cut_disk *cut)
{
	struct stat st;
	int rv;

	memset(cut, 0, sizeof(*cut));
	cut->merge = merge;
	cut->fd = open(image_path, O_RDONLY | O_CLOEXEC);
	if (cut->fd < 0 || fstat(cut->fd, &st) != 0)
		return -errno;
	cut->image_bytes = (uint64_t)st.st_size / BLOCK * BLOCK;
	cut->image = mmap(NULL, cut->image_bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE, cut->fd, 0);
	if (cut->image == MAP_FAILED)
		return -errno;
	memenv_init(&cut->me, cut->image, cut->image_bytes);
	rv = io_record_open(record_path, ".img", ignore_durable, &cut->record);
	if (rv == 0)
		rv = base_read(cut, index_path);
	if (rv == 0)
		cut_rewind(cut);
	return rv;
}

void cut_close(struct cut_disk *cut)
{
	indexes_close(cut);
	kv_close(cut->base);
	io_record_close(&cut->record);
	memenv_fini(&cut->me);
	munmap(cut->image, cut->image_bytes);
	close(cut->fd);
}
