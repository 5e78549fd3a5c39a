/*
 * Devices that come, do not work, fail and go, below portals and connections.
 */
#include "tests/unit/iser_initiator.h"

/* At every address: it listens if a device works, and tries again if not. */
TEST(iser_device, wildcard)
{
	unsigned nth = 0, calls;
	char why[240];
	bool listens;

	do {
		fake_rdma_open(&(struct fake_rdma_config){ 0 });
		fake_rdma_fail(++nth);
		rooms_open_at(INADDR_ANY);
		calls = fake_rdma_calls();
		fake_rdma_fail(0);
		listens = iser_listening(iser, 1, why, sizeof(why));
		CHECK_EQ(listens, !LIST_EMPTY(&iser->devices));
		CHECK_EQ(listens, why[0] == '\0');
		CHECK_EQ(listens, !env_timer_active(
					  &TAILQ_FIRST(&iser->portals)->retry));
		end();
	} while (nth <= calls);
	CHECK(listens && nth > 4);
}

static void look(void)
{
	CHECK(env_timer_active(&iser->sweep));
	env_timer_stop(ts.env, &iser->sweep);
	iser->sweep.cb(&iser->sweep);
	turns();
}

static struct health_result health(void)
{
	struct health_result out = { .level = HEALTH_OK };

	iser->health.run(&iser->health, &out);
	return out;
}

/*
 * A device that does not work takes nothing from one that does; health says so for
 * as long as it is there.
 */
TEST(iser_device, wildcard_and_a_broken_device)
{
	char why[240];

	fake_rdma_open(&(struct fake_rdma_config){ .says_last_wqe = true,
						   .broken_too = true });
	rooms_open_at(INADDR_ANY);
	CHECK(iser_listening(iser, 1, why, sizeof(why)));
	ready();
	CHECK_EQ(health().level, HEALTH_WARN);
	CHECK(strstr(health().cause, "no iSER on 1 of 2 RDMA devices: broken0 "
				     "cannot be queried") != NULL);
	look();
	CHECK_EQ(health().level, HEALTH_WARN);
	fake_rdma_broken_goes();
	look();
	CHECK_EQ(health().level, HEALTH_OK);
	fake_rdma_remove();
	wait_ms(5);
	CHECK(LIST_EMPTY(&iser->devices));
	CHECK(iser_listening(iser, 1, why, sizeof(why)));
	end();
}

/*
 * What cannot do what a receive takes is asked for that each time anew, and the
 * arena is not registered for it: the loop would stand still meanwhile.
 */
TEST(iser_device, wildcard_and_too_few_pieces)
{
	struct iser_portal *portal;

	fake_rdma_open(&(struct fake_rdma_config){ .sge = RECV_PAGES });
	rooms_open_at(INADDR_ANY);
	portal = TAILQ_FIRST(&iser->portals);
	CHECK_STR(portal->why, "fake0 takes 2 pieces of memory a message");
	env_timer_stop(ts.env, &portal->retry);
	fake_rdma_fail(0);
	portal->retry.cb(&portal->retry);
	/* An id, which is bound and listens; the list of devices; a query. */
	CHECK_EQ(fake_rdma_calls(), 5);
	CHECK(portal->id == NULL);
	end();
}

/* Nobody says that a device at rest was pulled out, or that one came. */
TEST(iser_device, wildcard_looks)
{
	char why[240];

	fake_rdma_open(&(struct fake_rdma_config){ .says_last_wqe = true });
	rooms_open_at(INADDR_ANY);
	look();
	CHECK(!LIST_EMPTY(&iser->devices));
	fake_rdma_hide(true);
	look();
	CHECK(LIST_EMPTY(&iser->devices));
	CHECK(!iser_listening(iser, 1, why, sizeof(why)));
	CHECK_STR(why, "this machine has no RDMA device");
	look();
	fake_rdma_hide(false);
	env_timer_stop(ts.env, &TAILQ_FIRST(&iser->portals)->retry);
	TAILQ_FIRST(&iser->portals)
		->retry.cb(&TAILQ_FIRST(&iser->portals)->retry);
	CHECK(iser_listening(iser, 1, why, sizeof(why)));
	ready();
	end();
}

/* Nor does another one of the same GUID, as two of SoftRoCE on one MAC have. */
TEST(iser_device, wildcard_looks_beside_a_twin)
{
	fake_rdma_open(&(struct fake_rdma_config){ .says_last_wqe = true });
	rooms_open_at(INADDR_ANY);
	fake_rdma_twin(true);
	look();
	CHECK(!LIST_EMPTY(&iser->devices));
	fake_rdma_hide(true);
	look();
	CHECK(LIST_EMPTY(&iser->devices));
	fake_rdma_hide(false);
	fake_rdma_twin(false);
	end();
}

/* It goes, and comes back; how many receives its connections share then. */
static unsigned receives_anew(void)
{
	struct env_timer *retry = &TAILQ_FIRST(&iser->portals)->retry;

	fake_rdma_hide(true);
	look();
	CHECK(LIST_EMPTY(&iser->devices));
	fake_rdma_hide(false);
	env_timer_stop(ts.env, retry);
	retry->cb(retry);
	look();
	CHECK(!LIST_EMPTY(&iser->devices));
	return LIST_FIRST(&iser->devices)->recvq->capacity;
}

