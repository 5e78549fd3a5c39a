/* option: what the daemon and the command line say of options alike. */
#ifndef BASALT_BASE_OPTION_H
#define BASALT_BASE_OPTION_H

#include <getopt.h>
#include <string.h>

/*
 * The word that getopt_long() does not know, when it has returned '?': the last
 * one, but of several letters behind one '-' it knows the next may be good, and is
 * not through with the word.
 */
static inline const char *option_wrong(char **argv)
{
	const char *last = argv[optind - 1];
	size_t len = strlen(last);

	if (optopt <= 0 || optopt > 255) /* a long one */
		return last;
	if (len > 1 && last[0] == '-' && last[1] != '-' &&
	    (unsigned char)last[len - 1] == optopt)
		return last;
	return argv[optind];
}

#endif
