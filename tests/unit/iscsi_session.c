/*
 * Sessions from above and below: a datamover made of memory feeds PDUs and looks
 * at what comes back, over the RAM twin of dom.
 */
#include "base/shard.h"
#include "iscsi/iscsi_int.h"
#include "tests/lib/fake_dom.h"
#include "tests/lib/test.h"

#include <netinet/in.h>

#define IQN "iqn.2026-11.internal.basalt:t"
#define WHO "iqn.2026-11.example:me"

/* ---- the datamover ---- */

struct seen {
	uint8_t bhs[ISCSI_BHS_LEN];
	uint8_t data[512];
	size_t len;
};

struct mock {
	struct dm_conn dm;
	struct env_task turn;
	TAILQ_HEAD(, dm_send) sends;
	TAILQ_HEAD(, dm_data) puts, gets;
	struct seen seen[64];
	unsigned count, taken;
	bool deaf; /* the peer fetches nothing */
	unsigned late; /* turns that closing and cancelling take longer */
	bool closing, closed;
	uint32_t cmdsn;
	uint8_t read_first; /* first byte of the last put_data */
	size_t read_len;
};

static struct mock *mock_of(struct dm_conn *dm)
{
	return container_of(dm, struct mock, dm);
}

static void record(struct mock *m, struct dm_send *send)
{
	struct seen *s = &m->seen[m->count % ARRAY_LEN(m->seen)];

	CHECK(m->count - m->taken < ARRAY_LEN(m->seen));
	m->count++;
	memcpy(s->bhs, send->bhs, ISCSI_BHS_LEN);
	m->dm.up->stamp(m->dm.owner, s->bhs);
	s->len = send->data_len;
	memcpy(s->data, send->data ? send->data : "",
	       send->data ? MIN(s->len, sizeof(s->data)) : 0);
}

static void mock_turn(struct env_task *task)
{
	struct mock *m = container_of(task, struct mock, turn);
	bool was_closing = m->closing;
	struct dm_send *send;
	struct dm_data *data;

	if (m->deaf && !m->closing)
		return;
	if (m->closing && m->late > 0) {
		m->late--;
		env_defer(m->dm.env, &m->turn);
		return;
	}
	while ((data = TAILQ_FIRST(&m->puts)) != NULL) {
		struct dm_send *rsp = data->response;

		TAILQ_REMOVE(&m->puts, data, link);
		m->read_len = data->len;
		sgl_read(data->sgl, data->sgl_offset, &m->read_first, 1);
		record(m, rsp);
		data->cb(data, m->closing ? -ECANCELED : 0);
		rsp->cb(rsp, m->closing ? -ECANCELED : 0);
	}
	while ((send = TAILQ_FIRST(&m->sends)) != NULL) {
		TAILQ_REMOVE(&m->sends, send, link);
		if (!m->closing)
			record(m, send);
		send->cb(send, m->closing ? -ECANCELED : 0);
	}
	if (!was_closing) /* if it is now, this runs once more */
		return;
	while ((data = TAILQ_FIRST(&m->gets)) != NULL) {
		TAILQ_REMOVE(&m->gets, data, link);
		data->cb(data, -ECANCELED);
	}
	m->closed = true;
	m->dm.up->closed(m->dm.owner);
}

static void mock_send(struct dm_conn *dm, struct dm_send *send)
{
	struct mock *m = mock_of(dm);

	TAILQ_INSERT_TAIL(&m->sends, send, link);
	env_defer(dm->env, &m->turn);
}

static void mock_put(struct dm_conn *dm, struct dm_data *data)
{
	struct mock *m = mock_of(dm);

	TAILQ_INSERT_TAIL(&m->puts, data, link);
	env_defer(dm->env, &m->turn);
}

static void mock_get(struct dm_conn *dm, struct dm_data *data)
{
	TAILQ_INSERT_TAIL(&mock_of(dm)->gets, data, link);
}

static int mock_keys(struct dm_conn *dm, const struct dm_keys *keys)
{
	return 0;
}

struct cancel {
	struct env_task task;
	struct dm_data *data;
};

static void cancel_turn(struct env_task *task)
{
	struct cancel *c = container_of(task, struct cancel, task);

	c->data->cb(c->data, -ECANCELED);
	free(c);
}

