/*
 * move: brings live blocks, prepared versions and holes to their new place.
 *
 * Moves take their place in the pipeline, bounded, so that a victim full of
 * small records is not one round trip each.  They are appended together when all
 * of them are read: in one batch they share a header, and on a tight disk headers
 * are what decides whether a victim fits into less than what it gives back.
 */
#define LOG_ROOM LOG_LSOM
#include "lsom/cleaner_int.h"

#include "base/err.h"
#include "base/log.h"
#include "base/stats.h"

#include <errno.h>
#include <stdlib.h>

#define MOVES_MAX 64u
#define MOVE_BLOCKS_MAX 1024u /* in flight */

static struct counter moved_total = {
	.name = "basalt_lsom_blocks_moved_total",
	.help = "Blocks moved by the cleaner",
};

/* One run of live blocks, or a hole, on its way to its new place. */
struct move {
	TAILQ_ENTRY(move) link;
	struct lsom__cleaner *cleaner;
	struct env_io io;
	struct iovec iov[LSOM_WRITE_MAX / LSOM_BLOCK];
	struct lsom__op *op;
	struct lsom__page *pages[2];
	unsigned pages_count;
	uint32_t blocks;
	uint64_t source;
	bool prep;
};

void lsom__moves_counted(void)
{
	counter_register(&moved_total);
}

bool lsom__moves_full(const struct lsom__cleaner *c)
{
	return c->moves >= MOVES_MAX || c->move_blocks >= MOVE_BLOCKS_MAX;
}

bool lsom__moves_of(const struct lsom__cleaner *c, const struct lsom_comp *comp,
		    uint64_t first, uint64_t blocks)
{
	const struct lsom__data_record *d;
	const struct move *m;

	TAILQ_FOREACH (m, &c->under_way, link) {
		d = (const void *)m->op->record;
		if (m->op->comp == comp && d->first < first + blocks &&
		    first < d->first + d->blocks &&
		    !(d->r.flags & LSOM__F_HOLE))
			return true;
	}
	return false;
}

static void move_free(struct move *m)
{
	struct lsom__cleaner *c = m->cleaner;

	TAILQ_REMOVE(&c->under_way, m, link);
	while (m->pages_count > 0)
		m->pages[--m->pages_count]->pins--;
	/* After the pages: it may hold the last of a deleted component. */
	lsom__op_free(m->op);
	assert(c->moves > 0);
	c->moves--;
	c->move_blocks -= m->blocks;
	free(m);
	lsom__cleaner_step_soon(c);
}

/* The prepared version went to its new place, or its blocks did meanwhile. */
static bool prep_moved(struct lsom__op *op, const struct lsom__data_record *d)
{
	struct lsom__prep *p =
		lsom__prep_same(op->comp, d->r.lsn, d->first, d->blocks);

	if (p == NULL || p->place != d->source)
		return false;
	lsom__prep_remove(op->comp, p);
	p->place = op->place;
	lsom__prep_insert(op->comp, p);
	return true;
}

/* A page that came with a commit, after the pins, may have gone again. */
static bool pages_there(const struct lsom_comp *comp, uint64_t first,
			uint64_t blocks)
{
	uint64_t n = first / LSOM__PAGE_SLOTS;
	const struct lsom__page *page;

	for (; n <= (first + blocks - 1) / LSOM__PAGE_SLOTS; n++) {
		page = lsom__page_find(comp, n);
		if (page == NULL ? lsom__page_exists(comp, n) : !page->loaded)
			return false;
	}
	return true;
}

static void move_apply(struct lsom__op *op, int status)
{
	const struct lsom__data_record *d = (void *)op->record;
	struct move *m = op->req;

	lsom__transit_begin(op->disk);
	if (status < 0)
		m->cleaner->abandon = true;
	else if (op->comp->deleted || (m->prep && prep_moved(op, d)))
		;
	else if (m->prep && d->r.flags & LSOM__F_HOLE)
		m->cleaner->abandon = true; /* as what it is now, then */
	else if (!pages_there(op->comp, d->first, d->blocks))
		m->cleaner->abandon = true; /* moved again, another time */
	else
		lsom__range_apply(op->comp, d->first, d->blocks, op->place,
				  lsom__record_crcs(d),
				  d->r.flags & LSOM__F_HOLE, d->r.member_csn,
				  d->r.lsn, LSOM__APPLY_MOVE, d->source);
	lsom__transit_end(op->disk);
	counter_add(&moved_total, op->blocks);
	move_free(m);
}

