/*
 * copycount: what a program copies through the C library, counted.
 *
 *	LD_PRELOAD=copycount.so COPYCOUNT=FILE PROGRAM
 *
 * FILE becomes struct table, in shared memory: read it while PROGRAM runs.
 * PROGRAM must be built with -fno-builtin, else gcc writes small copies out.
 *
 * Payload is known by its content, wherever it lies: whoever writes to the
 * program repeats the eight bytes of MARK, and every run of at least as many
 * that continues it is payload.  What else is copied is counted by the size of
 * the copy, what goes through system calls apart.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define MARK "payLOD-1"
#define MARK_LEN 8

/* Copies of up to 63, 511, 4095, 16383 bytes, and larger ones. */
#define SIZES 5

/* tests/lib/copies.py reads it. */
struct table {
	_Atomic uint64_t payload_bytes;
	_Atomic uint64_t received_bytes, sent_bytes; /* by system calls */
	_Atomic uint64_t other_bytes[SIZES], other_copies[SIZES];
};

static struct table unseen, *table = &unseen;

/* The place of a byte in MARK, from 1; 0: it is none of MARK's. */
static const uint8_t place[256] = {
	['p'] = 1, ['a'] = 2, ['y'] = 3, ['L'] = 4,
	['O'] = 5, ['D'] = 6, ['-'] = 7, ['1'] = 8,
};

static size_t payload_in(const uint8_t *bytes, size_t n)
{
	size_t sum = 0, run = 0;
	unsigned last = 0;

	for (size_t i = 0; i < n; i++) {
		unsigned here = place[bytes[i]];

		if (run > 0 && here == last % MARK_LEN + 1) {
			run++;
		} else {
			sum += run >= MARK_LEN ? run : 0;
			run = here > 0;
		}
		last = here;
	}
	return sum + (run >= MARK_LEN ? run : 0);
}

static void add(_Atomic uint64_t *count, uint64_t n)
{
	atomic_fetch_add_explicit(count, n, memory_order_relaxed);
}

static void count(const void *from, size_t n)
{
	static const size_t below[SIZES - 1] = { 64, 512, 4096, 16384 };
	size_t payload = n < MARK_LEN ? 0 : payload_in(from, n);
	unsigned size = 0;

	add(&table->payload_bytes, payload);
	if (payload == n)
		return;
	while (size < SIZES - 1 && n >= below[size])
		size++;
	add(&table->other_bytes[size], n - payload);
	add(&table->other_copies[size], 1);
}

/* ---- the C library's own ---- */

static __typeof__(memcpy) *real_memcpy;
static __typeof__(memmove) *real_memmove;

/* Call the C library's @name; other libraries begin before this one. */
#define REAL(name, ...)                                                        \
	({                                                                     \
		static __typeof__(name) *_Atomic real;                         \
                                                                               \
		if (real == NULL)                                              \
			real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name);    \
		real(__VA_ARGS__);                                             \
	})

__attribute__((constructor)) static void begin(void)
{
	const char *path = getenv("COPYCOUNT");
	void *map;
	int fd;

	real_memcpy = (__typeof__(real_memcpy))dlsym(RTLD_NEXT, "memcpy");
	real_memmove = (__typeof__(real_memmove))dlsym(RTLD_NEXT, "memmove");
	if (path == NULL)
		return;
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || ftruncate(fd, sizeof(*table)) != 0) {
		perror(path);
		_exit(1);
	}
	map = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		   0);
	if (map == MAP_FAILED) {
		perror(path);
		_exit(1);
	}
	close(fd);
	table = map;
}

/* Before begin(), when nothing is known yet. */
static void *copy_early(void *to, const void *from, size_t n)
{
	volatile uint8_t *d = to; /* so that it is not made a memcpy() again */
	const volatile uint8_t *s = from;

	if ((uintptr_t)to <= (uintptr_t)from)
		for (size_t i = 0; i < n; i++)
			d[i] = s[i];
	else
		for (size_t i = n; i-- > 0;)
			d[i] = s[i];
	return to;
}

/* ---- copies ---- */

void *memcpy(void *to, const void *from, size_t n)
{
	count(from, n);
	return real_memcpy != NULL ? real_memcpy(to, from, n)
				   : copy_early(to, from, n);
}

void *memmove(void *to, const void *from, size_t n)
{
	count(from, n);
	return real_memmove != NULL ? real_memmove(to, from, n)
				    : copy_early(to, from, n);
}

void *mempcpy(void *to, const void *from, size_t n)
{
	return (char *)memcpy(to, from, n) + n;
}

void bcopy(const void *from, void *to, size_t n)
{
	memmove(to, from, n);
}

/* What libraries built with _FORTIFY_SOURCE call. */
void *__memcpy_chk(void *to, const void *from, size_t n, size_t room);
void *__memmove_chk(void *to, const void *from, size_t n, size_t room);
void *__mempcpy_chk(void *to, const void *from, size_t n, size_t room);

void *__memcpy_chk(void *to, const void *from, size_t n, size_t room)
{
	if (n > room)
		abort();
	return memcpy(to, from, n);
}

void *__memmove_chk(void *to, const void *from, size_t n, size_t room)
{
	if (n > room)
		abort();
	return memmove(to, from, n);
}

void *__mempcpy_chk(void *to, const void *from, size_t n, size_t room)
{
	if (n > room)
		abort();
	return mempcpy(to, from, n);
}

/* ---- system calls ---- */

static ssize_t counted(_Atomic uint64_t *bytes, ssize_t n)
{
	if (n > 0)
		add(bytes, (uint64_t)n);
	return n;
}

#define RECEIVED(call) counted(&table->received_bytes, (call))
#define SENT(call) counted(&table->sent_bytes, (call))

ssize_t read(int fd, void *buf, size_t n)
{
	return RECEIVED(REAL(read, fd, buf, n));
}

ssize_t readv(int fd, const struct iovec *iov, int iov_count)
{
	return RECEIVED(REAL(readv, fd, iov, iov_count));
}

ssize_t recv(int fd, void *buf, size_t n, int flags)
{
	return RECEIVED(REAL(recv, fd, buf, n, flags));
}

ssize_t recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *from,
		 socklen_t *from_len)
{
	return RECEIVED(REAL(recvfrom, fd, buf, n, flags, from, from_len));
}

ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
{
	return RECEIVED(REAL(recvmsg, fd, msg, flags));
}

ssize_t write(int fd, const void *buf, size_t n)
{
	return SENT(REAL(write, fd, buf, n));
}

ssize_t writev(int fd, const struct iovec *iov, int iov_count)
{
	return SENT(REAL(writev, fd, iov, iov_count));
}

ssize_t send(int fd, const void *buf, size_t n, int flags)
{
	return SENT(REAL(send, fd, buf, n, flags));
}

ssize_t sendto(int fd, const void *buf, size_t n, int flags,
	       const struct sockaddr *to, socklen_t to_len)
{
	return SENT(REAL(sendto, fd, buf, n, flags, to, to_len));
}

ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
{
	return SENT(REAL(sendmsg, fd, msg, flags));
}
