/* reservation: the conflict matrix and every service action, by table. */
#include "tests/lib/test.h"

#include "dom/dom_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define A "iqn.a,i,0x000000000001"
#define B "iqn.b,i,0x000000000002"
#define C "iqn.c,i,0x000000000003"

static struct dom_reservation res;
static struct dom__pr_effects effects;
static unsigned bad;
static bool changed;

static int apply(const struct dom__pr_who *who, struct dom_pr pr)
{
	return dom__reservation_apply(&res, who, &pr, &changed, &bad, &effects);
}

static int act(const char *who, struct dom_pr pr)
{
	return apply(&(struct dom__pr_who){ who, 1 }, pr);
}

static int reg(const char *who, uint64_t key, uint64_t sakey)
{
	return act(who, (struct dom_pr){ .action = DOM_PR_REGISTER,
					 .key = key,
					 .service_action_key = sakey });
}

static int simple(const char *who, enum dom_pr_action action, uint64_t key,
		  uint64_t sakey, uint8_t type)
{
	return act(who, (struct dom_pr){ .action = action,
					 .key = key,
					 .service_action_key = sakey,
					 .type = type });
}

static void fresh(void)
{
	dom__reservation_fini(&res);
	CHECK_EQ(reg(A, 0, 1), 0);
	CHECK_EQ(reg(B, 0, 2), 0);
}

static bool allowed(const char *who, enum dom_access access)
{
	struct dom__pr_who w = { who, 1 };

	return dom__reservation_allows(&res, &w, access);
}

static unsigned owed(const char *who)
{
	unsigned bits = 0;

	for (unsigned i = 0; i < effects.count; i++) {
		if (strcmp(effects.items[i].initiator_port, who) == 0)
			bits |= effects.items[i].attention;
	}
	return bits;
}

/* SPC-4 table 38: holder A, registered B, unregistered C. */
TEST(dom_reservation, conflict_matrix)
{
	static const struct {
		uint8_t type;
		bool b_read, b_write, c_read, c_write;
	} table[] = {
		{ 1, true, false, true, false },
		{ 3, false, false, false, false },
		{ 5, true, true, true, false },
		{ 6, true, true, false, false },
		{ 7, true, true, true, false },
		{ 8, true, true, false, false },
	};

	for (size_t i = 0; i < ARRAY_LEN(table); i++) {
		fresh();
		CHECK_EQ(simple(A, DOM_PR_RESERVE, 1, 0, table[i].type), 0);
		CHECK(allowed(A, DOM_ACCESS_READ));
		CHECK(allowed(A, DOM_ACCESS_WRITE));
		CHECK_EQ(allowed(B, DOM_ACCESS_READ), table[i].b_read);
		CHECK_EQ(allowed(B, DOM_ACCESS_WRITE), table[i].b_write);
		CHECK_EQ(allowed(C, DOM_ACCESS_READ), table[i].c_read);
		CHECK_EQ(allowed(C, DOM_ACCESS_WRITE), table[i].c_write);
		CHECK(allowed(C, DOM_ACCESS_NONE));
	}
	dom__reservation_fini(&res);
	CHECK(allowed(C, DOM_ACCESS_WRITE));
}

TEST(dom_reservation, registering)
{
	dom__reservation_fini(&res);
	CHECK_EQ(reg(A, 5, 1), -EPERM); /* not registered: key must be 0 */
	CHECK_EQ(reg(A, 0, 0), 0);
	CHECK(!changed);
	CHECK_EQ(res.generation, 0);
	CHECK_EQ(reg(A, 0, 1), 0);
	CHECK_EQ(res.generation, 1);
	CHECK_EQ(reg(A, 9, 2), -EPERM);
	CHECK_EQ(reg(A, 1, 2), 0);
	CHECK_EQ(res.registrations[0].key, 2);
	CHECK_EQ(simple(A, DOM_PR_REGISTER_AND_IGNORE, 77, 3, 0), 0);
	CHECK_EQ(res.registrations[0].key, 3);
	CHECK_EQ(reg(A, 3, 0), 0);
	CHECK_EQ(res.registrations_count, 0);
	CHECK_EQ(res.generation, 4);
	/* Room ends at the limit, and a refusal leaves things as they were. */
	for (unsigned i = 0; i < DOM_REGISTRATIONS_MAX; i++) {
		char port[32];

		snprintf(port, sizeof(port), "iqn.p%u,i,0x0", i);
		CHECK_EQ(reg(port, 0, 1 + i), 0);
	}
	CHECK_EQ(reg(A, 0, 1), -ENOMEM);
	CHECK_EQ(res.registrations_count, DOM_REGISTRATIONS_MAX);
	CHECK_EQ(simple("iqn.p0,i,0x0", DOM_PR_CLEAR, 1, 0, 0), 0);
	CHECK_EQ(effects.count, DOM_REGISTRATIONS_MAX - 1);
	CHECK_EQ(res.registrations_count, 0);
}

