/* The login state machine: stages, access, keys, and every way to fail. */
#include "iscsi/iscsi_int.h"
#include "tests/unit/iscsi_target.h"

#include <stdio.h>

#define NAMES "InitiatorName=" WHO "\0TargetName=" IQN "\0SessionType=Normal\0"

static struct iscsi_portal portal = { .number = 1, .tpgt = 7 };
static struct login *login;
static struct login_answer answer;
static uint8_t bhs[ISCSI_BHS_LEN];

static void begin(const char *chap_user, const char *const *allow,
		  unsigned allow_count)
{
	struct iscsi_target_conf conf = {
		.iqn = IQN,
		.alias = "disk",
		.allow = allow,
		.allow_count = allow_count,
		.chap_user = chap_user,
		.chap_secret = (const uint8_t *)"0123456789abcdef",
		.chap_secret_len = 16,
	};

	target_open((struct iscsi_config){ 0 });
	CHECK_EQ(iscsi_target_set(iscsi, &conf), 0);
	login = iscsi__login_new(iscsi, &portal, false);
	memset(bhs, 0, sizeof(bhs));
	bhs[0] = 0x43;
	put_be32(bhs + 16, 1);
	put_be32(bhs + 24, 100);
}

static void begin_open(void)
{
	begin(NULL, any, 1);
}

static void end(void)
{
	iscsi__login_free(login);
	iscsi_end();
	dom_end();
}

/* One request: @flags is byte 1.  Returns the status. */
static unsigned request(uint8_t flags, const char *text, size_t len)
{
	bhs[1] = flags;
	put_be24(bhs + 5, (uint32_t)len);
	iscsi__login_request(login, bhs, (const uint8_t *)text, (uint32_t)len,
			     &answer);
	return (unsigned)answer.status_class << 8 | answer.status_detail;
}
#define REQUEST(flags, literal) request(flags, literal, sizeof(literal) - 1)

#define T 0x80
#define C 0x40
#define SEC_OP 0x01 /* CSG 0, NSG 1 */
#define SEC_FULL 0x03
#define OP_FULL 0x07 /* CSG 1, NSG 3 */
#define OP 0x04

/* The value answered for @key, or NULL. */
static const char *said(const char *key)
{
	static char copy[ISCSI_LOGIN_DATA_MAX + 1];
	size_t len = answer.text_len;
	char *at = copy, *k, *v;

	memcpy(copy, login->answer, len);
	copy[len] = '\0';
	while (iscsi__text_next(&at, &len, &k, &v) > 0)
		if (strcmp(k, key) == 0)
			return v;
	return NULL;
}

TEST(iscsi_login, straight_to_full_feature)
{
	begin_open();
	CHECK_EQ(REQUEST(T | OP_FULL, NAMES
			 "MaxBurstLength=16776192\0"
			 "FirstBurstLength=65536\0InitialR2T=No\0"
			 "ImmediateData=Yes\0HeaderDigest=CRC32C,None\0"
			 "DataDigest=None\0MaxOutstandingR2T=8\0"
			 "MaxRecvDataSegmentLength=65536\0"
			 "ErrorRecoveryLevel=2\0MaxConnections=4\0"
			 "DefaultTime2Wait=0\0DefaultTime2Retain=20\0"
			 "DataPDUInOrder=No\0DataSequenceInOrder=No\0"
			 "iSCSIProtocolLevel=3\0TaskReporting=FastAbort\0"),
		 0);
	CHECK(answer.final);
	CHECK_EQ(answer.flags, T | OP_FULL);
	CHECK_STR(said("TargetPortalGroupTag"), "7");
	CHECK_STR(said("MaxBurstLength"), "1048576");
	CHECK_STR(said("FirstBurstLength"), "65536");
	CHECK_STR(said("InitialR2T"), "No");
	CHECK_STR(said("ImmediateData"), "Yes");
	CHECK_STR(said("HeaderDigest"), "CRC32C");
	CHECK_STR(said("DataDigest"), "None");
	CHECK_STR(said("MaxOutstandingR2T"), "4");
	CHECK_STR(said("ErrorRecoveryLevel"), "0");
	CHECK_STR(said("MaxConnections"), "1");
	CHECK_STR(said("DefaultTime2Wait"), "2");
	CHECK_STR(said("DefaultTime2Retain"), "0");
	CHECK_STR(said("DataPDUInOrder"), "Yes");
	CHECK_STR(said("DataSequenceInOrder"), "Yes");
	CHECK_STR(said("iSCSIProtocolLevel"), "2");
	CHECK_STR(said("TaskReporting"), "Reject");
	CHECK_STR(said("MaxRecvDataSegmentLength"), "262144");
	CHECK_EQ(login->keys.max_send_data, 65536);
	CHECK_EQ(login->keys.first_burst, 65536);
	CHECK(login->keys.header_digest && !login->keys.data_digest);
	CHECK(!login->keys.initial_r2t);
	end();
}

