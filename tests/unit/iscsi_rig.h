/*
 * iscsi_rig: a datamover made of memory for the tests of sessions: it feeds
 * PDUs and keeps what comes back; below is the fake dom.
 */
#ifndef BASALT_TESTS_UNIT_ISCSI_RIG_H
#define BASALT_TESTS_UNIT_ISCSI_RIG_H

#include "iscsi/iscsi_int.h"
#include "tests/unit/iscsi_target.h"

#include <netinet/in.h>

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
	/* Looks at each PDU instead of next(); NULL: next() does. */
	void (*saw)(struct mock *m, const struct seen *pdu);
	bool deaf; /* the peer fetches nothing */
	unsigned late; /* turns that closing and cancelling take longer */
	bool closing, closed;
	bool detaching; /* its turn says so, once it is not @stuck */
	bool stuck;
	struct dm_keys keys; /* as last noticed */
	uint32_t cmdsn;
	uint8_t read_first; /* first byte of the last put_data */
	size_t read_len;
};

static inline struct mock *mock_of(struct dm_conn *dm)
{
	return container_of(dm, struct mock, dm);
}

static inline void record(struct mock *m, struct dm_send *send)
{
	struct seen *s = &m->seen[m->count % ARRAY_LEN(m->seen)];

	CHECK(m->count - m->taken < ARRAY_LEN(m->seen));
	m->count++;
	memcpy(s->bhs, send->bhs, ISCSI_BHS_LEN);
	m->dm.up->stamp(m->dm.owner, s->bhs);
	s->len = send->data_len;
	memcpy(s->data, send->data ? send->data : "",
	       send->data ? MIN(s->len, sizeof(s->data)) : 0);
	if (m->saw != NULL) {
		m->taken = m->count;
		m->saw(m, s);
	}
}

