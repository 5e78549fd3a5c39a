/*
 * iscsi_peer: a datamover in memory for a fuzzer of full feature phase, what it
 * holds the session to, and how an input is read.
 */
#ifndef BASALT_TESTS_FUZZ_ISCSI_PEER_H
#define BASALT_TESTS_FUZZ_ISCSI_PEER_H

#include "tests/fuzz/iscsi_rig.h"

#include "iscsi/iscsi_int.h"
#include "iscsi/scsi_int.h"

#include <netinet/in.h>

#define IQN "iqn.2026-11.internal.basalt:t"
#define WHO "iqn.2026-11.example:me"
#define UNIT_BYTES (8u << 20)
#define WINDOW 16u
#define MAX_RECV 65536u
#define TAGS 24u
#define PEERS 2u

/* Set-up: what is agreed upon at login, and how the wire behaves. */
enum {
	SETUP_R2T = 1, /* InitialR2T=Yes */
	SETUP_NO_IMMEDIATE = 2,
	SETUP_4K = 4,
	SETUP_SAME_ISID = 8, /* the second login reinstates the first */
	SETUP_LATE = 16, /* a connection takes a while to close */
	SETUP_DISCOVERY = 32, /* the second session is one */
	SETUP_SMALL = 64, /* short bursts, one R2T, level 1 */
	SETUP_RDMA = 128, /* immediate data comes in pages of its own */
};

/* Flags beside a record's kind. */
enum { KIND = 15, PEER = 16, SPLIT = 32, CUT = 64, IMMEDIATE = 128 };

/* In a reserved byte of a header with data: its digest was wrong. */
#define BAD_DIGEST 0xdd

static struct {
	const uint8_t *at, *end;
} input;

static struct memenv me;
static struct iscsi *iscsi;
static unsigned setup;

struct peer {
	struct dm_conn dm;
	struct env_task turn;
	TAILQ_HEAD(, dm_send) sends; /* impl[0]: the dm_data before it */
	TAILQ_HEAD(, dm_data) gets, cancelled;
	bool open; /* the session's side has it */
	bool closing, deaf;
	unsigned late;
	uint32_t cmdsn; /* the next one */
	uint32_t statsn, exp, max; /* as heard */
	uint8_t awaited[64][256]; /* answers, by opcode and tag */
	uint32_t edtl[256];
};
static struct peer peers[PEERS];

/* ---- the input ---- */

static bool more(void)
{
	return input.at < input.end;
}

static uint8_t u8(void)
{
	return more() ? *input.at++ : 0;
}

static uint32_t u16(void)
{
	uint32_t high = u8();

	return high << 8 | u8();
}

/* Lengths of every order of magnitude, around what is agreed upon. */
static uint32_t length(void)
{
	uint32_t v = u8();

	if (v < 64)
		return v * 512;
	if (v < 128)
		return v;
	if (v < 160)
		return (uint32_t)1 << (v & 31);
	return ((v & 31) << 16) + 7;
}

static uint32_t length_to(uint32_t max)
{
	uint32_t len = length();

	return len < max ? len : max;
}

/* ---- the loop ---- */

/* What is due now, at most @turns of it; time stands still. */
static void ready(unsigned turns)
{
	while (turns-- > 0 &&
	       (!STAILQ_EMPTY(&me.loop.tasks) || !STAILQ_EMPTY(&me.loop.works)))
		memenv_turn(&me);
}

struct alarm {
	struct env_timer timer; /* first */
	bool rang;
};

static void on_alarm(struct env_timer *timer)
{
	((struct alarm *)timer)->rang = true;
}

static void pass(uint64_t ns)
{
	struct alarm alarm = { .timer = { .cb = on_alarm } };

	env_timer_start(&me.loop.env, &alarm.timer, ns);
	CHECK(memenv_run(&me, &alarm.rang));
	ready(10000);
}

/* ---- the datamover ---- */

static struct peer *peer_of(struct dm_conn *dm)
{
	return container_of(dm, struct peer, dm);
}

static uint8_t *awaited(struct peer *p, unsigned opcode, uint32_t itt)
{
	return &p->awaited[opcode & ISCSI_OP_MASK][itt & 255];
}

static void check_window(struct peer *p, const uint8_t *bhs)
{
	uint32_t exp = get_be32(bhs + 28), max = get_be32(bhs + 32);

	if (p->exp != p->max || p->exp != 0) {
		CHECK(sn_le(p->exp, exp));
		CHECK(sn_le(p->max, max));
	}
	CHECK(max - exp + 1 <= WINDOW);
	p->exp = exp;
	p->max = max;
}

/* A PDU of the target's is on the wire. */
static void check_sent(struct peer *p, struct dm_send *send)
{
	uint8_t *bhs = send->bhs, op = bhs[0];
	uint32_t itt = get_be32(bhs + 16);
	bool ping = op == ISCSI_OP_NOP_IN && itt == ISCSI_NO_TAG;

	p->dm.up->stamp(p->dm.owner, bhs);
	check_window(p, bhs);
	CHECK(send->data_len == 0 || send->data != NULL || send->sgl != NULL);
	CHECK_EQ(get_be32(bhs + 24), p->statsn);
	if (!ping)
		p->statsn++;
	if (ping || op == ISCSI_OP_ASYNC || op == ISCSI_OP_REJECT)
		return;
	CHECK(op >= ISCSI_OP_NOP_IN && op <= ISCSI_OP_LOGOUT_RSP);
	CHECK(*awaited(p, op - ISCSI_OP_NOP_IN, itt) > 0);
	--*awaited(p, op - ISCSI_OP_NOP_IN, itt);
	if (op == ISCSI_OP_RESPONSE)
		CHECK(bhs[3] == SCSI_CHECK_CONDITION || send->data_len == 0);
}

