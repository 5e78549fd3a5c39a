/*
 * chap: the challenge handshake (RFC 7143 12.1.3, RFC 1994), both directions.
 *
 * The login gives it the CHAP keys of one request and gets what to answer.  A
 * failure says nothing about which part was wrong, and an unknown user costs
 * the same time as a wrong secret.
 */
#include "iscsi/iscsi_int.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

static const struct chap_alg {
	unsigned number;
	const char *digest;
	unsigned len;
} algs[] = {
	{ 5, "MD5", 16 },
	{ 6, "SHA1", 20 },
	{ 7, "SHA256", 32 },
	{ 8, "SHA3-256", 32 },
};

static const struct chap_alg *alg_of(unsigned number)
{
	for (unsigned i = 0; i < ARRAY_LEN(algs); i++)
		if (algs[i].number == number)
			return &algs[i];
	return NULL;
}

unsigned iscsi__chap_len(unsigned alg)
{
	const struct chap_alg *a = alg_of(alg);

	return a != NULL ? a->len : 0;
}

/*
 * R = H(id | secret | challenge).  @out has room for CHAP_RESPONSE_MAX bytes.
 * Returns its length, or -EOPNOTSUPP if libcrypto has no such digest.
 */
int iscsi__chap_response(unsigned alg, uint8_t id, const uint8_t *secret,
			 size_t secret_len, const uint8_t *challenge,
			 size_t challenge_len, uint8_t *out)
{
	const struct chap_alg *a = alg_of(alg);
	EVP_MD_CTX *ctx;
	EVP_MD *md;
	unsigned len = 0;
	int rv = -EOPNOTSUPP;

	if (a == NULL)
		return -EOPNOTSUPP;
	md = EVP_MD_fetch(NULL, a->digest, NULL);
	ctx = EVP_MD_CTX_new();
	if (md != NULL && ctx != NULL && EVP_DigestInit_ex(ctx, md, NULL) &&
	    EVP_DigestUpdate(ctx, &id, 1) &&
	    EVP_DigestUpdate(ctx, secret, secret_len) &&
	    EVP_DigestUpdate(ctx, challenge, challenge_len) &&
	    EVP_DigestFinal_ex(ctx, out, &len)) {
		assert(len == a->len);
		rv = (int)len;
	}
	EVP_MD_CTX_free(ctx);
	EVP_MD_free(md);
	return rv;
}

/*
 * Choose from the peer's CHAP_A, a list of whole numbers by preference.
 * Returns the algorithm, -EINVAL if malformed, -EACCES if we share none.
 */
int iscsi__chap_choose(const char *list)
{
	int chosen = -EACCES;

	for (;;) {
		size_t n = strcspn(list, ",");
		uint64_t v;
		char one[24];

		if (n == 0 || n >= sizeof(one))
			return -EINVAL;
		memcpy(one, list, n);
		one[n] = '\0';
		if (iscsi__text_number(one, 0, UINT64_MAX, &v) < 0)
			return -EINVAL;
		if (chosen < 0 && v < 256 && alg_of((unsigned)v) != NULL)
			chosen = (int)v;
		if (list[n] == '\0')
			return chosen;
		list += n + 1;
	}
}

/* CHAP_A has come: draw a challenge and put what answers it. */
static int chap_begin(struct chap *chap, const struct chap_keys *keys,
		      struct env *env, struct text_out *out)
{
	int alg;

	if (keys->n != NULL || keys->r != NULL || keys->i != NULL ||
	    keys->c != NULL)
		return -EACCES; /* a response before its challenge */
	alg = iscsi__chap_choose(keys->a);
	if (alg < 0)
		return alg;
	chap->alg = (unsigned)alg;
	chap->challenge_len = iscsi__chap_len(chap->alg);
	env_secure_random(env, &chap->id, 1);
	env_secure_random(env, chap->challenge, chap->challenge_len);
	chap->state = CHAP_CHALLENGED;
	iscsi__text_put(out, "CHAP_A", "%u", chap->alg);
	iscsi__text_put(out, "CHAP_I", "%u", chap->id);
	iscsi__text_put_hex(out, "CHAP_C", chap->challenge,
			    chap->challenge_len);
	return 0;
}

