/* tame: text in UTF-8, or what should be, without what commands a terminal. */
#include "base/tame.h"

void text_tame(char *text)
{
	unsigned more = 0; /* bytes the character still has */

	for (unsigned char *p = (unsigned char *)text; *p != '\0'; p++) {
		if (more > 0 && (*p & 0xc0) == 0x80) {
			more--;
			continue;
		}
		more = 0;
		if (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0)
			p[0] = p[1] = '?';
		else if ((*p < ' ' && *p != '\n') || (*p >= 0x7f && *p < 0xc0))
			*p = '?';
		else if (*p >= 0xc0)
			more = *p >= 0xf0 ? 3 : *p >= 0xe0 ? 2 : 1;
	}
}