static void check_put(struct peer *p, const struct dm_data *put)
{
	static uint8_t bytes[UNIT_BYTES];

	CHECK(put->len > 0 && put->len <= sizeof(bytes));
	CHECK(put->sgl_offset + put->len <= put->sgl->len_bytes);
	CHECK(put->task_offset + put->len <= p->edtl[put->itt & 255]);
	sgl_read(put->sgl, put->sgl_offset, bytes, put->len);
}

static void send_one(struct peer *p, struct dm_send *send)
{
	struct dm_data *put = send->impl[0];
	int status = p->closing ? -ECANCELED : 0;

	TAILQ_REMOVE(&p->sends, send, link);
	if (!p->closing) {
		if (put != NULL)
			check_put(p, put);
		check_sent(p, send);
	}
	if (put != NULL)
		put->cb(put, status);
	send->cb(send, status);
}

static void cancel_all(struct peer *p)
{
	struct dm_data *get;

	while ((get = TAILQ_FIRST(&p->cancelled)) != NULL) {
		TAILQ_REMOVE(&p->cancelled, get, link);
		get->cb(get, -ECANCELED);
	}
}

static void on_turn(struct env_task *task)
{
	struct peer *p = container_of(task, struct peer, turn);
	bool was_closing = p->closing;
	struct dm_send *send;

	if (p->closing && p->late > 0) {
		p->late--;
		env_defer(&me.loop.env, &p->turn);
		return;
	}
	cancel_all(p);
	while ((send = TAILQ_FIRST(&p->sends)) != NULL &&
	       (!p->deaf || p->closing))
		send_one(p, send);
	if (!was_closing || !p->open)
		return; /* if it closes now, this runs once more */
	TAILQ_CONCAT(&p->cancelled, &p->gets, link);
	cancel_all(p);
	p->open = false;
	p->dm.up->closed(p->dm.owner);
}

static void dm_send_control(struct dm_conn *dm, struct dm_send *send)
{
	send->impl[0] = NULL;
	TAILQ_INSERT_TAIL(&peer_of(dm)->sends, send, link);
	env_defer(&me.loop.env, &peer_of(dm)->turn);
}

static void dm_put_data(struct dm_conn *dm, struct dm_data *put)
{
	CHECK(put->response != NULL);
	put->response->impl[0] = put;
	TAILQ_INSERT_TAIL(&peer_of(dm)->sends, put->response, link);
	env_defer(&me.loop.env, &peer_of(dm)->turn);
}

static void dm_get_data(struct dm_conn *dm, struct dm_data *get)
{
	struct peer *p = peer_of(dm);
	uint8_t r2t[ISCSI_BHS_LEN] = { ISCSI_OP_R2T };
	struct dm_data *other;
	unsigned same_task = 1;

	CHECK(!p->closing && get->len > 0);
	CHECK(get->len <= (setup & SETUP_SMALL ? 8192u : 65536u));
	CHECK(get->sgl_offset + get->len <= get->sgl->len_bytes);
	CHECK(get->task_offset + get->len <= p->edtl[get->itt & 255]);
	TAILQ_FOREACH (other, &p->gets, link)
		if (other->itt == get->itt)
			same_task++;
	/* Over RDMA no R2T travels: what was agreed upon does not count. */
	if ((setup & (SETUP_SMALL | SETUP_RDMA)) == SETUP_SMALL)
		CHECK_EQ(same_task, 1);
	CHECK(same_task <= TASK_R2T_MAX);
	p->dm.up->stamp(p->dm.owner, r2t);
	check_window(p, r2t);
	TAILQ_INSERT_TAIL(&p->gets, get, link);
}

static int dm_notice_keys(struct dm_conn *dm, const struct dm_keys *keys)
{
	CHECK(keys->first_burst <= keys->max_burst);
	return 0;
}

static void dm_task_done(struct dm_conn *dm, uint32_t itt)
{
	struct peer *p = peer_of(dm);
	struct dm_data *get, *next;

	for (get = TAILQ_FIRST(&p->gets); get != NULL; get = next) {
		next = TAILQ_NEXT(get, link);
		if (get->itt != itt)
			continue;
		TAILQ_REMOVE(&p->gets, get, link);
		TAILQ_INSERT_TAIL(&p->cancelled, get, link);
	}
	env_defer(&me.loop.env, &p->turn);
}

static void dm_terminate(struct dm_conn *dm)
{
	struct peer *p = peer_of(dm);

	CHECK(!p->closing);
	p->closing = true;
	env_defer(&me.loop.env, &p->turn);
}

static struct dm_ops ops = {
	.name = "memory",
	.send_control = dm_send_control,
	.put_data = dm_put_data,
	.get_data = dm_get_data,
	.notice_keys = dm_notice_keys,
	.enable = dm_send_control,
	.task_done = dm_task_done,
	.terminate = dm_terminate,
};

#endif
