/* utf8: what is printed for programs must be what they can read. */
#ifndef BASALT_BASE_UTF8_H
#define BASALT_BASE_UTF8_H

/*
 * '?' in place of what is no character of UTF-8 (RFC 3629): a file's name need not
 * be, and a text may be cut within one.  Who reads JSON or metrics takes no other.
 */
void text_utf8(char *text);

#endif
