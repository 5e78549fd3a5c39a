/* basalt.conf: what is taken, what is refused, and that the line is named. */
#include "node/config.h"
#include "base/size.h"
#include "tests/lib/test.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>

static struct config conf;
static char why[512];

static int parse(const char *text)
{
	why[0] = '\0';
	return config_parse("t.conf", text, &conf, why, sizeof(why));
}

static void refused(const char *text, const char *place, const char *reason)
{
	CHECK_EQ(parse(text), -EINVAL);
	if (strstr(why, place) != why || strstr(why, reason) == NULL) {
		print_error("for:\n%s\ngot: %s\n", text, why);
		fail();
	}
}

TEST(node_config, defaults)
{
	CHECK_EQ(parse(""), 0);
	CHECK_STR(conf.data_dir, "/var/lib/basalt");
	CHECK_STR(conf.run_dir, "/run/basalt");
	CHECK_EQ(conf.rdt_port, 7400);
	CHECK_EQ(conf.portals_count, 1);
	CHECK_STR(conf.portals[0].text, "0.0.0.0:3260");
	CHECK_STR(conf.metrics.text, "");
	CHECK_EQ(conf.arena, 256u << 20);
	CHECK(!conf.discard);
}

TEST(node_config, everything)
{
	const char *text =
		"# comment\n; another\n[node] ; its own\nname = a-1.b_c\n"
		"data_dir = /d\nrun_dir = /r\nshards = auto\nspin_us = 0\n"
		"discard = on\n"
		"log_level = warn,lsom=debug\n\n[network]\n"
		"address = fe::1\nrdt_port = 1\n"
		"portals = 10.0.0.1 , [::1]:99,10.0.0.2:3261\n"
		"metrics = 127.0.0.1:9100\n[memory]\narena = 1.5G\n"
		"page_cache=64M\n[node]\t\r\n[memory]";
	struct sockaddr_in6 *v6;

	CHECK_EQ(parse(text), 0);
	CHECK_STR(conf.name, "a-1.b_c");
	CHECK_EQ(conf.shards, 0);
	CHECK_EQ(conf.spin_us, 0);
	CHECK(conf.discard);
	CHECK_EQ(conf.portals_count, 3);
	CHECK_STR(conf.portals[0].text, "10.0.0.1:3260");
	CHECK_STR(conf.portals[1].text, "[::1]:99");
	v6 = (struct sockaddr_in6 *)&conf.portals[1].address;
	CHECK_EQ(v6->sin6_family, AF_INET6);
	CHECK_EQ(ntohs(v6->sin6_port), 99);
	CHECK_STR(conf.metrics.text, "127.0.0.1:9100");
	CHECK_EQ(conf.arena, 1536ull << 20);
	CHECK_EQ(config_log_level_apply("info"), 0);
}

TEST(node_config, default_portal_takes_the_address)
{
	CHECK_EQ(parse("[network]\naddress = ::1\n"), 0);
	CHECK_STR(conf.portals[0].text, "[::1]:3260");
}

/* As sessions and initiators show it. */
TEST(node_config, an_ipv6_address_has_one_form)
{
	CHECK_EQ(
		parse("[network]\nportals = [0:0:0:0:0:0:0:1]:99, FE80::00A\n"),
		0);
	CHECK_STR(conf.portals[0].text, "[::1]:99");
	CHECK_STR(conf.portals[1].text, "[fe80::a]:3260");
	CHECK_EQ(
		parse("[network]\nportals = [fd00::1:3260], fd00::3260, fd00::1:1\n"),
		0);
	CHECK_STR(conf.portals[0].text, "[fd00::1:3260]:3260");
	CHECK_STR(conf.portals[1].text, "[fd00::3260]:3260");
	CHECK_STR(conf.portals[2].text, "[fd00::1:1]:3260");
	refused("[network]\nportals = ::1, [0::1]:3260\n",
		"t.conf:2: ", "[::1]:3260 is given twice");
}

