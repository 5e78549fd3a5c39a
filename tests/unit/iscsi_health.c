/* Refused logins in counters and in the health check; what changes meanwhile. */
#include "iscsi/iscsi_int.h"
#include "tests/lib/fake_dom.h"
#include "tests/lib/memenv.h"
#include "tests/lib/test.h"

#include <netinet/in.h>
#include <stdio.h>

#define IQN "iqn.2026-11.internal.basalt:t"
#define WHO "iqn.2026-11.example:me"
#define NAMES "InitiatorName=" WHO "\0TargetName=" IQN "\0"

static struct memenv me;
static struct dom *dom;
static struct iscsi *iscsi;

/* A connection that is there, and keeps the last thing it was told to send. */
struct line {
	struct dm_conn dm;
	struct env_task turn;
	struct dm_send *send;
	uint8_t bhs[ISCSI_BHS_LEN];
	char text[1024];
	size_t text_len;
	bool closing, closed;
};

static void line_turn(struct env_task *task)
{
	struct line *l = container_of(task, struct line, turn);
	struct dm_send *send = l->send;

	l->send = NULL;
	if (send != NULL) {
		memcpy(l->bhs, send->bhs, sizeof(l->bhs));
		l->text_len = MIN(send->data_len, sizeof(l->text));
		if (l->text_len > 0)
			memcpy(l->text, send->data, l->text_len);
		send->cb(send, l->closing ? -ECANCELED : 0);
	}
	if (!l->closing || l->closed)
		return;
	if (l->send != NULL) {
		env_defer(l->dm.env, &l->turn);
		return;
	}
	l->closed = true;
	l->dm.up->closed(l->dm.owner);
}

static void line_send(struct dm_conn *dm, struct dm_send *send)
{
	struct line *l = container_of(dm, struct line, dm);

	CHECK(l->send == NULL);
	l->send = send;
	env_defer(dm->env, &l->turn);
}

static int keys_status; /* what a transport has for a session's buffers */

static int line_keys(struct dm_conn *dm, const struct dm_keys *keys)
{
	return keys_status;
}

static void line_terminate(struct dm_conn *dm)
{
	struct line *l = container_of(dm, struct line, dm);

	l->closing = true;
	env_defer(dm->env, &l->turn);
}

static const struct dm_ops line_ops = {
	.name = "line",
	.send_control = line_send,
	.enable = line_send,
	.notice_keys = line_keys,
	.terminate = line_terminate,
};

/* What is deferred happens, timers stay. */
static void settle(void)
{
	while (vloop_task_turn(&me.loop))
		;
}

static bool line_open(struct line *l, unsigned portal)
{
	memset(l, 0, sizeof(*l));
	l->turn.cb = line_turn;
	l->dm.ops = &line_ops;
	l->dm.up = &iscsi_dm_up;
	l->dm.env = &me.loop.env;
	l->dm.peer.ss_family = l->dm.local.ss_family = AF_INET;
	l->dm.owner = iscsi_conn_accept(iscsi, &l->dm, portal);
	return l->dm.owner != NULL;
}

/* One Login Request with @flags; returns the status of the answer. */
static unsigned request(struct line *l, uint8_t flags, const char *text,
			size_t len)
{
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x43, flags };
	struct dm_pdu pdu = { .bhs = bhs,
			      .ahs = bhs,
			      .data = (const uint8_t *)text,
			      .data_len = (uint32_t)len };

	put_be32(bhs + 16, 1);
	l->dm.up->control(l->dm.owner, &pdu);
	settle();
	return get_be16(l->bhs + 36);
}
#define REQUEST(l, flags, literal)                                             \
	request(l, flags, literal, sizeof(literal) - 1)
#define FULL 0x87
#define SECURITY 0x81

static void target(const char *allow, const char *user)
{
	struct iscsi_target_conf conf = {
		.iqn = IQN,
		.allow = &allow,
		.allow_count = 1,
		.chap_user = user,
		.chap_secret = (const uint8_t *)"0123456789abcdef",
		.chap_secret_len = 16,
	};

	CHECK_EQ(iscsi_target_set(iscsi, &conf), 0);
}

static void begin(struct iscsi_config config)
{
	struct sockaddr_in any4 = { .sin_family = AF_INET };

	memenv_init(&me, NULL, 0);
	config.env = &me.loop.env;
	CHECK_EQ(fake_dom_open(&me.loop.env, &dom), 0);
	config.dom = dom;
	CHECK_EQ(iscsi_open(&config, &iscsi), 0);
	for (unsigned p = 1; p <= 2; p++)
		CHECK_EQ(iscsi_portal_declare(iscsi, p,
					      (struct sockaddr *)&any4, 1),
			 0);
	target("any", NULL);
}

static void on_done(void *arg)
{
	*(bool *)arg = true;
}

static void end(void)
{
	bool done = false;

	iscsi_close(iscsi, 0, on_done, &done);
	CHECK(memenv_run(&me, &done));
	done = false;
	dom_close(dom, on_done, &done);
	CHECK(memenv_run(&me, &done));
	memenv_fini(&me);
}

