/*
 * index: block -> (place, version, crc), pages in memory over the store.
 *
 * A page that the store does not have is whole at once.  One that it has is
 * faulted in behind the change: until then the page is an overlay of the slots
 * that changed, and when the stored slots arrive the larger version wins each.
 * So no write waits for its index page.
 *
 * Clean pages are in the LRU and may go; dirty ones wait for a checkpoint.  The
 * live counts of segments follow each change here and nowhere else.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/lsom_int.h"

#include "base/err.h"
#include "base/log.h"
#include "base/stats.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>

#define LOAD_AGAIN_NS (100 * MSEC)
#define EVICT_TURN 64u /* pages to be looked at, of those that may go */

static struct histogram loads = {
	.name = "basalt_lsom_index_load_seconds",
	.stage = "index load",
	.rank = 50,
	.help = "pages of the index that were not in memory",
};

void lsom__index_init(void)
{
	histogram_register(&loads);
}

static bool stored(const struct lsom_comp *comp, uint64_t number)
{
	return comp->stored_bytes > number / 8 &&
	       (comp->stored_pages[number / 8] >> (number % 8) & 1);
}

int lsom__stored_fit(struct lsom_comp *comp, size_t bytes)
{
	uint8_t *p;

	if (bytes <= comp->stored_bytes)
		return 0;
	p = realloc(comp->stored_pages, bytes);
	if (p == NULL)
		return -ENOMEM;
	memset(p + comp->stored_bytes, 0, bytes - comp->stored_bytes);
	comp->stored_pages = p;
	comp->stored_bytes = bytes;
	return 0;
}

struct lsom__page *lsom__page_find(const struct lsom_comp *comp,
				   uint64_t number)
{
	uint64_t dir = number / LSOM__DIR_PAGES;

	if (dir >= comp->dirs_count || comp->dirs[dir] == NULL)
		return NULL;
	return comp->dirs[dir][number % LSOM__DIR_PAGES];
}

static int dirs_grow(struct lsom_comp *comp, uint64_t dir)
{
	size_t count = MAX((size_t)dir + 1, comp->dirs_count * 2);
	struct lsom__page ***dirs;

	if (dir >= comp->dirs_count) {
		dirs = realloc(comp->dirs, count * sizeof(*dirs));
		if (dirs == NULL)
			return -ENOMEM;
		memset(dirs + comp->dirs_count, 0,
		       (count - comp->dirs_count) * sizeof(*dirs));
		comp->dirs = dirs;
		comp->dirs_count = count;
	}
	if (comp->dirs[dir] == NULL) {
		comp->dirs[dir] =
			calloc(LSOM__DIR_PAGES, sizeof(*comp->dirs[dir]));
		if (comp->dirs[dir] == NULL)
			return -ENOMEM;
	}
	return 0;
}

bool lsom__page_exists(const struct lsom_comp *comp, uint64_t number)
{
	const struct lsom__page *page = lsom__page_find(comp, number);

	return page != NULL ? !page->gone : stored(comp, number);
}

uint64_t lsom__page_next(const struct lsom_comp *comp, uint64_t number)
{
	uint64_t end = MAX((uint64_t)comp->dirs_count * LSOM__DIR_PAGES,
			   (uint64_t)comp->stored_bytes * 8);

	while (number < end) {
		if (lsom__page_exists(comp, number))
			return number;
		/* Skip whole directories that have nothing. */
		if (number % 8 == 0 &&
		    (number / LSOM__DIR_PAGES >= comp->dirs_count ||
		     comp->dirs[number / LSOM__DIR_PAGES] == NULL) &&
		    (number / 8 >= comp->stored_bytes ||
		     comp->stored_pages[number / 8] == 0))
			number += 8;
		else
			number++;
	}
	return UINT64_MAX;
}

/* ---- loading ---- */

/*
 * @count slots of @page, which were @old, are @now and those behind it, or
 * nothing (NULL): count that, once for neighbours of one segment.
 */
