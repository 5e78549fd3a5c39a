/*
 * Task management: in what state a task is found, and what it does to the tasks
 * of others.
 */
#include "iscsi/scsi_int.h"
#include "tests/unit/iscsi_rig.h"

enum { PENDING = 999, QUERY_TASK = 9, QUERY_TASK_SET = 10, QUERY_ASYNC = 12 };

static uint32_t write_block(struct mock *m)
{
	static uint8_t data[512];

	return command(m, 0xa0, sizeof(data), 0x2a, 0, 1, data, sizeof(data));
}

/* Storage neither ends what it has nor lets itself be stopped. */
static void storage_stuck(bool stuck)
{
	fake_dom_stubborn(dom, stuck);
	fake_dom_hold(dom, stuck);
}

static unsigned response_of(struct mock *m)
{
	struct seen *s = next(m);

	CHECK(s != NULL);
	CHECK_EQ(s->bhs[0], ISCSI_OP_TMF_RSP);
	return s->bhs[2];
}

/* The additional sense that the command @itt ends with. */
static unsigned hears(struct mock *m, uint32_t itt)
{
	struct seen *s = next(m);

	CHECK(s != NULL);
	CHECK_EQ(get_be32(s->bhs + 16), itt);
	CHECK_EQ(s->bhs[3], SCSI_CHECK_CONDITION);
	return get_be16(s->data + 2 + 12);
}

/* ---- tasks of the session ---- */

/* Initiators repeat an ABORT TASK that takes long: it is no other answer. */
TEST(iscsi_tmf, repeated_while_storage_has_the_task)
{
	struct mock m;
	uint32_t itt, cmdsn;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	storage_stuck(true);
	cmdsn = m.cmdsn;
	itt = write_block(&m);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, itt, cmdsn), PENDING);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, itt, cmdsn), PENDING);
	CHECK_EQ(tmf(&m, QUERY_TASK, itt, cmdsn), PENDING);
	storage_stuck(false);
	for (unsigned i = 0; i < 3; i++)
		CHECK_EQ(response_of(&m), 0);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, itt, cmdsn), 1); /* now it is gone */
	end();
}

/* As tmf(), with the unit's number in the flat form. */
static unsigned tmf_flat(struct mock *m, unsigned function, uint32_t ref,
			 uint32_t ref_cmdsn)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x42, (uint8_t)(0x80 | function) };
	struct seen *s;

	bhs[8] = 0x40;
	put_be32(bhs + 16, ++tag);
	put_be32(bhs + 20, ref);
	put_be32(bhs + 32, ref_cmdsn);
	put_pdu(m, bhs, NULL, 0);
	s = next(m);
	return s != NULL ? s->bhs[2] : PENDING;
}

/* A unit has several names: a task there is a task there (SAM-5 4.7). */
TEST(iscsi_tmf, by_another_form_of_the_lun)
{
	uint32_t itt, cmdsn;
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	storage_stuck(true);
	cmdsn = m.cmdsn;
	itt = write_block(&m);
	CHECK_EQ(tmf_flat(&m, QUERY_TASK, itt, cmdsn), 7);
	CHECK_EQ(tmf_flat(&m, QUERY_TASK_SET, ISCSI_NO_TAG, 0), 7);
	CHECK_EQ(tmf_flat(&m, SCSI_ABORT_TASK, itt, cmdsn), PENDING);
	CHECK_EQ(tmf_flat(&m, SCSI_ABORT_TASK, itt, cmdsn), PENDING);
	storage_stuck(false);
	for (unsigned i = 0; i < 2; i++)
		CHECK_EQ(response_of(&m), 0);
	CHECK_EQ(tmf_flat(&m, SCSI_ABORT_TASK, itt, cmdsn), 1);
	/* What is held behind a gap, too. */
	m.cmdsn++;
	itt = write_block(&m);
	CHECK_EQ(tmf_flat(&m, SCSI_ABORT_TASK_SET, ISCSI_NO_TAG, 0), 0);
	m.cmdsn -= 2;
	CHECK_EQ(answer(&m, TUR(&m)), 0);
	CHECK(next(&m) == NULL);
	end();
}

