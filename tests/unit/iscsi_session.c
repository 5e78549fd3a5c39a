/*
 * Sessions from above and below: PDUs in, and what comes back.
 */
#include "tests/unit/iscsi_rig.h"

/* ---- numbering ---- */

TEST(iscsi_session, outside_of_the_window_is_silence)
{
	struct mock m;

	fixture((struct iscsi_config){ .window = 8 });
	ready(&m, 1);
	m.cmdsn--;
	TUR(&m); /* a duplicate */
	CHECK(next(&m) == NULL);
	m.cmdsn += 8;
	TUR(&m);
	CHECK(next(&m) == NULL);
	m.cmdsn -= 9;
	CHECK_EQ(answer(&m, TUR(&m)), 0);
	end();
}

/* Over TCP it takes nothing from anybody: it may go on. */
TEST(iscsi_session, silence_without_end)
{
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	for (unsigned i = 0; i <= ISCSI_IGNORED_MAX; i++) {
		m.cmdsn--;
		TUR(&m);
	}
	CHECK(next(&m) == NULL);
	CHECK_EQ(answer(&m, TUR(&m)), 0);
	end();
}

TEST(iscsi_session, a_gap_holds_back_what_follows)
{
	uint32_t second, first;
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	m.cmdsn++;
	second = TUR(&m);
	CHECK(next(&m) == NULL);
	m.cmdsn -= 2;
	first = TUR(&m);
	CHECK_EQ(answer(&m, first), 0);
	CHECK_EQ(answer(&m, second), 0);
	/* A duplicate of what is held is not held, too. */
	m.cmdsn += 2;
	second = TUR(&m);
	m.cmdsn--;
	TUR(&m);
	CHECK_EQ(TAILQ_FIRST(&iscsi->sessions)->held_count, 1);
	m.cmdsn -= 2;
	first = TUR(&m);
	CHECK_EQ(answer(&m, first), 0);
	CHECK_EQ(answer(&m, second), 0);
	CHECK(next(&m) == NULL);
	/* ABORT TASK of one that never came fills its place */
	m.cmdsn += 2;
	second = TUR(&m);
	CHECK(next(&m) == NULL);
	CHECK_EQ(tmf(&m, 1, 0x999, m.cmdsn - 2), 0);
	end();
}

/* The gap has lasted so much longer now; the session looks at it. */
static void gap_lasts(struct mock *m, uint64_t seconds)
{
	struct iscsi_session *s = m->dm.owner->session;

	CHECK(s->data_timer_on);
	s->held_since_ns -= seconds * SEC;
	env_timer_stop(ts.env, &s->data_timer);
	s->data_timer.cb(&s->data_timer);
}

/* One gap is closed behind the other: each has the time of one. */
TEST(iscsi_session, a_gap_behind_a_gap)
{
	uint8_t nop[ISCSI_BHS_LEN] = { 0x40, ISCSI_FINAL };
	struct iscsi_session *s;
	struct mock m;
	uint32_t first;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	s = m.dm.owner->session;
	first = m.cmdsn++;
	TUR(&m);
	m.cmdsn++;
	TUR(&m);
	CHECK_EQ(s->held_count, 2);
	gap_lasts(&m, ISCSI_DATA_SECONDS - 1);
	CHECK(!m.closing);
	m.cmdsn = first;
	TUR(&m);
	CHECK_EQ(s->held_count, 1);
	gap_lasts(&m, ISCSI_DATA_SECONDS - 1);
	CHECK(!m.closing);
	/* What has no number closes none. */
	put_be32(nop + 16, ++tag);
	put_be32(nop + 20, ISCSI_NO_TAG);
	put_pdu(&m, nop, NULL, 0);
	gap_lasts(&m, 1);
	CHECK(m.closing);
	end();
}

/* More that is held does not give the gap more time. */
TEST(iscsi_session, a_gap_that_more_and_more_follows)
{
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	m.cmdsn++;
	TUR(&m);
	gap_lasts(&m, ISCSI_DATA_SECONDS - 1);
	CHECK(!m.closing);
	TUR(&m);
	gap_lasts(&m, 1);
	CHECK(m.closing);
	end();
}

/* What is held back keeps its data, and counts once. */
TEST(iscsi_session, held_commands_keep_their_data)
{
	uint8_t nop[ISCSI_BHS_LEN] = { ISCSI_OP_NOP_OUT, ISCSI_FINAL };
	static uint8_t data[8192];
	uint32_t write, first;
	struct mock m;
	struct seen *s;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	memset(data, 0x66, sizeof(data));
	m.cmdsn++;
	write = command(&m, 0xa0, 8192, 0x2a, 0, 16, data, 8192);
	put_be32(nop + 16, 0x777);
	put_be32(nop + 20, ISCSI_NO_TAG);
	put_pdu(&m, nop, "echo", 4);
	m.cmdsn--;
	put_pdu(&m, nop, "twice", 5); /* of a number that is there: dropped */
	CHECK(next(&m) == NULL);
	m.cmdsn -= 3;
	first = TUR(&m);
	m.cmdsn += 2;
	s = next(&m); /* it does not wait for storage */
	CHECK_EQ(s->bhs[0], ISCSI_OP_NOP_IN);
	CHECK_EQ(s->len, 4);
	CHECK_EQ(memcmp(s->data, "echo", 4), 0);
	CHECK_EQ(answer(&m, first), 0);
	CHECK_EQ(answer(&m, write), 0);
	CHECK_EQ(answer(&m, READ10(&m, 15, 1)), 0);
	CHECK_EQ(m.read_first, 0x66);
	end();
}

