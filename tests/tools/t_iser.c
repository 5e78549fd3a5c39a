/*
 * t_iser: an initiator over iSER that does everything wrong.
 *
 *	t_iser [--only NAME] [--list] ADDRESS PORT TARGET CYCLES
 *
 * One cycle is each fault once, on a connection of its own, straight on librdmacm
 * and verbs: nothing here retries or repairs.  A fault after which the target
 * must hang up waits for that; one after which it must go on is followed by a
 * ping; the others vanish, in turn with a disconnect, by destroying the queue
 * pair, and after putting it into error.
 *
 * TARGET is a name, its LUN 0 has 512-byte blocks and at least 128 MiB, of which
 * the upper half is written to.  Prints a line a fault with how often it was done,
 * or "BAD FAULT: what".  Status 0; 1 BAD; 2 usage.
 */
#include "base/util.h"
#include "iser/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_MS 30000 /* guests are slow */
#define RECVS 64u
#define RECV_BYTES 8448u
#define SENDS 400u
#define SEND_BYTES 256u
#define BIG_BYTES (16u << 10)
#define DATA_BYTES (1u << 20)
#define SMALL_BYTES 4096u
#define LBA 131072u
#define CONTROL 0x10 /* an iSCSI control-type PDU, no STags */

/* All memory of the process that a device sees, registered once. */
static struct {
	uint8_t recv[RECVS][RECV_BYTES];
	uint8_t send[SENDS][SEND_BYTES];
	uint8_t big[BIG_BYTES];
	uint8_t data[DATA_BYTES];
} memory __attribute__((aligned(4096)));
static struct ibv_pd *pd;
static struct ibv_mr *all, *small; /* small: the first page of data */

static struct sockaddr_storage address;
static const char *target_name;
static const char *fault_name = "connect";
static unsigned cycle;
static uint32_t random_state = 1;

struct peer {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_comp_channel *comp;
	struct ibv_cq *cq;
	unsigned sent;
	uint32_t cmd_sn, stat_sn, itt;
	uint8_t isid[6];
	bool gone; /* the target hung up, or the queue pair is in error */
};

/* A message in a send slot, the next one's until it is posted. */
struct message {
	uint8_t *at, *bhs;
	uint32_t len;
};

__attribute__((format(printf, 1, 2), noreturn)) static void
bad(const char *format, ...)
{
	va_list args;

	printf("BAD %s: ", fault_name);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf(" (cycle %u)\n", cycle);
	exit(1);
}

static uint32_t random32(void)
{
	random_state = random_state * 1664525u + 1013904223u;
	return random_state ^ random_state >> 15;
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* ---- events and completions ---- */

/* The next event of the connection manager within @ms; -1: none. */
static int cm_event(struct peer *p, int64_t ms)
{
	struct pollfd fd = { .fd = p->channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	int type;

	if (poll(&fd, 1, (int)ms) <= 0 ||
	    rdma_get_cm_event(p->channel, &event) != 0)
		return -1;
	type = (int)event->event;
	rdma_ack_cm_event(event);
	if (type == RDMA_CM_EVENT_DISCONNECTED ||
	    type == RDMA_CM_EVENT_REJECTED)
		p->gone = true;
	return type;
}

static void cm_want(struct peer *p, enum rdma_cm_event_type type)
{
	int got = cm_event(p, LIMIT_MS);

	if (got != (int)type)
		bad("%s instead of %s",
		    got < 0 ? "nothing" : rdma_event_str((unsigned)got),
		    rdma_event_str(type));
}

/* A completed receive: its bytes, or NULL if there is none now. */
static const uint8_t *completed(struct peer *p, uint32_t *len)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(p->cq, 1, &wc) > 0) {
		if (wc.status != IBV_WC_SUCCESS)
			p->gone = true;
		else if (wc.wr_id < RECVS) {
			*len = wc.byte_len;
			return memory.recv[wc.wr_id];
		}
	}
	return NULL;
}

