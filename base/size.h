/*
 * size: numbers as people write them.  In a header, because the daemon and the
 * command line read and print the same way and share no library.
 */
#ifndef BASALT_BASE_SIZE_H
#define BASALT_BASE_SIZE_H

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/*
 * "10G", "512M", "1.5T", "4096": bytes, powers of 1024; K, M, G, T, P, E with
 * "iB" or "B" after them or not.  0; -EINVAL (no such text), -ERANGE (beyond 64
 * bits).
 */
static inline int size_parse(const char *text, uint64_t *out)
{
	static const char units[] = "KMGTPE";
	uint64_t whole = 0, part = 0, scale = 1, unit = 1, part_bytes = 0;
	const char *p = text, *at;

	if (!isdigit((unsigned char)*p))
		return -EINVAL;
	for (; isdigit((unsigned char)*p); p++)
		if (__builtin_mul_overflow(whole, 10u, &whole) ||
		    __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole))
			return -ERANGE;
	if (*p == '.') {
		if (!isdigit((unsigned char)*++p))
			return -EINVAL;
		for (; isdigit((unsigned char)*p); p++)
			if (scale < 1000000) {
				part = part * 10 + (uint64_t)(*p - '0');
				scale *= 10;
			}
	}
	if (*p != '\0' && toupper((unsigned char)*p) != 'B') {
		at = strchr(units, toupper((unsigned char)*p));
		if (at == NULL)
			return -EINVAL;
		unit = 1ull << (10 * (at - units + 1));
		p++;
		if (strcasecmp(p, "iB") == 0)
			p += 2;
	}
	if (strcasecmp(p, "B") == 0)
		p++;
	if (*p != '\0')
		return -EINVAL;
	if (scale > 1) {
		/* Of large units the MiB, times a million below 2^64. */
		part_bytes = unit > 1ull << 40
				     ? part * (unit >> 20) / scale << 20
				     : part * unit / scale;
	}
	if (__builtin_mul_overflow(whole, unit, out) ||
	    __builtin_add_overflow(*out, part_bytes, out))
		return -ERANGE;
	return 0;
}

#define SIZE_TEXT_MAX 24

/* "10G", "1.5T", "512M"; exact multiples without a fraction. */
static inline const char *size_format(uint64_t bytes, char out[SIZE_TEXT_MAX])
{
	static const char units[] = "BKMGTPE";
	unsigned u = 0;
	uint64_t unit = 1;

	while (u + 1 < sizeof(units) - 1 && bytes / unit >= 1024) {
		unit *= 1024;
		u++;
	}
	if (u == 0)
		snprintf(out, SIZE_TEXT_MAX, "%llu", (unsigned long long)bytes);
	else if (bytes % unit == 0)
		snprintf(out, SIZE_TEXT_MAX, "%llu%c",
			 (unsigned long long)(bytes / unit), units[u]);
	else
		snprintf(out, SIZE_TEXT_MAX, "%.*f%c",
			 bytes / unit >= 100 ? 0 : 1,
			 (double)bytes / (double)unit, units[u]);
	return out;
}

/* A whole decimal number in [@min, @max].  0, -EINVAL, -ERANGE. */
static inline int number_parse(const char *text, uint64_t min, uint64_t max,
			       uint64_t *out)
{
	uint64_t value = 0;
	const char *p = text;

	if (*p == '\0')
		return -EINVAL;
	for (; *p != '\0'; p++) {
		if (!isdigit((unsigned char)*p))
			return -EINVAL;
		if (__builtin_mul_overflow(value, 10u, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
			return -ERANGE;
	}
	if (value < min || value > max)
		return -ERANGE;
	*out = value;
	return 0;
}

#endif
