/*
 * merge: whole 4 KiB blocks out of the bytes a command brought.
 *
 * A block that lies whole and congruent in one page goes on as it is, without a
 * copy.  A block at an edge is the old block with the new bytes laid over, and a
 * block whose bytes are scattered is gathered: both in a fresh page of class
 * PAGE_RMW, and counted as a copy.
 */
#include "dom/dom_int.h"

#include "base/copied.h"

#include <assert.h>
#include <stdlib.h>

/* Where the merge reads the new bytes: in order, piece by piece. */
struct cursor {
	const struct sgl *sgl;
	unsigned piece;
	uint32_t in_piece;
};

static void cursor_skip(struct cursor *c, uint64_t n)
{
	while (n > 0) {
		uint32_t left = c->sgl->pieces[c->piece].len - c->in_piece;

		if (n < left) {
			c->in_piece += (uint32_t)n;
			return;
		}
		n -= left;
		c->piece++;
		c->in_piece = 0;
	}
}

/* The page that holds the next DOM_BLOCK bytes just as the log wants them. */
static struct page *cursor_page(const struct cursor *c)
{
	const struct sgl_piece *piece = &c->sgl->pieces[c->piece];

	return piece->offset == 0 && c->in_piece == 0 && piece->len == DOM_BLOCK
		       ? piece->page
		       : NULL;
}

/*
 * Which blocks (offsets of the object) must be read before the command can be
 * carried out: those it covers in part.  Returns 0..2.
 */
unsigned dom__merge_edges(const struct dom__op *op, uint64_t blocks[2])
{
	uint64_t end = op->offset + op->len;
	uint64_t first = ROUND_DOWN(op->offset, (uint64_t)DOM_BLOCK);
	uint64_t last = ROUND_DOWN(end, (uint64_t)DOM_BLOCK);
	unsigned n = 0;

	if (op->offset % DOM_BLOCK)
		blocks[n++] = first;
	if (end % DOM_BLOCK && !(n == 1 && last == first))
		blocks[n++] = last;
	return n;
}

/* The old content of the block at @block, DOM_BLOCK bytes to @dst. */
static void old_block(const struct dom__op *op, uint64_t block, uint8_t *dst)
{
	for (unsigned i = 0; i < 2; i++) {
		const struct dom__fetch *f = &op->fetch[i];

		if (f->used && block >= f->offset &&
		    block + DOM_BLOCK <= f->offset + f->len) {
			copied_add(COPIED_EDGE, DOM_BLOCK);
			sgl_read(f->sgl, block - f->offset, dst, DOM_BLOCK);
			return;
		}
	}
	assert(!"an edge block was not read");
}

static void or_bytes(const struct sgl *sgl, uint64_t at, uint8_t *dst,
		     size_t len)
{
	struct iovec iov[8];

	while (len > 0) {
		size_t covered;
		unsigned n =
			sgl_iov(sgl, at, len, iov, ARRAY_LEN(iov), &covered);

		for (unsigned i = 0; i < n; i++) {
			const uint8_t *src = iov[i].iov_base;

			for (size_t k = 0; k < iov[i].iov_len; k++)
				*dst++ |= src[k];
		}
		at += covered;
		len -= covered;
	}
}

static void block_fill(const struct dom__op *op, uint64_t block, uint8_t *dst)
{
	uint64_t from = MAX(op->offset, block);
	uint64_t to = MIN(op->offset + op->len, block + DOM_BLOCK);

	if (to - from < DOM_BLOCK || op->kind == DOM__OR)
		old_block(op, block, dst);
	if (op->kind == DOM__OR) {
		copied_add(COPIED_COMMAND, to - from);
		or_bytes(op->sgl, from - op->offset, dst + (from - block),
			 to - from);
	} else if (op->kind == DOM__UNMAP) {
		memset(dst + (from - block), 0, to - from);
	} else {
		copied_add(to - from < DOM_BLOCK ? COPIED_EDGE : COPIED_GATHER,
			   to - from);
		sgl_read(op->sgl, from - op->offset, dst + (from - block),
			 to - from);
	}
}

