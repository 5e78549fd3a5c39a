/*
 * t_tsc: how fast the processor's time stamp counter goes, in kHz.
 *
 * A guest of tests/lib/vm.py has it as its clock, and is told, as its kernel measures
 * it wrong where the host is busy.
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_RAW, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* The counter, and the time that it is as of, as near as five tries come. */
static uint64_t look(uint64_t *ns)
{
	uint64_t best = UINT64_MAX, ticks = 0;

	for (int i = 0; i < 5; i++) {
		uint64_t before = now_ns(), t = __rdtsc(), after = now_ns();

		if (after - before >= best)
			continue;
		best = after - before;
		ticks = t;
		*ns = before + best / 2;
	}
	return ticks;
}

int main(void)
{
	const struct timespec wait = { .tv_nsec = 100000000 };
	uint64_t from_ns, to_ns, from, to;

	from = look(&from_ns);
	nanosleep(&wait, NULL);
	to = look(&to_ns);
	printf("%llu\n", (unsigned long long)((double)(to - from) * 1e6 /
					      (double)(to_ns - from_ns)));
	return 0;
}
#else
int main(void)
{
	return 1; /* none that a guest of x86 could have */
}
#endif
