/*
 * Text requests in full feature phase: what discovery names to whom, the keys
 * that may still change, and texts in parts.
 */
#include "tests/unit/iscsi_rig.h"

#define DISCOVERY                                                              \
	"InitiatorName=" WHO "\0SessionType=Discovery\0"                       \
	"MaxRecvDataSegmentLength=512\0"

static void discover(struct mock *m)
{
	login_text(m, 1, DISCOVERY, sizeof(DISCOVERY) - 1);
	CHECK_EQ(status_of(m), 0);
}

static void add_target(const char *iqn, const char *who)
{
	const char *allow[] = { who };
	struct iscsi_target_conf conf = { .iqn = iqn,
					  .allow = allow,
					  .allow_count = 1 };

	CHECK_EQ(iscsi_target_set(iscsi, &conf), 0);
}

/* A Text Request under @itt; @flags: F and C. */
static void ask(struct mock *m, uint8_t flags, uint32_t itt, uint32_t ttt,
		const char *text, size_t len)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { ISCSI_OP_TEXT, flags };

	put_be32(bhs + 16, itt);
	put_be32(bhs + 20, ttt);
	put_pdu(m, bhs, text, (uint32_t)len);
}

/* The whole answer to @text in one string, a newline for each end of a pair. */
static const char *answer_to(struct mock *m, const char *text, size_t len)
{
	static char all[8192];
	uint32_t itt = ++tag;
	size_t n = 0;
	struct seen *s;

	ask(m, ISCSI_FINAL, itt, ISCSI_NO_TAG, text, len);
	for (;;) {
		s = next(m);
		CHECK(s != NULL);
		CHECK_EQ(s->bhs[0], ISCSI_OP_TEXT_RSP);
		CHECK_EQ(get_be32(s->bhs + 16), itt);
		CHECK(s->len <= 512 && n + s->len < sizeof(all));
		memcpy(all + n, s->data, s->len);
		n += s->len;
		if ((s->bhs[1] & ISCSI_FINAL) != 0)
			break;
		/* C says whether a pair was cut in two (11.11.2). */
		CHECK_EQ(s->bhs[1] & ISCSI_CONTINUE,
			 all[n - 1] != '\0' ? ISCSI_CONTINUE : 0);
		ask(m, ISCSI_FINAL, itt, get_be32(s->bhs + 20), "", 0);
	}
	CHECK_EQ(get_be32(s->bhs + 20), ISCSI_NO_TAG);
	for (size_t i = 0; i < n; i++)
		if (all[i] == '\0')
			all[i] = '\n';
	all[n] = '\0';
	return all;
}

#define ANSWER(m, text) answer_to(m, text, sizeof(text))

static unsigned rejected(struct mock *m)
{
	struct seen *s = next(m);

	CHECK(s != NULL);
	CHECK_EQ(s->bhs[0], ISCSI_OP_REJECT);
	return s->bhs[2];
}

/* ---- SendTargets ---- */

TEST(iscsi_discovery, names_what_the_initiator_may_log_in_to)
{
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	add_target("iqn.2026-11.internal.basalt:mine", WHO);
	add_target("iqn.2026-11.internal.basalt:theirs", "iqn.2026-11.x:y");
	discover(&m);
	CHECK_STR(ANSWER(&m, "SendTargets=All"),
		  "TargetName=" IQN "\nTargetAddress=0.0.0.0:0,1\n"
		  "TargetName=iqn.2026-11.internal.basalt:mine\n"
		  "TargetAddress=0.0.0.0:0,1\n");
	CHECK_STR(ANSWER(&m, "SendTargets=iqn.2026-11.internal.basalt:mine"),
		  "TargetName=iqn.2026-11.internal.basalt:mine\n"
		  "TargetAddress=0.0.0.0:0,1\n");
	/* One that it may not use and one that is not: no difference. */
	CHECK_STR(ANSWER(&m, "SendTargets=iqn.2026-11.internal.basalt:theirs"),
		  "");
	CHECK_STR(ANSWER(&m, "SendTargets=iqn.2026-11.internal.basalt:none"),
		  "");
	CHECK_STR(ANSWER(&m, "SendTargets=no name"), "SendTargets=Reject\n");
	end();
}

