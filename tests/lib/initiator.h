/*
 * What the tools that speak iSCSI share: libiscsi's headers, past our own
 * directory of the same name, and a login.
 */
#ifndef BASALT_TESTS_INITIATOR_H
#define BASALT_TESTS_INITIATOR_H

/* Found through -I., so the search goes on behind it: the system's. */
#include_next <iscsi/iscsi.h>
#include_next <iscsi/scsi-lowlevel.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/*
 * A session with the unit of @url (iscsi://[user%secret@]host:port/iqn/lun),
 * or NULL with the reason in @why.  Every command of it fails after
 * @timeout_s; a lost connection stays lost.  libiscsi writes to its socket
 * without MSG_NOSIGNAL: SIGPIPE is ignored from here on, so that a target
 * killed under a write is an error of that write.
 */
static inline struct iscsi_context *initiator_login(const char *name,
						    const char *url,
						    int timeout_s, int *lun,
						    char *why, size_t why_len)
{
	struct iscsi_context *iscsi = iscsi_create_context(name);
	struct iscsi_url *parsed;

	signal(SIGPIPE, SIG_IGN);
	if (iscsi == NULL) {
		snprintf(why, why_len, "no context");
		return NULL;
	}
	parsed = iscsi_parse_full_url(iscsi, url);
	if (parsed == NULL) {
		snprintf(why, why_len, "%s", iscsi_get_error(iscsi));
		iscsi_destroy_context(iscsi);
		return NULL;
	}
	iscsi_set_targetname(iscsi, parsed->target);
	iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
	iscsi_set_header_digest(iscsi, ISCSI_HEADER_DIGEST_NONE_CRC32C);
	iscsi_set_noautoreconnect(iscsi, 1);
	iscsi_set_timeout(iscsi, timeout_s);
	*lun = parsed->lun;
	/* user and secret of the URL are in the context already */
	if (iscsi_full_connect_sync(iscsi, parsed->portal, parsed->lun) != 0) {
		snprintf(why, why_len, "%s", iscsi_get_error(iscsi));
		iscsi_destroy_url(parsed);
		iscsi_destroy_context(iscsi);
		return NULL;
	}
	iscsi_destroy_url(parsed);
	return iscsi;
}

static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

#endif
