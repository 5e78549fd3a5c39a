/*
 * base_checksum: what the checksums of 4 KiB cost on this processor.
 *
 *	base_checksum
 *
 * Prints one line of JSON, microseconds of CPU: "crc32c_us", what a block is
 * checked with, and "fletcher_us", what a batch of the log has beside it.
 * Where their instructions are emulated they are most of what a large request
 * costs, and elsewhere next to nothing.
 */
#include "base/crc.h"
#include "base/fletcher.h"

#include <stdio.h>
#include <time.h>

#define BYTES 4096u
#define SECONDS 0.3

static uint32_t sums_more(uint32_t sums, const void *buf, size_t len)
{
	struct fletcher f = { .sum = { sums } };

	fletcher_add(&f, buf, len);
	return fletcher_end(&f);
}

static double cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double microseconds(uint32_t (*more)(uint32_t, const void *, size_t))
{
	static uint8_t block[BYTES];
	double begin = cpu_seconds(), now;
	uint32_t crc = 0;
	unsigned n = 0;

	for (unsigned i = 0; i < BYTES; i++)
		block[i] = (uint8_t)(i * 7);
	do {
		for (unsigned i = 0; i < 100; i++, n++)
			crc = more(crc, block, BYTES);
		block[n % BYTES] ^= (uint8_t)crc;
		now = cpu_seconds();
	} while (now - begin < SECONDS);
	return (now - begin) / n * 1e6;
}

int main(void)
{
	printf("{\"crc32c_us\": %.3f, ", microseconds(crc32c_more));
	printf("\"fletcher_us\": %.3f}\n", microseconds(sums_more));
	return 0;
}