static void slots_count(const struct lsom__page *page,
			const struct lsom__slot *old, unsigned count,
			const struct lsom__entry *now)
{
	struct lsom_disk *disk = page->comp->disk;
	uint32_t segment = LSOM__NONE;
	uint64_t first = 0, place;
	int64_t dead = 0; /* of @segment, which begins at @first */
	bool mapped = now != NULL && now->kind == LSOM__E_RAW;
	int n = 0;

	/* What becomes free is kept for its component before others may take it. */
	for (unsigned i = 0; i < count && !mapped; i++)
		n -= lsom__slot_kind(&old[i]) == LSOM__E_RAW;
	if (n != 0)
		lsom__comp_mapped(page->comp, page->number, n);
	/* One record's, so they lie in one segment. */
	if (mapped) {
		lsom__segment_live(disk, now->place, count);
		n = (int)count;
	}
	for (unsigned i = 0; i < count; i++) {
		if (lsom__slot_kind(&old[i]) != LSOM__E_RAW)
			continue;
		place = lsom__slot_place(&old[i]);
		if (place - first >= disk->segment_blocks || dead == 0) {
			if (dead > 0)
				lsom__segment_count(disk, segment, -dead);
			segment = lsom__segment_of(disk, place);
			first = lsom__place(disk, segment, 0);
			dead = 0;
		}
		dead++;
		n--;
	}
	if (dead > 0)
		lsom__segment_count(disk, segment, -dead);
	if (mapped && n != 0)
		lsom__comp_mapped(page->comp, page->number, n);
}

/* Fold the stored slots under the overlay.  -ENOMEM: it is as before. */
static int page_fill(struct lsom__page *page, const void *value, size_t len)
{
	struct lsom_disk *disk = page->comp->disk;
	struct lsom__entry mine, theirs;
	struct lsom__slots old;
	unsigned i;
	int rv;

	lsom__slots_init(&old);
	rv = lsom__slots_decode(value, len, &old, NULL);
	if (rv == 0)
		rv = lsom__slots_room(&page->slots, old.epochs_count);
	for (i = 0; i < LSOM__PAGE_SLOTS && rv == 0; i++) {
		lsom__slots_get(&old, i, &theirs);
		if (theirs.kind == LSOM__E_RAW &&
		    lsom__segment_of(disk, theirs.place) == LSOM__NONE) {
			rv = -EUCLEAN;
			break;
		}
		if (old.slot[i].bits == 0)
			continue;
		if (!lsom__bit(page->known, i)) {
			rv = lsom__slots_set(&page->slots, i, 1, &theirs, NULL);
			continue;
		}
		lsom__slots_get(&page->slots, i, &mine);
		if (lsom__version_compare(&mine, &theirs) >= 0) {
			/*
			 * If this one is of the overlay, what that replaced is
			 * not known any more, and is counted on.
			 */
			if (page->again && lsom__bit(page->put, i))
				lsom__comp_unsure(page->comp);
			else if (mine.place != theirs.place ||
				 mine.kind != theirs.kind)
				slots_count(page, &old.slot[i], 1, NULL);
			continue;
		}
		slots_count(page, &page->slots.slot[i], 1, NULL);
		rv = lsom__slots_set(&page->slots, i, 1, &theirs, NULL);
	}
	lsom__slots_fini(&old);
	return rv;
}

static void page_wake(struct lsom__page *page, int status)
{
	STAILQ_HEAD(, lsom__page_wait) waits = STAILQ_HEAD_INITIALIZER(waits);
	struct lsom__page_wait *wait;

	page->pins++; /* callbacks may evict */
	/* Who asks again from there waits for the next load. */
	STAILQ_CONCAT(&waits, &page->waits);
	while ((wait = STAILQ_FIRST(&waits)) != NULL) {
		STAILQ_REMOVE_HEAD(&waits, link);
		wait->cb(wait, status);
	}
	page->pins--;
}

