/* CHAP: digests against known answers, both directions, and what must fail. */
#include "iscsi/iscsi_int.h"
#include "tests/lib/test.h"

#include <stdio.h>

static uint8_t drawn;

static void fake_random(struct env *env, void *buf, size_t len)
{
	memset(buf, ++drawn, len);
}

static const struct env_ops ops = { .secure_random = fake_random };
static struct env env = { .ops = &ops };

static const struct chap_secret in = { .user = "alice",
				       .secret = "alice-secret-16b",
				       .secret_len = 16 };
static const struct chap_secret back = { .user = "basalt",
					 .secret = "target-secret-16",
					 .secret_len = 16 };
static const struct chap_secret none;

static char answer[4096];
static struct text_out out;
static struct chap chap;

static int step(struct chap_keys keys, const struct chap_secret *mutual)
{
	iscsi__text_out_init(&out, answer, sizeof(answer));
	return iscsi__chap_step(&chap, &keys, &in, mutual, &env, &out);
}

static void begin(const char *list)
{
	chap = (struct chap){ .state = CHAP_EXPECTED };
	CHECK_EQ(step((struct chap_keys){ .a = list }, &back), 0);
	CHECK_EQ(chap.state, CHAP_CHALLENGED);
}

/* The right response to the challenge that is out, as hex. */
static const char *response(const struct chap_secret *secret)
{
	static char hex[2 * CHAP_RESPONSE_MAX + 3];
	uint8_t r[CHAP_RESPONSE_MAX];
	int n = iscsi__chap_response(chap.alg, chap.id, secret->secret,
				     secret->secret_len, chap.challenge,
				     chap.challenge_len, r);

	strcpy(hex, "0x");
	for (int i = 0; i < n; i++)
		sprintf(hex + 2 + 2 * i, "%02x", r[i]);
	return hex;
}

/* H(07 | "secret-secret" | 01 02 03), computed with another tool. */
TEST(iscsi_chap, known_answers)
{
	static const struct {
		unsigned alg, len;
		uint8_t first, last;
	} want[] = {
		{ 5, 16, 0xaf, 0x09 },
		{ 6, 20, 0xee, 0xca },
		{ 7, 32, 0x79, 0xc4 },
		{ 8, 32, 0x22, 0x06 },
	};
	const uint8_t challenge[] = { 1, 2, 3 };
	uint8_t r[CHAP_RESPONSE_MAX];

	for (unsigned i = 0; i < ARRAY_LEN(want); i++) {
		CHECK_EQ(iscsi__chap_response(want[i].alg, 7,
					      (const uint8_t *)"secret-secret",
					      13, challenge, 3, r),
			 want[i].len);
		CHECK_EQ(r[0], want[i].first);
		CHECK_EQ(r[want[i].len - 1], want[i].last);
	}
	CHECK_EQ(iscsi__chap_response(9, 7, r, 1, challenge, 3, r),
		 -EOPNOTSUPP);
}

TEST(iscsi_chap, choose)
{
	CHECK_EQ(iscsi__chap_choose("5"), 5);
	CHECK_EQ(iscsi__chap_choose("99,8,5"), 8);
	CHECK_EQ(iscsi__chap_choose("56"), -EACCES);
	CHECK_EQ(iscsi__chap_choose("261"), -EACCES);
	CHECK_EQ(iscsi__chap_choose(""), -EINVAL);
	CHECK_EQ(iscsi__chap_choose("5,"), -EINVAL);
	CHECK_EQ(iscsi__chap_choose("five"), -EINVAL);
}

TEST(iscsi_chap, one_way_all_algorithms)
{
	static const char *const lists[] = { "5", "6", "7", "8" };

	for (unsigned i = 0; i < 4; i++) {
		begin(lists[i]);
		CHECK_EQ(step((struct chap_keys){ .n = "alice",
						  .r = response(&in) },
			      &none),
			 0);
		CHECK_EQ(chap.state, CHAP_DONE);
		CHECK_EQ(out.len, 0);
	}
}