/* The unit was taken away, and the task is there yet. */
TEST(iscsi_tmf, abort_outlives_the_unit)
{
	struct mock m;
	uint32_t itt, cmdsn;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	storage_stuck(true);
	cmdsn = m.cmdsn;
	itt = write_block(&m);
	iscsi_lun_unset(iscsi, IQN, 0);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, itt, cmdsn), PENDING);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, itt, cmdsn), PENDING);
	storage_stuck(false);
	CHECK_EQ(response_of(&m), 0);
	CHECK_EQ(response_of(&m), 0);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, itt, cmdsn), 2); /* now it is gone */
	end();
}

/* More than are kept for the next ones: of the last nothing is looked at. */
TEST(iscsi_tmf, aborts_more_than_the_pool_takes)
{
	enum { TASKS = 65 };
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	fake_dom_hold(dom, true);
	for (unsigned i = 0; i < TASKS; i++)
		(void)READ10(&m, i, 1);
	/* VERIFY(10) */
	(void)command(&m, 0x80, 0, 0x2f, 0, 8, NULL, 0);
	CHECK_EQ(m.dm.owner->session->tasks_count, TASKS + 1);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK_SET, ISCSI_NO_TAG, 0), 0);
	CHECK_EQ(m.dm.owner->session->tasks_count, 0);
	CHECK(m.dm.owner->session->pool_count < TASKS);
	fake_dom_hold(dom, false);
	CHECK_EQ(answer(&m, READ10(&m, 0, 1)), 0);
	end();
}

/* ---- what is reported ---- */

/* The first byte of REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS. */
static uint8_t report(struct mock *m)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_COMMAND, 0xc0 };

	put_be32(bhs + 16, ++tag);
	put_be32(bhs + 20, 4);
	bhs[32] = 0xa3;
	bhs[33] = 0x0d;
	put_be32(bhs + 38, 4);
	put_pdu(m, bhs, NULL, 0);
	CHECK_EQ(answer(m, tag), 0);
	return m->read_first;
}

/* RFC 7144 is there for who asked for it: what is told is what is done. */
TEST(iscsi_tmf, functions_are_those_reported)
{
	static const struct {
		unsigned function;
		uint8_t bit;
	} f[] = {
		{ SCSI_ABORT_TASK, 0x80 },	  { SCSI_ABORT_TASK_SET, 0x40 },
		{ SCSI_CLEAR_ACA, 0x20 },	  { SCSI_CLEAR_TASK_SET, 0x10 },
		{ SCSI_LUN_RESET, 0x08 },	  { QUERY_TASK, 0x04 },
		{ SCSI_TARGET_WARM_RESET, 0x02 },
	};
	static const char level1[] = "InitiatorName=" WHO "\0TargetName=" IQN;

	for (unsigned level = 1; level <= 2; level++) {
		struct mock m;
		uint8_t bits;

		fixture((struct iscsi_config){ 0 });
		if (level == 1) {
			login_text(&m, 1, level1, sizeof(level1));
			CHECK_EQ(status_of(&m), 0);
			CHECK_EQ(answer(&m, TUR(&m)), 2);
		} else {
			ready(&m, 1);
		}
		bits = report(&m);
		CHECK_EQ(bits & 0x04, level == 2 ? 0x04 : 0);
		for (unsigned i = 0; i < ARRAY_LEN(f); i++)
			CHECK_EQ(tmf(&m, f[i].function, 0x7777, 1) != 5,
				 (bits & f[i].bit) != 0);
		end();
	}
}

/* What QUERY ASYNCHRONOUS EVENT says; 0: nothing is pending. */
static unsigned pending(struct mock *m)
{
	unsigned response = tmf(m, QUERY_ASYNC, ISCSI_NO_TAG, 0);

	if (response == 0)
		return 0;
	CHECK_EQ(response, 7);
	return get_be24(m->seen[(m->taken - 1) % ARRAY_LEN(m->seen)].bhs + 8);
}