TEST(iscsi_discovery, a_normal_session_hears_of_its_target_alone)
{
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	add_target("iqn.2026-11.internal.basalt:mine", WHO);
	ready(&m, 1);
	CHECK_STR(ANSWER(&m, "SendTargets="),
		  "TargetName=" IQN "\nTargetAddress=0.0.0.0:0,1\n");
	CHECK_STR(ANSWER(&m, "SendTargets=All"),
		  "TargetName=" IQN "\nTargetAddress=0.0.0.0:0,1\n");
	CHECK_STR(ANSWER(&m, "SendTargets=iqn.2026-11.internal.basalt:mine"),
		  "");
	end();
}

/* Listening on every address, a portal is named by the one that was reached. */
TEST(iscsi_discovery, addresses_of_both_families)
{
	struct sockaddr_in6 any6 = { .sin6_family = AF_INET6,
				     .sin6_port = htons(3260) };
	struct sockaddr_in6 one = any6, *local;
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	one.sin6_addr.s6_addr[15] = 9;
	CHECK_EQ(iscsi_portal_declare(iscsi, 2, (struct sockaddr *)&any6, 2),
		 0);
	CHECK_EQ(iscsi_portal_declare(iscsi, 3, (struct sockaddr *)&one, 3), 0);
	discover(&m);
	CHECK_STR(ANSWER(&m, "SendTargets=" IQN),
		  "TargetName=" IQN "\nTargetAddress=0.0.0.0:0,1\n"
		  "TargetAddress=[::9]:3260,3\n");
	local = (struct sockaddr_in6 *)&m.dm.local;
	*local = any6;
	local->sin6_addr.s6_addr[15] = 7;
	CHECK_STR(ANSWER(&m, "SendTargets=" IQN),
		  "TargetName=" IQN "\nTargetAddress=[::7]:3260,2\n"
		  "TargetAddress=[::9]:3260,3\n");
	CHECK_EQ(iscsi_portal_remove(iscsi, 3), 0);
	CHECK_STR(ANSWER(&m, "SendTargets=" IQN),
		  "TargetName=" IQN "\nTargetAddress=[::7]:3260,2\n");
	end();
}

/* ---- keys ---- */

TEST(iscsi_discovery, keys_that_may_change_and_those_that_may_not)
{
	struct mock m;

	fixture((struct iscsi_config){ 0 });
	ready(&m, 1);
	CHECK_EQ(m.keys.max_send_data_len, 65536);
	CHECK_STR(ANSWER(&m, "MaxRecvDataSegmentLength=1024"), "");
	CHECK_EQ(m.keys.max_send_data_len, 1024);
	CHECK_STR(ANSWER(&m, "MaxRecvDataSegmentLength=511"),
		  "MaxRecvDataSegmentLength=Reject\n");
	CHECK_EQ(m.keys.max_send_data_len, 1024);
	CHECK_STR(ANSWER(&m, "HeaderDigest=CRC32C\0X-org.example.key=1"),
		  "HeaderDigest=Reject\nX-org.example.key=NotUnderstood\n");
	CHECK_STR(ANSWER(&m, "MaxAHSLength=256\0CHAP_A=5"),
		  "MaxAHSLength=Reject\nCHAP_A=Reject\n");
	CHECK_STR(ANSWER(&m, "InitiatorAlias=a name"), "");
	CHECK_STR(TAILQ_FIRST(&iscsi->sessions)->alias, "a name");
	end();
}

/* ---- texts in parts ---- */

