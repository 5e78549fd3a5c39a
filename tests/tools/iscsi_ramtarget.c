/*
 * iscsi_ramtarget: an iSCSI target over plain memory, to run initiators and bad
 * input against the sessions and the command set without a store below.
 *
 *	iscsi_ramtarget --listen ADDR:PORT --size BYTES --block 512|4096
 *		[--iqn IQN] [--portal ADDR:PORT]... [--chap USER:SECRET]
 *		[--mutual USER:SECRET] [--allow IQN|any]... [--luns N]
 *		[--login-ms MS] [--pdu-ms MS] [--ping-ms MS] [--read-only]
 *		[--arena BYTES]
 *
 * Prints "listening PORT" per portal, then "ready IQN"; ends, drained, on
 * SIGTERM or SIGINT.  The exit status is 0 if everything came home: pages too.
 */
#include "base/page.h"
#include "base/shard.h"
#include "base/util.h"
#include "iscsi/iscsi.h"
#include "tests/lib/fake_dom.h"

#include <arpa/inet.h>
#include <getopt.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORTALS_MAX 8
#define ALLOW_MAX 64

struct options {
	struct sockaddr_storage portals[PORTALS_MAX];
	unsigned portals_count;
	uint64_t size, arena;
	uint32_t block;
	const char *iqn, *allow[ALLOW_MAX];
	unsigned allow_count, luns;
	char *chap, *mutual;
	bool read_only;
	struct iscsi_config config;
};

struct ram {
	struct options opt;
	struct arena *arena;
	struct shards *shards;
	struct env *env;
	struct dom *dom;
	struct iscsi *iscsi;
	uv_signal_t signals[2];
	bool stopping;
};

static void die(const char *what)
{
	fprintf(stderr, "iscsi_ramtarget: %s\n", what);
	exit(2);
}

static void parse_address(const char *text, struct sockaddr_storage *out)
{
	const char *colon = strrchr(text, ':');
	char host[64];
	size_t n;

	memset(out, 0, sizeof(*out));
	if (colon == NULL || (size_t)(colon - text) >= sizeof(host))
		die("an address is ADDR:PORT");
	n = (size_t)(colon - text);
	if (text[0] == '[' && n > 2) {
		struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)out;

		memcpy(host, text + 1, n - 2);
		host[n - 2] = '\0';
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons((uint16_t)atoi(colon + 1));
		if (inet_pton(AF_INET6, host, &in6->sin6_addr) != 1)
			die("a bad IPv6 address");
	} else {
		struct sockaddr_in *in = (struct sockaddr_in *)out;

		memcpy(host, text, n);
		host[n] = '\0';
		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)atoi(colon + 1));
		if (inet_pton(AF_INET, host, &in->sin_addr) != 1)
			die("a bad IPv4 address");
	}
}

static void parse(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = {
		{ "listen", required_argument, NULL, 'l' },
		{ "portal", required_argument, NULL, 'l' },
		{ "size", required_argument, NULL, 's' },
		{ "block", required_argument, NULL, 'b' },
		{ "iqn", required_argument, NULL, 'i' },
		{ "chap", required_argument, NULL, 'c' },
		{ "mutual", required_argument, NULL, 'm' },
		{ "allow", required_argument, NULL, 'a' },
		{ "luns", required_argument, NULL, 'n' },
		{ "login-ms", required_argument, NULL, 'L' },
		{ "pdu-ms", required_argument, NULL, 'P' },
		{ "ping-ms", required_argument, NULL, 'I' },
		{ "arena", required_argument, NULL, 'A' },
		{ "sources", required_argument, NULL, 'S' },
		{ "read-only", no_argument, NULL, 'r' },
		{ NULL, 0, NULL, 0 },
	};
	int c;

	*o = (struct options){
		.size = 256u << 20,
		.arena = 256u << 20,
		.block = 512,
		.iqn = "iqn.2026-11.internal.basalt:ram",
		.luns = 1,
	};
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'l':
			if (o->portals_count == PORTALS_MAX)
				die("too many portals");
			parse_address(optarg, &o->portals[o->portals_count++]);
			break;
		case 's':
			o->size = strtoull(optarg, NULL, 0);
			break;
		case 'b':
			o->block = (uint32_t)atoi(optarg);
			break;
		case 'i':
			o->iqn = optarg;
			break;
		case 'c':
			o->chap = optarg;
			break;
		case 'm':
			o->mutual = optarg;
			break;
		case 'a':
			if (o->allow_count == ALLOW_MAX)
				die("too many names");
			o->allow[o->allow_count++] = optarg;
			break;
		case 'n':
			o->luns = (unsigned)atoi(optarg);
			break;
		case 'L':
			o->config.login_ms = (unsigned)atoi(optarg);
			break;
		case 'P':
			o->config.pdu_ms = (unsigned)atoi(optarg);
			break;
		case 'I':
			o->config.ping_ms = (unsigned)atoi(optarg);
			break;
		case 'A':
			o->arena = strtoull(optarg, NULL, 0);
			break;
		case 'S':
			o->config.logins_per_source = (unsigned)atoi(optarg);
			break;
		case 'r':
			o->read_only = true;
			break;
		default:
			exit(2);
		}
	}
	if (o->portals_count == 0)
		die("--listen ADDR:PORT is needed");
}

