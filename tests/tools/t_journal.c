/*
 * t_journal: does a unit hold what a journal says it must?
 *
 *	t_journal URL JOURNAL CLOCK
 *
 * JOURNAL is one of t_verify's, whose --record was a file that somebody made
 * longer now and then, and noted elsewhere when: its length is a clock.  What was
 * acknowledged before it was CLOCK is there; what was sent while it was CLOCK + 1
 * at most may be; and each 4 KiB block is as one of these writes left it.
 *
 * Prints a line; status 0: it is so; 1: the lines "BAD ..." say what is not;
 * 2 usage.
 */
#include "tests/lib/initiator.h"
#include "tests/lib/pattern.h"

#include <stdarg.h>
#include <unistd.h>

#define WRITER 1u
#define READ_BYTES (256u << 10)
#define STATES_MAX 64u
#define BAD_MAX 10u

/* What a block may be, one state after the other. */
struct block {
	uint32_t (*gen)[SECTORS];
	unsigned count;
};

static struct {
	struct block *blocks;
	uint64_t count;
	unsigned bad;
} j;

__attribute__((format(printf, 1, 2))) static void bad(const char *fmt, ...)
{
	va_list ap;

	if (j.bad++ >= BAD_MAX)
		return;
	printf("BAD ");
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

static bool has(const struct block *b, const uint32_t *gen)
{
	for (unsigned i = 0; i < b->count; i++)
		if (memcmp(b->gen[i], gen, sizeof(b->gen[i])) == 0)
			return true;
	return false;
}

/* @gen in the sectors of @mask: of all states if @sure, else beside them. */
static void apply(struct block *b, uint8_t mask, uint32_t gen, bool sure)
{
	struct block old = *b;

	b->gen = malloc((2 * (size_t)old.count + 1) * sizeof(*b->gen));
	if (b->gen == NULL || old.count > STATES_MAX) {
		fprintf(stderr, "t_journal: too many states of a block\n");
		exit(2);
	}
	b->count = 0;
	for (unsigned i = 0; i < old.count; i++) {
		uint32_t made[SECTORS];

		memcpy(made, old.gen[i], sizeof(made));
		for (unsigned s = 0; s < SECTORS; s++)
			if (mask & 1u << s)
				made[s] = gen;
		if (!sure && !has(b, old.gen[i]))
			memcpy(b->gen[b->count++], old.gen[i], sizeof(made));
		if (!has(b, made))
			memcpy(b->gen[b->count++], made, sizeof(made));
	}
	free(old.gen);
}

static void entry_apply(const struct journal_entry *e)
{
	uint64_t end = e->offset + e->len;

	for (uint64_t at = e->offset; at < end; at += BLOCK - at % BLOCK) {
		unsigned first = (unsigned)(at % BLOCK / SECTOR);
		uint64_t index = at / BLOCK, stop = (index + 1) * BLOCK;
		unsigned last = (unsigned)(((stop < end ? stop : end) - 1) %
					   BLOCK / SECTOR);

		if (index < j.count)
			apply(&j.blocks[index],
			      (uint8_t)((2u << last) - (1u << first)), e->gen,
			      e->acked != 0);
	}
}

static int journal_read(const char *path, uint64_t clock)
{
	struct journal_entry e;
	FILE *f = fopen(path, "rbe");

	if (f == NULL)
		return -1;
	while (fread(&e, sizeof(e), 1, f) == 1)
		if (e.acked ? e.record_bytes < clock
			    : e.record_bytes <= clock + 1)
			entry_apply(&e);
	fclose(f);
	return 0;
}

static void block_check(uint64_t index, const uint8_t *buf)
{
	const struct block *b = &j.blocks[index];
	uint32_t got[SECTORS];
	char why[160];

	for (unsigned s = 0; s < SECTORS; s++) {
		int64_t gen = sector_read(buf + (size_t)s * SECTOR,
					  index * BLOCK + s * SECTOR, WRITER,
					  why, sizeof(why));

		if (gen < 0) {
			bad("block %llu, sector %u: %s, acknowledged "
			    "generation %u",
			    (unsigned long long)index, s, why, b->gen[0][s]);
			return;
		}
		got[s] = (uint32_t)gen;
	}
	if (!has(b, got))
		bad("block %llu holds generations %u..%u; acknowledged "
		    "%u..%u, %u states",
		    (unsigned long long)index, got[0], got[SECTORS - 1],
		    b->gen[0][0], b->gen[0][SECTORS - 1], b->count);
}

static struct scsi_task *read_at(struct iscsi_context *iscsi, int lun,
				 uint64_t offset, uint32_t lba_bytes)
{
	/* Who logs in anew is told what has happened meanwhile. */
	for (unsigned tries = 0;; tries++) {
		struct scsi_task *task =
			iscsi_read16_sync(iscsi, lun, offset / lba_bytes,
					  READ_BYTES, (int)lba_bytes, 0, 0, 0,
					  0, 0);

		if (task == NULL ||
		    task->status != SCSI_STATUS_CHECK_CONDITION ||
		    task->sense.key != SCSI_SENSE_UNIT_ATTENTION || tries == 10)
			return task;
		scsi_free_scsi_task(task);
	}
}

static void unit_check(struct iscsi_context *iscsi, int lun, uint32_t lba_bytes)
{
	for (uint64_t at = 0; at < j.count * BLOCK; at += READ_BYTES) {
		struct scsi_task *task = read_at(iscsi, lun, at, lba_bytes);

		if (task == NULL || task->status != SCSI_STATUS_GOOD ||
		    task->datain.size != (int)READ_BYTES) {
			bad("a read at %llu: status %#x, sense %x/%04x",
			    (unsigned long long)at,
			    task ? (unsigned)task->status : 0xffu,
			    task ? task->sense.key : 0u,
			    task ? (unsigned)task->sense.ascq : 0u);
		} else {
			for (uint32_t b = 0; b < READ_BYTES / BLOCK; b++)
				block_check(at / BLOCK + b,
					    task->datain.data +
						    (size_t)b * BLOCK);
		}
		if (task != NULL)
			scsi_free_scsi_task(task);
	}
}

/* The unit's size in bytes, and that of its blocks; 0: it does not say. */
static uint64_t capacity(struct iscsi_context *iscsi, int lun,
			 uint32_t *lba_bytes)
{
	struct scsi_task *task = iscsi_readcapacity16_sync(iscsi, lun);
	struct scsi_readcapacity16 *rc =
		task != NULL && task->status == SCSI_STATUS_GOOD
			? scsi_datain_unmarshall(task)
			: NULL;
	uint64_t bytes = 0;

	if (rc != NULL) {
		*lba_bytes = rc->block_length;
		bytes = (rc->returned_lba + 1) * rc->block_length;
	}
	if (task != NULL)
		scsi_free_scsi_task(task);
	return bytes;
}

int main(int argc, char **argv)
{
	struct iscsi_context *iscsi = NULL;
	uint32_t lba_bytes = 0;
	char why[256];
	int lun;

	if (argc != 4)
		return 2;
	/* A node that has just started may say that it is not ready yet. */
	for (unsigned tries = 0; iscsi == NULL && tries < 600; tries++) {
		if (tries > 0)
			usleep(100000);
		iscsi = initiator_login("iqn.2026-11.internal.basalt:journal",
					argv[1], 60, &lun, why, sizeof(why));
	}
	if (iscsi == NULL) {
		printf("BAD no login: %s\n", why);
		return 1;
	}
	j.count = capacity(iscsi, lun, &lba_bytes) / READ_BYTES * READ_BYTES /
		  BLOCK;
	j.blocks = calloc(j.count + 1, sizeof(*j.blocks));
	for (uint64_t i = 0; i < j.count && j.blocks != NULL; i++) {
		j.blocks[i].gen = calloc(1, sizeof(*j.blocks[i].gen));
		j.blocks[i].count = 1;
	}
	if (j.blocks == NULL || j.count == 0 ||
	    journal_read(argv[2], strtoull(argv[3], NULL, 0)) < 0) {
		printf("BAD no capacity, or no journal\n");
		return 1;
	}
	unit_check(iscsi, lun, lba_bytes);
	printf("%llu blocks, %u bad\n", (unsigned long long)j.count, j.bad);
	iscsi_logout_sync(iscsi);
	iscsi_destroy_context(iscsi);
	return j.bad != 0;
}
