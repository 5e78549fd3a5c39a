/*
 * t_crowd: many initiators at once, as those of many hosts.
 *
 *	t_crowd ADDRESS PORT TARGET TARGETS SESSIONS SECONDS WAY BYTES DEPTH END
 *		SOURCE...
 *
 * All connect at the same time, each from one of the SOURCE addresses, to TARGET,
 * or, with TARGETS of them, to TARGET0 .. TARGETn, and again when they are refused.
 * When the last one is logged in each sends DEPTH commands, or as many as its window
 * lets it, and another one behind each answer, for SECONDS: WAY read, write, both,
 * or immediate, with BYTES of data each.  Then all of them are answered, and END
 * comes for all at once: logout, disconnect, vanish (their queue pairs are
 * destroyed), or exit (this process ends).  Or END is killed: exit, in the midst of
 * it.
 *
 * Over iSER; or, with ADDRESS written tcp:ADDRESS, over TCP: WAY read alone, and all
 * ENDs but exit and killed are a logout.
 *
 * Prints "NAME VALUE" lines: of all commands the slowest; of all sessions those with
 * least and most answers in SECONDS, what is outstanding then, and the longest time
 * that one of them was answered none.  Status 0, 1 with a line "BAD: what", 2 usage.
 */
#include "base/util.h"
#include "iser/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_MS 300000 /* guests are slow */
#define AGAIN_MS 1000
#define RECVS 8192u
#define RECV_BYTES 1024u
#define SLOTS 256u /* of a session, more than its window */
#define SLOT_BYTES 512u
#define CQES 32000
#define TABLE 65536u
#define BLOCKS 65536u /* of a unit, 512 bytes each */
#define CONTROL 0x10
#define STREAM_BYTES 65536u
#define SEND_BYTES (1 << 20) /* for a window of commands */

enum state { IDLE, ASKED, LOGIN, ATTENTION, READY, OVER };

struct session {
	struct rdma_cm_id *id; /* or */
	int fd;
	uint8_t head[ISCSI_BHS_LEN]; /* of what comes from it */
	unsigned head_len, skip;
	unsigned number;
	enum state state;
	int64_t again_ms;
	uint8_t *slots;
	unsigned sent;
	uint32_t itt, cmd_sn, max_cmd_sn, stat_sn;
	unsigned outstanding, done;
	int64_t sent_ms[SLOTS]; /* by itt */
	int64_t heard_ms; /* the last answer, or the beginning */
};

static struct session *sessions;
static unsigned sessions_count, targets_count;
static struct session *by_qp[TABLE];
static struct rdma_event_channel *channel;
static struct ibv_context *verbs;
static struct ibv_pd *pd;
static struct ibv_srq *srq;
static struct ibv_cq *cq;
static struct ibv_mr *recv_mr, *slots_mr, *data_mr;
static uint8_t *recvs, *slots, *data;
static struct sockaddr_in address, *sources;
static unsigned sources_count;
static const char *target_name, *way;
static uint32_t bytes;
static unsigned depth; /* commands of a session, or its window */
static bool tcp;
static int watched; /* TCP's */
static struct {
	unsigned refused, unreachable, busy, failed, lost, ready, over, pings,
		asked;
	unsigned long done;
	int64_t slowest_ms, gap_ms;
	unsigned window;
} count;
static bool flood, ending;

