/*
 * Data of commands, from above and below a session: what comes with a write,
 * unasked and asked for, and the memory that it waits for.
 */
#include "iscsi/scsi_int.h"
#include "tests/unit/iscsi_rig.h"

/* ---- what comes ---- */

TEST(iscsi_data, write_with_immediate_and_solicited_data)
{
	static uint8_t data[8192];
	struct mock m;
	uint32_t itt;
	struct dm_data *get;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	memset(data, 0x11, sizeof(data));
	itt = command(&m, 0xa0, 65536, 0x2a, 8, 128, data, 8192);
	/* two bursts at a time, ascending, behind the immediate data */
	get = TAILQ_FIRST(&m.gets);
	CHECK(get != NULL);
	CHECK_EQ(get->task_offset, 8192);
	CHECK_EQ(get->len, 16384);
	CHECK_EQ(get->sn, 0);
	get = TAILQ_NEXT(get, link);
	CHECK_EQ(get->task_offset, 24576);
	CHECK_EQ(get->sn, 1);
	CHECK(TAILQ_NEXT(get, link) == NULL);
	for (unsigned i = 0; i < 4; i++) {
		CHECK(next(&m) == NULL); /* no answer before the last byte */
		serve_get(&m, 0x22);
	}
	CHECK_EQ(answer(&m, itt), 0);
	CHECK_EQ(answer(&m, READ10(&m, 8, 16)), 0);
	CHECK_EQ(m.read_len, 8192);
	CHECK_EQ(m.read_first, 0x11);
	CHECK_EQ(answer(&m, READ10(&m, 24, 16)), 0);
	CHECK_EQ(m.read_first, 0x22);
	end();
}

static void data_out(struct mock *m, uint32_t itt, uint32_t sn, uint32_t offset,
		     uint32_t len, bool final)
{
	static uint8_t data[8192];
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_DATA_OUT, final ? 0x80 : 0 };
	struct dm_pdu pdu = pdu_of(bhs, NULL, len);
	size_t at = 0;
	struct sgl *sgl;

	memset(data, 0x33, sizeof(data));
	put_be32(bhs + 16, itt);
	put_be32(bhs + 20, ISCSI_NO_TAG);
	put_be32(bhs + 36, sn);
	put_be32(bhs + 40, offset);
	sgl = m->dm.up->land(m->dm.owner, &pdu, &at);
	if (m->closing)
		return;
	pdu.sgl = sgl;
	if (sgl != NULL)
		sgl_write(sgl, at, data, len);
	m->dm.up->control(m->dm.owner, &pdu);
}

TEST(iscsi_data, unsolicited_data)
{
	struct mock m;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	itt = command(&m, 0x20, 8192, 0x2a, 0, 16, NULL, 0);
	data_out(&m, itt, 0, 0, 4096, false);
	CHECK(next(&m) == NULL);
	data_out(&m, itt, 1, 4096, 4096, true);
	CHECK_EQ(answer(&m, itt), 0);
	CHECK_EQ(answer(&m, READ10(&m, 8, 1)), 0);
	CHECK_EQ(m.read_first, 0x33);
	/* all there is, which is less than FirstBurstLength */
	itt = command(&m, 0x20, 4096, 0x2a, 0, 8, NULL, 0);
	data_out(&m, itt, 0, 0, 4096, true);
	CHECK_EQ(answer(&m, itt), 0);
	/* too little of it: 0B/0C/0D; out of sequence: 0B/4B/00 */
	itt = command(&m, 0x20, 8192, 0x2a, 0, 16, NULL, 0);
	data_out(&m, itt, 0, 0, 4096, true);
	CHECK_EQ(answer(&m, itt), 2);
	itt = command(&m, 0x20, 8192, 0x2a, 0, 16, NULL, 0);
	data_out(&m, itt, 1, 0, 4096, false);
	data_out(&m, itt, 0, 4096, 4096, true);
	CHECK_EQ(answer(&m, itt), 2);
	/* beyond what was announced: the connection goes */
	itt = command(&m, 0x20, 4096, 0x2a, 0, 8, NULL, 0);
	data_out(&m, itt, 0, 0, 8192, true);
	CHECK(m.closing);
	end();
}

/* Each PDU that brings some of it is a sign of life. */
TEST(iscsi_data, unsolicited_data_that_takes_its_time)
{
	struct iscsi_session *s;
	struct mock m;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	s = m.dm.owner->session;
	itt = command(&m, 0x20, 8192, 0x2a, 0, 16, NULL, 0);
	iscsi__task_find(s, itt)->since_ns -= (ISCSI_DATA_SECONDS - 1) * SEC;
	data_out(&m, itt, 0, 0, 4096, false);
	iscsi__task_find(s, itt)->since_ns -= (ISCSI_DATA_SECONDS - 1) * SEC;
	env_timer_stop(ts.env, &s->data_timer);
	s->data_timer.cb(&s->data_timer);
	CHECK(!m.closing);
	data_out(&m, itt, 1, 4096, 0, false);
	CHECK(!m.closing);
	iscsi__task_find(s, itt)->since_ns -= SEC;
	env_timer_stop(ts.env, &s->data_timer);
	s->data_timer.cb(&s->data_timer);
	CHECK(m.closing);
	end();
}

/* A write that came before a logout gets its data behind it. */
TEST(iscsi_data, unsolicited_data_behind_a_logout)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x46, 0x80 };
	struct mock m;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	itt = command(&m, 0x20, 8192, 0x2a, 0, 16, NULL, 0);
	data_out(&m, itt, 0, 0, 4096, false);
	put_be32(bhs + 16, 7);
	put_pdu(&m, bhs, NULL, 0);
	data_out(&m, itt, 1, 4096, 4096, true);
	CHECK_EQ(answer(&m, itt), 0);
	CHECK_EQ(next(&m)->bhs[0], ISCSI_OP_LOGOUT_RSP);
	end();
}

/* Sense that the session makes has the format of the unit's (D_SENSE). */
TEST(iscsi_data, sense_in_the_format_of_the_unit)
{
	static const uint8_t list[4 + 12] = {
		[4] = 0x0a, 10, 0x04, 0x10, [4 + 5] = 0x40, [4 + 8] = 0xff, 0xff
	};
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_COMMAND, 0xa0 };
	struct mock m;
	struct seen *s;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	put_be32(bhs + 16, ++tag);
	put_be32(bhs + 20, sizeof(list));
	bhs[32] = 0x15; /* MODE SELECT(6) */
	bhs[33] = 0x10;
	bhs[36] = sizeof(list);
	put_pdu(&m, bhs, list, sizeof(list));
	CHECK_EQ(answer(&m, tag), 0);
	itt = command(&m, 0x20, 8192, 0x2a, 0, 16, NULL, 0);
	data_out(&m, itt, 1, 0, 8192, true);
	s = next(&m);
	CHECK_EQ(get_be32(s->bhs + 16), itt);
	CHECK_EQ(s->bhs[3], SCSI_CHECK_CONDITION);
	CHECK_EQ(get_be16(s->data), 8);
	CHECK_EQ(s->data[2], 0x72);
	CHECK_EQ(s->data[2 + 1], 0x0b);
	CHECK_EQ(get_be16(s->data + 2 + 2), 0x4b00);
	/* What was refused for another reason is told that one. */
	itt = command(&m, 0x20, 8192, 0x2a, 0x7fffffff, 16, NULL, 0);
	data_out(&m, itt, 1, 0, 8192, true);
	s = next(&m);
	CHECK_EQ(get_be32(s->bhs + 16), itt);
	CHECK_EQ(s->data[2 + 1], 0x05);
	CHECK_EQ(get_be16(s->data + 2 + 2), 0x2100);
	end();
}