/* The next PDU within LIMIT_MS: its BHS.  NULL: the target hung up. */
static const uint8_t *receive(struct peer *p)
{
	int64_t until = now_ms() + LIMIT_MS;
	const uint8_t *got;
	uint32_t len;

	while ((got = completed(p, &len)) == NULL && !p->gone) {
		struct pollfd fds[] = {
			{ .fd = p->comp->fd, .events = POLLIN },
			{ .fd = p->channel->fd, .events = POLLIN },
		};
		struct ibv_cq *cq;
		void *context;

		if (ibv_req_notify_cq(p->cq, 0) != 0)
			bad("no notification");
		got = completed(p, &len);
		if (got != NULL)
			break;
		if (now_ms() > until)
			bad("no answer and no end within %d s",
			    LIMIT_MS / 1000);
		if (poll(fds, 2, 1000) <= 0)
			continue;
		if (fds[0].revents != 0 &&
		    ibv_get_cq_event(p->comp, &cq, &context) == 0)
			ibv_ack_cq_events(cq, 1);
		if (fds[1].revents != 0)
			(void)cm_event(p, 0);
	}
	if (got == NULL)
		return NULL;
	if (len < ISER_FIXED_LEN)
		bad("a message of %u bytes", len);
	got += ISER_HEADER_LEN;
	p->stat_sn = get_be32(got + 24) + 1;
	return got;
}

/* ---- connecting ---- */

static void memory_open(struct ibv_context *verbs)
{
	int rights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
		     IBV_ACCESS_REMOTE_WRITE;

	if (pd != NULL)
		return;
	pd = ibv_alloc_pd(verbs);
	all = pd != NULL ? ibv_reg_mr(pd, &memory, sizeof(memory), rights)
			 : NULL;
	small = all != NULL ? ibv_reg_mr(pd, memory.data, SMALL_BYTES, rights)
			    : NULL;
	if (small == NULL)
		bad("memory: %s", strerror(errno));
}

static void queues_open(struct peer *p)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = SENDS,
			 .max_recv_wr = RECVS,
			 .max_send_sge = 1,
			 .max_recv_sge = 1 },
	};

	p->comp = ibv_create_comp_channel(p->id->verbs);
	if (p->comp == NULL)
		bad("channel: %s", strerror(errno));
	p->cq = ibv_create_cq(p->id->verbs, RECVS + SENDS, NULL, p->comp, 0);
	attr.send_cq = attr.recv_cq = p->cq;
	if (p->cq == NULL || rdma_create_qp(p->id, pd, &attr) != 0)
		bad("queue pair: %s", strerror(errno));
	for (unsigned i = 0; i < RECVS; i++) {
		struct ibv_sge sge = { .addr = (uintptr_t)memory.recv[i],
				       .length = RECV_BYTES,
				       .lkey = all->lkey };
		struct ibv_recv_wr wr = { .wr_id = i,
					  .sg_list = &sge,
					  .num_sge = 1 };
		struct ibv_recv_wr *wrong;

		if (ibv_post_recv(p->id->qp, &wr, &wrong) != 0)
			bad("receive: %s", strerror(errno));
	}
}

/* Up to the request; the answer is not awaited. */
static void request(struct peer *p)
{
	/* Base offsets are addresses; nothing is invalidated for us. */
	uint8_t private[ISER_CM_LEN] = { 0xc0 };
	struct rdma_conn_param param = {
		.private_data = private,
		.private_data_len = sizeof(private),
		.responder_resources = 4,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};

	memset(p, 0, sizeof(*p));
	p->cmd_sn = 1;
	put_be32(p->isid, random32());
	p->isid[0] = 0x80;
	put_be16(p->isid + 4, (uint16_t)random32());
	p->channel = rdma_create_event_channel();
	if (p->channel == NULL ||
	    rdma_create_id(p->channel, &p->id, NULL, RDMA_PS_TCP) != 0)
		bad("id: %s", strerror(errno));
	if (rdma_resolve_addr(p->id, NULL, (struct sockaddr *)&address, 5000))
		bad("address: %s", strerror(errno));
	cm_want(p, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rdma_resolve_route(p->id, 5000) != 0)
		bad("route: %s", strerror(errno));
	cm_want(p, RDMA_CM_EVENT_ROUTE_RESOLVED);
	memory_open(p->id->verbs);
	queues_open(p);
	if (rdma_connect(p->id, &param) != 0)
		bad("connect: %s", strerror(errno));
}

