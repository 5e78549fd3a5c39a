/*
 * iSER initiators at random on the fake device: they write and read back, with
 * and without immediate data, reset each other's tasks, log in anew, hang up and
 * send nonsense, while the device holds work back or fails it, the object layer
 * does likewise and memory is short.
 *
 * Held to: what was written and answered GOOD is read back; responses are those
 * of commands that are out, and invalidate their key alone; no connection ends
 * without a reason, and nobody touches memory that was given back; once nothing
 * is in the way every command is answered.  The device itself asserts keys,
 * ranges, queue lengths, fences and the order of destruction.
 *
 * limit: 600 s, soak 1800 s		(seeds and how to repeat one: seeds.h)
 */
#include "tests/lib/seeds.h"
#include "tests/unit/iser_rig.h"

#define INITIATORS 3u
#define SLOTS 6u
#define STEPS 1500u
#define SLOT_BLOCKS 256u
#define SLOT_BYTES (SLOT_BLOCKS * 512u)

/* A command, and the memory that the target may reach for it. */
struct slot {
	bool busy;
	bool doomed; /* our own TMF is on its way behind it */
	uint8_t opcode;
	uint32_t itt, blocks;
	unsigned seed; /* of what it writes */
	uint8_t memory[SLOT_BYTES];
};

/* A connection.  It stays until the end: the device may hold on to it. */
struct link {
	struct fake_peer *peer;
	bool asked, full; /* for login; logged in */
	bool excused; /* it may end */
	bool invalidates, held;
	uint32_t itt, cmdsn, max_cmdsn;
	uint32_t tmf_itt; /* 0: none */
	struct slot slots[SLOTS];
	TAILQ_ENTRY(link) link;
};

/* What the disk must hold where an initiator writes, a region for each slot. */
static struct initiator {
	struct link *now; /* NULL: none yet */
	struct {
		uint32_t known; /* blocks at its beginning, of pattern @seed */
		unsigned seed;
	} disk[SLOTS];
} initiators[INITIATORS];

static TAILQ_HEAD(, link) links;
static unsigned next_seed;
static unsigned long good_writes, good_reads, compared;

static uint32_t lba_of(const struct initiator *i, unsigned slot)
{
	unsigned region = (unsigned)(i - initiators) * SLOTS + slot;

	return region * 2 * SLOT_BLOCKS + slot; /* not all at whole blocks */
}

static uint32_t key_of(unsigned slot)
{
	return 1 + slot;
}

static bool is_up(const struct link *l)
{
	return fake_peer_state(l->peer) == FAKE_UP;
}

/* ---- what comes back ---- */

static void slot_check(struct initiator *i, unsigned n)
{
	const struct slot *slot = &i->now->slots[n];
	static uint8_t want[SLOT_BYTES];

	good_reads++;
	if (slot->blocks > i->disk[n].known)
		return;
	compared++;
	pattern(want, slot->blocks * 512, i->disk[n].seed);
	assert_memory_equal(slot->memory, want, slot->blocks * 512);
}

/* Its command is over, -1: without an answer; its memory is ours again. */
static void slot_end(struct initiator *i, unsigned n, int status)
{
	struct slot *slot = &i->now->slots[n];

	fake_peer_expose(i->now->peer, key_of(n), NULL, 0);
	slot->busy = slot->doomed = false;
	if (slot->opcode == 0x28 && status == 0) {
		slot_check(i, n);
	} else if (slot->opcode == 0x2a) {
		good_writes += status == 0;
		i->disk[n].known = status == 0 ? slot->blocks : 0;
		i->disk[n].seed = slot->seed;
	}
	memset(slot->memory, 0xee, SLOT_BYTES);
}

static struct slot *slot_find(struct link *l, uint32_t itt, unsigned *n)
{
	for (*n = 0; *n < SLOTS; ++*n)
		if (l->slots[*n].busy && l->slots[*n].itt == itt)
			return &l->slots[*n];
	return NULL;
}

static void on_response(struct initiator *i, const struct fake_message *m)
{
	unsigned n;
	struct slot *slot = slot_find(i->now, get_be32(m->bytes + 28 + 16), &n);

	CHECK(slot != NULL);
	if (m->invalidated != 0) {
		CHECK(i->now->invalidates);
		CHECK_EQ(m->invalidated, key_of(n));
	}
	slot_end(i, n, m->bytes[28 + 3]);
}

static void on_reject(struct initiator *i, const struct fake_message *m)
{
	uint32_t itt = get_be32(m->bytes + ISER_FIXED_LEN + 16);
	unsigned n;

	CHECK(m->len >= ISER_FIXED_LEN + ISCSI_BHS_LEN);
	if (slot_find(i->now, itt, &n) != NULL)
		slot_end(i, n, -1);
	if (itt == i->now->tmf_itt)
		i->now->tmf_itt = 0;
}