/* A part of its data that does not lie right: the rest is asked for. */
TEST(iscsi_session, held_commands_keep_a_part_of_their_data)
{
	static uint8_t data[512];
	uint32_t write, first;
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	memset(data, 0x66, sizeof(data));
	m.cmdsn++;
	write = command(&m, 0xa0, 8192, 0x2a, 0, 16, data, sizeof(data));
	m.cmdsn -= 2;
	first = TUR(&m);
	m.cmdsn++;
	CHECK_EQ(answer(&m, first), 0);
	CHECK(next(&m) == NULL);
	serve_get(&m, 0x77);
	CHECK_EQ(answer(&m, write), 0);
	CHECK_EQ(answer(&m, READ10(&m, 0, 1)), 0);
	CHECK_EQ(m.read_first, 0x66);
	CHECK_EQ(answer(&m, READ10(&m, 1, 1)), 0);
	CHECK_EQ(m.read_first, 0x77);
	end();
}

TEST(iscsi_session, abort_of_a_held_command)
{
	uint32_t held;
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	m.cmdsn++;
	held = TUR(&m);
	CHECK_EQ(tmf(&m, 1, held, m.cmdsn - 1), 0);
	m.cmdsn -= 2;
	CHECK_EQ(answer(&m, TUR(&m)), 0);
	m.cmdsn++; /* the number of the one that was aborted is used up */
	CHECK_EQ(answer(&m, TUR(&m)), 0);
	end();
}

TEST(iscsi_session, too_many_commands_ahead_of_a_gap)
{
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	m.cmdsn++;
	for (unsigned i = 0; i < ISCSI_HELD_MAX; i++)
		TUR(&m);
	CHECK(!m.closing);
	TUR(&m);
	CHECK(m.closing);
	end();
}

static void nop_with(struct mock *m, uint32_t len)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_NOP_OUT, ISCSI_FINAL };
	static const uint8_t data[262144];

	CHECK(len <= sizeof(data));
	put_be32(bhs + 16, ++tag);
	put_be32(bhs + 20, ISCSI_NO_TAG);
	put_pdu(m, bhs, data, len);
}

TEST(iscsi_session, too_much_data_ahead_of_a_gap)
{
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	m.cmdsn++;
	for (unsigned i = 0; i < ISCSI_HELD_BYTES_MAX / 262144; i++)
		nop_with(&m, 262144);
	CHECK(!m.closing);
	nop_with(&m, 4);
	CHECK(m.closing);
	end();
}

/* What a gap held back is nothing of what the next one may. */
TEST(iscsi_session, gaps_one_after_the_other)
{
	struct mock m;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	for (unsigned i = 0; i <= ISCSI_HELD_BYTES_MAX / 262144; i++) {
		m.cmdsn++;
		nop_with(&m, 262144);
		CHECK(!m.closing);
		m.cmdsn -= 2;
		itt = TUR(&m);
		m.cmdsn++;
		CHECK_EQ(next(&m)->bhs[0], ISCSI_OP_NOP_IN);
		CHECK_EQ(answer(&m, itt), 0);
	}
	end();
}

/* An echo that is not fetched is kept, in bounds; the answer itself comes. */
TEST(iscsi_session, echoes_that_wait_are_bounded)
{
	const unsigned fit = ISCSI_ECHO_BYTES_MAX / 65536;
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	m.deaf = true;
	for (unsigned i = 0; i < 2 * fit; i++)
		nop_with(&m, 65536);
	settle();
	CHECK_EQ(m.dm.owner->reply_bytes, ISCSI_ECHO_BYTES_MAX);
	m.deaf = false;
	env_defer(ts.env, &m.turn);
	for (unsigned i = 0; i < 2 * fit; i++)
		CHECK_EQ(next(&m)->len, i < fit ? 65536 : 0);
	end();
}

static unsigned reject_of(struct mock *m, uint8_t opcode)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { opcode, ISCSI_FINAL };
	struct seen *s;

	put_be32(bhs + 16, ++tag);
	put_pdu(m, bhs, NULL, 0);
	s = next(m);
	if (s == NULL)
		return 0;
	CHECK_EQ(s->bhs[0], ISCSI_OP_REJECT);
	CHECK_EQ(s->len, ISCSI_BHS_LEN); /* with the header it is about */
	CHECK_EQ(get_be32(s->data + 16), tag);
	return s->bhs[2];
}

TEST(iscsi_session, opcodes_out_of_place)
{
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	CHECK_EQ(reject_of(&m, ISCSI_IMMEDIATE | ISCSI_OP_SNACK), REJECT_SNACK);
	CHECK_EQ(reject_of(&m, ISCSI_IMMEDIATE | ISCSI_OP_LOGIN),
		 REJECT_PROTOCOL);
	CHECK_EQ(reject_of(&m, ISCSI_IMMEDIATE | ISCSI_OP_RESPONSE),
		 REJECT_PROTOCOL);
	CHECK_EQ(reject_of(&m, ISCSI_IMMEDIATE | 0x1c), REJECT_NOT_SUPPORTED);
	CHECK_EQ(answer(&m, TUR(&m)), 0);
	end();
}

/* Many at once end the connection; as many over its life do not. */
TEST(iscsi_session, rejects_over_a_long_life)
{
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	for (unsigned i = 0; i < 3 * ISCSI_REJECTS_MAX; i++) {
		if (i % ISCSI_REJECTS_MAX == 0)
			m.dm.owner->rejects.since_ns -=
				ISCSI_TALLY_SECONDS * SEC;
		CHECK_EQ(reject_of(&m, ISCSI_IMMEDIATE | ISCSI_OP_SNACK),
			 REJECT_SNACK);
	}
	CHECK_EQ(answer(&m, TUR(&m)), 0);
	CHECK_EQ(reject_of(&m, ISCSI_IMMEDIATE | ISCSI_OP_SNACK), 0);
	CHECK(m.closing);
	end();
}