TEST(iscsi_login, two_stages_and_unknown_keys)
{
	begin_open();
	CHECK_EQ(REQUEST(T | SEC_OP, NAMES "AuthMethod=CHAP,None\0"), 0);
	CHECK_STR(said("AuthMethod"), "None");
	CHECK_STR(said("TargetPortalGroupTag"), "7");
	CHECK(said("MaxRecvDataSegmentLength") == NULL);
	CHECK(!answer.final);
	CHECK_EQ(REQUEST(OP, "X-com.example.key=1\0IFMarker=Yes\0"
			     "OFMarkInt=1~2\0RDMAExtensions=Yes\0"
			     "TargetRecvDataSegmentLength=8192\0"),
		 0);
	CHECK_EQ(answer.flags, OP);
	CHECK_STR(said("X-com.example.key"), "NotUnderstood");
	CHECK_STR(said("IFMarker"), "No");
	CHECK_STR(said("OFMarkInt"), "Reject");
	CHECK_STR(said("RDMAExtensions"), "No");
	CHECK_STR(said("TargetRecvDataSegmentLength"), "Irrelevant");
	CHECK_EQ(REQUEST(T | OP_FULL, ""), 0);
	CHECK(answer.final);
	end();
}

/* All that a PDU has room for are answered (RFC 7143 6.2). */
TEST(iscsi_login, many_unknown_keys)
{
	enum { MANY = 200 };
	char text[MANY * 32], key[24];
	size_t len = 0;

	begin_open();
	CHECK_EQ(REQUEST(OP, NAMES), 0);
	for (unsigned i = 0; i < MANY; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					"X-com.example.%u=Yes", i) +
		       1;
	CHECK_EQ(request(T | OP_FULL, text, len), 0);
	CHECK(answer.final);
	for (unsigned i = 0; i < MANY; i++) {
		snprintf(key, sizeof(key), "X-com.example.%u", i);
		CHECK_STR(said(key), "NotUnderstood");
	}
	end();
	/* More are not: it is no initiator that has so many. */
	begin_open();
	CHECK_EQ(REQUEST(OP, NAMES), 0);
	len = 0;
	while (len < 4096)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "x=1") +
		       1;
	CHECK_EQ(request(T | OP_FULL, text, len), 0x0302);
	end();
}

TEST(iscsi_login, text_in_parts)
{
	begin_open();
	CHECK_EQ(REQUEST(C | OP, "InitiatorName=" WHO "\0TargetNa"), 0);
	CHECK_EQ(answer.text_len, 0);
	CHECK_EQ(answer.flags, OP);
	CHECK_EQ(REQUEST(C | OP, "me=" IQN), 0);
	CHECK_EQ(REQUEST(T | OP_FULL, "\0"), 0);
	CHECK(answer.final);
	end();
}

TEST(iscsi_login, discovery_needs_no_target)
{
	begin("alice", NULL, 0);
	CHECK_EQ(REQUEST(T | OP_FULL,
			 "InitiatorName=" WHO "\0SessionType=Discovery\0"
			 "MaxBurstLength=65536\0"),
		 0);
	CHECK(answer.final);
	CHECK(said("TargetPortalGroupTag") == NULL);
	CHECK_STR(said("MaxBurstLength"), "Irrelevant");
	CHECK_STR(said("MaxRecvDataSegmentLength"), "8192");
	end();
}

TEST(iscsi_login, access_list)
{
	static const char *const other[] = { "iqn.2026-11.example:other",
					     "iqn.2026-11.EXAMPLE:ME" };

	begin(NULL, other, 1);
	CHECK_EQ(REQUEST(T | OP_FULL, NAMES), 0x0202);
	end();
	begin(NULL, NULL, 0); /* nobody was named */
	CHECK_EQ(REQUEST(T | OP_FULL, NAMES), 0x0202);
	end();
	begin(NULL, other, 2); /* names are compared in lower case */
	CHECK_EQ(REQUEST(T | OP_FULL, NAMES), 0);
	end();
}