static void mock_task_done(struct dm_conn *dm, uint32_t itt)
{
	struct dm_data *data, *next;

	if (mock_of(dm)->late > 0)
		return; /* when it closes */
	for (data = TAILQ_FIRST(&mock_of(dm)->gets); data; data = next) {
		struct cancel *c;

		next = TAILQ_NEXT(data, link);
		if (data->itt != itt)
			continue;
		TAILQ_REMOVE(&mock_of(dm)->gets, data, link);
		c = calloc(1, sizeof(*c));
		c->task.cb = cancel_turn;
		c->data = data;
		env_defer(dm->env, &c->task);
	}
}

static void mock_terminate(struct dm_conn *dm)
{
	struct mock *m = mock_of(dm);

	CHECK(!m->closing);
	m->closing = true;
	env_defer(dm->env, &m->turn);
}

static void mock_pause(struct dm_conn *dm, bool paused)
{
}

static const struct dm_ops mock_ops = {
	.name = "mock",
	.send_control = mock_send,
	.put_data = mock_put,
	.get_data = mock_get,
	.notice_keys = mock_keys,
	.enable = mock_send,
	.task_done = mock_task_done,
	.terminate = mock_terminate,
	.pause = mock_pause,
};

/* ---- the fixture ---- */

static struct test_shard ts;
static struct dom *dom;
static struct iscsi *iscsi;
static struct uuid oid = { .b = { 1, 2, 3 } };
static const char *const any[] = { "any" };

static void set_target(const char *const *allow)
{
	CHECK_EQ(iscsi_target_set(iscsi,
				  &(struct iscsi_target_conf){ .iqn = IQN,
							       .allow = allow,
							       .allow_count =
								       1 }),
		 0);
}

static void turn_over(struct env_task *task)
{
	*(bool *)(task + 1) = true;
}

/* Let everything that is deferred happen. */
static void settle(void)
{
	for (unsigned i = 0; i < 12; i++) {
		struct {
			struct env_task task;
			bool done;
		} t = { .task = { .cb = turn_over } };

		env_defer(ts.env, &t.task);
		test_run(&ts, &t.done);
	}
}

static void fixture(struct iscsi_config config)
{
	struct sockaddr_in any4 = { .sin_family = AF_INET };

	test_shard_open(&ts);
	CHECK_EQ(fake_dom_open(ts.env, &dom), 0);
	CHECK_EQ(fake_dom_add(dom, &oid, 64u << 20), 0);
	config.env = ts.env;
	config.dom = dom;
	CHECK_EQ(iscsi_open(&config, &iscsi), 0);
	CHECK_EQ(iscsi_portal_declare(iscsi, 1, (struct sockaddr *)&any4, 1),
		 0);
	set_target(any);
	CHECK_EQ(iscsi_lun_set(iscsi,
			       &(struct iscsi_lun_conf){ .iqn = IQN,
							 .object = oid,
							 .name = "disk",
							 .block_bytes = 512 }),
		 0);
	settle();
}

static void on_done(void *arg)
{
	*(bool *)arg = true;
}

static void end(void)
{
	bool done = false;

	if (iscsi != NULL) {
		iscsi_close(iscsi, 0, on_done, &done);
		test_run(&ts, &done);
	}
	iscsi = NULL;
	done = false;
	dom_close(dom, on_done, &done);
	test_run(&ts, &done);
	test_shard_close(&ts);
}

static void mock_open(struct mock *m)
{
	memset(m, 0, sizeof(*m));
	TAILQ_INIT(&m->sends);
	TAILQ_INIT(&m->puts);
	TAILQ_INIT(&m->gets);
	m->turn.cb = mock_turn;
	m->dm.ops = &mock_ops;
	m->dm.up = &iscsi_dm_up;
	m->dm.env = ts.env;
	m->dm.peer.ss_family = m->dm.local.ss_family = AF_INET;
	m->dm.owner = iscsi_conn_accept(iscsi, &m->dm, 1);
	m->cmdsn = 0xfffffffe; /* over the wrap, every time */
}

static struct dm_pdu pdu_of(const uint8_t *bhs, const void *data, uint32_t len)
{
	return (struct dm_pdu){
		.bhs = bhs, .ahs = bhs, .data = data, .data_len = len
	};
}