TEST(iscsi_session, a_bad_data_digest_is_said_and_ends_it)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_NOP_OUT | ISCSI_IMMEDIATE };
	struct mock m;
	struct dm_pdu pdu = pdu_of(bhs, "data", 4);

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	pdu.data_digest_bad = true;
	m.dm.up->control(m.dm.owner, &pdu);
	CHECK_EQ(next(&m)->bhs[2], REJECT_DATA_DIGEST);
	CHECK(m.closed);
	end();
}

TEST(iscsi_session, window_follows_congestion)
{
	struct mock m;
	struct seen *s;

	fixture((struct iscsi_config){ .window = 64 });
	ready(&m, 1);
	fake_dom_congestion(dom, &oid, 255);
	for (unsigned i = 0; i < 80; i++) {
		TUR(&m);
		s = next(&m);
		CHECK(s != NULL);
	}
	CHECK(get_be32(s->bhs + 32) - get_be32(s->bhs + 28) < 4);
	fake_dom_congestion(dom, &oid, 0);
	TUR(&m);
	s = next(&m);
	CHECK_EQ(get_be32(s->bhs + 32) - get_be32(s->bhs + 28), 63);
	end();
}

/* Congestion makes the window smaller behind what was granted before. */
TEST(iscsi_session, what_is_granted_is_not_taken_back)
{
	struct mock m;
	uint32_t first, last;

	fixture((struct iscsi_config){ .window = 64 });
	ready(&m, 1);
	CHECK_EQ(answer(&m, TUR(&m)), 0);
	fake_dom_congestion(dom, &oid, 255);
	CHECK_EQ(answer(&m, TUR(&m)), 0);
	first = m.cmdsn;
	m.cmdsn += 60;
	last = TUR(&m);
	CHECK(next(&m) == NULL);
	for (m.cmdsn = first; m.cmdsn != first + 60;)
		CHECK_EQ(answer(&m, TUR(&m)), 0);
	CHECK_EQ(answer(&m, last), 0);
	end();
}

/*
 * What has an answer takes no place in the window; but answers that are kept, as
 * nobody fetches them, do.  (An R2T says what is granted when it is queued.)
 */
TEST(iscsi_session, answers_that_are_not_fetched_close_the_window)
{
	struct iscsi_session *s;
	uint8_t r2t[ISCSI_BHS_LEN] = { ISCSI_OP_R2T };
	unsigned n = 0;
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	s = m.dm.owner->session;
	m.deaf = true;
	while (s->max_cmdsn + 1 != m.cmdsn) {
		CHECK(n++ < 1000);
		TUR(&m);
		settle();
		m.dm.up->stamp(m.dm.owner, r2t);
	}
	CHECK(n > s->window_max);
	end();
}

/* ---- task management ---- */

/* A function for unit 1, which is none. */
static unsigned tmf_elsewhere(struct mock *m, unsigned function, uint32_t ref)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x42,
				       (uint8_t)(0x80 | function), [9] = 1 };
	struct seen *s;

	put_be32(bhs + 16, ++tag);
	put_be32(bhs + 20, ref);
	put_pdu(m, bhs, NULL, 0);
	s = next(m);
	CHECK(s != NULL && s->bhs[0] == ISCSI_OP_TMF_RSP);
	return s->bhs[2];
}

TEST(iscsi_session, abort_task)
{
	struct mock m;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	itt = command(&m, 0xa0, 65536, 0x2a, 0, 128, NULL, 0);
	CHECK_EQ(tmf(&m, 9, itt, 0), 7); /* QUERY TASK: it is there */
	CHECK_EQ(tmf(&m, 1, itt, 0), 0);
	CHECK(TAILQ_EMPTY(&m.gets));
	CHECK_EQ(tmf(&m, 9, itt, 0), 0);
	CHECK(next(&m) == NULL); /* and never an answer for it */
	/* one that is done */
	itt = TUR(&m);
	CHECK_EQ(answer(&m, itt), 0);
	CHECK_EQ(tmf(&m, 1, itt, m.cmdsn - 100), 1);
	/* of another unit, by what it says: not that one, and it goes on */
	fake_dom_hold(dom, true);
	itt = READ10(&m, 0, 8);
	CHECK_EQ(tmf_elsewhere(&m, 1, itt), 2);
	fake_dom_hold(dom, false);
	CHECK_EQ(answer(&m, itt), 0);
	/* one that executes: answered when storage has let go of it */
	fake_dom_hold(dom, true);
	itt = READ10(&m, 0, 8);
	CHECK_EQ(tmf(&m, 1, itt, 0), 0);
	fake_dom_hold(dom, false);
	CHECK(next(&m) == NULL);
	CHECK_EQ(answer(&m, TUR(&m)), 0);
	end();
}

TEST(iscsi_session, resets)
{
	struct mock a, b;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&a, 1);
	ready(&b, 2);
	command(&a, 0xa0, 65536, 0x2a, 0, 128, NULL, 0);
	itt = command(&b, 0xa0, 65536, 0x2a, 0, 128, NULL, 0);
	CHECK_EQ(tmf(&a, 5, ISCSI_NO_TAG, 0), 0);
	CHECK(TAILQ_EMPTY(&a.gets));
	CHECK_EQ(answer(&b, itt), 0x40); /* TAS: it is told */
	CHECK_EQ(answer(&a, TUR(&a)), 2);
	CHECK_EQ(answer(&b, TUR(&b)), 2);
	CHECK_EQ(tmf(&a, 8, ISCSI_NO_TAG, 0), 4);
	CHECK_EQ(tmf(&a, 3, ISCSI_NO_TAG, 0), 5);
	CHECK_EQ(tmf(&a, 11, ISCSI_NO_TAG, 0), 0);
	CHECK_EQ(tmf(&a, 7, ISCSI_NO_TAG, 0), 0);
	settle();
	CHECK(a.closed && b.closed);
	end();
}

