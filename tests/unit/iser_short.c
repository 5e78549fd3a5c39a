/*
 * More commands than a device's shared queue has receives: what connections are
 * offered of their windows then, and that they have all of it otherwise.
 */
#include "tests/unit/iser_initiator.h"

#define RECEIVES 300u /* of the fake device */
#define CROWD 4u /* want more, together */
#define FEW (RECEIVES / (ISER_WINDOW_MAX + RECV_SPARE))
#define SHARE (RECEIVES * 3 / 4 / CROWD)

static uint8_t flags = 0x80; /* that they connect with */
static bool blind; /* to their windows */

/* Initiators beside the rig's one, which takes turns as each of them. */
static struct host {
	struct fake_peer *peer;
	uint32_t itt, cmdsn, max_cmdsn;
	unsigned answered;
} hosts[CROWD];

static void as(const struct host *h)
{
	peer = h->peer;
	itt = h->itt;
	cmdsn = h->cmdsn;
}

static void was(struct host *h)
{
	h->peer = peer;
	h->itt = itt;
	h->cmdsn = cmdsn;
	peer = NULL;
}

/* What came for @h. */
static void hear(struct host *h)
{
	struct fake_message *m;

	while ((m = fake_peer_receive(h->peer)) != NULL) {
		uint32_t max = get_be32(m->bytes + 28 + 32);

		/* What was granted is not taken back (RFC 7143 4.2.2.1). */
		CHECK(h->answered == 0 || !sn_lt(max, h->max_cmdsn));
		h->max_cmdsn = max;
		h->answered++;
		free(m);
	}
}

static unsigned offered(const struct host *h)
{
	return h->max_cmdsn + 1 - h->cmdsn;
}

static void join(struct host *h)
{
	struct message *m;

	memset(h, 0, sizeof(*h));
	peer = NULL;
	dial(flags, 4);
	m = login_message("");
	put_be32(m->bytes + 28 + 8, 0x00023d00 + (uint32_t)(h - hosts));
	CHECK(give(m));
	was(h);
	hear(h);
	CHECK_EQ(h->answered, 1);
}

/* As many of the @n commands as it may send, before any of them is looked at. */
static void burst(struct host *h, unsigned n)
{
	if (!blind)
		n = MIN(n, offered(h));
	as(h);
	for (unsigned i = 0; i < n; i++) {
		const struct message *m = command(0, 0);

		/* Without a receive the transport would try again. */
		while (!fake_peer_send(peer, m->bytes, m->len))
			turns();
	}
	was(h);
}

/* All send @n commands at once: each is answered, as each login was. */
static void burst_all(unsigned count, unsigned n)
{
	for (unsigned i = 0; i < count; i++)
		burst(&hosts[i], n);
	turns();
	for (unsigned i = 0; i < count; i++) {
		hear(&hosts[i]);
		CHECK_EQ(hosts[i].answered, hosts[i].cmdsn);
	}
}

static void widen(struct host *h)
{
	while (offered(h) < ISER_WINDOW_MAX) {
		unsigned before = offered(h);

		burst(h, before);
		turns();
		hear(h);
		CHECK(offered(h) > before);
	}
}

static void crowd_begin(unsigned count)
{
	fixture();
	for (unsigned i = 0; i < count; i++)
		join(&hosts[i]);
}

static void crowd_come(unsigned count)
{
	crowd_begin(count);
	for (unsigned i = 0; i < count; i++)
		widen(&hosts[i]);
}

static void crowd_go(unsigned count)
{
	rooms_close();
	for (unsigned i = 0; i < count; i++)
		fake_peer_free(hosts[i].peer);
	rooms_fini();
}

static struct recvq *shared(void)
{
	return LIST_FIRST(&iser->devices)->recvq;
}

/* A window begins small, and widens with what is answered. */
TEST(iser_short, windows_begin)
{
	crowd_begin(1);
	CHECK_EQ(offered(&hosts[0]), ISER_WINDOW_MAX / ISCSI_WINDOW_BEGIN);
	widen(&hosts[0]);
	crowd_go(1);
}

/* All at once they take what there is: each is offered its share of it. */
TEST(iser_short, windows_share)
{
	crowd_come(CROWD);
	CHECK_EQ(shared()->share, RECEIVES);
	/* What was granted is not taken back. */
	burst_all(CROWD, 60);
	CHECK_EQ(shared()->share, SHARE);
	burst_all(CROWD, ISER_WINDOW_MAX);
	for (unsigned i = 0; i < CROWD; i++)
		CHECK_EQ(offered(&hosts[i]), SHARE);
	for (unsigned i = 0; i < 10; i++) {
		burst_all(CROWD, ISER_WINDOW_MAX);
		for (unsigned k = 0; k < CROWD; k++)
			CHECK_EQ(offered(&hosts[k]), SHARE);
	}
	/* Nor more where one of them has nothing to do. */
	for (unsigned i = 0; i < 10; i++)
		burst_all(CROWD - 1, ISER_WINDOW_MAX);
	CHECK_EQ(shared()->share, SHARE);
	/* One that is at work alone has all of it, soon. */
	for (unsigned i = 0; i < 10; i++)
		burst_all(1, ISER_WINDOW_MAX);
	CHECK_EQ(offered(&hosts[0]), ISER_WINDOW_MAX);
	/* Until the others are, too. */
	burst_all(CROWD, ISER_WINDOW_MAX);
	CHECK_EQ(shared()->share, SHARE);
	crowd_go(CROWD);
}