TEST(iscsi_chap, mutual)
{
	uint8_t r[CHAP_RESPONSE_MAX], got[CHAP_RESPONSE_MAX];
	const uint8_t challenge[] = { 9, 8, 7, 6 };
	size_t len;
	char *at = answer, *key, *value;

	begin("7");
	CHECK_EQ(step((struct chap_keys){ .n = "alice",
					  .r = response(&in),
					  .i = "200",
					  .c = "0x09080706" },
		      &back),
		 0);
	CHECK_EQ(iscsi__chap_response(7, 200, back.secret, 16, challenge, 4, r),
		 32);
	CHECK_EQ(iscsi__text_next(&at, &out.len, &key, &value), 1);
	CHECK_STR(value, "basalt");
	CHECK_EQ(iscsi__text_next(&at, &out.len, &key, &value), 1);
	CHECK_STR(key, "CHAP_R");
	CHECK_EQ(iscsi__text_binary(value, got, sizeof(got), &len), 0);
	CHECK_EQ(len, 32);
	CHECK_EQ(memcmp(got, r, 32), 0);
}

TEST(iscsi_chap, wrong_secret_user_length)
{
	const char *r;
	char cut[80];

	begin("5");
	CHECK_EQ(step((struct chap_keys){ .n = "alice", .r = response(&back) },
		      &none),
		 -EACCES);
	begin("5");
	CHECK_EQ(step((struct chap_keys){ .n = "alicf", .r = response(&in) },
		      &none),
		 -EACCES);
	begin("5");
	r = response(&in);
	snprintf(cut, sizeof(cut), "%.*s", (int)strlen(r) - 2, r);
	CHECK_EQ(step((struct chap_keys){ .n = "alice", .r = cut }, &none),
		 -EACCES);
	begin("5"); /* the right one, and something behind it */
	snprintf(cut, sizeof(cut), "%s00", response(&in));
	CHECK_EQ(step((struct chap_keys){ .n = "alice", .r = cut }, &none),
		 -EACCES);
}

TEST(iscsi_chap, a_recorded_response_is_worth_nothing)
{
	char old[80];

	begin("5");
	strcpy(old, response(&in));
	CHECK_EQ(step((struct chap_keys){ .n = "alice", .r = old }, &none), 0);
	begin("5"); /* a new challenge */
	CHECK_EQ(step((struct chap_keys){ .n = "alice", .r = old }, &none),
		 -EACCES);
}

TEST(iscsi_chap, reflection)
{
	char c[80] = "0x";

	begin("5");
	for (unsigned i = 0; i < chap.challenge_len; i++)
		sprintf(c + 2 + 2 * i, "%02x", chap.challenge[i]);
	CHECK_EQ(step((struct chap_keys){ .n = "alice",
					  .r = response(&in),
					  .i = "1",
					  .c = c },
		      &back),
		 -EACCES);
}

TEST(iscsi_chap, wrong_order)
{
	chap = (struct chap){ .state = CHAP_EXPECTED };
	CHECK_EQ(step((struct chap_keys){ .n = "alice", .r = "0x00" }, &none),
		 -EACCES);
	begin("5");
	CHECK_EQ(step((struct chap_keys){ .a = "5" }, &none), -EACCES);
	begin("5");
	CHECK_EQ(step((struct chap_keys){ .n = "alice" }, &none), -EACCES);
	begin("5");
	CHECK_EQ(step((struct chap_keys){ .n = "alice", .r = response(&in) },
		      &none),
		 0);
	CHECK_EQ(step((struct chap_keys){ .a = "5" }, &none), -EACCES);
	chap = (struct chap){ .state = CHAP_NONE };
	CHECK_EQ(step((struct chap_keys){ .a = "5" }, &none), -EACCES);
}

TEST(iscsi_chap, encodings)
{
	char big[3000] = "0b";

	memset(big + 2, 'A', 2800);
	begin("5");
	CHECK_EQ(step((struct chap_keys){ .n = "alice", .r = big }, &none),
		 -EACCES);
	begin("5");
	CHECK_EQ(step((struct chap_keys){ .n = "alice",
					  .r = response(&in),
					  .i = "256",
					  .c = "0x01020304" },
		      &back),
		 -EINVAL);
	begin("5");
	CHECK_EQ(step((struct chap_keys){ .n = "alice",
					  .r = response(&in),
					  .i = "1",
					  .c = big },
		      &back),
		 -EINVAL);
	/* mutual is asked for, and we have nothing to prove ourselves with */
	begin("5");
	CHECK_EQ(step((struct chap_keys){ .n = "alice",
					  .r = response(&in),
					  .i = "1",
					  .c = "0x01020304" },
		      &none),
		 -EACCES);
}