/* Found by random PDUs: the second function kept the session for ever. */
TEST(iscsi_session, two_functions_outlive_their_connection)
{
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	m.late = 8;
	command(&m, 0xa0, 65536, 0x2a, 0, 128, NULL, 0);
	/* no turn in between: all of it is pending when the peer goes */
	for (uint8_t f = 2; f < 6; f++) {
		uint8_t bhs[ISCSI_BHS_LEN] = { 0x42, 0x80 | f };

		put_be32(bhs + 16, ++tag);
		put_pdu(&m, bhs, NULL, 0);
	}
	m.dm.up->lost(m.dm.owner, -ECONNRESET, "gone");
	settle();
	CHECK(m.closed);
	end(); /* returns only if nothing is left */
}

TEST(iscsi_session, queries_need_protocol_level_2)
{
	static const char text[] = "InitiatorName=" WHO "\0TargetName=" IQN;
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	login_text(&m, 1, text, sizeof(text));
	CHECK_EQ(status_of(&m), 0);
	for (unsigned f = 9; f < 13; f++)
		CHECK_EQ(tmf(&m, f, 1, 0), 5);
	end();
}

/* ---- sessions ---- */

TEST(iscsi_session, reinstatement_waits_for_old_tasks)
{
	struct mock old, new, third, other;
	struct seen *s;

	fixture((struct iscsi_config){ 0 });
	ready(&old, 1);
	ready(&third, 3);
	fake_dom_hold(dom, true);
	fake_dom_stubborn(dom, true);
	READ10(&old, 0, 8);
	login_text(&new, 1, LOGIN_TEXT, sizeof(LOGIN_TEXT) - 1);
	settle();
	CHECK(old.closed);
	/* The end of another one is not what it waits for. */
	iscsi__session_end(third.dm.owner->session, "the test says so");
	settle();
	CHECK(third.closed);
	CHECK_EQ(iscsi->sessions_count, 1);
	CHECK_EQ(iscsi_object_sessions(iscsi, &oid), 0); /* nobody uses it */
	login(&other, 4); /* nor does another one wait */
	CHECK(next(&new) == NULL);
	fake_dom_stubborn(dom, false);
	fake_dom_hold(dom, false);
	CHECK_EQ(status_of(&new), 0);
	TUR(&new);
	s = next(&new);
	CHECK(s != NULL && s->bhs[3] == SCSI_CHECK_CONDITION);
	CHECK_EQ(get_be16(s->data + 2 + 12), 0x2907);
	CHECK_EQ(answer(&new, TUR(&new)), 0);
	/* another ISID is another session */
	login(&third, 2);
	CHECK(!new.closing);
	end();
}

/* Found with Linux and a disk that hung: the log blamed who waited. */
TEST(iscsi_session, reinstatement_says_what_it_waits_for)
{
	FILE *said = tmpfile();
	int saved = dup(STDERR_FILENO);
	struct mock old, new;
	char line[256];
	unsigned n = 0;

	CHECK(said != NULL && saved >= 0);
	CHECK(dup2(fileno(said), STDERR_FILENO) >= 0);
	fixture((struct iscsi_config){ .login_ms = 50 });
	ready(&old, 1);
	fake_dom_hold(dom, true);
	fake_dom_stubborn(dom, true);
	READ10(&old, 0, 8);
	login_text(&new, 1, LOGIN_TEXT, sizeof(LOGIN_TEXT) - 1);
	while (!new.closed) /* the login timer */
		settle();
	fake_dom_stubborn(dom, false);
	fake_dom_hold(dom, false);
	end();
	CHECK(dup2(saved, STDERR_FILENO) >= 0);
	close(saved);
	rewind(said);
	while (fgets(line, sizeof(line), said) != NULL)
		n += strstr(line, "session waits for storage") != NULL;
	fclose(said);
	CHECK_EQ(n, 1);
}

/* Handles are used in turn: never that of a session that is there, nor zero. */
TEST(iscsi_session, handles_are_unlike)
{
	struct mock m[3];

	fixture((struct iscsi_config){ 0 });
	iscsi->tsih_last = 0xfffe;
	login(&m[0], 1);
	CHECK_EQ(m[0].dm.owner->session->tsih, 0xffff);
	login(&m[1], 2);
	CHECK_EQ(m[1].dm.owner->session->tsih, 1);
	iscsi->tsih_last = 0xfffe;
	login(&m[2], 3);
	CHECK_EQ(m[2].dm.owner->session->tsih, 2);
	end();
}

/* Log in for session @tsih of ISID 1, as connection @cid; the status. */
static unsigned login_again(struct mock *m, uint16_t tsih, uint16_t cid)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x43, 0x87, [8] = 0x80, [13] = 1 };
	struct dm_pdu pdu = pdu_of(bhs, LOGIN_TEXT, sizeof(LOGIN_TEXT) - 1);

	mock_open(m);
	put_be16(bhs + 14, tsih);
	put_be32(bhs + 16, 1);
	put_be16(bhs + 20, cid);
	put_be32(bhs + 24, m->cmdsn);
	m->dm.up->control(m->dm.owner, &pdu);
	return status_of(m);
}