/* The last REGISTER decides, also one that ends a registration; not a vain one. */
TEST(dom_reservation, power_losses)
{
	struct dom_pr pr = { .action = DOM_PR_REGISTER_AND_IGNORE };

	fresh();
	CHECK(!res.aptpl);
	pr.aptpl = true;
	CHECK_EQ(act(B, pr), 0);
	CHECK(res.aptpl);
	pr.aptpl = false;
	CHECK_EQ(act(C, pr), 0);
	CHECK(res.aptpl);
	CHECK_EQ(act(A, pr), 0);
	CHECK(!res.aptpl);
}

TEST(dom_reservation, spec_i_pt_and_all_tg_pt)
{
	const char *ports[] = { B, C };
	struct dom_pr pr = { .action = DOM_PR_REGISTER,
			     .service_action_key = 4,
			     .spec_i_pt = true,
			     .initiator_ports = ports,
			     .initiator_ports_count = 2 };
	struct dom__pr_who other = { A, 2 };

	dom__reservation_fini(&res);
	CHECK_EQ(act(A, pr), 0);
	CHECK_EQ(res.registrations_count, 3);
	CHECK_EQ(res.generation, 1);
	pr.key = 4;
	CHECK_EQ(act(A, pr), -EINVAL); /* registered already */
	CHECK_EQ(bad, 20);
	pr.action = DOM_PR_REGISTER_AND_IGNORE;
	CHECK_EQ(act("iqn.d,i,0x0", pr), -EINVAL);
	CHECK_EQ(bad, 20);
	/* One of the others is registered already: nobody new is. */
	pr.action = DOM_PR_REGISTER;
	pr.key = 0;
	CHECK_EQ(act("iqn.d,i,0x0", pr), -EINVAL);
	CHECK_EQ(bad, 28);
	CHECK_EQ(res.registrations_count, 3);
	/* Nor does it matter that the asker is among them. */
	CHECK_EQ(simple(A, DOM_PR_CLEAR, 4, 0, 0), 0);
	CHECK_EQ(act(B, pr), 0);
	CHECK_EQ(res.registrations_count, 2);
	CHECK_EQ(reg(A, 0, 4), 0);
	/* One registration for every target port. */
	CHECK_EQ(act(A, (struct dom_pr){ .action = DOM_PR_REGISTER,
					 .key = 4,
					 .service_action_key = 5,
					 .all_target_ports = true }),
		 0);
	CHECK_EQ(res.registrations_count, 3);
	CHECK_EQ(simple(A, DOM_PR_RESERVE, 5, 0, 3), 0);
	CHECK(dom__reservation_allows(&res, &other, DOM_ACCESS_WRITE));
}