__attribute__((format(printf, 1, 2), noreturn)) static void
bad(const char *format, ...)
{
	va_list args;

	printf("BAD: ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
	exit(1);
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* ---- what all of them share ---- */

static void receive_post(uint64_t i)
{
	struct ibv_sge sge = { .addr = (uintptr_t)recvs + i * RECV_BYTES,
			       .length = RECV_BYTES,
			       .lkey = recv_mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = i << 1 | 1,
				  .sg_list = &sge,
				  .num_sge = 1 };
	struct ibv_recv_wr *wrong;

	if (ibv_post_srq_recv(srq, &wr, &wrong) != 0)
		bad("receive: %s", strerror(errno));
}

static struct ibv_mr *registered(uint8_t **at, size_t len)
{
	struct ibv_mr *mr;

	*at = aligned_alloc(4096, ROUND_UP(len, (size_t)4096));
	if (*at == NULL)
		bad("memory");
	mr = ibv_reg_mr(pd, *at, len,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
				IBV_ACCESS_REMOTE_WRITE);
	if (mr == NULL)
		bad("register: %s", strerror(errno));
	return mr;
}

static void device_open(struct ibv_context *on)
{
	struct ibv_srq_init_attr attr = {
		.attr = { .max_wr = RECVS, .max_sge = 1 },
	};

	if (pd != NULL)
		return;
	verbs = on;
	pd = ibv_alloc_pd(verbs);
	if (pd == NULL)
		bad("protection domain: %s", strerror(errno));
	recv_mr = registered(&recvs, (size_t)RECVS * RECV_BYTES);
	slots_mr =
		registered(&slots, (size_t)sessions_count * SLOTS * SLOT_BYTES);
	data_mr = registered(&data, MAX(bytes, 4096u));
	srq = ibv_create_srq(pd, &attr);
	cq = ibv_create_cq(verbs, CQES, NULL, NULL, 0);
	if (srq == NULL || cq == NULL)
		bad("queues: %s", strerror(errno));
	for (unsigned i = 0; i < RECVS; i++)
		receive_post(i);
}

/* ---- connecting ---- */

static void begin(struct session *s)
{
	struct sockaddr_in *from = &sources[s->number % sources_count];

	s->state = ASKED;
	if (rdma_create_id(channel, &s->id, s, RDMA_PS_TCP) != 0)
		bad("id: %s", strerror(errno));
	if (rdma_resolve_addr(s->id, (struct sockaddr *)from,
			      (struct sockaddr *)&address, 20000) != 0)
		bad("address: %s", strerror(errno));
}

static void connect_to(struct session *s)
{
	uint8_t private[ISER_CM_LEN] = { strcmp(way, "immediate") == 0 ? 0x80
								       : 0xc0 };
	struct rdma_conn_param param = {
		.private_data = private,
		.private_data_len = sizeof(private),
		.responder_resources = 4,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = { .max_send_wr = 2 * depth + 8, .max_send_sge = 2 },
	};

	device_open(s->id->verbs);
	attr.send_cq = attr.recv_cq = cq;
	attr.srq = srq;
	if (rdma_create_qp(s->id, pd, &attr) != 0)
		bad("queue pair: %s", strerror(errno));
	by_qp[s->id->qp->qp_num % TABLE] = s;
	s->slots = slots + (size_t)s->number * SLOTS * SLOT_BYTES;
	s->sent = 0;
	s->outstanding = 0;
	s->cmd_sn = 1;
	s->itt = 0;
	if (rdma_connect(s->id, &param) != 0)
		bad("connect: %s", strerror(errno));
}

static void undo(struct session *s)
{
	if (s->id->qp != NULL) {
		by_qp[s->id->qp->qp_num % TABLE] = NULL;
		rdma_destroy_qp(s->id);
	}
	rdma_destroy_id(s->id);
	s->id = NULL;
}

/* ---- PDUs ---- */

static uint8_t *message(struct session *s, uint8_t op, uint8_t flags)
{
	uint8_t *at = s->slots + (size_t)(s->sent % SLOTS) * SLOT_BYTES;
	uint8_t *bhs = at + ISER_HEADER_LEN;

	memset(at, 0, SLOT_BYTES);
	at[0] = CONTROL;
	bhs[0] = op;
	bhs[1] = flags;
	put_be32(bhs + 16, s->itt);
	s->sent_ms[s->itt++ % SLOTS] = now_ms();
	put_be32(bhs + 24, s->cmd_sn);
	put_be32(bhs + 28, s->stat_sn);
	return at;
}

static void stream_send(const struct session *s, const uint8_t *at,
			uint32_t len)
{
	len = ROUND_UP(len, 4u); /* slots are cleared */
	if (send(s->fd, at, len, MSG_NOSIGNAL) != (ssize_t)len && !ending)
		bad("session %u: send: %s", s->number, strerror(errno));
}

static void post(struct session *s, uint8_t *at, uint32_t len, uint32_t more)
{
	struct ibv_sge sge[2] = {
		{ .addr = (uintptr_t)at, .length = len },
		{ .addr = (uintptr_t)data, .length = more },
	};
	struct ibv_send_wr wr = { .wr_id = 0,
				  .sg_list = sge,
				  .num_sge = more > 0 ? 2 : 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *wrong;
	int rv;

	s->sent++;
	if (tcp) {
		stream_send(s, at + ISER_HEADER_LEN, len - ISER_HEADER_LEN);
		return;
	}
	sge[0].lkey = slots_mr->lkey;
	sge[1].lkey = data_mr->lkey;
	rv = ibv_post_send(s->id->qp, &wr, &wrong);
	if (rv != 0 && !ending)
		bad("session %u: send: %s", s->number, strerror(rv));
}

static void login(struct session *s)
{
	uint8_t *at = message(s, 0x43, 0x87), *bhs = at + ISER_HEADER_LEN;
	char text[400], which[12] = "";
	int n;

	if (targets_count > 0)
		snprintf(which, sizeof(which), "%u", s->number % targets_count);
	n = snprintf(text, sizeof(text),
		     "InitiatorName=iqn.2026-11.internal.basalt:crowd%u%c"
		     "SessionType=Normal%cRDMAExtensions=%s%c"
		     "ImmediateData=Yes%cInitialR2T=Yes%cTargetName=%s%s%c",
		     s->number, 0, 0, tcp ? "No" : "Yes", 0, 0, 0, target_name,
		     which, 0);
	if (n < 0 || (size_t)n > sizeof(text))
		bad("a long name");
	s->state = LOGIN;
	bhs[8] = 0x80;
	put_be32(bhs + 9, s->number);
	put_be24(bhs + 5, (uint32_t)n);
	memcpy(at + ISER_FIXED_LEN, text, (size_t)n);
	post(s, at, ISER_FIXED_LEN + (uint32_t)n, 0);
}

static void command(struct session *s, bool ready)
{
	bool read = way[0] == 'r' || (way[0] == 'b' && s->itt % 2 == 0);
	uint8_t flags = (uint8_t)(0x81 | (ready ? 0 : read ? 0x40 : 0x20));
	uint8_t *at = message(s, 0x01, flags), *bhs = at + ISER_HEADER_LEN;
	uint8_t *stag = at + (read ? 16 : 4);
	uint32_t blocks = bytes / 512, more = 0;

	s->cmd_sn++;
	s->outstanding++;
	if (!ready) {
		put_be32(bhs + 20, bytes);
		bhs[32] = read ? 0x28 : 0x2a;
		put_be32(bhs + 34,
			 (uint32_t)random() % (BLOCKS / blocks) * blocks);
		put_be16(bhs + 39, (uint16_t)blocks);
		if (way[0] == 'i') {
			more = bytes;
			put_be24(bhs + 5, more);
		} else {
			at[0] |= read ? 0x04 : 0x08;
			put_be32(stag, tcp ? 0 : data_mr->rkey);
			put_be64(stag + 4, (uintptr_t)data);
		}
	}
	post(s, at, ISER_FIXED_LEN, more);
}

/* The target asks whether it is there. */
static void pong(struct session *s, uint32_t tag)
{
	uint8_t *at = message(s, 0x40, 0x80), *bhs = at + ISER_HEADER_LEN;

	put_be32(bhs + 16, 0xffffffff);
	put_be32(bhs + 20, tag);
	count.pings++;
	post(s, at, ISER_FIXED_LEN, 0);
}

static void logout(struct session *s)
{
	uint8_t *at = message(s, 0x46, 0x80);

	post(s, at, ISER_FIXED_LEN, 0);
}

static void fill(struct session *s)
{
	while (flood && s->outstanding < depth &&
	       (int32_t)(s->max_cmd_sn - s->cmd_sn) >= 0)
		command(s, false);
}

/* ---- answers ---- */

static void over(struct session *s)
{
	if (s->state == OVER)
		return;
	s->state = OVER;
	count.over++;
}

static void answered(struct session *s, const uint8_t *bhs)
{
	int64_t now = now_ms();
	int64_t took = now - s->sent_ms[get_be32(bhs + 16) % SLOTS];

	s->outstanding--;
	if (s->heard_ms != 0) {
		count.gap_ms = MAX(count.gap_ms, now - s->heard_ms);
		s->heard_ms = now;
	}
	if (s->state == ATTENTION) {
		if (bhs[3] != 0) {
			command(s, true);
			return;
		}
		s->state = READY;
		count.ready++;
		return;
	}
	if (bhs[3] == 0) {
		s->done++;
		count.done++;
		count.slowest_ms = MAX(count.slowest_ms, took);
	} else if (bhs[3] == 8 || bhs[3] == 0x28) {
		count.busy++;
	} else {
		/* Behind its length lies the sense. */
		if (count.failed++ == 0)
			printf("failed: status %u, sense %x/%02x/%02x after "
			       "%lld ms\n",
			       bhs[3], bhs[48 + 4] & 15u, bhs[48 + 14],
			       bhs[48 + 15], (long long)took);
	}
	fill(s);
}

/* What was granted is not taken back (RFC 7143 4.2.2.1). */
static void window(struct session *s, const uint8_t *bhs)
{
	uint32_t exp = get_be32(bhs + 28), max = get_be32(bhs + 32);

	if ((s->state > LOGIN && (int32_t)(max - s->max_cmd_sn) < 0) ||
	    (int32_t)(max + 1 - exp) < 0)
		bad("session %u: MaxCmdSN %u behind %u, ExpCmdSN %u", s->number,
		    max, s->max_cmd_sn, exp);
	s->max_cmd_sn = max;
}

static void arrived(struct session *s, const uint8_t *bhs)
{
	window(s, bhs);
	s->stat_sn = get_be32(bhs + 24) + 1;
	switch (bhs[0] & 0x3f) {
	case 0x23:
		if (get_be16(bhs + 36) != 0)
			bad("session %u: login status %#x", s->number,
			    get_be16(bhs + 36));
		s->state = ATTENTION;
		command(s, true);
		break;
	case 0x25:
		if ((bhs[1] & 1) == 0)
			break;
		/* FALLTHRU */
	case 0x21:
		answered(s, bhs);
		count.window = MAX(count.window,
				   s->max_cmd_sn - get_be32(bhs + 28) + 1);
		break;
	case 0x26:
		over(s);
		break;
	case 0x20:
		if (get_be32(bhs + 20) != 0xffffffff)
			pong(s, get_be32(bhs + 20));
		break;
	default:
		bad("session %u: opcode %#x", s->number, bhs[0]);
	}
}

static void lost(struct session *s, const char *why)
{
	if (s->state == OVER)
		return;
	if (!ending) {
		if (count.lost++ < 5)
			printf("lost: session %u in state %d, %u outstanding: "
			       "%s\n",
			       s->number, s->state, s->outstanding, why);
		if (s->state == READY)
			count.ready--;
	}
	over(s);
}

static bool completions(void)
{
	struct ibv_wc wc[64];
	int n = cq != NULL ? ibv_poll_cq(cq, 64, wc) : 0;

	for (int i = 0; i < n; i++) {
		struct session *s = by_qp[wc[i].qp_num % TABLE];
		uint64_t slot = wc[i].wr_id >> 1;
		bool receive = wc[i].wr_id & 1;

		if (s != NULL && wc[i].status != IBV_WC_SUCCESS)
			lost(s, ibv_wc_status_str(wc[i].status));
		else if (s != NULL && receive)
			arrived(s, recvs + slot * RECV_BYTES + ISER_HEADER_LEN);
		if (receive)
			receive_post(slot);
	}
	return n > 0;
}

/* ---- TCP ---- */

static void stream_begin(struct session *s)
{
	const struct sockaddr_in *from = &sources[s->number % sources_count];
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = s };
	int room = SEND_BYTES;

	s->state = ASKED;
	s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s->fd < 0 ||
	    setsockopt(s->fd, SOL_SOCKET, SO_SNDBUFFORCE, &room,
		       sizeof(room)) != 0 ||
	    bind(s->fd, (const void *)from, sizeof(*from)) != 0 ||
	    connect(s->fd, (const void *)&address, sizeof(address)) != 0 ||
	    fcntl(s->fd, F_SETFL, O_NONBLOCK) < 0 ||
	    epoll_ctl(watched, EPOLL_CTL_ADD, s->fd, &event) != 0)
		bad("session %u: connect: %s", s->number, strerror(errno));
	s->slots = slots + (size_t)s->number * SLOTS * SLOT_BYTES;
	s->cmd_sn = 1;
	login(s);
}

/* @len bytes came; what is no header is skipped. */
static void stream_parse(struct session *s, const uint8_t *at, size_t len)
{
	while (len > 0) {
		bool inside = s->skip > 0;
		size_t n = MIN(len,
			       inside ? s->skip : ISCSI_BHS_LEN - s->head_len);

		if (inside) {
			s->skip -= (unsigned)n;
		} else {
			memcpy(s->head + s->head_len, at, n);
			s->head_len += (unsigned)n;
			if (s->head_len == ISCSI_BHS_LEN)
				s->skip = ROUND_UP(get_be24(s->head + 5), 4u);
		}
		at += n;
		len -= n;
		if (s->head_len < ISCSI_BHS_LEN || s->skip > 0)
			continue;
		s->head_len = 0;
		arrived(s, s->head);
	}
}

static bool streams(void)
{
	static uint8_t bytes_in[STREAM_BYTES];
	struct epoll_event ready[64];
	int n = tcp ? epoll_wait(watched, ready, 64, 0) : 0;

	for (int i = 0; i < n; i++) {
		struct session *s = ready[i].data.ptr;
		ssize_t len = recv(s->fd, bytes_in, sizeof(bytes_in), 0);

		if (len > 0) {
			stream_parse(s, bytes_in, (size_t)len);
		} else if (len == 0 || errno != EAGAIN) {
			lost(s, "the target hung up");
			close(s->fd);
		}
	}
	return n > 0;
}

/* ---- events ---- */

static void again(struct session *s)
{
	undo(s);
	s->state = IDLE;
	s->again_ms = now_ms() + AGAIN_MS;
}

static bool events(void)
{
	struct rdma_cm_event *event;
	struct session *s;
	int type, status;

	if (tcp || rdma_get_cm_event(channel, &event) != 0)
		return false;
	s = event->id->context;
	type = (int)event->event;
	status = event->status;
	rdma_ack_cm_event(event);
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (rdma_resolve_route(s->id, 20000) != 0)
			bad("route: %s", strerror(errno));
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		connect_to(s);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		login(s);
		break;
	case RDMA_CM_EVENT_REJECTED:
		if (count.refused++ == 0)
			printf("refused: %d\n", status);
		again(s);
		break;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		if (count.unreachable++ == 0)
			printf("unreachable: %s %d\n",
			       rdma_event_str((enum rdma_cm_event_type)type),
			       status);
		again(s);
		break;
	case RDMA_CM_EVENT_DISCONNECTED:
		lost(s, "the target hung up");
		break;
	default:
		break;
	}
	return true;
}