#define LOGIN_TEXT                                                             \
	"InitiatorName=" WHO "\0TargetName=" IQN "\0MaxOutstandingR2T=2\0"     \
	"InitialR2T=No\0ImmediateData=Yes\0FirstBurstLength=8192\0"            \
	"MaxBurstLength=16384\0iSCSIProtocolLevel=2\0"                         \
	"MaxRecvDataSegmentLength=65536\0"

static void login_text(struct mock *m, uint8_t isid, const char *text,
		       size_t len)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x43, 0x87 };
	struct dm_pdu pdu = pdu_of(bhs, text, (uint32_t)len);

	mock_open(m);
	CHECK(m->dm.owner != NULL);
	bhs[8] = 0x80;
	bhs[13] = isid;
	put_be32(bhs + 16, 1);
	put_be32(bhs + 24, m->cmdsn);
	m->dm.up->control(m->dm.owner, &pdu);
}

/* The next PDU that the target sent, or NULL. */
static struct seen *next(struct mock *m)
{
	settle();
	if (m->taken == m->count)
		return NULL;
	return &m->seen[m->taken++ % ARRAY_LEN(m->seen)];
}

static unsigned status_of(struct mock *m)
{
	struct seen *s = next(m);

	CHECK(s != NULL && s->bhs[0] == ISCSI_OP_LOGIN_RSP);
	return get_be16(s->bhs + 36);
}

static void login(struct mock *m, uint8_t isid)
{
	login_text(m, isid, LOGIN_TEXT, sizeof(LOGIN_TEXT) - 1);
	CHECK_EQ(status_of(m), 0);
}

static uint32_t tag = 100;

/* Send a PDU; @op with the immediate bit takes no number. */
static void put_pdu(struct mock *m, uint8_t *bhs, const void *data,
		    uint32_t len)
{
	struct dm_pdu pdu = pdu_of(bhs, data, len);
	size_t offset = 0;

	put_be32(bhs + 24, m->cmdsn);
	if (!(bhs[0] & ISCSI_IMMEDIATE))
		m->cmdsn++;
	if ((bhs[0] & ISCSI_OP_MASK) == ISCSI_OP_COMMAND && len > 0) {
		struct sgl *sgl = m->dm.up->land(m->dm.owner, &pdu, &offset);

		pdu.data = NULL;
		pdu.sgl = sgl;
		if (sgl != NULL)
			sgl_write(sgl, offset, data, len);
	}
	m->dm.up->control(m->dm.owner, &pdu);
}

static uint32_t command(struct mock *m, uint8_t flags, uint32_t edtl,
			uint8_t opcode, uint32_t lba, uint16_t blocks,
			const void *data, uint32_t len)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_COMMAND, flags };

	put_be32(bhs + 16, ++tag);
	put_be32(bhs + 20, edtl);
	bhs[32] = opcode;
	put_be32(bhs + 34, lba);
	put_be16(bhs + 39, blocks);
	put_pdu(m, bhs, data, len);
	return tag;
}

#define READ10(m, lba, n) command(m, 0xc0, (n)*512, 0x28, lba, n, NULL, 0)
#define TUR(m) command(m, 0x80, 0, 0x00, 0, 0, NULL, 0)

/* The SCSI status of the command @itt that must be answered next. */
static unsigned answer(struct mock *m, uint32_t itt)
{
	struct seen *s = next(m);

	CHECK(s != NULL);
	CHECK_EQ(s->bhs[0], ISCSI_OP_RESPONSE);
	CHECK_EQ(get_be32(s->bhs + 16), itt);
	return s->bhs[3];
}

/* Log in and fetch the power-on attention. */
static void ready(struct mock *m, uint8_t isid)
{
	login(m, isid);
	CHECK_EQ(answer(m, TUR(m)), 2);
	CHECK_EQ(answer(m, TUR(m)), 0);
}

static unsigned tmf(struct mock *m, unsigned function, uint32_t ref,
		    uint32_t ref_cmdsn)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x42, (uint8_t)(0x80 | function) };
	struct seen *s;

	put_be32(bhs + 16, ++tag);
	put_be32(bhs + 20, ref);
	put_be32(bhs + 32, ref_cmdsn);
	put_pdu(m, bhs, NULL, 0);
	s = next(m);
	if (s == NULL)
		return 999;
	CHECK_EQ(s->bhs[0], ISCSI_OP_TMF_RSP);
	return s->bhs[2];
}