static inline void mock_turn(struct env_task *task)
{
	struct mock *m = container_of(task, struct mock, turn);
	bool was_closing = m->closing;
	struct dm_send *send;
	struct dm_data *data;

	if (m->detaching && !m->closing) {
		if (!m->stuck) {
			m->detaching = false;
			m->dm.up->detached(m->dm.owner);
		}
		return;
	}
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

static inline void mock_send(struct dm_conn *dm, struct dm_send *send)
{
	struct mock *m = mock_of(dm);

	TAILQ_INSERT_TAIL(&m->sends, send, link);
	env_defer(dm->env, &m->turn);
}

static inline void mock_put(struct dm_conn *dm, struct dm_data *data)
{
	struct mock *m = mock_of(dm);

	TAILQ_INSERT_TAIL(&m->puts, data, link);
	env_defer(dm->env, &m->turn);
}

static inline void mock_get(struct dm_conn *dm, struct dm_data *data)
{
	TAILQ_INSERT_TAIL(&mock_of(dm)->gets, data, link);
}

static inline int mock_keys(struct dm_conn *dm, const struct dm_keys *keys)
{
	mock_of(dm)->keys = *keys;
	return 0;
}

struct cancel {
	struct env_task task;
	struct dm_data *data;
};

static inline void cancel_turn(struct env_task *task)
{
	struct cancel *c = container_of(task, struct cancel, task);

	c->data->cb(c->data, -ECANCELED);
	free(c);
}

static inline void mock_task_done(struct dm_conn *dm, uint32_t itt)
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

static inline void mock_terminate(struct dm_conn *dm)
{
	struct mock *m = mock_of(dm);

	CHECK(!m->closing);
	m->closing = true;
	env_defer(dm->env, &m->turn);
}

static inline void mock_detach(struct dm_conn *dm)
{
	struct mock *m = mock_of(dm);

	CHECK(!m->closing && !m->detaching);
	CHECK(TAILQ_EMPTY(&m->sends) && TAILQ_EMPTY(&m->puts));
	m->detaching = true;
	env_defer(dm->env, &m->turn);
}

static inline void mock_attach(struct dm_conn *dm, struct env *to)
{
	CHECK(!mock_of(dm)->closing);
	dm->env = to;
}

static const struct dm_ops mock_ops = {
	.name = "mock",
	.send_control = mock_send,
	.put_data = mock_put,
	.get_data = mock_get,
	.notice_keys = mock_keys,
	.enable = mock_send,
	.task_done = mock_task_done,
	.detach = mock_detach,
	.attach = mock_attach,
	.terminate = mock_terminate,
};

/* ---- the fixture ---- */

static inline void turn_over(struct env_task *task)
{
	*(bool *)(task + 1) = true;
}

/* What is deferred by now happens. */
static inline void turn(void)
{
	struct {
		struct env_task task;
		bool done;
	} t = { .task = { .cb = turn_over } };

	env_defer(ts.env, &t.task);
	test_run(&ts, &t.done);
}

/* And what that defers in turn. */
static inline void settle(void)
{
	for (unsigned i = 0; i < 12; i++)
		turn();
}

static inline void fixture(struct iscsi_config config)
{
	struct sockaddr_in any4 = { .sin_family = AF_INET };

	target_open(config);
	CHECK_EQ(iscsi_portal_declare(iscsi, 1, (struct sockaddr *)&any4, 1),
		 0);
	target_fill();
	settle();
}

static inline void end(void)
{
	iscsi_end();
	dom_end();
}

static uint32_t from; /* the address that initiators come from */
static unsigned by_portal = 1; /* that they come in by */

static inline void mock_open(struct mock *m)
{
	struct sockaddr_in *peer = (struct sockaddr_in *)&m->dm.peer;

	memset(m, 0, sizeof(*m));
	TAILQ_INIT(&m->sends);
	TAILQ_INIT(&m->puts);
	TAILQ_INIT(&m->gets);
	m->turn.cb = mock_turn;
	m->dm.ops = &mock_ops;
	m->dm.up = &iscsi_dm_up;
	m->dm.env = ts.env;
	m->dm.peer.ss_family = m->dm.local.ss_family = AF_INET;
	peer->sin_addr.s_addr = from;
	m->dm.owner = iscsi_conn_accept(iscsi, &m->dm, by_portal);
	m->cmdsn = 0xfffffffe; /* over the wrap, every time */
}

static inline struct dm_pdu pdu_of(const uint8_t *bhs, const void *data,
				   uint32_t len)
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

static inline void login_text(struct mock *m, uint8_t isid, const char *text,
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
static inline struct seen *next(struct mock *m)
{
	settle();
	if (m->taken == m->count)
		return NULL;
	return &m->seen[m->taken++ % ARRAY_LEN(m->seen)];
}

static inline unsigned status_of(struct mock *m)
{
	struct seen *s = next(m);

	CHECK(s != NULL && s->bhs[0] == ISCSI_OP_LOGIN_RSP);
	return get_be16(s->bhs + 36);
}

static inline void login(struct mock *m, uint8_t isid)
{
	login_text(m, isid, LOGIN_TEXT, sizeof(LOGIN_TEXT) - 1);
	CHECK_EQ(status_of(m), 0);
}

static uint32_t tag = 100;

/* Send a PDU; @op with the immediate bit takes no number. */
static inline void put_pdu(struct mock *m, uint8_t *bhs, const void *data,
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

static inline uint32_t command(struct mock *m, uint8_t flags, uint32_t edtl,
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
static inline unsigned answer(struct mock *m, uint32_t itt)
{
	struct seen *s = next(m);

	CHECK(s != NULL);
	CHECK_EQ(s->bhs[0], ISCSI_OP_RESPONSE);
	CHECK_EQ(get_be32(s->bhs + 16), itt);
	return s->bhs[3];
}

/* Its window is whole, as of one that has been at work: with its next answer. */
static inline void widen(struct mock *m)
{
	struct iscsi_session *s = m->dm.owner->session;

	s->window = s->window_max;
}

/* Log in and fetch the power-on attention. */
static inline void ready(struct mock *m, uint8_t isid)
{
	login(m, isid);
	widen(m);
	CHECK_EQ(answer(m, TUR(m)), 2);
	CHECK_EQ(answer(m, TUR(m)), 0);
}

static inline unsigned tmf(struct mock *m, unsigned function, uint32_t ref,
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
static inline void serve_get(struct mock *m, uint8_t byte)
{
	struct dm_data *get = TAILQ_FIRST(&m->gets);
	uint8_t fill[16384];

	CHECK(get != NULL);
	memset(fill, byte, sizeof(fill));
	sgl_write(get->sgl, get->sgl_offset, fill, get->len);
	TAILQ_REMOVE(&m->gets, get, link);
	get->cb(get, 0);
}

#endif