/* The name and the response; both are looked at whatever the other says. */
static bool chap_verify(const struct chap *chap, const struct chap_keys *keys,
			const struct chap_secret *in)
{
	uint8_t want[CHAP_RESPONSE_MAX], got[CHAP_RESPONSE_MAX] = { 0 };
	size_t got_len = 0, user_len = strlen(in->user);
	int len;
	unsigned wrong = 0;

	if (iscsi__text_binary(keys->r, got, sizeof(got), &got_len) < 0)
		return false;
	len = iscsi__chap_response(chap->alg, chap->id, in->secret,
				   in->secret_len, chap->challenge,
				   chap->challenge_len, want);
	if (len < 0)
		return false;
	wrong |= got_len != (size_t)len;
	wrong |= CRYPTO_memcmp(want, got, (size_t)len) != 0;
	wrong |= strlen(keys->n) != user_len;
	if (strlen(keys->n) == user_len)
		wrong |= CRYPTO_memcmp(keys->n, in->user, user_len) != 0;
	OPENSSL_cleanse(want, sizeof(want));
	return wrong == 0;
}

/* The initiator wants us to prove ourselves as well. */
static int chap_prove(struct chap *chap, const struct chap_keys *keys,
		      const struct chap_secret *mutual, struct text_out *out)
{
	uint8_t response[CHAP_RESPONSE_MAX];
	uint64_t id;
	int len;

	if (keys->i == NULL || keys->c == NULL)
		return -EINVAL;
	if (iscsi__text_number(keys->i, 0, 255, &id) < 0 ||
	    iscsi__text_binary(keys->c, chap->peer_challenge,
			       sizeof(chap->peer_challenge),
			       &chap->peer_challenge_len) < 0)
		return -EINVAL;
	if (mutual->user[0] == '\0')
		return -EACCES;
	/* Reflection: our own challenge must not come back (9.2.1). */
	if (chap->peer_challenge_len == chap->challenge_len &&
	    memcmp(chap->peer_challenge, chap->challenge,
		   chap->challenge_len) == 0)
		return -EACCES;
	len = iscsi__chap_response(chap->alg, (uint8_t)id, mutual->secret,
				   mutual->secret_len, chap->peer_challenge,
				   chap->peer_challenge_len, response);
	if (len < 0)
		return -EACCES;
	iscsi__text_put(out, "CHAP_N", "%s", mutual->user);
	iscsi__text_put_hex(out, "CHAP_R", response, (size_t)len);
	OPENSSL_cleanse(response, sizeof(response));
	return 0;
}

/*
 * One request's CHAP keys.  Returns 0 (chap->state tells where we are, @out has
 * the answer); -EACCES: 0201; -EINVAL: malformed, 0200.
 */
int iscsi__chap_step(struct chap *chap, const struct chap_keys *keys,
		     const struct chap_secret *in,
		     const struct chap_secret *mutual, struct env *env,
		     struct text_out *out)
{
	int rv;

	switch (chap->state) {
	case CHAP_EXPECTED:
		if (keys->a == NULL)
			return -EACCES;
		return chap_begin(chap, keys, env, out);
	case CHAP_CHALLENGED:
		if (keys->a != NULL || keys->n == NULL || keys->r == NULL)
			return -EACCES;
		if (!chap_verify(chap, keys, in))
			return -EACCES;
		if (keys->i != NULL || keys->c != NULL) {
			rv = chap_prove(chap, keys, mutual, out);
			if (rv < 0)
				return rv;
		}
		chap->state = CHAP_DONE;
		return 0;
	case CHAP_NONE:
	case CHAP_DONE:
		break;
	}
	return -EACCES; /* a second handshake in one login, or unasked */
}
