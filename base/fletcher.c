/* fletcher: see its header; vectors of GCC, as wide as the processor has them. */
#include "base/fletcher.h"

#include "base/crc.h"

#include <assert.h>
#include <string.h>

typedef uint64_t lanes __attribute__((vector_size(FLETCHER_BYTES)));
#define STEPS 16

/* Of any alignment. */
typedef uint64_t words
	__attribute__((vector_size(FLETCHER_BYTES), aligned(1), may_alias));

static inline __attribute__((always_inline)) void
add(struct fletcher *f, const words *word, size_t count)
{
	lanes sum, sums;

	memcpy(&sum, f->sum, sizeof(sum));
	memcpy(&sums, f->sums, sizeof(sums));
	/* A step is two additions; what counts the loop is shared by many. */
	for (; count >= STEPS; count -= STEPS, word += STEPS) {
#pragma GCC unroll 16
		for (unsigned i = 0; i < STEPS; i++)
			sums += sum += word[i];
	}
	for (; count > 0; count--)
		sums += sum += *word++;
	memcpy(f->sum, &sum, sizeof(sum));
	memcpy(f->sums, &sums, sizeof(sums));
}

#ifdef __x86_64__
static __attribute__((target("avx2"))) void
add_avx2(struct fletcher *f, const words *word, size_t count)
{
	add(f, word, count);
}
#endif

void fletcher_add(struct fletcher *f, const void *buf, size_t len)
{
	assert(len % FLETCHER_BYTES == 0);
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2")) {
		add_avx2(f, buf, len / FLETCHER_BYTES);
		return;
	}
#endif
	add(f, buf, len / FLETCHER_BYTES);
}

uint32_t fletcher_end(const struct fletcher *f)
{
	return crc32c(f, sizeof(*f));
}
