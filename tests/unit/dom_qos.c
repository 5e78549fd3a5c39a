/* The limit of commands a second, pure and at an owner. */
#include "tests/unit/dom_rig.h"

TEST(dom_qos, bucket)
{
	struct dom__qos q = { .limit = 100 };
	uint64_t now = 5 * SEC, passed = 0;

	/* A tenth of a second's burst, then the rate, to the nanosecond. */
	while (dom__qos_take(&q, now) == 0)
		passed++;
	CHECK_EQ(passed, 10);
	CHECK_EQ(dom__qos_take(&q, now), 10 * MSEC);
	CHECK_EQ(dom__qos_take(&q, now + 10 * MSEC - 1), 1);
	CHECK_EQ(dom__qos_take(&q, now + 10 * MSEC), 0);
	for (passed = 0, now += SEC; now < 16 * SEC; now += MSEC)
		passed += dom__qos_take(&q, now) == 0;
	CHECK(passed >= 1000);
	CHECK(passed <= 1010);
	/* One a second still passes one at a time; none: no limit. */
	q = (struct dom__qos){ .limit = 1 };
	CHECK_EQ(dom__qos_take(&q, now), 0);
	CHECK_EQ(dom__qos_take(&q, now), SEC);
	q.limit = 0;
	for (unsigned i = 0; i < 100; i++)
		CHECK_EQ(dom__qos_take(&q, now), 0);
}

static void limit_put(struct fixture *f, uint64_t limit)
{
	Directory__Policy p = DIRECTORY__POLICY__INIT;

	p.name = "p";
	p.stripe_width = 1;
	p.iops_limit = limit;
	entry_put(f, CMMDS_POLICY, "p", 1, &p.base);
}

/* Also for one whose owner takes over just then. */
TEST(dom_qos, another_limit_under_a_takeover)
{
	struct fixture *f = fixture_open();
	struct dom_object_open open = { .data = f };

	limit_put(f, 7);
	f->oid = uuid_of(9);
	CHECK_EQ(create(f, SIZE, "p"), 0);
	stop(f);
	start(f, false);
	faults.hold[0] = faults.hold[1] = true;
	CHECK_EQ(dom_object_open(f->dom, &open, &f->oid, on_opened), 0);
	while (owner_of(f)->leaves == 0)
		nap(f, MSEC);
	CHECK_EQ(owner_of(f)->qos.limit, 7);
	limit_put(f, 9);
	CHECK_EQ(owner_of(f)->state, DOM__TAKING);
	faults_release();
	CHECK_EQ(wait_for(f), 0);
	CHECK_EQ(owner_of(f)->qos.limit, 9);
	fixture_close(f);
}

/* The object's entry, with another policy and less reserved. */
static void policy_give(struct fixture *f, const char *policy,
			uint64_t reserved_bytes)
{
	Directory__Object o = *cmmds_object(f->cmmds, &f->oid);

	o.policy = (char *)policy;
	o.reserved_bytes = reserved_bytes;
	entry_put(f, CMMDS_OBJECT, f->oid.b, sizeof(f->oid.b), &o.base);
}

/* Another policy holds at once: its limit, and what it does not reserve. */
TEST(dom_qos, another_policy)
{
	struct fixture *f = fixture_open();
	Directory__Policy thick = DIRECTORY__POLICY__INIT;

	thick.name = "thick";
	thick.stripe_width = 1;
	thick.reserve_percent = 100;
	entry_put(f, CMMDS_POLICY, "thick", 5, &thick.base);
	limit_put(f, 7);
	f->oid = uuid_of(9);
	CHECK_EQ(create(f, SIZE, "thick"), 0);
	CHECK_EQ(object_open(f), 0);
	CHECK_EQ(owner_of(f)->qos.limit, 0);
	CHECK(owner_of(f)->thick);
	CHECK_EQ(dom_object_kept(f->object), SIZE);
	policy_give(f, "p", SIZE / 2);
	CHECK_EQ(owner_of(f)->qos.limit, 7);
	CHECK(!owner_of(f)->thick);
	CHECK_EQ(dom_object_kept(f->object), SIZE / 2);
	policy_give(f, "", 0);
	CHECK_EQ(owner_of(f)->qos.limit, 0);
	CHECK_EQ(dom_object_kept(f->object), 0);
	CHECK_EQ(do_write(f, 0, buf_a, B, 0, 0), 0);
	fixture_close(f);
}