static struct health_result health(void)
{
	struct health_result out = { .level = HEALTH_OK };

	iscsi->health.run(&iscsi->health, &out);
	return out;
}

TEST(iscsi_health, refused_logins)
{
	uint64_t failed = counter_value(&iscsi__logins_failed);
	struct health_result h;
	struct line l;

	begin((struct iscsi_config){ 0 });
	CHECK_EQ(health().level, HEALTH_OK);
	target("iqn.2026-11.example:you", NULL);
	CHECK(line_open(&l, 1));
	CHECK_EQ(REQUEST(&l, FULL, NAMES), 0x0202);
	CHECK(l.closed);
	h = health();
	CHECK_EQ(h.level, HEALTH_INFO);
	CHECK(strstr(h.cause, WHO) != NULL && strstr(h.cause, IQN) != NULL);
	CHECK(strncmp(h.cause, "1 login was refused", 19) == 0);
	CHECK(h.fix[0] != '\0');
	target("any", "user");
	for (unsigned i = 0; i < 9; i++) {
		CHECK(line_open(&l, 1));
		CHECK_EQ(REQUEST(&l, FULL, NAMES), 0x0201);
	}
	h = health();
	CHECK_EQ(h.level, HEALTH_WARN);
	CHECK(strstr(h.cause, "10 logins") != NULL);
	CHECK(strstr(h.cause, "9 of them by CHAP") != NULL);
	CHECK(strstr(h.fix, "--allow") != NULL);
	CHECK(line_open(&l, 1));
	CHECK_EQ(REQUEST(&l, FULL,
			 "InitiatorName=" WHO "\0TargetName=" IQN "2\0"),
		 0x0203);
	h = health();
	CHECK(strstr(h.cause, "no such target") != NULL);
	CHECK(strstr(h.fix, "basalt target list") != NULL);
	CHECK_EQ(counter_value(&iscsi__logins_failed) - failed, 11);
	/* It is forgotten. */
	me.loop.env.now_ns += 301 * SEC;
	CHECK_EQ(health().level, HEALTH_WARN);
	me.loop.env.now_ns += 301 * SEC;
	CHECK_EQ(health().level, HEALTH_OK);
	end();
}

TEST(iscsi_health, flood)
{
	struct line l[3];

	begin((struct iscsi_config){ .logins_per_source = 2 });
	CHECK(line_open(&l[0], 1));
	CHECK(line_open(&l[1], 1));
	CHECK_EQ(counter_value(&iscsi__conns), 2);
	CHECK(!line_open(&l[2], 1));
	CHECK_EQ(health().level, HEALTH_WARN);
	end();
	CHECK_EQ(counter_value(&iscsi__conns), 0);
}

/* Hosts behind one address: one that is silent does not keep out the others. */
TEST(iscsi_health, silent_logins_give_way)
{
	struct line l[4], old[2];

	begin((struct iscsi_config){ .logins_per_source = 2 });
	CHECK(line_open(&old[0], 1));
	me.loop.env.now_ns += SEC;
	CHECK(line_open(&old[1], 1));
	CHECK(!line_open(&l[0], 1));
	me.loop.env.now_ns += SEC;
	/* The first one of them said something a moment ago. */
	CHECK_EQ(REQUEST(&old[0], 0x04, NAMES), 0);
	CHECK(!line_open(&l[0], 1));
	me.loop.env.now_ns += SEC;
	CHECK(line_open(&l[0], 1));
	settle();
	CHECK(old[1].closed && !old[0].closing);
	CHECK_EQ(REQUEST(&l[0], FULL, NAMES), 0);
	CHECK(line_open(&l[1], 1));
	CHECK(!line_open(&l[2], 1));
	/* Who has found something is not, and who has a target is none of them. */
	CHECK_EQ(REQUEST(&l[1], FULL,
			 "InitiatorName=" WHO "\0SessionType=Discovery\0"),
		 0);
	me.loop.env.now_ns += SEC;
	CHECK(line_open(&l[2], 1));
	settle();
	CHECK(old[0].closed && !l[0].closing && !l[1].closing);
	me.loop.env.now_ns += SEC;
	CHECK(line_open(&l[3], 1));
	settle();
	CHECK(l[1].closed && !l[0].closing && !l[2].closing);
	end();
}

TEST(iscsi_health, no_room)
{
	struct line l[2];

	begin((struct iscsi_config){ .sessions_max = 1 });
	CHECK(line_open(&l[0], 1));
	CHECK_EQ(REQUEST(&l[0], FULL, NAMES), 0);
	CHECK_EQ(counter_value(&iscsi__sessions), 1);
	CHECK(line_open(&l[1], 1));
	CHECK_EQ(REQUEST(&l[1], FULL,
			 "InitiatorName=" WHO "2\0TargetName=" IQN "\0"),
		 0x0302);
	CHECK_EQ(health().level, HEALTH_WARN);
	CHECK(strstr(health().cause, "one initiator has no more") != NULL);
	CHECK(strstr(health().cause, "memory") == NULL);
	end();
	CHECK_EQ(counter_value(&iscsi__sessions), 0);
}