/* One attention, or more, of which it is the first; it stays. */
TEST(iscsi_tmf, attentions_are_told)
{
	struct iscsi_lun_conf second = { .iqn = IQN,
					 .lun = 1,
					 .object = { .b = { 9 } },
					 .block_bytes = 512 };
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	CHECK_EQ(pending(&m), 0);
	CHECK_EQ(tmf(&m, SCSI_LUN_RESET, ISCSI_NO_TAG, 0), 0);
	CHECK_EQ(pending(&m), 0x162903);
	CHECK_EQ(pending(&m), 0x162903);
	CHECK_EQ(iscsi_lun_set(iscsi, &second), 0);
	CHECK_EQ(pending(&m), 0x262903);
	CHECK_EQ(hears(&m, TUR(&m)), 0x2903);
	CHECK_EQ(pending(&m), 0x163f0e);
	CHECK_EQ(hears(&m, TUR(&m)), 0x3f0e);
	CHECK_EQ(pending(&m), 0);
	end();
}

/* ---- commands ahead of a gap, and behind it ---- */

/* The CmdSN before the next one is aborted: it does nothing, if it comes. */
TEST(iscsi_tmf, abort_of_what_has_not_come)
{
	uint32_t gap, last;
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	for (unsigned late = 0; late < 2; late++) {
		gap = m.cmdsn;
		m.cmdsn = gap + 2;
		CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, 0x7777, gap + 1), 0);
		last = TUR(&m);
		m.cmdsn = gap + 1;
		if (late == 0)
			TUR(&m);
		m.cmdsn = gap;
		CHECK_EQ(answer(&m, TUR(&m)), 0);
		CHECK_EQ(answer(&m, last), 0);
		TUR(&m); /* gap + 1 */
		CHECK(next(&m) == NULL);
		m.cmdsn = gap + 3;
		CHECK_EQ(answer(&m, TUR(&m)), 0);
	}
	end();
}

/* What comes behind the function is none of its business. */
TEST(iscsi_tmf, abort_of_what_comes_later)
{
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	for (unsigned i = 0; i < 2; i++)
		CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, 0x7777, m.cmdsn + i), 1);
	CHECK_EQ(answer(&m, TUR(&m)), 0);
	CHECK_EQ(answer(&m, TUR(&m)), 0);
	end();
}

TEST(iscsi_tmf, aborts_ahead_of_a_gap_are_bounded)
{
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	m.cmdsn += 2 * ISCSI_HELD_MAX;
	for (unsigned i = 1; i <= ISCSI_HELD_MAX; i++)
		CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, 0x7777, m.cmdsn - i), 0);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, 0x7777, m.cmdsn - ISCSI_HELD_MAX - 1),
		 255);
	CHECK(!m.closing);
	end();
}

/* A TEST UNIT READY to unit 1, which is none. */
static uint32_t tur_elsewhere(struct mock *m)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_COMMAND, 0x80, [9] = 1 };

	put_be32(bhs + 16, ++tag);
	put_pdu(m, bhs, NULL, 0);
	return tag;
}

TEST(iscsi_tmf, ends_older_commands_that_are_held)
{
	uint32_t gap, other, behind;
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	gap = m.cmdsn;
	m.cmdsn = gap + 1;
	TUR(&m);
	other = tur_elsewhere(&m);
	behind = TUR(&m);
	m.cmdsn--; /* the function is numbered before that one */
	CHECK_EQ(tmf(&m, SCSI_CLEAR_TASK_SET, ISCSI_NO_TAG, 0), 0);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, 0x7777, gap), 0);
	CHECK_EQ(hears(&m, other), 0x2500);
	CHECK_EQ(answer(&m, behind), 0);
	end();
}