/* Those of single ports melt into it, whichever asks, and so does what they hold. */
TEST(dom_reservation, all_tg_pt_takes_the_place_of_others)
{
	const struct dom__pr_who ports[] = { { A, 1 }, { A, 2 }, { A, 3 } };
	struct dom_pr pr = { .action = DOM_PR_REGISTER,
			     .service_action_key = 4 };
	const struct dom_pr hold = { .action = DOM_PR_RESERVE,
				     .key = 4,
				     .type = 3 };

	for (unsigned at = 0; at < 3; at++)
		for (unsigned holder = 0; holder < 3; holder++) {
			dom__reservation_fini(&res);
			pr.key = 0;
			pr.all_target_ports = false;
			for (unsigned i = 0; i < 3; i++) {
				CHECK_EQ(apply(&ports[i], pr), 0);
				CHECK_EQ(reg(i == 1 ? B : C, 0, 7),
					 i < 2 ? 0 : -EPERM);
			}
			CHECK_EQ(apply(&ports[holder], hold), 0);
			pr.key = 4;
			pr.all_target_ports = true;
			CHECK_EQ(apply(&ports[at], pr), 0);
			CHECK_EQ(res.registrations_count, 3);
			CHECK(res.held);
			CHECK_STR(res.registrations[res.holder].initiator_port,
				  A);
			for (unsigned i = 0; i < 3; i++)
				CHECK(dom__reservation_allows(
					&res, &ports[i], DOM_ACCESS_WRITE));
			CHECK(!allowed(B, DOM_ACCESS_READ));
			CHECK(!allowed(C, DOM_ACCESS_READ));
		}
}

TEST(dom_reservation, reserve_and_release)
{
	fresh();
	CHECK_EQ(simple(C, DOM_PR_RESERVE, 0, 0, 1), -EPERM);
	CHECK_EQ(simple(A, DOM_PR_RESERVE, 9, 0, 1), -EPERM);
	CHECK_EQ(simple(A, DOM_PR_RESERVE, 1, 0, 2), -EINVAL);
	CHECK_EQ(simple(A, DOM_PR_RESERVE, 1, 0, 5), 0);
	CHECK_EQ(simple(A, DOM_PR_RESERVE, 1, 0, 5), 0);
	CHECK(!changed);
	CHECK_EQ(simple(A, DOM_PR_RESERVE, 1, 0, 6), -EPERM);
	CHECK_EQ(simple(B, DOM_PR_RESERVE, 2, 0, 5), -EPERM);
	CHECK_EQ(simple(B, DOM_PR_RELEASE, 2, 0, 5), 0); /* not the holder */
	CHECK(!changed);
	CHECK_EQ(simple(A, DOM_PR_RELEASE, 1, 0, 6), -EINVAL);
	CHECK_EQ(bad, UINT32_MAX);
	CHECK_EQ(simple(A, DOM_PR_RELEASE, 1, 0, 5), 0);
	CHECK(!res.held);
	CHECK_EQ(owed(B), DOM_UA_RESERVATION_RELEASED);
	CHECK_EQ(owed(A), 0);
	CHECK_EQ(res.generation, 2);
	/* All registrants: each holds, the last one's leaving ends it. */
	CHECK_EQ(simple(A, DOM_PR_RESERVE, 1, 0, 7), 0);
	CHECK_EQ(simple(B, DOM_PR_RESERVE, 2, 0, 7), 0);
	CHECK_EQ(reg(A, 1, 0), 0);
	CHECK(res.held);
	CHECK_EQ(reg(B, 2, 0), 0);
	CHECK(!res.held);
	/* A holder that unregisters: registrants only are told. */
	fresh();
	CHECK_EQ(simple(A, DOM_PR_RESERVE, 1, 0, 1), 0);
	CHECK_EQ(reg(A, 1, 0), 0);
	CHECK(!res.held);
	CHECK_EQ(owed(B), 0);
	fresh();
	CHECK_EQ(simple(A, DOM_PR_RESERVE, 1, 0, 6), 0);
	CHECK_EQ(reg(A, 1, 0), 0);
	CHECK_EQ(owed(B), DOM_UA_RESERVATION_RELEASED);
}