static bool turn(void)
{
	bool some = false;

	for (unsigned i = 0; i < 32 && events(); i++)
		some = true;
	for (unsigned i = 0; i < 32 && (completions() || streams()); i++)
		some = true;
	if (!some) {
		struct timespec ms = { .tv_nsec = 1000000 };

		nanosleep(&ms, NULL);
	}
	return some;
}

/* ---- the course of it ---- */

static unsigned waiting(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < sessions_count; i++)
		n += sessions[i].state == READY ? sessions[i].outstanding : 0;
	return n;
}

static void connect_all(void)
{
	int64_t until = now_ms() + LIMIT_MS, from = now_ms();

	while (count.ready + count.over < sessions_count) {
		int64_t now = now_ms();

		for (unsigned i = 0; i < sessions_count; i++)
			if (sessions[i].state == IDLE &&
			    now >= sessions[i].again_ms) {
				if (tcp)
					stream_begin(&sessions[i]);
				else
					begin(&sessions[i]);
				if (i % 16 == 0)
					(void)events();
			}
		(void)turn();
		if (now > until)
			bad("%u of %u are there, refused %u, unreachable %u",
			    count.ready, sessions_count, count.refused,
			    count.unreachable);
	}
	printf("connect_ms %lld\n", (long long)(now_ms() - from));
}

