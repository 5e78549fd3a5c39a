/*
 * t_block: single 4096-byte blocks of a unit, for tests that damage a disk.
 *
 *	t_block URL COMMAND...
 *
 *	wLBA=SEED	write the block of SEED (1..), one command each
 *	rLBA		read
 *	uLBA		unmap
 *
 * Prints a line a command: "LBA seed N", "LBA zeros", "LBA foreign" for a read,
 * "LBA done", or "LBA sense KEY/ASC/ASCQ" in hexadecimal.  Status 0: all were
 * answered; 1: the session ended; 2 usage.
 */
#include "tests/lib/initiator.h"

#define BLOCK 4096u

static void fill(uint64_t *words, uint64_t lba, uint64_t seed)
{
	for (unsigned i = 0; i < BLOCK / 8; i++)
		words[i] = seed * 0x9e3779b97f4a7c15ull + lba * 31 + i;
}

static void tell_read(const struct scsi_task *task, uint64_t lba)
{
	uint64_t got[BLOCK / 8], want[BLOCK / 8], seed;

	if (task->datain.size != BLOCK) {
		printf("%llu short\n", (unsigned long long)lba);
		return;
	}
	memcpy(got, task->datain.data, BLOCK);
	memset(want, 0, BLOCK);
	if (memcmp(got, want, BLOCK) == 0) {
		printf("%llu zeros\n", (unsigned long long)lba);
		return;
	}
	for (seed = 1; seed < 1000; seed++) {
		fill(want, lba, seed);
		if (memcmp(got, want, BLOCK) == 0) {
			printf("%llu seed %llu\n", (unsigned long long)lba,
			       (unsigned long long)seed);
			return;
		}
	}
	printf("%llu foreign\n", (unsigned long long)lba);
}

static struct scsi_task *command(struct iscsi_context *iscsi, int lun, char op,
				 uint64_t lba, uint64_t seed)
{
	struct unmap_list list = { .lba = lba, .num = 1 };
	uint64_t words[BLOCK / 8];

	switch (op) {
	case 'r':
		return iscsi_read16_sync(iscsi, lun, lba, BLOCK, BLOCK, 0, 0, 0,
					 0, 0);
	case 'w':
		fill(words, lba, seed);
		return iscsi_write16_sync(iscsi, lun, lba, (void *)words, BLOCK,
					  BLOCK, 0, 0, 0, 0, 0);
	case 'u':
		return iscsi_unmap_sync(iscsi, lun, 0, 0, &list, 1);
	}
	fprintf(stderr, "t_block: unknown command %c\n", op);
	exit(2);
}

static int run(struct iscsi_context *iscsi, int lun, const char *arg)
{
	char *end;
	uint64_t lba = strtoull(arg + 1, &end, 10);
	uint64_t seed = *end == '=' ? strtoull(end + 1, NULL, 10) : 0;
	struct scsi_task *task = command(iscsi, lun, arg[0], lba, seed);

	/* Above a byte: libiscsi's own, for what was under way at the end. */
	if (task == NULL || task->status > 0xff) {
		printf("no answer: %s\n", task == NULL ? iscsi_get_error(iscsi)
						       : "the session ended");
		if (task != NULL)
			scsi_free_scsi_task(task);
		return 1;
	}
	if (task->status == SCSI_STATUS_CHECK_CONDITION)
		printf("%llu sense %x/%02x/%02x\n", (unsigned long long)lba,
		       task->sense.key, task->sense.ascq >> 8,
		       task->sense.ascq & 0xff);
	else if (task->status != SCSI_STATUS_GOOD)
		printf("%llu status %d\n", (unsigned long long)lba,
		       task->status);
	else if (arg[0] == 'r')
		tell_read(task, lba);
	else
		printf("%llu done\n", (unsigned long long)lba);
	scsi_free_scsi_task(task);
	return 0;
}

int main(int argc, char **argv)
{
	struct iscsi_context *iscsi;
	int lun, rv = 0;
	char why[256];

	if (argc < 3)
		return 2;
	iscsi = initiator_login("iqn.2026-11.internal.basalt:block", argv[1],
				20, &lun, why, sizeof(why));
	if (iscsi == NULL) {
		printf("login failed: %s\n", why);
		return 1;
	}
	for (int i = 2; i < argc && rv == 0; i++)
		rv = run(iscsi, lun, argv[i]);
	iscsi_logout_sync(iscsi);
	iscsi_destroy_context(iscsi);
	return rv;
}
