/*
 * sgl: immutable bytes in pieces, the one form in which payload travels from
 * the datamover through DOM to the log and back.
 *
 * A piece never crosses a page; neighbours in memory are merged into one iovec
 * at submission.  Data lands congruently: a byte of an object at offset o lies
 * at offset o mod 4096 of its page, so that only the first and the last block
 * of a request ever need merging.  Ownership passes; bytes are not copied.
 *
 * Three verbs.  Borrow: a const pointer, good until the call returns.  Share:
 * the callee takes its own reference with sgl_get().  Give: a function with
 * "take" in its name consumes the caller's reference, only if it returns 0.
 *
 * An sgl belongs to its home shard, so its count is plain; a page's is atomic.
 */
#ifndef BASALT_BASE_SGL_H
#define BASALT_BASE_SGL_H

#include "base/page.h"

#include <assert.h>
#include <sys/uio.h>

struct sgl_piece {
	struct page *page;
	uint32_t offset; /* into the page */
	uint32_t len; /* offset + len <= PAGE_BYTES */
};

struct sgl {
	unsigned refs;
	unsigned pieces_count;
	size_t len_bytes; /* sum over pieces[] */
	struct page_cache *home;
	struct sgl_piece pieces[];
};

/*
 * @len_bytes of fresh memory; the first byte lies at @first_offset (below
 * PAGE_BYTES) of its page, contents undefined.  Returns 0, or -EBUSY / -EINVAL
 * as pages_alloc(), or -ENOMEM.  The one holder of a fresh sgl may fill it.
 */
int sgl_new(struct page_cache *home, enum page_class class, size_t len_bytes,
	    size_t first_offset, struct sgl **out);

/*
 * @len_bytes in which every piece is @page from the same offset on (zeros; the
 * pattern of WRITE SAME): block i of the result is page bytes, congruent with
 * @first_offset.  Takes a reference on @page per piece.  NULL: out of memory.
 */
struct sgl *sgl_repeat(struct page_cache *home, struct page *page,
		       size_t len_bytes, size_t first_offset);

/* Bytes [@offset, @offset + @len) of @sgl, sharing its pages.  NULL: memory. */
struct sgl *sgl_slice(struct sgl *sgl, size_t offset, size_t len);

/* The bytes of @count lists one after the other, sharing pages. */
struct sgl *sgl_join(struct page_cache *home, struct sgl *const *parts,
		     unsigned count);

/*
 * A list of @pieces_count given pieces; takes a reference on each page.
 * NULL: out of memory.
 */
struct sgl *sgl_of_pieces(struct page_cache *home,
			  const struct sgl_piece *pieces,
			  unsigned pieces_count);

static inline struct sgl *sgl_get(struct sgl *sgl)
{
	assert(sgl->refs > 0);
	sgl->refs++;
	return sgl;
}

/* The last reference is gone: sgl_put()'s. */
void sgl_free(struct sgl *sgl);

static inline void sgl_put(struct sgl *sgl) /* NULL is ignored */
{
	if (sgl == NULL)
		return;
	assert(sgl->refs > 0);
	if (--sgl->refs == 0)
		sgl_free(sgl);
}

/*
 * Describe bytes [@offset, @offset + @len) as iovecs, neighbours merged.
 * Returns how many were written; *@covered (if not NULL) is how many bytes they
 * hold, less than @len only when @iov_max ran out.
 */
unsigned sgl_iov(const struct sgl *sgl, size_t offset, size_t len,
		 struct iovec *iov, unsigned iov_max, size_t *covered);

/* CRC32C of bytes [@offset, @offset + @len). */
uint32_t sgl_crc(const struct sgl *sgl, size_t offset, size_t len);

/*
 * CPU copies, for parameter data and edges.  The caller says why it copies, with
 * copied_add() (copied.h).
 */
void sgl_read(const struct sgl *sgl, size_t offset, void *dst, size_t len);
void sgl_write(struct sgl *sgl, size_t offset, const void *src, size_t len);

/* Offset of the first differing byte of two lists of equal length, or -1. */
int64_t sgl_compare(const struct sgl *a, const struct sgl *b);

/* True if every byte is zero. */
bool sgl_is_zero(const struct sgl *sgl);

#endif