/* Where sessions may be more, but have no memory, ending one is no advice. */
TEST(iscsi_health, no_memory)
{
	struct line l;

	begin((struct iscsi_config){ 0 });
	CHECK(line_open(&l, 1));
	keys_status = -ENOMEM;
	CHECK_EQ(REQUEST(&l, FULL, NAMES), 0x0302);
	keys_status = 0;
	CHECK_EQ(health().level, HEALTH_WARN);
	CHECK(strstr(health().cause, "1 login found no memory") != NULL);
	CHECK(strstr(health().cause, WHO " to " IQN ": no memory") != NULL);
	CHECK(strstr(health().cause, "room") == NULL);
	CHECK(strstr(health().fix, "memory") != NULL);
	CHECK(strstr(health().fix, "session drop") == NULL);
	end();
}

/* A portal goes with what is connected through it, and with nothing else. */
TEST(iscsi_health, portal_removed)
{
	struct sockaddr_in any4 = { .sin_family = AF_INET };
	struct sockaddr_storage address;
	struct line l[3];

	begin((struct iscsi_config){ 0 });
	for (unsigned i = 0; i < 3; i++)
		CHECK(line_open(&l[i], 1 + i % 2));
	CHECK_EQ(REQUEST(&l[0], FULL, NAMES), 0);
	CHECK_EQ(REQUEST(&l[1], FULL,
			 "InitiatorName=" WHO "2\0TargetName=" IQN "\0"),
		 0);
	CHECK_EQ(iscsi_portal_remove(iscsi, 1), 0);
	CHECK_EQ(iscsi_portal_remove(iscsi, 1), -ENOENT);
	CHECK_EQ(iscsi_portal_address(iscsi, 1, &address), -ENOENT);
	settle();
	CHECK(l[0].closed && l[2].closed && !l[1].closed);
	CHECK_EQ(counter_value(&iscsi__sessions), 1);
	CHECK(!line_open(&l[2], 1));
	/* The number is free again. */
	CHECK_EQ(iscsi_portal_declare(iscsi, 1, (struct sockaddr *)&any4, 1),
		 0);
	CHECK(line_open(&l[0], 1));
	end();
}

/* What a target asks for holds for logins that are under way, too. */
TEST(iscsi_health, target_changes_during_login)
{
	struct line l;

	begin((struct iscsi_config){ 0 });
	CHECK(line_open(&l, 1));
	CHECK_EQ(REQUEST(&l, SECURITY, NAMES "AuthMethod=None\0"), 0);
	target("iqn.2026-11.example:you", NULL);
	CHECK_EQ(REQUEST(&l, FULL, ""), 0x0202);
	target("any", NULL);
	CHECK(line_open(&l, 1));
	CHECK_EQ(REQUEST(&l, SECURITY, NAMES "AuthMethod=None\0"), 0);
	target("any", "user");
	CHECK_EQ(REQUEST(&l, FULL, ""), 0x0201);
	end();
}

/* Does a discovery by WHO name the target? */
static bool discovers(void)
{
	static struct line lines[8]; /* they stay open to the end */
	static unsigned used;
	struct line *l = &lines[used++ % ARRAY_LEN(lines)];
	uint8_t bhs[ISCSI_BHS_LEN] = { 0x44, 0x80 };
	struct dm_pdu pdu = { .bhs = bhs,
			      .ahs = bhs,
			      .data = (const uint8_t *)"SendTargets=All",
			      .data_len = 16 };

	CHECK(line_open(l, 1));
	CHECK_EQ(REQUEST(l, FULL,
			 "InitiatorName=" WHO "\0SessionType=Discovery\0"),
		 0);
	put_be32(bhs + 16, 2);
	put_be32(bhs + 20, ISCSI_NO_TAG);
	l->dm.up->control(l->dm.owner, &pdu);
	settle();
	CHECK_EQ(l->bhs[0], ISCSI_OP_TEXT_RSP);
	return memmem(l->text, l->text_len, IQN, strlen(IQN)) != NULL;
}

/* Names go to whom a target admits, CHAP or not; see iscsi_target_set(). */
TEST(iscsi_health, whom_discovery_tells)
{
	struct iscsi_target_conf by_secret = {
		.iqn = IQN,
		.chap_user = "user",
		.chap_secret = (const uint8_t *)"0123456789abcdef",
		.chap_secret_len = 16,
	}, nobody = { .iqn = IQN };
	struct line l;

	begin((struct iscsi_config){ 0 });
	CHECK(discovers());
	target(WHO, "user");
	CHECK(discovers());
	target("iqn.2026-11.example:you", "user");
	CHECK(!discovers());
	CHECK_EQ(iscsi_target_set(iscsi, &by_secret), 0);
	CHECK(discovers());
	CHECK_EQ(iscsi_target_set(iscsi, &nobody), 0);
	CHECK(!discovers());
	/* There is no secret for discovery itself. */
	CHECK(line_open(&l, 1));
	CHECK_EQ(REQUEST(&l, SECURITY,
			 "InitiatorName=" WHO "\0SessionType=Discovery\0"
			 "AuthMethod=CHAP\0"),
		 0x0201);
	end();
}