/* An immediate WRITE(10) of one block, with its data. */
static uint32_t immediate_write(struct mock *m)
{
	static uint8_t data[512];
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x41, 0xa0 };

	put_be32(bhs + 16, ++tag);
	put_be32(bhs + 20, sizeof(data));
	bhs[32] = 0x2a;
	bhs[40] = 1;
	put_pdu(m, bhs, data, sizeof(data));
	return tag;
}

/* Data lands before the command is counted: both see the same limit. */
TEST(iscsi_data, immediate_commands_with_data_up_to_the_limit)
{
	struct mock m;
	uint32_t first;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	fake_dom_hold(dom, true);
	first = tag + 1;
	for (unsigned i = 0; i < ISCSI_IMMEDIATE_MAX; i++)
		immediate_write(&m);
	CHECK(next(&m) == NULL);
	immediate_write(&m); /* one too many */
	CHECK_EQ(next(&m)->bhs[0], ISCSI_OP_REJECT);
	fake_dom_hold(dom, false);
	for (unsigned i = 0; i < ISCSI_IMMEDIATE_MAX; i++)
		CHECK_EQ(answer(&m, first + i), 0);
	CHECK_EQ(answer(&m, immediate_write(&m)), 0);
	end();
}

/* A session may always end. */
TEST(iscsi_data, a_logout_beside_as_many_immediate_commands_as_there_may_be)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x46, 0x80 };
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	fake_dom_hold(dom, true);
	for (unsigned i = 0; i < ISCSI_IMMEDIATE_MAX; i++)
		immediate_write(&m);
	put_pdu(&m, bhs, NULL, 0);
	CHECK(next(&m) == NULL);
	fake_dom_hold(dom, false);
	for (unsigned i = 0; i < ISCSI_IMMEDIATE_MAX; i++)
		CHECK_EQ(next(&m)->bhs[0], ISCSI_OP_RESPONSE);
	CHECK_EQ(next(&m)->bhs[0], ISCSI_OP_LOGOUT_RSP);
	end();
}

/* Another clears the task set without TAS, while its data comes in. */
TEST(iscsi_data, immediate_command_is_cleared_while_its_data_lands)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x41, 0xa0 };
	static uint8_t data[512];
	struct mock a, b;
	struct dm_pdu pdu;
	size_t offset;

	fixture((struct iscsi_config){ 0 });
	ready(&a, 1);
	ready(&b, 2);
	a.dm.owner->session->target->scsi->luns[0]->tas = false;
	put_be32(bhs + 16, ++tag);
	put_be32(bhs + 20, 512);
	put_be32(bhs + 24, a.cmdsn);
	bhs[32] = 0x2a;
	bhs[40] = 1;
	pdu = pdu_of(bhs, NULL, 512);
	pdu.sgl = a.dm.up->land(a.dm.owner, &pdu, &offset);
	CHECK(pdu.sgl != NULL);
	sgl_get(pdu.sgl);
	CHECK_EQ(tmf(&b, SCSI_CLEAR_TASK_SET, 0, 0), 0);
	a.dm.up->control(a.dm.owner, &pdu);
	sgl_put(pdu.sgl);
	CHECK(next(&a) == NULL);
	/* What comes next is taken as ever: 2F/00, then the data. */
	CHECK_EQ(answer(&a, command(&a, 0xa0, 512, 0x2a, 0, 1, data, 512)), 2);
	CHECK_EQ(answer(&a, command(&a, 0xa0, 512, 0x2a, 0, 1, data, 512)), 0);
	end();
}

/* Data-Out that breaks the rules of 11.7 costs the connection. */
TEST(iscsi_data, data_out_out_of_bounds)
{
	struct mock m;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1); /* FirstBurstLength=8192 */
	itt = command(&m, 0x20, 8192, 0x2a, 0, 16, NULL, 0);
	data_out(&m, itt, 0, 512, 512, false);
	CHECK(m.closing); /* it does not begin at 0 */
	settle();
	ready(&m, 1);
	itt = command(&m, 0x20, 65536, 0x2a, 0, 128, NULL, 0);
	data_out(&m, itt, 0, 0, 8192, false);
	CHECK(!m.closing);
	data_out(&m, itt, 1, 8192, 512, false);
	CHECK(m.closing); /* beyond FirstBurstLength */
	settle();
	ready(&m, 1);
	itt = command(&m, 0xa0, 65536, 0x2a, 0, 128, NULL, 0);
	data_out(&m, itt, 0, 0, 512, false);
	CHECK(m.closing); /* F was set: nothing comes unasked */
	settle();
	ready(&m, 1);
	data_out(&m, 0x999, 0, 0, 512, true); /* of no task: dropped */
	CHECK(!m.closing);
	CHECK_EQ(answer(&m, TUR(&m)), 0);
	end();
}

/* What a command brings, or says that it will, against what was agreed upon. */
TEST(iscsi_data, commands_out_of_bounds)
{
	static const char asked[] = "InitiatorName=" WHO "\0TargetName=" IQN
				    "\0InitialR2T=Yes\0ImmediateData=No";
	static uint8_t data[16384];
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1); /* FirstBurstLength=8192 */
	command(&m, 0xa0, 512, 0x2a, 0, 1, data, 1024);
	CHECK(m.closing); /* more than it announces */
	settle();
	ready(&m, 1);
	command(&m, 0xa0, 16384, 0x2a, 0, 32, data, 8192 + 512);
	CHECK(m.closing); /* beyond FirstBurstLength */
	settle();
	ready(&m, 1);
	command(&m, 0xc0, 512, 0x28, 0, 1, data, 512);
	CHECK(m.closing); /* with a READ */
	settle();
	for (unsigned i = 0; i < 2; i++) {
		login_text(&m, 1, asked, sizeof(asked));
		CHECK_EQ(status_of(&m), 0);
		CHECK_EQ(answer(&m, TUR(&m)), 2);
		if (i == 0) /* ImmediateData=No */
			command(&m, 0xa0, 512, 0x2a, 0, 1, data, 512);
		else /* InitialR2T=Yes */
			command(&m, 0x20, 512, 0x2a, 0, 1, NULL, 0);
		CHECK(m.closing);
		settle();
	}
	end();
}

/* More is announced, and comes, than the CDB moves: the rest is told. */
TEST(iscsi_data, residual_of_a_write)
{
	static uint8_t data[1024];
	struct mock m;
	struct seen *s;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	command(&m, 0xa0, 1024, 0x2a, 0, 1, data, 1024);
	s = next(&m);
	CHECK_EQ(s->bhs[0], ISCSI_OP_RESPONSE);
	CHECK_EQ(s->bhs[3], 0);
	CHECK_EQ(s->bhs[1], ISCSI_FINAL | ISCSI_RESIDUAL_U);
	CHECK_EQ(get_be32(s->bhs + 44), 512);
	end();
}