/* Commands to whatever unit, and nothing but commands. */
TEST(iscsi_tmf, ends_all_that_is_held)
{
	uint8_t ping[ISCSI_BHS_LEN] = { ISCSI_OP_NOP_OUT, ISCSI_FINAL };
	struct mock m;
	uint32_t gap;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	gap = m.cmdsn++;
	put_be32(ping + 16, ++tag);
	put_be32(ping + 20, ISCSI_NO_TAG);
	put_pdu(&m, ping, NULL, 0);
	tur_elsewhere(&m);
	CHECK_EQ(tmf(&m, SCSI_TARGET_WARM_RESET, ISCSI_NO_TAG, 0), 0);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, 0x7777, gap), 0);
	CHECK_EQ(next(&m)->bhs[0], ISCSI_OP_NOP_IN);
	CHECK(next(&m) == NULL);
	CHECK_EQ(hears(&m, TUR(&m)), 0x2902);
	end();
}

/* A write to unit 1, whose data is asked for. */
static uint32_t write_elsewhere(struct mock *m)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_COMMAND, 0xa0, [9] = 1 };

	put_be32(bhs + 16, ++tag);
	put_be32(bhs + 20, 8192);
	bhs[32] = 0x2a;
	bhs[40] = 16;
	put_pdu(m, bhs, NULL, 0);
	return tag;
}

/* There is a unit 1, with another object. */
static void fixture_elsewhere(struct mock *m)
{
	static const struct uuid second = { .b = { 9 } };

	fixture((struct iscsi_config){ 0 });
	CHECK_EQ(fake_dom_add(dom, &second, 64u << 20), 0);
	CHECK_EQ(iscsi_lun_set(iscsi,
			       &(struct iscsi_lun_conf){ .iqn = IQN,
							 .lun = 1,
							 .object = second,
							 .name = "second",
							 .block_bytes = 512 }),
		 0);
	settle();
	ready(m, 1);
	CHECK_EQ(hears(m, tur_elsewhere(m)), 0x2900);
}

/* As tmf(), to unit 1. */
static unsigned tmf_elsewhere(struct mock *m, unsigned function, uint32_t ref)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x42,
				       (uint8_t)(0x80 | function), [9] = 1 };
	struct seen *s;

	put_be32(bhs + 16, ++tag);
	put_be32(bhs + 20, ref);
	put_pdu(m, bhs, NULL, 0);
	s = next(m);
	return s != NULL ? s->bhs[2] : PENDING;
}

/* The storage of one unit hangs: functions on another one do not wait for it. */
TEST(iscsi_tmf, does_not_wait_for_another_unit)
{
	uint32_t itt, cmdsn;
	struct mock m;

	fixture_elsewhere(&m);
	storage_stuck(true);
	cmdsn = m.cmdsn;
	itt = write_block(&m);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, itt, cmdsn), PENDING);
	itt = write_elsewhere(&m);
	CHECK_EQ(tmf_elsewhere(&m, SCSI_ABORT_TASK, itt), 0);
	CHECK_EQ(tmf_elsewhere(&m, SCSI_ABORT_TASK_SET, ISCSI_NO_TAG), 0);
	CHECK_EQ(tmf_elsewhere(&m, SCSI_LUN_RESET, ISCSI_NO_TAG), 0);
	/* Those on its own unit, and on all, do. */
	CHECK_EQ(tmf(&m, SCSI_LUN_RESET, ISCSI_NO_TAG, 0), PENDING);
	CHECK_EQ(tmf(&m, SCSI_TARGET_WARM_RESET, ISCSI_NO_TAG, 0), PENDING);
	storage_stuck(false);
	for (unsigned i = 0; i < 3; i++)
		CHECK_EQ(response_of(&m), 0);
	CHECK(next(&m) == NULL);
	end();
}

/* Its tasks end while another unit's storage hangs: then it is answered. */
TEST(iscsi_tmf, is_answered_when_its_own_unit_is_done)
{
	uint32_t stuck, itt, cmdsn;
	struct mock m;

	fixture_elsewhere(&m);
	storage_stuck(true);
	cmdsn = m.cmdsn;
	stuck = write_block(&m);
	itt = write_elsewhere(&m);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, stuck, cmdsn), PENDING);
	m.late = 1; /* its data is on its way */
	CHECK_EQ(tmf_elsewhere(&m, SCSI_ABORT_TASK, itt), PENDING);
	m.late = 0;
	serve_get(&m, 1);
	CHECK_EQ(response_of(&m), 0);
	CHECK(next(&m) == NULL);
	storage_stuck(false);
	CHECK_EQ(response_of(&m), 0);
	end();
}

