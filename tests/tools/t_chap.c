/*
 * t_chap: one login with libiscsi, for the tests of CHAP and of access lists.
 *
 *	t_chap [--user U --secret S] [--target-user U --target-secret S]
 *	       [--initiator IQN] URL
 *
 * Prints "login ok" and reads the capacity, or "login failed: REASON".  libiscsi
 * 1.19 speaks MD5 only; the other digests are in tests/conformance/login.
 * Status 0: logged in and read; 1: refused; 2 usage; 3 logged in, read failed.
 * Secrets on a command line are fine for a test's own throw-away ones.
 */
#include "tests/lib/initiator.h"

#include <getopt.h>

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "user", required_argument, NULL, 'u' },
		{ "secret", required_argument, NULL, 's' },
		{ "target-user", required_argument, NULL, 'U' },
		{ "target-secret", required_argument, NULL, 'S' },
		{ "initiator", required_argument, NULL, 'i' },
		{ 0 },
	};
	const char *user = NULL, *secret = NULL;
	const char *target_user = NULL, *target_secret = NULL;
	const char *initiator = "iqn.2026-11.internal.basalt:chap";
	struct iscsi_context *iscsi;
	struct iscsi_url *url;
	struct scsi_task *task;
	int c, rv = 0;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'u':
			user = optarg;
			break;
		case 's':
			secret = optarg;
			break;
		case 'U':
			target_user = optarg;
			break;
		case 'S':
			target_secret = optarg;
			break;
		case 'i':
			initiator = optarg;
			break;
		default:
			return 2;
		}
	}
	if (optind + 1 != argc)
		return 2;

	iscsi = iscsi_create_context(initiator);
	url = iscsi_parse_full_url(iscsi, argv[optind]);
	if (url == NULL) {
		fprintf(stderr, "%s\n", iscsi_get_error(iscsi));
		return 2;
	}
	iscsi_set_targetname(iscsi, url->target);
	iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
	iscsi_set_header_digest(iscsi, ISCSI_HEADER_DIGEST_NONE_CRC32C);
	iscsi_set_noautoreconnect(iscsi, 1);
	iscsi_set_timeout(iscsi, 20);
	if (user != NULL)
		iscsi_set_initiator_username_pwd(iscsi, user, secret);
	if (target_user != NULL)
		iscsi_set_target_username_pwd(iscsi, target_user,
					      target_secret);
	if (iscsi_full_connect_sync(iscsi, url->portal, url->lun) != 0) {
		printf("login failed: %s\n", iscsi_get_error(iscsi));
		rv = 1;
		goto out;
	}
	printf("login ok\n");
	task = iscsi_readcapacity10_sync(iscsi, url->lun, 0, 0);
	if (task == NULL || task->status != SCSI_STATUS_GOOD) {
		printf("read failed: %s\n", iscsi_get_error(iscsi));
		rv = 3;
	}
	if (task != NULL)
		scsi_free_scsi_task(task);
	iscsi_logout_sync(iscsi);
out:
	iscsi_destroy_url(url);
	iscsi_destroy_context(iscsi);
	return rv;
}
