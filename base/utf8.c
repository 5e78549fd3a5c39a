/* utf8: bytes that are no text; what is, Jansson knows. */
#include "base/utf8.h"

#include <jansson.h>
#include <string.h>

void text_utf8(char *text)
{
	json_t *s;
	size_t n;

	for (char *p = text; *p != '\0'; p += n) {
		n = 1;
		if ((*p & 0x80) == 0)
			continue;
		while (n < 4 && (p[n] & 0xc0) == 0x80)
			n++;
		s = json_stringn(p, n);
		if (s == NULL)
			memset(p, '?', n);
		json_decref(s);
	}
}