/* Give the oldest get_data @byte all over. */
static void serve_get(struct mock *m, uint8_t byte)
{
	struct dm_data *get = TAILQ_FIRST(&m->gets);
	uint8_t fill[16384];

	CHECK(get != NULL);
	memset(fill, byte, sizeof(fill));
	sgl_write(get->sgl, get->sgl_offset, fill, get->len);
	TAILQ_REMOVE(&m->gets, get, link);
	get->cb(get, 0);
}

/* ---- data ---- */

TEST(iscsi_session, write_with_immediate_and_solicited_data)
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

TEST(iscsi_session, unsolicited_data)
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
TEST(iscsi_session, immediate_commands_with_data_up_to_the_limit)
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

TEST(iscsi_session, refused_write_swallows_its_data_first)
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
	/* ABORT TASK of one that never came fills its place */
	m.cmdsn += 2;
	second = TUR(&m);
	CHECK(next(&m) == NULL);
	CHECK_EQ(tmf(&m, 1, 0x999, m.cmdsn - 2), 0);
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

/* ---- task management ---- */

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
	struct mock old, new, third;

	fixture((struct iscsi_config){ 0 });
	ready(&old, 1);
	fake_dom_hold(dom, true);
	READ10(&old, 0, 8);
	login_text(&new, 1, LOGIN_TEXT, sizeof(LOGIN_TEXT) - 1);
	settle();
	CHECK(old.closed);
	fake_dom_hold(dom, false);
	CHECK_EQ(status_of(&new), 0);
	CHECK_EQ(answer(&new, TUR(&new)), 2); /* 29/07 */
	CHECK_EQ(answer(&new, TUR(&new)), 0);
	/* another ISID is another session */
	login(&third, 2);
	CHECK(!new.closing);
	end();
}

TEST(iscsi_session, logout_lets_tasks_finish)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x46, 0x80 };
	struct mock m;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	itt = command(&m, 0xa0, 16384, 0x2a, 0, 32, NULL, 0);
	put_be32(bhs + 16, 7);
	put_pdu(&m, bhs, NULL, 0);
	CHECK(next(&m) == NULL);
	serve_get(&m, 1);
	CHECK_EQ(answer(&m, itt), 0);
	CHECK_EQ(next(&m)->bhs[0], ISCSI_OP_LOGOUT_RSP);
	settle();
	CHECK(m.closed);
	end();
}

TEST(iscsi_session, foreign_logout_is_refused)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x46, 0x81 };
	struct mock m;
	struct seen *s;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	put_be16(bhs + 20, 9);
	put_pdu(&m, bhs, NULL, 0);
	s = next(&m);
	CHECK_EQ(s->bhs[0], ISCSI_OP_LOGOUT_RSP);
	CHECK_EQ(s->bhs[2], 1);
	CHECK_EQ(answer(&m, TUR(&m)), 0);
	end();
}

TEST(iscsi_session, ping_and_silence)
{
	uint8_t echo[ISCSI_BHS_LEN] = { 0x40, 0x80 };
	struct mock m;
	struct seen *s;
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
	while ((s = next(&m)) == NULL && env_now(ts.env) - start < SEC)
		;
	CHECK(s != NULL && s->bhs[0] == ISCSI_OP_NOP_IN);
	CHECK(get_be32(s->bhs + 20) != ISCSI_NO_TAG);
	CHECK_EQ(get_be32(s->bhs + 16), ISCSI_NO_TAG);
	while (!m.closed && env_now(ts.env) - start < 2 * SEC)
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

/* ---- memory ---- */

TEST(iscsi_session, a_write_waits_for_memory)
{
	static struct sgl *eaten[100000];
	static uint8_t data[4096];
	unsigned n = 0;
	struct mock m;
	uint32_t itt;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	while (n < ARRAY_LEN(eaten) &&
	       sgl_new(ts.env->pages, PAGE_FRONT, 4096, 0, &eaten[n]) == 0)
		n++;
	CHECK(n < ARRAY_LEN(eaten));
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

TEST(iscsi_session, an_initiator_that_fetches_nothing)
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
