/*
 * t_verify: a writer that knows what a disk must hold.
 *
 *	t_verify [options] URL
 *
 * It keeps many commands in flight (writes of random places and sizes, some of
 * them smaller than 4 KiB, zeros by WRITE SAME, unmaps, checked reads, and COMPARE
 * AND WRITE of what is there and of what is not), none of which overlap, and
 * remembers for every 4 KiB block which generation each sector has, and which
 * write of it is not answered yet.  When the connection breaks it logs in anew
 * until it is served again, reads the whole disk and compares: every block must
 * be as it was last acknowledged, or as the one unanswered write would make it,
 * and nothing in between.  Then it goes on writing.
 *
 * On standard output a line per event: "running" (the load flows),
 * "verified ..." (after a reconnect or at the end), "done ...".  It ends when
 * its standard input does, after a last comparison.  Status 0: nothing lost,
 * stale or torn; 1: the lines "BAD ..." say what; 2 usage.
 */
#include "tests/lib/initiator.h"
#include "tests/lib/pattern.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEPTH_MAX 128u
#define IO_MAX (1u << 20)
#define COMPARE_MAX (64u << 10)
#define BAD_MAX 20

/* What a block holds: a generation per sector, 0 = zeros. */
struct block {
	uint32_t gen[SECTORS];
	uint32_t pending_gen;
	uint8_t pending_mask; /* sectors of the unanswered write; 0: none */
	uint8_t busy; /* a command is in flight, or will be again */
};

enum op_kind {
	OP_WRITE,
	OP_ZERO, /* by WRITE SAME, with or without UNMAP */
	OP_UNMAP,
	OP_READ,
	OP_COMPARE, /* COMPARE AND WRITE of what is there */
	OP_MISCOMPARE, /* of what is not: nothing is written */
};

struct op {
	enum op_kind kind;
	bool used;
	uint64_t offset; /* bytes */
	uint32_t len, gen;
	uint64_t retry_ns; /* send again then; 0: it is in flight */
	uint64_t refused_ns; /* at first; 0: it was not yet */
	uint8_t *buf;
	struct scsi_iovec iov; /* libiscsi keeps the pointer */
};

static struct {
	const char *url;
	const char *initiator;
	unsigned depth, unmap_percent, read_percent, compare_percent;
	unsigned command_s; /* the longest a command may take */
	unsigned reconnect_s; /* the longest the target may be away */
	unsigned refused_s; /* the longest a command may be refused */
	bool fill;
	bool again; /* medium errors are repeated, too, as by Linux */
	uint64_t bytes_max, commands_max;
	uint32_t writer;

	struct iscsi_context *iscsi;
	int lun;
	uint32_t lba_bytes;
	uint64_t blocks_count;
	struct block *blocks;
	struct op ops[DEPTH_MAX];
	unsigned ops_count;
	uint64_t random;
	uint32_t generation;
	bool lost; /* the connection */
	bool stopping; /* standard input has ended */
	bool verifying;
	uint64_t acked, acked_since, retries, resolved_new, resolved_old;
	unsigned bad, reconnects;
	FILE *journal;
	int record_fd; /* the daemon's I/O record */
} v = {
	.initiator = "iqn.2026-11.internal.basalt:verify",
	.depth = 16,
	.unmap_percent = 5,
	.read_percent = 15,
	.compare_percent = 5,
	.command_s = 40,
	.reconnect_s = 180,
	.refused_s = 60,
	.writer = 1,
};

static void say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

static void bad(const char *fmt, ...)
{
	va_list ap;

	if (v.bad++ < BAD_MAX) {
		printf("BAD ");
		va_start(ap, fmt);
		vprintf(fmt, ap);
		va_end(ap);
		putchar('\n');
		fflush(stdout);
	}
}

