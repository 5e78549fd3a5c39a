/*
 * Logins: whole sequences of Login Requests to targets with and without CHAP,
 * and the answers, which must fit and must never let in who did not prove
 * itself.
 *
 * An input is a byte of set-up, then records: byte 1 of the header, a byte of
 * variation, text's length (2 bytes), text.  A variation of the right value
 * adds the answer to the target's challenge, as a fuzzer finds no digest.
 */
#include "tests/fuzz/iscsi_rig.h"

#include "iscsi/iscsi_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WHO "iqn.2026-11.example:me"
#define OPEN "iqn.2026-11.internal.basalt:open"
#define CHAP "iqn.2026-11.internal.basalt:chap"
#define BOTH "iqn.2026-11.internal.basalt:both"
#define SECRET "0123456789abcdef"

enum { SETUP_RDMA = 1, SETUP_NAMES = 2, SETUP_TARGET = 12 };
enum { VARY_ANSWER = 1, VARY_HEADER = 128 };

static struct memenv me;
static struct iscsi *iscsi;
static struct iscsi_portal portal = { .number = 1, .tpgt = 7 };

static void target(const char *iqn, const char *user, const char *mutual)
{
	static const char *const any[] = { "any" };
	struct iscsi_target_conf conf = {
		.iqn = iqn,
		.alias = "a disk",
		.allow = any,
		.allow_count = 1,
		.chap_user = user,
		.chap_secret = (const uint8_t *)SECRET,
		.chap_secret_len = 16,
		.mutual_user = mutual,
		.mutual_secret = (const uint8_t *)"another secret",
		.mutual_secret_len = 14,
	};

	CHECK_EQ(iscsi_target_set(iscsi, &conf), 0);
}

static void set_up(void)
{
	struct dom *dom;

	memenv_init(&me, NULL, 0);
	CHECK_EQ(fake_dom_open(&me.loop.env, &dom), 0);
	CHECK_EQ(iscsi_open(&(struct iscsi_config){ .env = &me.loop.env,
						    .dom = dom },
			    &iscsi),
		 0);
	target(OPEN, NULL, NULL);
	target(CHAP, "user", NULL);
	target(BOTH, "user", "other");
}

/* What a host that knows the secret says; at most 400 bytes. */
static size_t prove(const struct login *l, char *text)
{
	uint8_t digest[CHAP_RESPONSE_MAX];
	struct text_out out;
	int n;

	if (l->chap.state != CHAP_CHALLENGED)
		return 0;
	n = iscsi__chap_response(l->chap.alg, l->chap.id,
				 (const uint8_t *)SECRET, 16, l->chap.challenge,
				 l->chap.challenge_len, digest);
	if (n < 0)
		return 0;
	iscsi__text_out_init(&out, text, 400);
	iscsi__text_put(&out, "CHAP_N", "user");
	iscsi__text_put_hex(&out, "CHAP_R", digest,
			    iscsi__chap_len(l->chap.alg));
	return out.len;
}

static void check_answer(const struct login *l, const struct login_answer *a,
			 bool proved)
{
	char copy[ISCSI_LOGIN_DATA_MAX + 1], *at = copy, *key, *value;
	size_t len = a->text_len;
	int rv;

	CHECK(len <= ISCSI_LOGIN_DATA_MAX);
	CHECK(a->status_class <= 3);
	if (a->status_class != 0) {
		CHECK(!a->final && a->flags == 0);
		return;
	}
	memcpy(copy, l->answer, len);
	copy[len] = '\0';
	while ((rv = iscsi__text_next(&at, &len, &key, &value)) > 0)
		CHECK(value != NULL && key[0] != '\0');
	CHECK_EQ(rv, 0); /* we understand ourselves */
	if (!a->final)
		return;
	CHECK(l->initiator[0] != '\0');
	if (l->auth_needed)
		CHECK(l->auth_done && proved);
	CHECK(l->keys.first_burst <= l->keys.max_burst);
	CHECK(l->keys.first_burst >= 512 && l->keys.max_send_data >= 512);
	CHECK(l->keys.max_recv_data >= 512);
	CHECK(l->keys.max_outstanding_r2t >= 1 &&
	      l->keys.max_outstanding_r2t <= TASK_R2T_MAX);
}

static size_t names(unsigned setup, char *text)
{
	static const char *const iqns[] = { OPEN, CHAP, BOTH,
					    "iqn.2026-11.x:y" };

	return (size_t)sprintf(text, "InitiatorName=%s%cTargetName=%s", WHO, 0,
			       iqns[setup >> 2 & 3]) +
	       1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char text[65536 + 2048];
	struct login_answer answer;
	struct login *l;
	bool proved = false, first = true;
	uint8_t bhs[48] = { 0x43 };
	unsigned setup;

	if (iscsi == NULL)
		set_up();
	if (size < 1)
		return 0;
	setup = *data++;
	size--;
	me.random = 1; /* the same challenge for the same input */
	l = iscsi__login_new(iscsi, &portal, setup & SETUP_RDMA);
	put_be32(bhs + 16, 1);
	while (size >= 4) {
		unsigned vary = data[1];
		size_t len = MIN(get_be16(data + 2), size - 4), n = 0;

		if (first && (setup & SETUP_NAMES) != 0)
			n = names(setup, text);
		first = false;
		if ((vary & VARY_ANSWER) != 0) {
			size_t more = prove(l, text + n);

			proved = proved || more > 0;
			n += more;
		}
		memcpy(text + n, data + 4, len);
		n += len;
		bhs[1] = data[0];
		if ((vary & VARY_HEADER) != 0)
			bhs[vary & 31] ^= (uint8_t)(vary >> 2);
		/* The wire gives no more than this (13.12). */
		n = MIN(n, (size_t)ISCSI_LOGIN_DATA_MAX);
		iscsi__login_request(l, bhs, (uint8_t *)text, (uint32_t)n,
				     &answer);
		check_answer(l, &answer, proved);
		data += 4 + len;
		size -= 4 + len;
		if (answer.status_class != 0 || answer.final)
			break;
	}
	iscsi__login_free(l);
	return 0;
}