static void lru_add(struct lsom__page *page)
{
	if (!page->is_dirty)
		TAILQ_INSERT_TAIL(&page->comp->disk->lru, page, lru);
}

static void page_load_work(struct env_work *work)
{
	struct lsom__page *page = container_of(work, struct lsom__page, load);

	page->load_status =
		lsom__page_read(page->comp->disk->kv, page->comp->key,
				page->number, &page->loaded_value,
				&page->loaded_len);
}

static void page_load_done(struct env_work *work);

static void page_load_start(struct lsom__page *page)
{
	struct lsom_disk *disk = page->comp->disk;

	page->load.work = page_load_work;
	page->load.done = page_load_done;
	env_work(disk->env, disk->index_lane, &page->load);
}

void lsom__loads_again(struct env_timer *timer)
{
	struct lsom_disk *disk =
		container_of(timer, struct lsom_disk, loads_timer);
	struct lsom__page *page;

	while ((page = TAILQ_FIRST(&disk->loads_again)) != NULL) {
		TAILQ_REMOVE(&disk->loads_again, page, lru);
		page_load_start(page);
	}
}

/*
 * What it wants is not the store's: who waits is told, and it is read again, for
 * what was changed meanwhile has to meet it.  A checkpoint may put that into the
 * store before: page_fill().
 */
static void page_load_later(struct lsom__page *page, int status)
{
	struct lsom_disk *disk = page->comp->disk;

	if (!disk->loads_starved)
		log_warn("disk %s: reading its index: %s; it is tried again",
			 disk->path, err_text(status));
	disk->loads_starved = true;
	page->again = true;
	if (TAILQ_EMPTY(&disk->loads_again))
		env_timer_start(disk->env, &disk->loads_timer, LOAD_AGAIN_NS);
	TAILQ_INSERT_TAIL(&disk->loads_again, page, lru);
	page_wake(page, -ENOMEM);
}

/* The overlay had that many slots of which nobody knew what they replaced. */
static void page_known(struct lsom__page *page)
{
	struct lsom_comp *comp = page->comp;

	assert(comp->disk->unknown >= page->unknown);
	comp->disk->unknown -= page->unknown;
	comp->unknown -= page->unknown;
	if (page->unknown > 0)
		lsom__comp_dirty(comp); /* of a better count */
	page->unknown = 0;
}

/*
 * Who closes the disk does not wait for what it wants: what was changed is in the
 * log, and meets the rest in the store.
 */
static void page_load_done(struct env_work *work)
{
	struct lsom__page *page = container_of(work, struct lsom__page, load);
	struct lsom_comp *comp = page->comp;
	struct lsom_disk *disk = comp->disk;
	int status = page->load_status;
	bool wants;

	assert(page->loading);
	lsom__transit_begin(disk);
	if (status == 0)
		status = page_fill(page, page->loaded_value, page->loaded_len);
	else if (status == -ENOENT)
		status = -EUCLEAN; /* its bit said it is there */
	lsom__transit_end(disk);
	free(page->loaded_value);
	page->loaded_value = NULL;
	wants = (status == -ENOMEM || status == -EMFILE || status == -ENFILE) &&
		disk->state != LSOM_DISK_FAILED;
	if (wants && !disk->closing) {
		page_load_later(page, status);
		return;
	}
	histogram_add(&loads, env_now(disk->env) - page->load_since_ns);
	page->loading = false;
	assert(disk->loads > 0);
	disk->loads--;
	disk->works--;
	disk->loads_starved &= status < 0;
	if (!wants)
		page_known(page);
	if (wants) {
		status = -ENOMEM;
	} else if (status < 0) {
		log_error("disk %s: index page %llu of component %llu: %s",
			  disk->path, (unsigned long long)page->number,
			  (unsigned long long)comp->key, err_text(status));
		lsom__index_fail(disk, "reading the index", status);
	} else {
		page->loaded = true;
	}
	lru_add(page);
	page_wake(page, status);
	lsom__pages_evict(disk);
	lsom__disk_changed(disk);
	lsom__comp_unref(comp);
}