/* Its interface need not be there yet. */
TEST(node_config, a_link_local_address_has_its_interface)
{
	struct sockaddr_storage address;
	const struct sockaddr_in6 *v6 = (const void *)&address;

	CHECK_EQ(parse("[network]\naddress = fe80::1%nope0\n"
		       "portals = [FE80::01%lo]:99, fe80::1%nope0\n"
		       "portals = fe80::1%nope1\n"
		       "metrics = [fe80::1%nope0]:9100\n"),
		 0);
	CHECK_EQ(conf.portals_count, 3);
	CHECK_STR(conf.portals[0].text, "[fe80::1%lo]:99");
	CHECK_STR(conf.portals[1].text, "[fe80::1%nope0]:3260");
	CHECK_STR(conf.portals[2].zone, "nope1");
	CHECK_EQ(config_portal_address(&conf.portals[0], &address), 0);
	CHECK_EQ(v6->sin6_scope_id, if_nametoindex("lo"));
	CHECK_EQ(ntohs(v6->sin6_port), 99);
	CHECK_EQ(config_portal_address(&conf.portals[1], &address), -ENODEV);
	CHECK_EQ(config_portal_address(&conf.metrics, &address), -ENODEV);
	CHECK_EQ(parse("[network]\nportals = [fe80:1:2:3:4:5:6:7%"
		       "interface-of-15]:65535\n"),
		 0);
	CHECK_STR(conf.portals[0].text,
		  "[fe80:1:2:3:4:5:6:7%interface-of-15]:65535");
	refused("[network]\nportals = fe80::1%a, fe80::1%a\n",
		"t.conf:2: ", "[fe80::1%a]:3260 is given twice");
	refused("[network]\nportals = fe80::1%\n", "t.conf:2: ", "ADDR:PORT");
	refused("[network]\nportals = fe80::1%a/b\n",
		"t.conf:2: ", "ADDR:PORT");
	refused("[network]\nportals = fe80::1%interface-of-16-\n",
		"t.conf:2: ", "ADDR:PORT");
	refused("[network]\nportals = 10.0.0.1%lo\n",
		"t.conf:2: ", "ADDR:PORT");
}

/* Who is first at the port would take it from the other. */
TEST(node_config, metrics_beside_portals)
{
	refused("[network]\nmetrics = 127.0.0.1:3260\nportals = 127.0.0.1\n",
		"t.conf:2: ", "the portal 127.0.0.1:3260 has that port");
	refused("[network]\nmetrics = 10.0.0.1:3260\n",
		"t.conf:2: ", "the portal 0.0.0.0:3260 has");
	refused("[network]\nportals = 10.0.0.1:1, 10.0.0.2\n"
		"metrics = 0.0.0.0:3260\n",
		"t.conf:3: ", "the portal 10.0.0.2:3260 has");
	refused("[network]\nportals = 10.0.0.1\nmetrics = [::]:3260\n",
		"t.conf:3: ", "the portal 10.0.0.1:3260 has");
	refused("[network]\nportals = [::]:3260\nmetrics = [fd00::1]:3260\n",
		"t.conf:3: ", "the portal [::]:3260 has");
	CHECK_EQ(parse("[network]\nportals = 10.0.0.1, [::]:3260\n"
		       "metrics = 10.0.0.2:3260\n"),
		 0);
	CHECK_EQ(parse("[network]\nportals = [fd00::1]:3260\n"
		       "metrics = 0.0.0.0:3260\n"),
		 0);
}

TEST(node_config, refusals_name_the_line)
{
	refused("[node]\nnam = x\n", "t.conf:2: ", "unknown key 'nam'");
	refused("[node]\nname = x\n[nodes]\n",
		"t.conf:3: ", "unknown section [nodes]");
	refused("\n\nname = x\n", "t.conf:3: ", "before any [section]");
	refused("[node]\nname = a\nname = b\n", "t.conf:3: ", "twice");
	refused("[node]\njust words\n", "t.conf:2: ", "neither");
	refused("[node\n", "t.conf:1: ", "]");
	refused("[node] name = x\n", "t.conf:1: ", "behind [node]");
	refused("[node]\n[memory]#\n", "t.conf:2: ", "behind [memory]");
	refused("[node]\nname =\n", "t.conf:2: ", "empty");
	refused("[node]\nname = a b\n", "t.conf:2: ", "letters");
	refused("[node]\ndata_dir = here\n", "t.conf:2: ", "absolute");
	refused("[node]\nspin_us = 1001\n", "t.conf:2: ", "0 (never) to 1000");
	refused("[node]\ndiscard = yes\n", "t.conf:2: ", "on or off");
	refused("[node]\nshards = 65\n", "t.conf:2: ", "1 to 64");
	refused("[node]\nshards = 0\n", "t.conf:2: ", "1 to 64");
	refused("[node]\nlog_level = loud\n", "t.conf:2: ", "error, warn");
	refused("[node]\nlog_level = info,nope=debug\n", "t.conf:2: ", "rooms");
	refused("[network]\naddress = host.example\n", "t.conf:2: ", "numeric");
	refused("[network]\naddress = 10.0.0.1:5\n", "t.conf:2: ", "numeric");
	refused("[network]\naddress = 10.0.0.1:1\n", "t.conf:2: ", "numeric");
	refused("[network]\nrdt_port = 0\n", "t.conf:2: ", "65535");
	refused("[network]\n\nportals = 10.0.0.1:99999\n",
		"t.conf:3: ", "10.0.0.1:99999");
	refused("[network]\nportals = ::1, ::1\n", "t.conf:2: ", "twice");
	/* Nobody means the address. */
	refused("[network]\nportals = 10.0.0.1, ::1:3260\n", "t.conf:2: ",
		"'::1:3260' is an IPv6 address without a port: "
		"write [::1]:3260, or [::1:3260]:3260 if");
	refused("[network]\nportals = ::3260\n",
		"t.conf:2: ", "write [::]:3260");
	refused("[network]\naddress = fd00::1:3260\n",
		"t.conf:2: ", "portals = [fd00::1]:3260");
	refused("[network]\nportals = [::1\n", "t.conf:2: ", "[::1");
	refused("[network]\nmetrics = 127.0.0.1\n", "t.conf:2: ", "ADDR:PORT");
	refused("[network]\nmetrics = fe80::01\n", "t.conf:2: ", "ADDR:PORT");
	refused("[memory]\narena = lots\n", "t.conf:2: ", "size");
	refused("[memory]\narena = 1M\n", "t.conf:2: ", "64M");
	refused("[memory]\narena = 99999999999999999999\n",
		"t.conf:2: ", "64M");
	refused("[node]\ndata_dir = /d # here\n", "t.conf:2: ", "comment");
	refused("[network]\nportals = 10.0.0.1\n   10.0.0.2\n",
		"t.conf:3: ", "blank");
	refused("[network]\nportals = 10.0.0.1,\n   10.0.0.2\n",
		"t.conf:2: ", "another line 'portals'");
}

