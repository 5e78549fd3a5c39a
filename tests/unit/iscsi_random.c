/*
 * Sessions at random, in memory and virtual time: three initiators at one
 * target with two units of one object send commands whose data lands late or in
 * parts, Data-Out, TMFs and the rest, fetch nothing for a while and go, while
 * the object layer holds, fails and refuses requests, memory is short, the
 * administrator takes units and sessions away and the session's timers run.
 *
 * Held to: every count is that of what it counts, what waits has a timer and
 * does not spin, no answer that nobody asked for, a window that is never taken
 * back; in the end every session has gone by itself and every page is home.
 *
 * limit: 600 s, soak 1800 s		(seeds and how to repeat one: seeds.h)
 */
#include "tests/lib/memenv.h"
#include "tests/lib/seeds.h"
#include "tests/unit/iscsi_check.h"
#include "tests/unit/iscsi_rig.h"

#define INITIATORS 3u
#define STEPS 3000u
#define FIRST_BURST 8192u /* as in LOGIN_TEXT */
#define TAGS 4096u
#define FAR "iqn.2026-11.internal.basalt:far"

static struct uuid far_oid = { .b = { 3, 2, 1 } };
/* With EXTENDED COPY and PERSISTENT RESERVE OUT: seeds from before have none. */
static bool lists;

static struct initiator {
	struct mock mock;
	uint32_t tag;
	uint8_t asked[TAGS]; /* commands by tag, less their answers */
	uint32_t max_cmdsn;
	/* A command whose data is on its way. */
	bool landing;
	uint8_t bhs[ISCSI_BHS_LEN];
	uint8_t list[108]; /* of such a command */
	struct dm_pdu pdu;
	struct sgl *sgl;
} initiators[INITIATORS];

#define PICK(array) ((array)[below(ARRAY_LEN(array))])

/* ---- what comes back ---- */

/* The target sent @pdu. */
static void saw(struct mock *m, const struct seen *pdu)
{
	struct initiator *i = container_of(m, struct initiator, mock);
	uint8_t opcode = pdu->bhs[0] & ISCSI_OP_MASK;
	uint32_t max = get_be32(pdu->bhs + 32);

	if (opcode == ISCSI_OP_RESPONSE)
		CHECK(i->asked[get_be32(pdu->bhs + 16) % TAGS]-- > 0);
	if (opcode == ISCSI_OP_LOGIN_RSP)
		i->max_cmdsn = max;
	CHECK(sn_le(i->max_cmdsn, max));
	i->max_cmdsn = max;
}

/* ---- time ---- */

struct pause {
	struct env_timer timer;
	bool over;
};

static void on_pause(struct env_timer *timer)
{
	container_of(timer, struct pause, timer)->over = true;
}

/* Without an event from outside all comes to rest: nothing spins. */
static void rest(void)
{
	unsigned turns = 0;

	do {
		turn();
		CHECK(++turns < 1000);
	} while (!STAILQ_EMPTY(&ts.memory->loop.tasks));
}

static void pass(uint64_t ns)
{
	struct pause p = { .timer = { .cb = on_pause } };

	rest();
	env_timer_start(ts.env, &p.timer, ns);
	test_run(&ts, &p.over);
}

/* ---- the initiators ---- */

static bool is_up(const struct initiator *i)
{
	return !i->mock.closing && i->mock.dm.owner->state == CONN_FULL;
}

static void landing_forget(struct initiator *i)
{
	sgl_put(i->sgl);
	i->sgl = NULL;
	i->landing = false;
}

/* The last byte of the command's data is here. */
static void landing_end(struct initiator *i)
{
	if (i->landing && !i->mock.closing)
		i->mock.dm.up->control(i->mock.dm.owner, &i->pdu);
	landing_forget(i);
}

static void hear(struct initiator *i)
{
	i->mock.deaf = false;
	env_defer(ts.env, &i->mock.turn);
}

static void hang_up(struct initiator *i)
{
	if (!i->mock.closing)
		i->mock.dm.up->lost(i->mock.dm.owner, -ECONNRESET, "test");
}

