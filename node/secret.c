/*
 * secret: CHAP secrets as they lie in the directory.
 *
 *	0  version  1 byte, SEAL_VERSION
 *	1  nonce    12 bytes, random
 *	13 secret   as long as it is, encrypted
 *	   tag      16 bytes
 *
 * AES-256-GCM (SP 800-38D); the key is HKDF-SHA-256 (RFC 5869) of cluster.key
 * with the purpose as info, so that other uses of cluster.key never share it.
 * The context is the additional authenticated data.
 */
#include "node/node_int.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <stdlib.h>

#define SEAL_VERSION 1u
#define SEAL_TAG 16u
#define SEAL_HEAD (1u + NODE_SEAL_NONCE)
#define SEAL_PURPOSE "basalt chap secret 1"

void node__wipe(void *buf, size_t len)
{
	OPENSSL_cleanse(buf, len);
}

static int seal_key(const uint8_t key[NODE_KEY_LEN], uint8_t out[32])
{
	EVP_PKEY_CTX *kdf = EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, NULL);
	size_t len = 32;
	bool ok =
		kdf != NULL && EVP_PKEY_derive_init(kdf) > 0 &&
		EVP_PKEY_CTX_set_hkdf_md(kdf, EVP_sha256()) > 0 &&
		EVP_PKEY_CTX_set1_hkdf_key(kdf, key, NODE_KEY_LEN) > 0 &&
		EVP_PKEY_CTX_add1_hkdf_info(kdf,
					    (const unsigned char *)SEAL_PURPOSE,
					    (int)strlen(SEAL_PURPOSE)) > 0 &&
		EVP_PKEY_derive(kdf, out, &len) > 0;

	EVP_PKEY_CTX_free(kdf);
	return ok ? 0 : -EIO;
}

int node__secret_seal(const uint8_t key[NODE_KEY_LEN],
		      const uint8_t nonce[NODE_SEAL_NONCE], const char *context,
		      const uint8_t *secret, size_t len, uint8_t **out,
		      size_t *out_len)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
	uint8_t derived[32], *buf = malloc(SEAL_HEAD + len + SEAL_TAG);
	int n, rv = -EIO;

	if (ctx == NULL || buf == NULL || len > ISCSI_SECRET_MAX) {
		rv = len > ISCSI_SECRET_MAX ? -EMSGSIZE : -ENOMEM;
		goto out;
	}
	buf[0] = SEAL_VERSION;
	memcpy(buf + 1, nonce, NODE_SEAL_NONCE);
	if (seal_key(key, derived) == 0 &&
	    EVP_EncryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, derived, nonce) >
		    0 &&
	    EVP_EncryptUpdate(ctx, NULL, &n, (const uint8_t *)context,
			      (int)strlen(context)) > 0 &&
	    EVP_EncryptUpdate(ctx, buf + SEAL_HEAD, &n, secret, (int)len) > 0 &&
	    EVP_EncryptFinal_ex(ctx, buf + SEAL_HEAD + len, &n) > 0 &&
	    EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_GET_TAG, SEAL_TAG,
				buf + SEAL_HEAD + len) > 0)
		rv = 0;
	node__wipe(derived, sizeof(derived));
out:
	EVP_CIPHER_CTX_free(ctx);
	if (rv < 0) {
		free(buf);
		return rv;
	}
	*out = buf;
	*out_len = SEAL_HEAD + len + SEAL_TAG;
	return 0;
}

int node__secret_open(const uint8_t key[NODE_KEY_LEN], const char *context,
		      const uint8_t *sealed, size_t sealed_len, uint8_t *out,
		      size_t out_max, size_t *len)
{
	EVP_CIPHER_CTX *ctx;
	uint8_t derived[32], tag[SEAL_TAG];
	size_t inner;
	int n, rv = -EBADMSG;

	if (sealed_len < 1 || sealed[0] != SEAL_VERSION)
		return sealed_len < 1 ? -EBADMSG : -EMEDIUMTYPE;
	if (sealed_len < SEAL_HEAD + SEAL_TAG)
		return -EBADMSG;
	inner = sealed_len - SEAL_HEAD - SEAL_TAG;
	if (inner > out_max)
		return -EMSGSIZE;
	ctx = EVP_CIPHER_CTX_new();
	if (ctx == NULL)
		return -ENOMEM;
	memcpy(tag, sealed + SEAL_HEAD + inner, SEAL_TAG);
	if (seal_key(key, derived) == 0 &&
	    EVP_DecryptInit_ex(ctx, EVP_aes_256_gcm(), NULL, derived,
			       sealed + 1) > 0 &&
	    EVP_DecryptUpdate(ctx, NULL, &n, (const uint8_t *)context,
			      (int)strlen(context)) > 0 &&
	    EVP_DecryptUpdate(ctx, out, &n, sealed + SEAL_HEAD, (int)inner) >
		    0 &&
	    EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_GCM_SET_TAG, SEAL_TAG, tag) > 0 &&
	    EVP_DecryptFinal_ex(ctx, out + n, &n) > 0)
		rv = 0;
	node__wipe(derived, sizeof(derived));
	EVP_CIPHER_CTX_free(ctx);
	if (rv == 0)
		*len = inner;
	else
		node__wipe(out, inner);
	return rv;
}