TEST(node_config, long_lines_and_many_portals)
{
	char text[4096] = "[node]\nname = ";

	memset(text + strlen(text), 'x', 3000);
	refused(text, "t.conf:2: ", "longer than");
	strcpy(text, "[network]\n");
	for (int i = 0; i < 16; i++)
		sprintf(text + strlen(text),
			"portals = [fe80::1:2:3:%d]:3261\n", i + 1);
	CHECK_EQ(parse(text), 0);
	CHECK_EQ(conf.portals_count, 16);
	CHECK_STR(conf.portals[15].text, "[fe80::1:2:3:16]:3261");
	strcat(text, "portals = 10.0.0.1\n");
	refused(text, "t.conf:18: ", "more than 16");
	refused("[network]\nportals = ::1\nportals = ::2,::1\n",
		"t.conf:3: ", "twice");
	strcpy(text, "[network]\nportals = ");
	for (int i = 0; i < 17; i++)
		sprintf(text + strlen(text), "%s10.0.0.%d", i ? "," : "", i);
	refused(text, "t.conf:2: ", "more than 16");
}

TEST(node_config, the_example_is_good)
{
	CHECK_EQ(config_load("deploy/basalt.conf.example", &conf, why,
			     sizeof(why)),
		 0);
	CHECK_EQ(config_load("/nonexistent/x", &conf, why, sizeof(why)),
		 -ENOENT);
	CHECK(strstr(why, "/nonexistent/x") != NULL);
	CHECK(strstr(why, "basalt.conf.example") != NULL);
}

TEST(node_size, parse)
{
	static const struct {
		const char *text;
		int rv;
		uint64_t bytes;
	} cases[] = {
		{ "0", 0, 0 },
		{ "4096", 0, 4096 },
		{ "10G", 0, 10ull << 30 },
		{ "512m", 0, 512ull << 20 },
		{ "1.5T", 0, 3ull << 39 },
		{ "0.5K", 0, 512 },
		{ "2KiB", 0, 2048 },
		{ "2kb", 0, 2048 },
		{ "7B", 0, 7 },
		{ "1.25P", 0, 5ull << 48 },
		{ "16383P", 0, 16383ull << 50 },
		{ "16384P", -ERANGE, 0 },
		{ "1E", 0, 1ull << 60 },
		{ "15.5E", 0, 31ull << 59 },
		{ "16E", -ERANGE, 0 },
		{ "18446744073709551615", 0, UINT64_MAX },
		{ "18446744073709551616", -ERANGE, 0 },
		{ "", -EINVAL, 0 },
		{ "G", -EINVAL, 0 },
		{ "-1", -EINVAL, 0 },
		{ "1.", -EINVAL, 0 },
		{ "1X", -EINVAL, 0 },
		{ "1GG", -EINVAL, 0 },
		{ "1 G", -EINVAL, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t got = 0;

		if (size_parse(cases[i].text, &got) != cases[i].rv ||
		    (cases[i].rv == 0 && got != cases[i].bytes)) {
			print_error("size '%s' gave %llu\n", cases[i].text,
				    (unsigned long long)got);
			fail();
		}
	}
}

TEST(node_size, format)
{
	char text[SIZE_TEXT_MAX];

	CHECK_STR(size_format(0, text), "0");
	CHECK_STR(size_format(1023, text), "1023");
	CHECK_STR(size_format(1024, text), "1K");
	CHECK_STR(size_format(10ull << 30, text), "10G");
	CHECK_STR(size_format(3ull << 29, text), "1.5G");
	CHECK_STR(size_format(UINT64_MAX, text), "16.0E");
}