/* Now and then as another one that is there: that reinstates its session. */
static void log_in(struct initiator *i)
{
	unsigned n = (unsigned)(i - initiators);

	landing_forget(i);
	memset(i->asked, 0, sizeof(i->asked));
	i->tag = 0;
	login_text(&i->mock, (uint8_t)(one_in(8) ? below(INITIATORS) : n),
		   LOGIN_TEXT, sizeof(LOGIN_TEXT) - 1);
	i->mock.saw = saw;
	settle();
}

/* It was hung up on, or waits for an older session to end, or has had enough. */
static void come_back(struct initiator *i)
{
	if (!i->mock.closed && !one_in(5)) {
		turn();
		return;
	}
	landing_forget(i);
	hang_up(i);
	while (!i->mock.closed) {
		hear(i);
		turn();
	}
	log_in(i);
}

static void cdb_fill(uint8_t *cdb, uint8_t opcode, unsigned blocks)
{
	static const uint8_t sanitize[] = { 0x82, 2, 0x22, 0x1f, 3 };

	cdb[0] = opcode;
	put_be32(cdb + 2, below(1000));
	put_be16(cdb + 7, (uint16_t)blocks);
	switch (opcode) {
	case 0x15: /* MODE SELECT(6) */
		cdb[1] = 0x10;
		cdb[4] = (uint8_t)below(30);
		break;
	case 0x16: /* RESERVE(6) */
	case 0x17: /* RELEASE(6) */
		memset(cdb + 1, 0, 15);
		break;
	case 0x48: /* SANITIZE: seldom */
		memset(cdb, 0, 16);
		if (!one_in(6))
			break;
		cdb[0] = opcode;
		cdb[1] = PICK(sanitize);
	}
}

static bool writes(uint8_t opcode)
{
	return strchr("\x2a\x41\x42\x2e\x15\x2f", opcode) != NULL;
}

/* The disk, one of another target, or none. */
static void cscd_fill(uint8_t *d)
{
	d[0] = 0xe4;
	d[4] = 1;
	d[5] = 3;
	d[7] = 8;
	scsi_naa(one_in(2) ? &oid : &far_oid, d + 8);
	if (one_in(20))
		d[9]++;
	put_be24(d + 29, 512);
}

/* EXTENDED COPY of a segment, with all its data. */
static uint32_t copy_make(struct initiator *i)
{
	uint8_t *bhs = i->bhs, *list = i->list;
	uint32_t len = sizeof(i->list);

	memset(list, 0, len);
	list[1] = (uint8_t)(below(4) << 3);
	put_be16(list + 2, 64);
	put_be32(list + 8, 28);
	cscd_fill(list + 16);
	cscd_fill(list + 48);
	list[80] = 2;
	list[83] = 24;
	list[85] = (uint8_t)below(2);
	list[87] = (uint8_t)below(2);
	put_be16(list + 90, (uint16_t)below(8192));
	put_be64(list + 92, below(1000));
	put_be64(list + 100, below(1000));
	if (one_in(10))
		list[below(len)] ^= (uint8_t)(1u << below(8));
	bhs[1] = ISCSI_FINAL | 0x20 | 1;
	put_be32(bhs + 20, len);
	memset(bhs + 32, 0, 16);
	bhs[32] = 0x83;
	put_be32(bhs + 32 + 10, len);
	return len;
}

/* PERSISTENT RESERVE OUT, whose list comes with it, or is asked for. */
static uint32_t reserve_make(struct initiator *i)
{
	static const uint8_t types[] = { 1, 3, 5, 6, 7, 8 };
	uint32_t len = one_in(20) ? below(sizeof(i->list)) : 24;
	uint8_t *bhs = i->bhs, *list = i->list;

	memset(list, 0, sizeof(i->list));
	list[7] = (uint8_t)below(3); /* keys */
	list[15] = (uint8_t)below(3);
	list[20] = one_in(6) ? 4 : 0; /* ALL_TG_PT */
	bhs[1] = ISCSI_FINAL | 0x20 | 1;
	put_be32(bhs + 20, len);
	memset(bhs + 32, 0, 16);
	bhs[32] = 0x5f;
	bhs[33] = (uint8_t)(one_in(3) ? DOM_PR_PREEMPT_AND_ABORT : below(8));
	bhs[34] = PICK(types);
	put_be32(bhs + 32 + 5, len);
	return one_in(3) ? 0 : len;
}