TEST(dom_reservation, preempting)
{
	fresh();
	CHECK_EQ(simple(B, DOM_PR_PREEMPT, 2, 0, 1), -EINVAL);
	CHECK_EQ(bad, 8);
	CHECK_EQ(simple(B, DOM_PR_PREEMPT, 2, 99, 1), -EPERM);
	CHECK_EQ(simple(A, DOM_PR_RESERVE, 1, 0, 1), 0);
	CHECK_EQ(simple(B, DOM_PR_PREEMPT_AND_ABORT, 2, 1, 0x13), -EINVAL);
	CHECK_EQ(bad, DOM_PR_OF_CDB);
	CHECK_EQ(simple(B, DOM_PR_PREEMPT_AND_ABORT, 2, 1, 3), 0);
	CHECK_EQ(res.generation, 3);
	CHECK(res.held);
	CHECK_EQ(res.type, 3);
	CHECK_EQ(res.registrations_count, 1);
	CHECK_STR(res.registrations[res.holder].initiator_port, B);
	CHECK_EQ(owed(A), DOM_UA_REGISTRATION_PREEMPTED);
	CHECK(effects.items[0].abort);
	/* Not the holder's key: only registrations go. */
	CHECK_EQ(reg(A, 0, 1), 0);
	CHECK_EQ(reg(C, 0, 1), 0);
	CHECK_EQ(simple(B, DOM_PR_PREEMPT, 2, 1, 0), 0);
	CHECK_EQ(res.type, 3);
	CHECK_EQ(res.registrations_count, 1);
	CHECK_EQ(owed(A), DOM_UA_REGISTRATION_PREEMPTED);
	CHECK_EQ(owed(C), DOM_UA_REGISTRATION_PREEMPTED);
	/* All registrants and key 0: the preemptor alone is left. */
	fresh();
	CHECK_EQ(simple(A, DOM_PR_RESERVE, 1, 0, 8), 0);
	CHECK_EQ(simple(B, DOM_PR_PREEMPT, 2, 0, 1), 0);
	CHECK_EQ(res.registrations_count, 1);
	CHECK_EQ(res.type, 1);
	CHECK(!allowed(A, DOM_ACCESS_WRITE));
	/* One's own key: the type changes, those who stay are told. */
	fresh();
	CHECK_EQ(simple(A, DOM_PR_RESERVE, 1, 0, 5), 0);
	CHECK_EQ(simple(A, DOM_PR_PREEMPT, 1, 1, 6), 0);
	CHECK_EQ(res.registrations_count, 2);
	CHECK_EQ(res.type, 6);
	CHECK_EQ(owed(B), DOM_UA_RESERVATION_RELEASED);
}

/* One's own key: the other registrations with it, and one's own, if it holds none. */
TEST(dom_reservation, preempting_ones_own_key)
{
	fresh();
	CHECK_EQ(reg(C, 0, 1), 0);
	CHECK_EQ(simple(A, DOM_PR_PREEMPT, 1, 1, 5), 0);
	CHECK_EQ(res.registrations_count, 1);
	CHECK_STR(res.registrations[0].initiator_port, B);
	CHECK_EQ(owed(C), DOM_UA_REGISTRATION_PREEMPTED);
	CHECK_EQ(owed(A), 0);
	fresh();
	CHECK_EQ(reg(C, 0, 1), 0);
	CHECK_EQ(simple(C, DOM_PR_RESERVE, 1, 0, 3), 0);
	CHECK_EQ(simple(C, DOM_PR_PREEMPT, 1, 1, 1), 0);
	CHECK_EQ(res.registrations_count, 2);
	CHECK_EQ(res.type, 1);
	CHECK_STR(res.registrations[res.holder].initiator_port, C);
}