static void page_load(struct lsom__page *page)
{
	struct lsom_disk *disk = page->comp->disk;

	page->load_since_ns = env_now(disk->env);
	page->loading = true;
	lsom__comp_ref(page->comp);
	disk->loads++;
	disk->works++;
	page_load_start(page);
}

/* While recovering, on the recovery's own thread, it may block. */
static int page_load_now(struct lsom__page *page)
{
	size_t len;
	void *value;
	int rv = lsom__page_read(page->comp->disk->kv, page->comp->key,
				 page->number, &value, &len);

	if (rv < 0)
		return rv == -ENOENT ? -EUCLEAN : rv;
	rv = page_fill(page, value, len);
	free(value);
	page->loaded = rv == 0;
	return rv;
}

/* Before there is one page more, those that may go make room for it. */
static int page_room(struct lsom_disk *disk)
{
	int rv;

	if (disk->spills && disk->dirty_count > disk->lsom->pages_max / 2) {
		rv = lsom__pages_spill(disk);
		if (rv < 0) {
			lsom__index_fail(disk, "writing the index", rv);
			return rv;
		}
	}
	lsom__pages_evict(disk);
	return 0;
}

struct lsom__page *lsom__page_get(struct lsom_comp *comp, uint64_t number)
{
	struct lsom_disk *disk = comp->disk;
	struct lsom__page *page = lsom__page_find(comp, number);
	int rv = 0;

	if (page != NULL) {
		if (!page->is_dirty && !page->loading) {
			TAILQ_REMOVE(&disk->lru, page, lru);
			TAILQ_INSERT_TAIL(&disk->lru, page, lru);
		}
		return page;
	}
	if (page_room(disk) < 0)
		return NULL;
	if (dirs_grow(comp, number / LSOM__DIR_PAGES) < 0)
		return NULL;
	page = calloc(1, sizeof(*page));
	if (page == NULL)
		return NULL;
	page->comp = comp;
	page->number = number;
	lsom__slots_init(&page->slots);
	STAILQ_INIT(&page->waits);
	page->loaded = !stored(comp, number);
	if (!page->loaded && disk->recovery != NULL)
		rv = page_load_now(page);
	if (rv < 0) {
		lsom__index_fail(disk, "reading the index", rv);
		lsom__slots_fini(&page->slots);
		free(page);
		return NULL;
	}
	comp->dirs[number / LSOM__DIR_PAGES][number % LSOM__DIR_PAGES] = page;
	disk->pages_count++;
	if (page->loaded)
		lru_add(page);
	else
		page_load(page);
	return page;
}

int lsom__page_want(struct lsom_comp *comp, uint64_t number,
		    struct lsom__page **out, struct lsom__page_wait *wait)
{
	struct lsom__page *page;

	if (!lsom__page_exists(comp, number))
		return -ENOENT;
	page = lsom__page_get(comp, number);
	if (page == NULL)
		return -ENOMEM;
	if (page->loaded) {
		*out = page;
		return 0;
	}
	/* The load failed, and the disk with it; or it was closed before. */
	if (!page->loading)
		return comp->disk->closing ? -ENOMEM : -EUCLEAN;
	STAILQ_INSERT_TAIL(&page->waits, wait, link);
	return -EAGAIN;
}

static void range_wake(struct lsom__page_wait *wait, int status)
{
	struct lsom__range *range =
		container_of(wait, struct lsom__range, wait);

	if (status == 0)
		status = lsom__range_load(range);
	if (status != -EAGAIN)
		range->cb(range, status);
}

