/* sgl: scatter-gather lists over pages. */
#include "base/sgl.h"

#include "base/crc.h"
#include "base/spare.h"
#include "base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static size_t sgl_bytes(size_t pieces)
{
	return sizeof(struct sgl) + pieces * sizeof(struct sgl_piece);
}

static struct sgl *sgl_make(struct page_cache *home, unsigned pieces_max)
{
	struct sgl *sgl = spare_take(sgl_bytes(pieces_max));

	if (sgl == NULL)
		return NULL;
	sgl->refs = 1;
	sgl->pieces_count = 0;
	sgl->len_bytes = 0;
	sgl->home = home;
	return sgl;
}

static void sgl_add(struct sgl *sgl, struct page *page, size_t offset,
		    size_t len)
{
	assert(offset + len <= PAGE_BYTES);
	sgl->pieces[sgl->pieces_count++] = (struct sgl_piece){
		.page = page, .offset = (uint32_t)offset, .len = (uint32_t)len
	};
	sgl->len_bytes += len;
}

int sgl_new(struct page_cache *home, enum page_class class, size_t len_bytes,
	    size_t first_offset, struct sgl **out)
{
	size_t n = DIV_UP(first_offset + len_bytes, PAGE_BYTES);
	struct page *few[64], **pages = few;
	struct sgl *sgl;
	int rv;

	assert(first_offset < PAGE_BYTES);
	if (len_bytes == 0)
		n = 0;
	sgl = sgl_make(home, (unsigned)n);
	if (sgl == NULL)
		return -ENOMEM;
	if (n > ARRAY_LEN(few)) {
		pages = malloc(n * sizeof(*pages));
		if (pages == NULL) {
			rv = -ENOMEM;
			goto err_sgl;
		}
	}
	rv = n > 0 ? pages_alloc(home, class, n, pages) : 0;
	if (rv < 0)
		goto err_pages;
	for (size_t i = 0; i < n; i++)
		sgl->pieces[i] = (struct sgl_piece){ pages[i], 0, PAGE_BYTES };
	if (n > 0) { /* whole pages, but for both ends */
		sgl->pieces[0].offset = (uint32_t)first_offset;
		sgl->pieces[0].len -= (uint32_t)first_offset;
		sgl->pieces[n - 1].len -=
			(uint32_t)(n * PAGE_BYTES - first_offset - len_bytes);
	}
	sgl->pieces_count = (unsigned)n;
	sgl->len_bytes = len_bytes;
	if (pages != few)
		free(pages);
	*out = sgl;
	return 0;

err_pages:
	if (pages != few)
		free(pages);
err_sgl:
	spare_give(sgl, sgl_bytes(n));
	return rv;
}

struct sgl *sgl_repeat(struct page_cache *home, struct page *page,
		       size_t len_bytes, size_t first_offset)
{
	size_t n = DIV_UP(first_offset + len_bytes, PAGE_BYTES);
	struct sgl *sgl = sgl_make(home, (unsigned)n);

	if (sgl == NULL)
		return NULL;
	while (len_bytes > 0) {
		size_t len = MIN(PAGE_BYTES - first_offset, len_bytes);

		sgl_add(sgl, page_get(page), first_offset, len);
		len_bytes -= len;
		first_offset = 0;
	}
	return sgl;
}

struct sgl *sgl_of_pieces(struct page_cache *home,
			  const struct sgl_piece *pieces, unsigned pieces_count)
{
	struct sgl *sgl = sgl_make(home, pieces_count);

	if (sgl == NULL)
		return NULL;
	for (unsigned i = 0; i < pieces_count; i++)
		sgl_add(sgl, page_get(pieces[i].page), pieces[i].offset,
			pieces[i].len);
	return sgl;
}

/* Index of the piece that holds byte *@offset; *@offset becomes its rest. */
static unsigned sgl_find(const struct sgl *sgl, size_t *offset)
{
	unsigned i = 0;

	while (i < sgl->pieces_count && *offset >= sgl->pieces[i].len) {
		*offset -= sgl->pieces[i].len;
		i++;
	}
	return i;
}

static void sgl_append_range(struct sgl *dst, const struct sgl *src,
			     size_t offset, size_t len)
{
	unsigned i = sgl_find(src, &offset);

	for (; len > 0; i++) {
		const struct sgl_piece *p = &src->pieces[i];
		size_t n = MIN(p->len - offset, len);

		assert(i < src->pieces_count);
		sgl_add(dst, page_get(p->page), p->offset + offset, n);
		len -= n;
		offset = 0;
	}
}

struct sgl *sgl_slice(struct sgl *sgl, size_t offset, size_t len)
{
	size_t skip = offset, end;
	unsigned first, last;
	struct sgl *slice;

	assert(offset + len <= sgl->len_bytes);
	first = sgl_find(sgl, &skip);
	end = offset + (len > 0 ? len - 1 : 0);
	last = sgl_find(sgl, &end);
	slice = sgl_make(sgl->home, len > 0 ? last - first + 1 : 0);
	if (slice != NULL && len > 0)
		sgl_append_range(slice, sgl, offset, len);
	return slice;
}