TEST(dom_reservation, moving)
{
	const char *to[] = { C };
	const char *self[] = { A };
	struct dom_pr pr = { .action = DOM_PR_REGISTER_AND_MOVE,
			     .key = 1,
			     .service_action_key = 7,
			     .initiator_ports = to,
			     .initiator_ports_count = 1,
			     .move_target_port = 1 };

	fresh();
	CHECK_EQ(act(A, pr), -EINVAL); /* nothing held */
	CHECK_EQ(bad, DOM_PR_OF_CDB);
	CHECK_EQ(simple(A, DOM_PR_RESERVE, 1, 0, 1), 0);
	pr.key = 2;
	CHECK_EQ(act(B, pr), -EPERM); /* not the holder */
	pr.key = 1;
	pr.service_action_key = 0;
	CHECK_EQ(act(A, pr), -EINVAL);
	CHECK_EQ(bad, 8);
	pr.service_action_key = 7;
	pr.initiator_ports = self;
	CHECK_EQ(act(A, pr), -EINVAL);
	CHECK_EQ(bad, 24);
	pr.move_target_port = 2; /* nor to another port of the target */
	CHECK_EQ(act(A, pr), -EINVAL);
	CHECK_EQ(bad, 24);
	pr.move_target_port = 1;
	pr.initiator_ports = to;
	pr.unregister = true;
	CHECK_EQ(act(A, pr), 0);
	CHECK_EQ(res.registrations_count, 2);
	CHECK_STR(res.registrations[res.holder].initiator_port, C);
	CHECK_EQ(res.registrations[res.holder].key, 7);
	CHECK(!allowed(A, DOM_ACCESS_WRITE));
	CHECK(allowed(C, DOM_ACCESS_WRITE));
	fresh();
	CHECK_EQ(simple(A, DOM_PR_RESERVE, 1, 0, 7), 0);
	CHECK_EQ(act(A, pr), -EPERM); /* all registrants */
	/* To one that is registered: with the key that is told. */
	fresh();
	CHECK_EQ(simple(A, DOM_PR_RESERVE, 1, 0, 1), 0);
	to[0] = B;
	CHECK_EQ(act(A, pr), 0);
	CHECK_EQ(res.registrations_count, 1);
	CHECK_EQ(res.registrations[0].key, 7);
	CHECK(allowed(B, DOM_ACCESS_WRITE));
	CHECK(!allowed(A, DOM_ACCESS_WRITE));
}

TEST(dom_reservation, spc2)
{
	dom__reservation_fini(&res);
	CHECK_EQ(simple(A, DOM_SPC2_RESERVE, 0, 0, 0), 0);
	CHECK_EQ(simple(A, DOM_SPC2_RESERVE, 0, 0, 0), 0);
	CHECK_EQ(simple(B, DOM_SPC2_RESERVE, 0, 0, 0), -EPERM);
	CHECK(!allowed(B, DOM_ACCESS_READ));
	CHECK(allowed(A, DOM_ACCESS_WRITE));
	CHECK_EQ(reg(B, 0, 1), -EPERM);
	CHECK_EQ(simple(B, DOM_SPC2_RELEASE, 0, 0, 0), 0);
	CHECK(!allowed(B, DOM_ACCESS_READ));
	CHECK_EQ(simple(A, DOM_SPC2_RELEASE, 0, 0, 0), 0);
	CHECK(allowed(B, DOM_ACCESS_WRITE));
	CHECK_EQ(reg(B, 0, 1), 0);
	CHECK_EQ(simple(A, DOM_SPC2_RESERVE, 0, 0, 0), -EPERM);
}

/* What is stored comes back the same; nonsense is refused. */
TEST(dom_reservation, stored_and_read)
{
	struct uuid oid = { { 1 } };
	struct dom_reservation back = { 0 };
	Directory__Reservation msg;

	fresh();
	CHECK_EQ(simple(B, DOM_PR_RESERVE, 2, 0, 5), 0);
	CHECK_EQ(dom__reservation_pack(&res, &oid, true, &msg), 0);
	CHECK(msg.swp);
	CHECK_EQ(dom__reservation_unpack(&back, &msg), 0);
	CHECK_EQ(back.registrations_count, 2);
	CHECK_EQ(back.holder, res.holder);
	CHECK_EQ(back.generation, res.generation);
	for (unsigned i = 0; i < 2; i++) {
		const struct dom_registration *r = &back.registrations[i];

		CHECK(strcmp(r->initiator_port,
			     res.registrations[i].initiator_port) == 0);
		CHECK_EQ(r->target_port, res.registrations[i].target_port);
		CHECK_EQ(r->key, res.registrations[i].key);
		CHECK_EQ(r->all_target_ports,
			 res.registrations[i].all_target_ports);
	}
	msg.holder = 2;
	CHECK_EQ(dom__reservation_unpack(&back, &msg), -EUCLEAN);
	msg.holder = 1;
	msg.type = 4;
	CHECK_EQ(dom__reservation_unpack(&back, &msg), -EUCLEAN);
	dom__reservation_pack_free(&msg);
	dom__reservation_fini(&back);
	dom__reservation_fini(&res);
}