/* One that another nexus aborts moved nothing, wherever it was. */
TEST(iscsi_data, residual_of_an_aborted_write)
{
	uint8_t reset[ISCSI_BHS_LEN] = { 0x42, 0x80 | SCSI_LUN_RESET };
	struct mock m, other;
	struct seen *s;

	for (unsigned sent = 0; sent < 2; sent++) {
		fixture((struct iscsi_config){ 0 });
		ready(&m, 1);
		ready(&other, 2);
		fake_dom_hold(dom, true);
		command(&m, 0xa0, 8192, 0x2a, 0, 16, NULL, 0);
		if (sent)
			serve_get(&m, 1);
		put_be32(reset + 16, ++tag);
		put_pdu(&other, reset, NULL, 0);
		settle();
		fake_dom_hold(dom, false);
		s = next(&m);
		CHECK(s != NULL);
		CHECK_EQ(s->bhs[0], ISCSI_OP_RESPONSE);
		CHECK_EQ(s->bhs[3], SCSI_TASK_ABORTED);
		CHECK_EQ(s->bhs[1], ISCSI_FINAL | ISCSI_RESIDUAL_U);
		CHECK_EQ(get_be32(s->bhs + 44), 8192);
		end();
	}
}

/* Its answer waits for what comes unasked: the tag is in use until then. */
TEST(iscsi_data, an_aborted_write_swallows_what_comes_unasked)
{
	uint8_t reset[ISCSI_BHS_LEN] = { 0x42, 0x80 | SCSI_LUN_RESET };
	struct mock m, other;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	ready(&other, 2);
	itt = command(&m, 0x20, 8192, 0x2a, 0, 16, NULL, 0);
	data_out(&m, itt, 0, 0, 4096, false);
	put_be32(reset + 16, ++tag);
	put_pdu(&other, reset, NULL, 0);
	CHECK(next(&m) == NULL);
	CHECK_EQ(next(&other)->bhs[0], ISCSI_OP_TMF_RSP);
	data_out(&m, itt, 1, 4096, 4096, true);
	CHECK_EQ(answer(&m, itt), SCSI_TASK_ABORTED);
	end();
}

/* Reading and writing at once is obsolete; a command without a tag is none. */
TEST(iscsi_data, commands_that_are_none)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_COMMAND, 0x80 };
	struct mock m;
	struct seen *s;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	command(&m, 0xe0, 512, 0x2a, 0, 1, NULL, 0);
	s = next(&m);
	CHECK_EQ(s->bhs[3], SCSI_CHECK_CONDITION);
	CHECK_EQ(s->data[4] & 0xf, 5);
	CHECK_EQ(s->data[14], 0x20);
	CHECK(TAILQ_EMPTY(&m.gets));
	put_be32(bhs + 16, ISCSI_NO_TAG);
	put_pdu(&m, bhs, NULL, 0);
	s = next(&m);
	CHECK_EQ(s->bhs[0], ISCSI_OP_REJECT);
	CHECK_EQ(s->bhs[2], REJECT_INVALID_FIELD);
	CHECK_EQ(answer(&m, TUR(&m)), 0);
	end();
}

/* The datamover says that a burst came out of sequence: that write fails. */
TEST(iscsi_data, solicited_data_out_of_sequence)
{
	struct dm_data *get;
	struct mock m;
	struct seen *s;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	itt = command(&m, 0xa0, 65536, 0x2a, 8, 128, NULL, 0);
	serve_get(&m, 0x44);
	get = TAILQ_FIRST(&m.gets);
	TAILQ_REMOVE(&m.gets, get, link);
	get->cb(get, -EPROTO);
	s = next(&m);
	CHECK_EQ(s->bhs[0], ISCSI_OP_RESPONSE);
	CHECK_EQ(get_be32(s->bhs + 16), itt);
	CHECK_EQ(s->bhs[3], SCSI_CHECK_CONDITION);
	CHECK_EQ(s->data[2 + 2] & 0xf, 0x0b);
	CHECK_EQ(get_be16(s->data + 2 + 12), 0x4b00);
	CHECK_EQ(get_be32(s->bhs + 36), 3); /* R2Ts it had */
	CHECK(TAILQ_EMPTY(&m.gets)); /* the others are taken back */
	CHECK_EQ(answer(&m, READ10(&m, 8, 1)), 0);
	CHECK_EQ(m.read_first, 0); /* nothing of it was written */
	end();
}

TEST(iscsi_data, refused_write_swallows_its_data_first)
{
	struct mock m;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	itt = command(&m, 0x20, 8192, 0x2a, 0x7fffffff, 16, NULL, 0);
	CHECK(next(&m) == NULL);
	data_out(&m, itt, 0, 0, 8192, true);
	CHECK_EQ(answer(&m, itt), 2);
	end();
}

/* ---- memory ---- */

static struct sgl *eaten[100000];

/* Take all pages of the front end; how many. */
static unsigned memory_eat(void)
{
	unsigned n = 0;

	while (n < ARRAY_LEN(eaten) &&
	       sgl_new(ts.env->pages, PAGE_FRONT, 4096, 0, &eaten[n]) == 0)
		n++;
	CHECK(n < ARRAY_LEN(eaten));
	return n;
}

TEST(iscsi_data, a_write_waits_for_memory)
{
	static uint8_t data[4096];
	unsigned n;
	struct mock m;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	n = memory_eat();
	/* its data is here already: it cannot wait */
	itt = command(&m, 0xa0, 4096, 0x2a, 0, 8, data, 4096);
	CHECK_EQ(answer(&m, itt), 0x28);
	itt = command(&m, 0xa0, 65536, 0x2a, 0, 128, NULL, 0);
	CHECK(next(&m) == NULL);
	CHECK(TAILQ_EMPTY(&m.gets)); /* nothing is asked for */
	while (n > 0)
		sgl_put(eaten[--n]);
	settle();
	for (unsigned i = 0; i < 4; i++)
		serve_get(&m, 9);
	CHECK_EQ(answer(&m, itt), 0);
	end();
}

/* Who waits behind one that needed much does not need it when that one is gone. */
TEST(iscsi_data, a_write_behind_one_that_was_aborted)
{
	unsigned n;
	struct mock m;
	uint32_t itt, behind;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	n = memory_eat();
	itt = command(&m, 0xa0, 4 << 20, 0x2a, 0, 8192, NULL, 0);
	behind = command(&m, 0xa0, 4096, 0x2a, 0, 8, NULL, 0);
	CHECK(next(&m) == NULL);
	CHECK_EQ(tmf(&m, 1, itt, 0), 0);
	for (unsigned i = 0; i < 16; i++)
		sgl_put(eaten[--n]);
	settle();
	CHECK(!TAILQ_EMPTY(&m.gets));
	serve_get(&m, 9);
	CHECK_EQ(answer(&m, behind), 0);
	while (n > 0)
		sgl_put(eaten[--n]);
	end();
}

/* So too if it was the oldest, and waited before those that had waited longer. */
TEST(iscsi_data, a_write_behind_the_oldest_that_was_aborted)
{
	unsigned n;
	struct mock m;
	uint32_t oldest, behind;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	n = memory_eat();
	sgl_put(eaten[--n]);
	sgl_put(eaten[--n]);
	oldest = command(&m, 0x20, 4 << 20, 0x2a, 0, 8192, NULL, 0);
	behind = command(&m, 0xa0, 65536, 0x2a, 0, 128, NULL, 0);
	CHECK(next(&m) == NULL);
	data_out(&m, oldest, 0, 0, 8192, true);
	for (unsigned i = 0; i < 64; i++)
		sgl_put(eaten[--n]);
	CHECK(next(&m) == NULL);
	CHECK(TAILQ_EMPTY(&m.gets));
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, oldest, 0), 0);
	settle();
	for (unsigned i = 0; i < 4; i++)
		serve_get(&m, 9);
	CHECK_EQ(answer(&m, behind), 0);
	while (n > 0)
		sgl_put(eaten[--n]);
	end();
}