/* An UNMAP writes its edge blocks only; they are merged one after the other. */
static int merge_edges(struct dom__op *op, size_t *pages_wanted)
{
	struct page_cache *pages = op->owner->dom->env->pages;
	uint64_t blocks[2];
	unsigned n = dom__merge_edges(op, blocks);
	int rv;

	*pages_wanted = n;
	rv = sgl_new(pages, PAGE_RMW, n * (size_t)DOM_BLOCK, 0, &op->out);
	if (rv < 0)
		return rv;
	for (unsigned i = 0; i < n; i++)
		block_fill(op, blocks[i], op->out->pieces[i].page->data);
	return 0;
}

static bool all_whole(const struct dom__op *op)
{
	if (op->offset % DOM_BLOCK || op->len % DOM_BLOCK)
		return false;
	for (unsigned i = 0; i < op->sgl->pieces_count; i++) {
		if (op->sgl->pieces[i].offset != 0 ||
		    op->sgl->pieces[i].len != DOM_BLOCK)
			return false;
	}
	return true;
}

static size_t scratch_blocks(const struct dom__op *op, uint64_t start,
			     uint64_t end)
{
	struct cursor c = { .sgl = op->sgl };
	size_t n = 0;

	for (uint64_t block = start; block < end; block += DOM_BLOCK) {
		uint64_t from = MAX(op->offset, block);
		uint64_t to = MIN(op->offset + op->len, block + DOM_BLOCK);

		if (to - from < DOM_BLOCK || cursor_page(&c) == NULL)
			n++;
		cursor_skip(&c, to - from);
	}
	return n;
}

/*
 * Make @op->out.  0; -EBUSY: no pages now, *@pages_wanted of PAGE_RMW would do;
 * -ENOMEM / -EINVAL.
 */
int dom__merge(struct dom__op *op, size_t *pages_wanted)
{
	struct page_cache *pages = op->owner->dom->env->pages;
	uint64_t start = ROUND_DOWN(op->offset, (uint64_t)DOM_BLOCK);
	uint64_t end = ROUND_UP(op->offset + op->len, (uint64_t)DOM_BLOCK);
	size_t blocks = (end - start) / DOM_BLOCK;
	struct sgl_piece few[64], *pieces = few;
	struct sgl *scratch = NULL;
	size_t fresh, used = 0;
	struct cursor c = { .sgl = op->sgl };
	int rv = 0;

	if (op->kind == DOM__UNMAP)
		return merge_edges(op, pages_wanted);
	if (op->kind != DOM__OR && all_whole(op)) {
		op->out = sgl_get(op->sgl);
		return 0;
	}
	fresh = op->kind == DOM__OR ? blocks : scratch_blocks(op, start, end);
	*pages_wanted = fresh;
	if (blocks > ARRAY_LEN(few)) {
		pieces = malloc(blocks * sizeof(*pieces));
		if (pieces == NULL)
			return -ENOMEM;
	}
	rv = sgl_new(pages, PAGE_RMW, fresh * DOM_BLOCK, 0, &scratch);
	if (rv < 0)
		goto out;
	for (size_t i = 0; i < blocks; i++) {
		uint64_t block = start + i * DOM_BLOCK;
		uint64_t from = MAX(op->offset, block);
		uint64_t to = MIN(op->offset + op->len, block + DOM_BLOCK);
		struct page *page = NULL;

		if (to - from == DOM_BLOCK && op->kind != DOM__OR)
			page = cursor_page(&c);
		if (page == NULL) {
			assert(used < fresh);
			page = scratch->pieces[used++].page;
			block_fill(op, block, page->data);
		}
		pieces[i] =
			(struct sgl_piece){ .page = page, .len = DOM_BLOCK };
		cursor_skip(&c, to - from);
	}
	assert(used == fresh);
	op->out = sgl_of_pieces(pages, pieces, (unsigned)blocks);
	if (op->out == NULL)
		rv = -ENOMEM;
out:
	sgl_put(scratch);
	if (pieces != few)
		free(pieces);
	return rv;
}