/* Fills i->bhs; returns the length of its immediate data. */
static uint32_t command_make(struct initiator *i)
{
	/* WRITE and READ mostly; of the others some of each kind. */
	static const uint8_t opcodes[] = { 0x2a, 0x28, 0x2a, 0x28, 0x41,
					   0x42, 0x2e, 0x2f, 0x15, 0x16,
					   0x17, 0x12, 0xa0, 0x5e, 0x35,
					   0x8b, 0x03, 0xff, 0x48 };
	uint8_t opcode = PICK(opcodes), *bhs = i->bhs;
	unsigned blocks = below(one_in(20) ? 4096 : 64);
	bool write = writes(opcode) ? !one_in(10) : one_in(10);
	bool read = !write && !one_in(3), immediate = one_in(4);
	uint32_t edtl = write || read ? blocks * 512 : 0;
	uint32_t data = one_in(3) ? below(FIRST_BURST) : FIRST_BURST;

	if (opcode == 0x41) /* WRITE SAME(10) */
		edtl = 512;
	else if (one_in(8))
		edtl = below(100000);
	memset(bhs, 0, ISCSI_BHS_LEN);
	bhs[0] = ISCSI_OP_COMMAND | (immediate ? ISCSI_IMMEDIATE : 0);
	bhs[1] = (uint8_t)((write && one_in(3) ? 0 : ISCSI_FINAL) |
			   (write ? 0x20 : 0) | (read ? 0x40 : 0) | below(5));
	bhs[9] = one_in(3);
	put_be32(bhs + 16, one_in(10) ? i->tag - below(5) : ++i->tag);
	put_be32(bhs + 20, edtl);
	put_be32(bhs + 24, i->mock.cmdsn);
	if (!immediate) {
		i->mock.cmdsn++;
		if (one_in(60))
			put_be32(bhs + 24, i->mock.cmdsn); /* a gap */
	}
	cdb_fill(bhs + 32, opcode, blocks);
	if (lists && one_in(8))
		return copy_make(i);
	if (lists && one_in(6))
		return reserve_make(i);
	return write && !one_in(4) ? MIN(edtl, data) : 0;
}

static void send_command(struct initiator *i)
{
	uint32_t len = command_make(i);
	size_t offset = 0;

	i->pdu = pdu_of(i->bhs, NULL, len);
	i->asked[get_be32(i->bhs + 16) % TAGS]++;
	if (len > 0)
		i->pdu.sgl =
			i->mock.dm.up->land(i->mock.dm.owner, &i->pdu, &offset);
	if (i->mock.closing)
		return;
	if (i->pdu.sgl != NULL) {
		CHECK(offset + len <= i->pdu.sgl->len_bytes);
		if (i->bhs[32] == 0x83 || i->bhs[32] == 0x5f)
			sgl_write(i->pdu.sgl, offset, i->list,
				  MIN(len, sizeof(i->list)));
		i->sgl = sgl_get(i->pdu.sgl);
	}
	i->landing = true;
	if (!one_in(3))
		landing_end(i);
}

/* Unsolicited Data-Out: what is due next, now and then anything. */
static void send_data(struct initiator *i)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_DATA_OUT };
	uint32_t itt = i->tag - below(8), len = below(5000);
	uint32_t left, limit;
	struct dm_pdu pdu;
	struct task *task;
	size_t offset = 0;

	bhs[1] = one_in(2) ? ISCSI_FINAL : 0;
	put_be32(bhs + 16, itt);
	put_be32(bhs + 20, ISCSI_NO_TAG);
	put_be32(bhs + 36, below(2));
	put_be32(bhs + 40, below(FIRST_BURST));
	task = iscsi__task_find(i->mock.dm.owner->session, itt);
	if (task != NULL && !one_in(10)) {
		limit = MIN(FIRST_BURST, task->cmd.edtl);
		left = limit - MIN(limit, task->unsolicited);
		put_be32(bhs + 36, task->datasn);
		put_be32(bhs + 40, task->unsolicited);
		len = MIN(len, left);
		if (len == left)
			bhs[1] = ISCSI_FINAL;
	}
	pdu = pdu_of(bhs, NULL, len);
	if (len > 0)
		pdu.sgl = i->mock.dm.up->land(i->mock.dm.owner, &pdu, &offset);
	if (i->mock.closing)
		return;
	if (pdu.sgl != NULL)
		sgl_get(pdu.sgl);
	i->mock.dm.up->control(i->mock.dm.owner, &pdu);
	sgl_put(pdu.sgl);
}