/* It announces more than it moves, which has to land: it waits for all of it. */
TEST(iscsi_data, a_write_waits_for_all_that_it_takes)
{
	unsigned n;
	struct mock m;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	n = memory_eat();
	sgl_put(eaten[--n]);
	sgl_put(eaten[--n]);
	itt = command(&m, 0xa0, 8192, 0x2a, 1, 1, NULL, 0); /* 3 pages */
	CHECK(next(&m) == NULL);
	CHECK(m.dm.owner->session->pages.queued);
	CHECK(m.dm.owner->session->pages.n >= 3);
	while (n > 0)
		sgl_put(eaten[--n]);
	settle();
	serve_get(&m, 9);
	CHECK_EQ(answer(&m, itt), 0);
	end();
}

/* Who does not want memory any more is in nobody's way. */
TEST(iscsi_data, a_wait_for_memory_ends_with_its_command)
{
	struct mock a, b;
	unsigned n;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&a, 1);
	ready(&b, 2);
	n = memory_eat();
	itt = command(&a, 0xa0, 8u << 20, 0x2a, 0, 16384, NULL, 0);
	CHECK(next(&a) == NULL);
	CHECK_EQ(tmf(&a, SCSI_ABORT_TASK, itt, 0), 0);
	itt = command(&b, 0xa0, 16384, 0x2a, 0, 32, NULL, 0);
	CHECK(next(&b) == NULL);
	CHECK(TAILQ_EMPTY(&b.gets));
	for (unsigned i = 0; i < 64; i++)
		sgl_put(eaten[--n]);
	settle();
	serve_get(&b, 9);
	CHECK_EQ(answer(&b, itt), 0);
	while (n > 0)
		sgl_put(eaten[--n]);
	end();
}

/* Who got some stands behind those that wait already. */
TEST(iscsi_data, sessions_take_turns_at_memory)
{
	struct mock a, b;
	unsigned n, i;
	uint32_t first, second, other;

	fixture((struct iscsi_config){ 0 });
	ready(&a, 1);
	ready(&b, 2);
	n = memory_eat();
	first = command(&a, 0xa0, 16384, 0x2a, 0, 32, NULL, 0);
	second = command(&a, 0xa0, 16384, 0x2a, 32, 32, NULL, 0);
	other = command(&b, 0xa0, 16384, 0x2a, 64, 32, NULL, 0);
	CHECK(next(&b) == NULL);
	for (i = 0; i < 5; i++) /* for one */
		sgl_put(eaten[--n]);
	settle();
	CHECK(!TAILQ_EMPTY(&a.gets));
	CHECK(TAILQ_EMPTY(&b.gets));
	for (i = 0; i < 4; i++)
		sgl_put(eaten[--n]);
	settle();
	serve_get(&b, 9);
	CHECK_EQ(answer(&b, other), 0);
	serve_get(&a, 9);
	CHECK_EQ(answer(&a, first), 0);
	serve_get(&a, 9);
	CHECK_EQ(answer(&a, second), 0);
	while (n > 0)
		sgl_put(eaten[--n]);
	end();
}

struct named {
	const char *name;
	uint64_t value;
};

static void on_counter(struct counter *counter, void *arg)
{
	struct named *named = arg;

	if (strcmp(counter->name, named->name) == 0)
		named->value = counter_value(counter);
}

static uint64_t counted(const char *name)
{
	struct named named = { .name = name };

	counter_each(on_counter, &named);
	return named.value;
}

/* @seconds pass for all tasks of @m's session, without a word. */
static void seconds_pass(struct mock *m, uint64_t seconds)
{
	struct iscsi_session *s = m->dm.owner->session;
	struct task *task;

	CHECK(s->data_timer_on);
	TAILQ_FOREACH (task, &s->tasks, link)
		task->since_ns -= seconds * SEC;
	m->dm.owner->heard_ns -= seconds * SEC;
	env_timer_stop(ts.env, &s->data_timer);
	s->data_timer.cb(&s->data_timer);
}

/* So too while the oldest waits for memory; that ends no session. */
static void parked_for(struct mock *m, uint64_t seconds)
{
	CHECK(TAILQ_FIRST(&m->dm.owner->session->tasks)->parked);
	seconds_pass(m, seconds);
	CHECK(!m->closing);
}

/* Memory does not come: the command comes back before hosts give it up. */
TEST(iscsi_data, a_write_that_finds_no_memory_is_sent_back)
{
	struct iscsi_session *s;
	uint64_t busy, writes;
	struct task *task;
	struct seen *seen;
	struct mock m;
	unsigned n;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	n = memory_eat();
	command(&m, 0xa0, 65536, 0x2a, 0, 128, NULL, 0);
	CHECK(next(&m) == NULL);
	s = m.dm.owner->session;
	task = TAILQ_FIRST(&s->parked);
	CHECK(task != NULL && s->data_timer_on);
	CHECK(s->data_timer.due_ns <=
	      task->since_ns + (ISCSI_PARKED_SECONDS + 1) * SEC);
	/* The time is over. */
	env_timer_stop(ts.env, &s->data_timer);
	task->since_ns -= ISCSI_PARKED_SECONDS * SEC;
	busy = counted("basalt_scsi_busy_total");
	writes = counted("basalt_scsi_writes_total");
	s->data_timer.cb(&s->data_timer);
	seen = next(&m);
	CHECK(seen != NULL);
	CHECK_EQ(seen->bhs[3], SCSI_TASK_SET_FULL);
	CHECK_EQ(seen->bhs[1], ISCSI_FINAL | ISCSI_RESIDUAL_U);
	CHECK_EQ(get_be32(seen->bhs + 44), 65536); /* it moved nothing */
	CHECK_EQ(counted("basalt_scsi_busy_total"), busy + 1);
	CHECK_EQ(counted("basalt_scsi_writes_total"), writes + 1);
	while (n > 0)
		sgl_put(eaten[--n]);
	end();
}

/*
 * All others of the unit wait for a barrier, whose host may be what keeps the memory:
 * it is sent back sooner, wherever it stands.
 */
TEST(iscsi_data, a_barrier_that_finds_no_memory_is_sent_back)
{
	uint32_t simple, ordered;
	struct mock m, other;
	unsigned n;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	ready(&other, 2);
	n = memory_eat();
	ordered = command(&other, 0xa0 | SCSI_ORDERED, 65536, 0x2a, 0, 128,
			  NULL, 0);
	simple = command(&m, 0xa0, 65536, 0x2a, 0, 128, NULL, 0);
	CHECK(next(&m) == NULL);
	CHECK(other.dm.owner->session->data_timer.due_ns <=
	      env_now(ts.env) + ISCSI_BARRIER_DATA_SECONDS * SEC);
	parked_for(&m, ISCSI_BARRIER_DATA_SECONDS);
	CHECK(next(&m) == NULL); /* nobody waits for that one */
	parked_for(&other, ISCSI_BARRIER_DATA_SECONDS / 2);
	CHECK(next(&other) == NULL);
	(void)command(&other, 0xa0, 65536, 0x2a, 0, 128, NULL, 0);
	parked_for(&other, ISCSI_BARRIER_DATA_SECONDS / 2);
	CHECK_EQ(answer(&other, ordered), SCSI_TASK_SET_FULL);
	CHECK(next(&other) == NULL);
	/* Nor for longer does one that another's barrier waits for. */
	ordered = command(&other, 0x80 | SCSI_ORDERED, 0, 0x00, 0, 0, NULL, 0);
	parked_for(&m, 0);
	CHECK_EQ(answer(&m, simple), SCSI_TASK_SET_FULL);
	while (n > 0)
		sgl_put(eaten[--n]);
	end();
}