/* What waits for its token when the object shrinks is beyond its end then. */
TEST(dom_qos, shrinks_under_those_who_wait)
{
	struct fixture *f = fixture_open();
	struct dom_nexus a = { .initiator_port = "iqn.a,i,0x000000000001",
			       .target_port = 1 };
	static struct req reqs[4];

	memset(reqs, 0, sizeof(reqs));
	limit_put(f, 1);
	f->oid = uuid_of(9);
	CHECK_EQ(create(f, SIZE, "p"), 0);
	CHECK_EQ(object_open(f), 0);
	dom_nexus_open(f->object, &a);
	for (unsigned i = 0; i < ARRAY_LEN(reqs); i++) {
		reqs[i].io.nexus = &a;
		write_start(f, &reqs[i], i % 2 ? SIZE - B : 0, buf_a, B, 0);
	}
	CHECK_EQ(req_wait(f, &reqs[0]), 0);
	CHECK_EQ(resize_to(f, 2 * MB), 0);
	CHECK_EQ(req_wait(f, &reqs[2]), 0);
	CHECK_EQ(req_wait(f, &reqs[3]), -ERANGE);
	req_wait(f, &reqs[1]);
	dom_nexus_close(f->object, &a, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	fixture_close(f);
}

/* One that is fenced runs again with the token it had. */
TEST(dom_qos, fenced)
{
	struct fixture *f = fixture_open();
	struct dom_nexus a = { .initiator_port = "iqn.a,i,0x000000000001",
			       .target_port = 1 };
	struct req w = { .io.nexus = &a };
	uint32_t oepoch;
	uint64_t full;

	limit_put(f, 1);
	f->oid = uuid_of(9);
	CHECK_EQ(create(f, SIZE, "p"), 0);
	CHECK_EQ(object_open(f), 0);
	dom_nexus_open(f->object, &a);
	oepoch = owner_of(f)->oepoch;
	owner_of(f)->peers[0].cm->promised_oepoch++;
	write_start(f, &w, 0, buf_a, B, 0);
	full = owner_of(f)->qos.full_ns;
	CHECK(full > 0);
	CHECK_EQ(req_wait(f, &w), 0);
	CHECK(owner_of(f)->oepoch > oepoch);
	CHECK_EQ(owner_of(f)->qos.full_ns, full);
	dom_nexus_close(f->object, &a, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	fixture_close(f);
}

TEST(dom_qos, policy_limits_an_object)
{
	struct fixture *f = fixture_open();
	static struct req reqs[200];
	struct req stop_me = { 0 };
	struct dom_nexus a = { .initiator_port = "iqn.a,i,0x000000000001",
			       .target_port = 1 };
	unsigned done = 0;
	uint64_t start;

	memset(reqs, 0, sizeof(reqs));
	limit_put(f, 20);
	f->oid = uuid_of(9);
	CHECK_EQ(create(f, SIZE, "p"), 0);
	CHECK_EQ(object_open(f), 0);
	dom_nexus_open(f->object, &a);
	start = env_now(f->ts.env);
	for (unsigned i = 0; i < ARRAY_LEN(reqs); i++) {
		reqs[i].count = &done;
		reqs[i].io.nexus = &a;
		write_start(f, &reqs[i], i * B, buf_a, B, 0);
	}
	stop_me.io.nexus = &a;
	write_start(f, &stop_me, 0, buf_a, B, 0);
	for (unsigned i = 0; i < 6000 && done < 6; i++)
		nap(f, 10 * MSEC);
	CHECK(done >= 6);
	CHECK(env_now(f->ts.env) - start >= 200 * MSEC);
	nap(f, 200 * MSEC);
	/* A tenth of a second's are there at once. */
	CHECK(done <= 2 + (env_now(f->ts.env) - start) * 20 / SEC);
	dom_cancel(&stop_me.io);
	CHECK_EQ(req_wait(f, &stop_me), -ECANCELED);
	/* This node's own commands pass. */
	CHECK_EQ(do_read(f, 0, got, B), 0);
	CHECK(done < ARRAY_LEN(reqs));
	limit_put(f, 0);
	for (unsigned i = 0; i < ARRAY_LEN(reqs); i++)
		CHECK_EQ(req_wait(f, &reqs[i]), 0);
	dom_nexus_close(f->object, &a, on_done, f);
	CHECK_EQ(wait_for(f), 0);
	fixture_close(f);
}
