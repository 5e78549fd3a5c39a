/*
 * Full feature phase: two logged-in sessions are sent PDU after PDU through the
 * datamover's calls, over a target with two units in memory, while the storage
 * below is slow, full or failing and the administrator takes things away.
 *
 * The datamover here hands on what the TCP one would: lengths within what was
 * negotiated, AHS with a SCSI Command only, solicited data within its R2T.  All
 * else is the input's.  An input is a byte of set-up, then records: a byte of
 * kind and flags, and what that kind takes (missing bytes are 0).
 *
 * Held to: StatSN without a gap, ExpCmdSN and MaxCmdSN never back and never
 * wider than the window, no answer that nobody asked for, no more data than was
 * announced, R2Ts within what was agreed upon; a command that has its data is
 * answered; in the end nothing is left, in memory or open.
 */
#include "tests/fuzz/iscsi_peer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct dom *dom;
static struct uuid oids[2];
static struct sgl *hogs[8];

/* ---- logging in ---- */

static size_t login_text(char *text, unsigned n)
{
	int len = sprintf(text,
			  "InitiatorName=" WHO "%cInitialR2T=%s%c"
			  "ImmediateData=%s%cMaxOutstandingR2T=%u%c"
			  "FirstBurstLength=%u%cMaxBurstLength=%u%c"
			  "iSCSIProtocolLevel=%u%c",
			  0, setup & SETUP_R2T ? "Yes" : "No", 0,
			  setup & SETUP_NO_IMMEDIATE ? "No" : "Yes", 0,
			  setup & SETUP_SMALL ? 1u : TASK_R2T_MAX, 0,
			  setup & SETUP_SMALL ? 4096u : 16384u, 0,
			  setup & SETUP_SMALL ? 8192u : 65536u, 0,
			  setup & SETUP_SMALL ? 1u : 2u, 0);

	len += n == 1 && (setup & SETUP_DISCOVERY) != 0
		       ? sprintf(text + len, "SessionType=Discovery%c", 0)
		       : sprintf(text + len, "TargetName=" IQN "%c", 0);
	return (size_t)len;
}

static void log_in(unsigned n)
{
	struct peer *p = &peers[n];
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x43, 0x87 };
	char text[512];
	struct dm_pdu pdu = { .bhs = bhs,
			      .ahs = bhs,
			      .data = (uint8_t *)text,
			      .data_len = (uint32_t)login_text(text, n) };

	CHECK(TAILQ_EMPTY(&p->sends) && TAILQ_EMPTY(&p->gets));
	memset(p->awaited, 0, sizeof(p->awaited));
	p->closing = p->deaf = false;
	p->late = setup & SETUP_LATE ? 3 : 0;
	p->cmdsn = 0xfffffffc; /* over the wrap, every time */
	p->statsn = 1;
	p->exp = p->max = 0;
	p->dm = (struct dm_conn){ .ops = &ops,
				  .up = &iscsi_dm_up,
				  .env = &me.loop.env };
	p->dm.peer.ss_family = p->dm.local.ss_family = AF_INET;
	p->dm.owner = iscsi_conn_accept(iscsi, &p->dm, 1);
	p->open = p->dm.owner != NULL;
	if (!p->open)
		return;
	bhs[8] = 0x80;
	bhs[13] = setup & SETUP_SAME_ISID ? 0 : (uint8_t)n;
	put_be32(bhs + 16, 1);
	put_be32(bhs + 24, p->cmdsn);
	*awaited(p, ISCSI_OP_LOGIN, 1) = 1;
	p->dm.up->control(p->dm.owner, &pdu);
	ready(40);
}

/* ---- sending ---- */

/* The oldest R2T of the task, or of any: its data is here, or was garbled. */
static void serve(struct peer *p, uint32_t itt, bool any, unsigned how)
{
	static uint8_t bytes[65536];
	struct dm_data *get;

	TAILQ_FOREACH (get, &p->gets, link)
		if (any || get->itt == itt)
			break;
	if (get == NULL || p->closing)
		return;
	memset(bytes, (int)how, get->len);
	sgl_write(get->sgl, get->sgl_offset, bytes,
		  how == 7 ? get->len / 2 : get->len);
	if (how == 6)
		return; /* the rest never comes */
	TAILQ_REMOVE(&p->gets, get, link);
	get->cb(get, how == 7 ? -EPROTO : 0);
}