TEST(iscsi_login, chap_is_not_gone_around)
{
	begin("alice", any, 1);
	CHECK_EQ(REQUEST(T | OP_FULL, NAMES), 0x0201);
	end();
	begin("alice", any, 1);
	CHECK_EQ(REQUEST(T | SEC_FULL, NAMES "AuthMethod=None\0"), 0x0201);
	end();
	begin("alice", any, 1); /* saying nothing of it leads nowhere */
	CHECK_EQ(REQUEST(T | SEC_FULL, NAMES), 0);
	CHECK(!answer.final);
	CHECK_EQ(answer.flags, 0);
	CHECK_EQ(REQUEST(T | SEC_FULL, "AuthMethod=CHAP\0"), 0);
	CHECK_EQ(answer.flags, 0);
	CHECK_EQ(REQUEST(T | SEC_FULL, ""), 0);
	CHECK(!answer.final);
	end();
	begin("alice", any, 1);
	CHECK_EQ(REQUEST(0, NAMES "AuthMethod=CHAP\0CHAP_A=5\0"), 0x0201);
	end();
}

/* What proves alice to the challenge that is out; its length. */
static size_t proof(char *text)
{
	uint8_t r[CHAP_RESPONSE_MAX];
	char hex[40] = "";

	iscsi__chap_response(5, login->chap.id,
			     (const uint8_t *)"0123456789abcdef", 16,
			     login->chap.challenge, login->chap.challenge_len,
			     r);
	for (unsigned i = 0; i < 16; i++)
		sprintf(hex + 2 * i, "%02x", r[i]);
	return (size_t)sprintf(text, "CHAP_N=alice%cCHAP_R=0x%s", 0, hex) + 1;
}

TEST(iscsi_login, chap_to_full_feature)
{
	char text[200];

	begin("alice", any, 1);
	CHECK_EQ(REQUEST(0, NAMES "AuthMethod=CHAP,None\0"), 0);
	CHECK_STR(said("AuthMethod"), "CHAP");
	CHECK_EQ(REQUEST(0, "CHAP_A=9,5\0"), 0);
	CHECK_STR(said("CHAP_A"), "5");
	CHECK(said("CHAP_C") != NULL && strlen(said("CHAP_C")) == 34);
	CHECK_EQ(request(T | SEC_FULL, text, proof(text)), 0);
	CHECK(answer.final);
	CHECK_EQ(answer.flags, T | SEC_FULL);
	CHECK_STR(said("MaxRecvDataSegmentLength"), "262144");
	end();
}

/* A challenge that we sent on another connection is not answered (9.2.1). */
TEST(iscsi_login, reflection_of_another_connection)
{
	static const struct iscsi_target_conf conf = {
		.iqn = IQN,
		.allow = any,
		.allow_count = 1,
		.chap_user = "alice",
		.chap_secret = (const uint8_t *)"0123456789abcdef",
		.chap_secret_len = 16,
		.mutual_user = "basalt",
		.mutual_secret = (const uint8_t *)"fedcba9876543210",
		.mutual_secret_len = 16,
	};
	static const char back[] = "CHAP_I=1\0CHAP_C=0x01020304";

	for (unsigned theirs = 0; theirs < 2; theirs++) {
		struct iscsi_conn other = { .login = NULL };
		char text[200];
		size_t n;

		begin("alice", any, 1);
		CHECK_EQ(iscsi_target_set(iscsi, &conf), 0);
		other.login = iscsi__login_new(iscsi, &portal, false);
		other.login->chap = (struct chap){ .state = CHAP_CHALLENGED,
						   .challenge = { 1, 2, 3, 4 },
						   .challenge_len = 4 };
		other.login->chap.challenge[3] += theirs;
		TAILQ_INSERT_TAIL(&iscsi->conns, &other, link);
		CHECK_EQ(REQUEST(0, NAMES "AuthMethod=CHAP\0"), 0);
		CHECK_EQ(REQUEST(0, "CHAP_A=5\0"), 0);
		n = proof(text);
		memcpy(text + n, back, sizeof(back));
		CHECK_EQ(request(T | SEC_FULL, text, n + sizeof(back)),
			 theirs ? 0 : 0x0201);
		TAILQ_REMOVE(&iscsi->conns, &other, link);
		iscsi__login_free(other.login);
		end();
	}
}