static _Noreturn void give_up(const char *fmt, ...)
{
	va_list ap;

	printf("BAD ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
	exit(1);
}

static void vector_print(char *out, size_t len, const uint32_t *gen)
{
	size_t at = 0;

	for (unsigned i = 0; i < SECTORS && at < len; i++)
		at += (size_t)snprintf(out + at, len - at, "%s%u", i ? "," : "",
				       gen[i]);
}

/*
 * Compare what was read of block @index, sectors of @mask.  With @settle the
 * outcome of its unanswered write becomes what was seen.
 */
static void block_check(uint64_t index, const uint8_t *buf, uint8_t mask,
			bool settle)
{
	struct block *b = &v.blocks[index];
	uint32_t got[SECTORS], fresh[SECTORS];
	bool is_old = true, is_new = b->pending_mask != 0;
	char why[160], a[120], c[120], d[120];

	for (unsigned i = 0; i < SECTORS; i++) {
		uint64_t offset = index * BLOCK + i * SECTOR;
		int64_t gen;

		fresh[i] =
			b->pending_mask & 1u << i ? b->pending_gen : b->gen[i];
		got[i] = b->gen[i];
		if (!(mask & 1u << i))
			continue;
		gen = sector_read(buf + i * SECTOR, offset, v.writer, why,
				  sizeof(why));
		if (gen < 0) {
			bad("offset %llu: %s, expected generation %u",
			    (unsigned long long)offset, why, b->gen[i]);
			return;
		}
		got[i] = (uint32_t)gen;
		is_old = is_old && got[i] == b->gen[i];
		is_new = is_new && got[i] == fresh[i];
	}
	if (!is_old && !is_new) {
		vector_print(a, sizeof(a), got);
		vector_print(c, sizeof(c), b->gen);
		vector_print(d, sizeof(d), fresh);
		bad("block %llu holds generations %s; acknowledged %s%s%s",
		    (unsigned long long)index, a, c,
		    b->pending_mask ? ", unanswered " : "",
		    b->pending_mask ? d : "");
		return;
	}
	if (settle && b->pending_mask) {
		if (is_new && !is_old)
			v.resolved_new++;
		else
			v.resolved_old++;
		memcpy(b->gen, got, sizeof(got));
		b->pending_mask = 0;
	}
}

/* ---- commands ---- */

static bool op_writes(const struct op *op)
{
	return op->kind != OP_READ && op->kind != OP_MISCOMPARE;
}

static bool op_zeros(const struct op *op)
{
	return op->kind == OP_UNMAP || op->kind == OP_ZERO;
}

/* Note what was sent or acknowledged, and how long the record was then. */
static void journal_add(const struct op *op, bool acked)
{
	struct journal_entry entry = {
		.offset = op->offset,
		.len = op->len,
		.gen = op_zeros(op) ? 0 : op->gen,
		.acked = acked,
	};
	struct stat st;

	if (v.journal == NULL || !op_writes(op))
		return;
	if (fstat(v.record_fd, &st) != 0)
		give_up("the I/O record: %s", strerror(errno));
	entry.record_bytes = (uint64_t)st.st_size;
	if (fwrite(&entry, sizeof(entry), 1, v.journal) != 1)
		give_up("the journal: %s", strerror(errno));
}

static void op_send(struct op *op);

/* Visit the blocks of @op with the sectors it covers. */
static void op_blocks(struct op *op,
		      void (*fn)(struct op *op, uint64_t index, uint8_t mask))
{
	uint64_t at = op->offset, end = op->offset + op->len;

	while (at < end) {
		uint64_t index = at / BLOCK;
		unsigned first = (unsigned)(at % BLOCK / SECTOR), last;
		uint64_t stop = (index + 1) * BLOCK;

		if (stop > end)
			stop = end;
		last = (unsigned)((stop - 1) % BLOCK / SECTOR);
		fn(op, index, (uint8_t)((2u << last) - (1u << first)));
		at = stop;
	}
}

static void op_take(struct op *op, uint64_t index, uint8_t mask)
{
	struct block *b = &v.blocks[index];

	b->busy = 1;
	if (!op_writes(op))
		return;
	b->pending_gen = op_zeros(op) ? 0 : v.generation;
	b->pending_mask = mask;
}

static void op_release(struct op *op, uint64_t index, uint8_t mask)
{
	v.blocks[index].busy = 0;
}

static void op_settle(struct op *op, uint64_t index, uint8_t mask)
{
	struct block *b = &v.blocks[index];

	b->busy = 0;
	if (!op_writes(op))
		return;
	for (unsigned i = 0; i < SECTORS; i++)
		if (b->pending_mask & 1u << i)
			b->gen[i] = b->pending_gen;
	b->pending_mask = 0;
}

static void op_compare(struct op *op, uint64_t index, uint8_t mask)
{
	int64_t at = (int64_t)(index * BLOCK) - (int64_t)op->offset;

	/* A block's sectors before the read's start are not in @mask. */
	block_check(index, op->buf + at, mask, v.verifying);
}

/* What is to be compared: the sectors as they are. */
static void op_expect(struct op *op, uint64_t index, uint8_t mask)
{
	const struct block *b = &v.blocks[index];

	for (unsigned i = 0; i < SECTORS; i++) {
		uint64_t offset = index * BLOCK + i * SECTOR;
		uint8_t *buf = op->buf + (int64_t)(offset - op->offset);

		if (!(mask & 1u << i))
			continue;
		if (b->gen[i] == 0)
			memset(buf, 0, SECTOR);
		else
			sector_fill(buf, offset, v.writer, b->gen[i]);
	}
}

static void op_end(struct op *op)
{
	op->used = false;
	v.ops_count--;
}

/*
 * Later, the same bytes again: whatever the first attempt did, it fits.  Only a
 * comparison would not find any more what was there, if it may have been @done.
 */
static void op_again(struct op *op, uint64_t delay_ns, bool done)
{
	if (op->kind == OP_COMPARE && done) {
		op->kind = OP_WRITE;
		memmove(op->buf, op->buf + op->len, op->len);
	}
	v.retries++;
	op->retry_ns = now_ns() + delay_ns;
}

static void op_done(struct iscsi_context *iscsi, int status, void *data,
		    void *private_data)
{
	static const char *const names[] = {
		[OP_WRITE] = "write",
		[OP_ZERO] = "WRITE SAME",
		[OP_UNMAP] = "unmap",
		[OP_READ] = "read",
		[OP_COMPARE] = "COMPARE AND WRITE",
		[OP_MISCOMPARE] = "COMPARE AND WRITE of something else",
	};
	struct scsi_task *task = data;
	struct op *op = private_data;
	struct scsi_sense sense = { 0 };

	if (status == SCSI_STATUS_CHECK_CONDITION && task != NULL)
		sense = task->sense;
	if (status == SCSI_STATUS_GOOD && op->kind == OP_READ &&
	    task->residual_status != SCSI_RESIDUAL_NO_RESIDUAL)
		bad("a read of %u bytes at %llu came with a residual", op->len,
		    (unsigned long long)op->offset);
	if (task != NULL)
		scsi_free_scsi_task(task);

	if (op->kind == OP_MISCOMPARE &&
	    (status == SCSI_STATUS_GOOD ||
	     (sense.key == SCSI_SENSE_MISCOMPARE &&
	      sense.ascq == SCSI_SENSE_ASCQ_MISCOMPARE_DURING_VERIFY))) {
		if (status == SCSI_STATUS_GOOD)
			bad("COMPARE AND WRITE of %u bytes at %llu did not see "
			    "a difference",
			    op->len, (unsigned long long)op->offset);
		status = SCSI_STATUS_GOOD;
	}
	if (status == SCSI_STATUS_GOOD) {
		if (op->kind == OP_READ)
			op_blocks(op, op_compare);
		journal_add(op, true);
		op_blocks(op, op_settle);
		v.acked++;
		v.acked_since++;
		op_end(op);
		return;
	}
	if (status == SCSI_STATUS_TIMEOUT)
		give_up("offset %llu, %u bytes: no answer within %u s",
			(unsigned long long)op->offset, op->len, v.command_s);
	if (status == SCSI_STATUS_CANCELLED || status == SCSI_STATUS_ERROR) {
		/* Unanswered: pending_mask stays until the disk is read. */
		v.lost = true;
		op_blocks(op, op_release);
		op_end(op);
		return;
	}
	if (status == SCSI_STATUS_BUSY || status == SCSI_STATUS_TASK_SET_FULL ||
	    status == SCSI_STATUS_TASK_ABORTED ||
	    sense.key == SCSI_SENSE_UNIT_ATTENTION ||
	    sense.key == SCSI_SENSE_NOT_READY ||
	    (v.again && sense.key == SCSI_SENSE_MEDIUM_ERROR) ||
	    sense.key == SCSI_SENSE_COMMAND_ABORTED) {
		/* An answer may come late: that alone is no more than one. */
		if (op->refused_ns == 0)
			op->refused_ns = now_ns();
		if (now_ns() - op->refused_ns > v.refused_s * 1000000000ull)
			give_up("offset %llu: refused for %u s (status %#x, "
				"sense %x/%04x)",
				(unsigned long long)op->offset, v.refused_s,
				status, sense.key, sense.ascq);
		op_again(op, 10000000,
			 status != SCSI_STATUS_BUSY &&
				 status != SCSI_STATUS_TASK_SET_FULL &&
				 sense.key != SCSI_SENSE_UNIT_ATTENTION);
		return;
	}
	give_up("%s of %u bytes at %llu: status %#x, sense %x/%04x",
		names[op->kind], op->len, (unsigned long long)op->offset,
		status, sense.key, sense.ascq);
}

static void op_send(struct op *op)
{
	uint64_t lba = op->offset / v.lba_bytes;
	struct scsi_task *task = NULL;
	struct unmap_list list = { lba, op->len / v.lba_bytes };

	op->retry_ns = 0;
	op->iov = (struct scsi_iovec){ op->buf, op->len };
	switch (op->kind) {
	case OP_WRITE:
		task = iscsi_write16_task(v.iscsi, v.lun, lba, op->buf, op->len,
					  (int)v.lba_bytes, 0, 0, 0, 0, 0,
					  op_done, op);
		break;
	case OP_READ:
		task = iscsi_read16_iov_task(v.iscsi, v.lun, lba, op->len,
					     (int)v.lba_bytes, 0, 0, 0, 0, 0,
					     op_done, op, &op->iov, 1);
		break;
	case OP_ZERO:
		task = iscsi_writesame16_task(v.iscsi, v.lun, lba, op->buf,
					      v.lba_bytes,
					      op->len / v.lba_bytes, 0,
					      op->gen & 1, 0, 0, op_done, op);
		break;
	case OP_COMPARE:
	case OP_MISCOMPARE:
		task = iscsi_compareandwrite_task(v.iscsi, v.lun, lba, op->buf,
						  op->len * 2, (int)v.lba_bytes,
						  0, 0, 0, 0, 0, op_done, op);
		break;
	case OP_UNMAP:
		task = iscsi_unmap_task(v.iscsi, v.lun, 0, 0, &list, 1, op_done,
					op);
		break;
	}
	if (task == NULL) {
		v.lost = true;
		op_blocks(op, op_release);
		op_end(op);
	}
}

static struct op *op_start(enum op_kind kind, uint64_t offset, uint32_t len)
{
	struct op *op = v.ops;
	uint8_t *fresh;

	for (uint64_t b = offset / BLOCK; b <= (offset + len - 1) / BLOCK; b++)
		if (v.blocks[b].busy)
			return NULL;
	while (op->used)
		op++;
	op->used = true;
	op->kind = kind;
	op->offset = offset;
	op->len = len;
	op->refused_ns = 0;
	v.ops_count++;
	if (kind != OP_READ)
		v.generation++;
	op->gen = v.generation;
	op_blocks(op, op_take);
	journal_add(op, false);
	fresh = op->buf;
	if (kind == OP_COMPARE || kind == OP_MISCOMPARE) {
		op_blocks(op, op_expect);
		if (kind == OP_MISCOMPARE)
			op->buf[random_next(&v.random) % len] ^= 1;
		fresh += len;
	}
	if (kind == OP_ZERO)
		memset(fresh, 0, v.lba_bytes);
	else if (kind != OP_READ && kind != OP_UNMAP)
		for (uint32_t at = 0; at < len; at += SECTOR)
			sector_fill(fresh + at, offset + at, v.writer,
				    v.generation);
	op_send(op);
	return op;
}

/* ---- the load ---- */

static uint32_t pick_len(void)
{
	unsigned dice = random_next(&v.random) % 100;
	uint64_t r = random_next(&v.random);

	if (dice < 20) /* less than a block, where the unit allows it */
		return (uint32_t)(v.lba_bytes *
				  (1 + r % (BLOCK / v.lba_bytes)));
	if (dice < 70)
		return BLOCK;
	if (dice < 93)
		return (uint32_t)(BLOCK * (1 + r % 16));
	return (uint32_t)(BLOCK * (1 + r % (IO_MAX / BLOCK)));
}

static enum op_kind pick_kind(void)
{
	unsigned dice = random_next(&v.random) % 100;

	if (dice < v.unmap_percent)
		return dice % 2 ? OP_ZERO : OP_UNMAP;
	dice -= v.unmap_percent;
	if (dice < v.read_percent)
		return OP_READ;
	dice -= v.read_percent;
	if (dice < v.compare_percent)
		return dice % 2 ? OP_MISCOMPARE : OP_COMPARE;
	return OP_WRITE;
}

static void load_one(void)
{
	uint64_t bytes = v.blocks_count * BLOCK;
	enum op_kind kind = pick_kind();
	uint32_t len = pick_len();
	uint32_t align = len % BLOCK ? v.lba_bytes : BLOCK;
	uint64_t offset;

	/* An eighth of the writes of whole blocks are not aligned to them. */
	if (random_next(&v.random) % 8 == 0)
		align = v.lba_bytes;
	if (kind == OP_COMPARE || kind == OP_MISCOMPARE)
		len = len < COMPARE_MAX ? len : COMPARE_MAX;
	if (kind == OP_UNMAP) {
		len = (len + BLOCK - 1) / BLOCK * BLOCK;
		align = BLOCK;
	}
	offset = random_next(&v.random) % ((bytes - len) / align + 1) * align;
	op_start(kind, offset, len);
}

static void connection_drop(void)
{
	struct iscsi_context *iscsi = v.iscsi;

	v.iscsi = NULL;
	if (iscsi != NULL)
		iscsi_destroy_context(iscsi); /* calls back what is queued */
	for (unsigned i = 0; i < DEPTH_MAX; i++) {
		if (!v.ops[i].used)
			continue;
		op_blocks(&v.ops[i], op_release);
		op_end(&v.ops[i]);
	}
}

/* One turn of libiscsi's loop; at most @wait_ms. */
static void turn(int wait_ms)
{
	struct pollfd fds[2] = {
		{ .fd = iscsi_get_fd(v.iscsi),
		  .events = (short)iscsi_which_events(v.iscsi) },
		{ .fd = v.stopping ? -1 : 0, .events = POLLIN },
	};
	uint64_t now;

	if (poll(fds, 2, wait_ms) < 0 && errno != EINTR)
		give_up("poll: %s", strerror(errno));
	if (fds[1].revents) {
		char sink[256];

		if (read(0, sink, sizeof(sink)) <= 0)
			v.stopping = true;
	}
	if (iscsi_service(v.iscsi, fds[0].revents) < 0 ||
	    iscsi_get_fd(v.iscsi) < 0)
		v.lost = true;
	now = now_ns();
	for (unsigned i = 0; i < DEPTH_MAX && !v.lost; i++)
		if (v.ops[i].used && v.ops[i].retry_ns &&
		    v.ops[i].retry_ns <= now)
			op_send(&v.ops[i]);
}

/* Log in until it works, for v.reconnect_s. */
static void reconnect(void)
{
	uint64_t until = now_ns() + v.reconnect_s * 1000000000ull;
	char why[256] = "";

	for (;;) {
		v.iscsi = initiator_login(v.initiator, v.url, v.command_s,
					  &v.lun, why, sizeof(why));
		if (v.iscsi != NULL)
			break;
		if (now_ns() > until)
			give_up("no login for %u s: %s", v.reconnect_s, why);
		usleep(100000);
	}
	v.lost = false;
}

/*
 * @kind over the whole unit, at most @depth commands of @len_max bytes at a
 * time; false if the connection broke on the way.
 */
static bool sweep(enum op_kind kind, uint32_t len_max, unsigned depth)
{
	uint64_t bytes = v.blocks_count * BLOCK, at = 0;

	while (!v.lost && (at < bytes || v.ops_count)) {
		while (!v.lost && at < bytes && v.ops_count < depth) {
			uint32_t len = len_max;

			if (len > bytes - at)
				len = (uint32_t)(bytes - at);
			op_start(kind, at, len);
			at += len;
		}
		if (!v.lost)
			turn(1000);
	}
	return !v.lost;
}

/* Read and compare everything; false if the connection broke on the way. */
static bool verify(const char *when)
{
	uint64_t started = now_ns();
	bool whole;

	v.verifying = true;
	whole = sweep(OP_READ, 256u << 10, v.depth < 8 ? v.depth : 8);
	v.verifying = false;
	if (!whole)
		return false;
	say("verified %s: %llu blocks in %llu ms; of unanswered writes %llu "
	    "are there, %llu not",
	    when, (unsigned long long)v.blocks_count,
	    (unsigned long long)((now_ns() - started) / 1000000),
	    (unsigned long long)v.resolved_new,
	    (unsigned long long)v.resolved_old);
	return v.bad == 0;
}

static void recover(void)
{
	do {
		connection_drop();
		reconnect();
		v.reconnects++;
	} while (!verify("after a reconnect") && v.lost);
	v.acked_since = 0;
}

static void fill(void)
{
	uint64_t bytes = v.blocks_count * BLOCK;

	if (!sweep(OP_WRITE, 512u << 10, v.depth))
		give_up("the connection broke while filling");
	say("filled %llu MiB", (unsigned long long)(bytes >> 20));
}

static void load(void)
{
	bool told = false;

	while (!v.stopping && v.bad == 0 &&
	       (v.commands_max == 0 || v.acked < v.commands_max)) {
		/* Overlaps make op_start() refuse, so tries are bounded. */
		for (unsigned i = 0;
		     i < v.depth * 2 && !v.lost && v.ops_count < v.depth; i++)
			load_one();
		if (!v.lost)
			turn(100);
		if (v.lost) {
			recover();
			told = false;
		} else if (!told && v.acked_since >= 100) {
			say("running");
			told = true;
		}
	}
	while (v.ops_count && !v.lost)
		turn(1000);
	if (v.lost)
		recover();
}

static void setup(void)
{
	struct scsi_task *task;
	struct scsi_readcapacity16 *rc;
	uint64_t bytes;

	reconnect();
	task = iscsi_readcapacity16_sync(v.iscsi, v.lun);
	if (task == NULL || task->status != SCSI_STATUS_GOOD)
		give_up("READ CAPACITY(16): %s", iscsi_get_error(v.iscsi));
	rc = scsi_datain_unmarshall(task);
	if (rc == NULL || rc->block_length < SECTOR || rc->block_length > BLOCK)
		give_up("READ CAPACITY(16): no sensible answer");
	v.lba_bytes = rc->block_length;
	bytes = (rc->returned_lba + 1) * v.lba_bytes;
	scsi_free_scsi_task(task);
	if (v.bytes_max && bytes > v.bytes_max)
		bytes = v.bytes_max;
	v.blocks_count = bytes / BLOCK;
	if (v.blocks_count < IO_MAX / BLOCK)
		give_up("the unit is too small");
	v.blocks = calloc(v.blocks_count, sizeof(*v.blocks));
	for (unsigned i = 0; i < DEPTH_MAX; i++)
		if ((v.ops[i].buf = malloc(IO_MAX)) == NULL)
			v.blocks = NULL;
	if (v.blocks == NULL)
		give_up("out of memory");
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "depth", required_argument, NULL, 'd' },
		{ "unmap", required_argument, NULL, 'u' },
		{ "reads", required_argument, NULL, 'r' },
		{ "compares", required_argument, NULL, 'e' },
		{ "bytes", required_argument, NULL, 'b' },
		{ "seed", required_argument, NULL, 's' },
		{ "writer", required_argument, NULL, 'w' },
		{ "initiator", required_argument, NULL, 'i' },
		{ "fill", no_argument, NULL, 'f' },
		{ "again", no_argument, NULL, 'a' },
		{ "journal", required_argument, NULL, 'j' },
		{ "record", required_argument, NULL, 'R' },
		{ "commands", required_argument, NULL, 'c' },
		{ "command-limit", required_argument, NULL, 'C' },
		{ "away-limit", required_argument, NULL, 'A' },
		{ "refused-limit", required_argument, NULL, 'F' },
		{ 0 },
	};
	int c;

	v.random = now_ns();
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'd':
			v.depth = (unsigned)atoi(optarg);
			break;
		case 'u':
			v.unmap_percent = (unsigned)atoi(optarg);
			break;
		case 'r':
			v.read_percent = (unsigned)atoi(optarg);
			break;
		case 'e':
			v.compare_percent = (unsigned)atoi(optarg);
			break;
		case 'b':
			v.bytes_max = strtoull(optarg, NULL, 0);
			break;
		case 's':
			v.random = strtoull(optarg, NULL, 0);
			break;
		case 'w':
			v.writer = (uint32_t)atoi(optarg);
			break;
		case 'i':
			v.initiator = optarg;
			break;
		case 'a':
			v.again = true;
			break;
		case 'f':
			v.fill = true;
			break;
		case 'j':
			v.journal = fopen(optarg, "wb");
			break;
		case 'R':
			v.record_fd = open(optarg, O_RDONLY | O_CLOEXEC);
			break;
		case 'c':
			v.commands_max = strtoull(optarg, NULL, 0);
			break;
		case 'C':
			v.command_s = (unsigned)atoi(optarg);
			break;
		case 'A':
			v.reconnect_s = (unsigned)atoi(optarg);
			break;
		case 'F':
			v.refused_s = (unsigned)atoi(optarg);
			break;
		default:
			return 2;
		}
	}
	if (optind + 1 != argc || v.depth == 0 || v.depth > DEPTH_MAX ||
	    v.command_s == 0 ||
	    v.unmap_percent + v.read_percent + v.compare_percent > 100) {
		fprintf(stderr,
			"usage: t_verify [--depth N] [--unmap %%] [--reads %%] "
			"[--compares %%] "
			"[--bytes N] [--seed N] [--writer N] "
			"[--initiator IQN] [--fill] [--again] [--commands N] "
			"[--command-limit SECONDS] [--away-limit SECONDS] "
			"[--refused-limit SECONDS] [--journal FILE --record FILE] URL\n");
		return 2;
	}
	if (v.journal != NULL && v.record_fd <= 0)
		give_up("--journal needs the --record it refers to");
	v.url = argv[optind];
	say("seed %llu", (unsigned long long)v.random);
	setup();
	/* Nothing may be there that this writer did not write. */
	if (!verify("at the start"))
		give_up("the disk is not empty, or went away");
	if (v.fill)
		fill();
	load();
	if (v.bad == 0)
		while (!verify("at the end") && v.lost)
			recover();
	say("done: %llu commands acknowledged, %llu retried, %u reconnects, "
	    "%u bad",
	    (unsigned long long)v.acked, (unsigned long long)v.retries,
	    v.reconnects, v.bad);
	if (v.journal != NULL && fclose(v.journal) != 0)
		give_up("the journal: %s", strerror(errno));
	if (v.iscsi != NULL) {
		iscsi_logout_sync(v.iscsi);
		iscsi_destroy_context(v.iscsi);
	}
	return v.bad ? 1 : 0;
}