static void on_tmf_response(struct initiator *i, const struct fake_message *m)
{
	CHECK_EQ(get_be32(m->bytes + 28 + 16), i->now->tmf_itt);
	i->now->tmf_itt = 0;
	for (unsigned n = 0; n < SLOTS; n++) {
		if (!i->now->slots[n].doomed)
			continue;
		i->now->slots[n].doomed = false;
		if (m->bytes[28 + 2] == 0)
			slot_end(i, n, -1);
	}
}

static void on_message(struct initiator *i, const struct fake_message *m)
{
	struct link *l = i->now;

	CHECK(m->len >= ISER_FIXED_LEN);
	CHECK_EQ(m->bytes[0], 0x10);
	if (m->bytes[28] != ISCSI_OP_RESPONSE)
		CHECK_EQ(m->invalidated, 0);
	l->max_cmdsn = get_be32(m->bytes + 28 + 32);
	switch (m->bytes[28]) {
	case ISCSI_OP_LOGIN_RSP:
		l->full = get_be16(m->bytes + 28 + 36) == 0;
		l->excused |= !l->full;
		break;
	case ISCSI_OP_RESPONSE:
		on_response(i, m);
		break;
	case ISCSI_OP_TMF_RSP:
		on_tmf_response(i, m);
		break;
	case ISCSI_OP_REJECT:
		on_reject(i, m);
		break;
	case ISCSI_OP_NOP_IN:
	case ISCSI_OP_LOGOUT_RSP:
		break;
	default:
		print_error("opcode %02x\n", m->bytes[28]);
		fail();
	}
}

static void turn(void)
{
	struct fake_message *m;

	shard_step(ts.env, 0);
	for (unsigned n = 0; n < INITIATORS; n++) {
		struct initiator *i = &initiators[n];

		if (i->now == NULL)
			continue;
		while ((m = fake_peer_receive(i->now->peer)) != NULL) {
			on_message(i, m);
			free(m);
		}
		if (i->now->full && !is_up(i->now))
			CHECK(i->now->excused);
	}
}

/* ---- what goes out ---- */

static bool give(struct link *l, const struct message *m)
{
	return fake_peer_send(l->peer, m->bytes, m->len);
}

/* What was out on the old connection is lost: nobody knows what of it was. */
static void dial(struct initiator *i)
{
	uint8_t private[4] = { one_in(4) ? 0xc0 : 0x80 };
	struct link *l = calloc(1, sizeof(*l));

	CHECK(l != NULL);
	for (unsigned n = 0; i->now != NULL && n < SLOTS; n++)
		if (i->now->slots[n].busy && i->now->slots[n].opcode == 0x2a)
			i->disk[n].known = 0;
	if (i->now != NULL)
		fake_peer_hold(i->now->peer, false);
	l->invalidates = !(private[0] & 0x40);
	l->peer = fake_peer_connect(private, sizeof(private),
				    one_in(20) ? 0 : 1 + below(16));
	TAILQ_INSERT_TAIL(&links, l, link);
	i->now = l;
}

static void hang_up(struct initiator *i)
{
	i->now->excused = true;
	fake_peer_disconnect(i->now->peer);
}

static void log_in(struct initiator *i)
{
	struct link *l = i->now;
	struct message m;
	char text[1024];
	int n = snprintf(text, sizeof(text), ISER_LOGIN_TEXT, ISER_LOGIN_ZEROS);

	message_init(&m, ISCSI_OP_LOGIN | ISCSI_IMMEDIATE, 0x87, ++l->itt, 1);
	put_be32(m.bytes + 28 + 8, 0x00023d00 + (uint32_t)(i - initiators));
	message_data(&m, text, (size_t)n);
	l->asked = give(l, &m);
	l->cmdsn = 1;
}

/* Serial numbers (RFC 1982). */
static bool has_window(const struct link *l)
{
	return (int32_t)(l->max_cmdsn - l->cmdsn) >= 0;
}

static void expose(struct link *l, struct message *m, unsigned n, bool write,
		   uint32_t len)
{
	unsigned at = write ? 4 : 16;

	m->bytes[0] |= write ? 0x08 : 0x04;
	put_be32(m->bytes + at, key_of(n));
	put_be64(m->bytes + at + 4, 4096ull * key_of(n));
	fake_peer_expose(l->peer, key_of(n), l->slots[n].memory, len);
}