int lsom__range_load(struct lsom__range *range)
{
	struct lsom__page *page;
	int rv;

	assert(range->blocks <= LSOM__PAGE_SLOTS);
	range->wait.cb = range_wake;
	if (range->pages_count == 0 && range->next < range->first)
		range->next = range->first;
	while (range->next < range->first + range->blocks) {
		rv = lsom__page_want(range->comp,
				     range->next / LSOM__PAGE_SLOTS, &page,
				     &range->wait);
		if (rv == -ENOENT && range->make) {
			page = lsom__page_get(range->comp,
					      range->next / LSOM__PAGE_SLOTS);
			rv = page == NULL ? -ENOMEM : 0;
		}
		if (rv < 0 && rv != -ENOENT)
			return rv;
		if (rv == 0) {
			page->pins++;
			range->pages[range->pages_count++] = page;
		}
		range->next = ROUND_DOWN(range->next, LSOM__PAGE_SLOTS) +
			      LSOM__PAGE_SLOTS;
	}
	return 0;
}

void lsom__range_unpin(struct lsom__range *range)
{
	while (range->pages_count > 0) {
		assert(range->pages[range->pages_count - 1]->pins > 0);
		range->pages[--range->pages_count]->pins--;
	}
}

bool lsom__entry_here(const struct lsom_comp *comp, uint64_t block,
		      uint64_t place, uint8_t kind)
{
	struct lsom__page *page =
		lsom__page_find(comp, block / LSOM__PAGE_SLOTS);
	struct lsom__entry e;

	if (page == NULL || page->gone)
		return false;
	lsom__slots_get(&page->slots, block % LSOM__PAGE_SLOTS, &e);
	return e.kind == kind && e.place == place;
}

/* ---- changing ---- */

void lsom__page_dirty(struct lsom__page *page, unsigned slot, unsigned count)
{
	struct lsom_disk *disk = page->comp->disk;

	lsom__bits_set(page->dirty, slot, count);
	if (page->is_dirty)
		return;
	if (!page->loading)
		TAILQ_REMOVE(&disk->lru, page, lru);
	page->is_dirty = true;
	disk->dirty_count++;
	lsom__checkpoint_arm(disk);
	TAILQ_INSERT_TAIL(&disk->dirty_pages, page, dirty_link);
}

void lsom__page_clean(struct lsom__page *page)
{
	struct lsom_disk *disk = page->comp->disk;

	assert(page->is_dirty);
	memset(page->dirty, 0, sizeof(page->dirty));
	page->is_dirty = false;
	assert(disk->dirty_count > 0);
	disk->dirty_count--;
	assert(disk->holes_dirty >= page->emptied);
	disk->holes_dirty -= page->emptied;
	page->emptied = false;
	TAILQ_REMOVE(&disk->dirty_pages, page, dirty_link);
	if (!page->loading)
		lru_add(page);
}

static bool applies(const struct lsom__entry *old,
		    const struct lsom__entry *now, enum lsom__apply how,
		    uint64_t source)
{
	int order = lsom__version_compare(now, old);

	switch (how) {
	case LSOM__APPLY_NEWER:
		break; /* lsom__slots_older() */
	case LSOM__APPLY_REPAIR:
		/* The rebuild goes by version alone: the two must agree. */
		return old->lsn == now->lsn && order >= 0 &&
		       old->kind == LSOM__E_RAW;
	case LSOM__APPLY_MOVE:
	case LSOM__APPLY_DROP:
		return order == 0 && old->kind != LSOM__E_EMPTY &&
		       old->place == source;
	case LSOM__APPLY_REPLAY:
		/* @source 0: a repair, of an equal version. */
		return order > 0 ||
		       (order == 0 && (source == 0 || old->place == source));
	}
	return false;
}

