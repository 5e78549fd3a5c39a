/* A command's life in its session: how long what it waits for may take. */
#include "tests/unit/iscsi_rig.h"

/*
 * What @seconds without any data for its one task mean to the session, and
 * without a word on its connection, unless something was @heard.
 */
static void data_misses(struct mock *m, uint64_t seconds, bool heard)
{
	struct iscsi_session *s = m->dm.owner->session;
	struct task *task = TAILQ_FIRST(&s->tasks);

	CHECK(s->data_timer_on);
	task->since_ns -= seconds * SEC;
	if (!heard)
		m->dm.owner->heard_ns -= seconds * SEC;
	env_timer_stop(ts.env, &s->data_timer);
	s->data_timer.cb(&s->data_timer);
}

/* All others of the unit wait for a barrier: it gets less time. */
TEST(iscsi_task, data_that_never_comes)
{
	static const struct {
		uint8_t flags; /* with F: data is asked for */
		uint64_t seconds;
	} all[] = {
		{ 0xa0 | SCSI_SIMPLE, 60 },  { 0x20 | SCSI_SIMPLE, 60 },
		{ 0xa0 | SCSI_ORDERED, 10 }, { 0x20 | SCSI_ORDERED, 10 },
		{ 0xa0 | SCSI_HEAD, 10 },    { 0x20 | SCSI_HEAD, 10 },
	};

	for (unsigned i = 0; i < ARRAY_LEN(all); i++) {
		struct iscsi_session *s;
		struct mock m;

		fixture((struct iscsi_config){ 0 });
		ready(&m, 1);
		s = m.dm.owner->session;
		command(&m, all[i].flags, 8192, 0x2a, 0, 16, NULL, 0);
		CHECK(s->data_timer.due_ns <=
		      env_now(ts.env) + all[i].seconds * SEC);
		data_misses(&m, all[i].seconds - 1, false);
		CHECK(!m.closing);
		data_misses(&m, 1, false);
		CHECK(m.closing);
		end();
	}
}

/* So do they for what an ORDERED one waits for, whoever sent that. */
TEST(iscsi_task, data_that_a_barrier_waits_for)
{
	struct iscsi_session *s;
	struct mock m, other;
	uint32_t ordered;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	ready(&other, 2);
	s = m.dm.owner->session;
	command(&m, 0xa0, 8192, 0x2a, 0, 16, NULL, 0);
	CHECK(s->data_timer.due_ns <= env_now(ts.env) + 10 * SEC);
	data_misses(&m, 20, false);
	CHECK(!m.closing);
	CHECK(s->data_timer.due_ns <= env_now(ts.env) + 10 * SEC);
	CHECK_EQ(answer(&other, command(&other, 0x80 | SCSI_HEAD, 0, 0x00, 0, 0,
					NULL, 0)),
		 0);
	data_misses(&m, 20, false);
	CHECK(!m.closing);
	ordered = command(&other, 0x80 | SCSI_ORDERED, 0, 0x00, 0, 0, NULL, 0);
	CHECK(next(&other) == NULL);
	data_misses(&m, 0, false);
	CHECK(m.closing);
	CHECK_EQ(answer(&other, ordered), 0);
	end();
}

/* What came behind it does not hold anybody up. */
TEST(iscsi_task, data_behind_a_barrier)
{
	struct mock m, other;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	ready(&other, 2);
	command(&other, 0xa0 | SCSI_ORDERED, 8192, 0x2a, 0, 16, NULL, 0);
	command(&m, 0xa0, 8192, 0x2a, 0, 16, NULL, 0);
	data_misses(&m, 59, false);
	CHECK(!m.closing);
	end();
}

/* Its link is slow and not dead: then it has the time of all others. */
TEST(iscsi_task, data_of_a_barrier_on_a_slow_link)
{
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	command(&m, 0xa0 | SCSI_ORDERED, 8192, 0x2a, 0, 16, NULL, 0);
	data_misses(&m, 59, true);
	CHECK(!m.closing);
	data_misses(&m, 1, true);
	CHECK(m.closing);
	end();
}

/* Nor is one dead over which a part of its burst came just now. */
TEST(iscsi_task, data_of_a_barrier_in_parts)
{
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	command(&m, 0xa0 | SCSI_ORDERED, 8192, 0x2a, 0, 16, NULL, 0);
	m.dm.part_ns = env_now(ts.env);
	data_misses(&m, 59, false);
	CHECK(!m.closing);
	m.dm.part_ns = env_now(ts.env);
	data_misses(&m, 1, false);
	CHECK(m.closing);
	end();
}

/* But it must bring something: a byte now and then is no more than nothing. */
TEST(iscsi_task, data_of_a_barrier_byte_by_byte)
{
	static const struct {
		uint32_t len;
		uint64_t seconds;
	} all[] = { { 8192, 60 }, { 16u << 20, 60 + 256 } };

	for (unsigned i = 0; i < ARRAY_LEN(all); i++) {
		struct task *task;
		struct mock m;

		fixture((struct iscsi_config){ 0 });
		ready(&m, 1);
		command(&m, 0xa0 | (i == 0 ? SCSI_ORDERED : SCSI_HEAD),
			all[i].len, 0x2a, 0, (uint16_t)(all[i].len / 512), NULL,
			0);
		task = TAILQ_FIRST(&m.dm.owner->session->tasks);
		task->cmd.since_ns -= (all[i].seconds - 20) * SEC;
		data_misses(&m, 0, true);
		CHECK(!m.closing);
		task->cmd.since_ns -= 20 * SEC;
		data_misses(&m, 0, true);
		CHECK(m.closing);
		end();
	}
}

/* That is nobody's matter where nobody waits for it. */
TEST(iscsi_task, data_byte_by_byte)
{
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	command(&m, 0xa0, 8192, 0x2a, 0, 16, NULL, 0);
	TAILQ_FIRST(&m.dm.owner->session->tasks)->cmd.since_ns -= 999 * SEC;
	data_misses(&m, 0, true);
	CHECK(!m.closing);
	end();
}

/* One that is answered already holds nobody up: its data may take longer. */
TEST(iscsi_task, data_of_a_barrier_that_failed)
{
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	command(&m, 0x20 | SCSI_ORDERED, 8192, 0x2a, 0x7fffffff, 16, NULL, 0);
	data_misses(&m, 59, false);
	CHECK(!m.closing);
	data_misses(&m, 1, false);
	CHECK(m.closing);
	end();
}