/* Writes its pattern; some of it goes with the command, if that was allowed. */
static void write_fill(struct initiator *i, unsigned n, struct message *m)
{
	static uint8_t data[SLOT_BYTES];
	struct slot *slot = &i->now->slots[n];
	uint32_t len = slot->blocks * 512;
	uint32_t imm = one_in(3) ? 0 : one_in(2) ? 8192 : below(8192) & ~3u;

	imm = i->now->invalidates ? MIN(imm, len) : 0;
	slot->seed = next_seed++;
	pattern(data, len, slot->seed);
	message_data(m, data, imm);
	memcpy(slot->memory, data + imm, len - imm);
	expose(i->now, m, n, true, len - imm);
}

static void send_command(struct initiator *i)
{
	unsigned n = below(SLOTS), known = i->disk[n].known;
	struct link *l = i->now;
	struct slot *slot = &l->slots[n];
	bool write = one_in(2);
	struct message m;

	if (slot->busy || !has_window(l))
		return;
	message_init(&m, ISCSI_OP_COMMAND,
		     ISCSI_FINAL | (write ? 0x20 : 0x40) | below(4), ++l->itt,
		     l->cmdsn);
	slot->opcode = write ? 0x2a : 0x28;
	slot->itt = l->itt;
	slot->blocks = 1 + below(!write && known > 0 ? known
				 : one_in(2)	     ? 20
						     : SLOT_BLOCKS);
	put_be32(m.bytes + 28 + 20, slot->blocks * 512);
	rw10(&m, slot->opcode, lba_of(i, n), slot->blocks);
	if (write)
		write_fill(i, n, &m);
	else
		expose(l, &m, n, false, slot->blocks * 512);
	if (give(l, &m)) {
		slot->busy = true;
		l->cmdsn++;
	} else { /* no receive is posted: it was not sent */
		fake_peer_expose(l->peer, key_of(n), NULL, 0);
	}
}

/* ABORT TASK, ABORT and CLEAR TASK SET, LUN and TARGET WARM RESET. */
static void send_tmf(struct initiator *i)
{
	static const uint8_t functions[] = { 1, 1, 2, 4, 5, 5, 6 };
	uint8_t function = functions[below(ARRAY_LEN(functions))];
	struct link *l = i->now;
	struct slot *slot = &l->slots[below(SLOTS)];
	struct message m;

	if (l->tmf_itt != 0)
		return;
	message_init(&m, ISCSI_OP_TMF | ISCSI_IMMEDIATE, ISCSI_FINAL | function,
		     ++l->itt, l->cmdsn);
	put_be32(m.bytes + 28 + 20, function == 1 ? slot->itt : ISCSI_NO_TAG);
	put_be32(m.bytes + 28 + 32, l->cmdsn - 1);
	if (!give(l, &m))
		return;
	l->tmf_itt = l->itt;
	for (unsigned n = 0; n < SLOTS; n++)
		l->slots[n].doomed = l->slots[n].busy &&
				     (function != 1 || &l->slots[n] == slot);
}

static void send_nop(struct link *l)
{
	uint8_t data[200] = { 1 };
	struct message m;

	if (!has_window(l))
		return;
	message_init(&m, ISCSI_OP_NOP_OUT, ISCSI_FINAL, ++l->itt, l->cmdsn);
	put_be32(m.bytes + 28 + 20, ISCSI_NO_TAG);
	message_data(&m, data, below(sizeof(data)));
	if (give(l, &m))
		l->cmdsn++;
}

/* A Logout, or a message that none may send. */
static void send_last(struct link *l)
{
	struct message m;

	l->excused = true;
	message_init(&m, ISCSI_OP_LOGOUT | ISCSI_IMMEDIATE, ISCSI_FINAL,
		     ++l->itt, l->cmdsn);
	switch (below(4)) {
	case 0:
		m.bytes[0] = 0x20; /* a Hello */
		break;
	case 1:
		m.len = below(ISER_FIXED_LEN);
		break;
	case 2:
		m.len = sizeof(m.bytes);
		break;
	}
	give(l, &m);
}

/* ---- the world ---- */

static void storage(void)
{
	static const int errors[] = { -EBUSY, -EIO, -ENOSPC };
	int status = errors[below(ARRAY_LEN(errors))];

	fake_dom_hold(dom, one_in(3));
	if (one_in(10))
		fake_dom_fault(dom, (struct fake_fault){ .ops = 1u << below(2),
							 .times = below(4),
							 .status = status,
							 .at_once = status ==
								    -EBUSY });
}

/* All of the memory goes; later some of it is given back, or all. */
static void pressure(void)
{
	unsigned keep =
		one_in(2) ? 0 : hoard_count - MIN(hoard_count, below(64));

	if (hoard_count == 0)
		hoard_all();
	else
		hoard_keep(keep);
}

