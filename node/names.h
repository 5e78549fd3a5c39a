/*
 * names: what names and users may look like, and how many LUNs a target has.
 * In a header, because daemon and command line share no library: both refuse by it.
 */
#ifndef BASALT_NODE_NAMES_H
#define BASALT_NODE_NAMES_H

#include "iscsi/iscsi.h"

#include <stdbool.h>
#include <string.h>

#define NAMES_USER_MAX 64u
#define NAMES_LUNS_MAX 256u /* of a target */

/* Of a target that is given no iSCSI name: this, ":" and its name. */
#define NAMES_IQN_PREFIX "iqn.2026-11.internal.basalt"

/* Letters, digits, '.', '_', '-', not first; @lower: no capitals, '_'. */
static inline bool names_ok(const char *name, bool lower)
{
	size_t len = strlen(name);

	if (len == 0 || len > 63)
		return false;
	for (const char *p = name; *p != '\0'; p++) {
		bool letter = (*p >= 'a' && *p <= 'z') ||
			      (*p >= '0' && *p <= '9') ||
			      (!lower && *p >= 'A' && *p <= 'Z');
		bool mark = *p == '.' || *p == '-' || (!lower && *p == '_');

		if (!letter && !(mark && p > name))
			return false;
	}
	return true;
}

/*
 * RFC 7143, 4.2.7: "iqn.", "eui." or "naa.", no capitals after stringprep.  What
 * is not ASCII would have to be prepared first: it is not taken.
 */
static inline bool names_iscsi_ok(const char *name)
{
	static const char all[] = "abcdefghijklmnopqrstuvwxyz0123456789.-:";
	size_t len = strlen(name);

	return len >= 5 && len <= ISCSI_NAME_MAX && strspn(name, all) == len &&
	       (strncmp(name, "iqn.", 4) == 0 ||
		strncmp(name, "eui.", 4) == 0 || strncmp(name, "naa.", 4) == 0);
}

/* A user of CHAP: printable, without blanks. */
static inline bool names_printable(const char *user)
{
	for (const char *p = user; *p != '\0'; p++)
		if (*p <= ' ' || *p > '~')
			return false;
	return true;
}

#endif