TEST(iscsi_discovery, a_request_in_parts)
{
	struct mock m;
	struct seen *s;
	uint32_t ttt;

	fixture((struct iscsi_config){ 0 });
	discover(&m);
	ask(&m, ISCSI_CONTINUE, 7, ISCSI_NO_TAG, "SendTar", 7);
	s = next(&m);
	CHECK_EQ(s->bhs[0], ISCSI_OP_TEXT_RSP);
	CHECK_EQ(s->bhs[1], 0);
	CHECK_EQ(s->len, 0);
	ttt = get_be32(s->bhs + 20);
	CHECK(ttt != ISCSI_NO_TAG);
	/* Another task does not go on with it. */
	ask(&m, ISCSI_FINAL, 8, ttt, "gets=All", 9);
	CHECK_EQ(rejected(&m), REJECT_PROTOCOL);
	ask(&m, ISCSI_FINAL, 7, ttt, "gets=All", 9);
	s = next(&m);
	CHECK_EQ(s->bhs[0], ISCSI_OP_TEXT_RSP);
	CHECK_EQ(s->bhs[1], ISCSI_FINAL);
	CHECK_STR((char *)s->data, "TargetName=" IQN);
	end();
}

/* F is the initiator's to set: without it the exchange stays open. */
TEST(iscsi_discovery, a_request_that_is_not_the_last)
{
	static const char all[] =
		"TargetName=" IQN "\0TargetAddress=0.0.0.0:0,1";
	struct mock m;
	struct seen *s;
	uint32_t ttt = ISCSI_NO_TAG;

	fixture((struct iscsi_config){ 0 });
	discover(&m);
	for (unsigned i = 0; i < 2; i++) {
		ask(&m, 0, 7, ttt, "SendTargets=All", 16);
		s = next(&m);
		CHECK_EQ(s->bhs[0], ISCSI_OP_TEXT_RSP);
		CHECK_EQ(s->bhs[1], 0);
		CHECK_EQ(s->len, sizeof(all));
		CHECK_EQ(memcmp(s->data, all, sizeof(all)), 0);
		ttt = get_be32(s->bhs + 20);
		CHECK(ttt != ISCSI_NO_TAG);
	}
	ask(&m, ISCSI_FINAL, 7, ttt, "", 0);
	s = next(&m);
	CHECK_EQ(s->bhs[0], ISCSI_OP_TEXT_RSP);
	CHECK_EQ(s->bhs[1], ISCSI_FINAL);
	CHECK_EQ(s->len, 0);
	CHECK_EQ(get_be32(s->bhs + 20), ISCSI_NO_TAG);
	/* Closed: its tag means nothing any more. */
	ask(&m, ISCSI_FINAL, 7, ttt, "", 0);
	CHECK_EQ(rejected(&m), REJECT_PROTOCOL);
	end();
}

TEST(iscsi_discovery, a_long_answer_in_parts)
{
	struct mock m;
	char iqn[64], pair[80];
	const char *all;

	fixture((struct iscsi_config){ 0 });
	for (unsigned i = 0; i < 40; i++) {
		sprintf(iqn, "iqn.2026-11.internal.basalt:disk-number-%u", i);
		add_target(iqn, "any");
	}
	discover(&m);
	all = ANSWER(&m, "SendTargets=All");
	for (unsigned i = 0; i < 40; i++) {
		sprintf(pair, "disk-number-%u\nTargetAddress=0.0.0.0:0,1\n", i);
		CHECK(strstr(all, pair) != NULL);
	}
	end();
}

#define MANY 3000u

/* How many pairs of @text name a target; the last one's number in *@last. */
static unsigned targets_in(const char *text, size_t len, unsigned *last)
{
	unsigned n = 0;

	for (const char *at = text; at < text + len; at += strlen(at) + 1)
		if (strncmp(at, "TargetName=", 11) == 0 &&
		    sscanf(strrchr(at, ':'), ":%u", last) == 1)
			n++;
	return n;
}

/*
 * A list that is longer than what is kept of it goes in pieces, and what comes
 * and goes meanwhile neither hides another target nor names one twice.
 */