static void fail(struct peer *p)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	(void)ibv_modify_qp(p->id->qp, &attr, IBV_QP_STATE);
}

/* Be gone, in one of three ways. */
static void vanish(struct peer *p)
{
	static unsigned turn;

	if (turn % 3 == 0)
		(void)rdma_disconnect(p->id);
	else if (turn % 3 == 1)
		fail(p);
	turn++;
	rdma_destroy_qp(p->id);
	ibv_destroy_cq(p->cq);
	ibv_destroy_comp_channel(p->comp);
	rdma_destroy_id(p->id);
	rdma_destroy_event_channel(p->channel);
}

/* ---- PDUs ---- */

static struct message message(struct peer *p, uint8_t op, uint8_t flags)
{
	struct message m;

	if (p->sent == SENDS)
		bad("too many messages");
	m.at = memory.send[p->sent];
	m.bhs = m.at + ISER_HEADER_LEN;
	m.len = ISER_FIXED_LEN;
	memset(m.at, 0, SEND_BYTES);
	m.at[0] = CONTROL;
	m.bhs[0] = op;
	m.bhs[1] = flags;
	put_be32(m.bhs + 16, ++p->itt);
	put_be32(m.bhs + 24, p->cmd_sn);
	put_be32(m.bhs + 28, p->stat_sn);
	return m;
}

static void post(struct peer *p, void *at, uint32_t len, uint32_t lkey,
		 enum ibv_wr_opcode opcode, uint64_t remote, uint32_t rkey)
{
	struct ibv_sge sge = { .addr = (uintptr_t)at,
			       .length = len,
			       .lkey = lkey };
	struct ibv_send_wr wr = { .wr_id = RECVS + p->sent++,
				  .sg_list = &sge,
				  .num_sge = len > 0 ? 1 : 0,
				  .opcode = opcode,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *wrong;

	wr.wr.rdma.remote_addr = remote;
	wr.wr.rdma.rkey = rkey;
	/* Refused: the target was quicker with hanging up. */
	if (ibv_post_send(p->id->qp, &wr, &wrong) != 0)
		p->gone = true;
}

static void send_message(struct peer *p, const struct message *m)
{
	if ((m->bhs[0] & ISCSI_IMMEDIATE) == 0)
		p->cmd_sn++;
	post(p, m->at, m->len, all->lkey, IBV_WR_SEND, 0, 0);
}

static void data_add(struct message *m, const void *data, uint32_t len)
{
	memcpy(m->at + m->len, data, len);
	m->len += len;
	put_be24(m->bhs + 5, m->len - ISER_FIXED_LEN);
}

enum { NONE, READ = 0x40, WRITE = 0x20 };

/* A SCSI Command that moves @len bytes at LBA through @mr. */
static struct message command(struct peer *p, unsigned way, uint32_t len,
			      uint32_t rkey)
{
	struct message m =
		message(p, ISCSI_OP_COMMAND, (uint8_t)(ISCSI_FINAL | way | 1));
	uint8_t *stag = m.at + (way == WRITE ? 4 : 16);

	put_be32(m.bhs + 20, len);
	if (way == NONE)
		return m;
	m.bhs[32] = way == READ ? 0x28 : 0x2a;
	put_be32(m.bhs + 34, LBA + random32() % 65536);
	put_be16(m.bhs + 39, (uint16_t)(len / 512));
	m.at[0] |= way == WRITE ? 0x08 : 0x04;
	put_be32(stag, rkey);
	put_be64(stag + 4, (uintptr_t)memory.data);
	return m;
}

static void transfer(struct peer *p, unsigned way, uint32_t len, uint32_t rkey)
{
	struct message m = command(p, way, len, rkey);

	send_message(p, &m);
}

static struct message login_message(struct peer *p, uint8_t flags)
{
	static const char *const keys[] = {
		"InitiatorName=iqn.2026-11.internal.basalt:faults",
		"SessionType=Normal",
		"RDMAExtensions=Yes",
		"InitialR2T=Yes",
	};
	struct message m = message(p, ISCSI_OP_LOGIN | ISCSI_IMMEDIATE, flags);
	char name[100];
	int len = snprintf(name, sizeof(name), "TargetName=%s", target_name);