/* What is done to a unit leaves the session's tasks at another one alone. */
TEST(iscsi_tmf, leaves_other_units_alone)
{
	static const unsigned functions[] = { QUERY_TASK_SET,
					      SCSI_ABORT_TASK_SET,
					      SCSI_CLEAR_TASK_SET,
					      SCSI_LUN_RESET };
	uint32_t itt, cmdsn;
	struct mock m;

	fixture_elsewhere(&m);
	cmdsn = m.cmdsn;
	itt = write_elsewhere(&m);
	for (unsigned i = 0; i < ARRAY_LEN(functions); i++)
		CHECK_EQ(tmf(&m, functions[i], ISCSI_NO_TAG, 0), 0);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, itt, cmdsn), 1);
	CHECK(!TAILQ_EMPTY(&m.gets));
	serve_get(&m, 1);
	CHECK_EQ(answer(&m, itt), 0);
	/* What is done to the target does not. */
	write_elsewhere(&m);
	CHECK_EQ(tmf(&m, SCSI_TARGET_WARM_RESET, ISCSI_NO_TAG, 0), 0);
	CHECK(TAILQ_EMPTY(&m.gets));
	end();
}

/* One that is answered is in no task set, fetched or not. */
TEST(iscsi_tmf, an_answer_is_no_task)
{
	struct mock m;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	m.deaf = true;
	itt = TUR(&m);
	settle();
	CHECK_EQ(tmf(&m, QUERY_TASK_SET, ISCSI_NO_TAG, 0), PENDING);
	m.deaf = false;
	env_defer(ts.env, &m.turn);
	CHECK_EQ(answer(&m, itt), 0);
	CHECK_EQ(response_of(&m), 0);
	end();
}

/* ---- one object behind units of two targets: one task set ---- */

#define IQN_2 "iqn.2026-11.internal.basalt:u"
#define LOGIN_2                                                                \
	"InitiatorName=" WHO "2\0TargetName=" IQN_2                            \
	"\0InitialR2T=No\0ImmediateData=Yes\0"

/* @a is at the fixture's target, @b at another one that has the same disk. */
static void two_targets(struct mock *a, struct mock *b)
{
	fixture((struct iscsi_config){ 0 });
	CHECK_EQ(iscsi_target_set(iscsi,
				  &(struct iscsi_target_conf){ .iqn = IQN_2,
							       .allow = any,
							       .allow_count =
								       1 }),
		 0);
	CHECK_EQ(iscsi_lun_set(iscsi,
			       &(struct iscsi_lun_conf){ .iqn = IQN_2,
							 .object = oid,
							 .name = "disk",
							 .block_bytes = 512 }),
		 0);
	settle();
	ready(a, 1);
	login_text(b, 2, LOGIN_2, sizeof(LOGIN_2) - 1);
	CHECK_EQ(status_of(b), 0);
	CHECK_EQ(hears(b, TUR(b)), 0x2900);
}