static void move_read(struct env_io *io, int64_t res)
{
	struct move *m = container_of(io, struct move, io);
	struct lsom__cleaner *c = m->cleaner;

	lsom__segment_read_put(c->disk, lsom__segment_of(c->disk, m->source));
	assert(c->reading > 0);
	c->reading--;
	if (res < 0) {
		/* It stays where it is, and so does its segment. */
		lsom__victim_unread(c, "a block", (int)res);
		move_free(m);
		return;
	}
	/*
	 * A block that does not match its CRC is moved as it is: a reader finds
	 * it out, and a repair replaces it.
	 */
	STAILQ_INSERT_TAIL(&c->ready, m->op, link);
	if (c->reading == 0)
		lsom__cleaner_step_soon(c);
}

static uint64_t data_pos(const struct lsom__cleaner *c,
			 const struct lsom__data_record *d)
{
	return d->r.flags & LSOM__F_MOVED ? d->r.orig_pos : c->frame.pos;
}

int lsom__move_start(struct lsom__cleaner *c, struct lsom_comp *comp,
		     const struct lsom__data_record *d, uint64_t first,
		     uint64_t blocks, bool prep, uint64_t hole_pos)
{
	const bool hole = hole_pos != 0;
	struct lsom_disk *disk = c->disk;
	uint16_t flags = (d->r.flags & (LSOM__F_ATOMIC | LSOM__F_REPAIR)) |
			 LSOM__F_MOVED | (hole ? LSOM__F_HOLE : 0) |
			 (prep ? 0 : LSOM__F_COMMITTED);
	unsigned parts = prep ? d->parts : 0, i;
	struct lsom__data_record *out;
	struct move *m = calloc(1, sizeof(*m));
	struct lsom__op *op = NULL;
	int rv = -ENOMEM;

	if (m != NULL)
		op = lsom__op_new(disk, comp, LSOM__R_DATA,
				  lsom__data_record_len(flags, blocks, parts));
	if (op == NULL)
		goto err;
	if (!hole) {
		rv = sgl_new(disk->env->pages, PAGE_LOG, blocks * LSOM_BLOCK, 0,
			     &op->sgl);
		if (rv < 0)
			goto err;
		op->blocks = (uint32_t)blocks;
	}
	out = (void *)op->record;
	out->r.flags = flags;
	out->r.lsn = d->r.lsn;
	out->r.member_csn = d->r.member_csn;
	out->r.orig_pos = hole ? hole_pos : data_pos(c, d);
	out->first = first;
	out->blocks = blocks;
	out->parts = (uint16_t)parts;
	out->source = lsom__place(
		disk, c->victim,
		hole ? c->frame.block : d->data + (uint32_t)(first - d->first));
	if (!hole)
		memcpy(out + 1, lsom__record_crcs(d) + (first - d->first),
		       blocks * sizeof(uint32_t));
	memcpy((void *)(uintptr_t)lsom__record_parts(out),
	       lsom__record_parts(d), parts * sizeof(struct uuid));
	m->cleaner = c;
	m->op = op;
	m->source = out->source;
	m->prep = prep;
	m->blocks = (uint32_t)op->blocks;
	for (i = 0; i < c->range.pages_count; i++) {
		m->pages[m->pages_count++] = c->range.pages[i];
		c->range.pages[i]->pins++;
	}
	op->req = m;
	op->apply = move_apply;
	TAILQ_INSERT_TAIL(&c->under_way, m, link);
	c->moves++;
	c->walk_moves++;
	c->move_blocks += m->blocks;
	if (hole) {
		STAILQ_INSERT_TAIL(&c->ready, op, link);
		return 0;
	}
	c->reading++;
	m->io.cb = move_read;
	lsom__segment_read_get(disk, lsom__segment_of(disk, m->source));
	i = sgl_iov(op->sgl, 0, blocks * LSOM_BLOCK, m->iov, ARRAY_LEN(m->iov),
		    NULL);
	env_dev_readv(disk->env, disk->dev, &m->io, m->iov, i,
		      m->source * LSOM_BLOCK);
	return 0;

err:
	if (op != NULL)
		lsom__op_free(op);
	free(m);
	return rv;
}
