/*
 * guestcount: a plugin of QEMU's TCG that counts a guest's instructions.
 *
 *	qemu-system-x86_64 -plugin guestcount.so,out=FILE ...
 *
 * FILE holds, for each of 64 processors, the instructions it executed in user
 * mode and in the kernel: pairs of uint64_t, in shared memory, to be read while
 * the guest runs.  A block that is left early counts as a whole.
 *
 * Debian has no package of QEMU's header.  What is used of its plugin interface
 * (version 1, QEMU 6 to 8) is declared here.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define CPUS 64u

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

static void on_user(unsigned cpu, void *arg)
{
	counts[cpu % CPUS].user += (uintptr_t)arg;
}

static void on_kernel(unsigned cpu, void *arg)
{
	counts[cpu % CPUS].kernel += (uintptr_t)arg;
}

static void on_block(uint64_t id, struct qemu_plugin_tb *tb)
{
	bool kernel = qemu_plugin_tb_vaddr(tb) >> 63;

	qemu_plugin_register_vcpu_tb_exec_cb(
		tb, kernel ? on_kernel : on_user, 0 /* no registers */,
		(void *)(uintptr_t)qemu_plugin_tb_n_insns(tb));
}

int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc,
			char **argv)
{
	size_t len = CPUS * sizeof(*counts);
	int fd;

	if (argc != 1 || strncmp(argv[0], "out=", 4) != 0) {
		fprintf(stderr, "guestcount: out=FILE is wanted\n");
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
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_block);
	return 0;
}