/* Does slot @slot become @now? */
static bool slot_takes(const struct lsom__page *page, unsigned slot,
		       const struct lsom__entry *now, enum lsom__apply how,
		       uint64_t source)
{
	struct lsom__entry old;

	if (page->slots.slot[slot].bits == 0)
		return how == LSOM__APPLY_REPLAY;
	lsom__slots_get(&page->slots, slot, &old);
	return applies(&old, now, how, source) ||
	       (how == LSOM__APPLY_MOVE &&
		!lsom__rule(page->comp->disk, LSOM_OFF_MOVE));
}

/* How many of @count slots from @slot on do. */
static unsigned slots_taking(const struct lsom__page *page, unsigned slot,
			     unsigned count, const struct lsom__entry *now,
			     enum lsom__apply how, uint64_t source,
			     unsigned source_step)
{
	unsigned n;

	if (how == LSOM__APPLY_NEWER)
		return lsom__slots_older(&page->slots, slot, count, now);
	for (n = 0; n < count; n++, source += source_step)
		if (!slot_takes(page, slot + n, now, how, source))
			break;
	return n;
}

/* They are in the page now: the books follow. */
static void slots_changed(struct lsom__page *page, unsigned slot,
			  unsigned count, const struct lsom__slot *old,
			  const struct lsom__entry *now)
{
	unsigned unknown = 0;

	slots_count(page, old, count, now);
	for (unsigned i = slot; i < slot + count && !page->loaded; i++)
		unknown += !lsom__bit(page->known, i);
	if (unknown > 0) { /* once: other shards look at these */
		lsom__bits_set(page->known, slot, count);
		page->unknown += unknown;
		page->comp->unknown += unknown;
		page->comp->disk->unknown += unknown;
	}
	lsom__page_dirty(page, slot, count);
}

static int index_apply(struct lsom_comp *comp, uint64_t block, unsigned count,
		       const struct lsom__entry *entry, const uint32_t *crcs,
		       enum lsom__apply how, uint64_t source)
{
	unsigned slot = block % LSOM__PAGE_SLOTS, i, n;
	const unsigned step = entry->kind == LSOM__E_RAW ? 1 : 0;
	const unsigned source_step = source != 0 ? step : 0;
	struct lsom__slot old[LSOM__PAGE_SLOTS];
	struct lsom__entry now = *entry;
	struct lsom__page *page;
	int rv;

	assert(slot + count <= LSOM__PAGE_SLOTS);
	/* These change what is there; a page made for nothing would cost one. */
	if ((how == LSOM__APPLY_REPAIR || how == LSOM__APPLY_MOVE ||
	     how == LSOM__APPLY_DROP) &&
	    !lsom__page_exists(comp, block / LSOM__PAGE_SLOTS))
		return 0;
	page = lsom__page_get(comp, block / LSOM__PAGE_SLOTS);
	if (page == NULL)
		return -ENOMEM;
	if (page->gone)
		return 0;
	/* Moves and repairs look at what is there: callers have it loaded. */
	assert(page->loaded || how == LSOM__APPLY_NEWER);
	memcpy(old, &page->slots.slot[slot], count * sizeof(*old));
	for (i = 0; i < count; i += MAX(n, 1u)) {
		n = slots_taking(page, slot + i, count - i, &now, how,
				 source + (uint64_t)i * source_step,
				 source_step);
		if (n == 0)
			continue;
		now.place = entry->place + (uint64_t)i * step;
		rv = lsom__slots_set(&page->slots, slot + i, n, &now,
				     crcs != NULL ? crcs + i : NULL);
		if (rv < 0)
			return rv;
		slots_changed(page, slot + i, n, &old[i], &now);
	}
	if (now.kind == LSOM__E_HOLE && count == LSOM__PAGE_SLOTS &&
	    page->is_dirty && !page->emptied) {
		page->emptied = true;
		comp->disk->holes_dirty++;
	}
	return 0;
}

int lsom__index_apply(struct lsom_comp *comp, uint64_t block, unsigned count,
		      const struct lsom__entry *entry, const uint32_t *crcs,
		      enum lsom__apply how, uint64_t source)
{
	int rv;