/* Where the data of a command lands, or a copy in pages of its own. */
static struct sgl *land(struct peer *p, const struct dm_pdu *pdu,
			const uint8_t *data)
{
	struct sgl *sgl;
	size_t offset = 0;

	if ((setup & SETUP_RDMA) != 0) {
		if (sgl_new(me.loop.env.pages, PAGE_FRONT, pdu->data_len, 0,
			    &sgl))
			return NULL;
	} else {
		sgl = p->dm.up->land(p->dm.owner, pdu, &offset);
		if (sgl == NULL || p->closing)
			return NULL;
		CHECK(offset + pdu->data_len <= sgl->len_bytes);
		sgl_get(sgl);
	}
	sgl_write(sgl, offset, data, pdu->data_len);
	return sgl;
}

static void await_answer(struct peer *p, const uint8_t *bhs)
{
	uint32_t itt = get_be32(bhs + 16);

	if (*awaited(p, bhs[0], itt) < 255)
		++*awaited(p, bhs[0], itt);
	if ((bhs[0] & ISCSI_OP_MASK) == ISCSI_OP_COMMAND)
		p->edtl[itt & 255] =
			MAX(p->edtl[itt & 255], get_be32(bhs + 20));
}

/* A whole PDU, unless @flags cut it off behind its header. */
static void put_pdu(struct peer *p, const uint8_t *bhs, unsigned ahs_len,
		    uint32_t len, unsigned flags)
{
	uint8_t op = bhs[0] & ISCSI_OP_MASK;
	bool payload = op == ISCSI_OP_COMMAND || op == ISCSI_OP_DATA_OUT;
	uint8_t *own = malloc(ISCSI_BHS_LEN + ahs_len + len); /* to the byte */
	struct dm_pdu pdu = { .bhs = own,
			      .ahs = own + ISCSI_BHS_LEN,
			      .ahs_len = ahs_len,
			      .data_len = len };

	CHECK(own != NULL);
	memcpy(own, bhs, ISCSI_BHS_LEN);
	for (unsigned i = 0; i < ahs_len; i++)
		own[ISCSI_BHS_LEN + i] = u8();
	for (uint32_t i = 0; i < len; i++)
		own[ISCSI_BHS_LEN + ahs_len + i] =
			op == ISCSI_OP_TEXT ? u8() : (uint8_t)i;
	await_answer(p, own);
	if (payload && len > 0)
		pdu.sgl = land(p, &pdu, own + ISCSI_BHS_LEN + ahs_len);
	else if (!payload)
		pdu.data = own + ISCSI_BHS_LEN + ahs_len;
	if ((flags & SPLIT) != 0)
		ready(8);
	pdu.data_digest_bad = len > 0 && bhs[2] == BAD_DIGEST;
	if (!p->closing && (flags & CUT) != 0)
		p->dm.up->lost(p->dm.owner, -ECONNRESET, "cut off");
	else if (!p->closing)
		p->dm.up->control(p->dm.owner, &pdu);
	sgl_put(pdu.sgl);
	free(own);
}

/* Mostly the next number; now and then one that is not. */
static void number(struct peer *p, uint8_t *bhs, unsigned flags)
{
	unsigned how = u8();

	if ((flags & IMMEDIATE) != 0)
		bhs[0] |= ISCSI_IMMEDIATE;
	put_be32(bhs + 24, p->cmdsn);
	if (how >= 240)
		put_be32(bhs + 24, p->cmdsn + how - 245);
	else if (!(bhs[0] & ISCSI_IMMEDIATE))
		p->cmdsn++;
}

static uint32_t a_tag(void)
{
	uint32_t tag = u8() % TAGS;

	return tag == TAGS - 1 ? ISCSI_NO_TAG : tag;
}