TEST(iscsi_tmf, reaches_the_tasks_of_other_targets)
{
	static const struct {
		unsigned function, attention;
	} all[] = {
		{ SCSI_CLEAR_TASK_SET, 0 }, /* TASK ABORTED is all */
		{ SCSI_LUN_RESET, 0x2903 },
		{ SCSI_TARGET_WARM_RESET, 0x2902 },
	};
	struct mock a, b;
	uint32_t itt;

	two_targets(&a, &b);
	for (unsigned i = 0; i < ARRAY_LEN(all); i++) {
		storage_stuck(true);
		itt = write_block(&b);
		CHECK_EQ(tmf(&a, all[i].function, ISCSI_NO_TAG, 0), PENDING);
		storage_stuck(false);
		CHECK_EQ(answer(&b, itt), SCSI_TASK_ABORTED);
		CHECK_EQ(response_of(&a), 0);
		if (all[i].attention != 0)
			CHECK_EQ(hears(&b, TUR(&b)), all[i].attention);
		CHECK_EQ(answer(&b, TUR(&b)), 0);
	}
	/* What is for the own tasks only leaves theirs alone. */
	storage_stuck(true);
	itt = write_block(&b);
	CHECK_EQ(tmf(&a, SCSI_ABORT_TASK_SET, ISCSI_NO_TAG, 0), 0);
	storage_stuck(false);
	CHECK_EQ(answer(&b, itt), 0);
	end();
}

/* The target that was asked loses its unit while it waits for the other. */
TEST(iscsi_tmf, outlives_the_unit_that_it_was_for)
{
	struct mock a, b;
	uint32_t itt;

	two_targets(&a, &b);
	storage_stuck(true);
	itt = write_block(&b);
	CHECK_EQ(tmf(&a, SCSI_LUN_RESET, ISCSI_NO_TAG, 0), PENDING);
	iscsi_lun_unset(iscsi, IQN, 0);
	CHECK(next(&a) == NULL);
	storage_stuck(false);
	CHECK_EQ(answer(&b, itt), SCSI_TASK_ABORTED);
	CHECK_EQ(response_of(&a), 0);
	end();
}

static uint32_t pr_out_with(struct mock *m, unsigned action, unsigned type,
			    uint64_t key, uint64_t action_key, uint8_t flags)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_COMMAND, 0xa0 };
	uint8_t list[24] = { 0 };

	put_be64(list, key);
	put_be64(list + 8, action_key);
	list[20] = flags;
	put_be32(bhs + 16, ++tag);
	put_be32(bhs + 20, sizeof(list));
	bhs[32] = 0x5f;
	bhs[33] = (uint8_t)action;
	bhs[34] = (uint8_t)type;
	put_be32(bhs + 37, sizeof(list));
	put_pdu(m, bhs, list, sizeof(list));
	return tag;
}

static uint32_t pr_out(struct mock *m, unsigned action, unsigned type,
		       uint64_t key, uint64_t action_key)
{
	return pr_out_with(m, action, type, key, action_key, 0);
}

/* Its registration was for one port of the target, or for all. */
TEST(iscsi_tmf, preempt_and_abort_goes_by_ports)
{
	struct sockaddr_in any4 = { .sin_family = AF_INET };
	uint32_t write, elsewhere, other;
	struct mock a, b, c, d;

	for (unsigned all = 0; all < 2; all++) {
		fixture((struct iscsi_config){ 0 });
		CHECK_EQ(iscsi_portal_declare(iscsi, 2,
					      (struct sockaddr *)&any4, 2),
			 0);
		settle();
		ready(&a, 1);
		by_portal = 2;
		ready(&b, 1); /* the same initiator port as @a */
		by_portal = 1;
		ready(&c, 3);
		ready(&d, 4);
		CHECK_EQ(answer(&a, pr_out_with(&a, DOM_PR_REGISTER, 0, 0, 0xa,
						all ? 4 : 0)),
			 0);
		CHECK_EQ(answer(&c, pr_out(&c, DOM_PR_REGISTER, 0, 0, 0xc)), 0);
		write = command(&a, 0xa0, 8192, 0x2a, 0, 16, NULL, 0);
		elsewhere = command(&b, 0xa0, 8192, 0x2a, 0, 16, NULL, 0);
		other = command(&d, 0xa0, 8192, 0x2a, 0, 16, NULL, 0);
		CHECK_EQ(answer(&c, pr_out(&c, DOM_PR_PREEMPT_AND_ABORT, 5, 0xc,
					   0xa)),
			 0);
		CHECK_EQ(answer(&a, write), SCSI_TASK_ABORTED);
		if (!all)
			serve_get(&b, 1);
		CHECK_EQ(answer(&b, elsewhere), all ? SCSI_TASK_ABORTED : 0);
		serve_get(&d, 1);
		CHECK_EQ(answer(&d, other), 0);
		end();
	}
}

