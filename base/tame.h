/*
 * tame: what is printed for people must not command their terminal: names that
 * came over the network, and words of the command line that are told back.  And
 * what is printed for programs must be what they can read.
 */
#ifndef BASALT_BASE_TAME_H
#define BASALT_BASE_TAME_H

/*
 * '?' in place of control characters but the end of a line, U+0080 to U+009F among
 * them, and of their bytes where no character of UTF-8 is.
 */
void text_tame(char *text);

/*
 * '?' in place of what is no character of UTF-8 (RFC 3629): a file's name need not
 * be, and a text may be cut within one.  Who reads JSON or metrics takes no other.
 */
void text_utf8(char *text);

#endif