/* READ(10) and WRITE(10) whose lengths agree, or nearly. */
static void read_write(struct peer *p, unsigned flags)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_COMMAND };
	unsigned how = u8(), block = setup & SETUP_4K ? 4096 : 512;
	bool write = how & 1;
	uint32_t blocks, len = 0, edtl;

	put_be32(bhs + 16, a_tag());
	bhs[9] = (how >> 1) & 1;
	bhs[32] = write ? 0x2a : 0x28;
	put_be32(bhs + 34, u8());
	blocks = length() / 512;
	put_be16(bhs + 39, (uint16_t)MIN(blocks, 1024u));
	edtl = get_be16(bhs + 39) * block;
	if ((how & 4) != 0)
		edtl = length();
	put_be32(bhs + 20, edtl);
	bhs[1] = (uint8_t)((write      ? 0x20
			    : edtl > 0 ? 0x40
				       : 0) |
			   ((how & 8) == 0 ? ISCSI_FINAL : 0) | (how >> 5));
	if (write && (how & 16) != 0)
		len = length_to(MIN(edtl, MAX_RECV));
	number(p, bhs, flags);
	put_pdu(p, bhs, 0, len, flags);
}

/* Any command of the table, or none of it. */
static void any_command(struct peer *p, unsigned flags)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_COMMAND };
	unsigned which = u8(), n;
	const struct scsi_op *op = &scsi__ops[which % scsi__ops_count];
	unsigned ahs_len;
	uint32_t len;

	bhs[1] = u8();
	bhs[9] = u8() & 3;
	put_be32(bhs + 16, a_tag());
	put_be32(bhs + 20, length());
	n = u8() % 16;
	bhs[32] = op->opcode;
	for (unsigned i = 1; i <= n; i++)
		bhs[32 + i] = which < 250 ? u8() & op->usage[i] : u8();
	if (op->sa >= 0)
		bhs[33] = (uint8_t)((bhs[33] & ~0x1f) | op->sa);
	len = length_to(MAX_RECV);
	if ((bhs[1] & 0x20) == 0)
		len = 0;
	ahs_len = n == 15 ? (u8() & 31) * 4u : 0;
	number(p, bhs, flags);
	put_pdu(p, bhs, ahs_len, len, flags);
}

static void data_out(struct peer *p, unsigned flags)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_DATA_OUT };
	unsigned how = u8();

	bhs[1] = how & 1 ? ISCSI_FINAL : 0;
	bhs[2] = how & 128 ? BAD_DIGEST : 0;
	put_be32(bhs + 16, a_tag());
	put_be32(bhs + 20, ISCSI_NO_TAG);
	put_be32(bhs + 36, (how >> 1) & 7);
	put_be32(bhs + 40, length());
	put_pdu(p, bhs, 0, length_to(MAX_RECV), flags);
}

static void task_management(struct peer *p, unsigned flags)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_TMF };

	bhs[1] = ISCSI_FINAL | u8() % 14;
	put_be32(bhs + 16, a_tag());
	put_be32(bhs + 20, a_tag());
	bhs[9] = u8() & 3;
	put_be32(bhs + 32, p->cmdsn - (u8() & 15) + 4);
	number(p, bhs, flags);
	put_pdu(p, bhs, 0, 0, flags);
}

/* NOP-Out, Text and Logout. */
static void control(struct peer *p, unsigned flags, uint8_t opcode)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { opcode };
	uint32_t len = opcode == ISCSI_OP_LOGOUT ? 0 : length_to(4096);

	bhs[1] = opcode == ISCSI_OP_LOGOUT ? ISCSI_FINAL | (u8() & 3) : u8();
	put_be32(bhs + 16, a_tag());
	put_be32(bhs + 20, u8() & 1 ? ISCSI_NO_TAG : u8());
	number(p, bhs, flags);
	put_pdu(p, bhs, 0, len, flags);
}

/* 48 bytes as they come. */
static void raw(struct peer *p, unsigned flags)
{
	uint8_t bhs[ISCSI_BHS_LEN];
	uint8_t op;

	for (unsigned i = 0; i < ISCSI_BHS_LEN; i++)
		bhs[i] = u8();
	op = bhs[0] & ISCSI_OP_MASK;
	if (op == ISCSI_OP_DATA_OUT && get_be32(bhs + 20) != ISCSI_NO_TAG)
		serve(p, get_be32(bhs + 16), false, bhs[20]);
	else
		put_pdu(p, bhs,
			op == ISCSI_OP_COMMAND ? MIN(bhs[4] * 4u, 64u) : 0,
			MIN(get_be24(bhs + 5), MAX_RECV), flags);
}