static void tmf_fill(struct initiator *i, uint8_t *bhs)
{
	static const uint8_t functions[] = { 1, 1, 1, 1, 2,  2, 4,
					     4, 5, 6, 9, 10, 11 };

	/* A cold reset ends all sessions. */
	bhs[1] = ISCSI_FINAL | (one_in(40) ? 7 : PICK(functions));
	put_be32(bhs + 20, i->tag - below(10));
	put_be32(bhs + 32, i->mock.cmdsn - below(5));
}

/* TMF, NOP-Out, Text, Logout, SNACK. */
static void send_other(struct initiator *i)
{
	static const uint8_t opcodes[] = { ISCSI_OP_TMF,     ISCSI_OP_TMF,
					   ISCSI_OP_TMF,     ISCSI_OP_TMF,
					   ISCSI_OP_NOP_OUT, ISCSI_OP_NOP_OUT,
					   ISCSI_OP_TEXT };
	uint8_t opcode = one_in(150)  ? ISCSI_OP_LOGOUT
			 : one_in(60) ? ISCSI_OP_SNACK
				      : PICK(opcodes);
	uint8_t bhs[ISCSI_BHS_LEN] = { opcode, ISCSI_FINAL };
	bool immediate = one_in(2), no_tag, text = opcode == ISCSI_OP_TEXT;
	struct dm_pdu pdu;

	no_tag = opcode == ISCSI_OP_NOP_OUT && one_in(4);
	put_be32(bhs + 16, no_tag ? ISCSI_NO_TAG : ++i->tag);
	put_be32(bhs + 20, ISCSI_NO_TAG);
	if (immediate)
		bhs[0] |= ISCSI_IMMEDIATE;
	if (opcode == ISCSI_OP_TMF)
		tmf_fill(i, bhs);
	if (text && one_in(3))
		bhs[1] = 0x40; /* more of it is to come */
	put_be32(bhs + 24, i->mock.cmdsn);
	if (!immediate && !no_tag && opcode != ISCSI_OP_SNACK)
		i->mock.cmdsn++;
	pdu = pdu_of(bhs, text ? "SendTargets=All" : "x", text ? 16 : 1);
	if (!text && opcode != ISCSI_OP_NOP_OUT)
		pdu.data_len = 0;
	i->mock.dm.up->control(i->mock.dm.owner, &pdu);
}

/* Data that was asked for came, or came out of sequence. */
static void answer_get(struct initiator *i)
{
	struct dm_data *get = TAILQ_FIRST(&i->mock.gets);

	if (get == NULL)
		return;
	TAILQ_REMOVE(&i->mock.gets, get, link);
	sgl_write(get->sgl, get->sgl_offset, i->list,
		  MIN(get->len, sizeof(i->list)));
	get->cb(get, one_in(10) ? -EPROTO : 0);
}

/* ---- the world ---- */

static void storage(void)
{
	static const int errors[] = { -EBUSY,	  -ENXIO,     -EIO,
				      -ETIMEDOUT, -ECANCELED, -ENOSPC };
	struct fake_fault fault = { .ops = 1u << below(10),
				    .skip = below(5),
				    .times = below(5),
				    .status = PICK(errors) };

	fake_dom_hold(dom, one_in(2));
	if (!one_in(10))
		return;
	fault.at_once = fault.status == -EBUSY;
	fake_dom_fault(dom, fault);
}

/* All of the memory goes; later some of it is given back, or all. */
static void pressure(void)
{
	unsigned keep =
		one_in(2) ? 0 : hoard_count - MIN(hoard_count, below(200));

	if (hoard_count == 0)
		hoard_all();
	else
		hoard_keep(keep);
}

/* Another unit of the same object. */
static void twin_set(void)
{
	CHECK_EQ(iscsi_lun_set(iscsi,
			       &(struct iscsi_lun_conf){ .iqn = IQN,
							 .lun = 1,
							 .object = oid,
							 .name = "twin",
							 .block_bytes = 512 }),
		 0);
}