/* FirstBurstLength is never more than MaxBurstLength (13.14). */
TEST(iscsi_login, a_first_burst_longer_than_any)
{
	begin_open();
	CHECK_EQ(REQUEST(T | OP_FULL,
			 NAMES "FirstBurstLength=8192\0MaxBurstLength=4096\0"),
		 0);
	CHECK_EQ(login->keys.first_burst, 4096);
	CHECK_EQ(login->keys.max_burst, 4096);
	/* And so it is told: it would hang up on who sends what was agreed. */
	CHECK_STR(said("FirstBurstLength"), "4096");
	CHECK_STR(said("MaxBurstLength"), "4096");
	end();
	/* The lengths may come one after the other. */
	begin_open();
	CHECK_EQ(REQUEST(OP, NAMES "MaxBurstLength=4096\0"), 0);
	CHECK_EQ(REQUEST(T | OP_FULL, "FirstBurstLength=8192\0"), 0);
	CHECK_STR(said("FirstBurstLength"), "4096");
	end();
	/* And the first one by default. */
	begin_open();
	CHECK_EQ(REQUEST(T | OP_FULL, NAMES "MaxBurstLength=4096\0"), 0);
	CHECK_EQ(login->keys.first_burst, 4096);
	end();
}

TEST(iscsi_login, statuses)
{
	static const struct {
		const char *text;
		size_t len;
		uint8_t flags;
		unsigned status;
	} cases[] = {
#define CASE(flags, text, status) { text, sizeof(text) - 1, flags, status }
		CASE(T | OP_FULL, "TargetName=" IQN "\0", 0x0207),
		CASE(T | OP_FULL, "InitiatorName=" WHO "\0", 0x0207),
		CASE(T | OP_FULL,
		     "InitiatorName=" WHO "\0TargetName=iqn.2026-11.no:x\0",
		     0x0203),
		CASE(T | OP_FULL, "InitiatorName=" WHO "\0SessionType=Foo\0",
		     0x0209),
		CASE(T | OP_FULL,
		     "InitiatorName=bad name\0TargetName=" IQN "\0", 0x0200),
		CASE(T | OP_FULL,
		     NAMES "ImmediateData=Yes\0ImmediateData=Yes\0", 0x0200),
		CASE(T | OP_FULL, NAMES "nonsense\0", 0x0200),
		CASE(T | OP_FULL, NAMES "ImmediateData=\0", 0x0200),
		CASE(T | OP_FULL, NAMES "ImmediateData=Yes", 0x0200),
		CASE(T | OP_FULL, NAMES "HeaderDigest=MD5\0", 0x0200),
		CASE(T | OP_FULL, NAMES "AuthMethod=None\0", 0x0200),
		CASE(T | SEC_OP, NAMES "AuthMethod=KRB5\0", 0x0201),
		CASE(T | SEC_OP, NAMES "CHAP_A=5\0", 0x0201),
		CASE(T | C | OP_FULL, NAMES, 0x020b),
		CASE(T | 0x06, NAMES, 0x020b), /* NSG 2 */
		CASE(T | 0x0b, NAMES, 0x020b), /* CSG 2 */
		CASE(T | 0x04, NAMES, 0x020b), /* backwards */
		CASE(T | 0x05, NAMES, 0x020b), /* nowhere */
		CASE(0x0f, NAMES, 0x020b),
#undef CASE
	};

	for (unsigned i = 0; i < ARRAY_LEN(cases); i++) {
		unsigned status;

		begin_open();
		status = request(cases[i].flags, cases[i].text, cases[i].len);
		if (status != cases[i].status)
			print_error("case %u\n", i);
		CHECK_EQ(status, cases[i].status);
		CHECK(!answer.final);
		end();
	}
}