	p->itt = 0;
	put_be32(m.bhs + 16, 0);
	put_be32(m.bhs + 20, 0);
	memcpy(m.bhs + 8, p->isid, sizeof(p->isid));
	for (size_t i = 0; i < ARRAY_LEN(keys); i++)
		data_add(&m, keys[i], (uint32_t)strlen(keys[i]) + 1);
	data_add(&m, name, (uint32_t)len + 1);
	return m;
}

#define LOGIN_LAST 0x87 /* T, operational negotiation to full feature phase */

static void login(struct peer *p)
{
	struct message m = login_message(p, LOGIN_LAST);
	const uint8_t *bhs;

	send_message(p, &m);
	bhs = receive(p);
	if (bhs == NULL)
		bad("hung up during login");
	if (bhs[0] != ISCSI_OP_LOGIN_RSP || get_be16(bhs + 36) != 0 ||
	    bhs[1] != LOGIN_LAST)
		bad("login: opcode %#x flags %#x status %#x", bhs[0], bhs[1],
		    get_be16(bhs + 36));
}

/* TEST UNIT READY until nothing is there to be told. */
static void ready(struct peer *p)
{
	const uint8_t *bhs;

	for (unsigned i = 0; i < 8; i++) {
		transfer(p, NONE, 0, 0);
		bhs = receive(p);
		if (bhs == NULL)
			bad("hung up after login");
		if (bhs[0] == ISCSI_OP_RESPONSE && bhs[3] == 0)
			return;
	}
	bad("the unit does not become ready");
}

static void expect_end(struct peer *p)
{
	while (receive(p) != NULL)
		;
}

static void expect_answer(struct peer *p, uint8_t opcode)
{
	const uint8_t *bhs;

	do {
		bhs = receive(p);
		if (bhs == NULL)
			bad("hung up where it must go on");
	} while (bhs[0] != opcode);
}

static void ping(struct peer *p)
{
	struct message m =
		message(p, ISCSI_OP_NOP_OUT | ISCSI_IMMEDIATE, ISCSI_FINAL);

	put_be32(m.bhs + 20, ISCSI_NO_TAG);
	send_message(p, &m);
	expect_answer(p, ISCSI_OP_NOP_IN);
}

/* ---- the faults: before and during login ---- */

static void f_nothing(struct peer *p)
{
}

static void f_login_begun(struct peer *p)
{
	struct message m = login_message(p, ISCSI_CONTINUE | 0x04);

	send_message(p, &m);
	if (cycle & 1)
		(void)receive(p);
}

static void f_login_unread(struct peer *p)
{
	struct message m = login_message(p, LOGIN_LAST);

	send_message(p, &m);
}

static void f_login_text(struct peer *p)
{
	struct message m =
		message(p, ISCSI_OP_LOGIN | ISCSI_IMMEDIATE, LOGIN_LAST);

	for (unsigned i = 0; i < 100; i++) {
		uint8_t byte = (uint8_t)random32();

		data_add(&m, &byte, 1);
	}
	send_message(p, &m);
}

static void f_login_command(struct peer *p)
{
	transfer(p, READ, 4096, all->rkey);
}

/* ---- in full feature phase ---- */

static void f_gets_in_flight(struct peer *p)
{
	for (unsigned i = 0; i < 1 + cycle % 8; i++)
		transfer(p, WRITE, DATA_BYTES, all->rkey);
}

static void f_puts_in_flight(struct peer *p)
{
	for (unsigned i = 0; i < 1 + cycle % 8; i++)
		transfer(p, READ, DATA_BYTES, all->rkey);
}

static void f_both_in_flight(struct peer *p)
{
	for (unsigned i = 0; i < 32; i++)
		transfer(p, i & 1 ? WRITE : READ, 4096u << i % 6, all->rkey);
	if (cycle & 1)
		(void)receive(p);
}

static void f_write_rkey(struct peer *p)
{
	transfer(p, WRITE, 65536, all->rkey ^ 0x5a5a00);
}

static void f_read_rkey(struct peer *p)
{
	transfer(p, READ, 65536, all->rkey ^ 0x5a5a00);
}

static void f_write_beyond(struct peer *p)
{
	transfer(p, WRITE, 65536, small->rkey);
}

static void f_read_beyond(struct peer *p)
{
	transfer(p, READ, 65536, small->rkey);
}

static void f_no_stag(struct peer *p)
{
	struct message m = command(p, cycle & 1 ? READ : WRITE, 65536, 0);

	m.at[0] &= 0xf0;
	send_message(p, &m);
}

static void f_hello(struct peer *p)
{
	struct message m = message(p, ISCSI_OP_NOP_OUT, ISCSI_FINAL);

	m.at[0] = (uint8_t)((cycle % 15 + 2) << 4 & 0xf0);
	send_message(p, &m);
}

static void f_short(struct peer *p)
{
	struct message m = command(p, NONE, 0, 0);

	m.len = random32() % ISER_FIXED_LEN;
	send_message(p, &m);
}

static void f_data_length(struct peer *p)
{
	struct message m = command(p, NONE, 0, 0);

	put_be24(m.bhs + 5, 1 + random32() % 0xfffff);
	send_message(p, &m);
}

static void f_ahs_length(struct peer *p)
{
	struct message m = command(p, NONE, 0, 0);

	m.bhs[4] = (uint8_t)(1 + random32() % 255);
	send_message(p, &m);
}

static void f_opcode(struct peer *p)
{
	struct message m = message(p, ISCSI_OP_DATA_OUT, ISCSI_FINAL);

	put_be32(m.bhs + 20, 5);
	send_message(p, &m);
}

static void f_too_long(struct peer *p)
{
	memset(memory.big, 0, sizeof(memory.big));
	memory.big[0] = CONTROL;
	post(p, memory.big, sizeof(memory.big), all->lkey, IBV_WR_SEND, 0, 0);
}

/* More immediate PDUs, and more commands, than anybody granted. */
static void f_flood_pings(struct peer *p)
{
	for (unsigned i = 0; i < 300; i++) {
		struct message m = message(
			p, ISCSI_OP_NOP_OUT | ISCSI_IMMEDIATE, ISCSI_FINAL);

		put_be32(m.bhs + 20, ISCSI_NO_TAG);
		send_message(p, &m);
	}
}

static void f_flood_commands(struct peer *p)
{
	for (unsigned i = 0; i < 300; i++)
		transfer(p, NONE, 0, 0);
}

/* Its queue pair ends in error: nobody may touch the target's memory. */
static void f_write_to_it(struct peer *p)
{
	post(p, memory.data, 4096, all->lkey, IBV_WR_RDMA_WRITE,
	     (uintptr_t)memory.data, random32());
}

static void f_abort(struct peer *p)
{
	struct message m;

	transfer(p, WRITE, DATA_BYTES, all->rkey);
	m = message(p, ISCSI_OP_TMF | ISCSI_IMMEDIATE, ISCSI_FINAL | 1);
	put_be32(m.bhs + 20, p->itt - 1);
	put_be32(m.bhs + 32, p->cmd_sn - 1);
	send_message(p, &m);
	expect_answer(p, ISCSI_OP_TMF_RSP);
}

static void f_logout(struct peer *p)
{
	struct message m;

	transfer(p, WRITE, 65536, all->rkey);
	m = message(p, ISCSI_OP_LOGOUT | ISCSI_IMMEDIATE, ISCSI_FINAL);
	send_message(p, &m);
	expect_answer(p, ISCSI_OP_LOGOUT_RSP);
}

static void settle(struct peer *p)
{
	cm_want(p, RDMA_CM_EVENT_ESTABLISHED);
	login(p);
}

/*
 * The same initiator port logs in again: the first session ends.  The other one
 * reads the login's answer only, in the first receive buffer, which the first
 * one is past.
 */
static void f_again(struct peer *p)
{
	struct peer other;

	transfer(p, READ, DATA_BYTES, all->rkey);
	request(&other);
	memcpy(other.isid, p->isid, sizeof(other.isid));
	settle(&other);
	vanish(&other);
}

/* ---- the list ---- */

enum step { REQUESTED, CONNECTED, LOGGED_IN, READY };
enum after { VANISHES, ENDS, GOES_ON };

static const struct fault {
	const char *name;
	enum step from;
	enum after after;
	void (*run)(struct peer *p);
} faults[] = {
	{ "gone-before-established", REQUESTED, VANISHES, f_nothing },
	{ "gone-before-login", CONNECTED, VANISHES, f_nothing },
	{ "gone-in-negotiation", CONNECTED, VANISHES, f_login_begun },
	{ "login-response-unread", CONNECTED, VANISHES, f_login_unread },
	{ "login-no-text", CONNECTED, ENDS, f_login_text },
	{ "command-before-login", CONNECTED, ENDS, f_login_command },
	{ "gone-after-login", LOGGED_IN, VANISHES, f_nothing },
	{ "rdma-reads-in-flight", READY, VANISHES, f_gets_in_flight },
	{ "rdma-writes-posted", READY, VANISHES, f_puts_in_flight },
	{ "both-in-flight", READY, VANISHES, f_both_in_flight },
	{ "wrong-rkey-of-write", READY, ENDS, f_write_rkey },
	{ "wrong-rkey-of-read", READY, ENDS, f_read_rkey },
	{ "write-beyond-buffer", READY, ENDS, f_write_beyond },
	{ "read-beyond-buffer", READY, ENDS, f_read_beyond },
	{ "command-without-stag", LOGGED_IN, ENDS, f_no_stag },
	{ "header-opcode", LOGGED_IN, ENDS, f_hello },
	{ "short-message", LOGGED_IN, ENDS, f_short },
	{ "data-length", LOGGED_IN, ENDS, f_data_length },
	{ "ahs-length", LOGGED_IN, ENDS, f_ahs_length },
	{ "solicited-data-out", LOGGED_IN, ENDS, f_opcode },
	{ "message-beyond-receive", LOGGED_IN, ENDS, f_too_long },
	{ "flood-of-pings", LOGGED_IN, VANISHES, f_flood_pings },
	{ "flood-of-commands", LOGGED_IN, VANISHES, f_flood_commands },
	{ "rdma-write-to-target", LOGGED_IN, ENDS, f_write_to_it },
	{ "abort-under-rdma-read", READY, GOES_ON, f_abort },
	{ "session-again", READY, ENDS, f_again },
	{ "logout-under-io", READY, VANISHES, f_logout },
};

static void fault_run(const struct fault *f)
{
	struct peer p;

	fault_name = f->name;
	request(&p);
	if (f->from >= CONNECTED)
		cm_want(&p, RDMA_CM_EVENT_ESTABLISHED);
	if (f->from >= LOGGED_IN)
		login(&p);
	if (f->from >= READY)
		ready(&p);
	f->run(&p);
	if (f->after == ENDS)
		expect_end(&p);
	else if (f->after == GOES_ON)
		ping(&p);
	vanish(&p);
}

static int usage(void)
{
	fprintf(stderr, "t_iser [--only NAME] [--list] ADDRESS PORT "
			"TARGET CYCLES\n");
	return 2;
}

static int list(void)
{
	for (size_t i = 0; i < ARRAY_LEN(faults); i++)
		puts(faults[i].name);
	return 0;
}

static int resolve(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
				  .ai_socktype = SOCK_STREAM };
	struct addrinfo *found;

	if (getaddrinfo(host, port, &hints, &found) != 0)
		return -EINVAL;
	memcpy(&address, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "only", required_argument, NULL, 'o' },
		{ "list", no_argument, NULL, 'l' },
		{ 0 },
	};
	const char *only = NULL;
	unsigned cycles;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 'l')
			return list();
		if (c != 'o')
			return usage();
		only = optarg;
	}
	if (optind + 4 != argc || resolve(argv[optind], argv[optind + 1]) < 0)
		return usage();
	target_name = argv[optind + 2];
	cycles = (unsigned)strtoul(argv[optind + 3], NULL, 10);
	random_state = (uint32_t)now_ms();
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (cycle = 0; cycle < cycles; cycle++) {
		for (size_t i = 0; i < ARRAY_LEN(faults); i++)
			if (only == NULL || strcmp(only, faults[i].name) == 0)
				fault_run(&faults[i]);
		if ((cycle + 1) % 50 == 0 || cycle + 1 == cycles)
			printf("%u cycles\n", cycle + 1);
	}
	return 0;
}