/* Going on with a session is for its own connection (6.3.1). */
/* The same name and ISID at another portal group is another nexus (4.4.1). */
TEST(iscsi_session, portal_groups_have_sessions_of_their_own)
{
	struct sockaddr_in any4 = { .sin_family = AF_INET };
	struct mock first, other, again;

	fixture((struct iscsi_config){ 0 });
	CHECK_EQ(iscsi_portal_declare(iscsi, 2, (struct sockaddr *)&any4, 2),
		 0);
	settle();
	ready(&first, 1);
	by_portal = 2;
	ready(&other, 1);
	CHECK(!first.closing);
	/* Nor does it wait for one that comes again there. */
	fake_dom_hold(dom, true);
	fake_dom_stubborn(dom, true);
	READ10(&first, 0, 8);
	by_portal = 1;
	login_text(&again, 1, LOGIN_TEXT, sizeof(LOGIN_TEXT) - 1);
	CHECK(next(&again) == NULL);
	CHECK(first.closed);
	by_portal = 2;
	login(&first, 1);
	CHECK(other.closed);
	by_portal = 1;
	fake_dom_stubborn(dom, false);
	fake_dom_hold(dom, false);
	CHECK_EQ(status_of(&again), 0);
	CHECK_EQ(iscsi->sessions_count, 2);
	end();
}

TEST(iscsi_session, reinstatement_by_its_handle)
{
	struct mock old, new;
	uint16_t tsih;

	fixture((struct iscsi_config){ 0 });
	ready(&old, 1);
	tsih = TAILQ_FIRST(&iscsi->sessions)->tsih;
	CHECK_EQ(login_again(&new, tsih + 1, 0), 0x020a);
	CHECK_EQ(login_again(&new, tsih, 1), 0x0206); /* one connection */
	CHECK(!old.closing);
	CHECK_EQ(answer(&old, TUR(&old)), 0);
	CHECK_EQ(login_again(&new, tsih, 0), 0);
	CHECK(old.closed);
	CHECK_EQ(TAILQ_FIRST(&iscsi->sessions)->tsih, tsih);
	end();
}

TEST(iscsi_session, logout_lets_tasks_finish)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x46, 0x80 };
	struct mock m;
	struct seen *s;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	itt = command(&m, 0xa0, 16384, 0x2a, 0, 32, NULL, 0);
	put_be32(bhs + 16, 7);
	put_pdu(&m, bhs, NULL, 0);
	TUR(&m); /* nothing new is begun */
	CHECK(next(&m) == NULL);
	serve_get(&m, 1);
	CHECK_EQ(answer(&m, itt), 0);
	s = next(&m);
	CHECK_EQ(s->bhs[0], ISCSI_OP_LOGOUT_RSP);
	CHECK_EQ(s->bhs[2], 0);
	CHECK_EQ(get_be16(s->bhs + 40), 2); /* Time2Wait, as agreed upon */
	CHECK_EQ(get_be16(s->bhs + 42), 0); /* nothing is retained */
	settle();
	CHECK(m.closed);
	end();
}

static void on_later(struct env_timer *timer)
{
	timer->cb = NULL;
}

/* A full socket delays the answer: what was left until the next ping is no limit. */
TEST(iscsi_session, logout_answer_has_its_time)
{
	struct env_timer later = { .cb = on_later };
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x46, 0x80 };
	struct mock m;

	fixture((struct iscsi_config){ .ping_ms = 60, .login_ms = 1000000 });
	ready(&m, 1);
	m.deaf = true;
	put_be32(bhs + 16, 7);
	put_pdu(&m, bhs, NULL, 0);
	env_timer_start(ts.env, &later, 200 * MSEC);
	while (later.cb != NULL)
		settle();
	CHECK(!m.closing);
	/* It has no more than that. */
	m.dm.owner->timer.cb(&m.dm.owner->timer);
	settle();
	CHECK(m.closed);
	end();
}

/* Linux sends no data behind a logout: it is answered all the same. */
TEST(iscsi_session, logout_does_not_wait_long_for_data)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x46, 0x80 };
	struct iscsi_session *session;
	struct mock m;
	struct seen *s;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	session = m.dm.owner->session;
	command(&m, 0xa0, 16384, 0x2a, 0, 32, NULL, 0);
	put_be32(bhs + 16, 7);
	put_pdu(&m, bhs, NULL, 0);
	session->logout_due_ns += SEC; /* there is time yet */
	gap_lasts(&m, 0);
	CHECK(next(&m) == NULL);
	session->logout_due_ns = env_now(ts.env);
	gap_lasts(&m, 0);
	s = next(&m);
	CHECK(s != NULL);
	CHECK_EQ(s->bhs[0], ISCSI_OP_LOGOUT_RSP);
	CHECK_EQ(s->bhs[2], 0);
	settle();
	CHECK(m.closed);
	end();
}

/* Nor what waits behind a barrier without data: that is done, and then answered. */
TEST(iscsi_session, logout_ends_a_barrier_without_data)
{
	static const uint8_t flags[] = { 0xa0,
					 0x20 }; /* asked for, and unasked */
	uint8_t bhs[ISCSI_BHS_LEN];
	struct iscsi_session *session;
	struct dm_data *get;
	struct mock m;
	struct seen *s;
	uint32_t behind;

	for (unsigned i = 0; i < ARRAY_LEN(flags); i++) {
		fixture((struct iscsi_config){ 0 });
		ready(&m, 1);
		session = m.dm.owner->session;
		command(&m, flags[i] | SCSI_ORDERED, 8192, 0x2a, 0, 16, NULL,
			0);
		behind = command(&m, 0xa0, 4096, 0x2a, 0, 8, NULL, 0);
		memset(bhs, 0, sizeof(bhs));
		bhs[0] = 0x46;
		bhs[1] = 0x80;
		put_be32(bhs + 16, 7);
		put_pdu(&m, bhs, NULL, 0);
		CHECK(next(&m) == NULL);
		while ((get = TAILQ_FIRST(&m.gets))->itt != behind) {
			TAILQ_REMOVE(&m.gets, get, link);
			TAILQ_INSERT_TAIL(&m.gets, get, link);
		}
		serve_get(&m, 1);
		CHECK(next(&m) == NULL);
		session->logout_due_ns = env_now(ts.env);
		gap_lasts(&m, 0);
		CHECK_EQ(answer(&m, behind), 0);
		s = next(&m);
		CHECK(s != NULL && s->bhs[0] == ISCSI_OP_LOGOUT_RSP);
		settle();
		CHECK(m.closed);
		end();
	}
}

