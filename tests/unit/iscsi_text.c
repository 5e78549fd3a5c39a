/* key=value text: pairs, numbers, binary values, lists, names. */
#include "iscsi/iscsi_int.h"
#include "tests/lib/test.h"

#include <stdio.h>

static char buf[256], *at, *key, *value;
static size_t left;

static void load(const char *text, size_t len)
{
	memcpy(buf, text, len);
	buf[len] = '\0';
	at = buf;
	left = len;
}
#define LOAD(literal) load(literal, sizeof(literal) - 1)

static int next(void)
{
	return iscsi__text_next(&at, &left, &key, &value);
}

TEST(iscsi_text, pairs)
{
	LOAD("A=1\0Bee=two,three\0C=x=y\0\0\0");
	CHECK_EQ(next(), 1);
	CHECK_STR(key, "A");
	CHECK_STR(value, "1");
	CHECK_EQ(next(), 1);
	CHECK_STR(value, "two,three");
	CHECK_EQ(next(), 1);
	CHECK_STR(value, "x=y");
	CHECK_EQ(next(), 0);
}

TEST(iscsi_text, malformed_pairs)
{
	char long_key[80];

	LOAD("NoEquals\0");
	CHECK_EQ(next(), -EINVAL);
	LOAD("=value\0");
	CHECK_EQ(next(), -EINVAL);
	LOAD("A=not terminated");
	CHECK_EQ(next(), -EINVAL);
	LOAD("Sp ace=1\0");
	CHECK_EQ(next(), -EINVAL);
	LOAD("A=\x01\0");
	CHECK_EQ(next(), -EINVAL);
	memset(long_key, 'K', sizeof(long_key));
	memcpy(long_key + 63, "=1", 3);
	load(long_key, 66);
	CHECK_EQ(next(), 1);
	memcpy(long_key + 63, "K=1", 4);
	load(long_key, 67);
	CHECK_EQ(next(), -EINVAL);
}

TEST(iscsi_text, writer_knows_when_it_is_full)
{
	char small[8];
	struct text_out out;

	iscsi__text_out_init(&out, small, sizeof(small));
	iscsi__text_put(&out, "A", "%d", 1);
	CHECK_EQ(out.len, 4);
	iscsi__text_put(&out, "B", "%d", 22);
	CHECK(out.full);
	CHECK_EQ(out.len, 4);
}

TEST(iscsi_text, numbers)
{
	uint64_t v = 0;

	CHECK_EQ(iscsi__text_number("512", 0, 1000, &v), 0);
	CHECK_EQ(v, 512);
	CHECK_EQ(iscsi__text_number("0x1F", 0, 1000, &v), 0);
	CHECK_EQ(v, 31);
	CHECK_EQ(iscsi__text_number("18446744073709551615", 0, UINT64_MAX, &v),
		 0);
	CHECK_EQ(iscsi__text_number("18446744073709551616", 0, UINT64_MAX, &v),
		 -ERANGE);
	CHECK_EQ(iscsi__text_number("256", 0, 255, &v), -ERANGE);
	for (const char **bad = (const char *[]){ "", "-1", "+5", "0x", "12a",
						  "1~4", " 1", "0xg", NULL };
	     *bad != NULL; bad++)
		CHECK_EQ(iscsi__text_number(*bad, 0, UINT64_MAX, &v), -EINVAL);
}

TEST(iscsi_text, booleans)
{
	bool b;

	CHECK_EQ(iscsi__text_bool("Yes", &b), 0);
	CHECK(b);
	CHECK_EQ(iscsi__text_bool("No", &b), 0);
	CHECK(!b);
	CHECK_EQ(iscsi__text_bool("yes", &b), -EINVAL);
}

TEST(iscsi_text, binary_values)
{
	uint8_t out[4];
	size_t len;

	CHECK_EQ(iscsi__text_binary("0x00fFA1", out, 4, &len), 0);
	CHECK_EQ(len, 3);
	CHECK_EQ(out[1], 0xff);
	CHECK_EQ(iscsi__text_binary("0XaB", out, 4, &len), 0);
	CHECK_EQ(iscsi__text_binary("0bAAECAw==", out, 4, &len), 0);
	CHECK_EQ(len, 4);
	CHECK_EQ(out[3], 3);
	CHECK_EQ(iscsi__text_binary("0BAAEC", out, 4, &len), 0);
	CHECK_EQ(len, 3);
	CHECK_EQ(iscsi__text_binary("0x0011223344", out, 4, &len), -EMSGSIZE);
	CHECK_EQ(iscsi__text_binary("0bAAECAwQF", out, 4, &len), -EMSGSIZE);
	CHECK_EQ(iscsi__text_binary("0bAAECAwQ=", out, 4, &len), -EMSGSIZE);
	for (const char **bad =
		     (const char *[]){ "", "0", "0x", "0x1", "0xzz", "0b",
				       "0bAAE", "0b=AAA", "0bA===", "0bA*AA",
				       "1234", NULL };
	     *bad != NULL; bad++)
		CHECK_EQ(iscsi__text_binary(*bad, out, 4, &len), -EINVAL);
}

TEST(iscsi_text, lists)
{
	static const char *const ours[] = { "None", "CRC32C" };

	CHECK_EQ(iscsi__text_list("CRC32C,None", ours, 2), 1);
	CHECK_EQ(iscsi__text_list("X,None,CRC32C", ours, 2), 0);
	CHECK_EQ(iscsi__text_list("Non,Nonee", ours, 2), -ENOENT);
	CHECK_EQ(iscsi__text_list("", ours, 2), -EINVAL);
	CHECK_EQ(iscsi__text_list("None,", ours, 2), -EINVAL);
}

TEST(iscsi_text, names)
{
	char out[ISCSI_NAME_MAX + 1], longest[ISCSI_NAME_MAX + 2] = "iqn.";

	CHECK_EQ(iscsi__name_parse("IQN.2026-11.Example:Disk", out), 0);
	CHECK_STR(out, "iqn.2026-11.example:disk");
	CHECK_EQ(iscsi__name_parse("eui.0123456789abcdef", out), 0);
	CHECK_EQ(iscsi__name_parse("iqn.2026-11.b\xc3\xbc"
				   "cher:x",
				   out),
		 0);
	CHECK_EQ(iscsi__name_parse("disk", out), -EINVAL);
	CHECK_EQ(iscsi__name_parse("iqn.a b", out), -EINVAL);
	CHECK_EQ(iscsi__name_parse("iqn.\xc0\xaf", out), -EINVAL);
	CHECK_EQ(iscsi__name_parse("iqn.\xc3", out), -EINVAL);
	memset(longest + 4, 'a', sizeof(longest) - 5);
	CHECK_EQ(iscsi__name_parse(longest, out), -EINVAL);
	longest[ISCSI_NAME_MAX] = '\0';
	CHECK_EQ(iscsi__name_parse(longest, out), 0);
}