/* Who fences its own key spares the path on which it does so. */
TEST(iscsi_tmf, preempt_and_abort_of_ones_own_other_path)
{
	struct sockaddr_in any4 = { .sin_family = AF_INET };
	struct mock a, b;
	uint32_t mine, write;

	fixture((struct iscsi_config){ 0 });
	CHECK_EQ(iscsi_portal_declare(iscsi, 2, (struct sockaddr *)&any4, 2),
		 0);
	settle();
	ready(&a, 1);
	by_portal = 2;
	ready(&b, 1); /* the same initiator port as @a */
	by_portal = 1;
	CHECK_EQ(answer(&a, pr_out(&a, DOM_PR_REGISTER, 0, 0, 0xa)), 0);
	CHECK_EQ(answer(&b, pr_out(&b, DOM_PR_REGISTER, 0, 0, 0xa)), 0);
	mine = command(&a, 0xa0, 8192, 0x2a, 0, 16, NULL, 0);
	write = command(&b, 0xa0, 8192, 0x2a, 0, 16, NULL, 0);
	CHECK_EQ(answer(&a, pr_out(&a, DOM_PR_PREEMPT_AND_ABORT, 5, 0xa, 0xa)),
		 0);
	CHECK_EQ(answer(&b, write), SCSI_TASK_ABORTED);
	serve_get(&a, 1);
	CHECK_EQ(answer(&a, mine), 0);
	end();
}

TEST(iscsi_tmf, preempt_and_abort_reaches_other_targets)
{
	struct mock a, b;
	uint32_t write, preempt;

	two_targets(&a, &b);
	CHECK_EQ(answer(&a, pr_out(&a, DOM_PR_REGISTER, 0, 0, 0xa)), 0);
	CHECK_EQ(answer(&b, pr_out(&b, DOM_PR_REGISTER, 0, 0, 0xb)), 0);
	CHECK_EQ(answer(&b, pr_out(&b, DOM_PR_RESERVE, 5, 0xb, 0)), 0);
	write = command(&b, 0xa0, 8192, 0x2a, 0, 16, NULL, 0);
	CHECK(next(&b) == NULL); /* its data is asked for */
	preempt = pr_out(&a, DOM_PR_PREEMPT_AND_ABORT, 5, 0xa, 0xb);
	CHECK_EQ(answer(&a, preempt), 0);
	CHECK_EQ(answer(&b, write), SCSI_TASK_ABORTED);
	end();
}

/* Its unit is taken away while storage has it: what it was told to do, it did. */
TEST(iscsi_tmf, preempt_and_abort_outlives_its_unit)
{
	struct mock a, b;
	uint32_t write, preempt;

	two_targets(&a, &b);
	CHECK_EQ(answer(&a, pr_out(&a, DOM_PR_REGISTER, 0, 0, 0xa)), 0);
	CHECK_EQ(answer(&b, pr_out(&b, DOM_PR_REGISTER, 0, 0, 0xb)), 0);
	write = command(&b, 0xa0, 8192, 0x2a, 0, 16, NULL, 0);
	CHECK(next(&b) == NULL); /* its data is asked for */
	fake_dom_hold(dom, true);
	preempt = pr_out(&a, DOM_PR_PREEMPT_AND_ABORT, 5, 0xa, 0xb);
	iscsi_lun_unset(iscsi, IQN, 0);
	fake_dom_hold(dom, false);
	CHECK_EQ(answer(&a, preempt), 0);
	CHECK_EQ(answer(&b, write), SCSI_TASK_ABORTED);
	end();
}

