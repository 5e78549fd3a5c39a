/* state_check: a store on a state, its blocks and its components. */
#include "tests/lib/state_check.h"

#include "base/sgl.h"
#include "lsom/lsom_int.h"
#include "tests/lib/must.h"

#include <errno.h>

#define RECENT 256u /* journal entries whose blocks are always checked */
#define READ_BLOCKS (LSOM_WRITE_MAX / BLOCK)

/* Of a hard disk that takes 5 ms to get anywhere and reads 100 MiB/s. */
#define ACCESS_NS (5 * MSEC)
#define MIB_NS (10 * MSEC)

struct waiter {
	bool done;
	int status;
};

static void on_open(struct lsom_disk_open *req, int status)
{
	*(struct waiter *)req->data = (struct waiter){ true, status };
}

static void on_close(struct lsom_disk_close *req, int status)
{
	*(struct waiter *)req->data = (struct waiter){ true, status };
}

static void on_read(struct lsom_read *req, int status)
{
	*(struct waiter *)req->data = (struct waiter){ true, status };
}

/* Read blocks [@index, @index + @n) and compare them. */
static void range_check(struct state_check *sc, struct lsom_comp *comp,
			uint64_t index, unsigned n)
{
	static uint8_t buf[LSOM_WRITE_MAX];
	struct waiter w = { false, 0 };
	struct lsom_read req = { .data = &w,
				 .offset = index * BLOCK,
				 .len = (uint64_t)n * BLOCK,
				 .class = PAGE_FRONT };
	int rv = lsom_read(comp, &req, on_read);
	char why[160];

	if (rv == 0 && !memenv_run(sc->me, &w.done))
		rv = -ETIMEDOUT;
	if (rv == 0)
		rv = w.status;
	if (rv != 0) {
		sc->bad("a read of %u blocks from %llu: %s", n,
			(unsigned long long)index, strerror(-rv));
		return;
	}
	sgl_read(req.sgl, 0, buf, req.len);
	sgl_put(req.sgl);
	sc->blocks_checked += n;
	for (unsigned i = 0; i < n; i++)
		if (!journal_check(sc->journal, index + i,
				   buf + (size_t)i * BLOCK, why, sizeof(why)))
			sc->bad("block %llu: %s", (unsigned long long)index + i,
				why);
}

/* What was touched last, and a few of the others. */
static void recent_mark(struct state_check *sc)
{
	const struct journal *j = sc->journal;
	size_t from = j->at > RECENT ? j->at - RECENT : 0;

	memset(sc->recent, 0, j->blocks_count);
	for (size_t i = from; i < j->at; i++) {
		const struct journal_entry *e = &j->entries[i];
		uint64_t first = e->offset / BLOCK;
		uint64_t last = (e->offset + e->len - 1) / BLOCK;

		memset(sc->recent + first, 1, last - first + 1);
	}
	for (unsigned i = 0; i < 32; i++)
		sc->recent[random_next(&sc->random) % j->blocks_count] = 1;
}

static void content_check(struct state_check *sc, struct lsom_comp *comp,
			  bool full)
{
	uint64_t blocks = sc->journal->blocks_count, n;

	if (full) {
		sc->full++;
		memset(sc->recent, 1, blocks);
	} else {
		recent_mark(sc);
	}
	for (uint64_t b = 0; b < blocks; b += n) {
		for (n = 0; b + n < blocks && n < READ_BLOCKS; n++)
			if (!sc->recent[b + n])
				break;
		if (n > 0)
			range_check(sc, comp, b, (unsigned)n);
		else
			n = 1;
	}
}

struct comps {
	struct state_check *sc;
	struct uuid cid[STATE_COMPS_MAX];
	unsigned count;
	uint64_t largest_bytes;
	struct uuid largest;
};

static void comp_note(struct lsom_comp *comp, void *arg)
{
	const struct lsom_comp_meta *m = lsom_comp_meta(comp);
	struct comps *list = arg;

	if (m->damaged)
		list->sc->bad("a component is said to be damaged");
	if (list->count < STATE_COMPS_MAX)
		list->cid[list->count++] = m->cid;
	if (m->size_bytes > list->largest_bytes) {
		list->largest_bytes = m->size_bytes;
		list->largest = m->cid;
	}
}

/* A component that is there must have been created, one that is not deleted. */
static void sides_check(const struct state_check *sc, const struct comps *list)
{
	for (unsigned i = 0; i < sc->sides_count; i++) {
		const struct state_side *s = &sc->sides[i];
		bool there = false;

		for (unsigned k = 0; k < list->count; k++)
			there = there || uuid_equal(&list->cid[k], &s->cid);
		if (there && s->deleted)
			sc->bad("deleted component %u is there", i);
		if (!there && s->created && !s->deleting)
			sc->bad("created component %u is gone", i);
	}
}