/* Another object, of another target. */
static void far_set(void)
{
	CHECK_EQ(iscsi_lun_set(iscsi,
			       &(struct iscsi_lun_conf){ .iqn = FAR,
							 .object = far_oid,
							 .name = "far",
							 .block_bytes = 512 }),
		 0);
}

static void unit_again(unsigned lun)
{
	iscsi_lun_unset(iscsi, IQN, lun);
	if (one_in(2))
		turn();
	if (lun == 0)
		target_fill();
	else
		twin_set();
}

static void administrator(struct initiator *i)
{
	struct iscsi_session *s = i->mock.dm.owner->session;
	struct scsi_lun *disk = s->target->scsi->luns[0];

	if (one_in(100))
		hang_up(i);
	else if (one_in(30))
		i->mock.late = below(6);
	else if (one_in(100))
		CHECK_EQ(iscsi_session_drop(iscsi, s->id), 0);
	else if (one_in(25))
		unit_again(below(2));
	else if (one_in(50) && disk != NULL)
		disk->tas = one_in(2);
	else if (lists && one_in(40))
		iscsi_lun_unset(iscsi, FAR, 0);
	else if (lists && one_in(20))
		far_set();
}

/* ---- a seed ---- */

static void step(void)
{
	struct initiator *i = &initiators[below(INITIATORS)];

	if (!is_up(i)) {
		come_back(i);
		return;
	}
	switch (below(12)) {
	case 0:
	case 1:
	case 2:
		if (i->landing)
			landing_end(i);
		else
			send_command(i);
		break;
	case 3:
		if (!i->landing && one_in(8))
			send_data(i);
		else if (!i->landing)
			send_other(i);
		break;
	case 4:
		if (!i->landing)
			send_data(i);
		break;
	case 5:
	case 6:
		turn();
		break;
	case 7:
		answer_get(i);
		break;
	case 8:
		storage();
		break;
	case 9:
		if (one_in(10)) {
			i->mock.deaf = !i->mock.deaf;
			env_defer(ts.env, &i->mock.turn);
		}
		break;
	case 10:
		if (one_in(30))
			pressure();
		else
			administrator(i);
		break;
	default:
		if (one_in(20)) /* up to 25 s: pings, parked commands */
			pass(below(25000) * MSEC);
		else
			pass(below(10) * MSEC);
	}
}

/* Nothing is in the way any more; the initiators hang up, or are silent. */
static void relieve(bool hangs_up)
{
	fake_dom_hold(dom, false);
	fake_dom_fault(dom, (struct fake_fault){ .ops = 0 });
	hoard_keep(0);
	for (unsigned n = 0; n < INITIATORS; n++) {
		struct initiator *i = &initiators[n];

		landing_end(i);
		if (!i->mock.closed)
			hear(i);
		if (hangs_up)
			hang_up(i);
	}
	if (hangs_up)
		pass(SEC);
	else
		pass(150 * SEC); /* nobody answers a ping */
}

static void one(void)
{
	test_memory_open(&ts);
	fixture((struct iscsi_config){ .window = one_in(2) ? 16 : 128 });
	memset(initiators, 0, sizeof(initiators));
	twin_set();
	if (lists) {
		CHECK_EQ(fake_dom_add(dom, &far_oid, 8u << 20), 0);
		CHECK_EQ(iscsi_target_set(iscsi,
					  &(struct iscsi_target_conf){
						  .iqn = FAR,
						  .allow = any,
						  .allow_count = 1 }),
			 0);
		far_set();
	}
	for (unsigned n = 0; n < INITIATORS; n++)
		log_in(&initiators[n]);
	for (unsigned n = 0; n < STEPS; n++) {
		check_all(iscsi);
		step();
	}
	relieve(one_in(2));
	check_all(iscsi);
	CHECK(TAILQ_EMPTY(&iscsi->conns) && TAILQ_EMPTY(&iscsi->sessions));
	for (unsigned n = 0; n < INITIATORS; n++)
		CHECK(initiators[n].mock.closed);
	end();
}

TEST(iscsi_random, sessions)
{
	log_level_set("iscsi", "error");
	lists = true;
	seeds_run(100, 20000, one);
}

/* A SANITIZE that waited until its unit was gone, and failed then. */
TEST(iscsi_random, sanitize_of_a_unit_that_is_gone)
{
	log_level_set("iscsi", "error");
	lists = false;
	seeds_again(11376, one);
}