/* Two fence a third one at once: who hears that it was done had it done. */
TEST(iscsi_tmf, two_preempt_and_abort_the_same)
{
	uint32_t write, first, second;
	struct mock a, b, c;

	fixture((struct iscsi_config){ 0 });
	ready(&a, 1);
	ready(&b, 2);
	ready(&c, 3);
	CHECK_EQ(answer(&a, pr_out(&a, DOM_PR_REGISTER, 0, 0, 0xa)), 0);
	CHECK_EQ(answer(&b, pr_out(&b, DOM_PR_REGISTER, 0, 0, 0xb)), 0);
	CHECK_EQ(answer(&c, pr_out(&c, DOM_PR_REGISTER, 0, 0, 0xc)), 0);
	write = command(&b, 0xa0, 8192, 0x2a, 0, 16, NULL, 0);
	CHECK(next(&b) == NULL); /* its data is asked for */
	fake_dom_hold(dom, true);
	first = pr_out(&a, DOM_PR_PREEMPT_AND_ABORT, 5, 0xa, 0xb);
	second = pr_out(&c, DOM_PR_PREEMPT_AND_ABORT, 5, 0xc, 0xb);
	fake_dom_hold(dom, false);
	CHECK_EQ(answer(&a, first), 0);
	CHECK_EQ(answer(&c, second), SCSI_RESERVATION_CONFLICT);
	CHECK_EQ(answer(&b, write), SCSI_TASK_ABORTED);
	end();
}

/* A function that waits for tasks of others is answered before a logout. */
TEST(iscsi_tmf, logout_waits_for_it)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x40 | ISCSI_OP_LOGOUT, 0x80 };
	struct mock a, b;
	uint32_t itt;

	for (unsigned cold = 0; cold < 2; cold++) {
		two_targets(&a, &b);
		storage_stuck(true);
		itt = write_block(&b);
		CHECK_EQ(tmf(&a, cold ? SCSI_TARGET_COLD_RESET : SCSI_LUN_RESET,
			     ISCSI_NO_TAG, 0),
			 PENDING);
		put_be32(bhs + 16, ++tag);
		put_pdu(&a, bhs, NULL, 0);
		CHECK(next(&a) == NULL);
		storage_stuck(false);
		CHECK_EQ(answer(&b, itt), SCSI_TASK_ABORTED);
		CHECK_EQ(response_of(&a), 0);
		if (cold == 0) /* the other closes the connection itself */
			CHECK_EQ(next(&a)->bhs[0], ISCSI_OP_LOGOUT_RSP);
		settle();
		CHECK(a.closed);
		end();
	}
}

/* Whoever is told that it logged out has left no RESERVE behind. */
TEST(iscsi_tmf, logout_releases)
{
	static uint8_t request[ISCSI_BHS_LEN] = { 0x40 | ISCSI_OP_LOGOUT,
						  0x80 };
	uint8_t bhs[ISCSI_BHS_LEN];
	struct mock a, b;
	struct seen *s;

	for (unsigned dropped = 0; dropped < 2; dropped++) {
		fixture((struct iscsi_config){ 0 });
		ready(&a, 1);
		ready(&b, 2);
		CHECK_EQ(answer(&a, command(&a, 0x80, 0, 0x16, 0, 0, NULL, 0)),
			 0);
		CHECK_EQ(answer(&b, READ10(&b, 0, 1)), 0x18);
		fake_dom_hold(dom, true);
		memcpy(bhs, request, sizeof(bhs));
		put_be32(bhs + 16, ++tag);
		put_pdu(&a, bhs, NULL, 0);
		CHECK(next(&a) == NULL); /* nothing is said before it is so */
		CHECK_EQ(fake_dom_queued(dom), 1);
		if (dropped == 1) { /* or it does not wait for that */
			a.dm.up->lost(a.dm.owner, -ECONNRESET, "gone");
			settle();
			CHECK(a.closed);
		}
		fake_dom_hold(dom, false);
		s = next(&a);
		if (dropped == 0) {
			CHECK(s != NULL);
			CHECK_EQ(s->bhs[0], ISCSI_OP_LOGOUT_RSP);
			CHECK_EQ(s->bhs[2], 0);
		}
		CHECK_EQ(answer(&b, READ10(&b, 0, 1)), 0);
		end();
	}
}
