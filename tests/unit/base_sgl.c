/* Pages, their classes, and scatter-gather lists against a flat array. */
#include "base/crc.h"
#include "base/sgl.h"
#include "base/util.h"
#include "tests/lib/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct fixture {
	struct arena *arena;
	struct page_cache *cache;
};

static struct fixture open_fixture(size_t bytes)
{
	struct fixture f;

	CHECK_EQ(arena_open(&(struct arena_config){ .bytes = bytes }, &f.arena),
		 0);
	CHECK_EQ(page_cache_open(f.arena, &f.cache), 0);
	return f;
}

static void close_fixture(struct fixture *f)
{
	page_cache_close(f->cache);
	arena_close(f->arena); /* asserts that every page came home */
}

/* Slices, joins, iovecs and CRCs of a list equal those of the flat bytes. */
TEST(sgl, like_flat_bytes)
{
	struct fixture f = open_fixture(16 << 20);
	enum { LEN = 50000 };
	static uint8_t flat[LEN], back[LEN];

	srand(1);
	for (int i = 0; i < LEN; i++)
		flat[i] = (uint8_t)rand();
	for (int round = 0; round < 500; round++) {
		size_t len = 1 + (size_t)rand() % LEN;
		size_t first = (size_t)rand() % PAGE_BYTES;
		size_t off = (size_t)rand() % len;
		size_t part = (size_t)rand() % (len - off + 1);
		struct sgl *sgl, *slice, *rest, *joined;
		struct iovec iov[64];
		size_t covered, at = 0;
		unsigned n;

		CHECK_EQ(sgl_new(f.cache, PAGE_FRONT, len, first, &sgl), 0);
		CHECK_EQ(sgl->len_bytes, len);
		CHECK_EQ(sgl->pieces[0].offset, first);
		sgl_write(sgl, 0, flat, len);
		CHECK_EQ(sgl_crc(sgl, off, part), crc32c(flat + off, part));
		slice = sgl_slice(sgl, off, part);
		CHECK_EQ(slice->len_bytes, part);
		sgl_read(slice, 0, back, part);
		CHECK_EQ(memcmp(back, flat + off, part), 0);
		rest = sgl_slice(sgl, 0, off);
		joined = sgl_join(f.cache, (struct sgl *[]){ rest, slice }, 2);
		CHECK_EQ(joined->len_bytes, off + part);
		n = sgl_iov(joined, 0, off + part, iov, ARRAY_LEN(iov),
			    &covered);
		CHECK_EQ(covered, off + part);
		for (unsigned i = 0; i < n; i++) {
			CHECK_EQ(memcmp(iov[i].iov_base, flat + at,
					iov[i].iov_len),
				 0);
			at += iov[i].iov_len;
		}
		CHECK_EQ(at, off + part);
		sgl_put(joined);
		sgl_put(rest);
		sgl_put(slice);
		sgl_put(sgl);
	}
	close_fixture(&f);
}

/* Neighbours are one iovec, also within a page; others are not. */
TEST(sgl, iovecs_of_pieces)
{
	struct fixture f = open_fixture(4 << 20);
	struct sgl_piece pieces[6];
	struct page *pages[5];
	struct iovec iov[8];
	struct sgl *sgl;
	size_t covered;

	CHECK_EQ(pages_alloc(f.cache, PAGE_FRONT, 5, pages), 0);
	pieces[0] = (struct sgl_piece){ pages[0], 512, PAGE_BYTES - 512 };
	pieces[1] = (struct sgl_piece){ pages[1], 0, PAGE_BYTES };
	pieces[2] = (struct sgl_piece){ pages[2], 0, 1000 };
	pieces[3] = (struct sgl_piece){ pages[2], 1000, 1000 };
	pieces[4] = (struct sgl_piece){ pages[4], 0, PAGE_BYTES };
	pieces[5] = (struct sgl_piece){ pages[3], 0, PAGE_BYTES };
	sgl = sgl_of_pieces(f.cache, pieces, 6);
	CHECK_EQ(sgl_iov(sgl, 0, sgl->len_bytes, iov, 8, &covered), 3);
	CHECK_EQ(covered, sgl->len_bytes);
	CHECK(iov[0].iov_base == pages[0]->data + 512);
	CHECK_EQ(iov[0].iov_len, 2 * PAGE_BYTES - 512 + 2000);
	CHECK(iov[1].iov_base == pages[4]->data);
	CHECK(iov[2].iov_base == pages[3]->data);
	CHECK_EQ(iov[2].iov_len, PAGE_BYTES);
	/* From the middle of one to the middle of another, and no room. */
	CHECK_EQ(sgl_iov(sgl, 4000, 8000, iov, 1, &covered), 1);
	CHECK(iov[0].iov_base == pages[1]->data + 416);
	CHECK_EQ(covered, 2 * PAGE_BYTES - 512 + 2000 - 4000);
	CHECK_EQ(iov[0].iov_len, covered);
	CHECK_EQ(sgl_iov(sgl, 9680, 4095, iov, 8, &covered), 1);
	CHECK(iov[0].iov_base == pages[4]->data);
	CHECK_EQ(iov[0].iov_len, 4095);
	CHECK_EQ(sgl_iov(sgl, 100, 0, iov, 8, &covered), 0);
	CHECK_EQ(covered, 0);
	sgl_put(sgl);
	pages_put(f.cache, pages, 5);
	/* Pages of their own each time. */
	sgl = sgl_repeat(f.cache, page_zero(), 10 * PAGE_BYTES, 0);
	CHECK_EQ(sgl_iov(sgl, 0, sgl->len_bytes, iov, 4, &covered), 4);
	CHECK_EQ(covered, 4 * PAGE_BYTES);
	sgl_put(sgl);
	close_fixture(&f);
}