static void flood_all(int64_t ms)
{
	int64_t until = now_ms() + ms, from = now_ms();
	unsigned least = UINT32_MAX, most = 0;

	flood = true;
	for (unsigned i = 0; i < sessions_count; i++) {
		sessions[i].heard_ms = now_ms();
		if (sessions[i].state == READY)
			fill(&sessions[i]);
		(void)completions();
		(void)streams();
	}
	while (now_ms() < until)
		(void)turn();
	flood = false;
	for (unsigned i = 0; i < sessions_count; i++) {
		least = MIN(least, sessions[i].done);
		most = MAX(most, sessions[i].done);
	}
	printf("least %u\nmost %u\n", least, most);
	printf("flood_done %lu\nflood_out %u\n", count.done, waiting());
	printf("flood_ms %lld\n", (long long)(now_ms() - from));
}

static void answers_all(void)
{
	int64_t until = now_ms() + LIMIT_MS, from = now_ms();

	while (waiting() > 0) {
		(void)turn();
		if (now_ms() > until)
			bad("%u commands are not answered", waiting());
	}
	printf("answers_ms %lld\n", (long long)(now_ms() - from));
}

static void end_all(const char *how)
{
	int64_t until = now_ms() + LIMIT_MS, from = now_ms();

	ending = true;
	if (how[0] == 'e' || how[0] == 'k')
		return;
	for (unsigned i = 0; i < sessions_count; i++) {
		struct session *s = &sessions[i];

		if (s->state != READY)
			continue;
		if (how[0] == 'l' || tcp)
			logout(s);
		else if (how[0] == 'd')
			(void)rdma_disconnect(s->id);
		else
			undo(s);
		while (completions())
			;
	}
	while (how[0] != 'v' && count.over < sessions_count) {
		(void)turn();
		if (now_ms() > until)
			bad("%u of %u are over", count.over, sessions_count);
	}
	printf("end_ms %lld\n", (long long)(now_ms() - from));
}