struct sgl *sgl_join(struct page_cache *home, struct sgl *const *parts,
		     unsigned count)
{
	unsigned pieces = 0;
	struct sgl *sgl;

	for (unsigned i = 0; i < count; i++)
		pieces += parts[i]->pieces_count;
	sgl = sgl_make(home, pieces);
	if (sgl == NULL)
		return NULL;
	for (unsigned i = 0; i < count; i++)
		sgl_append_range(sgl, parts[i], 0, parts[i]->len_bytes);
	return sgl;
}

static void pieces_put(struct sgl *sgl)
{
	const struct sgl_piece *piece = sgl->pieces;
	size_t left = sgl->pieces_count, n;
	struct page *pages[64];

	for (; left > 0; left -= n, piece += n) {
		n = MIN(left, ARRAY_LEN(pages));
		for (size_t i = 0; i < n; i++)
			pages[i] = piece[i].page;
		pages_put(sgl->home, pages, n);
	}
}

void sgl_free(struct sgl *sgl)
{
	if (sgl->pieces_count == 1)
		page_put(sgl->home, sgl->pieces[0].page);
	else
		pieces_put(sgl);
	spare_give(sgl, sgl_bytes(sgl->pieces_count));
}

unsigned sgl_iov(const struct sgl *sgl, size_t offset, size_t len,
		 struct iovec *iov, unsigned iov_max, size_t *covered)
{
	const struct sgl_piece *p;
	unsigned count = 0;
	size_t left = len;

	assert(offset + len <= sgl->len_bytes);
	p = &sgl->pieces[sgl_find(sgl, &offset)];
	while (left > 0 && count < iov_max) {
		uint8_t *at = p->page->data + p->offset + offset, *end;
		size_t n = MIN(p->len - offset, left);

		end = at + n;
		left -= n;
		for (p++; left > 0 && p->page->data + p->offset == end; p++) {
			n = MIN(p->len, left);
			end += n;
			left -= n;
		}
		iov[count++] = (struct iovec){ .iov_base = at,
					       .iov_len = (size_t)(end - at) };
		offset = 0;
	}
	if (covered != NULL)
		*covered = len - left;
	return count;
}

uint32_t sgl_crc(const struct sgl *sgl, size_t offset, size_t len)
{
	uint32_t crc = 0;
	unsigned i;

	assert(offset + len <= sgl->len_bytes);
	i = sgl_find(sgl, &offset);
	for (; len > 0; i++) {
		const struct sgl_piece *p = &sgl->pieces[i];
		size_t n = MIN(p->len - offset, len);

		crc = crc32c_more(crc, p->page->data + p->offset + offset, n);
		len -= n;
		offset = 0;
	}
	return crc;
}

void sgl_read(const struct sgl *sgl, size_t offset, void *dst, size_t len)
{
	uint8_t *to = dst;
	unsigned i;

	assert(offset + len <= sgl->len_bytes);
	i = sgl_find(sgl, &offset);
	for (; len > 0; i++) {
		const struct sgl_piece *p = &sgl->pieces[i];
		size_t n = MIN(p->len - offset, len);

		memcpy(to, p->page->data + p->offset + offset, n);
		to += n;
		len -= n;
		offset = 0;
	}
}

void sgl_write(struct sgl *sgl, size_t offset, const void *src, size_t len)
{
	const uint8_t *from = src;
	unsigned i;

	assert(offset + len <= sgl->len_bytes);
	i = sgl_find(sgl, &offset);
	for (; len > 0; i++) {
		const struct sgl_piece *p = &sgl->pieces[i];
		size_t n = MIN(p->len - offset, len);

		assert(!p->page->fixed);
		memcpy(p->page->data + p->offset + offset, from, n);
		from += n;
		len -= n;
		offset = 0;
	}
}

int64_t sgl_compare(const struct sgl *a, const struct sgl *b)
{
	size_t i = 0, j = 0, ai = 0, bi = 0, at = 0;

	assert(a->len_bytes == b->len_bytes);
	while (at < a->len_bytes) {
		const struct sgl_piece *p = &a->pieces[i], *q = &b->pieces[j];
		const uint8_t *x = p->page->data + p->offset + ai;
		const uint8_t *y = q->page->data + q->offset + bi;
		size_t n = MIN(p->len - ai, q->len - bi);

		if (memcmp(x, y, n) != 0) {
			while (*x == *y) {
				x++;
				y++;
				at++;
			}
			return (int64_t)at;
		}
		at += n;
		ai += n;
		bi += n;
		if (ai == p->len) {
			i++;
			ai = 0;
		}
		if (bi == q->len) {
			j++;
			bi = 0;
		}
	}
	return -1;
}

bool sgl_is_zero(const struct sgl *sgl)
{
	for (unsigned i = 0; i < sgl->pieces_count; i++) {
		const struct sgl_piece *p = &sgl->pieces[i];

		if (memcmp(p->page->data + p->offset, page_zero()->data,
			   p->len) != 0)
			return false;
	}
	return true;
}
