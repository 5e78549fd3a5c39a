/*
 * tame: what is printed for people must not command their terminal: names that
 * came over the network, and words of the command line that are told back.
 */
#ifndef BASALT_BASE_TAME_H
#define BASALT_BASE_TAME_H

/*
 * '?' in place of control characters but the end of a line, U+0080 to U+009F among
 * them, and of their bytes where no character of UTF-8 is.
 */
void text_tame(char *text);

#endif