TEST(iscsi_discovery, a_list_of_any_length)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(0x0a000001) };
	static char all[MANY * 512];
	struct mock m;
	struct seen *s;
	char iqn[200];
	size_t len = 0;
	unsigned last, pieces = 0, added = 0;
	uint32_t ttt = ISCSI_NO_TAG;

	fixture((struct iscsi_config){ 0 });
	/* So many that a piece ends among the addresses of a target. */
	for (unsigned i = 2; i < 7; i++) {
		at.sin_port = htons((uint16_t)(10000 + i));
		CHECK_EQ(iscsi_portal_declare(iscsi, i, (struct sockaddr *)&at,
					      1),
			 0);
	}
	for (unsigned i = 0; i < MANY; i++) {
		sprintf(iqn, "iqn.2026-11.internal.basalt:%0150u", i);
		add_target(iqn, "any");
	}
	discover(&m);
	do {
		uint64_t was = m.dm.owner->text.named_seq;

		ask(&m, ISCSI_FINAL, 7, ttt, "SendTargets=All",
		    ttt == ISCSI_NO_TAG ? 16 : 0);
		s = next(&m);
		CHECK(s != NULL && s->len <= 512);
		CHECK_EQ(s->bhs[0], ISCSI_OP_TEXT_RSP);
		CHECK(m.dm.owner->text.out_len <= 256u << 10);
		CHECK(len + s->len <= sizeof(all));
		memcpy(all + len, s->data, s->len);
		len += s->len;
		ttt = get_be32(s->bhs + 20);
		if (s->bhs[1] & ISCSI_FINAL)
			break;
		CHECK(ttt != ISCSI_NO_TAG);
		CHECK_EQ(s->bhs[1] & ISCSI_CONTINUE,
			 all[len - 1] != '\0' ? ISCSI_CONTINUE : 0);
		if (m.dm.owner->text.named_seq == was ||
		    !m.dm.owner->text.targets_left)
			continue;
		/* Behind what is in this piece, and before it. */
		if (pieces++ % 2 != 0)
			continue;
		added++;
		targets_in(m.dm.owner->text.out, m.dm.owner->text.out_len,
			   &last);
		sprintf(iqn, "iqn.2026-11.internal.basalt:%0150u", last);
		iscsi_target_unset(iscsi, iqn);
		sprintf(iqn, "iqn.2026-11.internal.basalt:%0150u", last + 1);
		iscsi_target_unset(iscsi, iqn);
		sprintf(iqn, "iqn.2026-11.internal.basalt:%0150u",
			MANY + added);
		add_target(iqn, "any");
	} while (true);
	CHECK_EQ(ttt, ISCSI_NO_TAG);
	CHECK(pieces > 1);
	/* And the one of the fixture, whose name is no number. */
	CHECK_EQ(targets_in(all, len, &last), MANY);
	CHECK_EQ(last, MANY + added);
	CHECK(!m.dm.owner->text.open);
	end();
}

TEST(iscsi_discovery, texts_that_are_refused)
{
	static char many[8192];
	struct mock m;
	unsigned n = 0;

	fixture((struct iscsi_config){ 0 });
	discover(&m);
	ask(&m, ISCSI_FINAL, ISCSI_NO_TAG, ISCSI_NO_TAG, "SendTargets=All", 16);
	CHECK_EQ(rejected(&m), REJECT_INVALID_FIELD);
	ask(&m, ISCSI_FINAL, 1, 77, "SendTargets=All", 16);
	CHECK_EQ(rejected(&m), REJECT_PROTOCOL);
	ask(&m, ISCSI_FINAL | ISCSI_CONTINUE, 2, ISCSI_NO_TAG, "A=1", 4);
	CHECK_EQ(rejected(&m), REJECT_PROTOCOL);
	ask(&m, ISCSI_FINAL, 3, ISCSI_NO_TAG, "no pair", 8);
	CHECK_EQ(rejected(&m), REJECT_PROTOCOL);
	ask(&m, ISCSI_FINAL, 4, ISCSI_NO_TAG,
	    "SendTargets=All\0SendTargets=All", 32);
	CHECK_EQ(rejected(&m), REJECT_PROTOCOL);
	/* Without end: what is collected has a bound. */
	memset(many, 'x', sizeof(many));
	for (;;) {
		struct seen *s;

		ask(&m, ISCSI_CONTINUE, 5, ISCSI_NO_TAG, many, sizeof(many));
		s = next(&m);
		if (s->bhs[0] == ISCSI_OP_REJECT)
			break;
		CHECK(++n <= ISCSI_TEXT_MAX / sizeof(many));
	}
	CHECK_EQ(n, ISCSI_TEXT_MAX / sizeof(many));
	CHECK(!m.closing);
	CHECK_STR(ANSWER(&m, "SendTargets=" IQN),
		  "TargetName=" IQN "\nTargetAddress=0.0.0.0:0,1\n");
	end();
}