static void disk_check(struct state_check *sc, struct lsom_disk *disk,
		       bool full, struct snapshot *snapshot)
{
	struct comps list = { .sc = sc };
	struct lsom_disk_info info;
	struct lsom_comp *comp;
	int rv;

	lsom_disk_info(disk, &info);
	if (info.state != LSOM_DISK_ONLINE && info.state != LSOM_DISK_FULL)
		sc->bad("the disk comes up in state %d: %s", info.state,
			info.failure);
	if (info.recovery_ns > sc->slowest_ns)
		sc->slowest_ns = info.recovery_ns;
	lsom_comp_each(disk, comp_note, &list);
	sides_check(sc, &list);
	if (snapshot != NULL) {
		rv = snapshot_take(sc->me, disk, snapshot);
		if (rv != 0)
			sc->bad("scanning it: %s", strerror(-rv));
		return;
	}
	comp = lsom_comp_get(disk, &list.largest);
	if (comp == NULL) {
		sc->bad("the component is gone");
		return;
	}
	snapshot_take_over(comp);
	content_check(sc, comp, full);
	lsom_comp_put(comp);
}

/* Returns the disk, or NULL and says why. */
static struct lsom_disk *disk_open(struct state_check *sc, struct lsom *lsom,
				   bool rebuild)
{
	struct memenv *me = sc->me;
	struct waiter w = { false, 0 };
	struct lsom_disk_open req = { .data = &w,
				      .path = sc->disk_path,
				      .index_path = "index",
				      .cluster = sc->cluster,
				      .rebuild = rebuild };
	int rv;

	me->access_ns = ACCESS_NS;
	me->mib_ns = MIB_NS;
	me->accesses = me->bytes = 0;
	rv = lsom_disk_open(lsom, &req, on_open);
	if (rv == 0 && !memenv_run(me, &w.done))
		rv = -ETIMEDOUT;
	if (rv == 0)
		rv = w.status;
	me->access_ns = me->mib_ns = 0;
	if (me->accesses > sc->accesses_most)
		sc->accesses_most = me->accesses;
	if (me->bytes > sc->bytes_most)
		sc->bytes_most = me->bytes;
	if (rv == 0)
		return req.opened;
	sc->bad("%s refused: %s (%s)", rebuild ? "a rebuild is" : "it is",
		strerror(-rv), req.why);
	return NULL;
}

void state_check_open(struct state_check *sc, bool full, bool rebuild,
		      struct snapshot *snapshot)
{
	struct lsom_config config = { .env = &sc->me->loop.env,
				      .page_cache_bytes = 4u << 20 };
	struct lsom_disk_close close_req = { 0 };
	struct waiter w = { false, 0 };
	struct lsom_disk *disk;
	struct lsom *lsom;

	if (lsom_open(&config, &lsom) != 0)
		abort();
	disk = disk_open(sc, lsom, rebuild);
	if (disk != NULL) {
		disk_check(sc, disk, full, snapshot);
		close_req.data = &w;
		if (lsom_disk_close(disk, &close_req, on_close) != 0 ||
		    !memenv_run(sc->me, &w.done)) {
			sc->bad("the disk does not close");
			exit(1);
		}
	}
	lsom_close(lsom);
}

int state_check_note(struct state_check *sc, const struct io_event *e)
{
	const char *name = (const char *)e->data;
	size_t len = strnlen(name, e->len) + 1;
	struct state_side *s = sc->sides;
	struct uuid cid;

	if (len + sizeof(cid) != e->len)
		return 0;
	memcpy(&cid, e->data + len, sizeof(cid));
	while (s < sc->sides + sc->sides_count && !uuid_equal(&s->cid, &cid))
		s++;
	if (s == sc->sides + STATE_COMPS_MAX)
		return -ERANGE;
	if (s == sc->sides + sc->sides_count)
		sc->sides[sc->sides_count++] =
			(struct state_side){ .cid = cid };
	s->created = s->created || strcmp(name, "created") == 0;
	s->deleting = s->deleting || strcmp(name, "delete") == 0;
	s->deleted = s->deleted || strcmp(name, "deleted") == 0;
	return 0;
}

void state_check_rewind(struct state_check *sc)
{
	sc->sides_count = 0;
}

void state_check_init(struct state_check *sc)
{
	sc->recent = must(malloc(sc->journal->blocks_count));
}

void state_check_fini(struct state_check *sc)
{
	free(sc->recent);
}
