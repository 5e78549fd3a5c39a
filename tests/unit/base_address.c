/* address: as RFC 5952 writes it, with port and zone. */
#include "base/address.h"
#include "tests/lib/test.h"

#include <arpa/inet.h>
#include <net/if.h>
#include <string.h>

static struct sockaddr_storage address(const char *text, unsigned port)
{
	struct sockaddr_storage out = { 0 };
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&out;
	struct sockaddr_in *v4 = (struct sockaddr_in *)&out;

	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
		out.ss_family = AF_INET;
	} else {
		assert_int_equal(inet_pton(AF_INET6, text, &v6->sin6_addr), 1);
		out.ss_family = AF_INET6;
	}
	*address_port(&out) = htons((uint16_t)port);
	return out;
}

static void reads(const char *text, unsigned port, const char *want)
{
	struct sockaddr_storage a = address(text, port);
	char out[ADDRESS_TEXT];

	address_text(&a, true, out);
	assert_string_equal(out, want);
	address_text(&a, false, out);
	assert_string_equal(out, want);
}

TEST(address, text)
{
	reads("192.0.2.1", 3260, "192.0.2.1:3260");
	reads("255.255.255.255", 65535, "255.255.255.255:65535");
	reads("2001:db8:0:0:0:0:0:1", 1, "[2001:db8::1]:1");
	reads("::", 0, "[::]:0");
	reads("fe80::1", 3260, "[fe80::1]:3260");
	reads("1111:2222:3333:4444:5555:6666:7777:8888", 65535,
	      "[1111:2222:3333:4444:5555:6666:7777:8888]:65535");
}

/* Of the interface's name; of one that is gone, none. */
TEST(address, zone)
{
	struct sockaddr_storage a = address("fe80::1", 3260);
	char out[ADDRESS_TEXT];
	unsigned lo = if_nametoindex("lo");

	assert_int_not_equal(lo, 0);
	((struct sockaddr_in6 *)&a)->sin6_scope_id = lo;
	address_text(&a, true, out);
	assert_string_equal(out, "[fe80::1%lo]:3260");
	address_text(&a, false, out);
	assert_string_equal(out, "[fe80::1]:3260");
	((struct sockaddr_in6 *)&a)->sin6_scope_id = 1u << 30;
	address_text(&a, true, out);
	assert_string_equal(out, "[fe80::1]:3260");
}

TEST(address, any)
{
	struct sockaddr_storage a = address("0.0.0.0", 3260);

	assert_true(address_any(&a));
	a = address("::", 3260);
	assert_true(address_any(&a));
	a = address("127.0.0.1", 0);
	assert_false(address_any(&a));
	a = address("::1", 0);
	assert_false(address_any(&a));
}