/* ---- who needs no secret gets by with little ---- */

#define DISCOVERY_LONG                                                         \
	"InitiatorName=" WHO "\0SessionType=Discovery\0"                       \
	"MaxRecvDataSegmentLength=16777215\0"

TEST(iscsi_discovery, answers_that_are_not_fetched_are_bounded)
{
	static char data[8192];
	struct mock m;

	for (unsigned text = 0; text < 2; text++) {
		unsigned n = 0;

		fixture((struct iscsi_config){ 0 });
		for (unsigned i = 0; i < 200; i++) {
			char iqn[64];

			sprintf(iqn, "iqn.2026-11.internal.basalt:d%u", i);
			add_target(iqn, "any");
		}
		login_text(&m, 1, DISCOVERY_LONG, sizeof(DISCOVERY_LONG) - 1);
		CHECK_EQ(status_of(&m), 0);
		m.deaf = true;
		while (!m.closing) {
			uint8_t nop[ISCSI_BHS_LEN] = { 0x40, 0x80 };

			CHECK(m.dm.owner->reply_bytes <= 65536);
			CHECK(++n < 20); /* of some KiB each */
			put_be32(nop + 16, ++tag);
			put_be32(nop + 20, ISCSI_NO_TAG);
			if (text)
				ask(&m, ISCSI_FINAL, ++tag, ISCSI_NO_TAG,
				    "SendTargets=All", 16);
			else
				put_pdu(&m, nop, data, sizeof(data));
		}
		end();
	}
}

/* A list that is longer than all that is kept goes all the same. */
TEST(iscsi_discovery, one_answer_of_any_length)
{
	struct mock m;
	struct seen *s;
	char iqn[200];

	fixture((struct iscsi_config){ 0 });
	for (unsigned i = 0; i < 400; i++) {
		sprintf(iqn, "iqn.2026-11.internal.basalt:%0150u", i);
		add_target(iqn, "any");
	}
	login_text(&m, 1, DISCOVERY_LONG, sizeof(DISCOVERY_LONG) - 1);
	CHECK_EQ(status_of(&m), 0);
	ask(&m, ISCSI_FINAL, ++tag, ISCSI_NO_TAG, "SendTargets=All", 16);
	s = next(&m);
	CHECK(s != NULL && s->len > ISCSI_DISCOVERY_BYTES_MAX);
	CHECK_EQ(s->bhs[1], ISCSI_FINAL);
	end();
}

TEST(iscsi_discovery, does_not_live_long)
{
	struct mock m;

	fixture((struct iscsi_config){ .ping_ms = 1000000 });
	discover(&m);
	for (unsigned i = 0; i < 2; i++) {
		struct iscsi_conn *conn = m.dm.owner;

		CHECK(!m.closing);
		CHECK(conn->timer.due_ns <= env_now(ts.env) + 60 * SEC);
		ANSWER(&m, "SendTargets=All");
		conn->session->entry->since_ns -= 30 * SEC;
		env_timer_stop(ts.env, &conn->timer);
		conn->timer.cb(&conn->timer);
	}
	CHECK(m.closing);
	end();
}

TEST(iscsi_discovery, few_from_one_source)
{
	struct mock a, b, c, d;

	fixture((struct iscsi_config){ .logins_per_source = 2 });
	discover(&a);
	ready(&b, 2); /* has a target, and is none of them */
	discover(&c);
	mock_open(&d);
	CHECK(d.dm.owner == NULL);
	end();
}
