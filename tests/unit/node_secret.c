/* Sealed secrets, the frame of the admin socket, node.id and cluster.key. */
#include "node/frame.h"
#include "node/node_int.h"
#include "tests/lib/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint8_t key[NODE_KEY_LEN] = "0123456789abcdef0123456789abcde";
static const uint8_t nonce[NODE_SEAL_NONCE] = "nonce-nonce";
static const uint8_t secret[] = "a secret of CHAP";

TEST(node_secret, comes_back)
{
	uint8_t *sealed, out[ISCSI_SECRET_MAX];
	size_t sealed_len, len;

	CHECK_EQ(node__secret_seal(key, nonce, "chap t", secret, 16, &sealed,
				   &sealed_len),
		 0);
	CHECK_EQ(sealed_len, 1 + 12 + 16 + 16);
	CHECK(memmem(sealed, sealed_len, "secret", 6) == NULL);
	CHECK_EQ(node__secret_open(key, "chap t", sealed, sealed_len, out,
				   sizeof(out), &len),
		 0);
	CHECK_EQ(len, 16);
	CHECK(memcmp(out, secret, 16) == 0);
	free(sealed);
}

TEST(node_secret, not_by_another_key_or_name)
{
	uint8_t other[NODE_KEY_LEN] = "another key, just as long as it";
	uint8_t *sealed, out[ISCSI_SECRET_MAX];
	size_t sealed_len, len;

	CHECK_EQ(node__secret_seal(key, nonce, "chap t", secret, 16, &sealed,
				   &sealed_len),
		 0);
	CHECK_EQ(node__secret_open(other, "chap t", sealed, sealed_len, out,
				   sizeof(out), &len),
		 -EBADMSG);
	CHECK_EQ(node__secret_open(key, "mutual t", sealed, sealed_len, out,
				   sizeof(out), &len),
		 -EBADMSG);
	for (size_t i = 1; i < sealed_len; i++) {
		sealed[i] ^= 0x10;
		CHECK_EQ(node__secret_open(key, "chap t", sealed, sealed_len,
					   out, sizeof(out), &len),
			 -EBADMSG);
		sealed[i] ^= 0x10;
	}
	for (size_t n = 0; n < sealed_len; n++)
		CHECK(node__secret_open(key, "chap t", sealed, n, out,
					sizeof(out), &len) < 0);
	sealed[0] = 9;
	CHECK_EQ(node__secret_open(key, "chap t", sealed, sealed_len, out,
				   sizeof(out), &len),
		 -EMEDIUMTYPE);
	free(sealed);
}

TEST(node_frame, bounds_and_versions)
{
	uint8_t head[FRAME_HEADER];
	uint32_t len;
	char why[200];

	frame_put(head, 77);
	CHECK_EQ(frame_get(head, 100, &len, why, sizeof(why)), 0);
	CHECK_EQ(len, 77);
	CHECK_EQ(frame_get(head, 76, &len, why, sizeof(why)), -EMSGSIZE);
	head[4] = 2;
	CHECK_EQ(frame_get(head, 100, &len, why, sizeof(why)), -EMEDIUMTYPE);
	CHECK(strstr(why, "version 2") && strstr(why, "version 1"));
	head[4] = 1;
	head[6] = 1;
	CHECK_EQ(frame_get(head, 100, &len, why, sizeof(why)), -EMEDIUMTYPE);
	head[0] = 'G';
	CHECK_EQ(frame_get(head, 100, &len, why, sizeof(why)), -EPROTO);
}

TEST(node_identity, survives_and_rises)
{
	char *dir = test_dir(), why[300];
	struct node_identity a, b;

	CHECK_EQ(node__identity_open(dir, &a, why, sizeof(why)), 0);
	CHECK_EQ(a.incarnation, 1);
	/* One at a time; the second one says who has it. */
	CHECK_EQ(node__identity_open(dir, &b, why, sizeof(why)), -EBUSY);
	CHECK(strstr(why, "another basaltd") != NULL);
	node__identity_close(&a);
	CHECK_EQ(node__identity_open(dir, &b, why, sizeof(why)), 0);
	CHECK(uuid_equal(&a.id, &b.id));
	CHECK_EQ(b.incarnation, 2);
	node__identity_close(&b);
	free(dir);
}

static void file_write(const char *dir, const char *name, const char *text,
		       mode_t mode)
{
	char path[400];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
	CHECK(fd >= 0);
	CHECK_EQ(write(fd, text, strlen(text)), strlen(text));
	fchmod(fd, mode);
	close(fd);
}

TEST(node_identity, damage_is_refused)
{
	char *dir = test_dir(), why[300];
	struct node_identity id;

	file_write(dir, "node.id", "not an id\n", 0644);
	CHECK_EQ(node__identity_open(dir, &id, why, sizeof(why)), -EUCLEAN);
	CHECK(strstr(why, "node.id") != NULL);
	file_write(dir, "node.id", "00112233-4455-4677-8899-aabbccddeeff\n",
		   0644);
	file_write(dir, "incarnation", "7", 0644); /* its end is cut off */
	CHECK_EQ(node__identity_open(dir, &id, why, sizeof(why)), -EUCLEAN);
	/* strtoull() would make a number near 2^64 of it, for good. */
	file_write(dir, "incarnation", "-7\n", 0644);
	CHECK_EQ(node__identity_open(dir, &id, why, sizeof(why)), -EUCLEAN);
	CHECK(strstr(why, "larger than") != NULL);
	file_write(dir, "incarnation", "7\n", 0644);
	CHECK_EQ(node__identity_open(dir, &id, why, sizeof(why)), 0);
	CHECK_EQ(id.incarnation, 8);
	node__identity_close(&id);
	free(dir);
}

TEST(node_key, private_and_whole)
{
	char *dir = test_dir(), why[300], path[400];
	uint8_t got[NODE_KEY_LEN];
	struct stat st;

	CHECK_EQ(node__key_load(dir, got, why, sizeof(why)), -ENOENT);
	CHECK_EQ(node__key_make(dir, key, why, sizeof(why)), 0);
	snprintf(path, sizeof(path), "%s/cluster.key", dir);
	CHECK_EQ(stat(path, &st), 0);
	CHECK_EQ(st.st_mode & 0777, 0600);
	CHECK_EQ(node__key_load(dir, got, why, sizeof(why)), 0);
	CHECK(memcmp(got, key, sizeof(key)) == 0);
	chmod(path, 0640);
	CHECK_EQ(node__key_load(dir, got, why, sizeof(why)), -EACCES);
	file_write(dir, "cluster.key", "basalt cluster key 1\nxyz\n", 0600);
	CHECK_EQ(node__key_load(dir, got, why, sizeof(why)), -EUCLEAN);
	free(dir);
}

TEST(node_probe, mounts_are_found)
{
	const char *text =
		"36 35 98:0 / /mnt1 rw,noatime shared:1 - ext3 /dev/root rw\n"
		"37 35 8:17 /sub /mnt/two rw - ext4 /dev/sdb1 rw\n";
	char where[64];

	CHECK(node__probe_mounted(text, 8, 17, where, sizeof(where)));
	CHECK_STR(where, "/mnt/two");
	CHECK(node__probe_mounted(text, 98, 0, where, sizeof(where)));
	CHECK_STR(where, "/mnt1");
	CHECK(!node__probe_mounted(text, 8, 1, where, sizeof(where)));
	CHECK(!node__probe_mounted("", 8, 17, where, sizeof(where)));
	CHECK(!node__probe_mounted("garbage\n\n", 8, 17, where, sizeof(where)));
}