/* The time that it waited for memory is none that its host took for the data. */
TEST(iscsi_data, a_barrier_that_found_memory_has_its_time)
{
	struct mock m;
	uint32_t itt;
	unsigned n;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	n = memory_eat();
	itt = command(&m, 0xa0 | SCSI_ORDERED, 8192, 0x2a, 0, 16, NULL, 0);
	parked_for(&m, ISCSI_BARRIER_DATA_SECONDS * 2 / 3);
	CHECK(next(&m) == NULL);
	while (n > 0)
		sgl_put(eaten[--n]);
	settle();
	CHECK(!TAILQ_EMPTY(&m.gets));
	seconds_pass(&m, ISCSI_BARRIER_DATA_SECONDS * 2 / 3);
	CHECK(!m.closing);
	serve_get(&m, 9);
	CHECK_EQ(answer(&m, itt), 0);
	end();
}

/* Its host's clock ran: what it waited is not there for storage any more. */
TEST(iscsi_data, a_wait_for_memory_takes_of_the_deadline)
{
	struct iscsi_session *s;
	struct task *task;
	struct mock m;
	unsigned n;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	n = memory_eat();
	command(&m, 0xa0, 65536, 0x2a, 0, 128, NULL, 0);
	CHECK(next(&m) == NULL);
	s = m.dm.owner->session;
	task = TAILQ_FIRST(&s->parked);
	CHECK(task != NULL);
	task->since_ns -= 15 * SEC;
	fake_dom_hold(dom, true);
	while (n > 0)
		sgl_put(eaten[--n]);
	settle();
	for (unsigned i = 0; i < 4; i++)
		serve_get(&m, 9);
	settle();
	CHECK_EQ(fake_dom_queued(dom), 1);
	CHECK(task->cmd.io.deadline_ns <= env_now(ts.env) + 10 * SEC);
	CHECK(task->cmd.io.deadline_ns > env_now(ts.env) + 5 * SEC);
	fake_dom_hold(dom, false);
	settle();
	end();
}

/* Another nexus aborts it just then: it is answered for that, and goes on. */
TEST(iscsi_data, a_write_that_waits_too_long_and_is_aborted)
{
	uint8_t reset[ISCSI_BHS_LEN] = { 0x42, 0x80 | SCSI_LUN_RESET };
	struct iscsi_session *s;
	struct mock m, other;
	unsigned n;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	ready(&other, 2);
	n = memory_eat();
	itt = command(&m, 0xa0 | SCSI_ORDERED, 65536, 0x2a, 0, 128, NULL, 0);
	CHECK(next(&m) == NULL);
	s = m.dm.owner->session;
	TAILQ_FIRST(&s->parked)->since_ns -= ISCSI_PARKED_SECONDS * SEC;
	m.dm.owner->heard_ns -= ISCSI_PARKED_SECONDS * SEC;
	put_be32(reset + 16, ++tag);
	put_pdu(&other, reset, NULL, 0);
	env_timer_stop(ts.env, &s->data_timer);
	s->data_timer.cb(&s->data_timer);
	CHECK(!m.closing);
	CHECK_EQ(answer(&m, itt), SCSI_TASK_ABORTED);
	while (n > 0)
		sgl_put(eaten[--n]);
	end();
}

/* Data that is asked for has its place; what has none yet is not asked for. */
TEST(iscsi_data, writes_beyond_the_share_of_a_session)
{
	struct mock m;
	struct dm_data *get;
	size_t asked = 0;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	for (unsigned i = 0; i < 40; i++)
		command(&m, 0xa0, 1u << 20, 0x2a, 0, 2048, NULL, 0);
	settle();
	TAILQ_FOREACH (get, &m.gets, link)
		asked += get->task_offset == 0;
	CHECK_EQ(asked, ISCSI_SESSION_BYTES_MAX >> 20);
	end();
}

/* Bytes that were asked for of the task @itt. */
static size_t asked_of(struct mock *m, uint32_t itt)
{
	struct dm_data *get;
	size_t sum = 0;

	TAILQ_FOREACH (get, &m->gets, link)
		sum += get->itt == itt ? get->len : 0;
	return sum;
}

/* Room that it waits for is not given to those who came later and want less. */
TEST(iscsi_data, who_waits_for_room_has_it_first)
{
	uint32_t first = 0, large, little, read;
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	for (unsigned i = 0; i < 31; i++)
		first = command(&m, 0xa0, 1u << 20, 0x2a, 0, 2048, NULL, 0);
	large = command(&m, 0xa0, 2u << 20, 0x2a, 0, 4096, NULL, 0);
	little = command(&m, 0xa0, 16384, 0x2a, 0, 32, NULL, 0);
	read = READ10(&m, 0, 32);
	CHECK(next(&m) == NULL);
	CHECK(asked_of(&m, first) > 0);
	CHECK_EQ(asked_of(&m, large), 0);
	CHECK_EQ(asked_of(&m, little), 0);
	/* What takes no room waits for nobody. */
	CHECK_EQ(answer(&m, TUR(&m)), 0);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, read, 0), 0);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, first, 0), 0);
	settle();
	CHECK(asked_of(&m, large) > 0);
	CHECK_EQ(asked_of(&m, little), 0);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, first - 1, 0), 0);
	settle();
	CHECK(asked_of(&m, little) > 0);
	end();
}

/* Give the write @itt all that it still asks for. */
static void serve_write(struct mock *m, uint32_t itt)
{
	struct dm_data *get, *next;

	while (asked_of(m, itt) > 0)
		for (get = TAILQ_FIRST(&m->gets); get != NULL; get = next) {
			next = TAILQ_NEXT(get, link);
			if (get->itt != itt)
				continue;
			TAILQ_REMOVE(&m->gets, get, link);
			get->cb(get, 0);
			break;
		}
}

/* As many writes of 1 MiB as take more than the share: their data is here. */
#define TOO_MANY 40u

static uint32_t write_with_data(struct mock *m)
{
	static uint8_t data[8192];

	return command(m, 0xa0, 1u << 20, 0x2a, 0, 2048, data, sizeof(data));
}

/*
 * Their data has memory; for the rest of it they wait for the share.  A READ waits
 * behind them, and not behind all that come later.
 */