/* ---- the world ---- */

static void set_target(const char *who)
{
	const char *allow[] = { who };

	CHECK_EQ(iscsi_target_set(iscsi,
				  &(struct iscsi_target_conf){ .iqn = IQN,
							       .allow = allow,
							       .allow_count =
								       1 }),
		 0);
}

static int set_unit(unsigned n, bool read_only)
{
	struct iscsi_lun_conf conf = { .iqn = IQN,
				       .lun = n,
				       .object = oids[n],
				       .name = "disk",
				       .read_only = read_only };

	conf.block_bytes = setup & SETUP_4K ? 4096 : 512;
	return iscsi_lun_set(iscsi, &conf); /* -ENOENT: no target */
}

static void storage(void)
{
	static const int errors[] = { -EIO, -ENOSPC, -EILSEQ, -ESTALE, -EBUSY };
	unsigned how = u8();

	switch (how & 7) {
	case 0:
	case 1:
		fake_dom_hold(dom, how & 1);
		break;
	case 2:
		fake_dom_stubborn(dom, how & 8);
		break;
	case 3:
		fake_dom_congestion(dom, &oids[0], u8());
		break;
	case 4:
		fake_dom_resize(dom, &oids[how >> 3 & 1],
				UNIT_BYTES >> (how >> 4 & 1));
		break;
	default:
		fake_dom_fault(dom,
			       (struct fake_fault){ .ops = u8(),
						    .skip = how >> 3 & 3,
						    .times = 1 + (how >> 5),
						    .status = errors[u8() % 5],
						    .at_once = how & 1 });
	}
}

static void first_session(const struct iscsi_session_info *info, void *arg)
{
	*(uint64_t *)arg = info->id;
}

static void administrator(void)
{
	unsigned how = u8();
	uint64_t id = 0;

	switch (how & 7) {
	case 0:
	case 1:
		set_unit(how & 1, how & 8);
		break;
	case 2:
	case 3:
		iscsi_lun_unset(iscsi, IQN, how & 1);
		break;
	case 4:
		iscsi_target_unset(iscsi, IQN);
		break;
	case 5:
		iscsi_session_each(iscsi, first_session, &id);
		iscsi_session_drop(iscsi, id);
		break;
	default:
		set_target(how & 8 ? "iqn.2026-11.example:other" : "any");
		set_unit(0, false);
	}
}

/* Memory that is somebody else's for a while. */
static void pressure(void)
{
	unsigned slot = u8() % ARRAY_LEN(hogs);

	if (hogs[slot] == NULL) {
		if (sgl_new(me.loop.env.pages, PAGE_FRONT, 15u << 20, 0,
			    &hogs[slot]) < 0)
			hogs[slot] = NULL;
		return;
	}
	sgl_put(hogs[slot]);
	hogs[slot] = NULL;
}

static void record(void)
{
	unsigned flags = u8(), n = (flags & PEER) != 0;
	struct peer *p = &peers[n];

	if (!p->open)
		log_in(n);
	if (!p->open || p->closing)
		return ready(100);
	switch (flags & KIND) {
	case 0:
	case 1:
		return read_write(p, flags);
	case 2:
		return any_command(p, flags);
	case 3:
		return data_out(p, flags);
	case 4:
		return serve(p, 0, true, flags >> 5);
	case 5:
		return task_management(p, flags);
	case 6:
		return control(p, flags, ISCSI_OP_NOP_OUT);
	case 7:
		return control(p, flags, ISCSI_OP_TEXT);
	case 8:
		return control(p, flags, ISCSI_OP_LOGOUT);
	case 9:
		return raw(p, flags);
	case 10:
		p->deaf = !p->deaf;
		return env_defer(&me.loop.env, &p->turn);
	case 11:
		return storage();
	case 12:
		return administrator();
	case 13:
		return pressure();
	case 14:
		return pass((uint64_t)(u16() + 1) * MSEC);
	default:
		return ready(flags >> 4);
	}
}