/* What was held back behind it came too late. */
TEST(iscsi_session, a_logout_behind_a_gap)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_LOGOUT, 0x80 };
	struct mock m;
	uint32_t first;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	m.cmdsn++;
	put_pdu(&m, bhs, NULL, 0);
	TUR(&m);
	m.cmdsn -= 3;
	first = TUR(&m);
	CHECK_EQ(answer(&m, first), 0);
	CHECK_EQ(next(&m)->bhs[0], ISCSI_OP_LOGOUT_RSP);
	CHECK(next(&m) == NULL);
	CHECK(m.closed);
	end();
}

/* Another connection's, for recovery, or for no known reason. */
TEST(iscsi_session, foreign_logout_is_refused)
{
	struct mock m;
	struct seen *s;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	for (unsigned reason = 1; reason <= 3; reason++) {
		uint8_t bhs[ISCSI_BHS_LEN] = { 0x46, (uint8_t)(0x80 | reason) };

		put_be16(bhs + 20, 9);
		put_pdu(&m, bhs, NULL, 0);
		s = next(&m);
		CHECK_EQ(s->bhs[0], ISCSI_OP_LOGOUT_RSP);
		CHECK_EQ(s->bhs[2], reason);
	}
	CHECK_EQ(answer(&m, TUR(&m)), 0);
	end();
}

/* An initiator that fetches no answers cannot have us keep more and more. */
TEST(iscsi_session, answers_that_wait_are_bounded)
{
	static const uint8_t ops[][2] = {
		{ 0x40, 0x80 }, /* NOP-Out */
		{ 0x44, 0x40 }, /* Text Request: more is to come */
		{ 0x46, 0x82 }, /* Logout for recovery */
		{ 0x42, 0x89 }, /* QUERY TASK */
	};

	for (unsigned i = 0; i < ARRAY_LEN(ops); i++) {
		struct mock m;

		fixture((struct iscsi_config){ 0 });
		ready(&m, 1);
		m.deaf = true;
		for (unsigned n = 0; n < 1000 && !m.closing; n++) {
			uint8_t bhs[ISCSI_BHS_LEN] = { ops[i][0], ops[i][1] };

			put_be32(bhs + 16, 1);
			put_be32(bhs + 20, ISCSI_NO_TAG);
			put_pdu(&m, bhs, NULL, 0);
			CHECK(m.dm.owner->replies_count <=
			      ISCSI_IMMEDIATE_MAX + ISCSI_REJECTS_MAX);
		}
		CHECK(m.closing);
		end();
	}
}

TEST(iscsi_session, ping_and_silence)
{
	uint8_t echo[ISCSI_BHS_LEN] = { 0x40, 0x80 };
	struct mock m;
	struct seen *s;
	uint32_t statsn;
	uint64_t start;

	fixture((struct iscsi_config){ .ping_ms = 60 });
	ready(&m, 1);
	put_be32(echo + 16, 5);
	put_pdu(&m, echo, "hello", 5);
	s = next(&m);
	CHECK_EQ(s->bhs[0], ISCSI_OP_NOP_IN);
	CHECK_EQ(s->len, 5);
	CHECK_EQ(memcmp(s->data, "hello", 5), 0);
	/* nothing is said: asked once, then given up */
	start = env_now(ts.env);
	while ((s = next(&m)) == NULL && env_now(ts.env) - start < 60 * SEC)
		;
	CHECK(s != NULL && s->bhs[0] == ISCSI_OP_NOP_IN);
	CHECK(get_be32(s->bhs + 20) != ISCSI_NO_TAG);
	CHECK_EQ(get_be32(s->bhs + 16), ISCSI_NO_TAG);
	/* It has the next StatSN, which stays the next one. */
	statsn = get_be32(s->bhs + 24);
	put_be32(echo + 16, 6);
	put_pdu(&m, echo, "hello", 5);
	s = next(&m);
	CHECK_EQ(get_be32(s->bhs + 16), 6);
	CHECK_EQ(get_be32(s->bhs + 24), statsn);
	while (!m.closed && env_now(ts.env) - start < 60 * SEC)
		settle();
	CHECK(m.closed);
	end();
}

/* Its data comes in over a slow link: it was heard of since it was asked. */
TEST(iscsi_session, data_answers_a_ping)
{
	struct mock m;
	struct seen *s;
	uint64_t start;
	uint32_t itt;

	fixture((struct iscsi_config){ .ping_ms = 60 });
	ready(&m, 1);
	itt = command(&m, 0xa0, 65536, 0x2a, 0, 128, NULL, 0);
	for (unsigned i = 0; i < 3; i++) {
		start = env_now(ts.env);
		while ((s = next(&m)) == NULL && !m.closing &&
		       env_now(ts.env) - start < 60 * SEC)
			;
		CHECK(s != NULL && s->bhs[0] == ISCSI_OP_NOP_IN);
		CHECK(!m.closing);
		serve_get(&m, 1);
	}
	serve_get(&m, 1);
	CHECK_EQ(answer(&m, itt), 0);
	end();
}