TEST(iscsi_data, a_read_among_writes_that_bring_data)
{
	uint32_t read, writes[3 * TOO_MANY];
	unsigned done = 0, sent = 0, asked = 0;
	struct seen *s;
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	while (sent < TOO_MANY)
		writes[sent++] = write_with_data(&m);
	read = READ10(&m, 0, 8);
	CHECK(next(&m) == NULL);
	for (unsigned i = 0; i < TOO_MANY; i++)
		asked += asked_of(&m, writes[i]) > 0;
	CHECK_EQ(asked, ISCSI_SESSION_BYTES_MAX >> 20);
	for (bool was_read = false; done < ARRAY_LEN(writes);) {
		if (sent < ARRAY_LEN(writes))
			writes[sent++] = write_with_data(&m);
		serve_write(&m, writes[done]);
		CHECK_EQ(answer(&m, writes[done++]), 0);
		if (!was_read && (s = next(&m)) != NULL) {
			CHECK_EQ(get_be32(s->bhs + 16), read);
			was_read = true;
		}
		CHECK(was_read || done < TOO_MANY);
	}
	CHECK(next(&m) == NULL);
	end();
}

/* What has no payload does not: by such commands a host sees whether its path is there. */
TEST(iscsi_data, an_inquiry_among_writes_that_bring_data)
{
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	for (unsigned i = 0; i < TOO_MANY; i++)
		write_with_data(&m);
	CHECK(next(&m) == NULL);
	CHECK_EQ(answer(&m, TUR(&m)), 0);
	CHECK_EQ(answer(&m, command(&m, 0xc0, 36, 0x12, 36 << 8, 0, NULL, 0)),
		 0);
	end();
}

/* Nor a READ that is taken for a write: it returns nothing, and holds no share. */
TEST(iscsi_data, a_read_that_returns_nothing_among_writes)
{
	uint32_t read;
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	for (unsigned i = 0; i < TOO_MANY; i++)
		write_with_data(&m);
	read = command(&m, 0xa0, 4096, 0x28, 0, 8, NULL, 0);
	CHECK_EQ(answer(&m, read), 0);
	end();
}

/* Nor a list, by which a host is fenced off: PERSISTENT RESERVE OUT. */
TEST(iscsi_data, a_list_among_writes_that_bring_data)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_COMMAND, 0xa0 };
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	for (unsigned i = 0; i < TOO_MANY; i++)
		write_with_data(&m);
	CHECK(next(&m) == NULL);
	put_be32(bhs + 16, ++tag);
	put_be32(bhs + 20, 24);
	bhs[32] = 0x5f; /* REGISTER */
	bhs[32 + 8] = 24;
	put_pdu(&m, bhs, NULL, 0);
	settle();
	CHECK_EQ(asked_of(&m, tag), 24);
	serve_write(&m, tag);
	CHECK_EQ(answer(&m, tag), 0);
	end();
}

/* Nor does it wait for the room of those that wait for it. */
TEST(iscsi_data, an_ordered_write_before_those_that_bring_data)
{
	uint32_t older[2], ordered, writes[TOO_MANY];
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	older[0] = command(&m, 0xa0, 16u << 20, 0x2a, 0, 32768, NULL, 0);
	older[1] = write_with_data(&m);
	ordered = command(&m, 0xa0 | SCSI_ORDERED, 16u << 20, 0x2a, 0, 32768,
			  NULL, 0);
	for (unsigned i = 0; i < TOO_MANY; i++)
		writes[i] = write_with_data(&m);
	for (unsigned i = 0; i < TOO_MANY; i++)
		CHECK_EQ(asked_of(&m, writes[i]), 0);
	CHECK_EQ(asked_of(&m, ordered), 0);
	CHECK(next(&m) == NULL);
	for (unsigned i = 0; i < 2; i++) {
		serve_write(&m, older[i]);
		CHECK_EQ(answer(&m, older[i]), 0);
	}
	serve_write(&m, ordered);
	CHECK_EQ(answer(&m, ordered), 0);
	for (unsigned i = 0; i < TOO_MANY; i++) {
		serve_write(&m, writes[i]);
		CHECK_EQ(answer(&m, writes[i]), 0);
	}
	end();
}

/* What is verified takes memory of its own, beside all shares: it is little. */
TEST(iscsi_data, a_verify_takes_little_memory)
{
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	hoard_all();
	hoard_keep(hoard_count - 20);
	CHECK_EQ(answer(&m, command(&m, 0x80, 0, 0x2f, 0, 2048, NULL, 0)), 0);
	hoard_keep(0);
	end();
}

/*
 * A write of @edtl bytes whose first @len are there in pages of their own, from
 * @offset of the first on, as over iSER.
 */
static uint32_t write_with_sgl(struct mock *m, uint32_t lba, uint16_t blocks,
			       uint32_t edtl, size_t len, unsigned offset,
			       uint8_t byte)
{
	static uint8_t data[8192];
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_COMMAND, 0xa0 };
	struct dm_pdu pdu = pdu_of(bhs, NULL, len);

	put_be32(bhs + 16, ++tag);
	put_be32(bhs + 20, edtl);
	put_be32(bhs + 24, m->cmdsn++);
	bhs[32] = 0x2a;
	put_be32(bhs + 34, lba);
	put_be16(bhs + 39, blocks);
	CHECK_EQ(sgl_new(ts.env->pages, PAGE_FRONT, len, offset, &pdu.sgl), 0);
	memset(data, byte, sizeof(data));
	sgl_write(pdu.sgl, 0, data, len);
	m->dm.up->control(m->dm.owner, &pdu);
	sgl_put(pdu.sgl);
	return tag;
}

static uint32_t write_with_pages(struct mock *m, uint32_t lba, uint16_t blocks,
				 uint8_t byte)
{
	return write_with_sgl(m, lba, blocks, blocks * 512u, 8192, 0, byte);
}

/* Pages that do not lie as the rest of the write does are not used with it. */
TEST(iscsi_data, the_rest_follows_what_lies_otherwise)
{
	static const struct {
		uint32_t lba;
		uint16_t blocks;
		size_t len;
		unsigned offset;
	} t[] = {
		{ 803, 160, 8192, 0 }, /* the write begins within a page */
		{ 800, 160, 4608, 0 }, /* they end within one */
		{ 800, 160, 7680, 512 }, /* they begin within one */
		{ 800, 8, 8192, 0 }, /* there are more than it takes */
	};
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	for (unsigned i = 0; i < ARRAY_LEN(t); i++) {
		uint32_t itt =
			write_with_sgl(&m, t[i].lba, t[i].blocks, 160 * 512,
				       t[i].len, t[i].offset, 0x44);

		settle();
		while (!TAILQ_EMPTY(&m.gets))
			serve_get(&m, 0x22);
		CHECK_EQ(answer(&m, itt), 0);
		for (uint32_t at = 0; at < t[i].blocks; at++) {
			CHECK_EQ(answer(&m, READ10(&m, t[i].lba + at, 1)), 0);
			CHECK_EQ(m.read_first,
				 at < t[i].len / 512 ? 0x44 : 0x22);
		}
	}
	end();
}