/* However many devices there are, their receives leave memory to payload. */
TEST(iser_device, receives_of_many)
{
	unsigned before, n, others = 0;
	size_t part;

	test_shards_open(&ts, 1, 16u << 20);
	fake_rdma_open(&(struct fake_rdma_config){ .says_last_wqe = true });
	rooms_open_at(INADDR_ANY);
	part = arena_pages(ts.arena) / 4;
	before = LIST_FIRST(&iser->devices)->recvq->capacity;
	CHECK(before > 128);
	for (unsigned i = 0; i < 8; i++) {
		/* As it would be if that one had stayed. */
		others += before;
		iser->receives += before;
		n = receives_anew();
		CHECK(n < before || n == 64);
		CHECK(n >= 64);
		CHECK(iser__recvq_pages(others + n) <= part || n == 64);
		CHECK_EQ(iser->receives, others + n);
		before = n;
	}
	CHECK_EQ(before, 64);
	ready();
	fake_peer_disconnect(peer);
	turns();
	fake_peer_free(peer);
	peer = NULL;
	iser->receives -= others;
	CHECK(receives_anew() > 128);
	end();
}

/* A bond's other port has the address now: it listens anew, and says why not. */
TEST(iser_device, address_change)
{
	struct rdma_cm_event event = { .event = RDMA_CM_EVENT_ADDR_CHANGE };
	struct iser_portal *portal;
	char why[240];

	fixture();
	portal = TAILQ_FIRST(&iser->portals);
	portal->cm.event(&portal->cm, &event);
	CHECK(!iser_listening(iser, 1, why, sizeof(why)));
	CHECK_STR(why, "its device or its address went");
	CHECK(env_timer_active(&portal->retry));
	env_timer_stop(ts.env, &portal->retry);
	portal->retry.cb(&portal->retry);
	CHECK(iser_listening(iser, 1, why, sizeof(why)));
	CHECK_STR(why, "");
	ready();
	end();
}

TEST(iser_device, device_removed)
{
	char why[100];

	fixture();
	ready();
	fake_peer_hold(peer, true);
	write_send(0, 2048, 8192, 4);
	fake_rdma_remove();
	wait_ms(5);
	fake_rdma_check_empty();
	CHECK(!iser_listening(iser, 1, why, sizeof(why)));
	end();
}

/* Nobody holds it up: not who logged out, and has yet to hang up. */
TEST(iser_device, removed_behind_a_logout)
{
	for (unsigned steps = 0; steps < 12; steps++) {
		struct message *m;

		fixture();
		ready();
		m = message(ISCSI_OP_LOGOUT | ISCSI_IMMEDIATE, ISCSI_FINAL);
		CHECK(fake_peer_send(peer, m->bytes, m->len));
		for (unsigned i = 0; i < steps; i++)
			shard_step(ts.env, 0);
		fake_rdma_remove();
		while (counter_value(&iser__conns) > 0)
			turns();
		turns();
		fake_rdma_check_empty();
		end();
	}
}

/* Its context may be closed by the time everybody was told. */
TEST(iser_device, device_fails)
{
	char why[100];

	for (unsigned srq = 0; srq < 2; srq++) {
		fixture();
		fake_rdma_break(srq);
		turns();
		fake_rdma_check_empty();
		CHECK(!iser_listening(iser, 1, why, sizeof(why)));
		end();
		fixture();
		ready();
		fake_rdma_break(srq);
		wait_ms(5);
		fake_rdma_check_empty();
		end();
	}
}

/* Each connection that is on it counts, from its request to its end. */
TEST(iser_device, counts_its_connections)
{
	struct fake_peer *first;
	struct iser_device *device;

	fixture();
	device = LIST_FIRST(&iser->devices);
	CHECK_EQ(device->conns_count, 0);
	ready();
	first = peer;
	peer = NULL;
	dial(0x80, 0); /* refused */
	CHECK_EQ(fake_peer_state(peer), FAKE_REFUSED);
	CHECK_EQ(device->conns_count, 1);
	dial(0x80, 4);
	CHECK_EQ(device->conns_count, 2);
	fake_peer_disconnect(first);
	turns();
	CHECK_EQ(device->conns_count, 1);
	fake_peer_free(first);
	fake_peer_disconnect(peer);
	turns();
	CHECK_EQ(device->conns_count, 0);
	end();
}

/*
 * Its receive queue broke, and an initiator is back before the last connection
 * has ended: it is told so, and nothing is made for it yet.
 */
TEST(iser_device, back_before_the_others_have_ended)
{
	const uint8_t private[4] = { 0x80 };
	struct iser_device *device;
	struct ibv_context *verbs;
	struct fake_peer *early;
	char why[240];

	fixture();
	ready();
	device = LIST_FIRST(&iser->devices);
	verbs = device->rdma->verbs;
	fake_rdma_break(true);
	while (!device->gone)
		shard_step(ts.env, 0);
	CHECK_EQ(device->conns_count, 1);
	fake_rdma_fail(0);
	CHECK_EQ(iser__device_get(iser, verbs, &device, why, sizeof(why)),
		 -EBUSY);
	CHECK_STR(why, "fake0 is gone: 1 connection on it has yet to end");
	CHECK_EQ(fake_rdma_calls(), 0);
	early = fake_peer_connect(private, sizeof(private), 4);
	wait_ms(5);
	CHECK_EQ(fake_peer_state(early), FAKE_REFUSED);
	fake_peer_free(early);
	end();
}