static void told(void)
{
	printf("sessions %u\nrefused %u\nunreachable %u\nlost %u\ndone %lu\n"
	       "busy %u\nfailed %u\nslowest_ms %lld\ngap_ms %lld\nwindow %u\n"
	       "pings %u\n",
	       count.ready, count.refused, count.unreachable, count.lost,
	       count.done, count.busy, count.failed,
	       (long long)count.slowest_ms, (long long)count.gap_ms,
	       count.window, count.pings);
}

static bool address_parse(const char *text, unsigned port,
			  struct sockaddr_in *out)
{
	*out = (struct sockaddr_in){ .sin_family = AF_INET,
				     .sin_port = htons((uint16_t)port) };
	return inet_pton(AF_INET, text, &out->sin_addr) == 1;
}

static unsigned number(const char *text)
{
	return (unsigned)strtoul(text, NULL, 10);
}

static void descriptors_all(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
		limit.rlim_cur = limit.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &limit);
	}
}

int main(int argc, char **argv)
{
	unsigned seconds;

	if (argc > 1 && strncmp(argv[1], "tcp:", 4) == 0) {
		tcp = true;
		argv[1] += 4;
	}
	if (argc < 12 || !address_parse(argv[1], number(argv[2]), &address))
		return 2;
	target_name = argv[3];
	targets_count = number(argv[4]);
	sessions_count = number(argv[5]);
	seconds = number(argv[6]);
	way = argv[7];
	bytes = number(argv[8]);
	depth = MIN(number(argv[9]), SLOTS - 8);
	sources_count = (unsigned)argc - 11;
	sources = calloc(sources_count, sizeof(*sources));
	sessions = calloc(sessions_count, sizeof(*sessions));
	if (sources == NULL || sessions == NULL || bytes < 512)
		return 2;
	for (unsigned i = 0; i < sources_count; i++)
		if (!address_parse(argv[11 + i], 0, &sources[i]))
			return 2;
	for (unsigned i = 0; i < sessions_count; i++)
		sessions[i].number = i;
	setvbuf(stdout, NULL, _IOLBF, 0);
	descriptors_all();
	if (tcp) {
		watched = epoll_create1(EPOLL_CLOEXEC);
		slots = calloc(sessions_count, (size_t)SLOTS * SLOT_BYTES);
		if (watched < 0 || slots == NULL || way[0] != 'r')
			return 2;
	} else {
		channel = rdma_create_event_channel();
	}
	if (!tcp &&
	    (channel == NULL || fcntl(channel->fd, F_SETFL, O_NONBLOCK) < 0))
		bad("event channel: %s", strerror(errno));
	connect_all();
	told();
	flood_all((int64_t)seconds * 1000);
	if (argv[10][0] != 'k')
		answers_all();
	told();
	end_all(argv[10]);
	return count.lost > 0 || count.failed > 0;
}