/* What came unasked and what is asked for later are one, wherever they lie. */
TEST(iscsi_data, the_rest_follows_what_came_unasked)
{
	static uint8_t data[4096];
	uint32_t holds, odd, pages;
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	holds = command(&m, 0xa0, 16u << 20, 0x2a, 0, 32768, NULL, 0);
	command(&m, 0xa0, 16u << 20, 0x2a, 0, 32768, NULL, 0);
	memset(data, 0x11, sizeof(data));
	odd = command(&m, 0x20, 80 * 512, 0x2a, 3, 80, data, sizeof(data));
	data_out(&m, odd, 0, 4096, 4096, true);
	pages = write_with_pages(&m, 800, 160, 0x44);
	CHECK_EQ(asked_of(&m, odd), 0);
	CHECK_EQ(asked_of(&m, pages), 0);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, holds, 0), 0);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, holds + 1, 0), 0);
	settle();
	CHECK(asked_of(&m, odd) > 0);
	CHECK(asked_of(&m, pages) > 0);
	while (!TAILQ_EMPTY(&m.gets))
		serve_get(&m, 0x22);
	CHECK_EQ(answer(&m, odd), 0);
	CHECK_EQ(answer(&m, pages), 0);
	for (uint32_t at = 0; at < 80; at++) {
		CHECK_EQ(answer(&m, READ10(&m, 3 + at, 1)), 0);
		CHECK_EQ(m.read_first, at < 8 ? 0x11 : at < 16 ? 0x33 : 0x22);
	}
	for (uint32_t at = 0; at < 160; at += 8) {
		CHECK_EQ(answer(&m, READ10(&m, 800 + at, 1)), 0);
		CHECK_EQ(m.read_first, at < 16 ? 0x44 : 0x22);
	}
	/* Nobody holds anything any more. */
	CHECK_EQ(((struct iscsi_conn *)m.dm.owner)->session->payload_bytes, 0);
	end();
}

/* They are its first ones: nothing is needed until the rest can come. */
TEST(iscsi_data, a_write_whose_first_pages_are_here_waits_for_memory)
{
	struct mock m;
	unsigned n;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	n = memory_eat();
	sgl_put(eaten[--n]);
	sgl_put(eaten[--n]);
	itt = write_with_pages(&m, 0, 160, 0x44);
	CHECK(next(&m) == NULL);
	CHECK_EQ(asked_of(&m, itt), 0);
	while (n > 0)
		sgl_put(eaten[--n]);
	settle();
	while (!TAILQ_EMPTY(&m.gets))
		serve_get(&m, 0x22);
	CHECK_EQ(answer(&m, itt), 0);
	for (uint32_t at = 0; at < 160; at += 8) {
		CHECK_EQ(answer(&m, READ10(&m, at, 1)), 0);
		CHECK_EQ(m.read_first, at < 16 ? 0x44 : 0x22);
	}
	end();
}

#define BURST 262144u

/* What came with a command that has said all has a place; no more of it does. */
TEST(iscsi_data, what_came_with_a_command_is_all_that_lands)
{
	struct iscsi_session *s;
	struct mock m;
	size_t full;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	s = m.dm.owner->session;
	s->keys.first_burst = BURST;
	command(&m, 0xa0, 16u << 20, 0x2a, 0, 32768, NULL, 0);
	command(&m, 0xa0, 16u << 20, 0x2a, 0, 32768, NULL, 0);
	full = s->payload_bytes;
	write_with_data(&m);
	CHECK_EQ(s->payload_bytes, full + 8192);
	command(&m, 0x20, 1u << 20, 0x2a, 0, 2048, NULL, 0);
	CHECK_EQ(s->payload_bytes, full + 8192 + BURST);
	end();
}

/* All that may come unasked of a write of 1 MiB. */
static void send_burst(struct mock *m, uint32_t itt)
{
	for (uint32_t at = 0; at < BURST; at += 8192)
		data_out(m, itt, at / 8192, at, 8192, at + 8192 == BURST);
}

/* The oldest takes its time, and is behind one that waits for it to end. */
TEST(iscsi_data, the_oldest_of_those_that_wait)
{
	uint32_t holds, oldest, large, others[70];
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	((struct iscsi_conn *)m.dm.owner)->session->keys.first_burst = BURST;
	holds = command(&m, 0xa0, 16u << 20, 0x2a, 0, 32768, NULL, 0);
	command(&m, 0xa0, 16u << 20, 0x2a, 0, 32768, NULL, 0);
	oldest = command(&m, 0x20, 1u << 20, 0x2a, 0, 2048, NULL, 0);
	large = command(&m, 0xa0, 16u << 20, 0x2a, 0, 32768, NULL, 0);
	for (unsigned i = 0; i < ARRAY_LEN(others); i++) {
		others[i] = command(&m, 0x20, 1u << 20, 0x2a, 0, 2048, NULL, 0);
		send_burst(&m, others[i]);
	}
	send_burst(&m, oldest);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, holds, 0), 0);
	CHECK_EQ(tmf(&m, SCSI_ABORT_TASK, holds + 1, 0), 0);
	settle();
	CHECK_EQ(asked_of(&m, large), 0);
	serve_write(&m, oldest);
	CHECK_EQ(answer(&m, oldest), 0);
	serve_write(&m, large);
	CHECK_EQ(answer(&m, large), 0);
	for (unsigned i = 0; i < ARRAY_LEN(others); i++) {
		serve_write(&m, others[i]);
		CHECK_EQ(answer(&m, others[i]), 0);
	}
	end();
}

TEST(iscsi_data, an_initiator_that_fetches_nothing)
{
	struct mock m;
	unsigned queued = 0;
	struct dm_data *put;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	m.deaf = true;
	/* 60 reads of 1 MiB: only so many are executed and held */
	for (unsigned i = 0; i < 60; i++)
		READ10(&m, 0, 2048);
	settle();
	TAILQ_FOREACH (put, &m.puts, link)
		queued++;
	CHECK(queued > 0);
	CHECK(queued <= (ISCSI_SESSION_BYTES_MAX >> 20));
	m.deaf = false;
	env_defer(ts.env, &m.turn);
	for (unsigned i = 0; i < 60; i++)
		CHECK(next(&m) != NULL);
	end();
}

/*
 * Sessions that hang, each with as much under way as it may have: there is
 * memory for who does not, whatever that does.
 */
TEST(iscsi_data, initiators_that_hang)
{
	static struct mock hung[8];
	uint32_t itt;
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	for (unsigned i = 0; i < ARRAY_LEN(hung); i++) {
		ready(&hung[i], (uint8_t)(i + 2));
		hung[i].deaf = true;
		for (unsigned n = 0; n < 40; n++)
			if (i % 2 == 0)
				READ10(&hung[i], 0, 2048);
			else
				command(&hung[i], 0xa0, 1u << 20, 0x2a, 0, 2048,
					NULL, 0);
	}
	settle();
	for (unsigned n = 0; n < 4; n++) {
		itt = command(&m, 0xa0, 1u << 20, 0x2a, 0, 2048, NULL, 0);
		CHECK(asked_of(&m, itt) > 0);
		serve_write(&m, itt);
		CHECK_EQ(answer(&m, itt), 0);
		CHECK_EQ(answer(&m, READ10(&m, 0, 2048)), 0);
	}
	end();
}

/* So too where each of their writes has brought a part of its data. */
TEST(iscsi_data, initiators_that_hang_with_data)
{
	static const char text[] = "InitiatorName=" WHO "\0TargetName=" IQN "\0"
				   "FirstBurstLength=262144\0";
	static uint8_t data[262144];
	static struct mock hung[5];
	uint32_t itt;
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	for (unsigned i = 0; i < ARRAY_LEN(hung); i++) {
		login_text(&hung[i], (uint8_t)(i + 2), text, sizeof(text) - 1);
		CHECK_EQ(status_of(&hung[i]), 0);
		widen(&hung[i]);
		CHECK_EQ(answer(&hung[i], TUR(&hung[i])), 2);
		hung[i].deaf = true;
		for (unsigned n = 0; n < 120; n++)
			command(&hung[i], 0xa0, 1u << 20, 0x2a, 0, 2048, data,
				sizeof(data));
	}
	settle();
	itt = command(&m, 0xa0, 1u << 20, 0x2a, 0, 2048, NULL, 0);
	CHECK(asked_of(&m, itt) > 0);
	serve_write(&m, itt);
	CHECK_EQ(answer(&m, itt), 0);
	CHECK_EQ(answer(&m, READ10(&m, 0, 2048)), 0);
	end();
}

