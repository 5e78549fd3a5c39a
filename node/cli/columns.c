/* columns: tables for people. */
#include "node/cli/cli.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

struct columns {
	unsigned count;
	const char *const *heads;
	char **cells;
	size_t cells_count, room;
};

struct columns *columns_open(const char *const *heads, unsigned count)
{
	struct columns *c = calloc(1, sizeof(*c));

	assert(c != NULL);
	c->heads = heads;
	c->count = count;
	return c;
}

void columns_cell(struct columns *c, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	for (char *p = text; *p != '\0'; p++)
		if (*p == '\n')
			*p = '?'; /* a cell is in one line */
	if (c->cells_count == c->room) {
		c->room = c->room ? c->room * 2 : 64;
		c->cells = realloc(c->cells, c->room * sizeof(*c->cells));
		assert(c->cells != NULL);
	}
	c->cells[c->cells_count] = strdup(text[0] ? text : "-");
	assert(c->cells[c->cells_count] != NULL);
	c->cells_count++;
}

/* Characters, not bytes. */
static size_t width(const char *text)
{
	size_t n = 0;

	for (; *text != '\0'; text++)
		n += ((unsigned char)*text & 0xc0) != 0x80;
	return n;
}

static void cell_print(const char *text, size_t wide, bool right, bool last)
{
	size_t pad = wide > width(text) ? wide - width(text) : 0;

	if (right)
		printf("%*s%s", (int)pad, "", text);
	else
		printf("%s%*s", text, last ? 0 : (int)pad, "");
	fputs(last ? "\n" : "  ", stdout);
}

void columns_print(struct columns *c)
{
	size_t *wide = calloc(c->count, sizeof(*wide));

	assert(wide != NULL && c->cells_count % c->count == 0);
	for (unsigned i = 0; i < c->count; i++)
		wide[i] = width(c->heads[i] + (c->heads[i][0] == '<'));
	for (size_t i = 0; i < c->cells_count; i++)
		if (width(c->cells[i]) > wide[i % c->count])
			wide[i % c->count] = width(c->cells[i]);
	for (unsigned i = 0; i < c->count; i++)
		cell_print(c->heads[i] + (c->heads[i][0] == '<'), wide[i],
			   c->heads[i][0] == '<', i + 1 == c->count);
	for (size_t i = 0; i < c->cells_count; i++) {
		unsigned col = (unsigned)(i % c->count);

		cell_print(c->cells[i], wide[col], c->heads[col][0] == '<',
			   col + 1 == c->count);
		free(c->cells[i]);
	}
	free(c->cells);
	free(wide);
	free(c);
}