/* What one took at its end is not counted any more: the queue asserts that. */
TEST(iser_short, taken_at_the_end)
{
	crowd_come(CROWD);
	for (unsigned i = 0; i < CROWD; i++)
		burst(&hosts[i], 40);
	crowd_go(CROWD);
}

/* However few there are, each may send one, and all are answered. */
TEST(iser_short, one_at_least)
{
	crowd_come(CROWD);
	burst_all(CROWD, 60);
	shared()->share = 1;
	for (unsigned i = 0; i < 10; i++)
		burst_all(CROWD, i == 0 ? ISER_WINDOW_MAX : 1);
	for (unsigned i = 0; i < CROWD; i++)
		CHECK(offered(&hosts[i]) >= 1);
	crowd_go(CROWD);
}

/* Those that cannot take what others need have their own windows. */
TEST(iser_short, few_have_all)
{
	crowd_come(FEW);
	for (unsigned i = 0; i < 4; i++) {
		burst_all(FEW, ISER_WINDOW_MAX);
		CHECK_EQ(shared()->share, RECEIVES);
	}
	crowd_go(FEW);
}

/* To libiscsi, which looks at no window, nothing is lost that it sends. */
TEST(iser_short, windows_not_looked_at)
{
	flags = 0xc0;
	blind = true;
	crowd_begin(CROWD);
	burst_all(CROWD, 60);
	CHECK_EQ(shared()->share, SHARE);
	for (unsigned i = 0; i < 4; i++)
		burst_all(CROWD, ISER_WINDOW_MAX);
	fake_dom_congestion(dom, &oid, 255);
	for (unsigned i = 0; i < 4; i++)
		burst_all(CROWD, ISER_WINDOW_MAX);
	CHECK_EQ(offered(&hosts[0]), 1);
	crowd_go(CROWD);
	flags = 0x80;
	blind = false;
}

#define WRITES ((RECEIVES - 40) / CROWD) /* of each */

/* As many pages as are left. */
static size_t pages_take(struct page **pages)
{
	size_t n = 0;

	while (pages_alloc(ts.env->pages, PAGE_FRONT, 1, &pages[n]) == 0)
		n++;
	return n;
}

/* All send writes, whose data keeps the memory of their receives. */
static void writes_send(void)
{
	static uint8_t data[RECV_DATA_BYTES];

	for (unsigned i = 0; i < CROWD; i++) {
		as(&hosts[i]);
		for (unsigned k = 0; k < WRITES; k++) {
			struct message *m = command(0x20, sizeof(data));

			rw10(m, 0x2a, 0, sizeof(data) / 512);
			message_data(m, data, sizeof(data));
			m->bytes[0] = 0x10; /* nothing is left to be fetched */
			CHECK(give(m));
		}
		was(&hosts[i]);
	}
}

/*
 * Data that came with commands keeps the memory of their receives, and there is no
 * other: what there is then is shared.  With the memory all have the whole again.
 */
TEST(iser_short, memory_short)
{
	static struct page *pages[1 << 16];
	size_t n;

	crowd_come(CROWD);
	n = pages_take(pages);
	fake_dom_hold(dom, true);
	writes_send();
	CHECK_EQ(shared()->posted, RECEIVES - WRITES * CROWD);
	for (unsigned i = 0; i < 3; i++) {
		for (unsigned k = 0; k < CROWD; k++)
			burst(&hosts[k], ISER_WINDOW_MAX);
		turns();
		for (unsigned k = 0; k < CROWD; k++)
			hear(&hosts[k]);
	}
	/* Who holds writes has had his share: the receives are for others. */
	for (unsigned i = 0; i < CROWD; i++)
		CHECK_EQ(offered(&hosts[i]), 0);
	CHECK(shared()->share < shared()->posted);
	fake_dom_hold(dom, false);
	turns();
	pages_put(ts.env->pages, pages, n);
	turns();
	for (unsigned i = 0; i < 60; i++)
		burst_all(1, ISER_WINDOW_MAX);
	CHECK_EQ(offered(&hosts[0]), ISER_WINDOW_MAX);
	CHECK_EQ(shared()->posted, RECEIVES);
	crowd_go(CROWD);
}

static void on_pages(struct page_waiter *waiter)
{
	CHECK(false);
}

/* Nor do receives wait behind somebody who wants more memory than there is. */
TEST(iser_short, memory_short_of_another)
{
	static struct page *pages[1 << 16];
	struct page_waiter large = { .cb = on_pages };
	size_t n, few = iser__recvq_pages(RECEIVES);

	crowd_come(CROWD);
	n = pages_take(pages);
	page_wait(ts.env->pages, PAGE_FRONT, n, &large);
	fake_dom_hold(dom, true);
	writes_send();
	CHECK_EQ(shared()->posted, RECEIVES - WRITES * CROWD);
	n -= few;
	pages_put(ts.env->pages, pages + n, few);
	turns();
	CHECK_EQ(shared()->posted, RECEIVES);
	page_wait_stop(ts.env->pages, &large);
	fake_dom_hold(dom, false);
	turns();
	pages_put(ts.env->pages, pages, n);
	crowd_go(CROWD);
}