static void split(char *pair, const char **user, const uint8_t **secret,
		  unsigned *len)
{
	char *colon = pair != NULL ? strchr(pair, ':') : NULL;

	if (pair == NULL)
		return;
	if (colon == NULL)
		die("a secret is USER:SECRET");
	*colon = '\0';
	*user = pair;
	*secret = (const uint8_t *)colon + 1;
	*len = (unsigned)strlen(colon + 1);
}

static void on_dom_closed(void *arg)
{
	struct ram *ram = arg;

	shards_stop(ram->shards);
}

static void on_iscsi_closed(void *arg)
{
	struct ram *ram = arg;

	dom_close(ram->dom, on_dom_closed, ram);
}

static void on_signal(uv_signal_t *signal, int number)
{
	struct ram *ram = signal->data;

	if (ram->stopping)
		return;
	ram->stopping = true;
	for (unsigned i = 0; i < 2; i++)
		uv_close((uv_handle_t *)&ram->signals[i], NULL);
	iscsi_close(ram->iscsi, 1000, on_iscsi_closed, ram);
}

static void add_target(struct ram *ram)
{
	struct options *o = &ram->opt;
	static const char *const any = "any";
	struct iscsi_target_conf conf = {
		.iqn = o->iqn,
		.alias = "ram",
		.allow = o->allow_count ? o->allow : &any,
		.allow_count = o->allow_count ? o->allow_count : 1,
	};

	split(o->chap, &conf.chap_user, &conf.chap_secret,
	      &conf.chap_secret_len);
	split(o->mutual, &conf.mutual_user, &conf.mutual_secret,
	      &conf.mutual_secret_len);
	if (iscsi_target_set(ram->iscsi, &conf) < 0)
		die("the target was refused");
	for (unsigned i = 0; i < o->luns; i++) {
		struct iscsi_lun_conf lun = {
			.iqn = o->iqn,
			.lun = i,
			.name = "ram",
			.block_bytes = o->block,
			.read_only = o->read_only,
		};

		memset(lun.object.b, 0x5a, sizeof(lun.object.b));
		lun.object.b[15] = (uint8_t)i;
		lun.object.b[14] = (uint8_t)(i >> 8);
		if (fake_dom_add(ram->dom, &lun.object, o->size) < 0 ||
		    iscsi_lun_set(ram->iscsi, &lun) < 0)
			die("a unit was refused");
	}
}

static void open_all(struct ram *ram)
{
	struct options *o = &ram->opt;
	struct arena_config arena = { .bytes = o->arena };
	struct shards_config shards = { .count = 1 };
	struct sockaddr_storage bound;

	if (arena_open(&arena, &ram->arena) < 0)
		die("no memory");
	shards.arena = ram->arena;
	if (shards_open(&shards, &ram->shards) < 0)
		die("no shard");
	ram->env = shard_env(ram->shards, 0);
	if (fake_dom_open(ram->env, &ram->dom) < 0)
		die("no dom");
	o->config.env = ram->env;
	o->config.dom = ram->dom;
	if (iscsi_open(&o->config, &ram->iscsi) < 0)
		die("iscsi_open");
	for (unsigned i = 0; i < o->portals_count; i++) {
		int rv = iscsi_portal_listen(ram->iscsi, i + 1,
					     (struct sockaddr *)&o->portals[i],
					     (uint16_t)(i + 1));

		if (rv < 0)
			die(strerror(-rv));
		iscsi_portal_address(ram->iscsi, i + 1, &bound);
		printf("listening %u\n",
		       ntohs(bound.ss_family == AF_INET6
				     ? ((struct sockaddr_in6 *)&bound)
					       ->sin6_port
				     : ((struct sockaddr_in *)&bound)
					       ->sin_port));
	}
}

int main(int argc, char **argv)
{
	static const int numbers[2] = { SIGTERM, SIGINT };
	static struct ram ram;

	parse(&ram.opt, argc, argv);
	open_all(&ram);
	add_target(&ram);
	for (unsigned i = 0; i < 2; i++) {
		uv_signal_init(shard_loop(ram.env), &ram.signals[i]);
		ram.signals[i].data = &ram;
		uv_signal_start(&ram.signals[i], on_signal, numbers[i]);
	}
	printf("ready %s\n", ram.opt.iqn);
	fflush(stdout);
	shards_run(ram.shards);
	shards_close(ram.shards);
	arena_close(ram.arena);
	return 0;
}