TEST(iscsi_login, header_must_not_change)
{
	static const unsigned bytes[] = { 8, 15, 19, 21 };

	for (unsigned i = 0; i < ARRAY_LEN(bytes); i++) {
		begin_open();
		CHECK_EQ(REQUEST(0, NAMES), 0);
		bhs[bytes[i]] ^= 0x40;
		CHECK_EQ(REQUEST(0, ""), 0x020b);
		end();
		/* Nor behind the first part of a text. */
		begin_open();
		CHECK_EQ(REQUEST(C, "InitiatorName="), 0);
		bhs[bytes[i]] ^= 0x40;
		CHECK_EQ(REQUEST(C, WHO), 0x020b);
		end();
	}
	begin_open();
	CHECK_EQ(REQUEST(C | OP, "InitiatorName="), 0);
	CHECK_EQ(REQUEST(C, WHO), 0x020b);
	end();
}

/* The answer names the request, by the fields that are kept of its header. */
TEST(iscsi_login, another_version_is_refused_by_name)
{
	begin_open();
	bhs[3] = 1;
	bhs[8] = 0x80;
	put_be16(bhs + 14, 0x3456);
	put_be32(bhs + 16, 0x12345678);
	CHECK_EQ(REQUEST(T | OP_FULL, NAMES), 0x0205);
	CHECK_EQ(login->isid[0], 0x80);
	CHECK_EQ(login->tsih, 0x3456);
	CHECK_EQ(login->itt, 0x12345678);
	end();
}

TEST(iscsi_login, no_end)
{
	char filler[8000];
	unsigned i, status = 0;

	begin_open();
	CHECK_EQ(REQUEST(0, NAMES), 0);
	for (i = 0; i < 100 && status == 0; i++)
		status = REQUEST(0, "");
	CHECK_EQ(status, 0x0200);
	CHECK(i < 65);
	end();
	begin_open();
	memset(filler, 'x', sizeof(filler));
	for (i = 0, status = 0; i < 20 && status == 0; i++)
		status = request(C | OP, filler, sizeof(filler));
	CHECK_EQ(status, 0x0200);
	CHECK(i <= 5);
	end();
}

TEST(iscsi_login, numbers_out_of_range_keep_the_default)
{
	begin_open();
	CHECK_EQ(REQUEST(T | OP_FULL,
			 NAMES "MaxBurstLength=511\0FirstBurstLength=-1\0"
			       "MaxOutstandingR2T=1~4\0ErrorRecoveryLevel=3\0"
			       "MaxRecvDataSegmentLength=16777216\0"
			       "InitialR2T=yes\0"),
		 0);
	CHECK_STR(said("MaxBurstLength"), "Reject");
	CHECK_STR(said("FirstBurstLength"), "Reject");
	CHECK_STR(said("MaxOutstandingR2T"), "Reject");
	CHECK_STR(said("ErrorRecoveryLevel"), "Reject");
	CHECK_STR(said("InitialR2T"), "Reject");
	CHECK_EQ(login->keys.max_burst, 262144);
	CHECK_EQ(login->keys.first_burst, 65536);
	CHECK_EQ(login->keys.max_send_data, 8192);
	CHECK_EQ(login->keys.max_outstanding_r2t, 1);
	CHECK(login->keys.initial_r2t);
	end();
}

/* An alias is for people, who may have left it out. */
TEST(iscsi_login, an_alias_may_be_empty)
{
	begin_open();
	CHECK_EQ(REQUEST(T | OP_FULL, NAMES "InitiatorAlias=\0"), 0);
	CHECK(answer.final);
	CHECK_STR(login->alias, "");
	end();
}

TEST(iscsi_login, targets_are_checked)
{
	struct iscsi_target_conf conf = { .iqn = IQN, .chap_user = "u" };

	begin_open();
	conf.chap_secret = (const uint8_t *)"short";
	conf.chap_secret_len = 5;
	CHECK_EQ(iscsi_target_set(iscsi, &conf), -EINVAL);
	conf.chap_secret = (const uint8_t *)"0123456789abcdef";
	conf.chap_secret_len = 16;
	conf.mutual_user = "m";
	conf.mutual_secret = conf.chap_secret; /* the same both ways */
	conf.mutual_secret_len = 16;
	CHECK_EQ(iscsi_target_set(iscsi, &conf), -EINVAL);
	conf.iqn = "not a name";
	CHECK_EQ(iscsi_target_set(iscsi, &conf), -EINVAL);
	CHECK_EQ(iscsi_lun_set(iscsi,
			       &(struct iscsi_lun_conf){ .iqn = "iqn.x.y",
							 .block_bytes = 512 }),
		 -ENOENT);
	end();
}