/* ---- from the beginning to the end ---- */

static void on_done(void *arg)
{
	*(bool *)arg = true;
}

static void set_up(void)
{
	struct sockaddr_in any4 = { .sin_family = AF_INET };
	struct iscsi_config config = { .env = &me.loop.env, .window = WINDOW };

	memenv_init(&me, NULL, 0);
	CHECK_EQ(fake_dom_open(&me.loop.env, &dom), 0);
	config.dom = dom;
	config.max_recv_data = MAX_RECV;
	CHECK_EQ(iscsi_open(&config, &iscsi), 0);
	CHECK_EQ(iscsi_portal_declare(iscsi, 1, (struct sockaddr *)&any4, 1),
		 0);
	set_target("any");
	ops.rdma = setup & SETUP_RDMA;
	for (unsigned n = 0; n < 2; n++) {
		memset(oids[n].b, (int)n + 1, sizeof(oids[n].b));
		CHECK_EQ(fake_dom_add(dom, &oids[n], UNIT_BYTES), 0);
		CHECK_EQ(set_unit(n, false), 0);
	}
	for (unsigned n = 0; n < PEERS; n++) {
		struct peer *p = &peers[n];

		memset(p, 0, sizeof(*p));
		TAILQ_INIT(&p->sends);
		TAILQ_INIT(&p->gets);
		TAILQ_INIT(&p->cancelled);
		p->turn.cb = on_turn;
	}
	ready(100);
}

/* Nothing holds a command up any more but the initiator. */
static void relieve(void)
{
	fake_dom_hold(dom, false);
	fake_dom_fault(dom, (struct fake_fault){ .ops = 0 });
	for (unsigned i = 0; i < ARRAY_LEN(hogs); i++) {
		sgl_put(hogs[i]);
		hogs[i] = NULL;
	}
	for (unsigned n = 0; n < PEERS; n++) {
		peers[n].deaf = false;
		env_defer(&me.loop.env, &peers[n].turn);
	}
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned n = 0; n < PEERS; n++)
			while (!TAILQ_EMPTY(&peers[n].gets) &&
			       !peers[n].closing) {
				serve(&peers[n], 0, true, 0);
				ready(10000);
			}
		pass(SEC / 2);
	}
}

/* The initiator still has to send unsolicited data of it. */
static bool owed(const struct task *task)
{
	return task->state == TASK_DATA && !task->final;
}

/* All is answered but what is owed data, and ordered commands behind that. */
static void check_answered(void)
{
	struct iscsi_session *s;
	struct task *task;
	bool any = false;

	TAILQ_FOREACH (s, &iscsi->sessions, link)
		TAILQ_FOREACH (task, &s->tasks, link)
			any |= owed(task);
	TAILQ_FOREACH (s, &iscsi->sessions, link) {
		TAILQ_FOREACH (task, &s->tasks, link)
			CHECK(owed(task) ||
			      (any && task->state == TASK_EXECUTE));
		if (s->conn != NULL && s->tasks_count == 0)
			CHECK(TAILQ_EMPTY(&s->conn->replies));
	}
}

static void tear_down(void)
{
	bool done = false;

	relieve();
	check_answered();
	pass(150 * SEC); /* nobody answers a ping, or sends what is missing */
	CHECK(TAILQ_EMPTY(&iscsi->conns) && TAILQ_EMPTY(&iscsi->sessions));
	for (unsigned n = 0; n < PEERS; n++)
		CHECK(!peers[n].open);
	iscsi_close(iscsi, 0, on_done, &done);
	CHECK(memenv_run(&me, &done));
	done = false;
	dom_close(dom, on_done, &done);
	CHECK(memenv_run(&me, &done));
	memenv_fini(&me); /* asserts that all pages came home */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 2 || size > 4096)
		return 0;
	log_level_set("iscsi", "error");
	setup = data[0];
	input.at = data + 1;
	input.end = data + size;
	set_up();
	while (more())
		record();
	tear_down();
	return 0;
}
