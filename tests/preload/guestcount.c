/*
 * guestcount: a plugin of QEMU's TCG that counts a guest's instructions.
 *
 *	qemu-system-x86_64 -plugin guestcount.so,out=FILE[,blocks=on] ...
 *
 * FILE holds, for each of 64 processors, the instructions it executed in user
 * mode and in the kernel: pairs of uint64_t, in shared memory, to be read while
 * the guest runs.  A block that is left early counts as a whole.
 *
 * With blocks=on there follow 8 Mi places of three uint64_t: a block of user
 * mode's address, its instructions (0: no block), and how often processor 1
 * executed it.
 *
 * Debian has no package of QEMU's header.  What is used of its plugin interface
 * (version 1, QEMU 6 to 8) is declared here.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CPUS 64u
#define BLOCKS (1u << 23)
#define WATCHED 1u /* the processor whose blocks are counted */

struct qemu_plugin_tb;
struct qemu_info;

extern int qemu_plugin_version;
int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc,
			char **argv);
void qemu_plugin_register_vcpu_tb_trans_cb(
	uint64_t id, void (*cb)(uint64_t id, struct qemu_plugin_tb *tb));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb,
					  void (*cb)(unsigned cpu, void *arg),
					  int flags, void *arg);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);

int qemu_plugin_version = 1;

/* Each processor is a thread that writes its own pair only. */
static struct {
	uint64_t user, kernel;
} * counts;

static struct block {
	uint64_t address, instructions, executed;
} * blocks;

static void on_user(unsigned cpu, void *arg)
{
	counts[cpu % CPUS].user += (uintptr_t)arg;
}

static void on_user_block(unsigned cpu, void *arg)
{
	struct block *b = arg;

	counts[cpu % CPUS].user += b->instructions;
	if (cpu == WATCHED)
		b->executed++;
}

static void on_kernel(unsigned cpu, void *arg)
{
	counts[cpu % CPUS].kernel += (uintptr_t)arg;
}

/* A block is translated again and again; NULL: more than there are places. */
static struct block *block_of(uint64_t address, uint64_t instructions)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	uint64_t at = (address + instructions) * 0x9e3779b97f4a7c15ull >> 41;
	struct block *b = NULL;
	unsigned tries;

	pthread_mutex_lock(&lock);
	for (tries = 0; tries < 1000; tries++) {
		b = &blocks[(at + tries) % BLOCKS];
		if (b->instructions == 0) {
			b->address = address;
			b->instructions = instructions;
		}
		if (b->address == address && b->instructions == instructions)
			break;
	}
	pthread_mutex_unlock(&lock);
	return tries < 1000 ? b : NULL;
}

static void on_block(uint64_t id, struct qemu_plugin_tb *tb)
{
	uint64_t address = qemu_plugin_tb_vaddr(tb);
	size_t n = qemu_plugin_tb_n_insns(tb);
	bool kernel = address >> 63;
	struct block *b =
		kernel || blocks == NULL ? NULL : block_of(address, n);

	if (b != NULL)
		qemu_plugin_register_vcpu_tb_exec_cb(tb, on_user_block, 0, b);
	else
		qemu_plugin_register_vcpu_tb_exec_cb(
			tb, kernel ? on_kernel : on_user, 0 /* no registers */,
			(void *)(uintptr_t)n);
}

int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc,
			char **argv)
{
	bool with_blocks = argc == 2 && strcmp(argv[1], "blocks=on") == 0;
	size_t len = CPUS * sizeof(*counts);
	int fd;

	if (with_blocks)
		len += BLOCKS * sizeof(*blocks); /* a hole, where none is */
	if (argc != 1 + with_blocks || strncmp(argv[0], "out=", 4) != 0) {
		fprintf(stderr, "guestcount: out=FILE[,blocks=on] is wanted\n");
		return -1;
	}
	fd = open(argv[0] + 4, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || ftruncate(fd, (off_t)len) != 0) {
		perror(argv[0] + 4);
		return -1;
	}
	counts = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (counts == MAP_FAILED) {
		perror("guestcount");
		return -1;
	}
	if (with_blocks)
		blocks = (void *)(counts + CPUS);
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_block);
	return 0;
}