TEST(sgl, compare_and_zero)
{
	struct fixture f = open_fixture(16 << 20);
	struct sgl *a, *b, *z = sgl_repeat(f.cache, page_zero(), 20000, 77);

	CHECK_EQ(sgl_new(f.cache, PAGE_FRONT, 20000, 0, &a), 0);
	CHECK_EQ(sgl_new(f.cache, PAGE_FRONT, 20000, 513, &b), 0);
	for (unsigned i = 0; i < a->pieces_count; i++)
		memset(a->pieces[i].page->data, 0, PAGE_BYTES);
	for (unsigned i = 0; i < b->pieces_count; i++)
		memset(b->pieces[i].page->data, 0, PAGE_BYTES);
	CHECK_EQ(sgl_compare(a, b), -1);
	CHECK_EQ(sgl_compare(a, z), -1);
	CHECK(sgl_is_zero(z) && sgl_is_zero(b));
	sgl_write(b, 9999, "x", 1);
	CHECK_EQ(sgl_compare(a, b), 9999);
	CHECK(!sgl_is_zero(b));
	CHECK_EQ(crc32c(page_zero()->data, 4096), CRC32C_ZERO_PAGE);
	sgl_put(a);
	sgl_put(b);
	sgl_put(z);
	close_fixture(&f);
}

static unsigned woken;

static void on_pages(struct page_waiter *waiter)
{
	woken++;
}

/* The front end cannot eat the log's floor, and hears when it may go on. */
TEST(page, floors_hold)
{
	struct fixture f = open_fixture(4 << 20); /* 1024 pages */
	struct page_waiter waiter = { .cb = on_pages };
	struct sgl *front[64], *log;
	unsigned n = 0;

	while (n < 64 &&
	       sgl_new(f.cache, PAGE_FRONT, 16 * PAGE_BYTES, 0, &front[n]) == 0)
		n++;
	/* 100 - 10 - 20 - 10 percent of 1024 pages, 16 at a time */
	CHECK_EQ(n, 38);
	CHECK_EQ(sgl_new(f.cache, PAGE_LOG, 100 * PAGE_BYTES, 0, &log), 0);
	CHECK_EQ(sgl_new(f.cache, PAGE_FRONT, 900 * PAGE_BYTES, 0, &front[n]),
		 -EINVAL);
	page_wait(f.cache, PAGE_FRONT, 16, &waiter);
	page_cache_turn(f.cache);
	CHECK_EQ(woken, 0);
	sgl_put(front[--n]);
	page_cache_turn(f.cache);
	CHECK_EQ(woken, 1);
	while (n > 0)
		sgl_put(front[--n]);
	sgl_put(log);
	close_fixture(&f);
}

/*
 * A class that has none must not hold up another that has: what the front end
 * holds comes home only when those whom it waits for may go on.
 */
TEST(page, classes_wait_apart)
{
	struct fixture f = open_fixture(4 << 20); /* 1024 pages */
	struct page_waiter front_waits = { .cb = on_pages };
	struct page_waiter rmw_waits = { .cb = on_pages };
	struct sgl *front[64], *rmw[16];
	unsigned n = 0, k = 0;

	woken = 0;
	while (sgl_new(f.cache, PAGE_FRONT, 16 * PAGE_BYTES, 0, &front[n]) == 0)
		n++;
	while (sgl_new(f.cache, PAGE_RMW, 10 * PAGE_BYTES, 0, &rmw[k]) == 0)
		k++;
	page_wait(f.cache, PAGE_FRONT, 16, &front_waits);
	page_wait(f.cache, PAGE_RMW, 10, &rmw_waits);
	page_cache_turn(f.cache);
	CHECK_EQ(woken, 0);
	while (k > 0)
		sgl_put(rmw[--k]);
	page_cache_turn(f.cache);
	CHECK(!rmw_waits.queued);
	CHECK(front_waits.queued);
	CHECK_EQ(woken, 1);
	CHECK(page_cache_waiting(f.cache));
	page_wait_stop(f.cache, &front_waits);
	CHECK(!page_cache_waiting(f.cache));
	while (n > 0)
		sgl_put(front[--n]);
	close_fixture(&f);
}