/* So does a part of a burst that is not there yet: then it is asked again. */
TEST(iscsi_session, a_part_answers_a_ping)
{
	struct mock m;
	struct seen *s;
	uint64_t start;

	fixture((struct iscsi_config){ .ping_ms = 60 });
	ready(&m, 1);
	for (unsigned i = 0; i < 3; i++) {
		start = env_now(ts.env);
		while ((s = next(&m)) == NULL && !m.closing &&
		       env_now(ts.env) - start < 60 * SEC)
			;
		CHECK(s != NULL && s->bhs[0] == ISCSI_OP_NOP_IN);
		m.dm.part_ns = env_now(ts.env);
	}
	start = env_now(ts.env);
	while (!m.closed && env_now(ts.env) - start < 60 * SEC)
		settle();
	CHECK(m.closed);
	end();
}

TEST(iscsi_session, drain_asks_for_a_logout)
{
	bool closed = false;
	struct mock m, late;
	struct seen *s;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	iscsi_close(iscsi, 200, on_done, &closed);
	s = next(&m);
	CHECK(s != NULL);
	CHECK_EQ(s->bhs[0], ISCSI_OP_ASYNC);
	CHECK_EQ(s->bhs[36], 1);
	CHECK_EQ(get_be16(s->bhs + 42), 1); /* so many seconds */
	CHECK_EQ(answer(&m, TUR(&m)), 0); /* what it still does is done */
	mock_open(&late);
	CHECK(late.dm.owner == NULL);
	test_run(&ts, &closed);
	CHECK(m.closed);
	iscsi = NULL;
	end();
}

TEST(iscsi_session, access_that_is_taken_away)
{
	static const char *const other[] = { "iqn.2026-11.example:other" };
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	set_target(any);
	settle();
	CHECK(!m.closing);
	set_target(other);
	settle();
	CHECK(m.closed);
	login_text(&m, 1, LOGIN_TEXT, sizeof(LOGIN_TEXT) - 1);
	CHECK_EQ(status_of(&m), 0x0202);
	set_target(any);
	ready(&m, 1);
	iscsi_target_unset(iscsi, IQN);
	settle();
	CHECK(m.closed);
	end();
}

static void login_step(struct mock *m, uint8_t stages, const char *text,
		       size_t len)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x43, stages };
	struct dm_pdu pdu = pdu_of(bhs, text, (uint32_t)len);

	bhs[8] = 0x80;
	put_be32(bhs + 16, 1);
	put_be32(bhs + 24, m->cmdsn);
	m->dm.up->control(m->dm.owner, &pdu);
}

static void secret_is(const char *secret)
{
	struct iscsi_target_conf conf = {
		.iqn = IQN,
		.allow = any,
		.allow_count = 1,
		.chap_user = "me",
		.chap_secret = (const uint8_t *)secret,
		.chap_secret_len = (unsigned)strlen(secret),
	};

	CHECK_EQ(iscsi_target_set(iscsi, &conf), 0);
}

/* A login that proved the old secret, and is not at its end yet. */
static void login_over_another_secret(bool made_anew)
{
	static const char first[] =
		"InitiatorName=" WHO "\0TargetName=" IQN "\0AuthMethod=CHAP\0";
	static const char old[] = "0123456789abcdef";
	uint8_t response[CHAP_RESPONSE_MAX];
	char buf[256];
	struct text_out out;
	struct mock m;
	int len;

	fixture((struct iscsi_config){ 0 });
	secret_is(old);
	mock_open(&m);
	login_step(&m, 0x81, first, sizeof(first) - 1);
	CHECK_EQ(status_of(&m), 0);
	login_step(&m, 0x81, "CHAP_A=7\0", 9);
	CHECK_EQ(status_of(&m), 0);
	len = iscsi__chap_response(7, m.dm.owner->login->chap.id,
				   (const uint8_t *)old, sizeof(old) - 1,
				   m.dm.owner->login->chap.challenge,
				   m.dm.owner->login->chap.challenge_len,
				   response);
	CHECK(len > 0);
	iscsi__text_out_init(&out, buf, sizeof(buf));
	iscsi__text_put(&out, "CHAP_N", "me");
	iscsi__text_put_hex(&out, "CHAP_R", response, (size_t)len);
	login_step(&m, 0x81, buf, out.len);
	CHECK_EQ(status_of(&m), 0);
	CHECK(m.dm.owner->login->auth_done);
	if (made_anew)
		iscsi_target_unset(iscsi, IQN);
	secret_is("fedcba9876543210");
	if (!m.closing)
		login_step(&m, 0x87, NULL, 0);
	settle();
	CHECK(m.closed);
	end();
}

TEST(iscsi_session, a_secret_that_changes_ends_logins)
{
	login_over_another_secret(false);
	login_over_another_secret(true);
}

/* What was looked at in a login's first step is looked at in its last, too. */
TEST(iscsi_session, access_that_changes_while_a_login_goes_on)
{
	static const char *const other[] = { "iqn.2026-11.example:other" };
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	for (unsigned i = 0; i < 3; i++) {
		set_target(any);
		mock_open(&m);
		login_step(&m, 0x04, LOGIN_TEXT, sizeof(LOGIN_TEXT) - 1);
		CHECK_EQ(status_of(&m), 0);
		if (i == 0)
			set_target(other);
		else if (i == 1)
			secret_is("0123456789abcdef");
		else
			iscsi_target_unset(iscsi, IQN);
		login_step(&m, 0x87, NULL, 0);
		CHECK_EQ(status_of(&m), i == 0	 ? 0x0202
					: i == 1 ? 0x0201
						 : 0x0203);
		settle();
		CHECK(m.closed);
	}
	end();
}

TEST(iscsi_session, limits)
{
	struct mock a, b, c;

	fixture((struct iscsi_config){ .sessions_max = 1,
				       .connections_max = 2 });
	ready(&a, 1);
	login_text(&b, 2, LOGIN_TEXT, sizeof(LOGIN_TEXT) - 1);
	mock_open(&c);
	CHECK(c.dm.owner == NULL);
	CHECK_EQ(status_of(&b), 0x0302);
	CHECK_EQ(answer(&a, TUR(&a)), 0);
	end();
	fixture((struct iscsi_config){ .logins_per_source = 2,
				       .login_ms = 50 });
	mock_open(&a);
	mock_open(&b);
	mock_open(&c);
	CHECK(c.dm.owner == NULL);
	while (!a.closed || !b.closed) /* the login timer */
		settle();
	end();
}