static void posts_fail(void)
{
	for (unsigned n = 0; n < INITIATORS; n++)
		if (initiators[n].now != NULL)
			initiators[n].now->excused = true;
	fake_rdma_fail_posts(true);
	for (unsigned n = below(8); n > 0; n--)
		turn();
	fake_rdma_fail_posts(false);
}

/* What makes a connection fail at one call. */
static void dial_in_need(struct initiator *i)
{
	fake_rdma_fail(1 + below(12));
	dial(i);
	for (unsigned n = 0; n < 10; n++)
		turn();
	fake_rdma_fail(0);
}

/* ---- a seed ---- */

static void begin(struct initiator *i)
{
	if (i->now != NULL && is_up(i->now)) {
		if (!i->now->asked)
			log_in(i);
		else if (i->now->excused)
			hang_up(i); /* its login was refused */
		turn();
	} else if (i->now == NULL ||
		   fake_peer_state(i->now->peer) != FAKE_ASKED) {
		if (one_in(8))
			dial_in_need(i);
		else
			dial(i);
	} else {
		turn();
	}
}

static void trouble(struct initiator *i)
{
	switch (below(8)) {
	case 0:
		hang_up(i);
		break;
	case 1:
		send_last(i->now);
		break;
	case 2:
		i->now->excused = true;
		fake_peer_error(i->now->peer);
		break;
	case 3: /* anew, while the old connection is there */
		i->now->excused = true;
		dial(i);
		break;
	case 4:
		posts_fail();
		break;
	default:
		pressure();
	}
}

static void step(void)
{
	struct initiator *i = &initiators[below(INITIATORS)];

	if (i->now == NULL || !is_up(i->now) || !i->now->full) {
		begin(i);
		return;
	}
	switch (below(12)) {
	case 0:
	case 1:
	case 2:
	case 3:
		send_command(i);
		break;
	case 4:
		if (one_in(6))
			send_tmf(i);
		else if (one_in(3))
			send_nop(i->now);
		break;
	case 5:
		i->now->held = !i->now->held;
		fake_peer_hold(i->now->peer, i->now->held);
		break;
	case 6:
		storage();
		break;
	case 7:
		if (one_in(12))
			trouble(i);
		break;
	default:
		turn();
	}
}

static bool all_answered(void)
{
	for (unsigned n = 0; n < INITIATORS; n++) {
		const struct link *l = initiators[n].now;

		for (unsigned k = 0; l != NULL && k < SLOTS; k++)
			if (l->slots[k].busy && !l->excused)
				return false;
	}
	return true;
}

/* Nothing is in the way any more. */
static void relieve(void)
{
	fake_dom_hold(dom, false);
	fake_dom_fault(dom, (struct fake_fault){ .ops = 0 });
	hoard_keep(0);
	for (unsigned n = 0; n < INITIATORS; n++)
		if (initiators[n].now != NULL)
			fake_peer_hold(initiators[n].now->peer, false);
	for (unsigned n = 0; n < 2000 && !all_answered(); n++)
		turn();
	CHECK(all_answered());
}

static void one(void)
{
	static const unsigned sges[] = { 1, 2, 5, 16 };
	bool iwarp = one_in(4);
	struct link *l;

	fake_rdma_open(&(struct fake_rdma_config){
		.no_srq = one_in(3),
		.sge_read = iwarp ? 1 : sges[below(ARRAY_LEN(sges))],
		.iwarp = iwarp,
		.siw = iwarp && one_in(2),
		.says_last_wqe = !one_in(4),
	});
	rooms_open();
	memset(initiators, 0, sizeof(initiators));
	TAILQ_INIT(&links);
	for (unsigned n = 0; n < STEPS; n++)
		step();
	relieve();
	if (one_in(8)) {
		fake_rdma_remove();
		wait_ms(5);
		for (unsigned n = 0; n < 1000 && iser->conns_count > 0; n++)
			wait_ms(5);
		fake_rdma_check_empty();
	}
	rooms_close();
	while ((l = TAILQ_FIRST(&links)) != NULL) {
		TAILQ_REMOVE(&links, l, link);
		fake_peer_free(l->peer);
		free(l);
	}
	rooms_fini();
}

TEST(iser_random, initiators)
{
	log_level_set("iscsi", "error");
	log_level_set("iser", "error");
	seeds_run(40, 6000, one);
	print_message("# %lu writes, %lu reads, %lu compared\n", good_writes,
		      good_reads, compared);
	CHECK(compared > 0);
}