/* So too before what they read has taken its memory. */
TEST(iscsi_data, what_is_promised_is_not_left)
{
	static struct mock m[8];
	size_t promised;

	fixture((struct iscsi_config){ 0 });
	for (unsigned i = 0; i < ARRAY_LEN(m); i++)
		ready(&m[i], (uint8_t)(i + 1));
	fake_dom_hold(dom, true);
	for (unsigned i = 0; i < ARRAY_LEN(m); i++)
		for (unsigned n = 0; n < 40; n++)
			READ10(&m[i], 0, 2048);
	settle();
	promised = fake_dom_queued(dom) * (1u << 20) / PAGE_BYTES;
	CHECK(pages_left(ts.env->pages, PAGE_FRONT, promised) >=
	      ISCSI_SESSION_BYTES_MAX / 4 / PAGE_BYTES);
	fake_dom_hold(dom, false);
	end();
}

/* ---- many that write ---- */

#define DEPTH 100u

struct writer {
	struct mock m;
	uint32_t exp, max; /* as last told */
	unsigned out, done, full;
};

static void writer_saw(struct mock *m, const struct seen *pdu)
{
	struct writer *w = container_of(m, struct writer, m);

	w->exp = get_be32(pdu->bhs + 28);
	w->max = get_be32(pdu->bhs + 32);
	if (pdu->bhs[0] != ISCSI_OP_RESPONSE)
		return;
	w->out--;
	w->done++;
	w->full += pdu->bhs[3] == SCSI_TASK_SET_FULL;
}

/* As many as it wants, and may. */
static void writer_send(struct writer *w)
{
	static uint8_t data[262144];

	while (w->out < DEPTH && sn_le(w->m.cmdsn, w->max)) {
		command(&w->m, 0xa0, 1u << 20, 0x2a, 0, 2048, data,
			sizeof(data));
		w->out++;
	}
}

/*
 * What comes unasked cannot wait for memory.  So many hosts with so much to write
 * at the same time have it all the same: the window lets no more come.
 */
static void many_write(unsigned count, unsigned rounds, unsigned least)
{
	static const char text[] = "InitiatorName=" WHO "\0TargetName=" IQN "\0"
				   "FirstBurstLength=262144\0"
				   "MaxBurstLength=1048576\0";
	struct writer *w = calloc(count, sizeof(*w));
	struct dm_data *get;

	fixture((struct iscsi_config){ 0 });
	for (unsigned i = 0; i < count; i++) {
		login_text(&w[i].m, (uint8_t)(i + 1), text, sizeof(text) - 1);
		CHECK_EQ(status_of(&w[i].m), 0);
		w[i].m.saw = writer_saw;
		for (unsigned n = 0; n < 2; n++) {
			w[i].out++;
			TUR(&w[i].m);
			settle();
		}
	}
	for (unsigned round = 0; round < rounds; round++) {
		/* The disk is slow: all that may come is here before it ends. */
		fake_dom_hold(dom, true);
		for (unsigned i = 0; i < count; i++)
			writer_send(&w[i]);
		settle();
		for (unsigned i = 0; i < count; i++)
			while ((get = TAILQ_FIRST(&w[i].m.gets)) != NULL) {
				TAILQ_REMOVE(&w[i].m.gets, get, link);
				get->cb(get, 0);
			}
		fake_dom_hold(dom, false);
		settle();
	}
	for (unsigned i = 0; i < count; i++) {
		CHECK_EQ(w[i].full, 0);
		CHECK(w[i].done > least);
	}
	end();
	free(w);
}

TEST(iscsi_data, many_writers_find_memory)
{
	many_write(6, 60, DEPTH);
}

/* The last to come in each round, too. */
TEST(iscsi_data, very_many_writers_find_memory)
{
	many_write(24, 15, 15);
}

/*
 * Others may widen theirs, too: so slowly where much comes unasked, and not at all
 * where little is left.
 */
TEST(iscsi_data, a_window_for_large_writes)
{
	static const char text[] = "InitiatorName=" WHO "\0TargetName=" IQN "\0"
				   "FirstBurstLength=262144\0";
	static uint8_t data[262144];
	struct iscsi_session *s;
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	login_text(&m, 1, text, sizeof(text) - 1);
	CHECK_EQ(status_of(&m), 0);
	CHECK_EQ(answer(&m, TUR(&m)), 2);
	s = m.dm.owner->session;
	s->window = 16;
	CHECK_EQ(answer(&m, TUR(&m)), 0); /* it brings nothing */
	CHECK_EQ(s->window, 17);
	for (unsigned i = 0; i < 17; i++) {
		CHECK_EQ(s->window, 17);
		CHECK_EQ(answer(&m, command(&m, 0xa0, sizeof(data), 0x2a, 0,
					    512, data, sizeof(data))),
			 0);
	}
	CHECK_EQ(s->window, 18);
	s->window = 3;
	hoard_all();
	hoard_keep(hoard_count - 2 * sizeof(data) / PAGE_BYTES);
	for (unsigned i = 0; i < 3; i++) {
		CHECK_EQ(s->window, i < 2 ? 3 - i : 1);
		CHECK_EQ(answer(&m, command(&m, 0xa0, sizeof(data), 0x2a, 0,
					    512, data, sizeof(data))),
			 0);
	}
	CHECK_EQ(s->window, 1);
	CHECK_EQ(answer(&m, READ10(&m, 0, 8)), 0);
	CHECK_EQ(s->window, 2);
	hoard_keep(0);
	end();
}

/* What is left is for all that are at work, not for each. */
TEST(iscsi_data, a_window_among_others)
{
	static const char text[] = "InitiatorName=" WHO "\0TargetName=" IQN "\0"
				   "FirstBurstLength=262144\0";
	static uint8_t data[262144];
	static struct mock m[10];
	struct iscsi_session *s;

	fixture((struct iscsi_config){ 0 });
	login_text(&m[0], 1, text, sizeof(text) - 1);
	CHECK_EQ(status_of(&m[0]), 0);
	CHECK_EQ(answer(&m[0], TUR(&m[0])), 2);
	for (unsigned i = 1; i < ARRAY_LEN(m); i++)
		ready(&m[i], (uint8_t)(i + 1));
	s = m[0].dm.owner->session;
	for (unsigned at_work = 0; at_work < 2; at_work++) {
		s->window = 64;
		s->window_gain = 0;
		fake_dom_hold(dom, true);
		for (unsigned i = 1; i < ARRAY_LEN(m) && at_work; i++)
			READ10(&m[i], 0, 8);
		settle();
		command(&m[0], 0xa0, sizeof(data), 0x2a, 0, 512, data,
			sizeof(data));
		settle();
		CHECK_EQ(s->window, 64 - at_work);
		CHECK_EQ(s->window_gain, 1 - at_work);
		fake_dom_hold(dom, false);
		settle();
	}
	end();
}