/* One initiator, by its name or its address, leaves places to the others. */
TEST(iscsi_session, many_of_one_initiator)
{
	static const char other[] =
		"InitiatorName=" WHO "2\0TargetName=" IQN "\0";
	static struct mock own[ISCSI_INITIATOR_SESSIONS], m[72], more;
	unsigned n;

	fixture((struct iscsi_config){ .sessions_max = 200 });
	for (n = 0; n < ARRAY_LEN(own); n++)
		login(&own[n], (uint8_t)n);
	login_text(&more, (uint8_t)n, LOGIN_TEXT, sizeof(LOGIN_TEXT) - 1);
	CHECK_EQ(status_of(&more), 0x0302);
	login_text(&more, 1, other, sizeof(other) - 1); /* its address */
	CHECK_EQ(status_of(&more), 0x0302);
	/* A session that takes the place of its own needs none. */
	login(&more, 1);
	CHECK(own[1].closed);
	from = 7;
	login_text(&own[1], (uint8_t)n, LOGIN_TEXT, sizeof(LOGIN_TEXT) - 1);
	CHECK_EQ(status_of(&own[1]), 0x0302);
	for (n = 0; n < ARRAY_LEN(m); n++) {
		login_text(&m[n], (uint8_t)n, other, sizeof(other) - 1);
		CHECK_EQ(status_of(&m[n]), 0);
	}
	login_text(&own[1], (uint8_t)n, other, sizeof(other) - 1);
	CHECK_EQ(status_of(&own[1]), 0x0302);
	from = 0;
	end();
}

/* On a full disk one command is let in at a time, but one always is. */
TEST(iscsi_session, no_answer_closes_the_window)
{
	uint8_t nop[ISCSI_BHS_LEN] = { 0x40, 0x80 };
	struct mock m;
	struct seen *s;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	fake_dom_congestion(dom, &oid, 255);
	for (unsigned i = 0; i < 160; i++)
		CHECK_EQ(answer(&m, TUR(&m)), 0);
	itt = command(&m, 0xa0, 65536, 0x2a, 0, 128, NULL, 0);
	CHECK(!TAILQ_EMPTY(&m.gets));
	CHECK_EQ(tmf(&m, 1, itt, 0), 0);
	put_be32(nop + 16, ++tag);
	put_be32(nop + 20, ISCSI_NO_TAG);
	put_pdu(&m, nop, NULL, 0);
	s = next(&m);
	CHECK(s != NULL);
	CHECK_EQ(s->bhs[0], ISCSI_OP_NOP_IN);
	CHECK_EQ(get_be32(s->bhs + 32), get_be32(s->bhs + 28));
	end();
}

/* Discovery needs no secret: it does not keep out who has one. */
TEST(iscsi_session, discovery_gives_way)
{
	static const char text[] =
		"InitiatorName=" WHO "\0SessionType=Discovery\0";
	struct mock a, b, c, d, e, f, g;

	fixture((struct iscsi_config){ .sessions_max = 2 });
	login_text(&a, 1, text, sizeof(text) - 1);
	CHECK_EQ(status_of(&a), 0);
	login_text(&b, 2, text, sizeof(text) - 1);
	CHECK_EQ(status_of(&b), 0);
	login_text(&c, 3, text, sizeof(text) - 1);
	CHECK_EQ(status_of(&c), 0); /* nor who wants to discover, too */
	CHECK(a.closed && !b.closed);
	ready(&d, 4);
	CHECK(b.closed && !c.closed);
	ready(&e, 5);
	CHECK(c.closed);
	login_text(&f, 6, LOGIN_TEXT, sizeof(LOGIN_TEXT) - 1);
	CHECK_EQ(status_of(&f), 0x0302);
	login_text(&g, 7, text, sizeof(text) - 1);
	CHECK_EQ(status_of(&g), 0x0302);
	CHECK_EQ(answer(&d, TUR(&d)), 0);
	end();
}

/* Discovery is for text: there are no commands, nor data of them. */
TEST(iscsi_session, discovery_takes_no_commands)
{
	static const char text[] =
		"InitiatorName=" WHO "\0SessionType=Discovery\0";
	static const uint8_t data[512];
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	login_text(&m, 1, text, sizeof(text) - 1);
	CHECK_EQ(status_of(&m), 0);
	command(&m, 0xa0, 512, 0x2a, 0, 1, data, 512);
	CHECK_EQ(next(&m)->bhs[2], REJECT_PROTOCOL);
	CHECK_EQ(reject_of(&m, ISCSI_OP_TMF), REJECT_PROTOCOL);
	CHECK_EQ(reject_of(&m, ISCSI_IMMEDIATE | ISCSI_OP_DATA_OUT),
		 REJECT_PROTOCOL);
	CHECK(!m.closing);
	end();
}

TEST(iscsi_session, discovery_has_a_small_window)
{
	static const char text[] =
		"InitiatorName=" WHO "\0SessionType=Discovery\0";
	struct mock m;
	struct seen *s;

	fixture((struct iscsi_config){ 0 });
	login_text(&m, 1, text, sizeof(text) - 1);
	s = next(&m);
	CHECK(s != NULL);
	CHECK_EQ(get_be32(s->bhs + 32) - get_be32(s->bhs + 28) + 1,
		 ISCSI_DISCOVERY_WINDOW);
	CHECK_EQ(m.keys.window, ISCSI_DISCOVERY_WINDOW);
	end();
}