	/* What is applied already is passed over, or is the same again. */
	do
		rv = index_apply(comp, block, count, entry, crcs, how, source);
	while (rv == -ENOMEM && how != LSOM__APPLY_MOVE &&
	       how != LSOM__APPLY_DROP && lsom__page_shed(comp->disk));
	return rv;
}

/* ---- letting go ---- */

void lsom__page_release(struct lsom_comp *comp, struct lsom__page *page)
{
	slots_count(page, page->slots.slot, LSOM__PAGE_SLOTS, NULL);
	memset(page->slots.slot, 0, sizeof(page->slots.slot));
	page->gone = true;
	lsom__page_dirty(page, 0, 1);
}

void lsom__page_free(struct lsom__page *page)
{
	struct lsom_comp *comp = page->comp;
	struct lsom_disk *disk = comp->disk;

	assert(!page->loading);
	assert(page->pins == 0);
	assert(STAILQ_EMPTY(&page->waits));
	if (page->is_dirty)
		lsom__page_clean(page);
	TAILQ_REMOVE(&disk->lru, page, lru);
	comp->dirs[page->number / LSOM__DIR_PAGES]
		  [page->number % LSOM__DIR_PAGES] = NULL;
	assert(disk->pages_count > 0);
	disk->pages_count--;
	lsom__slots_fini(&page->slots);
	free(page);
}

void lsom__index_drop(struct lsom_comp *comp)
{
	size_t i, j;

	for (i = 0; i < comp->dirs_count; i++) {
		for (j = 0; comp->dirs[i] != NULL && j < LSOM__DIR_PAGES; j++)
			if (comp->dirs[i][j] != NULL)
				lsom__page_free(comp->dirs[i][j]);
		free(comp->dirs[i]);
	}
	free(comp->dirs);
	comp->dirs = NULL;
	comp->dirs_count = 0;
}

/* In a batch that the store does not have yet, it has to stay. */
static bool may_go(const struct lsom__page *page)
{
	return page->pins == 0 && page->loaded &&
	       page->put_number <= page->comp->disk->checkpoint_applied;
}

bool lsom__page_shed(struct lsom_disk *disk)
{
	struct lsom__page *page;

	if (disk->kv == NULL || disk->state == LSOM_DISK_FAILED)
		return false;
	TAILQ_FOREACH (page, &disk->lru, lru)
		if (may_go(page)) {
			lsom__page_free(page);
			return true;
		}
	return false;
}

/* In a turn of its own: on a disk that rests there is no other. */
static void evict_again(struct lsom_disk *disk)
{
	if (disk->state == LSOM_DISK_OPENING || disk->closing ||
	    disk->evict_task.queued)
		return;
	disk->works++;
	env_defer(disk->env, &disk->evict_task);
}

void lsom__evict_run(struct env_task *task)
{
	struct lsom_disk *disk =
		container_of(task, struct lsom_disk, evict_task);

	disk->works--;
	lsom__pages_evict(disk);
	lsom__disk_changed(disk);
}

void lsom__pages_evict(struct lsom_disk *disk)
{
	const size_t before = disk->pages_count, max = disk->lsom->pages_max;
	struct lsom__page *page, *next;
	unsigned tries = EVICT_TURN;

	if (disk->kv == NULL)
		return;
	for (page = TAILQ_FIRST(&disk->lru);
	     page != NULL && tries > 0 && disk->pages_count > max;
	     page = next, tries--) {
		next = TAILQ_NEXT(page, lru);
		if (may_go(page)) {
			lsom__page_free(page);
			continue;
		}
		/* Maybe for long, so not in the way of those behind it. */
		TAILQ_REMOVE(&disk->lru, page, lru);
		TAILQ_INSERT_TAIL(&disk->lru, page, lru);
	}
	/* What bars the others a checkpoint ends, which comes here. */
	if (disk->pages_count > max && disk->pages_count < before)
		evict_again(disk);
}
